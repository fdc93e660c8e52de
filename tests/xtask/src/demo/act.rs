//! Plays one act: does what it is about, tells what happens as it happens, and waits for what is expected of it.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::io::{PipeReader, Read};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::clock::{Stopwatch, said};
use crate::demo::PLUGIN;
use crate::demo::daemon::Daemon;
use crate::demo::kubectl::Kubectl;
use crate::demo::script::PAGE;
use crate::demo::watch::Watches;
use crate::demo::workshop::Workshop;
use crate::demo::world::{Event, Kind, Mark, Told, World};
use crate::interrupt;
use crate::process::Process;
use crate::ui::{self, Ui, bold, cyan, dim, green, red};

/// How long nothing more is waited for once all is as expected: what comes late belongs to the act.
const SETTLE: Duration = Duration::from_millis(300);
/// How often a wait looks up when nothing happens.
const LOOK: Duration = Duration::from_millis(10);
/// How wide kinds and names are.
const SUBJECT: usize = 22;

/// What is done, and what is expected of it.
pub(crate) struct Act {
    pub(crate) title: &'static str,
    pub(crate) deed: Deed,
    pub(crate) expected: Vec<Expected>,
}

/// What is done.
#[derive(Clone, Debug)]
pub(crate) enum Deed {
    /// kubectl is run.
    Kubectl {
        /// Its arguments.
        words: Vec<String>,
        /// The kind whose change starts the clock.
        cause: Kind,
    },
    /// The sample is built from changed source, and put in the place of the one at work, which starts the clock.
    Swap,
}

/// Something that should come true.
pub(crate) struct Expected {
    pub(crate) what: &'static str,
    pub(crate) when: When,
    pub(crate) holds: Box<dyn Fn(&World) -> bool>,
}

/// When something should be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// From some moment on; the moment is told.
    Soon,
    /// When all else has come true.
    Still,
}

/// What has not come true.
#[derive(Debug, thiserror::Error)]
pub(crate) struct Unmet {
    title: &'static str,
    what: Vec<&'static str>,
    limit: Duration,
}

/// What there is on a stage, beside the daemon.
#[derive(Clone, Copy)]
pub(crate) struct Props<'a> {
    pub(crate) ui: &'a Ui,
    pub(crate) kubectl: &'a Kubectl,
    pub(crate) watches: &'a Watches,
    pub(crate) workshop: &'a Workshop<'a>,
    /// The file that the daemon has the component from.
    pub(crate) component: &'a Path,
    /// How long the operator may take for what it does.
    pub(crate) limit: Duration,
}

/// Where acts are played.
pub(crate) struct Stage<'a> {
    props: Props<'a>,
    daemon: &'a mut Daemon,
    acts: usize,
    world: World,
}

/// A command of kubectl.
struct Command {
    process: Process,
    /// What it says of errors.
    errors: PipeReader,
    has_ended: bool,
}

/// An act under way.
struct Scene {
    /// When the cause was seen.
    start: Option<Duration>,
    /// When each expectation was first met.
    met: Vec<Option<Duration>>,
}

impl Display for Unmet {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "  {} (within {})", self.title, said(self.limit))?;
        for what in &self.what {
            write!(formatter, "\n    {what}")?;
        }
        Ok(())
    }
}

/// Returns the words of a command as a visitor would type them.
fn typed(words: &[String]) -> String {
    let words =
        words.iter().map(|word| if word.contains([' ', '"', '{']) { format!("'{word}'") } else { word.clone() });
    words.collect::<Vec<_>>().join(" ")
}

// === impl Command ===

impl Command {
    fn start(mut command: std::process::Command) -> Result<Self> {
        let (errors, writer) = std::io::pipe()?;
        command.stdout(Stdio::null()).stderr(writer);
        Ok(Self { process: Process::start(command)?, errors, has_ended: false })
    }

    /// Returns whether it has ended.
    ///
    /// # Errors
    /// When it has failed, with what it says.
    fn has_ended(&mut self) -> Result<bool> {
        if !self.has_ended
            && let Some(status) = self.process.ended()?
        {
            if !status.success() {
                let mut said = String::new();
                self.errors.read_to_string(&mut said)?;
                bail!("kubectl failed ({status}): {}", said.trim());
            }
            self.has_ended = true;
        }
        Ok(self.has_ended)
    }
}

// === impl Expected ===

impl Expected {
    pub(crate) fn soon(what: &'static str, holds: impl Fn(&World) -> bool + 'static) -> Self {
        Self { what, when: When::Soon, holds: Box::new(holds) }
    }

    pub(crate) fn still(what: &'static str, holds: impl Fn(&World) -> bool + 'static) -> Self {
        Self { when: When::Still, ..Self::soon(what, holds) }
    }
}

