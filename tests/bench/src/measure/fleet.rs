//! Measures the start of many operators that share few components of a registry: each is to be pulled once, and compiled once.

use std::fs;
use std::time::Duration;

use anyhow::Result;

use super::{Measure, Rounds, Span, number};
use crate::clock::{Patience, pass};
use crate::registry::{Registry, numbered};
use crate::stage::{Stage, WRONG};

const OPERATORS: usize = 100;
const COMPONENTS: usize = 20;
/// How long a daemon is left alone before its memory is read.
const REST: Duration = Duration::from_secs(5);
/// How long all of them may take to be ready.
const ALL: Patience = Patience::new(50, 900);
/// What is 1 for each controller that runs with all that it needs.
const READY: &str = "capstan_controller_ready";
/// What counts the components that were compiled.
const COMPILED: &str = "capstan_components_compiled_total";

pub(super) fn measure(rounds: &mut Rounds<'_>, stage: &Stage) -> Result<()> {
    rounds.tell("fleet: pushing components");
    let registry = Registry::start(stage, "fleet-registry")?;
    let probe = fs::read(&rounds.subject.probe)?;
    for component in 0..COMPONENTS {
        registry.push(&repository(component), &numbered(&probe, component))?;
    }
    let operators: Vec<_> = (0..OPERATORS).map(|at| operator(at, &registry)).collect();
    let manifest = stage.manifest("fleet", &operators.join("---\n"))?;
    stage.forget_code()?;
    for name in ["cold", "warm"] {
        rounds.tell(&format!("fleet: {name} start"));
        let before = registry.pulls()?;
        let span = Span::begin(stage, None)?;
        let mut daemon = stage.start(&manifest, WRONG)?;
        // `/readyz` waits a minute at most for what is compiled.
        let ready = ALL.until("all operators to be ready", || {
            daemon.check()?;
            let are_ready = daemon.metric(READY).is_ok_and(|ready| ready >= number(OPERATORS));
            Ok(are_ready.then(|| daemon.started.spent()))
        })?;
        let compiled = daemon.metric(COMPILED)?;
        let pulls = registry.pulls()?;
        let new = pulls.iter().map(|(digest, count)| count - before.get(digest).copied().unwrap_or_default());
        let new: Vec<usize> = new.collect();
        pass(REST);
        let [pss, peak] = daemon.memory()?;
        let [cpu, _, others] = span.cpu(&daemon)?;
        let mut note = |what: &str, unit, value| rounds.note(Measure::Fleet, format!("{name}: {what}"), unit, value);
        note("start to all ready", "s", ready.as_secs_f64());
        note("pulls", "", number(new.iter().sum()));
        note("pulls of a component, most", "", number(new.iter().copied().max().unwrap_or_default()));
        note("compiled", "", compiled);
        note("operator CPU", "s", cpu);
        note("CPU of others", "s", others);
        note("Pss", "MiB", pss);
        note("peak RSS", "MiB", peak);
        daemon.stop()?;
    }
    Ok(())
}

fn repository(component: usize) -> String {
    format!("fleet/{component:02}")
}

/// Returns one of the operators: those that share a component begin at the same moment.
fn operator(at: usize, registry: &Registry<'_>) -> String {
    let reference = registry.reference(&repository(at * COMPONENTS / OPERATORS));
    format!(
        "\
apiVersion: capstan.dev/v1alpha1
kind: Operator
metadata: {{ name: many-{at:03} }}
spec:
  plugins:
    probe: {{ component: {{ oci: \"{reference}\", insecure: true }} }}
  controllers:
    many-{at:03}:
      plugin: probe
      primary: {{ apiVersion: test.capstan.dev/v1, kind: Probe }}
      labelSelector: crowd=many-{at}
"
    )
}
