//! Defines an object: JSON bytes beside a small parsed header.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::budget::{self, Budget};

mod change;
pub mod fields;
pub mod hold;
pub mod labels;
mod names;
pub mod packed;
pub mod pointer;
mod read;
pub mod shard;

pub use change::Change;
pub use hold::PAUSED;
pub use names::{Gvk, ObjectRef, Scope, Version, is_path_segment};

use fields::Fields;
use packed::Parcel;
use read::{Named, View, cut};

/// An entry of `metadata.ownerReferences`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Group and version of the owner.
    pub api_version: Box<str>,
    /// Kind of the owner.
    pub kind: Box<str>,
    /// Name of the owner.
    pub name: Box<str>,
    /// Uid of the owner.
    pub uid: Box<str>,
}

/// The annotation that names the dependent and the primary for which the daemon created an object.
pub const MARK: &str = "capstan.dev/made-for";

/// The fields that a field manager owns of an object: an entry of `metadata.managedFields`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The field manager's name.
    pub manager: Box<str>,
    /// True for `Apply`, false for `Update`.
    pub applied: bool,
    /// True if it was written as the version in which the object is read (`KD-12`).
    pub same_version: bool,
    /// The subresource that was written, such as `status`; `None` for the object itself.
    pub subresource: Option<Box<str>>,
    /// The `fieldsV1` document.
    pub fields: Box<str>,
}

/// The part of an object that is parsed when it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Name and namespace.
    pub key: ObjectRef,
    /// The uid; empty if it has none yet.
    pub uid: Box<str>,
    /// The `resourceVersion`; zero if it has none yet.
    pub version: Version,
    /// The `generation`; `None` for kinds without one.
    pub generation: Option<i64>,
    /// True once a `deletionTimestamp` is set.
    pub deleting: bool,
    /// The finalizers.
    pub finalizers: Box<[Box<str>]>,
    /// The owner references.
    pub owners: Box<[Owner]>,
    /// The shares of our own field managers, or of all if [`Managers::all`] was asked for.
    pub shares: Box<[Share]>,
    /// The value of the annotation [`PAUSED`]; `None` without it.
    pub paused: Option<Box<str>>,
    /// The value of the annotation [`HELD`](hold::HELD); `None` without it.
    pub held: Option<Box<str>>,
    /// True if it may have the annotation [`MARK`]: without it the text need not be looked at.
    pub marked: bool,
}

/// A Kubernetes object: JSON text without managedFields, or with some of its fields only, beside its header. Cheap to
/// clone.
#[derive(Clone)]
pub struct Object(Arc<Inner>);

enum Inner {
    /// As it was read.
    Read {
        header: Header,
        /// The fields that `json` was cut down to.
        fields: Fields,
        json: Box<str>,
    },
    /// As it is packed somewhere.
    Packed {
        of: Arc<Parcel>,
        /// Unpacked when it is asked for.
        json: OnceLock<Box<str>>,
    },
    /// Some fields of another one, which is no part itself.
    Part {
        of: Object,
        fields: Fields,
        /// Made when it is asked for.
        json: OnceLock<Box<str>>,
    },
}

/// The field managers whose shares are kept when managedFields are cut off; `None` inside means all of them.
#[derive(Clone, Debug)]
pub struct Managers(Option<Arc<[Box<str>]>>);