// === impl Scene ===

impl Scene {
    /// Notes what is met now.
    fn look(&mut self, act: &Act, world: &World, at: Duration) {
        for (expected, met) in act.expected.iter().zip(&mut self.met) {
            // One that held and holds no more was only passing.
            *met = (expected.holds)(world).then(|| met.unwrap_or(at));
        }
    }

    /// Returns whether all has come true that has a moment.
    fn is_over(&self, act: &Act) -> bool {
        let mut pairs = act.expected.iter().zip(&self.met);
        self.start.is_some() && pairs.all(|(expected, met)| expected.when == When::Still || met.is_some())
    }

    /// Returns how long after the cause something was.
    fn after(&self, at: Duration) -> Duration {
        at.saturating_sub(self.start.unwrap_or(at))
    }

    fn unmet(&self, act: &Act) -> Vec<&'static str> {
        let pairs = act.expected.iter().zip(&self.met);
        pairs.filter(|(_, met)| met.is_none()).map(|(expected, _)| expected.what).collect()
    }
}

// === impl Stage ===

impl<'a> Stage<'a> {
    pub(crate) fn new(props: Props<'a>, daemon: &'a mut Daemon) -> Self {
        Self { props, daemon, acts: 0, world: World::new(PAGE) }
    }

    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    /// Returns how many acts have been played.
    pub(crate) fn acts(&self) -> usize {
        self.acts
    }

    /// Plays an act.
    ///
    /// # Errors
    /// [`Unmet`] when something has not come true within the limit; or when the deed fails, the daemon ends, or when
    /// interrupted.
    pub(crate) fn play(&mut self, act: &Act) -> Result<()> {
        let Props { ui, limit, .. } = self.props;
        self.acts += 1;
        let title = bold(&format!("{}  {}", self.acts, act.title));
        ui.line(format!("\n{title}"));
        let mut scene = Scene { start: None, met: vec![None; act.expected.len()] };
        match &act.deed {
            Deed::Kubectl { words, .. } => {
                let command = self.begin(words)?;
                self.wait(act, &mut scene, Some(command))?;
            }
            Deed::Swap => {
                self.swap(&mut scene)?;
                self.wait(act, &mut scene, None)?;
            }
        }
        for (expected, met) in act.expected.iter().zip(&scene.met) {
            let line = match (met, expected.when) {
                (Some(at), When::Soon) => {
                    let time = dim(&said(scene.after(*at)));
                    format!("   {} {}  {time}", green("✓"), expected.what)
                }
                (Some(_), When::Still) => format!("   {} {}", green("✓"), expected.what),
                (None, _) => format!("   {} {}", red("✗"), expected.what),
            };
            ui.line(line);
        }
        match act.deed {
            Deed::Swap => self.vouch()?,
            Deed::Kubectl { .. } => {}
        }
        match scene.unmet(act) {
            what if what.is_empty() => Ok(()),
            what => Err(Unmet { title: act.title, what, limit }.into()),
        }
    }

    /// Starts kubectl.
    fn begin(&self, words: &[String]) -> Result<Command> {
        let kubectl = self.props.kubectl;
        let shown = cyan(&format!("$ {}", kubectl.shown(&typed(words))));
        ui::uncut(format!("   {shown}"));
        Command::start(kubectl.command(words))
    }

    /// Builds the sample from changed source, and puts it in the place of the one at work.
    fn swap(&mut self, scene: &mut Scene) -> Result<()> {
        let Props { ui, watches, workshop, component, .. } = self.props;
        // First of all: a daemon that can't do it says so here.
        self.world.learn(self.daemon.plugin(PLUGIN)?);
        let (place, edited) = workshop.change();
        ui.line(format!("   {}", dim(&format!("{place}, in a copy:"))));
        ui::uncut(format!("   {}", red(&format!("- {}", edited.before))));
        ui::uncut(format!("   {}", green(&format!("+ {}", edited.after))));
        let new = component.with_file_name("new.wasm");
        ui.doing("build", |task| workshop.rebuild(task, &new))?;
        let folder = component.parent().unwrap_or(component).display();
        let command = cyan(&format!("$ mv new.wasm {PLUGIN}.wasm"));
        ui::uncut(format!("   {command}{}", dim(&format!("   # in {folder}"))));
        scene.start = Some(watches.now());
        fs::rename(&new, component).with_context(|| format!("replace {}", component.display()))
    }

    /// Says that the daemon is the one that it was.
    fn vouch(&mut self) -> Result<()> {
        self.daemon.check()?;
        let (id, up) = (self.daemon.id(), said(self.daemon.up()));
        let mark = green("✓");
        self.props.ui.line(format!("   {mark} the daemon was not restarted: it is process {id} still, up for {up}"));
        Ok(())
    }

