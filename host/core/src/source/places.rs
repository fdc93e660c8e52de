//! Decides what is new when a source begins to read a cache, in place of another one or after a time in which nobody told it anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::vec::IntoIter;

use super::state::State;
use super::watched::{Place, Places, is_in};
use super::{Source, Trigger, overlay};
use crate::cache::Cache;
use crate::object::{Change, Object, ObjectRef, Version};

/// A portion of what is new: so many bytes of objects are looked through for keys.
const PORTION: usize = 256 << 10;

/// What an object counts beside its text.
const EACH: usize = 1 << 10;

/// What a source has still to take in of a cache that it has begun to read.
pub struct Attaching {
    place: Option<Arc<str>>,
    cache: Cache,
    news: IntoIter<News>,
}

/// An object of the cache.
enum News {
    /// It is known, but for its keys.
    Known(Object),
    /// It is not known as it is.
    Changed(Change),
}

/// What follows for an object from a cache that is read in place of another one.
struct Take {
    news: Vec<News>,
    /// What was seen of it before, if that is newer. The other cache may be detached next, so the overlay keeps it.
    own: Option<Object>,
}

/// An object as a source has shown it so far.
struct Before {
    /// With own writes.
    seen: Option<Object>,
    /// As the caches had it.
    shown: Option<Object>,
}

impl Source {
    /// Begins to read a cache, of one namespace or of all (`None`), in place of the one that was read there before.
    /// Returns the triggers for the queue: objects that were not seen yet count as added (`PO-3`), objects that have
    /// changed since as updated, and objects that are no longer there as deleted. Called by the informer's task
    /// between two events, so that no event is missed and none comes twice; if a list is under way, before
    /// [`Source::before_list`].
    pub fn attach(&self, namespace: Option<&str>, cache: Cache) -> Vec<Trigger> {
        let mut attaching = self.begin_attach(namespace, cache);
        let portions = std::iter::from_fn(|| self.attach_on(&mut attaching));
        let mut told: Vec<_> = portions.flatten().collect();
        told.extend(self.attached(&attaching));
        told
    }

    /// Begins to read a cache as [`Source::attach`] does, in portions: [`Source::attach_on`] takes in the next one,
    /// [`Source::attached`] ends it. Until then no object is known to be absent. A cache that changes meanwhile is read
    /// as it was ([`Cache::frozen`]), and [`Source::attach_again`] then takes in what has changed.
    pub fn begin_attach(&self, namespace: Option<&str>, cache: Cache) -> Attaching {
        let by_key = |objects: Vec<Object>| -> BTreeMap<_, _> {
            let objects = objects.into_iter();
            objects.map(|object| (object.key().clone(), object)).collect()
        };
        let was_written = self.written.of(&self.kind());
        // The answer to an own write is read already, but its event has not come yet: the window decides if that
        // event counts.
        let (mut seen, mut shown) = (by_key(self.list(namespace)), by_key(self.shown(namespace)));
        let (present, shown_to) = cache.snapshot(None);
        let (mut takes, mut appeared) = (Vec::new(), Vec::new());
        for new in self.all_shown(present) {
            let before = Before { seen: seen.remove(new.key()), shown: shown.remove(new.key()) };
            if before.seen.is_none() {
                appeared.push(new.clone());
            }
            takes.push(Take::of(before, Some(new), Version::default()));
        }
        for last in seen.into_values() {
            let up_to = shown_to.of(last.key());
            takes.push(Take::of(Before { seen: Some(last), shown: None }, None, up_to));
        }
        let place = namespace.map(Arc::from);
        let news = {
            // Nobody reads the cache before it is known what it does not have.
            let mut state = self.state.write();
            let before = self.read_from(&mut state, &place, &cache);
            let written = self.written.of(&self.kind());
            let State { behind, places, .. } = &mut *state;
            behind.attached((&place, places), &before, &written, &was_written);
            for new in appeared {
                behind.appeared(&new, &cache, &written);
            }
            taken(takes, |own| state.keep(own, BTreeSet::new(), &cache))
        };
        Attaching { place, cache, news }
    }

    /// Lets a cache be read in a place. Returns what has been read until now.
    fn read_from(&self, state: &mut State, place: &Place, cache: &Cache) -> Places {
        state.listing.remove(place);
        state.entering.insert(place.clone());
        if state.awaited.remove(place) && !self.is_of_primaries() {
            // What has gone meanwhile may have belonged to anybody.
            state.everybody = true;
            self.work.notify_one();
        }
        let before = Arc::clone(&state.places);
        let places = Arc::make_mut(&mut state.places);
        if place.is_none() {
            // Otherwise what they showed last would be read for as long as they are there.
            places.clear();
        }
        places.insert(place.clone(), cache.clone());
        state.look_at(place, cache);
        before
    }

