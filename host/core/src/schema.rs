//! Decides which fields the objects of a kind have, by its schema: what of a path to a field is certainly not there.
//!
//! A schema is the structural one of a `CustomResourceDefinition`, or the same as the API server publishes it, with `$ref` and
//! `allOf`. Whatever it leaves open is taken to be there.

use serde_json::{Map, Value};

use crate::budget::{self, Budget, Exceeded, LEVELS};
use crate::object::{Gvk, Scope};

mod admission;
mod definition;
mod document;
mod drift;
mod spelling;
mod structural;
mod typed;

pub use admission::{Nulls, Unfit};
pub use definition::{Definition, definitions};
pub use drift::drift;
pub use spelling::misspelt;
pub use structural::{Misfit, structural};
pub use typed::{Untyped, typed};

/// What is known of a kind as it is served.
pub struct Kind<'d> {
    /// Where its objects live.
    pub scope: Scope,
    /// Its fields; `None`: any.
    pub schema: Option<Schema<'d>>,
    /// The fields by which its objects can be selected, beside name and namespace; `None`: that is not known.
    pub selectable: Option<Vec<String>>,
    /// Whether its status is a subresource; `None`: that is not known.
    pub status: Option<bool>,
}

/// What is known of a kind in one of its versions.
pub enum Known<'k> {
    /// Nothing.
    Nothing,
    /// It is served, as this.
    Served(&'k Kind<'k>),
    /// It is served in these other versions alone.
    Otherwise(Vec<&'k str>),
}

/// The fields of a kind.
pub struct Schema<'d> {
    root: Value,
    /// The published document that has what the schema refers to; `None`: it refers to nothing.
    document: Option<&'d str>,
}

/// Why a path leads to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// The number of names that lead to something; the next one does not.
    pub known: usize,
    /// What these lead to.
    pub holder: Holder,
}

/// What has no field of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// An object with these fields.
    Object(Vec<String>),
    /// A list.
    List,
    /// A value of this type, which has no fields.
    Scalar(&'static str),
}

/// What a schema says of a path.
enum Found {
    /// Nothing.
    Silent,
    /// That something may be there.
    Open,
    /// That something is there.
    There,
    /// That nothing is there.
    Lacks(Lack),
}

/// The fields of the metadata of any object.
const METADATA: [&str; 15] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// What marks a place of a schema where more may be than it says.
const OPEN: [&str; 3] =
    ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource", "x-kubernetes-int-or-string"];

/// What a reference within a published document begins with.
const SHARED: &str = "#/components/schemas/";

// === impl Schema ===

impl Schema<'static> {
    /// Returns the schema that a definition has.
    pub fn of(root: Value) -> Self {
        Self { root, document: None }
    }
}

impl<'d> Schema<'d> {
    /// Returns the schema of a kind out of the document that the API server publishes of its group and version; `None` if it
    /// has none.
    ///
    /// # Errors
    /// [`budget::Error`] if it is no such document, or costs too much.
    pub fn published(document: &'d str, gvk: &Gvk, budget: &mut Budget) -> Result<Option<Self>, budget::Error> {
        let root = document::of_kind(document, gvk, budget)?;
        Ok(root.map(|root| Self { root, document: Some(document) }))
    }

    /// Returns why a path leads to nothing; `None` if it leads to something, or may.
    ///
    /// # Errors
    /// [`Exceeded`] if that costs too much.
    ///
    /// ```
    /// # use capstan_core::budget::Budget;
    /// # use capstan_core::schema::{Holder, Lack, Schema};
    /// # use serde_json::json;
    /// let spec = json!({ "type": "object", "properties": { "title": { "type": "string" } } });
    /// let schema = Schema::of(json!({ "type": "object", "properties": { "spec": spec } }));
    /// let lack = |path: &[&str]| schema.lack(path, &mut Budget::of(100)).unwrap();
    /// assert_eq!(lack(&["spec", "title"]), None);
    /// assert_eq!(lack(&["spec", "titel"]), Some(Lack { known: 1, holder: Holder::Object(vec!["title".to_owned()]) }));
    /// ```
    pub fn lack(&self, path: &[&str], budget: &mut Budget) -> Result<Option<Lack>, Exceeded> {
        match path {
            [] | ["apiVersion" | "kind", ..] | ["metadata"] => return Ok(None),
            ["metadata", name, ..] => {
                let lack = || Lack { known: 1, holder: Holder::Object(METADATA.map(str::to_owned).to_vec()) };
                return Ok((!METADATA.contains(name)).then(lack));
            }
            [..] => {}
        }
        let found = self.look(&self.root, path, (0, 0), budget)?;
        let Found::Lacks(mut lack) = found else {
            return Ok(None);
        };
        if let (0, Holder::Object(names)) = (lack.known, &mut lack.holder) {
            let always = ["apiVersion", "kind", "metadata"].map(str::to_owned);
            names.extend(always.into_iter().filter(|name| !names.contains(name)).collect::<Vec<_>>());
        }
        Ok(Some(lack))
    }