    /// Returns when all has settled as expected, or when the limit has passed.
    fn wait(&mut self, act: &Act, scene: &mut Scene, mut command: Option<Command>) -> Result<()> {
        let watch = Stopwatch::start();
        let mut settled: Option<Stopwatch> = None;
        loop {
            interrupt::check()?;
            self.daemon.check()?;
            let watches = self.props.watches;
            let event = watches.next(LOOK)?;
            let at = event.as_ref().map_or_else(|| watches.now(), |event| event.at);
            match act.deed {
                // Before the event is told, as it may follow from what the daemon has to say.
                Deed::Swap => self.ask(act, scene, at)?,
                Deed::Kubectl { .. } => {}
            }
            if let Some(event) = event {
                self.take_in(act, scene, event);
                scene.look(act, &self.world, at);
            }
            let ran = match &mut command {
                Some(command) => command.has_ended()?,
                None => true,
            };
            if !(ran && scene.is_over(act)) {
                settled = None;
            } else if settled.get_or_insert_with(Stopwatch::start).spent() >= SETTLE {
                return Ok(());
            }
            if watch.spent() >= self.props.limit {
                return Ok(());
            }
        }
    }

    /// Asks the daemon for the plugin; what is new about it is told as of `at`.
    fn ask(&mut self, act: &Act, scene: &mut Scene, at: Duration) -> Result<()> {
        let plugin = self.daemon.plugin(PLUGIN)?;
        if let Some(problem) = &plugin.problem {
            bail!("the daemon does not take the new version: {problem}");
        }
        if let Some(told) = self.world.learn(plugin) {
            self.tell(scene, at, told);
            scene.look(act, &self.world, at);
        }
        Ok(())
    }

    fn take_in(&mut self, act: &Act, scene: &mut Scene, event: Event) {
        let (at, kind) = (event.at, event.kind);
        let Some(told) = self.world.apply(event) else {
            return;
        };
        match act.deed {
            Deed::Kubectl { cause, .. } if cause == kind => {
                scene.start.get_or_insert(at);
            }
            Deed::Kubectl { .. } | Deed::Swap => {}
        }
        self.tell(scene, at, told);
    }

    fn tell(&self, scene: &Scene, at: Duration, told: Told) {
        let Told { mark, subject, detail } = told;
        let mark = match mark {
            Mark::Came => green("+"),
            Mark::Changed => cyan("~"),
            Mark::Went => red("-"),
        };
        let time = dim(&format!("+{:.3} s", scene.after(at).as_secs_f64()));
        self.props.ui.line(format!("   {time}  {mark} {subject:SUBJECT$} {}", dim(&detail)));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::demo::world::Change;

    fn act() -> Act {
        Act {
            title: "a title",
            deed: Deed::Swap,
            expected: vec![
                Expected::soon("there is a page", |world| world.has(Kind::WebPage)),
                Expected::still("there is no Service", |world| !world.has(Kind::Service)),
            ],
        }
    }

    fn page(change: Change) -> Event {
        Event { at: Duration::ZERO, kind: Kind::WebPage, change, object: json!({ "metadata": { "name": "hello" } }) }
    }

    #[test]
    fn a_command_is_shown_as_it_can_be_typed() {
        let words = ["patch", "-p", r#"{"a": 1}"#].map(str::to_owned);
        assert_eq!(typed(&words), r#"patch -p '{"a": 1}'"#);
    }

    #[test]
    fn an_act_is_over_when_all_holds_that_should_come_and_the_first_moment_counts() {
        let act = act();
        let mut world = World::new("hello");
        let mut scene = Scene { start: Some(Duration::from_millis(10)), met: vec![None, None] };
        let mut seen = Vec::new();
        for (change, millis) in [(Change::Put, 20), (Change::Put, 30), (Change::Gone, 40)] {
            world.apply(page(change));
            scene.look(&act, &world, Duration::from_millis(millis));
            seen.push((scene.is_over(&act), scene.unmet(&act), scene.met[0]));
        }
        let first = Some(Duration::from_millis(20));
        let expected = vec![(true, vec![], first), (true, vec![], first), (false, vec!["there is a page"], None)];
        assert_eq!(seen, expected);
        assert_eq!(scene.after(Duration::from_millis(25)), Duration::from_millis(15));
    }

    #[test]
    fn what_was_not_met_is_said_with_its_act() {
        let unmet = Unmet { title: "Apply a page", what: vec!["a", "b"], limit: Duration::from_secs(20) };
        assert_eq!(unmet.to_string(), "  Apply a page (within 20 s)\n    a\n    b");
    }
}
