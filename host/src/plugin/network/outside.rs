//! What the networks of all plugins have in common: addresses that are closed to names, whom they trust, where they count.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use rustls::RootCertStore;

use super::tls;
use crate::metrics::{Connections, Metrics};

/// What the networks of all plugins have in common. Cheap to clone.
#[derive(Clone, Default)]
pub struct Outside(Arc<Common>);

#[derive(Default)]
struct Common {
    /// Addresses that are reached only if a manifest writes them: the API server's.
    guarded: BTreeSet<IpAddr>,
    metrics: Arc<Metrics>,
    /// Read when the first plugin needs them.
    roots: OnceLock<Arc<RootCertStore>>,
}

impl Outside {
    /// Returns networks that count here, and in which these addresses are reached only where a manifest writes them.
    pub fn new(guarded: BTreeSet<IpAddr>, metrics: Arc<Metrics>) -> Self {
        Self(Arc::new(Common { guarded, metrics, roots: OnceLock::new() }))
    }

    /// Returns the addresses that are reached only if a manifest writes them.
    pub(super) fn guarded(&self) -> &BTreeSet<IpAddr> {
        &self.0.guarded
    }

    /// Returns what counts the connections of a plugin.
    pub(super) fn connections(&self, operator: &Arc<str>, plugin: &Arc<str>) -> Connections {
        self.0.metrics.plugins.connections(operator, plugin)
    }

    #[cfg(test)]
    pub(super) fn trusting(roots: RootCertStore) -> Self {
        let outside = Self::default();
        assert!(outside.0.roots.set(Arc::new(roots)).is_ok());
        outside
    }

    /// Returns whom connections trust.
    pub(super) fn roots(&self) -> Arc<RootCertStore> {
        Arc::clone(self.0.roots.get_or_init(|| Arc::new(tls::roots())))
    }
}
