//! Decides which objects of a cache are packed, when it has a dictionary, and how what is there already is packed in portions (BC).

use std::ops::Bound;
use std::sync::Arc;

use super::slot::{HEADER, Slot, Stored};
use super::{Objects, Writer};
use crate::object::packed::{Dictionary, Packed};
use crate::object::{Object, ObjectRef};

/// From so many bytes of texts on, a dictionary is made while the first list is still under way: what comes after that is never there
/// unpacked.
const ENOUGH: usize = 1 << 20;

/// From so many on it is made once all is listed. A dictionary takes 134 KiB: fewer would hardly be worth it.
const LEAST: usize = 256 << 10;

/// The most bytes that are packed at once, while nothing else is taken in: some 300 µs.
const PORTION: usize = 64 << 10;

/// The most objects that are looked at for that.
const LOOKS: usize = 1000;

/// Whether a cache packs its objects, and how far it is.
#[derive(Debug, Default)]
pub(super) struct Packing {
    wanted: bool,
    dictionary: Option<Arc<Dictionary>>,
    /// One has found no room beside so many bytes of texts.
    failed: usize,
    /// How far what was there before has been packed.
    way: Way,
}

#[derive(Debug, Default)]
enum Way {
    /// All of it is.
    #[default]
    Done,
    /// What is behind this key is not yet; `None`: nothing is.
    From(Option<ObjectRef>),
}

impl Packing {
    /// Returns an object as it is kept.
    pub(super) fn store(&self, object: Object) -> Stored {
        let dictionary = self.dictionary.as_ref().filter(|_| self.wanted);
        let packed = dictionary.and_then(|dictionary| Packed::of(&object, dictionary));
        packed.map_or(Stored::Plain(object), Stored::Packed)
    }
}

impl Writer {
    /// Has objects packed, where that makes them smaller (`BC-4`), or no more: what is packed then is so until it comes again.
    pub fn pack(&mut self, wanted: bool) {
        let before = std::mem::replace(&mut self.packing.wanted, wanted);
        if !wanted {
            self.packing.way = Way::Done;
        } else if !before && self.packing.dictionary.is_some() {
            self.packing.way = Way::From(None);
        }
    }

    /// Returns true if something is there to be packed: the next [`Writer::portion`].
    pub fn is_due(&self) -> bool {
        matches!(self.packing.way, Way::From(_)) || self.lacks_dictionary()
    }

    fn lacks_dictionary(&self) -> bool {
        let Packing { wanted, dictionary, failed, .. } = &self.packing;
        let cache = &self.cache;
        let least = if cache.is_synced() { LEAST } else { ENOUGH };
        *wanted && dictionary.is_none() && self.texts() >= least.max(2 * failed)
    }

    /// Returns about how many bytes the texts of all objects take.
    fn texts(&self) -> usize {
        self.cache.bytes().saturating_sub(HEADER * self.cache.len())
    }

    /// Makes a dictionary of what is there.
    fn make_dictionary(&mut self) {
        let objects = self.cache.list();
        let count = objects.len();
        self.adopt(Dictionary::of(objects.into_iter(), count, self.texts()));
    }

    /// Takes in a dictionary by which what comes from now on is packed; none, if there was no memory for it. Then, or if it finds no
    /// room, another one is made once there is twice as much.
    fn adopt(&mut self, made: Option<Arc<Dictionary>>) {
        let (texts, shared) = (self.texts(), Arc::clone(&self.cache.0));
        let _guard = shared.objects.write();
        // It is counted as what grows, for which there is always some room: it will make more.
        match made.filter(|dictionary| self.takes(1, 1 + dictionary.size())) {
            Some(dictionary) => {
                self.packing.dictionary = Some(dictionary);
                self.packing.way = Way::From(None);
            }
            None => self.packing.failed = texts,
        }
    }

