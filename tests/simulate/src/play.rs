//! Plays a simulation: carries out the plan, then lets nothing go wrong any more, and checks the result.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use capstan_core::object::MARK;
use model::{Cut, Denied, Fault, Loss, Model};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::daemon::Daemon;
use crate::folder::Folder;
use crate::panics;
use crate::plan::{Act, CHAOS, Kind, Part, Plan, Verb, Wrong};
use crate::stage::Stage;
use crate::verdict;
use crate::world::{self, Dependent, MAPS, OnStartError, THINGS, Thing, Variant};

mod calm;

/// The interval of the garbage collector.
const COLLECT: Duration = Duration::from_millis(300);

/// All counts as quiet when nothing has been written for this long. A watch that got no answer is asked for again
/// after 30 s, and gets a bookmark after a minute more.
const QUIET: Duration = Duration::from_secs(100);

/// The same where no write is expected.
const SHORTLY: Duration = Duration::from_secs(15);

/// The longest wait until all is quiet.
const PATIENCE: Duration = Duration::from_mins(8);

/// The result of a simulation.
#[derive(Clone, Debug)]
pub(crate) struct Played {
    /// The first thing that was wrong; `None` if nothing was.
    pub(crate) wrong: Option<String>,
    /// The log of what has happened.
    pub(crate) lines: Vec<String>,
}

/// Something that is due.
#[derive(Clone, Debug)]
enum Due {
    Act(Act),
    Start,
    End(Wrong),
    Collect,
}

struct Play<'a> {
    plan: &'a Plan,
    stage: Arc<Stage>,
    folder: Arc<Folder>,
    daemon: Option<Daemon>,
    starts: u64,
    variant: Variant,
    due: BTreeMap<(Instant, u64), Due>,
    number: u64,
    /// Primaries that were deleted with force: the daemon is not to blame for what they leave behind.
    forced: BTreeSet<String>,
    /// Primaries whose finalizers somebody has removed.
    stripped: BTreeSet<String>,
    /// Objects of which somebody has removed what says whose they are, with the uid of that primary.
    robbed: BTreeMap<String, Value>,
}

/// Plays a simulation on a runtime of its own.
pub(crate) fn play(plan: &Plan) -> Played {
    panics::watch();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without threads can be made");
    runtime.block_on(async {
        let mut play = Play::new(plan);
        play.run().await;
        if let Some(panic) = panics::take() {
            play.stage.wrong(panic);
        }
        Played { wrong: play.stage.is_wrong(), lines: play.stage.lines() }
    })
}

