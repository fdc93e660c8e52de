//! Decides whether kinds are within a ceiling, by what the API server calls them and where they live there: of custom kinds nothing is guessed (CE-6).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::listed;
use crate::kinds::{self, Verb, kind_name};
use crate::manifest::{Authority, Ceiling, Component, ConfigValue, Controller, Operator};
use crate::object::{Gvk, Scope};
use crate::rbac::{self, Kinds, Reach, Rule};

/// What the API server says of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The name in paths and rules: `configmaps`.
    pub plural: Arc<str>,
    /// Where its objects live.
    pub scope: Scope,
}

/// What it says of kinds, each by its [name](kind_name). Of those that are not among them, nothing is known.
pub type Told = BTreeMap<String, Served>;

/// Returns the kinds of an operator of which only an API server can tell what they are called.
pub fn custom(operator: &Operator) -> BTreeSet<&Gvk> {
    named(operator).into_iter().map(|(_, gvk)| gvk).filter(|gvk| is_custom(gvk)).collect()
}

/// Returns which kinds of an operator live elsewhere than in its namespace, and what it needs of others beyond the rules of its ceiling; each with the
/// fields that name the kind, and what would be right.
pub fn excess(operator: &Operator, namespace: &Arc<str>, ceiling: &Ceiling, told: &Told) -> BTreeSet<String> {
    let within = Within { namespace, ceiling, told, named: named(operator) };
    let homeless = within.homeless();
    if homeless.is_empty() { within.rights(operator) } else { homeless }
}

/// Returns why what a kind is called does not have these verbs in a namespace under a ceiling; none if it does.
pub fn refusal(
    (namespace, ceiling): (&str, &Ceiling),
    gvk: &Gvk,
    served: &Served,
    subresource: Option<&str>,
    verbs: &[Verb],
) -> Option<String> {
    let name = &ceiling.name;
    if served.scope == Scope::Cluster {
        return Some(homeless(gvk, namespace, name));
    }
    let resource = match subresource {
        Some(subresource) => format!("{}/{subresource}", served.plural).into(),
        None => Arc::clone(&served.plural),
    };
    let permitted = ceiling.rules.get(&(Arc::clone(&gvk.group), Arc::clone(&resource)));
    let lacking: Vec<_> = verbs.iter().filter(|verb| !permitted.is_some_and(|some| some.contains(verb))).collect();
    let needs = listed(lacking.iter().map(|verb| verb.name()), "");
    (!lacking.is_empty()).then(|| {
        let what = full(&resource, &gvk.group);
        let right = right(ceiling, &gvk.group, &resource);
        format!("found {gvk}, and a need for {needs} of {what}, as the API server calls it; the ceiling `{name}` permits {right}")
    })
}

/// Returns the fields of a controller that name kinds, each with its kind.
pub fn fields(controller: &Controller) -> Vec<(String, &Gvk)> {
    let base = format!("spec.controllers.{}", controller.own_name);
    let sources =
        controller.sources.iter().map(|(name, source)| (format!("{base}.sources.{name}.informer"), &source.gvk));
    let workflows = controller.workflows_by_path();
    let dependents = workflows.flat_map(|(workflow, path)| {
        let base = format!("{base}.{path}.dependents");
        let all = workflow.dependents.iter().chain(workflow.states());
        all.map(move |(name, dependent)| (format!("{base}.{name}"), &dependent.gvk))
    });
    [(format!("{base}.primary"), &controller.primary)].into_iter().chain(sources).chain(dependents).collect()
}

/// Returns the fields of an operator that name kinds, each with its kind.
fn named(operator: &Operator) -> Vec<(String, &Gvk)> {
    let grants = operator.plugins.iter().flat_map(|(plugin, declared)| {
        let grants = declared.capabilities.kubernetes.iter().enumerate();
        grants.map(move |(at, grant)| (format!("spec.plugins.{plugin}.capabilities.kubernetes[{at}]"), &grant.gvk))
    });
    operator.controllers.values().flat_map(fields).chain(grants).collect()
}

