//! Keeps whose things are to be read because a request has said that they have changed, until a poll that began later has succeeded (IB-6).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::schedule::Turn;
use super::{Began, External};
use crate::object::ObjectRef;

/// The time after which a primary is polled again whose things could not be told from one answer.
const SETTLES: Duration = Duration::from_secs(5);

/// The primaries that are to be polled.
#[derive(Default)]
pub(super) struct Asks {
    state: Mutex<State>,
    came: Notify,
}

#[derive(Default)]
struct State {
    open: BTreeMap<ObjectRef, Ask>,
    /// Those of which nobody has been told.
    fresh: BTreeSet<ObjectRef>,
}

/// That a primary is to be polled.
struct Ask {
    uid: Box<str>,
    at: Instant,
    /// Polls that have begun before this don't count.
    since: u64,
}

// === impl Asks ===

impl Asks {
    /// Takes in that a poll has succeeded, for the primaries that it `concerns`.
    pub(super) fn settle(&self, Began(began): Began, concerns: impl Fn(&ObjectRef) -> bool) {
        let settled = |key: &ObjectRef, ask: &Ask| ask.since < began && concerns(key);
        self.state.lock().open.retain(|key, ask| !settled(key, ask));
    }

    /// Forgets a primary, unless it has this uid.
    pub(super) fn forget(&self, primary: &ObjectRef, but: Option<&str>) {
        let mut state = self.state.lock();
        if state.open.get(primary).is_some_and(|ask| but.is_none_or(|uid| *ask.uid != *uid)) {
            state.open.remove(primary);
        }
    }
}

impl External {
    /// Takes in that the things of a primary are to be read at this time: it is in what [`External::asked`] returns until that has been done.
    pub fn ask(&self, (primary, uid): (&ObjectRef, &str), at: Instant) {
        let since = self.state.lock().doubts.tick();
        let mut state = self.asks.state.lock();
        let known = state.open.get(primary).filter(|ask| *ask.uid == *uid).map(|ask| ask.at);
        let at = known.map_or(at, |known| known.min(at));
        state.open.insert(primary.clone(), Ask { uid: uid.into(), at, since });
        state.fresh.insert(primary.clone());
        self.asks.came.notify_one();
    }

    /// Waits until primaries are to be polled, and returns them with the time of that. Each is returned once, until it is asked for again.
    pub async fn asked(&self) -> Vec<(Turn, Instant)> {
        loop {
            {
                let State { open, fresh } = &mut *self.asks.state.lock();
                let mut asked = Vec::new();
                for primary in std::mem::take(fresh) {
                    if let Some(Ask { uid, at, .. }) = open.get(&primary) {
                        asked.push((Turn { uid: uid.clone(), primary }, *at));
                    }
                }
                if !asked.is_empty() {
                    return asked;
                }
            }
            self.asks.came.notified().await;
        }
    }

    /// Has all returned again that have not been polled since they were asked for: whoever was told of them before is not there any more.
    pub fn ask_on(&self) {
        let State { open, fresh } = &mut *self.asks.state.lock();
        fresh.extend(open.keys().cloned());
        self.asks.came.notify_one();
    }

    /// Takes in that something was told or written of a primary: where nobody else polls it, it is polled a little later, so that what stands
    /// until the next answer does not add up.
    pub fn settle_later(&self, primary: (&ObjectRef, &str), now: Instant) {
        if self.spec.waits_for_asks() {
            self.ask(primary, now + SETTLES);
        }
    }

