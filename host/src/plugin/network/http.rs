//! `wasi:http`: a request of a component, from the check of its host to the last byte of the answer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use capstan_core::network::{Destination, Scheme, Target};
use http::header::HOST;
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, timeout};
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi_http::p2::bindings::LinkOptions;
use wasmtime_wasi_http::p2::bindings::http::types::ErrorCode;
use wasmtime_wasi_http::p2::bindings::http::{outgoing_handler, types};
use wasmtime_wasi_http::p2::types::HostOutgoingRequest;
use wasmtime_wasi_http::{
    Error, RequestOptions, WasiBody, WasiHttp, WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks, WasiHttpView,
};

use super::body::Bounded;
use super::{CONNECT, Failed, Line, OfCall, Open};

/// Bytes that the headers of a request may have, or those of an answer.
const HEADERS: usize = 16 << 10;

/// Bytes of a body that are on their way at once.
const CHUNK: usize = 16 << 10;

/// Bytes that the host of a request may have, its path, and its method.
const LONGEST: [usize; 3] = [512, 8 << 10, 64];

/// The interface whose functions are bounded here.
const TYPES: &str = "wasi:http/types@0.2.12";

/// What sends a request: an answer, and what brings the rest of it.
type Sent = Result<(Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>), Error>;

/// A connection that brings an answer while it is polled.
type Driven = Connection<TokioIo<Stream>, Bounded<WasiBody>>;

/// A connection, whatever carries it.
pub(super) type Stream = Box<dyn Carrier>;

pub(super) trait Carrier: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Carrier for T {}

/// What an instance has of `wasi:http`.
pub(in crate::plugin) struct Http {
    ctx: WasiHttpCtx,
    line: Line,
}

/// Adds `wasi:http` for those who may send requests.
pub(in crate::plugin) fn link<T: WasiHttpView + Send + 'static>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    let options = LinkOptions::default();
    outgoing_handler::add_to_linker::<T, WasiHttp>(linker, T::http)?;
    types::add_to_linker::<T, WasiHttp>(linker, &options.into(), T::http)?;
    // What the daemon would keep of these is bounded nowhere else.
    linker.allow_shadowing(true);
    let mut interface = linker.instance(TYPES)?;
    let [authority, path, method] = LONGEST;
    let set = move |mut store: StoreContextMut<'_, T>, (request, text): (Request1, Option<String>)| {
        if text.as_ref().is_some_and(|text| text.len() > authority) {
            return Ok((Err(()),));
        }
        Ok((types::HostOutgoingRequest::set_authority(&mut store.data_mut().http(), request, text)?,))
    };
    interface.func_wrap("[method]outgoing-request.set-authority", set)?;
    let set = move |mut store: StoreContextMut<'_, T>, (request, text): (Request1, Option<String>)| {
        if text.as_ref().is_some_and(|text| text.len() > path) {
            return Ok((Err(()),));
        }
        Ok((types::HostOutgoingRequest::set_path_with_query(&mut store.data_mut().http(), request, text)?,))
    };
    interface.func_wrap("[method]outgoing-request.set-path-with-query", set)?;
    let set = move |mut store: StoreContextMut<'_, T>, (request, verb): (Request1, types::Method)| {
        if matches!(&verb, types::Method::Other(name) if name.len() > method) {
            return Ok((Err(()),));
        }
        Ok((types::HostOutgoingRequest::set_method(&mut store.data_mut().http(), request, verb)?,))
    };
    interface.func_wrap("[method]outgoing-request.set-method", set)?;
    linker.allow_shadowing(false);
    Ok(())
}

type Request1 = Resource<HostOutgoingRequest>;

/// A connection that brings no more than a few heads before the answer: a server may send any number of provisional ones.
struct Headed {
    stream: Stream,
    left: usize,
    there: Arc<AtomicBool>,
}

impl Headed {
    /// Returns the connection, and what is set once the head of the answer is there.
    fn before(stream: Stream) -> (Stream, Arc<AtomicBool>) {
        let headed = Arc::<AtomicBool>::default();
        (Box::new(Self { stream, left: 4 * HEADERS, there: Arc::clone(&headed) }), headed)
    }
}

