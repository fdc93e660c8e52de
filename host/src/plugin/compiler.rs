//! Compiles a component in a process of its own, which has so much memory and time and no more, and says how that ended.
//!
//! What a component needs to be compiled is known when it has been compiled, and nobody but the one who sent it shall pay
//! for it. So the process bounds itself before it reads, this one stops it by the clock, and nothing it dies of is tried
//! again in here.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use capstan_core::manifest::{Bytes, Time};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setpriority_process, setrlimit};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Child;
use tokio::time::timeout;
use wasmtime::Engine;

use super::command;
use super::engine::config;
use crate::read;

/// The most that compiled code may have.
const CODE: u64 = 256 << 20;

/// Characters of them that are told.
const TOLD: usize = 1000;

/// Memory with which a thread more is of use.
const PER_THREAD: u64 = 256 << 20;

/// How far behind others it is, where there is not enough CPU for all.
const NICE: i32 = 5;

/// The exit code of a process that has not compiled for a reason of its own.
const UNABLE: u8 = 3;

/// What compiling one component may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of memory.
    pub memory: u64,
    /// CPU time of all threads together, in full seconds.
    pub cpu: Duration,
    /// How long it may take by the clock.
    pub clock: Duration,
}

/// How compiling has failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// There is no such process, so nothing has been tried.
    #[error("start the process that compiles")]
    NotStarted(#[source] io::Error),
    /// It could not do its work, which says nothing of the component.
    #[error("the process that compiles: {0}")]
    Unable(String),
    /// The component is not valid.
    #[error("{0}")]
    Invalid(String),
    /// It is not done, which may be the machine's fault.
    #[error("it is not compiled after {}", Time(*.0))]
    Late(Duration),
    /// It takes more than it may, or broke the compiler.
    #[error("{0}")]
    Costly(String),
}

// === impl Limits ===

impl Limits {
    fn arguments(&self) -> [String; 4] {
        let Self { memory, cpu, .. } = self;
        let cpu = cpu.as_secs().max(1);
        ["--memory".to_owned(), memory.to_string(), "--cpu".to_owned(), cpu.to_string()]
    }

    /// Returns how many threads compile. Each has functions of its own in memory; and one core is left to those who are at
    /// work.
    fn threads(&self) -> u64 {
        (self.memory / PER_THREAD).clamp(1, threads() as u64)
    }

    /// Bounds this process, for good.
    fn confine(&self) -> io::Result<()> {
        // Where the system must end somebody for want of memory, this one. Elsewhere than on Linux there is no such file.
        drop(fs::write("/proc/self/oom_score_adj", "1000"));
        setpriority_process(None, NICE)?;
        let seconds = self.cpu.as_secs().max(1);
        for (resource, most, last) in [
            // Private memory that can be written. The size of the address space would count what is only reserved.
            (Resource::Data, self.memory, self.memory),
            // One signal that says why, and one that can't be ignored.
            (Resource::Cpu, seconds, seconds + 1),
            (Resource::Fsize, CODE, CODE),
            (Resource::Core, 0, 0),
            (Resource::Nofile, 64, 64),
        ] {
            // What others have bounded before stays.
            let before = getrlimit(resource).maximum.unwrap_or(u64::MAX);
            let limit = Rlimit { current: Some(most.min(before)), maximum: Some(last.min(before)) };
            setrlimit(resource, limit)?;
        }
        Ok(())
    }
}

// === the process that compiles ===

/// Bounds this process, and compiles the component on its standard input to its standard output. To be called before there
/// are threads.
pub fn run(limits: &Limits) -> ExitCode {
    let done = limits
        .confine()
        .and_then(|()| input())
        .map_err(|error| (UNABLE, error.to_string()))
        .and_then(|wasm| compiled(&wasm).map_err(|error| (1, format!("{error:#}"))))
        .and_then(|code| output(&code).map_err(|error| (UNABLE, error.to_string())));
    let Err((status, why)) = done else {
        return ExitCode::SUCCESS;
    };
    // If nobody listens, the status has to do.
    drop(io::stderr().write_all(why.as_bytes()));
    ExitCode::from(status)
}

fn input() -> io::Result<Vec<u8>> {
    let mut wasm = Vec::new();
    io::stdin().lock().take(read::COMPONENT).read_to_end(&mut wasm)?;
    Ok(wasm)
}

fn compiled(wasm: &[u8]) -> wasmtime::Result<Vec<u8>> {
    Engine::new(&config())?.precompile_component(wasm)
}

fn output(code: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(code)?;
    out.flush()
}

// === the process that has it compiled ===

