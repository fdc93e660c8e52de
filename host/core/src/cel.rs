//! Decides what a CEL expression over JSON documents says, at a cost that is paid for.
//!
//! The crate `cel` reads expressions; it has no bound for what they cost, which the documents decide. So they are evaluated here,
//! over the documents as they are: nothing of them is copied, each node of an expression costs a step each time that it is
//! evaluated, and what goes through a text, a list or a map costs as much as that is long.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an operator has a meaning for a few types, and is an error for all others"
)]

use std::rc::Rc;

use cel::IdedExpr;
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, MapExpr, SelectExpr};
use serde_json::Value as Json;

use crate::budget::{Budget, Exceeded};

mod expression;
mod functions;
mod never;
mod strings;
mod template;
mod tree;
mod value;

pub use expression::{Expression, Failure, KEPT_BACK, Right};
pub(crate) use functions::matches;
pub use template::{DEPENDENTS, Template, Unmade};
pub(crate) use template::{Names, Node as Templated, WORKFLOW};
use value::{EACH, Text, made};
pub use value::{Fields, List, Value};

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A map has no such entry.
    #[error("there is no field {0:?}")]
    NoField(String),
    /// A field of null was wanted.
    #[error("it needs a field of something that is not there")]
    OfNull,
    /// An operation or function that values of these types do not have.
    #[error("{function} can't be applied to {types}")]
    NoOverload {
        /// Its name, as it is written.
        function: String,
        /// The types of what it was applied to.
        types: String,
    },
    /// Anything else that has no value: a division by zero, an index beyond the end.
    #[error("{0}")]
    Undefined(String),
    /// It costs too much.
    #[error("too expensive: {0}")]
    Exceeded(#[from] Exceeded),
}

type Outcome<'v> = Result<Value<'v>, Error>;

fn no_overload(function: &str, arguments: &[Value<'_>]) -> Error {
    let types: Vec<_> = arguments.iter().map(Value::type_name).collect();
    // An operator reads as in an expression.
    let function = match function {
        "@in" => "in",
        "_?_:_" => "? :",
        "_[_]" => "[ ]",
        other => other.trim_matches('_'),
    };
    Error::NoOverload { function: function.to_owned(), types: types.join(" and ") }
}

/// Evaluates an expression over variables.
///
/// # Errors
/// [`Error`]
pub fn evaluate<'v>(expression: &'v IdedExpr, variables: &[(&'v str, &'v Json)], budget: &mut Budget) -> Outcome<'v> {
    let scope = variables.iter().map(|(name, json)| (*name, Ok(Value::of(json)))).collect();
    Evaluation { scope, budget }.value(expression)
}

/// An expression that is being evaluated.
struct Evaluation<'v, 'b> {
    /// What names stand for, the innermost last. A fold may carry a failure, which its end may not need (`e || true`).
    scope: Vec<(&'v str, Outcome<'v>)>,
    budget: &'b mut Budget,
}

// === evaluating ===

