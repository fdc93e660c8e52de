//! Decides which fields of objects are kept: those that some pointers name, all others, or what several readers need together; and
//! what is left of an object's text.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::hold::HELD;
use super::pointer::Pointer;
use super::{Gvk, MARK, PAUSED, Text};

/// A set of fields. Every set has what identifies an object and ties it to others: `apiVersion`, `kind`, and all of the metadata but
/// annotations; of these it always has those that the daemon itself reads. No set has the managed fields.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Fields(
    /// `None`: all fields.
    Option<Arc<Node>>,
);

/// The fields that are kept at one level. In a normal form: no field below says what `rest` says of it anyway.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    /// True if the fields are kept that `below` does not name.
    rest: bool,
    below: BTreeMap<Box<str>, Self>,
}

/// All fields.
static ALL: LazyLock<Node> = LazyLock::new(|| Node::leaf(true));

// === impl Fields ===

impl Fields {
    /// Returns the set of all fields.
    pub fn whole() -> Self {
        Self(None)
    }

    /// Returns the metadata with all annotations, and nothing else.
    pub fn metadata() -> Self {
        let mut node = Node::leaf(false);
        for name in ["apiVersion", "kind", "metadata"] {
            node.set(&[name], true);
        }
        Self::of(node)
    }

    /// Returns the fields under these pointers, and what every set has.
    pub fn only<'p>(pointers: impl IntoIterator<Item = &'p Pointer>) -> Self {
        Self::of(Node::but(false, pointers))
    }

    /// Returns the fields that are under none of these pointers, and what every set has.
    pub fn without<'p>(pointers: impl IntoIterator<Item = &'p Pointer>) -> Self {
        Self::of(Node::but(true, pointers))
    }

    /// Returns the set with these annotations.
    #[must_use]
    pub fn with_annotations<'k>(self, keys: impl IntoIterator<Item = &'k str>) -> Self {
        let Self(Some(node)) = self else {
            return self;
        };
        let mut node = Arc::unwrap_or_clone(node);
        for key in keys {
            node.set(&["metadata", "annotations", key], true);
        }
        Self::of(node)
    }

    fn of(mut node: Node) -> Self {
        node.tidy();
        Self((node != *ALL).then(|| Arc::new(node)))
    }

    fn node(&self) -> &Node {
        self.0.as_deref().unwrap_or(&ALL)
    }

    /// Returns the fields that are in one of two sets.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        // The same values again, so that those who compare them seldom have to look inside.
        if self.covers(other) {
            self.clone()
        } else if other.covers(self) {
            other.clone()
        } else {
            Self::of(self.node().with(other.node(), |a, b| a || b))
        }
    }

    /// Returns the fields that are in both of two sets.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        if self.covers(other) {
            other.clone()
        } else if other.covers(self) {
            self.clone()
        } else {
            Self::of(self.node().with(other.node(), |a, b| a && b))
        }
    }

    /// Returns true if these are all fields.
    pub fn is_whole(&self) -> bool {
        self.0.is_none()
    }

    /// Returns true if these are nothing but metadata.
    pub fn is_metadata(&self) -> bool {
        let Node { rest, below } = self.node();
        !rest && below.keys().all(|name| matches!(&**name, "apiVersion" | "kind" | "metadata"))
    }

    /// Returns true if it has all fields of another set.
    pub fn covers(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(other)) => Arc::ptr_eq(own, other) || own.covers(other),
        }
    }

    /// Returns true if it has the field under a path, and all below.
    pub fn has<'p>(&self, path: impl IntoIterator<Item = &'p str>) -> bool {
        let mut node = self.node();
        for name in path {
            match node.below.get(name) {
                Some(below) => node = below,
                None => return node.rest,
            }
        }
        *node == *ALL
    }

    /// Returns true if it has nothing of what is under a path.
    pub fn lacks<'p>(&self, path: impl IntoIterator<Item = &'p str>) -> bool {
        let mut node = self.node();
        for name in path {
            match node.below.get(name) {
                Some(below) => node = below,
                None => return !node.rest,
            }
        }
        *node == Node::leaf(false)
    }

    /// Returns true if it has all fields of the object itself, which is what a write without a subresource is about, or
    /// all of a subresource.
    pub fn has_part(&self, subresource: Option<&str>) -> bool {
        let Some(node) = &self.0 else {
            return true;
        };
        match subresource {
            None => {
                let mut node = Node::clone(node);
                node.set(&["status"], true);
                node.tidy();
                node == *ALL
            }
            Some("status") => self.has(["status"]),
            Some(_) => false,
        }
    }

    /// Returns the text of an object with these fields alone. `gvk` is written in place of its own kind, where that is not its
    /// kind or is missing. A pointer into a list, or into what is not there, leaves all that it can't tell apart.
    pub(super) fn cut(&self, json: &str, gvk: Option<&Gvk>) -> Box<str> {
        let mut text = String::with_capacity(json.len().min(1 << 12));
        text.push('{');
        if let Some(gvk) = gvk {
            text.extend(["\"apiVersion\":\"", &gvk.api_version(), "\",\"kind\":\"", &gvk.kind, "\""]);
        }
        let skip: &[&str] = if gvk.is_some() { &["apiVersion", "kind"] } else { &[] };
        self.node().entries(json, skip, &mut text);
        text.push('}');
        text.into_boxed_str()
    }
}

