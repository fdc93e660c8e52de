//! A CEL expression of a manifest: compiled once, if it is short and flat enough and knows the variables and functions that it names.

use std::fmt;
use std::sync::Arc;

use ::cel::Program;
use ::cel::common::ast::{ComprehensionExpr, Expr, IdedExpr};
use serde_json::Value as Json;

use super::never::Search;
use super::tree::{children, count, depth};
use super::{Error, Outcome, Value, functions};
use crate::budget::{Budget, OPERATION};
use crate::yaml::{Broken, either, similar, with_room};

/// An expression over some variables. Two are equal if they are written the same.
#[derive(Clone)]
pub struct Expression {
    text: Arc<str>,
    program: Arc<Program>,
    /// The variables that it reads.
    reads: Vec<&'static str>,
}

/// What the value of an expression has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// True or false.
    Boolean,
    /// A string.
    Text,
    /// A string, a list of strings, or null.
    Texts,
    /// What can be part of a text: a string, a number or a boolean.
    Scalar,
    /// What JSON can express.
    Json,
}

/// Why an expression has no answer. Retrying does not help until an object or the expression changes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It failed.
    #[error("CEL expression {expression:?} failed: {problem}")]
    Failed {
        /// The expression.
        expression: Arc<str>,
        /// How.
        problem: String,
    },
    /// Its value is of another type.
    #[error("the value of CEL expression {expression:?} is of type {found}; {right} is needed")]
    Type {
        /// The expression.
        expression: Arc<str>,
        /// The type of its value.
        found: &'static str,
        /// The type that is needed.
        right: &'static str,
    },
}

/// The most characters of an expression, and levels of its tree: a list in a list has two, `a + b + c` three. Evaluating
/// one recurses once for each level, on the stack of a task.
const LONGEST: usize = 4096;
const DEEPEST: usize = 24;

// === impl Expression ===