    /// Reads the cache as it is now, of which another one was read as it was when that began; these objects, and no others, have changed
    /// since. Nothing of what was taken in may be left.
    pub fn attach_again(&self, attaching: &mut Attaching, cache: Cache, changed: BTreeSet<ObjectRef>) {
        let Attaching { place, cache: was, news } = attaching;
        let (mut keys, own) = (changed, self.state.read().overlay.clone());
        keys.extend(own.iter().map(Object::key).cloned());
        let places = self.state.read().places.clone();
        keys.retain(|key| is_in(&places, key, place));
        let before = |key: &ObjectRef| {
            let (cached, synced) = was.look(key);
            let shown = cached.clone().and_then(|object| self.show(&object));
            let newest = overlay::newest(own.get(key), cached, synced);
            Before { seen: newest.and_then(|object| self.show(&object)), shown }
        };
        let before: Vec<_> = keys.into_iter().map(|key| (before(&key), key)).collect();
        {
            let mut state = self.state.write();
            if !state.entering.contains(place) {
                // It is not read any more.
                return;
            }
            Arc::make_mut(&mut state.places).insert(place.clone(), cache.clone());
        }
        let takes = before.into_iter().map(|(before, key)| {
            let (new, up_to) = cache.look(&key);
            Take::of(before, new.and_then(|new| self.show(&new)), up_to)
        });
        *news = taken(takes.collect(), |own| self.state.write().keep(own, BTreeSet::new(), &cache));
        *was = cache;
    }

    /// Takes in a portion of what is new. Returns the triggers for the queue; `None` if nothing is left.
    pub fn attach_on(&self, attaching: &mut Attaching) -> Option<Vec<Trigger>> {
        if !self.state.read().entering.contains(&attaching.place) {
            // It is not read any more.
            return None;
        }
        let (mut told, mut left, mut done) = (Vec::new(), PORTION, false);
        let looks = 1 + self.spec.indexes.len();
        while left > 0 {
            let Some(news) = attaching.news.next() else {
                break;
            };
            done = true;
            let size = news.object().size();
            left = left.saturating_sub(size.saturating_mul(looks) + EACH);
            match news {
                News::Known(object) => self.learn(object),
                News::Changed(change) => told.extend(self.on(change)),
            }
        }
        done.then_some(told)
    }

    /// Takes in that nothing is left, and that the cache tells of itself from now on. Returns the triggers for the queue.
    pub fn attached(&self, attaching: &Attaching) -> Vec<Trigger> {
        let Attaching { place, cache, .. } = attaching;
        {
            let mut state = self.state.write();
            if !state.entering.remove(place) {
                return Vec::new();
            }
            // Its first list may have ended while it was told of.
            if cache.is_synced() {
                state.listed_up_to(place, cache.version());
            }
        }
        let mut told = Vec::new();
        if cache.is_synced() {
            told.extend(self.gone_meanwhile(place.as_deref()));
            self.miss_lost(place);
        }
        told.extend(self.passed(place.as_deref()));
        told
    }

    /// Adds an object to the look-ups without a trigger.
    fn learn(&self, object: Object) {
        let key = object.key().clone();
        if self.is_costly() {
            return self.note(&key);
        }
        let facts = self.facts(&Change::Added(object));
        self.state.write().look_up(&key, &facts);
    }

    /// Stops reading the cache of a namespace, or of all (`None`): before others are attached (`NS-2`). Returns the
    /// keys of its objects; if these are primaries, the queue may forget them (`NS-3`). Causes no triggers.
    pub fn detach(&self, namespace: Option<&str>) -> Vec<ObjectRef> {
        let place = namespace.map(Arc::from);
        let (cache, comes_back) = {
            let mut state = self.state.write();
            let Some(cache) = Arc::make_mut(&mut state.places).remove(&place) else {
                return Vec::new();
            };
            state.listing.remove(&place);
            state.entering.remove(&place);
            state.since.remove(&place);
            state.forget_unwatched();
            (cache, state.lacking.contains_key(&place) || state.awaited.contains(&place))
        };
        // What a run waits for may have gone with it.
        self.progress.notify_waiters();
        if comes_back && self.is_of_primaries() {
            let bare = cache
                .list()
                .iter()
                .filter_map(|object| Some((object.key().clone(), object.unread().bare().ok()?)))
                .collect();
            self.state.write().left.insert(namespace.map(Arc::from), bare);
        }
        let left: Vec<_> = cache.list().iter().map(|object| object.key().clone()).collect();
        for key in &left {
            self.touch(key);
        }
        left
    }

