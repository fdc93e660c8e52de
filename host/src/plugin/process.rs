//! A process of its own for the instances of a plugin: the same program, shut in, with nothing but a socket to ask through.
//!
//! Who escapes from WebAssembly there is in a process without files, network, secrets or a way to new code. What it asks for is
//! answered as any component is, by the run that waits for it: by its permissions, within its budget, in its turn. Here it
//! is decided when there is such a process, and told how it ended.

mod child;
mod confine;
mod frames;
mod remote;
mod wire;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as Socket;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use capstan_core::backoff::doubled;
use capstan_core::text::{LONGEST, said_within};
use parking_lot::Mutex;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{info, warn};

use super::ending::Ending;
use super::usage::Counters;
use super::{Facts, command};
use frames::{HEAD, Ready, Setup, frame};
pub(super) use remote::Remote;
pub(super) use wire::Wire;

/// How long a process may take until it is ready for instances.
const BEGIN: Duration = Duration::from_secs(10);

/// How long after the death of one the next is begun, at first.
const AGAIN: Duration = Duration::from_millis(100);

/// The same after many.
const AGAIN_AT_MOST: Duration = Duration::from_secs(10);

/// One that has lived for so long has not died of its beginning.
const SETTLED: Duration = Duration::from_secs(30);

/// How long an instance may take to notice that it has been given up.
const GRACE: Duration = Duration::from_secs(5);

/// How long is waited for how a process ended that has hung up.
const VERDICT: Duration = Duration::from_secs(2);

/// The longest answer to its setup.
const READY: usize = 64 << 10;

/// Where a plugin's instances are: in a process that is begun when the first is wanted, and again after its death. Cheap to clone.
#[derive(Clone)]
pub(super) struct Apart(Arc<Shared>);

struct Shared {
    command: Arc<[OsString]>,
    /// Compiled code.
    code: File,
    facts: Arc<Facts>,
    counters: Arc<Counters>,
    process: Mutex<Option<Arc<Process>>>,
    /// Who begins the next one.
    deaths: tokio::sync::Mutex<Deaths>,
    runtime: Handle,
}

/// The processes that have died one soon after another.
#[derive(Default)]
struct Deaths {
    number: u32,
    last: Option<Ended>,
}

/// The end of a process, or why there was none.
#[derive(Clone)]
struct Ended {
    at: Instant,
    why: Arc<str>,
}

/// A process.
pub(super) struct Process {
    plugin: Arc<str>,
    id: Option<u32>,
    control: UnixStream,
    /// Lanes without an instance.
    idle: Mutex<Vec<UnixStream>>,
    /// Bytes of memory that an instance had after its first call.
    usual: AtomicU64,
    begun: Instant,
    /// How it ended; none while it runs.
    ended: watch::Receiver<Option<Ended>>,
    /// Why it has to end.
    condemned: Arc<Mutex<Option<String>>>,
    end: CancellationToken,
    runtime: Handle,
    /// It goes with the last who has it.
    _end: DropGuard,
}

/// Bounds this process, and runs the component that it is given. To be called before there are threads.
pub fn run() -> ExitCode {
    child::run()
}

// === impl Apart ===

impl Apart {
    /// Returns a place for the instances of compiled code, in processes that this command starts: it is expected to call
    /// [`run`].
    pub(super) fn new(command: Arc<[OsString]>, code: File, facts: &Arc<Facts>, counters: &Arc<Counters>) -> Self {
        Self(Arc::new(Shared {
            command,
            code,
            facts: Arc::clone(facts),
            counters: Arc::clone(counters),
            process: Mutex::default(),
            deaths: tokio::sync::Mutex::default(),
            runtime: Handle::current(),
        }))
    }

    /// Returns the number of the process there is.
    pub(super) fn id(&self) -> Option<u32> {
        self.0.living()?.id
    }

