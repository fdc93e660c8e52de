//! What must hold between operators: names that are unique in the daemon.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Clash, Controller, Finalizing, Namespaces, Operator, Where};
use crate::kinds;
use crate::object::ObjectRef;
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
pub fn check_together(operators: &[Operator]) -> Result<(), Errors> {
    check_beside(&[], &operators.iter().collect::<Vec<_>>())
}

/// Checks the same of new operators, beside those that were checked with one another already: these are looked up, and not compared again.
///
/// # Errors
/// As [`check_together`].
pub fn check_beside(known: &[&Operator], new: &[&Operator]) -> Result<(), Errors> {
    let mut together = Together::default();
    for operator in known {
        together.know(operator);
    }
    let (mut problems, mut shared) = (Vec::new(), Vec::new());
    for operator in new {
        together.check(operator, (&mut problems, &mut shared));
    }
    problems.extend(shared);
    if problems.is_empty() { Ok(()) } else { Err(Errors::new(problems)) }
}

/// What is in use already, by what another operator could have in common with it.
#[derive(Default)]
struct Together<'a> {
    operators: BTreeMap<&'a Arc<str>, Site<'a>>,
    controllers: BTreeMap<&'a Arc<str>, Site<'a>>,
    managers: BTreeMap<&'a Arc<str>, Writer<'a>>,
    keepers: BTreeMap<Primaries<'a>, Vec<(&'a Controller, Site<'a>)>>,
    finalizing: BTreeMap<KindOf<'a>, Vec<(Finalizing<'a>, Site<'a>)>>,
}

/// Group and kind of the primaries of a controller.
type KindOf<'a> = (&'a Arc<str>, &'a Arc<str>);

/// Group, kind, namespaces and labels of the primaries of a controller.
type Primaries<'a> = (&'a Arc<str>, &'a Arc<str>, Result<&'a Namespaces, &'a Arc<str>>, Option<&'a Arc<str>>);

fn primaries(spec: &Controller) -> Primaries<'_> {
    let Controller { primary, namespaces, label_selector, .. } = spec;
    // How many of those may be watched that a selector finds says nothing of which they are.
    let namespaces = match namespaces {
        Namespaces::Selected(selected) => Err(&selected.selector),
        Namespaces::All | Namespaces::Own | Namespaces::Listed(_) => Ok(namespaces),
    };
    (&primary.group, &primary.kind, namespaces, label_selector.as_ref())
}

impl<'a> Together<'a> {
    /// Takes in an operator, whatever it has in common with others.
    fn know(&mut self, operator: &'a Operator) {
        let Operator { name, origin, controllers, .. } = operator;
        self.operators.entry(name).or_insert(Site { file: &origin.file, mark: origin.name });
        for (controller, spec) in controllers {
            let site = Site::of(operator, controller);
            self.controllers.entry(controller).or_insert(site);
            self.managers.entry(&spec.field_manager).or_insert(Writer { operator: name, controller: &spec.name, site });
            if keeps(spec) {
                self.keepers.entry(primaries(spec)).or_default().push((spec, site));
            }
            self.finalize(Finalizing::declared(spec), site);
        }
    }

    fn finalize(&mut self, finalizing: Finalizing<'a>, site: Site<'a>) {
        let primary = &finalizing.spec.primary;
        self.finalizing.entry((&primary.group, &primary.kind)).or_default().push((finalizing, site));
    }

    /// Takes in an operator, and finds the names that it has in common with others, and the other things.
    fn check(&mut self, operator: &'a Operator, (problems, shared): (&mut Vec<Problem>, &mut Vec<Problem>)) {
        let Operator { name, origin, controllers, .. } = operator;
        let site = Site { file: &origin.file, mark: origin.name };
        problems.extend(second_name(&mut self.operators, ("operator", name), site, "metadata.name".to_owned()));
        for (controller, spec) in controllers {
            let site = Site::of(operator, controller);
            let path = format!("spec.controllers.{}", spec.own_name);
            problems.extend(second_name(&mut self.controllers, ("controller", controller), site, path));
            shared.extend(self.second_writer(name, spec, site));
            if keeps(spec) {
                shared.extend(self.second_keeper(spec, site));
            }
            shared.extend(self.second_finalizer(spec, site));
        }
    }

