//! Reads an operator out of an object of the cluster: what it says, and what its status remembers of what was in force.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use capstan_core::budget::Budget;
use capstan_core::manifest::{Ceiling, Component, Defaults, OnNewVersion, Operator, object_path, parse_object};
use capstan_core::object::{Gvk, Object, ObjectRef, Scope};
use capstan_core::operator::status::REMEMBERED;
use capstan_core::operator::tenant::{self, Count};
use capstan_core::registry::Digest;
use capstan_core::text;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::Kind;

/// An operator as it was read of an object. What it takes parsed is many times its text, and is kept beside this by whoever has room for it (`CE-5`).
#[derive(Debug)]
pub(super) struct Read {
    pub(super) posted: Posted,
    /// What the object says; `None` if something is wrong with it.
    pub(super) said: Option<Operator>,
    /// What was in force last, as the status remembers it.
    pub(super) last_good: Option<Operator>,
}

/// What is known of an operator that an object declares.
#[derive(Clone, Debug)]
pub(super) struct Posted {
    /// The object, with what says which one it is alone.
    pub(super) object: Object,
    /// Its name.
    pub(super) key: ObjectRef,
    /// What the operator is called in the daemon (`CE-2`).
    pub(super) name: Arc<str>,
    /// What stands for its file.
    pub(super) path: PathBuf,
    /// Which object of this name it is.
    pub(super) uid: Box<str>,
    /// The generation that this is.
    pub(super) generation: i64,
    /// When it was made.
    pub(super) created: String,
    /// What it says, as JSON.
    pub(super) spec: Arc<str>,
    /// What room the operator takes, or what is wrong with it.
    pub(super) content: Result<Count, Arc<str>>,
    /// Whether it was in force last as it is.
    pub(super) is_as_in_force: bool,
    /// What was in force last, as the status remembers it.
    pub(super) last_good: Option<LastGood>,
    /// Why it is not heeded though there may be nothing wrong with it: a word for programs, and what is to be known.
    pub(super) refused: Option<(&'static str, String)>,
    /// Whether its last good version is put in place first.
    pub(super) revival: Revival,
    /// What holds for it, by which it was read.
    pub(super) under: Under,
    /// Whether it was not read, as there are too many in its namespace.
    pub(super) is_crowded: bool,
    /// Whether the supervisor has taken this in.
    pub(super) is_settled: bool,
}

/// What is to be known of what was in force last without reading it again.
#[derive(Clone, Debug)]
pub(super) struct LastGood {
    /// The room that it takes.
    pub(super) count: Count,
    /// Its plugins.
    pub(super) plugins: BTreeSet<Arc<str>>,
    /// What it says of newer versions.
    pub(super) on_new_version: OnNewVersion,
}

/// What holds for the operators of a namespace.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Under {
    /// They are the daemon's own.
    Daemon,
    /// A ceiling.
    Ceiling(Arc<Ceiling>),
    /// Nobody runs them any more.
    Nothing,
}

/// Whether the last good version is put in place first, because nothing is in force, and what is wanted can't be (`OP-5`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Revival {
    /// Nothing has asked for it.
    Unneeded,
    /// It is being put in place.
    UnderWay,
    /// It is, or can't be, since then.
    Over(Instant),
}

/// From a last good version that could not be put in place, or has gone since, to the next try: what it needs may be there again, such as its registry.
const AGAIN: Duration = Duration::from_mins(1);

impl Revival {
    /// Returns what follows, if something does.
    pub(super) fn next(self, is_stuck: bool, is_in_force: bool, now: Instant) -> Option<Self> {
        match self {
            Self::Unneeded if is_stuck => Some(Self::UnderWay),
            Self::UnderWay if is_stuck || is_in_force => Some(Self::Over(now)),
            Self::Over(since) if is_stuck && now.saturating_duration_since(since) >= AGAIN => Some(Self::UnderWay),
            Self::Unneeded | Self::UnderWay | Self::Over(_) => None,
        }
    }
}

/// Returns the kind of operators.
pub(super) fn kind() -> Kind {
    let gvk = Gvk { group: "capstan.dev".into(), version: "v1alpha1".into(), kind: "Operator".into() };
    Kind { gvk, plural: "operators".into(), scope: Scope::Namespaced }
}

impl Read {
    /// Reads an object.
    pub(super) fn of(object: &Object, defaults: &Defaults, under: Under) -> Self {
        let (path, header) = (object_path(object.key()), object.header());
        let tree = object.tree(&mut Budget::of_run());
        let read = Reading { path: &path, defaults, namespace: object.key().namespace.as_ref(), under: &under };
        let content = match &tree {
            Ok(tree) => read.operator(tree),
            Err(error) => Err(text::block(&format!("{}: {error}", path.display()))),
        };
        let tree = tree.unwrap_or_default();
        let field = |pointer: &str| tree.pointer(pointer).unwrap_or(&Value::Null);
        let last_good = read.last_good(&tree);
        let counted = content.as_ref().map(Count::of).map_err(|why| why.as_str().into());
        let posted = Posted {
            last_good: last_good.as_ref().map(LastGood::of),
            is_as_in_force: header.generation.is_some()
                && field("/status/inForce/generation").as_i64() == header.generation,
            created: field("/metadata/creationTimestamp").as_str().unwrap_or_default().to_owned(),
            spec: field("/spec").to_string().into(),
            ..Posted::unread(object, under, counted)
        };
        Self { posted, said: content.ok(), last_good }
    }
}

