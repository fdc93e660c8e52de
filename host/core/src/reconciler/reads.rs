//! Answers what a guest asks of the caches: which objects a question means, whether it may see them, and a page of them (CX, IM).

use std::sync::Arc;

use parking_lot::Mutex;

use super::controller::Controller;
use super::mask::Mask;
use super::page::Bounds;
use super::run::Run;
use crate::budget::{Budget, Exceeded};
use crate::guest::{CallError, CallReason, Page, Place, Query, Selection};
use crate::manifest::Limits;
use crate::object::labels::Selector;
use crate::object::{Object, ObjectRef};
use crate::source::{Doubt, Source, Within};
use crate::writes::Recalls as _;

mod things;

/// Reads the caches for a call of a guest.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) controller: &'a Controller,
    /// The primary of the call; `None` in a call for all of them.
    pub(super) primary: Option<&'a Object>,
    /// Pays for what is read.
    pub(super) budget: &'a Mutex<Budget>,
    /// True if nobody reads the things of a primary, outside of the cluster, for this call: those that are not known may be there.
    pub(super) waits: bool,
    /// The run that asks the API server for what a bounded source has forgotten; `None` in a call outside of runs.
    pub(super) run: Option<&'a Run>,
}

// === impl Reader: Kubernetes objects ===

impl<'a> Reader<'a> {
    /// Returns a page of what a place has.
    pub(super) async fn find_all(self, query: &Query) -> Result<Page, CallError> {
        if let Some(external) = self.external(&query.place) {
            return self.things(external, query);
        }
        let primaries = query.place == Place::Primaries;
        if primaries && query.selection == Selection::Related {
            return Err(CallError::new(CallReason::Misplaced, "primaries are not related to the primary"));
        }
        let sources = self.places(&query.place)?;
        let open: Vec<_> = sources.iter().filter(|source| self.answers(source, &query.selection)).collect();
        if open.is_empty() {
            self.check_kind(query, &sources)?;
        }
        let mut objects = Vec::new();
        for source in open {
            let mut found = match query.selection {
                Selection::Related => self.related(source).await?,
                Selection::Namespaced(_) | Selection::Everywhere | Selection::Indexed { .. } => {
                    self.shown(source, &query.selection).await?
                }
            };
            if query.selection != Selection::Related && !self.is_declared(source) {
                found.retain(|object| self.may_see(source, object));
            }
            objects.extend(found);
        }
        self.page(objects, &sources, query).await
    }

    /// Returns the one object of a place that belongs to the primary, of those that `own` leaves.
    pub(super) async fn find_one(
        self,
        place: &Place,
        own: impl FnOnce(Vec<Object>) -> Result<Vec<Object>, CallError>,
    ) -> Result<Option<String>, CallError> {
        if let Some(external) = self.external(place) {
            return self.thing(external, place);
        }
        if *place == Place::Primaries {
            return Err(CallError::new(CallReason::Misplaced, "primaries are not related to the primary"));
        }
        let source = self.place(place)?;
        let mut found = own(self.related(&source).await?)?;
        match found.as_slice() {
            [] | [_] => match found.pop() {
                None => Ok(None),
                Some(object) => Ok(self.recall(&[source], object).await?.map(|object| object.json().to_owned())),
            },
            several => {
                let names = several.iter().map(|object| object.key().to_string()).collect::<Vec<_>>().join(", ");
                let message = format!("several objects of {} belong to the primary: {names}", describe(place));
                Err(CallError::new(CallReason::Ambiguous, message))
            }
        }
    }

    /// Returns an object of a place by its name.
    pub(super) async fn find_named(self, place: &Place, key: &ObjectRef) -> Result<Option<String>, CallError> {
        if let Some(external) = self.external(place) {
            return self.thing_called(external, &key.name);
        }
        let sources = self.places(place)?;
        if sources.is_empty() {
            return Err(CallError::new(CallReason::Missing, format!("no source watches {}", describe(place))));
        }
        let mut watched = Vec::new();
        for source in sources {
            if !self.is_idle(&source)? {
                watched.push(source);
            }
        }
        let sources = watched;
        // What another source shows may be older than what was written by this one.
        if let Some(source) = sources.iter().find(|source| source.waits_for_own_write(key)) {
            source.known(Within::Object(key)).map_err(|doubt| self.doubtful(source, &doubt))?;
        }
        let newest = sources
            .iter()
            .filter_map(|source| source.get(key).filter(|found| self.may_see(source, found)))
            .max_by_key(|found| (found.version(), found.fields().is_whole()));
        let Some(newest) = newest else {
            for source in &sources {
                source.watched().map_err(|doubt| unwatched(&doubt))?;
                source.known(Within::Object(key)).map_err(|doubt| self.doubtful(source, &doubt))?;
            }
            return Ok(None);
        };
        let Some(newest) = self.recall(&sources, newest).await? else {
            return Ok(None);
        };
        let found = self.read(vec![newest])?;
        Ok(found.first().map(|object| object.json().to_owned()))
    }