impl Expression {
    /// Compiles an expression over `variables`. It can be evaluated on any stack.
    ///
    /// # Errors
    /// [`Broken`] if it cannot be compiled, is too long or too deep, or names another variable.
    pub fn parse(text: &str, variables: &[&'static str]) -> Result<Self, Broken> {
        if text.chars().count() > LONGEST {
            let message = format!("an expression has at most {LONGEST} characters");
            return Err(Broken { offset: 0, message });
        }
        let gave_up = || Broken { offset: 0, message: "the compiler gave up".to_owned() };
        with_room(|| compile(text, variables)).unwrap_or_else(|| Err(gave_up()))
    }

    /// Returns the expression as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns how many parts it has: each value, name, field, list, call and step of a macro is one.
    pub fn parts(&self) -> usize {
        count(self.program.expression())
    }

    /// Whether it reads a variable.
    pub fn reads(&self, variable: &str) -> bool {
        self.reads.contains(&variable)
    }

    /// Returns where and why it can never be evaluated, whatever its variables are, or never to what is needed; `None` if that
    /// depends on them.
    ///
    /// ```
    /// # use capstan_core::cel::{Expression, Right};
    /// let never = |text, right| Expression::parse(text, &["object"]).unwrap().never(right).map(|broken| broken.message);
    /// assert_eq!(never("object.spec.a == 1", Right::Boolean), None);
    /// assert_eq!(never("size(object)", Right::Boolean).unwrap(), "its value is always of type int; a boolean is needed");
    /// assert!(never("object.spec.a && 1 + 'a' == 2", Right::Boolean).unwrap().contains("+ can't be applied to int and string"));
    /// ```
    pub fn never(&self, right: Right) -> Option<Broken> {
        let tree = self.program.expression();
        let mut search = Search::of(tree);
        if let Some((id, error)) = search.failing(tree) {
            let message = format!("this part fails whatever else is there: {error}");
            return Some(Broken { offset: start(&self.program, id), message });
        }
        let found = search.type_of(tree).filter(|found| !right.has(found))?;
        let message = format!("its value is always of type {found}; {} is needed", right.name());
        Some(Broken { offset: 0, message })
    }

    /// Returns the fields of a variable that it looks at, each as the names that lead there; the empty path stands for the whole
    /// value. What is behind a call, an index or a macro is not followed.
    ///
    /// ```
    /// # use capstan_core::cel::Expression;
    /// let cel = Expression::parse("object.spec.a == 1 && has(object.spec.b) && size(object) > 1", &["object"]).unwrap();
    /// assert_eq!(cel.paths("object"), [vec!["spec", "a"], vec!["spec", "b"], vec![]]);
    /// ```
    pub fn paths(&self, variable: &str) -> Vec<Vec<String>> {
        self.fields(variable).into_iter().map(|(_, path)| path).collect()
    }

    /// Returns the same, each with the character at which the variable stands.
    pub fn fields(&self, variable: &str) -> Vec<(usize, Vec<String>)> {
        let mut found = Vec::new();
        paths(self.program.expression(), variable, &mut found);
        found.into_iter().map(|(id, path)| (start(&self.program, id), path)).collect()
    }

    /// Evaluates a condition, which the budget pays for; says why, if it is not met. Where the expression needs a field that is not
    /// there, so that it has no value, that is the reason: `primary.spec.exposed` is met only if the field is there and true, and
    /// `dependent.status.phase == "Bound"` only if the dependent is not null.
    ///
    /// # Errors
    /// [`Failure::Failed`] if it fails otherwise, [`Failure::Type`] if its value is no boolean.
    ///
    /// ```
    /// # use capstan_core::budget::Budget;
    /// # use capstan_core::cel::Expression;
    /// # use serde_json::json;
    /// let exposed = Expression::parse("primary.spec.exposed", &["primary"]).unwrap();
    /// let met = |primary| exposed.met(&[("primary", &primary)], &mut Budget::of_run());
    /// assert_eq!(met(json!({"spec": {"exposed": true}})), Ok(Ok(())));
    /// assert_eq!(met(json!({"spec": {}})), Ok(Err("there is no field \"exposed\"".to_owned())));
    /// assert!(met(json!({"spec": {"exposed": "yes"}})).is_err());
    /// ```
    pub fn met(&self, variables: &[(&str, &Json)], budget: &mut Budget) -> Result<Result<(), String>, Failure> {
        match self.evaluate(variables, budget) {
            Ok(Value::Bool(true)) => Ok(Ok(())),
            Ok(Value::Bool(false)) => Ok(Err("it is false".to_owned())),
            Ok(other) => Err(self.mistyped(&other, Right::Boolean)),
            Err(missing @ (Error::NoField(_) | Error::OfNull)) => Ok(Err(told(&missing, variables))),
            Err(error) => Err(self.failed(&error, variables)),
        }
    }

    /// Evaluates a question about an event, which the budget pays for. Other than with [`Expression::met`], an expression that has no
    /// value fails: nobody should miss an event for a field that is not there.
    ///
    /// # Errors
    /// [`Failure::Failed`] if it fails, [`Failure::Type`] if its value is no boolean.
    pub fn holds(&self, variables: &[(&str, &Json)], budget: &mut Budget) -> Result<bool, Failure> {
        match self.evaluate(variables, budget) {
            Ok(Value::Bool(truth)) => Ok(truth),
            Ok(other) => Err(self.mistyped(&other, Right::Boolean)),
            Err(error) => Err(self.failed(&error, variables)),
        }
    }

    /// Evaluates an expression for a text, such as a name.
    ///
    /// # Errors
    /// [`Failure::Failed`] if it fails, [`Failure::Type`] if its value is no string.
    ///
    /// ```
    /// # use capstan_core::budget::Budget;
    /// # use capstan_core::cel::Expression;
    /// # use serde_json::json;
    /// let name = Expression::parse("primary.metadata.name + '-config'", &["primary"]).unwrap();
    /// let primary = json!({"metadata": {"name": "a"}});
    /// assert_eq!(name.text(&[("primary", &primary)], &mut Budget::of_run()).unwrap(), "a-config");
    /// ```
    pub fn text(&self, variables: &[(&str, &Json)], budget: &mut Budget) -> Result<String, Failure> {
        match self.evaluate(variables, budget) {
            Ok(Value::Text(text)) => Ok(text.to_string()),
            Ok(other) => Err(self.mistyped(&other, Right::Text)),
            Err(error) => Err(self.failed(&error, variables)),
        }
    }

    /// Evaluates an expression for texts: a string, or a list of strings. One that has no value, because a field is not there, has
    /// none, as has null.
    ///
    /// # Errors
    /// [`Failure::Failed`] if it fails otherwise, [`Failure::Type`] if its value is something else.
    pub fn texts(&self, variables: &[(&str, &Json)], budget: &mut Budget) -> Result<Vec<String>, Failure> {
        let value = match self.evaluate(variables, budget) {
            Ok(value) => value,
            Err(Error::NoField(_) | Error::OfNull) => return Ok(Vec::new()),
            Err(error) => return Err(self.failed(&error, variables)),
        };
        let texts = match &value {
            Value::Null => Some(Vec::new()),
            Value::Text(text) => Some(vec![text.to_string()]),
            Value::List(list) => list.texts(),
            Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::Bytes(_)
            | Value::Map(_)
            | Value::Type(_) => None,
        };
        texts.ok_or_else(|| self.mistyped(&value, Right::Texts))
    }

    /// Evaluates an expression for a value of any type.
    pub(super) fn value<'v>(
        &'v self,
        variables: &[(&'v str, &'v Json)],
        budget: &mut Budget,
    ) -> Result<Value<'v>, Failure> {
        self.evaluate(variables, budget).map_err(|error| self.failed(&error, variables))
    }

    fn evaluate<'v>(&'v self, variables: &[(&'v str, &'v Json)], budget: &mut Budget) -> Outcome<'v> {
        budget.within(OPERATION, |budget| super::evaluate(self.program.expression(), variables, budget))
    }

    pub(super) fn mistyped(&self, found: &Value<'_>, right: Right) -> Failure {
        Failure::Type { expression: Arc::clone(&self.text), found: found.type_name(), right: right.name() }
    }

    fn failed(&self, error: &Error, variables: &[(&str, &Json)]) -> Failure {
        Failure::Failed { expression: Arc::clone(&self.text), problem: told(error, variables) }
    }
}