impl<'a> Play<'a> {
    fn new(plan: &'a Plan) -> Self {
        let model = Model::new(plan.seed);
        model.install(&world::definition());
        for name in ["a", "b"] {
            let metadata = json!({ "name": name });
            model.put(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata }));
        }
        let stage = Arc::new(Stage::new(model, plan));
        stage.model.on_request({
            let stage = Arc::downgrade(&stage);
            move |asked| stage.upgrade().map_or(Fault::None, |stage| stage.decide(asked))
        });
        for which in [THINGS, MAPS] {
            stage.model.delay(which, plan.lag);
        }
        Self {
            plan,
            folder: Folder::new(&stage, plan.setup),
            stage,
            daemon: None,
            starts: 0,
            variant: Variant::Usual,
            due: BTreeMap::new(),
            number: 0,
            forced: BTreeSet::new(),
            stripped: BTreeSet::new(),
            robbed: BTreeMap::new(),
        }
    }

    async fn run(&mut self) {
        let begun = Instant::now();
        let steps = self.plan.steps.clone();
        for step in steps {
            self.at(begun + step.at, Due::Act(step.act));
        }
        self.at(begun, Due::Collect);
        self.at(begun, Due::Start);
        self.until(begun + CHAOS + Duration::from_secs(5)).await;
        self.heal();
        if self.plan.setup.attempts.is_some() || self.plan.defaces() {
            self.wake(7777);
        }
        self.revive().await;
        if self.plan.renames() {
            // Each primary gets and loses finalizers at its next run.
            self.until(Instant::now() + Duration::from_secs(40)).await;
            self.wake(8888);
        }
        let quiet = self.quiet(QUIET).await;
        if !quiet {
            self.stage.wrong("the daemon goes on writing");
        }
        self.judge(verdict::settled(&self.stage.model, self.plan.setup));
        self.judge(verdict::unseen(&self.stage, self.plan.setup));
        self.own_writes();
        if self.stage.is_wrong().is_some() {
            return;
        }
        for (before, after) in [(Variant::Usual, self.plan.last), (self.plan.last, Variant::Usual)] {
            self.swap_only(before, after).await;
        }
        self.edit_all().await;
        if self.stage.is_wrong().is_some() {
            return;
        }
        self.calm().await;
        self.lack().await;
        if self.stage.is_wrong().is_some() {
            return;
        }
        self.delete_all().await;
    }

    /// Edits all primaries: nothing but an event makes those run whose retries are used up, or whose status somebody has changed.
    fn wake(&self, number: u64) {
        for thing in Thing::all() {
            self.set(thing, "poked", number.into());
        }
    }

    /// Starts the daemon anew if its controller has ended because something that it needs could not be listed when it
    /// started: nothing else starts it again.
    async fn revive(&mut self) {
        if self.plan.setup.hurry != Some(OnStartError::Fail) {
            return;
        }
        // One that has started just before may end yet, once a request without an answer is given up.
        for _ in 0..4 {
            self.until(Instant::now() + Duration::from_secs(10)).await;
            if self.state()["phase"] == "failed" {
                self.end().await;
                self.start();
            }
        }
    }

    /// Changes the manifest, and checks that nothing is written, and that only those primaries run that the change
    /// concerns.
    async fn swap_only(&mut self, before: Variant, after: Variant) {
        self.stage.note(format!("=== the manifest is {after:?}"));
        let written = self.stage.writes();
        self.stage.take_runs();
        self.swap(after);
        let quiet = self.quiet(SHORTLY).await;
        let written = self.stage.writes() - written;
        if written > 0 || !quiet {
            self.stage.wrong(format!("{written} writes where none is needed"));
        }
        let quietly = self.plan.setup.quiet_swap || after.runs_as(before);
        for key in self.stage.take_runs() {
            let comes = after.watches(&key.0) && !before.watches(&key.0);
            if quietly && !comes {
                self.stage.wrong(format!("{key:?} runs for nothing"));
            }
        }
    }

    /// Edits all primaries, and checks that hardly more is written than has to be: a tenth at most.
    async fn edit_all(&mut self) {
        self.stage.note("=== all primaries are edited");
        let model = self.stage.model.clone();
        let before = self.stage.writes();
        let mut needed = 0;
        for thing in Thing::all() {
            let edited = model.edit(THINGS, Some(thing.namespace()), thing.name(), |object| {
                object["spec"]["value"] = 5000.into();
            });
            if let Some(object) = self.object(thing).filter(|_| edited) {
                let wanted = world::DEPENDENTS.iter().filter(|dependent| dependent.is_wanted(&object));
                needed += wanted.count() as u64 + 1;
            }
        }
        let quiet = self.quiet(QUIET).await;
        let written = self.stage.writes() - before;
        if written * 10 > needed * 11 || !quiet {
            self.stage.wrong(format!("{written} writes where {needed} are needed"));
        }
        self.judge(verdict::settled(&self.stage.model, self.plan.setup));
        self.judge(verdict::unseen(&self.stage, self.plan.setup));
        self.own_writes();
    }

    /// Deletes all primaries, and checks that nothing is left.
    async fn delete_all(&mut self) {
        self.stage.note("=== all primaries are deleted");
        let model = &self.stage.model;
        for object in model.objects(THINGS) {
            let (namespace, name) = place(&object);
            model.delete(THINGS, Some(namespace), name);
        }
        if !self.quiet(QUIET).await {
            self.stage.wrong("the daemon goes on writing");
        }
        self.judge(verdict::gone(&self.stage.model));
        self.own_writes();
        let state = self.state();
        for what in ["keys", "failing", "paused", "remembered"] {
            if state[what] != 0 {
                self.stage.wrong(format!("{what} of nothing: {state}"));
            }
        }
    }

    fn state(&self) -> Value {
        self.daemon.as_ref().map(Daemon::state).unwrap_or_default()
    }

    fn judge(&self, wrong: Vec<String>) {
        for wrong in wrong {
            self.stage.wrong(wrong);
        }
    }

    fn own_writes(&self) {
        let state = self.state();
        if state["phase"] != "running" || state["ownWrites"] != 0 {
            self.stage.wrong(format!("own writes are left: {state}"));
        }
    }

    /// Waits until nothing has been written for `time`. Returns false if writes continue for [`PATIENCE`].
    async fn quiet(&mut self, time: Duration) -> bool {
        let begun = Instant::now();
        let (mut writes, mut since) = (self.stage.writes(), begun);
        while begun.elapsed() < PATIENCE {
            self.until(Instant::now() + Duration::from_secs(1)).await;
            let revision = self.stage.writes();
            if revision != writes {
                (writes, since) = (revision, Instant::now());
            }
            if since.elapsed() >= time {
                return true;
            }
        }
        false
    }

    // === what happens ===

    fn at(&mut self, at: Instant, due: Due) {
        self.number += 1;
        self.due.insert((at, self.number), due);
    }

    /// Does what is due, until `end`.
    async fn until(&mut self, end: Instant) {
        loop {
            let next = self.due.first_key_value().map(|((at, _), _)| *at);
            let next = next.map_or(end, |at| at.min(end));
            let stage = Arc::clone(&self.stage);
            tokio::select! {
                biased;
                () = stage.crash.notified() => {
                    self.end().await;
                    continue;
                }
                () = sleep_until(next) => {}
            }
            if next >= end {
                return;
            }
            if let Some((_, due)) = self.due.pop_first() {
                self.happen(due);
            }
        }
    }

    async fn end(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            self.stage.note("the daemon crashes");
            daemon.crash().await;
            self.stage.forget();
        }
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Act(act) => {
                self.stage.note(format!("-- {act:?}"));
                self.act(act);
            }
            Due::Start => self.start(),
            Due::End(state) => {
                self.stage.note(format!("-- no more {state:?}"));
                self.finish(state);
            }
            Due::Collect => {
                self.stage.model.collect_garbage();
                self.tidy();
                self.at(Instant::now() + COLLECT, Due::Collect);
            }
        }
    }

    fn start(&mut self) {
        if self.daemon.is_none() {
            self.starts += 1;
            self.stage.note("the daemon starts");
            let numbers = (self.plan.seed, self.starts);
            let daemon = Daemon::start(&self.stage, &self.folder, numbers);
            self.daemon = Some(daemon);
        }
    }

    fn act(&mut self, act: Act) {
        let (now, model) = (Instant::now(), self.stage.model.clone());
        match act {
            Act::Create(thing, value) => self.create(thing, value),
            Act::Edit(thing, value) => self.set(thing, "value", value.into()),
            Act::Extra(thing, extra) => self.set(thing, "extra", extra.into()),
            Act::Touch(thing) => self.edit(thing, |object| {
                let touched = &mut object["metadata"]["annotations"]["touched"];
                let times = touched.as_str().unwrap_or_default().len();
                *touched = "x".repeat(times + 1).into();
            }),
            Act::Label(thing, watched) => self.edit(thing, |object| {
                let watched = if watched { "yes" } else { "no" };
                object["metadata"]["labels"]["watched"] = watched.into();
            }),
            Act::Delete(thing) => self.delete(thing.namespace(), thing.name()),
            Act::Replace(thing, value) => self.replace(thing, value),
            Act::EditDependent(thing, dependent) => {
                self.edit_map(thing, dependent, |object| {
                    object["data"]["spec"] = "foreign".into();
                });
            }
            Act::DeleteDependent(thing, dependent) => {
                let name = dependent.object_name(thing.name());
                model.delete(MAPS, Some(thing.namespace()), &name);
            }
            Act::EditAny(number, part) => self.edit_any(number, part),
            Act::DeleteAny(number) => {
                if let Some((kind, object)) = self.any(number) {
                    let (namespace, name) = place(&object);
                    match kind {
                        Kind::Things => self.delete(namespace, name),
                        Kind::Maps => drop(model.delete(MAPS, Some(namespace), name)),
                    }
                }
            }
            Act::Trouble(sort, fault) => self.stage.trouble(sort, fault),
            Act::Crash(moment, down) => {
                self.stage.crash(moment);
                self.at(now + down, Due::Start);
                // A write may come late.
                self.at(now + down + Duration::from_secs(5), Due::Start);
            }
            Act::Cut(kind, cut) => model.cut_watches(Some(kind.which()), cut),
            Act::Compact => model.compact(),
            Act::Unseen(kind) => {
                model.cut_watches(Some(kind.which()), Cut::Broken);
                model.compact();
            }
            Act::For(time, state) => {
                self.begin(state);
                self.at(now + time, Due::End(state));
            }
            Act::Swap(variant) => self.swap(variant),
            Act::Component => self.folder.change(|files| files.component += 1),
            Act::Bare(bare) => self.folder.change(|files| {
                files.component += 1;
                files.bare = bare;
            }),
            Act::Hangup => self.folder.change(|files| files.hangups += 1),
            Act::Whim(whim) => self.stage.whim(whim),
        }
    }

    /// Begins a state that is wrong.
    fn begin(&self, state: Wrong) {
        let Stage { model, .. } = &*self.stage;
        match state {
            Wrong::Late(kind, lag) => model.delay(kind.which(), lag),
            Wrong::Unserved(kind) => model.serve(kind.which(), false),
            Wrong::Forbidden(kind, verb, namespace) => model.forbid(denied(kind, verb, namespace)),
            Wrong::Unreadable(thing, dependent) => self.generation(thing, dependent, Some("odd")),
            Wrong::Away(None) => self.stage.outage(Some(Fault::LoseRequest(Loss::Broken))),
            Wrong::Garbled => self.folder.change(|files| files.garbled = true),
            Wrong::Refused(step) => self.folder.change(|files| files.refused = Some(step)),
            Wrong::Slow(load) => self.folder.change(|files| files.load = load),
            Wrong::Away(Some(code)) => self.stage.outage(Some(Fault::Answer { code, retry_after: None })),
        }
    }

    /// Ends a state that was wrong.
    fn finish(&self, state: Wrong) {
        let Stage { model, .. } = &*self.stage;
        match state {
            Wrong::Late(kind, _) => model.delay(kind.which(), self.plan.lag),
            Wrong::Unserved(kind) => model.serve(kind.which(), true),
            Wrong::Forbidden(kind, verb, namespace) => model.permit(&denied(kind, verb, namespace)),
            Wrong::Garbled => self.folder.change(|files| files.garbled = false),
            Wrong::Refused(_) => self.folder.change(|files| files.refused = None),
            Wrong::Slow(_) => self.folder.change(|files| files.load = Duration::ZERO),
            Wrong::Away(_) => self.stage.outage(None),
            Wrong::Unreadable(thing, dependent) => self.generation(thing, dependent, None),
        }
    }

    fn replace(&mut self, thing: Thing, value: u64) {
        if let Some(object) = self.object(thing) {
            self.forced.insert(object["metadata"]["uid"].to_string());
            self.edit(thing, |object| object["metadata"]["finalizers"] = json!([]));
            let model = &self.stage.model;
            model.delete(THINGS, Some(thing.namespace()), thing.name());
            self.create(thing, value);
        }
    }

    /// Deletes what is left behind by a deletion with force, or because somebody has removed what says whose it is.
    fn tidy(&self) {
        for object in self.stage.model.objects(MAPS) {
            let metadata = &object["metadata"];
            let mark = metadata["annotations"][MARK].as_str().unwrap_or_default();
            let mark: Value = serde_json::from_str(mark).unwrap_or_default();
            let is_forced = self.forced.contains(&mark["primary"]["uid"].to_string());
            if is_forced || self.is_ownerless(&object) {
                let (namespace, name) = place(&object);
                self.stage.model.delete(MAPS, Some(namespace), name);
            }
        }
    }

    /// True if nothing says any more whose an object is, or not all that did and its primary is gone or does not want it.
    fn is_ownerless(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        let (unmarked, unowned) = (metadata["annotations"][MARK].is_null(), metadata["ownerReferences"].is_null());
        if unmarked && unowned {
            return true;
        }
        let Some(uid) = self.robbed.get(&metadata["uid"].to_string()).filter(|_| unmarked || unowned) else {
            return false;
        };
        let mut primaries = Thing::all().filter_map(|thing| Some((thing, self.object(thing)?)));
        let wants = |(thing, primary): (Thing, Value)| {
            let is_it = |one: &Dependent| one.object_name(thing.name()) == place(object).1 && one.is_wanted(&primary);
            primary["metadata"]["uid"] == *uid && world::DEPENDENTS.iter().any(is_it)
        };
        !primaries.any(wants)
    }

    /// Returns one of all objects.
    fn any(&self, number: u64) -> Option<(Kind, Value)> {
        let of = |kind: Kind| {
            self.stage.model.objects(kind.which()).into_iter().map(move |object| (kind, Arc::unwrap_or_clone(object)))
        };
        let mut all: Vec<_> = of(Kind::Things).chain(of(Kind::Maps)).collect();
        let at = usize::try_from(number).ok()?.checked_rem(all.len())?;
        Some(all.swap_remove(at))
    }

    fn edit_any(&mut self, number: u64, part: Part) {
        let Some((kind, object)) = self.any(number) else { return };
        let metadata = &object["metadata"];
        let uid = metadata["uid"].to_string();
        let (namespace, name) = place(&object);
        let content = match kind {
            Kind::Things => "/status/value",
            Kind::Maps => "/data/spec",
        };
        match part {
            Part::Finalizers if metadata["deletionTimestamp"].is_string() => return,
            Part::Finalizers => drop(self.stripped.insert(uid)),
            Part::Owners | Part::Mark => {
                let mark = metadata["annotations"][MARK].as_str().unwrap_or_default();
                let mark: Value = serde_json::from_str(mark).unwrap_or_default();
                if !mark.is_null() {
                    self.robbed.insert(uid, mark["primary"]["uid"].clone());
                }
            }
            Part::Label | Part::Content => {}
        }
        self.change(kind, (namespace, name), |object| {
            if part == Part::Label {
                object["metadata"]["labels"]["foreign"] = number.to_string().into();
            }
            let metadata = object["metadata"].as_object_mut().expect("objects have metadata");
            match part {
                Part::Owners => drop(metadata.remove("ownerReferences")),
                Part::Finalizers => drop(metadata.remove("finalizers")),
                Part::Mark => {
                    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                        annotations.remove(MARK);
                    }
                }
                Part::Label => {}
                Part::Content => {
                    if let Some(content) = object.pointer_mut(content) {
                        *content = if content.is_number() { number.into() } else { "foreign".into() };
                    }
                }
            }
        });
    }

    /// Deletes a primary as a user does.
    fn delete(&mut self, namespace: &str, name: &str) {
        let model = &self.stage.model;
        let object = model.object(THINGS, Some(namespace), name).unwrap_or_default();
        let uid = object["metadata"]["uid"].to_string();
        // Nothing holds it until it is cleaned up.
        if self.stripped.contains(&uid) && object["metadata"]["finalizers"].is_null() {
            self.forced.insert(uid);
        }
        model.delete(THINGS, Some(namespace), name);
    }

    /// Lets nothing go wrong any more, and restores the state of the beginning.
    fn heal(&mut self) {
        self.stage.note("=== nothing goes wrong any more");
        self.stage.heal();
        let due = std::mem::take(&mut self.due);
        for (at, due) in due {
            match due {
                Due::End(state) => self.finish(state),
                Due::Act(_) | Due::Start => {}
                Due::Collect => drop(self.due.insert(at, Due::Collect)),
            }
        }
        for thing in Thing::all() {
            self.edit(thing, |object| {
                object["metadata"]["labels"]["watched"] = "yes".into();
            });
        }
        if self.variant != Variant::Usual {
            self.swap(Variant::Usual);
        }
        if self.plan.renames() {
            self.act(Act::Bare(false));
        }
        self.tidy();
        self.start();
    }

    fn swap(&mut self, variant: Variant) {
        self.variant = variant;
        self.stage.swap(variant);
        self.folder.change(|files| files.variant = variant);
    }

    fn object(&self, thing: Thing) -> Option<Value> {
        self.stage.model.object(THINGS, Some(thing.namespace()), thing.name())
    }

    fn create(&self, thing: Thing, value: u64) {
        if self.object(thing).is_none() {
            self.stage.created(&(thing.namespace().to_owned(), thing.name().to_owned()));
            self.stage.model.put(&thing.object(value, value.is_multiple_of(2)));
        }
    }

    fn set(&self, thing: Thing, field: &str, value: Value) {
        self.edit(thing, |object| object["spec"][field] = value);
    }

    /// Stores a generation that is not a number, or removes it.
    fn generation(&self, thing: Thing, dependent: Dependent, odd: Option<&str>) {
        let (model, name) = (&self.stage.model, dependent.object_name(thing.name()));
        let Some(mut object) = model.object(MAPS, Some(thing.namespace()), &name) else {
            return;
        };
        let before = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("generation");
            metadata.extend(odd.map(|odd| ("generation".to_owned(), odd.into())));
        }
        if object != before {
            model.put(&object);
        }
    }

    fn edit_map(&self, thing: Thing, dependent: Dependent, change: impl FnOnce(&mut Value)) {
        let name = dependent.object_name(thing.name());
        self.change(Kind::Maps, (thing.namespace(), &name), change);
    }

    fn change(&self, kind: Kind, (namespace, name): (&str, &str), change: impl FnOnce(&mut Value)) {
        let model = &self.stage.model;
        let there = model.object(kind.which(), Some(namespace), name);
        // An edit would forget who manages what of an object that can't be read.
        if let Some(mut odd) = there.filter(|there| there["metadata"]["generation"].is_string()) {
            change(&mut odd);
            model.put(&odd);
            return;
        }
        model.edit(kind.which(), Some(namespace), name, change);
    }

    fn edit(&self, thing: Thing, change: impl FnOnce(&mut Value)) {
        self.stage.model.edit(THINGS, Some(thing.namespace()), thing.name(), change);
    }
}

impl Kind {
    fn which(self) -> model::Which<'static> {
        match self {
            Self::Things => THINGS,
            Self::Maps => MAPS,
        }
    }
}

/// Returns the namespace and the name of an object.
fn place(object: &Value) -> (&str, &str) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}

fn denied(kind: Kind, verb: Verb, namespace: Option<&str>) -> Denied {
    let verb = match verb {
        Verb::Get => Some("get"),
        Verb::List => Some("list"),
        Verb::Watch => Some("watch"),
        Verb::Create => Some("create"),
        Verb::Update => Some("update"),
        Verb::Delete => Some("delete"),
        Verb::Patch => Some("patch"),
        Verb::All => None,
    };
    let kind = match kind {
        Kind::Things => "things.sim.dev",
        Kind::Maps => "configmaps",
    };
    let namespace = namespace.map(str::to_owned);
    Denied { user: None, verb: verb.map(str::to_owned), kind: Some(kind.to_owned()), namespace }
}
