//! Plays one act: runs a command, tells what happens as it happens, and waits for what is expected of it.

use std::fmt::{self, Display, Formatter};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::clock::{Stopwatch, said};
use crate::demo::daemon::Daemon;
use crate::demo::kubectl::Kubectl;
use crate::demo::script::PAGE;
use crate::demo::watch::Watches;
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
    /// The arguments of kubectl.
    pub(crate) words: Vec<String>,
    /// The kind whose change starts the clock.
    pub(crate) cause: Kind,
    pub(crate) expected: Vec<Expected>,
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

/// Where acts are played.
pub(crate) struct Stage<'a> {
    ui: &'a Ui,
    kubectl: &'a Kubectl,
    watches: &'a Watches,
    daemon: &'a mut Daemon,
    limit: Duration,
    acts: usize,
    world: World,
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

// === impl Act ===

impl Act {
    /// Returns the command as a visitor would type it.
    fn shown(&self) -> String {
        let words = self.words.iter().map(|word| {
            if word.contains([' ', '"', '{']) {
                format!("'{word}'")
            } else {
                word.clone()
            }
        });
        words.collect::<Vec<_>>().join(" ")
    }
}

// === impl Expected ===

impl Expected {
    pub(crate) fn soon(what: &'static str, holds: impl Fn(&World) -> bool + 'static) -> Self {
        Self {
            what,
            when: When::Soon,
            holds: Box::new(holds),
        }
    }

    pub(crate) fn still(what: &'static str, holds: impl Fn(&World) -> bool + 'static) -> Self {
        Self {
            when: When::Still,
            ..Self::soon(what, holds)
        }
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
        self.start.is_some()
            && pairs.all(|(expected, met)| expected.when == When::Still || met.is_some())
    }

    /// Returns how long after the cause something was.
    fn after(&self, at: Duration) -> Duration {
        at.saturating_sub(self.start.unwrap_or(at))
    }

    fn unmet(&self, act: &Act) -> Vec<&'static str> {
        let pairs = act.expected.iter().zip(&self.met);
        pairs
            .filter(|(_, met)| met.is_none())
            .map(|(expected, _)| expected.what)
            .collect()
    }
}

// === impl Stage ===

