//! Decides what of that which refers to a manifest in a registry may be a signature, and how one is written there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::artifact::{Descriptor, MANIFEST};
use super::signature::bundle::BUNDLE;
use super::signature::{LONGEST, simple};
use super::{Digest, Reference};

/// The most that is looked at of what refers to a manifest.
pub const MOST: usize = 64;

/// The most signatures within one of that: who signs again with cosign 2 adds a layer.
const LAYERS: usize = 64;

/// What the media types of bundles of all versions begin with.
const BUNDLES: &str = "application/vnd.dev.sigstore.bundle";

/// The most parts of a manifest that is carried elsewhere.
const CARRIED: usize = 256;

/// The media type of an index, and of a config that says nothing.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The media type of a config that says nothing.
pub const EMPTY: &str = "application/vnd.oci.empty.v1+json";
/// What stands in one.
pub const NOTHING: &[u8] = b"{}";

/// The most pages of a list of what refers to a manifest.
pub const PAGES: usize = 16;

/// The media types in which a list of what refers to a manifest may come.
pub const ACCEPT: &str = "application/vnd.oci.image.index.v1+json";

/// Whose signature something is said to be, by its place in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where the signature, or what it signs, is.
    pub descriptor: Descriptor,
    /// The signature, where that stands beside what it signs.
    pub signature: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    #[serde(default)]
    manifests: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    digest: Digest,
    #[serde(default)]
    artifact_type: String,
}

/// A manifest with signatures, to be carried elsewhere as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// Which one.
    pub descriptor: Descriptor,
    /// The manifest.
    pub manifest: Vec<u8>,
    /// What it is for, as a list of referrers says it.
    pub artifact_type: String,
    /// What it refers to; `None`: a tag says that.
    pub subject: Option<Digest>,
    /// Its config and layers.
    pub parts: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    layers: Vec<Layer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Whole {
    artifact_type: Option<String>,
    config: Descriptor,
    layers: Vec<Descriptor>,
    subject: Option<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Layer {
    media_type: String,
    digest: Digest,
    size: u64,
    #[serde(default)]
    annotations: Annotations,
}

#[derive(Default, Deserialize)]
struct Annotations {
    #[serde(rename = "dev.cosignproject.cosign/signature")]
    signature: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Referrer<'a> {
    schema_version: u32,
    media_type: &'a str,
    artifact_type: &'a str,
    config: Descriptor,
    layers: [&'a Descriptor; 1],
    subject: &'a Descriptor,
    annotations: BTreeMap<&'a str, &'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Added<'a> {
    #[serde(flatten)]
    descriptor: &'a Descriptor,
    artifact_type: &'a str,
}

/// A list of nothing, and the field that has its entries.
const NONE: &[u8] = br#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}"#;
const MANIFESTS: &str = "manifests";

impl Reference {
    /// Returns the tag under which a registry that knows nothing of referrers lists those of a manifest.
    pub fn referrers_tag(digest: &Digest) -> String {
        format!("sha256-{}", digest.hex())
    }

    /// Returns the tag under which cosign 2 and those before put the signatures of a manifest.
    pub fn signatures_tag(digest: &Digest) -> String {
        format!("sha256-{}.sig", digest.hex())
    }
}

/// Returns which manifests of a list may have signatures, and how many more there are than are looked at. What the list calls them says only
/// which come first: some registries get that wrong.
///
/// # Errors
/// If it is no list.
pub fn listed(index: &[u8]) -> Result<(Vec<Digest>, usize), String> {
    let Index { manifests } = serde_json::from_slice(index).map_err(|error| {
        format!("what lists its signatures is no index, from line {}, column {}", error.line(), error.column())
    })?;
    let is_bundle = |entry: &&Entry| entry.artifact_type.starts_with(BUNDLES);
    let all = manifests.iter().filter(is_bundle).chain(manifests.iter().filter(|entry| !is_bundle(entry)));
    let digests = all.take(MOST).map(|entry| entry.digest.clone()).collect();
    Ok((digests, manifests.len().saturating_sub(MOST)))
}

/// Returns where a list goes on, as the headers `Link` of its answer say it; `None`: that was all.
pub fn next<'a>(links: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let is_next = |parameter: &str| {
        let (name, value) = parameter.trim().split_once('=').unwrap_or_default();
        let mut relations = value.trim().trim_matches('"').split_ascii_whitespace();
        name.trim_end().eq_ignore_ascii_case("rel") && relations.any(|one| one.eq_ignore_ascii_case("next"))
    };
    links.into_iter().find_map(|mut rest| {
        while let Some((target, after)) = rest.split_once('<').and_then(|(_, after)| after.split_once('>')) {
            let (parameters, others) = after.split_at(after.find('<').unwrap_or(after.len()));
            if parameters.split([';', ',']).any(is_next) {
                return Some(target);
            }
            rest = others;
        }
        None
    })
}

