//! Says what an author's types are, for `capstan crd`, which makes the `CustomResourceDefinition` of it. Needs the feature `types`.
//!
//! The schema is that of [schemars](https://docs.rs/schemars), with its attributes; what it does not know of stands in `#[resource(…)]`:
//!
//! ```
//! use capstan_guest::Metadata;
//! use capstan_guest::types::Resource;
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//! # use serde_json::json;
//!
//! /// A greeting.
//! #[derive(Deserialize, JsonSchema, Resource)]
//! #[resource(api_version = "example.com/v1alpha1", short_names("gr"), conditions)]
//! #[resource(column("Ready", r#".status.conditions[?(@.type=="Ready")].status"#), column("Size", ".spec.size", priority = 1))]
//! pub struct Greeting {
//!     pub metadata: Metadata,
//!     pub spec: Spec,
//! }
//!
//! #[derive(Deserialize, JsonSchema)]
//! pub struct Spec {
//!     /// Who is greeted.
//!     #[schemars(length(min = 1, max = 63))]
//!     pub name: String,
//!     pub size: Option<u16>,
//! }
//! # let said = capstan_guest::types::said::<Greeting>();
//! # assert_eq!((&said["kind"], &said["shortNames"], &said["conditions"]), (&json!("Greeting"), &json!(["gr"]), &json!(true)));
//! # assert_eq!(said["columns"][1], json!({ "name": "Size", "jsonPath": ".spec.size", "priority": 1 }));
//! # assert_eq!(said["schema"]["$defs"]["Spec"]["properties"]["name"]["maxLength"], json!(63));
//! ```
//!
//! A program says it, `examples/types.rs`, which dev.yaml names as `types: cargo run -q --example types`:
//!
//! ```
//! # mod operator {
//! # #[derive(schemars::JsonSchema, capstan_guest::types::Resource)]
//! # #[resource(api_version = "example.com/v1alpha1")]
//! # pub struct Greeting { pub spec: bool }
//! # }
//! fn main() {
//!     capstan_guest::types::print(&[capstan_guest::types::said::<operator::Greeting>()]);
//! }
//! ```
//!
//! kube's `CustomResource` does the same for who has it already: print its `crd()`.

use std::io::Write as _;

use serde::Serialize;
use serde_json::{Map, Value, json};

/// Says of a type that it is a custom resource: `#[resource(api_version = "example.com/v1alpha1")]`.
///
/// Beside that there may be said `kind` (without it, the name of the type), `plural`, `scope = "Cluster"`, `short_names("gr")`,
/// `categories("all")`, `column("Text", ".status.text")` (with `type = "date"` if it is another than that of the field, `priority = 1` for
/// `-o wide` alone), `conditions` (the status has them although its type does not, because the daemon keeps them), `storage` (of several
/// versions this one is stored), `scale(".spec.replicas", ".status.replicas")`, `selectable_fields(".spec.size")`.
pub use capstan_guest_macros::Resource;
use schemars::JsonSchema;

/// A type that is a custom resource.
pub trait Resource: JsonSchema {
    /// Returns what is said of it beside its schema.
    fn facts() -> Facts;
}

/// What is said of a resource beside its schema.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts(Map<String, Value>);

impl Facts {
    /// Returns what each resource has.
    pub fn new(api_version: &str, kind: &str) -> Self {
        Self(Map::new()).with("apiVersion", api_version).with("kind", kind)
    }

    /// Says something more.
    pub fn with(mut self, field: &str, value: impl Serialize) -> Self {
        self.0.insert(field.to_owned(), json!(value));
        self
    }

    /// Adds a column of `kubectl get`; behind all columns stands the age. Without a type it is that of the field.
    pub fn column(mut self, name: &str, path: &str, kind: Option<&str>, priority: Option<i32>) -> Self {
        let mut column = json!({ "name": name, "jsonPath": path });
        if let Value::Object(column) = &mut column {
            column.extend(kind.map(|kind| ("type".to_owned(), kind.into())));
            column.extend(priority.map(|priority| ("priority".to_owned(), priority.into())));
        }
        if let Value::Array(columns) = self.0.entry("columns").or_insert_with(|| json!([])) {
            columns.push(column);
        }
        self
    }

    /// Says where `kubectl scale` finds replicas, in spec and status, and the selector.
    pub fn scale(self, paths: &[&str]) -> Self {
        let names = ["specReplicasPath", "statusReplicasPath", "labelSelectorPath"];
        let paths: Map<String, Value> =
            names.iter().zip(paths).map(|(name, path)| ((*name).to_owned(), json!(path))).collect();
        self.with("scale", paths)
    }
}

/// Returns what a type says, as `capstan crd` reads it.
pub fn said<R: Resource>() -> Value {
    Value::Object(R::facts().with("schema", schemars::schema_for!(R)).0)
}

/// Prints what types say.
///
/// # Panics
/// If standard output is closed.
#[expect(clippy::expect_used, reason = "a program that prints has nobody to tell")]
pub fn print(all: &[Value]) {
    writeln!(std::io::stdout(), "{}", json!(all)).expect("standard output");
}
