//! Measures how long a change waits for its status, and a probe of liveness for its answer, while runs of other plugins compute
//! all the time.
//!
//! From just before the change is sent to when the API server gets the status: the audit log says when.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use serde_json::{Value, json};

use super::spread::{MEDIAN, MOST, P99, Spread};
use super::{Measure, Rounds, Span, number};
use crate::clock::{Patience, pass, wall};
use crate::daemon::Daemon;
use crate::load;
use crate::objects::{labelled_probe, probe_name, probes_path};
use crate::stage::Stage;

const NAMESPACE: &str = "neighbours";
const COMPONENT: &str = "neighbour.wasm";
/// How many primaries change, one after another.
const CHANGES: usize = 300;
/// So many of them warm the API server up, and do not count.
const WARM_UP: usize = 30;
/// The time from one change to the next.
const EVERY: Duration = Duration::from_millis(100);
/// The time from one probe of liveness to the next.
const PROBE: Duration = Duration::from_millis(20);
/// How many runs of a plugin compute at once.
const EACH: usize = 8;
/// How long runs are waited for.
const RUNS: Patience = Patience::new(20, 120);
/// How long the last status is waited for; what has not come then is lost.
const LAST: Patience = Patience::new(200, 60);

#[derive(Clone, Copy)]
struct Crowd {
    name: &'static str,
    plugins: usize,
    work: Work,
}

/// Who works for a crowd.
#[derive(Clone, Copy)]
enum Work {
    /// Its components.
    Guest,
    /// The daemon: it compares long lists.
    Host,
}

const ALONE: &str = "alone";

const CROWDS: [Crowd; 5] = [
    Crowd { name: ALONE, plugins: 0, work: Work::Guest },
    Crowd { name: "8 runs, one plugin", plugins: 1, work: Work::Guest },
    Crowd { name: "80 runs, 10 plugins", plugins: 10, work: Work::Guest },
    Crowd { name: "400 runs, 50 plugins", plugins: 50, work: Work::Guest },
    Crowd { name: "8 that compare, one plugin", plugins: 1, work: Work::Host },
];

/// How many entries the lists have that are compared.
const ENTRIES: usize = 5_000;

pub(super) fn measure(rounds: &mut Rounds<'_>, stage: &Stage) -> Result<()> {
    stage.replace(COMPONENT, &std::fs::read(&rounds.subject.probe)?)?;
    stage.namespace(NAMESPACE)?;
    load::create(stage, &probes_path(NAMESPACE), CHANGES, |number| victim(number, 0))?;
    let mut alone = None;
    for (number, crowd) in CROWDS.iter().enumerate() {
        rounds.tell(crowd.name);
        let spread = crowd.measure(rounds, stage, number + 1)?;
        let alone = *alone.get_or_insert(spread.at(P99));
        if crowd.plugins > 0 {
            let name = format!("{}: p99 / p99 alone", crowd.name);
            rounds.note(Measure::Neighbours, name, "", spread.at(P99) / alone);
        }
    }
    Ok(())
}

impl Crowd {
    fn measure(self, rounds: &mut Rounds<'_>, stage: &Stage, event: usize) -> Result<Spread> {
        let mut daemon = stage.ready("neighbours", &self.manifest(event))?;
        started(&mut daemon, CHANGES)?;
        load::create(stage, &probes_path(NAMESPACE), self.plugins * EACH, |number| self.work.primary(number, event))?;
        started(&mut daemon, CHANGES + self.plugins * EACH)?;
        let span = Span::begin(stage, Some(&daemon))?;
        let (sent, probed) = changed(stage, &daemon, event)?;
        let times = LAST.until("each status", || {
            daemon.check()?;
            let got = stage.statuses(span.mark)?;
            let counted = sent.iter().skip(WARM_UP);
            let times = counted.map(|(name, at)| Some(got.get(name)? - at));
            Ok(times.collect::<Option<Vec<i64>>>())
        })?;
        let (spread, probed) = (Spread::of_micros(times), Spread::of_micros(probed));
        let mut note = |what: &str, unit, value| {
            rounds.note(Measure::Neighbours, format!("{}: {what}", self.name), unit, value);
        };
        for rank in [MEDIAN, P99, MOST] {
            note(rank.0, "ms", spread.at(rank));
        }
        note("/livez, p99", "ms", probed.at(P99));
        note("/livez, most", "ms", probed.at(MOST));
        let ([_, peak], [_, _, others]) = (daemon.memory()?, span.cpu(&daemon)?);
        note("peak RSS", "MiB", peak);
        note("CPU of others", "s", others);
        daemon.stop()?;
        Ok(spread)
    }

