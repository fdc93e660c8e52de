//! Decides which primaries a controller leaves behind that comes to watch fewer namespaces, and says so: nothing removes its finalizer from
//! them any more (NS-3).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use capstan_core::object::Object;
use capstan_core::reconciler::Controller;

use super::plan::Plan;

/// So many namespaces are named.
const NAMED: usize = 10;

/// Warns of primaries that carry the finalizer of a controller in namespaces that a new plan of it does not watch.
pub(super) fn warn(before: &Controller, plan: &Plan) {
    let Some(finalizer) = before.used_finalizer() else {
        return;
    };
    let watched: BTreeSet<_> = plan.primaries.places().collect();
    if watched.contains(&None) {
        return;
    }
    let behind = left(&before.primaries.list(None), finalizer, &watched);
    let primaries: usize = behind.values().sum();
    if primaries > 0 {
        let more = if behind.len() > NAMED { " and others" } else { "" };
        let names = behind.keys().take(NAMED).map(|name| &**name).collect::<Vec<_>>().join(", ");
        tracing::warn!(
            finalizer,
            primaries,
            "primaries carry the finalizer of the controller in namespaces that it watches no more ({names}{more}): they can't be deleted until it watches these again, for which `namespaces` has to name or select them, or somebody removes the finalizer"
        );
    }
}

/// Returns how many of these objects carry a finalizer, by namespace, where that is not watched.
fn left(primaries: &[Object], finalizer: &str, watched: &BTreeSet<Option<&str>>) -> BTreeMap<Arc<str>, usize> {
    let mut left = BTreeMap::new();
    for primary in primaries.iter().filter(|primary| primary.header().has_finalizer(finalizer)) {
        let namespace = &primary.key().namespace;
        if let Some(name) = namespace.as_ref().filter(|name| !watched.contains(&Some(&***name))) {
            *left.entry(Arc::from(&**name)).or_insert(0) += 1;
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use capstan_core::object::{Gvk, Managers};

    use super::*;

    #[test]
    fn who_carries_the_finalizer_in_a_namespace_that_is_left_is_left_behind() {
        // NS-3
        let primary = |namespace: &str, name: &str, finalizers: &str| {
            let json = format!(
                r#"{{"metadata":{{"namespace":"{namespace}","name":"{name}","resourceVersion":"1","finalizers":[{finalizers}]}}}}"#
            );
            Object::parse(&json, &Gvk::parse("sample.dev/v1", "Page").unwrap(), &Managers::default()).unwrap()
        };
        let ours = r#""a.dev/f""#;
        let all = [
            primary("stays", "a", ours),
            primary("left", "a", ours),
            primary("left", "b", r#""x.dev/y","a.dev/f""#),
            primary("left", "c", r#""x.dev/y""#),
            primary("bare", "a", ""),
            primary("far", "a", ours),
        ];
        let found = |watched: &[&str]| {
            let watched = watched.iter().map(|name| Some(*name)).collect();
            left(&all, "a.dev/f", &watched)
                .into_iter()
                .map(|(name, count)| format!("{name} {count}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(found(&["stays"]), ["far 1", "left 2"]);
        assert_eq!(found(&["stays", "left", "far"]), [""; 0]);
        assert_eq!(found(&[]), ["far 1", "left 2", "stays 1"]);
    }
}
