//! Polls the sources outside of the cluster of a running controller: each source in a task of its own, which ends with the
//! controller or when that comes to watch something else.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::external::External;
use capstan_core::external::schedule::{Polled as Ended, Schedule, Streak, Turn, pause};
use capstan_core::guest::Failure;
use capstan_core::manifest::polls::{Each, Polled};
use capstan_core::object::{Object, ObjectRef};
use capstan_core::reconciler::{Controller, polling};
use capstan_core::source::callback::Asked;
use capstan_core::source::{Touched, TouchedKeys};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tracing::Instrument as _;

use super::declared::Environment;
use super::handle::Handle;
use crate::backoff::{Chance, until};

/// How often it is looked whether the runs about primaries that have gone are over.
const FAREWELL: Duration = Duration::from_secs(1);

/// The tasks that poll for a controller. They end when this is dropped.
#[derive(Default)]
pub(super) struct Polls {
    tasks: JoinSet<()>,
    /// True of each source that is polled for all primaries at once, after its first poll.
    polled: Vec<watch::Receiver<bool>>,
}

/// Polls one source.
struct Poller {
    handle: Arc<Handle>,
    source: Arc<External>,
    chance: Chance,
}

/// A primary as it is now.
enum Seen {
    /// It is there.
    There(Object),
    /// It is gone.
    Gone,
    /// That is not known just now: what was told of it may be told only once, so it stays.
    Unclear,
}

impl Polls {
    /// Begins to poll what a controller declares, on the threads of runs.
    pub(super) fn start(
        handle: &Arc<Handle>,
        environment: &Environment,
        controller: &Controller,
        touched: &Touched,
    ) -> Self {
        let mut polls = Self::default();
        for (name, source) in &controller.externals {
            let chance = environment.api.chance().of(&format!("{} {name}", handle.name));
            let poller = Poller { handle: Arc::clone(handle), source: Arc::clone(source), chance };
            let span = tracing::info_span!("polling", source = %name);
            let runtime = environment.workers.runtime();
            let keys = || {
                let keys = touched.subscribe();
                // Nobody has told of what has gone meanwhile.
                for primary in controller.primaries.list(None).iter().map(|primary| primary.key().clone()) {
                    keys.add(primary);
                }
                source.keys().into_iter().for_each(|known| keys.add(known));
                keys
            };
            let task = match source.spec.polled.clone() {
                Polled::Each(each) | Polled::Inbound(Some(each)) => poller.each(each, keys()).boxed(),
                Polled::Inbound(None) => poller.told(keys()).boxed(),
                Polled::Together { every } => {
                    let (sender, polled) = watch::channel(false);
                    polls.polled.push(polled);
                    poller.together(every, sender, keys()).boxed()
                }
            };
            polls.tasks.spawn_on(lasting(task).instrument(span), &runtime);
        }
        polls
    }

    /// Waits until each source that is polled for all primaries at once has been, well or badly, for so long at the longest
    /// (`PP-1`).
    pub(super) async fn first(&mut self, longest: Duration) {
        let all = async {
            for polled in &mut self.polled {
                // An error says that the task has ended: there is nothing to wait for.
                drop(polled.wait_for(|polled| *polled).await);
            }
        };
        if timeout(longest, all).await.is_err() {
            tracing::warn!(?longest, "the controller starts before all that it polls has been polled once");
        }
    }
}

/// Polls without an end, and says so if there is one: nobody would miss it.
async fn lasting(polling: BoxFuture<'static, ()>) {
    if AssertUnwindSafe(polling).catch_unwind().await.is_err() {
        tracing::error!("the daemon has panicked: this source is not polled any more until its controller starts anew");
    }
}

impl Poller {
    /// Polls for all primaries at once, and forgets what runs have written for those that have gone.
    async fn together(self, every: Duration, polled: watch::Sender<bool>, touched: Arc<TouchedKeys>) {
        tokio::select! {
            () = self.all(every, polled) => {}
            () = self.forget(touched) => {}
        }
    }

    /// Polls for all primaries at once: now, each period, and after each swap of the component (`PP-1`).
    async fn all(&self, every: Duration, polled: watch::Sender<bool>) {
        let mut edition = self.handle.edition.subscribe();
        loop {
            edition.mark_unchanged();
            let source = &self.source;
            let asked = self.asked(None, |controller| async move { polling::poll(&controller, source).await });
            let failures = asked.await.err().map_or(0, |(failures, _)| failures);
            polled.send_replace(true);
            let rest = pause(every, failures, self.chance.share());
            tokio::select! {
                Ok(()) = edition.changed() => {}
                () = sleep(rest) => {}
            }
        }
    }

