//! Echo filter: decides which of the events that are held while own writes are under way are swallowed, merged or
//! released (FW).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::object::{Change, ObjectRef, Version};

/// A window with more bytes than this in several events is not held any longer: a run too many is better than memory without end.
const MOST: usize = 256 << 10;

/// The windows of one source: one for each object that is being written, or whose echo has not come yet (`FW-4`).
/// Pure: each method takes an event or a fact, and returns at most one change for each object.
#[derive(Clone, Debug, Default)]
pub struct EchoFilter {
    windows: HashMap<ObjectRef, Window>,
    /// True if the end of an object is never held: whoever closes a window tells of it after what the watch shows meanwhile, such as
    /// another object of its name.
    ends_pass: bool,
}

/// The window of one object.
#[derive(Clone, Debug, Default)]
struct Window {
    /// The number of writes under way.
    active: usize,
    /// The versions in the answers of own writes, as long as their echo has not been seen.
    own: BTreeSet<Version>,
    held: BTreeMap<Version, Held>,
    /// The version up to which no further event will come.
    passed: Version,
    /// The primaries that the answers belonged to when they were written (`FW-7`).
    mapped: BTreeSet<ObjectRef>,
    /// True if its end has been told of where ends are never held: that it is back is news, whoever has brought it back.
    ended: bool,
}

/// The state of the list: while it is being read, an event may stand for several changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listing {
    /// A list is being read.
    Running,
    /// No list is being read: each change has its own event.
    #[default]
    Idle,
}

/// The decision about an event.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is no window: the event is passed on unchanged.
    Pass(Change),
    /// The event is held, or was the echo of an own write.
    Held,
    /// The window releases this change.
    Released(Released),
}

/// The change that a window releases, in place of the events that it held.
#[derive(Debug, PartialEq, Eq)]
pub struct Released {
    /// The widest change that the held events add up to.
    pub change: Change,
    /// The primaries that get a trigger besides those of the change itself (`FW-7`).
    pub mapped: BTreeSet<ObjectRef>,
}

#[derive(Clone, Debug)]
struct Held {
    change: Change,
    listing: Listing,
}

// === impl EchoFilter ===

impl EchoFilter {
    /// Returns a filter for primaries, whose keys end with them.
    pub fn of_primaries() -> Self {
        Self { windows: HashMap::new(), ends_pass: true }
    }

    /// Opens a window for a write that starts, or counts one more write in it. `synced` is the version that the cache
    /// has seen so far: the version of the write is higher, unless the write changes nothing.
    pub fn open(&mut self, key: &ObjectRef, synced: Version) {
        let window = self.windows.entry(key.clone()).or_insert_with(|| Window { passed: synced, ..Window::default() });
        window.active += 1;
    }

    /// Returns the number of writes of an object that are under way.
    pub fn writes(&self, key: &ObjectRef) -> usize {
        self.windows.get(key).map_or(0, |window| window.active)
    }

    /// Takes in the version in the answer of a write, and the primaries that the answer belongs to (`FW-7`).
    pub fn answered(&mut self, key: &ObjectRef, version: Version, mapped: BTreeSet<ObjectRef>) {
        if let Some(window) = self.windows.get_mut(key) {
            window.answered(version);
            window.mapped.extend(mapped);
        }
    }

    /// Returns the primaries that the answers to writes of an object belonged to, as long as there is a window.
    pub fn mapped(&self, key: &ObjectRef) -> BTreeSet<ObjectRef> {
        self.windows.get(key).map(|window| window.mapped.clone()).unwrap_or_default()
    }

    /// Takes in primaries that what is held may concern.
    pub fn concerns(&mut self, key: &ObjectRef, primaries: BTreeSet<ObjectRef>) {
        if let Some(window) = self.windows.get_mut(key) {
            window.mapped.extend(primaries);
        }
    }

    /// Ends a write, answered or not (`FW-5`). Returns the change that is no longer held.
    pub fn close(&mut self, key: &ObjectRef) -> Option<Released> {
        let window = self.windows.get_mut(key)?;
        window.active = window.active.saturating_sub(1);
        self.check(key, None)
    }

    /// Takes in an event from the watch, or from a list (`FW-1`).
    pub fn admit(&mut self, change: Change, listing: Listing) -> Verdict {
        let Some(window) = (if self.windows.is_empty() { None } else { self.windows.get_mut(change.object().key()) })
        else {
            return Verdict::Pass(change);
        };
        let key = change.object().key().clone();
        let ends = self.ends_pass && (is_deleted(&change) || change.made_again().is_some());
        let version = change.object().version();
        window.hold(change, listing);
        let end = (ends || window.is_full()).then_some(version);
        self.check(&key, end).map_or(Verdict::Held, Verdict::Released)
    }

    /// Ends a list that was taken at `version`, for the objects that it `covers`: no echoes up to that version will
    /// come any more. Returns the changes that are no longer held, ordered by key.
    pub fn listed(&mut self, version: Version, covers: impl Fn(&ObjectRef) -> bool) -> Vec<Released> {
        self.settle(version, |key, _| covers(key))
    }

