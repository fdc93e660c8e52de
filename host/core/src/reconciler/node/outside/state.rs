//! Writes and deletes the Kubernetes objects that remember the ids of things outside of the cluster (XD-2, BD-4).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::comparing::Declared;
use super::{Actual, Site};
use crate::dependent;
use crate::external::Things;
use crate::manifest::{Outside, State};
use crate::object::{Object, ObjectRef};
use crate::reconciler::node::is_watched;
use crate::reconciler::node::visitor::{Stopped, Visitor};
use crate::reconciler::run::Run;
use crate::reconciler::verdicts::{Kept, Unwritten};
use crate::source::Within;

/// The annotations that say which thing an object remembers: by what tells it from others in what is desired, and by its id, which stays
/// when that changes.
const KEY: &str = "capstan.dev/external-key";
const ID: &str = "capstan.dev/external-id";

/// The objects that remember the ids of a dependent's things.
#[derive(Default)]
pub(super) struct States {
    by_key: BTreeMap<Box<str>, Vec<(Box<str>, Object)>>,
    by_id: BTreeMap<Box<str>, Vec<Object>>,
}

impl States {
    /// Returns those of the thing with an id.
    pub(super) fn of(&self, id: &str) -> Vec<&Object> {
        self.by_id.get(id).into_iter().flatten().collect()
    }

    /// Returns all of them.
    pub(super) fn all(&self) -> Vec<&Object> {
        self.by_id.values().flatten().collect()
    }

    /// Returns those of things that are gone, but for those in whose place others are desired: they go once these are there.
    pub(super) fn leftovers(&self, things: &Things, desired: &BTreeSet<Arc<str>>) -> Vec<&Object> {
        let without = self.by_key.iter().filter(|(key, _)| !desired.contains(&***key));
        gone(without.flat_map(|(_, states)| states), things)
    }

    /// Returns those in whose place a new thing came: one with this key, or without one (`None`) the only one that is desired.
    fn followed(&self, things: &Things, key: Option<&str>) -> Vec<&Object> {
        match key {
            Some(key) => gone(self.by_key.get(key).into_iter().flatten(), things),
            None => gone(self.by_key.values().flatten(), things),
        }
    }

    /// Returns the id of a thing that is there and was made as the one with this key.
    pub(super) fn made_as(&self, key: &str, things: &Things) -> Option<&str> {
        let mut states = self.by_key.get(key).into_iter().flatten();
        states.find(|(id, _)| things.contains_key(&**id)).map(|(id, _)| &**id)
    }

    fn add(&mut self, object: Object) {
        let said = |name| object.tags().annotations.get(name).map(|text| (*text.0).into()).unwrap_or_default();
        let (key, id): (Box<str>, Box<str>) = (said(KEY), said(ID));
        self.by_key.entry(key).or_default().push((id.clone(), object.clone()));
        self.by_id.entry(id).or_default().push(object);
    }
}

/// Returns the objects whose things are not there.
fn gone<'s>(states: impl Iterator<Item = &'s (Box<str>, Object)>, things: &Things) -> Vec<&'s Object> {
    states.filter(|(id, _)| !things.contains_key(&**id)).map(|(_, object)| object).collect()
}

