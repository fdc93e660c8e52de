//! Reads the header of an object, and finds the bytes that are cut off, without building a tree.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::hold::HELD;
use super::{Error, Gvk, Header, MARK, Managers, ObjectRef, Owner, PAUSED, Share, Text, Version};

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
    api_version: Option<Text<'a>>,
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
    pub(super) fn header(&self, gvk: &Gvk, managers: &Managers) -> Result<Header, Error> {
        let meta = &self.metadata;
        let name = meta.name.as_ref().filter(|name| !name.0.is_empty()).ok_or(Error::Nameless)?;
        let namespace = meta.namespace.as_ref().filter(|text| !text.0.is_empty());
        let version = match &meta.resource_version {
            Some(text) if !text.0.is_empty() => Version::parse(&text.0)?,
            _ => Version::default(),
        };
        let owners = meta.owner_references.iter().flatten().map(OwnerView::owner).collect();
        let shares = match meta.managed_fields {
            Some(raw) => shares(raw, gvk, managers)?,
            None => Box::default(),
        };
        let (paused, held) = meta.annotations.map(paused_and_held).unwrap_or_default();
        Ok(Header {
            key: ObjectRef { namespace: namespace.map(|text| (&*text.0).into()), name: (&*name.0).into() },
            uid: meta.uid.as_ref().map(|text| (&*text.0).into()).unwrap_or_default(),
            version,
            generation: meta.generation,
            deleting: meta.deletion_timestamp.is_some(),
            finalizers: meta.finalizers.iter().flatten().map(|text| (&*text.0).into()).collect(),
            owners,
            shares,
            paused,
            held,
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

fn shares(raw: &RawValue, gvk: &Gvk, managers: &Managers) -> Result<Box<[Share]>, Error> {
    let entries: Vec<ShareView<'_>> = serde_json::from_str(raw.get())?;
    let own = entries.into_iter().filter_map(|entry| {
        let manager = entry.manager?.0;
        managers.contains(&manager).then(|| Share {
            manager: (&*manager).into(),
            applied: entry.operation.is_some_and(|text| text.0 == "Apply"),
            same_version: entry.api_version.is_none_or(|text| text.0 == gvk.api_version()),
            subresource: entry.subresource.filter(|t| !t.0.is_empty()).map(|text| (&*text.0).into()),
            fields: entry.fields_v1.map_or("{}", RawValue::get).into(),
        })
    });
    Ok(own.collect())
}

/// Returns the values of the annotations that pause a primary and that say who holds it. They are read only where one of the names stands in
/// the text.
fn paused_and_held(annotations: &RawValue) -> (Option<Box<str>>, Option<Box<str>>) {
    #[derive(Default, Deserialize)]
    struct Annotations<'a> {
        #[serde(borrow, rename = "capstan.dev/paused")]
        paused: Option<Text<'a>>,
        #[serde(borrow, rename = "capstan.dev/held")]
        held: Option<Text<'a>>,
    }
    let text = annotations.get();
    if !text.contains(PAUSED) && !text.contains(HELD) {
        return (None, None);
    }
    let Annotations { paused, held } = serde_json::from_str(text).unwrap_or_default();
    // A time, or a hold, is shorter than this, and what is neither pauses, however long it is.
    let begin = |value: Text<'_>, most| value.0.chars().take(most).collect::<String>().into();
    (paused.map(|value| begin(value, 64)), held.map(|value| begin(value, 512)))
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