/// Returns what of a manifest may be signatures, and how many more there are than are looked at. What is too large is none.
pub fn parts(manifest: &[u8]) -> (Vec<Part>, usize) {
    let Ok(Manifest { layers }) = serde_json::from_slice(manifest) else {
        return (Vec::new(), 0);
    };
    let part = |Layer { media_type, digest, size, annotations: Annotations { signature } }: Layer| {
        let is_one = match media_type.as_str() {
            simple::PAYLOAD => signature.is_some(),
            other => other.starts_with(BUNDLES),
        };
        let descriptor = Descriptor { media_type, digest, size };
        (is_one && size <= LONGEST as u64).then_some(Part { descriptor, signature })
    };
    let mut parts: Vec<_> = layers.into_iter().filter_map(part).collect();
    let more = parts.len().saturating_sub(LAYERS);
    // The last ones are the newest.
    parts.drain(..more);
    (parts, more)
}

impl Carried {
    /// Reads a manifest of this media type; `None` if it has no signatures.
    ///
    /// # Errors
    /// Why it can't be carried.
    pub fn read(media_type: &str, manifest: &[u8]) -> Result<Option<Self>, String> {
        if parts(manifest).0.is_empty() {
            return Ok(None);
        }
        let Ok(Whole { artifact_type, config, layers, subject }) = serde_json::from_slice(manifest) else {
            return Err("its manifest of signatures lacks what one has".to_owned());
        };
        let count = layers.len() + 1;
        if count > CARRIED {
            return Err(format!("its manifest of signatures has {count} parts; at most {CARRIED} are taken"));
        }
        let artifact_type = artifact_type.unwrap_or_else(|| config.media_type.clone());
        let parts: Vec<_> = std::iter::once(config).chain(layers).collect();
        if let Some(large) = parts.iter().find(|part| part.size > LONGEST as u64) {
            return Err(format!("a signature has {} bytes; at most {LONGEST} are taken", large.size));
        }
        let (digest, size) = (Digest::sha256(manifest), manifest.len() as u64);
        let descriptor = Descriptor { media_type: media_type.to_owned(), digest, size };
        let subject = subject.map(|subject| subject.digest);
        Ok(Some(Self { descriptor, manifest: manifest.to_vec(), artifact_type, subject, parts }))
    }
}

/// Returns the manifest of a bundle that refers to what is signed.
pub fn manifest(bundle: &Descriptor, subject: &Descriptor, config: &Digest) -> Vec<u8> {
    let referrer = Referrer {
        schema_version: 2,
        media_type: MANIFEST,
        artifact_type: BUNDLE,
        config: Descriptor { media_type: EMPTY.to_owned(), digest: config.clone(), size: NOTHING.len() as u64 },
        layers: [bundle],
        subject,
        annotations: BTreeMap::from([
            ("dev.sigstore.bundle.content", "dsse-envelope"),
            ("dev.sigstore.bundle.predicateType", super::signature::bundle::PREDICATE),
        ]),
    };
    serde_json::to_vec(&referrer).unwrap_or_default()
}

