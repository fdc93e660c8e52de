//! Decides which triggers of sources reach the queue: all but those that can only concern inactive dependents; and
//! how many counted.

use tokio::time::Instant;

use crate::object::Object;
use crate::queue::{Event, Queue, Receipt, Urgency};
use crate::reconciler::departed::Trace;
use crate::reconciler::verdicts::Verdicts;
use crate::room::Holding;
use crate::source::{Trigger, TriggerKind};

/// The number of triggers that counted: those about primaries that the queue knows (`EP-1`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enqueued {
    /// Triggers of the primaries themselves.
    pub primary: u64,
    /// Triggers of objects that belong to them.
    pub secondary: u64,
}

/// Passes triggers on to the queue, and forgets primaries that are gone; in all-events mode once a run about that has
/// succeeded. `holding` returns the memory that the plugin borrows for their last known objects. Returns how many counted.
pub fn enqueue(
    queue: &Queue,
    verdicts: &Verdicts,
    triggers: Vec<Trigger>,
    holding: impl Fn() -> Option<Holding>,
) -> Enqueued {
    let now = Instant::now();
    let mut heard = Enqueued::default();
    for Trigger { primary, what, urgency } in triggers {
        let (event, count) = match what {
            TriggerKind::Changed { deleting } => (Event::PrimaryChanged { deleting }, &mut heard.primary),
            TriggerKind::Deleted { last, unknown } => {
                (depart(queue, verdicts, &last, unknown, &holding), &mut heard.primary)
            }
            TriggerKind::Related { source, object, gone: _ } => {
                if !verdicts.wakes(&primary, &source, &object) {
                    continue;
                }
                (Event::Related, &mut heard.secondary)
            }
        };
        let receipt = match urgency {
            Urgency::Fresh => queue.event(&primary, event, now),
            Urgency::Replayed => queue.replay(&primary, event, now),
        };
        match receipt {
            Receipt::Unknown => {}
            Receipt::Ignored | Receipt::Marked => *count += 1,
            Receipt::Removed => {
                verdicts.departed.forget_named(&primary);
                *count += 1;
            }
        }
    }
    heard
}

/// Takes in that a primary is gone, and returns what the queue is told of it: in all-events mode a run about that follows,
/// for which the last known object is kept (`AE-2`).
fn depart(
    queue: &Queue,
    verdicts: &Verdicts,
    last: &Object,
    unknown: bool,
    holding: impl FnOnce() -> Option<Holding>,
) -> Event {
    if !queue.runs_deletions() {
        verdicts.forget_of(last);
        return Event::PrimaryDeleted { unknown };
    }
    let former = verdicts.departed.get(last.key()).filter(|former| former.header().uid != last.header().uid);
    if let Some(former) = former {
        let (uid, key) = (&former.header().uid, last.key());
        tracing::warn!(%key, %uid, "nothing more runs about the deletion of a primary: another one of its name has gone before that has succeeded");
    }
    match verdicts.departed.keep(last, holding) {
        Trace::Whole => Event::PrimaryDeleted { unknown },
        Trace::Name => {
            tracing::warn!(key = %last.key(), "the run about the deletion of a primary gets only its name and uid: there is no memory to keep its last state in");
            Event::PrimaryDeleted { unknown: true }
        }
        Trace::Nothing => {
            tracing::warn!(key = %last.key(), "nothing runs about the deletion of a primary: there is no memory to keep its name in");
            verdicts.forget_of(last);
            Event::PrimaryForgotten
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Gvk, Managers};
    use crate::queue::{Mode, Policy};
    use crate::room::Room;

    #[test]
    fn what_is_said_of_primaries_that_are_known_counts_and_a_deletion_is_forgotten() {
        // EP-1
        let text = r#"{"metadata":{"namespace":"n","name":"a","uid":"u-1"}}"#;
        let gvk = Gvk::parse("sample.dev/v1", "Page").unwrap();
        let last = Object::parse(text, &gvk, &Managers::default()).unwrap();
        let (queue, verdicts) = (Queue::new(Policy::default()), Verdicts::default());
        let enqueue = |what| {
            let primary = last.key().clone();
            let Enqueued { primary, secondary } =
                enqueue(&queue, &verdicts, vec![Trigger { primary, what, urgency: Urgency::Fresh }], || None);
            (primary, secondary)
        };
        let deleting = false;
        let related = || TriggerKind::Related { source: "cm".into(), object: last.key().clone(), gone: false };
        assert_eq!(enqueue(related()), (0, 0), "not known yet");
        assert_eq!(enqueue(TriggerKind::Changed { deleting }), (1, 0));
        assert_eq!(enqueue(related()), (0, 1));
        let kept =
            |memos: &mut super::super::memos::Memos| memos.keep("m", Some("x".to_owned()), (64, "limit"), || None);
        verdicts.change_memos(&last, kept).unwrap();
        let gone = TriggerKind::Deleted { last: last.clone(), unknown: false };
        assert_eq!(enqueue(gone), (1, 0));
        assert_eq!(verdicts.memo(&last, "m"), None);
        assert_eq!(enqueue(related()), (0, 0), "not known any more");
    }

    #[test]
    fn in_all_events_mode_what_is_known_of_a_primary_stays_for_the_run_about_its_end() {
        // AE-2
        let text = r#"{"metadata":{"namespace":"n","name":"a","uid":"u-1"}}"#;
        let gvk = Gvk::parse("sample.dev/v1", "Page").unwrap();
        let last = Object::parse(text, &gvk, &Managers::default()).unwrap();
        let gone = || Trigger {
            primary: last.key().clone(),
            what: TriggerKind::Deleted { last: last.clone(), unknown: true },
            urgency: Urgency::Fresh,
        };
        let queue = Queue::new(Policy { mode: Mode::AllEvents, ..Policy::default() });
        let verdicts = Verdicts::default();
        let enqueue = |holding: &dyn Fn() -> Option<Holding>| enqueue(&queue, &verdicts, vec![gone()], holding);
        enqueue(&|| None);
        assert!(!verdicts.departed.has(last.key()), "it is not running yet (EP-3)");
        queue.start(Instant::now());
        let kept =
            |memos: &mut super::super::memos::Memos| memos.keep("m", Some("x".to_owned()), (64, "limit"), || None);
        verdicts.change_memos(&last, kept).unwrap();
        enqueue(&|| None);
        assert_eq!(verdicts.departed.get(last.key()), Some(last.clone()));
        assert!(verdicts.memo(&last, "m").is_some());
        assert!(queue.awaits_deletion_run(last.key()));
        // Without memory for it, there is nothing to run about.
        verdicts.departed.retain(|_| false);
        let full = Room::new(0);
        enqueue(&|| Some(full.holding(&"p".into())));
        assert!(!verdicts.departed.has(last.key()) && !queue.awaits_deletion_run(last.key()));
        assert_eq!((verdicts.memo(&last, "m"), queue.len()), (None, 0));
    }
}
