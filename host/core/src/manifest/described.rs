//! Decides which names of a manifest its component does not answer to, and which of the component's own no manifest uses.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::fit::{LONGEST, Misfit};
use super::needs::{Need, needs, of_registered};
use super::{Operator, Source};
use crate::budget::{Budget, Exceeded};
use crate::guest::{Description, Interface, KnownNames, Names};
use crate::yaml::{Quoted, listed, similar};

/// A name that a component answers to, and that no manifest uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unused<'d> {
    /// The interface.
    interface: Interface,
    /// The controller that the component has it for; `None`: all of them.
    controller: Option<&'d str>,
    /// The name; `None` if the interface's function takes none.
    name: Option<&'d str>,
}

/// What a component answers to for one controller.
enum Known<'d> {
    /// That is known at run time only, or it takes no name.
    Open,
    /// These names.
    These(BTreeSet<&'d str>),
    /// Nothing: it has the interface for these other controllers.
    Others(BTreeSet<&'d str>),
}

/// Returns whether a manifest asks the plugin `name` for anything by name, so that it is worth knowing which there are.
pub fn asks_by_name(operator: &Operator, name: &str) -> bool {
    needs(operator, name).iter().any(|need| need.name.is_some())
}

/// Returns what a manifest wants of the plugin `name` that its component does not answer to (`LC-15`).
///
/// # Errors
/// [`Exceeded`] if that costs too much to find out.
pub fn lacking(
    operator: &Operator,
    name: &str,
    description: &Description,
    budget: &mut Budget,
) -> Result<Vec<Misfit>, Exceeded> {
    description.lacking(needs(operator, name), budget)
}

/// Returns what is wrong with a source that a run of a controller registers: what it asks its component that this does not answer to. `None` if
/// nothing is, as far as it is known.
///
/// # Errors
/// [`Exceeded`] if that costs too much to find out.
pub fn unanswered(
    (controller, source): (&Arc<str>, &Source),
    exports: impl Fn(Interface) -> bool,
    description: Option<&Description>,
    budget: &mut Budget,
) -> Result<Option<String>, Exceeded> {
    let needs = of_registered(controller, source);
    if let Some(Need { interface, field, .. }) = needs.iter().find(|need| !exports(need.interface)) {
        return Ok(Some(format!("{field}: the component does not export `{}`", interface.name())));
    }
    let lacking = description.map(|description| description.lacking(needs, budget)).transpose()?.unwrap_or_default();
    let told = lacking.iter().map(|misfit| {
        let help = misfit.help.as_ref().map(|help| format!(" ({help})")).unwrap_or_default();
        format!("{}: {}{help}", misfit.field, misfit.message)
    });
    Ok(Some(told.collect::<Vec<_>>().join("; ")).filter(|told| !told.is_empty()))
}

/// Returns the names of a component that none of these plugins, whose component it is, uses.
pub fn unused<'d>(description: &'d Description, plugins: &[(&Operator, &str)]) -> BTreeSet<Unused<'d>> {
    let needs: Vec<Need> = plugins.iter().flat_map(|(operator, name)| needs(operator, name)).collect();
    let used: BTreeSet<(Interface, &str, Option<&str>)> =
        needs.iter().map(|need| (need.interface, &*need.controller, need.name.as_deref())).collect();
    let anywhere: BTreeSet<(Interface, Option<&str>)> = used.iter().map(|(which, _, name)| (*which, *name)).collect();
    let controllers: BTreeSet<&str> = used.iter().map(|(_, controller, _)| *controller).collect();
    let mut unused = BTreeSet::new();
    for KnownNames { exported, controller, names } in &description.entries {
        let Some(interface) = Interface::ALL.iter().copied().find(|interface| interface.name() == exported) else {
            continue;
        };
        let controller = controller.as_deref();
        match (names, controller) {
            (Names::These(names), _) => {
                let is_used = |name: &&str| match controller {
                    Some(controller) => used.contains(&(interface, controller, Some(*name))),
                    None => anywhere.contains(&(interface, Some(*name))),
                };
                let names = names.iter().map(String::as_str).filter(|name| !is_used(name));
                unused.extend(names.map(|name| Unused { interface, controller, name: Some(name) }));
            }
            (Names::Open, Some(of)) if !controllers.contains(of) => {
                unused.insert(Unused { interface, controller, name: None });
            }
            (Names::Open, _) => {}
        }
    }
    unused
}

impl Description {
    /// Returns what of this the component does not answer to.
    fn lacking(&self, needs: Vec<Need>, budget: &mut Budget) -> Result<Vec<Misfit>, Exceeded> {
        let mut found = Vec::new();
        for need in needs {
            budget.step(u64::try_from(self.entries.len()).unwrap_or(u64::MAX))?;
            found.extend(self.lacks(need, budget)?);
        }
        Ok(found)
    }