/// Returns a list of referrers with one more, which is for this; `None` if it is in there. What else the list says stays as it is.
///
/// # Errors
/// If it is no list.
pub fn with(index: Option<&[u8]>, entry: &Descriptor, artifact_type: &str) -> Result<Option<Vec<u8>>, String> {
    let unread = |_| "its list of referrers is no index".to_owned();
    let index = index.unwrap_or(NONE);
    let Index { manifests } = serde_json::from_slice(index).map_err(unread)?;
    if manifests.iter().any(|listed| listed.digest == entry.digest) {
        return Ok(None);
    }
    let mut index: BTreeMap<&str, &RawValue> = serde_json::from_slice(index).map_err(unread)?;
    let manifests = index.get(MANIFESTS).map_or("[]", |manifests| manifests.get());
    let mut manifests: Vec<&RawValue> = serde_json::from_slice(manifests.as_bytes()).map_err(unread)?;
    let entry = Added { descriptor: entry, artifact_type };
    let entry = serde_json::value::to_raw_value(&entry).map_err(unread)?;
    manifests.push(&entry);
    let manifests = serde_json::value::to_raw_value(&manifests).map_err(unread)?;
    index.insert(MANIFESTS, &manifests);
    serde_json::to_vec(&index).map(Some).map_err(unread)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn digest(byte: u8) -> Digest {
        Digest::of(&[byte; 32])
    }

    fn descriptor(media_type: &str, byte: u8, size: u64) -> Descriptor {
        Descriptor { media_type: media_type.to_owned(), digest: digest(byte), size }
    }

    #[test]
    fn a_list_goes_on_where_its_answer_says_so() {
        // SG-3
        for (links, expected) in [
            (&[][..], None),
            (&["</v2/a/referrers/d?n=1&last=b>; rel=\"next\""], Some("/v2/a/referrers/d?n=1&last=b")),
            (&["<https://r.io/x>;rel=next"], Some("https://r.io/x")),
            (&["</first>; rel=first, </x,y>; title=\"a\"; REL=\"last Next\""], Some("/x,y")),
            (&["</first>; rel=first", "</second>; rel=next"], Some("/second")),
            (&["</x>; rel=\"nextly\"", "</x>; rel", "</x>", "x; rel=next", "<x"], None),
        ] {
            assert_eq!(next(links.iter().copied()), expected, "{links:?}");
        }
    }

    #[test]
    fn what_is_called_a_bundle_comes_first_and_what_is_called_otherwise_may_be_one_all_the_same() {
        // SG-5, SG-6
        let entry = |byte: u8, kind: &str| json!({ "digest": digest(byte).to_string(), "artifactType": kind });
        let index = |entries: Vec<Value>| json!({ "schemaVersion": 2, "manifests": entries }).to_string();
        let found = listed(index(vec![entry(1, "application/spdx+json"), entry(2, BUNDLE)]).as_bytes()).unwrap();
        assert_eq!(found, (vec![digest(2), digest(1)], 0));
        let mut many: Vec<_> = (0..200).map(|byte| entry(byte, "")).collect();
        many.push(entry(255, BUNDLE));
        let (first, more) = listed(index(many).as_bytes()).unwrap();
        assert_eq!((first.len(), &first[0], more), (MOST, &digest(255), 201 - MOST));
        assert_eq!(listed(b"{}"), Ok((vec![], 0)));
        let said = listed(b"<html>").unwrap_err();
        assert_eq!(said, "what lists its signatures is no index, from line 1, column 1");
        let foreign = r#"{"manifests":[{"digest":"sha512:00"}]}"#;
        assert!(listed(foreign.as_bytes()).is_err());
    }

    #[test]
    fn the_parts_of_a_manifest_that_may_be_signatures_are_bundles_and_signed_texts() {
        // SG-5, SG-6
        let layer = |kind: &str, size: u64, signature: Option<&str>| {
            let annotations = signature.map(|signature| json!({ simple::SIGNATURE: signature })).unwrap_or(json!({}));
            json!({ "mediaType": kind, "digest": digest(1).to_string(), "size": size, "annotations": annotations })
        };
        let of = |layers: Vec<Value>| parts(json!({ "layers": layers }).to_string().as_bytes());
        let longest = LONGEST as u64;
        for (layer, is_one) in [
            (layer(BUNDLE, longest, None), true),
            (layer("application/vnd.dev.sigstore.bundle+json;version=0.1", 1, None), true),
            (layer(simple::PAYLOAD, 1, Some("AA==")), true),
            (layer(simple::PAYLOAD, 1, None), false),
            (layer(BUNDLE, longest + 1, None), false),
            (layer("application/wasm", 1, Some("AA==")), false),
        ] {
            assert_eq!(of(vec![layer.clone()]).0.len(), usize::from(is_one), "{layer}");
        }
        let many = (0..70).map(|number| layer(simple::PAYLOAD, 1, Some(&number.to_string()))).collect();
        let (found, more) = of(many);
        assert_eq!((found.len(), more, found[0].signature.as_deref()), (LAYERS, 6, Some("6")));
        assert_eq!(parts(b"<html>"), (vec![], 0));
        assert_eq!(parts(b"{}"), (vec![], 0));
    }

    #[test]
    fn a_bundle_is_written_with_what_it_refers_to_and_listed_beside_what_was_listed_before() {
        // SG-5, SG-7
        let (bundle, subject) = (descriptor(BUNDLE, 1, 7), descriptor(MANIFEST, 2, 9));
        let written = manifest(&bundle, &subject, &digest(3));
        assert_eq!(parts(&written).0, [Part { descriptor: bundle, signature: None }]);
        let read: Value = serde_json::from_slice(&written).unwrap();
        assert_eq!(read["subject"], serde_json::to_value(&subject).unwrap());
        assert_eq!((&read["artifactType"], &read["config"]["mediaType"]), (&json!(BUNDLE), &json!(EMPTY)));
        let entry = descriptor(MANIFEST, 4, 5);
        let first = with(None, &entry, BUNDLE).unwrap().unwrap();
        assert_eq!(listed(&first).unwrap().0, [digest(4)]);
        assert_eq!(with(Some(&first), &entry, BUNDLE), Ok(None));
        let before =
            r#"{"schemaVersion":2,"annotations":{"a":"b"},"manifests":[{"digest":"DIGEST","size":1,"data":"AA=="}]}"#
                .replace("DIGEST", &digest(9).to_string());
        let after: Value =
            serde_json::from_slice(&with(Some(before.as_bytes()), &entry, BUNDLE).unwrap().unwrap()).unwrap();
        assert_eq!((&after["annotations"]["a"], &after["manifests"][0]["data"]), (&json!("b"), &json!("AA==")));
        assert_eq!(after["manifests"][1]["artifactType"], BUNDLE);
        for wrong in [&b"[]"[..], b"{\"manifests\":{}}", b"<"] {
            assert_eq!(with(Some(wrong), &entry, BUNDLE), Err("its list of referrers is no index".to_owned()));
        }
    }
}
