//! Loads what changes of an operator, beside what runs: all plugins at once, until something newer is wanted.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::cpu::{Account, Job};
use capstan_core::manifest::{self, Operator, Permission};
use capstan_core::rollout;
use futures::future::join_all;
use tokio::runtime::Handle as Runtime;
use tokio::task::JoinError;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::supply::{Component, Content, Drain, Loader, Refusal, Unit};
use crate::controller;

/// The plugins of an operator as they are to be.
pub(super) type Attempts = BTreeMap<Unit, Attempt>;

/// What is to be in force.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Attempt {
    pub(super) plugin: manifest::Plugin,
    /// The controllers that use it.
    pub(super) controllers: BTreeMap<Arc<str>, manifest::Controller>,
    pub(super) component: Content,
}

/// What is being loaded of an operator.
pub(super) struct Loading {
    /// Has to be looked at again afterwards.
    pub(super) again: bool,
    /// The components: where they are, and what the files are.
    pub(super) components: BTreeMap<Unit, (PathBuf, Content)>,
    /// Ends it.
    pub(super) superseded: CancellationToken,
}

/// What is to be loaded of an operator.
pub(super) struct Rollout {
    pub(super) operator: Operator,
    pub(super) changes: Vec<Change>,
    pub(super) loader: Box<dyn Loader>,
    /// How long runs of the version before the last one may take.
    pub(super) drain: Duration,
    /// A newer version of a component is there.
    pub(super) superseded: CancellationToken,
    /// Where components are tried: what they compute is in nobody's way there.
    pub(super) runtime: Runtime,
}

/// A plugin that is to become another.
pub(super) struct Change {
    pub(super) unit: Unit,
    pub(super) attempt: Attempt,
    pub(super) account: Account,
    /// The ways to write that the version in force can ask for; none if there is none.
    pub(super) writes: Option<BTreeSet<Permission>>,
    /// Waits for the last run in the version before that one.
    pub(super) before: Option<Drain>,
}

/// What has become of a plugin that was to be another.
pub(super) type Outcome = (Unit, Attempt, Result<Arc<dyn Component>, Refusal>);

/// What was loaded for an operator.
pub(super) struct Loaded {
    pub(super) operator: Arc<str>,
    /// None: something newer is to be loaded.
    pub(super) units: Option<Vec<Outcome>>,
    /// Goes when that is in place.
    pub(super) _loader: Box<dyn Loader>,
}

/// Loads what changes of an operator, away from what runs.
pub(super) async fn load(rollout: Rollout) -> Loaded {
    let runtime = rollout.runtime.clone();
    let task = AbortOnDropHandle::new(runtime.spawn(load_unless_superseded(rollout)));
    match task.await.map_err(JoinError::try_into_panic) {
        Ok(loaded) => loaded,
        Err(Ok(panic)) => resume_unwind(panic),
        // Its runtime has ended, and the daemon is about to.
        Err(Err(_)) => std::future::pending().await,
    }
}

async fn load_unless_superseded(rollout: Rollout) -> Loaded {
    let units = tokio::select! {
        biased;
        // What is compiled meanwhile is not wanted any more.
        () = rollout.superseded.cancelled() => None,
        units = load_all(&rollout) => Some(units),
    };
    Loaded { operator: Arc::clone(&rollout.operator.name), units, _loader: rollout.loader }
}

async fn load_all(rollout: &Rollout) -> Vec<Outcome> {
    let loads = rollout.changes.iter().map(async |change| {
        let Change { unit, attempt, before, .. } = change;
        let job = Job { controller: "loading".into(), key: None };
        let loaded = change.account.run(job, load_one(rollout, change)).await;
        if loaded.is_ok() {
            wait_for_last_but_one(unit, before.as_ref(), rollout.drain).await;
        }
        (unit.clone(), attempt.clone(), loaded)
    });
    join_all(loads).await
}

/// At most two versions of a plugin are at work: there are no instances for more.
async fn wait_for_last_but_one(unit: &Unit, before: Option<&Drain>, limit: Duration) {
    if let Some(drain) = before
        && timeout(limit, drain()).await.is_err()
    {
        tracing::warn!(plugin = %unit, "a version before the last one is still at work");
    }
}

async fn load_one(rollout: &Rollout, change: &Change) -> Result<Arc<dyn Component>, Refusal> {
    let Change { unit, attempt, .. } = change;
    let plugin = rollout.loader.load(&rollout.operator, &unit.plugin, &attempt.component).await?;
    change.check(&*plugin)?;
    for (name, spec) in &attempt.controllers {
        let checked = controller::check(spec);
        checked.map_err(|error| Refusal::new("check", &format!("controller {name}: {error}")))?;
    }
    Ok(plugin)
}

impl Loading {
    pub(super) fn of(changes: &[Change]) -> Self {
        let components = changes.iter().map(|change| {
            let Attempt { plugin, component, .. } = &change.attempt;
            let component = (plugin.component.clone(), component.clone());
            (change.unit.clone(), component)
        });
        Self { again: false, components: components.collect(), superseded: CancellationToken::new() }
    }

    /// Ends it if one of its components is not what is wanted now: compiling it may take long.
    pub(super) fn end_unless_wanted(&self, now: &Attempts) {
        let wanted = |unit: &Unit, (path, content): &(PathBuf, Content)| {
            now.get(unit).is_some_and(|attempt| attempt.plugin.component == *path && attempt.component == *content)
        };
        let mut components = self.components.iter();
        if !components.all(|(unit, component)| wanted(unit, component)) {
            self.superseded.cancel();
        }
    }
}

impl Change {
    /// Refuses a new version all of whose new writes would be refused.
    fn check(&self, plugin: &dyn Component) -> Result<(), Refusal> {
        let Some(before) = &self.writes else {
            return Ok(());
        };
        let declared = &self.attempt.plugin;
        let lacking = rollout::ungranted(before, plugin.writes(), &declared.capabilities);
        if lacking.is_empty() {
            return Ok(());
        }
        let verbs: Vec<_> = lacking.iter().map(|verb| format!("`{}`", verb.word())).collect();
        let message = format!(
            "check {}: it can ask for {}, which the version in force can't, and the manifest permits that on no kind; add it to spec.plugins.{}.capabilities.kubernetes",
            declared.component.display(),
            verbs.join(", "),
            self.unit.plugin
        );
        Err(Refusal::new("check", &message))
    }
}

impl Attempt {
    pub(super) fn of(operator: &Operator, name: &Arc<str>, plugin: &manifest::Plugin, component: Content) -> Self {
        let controllers = operator.controllers.iter();
        Self {
            plugin: plugin.clone(),
            controllers: controllers
                .filter(|(_, controller)| controller.plugin == *name)
                .map(|(name, controller)| (Arc::clone(name), controller.clone()))
                .collect(),
            component,
        }
    }

    /// Returns what is in force instead, if all that differs is a file that is being written.
    pub(super) fn or_as(self, in_force: Option<&Self>) -> Self {
        let same = |other: &&Self| self.plugin == other.plugin && self.controllers == other.controllers;
        match in_force.filter(same) {
            Some(other) if self.component == Content::Half => other.clone(),
            Some(_) | None => self,
        }
    }
}
