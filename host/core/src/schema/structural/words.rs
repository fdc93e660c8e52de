//! Knows the keywords of schemas: which a structural one may have, which mean nothing there, and which formats the API server checks.

use serde_json::Value;

use super::Keywords;

/// What a structural schema may say of a place, beside what is `x-kubernetes-`.
const MEANT: [&str; 23] = [
    "default",
    "description",
    "enum",
    "example",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "externalDocs",
    "format",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "nullable",
    "pattern",
    "required",
    "type",
    "uniqueItems",
];

/// What says nothing of values.
const SILENT: [&str; 14] = [
    "$anchor",
    "$comment",
    "$defs",
    "$id",
    "$schema",
    "contentEncoding",
    "contentMediaType",
    "definitions",
    "deprecated",
    "examples",
    "propertyOrder",
    "readOnly",
    "title",
    "writeOnly",
];

/// The formats that the API server checks or knows.
const FORMATS: [&str; 21] = [
    "bsonobjectid",
    "byte",
    "cidr",
    "date",
    "date-time",
    "datetime",
    "double",
    "duration",
    "email",
    "float",
    "hexcolor",
    "hostname",
    "int32",
    "int64",
    "ipv4",
    "ipv6",
    "mac",
    "password",
    "uri",
    "uuid",
    "rgbcolor",
];

pub(super) fn is_meant(key: &str) -> bool {
    MEANT.contains(&key) || key.starts_with("x-kubernetes-")
}

pub(super) fn is_meaningless(key: &str, value: &Value) -> bool {
    let closed = matches!(key, "unevaluatedProperties" | "unevaluatedItems") && value == false;
    SILENT.contains(&key) || closed || key.starts_with("x-") && !key.starts_with("x-kubernetes-")
}

/// Whether a type has nothing within.
pub(super) fn scalar(kind: &str) -> bool {
    matches!(kind, "string" | "integer" | "number" | "boolean")
}

/// Replaces a format that the API server does not know by one that it does, and drops those for which there is none.
pub(super) fn format(shape: &mut Keywords) {
    let Some(format) = shape.get("format").and_then(Value::as_str) else {
        return;
    };
    let known = match format {
        "int8" | "int16" | "uint8" | "uint16" => Some("int32"),
        "int" | "uint" | "uint32" | "uint64" => Some("int64"),
        "uri-reference" => None,
        other => FORMATS.contains(&other).then_some(other),
    };
    match known {
        Some(known) => drop(shape.insert("format".to_owned(), known.to_owned().into())),
        None => drop(shape.remove("format")),
    }
}
