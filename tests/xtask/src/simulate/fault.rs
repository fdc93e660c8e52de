//! Decides which faults simulations have to find: such as the daemon has had, or nearly.

use crate::copies::Edit;

/// A fault, as a change of one place.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    /// Where the place is.
    pub(crate) file: &'static str,
    /// What is there.
    pub(crate) right: &'static str,
    /// What would be there.
    pub(crate) wrong: &'static str,
}

impl Fault {
    /// Returns the change that puts it where it belongs.
    pub(crate) fn edit(&self) -> Edit<'static> {
        Edit { file: self.file, from: self.right, to: self.wrong }
    }
}

pub(crate) const FAULTS: [Fault; 11] = [
    Fault {
        name: "deaf-to-siblings",
        what: "what a component writes of another primary is no news to that one",
        file: "host/core/src/writes/context.rs",
        right: "!Arc::ptr_eq(source, self.primaries) || key == primary.key()",
        wrong: "true",
    },
    Fault {
        name: "read-as-written",
        what: "what was only read counts as an own write",
        file: "host/core/src/reconciler/primary.rs",
        right: "            Settled::Read(now) => {
                self.primaries.put(now.clone());
                Some(self.primaries.cut(now))
            }",
        wrong: "            Settled::Read(now) => {
                window.wrote(now.clone());
                Some(self.primaries.cut(now))
            }",
    },
    Fault {
        name: "writes-forgotten",
        what: "what was written before the manifest changed is not read after it",
        file: "host/src/controller/sources.rs",
        right: "Some(known) => Source::heir(spec.clone(), known),",
        wrong: "Some(_) => Source::new(spec.clone()),",
    },
    Fault {
        name: "made-again-unnoticed",
        what: "a primary that was made again goes on where the one before ended",
        file: "host/core/src/object/change.rs",
        right: "(old.header().uid != new.header().uid).then_some(old)",
        wrong: "(false && old.header().uid != new.header().uid).then_some(old)",
    },
    Fault {
        name: "swap-runs-all",
        what: "a change of what is watched runs primaries that stay",
        file: "host/core/src/source/places.rs",
        right: "let (mut seen, mut shown) = (by_key(self.list(namespace)), by_key(self.shown(namespace)));",
        wrong: "let (mut seen, mut shown) = (by_key(Vec::new()), by_key(self.shown(namespace)));",
    },
    Fault {
        name: "unreadable-as-gone",
        what: "what can't be read counts as deleted if a list has it",
        file: "host/src/informer.rs",
        right: "if writer.quarantine(key.as_ref()) {",
        wrong: "if key.is_none() {",
    },
    Fault {
        name: "no-op-as-written",
        what: "a write that changes nothing hides what somebody else has changed",
        file: "host/core/src/source/write.rs",
        right: "if self.is_alone(&answer) && managed_fields::is_our_change(self.known.as_ref(), &answer, manager) {",
        wrong: "if !manager.is_empty() {",
    },
    Fault {
        name: "windows-stay",
        what: "an own write that no watch shows is waited for without end",
        file: "host/src/informer.rs",
        right: "subscriber.tell(subscriber.source.passed(namespace));",
        wrong: "let _ = (subscriber, namespace);",
    },
    Fault {
        name: "heir-without-look-ups",
        what: "a source that takes the place of another does not find what has changed meanwhile",
        file: "host/core/src/source/places.rs",
        right: "vec![News::Known(new.clone()), News::Changed(Change::Updated { old, new })]",
        wrong: "vec![News::Changed(Change::Updated { old, new })]",
    },
    Fault {
        name: "status-unread",
        what: "what a run has written to its primary is not read by the next",
        file: "host/core/src/reconciler/primary.rs",
        right: "self.verdicts.keep_verdict(&object, &slot, verdict);
        self.primaries.put(object);",
        wrong: "self.verdicts.keep_verdict(&object, &slot, verdict);",
    },
    Fault {
        name: "unserved-as-gone",
        what: "what is of a kind that is not served counts as deleted",
        file: "host/src/client/answer.rs",
        right: "Err(error) if deletes && error.reason == Reason::Missing => Ok(None),",
        wrong: "Err(error) if deletes && error.code == 404 => Ok(None),",
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
            let text = std::fs::read_to_string(root.join(fault.file)).unwrap();
            assert_ne!(fault.edit().of(&text).unwrap(), text, "{}", fault.name);
        }
    }
}
