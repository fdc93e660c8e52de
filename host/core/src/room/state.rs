//! Decides which plugin gets memory: each up to its share, and more while enough is left for plugins below their
//! share.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
    /// Whose these are: who has many of them has no more by right than who has one.
    owners: BTreeMap<Arc<str>, Owner>,
    /// The number of waits so far.
    number: u64,
}

/// Whoever has plugins, or caches.
#[derive(Debug, Default)]
struct Owner {
    /// How many of them.
    plugins: u64,
    /// What they hold; what several owners share counts for the first.
    held: u64,
    /// What those hold that are nobody else's.
    alone: u64,
    /// What their first requests have beyond its share.
    firsts: u64,
}

#[derive(Debug)]
struct Plugin<W> {
    held: u64,
    /// What of that lasts longer than calls.
    lasting: u64,
    waiting: VecDeque<Waiting<W>>,
    /// Whose it is; several, if they share it. Each with those who say so.
    owners: Vec<(Arc<str>, BTreeSet<usize>)>,
    /// Who has said whose it is, and which of their words was the last.
    said: BTreeMap<usize, u64>,
    /// Whose first request beyond its share this was, and its bytes.
    first: Option<(Arc<str>, u64)>,
}

#[derive(Debug)]
struct Waiting<W> {
    number: u64,
    bytes: u64,
    tell: W,
}

impl<W> Default for Plugin<W> {
    fn default() -> Self {
        Self { held: 0, lasting: 0, waiting: VecDeque::new(), owners: Vec::new(), said: BTreeMap::new(), first: None }
    }
}

impl<W: FnOnce() -> bool> State<W> {
    pub(super) fn new(total: u64) -> Self {
        let (plugins, owners) = (BTreeMap::new(), BTreeMap::new());
        Self { total, given: 0, lasting: 0, plugins, owners, number: 0 }
    }

