//! The network as components have it: each connection is permitted by the manifest, resolved and checked here, counted, and
//! gone with the call that opened it.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use capstan_core::bucket::{Bucket, Rate};
use capstan_core::cpu;
use capstan_core::manifest::{Capabilities, Limits};
use capstan_core::network::{Closed, Destination, Scheme, Target};
use capstan_core::room::{Holding, Room};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use super::output::{Home, Level};
use crate::metrics::Connections;
use crate::tls;

mod body;
mod here;
pub(super) mod http;
pub(super) mod outside;
pub(super) mod tcp;

use outside::Outside;

/// What a connection counts for of the memory that all plugins share: its buffers, heads and keys.
const CONNECTION: u64 = 256 << 10;

/// What an instance with a network counts for besides: requests, answers and headers that it holds without a connection.
const HELD: u64 = 2 << 20;

/// What a TCP connection counts for: a write of the component is kept until it is sent.
const TCP: u64 = 1 << 20;

/// Connections that one call may have open; of TCP, that it may open at all.
const OPEN: usize = 8;

/// What connections of one plugin may compute aside of its runs: a token is a microsecond, so a quarter of a core, and a
/// tenth of a second at once.
const PACE: Rate = Rate { interval: Duration::from_micros(4), burst: 100_000 };

/// Names of one plugin that are looked up at once: the system holds a thread for each, also when nobody waits any more.
const LOOKUPS: usize = 4;

/// Addresses of a name that are looked at, and of all names in a call that are remembered.
const FOUND: [usize; 2] = [64, 256];

/// The stack of such a thread.
const STACK: usize = 256 << 10;

/// How long it may take until a connection stands, where the component asks for no less.
const CONNECT: Duration = Duration::from_secs(10);

/// Addresses of a name that are tried.
const TRIED: usize = 4;

/// The entry of the manifest under which it counts what a component asks of the API server and is refused.
const KUBERNETES: &str = "capabilities.kubernetes";

/// The network of a plugin: what its manifest permits.
pub(super) struct Network {
    http: Vec<Destination>,
    tcp: Vec<Destination>,
    outside: Outside,
    counted: Connections,
    tls: Option<TlsConnector>,
    /// `limits.connections`
    permits: Arc<Semaphore>,
    lookups: Arc<Semaphore>,
    /// What its connections may still compute aside of its runs.
    pace: Mutex<Bucket>,
    /// Bytes that a body may have: `limits.memory`, for more of it would not do the component any good.
    body: u64,
    /// As the room knows the plugin.
    unit: Arc<str>,
    room: Room,
}

/// The network as the instance of a component has it: what it opens ends with its call.
pub(super) struct Line {
    call: Arc<OfCall>,
    /// The same.
    current: tcp::Current,
    used_up: bool,
    /// The sockets that the instance has made.
    sockets: usize,
    _held: Option<Holding>,
}

/// What connections of a call share.
struct OfCall {
    network: Arc<Network>,
    home: Home,
    deadline: Instant,
    /// Cancelled when the call is over.
    over: CancellationToken,
    open: AtomicUsize,
    /// Nanoseconds that were computed for it and nobody has been charged for, as connections are no part of a run.
    spent: AtomicU64,
    /// TCP connections, also those that are closed again.
    opened: Mutex<Vec<Open>>,
    /// Addresses and ports that names have led to, and the entries with those names.
    found: Mutex<BTreeMap<(IpAddr, u16), Destination>>,
}

/// The right to have a connection open.
struct Open {
    _counted: Counted,
    _permit: OwnedSemaphorePermit,
    _held: Holding,
}

/// One of the connections of a call.
struct Counted(Arc<OfCall>);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("the manifest does not permit it; add it to `{0}` under `capabilities` of the plugin")]
    NotPermitted(&'static str),
    #[error("{host} has the address {address}: {why}")]
    Closed { host: String, address: IpAddr, why: Closed },
    #[error("a call has {OPEN} connections open at most")]
    TooMany,
    #[error("other calls of the plugin have all that it may have (limits.connections)")]
    AllTaken,
    #[error("{0}")]
    NoRoom(String),
    #[error("the host has no address: {0}")]
    NoAddress(String),
    #[error("nothing outside is asked in golden cases, nor where a component is only checked")]
    Nowhere,
    #[error("the connection did not come about in time")]
    Late,
    #[error("the call is over")]
    Over,
    #[error("{0}")]
    Refused(io::Error),
    #[error("TLS: {0}")]
    Tls(io::Error),
    #[error("HTTP: {0}")]
    Protocol(hyper::Error),
}

/// What has an instance of a component with a network.
pub(super) trait Connected {
    /// Returns its network.
    fn line(&mut self) -> &mut Line;
}

// === impl Network ===

