//! Decides which objects of a test a question for the cache means.
#![expect(clippy::indexing_slicing, reason = "a `Value` answers null for what it does not have")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use serde_json::{Map, Value, json};

use super::Verb;
use crate::bindings::imports::capstan::operator::cache::{Place, Query, Selection};
use crate::bindings::imports::capstan::operator::types::{CallError, ObjectKey, Page};
use crate::operations::By;
use crate::{Match, ObjectRef, Reason};

/// The caches of a test.
#[derive(Debug, Clone, Default)]
pub(crate) struct Objects {
    all: Vec<(Home, Value)>,
    indexes: BTreeMap<(String, String), BTreeSet<String>>,
    /// The sources that the controller has, if the test says which.
    sources: Option<BTreeSet<String>>,
}

/// Where an object is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Home {
    /// It belongs to the primary, and is in this source's cache.
    Secondary(String),
    /// It is in this source's cache.
    Unrelated(String),
    /// It is a thing of the primary outside of the cluster, in this source and with this id.
    Thing(String, String),
    /// It is a primary; the first is that of the run.
    Primaries,
    /// It was written by the function under test, and no source is known to watch it.
    Written,
}

impl Objects {
    pub(crate) fn add(&mut self, home: Home, object: Value) {
        self.all.push((home, object));
    }

    pub(crate) fn declare(&mut self, source: &str) {
        self.sources.get_or_insert_default().insert(source.to_owned());
    }

    /// Refuses a source that the controller does not have, if the test says which it has.
    pub(crate) fn knows(&self, place: &Place, registered: &BTreeMap<String, Value>) -> Result<(), CallError> {
        let (Some(declared), Place::Source(wanted)) = (&self.sources, place) else {
            return Ok(());
        };
        let used = self.all.iter().filter_map(|(home, _)| match home {
            Home::Secondary(source) | Home::Unrelated(source) | Home::Thing(source, _) => Some(source),
            Home::Primaries | Home::Written => None,
        });
        let names: BTreeSet<_> = declared.iter().chain(used).chain(registered.keys()).map(String::as_str).collect();
        if names.contains(wanted.as_str()) {
            return Ok(());
        }
        let names: Vec<_> = names.into_iter().collect();
        let message = format!("no source is called {wanted:?}; there are: {}", names.join(", "));
        Err(CallError { reason: Reason::Missing, code: 0, message })
    }

    pub(crate) fn index(&mut self, index: &str, key: &str, name: &str) {
        self.indexes.entry((index.to_owned(), key.to_owned())).or_default().insert(name.to_owned());
    }

    pub(crate) fn primary(&self) -> Option<&Value> {
        self.all.iter().find(|(home, _)| *home == Home::Primaries).map(|(_, object)| object)
    }

    pub(crate) fn get(&self, target: &ObjectRef) -> Option<&Value> {
        self.all.iter().map(|(_, object)| object).find(|object| is(object, target))
    }

    pub(crate) fn put(&mut self, target: &ObjectRef, object: Value) {
        match self.all.iter_mut().find(|(_, known)| is(known, target)) {
            Some((_, known)) => *known = object,
            None => self.add(Home::Written, object),
        }
    }

    pub(crate) fn remove(&mut self, target: &ObjectRef) {
        self.all.retain(|(_, object)| !is(object, target));
    }

    pub(crate) fn one(&self, place: &Place) -> Result<Option<String>, CallError> {
        let related: Vec<&Value> = self.select(place, &Selection::Related).collect();
        match related.as_slice() {
            [] => Ok(None),
            [object] => Ok(Some(object.to_string())),
            several => Err(CallError {
                reason: Reason::Ambiguous,
                code: 0,
                message: format!("{} objects belong to the primary", several.len()),
            }),
        }
    }

    pub(crate) fn named(&self, place: &Place, key: &ObjectKey) -> Option<String> {
        let ObjectKey { namespace, name } = key;
        let is_thing = |home: &Home| match (home, place) {
            (Home::Thing(of, id), Place::Source(source)) => of == source && id == name,
            _ => false,
        };
        if let Some((_, thing)) = self.all.iter().find(|(home, _)| is_thing(home)) {
            return Some(text(thing));
        }
        let mut found = self.select(place, &Selection::Everywhere);
        found.find(|object| self::name(object) == name && self::namespace(object) == namespace.as_deref()).map(text)
    }

