//! Decides what a component may read and write: by the grants of its manifest, the namespaces of its controller, and
//! the namespace of the daemon.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::guest::{CallError, CallReason};
use crate::kinds::is_built_in;
use crate::manifest::{self, Capabilities, Grant, Namespaces, Permission};
use crate::object::{Gvk, ObjectRef, Scope};

pub mod risk;
pub mod ties;

/// The permissions of a component for one controller.
#[derive(Clone, Debug, Default)]
pub struct Permissions {
    /// The plugin, for messages.
    plugin: Arc<str>,
    grants: Vec<Grant>,
    /// The namespaces that the controller watches, which bound a grant without namespaces of its own.
    namespaces: Option<Namespaces>,
    /// The granted kinds that the controller also writes itself, namespaced or not.
    declared: BTreeSet<Gvk>,
    primary: Option<Gvk>,
    home: Home,
}

/// The namespace of the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Home {
    /// The namespace that `own` means in manifests.
    pub own: Arc<str>,
    /// The namespace with the daemon's own objects, which is out of reach of components; `None` if the daemon runs in
    /// no namespace, or its user has opened it.
    pub closed: Option<Arc<str>>,
}

/// Where a verb on a kind is permitted, seen from one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// It is permitted in this namespace.
    Here,
    /// It is permitted only in other namespaces.
    Elsewhere,
    /// It is permitted nowhere.
    Nowhere,
}

// === impl Home ===

impl Home {
    /// Returns why an object is out of reach of components; `None` if it is not.
    ///
    /// The daemon's manifests, components and keys, its pod and its account are in its namespace, and another
    /// controller may create such objects there from custom resources. So components may write nothing there but
    /// their own primaries, and objects of built-in kinds are not even watched. The namespace itself is out of reach,
    /// too, and not watched: as a primary, it would be written by the daemon for them.
    pub fn bars(&self, gvk: &Gvk, key: &ObjectRef, primary: Option<&Gvk>) -> Option<String> {
        let closed = self.closed.as_deref()?;
        let inside = key.namespace.as_deref() == Some(closed);
        let itself = gvk.is_namespace() && *key.name == *closed;
        let own = primary == Some(gvk) && !is_built_in(gvk);
        ((inside && !own) || itself).then(|| {
            format!(
                "{gvk} {key} is out of reach: {closed} is the daemon's own namespace, which its user can open by --allow-own-namespace"
            )
        })
    }

    /// Returns the namespace in which objects of this kind are not watched; of the kind Namespace the one that is not watched itself.
    /// `None` if there is none.
    pub fn unwatched(&self, gvk: &Gvk) -> Option<&Arc<str>> {
        self.closed.as_ref().filter(|_| is_built_in(gvk))
    }
}

// === impl Permissions ===

impl Permissions {
    /// Returns the permissions of a controller's plugin for that controller.
    pub fn new(controller: &manifest::Controller, granted: &Capabilities, home: Home) -> Self {
        let kinds = granted.kubernetes.iter().map(|grant| &grant.gvk);
        Self {
            plugin: Arc::clone(&controller.plugin),
            grants: granted.kubernetes.clone(),
            namespaces: Some(controller.namespaces.clone()),
            declared: kinds.filter(|gvk| controller.writes(gvk)).cloned().collect(),
            primary: Some(controller.primary.clone()),
            home,
        }
    }

    /// Checks that a write is permitted.
    ///
    /// # Errors
    /// `denied`, with the change of the manifest that would permit it.
    pub fn permit(&self, verb: Permission, gvk: &Gvk, key: &ObjectRef) -> Result<(), CallError> {
        self.in_reach(gvk, key)?;
        match self.reach(verb, gvk, key.namespace.as_deref()) {
            Reach::Here => Ok(()),
            reach @ (Reach::Elsewhere | Reach::Nowhere) => Err(self.denied(reach, verb, gvk, key.namespace.as_deref())),
        }
    }

