//! Decides the desired state of a dependent: turns the component's answer into an object that can be sent, complete,
//! named, and tied to its primary (KD-2, KD-3).

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::Error;
use super::defaults::Storage;
use super::ownership::{MARK, Mark};
use crate::budget::Budget;
use crate::manifest::Dependent;
use crate::object::{Gvk, Object, ObjectRef, Scope, clean_metadata};
use crate::text;

/// The desired state of an object: the answer of the component, checked and completed.
#[derive(Clone, PartialEq)]
pub struct Desired {
    key: ObjectRef,
    tree: Value,
}

/// The dependent and the primary that a desired state is for.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The dependent's name.
    pub name: &'a str,
    /// The dependent, as the manifest declares it.
    pub dependent: &'a Dependent,
    /// The scope of its kind.
    pub scope: Scope,
    /// The primary that it belongs to.
    pub primary: &'a Object,
    /// The kind of the primary.
    pub primary_gvk: &'a Gvk,
    /// The mark that names dependent and primary.
    pub mark: &'a Mark,
}

/// The errors of an object's namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misplaced {
    /// The kind is namespaced, none is given, and the primary has none to inherit.
    Nowhere,
    /// The kind is cluster-scoped, but a namespace is given.
    Inside,
}

/// Returns the namespace of an object, of which `said` is what its document says: by default the primary's.
pub(crate) fn place(scope: Scope, said: Option<&str>, primary: &ObjectRef) -> Result<Option<Arc<str>>, Misplaced> {
    match (scope, said, &primary.namespace) {
        (Scope::Namespaced, Some(said), _) => Ok(Some(said.into())),
        (Scope::Namespaced, None, Some(own)) => Ok(Some(own.clone())),
        (Scope::Namespaced, None, None) => Err(Misplaced::Nowhere),
        (Scope::Cluster, None, _) => Ok(None),
        (Scope::Cluster, Some(_), _) => Err(Misplaced::Inside),
    }
}

impl Desired {
    /// Reads the component's answer for a dependent, and completes it:
    ///
    /// * `apiVersion` and `kind` as declared, the namespace of the primary if the kind has one;
    /// * an owner reference if the dependent is created here and garbage collected (`KD-2`); if it is created here
    ///   but not garbage collected, the mapping annotations (`KD-3`) and the mark, which proves whose it is and which
    ///   no component can set; with `onRename: delete` and of a bulk the mark in both cases;
    /// * `stringData` of a Secret becomes `data`, because a write-only field can't be compared;
    /// * nulls are removed, as the API server does, except in custom resources, where null can be a value.
    ///
    /// # Errors
    /// [`Error`] for an answer that is not an object, contradicts the manifest, has no name, or can't be tied to its
    /// primary. No message holds anything of the object but its kind, name and namespace.
    pub fn parse(answer: &str, origin: &Origin<'_>, budget: &mut Budget) -> Result<Self, Error> {
        let what = if origin.dependent.bulk { "one of what `desired-set` returned" } else { "what `desired` returned" };
        let tree =
            budget.read(answer).map_err(|source| Error::NotJson { dependent: origin.name.to_owned(), what, source })?;
        let Value::Object(mut tree) = tree else {
            let found = sort(&tree);
            return Err(origin.wrong(what, found, "an object with metadata.name"));
        };
        let Origin { dependent: Dependent { gvk, .. }, .. } = origin;
        origin.state(&mut tree, "apiVersion", &gvk.api_version())?;
        origin.state(&mut tree, "kind", &gvk.kind)?;
        match Storage::of(&gvk.api_version()) {
            Storage::Struct => tree.values_mut().for_each(drop_nulls),
            Storage::Verbatim => tree.get_mut("metadata").into_iter().for_each(drop_nulls),
        }
        if gvk.is_secret() {
            origin.encode(&mut tree)?;
        }
        let mut metadata = match tree.remove("metadata") {
            Some(Value::Object(metadata)) => metadata,
            None => return Err(origin.wrong("metadata.name", "nothing", "a name")),
            Some(other) => {
                return Err(origin.wrong("metadata", sort(&other), "an object with a name"));
            }
        };
        clean_metadata(&mut metadata);
        let key = origin.key(&metadata)?;
        if let Some(namespace) = &key.namespace {
            metadata.insert("namespace".to_owned(), json!(&**namespace));
        }
        origin.own_only(&metadata, &key)?;
        origin.tie(&mut metadata, &key)?;
        tree.insert("metadata".to_owned(), Value::Object(metadata));
        Ok(Self { key, tree: Value::Object(tree) })
    }

