//! An instance in another process, as the daemon has it: each call goes there, and what it asks for meanwhile is answered here, by
//! the run that waits for it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use capstan_core::cpu;
use capstan_core::guest::{Answer, Call, Context, Function, RunInfo};
use capstan_core::room::Holding;
use parking_lot::Mutex;
use rustix::io::Errno;
use serde::Serialize;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::time::Instant;

use super::frames::{Ask, Body, Done, LONGEST, Order, Report, Said, frame, read};
use super::{Apart, Process, receive};
use crate::plugin::Facts;
use crate::plugin::asking::Asking;
use crate::plugin::ending::{Ending, early, until};
use crate::plugin::engine::STACK;
use crate::plugin::idle::Wear;
use crate::plugin::instance::Ended;
use crate::plugin::output::Output;
use crate::plugin::usage::Alive;

/// An instance in a process.
pub(in crate::plugin) struct Remote {
    process: Arc<Process>,
    /// None only while it is dropped.
    lane: Option<UnixStream>,
    facts: Arc<Facts>,
    /// The run that calls belong to; none while a plugin is loaded, and between runs.
    run: Option<Arc<dyn Context>>,
    /// The run that begins with the next call.
    news: Option<RunInfo>,
    output: Arc<Mutex<Output>>,
    /// Whose function is called, if one is, and when that has to be over.
    call: Option<Function>,
    deadline: Instant,
    /// What it holds of the memory that all plugins share, and how much of it the instance has.
    holding: Holding,
    held: u64,
    memory: u64,
    /// Calls that are over.
    calls: u64,
    runs: usize,
    /// Somebody waits for an answer.
    midway: bool,
    _alive: Alive,
}

/// How long is answered before others get a turn.
const SLICE: Duration = Duration::from_millis(10);

/// What the system takes of an answer, in bytes.
const BUFFERED: u64 = 64 << 10;

// === impl Remote ===

impl Remote {
    /// Returns an instance that starts with its first call.
    pub(in crate::plugin) async fn new(
        apart: &Apart,
        run: Option<Arc<dyn Context>>,
        output: Arc<Mutex<Output>>,
        deadline: Instant,
    ) -> wasmtime::Result<Self> {
        let process = apart.process().await?;
        let facts = Arc::clone(&apart.0.facts);
        let mut holding = facts.room.holding(&facts.unit);
        let grown = holding.grow(STACK as u64, early(deadline)).await;
        grown.map_err(|error| Ending::NoRoom(error.to_string()))?;
        let lane = match process.lane() {
            Ok(lane) => lane,
            // That is not its fault.
            Err(error) if is_full(&error) => {
                return Err(Ending::Unusable(error.to_string()).into());
            }
            Err(_) => return Err(Ending::Gone(process.why().await).into()),
        };
        // It is likely to want what others have wanted: that saves it a question.
        let usual = process.usual.load(Ordering::Relaxed);
        let held = if holding.try_grow(usual) { usual } else { 0 };
        Ok(Self {
            lane: Some(lane),
            news: run.as_ref().map(|run| run.info()),
            run,
            output,
            call: None,
            deadline: Instant::now(),
            holding,
            held,
            memory: 0,
            calls: 0,
            runs: 0,
            midway: false,
            _alive: apart.0.counters.instance(),
            process,
            facts,
        })
    }

    /// Whether it may be used again.
    pub(in crate::plugin) fn is_alive(&self) -> bool {
        self.process.is_alive()
    }

    /// Begins a run in an instance that has been used before.
    pub(in crate::plugin) fn assign(&mut self, run: Arc<dyn Context>) {
        let info = run.info();
        self.output.lock().assign(&info);
        self.news = Some(info);
        self.run = Some(run);
    }

    /// Ends a run, if the instance is to be used again.
    pub(in crate::plugin) fn release(&mut self) -> Wear {
        self.runs += 1;
        self.run = None;
        Wear { runs: self.runs, memory: self.memory() }
    }

    /// Returns how many bytes of linear memory it has.
    pub(in crate::plugin) fn memory(&self) -> usize {
        usize::try_from(self.memory).unwrap_or(usize::MAX)
    }

    /// Returns where it prints to.
    pub(in crate::plugin) fn output(&self) -> &Arc<Mutex<Output>> {
        &self.output
    }

