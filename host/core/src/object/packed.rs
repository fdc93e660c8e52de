//! Decides how the text of an object is packed, and reads it again: with zstd, and a dictionary of what objects of its kind have in common.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, OnceLock};

use zstd_safe::{CCtx, CDict, DCtx, DDict};

use super::fields::Fields;
use super::{Header, Inner, Object};

/// How hard it tries. Of texts that are much like the dictionary, higher levels make them hardly smaller, with tables for the dictionary
/// that are several times as large.
const LEVEL: i32 = 1;

/// The most bytes of a dictionary. It is made of objects as they are: one that zstd trains makes them smaller by another 8 % (202
/// bytes instead of 219 of Deployments of 3.4 KB), but that takes tens of milliseconds, and memory.
const DICTIONARY: usize = 32 << 10;

/// The most bytes of one sample: what objects have in common begins early.
const SAMPLE: usize = 8 << 10;

/// What is not smaller by one part of so many is kept as it is: the codes of letters alone make any text smaller by a sixth.
const GAIN: usize = 4;

/// What objects of one kind have in common. Whatever was packed with it can be read as long as it is there.
pub struct Dictionary {
    pack: CDict<'static>,
    unpack: DDict<'static>,
}

/// An object whose text is packed, beside its header. Cheap to clone.
#[derive(Clone)]
pub struct Packed(Arc<Parcel>);

/// What a packed object consists of.
pub(super) struct Parcel {
    header: Header,
    fields: Fields,
    /// The text, packed.
    bytes: Box<[u8]>,
    /// The bytes of the text.
    length: usize,
    dictionary: Arc<Dictionary>,
}

thread_local! {
    /// What packs and unpacks, with memory that is used again: 72 KiB and 96 KiB, and while a thread packs objects of a megabyte, half of
    /// one more. `None` before its first use, or if there was no memory.
    static PACKER: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
    static UNPACKER: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

// === impl Dictionary ===

impl Dictionary {
    /// Makes one of some of these objects, spread evenly. `count` is how many there are, `bytes` those of their texts. Returns none if
    /// there is no memory for it.
    pub fn of(objects: impl Iterator<Item = Object>, count: usize, bytes: usize) -> Option<Arc<Self>> {
        let fit = (count.saturating_mul(DICTIONARY) / bytes.max(1)).max(1);
        let mut text = Vec::with_capacity(DICTIONARY);
        for object in objects.step_by(count.div_ceil(fit).max(1)) {
            let left = DICTIONARY.saturating_sub(text.len()).min(SAMPLE);
            let json = object.json().as_bytes();
            text.extend(json.get(..left).unwrap_or(json));
        }
        Some(Arc::new(Self { pack: CDict::try_create(&text, LEVEL)?, unpack: DDict::try_create(&text)? }))
    }

    /// Returns the bytes of memory that it takes.
    pub fn size(&self) -> usize {
        self.pack.sizeof() + self.unpack.sizeof()
    }

    /// Packs a text; returns none if that makes it hardly smaller.
    fn pack(&self, text: &str) -> Option<Box<[u8]>> {
        let worth = text.len() - text.len() / GAIN;
        let mut packed = Vec::with_capacity(worth);
        PACKER.with_borrow_mut(|packer| {
            let packer = packer.take().or_else(CCtx::try_create).map(|made| packer.insert(made))?;
            // There is room for no more than what is worth it.
            packer.compress_using_cdict(&mut packed, text.as_bytes(), &self.pack).ok()
        })?;
        Some(packed.into_boxed_slice())
    }

    fn unpack(&self, bytes: &[u8], length: usize) -> Option<Box<str>> {
        let mut text = Vec::with_capacity(length);
        UNPACKER.with_borrow_mut(|unpacker| {
            let unpacker = unpacker.take().or_else(DCtx::try_create).map(|made| unpacker.insert(made))?;
            // There is room for no more than what was packed.
            unpacker.decompress_using_ddict(&mut text, bytes, &self.unpack).ok()
        })?;
        String::from_utf8(text).ok().map(String::into_boxed_str)
    }
}

impl fmt::Debug for Dictionary {
    /// Writes its size only: it has parts of objects.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dictionary({} bytes)", self.size())
    }
}

