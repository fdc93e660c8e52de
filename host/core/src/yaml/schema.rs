//! How what is read stands in a JSON schema, so that one is made from the types that read.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::slot::{Entries, Form, ListOr, OrWord, Scalar, Slot, Word};

/// Lists the words of an enum alone, without what each of them means.
pub(crate) fn words(schema: &mut Schema) {
    let forms = schema.remove("oneOf").unwrap_or_default();
    let words = forms.as_array().into_iter().flatten().filter_map(|form| form.get("const"));
    schema.insert("enum".to_owned(), words.cloned().collect());
    schema.insert("type".to_owned(), "string".into());
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

impl<T: JsonSchema, U: JsonSchema> JsonSchema for ListOr<T, U> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("list of {} or {}", T::schema_name(), U::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (list, value) = (generator.subschema_for::<Vec<T>>(), generator.subschema_for::<U>());
        json_schema!({ "anyOf": [list, value] })
    }
}
