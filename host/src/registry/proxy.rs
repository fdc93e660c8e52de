//! Finds the proxy by which a registry is reached, as the environment says it, and opens a way through it (PX rules).

use std::sync::Arc;

use capstan_core::network::Scheme;
use capstan_core::registry::{Failure, Kind, Url};
use http::{HeaderValue, Uri};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::away;

/// The most bytes of a proxy's answer, before what comes through it.
const HEAD: usize = 8 << 10;

/// The proxies of the environment; by default, none.
#[derive(Clone, Debug, Default)]
pub struct Proxies(Option<Arc<Matcher>>);

/// A proxy by which something is reached.
#[derive(Clone, Debug)]
pub(super) struct Proxy(Intercept);

// === impl Proxies ===

impl Proxies {
    /// Returns those that `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` say, in capitals or not.
    pub fn of_environment() -> Self {
        Self(Some(Arc::new(Matcher::from_env())))
    }

    /// Returns these proxies for `http` and `https`, and hosts that are reached without.
    #[cfg(test)]
    pub(super) fn new(http: &str, https: &str, no: &str) -> Self {
        Self(Some(Arc::new(Matcher::builder().http(http).https(https).no(no).build())))
    }

    /// Returns the proxy for the server of a URL; `None`: it is reached without. No other machine reaches what is on this one.
    pub(super) fn of(&self, url: &Url) -> Option<Proxy> {
        let is_here =
            url.host == "localhost" || url.host.parse().is_ok_and(|host: std::net::IpAddr| host.is_loopback());
        let uri: Uri = url.server().parse().ok()?;
        self.0.as_ref().filter(|_| !is_here)?.intercept(&uri).map(Proxy)
    }
}

// === impl Proxy ===

impl Proxy {
    /// Returns its address, for people: without who asks.
    pub(super) fn shown(&self) -> String {
        let uri = self.0.uri();
        format!(
            "{}://{}",
            uri.scheme_str().unwrap_or_default(),
            uri.authority().map(http::uri::Authority::as_str).unwrap_or_default()
        )
    }

    /// Returns what shows it who asks, as the header `Proxy-Authorization` has it.
    pub(super) fn authorization(&self) -> Option<&HeaderValue> {
        self.0.basic_auth()
    }

    /// Connects to it. Whoever starts the daemon says where it is, so every address may be reached.
    pub(super) async fn connect(&self) -> Result<TcpStream, Failure> {
        let uri = self.0.uri();
        let (Some("http"), Some(host)) = (uri.scheme_str(), uri.host()) else {
            let why = format!("the proxy {} can't be used; expected one of http://", self.shown());
            return Err(Failure::new(Kind::Denied, why));
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((host, uri.port_u16().unwrap_or(Scheme::Http.port()))).await;
        stream.map_err(|error| away(format!("the proxy {} can't be reached: {error}", self.shown())))
    }

    /// Has it connect to the server of a URL, so that what is said from now on is said to that.
    pub(super) async fn tunnel(&self, mut stream: TcpStream, url: &Url) -> Result<TcpStream, Failure> {
        let failed = |why: String| away(format!("the proxy {}: {why}", self.shown()));
        let host = if url.host.contains(':') { format!("[{}]", url.host) } else { url.host.clone() };
        let to = format!("{host}:{}", url.port);
        let mut request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n").into_bytes();
        if let Some(authorization) = self.authorization() {
            request.extend_from_slice(b"Proxy-Authorization: ");
            request.extend_from_slice(authorization.as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        stream.write_all(&request).await.map_err(|error| failed(error.to_string()))?;
        // Byte by byte: what comes after the head is not of the proxy.
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() == HEAD {
                return Err(failed(format!("its answer has more than {HEAD} bytes")));
            }
            let byte = stream.read_u8().await.map_err(|error| failed(format!("it ends before it answers: {error}")))?;
            head.push(byte);
        }
        match status(&head) {
            Some(200..=299) => Ok(stream),
            Some(407) => Err(Failure::new(Kind::Denied, failed("it does not take who asks (407)".to_owned()).message)),
            Some(status) => Err(failed(format!("it answers {status} when asked for {to}"))),
            None => Err(failed("its answer is none of HTTP".to_owned())),
        }
    }
}

/// Returns the status of an answer of HTTP 1.
fn status(head: &[u8]) -> Option<u16> {
    let line = std::str::from_utf8(head.split(|byte| *byte == b'\r').next()?).ok()?;
    let mut words = line.split(' ');
    words.next().filter(|version| version.starts_with("HTTP/1."))?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests;
