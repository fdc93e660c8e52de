//! Decides whether an object is as wanted where nobody records who owns what: by differences, additions being
//! tolerated (GM rules).

use serde_json::{Map, Value};

use super::difference::{Differences, Secrecy, Step};
use super::sanitize::{self, Kind};
use crate::guest::MatchResult;
use crate::manifest::GenericMatching;

/// Whether the actual value may have more than what is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// It may: more fields in a map, more elements between those of a list.
    Tolerant,
    /// It may not.
    Exact,
}

/// Returns whether `actual` has all that `desired` says (`GM-1`), as strictly as `flags` demand (`GM-2`).
///
/// ```
/// # use capstan_core::dependent::diff::compare;
/// # use capstan_core::guest::MatchResult;
/// # use serde_json::json;
/// let (actual, desired) = (json!({"data": {"a": "1", "b": "2"}}), json!({"data": {"a": "1"}}));
/// assert_eq!(compare(&actual, &desired, &Default::default()), MatchResult::Matches);
/// ```
pub fn compare(actual: &Value, desired: &Value, flags: &GenericMatching) -> MatchResult {
    let GenericMatching { ignore, strict_metadata, equality } = flags;
    let manner = if *equality || !ignore.is_empty() { Manner::Exact } else { Manner::Tolerant };
    let tags = if *strict_metadata { Manner::Exact } else { Manner::Tolerant };
    let mut walk = Walk::new(actual, desired, ignore);
    for name in top_level(actual, desired) {
        let (found, wanted) = (actual.get(name), desired.get(name));
        walk.below(Step::Key(name), |walk| match name {
            "apiVersion" | "kind" | "status" => {}
            "metadata" => {
                for name in ["labels", "annotations"] {
                    let (found, wanted) = (field(found, name), field(wanted, name));
                    walk.below(Step::Key(name), |walk| walk.compare(found, wanted, tags));
                }
            }
            _ => walk.compare(found, wanted, manner),
        });
    }
    walk.differences.verdict()
}

/// Returns whether the status of `actual` has all that the status of `desired` says (`GM-4`). Differences under the
/// JSON pointers `ignore` do not count.
pub fn compare_status<P: AsRef<str>>(actual: &Value, desired: &Value, ignore: &[P]) -> MatchResult {
    let mut walk = Walk::new(actual, desired, ignore);
    let (found, wanted) = (actual.get("status"), desired.get("status"));
    walk.below(Step::Key("status"), |walk| walk.compare(found, wanted, Manner::Tolerant));
    walk.differences.verdict()
}

/// Returns whether both objects are equal but for what is under the JSON pointers `ignore`.
pub fn compare_all<P: AsRef<str>>(actual: &Value, desired: &Value, ignore: &[P]) -> MatchResult {
    let mut walk = Walk::new(actual, desired, ignore);
    walk.compare(Some(actual), Some(desired), Manner::Exact);
    walk.differences.verdict()
}

/// A walk through both trees at once.
struct Walk<'a> {
    kind: Kind<'a>,
    differences: Differences<'a>,
}

impl<'a> Walk<'a> {
    fn new<P: AsRef<str>>(actual: &'a Value, desired: &'a Value, ignore: &[P]) -> Self {
        let kind = Kind::of([desired, actual]);
        let secrecy = if kind.is_secret() { Secrecy::Secret } else { Secrecy::Open };
        Self { kind, differences: Differences::new(secrecy, ignore) }
    }

    /// Compares two values. Null is as good as missing, but to want null is to want nothing there.
    fn compare(&mut self, found: Option<&'a Value>, wanted: Option<&'a Value>, manner: Manner) {
        match (found.filter(|found| !found.is_null()), wanted) {
            (None, None | Some(Value::Null)) => {}
            (Some(_), None) if manner == Manner::Tolerant => {}
            (Some(Value::Object(found)), Some(Value::Object(wanted))) => self.maps(found, wanted, manner),
            (Some(Value::Array(found)), Some(Value::Array(wanted))) => self.lists(found, wanted, manner),
            (Some(found), Some(wanted)) if sanitize::same_scalar(found, wanted) => {}
            (Some(found), Some(wanted)) if sanitize::respelled(self.kind, self.differences.path(), found, wanted) => {}
            (found, wanted) => self.differences.values(found, wanted),
        }
    }

    fn maps(&mut self, found: &'a Map<String, Value>, wanted: &'a Map<String, Value>, manner: Manner) {
        for (name, wanted) in wanted {
            self.below(Step::Key(name), |walk| walk.compare(found.get(name), Some(wanted), manner));
        }
        if manner == Manner::Exact {
            for (name, found) in found {
                if !wanted.contains_key(name) {
                    self.below(Step::Key(name), |walk| walk.compare(Some(found), None, manner));
                }
            }
        }
    }

    /// Compares two lists. Tolerance means that what is wanted is found in the same order, with anything between
    /// (quirk 11: however the difference could be expressed as a patch).
    fn lists(&mut self, found: &'a [Value], wanted: &'a [Value], manner: Manner) {
        if manner == Manner::Tolerant && self.embeds(found, wanted) {
            return;
        }
        let length = match manner {
            Manner::Tolerant => wanted.len(),
            Manner::Exact => wanted.len().max(found.len()),
        };
        for index in 0..length {
            self.below(Step::Index(index), |walk| walk.compare(found.get(index), wanted.get(index), manner));
        }
    }

    /// Whether each wanted element is found, in this order. Taking the first that fits never spoils a later one.
    fn embeds(&mut self, found: &'a [Value], wanted: &'a [Value]) -> bool {
        let mut rest = found.iter().enumerate();
        wanted.iter().all(|wanted| {
            rest.any(|(index, found)| {
                let trial = self.differences.begin_trial();
                self.below(Step::Index(index), |walk| walk.compare(Some(found), Some(wanted), Manner::Tolerant));
                self.differences.end_trial(trial)
            })
        })
    }

    fn below(&mut self, step: Step<'a>, compare: impl FnOnce(&mut Self)) {
        self.differences.enter(step);
        compare(self);
        self.differences.leave();
    }
}

/// Returns the names of the fields of both trees, each once.
fn top_level<'a>(actual: &'a Value, desired: &'a Value) -> impl Iterator<Item = &'a str> {
    let wanted = desired.as_object().into_iter().flat_map(Map::keys);
    let found = actual.as_object().into_iter().flat_map(Map::keys).filter(|name| desired.get(name).is_none());
    wanted.chain(found).map(String::as_str)
}

fn field<'a>(map: Option<&'a Value>, name: &str) -> Option<&'a Value> {
    map.and_then(|map| map.get(name))
}
