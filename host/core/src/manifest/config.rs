//! Values of `config` that Secrets and ConfigMaps have: which ones a plugin names.

use std::fmt;
use std::sync::Arc;

pub use crate::granted::Holder;

/// Where a value of `config` is, in the daemon's own namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigValue {
    /// In what.
    pub holder: Holder,
    /// The name of that.
    pub name: Arc<str>,
    /// The key of its data.
    pub key: Arc<str>,
}

impl fmt::Display for ConfigValue {
    /// Writes `Secret name`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.holder.kind(), self.name)
    }
}
