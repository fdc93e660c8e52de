//! Where a component is: in a file or in a registry, and how that is asked for it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::super::names::{DataKey, FilePath, HolderName, ImageName, PublicKey, RepositoryName};
use super::super::raw;
use super::super::unique::ComponentMark;
use super::super::units::Time;
use super::super::{Authority, Component, ConfigValue, Holder, Image, Verify};
use super::{Check, Written, get, located, time};
use crate::granted::PULL_KEY;
use crate::registry::signature::Key;
use crate::yaml::{Leaf, Located, Scalar, Slot};

/// From one time that a tag is asked for to the next, where nobody says otherwise, and at least.
const INTERVAL: [Duration; 2] = [Duration::from_mins(5), Duration::from_secs(1)];

/// The most keys of `verify`, and the most names.
const MOST: usize = 16;

impl Check<'_> {
    /// Returns where a component is.
    pub(super) fn component(&mut self, component: &Located<raw::Component>) -> Option<Component> {
        let Located { value: raw::Component { path, oci, pull_secret, interval, insecure, ca, verify }, place } =
            component;
        match (path, oci) {
            (None, None) => self.fault(*place, "found neither `path` nor `oci`; expected one of them"),
            (Some(_), Some(_)) => self.fault(*place, "found both `path` and `oci`; expected one of them"),
            (Some(path), None) => {
                let beside = [
                    ("pullSecret", pull_secret.is_some()),
                    ("interval", interval.is_some()),
                    ("insecure", insecure.is_some()),
                    ("ca", ca.is_some()),
                    ("verify", verify.is_some()),
                ];
                for (name, _) in beside.into_iter().filter(|(_, is_there)| *is_there) {
                    self.fault(*place, format!("found `{name}` beside `path`; it goes with `oci`"));
                }
                let path = self.need(path, *place, "path")?;
                return self.file_of(path, "`oci`, a component in a registry").map(Component::File);
            }
            (None, Some(oci)) => {
                let ImageName(reference) = &self.need(oci, *place, "oci")?.value.0;
                let [usual, least] = INTERVAL;
                if let Some(Located { value: Scalar(Time(interval)), place }) = located(interval)
                    && *interval < least
                {
                    self.fault(*place, format!("found {}; expected `1s` or more", Time(*interval)));
                }
                let secret = |Scalar(HolderName(name)): &Scalar<HolderName>| ConfigValue {
                    holder: Holder::PullSecret,
                    name: Arc::clone(name),
                    key: PULL_KEY.into(),
                    tenant: None,
                };
                return Some(Component::Registry(Box::new(Image {
                    reference: reference.clone(),
                    pull_secret: get(pull_secret).map(secret),
                    interval: time(interval, usual),
                    insecure: get(insecure).copied().unwrap_or_default(),
                    authority: located(ca).and_then(|ca| self.authority(ca)),
                    verify: located(verify).and_then(|verify| self.verify(verify)),
                    ceiling: Vec::new(),
                })));
            }
        }
        None
    }

    /// Returns where the path or the reference is, for messages; `None` if there is none.
    pub(super) fn component_mark(&self, component: &Slot<raw::Component>) -> Option<ComponentMark> {
        fn place<F>(field: &Option<Leaf<F>>) -> Option<usize> {
            located(field).map(|found| found.place)
        }
        let component = &component.read()?.value;
        let found = place(&component.path).map(|place| (place, "path"));
        let (place, field) = found.or_else(|| place(&component.oci).map(|place| (place, "oci")))?;
        Some((self.mark(place), field))
    }

    fn authority(&mut self, Located { value, place }: &Located<raw::Authority>) -> Option<Authority> {
        let (holder, what, at) = match value {
            raw::Authority::Secret(at) => (Holder::Secret, "secret", at),
            raw::Authority::ConfigMap(at) => (Holder::ConfigMap, "configMap", at),
            raw::Authority::File(path) => {
                let path = self.need(path, *place, "file")?;
                return self.file_of(path, "`secret` or `configMap`").map(Authority::File);
            }
        };
        let Located { value: raw::AuthorityKey { name, key }, place } = self.need(at, *place, what)?;
        let Scalar(HolderName(name)) = &self.need(name, *place, "name")?.value;
        let key = get(key).map_or_else(|| "ca.crt".into(), |Scalar(DataKey(key))| Arc::clone(key));
        Some(Authority::Held(ConfigValue { holder, name: Arc::clone(name), key, tenant: None }))
    }

    /// Returns by whom a component has to be signed.
    fn verify(&mut self, Located { value, place }: &Located<raw::Verify>) -> Option<Verify> {
        let raw::Verify { keys, signed_as } = value;
        let keys = self.need(keys, *place, "keys")?;
        if !(1..=MOST).contains(&keys.value.len()) {
            self.fault(keys.place, format!("found {} keys; expected 1 to {MOST}", keys.value.len()));
            return None;
        }
        let known = self.public_keys(&keys.value, keys.place);
        let mut names = Vec::new();
        if let Some(Located { value, place }) = located(signed_as) {
            let items = self.items(value, *place);
            if items.len() > MOST {
                self.fault(*place, format!("found {} names; expected at most {MOST}", items.len()));
            }
            names.extend(items.into_iter().map(|item| {
                let Scalar(RepositoryName(name)) = &item.value;
                Arc::clone(name)
            }));
        }
        Some(Verify { keys: known, signed_as: names })
    }

    /// Returns keys, and finds those that are there twice.
    pub(super) fn public_keys(&mut self, keys: &[Leaf<PublicKey>], around: usize) -> Vec<Key> {
        let mut known = Vec::new();
        for Located { value: Scalar(PublicKey(key)), place } in self.items(keys, around) {
            match key {
                Ok(key) if known.contains(key) => {
                    self.fault(*place, "found the same key a second time; once is enough");
                }
                Ok(key) => known.push(key.clone()),
                Err(why) => self.fault(*place, why.clone()),
            }
        }
        known
    }

    /// Returns a file of the daemon, relative to the folder of the manifest; objects of the cluster name none (`OP-2`).
    fn file_of(&mut self, path: &Located<Scalar<FilePath>>, instead: &str) -> Option<PathBuf> {
        let Located { value: Scalar(FilePath(path)), place } = path;
        match self.written {
            Written::File => Some(self.file.parent().unwrap_or(Path::new("")).join(path)),
            Written::Object => {
                self.fault(
                    *place,
                    format!("found a file, and an object of the cluster has none beside it; expected {instead}"),
                );
                None
            }
        }
    }
}