    /// Returns name and namespace of an answer that may be wrong in all else; `None` if it is wrong in these, too.
    pub fn named(answer: &str, origin: &Origin<'_>, budget: &mut Budget) -> Option<ObjectRef> {
        let tree = budget.read(answer).ok()?;
        origin.key(tree.get("metadata")?.as_object()?).ok()
    }

    /// Returns name and namespace.
    pub fn key(&self) -> &ObjectRef {
        &self.key
    }

    /// Returns the object.
    pub fn tree(&self) -> &Value {
        &self.tree
    }

    /// Returns the JSON text of the object, as it is sent.
    pub fn json(&self) -> String {
        self.tree.to_string()
    }
}

impl std::fmt::Debug for Desired {
    /// Writes the key only: bodies may hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Desired({})", self.key)
    }
}

impl Origin<'_> {
    /// Fills in a field that the manifest declares, or checks that the answer has the same value.
    fn state(&self, tree: &mut Map<String, Value>, field: &'static str, right: &str) -> Result<(), Error> {
        match tree.get(field) {
            None | Some(Value::Null) => {
                tree.insert(field.to_owned(), json!(right));
                Ok(())
            }
            Some(Value::String(text)) if text == right => Ok(()),
            Some(other) => Err(self.wrong(field, said(other), format!("{right:?} as in the manifest, or nothing"))),
        }
    }

    /// Returns name and namespace; the namespace is the primary's by default.
    fn key(&self, metadata: &Map<String, Value>) -> Result<ObjectRef, Error> {
        let name = match metadata.get("name") {
            Some(Value::String(name)) if !name.is_empty() => name,
            None => return Err(self.wrong("metadata.name", "nothing", "a name")),
            Some(other) => return Err(self.wrong("metadata.name", said(other), "a name")),
        };
        let given = match metadata.get("namespace") {
            None => None,
            Some(Value::String(namespace)) => Some(namespace.as_str()).filter(|text| !text.is_empty()),
            Some(other) => {
                return Err(self.wrong("metadata.namespace", said(other), "a name, or nothing"));
            }
        };
        let kind = &self.dependent.gvk.kind;
        let namespace = place(self.scope, given, self.primary.key()).map_err(|misplaced| match misplaced {
            Misplaced::Nowhere => {
                let right = format!("a namespace: a {kind} lives in one, and the primary has none to inherit");
                self.wrong("metadata.namespace", "nothing", right)
            }
            Misplaced::Inside => {
                let found = given.map_or_else(String::new, |given| format!("{given:?}"));
                let right = format!("nothing: a {kind} does not live in a namespace");
                self.wrong("metadata.namespace", found, right)
            }
        })?;
        Ok(ObjectRef { namespace, name: name.as_str().into() })
    }

    /// Refuses owners other than the primary: Kubernetes deletes an object whose owner does not exist.
    fn own_only(&self, metadata: &Map<String, Value>, key: &ObjectRef) -> Result<(), Error> {
        let owners = match metadata.get("ownerReferences") {
            None => return Ok(()),
            Some(Value::Array(owners)) => owners,
            Some(other) => {
                return Err(self.wrong("metadata.ownerReferences", sort(other), "a list"));
            }
        };
        let foreign = owners.iter().any(|owner| !self.primary.is_owner(self.primary_gvk, owner, key));
        if foreign {
            let right = "nothing, or one to the primary alone, by apiVersion, kind, name and uid";
            return Err(self.wrong("metadata.ownerReferences", "a reference to something else", right));
        }
        Ok(())
    }

    /// Adds the owner reference, annotations and mark that lead from the dependent to its primary.
    fn tie(&self, metadata: &mut Map<String, Value>, key: &ObjectRef) -> Result<(), Error> {
        if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
            annotations.remove(MARK);
        }
        match (self.dependent.manage.create, self.dependent.garbage_collected) {
            (true, true) => {
                self.own(metadata, key)?;
                if self.dependent.is_marked() { self.put_mark(metadata) } else { Ok(()) }
            }
            (true, false) => self.annotate(metadata, key),
            (false, _) => Ok(()),
        }
    }

    /// Adds an owner reference, unless there is one with the same uid (`KD-2`).
    fn own(&self, metadata: &mut Map<String, Value>, key: &ObjectRef) -> Result<(), Error> {
        let owner = self.primary.header();
        if owner.key.namespace.is_some() && owner.key.namespace != key.namespace {
            let (dependent, object, primary) = (self.name.to_owned(), key.clone(), owner.key.clone());
            return Err(Error::Unownable { dependent, object, primary });
        }
        let references = metadata.entry("ownerReferences").or_insert_with(|| json!([]));
        let Value::Array(references) = references else {
            return Err(self.wrong("metadata.ownerReferences", sort(references), "a list"));
        };
        if references.iter().all(|reference| reference.get("uid").and_then(Value::as_str) != Some(&owner.uid)) {
            references.push(json!({
                "apiVersion": self.primary_gvk.api_version(),
                "kind": &*self.primary_gvk.kind,
                "name": &*owner.key.name,
                "uid": &*owner.uid,
                "controller": false,
                "blockOwnerDeletion": false,
            }));
        }
        Ok(())
    }

    /// Adds the annotations that name the primary, and the mark (`KD-3`).
    fn annotate(&self, metadata: &mut Map<String, Value>, key: &ObjectRef) -> Result<(), Error> {
        let (own, primarys) = (&key.namespace, &self.primary.key().namespace);
        let Dependent { source, mapping, .. } = self.dependent;
        if let (Some(own), Some(primarys), None) = (own, primarys, source)
            && own != primarys
            && !mapping.across_namespaces
        {
            let right = format!(
                "{primarys:?} as that of the primary, or any with `mapping: {{ acrossNamespaces: true }}` in the manifest"
            );
            return Err(self.wrong("metadata.namespace", format!("{own:?}"), right));
        }
        self.put_mark(metadata)?;
        let annotations = self.annotations(metadata)?;
        let (keys, primary, gvk) = (&self.dependent.mapping, self.primary.key(), self.primary_gvk);
        annotations.insert(keys.name.to_string(), json!(&*primary.name));
        if let (Some(key), Some(namespace)) = (&keys.namespace, &primary.namespace) {
            annotations.insert(key.to_string(), json!(&**namespace));
        }
        if let Some(key) = &keys.kind {
            // ID-2
            annotations.insert(key.to_string(), json!(format!("{}/{}", gvk.api_version(), gvk.kind)));
        }
        Ok(())
    }

    /// Adds the mark.
    fn put_mark(&self, metadata: &mut Map<String, Value>) -> Result<(), Error> {
        let mark = serde_json::to_string(self.mark).unwrap_or_default();
        self.annotations(metadata)?.insert(MARK.to_owned(), json!(mark));
        Ok(())
    }

    fn annotations<'m>(&self, metadata: &'m mut Map<String, Value>) -> Result<&'m mut Map<String, Value>, Error> {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        let found = sort(annotations);
        let wrong = || self.wrong("metadata.annotations", found, "a map of strings");
        annotations.as_object_mut().ok_or_else(wrong)
    }

    /// Moves a Secret's `stringData` to `data`, as the API server does.
    fn encode(&self, tree: &mut Map<String, Value>) -> Result<(), Error> {
        let Some(plain) = tree.remove("stringData") else {
            return Ok(());
        };
        let Value::Object(plain) = plain else {
            return Err(self.wrong("stringData", sort(&plain), "a map of strings"));
        };
        let data = tree.entry("data").or_insert_with(|| json!({}));
        let Value::Object(data) = data else {
            return Err(self.wrong("data", sort(data), "a map of strings"));
        };
        for (name, value) in plain {
            let Value::String(text) = &value else {
                return Err(self.wrong("stringData", format!("{} for {name:?}", sort(&value)), "a map of strings"));
            };
            data.insert(name, json!(STANDARD.encode(text)));
        }
        Ok(())
    }

    fn wrong(&self, field: &'static str, found: impl Into<String>, right: impl Into<String>) -> Error {
        Error::Field { dependent: self.name.to_owned(), field, found: found.into(), right: right.into() }
    }
}

