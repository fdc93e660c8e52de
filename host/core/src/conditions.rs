//! Decides which standard conditions a primary has after a run, and keeps those in the statuses that others write (SC rules).
//!
//! [`decide`] says what holds, [`entries`] what of it is news. A status that a component writes has its own conditions beside
//! them: [`without_ours`] and [`with_ours`] leave the standard ones to the daemon.

use std::borrow::Cow;
use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::budget::{Budget, Exceeded};
use crate::text::{self, said_to_its_end};

mod possible;

pub use possible::Possible;

/// The types of the standard conditions, in the order in which they are written.
pub const TYPES: [&str; 3] = ["Ready", "Progressing", "Degraded"];

/// Why a primary that the component found wrong is not ready.
const INVALID: &str = "Invalid";

/// The fields of a condition.
pub const FIELDS: [&str; 6] = ["type", "status", "observedGeneration", "lastTransitionTime", "reason", "message"];

/// The most dependents of one sort that a message names.
const NAMED: usize = 8;

/// The longest text about one of many dependents, and about what follows, in bytes.
const LONGEST: usize = 256;

/// What a run has found.
#[derive(Clone, Debug, Default)]
pub struct Facts<'a> {
    /// True if the run was a clean-up, and the primary stays for now.
    pub cleanup: bool,
    /// The dependents of the managed workflow that are not as they should be, in its order.
    pub dependents: Vec<Dependent<'a>>,
    /// How the run failed; `None` if it did not.
    pub failed: Option<Failed<'a>>,
}

/// A dependent that is not as it should be.
#[derive(Clone, Debug)]
pub struct Dependent<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it lacks.
    pub lacks: Lacks,
    /// The explanation; empty if there is none, or none that may be shown.
    pub why: Cow<'a, str>,
}

/// What a dependent lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacks {
    /// A visit that succeeds.
    Success,
    /// That others leave it alone.
    Peace,
    /// Readiness.
    Readiness,
    /// Its end.
    Deletion,
}

/// How a run failed.
#[derive(Clone, Copy, Debug)]
pub struct Failed<'a> {
    /// The text of the failure.
    pub text: &'a str,
    /// True if dependents of the managed workflow are what failed.
    pub of_workflow: bool,
    /// What follows.
    pub next: Next,
}

/// What follows a failed run, if nothing happens meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another run.
    Retry,
    /// Nothing: all attempts are used up.
    Exhausted,
    /// Nothing, until the primary is another one, or whoever found it wrong (`VA-2`).
    Corrected,
    /// Nothing: the component wants it so.
    Stopped,
}

/// What holds of one condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it is true.
    pub status: bool,
    /// Why, as one word.
    pub reason: &'static str,
    /// Why, for people: one line, bounded, never empty.
    pub message: String,
}

/// Returns what holds of each of the [`TYPES`] after a run (`SC-1`).
pub fn decide(facts: &Facts<'_>) -> [Verdict; 3] {
    let Facts { cleanup, dependents, failed } = facts;
    let verdict = |status, reason, message: &str| Verdict { status, reason, message: text::said(message).into_owned() };
    let awaited = awaited(*cleanup, dependents);
    let lacking = dependents.iter().map(|dependent| dependent.lacks).min_by_key(|lacks| lacks.rank());
    let broken = lacking.filter(|lacks| matches!(lacks, Lacks::Success | Lacks::Peace)).map(Lacks::reason);
    if let Some(Failed { text, of_workflow, next }) = failed {
        let cause =
            broken.filter(|_| *of_workflow).unwrap_or(if *next == Next::Corrected { INVALID } else { "RunFailed" });
        let text = if text.is_empty() { "without an explanation" } else { text };
        let told = if cause == "RunFailed" || cause == INVALID { Cow::Borrowed(text) } else { awaited };
        let (coming, why, then) = next.explained();
        return [
            verdict(false, if *cleanup { "Deleting" } else { cause }, &told),
            verdict(coming, why, then),
            verdict(true, cause, &format!("{}; {then}", said_to_its_end(&told, text::LONGEST - LONGEST))),
        ];
    }
    let degraded = match broken {
        Some(reason) => verdict(true, reason, &awaited),
        None => verdict(false, "Succeeded", "the last run succeeded"),
    };
    let Some(reason) = (if *cleanup { Some("Deleting") } else { lacking.map(Lacks::reason) }) else {
        let message = "the last run succeeded, and nothing is awaited";
        return [verdict(true, "Succeeded", message), verdict(false, "Succeeded", message), degraded];
    };
    // Nothing comes by itself where all that is lacking has failed.
    let progressing = *cleanup || dependents.iter().any(|dependent| dependent.lacks != Lacks::Success);
    [verdict(false, reason, &awaited), verdict(progressing, reason, &awaited), degraded]
}

