//! The process's end of a lane: what an instance asks for is written, and its thread waits for the answer.

use std::io::{self, Read as _, Write as _};
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use capstan_core::cluster::Deletion;
use capstan_core::guest::{
    CallError, CallReason, CompareQuestion, Context, Event, Expectation, Lifetime, MatchResult, ObjectTarget, Page,
    Place, Query, RunInfo, WorkflowCall, WorkflowResult, WriteRequest,
};
use capstan_core::object::ObjectRef;
use futures::future::{BoxFuture, ready};
use parking_lot::{Condvar, Mutex};
use rustix::net::RecvFlags;
use rustix::time::{ClockId, clock_gettime};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::frames::{Ask, Body, Done, FIELDS, HEAD, LONGEST, Report, Said, frame, length};
use crate::plugin::output::{Level, Stream, size_of};

/// Bytes that an instance may have said without being heard.
const UNHEARD: usize = 32 << 10;

/// A lane, with the thread that it belongs to.
pub(in crate::plugin) struct Wire {
    stream: Mutex<UnixStream>,
    slots: Arc<Slots>,
    /// What is to be told with the next frame.
    unheard: Mutex<Unheard>,
    /// Bytes of linear memory of the instance, and of them those that the daemon holds.
    memory: AtomicU64,
    granted: AtomicU64,
}

#[derive(Default)]
struct Unheard {
    said: Vec<Said>,
    bytes: usize,
    /// The processor time of the thread that was told.
    told: Duration,
}

/// How many threads compute at once: no more than there are cores, so that others need not compete with all of them.
pub(super) struct Slots {
    free: Mutex<usize>,
    freed: Condvar,
}

/// The right to compute.
pub(super) struct Slot<'a>(&'a Slots);

/// The daemon wants nothing more of the instance.
#[derive(Debug, thiserror::Error)]
#[error("the daemon has gone")]
pub(in crate::plugin) struct Gone;

/// A run that the daemon runs.
pub(super) struct Elsewhere {
    wire: Arc<Wire>,
    info: RunInfo,
    /// Counted by the daemon; this is not looked at.
    requests: AtomicU32,
}

// === impl Slots ===

