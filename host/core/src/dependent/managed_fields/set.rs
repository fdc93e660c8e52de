//! Reads the fields that the API server has recorded for a field manager: a `fieldsV1` document.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

/// A set of fields: a level of a `fieldsV1` document.
#[derive(Debug, Default)]
pub(super) struct Set<'a> {
    /// True if the value itself is owned, beside some of its parts: the member `.`.
    pub(super) itself: bool,
    /// The parts, sorted by name.
    pub(super) parts: Vec<(Name<'a>, Set<'a>)>,
}

/// The name of a part.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Name<'a> {
    /// `f:` a field of a map.
    Field(Cow<'a, str>),
    /// `k:` the element of a list that has these key fields, a JSON object.
    Keyed(Cow<'a, str>),
    /// `v:` the element of a list that is this JSON value.
    Member(Cow<'a, str>),
    /// `.` the value itself.
    Itself,
    /// Anything else, such as `i:`: a difference, not an error (`SSA-2`).
    Unknown,
}

/// The set of a value that was never applied.
pub(super) const NOTHING: &Set<'_> = &Set { itself: false, parts: Vec::new() };

impl<'a> Set<'a> {
    /// Reads a `fieldsV1` document.
    pub(super) fn read(text: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Returns true if it has parts beside the value itself.
    pub(super) fn has_parts(&self) -> bool {
        self.parts.iter().any(|(name, _)| !matches!(name, Name::Itself))
    }

    /// Returns true if all of the value is owned.
    pub(super) fn is_whole(&self) -> bool {
        self.parts.is_empty() && !self.itself
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &Self)> {
        self.parts.iter().filter_map(|(name, set)| match name {
            Name::Field(name) => Some((&**name, set)),
            Name::Keyed(_) | Name::Member(_) | Name::Itself | Name::Unknown => None,
        })
    }

    pub(super) fn field(&self, wanted: &str) -> Option<&Self> {
        let is_before = |(name, _): &(Name<'_>, Self)| matches!(name, Name::Field(name) if **name < *wanted);
        match self.parts.get(self.parts.partition_point(is_before)) {
            Some((Name::Field(name), set)) if **name == *wanted => Some(set),
            Some(_) | None => None,
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Set<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Level<'a>(std::marker::PhantomData<&'a ()>);

        impl<'de: 'a, 'a> Visitor<'de> for Level<'a> {
            type Value = Set<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a set of fields")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Set<'a>, A::Error> {
                let mut set = Set::default();
                while let Some(name) = map.next_key()? {
                    let child = map.next_value()?;
                    match name {
                        Name::Itself => set.itself = true,
                        Name::Field(_) | Name::Keyed(_) | Name::Member(_) | Name::Unknown => {
                            set.parts.push((name, child));
                        }
                    }
                }
                // The API server writes them sorted, but nothing relies on that.
                set.parts.sort_by(|(one, _), (other, _)| one.cmp(other));
                Ok(set)
            }
        }

        deserializer.deserialize_map(Level(std::marker::PhantomData))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Label<'a>(std::marker::PhantomData<&'a ()>);

        impl<'de: 'a, 'a> Visitor<'de> for Label<'a> {
            type Value = Name<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a field")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Name<'a>, E> {
                Ok(Name::new(text, Cow::Borrowed))
            }

            fn visit_str<E>(self, text: &str) -> Result<Name<'a>, E> {
                Ok(Name::new(text, |rest| Cow::Owned(rest.to_owned())))
            }
        }

        deserializer.deserialize_str(Label(std::marker::PhantomData))
    }
}

impl<'a> Name<'a> {
    fn new<'t>(text: &'t str, keep: impl FnOnce(&'t str) -> Cow<'a, str>) -> Self {
        match text.split_at_checked(2) {
            Some(("f:", rest)) => Self::Field(keep(rest)),
            Some(("k:", rest)) => Self::Keyed(keep(rest)),
            Some(("v:", rest)) => Self::Member(keep(rest)),
            None if text == "." => Self::Itself,
            Some(_) | None => Self::Unknown,
        }
    }
}