impl Network {
    /// Returns the network of a plugin.
    pub(super) fn new(
        outside: &Outside,
        (operator, plugin): (&Arc<str>, &Arc<str>),
        capabilities: &Capabilities,
        limits: &Limits,
        room: &Room,
    ) -> Self {
        let http = capabilities.http.clone();
        let tls = http.iter().any(|entry| entry.scheme != Some(Scheme::Http)).then(|| tls::connector(outside.roots()));
        Self {
            tls: tls.flatten(),
            counted: outside.connections(operator, plugin),
            permits: Arc::new(Semaphore::new(limits.connections)),
            lookups: Arc::new(Semaphore::new(LOOKUPS)),
            pace: Mutex::default(),
            body: limits.memory,
            unit: format!("{operator}/{plugin}").into(),
            room: room.clone(),
            outside: outside.clone(),
            tcp: capabilities.tcp.clone(),
            http,
        }
    }

    /// Returns no network.
    pub(super) fn none() -> Self {
        let nobody = Arc::default();
        let (capabilities, limits) = (Capabilities::default(), Limits::default());
        Self::new(&Outside::default(), (&nobody, &nobody), &capabilities, &limits, &Room::default())
    }

    /// Whether HTTP requests are permitted to anybody.
    pub(super) fn has_http(&self) -> bool {
        !self.http.is_empty()
    }

    /// Whether TCP connections are permitted to anybody.
    pub(super) fn has_tcp(&self) -> bool {
        !self.tcp.is_empty()
    }

    /// Whether anything is permitted.
    pub(super) fn is_there(&self) -> bool {
        self.has_http() || self.has_tcp()
    }

    /// Whether nothing is connected or looked up.
    pub(super) fn leads_nowhere(&self) -> bool {
        self.outside.is_nowhere()
    }

    /// Counts what was asked of the API server, and was refused here.
    pub(super) fn refused(&self, result: &'static str) {
        self.counted.count(KUBERNETES.to_owned(), result);
    }

    /// Returns the addresses of a host. Until the system has answered, nobody else of the plugin has its thread.
    async fn resolve(&self, target: &Target, internal: bool) -> Result<Vec<IpAddr>, Failed> {
        if let Ok(address) = target.host.parse::<IpAddr>() {
            return Ok(vec![address]);
        }
        if self.leads_nowhere() {
            return Err(Failed::Nowhere);
        }
        let permit = Arc::clone(&self.lookups).acquire_owned().await.map_err(|_| Failed::Over)?;
        let (names, port) = (target.names(internal), target.port);
        let (tell, told) = oneshot::channel();
        let thread = thread::Builder::new().name("lookup".into()).stack_size(STACK).spawn(move || {
            let mut found = Err(io::Error::other("it has no name"));
            for name in names {
                found = (name.as_str(), port).to_socket_addrs();
                if found.is_ok() {
                    break;
                }
            }
            let found = found.map(|found| found.map(|address| address.ip()).take(FOUND[0]).collect::<Vec<_>>());
            drop(permit);
            // Who has asked may be gone.
            drop(tell.send(found));
        });
        drop(thread.map_err(|error| Failed::NoAddress(error.to_string()))?);
        match told.await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => Err(Failed::NoAddress(error.to_string())),
            Err(_) => Err(Failed::Over),
        }
    }

    /// Returns the addresses of a host at which the manifest permits it.
    async fn addresses(&self, entry: &Destination, target: &Target) -> Result<Vec<IpAddr>, Failed> {
        let found = self.resolve(target, entry.internal).await?;
        let mut closed = None;
        let mut open = Vec::new();
        for address in found {
            match self.outside.check(entry, SocketAddr::new(address, target.port)) {
                Ok(()) => open.push(address),
                Err(why) => closed = Some(Failed::Closed { host: target.host.clone(), address, why }),
            }
        }
        open.truncate(TRIED);
        match closed {
            Some(closed) if open.is_empty() => Err(closed),
            _ if open.is_empty() => Err(Failed::NoAddress("there is none".to_owned())),
            _ => Ok(open),
        }
    }

    /// Connects to a host at one of the addresses that were checked: it is not looked up again.
    async fn connect(&self, entry: &Destination, target: &Target) -> Result<TcpStream, Failed> {
        if self.leads_nowhere() {
            return Err(Failed::Nowhere);
        }
        let mut last = Failed::Late;
        for address in self.addresses(entry, target).await? {
            match TcpStream::connect(SocketAddr::new(address, target.port)).await {
                Ok(stream) => {
                    stream.set_nodelay(true).map_err(Failed::Refused)?;
                    return Ok(stream);
                }
                Err(error) => last = Failed::Refused(error),
            }
        }
        Err(last)
    }
}

// === impl Line ===

