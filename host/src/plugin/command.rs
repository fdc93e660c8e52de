//! How a process for a component begins, whatever it does: it gets nothing of what this one has, and ends with who waits for it.

use std::ffi::OsString;
use std::io;
use std::process::Stdio;

use tokio::io::AsyncReadExt as _;
use tokio::process::{ChildStderr, Command};

/// What is read of a process's words, in bytes.
const WORDS: u64 = 16 << 10;

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

/// Returns what a process has said by its end, as far as it is read.
pub(super) async fn words(stderr: Option<ChildStderr>) -> String {
    let mut words = Vec::new();
    if let Some(stderr) = stderr {
        drop(stderr.take(WORDS).read_to_end(&mut words).await);
    }
    String::from_utf8_lossy(&words).trim().to_owned()
}
