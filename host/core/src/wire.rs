//! Decides how values cross between processes: types that serde can't encode by itself, and bounds on lists, because
//! a few bytes may stand for a long list.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// The most elements that a list of the other process may have.
pub const FEW: usize = 1 << 16;

/// Serde functions for an `Arc<str>`.
pub mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes the text.
    pub fn serialize<S: Serializer>(text: &Arc<str>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(text)
    }

    /// Reads a text.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
        String::deserialize(from).map(Into::into)
    }
}

/// Reads a list of bounded length.
pub fn few<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    from.deserialize_seq(List(PhantomData))
}

/// Reads a map of bounded length; of several pairs with the same name, the last one counts.
pub fn few_pairs<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    from.deserialize_map(Pairs)
}

struct List<T>(PhantomData<T>);

struct Pairs;

impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {FEW}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = from.next_element()? {
            bounded::<A::Error>(list.len(), &self)?;
            list.push(element);
        }
        Ok(list)
    }
}

impl<'de> Visitor<'de> for Pairs {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {FEW} pairs")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
        let mut pairs = BTreeMap::new();
        let mut count = 0;
        while let Some((name, value)) = from.next_entry()? {
            bounded::<A::Error>(count, &self)?;
            pairs.insert(name, value);
            count += 1;
        }
        Ok(pairs)
    }
}

fn bounded<E: Error>(length: usize, expected: &dyn serde::de::Expected) -> Result<(), E> {
    if length < FEW { Ok(()) } else { Err(E::invalid_length(length + 1, expected)) }
}

#[cfg(test)]
mod tests {
    use serde::de::value::{MapDeserializer, SeqDeserializer};

    use super::*;

    fn list(length: usize) -> Result<usize, serde::de::value::Error> {
        let bytes = SeqDeserializer::<_, serde::de::value::Error>::new(std::iter::repeat_n(7_u8, length));
        few::<_, u8>(bytes).map(|list| list.len())
    }

    fn pairs(length: usize) -> Result<usize, serde::de::value::Error> {
        let pairs = (0..length).map(|n| ((n % 10).to_string(), String::new()));
        let pairs = MapDeserializer::<_, serde::de::value::Error>::new(pairs);
        few_pairs(pairs).map(|pairs| pairs.len())
    }

    #[test]
    fn a_list_has_no_more_elements_than_it_may() {
        assert_eq!((list(0), list(FEW)), (Ok(0), Ok(FEW)));
        assert_eq!((pairs(0), pairs(FEW)), (Ok(0), Ok(10)));
        for refused in [list(FEW + 1), pairs(FEW + 1)] {
            let why = refused.unwrap_err().to_string();
            assert!(why.starts_with("invalid length 65537, expected "), "{why}");
        }
    }
}
