//! Measures how long it takes from a push to a tag that is followed until the new version is in force.

use std::fs;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::spread::{MEDIAN, MOST, Spread};
use super::{Measure, Rounds, Span};
use crate::clock::{Patience, pass, wall};
use crate::diary::Diary;
use crate::registry::{Registry, numbered};
use crate::stage::{Stage, Talk};

/// How often it is pushed to the tag.
const PUSHES: usize = 20;
/// How often the log is read, and for how long something in it is waited for.
const LISTEN: Patience = Patience::new(2, 120);
/// From one version in force to the next push: no multiple of the interval, so that pushes come at all times between two questions.
const PAUSE: Duration = Duration::from_millis(1370);
/// Which versions come into force, and how long loading them took.
pub(super) const NEWS: Talk = ["json", "warn,capstan::supervisor=info,capstan::plugin::loader=info"];
const MICROS: f64 = 1e6;

pub(super) fn measure(rounds: &mut Rounds<'_>, stage: &Stage) -> Result<()> {
    rounds.tell("follow");
    let registry = Registry::start(stage, "follow-registry")?;
    let probe = fs::read(&rounds.subject.probe)?;
    registry.push("probe", &numbered(&probe, 0))?;
    let manifest = stage.manifest("follow", &operator("follow", &registry.reference("probe")))?;
    let mut daemon = stage.start(&manifest, NEWS)?;
    daemon.until_ready()?;
    let mut diary = Diary::open(&daemon.log)?;
    let span = Span::begin(stage, Some(&daemon))?;
    let (mut pushes, mut from_begin, mut from_end) = (Vec::new(), Vec::new(), Vec::new());
    for push in 1..=PUSHES {
        pass(PAUSE);
        let begun = wall();
        registry.push("probe", &numbered(&probe, push))?;
        let pushed = wall();
        let placed = LISTEN.until("the new version to be in force", || {
            daemon.check()?;
            diary.read()?;
            Ok(diary.placed.get(&(push + 1)).copied())
        })?;
        pushes.push(pushed - begun);
        from_begin.push(placed - begun);
        from_end.push(placed - pushed);
    }
    let loads: Vec<i64> = loads(&fs::read_to_string(&daemon.log)?).into_iter().skip(1).collect();
    let apart = from_end.iter().zip(&loads).map(|(all, load)| all - load).collect();
    for (name, times) in [
        ("`capstan push`", pushes),
        ("its start to in force", from_begin),
        ("its end to in force", from_end),
        ("of which compiled and loaded", loads),
        ("its end to in force, without that", apart),
    ] {
        rounds.spread(Measure::Follow, name, &Spread::of_micros(times), &[MEDIAN, MOST]);
    }
    span.used(rounds, Measure::Follow, &daemon)?;
    daemon.stop()
}

/// Returns an operator whose component is followed, and whose primaries nobody makes.
fn operator(name: &str, reference: &str) -> String {
    format!(
        "\
apiVersion: capstan.dev/v1alpha1
kind: Operator
metadata: {{ name: {name} }}
spec:
  plugins:
    probe: {{ component: {{ oci: \"{reference}\", insecure: true, interval: 1s }} }}
  controllers:
    {name}:
      plugin: probe
      primary: {{ apiVersion: test.capstan.dev/v1, kind: Probe }}
      labelSelector: crowd={name}
"
    )
}

/// Returns how long each component took to be compiled and loaded, in microseconds, in the order of the log.
fn loads(log: &str) -> Vec<i64> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let loaded = lines.filter(|line| line.get("message").is_some_and(|message| message == "loaded"));
    loaded.filter_map(|line| micros(line.get("took")?.as_str()?)).collect()
}

/// Returns the microseconds of a time as Rust shows it.
fn micros(text: &str) -> Option<i64> {
    let units = [("ms", 1e3), ("µs", 1.0), ("ns", 1e-3), ("s", MICROS)];
    let (number, unit) = units.iter().find_map(|(unit, micros)| Some((text.strip_suffix(unit)?, micros)))?;
    let number: f64 = number.parse().ok()?;
    #[expect(clippy::cast_possible_truncation, reason = "times here are far below 2^52")]
    Some((number * unit) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_loading_took_is_read_in_each_unit() {
        let line = |took: &str| format!("{{\"message\":\"loaded\",\"took\":\"{took}\"}}\n");
        let log = ["1.5s", "99.29ms", "53µs"].map(line).concat() + "{\"message\":\"other\",\"took\":\"1s\"}\n";
        assert_eq!(loads(&log), [1_500_000, 99_290, 53]);
    }
}
