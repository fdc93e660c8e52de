//! Whom connections of components and to registries trust: the roots of the system or, where there are none, Mozilla's.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;
use tracing::{error, warn};

/// Sessions of a plugin, or with a registry, that are resumed.
const SESSIONS: usize = 32;

/// Reads the roots of the system, which `SSL_CERT_FILE` and `SSL_CERT_DIR` can name.
pub(crate) fn roots() -> RootCertStore {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        for error in &found.errors {
            warn!(%error, "a certificate of the system can't be read");
        }
        roots.add_parsable_certificates(webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().cloned());
    }
    tracing::debug!(roots = roots.len(), "certificates for connections that are no API server's");
    roots
}

/// Returns what speaks TLS for a plugin, or with a registry; what it remembers of a server is nobody else's.
pub(crate) fn connector(roots: Arc<RootCertStore>) -> Option<TlsConnector> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let mut config = match config.with_safe_default_protocol_versions() {
        Ok(config) => config.with_root_certificates(roots).with_no_client_auth(),
        Err(error) => {
            error!(%error, "nobody can use TLS");
            return None;
        }
    };
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Some(TlsConnector::from(Arc::new(config)))
}
