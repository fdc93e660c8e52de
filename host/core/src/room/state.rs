//! Decides who may have memory: each plugin up to its share of it, and more as long as enough is left for those below theirs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// All that is given away, and who waits. `W` tells one who waits that he has it; it says whether anybody heard.
#[derive(Debug)]
pub(super) struct State<W> {
    total: u64,
    free: u64,
    plugins: BTreeMap<Arc<str>, Plugin<W>>,
}

#[derive(Debug)]
struct Plugin<W> {
    held: u64,
    waiting: VecDeque<(u64, W)>,
}

impl<W: FnOnce() -> bool> State<W> {
    pub(super) fn new(total: u64) -> Self {
        let plugins = BTreeMap::new();
        Self {
            total,
            free: total,
            plugins,
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Gives so much at once, if it may be given and nobody of the same plugin came before.
    pub(super) fn take(&mut self, name: &Arc<str>, bytes: u64) -> bool {
        self.plugin(name);
        let first = self
            .plugins
            .get(name)
            .is_none_or(|plugin| plugin.waiting.is_empty());
        let may = first && self.may(name, bytes);
        if may {
            self.hand_out(name, bytes);
        }
        may
    }

    /// Waits for so much.
    pub(super) fn wait(&mut self, name: &Arc<str>, bytes: u64, waker: W) {
        self.plugin(name).waiting.push_back((bytes, waker));
    }

    /// Takes so much back, and gives it to those who wait.
    pub(super) fn give_back(&mut self, name: &Arc<str>, bytes: u64) {
        let plugin = self.plugin(name);
        plugin.held -= bytes.min(plugin.held);
        self.free = self.total.min(self.free + bytes);
        self.serve();
        self.plugins
            .retain(|_, plugin| plugin.held > 0 || !plugin.waiting.is_empty());
    }

    /// Returns who has most, and how much.
    pub(super) fn most(&self) -> Option<(Arc<str>, u64)> {
        let most = self.plugins.iter().max_by_key(|(_, plugin)| plugin.held);
        most.map(|(name, plugin)| (Arc::clone(name), plugin.held))
    }

    /// Gives to those who wait what may be given, first to those who have least.
    fn serve(&mut self) {
        while let Some((name, bytes)) = self.next() {
            let waiting = self
                .plugins
                .get_mut(&name)
                .and_then(|plugin| plugin.waiting.pop_front());
            if waiting.is_some_and(|(_, tell)| tell()) {
                self.hand_out(&name, bytes);
            }
        }
    }

    fn next(&self) -> Option<(Arc<str>, u64)> {
        let heads = self.plugins.iter().filter_map(|(name, plugin)| {
            let (bytes, _) = plugin.waiting.front()?;
            self.may(name, *bytes)
                .then_some((plugin.held, name, *bytes))
        });
        let (_, name, bytes) = heads.min()?;
        Some((Arc::clone(name), bytes))
    }

    /// Whether a plugin may have so much more: within its share whatever is free; beyond it only what leaves a quarter of all
    /// free, so that no plugin, however much it wants, has what others need to do anything at all.
    fn may(&self, name: &Arc<str>, bytes: u64) -> bool {
        let held = self.plugins.get(name).map_or(0, |plugin| plugin.held);
        let sharers = u64::try_from(self.plugins.len()).unwrap_or(u64::MAX).max(2);
        let left = self.free.checked_sub(bytes);
        left.is_some_and(|left| held + bytes <= self.total / sharers || left >= self.total / 4)
    }

    fn hand_out(&mut self, name: &Arc<str>, bytes: u64) {
        self.free -= bytes.min(self.free);
        self.plugin(name).held += bytes;
    }

    fn plugin(&mut self, name: &Arc<str>) -> &mut Plugin<W> {
        self.plugins
            .entry(Arc::clone(name))
            .or_insert_with(|| Plugin {
                held: 0,
                waiting: VecDeque::new(),
            })
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
        assert!(
            !state.take(&hog, 1),
            "beyond its share, a quarter stays free"
        );
        assert!(state.take(&name("small"), 250), "within its own share");
        assert!(!state.take(&name("other"), 1), "there is none");
        assert_eq!(state.most(), Some((hog, 750)));
    }

    #[test]
    fn what_comes_back_goes_to_who_has_least_and_within_a_plugin_to_who_came_first() {
        let (mut state, told) = (State::new(100), Told::default());
        let [a, b] = ["a", "b"].map(name);
        assert!(state.take(&a, 50) && state.take(&b, 40));
        state.wait(&a, 20, waker(&told, "a1"));
        state.wait(&a, 1, waker(&told, "a2"));
        state.wait(&b, 20, waker(&told, "b1"));
        assert!(!state.take(&a, 1), "others of the plugin came before");
        state.give_back(&a, 30);
        assert_eq!(*told.borrow(), ["a1", "a2"], "b1 would be beyond its share");
        state.wait(&a, 9, waker(&told, "a3"));
        state.give_back(&b, 40);
        assert_eq!(*told.borrow(), ["a1", "a2", "b1", "a3"]);
    }

    #[test]
    fn one_that_has_given_up_takes_nothing() {
        let mut state = State::new(100);
        let a = name("a");
        assert!(state.take(&a, 50));
        state.wait(&a, 50, || false);
        state.give_back(&a, 50);
        assert_eq!((state.free, state.plugins.len()), (100, 0));
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
                    // All that wait want one byte here.
                    state.wait(&plugin, 1, waker(&told, names[who]));
                } else {
                    let back = bytes.min(held[who]);
                    held[who] -= back;
                    state.give_back(&plugin, back);
                }
                for got in told.borrow_mut().drain(..) {
                    held[names.iter().position(|name| *name == got).unwrap()] += 1;
                }
                prop_assert_eq!(state.free + held.iter().sum::<u64>(), 100);
            }
        }
    }
}
