//! Prepares the workflows of a manifest: their order, and the expressions of their dependents.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::guest::ConditionRole;
use crate::manifest::{self, Dependent};
use crate::workflow::condition::{self, Check, Expression};
use crate::workflow::graph::{self, Graph};

/// A workflow, ready to be walked.
#[derive(Debug)]
pub struct Flow {
    pub(super) graph: Graph,
    pub(super) nodes: BTreeMap<Arc<str>, Node>,
    pub(super) explicit: bool,
    pub(super) errors_to_reconciler: bool,
}

/// A dependent, with its expressions compiled.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) spec: Dependent,
    pub(super) checks: Vec<(ConditionRole, Check)>,
    pub(super) called: Option<Called>,
}

/// The name and namespace that the manifest gives a dependent's object.
#[derive(Debug)]
pub(super) struct Called {
    pub(super) name: Expression,
    pub(super) namespace: Option<Expression>,
}

/// The reason why a workflow can't be walked. It is found at load; retrying does not help.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The order of its dependents is wrong.
    #[error(transparent)]
    Order(#[from] graph::Error),
    /// An expression is wrong.
    #[error("dependent {name}: {source}")]
    Expression {
        /// The dependent.
        name: Arc<str>,
        /// The fault of the expression.
        source: condition::Error,
    },
}

// === impl Flow ===

impl Flow {
    /// Prepares a workflow of the manifest.
    ///
    /// # Errors
    /// [`Error`] for a cycle, an unknown name or a wrong expression.
    pub fn new(declared: &manifest::Workflow) -> Result<Self, Error> {
        let node = |(name, spec): (&Arc<str>, &Dependent)| {
            let node = Node::new(spec).map_err(|source| Error::Expression { name: Arc::clone(name), source })?;
            Ok((Arc::clone(name), node))
        };
        Ok(Self {
            graph: Graph::new(declared)?,
            nodes: declared.dependents.iter().map(node).collect::<Result<_, Error>>()?,
            explicit: declared.explicit,
            errors_to_reconciler: declared.errors_to_reconciler,
        })
    }

    /// Returns true if it runs by itself, before the reconciler (`WF-10`).
    pub(crate) fn is_managed(&self) -> bool {
        !self.explicit && !self.nodes.is_empty()
    }
}

impl Node {
    fn new(spec: &Dependent) -> Result<Self, condition::Error> {
        let declared = ROLES.into_iter().filter_map(|role| Some((role, spec.conditions.of(role)?)));
        let checks = declared.map(|(role, condition)| Ok((role, Check::new(condition)?)));
        Ok(Self {
            checks: checks.collect::<Result<_, condition::Error>>()?,
            called: spec.called.as_ref().map(Called::new).transpose()?,
            spec: spec.clone(),
        })
    }
}

impl Called {
    fn new(called: &manifest::Called) -> Result<Self, condition::Error> {
        let namespace = called.namespace.as_deref().map(Expression::parse);
        Ok(Self { name: Expression::parse(&called.name)?, namespace: namespace.transpose()? })
    }
}

const ROLES: [ConditionRole; 4] = [
    ConditionRole::Activation,
    ConditionRole::ReconcilePrecondition,
    ConditionRole::ReadyPostcondition,
    ConditionRole::DeletePostcondition,
];
