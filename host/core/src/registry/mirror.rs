//! Decides where a reference is asked for: of mirrors of its registry, one after the other, and of the registry itself (`MR-1`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::layout::Prefix;
use super::{Failure, Reference};

/// What stands for the registries that have no mirrors of their own.
const ANY: &str = "*";

/// What stands in place of a mirror, where the registry itself is not asked.
const ONLY: &str = "only";

/// What one entry looks like.
const WHAT: &str = "REGISTRY=MIRROR, such as `docker.io=mirror.example.com/docker-hub`, or REGISTRY=only";

/// One mirror of a registry, or that only mirrors of it are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    registry: Arc<str>,
    /// `None`: the registry itself is not asked.
    mirror: Option<Prefix>,
}

/// The mirrors of registries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mirrors(BTreeMap<Arc<str>, Places>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Places {
    mirrors: Vec<Prefix>,
    only: bool,
}

// === impl Entry ===

impl Entry {
    /// Reads `REGISTRY=MIRROR`, where the mirror is a registry with a path or without, or `REGISTRY=only`; `*` is all registries without entries of
    /// their own.
    ///
    /// # Errors
    /// What is wrong, and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (registry, mirror) = text.trim().split_once('=').ok_or_else(|| format!("expected {WHAT}"))?;
        let registry = match registry {
            ANY => ANY.into(),
            registry => {
                let reference = Reference::parse(&format!("{registry}/a:1"));
                let reference = reference.map_err(|why| format!("`{registry}`: {why}; expected {WHAT}"))?;
                if reference.repository().trim_start_matches("library/") != "a" {
                    return Err(format!("`{registry}` has a path; expected {WHAT}"));
                }
                reference.registry().into()
            }
        };
        let mirror = if mirror == ONLY { None } else { Some(Prefix::parse(mirror)?) };
        Ok(Self { registry, mirror })
    }
}

// === impl Mirrors ===

impl Mirrors {
    /// Returns the mirrors that these entries say, in their order.
    ///
    /// # Errors
    /// If only the mirrors of a registry are asked that has none.
    pub fn of(entries: &[Entry]) -> Result<Self, String> {
        let mut all = BTreeMap::<_, Places>::new();
        for Entry { registry, mirror } in entries {
            let places = all.entry(Arc::clone(registry)).or_default();
            match mirror {
                Some(mirror) => places.mirrors.push(mirror.clone()),
                None => places.only = true,
            }
        }
        match all.iter().find(|(_, places)| places.mirrors.is_empty()) {
            Some((registry, _)) => Err(format!("{registry}=only, but {registry} has no mirror; expected {WHAT}")),
            None => Ok(Self(all)),
        }
    }

    /// Returns where a reference is asked for, in this order: a mirror of it, and then itself.
    pub fn places(&self, reference: &Reference) -> Vec<Reference> {
        let own = self.0.get(reference.registry());
        // What is in a mirror is there under its own name.
        let is_mirror = || self.hosts().contains(reference.registry());
        let Some(Places { mirrors, only }) = own.or_else(|| self.0.get(ANY).filter(|_| !is_mirror())) else {
            return vec![reference.clone()];
        };
        // One whose name would be too long can't be there.
        let mut places: Vec<_> = mirrors.iter().filter_map(|mirror| mirror.of(reference).ok()).collect();
        if !only || places.is_empty() {
            places.push(reference.clone());
        }
        places
    }

    fn hosts(&self) -> BTreeSet<&str> {
        self.0.values().flat_map(|places| &places.mirrors).map(Prefix::registry).collect()
    }
}