/// Has a component compiled by this command, which is expected to call [`run`]; the code goes into the file. The process
/// ends with the future.
pub(super) async fn compile(command: &[OsString], limits: &Limits, wasm: &[u8], code: File) -> Result<(), Error> {
    let mut child = spawn(command, limits, code).map_err(Error::NotStarted)?;
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let feed = async move {
        if let Some(mut stdin) = stdin {
            // One that has ended does not read to the end.
            drop(stdin.write_all(wasm).await);
        }
    };
    let end = async { tokio::join!(feed, command::words(stderr), child.wait()) };
    match timeout(limits.clock, end).await {
        Ok(((), words, Ok(status))) => verdict(status, &words, limits),
        Ok(((), _, Err(error))) => Err(Error::Unable(error.to_string())),
        Err(_elapsed) => {
            // Dropped with the future of its end; this waits until it is gone.
            drop(child.kill().await);
            Err(Error::Late(limits.clock))
        }
    }
}

fn spawn(command: &[OsString], limits: &Limits, code: File) -> io::Result<Child> {
    let mut command = command::of(command)?;
    let command = command.args(limits.arguments()).env("RAYON_NUM_THREADS", limits.threads().to_string());
    command.stdin(Stdio::piped()).stdout(code).spawn()
}

/// Says what the end of the process means.
fn verdict(status: ExitStatus, words: &str, limits: &Limits) -> Result<(), Error> {
    let costly = |why: String| Err(Error::Costly(why));
    let starved = ["memory allocation of", "Cannot allocate memory", "out of memory", "ThreadPoolBuildError"];
    // What stands there may be up to the component.
    let told =
        |words: &str| words.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(TOLD).collect::<String>();
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        _ if starved.iter().any(|sign| words.contains(sign)) => {
            let memory = Bytes(limits.memory);
            costly(format!("it needs more than {memory} of memory to be compiled"))
        }
        (Some(1), _) => Err(Error::Invalid(told(words))),
        (Some(code), _) if code == i32::from(UNABLE) => Err(Error::Unable(told(words))),
        (_, Some(signal)) => match Signal::from_named_raw(signal) {
            Some(Signal::XCPU) => {
                let cpu = Time(limits.cpu);
                costly(format!("it needs more than {cpu} of CPU time to be compiled"))
            }
            Some(Signal::XFSZ) => {
                let most = Bytes(CODE);
                costly(format!("it has more than {most} of machine code"))
            }
            Some(Signal::KILL) => {
                costly("the system has ended the process that compiles it, as it does for want of memory".to_owned())
            }
            // Somebody wants it to end, whatever it compiles.
            Some(Signal::INT | Signal::TERM | Signal::HUP) => Err(Error::Unable(format!("ended by signal {signal}"))),
            _ => costly(format!("it breaks the compiler (signal {signal}): {}", told(words))),
        },
        (code, None) => {
            costly(format!("it breaks the compiler (exit status {}): {}", code.unwrap_or_default(), told(words)))
        }
    }
}

/// Returns how many threads compile: one core is left to those who are at work.
pub(super) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { memory: 512 << 20, cpu: Duration::from_mins(2), clock: Duration::from_mins(6) };

    /// Returns what the end of a process with this wait status and these last words is taken for.
    fn told(status: i32, words: &str) -> String {
        match verdict(ExitStatus::from_raw(status), words, &LIMITS) {
            Ok(()) => "compiled".to_owned(),
            Err(error @ Error::Invalid(_)) => format!("invalid: {error}"),
            Err(error @ (Error::Costly(_) | Error::Late(_))) => format!("costly: {error}"),
            Err(error @ (Error::Unable(_) | Error::NotStarted(_))) => format!("unable: {error}"),
        }
    }

    #[test]
    fn how_the_process_ended_says_whose_fault_it_is() {
        let exit = |code: i32| code << 8;
        for (status, words, expected) in [
            (0, "", "compiled"),
            (exit(1), "unknown section (at offset 0xa)", "invalid: unknown section (at offset 0xa)"),
            (exit(3), "No space left on device", "unable: the process that compiles: No space left on device"),
            (6, "memory allocation of 48 bytes failed", "costly: it needs more than 512Mi of memory to be compiled"),
            (exit(1), "mmap: Cannot allocate memory", "costly: it needs more than 512Mi of memory to be compiled"),
            (24, "", "costly: it needs more than 2m of CPU time to be compiled"),
            (25, "", "costly: it has more than 256Mi of machine code"),
            (11, "", "costly: it breaks the compiler (signal 11): "),
            (
                exit(101),
                "thread 'main' panicked\nat x",
                "costly: it breaks the compiler (exit status 101): thread 'main' panicked at x",
            ),
            (15, "", "unable: the process that compiles: ended by signal 15"),
        ] {
            assert_eq!(told(status, words), expected);
        }
        assert!(told(9, "").starts_with("costly: the system has ended"));
    }

    #[test]
    fn threads_are_bounded_by_memory() {
        assert_eq!(LIMITS.threads(), threads().min(2) as u64);
        let small = Limits { memory: 64 << 20, ..LIMITS };
        assert_eq!(small.threads(), 1);
    }
}
