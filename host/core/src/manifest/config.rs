//! Values of `config` that Secrets and ConfigMaps have: which ones a plugin names.

use std::fmt;
use std::sync::Arc;

pub use crate::granted::Holder;

/// Where a value of `config` is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigValue {
    /// In what.
    pub holder: Holder,
    /// The name of that.
    pub name: Arc<str>,
    /// The key of its data.
    pub key: Arc<str>,
    /// In whose namespace it is; `None`: the daemon's own.
    pub tenant: Option<Arc<Tenant>>,
}

/// An operator that lives in another namespace than the daemon's own (CE rules).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tenant {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The service account there, in whose name the daemon reads.
    pub account: Arc<str>,
    /// What the operator is called there.
    pub operator: Arc<str>,
}

impl fmt::Display for ConfigValue {
    /// Writes `Secret name`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.holder.kind(), self.name)
    }
}
