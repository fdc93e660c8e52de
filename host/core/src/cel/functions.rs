//! Decides what the operators and functions of CEL make of their arguments.

use std::cmp::Ordering;
use std::rc::Rc;

use regex_automata::nfa::thompson::{self, pikevm::PikeVM};

use super::value::{EACH, Text};
use super::{Error, List, Outcome, Value, made, no_overload, strings};
use crate::budget::Budget;

/// Characters of a regular expression, and bytes of what it is compiled to. Usual ones take a tenth of that; a counted repetition
/// of a class with all letters of the world may take all of it.
const PATTERN: usize = 1 << 10;
const PROGRAM: usize = 256 << 10;

/// What a set of characters in one costs at most, in steps: `(?i)\p{L}` is of that kind.
const SET: u64 = 5_000;

/// The functions that an expression may call, beside the operators.
const FUNCTIONS: [&str; 19] = [
    "bool",
    "bytes",
    "contains",
    "double",
    "dyn",
    "endsWith",
    "int",
    "join",
    "lowerAscii",
    "matches",
    "replace",
    "size",
    "split",
    "startsWith",
    "string",
    "trim",
    "type",
    "uint",
    "upperAscii",
];

/// The types that have names, beside what `type` calls them.
const TYPES: [(&str, &str); 11] = [
    ("bool", "bool"),
    ("bytes", "bytes"),
    ("double", "double"),
    ("dyn", "dyn"),
    ("int", "int"),
    ("list", "list"),
    ("map", "map"),
    ("null_type", "null"),
    ("string", "string"),
    ("type", "type"),
    ("uint", "uint"),
];

/// Whether an expression may call this: a function, or an operator as the parser names it.
pub(super) fn is_function(name: &str) -> bool {
    const OPERATORS: [&str; 19] = [
        "_&&_",
        "_||_",
        "_?_:_",
        "@not_strictly_false",
        "!_",
        "-_",
        "_+_",
        "_-_",
        "_*_",
        "_/_",
        "_%_",
        "_==_",
        "_!=_",
        "_<_",
        "_<=_",
        "_>_",
        "_>=_",
        "@in",
        "_[_]",
    ];
    FUNCTIONS.contains(&name) || OPERATORS.contains(&name)
}

/// Whether this is the name of a type.
pub(super) fn is_type(name: &str) -> bool {
    type_named(name).is_some()
}

pub(super) fn type_named(name: &str) -> Option<&'static str> {
    TYPES.iter().find_map(|(known, canonical)| (*known == name).then_some(*canonical))
}

/// Returns the type of what an operator or a function returns, if it is always the same.
pub(super) fn type_of(name: &str) -> Option<&'static str> {
    match name {
        "_&&_" | "_||_" | "!_" | "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" | "@in" | "contains"
        | "endsWith" | "matches" | "startsWith" | "bool" => Some("bool"),
        "int" | "size" => Some("int"),
        "bytes" => Some("bytes"),
        "double" => Some("double"),
        "string" | "join" | "replace" | "lowerAscii" | "upperAscii" | "trim" => Some("string"),
        "split" => Some("list"),
        "type" => Some("type"),
        "uint" => Some("uint"),
        _ => None,
    }
}

