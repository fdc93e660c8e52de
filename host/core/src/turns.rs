//! Waits for a turn where few may be at something at once, and decides whose is next: that of whoever had one longest ago, so that many requests of
//! one keep nobody else waiting for more than one of them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The turns. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Turns(Arc<Mutex<State>>);

/// A turn, until it is dropped.
#[derive(Debug)]
pub struct Turn {
    turns: Turns,
    whose: Arc<str>,
}

#[derive(Debug)]
struct State {
    /// How many more may be at it.
    free: usize,
    /// How many turns one may have at once.
    each: usize,
    /// Those who wait or have a turn, and those who had one since the last time that nobody waited.
    all: BTreeMap<Arc<str>, Share>,
    /// Counts turns, and requests.
    count: u64,
}

#[derive(Debug, Default)]
struct Share {
    /// Which turn the last one was.
    last: u64,
    /// How many turns it has now.
    has: usize,
    /// What waits, the first first, each with its number.
    waiting: VecDeque<(u64, oneshot::Sender<Turn>)>,
}

// === impl Turns ===

impl Turns {
    /// Returns turns of which there are `all` at once, and of each `each` at most.
    pub fn new(all: usize, each: usize) -> Self {
        Self(Arc::new(Mutex::new(State { free: all, each, all: BTreeMap::new(), count: 0 })))
    }

    /// Waits for a turn of one. If the future is dropped, others have it.
    pub async fn wait(&self, whose: &Arc<str>) -> Turn {
        loop {
            let (turn, comes) = oneshot::channel();
            self.0.lock().wait(whose, turn);
            self.serve();
            // There is no end of turns but that of those who give them.
            if let Ok(turn) = comes.await {
                return turn;
            }
        }
    }

    /// Whether nobody else has these turns, one of them, or waits for one.
    pub fn is_unused(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Gives turns to those who are next.
    fn serve(&self) {
        loop {
            let Some((whose, next)) = self.0.lock().next() else { return };
            // One who does not wait any more gives it back, as whoever drops it.
            drop(next.send(Turn { turns: self.clone(), whose }));
        }
    }
}

// === impl State ===

impl State {
    fn wait(&mut self, whose: &Arc<str>, turn: oneshot::Sender<Turn>) {
        self.count += 1;
        let number = self.count;
        self.all.entry(Arc::clone(whose)).or_default().waiting.push_back((number, turn));
    }

    /// Takes the next turn for whoever had one longest ago, and of those who had none for who has waited longest.
    fn next(&mut self) -> Option<(Arc<str>, oneshot::Sender<Turn>)> {
        for share in self.all.values_mut() {
            while share.waiting.front().is_some_and(|(_, turn)| turn.is_closed()) {
                share.waiting.pop_front();
            }
        }
        let each = self.each;
        let waiting = self.all.iter_mut().filter(|(_, share)| share.has < each);
        let first = waiting.filter_map(|(whose, share)| Some(((share.last, share.waiting.front()?.0), whose, share)));
        let next = first.min_by_key(|(order, ..)| *order).filter(|_| self.free > 0);
        let Some((_, whose, share)) = next else {
            // Nobody is put off for what was while nobody waited.
            let waits = |share: &&Share| !share.waiting.is_empty();
            let least = self.all.values().filter(waits).map(|share| share.last).min().unwrap_or(u64::MAX);
            self.all.retain(|_, share| share.has > 0 || !share.waiting.is_empty() || share.last > least);
            return None;
        };
        self.free -= 1;
        self.count += 1;
        (share.last, share.has) = (self.count, share.has + 1);
        let (_, turn) = share.waiting.pop_front()?;
        Some((Arc::clone(whose), turn))
    }

    fn give_back(&mut self, whose: &str) {
        self.free += 1;
        if let Some(share) = self.all.get_mut(whose) {
            share.has = share.has.saturating_sub(1);
        }
    }
}

// === impl Turn ===

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.0.lock().give_back(&self.whose);
        self.turns.serve();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use futures::future::BoxFuture;

    use super::*;

    /// Asks for turns of these, in this order, ends each as soon as it is there, and returns whose they were.
    async fn order(turns: &Turns, asked: &[&str]) -> Vec<String> {
        let busy = turns.wait(&"busy".into()).await;
        let served = Arc::new(Mutex::new(Vec::new()));
        let mut waiting: Vec<BoxFuture<'_, ()>> = Vec::new();
        for whose in asked {
            let served = Arc::clone(&served);
            let mut one = async move {
                let turn = turns.wait(&(*whose).into()).await;
                served.lock().push(turn.whose.to_string());
            }
            .boxed();
            assert!(one.as_mut().now_or_never().is_none());
            waiting.push(one);
        }
        drop(busy);
        futures::future::join_all(waiting).await;
        assert!(turns.is_unused());
        Arc::into_inner(served).unwrap().into_inner()
    }

    #[tokio::test]
    async fn each_in_turn_however_much_one_asks_for() {
        let turns = Turns::new(1, 1);
        let asked = ["c", "c", "c", "c", "a", "b", "a"];
        assert_eq!(order(&turns, &asked).await, ["c", "a", "b", "c", "a", "c", "c"]);
        // What was does not count once nobody has waited.
        assert_eq!(order(&turns, &["c", "a"]).await, ["c", "a"]);
    }

    #[tokio::test]
    async fn one_has_no_more_than_its_share_and_what_it_does_not_take_is_for_others() {
        let turns = Turns::new(3, 2);
        let of = |whose: &str| {
            let (turns, whose): (_, Arc<str>) = (turns.clone(), whose.into());
            async move { turns.wait(&whose).await }.boxed()
        };
        let (first, second) = (of("c").await, of("c").await);
        let mut third = of("c");
        assert!(third.as_mut().now_or_never().is_none());
        let other = of("a").now_or_never();
        assert!(other.is_some());
        let mut fourth = of("b");
        assert!(fourth.as_mut().now_or_never().is_none());
        // Whoever gives up takes no turn away.
        drop(third);
        drop(first);
        drop(fourth.await);
        assert!(of("c").now_or_never().is_some());
        drop((second, other));
        assert!(turns.is_unused());
    }
}
