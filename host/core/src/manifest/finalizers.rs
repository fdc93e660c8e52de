//! Decides whether two controllers may use their finalizers beside one another: one that both have lets a primary go once the first of
//! them has cleaned up (`LC-3`).

use std::cell::OnceCell;
use std::sync::Arc;

use super::{Controller, Namespaces, Selected};
use crate::object::Scope;
use crate::object::labels::Selector;

/// A controller, with what is known of its finalizer.
#[derive(Clone, Debug)]
pub struct Finalizing<'a> {
    /// The controller.
    pub spec: &'a Controller,
    /// Its finalizer; `None`: the default one of its kind.
    pub name: Option<&'a str>,
    /// Whether it puts that on primaries, as far as is known (`DI-2`).
    pub uses: bool,
    /// What it selects, read once however many it is compared with.
    selects: OnceCell<Selects>,
}

/// What a controller selects of its kind.
#[derive(Clone, Debug)]
struct Selects {
    namespaces: Option<Selector>,
    labels: Option<Selector>,
    fields: Option<Selector>,
}

/// What is known of the place in which two controllers have their primaries.
#[derive(Clone, Copy, Debug, Default)]
pub struct Where<'a> {
    /// Where the kind lives; `None`: that is not known.
    pub scope: Option<Scope>,
    /// What `own` means in namespaces; `None`: that is not known.
    pub own: Option<&'a str>,
}

/// How one controller takes away what another one has put on primaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clash {
    /// Both use one finalizer.
    Shared,
    /// The first one names that of the other under `finalizers.formerly`.
    Formerly,
    /// The other one names that of the first.
    FormerlyOfOther,
}

impl<'a> Finalizing<'a> {
    /// Returns this of a controller.
    pub fn new(spec: &'a Controller, name: Option<&'a str>, uses: bool) -> Self {
        Self { spec, name, uses, selects: OnceCell::new() }
    }

    /// Returns what a manifest alone says of a controller: what its component exports is not known.
    pub fn declared(spec: &'a Controller) -> Self {
        let name = spec.finalizer.as_deref();
        // In all-events mode finalizers are the component's: one that is named is meant to be used.
        let uses = if spec.all_events() { name.is_some() } else { spec.deletes_dependents() };
        Self::new(spec, name, uses)
    }

    /// Returns how two controllers get into each other's way; `None` if they do not.
    pub fn clash(&self, other: &Finalizing<'_>, place: Where<'_>) -> Option<Clash> {
        let former = |one: &Finalizing<'_>, other: &Finalizing<'_>| {
            other.uses && other.name.is_some_and(|name| one.spec.former_finalizers.contains(name))
        };
        // The default is the same for both, whatever is known of its name.
        let default = self.spec.finalizer.is_none() && other.spec.finalizer.is_none();
        let clash = if self.uses && other.uses && (default || self.name == other.name) {
            Clash::Shared
        } else if former(self, other) {
            Clash::Formerly
        } else if former(other, self) {
            Clash::FormerlyOfOther
        } else {
            return None;
        };
        self.may_share_primaries(other, place).then_some(clash)
    }

    /// Whether there may be an object that is a primary of both, now or once somebody has changed its labels.
    fn may_share_primaries(&self, other: &Finalizing<'_>, place: Where<'_>) -> bool {
        let (one, two) = (self.spec, other.spec);
        let remote = |spec: &Controller| {
            let remote = spec.cluster.as_ref().and_then(|name| spec.remotes.get(name));
            remote.map(|remote| (Arc::clone(&remote.secret), Arc::clone(&remote.key)))
        };
        let same_kind = (&one.primary.group, &one.primary.kind) == (&two.primary.group, &two.primary.kind);
        let everywhere = place.scope == Some(Scope::Cluster);
        let shards = one.shard_selector.as_ref().zip(two.shard_selector.as_ref());
        same_kind
            && remote(one) == remote(two)
            && (everywhere || overlap(&one.namespaces, &two.namespaces, place.own))
            && !shards.is_some_and(|(one, two)| one.excludes(two))
            && !self.selects().excludes(other.selects(), everywhere)
    }

