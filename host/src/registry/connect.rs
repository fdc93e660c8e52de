//! Opens a connection to a registry, or to where it leads, at an address that may be reached, and with TLS.

use bytes::Bytes;
use capstan_core::network::Scheme;
use capstan_core::registry::{Failure, Kind, Url};
use http_body_util::Full;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;

use super::proxy::Proxy;
use super::{Session, away, within};
use crate::tls;

/// The most addresses of a host that are tried.
const TRIED: usize = 4;

/// The most bytes of the head of an answer.
const HEAD: usize = 64 << 10;

/// A connection: what sends a request, and what brings the answer as long as this exists.
pub(super) struct Connection {
    pub(super) sender: SendRequest<Full<Bytes>>,
    /// The proxy that is asked in place of the server.
    pub(super) proxy: Option<Proxy>,
    pub(super) driver: AbortOnDropHandle<()>,
}

impl Session {
    /// Connects to the server of a URL.
    pub(super) async fn connect(&self, url: &Url) -> Result<Connection, Failure> {
        within(self.way.patience.connect, &format!("the connection to {}", url.server()), self.open(url)).await
    }

    async fn open(&self, url: &Url) -> Result<Connection, Failure> {
        let proxy = self.way.proxies.of(url);
        let stream = match &proxy {
            Some(proxy) => proxy.connect().await?,
            None => self.reach(url).await?,
        };
        stream.set_nodelay(true).map_err(|error| away(error.to_string()))?;
        if url.scheme == Scheme::Http {
            return Ok(Connection { proxy, ..spoken(stream, url).await? });
        }
        let stream = match &proxy {
            Some(proxy) => proxy.tunnel(stream, url).await?,
            None => stream,
        };
        let failed = |why: String| away(format!("TLS with {}: {why}", url.server()));
        let connector = tls::connector(self.way.roots.clone()).ok_or_else(|| failed("there is none".to_owned()))?;
        let name = ServerName::try_from(url.host.clone()).map_err(|error| failed(error.to_string()))?;
        let stream = connector.connect(name, stream).await.map_err(|error| failed(error.to_string()))?;
        spoken(stream, url).await
    }

    /// Connects to one of the addresses of a host that may be reached: it is not looked up again.
    async fn reach(&self, url: &Url) -> Result<TcpStream, Failure> {
        let unknown = |why: String| away(format!("the host of {} has no address: {why}", url.server()));
        let to = url.destination(&self.reference).ok_or_else(|| unknown("it is none".to_owned()))?;
        let found = self.way.names.find(&url.host, url.port, to.internal).await;
        let found = found.map_err(|error| unknown(error.to_string()))?;
        let mut last = unknown("there is none".to_owned());
        for address in found.into_iter().take(TRIED) {
            if let Err(why) = (self.way.reach)(&to, address) {
                let closed = format!("{} has the address {}: {why}", url.server(), address.ip());
                last = Failure::new(Kind::Denied, closed);
                continue;
            }
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = away(format!("{} can't be reached: {error}", url.server())),
            }
        }
        Err(last)
    }
}

async fn spoken(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    url: &Url,
) -> Result<Connection, Failure> {
    let mut builder = Builder::new();
    builder.max_buf_size(HEAD);
    let failed = |error: hyper::Error| away(format!("{}: {error}", url.server()));
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let driver = async {
        // Who waits for the answer hears of what goes wrong.
        drop(connection.await);
    };
    Ok(Connection { sender, proxy: None, driver: AbortOnDropHandle::new(tokio::spawn(driver)) })
}