/// The error of a text that is not an object. Retrying does not help.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not JSON, or a field of the header has another type.
    #[error("not a Kubernetes object: {0}")]
    Json(#[from] serde_json::Error),
    /// The object is too large or too deep to be read as a tree.
    #[error("too large an object: {0}")]
    Tree(#[from] budget::Error),
    /// No name.
    #[error("an object without metadata.name")]
    Nameless,
    /// A resourceVersion that is not a decimal number.
    #[error("resourceVersion {0:?} is not a decimal number")]
    Version(String),
    /// Not `group/version`.
    #[error("apiVersion {0:?} is not of the form \"v1\" or \"group/v1\"")]
    ApiVersion(String),
}

/// Fields of metadata that only the API server may set.
pub const OF_SERVER: [&str; 3] = ["managedFields", "deletionTimestamp", "deletionGracePeriodSeconds"];

/// Removes the fields that only the API server may set from metadata, so that a document that was read can be sent.
pub fn clean_metadata(metadata: &mut Map<String, Value>) {
    for field in OF_SERVER {
        metadata.remove(field);
    }
}

// === impl Owner ===

impl Owner {
    /// Returns true if the owner is of this kind; versions do not count (`IM-1`).
    pub fn is_of(&self, gvk: &Gvk) -> bool {
        let group = self.api_version.split_once('/').map_or("", |(group, _)| group);
        *self.kind == *gvk.kind && *group == *gvk.group
    }
}

// === impl Managers ===

impl Managers {
    /// Returns the set of these names.
    pub fn new<S: Into<Box<str>>>(names: impl IntoIterator<Item = S>) -> Self {
        Self(Some(names.into_iter().map(Into::into).collect()))
    }

    /// Returns the set of all names.
    pub fn all() -> Self {
        Self(None)
    }

    /// Returns true if this manager is in the set.
    pub fn contains(&self, name: &str) -> bool {
        let names = self.0.as_ref();
        names.is_none_or(|names| names.iter().any(|own| &**own == name))
    }
}

impl Default for Managers {
    /// Returns the empty set.
    fn default() -> Self {
        Self::new::<&str>([])
    }
}

// === impl Object ===

impl Object {
    /// Reads an object as the API server sends it. Cuts managedFields off (but keeps the shares of `managers`), and
    /// fills in `apiVersion` and `kind`, which are missing in items of a list, from `gvk`.
    ///
    /// # Errors
    /// [`Error`] if the text is not JSON, or has no name.
    pub fn parse(json: &str, gvk: &Gvk, managers: &Managers) -> Result<Self, Error> {
        let view: View<'_> = serde_json::from_str(json)?;
        let header = view.header(gvk, managers)?;
        let fields = view.metadata.managed_fields.map(|raw| cut(json, raw.get()));
        let (head, tail) = fields.unwrap_or((json, ""));
        let json = match (view.api_version.is_some(), view.kind.is_some()) {
            (true, true) => [head, tail].concat(),
            (has_version, has_kind) => {
                let body = head.trim_start().strip_prefix('{').unwrap_or(head);
                let mut text = String::with_capacity(json.len() + 64);
                text.push('{');
                if !has_version {
                    text.extend(["\"apiVersion\":\"", &gvk.api_version(), "\","]);
                }
                if !has_kind {
                    text.extend(["\"kind\":\"", &gvk.kind, "\","]);
                }
                text.push_str(body);
                text.push_str(tail);
                text
            }
        };
        Ok(Self(Arc::new(Inner::Read { header, fields: Fields::whole(), json: json.into_boxed_str() })))
    }

    /// Reads an object as [`Object::parse`] does, and cuts it down to some fields. An object that was sent as metadata
    /// alone gets its own kind.
    ///
    /// # Errors
    /// Those of [`Object::parse`].
    pub fn parse_fields(json: &str, gvk: &Gvk, managers: &Managers, fields: &Fields) -> Result<Self, Error> {
        if fields.is_whole() {
            return Self::parse(json, gvk, managers);
        }
        let view: View<'_> = serde_json::from_str(json)?;
        let header = view.header(gvk, managers)?;
        Ok(Self(Arc::new(Inner::Read { header, fields: fields.clone(), json: fields.cut(json, Some(gvk)) })))
    }

    /// Returns the object with nothing but its type and what tells it from others: name, uid, version and generation.
    ///
    /// # Errors
    /// None: what was read once can be read again.
    pub fn bare(&self) -> Result<Self, Error> {
        let view: View<'_> = serde_json::from_str(self.json())?;
        let Header { key, uid, version, generation, .. } = self.header();
        let kind = |text: Option<Text<'_>>| text.map(|text| text.0.into_owned());
        let (api_version, kind) = (kind(view.api_version), kind(view.kind));
        let mut metadata = Map::new();
        let mut add = |name: &str, value: Value| drop(metadata.insert(name.to_owned(), value));
        add("name", (&*key.name).into());
        if let Some(namespace) = &key.namespace {
            add("namespace", (&**namespace).into());
        }
        add("uid", (&**uid).into());
        add("resourceVersion", version.to_string().into());
        if let Some(generation) = generation {
            add("generation", (*generation).into());
        }
        let bare = json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata }).to_string();
        let header = Header {
            deleting: false,
            finalizers: Box::default(),
            owners: Box::default(),
            shares: Box::default(),
            paused: None,
            held: None,
            marked: false,
            ..self.header().clone()
        };
        let fields = self.fields().clone();
        Ok(Self(Arc::new(Inner::Read { header, fields, json: bare.into_boxed_str() })))
    }

    /// Returns the name of an object that may be unreadable otherwise; `None` if the name can't be read either.
    pub fn name_of(json: &str) -> Option<ObjectRef> {
        let Named { metadata } = serde_json::from_str(json).ok()?;
        Some(ObjectRef { namespace: metadata.namespace.map(Into::into), name: metadata.name.into() })
    }

    /// Returns the JSON text, without managedFields.
    pub fn json(&self) -> &str {
        match &*self.0 {
            Inner::Read { json, .. } => json,
            Inner::Packed { of, json } => json.get_or_init(|| of.text()),
            Inner::Part { of, fields, json } => json.get_or_init(|| fields.cut(of.json(), None)),
        }
    }

    /// Returns the number of bytes of its text, for which [`Object::unmeasured`] have to be read: none of a whole object.
    pub fn length(&self) -> usize {
        match &*self.0 {
            Inner::Read { .. } | Inner::Packed { .. } => self.size(),
            Inner::Part { .. } => self.json().len(),
        }
    }

    /// Returns the number of bytes that are still to be unpacked and cut to know how long its text is.
    pub fn unmeasured(&self) -> usize {
        match &*self.0 {
            Inner::Read { .. } | Inner::Packed { .. } => 0,
            Inner::Part { .. } => self.unmade(),
        }
    }

    /// Returns the number of bytes that have to be read for its text: of that itself, or of what it is a part of.
    pub fn size(&self) -> usize {
        match &*self.0 {
            Inner::Read { json, .. } => json.len(),
            Inner::Packed { of, .. } => of.length(),
            Inner::Part { of, .. } => of.size(),
        }
    }

    /// Returns the number of bytes that are still to be unpacked and cut for its text; none once it is made.
    pub fn unmade(&self) -> usize {
        match &*self.0 {
            Inner::Packed { of, json } if json.get().is_none() => of.length(),
            Inner::Part { of, json, .. } if json.get().is_none() => of.unmade() + of.size(),
            Inner::Read { .. } | Inner::Packed { .. } | Inner::Part { .. } => 0,
        }
    }

    /// Returns the same object without the text that was made for it, for a look after which that is of no use: whoever keeps `self`
    /// does not keep that.
    #[must_use]
    pub fn unread(&self) -> Self {
        match &*self.0 {
            Inner::Read { .. } => self.clone(),
            Inner::Packed { of, .. } => Self(Arc::new(Inner::Packed { of: Arc::clone(of), json: OnceLock::new() })),
            Inner::Part { of, fields, .. } => {
                let (of, fields) = (of.unread(), fields.clone());
                Self(Arc::new(Inner::Part { of, fields, json: OnceLock::new() }))
            }
        }
    }

    /// Returns the fields that it was cut down to.
    pub fn fields(&self) -> &Fields {
        match &*self.0 {
            Inner::Read { fields, .. } | Inner::Part { fields, .. } => fields,
            Inner::Packed { of, .. } => of.fields(),
        }
    }

    /// Returns the object with some of its fields only. The text is cut when it is asked for, once for all clones.
    #[must_use]
    pub fn part(&self, fields: &Fields) -> Self {
        if fields.covers(self.fields()) {
            return self.clone();
        }
        let of = match &*self.0 {
            Inner::Read { .. } | Inner::Packed { .. } => self.clone(),
            Inner::Part { of, .. } => of.clone(),
        };
        Self(Arc::new(Inner::Part { of, fields: self.fields().meet(fields), json: OnceLock::new() }))
    }

    /// Returns the object with some of its fields only, without the others in memory.
    #[must_use]
    pub fn cut(self, fields: &Fields) -> Self {
        if fields.covers(self.fields()) {
            return self;
        }
        let part = self.part(fields);
        match &*part.0 {
            Inner::Read { .. } | Inner::Packed { .. } => part,
            Inner::Part { fields, .. } => Self(Arc::new(Inner::Read {
                header: part.header().clone(),
                fields: fields.clone(),
                json: part.json().into(),
            })),
        }
    }

    /// Returns the most bytes of text that it holds in memory, which may have more fields than it shows.
    pub fn held(&self) -> usize {
        self.size()
    }

    /// Returns the text as it was read, with all fields that are in memory.
    fn read(&self) -> &str {
        match &*self.0 {
            Inner::Read { .. } | Inner::Packed { .. } => self.json(),
            Inner::Part { of, .. } => of.read(),
        }
    }

    /// Returns the header.
    pub fn header(&self) -> &Header {
        match &*self.0 {
            Inner::Read { header, .. } => header,
            Inner::Packed { of, .. } => of.header(),
            Inner::Part { of, .. } => of.header(),
        }
    }

    /// Returns name and namespace.
    pub fn key(&self) -> &ObjectRef {
        &self.header().key
    }

    /// Returns the `resourceVersion`.
    pub fn version(&self) -> Version {
        self.header().version
    }

    /// Returns the whole body as a tree, for comparisons; trees are never kept.
    ///
    /// # Errors
    /// [`Error::Tree`] for an object that costs more than is left of the budget, or is deeper than a tree may be: the
    /// API server accepts custom resources with thousands of levels.
    pub fn tree(&self, budget: &mut Budget) -> Result<Value, Error> {
        Ok(budget.read(self.json())?)
    }

    /// Returns labels and annotations, which are read from the body at each call.
    pub fn tags(&self) -> Tags<'_> {
        #[derive(Deserialize, Default)]
        struct Body<'a> {
            #[serde(borrow, default)]
            metadata: Tags<'a>,
        }
        // All labels are in any part, so that the text of a part need not be made for them.
        let mut tags = serde_json::from_str::<Body<'_>>(self.read()).unwrap_or_default().metadata;
        if !self.fields().is_whole() {
            tags.annotations.retain(|key, _| self.fields().has(["metadata", "annotations", &*key.0]));
        }
        tags
    }

    /// Returns true if an owner reference on the object `key` leads to this object, which is of kind `gvk`. A
    /// reference to an owner in another namespace leads nowhere, and Kubernetes deletes objects whose owner does not
    /// exist.
    pub fn is_owner(&self, gvk: &Gvk, reference: &Value, key: &ObjectRef) -> bool {
        let header = self.header();
        let text = |field| {
            let text = reference.get(field).and_then(Value::as_str);
            text.unwrap_or_default()
        };
        let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
        let reachable = header.key.namespace.is_none() || header.key.namespace == key.namespace;
        reachable
            && *text("uid") == *header.uid
            && *text("name") == *header.key.name
            && *text("kind") == *gvk.kind
            && *group == *gvk.group
    }

    /// Returns true if both values are the same object in memory.
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Header {
    /// Returns about how many bytes the lists of the header take.
    pub fn size(&self) -> usize {
        let Self { finalizers, owners, shares, .. } = self;
        let finalizers = finalizers.iter().map(|text| 48 + text.len());
        let shares = shares.iter().map(|share| 160 + share.fields.len());
        finalizers.sum::<usize>() + 256 * owners.len() + shares.sum::<usize>()
    }

    /// Returns true if this finalizer is set.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|f| &**f == finalizer)
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.same(other) || (self.header() == other.header() && self.json() == other.json())
    }
}

