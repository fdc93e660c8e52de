//! Decides how a program is started so that it ends with us, and how its output reaches us line by line.
//!
//! Each program gets a process group of its own: Ctrl-C in a terminal reaches us alone, and we end the rest in order.
//! Beside it waits a small `sh` on a pipe of ours; should we be killed, the pipe ends and the `sh` kills the group.

use std::ffi::OsStr;
use std::io::{BufReader, ErrorKind, Read};
use std::mem;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bench::clock::Stopwatch;
use console::strip_ansi_codes;
use regex_lite::Regex;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::interrupt::{self, TICK};
use crate::ui::{Task, Ui, dim};

/// Kills the process group that is its argument when its standard input ends.
const GUARD: &str = "read -r _; kill -s KILL -- \"-$1\"";
/// How long a program may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(10);
/// How long output may keep coming from what a program that has ended has left behind.
const AFTERMATH: Duration = Duration::from_secs(1);

/// A running program. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    guard: Child,
}

#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    /// What it wrote to either output, without what cargo overwrites while it works.
    pub(crate) output: Vec<String>,
}

// === impl Process ===

impl Process {
    /// Starts a program with nothing on its standard input.
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.stdin(Stdio::null()).process_group(0).spawn().with_context(|| format!("start {name}"))?;
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD, "guard", &child.id().to_string()]).process_group(0);
        guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { name, child, guard: guard.spawn().context("start sh")? })
    }

    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("wait for {}", self.name))
    }

    /// Waits for its end; fails when interrupted before.
    pub(crate) fn wait(&mut self) -> Result<ExitStatus> {
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            interrupt::pause()?;
        }
    }

    fn signal(&self, signal: Signal) {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(group) = group {
            // An error means that it has just ended.
            kill_process_group(group, signal).unwrap_or_default();
        }
    }
}

impl Drop for Process {
    /// Asks it to end, and kills it if it does not.
    fn drop(&mut self) {
        let watch = Stopwatch::start();
        let mut signal = Signal::TERM;
        // An error means that there is nothing left to wait for.
        while let Ok(None) = self.child.try_wait() {
            if watch.spent() > GRACE {
                signal = Signal::KILL;
            }
            if signal == Signal::KILL || watch.spent() < TICK {
                self.signal(signal);
            }
            thread::park_timeout(TICK / 10);
        }
        // Its work is done; it would otherwise wait for our end.
        drop(self.guard.kill());
        drop(self.guard.wait());
    }
}