/// Returns why no place has what was `asked` for, of why each has not: the last one's reason decides what follows.
pub fn failed(mut failures: Vec<(Reference, Failure)>, asked: &Reference) -> Option<Failure> {
    let (last, failure) = failures.pop()?;
    if failures.is_empty() && last.registry() == asked.registry() {
        return Some(failure);
    }
    if failures.is_empty() {
        let message = format!("{}, the mirror of {}: {failure}", last.registry(), asked.registry());
        return Some(Failure { message, ..failure });
    }
    let mirrors: Vec<_> = failures.iter().map(|(place, failure)| format!("{}: {failure}", place.registry())).collect();
    let message = format!("{}: {failure}; before that, mirrors: {}", last.registry(), mirrors.join("; "));
    Some(Failure { message, ..failure })
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::*;

    fn mirrors(entries: &[&str]) -> Result<Mirrors, String> {
        let entries: Result<Vec<_>, _> = entries.iter().map(|entry| Entry::parse(entry)).collect();
        Mirrors::of(&entries?)
    }

    #[test]
    fn mirrors_are_asked_in_their_order_and_then_the_registry_itself_unless_it_is_never() {
        // MR-1
        let hub = &["docker.io=m.io/hub", "docker.io=n.io:5000", "ghcr.io=m.io/ghcr", "ghcr.io=only"];
        let any = &["*=m.io/all", "*=only", "r.io=n.io"];
        for (entries, reference, expected) in [
            (&[][..], "docker.io/a:1", &["docker.io/library/a:1"][..]),
            (hub, "docker.io/a:1", &["m.io/hub/library/a:1", "n.io:5000/library/a:1", "docker.io/library/a:1"]),
            (hub, "index.docker.io/org/a:1", &["m.io/hub/org/a:1", "n.io:5000/org/a:1", "docker.io/org/a:1"]),
            (hub, "ghcr.io/a:1", &["m.io/ghcr/a:1"]),
            (hub, "quay.io/a:1", &["quay.io/a:1"]),
            (any, "quay.io/a:1", &["m.io/all/a:1"]),
            (any, "r.io/a:1", &["n.io/a:1", "r.io/a:1"]),
            // What is in a mirror is not sought in a mirror of that.
            (any, "m.io/x/a:1", &["m.io/x/a:1"]),
            (any, "n.io/x/a:1", &["n.io/x/a:1"]),
        ] {
            let found = mirrors(entries).unwrap().places(&Reference::parse(reference).unwrap());
            assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), expected, "{reference}");
        }
        let pinned = format!("ghcr.io/a:1@sha256:{}", "0".repeat(64));
        let found = mirrors(hub).unwrap().places(&Reference::parse(&pinned).unwrap());
        assert_eq!(found[0].to_string(), pinned.replace("ghcr.io", "m.io/ghcr"));
    }

    #[test]
    fn an_entry_that_is_wrong_is_told_with_what_would_be_right() {
        // MR-1
        for (entries, expected) in [
            (&["docker.io"][..], "expected REGISTRY=MIRROR, such as `docker.io=mirror.example.com/docker-hub`"),
            (&["docker=m.io"], "`docker`: the host of the registry is missing"),
            (&["ghcr.io/org=m.io"], "`ghcr.io/org` has a path; expected REGISTRY=MIRROR"),
            (&["ghcr.io=mirror"], "the host of the registry is missing"),
            (&["ghcr.io=m.io/a:1"], "expected a prefix without tag or digest"),
            (&["ghcr.io=only"], "ghcr.io=only, but ghcr.io has no mirror"),
        ] {
            let found = mirrors(entries).unwrap_err();
            assert!(found.contains(expected), "{entries:?}: {found}");
        }
    }

    #[test]
    fn what_no_place_has_is_told_of_each_and_the_last_one_decides() {
        // MR-2
        let place = |text: &str| Reference::parse(text).unwrap();
        let missing = Failure::new(Kind::Missing, "it does not have the manifest (404)");
        let away = Failure::new(Kind::Away, "it fails (500)");
        let asked = place("r.io/a:1");
        assert_eq!(failed(vec![], &asked), None);
        assert_eq!(failed(vec![(asked.clone(), away.clone())], &asked), Some(away.clone()));
        // The only one that is asked is named, as it is not the one that the reference names.
        let found = failed(vec![(place("m.io/a:1"), away.clone())], &asked).unwrap();
        assert_eq!(found.message, "m.io, the mirror of r.io: it fails (500)");
        let found = failed(vec![(place("m.io/a:1"), missing), (asked.clone(), away)], &asked).unwrap();
        let message = "r.io: it fails (500); before that, mirrors: m.io: it does not have the manifest (404)";
        assert_eq!(found, Failure::new(Kind::Away, message));
    }
}
