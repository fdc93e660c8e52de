//! Decides which of a primary's things a dependent means: the one with the key of what is desired (XD-1).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::things::{LONGEST, Problem, id_if_any};
use super::{External, Things};
use crate::budget::{self, Budget};
use crate::cel::{Expression, Failure};
use crate::manifest::THING;

/// The ids of things, by what tells the things apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keyed(BTreeMap<Arc<str>, Vec<Arc<str>>>);

/// Why it is not known which thing is meant. Trying again does not help until the component or the things change.
#[derive(Debug, thiserror::Error)]
pub enum Unclear {
    /// Several things could be meant.
    #[error("several things of source {origin} could be meant: {}; {cure}", .ids.iter().map(|id| format!("{id:?}")).collect::<Vec<_>>().join(" and "))]
    Several {
        /// Their source.
        origin: Arc<str>,
        /// Their ids.
        ids: Vec<Arc<str>>,
        /// What would tell them apart.
        cure: &'static str,
    },
    /// Something has no key.
    #[error(transparent)]
    Keyless(#[from] Failure),
    /// A key is no name for anything.
    #[error("a key of {0} bytes; expected 1 to {LONGEST}")]
    Length(usize),
    /// A thing can't be read, or its id is none.
    #[error(transparent)]
    Problem(#[from] Problem),
}

impl From<budget::Error> for Unclear {
    fn from(error: budget::Error) -> Self {
        Self::Problem(error.into())
    }
}

impl Keyed {
    /// Returns the things of a primary by their keys, or by their ids if there is no expression for them, or if they have none.
    ///
    /// # Errors
    /// [`Unclear::Problem`], if a thing can't be read, or that costs too much.
    pub fn of(things: &Things, key: Option<&Expression>, budget: &mut Budget) -> Result<Self, Unclear> {
        let mut keyed = BTreeMap::<_, Vec<_>>::new();
        for (id, text) in things {
            let key = match key {
                None => Arc::clone(id),
                Some(key) => match key_by(key, &budget.read(text)?, budget) {
                    Ok(key) => key,
                    // What has no key is no hindrance to others: it is told by its id.
                    Err(Unclear::Keyless(_) | Unclear::Length(_)) => {
                        budget.step(1).map_err(budget::Error::from)?;
                        Arc::clone(id)
                    }
                    Err(unclear) => return Err(unclear),
                },
            };
            keyed.entry(key).or_default().push(Arc::clone(id));
        }
        Ok(Self(keyed))
    }

    /// Returns the id of the one thing with this key, or without one (`None`) of the only thing that there is.
    ///
    /// # Errors
    /// [`Unclear::Several`]
    pub fn one(&self, source: &External, key: Option<&str>) -> Result<Option<&Arc<str>>, Unclear> {
        let (ids, cure): (Vec<_>, _) = if let Some(key) = key {
            (self.0.get(key).into_iter().flatten().collect(), "they have the same `key`")
        } else {
            let all = self.0.values().flatten().take(2).collect();
            (all, "let what is desired have the id, or say `key` in the manifest")
        };
        match ids.as_slice() {
            [] => Ok(None),
            [id] => Ok(Some(id)),
            several => {
                let ids = several.iter().take(2).map(|id| Arc::clone(id)).collect();
                Err(Unclear::Several { origin: Arc::clone(&source.name), ids, cure })
            }
        }
    }

    /// Returns the keys with the ids of their things.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &[Arc<str>])> {
        self.0.iter().map(|(key, ids)| (key, ids.as_slice()))
    }
}

/// Returns the key of what is desired; `None` if it has no id, and nothing else tells things apart.
///
/// # Errors
/// [`Unclear`], if it has no key though an expression says one, or an id that is none.
pub fn key_of(
    desired: &Value,
    key: Option<&Expression>,
    source: &External,
    budget: &mut Budget,
) -> Result<Option<Arc<str>>, Unclear> {
    match key {
        Some(key) => key_by(key, desired, budget).map(Some),
        None => Ok(id_if_any(desired, &source.spec.id)?),
    }
}

fn key_by(key: &Expression, thing: &Value, budget: &mut Budget) -> Result<Arc<str>, Unclear> {
    let text = key.text(&[(THING, thing)], budget)?;
    if text.is_empty() || text.len() > LONGEST { Err(Unclear::Length(text.len())) } else { Ok(text.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::external::tests::{each, things};

    /// Returns the id of what is meant, or why none is.
    fn meant(known: &str, key: Option<&str>, desired: &str) -> String {
        let (source, budget) = (each(), &mut Budget::of_run());
        let key = key.map(|key| Expression::parse(key, &[THING]).unwrap());
        let known: Things = things(known).into_iter().map(|(id, text)| (id.clone(), as_json(&id, &text))).collect();
        let one = || {
            let desired = budget.read(desired)?;
            let wanted = key_of(&desired, key.as_ref(), &source, budget)?;
            let keyed = Keyed::of(&known, key.as_ref(), budget)?;
            let one = keyed.one(&source, wanted.as_deref())?;
            Ok::<_, Unclear>(one.map_or("none".to_owned(), ToString::to_string))
        };
        let mut one = one;
        one().unwrap_or_else(|unclear| unclear.to_string())
    }

    fn as_json(id: &str, name: &str) -> Arc<str> {
        format!(r#"{{"id":"{id}","name":"{name}"}}"#).into()
    }

    #[test]
    fn a_dependent_means_the_thing_with_the_id_or_key_of_what_is_desired_or_the_only_one() {
        // XD-1
        let by_name = Some("thing.name");
        for (known, key, desired, expected) in [
            ("", None, r#"{"id":"1"}"#, "none"),
            ("1=a 2=b", None, r#"{"id":"1"}"#, "1"),
            ("1=a 2=b", None, r#"{"id":"3"}"#, "none"),
            ("1=a", None, r#"{"name":"b"}"#, "1"),
            ("", None, r#"{"name":"b"}"#, "none"),
            ("1=a", None, r#"{"id":null,"name":"b"}"#, "1"),
            ("1=a 2=b", by_name, r#"{"name":"b"}"#, "2"),
            ("1=a 2=b", by_name, r#"{"name":"c"}"#, "none"),
            (
                "1=a 2=b",
                None,
                r#"{"name":"b"}"#,
                "several things of source x could be meant: \"1\" and \"2\"; let what is desired have the id, or say `key` in the manifest",
            ),
            (
                "1=a 2=a 3=a",
                by_name,
                r#"{"name":"a"}"#,
                "several things of source x could be meant: \"1\" and \"2\"; they have the same `key`",
            ),
            ("1=a", by_name, r#"{"name":""}"#, "a key of 0 bytes; expected 1 to 512"),
            ("1=a", by_name, r#"{"id":"1"}"#, "CEL expression \"thing.name\" failed: there is no field \"name\""),
        ] {
            assert_eq!(meant(known, key, desired), expected, "{known} {key:?} {desired}");
        }
        let wrong = meant("1=a", None, r#"{"id":true}"#);
        assert!(wrong.starts_with("a thing has no id: at \"/id\" there is a truth value"), "{wrong}");
    }
}