impl fmt::Debug for Fields {
    /// Writes `whole`, or the levels of the set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str("whole"),
            Some(node) => node.fmt(f),
        }
    }
}

// === impl Node ===

impl Node {
    fn leaf(rest: bool) -> Self {
        Self { rest, below: BTreeMap::new() }
    }

    /// Returns all fields or none, but for those under these pointers, and with what every set has.
    fn but<'p>(rest: bool, pointers: impl IntoIterator<Item = &'p Pointer>) -> Self {
        let mut node = Self::leaf(rest);
        for pointer in pointers {
            let path: Vec<&str> = pointer.path().iter().map(|name| &**name).collect();
            node.set(&path, !rest);
        }
        node.with(&Self::always(), |a, b| a || b)
    }

    /// Returns what every set has.
    fn always() -> Self {
        let mut node = Self::leaf(false);
        for name in ["apiVersion", "kind", "metadata"] {
            node.set(&[name], true);
        }
        node.set(&["metadata", "annotations"], false);
        for key in [HELD, MARK, PAUSED] {
            node.set(&["metadata", "annotations", key], true);
        }
        node
    }

    fn set(&mut self, path: &[&str], keep: bool) {
        let Some((name, path)) = path.split_first() else {
            *self = Self::leaf(keep);
            return;
        };
        let rest = self.rest;
        self.below.entry((*name).into()).or_insert_with(|| Self::leaf(rest)).set(path, keep);
    }

    /// Brings it into normal form.
    fn tidy(&mut self) {
        let rest = self.rest;
        self.below.values_mut().for_each(Self::tidy);
        self.below.retain(|_, node| node.rest != rest || !node.below.is_empty());
    }

    /// Returns the set that has what `either` says of two sets.
    fn with(&self, other: &Self, either: fn(bool, bool) -> bool) -> Self {
        let names = self.below.keys().chain(other.below.keys());
        let (own_rest, other_rest) = (Self::leaf(self.rest), Self::leaf(other.rest));
        let below = names.map(|name| {
            let own = self.below.get(name).unwrap_or(&own_rest);
            (name.clone(), own.with(other.below.get(name).unwrap_or(&other_rest), either))
        });
        let mut node = Self { rest: either(self.rest, other.rest), below: below.collect() };
        node.tidy();
        node
    }

    fn covers(&self, other: &Self) -> bool {
        let (own_rest, other_rest) = (Self::leaf(self.rest), Self::leaf(other.rest));
        let mut names = self.below.keys().chain(other.below.keys());
        (self.rest || !other.rest)
            && names.all(|name| {
                let own = self.below.get(name).unwrap_or(&own_rest);
                own.covers(other.below.get(name).unwrap_or(&other_rest))
            })
    }

    /// Appends what is left of a value; returns false if nothing is.
    fn take(&self, value: &str, text: &mut String) -> bool {
        if self.below.is_empty() || !value.starts_with('{') {
            let stays = self.rest || !self.below.is_empty();
            text.push_str(if stays { value } else { "" });
            return stays;
        }
        let start = text.len();
        text.push('{');
        self.entries(value, &[], text);
        let stays = self.rest || !text.ends_with('{');
        text.push('}');
        if !stays {
            text.truncate(start);
        }
        stays
    }

    /// Appends what is left of the fields of a map, but for those that are skipped.
    fn entries(&self, json: &str, skip: &[&str], text: &mut String) {
        let mut json = serde_json::Deserializer::from_str(json);
        // The text was parsed before, and every text is a value: nothing can fail.
        drop(json.deserialize_map(Entries { node: self, skip, text }));
    }
}