    /// Checks that an object is one that components may reach at all.
    ///
    /// # Errors
    /// `denied`, if it belongs to the daemon.
    pub fn in_reach(&self, gvk: &Gvk, key: &ObjectRef) -> Result<(), CallError> {
        match self.home.bars(gvk, key, self.primary.as_ref()) {
            None => Ok(()),
            Some(why) => Err(CallError::new(CallReason::Denied, why)),
        }
    }

    /// Returns true if a grant permits to read objects of a kind beyond those that belong to the primary, in some
    /// namespace at least.
    pub fn reads(&self, gvk: &Gvk) -> bool {
        self.of(Permission::Get, gvk).next().is_some()
    }

    /// Returns true if all objects of a kind in a namespace may be read; `None` is the namespace of a cluster-scoped
    /// kind.
    pub fn may_read(&self, gvk: &Gvk, namespace: Option<&str>) -> bool {
        self.reach(Permission::Get, gvk, namespace) == Reach::Here
    }

    /// Returns the error of a denied read, with the change of the manifest that would permit it.
    pub fn unreadable(&self, gvk: &Gvk, namespace: Option<&str>) -> CallError {
        let reach = self.reach(Permission::Get, gvk, namespace);
        self.denied(reach, Permission::Get, gvk, namespace)
    }

    /// Checks that runs may register sources of a kind at all.
    ///
    /// # Errors
    /// `denied`, with the change of the manifest that would permit it.
    pub fn permit_source(&self, gvk: &Gvk) -> Result<(), CallError> {
        match self.of(Permission::Watch, gvk).next() {
            Some(_) => Ok(()),
            None => Err(self.denied(Reach::Nowhere, Permission::Watch, gvk, None)),
        }
    }

    /// Checks that a registered source may watch a kind in a namespace, or everywhere (`None`).
    ///
    /// # Errors
    /// As [`Permissions::permit_source`].
    pub fn permit_watch(&self, gvk: &Gvk, scope: Scope, namespace: Option<&str>) -> Result<(), CallError> {
        let everywhere =
            |grant: &Grant| grant.namespaces.as_ref().or(self.namespaces.as_ref()) == Some(&Namespaces::All);
        if scope == Scope::Namespaced && namespace.is_none() {
            self.permit_source(gvk)?;
            let plugin = &self.plugin;
            let message = || {
                format!(
                    "the manifest permits `watch` on {gvk}, but not in all namespaces; name in `namespaces` of the source those that it permits, or add `namespaces: all` to that entry in spec.plugins.{plugin}.capabilities.kubernetes"
                )
            };
            let permitted = self.of(Permission::Watch, gvk).any(everywhere);
            return if permitted { Ok(()) } else { Err(CallError::new(CallReason::Denied, message())) };
        }
        match self.reach(Permission::Watch, gvk, namespace) {
            Reach::Here => Ok(()),
            reach @ (Reach::Elsewhere | Reach::Nowhere) => Err(self.denied(reach, Permission::Watch, gvk, namespace)),
        }
    }

    fn of(&self, verb: Permission, gvk: &Gvk) -> impl Iterator<Item = &Grant> {
        let fits = move |grant: &&Grant| grant.gvk == *gvk && grant.verbs.contains(&verb);
        self.grants.iter().filter(fits)
    }

    fn reach(&self, verb: Permission, gvk: &Gvk, namespace: Option<&str>) -> Reach {
        let mut reach = Reach::Nowhere;
        for grant in self.of(verb, gvk) {
            if self.extends(grant, namespace) {
                return Reach::Here;
            }
            reach = Reach::Elsewhere;
        }
        reach
    }

    /// Returns true if a namespace is among those of the controller: grants that name no others hold there.
    pub fn is_within(&self, namespace: &str) -> bool {
        self.holds(self.namespaces.as_ref(), namespace)
    }

    /// Returns true if a grant holds in a namespace. For an object without a namespace the grant has to say `all`,
    /// unless the controller writes that kind anyway.
    fn extends(&self, grant: &Grant, namespace: Option<&str>) -> bool {
        let Some(namespace) = namespace else {
            return grant.namespaces == Some(Namespaces::All) || self.declared.contains(&grant.gvk);
        };
        self.holds(grant.namespaces.as_ref().or(self.namespaces.as_ref()), namespace)
    }

