//! Decides how components stand in a file with their signatures, an OCI image layout, and what of somebody's file goes where in a registry (LY rules).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::artifact::{self, Artifact, DOCKER_MANIFEST, Descriptor, Found, MANIFEST};
use super::referrers::{Carried, INDEX};
use super::{Digest, Reference};
use crate::text::said;

/// The file that says that it is a layout, and what stands in it.
pub const MARK: &str = "oci-layout";
/// What stands in that.
pub const MARK_TEXT: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;
/// The file that lists what is in it.
pub const LIST: &str = "index.json";

/// The most manifests that are listed.
const MOST: usize = 1024;

/// The annotation under which the name of something stands.
const NAME: &str = "org.opencontainers.image.ref.name";

/// Where the parts are, by their digests.
const BLOBS: &str = "blobs/sha256/";

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// What says that it is a layout.
    Mark,
    /// The list.
    List,
    /// A part.
    Blob(Digest),
    /// Something that is not looked at.
    Other,
}

/// A manifest, as the list has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Which one.
    pub descriptor: Descriptor,
    /// Its name, a reference or a tag; `None`: it has none.
    pub name: Option<String>,
    /// What it is for; `None`: it does not say.
    pub artifact_type: Option<String>,
}

/// A manifest that is listed, and read.
#[derive(Clone, Debug)]
pub struct Item {
    /// As it is listed.
    pub listed: Listed,
    /// The manifest.
    pub manifest: Vec<u8>,
}

/// A part of references in place of which another stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix(String);

/// Where components go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// Each to its own name below this one, in place of the host of its registry.
    Below(Prefix),
    /// The only one to this name.
    Only(Reference),
}

/// A component, and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// The name that it has in the layout, if that is a reference.
    pub from: Option<Reference>,
    /// The name that it gets.
    pub to: Reference,
    /// The digest of its manifest.
    pub digest: Digest,
    /// The manifest.
    pub manifest: Vec<u8>,
    /// What that is.
    pub media_type: &'static str,
    /// What it names.
    pub artifact: Artifact,
    /// What is signed of it.
    pub signatures: Vec<Signatures>,
}

/// A manifest with signatures of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signatures {
    /// The manifest.
    pub carried: Carried,
    /// The tag that it gets, as those before cosign 3 have; `None`: it refers to the component by itself.
    pub tag: Option<String>,
}

/// What is loaded of a layout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The components.
    pub all: Vec<Load>,
    /// What is not, and why.
    pub left_out: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mark {
    image_layout_version: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct List {
    #[serde(default)]
    schema_version: u32,
    #[serde(default)]
    media_type: String,
    manifests: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(flatten)]
    descriptor: Descriptor,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    artifact_type: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}

/// Returns the path of a part.
pub fn path(digest: &Digest) -> String {
    format!("{BLOBS}{}", digest.hex())
}

/// Returns what a path names.
///
/// # Errors
/// If it leads out of the layout.
pub fn place(path: &str) -> Result<Place, String> {
    if path.starts_with('/') || path.split('/').any(|part| part == "..") {
        return Err(format!("`{}` leads out of it; expected paths within", said(path)));
    }
    let path = path.strip_prefix("./").unwrap_or(path);
    Ok(match path {
        MARK => Place::Mark,
        LIST => Place::List,
        _ => {
            let hex = path.strip_prefix(BLOBS);
            let digest = hex.and_then(|hex| Digest::parse(&format!("sha256:{hex}")).ok());
            digest.map_or(Place::Other, Place::Blob)
        }
    })
}

/// Finds that a layout is of the version that there is.
///
/// # Errors
/// What was found.
pub fn read_mark(text: &[u8]) -> Result<(), String> {
    let Ok(Mark { image_layout_version: version }) = serde_json::from_slice(text) else {
        return Err(format!("`{MARK}` says no `imageLayoutVersion`; expected 1.0.0"));
    };
    if version.starts_with("1.") {
        return Ok(());
    }
    Err(format!("it is a layout of version `{}`; expected 1.0.0", said(&version)))
}

/// Returns the list of manifests.
pub fn write_list(all: &[Listed]) -> Vec<u8> {
    let entry = |Listed { descriptor, name, artifact_type }: &Listed| Entry {
        descriptor: descriptor.clone(),
        artifact_type: artifact_type.clone(),
        annotations: name.iter().map(|name| (NAME.to_owned(), name.clone())).collect(),
    };
    let list = List { schema_version: 2, media_type: INDEX.to_owned(), manifests: all.iter().map(entry).collect() };
    serde_json::to_vec(&list).unwrap_or_default()
}

/// Reads the list of manifests.
///
/// # Errors
/// If it is none, or too long.
pub fn read_list(text: &[u8]) -> Result<Vec<Listed>, String> {
    let List { manifests, .. } = serde_json::from_slice(text).map_err(|error| {
        let place = format!("line {}, column {}", error.line(), error.column());
        format!("`{LIST}` is no index of manifests, from {place}: {}", said(&error.to_string()))
    })?;
    if manifests.len() > MOST {
        return Err(format!("`{LIST}` lists {} manifests; at most {MOST} are taken", manifests.len()));
    }
    let listed = |Entry { descriptor, artifact_type, mut annotations }: Entry| Listed {
        descriptor,
        name: annotations.remove(NAME),
        artifact_type,
    };
    Ok(manifests.into_iter().map(listed).collect())
}

/// Returns the name of a reference in a layout: what it is by tag, if it has one.
pub fn name(reference: &Reference) -> String {
    reference.tag().map_or_else(|| reference.to_string(), |tag| format!("{}:{tag}", reference.name()))
}

