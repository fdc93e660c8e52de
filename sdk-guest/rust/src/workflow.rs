//! Runs workflows and dependents by hand, and says what became of the managed workflow.
//!
//! The daemon calls `desired` and the like in another instance of the component; values for them go through
//! [`memo`](crate::memo).

use crate::bindings::imports::capstan::operator as contract;
use crate::{Error, Result, daemon};

/// What became of a workflow.
pub type WorkflowResult = contract::workflow::WorkflowResult;
/// What became of a node.
pub type NodeResult = contract::workflow::NodeResult;
/// What was done with an object.
pub type ObjectResult = contract::workflow::ObjectResult;
/// What can be done with an object.
pub type Operation = contract::workflow::Operation;
/// What a condition said.
pub type ConditionOutcome = contract::workflow::ConditionOutcome;
/// What a condition is for.
pub type ConditionRole = contract::workflow::ConditionRole;

/// Returns the controller's managed workflow.
pub fn managed() -> Workflow {
    Workflow(None)
}

/// Returns a standalone workflow of the manifest.
pub fn standalone(name: &str) -> Workflow {
    Workflow(Some(name.to_owned()))
}

/// Returns a standalone dependent of the manifest.
pub fn dependent(name: &str) -> Dependent {
    Dependent(name.to_owned())
}

/// A workflow of the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "run it, or ask it for its last result"]
pub struct Workflow(Option<String>);

impl Workflow {
    /// Reconciles it; the managed one must be explicit. Fails if a node failed, unless the manifest leaves failures to the
    /// reconciler. Works in `reconcile` and `cleanup` only, and uses up the time of that call.
    pub fn reconcile(&self) -> Result<WorkflowResult> {
        daemon::workflow::reconcile(self.0.as_deref()).map_err(Error::of_call)
    }

    /// Deletes what it has made, leaves first; otherwise like [`reconcile`](Workflow::reconcile).
    pub fn cleanup(&self) -> Result<WorkflowResult> {
        daemon::workflow::cleanup(self.0.as_deref()).map_err(Error::of_call)
    }

    /// Returns what became of it in this run; `None` if it has not run.
    pub fn last_result(&self) -> Option<WorkflowResult> {
        daemon::workflow::last_result(self.0.as_deref())
    }
}

/// A standalone dependent of the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "reconcile or remove it"]
pub struct Dependent(String);

impl Dependent {
    /// Reconciles it.
    pub fn reconcile(&self) -> Result<NodeResult> {
        daemon::workflow::reconcile_dependent(&self.0).map_err(Error::of_call)
    }

    /// Deletes it.
    pub fn remove(&self) -> Result<NodeResult> {
        daemon::workflow::remove_dependent(&self.0).map_err(Error::of_call)
    }
}
