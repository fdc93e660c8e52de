//! Decides what is a component in a registry, and how one is written there: the artifact of CNCF's TAG Runtime.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Digest;
use crate::text::said;

/// The media types of manifests that are asked for.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The media type that Docker gave manifests before.
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// What is accepted, as the header `Accept` has it.
pub const ACCEPT: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json";

/// The media type of the one layer, as it is written.
pub const LAYER: &str = "application/wasm";
/// The media type of the config, as it is written.
pub const CONFIG: &str = "application/vnd.wasm.config.v0+json";

/// The media type of a layer as `wasm-to-oci` wrote it.
const OLD_LAYER: &str = "application/vnd.wasm.content.layer.v1+wasm";

/// What to do instead.
const INSTEAD: &str = "expected one layer `application/wasm`, as `capstan push` and `wkg oci push` write it";

/// A part of an artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What it is.
    pub media_type: String,
    /// Which one.
    pub digest: Digest,
    /// Its bytes.
    pub size: u64,
}

/// A component in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// What is said of it.
    pub config: Descriptor,
    /// The component.
    pub layer: Descriptor,
    /// What its author says of it.
    pub annotations: BTreeMap<String, String>,
}

/// What a manifest leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A component.
    Artifact(Artifact),
    /// Another manifest: that of the index which is for WebAssembly.
    Manifest(Descriptor),
}

/// What is said of a component beside it, in the config.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Interfaces {
    /// The names of its imports.
    #[serde(default)]
    pub imports: Vec<String>,
    /// The names of its exports.
    #[serde(default)]
    pub exports: Vec<String>,
}

/// A manifest or index, as far as it is looked at.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    schema_version: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<Descriptor>,
    #[serde(skip_serializing_if = "Option::is_none")]
    layers: Option<Vec<Descriptor>>,
    #[serde(default, skip_serializing)]
    manifests: Option<Vec<Entry>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    media_type: String,
    digest: Digest,
    size: u64,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created: Option<String>,
    architecture: String,
    os: String,
    #[serde(default)]
    layer_digests: Vec<Digest>,
    component: Option<Interfaces>,
}

/// Reads a manifest that a registry has answered with this content type, where a component may have `most` bytes.
///
/// # Errors
/// What was found in place of a component.
pub fn read(answer: &[u8], content_type: Option<&str>, most: u64) -> Result<Found, String> {
    let manifest: Manifest = serde_json::from_slice(answer).map_err(|error| {
        let place = format!("line {}, column {}", error.line(), error.column());
        format!("the registry's answer is no manifest of an artifact, from {place}; {INSTEAD}")
    })?;
    let kind = kind(&manifest, content_type);
    if let (Some(manifests), INDEX | DOCKER_LIST) = (&manifest.manifests, kind) {
        return of_index(manifests).map(Found::Manifest);
    }
    if !matches!(kind, MANIFEST | DOCKER_MANIFEST) {
        return Err(format!("found `{}`; {INSTEAD}", said(kind)));
    }
    let (Some(config), Some(layers)) = (manifest.config, manifest.layers) else {
        return Err(format!("found a manifest without `config` or `layers`; {INSTEAD}"));
    };
    let wasm = |layer: &&Descriptor| matches!(layer.media_type.as_str(), LAYER | OLD_LAYER);
    let layer = match layers.as_slice() {
        [layer] if wasm(&layer) => layer.clone(),
        [] => return Err(format!("found no layer; {INSTEAD}")),
        [one] => {
            let what = if is_image(&one.media_type) { "the image of a container, with one layer" } else { "one layer" };
            return Err(format!("found {what} `{}`; {INSTEAD}", said(&one.media_type)));
        }
        many => {
            return Err(format!(
                "found {} layers, {} of them WebAssembly; {INSTEAD}",
                many.len(),
                many.iter().filter(wasm).count()
            ));
        }
    };
    within(&layer, most)?;
    Ok(Found::Artifact(Artifact { config, layer, annotations: manifest.annotations.unwrap_or_default() }))
}

/// Returns what a manifest is that a registry has answered with this content type.
pub fn media_type(answer: &[u8], content_type: Option<&str>) -> String {
    let manifest = serde_json::from_slice(answer);
    manifest.map_or(MANIFEST.to_owned(), |manifest: Manifest| kind(&manifest, content_type).to_owned())
}

fn kind<'a>(manifest: &'a Manifest, content_type: Option<&'a str>) -> &'a str {
    manifest.media_type.as_deref().or(content_type).unwrap_or(MANIFEST)
}

/// Finds that a component has more bytes than one may have.
///
/// # Errors
/// How many it has.
pub fn within(layer: &Descriptor, most: u64) -> Result<(), String> {
    if layer.size <= most {
        return Ok(());
    }
    Err(format!("the component has {} bytes; at most {most} are taken", layer.size))
}

/// Reads what a config says of its component; nothing, if it says nothing.
pub fn interfaces(config: &[u8]) -> Interfaces {
    let config: Option<Config> = serde_json::from_slice(config).ok();
    config.and_then(|config| config.component).unwrap_or_default()
}

/// Returns the config of a component with this digest. When it was made is left out, unless somebody says it: the same component is the same
/// artifact whenever it is pushed.
pub fn config(interfaces: &Interfaces, layer: &Digest, created: Option<String>) -> Vec<u8> {
    let config = Config {
        created,
        architecture: "wasm".to_owned(),
        os: "wasip2".to_owned(),
        layer_digests: vec![layer.clone()],
        component: Some(interfaces.clone()),
    };
    serde_json::to_vec(&config).unwrap_or_default()
}

