//! Reads the header of an object, and finds the bytes that are cut off, without building a tree.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::hold::HELD;
use super::{Error, Header, MARK, Managers, ObjectRef, Owner, PAUSED, Share, Text, Version};

/// The part that is read of an object that is unreadable as a whole.
#[derive(Deserialize)]
pub(super) struct Named {
    pub(super) metadata: Name,
}

#[derive(Deserialize)]
pub(super) struct Name {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct View<'a> {
    #[serde(borrow)]
    pub(super) api_version: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) kind: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) metadata: MetaView<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub(super) struct MetaView<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    namespace: Option<Text<'a>>,
    #[serde(borrow)]
    uid: Option<Text<'a>>,
    #[serde(borrow)]
    resource_version: Option<Text<'a>>,
    generation: Option<i64>,
    #[serde(borrow)]
    deletion_timestamp: Option<Text<'a>>,
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
    #[serde(borrow)]
    finalizers: Option<Vec<Text<'a>>>,
    #[serde(borrow)]
    owner_references: Option<Vec<OwnerView<'a>>>,
    #[serde(borrow)]
    pub(super) managed_fields: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnerView<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ShareView<'a> {
    #[serde(borrow)]
    manager: Option<Text<'a>>,
    #[serde(borrow)]
    operation: Option<Text<'a>>,
    #[serde(borrow)]
    subresource: Option<Text<'a>>,
    #[serde(borrow)]
    fields_v1: Option<&'a RawValue>,
}

impl View<'_> {
    pub(super) fn header(&self, managers: &Managers) -> Result<Header, Error> {
        let meta = &self.metadata;
        let name = meta.name.as_ref().filter(|name| !name.0.is_empty()).ok_or(Error::Nameless)?;
        let namespace = meta.namespace.as_ref().filter(|text| !text.0.is_empty());
        let version = match &meta.resource_version {
            Some(text) if !text.0.is_empty() => Version::parse(&text.0)?,
            _ => Version::default(),
        };
        let owners = meta.owner_references.iter().flatten().map(OwnerView::owner).collect();
        let shares = match meta.managed_fields {
            Some(raw) => shares(raw, managers)?,
            None => Box::default(),
        };
        Ok(Header {
            key: ObjectRef { namespace: namespace.map(|text| (&*text.0).into()), name: (&*name.0).into() },
            uid: meta.uid.as_ref().map(|text| (&*text.0).into()).unwrap_or_default(),
            version,
            generation: meta.generation,
            deleting: meta.deletion_timestamp.is_some(),
            finalizers: meta.finalizers.iter().flatten().map(|text| (&*text.0).into()).collect(),
            owners,
            shares,
            paused: meta.annotations.and_then(paused),
            held: meta.annotations.and_then(held),
            marked: meta.annotations.is_some_and(|annotations| annotations.get().contains(MARK)),
        })
    }
}

impl OwnerView<'_> {
    fn owner(&self) -> Owner {
        Owner {
            api_version: (&*self.api_version).into(),
            kind: (&*self.kind).into(),
            name: (&*self.name).into(),
            uid: (&*self.uid).into(),
        }
    }
}

fn shares(raw: &RawValue, managers: &Managers) -> Result<Box<[Share]>, Error> {
    let entries: Vec<ShareView<'_>> = serde_json::from_str(raw.get())?;
    let own = entries.into_iter().filter_map(|entry| {
        let manager = entry.manager?.0;
        managers.contains(&manager).then(|| Share {
            manager: (&*manager).into(),
            applied: entry.operation.is_some_and(|text| text.0 == "Apply"),
            subresource: entry.subresource.filter(|t| !t.0.is_empty()).map(|text| (&*text.0).into()),
            fields: entry.fields_v1.map_or("{}", RawValue::get).into(),
        })
    });
    Ok(own.collect())
}

/// Returns the value of the annotation that pauses. Annotations are read only where its name stands in them.
fn paused(annotations: &RawValue) -> Option<Box<str>> {
    #[derive(Deserialize)]
    struct Annotations<'a> {
        #[serde(borrow, rename = "capstan.dev/paused")]
        paused: Option<Text<'a>>,
    }
    let text = annotations.get();
    let read = || serde_json::from_str::<Annotations<'_>>(text).ok()?.paused;
    // A time is shorter than this, and what is no time pauses, however long it is.
    let begin = |value: Text<'_>| value.0.chars().take(64).collect::<String>().into();
    text.contains(PAUSED).then(read).flatten().map(begin)
}

/// Returns the value of the annotation that says who holds a primary.
fn held(annotations: &RawValue) -> Option<Box<str>> {
    #[derive(Deserialize)]
    struct Annotations<'a> {
        #[serde(borrow, rename = "capstan.dev/held")]
        held: Option<Text<'a>>,
    }
    let text = annotations.get();
    let read = || serde_json::from_str::<Annotations<'_>>(text).ok()?.held;
    // A hold is shorter than this, and what is none pauses, however long it is.
    let begin = |value: Text<'_>| value.0.chars().take(512).collect::<String>().into();
    text.contains(HELD).then(read).flatten().map(begin)
}

/// Returns the text before and after the member whose value is `value`, which is a part of `json`. One of the commas
/// around the member is removed, so that both texts joined are valid JSON again.
pub(super) fn cut<'a>(json: &'a str, value: &str) -> (&'a str, &'a str) {
    let start = value.as_ptr().addr() - json.as_ptr().addr();
    let (before, rest) = json.split_at(start);
    let after = rest.get(value.len()..).unwrap_or_default();
    let before = before.trim_end().strip_suffix(':').unwrap_or(before).trim_end();
    let before = before.strip_suffix("\"managedFields\"").unwrap_or(before).trim_end();
    match before.strip_suffix(',') {
        Some(before) => (before, after),
        None => (before, after.trim_start().strip_prefix(',').unwrap_or(after)),
    }
}