impl AsyncRead for Headed {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if !self.there.load(Ordering::Relaxed) {
            let read = buffer.filled().len().saturating_sub(before);
            let Some(left) = self.left.checked_sub(read) else {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            };
            self.left = left;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Headed {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

// === impl Http ===

impl Http {
    /// Returns what an instance has whose connections are those of a line.
    pub(in crate::plugin) fn new(line: Line) -> Self {
        let mut ctx = WasiHttpCtx::new();
        ctx.set_field_size_limit(HEADERS);
        Self { ctx, line }
    }

    pub(in crate::plugin) fn line(&mut self) -> &mut Line {
        &mut self.line
    }

    /// Returns it as the functions of `wasi:http` want it.
    pub(in crate::plugin) fn view<'a>(
        &'a mut self,
        table: &'a mut wasmtime::component::ResourceTable,
    ) -> WasiHttpCtxView<'a> {
        self.line.charge();
        WasiHttpCtxView { hooks: &mut self.line, table, ctx: &mut self.ctx }
    }
}

impl WasiHttpHooks for Line {
    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _processed: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Sent> + Send> {
        let call = Arc::clone(&self.call);
        Box::new(call.clone().spending(async move { call.send(request, options.unwrap_or_default()).await }))
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        CHUNK
    }

    // By default these are written to the log of the daemon.

    fn p2_error_from_hyper(&mut self, error: &hyper::Error) -> ErrorCode {
        let own = std::error::Error::source(error).and_then(|error| error.downcast_ref());
        if let Some(Error::HttpRequestBodySize(size)) = own {
            return ErrorCode::HttpRequestBodySize(*size);
        }
        if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
            return ErrorCode::ConnectionTerminated;
        }
        if error.is_parse_too_large() {
            return ErrorCode::HttpResponseHeaderSectionSize(u32::try_from(HEADERS).ok());
        }
        ErrorCode::HttpProtocolError
    }

    fn p2_error_from_connect(&mut self, _error: &io::Error) -> ErrorCode {
        ErrorCode::ConnectionRefused
    }

    fn p2_error_from_tls(&mut self, _error: &io::Error) -> ErrorCode {
        ErrorCode::TlsProtocolError
    }
}

// === impl OfCall ===

impl OfCall {
    /// Sends a request, if the manifest permits it, and waits for the head of the answer.
    async fn send(self: Arc<Self>, request: Request<WasiBody>, options: RequestOptions) -> Sent {
        let target = asked(&request)?;
        let entry = Destination::find(&self.network.http, &target);
        let sent = match entry {
            Some(entry) => self.within(self.exchange(entry, &target, request, options)).await,
            None => Err(Failed::NotPermitted("http")),
        };
        self.tell(entry, &target, sent.as_ref().err());
        let (answer, connection, open) = sent?;
        let over = self.over.clone().cancelled_owned();
        let rest = async move {
            // Whoever reads the answer hears of what goes wrong.
            if let Some(connection) = connection {
                tokio::select! {
                    biased;
                    () = over => {}
                    _ended = connection => {}
                }
            }
            drop(open);
            Ok(())
        };
        Ok((answer, Box::new(self.spending(rest))))
    }

    async fn exchange(
        self: &Arc<Self>,
        entry: &Destination,
        target: &Target,
        mut request: Request<WasiBody>,
        options: RequestOptions,
    ) -> Result<(Response<WasiBody>, Option<Driven>, Open), Failed> {
        let open = self.open().await?;
        let limit = options.connect_timeout.unwrap_or(CONNECT);
        let stream = timeout(limit, self.carried(entry, target)).await.map_err(|_| Failed::Late)??;
        let (stream, headed) = Headed::before(stream);
        let mut builder = Builder::new();
        builder.max_buf_size(HEADERS);
        let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(Failed::Protocol)?;
        let mut connection = Some(connection);
        // To a server and not to a proxy, only the path goes.
        request.headers_mut().insert(HOST, host_of(target)?);
        *request.uri_mut() = request.uri().path_and_query().map_or(Uri::default(), |path| Uri::from(path.clone()));
        let request = request.map(|body| Bounded::new(body, self, || Error::HttpRequestBodySize(None)));
        let answer = timeout(options.first_byte_timeout.unwrap_or(Duration::MAX), async {
            let mut answer = std::pin::pin!(sender.send_request(request));
            // The connection has to be driven for an answer, and may be at its end before that is read.
            std::future::poll_fn(|cx| {
                if connection.as_mut().is_some_and(|connection| Pin::new(connection).poll(cx).is_ready()) {
                    connection = None;
                }
                answer.as_mut().poll(cx)
            })
            .await
        });
        let answer = answer.await.map_err(|_| Failed::Late)?.map_err(Failed::Protocol)?;
        headed.store(true, Ordering::Relaxed);
        let answer = answer.map(|body: Incoming| {
            let body = Bounded::new(body, self, || Error::HttpResponseBodySize(None));
            body.with_pause(options.between_bytes_timeout).boxed_unsync()
        });
        Ok((answer, connection, open))
    }