    /// Returns true if the list at a path is a map by one key, so that those who apply its entries own theirs alone.
    ///
    /// # Errors
    /// [`Exceeded`] if that costs too much.
    pub fn is_map_by(&self, key: &str, path: &[&str], budget: &mut Budget) -> Result<bool, Exceeded> {
        self.says_map(&self.root, (path, key), (0, 0), budget)
    }

    /// Returns true if something that `node` says of the path from its name `at` on is that a map by a key is there.
    fn says_map(
        &self,
        node: &Value,
        (path, key): (&[&str], &str),
        (at, level): (usize, usize),
        budget: &mut Budget,
    ) -> Result<bool, Exceeded> {
        budget.step(1)?;
        let Some(node) = node.as_object().filter(|_| level <= LEVELS) else {
            return Ok(false);
        };
        let found = match path.get(at).map(|name| below(node, name)) {
            None => maps_by(node, key),
            Some(Below::Node(node)) => self.says_map(node, (path, key), (at + 1, level + 1), budget)?,
            Some(Below::Open | Below::Silent | Below::Nothing(_)) => false,
        };
        if found {
            return Ok(true);
        }
        for part in node.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            if self.says_map(part, (path, key), (at, level + 1), budget)? {
                return Ok(true);
            }
        }
        match node.get("$ref").and_then(Value::as_str).map(|reference| self.shared(reference, budget)).transpose()? {
            Some(Some(node)) => self.says_map(&node, (path, key), (at, level + 1), budget),
            Some(None) | None => Ok(false),
        }
    }

    /// Says what `node` knows of the path from its name `at` on. `level` is how deep that is in the document, with what it
    /// refers to.
    fn look(
        &self,
        node: &Value,
        path: &[&str],
        (at, level): (usize, usize),
        budget: &mut Budget,
    ) -> Result<Found, Exceeded> {
        budget.step(1)?;
        let Some(name) = path.get(at) else {
            return Ok(Found::There);
        };
        let Value::Object(node) = node else {
            return Ok(Found::Open);
        };
        if level > LEVELS || is_open(node) {
            return Ok(Found::Open);
        }
        let mut found = match below(node, name) {
            Below::Node(node) => match self.look(node, path, (at + 1, level + 1), budget)? {
                Found::Silent => Found::Open,
                found @ (Found::Open | Found::There | Found::Lacks(_)) => found,
            },
            Below::Open => Found::Open,
            Below::Silent => Found::Silent,
            Below::Nothing(holder) => Found::Lacks(Lack { known: at, holder: holder.listed(budget)? }),
        };
        for part in node.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            found = found.and(self.look(part, path, (at, level + 1), budget)?);
        }
        if let Some(reference) = node.get("$ref").and_then(Value::as_str) {
            let more = match self.shared(reference, budget)? {
                Some(node) => self.look(&node, path, (at, level + 1), budget)?,
                None => Found::Open,
            };
            found = found.and(more);
        }
        Ok(found)
    }

    /// Returns what a reference leads to; `None` if that can't be told.
    fn shared(&self, reference: &str, budget: &mut Budget) -> Result<Option<Value>, Exceeded> {
        let (Some(wanted), Some(document)) = (reference.strip_prefix(SHARED), self.document) else {
            return Ok(None);
        };
        match document::named(document, wanted, budget) {
            Ok(read) => Ok(read),
            Err(budget::Error::Json(_)) => Ok(None),
            Err(budget::Error::Exceeded(exceeded)) => Err(exceeded),
        }
    }
}

