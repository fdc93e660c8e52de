//! Has the certificate of the port for requests from outside, and reads it again when its files have changed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use crate::http::Transport;
use crate::read;

/// How often the files are looked at.
const AGAIN: Duration = Duration::from_secs(5);

/// A certificate and its key, from files.
pub struct Certificate {
    files: [PathBuf; 2],
    /// What was read last, be it of use or not.
    seen: Mutex<[Vec<u8>; 2]>,
    current: Arc<Mutex<TlsAcceptor>>,
}

impl Certificate {
    /// Reads a certificate, with those that vouch for it, and its key, in PEM.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn read(certificate: &Path, key: &Path) -> anyhow::Result<Self> {
        let files = [certificate.to_owned(), key.to_owned()];
        let seen = contents(&files)?;
        let current = Arc::new(Mutex::new(acceptor(&files, &seen)?));
        Ok(Self { files, seen: Mutex::new(seen), current })
    }

    /// Returns how connections speak that begin at the time.
    pub fn transport(&self) -> Transport {
        let current = Arc::clone(&self.current);
        Transport::Tls(Arc::new(move || current.lock().clone()))
    }

    /// Takes changes of the files, without an end. What can't be used is told once; the certificate before goes on.
    pub async fn keep(&self) {
        loop {
            sleep(AGAIN).await;
            self.look();
        }
    }

    fn look(&self) {
        // Between the renaming of one file and of the other nothing may be there.
        let Ok(now) = contents(&self.files) else { return };
        if std::mem::replace(&mut *self.seen.lock(), now.clone()) == now {
            return;
        }
        match acceptor(&self.files, &now) {
            Ok(acceptor) => {
                *self.current.lock() = acceptor;
                tracing::info!(file = %self.files[0].display(), "requests from outside find a new certificate");
            }
            Err(error) => {
                tracing::error!(error = %format!("{error:#}"), "the new certificate for requests from outside can't be used: the one before goes on");
            }
        }
    }
}

fn contents([certificate, key]: &[PathBuf; 2]) -> anyhow::Result<[Vec<u8>; 2]> {
    let content = |file: &Path| read::bytes(file, read::TEXT).with_context(|| format!("read {}", file.display()));
    Ok([content(certificate)?, content(key)?])
}

fn acceptor(files: &[PathBuf; 2], [certificate, key]: &[Vec<u8>; 2]) -> anyhow::Result<TlsAcceptor> {
    let [of_certificate, of_key] = [files[0].display(), files[1].display()];
    let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
    let chain = chain.with_context(|| format!("read the certificates in {of_certificate}"))?;
    anyhow::ensure!(!chain.is_empty(), "{of_certificate} has no certificate; expected one or more in PEM");
    // The reason might show some of the key.
    let key = PrivateKeyDer::from_pem_slice(key);
    let key = key.map_err(|_| anyhow::anyhow!("{of_key} has no private key that can be read; expected one in PEM"))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().context("set up TLS")?.with_no_client_auth();
    let config = config.with_single_cert(chain, key);
    let mut config = config.with_context(|| format!("use {of_certificate} with {of_key}"))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_changed_certificate_is_taken_and_one_that_is_wrong_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let [certificate, key] = ["tls.crt", "tls.key"].map(|name| dir.path().join(name));
        let made = || {
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            (made.cert.pem(), made.signing_key.serialize_pem())
        };
        let write = |(one, other): &(String, String)| {
            fs::write(&certificate, one).unwrap();
            fs::write(&key, other).unwrap();
        };
        let (first, second) = (made(), made());
        let refused = Certificate::read(&certificate, &key).map(|_| ()).unwrap_err();
        assert!(format!("{refused:#}").starts_with("read "), "{refused:#}");
        write(&first);
        let read = Certificate::read(&certificate, &key).unwrap();
        let config = || Arc::clone(read.current.lock().config());
        let before = config();
        read.look();
        assert!(Arc::ptr_eq(&before, &config()), "nothing has changed");
        for wrong in [(first.0.clone(), second.1.clone()), (String::new(), first.1.clone()), (first.0, "x".to_owned())]
        {
            write(&wrong);
            read.look();
            assert!(Arc::ptr_eq(&before, &config()), "the one before goes on");
            assert!(Certificate::read(&certificate, &key).is_err());
        }
        write(&second);
        read.look();
        assert!(!Arc::ptr_eq(&before, &config()));
    }
}
