//! Other clusters: which an operator names, and which of them a controller and its sources use.

use std::sync::Arc;

use super::{Controller, Source};

/// Another cluster, as an operator names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Remote {
    /// The operator, and its name for the cluster: `pages/edge`.
    pub id: Arc<str>,
    /// The operator, to which the Secret has to permit it.
    pub operator: Arc<str>,
    /// The Secret in the daemon's own namespace that has the kubeconfig.
    pub secret: Arc<str>,
    /// The key of its data; default `kubeconfig`.
    pub key: Arc<str>,
}

impl Controller {
    /// Returns the name of the cluster that a source watches; `None`: the daemon's own.
    pub fn cluster_of<'a>(&'a self, source: &'a Source) -> Option<&'a Arc<str>> {
        source.cluster.as_ref().or(self.cluster.as_ref())
    }
}
