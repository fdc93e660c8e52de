//! `wasi:sockets`: the names that a component looks up, and its TCP connections to the addresses that it was told.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::vec;

use capstan_core::network::{Destination, Target, plain};
use futures::FutureExt as _;
use parking_lot::Mutex;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource, ResourceType};
use wasmtime_wasi::p2::bindings::sockets::network::{ErrorCode, IpAddress, IpAddressFamily, IpSocketAddress};
use wasmtime_wasi::p2::bindings::sockets::tcp_create_socket;
use wasmtime_wasi::p2::{self, DynPollable, Pollable, subscribe};
use wasmtime_wasi::runtime::{AbortOnDropJoinHandle, spawn};
use wasmtime_wasi::sockets::{SocketAddrUse, WasiSocketsView as _};
use wasmtime_wasi::{WasiCtxBuilder, WasiView, async_trait};

use super::{Connected, FOUND, Failed, Line, OPEN, OfCall};

/// The interface that is answered here: by the other one, anything could be looked up.
const LOOKUP: &str = "wasi:sockets/ip-name-lookup@0.2.12";

/// The interfaces whose sockets are counted, before they are connected; of UDP there are none.
const CREATE: [&str; 2] = ["wasi:sockets/tcp-create-socket@0.2.12", "wasi:sockets/udp-create-socket@0.2.12"];

/// The interface of sockets, and what connects one.
const CONNECT: [&str; 2] = ["wasi:sockets/tcp@0.2.12", "[method]tcp-socket.start-connect"];

/// Sockets that a call may make: each is a descriptor of the daemon, connected or not. More than connections, as some fail.
const SOCKETS: usize = 2 * OPEN;

/// Bytes of a name.
const NAME: usize = 255;

/// The call in progress, for what is asked without the instance.
pub(super) type Current = Arc<Mutex<Arc<OfCall>>>;

/// What there is of UDP.
type NoSocket = Result<Resource<p2::UdpSocket>, ErrorCode>;

/// Which socket is connected to which address, and whether that has begun.
type Connect = (Resource<p2::TcpSocket>, Resource<p2::Network>, IpSocketAddress);
type Begun = Result<(), ErrorCode>;

/// The addresses of a name.
enum Names {
    Waiting(AbortOnDropJoinHandle<Result<Vec<IpAddr>, Failed>>),
    Found(vec::IntoIter<IpAddr>),
    Failed(ErrorCode),
}

/// Lets an instance connect as far as the manifest permits it: nobody listens, and nothing is sent by UDP.
pub(in crate::plugin) fn permit(wasi: &mut WasiCtxBuilder, line: &Line) {
    let current = Arc::clone(&line.current);
    wasi.allow_tcp(true).socket_addr_check(move |address, used| {
        let may = match used {
            SocketAddrUse::TcpConnect => {
                let call = Arc::clone(&current.lock());
                call.connects(address)
            }
            // What a socket needs that is going to connect.
            SocketAddrUse::TcpBind => address.ip().is_unspecified() && address.port() == 0,
            SocketAddrUse::TcpListen
            | SocketAddrUse::TcpAccept
            | SocketAddrUse::UdpBind
            | SocketAddrUse::UdpSend
            | SocketAddrUse::UdpReceive => false,
        };
        Box::pin(std::future::ready(may))
    });
}

