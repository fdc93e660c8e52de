//! What a component has to export for a manifest.

use std::sync::Arc;

use super::filters::Question;
use super::polls::Polled;
use super::{
    Condition, Conditions, Controller, Dependent, Filters, Mapper, Matching, Node, Operator, Outside, Secondaries,
    Source,
};
use crate::guest::Interface;

/// An interface that the manifest needs, and the field that says so.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// What has to be exported.
    pub interface: Interface,
    /// The controller that needs it.
    pub controller: Arc<str>,
    /// The name with which the component will be asked; `None` if the function takes none.
    pub name: Option<Arc<str>>,
    /// The field of the manifest, as a path: `spec.controllers.webpage`.
    pub field: String,
}

/// The needs of one controller, as they are found.
struct Needs<'c> {
    controller: &'c Arc<str>,
    found: Vec<Need>,
}

/// Returns what the plugin `name` has to export for this manifest, in the order of the manifest's fields.
pub fn needs(operator: &Operator, name: &str) -> Vec<Need> {
    let of = |controller: &Controller| {
        let mut needs = Needs { controller: &controller.own_name, found: Vec::new() };
        needs.add(Interface::Reconciler, None, format!("spec.controllers.{}.plugin", controller.own_name));
        needs.controller(controller);
        needs.found
    };
    users(operator, name).flat_map(of).collect()
}

/// Returns what a controller needs of its component beside the reconciler.
pub(super) fn beside(controller: &Controller) -> Vec<Need> {
    let mut needs = Needs { controller: &controller.own_name, found: Vec::new() };
    needs.controller(controller);
    needs.found
}

/// Returns what a source needs that a run of a controller registers, with the fields of its declaration.
pub(super) fn of_registered(controller: &Arc<str>, source: &Source) -> Vec<Need> {
    let mut needs = Needs { controller, found: Vec::new() };
    needs.source(source, "informer");
    needs.found
}

/// Returns what the plugin `name` may not export for this manifest, with the fields that say so (`LC-5`).
pub fn unwanted(operator: &Operator, name: &str) -> Vec<Need> {
    let all_events = users(operator, name).filter(|controller| controller.all_events());
    let need = |controller: &Controller| Need {
        interface: Interface::Cleaner,
        controller: Arc::clone(&controller.own_name),
        name: None,
        field: format!("spec.controllers.{}.triggerOnAllEvents", controller.own_name),
    };
    all_events.map(need).collect()
}

// === impl Needs ===

impl Needs<'_> {
    fn add(&mut self, interface: Interface, name: Option<&Arc<str>>, field: String) {
        self.found.push(Need { interface, controller: Arc::clone(self.controller), name: name.cloned(), field });
    }

    fn controller(&mut self, controller: &Controller) {
        let field = format!("spec.controllers.{}", controller.own_name);
        for (name, external) in &controller.externals {
            let needs: &[_] = match external.polled {
                Polled::Together { .. } => &[(Interface::Poller, "poll")],
                Polled::Each(_) => &[(Interface::ResourcePoller, "pollEach")],
                Polled::Inbound(None) => &[(Interface::Inbound, "inbound")],
                Polled::Inbound(Some(_)) => {
                    &[(Interface::Inbound, "inbound"), (Interface::ResourcePoller, "inbound.fetch")]
                }
            };
            let field = format!("{field}.sources.{name}");
            for (interface, polls) in needs {
                self.add(*interface, Some(name), format!("{field}.{polls}"));
            }
            let form = needs.first().map_or("", |(_, polls)| polls);
            self.filters(&external.filters, &format!("{field}.{form}"));
        }
        self.filters(&controller.filters, &field);
        for (name, source) in &controller.sources {
            self.source(source, &format!("{field}.sources.{name}.informer"));
        }
        for (workflow, path) in controller.workflows_by_path() {
            for (name, node) in workflow.nodes() {
                let field = format!("{field}.{path}.dependents.{name}");
                match node {
                    Node::Object(dependent) => self.dependent((name, dependent), &field),
                    Node::Thing(outside) => self.outside((name, outside), &field),
                }
            }
        }
    }

    fn source(&mut self, source: &Source, field: &str) {
        if let Mapper::Export(name) = &source.mapper {
            self.add(Interface::Mapper, Some(name), format!("{field}.mapper.export"));
        }
        if let Some(Secondaries::Export(name)) = &source.secondaries {
            self.add(Interface::SecondaryMapper, Some(name), format!("{field}.secondaries.export"));
        }
        self.filters(&source.filters, field);
    }

    fn filters(&mut self, filters: &Filters, field: &str) {
        let Filters { on_add, on_update, on_delete, generic } = filters;
        for (what, question) in
            [("onAdd", on_add), ("onUpdate", on_update), ("onDelete", on_delete), ("generic", generic)]
        {
            if let Some(Question::Export(name)) = question {
                self.add(Interface::Filter, Some(name), format!("{field}.filters.{what}.export"));
            }
        }
    }

    fn dependent(&mut self, (name, dependent): (&Arc<str>, &Dependent), field: &str) {
        let manage = dependent.manage;
        // KD-4: a dependent that is only deleted needs no desired state if the manifest says its name.
        let asked = manage.create || manage.update || (manage.delete && dependent.called.is_none());
        // DT-1: nor is the component asked for what a template says.
        let asked = asked && dependent.template.is_none();
        // BD-2: of a bulk that is only read, nothing is desired.
        if asked {
            let interface = if dependent.bulk { Interface::Bulk } else { Interface::Dependent };
            self.add(interface, Some(name), field.to_owned());
        }
        if let Matching::Export(name) = &dependent.matching {
            self.add(Interface::Matcher, Some(name), format!("{field}.match.export"));
        }
        self.filters(&dependent.filters, field);
        self.conditions(&dependent.conditions, field);
    }

    fn outside(&mut self, (name, outside): (&Arc<str>, &Outside), field: &str) {
        let Outside { manage, bulk, called, matching, .. } = outside;
        // KD-4: what is only removed by its id needs no desired state, nor does what is only removed as all that there is.
        let asked = manage.create || manage.update || (manage.delete && called.is_none() && !bulk);
        if asked {
            let interface = if *bulk { Interface::Bulk } else { Interface::Dependent };
            self.add(interface, Some(name), field.to_owned());
        }
        if manage.create || manage.update || manage.delete {
            self.add(Interface::External, Some(name), format!("{field}.external"));
        }
        if let Matching::Export(name) = matching {
            self.add(Interface::Matcher, Some(name), format!("{field}.match.export"));
        }
        self.conditions(&outside.conditions, field);
    }

    fn conditions(&mut self, conditions: &Conditions, field: &str) {
        for (role, condition) in [
            ("activation", &conditions.activation),
            ("reconcilePrecondition", &conditions.reconcile_precondition),
            ("readyPostcondition", &conditions.ready_postcondition),
            ("deletePostcondition", &conditions.delete_postcondition),
        ] {
            if let Some(Condition::Export(name)) = condition {
                self.add(Interface::Condition, Some(name), format!("{field}.{role}.export"));
            }
        }
    }
}

fn users<'a>(operator: &'a Operator, plugin: &'a str) -> impl Iterator<Item = &'a Controller> {
    operator.controllers.values().filter(move |controller| &*controller.plugin == plugin)
}
