//! Decides what a CEL expression over the primary and a dependent says.

use std::fmt;
use std::sync::Arc;

use ::cel::Program;
use serde_json::Value;

use crate::budget::{Budget, OPERATION};
use crate::cel;
use crate::guest::ConditionResult;
use crate::manifest;

/// A CEL expression over `primary` and `dependent`, compiled once.
#[derive(Clone)]
pub struct Expression {
    text: Arc<str>,
    program: Arc<Program>,
    /// Those of [`VARIABLES`] that it reads.
    variables: Vec<&'static str>,
}

/// Why an expression has no value. Retrying does not help until an object or the expression changes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is not CEL, or names what does not exist.
    #[error("CEL expression {expression:?}: {problem}")]
    Syntax {
        /// The expression.
        expression: Arc<str>,
        /// What is wrong, and in which column.
        problem: String,
    },
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
        found: String,
        /// The type that is needed.
        right: &'static str,
    },
}

/// What an expression can speak about.
const VARIABLES: [&str; 2] = ["primary", "dependent"];

impl Expression {
    /// Compiles an expression.
    ///
    /// # Errors
    /// [`Error::Syntax`] if it is not CEL, is too long or too deep, or names other variables than `primary` and
    /// `dependent`: as [`manifest::compile`] says.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let expression: Arc<str> = text.into();
        let program = manifest::compile(text, &VARIABLES)
            .map_err(|broken| Error::Syntax { expression: expression.clone(), problem: broken.to_string() })?;
        let variables = manifest::variables(&program, &VARIABLES);
        Ok(Self { text: expression, program: Arc::new(program), variables })
    }

    /// Returns the expression as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the expression reads the dependent's object.
    pub fn reads_dependent(&self) -> bool {
        self.variables.contains(&"dependent")
    }

    /// Evaluates a condition, which the budget pays for; `dependent` is null in it if the object does not exist. Where the expression needs a field
    /// that is not there, so that it has no value, the condition is unmet, with that as the reason:
    /// `primary.spec.exposed` is met only if the field is there and true, and `dependent.status.phase == "Bound"` only if
    /// the dependent is there.
    ///
    /// # Errors
    /// [`Error::Failed`] if it fails otherwise, [`Error::Type`] if its value is no boolean.
    ///
    /// ```
    /// # use capstan_core::budget::Budget;
    /// # use capstan_core::workflow::condition::Expression;
    /// # use serde_json::json;
    /// let exposed = Expression::parse("primary.spec.exposed").unwrap();
    /// let mut met = |primary| exposed.met(&primary, None, &mut Budget::of_run());
    /// assert!(met(json!({"spec": {"exposed": true}})).unwrap().met);
    /// assert!(!met(json!({"spec": {}})).unwrap().met);
    /// assert!(met(json!({"spec": {"exposed": "yes"}})).is_err());
    /// ```
    pub fn met(
        &self,
        primary: &Value,
        dependent: Option<&Value>,
        budget: &mut Budget,
    ) -> Result<ConditionResult, Error> {
        match self.evaluate(primary, dependent, budget) {
            Ok(cel::Value::Bool(true)) => Ok(ConditionResult::met()),
            Ok(cel::Value::Bool(false)) => Ok(ConditionResult::unmet("it is false")),
            Ok(other) => Err(self.mistyped(&other, "a boolean")),
            Err(missing @ (cel::Error::NoField(_) | cel::Error::OfNull)) => {
                Ok(ConditionResult::unmet(&missing.to_string()))
            }
            Err(error) => Err(self.failed(&error, [Some(primary), dependent])),
        }
    }

    /// Evaluates an expression for a text, such as a name.
    ///
    /// # Errors
    /// [`Error::Failed`] if it fails, [`Error::Type`] if its value is no string.
    ///
    /// ```
    /// # use capstan_core::budget::Budget;
    /// # use capstan_core::workflow::condition::Expression;
    /// # use serde_json::json;
    /// let name = Expression::parse("primary.metadata.name + '-config'").unwrap();
    /// let primary = json!({"metadata": {"name": "a"}});
    /// assert_eq!(name.text(&primary, None, &mut Budget::of_run()).unwrap(), "a-config");
    /// ```
    pub fn text(&self, primary: &Value, dependent: Option<&Value>, budget: &mut Budget) -> Result<String, Error> {
        match self.evaluate(primary, dependent, budget) {
            Ok(cel::Value::Text(text)) => Ok(text.into_owned()),
            Ok(other) => Err(self.mistyped(&other, "a string")),
            Err(error) => Err(self.failed(&error, [Some(primary), dependent])),
        }
    }

    fn evaluate<'v>(
        &'v self,
        primary: &'v Value,
        dependent: Option<&'v Value>,
        budget: &mut Budget,
    ) -> Result<cel::Value<'v>, cel::Error> {
        let objects = [("primary", primary), ("dependent", dependent.unwrap_or(&Value::Null))];
        budget.within(OPERATION, |budget| cel::evaluate(self.program.expression(), &objects, budget))
    }

    fn mistyped(&self, found: &cel::Value<'_>, right: &'static str) -> Error {
        Error::Type { expression: self.text.clone(), found: found.type_name().to_owned(), right }
    }

    /// The text of an error may hold values, so it is kept back where a Secret takes part (`SSA-7`).
    fn failed(&self, error: &cel::Error, objects: [Option<&Value>; 2]) -> Error {
        let secret = objects.iter().flatten().any(|object| object.get("kind").is_some_and(|kind| kind == "Secret"));
        let problem = if secret { "on values of a Secret".to_owned() } else { error.to_string() };
        Error::Failed { expression: self.text.clone(), problem }
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expression({:?})", self.text)
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn met_by(expression: &str, primary: &Value, dependent: Option<&Value>) -> Result<ConditionResult, String> {
        let expression = Expression::parse(expression).map_err(|error| error.to_string())?;
        expression.met(primary, dependent, &mut Budget::of_run()).map_err(|error| error.to_string())
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
            let expected = reason.map_or_else(ConditionResult::met, ConditionResult::unmet);
            assert_eq!(
                met_by(expression, &primary, Some(&dependent)),
                Ok(expected),
                "{expression}"
            );
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
            let expected = reason.map_or_else(ConditionResult::met, ConditionResult::unmet);
            assert_eq!(
                met_by(expression, &json!({}), None),
                Ok(expected),
                "{expression}"
            );
        }
    }

    #[test]
    fn a_name_that_a_comprehension_binds_means_the_dependent_outside_of_it() {
        for expression in [
            "[1].exists(dependent, dependent > 0) && dependent != null",
            "dependent != null && [1].exists(dependent, dependent > 0)",
        ] {
            for (dependent, expected) in
                [(Some(json!({})), ConditionResult::met()), (None, ConditionResult::unmet("it is false"))]
            {
                let said = met_by(expression, &json!({}), dependent.as_ref());
                assert_eq!(said, Ok(expected), "{expression}");
            }
        }
    }

    #[test]
    fn what_is_wrong_with_an_expression_is_said_before_it_runs() {
        for (expression, text) in [
            ("primary.spec.", "not a CEL expression"),
            ("primry.spec", "primry"),
            ("primary.spec.hosts.exists(h, g == 'y')", "g"),
        ] {
            let said = Expression::parse(expression).unwrap_err().to_string();
            assert!(said.starts_with(&format!("CEL expression {expression:?}: ")), "{said}");
            assert!(said.contains(text), "{said}");
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
            ("nothing(primary)", "CEL expression \"nothing(primary)\": unknown function `nothing`, at character 8"),
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
    }

    #[test]
    fn a_name_is_a_text() {
        // KD-4
        let primary = json!({"metadata": {"name": "a"}, "spec": {"n": 1}});
        let text = |expression: &str| {
            Expression::parse(expression)
                .unwrap()
                .text(&primary, None, &mut Budget::of_run())
                .map_err(|error| error.to_string())
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
            assert_eq!(Expression::parse(expression).unwrap().reads_dependent(), reads, "{expression}");
        }
    }
}