impl<'v> Evaluation<'v, '_> {
    fn value(&mut self, node: &'v IdedExpr) -> Outcome<'v> {
        self.budget.step(1)?;
        match &node.expr {
            Expr::Literal(literal) => Ok(Value::of_literal(literal)),
            Expr::Ident(name) => self.named(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                self.budget.make(list.elements.len().saturating_mul(EACH))?;
                let items = list.elements.iter().map(|item| self.value(item));
                Ok(made(items.collect::<Result<_, _>>()?))
            }
            Expr::Map(map) => self.map(map),
            Expr::Comprehension(fold) => self.fold(fold),
            Expr::Struct(_) | Expr::Unspecified => Err(Error::Undefined("messages are not supported".to_owned())),
        }
    }

    fn named(&self, name: &str) -> Outcome<'v> {
        match self.scope.iter().rev().find(|(bound, _)| *bound == name) {
            Some((_, value)) => value.clone(),
            None => functions::type_named(name)
                .map(Value::Type)
                .ok_or_else(|| Error::Undefined(format!("nothing is called {name:?}"))),
        }
    }

    fn select(&mut self, select: &'v SelectExpr) -> Outcome<'v> {
        let operand = self.value(&select.operand)?;
        let Value::Map(fields) = operand else {
            return Err(if matches!(operand, Value::Null) { Error::OfNull } else { no_overload(".", &[operand]) });
        };
        let key = Value::Text(Text::Borrowed(&select.field));
        let found = fields.get(&key, self.budget)?;
        if select.test {
            return Ok(Value::Bool(found.is_some()));
        }
        found.ok_or_else(|| Error::NoField(select.field.clone()))
    }

    fn map(&mut self, map: &'v MapExpr) -> Outcome<'v> {
        let mut entries: Vec<(Value<'v>, Value<'v>)> = Vec::new();
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                return Err(Error::Undefined("messages are not supported".to_owned()));
            };
            let key = self.value(&entry.key)?;
            if !key.is_key() {
                return Err(no_overload("{}", &[key]));
            }
            for (other, _) in &entries {
                if key.equals(other, self.budget)? {
                    return Err(Error::Undefined("a map has the same key twice".to_owned()));
                }
            }
            let value = self.value(&entry.value)?;
            self.budget.make(2 * EACH)?;
            entries.push((key, value));
        }
        Ok(Value::Map(Fields::Made(Rc::new(entries))))
    }

    fn call(&mut self, call: &'v CallExpr) -> Outcome<'v> {
        match (call.func_name.as_str(), call.args.as_slice()) {
            ("_&&_", [one, other]) => self.either(one, other, false),
            ("_||_", [one, other]) => self.either(one, other, true),
            ("_?_:_", [condition, one, other]) => match self.value(condition)? {
                Value::Bool(true) => self.value(one),
                Value::Bool(false) => self.value(other),
                wrong => Err(no_overload("_?_:_", &[wrong])),
            },
            ("@not_strictly_false", [condition]) => Ok(Value::Bool(match self.value(condition) {
                Err(exceeded @ Error::Exceeded(_)) => return Err(exceeded),
                Ok(Value::Bool(truth)) => truth,
                Ok(_) | Err(_) => true,
            })),
            (name, _) => {
                let arguments = call.target.as_deref().into_iter().chain(&call.args);
                let arguments: Vec<_> = arguments.map(|argument| self.value(argument)).collect::<Result<_, _>>()?;
                functions::apply(name, &arguments, self.budget)
            }
        }
    }

    /// A side that decides alone makes the other's failure not count, on whichever side that is.
    fn either(&mut self, one: &'v IdedExpr, other: &'v IdedExpr, decides: bool) -> Outcome<'v> {
        let one = self.value(one);
        match one {
            Err(exceeded @ Error::Exceeded(_)) => return Err(exceeded),
            Ok(Value::Bool(truth)) if truth == decides => return Ok(Value::Bool(decides)),
            Ok(_) | Err(_) => {}
        }
        match (one, self.value(other)) {
            (_, Err(exceeded @ Error::Exceeded(_))) => Err(exceeded),
            (_, Ok(Value::Bool(truth))) if truth == decides => Ok(Value::Bool(decides)),
            (Ok(Value::Bool(_)), Ok(Value::Bool(_))) => Ok(Value::Bool(!decides)),
            (Err(error), _) | (_, Err(error)) => Err(error),
            (Ok(one), Ok(other)) => {
                let name = if decides { "||" } else { "&&" };
                Err(no_overload(name, &[one, other]))
            }
        }
    }

    /// A macro such as `all` or `map`, as the parser has expanded it.
    fn fold(&mut self, fold: &'v ComprehensionExpr) -> Outcome<'v> {
        let range = self.value(&fold.iter_range)?;
        let (count, names) = match &range {
            Value::List(list) => (list.len(), Vec::new()),
            Value::Map(fields) => (fields.len(), fields.names(self.budget)?),
            _ => {
                return Err(no_overload("all, exists, map or filter", &[range]));
            }
        };
        let outside = self.scope.len();
        let mut result = self.value(&fold.accu_init);
        for index in 0..count {
            let Some((first, second)) = element(&range, &names, index) else {
                break;
            };
            match &fold.iter_var2 {
                Some(name) => self.scope.extend([(fold.iter_var.as_str(), Ok(first)), (name, Ok(second))]),
                None => self.scope.push((&fold.iter_var, Ok(second))),
            }
            // The innermost, so that it can be taken out.
            self.scope.push((&fold.accu_var, result));
            let goes_on = self.value(&fold.loop_cond)?;
            result = match goes_on {
                Value::Bool(false) => self.take(),
                _ => self.round(fold),
            };
            self.scope.truncate(outside);
            match (&result, goes_on) {
                (Err(Error::Exceeded(_)), _) => return result,
                (_, Value::Bool(false)) => break,
                _ => {}
            }
        }
        self.scope.push((&fold.accu_var, result));
        let result = self.value(&fold.result);
        self.scope.truncate(outside);
        result
    }

    /// Returns what a fold has after one more element.
    fn round(&mut self, fold: &'v ComprehensionExpr) -> Outcome<'v> {
        let Some((guard, item)) = appended(fold) else {
            return self.value(&fold.loop_step);
        };
        match guard.map(|guard| self.value(guard)).transpose()? {
            None | Some(Value::Bool(true)) => {}
            Some(Value::Bool(false)) => return self.take(),
            Some(wrong) => return Err(no_overload("_?_:_", &[wrong])),
        }
        let item = self.value(item)?;
        self.budget.make(EACH)?;
        match self.take()? {
            // Nobody else has it, so nothing is copied.
            Value::List(List::Made(mut items)) => {
                Rc::make_mut(&mut items).push(item);
                Ok(Value::List(List::Made(items)))
            }
            other => functions::apply("_+_", &[other, made(vec![item])], self.budget),
        }
    }

    /// Takes out what a fold has so far.
    fn take(&mut self) -> Outcome<'v> {
        let none = || Err(Error::Undefined("a fold without a result".to_owned()));
        self.scope.pop().map_or_else(none, |(_, result)| result)
    }
}

