//! Loads the changed plugins of an operator, all at once, beside what runs; ends when something newer is wanted.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::cpu::{Account, Job};
use capstan_core::manifest::{Operator, Permission};
use capstan_core::rollout;
use capstan_core::rollout::plan::{Attempt, Attempts};
use capstan_core::rollout::values::Given;
use futures::future::join_all;
use tokio::runtime::Handle as Runtime;
use tokio::task::JoinError;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::ceilings::Judge;
use super::supply::{Component, Drain, Loader, Refusal, Unit};

/// The components of an operator that are being loaded.
pub(super) struct Loading {
    /// True if the operator has to be looked at again afterwards.
    pub(super) again: bool,
    /// What is to be in force.
    pub(super) attempts: Attempts,
    /// Ends the loading when it is cancelled.
    pub(super) superseded: CancellationToken,
}

impl Loading {
    /// Has the operator looked at again afterwards, which is now if what is loaded is not wanted any more.
    pub(super) fn look_again(&mut self, superseded: bool) {
        self.again = true;
        if superseded {
            self.superseded.cancel();
        }
    }
}

/// The plugins of an operator that are to be loaded.
pub(super) struct Rollout {
    pub(super) operator: Operator,
    pub(super) changes: Vec<Change>,
    pub(super) loader: Box<dyn Loader>,
    /// How long runs of the version before the last one may take.
    pub(super) drain: Duration,
    /// Cancelled when a newer version of a component is there.
    pub(super) superseded: CancellationToken,
    /// Who says whether its kinds are within its ceiling, if it has one.
    pub(super) judge: Option<Judge>,
    /// The runtime on which components are tried, where what they compute blocks nothing else.
    pub(super) runtime: Runtime,
}

/// A plugin that is to become another version.
pub(super) struct Change {
    pub(super) unit: Unit,
    pub(super) attempt: Attempt,
    pub(super) account: Account,
    /// The ways to write that the running version can ask for; `None` if there is no running version.
    pub(super) writes: Option<BTreeSet<Permission>>,
    /// Waits for the last run of the version before the running one.
    pub(super) before: Option<Drain>,
}

/// The result of loading a plugin.
pub(super) type Outcome = (Unit, Attempt, Result<Arc<dyn Component>, Refusal>);

/// The plugins that were loaded for an operator.
pub(super) struct Loaded {
    /// As it is declared.
    pub(super) operator: Operator,
    /// `None` if something newer is to be loaded.
    pub(super) units: Option<Vec<Outcome>>,
    /// Dropped when the plugins are in place.
    pub(super) _loader: Box<dyn Loader>,
}

/// Loads the changed plugins of an operator in a task of its own, on `rollout.runtime`.
pub(super) async fn load(rollout: Rollout) -> Loaded {
    let runtime = rollout.runtime.clone();
    let task = AbortOnDropHandle::new(runtime.spawn(load_unless_superseded(rollout)));
    match task.await.map_err(JoinError::try_into_panic) {
        Ok(loaded) => loaded,
        Err(Ok(panic)) => resume_unwind(panic),
        // Its runtime has ended, and the daemon is about to end.
        Err(Err(_)) => std::future::pending().await,
    }
}

async fn load_unless_superseded(rollout: Rollout) -> Loaded {
    let units = tokio::select! {
        biased;
        // The component that is being compiled is not wanted any more.
        () = rollout.superseded.cancelled() => None,
        units = load_all(&rollout) => Some(units),
    };
    Loaded { operator: rollout.operator, units, _loader: rollout.loader }
}

async fn load_all(rollout: &Rollout) -> Vec<Outcome> {
    // Nothing is compiled of what may not run.
    let judged = match &rollout.judge {
        Some(judge) => judge.judge(&rollout.operator).await,
        None => Ok(()),
    };
    let loads = rollout.changes.iter().map(async |change| {
        let Change { unit, attempt, before, .. } = change;
        let job = Job { controller: "loading".into(), key: None };
        let loaded = match &judged {
            Ok(()) => change.account.run(job, load_one(rollout, change)).await,
            Err(refusal) => Err(refusal.clone()),
        };
        if loaded.is_ok() {
            wait_for_last_but_one(unit, before.as_ref(), rollout.drain).await;
        }
        let named = |refusal: Refusal| refusal.named(rollout.operator.origin.component(&unit.plugin));
        (unit.clone(), attempt.clone(), loaded.map_err(named))
    });
    join_all(loads).await
}

/// Waits, at most for `limit`, until only two versions of a plugin are at work: there are no instances for more.
async fn wait_for_last_but_one(unit: &Unit, before: Option<&Drain>, limit: Duration) {
    if let Some(drain) = before
        && timeout(limit, drain()).await.is_err()
    {
        tracing::warn!(plugin = %unit, "a version before the last one is still at work");
    }
}

async fn load_one(rollout: &Rollout, change: &Change) -> Result<Arc<dyn Component>, Refusal> {
    let Change { unit, attempt, .. } = change;
    let values = match &attempt.values {
        Given::All(values) => values,
        Given::Refused(why) => return Err(Refusal::new("config", why)),
        Given::Unread => return Err(Refusal::new("config", "its values have not been read")),
    };
    let plugin = rollout.loader.load(&rollout.operator, &unit.plugin, (&attempt.component, values)).await?;
    change.check(&*plugin)?;
    Ok(plugin)
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
            declared.component.as_ref().map(ToString::to_string).unwrap_or_default(),
            verbs.join(", "),
            self.unit.plugin
        );
        Err(Refusal::new("check", &message))
    }
}
