//! What a component has to export for a manifest.

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
    /// The field of the manifest, as a path: `spec.controllers.webpage`.
    pub field: String,
}

/// Returns what the plugin `name` has to export for this manifest, in the order of the manifest's fields.
pub fn needs(operator: &Operator, name: &str) -> Vec<Need> {
    let of = |controller: &Controller| {
        let field = format!("spec.controllers.{}.plugin", controller.name);
        let reconciler = Need { interface: Interface::Reconciler, field };
        [reconciler].into_iter().chain(beside(controller)).collect::<Vec<_>>()
    };
    users(operator, name).flat_map(of).collect()
}

/// Returns what a controller needs of its component beside the reconciler.
pub(super) fn beside(controller: &Controller) -> Vec<Need> {
    let field = format!("spec.controllers.{}", controller.name);
    let mut needs = Vec::new();
    for (name, external) in &controller.externals {
        let (interface, polls) = match external.polled {
            Polled::Together { .. } => (Interface::Poller, "poll"),
            Polled::Each(_) => (Interface::ResourcePoller, "pollEach"),
            Polled::Inbound => (Interface::Inbound, "inbound"),
        };
        needs.push(Need { interface, field: format!("{field}.sources.{name}.{polls}") });
    }
    needs.extend(filters(&controller.filters, &field));
    for (name, source) in &controller.sources {
        needs.extend(source_needs(source, &format!("{field}.sources.{name}.informer")));
    }
    for (workflow, path) in controller.workflows_by_path() {
        for (name, node) in workflow.nodes() {
            let field = format!("{field}.{path}.dependents.{name}");
            match node {
                Node::Object(dependent) => dependent_needs(dependent, &field, &mut needs),
                Node::Thing(outside) => outside_needs(outside, &field, &mut needs),
            }
        }
    }
    needs
}

/// Returns what the plugin `name` may not export for this manifest, with the fields that say so (`LC-5`).
pub fn unwanted(operator: &Operator, name: &str) -> Vec<Need> {
    let all_events = users(operator, name).filter(|controller| controller.all_events());
    let field = |controller: &Controller| format!("spec.controllers.{}.triggerOnAllEvents", controller.name);
    all_events.map(|controller| Need { interface: Interface::Cleaner, field: field(controller) }).collect()
}

fn source_needs(source: &Source, field: &str) -> Vec<Need> {
    let need = |interface, what: &str| Need { interface, field: format!("{field}.{what}.export") };
    let mut needs = Vec::new();
    if let Mapper::Export(_) = source.mapper {
        needs.push(need(Interface::Mapper, "mapper"));
    }
    if let Some(Secondaries::Export(_)) = source.secondaries {
        needs.push(need(Interface::SecondaryMapper, "secondaries"));
    }
    needs.extend(filters(&source.filters, field));
    needs
}

fn filters(filters: &Filters, field: &str) -> impl Iterator<Item = Need> {
    let Filters { on_add, on_update, on_delete, generic } = filters;
    let questions = [("onAdd", on_add), ("onUpdate", on_update), ("onDelete", on_delete), ("generic", generic)];
    let exports = questions.into_iter().filter(|(_, question)| matches!(question, Some(Question::Export(_))));
    exports.map(move |(name, _)| Need { interface: Interface::Filter, field: format!("{field}.filters.{name}.export") })
}

fn dependent_needs(dependent: &Dependent, field: &str, needs: &mut Vec<Need>) {
    let mut need = |interface, field: String| needs.push(Need { interface, field });
    let manage = dependent.manage;
    // KD-4: a dependent that is only deleted needs no desired state if the manifest says its name.
    let asked = manage.create || manage.update || (manage.delete && dependent.called.is_none());
    // DT-1: nor is the component asked for what a template says.
    let asked = asked && dependent.template.is_none();
    // BD-2: of a bulk that is only read, nothing is desired.
    if asked {
        need(if dependent.bulk { Interface::Bulk } else { Interface::Dependent }, field.to_owned());
    }
    if let Matching::Export(_) = dependent.matching {
        need(Interface::Matcher, format!("{field}.match.export"));
    }
    needs.extend(filters(&dependent.filters, field));
    conditions(&dependent.conditions, field, needs);
}

fn outside_needs(outside: &Outside, field: &str, needs: &mut Vec<Need>) {
    let Outside { manage, bulk, called, matching, .. } = outside;
    let mut need = |interface, field: String| needs.push(Need { interface, field });
    // KD-4: what is only removed by its id needs no desired state, nor does what is only removed as all that there is.
    let asked = manage.create || manage.update || (manage.delete && called.is_none() && !bulk);
    if asked {
        need(if *bulk { Interface::Bulk } else { Interface::Dependent }, field.to_owned());
    }
    if manage.create || manage.update || manage.delete {
        need(Interface::External, format!("{field}.external"));
    }
    if let Matching::Export(_) = matching {
        need(Interface::Matcher, format!("{field}.match.export"));
    }
    conditions(&outside.conditions, field, needs);
}

fn conditions(conditions: &Conditions, field: &str, needs: &mut Vec<Need>) {
    let mut need = |interface, field: String| needs.push(Need { interface, field });
    for (role, condition) in [
        ("activation", &conditions.activation),
        ("reconcilePrecondition", &conditions.reconcile_precondition),
        ("readyPostcondition", &conditions.ready_postcondition),
        ("deletePostcondition", &conditions.delete_postcondition),
    ] {
        if let Some(Condition::Export(_)) = condition {
            need(Interface::Condition, format!("{field}.{role}.export"));
        }
    }
}

fn users<'a>(operator: &'a Operator, plugin: &'a str) -> impl Iterator<Item = &'a Controller> {
    operator.controllers.values().filter(move |controller| &*controller.plugin == plugin)
}
