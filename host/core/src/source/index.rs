//! Decides which keys an object has under a JSON pointer (IX), and keeps which objects were seen under a key (IX,
//! IM-4).

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Bound;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::object::{Object, ObjectRef, Text};

/// A JSON pointer (RFC 6901) to a string or a list of strings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer(Box<[Box<str>]>);

/// The objects under each key. An object may be under many keys, and a key may have many objects.
#[derive(Clone, Debug)]
pub struct Lookup<K>(BTreeSet<(K, ObjectRef)>);

/// The reason why a text is not a pointer. Retrying does not help.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text does not start with a slash, or has a `~` that is neither `~0` nor `~1`.
    #[error("{0:?} is not a JSON pointer such as \"/spec/config\"")]
    Pointer(String),
}

// === impl Pointer ===

impl Pointer {
    /// Parses a pointer.
    ///
    /// # Errors
    /// [`Error::Pointer`] for any other text, and for the empty pointer, which names no field.
    ///
    /// ```
    /// # use capstan_core::source::index::Pointer;
    /// assert!(Pointer::parse("/metadata/labels/app.dev~1tier").is_ok());
    /// assert!(Pointer::parse("spec.config").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<Self, Error> {
        let wrong = || Error::Pointer(text.to_owned());
        let path = text.strip_prefix('/').ok_or_else(wrong)?;
        let token = |token: &str| {
            let valid = token.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
            valid.then(|| token.replace("~1", "/").replace("~0", "~").into_boxed_str())
        };
        let tokens: Option<_> = path.split('/').map(token).collect();
        tokens.map(Self).ok_or_else(wrong)
    }

    /// Returns the keys of an object: the string at the pointer, or the strings of the list there. The set is empty
    /// if there is no value, or one of another type. Reads the text without building a tree.
    ///
    /// So that keys take no more memory than objects do, an object has at most 32 keys and one more for each 64 bytes
    /// of its text, and at most [`MOST`] in all. If the list has more, its first strings count.
    pub fn keys(&self, object: &Object) -> BTreeSet<Box<str>> {
        let mut found = Found { keys: BTreeSet::new(), most: MOST.min(32 + object.json().len() / 64) };
        let mut json = serde_json::Deserializer::from_str(object.json());
        let walk = Walk { path: &self.0, list: List::Allowed, found: &mut found };
        // The text was parsed before, and values that are not keys are skipped: an error only ends the walk.
        drop(walk.deserialize(&mut json));
        found.keys
    }
}

/// The most keys of an object.
pub const MOST: usize = 1_000;

/// The keys of an object that were found.
struct Found {
    keys: BTreeSet<Box<str>>,
    most: usize,
}

/// The position of the walk through the text.
struct Walk<'p, 'f> {
    /// The rest of the pointer.
    path: &'p [Box<str>],
    list: List,
    found: &'f mut Found,
}

/// The place of a value, which decides if it may be a list of keys.
#[derive(Clone, Copy)]
enum List {
    Allowed,
    /// The value is an element of a list of keys, and may not be a list itself.
    Inside,
}

