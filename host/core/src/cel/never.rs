//! Finds what of an expression can never have a value, whatever its variables are.

use ::cel::common::ast::{Expr, IdedExpr, LiteralValue};

use super::tree::children;
use super::{Error, evaluate, functions};
use crate::budget::Budget;

/// What is spent on the constant parts of one expression, in steps. What costs more is not judged.
const STEPS: u64 = 1 << 20;

/// Looks for parts that fail.
pub(super) struct Search<'e> {
    /// The names that the expression binds anywhere.
    bound: Vec<&'e str>,
    budget: Budget,
}

impl<'e> Search<'e> {
    pub(super) fn of(tree: &'e IdedExpr) -> Self {
        let mut bound = Vec::new();
        binds(tree, &mut bound);
        Self { bound, budget: Budget::of(STEPS) }
    }

    /// Returns the smallest part that fails whenever it is evaluated, and why. The branches of `? :` are let alone: one may be meant
    /// to fail.
    pub(super) fn failing(&mut self, node: &'e IdedExpr) -> Option<(u64, Error)> {
        if self.is_constant(node, &mut Vec::new()) {
            let error = evaluate(node, &[], &mut self.budget).err()?;
            if matches!(error, Error::Exceeded(_)) {
                return None;
            }
            return self.below(node).or(Some((node.id, error)));
        }
        self.pattern(node).or_else(|| self.below(node))
    }

    fn below(&mut self, node: &'e IdedExpr) -> Option<(u64, Error)> {
        let mut parts = children(node);
        if is_choice(node) {
            parts.truncate(1);
        }
        parts.into_iter().find_map(|part| self.failing(part))
    }

    /// Returns why a call of `matches` fails on any text.
    fn pattern(&mut self, node: &'e IdedExpr) -> Option<(u64, Error)> {
        let Expr::Call(call) = &node.expr else {
            return None;
        };
        let pattern = call.args.last().filter(|_| call.func_name == "matches")?;
        let Expr::Literal(LiteralValue::String(text)) = &pattern.expr else {
            return None;
        };
        let error = functions::matches("", text.inner(), &mut self.budget).err()?;
        (!matches!(error, Error::Exceeded(_))).then_some((pattern.id, error))
    }

    /// Returns the type of the value of a part, if it has the same whatever the variables are.
    pub(super) fn type_of(&mut self, node: &'e IdedExpr) -> Option<&'static str> {
        if self.is_constant(node, &mut Vec::new()) {
            return evaluate(node, &[], &mut self.budget).ok().map(|value| value.type_name());
        }
        match &node.expr {
            Expr::Select(select) if select.test => Some("bool"),
            Expr::List(_) => Some("list"),
            Expr::Map(_) => Some("map"),
            Expr::Call(_) if is_choice(node) => {
                let mut branches = children(node).into_iter().skip(1);
                let (yes, no) = (self.type_of(branches.next()?)?, self.type_of(branches.next()?)?);
                (yes == no).then_some(yes)
            }
            Expr::Call(call) => functions::type_of(&call.func_name),
            Expr::Comprehension(_)
            | Expr::Ident(_)
            | Expr::Literal(_)
            | Expr::Select(_)
            | Expr::Struct(_)
            | Expr::Unspecified => None,
        }
    }

    /// Whether it names nothing but types and what it binds itself.
    fn is_constant(&self, node: &'e IdedExpr, inside: &mut Vec<&'e str>) -> bool {
        if let Expr::Ident(name) = &node.expr {
            let is_type = functions::is_type(name) && !self.bound.contains(&name.as_str());
            return is_type || inside.contains(&name.as_str());
        }
        let Expr::Comprehension(all) = &node.expr else {
            return children(node).into_iter().all(|part| self.is_constant(part, inside));
        };
        let is_outside = [&all.iter_range, &all.accu_init].into_iter().all(|part| self.is_constant(part, inside));
        let outer = inside.len();
        inside.extend([all.iter_var.as_str(), all.accu_var.as_str()]);
        inside.extend(all.iter_var2.as_deref());
        let mut parts = [&all.loop_cond, &all.loop_step, &all.result].into_iter();
        let is_inside = parts.all(|part| self.is_constant(part, inside));
        inside.truncate(outer);
        is_outside && is_inside
    }
}

fn is_choice(node: &IdedExpr) -> bool {
    matches!(&node.expr, Expr::Call(call) if call.func_name == "_?_:_")
}

/// Adds to `found` the names that comprehensions bind.
fn binds<'e>(node: &'e IdedExpr, found: &mut Vec<&'e str>) {
    if let Expr::Comprehension(all) = &node.expr {
        found.extend([all.iter_var.as_str(), all.accu_var.as_str()]);
        found.extend(all.iter_var2.as_deref());
    }
    for part in children(node) {
        binds(part, found);
    }
}
