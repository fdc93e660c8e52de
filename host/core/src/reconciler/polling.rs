//! Polls things outside of the cluster: calls the component beside all runs, takes in what it answers, and has those primaries run
//! whose things have changed (PP).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::beside::Beside;
use super::controller::Controller;
use super::naming;
use super::passing::{End, tell, tell_of};
use crate::external::schedule::{Polled, Streak, Turn};
use crate::external::{self, Change, Differs, External, Standing};
use crate::guest::{CallError, CallReason, Event, Failure, Session};
use crate::manifest::polls::PRIMARY;
use crate::object::{Object, ObjectRef};
use crate::source::callback::{Asked, Callback, wanted};
use crate::text;

/// Polls a source for all primaries at once (`PP-1`). Those whose things have changed run; if nothing was known before, all do.
///
/// # Errors
/// That of the component, or what is wrong with its answer. What was known stays.
pub async fn poll(controller: &Arc<Controller>, source: &External) -> Result<(), Failure> {
    let polling = Beside::new(controller, None);
    let session = controller.guest.open(Arc::<Beside>::clone(&polling));
    let began = source.begin();
    let answer = session.poll(&source.name).await?;
    drop(session);
    let mut primaries = BTreeMap::<ObjectRef, Vec<String>>::new();
    for one in answer.primaries {
        primaries.entry(one.primary).or_default().extend(one.things);
    }
    // What is wrong with the things of one primary is nothing to the others.
    let (mut things, mut refused) = (BTreeMap::new(), BTreeMap::<ObjectRef, Arc<str>>::new());
    {
        let mut budget = polling.budget.lock();
        for (primary, answer) in primaries.into_iter().filter(|(_, answer)| !answer.is_empty()) {
            match external::read(&answer, &source.spec.id, &mut budget) {
                Ok(found) => drop(things.insert(primary, found)),
                Err(problem) => drop(refused.insert(primary, problem.to_string().into())),
            }
        }
    }
    let (first, more) = (refused.first_key_value().map(|(key, why)| (key.clone(), Arc::clone(why))), refused.len());
    // An answer that is of use for nobody is a failure; but what is not in it has gone.
    let useless = first.as_ref().filter(|_| things.is_empty()).map(|(_, why)| Failure::other(&**why));
    if let Some(useless) = useless.as_ref().filter(|_| source.known().is_err()) {
        return Err(useless.clone());
    }
    let useless_for: BTreeSet<ObjectRef> = refused.keys().cloned().collect();
    let changed = source.take_all(began, things, refused, || controller.guest.lasting());
    let changed = changed.map_err(|refused| Failure::other(refused.to_string()))?;
    if let Some((key, why)) = first.filter(|_| changed.refused_anew && useless.is_none()) {
        tracing::warn!(source = %source.name, %key, %why, primaries = more, "what the poller answers about these primaries is of no use: what was known of them stays");
    }
    tell(controller, source, source.settle(began, |key| !useless_for.contains(key)));
    if changed.known_now {
        // All run, whatever a filter says.
        tell(controller, source, changed.primaries.into_iter().map(|Differs { primary, .. }| primary).collect());
        controller.queue.event_for_all(Instant::now());
    } else {
        tell_of(controller, source, changed.primaries, End::Missed).await;
    }
    useless.map_or(Ok(()), Err)
}

/// Polls a source for one primary, as it is now (`PP-2`). Nobody else polls it meanwhile. One that is gone, or has been made again, is not
/// polled.
///
/// # Errors
/// As [`poll`], and if it is not known just now whether the primary is there.
pub async fn poll_one(controller: &Arc<Controller>, source: &External, turn: &Turn) -> Result<Polled, Failure> {
    let Turn { primary: key, uid } = turn;
    let Some(primary) = whole(controller, turn).await? else {
        return Ok(Polled::Unwanted);
    };
    if !is_wanted(controller, source, &primary) {
        // What a dependent needs to know is polled when it does; until then what is known of it stays.
        if !controller.spec.outside().any(|(_, outside)| outside.source == source.name) {
            source.note(key, uid, Standing::Unwanted);
        }
        return Ok(Polled::Unwanted);
    }
    let polling = Beside::new(controller, Some(primary.clone()));
    let session = controller.guest.open(Arc::<Beside>::clone(&polling));
    // A run that waits for the same things may have the turn that this call needs.
    session.ready().await?;
    let alone = source.alone(key).await;
    if current(controller, turn)?.is_none() {
        return Ok(Polled::Unwanted);
    }
    let answer = ask(&*session, &polling, source, &primary).await;
    // As long as it is not known whether it is, nothing is forgotten.
    let gone = matches!(current(controller, turn), Ok(None));
    if answer.is_err() && !gone {
        source.note(key, uid, Standing::Failed);
    }
    let (things, again) = answer?;
    // XC-6: it may have gone meanwhile.
    if gone && !controller.queue.knows(key) {
        source.forget_one(key, uid);
    }
    drop((session, alone));
    if !things.is_empty() {
        tell_of(controller, source, vec![Differs { primary: key.clone(), things }], End::Missed).await;
    }
    Ok(Polled::Well(again))
}