/// Returns the fields of an operator whose values are in Secrets, or in `ConfigMap`s, as the resource says.
fn held(operator: &Operator, resource: &str) -> Vec<String> {
    let mut fields = Vec::new();
    let mut add = |field: String, value: &ConfigValue| {
        fields.extend((value.holder.resource() == resource).then_some(field));
    };
    for (name, plugin) in &operator.plugins {
        let field = format!("spec.plugins.{name}");
        if let Some(Component::Registry(image)) = &plugin.component {
            image.pull_secret.iter().for_each(|value| add(format!("{field}.component.pullSecret"), value));
            if let Some(Authority::Held(value)) = &image.authority {
                add(format!("{field}.component.ca"), value);
            }
        }
        plugin.config_from.iter().for_each(|(key, value)| add(format!("{field}.configFrom.{key}"), value));
    }
    for controller in operator.controllers.values() {
        for (name, inbound) in &controller.inbound {
            let field = format!("spec.controllers.{}.sources.{name}.inbound.token", controller.own_name);
            inbound.senders.token().into_iter().for_each(|value| add(field.clone(), value));
        }
    }
    fields
}

/// Whether a kind may be a custom one: these have groups with a dot.
fn is_custom(gvk: &Gvk) -> bool {
    gvk.group.contains('.')
}

/// An operator's kinds, beside the ceiling.
struct Within<'o> {
    namespace: &'o Arc<str>,
    ceiling: &'o Ceiling,
    told: &'o Told,
    named: Vec<(String, &'o Gvk)>,
}

// === impl Within ===

impl Within<'_> {
    /// Finds kinds that live in no namespace.
    fn homeless(&self) -> BTreeSet<String> {
        let is_homeless = |gvk: &Gvk| {
            let told = self.told.get(&kind_name(gvk)).map(|served| served.scope);
            told.or_else(|| kinds::scope(gvk)) == Some(Scope::Cluster)
        };
        let found = self.named.iter().filter(|(_, gvk)| is_homeless(gvk));
        found.map(|(field, gvk)| format!("{field}: {}", homeless(gvk, self.namespace, &self.ceiling.name))).collect()
    }

    /// Finds what is needed of the API server beyond the rules.
    fn rights(&self, operator: &Operator) -> BTreeSet<String> {
        let rights = rbac::rights(std::slice::from_ref(operator), self.namespace, &self.facts());
        let mut found = BTreeSet::new();
        // What the daemon needs for its caches is among it.
        for (reach, rules) in rights.accounts.into_values().flatten() {
            let here = reach == Reach::Namespace(Arc::clone(self.namespace));
            found.extend(rules.iter().filter_map(|rule| self.rule(rule, here)));
        }
        for (resource, names) in &rights.granted {
            let rule = Rule { group: "".into(), resource: (*resource).to_owned(), verbs: vec![Verb::Get] };
            let field = listed(held(operator, resource), "spec");
            found.extend(self.lacking(&field, &rule).filter(|_| !names.is_empty()));
        }
        found
    }

    /// Returns what rules are made by: the plurals of custom kinds are what the API server says, or stand-ins.
    fn facts(&self) -> Kinds {
        let mut facts = Kinds::default();
        for gvk in self.named.iter().map(|(_, gvk)| *gvk).filter(|gvk| is_custom(gvk)) {
            let name = kind_name(gvk);
            let told = self.told.get(&name).map(|served| served.plural.to_string());
            facts.plurals.insert(name, told.unwrap_or_else(|| stand_in(gvk)));
        }
        facts
    }

    fn rule(&self, rule: &Rule, here: bool) -> Option<String> {
        let Rule { group, resource, .. } = rule;
        let (name, namespace) = (&self.ceiling.name, self.namespace);
        let what = full(resource, group);
        let field = self.fields_of(group, resource);
        if !here {
            return Some(format!(
                "{field}: found a need for {what} beyond the namespace {namespace}; the ceiling `{name}` permits what is in that alone"
            ));
        }
        self.lacking(&field, rule)
    }

    /// Returns what a rule has beyond those of the ceiling, with the field that needs it.
    fn lacking(&self, field: &str, Rule { group, resource, verbs }: &Rule) -> Option<String> {
        let permitted = self.permitted(group, resource, verbs);
        let lacking: Vec<_> = verbs.iter().filter(|verb| !permitted.contains(verb)).collect();
        (!lacking.is_empty()).then(|| {
            let needs = listed(lacking.iter().map(|verb| verb.name()), "");
            let (name, what) = (&self.ceiling.name, full(resource, group));
            let right = right(self.ceiling, group, resource);
            format!("{field}: found a need for {needs} of {what}; the ceiling `{name}` permits {right}")
        })
    }

    /// Returns the verbs that are permitted on a resource. One that is not known may be any of its group, so that it is refused only if none would do.
    fn permitted(&self, group: &Arc<str>, resource: &str, verbs: &[Verb]) -> BTreeSet<Verb> {
        let rules = &self.ceiling.rules;
        let (plural, subresource) = split(resource);
        if !plural.starts_with('<') {
            return rules.get(&(Arc::clone(group), resource.into())).cloned().unwrap_or_default();
        }
        let of_group = rules.iter().filter(|((of, name), _)| of == group && split(name).1 == subresource);
        let permitted = |all: &BTreeSet<Verb>| verbs.iter().filter(|verb| all.contains(verb)).copied().collect();
        of_group.map(|(_, all)| permitted(all)).max_by_key(BTreeSet::len).unwrap_or_default()
    }

    /// Returns the fields that name a resource.
    fn fields_of(&self, group: &str, resource: &str) -> String {
        let plural = |gvk: &Gvk| {
            let told = self.told.get(&kind_name(gvk)).map(|served| served.plural.to_string());
            told.unwrap_or_else(|| if is_custom(gvk) { stand_in(gvk) } else { rbac::plural_of(gvk) })
        };
        let fields = self.named.iter().filter(|(_, gvk)| *gvk.group == *group && plural(gvk) == split(resource).0);
        listed(fields.map(|(field, _)| field), "spec")
    }
}

