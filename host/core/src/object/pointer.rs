//! A JSON pointer (RFC 6901), and which keys an object has under one (IX).

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{Object, Text};

/// A JSON pointer.
#[derive(Clone, PartialEq, Eq)]
pub struct Pointer {
    text: Arc<str>,
    path: Arc<[Box<str>]>,
}

// === impl Pointer ===

impl Pointer {
    /// Parses a pointer; the empty one leads to the whole document.
    ///
    /// # Errors
    /// A sentence that says what would be right.
    ///
    /// ```
    /// # use capstan_core::object::pointer::Pointer;
    /// assert!(Pointer::parse("/metadata/labels/app.dev~1tier").is_ok());
    /// assert_eq!(Pointer::parse("spec.config").unwrap_err(), "a JSON pointer begins with `/`: `/spec/config`?");
    /// ```
    pub fn parse(text: &str) -> Result<Self, String> {
        if !text.is_empty() && !text.starts_with('/') {
            let guess = text.trim_start_matches("$.").replace('.', "/");
            return Err(format!("a JSON pointer begins with `/`: `/{guess}`?"));
        }
        if text.split('~').skip(1).any(|after| !after.starts_with(['0', '1'])) {
            return Err("in a JSON pointer `~` is written `~0`, and `/` within a name `~1`".to_owned());
        }
        let names = text.split('/').skip(1).map(|name| name.replace("~1", "/").replace("~0", "~").into_boxed_str());
        Ok(Self { text: text.into(), path: names.collect() })
    }

    /// Returns it as it was written.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Returns the names that it leads through.
    pub fn path(&self) -> &[Box<str>] {
        &self.path
    }

    /// Returns the keys of an object: the string at the pointer, or the strings of the list there. The set is empty
    /// if there is no value, or one of another type. Reads the text without building a tree.
    ///
    /// So that keys take no more memory than objects do, an object has at most 32 keys and one more for each 64 bytes
    /// of its text, and at most [`MOST`] in all. If the list has more, its first strings count.
    pub fn keys(&self, object: &Object) -> BTreeSet<Box<str>> {
        let mut found = Found { keys: BTreeSet::new(), most: most(object) };
        let mut json = serde_json::Deserializer::from_str(object.json());
        let walk = Walk { path: &self.path, list: List::Allowed, found: &mut found };
        // The text was parsed before, and what is no key is passed over: nothing can fail.
        drop(walk.deserialize(&mut json));
        found.keys
    }
}

impl fmt::Debug for Pointer {
    /// Writes it as it was written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

/// The most keys of any object.
pub const MOST: usize = 1_000;

/// Returns how many keys an object may have.
pub fn most(object: &Object) -> usize {
    MOST.min(32 + object.json().len() / 64)
}

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
            ("", vec![]),
            ("/spec/config/deeper", vec![]),
            ("/absent/field", vec![]),
        ] {
            let found = Pointer::parse(pointer).unwrap().keys(&object);
            assert_eq!(found.iter().map(|key| &**key).collect::<Vec<_>>(), keys, "{pointer}");
        }
    }
}
