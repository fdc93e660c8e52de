//! Keeps what is known of the operators of one namespace: which are to be read, which are too many, and when it is looked at them again (`CE-5`, `OP-9`).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use capstan_core::bucket::{Bucket, Rate};
use capstan_core::manifest::Operator;
use capstan_core::object::{Object, ObjectRef, Version};
use capstan_core::operator::tenant::Count;
use tokio::time::Instant;

use super::posted::{Posted, Read, Revival, Under};

/// So many operators of a namespace are read beyond those that its ceiling permits, to say of each what is wrong.
const SPARE: usize = 16;

/// So many beyond those are said to be too many; of the rest nothing is said, nor kept: whoever makes them without end costs nobody anything.
const TOLD: usize = 64;

/// How the status begins to say what was in force.
const IN_FORCE: &str = "\"inForce\":";

/// How often it is looked at the operators of a namespace with a ceiling that change without end, where there are few; others are looked at at once.
const PACE: Rate = Rate { interval: Duration::from_millis(500), burst: 50 };

/// So many of them cost as much as that once more.
const FEW: usize = 256;

/// The operators of a namespace.
#[derive(Default)]
pub(super) struct Home {
    /// As they were read last, by name.
    entries: BTreeMap<Arc<str>, Entry>,
    /// What was read since.
    ready: BTreeMap<Arc<str>, Read>,
    /// Those that are to be read.
    due: BTreeMap<Arc<str>, Object>,
    /// Whether there are others than when all were looked at last.
    differs: bool,
    /// Those that were wanted then.
    wanted: BTreeSet<Arc<str>>,
    /// Those that were not too many then, and are still to be read for the first time.
    awaited: HashSet<Arc<str>>,
    /// Those of which nothing is said.
    unsaid: HashSet<Arc<str>>,
    /// Whether the status of each version says that it has been in force: that is looked for once.
    in_force: HashMap<Arc<str>, (Version, bool)>,
    /// Whether there are too many, so that it matters which are wanted.
    is_crowd: bool,
    pace: Bucket,
    /// Until when it is not looked at them.
    rests: Option<Instant>,
}

/// An operator, parsed as far as it has room.
pub(super) struct Entry {
    pub(super) posted: Arc<Posted>,
    /// What it says, while that is wanted and has room.
    said: Option<Operator>,
    /// Its last good version, while that is put in place first.
    last_good: Option<Operator>,
    /// Why it had no room last.
    without_room: Option<String>,
    /// Whether it has room by now, and is to be read once more.
    lacks: bool,
}

/// The objects of a namespace.
pub(super) struct Listed<'a> {
    /// By name.
    pub(super) objects: &'a [Object],
    /// Whether one is there that can't be read for want of room: it neither changes nor ends.
    pub(super) is_unreadable: &'a dyn Fn(&ObjectRef) -> bool,
    pub(super) under: &'a Under,
    /// So many are read.
    pub(super) most: usize,
}

/// Those of which there are too many.
#[derive(Default)]
struct Crowd {
    /// They are not read, which is said.
    unread: HashSet<Arc<str>>,
    /// Nothing is said of them.
    unsaid: HashSet<Arc<str>>,
}

/// Returns how many operators of a namespace are read; `before`, if it has no ceiling any more.
pub(super) fn most(under: &Under, before: usize) -> usize {
    match under {
        Under::Daemon => usize::MAX,
        Under::Ceiling(ceiling) => ceiling.operators.saturating_add(SPARE),
        Under::Nothing => before,
    }
}

// === impl Home ===

impl Home {
    /// Returns until when it is not looked at them, if they rest.
    pub(super) fn rests(&self, now: Instant) -> Option<Instant> {
        self.rests.filter(|until| *until > now)
    }