    fn selects(&self) -> &Selects {
        let Controller { namespaces, label_selector, field_selector, .. } = self.spec;
        let parsed = |text: &Arc<str>| Selector::parse(text).ok();
        self.selects.get_or_init(|| Selects {
            namespaces: match namespaces {
                Namespaces::Selected(Selected { selector, .. }) => parsed(selector),
                Namespaces::All | Namespaces::Own | Namespaces::Listed(_) => None,
            },
            labels: label_selector.as_ref().and_then(parsed),
            fields: field_selector.as_deref().map(Selector::of_fields),
        })
    }
}

impl Selects {
    /// Whether nothing meets the selectors of both; those of namespaces count unless the kind lives in none.
    fn excludes(&self, other: &Self, everywhere: bool) -> bool {
        let excludes = |one: &Option<Selector>, other: &Option<Selector>| {
            one.as_ref().zip(other.as_ref()).is_some_and(|(one, other)| one.excludes(other))
        };
        excludes(&self.labels, &other.labels)
            || excludes(&self.fields, &other.fields)
            || (!everywhere && excludes(&self.namespaces, &other.namespaces))
    }
}

impl Clash {
    /// Says what is wrong with a controller that clashes with `other`, such as "controller `one`", about this finalizer; `None`: the
    /// default one of its kind.
    pub fn message(self, spec: &Controller, other: &str, finalizer: Option<&str>) -> String {
        const APART: &str = "or namespaces or selectors without a common primary";
        let finalizer = match finalizer {
            Some(finalizer) => format!("the finalizer {finalizer}"),
            None => format!("the default finalizer of {}", spec.primary),
        };
        match self {
            Self::Shared => format!(
                "found {finalizer}, as {other} uses it, so that a primary of both would go once one of them has cleaned up; expected another `finalizer` in one of them, {APART}"
            ),
            Self::Formerly => format!(
                "found {finalizer}, which {other} uses, so that its primaries would lose it before it has cleaned up; expected none that is in use, {APART}"
            ),
            Self::FormerlyOfOther => format!(
                "found {finalizer}, which {other} has under `finalizers.formerly`, so that primaries would lose it before they are cleaned up; expected another `finalizer`, {APART}"
            ),
        }
    }
}

