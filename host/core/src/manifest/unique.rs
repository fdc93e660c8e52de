//! What must hold between operators: names that are unique in the daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Clash, Controller, Finalizing, Namespaces, Operator, Where};
use crate::kinds;
use crate::object::{ObjectRef, Scope};
use crate::yaml::{self, At, Errors, Mark, Problem};

/// Where an operator is written, for messages.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    pub(super) file: PathBuf,
    pub(super) name: Mark,
    pub(super) controllers: BTreeMap<Arc<str>, Mark>,
    /// Where the paths or references of components are, by plugin, and of which of the two.
    pub(super) components: BTreeMap<Arc<str>, ComponentMark>,
    /// Where it says what becomes of new versions.
    pub(super) on_new_version: Mark,
}

/// Where a component is named, and by which field.
pub(super) type ComponentMark = (Mark, &'static str);

impl Origin {
    /// Returns the file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Returns where the component of a plugin is named: `webpage.yaml:7:26: spec.plugins.webpage.component.path`.
    pub fn component(&self, plugin: &str) -> String {
        let (mark, field) = self.components.get(plugin).copied().unwrap_or_default();
        format!("{}: {}.component.{field}", At { file: &self.file, mark }, yaml::join("spec.plugins", plugin))
    }

    /// Returns where it is said what becomes of new versions: `webpage.yaml:4:19: spec.onNewVersion`.
    pub fn on_new_version(&self) -> String {
        format!("{}: spec.onNewVersion", At { file: &self.file, mark: self.on_new_version })
    }
}

/// Returns what stands for the file of an operator that is an object of the cluster: `operators.capstan.dev/NAMESPACE/NAME`.
pub fn object_path(object: &ObjectRef) -> PathBuf {
    Path::new(OBJECTS).join(object.to_string())
}

/// Whether this stands for an object of the cluster.
pub fn is_object_path(path: &Path) -> bool {
    path.starts_with(OBJECTS)
}

const OBJECTS: &str = "operators.capstan.dev";

impl PartialEq for Origin {
    /// Always true: operators are equal no matter where they are written.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Checks operators that one daemon is to run: no two have the same name, no two of their controllers (`LC-1`), no two
/// write under the same field manager, no two controllers keep the conditions of the same primaries (`SC-3`), and none takes another
/// one's finalizer away, as far as the manifests say (`LC-3`).
///
/// # Errors
/// [`Errors`] with each second use of a name, at its place, which name the first.
pub fn check_together<'a>(operators: impl IntoIterator<Item = &'a Operator>) -> Result<(), Errors> {
    let (mut problems, mut shared) = (Vec::new(), Vec::new());
    let mut names = BTreeMap::new();
    let mut controllers = BTreeMap::new();
    let mut managers = BTreeMap::<&Arc<str>, Writer<'_>>::new();
    let (mut keepers, mut others) = (Neighbours::default(), Neighbours::default());
    for Operator { name, origin, controllers: declared, .. } in operators {
        let mut check = |seen: &mut BTreeMap<Arc<str>, Site>, what: &str, name: &Arc<str>, mark: Mark, path: String| {
            let site = Site { file: origin.file.clone(), mark };
            match seen.get(name) {
                Some(first) => problems.push(second(what, name, &site, first, path)),
                None => drop(seen.insert(Arc::clone(name), site)),
            }
        };
        check(&mut names, "operator", name, origin.name, "metadata.name".to_owned());
        for (controller, spec) in declared {
            let mark = origin.controllers.get(controller).copied().unwrap_or_default();
            check(&mut controllers, "controller", controller, mark, format!("spec.controllers.{}", spec.own_name));
            shared.extend(second_writer(&mut managers, name, spec, origin, mark));
            if spec.keeps_conditions() && spec.cluster.is_none() {
                shared.extend(second_keeper(&mut keepers, spec, Site { file: origin.file.clone(), mark }));
            }
            shared.extend(second_finalizer(&mut others, spec, Site { file: origin.file.clone(), mark }));
        }
    }
    problems.extend(shared);
    if problems.is_empty() { Ok(()) } else { Err(Errors::new(problems)) }
}

/// Finds a controller that writes as another operator's does, so that each would undo what the other has applied.
fn second_writer<'a>(
    managers: &mut BTreeMap<&'a Arc<str>, Writer<'a>>,
    operator: &'a Arc<str>,
    spec: &'a Controller,
    origin: &Origin,
    mark: Mark,
) -> Option<Problem> {
    let site = Site { file: origin.file.clone(), mark };
    let Controller { name, field_manager, .. } = spec;
    let Some(first) = managers.get(field_manager) else {
        let writer = Writer { operator, controller: name, site };
        managers.insert(field_manager, writer);
        return None;
    };
    // Two controllers of one name are told already.
    if first.operator == operator || first.controller == name {
        return None;
    }
    let at = &first.site;
    let path = format!("spec.controllers.{}", spec.own_name);
    let mut problem = second("field manager", field_manager, &site, at, path);
    problem.message = format!("{}; set another `fieldManager`", problem.message);
    Some(problem)
}