    /// Counts that so many are looked at. The daemon's own never rest.
    fn pay(&mut self, listed: &Listed<'_>, now: Instant) {
        if *listed.under != Under::Daemon {
            let cost = u32::try_from(1 + listed.objects.len() / FEW).unwrap_or(u32::MAX);
            self.rests = Some(now + self.pace.take_many(cost, PACE, now));
        }
    }

    /// Finds out which are to be read, and whether all are to be looked at again.
    pub(super) fn survey(&mut self, listed: &Listed<'_>, now: Instant) {
        self.pay(listed, now);
        self.sort_out(listed);
    }

    fn sort_out(&mut self, listed: &Listed<'_>) {
        let Crowd { unread, unsaid } = self.rank(listed);
        self.is_crowd = !unread.is_empty() || !unsaid.is_empty();
        // What is not one too many any more is read first.
        let is_settled = |(name, entry): (&Arc<str>, &Entry)| {
            !listed.is_gone(&entry.posted.key) && (entry.posted.is_crowded || !unread.contains(name))
        };
        let is_known = |name| self.entries.contains_key(name);
        self.differs = !self.entries.iter().all(is_settled) || !unread.iter().all(is_known) || unsaid != self.unsaid;
        let is = |posted: &Posted, object: &Object| posted.is(object) && posted.under == *listed.under;
        let is_due = |object: &&Object| {
            let name = &object.key().name;
            let known = self.entries.get(name).filter(|entry| !entry.posted.is_crowded);
            let is_read = known.is_some_and(|entry| is(&entry.posted, object) && !entry.lacks);
            let is_ready = self.ready.get(name).is_some_and(|read| is(&read.posted, object));
            !unread.contains(name) && !unsaid.contains(name) && !is_read && !is_ready
        };
        let due = listed.objects.iter().filter(is_due).map(|object| (Arc::clone(&object.key().name), object.clone()));
        self.due = due.collect();
    }

    /// Returns those that are not even read, as there are many more than the ceiling permits, and those of which nothing is said: those go first that
    /// are wanted, then those that were read or have been in force, then those of which something was said before, then by name. What was read is
    /// never silently left out.
    fn rank(&mut self, listed: &Listed<'_>) -> Crowd {
        let (mut looked, mut crowd) = (HashMap::new(), Crowd::default());
        if listed.objects.len() > listed.most {
            let mut ranked: Vec<_> = listed
                .objects
                .iter()
                .map(|object| {
                    let name = &object.key().name;
                    // Its status says so, perhaps.
                    let mut is_next = || self.awaited.contains(name) || self.was_in_force(object, &mut looked);
                    let new = || if is_next() { 0 } else { 2 };
                    let said = self.entries.get(name).map_or_else(new, |entry| u8::from(entry.posted.is_crowded));
                    (!self.wanted.contains(name), said, name)
                })
                .collect();
            ranked.sort();
            for (place, (_, said, name)) in ranked.into_iter().enumerate().skip(listed.most) {
                let is_said = place < listed.most.saturating_add(TOLD) || said == 0;
                (if is_said { &mut crowd.unread } else { &mut crowd.unsaid }).insert(Arc::clone(name));
            }
        }
        self.in_force = looked;
        crowd
    }

    fn was_in_force(&self, object: &Object, looked: &mut HashMap<Arc<str>, (Version, bool)>) -> bool {
        let (name, version) = (&object.key().name, object.version());
        let known = self.in_force.get(name).filter(|(of, _)| *of == version).map(|(_, found)| *found);
        let found = known.unwrap_or_else(|| object.json().contains(IN_FORCE));
        looked.insert(Arc::clone(name), (version, found));
        found
    }

    /// Returns the first one that is to be read.
    pub(super) fn due(&self) -> Option<&Object> {
        self.due.values().next()
    }

    /// Takes in what was read under what holds by now.
    pub(super) fn read(&mut self, read: Read) {
        let name = &read.posted.key.name;
        if self.due.get(name).is_some_and(|object| read.posted.is(object)) {
            self.due.remove(name);
        }
        self.ready.insert(Arc::clone(name), read);
    }

