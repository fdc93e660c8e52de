//! Turns a file into operators: all documents are read, and all that is wrong in any of them is reported at once.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::check::{Check, Given, Written};
use super::raw::{self, Document};
use super::{Ceiling, Limits, Operator};
use crate::yaml::{self, Errors, Fault, Faults, Place, Problem, Reader, Slot, Tree, Value};

/// Returns the operators that the YAML documents of a file declare. `file` is named in errors, and its folder is where
/// components are looked for.
///
/// # Errors
/// [`Errors`] with all that is wrong, each with its place.
///
/// ```
/// # use std::path::Path;
/// let text = "
/// apiVersion: capstan.dev/v1alpha1
/// kind: Operator
/// metadata: { name: webpage }
/// spec:
///   plugins: { webpage: { component: { path: webpage.wasm } } }
///   controllers:
///     webpage: { plugin: webpge, primary: { apiVersion: sample.capstan.dev/v1, kind: WebPage } }
/// ";
/// let errors = capstan_core::manifest::parse(text, Path::new("webpage.yaml")).unwrap_err();
/// assert!(errors.to_string().starts_with("webpage.yaml:8:24: spec.controllers.webpage.plugin: there is no plugin `webpge`"));
/// ```
pub fn parse(text: &str, file: &Path) -> Result<Vec<Operator>, Errors> {
    parse_with(text, file, &Defaults::default())
}

/// Returns the same as [`parse`], with what these defaults say where the documents say nothing.
///
/// # Errors
/// As [`parse`].
pub fn parse_with(text: &str, file: &Path, defaults: &Defaults) -> Result<Vec<Operator>, Errors> {
    let kind = Sort { kind: OPERATOR, most: defaults.most.as_ref() };
    documents(text, file, kind, |document: Slot<Document>, check| check.operator(&document, &defaults.given))
}

/// What the daemon takes for what manifests leave out. Without a document of it, nothing.
#[derive(Default)]
pub struct Defaults {
    given: Arc<Given>,
    /// What a ceiling permits at most: what is left out is not more (`CE-4`).
    most: Option<Limits>,
}

impl Defaults {
    /// Returns the defaults that a file with one YAML document declares. `file` is named in errors.
    ///
    /// # Errors
    /// [`Errors`] with all that is wrong, each with its place.
    ///
    /// ```
    /// # use std::path::Path;
    /// # use capstan_core::manifest::{Defaults, parse_with};
    /// let text = "
    /// apiVersion: capstan.dev/v1alpha1
    /// kind: Defaults
    /// spec: { controllers: { retry: { maxAttempts: 3 } } }
    /// ";
    /// assert!(Defaults::parse(text, Path::new("defaults.yaml")).is_ok());
    /// let errors = Defaults::parse(&text.replace("3", "0.5"), Path::new("defaults.yaml")).err().unwrap();
    /// assert!(errors.to_string().starts_with("defaults.yaml:4:46: spec.controllers.retry.maxAttempts: found `0.5`, a number"));
    /// ```
    pub fn parse(text: &str, file: &Path) -> Result<Self, Errors> {
        one(documents(text, file, Sort::of(DEFAULTS), |document, check| check.defaults(document))?, text, file)
            .map(Self::of)
    }

    /// Returns the same for operators that have a ceiling.
    #[must_use]
    pub fn below(&self, ceiling: &Ceiling) -> Self {
        Self { given: Arc::clone(&self.given), most: Some(ceiling.limits.clone()) }
    }

    fn of(given: Given) -> Self {
        Self { given: Arc::new(given), most: None }
    }
}

/// Returns the ceilings that a file with one document declares, by namespace.
pub(super) fn ceilings(text: &str, file: &Path) -> Result<BTreeMap<Arc<str>, Arc<Ceiling>>, Errors> {
    let take = |document: Slot<raw::ceilings::Document>, check: &mut Check<'_>| check.ceilings(&document);
    one(documents(text, file, Sort::of(CEILINGS), take)?, text, file)
}

/// Returns what was read of the one document that a file may have.
fn one<T>(read: Vec<T>, text: &str, file: &Path) -> Result<T, Errors> {
    let [one] = <[_; 1]>::try_from(read).map_err(|read| {
        let fault = Fault::new(0, format!("found {} documents; expected one", read.len()));
        Errors::new(vec![Problem::new(file, text, &Place::start(), fault)])
    })?;
    Ok(one)
}

