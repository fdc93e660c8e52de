//! Measures how long a change waits for its run, while another operator lists thousands of objects again and again and an export of the
//! component says to whom others belong.
//!
//! From when the API server answers the change to what the component says in the daemon's log: a watch has the event at about the same time.
//! From when the change is sent, it is the server's time as well.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use serde_json::{Value, json};

use super::probes::{Rig, Show};
use super::spread::{MEDIAN, MOST, P99, Spread};
use super::{Measure, Rounds, Span, number};
use crate::clock::{Patience, Stopwatch, wall};
use crate::load;
use crate::objects::{html, labelled_probe, probe_name, probe_spec, probes_path};
use crate::stage::Stage;

const NAMESPACE: &str = "lists";
/// The namespace of what is listed.
const LISTED: &str = "listed";
const RIG: Rig<'static> =
    Rig { name: "lists", namespace: NAMESPACE, plugin: "onSwap: nothing", controller: CONTROLLER };
/// The probes of another crowd belong to the primary that the component names.
const CONTROLLER: &str = "labelSelector: crowd=none
      sources:
        mapped:
          informer: { apiVersion: test.capstan.dev/v1, kind: Probe, labelSelector: crowd=mapped, mapper: { export: lead } }";
/// The time from one change of a primary to the next.
const EVERY: Duration = Duration::from_millis(2);
/// The time from one change of what is mapped to the next.
const MAPPED_EVERY: Duration = Duration::from_millis(20);
/// How many objects are mapped.
const MAPPED: usize = 100;
/// How often all is listed, and how long each time lasts.
const TIMES: usize = 5;
const PAUSE: Duration = Duration::from_secs(3);
/// How often the last answers are looked for, and for how long.
const LAST: Patience = Patience::new(50, 20);
/// Changes of the two parts are numbered apart.
const APART: usize = 1_000_000;

struct Sent {
    /// When the request was begun, and when it was answered.
    at: [i64; 2],
    probe: String,
    event: usize,
}

pub(super) fn measure(rounds: &mut Rounds<'_>, stage: &Stage) -> Result<()> {
    rounds.tell("lists: creating what is listed");
    stage.namespace(LISTED)?;
    load::create(
        stage,
        &format!("/api/v1/namespaces/{LISTED}/configmaps"),
        rounds.sizes.listed,
        |number| json!({ "metadata": { "name": format!("map-{number:05}") }, "data": { "html": html(number, 0) } }),
    )?;
    RIG.populate(stage, rounds.sizes.pages)?;
    load::create(stage, &probes_path(NAMESPACE), MAPPED, |number| {
        labelled_probe(&mapped_name(number), "mapped", &mapped_spec(number, 0))
    })?;
    let mut show = RIG.start(rounds, stage, rounds.sizes.pages)?;
    for (part, (name, times)) in [("alone", 0), ("beside lists", TIMES)].into_iter().enumerate() {
        rounds.tell(&format!("lists: {name}"));
        show.until_quiet()?;
        show.diary.answers.clear();
        let span = Span::begin(stage, Some(&show.daemon))?;
        let watch = Stopwatch::start();
        let sent = record(rounds.sizes.pages, stage, &mut show, ((part + 1) * APART, times))?;
        let seconds = watch.spent().as_secs_f64();
        await_answers(&mut show, &sent)?;
        let [all, own] = waits(&sent, &show);
        for (what, spread) in [("change answered to run", own), ("change sent to run", all)] {
            rounds.spread(Measure::Lists, &format!("{name}: {what}"), &spread, &[MEDIAN, P99, MOST]);
        }
        let requests = stage.requests(span.mark)?;
        let lists = requests.iter().filter(|(request, _)| request.ends_with(" configmaps")).map(|(_, count)| *count);
        let [cpu, _, others] = span.cpu(&show.daemon)?;
        let [_, peak] = show.daemon.memory()?;
        let mut note = |what: &str, unit, value| rounds.note(Measure::Lists, format!("{name}: {what}"), unit, value);
        note("changes a second", "", number(sent.len()) / seconds);
        note("lost runs", "", number(unanswered(&sent, &show)));
        note("requests for lists", "", number(lists.sum()));
        note("operator CPU", "s", cpu);
        note("CPU of others", "s", others);
        note("peak RSS", "MiB", peak);
    }
    show.daemon.stop()
}

