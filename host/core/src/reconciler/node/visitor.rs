//! Who visits the nodes of a workflow, what is written upon, and why a visit stops.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster;
use crate::guest::{CallReason, ConditionResult, ConditionRole, NodeFailure, Session};
use crate::manifest::Dependent;
use crate::object::Object;
use crate::reconciler::flow::Node;
use crate::reconciler::run::Run;
use crate::source;
use crate::text;
use crate::workflow::Mode;
use crate::writes;

/// Visits the nodes of one workflow in one run.
pub(in crate::reconciler) struct Visitor<'a> {
    pub(in crate::reconciler) run: &'a Run,
    pub(in crate::reconciler) session: &'a dyn Session,
    pub(in crate::reconciler) nodes: &'a BTreeMap<Arc<str>, Node>,
    pub(in crate::reconciler) mode: Mode,
}

/// What was said of a node's conditions, up to a failure.
pub(super) type Told = Vec<(ConditionRole, ConditionResult)>;

/// Why a visit ended without a result.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stopped {
    /// The API server refused.
    #[error(transparent)]
    Refused(#[from] cluster::Error),
    /// What there is is not known yet.
    #[error(transparent)]
    Unknown(#[from] source::Doubt),
    /// Something else.
    #[error("{0}")]
    Failed(String),
}

impl From<String> for Stopped {
    fn from(text: String) -> Self {
        Self::Failed(text)
    }
}

impl From<Stopped> for NodeFailure {
    fn from(stopped: Stopped) -> Self {
        let message = text::kept(stopped.to_string());
        let refused = match stopped {
            Stopped::Refused(error) => Some(writes::refused(error).reason),
            Stopped::Unknown(_) => Some(CallReason::Unreachable),
            Stopped::Failed(_) => None,
        };
        Self { message, refused }
    }
}

/// What a dependent's desired state is written upon.
pub(super) enum Basis {
    /// Nothing: it is to be created.
    Absent,
    /// What is ours.
    Ours(Object),
    /// What becomes ours.
    Adopted(Object),
}

impl Basis {
    /// Returns what the caches have of a dependent's object that belongs to it.
    pub(super) fn of(actual: Option<Object>) -> Self {
        actual.map_or(Self::Absent, Self::Ours)
    }

    /// Whether a refusal can mean that another object is there, or none, and that this matters.
    pub(super) fn is_doubted_by(&self, error: &cluster::Error, spec: &Dependent) -> bool {
        match self {
            Self::Absent => error.is_conflict() && !spec.create_only,
            // An apply that names the uid of an object that is gone is refused as invalid, too.
            Self::Ours(_) => error.is_conflict() || error.code == 422,
            Self::Adopted(_) => false,
        }
    }
}
