//! Serves pages to any client; connections, time and memory are bounded, so that the daemon keeps what it needs.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use capstan_core::bucket::{Bucket, Rate};
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

mod busy;

pub use busy::Busy;
use busy::{Doing, Stream};

/// How long the head of a request may take to arrive, and how long a connection may stay unused between requests.
const HEAD: Duration = Duration::from_secs(5);

/// The longest head of a request, in bytes.
const LONGEST_HEAD: usize = 16 << 10;

/// How long a connection may last, whatever is sent or read on it.
const LIFE: Duration = Duration::from_secs(30);

/// The pause before the next connection is accepted, if accepting one failed for want of a file descriptor.
const PAUSE: Duration = Duration::from_millis(100);

/// How often it is told that there is no room for more connections.
const TOLD: Duration = Duration::from_mins(1);

/// The rate at which TLS is agreed upon: each time takes up to a millisecond of the processor.
const HANDSHAKES: Rate = Rate { interval: Duration::from_millis(5), burst: 100 };

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections at a time. A new one replaces the oldest on which nothing is done, else one of the client that is sent answers on most.
    pub connections: usize,
    /// How long an answer may take.
    pub answer: Duration,
}

/// The client's address, as an extension of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// An open connection.
struct Open {
    task: AbortHandle,
    peer: IpAddr,
    busy: Busy,
}

/// How clients speak.
#[derive(Clone)]
pub enum Transport {
    /// As they like: nothing is hidden from who listens.
    Plain,
    /// By TLS, with what this returns at the time.
    Tls(Arc<dyn Fn() -> TlsAcceptor + Send + Sync>),
}

/// A connection whose requests are to be answered.
struct Connection {
    peer: Peer,
    busy: Busy,
    handshakes: Arc<Handshakes>,
}

/// Has connections wait for their turn to agree upon TLS, one after the other, and each only once its client has sent something. Who gives up
/// leaves its turn to the next.
#[derive(Default)]
struct Handshakes(tokio::sync::Mutex<Bucket>);

/// Returns the token of a request.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Serves until `stop` is cancelled, then closes all connections.
pub async fn serve(listener: TcpListener, router: Router, bounds: Bounds, stop: CancellationToken) {
    serve_by(&Transport::Plain, listener, router, bounds, stop).await;
}

/// The same, by TLS or not.
pub async fn serve_by(
    transport: &Transport,
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    stop: CancellationToken,
) {
    let mut tasks = JoinSet::new();
    let (mut open, mut told) = (VecDeque::new(), None);
    let handshakes = Arc::<Handshakes>::default();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            Some(_ended) = tasks.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                open.retain(|open: &Open| !open.task.is_finished());
                if open.len() >= bounds.connections {
                    tell(&open, &mut told);
                }
                if !has_room(&mut open, bounds.connections) {
                    continue;
                }
                let busy = Busy::default();
                let connection =
                    Connection { peer: Peer(peer.ip()), busy: busy.clone(), handshakes: Arc::clone(&handshakes) };
                let task = tasks.spawn(connection.open(stream, transport.clone(), router.clone(), bounds.answer));
                open.push_back(Open { task, peer: peer.ip().to_canonical(), busy });
            }
            // Nobody else waits because a peer is gone already.
            Err(error) if is_of_peer(error.kind()) => {}
            // No descriptor is left until another connection ends.
            Err(_) => sleep(PAUSE).await,
        }
    }
    tasks.shutdown().await;
}

/// Returns true if it is one connection that could not be accepted, and the next one may be at once.
fn is_of_peer(error: ErrorKind) -> bool {
    use ErrorKind as E;
    matches!(error, E::ConnectionAborted | E::ConnectionRefused | E::ConnectionReset | E::Interrupted | E::TimedOut)
        || matches!(error, E::HostUnreachable | E::NetworkUnreachable)
}

/// Returns true if there is room for one more connection; if need be, closes the oldest one on which nothing is done. So a client that opens
/// connections and sends no requests keeps no other client out. Where answers are written on all, it closes the oldest of the client that has
/// most of these: so one that does not read neither keeps others out nor breaks their answers off.
fn has_room(open: &mut VecDeque<Open>, most: usize) -> bool {
    if open.len() < most {
        return true;
    }
    let idle = open.iter().position(|open| open.busy.doing() == Doing::Nothing);
    let closed = idle.or_else(|| greediest(open)).and_then(|at| open.remove(at));
    closed.inspect(|closed| closed.task.abort()).is_some()
}

/// Tells once in a while that connections take the place of others, and who has most of them.
fn tell(open: &VecDeque<Open>, told: &mut Option<Instant>) {
    let now = Instant::now();
    if told.is_some_and(|told| now.duration_since(told) < TOLD) {
        return;
    }
    *told = Some(now);
    let mut clients: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for open in open {
        *clients.entry(open.peer).or_default() += 1;
    }
    if let Some((client, connections)) = clients.into_iter().max_by_key(|(_, connections)| *connections) {
        tracing::warn!(%client, connections, "there is no room for more connections: new ones take the place of others");
    }
}