    /// Makes a call, which has to be over then.
    pub(in crate::plugin) async fn answer(&mut self, call: &Call<'_>, deadline: Instant) -> Ended<Answer> {
        self.call = call.function();
        self.deadline = until(self.run.as_deref(), deadline);
        match self.exchange(call).await {
            Ok(done) => Ok(done?),
            Err(Stop::Gone) => Err(Ending::Gone(self.process.why().await).into()),
            Err(Stop::Wrong(why)) => Err(Ending::Gone(self.process.condemn(why)).into()),
            Err(Stop::Unable(why)) => Err(Ending::Unusable(why).into()),
        }
    }

    async fn exchange(&mut self, call: &Call<'_>) -> Result<Done, Stop> {
        let order = Order::Call {
            call: call.clone(),
            run: self.news.take(),
            left: self.deadline.saturating_duration_since(Instant::now()),
            granted: self.held,
        };
        self.midway = true;
        self.send(&order).await?;
        let mut rested = Instant::now();
        loop {
            let asked = match self.listen().await? {
                Body::Ask(asked) => asked,
                Body::Done(done) => {
                    self.midway = false;
                    self.settle();
                    return fits(call, done);
                }
            };
            let (process, run) = (Arc::clone(&self.process), self.run.clone());
            // Before the request is given up: it is to know that nobody waits for an answer any more.
            let over = async {
                process.over().await;
                if let Some(run) = &run {
                    run.asker_gone();
                }
            };
            let answer = tokio::select! {
                biased;
                answer = self.serve(asked) => answer?,
                () = over => return Err(Stop::Gone),
            };
            self.hand_over(&answer).await?;
            // One that asks ahead never lets this wait.
            if rested.elapsed() >= SLICE {
                cpu::rest().await;
                rested = Instant::now();
            }
        }
    }

    async fn send<T: Serialize>(&mut self, value: &T) -> Result<(), Stop> {
        let frame = framed(value)?;
        self.write(&frame).await
    }

    /// Writes an answer, which the plugin has memory for until it is read.
    async fn hand_over(&mut self, answer: &[u8]) -> Result<(), Stop> {
        let waits = u64::try_from(answer.len()).unwrap_or(u64::MAX);
        if waits <= BUFFERED {
            return self.write(answer).await;
        }
        let lent = self.holding.grow(waits, self.deadline).await;
        lent.map_err(|error| Stop::Unable(error.to_string()))?;
        self.write(answer).await?;
        self.holding.shrink(waits);
        Ok(())
    }

    async fn write(&mut self, frame: &[u8]) -> Result<(), Stop> {
        let lane = self.lane.as_mut().ok_or(Stop::Gone)?;
        lane.write_all(frame).await.map_err(|_| Stop::Gone)
    }

    /// Waits until it is our turn. What was said and used until then is this run's.
    async fn listen(&mut self) -> Result<Body, Stop> {
        let lane = self.lane.as_mut().ok_or(Stop::Gone)?;
        let begun = Instant::now();
        let frame = receive(lane, LONGEST).await.map_err(|error| {
            if error.kind() == io::ErrorKind::InvalidData {
                Stop::Wrong("it says more than it may")
            } else {
                Stop::Gone
            }
        })?;
        let report = read(&frame);
        let Report { cpu, memory, said, body } = report.map_err(|_| Stop::Wrong("what it says can't be read"))?;
        // A lane is one thread.
        cpu::charge(cpu.min(begun.elapsed()));
        self.memory = memory.min(self.facts.limits.memory);
        let mut output = self.output.lock();
        for said in said {
            match said {
                Said::Printed(stream, bytes) => output.print(stream, &bytes),
                Said::Logged(level, message, fields) => output.log(level, &message, &fields),
            }
        }
        Ok(body)
    }

    /// Holds what the instance has after a call, and no more.
    fn settle(&mut self) {
        let over = self.held.saturating_sub(self.memory);
        self.holding.shrink(over);
        self.held -= over;
        if self.calls == 0 {
            self.process.usual.store(self.held, Ordering::Relaxed);
        }
        self.calls += 1;
    }

