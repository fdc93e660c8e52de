//! Reads what an image needs of Secrets, `ConfigMap`s and files: who asks for it, and whom it trusts.

use std::sync::Arc;

use capstan_core::manifest::{Authority, Image};
use capstan_core::registry::{Credentials, Failure, Kind, Reference};
use capstan_core::rollout::values::{Asked, Known as Value};

use crate::read;

/// What an image needs of Secrets and `ConfigMap`s, as far as that has been read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    config: Option<Value>,
    authority: Option<Value>,
}

impl Facts {
    /// Returns what is known of it.
    pub(super) fn of((operator, image): &(Arc<str>, Image), known: &impl Fn(&Asked) -> Option<Value>) -> Self {
        let known = |value: &_| known(&Asked { operator: Arc::clone(operator), value: Clone::clone(value) });
        let authority = match &image.authority {
            Some(Authority::Held(value)) => known(value),
            // A file is read whenever it is needed: it may be another by then.
            Some(Authority::File(_)) | None => None,
        };
        Self { config: image.pull_secret.as_ref().and_then(known), authority }
    }

    /// Whether all has been read.
    pub(super) fn is_read(&self, image: &Image) -> bool {
        let Self { config, authority } = self;
        let held = matches!(image.authority, Some(Authority::Held(_)));
        (config.is_some() || image.pull_secret.is_none()) && (authority.is_some() || !held)
    }

    /// Returns one more authority that is trusted, in PEM.
    pub(super) fn authority(&self, image: &Image) -> Option<Result<Arc<str>, String>> {
        if let Some(Authority::File(file)) = &image.authority {
            let text = read::text(file, read::TEXT);
            return Some(text.map(Arc::from).map_err(|error| format!("file {}: {error}", file.display())));
        }
        let Some(Authority::Held(value)) = &image.authority else {
            return None;
        };
        self.authority.as_ref().map(|found| found.clone().map_err(|error| format!("{value}: {error}")))
    }

    /// Returns who asks for an image at a place: what is for the registry itself is for no mirror (`MR-3`).
    pub(super) fn credentials(&self, image: &Image, place: &Reference) -> Result<Credentials, Failure> {
        let (Some(config), Some(secret)) = (&self.config, &image.pull_secret) else {
            return Ok(Credentials::Anonymous);
        };
        let found = config.as_ref().map_err(ToString::to_string);
        let found = found.and_then(|config| Credentials::of_config(config, place));
        found.map_err(|why| Failure::new(Kind::Denied, format!("pullSecret: {secret}: {why}")))
    }
}