/// Returns the oldest connection of the client that is sent answers on most, if it is sent some on several.
fn greediest(open: &VecDeque<Open>) -> Option<usize> {
    let mut writing: BTreeMap<IpAddr, Vec<usize>> = BTreeMap::new();
    for (at, open) in open.iter().enumerate().filter(|(_, open)| open.busy.doing() == Doing::Writing) {
        writing.entry(open.peer).or_default().push(at);
    }
    let most = writing.into_values().max_by_key(Vec::len)?;
    most.first().copied().filter(|_| most.len() > 1)
}

// === impl Connection ===

impl Connection {
    /// Answers the requests of the connection.
    async fn open(self, stream: TcpStream, transport: Transport, router: Router, limit: Duration) {
        match transport {
            Transport::Plain => self.answer(stream, router, limit).await,
            Transport::Tls(current) => {
                let accepted = async {
                    self.handshakes.turn(&stream).await?;
                    current().accept(stream).await
                };
                // If the peer wants something else, there is nothing to do.
                if let Ok(Ok(stream)) = timeout(HEAD, accepted).await {
                    self.answer(stream, router, limit).await;
                }
            }
        }
    }

    async fn answer<S>(self, stream: S, router: Router, limit: Duration)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Self { peer, busy, .. } = self;
        let stream = Stream { stream, busy: busy.clone() };
        let router = TowerToHyperService::new(router);
        let service = service_fn(|mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer);
            request.extensions_mut().insert(busy.clone());
            let (answer, busy) = (router.call(request), busy.clone());
            async move {
                busy.begin();
                let answer = timeout(limit, answer).await;
                let late = || (StatusCode::SERVICE_UNAVAILABLE, "no answer in time\n").into_response();
                Ok::<Response, Infallible>(busy.writes(answer.map_or_else(|_| late(), |Ok(answer)| answer)))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .max_buf_size(LONGEST_HEAD)
            // Who has said all may say so, and is answered.
            .half_close(true)
            .serve_connection(TokioIo::new(stream), service);
        // If the peer disconnects or takes too long, there is nothing to do.
        drop(timeout(LIFE, connection).await);
    }
}

// === impl Handshakes ===

impl Handshakes {
    /// Waits until a client has sent something, and then for the turn of its connection.
    async fn turn(&self, stream: &TcpStream) -> std::io::Result<()> {
        stream.peek(&mut [0]).await?;
        // Held while it waits: so nobody who waits behind it and gives up has used up a turn.
        let mut bucket = self.0.lock().await;
        sleep(bucket.take(HANDSHAKES, Instant::now())).await;
        Ok(())
    }
}

// === impl Peer ===

impl Peer {
    /// True if the client is on this host, or in this pod.
    pub fn is_here(self) -> bool {
        self.0.to_canonical().is_loopback()
    }
}

#[cfg(test)]
mod tests {
    use axum::Extension;
    use axum::body::{Body, to_bytes};
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const BOUNDS: Bounds = Bounds { connections: 4, answer: Duration::from_millis(200) };

    struct Server {
        address: std::net::SocketAddr,
        _stop: tokio_util::sync::DropGuard,
    }