    pub(crate) fn page(&self, query: &Query) -> Result<Page, CallError> {
        if query.place == Place::Primaries && query.selection == Selection::Related {
            let message = "primaries are not related to the primary".to_owned();
            return Err(CallError { reason: Reason::Misplaced, code: 0, message });
        }
        let selector = query.labels.as_deref().map(Selector::parse).transpose()?;
        let mut found: Vec<&Value> = self
            .select(&query.place, &query.selection)
            .filter(|object| selector.as_ref().is_none_or(|selector| selector.accepts(object)))
            .collect();
        found.sort_by_key(|object| (namespace(object), name(object)));
        let from: usize = query.after.as_deref().map_or(Ok(0), str::parse).map_err(invalid)?;
        let len = query.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let items: Vec<String> =
            found.iter().skip(from).take(len).map(|object| masked(object, &query.fields).to_string()).collect();
        let end = from + items.len();
        Ok(Page { items, next: (end < found.len()).then(|| end.to_string()) })
    }

    fn select(&self, place: &Place, selection: &Selection) -> impl Iterator<Item = &Value> {
        self.all.iter().filter(|(home, object)| self.selects(place, selection, home, object)).map(|(_, object)| object)
    }

    fn selects(&self, place: &Place, selection: &Selection, home: &Home, object: &Value) -> bool {
        let in_place = match place {
            Place::Source(source) => {
                matches!(home, Home::Secondary(of) | Home::Unrelated(of) | Home::Thing(of, _) if of == source)
            }
            Place::Kind(kind) => {
                object["apiVersion"] == kind.api_version.as_str() && object["kind"] == kind.kind.as_str()
            }
            Place::Primaries => *home == Home::Primaries,
        };
        in_place
            && match selection {
                Selection::Related => matches!(home, Home::Secondary(_) | Home::Thing(..)),
                Selection::Namespaced(namespace) => self::namespace(object) == Some(namespace),
                Selection::Everywhere => true,
                Selection::Indexed(entry) => self
                    .indexes
                    .get(&(entry.index.clone(), entry.key.clone()))
                    .is_some_and(|names| names.contains(name(object))),
            }
    }
}

/// A label selector as kubectl writes it.
struct Selector(Vec<Requirement>);

enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

impl Selector {
    fn parse(text: &str) -> Result<Self, CallError> {
        let mut requirements = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            // A comma inside parentheses separates values, not requirements.
            let end = match (rest.find(','), rest.find('('), rest.find(')')) {
                (Some(comma), Some(open), Some(close)) if open < comma => close + 1,
                (Some(comma), _, _) => comma,
                (None, ..) => rest.len(),
            };
            let (part, tail) = rest.split_at_checked(end).unwrap_or((rest, ""));
            requirements.push(Requirement::parse(part.trim())?);
            rest = tail.trim_start_matches([',', ' ']);
        }
        Ok(Self(requirements))
    }

    fn accepts(&self, object: &Value) -> bool {
        let label = |key: &String| object["metadata"]["labels"][key].as_str();
        self.0.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => label(key).is_some_and(|value| values.iter().any(|one| one == value)),
            Requirement::NotIn(key, values) => label(key).is_none_or(|value| values.iter().all(|one| one != value)),
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::Absent(key) => label(key).is_none(),
        })
    }
}

