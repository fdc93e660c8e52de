//! Reads a source that a run declares: the same as a manifest may say of one, in a JSON document of its own.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use super::check::{Check, Written};
use super::names::Name;
use super::{Keys, Source, raw};
use crate::yaml::{self, Fault, Faults, Form as _, Quoted, Reader, Slot};

/// A source that a run declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The source.
    pub source: Source,
    /// The number of its expressions that are asked about events.
    pub asked: usize,
    /// The declaration as it was given.
    pub text: Arc<str>,
}

impl Registration {
    /// Reads the declaration of a source with this name: a JSON object as under `sources` of a manifest. `indexes` are those over the
    /// primaries of the controller.
    ///
    /// # Errors
    /// All that is wrong, in one line.
    ///
    /// ```
    /// # use std::collections::BTreeMap;
    /// # use capstan_core::manifest::Registration;
    /// let read = |text| Registration::parse("keys", text, &BTreeMap::new());
    /// assert_eq!(&*read(r#"{"informer": {"apiVersion": "v1", "kind": "Secret"}}"#).unwrap().source.gvk.kind, "Secret");
    /// assert_eq!(read(r#"{"informer": {"apiVersion": "v1"}}"#).unwrap_err(), "informer: the field `kind` is missing");
    /// let elsewhere = r#"{"informer": {"apiVersion": "v1", "kind": "Secret", "cluster": "edge"}}"#;
    /// assert!(read(elsewhere).unwrap_err().contains("which other clusters are watched only a manifest says"));
    /// let late = r#"{"informer": {"apiVersion": "v1", "kind": "Secret", "startPriority": 2}}"#;
    /// assert!(read(late).unwrap_err().contains("a source that a run registers is listed at once"));
    /// ```
    pub fn parse(name: &str, text: &str, indexes: &BTreeMap<Arc<str>, Keys>) -> Result<Self, String> {
        Name::text(name).map_err(|right| format!("found the name {}; {right}", Quoted(name)))?;
        let trees = yaml::documents(text).map_err(|syntax| format!("not read: {}", syntax.message))?;
        let [tree] = trees.as_slice() else {
            return Err(format!("found {} documents; expected one", trees.len()));
        };
        let faults = RefCell::new(Faults::default());
        let document = Slot::<raw::Source>::deserialize(Reader::new(&tree.root, &faults)).unwrap_or(Slot::Wrong);
        let mut check = Check::new(&tree.places, (Path::new(""), Written::File), faults.into_inner());
        let read = check.registration(&document, indexes);
        let (faults, more) = check.into_faults().into_parts();
        let told = |fault: &Fault| match tree.places.get(fault.place) {
            Some(place) if !place.path.is_empty() => format!("{}: {}", place.path, fault.message),
            Some(_) | None => fault.message.clone(),
        };
        let more = (more > 0).then(|| format!("… and {more} more"));
        let wrong = || faults.iter().map(told).chain(more).collect::<Vec<_>>().join("; ");
        let (source, asked) = read.filter(|_| faults.is_empty()).ok_or_else(wrong)?;
        Ok(Self { source, asked, text: text.into() })
    }
}