// === one place of a schema ===

/// What is below a place under a name.
enum Below<'n> {
    Node(&'n Value),
    Open,
    Silent,
    Nothing(Without<'n>),
}

/// What has no field of a name.
enum Without<'n> {
    Object(&'n Map<String, Value>),
    Other(Holder),
}

fn maps_by(node: &Map<String, Value>, key: &str) -> bool {
    let keys = node.get("x-kubernetes-list-map-keys").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    node.get("x-kubernetes-list-type").is_some_and(|kind| *kind == *"map") && matches!(keys, [one] if *one == *key)
}

fn is_open(node: &Map<String, Value>) -> bool {
    let more = node.get("additionalProperties").is_some_and(|more| *more != Value::Bool(false));
    more || OPEN.iter().any(|mark| node.get(*mark) == Some(&Value::Bool(true)))
}

fn below<'n>(node: &'n Map<String, Value>, name: &str) -> Below<'n> {
    if let Some(fields) = node.get("properties").and_then(Value::as_object).filter(|fields| !fields.is_empty()) {
        return fields.get(name).map_or(Below::Nothing(Without::Object(fields)), Below::Node);
    }
    let scalar = |name| Below::Nothing(Without::Other(Holder::Scalar(name)));
    match node.get("type").and_then(Value::as_str) {
        Some("array") if name.parse::<usize>().is_ok() => node.get("items").map_or(Below::Open, Below::Node),
        Some("array") => Below::Nothing(Without::Other(Holder::List)),
        Some("string") => scalar("text"),
        Some("integer" | "number") => scalar("number"),
        Some("boolean") => scalar("truth value"),
        Some(_) | None => Below::Silent,
    }
}

impl Without<'_> {
    /// Returns it with the names that it has, which are paid for.
    fn listed(self, budget: &mut Budget) -> Result<Holder, Exceeded> {
        match self {
            Self::Other(holder) => Ok(holder),
            Self::Object(fields) => {
                fields.keys().try_for_each(|name| budget.text(name.len()))?;
                Ok(Holder::Object(fields.keys().cloned().collect()))
            }
        }
    }
}

impl Found {
    /// Returns what two parts of a schema say together, of which both hold.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::There, _) | (_, Self::There) => Self::There,
            (Self::Open, _) | (_, Self::Open) => Self::Open,
            (Self::Silent, said) | (said, Self::Silent) => said,
            (Self::Lacks(one), Self::Lacks(other)) => Self::Lacks(one.and(other)),
        }
    }
}

