//! Opens a port for requests from outside while a source takes any, and closes it otherwise.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::http::{self, Bounds, Transport};
use crate::listen;

pub mod desk;
mod gate;
mod tls;

use desk::Desk;
pub use tls::Certificate;

/// Limits of the server. An answer comes before its connection ends, as each connection has one request.
const BOUNDS: Bounds = Bounds { connections: 256, answer: Duration::from_secs(20) };

/// Connections that wait to be accepted.
const BACKLOG: u32 = 256;

/// The pause before an address that was given up is taken again, if somebody else has it.
const PAUSE: Duration = Duration::from_secs(5);

/// An address that is taken, but not open.
pub struct Port {
    address: SocketAddr,
    socket: TcpSocket,
    certificate: Option<Certificate>,
}

impl Port {
    /// Takes an address. Who connects is refused until it is served.
    ///
    /// # Errors
    /// If it is in use or does not belong to this host.
    pub fn take(address: SocketAddr, certificate: Option<Certificate>) -> anyhow::Result<Self> {
        let socket = listen::socket(address).with_context(|| format!("take {address} for requests from outside"))?;
        let address = socket.local_addr().context("find the own address")?;
        if certificate.is_none() && !address.ip().is_loopback() {
            tracing::warn!(%address, "requests from outside come without TLS, and show their tokens to who listens: give --inbound-tls-cert and --inbound-tls-key");
        }
        Ok(Self { address, socket, certificate })
    }

    /// Returns its number.
    pub fn number(&self) -> u16 {
        self.address.port()
    }

    /// Serves while requests are `wanted`, until `stop` is cancelled.
    pub async fn serve(self, desk: Desk, wanted: watch::Receiver<bool>, stop: CancellationToken) {
        let Self { address, socket, certificate } = self;
        let transport = certificate.as_ref().map_or(Transport::Plain, Certificate::transport);
        let keep = async {
            match &certificate {
                Some(certificate) => certificate.keep().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = keep => {}
            () = open_and_close((address, socket), &transport, &desk, wanted) => {}
        }
    }
}

/// Tells of sources that take requests although there is no port for them.
pub async fn tell(mut wanted: watch::Receiver<bool>) {
    if wanted.wait_for(|wanted| *wanted).await.is_ok() {
        tracing::warn!(
            "a manifest has sources that take requests from outside, and the daemon has no port for them: give --inbound-listen"
        );
    }
}

async fn open_and_close(
    (address, socket): (SocketAddr, TcpSocket),
    transport: &Transport,
    desk: &Desk,
    mut wanted: watch::Receiver<bool>,
) {
    let mut taken = Some(socket);
    // An error says that nothing runs any more.
    while wanted.wait_for(|wanted| *wanted).await.is_ok() {
        let listener = match open(address, taken.take()) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!(%address, %error, "the port for requests from outside can't be opened; it is tried again");
                sleep(PAUSE).await;
                continue;
            }
        };
        let tls = matches!(transport, Transport::Tls(_));
        tracing::info!(%address, tls, "taking requests from outside");
        let closed = CancellationToken::new();
        let server = http::serve_by(transport, listener, desk.router(), BOUNDS, closed.clone());
        let over = async {
            drop(wanted.wait_for(|wanted| !*wanted).await);
            closed.cancel();
        };
        futures::future::join(server, over).await;
        tracing::info!(%address, "no source takes requests from outside any more");
    }
}

fn open(address: SocketAddr, taken: Option<TcpSocket>) -> std::io::Result<TcpListener> {
    taken.map_or_else(|| listen::socket(address), Ok)?.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::pki_types::{CertificateDer, ServerName};
    use rustls::{ClientConfig, RootCertStore};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;
    use tokio_rustls::TlsConnector;

    use super::*;

    const REQUEST: &[u8] = b"POST /o/c/s HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n";

    fn desk() -> Desk {
        Desk::new(&Arc::default(), Arc::new(|_| None), &Arc::default(), tokio::runtime::Handle::current())
    }

    /// Waits until the port is open, or closed.
    async fn connect(address: SocketAddr, wanted: bool) -> Option<TcpStream> {
        for _ in 0..1000 {
            let found = TcpStream::connect(address).await.ok();
            if found.is_some() == wanted {
                return found;
            }
            sleep(Duration::from_millis(5)).await;
        }
        panic!("the port should be open: {wanted}");
    }

    #[tokio::test]
    async fn a_port_is_open_while_requests_are_wanted_and_closed_otherwise() {
        // IB-3
        let port = Port::take("127.0.0.1:0".parse().unwrap(), None).unwrap();
        let (address, sender, stop) = (port.address, watch::Sender::new(false), CancellationToken::new());
        assert!(TcpStream::connect(address).await.is_err(), "nobody wants requests yet");
        let server = tokio::spawn(port.serve(desk(), sender.subscribe(), stop.clone()));
        for _ in 0..2 {
            sender.send_replace(true);
            let mut stream = connect(address, true).await.unwrap();
            stream.write_all(REQUEST).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 404 ") && answer.contains("connection: close"), "{answer}");
            sender.send_replace(false);
            connect(address, false).await;
        }
        stop.cancel();
        server.await.unwrap();
    }

    #[tokio::test]
    async fn a_port_with_a_certificate_speaks_tls_alone() {
        // IB-3
        let dir = tempfile::tempdir().unwrap();
        let [certificate, key] = ["tls.crt", "tls.key"].map(|name| dir.path().join(name));
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let port = Port::take("127.0.0.1:0".parse().unwrap(), Some(Certificate::read(&certificate, &key).unwrap()));
        let (port, stop) = (port.unwrap(), CancellationToken::new());
        let address = port.address;
        let sender = watch::Sender::new(true);
        let _server = tokio::spawn(port.serve(desk(), sender.subscribe(), stop.clone()));
        let mut plain = connect(address, true).await.unwrap();
        plain.write_all(REQUEST).await.unwrap();
        let mut answer = Vec::new();
        drop(plain.read_to_end(&mut answer).await);
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");

        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(made.cert.der().to_vec())).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let stream = connect(address, true).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        stream.write_all(REQUEST).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    }
}
