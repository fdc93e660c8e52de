//! Decides which plugin gets memory: each up to its share, and more while enough is left for plugins below their
//! share.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The memory that is given away, and the waiters. `W` wakes a waiter that has got memory, and returns false if it no
/// longer waits.
#[derive(Debug)]
pub(super) struct State<W> {
    total: u64,
    /// The bytes that all hold together.
    given: u64,
    /// What of those lasts longer than calls.
    lasting: u64,
    plugins: BTreeMap<Arc<str>, Plugin<W>>,
    /// The number of waits so far.
    number: u64,
}

#[derive(Debug)]
struct Plugin<W> {
    held: u64,
    /// What of that lasts longer than calls.
    lasting: u64,
    waiting: VecDeque<Waiting<W>>,
}

#[derive(Debug)]
struct Waiting<W> {
    number: u64,
    bytes: u64,
    tell: W,
}

impl<W: FnOnce() -> bool> State<W> {
    pub(super) fn new(total: u64) -> Self {
        let plugins = BTreeMap::new();
        Self { total, given: 0, lasting: 0, plugins, number: 0 }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Gives `bytes` at once, if the plugin may have them and no earlier request of it waits. Returns true if they
    /// were given.
    pub(super) fn take(&mut self, name: &Arc<str>, bytes: u64) -> bool {
        self.plugin(name);
        let first = self.plugins.get(name).is_none_or(|plugin| plugin.waiting.is_empty());
        let may = first && self.may(name, bytes);
        if may {
            self.hand_out(name, bytes);
        }
        may
    }

    /// Gives `bytes` at once for what lasts longer than calls. Returns true if they were given.
    pub(super) fn take_lasting(&mut self, name: &Arc<str>, bytes: u64) -> bool {
        let may = self.may_last(name, bytes) && self.take(name, bytes);
        if may {
            self.lasts(name, bytes, 0);
        }
        may
    }

    /// Returns true if a plugin may have `bytes` more for what lasts longer than calls. A plugin has an eighth of the pool for
    /// that, so that its own calls find some, too; all have half of it, so that those of others do. Of that half a plugin has no more
    /// than it leaves to others: who has less comes before who has more, and who comes last finds some.
    fn may_last(&self, name: &Arc<str>, bytes: u64) -> bool {
        let Self { total, lasting, .. } = *self;
        let had = self.plugins.get(name).map_or(0, |plugin| plugin.lasting);
        let has = had.saturating_add(bytes);
        let left = (total / 2).saturating_sub(lasting.saturating_add(bytes));
        has <= (total / 8).min(left)
    }

    /// Takes in that so much more, or less, of what a plugin has lasts longer than calls.
    pub(super) fn lasts(&mut self, name: &Arc<str>, more: u64, less: u64) {
        let plugin = self.plugin(name);
        let less = less.min(plugin.lasting + more);
        plugin.lasting = plugin.lasting + more - less;
        self.lasting = self.lasting + more - less;
    }

    /// Adds a wait for `bytes`, and returns its number.
    pub(super) fn wait(&mut self, name: &Arc<str>, bytes: u64, tell: W) -> u64 {
        self.number += 1;
        let number = self.number;
        self.plugin(name).waiting.push_back(Waiting { number, bytes, tell });
        number
    }

    /// Removes a wait, so that later ones may be served.
    pub(super) fn leave(&mut self, name: &Arc<str>, number: u64) {
        self.plugin(name).waiting.retain(|waiting| waiting.number != number);
        self.serve();
        self.tidy();
    }

    /// Takes `bytes` back, and gives them to waiters.
    pub(super) fn give_back(&mut self, name: &Arc<str>, bytes: u64) {
        let plugin = self.plugin(name);
        let back = bytes.min(plugin.held);
        plugin.held -= back;
        self.given -= back;
        self.serve();
        self.tidy();
    }

    fn tidy(&mut self) {
        self.plugins.retain(|_, plugin| plugin.held > 0 || !plugin.waiting.is_empty());
    }

    /// Returns true if somebody waits while a plugin has more than its share.
    pub(super) fn is_crowded_by(&self, name: &Arc<str>) -> bool {
        let held = self.plugins.get(name).map_or(0, |plugin| plugin.held);
        held > self.share() && self.plugins.values().any(|plugin| !plugin.waiting.is_empty())
    }

    /// Returns what each plugin may have of the pool whatever others do.
    fn share(&self) -> u64 {
        self.total / u64::try_from(self.plugins.len()).unwrap_or(u64::MAX).max(4)
    }

    /// Returns the plugin that holds most, and its bytes.
    pub(super) fn most(&self) -> Option<(Arc<str>, u64)> {
        let most = self.plugins.iter().max_by_key(|(_, plugin)| plugin.held);
        most.map(|(name, plugin)| (Arc::clone(name), plugin.held))
    }

    /// Serves waiters while memory may be given, those first whose plugin holds least.
    fn serve(&mut self) {
        while let Some((name, bytes)) = self.next() {
            let waiting = self.plugins.get_mut(&name).and_then(|plugin| plugin.waiting.pop_front());
            if waiting.is_some_and(|waiting| (waiting.tell)()) {
                self.hand_out(&name, bytes);
            }
        }
    }

    fn next(&self) -> Option<(Arc<str>, u64)> {
        let heads = self.plugins.iter().filter_map(|(name, plugin)| {
            let bytes = plugin.waiting.front()?.bytes;
            self.may(name, bytes).then_some((plugin.held, name, bytes))
        });
        let (_, name, bytes) = heads.min()?;
        Some((Arc::clone(name), bytes))
    }

    /// Returns true if a plugin may have `bytes` more. Beyond its share, a quarter of the pool has to stay free, so
    /// that other plugins can still work, however much one wants. Within its share, an eighth has to stay free. The
    /// rest is for the first request of plugins that hold nothing.
    fn may(&self, name: &Arc<str>, bytes: u64) -> bool {
        let Self { total, given, .. } = *self;
        let held = self.plugins.get(name).map_or(0, |plugin| plugin.held);
        let is_first = held == 0 && bytes <= total / 8;
        let left = total.checked_sub(given.saturating_add(bytes));
        left.is_some_and(|left| {
            let is_share = held + bytes <= self.share() && left >= total / 8;
            is_first || is_share || left >= total / 4
        })
    }

    /// Gives `bytes`, even beyond the bound.
    pub(super) fn hand_out(&mut self, name: &Arc<str>, bytes: u64) {
        self.given += bytes;
        self.plugin(name).held += bytes;
    }

    fn plugin(&mut self, name: &Arc<str>) -> &mut Plugin<W> {
        self.plugins.entry(Arc::clone(name)).or_insert_with(|| Plugin { held: 0, lasting: 0, waiting: VecDeque::new() })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::*;

    type Told = Rc<RefCell<Vec<&'static str>>>;

    fn waker(told: &Told, name: &'static str) -> Box<dyn FnOnce() -> bool> {
        let told = Rc::clone(told);
        Box::new(move || {
            told.borrow_mut().push(name);
            true
        })
    }

    fn name(text: &str) -> Arc<str> {
        text.into()
    }

    #[test]
    fn one_that_wants_all_leaves_others_what_they_need() {
        let mut state = State::<fn() -> bool>::new(1000);
        let hog = name("hog");
        assert!(state.take(&hog, 500));
        assert!(state.take(&hog, 250));
        assert!(!state.take(&hog, 1), "beyond its share, a quarter stays free");
        let second = name("second");
        assert!(state.take(&second, 125));
        assert!(!state.take(&second, 1), "within its share, an eighth does");
        assert!(state.take(&name("small"), 125), "the first wish");
        assert!(!state.take(&name("other"), 1), "there is none");
        assert_eq!(state.most(), Some((hog, 750)));
    }

    #[test]
    fn one_that_waits_no_longer_stands_in_nobodys_way() {
        let (mut state, told) = (State::new(100), Told::default());
        let a = name("a");
        assert!(state.take(&a, 40));
        let number = state.wait(&a, 60, waker(&told, "large"));
        state.wait(&a, 10, waker(&told, "small"));
        assert!(!state.take(&a, 1), "others of the plugin came before");
        state.leave(&a, number);
        assert_eq!(*told.borrow(), ["small"]);
    }

    #[test]
    fn what_comes_back_goes_to_who_has_least_and_within_a_plugin_to_who_came_first() {
        let (mut state, told) = (State::new(100), Told::default());
        let [a, b] = ["a", "b"].map(name);
        assert!(state.take(&a, 40) && state.take(&b, 35));
        state.wait(&a, 20, waker(&told, "a1"));
        state.wait(&a, 1, waker(&told, "a2"));
        state.wait(&b, 20, waker(&told, "b1"));
        assert!(!state.take(&a, 1), "others of the plugin came before");
        state.give_back(&a, 20);
        assert_eq!(*told.borrow(), ["a1"], "no more is left than has to be");
        state.give_back(&b, 35);
        assert_eq!(*told.borrow(), ["a1", "b1", "a2"]);
    }

    #[test]
    fn one_that_has_given_up_takes_nothing() {
        let mut state = State::new(100);
        let a = name("a");
        assert!(state.take(&a, 50));
        state.wait(&a, 50, || false);
        state.give_back(&a, 50);
        assert_eq!((state.given, state.plugins.len()), (0, 0));
    }

    #[test]
    fn what_lasts_takes_half_at_most_and_who_has_less_of_that_comes_first() {
        let mut state = State::<fn() -> bool>::new(1600);
        let mut fill = |text: &str| {
            let plugin = name(text);
            while state.take_lasting(&plugin, 1) {}
            state.plugin(&plugin).lasting
        };
        assert_eq!(["a", "b", "c"].map(&mut fill), [200; 3], "an eighth each");
        assert_eq!(["d", "e", "f", "g"].map(&mut fill), [100, 50, 25, 12], "half of what is left");
        assert_eq!(["a", "d"].map(&mut fill), [200, 100]);
        assert!(state.lasting < 800);
        let [a, b, z] = ["a", "b", "z"].map(name);
        assert!(state.take(&z, 200), "calls have the other half");
        for plugin in [&a, &b] {
            state.lasts(plugin, 0, 200);
            state.give_back(plugin, 200);
        }
        assert!(!state.take_lasting(&name("c"), 1), "it has its eighth");
        assert!(state.take_lasting(&name("g"), 188) && !state.take_lasting(&name("g"), 1), "there is room again");
    }

    proptest! {
        #[test]
        fn no_byte_is_given_away_twice_or_lost(script in prop::collection::vec((0..3_usize, 1..60_u64, any::<bool>()), 1..100)) {
            let (mut state, told) = (State::new(100), Told::default());
            let names = ["a", "b", "c"];
            let mut held = [0, 0, 0];
            for (who, bytes, take) in script {
                let plugin = name(names[who]);
                if take && state.take(&plugin, bytes) {
                    held[who] += bytes;
                } else if take {
                    // Every waiter wants one byte here.
                    state.wait(&plugin, 1, waker(&told, names[who]));
                } else {
                    let back = bytes.min(held[who]);
                    held[who] -= back;
                    state.give_back(&plugin, back);
                }
                for got in told.borrow_mut().drain(..) {
                    held[names.iter().position(|name| *name == got).unwrap()] += 1;
                }
                prop_assert_eq!(state.given, held.iter().sum::<u64>());
                prop_assert!(state.given <= 100);
            }
        }
    }
}