    /// Connects to a host, with TLS if that is asked for.
    pub(super) async fn carried(&self, entry: &Destination, target: &Target) -> Result<Stream, Failed> {
        let stream = self.network.connect(entry, target).await?;
        if target.scheme != Some(Scheme::Https) {
            return Ok(Box::new(stream));
        }
        let no_tls = |why: &str| Failed::Tls(io::Error::other(why.to_owned()));
        let connector = self.network.tls.as_ref().ok_or_else(|| no_tls("there is none"))?;
        let name = ServerName::try_from(target.host.clone()).map_err(|_| no_tls("that is no name of a server"))?;
        let stream = connector.connect(name, stream).await.map_err(Failed::Tls)?;
        Ok(Box::new(stream))
    }

    /// Does something and counts the time that it computes; it rests if that is too much.
    fn spending<T>(self: Arc<Self>, work: impl Future<Output = T> + Send) -> impl Future<Output = T> + Send {
        let mut work = Box::pin(work);
        let mut rest = None::<Pin<Box<Sleep>>>;
        std::future::poll_fn(move |cx| {
            if let Some(resting) = &mut rest {
                ready!(resting.as_mut().poll(cx));
                rest = None;
            }
            let begun = Instant::now();
            let polled = work.as_mut().poll(cx);
            let wait = self.spend(begun.elapsed());
            if !wait.is_zero() {
                rest = Some(Box::pin(sleep(wait)));
            }
            polled
        })
    }
}

/// Returns what a request says to whom it goes: to whom it does, whatever else the component says.
fn host_of(target: &Target) -> Result<HeaderValue, Failed> {
    let Target { scheme, host, port } = target;
    let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    let usual = scheme.is_some_and(|scheme| scheme.port() == *port);
    let text = if usual { host } else { format!("{host}:{port}") };
    HeaderValue::try_from(text).map_err(|_| Failed::NoAddress("that is no name of a host".to_owned()))
}

/// Returns to whom a request goes.
fn asked(request: &Request<WasiBody>) -> Result<Target, Error> {
    let uri = request.uri();
    let scheme = match uri.scheme_str() {
        Some("http") => Scheme::Http,
        Some("https") => Scheme::Https,
        _ => return Err(Error::HttpProtocolError),
    };
    let authority = uri.authority().ok_or(Error::HttpRequestUriInvalid)?;
    if authority.as_str().contains('@') {
        return Err(Error::HttpRequestUriInvalid);
    }
    if request.method() == Method::CONNECT {
        return Err(Error::HttpRequestMethodInvalid);
    }
    // What is no port would be another one to the server, by the header `host`.
    let port = match authority.as_str().strip_prefix(authority.host()) {
        Some("") => scheme.port(),
        _ => authority.port_u16().ok_or(Error::HttpRequestUriInvalid)?,
    };
    Ok(Target::new(Some(scheme), authority.host(), port))
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::NotPermitted(_) => Self::HttpRequestDenied,
            Failed::Closed { .. } => Self::DestinationIpProhibited,
            Failed::TooMany | Failed::AllTaken | Failed::NoRoom(_) => Self::ConnectionLimitReached,
            Failed::NoAddress(why) => Self::DnsError { rcode: Some(why), info_code: None },
            Failed::Nowhere => Self::Connect(io::ErrorKind::ConnectionRefused.into()),
            Failed::Late => Self::ConnectionTimeout,
            Failed::Over => Self::ConnectionTerminated,
            Failed::Refused(error) => Self::Connect(error),
            Failed::Tls(error) => Self::Tls(error),
            Failed::Protocol(error) => Self::Hyper(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_told_the_host_that_the_manifest_permits_and_no_other() {
        for (scheme, host, port, expected) in [
            (Scheme::Http, "Example.com.", 80, "example.com"),
            (Scheme::Https, "example.com", 443, "example.com"),
            (Scheme::Https, "example.com", 80, "example.com:80"),
            (Scheme::Http, "[::1]", 8080, "[::1]:8080"),
        ] {
            let told = host_of(&Target::new(Some(scheme), host, port)).unwrap();
            assert_eq!(told, expected, "{host}");
        }
        assert!(host_of(&Target::new(Some(Scheme::Http), "a\r\nhost: b", 80)).is_err());
    }
}