    /// Takes in that the watch has reached `version` for the objects that it `covers`: echoes up to that version that
    /// have not come are of objects that the watch does not show. Returns the changes that are no longer held,
    /// ordered by key.
    pub fn overtaken(&mut self, version: Version, covers: impl Fn(&ObjectRef) -> bool) -> Vec<Released> {
        // An event may come before the answer by which it is known as an echo.
        self.settle(version, |key, window| window.active == 0 && covers(key))
    }

    fn settle(&mut self, version: Version, which: impl Fn(&ObjectRef, &Window) -> bool) -> Vec<Released> {
        let settled = self.windows.iter().filter(|(key, window)| which(key, window));
        let settled: BTreeSet<ObjectRef> = settled.map(|(key, _)| key.clone()).collect();
        let settle = |key: &ObjectRef| {
            self.windows.get_mut(key)?.passed(version);
            self.check(key, None)
        };
        settled.iter().filter_map(settle).collect()
    }

    /// Drops the held events and own versions of the objects that `which` accepts, of which nothing is known any more (`OV-5`). A write
    /// under way keeps its window, empty: that the object is there again is news then.
    pub fn discard(&mut self, which: impl Fn(&ObjectRef) -> bool) {
        let ends_pass = self.ends_pass;
        self.windows.retain(|key, window| {
            if which(key) {
                window.own.clear();
                window.held.clear();
                window.ended = ends_pass;
            }
            !window.is_done()
        });
    }

    /// Returns the number of windows.
    pub fn len(&self) -> usize {
        self.windows.len()
    }

    /// Returns true if there are no windows.
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// Returns the change that is no longer held, with what is up to `end` in any case, and removes the window if it has nothing left to
    /// wait for (`FW-4`).
    fn check(&mut self, key: &ObjectRef, end: Option<Version>) -> Option<Released> {
        let window = self.windows.get_mut(key)?;
        let change = match end {
            Some(end) => window.range(Some(after(end))), // 8
            None => window.check(),
        };
        if let Some(change) = &change {
            window.ended = self.ends_pass && is_deleted(change);
        }
        let mapped = change.as_ref().map(|_| window.mapped.clone()).unwrap_or_default();
        if window.is_done() {
            self.windows.remove(key);
        }
        change.map(|change| Released { change, mapped })
    }
}

// === impl Window ===

impl Window {
    fn hold(&mut self, change: Change, listing: Listing) {
        let version = change.object().version();
        self.held.insert(version, Held { change, listing });
    }

    /// Returns true if it holds so much that it can't wait for what else comes.
    fn is_full(&self) -> bool {
        let bytes = |held: &Held| match &held.change {
            Change::Added(object) | Change::Deleted { last: object, .. } => object.held(),
            Change::Updated { old, new } => old.held() + new.held(),
        };
        self.held.len() > 1 && self.held.values().map(bytes).sum::<usize>() > MOST
    }

    fn answered(&mut self, version: Version) {
        // RO-7, FW-9: no echo will come of a version that has passed; waiting for it would keep the window forever.
        if version > self.passed {
            self.own.insert(version);
        }
    }

    fn passed(&mut self, version: Version) {
        self.passed = self.passed.max(version);
        self.own = self.own.split_off(&after(version));
    }

    fn is_done(&self) -> bool {
        self.active == 0 && self.own.is_empty() && self.held.is_empty()
    }

    /// Returns the change that is no longer held (`FW-2`, the numbers are its cases).
    fn check(&mut self) -> Option<Change> {
        let (last, _) = self.held.last_key_value()?; // 1
        let first_deleted = self.held.first_key_value().is_some_and(|(_, first)| is_deleted(&first.change));
        if self.own.is_empty() {
            // 2, 3; else 4
            return (self.active == 0 || first_deleted).then(|| self.range(None)).flatten();
        }
        let echoed = *self.own.range(..=last).next_back()?; // 4
        let awaited = self.own.range(after(echoed)..).next().copied();
        match awaited {
            None if self.active == 0 => self.range(None), // 5
            Some(awaited) => self.range(Some(awaited)),   // 6
            None => self.range(Some(after(echoed))),      // 7
        }
    }

    /// Takes out the events that were held before `end` (`None`: all) together with the own versions before it, and
    /// returns the change that they add up to.
    fn range(&mut self, end: Option<Version>) -> Option<Change> {
        let later = end.map(|end| self.held.split_off(&end)).unwrap_or_default();
        let held = std::mem::replace(&mut self.held, later);
        let (&last, _) = held.last_key_value()?;
        let later = end.map(|end| self.own.split_off(&end)).unwrap_or_default();
        let own = std::mem::replace(&mut self.own, later);
        self.passed = self.passed.max(last);
        let echoes = if self.ended { BTreeSet::new() } else { own };
        sum(held, &echoes)
    }
}

