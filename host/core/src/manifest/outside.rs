//! What a manifest declares of dependents outside of the cluster, and what they have in common with those that are Kubernetes objects.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Conditions, Dependent, Manage, Matching};
use crate::cel::Expression;

/// A dependent outside of the cluster, which the component writes (XD rules).
#[derive(Clone, Debug, PartialEq)]
pub struct Outside {
    /// The source that knows what there is of it.
    pub source: Arc<str>,
    /// Which Kubernetes objects remember the ids of its things; `None`: none do (`XD-2`).
    pub state: Option<State>,
    /// What tells its things apart, over [`THING`]; `None`: their ids (`XD-1`).
    pub key: Option<Expression>,
    /// Its id, over `primary`, so that `desired` need not be asked for it (`KD-4`).
    pub called: Option<Expression>,
    /// Whether it is as many things as `desired-set` answers (`BD-1`); default false.
    pub bulk: bool,
    /// The dependents that must be ready before.
    pub depends_on: BTreeSet<Arc<str>>,
    /// What the component is asked to do with it (`DR-1`); all three by default.
    pub manage: Manage,
    /// How it is compared; by default for equality.
    pub matching: Matching,
    /// The conditions, by role.
    pub conditions: Conditions,
    /// What `context.settings` says of it (`DR-7`), a JSON object.
    pub config: Arc<serde_json::Value>,
}

/// The Kubernetes objects that remember the ids of things (`XD-2`).
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// What they are called as a dependent: their source, and the mark that they bear.
    pub name: Arc<str>,
    /// What they are: a bulk that is owned by the primary, and marked.
    pub dependent: Dependent,
}

/// The variable that holds a thing, or what is desired of one.
pub const THING: &str = "thing";

/// A node of a workflow.
#[derive(Clone, Copy, Debug)]
pub enum Node<'a> {
    /// A Kubernetes object, or a bulk of them.
    Object(&'a Dependent),
    /// Something outside of the cluster.
    Thing(&'a Outside),
}

impl<'a> Node<'a> {
    /// Returns the conditions, by role.
    pub fn conditions(self) -> &'a Conditions {
        match self {
            Self::Object(dependent) => &dependent.conditions,
            Self::Thing(outside) => &outside.conditions,
        }
    }

    /// Returns what may be done with it (`DR-1`).
    pub fn manage(self) -> Manage {
        match self {
            Self::Object(dependent) => dependent.manage,
            Self::Thing(outside) => outside.manage,
        }
    }

    /// Whether it is as many as the primary says.
    pub fn bulk(self) -> bool {
        match self {
            Self::Object(dependent) => dependent.bulk,
            Self::Thing(outside) => outside.bulk,
        }
    }

    /// Returns the nodes that it depends on.
    pub fn depends_on(self) -> &'a BTreeSet<Arc<str>> {
        match self {
            Self::Object(dependent) => &dependent.depends_on,
            Self::Thing(outside) => &outside.depends_on,
        }
    }

    /// Whether what it is, or what remembers it, may hold values of a Secret (`SSA-7`, `DT-4`).
    pub(crate) fn shows_secret(self) -> bool {
        match self {
            Self::Object(dependent) => dependent.is_secretive(),
            Self::Thing(outside) => outside.state.as_ref().is_some_and(|state| state.dependent.is_secretive()),
        }
    }

    /// Whether it is deleted on cleanup, so that a finalizer is needed (`DR-5`): nobody else collects what is outside of the cluster.
    pub fn deletable(self) -> bool {
        match self {
            Self::Object(dependent) => dependent.deletable(),
            Self::Thing(outside) => outside.manage.delete,
        }
    }
}
