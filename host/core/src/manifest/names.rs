//! Names as a manifest writes them: of things, finalizers, kinds, exports, keys of annotations, JSON pointers.

use std::path::PathBuf;
use std::sync::Arc;

use schemars::{Schema, json_schema};

use crate::object::labels::{LONGEST, is_domain, is_key, is_label, is_tag};
use crate::object::pointer::Pointer;
use crate::object::shard::Shard;
use crate::registry::reference::{self, Reference};
use crate::registry::signature;
use crate::yaml::Form;

/// The name of a thing in a manifest, or of a namespace: a DNS label.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name(pub(super) Arc<str>);

/// A finalizer (`LC-3`): `domain/name`.
pub(super) struct Finalizer(pub(super) Arc<str>);

/// A field manager (`LC-4`).
pub(super) struct FieldManager(pub(super) Arc<str>);

/// An `apiVersion`: `v1`, `apps/v1`.
pub(super) struct ApiVersion(pub(super) Arc<str>);

/// A `kind`: `ConfigMap`.
pub(super) struct KindName(pub(super) Arc<str>);

/// A selector of fields, as the API server takes it.
pub(super) struct FieldSelector(pub(super) Arc<str>);

/// The name under which a component is asked for a decision.
pub(super) struct Export(pub(super) Arc<str>);

/// The key of a label or annotation: `name`, `domain/name`.
pub(super) struct Key(pub(super) Arc<str>);

/// The name of a Secret or ConfigMap: a DNS name.
pub(super) struct HolderName(pub(super) Arc<str>);

/// A key of the data of a Secret or ConfigMap.
pub(super) struct DataKey(pub(super) Arc<str>);

/// A file.
pub(super) struct FilePath(pub(super) PathBuf);

/// What is in a registry (`OC-1`).
pub(super) struct ImageName(pub(super) Reference);

/// A public key in PEM, or what is wrong with it: nothing of it is shown, as it may be a private one.
pub(super) struct PublicKey(pub(super) Result<signature::Key, String>);

/// A repository in a registry, without tag and digest.
pub(super) struct RepositoryName(pub(super) Arc<str>);

/// A group of the API, empty for the core group.
pub(super) struct GroupName(pub(super) Arc<str>);

/// A resource by its plural, with a subresource or without.
pub(super) struct ResourceName(pub(super) Arc<str>);

/// A registry, or what is below a path in it.
pub(super) struct RegistryPath(pub(super) Arc<str>);

const LABEL: &str = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?";
/// The part of a key or finalizer after its `/`, as a regular expression.
const TAG: &str = "[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?";

/// What the names of field managers begin with that belong to others: tools, parts of Kubernetes, and controllers that many
/// clusters have. `manager` is what operators are called that were made with kubebuilder.
const RESERVED: [&str; 30] = [
    "apache-httpclient",
    "argo",
    "before-first-apply",
    "cert-manager",
    "cilium",
    "cloud-controller-manager",
    "cluster-autoscaler",
    "crossplane",
    "fabric8",
    "fleet",
    "flux",
    "go-http-client",
    "helm",
    "istio",
    "k3s",
    "kube-",
    "kubeadm",
    "kubectl",
    "kubelet",
    "kustomize",
    "manager",
    "mozilla",
    "notification-controller",
    "olm",
    "openapi-generator",
    "pulumi",
    "rancher",
    "source-controller",
    "terraform",
    "velero",
];

/// Whether others write under the name of a field manager.
pub(super) fn is_reserved(manager: &str) -> bool {
    let manager = manager.to_lowercase();
    RESERVED.iter().any(|name| {
        let rest = manager.strip_prefix(name);
        rest.is_some_and(|rest| name.ends_with('-') || !rest.starts_with(|c: char| c.is_alphanumeric()))
    }) || ["argocd", "fluxcd"].iter().any(|name| manager.starts_with(name))
}

/// Whether a text is a name, or begins with it and something that ends it.
pub(super) fn is_named_after(text: &str, name: &str) -> bool {
    let rest = text.strip_prefix(name);
    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
}

// === forms ===

impl Form for Name {
    const WHAT: &'static str =
        "a name of lower-case letters, digits and `-`, at most 63 of them, with no `-` at either end";

    fn text(text: &str) -> Result<Self, String> {
        if is_label(text) { Ok(Self(text.into())) } else { Err(format!("expected {}", Self::WHAT)) }
    }

    fn schema() -> Schema {
        json_schema!({ "title": "name", "type": "string", "pattern": format!("^{LABEL}$") })
    }
}

impl Form for Finalizer {
    const WHAT: &'static str = "a finalizer such as `sample.capstan.dev/finalizer`";

