//! Plays the component: `desired` follows from the primary alone, `reconcile` reports what it saw; it may misbehave.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::guest::ObjectTarget;
use capstan_core::guest::{
    Answer, Call, CallError, Cause, Context, DeleteControl, Failure, Guest, Interface, Lifetime, Place, PrimaryUpdate,
    Session, UpdateControl, WriteMode, WriteOptions, WriteRequest, WriteVerb,
};
use capstan_core::object::{Gvk, ObjectRef};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::plan::Whim;
use crate::stage::{Key, Known, Running, Seen, Stage};
use crate::world::{DEPENDENTS, Dependent, MAPS, THINGS, Thing};

/// The longest time that a call may take.
const LONGEST: Duration = Duration::from_secs(5);

/// The component.
pub(crate) struct Script {
    pub(crate) stage: Arc<Stage>,
    /// True if it exports `cleanup`.
    pub(crate) cleaner: bool,
    /// True if the controller may start, or go on, without something.
    pub(crate) goes_on: bool,
    pub(crate) digest: String,
}

/// One run of the component.
struct Scene {
    stage: Arc<Stage>,
    run: Arc<dyn Context>,
    key: Key,
    goes_on: bool,
    _running: Option<Running>,
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Script({})", self.digest)
    }
}

impl Guest for Script {
    fn open(&self, run: Arc<dyn Context>) -> Box<dyn Session> {
        let key = key_of(&run);
        let running = Some(self.stage.begin(key.clone(), run.info().retry));
        self.scene(run, key, running)
    }

    fn open_nested(&self, run: Arc<dyn Context>) -> Box<dyn Session> {
        let key = key_of(&run);
        self.scene(run, key, None)
    }

    fn exports(&self, interface: Interface) -> bool {
        match interface {
            Interface::Reconciler | Interface::Dependent => true,
            Interface::Cleaner => self.cleaner,
            Interface::ErrorHandler
            | Interface::RetryPolicy
            | Interface::Validator
            | Interface::Initializer
            | Interface::Bulk
            | Interface::External
            | Interface::Matcher
            | Interface::Condition
            | Interface::Poller
            | Interface::ResourcePoller
            | Interface::Inbound
            | Interface::Filter
            | Interface::Mapper
            | Interface::SecondaryMapper
            | Interface::Description => false,
        }
    }
}

fn key_of(run: &Arc<dyn Context>) -> Key {
    let primary = run.info().primary;
    primary.map_or_else(Key::default, |primary| {
        let namespace = primary.namespace.as_deref().unwrap_or_default();
        (namespace.to_owned(), primary.name.to_string())
    })
}

impl Script {
    fn scene(&self, run: Arc<dyn Context>, key: Key, running: Option<Running>) -> Box<dyn Session> {
        Box::new(Scene { stage: Arc::clone(&self.stage), run, key, goes_on: self.goes_on, _running: running })
    }
}

impl Session for Scene {
    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<Answer, Failure>> {
        async move {
            match call {
                Call::Reconcile { primary } => self.reconcile(primary).await.map(Answer::Reconcile),
                Call::Cleanup { primary } => self.cleanup(primary).await.map(Answer::Cleanup),
                Call::Desired { name, primary } => self.desired(name, primary).await.map(Answer::Desired),
                Call::Start
                | Call::HandleError { .. }
                | Call::DecideRetry { .. }
                | Call::Validate { .. }
                | Call::Initialize { .. }
                | Call::DesiredSet { .. }
                | Call::Create { .. }
                | Call::Update { .. }
                | Call::Remove { .. }
                | Call::Match { .. }
                | Call::IsMet { .. }
                | Call::Poll { .. }
                | Call::PollOne { .. }
                | Call::Receive { .. }
                | Call::Accepts { .. }
                | Call::ToPrimaries { .. }
                | Call::ToSecondaries { .. }
                | Call::Describe { .. } => Err(Failure::other("nobody asks")),
            }
        }
        .boxed()
    }
}

impl Scene {
    async fn reconcile(&self, primary: &str) -> Result<UpdateControl, Failure> {
        let primary: Value = serde_json::from_str(primary).unwrap_or_default();
        self.look(&primary).await;
        let mut reschedule = None;
        if let Some(whim) = self.stage.next_whim(false) {
            let again = tokio::time::timeout(LONGEST, self.act(whim)).await;
            if matches!(whim, Whim::Fail | Whim::Trap) {
                self.stage.fails(&self.key);
            }
            reschedule = again.map_err(|_| Failure::new(Cause::Timeout, "it takes too long"))??;
        }
        let generation = &primary["metadata"]["generation"];
        self.stage.note(format!("{:?} has seen generation {generation}", self.key));
        let status = json!({ "observedGeneration": generation, "value": primary["spec"]["value"] });
        self.stage.answers(&self.key, primary["status"] != status);
        let update = PrimaryUpdate::Status(json!({ "status": status }).to_string());
        Ok(UpdateControl { update, reschedule })
    }

