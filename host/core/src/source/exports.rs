//! Asks the component what a filter or mapper by export says of an object, and takes in the answer: off the informers, and for a
//! mapper once for each version of an object (CF, IS, IM).

use std::collections::BTreeSet;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::time::Instant;

use super::backlog::is_at_home;
use super::callback::Callback;
use super::filter::{Sort, Verdict};
use super::keys::placed;
use super::known::{Doubt, MANY, Within};
use super::overlay;
use super::watched::watcher;
use super::{Role, Source};
use crate::guest::{Cause, Failure};
use crate::object::pointer::MOST;
use crate::object::{Change, Object, ObjectRef};

/// Why nobody is asked: an export that took too long would hold up all that waits behind it.
pub const RESTS: &str = "it took too long, and is not asked for a while";

/// The exports of a component that are asked about objects.
pub trait Exports: Send + Sync {
    /// Returns whether a change matters, by the filter `name`.
    fn accepts<'a>(&'a self, name: &'a str, change: &'a Change) -> BoxFuture<'a, Result<bool, Failure>>;

    /// Returns the primaries to which a secondary belongs, by the mapper `name`.
    fn primaries<'a>(&'a self, name: &'a str, secondary: &'a Object) -> BoxFuture<'a, Result<Vec<ObjectRef>, Failure>>;

    /// Returns the secondaries that belong to a primary, by the mapper `name`.
    fn secondaries<'a>(&'a self, name: &'a str, primary: &'a Object) -> BoxFuture<'a, Result<Vec<ObjectRef>, Failure>>;

    /// Returns the edition of the controller whose component has answered last.
    fn edition(&self) -> u64;

    /// Gives back what others may be waiting for: nothing is asked for a while.
    fn rest(&self);
}

// === impl Source: filters ===

impl Source {
    /// Returns true if a change matters. An export that has no answer lets it pass.
    pub(super) async fn accepts(&self, change: &Change, sort: Sort, exports: &dyn Exports) -> bool {
        let Verdict::IfSaid(questions) = self.spec.filter.judge(change, sort, self.asked()) else {
            return false;
        };
        for (field, name) in questions {
            let asking = exports.accepts(name, change);
            let said = self.said((Callback::Filter, field), change.object().key(), asking).await;
            if said == Some(false) {
                return false;
            }
        }
        true
    }

    /// Returns what an export answers about an object, unless it rests; `None` if it has no answer, which is counted and logged.
    async fn said<T>(
        &self,
        (callback, field): (Callback, &'static str),
        object: &ObjectRef,
        asking: BoxFuture<'_, Result<T, Failure>>,
    ) -> Option<T> {
        let mapper = callback == Callback::Mapper;
        if self.state.read().patience.rests(field, Instant::now()) {
            if mapper {
                self.state.write().patience.postponed(object, field, Instant::now());
            }
            self.asked().tell_of_export(callback, field, object, &Failure::other(RESTS));
            return None;
        }
        let answer = asking.await;
        let slow = matches!(&answer, Err(failure) if failure.cause == Cause::Timeout);
        {
            let (mut state, now) = (self.state.write(), Instant::now());
            state.patience.ended(field, slow, now);
            match &answer {
                Ok(_) if mapper => state.patience.forget(object),
                Err(_) if mapper => state.patience.failed(object, field, now),
                Ok(_) | Err(_) => {}
            }
        }
        if mapper && answer.is_err() {
            // Whoever waits for the next object to ask about again has to look anew.
            self.work.notify_one();
        }
        answer.map_err(|failure| self.asked().tell_of_export(callback, field, object, &failure)).ok()
    }
}

// === impl Source: mappers ===

impl Source {
    /// Returns true if the component is asked which primaries a secondary belongs to.
    pub(super) fn maps_by_export(&self) -> bool {
        matches!(&self.spec.role, Role::Secondary(mapper) if mapper.export().is_some())
    }

    /// Returns the primaries of a secondary, as the component says. `None` if it has no answer.
    async fn primaries_said(&self, object: &Object, exports: &dyn Exports) -> Option<BTreeSet<ObjectRef>> {
        let Role::Secondary(mapper) = &self.spec.role else {
            return None;
        };
        let asking = exports.primaries(mapper.export()?, object).map(few).boxed();
        let said = self.said((Callback::Mapper, "mapper"), object.key(), asking).await?;
        let (scope, home) = (mapper.scope(), object.key().namespace.as_ref());
        let placed = said.iter().filter_map(|key| placed(&key.name, key.namespace.as_deref(), scope, home));
        Some(mapper.reached(object.key(), placed, self.asked()))
    }

    /// Asks to which primaries a secondary belongs, unless that is known of this version of it. If there is no answer, what was known
    /// stays, and it is asked again.
    pub(super) async fn map(&self, object: &Object, exports: &dyn Exports) {
        let key = object.key();
        if self.state.read().mapped.is_current(object) {
            self.state.write().patience.forget(key);
            return;
        }
        let Some(primaries) = self.primaries_said(object, exports).await else {
            return;
        };
        let mut state = self.state.write();
        let current = state.edition.is_none_or(|edition| edition == exports.edition());
        if !state.shows(key) {
            // It has gone meanwhile, and nobody would come to forget the answer.
            return;
        }
        state.everybody |= !state.mapped.keep(object, primaries, current);
        if !current {
            // Whom it concerns as the other says has not been told.
            state.backlog.ask_another(object);
            drop(state);
            self.work.notify_one();
        }
    }

    /// Returns true if the component is asked about each version of a changed object anew: what it says may rest on primaries, so it is
    /// not remembered (`IM-5`).
    pub(super) fn is_mapped_by_versions(&self) -> bool {
        self.maps_by_export() && self.asks_primaries()
    }