    fn text(text: &str) -> Result<Self, String> {
        let why = match text.split_once('/') {
            None => "the `/` after its domain is missing",
            Some((domain, _)) if !is_domain(domain) => "what is before the `/` must be a DNS domain",
            Some((domain, _)) if !domain.contains('.') => "the domain needs at least one dot",
            Some((_, name)) if name.is_empty() || !is_tag(name) => {
                "what is after the `/` must be letters, digits, `-`, `_` and `.`, at most 63 of them, with a letter or digit at both ends"
            }
            Some(_) => return Ok(Self(text.into())),
        };
        Err(format!("{why}; expected {}", Self::WHAT))
    }

    fn schema() -> Schema {
        json_schema!({ "title": "finalizer", "type": "string", "maxLength": 317, "pattern": format!("^{LABEL}(\\.{LABEL})+/{TAG}$") })
    }
}

impl Form for FieldManager {
    const WHAT: &'static str = "1 to 128 printable characters";

    fn text(text: &str) -> Result<Self, String> {
        let fits = (1..=128).contains(&text.chars().count()) && !text.chars().any(char::is_control);
        if fits { Ok(Self(text.into())) } else { Err(format!("expected {}", Self::WHAT)) }
    }

    fn schema() -> Schema {
        json_schema!({ "title": "text", "type": "string", "minLength": 1, "maxLength": 128 })
    }
}

impl Form for ApiVersion {
    const WHAT: &'static str = "`v1`, or `group/v1` such as `apps/v1`";

    fn text(text: &str) -> Result<Self, String> {
        let (group, version) = text.split_once('/').map_or((None, text), |(group, version)| (Some(group), version));
        let right =
            group.is_none_or(is_domain) && is_label(version) && version.starts_with(|c: char| c.is_alphabetic());
        if right { Ok(Self(text.into())) } else { Err(format!("expected {}", Self::WHAT)) }
    }

    fn schema() -> Schema {
        json_schema!({ "title": "API version", "type": "string", "pattern": "^([-.a-z0-9]+/)?[a-z][-a-z0-9]*$" })
    }
}

impl Form for KindName {
    const WHAT: &'static str = "a kind in CamelCase and singular, such as `ConfigMap`";

    fn text(text: &str) -> Result<Self, String> {
        let starts = text.starts_with(|c: char| c.is_ascii_uppercase());
        let right = starts && text.len() <= 63 && text.bytes().all(|b| b.is_ascii_alphanumeric());
        if right { Ok(Self(text.into())) } else { Err(format!("expected {}", Self::WHAT)) }
    }

    fn schema() -> Schema {
        json_schema!({ "title": "kind", "type": "string", "pattern": "^[A-Z][A-Za-z0-9]{0,62}$" })
    }
}

impl Form for Export {
    const WHAT: &'static str = "a name without spaces, which the component is asked with";

    fn text(text: &str) -> Result<Self, String> {
        let wrong = text.is_empty() || text.chars().any(|c| c.is_whitespace() || c.is_control());
        if wrong { Err(format!("expected {}", Self::WHAT)) } else { Ok(Self(text.into())) }
    }

    fn schema() -> Schema {
        json_schema!({ "title": "export", "type": "string", "pattern": "^\\S+$" })
    }
}

impl Form for Key {
    const WHAT: &'static str = "the key of a label or annotation: `name`, or `example.com/name`";

    fn text(text: &str) -> Result<Self, String> {
        if is_key(text) { Ok(Self(text.into())) } else { Err(format!("expected {}", Self::WHAT)) }
    }

    fn schema() -> Schema {
        json_schema!({ "title": "key", "type": "string", "pattern": format!("^([-.a-z0-9]+/)?{TAG}$") })
    }
}

impl Form for Pointer {
    const WHAT: &'static str = "a JSON pointer such as `/spec/replicas`";

    fn text(text: &str) -> Result<Self, String> {
        Self::parse(text)
    }

    fn schema() -> Schema {
        json_schema!({ "title": "JSON pointer", "type": "string", "pattern": "^(/([^~/]|~[01])*)*$" })
    }
}

impl Form for FieldSelector {
    const WHAT: &'static str = "a field selector such as `metadata.name=config,status.phase!=Failed`";

    fn text(text: &str) -> Result<Self, String> {
        if text.len() > LONGEST {
            return Err(format!("found {} bytes; expected at most {LONGEST}", text.len()));
        }
        let is_path = |field: &str| {
            !field.is_empty() && field.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-/[]".contains(&b))
        };
        let is_term = |term: &str| {
            term.split_once('=').is_some_and(|(field, _)| is_path(field.strip_suffix('!').unwrap_or(field)))
        };
        // A comma within a value is escaped.
        let right = text.replace("\\,", "").split(',').all(is_term);
        if right { Ok(Self(text.into())) } else { Err(format!("expected {}", Self::WHAT)) }
    }

