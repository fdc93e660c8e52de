//! The fields that say where a component is, as they are written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::names::{DataKey, FilePath, HolderName, ImageName, PublicKey, RepositoryName};
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
    /// By whom it has to be signed; what is not goes on being what it was (`SG-1`). The daemon's `--verify-key` may demand more.
    pub(in crate::manifest) verify: Maybe<Verify>,
}

/// By whom a component has to be signed.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Verify {
    /// Public keys in PEM, as `cosign public-key` and `openssl pkey -pubout` write them: ECDSA P-256, Ed25519, or RSA of 2048 to 8192 bits. One of
    /// them has to have signed, with `cosign sign --key` or `capstan sign` (`SG-2`).
    #[schemars(extend("minItems" = 1, "maxItems" = 16))]
    pub(in crate::manifest) keys: Slot<Vec<Leaf<PublicKey>>>,
    /// Other names of the component's repository, such as `ghcr.io/org/webpage`, for which it may have been signed by one of `keys`: it was, and copied since. Keys that the daemon or a ceiling demands are good for the component's own name alone (`SG-3`).
    #[schemars(extend("default" = [], "maxItems" = 16))]
    pub(in crate::manifest) signed_as: Maybe<Vec<Leaf<RepositoryName>>>,
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