    async fn server() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new()
            .route("/quick", get(|| async { "quick" }))
            .route("/who", get(async |Extension(peer): Extension<Peer>| format!("{peer:?}")))
            .route("/slow", get(std::future::pending::<&'static str>))
            .route("/read", get(read_body))
            .route("/long", get(|| async { "x".repeat(64 << 20) }));
        let stop = CancellationToken::new();
        tokio::spawn(serve(listener, router, BOUNDS, stop.clone()));
        Server { address, _stop: stop.drop_guard() }
    }

    async fn read_body(Extension(busy): Extension<Busy>, body: Body) -> String {
        format!("{:?}", busy.waits(to_bytes(body, 9)).await)
    }

    impl Server {
        async fn send(&self, text: &str) -> TcpStream {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
            stream
        }

        async fn get(&self, path: &str) -> String {
            read(self.send(&format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).await).await
        }
    }

    /// Reads to the end, which may be a reset.
    async fn read(mut stream: TcpStream) -> String {
        let mut text = Vec::new();
        drop(timeout(2 * LIFE, stream.read_to_end(&mut text)).await.expect("an end"));
        String::from_utf8(text).unwrap()
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn nobody_waits_for_want_of_descriptors_because_a_peer_is_gone() {
        for (error, of_peer) in [(103, true), (104, true), (24, false)] {
            assert_eq!(is_of_peer(std::io::Error::from_raw_os_error(error).kind()), of_peer, "{error}");
        }
    }

    #[tokio::test]
    async fn connections_that_ask_nothing_or_whose_bodies_do_not_come_keep_nobody_out() {
        let server = server().await;
        let mut idle = Vec::new();
        let body = "GET /read HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nb";
        for begun in ["", "GET /qui", "GET /quick HTTP/1.1\r\nx: ", body].iter().cycle().take(100) {
            idle.push(server.send(begun).await);
            if idle.len() % 10 == 0 {
                assert!(server.get("/quick").await.ends_with("quick"));
            }
        }
    }

    #[tokio::test]
    async fn an_answer_is_written_to_its_end_whatever_a_neighbour_does_not_read() {
        let server = server().await;
        let mut reader = server.send("GET /long HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
        let mut head = [0; 9];
        reader.read_exact(&mut head).await.unwrap();
        let mut neighbours = Vec::new();
        for _ in 0..20 {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
            let mut stream = socket.connect(server.address).await.unwrap();
            stream.write_all(b"GET /long HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
            // Until it is answered, or has found no room.
            drop(stream.read(&mut [0]).await);
            neighbours.push(stream);
        }
        assert!(server.get("/quick").await.ends_with("quick"), "they keep nobody out either");
        assert!(read(reader).await.len() > 64 << 20);
    }

    #[tokio::test]
    async fn a_connection_whose_answer_was_read_gives_way() {
        let server = server().await;
        let mut idle = Vec::new();
        for _ in 0..20 {
            let mut stream = server.send("GET /quick HTTP/1.1\r\nhost: x\r\n\r\n").await;
            stream.read_exact(&mut [0; 9]).await.unwrap();
            idle.push(stream);
            assert!(server.get("/quick").await.ends_with("quick"));
        }
    }

    #[tokio::test]
    async fn a_body_that_is_announced_is_not_waited_for() {
        let server = server().await;
        for length in ["content-length: 1000000000", "transfer-encoding: chunked"] {
            let head = format!("GET /quick HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n{length}\r\n\r\n");
            let answer = read(server.send(&head).await).await;
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("quick"), "{answer}");
        }
    }

    #[tokio::test]
    async fn an_answer_that_takes_too_long_is_broken_off() {
        let server = server().await;
        assert!(server.get("/slow").await.starts_with("HTTP/1.1 503 "));
    }

    #[tokio::test]
    async fn a_head_that_is_too_long_is_refused() {
        let server = server().await;
        let many = "x: y\r\n".repeat(320 << 10);
        let long = format!("x: {}\r\n", "y".repeat(320 << 10));
        for headers in [many, long] {
            let head = format!("GET /quick HTTP/1.1\r\n{headers}\r\n");
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            // The server need not read to the end.
            drop(stream.write_all(head.as_bytes()).await);
            let answer = read(stream).await;
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
        }
    }

    #[tokio::test]
    async fn who_sends_nothing_or_gives_up_takes_nobodys_turn_to_agree_upon_tls() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connect = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(connect, listener.accept());
        let (mut client, stream) = (client.unwrap(), accepted.unwrap().0);
        let handshakes = Handshakes::default();
        let is_full = async || handshakes.0.lock().await.is_full(Instant::now());
        assert!(timeout(Duration::from_millis(10), handshakes.turn(&stream)).await.is_err());
        assert!(is_full().await, "it has sent nothing");
        client.write_all(b"x").await.unwrap();
        let held = handshakes.0.lock().await;
        assert!(timeout(Duration::from_millis(10), handshakes.turn(&stream)).await.is_err());
        drop(held);
        assert!(is_full().await, "it has given up");
        let begun = Instant::now();
        handshakes.turn(&stream).await.unwrap();
        assert!(!handshakes.0.lock().await.is_full(begun), "it has had its turn");
    }

    #[tokio::test]
    async fn who_has_said_all_is_answered() {
        let server = server().await;
        let mut stream = server.send("GET /quick HTTP/1.1\r\nhost: x\r\n\r\n").await;
        stream.shutdown().await.unwrap();
        assert!(read(stream).await.ends_with("quick"));
    }

    #[tokio::test]
    async fn a_page_is_told_who_asks() {
        let server = server().await;
        let asked = server.send("GET /who HTTP/1.0\r\n\r\n").await;
        let answer = read(asked).await;
        assert!(answer.ends_with("\r\n\r\nPeer(127.0.0.1)"), "{answer}");
        for (address, here) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("10.0.0.1", false),
            ("::ffff:10.0.0.1", false),
            ("fe80::1", false),
        ] {
            assert_eq!(Peer(address.parse().unwrap()).is_here(), here, "{address}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_does_not_come_and_an_answer_that_is_not_read_end_the_connection() {
        let server = server().await;
        let half = server.send("GET /quick HTTP/1.1\r\nx: ").await;
        assert_eq!(read(half).await, "");
        let unread = server.send("GET /long HTTP/1.1\r\nhost: x\r\n\r\n").await;
        sleep(LIFE + HEAD).await;
        assert!(read(unread).await.len() < 64 << 20);
    }
}
