//! Says in the status of operators of the cluster how they are, whenever that has changed, and notices who else does (`OP-3`, `OP-6`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::budget::Budget;
use capstan_core::cluster::{Cluster as _, Error, Target, Verb, Write};
use capstan_core::guest::Event;
use capstan_core::object::{Object, Version};
use capstan_core::operator::approval::APPROVAL_REQUIRED;
use capstan_core::operator::status::{Facts, status};
use futures::{StreamExt as _, stream};
use prometheus_client::metrics::counter::Counter;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::known::{FAREWELL, Known};
use super::posted::{Posted, Revival, kind};
use crate::client::recorder::{Origin, Recorder};
use crate::client::{Access, Identity};
use crate::controller::Environment;
use crate::supervisor::status::{self, Status};

/// From one time that all are looked at to the next, at most.
const AGAIN: Duration = Duration::from_secs(1);

/// From when something new was taken in to the next time; from there on the times double. What is loaded within this is said at once as
/// it has come to be.
const SOON: Duration = Duration::from_millis(50);

/// From one try of a write that fails to the next.
const RETRY: Duration = Duration::from_secs(10);

/// How long a status is left to another daemon that says it, too, and that may be gone by then: the first time, and at most. Whenever the other says
/// it again, the time doubles.
const YIELD: (Duration, Duration) = (Duration::from_secs(30), Duration::from_mins(5));

/// So many are written in one round.
const AT_A_TIME: usize = 64;

/// So many are written at once.
const AT_ONCE: usize = 4;

/// Under which name they are written.
const MANAGER: &str = "capstan-operators";

/// Says how operators are.
pub struct Teller {
    known: Arc<Known>,
    status: Arc<Status>,
    api: Access,
    /// This daemon: its pod or host, and its process, so that two of one host are two.
    daemon: Arc<str>,
    told: BTreeMap<PathBuf, Told>,
    recorder: Recorder,
    /// Counts the Events that are dropped.
    dropped: Counter,
}

/// What was said of an object.
struct Told {
    posted: Arc<Posted>,
    facts: Facts,
    status: Value,
    /// The version of the object that has it.
    version: Version,
    /// Until when nothing is said: it can't be written, or another says it.
    silent: Option<Instant>,
    /// For how long it was left to another last; zero once it is said without another.
    left: Duration,
}

/// A status to be written.
struct Draft {
    posted: Arc<Posted>,
    facts: Facts,
    status: Value,
}

impl Teller {
    /// Returns who says how operators are, in the name of this daemon.
    pub fn new(known: Arc<Known>, status: Arc<Status>, environment: &Environment) -> Self {
        let Environment { api, identity, recorder, .. } = environment;
        let api = Access::new(Arc::clone(api), Identity::Daemon);
        let daemon = format!("{identity}/{}", std::process::id()).into();
        let (recorder, dropped) = (recorder.clone(), Counter::default());
        Self { known, status, api, daemon, told: BTreeMap::new(), recorder, dropped }
    }

    /// Says it, for ever.
    pub async fn run(mut self) {
        let known = Arc::clone(&self.known);
        let mut pause = AGAIN;
        loop {
            self.tell().await;
            pause = AGAIN.min(2 * pause);
            if timeout(pause, known.news()).await.is_ok() {
                pause = SOON;
                sleep(pause).await;
            }
        }
    }

    /// Writes what has changed since it was written.
    async fn tell(&mut self) {
        self.known.leave();
        let all = self.known.settled();
        self.bury(&all);
        let mut drafts: Vec<Draft> = all.into_iter().filter_map(|posted| self.draft(posted)).collect();
        // Those that are not heeded wait for the others, and nobody waits for many.
        drafts.sort_by_key(|draft| draft.posted.content.is_err());
        drafts.truncate(AT_A_TIME);
        let api = &self.api;
        let writes = drafts.into_iter().map(|draft| async move { (write(api, &draft).await, draft) });
        let written: Vec<_> = stream::iter(writes).buffer_unordered(AT_ONCE).collect().await;
        for (answer, draft) in written {
            self.written(&answer, draft);
        }
    }

    /// Forgets those that are gone, and tells what they have left behind (`OP-8`).
    fn bury(&mut self, present: &[Arc<Posted>]) {
        let Self { status, told, .. } = &mut *self;
        let there: BTreeMap<_, _> = present.iter().map(|posted| (&posted.path, &posted.uid)).collect();
        told.retain(|path, told| {
            let stays = there.get(path) == Some(&&told.posted.uid);
            if !stays {
                status.rival(&told.posted.name, None);
            }
            stays
        });
        let gone = self.known.gone();
        let heeded = present.iter().filter(|posted| posted.refused.is_none());
        let heeded = heeded.map(|posted| (&posted.name, &posted.object));
        // Of two of one name, the one that is there.
        let named: BTreeMap<_, _> = gone.iter().map(|(name, object)| (name, object)).chain(heeded).collect();
        for (name, message) in self.status.take_left(|name| named.contains_key(name), FAREWELL) {
            if let Some(object) = named.get(&name) {
                // OP-8
                self.record(object, Event::warning("FinalizersLeft", message.clone(), message));
            }
        }
    }

    /// Records an Event about an operator.
    fn record(&self, object: &Object, event: Event) {
        let (api, dropped, gvk) = (self.api.clone(), self.dropped.clone(), kind().gvk);
        let (plugin, controller) = ("operators".into(), "capstan".into());
        let origin = Origin { api, plugin, controller, gvk, owner_reference: false, dropped };
        self.recorder.publish(&origin, object, event, None);
    }

