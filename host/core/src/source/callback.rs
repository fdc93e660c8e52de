//! Decides what the user's questions about objects may cost, and which of those that fail are logged: one line for each
//! cause in a while. All are counted.
//!
//! They are asked where events come in, for all controllers that watch the same. So each has a small budget of its own.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use crate::budget::{Budget, Exceeded, weight};
use crate::cel::{self, Expression};
use crate::guest::Failure;
use crate::lately::Lately;
use crate::object::{self, Object, ObjectRef};
use crate::text;

/// The steps that one question may take: about a millisecond.
const STEPS: u64 = 50_000;

/// The most memory that an object may take as a tree, in bytes, to be asked about.
const WEIGHT: usize = 16 << 20;

/// The time for which a failure of the same cause is not logged again.
const QUIET: Duration = Duration::from_mins(1);

/// The causes that are told apart; a failure of any more is counted only.
const CAUSES: usize = 64;

/// The most bytes of the name of an object that are logged: an answer may have any.
const NAMED: usize = 512;

/// The question that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callback {
    /// Whether a change matters.
    Filter,
    /// Which objects belong together.
    Mapper,
    /// Under which keys an object is found.
    Index,
    /// What there is outside of the cluster, or for whom that is asked.
    Poller,
    /// What a request from outside says.
    Inbound,
}

/// Why a question has no answer. Retrying does not help until the object or the manifest changes.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The object can't be read as a tree.
    #[error(transparent)]
    Object(#[from] object::Error),
    /// The expression failed.
    #[error(transparent)]
    Cel(#[from] cel::Failure),
}

/// The source that asks, and who takes its failures.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The name of the source.
    pub source: &'a str,
    /// Takes the failures.
    pub faults: &'a Faults,
}

/// The failures of the questions of one controller.
pub struct Faults {
    controller: Arc<str>,
    count: Box<dyn Fn(Callback) + Send + Sync>,
    /// The causes that were logged lately.
    logged: Mutex<Lately<String, ()>>,
}

/// Returns the budget of one question.
pub(super) fn cost() -> Budget {
    Budget::of(STEPS)
}

thread_local! {
    /// The objects that were asked about last, as trees: all questions about a change are asked one after another.
    static LAST: RefCell<VecDeque<(Object, Arc<Value>)>> = const { RefCell::new(VecDeque::new()) };

    /// How many [`Questions`] there are.
    static ASKING: Cell<usize> = const { Cell::new(0) };
}

/// The objects of a change: as it was, and as it is.
const OBJECTS: usize = 2;

/// Objects up to this length are kept as trees on a thread, whatever it does next; larger ones only while a change is asked about.
const SMALL: usize = 16 << 10;

/// While one is there, large objects are kept as trees, too, as more is asked about the same change.
pub(super) struct Questions(());

/// Begins to ask about a change.
pub(super) fn questions() -> Questions {
    ASKING.set(ASKING.get() + 1);
    Questions(())
}

impl Drop for Questions {
    fn drop(&mut self) {
        ASKING.set(ASKING.get().saturating_sub(1));
        if ASKING.get() == 0 {
            LAST.with_borrow_mut(|last| last.retain(|(object, _)| object.json().len() <= SMALL));
        }
    }
}

/// Returns what a question over a variable says of an object.
///
/// # Errors
/// [`Problem`].
pub fn wanted(question: &Expression, variable: &str, object: &Object) -> Result<bool, Problem> {
    let tree = if question.reads(variable) { read(object)? } else { Arc::new(Value::Null) };
    Ok(question.holds(&[(variable, &tree)], &mut cost())?)
}

/// Returns what a question says over these variables.
///
/// # Errors
/// [`Problem`].
pub fn holds(question: &Expression, variables: &[(&str, &Value)]) -> Result<bool, Problem> {
    Ok(question.holds(variables, &mut cost())?)
}

/// Returns an object as a tree, at a cost that depends on its size alone, and once for all that is asked about a change.
pub(super) fn read(object: &Object) -> Result<Arc<Value>, Problem> {
    LAST.with_borrow_mut(|last| {
        let same = |(known, _): &&(Object, Arc<Value>)| std::ptr::eq(known.json(), object.json());
        if let Some((_, tree)) = last.iter().find(same) {
            return Ok(Arc::clone(tree));
        }
        if weight(object.json()) > WEIGHT {
            return Err(object::Error::Tree(Exceeded::Weight(WEIGHT).into()).into());
        }
        let tree = Arc::new(object.tree(&mut Budget::of_run())?);
        if object.json().len() <= SMALL || ASKING.get() > 0 {
            last.truncate(OBJECTS - 1);
            last.push_front((object.clone(), Arc::clone(&tree)));
        }
        Ok(tree)
    })
}

// === impl Faults ===

impl Faults {
    /// Returns those of a controller; `count` is called for each.
    pub fn new(controller: &str, count: impl Fn(Callback) + Send + Sync + 'static) -> Self {
        Self { controller: controller.into(), count: Box::new(count), logged: Mutex::new(Lately::new(CAUSES, QUIET)) }
    }

    /// Returns true if a failure of this cause is to be logged now.
    fn takes(&self, callback: Callback, cause: String) -> bool {
        (self.count)(callback);
        is_due(&mut self.logged.lock(), cause, Instant::now())
    }
}

