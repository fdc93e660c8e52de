//! Keeps what is asked for operators of other namespaces than the daemon's own within the ceilings as they are now (CE-6, CE-7).

use std::sync::Arc;

use capstan_core::cluster::{self, Error, Reason};
use capstan_core::kinds::Verb;
use capstan_core::manifest::{Ceilings, Operator};
use capstan_core::operator::ceiling::kinds::{self, Served, Told};
use tokio::sync::watch;

use super::Kind;

/// The verbs that whatever has a cache is asked for.
const WATCHED: [Verb; 2] = [Verb::List, Verb::Watch];

/// The ceilings that hold now.
#[derive(Debug)]
pub struct InForce(watch::Sender<Arc<Ceilings>>);

/// The ceiling that holds now for the operators of a namespace.
#[derive(Clone, Debug)]
pub struct Within {
    ceilings: Arc<InForce>,
    namespace: Arc<str>,
}

/// Whether this has not been asked for because of a ceiling, rather than refused by the API server.
pub fn is_beyond(error: &Error) -> bool {
    error.reason == Reason::Forbidden && error.code == 0
}

// === impl InForce ===

impl Default for InForce {
    fn default() -> Self {
        Self::new(Ceilings::default())
    }
}

impl InForce {
    /// Returns these ceilings.
    pub fn new(ceilings: Ceilings) -> Self {
        Self(watch::Sender::new(Arc::new(ceilings)))
    }

    /// Returns those that hold now.
    pub fn now(&self) -> Arc<Ceilings> {
        Arc::clone(&self.0.borrow())
    }

    /// Lets these hold from now on. Returns whether they are others.
    pub fn set(&self, ceilings: Ceilings) -> bool {
        self.0.send_if_modified(|now| {
            let others = **now != ceilings;
            *now = Arc::new(ceilings);
            others
        })
    }

    /// Returns the one for the operators of a namespace.
    pub fn of(self: &Arc<Self>, namespace: &Arc<str>) -> Within {
        Within { ceilings: Arc::clone(self), namespace: Arc::clone(namespace) }
    }
}

// === impl Within ===

impl Within {
    /// Returns who is told when other ceilings hold.
    pub fn news(&self) -> watch::Receiver<Arc<Ceilings>> {
        self.ceilings.0.subscribe()
    }

    /// Checks that what a kind is called is permitted to be asked for this.
    ///
    /// # Errors
    /// [`Reason::Forbidden`], with what is permitted.
    pub fn permit(&self, kind: &Kind, subresource: Option<&str>, verbs: &[Verb]) -> Result<(), Error> {
        let Self { ceilings, namespace } = self;
        let served = Served { plural: Arc::clone(&kind.plural), scope: kind.scope };
        let refusal = match ceilings.now().of(namespace) {
            Some(ceiling) => kinds::refusal((namespace, ceiling), &kind.gvk, &served, subresource, verbs),
            None => Some(format!("the namespace {namespace} has no ceiling")),
        };
        refusal.map_or(Ok(()), |why| Err(Error::new(Reason::Forbidden, 0, why)))
    }

    /// Checks that objects of a kind may be watched.
    ///
    /// # Errors
    /// [`Reason::Forbidden`], with what is permitted.
    pub fn permit_watch(&self, kind: &Kind) -> Result<(), Error> {
        self.permit(kind, None, &WATCHED)
    }

    /// Returns what an operator needs of kinds beyond the ceiling, given what the API server calls them.
    pub fn excess(&self, operator: &Operator, told: &Told) -> Vec<String> {
        let Self { ceilings, namespace } = self;
        match ceilings.now().of(namespace) {
            Some(ceiling) => kinds::excess(operator, namespace, ceiling, told).into_iter().collect(),
            None => vec![format!("spec: the namespace {namespace} has no ceiling")],
        }
    }
}

/// Returns the verb that a write needs.
pub(super) fn verb(verb: &cluster::Verb) -> Verb {
    match verb {
        cluster::Verb::Create { .. } => Verb::Create,
        cluster::Verb::Replace { .. } => Verb::Update,
        cluster::Verb::Apply { .. } | cluster::Verb::JsonPatch { .. } | cluster::Verb::MergePatch { .. } => Verb::Patch,
        cluster::Verb::Delete(_) => Verb::Delete,
    }
}
