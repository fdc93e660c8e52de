//! Decides of requests that fail or hang whether the API server is to blame, or what stands before the writes of one operator.
//!
//! A webhook that is broken fails the writes of those whose objects it is asked about, and no others: with HTTP 500, as the API
//! server itself fails where it has no room or no leader. So what happens to the writes of one operator alone is a matter of that
//! operator. It is everybody's once writes of a second one fail, or the daemon's own, or reads of something else, and no write of
//! anybody is answered meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{DAEMON, MEMORY, PATIENCE, Sender, Trouble};

/// What is known of requests.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// The writes under way, by their number.
    waiting: BTreeMap<u64, Waiting>,
    number: u64,
    /// When a write was answered last.
    answered: Option<Instant>,
    /// Those of whose writes none was answered since one failed, by account.
    failing: BTreeMap<Arc<str>, Failing>,
    /// When a read has failed last since one was answered, by API group.
    unread: BTreeMap<Arc<str>, Instant>,
}

#[derive(Debug)]
struct Waiting {
    sender: Sender,
    began: Instant,
}

/// Failed writes of an account without an answered one between them.
#[derive(Debug)]
struct Failing {
    first: Instant,
    /// The first behind the last write of anybody that was answered.
    alone: Instant,
    last: Instant,
    why: String,
    groups: BTreeSet<Arc<str>>,
}

/// What nobody's answered write speaks against, of one account.
#[derive(Default)]
struct Evidence<'a> {
    /// For how long all writes fail, and why the last one did.
    fails: Option<(Duration, &'a str)>,
    /// For how long writes are not answered.
    hangs: Option<Duration>,
    /// What they are about.
    groups: BTreeSet<&'a str>,
}

impl Requests {
    pub(super) fn begin_write(&mut self, sender: Sender, now: Instant) -> u64 {
        self.number += 1;
        self.waiting.insert(self.number, Waiting { sender, began: now });
        self.number
    }

    pub(super) fn end_write(&mut self, number: u64, ended: Option<Result<(), &str>>, now: Instant) {
        let Some(Waiting { sender: Sender { account, group }, .. }) = self.waiting.remove(&number) else {
            return;
        };
        match ended {
            None => {}
            Some(Ok(())) => {
                self.answered = Some(now);
                self.failing.remove(&account);
            }
            Some(Err(why)) => {
                self.failing.retain(|_, failing| failing.is_recent(now));
                let new = || Failing { first: now, alone: now, last: now, why: String::new(), groups: BTreeSet::new() };
                let failing = self.failing.entry(account).or_insert_with(new);
                if self.answered.is_some_and(|answered| answered >= failing.last) {
                    failing.alone = now;
                }
                failing.last = now;
                why.clone_into(&mut failing.why);
                failing.groups.insert(group);
            }
        }
    }

    pub(super) fn end_read(&mut self, sender: &Sender, answered: bool, now: Instant) {
        if answered {
            self.unread.clear();
        } else {
            self.unread.insert(Arc::clone(&sender.group), now);
        }
    }

    pub(super) fn troubles(&self, now: Instant) -> Vec<Trouble> {
        let evidence = self.evidence(now);
        if self.is_everybodys(&evidence, now) {
            let fails = evidence.values().filter_map(|evidence| evidence.fails).max();
            let hangs = evidence.values().filter_map(|evidence| evidence.hangs).max();
            return told(None, "", fails, hangs).into_iter().collect();
        }
        let accounts: BTreeSet<_> = self.failing.keys().chain(evidence.keys().copied()).collect();
        let each = accounts.into_iter().filter_map(|account| {
            let fails = self.failing.get(account).and_then(|failing| failing.since(failing.first, now));
            told(Some(account), "its ", fails, evidence.get(account).and_then(|evidence| evidence.hangs))
        });
        each.collect()
    }

