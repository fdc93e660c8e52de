//! Plays acts: does what a visitor would, tells what changes as it changes, and waits for what is expected of it.

use std::fs;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use bench::clock::Stopwatch;
use bench::daemon::Daemon;
use serde_json::Value;

use super::daemon;
use super::site::Site;
use super::workshop;
use super::world::{KINDS, Kind, PLUGIN, World};
use crate::interrupt;
use crate::process::{self, Finished, Process};
use crate::ui::{self, Ui, bold, cyan, dim, green, red, said};
use crate::workspace::Workspace;

/// How long nothing more is waited for once all is as expected: what comes late belongs to the act.
const SETTLE: Duration = Duration::from_millis(300);
/// How often a wait looks up when nothing happens.
const LOOK: Duration = Duration::from_millis(10);
/// How wide kinds and names are.
const SUBJECT: usize = 22;

/// Something that should come true, in words and as a question.
pub(super) type Expected<'a> = (&'static str, &'a dyn Fn(&World) -> bool);

/// What a watch said, and when: an object, and whether it is there.
type Event = (Duration, &'static Kind, Value, bool);

pub(super) struct Stage<'a> {
    ui: &'a Ui,
    site: &'a Site,
    daemon: &'a mut Daemon,
    /// Kept for their drop.
    _watches: Vec<Process>,
    events: Receiver<Result<Event>>,
    /// Since the watches were started.
    clock: Stopwatch,
    pub(super) world: World,
    pub(super) acts: usize,
    title: &'static str,
    command: Option<JoinHandle<Result<Finished>>>,
    /// The kind whose change starts the clock of the act.
    cause: &'static str,
    /// When it did.
    start: Option<Duration>,
}

impl<'a> Stage<'a> {
    pub(super) fn open(ui: &'a Ui, site: &'a Site, daemon: &'a mut Daemon) -> Result<Self> {
        let (clock, mut watches, mut world) = (Stopwatch::start(), Vec::new(), World::default());
        // More than happens while one line is written.
        let (sender, events) = mpsc::sync_channel(256);
        for kind in &KINDS {
            let path = format!("{}?watch=true&timeoutSeconds=86400", kind.path.replace("NS", &site.namespace));
            let mut command = site.kubectl(&["get", "--raw", &path]);
            let (reader, writer) = std::io::pipe()?;
            command.stdout(writer.try_clone()?).stderr(writer);
            watches.push(Process::start(command)?);
            let sender = sender.clone();
            thread::spawn(move || {
                process::each_line(reader, |line| {
                    let event = event(kind, clock.spent(), &line);
                    let event = event.with_context(|| format!("the watch of {}s said: {line}", kind.name));
                    sender.send(event).is_ok()
                });
                // Nobody listens any more at the end of the demo.
                drop(sender.send(Err(anyhow!("the watch of {}s has ended", kind.name))));
            });
        }
        world.take(&PLUGIN, daemon::plugin(daemon)?, true);
        let (acts, title, command, cause, start) = (0, "", None, "", None);
        Ok(Self { ui, site, daemon, _watches: watches, events, clock, world, acts, title, command, cause, start })
    }

    pub(super) fn act(&mut self, title: &'static str) {
        self.acts += 1;
        (self.title, self.start) = (title, None);
        self.ui.line(format!("\n{}", bold(&format!("{}  {title}", self.acts))));
    }

    /// Starts kubectl; when the object of the kind `cause` changes, the clock starts.
    pub(super) fn kubectl(&mut self, cause: &'static str, words: &[&str]) {
        let shown = self.site.shown(&process::typed(words));
        ui::uncut(format!("   {}", cyan(&format!("$ {shown}"))));
        let command = self.site.kubectl(words);
        self.command = Some(thread::spawn(move || process::run(command, &mut |_| {})));
        self.cause = cause;
    }

    /// Builds the sample from changed source, and puts it in the place of the one at work, which starts the clock.
    pub(super) fn swap(&mut self, workspace: &Workspace, component: &Path) -> Result<()> {
        let [place, before, after] = workshop::change(workspace)?;
        self.ui.line(format!("   {}", dim(&format!("{place}, in a copy:"))));
        ui::uncut(format!("   {}", red(&format!("- {before}"))));
        ui::uncut(format!("   {}", green(&format!("+ {after}"))));
        let new = component.with_file_name("new.wasm");
        self.ui.doing("build", |task| workshop::rebuild(task, workspace, &new))?;
        let folder = component.parent().unwrap_or(component).display();
        ui::uncut(format!("   {}{}", cyan("$ mv new.wasm webpage.wasm"), dim(&format!("   # in {folder}"))));
        self.start = Some(self.clock.spent());
        fs::rename(&new, component).with_context(|| format!("replace {}", component.display()))
    }

    /// Says that the daemon is the one that it was.
    pub(super) fn vouch(&mut self) -> Result<()> {
        self.daemon.check()?;
        let (id, up) = (self.daemon.pid(), self.daemon.started.spent());
        let words = format!("the daemon was not restarted: it is process {id} still, up for {}", said(up));
        self.ui.line(format!("   {} {words}", green("✓")));
        Ok(())
    }

