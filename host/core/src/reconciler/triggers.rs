//! Decides which triggers of sources reach the queue: all but those that can only concern inactive dependents; and
//! how many counted.

use tokio::time::Instant;

use crate::queue::{Event, Queue, Receipt};
use crate::reconciler::verdicts::Verdicts;
use crate::source::{Trigger, TriggerKind};

/// The number of triggers that counted: those about primaries that the queue knows (`EP-1`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enqueued {
    /// Triggers of the primaries themselves.
    pub primary: u64,
    /// Triggers of objects that belong to them.
    pub secondary: u64,
}

/// Passes triggers on to the queue, and forgets primaries that are gone. Returns how many counted.
pub fn enqueue(queue: &Queue, verdicts: &Verdicts, triggers: Vec<Trigger>) -> Enqueued {
    let now = Instant::now();
    let mut heard = Enqueued::default();
    for Trigger { primary, what } in triggers {
        let (event, count) = match what {
            TriggerKind::Changed { deleting } => (Event::PrimaryChanged { deleting }, &mut heard.primary),
            TriggerKind::Deleted { unknown, .. } => {
                verdicts.forget(&primary);
                (Event::PrimaryDeleted { unknown }, &mut heard.primary)
            }
            TriggerKind::Related { source, object } => {
                if !verdicts.wakes(&primary, &source, &object) {
                    continue;
                }
                (Event::Related, &mut heard.secondary)
            }
        };
        match queue.event(&primary, event, now) {
            Receipt::Unknown => {}
            Receipt::Ignored | Receipt::Marked | Receipt::Removed => *count += 1,
        }
    }
    heard
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Gvk, Managers, Object};
    use crate::queue::Policy;

    #[test]
    fn what_is_said_of_primaries_that_are_known_counts_and_a_deletion_is_forgotten() {
        // EP-1
        let text = r#"{"metadata":{"namespace":"n","name":"a","uid":"u-1"}}"#;
        let gvk = Gvk::parse("sample.dev/v1", "Page").unwrap();
        let last = Object::parse(text, &gvk, &Managers::default()).unwrap();
        let (queue, verdicts) = (Queue::new(Policy::default()), Verdicts::default());
        let enqueue = |what| {
            let primary = last.key().clone();
            let Enqueued { primary, secondary } = enqueue(&queue, &verdicts, vec![Trigger { primary, what }]);
            (primary, secondary)
        };
        let deleting = false;
        let related = || TriggerKind::Related { source: "cm".into(), object: last.key().clone() };
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
}