impl Visitor<'_> {
    /// Returns the objects that remember the ids of a dependent's things.
    pub(super) async fn states(&self, spec: &Outside) -> Result<States, Stopped> {
        let mut states = States::default();
        if let Some(State { name, dependent }) = &spec.state {
            for object in self.members(name, dependent, &BTreeSet::new()).await? {
                states.add(object);
            }
        }
        Ok(states)
    }

    /// Writes what remembers the id of a new thing, and deletes what has done so before under another name. If it can't be written, it is
    /// kept until it can be.
    ///
    /// # Errors
    /// The same, and if the answer has none though the manifest wants one, or the other way round.
    pub(super) async fn keep_state(
        &self,
        site: &Site<'_>,
        key: &Arc<str>,
        thing: Actual,
        answer: Option<String>,
    ) -> Result<(), Stopped> {
        let Site { name, spec, states, .. } = site;
        if spec.state.is_some() {
            // Also if the run is broken off meanwhile.
            let state = answer.as_deref().map(Arc::from);
            self.keep_unwritten(name, key, Kept { state, thing: thing.clone() });
        }
        let written = match (&spec.state, &answer) {
            (None, None) => return Ok(()),
            (None, Some(_)) => {
                return Err("`create` answered a `state`; say its kind under `external.state` in the manifest"
                    .to_owned()
                    .into());
            }
            (Some(State { dependent, .. }), None) => {
                let message =
                    format!("`create` answered no `state`, and the manifest wants a {} for it", dependent.gvk);
                Err(Stopped::Unmade(message))
            }
            (Some(declared), Some(answer)) => self.write_state(declared, (key, &thing.0), answer).await,
        };
        let written = match written {
            Ok(written) => written,
            Err(stopped) => {
                let gone = stopped.is_final() && self.take_back(site.declared(), &thing, &stopped).await.is_ok();
                if gone {
                    self.forget_kept(name, key);
                }
                return Err(stopped);
            }
        };
        self.forget_kept(name, key);
        let others = states.followed(&site.things, spec.bulk.then_some(&**key));
        let others: Vec<&Object> = others.into_iter().filter(|object| *object.key() != written).collect();
        self.delete_states(spec, &others).await
    }

    fn keep_unwritten(&self, name: &Arc<str>, key: &Arc<str>, kept: Kept) {
        let Run { controller, primary, .. } = self.run;
        let keep = |all: &mut Unwritten| all.keep(key, kept, || controller.guest.lasting());
        controller.verdicts.change_unwritten(primary, name, keep);
    }

    /// Removes a thing again because what remembers it is refused for what it is: after a start of the daemon nobody would know of it.
    async fn take_back(&self, declared: Declared<'_>, (id, actual): &Actual, why: &Stopped) -> Result<(), Stopped> {
        tracing::warn!(dependent = %declared.0, %id, error = %why, "thing that can't be remembered is removed");
        self.remove_thing(declared, id, actual).await
    }

    /// Writes what could not be written when its thing was created; then the thing is read again by what remembers it.
    pub(super) async fn settle_kept(&self, name: &Arc<str>, spec: &Outside) -> Result<(), Stopped> {
        let Run { controller, primary, .. } = self.run;
        let (Some(declared), Some(source)) = (&spec.state, controller.externals.get(&spec.source)) else {
            return Ok(());
        };
        while let Some((key, Kept { state, thing })) = controller.verdicts.unwritten(primary, name) {
            let written = match &state {
                Some(state) => self.write_state(declared, (&key, &thing.0), state).await,
                None => Err(Stopped::Unmade("`create` answered no `state`".to_owned())),
            };
            match written {
                Ok(_) => source.doubt(primary.key(), &primary.header().uid),
                Err(stopped) if stopped.is_final() => self.take_back((name, spec, source), &thing, &stopped).await?,
                Err(stopped) => return Err(stopped),
            }
            self.forget_kept(name, &key);
        }
        Ok(())
    }

    /// Deletes objects that remember ids.
    pub(super) async fn delete_states(&self, spec: &Outside, objects: &[&Object]) -> Result<(), Stopped> {
        let Some(State { name, dependent }) = &spec.state else {
            return Ok(());
        };
        for object in objects {
            self.delete_by(name, object, dependent::delete(dependent.gvk.clone(), object)).await?;
        }
        Ok(())
    }

    /// Forgets what was kept of a thing that is gone, or whose object is there again.
    pub(super) fn forget_kept(&self, name: &Arc<str>, key: &str) {
        let Run { controller, primary, .. } = self.run;
        controller.verdicts.change_unwritten(primary, name, |all| all.forget(key));
    }

    /// Writes an object that remembers a thing, told by key and id, and returns its name.
    async fn write_state(&self, declared: &State, thing: (&str, &str), answer: &str) -> Result<ObjectRef, Stopped> {
        let State { name, dependent } = declared;
        let text = self.with_marks(answer, thing)?;
        let desired = self.complete(name, dependent, &text)?;
        let source = self.source(name).await?;
        source.known(Within::Object(desired.key()))?;
        is_watched(source, desired.key())?;
        let actual = source.get(desired.key()).filter(|object| self.belongs(name, dependent, object));
        let hash = self.run.controller.hash(&text);
        self.bring_in_line((name, dependent, source), (&desired, hash), actual).await?;
        Ok(desired.key().clone())
    }

    /// Returns an answer with the annotations that say which thing it remembers.
    fn with_marks(&self, answer: &str, (key, id): (&str, &str)) -> Result<String, Stopped> {
        let tree = self.run.budget.lock().read(answer);
        let unread = |error| Stopped::Unmade(format!("the `state` that `create` answered: {error}"));
        let mut tree = tree.map_err(unread)?;
        // What is no object is told where it is completed.
        if let Value::Object(fields) = &mut tree {
            let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(metadata) = metadata {
                let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(annotations) = annotations {
                    annotations.extend([(KEY.to_owned(), json!(key)), (ID.to_owned(), json!(id))]);
                }
            }
        }
        Ok(tree.to_string())
    }
}