    /// Polls each primary by itself, when it is time for it (`PP-2`), or when it is asked for (`IB-6`).
    async fn each(self, each: Each, touched: Arc<TouchedKeys>) {
        let mut edition = self.handle.edition.subscribe();
        edition.mark_unchanged();
        let mut schedule = Schedule::new(each.every, each.first_after);
        if self.source.spec.is_fetched() {
            schedule = schedule.hasty();
        }
        self.source.ask_on();
        self.renew(&mut schedule);
        let mut under_way = FuturesUnordered::new();
        let (mut leaving, mut farewell) = (BTreeSet::new(), interval(FAREWELL));
        farewell.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            while under_way.len() < each.concurrency
                && let Some(turn) = schedule.take(Instant::now())
            {
                under_way.push(self.one(turn));
            }
            let next = schedule.next().filter(|_| under_way.len() < each.concurrency);
            tokio::select! {
                biased;
                Ok(()) = edition.changed() => self.renew(&mut schedule),
                Some((turn, polled, error)) = under_way.next(), if !under_way.is_empty() => {
                    let news = schedule.finish(turn.clone(), polled, Instant::now(), self.chance.share());
                    if let Some(streak) = news {
                        self.tell(&turn, streak, &error);
                    }
                }
                asked = self.source.asked() => asked.into_iter().for_each(|(turn, at)| schedule.ask(turn, at)),
                keys = touched.take() => leaving.extend(keys.into_iter().filter(|key| !self.look(&mut schedule, key))),
                _ = farewell.tick(), if !leaving.is_empty() => leaving.retain(|key| !self.look(&mut schedule, key)),
                () = until(next) => {}
            }
        }
    }

    /// Has all polled at once whose things are known: another version of the component may say otherwise.
    fn renew(&self, schedule: &mut Schedule) {
        let now = Instant::now();
        schedule.hurry(now);
        if self.source.spec.waits_for_asks() {
            self.source.polled().into_iter().for_each(|turn| schedule.ask(turn, now));
        }
    }

    /// Looks after what is told by requests alone.
    async fn told(self, touched: Arc<TouchedKeys>) {
        self.forget(touched).await;
    }

    /// Forgets what was told of primaries that have gone, or have been made again (`XC-6`).
    async fn forget(&self, touched: Arc<TouchedKeys>) {
        let (mut leaving, mut farewell) = (BTreeSet::new(), interval(FAREWELL));
        farewell.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                keys = touched.take() => leaving.extend(keys.into_iter().filter(|key| !self.is_settled(key))),
                _ = farewell.tick(), if !leaving.is_empty() => leaving.retain(|key| !self.is_settled(key)),
            }
        }
    }

    /// Looks after a primary that has appeared, changed or gone. Returns false if it is to be looked at again: it has gone, and a run
    /// may read what was polled last.
    fn look(&self, schedule: &mut Schedule, primary: &ObjectRef) -> bool {
        match self.seen(primary) {
            Seen::There(there) => {
                schedule.notice((primary, &there.header().uid), Instant::now(), self.chance.share());
                true
            }
            Seen::Gone => {
                schedule.remove(primary);
                self.is_settled(primary)
            }
            Seen::Unclear => false,
        }
    }

    /// Forgets what is known of a primary if it is gone, or has been made again. Returns false if it is to be looked at again: a run may read
    /// what was known last, or it is not known just now whether it is there.
    fn is_settled(&self, primary: &ObjectRef) -> bool {
        match self.seen(primary) {
            Seen::There(there) => {
                self.source.forget_others(primary, &there.header().uid);
                true
            }
            // Its end may not have been told yet, or a run may still look at what it had.
            Seen::Gone if self.handle.queue.knows(primary) => false,
            Seen::Gone => {
                // XC-6
                self.source.forget(primary);
                true
            }
            Seen::Unclear => false,
        }
    }

    fn seen(&self, primary: &ObjectRef) -> Seen {
        let found = self.handle.controller().map(|now| now.primaries.look(primary));
        match found {
            Some(Ok(Some(there))) => Seen::There(there),
            Some(Ok(None)) => Seen::Gone,
            // Of what there is no room for nobody is told either; what is gone would be kept as long as the cache is full.
            Some(Err(doubt)) if doubt.is_of_room() && !self.handle.queue.knows(primary) => Seen::Gone,
            Some(Err(_)) | None => Seen::Unclear,
        }
    }

    fn tell(&self, turn: &Turn, streak: Streak, error: &str) {
        if let Some(controller) = self.handle.controller() {
            polling::record(&controller, &self.source, turn, streak, error);
        }
    }

    /// Polls one primary. Returns how that ended, and the error if it has failed.
    async fn one(&self, turn: Turn) -> (Turn, Ended, String) {
        let (source, turned) = (&self.source, &turn);
        let asked = self.asked(Some(&turn.primary), |controller| async move {
            polling::poll_one(&controller, source, turned).await
        });
        match asked.await {
            Ok(polled) => (turn, polled, String::new()),
            Err((_, error)) => (turn, Ended::Badly, error),
        }
    }

    /// Has the running version asked, when it is its plugin's turn to compute. What fails is counted and logged.
    ///
    /// # Errors
    /// The number of failures in a row, and the error.
    async fn asked<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        primary: Option<&ObjectRef>,
        ask: impl FnOnce(Arc<Controller>) -> F,
    ) -> Result<T, (u32, String)> {
        let Self { handle, source, .. } = self;
        let Some(controller) = handle.controller() else {
            return Err((1, String::new()));
        };
        let answer = handle.in_turn(primary.cloned(), ask(controller)).await;
        answer.map_err(|failure| {
            let failures = source.fail(&failure.message);
            let asked = Asked { source: &source.name, faults: &handle.faults };
            asked.tell_of_poll(primary, failures, &failure.message);
            (failures, failure.message)
        })
    }
}