/// Returns the three conditions as they have to be written, if the list `before` has others (`SC-2`): the transition time of one whose
/// status stays is kept.
///
/// # Errors
/// [`Exceeded`] if that costs too much.
pub fn entries(
    before: &Value,
    verdicts: &[Verdict; 3],
    generation: Option<i64>,
    now: Timestamp,
    budget: &mut Budget,
) -> Result<Option<Value>, Exceeded> {
    budget.step(cost(before))?;
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let (mut all, mut news) = (Vec::new(), false);
    for (kind, Verdict { status, reason, message }) in TYPES.into_iter().zip(verdicts) {
        let old = list(before).iter().find(|entry| entry["type"] == *kind);
        let status = if *status { "True" } else { "False" };
        let since = old.filter(|old| old["status"] == *status).and_then(|old| old["lastTransitionTime"].as_str());
        let mut entry = json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": since.unwrap_or(&now),
        });
        if let (Some(generation), Value::Object(entry)) = (generation, &mut entry) {
            entry.insert("observedGeneration".to_owned(), generation.into());
        }
        // Whatever else others have put there stays, so it does not count.
        let known = |(name, value): (&String, &Value)| old.is_some_and(|old| old.get(name) == Some(value));
        news |= !entry.as_object().is_some_and(|fields| fields.iter().all(known));
        all.push(entry);
    }
    Ok(news.then_some(Value::Array(all)))
}

/// Takes the standard conditions out of a status that a component applies: it owns none of them (`SC-3`).
///
/// # Errors
/// [`Exceeded`] if that costs too much.
pub fn without_ours(status: &mut Value, budget: &mut Budget) -> Result<(), Exceeded> {
    let Some(Value::Array(all)) = status.get_mut("conditions") else {
        return Ok(());
    };
    budget.step(steps(all.len()))?;
    let before = all.len();
    all.retain(|entry| !is_ours(entry));
    if all.is_empty() && before > 0 {
        remove(status);
    }
    Ok(())
}

/// Gives a status that takes the place of another one the standard conditions of that, at the places that they have in its list of
/// conditions, in place of those that the component has put there (`SC-3`).
///
/// # Errors
/// [`Exceeded`] if that costs too much.
pub fn with_ours(status: &mut Value, conditions: &Value, budget: &mut Budget) -> Result<(), Exceeded> {
    budget.step(cost(conditions))?;
    without_ours(status, budget)?;
    let ours = list(conditions).iter().enumerate().filter(|(_, entry)| is_ours(entry));
    let ours: Vec<_> = ours.take(TYPES.len()).collect();
    if ours.is_empty() {
        return Ok(());
    }
    if status.is_null() {
        *status = Value::Object(Map::new());
    }
    let Value::Object(fields) = status else {
        return Ok(());
    };
    let all = fields.entry("conditions").or_insert(Value::Null);
    if all.is_null() {
        *all = Value::Array(Vec::new());
    }
    if let Value::Array(all) = all {
        for (place, entry) in ours {
            all.insert(place.min(all.len()), entry.clone());
        }
    }
    Ok(())
}

fn remove(status: &mut Value) {
    if let Value::Object(fields) = status {
        fields.remove("conditions");
    }
}

