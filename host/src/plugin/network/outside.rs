//! What the networks of all plugins have in common: addresses that are closed to names, whom they trust, where they count.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use capstan_core::network::{Closed, Destination, Target, plain};
use parking_lot::{Mutex, RwLock};
use rustls::RootCertStore;

use super::here::is_here;
use crate::metrics::{Connections, Metrics};
use crate::tls;

/// The most that is remembered of what was asked for.
const ASKED: usize = 64;

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
    /// What was asked of networks that lead nowhere; none of those that lead outside.
    nowhere: Option<Mutex<BTreeSet<String>>>,
}

impl Outside {
    /// Returns networks that count here, in which these ports of this machine are never reached.
    pub fn new(own: BTreeSet<u16>, metrics: Arc<Metrics>) -> Self {
        Self(Arc::new(Common { own, metrics, ..Common::default() }))
    }

    /// Returns networks that lead nowhere: no connection is opened and no name looked up, and what was asked for is remembered.
    pub fn nowhere() -> Self {
        Self(Arc::new(Common { nowhere: Some(Mutex::default()), ..Common::default() }))
    }

    /// Whether no connection is opened, and no name looked up.
    pub(super) fn is_nowhere(&self) -> bool {
        self.0.nowhere.is_some()
    }

    /// Remembers what was asked of networks that lead nowhere.
    pub(super) fn note(&self, asked: &Target) {
        let Some(mut all) = self.0.nowhere.as_ref().map(Mutex::lock) else { return };
        if all.len() < ASKED {
            all.insert(asked.to_string());
        }
    }

    /// Returns what networks that lead nowhere were asked for since the last call.
    pub fn asked(&self) -> BTreeSet<String> {
        self.0.nowhere.as_ref().map(|all| std::mem::take(&mut *all.lock())).unwrap_or_default()
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