    /// Returns the primaries of objects that are not there any more, or were otherwise: of those that nothing is remembered of, the
    /// component says it.
    /// Where it has no answer, all primaries are told: nothing else leads to them any more.
    pub(super) async fn primaries_before(&self, others: Vec<Object>, exports: &dyn Exports) -> BTreeSet<ObjectRef> {
        let mut primaries = BTreeSet::new();
        for object in &others {
            if !self.maps_by_export() {
                primaries.extend(self.primaries_of_object(object));
            } else if self.is_mapped_by_versions() || !self.is_remembered(object) {
                match self.primaries_said(object, exports).await {
                    Some(said) => primaries.extend(said),
                    None => self.state.write().everybody = true,
                }
            }
        }
        primaries
    }

    fn is_remembered(&self, object: &Object) -> bool {
        self.state.read().mapped.of(object).is_some()
    }

    /// Asks about what an export says of a primary's objects, where that is not known yet: what the primary itself leads to, and
    /// objects that were just written. For a read of one run, on its behalf.
    ///
    /// # Errors
    /// [`Doubt`] if the component does not say what the primary leads to.
    pub async fn heed(&self, primary: &ObjectRef, exports: &dyn Exports) -> Result<(), Doubt> {
        self.lead(primary, exports).await?;
        if !self.maps_by_export() || self.asks_primaries() {
            return Ok(());
        }
        for object in self.unmapped(primary) {
            // What a version says that is not in force any more is asked of the next one again.
            if self.has_in_force(exports) || !self.is_remembered(&object) {
                self.map(&object, exports).await;
            }
        }
        Ok(())
    }

    /// Whether [`Source::heed`] may ask the component something.
    pub fn asks_exports(&self) -> bool {
        let leads = matches!(&self.spec.role, Role::Secondary(mapper) if mapper.leading_export().is_some());
        leads || (self.maps_by_export() && !self.asks_primaries())
    }

    /// Returns true if these exports are those of the version in force.
    fn has_in_force(&self, exports: &dyn Exports) -> bool {
        self.state.read().edition.is_none_or(|edition| edition == exports.edition())
    }

    /// Checks that the component has said all of a primary's objects that it is to be asked for. For a read that can't have it asked: the
    /// answer may rest on the call that reads.
    ///
    /// # Errors
    /// [`Doubt`] if it has not, of the primary or of an object that may belong to it.
    pub fn heeded(&self, primary: &ObjectRef) -> Result<(), Doubt> {
        if let Role::Secondary(mapper) = &self.spec.role
            && mapper.leading_export().is_some()
        {
            let object = self.leader(primary)?;
            let said = object.is_none_or(|object| self.state.read().led.is_current(&object));
            let doubt =
                || self.doubt(&primary.namespace, "its `secondaries` has not been asked about this version of it yet");
            return said.then_some(()).ok_or_else(doubt);
        }
        if !self.maps_by_export() || self.asks_primaries() {
            return Ok(());
        }
        let unmapped = self.unmapped(primary).into_iter().next();
        unmapped.map_or(Ok(()), |object| {
            let key = object.key();
            Err(self.doubt(&key.namespace, &format!("its `mapper` has not been asked about {} yet", key.name)))
        })
    }

    /// Returns objects that may belong to a primary and of whose version nothing is known.
    fn unmapped(&self, primary: &ObjectRef) -> Vec<Object> {
        let state = self.state.read();
        let home = self.home_of(primary);
        let at_home = |key: &&ObjectRef| is_at_home(key, home);
        let written = state.overlay.iter().map(Object::key);
        let keys: BTreeSet<_> = state.backlog.keys().chain(written).filter(at_home).collect();
        let newest = keys.into_iter().filter_map(|key| {
            let (cached, synced) = watcher(&state.places, key)?.1.look(key);
            self.show(&overlay::newest(state.overlay.get(key), cached, synced)?)
        });
        // Of one that has failed, primaries are told once there is an answer: that is left to those who tell.
        let unknown = |object: &Object| !state.mapped.is_current(object) && !state.patience.waits(object.key());
        newest.filter(unknown).take(MANY).collect()
    }

    /// Asks which secondaries belong to a primary, unless that is known of this version of it, or is not asked.
    async fn lead(&self, primary: &ObjectRef, exports: &dyn Exports) -> Result<(), Doubt> {
        let Role::Secondary(mapper) = &self.spec.role else {
            return Ok(());
        };
        let Some((name, scope)) = mapper.leading_export() else {
            return Ok(());
        };
        let Some(object) = self.leader(primary)? else {
            return Ok(());
        };
        let in_force = self.has_in_force(exports);
        {
            let led = &self.state.read().led;
            if led.is_current(&object) || (!in_force && led.of(&object).is_some()) {
                return Ok(());
            }
        }
        let asking = exports.secondaries(name, &object).map(few);
        let doubt = |why: &str| self.doubt(&primary.namespace, &format!("its `secondaries` has no answer: {why}"));
        let failed = |failure: Failure| {
            self.asked().tell_of_export(Callback::Mapper, "secondaries", primary, &failure);
            doubt(&failure.message)
        };
        let said = asking.await.map_err(failed)?;
        let placed = said
            .iter()
            .filter_map(|key| placed(&key.name, key.namespace.as_deref(), scope, primary.namespace.as_ref()));
        let keys = mapper.led(primary, placed, self.asked());
        let mut state = self.state.write();
        let current = state.edition.is_none_or(|edition| edition == exports.edition());
        if !state.keep_led(&object, keys, current) {
            return Err(doubt("its answer takes more memory than its plugin has (--plugin-memory)"));
        }
        Ok(())
    }

    /// Takes in that another component, or the same with other settings, answers from now on. What is known stays until [`Source::ask_anew`]
    /// has it asked again.
    pub fn ask_edition(&self, edition: u64) {
        let mut state = self.state.write();
        if state.edition.replace(edition) != Some(edition) {
            state.led.clear();
            state.mapped.doubt();
            state.anew = true;
        }
    }