impl Lack {
    fn and(self, other: Self) -> Self {
        match (self.holder, other.holder) {
            (Holder::Object(mut names), Holder::Object(more)) if self.known == other.known => {
                names.extend(more);
                Self { known: self.known, holder: Holder::Object(names) }
            }
            (_, holder) if other.known > self.known => Self { known: other.known, holder },
            (holder, _) => Self { known: self.known, holder },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn gvk(kind: &str) -> Gvk {
        Gvk::parse("sample.dev/v1", kind).unwrap()
    }

    /// Writes what a schema lacks of the path of a JSON pointer: the names that lead to something, and what that is.
    fn lack(schema: &Schema<'_>, pointer: &str) -> Option<String> {
        let path: Vec<&str> = pointer.split('/').skip(1).collect();
        let lack = schema.lack(&path, &mut Budget::of_run()).unwrap()?;
        let holder = match lack.holder {
            Holder::Object(names) => names.join(" "),
            Holder::List => "a list".to_owned(),
            Holder::Scalar(name) => name.to_owned(),
        };
        Some(format!("{}: {holder}", lack.known))
    }

    fn holds(schema: &Schema<'_>, table: &[(&str, Option<&str>)]) {
        for (pointer, expected) in table {
            assert_eq!(lack(schema, pointer).as_deref(), *expected, "{pointer}");
        }
    }

    /// SC-5
    #[test]
    fn a_list_is_a_map_by_a_key_if_any_part_of_the_schema_says_so() {
        let map = json!({ "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"] });
        let two =
            json!({ "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type", "name"] });
        let status = json!({ "properties": {
            "map": map, "part": { "allOf": [{ "description": "it is" }, map] }, "two": two,
            "atomic": { "type": "array", "x-kubernetes-list-type": "atomic" }, "plain": { "type": "array" }, "text": { "type": "string" },
        } });
        let schema = Schema::of(json!({ "properties": { "status": { "allOf": [status] } } }));
        let is_map = |name| schema.is_map_by("type", &["status", name], &mut Budget::of(100)).unwrap();
        let found = ["map", "part", "two", "atomic", "plain", "text", "none"].map(is_map);
        assert_eq!(found, [true, true, false, false, false, false, false]);
        let referred = json!({ "components": { "schemas": {
            "dev.sample.v1.Page": { "type": "object", "properties": { "status": { "$ref": "#/components/schemas/Status" } }, "x-kubernetes-group-version-kind": [{ "group": "sample.dev", "version": "v1", "kind": "Page" }] },
            "Status": { "type": "object", "properties": { "map": map } },
        } } }).to_string();
        let schema = Schema::published(&referred, &gvk("Page"), &mut Budget::of_run()).unwrap().unwrap();
        assert_eq!(schema.is_map_by("type", &["status", "map"], &mut Budget::of_run()), Ok(true));
        assert_eq!(schema.is_map_by("type", &["status", "map"], &mut Budget::of(2)), Err(Exceeded::Steps(2)));
    }

