//! The values of CEL: which are equal, how they compare, and what it costs to look into them.
#![expect(clippy::wildcard_enum_match_arm, reason = "values of most pairs of types have nothing in common")]

use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

use cel::common::ast::LiteralValue;
use serde_json::{Map, Value as Json};

use crate::budget::{Budget, Exceeded};

/// A value of an expression. What is of a document is borrowed from it.
#[derive(Clone, Debug)]
pub enum Value<'v> {
    /// Nothing, which is a value.
    Null,
    /// A boolean.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number that is marked as unsigned, or too large for the others.
    Uint(u64),
    /// A number with a fraction.
    Double(f64),
    /// A text.
    Text(Text<'v>),
    /// Bytes.
    Bytes(Rc<[u8]>),
    /// A list.
    List(List<'v>),
    /// A map.
    Map(Fields<'v>),
    /// A type, as `type(x)` has it.
    Type(&'static str),
}

/// A text. To copy it costs nothing, so that lists and maps of texts can be copied, too.
#[derive(Clone)]
pub enum Text<'v> {
    /// Of a document, or of the expression.
    Borrowed(&'v str),
    /// Made by the expression.
    Made(Rc<str>),
}

/// The elements of a list.
#[derive(Clone, Debug)]
pub enum List<'v> {
    /// Of a document.
    Json(&'v [Json]),
    /// Made by the expression.
    Made(Rc<Vec<Value<'v>>>),
}

/// The entries of a map.
#[derive(Clone, Debug)]
pub enum Fields<'v> {
    /// Of a document.
    Json(&'v Map<String, Json>),
    /// Written in the expression.
    Made(Rc<Vec<(Value<'v>, Value<'v>)>>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Made(text) => text,
        }
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<'v> Value<'v> {
    /// Returns a value of a document. Whole numbers are `int`, so that they can be calculated with.
    pub fn of(json: &'v Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(truth) => Self::Bool(*truth),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(int), _) => Self::Int(int),
                (None, Some(uint)) => Self::Uint(uint),
                (None, None) => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::Text(Text::Borrowed(text)),
            Json::Array(items) => Self::List(List::Json(items)),
            Json::Object(fields) => Self::Map(Fields::Json(fields)),
        }
    }

    /// Returns the name of its type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::Text(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Type(_) => "type",
        }
    }

    /// Whether a map may have it as a key.
    pub(super) fn is_key(&self) -> bool {
        matches!(self, Self::Bool(_) | Self::Int(_) | Self::Uint(_) | Self::Text(_))
    }

    pub(super) fn of_literal(literal: &'v LiteralValue) -> Self {
        match literal {
            LiteralValue::Null => Self::Null,
            LiteralValue::Boolean(truth) => Self::Bool(*truth.inner()),
            LiteralValue::Int(int) => Self::Int(*int.inner()),
            LiteralValue::UInt(uint) => Self::Uint(*uint.inner()),
            LiteralValue::Double(double) => Self::Double(*double.inner()),
            LiteralValue::String(text) => Self::Text(Text::Borrowed(text.inner())),
            LiteralValue::Bytes(bytes) => Self::Bytes(bytes.inner().into()),
        }
    }

    /// Whether two values are equal. Numbers are, whatever their types; otherwise values of two types are not.
    pub(super) fn equals(&self, other: &Self, budget: &mut Budget) -> Result<bool, Exceeded> {
        budget.step(1)?;
        Ok(match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Text(a), Self::Text(b)) => {
                budget.text(a.len().min(b.len()))?;
                **a == **b
            }
            (Self::Bytes(a), Self::Bytes(b)) => {
                budget.text(a.len().min(b.len()))?;
                a == b
            }
            (Self::Type(a), Self::Type(b)) => a == b,
            (Self::List(a), Self::List(b)) => {
                if a.len() != b.len() {
                    return Ok(false);
                }
                for index in 0..a.len() {
                    let (Some(a), Some(b)) = (a.get(index), b.get(index)) else {
                        return Ok(false);
                    };
                    if !a.equals(&b, budget)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Self::Map(a), Self::Map(b)) => return a.equals(b, budget),
            _ => self.compare(other) == Some(Ordering::Equal),
        })
    }

    /// Compares two values that have an order; numbers of all types have one together.
    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => Some(a.cmp(b)),
            (Self::Text(a), Self::Text(b)) => Some(a.cmp(b)),
            (Self::Bytes(a), Self::Bytes(b)) => Some(a.cmp(b)),
            (Self::Int(a), Self::Int(b)) => Some(a.cmp(b)),
            (Self::Uint(a), Self::Uint(b)) => Some(a.cmp(b)),
            (Self::Double(a), Self::Double(b)) => a.partial_cmp(b),
            (Self::Int(a), Self::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Self::Uint(a), Self::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Self::Int(a), Self::Double(b)) => of_double(i128::from(*a), *b),
            (Self::Uint(a), Self::Double(b)) => of_double(i128::from(*a), *b),
            (Self::Double(a), Self::Int(b)) => of_double(i128::from(*b), *a).map(Ordering::reverse),
            (Self::Double(a), Self::Uint(b)) => of_double(i128::from(*b), *a).map(Ordering::reverse),
            _ => None,
        }
    }
}

