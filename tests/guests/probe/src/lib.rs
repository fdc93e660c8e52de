//! Does what its primary says: the test guest of the daemon's scenarios. The language of its spec is in `README.md`.

mod spec;
mod steps;

use std::time::Duration;

use capstan_guest::memo::{self, Lifetime};
use capstan_guest::{
    Bulks, Change, Cleaner, Conditions, Deletion, Dependents, ErrorHandler, FailedRun, Failure, Filters, Handled,
    Initializer, Json, Keys, Mappers, Match, Matchers, Met, NextRetry, Pollers, PrimaryThings, Problem, Received,
    Receivers, Reconciler, Request, ResourcePollers, Result, RetryPolicy, SecondaryMappers, Things, Update, Validator,
    cache, context,
};
use serde_json::{Map, Value, json};
use spec::{Cleanup, Mapper, Next, OnError, Poll, Probe, Receive, Reconcile, Retry, Told};
use steps::{Seen, log};

/// The memo of a primary that counts its runs, where they take turns.
const TURNS: &str = "turns";

struct Prober;

impl Reconciler for Prober {
    type Primary = Probe;

    fn reconcile(probe: &Probe) -> Result<Update> {
        let asked = turn(&probe.spec.reconcile)?;
        let seen = steps::run(&asked.steps, probe)?;
        if context::run().is_some_and(|run| run.primary_deleted) {
            log(&seen);
        }
        let mut update = answer(asked, seen, probe);
        if let Some(ms) = asked.reschedule {
            update = update.reschedule(millis(ms));
        }
        if let Some(version) = &asked.only_at {
            let given = probe.metadata.resource_version.as_ref().filter(|_| version == "given");
            update = update.only_at(given.unwrap_or(version));
        }
        Ok(update)
    }
}

/// Returns what this run does, where runs take turns.
fn turn(asked: &Reconcile) -> Result<&Reconcile> {
    let Some(last) = asked.turns.last() else { return Ok(asked) };
    let before: usize = memo::get(Lifetime::Primary, TURNS)?.unwrap_or_default();
    memo::set(Lifetime::Primary, TURNS, &(before + 1))?;
    Ok(asked.turns.get(before).unwrap_or(last))
}