/// Returns the change that held events add up to, given the own versions among them (`FW-3`, the numbers are its
/// cases).
fn sum(mut held: BTreeMap<Version, Held>, own: &BTreeSet<Version>) -> Option<Change> {
    let listed = held.values().any(|held| held.listing == Listing::Running);
    if is_deleted(&held.last_key_value()?.1.change) {
        return held.pop_last().map(|(_, last)| last.change); // 1
    }
    let gone = is_deleted(&held.first_key_value()?.1.change).then(|| held.pop_first()).flatten(); // 2
    if !listed && held.keys().eq(own) {
        return None; // 3
    }
    let (_, first) = held.pop_first()?;
    let new = held.pop_last().map_or_else(
        || first.change.object().clone(), // 4
        |(_, last)| last.change.object().clone(),
    );
    Some(match (gone, first.change) {
        // 5, but a new object stays new: as an update it would not pass a filter that looks at generations, and the
        // controller would never learn of it (FW-8).
        (None, Change::Added(_)) => Change::Added(new),
        (None, Change::Updated { old, .. } | Change::Deleted { last: old, .. }) => Change::Updated { old, new },
        // The object was deleted and made again: its uid and its owners were different.
        (Some((_, gone)), _) => Change::Updated { old: gone.change.object().clone(), new },
    })
}

fn is_deleted(change: &Change) -> bool {
    matches!(change, Change::Deleted { .. })
}

