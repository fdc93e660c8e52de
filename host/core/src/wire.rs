//! Decides how values cross between processes: types that serde can't encode by itself, and bounds on lists, because
//! a few bytes may stand for a long list, or for many in one another.

use std::cell::Cell;
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

thread_local! {
    /// The memory that elements of lists may still take, in bytes; `None`: nobody counts it.
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Reads something in which the elements of all lists together, texts in them aside, take no more memory than this, in bytes. A list in
/// a list would else take that of many.
pub fn within<T>(bytes: usize, read: impl FnOnce() -> T) -> T {
    struct Before(Option<usize>);
    impl Drop for Before {
        fn drop(&mut self) {
            LEFT.set(self.0);
        }
    }
    let _before = Before(LEFT.replace(Some(bytes)));
    read()
}

/// Reads a list of bounded length.
pub fn few<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    at_most::<FEW, D, T>(from)
}

/// Reads a list of at most `MOST` elements.
pub fn at_most<'de, const MOST: usize, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    from.deserialize_seq(List::<MOST, T>(PhantomData))
}

/// Reads a map of bounded length; of several pairs with the same name, the last one counts.
pub fn few_pairs<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    from.deserialize_map(Pairs)
}

struct List<const MOST: usize, T>(PhantomData<T>);

struct Pairs;

impl<'de, const MOST: usize, T: Deserialize<'de>> Visitor<'de> for List<MOST, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MOST}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = from.next_element()? {
            bounded::<A::Error>((list.len(), MOST), size_of::<T>(), &self)?;
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
            bounded::<A::Error>((count, FEW), size_of::<(String, String)>(), &self)?;
            pairs.insert(name, value);
            count += 1;
        }
        Ok(pairs)
    }
}

/// Refuses one more element of so many bytes, if it is one too many or takes too much.
fn bounded<E: Error>(
    (length, most): (usize, usize),
    bytes: usize,
    expected: &dyn serde::de::Expected,
) -> Result<(), E> {
    if length >= most {
        return Err(E::invalid_length(length + 1, expected));
    }
    let left =
        LEFT.get().map(|left| left.checked_sub(bytes).ok_or_else(|| E::custom("lists of too many elements in all")));
    LEFT.set(left.transpose()?);
    Ok(())
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

    #[test]
    fn all_lists_of_one_frame_together_take_no_more_than_they_may() {
        assert!(within(100, || list(100)).is_ok());
        let two = |bytes| within(bytes, || list(60).and_then(|_| list(40)));
        assert!(two(100).is_ok());
        assert_eq!(two(99).unwrap_err().to_string(), "lists of too many elements in all");
        assert!(within(47, || pairs(1)).is_err() && within(48, || pairs(1)).is_ok());
        assert!(list(200).is_ok(), "nobody counts any more");
    }
}
