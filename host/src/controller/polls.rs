//! Polls the sources outside of the cluster of a running controller: each source in a task of its own, which ends with the
//! controller or when that comes to watch something else.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::external::External;
use capstan_core::external::schedule::{Polled as Ended, Schedule, Turn, pause};
use capstan_core::guest::Failure;
use capstan_core::manifest::polls::{Each, Polled};
use capstan_core::object::ObjectRef;
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
                Polled::Inbound(None) => poller.forget(keys()).boxed(),
                Polled::Together { every } => {
                    let (sender, polled) = watch::channel(false);
                    polls.polled.push(polled);
                    poller.together(every, sender).boxed()
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
    /// Polls for all primaries at once: now, each period, and after each swap of the component (`PP-1`).
    async fn together(self, every: Duration, polled: watch::Sender<bool>) {
        let mut edition = self.handle.edition.subscribe();
        loop {
            edition.mark_unchanged();
            let source = &self.source;
            let asked = self.asked(None, |controller| async move { polling::poll(&controller, source).await });
            let failures = asked.await.err().unwrap_or(0);
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
                Some((turn, polled)) = under_way.next(), if !under_way.is_empty() => {
                    schedule.finish(turn, polled, Instant::now(), self.chance.share());
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

    /// Forgets what was told of primaries that have gone, or have been made again (`XC-6`).
    async fn forget(self, touched: Arc<TouchedKeys>) {
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
        let controller = self.handle.controller();
        if let Some(there) = controller.as_ref().and_then(|now| now.primaries.get(primary)) {
            schedule.notice((primary, &there.header().uid), Instant::now(), self.chance.share());
            return true;
        }
        schedule.remove(primary);
        self.is_settled(primary)
    }

    /// Forgets what is known of a primary if it is gone, or has been made again. Returns false if it is to be looked at again: a run may read what was known last.
    fn is_settled(&self, primary: &ObjectRef) -> bool {
        let controller = self.handle.controller();
        if let Some(there) = controller.as_ref().and_then(|now| now.primaries.get(primary)) {
            self.source.forget_others(primary, &there.header().uid);
            return true;
        }
        // Its end may not have been told yet, or a run may still look at what it had.
        let is_known = controller.is_some_and(|now| now.queue.knows(primary));
        if !is_known {
            // XC-6
            self.source.forget(primary);
        }
        !is_known
    }

    async fn one(&self, turn: Turn) -> (Turn, Ended) {
        let (source, turned) = (&self.source, &turn);
        let asked = self.asked(Some(&turn.primary), |controller| async move {
            polling::poll_one(&controller, source, turned).await
        });
        let polled = asked.await.unwrap_or(Ended::Badly);
        (turn, polled)
    }

    /// Has the running version asked, when it is its plugin's turn to compute. What fails is counted and logged.
    ///
    /// # Errors
    /// The number of failures in a row.
    async fn asked<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        primary: Option<&ObjectRef>,
        ask: impl FnOnce(Arc<Controller>) -> F,
    ) -> Result<T, u32> {
        let Self { handle, source, .. } = self;
        let Some(controller) = handle.controller() else {
            return Err(1);
        };
        let answer = handle.in_turn(primary.cloned(), ask(controller)).await;
        answer.map_err(|failure| {
            let failures = source.fail(&failure.message);
            let asked = Asked { source: &source.name, faults: &handle.faults };
            asked.tell_of_poll(primary, failures, &failure.message);
            failures
        })
    }
}