/// Returns the condition, if there is one, and the element of a fold that appends to a list, as `map` and `filter` do.
fn appended(fold: &ComprehensionExpr) -> Option<(Option<&IdedExpr>, &IdedExpr)> {
    let is_result = |node: &IdedExpr| matches!(&node.expr, Expr::Ident(name) if *name == fold.accu_var);
    let (guard, step) = match &fold.loop_step.expr {
        Expr::Call(call) if call.func_name == "_?_:_" => match call.args.as_slice() {
            [guard, step, otherwise] if is_result(otherwise) => (Some(guard), step),
            _ => return None,
        },
        _ => (None, &fold.loop_step),
    };
    let Expr::Call(call) = &step.expr else {
        return None;
    };
    match (call.func_name.as_str(), call.args.as_slice()) {
        ("_+_", [so_far, more]) if is_result(so_far) => match &more.expr {
            Expr::List(list) => match list.elements.as_slice() {
                [item] => Some((guard, item)),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

/// Returns what a fold over a list or map gives at a position: the index or key, and what one variable alone stands for.
fn element<'v>(range: &Value<'v>, names: &[&'v str], index: usize) -> Option<(Value<'v>, Value<'v>)> {
    match range {
        Value::List(list) => {
            let position = i64::try_from(index).unwrap_or(i64::MAX);
            Some((Value::Int(position), list.get(index)?))
        }
        Value::Map(fields) => {
            let (key, _) = fields.entry(names, index)?;
            Some((key.clone(), key))
        }
        _ => None,
    }
}