/// Returns the words of a command as they can be typed.
pub(crate) fn typed<W: AsRef<OsStr>>(words: impl IntoIterator<Item = W>) -> String {
    let words = words.into_iter().map(|word| {
        let word = word.as_ref().to_string_lossy().into_owned();
        if word.contains([' ', '"', '{']) { format!("'{word}'") } else { word }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Returns what a program answers at once; none if there is no such program.
pub(crate) fn output(mut command: Command) -> Result<Option<Output>> {
    match command.stdin(Stdio::null()).output() {
        Ok(output) => Ok(Some(output)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("start {}", command.get_program().display())),
    }
}

/// Returns what the groups of a regular expression find in a line that a program has written.
pub(crate) fn found<'a, const N: usize>(pattern: &str, line: &'a str) -> Option<[&'a str; N]> {
    Some(Regex::new(pattern).ok()?.captures(line)?.extract().1)
}

/// Runs programs one after another, each with our own outputs; goes on after a failure, which the exit code says.
pub(crate) fn each(ui: &Ui, commands: Vec<Command>) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for command in commands {
        ui.line(dim(&format!("$ cargo {}", typed(command.get_args()))));
        if !Process::start(command)?.wait()?.success() {
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

/// Runs a program to its end, giving each line of both its outputs to `on_line` as it comes.
pub(crate) fn run(mut command: Command, on_line: &mut dyn FnMut(&str)) -> Result<Finished> {
    let (reader, writer) = std::io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    // The command goes here, and our writing end with it: the output ends when the program's does.
    let mut process = Process::start(command)?;
    let lines = lines(reader);
    let mut output = Vec::new();
    let mut ended: Option<(ExitStatus, Stopwatch)> = None;
    loop {
        interrupt::check()?;
        match lines.recv_timeout(TICK) {
            Ok(line) => {
                on_line(&line);
                // What cargo overwrites on a terminal is passing.
                if units(&line).is_none() {
                    output.push(line);
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {}
        }
        match (&ended, process.ended()?) {
            (None, Some(status)) => ended = Some((status, Stopwatch::start())),
            (Some((_, since)), _) if since.spent() > AFTERMATH => break,
            (None | Some(_), _) => {}
        }
    }
    Ok(Finished { status: process.wait()?, output })
}

/// Runs cargo, which shows on `task`; `on_line` gets each line too, without its colours.
pub(crate) fn show(task: &mut Task, mut command: Command, on_line: &mut dyn FnMut(&str)) -> Result<Finished> {
    let colour = if console::colors_enabled() { "always" } else { "never" };
    command
        .env("CARGO_TERM_COLOR", colour)
        // Else cargo says nothing of its progress, as it does not write to a terminal.
        .env("CARGO_TERM_PROGRESS_WHEN", "always")
        .env("CARGO_TERM_PROGRESS_WIDTH", "120");
    run(command, &mut |line| {
        let plain = strip_ansi_codes(line);
        match units(&plain) {
            Some((done, of, what)) => task.progress(done, of, what),
            None if plain.trim().is_empty() => {}
            None => task.at(plain.trim()),
        }
        on_line(&plain);
    })
}

/// As [`show`], for a build that has to succeed.
pub(crate) fn must(task: &mut Task, command: Command, what: &str) -> Result<()> {
    let Finished { status, output } = show(task, command, &mut |_| {})?;
    if status.success() {
        return Ok(());
    }
    task.whole(&output);
    bail!("{what} failed ({status})");
}

/// Returns how many units of how many are built, and which are being built, from cargo's progress line.
pub(crate) fn units(line: &str) -> Option<(u64, u64, &str)> {
    let [done, of, what] = found(r"^\s*\S+ \[.*\] (\d+)/(\d+):?(.*)$", line)?;
    Some((done.parse().ok()?, of.parse().ok()?, what.trim()))
}

/// Gives the lines of a stream to `on_line` until that says no; `\r` ends a line too, as it does where one is overwritten.
pub(crate) fn each_line(stream: impl Read, mut on_line: impl FnMut(String) -> bool) {
    let mut line = Vec::new();
    for byte in BufReader::new(stream).bytes().map_while(Result::ok) {
        if byte != b'\n' && byte != b'\r' {
            line.push(byte);
            continue;
        }
        // In `\r\n`, and where a line is overwritten by an empty one.
        let nothing = byte == b'\r' && line.is_empty();
        if !nothing && !on_line(text(&mut line)) {
            return;
        }
    }
    if !line.is_empty() {
        on_line(text(&mut line));
    }
}

/// Returns the lines of a stream. The bound keeps a program that writes without end from filling our memory.
fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::sync_channel(1024);
    thread::spawn(move || each_line(stream, |line| sender.send(line).is_ok()));
    receiver
}

fn text(line: &mut Vec<u8>) -> String {
    String::from_utf8_lossy(&mem::take(line)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn is_running(id: &str) -> bool {
        let mut kill = Command::new("kill");
        kill.args(["-0", id]).stderr(Stdio::null());
        kill.status().unwrap().success()
    }

    #[test]
    fn both_outputs_come_line_by_line_without_what_cargo_overwrites() {
        let script = r"echo one; printf '    Building [=> ] 1/2: a\r' >&2; echo two >&2; printf three; exit 3";
        let mut seen = Vec::new();
        let Finished { status, output } = run(sh(script), &mut |line| seen.push(line.to_owned())).unwrap();
        assert_eq!(status.code(), Some(3));
        assert_eq!(output, ["one", "two", "three"]);
        assert_eq!(seen, ["one", "    Building [=> ] 1/2: a", "two", "three"]);
    }

    #[test]
    fn a_command_is_shown_as_it_can_be_typed() {
        assert_eq!(typed(["patch", "-p", r#"{"a": 1}"#]), r#"patch -p '{"a": 1}'"#);
    }

    #[test]
    fn a_program_that_is_missing_is_named() {
        let missing = Command::new("no-such-program");
        let error = run(missing, &mut |_| {}).unwrap_err().to_string();
        assert_eq!(error, "start no-such-program");
    }

    #[test]
    fn what_a_program_leaves_behind_does_not_hold_us_up() {
        let finished = run(sh("sleep 600 & echo $!"), &mut |_| {}).unwrap();
        let [child] = finished.output.as_slice() else { panic!("{:?}", finished.output) };
        assert!(is_running(child));
        Command::new("kill").arg(child).status().unwrap();
    }

    /// Starts a program with a child; returns their ids.
    fn family() -> (Process, [String; 2]) {
        let folder = tempfile::tempdir().unwrap();
        let note = folder.path().join("child");
        let script = format!("sleep 600 & echo $! > {}; wait", note.display());
        let process = Process::start(sh(&script)).unwrap();
        let child = interrupt::until(10, "the child", || {
            let text = std::fs::read_to_string(&note).unwrap_or_default();
            Ok(text.ends_with('\n').then(|| text.trim().to_owned()))
        });
        let ids = [process.child.id().to_string(), child.unwrap()];
        assert!(ids.iter().all(|id| is_running(id)));
        (process, ids)
    }

    fn wait_until_gone(ids: &[String]) {
        let gone = || Ok(ids.iter().all(|id| !is_running(id)).then_some(()));
        interrupt::until(10, "the end", gone).unwrap();
    }

    #[test]
    fn a_dropped_program_is_gone_with_its_children() {
        let (process, ids) = family();
        drop(process);
        wait_until_gone(&ids);
    }

    #[test]
    fn when_we_are_killed_a_program_is_gone_with_its_children() {
        let (mut process, [id, child]) = family();
        // What the kernel does for a process that is killed.
        drop(process.guard.stdin.take());
        wait_until_gone(&[child]);
        let ended = interrupt::until(10, "its end", || process.ended());
        assert!(!ended.unwrap().success() && !is_running(&id));
    }

    #[test]
    fn only_progress_lines_are_progress() {
        let table = [
            ("    Building [=====>   ] 126/127: xtask(bin), syn", Some((126, 127, "xtask(bin), syn"))),
            ("    Building [=====>   ] 3/9", Some((3, 9, ""))),
            ("   Compiling syn v2.0.1 (a [b] 1/2)", None),
            ("test result: ok. 3 passed; 0 failed", None),
            ("[2/3] a", None),
        ];
        assert_eq!(table.map(|(line, _)| units(line)), table.map(|(_, expected)| expected));
    }
}
