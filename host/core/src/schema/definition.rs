//! Reads files of `CustomResourceDefinition`s: which versions of which kinds they define, and how these are.

use std::path::Path;

use super::{Kind, Known, Schema};
use crate::object::{Gvk, Scope};
use crate::yaml::{self, Errors, Fault, Node, Place, Problem};

/// A kind that is defined, in all of its versions.
pub struct Definition {
    group: String,
    kind: String,
    /// What several of it are called; a file may be without it, an API server refuses that.
    plural: Option<String>,
    scope: Scope,
    versions: Vec<Version>,
}

/// One version of a kind.
struct Version {
    name: String,
    served: bool,
    kind: Kind<'static>,
}

/// Whether objects have more fields than the schema says.
#[derive(Clone, Copy)]
enum Form {
    Open,
    Structural,
}

/// The most nodes of a file: some definitions have tens of thousands each.
const NODES: usize = 250_000;

const API_VERSION: &str = "apiextensions.k8s.io/v1";
const KIND: &str = "CustomResourceDefinition";

/// Returns the definitions that a file has, in YAML or JSON. `file` is named in errors. Documents of other kinds are passed over, as
/// they may stand beside definitions in what is installed.
///
/// # Errors
/// [`Errors`] with all that is wrong, each with its place.
///
/// ```
/// # use std::path::Path;
/// # use capstan_core::schema::definitions;
/// let wrong = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec: { group: sample.dev, names: { kind: Page } }\n";
/// let errors = definitions(wrong, Path::new("crd.yaml")).err().unwrap();
/// assert!(errors.to_string().starts_with("crd.yaml:3:1: spec: the field `scope` is missing"));
/// ```
pub fn definitions(text: &str, file: &Path) -> Result<Vec<Definition>, Errors> {
    let problem = |place: &Place, fault: Fault| Problem::new(file, text, place, fault);
    let trees = yaml::documents_within(text, NODES).map_err(|syntax| {
        let place = Place { path: String::new(), mark: syntax.mark };
        let fault = Fault::new(0, format!("neither YAML nor JSON: {}", syntax.message));
        Errors::new(vec![problem(&place, Fault { help: syntax.help().map(str::to_owned), ..fault })])
    })?;
    let (mut found, mut problems, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for tree in &trees {
        let placed = |fault: Fault| tree.places.get(fault.place).map(|place| problem(place, fault));
        for document in one_by_one(&tree.root) {
            match definition(document) {
                Ok(Some(definition)) => found.push(definition),
                Ok(None) => others.extend(placed(other(document))),
                Err(fault) => problems.extend(placed(fault)),
            }
        }
    }
    if found.is_empty() && problems.is_empty() {
        let nothing = || problem(&Place::start(), Fault::new(0, format!("found no document; expected a {KIND}")));
        problems.push(others.into_iter().next().unwrap_or_else(nothing));
    }
    if problems.is_empty() { Ok(found) } else { Err(Errors::new(problems)) }
}

/// Returns a document, or what it lists.
fn one_by_one(document: &Node) -> Vec<&Node> {
    let lists = document.field("kind").and_then(Node::text).is_some_and(|kind| kind.ends_with("List"));
    match document.field("items") {
        Some(items) if lists && !items.items().is_empty() => items.items().iter().collect(),
        Some(_) | None => vec![document],
    }
}

/// Says that something is no definition.
fn other(document: &Node) -> Fault {
    let (place, found) = match document.field("kind") {
        Some(kind) => (kind.place, kind.to_string()),
        None => (document.place, format!("{document} without a `kind`")),
    };
    Fault::new(place, format!("found {found}; expected a {KIND}"))
}

/// Returns the definition that a document is; none if it is something else.
fn definition(document: &Node) -> Result<Option<Definition>, Fault> {
    if document.field("kind").and_then(Node::text) != Some(KIND) {
        return Ok(None);
    }
    let api_version = field(document, "apiVersion")?;
    if api_version.text() != Some(API_VERSION) {
        return Err(Fault::new(api_version.place, format!("found {api_version}; expected `{API_VERSION}`")));
    }
    let spec = field(document, "spec")?;
    let scope = field(spec, "scope")?;
    let scope = match scope.text() {
        Some("Namespaced") => Scope::Namespaced,
        Some("Cluster") => Scope::Cluster,
        Some(_) | None => {
            return Err(Fault::new(scope.place, format!("found {scope}; expected `Namespaced` or `Cluster`")));
        }
    };
    // What was made as a v1beta1 may keep what its schema does not have.
    let keeps_all =
        matches!(spec.field("preserveUnknownFields").map(|field| &field.value), Some(yaml::Value::Bool(true)));
    let form = if keeps_all { Form::Open } else { Form::Structural };
    let versions = field(spec, "versions")?.items().iter().map(|node| version(node, scope, form));
    let names = field(spec, "names")?;
    Ok(Some(Definition {
        group: text(spec, "group")?,
        kind: text(names, "kind")?,
        plural: names.field("plural").map(|_| text(names, "plural")).transpose()?,
        scope,
        versions: versions.collect::<Result<_, _>>()?,
    }))
}

fn version(node: &Node, scope: Scope, form: Form) -> Result<Version, Fault> {
    let served = field(node, "served")?;
    let yaml::Value::Bool(is_served) = served.value else {
        return Err(Fault::new(served.place, format!("found {served}; expected `true` or `false`")));
    };
    let schema = match form {
        Form::Open => None,
        Form::Structural => node.field("schema").and_then(|schema| schema.field("openAPIV3Schema")),
    };
    let selectable = node.field("selectableFields").map(Node::items).unwrap_or_default().iter();
    let selectable = selectable.map(|field| Ok(text(field, "jsonPath")?.trim_start_matches('.').to_owned()));
    let kind = Kind {
        scope,
        schema: schema.map(|schema| Schema::of(schema.json())),
        selectable: Some(selectable.collect::<Result<_, Fault>>()?),
        status: Some(node.field("subresources").is_some_and(|all| all.field("status").is_some())),
    };
    Ok(Version { name: text(node, "name")?, served: is_served, kind })
}

fn field<'n>(node: &'n Node, name: &str) -> Result<&'n Node, Fault> {
    node.field(name).ok_or_else(|| Fault::new(node.place, format!("the field `{name}` is missing")))
}

