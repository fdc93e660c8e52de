//! Decides what changed manifests mean: which operators are wanted from now on, and what a controller has to do to become another.
//!
//! A manifest that can't be read, or that collides with another, changes nothing: what its file said last goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::manifest::{
    self, Bound, Capabilities, Controller, External, Filters, Keep, Keys, MappingKeys, Namespaces, OnSwap, Operator,
    Permission, Plugin, Remote, ServiceAccount, Source, Stored,
};
use crate::object::Gvk;
use crate::object::shard::Shard;
use values::Values;

pub mod plan;
pub mod values;

/// A file of manifests as it was found.
#[derive(Clone, Debug)]
pub struct File {
    /// Where it is.
    pub path: PathBuf,
    /// What it says, or what is wrong with it.
    pub content: Result<Vec<Operator>, String>,
}

/// What is wanted, and what could not be heeded.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The operators, each from one file.
    pub operators: Vec<Operator>,
    /// The files whose last good content goes on, or that have none; with what is wrong.
    pub problems: Vec<(PathBuf, String)>,
}

/// What a running controller has to do to become another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing but to use the new settings from the next run on: what it watches stays.
    InPlace,
    /// To look in other namespaces as well, or no longer in some: all else stays (`NS-2`).
    Elsewhere,
    /// To watch something else, or to look at changes in another way.
    Rewatch,
}

/// What a controller watches, and how it looks at it.
#[derive(PartialEq)]
struct Watched<'a> {
    primary: &'a Gvk,
    /// Where, and which other clusters its sources watch.
    clusters: (Option<&'a str>, &'a BTreeMap<Arc<str>, Remote>),
    /// Whose rights to read count.
    account: Option<&'a ServiceAccount>,
    namespaces: &'a Namespaces,
    /// By labels, fields and shards.
    selectors: (Option<&'a str>, Option<&'a str>, Option<&'a Shard>),
    generation_aware: bool,
    all_events: bool,
    filters: &'a Filters,
    /// Whether it uses a finalizer, and its name if the manifest has one.
    finalizer: (bool, Option<&'a str>),
    indexes: &'a BTreeMap<Arc<str>, Keys>,
    keep: (&'a Keep, Stored, Option<Bound>),
    sources: &'a BTreeMap<Arc<str>, Source>,
    externals: BTreeMap<&'a str, External>,
    dependents: BTreeMap<&'a str, Dependent<'a>>,
}

/// How a dependent is watched.
#[derive(PartialEq)]
struct Dependent<'a> {
    gvk: &'a Gvk,
    mapping: Option<&'a MappingKeys>,
    source: Option<&'a str>,
    filters: &'a Filters,
    /// Whether only while it is active.
    on_demand: bool,
}

/// A controller, and whether something needs cleanup before a primary goes.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    /// What the manifest says of it.
    pub spec: &'a Controller,
    /// Whether it uses its finalizer (`DI-2`).
    pub finalizer: bool,
}

/// A version of a controller, as far as it decides what follows once it is in place of another.
#[derive(Clone, Copy, Debug)]
pub struct Version<'a> {
    /// What the manifest says of it.
    pub spec: &'a Controller,
    /// What the manifest says of its plugin.
    pub plugin: &'a Plugin,
    /// The digest of its component.
    pub component: &'a str,
    /// The values of its `config` that are elsewhere.
    pub values: &'a Values,
}

/// Returns the ways to write that a new version of a component can ask for and the one before could not, if none of them is
/// permitted on any kind: then all that is new about it would be refused. Where one is permitted nothing is said, because
/// some languages bring along more than they use.
pub fn ungranted(
    before: &BTreeSet<Permission>,
    now: &BTreeSet<Permission>,
    capabilities: &Capabilities,
) -> BTreeSet<Permission> {
    let new: BTreeSet<Permission> = now.difference(before).copied().collect();
    let granted = capabilities.kubernetes.iter().flat_map(|grant| &grant.verbs);
    if granted.copied().any(|verb| new.contains(&verb)) { BTreeSet::new() } else { new }
}

// === impl Wanted ===