impl Requirement {
    fn parse(text: &str) -> Result<Self, CallError> {
        let values = |list: &str| -> Vec<String> {
            list.trim().trim_matches(['(', ')']).split(',').map(|value| value.trim().to_owned()).collect()
        };
        let key = |key: &str| key.trim().to_owned();
        let requirement = if let Some((name, list)) = text.split_once(" notin ") {
            Self::NotIn(key(name), values(list))
        } else if let Some((name, list)) = text.split_once(" in ") {
            Self::In(key(name), values(list))
        } else if let Some((name, value)) = text.split_once("!=") {
            Self::NotIn(key(name), vec![key(value)])
        } else if let Some((name, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
            Self::In(key(name), vec![key(value)])
        } else if let Some(name) = text.strip_prefix('!') {
            Self::Absent(key(name))
        } else if !text.is_empty() && !text.contains(char::is_whitespace) {
            Self::Exists(key(text))
        } else {
            return Err(invalid(format!("`{text}` is no label selector")));
        };
        Ok(requirement)
    }
}

/// Reads a text as JSON, as the daemon would.
pub(crate) fn read(text: &str) -> Result<Value, CallError> {
    serde_json::from_str(text).map_err(invalid)
}

pub(crate) fn invalid(message: impl Display) -> CallError {
    CallError { reason: Reason::Invalid, code: 0, message: message.to_string() }
}

pub(crate) fn missing(target: &ObjectRef) -> CallError {
    CallError { reason: Reason::Missing, code: 404, message: format!("{} {} not found", target.kind, target.name) }
}

/// Compares two documents, without the knowledge of managed fields that the daemon has.
pub(crate) fn compare(by: By, actual: &str, desired: &str, ignore: &[String]) -> Result<Match, CallError> {
    let (mut actual, mut desired) = (read(actual)?, read(desired)?);
    for pointer in ignore {
        cut(&mut actual, pointer);
        cut(&mut desired, pointer);
    }
    let matches = match by {
        By::Equality => actual == desired,
        By::StatusOnly => contains(&actual["status"], &desired["status"]),
        By::ByVerb | By::Applied | By::Generic => contains(&actual, &desired),
    };
    Ok(if matches { Match::Matches } else { Match::Differs("the documents differ".to_owned()) })
}

/// Adds a finalizer to an object, or removes it.
pub(crate) fn with_finalizer(mut object: Value, name: &str, verb: Verb) -> Value {
    let known = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let mut finalizers: Vec<Value> = known.into_iter().filter(|finalizer| finalizer != name).collect();
    if verb == Verb::AddFinalizer {
        finalizers.push(json!(name));
    }
    object["metadata"]["finalizers"] = Value::Array(finalizers);
    object
}

/// Says whether all that is desired is there; additions are tolerated.
fn contains(actual: &Value, desired: &Value) -> bool {
    match (actual, desired) {
        (Value::Object(actual), Value::Object(desired)) => {
            desired.iter().all(|(key, value)| actual.get(key).is_some_and(|actual| contains(actual, value)))
        }
        (Value::Array(actual), Value::Array(desired)) => {
            actual.len() == desired.len()
                && actual.iter().zip(desired).all(|(actual, desired)| contains(actual, desired))
        }
        (actual, desired) => actual == desired,
    }
}

fn cut(document: &mut Value, pointer: &str) {
    if let Some((parent, key)) = pointer.rsplit_once('/')
        && let Some(Value::Object(fields)) = document.pointer_mut(parent)
    {
        fields.remove(&unescaped(key));
    }
}

/// Returns only the fields under these JSON pointers, and what says which object it is.
fn masked(object: &Value, fields: &[String]) -> Value {
    if fields.is_empty() {
        return object.clone();
    }
    let mut kept = json!({});
    let always = ["/apiVersion", "/kind", "/metadata/namespace", "/metadata/name"];
    for pointer in always.into_iter().chain(fields.iter().map(String::as_str)) {
        let Some(value) = object.pointer(pointer) else {
            continue;
        };
        let mut place = &mut kept;
        for key in pointer.split('/').skip(1) {
            if !place.is_object() {
                *place = Value::Object(Map::new());
            }
            place = &mut place[unescaped(key)];
        }
        *place = value.clone();
    }
    kept
}

fn unescaped(key: &str) -> String {
    key.replace("~1", "/").replace("~0", "~")
}

fn is(object: &Value, target: &ObjectRef) -> bool {
    ObjectRef::of(object).is_ok_and(|known| known == *target)
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn namespace(object: &Value) -> Option<&str> {
    object["metadata"]["namespace"].as_str()
}

fn text(object: &Value) -> String {
    object.to_string()
}