impl Slots {
    pub(super) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self { free: Mutex::new(cores), freed: Condvar::new() }
    }

    pub(super) fn enter(&self) -> Slot<'_> {
        self.take();
        Slot(self)
    }

    fn take(&self) {
        let mut free = self.free.lock();
        while *free == 0 {
            self.freed.wait(&mut free);
        }
        *free -= 1;
    }

    fn give_back(&self) {
        *self.free.lock() += 1;
        self.freed.notify_one();
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

// === impl Wire ===

impl Wire {
    pub(super) fn new(stream: UnixStream, slots: Arc<Slots>) -> Self {
        Self {
            stream: Mutex::new(stream),
            slots,
            unheard: Mutex::default(),
            memory: AtomicU64::new(0),
            granted: AtomicU64::new(0),
        }
    }

    /// Waits for the next frame of the daemon.
    pub(super) fn receive(&self) -> io::Result<Vec<u8>> {
        receive(&self.stream.lock())
    }

    /// A call begins, with so much memory.
    pub(super) fn begin(&self, granted: u64) {
        self.granted.store(granted, Ordering::Relaxed);
    }

    /// A call has ended.
    pub(super) fn done(&self, done: Done, memory: usize) -> Result<(), Gone> {
        let memory = u64::try_from(memory).unwrap_or(u64::MAX);
        self.memory.store(memory, Ordering::Relaxed);
        self.tell(Body::Done(done))
    }

    /// Whether the daemon has given the call up. To be asked while it is not its turn to say something.
    pub(super) fn is_closed(&self) -> bool {
        let mut byte = [0_u8; 1];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match rustix::net::recv(&*self.stream.lock(), &mut byte[..], flags) {
            Ok((length, _)) => length == 0,
            Err(error) => error != rustix::io::Errno::AGAIN,
        }
    }

    /// Has memory held for the instance: so many bytes in all.
    ///
    /// # Errors
    /// Why there is none.
    pub(in crate::plugin) fn grow(&self, bytes: u64) -> Result<(), String> {
        if bytes > self.granted.load(Ordering::Relaxed) {
            let answer: Result<(), String> = self.ask(Ask::Grow(bytes)).map_err(|gone| gone.to_string())?;
            answer?;
            self.granted.store(bytes, Ordering::Relaxed);
        }
        self.memory.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Waits until the daemon lets it go on computing.
    pub(in crate::plugin) fn rest(&self) -> Result<(), Gone> {
        self.ask(Ask::Rest)
    }

    pub(in crate::plugin) fn print(&self, stream: Stream, bytes: &[u8]) {
        for piece in bytes.chunks(UNHEARD) {
            self.say(Said::Printed(stream, piece.to_owned()), piece.len());
        }
    }

    pub(in crate::plugin) fn log(&self, level: Level, message: String, mut fields: Vec<(String, String)>) {
        fields.truncate(FIELDS);
        let size = message.len() + size_of(&fields);
        self.say(Said::Logged(level, message, fields), size);
    }

    fn say(&self, said: Said, size: usize) {
        // What is said costs something, however short it is.
        const EACH: usize = 64;
        let full = {
            let mut unheard = self.unheard.lock();
            unheard.said.push(said);
            unheard.bytes += size + EACH;
            unheard.bytes >= UNHEARD
        };
        if full {
            // If nobody listens any more, the call is about to end.
            drop(self.rest());
        }
    }

    fn ask<T: DeserializeOwned>(&self, ask: Ask) -> Result<T, Gone> {
        self.slots.give_back();
        let answer = self.exchange(ask);
        self.slots.take();
        answer
    }

    fn exchange<T: DeserializeOwned>(&self, ask: Ask) -> Result<T, Gone> {
        self.tell(Body::Ask(ask))?;
        let answer = self.receive().map_err(|_| Gone)?;
        postcard::from_bytes(&answer).map_err(|_| Gone)
    }

    fn tell(&self, body: Body) -> Result<(), Gone> {
        let mut unheard = self.unheard.lock();
        let now = clock_gettime(ClockId::ThreadCPUTime);
        let now = Duration::try_from(now).unwrap_or_default();
        let report = Report {
            cpu: now.saturating_sub(unheard.told),
            memory: self.memory.load(Ordering::Relaxed),
            said: std::mem::take(&mut unheard.said),
            body,
        };
        unheard.bytes = 0;
        unheard.told = now;
        let frame = frame(&report).map_err(|_| Gone)?;
        if frame.len() > LONGEST {
            return Err(Gone);
        }
        self.stream.lock().write_all(&frame).map_err(|_| Gone)
    }
}

/// Waits for a frame of the daemon, which is trusted.
pub(super) fn receive(mut stream: &UnixStream) -> io::Result<Vec<u8>> {
    let mut head = [0; HEAD];
    stream.read_exact(&mut head)?;
    let mut frame = vec![0; length(head)];
    stream.read_exact(&mut frame)?;
    Ok(frame)
}

// === impl Elsewhere ===

impl Elsewhere {
    pub(super) fn new(wire: &Arc<Wire>, info: RunInfo) -> Self {
        Self { wire: Arc::clone(wire), info, requests: AtomicU32::new(0) }
    }

    fn ask<T: DeserializeOwned>(&self, ask: Ask) -> Result<T, CallError> {
        let answer: Result<Result<T, CallError>, Gone> = self.wire.ask(ask);
        answer.map_err(|gone| CallError::new(CallReason::Other, gone.to_string())).flatten()
    }

    /// Asks at once: the thread has nothing else to do.
    fn waits<T: DeserializeOwned + Send + 'static>(&self, ask: Ask) -> BoxFuture<'_, Result<T, CallError>> {
        Box::pin(ready(self.ask(ask)))
    }
}

impl Context for Elsewhere {
    fn info(&self) -> RunInfo {
        self.info.clone()
    }

    fn requests(&self) -> &AtomicU32 {
        &self.requests
    }

    fn next_imminent(&self) -> bool {
        self.wire.ask(Ask::NextImminent).unwrap_or_default()
    }

    fn settings(&self) -> String {
        self.wire.ask(Ask::Settings).unwrap_or_default()
    }

    fn find_all(&self, query: Query) -> BoxFuture<'_, Result<Page, CallError>> {
        self.waits(Ask::FindAll(query))
    }

    fn find_one(&self, place: Place) -> BoxFuture<'_, Result<Option<String>, CallError>> {
        self.waits(Ask::FindOne(place))
    }

    fn find_named(&self, place: Place, key: ObjectRef) -> BoxFuture<'_, Result<Option<String>, CallError>> {
        self.waits(Ask::FindNamed(place, key))
    }

    fn write(&self, request: WriteRequest) -> BoxFuture<'_, Result<String, CallError>> {
        self.waits(Ask::Write(request))
    }

    fn remove(&self, target: ObjectTarget, deletion: Deletion) -> BoxFuture<'_, Result<(), CallError>> {
        self.waits(Ask::Remove(target, deletion))
    }

    fn add_finalizer(&self, finalizer: Option<String>) -> BoxFuture<'_, Result<String, CallError>> {
        self.waits(Ask::AddFinalizer(finalizer))
    }

    fn remove_finalizer(&self, finalizer: Option<String>) -> BoxFuture<'_, Result<String, CallError>> {
        self.waits(Ask::RemoveFinalizer(finalizer))
    }

    fn compare(&self, question: CompareQuestion) -> Result<MatchResult, CallError> {
        self.ask(Ask::Compare(question))
    }

    /// How long that may take, the daemon knows itself.
    fn workflow(&self, call: WorkflowCall, _: Instant) -> BoxFuture<'_, Result<WorkflowResult, CallError>> {
        self.waits(Ask::Workflow(call))
    }

    fn last_result(&self, name: Option<&str>) -> Option<WorkflowResult> {
        let ask = Ask::LastResult(name.map(str::to_owned));
        self.wire.ask(ask).unwrap_or_default()
    }

    /// As for a workflow.
    fn register(&self, name: String, declaration: String, _: Instant) -> BoxFuture<'_, Result<bool, CallError>> {
        self.waits(Ask::Register(name, declaration))
    }

    fn deregister(&self, name: &str) -> Result<(), CallError> {
        self.ask(Ask::Deregister(name.to_owned()))
    }

    fn remember(&self, source: &str, actual: String, replaced: Option<String>) -> Result<(), CallError> {
        self.ask(Ask::Remember(source.to_owned(), actual, replaced))
    }

    fn forget(&self, source: &str, id: &str) -> Result<(), CallError> {
        self.ask(Ask::Forget(source.to_owned(), id.to_owned()))
    }

    fn memo(&self, lifetime: Lifetime, key: &str) -> Option<String> {
        let ask = Ask::Memo(lifetime, key.to_owned());
        self.wire.ask(ask).unwrap_or_default()
    }

    fn set_memo(&self, lifetime: Lifetime, key: &str, value: Option<String>) -> Result<(), CallError> {
        self.ask(Ask::SetMemo(lifetime, key.to_owned(), value))
    }

    fn expect(&self, name: &str, timeout: Duration) -> Result<(), CallError> {
        self.ask(Ask::Expect(name.to_owned(), timeout))
    }

    fn pending_expectation(&self) -> Option<Expectation> {
        self.wire.ask(Ask::PendingExpectation).unwrap_or_default()
    }

    fn clear_expectation(&self, name: &str) -> bool {
        self.wire.ask(Ask::ClearExpectation(name.to_owned())).unwrap_or_default()
    }

    fn publish(&self, event: Event) {
        // What nobody takes is as good as dropped.
        drop(self.wire.ask::<()>(Ask::Publish(event)));
    }
}