/// Finds a controller that keeps the conditions of the same primaries as another one, so that each would undo what the other writes.
fn second_keeper<'a>(keepers: &mut Neighbours<'a>, spec: &'a Controller, site: Site) -> Option<Problem> {
    let primaries = |spec: &'a Controller| {
        let Controller { primary, namespaces, label_selector, .. } = spec;
        (&primary.group, &primary.kind, namespaces, label_selector)
    };
    // What a tenant keeps is in nobody's way but its own (`CE-2`).
    let is_in_the_way = |other: &Controller| other.home.is_none() || spec.home.is_some();
    let mut others = keepers.of(spec).filter(|(other, _)| is_in_the_way(other));
    let Some((first, at)) = others.find(|(other, _)| primaries(other) == primaries(spec)) else {
        drop(others);
        keepers.add(spec, site);
        return None;
    };
    let mut problem = second("", "", &site, at, format!("spec.controllers.{}.statusConditions", spec.own_name));
    problem.message = format!(
        "found `standard` for the same {} as in controller `{}` at {at}, so that each would undo what the other writes; expected it in one of them",
        spec.primary, first.name,
    );
    Some(problem)
}

/// Finds a controller that lets primaries go before another one has cleaned up, or the other way round.
fn second_finalizer<'a>(others: &mut Neighbours<'a>, spec: &'a Controller, site: Site) -> Option<Problem> {
    let place = Where { scope: kinds::scope(&spec.primary), own: None };
    let clashing = others.of(spec).filter(|(other, _)| other.name != spec.name).find_map(|(other, at)| {
        let (one, other) = (Finalizing::declared(spec), Finalizing::declared(other));
        Some((one.clash(other, place)?, other, at))
    });
    let problem = clashing.map(|(clash, other, at)| {
        let field = if clash == Clash::Formerly { "finalizers.formerly" } else { "finalizer" };
        let path = format!("spec.controllers.{}.{field}", spec.own_name);
        let message = clash.message(
            spec,
            &format!("controller `{}` at {at}", other.spec.name),
            match clash {
                Clash::Formerly => other.name,
                Clash::Shared | Clash::FormerlyOfOther => spec.finalizer.as_deref(),
            },
        );
        Problem { message, ..second("", "", &site, at, path) }
    });
    others.add(spec, site);
    problem
}

/// Controllers by where their primaries are: of thousands of operators, most have theirs in a namespace of their own, and are compared
/// with the few there alone.
#[derive(Default)]
struct Neighbours<'a> {
    all: Vec<(&'a Controller, Site)>,
    /// By group and kind of their primaries.
    places: BTreeMap<(&'a str, &'a str), Places<'a>>,
}

/// Numbers of controllers by namespace; `None`: more than those that are listed.
type Places<'a> = BTreeMap<Option<&'a str>, Vec<usize>>;

impl<'a> Neighbours<'a> {
    /// Returns those that may have primaries in common with a controller, in the order in which they were added.
    fn of(&self, spec: &Controller) -> impl Iterator<Item = &(&'a Controller, Site)> + use<'_, 'a> {
        let of_kind = self.places.get(&(&*spec.primary.group, &*spec.primary.kind));
        let numbers: BTreeSet<usize> = match (of_kind, listed(spec)) {
            (None, _) => BTreeSet::new(),
            (Some(places), None) => places.values().flatten().copied().collect(),
            (Some(places), Some(names)) => {
                let names = names.iter().map(|name| Some(&**name)).chain([None]);
                names.filter_map(|name| places.get(&name)).flatten().copied().collect()
            }
        };
        numbers.into_iter().filter_map(|number| self.all.get(number))
    }

    fn add(&mut self, spec: &'a Controller, site: Site) {
        let (number, kind) = (self.all.len(), (&*spec.primary.group, &*spec.primary.kind));
        let places = self.places.entry(kind).or_default();
        match listed(spec) {
            Some(names) => names.iter().for_each(|name| places.entry(Some(&**name)).or_default().push(number)),
            None => places.entry(None).or_default().push(number),
        }
        self.all.push((spec, site));
    }
}