/// Decides what of a layout goes where, where a component may have `most` bytes.
///
/// # Errors
/// If there is no component in it, one has no place, or two have the same.
pub fn plan(items: Vec<Item>, to: &To, most: u64) -> Result<Plan, String> {
    let (mut plan, mut signatures) = (Plan::default(), Vec::new());
    for Item { listed, manifest } in items {
        match artifact::read(&manifest, Some(&listed.descriptor.media_type), most) {
            Ok(Found::Artifact(artifact)) => plan.all.push(load((listed, manifest), artifact, to)?),
            Ok(Found::Manifest(_)) => plan.left_out.push(format!("{}: it is an index", shown(&listed))),
            Err(why) => match Carried::read(&listed.descriptor.media_type, &manifest) {
                Ok(Some(carried)) => signatures.push((carried, listed)),
                Ok(None) => plan.left_out.push(format!("{}: {why}", shown(&listed))),
                Err(why) => plan.left_out.push(format!("{}: {why}", shown(&listed))),
            },
        }
    }
    let names: Vec<_> = plan.all.iter().map(|load| format!("`{}`", load.to)).collect();
    match (plan.all.as_slice(), to) {
        ([], _) => {
            let found = plan.left_out.first().map_or_else(|| "nothing".to_owned(), Clone::clone);
            return Err(format!("there is no component in it; found {found}"));
        }
        ([_, _, ..], To::Only(_)) => {
            return Err(format!("there are {} components in it, and --to takes one; expected a prefix", names.len()));
        }
        (_, To::Below(_) | To::Only(_)) => {}
    }
    for (at, load) in plan.all.iter().enumerate() {
        let same = |other: &&Load| name(&other.to) == name(&load.to) && other.digest != load.digest;
        if let Some(other) = plan.all.iter().take(at).find(same) {
            let from = |load: &Load| load.from.as_ref().map_or_else(|| load.digest.to_string(), ToString::to_string);
            return Err(format!("{} and {} would both become {}", from(other), from(load), name(&load.to)));
        }
    }
    for (carried, listed) in signatures {
        if !attach(&mut plan.all, &carried, listed.name.as_deref()) {
            plan.left_out.push(format!("{}: it signs nothing that is in the file", shown(&listed)));
        }
    }
    Ok(plan)
}

/// Returns where a component goes.
fn load((listed, manifest): (Listed, Vec<u8>), artifact: Artifact, to: &To) -> Result<Load, String> {
    let from = listed.name.as_deref().map(Reference::parse);
    let to = match (to, &from) {
        (To::Only(to), _) => to.clone(),
        (To::Below(prefix), Some(Ok(from))) => prefix.of(from)?,
        (To::Below(_), Some(Err(_)) | None) => {
            return Err(format!("{} does not say of which repository it is; expected --to REFERENCE", shown(&listed)));
        }
    };
    let digest = listed.descriptor.digest;
    if let Some(named) = to.digest().filter(|named| **named != digest) {
        return Err(format!("what would be written is {digest}; the reference names {named}"));
    }
    let media_type = if listed.descriptor.media_type == DOCKER_MANIFEST { DOCKER_MANIFEST } else { MANIFEST };
    Ok(Load { from: from.and_then(Result::ok), to, digest, manifest, media_type, artifact, signatures: Vec::new() })
}

/// Gives signatures to the components that they are of, and says whether there is one.
fn attach(all: &mut [Load], carried: &Carried, name: Option<&str>) -> bool {
    let named = name.and_then(|name| Reference::parse(name).ok());
    let tag = named.as_ref().map_or(name, Reference::tag);
    let mut is_one = false;
    for load in all {
        let by_tag = Reference::signatures_tag(&load.digest);
        let tag = match &carried.subject {
            Some(subject) if *subject == load.digest => None,
            None if tag == Some(&by_tag) => Some(by_tag),
            Some(_) | None => continue,
        };
        // The same component may be in two repositories, and be signed otherwise in each.
        let of_another = |(named, from): (&Reference, &Reference)| named.name() != from.name();
        if tag.is_some() && named.as_ref().zip(load.from.as_ref()).is_some_and(of_another) {
            continue;
        }
        is_one = true;
        load.signatures.push(Signatures { carried: carried.clone(), tag });
    }
    is_one
}

/// Returns what an entry is called, for people.
fn shown(Listed { descriptor, name, .. }: &Listed) -> String {
    name.as_ref().map_or_else(|| descriptor.digest.to_string(), |name| format!("`{}`", said(name)))
}

// === impl Prefix ===

impl Prefix {
    /// Reads the host of a registry, with a path or without.
    ///
    /// # Errors
    /// What is wrong, and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.strip_suffix('/').unwrap_or(text);
        if text.rsplit_once('/').is_some_and(|(_, last)| last.contains([':', '@'])) {
            return Err("expected a prefix without tag or digest; --to names one whole reference".to_owned());
        }
        // Whatever is below it has to be a reference.
        let checked = Reference::parse(&format!("{text}/a:1"));
        checked.map_err(|why| format!("{why}: a prefix such as `registry.internal:5000/mirror`"))?;
        Ok(Self(text.to_owned()))
    }

    /// Returns the host of the registry.
    pub fn registry(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(registry, _)| registry)
    }

    /// Returns the reference below it.
    ///
    /// # Errors
    /// If that is too long.
    pub fn of(&self, reference: &Reference) -> Result<Reference, String> {
        let tag = reference.tag().map(|tag| format!(":{tag}")).unwrap_or_default();
        let digest = reference.digest().map(|digest| format!("@{digest}")).unwrap_or_default();
        Reference::parse(&format!("{}/{}{tag}{digest}", self.0, reference.repository()))
    }
}

#[cfg(test)]
mod tests;