// === impl Packed ===

impl Packed {
    /// Packs an object; returns none if that makes it hardly smaller.
    pub fn of(object: &Object, dictionary: &Arc<Dictionary>) -> Option<Self> {
        let json = object.json();
        Some(Self(Arc::new(Parcel {
            bytes: dictionary.pack(json)?,
            header: object.header().clone(),
            fields: object.fields().clone(),
            length: json.len(),
            dictionary: Arc::clone(dictionary),
        })))
    }

    /// Returns the header.
    pub fn header(&self) -> &Header {
        &self.0.header
    }

    /// Returns the bytes that its text takes, packed.
    pub fn size(&self) -> usize {
        self.0.bytes.len()
    }

    /// Returns the object. It is unpacked when its text is asked for, once for all clones of what is returned, and for no other.
    pub fn object(&self) -> Object {
        Object(Arc::new(Inner::Packed { of: Arc::clone(&self.0), json: OnceLock::new() }))
    }
}

// === impl Parcel ===

impl Parcel {
    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    pub(super) fn fields(&self) -> &Fields {
        &self.fields
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Returns the text.
    pub(super) fn text(&self) -> Box<str> {
        let Self { bytes, length, dictionary, .. } = self;
        dictionary.unpack(bytes, *length).unwrap_or_else(|| {
            // Nobody takes this for an object without content.
            tracing::error!(object = %self.header.key, "a packed object can't be unpacked: there is no memory for it");
            Box::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Gvk, Managers};

    /// Returns objects that are much alike, with text in several scripts.
    fn alike(count: usize) -> Vec<Object> {
        let one = |n: usize| {
            let settings = (0..20).map(|i| format!("{{\"name\":\"SETTING_{i}\",\"value\":\"Wert für {n}: 値\"}}"));
            let settings = settings.collect::<Vec<_>>().join(",");
            let uid = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let text = format!(
                "{{\"metadata\":{{\"name\":\"o{n}\",\"namespace\":\"n\",\"resourceVersion\":\"{n}\",\"uid\":\"{uid:016x}\",\"labels\":{{\"l\":\"{n}\"}}}},\"spec\":[{settings}]}}"
            );
            Object::parse(&text, &Gvk::parse("v1", "ConfigMap").unwrap(), &Managers::default()).unwrap()
        };
        (1..=count).map(one).collect()
    }

    fn made_of(objects: &[Object]) -> Arc<Dictionary> {
        let bytes = objects.iter().map(Object::size).sum();
        Dictionary::of(objects.iter().cloned(), objects.len(), bytes).unwrap()
    }

    #[test]
    fn what_is_unpacked_is_what_was_packed() {
        // BC-4
        let objects = alike(300);
        let dictionary = made_of(&objects);
        for object in &objects {
            let packed = Packed::of(object, &dictionary).unwrap();
            assert!(packed.size() < object.json().len() / 4, "{} of {}", packed.size(), object.json().len());
            let found = packed.object();
            assert_eq!((found.unmade(), found.length()), (object.json().len(), object.json().len()));
            assert_eq!((packed.header(), found.key()), (object.header(), object.key()));
            assert_eq!(found.unmade(), object.json().len(), "its header is there without unpacking");
            assert_eq!((found.json(), &found), (object.json(), object));
            assert_eq!((found.unmade(), found.unread().unmade()), (0, object.json().len()));
            assert_eq!(found.tags(), object.tags());
        }
    }

    #[test]
    fn a_part_of_a_packed_object_costs_unpacking_and_cutting() {
        // BC-4
        let objects = alike(300);
        let object = &objects[7];
        let packed = Packed::of(object, &made_of(&objects)).unwrap();
        let (part, whole) = (packed.object().part(&Fields::metadata()), object.size());
        assert_eq!((part.unmade(), part.unmeasured(), part.size()), (2 * whole, 2 * whole, whole));
        assert_eq!(packed.object().unmeasured(), 0, "what is whole is known to be as long as it was");
        assert_eq!(part.json(), object.part(&Fields::metadata()).json());
        assert_eq!((part.unmade(), part.unread().unmade(), part.length()), (0, 2 * whole, part.json().len()));
        assert_eq!(packed.object().cut(&Fields::metadata()), object.clone().cut(&Fields::metadata()));
    }

    #[test]
    fn what_does_not_get_smaller_is_not_packed() {
        // BC-4
        let dictionary = made_of(&alike(300));
        let mut seed = 7_u64;
        let mut noise = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(u8::try_from(32 + (seed >> 33) % 95).unwrap())
        };
        let plain = |letter: &char| !['"', '\\'].contains(letter);
        let noise: String = std::iter::repeat_with(&mut noise).filter(plain).take(4_000).collect();
        let text = format!(r#"{{"metadata":{{"name":"a"}},"data":{noise:?}}}"#);
        let object = Object::parse(&text, &Gvk::parse("v1", "ConfigMap").unwrap(), &Managers::default()).unwrap();
        assert!(Packed::of(&object, &dictionary).is_none());
        let long = text.replace("\"data\"", &format!("\"much\":{:?},\"data\"", "x".repeat(1 << 20)));
        let long = Object::parse(&long, &Gvk::parse("v1", "ConfigMap").unwrap(), &Managers::default()).unwrap();
        let packed = Packed::of(&long, &dictionary).unwrap();
        assert!((3_000..5_000).contains(&packed.size()), "{}", packed.size());
        assert_eq!(packed.object(), long);
    }

    #[test]
    fn bytes_that_were_not_packed_are_no_object_and_nobody_panics() {
        let dictionary = made_of(&alike(300));
        let packed = dictionary.pack(&"text ".repeat(100)).unwrap();
        assert!(dictionary.unpack(&packed, 499).is_none(), "longer than it says");
        for end in 0..packed.len() {
            assert!(dictionary.unpack(&packed[..end], 500).is_none_or(|text| text.len() < 500), "{end}");
        }
        for at in 0..packed.len() {
            let mut wrong = packed.clone();
            wrong[at] ^= 0x55;
            let found = dictionary.unpack(&wrong, 500);
            assert!(found.is_none_or(|text| text.len() <= 500), "{at}");
        }
        let Packed(parcel) = Packed::of(&alike(1)[0], &dictionary).unwrap();
        let broken = Parcel { bytes: Box::new([1, 2, 3]), ..Arc::into_inner(parcel).unwrap() };
        assert_eq!(Packed(Arc::new(broken)).object().json(), "");
    }

    #[test]
    fn a_dictionary_is_of_objects_from_everywhere_and_no_larger_than_it_may_be() {
        let mut objects = alike(400);
        // Only the last ones have what these have.
        let late = |n: usize| {
            let text = format!(
                r#"{{"metadata":{{"name":"z{n}"}},"late":"{}"}}"#,
                "qwertyuiop asdfghjkl zxcvbnm 1234567890 ".repeat(3)
            );
            Object::parse(&text, &Gvk::parse("v1", "ConfigMap").unwrap(), &Managers::default()).unwrap()
        };
        objects.extend((0..200).map(late));
        let dictionary = made_of(&objects);
        assert!(dictionary.size() < 6 * DICTIONARY, "{dictionary:?}");
        for object in [&objects[3], &objects[590]] {
            let packed = Packed::of(object, &dictionary).unwrap();
            assert!(packed.size() * 3 < object.size(), "{object:?}: {} of {}", packed.size(), object.size());
        }
        let large = format!(r#"{{"metadata":{{"name":"a"}},"data":"{}"}}"#, "x".repeat(1 << 20));
        let large = Object::parse(&large, &Gvk::parse("v1", "ConfigMap").unwrap(), &Managers::default()).unwrap();
        assert!(made_of(&[large]).size() < 6 * DICTIONARY);
    }
}