#[cfg(test)]
mod tests {
    use capstan_core::external::Write;
    use capstan_core::queue::Event;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::client::tests::Step;
    use crate::controller::run;
    use crate::controller::tests::{Asked, added, environment_of, event, pages_with};
    use crate::informer::list_watch::tests::end_of_list;

    const INBOUND: &str = "paused: true, sources: { things: { inbound: { token: none } } }";

    fn key(name: &str) -> ObjectRef {
        ObjectRef::namespaced("n", name)
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_told_of_a_primary_stays_as_long_as_it_is_not_known_whether_that_is_there() {
        // XC-6, IB-2
        let (environment, _) = environment_of(|path| match path {
            "/apis/sample.dev/v1" => Some(vec![crate::controller::tests::kinds(&["Page"])]),
            _ => Some(vec![added("Page", "a", 3, None), Step::Comes(end_of_list(7)), Step::Silent]),
        });
        let handle = Arc::new(Handle::new(pages_with(INBOUND, &environment), &environment));
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(Arc::clone(&handle), Arc::clone(&environment), stop.clone()));
        sleep(Duration::from_secs(5)).await;
        let controller = handle.controller().unwrap();
        let source = Arc::clone(&controller.externals["things"]);
        let learn = || source.learn((&key("a"), "a"), &"1".into(), Some("{}".into()), || None).unwrap();
        let poller = Poller { handle: Arc::clone(&handle), source: Arc::clone(&source), chance: Chance::default() };
        let mut schedule = Schedule::new(None, Duration::ZERO);
        let mut looks =
            || (poller.look(&mut schedule, &key("a")), poller.is_settled(&key("a")), source.counts().things);
        learn();
        assert_eq!(looks(), (true, true, 1));
        handle.queue.event(&key("a"), Event::PrimaryForgotten, Instant::now());
        controller.primaries.awaits(None);
        assert_eq!(looks(), (false, false, 1), "its cache is not there");
        stop.cancel();
        task.await.unwrap();
        assert_eq!((handle.controller().is_none(), looks()), (true, (false, false, 1)), "nobody knows primaries");
    }

    #[tokio::test(start_paused = true)]
    async fn what_runs_have_written_for_a_primary_that_goes_is_as_the_next_poll_for_all_says() {
        // XC-5, XC-6, PP-1
        let (environment, _) = environment_of(|path| match path {
            "/apis/sample.dev/v1" => Some(vec![crate::controller::tests::kinds(&["Page"])]),
            _ => Some(vec![
                added("Page", "a", 3, None),
                added("Page", "b", 4, None),
                Step::Comes(end_of_list(7)),
                Step::Rests(Duration::from_mins(1)),
                event("DELETED", "Page", "a", 8, None),
                Step::Silent,
            ]),
        });
        let asked = Asked::hanging(0);
        let handle = Arc::new(Handle::new(asked.declared("one", &environment), &environment));
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(Arc::clone(&handle), Arc::clone(&environment), stop.clone()));
        sleep(Duration::from_secs(30)).await;
        let source = Arc::clone(&handle.controller().unwrap().externals["things"]);
        for name in ["a", "b"] {
            source.write((&key(name), name), &"1".into(), Write::Created("{}".into()), || None).unwrap();
        }
        let known = || source.keys().iter().map(|key| key.name.to_string()).collect::<Vec<_>>();
        sleep(Duration::from_secs(20)).await;
        assert_eq!(known(), ["a", "b"]);
        // One has gone before the next poll, which shows nothing.
        sleep(Duration::from_secs(80)).await;
        assert_eq!(known(), ["b"], "no run of it has ended well");
        stop.cancel();
        task.await.unwrap();
    }
}
