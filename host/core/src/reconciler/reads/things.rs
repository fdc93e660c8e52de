//! Answers what a guest asks about things outside of the cluster: which of them a question means, and a page of them (XC).

use std::sync::Arc;

use tokio::time::Instant;

use super::{Reader, doubtful, too_much};
use crate::external::{External, Things};
use crate::guest::{CallError, CallReason, Page, Place, Query, Selection};
use crate::object::{Object, ObjectRef};
use crate::reconciler::mask::Mask;
use crate::reconciler::page::Bounds;
use crate::source::Within;

/// The most primaries that one look asks for: the next one asks for more.
const MOST_ASKED: usize = 1000;

/// A thing, with its primary and its id.
type Found = (ObjectRef, Arc<str>, Arc<str>);

impl<'a> Reader<'a> {
    /// Returns the source outside of the cluster that a place is; `None` if it is none.
    pub(in crate::reconciler) fn external(self, place: &Place) -> Option<&'a Arc<External>> {
        match place {
            Place::Source(name) => self.controller.external(name),
            Place::Kind(_) | Place::Primaries => None,
        }
    }

    /// Returns a page of things.
    pub(super) fn things(self, external: &External, query: &Query) -> Result<Page, CallError> {
        let name = &external.name;
        if query.labels.is_some() {
            let message = format!("source {name} has things outside of the cluster, which have no labels");
            return Err(CallError::new(CallReason::Invalid, message));
        }
        external.known().map_err(|unknown| CallError::new(CallReason::Unreachable, unknown.to_string()))?;
        let all = match &query.selection {
            Selection::Related => {
                let things = self.of_place(external, &query.place)?;
                vec![(self.primary()?.key().clone(), things)]
            }
            Selection::Namespaced(namespace) => self.of_all(external, Some(namespace))?,
            Selection::Everywhere => self.of_all(external, None)?,
            Selection::Indexed { .. } => {
                let message = format!("source {name} has things outside of the cluster, and no index");
                return Err(CallError::new(CallReason::Missing, message));
            }
        };
        let mut found: Vec<Found> = Vec::new();
        for (primary, things) in all {
            found.extend(things.into_iter().map(|(id, thing)| (primary.clone(), id, thing)));
        }
        self.page_of(found, external, query)
    }

    /// Returns the one thing of the primary.
    pub(super) fn thing(self, external: &External, place: &Place) -> Result<Option<String>, CallError> {
        let things = self.of_place(external, place)?;
        let mut values = things.values();
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(thing), None) => Ok(Some(thing.to_string())),
            (Some(_), Some(_)) => {
                let ids = things.keys().map(|id| &**id).collect::<Vec<_>>().join(", ");
                let message = format!("several things of source {} belong to the primary: {ids}", external.name);
                Err(CallError::new(CallReason::Ambiguous, message))
            }
        }
    }

    /// Returns the thing of the primary with an id.
    pub(super) fn thing_called(self, external: &External, id: &str) -> Result<Option<String>, CallError> {
        Ok(self.of_primary(external)?.get(id).map(ToString::to_string))
    }

    /// Returns the things of all primaries of a namespace, or of all. Those of a primary that could never be polled with success are left
    /// out, as objects are that can't be read; but one whose turn has not come yet is not one without things. Where nobody has a turn without
    /// being asked for, they are asked for now (`IB-6`).
    fn of_all(self, external: &External, namespace: Option<&str>) -> Result<Vec<(ObjectRef, Things)>, CallError> {
        if external.spec.each().is_some() {
            let within = namespace.map_or(Within::Everywhere, Within::Namespace);
            self.controller.primaries.shows_all(within).map_err(|doubt| doubtful(&doubt))?;
            let primaries = self.controller.primaries.list(namespace);
            self.budget.lock().step(u64::try_from(primaries.len()).unwrap_or(u64::MAX)).map_err(too_much)?;
            let waits = |primary: &&Object| external.standing(primary.key(), &primary.header().uid).is_none();
            if external.spec.waits_for_asks() {
                let now = Instant::now();
                let asked = primaries.iter().filter(waits).take(MOST_ASKED);
                asked.for_each(|primary| external.ask((primary.key(), &primary.header().uid), now));
            }
            let mut waiting = primaries.iter().filter(waits);
            if let Some(first) = waiting.next() {
                let message = format!(
                    "source {} has not been polled yet for {} and {} more primaries",
                    external.name,
                    first.key(),
                    waiting.count()
                );
                return Err(CallError::new(CallReason::Unreachable, message));
            }
        }
        Ok(external.all(namespace))
    }

    /// Returns the things of the primary. Of a dependent that shares its source with others this is only its own one, once that is known.
    fn of_place(self, external: &External, place: &Place) -> Result<Things, CallError> {
        let mut things = self.of_primary(external)?;
        if let (Some(run), Place::Source(name)) = (self.run, place)
            && let Some(own) = run.kept_thing(name)
        {
            things.retain(|id, _| *id == own);
        }
        Ok(things)
    }

    fn of_primary(self, external: &External) -> Result<Things, CallError> {
        let unreachable = |message: String| CallError::new(CallReason::Unreachable, message);
        let primary = self.primary()?;
        let (key, uid) = (primary.key(), &primary.header().uid);
        external.known_of(key, uid).map_err(|unknown| unreachable(unknown.to_string()))?;
        if self.waits && external.spec.each().is_some() && !external.knows(key, uid) {
            return Err(unreachable(format!("source {} has not been polled for {key} yet", external.name)));
        }
        let things = external.of(key, uid);
        self.budget.lock().text(things.values().map(|thing| thing.len()).sum()).map_err(too_much)?;
        Ok(things)
    }

    fn page_of(self, mut found: Vec<Found>, external: &External, query: &Query) -> Result<Page, CallError> {
        let budget = &mut *self.budget.lock();
        budget.step(u64::try_from(found.len()).unwrap_or(u64::MAX)).map_err(too_much)?;
        let mut fields = query.fields.clone();
        if !fields.is_empty() {
            fields.push(external.spec.id.text().to_string());
        }
        let mask = Mask::of(&fields)?;
        if let Some(after) = &query.after {
            let after = cursor(after);
            found.retain(|(primary, id, _)| (primary, &**id) > (&after.0, &*after.1));
        }
        let limits = &self.controller.limits;
        let limit = query.limit.unwrap_or(limits.page).min(limits.page) as usize;
        let sizes = found.iter().map(|(_, _, thing)| thing.len());
        let end = Bounds::within(limits.memory, limit).end_of(sizes);
        let last = end.checked_sub(1).and_then(|last| found.get(last)).filter(|_| end < found.len());
        let next = last.map(|(primary, id, _)| mark(primary, id));
        found.truncate(end);
        let items = found.iter().map(|(_, _, thing)| mask.take(thing, budget));
        Ok(Page { items: items.collect::<Result<_, _>>().map_err(too_much)?, next })
    }
}

/// Returns the `next` of a page that ends with a thing: names have no line breaks.
fn mark(primary: &ObjectRef, id: &str) -> String {
    format!("{}\n{}\n{id}", primary.namespace.as_deref().unwrap_or_default(), primary.name)
}

/// Returns the thing in the `next` of a page.
fn cursor(next: &str) -> (ObjectRef, String) {
    let mut parts = next.splitn(3, '\n');
    let namespace = parts.next().filter(|text| !text.is_empty());
    let name = parts.next().unwrap_or_default();
    let key = namespace.map_or_else(|| ObjectRef::cluster(name), |namespace| ObjectRef::namespaced(namespace, name));
    (key, parts.next().unwrap_or_default().to_owned())
}
