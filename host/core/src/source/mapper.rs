//! Decides which primaries a secondary belongs to: by owner references, annotations, labels, or texts in it (IM). What the
//! component says of it is in `exports.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::callback::{Asked, Callback};
use super::keys::{named, placed};
use crate::dependent::Sign;
use crate::manifest::{ByIndex, Keys, Mapper as Declared, MappingKeys, Secondaries};
use crate::object::{Gvk, Object, ObjectRef, Owner, Scope, Text};

/// The mapper of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapper {
    /// The kind of the primaries.
    kind: Gvk,
    scope: Scope,
    declared: Declared,
    /// The names of secondaries that a primary has, and whether these live in namespaces.
    secondaries: Option<(Secondaries, Scope)>,
    /// True if primaries and secondaries by texts may be in different namespaces.
    across: bool,
}

impl Mapper {
    /// Returns the mapper to primaries of `kind`, which are namespaced or cluster-scoped as `scope` says.
    pub fn new(kind: Gvk, scope: Scope, declared: Declared) -> Self {
        Self { kind, scope, declared, secondaries: None, across: false }
    }

    /// Lets primaries name their secondaries, which are namespaced or cluster-scoped as `scope` says (`IM-4`).
    #[must_use]
    pub fn led_by(self, by: Secondaries, scope: Scope) -> Self {
        Self { secondaries: Some((by, scope)), ..self }
    }

    /// Decides whether texts may lead from one namespace into another.
    #[must_use]
    pub fn across(self, across: bool) -> Self {
        Self { across, ..self }
    }

    /// Returns the index of primaries that leads to them, if that is how they are found.
    pub(super) fn index(&self) -> Option<&ByIndex> {
        if let Declared::Index(by) = &self.declared { Some(by) } else { None }
    }

    /// Returns the name of the export that says whose a secondary is, if one does.
    pub(super) fn export(&self) -> Option<&Arc<str>> {
        if let Declared::Export(name) = &self.declared { Some(name) } else { None }
    }

    /// Returns by what secondaries are found, in words.
    pub(super) fn by(&self) -> String {
        let all = |keys: &MappingKeys| {
            let keys = [Some(&keys.name), keys.namespace.as_ref(), keys.kind.as_ref()];
            keys.into_iter().flatten().map(|key| &**key).collect::<Vec<_>>().join(", ")
        };
        match &self.declared {
            _ if self.secondaries.is_some() => "what the primary says (`secondaries`)".to_owned(),
            Declared::OwnerReference | Declared::OwnerKind => "an owner reference".to_owned(),
            Declared::Annotations(keys) => format!("the annotations {}", all(keys)),
            Declared::Labels(keys) => format!("the labels {}", all(keys)),
            Declared::Named(_) | Declared::Index(_) | Declared::Export(_) => "what its mapper names".to_owned(),
        }
    }

    /// Returns what a secondary says by which it is found, if it is that alone.
    pub(super) fn sign(&self) -> Option<String> {
        let kind = &self.kind.kind;
        match &self.declared {
            _ if self.secondaries.is_some() => None,
            Declared::OwnerReference | Declared::OwnerKind => Some(format!("an owner reference to a {kind}")),
            Declared::Annotations(keys) => Some(format!("the annotation {} with the name of a {kind}", keys.name)),
            Declared::Labels(keys) => Some(format!("the label {} with the name of a {kind}", keys.name)),
            Declared::Named(_) | Declared::Index(_) | Declared::Export(_) => None,
        }
    }