/// Sends changes, numbered from `base` on, while all is listed so many `times`.
fn record(primaries: usize, stage: &Stage, show: &mut Show<'_>, (base, times): (usize, usize)) -> Result<Vec<Sent>> {
    let stop = AtomicBool::new(false);
    let send = |api: &cluster::Api, number: usize| {
        let (name, event, begun) = (probe_name(number % primaries), base + number, wall());
        api.merge(&format!("{}/{name}", probes_path(NAMESPACE)), &json!({ "spec": probe_spec(event) }))?;
        Ok(Sent { at: [begun, wall()], probe: format!("{NAMESPACE}/{name}"), event })
    };
    let send_mapped = |api: &cluster::Api, number: usize| {
        let name = mapped_name(number % MAPPED);
        api.merge(
            &format!("{}/{name}", probes_path(NAMESPACE)),
            &json!({ "spec": mapped_spec(number, base + number) }),
        )?;
        Ok(())
    };
    let panicked = || anyhow!("a thread that sends changes has panicked");
    thread::scope(|scope| {
        let changes = scope.spawn(|| load::pace(stage, usize::MAX, EVERY, &stop, send));
        let mapped = scope.spawn(|| load::pace(stage, usize::MAX, MAPPED_EVERY, &stop, send_mapped));
        let listed = list(show, times, &stop);
        stop.store(true, Ordering::Relaxed);
        let (changes, mapped) = (changes.join(), mapped.join());
        listed?;
        mapped.map_err(|_| panicked())??;
        changes.map_err(|_| panicked())?
    })
}

/// Has everything listed so many times; waits for as long where it is none.
fn list(show: &mut Show<'_>, times: usize, stop: &AtomicBool) -> Result<()> {
    for time in 0..TIMES {
        if times > 0 {
            show.beside(&lister(time))?;
        }
        show.pass(PAUSE)?;
        if stop.load(Ordering::Relaxed) {
            // No more changes: that thread says why.
            break;
        }
    }
    Ok(())
}

/// An operator that watches what is listed. Another selector, which selects the same, is another list.
fn lister(time: usize) -> String {
    format!(
        "\
apiVersion: capstan.dev/v1alpha1
kind: Operator
metadata: {{ name: lister }}
spec:
  plugins:
    lister: {{ component: {{ path: probe.wasm }} }}
  controllers:
    lister:
      plugin: lister
      primary: {{ apiVersion: test.capstan.dev/v1, kind: Probe }}
      namespaces: [{LISTED}]
      sources:
        maps: {{ informer: {{ apiVersion: v1, kind: ConfigMap, labelSelector: '!time-{time}' }} }}
"
    )
}

fn mapped_name(number: usize) -> String {
    format!("mapped-{number:03}")
}

/// What belongs to one of the primaries, as the component says.
fn mapped_spec(number: usize, event: usize) -> Value {
    json!({ "event": event, "mappers": { "lead": { "keys": [probe_name(number)] } } })
}

fn await_answers(show: &mut Show<'_>, sent: &[Sent]) -> Result<()> {
    let watch = Stopwatch::start();
    while unanswered(sent, show) > 0 && watch.spent() < LAST.limit {
        show.pass(LAST.every)?;
    }
    Ok(())
}

/// Returns when each primary has answered, with the event that it knew then.
fn answers<'a>(show: &'a Show<'_>) -> BTreeMap<&'a str, Vec<(usize, i64)>> {
    let mut answers = BTreeMap::<_, Vec<_>>::new();
    for answer in &show.diary.answers {
        answers.entry(&*answer.probe).or_default().push((answer.event, answer.at));
    }
    answers
}

/// Returns when each change was answered; a later one answers for those before it.
fn answered<'a>(sent: &'a [Sent], show: &Show<'_>) -> Vec<(&'a Sent, Option<i64>)> {
    let answers = answers(show);
    let when = |sent: &Sent| {
        let later = answers.get(&*sent.probe)?.iter().filter(|(event, _)| *event >= sent.event);
        later.map(|(_, at)| *at).min()
    };
    sent.iter().map(|sent| (sent, when(sent))).collect()
}

fn unanswered(sent: &[Sent], show: &Show<'_>) -> usize {
    answered(sent, show).iter().filter(|(_, at)| at.is_none()).count()
}

/// Returns how long changes have waited since they were sent, and since they were answered.
fn waits(sent: &[Sent], show: &Show<'_>) -> [Spread; 2] {
    let answered = answered(sent, show);
    let since = |which: usize| {
        let times = answered.iter().filter_map(|(sent, at)| Some(((*at)? - sent.at.get(which)?).max(0)));
        Spread::of_micros(times)
    };
    [since(0), since(1)]
}