impl<'de> DeserializeSeed<'de> for Walk<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        let Found { keys, most } = self.found;
        if self.path.is_empty() && keys.len() < *most {
            keys.insert(text.into());
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let next = self.path.split_first();
        while let Some(name) = map.next_key::<Text<'de>>()? {
            match next {
                Some((head, path)) if *name.0 == **head => {
                    map.next_value_seed(Walk { path, list: self.list, found: &mut *self.found })?;
                }
                Some(_) | None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Some((head, path)) = self.path.split_first() else {
            return match self.list {
                List::Allowed => {
                    let found = self.found;
                    while list.next_element_seed(Walk { path: &[], list: List::Inside, found: &mut *found })?.is_some()
                    {
                    }
                    Ok(())
                }
                List::Inside => rest(list),
            };
        };
        let place = head.parse::<usize>().map_err(|_| A::Error::custom("no element"))?;
        for _ in 0..place {
            if list.next_element::<IgnoredAny>()?.is_none() {
                return Ok(());
            }
        }
        list.next_element_seed(Walk { path, ..self })?;
        rest(list)
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

fn rest<'de, A: SeqAccess<'de>>(mut list: A) -> Result<(), A::Error> {
    while list.next_element::<IgnoredAny>()?.is_some() {}
    Ok(())
}

// === impl Lookup ===

impl<K> Default for Lookup<K> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<K: Ord + Clone> Lookup<K> {
    /// Moves an object from the keys that it had `before` to the keys that it has `after`.
    pub fn moved(&mut self, object: &ObjectRef, before: &BTreeSet<K>, after: &BTreeSet<K>) {
        for key in before.difference(after) {
            self.0.remove(&(key.clone(), object.clone()));
        }
        for key in after {
            self.0.insert((key.clone(), object.clone()));
        }
    }

    /// Returns the objects under a key, ordered by namespace and name.
    pub fn get(&self, key: &K) -> impl Iterator<Item = &ObjectRef> {
        let first = (key.clone(), ObjectRef::cluster(""));
        let range = self.0.range((Bound::Included(&first), Bound::Unbounded));
        // The range borrows only from the set: its start may be moved.
        range.take_while(move |(other, _)| *other == first.0).map(|(_, object)| object)
    }

    /// Keeps only the objects that `keep` accepts.
    pub fn retain(&mut self, keep: impl Fn(&ObjectRef) -> bool) {
        self.0.retain(|(_, object)| keep(object));
    }

    /// Returns the number of pairs of key and object.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if no object is under any key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Gvk, Managers};

    #[test]
    fn the_keys_of_an_object_are_the_strings_under_the_pointer() {
        // IX-1
        let json = r#"{"apiVersion":"v1","kind":"X","metadata":{"name":"a","labels":{"app.dev/t~r":"web"}},"spec":{
            "config":"conf\u0069g","many":["x","y",3,["z"],{"k":"v"},"x"],"number":7,"no":null,"yes":true,"less":-1.5,
            "volumes":[{"name":"first"},{"name":"second","from":["s1","s2"]}],"":{"":"empty"}},"config":"outer"}"#;
        let object = Object::parse(json, &Gvk::parse("v1", "X").unwrap(), &Managers::default()).unwrap();
        for (pointer, keys) in [
            ("/spec/config", vec!["config"]),
            ("/config", vec!["outer"]),
            ("/spec/many", vec!["x", "y"]),
            ("/spec/many/1", vec!["y"]),
            ("/spec/many/9", vec![]),
            ("/spec/many/x", vec![]),
            ("/spec/volumes/1/name", vec!["second"]),
            ("/spec/volumes/1/from", vec!["s1", "s2"]),
            ("/spec/volumes", vec![]),
            ("/spec//", vec!["empty"]),
            ("/metadata/labels/app.dev~1t~0r", vec!["web"]),
            ("/spec/number", vec![]),
            ("/spec/no", vec![]),
            ("/spec/yes", vec![]),
            ("/spec/less", vec![]),
            ("/spec", vec![]),
            ("/spec/config/deeper", vec![]),
            ("/absent/field", vec![]),
        ] {
            let found = Pointer::parse(pointer).unwrap().keys(&object);
            assert_eq!(found.iter().map(|key| &**key).collect::<Vec<_>>(), keys, "{pointer}");
        }
    }

    #[test]
    fn what_is_no_pointer_is_refused() {
        for text in ["", "spec", "/a~2", "/a~"] {
            let error = Pointer::parse(text).unwrap_err();
            assert_eq!(error.to_string(), format!("{text:?} is not a JSON pointer such as \"/spec/config\""));
        }
    }

    #[test]
    fn an_object_moves_between_keys() {
        let [a, b] = ["a", "b"].map(|name| ObjectRef::namespaced("n", name));
        let set = |keys: &[&'static str]| keys.iter().copied().collect::<BTreeSet<_>>();
        let mut lookup = Lookup::default();
        lookup.moved(&b, &set(&[]), &set(&["x", "y"]));
        lookup.moved(&a, &set(&[]), &set(&["x"]));
        assert_eq!(lookup.get(&"x").collect::<Vec<_>>(), [&a, &b]);
        lookup.moved(&b, &set(&["x", "y"]), &set(&["y", "z"]));
        for (key, objects) in [("w", vec![]), ("x", vec![&a]), ("y", vec![&b]), ("z", vec![&b])] {
            assert_eq!(lookup.get(&key).collect::<Vec<_>>(), objects, "{key}");
        }
        lookup.retain(|object| *object != b);
        lookup.moved(&a, &set(&["x"]), &set(&[]));
        assert!(lookup.is_empty());
    }
}