/// Compares a whole number with a float.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a float beyond an i128 is its largest or smallest, which compares as the float does"
)]
fn of_double(whole: i128, double: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    let order = whole.cmp(&(double.floor() as i128));
    let fraction = double.is_finite() && double.fract() != 0.0;
    Some(match order {
        Ordering::Equal if fraction => Ordering::Less,
        order => order,
    })
}

impl<'v> List<'v> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Json(items) => items.len(),
            Self::Made(items) => items.len(),
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<Value<'v>> {
        match self {
            Self::Json(items) => items.get(index).map(Value::of),
            Self::Made(items) => items.get(index).cloned(),
        }
    }
}

impl List<'_> {
    /// Returns the elements if all of them are texts.
    pub(super) fn texts(&self) -> Option<Vec<String>> {
        let text = |index| match self.get(index) {
            Some(Value::Text(text)) => Some(text.to_string()),
            _ => None,
        };
        (0..self.len()).map(text).collect()
    }
}

impl<'v> Fields<'v> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Json(fields) => fields.len(),
            Self::Made(entries) => entries.len(),
        }
    }

    pub(super) fn get(&self, key: &Value<'_>, budget: &mut Budget) -> Result<Option<Value<'v>>, Exceeded> {
        match (self, key) {
            (Self::Json(fields), Value::Text(name)) => Ok(fields.get(&**name).map(Value::of)),
            (Self::Json(_), _) => Ok(None),
            (Self::Made(entries), _) => {
                for (other, value) in entries.iter() {
                    if key.equals(other, budget)? {
                        return Ok(Some(value.clone()));
                    }
                }
                Ok(None)
            }
        }
    }

    /// Returns the entry at a position.
    pub(super) fn entry(&self, names: &[&'v str], index: usize) -> Option<(Value<'v>, Value<'v>)> {
        match self {
            Self::Json(fields) => {
                let name = *names.get(index)?;
                Some((Value::Text(Text::Borrowed(name)), Value::of(fields.get(name)?)))
            }
            Self::Made(entries) => entries.get(index).cloned(),
        }
    }

    /// Returns the names of a document's fields.
    pub(super) fn names(&self, budget: &mut Budget) -> Result<Vec<&'v str>, Exceeded> {
        match self {
            Self::Json(fields) => {
                budget.step(u64::try_from(fields.len()).unwrap_or(u64::MAX))?;
                Ok(fields.keys().map(String::as_str).collect())
            }
            Self::Made(_) => Ok(Vec::new()),
        }
    }

    pub(super) fn equals(&self, other: &Self, budget: &mut Budget) -> Result<bool, Exceeded> {
        if self.len() != other.len() {
            return Ok(false);
        }
        let names = self.names(budget)?;
        for index in 0..self.len() {
            let Some((key, value)) = self.entry(&names, index) else {
                return Ok(false);
            };
            match other.get(&key, budget)? {
                Some(found) if value.equals(&found, budget)? => {}
                Some(_) | None => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// The memory that a value takes beside its text or items, in bytes.
pub(super) const EACH: usize = size_of::<Value<'_>>();

/// Returns a list that the expression has made.
pub(super) fn made(items: Vec<Value<'_>>) -> Value<'_> {
    Value::List(List::Made(Rc::new(items)))
}