impl Wanted {
    /// Returns what is wanted once these files have been read, where `before` was wanted until now.
    ///
    /// Each file counts as a whole: if it can't be read, or if one of its names is taken by another file, what it said last
    /// stays. Files that go along with each other are heeded together. The operators of a file that is not there any more
    /// end. Where two new files want one name, the one that comes first gets it.
    pub fn after(before: &[Operator], files: &[File]) -> Self {
        let paths: BTreeSet<&Path> = files.iter().map(|file| &*file.path).collect();
        let stays = before.iter().filter(|operator| paths.contains(operator.origin.file()));
        let mut wanted = Self { operators: stays.cloned().collect(), problems: Vec::new() };
        let mut waiting: Vec<(&File, String)> = Vec::new();
        let good: Vec<_> = files.iter().filter(|file| file.content.is_ok()).collect();
        // Together first: two files may have exchanged a name.
        if wanted.heed(&good).is_err() {
            // Of many, most say what they have said, which goes along.
            for file in wanted.others(good) {
                waiting.extend(wanted.heed(&[file]).err().map(|why| (file, why)));
            }
        }
        // A name that one file gives up may be what another waits for.
        loop {
            let still = waiting.len();
            waiting.retain_mut(|(file, why)| match wanted.heed(&[file]) {
                Ok(()) => false,
                Err(now) => {
                    *why = now;
                    true
                }
            });
            if waiting.is_empty() || waiting.len() == still {
                break;
            }
        }
        let broken = files.iter().filter_map(|file| Some((file, file.content.clone().err()?)));
        wanted.problems = waiting.into_iter().chain(broken).map(|(file, why)| (file.path.clone(), why)).collect();
        wanted
    }

    /// Returns those files that say something else than what is wanted of them already.
    fn others<'f>(&self, files: Vec<&'f File>) -> Vec<&'f File> {
        let mut wanted = BTreeMap::<&Path, Vec<&Operator>>::new();
        for operator in &self.operators {
            wanted.entry(operator.origin.file()).or_default().push(operator);
        }
        let says = |file: &File| {
            let wanted = wanted.get(&*file.path).into_iter().flatten().copied();
            file.content.as_ref().is_ok_and(|said| wanted.eq(said))
        };
        files.into_iter().filter(|file| !says(file)).collect()
    }

    /// Replaces what files said.
    fn heed(&mut self, files: &[&File]) -> Result<(), String> {
        let paths: BTreeSet<&Path> = files.iter().map(|file| &*file.path).collect();
        let is_other = |operator: &Operator| !paths.contains(operator.origin.file());
        let others: Vec<&Operator> = self.operators.iter().filter(|operator| is_other(operator)).collect();
        let mut new = Vec::new();
        for file in files {
            new.extend(file.content.as_ref().map_err(String::clone)?);
        }
        // Those that stay were compared with each other once they came: what is new is compared alone, as this is done for each file.
        manifest::check_beside(&others, &new).map_err(|errors| errors.to_string())?;
        let new: Vec<Operator> = new.into_iter().cloned().collect();
        self.operators.retain(is_other);
        self.operators.extend(new);
        Ok(())
    }
}

// === impl Version ===

impl Version<'_> {
    /// Returns what follows once this is in place of another: nothing if no run could notice it. Whoever is new in what is watched
    /// is told of by the sources.
    pub fn follows(self, before: Version<'_>) -> OnSwap {
        match (before.spec.paused, self.spec.paused) {
            // PA-3: whoever comes out of a pause runs once, for nobody knows what it has missed. PA-5: whoever comes into
            // one runs once, too, and does nothing but to be known as paused.
            (true, false) | (false, true) => OnSwap::ReconcileAll,
            (true, true) => OnSwap::Nothing,
            (false, false) if self.is_as(before) => OnSwap::Nothing,
            (false, false) => self.plugin.on_swap,
        }
    }

    /// Whether a run that is not paused does the same in both.
    pub fn is_as(self, before: Version<'_>) -> bool {
        let Controller { namespaces, paused, .. } = before.spec;
        let spec = Controller { namespaces: namespaces.clone(), paused: *paused, ..self.spec.clone() };
        let plugin = Plugin { on_swap: before.plugin.on_swap, ..self.plugin.clone() };
        spec == *before.spec
            && plugin == *before.plugin
            && (self.component, self.values) == (before.component, before.values)
    }
}

// === impl Shape ===