    /// Whether all are to be looked at again because of these.
    pub(super) fn is_other(&self) -> bool {
        self.differs || !self.ready.is_empty()
    }

    /// Says which are wanted. Returns whether that may change which are too many.
    pub(super) fn want(&mut self, wanted: BTreeSet<Arc<str>>) -> bool {
        let are_others = self.wanted != wanted;
        self.wanted = wanted;
        are_others && self.is_crowd
    }

    /// Takes in those that there are by now, and what was read. Returns those that are gone.
    pub(super) fn take_in(&mut self, listed: &Listed<'_>, now: Instant) -> Vec<Arc<Posted>> {
        self.pay(listed, now);
        let Crowd { unread, unsaid } = self.rank(listed);
        let (mut known, mut ready) = (std::mem::take(&mut self.entries), std::mem::take(&mut self.ready));
        known.retain(|name, _| !unsaid.contains(name));
        for object in listed.objects.iter().filter(|object| !unsaid.contains(&object.key().name)) {
            let (name, uid) = (&object.key().name, &object.header().uid);
            let same = known.get(name).is_some_and(|entry| entry.posted.uid == *uid);
            // One that was made anew is another.
            let before = if same { known.remove(name) } else { None };
            let read = ready.remove(name).filter(|read| read.posted.uid == *uid);
            let is_it = |entry: &Entry| entry.posted.is(object) && entry.posted.under == *listed.under;
            let entry = match read {
                _ if unread.contains(name) => {
                    let same = before.filter(|entry| entry.posted.is_crowded && is_it(entry));
                    Some(same.unwrap_or_else(|| Entry::new(Posted::crowded(object, listed.under.clone()), None, None)))
                }
                Some(read) => Some(Entry::of(read, before.as_ref())),
                // Until it is read, it is what it was.
                None => before,
            };
            self.entries.extend(entry.map(|entry| (Arc::clone(name), entry)));
        }
        let mut gone = Vec::new();
        for (name, entry) in known {
            if self.entries.contains_key(&name) || listed.is_gone(&entry.posted.key) {
                gone.push(entry.posted);
            } else {
                self.entries.insert(name, entry);
            }
        }
        let names = listed.objects.iter().map(|object| &object.key().name);
        let is_awaited =
            |name: &&Arc<str>| !unsaid.contains(*name) && !unread.contains(*name) && !self.entries.contains_key(*name);
        self.awaited = names.filter(is_awaited).cloned().collect();
        self.unsaid = unsaid;
        self.sort_out(listed);
        gone
    }

    /// Returns those that are known.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// Returns the same, to change them.
    pub(super) fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.values_mut()
    }

    /// Returns one of them.
    pub(super) fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// Returns the same, to change it.
    pub(super) fn entry_mut(&mut self, name: &str) -> Option<&mut Entry> {
        self.entries.get_mut(name)
    }

    /// Whether one of them is to be read once more.
    pub(super) fn lacks(&self) -> bool {
        self.entries.iter().any(|(name, entry)| entry.lacks && !self.due.contains_key(name))
    }
}

// === impl Entry ===

impl Entry {
    fn new(posted: Posted, said: Option<Operator>, last_good: Option<Operator>) -> Self {
        Self { posted: Arc::new(posted), said, last_good, without_room: None, lacks: false }
    }

    /// Returns what was read. What was begun with the same generation goes on.
    fn of(Read { mut posted, said, last_good }: Read, before: Option<&Self>) -> Self {
        if let Some(before) = before.filter(|before| before.posted.generation == posted.generation) {
            posted.revival = before.posted.revival;
        }
        Self::new(posted, said, last_good)
    }

    /// Returns its facts, to change them.
    pub(super) fn posted_mut(&mut self) -> &mut Posted {
        Arc::make_mut(&mut self.posted)
    }

