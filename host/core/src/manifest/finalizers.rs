//! Decides whether two controllers may use their finalizers beside one another: one that both have lets a primary go once the first of
//! them has cleaned up (`LC-3`).

use std::sync::Arc;

use super::{Controller, Namespaces};
use crate::object::Scope;
use crate::object::labels::Selector;

/// A controller, with what is known of its finalizer.
#[derive(Clone, Copy, Debug)]
pub struct Finalizing<'a> {
    /// The controller.
    pub spec: &'a Controller,
    /// Its finalizer; `None`: the default one of its kind.
    pub name: Option<&'a str>,
    /// Whether it puts that on primaries, as far as is known (`DI-2`).
    pub uses: bool,
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

impl Finalizing<'_> {
    /// Returns what a manifest alone says of a controller: what its component exports is not known.
    pub fn declared(spec: &Controller) -> Finalizing<'_> {
        let name = spec.finalizer.as_deref();
        // In all-events mode finalizers are the component's: one that is named is meant to be used.
        let uses = if spec.all_events() { name.is_some() } else { spec.deletes_dependents() };
        Finalizing { spec, name, uses }
    }

    /// Returns how two controllers get into each other's way; `None` if they do not.
    pub fn clash(self, other: Finalizing<'_>, place: Where<'_>) -> Option<Clash> {
        let former = |one: Finalizing<'_>, other: Finalizing<'_>| {
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
        may_share_primaries(self.spec, other.spec, place).then_some(clash)
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

/// Whether there may be an object that is a primary of both, now or once somebody has changed its labels.
fn may_share_primaries(one: &Controller, other: &Controller, place: Where<'_>) -> bool {
    let remote = |spec: &Controller| {
        let remote = spec.cluster.as_ref().and_then(|name| spec.remotes.get(name));
        remote.map(|remote| (Arc::clone(&remote.secret), Arc::clone(&remote.key)))
    };
    let same_kind = (&one.primary.group, &one.primary.kind) == (&other.primary.group, &other.primary.kind);
    let everywhere = place.scope == Some(Scope::Cluster);
    same_kind
        && remote(one) == remote(other)
        && (everywhere || overlap(&one.namespaces, &other.namespaces, place.own))
        && !excludes(one.label_selector.as_deref(), other.label_selector.as_deref())
        && !have_other_values(one.field_selector.as_deref(), other.field_selector.as_deref())
        && !one
            .shard_selector
            .as_ref()
            .zip(other.shard_selector.as_ref())
            .is_some_and(|(one, other)| one.excludes(other))
}

/// Whether there may be a namespace that both select.
fn overlap(one: &Namespaces, other: &Namespaces, own: Option<&str>) -> bool {
    use Namespaces::{All, Listed, Own, Selected};
    match (one, other) {
        (All, _) | (_, All) | (Own, Own) | (Own | Listed(_), Selected(_)) | (Selected(_), Own | Listed(_)) => true,
        (Own, Listed(names)) | (Listed(names), Own) => own.is_some_and(|own| names.contains(own)),
        (Listed(one), Listed(other)) => !one.is_disjoint(other),
        (Selected(one), Selected(other)) => !excludes(Some(&one.selector), Some(&other.selector)),
    }
}

/// Whether no labels meet two label selectors.
fn excludes(one: Option<&str>, other: Option<&str>) -> bool {
    let parsed = |text: &str| Selector::parse(text).ok();
    let both = one.and_then(parsed).zip(other.and_then(parsed));
    both.is_some_and(|(one, other)| one.excludes(&other))
}

/// Whether two field selectors want different values of one field.
fn have_other_values(one: Option<&str>, other: Option<&str>) -> bool {
    let values = |text: Option<&str>| -> Vec<(String, bool, String)> {
        let terms = text.unwrap_or_default().split(',').filter_map(|term| {
            let (equal, sign) = if term.contains("!=") { (false, "!=") } else { (true, "=") };
            let (field, value) = term.split_once(sign)?;
            let value = value.strip_prefix('=').unwrap_or(value);
            Some((field.trim().to_owned(), equal, value.trim().to_owned()))
        });
        terms.collect()
    };
    let other = values(other);
    values(one).iter().any(|(field, equal, value)| {
        let mut same = other.iter().filter(|(other, ..)| other == field);
        same.any(|(_, other_equal, other)| match (equal, other_equal) {
            (true, true) => value != other,
            (true, false) | (false, true) => value == other,
            (false, false) => false,
        })
    })
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
        let [one, two] = controllers.each_ref().map(|spec| Finalizing { spec, name: None, uses: true });
        let clash = one.clash(two, place);
        assert_eq!(two.clash(one, place), clash, "{fields:?}");
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
        let one = Finalizing { spec: &one, name: Some("a.dev/g"), uses: true };
        let two = Finalizing { spec: &two, name: Some("a.dev/f"), uses: true };
        let place = Where::default();
        let clashes = [one.clash(two, place), two.clash(one, place)];
        assert_eq!(clashes, [Some(Clash::Formerly), Some(Clash::FormerlyOfOther)]);
        assert_eq!(one.clash(Finalizing { uses: false, ..two }, place), None);
        assert_eq!(one.clash(Finalizing { name: Some("a.dev/h"), ..two }, place), None);
        let unused = Finalizing { uses: false, ..one };
        assert_eq!(unused.clash(two, place), Some(Clash::Formerly), "it takes it away all the same");
        let same = Finalizing { name: Some("a.dev/g"), ..two };
        assert_eq!(same.clash(one, place), Some(Clash::Shared));
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