    /// Returns the labels or annotations of a secondary by which it is found.
    pub(super) fn signs(&self) -> Vec<Sign<'_>> {
        match &self.declared {
            Declared::Annotations(keys) => Sign::all("annotations", keys).collect(),
            Declared::Labels(keys) => Sign::all("labels", keys).collect(),
            Declared::OwnerReference
            | Declared::OwnerKind
            | Declared::Named(_)
            | Declared::Index(_)
            | Declared::Export(_) => Vec::new(),
        }
    }

    /// Returns whether primaries live in namespaces.
    pub(super) fn scope(&self) -> Scope {
        self.scope
    }

    /// Returns the name of the export that says which secondaries a primary has, if one does, and whether these live in namespaces.
    pub(super) fn leading_export(&self) -> Option<(&Arc<str>, Scope)> {
        match &self.secondaries {
            Some((Secondaries::Export(name), scope)) => Some((name, *scope)),
            Some((Secondaries::Named(_), _)) | None => None,
        }
    }

    /// Returns the names of secondaries that a primary has, if it is asked for them.
    pub(super) fn secondaries(&self) -> Option<(&Keys, Scope)> {
        match &self.secondaries {
            Some((Secondaries::Named(keys), scope)) => Some((keys, *scope)),
            Some((Secondaries::Export(_), _)) | None => None,
        }
    }

    /// Returns true if asking who a secondary belongs to costs much more than a look at its text.
    pub(super) fn is_costly(&self) -> bool {
        match &self.declared {
            Declared::Named(keys) | Declared::Index(ByIndex { key: keys, .. }) => keys.is_costly(),
            Declared::Export(_) => true,
            Declared::OwnerReference | Declared::OwnerKind | Declared::Annotations(_) | Declared::Labels(_) => false,
        }
    }

    /// Returns true if a primary is asked for its secondaries, so that these need not be remembered.
    pub(super) fn asks_primaries(&self) -> bool {
        self.secondaries.is_some() || self.index().is_some()
    }

    /// Returns true if a text may lead from one of these objects to the other.
    pub(super) fn reaches(&self, secondary: &ObjectRef, primary: &ObjectRef) -> bool {
        let apart = secondary.namespace.is_some() && primary.namespace.is_some();
        self.across || !apart || secondary.namespace == primary.namespace
    }

    /// Returns the primaries of those that a secondary names which it may lead to; others are told.
    pub(super) fn reached(
        &self,
        secondary: &ObjectRef,
        primaries: impl Iterator<Item = ObjectRef>,
        asked: Asked<'_>,
    ) -> BTreeSet<ObjectRef> {
        let (reached, beyond): (_, BTreeSet<_>) = primaries.partition(|primary| self.reaches(secondary, primary));
        if let Some(primary) = beyond.first() {
            asked.tell_of_reach("mapper", secondary, primary);
        }
        reached
    }

    /// Returns the secondaries of those that a primary names which it may lead to; others are told.
    pub(super) fn led(
        &self,
        primary: &ObjectRef,
        secondaries: impl Iterator<Item = ObjectRef>,
        asked: Asked<'_>,
    ) -> BTreeSet<ObjectRef> {
        let (led, beyond): (_, BTreeSet<_>) = secondaries.partition(|secondary| self.reaches(secondary, primary));
        if let Some(secondary) = beyond.first() {
            asked.tell_of_reach("secondaries", primary, secondary);
        }
        led
    }

    /// Returns the primaries that a secondary belongs to as it says itself; the set may be empty (`IM-3`). The text is
    /// read for all but owner references.
    pub fn primaries(&self, secondary: &Object, asked: Asked<'_>) -> BTreeSet<ObjectRef> {
        match &self.declared {
            Declared::OwnerReference | Declared::OwnerKind => {
                let owners = secondary.header().owners.iter().filter(|owner| self.is_primary(owner));
                owners.filter_map(|owner| self.key(&owner.name, None, secondary)).collect()
            }
            Declared::Annotations(keys) => {
                self.tagged(keys, &secondary.tags().annotations, secondary).into_iter().collect()
            }
            Declared::Labels(keys) => self.tagged(keys, &secondary.tags().labels, secondary).into_iter().collect(),
            Declared::Named(keys) => self.named(keys, secondary, asked),
            Declared::Index(_) | Declared::Export(_) => BTreeSet::new(),
        }
    }

    /// Returns the primaries whose names are texts in a secondary.
    fn named(&self, keys: &Keys, secondary: &Object, asked: Asked<'_>) -> BTreeSet<ObjectRef> {
        let own = secondary.key();
        let texts = asked.texts(keys, "object", secondary, (Callback::Mapper, "mapper"));
        let named = texts.iter().filter_map(|text| named(text, self.scope, own.namespace.as_ref()));
        self.reached(own, named, asked)
    }

    /// Returns true if a secondary belongs to a primary.
    pub fn maps(&self, secondary: &Object, primary: &ObjectRef, asked: Asked<'_>) -> bool {
        match &self.declared {
            Declared::OwnerReference | Declared::OwnerKind => {
                let header = secondary.header();
                let reachable = match self.scope {
                    Scope::Cluster => primary.namespace.is_none(),
                    Scope::Namespaced => primary.namespace.is_some() && primary.namespace == header.key.namespace,
                };
                reachable && header.owners.iter().any(|owner| *owner.name == *primary.name && self.is_primary(owner))
            }
            Declared::Annotations(_)
            | Declared::Labels(_)
            | Declared::Named(_)
            | Declared::Export(_)
            | Declared::Index(_) => self.primaries(secondary, asked).contains(primary),
        }
    }

    /// Returns true if all secondaries of a primary are in its own namespace.
    pub fn stays_at_home(&self, primary: &ObjectRef) -> bool {
        let across = match &self.declared {
            Declared::OwnerReference | Declared::OwnerKind => false,
            Declared::Annotations(keys) | Declared::Labels(keys) => keys.across_namespaces,
            Declared::Named(_) | Declared::Export(_) | Declared::Index(_) => self.across,
        };
        // Names may lead anywhere, whatever leads back.
        primary.namespace.is_some() && !across && !(self.secondaries.is_some() && self.across)
    }

    /// Returns true if the headers of two versions of a secondary show that both belong to the same primaries.
    pub fn same(&self, old: &Object, new: &Object) -> bool {
        match &self.declared {
            Declared::OwnerReference | Declared::OwnerKind => old.header().owners == new.header().owners,
            Declared::Annotations(_)
            | Declared::Labels(_)
            | Declared::Named(_)
            | Declared::Export(_)
            | Declared::Index(_) => false,
        }
    }

    /// Returns true if an owner is of the primaries' kind (`IM-1`): kind and group decide, the version does not. By kind only,
    /// the group does not either (`IM-2`).
    fn is_primary(&self, owner: &Owner) -> bool {
        owner.is_of(&self.kind) || (self.declared == Declared::OwnerKind && *owner.kind == *self.kind.kind)
    }

    /// Returns the primary that annotations or labels name (`IM-2`). A missing type counts as the right one. A client
    /// that may write a secondary in one namespace can't tie it to a primary of another, unless the manifest permits
    /// that.
    fn tagged(&self, keys: &MappingKeys, tags: &BTreeMap<Text<'_>, Text<'_>>, secondary: &Object) -> Option<ObjectRef> {
        let MappingKeys { name, namespace, kind, across_namespaces } = keys;
        let read = |key: &Arc<str>| tags.get(&**key).map(|text| &*text.0);
        let kind = kind.as_ref().and_then(read);
        if kind.is_some_and(|kind| !self.is_type(kind)) {
            return None;
        }
        let key = self.key(read(name)?, namespace.as_ref().and_then(read), secondary)?;
        let own = &secondary.key().namespace;
        let across = own.is_some() && key.namespace.is_some() && *own != key.namespace;
        if across && !across_namespaces {
            tracing::debug!(secondary = %secondary.key(), primary = %key, "names a primary of another namespace, and is ignored");
            return None;
        }
        Some(key)
    }

    /// Returns true if a text is the primaries' type (`ID-2`): `group/version/Kind`; for core kinds `version/Kind` or
    /// `/version/Kind`. As in owner references, the version does not matter (`IM-1`): an object belongs to its primary whichever it was then.
    fn is_type(&self, text: &str) -> bool {
        let Gvk { group, kind, .. } = &self.kind;
        let text = if group.is_empty() { text.strip_prefix('/').unwrap_or(text) } else { text };
        let of_group = |api_version: &str| match api_version.rsplit_once('/') {
            Some((found, version)) => !group.is_empty() && *found == **group && !version.is_empty(),
            None => group.is_empty() && !api_version.is_empty(),
        };
        text.rsplit_once('/').is_some_and(|(api_version, found)| *found == **kind && of_group(api_version))
    }

    /// Returns the key of a primary. Without a given namespace, a namespaced primary is in the secondary's; `None` if
    /// the secondary is cluster-scoped then.
    fn key(&self, name: &str, namespace: Option<&str>, secondary: &Object) -> Option<ObjectRef> {
        placed(name, namespace, self.scope, secondary.key().namespace.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::cel::Expression;
    use crate::object::Managers;
    use crate::object::pointer::Pointer;
    use crate::source::callback::Faults;

    fn asked() -> Asked<'static> {
        Asked { source: "s", faults: Box::leak(Box::<Faults>::default()) }
    }

    fn secondary(metadata: &str) -> Object {
        let json = format!(r#"{{"metadata":{{"name":"s",{metadata}}}}}"#);
        Object::parse(&json, &Gvk::parse("v1", "ConfigMap").unwrap(), &Managers::default()).unwrap()
    }

    fn page(scope: Scope, declared: Declared) -> Mapper {
        Mapper::new(Gvk::parse("x.dev/v1", "Page").unwrap(), scope, declared)
    }

    /// Returns the keys of the primaries as text, after a check that `maps` agrees.
    fn primaries(mapper: &Mapper, secondary: &Object) -> Vec<String> {
        let primaries = mapper.primaries(secondary, asked());
        for key in [ObjectRef::namespaced("n", "p"), ObjectRef::namespaced("m", "p"), ObjectRef::cluster("p")] {
            assert_eq!(mapper.maps(secondary, &key, asked()), primaries.contains(&key), "{key}");
        }
        primaries.iter().map(ToString::to_string).collect()
    }

    fn owned(namespace: &str, owners: &[(&str, &str, &str)]) -> Object {
        let owner = |(version, kind, name): &(&str, &str, &str)| {
            format!(r#"{{"apiVersion":"{version}","kind":"{kind}","name":"{name}","uid":"u"}}"#)
        };
        let owners = owners.iter().map(owner).collect::<Vec<_>>().join(",");
        secondary(&format!(r#""namespace":"{namespace}","ownerReferences":[{owners}]"#))
    }

    #[test]
    fn owner_references_count_by_kind_and_group() {
        // IM-1, IM-3
        let mapper = page(Scope::Namespaced, Declared::OwnerReference);
        let page = ("x.dev/v1", "Page", "p");
        for (case, owners, expected) in [
            ("no owner", vec![], vec![]),
            ("the primary", vec![page], vec!["n/p"]),
            ("another version", vec![("x.dev/v1beta1", "Page", "p")], vec!["n/p"]),
            ("another group", vec![("y.dev/v1", "Page", "p")], vec![]),
            ("the core group", vec![("v1", "Page", "p")], vec![]),
            ("another kind", vec![("x.dev/v1", "Site", "p")], vec![]),
            ("two", vec![("x.dev/v1", "Page", "q"), page, ("v1", "Pod", "z")], vec!["n/p", "n/q"]),
        ] {
            assert_eq!(primaries(&mapper, &owned("n", &owners)), expected, "{case}");
        }
        assert_eq!(primaries(&mapper, &owned("", &[page])), Vec::<String>::new());
    }

    #[test]
    fn owner_references_may_count_by_kind_alone() {
        // IM-2
        let mapper = page(Scope::Namespaced, Declared::OwnerKind);
        let owners =
            [("x.dev/v1", "Page", "p"), ("y.dev/v1", "Page", "q"), ("v1", "Page", "r"), ("x.dev/v1", "Site", "s")];
        let object = owned("n", &owners);
        assert_eq!(primaries(&mapper, &object), ["n/p", "n/q", "n/r"]);
        let maps = |name| mapper.maps(&object, &ObjectRef::namespaced("n", name), asked());
        assert_eq!(["p", "q", "s"].map(maps), [true, true, false]);
    }

    #[test]
    fn owners_may_be_cluster_scoped_or_of_the_core_group() {
        // ID-3, IM-1
        let cluster = page(Scope::Cluster, Declared::OwnerReference);
        assert_eq!(primaries(&cluster, &owned("n", &[("x.dev/v1", "Page", "p")])), ["p"]);
        let pod = Gvk::parse("v1", "Pod").unwrap();
        let pods = Mapper::new(pod, Scope::Namespaced, Declared::OwnerReference);
        assert_eq!(primaries(&pods, &owned("n", &[("v1", "Pod", "p")])), ["n/p"]);
    }

    const NAME: &str = r#""capstan.dev/primary-name":"p""#;
    const NAMESPACE: &str = r#""capstan.dev/primary-namespace":"m""#;

    fn typed(text: &str) -> String {
        format!(r#"{NAME},"capstan.dev/primary-type":"{text}""#)
    }

    /// Checks which primary is found by these tags, if primaries are namespaced and if they are cluster-scoped.
    fn check(keys: &MappingKeys, tags: &str, namespaced: Option<&str>, cluster: Option<&str>) {
        let annotated = secondary(&format!(r#""namespace":"n","annotations":{{{tags}}}"#));
        let labelled = secondary(&format!(r#""namespace":"n","labels":{{{tags}}}"#));
        for (scope, expected) in [(Scope::Namespaced, namespaced), (Scope::Cluster, cluster)] {
            let expected = Vec::from_iter(expected);
            let by_annotations = page(scope, Declared::Annotations(keys.clone()));
            assert_eq!(primaries(&by_annotations, &annotated), expected, "{tags}, {scope:?}");
            let by_labels = page(scope, Declared::Labels(keys.clone()));
            assert_eq!(primaries(&by_labels, &labelled), expected, "{tags}, {scope:?}");
            assert_eq!(primaries(&by_labels, &annotated), Vec::<String>::new(), "{tags}");
        }
    }

    #[test]
    fn annotations_and_labels_name_the_primary() {
        // IM-2
        let keys = MappingKeys::default();
        check(&keys, "", None, None);
        check(&keys, NAMESPACE, None, None);
        check(&keys, r#""capstan.dev/primary-name":"""#, None, None);
        check(&keys, NAME, Some("n/p"), Some("p"));
        let both = format!("{NAME},{NAMESPACE}");
        // A secondary is not tied to a primary of another namespace, unless the manifest permits that.
        check(&keys, &both, None, Some("p"));
        let across = MappingKeys { across_namespaces: true, ..keys.clone() };
        check(&across, &both, Some("m/p"), Some("p"));
        let own = MappingKeys { namespace: None, ..keys };
        check(&own, &both, Some("n/p"), Some("p"));
    }

    #[test]
    fn a_type_must_be_the_primarys_if_there_is_one() {
        // IM-2
        let keys = MappingKeys::default();
        check(&keys, &typed("x.dev/v1/Page"), Some("n/p"), Some("p"));
        check(&keys, &typed("x.dev/v2/Page"), Some("n/p"), Some("p"));
        for other in ["y.dev/v1/Page", "x.dev/v1/Site", "/x.dev/v1/Page", "x.dev//Page", "x.dev/Page", "v1/Page"] {
            check(&keys, &typed(other), None, None);
        }
        let any = MappingKeys { kind: None, ..keys };
        check(&any, &typed("y.dev/v2/Page"), Some("n/p"), Some("p"));
    }

    #[test]
    fn the_type_of_a_core_kind_may_begin_with_a_slash() {
        // ID-2
        let tags = Declared::Labels(MappingKeys::default());
        let pods = Mapper::new(Gvk::parse("v1", "Pod").unwrap(), Scope::Namespaced, tags);
        for (text, expected) in [
            ("v1/Pod", vec!["n/p"]),
            ("/v1/Pod", vec!["n/p"]),
            ("//v1/Pod", vec![]),
            ("apps/v1/Pod", vec![]),
            ("v1Pod", vec![]),
        ] {
            let secondary = secondary(&format!(r#""namespace":"n","labels":{{{}}}"#, typed(text)));
            assert_eq!(primaries(&pods, &secondary), expected, "{text}");
        }
    }

    #[test]
    fn equal_owner_references_need_no_second_look() {
        let [one, other] = ["p", "q"].map(|name| owned("n", &[("x.dev/v1", "Page", name)]));
        let owners = page(Scope::Namespaced, Declared::OwnerReference);
        assert!(owners.same(&one, &one) && !owners.same(&one, &other));
        assert!(!page(Scope::Namespaced, Declared::Labels(MappingKeys::default())).same(&one, &one));
    }

    #[test]
    fn texts_name_primaries_in_their_own_namespace_unless_they_may_reach_further() {
        // IM-2, IM-3
        let cel = Expression::parse("object.spec.pages", &["object"]).unwrap();
        let json = r#"{"metadata":{"name":"s","namespace":"n"},"spec":{"pages":["p","n/q","m/p",""]}}"#;
        let object = Object::parse(json, &Gvk::parse("v1", "ConfigMap").unwrap(), &Managers::default()).unwrap();
        for keys in [Keys::Cel(cel), Keys::Pointer(Pointer::parse("/spec/pages").unwrap())] {
            let mapper = page(Scope::Namespaced, Declared::Named(keys));
            assert_eq!(primaries(&mapper, &object), ["n/p", "n/q"]);
            let told = Arc::new(Mutex::new(0));
            let counted = Arc::clone(&told);
            let faults = Faults::new("c", move |_| *counted.lock() += 1);
            mapper.primaries(&object, Asked { source: "s", faults: &faults });
            assert_eq!(*told.lock(), 1, "what leads too far is told");
            assert!(mapper.stays_at_home(&ObjectRef::namespaced("n", "p")));
            let mapper = mapper.across(true);
            assert_eq!(primaries(&mapper, &object), ["m/p", "n/p", "n/q"]);
            assert!(!mapper.stays_at_home(&ObjectRef::namespaced("n", "p")));
        }
    }
}