fn after(version: Version) -> Version {
    Version(version.0.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::object::{Gvk, Managers, Object};

    fn key() -> ObjectRef {
        ObjectRef::namespaced("n", "a")
    }

    fn object(version: u64) -> Object {
        named("a", version)
    }

    fn named(name: &str, version: u64) -> Object {
        let json = format!(r#"{{"metadata":{{"namespace":"n","name":"{name}","resourceVersion":"{version}"}}}}"#);
        Object::parse(&json, &Gvk::parse("v1", "ConfigMap").unwrap(), &Managers::default()).unwrap()
    }

    fn updated(version: u64, old: u64) -> Change {
        Change::Updated { old: object(old), new: object(version) }
    }

    fn deleted(version: u64) -> Change {
        Change::Deleted { last: object(version), unknown: false }
    }

    /// Writes a change as the scripts do: `A100`, `U100<99` (old 99), `D100`.
    fn show(change: &Change) -> String {
        match change {
            Change::Added(new) => format!("A{}", new.version()),
            Change::Updated { old, new } => format!("U{}<{}", new.version(), old.version()),
            Change::Deleted { last, .. } => format!("D{}", last.version()),
        }
    }

    #[test]
    fn a_primary_that_is_forgotten_while_it_is_written_to_is_told_of_when_it_comes_again() {
        // NS-2, FW-8
        for (mut filter, told) in [(EchoFilter::of_primaries(), true), (EchoFilter::default(), false)] {
            filter.open(&key(), Version(1));
            filter.discard(|_| true);
            assert_eq!(filter.admit(Change::Added(object(5)), Listing::Idle), Verdict::Held);
            filter.answered(&key(), Version(5), BTreeSet::new());
            let released = filter.close(&key()).map(|released| show(&released.change));
            assert_eq!(released, told.then(|| "A5".to_owned()));
            assert!(filter.is_empty());
        }
    }

    #[test]
    fn a_primary_that_an_own_write_brings_back_is_told_as_new_once_its_end_was_told() {
        // FW-8: somebody had taken it out of the selection meanwhile.
        for (mut filter, expected) in [(EchoFilter::of_primaries(), "D2 A3"), (EchoFilter::default(), "")] {
            filter.open(&key(), Version(1));
            filter.answered(&key(), Version(3), BTreeSet::new());
            let mut told: Vec<_> = filter.close(&key()).into_iter().collect();
            for change in [deleted(2), Change::Added(object(3))] {
                if let Verdict::Released(released) = filter.admit(change, Listing::Idle) {
                    told.push(released);
                }
            }
            let told: Vec<_> = told.iter().map(|released| show(&released.change)).collect();
            assert_eq!((told.join(" "), filter.len()), (expected.to_owned(), 0));
        }
    }

    /// Plays a script on one window. Its words: `begin` and `end` of a write; `own100`, an answer; `A100`, `U100`
    /// (old 99), `D100`, events; `list` and `listed` around a list; `?` runs CHECK and notes what it emits; `gone`
    /// notes whether the window may be removed; `passed100`, a bookmark.
    fn play(script: &str) -> String {
        let mut window = Window::default();
        let mut listing = Listing::Idle;
        let mut noted = Vec::new();
        for word in script.split_whitespace() {
            let version = || word.trim_start_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().unwrap();
            match word {
                "begin" => window.active += 1,
                "end" => window.active -= 1,
                "list" => listing = Listing::Running,
                "listed" => listing = Listing::Idle,
                "?" => noted.push(window.check().as_ref().map_or("-".to_owned(), show)),
                "gone" => noted.push(if window.is_done() { "gone" } else { "stays" }.to_owned()),
                passed if passed.starts_with("passed") => window.passed(Version(version())),
                own if own.starts_with("own") => window.answered(Version(version())),
                event => {
                    let version = version();
                    let change = match event.chars().next().unwrap() {
                        'A' => Change::Added(object(version)),
                        'U' => updated(version, version - 1),
                        'D' => deleted(version),
                        other => panic!("no such event: {other}"),
                    };
                    window.hold(change, listing);
                }
            }
        }
        noted.join(" ")
    }

    #[test]
    fn what_was_held_is_swallowed_merged_or_released() {
        // FW-1, FW-2, FW-3: what is held, and what is released, script by script
        for (script, emitted) in [
            ("begin own100 U100 ? gone end gone", "- stays gone"),
            ("begin own100 A100 ?", "-"),
            ("begin own100 U99 U100 ?", "U100<98"),
            ("begin own100 begin own101 U100 ? end end gone U101 ? gone", "- stays - gone"),
            ("begin own100 end gone A101 ? gone", "stays A101 gone"),
            ("begin U100 ? end ? gone", "- U100<99 gone"),
            ("begin own101 U100 U101 U102 end ? gone", "U102<99 gone"),
            ("begin own101 begin U100 U101 U102 ? end own102 ? end gone", "U101<99 - gone"),
            ("begin own100 begin own102 U100 U101 U102 ? end end gone", "U102<99 gone"),
            ("begin own100 begin own102 U100 U101 ? end gone U102 ? end gone", "U101<99 stays - gone"),
            ("begin own100 D100 ? end gone", "D100 gone"),
            ("begin own100 D99 A100 ? end gone", "- gone"),
            ("begin own102 U100 D101 A102 ? end gone", "U102<99 gone"),
            ("begin own100 U100 D101 ? gone end ? gone", "- stays D101 gone"),
            ("begin own101 U100 U101 D102 ? end gone ? gone", "U101<99 stays D102 gone"),
            ("begin own100 list U100 listed ? end gone", "U100<99 gone"),
            ("begin own100 U98 ? end ? list U100 listed ? gone", "- - U100<97 gone"),
        ] {
            assert_eq!(play(script), emitted, "{script}");
        }
    }

    #[test]
    fn each_case_of_check_and_range() {
        for (case, script, emitted) in [
            ("FW-2.1", "begin own100 ? end ?", "- -"),
            ("FW-2.2", "begin end U100 ?", "U100<99"),
            ("FW-2.3", "begin D100 ?", "D100"),
            ("FW-2.4", "begin own100 U99 ?", "-"),
            ("FW-2.5", "begin own100 end U100 U101 ?", "U101<99"),
            ("FW-2.6", "begin own100 own103 end U100 U101 ? U103 ? gone", "U101<99 - gone"),
            ("FW-2.7", "begin own100 U100 U101 ? end ?", "- U101<100"),
            ("FW-3.1", "begin U100 U101 D102 end ?", "D102"),
            ("FW-3.2", "begin own101 D100 A101 U102 end ?", "U102<100"),
            ("FW-3.3", "begin own100 own101 U100 U101 ?", "-"),
            ("FW-3.3, tagged", "begin own100 own101 U100 list U101 listed ?", "U101<99"),
            ("FW-3.4", "begin D100 A101 end ?", "U101<100"),
            ("FW-3.5", "begin U100 U101 U102 end ?", "U102<99"),
            ("FW-3.5, new", "begin A100 U101 end ?", "A101"),
            ("a version twice", "begin U100 U100 end ?", "U100<99"),
            ("FW-4, in no watch", "begin own100 end passed99 ? gone passed100 ? gone", "- stays - gone"),
            ("FW-4, held for what is in no watch", "begin own100 end A50 ? passed100 ? gone", "- A50 gone"),
            ("RO-7, no echo to come", "begin D101 ? own100 end gone", "D101 gone"),
        ] {
            assert_eq!(play(script), emitted, "{case}: {script}");
        }
    }

    #[test]
    fn without_a_window_events_pass_straight_through() {
        let mut windows = EchoFilter::default();
        let change = updated(100, 99);
        assert_eq!(windows.admit(change.clone(), Listing::Running), Verdict::Pass(change.clone()));
        windows.open(&ObjectRef::namespaced("n", "b"), Version(0));
        assert_eq!(windows.admit(change.clone(), Listing::Idle), Verdict::Pass(change));
    }

    #[test]
    fn a_write_that_fails_lets_go_what_was_held() {
        // FW-5
        let mut windows = EchoFilter::default();
        windows.open(&key(), Version(99));
        assert_eq!(windows.admit(updated(100, 99), Listing::Idle), Verdict::Held);
        let released = Released { change: updated(100, 99), mapped: BTreeSet::new() };
        assert_eq!(windows.close(&key()), Some(released));
        assert!(windows.is_empty());
        assert_eq!(windows.close(&key()), None);
    }

    #[test]
    fn what_is_released_names_the_primaries_of_the_writes() {
        // FW-7
        let mut windows = EchoFilter::default();
        let mapped = BTreeSet::from([ObjectRef::namespaced("n", "primary")]);
        windows.open(&key(), Version(99));
        windows.answered(&key(), Version(100), mapped.clone());
        assert_eq!(windows.close(&key()), None);
        let verdict = windows.admit(updated(101, 99), Listing::Idle);
        assert_eq!(verdict, Verdict::Released(Released { change: updated(101, 99), mapped }));
        assert!(windows.is_empty());
    }

    #[test]
    fn a_window_outlives_its_write_until_the_echo_comes_and_no_longer() {
        // FW-4, FW-9
        let mut windows = EchoFilter::default();
        windows.open(&key(), Version(99));
        windows.answered(&key(), Version(100), BTreeSet::new());
        assert_eq!((windows.close(&key()), windows.len()), (None, 1));
        assert_eq!(windows.admit(updated(100, 99), Listing::Idle), Verdict::Held);
        assert!(windows.is_empty());
        let again = updated(100, 99);
        assert_eq!(windows.admit(again.clone(), Listing::Idle), Verdict::Pass(again));
    }

    #[test]
    fn a_write_that_changed_nothing_leaves_no_window() {
        // RO-7
        let mut windows = EchoFilter::default();
        windows.open(&key(), Version(100));
        windows.answered(&key(), Version(100), BTreeSet::new());
        assert_eq!(windows.close(&key()), None);
        assert!(windows.is_empty());
    }

    #[test]
    fn a_finished_list_ends_the_wait_for_echoes_it_has_overtaken() {
        let mut windows = EchoFilter::default();
        windows.open(&key(), Version(90));
        windows.answered(&key(), Version(100), BTreeSet::new());
        windows.open(&ObjectRef::namespaced("n", "b"), Version(90));
        windows.answered(&ObjectRef::namespaced("n", "b"), Version(120), BTreeSet::new());
        windows.close(&ObjectRef::namespaced("n", "b"));
        assert_eq!(windows.close(&key()), None);
        assert_eq!(windows.listed(Version(110), |_| true), []);
        assert_eq!(windows.len(), 1, "the echo of 120 is still to come");
    }

    #[test]
    fn an_answer_that_a_list_has_overtaken_awaits_no_echo() {
        let mut windows = EchoFilter::default();
        windows.open(&key(), Version(90));
        assert_eq!(windows.listed(Version(110), |_| true), []);
        windows.answered(&key(), Version(100), BTreeSet::new());
        assert_eq!(windows.close(&key()), None);
        assert!(windows.is_empty());
    }

    #[test]
    fn a_missed_deletion_is_released_when_its_list_ends() {
        // The own version 100 was never seen; the object as last seen has version 98.
        let gone = || Change::Deleted { last: object(98), unknown: true };
        let mut windows = EchoFilter::default();
        windows.open(&key(), Version(98));
        windows.answered(&key(), Version(100), BTreeSet::new());
        windows.close(&key());
        assert_eq!(windows.admit(gone(), Listing::Running), Verdict::Held);
        let released = Released { change: gone(), mapped: BTreeSet::new() };
        assert_eq!(windows.listed(Version(110), |_| true), [released]);
        assert!(windows.is_empty());
    }

    #[test]
    fn discarding_forgets_one_object_only() {
        // OV-5
        let other = ObjectRef::namespaced("n", "b");
        let mut windows = EchoFilter::default();
        for (key, name) in [(key(), "a"), (other.clone(), "b")] {
            windows.open(&key, Version(0));
            let change = Change::Added(named(name, 100));
            assert_eq!(windows.admit(change, Listing::Idle), Verdict::Held);
        }
        windows.discard(|key| key.name.as_ref() == "a");
        assert_eq!(windows.close(&key()), None);
        let released = Released { change: Change::Added(named("b", 100)), mapped: BTreeSet::new() };
        assert_eq!(windows.close(&other), Some(released));
    }

    // === no foreign change is lost ===

    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// One of our writes starts.
        Begin,
        /// The server carries out the oldest write that it has not carried out yet.
        Write,
        /// The same, and the watch does not show the result: a selector leaves it out.
        Unseen,
        /// The same, and the write changes nothing.
        Idle,
        /// The answer of the n-th write under way arrives, if it was carried out.
        Answer(usize),
        /// The n-th write under way is given up, carried out or not.
        GiveUp(usize),
        /// Another client writes the object.
        Foreign,
        /// Another client deletes the object; the next write makes it again.
        Delete,
        /// The watch delivers one event.
        Deliver,
        /// A bookmark with the version that the watch has reached.
        Bookmark,
        /// The watch breaks, and a list delivers the newest version.
        List,
    }

    /// A version of the object, and who has changed the object up to it.
    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    struct Seen {
        version: u64,
        /// The version in which the object was made.
        made: u64,
        /// The number of other clients' changes since then.
        theirs: u64,
        /// True if we have changed it since then.
        ours: bool,
    }

    /// Returns true if an answer is that of our own change, given the version that was known before.
    type Judge = fn(Option<Seen>, Seen) -> bool;

    /// Decides as the code that writes does.
    fn is_our_change(known: Option<Seen>, answer: Seen) -> bool {
        known.map_or(answer.ours, |known| {
            let same = (known.made, known.theirs) == (answer.made, answer.theirs);
            known.version < answer.version && same
        })
    }

    /// One of our writes.
    struct Own {
        known: Option<Seen>,
        /// `None` before the write is carried out.
        answer: Option<Seen>,
        idle: bool,
    }

    struct World {
        judge: Judge,
        windows: EchoFilter,
        /// The newest version of all, and the object at the server.
        newest: u64,
        server: Option<Seen>,
        /// The version that the watch has reached, the object as the watch showed it, and the newest answer beyond
        /// that.
        synced: u64,
        cached: Option<Seen>,
        answer: Option<Seen>,
        /// Writes under way.
        writes: Vec<Own>,
        /// Events to come; `None`: the object was deleted.
        late: VecDeque<(u64, Option<Seen>)>,
        /// The versions that the watch never shows.
        unseen: Vec<u64>,
        /// The versions that other clients wrote and deleted.
        foreign: Vec<u64>,
        /// Deletions, with the versions in which we have made the object again at once.
        deleted: BTreeMap<u64, Option<u64>>,
        /// The versions that we wrote without getting an answer, and those in the answers that we got.
        unheard: Vec<u64>,
        heard: Vec<u64>,
        /// For the last seen version of an object whose deletion a list found: the version up to which that deletion
        /// covers all changes.
        missed: BTreeMap<u64, u64>,
        emitted: Vec<Change>,
    }

    impl World {
        fn new(judge: Judge) -> Self {
            Self::of(judge, EchoFilter::default())
        }

        fn of(judge: Judge, windows: EchoFilter) -> Self {
            Self {
                judge,
                windows,
                newest: 0,
                server: None,
                synced: 0,
                cached: None,
                answer: None,
                writes: Vec::new(),
                late: VecDeque::new(),
                unseen: Vec::new(),
                foreign: Vec::new(),
                deleted: BTreeMap::new(),
                unheard: Vec::new(),
                heard: Vec::new(),
                missed: BTreeMap::new(),
                emitted: Vec::new(),
            }
        }

        fn step(&mut self, step: Step) {
            let last = self.writes.len().checked_sub(1);
            match step {
                // An unknown object is written by one write at a time: of two writes, it can't be decided which has
                // made it.
                Step::Begin if self.known().is_none() && last.is_some() => {}
                Step::Begin => {
                    self.windows.open(&key(), Version(self.synced));
                    self.writes.push(Own { known: self.known(), answer: None, idle: false });
                }
                // An object that has never been seen would be new.
                Step::Unseen if self.cached.is_none() || self.server.is_none() => {}
                Step::Write | Step::Unseen | Step::Idle => self.carry_out(step),
                Step::Answer(n) => {
                    if let Some(place) = last.map(|last| n.min(last))
                        && let Some(answer) = self.writes[place].answer
                    {
                        let own = self.writes.remove(place);
                        self.answered(own.known, answer);
                    }
                }
                Step::GiveUp(n) => {
                    if let Some(place) = last.map(|last| n.min(last)) {
                        let Own { answer, idle, .. } = self.writes.remove(place);
                        let written = answer.filter(|_| !idle);
                        self.unheard.extend(written.map(|seen| seen.version));
                        let released = self.windows.close(&key());
                        self.emit(released);
                    }
                }
                Step::Foreign => {
                    let written = self.write(false);
                    self.late.push_back((written.version, self.server));
                    self.foreign.push(written.version);
                }
                Step::Delete => {
                    if self.server.take().is_some() {
                        self.newest += 1;
                        self.late.push_back((self.newest, None));
                        self.deleted.insert(self.newest, None);
                    }
                }
                Step::Deliver => {
                    if let Some((version, seen)) = self.late.pop_front() {
                        self.deliver(version, seen, Listing::Idle);
                        self.passed(version);
                    }
                }
                Step::Bookmark => {
                    let next = self.late.front();
                    let passed = next.map_or(self.newest, |(next, _)| next - 1);
                    self.passed(passed);
                    let released = self.windows.overtaken(Version(passed), |_| true);
                    self.emit(released);
                }
                Step::List => self.list(),
            }
        }

        fn known(&self) -> Option<Seen> {
            self.answer.or(self.cached)
        }

        fn carry_out(&mut self, step: Step) {
            let Some(place) = self.writes.iter().position(|own| own.answer.is_none()) else {
                return;
            };
            let idle = matches!(step, Step::Idle);
            let answer = if idle { self.server } else { Some(self.write(true)) };
            if matches!(step, Step::Unseen) {
                self.unseen.push(self.newest);
            } else if !idle {
                self.late.push_back((self.newest, answer));
            }
            let known = self.writes[place].known;
            self.writes[place] = Own { known, answer, idle };
        }

        fn write(&mut self, ours: bool) -> Seen {
            self.newest += 1;
            let made = self.newest;
            if ours && let Some(again) = self.deleted.get_mut(&(made - 1)) {
                *again = Some(made);
            }
            let before = self.server.unwrap_or(Seen { made, ..Seen::default() });
            *self.server.insert(Seen {
                version: self.newest,
                made: before.made,
                theirs: before.theirs + u64::from(!ours),
                ours: before.ours || ours,
            })
        }

        fn answered(&mut self, known: Option<Seen>, answer: Seen) {
            if (self.judge)(known, answer) {
                let version = Version(answer.version);
                self.windows.answered(&key(), version, BTreeSet::new());
                self.heard.push(answer.version);
            }
            let newest = self.answer.map_or(self.synced, |seen| seen.version);
            if answer.version > newest {
                self.answer = Some(answer);
            }
            let released = self.windows.close(&key());
            self.emit(released);
        }

        fn passed(&mut self, version: u64) {
            self.synced = self.synced.max(version);
            self.answer = self.answer.filter(|seen| seen.version > self.synced);
        }

        fn list(&mut self) {
            if let Some((version, seen)) = self.late.pop_back() {
                let passed: Vec<u64> = self.late.drain(..).map(|(version, _)| version).collect();
                match (seen, self.cached) {
                    (Some(_), _) => self.deliver(version, seen, Listing::Running),
                    (None, Some(last)) => {
                        self.missed.insert(last.version, self.newest);
                        self.deliver(last.version, None, Listing::Running);
                        self.answer = None;
                    }
                    // The object was made and deleted without being seen.
                    (None, None) => {
                        self.unseen.extend(passed);
                        self.unseen.push(version);
                    }
                }
            }
            if let Some(ghost) = self.answer.filter(|_| self.cached.is_none()) {
                self.windows.discard(|_| true);
                self.missed.insert(ghost.version, self.newest);
                self.emitted.push(deleted(ghost.version));
            }
            self.passed(self.newest);
            let released = self.windows.listed(Version(self.newest), |_| true);
            self.emit(released);
        }

        fn deliver(&mut self, version: u64, seen: Option<Seen>, listing: Listing) {
            let change = match (self.cached, seen) {
                (None, None) => return self.unseen.push(version),
                (None, Some(_)) => Change::Added(object(version)),
                (Some(old), Some(_)) => updated(version, old.version),
                (Some(_), None) => deleted(version),
            };
            self.cached = seen;
            match self.windows.admit(change, listing) {
                Verdict::Pass(change) | Verdict::Released(Released { change, .. }) => {
                    self.emitted.push(change);
                }
                Verdict::Held => {}
            }
        }

        fn emit(&mut self, released: impl IntoIterator<Item = Released>) {
            let changes: Vec<Change> = released.into_iter().map(|released| released.change).collect();
            assert!(!self.windows.ends_pass || !changes.iter().any(is_deleted), "{changes:?} came later than the end");
            self.emitted.extend(changes);
        }

        fn finish(&mut self) {
            while !self.late.is_empty() {
                self.step(Step::Deliver);
            }
            while !self.writes.is_empty() {
                self.step(Step::Write);
                self.step(Step::Answer(0));
                self.step(Step::Deliver);
            }
            self.step(Step::Bookmark);
        }

        /// Returns the changes that were not emitted, though the watch could show them, and though none of our
        /// answered writes made or undid them.
        fn lost(&self) -> Vec<u64> {
            let heard = |version: &u64| self.heard.contains(version);
            let unheard = self.unheard.iter().filter(|version| !heard(version));
            let deleted = self.deleted.iter();
            let deleted = deleted.filter(|(_, again)| !again.as_ref().is_some_and(heard));
            let all = self.foreign.iter().chain(unheard);
            let all = all.chain(deleted.map(|(version, _)| version));
            let lost = all.filter(|version| !self.unseen.contains(version) && !self.told(**version));
            lost.copied().collect()
        }

        fn told(&self, version: u64) -> bool {
            self.emitted.iter().any(|change| match change {
                Change::Added(new) => version <= new.version().0,
                Change::Updated { old, new } => {
                    // The object was deleted and made again.
                    let gone = old.version().0 == version && self.deleted.contains_key(&version);
                    (gone || old.version().0 < version) && version <= new.version().0
                }
                Change::Deleted { last, .. } => {
                    let last = last.version().0;
                    version <= self.missed.get(&last).copied().unwrap_or(last)
                }
            })
        }
    }

    /// Returns the changes that are lost after these steps, and true if a window is left.
    fn outcome(steps: impl IntoIterator<Item = Step>, judge: Judge) -> (Vec<u64>, bool) {
        played(World::new(judge), steps)
    }

    fn played(mut world: World, steps: impl IntoIterator<Item = Step>) -> (Vec<u64>, bool) {
        steps.into_iter().for_each(|step| world.step(step));
        world.finish();
        (world.lost(), !world.windows.is_empty())
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => Just(Step::Begin),
            3 => Just(Step::Write),
            2 => Just(Step::Idle),
            3 => (0..3_usize).prop_map(Step::Answer),
            1 => (0..3_usize).prop_map(Step::GiveUp),
            2 => Just(Step::Foreign),
            1 => Just(Step::Delete),
            4 => Just(Step::Deliver),
            1 => Just(Step::Unseen),
            1 => Just(Step::Bookmark),
            1 => Just(Step::List),
        ]
    }

    #[test]
    fn a_window_holds_no_more_than_little() {
        // FW-2
        let large = |version: u64| {
            let text = "x".repeat(MOST / 3);
            let json = format!(
                r#"{{"metadata":{{"namespace":"n","name":"a","resourceVersion":"{version}"}},"data":"{text}"}}"#
            );
            Object::parse(&json, &Gvk::parse("v1", "ConfigMap").unwrap(), &Managers::default()).unwrap()
        };
        let updated = |version| Change::Updated { old: large(version - 1), new: large(version) };
        let mut windows = EchoFilter::default();
        windows.open(&key(), Version(99));
        assert_eq!(windows.admit(updated(100), Listing::Idle), Verdict::Held, "one is always held");
        let both = Change::Updated { old: large(99), new: large(101) };
        let released = Verdict::Released(Released { change: both, mapped: BTreeSet::new() });
        assert_eq!(windows.admit(updated(101), Listing::Idle), released);
        // The echo may have been among them: it is not waited for.
        windows.answered(&key(), Version(101), BTreeSet::new());
        assert_eq!((windows.close(&key()), windows.is_empty()), (None, true));
    }

    #[test]
    fn the_end_of_a_primary_does_not_wait_for_the_end_of_a_write() {
        // FW-2
        let another = r#"{"metadata":{"namespace":"n","name":"a","uid":"another","resourceVersion":"101"}}"#;
        let another = Object::parse(another, &Gvk::parse("v1", "ConfigMap").unwrap(), &Managers::default()).unwrap();
        let made_again = |old| Change::Updated { old: object(old), new: another.clone() };
        for (end, told) in [(deleted(101), deleted(101)), (made_again(100), made_again(99))] {
            let released = Verdict::Released(Released { change: told, mapped: BTreeSet::new() });
            for (mut windows, verdict) in
                [(EchoFilter::of_primaries(), released), (EchoFilter::default(), Verdict::Held)]
            {
                windows.open(&key(), Version(99));
                assert_eq!(windows.admit(updated(100, 99), Listing::Idle), Verdict::Held);
                assert_eq!(windows.admit(end.clone(), Listing::Idle), verdict);
            }
        }
    }

    #[test]
    fn a_change_would_be_lost_if_each_answer_were_taken_for_that_of_our_own() {
        // FW-8, RO-7: our write changes nothing, because another client has made the same change, and its answer has
        // the version of that change.
        use Step::{Answer, Begin, Delete, Deliver, Foreign, GiveUp, Idle, Write};
        let late = [Foreign, Deliver, Foreign, Begin, Idle, Answer(0), Deliver];
        let early = [Foreign, Deliver, Foreign, Begin, Deliver, Idle, Answer(0)];
        // An own write whose answer was lost is made once more.
        let again = [Begin, Write, Deliver, GiveUp(0), Foreign, Begin, Idle, Answer(0)];
        // The object that was there before is gone, and the present one was made by another client.
        let anew = [Foreign, Deliver, Delete, Foreign, Begin, Idle, Answer(0)];
        // Another write holds back an event of a version that is already known.
        let held = [Foreign, Begin, Deliver, Begin, Idle, Idle, Answer(1), Answer(0)];
        for (steps, lost) in
            [(&late[..], vec![2]), (&early, vec![2]), (&again, vec![2]), (&anew, vec![3, 2]), (&held, vec![1])]
        {
            let steps = || steps.iter().copied();
            assert_eq!(outcome(steps(), |_, _| true), (lost, false));
            assert_eq!(outcome(steps(), is_our_change), (vec![], false));
        }
    }

    proptest! {
        #[test]
        fn no_foreign_change_is_lost_and_no_window_left(steps in prop::collection::vec(step(), 0..80)) {
            prop_assert_eq!(outcome(steps, is_our_change), (vec![], false));
        }

        #[test]
        fn the_end_of_a_primary_is_told_where_it_is_seen(steps in prop::collection::vec(step(), 0..80)) {
            let world = World::of(is_our_change, EchoFilter::of_primaries());
            prop_assert_eq!(played(world, steps), (vec![], false));
        }

        #[test]
        fn own_writes_one_after_the_other_are_never_told(lags in prop::collection::vec(0..5_usize, 1..20)) {
            let mut world = World::new(is_our_change);
            for lag in lags {
                world.step(Step::Begin);
                world.step(Step::Write);
                // The echo may come before the answer, after it, or after the next write.
                (0..lag / 2).for_each(|_| world.step(Step::Deliver));
                world.step(Step::Answer(0));
                (0..lag % 2).for_each(|_| world.step(Step::Deliver));
            }
            world.finish();
            prop_assert_eq!(&world.emitted, &vec![]);
            prop_assert!(world.windows.is_empty());
        }
    }
}
