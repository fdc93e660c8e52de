//! Reads serde types from a tree, and goes on after an error: a field that cannot be read is noted and left out.
//!
//! serde stops at the first error. Here a field is a [`Slot`], which takes the error in, once it is noted with its place.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::diagnostic::{Fault, Faults, either, similar};
use super::tree::{Node, Quoted, Value};

/// Reads from one node.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    node: &'a Node,
    faults: &'a RefCell<Faults>,
    words: [Option<&'static str>; 2],
}

/// Why serde cannot go on. Only [`Reported`](Self::Reported) leaves a node.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It is noted already.
    Reported,
    /// Something else was expected.
    Expected(String),
    /// It is not right, and this would be.
    Wrong(String),
}

/// How a [`Slot`] asks for the number of its node, beside the value.
pub(super) const SLOT: &str = "$slot";

/// The name of what is a list, or else a mapping of one form.
pub(super) const LIST_OR: &str = "$listOr";

// === impl Reader ===

impl<'a> Reader<'a> {
    pub(crate) fn new(node: &'a Node, faults: &'a RefCell<Faults>) -> Self {
        Self { node, faults, words: [None; 2] }
    }

    fn at(self, node: &'a Node) -> Self {
        Self::new(node, self.faults)
    }

    fn or(self, word: &'static str) -> Self {
        let words = if self.words[0].is_none() { [Some(word), None] } else { [self.words[0], Some(word)] };
        Self { words, ..self }
    }

    fn report(self, place: usize, message: impl FnOnce() -> (String, Option<String>)) -> Failure {
        self.faults.borrow_mut().add(|| {
            let (message, help) = message();
            Fault { place, message, help, inside: None }
        });
        Failure::Reported
    }

    /// Notes that the node is not what was expected.
    fn mismatch(self, expected: &str) -> Failure {
        let message = || format!("found {}; expected {expected}{}", self.node, self.or_words());
        self.report(self.node.place, || (message(), None))
    }

    /// Returns the end of a sentence that says what would be right.
    fn or_words(self) -> String {
        let words: Vec<&str> = self.words.iter().copied().flatten().collect();
        if words.is_empty() { String::new() } else { format!(", or {}", either(&words)) }
    }

    /// Notes why the node cannot be read.
    fn note<T>(self, result: Result<T, Failure>) -> Result<T, Failure> {
        result.map_err(|failure| match failure {
            Failure::Reported => Failure::Reported,
            Failure::Expected(expected) => self.mismatch(&expected),
            Failure::Wrong(right) => {
                let or = if right.starts_with("expected") { self.or_words() } else { String::new() };
                self.report(self.node.place, || (format!("found {}; {right}{or}", self.node), None))
            }
        })
    }

    fn unknown_field(self, key: &Node, allowed: &[&'static str]) -> Failure {
        self.report(key.place, || {
            let name = key.text().unwrap_or_default();
            let hint = similar(name, allowed).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            let mut sorted = allowed.to_vec();
            sorted.sort_unstable();
            let help = format!("fields here: {}", sorted.join(", "));
            (format!("unknown field {}{hint}", Quoted(name)), Some(help))
        })
    }

    /// Says that a text is none of these words.
    fn other_word(self, text: &str, forms: &[&'static str]) -> String {
        match (similar(text, forms), forms) {
            (Some(near), _) => format!("found {}; did you mean `{near}`? expected {}", self.node, either(forms)),
            // A form that is alone is never a word: it would say nothing.
            (None, [form]) => format!("found {}; expected `{{ {form}: … }}`{}", self.node, self.or_words()),
            (None, forms) => format!("found {}; expected {}{}", self.node, either(forms), self.or_words()),
        }
    }

    /// Reads a mapping of which exactly one form is allowed.
    fn form<'de, V: Visitor<'de>>(
        self,
        entries: &'a [(Node, Node)],
        forms: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let is_known = |key: &Node| key.text().is_some_and(|name| forms.contains(&name));
        let unknown: Vec<&Node> = entries.iter().map(|(key, _)| key).filter(|key| !is_known(key)).collect();
        if !unknown.is_empty() {
            for key in unknown {
                self.unknown_field(key, forms);
            }
            return Err(Failure::Reported);
        }
        if let [(key, value)] = entries {
            let variant = Variant { name: key.text().unwrap_or_default(), value: Some(value), reader: self.at(key) };
            return visitor.visit_enum(variant);
        }
        let found: Vec<&str> = entries.iter().filter_map(|(key, _)| key.text()).collect();
        let found = match found.as_slice() {
            [] => "an empty mapping".to_owned(),
            forms => format!("{} together", forms.join(", ")),
        };
        let message = match forms {
            [form] => format!("found {found}; expected `{{ {form}: … }}`"),
            forms => format!("found {found}; expected exactly one of {}", either(forms)),
        };
        Err(self.report(self.node.place, || (message, None)))
    }
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Failure;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.note(match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Text(text) => visitor.visit_str(text),
            Value::List(items) => visitor.visit_seq(Items { items: items.iter(), reader: self }),
            Value::Map(entries) => visitor.visit_map(Fields::new(entries, self)),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(value), ..) => visitor.visit_u64(value),
                (_, Some(value), _) => visitor.visit_i64(value),
                (.., Some(value)) => visitor.visit_f64(value),
                (None, None, None) => Err(Failure::Expected("a number within bounds".to_owned())),
            },
        })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.node.value {
            Value::Null => visitor.visit_none(),
            Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) | Value::Map(_) => {
                visitor.visit_some(self)
            }
        }
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        if name == SLOT {
            return visitor.visit_seq(Parts { reader: self, next: 0 });
        }
        if name == LIST_OR && matches!(self.node.value, Value::Map(_)) {
            return visitor.visit_newtype_struct(self);
        }
        self.deserialize_tuple(len, visitor)
    }

    /// The name of the newtype is a word that may stand in place of its value.
    fn deserialize_newtype_struct<V: Visitor<'de>>(self, word: &'static str, visitor: V) -> Result<V::Value, Failure> {
        if self.node.text() == Some(word) { visitor.visit_unit() } else { visitor.visit_newtype_struct(self.or(word)) }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let Value::Map(entries) = &self.node.value else {
            return Err(self.mismatch(&format!("a mapping with {}", fields.join(", "))));
        };
        let is_known = |key: &Node| key.text().is_some_and(|name| fields.contains(&name));
        for (key, _) in entries.iter().filter(|(key, _)| !is_known(key)) {
            self.unknown_field(key, fields);
        }
        self.note(visitor.visit_map(Fields { known: Some(fields), ..Fields::new(entries, self) }))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        forms: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        match &self.node.value {
            Value::Map(entries) => self.form(entries, forms, visitor),
            Value::Text(text) if forms.contains(&text.as_str()) => {
                visitor.visit_enum(Variant { name: text, value: None, reader: self })
            }
            Value::Text(text) => Err(self.report(self.node.place, || (self.other_word(text, forms), None))),
            _ if forms.len() == 1 => Err(self.mismatch(&format!("`{{ {}: … }}`", forms.concat()))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::List(_) => Err(self.mismatch(&either(forms))),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        map identifier ignored_any
    }
}

// === below a node ===

struct Items<'a> {
    items: std::slice::Iter<'a, Node>,
    reader: Reader<'a>,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Failure;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Failure> {
        self.items.next().map(|item| seed.deserialize(self.reader.at(item))).transpose()
    }
}