/// Returns the operator that an object of the cluster declares: what a document with its `metadata.name` and `spec` would, but for what names
/// files. It is called by `path` in errors, which name fields in place of lines.
///
/// # Errors
/// [`Errors`] with all that is wrong, each with its field.
///
/// ```
/// # use std::path::Path;
/// # use capstan_core::manifest::{Defaults, parse_object};
/// let spec = serde_json::json!({ "controllers": { "web": { "primary": { "apiVersion": "v1" } } } });
/// let object = serde_json::json!({ "metadata": { "name": "web", "uid": "1" }, "spec": spec });
/// let errors = parse_object(&object, Path::new("operators/web"), &Defaults::default()).unwrap_err();
/// assert!(errors.to_string().starts_with("operators/web: spec.controllers.web.primary: the field `kind` is missing"));
/// ```
pub fn parse_object(object: &Json, path: &Path, defaults: &Defaults) -> Result<Operator, Errors> {
    let field = |pointer: &str| object.pointer(pointer).cloned().unwrap_or_default();
    let metadata = json!({ "name": field("/metadata/name") });
    let document = json!({ "apiVersion": API_VERSION, "kind": OPERATOR, "metadata": metadata, "spec": field("/spec") });
    let Some(Tree { root, places }) = yaml::of_json(&document) else {
        return Err(Errors::new(vec![Problem::of_field(path, "", Fault::new(0, TOO_LARGE))]));
    };
    let wrong = |faults: Faults| {
        let (faults, more) = faults.into_parts();
        let placed = faults.into_iter().filter_map(|fault| Some((places.get(fault.place)?, fault)));
        Errors::new(placed.map(|(place, fault)| Problem::of_field(path, &place.path, fault)).collect()).and(more)
    };
    let faults = RefCell::new(Faults::default());
    let document = Slot::<Document>::deserialize(Reader::new(&root, &faults)).unwrap_or(Slot::Wrong);
    let check = Check::new(&places, (path, Written::Object), faults.into_inner());
    let mut check = check.below(defaults.most.as_ref());
    let operator = check.operator(&document, &defaults.given);
    let faults = check.into_faults();
    operator.filter(|_| faults.count() == 0).ok_or_else(|| wrong(faults))
}

/// Why an object is not read.
const TOO_LARGE: &str =
    "it has more than 50000 fields and values, or more than 64 within each other, or names of fields that are too long";

const API_VERSION: &str = "capstan.dev/v1alpha1";
const OPERATOR: &str = "Operator";
const DEFAULTS: &str = "Defaults";
const CEILINGS: &str = "Ceilings";

/// Which documents are read.
#[derive(Clone, Copy)]
struct Sort<'m> {
    kind: &'static str,
    /// What a ceiling permits at most.
    most: Option<&'m Limits>,
}

impl Sort<'_> {
    fn of(kind: &'static str) -> Self {
        Self { kind, most: None }
    }
}

/// Reads the documents of a file, all of one kind, and takes something from each.
fn documents<D: for<'de> Deserialize<'de>, T>(
    text: &str,
    file: &Path,
    Sort { kind, most }: Sort<'_>,
    mut take: impl FnMut(Slot<D>, &mut Check<'_>) -> Option<T>,
) -> Result<Vec<T>, Errors> {
    let problem = |place: &Place, fault: Fault| Problem::new(file, text, place, fault);
    let trees = yaml::documents(text).map_err(|syntax| {
        let place = Place { path: String::new(), mark: syntax.mark };
        let fault = Fault::new(0, format!("not YAML: {}", syntax.message));
        Errors::new(vec![problem(&place, Fault { help: syntax.help().map(str::to_owned), ..fault })])
    })?;
    let (mut problems, mut more) = (Vec::new(), 0);
    let mut taken = Vec::new();
    for tree in &trees {
        let mut document = || {
            if let Some(fault) = other_kind(tree, kind) {
                return Err((vec![fault], 0));
            }
            let faults = RefCell::new(Faults::default());
            let document = Slot::<D>::deserialize(Reader::new(&tree.root, &faults)).unwrap_or(Slot::Wrong);
            let mut check = Check::new(&tree.places, (file, Written::File), faults.into_inner()).below(most);
            let taken = take(document, &mut check);
            let faults = check.into_faults();
            taken.filter(|_| faults.count() == 0).ok_or_else(|| faults.into_parts())
        };
        match document() {
            Ok(one) => taken.push(one),
            Err((faults, others)) => {
                more += others;
                let placed = faults.into_iter().filter_map(|fault| tree.places.get(fault.place).zip(Some(fault)));
                problems.extend(placed.map(|(place, fault)| problem(place, fault)));
            }
        }
    }
    if trees.is_empty() {
        let fault = Fault::new(0, format!("found no document; expected one of `{API_VERSION} {kind}`"));
        problems.push(problem(&Place::start(), fault));
    }
    if problems.is_empty() { Ok(taken) } else { Err(Errors::new(problems).and(more)) }
}

/// Says what is wrong with a document of another kind. Nothing else about it is worth telling.
fn other_kind(tree: &Tree, expected: &str) -> Option<Fault> {
    if !matches!(tree.root.value, Value::Map(_)) {
        let message = format!("found {}; expected a document of `{API_VERSION} {expected}`", tree.root);
        return Some(Fault::new(tree.root.place, message));
    }
    let wrong = |name: &str, right: &str| match tree.field(name) {
        Some(node) if node.text() == Some(right) => None,
        Some(node) => Some((node.place, format!("found {node}"))),
        None => Some((tree.root.place, format!("the field `{name}` is missing"))),
    };
    let (place, found) = match wrong("apiVersion", API_VERSION) {
        Some((place, found)) => match tree.field("kind").and_then(|node| node.text()) {
            Some(kind) if kind != expected => (place, format!("{found} in a document of kind `{kind}`")),
            Some(_) | None => (place, found),
        },
        None => wrong("kind", expected)?,
    };
    Some(Fault::new(place, format!("{found}; expected `apiVersion: {API_VERSION}` and `kind: {expected}`")))
}