/// Whether there may be a namespace that both watch, whatever selectors say.
fn overlap(one: &Namespaces, other: &Namespaces, own: Option<&str>) -> bool {
    use Namespaces::{All, Listed, Own, Selected};
    match (one, other) {
        (All | Selected(_), _) | (_, All | Selected(_)) | (Own, Own) => true,
        (Own, Listed(names)) | (Listed(names), Own) => own.is_some_and(|own| names.contains(own)),
        (Listed(one), Listed(other)) => !one.is_disjoint(other),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::manifest::parse;

    fn controllers(fields: [&str; 2]) -> [Controller; 2] {
        let text = |name: &str, fields: &str| {
            format!(
                "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: {name} }}\nspec:\n  \
                 clusters: {{ edge: {{ kubeconfig: {{ secret: {{ name: edge }} }} }}, far: {{ kubeconfig: {{ secret: {{ name: far }} }} }} }}\n  \
                 plugins: {{ p: {{ component: {{ path: p.wasm }} }} }}\n  controllers:\n    \
                 {name}: {{ plugin: p, {fields} }}\n"
            )
        };
        let one = |name: &str, fields: &str| {
            let operator = parse(&text(name, fields), Path::new("a.yaml")).unwrap_or_else(|e| panic!("{e}")).remove(0);
            operator.controllers[name].clone()
        };
        [one("one", fields[0]), one("two", fields[1])]
    }

    const PAGE: &str = "primary: { apiVersion: a.dev/v1, kind: Page }";

    /// Two controllers of pages that use the default finalizer.
    fn clash(fields: [&str; 2], place: Where<'_>) -> Option<Clash> {
        let controllers = controllers(fields.map(|fields| format!("{PAGE}{fields}")).each_ref().map(String::as_str));
        let [one, two] = controllers.each_ref().map(|spec| Finalizing::new(spec, None, true));
        let clash = one.clash(&two, place);
        assert_eq!(two.clash(&one, place), clash, "{fields:?}");
        clash
    }

    #[test]
    fn two_controllers_share_no_finalizer_unless_no_object_can_be_a_primary_of_both() {
        // LC-3
        let uid = |from: &str, to: &str| {
            format!(
                r#", shardSelector: "shardRange(object.metadata.uid, '0x{from}000000000000000', '0x{to}000000000000000')""#
            )
        };
        let (low, middle, high) = (uid("0", "8"), uid("4", "c"), uid("8", "10"));
        for (one, two, clashes) in [
            ("", "", true),
            ("", ", labelSelector: a=b", true),
            (", labelSelector: a", ", labelSelector: b", true),
            (", labelSelector: a=b", ", labelSelector: 'a in (b, c)'", true),
            (", labelSelector: a=b", ", labelSelector: a=c", false),
            (", labelSelector: a", ", labelSelector: '!a'", false),
            (", namespaces: [a, b]", ", namespaces: [b, c]", true),
            (", namespaces: [a, b]", ", namespaces: [c]", false),
            (", namespaces: [a]", ", namespaces: all", true),
            (", namespaces: [a]", ", namespaces: own", false),
            (", namespaces: [home]", ", namespaces: own", true),
            (", namespaces: [a]", ", namespaces: { selector: a=b }", true),
            (", namespaces: { selector: a=c }", ", namespaces: { selector: a=b }", false),
            (", cluster: edge", "", false),
            (", cluster: edge", ", cluster: edge", true),
            (", cluster: edge", ", cluster: far", false),
            (", fieldSelector: metadata.name=x", ", fieldSelector: metadata.name=y", false),
            (", fieldSelector: metadata.name=x", ", fieldSelector: metadata.name!=x", false),
            (", fieldSelector: metadata.name!=x", ", fieldSelector: metadata.name!=y", true),
            (&low, &high, false),
            (&low, &middle, true),
            (&low, "", true),
        ] {
            let place = Where { scope: Some(Scope::Namespaced), own: Some("home") };
            let expected = clashes.then_some(Clash::Shared);
            assert_eq!(clash([one, two], place), expected, "{one} {two}");
        }
        let [one, two] = [", namespaces: [home]", ", namespaces: own"];
        assert_eq!(clash([one, two], Where::default()), None, "it is not known");
        let apart = [", namespaces: [a]", ", namespaces: [b]"];
        assert_eq!(clash(apart, Where { scope: Some(Scope::Cluster), own: None }), Some(Clash::Shared));
    }

    #[test]
    fn a_finalizer_that_another_one_uses_is_no_former_one() {
        let formerly = format!("{PAGE}, finalizer: a.dev/g, finalizers: {{ formerly: [a.dev/f] }}");
        let [one, two] = controllers([&formerly, &format!("{PAGE}, finalizer: a.dev/f")]);
        let (one_of, two_of) = (
            |name, uses| Finalizing::new(&one, Some(name), uses),
            |name, uses| Finalizing::new(&two, Some(name), uses),
        );
        let (first, second) = (one_of("a.dev/g", true), two_of("a.dev/f", true));
        let place = Where::default();
        let clashes = [first.clash(&second, place), second.clash(&first, place)];
        assert_eq!(clashes, [Some(Clash::Formerly), Some(Clash::FormerlyOfOther)]);
        assert_eq!(first.clash(&two_of("a.dev/f", false), place), None);
        assert_eq!(first.clash(&two_of("a.dev/h", true), place), None);
        let unused = one_of("a.dev/g", false);
        assert_eq!(unused.clash(&second, place), Some(Clash::Formerly), "it takes it away all the same");
        assert_eq!(two_of("a.dev/g", true).clash(&first, place), Some(Clash::Shared));
    }

    #[test]
    fn a_manifest_says_that_a_finalizer_is_used_by_what_the_daemon_deletes_itself() {
        // DI-2, LC-3
        let map = "apiVersion: v1, kind: ConfigMap";
        for (fields, uses) in [
            (String::new(), false),
            (", finalizer: a.dev/f".to_owned(), false),
            (format!(", workflow: {{ dependents: {{ m: {{ {map} }} }} }}"), false),
            (format!(", workflow: {{ dependents: {{ m: {{ {map}, garbageCollected: false }} }} }}"), true),
            (", triggerOnAllEvents: true".to_owned(), false),
            (", triggerOnAllEvents: true, finalizer: a.dev/f".to_owned(), true),
        ] {
            let [spec, _] = controllers([&format!("{PAGE}{fields}"), PAGE]);
            assert_eq!(Finalizing::declared(&spec).uses, uses, "{fields}");
        }
    }
}
