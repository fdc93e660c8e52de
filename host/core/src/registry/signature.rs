//! Decides whether a component is signed as it has to be: what a signature says, by which key it is, and whether that is enough (SG rules).
//!
//! Nobody is asked: a signature is held against keys that are known, and when it was made, or whether a log has it, does not matter.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Digest, Reference};
use crate::text::said;

pub mod bundle;
pub mod key;
pub mod pem;
pub mod simple;
#[cfg(test)]
mod vectors;

pub use key::Key;

/// The most bytes of a signature with what it signs: those of cosign have some hundred to some thousand.
pub const LONGEST: usize = 256 << 10;

/// Reasons that are told of signatures that are not good, and characters of what is told of a key.
const TOLD: usize = 3;
const SHORT: usize = 16;

/// What has to be signed: the manifest that leads to a component.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its digest.
    pub digest: &'a Digest,
    /// Its bytes.
    pub manifest: &'a [u8],
}

/// A signature, as it was found in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// A bundle of Sigstore, as cosign 3 writes it.
    Bundle(Vec<u8>),
    /// As cosign 2 and those before wrote it: what is signed, and the signature in base64.
    Simple {
        /// What is signed.
        payload: Vec<u8>,
        /// The signature of that.
        signature: String,
    },
}

/// What a good signature says: whoever has this key has signed the subject.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Signed {
    /// The key's digest.
    pub key: Digest,
    /// The name of the repository, if the signature says for which one it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// What was found in the way of signatures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// What good ones say.
    pub signed: Vec<Signed>,
    /// Why others are not good.
    pub rejected: Vec<String>,
    /// How many were not looked at, for there are too many.
    pub left_out: usize,
}

/// Who demands signatures, where a manifest does.
pub const VERIFY: &str = "component.verify";

/// Who demands them on a command line.
pub const COMMAND: &str = "--key";

/// Keys, one of which has to have signed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Demand {
    /// Who demands that, as it is shown: `component.verify`.
    pub whose: &'static str,
    /// The keys.
    pub keys: Vec<Key>,
    /// The names of repositories, beside the component's own, for which they may have signed.
    pub signed_as: Vec<Arc<str>>,
}

/// All that is demanded of a component's signatures: each of it has to be met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demands {
    /// Each by a signature; the same one may meet several.
    pub all: Vec<Demand>,
}

// === impl Document ===

impl Document {
    /// Holds the signature against keys, and returns what it says.
    ///
    /// # Errors
    /// Why it is no good signature of the subject by one of them: the end of a sentence that begins with "one".
    pub fn verify<'a>(
        &self,
        subject: Subject<'_>,
        keys: impl Iterator<Item = &'a Key> + Clone,
    ) -> Result<Signed, String> {
        match self {
            Self::Bundle(bundle) => bundle::verify(bundle, subject, keys),
            Self::Simple { payload, signature } => simple::verify((payload, signature), subject.digest, keys),
        }
    }
}

// === impl Demands ===

impl Demands {
    /// Whether nothing is demanded.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns all keys.
    pub fn keys(&self) -> impl Iterator<Item = &Key> + Clone {
        self.all.iter().flat_map(|demand| &demand.keys)
    }

    /// Whether all is met by what is signed, of what a reference names.
    pub fn are_met(&self, reference: &Reference, signed: &[Signed]) -> bool {
        self.all.iter().all(|demand| signed.iter().any(|signed| demand.is_met(reference, signed)))
    }

    /// Finds that all is met by what was found.
    ///
    /// # Errors
    /// What is demanded, and what was found in its place.
    pub fn judge(&self, reference: &Reference, found: &Found) -> Result<(), String> {
        let met = |demand: &&Demand| found.signed.iter().any(|signed| demand.is_met(reference, signed));
        let Some(demand) = self.all.iter().find(|demand| !met(demand)) else {
            return Ok(());
        };
        let what = if demand.keys.len() == 1 { "the key" } else { "one of the keys" };
        let keys: Vec<_> = demand.keys.iter().map(|key| short(key.digest())).collect();
        let found = demand.found(reference, found);
        Err(format!("expected a signature by {what} of {} ({}); found {found}", demand.whose, keys.join(", ")))
    }
}

// === impl Demand ===

impl Demand {
    fn is_met(&self, reference: &Reference, signed: &Signed) -> bool {
        let is_named = signed.name.as_deref().is_none_or(|name| self.is_named(name, reference));
        is_named && self.keys.iter().any(|key| *key.digest() == signed.key)
    }

    fn is_named(&self, name: &str, reference: &Reference) -> bool {
        let name = named(name);
        name == reference.name() || self.signed_as.iter().any(|expected| named(expected) == name)
    }

    /// Says what was found in place of what meets it.
    fn found(&self, reference: &Reference, found: &Found) -> String {
        let of = |signed: &Signed| match &signed.name {
            Some(name) if !self.is_named(name, reference) => {
                let (name, own) = (said(name), reference.name());
                let hint = match self.whose {
                    VERIFY => format!(", or {name} in component.verify.signedAs"),
                    COMMAND => format!(", or --signed-as {name}"),
                    // Else whoever writes a manifest says what others' keys are good for.
                    _ => ": a copy elsewhere is good for them under its first name, by a mirror".to_owned(),
                };
                format!("one for the name {name}; expected {own}{hint}")
            }
            Some(_) | None => format!("one by {}, which is not of {}", short(&signed.key), self.whose),
        };
        let mut all: Vec<_> = found.signed.iter().map(of).collect();
        all.extend(found.rejected.iter().map(|why| format!("one {why}")));
        let total = all.len();
        // The same reason is told once.
        let mut told = BTreeSet::new();
        all.retain(|why| told.insert(why.clone()));
        all.truncate(TOLD);
        let more = total - all.len();
        let mut text = if all.is_empty() { "none".to_owned() } else { all.join("; ") };
        // Writing to a string cannot fail.
        let _infallible = match (more, found.left_out) {
            (0, 0) => Ok(()),
            (0, left_out) => write!(text, "; {left_out} that may be some were not looked at"),
            (more, 0) => write!(text, "; and {more} more that are not good"),
            (more, left_out) => write!(text, "; and {more} more that are not good, and {left_out} not looked at"),
        };
        text
    }
}

/// Returns the name of a repository, however a signature writes it.
fn named(text: &str) -> String {
    let reference = Reference::parse(text).or_else(|_| Reference::parse(&format!("{text}:latest")));
    reference.map_or_else(|_| text.to_owned(), |reference| reference.name())
}

/// Returns the beginning of a digest, for people who have to tell keys from each other.
fn short(digest: &Digest) -> String {
    let hex = digest.hex();
    format!("sha256:{}…", hex.get(..SHORT).unwrap_or(hex))
}

/// Returns what is wrong with a signature that is by none of the keys, which says of itself that it is by this one.
fn by_none<'a>(mut keys: impl Iterator<Item = &'a Key>, hint: Option<&Digest>) -> String {
    let Some(hint) = hint else {
        return "by another key".to_owned();
    };
    let named = short(hint);
    match keys.find(|key| key.digest() == hint) {
        Some(key) if key.is_ed25519() => format!(
            "that names the key {named}, but is not by it, or is Ed25519ph, which cosign makes of such a key; expected one by a key on P-256, or by `capstan sign`"
        ),
        Some(_) => format!("that names the key {named}, but is not by it"),
        None => format!("by another key, as it says {named}"),
    }
}

/// Returns what is wrong with a signature of something else.
fn of_another(found: &str, subject: &Digest) -> String {
    format!("of {}; expected of {subject}", said(found))
}

#[cfg(test)]
mod tests;