    async fn cleanup(&self, primary: &str) -> Result<DeleteControl, Failure> {
        let primary: Value = serde_json::from_str(primary).unwrap_or_default();
        self.look(&primary).await;
        self.stage.note(format!("{:?} cleans up", self.key));
        if let Some(whim) = self.stage.next_whim(false) {
            let done = tokio::time::timeout(LONGEST, self.act(whim)).await;
            done.map_err(|_| Failure::new(Cause::Timeout, "it takes too long"))??;
        }
        Ok(DeleteControl::RemoveFinalizer)
    }

    async fn desired(&self, name: &str, primary: &str) -> Result<String, Failure> {
        let primary: Value = serde_json::from_str(primary).unwrap_or_default();
        self.look(&primary).await;
        if let Some(whim) = self.stage.next_whim(true) {
            // How the run ends depends on its other dependents, too: if one can't be written for want of the API server, it waits
            // for that.
            self.act(whim).await?;
        }
        let mut dependents = DEPENDENTS.into_iter().chain([Dependent::More]);
        let dependent = dependents.find(|one| one.name() == name);
        let dependent = dependent.ok_or_else(|| Failure::other(name))?;
        Ok(dependent.desired(&primary).to_string())
    }

    /// Does what the whim says, and returns the time after which it asks to run again.
    async fn act(&self, whim: Whim) -> Result<Option<Duration>, Failure> {
        self.stage.note(format!("{:?} does {whim:?}", self.key));
        match whim {
            Whim::Trap | Whim::TrapDesired => return Err(Failure::new(Cause::Trap, "unreachable")),
            Whim::Fail | Whim::FailDesired => return Err(Failure::new(Cause::Returned, "it does not work")),
            Whim::Wait(time) => sleep(time).await,
            // A write to its own primary does not trigger it.
            Whim::Poke(other, _) if (other.namespace(), other.name()) == self.names() => {}
            Whim::Poke(other, number) => {
                let patch = json!({ "spec": { "poked": number } });
                let target = thing(ObjectRef::namespaced(other.namespace(), other.name()))?;
                let verb = WriteVerb::MergePatch(target, patch.to_string());
                self.write(verb).await?;
            }
            Whim::Make(other, number) => {
                let object = Thing::object(other, number, false);
                let key = (other.namespace().to_owned(), other.name().to_owned());
                if self.stage.model.object(THINGS, Some(&key.0), &key.1).is_none() {
                    self.stage.created(&key);
                }
                self.write(WriteVerb::Create(object.to_string())).await?;
            }
            Whim::Hide(number) => {
                let object = json!({
                    "apiVersion": THINGS.api_version,
                    "kind": THINGS.kind,
                    "metadata": { "namespace": self.key.0, "name": format!("hidden-{number}") },
                    "spec": { "value": number },
                });
                self.write(WriteVerb::Create(object.to_string())).await?;
            }
            Whim::Other(number) => {
                let object = json!({
                    "apiVersion": MAPS.api_version,
                    "kind": MAPS.kind,
                    "metadata": { "namespace": self.key.0, "name": format!("other-{}", self.key.1) },
                    "data": { "number": number.to_string() },
                });
                self.write(WriteVerb::Apply(object.to_string())).await?;
            }
            Whim::Tidy => {
                let done = self.run.remove_finalizer(Some("sim.dev/none".to_owned()));
                done.await.map_err(|error| returned(&error))?;
            }
            Whim::Mark => {
                let patch = json!({ "metadata": { "labels": { "watched": "yes" } } });
                let own = ObjectRef::namespaced(&self.key.0, &self.key.1);
                let now = self.stage.model.object(THINGS, Some(&self.key.0), &self.key.1).unwrap_or_default();
                let verb = WriteVerb::MergePatch(thing(own)?, patch.to_string());
                let options = WriteOptions { mode: WriteMode::ForceFilter, ..WriteOptions::default() };
                let marked = self.send(WriteRequest { verb, options }).await?;
                if now["metadata"]["labels"]["watched"] != "yes" {
                    self.stage.hush(version(&marked));
                }
            }
            Whim::Again(after) => return Ok(Some(after)),
        }
        Ok(None)
    }

    async fn write(&self, verb: WriteVerb) -> Result<(), Failure> {
        let options = WriteOptions::default();
        self.send(WriteRequest { verb, options }).await.map(drop)
    }

    async fn send(&self, request: WriteRequest) -> Result<Value, Failure> {
        let done = self.run.write(request).await;
        let answer = done.map_err(|error| returned(&error))?;
        let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
        self.stage.met(text(&answer, "uid"));
        Ok(answer)
    }

    fn names(&self) -> (&str, &str) {
        (&self.key.0, &self.key.1)
    }