    /// Waits until all of `soon` has come true, and then looks whether all of `still` holds. Fails if something does not
    /// within the limit, or when the daemon or kubectl does.
    pub(super) fn expect(&mut self, soon: &[Expected<'_>], still: &[Expected<'_>]) -> Result<()> {
        let came = self.wait(soon)?;
        let held = still.iter().map(|(_, holds)| holds(&self.world).then_some(None));
        let ends: Vec<_> = came.into_iter().map(|at| at.map(Some)).chain(held).collect();
        let mut unmet = Vec::new();
        for ((what, _), end) in soon.iter().chain(still).zip(ends) {
            let time = end.flatten().map(|at| format!("  {}", dim(&said(self.after(at)))));
            let mark = if end.is_some() { green("✓") } else { red("✗") };
            self.ui.line(format!("   {mark} {what}{}", time.unwrap_or_default()));
            unmet.extend(end.is_none().then_some(*what));
        }
        if !unmet.is_empty() {
            bail!("{}: not as expected within {}: {}", self.title, said(self.site.limit()), unmet.join("; "));
        }
        Ok(())
    }

    /// Returns when each came true, once all has settled, or when the limit has passed.
    fn wait(&mut self, soon: &[Expected<'_>]) -> Result<Vec<Option<Duration>>> {
        let (watch, mut settled, mut met) = (Stopwatch::start(), None, vec![None; soon.len()]);
        loop {
            interrupt::check()?;
            self.daemon.check()?;
            let event = match self.events.recv_timeout(LOOK) {
                Ok(event) => Some(event?),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => bail!("the watches have ended"),
            };
            let at = event.as_ref().map_or_else(|| self.clock.spent(), |(at, ..)| *at);
            // Before the event, which may follow from what the daemon has to say.
            let plugin = daemon::plugin(self.daemon)?;
            self.tell((at, &PLUGIN, plugin, true));
            if let Some(event) = event {
                self.tell(event);
            }
            for ((_, holds), met) in soon.iter().zip(&mut met) {
                // One that held and holds no more was only passing.
                *met = holds(&self.world).then(|| met.unwrap_or(at));
            }
            let is_over = self.has_run()? && self.start.is_some() && met.iter().all(Option::is_some);
            settled = is_over.then(|| settled.unwrap_or_else(Stopwatch::start));
            if settled.is_some_and(|since| since.spent() >= SETTLE) || watch.spent() >= self.site.limit() {
                return Ok(met);
            }
        }
    }

    /// Takes an event in, and tells what is new.
    fn tell(&mut self, (at, kind, object, is_there): Event) {
        let name = object.pointer("/metadata/name").or(object.get("name"));
        let subject = format!("{}/{}", kind.name, name.and_then(Value::as_str).unwrap_or_default());
        let Some((mark, news)) = self.world.take(kind, object, is_there) else { return };
        if self.cause == kind.name {
            self.start.get_or_insert(at);
        }
        let mark = match mark {
            '+' => green("+"),
            '-' => red("-"),
            _ => cyan("~"),
        };
        let time = dim(&format!("+{:.3} s", self.after(at).as_secs_f64()));
        self.ui.line(format!("   {time}  {mark} {subject:SUBJECT$} {}", dim(&news)));
    }

    /// Returns how long after the cause something was.
    fn after(&self, at: Duration) -> Duration {
        at.saturating_sub(self.start.unwrap_or(at))
    }

    /// Returns whether kubectl has ended; fails if it has.
    fn has_run(&mut self) -> Result<bool> {
        let Some(command) = self.command.take_if(|command| command.is_finished()) else {
            return Ok(self.command.is_none());
        };
        let Finished { status, output } =
            command.join().map_err(|_| anyhow!("the thread of kubectl has panicked"))??;
        if !status.success() {
            bail!("kubectl failed ({status}): {}", output.join("\n"));
        }
        Ok(true)
    }
}

/// Reads a line of a watch; none if it is not an event.
fn event(kind: &'static Kind, at: Duration, line: &str) -> Option<Event> {
    let mut line: Value = serde_json::from_str(line).ok()?;
    let is_there = match line.get("type")?.as_str()? {
        "ADDED" | "MODIFIED" => true,
        "DELETED" => false,
        _ => return None,
    };
    Some((at, kind, line.get_mut("object")?.take(), is_there))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_of_a_watch_is_an_event_and_an_error_is_not() {
        let table = [("ADDED", Some(true)), ("MODIFIED", Some(true)), ("DELETED", Some(false)), ("ERROR", None)];
        for (word, expected) in table {
            let line = json!({ "type": word, "object": { "a": 1 } }).to_string();
            let read = event(&KINDS[0], Duration::ZERO, &line);
            assert_eq!(
                read.map(|(_, _, object, is_there)| (object, is_there)),
                expected.map(|is| (json!({ "a": 1 }), is))
            );
        }
        assert!(event(&KINDS[0], Duration::ZERO, "Error from server (Forbidden)").is_none());
    }
}