    /// Returns what a component answers to for a controller.
    fn known(&self, interface: Interface, controller: &str) -> Known<'_> {
        let of = self.entries.iter().filter(|entry| entry.exported == interface.name());
        let (mut names, mut others, mut is_there) = (BTreeSet::new(), BTreeSet::new(), false);
        for entry in of {
            if let Some(other) = entry.controller.as_deref().filter(|of| *of != controller) {
                others.insert(other);
                continue;
            }
            is_there = true;
            match &entry.names {
                Names::Open => return Known::Open,
                Names::These(these) => names.extend(these.iter().map(String::as_str)),
            }
        }
        if is_there || others.is_empty() { Known::These(names) } else { Known::Others(others) }
    }

    fn lacks(&self, need: Need, budget: &mut Budget) -> Result<Option<Misfit>, Exceeded> {
        let Need { interface, controller, name, field } = need;
        let what = noun(interface);
        let (message, help) = match (self.known(interface, &controller), name) {
            (Known::Open, _) => return Ok(None),
            (Known::These(known), Some(name)) if known.contains(&*name) => return Ok(None),
            (Known::These(known), Some(name)) => {
                let near = nearest(&name, &known, budget)?;
                let hint = near.map(|near| format!("; did you mean {}?", Quoted(near))).unwrap_or_default();
                (format!("the component has no {what} {}{hint}", Quoted(&name)), shown("it has", &known))
            }
            (Known::Others(others), _) | (Known::These(others), None) => {
                let near = nearest(&controller, &others, budget)?;
                let hint = near.map(|near| format!("; did you mean {}?", Quoted(near))).unwrap_or_default();
                let what = what.strip_suffix(" for").or(what.strip_suffix(" of")).unwrap_or(what);
                let message = format!("the component has no {what} for the controller {}{hint}", Quoted(&controller));
                (message, shown("it has one for", &others))
            }
        };
        Ok(Some(Misfit::new(field, message).helped(help)))
    }
}

impl fmt::Display for Unused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { interface, controller, name } = self;
        match name {
            Some(name) => write!(f, "{} {}", noun(*interface), Quoted(name))?,
            None => f.write_str(noun(*interface))?,
        }
        controller.map_or(Ok(()), |controller| write!(f, " for the controller {}", Quoted(controller)))
    }
}

/// Returns the name that may have been meant.
fn nearest<'d>(name: &str, known: &BTreeSet<&'d str>, budget: &mut Budget) -> Result<Option<&'d str>, Exceeded> {
    let known: Vec<&str> = known.iter().copied().filter(|known| known.len() <= LONGEST).collect();
    // Each pair of letters is compared.
    budget.step(u64::try_from(known.len() * LONGEST).unwrap_or(u64::MAX))?;
    Ok(if name.len() <= LONGEST { similar(name, &known) } else { None })
}

fn shown(what: &str, known: &BTreeSet<&str>) -> String {
    let quoted: Vec<String> = known.iter().map(|name| Quoted(name).to_string()).collect();
    match quoted.as_slice() {
        [] => format!("{what}: none"),
        quoted => format!("{what}: {}", listed(&quoted.iter().map(String::as_str).collect::<Vec<_>>())),
    }
}

