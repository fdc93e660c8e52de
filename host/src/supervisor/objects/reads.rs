//! Decides which operator of the cluster is read next.
//!
//! To read one compiles all that it says in CEL, which may take a second. So one is read at a time, on a thread of its own, and the namespaces
//! take turns: each rests for several times as long as its last one took, so that whoever changes many operators all the time has a fifth of a
//! core at most, and delays others by one (`OP-9`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::object::Object;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::posted::Under;

/// So many times as long as it took to read one of its operators a namespace rests.
const REST: u32 = 4;

/// The longest rest.
const LONGEST: Duration = Duration::from_secs(10);

/// Who rests.
#[derive(Default)]
pub(super) struct Reads(Mutex<State>);

#[derive(Default)]
struct State {
    /// Until when namespaces rest.
    rests: BTreeMap<Arc<str>, Instant>,
    /// The namespace of which one was read last.
    last: Arc<str>,
}

/// What is to be done next.
#[derive(Debug)]
pub(super) enum Turn {
    /// An operator is to be read, under this.
    Read(Object, Under),
    /// All that are to be read are of namespaces that rest, until then.
    Rest(Instant),
    /// None is to be read.
    Nothing,
}

impl Reads {
    /// Returns the next of the operators that are to be read: of the namespace after the one of which the last was, of those that do not rest.
    pub(super) fn next(&self, unread: Vec<(Object, Under)>, now: Instant) -> Turn {
        let mut state = self.0.lock();
        state.rests.retain(|_, until| *until > now);
        let home = |object: &Object| object.key().namespace.clone().unwrap_or_default();
        let rests = |state: &State, home: &Arc<str>| state.rests.get(home).copied();
        let soonest = unread.iter().filter_map(|(object, _)| rests(&state, &home(object))).min();
        let awake = unread.into_iter().filter(|(object, _)| rests(&state, &home(object)).is_none());
        // Those after the last come first, and then the others.
        let next = awake.min_by_key(|(object, _)| {
            let home = home(object);
            (home <= state.last, home, Arc::clone(&object.key().name))
        });
        match (next, soonest) {
            (Some((object, under)), _) => {
                state.last = home(&object);
                Turn::Read(object, under)
            }
            (None, Some(until)) => Turn::Rest(until),
            (None, None) => Turn::Nothing,
        }
    }

    /// Has a namespace rest of which one was read, which took so long. Nobody rests for what is the daemon's own.
    pub(super) fn took(&self, object: &Object, under: &Under, took: Duration, now: Instant) {
        if let (Some(namespace), Under::Ceiling(_) | Under::Nothing) = (&object.key().namespace, under) {
            let until = now + (took * REST).min(LONGEST);
            self.0.lock().rests.insert(Arc::clone(namespace), until);
        }
    }
}

#[cfg(test)]
mod tests {
    use capstan_core::object::{Gvk, Managers};

    use super::*;

    fn object(namespace: &str, name: &str) -> Object {
        let text = format!(r#"{{"metadata":{{"namespace":"{namespace}","name":"{name}","uid":"u","generation":1}}}}"#);
        Object::parse(&text, &Gvk::parse("capstan.dev/v1alpha1", "Operator").unwrap(), &Managers::default()).unwrap()
    }

    #[test]
    fn namespaces_take_turns_and_each_rests_for_four_times_as_long_as_its_last_took() {
        // OP-9
        let (reads, start) = (Reads::default(), Instant::now());
        let all = || {
            [("a", "1"), ("a", "2"), ("b", "1"), ("c", "1")].map(|(home, name)| (object(home, name), Under::Nothing))
        };
        let next = |unread: Vec<(Object, Under)>, now| match reads.next(unread, now) {
            Turn::Read(object, _) => object.key().to_string(),
            Turn::Rest(until) => format!("rests for {:?}", until - now),
            Turn::Nothing => "nothing".to_owned(),
        };
        let took = |home: &str, seconds| {
            reads.took(&object(home, "1"), &Under::Nothing, Duration::from_secs(seconds), start);
        };
        assert_eq!([(); 4].map(|()| next(all().into(), start)), ["a/1", "b/1", "c/1", "a/1"]);
        took("a", 1);
        took("b", 2);
        assert_eq!([(); 2].map(|()| next(all().into(), start)), ["c/1", "c/1"], "the others rest");
        took("c", 60);
        assert_eq!(next(all().into(), start), "rests for 4s");
        assert_eq!(next(all().into(), start + Duration::from_secs(4)), "a/1");
        assert_eq!(next(all().into(), start + Duration::from_secs(9)), "b/1");
        assert_eq!(next(all().into(), start + LONGEST), "c/1", "nobody rests for longer");
        assert_eq!(next(vec![], start), "nothing");
    }
}