    /// Returns the process there is, or begins one, which goes on if nobody waits for it any more.
    pub(super) async fn process(&self) -> Result<Arc<Process>, Ending> {
        if let Some(process) = self.0.living() {
            return Ok(process);
        }
        let (apart, asked) = (Arc::clone(&self.0), Instant::now());
        let next = self.0.runtime.spawn(async move { apart.next(asked).await });
        let next = next.await.map_err(|error| Ending::Gone(error.to_string()))?;
        next.map_err(|why| Ending::Gone(why.to_string()))
    }
}

impl Shared {
    fn living(&self) -> Option<Arc<Process>> {
        let process = self.process.lock();
        process.as_ref().filter(|process| process.is_alive()).cloned()
    }

    /// Begins another process, not at once after one that has died.
    async fn next(&self, asked: Instant) -> Result<Arc<Process>, Arc<str>> {
        let mut deaths = self.deaths.lock().await;
        // Another may have begun it meanwhile, or tried.
        if let Some(process) = self.living() {
            return Ok(process);
        }
        if let Some(last) = deaths.last.as_ref().filter(|last| last.at > asked) {
            return Err(Arc::clone(&last.why));
        }
        let before = self.process.lock().take();
        if let Some(process) = before {
            let ended = process.ended().await;
            deaths.count(ended, process.begun);
        }
        if let Some(at) = deaths.again() {
            sleep_until(at).await;
        }
        let begun = Instant::now();
        match self.begin().await {
            Ok(process) => {
                let process = Arc::new(process);
                *self.process.lock() = Some(Arc::clone(&process));
                Ok(process)
            }
            Err(why) => {
                let ended = Ended { at: Instant::now(), why: why.into() };
                deaths.count(ended.clone(), begun);
                Err(ended.why)
            }
        }
    }

    /// Starts a process, and waits until it is ready.
    async fn begin(&self) -> Result<Process, String> {
        let not = |error: io::Error| format!("the plugin's process could not be started: {error}");
        let (ours, theirs) = Socket::pair().map_err(not)?;
        let child = self.spawn(theirs.into()).await.map_err(not)?;
        let id = child.id();
        self.counters.process();
        ours.set_nonblocking(true).map_err(not)?;
        let control = UnixStream::from_std(ours).map_err(not)?;
        let (tell, ended) = watch::channel(None);
        let (end, condemned) = (CancellationToken::new(), Arc::default());
        let watch = Watch {
            plugin: Arc::clone(&self.facts.unit),
            child,
            end: end.clone(),
            condemned: Arc::clone(&condemned),
            tell,
        };
        self.runtime.spawn(watch.run());
        let mut process = Process {
            plugin: Arc::clone(&self.facts.unit),
            id,
            control,
            idle: Mutex::default(),
            usual: AtomicU64::new(0),
            begun: Instant::now(),
            ended,
            condemned,
            end: end.clone(),
            runtime: self.runtime.clone(),
            _end: end.drop_guard(),
        };
        let ready = timeout(BEGIN, process.set_up(&self.facts)).await;
        match ready {
            Ok(Ok(Ready { walls })) => {
                self.tell_of(&walls);
                Ok(process)
            }
            Ok(Err(_)) => Err(process.ended().await.why.to_string()),
            Err(_elapsed) => Err(process.condemn(&format!("it was not ready after {BEGIN:?}"))),
        }
    }

    async fn spawn(&self, socket: OwnedFd) -> io::Result<Child> {
        let mut command = command::of(&self.command)?;
        // The code is only to be read.
        command.stdin(socket).stdout(self.code.try_clone()?);
        command::start(command, &self.runtime).await
    }

    fn tell_of(&self, walls: &[confine::Wall]) {
        let plugin = &self.facts.unit;
        let standing: Vec<_> = walls
            .iter()
            .filter(|(_, missing)| missing.is_none())
            .map(|(name, _)| said_within(name, 32).into_owned())
            .collect();
        let missing: Vec<_> =
            walls.iter().filter_map(|(name, missing)| Some(format!("{name}: {}", missing.as_ref()?))).collect();
        let missing = said_within(&missing.join("; "), LONGEST).into_owned();
        let walls = standing.join(", ");
        if missing.is_empty() {
            info!(%plugin, walls, "its process is ready");
        } else {
            warn!(%plugin, walls, missing, "its process is ready, without all walls");
        }
    }
}