    /// Takes in whose a plugin is, as somebody says for whom this is the so manieth word; who was named before stays until [`State::leaves`].
    /// One of which nobody says that is its own.
    pub(super) fn belongs<'a>(
        &mut self,
        name: &Arc<str>,
        (by, word): (usize, u64),
        owners: impl IntoIterator<Item = &'a Arc<str>>,
    ) {
        let plugin = self.plugins.entry(Arc::clone(name)).or_default();
        if plugin.said.insert(by, word) == Some(word) {
            return;
        }
        for owner in owners {
            if let Some((_, says)) = plugin.owners.iter_mut().find(|(known, _)| known == owner) {
                says.insert(by);
                continue;
            }
            let new = self.owners.entry(Arc::clone(owner)).or_default();
            new.plugins += 1;
            if plugin.owners.is_empty() {
                new.held += plugin.held;
                new.alone += plugin.held;
            }
            if let [(only, _)] = plugin.owners.as_slice()
                && let Some(only) = self.owners.get_mut(only)
            {
                only.alone = only.alone.saturating_sub(plugin.held);
            }
            plugin.owners.push((Arc::clone(owner), BTreeSet::from([by])));
        }
    }

    /// Takes in that somebody no more says of an owner that a plugin is its own. What the plugin holds counts for those who stay.
    pub(super) fn leaves(&mut self, name: &Arc<str>, by: usize, owner: &Arc<str>) {
        let Self { plugins, owners, .. } = self;
        let Some(plugin) = plugins.get_mut(name) else {
            return;
        };
        let Some(at) = plugin.owners.iter().position(|(known, _)| known == owner) else {
            return;
        };
        let others_say = plugin.owners.get_mut(at).is_some_and(|(_, says)| {
            says.remove(&by);
            !says.is_empty()
        });
        if others_say {
            return;
        }
        let was_alone = plugin.owners.len() == 1;
        plugin.owners.remove(at);
        if plugin.owners.iter().all(|(_, says)| !says.contains(&by)) {
            plugin.said.remove(&by);
        }
        let first = plugin.first.take_if(|(who, _)| who == owner).map_or(0, |(_, bytes)| bytes);
        if let Some(gone) = owners.get_mut(owner) {
            gone.plugins = gone.plugins.saturating_sub(1);
            gone.firsts = gone.firsts.saturating_sub(first);
            gone.held = gone.held.saturating_sub(if at == 0 { plugin.held } else { 0 });
            gone.alone = gone.alone.saturating_sub(if was_alone { plugin.held } else { 0 });
        }
        if let Some(next) = plugin.owners.first().and_then(|(next, _)| owners.get_mut(next)) {
            next.held += if at == 0 { plugin.held } else { 0 };
            next.alone += if plugin.owners.len() == 1 { plugin.held } else { 0 };
        }
        owners.retain(|_, owner| owner.plugins > 0);
        self.serve();
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
            self.give(name, bytes);
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
        let (owner, alone) = (plugin.owners.first().map(|(owner, _)| Arc::clone(owner)), plugin.owners.len() == 1);
        if let Some(owner) = owner.and_then(|owner| self.owners.get_mut(&owner)) {
            owner.held = owner.held.saturating_sub(back);
            owner.alone = owner.alone.saturating_sub(if alone { back } else { 0 });
        }
        self.given -= back;
        self.serve();
        self.tidy();
    }

    fn tidy(&mut self) {
        let Self { plugins, owners, .. } = self;
        plugins.retain(|_, plugin| {
            let (stays, empty) = (plugin.held > 0 || !plugin.waiting.is_empty(), plugin.held == 0);
            let first = plugin.first.take_if(|_| empty);
            if let Some((owner, bytes)) = first
                && let Some(owner) = owners.get_mut(&owner)
            {
                owner.firsts = owner.firsts.saturating_sub(bytes);
            }
            for (owner, _) in plugin.owners.iter().filter(|_| !stays) {
                if let Some(owner) = owners.get_mut(owner) {
                    owner.plugins = owner.plugins.saturating_sub(1);
                }
            }
            stays
        });
        owners.retain(|_, owner| owner.plugins > 0);
    }

    /// Returns true if somebody waits while a plugin has more than its share.
    pub(super) fn is_crowded_by(&self, name: &Arc<str>) -> bool {
        let held = self.plugins.get(name).map_or(0, |plugin| plugin.held);
        held > self.share(name) && self.plugins.values().any(|plugin| !plugin.waiting.is_empty())
    }

    /// Returns what each owner may have of the pool whatever others do.
    fn each(&self) -> u64 {
        self.total / u64::try_from(self.owners.len()).unwrap_or(u64::MAX).max(4)
    }

    /// Returns what a plugin may have of the pool whatever others do: its part of what its owner may have, or that of the owner with the
    /// fewest if it has several.
    fn share(&self, name: &Arc<str>) -> u64 {
        let owners = self.owners_of(name).map(|(_, owner)| owner.plugins);
        self.each() / owners.min().unwrap_or(1).max(1)
    }

    /// Whether somebody says of a plugin that it is this owner's.
    #[cfg(test)]
    pub(super) fn is_of(&self, name: &Arc<str>, owner: &Arc<str>) -> bool {
        self.owners_of(name).any(|(known, _)| known == owner)
    }

    fn owners_of(&self, name: &Arc<str>) -> impl Iterator<Item = (&Arc<str>, &Owner)> {
        let owners = self.plugins.get(name).map(|plugin| &plugin.owners);
        owners.into_iter().flatten().filter_map(|(owner, _)| self.owners.get_key_value(owner))
    }

    /// Whether an owner of a plugin has no more than its share with `bytes` more.
    fn is_within(&self, name: &Arc<str>, bytes: u64) -> bool {
        let each = self.each();
        self.owners_of(name).any(|(_, owner)| owner.held.saturating_add(bytes) <= each)
    }

    /// Whether an owner of a plugin has no more than its share with `bytes` more of this one, beside what it has alone: what others hold of what
    /// it has in common with them takes no share away.
    fn has_share(&self, name: &Arc<str>, bytes: u64) -> bool {
        let shared = self.plugins.get(name).filter(|plugin| plugin.owners.len() > 1).map_or(0, |plugin| plugin.held);
        let with = shared.saturating_add(bytes);
        self.owners_of(name).any(|(_, owner)| owner.alone.saturating_add(with) <= self.each())
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
                self.give(&name, bytes);
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
    /// rest is for the first request of plugins that hold nothing: those of an owner of several, beyond its share, have no more of it together than
    /// half of what they leave to others, so that who comes last finds some.
    fn may(&self, name: &Arc<str>, bytes: u64) -> bool {
        let Self { total, given, .. } = *self;
        let held = self.plugins.get(name).map_or(0, |plugin| plugin.held);
        let is_first = held == 0 && bytes <= total / 8;
        let left = total.checked_sub(given.saturating_add(bytes));
        left.is_some_and(|left| {
            let is_within = self.is_within(name, bytes);
            let is_share = self.has_share(name, bytes) && held + bytes <= self.share(name) && left >= total / 8;
            let is_modest =
                || is_within || self.owns_itself(name) || self.firsts(name).saturating_add(bytes) <= left / 2;
            (is_first && is_modest()) || is_share || left >= total / 4
        })
    }

    /// Whether nobody has said whose a plugin is.
    fn owns_itself(&self, name: &Arc<str>) -> bool {
        self.owners_of(name).all(|(owner, _)| owner == name)
    }

    /// Returns what the first requests have beyond its share of whoever owns a plugin, and has least of that.
    fn firsts(&self, name: &Arc<str>) -> u64 {
        self.owners_of(name).map(|(_, owner)| owner.firsts).min().unwrap_or_default()
    }

    /// Gives `bytes` that a plugin may have, and notes a first request beyond the share of its owner.
    fn give(&mut self, name: &Arc<str>, bytes: u64) {
        let is_first = self.plugins.get(name).is_none_or(|plugin| plugin.held == 0);
        let is_little = self.total.saturating_sub(self.given.saturating_add(bytes)) < self.total / 4;
        if is_first && is_little && !self.is_within(name, bytes) {
            let owner = self.owners_of(name).min_by_key(|(_, owner)| owner.firsts).map(|(owner, _)| Arc::clone(owner));
            if let Some(owner) = owner {
                self.owners.entry(Arc::clone(&owner)).or_default().firsts += bytes;
                self.plugin(name).first = Some((owner, bytes));
            }
        }
        self.hand_out(name, bytes);
    }

    /// Gives `bytes`, even beyond the bound.
    pub(super) fn hand_out(&mut self, name: &Arc<str>, bytes: u64) {
        self.given += bytes;
        let plugin = self.plugin(name);
        plugin.held += bytes;
        let (owner, alone) = (plugin.owners.first().map(|(owner, _)| Arc::clone(owner)), plugin.owners.len() == 1);
        if let Some(owner) = owner.and_then(|owner| self.owners.get_mut(&owner)) {
            owner.held = owner.held.saturating_add(bytes);
            owner.alone = owner.alone.saturating_add(if alone { bytes } else { 0 });
        }
    }

    fn plugin(&mut self, name: &Arc<str>) -> &mut Plugin<W> {
        if !self.plugins.contains_key(name) {
            self.belongs(name, (0, 0), [name]);
        }
        self.plugins.entry(Arc::clone(name)).or_default()
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
    fn what_another_one_holds_of_what_both_have_takes_no_share_away() {
        let mut state = State::<fn() -> bool>::new(1000);
        let (a, b, common, own) = (name("a"), name("b"), name("common"), name("own"));
        state.belongs(&common, (1, 0), &[Arc::clone(&a), Arc::clone(&b)]);
        state.belongs(&own, (1, 0), &[Arc::clone(&a)]);
        assert!(state.take(&own, 10) && state.take(&common, 600));
        let others = name("others");
        state.belongs(&others, (1, 0), &[b]);
        assert!(state.take(&others, 140));
        // It has its share of what is left, though all of what is common counts for it.
        assert!(state.take(&own, 90));
        state.give_back(&own, 100);
        assert!(state.take(&own, 100));
    }

    #[test]
    fn who_has_many_of_them_has_no_more_of_the_reserve_than_is_left_to_others() {
        let mut state = State::<fn() -> bool>::new(64_000);
        let mut first = |owner: &str, number: usize, bytes: u64| {
            let (account, owner) = (name(&format!("{owner} {number}")), name(owner));
            state.belongs(&account, (1, 0), &[owner]);
            state.take(&account, bytes)
        };
        let got = (0..500).filter(|number| first("hog", *number, 950)).count();
        assert_eq!(got, 55, "three quarters, and a third of the rest");
        assert!((0..4).all(|number| first("other", number, 950)), "its share");
        assert!(["a", "b", "c"].iter().all(|late| first(late, 0, 950)), "who comes later finds some");
        assert!((500..1000).all(|number| !first("hog", number, 950)));
    }

    #[test]
    fn who_has_many_of_them_lessens_nobody_elses_share() {
        let mut state = State::<fn() -> bool>::new(64_000);
        let mut fill = |owner: &str, accounts: usize| {
            let mut got = 0;
            for number in 0..accounts {
                let account = name(&format!("{owner} {number}"));
                state.belongs(&account, (1, 0), &[name(owner)]);
                while state.take(&account, 10) {
                    got += 10;
                }
            }
            got
        };
        let hog = fill("hog", 500);
        assert!((48_000..54_000).contains(&hog), "{hog}");
        let other = fill("other", 1);
        assert!(other >= 2_000 && fill("late", 1) > 0, "{other}");
    }

    #[test]
    fn who_leaves_what_several_share_takes_nothing_along() {
        let mut state = State::<fn() -> bool>::new(1000);
        let (a, b, common) = (name("a"), name("b"), name("common"));
        let [first, second] = [1, 2];
        state.belongs(&common, (first, 0), [&a]);
        assert!(state.take(&common, 100));
        state.belongs(&common, (second, 0), [&a, &b]);
        let of = |state: &State<fn() -> bool>, who: &Arc<str>| {
            state.owners.get(who).map(|owner| (owner.plugins, owner.held, owner.alone))
        };
        assert_eq!((of(&state, &a), of(&state, &b)), (Some((1, 100, 0)), Some((1, 0, 0))));
        state.leaves(&common, first, &a);
        assert_eq!(of(&state, &a), Some((1, 100, 0)), "the second says so, too");
        state.leaves(&common, second, &a);
        assert_eq!((of(&state, &a), of(&state, &b)), (None, Some((1, 100, 100))));
        state.leaves(&common, second, &b);
        assert_eq!(of(&state, &b), None);
        state.belongs(&common, (second, 1), [&b]);
        assert_eq!(of(&state, &b), Some((1, 100, 100)), "what it holds counts for who comes");
        for number in 0..1000 {
            let guest = name(&format!("guest {number}"));
            state.belongs(&common, (second, 2 + number), [&b, &guest]);
            state.leaves(&common, second, &guest);
        }
        assert_eq!((state.each(), state.owners.len()), (250, 1), "nobody has less for those who are gone");
        state.give_back(&common, 100);
        assert_eq!((state.plugins.len(), state.owners.len(), state.given), (0, 0, 0));
    }

    #[test]
    fn what_several_share_has_the_share_of_who_has_least() {
        let mut state = State::<fn() -> bool>::new(64_000);
        for number in 0..100 {
            state.belongs(&name(&format!("hog {number}")), (1, 0), &[name("hog")]);
        }
        let common = name("hog 0");
        assert_eq!(state.share(&common), 160);
        state.belongs(&common, (2, 0), &[name("other")]);
        assert_eq!(state.share(&common), 16_000);
        assert!(state.take(&common, 10));
        state.give_back(&common, 10);
        assert_eq!((state.plugins.len(), state.owners.len()), (0, 0), "nothing is kept of who is gone");
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
