//! Decides what an actor of a test does: it changes objects without asking the API server.

use std::sync::Arc;

use serde_json::Value;
use tokio::time::Instant;

use crate::managed::{self, Rules};
use crate::meta::{self, finalizers, is_deleting};
use crate::owner::{Manager, Operation};
use crate::rules::{Part, prepare};
use crate::store::Id;
use crate::world::World;

/// The field manager of such changes.
const ACTOR: &str = "actor";

impl World {
    /// Changes an object as a user with `kubectl edit` and `kubectl edit --subresource=status` at once would. Returns
    /// true if there is such an object and the edit changed it.
    pub(crate) fn edit(&mut self, id: &Id, now: Instant, change: impl FnOnce(&mut Value)) -> bool {
        let Some((old, kind)) = self.store.get(id).cloned().zip(self.kind(id.kind).cloned()) else {
            return false;
        };
        let mut new = old.as_ref().clone();
        change(&mut new);
        if new == *old {
            return false;
        }
        let time = self.written(now);
        let rules = Rules { kind: &kind, reset: crate::fields::Fields::default(), now: &time };
        let manager = Manager {
            name: ACTOR.to_owned(),
            operation: Operation::Update,
            api_version: kind.api_version(),
            subresource: String::new(),
        };
        let mut new = managed::updated(&old, &new, &manager, &rules);
        let status = new.get("status").cloned();
        meta::set_part(&mut new, "status", old.get("status").cloned());
        prepare(&kind, Part::Main, &old, &mut new);
        meta::set_part(&mut new, "status", status);
        if is_deleting(&new) && finalizers(&new).is_empty() && kind.name != "Namespace" {
            self.commit(id, None, &old, now);
        } else {
            self.commit(id, Some(new), &Value::Null, now);
        }
        true
    }

    /// Returns the id of an object; `None` if its kind is not known.
    pub(crate) fn find(&self, api_version: &str, kind: &str, namespace: Option<&str>, name: &str) -> Option<Id> {
        Some(Id::new(self.number(api_version, kind)?, namespace, name))
    }

    /// Returns the objects of a kind.
    pub(crate) fn objects(&self, api_version: &str, kind: &str) -> Vec<Arc<Value>> {
        let number = self.number(api_version, kind);
        number.map(|number| self.store.of(number).map(|(_, object)| Arc::clone(object)).collect()).unwrap_or_default()
    }
}
