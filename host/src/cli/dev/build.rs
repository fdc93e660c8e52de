//! Runs the folder's own commands, and ends them with everything they have started: the one that builds the component, and the one that says what types are.

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};

/// The most that is kept of what a command prints, in bytes: the end of it, where errors are summed up.
const KEPT: usize = 256 << 10;

/// How a build ended.
pub(super) struct Built {
    /// True if it succeeded.
    pub(super) ok: bool,
    /// What the command printed, or what came of it if it printed nothing.
    pub(super) printed: String,
}

/// Runs the command in the folder.
///
/// # Errors
/// If no shell can be started.
pub(super) async fn build(folder: &Path, command: &str) -> anyhow::Result<Built> {
    // Errors as well as the rest, in the order in which they are printed.
    let mut shell = shell(folder, &format!("exec 2>&1\n{command}"));
    if std::io::stderr().is_terminal() {
        shell.env("CARGO_TERM_COLOR", "always").env("FORCE_COLOR", "1");
    }
    let mut child = Group(shell.spawn().with_context(|| format!("start a shell for `{command}`"))?);
    let printed = match child.0.stdout.take() {
        Some(output) => end_of(output).await,
        None => String::new(),
    };
    let status = child.0.wait().await.with_context(|| format!("wait for `{command}`"))?;
    let printed = if printed.trim().is_empty() { said(command, status) } else { printed };
    Ok(Built { ok: status.success(), printed })
}

/// Runs a command that prints what is asked for, and returns that.
///
/// # Errors
/// If no shell can be started, what the command says if it fails, or if it prints more than `most` bytes.
pub(in crate::cli) async fn asked(folder: &Path, command: &str, most: u64) -> anyhow::Result<String> {
    let mut shell = shell(folder, command);
    shell.stderr(Stdio::piped());
    let mut child = Group(shell.spawn().with_context(|| format!("start a shell for `{command}`"))?);
    let (output, errors) = (child.0.stdout.take(), child.0.stderr.take());
    let answer = async {
        let mut text = Vec::new();
        if let Some(output) = output {
            output.take(most + 1).read_to_end(&mut text).await?;
        }
        std::io::Result::Ok(text)
    };
    let errors = async {
        match errors {
            Some(errors) => end_of(errors).await,
            None => String::new(),
        }
    };
    let (answer, errors) = tokio::join!(answer, errors);
    let answer = answer.with_context(|| format!("read what `{command}` prints"))?;
    anyhow::ensure!(answer.len() as u64 <= most, "`{command}` prints more than {most} bytes");
    let status = child.0.wait().await.with_context(|| format!("wait for `{command}`"))?;
    let said = if errors.trim().is_empty() { said(command, status) } else { errors };
    anyhow::ensure!(status.success(), "{said}\n`{command}` has failed");
    String::from_utf8(answer).with_context(|| format!("what `{command}` prints"))
}

/// Returns a shell for a command in the folder, with its output kept.
fn shell(folder: &Path, command: &str) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).current_dir(folder).process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
    if let Some(path) = path(folder) {
        shell.env("PATH", path);
    }
    shell
}

fn said(command: &str, status: ExitStatus) -> String {
    format!("`{command}` has printed nothing: {status}")
}

/// Returns the search path with the folder's environment of Python before all else, if it has one.
fn path(folder: &Path) -> Option<std::ffi::OsString> {
    let own = folder.join(".venv/bin").canonicalize().ok()?;
    let usual = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(own).chain(std::env::split_paths(&usual))).ok()
}

/// Reads all of an output, and returns the end of it.
async fn end_of(mut output: impl AsyncRead + Unpin) -> String {
    let (mut kept, mut part) = (Vec::new(), vec![0; 8 << 10]);
    while let Ok(read @ 1..) = output.read(&mut part).await {
        kept.extend_from_slice(part.get(..read).unwrap_or_default());
        if kept.len() > 2 * KEPT {
            kept.drain(..kept.len().saturating_sub(KEPT));
        }
    }
    let from = kept.len().saturating_sub(KEPT);
    String::from_utf8_lossy(kept.get(from..).unwrap_or_default()).trim_end().to_owned()
}

/// A command with all that it starts, which ends when this is dropped.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        let running = self.0.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(group) = running {
            // It may have ended meanwhile.
            let _gone = kill_process_group(group, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn what_a_command_prints_is_kept_as_it_is_with_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let built = build(folder.path(), "echo one; echo two >&2; pwd; exit 3").await.unwrap();
        let place = folder.path().canonicalize().unwrap();
        assert_eq!((built.ok, built.printed), (false, format!("one\ntwo\n{}", place.display())));
        let built = build(folder.path(), "true").await.unwrap();
        assert!(built.ok && built.printed.starts_with("`true` has printed nothing"), "{}", built.printed);
    }

    #[tokio::test]
    async fn what_is_asked_for_is_what_is_printed_and_the_rest_is_told_of_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let ask = async |command: &str| asked(folder.path(), command, 10).await.map_err(|error| error.to_string());
        assert_eq!(ask("echo wait >&2; echo '{}'").await, Ok("{}\n".to_owned()));
        assert_eq!(
            ask("echo no; echo why >&2; exit 2").await.unwrap_err(),
            "why\n`echo no; echo why >&2; exit 2` has failed"
        );
        assert!(ask("echo 12345678901").await.unwrap_err().contains("prints more than 10 bytes"));
    }

    #[tokio::test]
    async fn a_build_that_nobody_waits_for_ends_with_all_that_it_has_started() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("pid");
        let command = "sleep 1000 & echo $! > pid; wait";
        let begun = async {
            while !std::fs::read_to_string(&mark).is_ok_and(|text| text.ends_with('\n')) {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = build(folder.path(), command) => panic!("it ended"),
            () = begun => {}
        }
        let id = std::fs::read_to_string(&mark).unwrap().trim().parse().ok().and_then(Pid::from_raw).unwrap();
        let gone = async {
            // Whoever is dead and not waited for yet can be signalled still.
            let is_there = || std::fs::read_to_string(format!("/proc/{}/stat", id.as_raw_nonzero()));
            while is_there().is_ok_and(|stat| !stat.contains(") Z ")) {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(10), gone).await.expect("the command's own child is gone");
    }
}