/// Returns the namespaces in which all primaries of a controller are, if it lists them.
fn listed(spec: &Controller) -> Option<&BTreeSet<Arc<str>>> {
    let names = if let Namespaces::Listed(names) = &spec.namespaces { Some(names) } else { None };
    names.filter(|_| kinds::scope(&spec.primary) != Some(Scope::Cluster))
}

/// Who writes under a field manager.
struct Writer<'a> {
    operator: &'a Arc<str>,
    controller: &'a Arc<str>,
    site: Site,
}

struct Site {
    file: PathBuf,
    mark: Mark,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        At { file: &self.file, mark: self.mark }.fmt(f)
    }
}

fn second(what: &str, name: &str, site: &Site, first: &Site, path: String) -> Problem {
    Problem {
        file: site.file.clone(),
        line: site.mark.line,
        column: site.mark.column,
        path,
        message: format!("found a second {what} `{name}`; the first is at {first}, and names are unique in the daemon"),
        help: None,
        snippet: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::parse;

    fn operator(file: &str, name: &str, controller: &str) -> Operator {
        let text = format!(
            "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: {name} }}\nspec:\n  \
             plugins: {{ p: {{ component: {{ path: p.wasm }} }} }}\n  controllers:\n    \
             {controller}: {{ plugin: p, primary: {{ apiVersion: v1, kind: ConfigMap }} }}\n"
        );
        parse(&text, Path::new(file)).unwrap().remove(0)
    }

    // LC-1
    #[test]
    fn names_used_twice_are_told_with_both_places() {
        let operators =
            [operator("a.yaml", "one", "web"), operator("b.yaml", "two", "web"), operator("c.yaml", "one", "db")];
        assert_eq!(
            check_together(&operators).unwrap_err().to_string(),
            "b.yaml:7:5: spec.controllers.web: found a second controller `web`; the first is at a.yaml:7:5, and names are \
             unique in the daemon\n\n\
             c.yaml:3:19: metadata.name: found a second operator `one`; the first is at a.yaml:3:19, and names are unique \
             in the daemon"
        );
    }

    #[test]
    fn two_operators_do_not_write_under_one_field_manager() {
        let sharing = |file: &str, name: &str, controller: &str| {
            let text = format!(
                "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: {name} }}\nspec:\n  \
                 plugins: {{ p: {{ component: {{ path: p.wasm }} }} }}\n  controllers:\n    \
                 {controller}: {{ plugin: p, fieldManager: capstan, primary: {{ apiVersion: v1, kind: ConfigMap }} }}\n"
            );
            parse(&text, Path::new(file)).unwrap().remove(0)
        };
        assert_eq!(
            check_together(&[sharing("a.yaml", "one", "web"), sharing("b.yaml", "two", "db")]).unwrap_err().to_string(),
            "b.yaml:7:5: spec.controllers.db: found a second field manager `capstan`; the first is at a.yaml:7:5, and names are \
             unique in the daemon; set another `fieldManager`"
        );
    }

    #[test]
    fn two_controllers_do_not_keep_the_conditions_of_the_same_primaries() {
        // SC-3
        let keeping = |name: &str, fields: &str| {
            let text = format!(
                "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: {name} }}\nspec:\n  \
                 plugins: {{ p: {{ component: {{ path: p.wasm }} }} }}\n  controllers:\n    \
                 {name}: {{ plugin: p, primary: {{ apiVersion: a.dev/v1, kind: Page }}{fields} }}\n"
            );
            parse(&text, Path::new("a.yaml")).unwrap().remove(0)
        };
        let standard = ", statusConditions: standard";
        let first = keeping("one", standard);
        for others in
            ["", ", statusConditions: standard, labelSelector: a", ", statusConditions: standard, namespaces: [n]"]
        {
            assert_eq!(check_together(&[first.clone(), keeping("two", others)]), Ok(()), "{others}");
        }
        assert_eq!(
            check_together(&[first, keeping("two", standard)]).unwrap_err().to_string(),
            "a.yaml:7:5: spec.controllers.two.statusConditions: found `standard` for the same a.dev/v1 Page as in controller `one` at \
             a.yaml:7:5, so that each would undo what the other writes; expected it in one of them"
        );
    }

    #[test]
    fn two_controllers_do_not_take_each_others_finalizers_away() {
        // LC-3
        let with = |name: &str, fields: &str| {
            let text = format!(
                "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: {name} }}\nspec:\n  \
                 plugins: {{ p: {{ component: {{ path: p.wasm }} }} }}\n  controllers:\n    \
                 {name}: {{ plugin: p, primary: {{ apiVersion: a.dev/v1, kind: Page }}{fields} }}\n"
            );
            parse(&text, Path::new("a.yaml")).unwrap().remove(0)
        };
        let deletes = |more: &str| {
            format!(
                ", workflow: {{ dependents: {{ m: {{ apiVersion: v1, kind: ConfigMap, garbageCollected: false }} }} }}{more}"
            )
        };
        let own = ", finalizer: a.dev/f";
        for (one, two, expected) in [
            (deletes(""), String::new(), None),
            (deletes(""), deletes(own), None),
            (deletes(", namespaces: [a]"), deletes(", namespaces: [b]"), None),
            (
                deletes(""),
                deletes(""),
                Some(
                    "finalizer: found the default finalizer of a.dev/v1 Page, as controller `one` at a.yaml:7:5 uses it, so that a primary of both would go once one of them has cleaned up; expected another `finalizer` in one of them, or namespaces or selectors without a common primary",
                ),
            ),
            (
                deletes(own),
                ", finalizers: { formerly: [a.dev/f] }".to_owned(),
                Some(
                    "finalizers.formerly: found the finalizer a.dev/f, which controller `one` at a.yaml:7:5 uses, so that its primaries would lose it before it has cleaned up; expected none that is in use, or namespaces or selectors without a common primary",
                ),
            ),
            (
                ", finalizers: { formerly: [a.dev/f] }".to_owned(),
                deletes(own),
                Some(
                    "finalizer: found the finalizer a.dev/f, which controller `one` at a.yaml:7:5 has under `finalizers.formerly`, so that primaries would lose it before they are cleaned up; expected another `finalizer`, or namespaces or selectors without a common primary",
                ),
            ),
        ] {
            let told = check_together(&[with("one", &one), with("two", &two)]).err().map(|errors| errors.to_string());
            let expected = expected.map(|text| format!("a.yaml:7:5: spec.controllers.two.{text}"));
            assert_eq!(told, expected, "{one} {two}");
        }
    }

    #[test]
    fn a_controller_is_compared_with_those_alone_that_may_have_its_primaries() {
        let of = |name: &str, kind: &str, namespaces: &str| {
            let text = format!(
                "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: {name} }}\nspec:\n  \
                 plugins: {{ p: {{ component: {{ path: p.wasm }} }} }}\n  controllers:\n    \
                 {name}: {{ plugin: p, primary: {{ {kind} }}, namespaces: {namespaces} }}\n"
            );
            let operator = parse(&text, Path::new("a.yaml")).unwrap_or_else(|errors| panic!("{errors}")).remove(0);
            operator.controllers.into_values().next().unwrap()
        };
        let (pages, spaces) = ("apiVersion: a.dev/v1, kind: Page", "apiVersion: v1, kind: Namespace");
        let all = [
            of("a", pages, "[a]"),
            of("b", pages, "[b]"),
            of("both", pages, "[a, b]"),
            of("all", pages, "all"),
            of("own", pages, "own"),
            of("others", "apiVersion: b.dev/v1, kind: Page", "[a]"),
            of("space", spaces, "all"),
        ];
        let mut neighbours = Neighbours::default();
        for spec in &all {
            neighbours.add(spec, Site { file: PathBuf::new(), mark: Mark::default() });
        }
        let near = |spec: &Controller| -> Vec<&str> { neighbours.of(spec).map(|(other, _)| &*other.name).collect() };
        for (spec, expected) in [
            (of("x", pages, "[a]"), &["a", "both", "all", "own"][..]),
            (of("x", pages, "[b, a]"), &["a", "b", "both", "all", "own"]),
            (of("x", pages, "[c]"), &["all", "own"]),
            (of("x", pages, "all"), &["a", "b", "both", "all", "own"]),
            (of("x", spaces, "all"), &["space"]),
            (of("x", "apiVersion: c.dev/v1, kind: Page", "all"), &[]),
        ] {
            assert_eq!(near(&spec), expected, "{:?}", spec.namespaces);
        }
    }

    #[test]
    fn operators_with_names_of_their_own_may_run_together() {
        assert_eq!(check_together(&[operator("a.yaml", "one", "web"), operator("b.yaml", "two", "db")]), Ok(()));
    }

    #[test]
    fn an_operator_is_the_same_wherever_it_is_written() {
        assert_eq!(operator("a.yaml", "one", "web"), operator("b.yaml", "one", "web"));
    }
}
