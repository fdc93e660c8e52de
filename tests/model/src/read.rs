//! Decides what gets and lists answer: as of which version, in which pages.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::meta;
use crate::selector::Selector;
use crate::status::Refusal;
use crate::store::Id;
use crate::world::{At, Whole, World};
use crate::wrong::Wrong;

/// The version of a list that goes on with what there is now, in its token.
const NEWEST: &str = "newest";

/// The version as of which a list is.
enum As {
    /// The newest version.
    Newest,
    /// The version that watches show by now.
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
            let seen = self.store.seen(at.number, at.now);
            self.store.as_of(at.number, seen).get(&id).cloned()
        } else {
            self.store.get(&id).cloned()
        };
        let object = object.ok_or_else(|| Refusal::not_found(&at.kind, name))?;
        Ok(Whole::ok(object.as_ref().clone()))
    }

    /// GET of a list.
    pub(crate) fn list(&self, at: &At<'_>) -> Result<Whole, Refusal> {
        let selector = Selector::of(at.asked, at.namespace, None)?;
        let limit = at.asked.parameter("limit").and_then(|limit| limit.parse::<usize>().ok());
        let limit = limit.filter(|limit| *limit > 0);
        let (revision, after) = self.start(at, limit)?;
        let objects = self.store.as_of(at.number, revision);
        // The one object of a name is looked up, not listed.
        let single = selector.is_single() && (at.namespace.is_some() || !at.kind.namespaced);
        let limit = limit.filter(|_| !single);
        // A page is known to be the last one only if no object comes after it, whether it matches the selector or
        // not.
        let inside = |id: &Id| at.namespace.is_none() || id.namespace() == at.namespace;
        let rest = |id: &Id| inside(id) && after.as_deref().is_none_or(|after| id.path() > after);
        let mut left = objects.iter().filter(|(id, _)| rest(id)).peekable();
        let (mut found, mut last) = (Vec::new(), None);
        while limit.is_none_or(|limit| found.len() < limit)
            && let Some((id, object)) = left.next()
        {
            last = Some(id.path().to_owned());
            found.extend(selector.takes(object).then_some(object));
        }
        let mut metadata = json!({ "resourceVersion": revision.to_string() });
        let next = last.filter(|_| left.peek().is_some()).map(|last| format!("{revision}.{last}"));
        if next.is_some() && !selector.is_picky() {
            meta::set_part(&mut metadata, "remainingItemCount", Some(json!(left.count())));
        }
        let next = next.or_else(|| at.kind.custom.then(String::new));
        meta::set_part(&mut metadata, "continue", next.map(Value::from));
        let items: Vec<Value> = found.iter().map(|object| listed(&at.kind, object)).collect();
        let (kind, api_version) = (format!("{}List", at.kind.name), at.kind.api_version());
        Ok(Whole::ok(json!({ "kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items })))
    }

    /// Returns the version as of which a list is, and the object after which it begins.
    fn start(&self, at: &At<'_>, limit: Option<usize>) -> Result<(u64, Option<String>), Refusal> {
        let compacted = self.store.compacted();
        if let Some(token) = at.asked.parameter("continue") {
            let (revision, path) = token.split_once('.').ok_or_else(|| Refusal::bad("continue key is not valid"))?;
            let path = path.to_owned();
            if revision == NEWEST {
                return Ok((self.store.revision(), Some(path)));
            }
            let revision = revision.parse().map_err(|_| Refusal::bad("continue key is not valid"))?;
            if revision < compacted {
                return Err(Refusal::expired_list(format!("{NEWEST}.{path}")));
            }
            return Ok((revision, Some(path)));
        }
        match self.wanted(at, limit)? {
            As::Newest => Ok((self.store.revision(), None)),
            As::Seen => Ok((self.store.seen(at.number, at.now), None)),
            As::Exactly(revision) if revision < compacted => {
                Err(Refusal::expired(format!("The resourceVersion for the provided list is too old: {revision}")))
            }
            As::Exactly(revision) => Ok((revision, None)),
        }
    }

    fn wanted(&self, at: &At<'_>, limit: Option<usize>) -> Result<As, Refusal> {
        let version = at.asked.parameter("resourceVersion");
        let exact = match at.asked.parameter("resourceVersionMatch") {
            None => limit.is_some() && !matches!(version, None | Some("0")),
            Some("Exact") => true,
            Some("NotOlderThan") => false,
            Some(other) => {
                let wrong = Wrong::unsupported("resourceVersionMatch", other, &["Exact", "NotOlderThan", ""]);
                return Err(Refusal::options("ListOptions", &wrong));
            }
        };
        let matches = at.asked.parameter("resourceVersionMatch").is_some();
        match version {
            None if matches => {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                Err(Refusal::options("ListOptions", &Wrong::forbidden("resourceVersionMatch", why)))
            }
            None => Ok(As::Newest),
            Some("0") if exact => {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                Err(Refusal::options("ListOptions", &Wrong::forbidden("resourceVersionMatch", why)))
            }
            Some("0") => Ok(As::Seen),
            Some(version) => {
                let version = self.version(version)?;
                if exact {
                    return Ok(As::Exactly(version));
                }
                let seen = self.store.seen(at.number, at.now);
                Ok(if seen >= version { As::Seen } else { As::Newest })
            }
        }
    }

    /// Reads a version that a request names; one in the future is refused.
    pub(crate) fn version(&self, text: &str) -> Result<u64, Refusal> {
        let wrong = |_| {
            Refusal::bad(format!(
                "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
            ))
        };
        let version: u64 = text.parse().map_err(wrong)?;
        let now = self.store.revision();
        if version > now { Err(Refusal::too_large(version, now)) } else { Ok(version) }
    }
}

/// Returns an object as an item of a list: those of the API server's own kinds have no `apiVersion` and `kind`.
fn listed(kind: &Kind, object: &Arc<Value>) -> Value {
    let mut object = object.as_ref().clone();
    if !kind.custom {
        meta::set_part(&mut object, "kind", None);
        meta::set_part(&mut object, "apiVersion", None);
    }
    object
}
