//! Shows what registries say of components: what references named, when that was asked, and when it is asked again.

use std::collections::BTreeSet;

use capstan_core::manifest::Component as Source;
use capstan_core::registry::Kind;
use serde::{Deserialize, Serialize};

use super::{Entry, Row, State, Status, Unit, second};
use crate::registry::images::{Images, Seen};

/// What a registry says of a component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registry {
    /// The digest of what the reference named last; none if that is not known.
    pub digest: Option<String>,
    /// The digests of the keys by which that is signed, as far as somebody demands it.
    #[serde(default)]
    pub signed_by: Vec<String>,
    /// When it was asked last, in RFC 3339; none if that has not ended.
    pub checked: Option<String>,
    /// When it is asked again; none if it is never.
    pub next: Option<String>,
    /// The mirror that answered in place of the registry; none if that did itself.
    #[serde(default)]
    pub mirror: Option<String>,
    /// Why what it named last goes on, or nothing does; none if the registry has answered well.
    pub problem: Option<String>,
}

impl Status {
    /// Returns the status with the components of registries.
    pub fn pulling(images: Images) -> Self {
        Self { images, ..Self::default() }
    }

    /// Returns what a registry says of the component that a plugin's manifest names; `None` if that is in no registry.
    pub(super) fn seen(&self, unit: &Unit, entry: &Entry) -> Option<Seen> {
        // The registry gives what is wanted, or does not, whatever goes on meanwhile.
        match entry.wanted.as_ref().or(entry.component.as_ref()) {
            Some(Source::Registry(image)) => self.images.seen(&unit.operator, image),
            Some(Source::File(_)) | None => None,
        }
    }

    /// Adds what a registry says.
    pub(super) fn of_registry(&self, unit: &Unit, row: Row, entry: &Entry) -> Row {
        let Some(seen) = self.seen(unit, entry) else {
            return row;
        };
        let (state, registry) = shown(seen, row.state);
        Row { state, registry: Some(registry), ..row }
    }
}

/// Returns what a registry says of a plugin in this state, and the state: where the reference names what is no component any more, or one that is
/// not signed as it has to be, the last good one goes on.
fn shown(seen: Seen, state: State) -> (State, Registry) {
    let is_wrong = seen.problem.as_ref().is_some_and(|problem| matches!(problem.kind, Kind::Wrong | Kind::Unsigned));
    let state = if is_wrong && state == State::Active { State::Outdated } else { state };
    let signed = seen.known.iter().flat_map(|known| &known.signed);
    let signed: BTreeSet<_> = signed.map(|signed| signed.key.to_string()).collect();
    let registry = Registry {
        signed_by: signed.into_iter().collect(),
        digest: seen.known.map(|known| known.digest.to_string()),
        checked: seen.checked.map(|time| second(time).to_string()),
        next: seen.next.map(|time| second(time).to_string()),
        mirror: seen.mirror.map(|mirror| mirror.to_string()),
        problem: seen.problem.map(|problem| problem.message),
    };
    (state, registry)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use capstan_core::manifest::{self, Plugin};
    use capstan_core::registry::Failure;

    use super::*;

    /// Returns a plugin whose component is this.
    fn plugin(reference: &str) -> Plugin {
        let text = format!(
            "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: a }}\nspec:\n  plugins: {{ p: {{ component: {{ oci: {reference} }} }} }}\n  controllers: {{ c: {{ plugin: p, primary: {{ apiVersion: v1, kind: ConfigMap }} }} }}\n"
        );
        manifest::parse(&text, Path::new("a.yaml")).unwrap().remove(0).plugins["p"].clone()
    }

    #[test]
    fn the_registry_is_asked_about_what_the_manifest_names_also_when_that_is_taken_back() {
        // OC-7
        let (status, unit) = (Status::default(), Unit { operator: "a".into(), plugin: "p".into() });
        let [first, second] = ["r.io/a:1", "r.io/a:2"].map(plugin);
        let none = std::iter::empty;
        let wanted = || {
            let plugins = status.plugins.lock();
            let wanted = plugins[&unit].wanted.as_ref().or(plugins[&unit].component.as_ref());
            wanted.unwrap().to_string()
        };
        status.loading(&unit, &first, none());
        assert_eq!(wanted(), "r.io/a:1");
        status.loading(&unit, &second, none());
        assert_eq!(wanted(), "r.io/a:2");
        status.stays(&unit, first.component.as_ref());
        assert_eq!(wanted(), "r.io/a:1");
    }

    #[test]
    fn a_version_is_outdated_if_its_reference_names_no_component_any_more_and_not_if_the_registry_is_away() {
        // OC-7, SG-4
        for (kind, state, expected) in [
            (None, State::Active, State::Active),
            (Some(Kind::Wrong), State::Active, State::Outdated),
            (Some(Kind::Unsigned), State::Active, State::Outdated),
            (Some(Kind::Away), State::Active, State::Active),
            (Some(Kind::Denied), State::Active, State::Active),
            (Some(Kind::Wrong), State::Failed, State::Failed),
            (Some(Kind::Wrong), State::Loading, State::Loading),
        ] {
            let problem = kind.map(|kind| Failure::new(kind, "why"));
            let (found, registry) = shown(Seen { problem, ..Seen::default() }, state);
            assert_eq!((found, registry.problem.is_some()), (expected, kind.is_some()), "{kind:?} {state:?}");
        }
    }
}