/// Answers what components look up.
pub(in crate::plugin) fn link<T: WasiView + Connected + 'static>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut interface = linker.instance(LOOKUP)?;
    interface.resource("resolve-address-stream", ResourceType::host::<Names>(), |mut store, rep| {
        store.data_mut().ctx().table.delete(Resource::<Names>::new_own(rep))?;
        Ok(())
    })?;
    interface.func_wrap(
        "resolve-addresses",
        |mut store: StoreContextMut<'_, T>, (network, name): (Resource<p2::Network>, String)| {
            let state = store.data_mut();
            state.ctx().table.get(&network)?;
            let names = state.line().call.look_up(&name);
            Ok((match names {
                Ok(names) => Ok(state.ctx().table.push(names)?),
                Err(code) => Err(code),
            },))
        },
    )?;
    interface.func_wrap(
        "[method]resolve-address-stream.resolve-next-address",
        |mut store: StoreContextMut<'_, T>, (names,): (Resource<Names>,)| {
            let next = store.data_mut().ctx().table.get_mut(&names)?.next();
            Ok((next.map(|address| address.map(IpAddress::from)),))
        },
    )?;
    interface.func_wrap(
        "[method]resolve-address-stream.subscribe",
        |mut store: StoreContextMut<'_, T>, (names,): (Resource<Names>,)| {
            let pollable: Resource<DynPollable> = subscribe(store.data_mut().ctx().table, names)?;
            Ok((pollable,))
        },
    )?;
    let [tcp, udp] = CREATE;
    linker.instance(tcp)?.func_wrap(
        "create-tcp-socket",
        |mut store: StoreContextMut<'_, T>, (family,): (IpAddressFamily,)| {
            let state = store.data_mut();
            if !state.line().takes_socket() {
                return Ok((Err(ErrorCode::NewSocketLimit),));
            }
            let made = tcp_create_socket::Host::create_tcp_socket(&mut state.sockets(), family);
            Ok((match made {
                Ok(socket) => Ok(socket),
                Err(error) => Err(error.downcast()?),
            },))
        },
    )?;
    linker.instance(udp)?.func_wrap(
        "create-udp-socket",
        |_: StoreContextMut<'_, T>, (_family,): (IpAddressFamily,)| -> wasmtime::Result<(NoSocket,)> {
            Ok((Err(ErrorCode::AccessDenied),))
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

/// Connects nothing: whatever is permitted is as if nobody listened there.
pub(in crate::plugin) fn refuse<T: WasiView + Connected + 'static>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let [interface, connect] = CONNECT;
    linker.instance(interface)?.func_wrap(
        connect,
        |mut store: StoreContextMut<'_, T>, (_, network, address): Connect| -> wasmtime::Result<(Begun,)> {
            let state = store.data_mut();
            state.ctx().table.get(&network)?;
            let code = match state.line().call.permits(address.into()) {
                Ok(()) | Err(Failed::Nowhere) => ErrorCode::ConnectionRefused,
                Err(_) => ErrorCode::AccessDenied,
            };
            Ok((Err(code),))
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

// === impl Line ===

impl Line {
    /// Takes the right to make one more socket, which goes with the instance. Returns false if there is none.
    pub(super) fn takes_socket(&mut self) -> bool {
        self.sockets += 1;
        self.used_up = true;
        self.sockets <= SOCKETS
    }
}

// === impl OfCall ===

impl OfCall {
    /// Begins to look up a name, if the manifest has an entry with it.
    fn look_up(self: &Arc<Self>, name: &str) -> Result<Names, ErrorCode> {
        if name.len() > NAME {
            return Err(ErrorCode::InvalidArgument);
        }
        let target = Target::new(None, name, 0);
        if let Ok(address) = target.host.parse::<IpAddr>() {
            return Ok(Names::Found(vec![address].into_iter()));
        }
        let entries: Vec<_> = self.network.tcp.iter().filter(|entry| entry.host.names(&target.host)).cloned().collect();
        if entries.is_empty() {
            self.tell(None, &target, Some(&Failed::NotPermitted("tcp")));
            return Err(ErrorCode::AccessDenied);
        }
        if self.network.leads_nowhere() {
            for entry in &entries {
                let target = Target { port: entry.port.unwrap_or_default(), ..target.clone() };
                self.tell(Some(entry), &target, Some(&Failed::Nowhere));
            }
            return Err(ErrorCode::NameUnresolvable);
        }
        let call = Arc::clone(self);
        Ok(Names::Waiting(spawn(async move {
            let internal = entries.iter().any(|entry| entry.internal);
            let found = call.within(call.network.resolve(&target, internal)).await;
            let found = found.and_then(|found| call.learn(&entries, &target, found));
            if let Err(failed) = &found {
                call.tell(entries.first(), &target, Some(failed));
            }
            found
        })))
    }

    /// Remembers at which addresses of a name the manifest permits to connect, and returns them.
    pub(super) fn learn(
        &self,
        entries: &[Destination],
        target: &Target,
        found: Vec<IpAddr>,
    ) -> Result<Vec<IpAddr>, Failed> {
        let mut closed = None;
        let mut open = Vec::new();
        for address in found {
            for entry in entries {
                let at = SocketAddr::new(address, entry.port.unwrap_or_default());
                match self.network.outside.check(entry, at) {
                    Ok(()) => {
                        let (at, mut found) = ((plain(address), entry.port.unwrap_or_default()), self.found.lock());
                        if found.len() < FOUND[1] || found.contains_key(&at) {
                            found.insert(at, entry.clone());
                            open.push(address);
                        }
                    }
                    Err(why) => closed = Some(Failed::Closed { host: target.host.clone(), address, why }),
                }
            }
        }
        open.dedup();
        match closed {
            Some(closed) if open.is_empty() => Err(closed),
            _ => Ok(open),
        }
    }

    /// Whether a connection to an address may be opened; then it is counted until the call is over.
    pub(super) fn connects(self: &Arc<Self>, address: SocketAddr) -> bool {
        self.permits(address).is_ok()
    }

    /// Says why a connection to an address may not be opened. If it may, it is counted until the call is over.
    fn permits(self: &Arc<Self>, address: SocketAddr) -> Result<(), Failed> {
        let ip = plain(address.ip());
        let target = Target { scheme: None, host: ip.to_string(), port: address.port() };
        let known = self.found.lock().get(&(ip, address.port())).cloned();
        let entry = Destination::find(&self.network.tcp, &target).cloned().or(known);
        let permitted = match &entry {
            None => Err(Failed::NotPermitted("tcp")),
            Some(entry) => match self.network.outside.check(entry, SocketAddr::new(ip, address.port())) {
                Err(why) => Err(Failed::Closed { host: entry.host.to_string(), address: ip, why }),
                Ok(()) if self.network.leads_nowhere() => Err(Failed::Nowhere),
                Ok(()) => self.open_at_once(),
            },
        };
        let permitted = permitted.map(|open| self.opened.lock().push(open));
        self.tell(entry.as_ref(), &target, permitted.as_ref().err());
        permitted
    }
}

// === impl Names ===

impl Names {
    fn settle(&mut self, found: Result<Vec<IpAddr>, Failed>) {
        *self = match found {
            Ok(found) => Self::Found(found.into_iter()),
            Err(Failed::Closed { .. } | Failed::NotPermitted(_)) => Self::Failed(ErrorCode::AccessDenied),
            Err(_) => Self::Failed(ErrorCode::NameUnresolvable),
        };
    }

    /// Returns the next address, none after the last.
    fn next(&mut self) -> Result<Option<IpAddr>, ErrorCode> {
        if let Self::Waiting(found) = self
            && let Some(found) = found.now_or_never()
        {
            self.settle(found);
        }
        match self {
            Self::Waiting(_) => Err(ErrorCode::WouldBlock),
            Self::Found(addresses) => Ok(addresses.next()),
            Self::Failed(code) => Err(*code),
        }
    }
}

#[async_trait]
impl Pollable for Names {
    async fn ready(&mut self) {
        if let Self::Waiting(found) = self {
            let found = found.await;
            self.settle(found);
        }
    }
}