    /// LC-14
    #[test]
    fn a_field_that_a_structural_schema_does_not_have_is_found_and_nothing_where_it_leaves_more_open() {
        let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": { "a": {} } });
        let embedded =
            json!({ "type": "object", "x-kubernetes-embedded-resource": true, "properties": { "spec": {} } });
        let closed =
            json!({ "type": "object", "additionalProperties": false, "properties": { "a": { "type": "integer" } } });
        let spec = json!({ "type": "object", "properties": {
            "title": { "type": "string" },
            "exposed": { "type": "boolean" },
            "hosts": { "type": "array", "items": { "type": "object", "properties": { "name": { "type": "string" } } } },
            "labels": { "type": "object", "additionalProperties": { "type": "string" } },
            "port": { "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] },
            "anything": { "type": "object" },
            "unknown": {},
            "open": open, "template": embedded, "closed": closed,
        } });
        let schema = Schema::of(json!({ "type": "object", "properties": { "spec": spec } }));
        let names = "1: anything closed exposed hosts labels open port template title unknown";
        holds(
            &schema,
            &[
                ("", None),
                ("/spec", None),
                ("/spec/title", None),
                ("/spec/titel", Some(names)),
                ("/spec/titel/deeper", Some(names)),
                ("/status", Some("0: spec apiVersion kind metadata")),
                ("/spec/title/a", Some("2: text")),
                ("/spec/exposed/a", Some("2: truth value")),
                ("/spec/hosts/0/name", None),
                ("/spec/hosts/0/nam", Some("3: name")),
                ("/spec/hosts/name", Some("2: a list")),
                ("/spec/labels/any", None),
                ("/spec/port/any", None),
                ("/spec/anything/any", None),
                ("/spec/unknown/any", None),
                ("/spec/open/any", None),
                ("/spec/template/any", None),
                ("/spec/closed/b", Some("2: a")),
                ("/spec/closed/a/b", Some("3: number")),
                ("/apiVersion", None),
                ("/apiVersion/any", None),
                ("/kind", None),
                ("/metadata", None),
                ("/metadata/labels/app", None),
                ("/metadata/managedFields", None),
                ("/metadata/lables", Some(&format!("1: {}", METADATA.join(" ")))),
            ],
        );
        let all_open = Schema::of(json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }));
        holds(&all_open, &[("/spec/any", None), ("/metadata/lables", Some(&format!("1: {}", METADATA.join(" "))))]);
    }

    fn published(schemas: &Value) -> String {
        json!({ "openapi": "3.0.0", "paths": { "/apis": {} }, "components": { "schemas": schemas } }).to_string()
    }

    fn page(spec: &Value) -> Value {
        let metadata = json!({ "allOf": [{ "$ref": "#/components/schemas/Meta" }] });
        json!({
            "type": "object",
            "properties": { "spec": spec, "metadata": metadata },
            "x-kubernetes-group-version-kind": [{ "group": "sample.dev", "version": "v1", "kind": "Page" }],
        })
    }

    /// LC-14
    #[test]
    fn a_published_schema_has_the_fields_of_all_that_it_refers_to() {
        let refer = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
        let spec = json!({ "default": {}, "allOf": [refer("Spec"), { "description": "…" }] });
        let document = published(&json!({
            "Page": page(&spec),
            "Spec": { "type": "object", "properties": {
                "title": { "type": "string" }, "tree": refer("Tree"), "away": refer("Nowhere"), "size": refer("Quantity"),
            } },
            "Tree": { "type": "object", "properties": { "left": refer("Tree"), "both": { "allOf": [refer("One"), refer("Two")] } } },
            "One": { "type": "object", "properties": { "a": {} } },
            "Two": { "type": "object", "properties": { "b": {} } },
            "Quantity": { "oneOf": [{ "type": "string" }, { "type": "number" }] },
        }));
        let budget = &mut Budget::of_run();
        let schema = Schema::published(&document, &gvk("Page"), budget).unwrap().unwrap();
        holds(
            &schema,
            &[
                ("/spec/title", None),
                ("/spec/titel", Some("1: away size title tree")),
                ("/spec/tree/left/left/both/b", None),
                ("/spec/tree/left/left/both/c", Some("5: a b")),
                ("/spec/tree/left/right", Some("3: both left")),
                ("/spec/away/any", None),
                ("/spec/size/any", None),
                ("/metadata/name", None),
            ],
        );
        assert!(Schema::published(&document, &gvk("Other"), budget).unwrap().is_none());
        let other = Gvk::parse("sample.dev/v2", "Page").unwrap();
        assert!(Schema::published(&document, &other, budget).unwrap().is_none());
        for text in ["{}", "[]", "{\"components\": {\"schemas\": 1}}", "<html>"] {
            assert!(Schema::published(text, &other, budget).is_err(), "{text}");
        }
    }

    /// LC-14
    #[test]
    fn references_that_lead_nowhere_but_to_each_other_cost_no_more_than_the_budget() {
        let refer = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
        let both = json!({ "allOf": [refer("A"), refer("B")] });
        let document = published(&json!({ "Page": page(&refer("A")), "A": refer("B"), "B": refer("A"), "C": both }));
        let schema = Schema::published(&document, &gvk("Page"), &mut Budget::of_run()).unwrap().unwrap();
        assert_eq!(lack(&schema, "/spec/any"), None, "they end at a level");
        let document = published(&json!({ "Page": page(&refer("A")), "A": both, "B": both }));
        let schema = Schema::published(&document, &gvk("Page"), &mut Budget::of_run()).unwrap().unwrap();
        let looked = schema.lack(&["spec", "any"], &mut Budget::of(100_000));
        assert_eq!(looked, Err(Exceeded::Steps(100_000)));
    }

    /// LC-14
    #[test]
    fn a_path_of_any_length_and_a_schema_of_any_depth_are_borne_by_the_stack_of_a_task() {
        let refer = json!({ "$ref": "#/components/schemas/Tree" });
        let document = published(&json!({
            "Page": page(&refer),
            "Tree": { "type": "object", "properties": { "a": { "allOf": [{ "allOf": [refer] }] } } },
        }));
        let path: Vec<&str> = ["spec"].into_iter().chain(std::iter::repeat_n("a", 100_000)).collect();
        let looked = std::thread::Builder::new().stack_size(1 << 20).spawn(move || {
            let schema = Schema::published(&document, &gvk("Page"), &mut Budget::of_run()).unwrap().unwrap();
            schema.lack(&path, &mut Budget::of_run())
        });
        assert_eq!(looked.unwrap().join().unwrap(), Ok(None));
    }
}