impl LastGood {
    fn of(operator: &Operator) -> Self {
        let plugins = operator.plugins.keys().cloned().collect();
        Self { count: Count::of(operator), plugins, on_new_version: operator.on_new_version }
    }
}

impl Posted {
    /// Returns what stands for an object that is not read, as there are too many in its namespace.
    pub(super) fn crowded(object: &Object, under: Under) -> Self {
        let path = object_path(object.key());
        let why = format!("{}: spec: the namespace has many more operators than its ceiling permits", path.display());
        Self { is_crowded: true, ..Self::unread(object, under, Err(why.into())) }
    }

    fn unread(object: &Object, under: Under, content: Result<Count, Arc<str>>) -> Self {
        let (key, header) = (object.key().clone(), object.header());
        Self {
            path: object_path(&key),
            name: under.named(&key),
            under,
            uid: header.uid.clone(),
            generation: header.generation.unwrap_or_default(),
            created: String::new(),
            spec: "null".into(),
            content,
            last_good: None,
            is_as_in_force: false,
            refused: None,
            revival: Revival::Unneeded,
            is_crowded: false,
            is_settled: false,
            object: object.bare().unwrap_or_else(|_| object.clone()),
            key,
        }
    }

    /// Whether this is what was read of an object as it is now.
    pub(super) fn is(&self, object: &Object) -> bool {
        let header = object.header();
        (&*self.uid, Some(self.generation)) == (&*header.uid, header.generation)
    }
}

/// Returns what was in force last of the operator that an object declares, as its status says: what it was given, and its components.
pub(super) fn last_in_force(
    object: &Object,
    defaults: &Defaults,
    under: &Under,
) -> Option<(Operator, BTreeMap<Arc<str>, Digest>)> {
    let path = object_path(object.key());
    let tree = object.tree(&mut Budget::of_run()).ok()?;
    let read = Reading { path: &path, defaults, namespace: object.key().namespace.as_ref(), under };
    read.last_good(&tree).zip(components(&tree))
}

impl Under {
    /// Returns what an operator is called in the daemon (`CE-2`).
    fn named(&self, key: &ObjectRef) -> Arc<str> {
        match (self, &key.namespace) {
            (Self::Ceiling(_) | Self::Nothing, Some(namespace)) => tenant::name(namespace, &key.name),
            (Self::Ceiling(_) | Self::Nothing, None) | (Self::Daemon, _) => Arc::clone(&key.name),
        }
    }
}

/// How operators are read out of an object.
struct Reading<'o> {
    path: &'o Path,
    defaults: &'o Defaults,
    namespace: Option<&'o Arc<str>>,
    under: &'o Under,
}

impl Reading<'_> {
    /// Returns the operator that a text says, within its ceiling.
    fn operator(&self, object: &Value) -> Result<Operator, String> {
        let Self { path, defaults, namespace, under } = self;
        let within = match under {
            Under::Ceiling(ceiling) => &defaults.below(ceiling),
            Under::Daemon | Under::Nothing => *defaults,
        };
        if let (Under::Nothing, Some(namespace)) = (under, namespace) {
            return Err(format!("{}: spec: the namespace {namespace} has no ceiling any more", path.display()));
        }
        let operator = parse_object(object, path, within).map_err(|errors| text::block(&errors.to_string()))?;
        let (Under::Ceiling(ceiling), Some(namespace)) = (under, namespace) else {
            return Ok(operator);
        };
        let named = |why: String| {
            let lines: Vec<_> = why.lines().map(|line| format!("{}: {line}", path.display())).collect();
            text::block(&lines.join("\n"))
        };
        tenant::housed(operator, namespace, ceiling).map_err(named)
    }

    /// Returns the operator that was in force last, with components that never are anything else.
    fn last_good(&self, object: &Value) -> Option<Operator> {
        let remembered = object.pointer("/status/inForce")?;
        let spec = remembered.get("spec")?.as_str().filter(|spec| spec.len() <= REMEMBERED)?;
        let spec = Budget::of_run().read(spec).ok()?;
        let then = json!({ "metadata": { "name": object.pointer("/metadata/name") }, "spec": spec });
        let mut operator = self.operator(&then).ok()?;
        for (name, plugin) in &mut operator.plugins {
            if let Some(Component::Registry(image)) = &mut plugin.component {
                let digest = Digest::parse(remembered.get("images")?.get(&**name)?.as_str()?).ok()?;
                image.reference = image.reference.at(&digest);
            }
        }
        Some(operator)
    }
}