/// Says that a kind lives in no namespace.
fn homeless(gvk: &Gvk, namespace: &str, ceiling: &str) -> String {
    format!("found {gvk}, which lives in no namespace; the ceiling `{ceiling}` permits what lives in {namespace} alone")
}

/// Returns what stands for the plural of a kind that is not known. No plural begins like this.
fn stand_in(gvk: &Gvk) -> String {
    format!("<{}>", gvk.kind)
}

/// Returns a plural without its subresource, and that.
fn split(resource: &str) -> (&str, Option<&str>) {
    resource.split_once('/').map_or((resource, None), |(plural, subresource)| (plural, Some(subresource)))
}

/// Returns a resource with its group.
fn full(resource: &str, group: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

/// Returns what a ceiling permits on a resource; if that is nothing, which it names of the group.
fn right(ceiling: &Ceiling, group: &Arc<str>, resource: &str) -> String {
    if let Some(permitted) = ceiling.rules.get(&(Arc::clone(group), resource.into())) {
        return listed(permitted.iter().map(|verb| verb.name()), "");
    }
    let of_group = ceiling.rules.keys().filter(|(of, _)| of == group).map(|(_, name)| name);
    let names = if group.is_empty() { String::new() } else { listed(of_group, "") };
    if names.is_empty() { "nothing of it".to_owned() } else { format!("nothing of it, and {names} of its group") }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::manifest::{Ceilings, Defaults, parse_object};

    const CEILING: &str = "
apiVersion: capstan.dev/v1alpha1
kind: Ceilings
spec:
  ceilings:
    teams:
      namespaces: [team-a]
      serviceAccounts: [pages]
      rules:
        - { apiGroups: [example.com], resources: [people, people/status], verbs: [get, list, watch, patch] }
        - { apiGroups: [example.com], resources: [persons, persons/status], verbs: [list, watch, patch] }
        - { apiGroups: [\"\"], resources: [configmaps, events], verbs: [get, list, watch, create, patch, update] }
";

    fn ceiling() -> Arc<Ceiling> {
        Arc::clone(Ceilings::parse(CEILING, Path::new("c")).unwrap().of("team-a").unwrap())
    }

    fn operator(group: &str) -> Operator {
        let object = serde_json::json!({
            "metadata": { "name": "web" },
            "spec": {
                "serviceAccount": { "name": "pages" },
                "controllers": { "web": {
                    "namespaces": ["team-a"],
                    "primary": { "apiVersion": format!("{group}/v1"), "kind": "Person" },
                    "workflow": { "dependents": { "map": { "apiVersion": "v1", "kind": "ConfigMap", "desired": { "template": { "metadata": { "name": "a" } } } } } },
                } },
            },
        });
        parse_object(&object, Path::new("o"), &Defaults::default()).unwrap()
    }

    fn told(plural: &str, scope: Scope) -> Told {
        Told::from([("Person.example.com".to_owned(), Served { plural: plural.into(), scope })])
    }

    #[test]
    fn a_kind_is_within_a_ceiling_by_what_the_api_server_calls_it() {
        // CE-6
        let primary = "spec.controllers.web.primary: found";
        let teams = "the ceiling `teams` permits";
        let names = "people, people/status, persons, persons/status of its group";
        for (group, told, expected) in [
            // Neither the guess `persons`, which lacks a verb, nor what it is called is known to be wrong.
            ("example.com", Told::new(), vec![]),
            ("example.com", told("people", Scope::Namespaced), vec![]),
            (
                "example.com",
                told("persons", Scope::Namespaced),
                vec![format!("{primary} a need for get of persons.example.com; {teams} list, watch, patch")],
            ),
            (
                "example.com",
                told("folk", Scope::Namespaced),
                vec![
                    format!(
                        "{primary} a need for get, list, watch, patch of folk.example.com; {teams} nothing of it, and {names}"
                    ),
                    format!(
                        "{primary} a need for patch of folk/status.example.com; {teams} nothing of it, and {names}"
                    ),
                ],
            ),
            (
                "example.com",
                told("people", Scope::Cluster),
                vec![format!(
                    "{primary} example.com/v1 Person, which lives in no namespace; {teams} what lives in team-a alone"
                )],
            ),
            // Whatever it is called, there is nothing of its group.
            (
                "other.example.com",
                Told::new(),
                vec![
                    format!(
                        "{primary} a need for get, list, watch, patch of <Person>.other.example.com; {teams} nothing of it"
                    ),
                    format!("{primary} a need for patch of <Person>/status.other.example.com; {teams} nothing of it"),
                ],
            ),
        ] {
            let found = excess(&operator(group), &"team-a".into(), &ceiling(), &told);
            assert_eq!(found.into_iter().collect::<Vec<_>>(), expected, "{group} {told:?}");
        }
    }

    #[test]
    fn a_request_is_within_a_ceiling_by_the_resource_that_it_is_about() {
        // CE-6
        let gvk = Gvk::parse("example.com/v1", "Person").unwrap();
        let ceiling = ceiling();
        for (plural, scope, subresource, verb, expected) in [
            ("people", Scope::Namespaced, None, Verb::Get, None),
            ("people", Scope::Namespaced, Some("status"), Verb::Patch, None),
            (
                "people",
                Scope::Namespaced,
                Some("scale"),
                Verb::Patch,
                Some("a need for patch of people/scale.example.com, as"),
            ),
            (
                "people",
                Scope::Namespaced,
                None,
                Verb::Delete,
                Some(
                    "a need for delete of people.example.com, as the API server calls it; the ceiling `teams` permits get, list, watch, patch",
                ),
            ),
            ("persons", Scope::Namespaced, None, Verb::Get, Some("a need for get of persons.example.com, as")),
            (
                "people",
                Scope::Cluster,
                None,
                Verb::Get,
                Some("which lives in no namespace; the ceiling `teams` permits what lives in team-a alone"),
            ),
        ] {
            let served = Served { plural: plural.into(), scope };
            let found = refusal(("team-a", &ceiling), &gvk, &served, subresource, &[verb]);
            assert_eq!(found.is_some(), expected.is_some(), "{plural} {verb:?}");
            assert!(found.unwrap_or_default().contains(expected.unwrap_or_default()), "{plural} {verb:?}");
        }
    }

    #[test]
    fn only_of_custom_kinds_the_api_server_is_asked_what_they_are_called() {
        // CE-6
        let operator = operator("example.com");
        assert_eq!(
            custom(&operator).into_iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["example.com/v1 Person"]
        );
    }
}