    /// Finds a controller that writes as another operator's does, so that each would undo what the other has applied.
    fn second_writer(&mut self, operator: &'a Arc<str>, spec: &'a Controller, site: Site<'a>) -> Option<Problem> {
        let Controller { name, field_manager, .. } = spec;
        let Some(first) = self.managers.get(field_manager) else {
            self.managers.insert(field_manager, Writer { operator, controller: name, site });
            return None;
        };
        // Two controllers of one name are told already.
        if first.operator == operator || first.controller == name {
            return None;
        }
        let path = format!("spec.controllers.{}", spec.own_name);
        let mut problem = second("field manager", field_manager, site, first.site, path);
        problem.message = format!("{}; set another `fieldManager`", problem.message);
        Some(problem)
    }

    /// Finds a controller that keeps the conditions of the same primaries as another one, so that each would undo what the other writes.
    fn second_keeper(&mut self, spec: &'a Controller, site: Site<'a>) -> Option<Problem> {
        // What a tenant keeps is in nobody's way but its own (`CE-2`).
        let is_in_the_way = |other: &Controller| other.home.is_none() || spec.home.is_some();
        let keepers = self.keepers.entry(primaries(spec)).or_default();
        let Some((first, at)) = keepers.iter().find(|(other, _)| is_in_the_way(other)) else {
            keepers.push((spec, site));
            return None;
        };
        let mut problem = second("", "", site, *at, format!("spec.controllers.{}.statusConditions", spec.own_name));
        problem.message = format!(
            "found `standard` for the same {} as in controller `{}` at {at}, so that each would undo what the other writes; expected it in one of them",
            spec.primary, first.name,
        );
        Some(problem)
    }

    /// Finds a controller that lets primaries go before another one has cleaned up, or the other way round.
    fn second_finalizer(&mut self, spec: &'a Controller, site: Site<'a>) -> Option<Problem> {
        let place = Where { scope: kinds::scope(&spec.primary), own: None };
        let one = Finalizing::declared(spec);
        let others = self.finalizing.get(&(&spec.primary.group, &spec.primary.kind)).into_iter().flatten();
        let mut clashing = others
            .filter(|(other, _)| other.spec.name != spec.name)
            .filter_map(|(other, at)| Some((one.clash(other, place)?, other, at)));
        let problem = clashing.next().map(|(clash, other, at)| {
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
            Problem { message, ..second("", "", site, *at, path) }
        });
        self.finalize(one, site);
        problem
    }
}

/// Whether a controller keeps conditions that another one of the same cluster could keep, too.
fn keeps(spec: &Controller) -> bool {
    spec.keeps_conditions() && spec.cluster.is_none()
}

/// Finds a name that is in use already.
fn second_name<'a>(
    seen: &mut BTreeMap<&'a Arc<str>, Site<'a>>,
    (what, name): (&str, &'a Arc<str>),
    site: Site<'a>,
    path: String,
) -> Option<Problem> {
    let first = seen.get(name).copied();
    seen.entry(name).or_insert(site);
    first.map(|first| second(what, name, site, first, path))
}

/// Who writes under a field manager.
struct Writer<'a> {
    operator: &'a Arc<str>,
    controller: &'a Arc<str>,
    site: Site<'a>,
}

#[derive(Clone, Copy)]
struct Site<'a> {
    file: &'a Path,
    mark: Mark,
}

impl<'a> Site<'a> {
    /// Returns where a controller of an operator is written.
    fn of(operator: &'a Operator, controller: &Arc<str>) -> Self {
        let Origin { file, controllers, .. } = &operator.origin;
        Self { file, mark: controllers.get(controller).copied().unwrap_or_default() }
    }
}

impl fmt::Display for Site<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        At { file: self.file, mark: self.mark }.fmt(f)
    }
}

fn second(what: &str, name: &str, site: Site<'_>, first: Site<'_>, path: String) -> Problem {
    Problem {
        file: site.file.to_owned(),
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
    fn those_that_were_compared_are_looked_up_and_not_compared_again() {
        let [known, same, other] =
            [operator("a.yaml", "one", "web"), operator("b.yaml", "one", "web"), operator("c.yaml", "two", "db")];
        assert_eq!(check_beside(&[&known, &same], &[&other]), Ok(()));
        let told = check_beside(&[&known, &other], &[&same]).unwrap_err().to_string();
        assert!(told.contains("b.yaml:3:19: metadata.name: found a second operator `one`"), "{told}");
        assert!(told.contains("b.yaml:7:5: spec.controllers.web: found a second controller `web`"), "{told}");
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