    /// Has everything asked again, if another component answers than so far.
    pub fn ask_anew(&self) {
        if !std::mem::take(&mut self.state.write().anew) {
            return;
        }
        // Whom objects concern of which there was no answer has not been told yet.
        let failed = self.state.write().patience.clear();
        for object in failed.iter().filter_map(|key| self.cached(key)) {
            self.state.write().backlog.add_again(object);
        }
        self.work.notify_one();
        if self.maps_by_export() && !self.asks_primaries() {
            for object in self.list(None) {
                self.note(object.key());
            }
        }
    }

    /// Waits until it is time to ask again about an object of which there was no answer, and has that asked.
    pub(super) async fn again(&self) {
        let next = self.state.read().patience.next();
        match next {
            Some(next) => tokio::time::sleep_until(next).await,
            None => std::future::pending().await,
        }
        let due = self.state.write().patience.due(Instant::now());
        for key in due {
            let object = self.cached(&key);
            let mut state = self.state.write();
            match object {
                // Whom it concerns was not known: they have not been told of it.
                Some(object) => state.backlog.add_again(object),
                None => state.patience.forget(&key),
            }
        }
    }

    /// Returns the newest version of the object that the caches have, once it is known whose it is.
    pub(super) async fn mapped(&self, key: &ObjectRef, exports: &dyn Exports) -> Option<Object> {
        let newest = self.cached(key)?;
        if self.maps_by_export() && !self.asks_primaries() {
            self.map(&newest, exports).await;
            return self.cached(key);
        }
        Some(newest)
    }

    /// Returns whose a secondary is, as the component has said of it, or of the version of it before.
    pub(super) fn whose(&self, object: &Object) -> BTreeSet<ObjectRef> {
        self.state.read().mapped.of(object).cloned().unwrap_or_default()
    }

    /// Returns true if the component has been asked about all objects within `within`, well or badly: of what was put off while it rests
    /// nothing is known.
    pub(super) fn is_asked(&self, within: Within<'_>) -> bool {
        let Within::Related(primary) = within else {
            return true;
        };
        let home = self.home_of(primary);
        let state = self.state.read();
        !state.patience.postponed_ones().any(|key| is_at_home(key, home) && !state.mapped.has(key))
    }

    /// Checks that the answers about all objects within `within` could be kept.
    pub(super) fn is_mapped(&self, within: Within<'_>) -> bool {
        let Within::Related(primary) = within else {
            return true;
        };
        if !self.maps_by_export() || self.asks_primaries() {
            return true;
        }
        let home = self.home_of(primary);
        let state = self.state.read();
        !state.unkeyed.iter().any(|key| is_at_home(key, home))
    }
}

/// Checks that an answer has no more keys than an object may have otherwise.
fn few(answer: Result<Vec<ObjectRef>, Failure>) -> Result<Vec<ObjectRef>, Failure> {
    let keys = answer?;
    if keys.len() > MOST {
        return Err(Failure::other(format!("it has answered {} keys; expected at most {MOST}", keys.len())));
    }
    Ok(keys)
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::{BTreeMap, VecDeque};
    use std::sync::Arc;
    use std::time::Duration;

    use futures::FutureExt;
    use parking_lot::Mutex;

    use super::*;
    use crate::cache::{Event, Writer};
    use crate::cel::Expression;
    use crate::manifest::filters::Question;
    use crate::manifest::{Filters, Mapper as Declared, Secondaries};
    use crate::object::fields::Fields;
    use crate::object::{Gvk, Managers, Scope, Version};
    use crate::source::callback::Faults;
    use crate::source::filter::Filter;
    use crate::source::mapper::Mapper;
    use crate::source::telling::MOMENT;
    use crate::source::{Spec, Trigger};

    /// Answers what is in line, or else with nothing, and notes what it is asked.
    #[derive(Default)]
    pub(in crate::source) struct Fake {
        asked: Mutex<Vec<String>>,
        answers: Mutex<VecDeque<Result<Vec<&'static str>, Failure>>>,
        edition: u64,
        hangs: bool,
        /// What the first answer waits for.
        gate: Mutex<Option<tokio::sync::oneshot::Receiver<()>>>,
    }

    /// Asks about what has waited longest, with no component to ask.
    pub(in crate::source) fn ask(source: &Source) -> Option<Vec<Trigger>> {
        source.ask(&Fake::default()).now_or_never().expect("no component is asked")
    }

    impl Fake {
        fn answering(answers: impl IntoIterator<Item = Result<Vec<&'static str>, Failure>>) -> Self {
            Self { answers: Mutex::new(answers.into_iter().collect()), ..Self::default() }
        }

        fn next(&self, question: String) -> BoxFuture<'_, Result<Vec<&'static str>, Failure>> {
            self.asked.lock().push(question);
            if self.hangs {
                return std::future::pending().boxed();
            }
            let answer = self.answers.lock().pop_front().unwrap_or(Ok(Vec::new()));
            let gate = self.gate.lock().take();
            async move {
                if let Some(gate) = gate {
                    gate.await.unwrap();
                }
                answer
            }
            .boxed()
        }

        fn keys(&self, question: String) -> BoxFuture<'_, Result<Vec<ObjectRef>, Failure>> {
            async move { Ok(self.next(question).await?.into_iter().map(key).collect()) }.boxed()
        }

        fn take(&self) -> Vec<String> {
            std::mem::take(&mut self.asked.lock())
        }
    }

