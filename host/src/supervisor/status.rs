//! What is known of plugins, manifests and controllers, for people and machines: `/debug/plugins`, `/readyz`, metrics and the log.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use capstan_core::manifest::{self, Component as Source};
use capstan_core::object::ObjectRef;
use k8s_openapi::jiff::{Timestamp, Unit as Precision};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use super::supply::{Component, Refusal, Unit};
use crate::controller::{Described, Handle, LastFailure};
use crate::part::Part;
use crate::plugin::Usage;
use crate::readiness::{Matter, Unready};
use crate::registry::images::Images;

mod asked;
mod metrics;
mod operators;
mod registry;
mod walks;

pub use capstan_core::operator::status::State;
pub use metrics::Metrics;
pub use registry::Registry;
pub use walks::{Row as WalkRow, Walks};

/// The state of everything that the manifests declare.
#[derive(Debug, Default)]
pub struct Status {
    plugins: Mutex<BTreeMap<Unit, Entry>>,
    /// The manifests that are not in force as they are, by their files.
    manifests: Mutex<BTreeMap<PathBuf, BadManifest>>,
    controllers: Mutex<BTreeMap<Arc<str>, Arc<Handle>>>,
    images: Images,
    /// The daemons that run operators, which are objects of the cluster, beside this one; by the operator.
    rivals: Mutex<BTreeMap<Arc<str>, String>>,
    /// Which versions of operators wait for an approval, and what has changed with the last one.
    judged: Mutex<BTreeMap<Arc<str>, asked::Judged>>,
    /// What operators that have ended have left behind, until it is told.
    left: Mutex<VecDeque<(Instant, Arc<str>, String)>>,
    /// The manifests have been looked at once.
    begun: AtomicBool,
}

/// A manifest that is not in force as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BadManifest {
    /// What is wrong, which may have several lines.
    pub(super) problem: String,
    /// Whether what it said last is still in force.
    pub(super) goes_on: bool,
}

/// What is known of a plugin.
#[derive(Debug, Default)]
struct Entry {
    component: Option<Source>,
    /// What the manifest names, where that is not in force.
    wanted: Option<Source>,
    controllers: Vec<Arc<str>>,
    phase: Phase,
    in_force: Option<InForce>,
    problem: Option<Problem>,
    /// Versions that were put in place.
    placed: u64,
    /// Versions that were refused.
    refused: u64,
    /// Those of them that could not be compiled.
    uncompiled: u64,
    /// What the versions before have done.
    earlier: Usage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Loading,
    Settled,
}

#[derive(Debug)]
struct InForce {
    plugin: Arc<dyn Component>,
    since: Timestamp,
}

/// Why a version is not in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Which step failed: `read`, `pull`, `compile`, `check`, `link`, `start`, `together` with another plugin, `ceiling` for kinds that it
    /// does not have, or `prepare`, which is the daemon's own and is tried again; `approve` if it waits for an approval.
    pub step: String,
    /// What was wrong, and with which file.
    pub message: String,
    /// When.
    pub since: String,
}

/// What `/debug/plugins` answers: all that the manifests declare, and what is wrong with them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The plugins, ordered by operator and name.
    pub plugins: Vec<Row>,
    /// The manifests that are not in force as they are; all with the first plugins, and no more than fit.
    pub manifests: Vec<Manifest>,
    /// What to ask for the rest with; none = that was all.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A manifest whose last good version, if there was one, goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The file.
    pub file: String,
    /// What is wrong with it.
    pub problem: String,
    /// Whether what it said last is still in force.
    pub goes_on: bool,
}

/// A plugin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The operator.
    pub operator: String,
    /// The plugin's name in its manifest.
    pub name: String,
    /// How it is.
    pub state: State,
    /// Counts the versions that were put in place since the daemon started; 0 = none yet.
    pub version: u64,
    /// SHA-256 of the component in force, in hexadecimal; none if there is none, or if templates are in its place.
    pub digest: Option<String>,
    /// When that was put in place, in RFC 3339.
    pub since: Option<String>,
    /// The file or reference; empty if templates are in its place.
    pub component: String,
    /// What its registry says; none of a file.
    #[serde(default)]
    pub registry: Option<Registry>,
    /// The controllers that it serves.
    pub controllers: Vec<String>,
    /// Why a newer version is not in force.
    pub problem: Option<Problem>,
    /// What a controller waits for, before it uses the version in place.
    pub waiting: Option<String>,
    /// Versions that were refused since the daemon started.
    pub refused: u64,
    /// The number of the process that its instances have for themselves; none if they have none.
    pub process: Option<u32>,
    /// Primaries of its controllers.
    pub primaries: usize,
    /// Those of them whose last run failed, as far as is remembered: at most 1000 of each controller.
    pub failing: usize,
    /// The run of its controllers that failed last, if its primary still fails.
    pub last_error: Option<LastFailure>,
    /// What the version in force has done and uses; none if it has no component.
    pub usage: Option<Usage>,
}