/// Applies an operator or a function.
pub(super) fn apply<'v>(name: &str, arguments: &[Value<'v>], budget: &mut Budget) -> Outcome<'v> {
    match (name, arguments) {
        ("_==_", [a, b]) => Ok(Value::Bool(a.equals(b, budget)?)),
        ("_!=_", [a, b]) => Ok(Value::Bool(!a.equals(b, budget)?)),
        ("_<_", [a, b]) => ordered(name, a, b, budget, Ordering::is_lt),
        ("_<=_", [a, b]) => ordered(name, a, b, budget, Ordering::is_le),
        ("_>_", [a, b]) => ordered(name, a, b, budget, Ordering::is_gt),
        ("_>=_", [a, b]) => ordered(name, a, b, budget, Ordering::is_ge),
        ("!_", [Value::Bool(truth)]) => Ok(Value::Bool(!truth)),
        ("-_", [Value::Int(int)]) => int.checked_neg().map(Value::Int).ok_or_else(overflow),
        ("-_", [Value::Double(double)]) => Ok(Value::Double(-double)),
        ("_+_", [a, b]) => added(a, b, budget),
        ("_-_" | "_*_" | "_/_" | "_%_", [a, b]) => calculated(name, a, b),
        ("@in", [item, range]) => contained(item, range, budget),
        ("_[_]", [range, index]) => indexed(range, index, budget),
        ("size", [value]) => size(value, budget),
        ("type", [value]) => Ok(Value::Type(value.type_name())),
        ("dyn", [value]) => Ok(value.clone()),
        ("contains" | "startsWith" | "endsWith" | "matches", [Value::Text(text), Value::Text(part)]) => {
            searched(name, text, part, budget)
        }
        ("string" | "int" | "uint" | "double" | "bool" | "bytes", [value]) => converted(name, value, budget),
        _ => strings::apply(name, arguments, budget).unwrap_or_else(|| Err(no_overload(name, arguments))),
    }
}

fn ordered<'v>(
    name: &str,
    a: &Value<'_>,
    b: &Value<'_>,
    budget: &mut Budget,
    holds: fn(Ordering) -> bool,
) -> Outcome<'v> {
    match (a, b) {
        (Value::Text(a), Value::Text(b)) => budget.text(a.len().min(b.len()))?,
        (Value::Bytes(a), Value::Bytes(b)) => budget.text(a.len().min(b.len()))?,
        _ => {}
    }
    let number = |value: &Value<'_>| matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_));
    match a.compare(b) {
        Some(order) => Ok(Value::Bool(holds(order))),
        // Not a number is neither less nor greater.
        None if number(a) && number(b) => Ok(Value::Bool(false)),
        None => Err(no_overload(name, &[a.clone(), b.clone()])),
    }
}

fn added<'v>(a: &Value<'v>, b: &Value<'v>, budget: &mut Budget) -> Outcome<'v> {
    match (a, b) {
        (Value::Text(a), Value::Text(b)) => {
            budget.text(a.len() + b.len())?;
            budget.make(a.len() + b.len())?;
            Ok(Value::Text(Text::Made([&**a, &**b].concat().into())))
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            budget.text(a.len() + b.len())?;
            budget.make(a.len() + b.len())?;
            Ok(Value::Bytes([&**a, &**b].concat().into()))
        }
        (Value::List(a), Value::List(b)) => {
            let length = a.len() + b.len();
            budget.step(u64::try_from(length).unwrap_or(u64::MAX))?;
            budget.make(length.saturating_mul(EACH))?;
            let mut all = Vec::with_capacity(length);
            for list in [a, b] {
                match list {
                    List::Json(items) => all.extend(items.iter().map(Value::of)),
                    List::Made(items) => all.extend(items.iter().cloned()),
                }
            }
            Ok(made(all))
        }
        _ => calculated("_+_", a, b),
    }
}

/// Calculates with whole numbers of one type; `None` if the result is none of them.
macro_rules! checked {
    ($name:expr, $a:expr, $b:expr) => {
        match $name {
            "_+_" => $a.checked_add($b),
            "_-_" => $a.checked_sub($b),
            "_*_" => $a.checked_mul($b),
            "_/_" => $a.checked_div($b),
            _ => $a.checked_rem($b),
        }
    };
}

