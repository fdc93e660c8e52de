//! Decides which faults simulations have to find: such as the daemon has had, or nearly.

use crate::copies::Edit;

/// A fault, as a change of one place, or of several that are in each other's way.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    /// The changes that put it where it belongs.
    pub(crate) edits: &'static [Edit<'static>],
}

pub(crate) const FAULTS: [Fault; 11] = [
    Fault {
        name: "deaf-to-siblings",
        what: "what a component writes of another primary is no news to that one",
        edits: &[Edit {
            file: "host/core/src/writes/context.rs",
            from: "!Arc::ptr_eq(source, self.primaries) || key == primary.key()",
            to: "true",
        }],
    },
    Fault {
        name: "read-as-written",
        what: "what was only read counts as an own write",
        edits: &[Edit {
            file: "host/core/src/reconciler/primary.rs",
            from: "            Settled::Read(now) => {
                self.primaries.put(now.clone());
                Some(self.primaries.cut(now))
            }",
            to: "            Settled::Read(now) => {
                window.wrote(now.clone());
                Some(self.primaries.cut(now))
            }",
        }],
    },
    Fault {
        name: "writes-forgotten",
        what: "what was written before the manifest changed is not read after it",
        edits: &[Edit {
            file: "host/src/controller/sources.rs",
            from: "Some(known) => Source::heir(spec.clone(), known),",
            to: "Some(_) => Source::new(spec.clone()),",
        }],
    },
    Fault {
        name: "made-again-unnoticed",
        what: "a primary that was made again goes on where the one before ended",
        edits: &[
            Edit {
                file: "host/core/src/object/change.rs",
                from: "(old.header().uid != new.header().uid).then_some(old)",
                to: "(false && old.header().uid != new.header().uid).then_some(old)",
            },
            Edit {
                file: "host/core/src/reconciler/verdicts.rs",
                from: "(self.uid == primary.header().uid).then_some(self)",
                to: "(true || self.uid == primary.header().uid).then_some(self)",
            },
        ],
    },
    Fault {
        name: "swap-runs-all",
        what: "a change of what is watched runs primaries that stay",
        edits: &[Edit {
            file: "host/core/src/source/places.rs",
            from: "let (mut seen, mut shown) = (by_key(self.list(namespace)), by_key(self.shown(namespace)));",
            to: "let (mut seen, mut shown) = (by_key(Vec::new()), by_key(self.shown(namespace)));",
        }],
    },
    Fault {
        name: "unreadable-as-gone",
        what: "what can't be read counts as deleted if a list has it",
        edits: &[Edit {
            file: "host/src/informer.rs",
            from: "if writer.quarantine(key.as_ref()) {",
            to: "if key.is_none() {",
        }],
    },
    Fault {
        name: "no-op-as-written",
        what: "a write that changes nothing hides what somebody else has changed",
        edits: &[Edit {
            file: "host/core/src/source/write.rs",
            from: "if self.is_alone(&answer) && managed_fields::is_our_change(self.known.as_ref(), &answer, manager) {",
            to: "if !manager.is_empty() {",
        }],
    },
    Fault {
        name: "windows-stay",
        what: "an own write that no watch shows is waited for without end",
        edits: &[Edit {
            file: "host/src/informer.rs",
            from: "subscriber.tell(subscriber.source.passed(namespace));",
            to: "let _ = (subscriber, namespace);",
        }],
    },
    Fault {
        name: "heir-without-look-ups",
        what: "a source that takes the place of another does not find what has changed meanwhile",
        edits: &[Edit {
            file: "host/core/src/source/places.rs",
            from: "vec![News::Known(new.clone()), News::Changed(Change::Updated { old, new })]",
            to: "vec![News::Changed(Change::Updated { old, new })]",
        }],
    },
    Fault {
        name: "status-unread",
        what: "what a run has written to its primary is not read by the next",
        edits: &[Edit {
            file: "host/core/src/reconciler/primary.rs",
            from: "self.verdicts.keep_verdict(&object, &slot, verdict);
        self.primaries.put(object);",
            to: "self.verdicts.keep_verdict(&object, &slot, verdict);",
        }],
    },
    Fault {
        name: "unserved-as-gone",
        what: "what is of a kind that is not served counts as deleted",
        edits: &[Edit {
            file: "host/src/client/answer.rs",
            from: "Err(error) if deletes && error.reason == Reason::Missing => Ok(None),",
            to: "Err(error) if deletes && error.code == 404 => Ok(None),",
        }],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Workspace;

    #[test]
    fn each_fault_has_its_place() {
        let root = Workspace::load().unwrap().root;
        for fault in &FAULTS {
            for edit in fault.edits {
                let text = std::fs::read_to_string(root.join(edit.file)).unwrap();
                assert_ne!(edit.of(&text).unwrap(), text, "{}", fault.name);
            }
        }
    }
}