/// Returns which components were in force last.
fn components(object: &Value) -> Option<BTreeMap<Arc<str>, Digest>> {
    let components = object.pointer("/status/inForce/components")?.as_object()?;
    components
        .iter()
        .map(|(name, digest)| Some((name.as_str().into(), Digest::parse(digest.as_str()?).ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use capstan_core::object::Managers;

    use super::*;

    fn object(spec: &Value, status: &Value) -> Object {
        let metadata =
            json!({ "name": "web", "namespace": "n", "uid": "1", "generation": 3, "creationTimestamp": "t" });
        let object = json!({ "apiVersion": "capstan.dev/v1alpha1", "kind": "Operator", "metadata": metadata, "spec": spec, "status": status });
        let gvk = Gvk::parse("capstan.dev/v1alpha1", "Operator").unwrap();
        Object::parse(&object.to_string(), &gvk, &Managers::default()).unwrap()
    }

    fn spec(component: &Value) -> Value {
        json!({
            "plugins": { "web": { "component": component } },
            "controllers": { "web": { "plugin": "web", "primary": { "apiVersion": "v1", "kind": "ConfigMap" } } },
        })
    }

    #[test]
    fn an_object_is_read_as_a_manifest_is_but_may_name_no_files() {
        // OP-2
        let read =
            |component: &Value| Read::of(&object(&spec(component), &Value::Null), &Defaults::default(), Under::Daemon);
        let good = read(&json!({ "oci": "ghcr.io/org/web:1" }));
        assert_eq!((good.posted.generation, &*good.posted.uid, &*good.said.unwrap().name), (3, "1", "web"));
        for (component, expected) in [
            (
                json!({ "path": "web.wasm" }),
                "operators.capstan.dev/n/web: spec.plugins.web.component.path: found a file, and an object of the cluster has none beside it; expected `oci`, a component in a registry",
            ),
            (
                json!({ "oci": "ghcr.io/org/web:1", "ca": { "file": "/etc/passwd" } }),
                "operators.capstan.dev/n/web: spec.plugins.web.component.ca.file: found a file, and an object of the cluster has none beside it; expected `secret` or `configMap`",
            ),
            (
                json!({ "oci": "ghcr.io/org/web:1", "pullsecret": "a" }),
                "operators.capstan.dev/n/web: spec.plugins.web.component.pullsecret: unknown field `pullsecret`; did you mean `pullSecret`?",
            ),
        ] {
            let found = read(&component).posted.content.unwrap_err();
            assert!(found.starts_with(expected), "{found}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_good_version_is_tried_first_and_again_as_long_as_nothing_is_in_force() {
        // OP-5
        let (then, secs) = (Instant::now(), Duration::from_secs);
        let over = Revival::Over(then);
        for (revival, is_stuck, is_in_force, after, expected) in [
            (Revival::Unneeded, false, true, 0, None),
            (Revival::Unneeded, true, false, 0, Some(Revival::UnderWay)),
            (Revival::UnderWay, false, false, 30, None),
            (Revival::UnderWay, true, false, 0, Some(over)),
            (Revival::UnderWay, false, true, 0, Some(over)),
            (over, true, false, 59, None),
            (over, true, false, 60, Some(Revival::UnderWay)),
            (over, false, true, 600, None),
            (over, false, false, 600, None),
        ] {
            assert_eq!(
                revival.next(is_stuck, is_in_force, then + secs(after)),
                expected,
                "{revival:?} after {after} s"
            );
        }
    }

    #[test]
    fn what_was_in_force_last_is_read_with_the_components_of_then() {
        // OP-5
        let digest = format!("sha256:{}", "1".repeat(64));
        let then = spec(&json!({ "oci": "ghcr.io/org/web:1" })).to_string();
        let read = |in_force: Value| {
            let now = spec(&json!({ "oci": "ghcr.io/org/web:2" }));
            Read::of(&object(&now, &json!({ "inForce": in_force })), &Defaults::default(), Under::Daemon).last_good
        };
        let last_good = read(json!({ "generation": 2, "spec": then, "images": { "web": digest } })).unwrap();
        let component = last_good.plugins["web"].component.as_ref().unwrap().to_string();
        assert_eq!(component, format!("ghcr.io/org/web:1@{digest}"));
        for broken in [
            Value::Null,
            json!({ "generation": 2, "spec": then }),
            json!({ "generation": 2, "spec": then, "images": { "web": "sha256:x" } }),
            json!({ "generation": 2, "spec": "{", "images": { "web": digest } }),
            // The daemon writes none that is so long.
            json!({ "generation": 2, "spec": format!("{then}{}", " ".repeat(REMEMBERED)), "images": { "web": digest } }),
        ] {
            assert_eq!(read(broken.clone()), None, "{broken}");
        }
    }
}