/// Appends what is left of the entries of a map.
struct Entries<'a> {
    node: &'a Node,
    skip: &'a [&'a str],
    text: &'a mut String,
}

impl<'de> Visitor<'de> for Entries<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { node, skip, text } = self;
        while let Some(Text(name)) = map.next_key::<Text<'de>>()? {
            let below = node.below.get(&*name);
            if skip.contains(&&*name) || (below.is_none() && !node.rest) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value: &RawValue = map.next_value()?;
            let start = text.len();
            if !text.ends_with('{') {
                text.push(',');
            }
            push_name(&name, text);
            let stays = match below {
                // Wherever they stand, managed fields are kept in the header alone.
                _ if *name == *"metadata" && !skip.is_empty() => {
                    text.push('{');
                    below.unwrap_or(&ALL).entries(value.get(), &["managedFields"], text);
                    text.push('}');
                    true
                }
                Some(below) => below.take(value.get(), text),
                None => {
                    text.push_str(value.get());
                    true
                }
            };
            if !stays {
                text.truncate(start);
            }
        }
        Ok(())
    }
}

fn push_name(name: &str, text: &mut String) {
    let plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
    if name.bytes().all(plain) {
        text.extend(["\"", name, "\":"]);
    } else {
        text.extend([&*Value::from(name).to_string(), ":"]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn pointers(texts: &[&str]) -> Vec<Pointer> {
        texts.iter().map(|text| Pointer::parse(text).unwrap()).collect()
    }

    fn only(texts: &[&str]) -> Fields {
        Fields::only(&pointers(texts))
    }

    fn without(texts: &[&str]) -> Fields {
        Fields::without(&pointers(texts))
    }

    fn page() -> Gvk {
        Gvk::parse("sample.dev/v1", "Page").unwrap()
    }

    fn cut(fields: &Fields, object: &Value) -> Value {
        serde_json::from_str(&fields.cut(&object.to_string(), Some(&page()))).unwrap()
    }

    #[test]
    fn what_identifies_an_object_stays_and_of_the_rest_what_is_kept() {
        // BC-2
        let metadata =
            json!({ "name": "a", "labels": { "l": "1" }, "ownerReferences": [{ "uid": "u" }], "finalizers": ["f"] });
        let with = |annotations: Value, rest: Value| {
            let mut object = json!({ "apiVersion": "sample.dev/v1", "kind": "Page", "metadata": metadata });
            if !annotations.is_null() {
                object["metadata"]["annotations"] = annotations;
            }
            object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            object
        };
        let (few, all) = (json!({ MARK: "m", PAUSED: "true" }), json!({ MARK: "m", PAUSED: "true", "x/y": "z" }));
        let list = json!([{ "x": 1 }, { "x": 2 }]);
        let rest = json!({ "spec": { "a": 1, "b": { "c": 2, "d": 3 }, "list": list }, "status": { "s": "\u{7}\"" }, "none": {} });
        let mut object = with(all.clone(), rest.clone());
        object["metadata"]["managedFields"] = json!([{ "manager": "m" }]);
        for (fields, expected) in [
            (Fields::whole(), with(all.clone(), rest.clone())),
            (Fields::metadata(), with(all.clone(), json!({}))),
            (only(&["/spec/a"]), with(few.clone(), json!({ "spec": { "a": 1 } }))),
            (
                only(&["/spec/b/c", "/status"]),
                with(few.clone(), json!({ "spec": { "b": { "c": 2 } }, "status": rest["status"] })),
            ),
            (only(&["/spec/a", "/spec"]), with(few.clone(), json!({ "spec": rest["spec"] }))),
            (only(&["/spec/list/1/x"]), with(few.clone(), json!({ "spec": { "list": list } }))),
            (only(&["/spec/nothing", "/none"]), with(few.clone(), json!({ "none": {} }))),
            (only(&["/metadata/annotations/x~1y"]), with(all.clone(), json!({}))),
            (without(&["/spec", "/none/x"]), with(all.clone(), json!({ "status": rest["status"], "none": {} }))),
            (without(&["/spec/b/c", "/spec/list/0", "/status"]), {
                with(all.clone(), json!({ "spec": { "a": 1, "b": { "d": 3 }, "list": list }, "none": {} }))
            }),
            (without(&["/metadata/annotations"]), with(few.clone(), rest.clone())),
            (without(&["/metadata", "/kind"]), with(few, rest.clone())),
            (without(&["/spec"]).with_annotations(["x/y"]), with(all, json!({ "status": rest["status"], "none": {} }))),
        ] {
            assert_eq!(cut(&fields, &object), expected, "{fields:?}");
        }
    }

    #[test]
    fn an_object_that_came_as_metadata_gets_its_own_kind() {
        // BC-2
        let partial =
            json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": { "name": "a" } });
        let own = json!({ "apiVersion": "sample.dev/v1", "kind": "Page", "metadata": { "name": "a" } });
        assert_eq!(cut(&Fields::metadata(), &partial), own);
    }

    #[test]
    fn a_set_knows_what_it_has() {
        let (none, some): (&[&str], _) = (&[], only(&["/spec/a", "/status"]));
        for (fields, path, has, lacks) in [
            (&Fields::whole(), &["spec"][..], true, false),
            (&some, &["spec", "a", "b"], true, false),
            (&some, &["spec"], false, false),
            (&some, &["spec", "b"], false, true),
            (&some, &["metadata", "labels"], true, false),
            (&some, &["metadata", "annotations", "x"], false, true),
            (&some, none, false, false),
            (&without(&["/spec/a"]), &["spec"], false, false),
            (&without(&["/spec/a"]), &["spec", "a", "b"], false, true),
            (&without(&["/spec/a"]), &["spec", "b"], true, false),
        ] {
            let found = (fields.has(path.iter().copied()), fields.lacks(path.iter().copied()));
            assert_eq!(found, (has, lacks), "{path:?} in {fields:?}");
        }
        for (fields, object, status, metadata) in [
            (Fields::whole(), true, true, false),
            (without(&["/status"]), true, false, false),
            (without(&["/spec/a"]), false, true, false),
            (only(&["/status"]), false, true, false),
            (only(&["/metadata/annotations"]), false, false, true),
            (Fields::metadata(), false, false, true),
        ] {
            let found = (fields.has_part(None), fields.has_part(Some("status")), fields.is_metadata());
            assert_eq!(found, (object, status, metadata), "{fields:?}");
            assert!(!fields.has_part(Some("scale")) || fields.is_whole());
        }
    }

    /// Sets of fields over the paths that `objects` have.
    fn sets() -> impl Strategy<Value = Fields> {
        let pointer = prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..4);
        let pointer = pointer.prop_map(|path| Pointer::parse(&format!("/{}", path.join("/"))).unwrap());
        (prop::collection::vec(pointer, 1..4), any::<bool>())
            .prop_map(|(pointers, keep)| if keep { Fields::only(&pointers) } else { Fields::without(&pointers) })
    }

    fn objects() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(json!(1)), Just(json!([{ "a": 1 }])), Just(json!({}))];
        let tree = leaf.prop_recursive(3, 16, 3, |inner| {
            prop::collection::btree_map("[abc]", inner, 0..4).prop_map(|map| json!(map))
        });
        prop::collection::btree_map("[abc]", tree, 0..4).prop_map(|map| {
            let mut object = json!({ "apiVersion": "v1", "kind": "X", "metadata": { "name": "a" } });
            object.as_object_mut().unwrap().extend(map);
            object
        })
    }

    proptest! {
        #[test]
        fn whoever_shares_a_cache_sees_what_it_would_see_alone((own, other, object) in (sets(), sets(), objects())) {
            // BC-2
            let union = own.union(&other);
            prop_assert!(union.covers(&own) && union.covers(&other));
            prop_assert_eq!(&union, &other.union(&own));
            let shared = cut(&own, &cut(&union, &object));
            prop_assert_eq!(shared, cut(&own, &object));
        }

        #[test]
        fn what_two_sets_have_in_common_is_in_both((own, other) in (sets(), sets())) {
            let both = own.meet(&other);
            prop_assert!(own.covers(&both) && other.covers(&both));
            prop_assert_eq!(own.covers(&other), own.union(&other) == own);
            prop_assert_eq!(own.covers(&other), own.meet(&other) == other);
        }
    }
}