impl Shape<'_> {
    /// Returns what a running controller has to do to become `after`.
    pub fn step(self, after: Shape<'_>) -> Step {
        let (before, after) = (self.watched(), after.watched());
        let namespaces = after.namespaces;
        if before == after {
            Step::InPlace
        } else if (Watched { namespaces, ..before }) == after {
            Step::Elsewhere
        } else {
            Step::Rewatch
        }
    }

    fn watched(&self) -> Watched<'_> {
        let Self { spec, finalizer } = self;
        let dependents = spec.dependents().map(|(name, dependent)| {
            let watched = Dependent {
                gvk: &dependent.gvk,
                mapping: (!dependent.garbage_collected).then_some(&dependent.mapping),
                source: dependent.source.as_deref(),
                filters: &dependent.filters,
                on_demand: dependent.watched_on_demand(),
            };
            (&**name, watched)
        });
        Watched {
            primary: &spec.primary,
            clusters: (spec.cluster.as_deref(), &spec.remotes),
            account: spec.service_account.as_ref(),
            namespaces: &spec.namespaces,
            selectors: (spec.label_selector.as_deref(), spec.field_selector.as_deref(), spec.shard_selector.as_ref()),
            generation_aware: spec.generation_aware,
            all_events: spec.all_events(),
            filters: &spec.filters,
            finalizer: (*finalizer, spec.finalizer.as_deref().filter(|_| *finalizer)),
            indexes: &spec.indexes,
            keep: (&spec.keep, spec.stored, spec.bounded),
            sources: &spec.sources,
            externals: spec.externals.iter().map(|(name, external)| (&**name, external.unfiltered())).collect(),
            dependents: dependents.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn text(name: &str, controller: &str, fields: &str) -> String {
        const CLUSTERS: &str =
            "{ edge: { kubeconfig: { secret: { name: a } } }, spare: { kubeconfig: { secret: { name: b } } } }";
        format!(
            "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: {name} }}\nspec:\n  \
             clusters: {CLUSTERS}\n  plugins: {{ p: {{ component: {{ path: p.wasm }} }} }}\n  controllers:\n    \
             {controller}: {{ plugin: p, primary: {{ apiVersion: v1, kind: ConfigMap }}{fields} }}\n"
        )
    }

    /// A file with one operator, which has one controller.
    fn file(path: &str, name: &str, controller: &str) -> File {
        let path = PathBuf::from(path);
        let content = manifest::parse(&text(name, controller, ""), &path);
        File { content: content.map_err(|errors| errors.to_string()), path }
    }

    fn broken(path: &str) -> File {
        File { path: path.into(), content: Err("it is broken".to_owned()) }
    }

    /// Writes operators as `file operator/controller`, and problems as `file: first words`.
    fn told(wanted: &Wanted) -> Vec<String> {
        let operators = wanted.operators.iter().map(|operator| {
            let controllers: Vec<&str> = operator.controllers.keys().map(|name| &**name).collect();
            let file = operator.origin.file().display();
            format!("{file} {}/{}", operator.name, controllers.join("+"))
        });
        let problems = wanted.problems.iter().map(|(file, why)| {
            let why = why.split("; ").next().unwrap_or_default();
            format!("{}: {why}", file.display())
        });
        operators.chain(problems).collect()
    }

    #[test]
    fn files_that_go_along_are_all_heeded() {
        let wanted = Wanted::after(&[], &[file("a", "one", "web"), file("b", "two", "db")]);
        assert_eq!(told(&wanted), ["a one/web", "b two/db"]);
        let wanted = Wanted::after(&wanted.operators, &[file("b", "two", "db2"), file("c", "three", "web")]);
        assert_eq!(told(&wanted), ["b two/db2", "c three/web"], "a is gone, so its names are free");
    }

    #[test]
    fn what_a_broken_file_said_last_goes_on() {
        let before = Wanted::after(&[], &[file("a", "one", "web"), file("b", "two", "db")]);
        let wanted = Wanted::after(&before.operators, &[broken("a"), file("b", "two", "db2"), broken("c")]);
        assert_eq!(told(&wanted), ["a one/web", "b two/db2", "a: it is broken", "c: it is broken"]);
    }

    #[test]
    fn who_has_a_name_keeps_it() {
        // Also where the newcomer's file comes first.
        let before = Wanted::after(&[], &[file("b", "two", "web")]);
        let wanted = Wanted::after(&before.operators, &[file("a", "one", "web"), file("b", "two", "web")]);
        assert_eq!(
            told(&wanted),
            ["b two/web", "a:8:5: spec.controllers.web: found a second controller `web`"]
                .map(|line| line.replace("a:8", "a: a:8"))
        );
    }

    #[test]
    fn a_name_may_move_from_one_file_to_another() {
        let before = Wanted::after(&[], &[file("a", "one", "db"), file("b", "two", "web")]);
        let wanted = Wanted::after(&before.operators, &[file("a", "one", "web"), file("b", "two", "db2")]);
        assert_eq!(told(&wanted), ["a one/web", "b two/db2"]);
    }

    #[test]
    fn two_files_may_exchange_their_names_even_beside_a_broken_one() {
        let before = Wanted::after(&[], &[file("a", "one", "db"), file("b", "two", "web")]);
        let wanted = Wanted::after(&before.operators, &[file("a", "two", "web"), file("b", "one", "db"), broken("c")]);
        assert_eq!(told(&wanted), ["a two/web", "b one/db", "c: it is broken"]);
    }

    /// Whether two versions of a controller watch the same.
    fn step(before: &str, after: &str) -> Step {
        let read = |fields: &str| {
            let fields = if fields.is_empty() { String::new() } else { format!(", {fields}") };
            let operators = manifest::parse(&text("one", "web", &fields), Path::new("a"));
            operators.unwrap().remove(0).controllers.remove("web").unwrap()
        };
        let (before, after) = (read(before), read(after));
        let shape = |spec| Shape { spec, finalizer: true };
        assert_eq!(shape(&before).step(shape(&before)), Step::InPlace);
        shape(&before).step(shape(&after))
    }

    #[test]
    fn only_what_is_watched_makes_a_controller_watch_anew() {
        const CM: &str = "apiVersion: v1, kind: ConfigMap";
        let dependent = |fields: &str| format!("workflow: {{ dependents: {{ cm: {{ {CM}{fields} }} }} }}");
        let far = |cluster: &str| {
            format!("sources: {{ s: {{ informer: {{ {CM}, cluster: {cluster}, mapper: {{ annotations: {{}} }} }} }} }}")
        };
        let in_place = [
            ("", "retry: none".to_owned()),
            ("", "retry: { by: { trap: none } }".to_owned()),
            ("", "concurrency: 2".to_owned()),
            ("", "minRescheduleInterval: 1s, rateLimit: none".to_owned()),
            ("rateLimit: { maxReconciliations: 2 }", "maxReconciliationInterval: 1m".to_owned()),
            ("", "fieldManager: web-other, serverSideApply: false".to_owned()),
            ("", "fieldValidation: warn".to_owned()),
            (&dependent(""), dependent(", onRename: delete")),
            (&dependent(""), dependent(", match: { export: same }, manage: [create], createOnly: true")),
            (&dependent(""), dependent(", readyPostcondition: gone, config: { a: 1 }")),
            // What is let in says nothing of what is kept.
            (
                "sources: { s: { inbound: { token: none } } }",
                "sources: { s: { inbound: { token: { secret: { name: a } }, bodySize: 1Ki, requestsPerSecond: 1 } } }"
                    .to_owned(),
            ),
            // It is watched anyway, to see whether it is active.
            (&dependent(""), dependent(", activation: gone")),
        ];
        for (before, after) in in_place {
            assert_eq!(step(before, &after), Step::InPlace, "{before} -> {after}");
        }
        for (before, after) in [("", "namespaces: [a]"), ("namespaces: [a, b]", "namespaces: all")] {
            assert_eq!(step(before, after), Step::Elsewhere, "{before} -> {after}");
        }
        let rewatch = [
            ("", "namespaces: [a], labelSelector: a=b".to_owned()),
            ("", "labelSelector: a=b".to_owned()),
            ("", "generationAware: false".to_owned()),
            ("", "triggerOnAllEvents: true".to_owned()),
            ("", "finalizer: a.b/c".to_owned()),
            ("", "indexes: { by: { pointer: /a } }".to_owned()),
            ("", format!("sources: {{ s: {{ informer: {{ {CM} }} }} }}")),
            ("", "sources: { s: { poll: { every: 1m, id: /id } } }".to_owned()),
            ("", "sources: { s: { inbound: { token: none } } }".to_owned()),
            (
                "sources: { s: { inbound: { token: none } } }",
                "sources: { s: { inbound: { token: none, id: /name } } }".to_owned(),
            ),
            ("", "cluster: edge".to_owned()),
            (&far("edge"), far("spare")),
            (
                "sources: { s: { pollEach: { every: 1m, id: /id } } }",
                "sources: { s: { pollEach: { every: 2m, id: /id } } }".to_owned(),
            ),
            ("", dependent("")),
            (&dependent(""), dependent(", garbageCollected: false")),
            (&dependent(""), dependent(", activation: { cel: primary.spec.on }")),
            (&dependent(""), dependent("").replace("cm:", "other:")),
            (&dependent(""), dependent("").replace("ConfigMap", "Secret")),
        ];
        for (before, after) in rewatch {
            assert_eq!(step(before, &after), Step::Rewatch, "{before} -> {after}");
        }
    }

    #[test]
    fn what_is_packed_or_no_more_is_watched_anew_as_what_is_kept() {
        // BC-4
        let source = |more| format!("sources: {{ s: {{ informer: {{ apiVersion: v1, kind: ConfigMap{more} }} }} }}");
        for (before, after) in [(String::new(), "packed: true".to_owned()), (source(""), source(", packed: true"))] {
            assert_eq!([step(&before, &after), step(&after, &before)], [Step::Rewatch; 2]);
        }
    }

    #[test]
    fn nothing_follows_a_swap_that_no_run_could_notice() {
        const ALL: OnSwap = OnSwap::ReconcileAll;
        let read = |fields: &str, on_swap| {
            let operators = manifest::parse(&text("one", "web", fields), Path::new("a"));
            let mut operator = operators.unwrap().remove(0);
            let plugin = operator.plugins.remove("p").unwrap();
            let spec = operator.controllers.remove("web").unwrap();
            (spec, Plugin { on_swap, ..plugin })
        };
        for (fields, on_swap, component, wanted) in [
            ("", ALL, "1", OnSwap::Nothing),
            (", namespaces: [a]", ALL, "1", OnSwap::Nothing),
            (", retry: none", ALL, "1", ALL),
            (", namespaces: [a]", ALL, "2", ALL),
            ("", OnSwap::Nothing, "2", OnSwap::Nothing),
            // PA-2, PA-3
            (", paused: true", OnSwap::Nothing, "2", ALL),
        ] {
            let (before, after) = (read("", OnSwap::Nothing), read(fields, on_swap));
            let none = Values::default();
            let version = |(spec, plugin), component| Version { spec, plugin, component, values: &none };
            let [before, after] = [&before, &after].map(|(spec, plugin)| (spec, plugin));
            let follows = version(after, component).follows(version(before, "1"));
            assert_eq!(follows, wanted, "{fields} {on_swap:?} {component}");
            if fields == ", paused: true" {
                let back = version(before, "1").follows(version(after, component));
                assert_eq!(back, ALL, "however `onSwap` is");
            }
        }
    }

    #[test]
    fn another_account_makes_a_controller_watch_anew() {
        let operators = manifest::parse(&text("one", "web", ""), Path::new("a"));
        let before = operators.unwrap().remove(0).controllers.remove("web");
        let before = before.unwrap();
        let after = Controller {
            service_account: Some(ServiceAccount { name: "web".into(), namespace: None }),
            ..before.clone()
        };
        let shape = |spec| Shape { spec, finalizer: true };
        assert_eq!(shape(&before).step(shape(&after)), Step::Rewatch);
    }

    #[test]
    fn a_version_asks_in_vain_if_nothing_of_what_is_new_in_it_is_permitted() {
        use Permission::{Apply, Create, Delete};
        let granting = |verbs: &[Permission]| Capabilities {
            kubernetes: vec![manifest::Grant {
                gvk: Gvk::parse("v1", "ConfigMap").unwrap(),
                verbs: verbs.iter().copied().collect(),
                namespaces: None,
            }],
            ..Capabilities::default()
        };
        let table: [[&[Permission]; 4]; 5] = [
            [&[], &[], &[], &[]],
            [&[], &[Apply], &[], &[Apply]],
            [&[Apply], &[Apply], &[], &[]],
            [&[], &[Apply, Create], &[Apply], &[]],
            [&[Apply], &[Apply, Create, Delete], &[Apply], &[Create, Delete]],
        ];
        for [before, now, permitted, expected] in table {
            let set = |verbs: &[Permission]| verbs.iter().copied().collect::<BTreeSet<_>>();
            let found = ungranted(&set(before), &set(now), &granting(permitted));
            assert_eq!(found, set(expected), "{before:?} {now:?} {permitted:?}");
        }
    }

    #[test]
    fn a_finalizer_that_comes_or_goes_changes_which_events_count() {
        let operators = manifest::parse(&text("one", "web", ""), Path::new("a")).unwrap();
        let spec = &operators[0].controllers["web"];
        let shape = |finalizer| Shape { spec, finalizer };
        assert_eq!(shape(false).step(shape(true)), Step::Rewatch);
        assert_eq!(shape(true).step(shape(false)), Step::Rewatch);
    }
}