    /// Answers what the instance asks for.
    async fn serve(&mut self, ask: Ask) -> Result<Vec<u8>, Stop> {
        let asking = Asking { facts: Arc::clone(&self.facts), run: self.run.clone(), call: self.call };
        let run = || asking.run();
        match ask {
            Ask::NextImminent => framed(&run().is_ok_and(|run| run.next_imminent())),
            Ask::Settings => framed(&run().map_or_else(|_| "{}".to_owned(), |run| run.settings())),
            Ask::FindAll(query) => framed(&asking.find_all(query).await),
            Ask::FindOne(place) => framed(&async { run()?.find_one(place).await }.await),
            Ask::FindNamed(place, key) => framed(&async { run()?.find_named(place, key).await }.await),
            Ask::Write(request) => framed(&asking.write(request).await),
            Ask::Remove(target, deletion) => framed(&asking.remove(target, deletion).await),
            Ask::AddFinalizer(finalizer) => framed(&asking.add_finalizer(finalizer).await),
            Ask::RemoveFinalizer(finalizer) => framed(&asking.remove_finalizer(finalizer).await),
            Ask::Compare(question) => framed(&run().and_then(|run| run.compare(question))),
            Ask::Workflow(call) => framed(&asking.workflow(call, self.deadline).await),
            Ask::LastResult(name) => framed(&run().ok().and_then(|run| run.last_result(name.as_deref()))),
            Ask::Register(name, declaration) => framed(&asking.register(name, declaration, self.deadline).await),
            Ask::Deregister(name) => framed(&run().and_then(|run| run.deregister(&name))),
            Ask::Remember(name, actual, replaced) => {
                framed(&run().and_then(|run| run.remember(&name, actual, replaced)))
            }
            Ask::Forget(name, id) => framed(&run().and_then(|run| run.forget(&name, &id))),
            Ask::Memo(lifetime, key) => framed(&asking.memo(lifetime, &key)),
            Ask::SetMemo(lifetime, key, value) => framed(&asking.set_memo(lifetime, &key, value)),
            Ask::Publish(event) => {
                asking.publish(event);
                framed(&())
            }
            Ask::Expect(name, timeout) => framed(&run().and_then(|run| run.expect(&name, timeout))),
            Ask::PendingExpectation => framed(&run().ok().and_then(|run| run.pending_expectation())),
            Ask::ClearExpectation(name) => framed(&run().is_ok_and(|run| run.clear_expectation(&name))),
            Ask::Grow(bytes) => framed(&self.grow(bytes).await),
            Ask::Rest => framed(&()),
        }
    }

    async fn grow(&mut self, bytes: u64) -> Result<(), String> {
        let more = bytes.min(self.facts.limits.memory).saturating_sub(self.held);
        let grown = self.holding.grow(more, early(self.deadline)).await;
        grown.map_err(|error| error.to_string())?;
        self.held += more;
        Ok(())
    }
}

impl Drop for Remote {
    /// Has the instance dropped. Its lane is used again, if it is nobody's turn there.
    fn drop(&mut self) {
        let Some(lane) = self.lane.take() else {
            return;
        };
        let process = Arc::clone(&self.process);
        if !process.is_alive() {
            return;
        }
        if self.midway {
            process.give_up(lane);
            return;
        }
        let Ok(end) = frame(&Order::End) else {
            return;
        };
        // One that hears nothing is given up; so few bytes fit as a whole.
        if lane.try_write(&end).is_ok_and(|length| length == end.len()) {
            process.free(lane);
        }
    }
}

/// Whether the daemon has no file descriptor left.
fn is_full(error: &io::Error) -> bool {
    let full = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| full.contains(&code))
}

/// Why a call goes no further.
enum Stop {
    /// The process has hung up.
    Gone,
    /// It does what no component can make it do.
    Wrong(&'static str),
    /// It could not be told.
    Unable(String),
}

fn framed<T: Serialize>(value: &T) -> Result<Vec<u8>, Stop> {
    frame(value).map_err(|error| Stop::Unable(error.to_string()))
}

/// Whether an answer is one to the call.
fn fits(call: &Call<'_>, done: Done) -> Result<Done, Stop> {
    let fits = match &done {
        Ok(Ok(answer)) => answer.function() == call.function(),
        Ok(Err(_)) | Err(_) => true,
    };
    if fits { Ok(done) } else { Err(Stop::Wrong("it answers what was not asked")) }
}
