//! Decides what gets and lists answer: as of which version, in which pages.

use std::sync::Arc;

use serde_json::{Map as Json, Value, json};

use crate::meta;
use crate::selector::Selector;
use crate::status::Refusal;
use crate::store::Id;
use crate::world::{At, Whole, World};
use crate::wrong::Wrong;

/// What a list is to be as of.
enum As {
    /// Now.
    Newest,
    /// What watches show by now.
    Seen,
    /// Exactly this version.
    Exactly(u64),
}

impl World {
    /// GET of an object.
    pub(crate) fn read(&self, at: &At<'_>, name: &str) -> Result<Whole, Refusal> {
        let id = at.id(name);
        let stale = at.asked.parameter("resourceVersion") == Some("0");
        let object = if stale {
            let seen = self
                .store
                .as_of(at.number, self.store.seen(at.number, at.now));
            seen.and_then(|objects| objects.get(&id).cloned())
        } else {
            self.store.get(&id).cloned()
        };
        let object = object.ok_or_else(|| Refusal::not_found(&at.kind, name))?;
        Ok(Whole::ok(object.as_ref().clone()))
    }

    /// GET of a list.
    pub(crate) fn list(&self, at: &At<'_>) -> Result<Whole, Refusal> {
        let selector = Selector::of(at.asked, at.namespace, None)?;
        let limit = at
            .asked
            .parameter("limit")
            .and_then(|limit| limit.parse::<usize>().ok())
            .filter(|limit| *limit > 0);
        let (revision, after) = match at.asked.parameter("continue") {
            Some(token) => {
                let (revision, path) = token
                    .split_once('.')
                    .ok_or_else(|| Refusal::bad("continue key is not valid"))?;
                let revision: u64 = revision
                    .parse()
                    .map_err(|_| Refusal::bad("continue key is not valid"))?;
                (revision, Some(path.to_owned()))
            }
            None => match self.wanted(at, limit)? {
                As::Newest => (self.store.revision(), None),
                As::Seen => (self.store.seen(at.number, at.now), None),
                As::Exactly(revision) => (revision, None),
            },
        };
        let Some(objects) = self.store.as_of(at.number, revision) else {
            let why = match after {
                Some(_) => "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.".to_owned(),
                None => format!("The resourceVersion for the provided list is too old: {revision}"),
            };
            return Err(Refusal::expired(why));
        };
        // One object of a name is looked up, not looked for.
        let limit = limit
            .filter(|_| !(selector.is_single() && (at.namespace.is_some() || !at.kind.namespaced)));
        // A page is known to be the last one only if nothing comes after it, whether that is asked for or not.
        let inside = |id: &Id| at.namespace.is_none() || id.namespace() == at.namespace;
        let mut left = objects
            .iter()
            .filter(|(id, _)| inside(id) && after.as_deref().is_none_or(|after| id.path() > after))
            .peekable();
        let (mut found, mut last) = (Vec::new(), None);
        while limit.is_none_or(|limit| found.len() < limit)
            && let Some((id, object)) = left.next()
        {
            last = Some(id.path().to_owned());
            found.extend(selector.takes(object).then_some(object));
        }
        let mut metadata = json!({ "resourceVersion": revision.to_string() });
        if at.kind.custom {
            meta::set_part(&mut metadata, "continue", Some("".into()));
        }
        if let (Some(last), true) = (last, left.peek().is_some()) {
            meta::set_part(
                &mut metadata,
                "continue",
                Some(format!("{revision}.{last}").into()),
            );
            let left = (!selector.is_picky()).then(|| json!(left.count()));
            meta::set_part(&mut metadata, "remainingItemCount", left);
        }
        let items: Vec<Value> = found.iter().map(|object| self.listed(at, object)).collect();
        let mut list = Json::new();
        list.insert("kind".to_owned(), format!("{}List", at.kind.kind).into());
        list.insert("apiVersion".to_owned(), at.kind.api_version().into());
        list.insert("metadata".to_owned(), metadata);
        list.insert("items".to_owned(), items.into());
        Ok(Whole::ok(Value::Object(list)))
    }

    /// Items of the API server's own kinds don't say what they are.
    fn listed(&self, at: &At<'_>, object: &Arc<Value>) -> Value {
        let mut object = object.as_ref().clone();
        if !at.kind.custom {
            meta::set_part(&mut object, "kind", None);
            meta::set_part(&mut object, "apiVersion", None);
        }
        object
    }

    fn wanted(&self, at: &At<'_>, limit: Option<usize>) -> Result<As, Refusal> {
        let version = at.asked.parameter("resourceVersion");
        let exact = match at.asked.parameter("resourceVersionMatch") {
            None => limit.is_some() && !matches!(version, None | Some("0")),
            Some("Exact") => true,
            Some("NotOlderThan") => false,
            Some(other) => {
                let wrong = Wrong::unsupported(
                    "resourceVersionMatch",
                    other,
                    &["Exact", "NotOlderThan", ""],
                );
                return Err(Refusal::options("ListOptions", &wrong));
            }
        };
        let matches = at.asked.parameter("resourceVersionMatch").is_some();
        match version {
            None if matches => {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                Err(Refusal::options(
                    "ListOptions",
                    &Wrong::forbidden("resourceVersionMatch", why),
                ))
            }
            None => Ok(As::Newest),
            Some("0") if exact => {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                Err(Refusal::options(
                    "ListOptions",
                    &Wrong::forbidden("resourceVersionMatch", why),
                ))
            }
            Some("0") => Ok(As::Seen),
            Some(version) => {
                let version = self.version(at, version)?;
                if exact {
                    return Ok(As::Exactly(version));
                }
                let seen = self.store.seen(at.number, at.now);
                Ok(if seen >= version {
                    As::Seen
                } else {
                    As::Newest
                })
            }
        }
    }

    /// Reads a version that a request names; it must not be one that is yet to come.
    pub(crate) fn version(&self, at: &At<'_>, text: &str) -> Result<u64, Refusal> {
        let _ = at;
        let wrong = || {
            Wrong::invalid(
                "resourceVersion",
                &text.into(),
                "strconv.ParseUint: invalid syntax",
            )
        };
        let version: u64 = text
            .parse()
            .map_err(|_| Refusal::options("ListOptions", &wrong()))?;
        let now = self.store.revision();
        if version > now {
            Err(Refusal::too_large(version, now))
        } else {
            Ok(version)
        }
    }
}