/// What is said in place of a text that may hold values of a Secret.
pub const KEPT_BACK: &str = "on values of a Secret";

/// Returns the text of an error. It may hold values, so it is kept back where a Secret takes part (`SSA-7`).
fn told(error: &Error, variables: &[(&str, &Json)]) -> String {
    if variables.iter().any(|(_, value)| is_secret(value)) { KEPT_BACK.to_owned() } else { error.to_string() }
}

impl Failure {
    /// Returns it without what the text holds of values, if it `shows_secret`.
    #[must_use]
    pub fn kept_back(self, shows_secret: bool) -> Self {
        match self {
            Self::Failed { expression, .. } if shows_secret => {
                Self::Failed { expression, problem: KEPT_BACK.to_owned() }
            }
            other @ (Self::Failed { .. } | Self::Type { .. }) => other,
        }
    }
}

impl Right {
    fn has(self, found: &str) -> bool {
        match self {
            Self::Boolean => found == "bool",
            Self::Text => found == "string",
            Self::Texts => matches!(found, "string" | "list" | "null"),
            Self::Scalar => matches!(found, "string" | "int" | "uint" | "double" | "bool"),
            Self::Json => !matches!(found, "bytes" | "type"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Boolean => "a boolean",
            Self::Text => "a string",
            Self::Texts => "a string, or a list of strings,",
            Self::Scalar => "a string, a number or a boolean",
            Self::Json => "a value of JSON",
        }
    }
}

/// Whether a variable is a Secret, or has some among its fields or items, as `dependents` has.
fn is_secret(value: &Json) -> bool {
    fn within(value: &Json, levels: usize) -> bool {
        let below = |value| levels > 0 && within(value, levels - 1);
        match value {
            Json::Object(fields) => match fields.get("kind") {
                // What has no metadata only names one.
                Some(Json::String(kind)) if fields.contains_key("metadata") => kind == "Secret",
                // Dependents may be called `kind` and `metadata`, too.
                Some(_) | None => fields.values().any(below),
            },
            Json::Array(items) => items.iter().any(below),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => false,
        }
    }
    value.get("kind").is_some_and(|kind| kind == "Secret") || within(value, 2)
}

impl fmt::Debug for Expression {
    /// Writes it as it was written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Expression {}

// === compiling ===

fn compile(text: &str, variables: &[&'static str]) -> Result<Expression, Broken> {
    let program = Program::compile(text).map_err(|errors| {
        let first = errors.errors.first();
        let offset = first.map_or(0, |error| offset(text, error.pos.0, error.pos.1));
        let message = first.map_or_else(|| errors.to_string(), |error| error.msg.clone());
        let message = match message.trim_start_matches("Syntax error: ") {
            // The one message that is not made for people.
            nested if nested.contains("Recursion limit") => "its brackets are too deep",
            message => message,
        };
        Broken { offset, message: format!("not a CEL expression: {message}") }
    })?;
    let tree = program.expression();
    if depth(tree) > DEEPEST {
        let message = format!("an expression is at most {DEEPEST} levels deep");
        return Err(Broken { offset: 0, message });
    }
    if let Some((id, name)) = unknown_function(tree) {
        return Err(Broken { offset: start(&program, id), message: format!("unknown function `{name}`") });
    }
    let mut named = Vec::new();
    names(tree, &mut Vec::new(), &mut named);
    let unknown = |(_, name): &&(u64, &str)| !variables.contains(name) && !functions::is_type(name);
    if let Some((id, name)) = named.iter().find(unknown) {
        let known = either(variables);
        let message = match similar(name, variables) {
            Some(near) => format!("unknown variable `{name}`, did you mean `{near}`? Known are {known}"),
            None => format!("unknown variable `{name}`; known are {known}"),
        };
        return Err(Broken { offset: start(&program, *id), message });
    }
    let reads = variables.iter().copied().filter(|variable| named.iter().any(|(_, name)| name == variable)).collect();
    Ok(Expression { text: text.into(), program: Arc::new(program), reads })
}

/// Returns where a node begins, in characters.
fn start(program: &Program, id: u64) -> usize {
    let offsets = program.source_info().offset_for(id);
    offsets.map_or(0, |(start, _)| usize::try_from(start).unwrap_or(0))
}

/// Returns a function that nothing can evaluate, if an expression calls one.
fn unknown_function(node: &IdedExpr) -> Option<(u64, String)> {
    let name = match &node.expr {
        Expr::Call(call) if !functions::is_function(&call.func_name) => Some(call.func_name.clone()),
        Expr::Struct(new) => Some(new.type_name.clone()),
        Expr::List(list) if !list.optional_indices.is_empty() => Some("?".to_owned()),
        Expr::Call(_)
        | Expr::Comprehension(_)
        | Expr::Ident(_)
        | Expr::List(_)
        | Expr::Literal(_)
        | Expr::Map(_)
        | Expr::Select(_)
        | Expr::Unspecified => None,
    };
    name.map(|name| (node.id, name)).or_else(|| children(node).into_iter().find_map(unknown_function))
}

/// Returns the number of characters before a line and column, both from 1.
fn offset(text: &str, line: isize, column: isize) -> usize {
    let number = |n: isize| usize::try_from(n).unwrap_or(1).saturating_sub(1);
    let lines = text.split_inclusive('\n').take(number(line));
    let before: usize = lines.map(|line| line.chars().count()).sum();
    (before + number(column)).min(text.chars().count())
}

/// Adds to `found` every path of names that begins at a variable, with the variable's node.
fn paths(node: &IdedExpr, variable: &str, found: &mut Vec<(u64, Vec<String>)>) {
    let (mut names, mut at) = (Vec::new(), node);
    while let Expr::Select(select) = &at.expr {
        names.push(select.field.clone());
        at = &select.operand;
    }
    let binds = |all: &ComprehensionExpr| {
        all.iter_var == variable || all.iter_var2.as_ref().is_some_and(|name| name == variable)
    };
    match &at.expr {
        Expr::Ident(name) if name == variable => {
            names.reverse();
            found.push((at.id, names));
        }
        // What it binds under the same name is something else.
        Expr::Comprehension(all) if binds(all) => {
            for outside in [&all.iter_range, &all.accu_init] {
                paths(outside, variable, found);
            }
        }
        _ => children(at).into_iter().for_each(|child| paths(child, variable, found)),
    }
}

/// Adds to `found` every variable that no comprehension around it binds.
fn names<'e>(node: &'e IdedExpr, bound: &mut Vec<&'e str>, found: &mut Vec<(u64, &'e str)>) {
    if let Expr::Ident(name) = &node.expr {
        if !name.starts_with('@') && !bound.contains(&name.as_str()) {
            found.push((node.id, name));
        }
    } else if let Expr::Comprehension(all) = &node.expr {
        names(&all.iter_range, bound, found);
        names(&all.accu_init, bound, found);
        let outside = bound.len();
        bound.extend([all.iter_var.as_str(), all.accu_var.as_str()]);
        bound.extend(all.iter_var2.as_deref());
        for inner in [&all.loop_cond, &all.loop_step, &all.result] {
            names(inner, bound, found);
        }
        bound.truncate(outside);
    } else {
        for child in children(node) {
            names(child, bound, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const VARIABLES: [&str; 2] = ["primary", "dependent"];

    fn parse(expression: &str) -> Expression {
        Expression::parse(expression, &VARIABLES).unwrap()
    }

    fn met_by(expression: &str, primary: &Json, dependent: Option<&Json>) -> Result<Result<(), String>, String> {
        let variables = [("primary", primary), ("dependent", dependent.unwrap_or(&Json::Null))];
        parse(expression).met(&variables, &mut Budget::of_run()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_comprehensions_bind_and_names_of_types_are_known() {
        for text in [
            "primary.spec.exposed",
            "has(primary.spec.domain) && dependent == null",
            "primary.spec.hosts.all(h, h.startsWith('a'))",
            "primary.spec.hosts.map(h, primary.spec.ports.filter(p, p > size(h)))",
            "type(primary.spec.n) == int",
            "{'a': primary.metadata.name}['a'] in [dependent.metadata.name]",
        ] {
            assert!(Expression::parse(text, &VARIABLES).is_ok(), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_found_where_it_stands() {
        for (text, offset, message) in [
            ("primry.spec.exposed", 0, "unknown variable `primry`"),
            ("primary.spec.exposed && h", 24, "unknown variable `h`"),
            ("[1].all(x, x > 0) && x", 21, "unknown variable `x`"),
            ("primary.spec.hosts.exists(h, g == 'y')", 29, "unknown variable `g`"),
            ("{'a': b}", 6, "unknown variable `b`"),
            ("nothing(primary)", 7, "unknown function `nothing`"),
            ("primary.spec.", 13, "not a CEL expression"),
        ] {
            let broken = Expression::parse(text, &VARIABLES).unwrap_err();
            assert_eq!(broken.offset, offset, "{text}");
            assert!(broken.message.starts_with(message), "{}", broken.message);
        }
    }

    #[test]
    fn what_can_never_be_evaluated_is_found_where_it_stands() {
        for (text, right, expected) in [
            ("1 + 2", Right::Boolean, Some((0, "its value is always of type int; a boolean is needed"))),
            ("'no'", Right::Boolean, Some((0, "its value is always of type string"))),
            ("primary.spec.a == 1 ? 'x' : 'y'", Right::Boolean, Some((0, "its value is always of type string"))),
            (
                "primary.metadata.name == 'a'",
                Right::Text,
                Some((0, "its value is always of type bool; a string is needed")),
            ),
            ("has(primary.spec.a)", Right::Texts, Some((0, "its value is always of type bool"))),
            ("{'a': primary.spec.a}", Right::Texts, Some((0, "its value is always of type map"))),
            (
                "'a' + 1 == 'a1'",
                Right::Boolean,
                Some((4, "this part fails whatever else is there: + can't be applied")),
            ),
            ("dependent != null && 'a' + 1 == '2'", Right::Boolean, Some((25, "this part fails"))),
            (
                "primary.spec.a.matches('[')",
                Right::Boolean,
                Some((23, "this part fails whatever else is there: it is not a reg")),
            ),
            ("primary.spec.a.all(x, x > 0 && 1 < 'a')", Right::Boolean, Some((33, "this part fails"))),
            ("{'a': 1}.b == 1", Right::Boolean, Some((8, "this part fails whatever else is there: there is no field"))),
            ("true || 1 / 0 > 0", Right::Boolean, None),
            ("has(primary.spec.a) ? primary.spec.a > 1 : 1 / 0 > 0", Right::Boolean, None),
            ("primary.spec.a.matches('^[a-z]+$')", Right::Boolean, None),
            ("primary.spec.a.exists(int, int > 0)", Right::Boolean, None),
            ("[1, 2].map(x, x * 2) == [2, 4]", Right::Boolean, None),
            ("primary.spec.a.map(x, x.name)", Right::Texts, None),
            ("primary.spec.a + '-' + primary.spec.b", Right::Text, None),
            ("true", Right::Boolean, None),
            ("null", Right::Texts, None),
        ] {
            let found = parse(text).never(right);
            let start = |message: &str| message.chars().take(expected.map_or(0, |(_, right)| right.len())).collect();
            let found: Option<(usize, String)> = found.map(|broken| (broken.offset, start(&broken.message)));
            assert_eq!(found, expected.map(|(offset, right)| (offset, right.to_owned())), "{text}");
        }
    }

    #[test]
    fn an_expression_that_no_stack_could_bear_is_refused() {
        for (opening, inner, closing) in [
            ("(", "1", ")"),
            ("[", "1", "]"),
            ("{1:", "1", "}"),
            ("size(", "1", ")"),
            ("[1].map(x,", "1", ")"),
            ("true ? 1 : ", "1", ""),
            ("", "primary", "[0]"),
            ("", "primary", ".a"),
            ("", "1", "+1"),
        ] {
            for times in [30, 300, 100_000 / (opening.len() + closing.len())] {
                let text = format!("{}{inner}{}", opening.repeat(times), closing.repeat(times));
                // Brackets alone are no level of the tree.
                let refused = Expression::parse(&text, &VARIABLES).is_err();
                assert!(refused || (opening == "(" && times == 30), "{opening}…{closing} {times} times");
            }
        }
    }

    #[test]
    fn what_is_accepted_can_be_evaluated_on_the_stack_of_a_task() {
        for (opening, inner, closing) in
            [("[", "1", "]"), ("{1:", "1", "}"), ("[1].map(x,", "1", ")"), ("", "1", "+1"), ("", "{}", "[0]")]
        {
            let texts = (0..30).map(|n| format!("{}{inner}{}", opening.repeat(n), closing.repeat(n)));
            let accepted: Vec<_> = texts.map_while(|text| Expression::parse(&text, &[]).ok()).collect();
            assert!(accepted.len() > 3, "{opening}…{closing}");
            // The first is the innermost alone. Others may be errors, such as an index into nothing.
            let ran: Vec<bool> = accepted.iter().map(|one| one.evaluate(&[], &mut Budget::of_run()).is_ok()).collect();
            assert!(ran.first().is_some_and(|first| *first), "{opening}…{closing}");
        }
    }

    #[test]
    #[rustfmt::skip]
    fn a_condition_is_met_if_its_expression_is_true() {
        let primary = json!({"metadata": {"name": "a"}, "spec": {"exposed": true, "hidden": false, "replicas": 3, "hosts": ["x", "y"], "big": u64::MAX, "half": 0.5}});
        let dependent = json!({"status": {"readyReplicas": 3, "phase": "Bound"}});
        for (expression, reason) in [
            ("primary.spec.exposed", None),
            ("primary.spec.hidden", Some("it is false")),
            ("primary.spec.replicas + 1 == 4 && primary.spec.replicas >= 3", None),
            ("primary.spec.big > 5u && primary.spec.half < 1.0", None),
            ("dependent != null && dependent.status.readyReplicas == primary.spec.replicas", None),
            ("primary.spec.hosts.exists(h, h == 'y')", None),
            ("primary.spec.hosts.all(h, h.startsWith('x'))", Some("it is false")),
            ("primary.metadata.name.matches('^[a-z]$')", None),
            ("type(primary.metadata.name) == string && size(primary.spec.hosts) == 2", None),
            // What is not there.
            ("primary.spec.other", Some("there is no field \"other\"")),
            ("primary.spec.other.deeper == 1", Some("there is no field \"other\"")),
            ("primary.spec['other']", Some("there is no field \"other\"")),
            ("has(primary.spec.other)", Some("it is false")),
            ("!has(primary.spec.other) || primary.spec.other", None),
        ] {
            let expected = reason.map_or(Ok(()), |reason| Err(reason.to_owned()));
            assert_eq!(met_by(expression, &primary, Some(&dependent)), Ok(expected), "{expression}");
        }
    }

    #[test]
    #[rustfmt::skip]
    fn a_dependent_that_does_not_exist_is_null() {
        for (expression, reason) in [
            ("dependent == null", None),
            ("dependent != null && dependent.status.phase == 'Bound'", Some("it is false")),
            ("dependent.status.phase == 'Bound'", Some("it needs a field of something that is not there")),
            ("dependent['status']", Some("it needs a field of something that is not there")),
            ("has(dependent.status)", Some("it needs a field of something that is not there")),
        ] {
            let expected = reason.map_or(Ok(()), |reason| Err(reason.to_owned()));
            assert_eq!(met_by(expression, &json!({}), None), Ok(expected), "{expression}");
        }
    }

    #[test]
    fn a_name_that_a_comprehension_binds_means_the_dependent_outside_of_it() {
        for expression in [
            "[1].exists(dependent, dependent > 0) && dependent != null",
            "dependent != null && [1].exists(dependent, dependent > 0)",
        ] {
            for (dependent, expected) in [(Some(json!({})), Ok(())), (None, Err("it is false".to_owned()))] {
                let said = met_by(expression, &json!({}), dependent.as_ref());
                assert_eq!(said, Ok(expected), "{expression}");
            }
        }
    }

    #[test]
    #[rustfmt::skip]
    fn an_expression_that_has_no_boolean_value_fails() {
        let primary = json!({"spec": {"replicas": 3, "name": "x"}});
        for (expression, text) in [
            ("primary.spec.replicas", "the value of CEL expression \"primary.spec.replicas\" is of type int; a boolean is needed"),
            ("primary.spec", "the value of CEL expression \"primary.spec\" is of type map; a boolean is needed"),
            ("null", "the value of CEL expression \"null\" is of type null; a boolean is needed"),
            ("1 / 0 == 1", "CEL expression \"1 / 0 == 1\" failed: division by zero"),
            ("primary.spec.name + 1 == 2", "CEL expression \"primary.spec.name + 1 == 2\" failed: + can't be applied to string and int"),
        ] {
            assert_eq!(met_by(expression, &primary, None), Err(text.to_owned()));
        }
    }

    #[test]
    fn a_failure_tells_nothing_of_a_secret() {
        // SSA-7
        let secret = json!({"kind": "Secret", "data": {"password": "hunter2"}});
        let text = "CEL expression \"dependent.data.password > 1\" failed: on values of a Secret";
        assert_eq!(met_by("dependent.data.password > 1", &json!({}), Some(&secret)), Err(text.to_owned()));
        // DT-4: dependents may be called as fields of objects are.
        let secret = json!({"kind": "Secret", "metadata": {"name": "a"}, "data": {"password": "hunter2"}});
        for name in ["a", "metadata", "kind"] {
            let all = json!({"metadata": {"kind": "ConfigMap", "metadata": {}}, "kind": [], name: secret});
            let text = format!("dependents.{name}.data[dependents.{name}.data.password]");
            let expression = Expression::parse(&text, &["dependents"]).unwrap();
            let failure = expression.text(&[("dependents", &all)], &mut Budget::of_run()).unwrap_err();
            assert!(failure.to_string().ends_with("failed: on values of a Secret"), "{failure}");
        }
    }

    #[test]
    fn a_name_is_a_text() {
        // KD-4
        let primary = json!({"metadata": {"name": "a"}, "spec": {"n": 1}});
        let text = |expression: &str| {
            let said = parse(expression).text(&[("primary", &primary)], &mut Budget::of_run());
            said.map_err(|error| error.to_string())
        };
        assert_eq!(text("primary.metadata.name + '-' + string(primary.spec.n)"), Ok("a-1".to_owned()));
        let error = "the value of CEL expression \"primary.spec.n\" is of type int; a string is needed";
        assert_eq!(text("primary.spec.n"), Err(error.to_owned()));
        let error = "CEL expression \"primary.spec.m\" failed: there is no field \"m\"";
        assert_eq!(text("primary.spec.m"), Err(error.to_owned()));
    }

    #[test]
    fn an_expression_knows_whether_it_reads_the_dependent() {
        for (expression, reads) in [
            ("primary.a", false),
            ("primary.a == dependent.b", true),
            // What a comprehension binds is bound within it alone.
            ("[1].exists(dependent, dependent > 1)", false),
            ("[1].exists(dependent, dependent > 0) && dependent != null", true),
            ("dependent != null && [1].exists(dependent, dependent > 0)", true),
            ("dependent.exists(dependent, true)", true),
        ] {
            assert_eq!(parse(expression).reads("dependent"), reads, "{expression}");
        }
    }
}
