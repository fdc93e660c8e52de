//! Decides which patches add and remove finalizers (FI rules).

use std::sync::Arc;

use serde_json::{Map, json};

use crate::cluster::{Target, Verb, Write};
use crate::object::{Gvk, Object};
use crate::patch::{Operation, Patch, Path};

/// The most tries of a write that meets conflicts, each upon a fresh read (`FI-4`).
pub const TRIES: u32 = 10;

/// The domain of the default finalizer for core kinds, whose full name has none (`LC-3`).
const OWN_DOMAIN: &str = "capstan.dev";

/// The path to the list of finalizers.
const FINALIZERS: [&str; 2] = ["metadata", "finalizers"];

/// Returns the write that adds a finalizer; `None` if it is there, or the object is being deleted (`FI-1`, `FI-2`).
pub fn add(primary: &Object, gvk: &Gvk, finalizer: &str, manager: &Arc<str>, apply: Apply) -> Option<Write> {
    let header = primary.header();
    if header.deleting || header.has_finalizer(finalizer) {
        return None;
    }
    let target = Target::object(gvk.clone(), header.key.clone());
    let manager = Arc::clone(manager);
    let verb = match apply {
        Apply::Yes => {
            // The uid keeps the apply from creating an object that has gone meanwhile.
            let mut metadata = Map::new();
            metadata.insert("name".to_owned(), (&*header.key.name).into());
            if let Some(namespace) = &header.key.namespace {
                metadata.insert("namespace".to_owned(), (&**namespace).into());
            }
            metadata.insert("uid".to_owned(), (&*header.uid).into());
            metadata.insert("finalizers".to_owned(), json!([finalizer]));
            let body = json!({ "apiVersion": gvk.api_version(), "kind": &*gvk.kind, "metadata": metadata });
            Verb::Apply { body: body.to_string(), manager, force: true }
        }
        Apply::No => {
            let version = Operation::Test {
                path: Path::of(["metadata", "resourceVersion"]),
                value: header.version.to_string().into(),
            };
            let change = if header.finalizers.is_empty() {
                Operation::Add { path: Path::of(FINALIZERS), value: json!([finalizer]) }
            } else {
                Operation::Add { path: at("-"), value: finalizer.into() }
            };
            Verb::JsonPatch { patch: Patch(vec![version, change]), manager }
        }
    };
    Some(Write::own(target, verb))
}

/// The manner in which a finalizer is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apply {
    /// By server-side apply.
    Yes,
    /// By JSON patches.
    No,
}

/// Returns the write that removes finalizers, by their places and only if they are still there; `None` if all are
/// gone (`FI-3`).
pub fn remove(primary: &Object, gvk: &Gvk, finalizers: &[&str], manager: &Arc<str>) -> Option<Write> {
    let header = primary.header();
    // The uid: an object that was made anew under the same name keeps its finalizers.
    let uid = Operation::Test { path: Path::of(["metadata", "uid"]), value: (&*header.uid).into() };
    let mut steps = vec![uid];
    // From the last to the first, so that the places of the others stay the same.
    for (place, finalizer) in header.finalizers.iter().enumerate().rev() {
        if finalizers.contains(&&**finalizer) {
            let path = at(&place.to_string());
            steps.push(Operation::Test { path: path.clone(), value: (&**finalizer).into() });
            steps.push(Operation::Remove { path });
        }
    }
    if steps.len() == 1 {
        return None;
    }
    let target = Target::object(gvk.clone(), header.key.clone());
    Some(Write::own(target, Verb::JsonPatch { patch: Patch(steps), manager: Arc::clone(manager) }))
}

/// Returns a place in the list of finalizers.
fn at(place: &str) -> Path {
    Path::of(FINALIZERS.into_iter().chain([place]))
}

/// Returns the default finalizer of a kind (`LC-3`), from its full resource name such as
/// `webpages.sample.capstan.dev` or, for core kinds, `services`.
pub fn default_name(full_name: &str) -> String {
    if full_name.contains('.') {
        format!("{full_name}/finalizer")
    } else {
        format!("{full_name}.{OWN_DOMAIN}/finalizer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Managers;

    fn primary(finalizers: &serde_json::Value) -> Object {
        let text = json!({ "metadata": { "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "finalizers": finalizers } });
        Object::parse(&text.to_string(), &gvk(), &Managers::default()).unwrap()
    }

    fn gvk() -> Gvk {
        Gvk::parse("sample.dev/v1", "Page").unwrap()
    }

    fn body(write: Option<Write>) -> String {
        write.expect("a write").verb.body().into_owned()
    }

    #[test]
    fn adding_applies_nothing_but_the_finalizer() {
        // FI-1
        let manager = "pages".into();
        assert_eq!(
            body(add(&primary(&json!([])), &gvk(), "x.dev/f", &manager, Apply::Yes)),
            r#"{"apiVersion":"sample.dev/v1","kind":"Page","metadata":{"finalizers":["x.dev/f"],"name":"a","namespace":"n","uid":"u"}}"#
        );
        assert_eq!(add(&primary(&json!(["x.dev/f"])), &gvk(), "x.dev/f", &manager, Apply::Yes), None);
    }

    #[test]
    fn without_server_side_apply_adding_is_optimistic() {
        // FI-2
        let manager = "pages".into();
        assert_eq!(
            body(add(&primary(&json!(["o.dev/f"])), &gvk(), "x.dev/f", &manager, Apply::No)),
            r#"[{"op":"test","path":"/metadata/resourceVersion","value":"7"},{"op":"add","path":"/metadata/finalizers/-","value":"x.dev/f"}]"#
        );
    }

    #[test]
    fn removing_tests_the_place_first() {
        // FI-3
        let manager = "pages".into();
        assert_eq!(
            body(remove(&primary(&json!(["o.dev/f", "x.dev/f"])), &gvk(), &["x.dev/f"], &manager)),
            r#"[{"op":"test","path":"/metadata/uid","value":"u"},{"op":"test","path":"/metadata/finalizers/1","value":"x.dev/f"},{"op":"remove","path":"/metadata/finalizers/1"}]"#
        );
        assert_eq!(remove(&primary(&json!(["o.dev/f"])), &gvk(), &["x.dev/f"], &manager), None);
        let several = primary(&json!(["a.dev/f", "o.dev/f", "x.dev/f"]));
        assert_eq!(
            body(remove(&several, &gvk(), &["a.dev/f", "x.dev/f"], &manager)),
            r#"[{"op":"test","path":"/metadata/uid","value":"u"},{"op":"test","path":"/metadata/finalizers/2","value":"x.dev/f"},{"op":"remove","path":"/metadata/finalizers/2"},{"op":"test","path":"/metadata/finalizers/0","value":"a.dev/f"},{"op":"remove","path":"/metadata/finalizers/0"}]"#
        );
    }

    #[test]
    fn the_default_finalizer_is_a_domain_and_a_name() {
        // LC-3
        assert_eq!(default_name("webpages.sample.capstan.dev"), "webpages.sample.capstan.dev/finalizer");
        assert_eq!(default_name("services"), "services.capstan.dev/finalizer");
    }
}