fn text(node: &Node, name: &str) -> Result<String, Fault> {
    let field = field(node, name)?;
    let wrong = || Fault::new(field.place, format!("found {field}; expected a text"));
    field.text().filter(|text| !text.is_empty()).map(str::to_owned).ok_or_else(wrong)
}

// === impl Definition ===

impl Definition {
    /// Returns what these definitions say of a kind.
    pub fn known<'k>(all: &'k [Self], gvk: &Gvk) -> Known<'k> {
        let mut versions = all.iter().filter(|one| one.defines(gvk)).flat_map(|one| &one.versions).peekable();
        if versions.peek().is_none() {
            return Known::Nothing;
        }
        let served: Vec<_> = versions.filter(|version| version.served).collect();
        let this = served.iter().find(|version| *version.name == *gvk.version);
        match this {
            Some(version) => Known::Served(&version.kind),
            None => Known::Otherwise(served.iter().map(|version| &*version.name).collect()),
        }
    }

    /// Returns what several of a kind are called, if one of these definitions says it.
    pub fn plural<'k>(all: &'k [Self], gvk: &Gvk) -> Option<&'k str> {
        all.iter().filter(|one| one.defines(gvk)).find_map(|one| one.plural.as_deref())
    }

    /// Returns the kind without a version, `Page.sample.dev`; what several of it are called, if that is said; and where it lives.
    pub fn names(&self) -> (String, Option<&str>, Scope) {
        (format!("{}.{}", self.kind, self.group), self.plural.as_deref(), self.scope)
    }

    fn defines(&self, gvk: &Gvk) -> bool {
        (&*self.group, &*self.kind) == (&*gvk.group, &*gvk.kind)
    }

    /// Returns its name, and the versions that are served: `Page.sample.dev (v1, v2)`.
    pub fn name(&self) -> String {
        let served = self.versions.iter().filter(|version| version.served).map(|version| &*version.name);
        let versions = served.collect::<Vec<_>>().join(", ");
        let versions = if versions.is_empty() { "no version is served" } else { &versions };
        format!("{}.{} ({versions})", self.kind, self.group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;

    const PAGE: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: pages.sample.dev }
spec:
  group: sample.dev
  names: { kind: Page, plural: pages }
  scope: Namespaced
  versions:
    - name: v1
      served: true
      storage: true
      schema: { openAPIV3Schema: { type: object, properties: { spec: { type: object, properties: { title: { type: string } } } } } }
      selectableFields: [{ jsonPath: .spec.title }]
    - { name: v1alpha1, served: false, storage: false }
";

    fn read(text: &str) -> Result<Vec<Definition>, String> {
        definitions(text, Path::new("crd.yaml")).map_err(|errors| errors.to_string())
    }

    /// Writes what is known of a kind.
    fn known(all: &[Definition], api_version: &str) -> String {
        match Definition::known(all, &Gvk::parse(api_version, "Page").unwrap()) {
            Known::Nothing => "nothing".to_owned(),
            Known::Otherwise(versions) => format!("otherwise: {}", versions.join(" ")),
            Known::Served(Kind { scope, schema, selectable, status: _ }) => {
                let lack =
                    schema.as_ref().and_then(|schema| schema.lack(&["spec", "titel"], &mut Budget::of(100)).unwrap());
                format!("{scope:?} {} {:?}", lack.is_some(), selectable.as_ref().unwrap())
            }
        }
    }

    /// LC-14
    #[test]
    fn definitions_are_read_from_yaml_and_json_one_by_one_and_in_lists_beside_other_documents() {
        let json = yaml::documents(PAGE).ok().unwrap().first().unwrap().root.json().to_string();
        let tabs = "{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"List\",\n\t\"items\": [\n\t";
        let other = "apiVersion: v1\nkind: Namespace\nmetadata: { name: a }\n";
        for text in [PAGE, &json, &format!("{tabs}{json}\n\t]\n}}\n"), &format!("{other}---\n{PAGE}---\n{other}")] {
            let all = read(text).unwrap();
            let names: Vec<_> = all.iter().map(Definition::name).collect();
            assert_eq!(names, ["Page.sample.dev (v1)"], "{text}");
            let page = Gvk::parse("sample.dev/v1", "Page").unwrap();
            assert_eq!(Definition::plural(&all, &page), Some("pages"), "{text}");
            for (api_version, expected) in [
                ("sample.dev/v1", "Namespaced true [\"spec.title\"]"),
                ("sample.dev/v1alpha1", "otherwise: v1"),
                ("sample.dev/v2", "otherwise: v1"),
                ("other.dev/v1", "nothing"),
            ] {
                assert_eq!(known(&all, api_version), expected, "{api_version} in {text}");
            }
        }
    }

    #[test]
    fn a_definition_is_read_as_kubectl_reads_it() {
        let all = read(&PAGE.replace("served: true", "served: yes")).unwrap();
        assert_eq!(known(&all, "sample.dev/v1"), "Namespaced true [\"spec.title\"]");
    }

    /// LC-14
    #[test]
    fn a_definition_that_keeps_unknown_fields_leaves_all_of_them_open() {
        let all = read(&PAGE.replace("scope:", "preserveUnknownFields: true\n  scope:")).unwrap();
        assert_eq!(known(&all, "sample.dev/v1"), "Namespaced false [\"spec.title\"]");
    }

    /// LC-14
    #[test]
    fn a_file_that_has_no_definition_is_refused_with_file_and_line() {
        let replaced = |from: &str, to: &str| PAGE.replace(from, to);
        for (text, expected) in [
            (String::new(), "crd.yaml:1:1: found no document; expected a CustomResourceDefinition"),
            ("a".to_owned(), "crd.yaml:1:1: found `a` without a `kind`; expected a CustomResourceDefinition"),
            ("kind: [".to_owned(), "crd.yaml:1:7: neither YAML nor JSON: "),
            (
                "apiVersion: v1\nkind: Pod\n".to_owned(),
                "crd.yaml:2:7: kind: found `Pod`; expected a CustomResourceDefinition",
            ),
            (
                replaced("k8s.io/v1", "k8s.io/v1beta1"),
                "crd.yaml:1:13: apiVersion: found `apiextensions.k8s.io/v1beta1`; expected `apiextensions.k8s.io/v1`",
            ),
            (
                replaced("scope: Namespaced", "scope: All"),
                "crd.yaml:7:10: spec.scope: found `All`; expected `Namespaced` or `Cluster`",
            ),
            (replaced("  group: sample.dev\n", ""), "crd.yaml:4:1: spec: the field `group` is missing"),
            (
                replaced("served: true", "served: maybe"),
                "crd.yaml:10:15: spec.versions[0].served: found `maybe`; expected `true` or `false`",
            ),
        ] {
            let said = read(&text).err().unwrap();
            assert!(said.starts_with(expected), "{said}");
        }
    }
}