/// Returns the JSON type of a value for messages, without its contents.
fn sort(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Bytes of a wrong value that are shown.
const TOLD: usize = 256;

/// Returns a value for messages about fields that are not secret: a string, cut if it is long; of other values only
/// the type.
fn said(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{:?}", text::said_within(text, TOLD)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => sort(value).to_owned(),
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::dependent;
    use super::*;
    use crate::manifest::{Manage, MappingKeys, OnRename};
    use crate::object::Managers;

    fn primary(namespace: Option<&str>) -> (Object, Gvk) {
        let gvk = Gvk::parse("sample.dev/v1", "WebPage").unwrap();
        let json = json!({"metadata": {"name": "page", "namespace": namespace, "uid": "u-1"}});
        (Object::parse(&json.to_string(), &gvk, &Managers::default()).unwrap(), gvk)
    }

    /// Reads an answer for a dependent of a primary in the namespace `web`.
    fn parse(answer: &Value, dependent: &Dependent, scope: Scope) -> Result<Value, String> {
        parse_for(&primary(Some("web")), answer, dependent, scope)
    }

    fn parse_for(
        (primary, primary_gvk): &(Object, Gvk),
        answer: &Value,
        dependent: &Dependent,
        scope: Scope,
    ) -> Result<Value, String> {
        let origin = Origin {
            name: "conf",
            dependent,
            scope,
            primary,
            primary_gvk,
            mark: &Mark::new(("web", "pages", "conf"), primary, primary_gvk),
        };
        let desired =
            Desired::parse(&answer.to_string(), &origin, &mut Budget::of_run()).map_err(|error| error.to_string())?;
        assert_eq!(json!(&*desired.key().name), desired.tree()["metadata"]["name"]);
        assert_eq!(desired.json(), desired.tree().to_string());
        Ok(desired.tree().clone())
    }

    fn config_map() -> Dependent {
        dependent("v1", "ConfigMap")
    }

    #[test]
    fn what_is_left_out_is_filled_in_and_the_primary_owns_it() {
        // KD-2
        let found = parse(&json!({"metadata": {"name": "a"}, "data": {"x": "1"}}), &config_map(), Scope::Namespaced);
        let owner = json!({"apiVersion": "sample.dev/v1", "kind": "WebPage", "name": "page", "uid": "u-1",
            "controller": false, "blockOwnerDeletion": false});
        assert_eq!(
            found.unwrap(),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "1"},
                "metadata": {"name": "a", "namespace": "web", "ownerReferences": [owner]}})
        );
    }

    #[test]
    fn an_owner_reference_to_the_primary_is_kept_and_others_are_refused() {
        // KD-2
        let refer =
            |name: &str, uid: &str| json!({"apiVersion": "sample.dev/v1", "kind": "WebPage", "name": name, "uid": uid});
        let owners = |given: Value, dependent: Dependent| {
            let answer = json!({"metadata": {"name": "a", "ownerReferences": given}});
            let tree = parse(&answer, &dependent, Scope::Namespaced);
            tree.map(|tree| tree["metadata"]["ownerReferences"].clone())
        };
        let own = json!([refer("page", "u-1")]);
        assert_eq!(owners(own.clone(), config_map()).unwrap(), own);
        for foreign in [
            refer("page", "u-2"),
            refer("other", "u-1"),
            json!({"apiVersion": "v1", "kind": "WebPage", "name": "page", "uid": "u-1"}),
            json!("page"),
        ] {
            let free = Dependent { garbage_collected: false, ..config_map() };
            for dependent in [config_map(), free] {
                let refused = owners(json!([refer("page", "u-1"), foreign]), dependent);
                assert_eq!(
                    refused.unwrap_err(),
                    "dependent conf: metadata.ownerReferences is a reference to something else; right would be nothing, or one to the primary alone, by apiVersion, kind, name and uid"
                );
            }
        }
    }

    #[test]
    fn annotations_lead_to_the_primary_if_it_is_not_the_owner() {
        // KD-3, ID-2
        let near = Dependent { garbage_collected: false, ..config_map() };
        let free =
            Dependent { mapping: MappingKeys { across_namespaces: true, ..MappingKeys::default() }, ..near.clone() };
        let answer = json!({"metadata": {"name": "a", "namespace": "other", "annotations": {"k": "v", MARK: "{}"}}});
        let mark = r#"{"operator":"web","controller":"pages","dependent":"conf","primary":{"apiVersion":"sample.dev/v1","kind":"WebPage","namespace":"web","name":"page","uid":"u-1"}}"#;
        assert_eq!(
            parse(&answer, &near, Scope::Namespaced).unwrap_err(),
            "dependent conf: metadata.namespace is \"other\"; right would be \"web\" as that of the primary, or any with `mapping: { acrossNamespaces: true }` in the manifest"
        );
        let name = "capstan.dev/primary-name";
        let namespace = "capstan.dev/primary-namespace";
        let kind = "capstan.dev/primary-type";
        let tree = parse(&answer, &free, Scope::Namespaced).unwrap();
        let expected = json!({"k": "v", name: "page", namespace: "web", kind: "sample.dev/v1/WebPage", MARK: mark});
        assert_eq!(tree["metadata"], json!({"name": "a", "namespace": "other", "annotations": expected}));
        let tree = parse_for(&primary(None), &answer, &free, Scope::Namespaced).unwrap();
        let mark = r#"{"operator":"web","controller":"pages","dependent":"conf","primary":{"apiVersion":"sample.dev/v1","kind":"WebPage","name":"page","uid":"u-1"}}"#;
        let expected = json!({"k": "v", name: "page", kind: "sample.dev/v1/WebPage", MARK: mark});
        assert_eq!(tree["metadata"]["annotations"], expected);
    }

    #[test]
    fn what_is_not_created_here_is_not_tied_to_the_primary() {
        let manage = Manage { create: false, ..Manage::default() };
        for garbage_collected in [true, false] {
            let borrowed = Dependent { manage, garbage_collected, ..config_map() };
            let tree = parse(&json!({"metadata": {"name": "a"}}), &borrowed, Scope::Namespaced).unwrap();
            assert_eq!(tree["metadata"], json!({"name": "a", "namespace": "web"}));
        }
    }

    #[test]
    fn nulls_vanish_but_for_those_that_a_custom_resource_may_mean() {
        let answer =
            json!({"metadata": {"name": "a", "creationTimestamp": null}, "spec": {"a": null, "l": [{"b": null}]}});
        let free = |version| Dependent { garbage_collected: false, ..dependent(version, "Thing") };
        let spec = |version| parse(&answer, &free(version), Scope::Namespaced).unwrap();
        assert_eq!(spec("apps/v1")["spec"], json!({"l": [{}]}));
        assert_eq!(spec("sample.dev/v1")["spec"], answer["spec"]);
        assert_eq!(spec("sample.dev/v1")["metadata"].get("creationTimestamp"), None);
    }

    #[test]
    fn plain_data_of_a_secret_is_encoded() {
        let secret = dependent("v1", "Secret");
        let answer =
            json!({"metadata": {"name": "a"}, "data": {"a": "eA==", "b": "eA=="}, "stringData": {"b": "hunter2"}});
        let tree = parse(&answer, &secret, Scope::Namespaced).unwrap();
        assert_eq!((&tree["data"], tree.get("stringData")), (&json!({"a": "eA==", "b": "aHVudGVyMg=="}), None));
        let config = parse(&json!({"metadata": {"name": "a"}, "stringData": {}}), &config_map(), Scope::Namespaced);
        assert!(config.unwrap().get("stringData").is_some());
    }

    #[test]
    #[rustfmt::skip]
    fn what_is_wrong_is_named_with_what_would_be_right() {
        // DR-3
        let named = |more: Value| {
            let mut answer = json!({"metadata": {"name": "a"}});
            answer
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            answer
        };
        let secret = dependent("v1", "Secret");
        for (answer, dependent, scope, text) in [
            (json!(null), config_map(), Scope::Namespaced, "what `desired` returned is null; right would be an object with metadata.name"),
            (json!([1]), config_map(), Scope::Namespaced, "what `desired` returned is a list; right would be an object with metadata.name"),
            (json!({}), config_map(), Scope::Namespaced, "metadata.name is nothing; right would be a name"),
            (json!({"metadata": {}}), config_map(), Scope::Namespaced, "metadata.name is nothing; right would be a name"),
            (json!({"metadata": {"name": ""}}), config_map(), Scope::Namespaced, "metadata.name is \"\"; right would be a name"),
            (json!({"metadata": {"name": 5}}), config_map(), Scope::Namespaced, "metadata.name is a number; right would be a name"),
            (json!({"metadata": 5}), config_map(), Scope::Namespaced, "metadata is a number; right would be an object with a name"),
            (named(json!({"kind": "Secret"})), config_map(), Scope::Namespaced, "kind is \"Secret\"; right would be \"ConfigMap\" as in the manifest, or nothing"),
            (named(json!({"apiVersion": 1})), config_map(), Scope::Namespaced, "apiVersion is a number; right would be \"v1\" as in the manifest, or nothing"),
            (json!({"metadata": {"name": "a", "namespace": "web"}}), config_map(), Scope::Cluster, "metadata.namespace is \"web\"; right would be nothing: a ConfigMap does not live in a namespace"),
            (json!({"metadata": {"name": "a", "ownerReferences": {}}}), config_map(), Scope::Namespaced, "metadata.ownerReferences is an object; right would be a list"),
            (named(json!({"stringData": {"a": 1}})), secret.clone(), Scope::Namespaced, "stringData is a number for \"a\"; right would be a map of strings"),
            (named(json!({"stringData": "hunter2"})), secret.clone(), Scope::Namespaced, "stringData is a string; right would be a map of strings"),
            (named(json!({"data": "hunter2", "stringData": {}})), secret, Scope::Namespaced, "data is a string; right would be a map of strings"),
        ] {
            assert_eq!(
                parse(&answer, &dependent, scope).unwrap_err(),
                format!("dependent conf: {text}")
            );
        }
        let (primary, primary_gvk) = &primary(Some("web"));
        let origin = Origin {
            name: "conf",
            dependent: &config_map(),
            scope: Scope::Namespaced,
            primary,
            primary_gvk,
            mark: &Mark::new(("web", "pages", "conf"), primary, primary_gvk),
        };
        let error = Desired::parse("{\"data\": hunter2", &origin, &mut Budget::of_run())
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "dependent conf: what `desired` returned is not JSON: expected value at line 1 column 10"
        );
    }

    #[test]
    fn what_is_owned_bears_the_mark_if_it_goes_under_a_former_name() {
        for (on_rename, marked) in [(OnRename::Keep, false), (OnRename::Delete, true)] {
            let dependent = Dependent { on_rename, ..config_map() };
            let answer = json!({"metadata": {"name": "a", "annotations": {MARK: "forged"}}});
            let tree = parse(&answer, &dependent, Scope::Namespaced).unwrap();
            let (primary, gvk) = primary(Some("web"));
            let mark = Mark::new(("web", "pages", "conf"), &primary, &gvk);
            let expected = marked.then(|| json!(serde_json::to_string(&mark).unwrap()));
            let metadata = &tree["metadata"];
            assert_eq!(metadata["annotations"].get(MARK).cloned(), expected);
            assert_eq!(metadata["ownerReferences"][0]["uid"], "u-1");
        }
    }

    #[test]
    fn an_object_is_where_it_is_said_to_be_or_where_its_primary_is() {
        let (inside, global) = (ObjectRef::namespaced("web", "page"), ObjectRef::cluster("page"));
        for (scope, said, primary, expected) in [
            (Scope::Namespaced, None, &inside, Ok(Some("web"))),
            (Scope::Namespaced, Some("m"), &inside, Ok(Some("m"))),
            (Scope::Namespaced, Some("m"), &global, Ok(Some("m"))),
            (Scope::Namespaced, None, &global, Err(Misplaced::Nowhere)),
            (Scope::Cluster, None, &inside, Ok(None)),
            (Scope::Cluster, None, &global, Ok(None)),
            (Scope::Cluster, Some("m"), &inside, Err(Misplaced::Inside)),
            (Scope::Cluster, Some("m"), &global, Err(Misplaced::Inside)),
        ] {
            let found = place(scope, said, primary);
            assert_eq!(found, expected.map(|namespace| namespace.map(Arc::from)));
        }
    }

    #[test]
    fn an_owner_that_kubernetes_would_refuse_is_refused_here() {
        // KD-2
        let hint = "which is in another namespace or the only one of the two that has one; set `garbageCollected: false`, then it is deleted by the daemon";
        let elsewhere = json!({"metadata": {"name": "a", "namespace": "other"}});
        let plain = json!({"metadata": {"name": "a"}});
        for (answer, scope, object) in [(&elsewhere, Scope::Namespaced, "other/a"), (&plain, Scope::Cluster, "a")] {
            let error = parse(answer, &config_map(), scope).unwrap_err();
            assert_eq!(error, format!("dependent conf: {object} can't be owned by web/page, {hint}"));
        }
        let global = primary(None);
        let owners = |tree: Value| tree["metadata"]["ownerReferences"].as_array().unwrap().len();
        assert_eq!(owners(parse_for(&global, &elsewhere, &config_map(), Scope::Namespaced).unwrap()), 1);
        assert_eq!(owners(parse_for(&global, &plain, &config_map(), Scope::Cluster).unwrap()), 1);
        let error = parse_for(&global, &plain, &config_map(), Scope::Namespaced).unwrap_err();
        let text = "metadata.namespace is nothing; right would be a namespace: a ConfigMap lives in one, and the primary has none to inherit";
        assert_eq!(error, format!("dependent conf: {text}"));
    }
}