    fn manifest(self, event: usize) -> String {
        let operator = |name: &str, selector: &str| {
            format!(
                "\
apiVersion: capstan.dev/v1alpha1
kind: Operator
metadata: {{ name: {name} }}
spec:
  plugins:
    probe: {{ component: {{ path: {COMPONENT} }}, limits: {{ timeout: 5m, concurrency: {EACH} }} }}
  controllers:
    {name}:
      plugin: probe
      primary: {{ apiVersion: test.capstan.dev/v1, kind: Probe }}
      namespaces: [{NAMESPACE}]
      labelSelector: {selector}
      concurrency: {EACH}
"
            )
        };
        let crowd = (0..self.plugins).map(|plugin| {
            let name = format!("spinner-{plugin}");
            operator(&name, &format!("crowd={event}-{plugin}"))
        });
        let operators: Vec<String> = [operator("victim", "crowd=none")].into_iter().chain(crowd).collect();
        operators.join("---\n")
    }
}

/// Changes each primary once, and returns when, by name; with how long probes of liveness took meanwhile, in microseconds.
fn changed(stage: &Stage, daemon: &Daemon, event: usize) -> Result<(BTreeMap<String, i64>, Vec<i64>)> {
    let stop = AtomicBool::new(false);
    let send = |api: &cluster::Api, number: usize| {
        let (name, at) = (probe_name(number), wall());
        let path = format!("{}/{name}", probes_path(NAMESPACE));
        api.merge(&path, &json!({ "spec": spec(event) }))?;
        Ok((name, at))
    };
    thread::scope(|scope| {
        let probes = scope.spawn(|| {
            let mut times = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                pass(PROBE);
                times.push(i64::try_from(daemon.livez()?.as_micros())?);
            }
            Ok(times)
        });
        let sent = load::pace(stage, CHANGES, EVERY, &stop, send);
        stop.store(true, Ordering::Relaxed);
        let panicked = || Err(anyhow!("the thread that asks for liveness has panicked"));
        let probed = probes.join().unwrap_or_else(|_| panicked());
        Ok((sent?.into_iter().collect(), probed?))
    })
}

/// Waits until so many runs have begun since the daemon's start.
fn started(daemon: &mut Daemon, runs: usize) -> Result<()> {
    RUNS.until("runs to begin", || {
        daemon.check()?;
        Ok((daemon.runs("started")? >= number(runs)).then_some(()))
    })
}

fn spec(event: usize) -> Value {
    json!({ "reconcile": { "status": { "event": event } } })
}

fn victim(number: usize, event: usize) -> Value {
    labelled_probe(&probe_name(number), "none", &spec(event))
}

impl Work {
    /// Returns a primary whose runs compute for minutes, or again and again.
    fn primary(self, number: usize, event: usize) -> Value {
        let spec = match self {
            Self::Guest => json!({ "reconcile": { "do": [{ "busyMs": 240_000 }] } }),
            Self::Host => {
                let list = |from: usize| json!({ "spec": (from..from + ENTRIES).map(|n| json!({ "n": n })).collect::<Vec<_>>() });
                let compare = json!({ "by": "generic", "actual": list(0), "desired": list(1) });
                json!({ "reconcile": { "do": [{ "compare": compare }], "reschedule": 0 } })
            }
        };
        labelled_probe(&format!("spinner-{event}-{number}"), &format!("{event}-{}", number / EACH), &spec)
    }
}
