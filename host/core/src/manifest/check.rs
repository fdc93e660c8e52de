//! Makes the checked types out of the fields as written, and finds what no field can know alone: names that nothing has, and fields
//! that contradict each other.
#![expect(clippy::ref_option, reason = "a field that may be left out is looked at where it is")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::object::Gvk;
use crate::yaml::{Fault, Faults, Leaf, Located, Mark, OrWord, Place, Quoted, Scalar, Slot, listed, similar};

use super::names::{ApiVersion, FieldManager, FieldSelector, Finalizer, KindName, Name, is_named_after, is_reserved};
use super::raw::{self, Maybe, MaybeLeaf, Named};
use super::unique::ComponentMark;
use super::{Controller, Limits, Operator, Origin, Plugin, RateLimit, Remote, ServiceAccount, TriggeredBy, Workflow};

/// The most controllers of one operator, and plugins: each object of a kind is looked at for each controller that watches it.
const MOST_CONTROLLERS: usize = 64;
const MOST_PLUGINS: usize = 64;

/// The most dependents of all controllers of one operator, for the same reason: most have a source of their own.
const MOST_DEPENDENTS: usize = 1024;

/// The most workflows of a controller that run by name.
const MOST_WORKFLOWS: usize = 256;

/// The most finalizers that a controller removes: each is looked for on each primary.
const MOST_FORMER: usize = 64;

/// The most names with which unknown ones are compared, in all of a document: each pair of letters is.
const MOST_COMPARED: usize = 4096;

/// What an operator that has more of them is told.
const SHARED: &str = " in one operator: several operators may share a component";

mod ceilings;
mod clusters;
mod component;
mod conditions;
mod config;
mod defaults;
mod dependent;
mod events;
mod fields;
mod filters;
mod gates;
mod inbound;
mod keep;
mod namespaces;
mod outside;
mod parts;
mod plugin;
mod polls;
mod presence;
mod retry;
mod same;
mod source;
mod template;
mod versions;

pub(super) use defaults::Given;
use defaults::Usual;
use dependent::Scope;
use fields::{
    field_validation, flag, get, located, max_interval, min_reschedule, or, page_size, run_timeout, time, workers,
};
use source::Sources;

/// The group of operators that are objects of the cluster, and the kinds of it that say what the daemon runs, with what they are called.
const OWN_GROUP: &str = "capstan.dev";
const OWN_KINDS: [(&str, &str); 2] = [("Operator", "operators"), ("OperatorApproval", "approvals of operators")];

/// What is known while a document is checked.
pub(super) struct Check<'a> {
    places: &'a [Place],
    file: &'a Path,
    written: Written,
    faults: Faults,
    /// The names so far with which unknown ones were compared.
    compared: usize,
    /// What a ceiling permits at most; none without one.
    most: Option<&'a Limits>,
    /// The operator's name, if it has one.
    operator: Option<Arc<str>>,
    /// The operator's other clusters, by name; none where there is no operator.
    clusters: Option<BTreeMap<Arc<str>, Remote>>,
    /// The expressions and pointers of a controller so far that are looked at for each event.
    asked: usize,
    /// The expressions in templates so far.
    templated: usize,
    /// The parts of the operator so far that are kept as trees.
    parts: usize,
}

/// What a document is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// Part of a file, which others may lie beside.
    File,
    /// An object of the cluster: whoever writes it has no files where the daemon is.
    Object,
}

/// The most expressions and pointers of a controller that are looked at for each event.
const MOST_ASKED: usize = 32;

// === impl Check ===

