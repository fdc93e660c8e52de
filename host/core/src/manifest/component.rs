//! Where a component is, as a checked manifest says: in a file, or in a registry.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::ConfigValue;
use crate::registry::Reference;
use crate::registry::signature::{Demand, Demands, Key, VERIFY};

/// Where a component is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Component {
    /// In a file, absolute or resolved against the manifest's folder.
    File(PathBuf),
    /// In a registry.
    Registry(Box<Image>),
}

/// A component in a registry, and how that is asked for it (OC rules).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Image {
    /// Which one.
    pub reference: Reference,
    /// Where it is said who asks; `None`: anybody does.
    pub pull_secret: Option<ConfigValue>,
    /// From one time that the tag is asked for to the next; default 5 min.
    pub interval: Duration,
    /// Whether the registry speaks HTTP without TLS.
    pub insecure: bool,
    /// Whom to trust beside the authorities of the system.
    pub authority: Option<Authority>,
    /// By whom it has to be signed; `None`: nobody, as far as the manifest is concerned.
    pub verify: Option<Verify>,
    /// One of these keys has to have signed it as well, as the ceiling of the operator says; empty: nobody (`CE-4`).
    pub ceiling: Vec<Key>,
}

/// By whom a component has to be signed (SG rules).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Verify {
    /// One of these keys has to have signed.
    pub keys: Vec<Key>,
    /// The names of repositories, beside the component's own, for which signatures may have been made.
    pub signed_as: Vec<Arc<str>>,
}

/// Where the certificates of an authority are, in PEM.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Authority {
    /// In a Secret or `ConfigMap`.
    Held(ConfigValue),
    /// In a file of the daemon.
    File(PathBuf),
}

/// Where ceilings do.
const CEILING: &str = "verifyKeys of its ceiling";

impl Image {
    /// Returns the values of Secrets and `ConfigMap`s that it takes to ask for it.
    pub fn values(&self) -> impl Iterator<Item = &ConfigValue> {
        let authority = match &self.authority {
            Some(Authority::Held(value)) => Some(value),
            Some(Authority::File(_)) | None => None,
        };
        self.pull_secret.iter().chain(authority)
    }

    /// Returns the same as [`Image::values`], to be changed.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut ConfigValue> {
        let authority = match &mut self.authority {
            Some(Authority::Held(value)) => Some(value),
            Some(Authority::File(_)) | None => None,
        };
        self.pull_secret.iter_mut().chain(authority)
    }

    /// Returns what is demanded of its signatures: what the manifest says, its ceiling, and what the daemon says of all.
    pub fn demands(&self, floor: Option<&Demand>) -> Demands {
        let of_verify = |Verify { keys, signed_as }: Verify| Demand { whose: VERIFY, keys, signed_as };
        // A manifest says for which names its own keys are good, and no others.
        let ceiling = Demand { whose: CEILING, keys: self.ceiling.clone(), signed_as: Vec::new() };
        let ceiling = (!self.ceiling.is_empty()).then_some(ceiling);
        Demands { all: floor.cloned().into_iter().chain(ceiling).chain(self.verify.clone().map(of_verify)).collect() }
    }
}

impl fmt::Display for Component {
    /// Writes the path, or the reference.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Registry(image) => write!(f, "{}", image.reference),
        }
    }
}
