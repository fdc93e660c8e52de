//! Opens connections to the API server, for whoever speaks HTTP by hand.

use std::net::TcpStream;
use std::sync::Arc;

use anyhow::{Context, Result};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// An encrypted connection.
pub type Connection = StreamOwned<ClientConnection, TcpStream>;

/// Connects to a server at `https://ADDRESS:PORT` that the authority in `pem` vouches for.
pub(crate) fn connect(url: &str, pem: &str) -> Result<Connection> {
    let address = url.trim_start_matches("https://");
    let (host, _) = address.rsplit_once(':').with_context(|| format!("{url} has no port"))?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).context("read the authority")?)?;
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned())?;
    let stream = TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
    Ok(StreamOwned::new(ClientConnection::new(Arc::new(config), name)?, stream))
}
