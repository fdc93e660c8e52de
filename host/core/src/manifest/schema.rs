//! The JSON schema of a manifest, for editors, made from the types that read one.

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use super::raw::Document;
use super::read::{Entries, Form, OrWord, Scalar, Slot, Word};

/// Returns the JSON schema (draft 2020-12) of one document. It says less than [`parse`](super::parse()) checks: neither
/// names that refer to each other, nor what is within CEL and selectors.
pub fn schema() -> Value {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Document>();
    schema.insert("title".to_owned(), "Capstan operator".into());
    schema.to_value()
}

impl<T: JsonSchema> JsonSchema for Slot<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

impl<F: Form> JsonSchema for Scalar<F> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        F::WHAT.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        F::schema()
    }
}

impl<F: Form, T: JsonSchema> JsonSchema for Entries<Scalar<F>, T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{} by name", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (names, values) = (F::schema(), generator.subschema_for::<T>());
        json_schema!({ "type": "object", "propertyNames": names, "additionalProperties": values })
    }
}

impl<W: Word, T: JsonSchema> JsonSchema for OrWord<W, T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{} or {}", W::WORD, T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [{ "const": W::WORD }, value] })
    }
}