    fn schema() -> Schema {
        json_schema!({ "title": "field selector", "type": "string", "pattern": "^[A-Za-z0-9._/\\[\\]-]+!?=", "maxLength": LONGEST })
    }
}

impl Form for Shard {
    const WHAT: &'static str =
        "a shard selector such as `shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')`";

    fn text(text: &str) -> Result<Self, String> {
        Self::parse(text)
    }

    fn schema() -> Schema {
        json_schema!({ "title": "shard selector", "type": "string", "pattern": "^ *shardRange\\(.*\\) *$", "maxLength": LONGEST })
    }
}

impl Form for HolderName {
    const WHAT: &'static str = "the name of a Secret or ConfigMap: lower-case letters, digits, `-` and `.`";

    fn text(text: &str) -> Result<Self, String> {
        if is_domain(text) { Ok(Self(text.into())) } else { Err(format!("expected {}", Self::WHAT)) }
    }

    fn schema() -> Schema {
        json_schema!({ "title": "name of a Secret or ConfigMap", "type": "string", "pattern": "^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$", "maxLength": 253 })
    }
}

impl Form for DataKey {
    const WHAT: &'static str = "a key of data: letters, digits, `-`, `_` and `.`";

    fn text(text: &str) -> Result<Self, String> {
        let right = (1..=253).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
            && !text.starts_with("..")
            && text != ".";
        if right { Ok(Self(text.into())) } else { Err(format!("expected {}", Self::WHAT)) }
    }

    fn schema() -> Schema {
        json_schema!({ "title": "key of data", "type": "string", "pattern": "^[-._a-zA-Z0-9]+$", "maxLength": 253 })
    }
}

impl Form for FilePath {
    const WHAT: &'static str = "the path of a file";

    fn text(text: &str) -> Result<Self, String> {
        match text.split_once("://") {
            Some((scheme, _)) if scheme.chars().all(|c| c.is_ascii_alphanumeric()) => {
                Err(format!("expected {}; what is in a registry stands in `oci`", Self::WHAT))
            }
            Some(_) | None if text.is_empty() => Err(format!("expected {}", Self::WHAT)),
            Some(_) | None => Ok(Self(text.into())),
        }
    }

    fn schema() -> Schema {
        json_schema!({ "title": "file", "type": "string", "minLength": 1 })
    }
}

impl Form for ImageName {
    const WHAT: &'static str = reference::WHAT;

    fn text(text: &str) -> Result<Self, String> {
        Reference::parse(text).map(Self)
    }

    fn schema() -> Schema {
        let digest = "@sha256:[0-9a-f]{64}";
        let tag = "[A-Za-z0-9_][-_.A-Za-z0-9]{0,127}";
        json_schema!({ "title": "reference", "type": "string", "pattern": format!("^[^/]+/[-_./a-z0-9]+(:{tag}({digest})?|{digest})$") })
    }
}

impl Form for PublicKey {
    const WHAT: &'static str = signature::key::WHAT;

    fn text(text: &str) -> Result<Self, String> {
        Ok(Self(signature::Key::parse(text)))
    }

    fn schema() -> Schema {
        json_schema!({ "title": "public key", "type": "string", "pattern": "-----BEGIN PUBLIC KEY-----" })
    }
}

impl Form for RepositoryName {
    const WHAT: &'static str = "the name of a repository with its registry, such as `ghcr.io/org/webpage`";

    fn text(text: &str) -> Result<Self, String> {
        let reference = Reference::parse(&format!("{text}:latest"));
        reference.map(|reference| Self(reference.name().into())).map_err(|_| format!("expected {}", Self::WHAT))
    }

    fn schema() -> Schema {
        json_schema!({ "title": "repository name", "type": "string", "pattern": "^[^/]+/[-_./a-z0-9]+$" })
    }
}

impl Form for GroupName {
    const WHAT: &'static str = "an API group such as `apps`, or `\"\"` for the core group";

    fn text(text: &str) -> Result<Self, String> {
        let right = text.is_empty() || is_domain(text);
        right.then(|| Self(text.into())).ok_or_else(|| format!("expected {}", Self::WHAT))
    }

    fn schema() -> Schema {
        json_schema!({ "title": "API group", "type": "string", "pattern": "^[-.a-z0-9]*$" })
    }
}

impl Form for ResourceName {
    const WHAT: &'static str = "a resource by its plural, such as `configmaps` or `pages/status`";

    fn text(text: &str) -> Result<Self, String> {
        let (plural, subresource) = text.split_once('/').map_or((text, None), |(plural, sub)| (plural, Some(sub)));
        let right = is_label(plural) && subresource.is_none_or(is_label);
        right.then(|| Self(text.into())).ok_or_else(|| format!("expected {}", Self::WHAT))
    }