impl Line {
    /// Returns the network of an instance that has not started.
    pub(super) fn new(network: &Arc<Network>, home: &Home) -> Self {
        let held = network.is_there().then(|| {
            let mut held = network.room.holding(&network.unit);
            held.grow_anyway(HELD);
            held
        });
        let call = Arc::new(OfCall::new(Arc::clone(network), home.clone(), Instant::now()));
        Self { current: Arc::new(Mutex::new(Arc::clone(&call))), call, used_up: false, sockets: 0, _held: held }
    }

    /// Begins a call that has to be over then; what was opened before is closed.
    pub(super) fn begin(&mut self, deadline: Instant) {
        if !self.call.network.is_there() {
            return;
        }
        self.end();
        let OfCall { network, home, .. } = &*self.call;
        self.call = Arc::new(OfCall::new(Arc::clone(network), home.clone(), deadline));
        *self.current.lock() = Arc::clone(&self.call);
    }

    /// Whether a call has opened what only goes with the instance: sockets are not the daemon's to close.
    pub(super) fn is_used_up(&self) -> bool {
        self.used_up
    }

    /// Ends the call: nothing that it has opened stays open.
    pub(super) fn end(&mut self) {
        self.call.over.cancel();
        let opened = std::mem::take(&mut *self.call.opened.lock());
        self.used_up |= !opened.is_empty();
        self.charge();
    }

    /// Charges the run with what was computed for it aside. To be called in a poll of the run.
    pub(super) fn charge(&self) {
        let spent = self.call.spent.swap(0, Ordering::Relaxed);
        if spent > 0 {
            cpu::charge(Duration::from_nanos(spent));
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.end();
    }
}

// === impl OfCall ===

impl OfCall {
    fn new(network: Arc<Network>, home: Home, deadline: Instant) -> Self {
        let (open, spent) = (AtomicUsize::new(0), AtomicU64::new(0));
        let (over, opened, found) = (CancellationToken::new(), Mutex::default(), Mutex::default());
        Self { network, home, deadline, over, open, spent, opened, found }
    }

    fn count(self: &Arc<Self>) -> Result<Counted, Failed> {
        let one_more = |open: usize| (open < OPEN).then_some(open + 1);
        let counted = self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        counted.map(|_| Counted(Arc::clone(self))).map_err(|_| Failed::TooMany)
    }

    /// Returns the right to open one more connection, if there is one.
    fn open_at_once(self: &Arc<Self>) -> Result<Open, Failed> {
        let counted = self.count()?;
        let Network { permits, room, unit, .. } = &*self.network;
        let permit = Arc::clone(permits).try_acquire_owned().map_err(|_| Failed::AllTaken)?;
        let mut held = room.holding(unit);
        if !held.try_grow(TCP) {
            return Err(Failed::NoRoom("other plugins have the memory (--plugin-memory)".to_owned()));
        }
        Ok(Open { _counted: counted, _permit: permit, _held: held })
    }

    /// Waits for the right to open one more connection.
    async fn open(self: &Arc<Self>) -> Result<Open, Failed> {
        let counted = self.count()?;
        let Network { permits, room, unit, .. } = &*self.network;
        let permit = Arc::clone(permits).acquire_owned().await.map_err(|_| Failed::Over)?;
        let mut held = room.holding(unit);
        held.grow(CONNECTION, self.deadline).await.map_err(|error| Failed::NoRoom(error.to_string()))?;
        Ok(Open { _counted: counted, _permit: permit, _held: held })
    }

    /// Counts the time for which a connection has computed. Returns how long it has to rest: nobody hands out slots to it.
    fn spend(&self, time: Duration) -> Duration {
        self.spent.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        let tokens = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        self.network.pace.lock().take_many(tokens, PACE, Instant::now())
    }

    /// Does something as long as the call lasts.
    async fn within<T>(&self, work: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
        tokio::select! {
            biased;
            () = self.over.cancelled() => Err(Failed::Over),
            result = work => result,
        }
    }

    /// Counts a connection and, if there is none, says why in the log: without path, query and headers.
    fn tell(&self, entry: Option<&Destination>, target: &Target, failed: Option<&Failed>) {
        let to = entry.map(ToString::to_string).unwrap_or_default();
        let result = failed.map_or("ok", Failed::name);
        self.network.counted.count(to, result);
        if let Some(Failed::Nowhere) = failed {
            self.network.outside.note(target);
        }
        if let Some(failed) = failed {
            self.home.log(Level::Warn, format!("no connection to {target}: {failed}"), Vec::new());
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl Failed ===

impl Failed {
    /// Returns how it is counted.
    fn name(&self) -> &'static str {
        match self {
            Self::NotPermitted(_) | Self::Closed { .. } => "denied",
            Self::TooMany | Self::AllTaken | Self::NoRoom(_) => "limited",
            Self::Over => "abandoned",
            Self::NoAddress(_) | Self::Nowhere | Self::Late | Self::Refused(_) | Self::Tls(_) | Self::Protocol(_) => {
                "failed"
            }
        }
    }
}

#[cfg(test)]
mod tests;
