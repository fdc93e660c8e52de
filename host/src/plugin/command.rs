//! How a process for a component begins, whatever it does: it gets nothing of what this one has, and ends with who waits for it.

use std::ffi::OsString;
use std::io;
use std::process::Stdio;
use std::sync::{LazyLock, mpsc};
use std::thread;

use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStderr, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// What is read of a process's words, in bytes.
const WORDS: u64 = 16 << 10;

/// Starts one process.
type Start = Box<dyn FnOnce() + Send>;

/// Returns the process that runs a command, without its input and output.
pub(super) fn of(command: &[OsString]) -> io::Result<Command> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        // It needs no secrets.
        .env_clear()
        // mimalloc reserves a gigabyte before `main`: as address space, not as memory that counts.
        .env("MIMALLOC_ARENA_EAGER_COMMIT", "0")
        .env("MIMALLOC_ALLOW_THP", "0")
        .stderr(Stdio::piped())
        // A signal from the terminal is for this process, which ends the other one.
        .process_group(0)
        .kill_on_drop(true);
    Ok(command)
}

/// Starts a process on a thread that lasts as long as this process. What asks to end with whoever has started it ends with that thread, and those of a
/// runtime come and go: one that waits for something in place becomes one without work, and ends ten seconds later.
pub(super) async fn start(mut command: Command, runtime: &Handle) -> io::Result<Child> {
    static STARTER: LazyLock<io::Result<mpsc::Sender<Start>>> = LazyLock::new(|| {
        let (starts, started) = mpsc::channel::<Start>();
        let thread = thread::Builder::new().name("processes".into());
        thread.spawn(move || started.into_iter().for_each(|start| start()))?;
        Ok(starts)
    });
    let (tell, told) = oneshot::channel();
    let start = {
        let runtime = runtime.clone();
        move || {
            let _entered = runtime.enter();
            // Whoever has given up ends what has begun.
            drop(tell.send(command.spawn()));
        }
    };
    let starter = STARTER.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
    let gone = || io::Error::other("the thread that starts processes has ended");
    starter.send(Box::new(start)).map_err(|_| gone())?;
    told.await.map_err(|_| gone())?
}

/// Returns what a process has said by its end, as far as it is read.
pub(super) async fn words(stderr: Option<ChildStderr>) -> String {
    let mut words = Vec::new();
    if let Some(stderr) = stderr {
        drop(stderr.take(WORDS).read_to_end(&mut words).await);
    }
    String::from_utf8_lossy(&words).trim().to_owned()
}