fn list(conditions: &Value) -> &[Value] {
    conditions.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn is_ours(entry: &Value) -> bool {
    entry["type"].as_str().is_some_and(|kind| TYPES.contains(&kind))
}

fn cost(conditions: &Value) -> u64 {
    steps(list(conditions).len())
}

fn steps(entries: usize) -> u64 {
    1 + u64::try_from(entries).unwrap_or(u64::MAX / 2)
}

/// Returns what is awaited, or has failed, as one line: `failed: a (why), b; not ready: c`.
fn awaited<'f>(cleanup: bool, dependents: &[Dependent<'_>]) -> Cow<'f, str> {
    let sorts = [
        (Lacks::Success, "failed"),
        (Lacks::Peace, "contested"),
        (Lacks::Readiness, "not ready"),
        (Lacks::Deletion, "not deleted yet"),
    ];
    // A failure of one alone has room for what the API server says of it.
    let longest = (text::LONGEST / 2 / dependents.len().max(1)).max(LONGEST);
    let mut message = String::new();
    for (sort, title) in sorts {
        let mut rest = dependents.iter().filter(|dependent| dependent.lacks == sort);
        for (number, Dependent { name, why, .. }) in rest.by_ref().take(NAMED).enumerate() {
            let before = match (number, message.is_empty()) {
                (0, true) => format!("{title}: "),
                (0, false) => format!("; {title}: "),
                _ => ", ".to_owned(),
            };
            message.extend([&*before, name]);
            if !why.is_empty() {
                // Writing to a string cannot fail.
                let _infallible = write!(message, " ({})", said_to_its_end(why, longest));
            }
        }
        let more = rest.count();
        if more > 0 {
            let _infallible = write!(message, " and {more} more");
        }
    }
    match (message.is_empty(), cleanup) {
        (true, true) => "being deleted: the component is not done with its clean-up".into(),
        (true, false) => "".into(),
        (false, true) => format!("being deleted: {message}").into(),
        (false, false) => message.into(),
    }
}

// === impl Lacks ===

impl Lacks {
    /// Returns its place among what counts first.
    fn rank(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Peace => 1,
            Self::Readiness => 2,
            Self::Deletion => 3,
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::Success => "DependentFailed",
            Self::Peace => "DependentContested",
            Self::Readiness => "DependentNotReady",
            Self::Deletion => "DependentNotDeleted",
        }
    }
}

// === impl Next ===

