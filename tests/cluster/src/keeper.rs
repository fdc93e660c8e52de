//! Decides how a process is started so that it ends with us, even when we are killed.
//!
//! Each program runs below a small `sh` that holds the reading end of a pipe whose writing end is ours. The kernel
//! closes our end however we end, and the `sh` then kills the program. The writing end is never inherited: the
//! standard library opens its pipes close-on-exec.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, anyhow};

const KEEPER: &str = include_str!("keeper.sh");
const JANITOR: &str = include_str!("janitor.sh");

/// How many bytes of a log are read for its last lines.
const TAIL_BYTES: u64 = 16 * 1024;
/// How many last lines of a log an error shows.
const TAIL_LINES: usize = 15;

/// The program to run, and the files of its log and process id.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    /// Its name in errors.
    pub(crate) name: &'a str,
    pub(crate) program: &'a Path,
    pub(crate) arguments: &'a [String],
    /// Variables added to the inherited environment.
    pub(crate) environment: &'a [(&'a str, &'a str)],
    /// The working folder.
    pub(crate) folder: &'a Path,
    /// The file of its output; it is overwritten.
    pub(crate) log: PathBuf,
    /// The file of its process id.
    pub(crate) pid_file: PathBuf,
}

/// A running program. Dropping it kills the program and waits until it is gone.
#[derive(Debug)]
pub(crate) struct Kept {
    name: String,
    log: PathBuf,
    pid_file: PathBuf,
    keeper: Child,
    /// Closing it ends the program.
    pipe: Option<ChildStdin>,
}

impl Kept {
    /// Starts the job.
    ///
    /// # Errors
    /// If its log can't be written or `sh` can't be started. A program that can't be started counts as one that has
    /// ended, with the reason in its log.
    pub(crate) fn start(job: Job<'_>) -> Result<Self> {
        let Job { name, program, arguments, environment, folder, log, pid_file } = job;
        let output = File::create(&log).with_context(|| format!("write {}", log.display()))?;
        let mut command = shell(KEEPER);
        command.arg(&pid_file).arg(program).args(arguments).envs(environment.iter().copied()).current_dir(folder);
        command.stdout(output.try_clone()?).stderr(output);
        let (keeper, pipe) = spawn(&mut command).with_context(|| format!("start {name}"))?;
        Ok(Self { name: name.to_owned(), log, pid_file, keeper, pipe: Some(pipe) })
    }

    /// Returns an error with the end of the log if the program has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.keeper.try_wait()? {
            None => Ok(()),
            Some(status) => Err(self.failure(status)),
        }
    }

    /// Waits until the program ends by itself.
    ///
    /// # Errors
    /// If it ends with anything but success; the text has the end of its log.
    pub(crate) fn finish(mut self) -> Result<()> {
        let status = self.keeper.wait()?;
        if status.success() { Ok(()) } else { Err(self.failure(status)) }
    }

    /// Returns the program's process id; `None` until it is known.
    pub(crate) fn pid(&self) -> Option<u32> {
        fs::read_to_string(&self.pid_file).ok()?.trim().parse().ok()
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// Tells the program to end, without waiting.
    pub(crate) fn dismiss(&mut self) {
        self.pipe = None;
    }

    fn failure(&self, status: ExitStatus) -> anyhow::Error {
        anyhow!("{} ended ({status}); the end of {}:\n{}", self.name, self.log.display(), tail(&self.log))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.dismiss();
        // If the keeper can't be waited for, nothing is left to do.
        drop(self.keeper.wait());
    }
}

/// Removes a folder when we are gone or when it is dropped, whichever is first; a file `keep` in the folder keeps it.
#[derive(Debug)]
pub(crate) struct Janitor {
    shell: Child,
    pipe: Option<ChildStdin>,
}

impl Janitor {
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        let mut command = shell(JANITOR);
        command.arg(folder).current_dir("/").stdout(Stdio::null()).stderr(Stdio::null());
        let (shell, pipe) = spawn(&mut command).context("start the process that removes the folder")?;
        Ok(Self { shell, pipe: Some(pipe) })
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        self.pipe = None;
        // As in `Kept`.
        drop(self.shell.wait());
    }
}

/// Returns the last lines of a log, or a text that says why there are none.
pub(crate) fn tail(log: &Path) -> String {
    match last_bytes(log) {
        Ok(text) if text.trim().is_empty() => "(empty)".to_owned(),
        Ok(text) => {
            let lines: Vec<&str> = text.lines().collect();
            let from = lines.len().saturating_sub(TAIL_LINES);
            lines.get(from..).unwrap_or_default().join("\n")
        }
        Err(error) => format!("({error})"),
    }
}

fn last_bytes(log: &Path) -> std::io::Result<String> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns a command of `sh` that runs a script; arguments that are added are the script's.
fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    // A group of its own: Ctrl-C in a terminal reaches us alone, and we end the rest in order.
    command.args(["-c", script, "capstan-keeper"]).stdin(Stdio::piped()).process_group(0);
    command
}

fn spawn(command: &mut Command) -> Result<(Child, ChildStdin)> {
    let mut child = command.spawn().context("start sh")?;
    let pipe = child.stdin.take().context("sh has no standard input")?;
    Ok((child, pipe))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::wait;

    fn job<'a>(folder: &'a Path, arguments: &'a [String]) -> Job<'a> {
        Job {
            name: "sleeper",
            program: Path::new("sh"),
            arguments,
            environment: &[],
            folder,
            log: folder.join("log"),
            pid_file: folder.join("pid"),
        }
    }

    fn script(text: &str) -> Vec<String> {
        vec!["-c".to_owned(), text.to_owned()]
    }

    #[test]
    fn a_program_that_fails_is_reported_with_the_end_of_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let arguments = script("echo first; echo second >&2; exit 3");
        let error = Kept::start(job(folder.path(), &arguments)).unwrap().finish().unwrap_err().to_string();
        let expected = format!(
            "sleeper ended (exit status: 3); the end of {}:\nfirst\nsecond",
            folder.path().join("log").display()
        );
        assert_eq!(error, expected);
    }

    #[test]
    fn a_program_that_is_missing_is_reported_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("no-such-program");
        let missing = Job { program: &program, ..job(folder.path(), &[]) };
        let error = Kept::start(missing).unwrap().finish().unwrap_err().to_string();
        assert!(error.contains("no-such-program") && error.contains("exit status: 127"), "{error}");
    }

    #[test]
    fn a_dropped_program_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let arguments = script("exec sleep 600");
        let mut kept = Kept::start(job(folder.path(), &arguments)).unwrap();
        let pid = wait::until(Duration::from_secs(10), "the process id", || kept.pid()).unwrap();
        kept.check().unwrap();
        assert!(is_running(pid));
        drop(kept);
        assert!(!is_running(pid));
    }

    fn is_running(pid: u32) -> bool {
        Command::new("kill").args(["-0", &pid.to_string()]).stderr(Stdio::null()).status().unwrap().success()
    }
}