// === impl Deaths ===

impl Deaths {
    fn count(&mut self, ended: Ended, begun: Instant) {
        let lived = ended.at.saturating_duration_since(begun);
        self.number = if lived < SETTLED { self.number.saturating_add(1) } else { 1 };
        self.last = Some(ended);
    }

    /// Returns when the next process may be begun; none: at once.
    fn again(&self) -> Option<Instant> {
        Some(self.last.as_ref()?.at + doubled(AGAIN, self.number, AGAIN_AT_MOST))
    }
}

// === impl Process ===

impl Process {
    /// Tells the process what it needs to know, and waits until it is ready.
    async fn set_up(&mut self, facts: &Facts) -> io::Result<Ready> {
        let setup = Setup {
            memory: facts.limits.memory,
            concurrency: facts.limits.concurrency,
            config: (&*facts.config).into(),
            ambient: facts.ambient,
            weight: facts.weight,
        };
        let setup = frame(&setup).map_err(io::Error::other)?;
        self.control.write_all(&setup).await?;
        let ready = receive(&mut self.control, READY).await?;
        frames::read(&ready).map_err(io::Error::other)
    }

    /// Returns a lane without an instance.
    fn lane(&self) -> io::Result<UnixStream> {
        if let Some(lane) = self.idle.lock().pop() {
            return Ok(lane);
        }
        let (ours, theirs) = Socket::pair()?;
        let fds = [theirs.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        // One that takes no lanes is not waited for.
        let byte = [IoSlice::new(&[0])];
        sendmsg(&self.control, &byte, &mut ancillary, SendFlags::DONTWAIT)?;
        ours.set_nonblocking(true)?;
        UnixStream::from_std(ours)
    }

    /// Takes a lane back whose instance has been dropped.
    fn free(&self, lane: UnixStream) {
        self.idle.lock().push(lane);
    }

    /// Sees to it that an instance which was given up in the middle of a call ends: with its lane, or else with the process.
    fn give_up(self: Arc<Self>, mut lane: UnixStream) {
        let runtime = self.runtime.clone();
        runtime.spawn(async move {
            let closed = async {
                // It may have said something before it heard of it.
                let mut rest = [0; 4 << 10];
                lane.shutdown().await?;
                let mut left = 2 * frames::LONGEST;
                while left > 0 {
                    match lane.read(&mut rest).await? {
                        0 => return Ok(()),
                        length => left = left.saturating_sub(length),
                    }
                }
                Err(io::Error::other("it goes on"))
            };
            if let Err(_) | Ok(Err(_)) = timeout(GRACE, closed).await
                && self.is_alive()
            {
                self.condemn(&format!("a call that was given up went on for {GRACE:?}"));
            }
        });
    }

    /// Whether instances in it are of use.
    fn is_alive(&self) -> bool {
        self.ended.borrow().is_none() && !self.end.is_cancelled()
    }

    /// Ends it for what it has done, and returns that.
    fn condemn(&self, why: &str) -> String {
        let why = self
            .condemned
            .lock()
            .get_or_insert_with(|| format!("the process of {} had to be ended: {why}", self.plugin))
            .clone();
        self.end.cancel();
        why
    }

    /// Waits until it has ended.
    async fn over(&self) {
        // If nobody tells of it, nobody watches it any more.
        drop(self.ended.clone().wait_for(Option::is_some).await);
    }

    /// Returns how it ended, when it has hung up.
    async fn ended(&self) -> Ended {
        let mut ended = self.ended.clone();
        let over = timeout(VERDICT, ended.wait_for(Option::is_some)).await;
        match over.map(|over| over.ok().and_then(|ended| ended.clone())) {
            Ok(Some(ended)) => ended,
            Ok(None) | Err(_) => Ended { at: Instant::now(), why: self.condemn("it has hung up").into() },
        }
    }

    async fn why(&self) -> String {
        self.ended().await.why.to_string()
    }
}

// === watching it ===

/// Waits for the end of a process.
struct Watch {
    plugin: Arc<str>,
    child: Child,
    /// Ends it.
    end: CancellationToken,
    condemned: Arc<Mutex<Option<String>>>,
    tell: watch::Sender<Option<Ended>>,
}

impl Watch {
    /// Waits until it has ended, for whatever reason, and says which.
    async fn run(self) {
        let Self { plugin, mut child, end, condemned, tell } = self;
        let listen = command::words(child.stderr.take());
        let finish = async {
            tokio::select! {
                status = child.wait() => (status, false),
                () = end.cancelled() => {
                    drop(child.start_kill());
                    (child.wait().await, true)
                }
            }
        };
        let (words, (status, ended)) = tokio::join!(listen, finish);
        let why = condemned.lock().clone();
        // Nobody wants it any more.
        let unwanted = ended && why.is_none();
        let why = why.unwrap_or_else(|| verdict(&plugin, status, &words));
        if !unwanted {
            warn!(%plugin, why, "its process has ended; the next call starts another");
        }
        // Who would hear it may be gone.
        let ended = Ended { at: Instant::now(), why: why.into() };
        drop(tell.send(Some(ended)));
    }
}

/// Says how a process ended.
fn verdict(plugin: &str, status: io::Result<ExitStatus>, words: &str) -> String {
    let how = match status {
        Err(error) => error.to_string(),
        Ok(status) => match (status.code(), status.signal()) {
            (_, Some(signal)) => match Signal::from_named_raw(signal) {
                Some(Signal::KILL) => "signal 9, from the system for want of memory, or from somebody else".to_owned(),
                _ => format!("signal {signal}"),
            },
            (code, None) => format!("exit status {}", code.unwrap_or_default()),
        },
    };
    let words = said_within(words, LONGEST / 2);
    let gap = if words.is_empty() { "" } else { ": " };
    format!("the process of {plugin} has ended ({how}){gap}{words}")
}

/// Waits for a frame that is no longer than so many bytes.
async fn receive(from: &mut UnixStream, most: usize) -> io::Result<Vec<u8>> {
    let mut head = [0; HEAD];
    from.read_exact(&mut head).await?;
    let length = frames::length(head);
    if length > most {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // Memory is taken as it comes, not as it is announced.
    let mut frame = Vec::with_capacity(length.min(64 << 10));
    let expected = u64::try_from(length).unwrap_or(u64::MAX);
    from.take(expected).read_to_end(&mut frame).await?;
    if frame.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn after_a_death_the_next_process_begins_later_and_later_until_one_has_lived() {
        let mut deaths = Deaths::default();
        assert_eq!(deaths.again(), None);
        let mut delays = Vec::new();
        for lived in [0, 1, 2, 3, 4, 5, 6, 7, 8, 60, 0].map(Duration::from_secs) {
            let begun = Instant::now();
            let ended = Ended { at: begun + lived, why: "".into() };
            deaths.count(ended.clone(), begun);
            let again = deaths.again().unwrap();
            delays.push(again.saturating_duration_since(ended.at).as_millis());
        }
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 100, 200]);
    }

    #[test]
    fn how_a_process_ended_is_told_with_its_last_words() {
        let told = |status: i32, words: &str| verdict("web/page", Ok(ExitStatus::from_raw(status)), words);
        for (status, words, expected) in [
            (
                9,
                "",
                "the process of web/page has ended (signal 9, from the system for want of memory, or from somebody else)",
            ),
            (
                6,
                "panicked\nERROR all is lost",
                r"the process of web/page has ended (signal 6): panicked\nERROR all is lost",
            ),
            (3 << 8, "no", "the process of web/page has ended (exit status 3): no"),
        ] {
            assert_eq!(told(status, words), expected);
        }
    }
}