    /// Returns whose writes fail or hang for so long that it counts, since anybody's was answered.
    fn evidence(&self, now: Instant) -> BTreeMap<&Arc<str>, Evidence<'_>> {
        let mut all = BTreeMap::<_, Evidence<'_>>::new();
        for (account, failing) in &self.failing {
            let overtaken = self.answered.is_some_and(|answered| answered >= failing.last);
            if let Some(fails) = failing.since(failing.alone, now).filter(|_| !overtaken) {
                let evidence = all.entry(account).or_default();
                evidence.fails = Some(fails);
                evidence.groups.extend(failing.groups.iter().map(|group| &**group));
            }
        }
        for Waiting { sender: Sender { account, group }, began } in self.waiting.values() {
            let waits = now.saturating_duration_since(*began);
            let overtaken = self.answered.is_some_and(|answered| answered > *began);
            if waits > PATIENCE && !overtaken {
                let evidence = all.entry(account).or_default();
                evidence.hangs = evidence.hangs.max(Some(waits));
                evidence.groups.insert(group);
            }
        }
        all
    }

    fn is_everybodys(&self, evidence: &BTreeMap<&Arc<str>, Evidence<'_>>, now: Instant) -> bool {
        let mut accounts = evidence.iter();
        match (accounts.next(), accounts.next()) {
            (None, _) => false,
            (Some(_), Some(_)) => true,
            (Some((account, _)), None) if ***account == *DAEMON => true,
            // One group may be served by somebody else than the API server.
            (Some((_, evidence)), None) => self.unread.iter().any(|(group, last)| {
                now.saturating_duration_since(*last) < MEMORY && !evidence.groups.contains(&**group)
            }),
        }
    }
}

impl Failing {
    /// Returns for how long they fail since then, and why, if that is long enough and not long ago.
    fn since(&self, began: Instant, now: Instant) -> Option<(Duration, &str)> {
        let lasts = now.saturating_duration_since(began);
        (lasts > PATIENCE && self.is_recent(now)).then_some((lasts, &*self.why))
    }

    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) < MEMORY
    }
}