/// Returns what is written to the primary.
fn answer(asked: &Reconcile, seen: Seen, probe: &Probe) -> Update {
    if asked.bad_json {
        return Update::unchecked_status(Json::unchecked(r#"{"status": "#));
    }
    let status = status(asked.status.as_ref(), seen, probe);
    if let Some(name) = &asked.other_name {
        let document = json!({ "metadata": { "name": name }, "status": status.unwrap_or_default() });
        return Update::unchecked_status(Json::unchecked(document.to_string()));
    }
    let object = asked.change.as_ref().map(|change| steps::changed(probe, change));
    match (object.as_ref().or(asked.object.as_ref()), status) {
        (None, None) => Update::nothing(),
        (None, Some(status)) => Update::status(status),
        (Some(object), None) => Update::object(object),
        (Some(object), Some(status)) => Update::object_and_status(object, status),
    }
}

/// Returns the asked status, what was seen and the generation; none if there is neither of the first two.
fn status(asked: Option<&Map<String, Value>>, seen: Seen, probe: &Probe) -> Option<Map<String, Value>> {
    if asked.is_none() && seen.is_empty() {
        return None;
    }
    let mut status = asked.cloned().unwrap_or_default();
    status.extend(seen);
    status.insert("observedGeneration".to_owned(), json!(probe.metadata.generation));
    Some(status)
}

impl Cleaner for Prober {
    type Primary = Probe;

    fn cleanup(probe: &Probe) -> Result<Deletion> {
        let Cleanup { steps, keep, reschedule } = &probe.spec.cleanup;
        log(&steps::run(steps, probe)?);
        Ok(match (keep, reschedule) {
            (false, _) => Deletion::remove_finalizer(),
            (true, None) => Deletion::keep_finalizer(),
            (true, Some(ms)) => Deletion::keep_finalizer().reschedule(millis(*ms)),
        })
    }
}

impl ErrorHandler for Prober {
    type Primary = Probe;

    fn handle_error(probe: &Probe, failure: &Failure) -> Result<Option<Handled>> {
        let Some(OnError { steps, status, failure: show, failures, next }) = &probe.spec.on_error else {
            return Ok(None);
        };
        let mut seen = steps::run(steps, probe)?;
        if *failures {
            let mut before = probe.whole.pointer("/status/failures").cloned().unwrap_or(json!([]));
            if let Some(before) = before.as_array_mut() {
                before.push(json!(format!("{}: {}", failure.retry.attempt, failure.message)));
            }
            seen.insert("failures".to_owned(), before);
        }
        if *show {
            seen.insert("failure".to_owned(), steps::value(failure)?);
        }
        let status = self::status(status.as_ref(), seen, probe);
        let handled = status.map_or_else(Handled::new, Handled::status);
        Ok(Some(match next {
            Next::Retry => handled,
            Next::RetryAfter(ms) => handled.retry_after(millis(*ms)),
            Next::Stop => handled.stop(),
            Next::Reschedule(ms) => handled.reschedule(millis(*ms)),
        }))
    }
}

impl RetryPolicy for Prober {
    type Primary = Probe;

    fn decide_retry(probe: &Probe, failed: &FailedRun) -> Result<NextRetry> {
        let Some(Retry { steps, next, stop_at }) = &probe.spec.retry else {
            return Ok(NextRetry::declared());
        };
        let mut seen = steps::run(steps, probe)?;
        seen.insert("failed".to_owned(), steps::value(failed)?);
        log(&seen);
        Ok(match next {
            _ if stop_at.is_some_and(|attempt| failed.retry.attempt >= attempt) => NextRetry::stop(),
            Some(ms) => NextRetry::after(millis(*ms)),
            None => NextRetry::declared(),
        })
    }
}

impl Validator for Prober {
    type Primary = Probe;

    fn validate(probe: &Probe) -> Result<Vec<Problem>> {
        log(&steps::run(&probe.spec.validate.steps, probe)?);
        let problem = |(field, message): (&String, &String)| match field.as_str() {
            "" => Problem::new(message),
            field => Problem::at(field, message),
        };
        Ok(probe.spec.validate.wrong.iter().map(problem).collect())
    }
}

impl Initializer for Prober {
    type Primary = Probe;

    fn initialize(probe: &Probe) -> Result<()> {
        log(&steps::run(&probe.spec.initialize.steps, probe)?);
        Ok(())
    }
}

impl Dependents for Prober {
    type Primary = Probe;

    fn desired(name: &str, probe: &Probe) -> Result<Json> {
        let Some(object) = probe.spec.dependents.get(name) else {
            return Err(format!("spec.dependents has no `{name}`").into());
        };
        object_of(object, probe)
    }
}

impl Bulks for Prober {
    type Primary = Probe;

    fn desired_set(name: &str, probe: &Probe) -> Result<Vec<Json>> {
        let Some(objects) = probe.spec.bulks.get(name) else {
            return Err(format!("spec.bulks has no `{name}`").into());
        };
        objects.iter().map(|object| object_of(object, probe)).collect()
    }
}

/// Returns what a dependent's object should be.
fn object_of(object: &Map<String, Value>, probe: &Probe) -> Result<Json> {
    let mut object = object.clone();
    if let Some(steps) = object.remove("$do") {
        log(&steps::run(&spec::steps(steps)?, probe)?);
    }
    if let Some(fields) = object.remove("$copy") {
        steps::copy(&mut object, &serde_json::from_value(fields)?)?;
    }
    match object.remove("$text") {
        Some(Value::String(text)) => Ok(Json::unchecked(text)),
        Some(_) => Err("$text is a text".into()),
        None => Json::of(&object),
    }
}

impl Matchers for Prober {
    type Primary = Probe;

    fn matches(name: &str, actual: &Json, desired: &Json, probe: &Probe) -> Result<Match> {
        if let Some(matcher) = probe.spec.matchers.get(name) {
            log(&steps::run(&matcher.steps, probe)?);
        }
        let data = |object: &Json| object.parse::<Map<String, Value>>().map(|object| object.get("data").cloned());
        Ok(Match::equal("data", &data(actual)?, &data(desired)?))
    }
}

impl Conditions for Prober {
    type Primary = Probe;

    fn is_met(name: &str, dependent: &str, probe: &Probe) -> Result<Met> {
        let spec::Condition { steps, met, detail } = match probe.spec.conditions.get(name) {
            Some(Value::Bool(met)) => return Ok((*met).into()),
            Some(condition) => serde_json::from_value(condition.clone())?,
            None => {
                return Err(format!("spec.conditions has no `{name}`, asked for `{dependent}`").into());
            }
        };
        log(&steps::run(&steps, probe)?);
        Ok(Met::from(met).detail(detail))
    }
}

impl Pollers for Prober {
    fn poll(name: &str) -> Result<PrimaryThings> {
        let mut all = PrimaryThings::new();
        let mut probes = cache::primaries().everywhere().all::<Probe>()?;
        probes.retain(|probe| probe.spec.polled.contains_key(name));
        for probe in &probes {
            let Some(poll) = probe.spec.polled.get(name) else { continue };
            all = all.of(probe.metadata.namespace.as_deref(), &probe.metadata.name, polled(poll, probe)?);
        }
        Ok(all)
    }
}

impl ResourcePollers for Prober {
    type Primary = Probe;

    fn poll_one(name: &str, probe: &Probe) -> Result<Things> {
        let Some(poll) = probe.spec.polls.get(name) else {
            return Ok(Things::none());
        };
        let things = Things::of(polled(poll, probe)?);
        Ok(match poll.again {
            Some(ms) => things.again(millis(ms)),
            None => things,
        })
    }
}

/// Does what a poll does, and returns its things.
fn polled(poll: &Poll, probe: &Probe) -> Result<Vec<Json>> {
    log(&steps::run(&poll.steps, probe)?);
    if !poll.texts.is_empty() {
        return Ok(poll.texts.iter().map(|text| Json::unchecked(text.as_str())).collect());
    }
    let mut things = poll.things.clone();
    if poll.count {
        let key = format!("polls {}", probe.metadata.name);
        let count = memo::get::<u64>(Lifetime::Plugin, &key)?.unwrap_or_default() + 1;
        memo::set(Lifetime::Plugin, &key, &count)?;
        for thing in things.iter_mut().filter_map(Value::as_object_mut) {
            thing.insert("count".to_owned(), json!(count));
        }
    }
    things.iter().map(Json::of).collect()
}

impl Receivers for Prober {
    fn receive(name: &str, request: &Request) -> Result<Received> {
        let asked: Receive = request.json()?;
        log(&steps::run(&asked.steps, &Probe::nobody())?);
        let mut received = Received::new();
        for Told { namespace, name, present, gone } in &asked.events {
            let namespace = namespace.as_deref();
            received = match (present, gone) {
                (Some(thing), _) => received.present(namespace, name, thing),
                (None, Some(id)) => received.gone(namespace, name, id),
                (None, None) => received.wake(namespace, name),
            };
        }
        if let Some(status) = asked.status {
            received = received.status(status);
        }
        let headers: Map<_, _> =
            request.headers.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
        let echo = || json!({ "source": name, "path": request.path, "headers": headers }).to_string();
        Ok(received.text(if asked.echo { echo() } else { asked.text }))
    }
}

impl Filters for Prober {
    fn accepts(name: &str, change: &Change) -> Result<bool> {
        let probe: Probe = change.object()?;
        let Some(filter) = probe.spec.filters.get(name) else {
            return Ok(true);
        };
        log(&steps::run(&filter.steps, &probe)?);
        Ok(filter.accepts)
    }
}

impl Mappers for Prober {
    fn to_primaries(name: &str, secondary: &Json) -> Result<Keys> {
        let probe: Probe = secondary.parse()?;
        mapped(probe.spec.mappers.get(name), &probe)
    }
}

impl SecondaryMappers for Prober {
    type Primary = Probe;

    fn to_secondaries(name: &str, probe: &Probe) -> Result<Keys> {
        mapped(probe.spec.secondary_mappers.get(name), probe)
    }
}

/// Does what a mapper does, and returns what belongs to the object.
fn mapped(mapper: Option<&Mapper>, probe: &Probe) -> Result<Keys> {
    let Some(mapper) = mapper else {
        return Ok(Keys::none());
    };
    log(&steps::run(&mapper.steps, probe)?);
    Ok(mapper.keys.iter().collect())
}

#[cfg(not(feature = "all-events"))]
capstan_guest::export!(Prober: Reconciler, Cleaner, ErrorHandler, RetryPolicy, Validator, Initializer, Dependents, Bulks, Matchers, Conditions, Pollers, ResourcePollers, Receivers, Filters, Mappers, SecondaryMappers);
#[cfg(feature = "all-events")]
capstan_guest::export!(Prober: Reconciler, ErrorHandler, RetryPolicy, Validator, Initializer, Dependents, Bulks, Matchers, Conditions, Pollers, ResourcePollers, Receivers, Filters, Mappers, SecondaryMappers);

fn millis(ms: u32) -> Duration {
    Duration::from_millis(ms.into())
}

#[cfg(test)]
mod tests;
