//! Decides which primaries run because of what has become of their things outside of the cluster: by the filters of the source (XC-7).

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::callbacks::Callbacks;
use super::controller::Controller;
use crate::budget::Budget;
use crate::cel::Expression;
use crate::cpu;
use crate::external::{Change, Differs, External};
use crate::guest::{Cause, Changed, Failure};
use crate::manifest::Filters;
use crate::manifest::filters::{OBJECT, OLD_OBJECT, Question, UNKNOWN};
use crate::object::{self, ObjectRef};
use crate::queue::Urgency;
use crate::source::callback::{self, Asked, Callback, Problem};
use crate::source::{RESTS, Trigger, TriggerKind};

/// After so many changes others that wait for the processor have their turn.
const SOME: usize = 16;

/// How it is known that a thing is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Somebody has said so.
    Told,
    /// It is missing in what was read: there may have been later states of it.
    Missed,
}

/// Primaries whose things have changed. Those of which it is not known yet whether they run when this is dropped do: nobody else would
/// tell of them.
struct Untold<'a> {
    controller: &'a Controller,
    source: &'a External,
    /// Those to be asked about, the next one last.
    left: Vec<Differs>,
    told: Vec<ObjectRef>,
}

/// The filters of a source.
struct Asking<'a> {
    filters: &'a Filters,
    asked: Asked<'a>,
    end: End,
    callbacks: Callbacks,
    /// The fields whose exports have taken too long: they are not asked again about this answer.
    slow: BTreeSet<&'static str>,
}

/// Has those primaries run of whose changes a filter lets at least one pass (`XC-1`). No session may be open that holds a permit.
pub(super) async fn tell_of(controller: &Arc<Controller>, source: &External, mut changed: Vec<Differs>, end: End) {
    changed.retain(|one| may_be(controller, &one.primary));
    changed.reverse();
    let mut untold = Untold { controller, source, left: changed, told: Vec::new() };
    let filters = controller.spec.externals.get(&source.name).map(|spec| &spec.filters);
    let Some(filters) = filters.filter(|filters| **filters != Filters::default()) else {
        return;
    };
    let asked = Asked { source: &source.name, faults: &controller.primaries.spec().faults };
    let callbacks = {
        let controller = Arc::clone(controller);
        Callbacks::beside(move || Some(Arc::clone(&controller)))
    };
    let mut asking = Asking { filters, asked, end, callbacks, slow: BTreeSet::new() };
    while let Some(next) = untold.left.last() {
        let passes = asking.passes(next).await;
        let asked = untold.left.pop().filter(|_| passes);
        untold.told.extend(asked.map(|Differs { primary, .. }| primary));
    }
}

/// Has primaries run whose things have changed, if they are there, or may be.
pub(super) fn tell(controller: &Controller, source: &External, primaries: Vec<ObjectRef>) {
    let triggers: Vec<_> = primaries
        .into_iter()
        .filter(|primary| may_be(controller, primary))
        .map(|primary| {
            let what = TriggerKind::Related { source: Arc::clone(&source.name), object: primary.clone(), gone: false };
            Trigger { primary, what, urgency: Urgency::Fresh }
        })
        .collect();
    if !triggers.is_empty() {
        (controller.tell)(triggers);
    }
}

fn may_be(controller: &Controller, primary: &ObjectRef) -> bool {
    !matches!(controller.primaries.look(primary), Ok(None))
}

impl Drop for Untold<'_> {
    fn drop(&mut self) {
        let Self { controller, source, left, told } = self;
        let left = std::mem::take(left).into_iter().rev().map(|Differs { primary, .. }| primary);
        tell(controller, source, std::mem::take(told).into_iter().chain(left).collect());
    }
}

// === impl Asking ===

impl Asking<'_> {
    /// Returns whether a change of one of the primary's things passes.
    async fn passes(&mut self, Differs { primary, things }: &Differs) -> bool {
        for (number, change) in things.iter().enumerate() {
            // Expressions never wait, and there may be many of them.
            if number % SOME == 0 {
                cpu::rest().await;
            }
            if self.accepts(primary, change).await {
                return true;
            }
        }
        false
    }

    /// Returns whether both questions about a change say yes. One without an answer counts as such: a run too many does no harm.
    async fn accepts(&mut self, primary: &ObjectRef, change: &Change) -> bool {
        let Filters { on_add, on_update, on_delete, generic } = self.filters;
        let specific = match change {
            Change::Added(_) => ("onAdd", on_add),
            Change::Updated { .. } => ("onUpdate", on_update),
            Change::Removed(_) => ("onDelete", on_delete),
        };
        let questions = [specific, ("generic", generic)];
        let questions = questions.into_iter().filter_map(|(field, question)| Some((field, question.as_ref()?)));
        let (cel, exports): (Vec<_>, Vec<_>) = questions.partition(|(_, question)| question.cel().is_some());
        // The component is asked last: that costs most.
        for (field, question) in cel.into_iter().chain(exports) {
            let said = match question {
                Question::Cel(cel) => {
                    let said = holds(cel, change, self.end);
                    said.map_err(|problem| self.asked.tell(Callback::Filter, field, primary, &problem)).ok()
                }
                Question::Export(name) => self.said(primary, (field, name), change).await,
            };
            if said == Some(false) {
                return false;
            }
        }
        true
    }

    /// Returns what the component says of a change; `None` if it has no answer, which is counted and logged.
    async fn said(
        &mut self,
        primary: &ObjectRef,
        (field, name): (&'static str, &str),
        change: &Change,
    ) -> Option<bool> {
        let changed = match change {
            Change::Added(thing) => Changed::Added(thing),
            Change::Updated { before, now } => Changed::Updated { before, after: now },
            Change::Removed(last) => Changed::Deleted { last, unknown: self.end == End::Missed },
        };
        let answer = if self.slow.contains(field) {
            Err(Failure::other(RESTS))
        } else {
            self.callbacks.accepts_change(name, changed).await
        };
        answer
            .map_err(|failure| {
                if failure.cause == Cause::Timeout {
                    self.slow.insert(field);
                }
                self.asked.tell_of_export(Callback::Filter, field, primary, &failure);
            })
            .ok()
    }
}

/// Returns what an expression says of a change.
fn holds(question: &Expression, change: &Change, end: End) -> Result<bool, Problem> {
    let mut budget = Budget::of_run();
    let mut tree = |variable, thing: &str| -> Result<Arc<Value>, Problem> {
        let read = question.reads(variable).then(|| budget.read(thing)).transpose();
        Ok(Arc::new(read.map_err(object::Error::from)?.unwrap_or_default()))
    };
    let (object, (name, other)) = match change {
        Change::Added(now) => (tree(OBJECT, now)?, (OLD_OBJECT, Arc::default())),
        Change::Updated { before, now } => (tree(OBJECT, now)?, (OLD_OBJECT, tree(OLD_OBJECT, before)?)),
        Change::Removed(last) => (tree(OBJECT, last)?, (UNKNOWN, Arc::new(Value::Bool(end == End::Missed)))),
    };
    callback::holds(question, &[(OBJECT, &object), (name, &other)])
}