fn told(
    account: Option<&Arc<str>>,
    whose: &str,
    fails: Option<(Duration, &str)>,
    hangs: Option<Duration>,
) -> Option<Trouble> {
    let why = match (fails, hangs) {
        (Some((lasts, why)), _) => format!("all {whose}writes fail for {} s: {why}", lasts.as_secs()),
        (None, Some(waits)) => format!("{whose}writes are not answered for {} s", waits.as_secs()),
        (None, None) => return None,
    };
    Some(Trouble { account: account.cloned(), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEB: &str = "operator web";
    const SHOP: &str = "operator shop";

    /// What happens at a second, and what is told then: each trouble as `account: why`, or its why alone.
    struct Script {
        start: Instant,
        requests: Requests,
    }

    impl Script {
        fn new() -> Self {
            Self { start: Instant::now(), requests: Requests::default() }
        }

        fn at(&self, second: u64) -> Instant {
            self.start + Duration::from_secs(second)
        }

        fn told(&self, second: u64) -> Vec<String> {
            let troubles = self.requests.troubles(self.at(second));
            let told = troubles.into_iter().map(|Trouble { account, why }| match account {
                Some(account) => format!("{account}: {why}"),
                None => why,
            });
            told.collect()
        }

        fn begin(&mut self, account: &str, second: u64) -> u64 {
            let now = self.at(second);
            self.requests.begin_write(sender(account, "apps"), now)
        }

        fn write(&mut self, account: &str, second: u64, ended: Result<(), &str>) -> Vec<String> {
            let (number, now) = (self.begin(account, second), self.at(second));
            self.requests.end_write(number, Some(ended), now);
            self.told(second)
        }

        fn read(&mut self, group: &str, second: u64, answered: bool) -> Vec<String> {
            let now = self.at(second);
            self.requests.end_read(&sender(DAEMON, group), answered, now);
            self.told(second)
        }
    }

    fn sender(account: &str, group: &str) -> Sender {
        Sender { account: account.into(), group: group.into() }
    }

    const FAILS: Result<(), &str> = Err("HTTP 500");

    #[test]
    fn writes_that_fail_for_one_operator_alone_are_its_own_matter() {
        let mut script = Script::new();
        assert_eq!(script.write(WEB, 1, FAILS), [""; 0]);
        assert_eq!(script.write(WEB, 11, FAILS), [""; 0]);
        assert_eq!(script.write(WEB, 12, FAILS), ["operator web: all its writes fail for 11 s: HTTP 500"]);
        assert_eq!(script.write(SHOP, 13, Ok(())), ["operator web: all its writes fail for 12 s: HTTP 500"]);
        assert_eq!(script.write(WEB, 14, Ok(())), [""; 0]);
        script.write(WEB, 24, FAILS);
        assert_eq!(script.write(WEB, 35, FAILS).len(), 1);
        assert_eq!(script.told(70), [""; 0], "it writes no more");
        assert_eq!(script.write(WEB, 71, FAILS), [""; 0], "that is long ago");
    }

    #[test]
    fn writes_that_fail_for_several_or_for_the_daemon_are_everybodys_matter_unless_one_is_answered() {
        for other in [SHOP, DAEMON] {
            let mut script = Script::new();
            script.write(WEB, 1, FAILS);
            script.write(other, 2, FAILS);
            script.write(WEB, 13, Err("HTTP 503"));
            assert_eq!(script.told(13), ["all writes fail for 12 s: HTTP 503"], "{other}");
            let both = ["operator web: all its writes fail for 13 s: HTTP 503".to_owned()];
            script.write("operator third", 14, Ok(()));
            assert!(script.told(14).contains(&both[0]), "{other}: {:?}", script.told(14));
            assert_eq!(script.told(14).len(), 2, "{other}");
            // From then on it is as new.
            script.write(WEB, 15, FAILS);
            script.write(other, 15, FAILS);
            assert_eq!(script.told(25).len(), 2, "{other}");
            assert_eq!(script.told(26), ["all writes fail for 11 s: HTTP 500"], "{other}");
        }
        let mut script = Script::new();
        script.write(DAEMON, 1, FAILS);
        assert_eq!(script.write(DAEMON, 12, FAILS), ["all writes fail for 11 s: HTTP 500"]);
    }

    #[test]
    fn reads_of_something_else_that_fail_too_make_it_everybodys_matter() {
        let mut script = Script::new();
        script.write(WEB, 1, FAILS);
        script.write(WEB, 12, FAILS);
        let own = ["operator web: all its writes fail for 11 s: HTTP 500"];
        assert_eq!(script.read("apps", 12, false), own, "whoever serves that group may have failed");
        assert_eq!(script.read("", 12, false), ["all writes fail for 11 s: HTTP 500"]);
        assert_eq!(script.read("batch", 12, true), own);
        script.read("", 13, false);
        script.write(WEB, 40, FAILS);
        assert_eq!(script.told(43), ["operator web: all its writes fail for 42 s: HTTP 500"], "that read is long ago");
    }

    #[test]
    fn writes_that_hang_are_told_unless_others_overtake_them() {
        let mut script = Script::new();
        let slow = script.begin(WEB, 0);
        assert_eq!(script.told(10), [""; 0]);
        assert_eq!(script.told(11), ["operator web: its writes are not answered for 11 s"]);
        let other = script.begin(SHOP, 1);
        assert_eq!(script.told(11).len(), 1);
        assert_eq!(script.told(12), ["writes are not answered for 12 s"]);
        script.write(DAEMON, 12, Ok(()));
        assert_eq!(script.told(13), [""; 0]);
        let later = script.begin(WEB, 13);
        assert_eq!(script.told(24), ["operator web: its writes are not answered for 11 s"]);
        for number in [slow, other, later] {
            script.requests.end_write(number, None, script.at(24));
        }
        assert_eq!(script.told(40), [""; 0]);
    }

    #[test]
    fn one_that_fails_and_one_that_hangs_are_two() {
        let mut script = Script::new();
        script.begin(SHOP, 0);
        script.write(WEB, 1, FAILS);
        assert_eq!(script.write(WEB, 12, FAILS), ["all writes fail for 11 s: HTTP 500"]);
    }
}
