//! Templates, and controllers that have nothing else: what they should be otherwise, and what would need a component.
#![expect(clippy::ref_option, reason = "a field that may be left out is looked at where it is")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::names::Name;
use super::super::raw::{self, Maybe};
use super::super::{Controller, Dependent, Limits, Manage, Plugin, Reconciler, TEMPLATES, needs};
use super::parts::values_of;
use super::{Check, flag, get, located, names};
use crate::cel::{DEPENDENTS, Names, Right, Template, Templated, WORKFLOW};
use crate::object::Gvk;
use crate::workflow::graph::Graph;
use crate::yaml::{Any, Located, Quoted, Scalar, Slot};

/// The most expressions in all templates of an operator.
const MOST_EXPRESSIONS: usize = 4096;

impl Check<'_> {
    /// Returns the plugin of a controller, and finds one that the operator does not have.
    pub(super) fn plugin_of(&mut self, raw: &raw::Controller, around: usize, plugins: &BTreeSet<&str>) -> Arc<str> {
        let Some(Located { value: Scalar(Name(plugin)), place }) = located(&raw.plugin) else {
            if raw.workflow.is_none() && raw.status.is_none() {
                self.fault(around, "the field `plugin` is missing");
            }
            return TEMPLATES.into();
        };
        self.known(*place, "plugin", plugin, plugins);
        Arc::clone(plugin)
    }

    /// Adds the plugin of those controllers that name none, if there are any.
    pub(super) fn add_templates(&mut self, spec: &Located<raw::Spec>, plugins: &mut BTreeMap<Arc<str>, Plugin>) {
        let controllers = spec.value.controllers.read().map(|named| self.each(&named.value)).unwrap_or_default();
        let first = controllers.iter().find(|(.., controller)| controller.value.plugin.is_none());
        let Some((name, place, _)) = first else {
            if spec.value.plugins.is_none() {
                self.fault(spec.place, "the field `plugins` is missing");
            }
            return;
        };
        if plugins.insert(TEMPLATES.into(), Plugin::of_templates(Limits::usual(self.most))).is_some() {
            self.fault(*place, format!("found the controller `{name}` without a `plugin` beside a plugin that is called `{TEMPLATES}`, as what it uses is counted; expected another name for that plugin"));
        }
    }

    /// Returns what a dependent is made from, and finds what it does not go with.
    pub(super) fn desired(
        &mut self,
        raw: &raw::Dependent,
        gvk: Option<&Gvk>,
        manage: Manage,
        depends_on: &BTreeSet<Arc<str>>,
    ) -> Option<Template> {
        let place = located(&raw.desired)?.place;
        if flag(&raw.bulk, false) {
            self.fault(place, "found `desired` together with `bulk: true`; expected one of them: the objects of a bulk are those that `desired-set` answers");
        }
        if !manage.create && !manage.update {
            self.fault(place, "found `desired` without `create` and `update` in `manage`, so that nothing is made from it; expected one of them, or `name` instead");
        }
        let depends_on: Vec<&str> = depends_on.iter().map(|name| &**name).collect();
        let names = Names { variables: &["primary", DEPENDENTS], dependents: &depends_on, among: "`dependsOn`" };
        let (template, place) = self.template(&raw.desired, names)?;
        if !template.may_have(&["metadata", "name"]) {
            self.fault(place, "found a template without `metadata.name`; expected the name of the object there");
        }
        if let Some(gvk) = gvk {
            for (field, right) in [("apiVersion", &*gvk.api_version()), ("kind", &*gvk.kind)] {
                if let Some(found) = template.plain(&[field]).filter(|found| found.as_str() != Some(right)) {
                    let found = found.to_string();
                    self.fault(
                        place,
                        format!(
                            "found `{field}` {} in the template of {gvk}; expected that of the dependent, or nothing",
                            Quoted(&found)
                        ),
                    );
                }
            }
        }
        Some(template)
    }

    /// Returns what answers for primaries, and finds a status that the component answers.
    pub(super) fn reconciler(&mut self, raw: &raw::Controller) -> Reconciler {
        let dependents = get(&raw.workflow).and_then(|workflow| workflow.dependents.read());
        let dependents: Vec<&str> = dependents.map(|named| names(&named.value)).into_iter().flatten().collect();
        let variables = &["primary", DEPENDENTS, WORKFLOW];
        let names = Names { variables, dependents: &dependents, among: "`workflow`" };
        let status = self.template(&raw.status, names);
        if raw.plugin.is_none() {
            return Reconciler::Template(status.map(|(status, _)| status));
        }
        if let Some(Located { place, .. }) = located(&raw.status) {
            self.fault(
                *place,
                "found `status` beside `plugin`, whose `reconcile` answers the status; expected one of them",
            );
        }
        Reconciler::Component
    }

    /// Finds the first thing that a controller without a plugin needs one for.
    pub(super) fn needs_plugin(&mut self, raw: &raw::Controller, controller: &Controller, around: usize) {
        if controller.has_component() {
            return;
        }
        let workflow = get(&raw.workflow);
        let explicit = workflow.and_then(|workflow| located(&workflow.invocation));
        let explicit = explicit.filter(|field| field.value == raw::Invocation::Explicit);
        let errors = workflow.and_then(|workflow| located(&workflow.errors));
        let errors = errors.filter(|field| field.value == raw::ErrorsTo::Reconciler);
        let all_events = located(&raw.trigger_on_all_events).filter(|field| field.value);
        let fields = [
            ("`invocation: explicit`", explicit.map(|field| field.place)),
            ("`errors: reconciler`", errors.map(|field| field.place)),
            ("`triggerOnAllEvents`", all_events.map(|field| field.place)),
            ("`standalone`", located(&raw.standalone).map(|field| field.place)),
        ];
        let first = fields.into_iter().find_map(|(field, place)| Some((field.to_owned(), place?, "")));
        let first = first.or_else(|| {
            let needs::Need { interface, field, .. } = needs::beside(controller).into_iter().next()?;
            let instead = match interface.name() {
                "dependent" => "`desired: { template: … }`, or ",
                _ => "",
            };
            let place = self.places.iter().rposition(|place| place.path == field).unwrap_or(around);
            let functions = interface.functions().iter().map(|function| function.name()).collect::<Vec<_>>();
            Some((format!("what needs the export `{}` of a component", functions.join("`, `")), place, instead))
        });
        if let Some((what, place, instead)) = first {
            self.fault(
                place,
                format!("found {what} in a controller without a `plugin`; expected {instead}`plugin` there"),
            );
        }
        for (name, dependent) in &controller.workflow.dependents {
            let Some(lacking) = lacking(dependent) else { continue };
            let field = format!("spec.controllers.{}.workflow.dependents.{name}", controller.name);
            let place = self.places.iter().rposition(|place| place.path == field).unwrap_or(around);
            self.fault(place, lacking);
        }
    }

    /// Returns a template, and where it is.
    fn template(&mut self, field: &Maybe<raw::Made>, names: Names<'_>) -> Option<(Template, usize)> {
        let Located { value: raw::Made::Template(template), place } = located(field)?;
        let Located { value, place } = self.need(template, *place, "template")?;
        let Any::Map(fields) = value else {
            self.fault(*place, "found no mapping; expected the fields of the object");
            return None;
        };
        self.templated += fields.iter().map(|(_, value)| expressions(value)).sum::<usize>();
        let (found, what) = (self.templated, "expressions in the templates so far");
        let values = fields.iter().map(|(_, value)| values_of(value)).sum();
        if !self.few(*place, (found, what), MOST_EXPRESSIONS, " in one operator") || !self.keep_parts(*place, values) {
            return None;
        }
        Some((Template::new(self.fields(fields, &[], names)), *place))
    }

    fn fields(
        &mut self,
        fields: &[(Slot<String>, Slot<Any>)],
        path: &[&str],
        names: Names<'_>,
    ) -> Vec<(String, Templated)> {
        let mut found = Vec::new();
        for (name, value) in fields {
            let Some(Located { value: name, place }) = name.read() else {
                continue;
            };
            if name.contains("${") {
                self.fault(
                    *place,
                    format!("found {}; an expression stands in a value, and not in a name", Quoted(name)),
                );
            }
            found.push((name.clone(), self.part(value, &[path, &[name]].concat(), names)));
        }
        found
    }

    fn part(&mut self, part: &Slot<Any>, path: &[&str], names: Names<'_>) -> Templated {
        let nothing = Templated::Plain(serde_json::Value::Null);
        let Some(Located { value, place }) = part.read() else {
            return nothing;
        };
        match value {
            Any::Plain(value) => Templated::Plain(value.clone()),
            Any::List(items) => Templated::List(items.iter().map(|item| self.part(item, path, names)).collect()),
            Any::Map(fields) => Templated::Map(self.fields(fields, path, names)),
            Any::Text(_) if self.faults.are_many() || self.has_too_many_parts() => nothing,
            Any::Text(text) => {
                let right = if matches!(path, ["metadata", "name" | "namespace"]) { Right::Text } else { Right::Json };
                let read = Templated::parse(text, right, names);
                let Ok(read) = read.map_err(|broken| self.broken(*place, text, &broken)) else { return nothing };
                if self.keep_parts(*place, read.parts()) { read } else { nothing }
            }
        }
    }
}