/// Returns the manifest of an artifact.
pub fn manifest(Artifact { config, layer, annotations }: &Artifact) -> Vec<u8> {
    let manifest = Manifest {
        schema_version: Some(2),
        media_type: Some(MANIFEST.to_owned()),
        config: Some(config.clone()),
        layers: Some(vec![layer.clone()]),
        manifests: None,
        annotations: Some(annotations.clone()).filter(|annotations| !annotations.is_empty()),
    };
    serde_json::to_vec(&manifest).unwrap_or_default()
}

/// Returns the one manifest of an index that is for WebAssembly.
fn of_index(manifests: &[Entry]) -> Result<Descriptor, String> {
    let wasm = |entry: &&Entry| entry.platform.as_ref().is_some_and(|platform| platform.architecture == "wasm");
    let mut found = manifests.iter().filter(wasm);
    match (found.next(), found.next()) {
        (Some(Entry { media_type, digest, size, .. }), None) => {
            Ok(Descriptor { media_type: media_type.clone(), digest: digest.clone(), size: *size })
        }
        (Some(_), Some(_)) => {
            Err("found an index with several components; expected the digest of one of them".to_owned())
        }
        (None, _) => {
            let platforms = manifests.iter().filter_map(|entry| entry.platform.as_ref());
            let mut names: Vec<_> =
                platforms.map(|platform| format!("{}/{}", platform.os, platform.architecture)).collect();
            names.sort_unstable();
            names.dedup();
            Err(format!("found an index of images for {}, none of them for wasm; {INSTEAD}", said(&names.join(", "))))
        }
    }
}

fn is_image(media_type: &str) -> bool {
    media_type.starts_with("application/vnd.oci.image.layer.")
        || media_type.starts_with("application/vnd.docker.image.")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn part(media_type: &str) -> String {
        format!(r#"{{"mediaType":"{media_type}","digest":"{HEX}","size":9}}"#)
    }

    #[test]
    fn a_component_is_one_layer_of_webassembly_and_else_it_is_said_what_was_found() {
        // OC-2
        let of = |layers: &str| format!(r#"{{"schemaVersion":2,"config":{},"layers":[{layers}]}}"#, part(CONFIG));
        let (wasm, tar) = (part(LAYER), part("application/vnd.oci.image.layer.v1.tar+gzip"));
        let index = |architecture: &str| {
            let entry = part(MANIFEST)
                .replace('}', &format!(r#","platform":{{"os":"linux","architecture":"{architecture}"}}}}"#));
            format!(r#"{{"mediaType":"{INDEX}","manifests":[{entry}]}}"#)
        };
        for (answer, content_type, expected) in [
            (of(&wasm), Some(MANIFEST), "a component of 9 bytes"),
            (of(&wasm), None, "a component of 9 bytes"),
            (of(&part(OLD_LAYER)), None, "a component of 9 bytes"),
            (index("wasm"), None, "another manifest"),
            (index("amd64"), None, "found an index of images for linux/amd64, none of them for wasm; expected one"),
            (
                of(&tar),
                None,
                "found the image of a container, with one layer `application/vnd.oci.image.layer.v1.tar+gzip`",
            ),
            (of(&part("text/plain")), None, "found one layer `text/plain`"),
            (of(&format!("{wasm},{tar}")), None, "found 2 layers, 1 of them WebAssembly"),
            (of(""), None, "found no layer"),
            (of(&wasm).replace(":9}", ":99}"), None, "the component has 99 bytes; at most 10 are taken"),
            (
                of(&wasm),
                Some("application/vnd.docker.distribution.manifest.v1+prettyjws"),
                "found `application/vnd.docker",
            ),
            (r#"{"layers":[]}"#.to_owned(), None, "found a manifest without `config` or `layers`"),
            (of(&wasm).replace("sha256:", "md5:"), None, "no manifest of an artifact, from line 1"),
            ("<html>".to_owned(), None, "the registry's answer is no manifest of an artifact, from line 1, column 1"),
        ] {
            let found = match read(answer.as_bytes(), content_type, 10) {
                Ok(Found::Artifact(found)) => format!("a component of {} bytes", found.layer.size),
                Ok(Found::Manifest(_)) => "another manifest".to_owned(),
                Err(why) => why,
            };
            assert!(found.contains(expected), "{answer}: {found}");
        }
    }

    #[test]
    fn what_is_written_is_read_again_and_is_the_same_whenever_it_is_written() {
        let digest = Digest::parse(HEX).unwrap();
        let names = Interfaces { imports: vec!["a:b/c".to_owned()], exports: vec!["d".to_owned()] };
        let text = config(&names, &digest, None);
        let expected = format!(
            r#"{{"architecture":"wasm","os":"wasip2","layerDigests":["{HEX}"],"component":{{"imports":["a:b/c"],"exports":["d"]}}}}"#
        );
        assert_eq!(String::from_utf8(text.clone()).unwrap(), expected);
        assert_eq!(interfaces(&text), names);
        let descriptor =
            |media_type: &str| Descriptor { media_type: media_type.to_owned(), digest: digest.clone(), size: 1 };
        let of_others = format!(
            r#"{{"created":"2026-01-01T00:00:00Z","author":null,"architecture":"wasm","os":"wasip2","layerDigests":["{HEX}"],"component":{{"exports":["d"],"imports":["a:b/c"],"target":null}}}}"#
        );
        assert_eq!(interfaces(of_others.as_bytes()), names);
        assert_eq!(interfaces(b"{}"), Interfaces::default());
        let annotations = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
        let artifact = Artifact { config: descriptor(CONFIG), layer: descriptor(LAYER), annotations };
        assert_eq!(read(&manifest(&artifact), None, 1), Ok(Found::Artifact(artifact)));
    }
}