impl Next {
    /// Returns whether another run comes by itself, and why, as a word and as a sentence.
    fn explained(self) -> (bool, &'static str, &'static str) {
        match self {
            Self::Retry => (true, "Retrying", "the run is retried"),
            Self::Exhausted => {
                (false, "RetriesExhausted", "that was the last attempt: the next run follows the next change")
            }
            Self::Corrected => {
                (false, INVALID, "the next run follows a change of it, of the component, or of its settings")
            }
            Self::Stopped => {
                (false, "RetriesStopped", "the component wants no retry: the next run follows the next change")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lacking<'a>(names: &[&'a str], lacks: Lacks, why: &'a str) -> Vec<Dependent<'a>> {
        names.iter().map(|name| Dependent { name, lacks, why: why.into() }).collect()
    }

    /// Writes verdicts as `Ready=True/Reason: message`, one in each line.
    fn told(facts: &Facts<'_>) -> String {
        let verdicts = decide(facts);
        let line = |(kind, verdict): (&str, &Verdict)| {
            let status = if verdict.status { "True" } else { "False" };
            format!("{kind}={status}/{}: {}", verdict.reason, verdict.message)
        };
        TYPES.into_iter().zip(&verdicts).map(line).collect::<Vec<_>>().join("\n")
    }

    /// A clean-up or not, what is lacking, how the run failed; the three conditions.
    type Row = (bool, Vec<Dependent<'static>>, Option<Failed<'static>>, [String; 3]);

    #[expect(clippy::too_many_lines, reason = "a table")]
    #[test]
    fn what_a_run_has_found_decides_the_conditions() {
        // SC-1
        let well = "the last run succeeded, and nothing is awaited";
        let unready = || lacking(&["deployment"], Lacks::Readiness, "0 of 1 replicas are updated");
        let broken = || lacking(&["cm"], Lacks::Success, "no rights");
        let lingering = || lacking(&["job"], Lacks::Deletion, "");
        let failed = |text, of_workflow, next| Some(Failed { text, of_workflow, next });
        let retry = "the run is retried";
        let exhausted = "that was the last attempt: the next run follows the next change";
        let stopped = "the component wants no retry: the next run follows the next change";
        let clean = "being deleted: the component is not done with its clean-up";
        let table: [Row; 16] = [
            (false, vec![], None, [
                format!("Ready=True/Succeeded: {well}"),
                format!("Progressing=False/Succeeded: {well}"),
                "Degraded=False/Succeeded: the last run succeeded".to_owned(),
            ]),
            (false, unready(), None, [
                "Ready=False/DependentNotReady: not ready: deployment (0 of 1 replicas are updated)".to_owned(),
                "Progressing=True/DependentNotReady: not ready: deployment (0 of 1 replicas are updated)".to_owned(),
                "Degraded=False/Succeeded: the last run succeeded".to_owned(),
            ]),
            (false, lingering(), None, [
                "Ready=False/DependentNotDeleted: not deleted yet: job".to_owned(),
                "Progressing=True/DependentNotDeleted: not deleted yet: job".to_owned(),
                "Degraded=False/Succeeded: the last run succeeded".to_owned(),
            ]),
            // WF-9: the component goes on although dependents have failed.
            (false, broken(), None, [
                "Ready=False/DependentFailed: failed: cm (no rights)".to_owned(),
                "Progressing=False/DependentFailed: failed: cm (no rights)".to_owned(),
                "Degraded=True/DependentFailed: failed: cm (no rights)".to_owned(),
            ]),
            (false, [lingering(), unready(), broken()].concat(), None, [
                "Ready=False/DependentFailed: failed: cm (no rights); not ready: deployment (0 of 1 replicas are updated); not deleted yet: job".to_owned(),
                "Progressing=True/DependentFailed: failed: cm (no rights); not ready: deployment (0 of 1 replicas are updated); not deleted yet: job".to_owned(),
                "Degraded=True/DependentFailed: failed: cm (no rights); not ready: deployment (0 of 1 replicas are updated); not deleted yet: job".to_owned(),
            ]),
            (false, broken(), failed("the workflow failed: cm: no rights", true, Next::Retry), [
                "Ready=False/DependentFailed: failed: cm (no rights)".to_owned(),
                format!("Progressing=True/Retrying: {retry}"),
                format!("Degraded=True/DependentFailed: failed: cm (no rights); {retry}"),
            ]),
            (false, broken(), failed("the workflow failed: cm: no rights", true, Next::Exhausted), [
                "Ready=False/DependentFailed: failed: cm (no rights)".to_owned(),
                format!("Progressing=False/RetriesExhausted: {exhausted}"),
                format!("Degraded=True/DependentFailed: failed: cm (no rights); {exhausted}"),
            ]),
            (false, vec![], failed("no theme", false, Next::Retry), [
                "Ready=False/RunFailed: no theme".to_owned(),
                format!("Progressing=True/Retrying: {retry}"),
                format!("Degraded=True/RunFailed: no theme; {retry}"),
            ]),
            (false, unready(), failed("no theme", false, Next::Exhausted), [
                "Ready=False/RunFailed: no theme".to_owned(),
                format!("Progressing=False/RetriesExhausted: {exhausted}"),
                format!("Degraded=True/RunFailed: no theme; {exhausted}"),
            ]),
            // The component has been told of the dependent, and has failed itself.
            (false, broken(), failed("no theme", false, Next::Retry), [
                "Ready=False/RunFailed: no theme".to_owned(),
                format!("Progressing=True/Retrying: {retry}"),
                format!("Degraded=True/RunFailed: no theme; {retry}"),
            ]),
            (false, vec![], failed("", false, Next::Stopped), [
                "Ready=False/RunFailed: without an explanation".to_owned(),
                format!("Progressing=False/RetriesStopped: {stopped}"),
                format!("Degraded=True/RunFailed: without an explanation; {stopped}"),
            ]),
            (true, vec![], None, [
                format!("Ready=False/Deleting: {clean}"),
                format!("Progressing=True/Deleting: {clean}"),
                "Degraded=False/Succeeded: the last run succeeded".to_owned(),
            ]),
            (true, lingering(), None, [
                "Ready=False/Deleting: being deleted: not deleted yet: job".to_owned(),
                "Progressing=True/Deleting: being deleted: not deleted yet: job".to_owned(),
                "Degraded=False/Succeeded: the last run succeeded".to_owned(),
            ]),
            (true, broken(), failed("the workflow failed: cm: no rights", true, Next::Retry), [
                "Ready=False/Deleting: being deleted: failed: cm (no rights)".to_owned(),
                format!("Progressing=True/Retrying: {retry}"),
                format!("Degraded=True/DependentFailed: being deleted: failed: cm (no rights); {retry}"),
            ]),
            (true, vec![], failed("the bucket is not empty", false, Next::Exhausted), [
                "Ready=False/Deleting: the bucket is not empty".to_owned(),
                format!("Progressing=False/RetriesExhausted: {exhausted}"),
                format!("Degraded=True/RunFailed: the bucket is not empty; {exhausted}"),
            ]),
            (true, broken(), None, [
                "Ready=False/Deleting: being deleted: failed: cm (no rights)".to_owned(),
                "Progressing=True/Deleting: being deleted: failed: cm (no rights)".to_owned(),
                "Degraded=True/DependentFailed: being deleted: failed: cm (no rights)".to_owned(),
            ]),
        ];
        for (cleanup, dependents, failed, expected) in table {
            let facts = Facts { cleanup, dependents, failed };
            assert_eq!(told(&facts), expected.join("\n"), "{facts:?}");
        }
    }

    #[test]
    fn what_others_say_is_one_line_and_bounded() {
        // SC-1
        let names: Vec<String> = (0..100).map(|n| format!("dependent-{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let long = "a\n".repeat(100_000);
        for failed in [None, Some(Failed { text: &long, of_workflow: false, next: Next::Exhausted })] {
            let facts = Facts { dependents: lacking(&names, Lacks::Success, &long), failed, ..Facts::default() };
            let verdicts = decide(&facts);
            for Verdict { message, .. } in &verdicts {
                assert!(message.len() <= text::LONGEST && !message.contains('\n'), "{message}");
            }
            let last = verdicts[2].message.ends_with("follows the next change");
            assert_eq!(last, failed.is_some(), "what follows is said however long the rest is");
        }
        // What is wrong stands at the end of what the API server says.
        let said = format!("roleRef: Invalid value: {}: cannot change roleRef (HTTP 422)", "x".repeat(400));
        for message in decide(&Facts { dependents: lacking(&["binding"], Lacks::Success, &said), ..Facts::default() }) {
            assert!(message.message.contains(&said), "{}", message.message);
        }
        for message in decide(&Facts { dependents: lacking(&names[..3], Lacks::Success, &said), ..Facts::default() }) {
            assert_eq!(message.message.matches("cannot change roleRef (HTTP 422)").count(), 3, "{}", message.message);
        }
        let facts = Facts { dependents: lacking(&names[..11], Lacks::Readiness, ""), ..Facts::default() };
        assert!(decide(&facts)[0].message.ends_with("dependent-7 and 3 more"));
    }

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 5);

    /// Returns conditions as they were written at another time, with these statuses.
    fn written(statuses: [&str; 3]) -> Value {
        let verdicts = decide(&Facts::default());
        let fields = TYPES.into_iter().zip(&verdicts).zip(statuses);
        let entry = |((kind, verdict), status): ((&str, &Verdict), &str)| {
            json!({ "type": kind, "status": status, "reason": verdict.reason, "message": verdict.message,
                "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1 })
        };
        fields.map(entry).collect()
    }

    fn news(before: &Value, facts: &Facts<'_>, generation: i64) -> Option<Value> {
        entries(before, &decide(facts), Some(generation), NOW, &mut Budget::of(100)).unwrap()
    }

    #[test]
    fn the_transition_time_changes_with_the_status_alone() {
        // SC-2
        let well = Facts::default();
        let unready = Facts { dependents: lacking(&["a"], Lacks::Readiness, ""), ..Facts::default() };
        let times = |before: &Value, facts: &Facts<'_>, generation| {
            let entries = news(before, facts, generation)?;
            let time = |entry: &Value| entry["lastTransitionTime"].as_str().map(|time| time.starts_with("2026"));
            Some(list(&entries).iter().map(|entry| time(entry).unwrap()).collect::<Vec<_>>())
        };
        let before = written(["True", "False", "False"]);
        // What was there, what the run has found, the generation; for each condition whether it keeps its time.
        for (case, before, facts, generation, kept) in [
            ("nothing was there", Value::Null, &well, 1, Some(vec![false, false, false])),
            ("nothing is new", before.clone(), &well, 1, None),
            ("another generation", before.clone(), &well, 2, Some(vec![true, true, true])),
            ("two have changed", before.clone(), &unready, 1, Some(vec![false, false, true])),
            ("one was otherwise", written(["False", "False", "False"]), &well, 1, Some(vec![false, true, true])),
        ] {
            assert_eq!(times(&before, facts, generation), kept, "{case}");
        }
        let first = &news(&Value::Null, &well, 3).unwrap()[0];
        let expected = json!({ "type": "Ready", "status": "True", "reason": "Succeeded", "message": "the last run succeeded, and nothing is awaited", "lastTransitionTime": "2027-01-15T08:00:00Z", "observedGeneration": 3 });
        assert_eq!(*first, expected);
        assert!(TYPES.len() == 3 && expected.as_object().unwrap().keys().all(|name| FIELDS.contains(&&**name)));
    }

    #[test]
    fn conditions_of_others_and_their_fields_are_no_news() {
        // SC-2
        let mut before = written(["True", "False", "False"]);
        before.as_array_mut().unwrap().insert(1, json!({ "type": "Synced", "status": "Unknown" }));
        before[0]["severity"] = "none".into();
        assert_eq!(news(&before, &Facts::default(), 1), None);
        before[2]["reason"] = Value::Null;
        assert_eq!(list(&news(&before, &Facts::default(), 1).unwrap()).len(), 3);
        let cost = entries(&before, &decide(&Facts::default()), None, NOW, &mut Budget::of(2));
        assert_eq!(cost, Err(Exceeded::Steps(2)));
    }

    #[test]
    fn a_status_that_others_write_leaves_the_standard_conditions_as_they_are() {
        // SC-3
        let of = |kinds: &[&str], from: &str| {
            kinds.iter().map(|kind| json!({ "type": kind, "from": from })).collect::<Value>()
        };
        let ours = |kinds: &[&str]| {
            let from = |kind: &&str| json!({ "type": kind, "from": if TYPES.contains(kind) { "us" } else { "them" } });
            json!({ "conditions": kinds.iter().map(from).collect::<Value>() })
        };
        let (none, all) = (Value::Null, of(&["Ready", "Synced", "Progressing", "Degraded"], "us"));
        // The status as the component writes it, the conditions that are there; what is written in place of it, and what is applied.
        let table = [
            (
                json!({ "conditions": of(&["Synced"], "them") }),
                &all,
                ours(&["Ready", "Synced", "Progressing", "Degraded"]),
                ours(&["Synced"]),
            ),
            (
                json!({ "conditions": of(&["Ready", "Synced"], "them") }),
                &all,
                ours(&["Ready", "Synced", "Progressing", "Degraded"]),
                ours(&["Synced"]),
            ),
            (json!({ "conditions": of(&["Ready"], "them") }), &none, json!({}), json!({})),
            (json!({ "conditions": [] }), &none, json!({ "conditions": [] }), json!({ "conditions": [] })),
            (
                json!({ "conditions": [] }),
                &all,
                ours(&["Ready", "Progressing", "Degraded"]),
                json!({ "conditions": [] }),
            ),
            (json!({}), &all, ours(&["Ready", "Progressing", "Degraded"]), json!({})),
            (
                json!({ "conditions": null }),
                &all,
                ours(&["Ready", "Progressing", "Degraded"]),
                json!({ "conditions": null }),
            ),
            (Value::Null, &all, ours(&["Ready", "Progressing", "Degraded"]), Value::Null),
            (Value::Null, &none, Value::Null, Value::Null),
            (json!("text"), &all, json!("text"), json!("text")),
            (json!({ "conditions": "text" }), &all, json!({ "conditions": "text" }), json!({ "conditions": "text" })),
        ];
        for (written, before, placed, applied) in table {
            let (mut whole, mut part, budget) = (written.clone(), written.clone(), &mut Budget::of(100));
            with_ours(&mut whole, before, budget).unwrap();
            without_ours(&mut part, budget).unwrap();
            assert_eq!((whole, part), (placed, applied), "{written} over {before}");
        }
        let many = of(&vec!["Ready"; 50_000], "us");
        let mut status = json!({});
        assert_eq!(with_ours(&mut status, &many, &mut Budget::of(100)), Err(Exceeded::Steps(100)));
        with_ours(&mut status, &many, &mut Budget::of_run()).unwrap();
        assert_eq!(list(&status["conditions"]).len(), 3, "each of a map list is there once");
    }
}
