//! Talks to registries of OCI artifacts: pulls components and their signatures, and pushes them.
//!
//! An own client on what the daemon has anyway: `docs/adr/0010-an-own-client-of-registries.md` says why. What it asks and what answers mean is
//! decided in [`capstan_core::registry`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::network::{Closed, Destination, Scheme};
use capstan_core::registry::challenge::Access;
use capstan_core::registry::{Credentials, Failure, Kind, Reference};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::names::Names;

pub mod archive;
mod carry;
mod connect;
mod described;
mod exchange;
pub mod images;
pub mod kept;
mod pages;
mod proxy;
mod pull;
mod push;
mod sign;
mod signatures;

pub use described::interfaces;
pub use proxy::Proxies;
pub use pull::Resolved;
pub use push::Push;
pub use sign::SigningKey;

/// Says whether an address of a destination may be reached.
pub type Reach = Arc<dyn Fn(&Destination, SocketAddr) -> Result<(), Closed> + Send + Sync>;

/// How registries are reached.
#[derive(Clone)]
pub struct Way {
    /// Whom connections trust.
    pub roots: Arc<RootCertStore>,
    /// Which addresses may be reached.
    pub reach: Reach,
    /// Where their names are looked up.
    pub names: Names,
    /// By which proxies.
    pub proxies: Proxies,
    /// How long is waited.
    pub patience: Patience,
}

/// How long is waited for a registry.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For a connection, with names and TLS.
    pub connect: Duration,
    /// For the next bytes of an answer.
    pub idle: Duration,
    /// For an answer with a manifest or a token, with all redirects.
    pub answer: Duration,
    /// For a component, whatever comes meanwhile.
    pub whole: Duration,
}

/// Who asks for what: the questions about one reference, with what was found out on the way.
pub struct Session {
    way: Way,
    reference: Reference,
    /// What the reference stands for where it is in a mirror: signatures are of this.
    origin: Reference,
    credentials: Credentials,
    access: Access,
    scheme: Scheme,
    /// What is sent with each request to the registry itself, once it has asked for it.
    authorization: Option<String>,
}

// === impl Patience ===

impl Default for Patience {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { connect: seconds(10), idle: seconds(30), answer: seconds(30), whole: Duration::from_mins(5) }
    }
}

// === impl Way ===

impl Way {
    /// Returns the same that also trusts these certificates, given as PEM.
    ///
    /// # Errors
    /// If there is none in it, or one can't be read.
    pub fn trusting(&self, pem: &str) -> Result<Self, String> {
        let mut roots = RootCertStore::clone(&self.roots);
        let before = roots.len();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate.map_err(|_| "a certificate in it can't be read".to_owned())?;
            roots.add(certificate).map_err(|_| "a certificate in it can't be used".to_owned())?;
        }
        if roots.len() == before {
            return Err("it has no certificate; expected PEM".to_owned());
        }
        Ok(Self { roots: Arc::new(roots), ..self.clone() })
    }
}

// === impl Session ===

impl Session {
    /// Returns a session that has asked nothing yet, by TLS or, if it `is_insecure`, without.
    pub fn new(
        way: Way,
        reference: &Reference,
        (credentials, access): (Credentials, Access),
        is_insecure: bool,
    ) -> Self {
        let scheme = if is_insecure { Scheme::Http } else { Scheme::Https };
        let (reference, origin) = (reference.clone(), reference.clone());
        Self { way, reference, origin, credentials, access, scheme, authorization: None }
    }

    /// Returns the same for a mirror of what this names (`MR-3`).
    #[must_use]
    pub fn in_place_of(self, origin: &Reference) -> Self {
        Self { origin: origin.clone(), ..self }
    }
}

fn away(message: impl Into<String>) -> Failure {
    Failure::new(Kind::Away, message)
}

/// Does something within a time.
async fn within<T>(limit: Duration, what: &str, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let late = |_| away(format!("{what} took longer than {} s", limit.as_secs_f64()));
    tokio::time::timeout(limit, work).await.map_err(late)?
}

#[cfg(test)]
pub(crate) mod tests;
