//! The types of fields that a reader fills as far as it can: a value, a word in its place, or a note of what is wrong.

use std::fmt;
use std::marker::PhantomData;

use schemars::Schema;
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

use super::de::{LIST_OR, SLOT};

/// A field of which the place is known.
pub(crate) enum Slot<T> {
    /// It is there.
    Read(Located<T>),
    /// It is not there, or null.
    Missing,
    /// It was wrong, and that is noted.
    Wrong,
}

/// A value, and the number of its node.
pub(crate) struct Located<T> {
    pub(crate) value: T,
    pub(crate) place: usize,
}

/// A mapping with names of the author's choice, in the order of the text.
pub(crate) struct Entries<K, T>(pub(crate) Vec<(Slot<K>, Slot<T>)>);

/// A value, or a word in its place: `retry: none`.
pub(crate) enum OrWord<W, T> {
    /// The word.
    Word(PhantomData<W>),
    /// The value.
    Value(T),
}

/// A list, or a mapping of one form in its place: `namespaces: { selector: … }`.
pub(crate) enum ListOr<T, U> {
    /// The list.
    List(Vec<T>),
    /// The mapping.
    Value(U),
}

/// A word that may stand in place of a value.
pub(crate) trait Word {
    /// The word.
    const WORD: &'static str;
}

/// A scalar with a form of its own.
pub(crate) trait Form: Sized {
    /// What it is, for a message about something else in its place.
    const WHAT: &'static str;

    /// Returns the value that a text states.
    ///
    /// # Errors
    /// What would be right.
    fn text(_text: &str) -> Result<Self, String> {
        Err(format!("expected {}", Self::WHAT))
    }

    /// Returns the value that a number states.
    ///
    /// # Errors
    /// What would be right.
    fn number(_number: &Number) -> Result<Self, String> {
        Err(format!("expected {}", Self::WHAT))
    }

    /// Returns the JSON schema of the form.
    fn schema() -> Schema;
}

/// A [`Form`] as serde reads it.
pub(crate) struct Scalar<F>(pub(crate) F);

/// A field with a [`Form`].
pub(crate) type Leaf<F> = Slot<Scalar<F>>;

// === impl Slot ===

impl<T> Slot<T> {
    /// Returns what is there.
    pub(crate) fn read(&self) -> Option<&Located<T>> {
        match self {
            Self::Read(located) => Some(located),
            Self::Missing | Self::Wrong => None,
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Slot<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_option(SlotVisitor(PhantomData))
    }
}

struct SlotVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for SlotVisitor<T> {
    type Value = Slot<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_none<E>(self) -> Result<Slot<T>, E> {
        Ok(Slot::Missing)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Slot<T>, D::Error> {
        deserializer.deserialize_tuple_struct(SLOT, 2, self)
    }

    /// The error of the value is noted by the [`Reader`] before it comes here.
    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Slot<T>, A::Error> {
        let Some(place) = parts.next_element()? else {
            return Ok(Slot::Wrong);
        };
        Ok(match parts.next_element() {
            Ok(Some(value)) => Slot::Read(Located { value, place }),
            Ok(None) | Err(_) => Slot::Wrong,
        })
    }
}

// === impl Entries ===

impl<'de, K: Deserialize<'de>, T: Deserialize<'de>> Deserialize<'de> for Entries<K, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor(PhantomData))
    }
}

struct EntriesVisitor<K, T>(PhantomData<(K, T)>);

impl<'de, K: Deserialize<'de>, T: Deserialize<'de>> Visitor<'de> for EntriesVisitor<K, T> {
    type Value = Entries<K, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<K, T>, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Entries(entries))
    }
}

// === impl OrWord ===

impl<'de, W: Word, T: Deserialize<'de>> Deserialize<'de> for OrWord<W, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(W::WORD, OrWordVisitor(PhantomData))
    }
}

struct OrWordVisitor<W, T>(PhantomData<(W, T)>);

impl<'de, W: Word, T: Deserialize<'de>> Visitor<'de> for OrWordVisitor<W, T> {
    type Value = OrWord<W, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", W::WORD)
    }

    fn visit_unit<E>(self) -> Result<OrWord<W, T>, E> {
        Ok(OrWord::Word(PhantomData))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<OrWord<W, T>, D::Error> {
        T::deserialize(deserializer).map(OrWord::Value)
    }
}

// === impl ListOr ===

impl<'de, T: Deserialize<'de>, U: Deserialize<'de>> Deserialize<'de> for ListOr<T, U> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_tuple_struct(LIST_OR, 0, ListOrVisitor(PhantomData))
    }
}

struct ListOrVisitor<T, U>(PhantomData<(T, U)>);

impl<'de, T: Deserialize<'de>, U: Deserialize<'de>> Visitor<'de> for ListOrVisitor<T, U> {
    type Value = ListOr<T, U>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list or a mapping")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<ListOr<T, U>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(ListOr::List(list))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<ListOr<T, U>, D::Error> {
        U::deserialize(deserializer).map(ListOr::Value)
    }
}

// === impl Scalar ===

impl<'de, F: Form> Deserialize<'de> for Scalar<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor(PhantomData))
    }
}

struct ScalarVisitor<F>(PhantomData<F>);

impl<F: Form> ScalarVisitor<F> {
    fn number<E: de::Error>(number: &Number) -> Result<Scalar<F>, E> {
        F::number(number).map(Scalar).map_err(E::custom)
    }
}

impl<F: Form> Visitor<'_> for ScalarVisitor<F> {
    type Value = Scalar<F>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(F::WHAT)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Scalar<F>, E> {
        F::text(text).map(Scalar).map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Scalar<F>, E> {
        Self::number(&number.into())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Scalar<F>, E> {
        Self::number(&number.into())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Scalar<F>, E> {
        let number = Number::from_f64(number).ok_or_else(|| E::custom("a number must be finite"))?;
        Self::number(&number)
    }
}