impl Asked<'_> {
    /// Counts a failure of what a field of the manifest asks about an object, and logs it if nothing was logged for the
    /// same cause lately.
    pub fn tell(self, callback: Callback, field: &str, object: &ObjectRef, problem: &Problem) {
        let Self { source, faults } = self;
        if faults.takes(callback, format!("{source} {field}: {problem}")) {
            let controller = &faults.controller;
            match callback {
                Callback::Filter => {
                    tracing::warn!(%controller, source, field, %object, %problem, "a filter has no answer: the event counts");
                }
                Callback::Mapper => {
                    tracing::warn!(%controller, source, field, %object, %problem, "a mapper has no answer: the object belongs to nothing");
                }
                Callback::Index => {
                    tracing::warn!(%controller, source, index = field, %object, %problem, "an index has no answer: the object has no keys in it");
                }
                Callback::Poller | Callback::Inbound => {
                    tracing::warn!(%controller, source, field, %object, %problem, "whether a primary is polled has no answer: it is");
                }
            }
        }
    }

    /// Counts that an export which a field of the manifest names has no answer about an object, and logs it if nothing was logged for
    /// the same cause lately.
    pub fn tell_of_export(self, callback: Callback, field: &str, object: &ObjectRef, failure: &Failure) {
        let Self { source, faults } = self;
        if !faults.takes(callback, format!("{source} {field}: {failure}")) {
            return;
        }
        let (controller, error) = (&faults.controller, &failure.message);
        match (callback, field) {
            (Callback::Filter, _) => {
                tracing::warn!(%controller, source, field, %object, %error, "a filter has no answer: the event counts");
            }
            (_, "secondaries") => {
                tracing::warn!(%controller, source, field, %object, %error, "a mapper has no answer: what belongs to the primary is not known");
            }
            (_, _) => {
                tracing::warn!(%controller, source, field, %object, %error, "a mapper has no answer: what was known of the object stays, and it is asked again");
            }
        }
    }

    /// Counts that what a field of the manifest answers about an object leads into another namespace, where nothing lets it, and logs it if
    /// that was not logged for the field lately, whatever it answers: that may be of any who write such objects.
    pub fn tell_of_reach(self, field: &str, object: &ObjectRef, other: &ObjectRef) {
        let Self { source, faults } = self;
        if faults.takes(Callback::Mapper, format!("{source} {field} leads into another namespace")) {
            let (controller, other) = (&faults.controller, other.to_string());
            let other = text::said_within(&other, NAMED);
            tracing::warn!(%controller, source, field, %object, %other, "a mapper leads into another namespace, which is ignored: it takes `acrossNamespaces: true` on the source");
        }
    }

    /// Counts a request from outside that was not taken in as a whole, and logs it if none of the same `kind` was logged lately, whatever the
    /// `error` says: that may be the sender's.
    pub fn tell_of_request(self, kind: &str, error: &str) {
        let Self { source, faults } = self;
        if faults.takes(Callback::Inbound, format!("{source}: {kind}")) {
            let controller = &faults.controller;
            tracing::warn!(%controller, source, kind, %error, "a request from outside was not taken in as a whole");
        }
    }

    /// Logs that what a run has written is no primary's, as something is missing by which it would be found, if that was not logged lately.
    pub fn tell_of_stray(self, object: &ObjectRef, missing: &str) {
        let Self { source, faults } = self;
        if is_due(&mut faults.logged.lock(), format!("{source} without {missing}"), Instant::now()) {
            let controller = &faults.controller;
            tracing::warn!(%controller, source, %object, missing, "what was written belongs to no primary: its changes cause no run; give it what is missing");
        }
    }

    /// Counts a poll that has failed, for a primary or for all, and logs it if nothing was logged for the same cause lately.
    pub fn tell_of_poll(self, primary: Option<&ObjectRef>, failures: u32, error: &str) {
        let Self { source, faults } = self;
        if faults.takes(Callback::Poller, format!("{source}: {error}")) {
            let (controller, primary) = (&faults.controller, primary.map(ToString::to_string));
            tracing::warn!(%controller, source, primary, failures, %error, "a poll has failed: what was known stays, and it is tried again");
        }
    }
}

impl Default for Faults {
    /// Returns those of nobody, which are not counted.
    fn default() -> Self {
        Self::new("", |_| ())
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Faults({})", self.controller)
    }
}

/// Decides whether a cause is logged now.
fn is_due(logged: &mut Lately<String, ()>, cause: String, now: Instant) -> bool {
    logged.get(&cause, now).is_none() && logged.put(cause, (), now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Gvk, Managers};

    #[test]
    fn large_objects_are_kept_as_trees_only_while_a_change_is_asked_about() {
        let object = |size: usize| {
            let text = format!(r#"{{"metadata":{{"name":"a"}},"data":"{}"}}"#, "x".repeat(size));
            Object::parse(&text, &Gvk::parse("v1", "ConfigMap").unwrap(), &Managers::default()).unwrap()
        };
        let (small, large) = (object(10), object(SMALL));
        let kept = |object: &Object| LAST.with_borrow(|last| last.iter().any(|(known, _)| known == object));
        read(&small).unwrap();
        read(&large).unwrap();
        assert_eq!((kept(&small), kept(&large)), (true, false));
        {
            let _outer = questions();
            {
                let _inner = questions();
                read(&large).unwrap();
            }
            assert!(kept(&large), "more is asked");
        }
        assert_eq!((kept(&small), kept(&large)), (true, false));
    }

    #[test]
    fn a_cause_is_logged_once_in_a_while_and_too_many_are_not() {
        let (start, mut logged) = (Instant::now(), Lately::new(CAUSES, QUIET));
        for (seconds, cause, due) in
            [(0, "a", true), (1, "a", false), (2, "b", true), (59, "a", false), (60, "a", true), (61, "a", false)]
        {
            let now = start + Duration::from_secs(seconds);
            assert_eq!(is_due(&mut logged, cause.to_owned(), now), due, "{cause} after {seconds} s");
        }
        let many = (0..2 * CAUSES).filter(|n| is_due(&mut logged, n.to_string(), start + QUIET)).count();
        assert_eq!((many, logged.count()), (CAUSES - 2, CAUSES));
    }
}
