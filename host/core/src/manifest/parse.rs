//! Turns a file into operators: all documents are read, and all that is wrong in any of them is reported at once.

use std::cell::RefCell;
use std::path::Path;

use serde::Deserialize;

use super::Operator;
use super::check::Check;
use super::raw::Document;
use crate::yaml::{self, Errors, Fault, Place, Problem, Reader, Slot, Tree, Value};

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
    let problem = |place: &Place, fault: Fault| Problem::new(file, text, place, fault);
    let trees = yaml::documents(text).map_err(|syntax| {
        let place = Place { path: String::new(), mark: syntax.mark };
        Errors::new(vec![problem(&place, Fault::new(0, format!("not YAML: {}", syntax.message)))])
    })?;
    let mut problems = Vec::new();
    let mut operators = Vec::new();
    for tree in &trees {
        match document(tree, file) {
            Ok(operator) => operators.push(operator),
            Err(faults) => {
                let placed = faults.into_iter().filter_map(|fault| tree.places.get(fault.place).zip(Some(fault)));
                problems.extend(placed.map(|(place, fault)| problem(place, fault)));
            }
        }
    }
    if trees.is_empty() {
        let fault = Fault::new(0, format!("found no document; expected one of `{API_VERSION} {KIND}`"));
        problems.push(problem(&Place::start(), fault));
    }
    if problems.is_empty() { Ok(operators) } else { Err(Errors::new(problems)) }
}

const API_VERSION: &str = "capstan.dev/v1alpha1";
const KIND: &str = "Operator";

fn document(tree: &Tree, file: &Path) -> Result<Operator, Vec<Fault>> {
    if let Some(fault) = other_kind(tree) {
        return Err(vec![fault]);
    }
    let faults = RefCell::new(Vec::new());
    let document = Slot::<Document>::deserialize(Reader::new(&tree.root, &faults)).unwrap_or(Slot::Wrong);
    let mut check = Check::new(&tree.places, file, faults.into_inner());
    let operator = check.operator(&document);
    let faults = check.into_faults();
    match operator {
        Some(operator) if faults.is_empty() => Ok(operator),
        Some(_) | None => Err(faults),
    }
}

/// Says what is wrong with a document that is not an operator's. Nothing else about it is worth telling.
fn other_kind(tree: &Tree) -> Option<Fault> {
    if !matches!(tree.root.value, Value::Map(_)) {
        let message = format!("found {}; expected a document of `{API_VERSION} {KIND}`", tree.root);
        return Some(Fault::new(tree.root.place, message));
    }
    let wrong = |name: &str, right: &str| match tree.field(name) {
        Some(node) if node.text() == Some(right) => None,
        Some(node) => Some((node.place, format!("found {node}"))),
        None => Some((tree.root.place, format!("the field `{name}` is missing"))),
    };
    let (place, found) = match wrong("apiVersion", API_VERSION) {
        Some((place, found)) => match tree.field("kind").and_then(|node| node.text()) {
            Some(kind) if kind != KIND => (place, format!("{found} in a document of kind `{kind}`")),
            Some(_) | None => (place, found),
        },
        None => wrong("kind", KIND)?,
    };
    Some(Fault::new(place, format!("{found}; expected `apiVersion: {API_VERSION}` and `kind: {KIND}`")))
}
