//! The process itself: takes code, shuts itself in, and runs an instance on each lane that it is given.
//!
//! It decides nothing: who runs when, for how long and with how much memory, is the daemon's affair.

use std::fs::File;
use std::future::{Future, poll_fn};
use std::io::{self, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use capstan_core::guest::{Call, Context, RunInfo};
use capstan_core::manifest::Limits;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::confine;
use super::frames::{Done, Order, Ready, Setup, frame};
use super::wire::{Elsewhere, Slots, Wire, receive};
use crate::plugin::ending::Broken;
use crate::plugin::engine::{Engine, Pool};
use crate::plugin::instance::{Instance, Parts};
use crate::plugin::network::Network;
use crate::plugin::output::Home;
use crate::plugin::{Facts, code, loader};

/// The stack of a lane's thread: a component has its own.
const STACK: usize = 512 << 10;

/// How often a component that waits is asked whether the daemon has given it up.
const GLANCE: Duration = Duration::from_millis(250);

/// What all lanes share.
struct Guest {
    engine: Engine,
    parts: Parts,
    slots: Arc<Slots>,
}

/// A thread that runs one instance after another.
struct Lane<'a> {
    guest: &'a Guest,
    wire: Arc<Wire>,
    /// None before its first call.
    instance: Option<Instance>,
}

/// Runs the component whose compiled code is standard output, on lanes that come out of standard input, until nobody is at
/// its other end. To be called before there are threads.
pub(in crate::plugin) fn run() -> ExitCode {
    // An instance on one lane must not go on beside one that nobody understands.
    std::panic::set_hook(Box::new(|panic| {
        drop(writeln!(io::stderr(), "{panic}"));
        std::process::abort();
    }));
    let control = match io::stdin().as_fd().try_clone_to_owned() {
        Ok(stdin) => UnixStream::from(stdin),
        Err(error) => return failed(&error),
    };
    match prepared(&control).and_then(|guest| serve(&control, &Arc::new(guest))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &io::Error) -> ExitCode {
    // If nobody listens, the status has to do.
    drop(io::stderr().write_all(error.to_string().as_bytes()));
    ExitCode::FAILURE
}

/// Takes code and settings, and shuts the door.
fn prepared(mut control: &UnixStream) -> io::Result<Guest> {
    confine::step_back()?;
    let setup = receive(control)?;
    let Setup { memory, concurrency, config, ambient, weight } =
        postcard::from_bytes(&setup).map_err(io::Error::other)?;
    // Whoever runs a run looks after the other limits.
    let limits = Limits { memory, concurrency, page: u32::MAX, requests: u32::MAX, ..Limits::default() };
    let pool = Pool::of([&limits]);
    let code = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let other = |error: wasmtime::Error| io::Error::other(format!("{error:#}"));
    let (wasm, component) = code::alone(pool, &code).map_err(other)?;
    drop(code);
    let network = Arc::new(Network::none());
    let (pre, exports) = loader::found(&wasm, &component, Path::new("the component"), &network)
        .map_err(|error| io::Error::other(error.to_string()))?;
    let instances = u64::from(pool.instances);
    let walls = confine::shut(memory.saturating_mul(instances / 2), instances)?;
    let facts = Facts {
        name: Arc::default(),
        unit: Arc::default(),
        limits,
        config: config.into_owned(),
        log: Arc::default(),
        memo: None,
        room: capstan_core::room::Room::default(),
        network,
        ambient,
        weight,
    };
    let guest = Guest {
        engine: Engine::of(wasm, pool).map_err(io::Error::other)?,
        parts: Parts { pre, exports: Arc::new(exports), facts: Arc::new(facts), counters: Arc::default() },
        slots: Arc::new(Slots::new()),
    };
    let ready = frame(&Ready { walls }).map_err(io::Error::other)?;
    control.write_all(&ready)?;
    Ok(guest)
}

/// Takes lanes until there are no more.
fn serve(control: &UnixStream, guest: &Arc<Guest>) -> io::Result<()> {
    while let Some(lane) = next_lane(control)? {
        let guest = Arc::clone(guest);
        let thread = thread::Builder::new().stack_size(STACK);
        thread.spawn(move || {
            let wire = Wire::new(UnixStream::from(lane), Arc::clone(&guest.slots));
            let lane = Lane { guest: &guest, wire: Arc::new(wire), instance: None };
            lane.run();
        })?;
    }
    Ok(())
}

fn next_lane(control: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut bytes = [IoSliceMut::new(&mut byte)];
    let got = recvmsg(control, &mut bytes, &mut ancillary, RecvFlags::empty())?;
    if got.bytes == 0 {
        return Ok(None);
    }
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message {
            return Ok(fds.next());
        }
    }
    Err(io::Error::other("a lane without a socket"))
}

// === impl Lane ===

impl Lane<'_> {
    /// Does what the daemon wants of one instance after another, until it closes the lane.
    fn run(mut self) {
        let Ok(runtime) = Builder::new_current_thread().enable_time().build() else {
            return;
        };
        while let Ok(order) = self.wire.receive() {
            match postcard::from_bytes(&order) {
                Ok(Order::Call { call, run, left, granted }) => {
                    self.wire.begin(granted);
                    let (guest, wire) = (self.guest, Arc::clone(&self.wire));
                    let call = self.call(&call, run, Instant::now() + left);
                    let Some(done) = guest.drive(&runtime, &wire, call) else {
                        return;
                    };
                    let memory = self.instance.as_ref().map_or(0, Instance::memory);
                    if wire.done(done, memory).is_err() {
                        return;
                    }
                }
                Ok(Order::End) => self.instance = None,
                Err(_) => return,
            }
        }
    }

    /// Makes a call, for the run that begins with it if there is one, in the instance there is, or a new one.
    async fn call(&mut self, call: &Call<'_>, run: Option<RunInfo>, deadline: Instant) -> Done {
        let run = run.map(|info| Arc::new(Elsewhere::new(&self.wire, info)) as Arc<dyn Context>);
        let answer = async {
            let instance = match (self.instance.as_mut(), run) {
                (Some(instance), None) => instance,
                (Some(instance), Some(run)) => {
                    instance.assign(run);
                    instance
                }
                (None, run) => {
                    let home = Home::Apart(Arc::clone(&self.wire));
                    self.instance.insert(Instance::start(&self.guest.parts, run, home, deadline).await?)
                }
            };
            instance.answer(call, deadline).await
        };
        answer.await.map_err(|error| Broken::of(&error))
    }
}

// === impl Guest ===

impl Guest {
    /// Polls a call whenever it is this thread's turn; none once the daemon has given it up.
    fn drive<T>(&self, runtime: &Runtime, wire: &Wire, call: impl Future<Output = T>) -> Option<T> {
        let _busy = self.engine.enter();
        runtime.block_on(async {
            let mut call = pin!(call);
            let in_turn = poll_fn(|context| {
                let _slot = self.slots.enter();
                call.as_mut().poll(context)
            });
            let mut in_turn = pin!(in_turn);
            // Asleep by itself, a call hears of nothing.
            let mut glance = interval(GLANCE);
            glance.set_missed_tick_behavior(MissedTickBehavior::Delay);
            poll_fn(|context| {
                if let Poll::Ready(done) = in_turn.as_mut().poll(context) {
                    return Poll::Ready(Some(done));
                }
                while glance.poll_tick(context).is_ready() {
                    if wire.is_closed() {
                        return Poll::Ready(None);
                    }
                }
                Poll::Pending
            })
            .await
        })
    }
}