// === impl Status: what the supervisor says ===

impl Status {
    pub(super) fn loading<'a>(
        &self,
        unit: &Unit,
        plugin: &manifest::Plugin,
        controllers: impl Iterator<Item = &'a Arc<str>>,
    ) {
        let mut plugins = self.plugins.lock();
        let entry = plugins.entry(unit.clone()).or_default();
        entry.phase = Phase::Loading;
        entry.wanted.clone_from(&plugin.component);
        // What is in force is shown until something else is.
        if entry.in_force.is_none() {
            entry.is(plugin.component.as_ref(), controllers);
        }
    }

    pub(super) fn placed<'a>(
        &self,
        unit: &Unit,
        plugin: &Arc<dyn Component>,
        component: Option<&Source>,
        controllers: impl Iterator<Item = &'a Arc<str>>,
    ) {
        let mut plugins = self.plugins.lock();
        let Some(entry) = plugins.get_mut(unit) else {
            return;
        };
        entry.is(component, controllers);
        entry.wanted = None;
        if let Some(before) = &entry.in_force {
            entry.earlier = before.plugin.usage().after(&entry.earlier);
        }
        entry.placed += 1;
        entry.problem = None;
        entry.phase = Phase::Settled;
        entry.in_force = Some(InForce { plugin: Arc::clone(plugin), since: now() });
        let (version, digest, component) = (entry.placed, plugin.digest(), entry.component());
        if version == 1 {
            tracing::info!(plugin = %unit, version, digest, component, "the plugin is in force");
        } else {
            tracing::info!(plugin = %unit, version, digest, component, "the plugin is swapped: runs from now on use the new version");
        }
    }

    /// Takes in that a plugin stays as it was, with the component that its manifest names again, whatever it was to become meanwhile.
    pub(super) fn stays(&self, unit: &Unit, component: Option<&Source>) {
        if let Some(entry) = self.plugins.lock().get_mut(unit) {
            entry.phase = Phase::Settled;
            entry.wanted = component.cloned();
        }
    }

    /// Says that what is wanted is in force already.
    pub(super) fn settled(&self, unit: &Unit) {
        if let Some(entry) = self.plugins.lock().get_mut(unit) {
            entry.phase = Phase::Settled;
            entry.wanted = None;
            if entry.problem.take().is_some() {
                tracing::info!(plugin = %unit, "the version in force is what is wanted again");
            }
        }
    }

    pub(super) fn refused(&self, unit: &Unit, refusal: &Refusal, goes_on: bool) {
        let Refusal { step, message, at } = refusal;
        if goes_on {
            tracing::error!(plugin = %unit, manifest = at, step, error = %message, "the new version can't be used; the last good one goes on");
        } else {
            tracing::error!(plugin = %unit, manifest = at, step, error = %message, "the plugin can't be used; its controllers don't start");
        }
        // What is tried again says nothing of the version.
        self.fail(unit, refusal, u64::from(refusal.again_in().is_none()));
    }

    pub(super) fn held_back(&self, unit: &Unit, culprit: &str) {
        let message = format!("waits for plugin {culprit} of the same operator, whose new version can't be used");
        tracing::warn!(plugin = %unit, culprit, "the new version is held back: an operator changes as a whole");
        self.fail(unit, &Refusal::new("together", &message), 0);
    }

    fn fail(&self, unit: &Unit, Refusal { step, message, .. }: &Refusal, refused: u64) {
        if let Some(entry) = self.plugins.lock().get_mut(unit) {
            entry.refused += refused;
            entry.uncompiled += u64::from(*step == "compile");
            entry.phase = Phase::Settled;
            entry.problem =
                Some(Problem { step: (*step).to_owned(), message: message.clone(), since: now().to_string() });
        }
    }

    /// Forgets all plugins but these.
    pub(super) fn keep(&self, units: &BTreeSet<Unit>) {
        let operators: BTreeSet<_> = units.iter().map(|unit| &unit.operator).collect();
        self.judged.lock().retain(|operator, _| operators.contains(operator));
        self.plugins.lock().retain(|unit, _| {
            let keep = units.contains(unit);
            if !keep {
                tracing::info!(plugin = %unit, "no manifest declares it any more");
            }
            keep
        });
    }

    /// Says what is wrong with manifests now, and that they have been looked at.
    pub(super) fn manifests(&self, bad: BTreeMap<PathBuf, BadManifest>) {
        let mut manifests = self.manifests.lock();
        for (file, manifest) in bad.iter().filter(|(file, manifest)| manifests.get(*file) != Some(manifest)) {
            let BadManifest { problem, goes_on } = manifest;
            tracing::error!("{problem}");
            if *goes_on {
                tracing::warn!(manifest = %file.display(), "what the manifest said last goes on");
            }
        }
        for file in manifests.keys().filter(|file| !bad.contains_key(*file)) {
            let now = match file.exists() {
                true => "good again",
                false if manifest::is_object_path(file) => "good again, or gone",
                false => "gone",
            };
            tracing::info!(manifest = %file.display(), "the manifest is {now}");
        }
        *manifests = bad;
    }

    pub(super) fn begun(&self) {
        self.begun.store(true, Ordering::Release);
    }

    pub(super) fn started(&self, name: &Arc<str>, handle: &Arc<Handle>) {
        let mut controllers = self.controllers.lock();
        controllers.insert(Arc::clone(name), Arc::clone(handle));
    }

    pub(super) fn stopped(&self, name: &str) {
        self.controllers.lock().remove(name);
    }
}