    /// Returns the triggers for primaries that have gone while their namespace could not be read: it has been listed again.
    pub(super) fn gone_meanwhile(&self, namespace: Option<&str>) -> Vec<Trigger> {
        let place = namespace.map(Arc::from);
        let left = self.state.write().left.remove(&place).unwrap_or_default();
        let left = left.into_values().filter(|last| self.get(last.key()).is_none());
        let (gone, unknown): (Vec<_>, Vec<_>) = left.partition(|last| self.has_ended(last));
        if !unknown.is_empty() {
            let unknown = unknown.into_iter().map(|last| (last.key().clone(), last));
            self.state.write().left.entry(place).or_default().extend(unknown);
        }
        gone.into_iter().flat_map(|last| self.triggers_of(Change::Deleted { last, unknown: true })).collect()
    }

    /// Returns true if an object is known not to be there any more.
    fn has_ended(&self, last: &Object) -> bool {
        let shown_to = self.state.read().cache(last.key()).map(|cache| cache.look(last.key()).1);
        shown_to.is_some_and(|version| last.version() <= version) && matches!(self.look(last.key()), Ok(None))
    }

    /// Returns a change as one of the object that was there before: a primary may have been made again while it could not be read.
    pub(super) fn since_it_was_left(&self, change: Change) -> Change {
        let Change::Added(new) = change else {
            return change;
        };
        if self.state.read().left.is_empty() {
            return Change::Added(new);
        }
        let mut state = self.state.write();
        let mut old = [new.key().namespace.clone(), None].into_iter();
        let old = old.find_map(|place| state.left.get_mut(&place)?.remove(new.key()));
        match old.filter(|old| old.header().uid != new.header().uid) {
            Some(old) => Change::Updated { old, new },
            None => Change::Added(new),
        }
    }
}

/// Returns what is new, and hands what own writes have answered that a cache has not come to yet to `keep`.
fn taken(takes: Vec<Take>, mut keep: impl FnMut(Object)) -> IntoIter<News> {
    let mut all = Vec::new();
    for Take { news, own } in takes {
        all.extend(news);
        own.map(&mut keep);
    }
    all.into_iter()
}

impl Take {
    /// Returns what follows for an object, as the cache has it now, which shows it up to a version.
    fn of(before: Before, new: Option<Object>, up_to: Version) -> Self {
        let news = |news| Self { news, own: None };
        let Before { seen, shown } = before;
        match (seen, shown, new) {
            (None, _, None) => news(Vec::new()),
            (None, _, Some(new)) | (Some(_), None, Some(new)) => news(vec![News::Changed(Change::Added(new))]),
            (Some(_), Some(old), Some(new)) if old.version() < new.version() => {
                // An heir does not have it in its look-ups yet, and a change that moves nothing would not put it there.
                news(vec![News::Known(new.clone()), News::Changed(Change::Updated { old, new })])
            }
            // A newer version was seen before: it is read until this cache has it.
            (Some(newest), Some(_), Some(new)) => Self { news: vec![News::Known(new)], own: Some(newest) },
            (Some(last), _, None) if last.version() <= up_to => {
                news(vec![News::Changed(Change::Deleted { last, unknown: true })])
            }
            (Some(last), _, None) => Self { news: Vec::new(), own: Some(last) },
        }
    }
}