impl<'a> Check<'a> {
    /// Starts with what was wrong already when the document was read.
    pub(super) fn new(places: &'a [Place], (file, written): (&'a Path, Written), faults: Faults) -> Self {
        let (compared, asked, templated, parts) = (0, 0, 0, 0);
        let (most, operator, clusters) = (None, None, None);
        Self { places, file, written, faults, compared, most, operator, clusters, asked, templated, parts }
    }

    /// Returns what is wrong.
    pub(super) fn into_faults(self) -> Faults {
        self.faults
    }

    fn fault(&mut self, place: usize, message: impl Into<String>) {
        self.faults.add(|| Fault::new(place, message));
    }

    fn mark(&self, place: usize) -> Mark {
        self.places.get(place).map(|place| place.mark).unwrap_or_default()
    }

    /// Returns a field that must be there. `around` is the mapping that it belongs into.
    fn need<'s, T>(&mut self, slot: &'s Slot<T>, around: usize, name: &str) -> Option<&'s Located<T>> {
        if matches!(slot, Slot::Missing) {
            self.fault(around, format!("the field `{name}` is missing"));
        }
        slot.read()
    }

    /// Returns the entries of a mapping that could be read, with the places of their names.
    fn each<'s, T>(&mut self, named: &'s Named<T>) -> Vec<(&'s Arc<str>, usize, &'s Located<T>)> {
        let mut entries = Vec::new();
        for (name, value) in &named.0 {
            let Some(Located { value: Scalar(Name(name)), place }) = name.read() else {
                continue;
            };
            if matches!(value, Slot::Missing) {
                self.fault(*place, "found nothing; expected a mapping");
            }
            entries.extend(value.read().map(|value| (name, *place, value)));
        }
        entries
    }

    /// Returns the items of a list that could be read.
    fn items<'s, T>(&mut self, items: &'s [Slot<T>], around: usize) -> Vec<&'s Located<T>> {
        if items.iter().any(|item| matches!(item, Slot::Missing)) {
            self.fault(around, "found an item that is nothing");
        }
        items.iter().filter_map(Slot::read).collect()
    }

    /// Returns the items of a list as a set, and finds those that are there twice.
    fn set<T, K: Ord>(&mut self, items: &[Slot<T>], around: usize, key: impl Fn(&T) -> K) -> BTreeSet<K> {
        let mut set = BTreeSet::new();
        for Located { value, place } in self.items(items, around) {
            if !set.insert(key(value)) {
                self.fault(*place, "found the same a second time; once is enough");
            }
        }
        set
    }

    /// Finds a name that nothing has.
    fn known(&mut self, place: usize, what: &str, name: &str, known: &BTreeSet<&str>) -> bool {
        if known.contains(name) {
            return true;
        }
        let Self { faults, compared, .. } = self;
        faults.add(|| {
            let known: Vec<&str> = known.iter().copied().collect();
            let may_compare = *compared + known.len() <= MOST_COMPARED;
            *compared += if may_compare { known.len() } else { 0 };
            let near = if may_compare { similar(name, &known) } else { None };
            let hint = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None if known.is_empty() => "there is none at all".to_owned(),
                None => format!("there are: {}", listed(&known)),
            };
            Fault::new(place, format!("there is no {what} `{name}` here; {hint}"))
        });
        false
    }

    /// Returns the operator; if not, or if anything was found wrong, there is a fault.
    pub(super) fn operator(&mut self, document: &Slot<raw::Document>, defaults: &Given) -> Option<Operator> {
        let Located { value: document, place } = document.read()?;
        let metadata = self.need(&document.metadata, *place, "metadata");
        let name = metadata.and_then(|at| self.need(&at.value.name, at.place, "name"));
        self.operator = name.map(|name| Arc::clone(&name.value.0.0));
        let spec = self.need(&document.spec, *place, "spec")?;
        let plugins = located(&spec.value.plugins);
        let controllers = self.need(&spec.value.controllers, spec.place, "controllers");
        let declared = plugins.map(|plugins| names(&plugins.value)).unwrap_or_default();
        self.clusters = Some(self.clusters(&spec.value.clusters));
        let (mut plugins, components) = plugins.map(|named| self.plugins(named)).unwrap_or_default();
        self.add_templates(spec, &mut plugins);
        let (mut controllers, marks) =
            controllers.map(|named| self.controllers(named, &declared, defaults)).unwrap_or_default();
        let account = self.service_account(&spec.value.service_account);
        for controller in controllers.values_mut() {
            controller.service_account.clone_from(&account);
        }
        let Located { value: Scalar(Name(name)), place } = name?;
        let asks = located(&spec.value.on_new_version);
        let origin = Origin {
            file: self.file.to_owned(),
            name: self.mark(*place),
            controllers: marks,
            components,
            on_new_version: asks.map(|asks| self.mark(asks.place)).unwrap_or_default(),
        };
        let on_new_version = asks.map(|asks| asks.value).unwrap_or_default();
        Some(Operator { name: Arc::clone(name), plugins, controllers, on_new_version, origin })
    }

    fn service_account(&mut self, field: &Maybe<raw::ServiceAccount>) -> Option<ServiceAccount> {
        let Located { value, place } = located(field)?;
        let Scalar(Name(name)) = &self.need(&value.name, *place, "name")?.value;
        Some(ServiceAccount {
            name: Arc::clone(name),
            namespace: get(&value.namespace).map(|Scalar(Name(namespace))| Arc::clone(namespace)),
        })
    }

    /// Returns the plugins, and where their components are named.
    fn plugins(
        &mut self,
        named: &Located<Named<raw::Plugin>>,
    ) -> (BTreeMap<Arc<str>, Plugin>, BTreeMap<Arc<str>, ComponentMark>) {
        if named.value.0.is_empty() {
            self.fault(named.place, "found an empty mapping; expected at least one plugin");
        }
        let (mut plugins, mut components) = (BTreeMap::new(), BTreeMap::new());
        if !self.few(named.place, (named.value.0.len(), "plugins"), MOST_PLUGINS, SHARED) {
            return (plugins, components);
        }
        for (name, place, plugin) in self.each(&named.value) {
            let found = self.component_mark(&plugin.value.component).unwrap_or((self.mark(place), "path"));
            components.insert(Arc::clone(name), found);
            plugins.extend(self.plugin(plugin).map(|plugin| (Arc::clone(name), plugin)));
        }
        (plugins, components)
    }

    /// Returns the controllers, and where their names are.
    fn controllers(
        &mut self,
        named: &Located<Named<raw::Controller>>,
        plugins: &BTreeSet<&str>,
        defaults: &Given,
    ) -> (BTreeMap<Arc<str>, Controller>, BTreeMap<Arc<str>, Mark>) {
        if named.value.0.is_empty() {
            self.fault(named.place, "found an empty mapping; expected at least one controller");
        }
        let (mut controllers, mut marks) = (BTreeMap::new(), BTreeMap::new());
        let (found, dependents) = (named.value.0.len(), dependents(&named.value));
        let few = self.few(named.place, (found, "controllers"), MOST_CONTROLLERS, SHARED);
        if !self.few(named.place, (dependents, "dependents in all"), MOST_DEPENDENTS, SHARED) || !few {
            return (controllers, marks);
        }
        for (name, place, controller) in self.each(&named.value) {
            marks.insert(Arc::clone(name), self.mark(place));
            self.field_manager(name, place, &controller.value.field_manager);
            let (raw, known) = (&controller.value, self.faults.count());
            self.asked = 0;
            let controller = self.controller(name, controller, plugins, defaults);
            // What is wrong otherwise may be what it seems to need.
            if let Some(controller) = controller.as_ref().filter(|_| self.faults.count() == known) {
                self.needs_plugin(raw, controller, place);
            }
            controllers.extend(controller.map(|controller| (Arc::clone(name), controller)));
        }
        self.reach(&mut controllers, named.place);
        (controllers, marks)
    }

    /// Whether there are no more than `most` of something; if so, they may be checked one by one, and against each other. `instead` ends the
    /// message.
    fn few(&mut self, place: usize, (found, what): (usize, &str), most: usize, instead: &str) -> bool {
        if found > most {
            self.fault(place, format!("found {found} {what}; expected at most {most}{instead}"));
        }
        found <= most
    }

    /// Finds a field manager under whose name others write: what it owned would be taken from them, or they from it.
    fn field_manager(&mut self, controller: &Arc<str>, place: usize, field: &MaybeLeaf<FieldManager>) {
        let (manager, place) = match located(field) {
            Some(Located { value: Scalar(FieldManager(manager)), place }) => (manager, *place),
            None => (controller, place),
        };
        let names = [controller].into_iter().chain(self.operator.as_ref());
        let right = names.map(|name| &**name).chain(["capstan"]).any(|name| is_named_after(manager, name));
        if is_reserved(manager) {
            self.fault(place, format!("found the field manager {}, under which others write; expected another `fieldManager`, such as `capstan-{controller}`", Quoted(manager)));
        } else if !right {
            self.fault(place, format!("found the field manager {}; expected one that begins with the name of this controller or operator, or with `capstan`, such as `capstan-{controller}`", Quoted(manager)));
        }
    }

    fn gvk(&mut self, api_version: &Leaf<ApiVersion>, kind: &Leaf<KindName>, around: usize) -> Option<Gvk> {
        let api_version = self.need(api_version, around, "apiVersion");
        let kind = self.need(kind, around, "kind");
        let gvk = Gvk::parse(&api_version?.value.0.0, &kind?.value.0.0).ok()?;
        // OP-7, AP-5
        let own = OWN_KINDS.iter().find(|(own, _)| (&*gvk.group, &*gvk.kind) == (OWN_GROUP, own));
        if let Some((_, what)) = own {
            self.fault(kind?.place, format!("found {what} of Capstan itself, which say what the daemon runs: nothing that it runs may watch, read or write them; expected another kind"));
        }
        Some(gvk)
    }

    fn primary(&mut self, raw: &raw::Controller, around: usize) -> Option<Gvk> {
        let Located { value, place } = self.need(&raw.primary, around, "primary")?;
        self.gvk(&value.api_version, &value.kind, *place)
    }

    fn controller(
        &mut self,
        name: &Arc<str>,
        controller: &Located<raw::Controller>,
        plugins: &BTreeSet<&str>,
        given: &Given,
    ) -> Option<Controller> {
        let (Located { value: raw, place }, defaults) = (controller, &given.controllers);
        let primary = self.primary(raw, *place);
        let (retry, retry_by) = self.retry(or(&raw.retry, &defaults.retry));
        let rate_limit = self.rate_limit(or(&raw.rate_limit, &defaults.rate_limit));
        let (filters, indexes) = (self.primary_filters(raw), self.indexes(&raw.indexes));
        let sources = self.sources(&raw.sources, &indexes);
        let (workflow, standalone) = self.workflows(raw, primary.as_ref(), (&sources, given.usual(raw)));
        let (cluster, remotes) = self.apart(raw, &sources.watched);
        let (keep, events) = (self.keep(&raw.keep, &raw.drop), self.events(&raw.events));
        let (conditions, reconciler) = (self.status_conditions(name, raw, primary.as_ref()), self.reconciler(raw));
        let workflows = ([&workflow].into_iter().chain(standalone.values()), &reconciler);
        let looks_at = keep::of_primaries((&filters, &events, conditions), &indexes, &sources.watched, workflows);
        self.looked_at((&raw.keep, &raw.drop), &keep.fields(), looks_at);
        self.primaries_forgettable(raw, &indexes, &sources.watched);
        self.not_too_many(*place);
        Some(Controller {
            name: Arc::clone(name),
            own_name: Arc::clone(name),
            plugin: self.plugin_of(raw, *place, plugins),
            reconciler,
            primary: primary?,
            cluster,
            remotes,
            namespaces: self.controller_namespaces(&raw.namespaces),
            label_selector: self.label_selector(&raw.label_selector),
            field_selector: get(&raw.field_selector).map(|Scalar(FieldSelector(text))| Arc::clone(text)),
            shard_selector: get(&raw.shard_selector).map(|Scalar(shard)| shard.clone()),
            page_size: page_size(&raw.page_size),
            keep,
            stored: keep::stored(&raw.packed),
            bounded: get(&raw.bounded).map(keep::bound),
            generation_aware: filters::generation_aware(raw, defaults),
            triggered_by: self.triggered_by(raw),
            filters,
            paused: flag(&raw.paused, false),
            events,
            status_conditions: conditions,
            finalizer: get(&raw.finalizer).map(|Scalar(Finalizer(finalizer))| Arc::clone(finalizer)),
            former_finalizers: self.former_finalizers(&raw.finalizers),
            field_manager: get(&raw.field_manager).map_or(name, |Scalar(manager)| &manager.0).clone(),
            server_side_apply: flag(or(&raw.server_side_apply, &defaults.server_side_apply), true),
            field_validation: field_validation(raw, defaults),
            retry,
            retry_by,
            rate_limit,
            max_interval: max_interval(or(&raw.max_reconciliation_interval, &defaults.max_reconciliation_interval)),
            min_reschedule: min_reschedule(or(&raw.min_reschedule_interval, &defaults.min_reschedule_interval)),
            run_timeout: run_timeout(or(&raw.reconciliation_timeout, &defaults.reconciliation_timeout)),
            concurrency: self.concurrency(&raw.concurrency, &defaults.concurrency),
            cache_sync_timeout: time(or(&raw.cache_sync_timeout, &defaults.cache_sync_timeout), Duration::from_mins(2)),
            on_start_error: get(or(&raw.on_start_error, &defaults.on_start_error)).copied().unwrap_or_default(),
            indexes,
            sources: sources.watched,
            externals: sources.polled,
            inbound: sources.inbound,
            workflow,
            standalone,
            service_account: None,
            home: None,
        })
    }

    /// Returns what makes the controller run, and finds what does not go with that (`LC-5`).
    fn triggered_by(&mut self, raw: &raw::Controller) -> TriggeredBy {
        let all = flag(&raw.trigger_on_all_events, false);
        let dependents = get(&raw.workflow).and_then(|workflow| workflow.dependents.read());
        if let Some(Located { place, .. }) = dependents.filter(|dependents| all && !dependents.value.0.is_empty()) {
            self.fault(*place, "found a managed workflow, which does not go with `triggerOnAllEvents`: its clean-up needs the finalizer that this mode leaves to the component; leave one of them out, or run the dependents by name, from `standalone`");
        }
        let former = get(&raw.finalizers).and_then(|finalizers| located(&finalizers.formerly));
        if let Some(Located { place, .. }) = former.filter(|former| all && !former.value.is_empty()) {
            self.fault(*place, "found finalizers for the daemon to remove, which does not go with `triggerOnAllEvents`: in this mode the component sees to finalizers itself; leave one of them out");
        }
        if all { TriggeredBy::AllEvents } else { TriggeredBy::Changes }
    }

    /// Finds a controller that has more asked about each event than others should wait for.
    fn not_too_many(&mut self, place: usize) {
        if self.asked > MOST_ASKED {
            let message = format!(
                "found {} CEL expressions, pointers and exports in filters, mappers and indexes, which are asked about each event; expected at most {MOST_ASKED}",
                self.asked
            );
            self.fault(place, message);
        }
    }

    fn former_finalizers(&mut self, field: &Maybe<raw::Finalizers>) -> BTreeSet<Arc<str>> {
        let Some(Located { value, place }) = get(field).and_then(|finalizers| located(&finalizers.formerly)) else {
            return BTreeSet::new();
        };
        if !self.few(*place, (value.len(), "finalizers"), MOST_FORMER, "") {
            return BTreeSet::new();
        }
        self.set(value, *place, |Scalar(Finalizer(name))| Arc::clone(name))
    }

    fn rate_limit(&mut self, field: &Maybe<OrWord<raw::Nothing, raw::RateLimit>>) -> Option<RateLimit> {
        let (raw, place) = match located(field) {
            None => return Some(RateLimit::default()),
            Some(Located { value: OrWord::Word(_), .. }) => return None,
            Some(Located { value: OrWord::Value(raw), place }) => (raw, place),
        };
        let max_reconciliations = self.need(&raw.max_reconciliations, *place, "maxReconciliations")?.value.0.0;
        Some(RateLimit { max_reconciliations, within: time(&raw.within, Duration::from_secs(10)) })
    }

    fn workflows(
        &mut self,
        raw: &raw::Controller,
        primary: Option<&Gvk>,
        (sources, usual): (&Sources, Usual<'_>),
    ) -> (Workflow, BTreeMap<Arc<str>, Workflow>) {
        let names = get(&raw.sources).map(names).unwrap_or_default();
        let mut scope = Scope::new(primary, names, (sources, usual));
        let workflow = located(&raw.workflow).map(|Located { value, place }| Workflow {
            explicit: get(&value.invocation) == Some(&raw::Invocation::Explicit),
            errors_to_reconciler: get(&value.errors) == Some(&raw::ErrorsTo::Reconciler),
            ..self.workflow(&value.dependents, *place, &mut scope)
        });
        if let (Some(workflow), Some(raw)) = (&workflow, get(&raw.workflow)) {
            self.same_objects(workflow, &raw.dependents);
        }
        let mut standalone = BTreeMap::new();
        let named = located(&raw.standalone);
        let few = named.filter(|at| self.few(at.place, (at.value.0.len(), "workflows"), MOST_WORKFLOWS, ""));
        for (name, _, workflow) in few.map(|at| self.each(&at.value)).unwrap_or_default() {
            let Located { value, place } = workflow;
            let workflow = Workflow {
                explicit: true,
                errors_to_reconciler: get(&value.errors) == Some(&raw::ErrorsTo::Reconciler),
                ..self.workflow(&value.dependents, *place, &mut scope)
            };
            standalone.insert(Arc::clone(name), workflow);
        }
        (workflow.unwrap_or_default(), standalone)
    }
}

