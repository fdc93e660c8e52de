//! Makes the object that a template stands for, as JSON, at a cost that is paid for.

use std::borrow::Cow;

use serde_json::{Number, Value as Json};

use super::{Node, Piece};
use crate::budget::{Budget, Exceeded, LEVELS};
use crate::cel::Value;
use crate::cel::expression::{Expression, Failure, Right};
use crate::cel::value::{Fields, List};

/// The most bytes of what a template makes: as much as a component may answer.
const BYTES: usize = 4 << 20;

/// Why a template makes no object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the template at {}: {why}", if pointer.is_empty() { "/" } else { pointer })]
pub struct Unmade {
    /// Where in it.
    pointer: String,
    why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Why {
    #[error(transparent)]
    Expression(#[from] Failure),
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
    #[error("what it makes is larger than {BYTES} bytes")]
    Size,
}

/// An object that is being made.
pub(super) struct Making<'m, 'b> {
    variables: &'m [(&'m str, &'m Json)],
    budget: &'b mut Budget,
    made: String,
}

impl<'m, 'b> Making<'m, 'b> {
    pub(super) fn of(variables: &'m [(&'m str, &'m Json)], budget: &'b mut Budget) -> Self {
        Self { variables, budget, made: String::new() }
    }

    pub(super) fn object(mut self, root: &'m Node) -> Result<String, Unmade> {
        if !self.node(root)? {
            self.made.push_str("{}");
        }
        Ok(self.made)
    }

    /// Adds a part. Returns false if there is nothing to add.
    fn node(&mut self, node: &'m Node) -> Result<bool, Unmade> {
        match node {
            Node::Plain(Json::Null) => Ok(false),
            Node::Plain(value) => self.plain(value).map(|()| true).map_err(Unmade::here),
            Node::Value(expression) => self.value(expression).map_err(Unmade::here),
            Node::Text(pieces) => self.text(pieces).map(|()| true).map_err(Unmade::here),
            Node::List(items) => {
                let items = items.iter().enumerate().map(|(i, item)| (i.to_string(), None, item));
                self.each('[', items, ']').map(|()| true)
            }
            Node::Map(fields) => {
                let fields = fields.iter().map(|(name, value)| (name.clone(), Some(name), value));
                self.each('{', fields, '}').map(|()| true)
            }
        }
    }

    /// Adds a list or a mapping, without what is nothing.
    fn each(
        &mut self,
        open: char,
        parts: impl Iterator<Item = (String, Option<&'m String>, &'m Node)>,
        close: char,
    ) -> Result<(), Unmade> {
        self.made.push(open);
        let begin = self.made.len();
        for (step, name, node) in parts {
            let before = self.made.len();
            if before > begin {
                self.made.push(',');
            }
            let name = name.map_or(Ok(()), |name| self.string(name).and_then(|()| self.push(":")));
            let added = name.map_err(Unmade::here).and_then(|()| self.node(node));
            if !added.map_err(|unmade| unmade.below(&step))? {
                self.made.truncate(before);
            }
        }
        self.made.push(close);
        Ok(())
    }

    fn text(&mut self, pieces: &'m [Piece]) -> Result<(), Why> {
        let mut text = String::new();
        for piece in pieces {
            let part = match piece {
                Piece::Plain(plain) => Cow::Borrowed(plain.as_str()),
                Piece::Value(expression) => {
                    let value = expression.value(self.variables, self.budget)?;
                    let part = scalar(&value).ok_or_else(|| expression.mistyped(&value, Right::Scalar))?;
                    Cow::Owned(part.into_owned())
                }
            };
            self.room(text.len() + part.len())?;
            self.budget.text(part.len())?;
            text.push_str(&part);
        }
        self.string(&text)
    }

    /// Adds the value of an expression. Returns false if that is null.
    fn value(&mut self, expression: &'m Expression) -> Result<bool, Why> {
        let value = expression.value(self.variables, self.budget)?;
        if matches!(value, Value::Null) {
            return Ok(false);
        }
        self.json(&value, expression, 0)?;
        Ok(true)
    }

    fn json(&mut self, value: &Value<'_>, expression: &Expression, depth: usize) -> Result<(), Why> {
        self.budget.step(1)?;
        if depth > LEVELS {
            return Err(Exceeded::Levels(LEVELS).into());
        }
        match value {
            Value::Null => self.push("null"),
            Value::Bool(_) | Value::Int(_) | Value::Uint(_) => self.push(&scalar(value).unwrap_or_default()),
            Value::Double(double) => match Number::from_f64(*double) {
                Some(number) => self.push(&number.to_string()),
                None => Err(expression.mistyped(value, Right::Json).into()),
            },
            Value::Text(text) => self.string(text),
            Value::List(list) => self.list(list, expression, depth),
            Value::Map(fields) => self.map(fields, expression, depth),
            Value::Bytes(_) | Value::Type(_) => Err(expression.mistyped(value, Right::Json).into()),
        }
    }

    fn list(&mut self, list: &List<'_>, expression: &Expression, depth: usize) -> Result<(), Why> {
        for index in 0..list.len() {
            self.push(if index == 0 { "[" } else { "," })?;
            self.json(&list.get(index).unwrap_or(Value::Null), expression, depth + 1)?;
        }
        self.push(if list.len() == 0 { "[]" } else { "]" })
    }

    fn map(&mut self, fields: &Fields<'_>, expression: &Expression, depth: usize) -> Result<(), Why> {
        let names = fields.names(self.budget)?;
        for index in 0..fields.len() {
            self.push(if index == 0 { "{" } else { "," })?;
            let (key, value) = fields.entry(&names, index).unwrap_or((Value::Null, Value::Null));
            self.string(&scalar(&key).unwrap_or_default())?;
            self.push(":")?;
            self.json(&value, expression, depth + 1)?;
        }
        self.push(if fields.len() == 0 { "{}" } else { "}" })
    }

    fn plain(&mut self, value: &Json) -> Result<(), Why> {
        self.push(&value.to_string())
    }

    fn string(&mut self, text: &str) -> Result<(), Why> {
        self.room(text.len())?;
        self.push(&Json::from(text).to_string())
    }

    fn push(&mut self, text: &str) -> Result<(), Why> {
        self.room(text.len())?;
        self.budget.text(text.len())?;
        self.budget.hold(text.len())?;
        self.made.push_str(text);
        Ok(())
    }

    fn room(&self, bytes: usize) -> Result<(), Why> {
        if self.made.len().saturating_add(bytes) > BYTES { Err(Why::Size) } else { Ok(()) }
    }
}

/// Returns a text, or a number or a boolean as `string()` of CEL does; none of what can't be part of a text.
fn scalar<'t>(value: &'t Value<'_>) -> Option<Cow<'t, str>> {
    match value {
        Value::Text(text) => Some(Cow::Borrowed(text)),
        Value::Bool(truth) => Some(truth.to_string().into()),
        Value::Int(int) => Some(int.to_string().into()),
        Value::Uint(uint) => Some(uint.to_string().into()),
        Value::Double(double) => Some(double.to_string().into()),
        Value::Null | Value::Bytes(_) | Value::List(_) | Value::Map(_) | Value::Type(_) => None,
    }
}

// === impl Unmade ===

impl Unmade {
    /// Returns it without what the text holds of values, if it `shows_secret` (`DT-4`).
    #[must_use]
    pub fn kept_back(self, shows_secret: bool) -> Self {
        let Self { pointer, why } = self;
        let why = match why {
            Why::Expression(failure) => Why::Expression(failure.kept_back(shows_secret)),
            why @ (Why::Exceeded(_) | Why::Size) => why,
        };
        Self { pointer, why }
    }

    fn here(why: Why) -> Self {
        Self { pointer: String::new(), why }
    }

    fn below(mut self, step: &str) -> Self {
        let step = step.replace('~', "~0").replace('/', "~1");
        self.pointer.insert_str(0, &format!("/{step}"));
        self
    }
}