/// Returns what a function of an interface is, as it stands before its name.
fn noun(interface: Interface) -> &'static str {
    match interface {
        Interface::Reconciler => "reconciler",
        Interface::Cleaner => "cleaner",
        Interface::ErrorHandler => "error handler",
        Interface::RetryPolicy => "retry policy",
        Interface::Validator => "validator",
        Interface::Initializer => "initializer",
        Interface::Dependent => "desired state for",
        Interface::Bulk => "desired set for",
        Interface::External => "writer of",
        Interface::Matcher => "matcher",
        Interface::Condition => "condition",
        Interface::Poller => "poller of",
        Interface::ResourcePoller => "resource poller of",
        Interface::Inbound => "receiver of",
        Interface::Filter => "filter",
        Interface::Mapper => "mapper",
        Interface::SecondaryMapper => "secondary mapper",
        Interface::Description => "description",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;
    use crate::manifest::{Registration, fit, parse};

    const MANIFEST: &str = "apiVersion: capstan.dev/v1alpha1
kind: Operator
metadata: { name: a }
spec:
  plugins: { p: { component: { path: p.wasm } } }
  controllers:
    pages:
      plugin: p
      primary: { apiVersion: sample.dev/v1, kind: Page }
      filters: { onUpdate: { export: renamed } }
      sources:
        themes: { poll: { every: 1s, id: /id } }
        hosts: { pollEach: { every: 1s, id: /id } }
        maps: { informer: { apiVersion: v1, kind: ConfigMap, mapper: { export: to-pages }, secondaries: { export: to-maps } } }
      workflow:
        dependents:
          config-map: { apiVersion: v1, kind: ConfigMap, match: { export: same }, readyPostcondition: { export: ready } }
          secrets: { apiVersion: v1, kind: Secret, bulk: true }
";

    /// Returns a description: `interface[@controller] name name`, `*` where it is open.
    fn description(lines: &[&str]) -> Description {
        let entry = |line: &&str| {
            let mut words = line.split(' ').map(str::to_owned);
            let what = words.next().unwrap();
            let (exported, controller) = what.split_once('@').map_or((what.as_str(), None), |(a, b)| (a, Some(b)));
            let names: Vec<_> = words.collect();
            KnownNames {
                exported: exported.to_owned(),
                controller: controller.map(str::to_owned),
                names: if names == ["*"] { Names::Open } else { Names::These(names) },
            }
        };
        Description { entries: lines.iter().map(entry).collect() }
    }

    const ALL: [&str; 11] = [
        "reconciler *",
        "filter renamed",
        "poller themes",
        "resource-poller hosts",
        "mapper to-pages",
        "secondary-mapper to-maps",
        "dependent config-map",
        "matcher same",
        "condition ready",
        "bulk secrets",
        "cleaner *",
    ];

    fn operator() -> Operator {
        parse(MANIFEST, Path::new("a.yaml")).unwrap_or_else(|errors| panic!("{errors}")).remove(0)
    }

    /// Returns what is told of [`ALL`] with the entry of one interface replaced by these.
    fn told(interface: &str, by: &[&str]) -> Vec<String> {
        let others = ALL.into_iter().filter(|line| !line.starts_with(&format!("{interface} ")));
        let lines: Vec<&str> = others.chain(by.iter().copied()).collect();
        let found = lacking(&operator(), "p", &description(&lines), &mut Budget::of_run()).unwrap();
        let short = |field: &str| field.strip_prefix("spec.controllers.pages.").unwrap().to_owned();
        let line = |misfit: &Misfit| {
            format!("{}: {} ({})", short(&misfit.field), misfit.message, misfit.help.as_deref().unwrap())
        };
        found.iter().map(line).collect()
    }

    #[test]
    fn a_source_that_a_run_registers_may_ask_the_component_what_it_answers_to() {
        // LC-15, ES-4
        let all = description(&["mapper to-pages to-maps", "filter@pages renamed", "filter@themes shown"]);
        let declared = |fields: &str| {
            let text = format!(r#"{{"informer": {{"apiVersion": "v1", "kind": "Secret", {fields}}}}}"#);
            Registration::parse("keys", &text, &BTreeMap::new()).unwrap().source
        };
        for (fields, exported, described, expected) in [
            (r#""mapper": {"export": "to-maps"}"#, true, true, None),
            (r#""mapper": {"labels": {}}"#, false, true, None),
            (
                r#""mapper": {"export": "to-map"}"#,
                true,
                true,
                Some(
                    "informer.mapper.export: the component has no mapper `to-map`; did you mean `to-maps`? (it has: `to-maps`, `to-pages`)",
                ),
            ),
            (r#""mapper": {"export": "to-map"}"#, true, false, None),
            (
                r#""mapper": {"export": "to-maps"}"#,
                false,
                true,
                Some("informer.mapper.export: the component does not export `mapper`"),
            ),
            (r#""filters": {"onAdd": {"export": "renamed"}}"#, true, true, None),
            (
                r#""filters": {"onAdd": {"export": "shown"}, "generic": {"export": "rename"}}"#,
                true,
                true,
                Some(
                    "informer.filters.onAdd.export: the component has no filter `shown` (it has: `renamed`); informer.filters.generic.export: the component has no filter `rename`; did you mean `renamed`? (it has: `renamed`)",
                ),
            ),
        ] {
            let source = declared(fields);
            let described = Some(&all).filter(|_| described);
            let said = unanswered((&"pages".into(), &source), |_| exported, described, &mut Budget::of_run());
            assert_eq!(said.unwrap().as_deref(), expected, "{fields}");
        }
    }

    /// LC-15
    #[test]
    fn a_name_that_the_component_does_not_answer_to_is_found_with_what_it_has() {
        assert_eq!(told("none", &[]), Vec::<String>::new());
        for (interface, by, expected) in [
            (
                "dependent",
                &["dependent configmap quota"][..],
                "workflow.dependents.config-map: the component has no desired state for `config-map`; did you mean `configmap`? (it has: `configmap`, `quota`)",
            ),
            ("bulk", &[], "workflow.dependents.secrets: the component has no desired set for `secrets` (it has: none)"),
            (
                "condition",
                &["condition@other ready", "condition@pages redy"],
                "workflow.dependents.config-map.readyPostcondition.export: the component has no condition `ready`; did you mean `redy`? (it has: `redy`)",
            ),
            (
                "matcher",
                &["matcher a"],
                "workflow.dependents.config-map.match.export: the component has no matcher `same` (it has: `a`)",
            ),
            (
                "filter",
                &["filter Renamed"],
                "filters.onUpdate.export: the component has no filter `renamed`; did you mean `Renamed`? (it has: `Renamed`)",
            ),
            ("poller", &["poller"], "sources.themes.poll: the component has no poller of `themes` (it has: none)"),
            (
                "resource-poller",
                &["resource-poller host"],
                "sources.hosts.pollEach: the component has no resource poller of `hosts`; did you mean `host`? (it has: `host`)",
            ),
            (
                "mapper",
                &["mapper@page to-pages"],
                "sources.maps.informer.mapper.export: the component has no mapper for the controller `pages`; did you mean `page`? (it has one for: `page`)",
            ),
            (
                "secondary-mapper",
                &["secondary-mapper to-map"],
                "sources.maps.informer.secondaries.export: the component has no secondary mapper `to-maps`; did you mean `to-map`? (it has: `to-map`)",
            ),
            (
                "reconciler",
                &["reconciler@themes *"],
                "plugin: the component has no reconciler for the controller `pages` (it has one for: `themes`)",
            ),
        ] {
            assert_eq!(told(interface, by), [expected]);
        }
    }

    /// LC-15
    #[test]
    fn what_is_for_all_controllers_and_for_this_one_counts_together_and_open_names_are_not_checked() {
        for (interface, by) in [
            ("condition", &["condition a", "condition@pages ready"][..]),
            ("condition", &["condition@pages a", "condition ready"]),
            ("condition", &["condition@pages a", "condition *"]),
            ("dependent", &["dependent *"]),
            ("reconciler", &["reconciler@pages *", "reconciler@themes *"]),
            ("unheard-of", &["unheard-of a"]),
        ] {
            assert_eq!(told(interface, by), Vec::<String>::new(), "{by:?}");
        }
    }

    /// LC-15
    #[test]
    fn what_is_lacking_has_its_place_in_the_manifest() {
        let lines: Vec<&str> = ALL.into_iter().filter(|line| !line.starts_with("matcher")).collect();
        let found = lacking(&operator(), "p", &description(&lines), &mut Budget::of_run()).unwrap();
        let text = fit::placed(MANIFEST, Path::new("a.yaml"), "a", found).to_string();
        let first = "a.yaml:17:75: spec.controllers.pages.workflow.dependents.config-map.match.export: the component has no matcher `same`";
        assert!(text.starts_with(first), "{text}");
        assert!(text.contains("it has: none"), "{text}");
    }

    /// LC-15
    #[test]
    fn a_name_that_no_manifest_uses_is_told_unless_another_plugin_of_the_same_component_uses_it() {
        let operator = operator();
        let of = |lines: &[&str]| {
            let description = description(lines);
            let unused = unused(&description, &[(&operator, "p")]);
            unused.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(of(&ALL), Vec::<String>::new());
        assert_eq!(
            of(&["dependent config-map quota", "condition@pages ready", "condition@themes ready"]),
            ["desired state for `quota`", "condition `ready` for the controller `themes`"]
        );
        assert_eq!(of(&["reconciler@themes *", "reconciler@pages *"]), ["reconciler for the controller `themes`"]);
        assert_eq!(of(&["description *", "future a"]), Vec::<String>::new());
        let quota = description(&["dependent quota"]);
        let other = parse(&MANIFEST.replace("config-map:", "quota:"), Path::new("b.yaml")).unwrap().remove(0);
        assert!(unused(&quota, &[(&operator, "p"), (&other, "p")]).is_empty());
    }

    #[test]
    fn finding_what_was_meant_is_bounded() {
        let names: Vec<String> = (0..1000).map(|n| format!("name-{n}")).collect();
        let line = format!("condition {}", names.join(" "));
        let lines: Vec<&str> = ALL.into_iter().filter(|line| !line.starts_with("condition")).chain([&*line]).collect();
        let description = description(&lines);
        assert!(lacking(&operator(), "p", &description, &mut Budget::of(100_000)).is_ok());
        assert!(lacking(&operator(), "p", &description, &mut Budget::of(1000)).is_err());
    }

    #[test]
    fn a_description_is_no_more_than_it_may_be() {
        let of = |names: usize, length: usize| {
            let names = vec!["n".repeat(length); names];
            let entry = KnownNames { exported: "bulk".to_owned(), controller: None, names: Names::These(names) };
            Description { entries: vec![entry] }.bounded().err()
        };
        assert_eq!((of(1024, 253), of(0, 0)), (None, None));
        assert_eq!(of(1025, 1).unwrap(), "it describes 1025 names, and may describe 1024");
        assert_eq!(of(1, 254).unwrap(), "it describes a name of 254 bytes, and may one of 253");
    }
}
