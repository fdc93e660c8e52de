//! Reads a value of any form, in which each part knows its place.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

use super::slot::Slot;

/// A value of any form. Null, in a part, is [`Slot::Missing`].
pub(crate) enum Any {
    /// A number or a truth value.
    Plain(Value),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Slot<Any>>),
    /// A mapping.
    Map(Vec<(Slot<String>, Slot<Any>)>),
}

impl<'de> Deserialize<'de> for Any {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyVisitor)
    }
}

struct AnyVisitor;

impl<'de> Visitor<'de> for AnyVisitor {
    type Value = Any;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Any, E> {
        Ok(Any::Plain(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Any, E> {
        Ok(Any::Plain(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Any, E> {
        Ok(Any::Plain(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Any, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("a number must be finite"))?;
        Ok(Any::Plain(number.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Any, E> {
        Ok(Any::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Any, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Any::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Any, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Any::Map(fields))
    }
}