    fn holds(&self, namespaces: Option<&Namespaces>, namespace: &str) -> bool {
        match namespaces {
            Some(Namespaces::All) => true,
            Some(Namespaces::Own) => *namespace == *self.home.own,
            Some(Namespaces::Listed(names)) => names.contains(namespace),
            Some(Namespaces::Selected(selected)) => {
                selected.found.as_ref().is_some_and(|names| names.contains(namespace))
            }
            None => false,
        }
    }

    fn denied(&self, reach: Reach, verb: Permission, gvk: &Gvk, namespace: Option<&str>) -> CallError {
        let (verb, plugin) = (verb.word(), &self.plugin);
        let field = format!("spec.plugins.{plugin}.capabilities.kubernetes");
        let message = match (reach, namespace) {
            (Reach::Here | Reach::Nowhere, _) => {
                format!("the manifest does not permit `{verb}` on {gvk}; add it to {field}")
            }
            (Reach::Elsewhere, Some(namespace)) => format!(
                "the manifest permits `{verb}` on {gvk}, but not in namespace {namespace}; add it to `namespaces` of that entry in {field}"
            ),
            (Reach::Elsewhere, None) => format!(
                "the manifest permits `{verb}` on {gvk} in namespaces only; add `namespaces: all` to that entry in {field} if it lives in none, else name a namespace"
            ),
        };
        CallError::new(CallReason::Denied, message)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::manifest::parse;

    /// Returns the permissions of an operator whose plugin has these grants, and whose controller these fields.
    fn permissions(grants: &str, controller: &str, home: Home) -> Permissions {
        let text = format!(
            "{{ apiVersion: capstan.dev/v1alpha1, kind: Operator, metadata: {{ name: o }}, spec: {{ \
             plugins: {{ p: {{ component: {{ path: p.wasm }}, capabilities: {{ kubernetes: [{grants}] }} }} }}, \
             controllers: {{ c: {{ plugin: p, primary: {{ apiVersion: a.dev/v1, kind: Page }}, {controller} }} }} }} }}"
        );
        let operators = parse(&text, Path::new("o.yaml")).unwrap_or_else(|errors| panic!("{errors}"));
        let operator = &operators[0];
        let (controller, plugin) = (&operator.controllers["c"], &operator.plugins["p"]);
        Permissions::new(controller, &plugin.capabilities, home)
    }

    fn open() -> Home {
        Home { own: "home".into(), closed: None }
    }

    /// Reads `Kind namespace/name` or `Kind name`; the group is the core group, except for a page.
    fn target(text: &str) -> (Gvk, ObjectRef) {
        let (kind, key) = text.split_once(' ').unwrap();
        let api_version = match kind {
            "Page" | "Site" => "a.dev/v1",
            "Deployment" => "apps/v1",
            "RoleBinding" | "ClusterRole" => "rbac.authorization.k8s.io/v1",
            _ => "v1",
        };
        let key = match key.split_once('/') {
            Some((namespace, name)) => ObjectRef::namespaced(namespace, name),
            None => ObjectRef::cluster(key),
        };
        (Gvk::parse(api_version, kind).unwrap(), key)
    }

    const VERBS: [Permission; 6] = [
        Permission::Get,
        Permission::Create,
        Permission::Apply,
        Permission::Update,
        Permission::Patch,
        Permission::Delete,
    ];

    #[test]
    fn a_grant_holds_where_the_controller_watches_unless_it_names_other_namespaces() {
        let maps = |more: &str| format!("{{ apiVersion: v1, kind: ConfigMap, verbs: [apply]{more} }}");
        let nodes = |more: &str| format!("{{ apiVersion: v1, kind: Node, verbs: [apply]{more} }}");
        let dependent = "workflow: { dependents: { n: { apiVersion: v1, kind: Node } } }";
        let page = "{ apiVersion: a.dev/v1, kind: Page, verbs: [apply] }";
        let table: Vec<(String, &str, &str, bool)> = vec![
            (String::new(), "namespaces: all", "ConfigMap a/x", false),
            (maps(""), "namespaces: all", "ConfigMap a/x", true),
            (maps(""), "namespaces: all", "Secret a/x", false),
            (maps(""), "namespaces: [a, b]", "ConfigMap a/x", true),
            (maps(""), "namespaces: [a, b]", "ConfigMap b/x", true),
            (maps(""), "namespaces: [a, b]", "ConfigMap c/x", false),
            (maps(""), "namespaces: own", "ConfigMap home/x", true),
            (maps(""), "namespaces: own", "ConfigMap a/x", false),
            (maps(", namespaces: [c]"), "namespaces: [a]", "ConfigMap c/x", true),
            (maps(", namespaces: [c]"), "namespaces: [a]", "ConfigMap a/x", false),
            (maps(", namespaces: [c]"), "namespaces: all", "ConfigMap a/x", false),
            (maps(", namespaces: all"), "namespaces: [a]", "ConfigMap z/x", true),
            (maps(", namespaces: own"), "namespaces: [a]", "ConfigMap home/x", true),
            (maps(", namespaces: own"), "namespaces: [a]", "ConfigMap a/x", false),
            (format!("{}, {}", maps(""), maps(", namespaces: [c]")), "namespaces: [a]", "ConfigMap c/x", true),
            // A kind that lives in no namespace.
            (nodes(""), "namespaces: all", "Node x", false),
            (nodes(", namespaces: [a]"), "namespaces: all", "Node x", false),
            (nodes(", namespaces: all"), "namespaces: [a]", "Node x", true),
            (nodes(""), dependent, "Node x", true),
            (page.to_owned(), "namespaces: [a]", "Page x", true),
            // A missing namespace does not make the kind a cluster-scoped one.
            (maps(""), "namespaces: all", "ConfigMap x", false),
        ];
        for (grants, controller, text, expected) in table {
            let permissions = permissions(&grants, controller, open());
            let (gvk, key) = target(text);
            for verb in VERBS {
                let permitted = permissions.permit(verb, &gvk, &key).is_ok();
                let expected = expected && verb == Permission::Apply;
                assert_eq!(permitted, expected, "{verb:?} {text} by [{grants}] in {controller}");
            }
        }
    }

    #[test]
    fn namespaces_of_the_controller_are_those_that_its_manifest_says() {
        for (controller, a, home) in
            [("namespaces: all", true, true), ("namespaces: [a]", true, false), ("namespaces: own", false, true)]
        {
            let permissions = permissions("", controller, open());
            assert_eq!([permissions.is_within("a"), permissions.is_within("home")], [a, home], "{controller}");
        }
    }

    #[test]
    fn runs_may_have_watched_what_a_grant_says_and_where_it_does() {
        // ES-4
        let grant = |kind: &str, more: &str| format!("{{ apiVersion: v1, kind: {kind}, verbs: [watch]{more} }}");
        let maps = |more: &str| grant("ConfigMap", more);
        for (grants, controller, scope, namespace, expected) in [
            (maps(""), "namespaces: all", Scope::Namespaced, None, ""),
            (maps(""), "namespaces: all", Scope::Namespaced, Some("a"), ""),
            (maps(""), "namespaces: [a]", Scope::Namespaced, Some("a"), ""),
            (maps(""), "namespaces: [a]", Scope::Namespaced, Some("b"), "but not in namespace b"),
            (maps(""), "namespaces: [a]", Scope::Namespaced, None, "but not in all namespaces"),
            (maps(", namespaces: [b]"), "namespaces: all", Scope::Namespaced, None, "but not in all namespaces"),
            (maps(", namespaces: [b]"), "namespaces: all", Scope::Namespaced, Some("b"), ""),
            (maps(", namespaces: all"), "namespaces: [a]", Scope::Namespaced, None, ""),
            (grant("Secret", ""), "namespaces: all", Scope::Namespaced, Some("a"), "does not permit `watch`"),
            // Lives in no namespace.
            (maps(""), "namespaces: all", Scope::Cluster, None, "in namespaces only"),
            (maps(", namespaces: all"), "namespaces: [a]", Scope::Cluster, None, ""),
        ] {
            let permissions = permissions(&grants, controller, open());
            let (gvk, _) = target("ConfigMap x");
            let answer = permissions.permit_watch(&gvk, scope, namespace);
            let told = answer.err().map(|error| error.message).unwrap_or_default();
            assert!(told.contains(expected) && told.is_empty() == expected.is_empty(), "{told}: {grants} {controller}");
            assert_eq!(permissions.permit_source(&gvk).is_ok(), !expected.contains("does not permit"), "{grants}");
        }
        let reads = permissions("{ apiVersion: v1, kind: ConfigMap, verbs: [get] }", "namespaces: all", open());
        assert!(reads.permit_source(&target("ConfigMap x").0).is_err());
    }

    #[test]
    fn a_refusal_names_what_would_permit_it() {
        let permissions = permissions(
            "{ apiVersion: v1, kind: ConfigMap, verbs: [apply] }, { apiVersion: v1, kind: Node, verbs: [apply] }",
            "namespaces: [a]",
            open(),
        );
        for (text, message) in [
            (
                "Secret a/x",
                "the manifest does not permit `apply` on v1 Secret; add it to spec.plugins.p.capabilities.kubernetes",
            ),
            (
                "ConfigMap b/x",
                "the manifest permits `apply` on v1 ConfigMap, but not in namespace b; add it to `namespaces` of that entry in spec.plugins.p.capabilities.kubernetes",
            ),
            (
                "Node x",
                "the manifest permits `apply` on v1 Node in namespaces only; add `namespaces: all` to that entry in spec.plugins.p.capabilities.kubernetes if it lives in none, else name a namespace",
            ),
        ] {
            let (gvk, key) = target(text);
            let denied = permissions.permit(Permission::Apply, &gvk, &key);
            assert_eq!(denied, Err(CallError::new(CallReason::Denied, message)));
        }
    }

    #[test]
    fn nothing_in_the_daemons_namespace_is_in_reach_but_primaries() {
        let kinds = ["ConfigMap", "Secret", "Pod", "Namespace", "Site", "Page"].map(|kind| {
            let (gvk, _) = target(&format!("{kind} x"));
            format!(
                "{{ apiVersion: {}, kind: {kind}, verbs: [get, create, apply, update, patch, delete], namespaces: all }}",
                gvk.api_version()
            )
        });
        let closed = Home { own: "home".into(), closed: Some("home".into()) };
        for (text, expected) in [
            ("ConfigMap home/x", false),
            ("Secret home/sh.helm.release.v1.capstan.v1", false),
            ("Pod home/x", false),
            // A kind of which a controller may make pods or secrets.
            ("Site home/x", false),
            ("Namespace home", false),
            ("Page home/x", true),
            ("ConfigMap other/x", true),
            ("Site other/x", true),
            ("Namespace other", true),
            // Not in the namespace, but with its name.
            ("ConfigMap other/home", true),
        ] {
            let (gvk, key) = target(text);
            let shut = permissions(&kinds.join(", "), "namespaces: all", closed.clone());
            let opened = permissions(&kinds.join(", "), "namespaces: all", open());
            for verb in VERBS {
                assert_eq!(shut.permit(verb, &gvk, &key).is_ok(), expected, "{text}");
                assert_eq!(opened.permit(verb, &gvk, &key), Ok(()), "{text}");
            }
        }
    }

    #[test]
    fn kinds_of_kubernetes_are_not_watched_in_the_daemons_namespace() {
        let closed = Home { own: "home".into(), closed: Some("home".into()) };
        for (kind, unwatched) in [("ConfigMap", true), ("Deployment", true), ("RoleBinding", true), ("Page", false)] {
            let (gvk, _) = target(&format!("{kind} x"));
            assert_eq!(closed.unwatched(&gvk).is_some(), unwatched, "{kind}");
            assert_eq!(open().unwatched(&gvk), None);
        }
        // A primary of a built-in kind is out of reach, too.
        let (gvk, key) = target("ConfigMap home/x");
        assert!(closed.bars(&gvk, &key, Some(&gvk)).is_some());
    }
}
