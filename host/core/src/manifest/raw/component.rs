//! The fields that say where a component is, as they are written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::names::{DataKey, FilePath, HolderName, ImageName};
use super::super::units::Time;
use super::{Maybe, MaybeLeaf};
use crate::yaml::{Leaf, Slot};

/// Where a component is: in a file (`path`), or in a registry (`oci`) with what goes with that.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Component {
    /// A file; relative to the folder of the manifest.
    pub(in crate::manifest) path: MaybeLeaf<FilePath>,
    /// An artifact of a registry, by tag, digest or both, such as `ghcr.io/org/webpage:1.2`; with both, the digest holds. What a tag names
    /// anew is put in place as a changed file is (`OC-1`, `OC-2`).
    pub(in crate::manifest) oci: MaybeLeaf<ImageName>,
    /// The name of a Secret of type `kubernetes.io/dockerconfigjson` in the daemon's own namespace, whose label `capstan.dev/config-for` permits
    /// it to this operator; without it, nobody in particular asks the registry (`OC-3`, `CV-2`).
    pub(in crate::manifest) pull_secret: MaybeLeaf<HolderName>,
    /// From one time that the registry is asked what a tag names to the next, from `1s` on; without it `5m` (`OC-6`).
    pub(in crate::manifest) interval: MaybeLeaf<Time>,
    /// Whether the registry speaks HTTP without TLS: one on this machine, written as its address, or one that the
    /// daemon's `--insecure-registry` permits.
    pub(in crate::manifest) insecure: Maybe<bool>,
    /// Certificates in PEM that are trusted beside those of the system.
    pub(in crate::manifest) ca: Maybe<Authority>,
}

/// Where certificates are.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::manifest) enum Authority {
    /// In a Secret of the daemon's own namespace, whose label `capstan.dev/config-for` permits it to this operator (`CV-2`).
    Secret(Slot<AuthorityKey>),
    /// In a ConfigMap of the daemon's own namespace, whose label `capstan.dev/config-for` permits it to this operator (`CV-2`).
    ConfigMap(Slot<AuthorityKey>),
    /// In a file of the daemon; relative to the folder of the manifest.
    File(Leaf<FilePath>),
}

/// Where certificates are in a Secret or ConfigMap.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct AuthorityKey {
    /// The object's name.
    pub(in crate::manifest) name: Leaf<HolderName>,
    /// The key of its data.
    #[schemars(extend("default" = "ca.crt"))]
    pub(in crate::manifest) key: MaybeLeaf<DataKey>,
}