impl News {
    fn object(&self) -> &Object {
        match self {
            Self::Known(object) => object,
            Self::Changed(change) => change.object(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::*;
    use crate::cache::{Event, Writer};
    use crate::manifest::{Keys, Mapper as Declared};
    use crate::object::fields::Fields;
    use crate::object::pointer::Pointer;
    use crate::object::{Gvk, Managers, Scope};
    use crate::source::filter::Filter;
    use crate::source::mapper::Mapper;
    use crate::source::{Role, Spec, Within};

    fn gvk() -> Gvk {
        Gvk::parse("x.dev/v1", "Page").unwrap()
    }

    fn source() -> Source {
        Source::new(Spec {
            name: "test".into(),
            gvk: gvk(),
            cluster: None,
            role: Role::Secondary(Mapper::new(gvk(), Scope::Namespaced, Declared::OwnerReference)),
            filter: Filter::default(),
            indexes: BTreeMap::from([("color".into(), Keys::Pointer(Pointer::parse("/color").unwrap()))]),
            fields: Fields::whole(),
            bounded: None,
            packed: false,
            faults: Arc::default(),
        })
    }

    fn object(name: &str, version: u64, color: &str) -> Object {
        let owner = format!(r#"[{{"apiVersion":"x.dev/v1","kind":"Page","name":"{color}","uid":"u"}}]"#);
        let json = format!(
            r#"{{"metadata":{{"namespace":"n","name":"{name}","resourceVersion":"{version}","ownerReferences":{owner}}},"color":"{color}"}}"#
        );
        Object::parse(&json, &gvk(), &Managers::default()).unwrap()
    }

    /// Returns what a source finds by its look-ups.
    fn found(source: &Source) -> String {
        let mut text = String::new();
        for color in ["red", "green", "blue"] {
            let names =
                |objects: Vec<Object>| -> Vec<_> { objects.iter().map(|object| object.json().to_owned()).collect() };
            let indexed = names(source.by_index("color", color).unwrap());
            let related = names(source.related(&ObjectRef::namespaced("n", color)));
            writeln!(text, "{color}: {indexed:?} {related:?}").unwrap();
        }
        text
    }

    fn all(source: &Source, attaching: &mut Attaching) -> usize {
        std::iter::from_fn(|| source.attach_on(attaching)).flatten().count()
    }

    #[test]
    fn what_is_not_looked_through_yet_is_not_known_to_be_absent_and_what_is_not_read_any_more_tells_nothing() {
        // CX-1a
        let (source, mut writer) = (source(), Writer::default());
        let filler = "x".repeat(PORTION);
        for (name, version) in [("a", 1), ("b", 2), ("c", 3)] {
            let json = format!(
                r#"{{"metadata":{{"namespace":"n","name":"{name}","resourceVersion":"{version}"}},"color":"red","x":"{filler}"}}"#
            );
            writer.list_item(Object::parse(&json, &gvk(), &Managers::default()).unwrap());
        }
        writer.finish_list(Version(3));
        let mut attaching = source.begin_attach(None, writer.cache().frozen());
        assert_eq!(source.attach_on(&mut attaching), Some(vec![]));
        assert_eq!(source.by_index("color", "red").unwrap().len(), 1, "one a portion");
        let why = source.known(Within::Namespace("n")).map_err(|doubt| doubt.why.to_string());
        assert_eq!(why, Err("not all that is there has been looked through".to_owned()));
        assert_eq!(source.known(Within::Object(&ObjectRef::namespaced("n", "c"))), Ok(()), "it is shown");
        assert_eq!(all(&source, &mut attaching), 0);
        assert_eq!(source.attached(&attaching), []);
        assert_eq!((source.known(Within::Everywhere), source.by_index("color", "red").unwrap().len()), (Ok(()), 3));

        let mut attaching = source.begin_attach(None, writer.cache().frozen());
        source.detach(None);
        assert!(source.attach_on(&mut attaching).is_none());
        source.attach_again(&mut attaching, writer.cache(), BTreeSet::new());
        assert_eq!((source.attached(&attaching), source.places().len()), (vec![], 0));
    }

    /// What happens to an object: it gets a color, or goes.
    fn event() -> impl Strategy<Value = (usize, Option<usize>)> {
        (0..5_usize, prop::option::weighted(0.7, 0..3_usize))
    }

    proptest! {
        #[test]
        fn a_cache_that_changes_while_it_is_taken_in_is_seen_as_it_is_at_the_end(
            before in prop::collection::vec(event(), 0..12),
            meanwhile in prop::collection::vec(prop::collection::vec(event(), 0..6), 1..4),
        ) {
            let (source, mut writer, mut version) = (source(), Writer::default(), 0);
            writer.finish_list(Version(0));
            let mut take = |writer: &mut Writer, (name, color): (usize, Option<usize>)| {
                version += 1;
                let [name, is] = [["a", "b", "c", "d", "e"][name], ["red", "green", "blue"][color.unwrap_or(0)]];
                let object = object(name, version, is);
                writer.apply(if color.is_some() { Event::Applied(object) } else { Event::Deleted(object) })
            };
            for event in before {
                take(&mut writer, event);
            }
            let mut attaching = source.begin_attach(None, writer.cache().frozen());
            let rounds = meanwhile.len();
            for (round, events) in meanwhile.into_iter().enumerate() {
                let changes: Vec<_> = events.into_iter().filter_map(|event| take(&mut writer, event)).collect();
                let changed = changes.iter().map(|change| change.object().key().clone()).collect();
                all(&source, &mut attaching);
                let cache = if round + 1 == rounds { writer.cache() } else { writer.cache().frozen() };
                source.attach_again(&mut attaching, cache, changed);
            }
            all(&source, &mut attaching);
            source.attached(&attaching);
            let late = self::source();
            late.attach(None, writer.cache());
            prop_assert_eq!(found(&source), found(&late));
            prop_assert_eq!(source.list(None).len(), writer.cache().len());
            // What comes later is moved from where it is.
            for color in 0..3 {
                let change = take(&mut writer, (0, Some(color))).unwrap();
                source.on(change.clone());
                late.on(change);
            }
            prop_assert_eq!(found(&source), found(&late));
        }
    }
}