impl Eq for Object {}

impl fmt::Debug for Object {
    /// Writes key and version only: bodies may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({}@{})", self.key(), self.version())
    }
}

/// Labels and annotations of an object.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
pub struct Tags<'a> {
    /// The labels.
    #[serde(borrow, default)]
    pub labels: std::collections::BTreeMap<Text<'a>, Text<'a>>,
    /// The annotations.
    #[serde(borrow, default)]
    pub annotations: std::collections::BTreeMap<Text<'a>, Text<'a>>,
}

/// A string that borrows from the JSON text unless it is escaped there.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

impl std::borrow::Borrow<str> for Text<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config_map() -> Gvk {
        Gvk::parse("v1", "ConfigMap").unwrap()
    }

    #[test]
    fn managed_fields_are_cut_off_wherever_they_stand_and_our_shares_kept() {
        let ours = r#"{"manager":"web","operation":"Apply","fieldsV1":{"f:data":{}}}"#;
        let foreign = r#"{"manager":"kubectl","operation":"Update","fieldsV1":{"f:x":{}}}"#;
        for (before, after) in [
            (
                format!(r#"{{"metadata":{{"name":"a","managedFields":[{ours},{foreign}]}},"data":{{}}}}"#),
                r#"{"metadata":{"name":"a"},"data":{}}"#,
            ),
            (format!(r#"{{"metadata":{{"managedFields":[{ours}],"name":"a"}}}}"#), r#"{"metadata":{"name":"a"}}"#),
            (
                format!(r#"{{"metadata":{{"name":"a", "managedFields" : [{ours}] , "uid":"u"}}}}"#),
                r#"{"metadata":{"name":"a" , "uid":"u"}}"#,
            ),
        ] {
            let with_type = before.replacen('{', r#"{"apiVersion":"v1","kind":"ConfigMap","#, 1);
            let object = Object::parse(&with_type, &config_map(), &Managers::new(["web"])).unwrap();
            assert_eq!(object.json(), after.replacen('{', r#"{"apiVersion":"v1","kind":"ConfigMap","#, 1));
            let shares = object.header().shares.iter();
            let shares: Vec<_> = shares.map(|share| &*share.fields).collect();
            assert_eq!(shares, [r#"{"f:data":{}}"#]);
        }
    }

    #[test]
    fn an_item_of_a_list_gets_its_kind() {
        let object = Object::parse(r#"{"metadata":{"name":"a"}}"#, &config_map(), &Managers::default()).unwrap();
        assert_eq!(object.json(), r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#);
    }

    #[test]
    fn the_header_says_what_decisions_need() {
        let json = r#"{"metadata":{"name":"a","namespace":"n","uid":"u-1","resourceVersion":"42","generation":3,
            "deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["x.dev/f"],
            "ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u-2"}],
            "labels":{"app":"\u0061"},"annotations":{"k":"v"}}}"#;
        let object = Object::parse(json, &config_map(), &Managers::default()).unwrap();
        let header = object.header();
        assert_eq!(header.key, ObjectRef::namespaced("n", "a"));
        assert_eq!((header.version, header.generation, header.deleting), (Version(42), Some(3), true));
        assert!(header.has_finalizer("x.dev/f") && !header.has_finalizer("y"));
        assert_eq!(&*header.owners[0].uid, "u-2");
        assert_eq!(object.tags().labels["app"].0, "a");
        assert_eq!(object.tags().annotations["k"].0, "v");
    }

    #[test]
    fn the_header_has_the_annotation_that_pauses() {
        // PA-1
        for (annotations, paused) in [
            (r#"{"capstan.dev/paused":"true"}"#, Some("true")),
            (r#"{"a":"1","capstan.dev/paused":"tr\u0075e","z":"2"}"#, Some("true")),
            (r#"{"capstan.dev/paused":""}"#, Some("")),
            (r#"{"capstan.dev/paused":null}"#, None),
            (r#"{"note":"capstan.dev/paused"}"#, None),
            (r#"{"capstan.dev/paused-by":"me"}"#, None),
            ("{}", None),
            ("null", None),
        ] {
            let json = format!(r#"{{"metadata":{{"name":"a","annotations":{annotations}}}}}"#);
            let object = Object::parse(&json, &config_map(), &Managers::default()).unwrap();
            assert_eq!(object.header().paused.as_deref(), paused, "{annotations}");
        }
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for (json, text) in [
            (
                "[]",
                "not a Kubernetes object: invalid length 0, expected struct View with 3 elements at line 1 column 2",
            ),
            (r#"{"metadata":{}}"#, "an object without metadata.name"),
            (r#"{"metadata":{"name":"a","resourceVersion":"x"}}"#, "resourceVersion \"x\" is not a decimal number"),
        ] {
            assert_eq!(Object::parse(json, &config_map(), &Managers::default()).unwrap_err().to_string(), text);
        }
    }

    #[test]
    fn what_leads_elsewhere_is_no_part_of_a_path() {
        for (text, fits) in [
            ("a", true),
            ("system:node", true),
            ("a.b-c_d", true),
            ("", false),
            ("..", false),
            ("a/b", false),
            ("a?x=", false),
            ("a#b", false),
            ("a%2fb", false),
            ("a b", false),
            ("ä", false),
        ] {
            assert_eq!(is_path_segment(text), fits, "{text}");
        }
    }

    #[test]
    fn versions_order_as_numbers() {
        // ID-4
        assert!(Version::parse("9").unwrap() < Version::parse("10").unwrap());
        assert!(Version::parse("1x").is_err());
    }
}