struct Fields<'a> {
    entries: std::slice::Iter<'a, (Node, Node)>,
    known: Option<&'static [&'static str]>,
    value: Option<&'a Node>,
    reader: Reader<'a>,
}

impl<'a> Fields<'a> {
    fn new(entries: &'a [(Node, Node)], reader: Reader<'a>) -> Self {
        Self { entries: entries.iter(), known: None, value: None, reader }
    }
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Failure;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Failure> {
        let known = self.known;
        let is_known = |key: &Node| known.is_none_or(|known| key.text().is_some_and(|name| known.contains(&name)));
        let Some((key, value)) = self.entries.find(|(key, _)| is_known(key)) else {
            return Ok(None);
        };
        self.value = Some(value);
        seed.deserialize(self.reader.at(key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Failure> {
        let value = self.value.take().ok_or_else(|| Failure::Wrong("a key needs a value".to_owned()))?;
        seed.deserialize(self.reader.at(value))
    }
}

/// A form: a word alone, or a key with a value.
struct Variant<'a> {
    name: &'a str,
    value: Option<&'a Node>,
    reader: Reader<'a>,
}

impl<'de> EnumAccess<'de> for Variant<'_> {
    type Error = Failure;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Failure> {
        let name = seed.deserialize(IntoDeserializer::<Failure>::into_deserializer(self.name))?;
        Ok((name, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = Failure;

    fn unit_variant(self) -> Result<(), Failure> {
        if self.value.is_none() {
            return Ok(());
        }
        let message = || format!("found `{0}` as a mapping; `{0}` stands alone, without a value", self.name);
        Err(self.reader.report(self.reader.node.place, || (message(), None)))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Failure> {
        let Some(value) = self.value else {
            let message = || format!("found `{0}` alone; it needs a value: `{{ {0}: … }}`", self.name);
            return Err(self.reader.report(self.reader.node.place, || (message(), None)));
        };
        seed.deserialize(self.reader.at(value))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Failure> {
        self.newtype_variant_seed(PhantomData::<de::IgnoredAny>)?;
        Err(Failure::Expected((&visitor as &dyn Expected).to_string()))
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Failure> {
        match self.value {
            Some(value) => self.reader.at(value).deserialize_struct("", fields, visitor),
            None => self.tuple_variant(0, visitor),
        }
    }
}

/// The number of a node, then its value.
struct Parts<'a> {
    reader: Reader<'a>,
    next: u8,
}

impl<'de> SeqAccess<'de> for Parts<'_> {
    type Error = Failure;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Failure> {
        self.next += 1;
        match self.next {
            1 => {
                let place: de::value::UsizeDeserializer<Failure> = self.reader.node.place.into_deserializer();
                seed.deserialize(place).map(Some)
            }
            2 => seed.deserialize(self.reader).map(Some),
            _ => Ok(None),
        }
    }
}

// === impl Failure ===

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reported => f.write_str("noted"),
            Self::Expected(expected) => write!(f, "expected {expected}"),
            Self::Wrong(right) => f.write_str(right),
        }
    }
}

impl std::error::Error for Failure {}

impl de::Error for Failure {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Wrong(message.to_string())
    }

    fn invalid_type(_found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::Expected(match expected.to_string().as_str() {
            "a sequence" => "a list".to_owned(),
            "a string" => "a text".to_owned(),
            "a boolean" => "`true` or `false`".to_owned(),
            "a map" => "a mapping".to_owned(),
            other => other.to_owned(),
        })
    }

    fn invalid_value(_found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::Expected(expected.to_string())
    }
}