    /// Has its last good version put in place if it is broken, and nothing of it is wanted yet.
    pub(super) fn begin(&mut self, is_wanted: bool) {
        let Posted { content, revival, last_good, .. } = &*self.posted;
        if content.is_err() && !is_wanted && *revival == Revival::Unneeded && last_good.is_some() {
            self.posted_mut().revival = Revival::UnderWay;
        }
    }

    /// Sets whether its last good version is put in place first. Returns whether it is to be read for that.
    pub(super) fn revive(&mut self, revival: Revival) -> bool {
        let posted = self.posted_mut();
        (posted.revival, posted.is_settled) = (revival, false);
        let parsed = if self.is_revived() { &self.last_good } else { &self.said };
        self.lacks = parsed.is_none() && (self.is_revived() || self.posted.content.is_ok());
        self.lacks
    }

    fn is_revived(&self) -> bool {
        self.posted.revival == Revival::UnderWay && self.posted.last_good.is_some()
    }

    /// Returns what is wanted of it, where `room` gives it the room that it takes. `None`: nothing is known of that until it is read. What has no room, or
    /// is not wanted now, is not kept.
    pub(super) fn content(
        &mut self,
        before: Option<&Operator>,
        room: impl FnOnce(&Posted, Count) -> Result<(), String>,
    ) -> Option<Result<Operator, String>> {
        let revived = self.posted.last_good.as_ref().filter(|_| self.is_revived()).map(|last_good| last_good.count);
        let count = revived.map_or_else(|| self.posted.content.clone(), Ok);
        let permitted = match &count {
            Ok(count) => room(&self.posted, *count),
            Err(why) => Err(why.to_string()),
        };
        if let Err(why) = permitted {
            (self.said, self.last_good, self.lacks) = (None, None, false);
            self.without_room = count.is_ok().then(|| why.clone());
            return Some(Err(why));
        }
        let parsed = if revived.is_some() {
            self.said = None;
            &self.last_good
        } else {
            self.last_good = None;
            &self.said
        };
        self.lacks = parsed.is_none();
        match parsed {
            Some(operator) => {
                self.without_room = None;
                Some(Ok(operator.clone()))
            }
            // What runs goes on.
            None => before.cloned().map(Ok).or_else(|| self.without_room.clone().map(Err)),
        }
    }
}

// === impl Listed ===