    /// Packs a portion of what is there and was not packed as it came, once there is a dictionary; makes that before.
    pub fn portion(&mut self) {
        if self.lacks_dictionary() {
            self.make_dictionary();
            return;
        }
        let (Way::From(after), Some(dictionary)) = (&self.packing.way, &self.packing.dictionary) else {
            self.packing.way = Way::Done;
            return;
        };
        let shared = Arc::clone(&self.cache.0);
        let (mut packed, mut last, mut bytes) = (Vec::new(), None, 0);
        // What is there can't change meanwhile: only this writer changes it.
        let slots = shared.objects.read();
        let after = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        for slot in slots.slots.range::<ObjectRef, _>((after, Bound::Unbounded)).take(LOOKS) {
            last = Some(slot.key().clone());
            if let Stored::Plain(object) = &slot.stored {
                bytes += object.size();
                packed.extend(Packed::of(object, dictionary));
            }
            if bytes >= PORTION {
                break;
            }
        }
        drop(slots);
        let Objects { slots, .. } = &mut *shared.objects.write();
        for packed in packed {
            if let Some(before) = slots.take(&packed.header().key) {
                let slot = Slot { stored: Stored::Packed(packed), ..before.clone() };
                self.takes(before.size(), slot.size());
                slots.insert(slot);
            }
        }
        self.packing.way = last.map_or(Way::Done, |last| Way::From(Some(last)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;
    use crate::cache::{Cache, Event};
    use crate::object::fields::Fields;
    use crate::object::{Change, Gvk, Managers, Version};
    use crate::room::Room;

    fn parse(text: &str) -> Object {
        Object::parse(text, &Gvk::parse("apps/v1", "Deployment").unwrap(), &Managers::default()).unwrap()
    }

    /// Returns an object of 3 KB that is much like others.
    fn alike(name: &str, version: u64, value: &str) -> Object {
        let setting = |i| format!("{{\"name\":\"SETTING_{i}\",\"value\":\"the value of setting {i} of {name}\"}}");
        let settings = (0..40).map(setting).collect::<Vec<_>>().join(",");
        parse(&format!(
            "{{\"metadata\":{{\"namespace\":\"n\",\"name\":\"{name}\",\"resourceVersion\":\"{version}\",\"generation\":{version},\"labels\":{{\"l\":\"{value}\"}}}},\"spec\":{{\"value\":\"{value}\",\"env\":[{settings}]}}}}"
        ))
    }

    fn many(count: usize) -> impl Iterator<Item = Object> {
        (1..=count).map(|n| alike(&format!("o{n:05}"), 1, &n.to_string()))
    }

    static DICTIONARY: LazyLock<Arc<Dictionary>> =
        LazyLock::new(|| Dictionary::of(many(200), 200, 200 * 3000).unwrap());

    /// Does all that is to be done. Returns how many dictionaries were made, and in how many portions the rest was packed.
    fn settle(writer: &mut Writer) -> (usize, usize) {
        let (had, mut portions) = (writer.packing.dictionary.is_some(), 0);
        while writer.is_due() {
            portions += 1;
            writer.portion();
        }
        let made = usize::from(writer.packing.dictionary.is_some()) - usize::from(had);
        (made, portions.max(made) - made)
    }

    fn listed(writer: &mut Writer, objects: impl Iterator<Item = Object>) {
        writer.start_list();
        objects.for_each(|object| drop(writer.list_item(object)));
        writer.finish_list(Version(1));
    }

    fn packed(cache: &Cache) -> usize {
        let Objects { slots, .. } = &*cache.0.objects.read();
        slots.iter().filter(|slot| matches!(slot.stored, Stored::Packed(_))).count()
    }

    #[test]
    fn a_packed_cache_takes_a_third_of_a_plain_one_and_shows_the_same() {
        // BC-4
        let (mut plain, mut writer) = (Writer::default(), Writer::default());
        writer.pack(true);
        listed(&mut plain, many(1000));
        listed(&mut writer, many(1000));
        let before = writer.cache().bytes();
        let (made, portions) = settle(&mut writer);
        assert_eq!((before, made, packed(&writer.cache())), (plain.cache().bytes(), 1, 1000));
        assert!((2..100).contains(&portions), "{portions}: not all at once");
        let (small, large) = (writer.cache().bytes(), plain.cache().bytes());
        assert!(small * 3 < large, "{small} of {large}");
        assert_eq!(writer.cache().list(), plain.cache().list());
        let unread = |object: &Object| object.unmade() == object.size();
        assert!(writer.cache().list().iter().all(unread), "nothing is unpacked that nobody reads");
        // What takes memory is what counts: the dictionary does, and nothing is left of what goes.
        writer.start_list();
        writer.finish_list(Version(2));
        assert_eq!(writer.cache().bytes(), writer.packing.dictionary.as_ref().unwrap().size());
    }

    #[test]
    fn what_comes_once_there_is_a_dictionary_is_packed_at_once_and_changes_as_ever() {
        // BC-4
        let mut writer = Writer::default();
        writer.pack(true);
        writer.adopt(Some(Arc::clone(&DICTIONARY)));
        let cache = writer.cache();
        let [one, two, last] = [1, 2, 3].map(|version| alike("a", version, &version.to_string()));
        let empty = cache.bytes();
        let script = [
            (Event::Applied(one.clone()), Some(Change::Added(one.clone())), Version(1)),
            (Event::Applied(one.clone()), None, Version(1)),
            (Event::Applied(two.clone()), Some(Change::Updated { old: one, new: two }), Version(2)),
            (Event::Bookmark(Version(2)), None, Version(2)),
            (Event::Deleted(last.clone()), Some(Change::Deleted { last: last.clone(), unknown: false }), Version(3)),
            (Event::Deleted(last), None, Version(3)),
        ];
        for (event, change, version) in script {
            assert_eq!((writer.apply(event), cache.version()), (change, version));
            assert_eq!(packed(&cache), cache.len());
        }
        assert_eq!(cache.bytes(), empty);
        let [old, new] = [4, 5].map(|version| alike("b", version, "x"));
        writer.apply(Event::Applied(old.clone()));
        assert_eq!(writer.lose(old.key()), Some(Change::Deleted { last: old, unknown: true }));
        writer.keep(Fields::metadata());
        writer.apply(Event::Applied(new.clone()));
        assert_eq!(cache.list(), [new.cut(&Fields::metadata())], "cut, and packed then");
    }

    #[test]
    fn a_dictionary_is_made_once_there_is_enough_and_not_again() {
        // BC-4
        let mut writer = Writer::default();
        listed(&mut writer, many(500));
        assert!(!writer.is_due(), "nobody wants it");
        let mut writer = Writer::default();
        writer.pack(true);
        writer.start_list();
        let due = many(500).map(|object| {
            writer.list_item(object);
            writer.is_due()
        });
        let first = due.take_while(|due| !due).count();
        assert!((200..400).contains(&first), "while the list is under way, after a megabyte: {first}");
        writer.portion();
        assert!(writer.list_item(alike("z", 1, "z")).is_some());
        assert_eq!((packed(&writer.cache()), settle(&mut writer).0), (1, 0));
        assert_eq!(packed(&writer.cache()), writer.cache().len());

        let mut few = Writer::default();
        few.pack(true);
        listed(&mut few, many(50));
        assert!(!few.is_due(), "too little to be worth it");
        listed(&mut few, many(120));
        assert_eq!((settle(&mut few).0, packed(&few.cache())), (1, 120));
    }

    #[test]
    fn a_cache_without_a_dictionary_goes_on_unpacked_and_tries_again_when_there_is_twice_as_much() {
        // BC-4
        let mut writer = Writer::default();
        writer.pack(true);
        listed(&mut writer, many(120));
        writer.adopt(None);
        assert!(!writer.is_due() && packed(&writer.cache()) == 0);
        listed(&mut writer, many(230));
        assert!(!writer.is_due());
        listed(&mut writer, many(250));
        assert_eq!((settle(&mut writer).0, packed(&writer.cache())), (1, 250));

        let room = Room::new(1 << 20);
        let mut full = Writer::bounded(64 << 10).sharing(room.holding(&"c".into()));
        full.pack(true);
        full.adopt(Some(Arc::clone(&DICTIONARY)));
        full.apply(Event::Applied(alike("a", 1, "x")));
        assert_eq!((packed(&full.cache()), full.cache().len()), (0, 1), "it finds no room");
    }

    #[test]
    fn what_is_packed_makes_room_for_more() {
        // BC-4
        let room = Room::new(64 << 20);
        let mut writer = Writer::bounded(2 << 20).sharing(room.holding(&"c".into()));
        writer.pack(true);
        listed(&mut writer, many(1000));
        let (plain, complete) = (writer.cache().len(), writer.cache().is_complete());
        assert!(plain < 700 && !complete, "{plain}");
        settle(&mut writer);
        listed(&mut writer, many(1000));
        assert_eq!((writer.cache().len(), writer.cache().is_complete()), (1000, true));
        assert_eq!((settle(&mut writer).0, packed(&writer.cache())), (0, 1000));
    }

    #[test]
    fn what_nobody_wants_packed_any_more_is_unpacked_as_it_comes_again() {
        // BC-4
        let mut writer = Writer::default();
        writer.pack(true);
        writer.adopt(Some(Arc::clone(&DICTIONARY)));
        listed(&mut writer, many(3));
        writer.pack(false);
        writer.apply(Event::Applied(alike("o00002", 2, "x")));
        assert_eq!((packed(&writer.cache()), settle(&mut writer)), (2, (0, 0)));
        writer.pack(true);
        assert_eq!((settle(&mut writer).0, packed(&writer.cache())), (0, 3), "the dictionary is there");
    }

    /// What happens to a cache.
    #[derive(Clone, Debug)]
    enum Step {
        Applied(Object),
        Deleted(Object),
        Bookmark(u64),
        Lost(ObjectRef),
        Unreadable(ObjectRef),
        StartList,
        Listed(Object),
        FinishList(u64),
        Keep(bool),
        Settle,
        Pack(bool),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let object = (0..6_u8, 1..9_u64, "[a-zé\"\\\\]{0,40}", any::<bool>()).prop_map(|(n, version, text, noisy)| {
            let name = format!("o{n}");
            if noisy {
                let text = serde_json::Value::from(text);
                let key = format!("{{\"name\":\"{name}\",\"namespace\":\"n\",\"resourceVersion\":\"{version}\"}}");
                parse(&format!("{{\"metadata\":{key},\"data\":{text}}}"))
            } else {
                alike(&name, version, &version.to_string())
            }
        });
        let key = (0..6_u8).prop_map(|n| ObjectRef::namespaced("n", &format!("o{n}")));
        let step = prop_oneof![
            4 => object.clone().prop_map(Step::Applied),
            1 => object.clone().prop_map(Step::Deleted),
            1 => (1..9_u64).prop_map(Step::Bookmark),
            1 => key.clone().prop_map(Step::Lost),
            1 => key.prop_map(Step::Unreadable),
            1 => Just(Step::StartList),
            3 => object.prop_map(Step::Listed),
            1 => (1..9_u64).prop_map(Step::FinishList),
            1 => any::<bool>().prop_map(Step::Keep),
            1 => Just(Step::Settle),
            1 => any::<bool>().prop_map(Step::Pack),
        ];
        prop::collection::vec(step, 1..40)
    }

    /// Takes a step. Returns what it changes.
    fn take(writer: &mut Writer, step: Step) -> Vec<Change> {
        let change = match step {
            Step::Applied(object) => writer.apply(Event::Applied(object)),
            Step::Deleted(object) => writer.apply(Event::Deleted(object)),
            Step::Bookmark(version) => writer.apply(Event::Bookmark(Version(version))),
            Step::Lost(key) => writer.lose(&key),
            Step::Unreadable(key) => {
                writer.quarantine(Some(&key));
                None
            }
            Step::StartList => {
                writer.start_list();
                None
            }
            Step::Listed(object) => writer.list_item(object),
            Step::FinishList(version) => return writer.finish_list(Version(version)),
            Step::Keep(whole) => {
                writer.keep(if whole { Fields::whole() } else { Fields::metadata() });
                None
            }
            Step::Settle => {
                settle(writer);
                None
            }
            Step::Pack(_) => None,
        };
        change.into_iter().collect()
    }

    proptest! {
        #[test]
        fn packed_and_plain_caches_answer_alike(steps in steps()) {
            // BC-4
            let (mut plain, mut writer) = (Writer::default(), Writer::default());
            writer.adopt(Some(Arc::clone(&DICTIONARY)));
            writer.pack(true);
            for step in steps {
                if let Step::Pack(wanted) = step {
                    writer.pack(wanted);
                }
                let expected = take(&mut plain, step.clone());
                prop_assert_eq!(take(&mut writer, step), expected);
                let (cache, other) = (writer.cache(), plain.cache());
                prop_assert_eq!(cache.snapshot(None), other.snapshot(None));
                prop_assert_eq!((cache.version(), cache.is_synced(), cache.is_complete()), (other.version(), other.is_synced(), other.is_complete()));
                prop_assert_eq!(cache.frozen().list(), other.list());
                prop_assert!(cache.list().iter().zip(other.list()).all(|(own, other)| own.json() == other.json() && own.fields() == other.fields() && own.tags() == other.tags()));
            }
        }
    }
}
