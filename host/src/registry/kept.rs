//! Keeps components that were pulled, by their digests, and what references named last and to whom that was given (`OC-7`, `OC-8`).
//!
//! Files are sealed as those of the code cache are: nobody else can put something there.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use capstan_core::registry::signature::Signed;
use capstan_core::registry::{Credentials, Digest, Reference};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::folder::{Draft, Folder, Keep};
use crate::read;

/// References that are remembered beside those that are in use.
const REFERENCES: usize = 1000;

/// What there is, by its ending.
const COMPONENT: &str = "wasm";
const KNOWN: &str = "known";

/// The folder, and how many bytes of components it may have.
#[derive(Debug)]
pub struct Kept {
    folder: Arc<Folder>,
    most: u64,
}

/// Where components are kept.
#[derive(Clone, Debug)]
pub struct Place {
    /// The folder, which is made if it does not exist.
    pub folder: PathBuf,
    /// The file with the key by which the daemon knows its own files; `None`: one in the folder.
    pub key: Option<PathBuf>,
    /// The most bytes of components; those in use may have more.
    pub most: u64,
}

/// What a reference named when it was asked for last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// The digest of the manifest.
    pub digest: Digest,
    /// That of the component.
    pub component: Digest,
    /// What its signatures said that were looked at, when it was pulled (`SG-4`).
    #[serde(default)]
    pub signed: Vec<Signed>,
}

/// What an operator has of a reference, and by which right it was given that last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Own {
    /// What it has.
    pub known: Known,
    /// The right of all who asked as it did then.
    pub by: Right,
}

/// Who may have what: a reference, as these credentials, or this operator, were given it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Right(Digest);

/// What does not go for want of room.
#[derive(Debug, Default)]
pub struct InUse {
    /// Components.
    pub components: BTreeSet<Digest>,
    /// What is remembered of references.
    pub rights: BTreeSet<Right>,
}

impl Kept {
    /// Opens the folder.
    ///
    /// # Errors
    /// If there is something wrong with it.
    pub fn at(Place { folder: path, key, most }: &Place) -> io::Result<Self> {
        let folder = Folder::open(path, key.as_deref());
        let named = |error: io::Error| io::Error::new(error.kind(), format!("folder {}: {error}", path.display()));
        Ok(Self { folder: Arc::new(folder.map_err(named)?), most: *most })
    }

    /// Returns what a reference named last for those who had this right, if that component is still here.
    pub fn known(&self, right: &Right) -> Option<Known> {
        self.remembered(right).filter(|known: &Known| self.has(&known.component))
    }

    /// Returns what the operator with this right of its own has, if that component is still here.
    pub fn own(&self, right: &Right) -> Option<Own> {
        self.remembered(right).filter(|own: &Own| self.has(&own.known.component))
    }

    /// Returns what is remembered of a right, whether or not the component is still here.
    pub(super) fn remembered<T: DeserializeOwned>(&self, right: &Right) -> Option<T> {
        let text = self.folder.read(&right.name(), read::TEXT).ok()??;
        serde_json::from_slice(&text).ok()
    }

    /// Remembers what a reference names for those who have this right: [`Known`], or [`Own`] if it is one operator's.
    pub fn remember<T: Serialize>(&self, right: &Right, what: &T) {
        let text = serde_json::to_vec(what).unwrap_or_default();
        if let Err(error) = self.folder.write(&right.name(), &text) {
            warn!(%error, "what a reference names is not remembered: without the registry, the daemon can't start it again");
        }
    }

    /// Whether a component is here, whole.
    pub fn has(&self, component: &Digest) -> bool {
        matches!(self.folder.get(&name(component)), Ok(Some(_)))
    }

    /// Returns a component.
    ///
    /// # Errors
    /// If it is not here any more, or is damaged.
    pub fn read(&self, component: &Digest) -> io::Result<Vec<u8>> {
        let found = self.folder.read(&name(component), read::COMPONENT)?;
        found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "it is not in the folder of components any more"))
    }

    /// Starts a component.
    ///
    /// # Errors
    /// If nothing can be written.
    pub(super) fn draft(&self) -> io::Result<Draft> {
        self.folder.draft()
    }

    /// Keeps what was written as a component.
    ///
    /// # Errors
    /// If it can't be written.
    pub(super) fn keep(draft: Draft, component: &Digest) -> io::Result<()> {
        draft.keep(&name(component))
    }

    /// Removes what is too much, used longest ago, and not in use.
    pub(super) fn make_room(&self, InUse { components, rights }: &InUse) {
        let held: BTreeSet<_> = components.iter().map(name).chain(rights.iter().map(Right::name)).collect();
        self.folder.prune(&[COMPONENT, "draft"], Keep::Bytes(self.most), |entry| held.contains(entry));
        self.folder.prune(&[KNOWN], Keep::Entries(REFERENCES), |entry| held.contains(entry));
    }
}

impl Right {
    /// Returns the right to what a reference names of those who ask so, wherever it is asked for.
    pub fn of(reference: &Reference, is_insecure: bool, credentials: &[Credentials]) -> Self {
        let who: Vec<_> = credentials.iter().map(|who| who.basic().unwrap_or_default()).collect();
        let text = format!("{reference}\n{is_insecure}\n{}", who.join("\n"));
        Self(Digest::sha256(text.as_bytes()))
    }

    /// Returns the right of an operator to what it has of a reference, whatever its pull secret says by now; one that names no pull secret has
    /// nothing of one that does.
    pub fn of_operator(operator: &str, reference: &Reference, (is_insecure, has_secret): (bool, bool)) -> Self {
        Self(Digest::sha256(format!("operator {operator}\n{reference}\n{is_insecure}\n{has_secret}").as_bytes()))
    }

    /// Returns the name of its file.
    pub(super) fn name(&self) -> String {
        format!("{}.{KNOWN}", self.0.hex())
    }
}

fn name(component: &Digest) -> String {
    format!("{}.{COMPONENT}", component.hex())
}