// === impl Status: what is asked ===

impl Status {
    /// Returns the controller of this name; `None` if none runs.
    pub fn controller(&self, name: &str) -> Option<Arc<Handle>> {
        self.controllers.lock().get(name).cloned()
    }

    /// Returns the controllers that run.
    pub fn controllers(&self) -> Vec<Arc<Handle>> {
        self.controllers.lock().values().cloned().collect()
    }

    /// Returns the operators that there are.
    pub fn operators(&self) -> BTreeSet<Arc<str>> {
        self.plugins.lock().keys().map(|unit| Arc::clone(&unit.operator)).collect()
    }

    /// Lists what the manifests name and is not in force in any version.
    pub fn unready(&self) -> Vec<Unready> {
        let loading = |what| Unready { what, why: "being loaded".to_owned(), matter: Matter::Start };
        if !self.begun.load(Ordering::Acquire) {
            return vec![loading("plugins".to_owned())];
        }
        let broken = |what, why: &str| Unready { what, why: why.to_owned(), matter: Matter::Operator };
        let mut unready = Vec::new();
        for (file, manifest) in self.manifests.lock().iter().filter(|(_, manifest)| !manifest.goes_on) {
            unready.push(broken(format!("manifest {}", file.display()), &manifest.problem));
        }
        for (unit, entry) in &*self.plugins.lock() {
            if entry.in_force.is_none() {
                let what = format!("plugin {}", unit.plugin);
                unready.push(match &entry.problem {
                    Some(problem) => broken(what, &problem.message),
                    None => loading(what),
                });
            }
        }
        unready.extend(self.controllers().iter().filter_map(|handle| handle.unready()));
        unready.extend(self.rivals());
        unready
    }

    /// Returns the state of controllers with a part of their keys, and what to ask for the rest with: `controller/namespace/name`.
    pub fn describe(&self, part: &Part) -> (Vec<Value>, Option<String>) {
        let after = part.after.as_deref().and_then(place);
        let (mut left, mut end, mut complete) = (part.limit, None, true);
        let mut states = Vec::new();
        for handle in self.controllers() {
            let name = handle.name();
            let behind = after.as_ref().filter(|(controller, _)| *controller == name);
            // Those before it have been shown.
            let shown = after.as_ref().is_some_and(|(controller, _)| name < *controller);
            let limit = if shown { 0 } else { left };
            let Described { state, keys, last, more } = handle.describe(behind.map(|(_, key)| key), limit);
            states.push(state);
            left -= keys;
            complete &= shown || !more;
            if let Some(ObjectRef { namespace, name: key }) = last {
                let namespace = namespace.as_deref().unwrap_or_default();
                end = Some(format!("{name}/{namespace}/{key}"));
            }
        }
        (states, end.filter(|_| !complete))
    }

