//! The visitor of a workflow's nodes, the basis of its writes, and the reasons why a visit stops.

use crate::cluster;
use crate::guest::{CallReason, ConditionResult, ConditionRole, NodeFailure, Operation, Session};
use crate::manifest::{Dependent, Workflow};
use crate::object::Object;
use crate::reconciler::run::Run;
use crate::source;
use crate::text;
use crate::workflow::Mode;
use crate::writes;

/// Visits the nodes of one workflow in one run.
pub(in crate::reconciler) struct Visitor<'a> {
    pub(in crate::reconciler) run: &'a Run,
    pub(in crate::reconciler) session: &'a dyn Session,
    pub(in crate::reconciler) workflow: &'a Workflow,
    pub(in crate::reconciler) mode: Mode,
}

/// What a visit came to, up to a failure.
#[derive(Default)]
pub(super) struct Told {
    /// What was done with which object.
    pub(super) done: Vec<(String, Operation)>,
    /// The results of the node's conditions.
    pub(super) conditions: Vec<(ConditionRole, ConditionResult)>,
}

/// The reason why a visit ended without a result.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stopped {
    /// The API server refused a request.
    #[error(transparent)]
    Refused(#[from] cluster::Error),
    /// The source does not know all objects yet.
    #[error(transparent)]
    Unknown(#[from] source::Doubt),
    /// The component was asked about an object, and has failed.
    #[error("{0}")]
    Asked(String),
    /// Several objects of a bulk failed, each for a reason of its own.
    #[error("{}", .0.message)]
    Several(NodeFailure),
    /// What is desired can't be made, or is no object.
    #[error("{0}")]
    Unmade(String),
    /// It is not known what there is outside of the cluster: nobody has read it with success.
    #[error("{0}")]
    Unread(String),
    /// Any other reason.
    #[error("{0}")]
    Failed(String),
}

impl From<String> for Stopped {
    fn from(text: String) -> Self {
        Self::Failed(text)
    }
}

impl Stopped {
    /// Returns why the write of a dependent has stopped, without what the API server says of an object that shows a Secret (`DT-4`).
    pub(super) fn told_of(self, spec: &Dependent) -> Self {
        if let (Self::Refused(error), true) = (&self, spec.shows_secret) {
            return Self::Refused(error.clone().hushed());
        }
        self
    }

    /// Returns true if the API server refused a request for want of rights.
    pub(super) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Refused(error) if error.reason == cluster::Reason::Forbidden)
    }

    /// Returns true if the same would be stopped again, however often it is tried: it is refused for what it is.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Refused(error) => matches!(error.reason, cluster::Reason::Rejected | cluster::Reason::Invalid),
            Self::Unmade(_) => true,
            Self::Unknown(_) | Self::Asked(_) | Self::Unread(_) | Self::Several(_) | Self::Failed(_) => false,
        }
    }

    /// Returns true if what stopped the visit of one object would stop that of any other, too.
    pub(super) fn stops_others(&self) -> bool {
        match self {
            Self::Refused(error) => error.is_outage(),
            Self::Unknown(_) | Self::Asked(_) | Self::Unread(_) => true,
            Self::Several(_) | Self::Unmade(_) | Self::Failed(_) => false,
        }
    }
}

impl From<Stopped> for NodeFailure {
    fn from(stopped: Stopped) -> Self {
        let message = text::kept(stopped.to_string());
        let refused = match stopped {
            Stopped::Refused(error) => Some(writes::refused(error).reason),
            Stopped::Unknown(_) | Stopped::Unread(_) => Some(CallReason::Unreachable),
            Stopped::Several(failure) => failure.refused,
            Stopped::Asked(_) | Stopped::Unmade(_) | Stopped::Failed(_) => None,
        };
        Self { message, refused }
    }
}

/// The basis of a write: the object that a dependent's desired state is written to.
pub(super) enum Basis {
    /// No object: it has to be created.
    Absent,
    /// An object that is ours.
    Ours(Object),
    /// An object that becomes ours.
    Adopted(Object),
}

impl Basis {
    /// Returns the basis for the object of a dependent that the caches have, if there is one that belongs to it.
    pub(super) fn of(actual: Option<Object>) -> Self {
        actual.map_or(Self::Absent, Self::Ours)
    }

    /// Returns true if a refusal can mean that another object exists, or no object, and if that matters.
    pub(super) fn is_doubted_by(&self, error: &cluster::Error, spec: &Dependent) -> bool {
        match self {
            Self::Absent => error.is_conflict() && !spec.create_only,
            // An apply with the uid of an object that is gone is refused as invalid, too.
            Self::Ours(_) => error.is_conflict() || error.code == 422,
            Self::Adopted(_) => false,
        }
    }
}