fn calculated<'v>(name: &str, a: &Value<'v>, b: &Value<'v>) -> Outcome<'v> {
    let undefined = |text: &str| Err(Error::Undefined(text.to_owned()));
    match (name, a, b) {
        ("_/_" | "_%_", Value::Int(_), Value::Int(0)) | ("_/_" | "_%_", Value::Uint(_), Value::Uint(0)) => {
            undefined("division by zero")
        }
        (_, Value::Int(a), Value::Int(b)) => checked!(name, a, *b).map(Value::Int).ok_or_else(overflow),
        (_, Value::Uint(a), Value::Uint(b)) => checked!(name, a, *b).map(Value::Uint).ok_or_else(overflow),
        ("_+_", Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        ("_-_", Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
        ("_*_", Value::Double(a), Value::Double(b)) => Ok(Value::Double(a * b)),
        ("_/_", Value::Double(a), Value::Double(b)) => Ok(Value::Double(a / b)),
        _ => Err(no_overload(name, &[a.clone(), b.clone()])),
    }
}

fn overflow() -> Error {
    Error::Undefined("a number too large".to_owned())
}

fn contained<'v>(item: &Value<'v>, range: &Value<'v>, budget: &mut Budget) -> Outcome<'v> {
    match range {
        Value::List(list) => {
            for index in 0..list.len() {
                if let Some(other) = list.get(index)
                    && item.equals(&other, budget)?
                {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        Value::Map(fields) if item.is_key() || matches!(item, Value::Double(_)) => {
            Ok(Value::Bool(fields.get(item, budget)?.is_some()))
        }
        _ => Err(no_overload("@in", &[item.clone(), range.clone()])),
    }
}

fn indexed<'v>(range: &Value<'v>, index: &Value<'v>, budget: &mut Budget) -> Outcome<'v> {
    match (range, index) {
        (Value::Null, _) => Err(Error::OfNull),
        (Value::Map(fields), key) => fields.get(key, budget)?.ok_or_else(|| match key {
            Value::Text(name) => Error::NoField(name.chars().take(100).collect()),
            _ => Error::Undefined("there is no entry with this key".to_owned()),
        }),
        (Value::List(list), Value::Int(_) | Value::Uint(_) | Value::Double(_)) => {
            let position = match index {
                Value::Int(int) => usize::try_from(*int).ok(),
                Value::Uint(uint) => usize::try_from(*uint).ok(),
                // As it is for keys of maps: a float without a fraction is a whole number.
                Value::Double(double) if double.fract() == 0.0 => {
                    whole(*double).and_then(|whole| usize::try_from(whole).ok())
                }
                _ => None,
            };
            budget.step(1)?;
            let found = position.and_then(|position| list.get(position));
            found.ok_or_else(|| Error::Undefined("there is no element at this index".to_owned()))
        }
        _ => Err(no_overload("_[_]", &[range.clone(), index.clone()])),
    }
}

fn size<'v>(value: &Value<'v>, budget: &mut Budget) -> Outcome<'v> {
    let size = match value {
        Value::Text(text) => {
            budget.text(text.len())?;
            text.chars().count()
        }
        Value::Bytes(bytes) => bytes.len(),
        Value::List(list) => list.len(),
        Value::Map(fields) => fields.len(),
        _ => return Err(no_overload("size", std::slice::from_ref(value))),
    };
    Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX)))
}

fn searched<'v>(name: &str, text: &str, part: &str, budget: &mut Budget) -> Outcome<'v> {
    budget.text(text.len() + part.len())?;
    Ok(Value::Bool(match name {
        "contains" => text.contains(part),
        "startsWith" => text.starts_with(part),
        "endsWith" => text.ends_with(part),
        _ => matches(text, part, budget)?,
    }))
}