    fn schema() -> Schema {
        json_schema!({ "title": "resource", "type": "string", "pattern": format!("^{LABEL}(/{LABEL})?$") })
    }
}

impl Form for RegistryPath {
    const WHAT: &'static str = "a registry such as `registry.example.com:5000`, or a path in it, `ghcr.io/org`";

    fn text(text: &str) -> Result<Self, String> {
        let text = text.strip_suffix('/').unwrap_or(text);
        let reference = Reference::parse(&format!("{text}/any/one:latest"));
        let name = reference.ok().map(|reference| reference.name());
        let path = name.as_deref().and_then(|name| name.strip_suffix("/any/one"));
        path.map(|path| Self(path.into())).ok_or_else(|| format!("expected {}", Self::WHAT))
    }

    fn schema() -> Schema {
        json_schema!({ "title": "registry or path", "type": "string", "pattern": "^[-_.:a-z0-9]+(/[-_.a-z0-9]+)*/?$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns those of `texts` that are of the form.
    fn right<'a, F: Form>(texts: &[&'a str]) -> Vec<&'a str> {
        texts.iter().copied().filter(|text| F::text(text).is_ok()).collect()
    }

    #[test]
    fn a_name_is_a_dns_label() {
        let (longest, longer) = ("a".repeat(63), "a".repeat(64));
        let texts = ["a", "a-1", "1a", &longest, "", "-a", "a-", "A", "a.b", "a_b", "ä", &longer];
        assert_eq!(right::<Name>(&texts), ["a", "a-1", "1a", &longest]);
    }

    // LC-3
    #[test]
    fn a_finalizer_is_a_domain_with_a_dot_and_a_name() {
        let long_domain = format!("{}a/b", "a.".repeat(127));
        let right_ones = ["a.b/c", "a.b.c-d/e-f", "a.b/C_d.E"];
        let wrong = ["a/b", "a.b", "a.b/", "/a", "a..b/c", "A.b/c", "a.b/-c", "a.b/c/d", &long_domain];
        assert_eq!(right::<Finalizer>(&right_ones), right_ones);
        assert_eq!(right::<Finalizer>(&wrong), [""; 0]);
    }

    #[test]
    fn kinds_and_versions_are_as_in_objects() {
        let versions = ["v1", "apps/v1", "a.b/v1beta1", "", "/v1", "apps/", "a/b/c", "V1", "apps/1"];
        assert_eq!(right::<ApiVersion>(&versions), ["v1", "apps/v1", "a.b/v1beta1"]);
        assert_eq!(
            right::<KindName>(&["Pod", "ConfigMap", "V2", "pods", "Config-Map", ""]),
            ["Pod", "ConfigMap", "V2"]
        );
    }

    #[test]
    fn keys_of_labels_have_a_domain_or_none() {
        let texts = ["a", "A_b.c", "a.b/c", "", "a/", "/a", "-a", "a.b/c/d", "A.b/c"];
        assert_eq!(right::<Key>(&texts), ["a", "A_b.c", "a.b/c"]);
    }

    #[test]
    fn a_pointer_is_empty_or_begins_with_a_slash() {
        let texts = ["", "/", "/a/b", "/a~0b/~1", "a", "/a~", "/a~2"];
        assert_eq!(right::<Pointer>(&texts), ["", "/", "/a/b", "/a~0b/~1"]);
    }

    #[test]
    fn field_managers_of_others_are_known() {
        let names = [
            "kubectl",
            "kubectl-edit",
            "Kubectl",
            "kube-controller-manager",
            "helm",
            "helm-controller",
            "argocd-controller",
            "flux",
            "before-first-apply",
            "manager",
            "Mozilla",
            "pages",
            "helmet",
            "manager2",
            "capstan",
            "kubernetes-pages",
        ];
        let reserved: Vec<_> = names.into_iter().filter(|name| is_reserved(name)).collect();
        assert_eq!(reserved, names[..11]);
        for (text, expected) in
            [("pages", true), ("pages-2", true), ("pages/web", true), ("pagespeed", false), ("other-pages", false)]
        {
            assert_eq!(is_named_after(text, "pages"), expected, "{text}");
        }
    }

    #[test]
    fn other_names_are_what_fits_a_line() {
        let (longest, longer) = ("a".repeat(128), "a".repeat(129));
        assert_eq!(right::<FieldManager>(&["web page", "", "a\n", &longest, &longer]), ["web page", &longest]);
        assert_eq!(right::<Export>(&["same-data", "sameData", "a b", "", "a\t"]), ["same-data", "sameData"]);
        assert_eq!(
            right::<FilePath>(&["a b", "", "https://a.dev/b.wasm", "oci://a/b", "../a://b"]),
            ["a b", "../a://b"]
        );
    }
}