    /// Returns the objects of a source that belong to the primary.
    async fn related(self, source: &Source) -> Result<Vec<Object>, CallError> {
        if self.is_idle(source)? {
            return Ok(Vec::new());
        }
        self.heed(source).await?;
        self.shown(source, &Selection::Related).await
    }

    /// Has the component asked what of a source belongs to the primary, where that is for it to say and not known yet. Only a run
    /// can wait for that: the answer may rest on the call that asks, which fails.
    async fn heed(self, source: &Source) -> Result<(), CallError> {
        let heeded = match self.run {
            Some(run) => run.heed(source).await,
            None => source.heeded(self.primary()?.key()),
        };
        heeded.map_err(|doubt| self.doubtful(source, &doubt))
    }

    /// Returns the primary of the call.
    fn primary(self) -> Result<&'a Object, CallError> {
        let none = || CallError::new(CallReason::Misplaced, "this call is for no one primary");
        self.primary.ok_or_else(none)
    }

    async fn page(self, objects: Vec<Object>, sources: &[Arc<Source>], query: &Query) -> Result<Page, CallError> {
        let mask = Mask::of(&query.fields)?;
        let objects = self.ordered(objects, query)?;
        let Limits { page, memory, .. } = self.controller.limits;
        let limit = query.limit.unwrap_or(page).min(page) as usize;
        let (mut whole, mut last, mut names, mut more) = (Vec::new(), None, 0, false);
        for object in objects {
            let key = object.key().clone();
            names += usize::from(last.as_ref() != Some(&key));
            more = names > limit.max(1);
            if more {
                break;
            }
            last = Some(key);
            if mask.is_within(object.fields()) {
                whole.push(object);
            } else {
                whole.extend(self.recall(sources, object).await?);
            }
        }
        self.budget.lock().text(whole.iter().map(Object::unmeasured).sum()).map_err(too_much)?;
        let end = Bounds::within(memory, limit).end(&whole, !mask.is_none())?;
        if end < whole.len() {
            last = whole.get(end - 1).map(|last| last.key().clone());
            more = true;
        }
        whole.truncate(end);
        let budget = &mut *self.budget.lock();
        let items =
            whole.iter().map(|object| mask.apply(object, budget)).collect::<Result<_, _>>().map_err(too_much)?;
        Ok(Page { items, next: last.filter(|_| more).map(|key| key.to_string()) })
    }

    /// Returns those of these objects that a query asks for, from where it begins, in order.
    fn ordered(self, mut objects: Vec<Object>, query: &Query) -> Result<Vec<Object>, CallError> {
        let budget = &mut *self.budget.lock();
        // Each object that is looked at costs budget, even if it is not in the page.
        let each = 1 + query.labels.as_ref().map_or(0, String::len) / 8;
        let work = objects.len().saturating_mul(each);
        budget.step(u64::try_from(work).unwrap_or(u64::MAX)).map_err(too_much)?;
        if let Some(selector) = &query.labels {
            let selector =
                Selector::parse(selector).map_err(|e| CallError::new(CallReason::Invalid, format!("labels: {e}")))?;
            let text = objects.iter().map(Object::size).sum();
            budget.text(text).map_err(too_much)?;
            objects.retain(|object| {
                // What is unpacked for that does not stay in memory for all of them.
                let object = object.unread();
                let tags = object.tags();
                selector.matches(|name| tags.labels.get(name).map(|text| &*text.0))
            });
        }
        let whole = |object: &Object| object.fields().is_whole();
        // Of one version, the one first of which a source keeps all.
        objects.sort_by(|a, b| a.key().cmp(b.key()).then(b.version().cmp(&a.version())).then(whole(b).cmp(&whole(a))));
        if query.newest_only {
            objects.dedup_by(|later, first| later.key() == first.key());
        }
        if let Some(after) = &query.after {
            let after = cursor(after);
            objects.retain(|object| *object.key() > after);
        }
        Ok(objects)
    }

    /// Returns an object with all its fields; from the API server, if a bounded source has forgotten it (`BC-1`). `None` if it is
    /// gone meanwhile.
    async fn recall(self, sources: &[Arc<Source>], object: Object) -> Result<Option<Object>, CallError> {
        let forgetful = |source: &&Arc<Source>| {
            source.spec().bounded.is_some() && source.has_forgotten(&object) && source.watches(object.key())
        };
        let Some(source) = sources.iter().find(forgetful) else {
            return Ok(Some(object));
        };
        let Some(run) = self.run else {
            let message =
                format!("source {} has forgotten {}: only a run reads it again", source.spec().name, object.key());
            return Err(CallError::new(CallReason::Unreachable, message));
        };
        run.recall(source, object.key()).await
    }

    /// Returns the sources of a place.
    fn places(self, place: &Place) -> Result<Vec<Arc<Source>>, CallError> {
        let controller = self.controller;
        let registered = controller.registered.watched();
        match place {
            Place::Primaries => Ok(vec![Arc::clone(&controller.primaries)]),
            Place::Source(name) => {
                let found = controller.secondaries.get(&**name).or_else(|| registered.get(&**name));
                found.map(|source| vec![Arc::clone(source)]).ok_or_else(|| {
                    let names = controller.secondaries.keys().chain(controller.externals.keys());
                    let names = names.chain(registered.keys()).map(|name| &**name).collect::<Vec<_>>().join(", ");
                    CallError::new(CallReason::Missing, format!("no source is called {name:?}; there are: {names}"))
                })
            }
            Place::Kind(gvk) => {
                let mut seen = Vec::<Arc<Source>>::new();
                let all = controller.secondaries.values().chain(registered.values());
                // CU-4: what another cluster has of the kind is asked for by the source's name.
                let here = |source: &&Arc<Source>| !source.is_apart_from(&controller.primaries);
                for source in all.filter(|source| source.spec().gvk == *gvk).filter(here) {
                    if !seen.iter().any(|other| Arc::ptr_eq(other, source)) {
                        seen.push(Arc::clone(source));
                    }
                }
                // Others of the kind answer for themselves; but not for one that may have something of this primary.
                if seen.iter().any(|source| source.watched().is_ok()) {
                    // What a whole walk has not reached is not active, as far as is known.
                    let walked = |primary| controller.verdicts.has_walked(controller.edition, primary);
                    let unvisited = self.primary.filter(|primary| !walked(primary));
                    let may_have =
                        |source: &Arc<Source>| unvisited.is_some_and(|primary| !self.sleeps(source, primary));
                    seen.retain(|source| source.watched().is_ok() || may_have(source));
                }
                Ok(seen)
            }
        }
    }

    /// Returns the only source of a place.
    fn place(self, place: &Place) -> Result<Arc<Source>, CallError> {
        let mut found = self.places(place)?;
        match (found.pop(), found.is_empty()) {
            (Some(source), true) => Ok(source),
            (None, _) => Err(CallError::new(CallReason::Missing, format!("no source watches {}", describe(place)))),
            (Some(_), false) => {
                let message = format!("several sources watch {}: name one", describe(place));
                Err(CallError::new(CallReason::Ambiguous, message))
            }
        }
    }

    /// Returns true if a source answers such a query at all. A source that the manifest declares answers all; that of
    /// a dependent answers queries for objects that belong to the primary, and others if `get` is granted.
    fn answers(self, source: &Arc<Source>, selection: &Selection) -> bool {
        *selection == Selection::Related
            || self.is_declared(source)
            || self.controller.permissions.reads(&source.spec().gvk)
    }

    /// Returns true if the component may see an object of a source.
    fn may_see(self, source: &Arc<Source>, object: &Object) -> bool {
        let namespace = object.key().namespace.as_deref();
        let permissions = &self.controller.permissions;
        self.is_declared(source)
            || permissions.may_read(&source.spec().gvk, namespace)
            || self.primary.is_some_and(|primary| source.relates(object, primary.key()))
    }

    fn is_declared(self, source: &Arc<Source>) -> bool {
        let Self { controller, budget, .. } = self;
        controller.write_context(&*controller.cluster, budget).is_declared(source)
    }

    /// Checks a query that no source answers. It gets an empty page if the component may read the kind, and is
    /// refused otherwise.
    fn check_kind(self, query: &Query, sources: &[Arc<Source>]) -> Result<(), CallError> {
        let gvk = match (&query.place, sources) {
            (_, [source, ..]) => &source.spec().gvk,
            (Place::Kind(gvk), []) => gvk,
            (Place::Source(_) | Place::Primaries, []) => return Ok(()),
        };
        let namespace = match &query.selection {
            Selection::Related => return Ok(()),
            Selection::Namespaced(namespace) => Some(&**namespace),
            Selection::Everywhere | Selection::Indexed { .. } => None,
        };
        if self.controller.permissions.reads(gvk) {
            return Ok(());
        }
        Err(self.controller.permissions.unreadable(gvk, namespace))
    }

    /// Returns the objects of a source, if it is watched before and after.
    async fn shown(self, source: &Source, selection: &Selection) -> Result<Vec<Object>, CallError> {
        if self.is_idle(source)? {
            return Ok(Vec::new());
        }
        // Outside of runs, what has to be asked about may wait for whoever reads.
        if self.run.is_some() {
            source.caught_up(self.within(selection)?).await;
        }
        let found = self.select(source, selection)?;
        source.watched().map_err(|doubt| unwatched(&doubt))?;
        Ok(found)
    }

    /// Returns true if nobody watches a source because its dependents are inactive for the primary: then it has nothing (`CX-1a`).
    ///
    /// # Errors
    /// `missing`, if nobody watches it and that is not known.
    fn is_idle(self, source: &Source) -> Result<bool, CallError> {
        let Err(doubt) = source.watched() else {
            return Ok(false);
        };
        let asleep = self.primary.is_some_and(|primary| self.sleeps(source, primary));
        if asleep { Ok(true) } else { Err(unwatched(&doubt)) }
    }

    /// Returns true if all dependents that a source is for are known to be inactive for a primary.
    fn sleeps(self, source: &Source, primary: &Object) -> bool {
        self.controller.verdicts.is_asleep(primary, &source.spec().name)
    }

    /// Returns what a selection asks for.
    fn within<'q>(self, selection: &'q Selection) -> Result<Within<'q>, CallError>
    where
        'a: 'q,
    {
        Ok(match selection {
            Selection::Related => Within::Related(self.primary()?.key()),
            Selection::Namespaced(namespace) => Within::Namespace(namespace),
            Selection::Everywhere => Within::Everywhere,
            Selection::Indexed { .. } => Within::Indexed,
        })
    }

    fn select(self, source: &Source, selection: &Selection) -> Result<Vec<Object>, CallError> {
        let within = self.within(selection)?;
        source.shows_all(within).map_err(|doubt| self.doubtful(source, &doubt))?;
        match selection {
            Selection::Related => self.read(source.related(self.primary()?.key())),
            Selection::Namespaced(namespace) => Ok(source.list(Some(namespace))),
            Selection::Everywhere => Ok(source.list(None)),
            Selection::Indexed { index, key } => {
                let found = source.by_index(index, key);
                self.read(found.map_err(|e| CallError::new(CallReason::Missing, e.to_string()))?)
            }
        }
    }

    /// Returns the error of a read of what a source does not know. While another cluster is away that the source watches, the run fails
    /// for that, and not by its component (`CU-7`); nor does it by what the watch has still to show.
    fn doubtful(self, source: &Source, doubt: &Doubt) -> CallError {
        if let Some(run) = self.run {
            run.doubts(doubt);
            if self.controller.is_away(source) {
                run.missed_server();
            }
        }
        doubtful(doubt)
    }

    /// Charges the budget for objects that had to be read to be found.
    fn read(self, objects: Vec<Object>) -> Result<Vec<Object>, CallError> {
        let text = objects.iter().map(Object::size).sum();
        self.budget.lock().text(text).map_err(too_much)?;
        Ok(objects)
    }
}

/// Returns the error of a read of a source for which nothing is watched.
fn unwatched(Doubt { source_name, why, .. }: &Doubt) -> CallError {
    CallError::new(CallReason::Missing, format!("source {source_name} has no objects to be read: {why}"))
}

fn doubtful(doubt: &Doubt) -> CallError {
    CallError::new(CallReason::Unreachable, doubt.to_string())
}

pub(super) fn too_much(exceeded: Exceeded) -> CallError {
    CallError::new(CallReason::Exhausted, format!("this run: {exceeded}"))
}

/// Returns the key in the `next` of a page.
fn cursor(next: &str) -> ObjectRef {
    match next.split_once('/') {
        Some((namespace, name)) => ObjectRef::namespaced(namespace, name),
        None => ObjectRef::cluster(next),
    }
}

fn describe(place: &Place) -> String {
    match place {
        Place::Source(name) => format!("source {name}"),
        Place::Kind(gvk) => gvk.to_string(),
        Place::Primaries => "the primaries".to_owned(),
    }
}
