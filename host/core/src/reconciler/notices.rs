//! Passes on to the queue what sources say of primaries, unless only inactive dependents could mind, and says how much of it counted.

use tokio::time::Instant;

use crate::queue::{Event, Queue, Receipt};
use crate::reconciler::memory::Memory;
use crate::source::{Notice, What};

/// How many notices counted: those about primaries that the queue knows (`EP-1`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Of the primaries themselves.
    pub primary: u64,
    /// Of what belongs to them.
    pub secondary: u64,
}

/// Passes on what sources have to say, and forgets primaries that are gone.
pub fn hear(queue: &Queue, memory: &Memory, notices: Vec<Notice>) -> Heard {
    let now = Instant::now();
    let mut heard = Heard::default();
    for Notice { primary, what } in notices {
        let (event, count) = match what {
            What::Changed { deleting } => (Event::PrimaryChanged { deleting }, &mut heard.primary),
            What::Deleted { unknown, .. } => {
                memory.forget(&primary);
                (Event::PrimaryDeleted { unknown }, &mut heard.primary)
            }
            What::Related { source, object } => {
                if !memory.wakes(&primary, &source, &object) {
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
        let (queue, memory) = (Queue::new(Policy::default()), Memory::default());
        let hear = |what| {
            let primary = last.key().clone();
            let Heard { primary, secondary } = hear(&queue, &memory, vec![Notice { primary, what }]);
            (primary, secondary)
        };
        let deleting = false;
        let related = || What::Related { source: "cm".into(), object: last.key().clone() };
        assert_eq!(hear(related()), (0, 0), "not known yet");
        assert_eq!(hear(What::Changed { deleting }), (1, 0));
        assert_eq!(hear(related()), (0, 1));
        let kept =
            |memos: &mut super::super::memos::Memos| memos.keep("m", Some("x".to_owned()), (64, "limit"), || None);
        memory.change_memos(&last, kept).unwrap();
        let gone = What::Deleted { last: last.clone(), unknown: false };
        assert_eq!(hear(gone), (1, 0));
        assert_eq!(memory.memo(&last, "m"), None);
        assert_eq!(hear(related()), (0, 0), "not known any more");
    }
}