    impl Exports for Fake {
        /// Accepts unless there is an answer in line that is not empty.
        fn accepts<'a>(&'a self, name: &'a str, change: &'a Change) -> BoxFuture<'a, Result<bool, Failure>> {
            let sort = match change {
                Change::Added(_) => "added",
                Change::Updated { .. } => "updated",
                Change::Deleted { .. } => "deleted",
            };
            let question = format!("{name}: {sort} {}", change.object().version());
            async move { Ok(self.next(question).await?.is_empty()) }.boxed()
        }

        fn primaries<'a>(
            &'a self,
            name: &'a str,
            secondary: &'a Object,
        ) -> BoxFuture<'a, Result<Vec<ObjectRef>, Failure>> {
            self.keys(format!("{name}: {}@{}", secondary.key(), secondary.version()))
        }

        fn secondaries<'a>(
            &'a self,
            name: &'a str,
            primary: &'a Object,
        ) -> BoxFuture<'a, Result<Vec<ObjectRef>, Failure>> {
            self.keys(format!("{name}: {}@{}", primary.key(), primary.version()))
        }

        fn edition(&self) -> u64 {
            self.edition
        }

        fn rest(&self) {}
    }

    fn key(text: &str) -> ObjectRef {
        match text.split_once('/') {
            Some((namespace, name)) => ObjectRef::namespaced(namespace, name),
            None => ObjectRef::cluster(text),
        }
    }

    fn object(name: &str, version: u64) -> Object {
        let json = format!(
            r#"{{"metadata":{{"namespace":"n","name":"{name}","uid":"u","resourceVersion":"{version}","labels":{{"a":"b"}},"ownerReferences":[{{"apiVersion":"x.dev/v1","kind":"Page","name":"p","uid":"u"}}]}}}}"#
        );
        Object::parse(&json, &Gvk::parse("v1", "ConfigMap").unwrap(), &Managers::default()).unwrap()
    }

    fn failure(cause: Cause) -> Failure {
        Failure::new(cause, "no way")
    }

    /// A source with its informer, and the number of failures.
    struct World {
        source: Source,
        writer: Writer,
        failures: Arc<Mutex<Vec<Callback>>>,
    }

    impl World {
        fn of(role: Role, filters: Filters) -> Self {
            let failures = Arc::new(Mutex::new(Vec::new()));
            let counted = Arc::clone(&failures);
            let filter = match &role {
                Role::Primary => Filter::primary(
                    crate::source::filter::PrimaryFilter { generation_aware: false, finalizer: None },
                    filters,
                ),
                Role::Secondary(_) => Filter::secondary(filters),
            };
            let source = Source::new(Spec {
                name: "s".into(),
                gvk: Gvk::parse("v1", "ConfigMap").unwrap(),
                cluster: None,
                role,
                filter,
                indexes: BTreeMap::new(),
                fields: Fields::whole(),
                bounded: None,
                packed: false,
                faults: Arc::new(Faults::new("c", move |callback| counted.lock().push(callback))),
            });
            let writer = Writer::default();
            assert_eq!(source.attach(None, writer.cache()), []);
            Self { source, writer, failures }
        }

        fn filtered(filters: Filters) -> Self {
            Self::of(Role::Secondary(mapper(Declared::OwnerReference)), filters)
        }

        fn mapped() -> Self {
            Self::of(Role::Secondary(mapper(Declared::Export("m".into()))), Filters::default())
        }

        fn event(&mut self, event: Event) {
            let change = self.writer.apply(event).unwrap();
            assert_eq!(self.source.on(change), [], "nobody is asked where events come in");
        }

        async fn told(&self, exports: &Fake) -> Vec<String> {
            let mut told = Vec::new();
            while let Some(triggers) = self.source.ask(exports).await {
                told.extend(triggers.iter().map(|trigger| trigger.primary.to_string()));
            }
            told
        }

        /// Waits until primaries are told of something.
        async fn told_next(&self, exports: &Fake) -> Vec<String> {
            loop {
                let hour = Duration::from_hours(1);
                tokio::time::timeout(hour, self.source.has_questions()).await.expect("something to ask about");
                let told = self.told(exports).await;
                if !told.is_empty() {
                    return told;
                }
            }
        }

        async fn applied(&mut self, name: &str, version: u64, exports: &Fake) -> Vec<String> {
            self.event(Event::Applied(object(name, version)));
            self.told(exports).await
        }

        fn swapped(&self, edition: u64) {
            self.source.ask_edition(edition);
            self.source.ask_anew();
        }

        fn related(&self, primary: &str) -> Vec<String> {
            self.source.related(&key(primary)).iter().map(|object| object.key().to_string()).collect()
        }
    }

    fn mapper(declared: Declared) -> Mapper {
        Mapper::new(Gvk::parse("x.dev/v1", "Page").unwrap(), Scope::Namespaced, declared)
    }

    fn export(name: &str) -> Question {
        Question::Export(name.into())
    }

    #[tokio::test]
    async fn what_comes_while_it_is_asked_about_and_finds_no_room_to_wait_in_is_asked_once_there_is() {
        // IS-1, IM-4
        let room = crate::room::Room::new(0);
        let mut world = World::mapped();
        world.source = world.source.charging(|| Some(room.holding(&"p".into())));
        let (open, gate) = tokio::sync::oneshot::channel();
        let q = || Ok(vec!["n/q"]);
        let exports = Fake::answering([Ok(vec!["n/p"]), q(), q(), q()]);
        *exports.gate.lock() = Some(gate);
        world.event(Event::Applied(object("a", 1)));
        {
            let mut asking = Box::pin(world.source.ask(&exports));
            assert!((&mut asking).now_or_never().is_none(), "it is being asked about");
            // Others take all the room that there is.
            let mut others = 0;
            while world.source.state.write().note(&key(&format!("other{others}"))) {
                others += 1;
            }
            drop(world.source.on(world.writer.apply(Event::Applied(object("a", 2))).unwrap()));
            world.source.state.write().backlog.retain(|_| false);
            open.send(()).unwrap();
            asking.await;
        }
        assert!(world.source.key_again(None).is_some(), "it has no keys yet");
        world.told(&exports).await;
        assert_eq!((world.related("n/p"), world.related("n/q")), (vec![], vec!["n/a".to_owned()]));
        assert_eq!(exports.take(), ["m: n/a@1", "m: n/a@2"]);
    }

    #[tokio::test]
    async fn a_filter_by_export_is_asked_about_its_sort_of_change_once_nothing_else_says_no() {
        // IS-1
        let no = Expression::parse("object.metadata.resourceVersion != '9'", &["object"]).unwrap();
        let filters = Filters {
            on_add: Some(export("add")),
            on_update: Some(export("update")),
            on_delete: Some(export("delete")),
            generic: Some(Question::Cel(no)),
        };
        let (mut world, exports) = (World::filtered(filters), Fake::default());
        assert_eq!(world.applied("a", 1, &exports).await, ["n/p"]);
        assert_eq!(exports.take(), ["add: added 1"]);
        exports.answers.lock().push_back(Ok(vec!["no"]));
        assert_eq!(world.applied("a", 2, &exports).await, [""; 0]);
        assert_eq!(exports.take(), ["update: updated 2"]);
        assert_eq!(world.applied("a", 9, &exports).await, [""; 0], "the expression says no");
        assert_eq!(exports.take(), [""; 0]);
        world.event(Event::Deleted(object("a", 10)));
        assert_eq!(world.told(&exports).await, ["n/p"]);
        assert_eq!(exports.take(), ["delete: deleted 10"]);
        // Of several changes, none is asked about alone.
        world.event(Event::Applied(object("b", 11)));
        world.event(Event::Deleted(object("b", 12)));
        assert_eq!(world.told(&exports).await, ["n/p"]);
        assert_eq!(exports.take(), [""; 0]);
        assert_eq!(*world.failures.lock(), []);
    }

    #[tokio::test]
    async fn primaries_are_filtered_by_an_export_too() {
        // CF-5
        let mut world = World::of(Role::Primary, Filters { generic: Some(export("any")), ..Filters::default() });
        let exports = Fake::answering([Ok(vec!["no"]), Ok(vec![])]);
        assert_eq!(world.applied("p", 1, &exports).await, [""; 0]);
        assert_eq!(world.applied("p", 2, &exports).await, ["n/p"]);
        assert_eq!(exports.take(), ["any: added 1", "any: updated 2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_filter_that_has_no_answer_lets_pass_and_one_that_takes_too_long_is_not_asked_for_a_while() {
        // IS-1
        let mut world = World::filtered(Filters { generic: Some(export("any")), ..Filters::default() });
        let exports =
            Fake::answering([Err(failure(Cause::Trap)), Err(failure(Cause::Returned)), Err(failure(Cause::Timeout))]);
        for version in 1..=4 {
            assert_eq!(world.applied("a", version, &exports).await, ["n/p"], "{version}");
        }
        assert_eq!(exports.take().len(), 3, "the fourth change passes at once");
        assert_eq!(*world.failures.lock(), [Callback::Filter; 4]);
        tokio::time::advance(Duration::from_secs(1)).await;
        exports.answers.lock().push_back(Ok(vec!["no"]));
        assert_eq!(world.applied("a", 5, &exports).await, [""; 0]);
    }

    #[tokio::test]
    async fn a_mapper_is_asked_once_about_each_version_and_its_answer_is_remembered() {
        // IM-3, IM-4, IM-5
        let mut world = World::mapped();
        let exports = Fake::answering([Ok(vec!["n/p", "q", "m/away"]), Ok(vec!["n/r"])]);
        assert_eq!(world.applied("a", 1, &exports).await, ["n/p", "n/q"], "not those of other namespaces");
        assert_eq!(*world.failures.lock(), [Callback::Mapper], "which is told");
        assert_eq!((world.related("n/p"), world.related("n/r")), (vec!["n/a".to_owned()], vec![]));
        world.source.note(&key("n/a"));
        assert_eq!(world.told(&exports).await, [""; 0]);
        assert_eq!(world.applied("a", 2, &exports).await, ["n/p", "n/q", "n/r"], "those before, too");
        assert_eq!((world.related("n/p"), world.related("n/r")), (vec![], vec!["n/a".to_owned()]));
        world.event(Event::Deleted(object("a", 3)));
        assert_eq!(world.told(&exports).await, ["n/r"]);
        assert_eq!(exports.take(), ["m: n/a@1", "m: n/a@2"]);
        let state = world.source.state.read();
        assert_eq!((state.mapped.len(), state.mapped.bytes(), state.related.len()), (0, 0, 0));
    }

    #[tokio::test]
    async fn those_whose_a_secondary_was_are_told_of_a_change_that_a_write_has_held_back() {
        // IM-5, FW-6
        let exports = Fake::answering([Ok(vec!["n/p"]), Ok(vec!["n/q"])]);
        let mut world = World::mapped();
        assert_eq!(world.applied("s", 1, &exports).await, ["n/p"]);
        let change = world.writer.apply(Event::Applied(object("s", 2))).unwrap();
        let write = world.source.begin(key("n/s"), |_| ());
        assert_eq!(world.source.on(change), []);
        assert_eq!(world.told(&exports).await, [""; 0], "it is held");
        drop(write);
        assert_eq!(world.told(&exports).await, ["n/p", "n/q"]);
    }

    #[tokio::test]
    async fn a_mapper_that_a_swap_has_asked_before_a_change_is_noted_leaves_nobody_out() {
        // IM-5
        let mut world = World::mapped();
        let exports = Fake::answering([Ok(vec!["n/p"]), Ok(vec!["n/r"])]);
        world.applied("a", 1, &exports).await;
        let change = world.writer.apply(Event::Applied(object("a", 2))).unwrap();
        world.source.note(&key("n/a"));
        assert_eq!(world.told(&exports).await, [""; 0]);
        assert_eq!(world.source.on(change), []);
        assert_eq!(world.told(&exports).await, ["n/p", "n/r"]);
        world.source.note(&key("n/a"));
        assert_eq!((world.applied("a", 3, &exports).await, exports.take().len()), (vec!["n/r".to_owned()], 3));
    }

    #[tokio::test]
    async fn a_secondary_that_was_gone_before_it_could_be_asked_about_is_asked_about_as_it_was() {
        // IM-5
        let mut world = World::mapped();
        world.event(Event::Applied(object("a", 1)));
        world.event(Event::Deleted(object("a", 2)));
        let exports = Fake::answering([Ok(vec!["n/p"])]);
        assert_eq!(world.told(&exports).await, ["n/p"]);
        assert_eq!(exports.take(), ["m: n/a@2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_mapper_that_fails_keeps_what_was_known_and_is_asked_again() {
        // IM-3
        let mut world = World::mapped();
        let exports = Fake::answering([Ok(vec!["n/p"])]);
        world.applied("a", 1, &exports).await;
        exports.answers.lock().extend([Err(failure(Cause::Trap)), Err(failure(Cause::Trap)), Ok(vec!["n/q"])]);
        assert_eq!(world.applied("a", 2, &exports).await, ["n/p"]);
        assert_eq!(world.related("n/p"), ["n/a"]);
        let start = Instant::now();
        assert_eq!(world.told_next(&exports).await, ["n/p"], "it fails again");
        assert_eq!(world.told_next(&exports).await, ["n/p", "n/q"]);
        assert_eq!(start.elapsed().as_secs(), 3);
        assert_eq!(world.related("n/q"), ["n/a"]);
        assert_eq!(*world.failures.lock(), [Callback::Mapper; 2]);
        // What is gone is not asked about any more.
        exports.answers.lock().push_back(Err(failure(Cause::Trap)));
        world.applied("a", 3, &exports).await;
        world.event(Event::Deleted(object("a", 4)));
        world.told(&exports).await;
        assert_eq!(world.source.state.read().patience.next(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_deletion_of_which_nobody_can_say_whom_it_concerns_is_told_to_all() {
        // IM-3
        let mut pages = World::of(Role::Primary, Filters::default());
        let page = pages.writer.apply(Event::Applied(object("page", 1))).unwrap();
        assert_eq!(pages.source.on(page).len(), 1);
        let World { source, writer, failures } = World::mapped();
        let mut world = World { source: source.beside(&Arc::new(pages.source)), writer, failures };
        let exports = Fake::answering([Err(failure(Cause::Trap)), Err(failure(Cause::Trap))]);
        assert_eq!(world.applied("a", 2, &exports).await, [""; 0]);
        world.event(Event::Deleted(object("a", 3)));
        assert_eq!(world.told(&exports).await, ["n/page"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_with_very_many_or_impossible_keys_is_none() {
        // IM-3
        let mut world = World::mapped();
        let long: &'static str = format!("n/{}", "x".repeat(1000)).leak();
        let exports = Fake::answering([Ok(vec!["n/p"; MOST + 1]), Ok(vec![long, "n/p"])]);
        assert_eq!(world.applied("a", 1, &exports).await, [""; 0]);
        assert_eq!(*world.failures.lock(), [Callback::Mapper]);
        assert_eq!(world.applied("b", 2, &exports).await, ["n/p"]);
        assert_eq!(world.source.whose(&object("b", 2)).len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_takes_too_long_to_map_holds_up_the_others_for_a_moment_only() {
        // IM-3
        let mut world = World::mapped();
        let exports = Fake::answering([Err(failure(Cause::Timeout)), Ok(vec!["n/p"]), Ok(vec!["n/q"])]);
        assert_eq!(world.applied("a", 1, &exports).await, [""; 0]);
        for (name, version) in [("b", 2), ("c", 3)] {
            assert_eq!(world.applied(name, version, &exports).await, [""; 0], "it is not asked now");
        }
        let doubt = |world: &World| world.source.known(Within::Related(&key("n/p"))).map_err(|doubt| doubt.to_string());
        assert!(doubt(&world).unwrap_err().ends_with("it rests for a while"), "that is not to have none");
        let start = Instant::now();
        assert_eq!(world.told_next(&exports).await, ["n/p", "n/q"]);
        assert!(doubt(&world).unwrap_err().ends_with("its first list is not complete"), "of this all is known");
        assert_eq!(
            (start.elapsed().as_secs(), exports.take()),
            (1, ["m: n/a@1", "m: n/b@2", "m: n/c@3"].map(str::to_owned).to_vec())
        );
        exports.answers.lock().push_back(Ok(vec!["n/r"]));
        assert_eq!(world.told_next(&exports).await, ["n/r"]);
        assert_eq!(start.elapsed().as_secs(), 2);
    }

    #[tokio::test]
    async fn another_component_is_asked_about_everything_anew() {
        // IM-3
        let mut world = World::mapped();
        world.swapped(1);
        let first = Fake { edition: 1, ..Fake::answering([Ok(vec!["n/p"])]) };
        world.applied("a", 1, &first).await;
        world.swapped(1);
        assert_eq!(world.told(&first).await, [""; 0], "the same version");
        world.swapped(2);
        assert_eq!(world.related("n/p"), ["n/a"], "until then, what was known");
        // What the one before says counts until the new one has said it.
        first.answers.lock().push_back(Ok(vec!["n/q"]));
        assert!(world.source.ask(&first).await.is_some());
        let second = Fake { edition: 2, ..Fake::answering([Ok(vec!["n/r"])]) };
        assert_eq!(world.told(&second).await, [""; 0]);
        assert_eq!(
            (world.related("n/p"), world.related("n/q"), world.related("n/r")),
            (vec![], vec![], vec!["n/a".to_owned()])
        );
    }

    #[tokio::test]
    async fn a_change_that_was_asked_of_the_component_before_is_told_to_whom_the_next_one_names() {
        // IM-3, IM-5
        let mut world = World::mapped();
        world.swapped(2);
        let first = Fake { edition: 1, ..Fake::answering([Ok(vec!["n/p"])]) };
        world.event(Event::Applied(object("a", 1)));
        let told = world.source.ask(&first).await.unwrap();
        assert_eq!(told.iter().map(|trigger| trigger.primary.to_string()).collect::<Vec<_>>(), ["n/p"]);
        let second = Fake { edition: 2, ..Fake::answering([Ok(vec!["n/r"])]) };
        assert_eq!(world.told(&second).await, ["n/p", "n/r"]);
        assert_eq!((world.related("n/p"), world.related("n/r")), (vec![], vec!["n/a".to_owned()]));
    }

    #[tokio::test]
    async fn a_run_of_the_version_before_asks_about_nothing_of_which_something_is_known() {
        // IM-3, IM-4
        let mut world = World::mapped();
        world.swapped(1);
        let first = Fake { edition: 1, ..Fake::answering([Ok(vec!["n/p"])]) };
        world.applied("a", 1, &first).await;
        world.event(Event::Applied(object("b", 2)));
        world.swapped(2);
        first.take();
        first.answers.lock().push_back(Ok(vec!["n/p"]));
        for _ in 0..2 {
            assert_eq!(world.source.heed(&key("n/p"), &first).await, Ok(()));
        }
        assert_eq!(first.take(), ["m: n/b@2"], "of which nothing is known");
        assert_eq!(world.related("n/p"), ["n/a", "n/b"]);

        let (world, _) = led(mapper(Declared::OwnerReference));
        world.swapped(2);
        for _ in 0..2 {
            assert_eq!(world.source.heed(&key("n/p"), &first).await, Ok(()));
        }
        assert_eq!(first.take(), ["l: n/p@1"]);
    }

    #[tokio::test]
    async fn what_is_being_asked_about_is_asked_by_the_heir_if_nobody_waits_for_the_answer() {
        // PO-3
        for mut world in
            [World::mapped(), World::filtered(Filters { generic: Some(export("any")), ..Filters::default() })]
        {
            world.event(Event::Applied(object("a", 1)));
            let hangs = Fake { hangs: true, ..Fake::default() };
            assert!(world.source.ask(&hangs).now_or_never().is_none());
            let heir = Source::heir(world.source.spec().clone(), &world.source);
            heir.attach(None, world.writer.cache());
            world.source.hand_over(&[&heir]);
            let world = World { source: heir, ..world };
            let exports =
                if world.source.maps_by_export() { Fake::answering([Ok(vec!["n/p"])]) } else { Fake::default() };
            assert_eq!(world.told(&exports).await, ["n/p"]);
        }
    }

    #[tokio::test]
    async fn a_run_waits_for_mappers_and_not_for_filters() {
        // IX-2
        let hangs = Fake { hangs: true, ..Fake::default() };
        for (mut world, waits) in [
            (World::mapped(), true),
            (World::filtered(Filters { generic: Some(export("any")), ..Filters::default() }), false),
        ] {
            world.event(Event::Applied(object("a", 1)));
            let mut asking = Box::pin(world.source.ask(&hangs));
            assert!(asking.as_mut().now_or_never().is_none());
            assert_eq!(world.source.settled().now_or_never().is_none(), waits);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_waits_for_what_may_concern_its_primary_and_no_longer_than_its_reads_can_do_without() {
        // IX-2
        let hangs = Fake { hangs: true, ..Fake::default() };
        let mut world = World::mapped();
        let waited = async |world: &World, primary: Option<&str>| {
            let start = Instant::now();
            let primary = primary.map(key);
            world.source.settled_for(primary.as_ref()).await;
            start.elapsed()
        };
        assert_eq!(waited(&world, Some("n/p")).await, Duration::ZERO);
        world.event(Event::Applied(object("a", 1)));
        assert!(world.source.ask(&hangs).now_or_never().is_none());
        world.event(Event::Applied(object("b", 2)));
        assert_eq!(waited(&world, Some("m/p")).await, Duration::ZERO, "they are in another namespace");
        assert_eq!((waited(&world, Some("n/p")).await, waited(&world, None).await), (MOMENT, MOMENT));
        for n in 0..u64::try_from(MANY).unwrap() {
            world.event(Event::Applied(object(&format!("c{n}"), 3 + n)));
        }
        let waits = tokio::time::timeout(10 * MOMENT, waited(&world, Some("n/p"))).await;
        assert!(waits.is_err(), "no read can ask about so many");
        // Whose primaries they are is known without a question; what is asked is only whom it wakes.
        let mut world = World::of(Role::Primary, Filters { generic: Some(export("any")), ..Filters::default() });
        world.event(Event::Applied(object("p", 1)));
        world.event(Event::Applied(object("q", 2)));
        assert!(world.source.ask(&hangs).now_or_never().is_none());
        assert_eq!(waited(&world, Some("n/p")).await, Duration::ZERO);
    }

    #[tokio::test]
    async fn what_was_said_of_an_own_write_is_forgotten_with_it() {
        // OV-5, IM-3
        let mut world = World::mapped();
        let exports = Fake::answering([Ok(vec!["n/p"])]);
        let known = |world: &World| world.source.state.read().mapped.len();
        world.source.put(object("a", 5));
        world.source.heed(&key("n/p"), &exports).await.unwrap();
        assert_eq!(known(&world), 1);
        world.writer.apply(Event::Bookmark(Version(5)));
        assert_eq!(world.source.passed(None), []);
        assert_eq!(known(&world), 0, "the watch never shows it");
        // It goes while it is asked about.
        world.source.put(object("a", 7));
        let (gone, exports) = (world.source.get(&key("n/a")).unwrap(), Fake::answering([Ok(vec!["n/p"])]));
        world.writer.apply(Event::Bookmark(Version(7)));
        world.source.passed(None);
        world.source.map(&gone, &exports).await;
        assert_eq!(known(&world), 0);
    }

    #[tokio::test]
    async fn a_run_has_that_asked_which_it_has_just_written() {
        // OV-1, IM-6
        let world = World::mapped();
        let exports = Fake::answering([Ok(vec!["n/p"])]);
        world.source.put(object("a", 5));
        assert_eq!(world.related("n/p"), [""; 0]);
        for _ in 0..2 {
            assert_eq!(world.source.heed(&key("n/p"), &exports).await, Ok(()));
        }
        assert_eq!(world.related("n/p"), ["n/a"]);
        assert_eq!(exports.take(), ["m: n/a@5"]);
    }

    #[tokio::test]
    async fn a_read_that_can_not_have_the_component_asked_takes_nothing_for_absent_that_it_has_not_said() {
        // IM-3, IM-4, PP-2
        let doubt = |world: &World| world.source.heeded(&key("n/p")).map_err(|doubt| doubt.to_string());
        let mut world = World::mapped();
        assert_eq!(doubt(&world), Ok(()), "there is nothing to be asked about");
        world.event(Event::Applied(object("a", 1)));
        let why = doubt(&world).unwrap_err();
        assert!(why.ends_with("its `mapper` has not been asked about a yet"), "{why}");
        let exports = Fake::answering([Ok(vec!["n/p"])]);
        world.told(&exports).await;
        assert_eq!(doubt(&world), Ok(()));
        world.source.put(object("a", 5));
        assert!(doubt(&world).is_err(), "it was just written");
        world.source.heed(&key("n/p"), &exports).await.unwrap();
        assert_eq!(doubt(&world), Ok(()));

        let (world, _) = led(mapper(Declared::OwnerReference));
        assert!(
            doubt(&world).unwrap_err().ends_with("its `secondaries` has not been asked about this version of it yet")
        );
        world.source.heed(&key("n/p"), &exports).await.unwrap();
        assert_eq!(doubt(&world), Ok(()));
        let primaries = world.source.primaries.as_ref().unwrap();
        primaries.put(object("p", 7));
        assert!(doubt(&world).is_err(), "it says what the version before had");
        assert_eq!(world.source.heeded(&key("n/gone")), Ok(()));
    }

    /// Returns a source whose objects a primary names by an export, beside the primary `n/p`.
    fn led(mapper: Mapper) -> (World, World) {
        let mut primaries = World::of(Role::Primary, Filters::default());
        primaries.writer.start_list();
        let change = primaries.writer.list_item(object("p", 1)).unwrap();
        primaries.source.on(change);
        primaries.writer.finish_list(Version(1));
        let mut world = World::of(
            Role::Secondary(mapper.led_by(Secondaries::Export("l".into()), Scope::Namespaced)),
            Filters::default(),
        );
        let beside = Arc::new(primaries.source);
        world.source = world.source.beside(&beside);
        let primaries = World::of(Role::Primary, Filters::default());
        (world, primaries)
    }

    #[tokio::test]
    async fn a_primary_is_asked_for_its_secondaries_by_the_first_run_that_reads_them() {
        // IM-4, IM-6
        let (mut world, _) = led(mapper(Declared::OwnerReference));
        let change = world.writer.apply(Event::Applied(object("a", 2))).unwrap();
        world.source.on(change);
        let known = |world: &World| world.source.known(Within::Related(&key("n/p"))).map_err(|doubt| doubt.to_string());
        assert!(known(&world).unwrap_err().ends_with("its `secondaries` has not been asked about it yet"));
        let exports = Fake::answering([Err(failure(Cause::Trap)), Ok(vec!["a", "n/gone", "m/away"])]);
        let doubt = world.source.heed(&key("n/p"), &exports).await.unwrap_err().to_string();
        assert!(doubt.ends_with("its `secondaries` has no answer: no way"), "{doubt}");
        assert_eq!(*world.failures.lock(), [Callback::Mapper]);
        for _ in 0..2 {
            assert_eq!(world.source.heed(&key("n/p"), &exports).await, Ok(()));
        }
        assert_eq!(world.related("n/p"), ["n/a"]);
        assert_eq!(exports.take(), ["l: n/p@1", "l: n/p@1"], "once with success");
        assert_eq!(
            (world.related("n/q"), world.source.heed(&key("n/q"), &exports).await),
            (vec![], Ok(())),
            "there is no such primary"
        );
    }

    #[tokio::test]
    async fn a_mapper_that_may_rest_on_primaries_is_asked_about_both_versions() {
        // IM-5
        let (mut world, _) = led(mapper(Declared::Export("m".into())));
        let exports = Fake::answering([Ok(vec!["n/p"]), Ok(vec!["n/p"]), Ok(vec!["n/q"])]);
        assert_eq!(world.applied("a", 1, &exports).await, ["n/p"]);
        assert_eq!(world.applied("a", 2, &exports).await, ["n/p", "n/q"]);
        assert_eq!(exports.take(), ["m: n/a@1", "m: n/a@1", "m: n/a@2"]);
    }

    #[tokio::test]
    async fn answers_that_find_no_room_are_not_known() {
        // IX-2
        let room = crate::room::Room::new(0);
        let mut world = World::mapped();
        world.source = world.source.charging(|| Some(room.holding(&"p".into())));
        let many = |n: usize| (0..n).map(|n| key(&format!("p{n}"))).collect::<BTreeSet<_>>();
        world.source.state.write().mapped.keep(&object("a", 1), many(5000), true);
        world.event(Event::Applied(object("a", 1)));
        let told = world.told(&Fake::default()).await;
        assert_eq!(told.len(), 5000, "all are told of it");
        let doubt = world.source.known(Within::Related(&key("n/p"))).unwrap_err().to_string();
        assert!(doubt.contains("--plugin-memory"), "{doubt}");
        let mut state = world.source.state.write();
        assert_eq!(state.mapped.len(), 0);
        assert!(!state.keep_led(&object("p", 1), many(9000), true) && state.led.len() == 0);
        assert!(state.keep_led(&object("p", 1), many(3), true) && state.led.len() == 1);
    }
}