impl Listed<'_> {
    fn is_gone(&self, key: &ObjectRef) -> bool {
        self.objects.binary_search_by(|object| object.key().name.cmp(&key.name)).is_err() && !(self.is_unreadable)(key)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use capstan_core::manifest::{Ceilings, Defaults};
    use capstan_core::object::{Gvk, Managers};
    use serde_json::{Value, json};

    use super::*;

    fn object(name: &str, spec: &Value, status: &Value) -> Object {
        let metadata =
            json!({ "name": name, "namespace": "team-a", "uid": name, "generation": 1, "resourceVersion": "1" });
        let object = json!({ "apiVersion": "capstan.dev/v1alpha1", "kind": "Operator", "metadata": metadata, "spec": spec, "status": status });
        let gvk = Gvk::parse("capstan.dev/v1alpha1", "Operator").unwrap();
        Object::parse(&object.to_string(), &gvk, &Managers::default()).unwrap()
    }

    fn good() -> Value {
        json!({
            "plugins": { "web": { "component": { "oci": "ghcr.io/org/web:1" } } },
            "controllers": { "web": { "plugin": "web", "primary": { "apiVersion": "v1", "kind": "ConfigMap" } } },
        })
    }

    fn of<'l>(objects: &'l [Object], under: &'l Under) -> Listed<'l> {
        Listed { objects, is_unreadable: &|_| false, under, most: most(under, 0) }
    }

    fn read_all(home: &mut Home, objects: &[Object], under: &Under) {
        let now = Instant::now();
        home.survey(&of(objects, under), now);
        while let Some(object) = home.due().cloned() {
            home.read(Read::of(&object, &Defaults::default(), under.clone()));
        }
        assert!(home.take_in(&of(objects, under), now).is_empty());
    }

    fn parsed(home: &Home) -> Vec<bool> {
        home.entries().flat_map(|entry| [entry.said.is_some(), entry.last_good.is_some()]).collect()
    }

    #[test]
    fn what_has_no_room_or_is_refused_is_kept_as_its_error_and_read_again_when_there_is_room() {
        // CE-5
        let then = json!({ "generation": 1, "spec": good().to_string(), "images": { "web": format!("sha256:{}", "1".repeat(64)) } });
        let status = json!({ "inForce": then });
        let objects = [object("broken", &json!({}), &status), object("good", &good(), &status)];
        let (mut home, under) = (Home::default(), Under::Daemon);
        read_all(&mut home, &objects, &under);
        let said = |home: &mut Home, has_room: bool| -> Vec<_> {
            let room = |_: &Posted, _| if has_room { Ok(()) } else { Err("no room".to_owned()) };
            let content = home.entries_mut().map(|entry| entry.content(None, room));
            content.map(|content| content.map(|content| content.is_ok())).collect()
        };
        assert_eq!(said(&mut home, false), [Some(false), Some(false)]);
        assert_eq!((parsed(&home), home.lacks()), (vec![false; 4], false), "nothing is kept parsed");
        // What it was told before stands until it is read.
        assert_eq!(said(&mut home, true), [Some(false), Some(false)]);
        assert!(home.lacks());
        read_all(&mut home, &objects, &under);
        assert_eq!(said(&mut home, true), [Some(false), Some(true)]);
        assert_eq!(
            (parsed(&home), home.lacks()),
            (vec![false, false, true, false], false),
            "its last good version is not"
        );
        // OP-5: it is read when it is needed, and in place of what is wanted.
        assert!(home.entry_mut("good").unwrap().revive(Revival::UnderWay));
        read_all(&mut home, &objects, &under);
        assert_eq!(said(&mut home, true), [Some(false), Some(true)]);
        assert_eq!(parsed(&home), [false, false, false, true]);
        assert!(home.entry_mut("good").unwrap().revive(Revival::Over(Instant::now())));
    }

    #[test]
    fn a_crowd_that_changes_without_end_is_looked_at_as_often_as_there_are_few_of_it() {
        // CE-5, OP-9
        let text = "{ apiVersion: capstan.dev/v1alpha1, kind: Ceilings, spec: { ceilings: { a: { namespaces: [team-a], serviceAccounts: [a], operators: 2, rules: [{ apiGroups: [\"\"], resources: [configmaps], verbs: [get] }] } } } }";
        let ceilings = Ceilings::parse(text, Path::new("c")).unwrap_or_else(|errors| panic!("{errors}"));
        let under = Under::Ceiling(Arc::clone(ceilings.of("team-a").unwrap()));
        let events = |count: usize, every: Duration, times: u32| {
            let objects: Vec<_> = (0..count).map(|n| object(&format!("x{n:04}"), &json!({}), &Value::Null)).collect();
            let (mut home, start, mut looked) = (Home::default(), Instant::now(), 0);
            for number in 0..times {
                let now = start + every * number;
                if home.rests(now).is_none() {
                    home.survey(&of(&objects, &under), now);
                    looked += objects.len();
                }
            }
            assert_eq!(home.due.len(), count.min(18));
            looked
        };
        // 200 a second for a minute: 12 million if each were looked at.
        assert_eq!(events(1000, Duration::from_millis(5), 12_000), 43_000);
        assert_eq!(events(10, Duration::from_millis(5), 12_000), 1700);
        assert_eq!(
            events(1000, Duration::from_secs(2), 30),
            30_000,
            "those that come now and then are looked at at once"
        );
    }
}