    /// Returns the state of plugins and manifests, or a part of it.
    pub fn report(&self, part: &Part) -> Report {
        let first = part.after.is_none();
        let manifests = self.manifests.lock();
        let manifests = manifests.iter().take(if first { part.limit } else { 0 });
        let manifests = manifests.map(|(file, manifest)| Manifest {
            file: file.display().to_string(),
            problem: manifest.problem.clone(),
            goes_on: manifest.goes_on,
        });
        let (running, plugins) = (self.controllers.lock().clone(), self.plugins.lock());
        let after = part.after.as_deref().and_then(|after| {
            let (operator, plugin) = after.rsplit_once('/')?;
            Some(Unit { operator: operator.into(), plugin: plugin.into() })
        });
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = plugins.range((begin, Bound::Unbounded));
        let rows: Vec<_> = rest.by_ref().take(part.limit).collect();
        let last = rows.last().map(|(unit, _)| unit.to_string());
        Report {
            manifests: manifests.collect(),
            next: last.filter(|_| rest.next().is_some()),
            plugins: rows
                .iter()
                .map(|(unit, entry)| self.of_registry(unit, entry.row(unit, &running), entry))
                .collect(),
        }
    }
}

impl Entry {
    fn is<'a>(&mut self, component: Option<&Source>, controllers: impl Iterator<Item = &'a Arc<str>>) {
        self.component = component.cloned();
        self.controllers = controllers.cloned().collect();
    }

    /// Returns where its component is, as it is shown.
    fn component(&self) -> String {
        self.component.as_ref().map(ToString::to_string).unwrap_or_default()
    }

    /// Says whether what the manifest says is in force, as far as is known: not before a new version is refused.
    fn is_in_force(&self) -> bool {
        self.in_force.is_some() && self.problem.is_none()
    }

    fn state(&self, waiting: Option<&String>) -> State {
        match (self.phase, &self.in_force, &self.problem) {
            (Phase::Loading, _, _) => State::Loading,
            (Phase::Settled, _, Some(_)) if self.asks() => State::WaitingForApproval,
            (Phase::Settled, Some(_), None) if waiting.is_some() => State::Waiting,
            (Phase::Settled, Some(_), None) => State::Active,
            (Phase::Settled, Some(_), Some(_)) => State::Outdated,
            (Phase::Settled, None, _) => State::Failed,
        }
    }

    fn row(&self, unit: &Unit, running: &BTreeMap<Arc<str>, Arc<Handle>>) -> Row {
        let in_force = self.in_force.as_ref();
        // Of templates there is nothing to be seen or called.
        let component = in_force.filter(|now| !now.plugin.digest().is_empty());
        let waiting = self.controllers.iter().find_map(|name| {
            let why = running.get(name)?.waiting()?;
            Some(format!("controller {name}: {why}"))
        });
        let handles = || self.controllers.iter().filter_map(|name| running.get(name));
        let (primaries, failing) =
            handles().map(|handle| handle.primaries()).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        Row {
            primaries,
            failing,
            last_error: handles()
                .filter_map(|handle| handle.last_error())
                .max_by(|a, b| a.error.time.cmp(&b.error.time)),
            operator: unit.operator.to_string(),
            name: unit.plugin.to_string(),
            state: self.state(waiting.as_ref()),
            waiting,
            version: self.placed,
            digest: component.map(|now| now.plugin.digest().to_owned()),
            since: in_force.map(|now| now.since.to_string()),
            component: self.component(),
            registry: None,
            controllers: self.controllers.iter().map(ToString::to_string).collect(),
            problem: self.problem.clone(),
            refused: self.refused,
            process: in_force.and_then(|now| now.plugin.process_id()),
            usage: component.map(|now| now.plugin.usage()),
        }
    }

    /// Returns what the version in force uses, and what all versions have done.
    fn totals(&self) -> Usage {
        match &self.in_force {
            Some(now) => now.plugin.usage().after(&self.earlier),
            None => self.earlier,
        }
    }
}

/// Reads where a part ends: `controller/namespace/name`.
fn place(text: &str) -> Option<(&str, ObjectRef)> {
    let (controller, key) = text.split_once('/')?;
    let (namespace, name) = key.split_once('/')?;
    let namespace = (!namespace.is_empty()).then(|| namespace.into());
    let name = name.into();
    Some((controller, ObjectRef { namespace, name }))
}

/// The wall clock to the second: people read it.
pub(in crate::supervisor) fn now() -> Timestamp {
    second(Timestamp::now())
}

fn second(time: Timestamp) -> Timestamp {
    time.round(Precision::Second).unwrap_or(time)
}