impl<'a> Stage<'a> {
    pub(crate) fn new(
        ui: &'a Ui,
        kubectl: &'a Kubectl,
        watches: &'a Watches,
        daemon: &'a mut Daemon,
        limit: Duration,
    ) -> Self {
        Self {
            ui,
            kubectl,
            watches,
            daemon,
            limit,
            acts: 0,
            world: World::new(PAGE),
        }
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
    /// [`Unmet`] when something has not come true within the limit; or when the command fails, the daemon ends, or when
    /// interrupted.
    pub(crate) fn play(&mut self, act: &Act) -> Result<()> {
        self.acts += 1;
        ui::uncut(format!(
            "\n{}\n   {}",
            bold(&format!("{}  {}", self.acts, act.title)),
            cyan(&format!("$ {}", self.kubectl.shown(&act.shown()))),
        ));
        let mut scene = Scene {
            start: None,
            met: vec![None; act.expected.len()],
        };
        self.wait(act, &mut scene)?;
        for (expected, met) in act.expected.iter().zip(&scene.met) {
            let line = match (met, expected.when) {
                (Some(at), When::Soon) => {
                    let time = dim(&said(scene.after(*at)));
                    format!("   {} {}  {time}", green("✓"), expected.what)
                }
                (Some(_), When::Still) => format!("   {} {}", green("✓"), expected.what),
                (None, _) => format!("   {} {}", red("✗"), expected.what),
            };
            self.ui.line(line);
        }
        match scene.unmet(act) {
            what if what.is_empty() => Ok(()),
            what => Err(Unmet {
                title: act.title,
                what,
                limit: self.limit,
            }
            .into()),
        }
    }

    /// Returns when all has settled as expected, or when the limit has passed.
    fn wait(&mut self, act: &Act, scene: &mut Scene) -> Result<()> {
        let (mut reader, writer) = std::io::pipe()?;
        let mut command = self.kubectl.command(&act.words);
        command.stdout(Stdio::null()).stderr(writer);
        let mut process = Process::start(command)?;
        let watch = Stopwatch::start();
        let mut settled: Option<Stopwatch> = None;
        let mut ran = false;
        loop {
            interrupt::check()?;
            self.daemon.check()?;
            if let Some(event) = self.watches.next(LOOK)? {
                let at = event.at;
                self.tell(act, scene, event);
                scene.look(act, &self.world, at);
            }
            if !ran && let Some(status) = process.ended()? {
                if !status.success() {
                    let mut said = String::new();
                    std::io::Read::read_to_string(&mut reader, &mut said)?;
                    bail!("kubectl failed ({status}): {}", said.trim());
                }
                ran = true;
            }
            if !(ran && scene.is_over(act)) {
                settled = None;
            } else if settled.get_or_insert_with(Stopwatch::start).spent() >= SETTLE {
                return Ok(());
            }
            if watch.spent() >= self.limit {
                return Ok(());
            }
        }
    }

    fn tell(&mut self, act: &Act, scene: &mut Scene, event: Event) {
        let (at, kind) = (event.at, event.kind);
        let Some(Told {
            mark,
            subject,
            detail,
        }) = self.world.apply(event)
        else {
            return;
        };
        if kind == act.cause {
            scene.start.get_or_insert(at);
        }
        let mark = match mark {
            Mark::Came => green("+"),
            Mark::Changed => cyan("~"),
            Mark::Went => red("-"),
        };
        let time = dim(&format!("+{:.3} s", scene.after(at).as_secs_f64()));
        self.ui.line(format!(
            "   {time}  {mark} {subject:SUBJECT$} {}",
            dim(&detail)
        ));
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
            words: ["patch", "-p", r#"{"a": 1}"#].map(str::to_owned).to_vec(),
            cause: Kind::WebPage,
            expected: vec![
                Expected::soon("there is a page", |world| world.has(Kind::WebPage)),
                Expected::still("there is no Service", |world| !world.has(Kind::Service)),
            ],
        }
    }

    fn page(change: Change) -> Event {
        Event {
            at: Duration::ZERO,
            kind: Kind::WebPage,
            change,
            object: json!({ "metadata": { "name": "hello" } }),
        }
    }

    #[test]
    fn a_command_is_shown_as_it_can_be_typed() {
        assert_eq!(act().shown(), r#"patch -p '{"a": 1}'"#);
    }

    #[test]
    fn an_act_is_over_when_all_holds_that_should_come_and_the_first_moment_counts() {
        let act = act();
        let mut world = World::new("hello");
        let mut scene = Scene {
            start: Some(Duration::from_millis(10)),
            met: vec![None, None],
        };
        let mut seen = Vec::new();
        for (change, millis) in [(Change::Put, 20), (Change::Put, 30), (Change::Gone, 40)] {
            world.apply(page(change));
            scene.look(&act, &world, Duration::from_millis(millis));
            seen.push((scene.is_over(&act), scene.unmet(&act), scene.met[0]));
        }
        let first = Some(Duration::from_millis(20));
        let expected = vec![
            (true, vec![], first),
            (true, vec![], first),
            (false, vec!["there is a page"], None),
        ];
        assert_eq!(seen, expected);
        assert_eq!(
            scene.after(Duration::from_millis(25)),
            Duration::from_millis(15)
        );
    }

    #[test]
    fn what_was_not_met_is_said_with_its_act() {
        let unmet = Unmet {
            title: "Apply a page",
            what: vec!["a", "b"],
            limit: Duration::from_secs(20),
        };
        assert_eq!(
            unmet.to_string(),
            "  Apply a page (within 20 s)\n    a\n    b"
        );
    }
}