/// Says by a Kubernetes Event on a primary that it can't be polled, for such an error, or that it can be again (`PP-4`).
pub fn record(controller: &Controller, source: &External, turn: &Turn, streak: Streak, error: &str) {
    let Ok(Some(primary)) = current(controller, turn) else { return };
    if !controller.spec.events.of_failures {
        return;
    }
    let name = source.name.to_string();
    let event = match streak {
        Streak::Began => {
            let what =
                format!("polling {name} fails again and again: {error}; what was known stays, and it is tried again");
            Event::warning("PollFailed", text::kept(what), name)
        }
        Streak::Ended => {
            Event { warning: false, ..Event::warning("PollSucceeded", format!("polling {name} works again"), name) }
        }
    };
    let (event, name) = naming::of(&controller.spec.events, &primary, event, controller.budget());
    (controller.events)(&primary, event, name);
}

/// Returns a primary as it is now, if it is still the one whose turn it is; `None` if it has gone.
///
/// # Errors
/// It is not known just now whether it is there.
fn current(controller: &Controller, Turn { primary, uid }: &Turn) -> Result<Option<Object>, Failure> {
    let now = controller.primaries.look(primary).map_err(|doubt| Failure::other(doubt.to_string()))?;
    Ok(now.filter(|now| *now.header().uid == **uid))
}

/// Returns the same with all that is kept of it.
async fn whole(controller: &Controller, turn: &Turn) -> Result<Option<Object>, Failure> {
    let Some(primary) = current(controller, turn)? else {
        return Ok(None);
    };
    controller.whole(primary).await.map_err(|error| Failure::other(format!("reading the primary: {error}")))
}

/// Polls a source for a primary whose things a run wants to see, unless that was done before. It causes no run (`PP-2`).
///
/// # Errors
/// `unreachable`, if the component fails, or if the primary has gone meanwhile.
pub(super) async fn first(controller: &Arc<Controller>, source: &External, primary: &Object) -> Result<(), CallError> {
    if is_wanted(controller, source, primary) { needed(controller, source, primary).await } else { Ok(()) }
}

/// The same for a dependent, which needs to know what there is even if the manifest does not want its primary polled: else it would take
/// that for absent.
///
/// # Errors
/// As [`first`].
pub(super) async fn needed(controller: &Arc<Controller>, source: &External, primary: &Object) -> Result<(), CallError> {
    let turn = Turn { primary: primary.key().clone(), uid: primary.header().uid.as_ref().into() };
    let Turn { primary: key, uid } = &turn;
    let known = || source.spec.each().is_none() || source.knows(key, uid);
    if known() {
        return Ok(());
    }
    let _alone = source.alone(key).await;
    if known() {
        return Ok(());
    }
    let unreachable =
        |why: String| CallError::new(CallReason::Unreachable, format!("polling source {}: {why}", source.name));
    let stays = || match current(controller, &turn) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(unreachable(format!("{key} has gone meanwhile"))),
        Err(doubt) => Err(unreachable(doubt.message)),
    };
    stays()?;
    let polling = Beside::new(controller, Some(primary.clone()));
    let session = controller.guest.open_nested(Arc::<Beside>::clone(&polling));
    let asked = ask(&*session, &polling, source, primary).await;
    // What was polled for it is forgotten once its run has ended.
    stays()?;
    asked.map(drop).map_err(|failure| unreachable(failure.message))
}

/// Asks the component for the things of a primary. Returns what has become of them, and when to ask again.
async fn ask(
    session: &dyn Session,
    polling: &Beside,
    source: &External,
    primary: &Object,
) -> Result<(Vec<Change>, Option<Duration>), Failure> {
    let began = source.begin();
    let answer = session.poll_one(&source.name, primary.json()).await?;
    let things = external::read(&answer.things, &source.spec.id, &mut polling.budget.lock());
    let things = things.map_err(|problem| Failure::other(problem.to_string()))?;
    let holding = || polling.controller.guest.lasting();
    let (key, uid) = (primary.key(), &primary.header().uid);
    let changed = source.take_one(began, (key, uid), things, holding);
    let changed = changed.map_err(|refused| Failure::other(refused.to_string()))?;
    source.settle(began, |other| other == key);
    if let Some(at) = source.leaves_open(began, key, Instant::now()) {
        source.ask((key, uid), at);
    }
    Ok((changed, answer.again))
}

/// Returns true if the manifest wants a primary polled. A question without an answer counts as answered with yes.
fn is_wanted(controller: &Controller, source: &External, primary: &Object) -> bool {
    let Some(when) = source.spec.each().and_then(|each| each.when.as_ref()) else {
        return true;
    };
    wanted(when, PRIMARY, primary).unwrap_or_else(|problem| {
        let asked = Asked { source: &source.name, faults: &controller.primaries.spec().faults };
        asked.tell(Callback::Poller, "when", primary.key(), &problem);
        true
    })
}
