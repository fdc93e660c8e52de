//! Puts things that depend on each other into an order, or finds the circle that they form.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Names that depend on each other in a circle (`WF-1`): each on the next, the last on the first.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Cycle(pub Vec<Arc<str>>);

impl fmt::Display for Cycle {
    /// Writes `a → b → a`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in &self.0 {
            write!(f, "{name} → ")?;
        }
        f.write_str(self.0.first().map_or("", |first| first))
    }
}

/// Returns all names, each after what it depends on, and by name where that leaves a choice. Names that
/// are depended on but are no key are passed over.
///
/// # Errors
/// [`Cycle`], the first that is met.
///
/// ```
/// # use std::collections::{BTreeMap, BTreeSet};
/// # use capstan_core::manifest::order;
/// let needs = BTreeMap::from([("a".into(), BTreeSet::from(["b".into()])), ("b".into(), BTreeSet::new())]);
/// assert_eq!(order(&needs).unwrap(), ["b".into(), "a".into()]);
/// ```
pub fn order(depends_on: &BTreeMap<Arc<str>, BTreeSet<Arc<str>>>) -> Result<Vec<Arc<str>>, Cycle> {
    let mut waiting: BTreeMap<&Arc<str>, BTreeSet<&Arc<str>>> = depends_on
        .iter()
        .map(|(name, needs)| (name, needs.iter().filter(|need| depends_on.contains_key(*need)).collect()))
        .collect();
    let mut ordered = Vec::with_capacity(waiting.len());
    while !waiting.is_empty() {
        let Some(next) = waiting.iter().find(|(_, needs)| needs.is_empty()).map(|(name, _)| *name) else {
            return Err(circle(&waiting));
        };
        waiting.remove(next);
        for needs in waiting.values_mut() {
            needs.remove(next);
        }
        ordered.push(Arc::clone(next));
    }
    Ok(ordered)
}

/// Follows what is needed from name to name until one comes again. Each name in `waiting` needs another one there.
fn circle(waiting: &BTreeMap<&Arc<str>, BTreeSet<&Arc<str>>>) -> Cycle {
    let mut path: Vec<&Arc<str>> = waiting.keys().take(1).copied().collect();
    while let Some(next) = path.last().and_then(|last| waiting.get(last)).and_then(|needs| needs.first()) {
        if let Some(start) = path.iter().position(|name| name == next) {
            path.drain(..start);
            break;
        }
        path.push(next);
    }
    let smallest = path.iter().enumerate().min_by_key(|(_, name)| **name).map_or(0, |(at, _)| at);
    path.rotate_left(smallest);
    Cycle(path.into_iter().map(Arc::clone).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Graph = BTreeMap<Arc<str>, BTreeSet<Arc<str>>>;

    fn graph(edges: &[(&str, &[&str])]) -> Graph {
        let needs = |needs: &[&str]| needs.iter().map(|need| (*need).into()).collect();
        edges.iter().map(|(name, needed)| ((*name).into(), needs(needed))).collect()
    }

    fn names(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|name| (*name).into()).collect()
    }

    #[test]
    fn what_is_depended_on_comes_first_and_then_the_name_decides() {
        for (edges, expected) in [
            (&[("b", &[][..]), ("a", &[])][..], &["a", "b"][..]),
            (&[("a", &["c"]), ("b", &[]), ("c", &[])], &["b", "c", "a"]),
            (&[("a", &["b", "c"]), ("b", &["d"]), ("c", &["d"]), ("d", &[])], &["d", "b", "c", "a"]),
            (&[("a", &["unknown"])], &["a"]),
            (&[], &[]),
        ] {
            assert_eq!(order(&graph(edges)), Ok(names(expected)));
        }
    }

    // WF-1
    #[test]
    fn a_circle_is_told_by_its_path() {
        for (edges, expected) in [
            (&[("a", &["a"][..])][..], "a → a"),
            (&[("a", &["b"]), ("b", &["a"])], "a → b → a"),
            (&[("a", &["c"]), ("b", &["d"]), ("c", &["d"]), ("d", &["b"])], "b → d → b"),
            (&[("z", &["a"]), ("a", &["y"]), ("y", &["z"]), ("x", &["y"])], "a → y → z → a"),
        ] {
            assert_eq!(order(&graph(edges)).unwrap_err().to_string(), expected);
        }
    }

    fn graphs() -> impl Strategy<Value = Graph> {
        let name = || "[a-f]".prop_map(Arc::from);
        proptest::collection::btree_map(name(), proptest::collection::btree_set(name(), 0..3), 0..7)
    }

    proptest! {
        #[test]
        fn an_order_is_right_or_the_circle_is_there(graph in graphs()) {
            match order(&graph) {
                Ok(ordered) => {
                    let place = |name: &Arc<str>| ordered.iter().position(|other| other == name);
                    prop_assert_eq!(ordered.iter().collect::<BTreeSet<_>>(), graph.keys().collect());
                    prop_assert_eq!(ordered.len(), graph.len());
                    for (name, needs) in &graph {
                        prop_assert!(needs.iter().all(|need| place(need) < place(name)));
                    }
                }
                Err(Cycle(circle)) => {
                    prop_assert!(!circle.is_empty());
                    for (name, next) in circle.iter().zip(circle.iter().cycle().skip(1)) {
                        prop_assert!(graph[name].contains(next));
                    }
                }
            }
        }
    }
}