/// Searches for a regular expression, which may come from a document: it is bounded, and searching costs the length of the text
/// times that of what the expression is compiled to.
pub(crate) fn matches(text: &str, pattern: &str, budget: &mut Budget) -> Result<bool, Error> {
    let too_large =
        |bound: usize, what: &str| Error::Undefined(format!("a regular expression has at most {bound} {what}"));
    if pattern.len() > PATTERN {
        return Err(too_large(PATTERN, "characters"));
    }
    // Parsing costs more than what comes of it shows: sets of characters are put together from tables of thousands.
    let sets = pattern.matches(['[', '\\']).count().saturating_add(1);
    budget.step(SET.saturating_mul(u64::try_from(sets).unwrap_or(u64::MAX)))?;
    let bounded = thompson::Config::new().nfa_size_limit(Some(PROGRAM));
    let machine = PikeVM::builder().thompson(bounded).build(pattern);
    // What was built in vain cost as much as the largest.
    let built = machine.as_ref().map_or(PROGRAM, |machine| machine.get_nfa().memory_usage());
    budget.text(PATTERN + built)?;
    let machine = machine.map_err(|error| match error.size_limit() {
        Some(bound) => too_large(bound, "bytes once it is compiled; `[0-9A-Za-z_]` is shorter than `\\w`"),
        None => Error::Undefined("it is not a regular expression".to_owned()),
    })?;
    let states = u64::try_from(machine.get_nfa().states().len()).unwrap_or(u64::MAX);
    let length = u64::try_from(text.len()).unwrap_or(u64::MAX);
    budget.step(length.saturating_mul(states) / 8)?;
    Ok(machine.is_match(&mut machine.create_cache(), text))
}

fn converted<'v>(name: &str, value: &Value<'v>, budget: &mut Budget) -> Outcome<'v> {
    if let Value::Text(text) = value {
        budget.text(text.len())?;
    }
    let unfit = || {
        let text = format!("this {} is no {name}", value.type_name());
        Error::Undefined(text)
    };
    match (name, value) {
        ("string", Value::Text(_))
        | ("bytes", Value::Bytes(_))
        | ("int", Value::Int(_))
        | ("uint", Value::Uint(_))
        | ("double", Value::Double(_))
        | ("bool", Value::Bool(_)) => Ok(value.clone()),
        ("string", Value::Bool(truth)) => Ok(text(truth.to_string())),
        ("string", Value::Int(int)) => Ok(text(int.to_string())),
        ("string", Value::Uint(uint)) => Ok(text(uint.to_string())),
        ("string", Value::Double(double)) => Ok(text(double.to_string())),
        ("string", Value::Bytes(bytes)) => {
            budget.text(bytes.len())?;
            budget.make(bytes.len())?;
            let read = std::str::from_utf8(bytes).map_err(|_| unfit())?;
            Ok(text(read.to_owned()))
        }
        ("bytes", Value::Text(text)) => {
            budget.text(text.len())?;
            budget.make(text.len())?;
            Ok(Value::Bytes(Rc::from(text.as_bytes())))
        }
        ("int", Value::Uint(uint)) => i64::try_from(*uint).map(Value::Int).map_err(|_| overflow()),
        ("int", Value::Double(double)) => {
            whole(*double).and_then(|whole| i64::try_from(whole).ok()).map(Value::Int).ok_or_else(overflow)
        }
        ("int", Value::Text(text)) => text.parse().map(Value::Int).map_err(|_| unfit()),
        ("uint", Value::Int(int)) => u64::try_from(*int).map(Value::Uint).map_err(|_| overflow()),
        ("uint", Value::Double(double)) => {
            whole(*double).and_then(|whole| u64::try_from(whole).ok()).map(Value::Uint).ok_or_else(overflow)
        }
        ("uint", Value::Text(text)) => text.parse().map(Value::Uint).map_err(|_| unfit()),
        ("double", Value::Int(int)) => Ok(Value::Double(double(i128::from(*int)))),
        ("double", Value::Uint(uint)) => Ok(Value::Double(double(i128::from(*uint)))),
        ("double", Value::Text(text)) => text.parse().map(Value::Double).map_err(|_| unfit()),
        ("bool", Value::Text(text)) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => Err(unfit()),
        },
        _ => Err(no_overload(name, std::slice::from_ref(value))),
    }
}

fn text<'v>(text: String) -> Value<'v> {
    Value::Text(Text::Made(text.into()))
}

/// Returns a float without its fraction.
#[expect(clippy::cast_possible_truncation, reason = "a float beyond an i128 is beyond what is asked for, too")]
fn whole(double: f64) -> Option<i128> {
    double.is_finite().then(|| double.trunc() as i128)
}

#[expect(clippy::cast_precision_loss, reason = "as CEL has it")]
fn double(whole: i128) -> f64 {
    whole as f64
}
