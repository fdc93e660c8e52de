//! Decides how an error in a field is worded.

use serde_json::Value;

/// An error in a field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wrong {
    /// The type of the cause, such as `FieldValueInvalid`.
    pub(crate) kind: &'static str,
    /// The path of the field.
    pub(crate) field: String,
    /// The message.
    pub(crate) message: String,
}

impl Wrong {
    /// Returns the error that a value is invalid.
    pub(crate) fn invalid(field: &str, value: &Value, why: &str) -> Self {
        Self { kind: "FieldValueInvalid", field: field.to_owned(), message: format!("Invalid value: {value}: {why}") }
    }

    /// Returns the error that a value is missing.
    pub(crate) fn required(field: &str, why: &str) -> Self {
        let more = if why.is_empty() { String::new() } else { format!(": {why}") };
        Self { kind: "FieldValueRequired", field: field.to_owned(), message: format!("Required value{more}") }
    }

    /// Returns the error that a value is not one of the supported ones.
    pub(crate) fn unsupported(field: &str, value: &str, known: &[&str]) -> Self {
        let known: Vec<String> = known.iter().map(|word| format!("{word:?}")).collect();
        Self {
            kind: "FieldValueNotSupported",
            field: field.to_owned(),
            message: format!("Unsupported value: {value:?}: supported values: {}", known.join(", ")),
        }
    }

    /// Returns the error that an equal value came before.
    pub(crate) fn duplicate(field: &str, value: &Value) -> Self {
        Self { kind: "FieldValueDuplicate", field: field.to_owned(), message: format!("Duplicate value: {value}") }
    }

    /// Returns the error that a value is forbidden.
    pub(crate) fn forbidden(field: &str, why: &str) -> Self {
        Self { kind: "FieldValueForbidden", field: field.to_owned(), message: format!("Forbidden: {why}") }
    }

    /// Returns the error that a value has another type.
    pub(crate) fn type_of(field: &str, value: &Value, wanted: &str) -> Self {
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        Self {
            kind: "FieldValueTypeInvalid",
            field: field.to_owned(),
            message: format!("Invalid value: \"{found}\": {field} in body must be of type {wanted}: \"{found}\""),
        }
    }
}