/// Returns the names of a mapping, also of entries that are wrong: what refers to them is right.
fn names<T>(named: &Named<T>) -> BTreeSet<&str> {
    named.0.iter().filter_map(|(name, _)| name.read()).map(|name| &*name.value.0.0).collect()
}

/// Returns how many dependents controllers have, also those that are wrong.
fn dependents(controllers: &Named<raw::Controller>) -> usize {
    let count = |field: &Slot<Named<raw::Dependent>>| field.read().map_or(0, |named| named.value.0.len());
    let of = |raw: &raw::Controller| {
        let managed = get(&raw.workflow).map_or(0, |workflow| count(&workflow.dependents));
        let standalone = get(&raw.standalone).into_iter().flat_map(|named| &named.0);
        let standalone = standalone.filter_map(|(_, workflow)| Some(count(&workflow.read()?.value.dependents)));
        managed + standalone.sum::<usize>()
    };
    controllers.0.iter().filter_map(|(_, controller)| Some(of(&controller.read()?.value))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_compared_with_some_known_ones_only() {
        let mut check = Check::new(&[], (Path::new(""), Written::Object), Faults::default());
        let known: Vec<String> = (0..1000).map(|number| format!("known-{number}")).collect();
        let known: BTreeSet<&str> = known.iter().map(String::as_str).collect();
        for number in 0..20_000 {
            assert!(!check.known(0, "dependent", &format!("unknown-{number}"), &known));
        }
        // Of 20 million pairs.
        assert_eq!((check.compared, check.into_faults().count()), (4000, 20_000));
    }
}
