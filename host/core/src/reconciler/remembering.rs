//! Takes in what a run has written outside of the cluster: it is read as it was written, until a poll shows it (XC-4, XC-5).

use std::sync::Arc;

use super::run::Run;
use crate::external::{self, External, Refused, Write};
use crate::guest::{CallError, CallReason};

/// Takes in a thing that is new, or has replaced another.
pub(super) fn remember(run: &Run, name: &str, actual: String, replaced: Option<String>) -> Result<(), CallError> {
    let source = source(run, name)?;
    let (id, now) = read(run, source, "the thing", actual)?;
    let write = match replaced {
        None => Write::Created(now),
        Some(replaced) => {
            let (before_id, before) = read(run, source, "what it replaces", replaced)?;
            if before_id != id {
                let message = format!(
                    "source {name}: the thing has the id {id:?}, and what it replaces has {before_id:?}; expected the same"
                );
                return Err(CallError::new(CallReason::Invalid, message));
            }
            Write::Replaced { before, now }
        }
    };
    take(run, source, &id, write)
}

/// Takes in that a thing has been removed.
pub(super) fn forget(run: &Run, name: &str, id: &str) -> Result<(), CallError> {
    let source = source(run, name)?;
    take(run, source, &id.into(), Write::Removed)
}

fn take(run: &Run, source: &External, id: &Arc<str>, write: Write) -> Result<(), CallError> {
    if !run.is_current() {
        return Ok(());
    }
    let primary = (run.primary.key(), &*run.primary.header().uid);
    let taken = source.write(primary, id, write, || run.controller.guest.lasting());
    taken
        .map_err(|refused: Refused| CallError::new(CallReason::Exhausted, format!("source {}: {refused}", source.name)))
}

/// Returns the source of this name, if what it has is outside of the cluster.
fn source<'a>(run: &'a Run, name: &str) -> Result<&'a External, CallError> {
    let controller = &run.controller;
    if let Some(source) = controller.external(name) {
        return Ok(source);
    }
    let (reason, why) = if controller.secondaries.contains_key(name) {
        (CallReason::Invalid, "has objects of the cluster: what is written to them is known by itself".to_owned())
    } else {
        let known = controller.externals.keys().map(|name| &**name).collect::<Vec<_>>().join(", ");
        let known = if known.is_empty() { "none".to_owned() } else { known };
        (CallReason::Missing, format!("is not there; of things outside of the cluster there are: {known}"))
    };
    Err(CallError::new(reason, format!("source {name:?} {why}")))
}

/// Reads a thing, on the run's budget: its id, and how it is written.
fn read(run: &Run, source: &External, what: &str, text: String) -> Result<(Arc<str>, Arc<str>), CallError> {
    let invalid = |why: String| CallError::new(CallReason::Invalid, format!("source {}: {what}: {why}", source.name));
    let things = external::read(&[text], &source.spec.id, &mut run.budget.lock());
    let things = things.map_err(|problem| invalid(problem.to_string()))?;
    things.into_iter().next().ok_or_else(|| invalid("there is none".to_owned()))
}