    /// Returns when a primary has to be polled again because this answer, which has been taken in, leaves open what it has: something was told
    /// after the poll had begun, or the answer has not seen what was. `None` if it does not, or if it is polled again anyway: what a run has
    /// written that has not ended well stands against any answer, and is asked about once one has ([`External::release`]).
    pub fn leaves_open(&self, Began(began): Began, primary: &ObjectRef, now: Instant) -> Option<Instant> {
        let state = self.state.lock();
        let known = state.primaries.get(primary).filter(|_| self.spec.is_fetched())?;
        let is_open = known.told > began || (known.overruled && known.held != u64::MAX);
        is_open.then_some(now + SETTLES)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt as _;

    use super::*;
    use crate::external::Write;
    use crate::external::tests::{fetched, things};

    fn asked(source: &External) -> Vec<String> {
        let asked = source.asked().now_or_never().unwrap_or_default();
        asked.into_iter().map(|(turn, _)| format!("{} {}", turn.primary.name, turn.uid)).collect()
    }

    #[test]
    fn what_was_told_is_read_a_little_later_where_nobody_else_polls_it() {
        // IB-6
        let (source, now, a) = (fetched(), Instant::now(), ObjectRef::namespaced("n", "a"));
        source.settle_later((&a, "u"), now);
        let told = source.asked().now_or_never().unwrap_or_default();
        let told: Vec<_> = told.into_iter().map(|(turn, at)| (turn.primary, at - now)).collect();
        assert_eq!(told, [(a, SETTLES)]);
    }

    #[test]
    fn who_is_asked_for_is_told_once_until_a_poll_that_has_begun_later_has_succeeded() {
        // IB-6
        let (source, now, none) = (fetched(), Instant::now(), Vec::<String>::new());
        let [a, b] = ["a", "b"].map(|name| ObjectRef::namespaced("n", name));
        assert_eq!(asked(&source), none);
        source.ask((&a, "u"), now);
        source.ask((&a, "u"), now);
        source.ask((&b, "v"), now);
        assert_eq!((asked(&source), asked(&source)), (vec!["a u".to_owned(), "b v".to_owned()], none.clone()));
        let early = source.begin();
        source.ask((&a, "u"), now);
        assert_eq!(asked(&source), ["a u"]);
        source.settle(early, |key| *key == a);
        source.ask_on();
        assert_eq!(asked(&source), ["a u", "b v"], "that poll may not have seen it");
        source.settle(source.begin(), |key| *key == a);
        source.ask_on();
        assert_eq!(asked(&source), ["b v"]);
        source.forget_others(&b, "v");
        source.ask_on();
        assert_eq!(asked(&source), ["b v"]);
        source.forget_others(&b, "w");
        source.ask_on();
        assert_eq!(asked(&source), none);
    }

    #[test]
    fn who_is_asked_for_twice_is_polled_at_the_earlier_time() {
        // IB-6
        let (source, now, a) = (fetched(), Instant::now(), ObjectRef::namespaced("n", "a"));
        for (after, expected) in [(5, 5), (3, 3), (9, 3)] {
            source.ask((&a, "u"), now + Duration::from_secs(after));
            let at: Vec<_> = source.asked().now_or_never().unwrap().into_iter().map(|(_, at)| at - now).collect();
            assert_eq!(at, [Duration::from_secs(expected)]);
        }
    }

    #[test]
    fn an_answer_that_has_not_seen_what_was_told_is_followed_by_another_one() {
        // IB-6
        let (source, a, now) = (fetched(), ObjectRef::namespaced("n", "a"), Instant::now());
        let take = |began, text| {
            source
                .take_one(source.begin(), (&a, "u"), things(text), || None)
                .map(|_| source.leaves_open(began, &a, now))
        };
        let learn = |id: &str, thing: Option<&str>| {
            source.learn((&a, "u"), &id.into(), thing.map(Arc::from), || None).map(|change| change.is_some())
        };
        let again = Some(now + SETTLES);
        let began = source.begin();
        assert_eq!(learn("1", Some("y")), Ok(true));
        assert_eq!(learn("1", Some("y")), Ok(false));
        assert!(!source.knows(&a, "u"), "nobody has said what else it has");
        assert_eq!(take(began, "1=w 2=x"), Ok(again), "it may be older than what was told");
        assert_eq!(take(source.begin(), "1=y 2=x"), Ok(None));
        assert_eq!(learn("1", Some("z")), Ok(true));
        assert_eq!(source.of(&a, "u"), things("1=z 2=x"));
        assert_eq!(take(source.begin(), "1=y 2=x"), Ok(again), "the other side has not caught up");
        assert_eq!(source.of(&a, "u"), things("1=z 2=x"));
        assert_eq!(take(source.begin(), "1=y 2=x"), Ok(None), "it has gone back");
        assert_eq!(source.of(&a, "u"), things("1=y 2=x"));
        source.write((&a, "u"), &"2".into(), Write::Removed, || None).unwrap();
        for _ in 0..3 {
            assert_eq!(
                take(source.begin(), "1=y 2=x"),
                Ok(None),
                "as long as no run ends well, no answer is the truth"
            );
        }
        let late = source.begin();
        assert_eq!(learn("1", Some("w")), Ok(true));
        assert_eq!(take(late, "1=y 2=x"), Ok(again), "what was told since is asked for");
        source.settle(source.begin(), |_| true);
        assert_eq!(asked(&source), Vec::<String>::new());
        source.release(&a, now);
        assert_eq!(asked(&source), ["a u"]);
        assert_eq!(take(source.begin(), "1=w 2=x"), Ok(again), "nor what a run has written");
        assert_eq!(take(source.begin(), "1=w 2=x"), Ok(None));
        source.release(&a, now);
        assert_eq!(asked(&source), Vec::<String>::new(), "nothing is written");
    }
}