    /// Compares what this run reads with what earlier runs have read.
    async fn look(&self, primary: &Value) {
        let (key, stage) = (&self.key, &self.stage);
        let uid = text(primary, "uid").to_owned();
        let version = version(primary);
        let known = stage.seen(key).filter(|seen| seen.uid == uid);
        if known.is_none() {
            self.first(&uid);
        }
        if let Some(wrong) = stage.is_about(key, &uid) {
            stage.wrong(wrong);
        }
        let mut seen = known.unwrap_or_default();
        if version < seen.version {
            let before = seen.version;
            stage.wrong(format!("a run of {key:?} sees version {version}, one before it has seen {before}"));
        }
        if let Some(own) = stage.written(key, THINGS.kind, &key.1).filter(|own| version < own.version) {
            let own = own.version;
            stage.wrong(format!("a run of {key:?} sees version {version}, and what was written before it is {own}"));
        }
        seen.uid.clone_from(&uid);
        seen.version = version.max(seen.version);
        seen.generation = primary["metadata"]["generation"].as_u64().unwrap_or_default();
        if stage.watches(&key.0) {
            // One that does not take part has no objects to look at.
            for dependent in DEPENDENTS.into_iter().filter(|one| one.is_deleted() || one.is_wanted(primary)) {
                self.look_at(dependent, &mut seen).await;
            }
        }
        stage.see(key, seen);
        self.remember(&uid);
    }

    /// Looks at a dependent: one that a run has read, or that was written before this run, has to be there until it is
    /// deleted, and no older.
    async fn look_at(&self, dependent: Dependent, seen: &mut Seen) {
        let (namespace, name) = (&self.key.0, dependent.object_name(&self.key.1));
        let there = self.stage.model.object(MAPS, Some(namespace), &name);
        let place = Place::Source(dependent.name().to_owned());
        let found = self.run.find_named(place, ObjectRef::namespaced(namespace, &name)).await;
        // An object that may be there is refused by name, and not shown as absent.
        let Ok(found) = found else { return };
        let found: Option<Value> = found.and_then(|text| serde_json::from_str(&text).ok());
        let written = self.stage.written(&self.key, MAPS.kind, &name);
        let known = [(seen.dependents.get(dependent.name()), "read"), (written.as_ref(), "written")];
        for (known, how) in known {
            let same = |known: &&Known| there.as_ref().is_some_and(|there| text(there, "uid") == known.uid);
            let Some(known) = known.filter(same) else { continue };
            let now = found.as_ref().filter(|found| text(found, "uid") == known.uid);
            let now = now.map(version);
            if now.is_none_or(|now| now < known.version) {
                self.stage.wrong(format!(
                    "a run of {:?} reads {name} at version {now:?}, and what was {how} before is {}",
                    self.key, known.version
                ));
            }
        }
        if let Some(found) = found {
            let known = Known { uid: text(&found, "uid").to_owned(), version: version(&found) };
            seen.dependents.insert(dependent.name(), known);
        }
    }

    /// Looks at the first run of a primary that is new, or new to the daemon.
    fn first(&self, uid: &str) {
        let now = self.stage.model.object(THINGS, Some(&self.key.0), &self.key.1);
        if now.is_none_or(|now| now["metadata"]["uid"] != uid) {
            // It is gone, and what is counted is that of the one after it, which may be gone, too.
            return;
        }
        let attempt = self.run.info().retry.map_or(0, |retry| retry.attempt);
        // A controller that is without something has runs that fail before the component is asked.
        let early = if self.goes_on { self.stage.runs(&self.key).saturating_sub(1) } else { 0 };
        // An object that a component writes to by its name is known by the answer, before a watch shows that it was
        // created again.
        if !self.stage.has_met(uid) && attempt > self.stage.refused(&self.key) + early {
            self.stage.wrong(format!("the first run of {:?} with uid {uid} is attempt {attempt}", self.key));
        }
    }

    /// Keeps the uid as a memo: a primary with another uid must not find it.
    fn remember(&self, uid: &str) {
        let known = self.run.memo(Lifetime::Primary, "uid");
        if known.as_deref().is_some_and(|known| known != uid) {
            self.stage.wrong(format!("a run of {:?} with uid {uid} finds a memo of {known:?}", self.key));
        }
        let kept = self.run.set_memo(Lifetime::Primary, "uid", Some(uid.to_owned()));
        if let Err(error) = kept {
            self.stage.wrong(format!("a memo is not kept: {error}"));
        }
    }
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

fn version(object: &Value) -> u64 {
    text(object, "resourceVersion").parse().unwrap_or_default()
}

fn returned(error: &CallError) -> Failure {
    Failure::new(Cause::Returned, &error.message)
}

fn other_failure(error: impl fmt::Display) -> Failure {
    Failure::other(error.to_string())
}

/// Returns a primary as the target of a write.
fn thing(key: ObjectRef) -> Result<ObjectTarget, Failure> {
    let gvk = Gvk::parse(THINGS.api_version, THINGS.kind).map_err(other_failure)?;
    Ok(ObjectTarget { gvk, key })
}