/// Returns how many expressions a part of a template has at most, before any of them is read.
fn expressions(part: &Slot<Any>) -> usize {
    match part.read().map(|part| &part.value) {
        None | Some(Any::Plain(_)) => 0,
        // `$${` is text.
        Some(Any::Text(text)) => text.matches("${").count().saturating_sub(text.matches("$${").count()),
        Some(Any::List(items)) => items.iter().map(expressions).sum(),
        Some(Any::Map(fields)) => fields.iter().map(|(_, value)| expressions(value)).sum(),
    }
}

/// Returns what a dependent lacks without a plugin, which would say how its object is called, or be permitted what it needs.
fn lacking(dependent: &Dependent) -> Option<&'static str> {
    let Dependent { bulk, manage, called, template, .. } = dependent;
    let asked = *bulk || manage.create || manage.update || manage.delete;
    if !asked && called.is_none() {
        return Some(
            "found a dependent without a `name` in a controller without a `plugin`, which would say it; expected `name: { cel: … }`",
        );
    }
    let held = template.as_ref().is_some_and(|template| template.has(&["metadata", "finalizers"]));
    held.then_some("found `finalizers` in a template, which take `delete` in the `capabilities` of a `plugin`, in a controller without one; expected none, or `plugin`")
}

/// Marks the dependents whose template sees a Secret: the primary, one that they depend on, or what another template makes of one (`DT-4`).
pub(super) fn mark_secrets(primary: Option<&Gvk>, graph: &Graph, dependents: &mut BTreeMap<Arc<str>, Dependent>) {
    let is_primary = primary.is_some_and(Gvk::is_secret);
    for name in graph.nodes().iter().map(|node| &node.name) {
        let shows = |Dependent { template, depends_on, .. }: &Dependent| {
            let secretive = |name: &Arc<str>| dependents.get(name).is_some_and(Dependent::is_secretive);
            let sees = |template: &Template| depends_on.iter().any(|name| secretive(name) && template.reads(name));
            template.as_ref().is_some_and(|template| is_primary || sees(template))
        };
        if dependents.get(name).is_some_and(shows)
            && let Some(dependent) = dependents.get_mut(name)
        {
            dependent.shows_secret = true;
        }
    }
}
