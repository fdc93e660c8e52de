//! What the networks of all plugins have in common: addresses that are closed to names, whom they trust, where they count.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use capstan_core::network::{Closed, Destination, plain};
use parking_lot::RwLock;
use rustls::RootCertStore;

use super::here::is_here;
use crate::metrics::{Connections, Metrics};
use crate::tls;

/// What the networks of all plugins have in common. Cheap to clone.
#[derive(Clone, Default)]
pub struct Outside(Arc<Common>);

#[derive(Default)]
struct Common {
    /// Addresses that are reached only if a manifest writes them: the API server's.
    guarded: RwLock<BTreeSet<IpAddr>>,
    /// The ports at which the daemon itself listens: from this machine it answers everybody, with what concerns all operators.
    own: BTreeSet<u16>,
    metrics: Arc<Metrics>,
    /// Read when the first plugin needs them.
    roots: OnceLock<Arc<RootCertStore>>,
}

impl Outside {
    /// Returns networks that count here, in which these ports of this machine are never reached.
    pub fn new(own: BTreeSet<u16>, metrics: Arc<Metrics>) -> Self {
        Self(Arc::new(Common { own, metrics, ..Common::default() }))
    }

    /// Takes in which addresses are reached only where a manifest writes them, from now on.
    pub fn guard(&self, addresses: BTreeSet<IpAddr>) {
        *self.0.guarded.write() = addresses;
    }

    /// Checks that a host which an entry of a manifest names may be reached at an address.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, entry: &Destination, address: SocketAddr) -> Result<(), Closed> {
        let Common { guarded, own, .. } = &*self.0;
        // The addresses of a pod lead to it past every NetworkPolicy, as loopback does.
        if own.contains(&address.port()) && is_here(plain(address.ip())) {
            return Err(Closed::Own);
        }
        entry.reaches(address.ip(), &guarded.read())
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
    pub(crate) fn roots(&self) -> Arc<RootCertStore> {
        Arc::clone(self.0.roots.get_or_init(|| Arc::new(tls::roots())))
    }
}