    /// Returns what is to be written of an object; none if nothing is new.
    fn draft(&mut self, posted: Arc<Posted>) -> Option<Draft> {
        let facts = self.facts(&posted);
        self.revive(&posted, &facts);
        let object = self.known.object(&posted.key).filter(|object| posted.is(object))?;
        let now = Instant::now();
        let told = self.told.get_mut(&posted.path).filter(|told| told.posted.uid == posted.uid);
        let before = match told {
            Some(told) if told.silent.is_some_and(|until| now < until) => return None,
            Some(told) if told.silent.is_none() && object.version() <= told.version => {
                if told.facts == facts {
                    return None;
                }
                told.status.clone()
            }
            // Whoever said it before this daemon could is no other one.
            Some(told) if told.version > Version::default() && object.version() > told.version => {
                let (found, name) = (status_of(&object), &posted.name);
                told.version = object.version();
                let other = found.get("daemon").and_then(Value::as_str).filter(|daemon| **daemon != *self.daemon);
                self.status.rival(name, other.map(str::to_owned));
                if let Some(daemon) = other {
                    if told.left.is_zero() {
                        tracing::error!(operator = %posted.key, daemon, "another daemon says the status of an operator, too: two of them run it");
                    }
                    told.left = (2 * told.left).clamp(YIELD.0, YIELD.1);
                    told.silent = Some(now + told.left);
                    return None;
                }
                found
            }
            Some(_) | None => status_of(&object),
        };
        let status = status(&facts, &before, &status::now().to_string());
        let is_told = before.pointer("/waiting/given") == status.pointer("/waiting/given")
            && before.pointer("/waiting/components") == status.pointer("/waiting/components");
        if let Some(asked) = facts.asked.as_ref().filter(|_| !is_told && status.get("waiting").is_some()) {
            // AP-6
            self.record(&object, Event::warning(APPROVAL_REQUIRED, asked.message(), asked.message()));
        }
        if status != before {
            return Some(Draft { posted, facts, status });
        }
        let version = object.version();
        self.told
            .insert(posted.path.clone(), Told { posted, facts, status, version, silent: None, left: Duration::ZERO });
        None
    }

    /// Returns what is known of an operator.
    fn facts(&self, posted: &Posted) -> Facts {
        let Posted { name, path, generation, spec, revival, refused, .. } = posted;
        let problem = self.status.problem_of(path).map(|problem| ("Invalid", of_fields(&problem, posted)));
        // Whoever has the name is another.
        let (plugins, lacking) = if refused.is_some() { Default::default() } else { self.status.of_operator(name) };
        Facts {
            generation: *generation,
            spec: Arc::clone(spec),
            refused: refused.clone().or(problem),
            is_revived: *revival == Revival::UnderWay,
            asked: if refused.is_some() { None } else { self.status.asked(name) },
            change: self.status.change(name),
            plugins,
            lacking,
            leaving: None,
            daemon: Arc::clone(&self.daemon),
        }
    }

    /// Has the last good version put in place if nothing is, and what is wanted can't be; then what is wanted is tried once more.
    fn revive(&self, posted: &Posted, facts: &Facts) {
        let Some(last_good) = &posted.last_good else {
            return;
        };
        let is_stuck = facts.is_stuck(|plugin| last_good.plugins.contains(plugin));
        let Some(next) = posted.revival.next(is_stuck, facts.is_in_force(), Instant::now()) else {
            return;
        };
        if posted.revival == Revival::Unneeded {
            tracing::warn!(operator = %posted.key, "nothing of the operator is in force: its last good version is put in place first");
        }
        self.known.revive(posted, next);
    }

    /// Remembers what was written, or that it could not be.
    fn written(&mut self, answer: &Result<Option<Object>, Error>, Draft { posted, facts, status }: Draft) {
        let before = self.told.get(&posted.path).filter(|told| told.posted.uid == posted.uid && told.silent.is_some());
        let left = before.map_or(Duration::ZERO, |told| told.left);
        let (version, silent) = match answer {
            Ok(written) => {
                self.status.rival(&posted.name, None);
                (written.as_ref().map(Object::version).unwrap_or_default(), None)
            }
            Err(error) => {
                tracing::warn!(operator = %posted.key, %error, "the status of an operator can't be written; it is tried again");
                (Version::default(), Some(Instant::now() + RETRY))
            }
        };
        let told = Told { posted, facts, status, version, silent, left };
        self.told.insert(told.posted.path.clone(), told);
    }
}

async fn write(api: &Access, Draft { posted, status, .. }: &Draft) -> Result<Option<Object>, Error> {
    let gvk = kind().gvk;
    let metadata = json!({ "name": &*posted.key.name, "namespace": posted.key.namespace.as_deref() });
    let body = json!({ "apiVersion": gvk.api_version(), "kind": &*gvk.kind, "metadata": metadata, "status": status });
    let verb = Verb::Apply { body: body.to_string(), manager: MANAGER.into(), force: true };
    api.write(Write::own(Target::status(gvk, posted.key.clone()), verb)).await
}

/// Returns the status of an object; null if it has none.
fn status_of(object: &Object) -> Value {
    #[derive(Deserialize)]
    struct View<'a> {
        // What it says may be a megabyte, and is looked at again and again: no tree is made of that.
        #[serde(borrow)]
        status: Option<&'a RawValue>,
    }
    let view = serde_json::from_str::<View<'_>>(object.json()).ok();
    let status = view.and_then(|view| Budget::of_run().read(view.status?.get()).ok());
    status.unwrap_or_default()
}

/// Returns what is wrong with an object without its name, on one line.
fn of_fields(problem: &str, posted: &Posted) -> String {
    let named = format!("{}: ", posted.path.display());
    let lines = problem.lines().filter(|line| !line.is_empty());
    lines.map(|line| line.strip_prefix(&named).unwrap_or(line)).collect::<Vec<_>>().join("; ")
}
