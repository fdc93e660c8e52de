//! Decides how a daemon with probes is set up, and waits for what it says while its component and its manifest are replaced.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

use super::Rounds;
use crate::clock::{Patience, pass};
use crate::daemon::Daemon;
use crate::diary::{Answer, Diary, Edition, Version};
use crate::load;
use crate::objects::{probe, probes_path};
use crate::stage::{DIARY, Stage};

const COMPONENT: &str = "probe.wasm";
/// How often the log is read, and for how long something in it is waited for.
const LISTEN: Patience = Patience::new(2, 60);
/// Without an answer for so long, the daemon has nothing left to do.
const QUIET: Duration = Duration::from_millis(500);

/// What a daemon runs.
#[derive(Clone, Copy)]
pub(super) struct Rig<'a> {
    /// The manifest's name, and the log's.
    pub(super) name: &'a str,
    pub(super) namespace: &'a str,
    /// What the manifest says of the plugin, in YAML's flow style.
    pub(super) plugin: &'a str,
    /// What it says of the controller.
    pub(super) controller: &'a str,
}

/// A daemon with probes, and what it has said.
pub(super) struct Show<'a> {
    stage: &'a Stage,
    rig: Rig<'a>,
    /// The component's two editions; the first one is at work.
    components: [(Edition, Vec<u8>); 2],
    /// What was asked for last.
    pub(super) version: Version,
    pub(super) daemon: Daemon,
    pub(super) diary: Diary,
}

/// What a daemon is changed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The other component, by a new file under the old name.
    Component,
    /// Another configuration, by a new manifest.
    Config,
}

// === impl Rig ===

impl<'a> Rig<'a> {
    /// Makes the namespace with so many primaries.
    pub(super) fn populate(&self, stage: &Stage, primaries: usize) -> Result<()> {
        stage.namespace(self.namespace)?;
        load::create(stage, &probes_path(self.namespace), primaries, probe)
    }

    /// Compiles both editions, starts a daemon and waits until each primary has been answered.
    pub(super) fn start(self, rounds: &Rounds<'_>, stage: &'a Stage, primaries: usize) -> Result<Show<'a>> {
        let path = &rounds.subject.probe;
        let probe = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        let components = [(Edition::First, Edition::First.of(&probe)?), (Edition::Second, Edition::Second.of(&probe)?)];
        let version = Version { edition: Edition::First, config: 1 };
        let manifest = stage.manifest(self.name, &self.manifest(version.config))?;
        // The one that it begins with comes last.
        for (_, component) in components.iter().rev() {
            stage.replace(COMPONENT, component)?;
            stage.check(&manifest)?;
        }
        let mut daemon = stage.start(&manifest, DIARY)?;
        let diary = Diary::open(&daemon.log)?;
        daemon.until_ready()?;
        let mut show = Show { stage, rig: self, components, version, daemon, diary };
        show.until_answered(0, primaries)?;
        Ok(show)
    }

    fn manifest(&self, config: u64) -> String {
        let Self { namespace, plugin, controller, .. } = self;
        format!(
            "\
apiVersion: capstan.dev/v1alpha1
kind: Operator
metadata: {{ name: probe }}
spec:
  plugins:
    probe: {{ component: {{ path: {COMPONENT} }}, config: {{ edition: {config} }}, limits: {{ log: 8MiB }}, {plugin} }}
  controllers:
    probe:
      plugin: probe
      primary: {{ apiVersion: test.capstan.dev/v1, kind: Probe }}
      namespaces: [{namespace}]
      {controller}
      workflow:
        dependents:
          answer: {{ apiVersion: v1, kind: ConfigMap, reconcilePrecondition: {{ export: answer }} }}
"
        )
    }
}

// === impl Show ===

impl Show<'_> {
    /// Replaces what runs by the next version, and returns when that was asked for.
    pub(super) fn change(&mut self, change: Change) -> Result<i64> {
        match change {
            Change::Component => {
                self.components.rotate_left(1);
                let [(edition, component), _] = &self.components;
                self.version.edition = *edition;
                self.stage.replace(COMPONENT, component)
            }
            Change::Config => {
                self.version.config += 1;
                let manifest = self.rig.manifest(self.version.config);
                let name = format!("{}.yaml", self.rig.name);
                self.stage.replace(&name, manifest.as_bytes())
            }
        }
    }

    /// Has another operator stand beside the one that is at work, in place of the one before.
    pub(super) fn beside(&self, operator: &str) -> Result<()> {
        let manifest = self.rig.manifest(self.version.config);
        let name = format!("{}.yaml", self.rig.name);
        self.stage.replace(&name, format!("{manifest}---\n{operator}").as_bytes()).map(drop)
    }

    /// Waits until this version is in force, and returns since when; the first one is 1.
    pub(super) fn until_placed(&mut self, number: usize) -> Result<i64> {
        self.listen(&format!("version {number} to be in force"), |diary| diary.placed.get(&number).copied())
    }

    /// Waits until so many primaries have been answered by the newest version, in answers after this one. Returns when the
    /// last of them was.
    pub(super) fn until_answered(&mut self, after: usize, primaries: usize) -> Result<i64> {
        let version = self.version;
        let (mut answered, mut read) = (BTreeSet::new(), after);
        self.listen("the new version to answer each primary", |diary| {
            let new = diary.answers.iter().skip(read);
            read = diary.answers.len();
            let mut last = None;
            for Answer { at, probe, .. } in new.filter(|answer| answer.version == version) {
                if answered.insert(probe.clone()) && answered.len() == primaries {
                    last = Some(*at);
                }
            }
            last
        })
    }

    /// Waits until there is nothing left to do.
    pub(super) fn until_quiet(&mut self) -> Result<()> {
        let mut before = None;
        let quiet = Patience { every: QUIET, ..LISTEN };
        quiet.until("the daemon to be quiet", || {
            self.diary.read()?;
            let now = self.diary.answers.len();
            Ok((before.replace(now) == Some(now)).then_some(()))
        })
    }

    pub(super) fn pass(&mut self, time: Duration) -> Result<()> {
        pass(time);
        self.diary.read()
    }

    fn listen<T>(&mut self, what: &str, mut look: impl FnMut(&Diary) -> Option<T>) -> Result<T> {
        let Self { daemon, diary, .. } = self;
        LISTEN.until(what, || {
            daemon.check()?;
            diary.read()?;
            Ok(look(diary))
        })
    }
}
