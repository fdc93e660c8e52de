//! Makes the checked types out of the fields as written, and finds what no field can know alone: names that nothing has, and fields
//! that contradict each other.
#![expect(
    clippy::ref_option,
    reason = "a field that may be left out is looked at where it is"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::object::Gvk;

use super::names::{ApiVersion, Finalizer, Key, KindName, Name};
use super::problem::{Fault, Mark, Place, similar};
use super::raw::{self, Maybe, MaybeLeaf, Named};
use super::read::{Leaf, Located, OrWord, Scalar, Slot};
use super::units::{Bytes, Factor, LONGEST, Number0, Number1, Time};
use super::{
    Capabilities, Controller, Instances, Limits, Mapper, MappingKeys, Namespaces, OnSwap, Operator,
    Origin, Permission, Plugin, RateLimit, Retry, Selector, Source, Warm, Workflow,
};

mod dependent;

/// What is known while a document is checked.
pub(super) struct Check<'a> {
    places: &'a [Place],
    file: &'a Path,
    faults: Vec<Fault>,
}

/// Returns the value of a field, if it is there and right.
fn get<T>(field: &Maybe<T>) -> Option<&T> {
    located(field).map(|located| &located.value)
}

fn located<T>(field: &Maybe<T>) -> Option<&Located<T>> {
    field.as_ref().and_then(Slot::read)
}

fn bytes(field: &MaybeLeaf<Bytes>, default: usize) -> usize {
    get(field).map_or(default, |Scalar(Bytes(n))| {
        usize::try_from(*n).unwrap_or(usize::MAX)
    })
}

fn time(field: &MaybeLeaf<Time>, default: Duration) -> Duration {
    get(field).map_or(default, |Scalar(Time(duration))| *duration)
}

fn count(field: &MaybeLeaf<Number1>, default: usize) -> usize {
    get(field).map_or(default, |Scalar(Number1(n))| {
        usize::try_from(*n).unwrap_or(usize::MAX)
    })
}

fn flag(field: &Maybe<bool>, default: bool) -> bool {
    get(field).copied().unwrap_or(default)
}

fn object(field: &Maybe<Map<String, Value>>) -> Value {
    Value::Object(get(field).cloned().unwrap_or_default())
}

// === impl Check ===

impl<'a> Check<'a> {
    /// Starts with what was wrong already when the document was read.
    pub(super) fn new(places: &'a [Place], file: &'a Path, faults: Vec<Fault>) -> Self {
        Self {
            places,
            file,
            faults,
        }
    }

    /// Returns all that is wrong.
    pub(super) fn into_faults(self) -> Vec<Fault> {
        self.faults
    }

    fn fault(&mut self, place: usize, message: impl Into<String>) {
        self.faults.push(Fault::new(place, message));
    }

    fn mark(&self, place: usize) -> Mark {
        self.places
            .get(place)
            .map(|place| place.mark)
            .unwrap_or_default()
    }

    /// Returns a field that must be there. `around` is the mapping that it belongs into.
    fn need<'s, T>(
        &mut self,
        slot: &'s Slot<T>,
        around: usize,
        name: &str,
    ) -> Option<&'s Located<T>> {
        if matches!(slot, Slot::Missing) {
            self.fault(around, format!("the field `{name}` is missing"));
        }
        slot.read()
    }

    /// Returns the entries of a mapping that could be read, with the places of their names.
    fn each<'s, T>(&mut self, named: &'s Named<T>) -> Vec<(&'s Arc<str>, usize, &'s Located<T>)> {
        let mut entries = Vec::new();
        for (name, value) in &named.0 {
            let Some(Located {
                value: Scalar(Name(name)),
                place,
            }) = name.read()
            else {
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
    fn set<T, K: Ord>(
        &mut self,
        items: &[Slot<T>],
        around: usize,
        key: impl Fn(&T) -> K,
    ) -> BTreeSet<K> {
        let mut set = BTreeSet::new();
        for Located { value, place } in self.items(items, around) {
            if !set.insert(key(value)) {
                self.fault(*place, "found the same a second time; once is enough");
            }
        }
        set
    }

    /// Finds a name that nothing has.
    fn known<'k>(
        &mut self,
        place: usize,
        what: &str,
        name: &str,
        known: impl IntoIterator<Item = &'k str>,
    ) -> bool {
        let known: Vec<&str> = known.into_iter().collect();
        if known.contains(&name) {
            return true;
        }
        let hint = match similar(name, &known) {
            Some(near) => format!("did you mean `{near}`?"),
            None if known.is_empty() => "there is none at all".to_owned(),
            None => format!("there are: {}", known.join(", ")),
        };
        self.fault(place, format!("there is no {what} `{name}` here; {hint}"));
        false
    }

    /// Returns the operator; if not, or if anything was found wrong, there is a fault.
    pub(super) fn operator(&mut self, document: &Slot<raw::Document>) -> Option<Operator> {
        let Located {
            value: document,
            place,
        } = document.read()?;
        let metadata = self.need(&document.metadata, *place, "metadata");
        let name = metadata.and_then(|at| self.need(&at.value.name, at.place, "name"));
        let spec = self.need(&document.spec, *place, "spec")?;
        let plugins = self.need(&spec.value.plugins, spec.place, "plugins");
        let controllers = self.need(&spec.value.controllers, spec.place, "controllers");
        let declared = plugins.map(|plugins| names(&plugins.value));
        let plugins = plugins.map(|named| self.plugins(named)).unwrap_or_default();
        let (controllers, marks) = controllers
            .map(|named| self.controllers(named, declared.as_ref()))
            .unwrap_or_default();
        let Located {
            value: Scalar(Name(name)),
            place,
        } = name?;
        let origin = Origin {
            file: self.file.to_owned(),
            name: self.mark(*place),
            controllers: marks,
        };
        Some(Operator {
            name: Arc::clone(name),
            plugins,
            controllers,
            origin,
        })
    }

    fn plugins(&mut self, named: &Located<Named<raw::Plugin>>) -> BTreeMap<Arc<str>, Plugin> {
        if named.value.0.is_empty() {
            self.fault(
                named.place,
                "found an empty mapping; expected at least one plugin",
            );
        }
        let mut plugins = BTreeMap::new();
        for (name, _, plugin) in self.each(&named.value) {
            plugins.extend(self.plugin(plugin).map(|plugin| (Arc::clone(name), plugin)));
        }
        plugins
    }

    /// Returns the controllers, and where their names are.
    fn controllers(
        &mut self,
        named: &Located<Named<raw::Controller>>,
        plugins: Option<&BTreeSet<&str>>,
    ) -> (BTreeMap<Arc<str>, Controller>, BTreeMap<Arc<str>, Mark>) {
        if named.value.0.is_empty() {
            self.fault(
                named.place,
                "found an empty mapping; expected at least one controller",
            );
        }
        let mut controllers = BTreeMap::new();
        let mut marks = BTreeMap::new();
        for (name, place, controller) in self.each(&named.value) {
            marks.insert(Arc::clone(name), self.mark(place));
            let controller = self.controller(name, controller, plugins);
            controllers.extend(controller.map(|controller| (Arc::clone(name), controller)));
        }
        (controllers, marks)
    }

    // --- plugins ---

    fn plugin(&mut self, plugin: &Located<raw::Plugin>) -> Option<Plugin> {
        let Located {
            value: plugin,
            place,
        } = plugin;
        let component = self
            .need(&plugin.component, *place, "component")
            .and_then(|component| {
                let raw::Component::Path(path) = &component.value;
                self.need(path, component.place, "path")
            });
        let limits = self.limits(&plugin.limits);
        let capabilities = self.capabilities(&plugin.capabilities);
        let folder = self.file.parent().unwrap_or(Path::new(""));
        let component = folder.join(&component?.value.0.0);
        let instances = self.instances(&plugin.instances, limits.memory);
        let on_swap = match get(&plugin.on_swap) {
            Some(raw::OnSwap::Nothing) => OnSwap::Nothing,
            Some(raw::OnSwap::ReconcileAll) | None => OnSwap::ReconcileAll,
        };
        Some(Plugin {
            component,
            limits,
            capabilities,
            config: object(&plugin.config),
            instances,
            on_swap,
        })
    }

    fn instances(&mut self, field: &Maybe<raw::Instances>, limit: u64) -> Instances {
        let warm = match get(field) {
            None | Some(OrWord::Word(_)) => return Instances::Fresh,
            Some(OrWord::Value(OrWord::Word(_))) => None,
            Some(OrWord::Value(OrWord::Value(raw::Bounded::Warm(warm)))) => warm.read(),
        };
        let usual = Warm::within(limit);
        let Some(warm) = warm.map(|warm| &warm.value) else {
            return Instances::Warm(usual);
        };
        if let Some(Located {
            value: Scalar(Bytes(memory)),
            place,
        }) = located(&warm.memory)
            && *memory > limit
        {
            self.fault(
                *place,
                format!(
                    "found {memory} bytes; an instance never has more than `limits.memory`, which is {limit}"
                ),
            );
        }
        Instances::Warm(Warm {
            runs: count(&warm.runs, usual.runs),
            memory: get(&warm.memory).map_or(usual.memory, |Scalar(Bytes(n))| *n),
            idle: time(&warm.idle, usual.idle),
        })
    }

    fn limits(&mut self, limits: &Maybe<raw::Limits>) -> Limits {
        let defaults = Limits::default();
        let Some(limits) = get(limits) else {
            return defaults;
        };
        if let Some(Located {
            value: Scalar(Bytes(memory)),
            place,
        }) = located(&limits.memory)
            && !(1 << 16..=1 << 32).contains(memory)
        {
            self.fault(
                *place,
                format!("found {memory} bytes; a component's memory is from `64Ki` to `4Gi`"),
            );
        }
        let memo = get(&limits.memo);
        let of_memo = |field: fn(&raw::Memo) -> &MaybeLeaf<Bytes>, default| {
            memo.map_or(default, |memo| bytes(field(memo), default))
        };
        Limits {
            memory: get(&limits.memory).map_or(defaults.memory, |Scalar(Bytes(n))| *n),
            timeout: time(&limits.timeout, defaults.timeout),
            concurrency: count(&limits.concurrency, defaults.concurrency),
            memo_run: of_memo(|memo| &memo.run, defaults.memo_run),
            memo_primary: of_memo(|memo| &memo.primary, defaults.memo_primary),
            memo_plugin: of_memo(|memo| &memo.plugin, defaults.memo_plugin),
            requests: get(&limits.requests).map_or(defaults.requests, |Scalar(Number0(n))| *n),
            page: get(&limits.page).map_or(defaults.page, |Scalar(Number1(n))| *n),
            log: bytes(&limits.log, defaults.log),
        }
    }

    fn capabilities(&mut self, capabilities: &Maybe<raw::Capabilities>) -> Capabilities {
        let mut kubernetes = BTreeMap::new();
        let grants = get(capabilities).and_then(|capabilities| located(&capabilities.kubernetes));
        for grant in grants
            .map(|grants| self.items(&grants.value, grants.place))
            .unwrap_or_default()
        {
            let Located {
                value: grant,
                place,
            } = grant;
            let gvk = self.gvk(&grant.api_version, &grant.kind, *place);
            let verbs = self.need(&grant.verbs, *place, "verbs").map(|verbs| {
                if verbs.value.is_empty() {
                    self.fault(
                        verbs.place,
                        "found an empty list; expected at least one verb",
                    );
                }
                self.set(&verbs.value, verbs.place, |verb| permission(*verb))
            });
            let Some((gvk, verbs)) = gvk.zip(verbs) else {
                continue;
            };
            if kubernetes.contains_key(&gvk) {
                self.fault(
                    *place,
                    format!("found {gvk} a second time; expected one entry with all its verbs"),
                );
            }
            kubernetes.insert(gvk, verbs);
        }
        Capabilities { kubernetes }
    }

    fn gvk(
        &mut self,
        api_version: &Leaf<ApiVersion>,
        kind: &Leaf<KindName>,
        around: usize,
    ) -> Option<Gvk> {
        let api_version = self.need(api_version, around, "apiVersion");
        let kind = self.need(kind, around, "kind");
        Gvk::parse(&api_version?.value.0.0, &kind?.value.0.0).ok()
    }

    // --- controllers ---

    fn controller(
        &mut self,
        name: &Arc<str>,
        controller: &Located<raw::Controller>,
        plugins: Option<&BTreeSet<&str>>,
    ) -> Option<Controller> {
        let Located { value: raw, place } = controller;
        let plugin = self.need(&raw.plugin, *place, "plugin");
        if let (
            Some(Located {
                value: Scalar(Name(plugin)),
                place,
            }),
            Some(plugins),
        ) = (plugin, plugins)
        {
            self.known(*place, "plugin", plugin, plugins.iter().copied());
        }
        let primary = self.need(&raw.primary, *place, "primary");
        let primary = primary.and_then(|p| self.gvk(&p.value.api_version, &p.value.kind, p.place));
        let namespaces = self.namespaces(&raw.namespaces).unwrap_or(Namespaces::All);
        let label_selector = self.label_selector(&raw.label_selector);
        let retry = self.retry(&raw.retry);
        let rate_limit = self.rate_limit(&raw.rate_limit);
        let indexes = self.indexes(&raw.indexes);
        let sources = self.sources(&raw.sources);
        let (workflow, standalone) = self.workflows(raw, &sources);
        let max_interval = match get(&raw.max_reconciliation_interval) {
            None => Some(Duration::from_hours(10)),
            Some(OrWord::Word(_)) => None,
            Some(OrWord::Value(Scalar(Time(interval)))) => Some(*interval),
        };
        Some(Controller {
            name: Arc::clone(name),
            plugin: Arc::clone(&plugin?.value.0.0),
            primary: primary?,
            namespaces,
            label_selector,
            generation_aware: flag(&raw.generation_aware, true),
            finalizer: get(&raw.finalizer)
                .map(|Scalar(Finalizer(finalizer))| Arc::clone(finalizer)),
            field_manager: get(&raw.field_manager)
                .map_or(name, |Scalar(manager)| &manager.0)
                .clone(),
            server_side_apply: flag(&raw.server_side_apply, true),
            retry,
            rate_limit,
            max_interval,
            concurrency: count(&raw.concurrency, 8),
            indexes,
            sources,
            workflow,
            standalone,
        })
    }

    fn namespaces(&mut self, field: &Maybe<raw::Namespaces>) -> Option<Namespaces> {
        let Located { value, place } = located(field)?;
        Some(match value {
            OrWord::Word(_) => Namespaces::All,
            OrWord::Value(OrWord::Word(_)) => Namespaces::Own,
            OrWord::Value(OrWord::Value(listed)) => {
                if listed.is_empty() {
                    self.fault(
                        *place,
                        "found an empty list; expected at least one namespace, `all` or `own`",
                    );
                }
                Namespaces::Listed(self.set(listed, *place, |Scalar(Name(name))| Arc::clone(name)))
            }
        })
    }

    fn label_selector(&mut self, field: &Maybe<String>) -> Option<Arc<str>> {
        let Located { value, place } = located(field)?;
        match Selector::parse(value) {
            Ok(_) if value.trim().is_empty() => {
                self.fault(
                    *place,
                    "found an empty text; leave the field out to select everything",
                );
            }
            Ok(_) => {}
            Err(broken) => self.broken(*place, value, &broken),
        }
        Some(value.as_str().into())
    }

    fn retry(&mut self, field: &Maybe<OrWord<raw::Nothing, raw::Retry>>) -> Option<Retry> {
        let defaults = Retry::default();
        let raw = match get(field) {
            None => return Some(defaults),
            Some(OrWord::Word(_)) => return None,
            Some(OrWord::Value(raw)) => raw,
        };
        let initial_interval = time(&raw.initial_interval, defaults.initial_interval);
        let multiplier =
            get(&raw.multiplier).map_or(defaults.multiplier, |Scalar(Factor(factor))| *factor);
        let max_attempts = match get(&raw.max_attempts) {
            None => defaults.max_attempts,
            Some(OrWord::Word(_)) => None,
            Some(OrWord::Value(Scalar(Number1(n)))) => Some(*n),
        };
        let max_interval = match located(&raw.max_interval) {
            // RT-1: the default bound is what five multiplications reach.
            None => Some(initial_interval.mul_f64(multiplier.powi(5)).min(LONGEST)),
            Some(Located {
                value: OrWord::Word(_),
                ..
            }) => None,
            Some(Located {
                value: OrWord::Value(Scalar(Time(longest))),
                place,
            }) => {
                if *longest < initial_interval {
                    self.fault(*place, format!("found {longest:?}, less than `initialInterval`, which is {initial_interval:?}"));
                }
                Some(*longest)
            }
        };
        Some(Retry {
            initial_interval,
            multiplier,
            max_attempts,
            max_interval,
        })
    }

    fn rate_limit(&mut self, field: &Maybe<raw::RateLimit>) -> Option<RateLimit> {
        let Located { value: raw, place } = located(field)?;
        let max_reconciliations = self
            .need(&raw.max_reconciliations, *place, "maxReconciliations")?
            .value
            .0
            .0;
        Some(RateLimit {
            max_reconciliations,
            within: time(&raw.within, Duration::from_secs(10)),
        })
    }

    fn indexes(&mut self, field: &Maybe<Named<raw::Index>>) -> BTreeMap<Arc<str>, Arc<str>> {
        let mut indexes = BTreeMap::new();
        for (name, _, index) in get(field).map(|named| self.each(named)).unwrap_or_default() {
            let raw::Index::Pointer(pointer) = &index.value;
            let pointer = self.need(pointer, index.place, "pointer");
            indexes
                .extend(pointer.map(|pointer| (Arc::clone(name), Arc::clone(&pointer.value.0.0))));
        }
        indexes
    }

    fn sources(&mut self, field: &Maybe<Named<raw::Source>>) -> BTreeMap<Arc<str>, Source> {
        let mut sources = BTreeMap::new();
        for (name, _, source) in get(field).map(|named| self.each(named)).unwrap_or_default() {
            let raw::Source::Informer(informer) = &source.value;
            let Some(Located { value: raw, place }) = self.need(informer, source.place, "informer")
            else {
                continue;
            };
            let gvk = self.gvk(&raw.api_version, &raw.kind, *place);
            let namespaces = self.namespaces(&raw.namespaces);
            let label_selector = self.label_selector(&raw.label_selector);
            let mapper = match located(&raw.mapper) {
                None => Mapper::OwnerReference,
                Some(mapper) => self.mapper(mapper),
            };
            let indexes = self.indexes(&raw.indexes);
            let Some(gvk) = gvk else { continue };
            sources.insert(
                Arc::clone(name),
                Source {
                    gvk,
                    namespaces,
                    label_selector,
                    mapper,
                    indexes,
                },
            );
        }
        sources
    }

    fn mapper(&mut self, mapper: &Located<raw::Mapper>) -> Mapper {
        let Located { value, place } = mapper;
        let (keys, by): (_, fn(MappingKeys) -> Mapper) = match value {
            raw::Mapper::OwnerReference => return Mapper::OwnerReference,
            raw::Mapper::Annotations(keys) => {
                (self.need(keys, *place, "annotations"), Mapper::Annotations)
            }
            raw::Mapper::Labels(keys) => (self.need(keys, *place, "labels"), Mapper::Labels),
        };
        by(keys
            .map(|keys| mapping_keys(&keys.value))
            .unwrap_or_default())
    }

    fn workflows(
        &mut self,
        raw: &raw::Controller,
        sources: &BTreeMap<Arc<str>, Source>,
    ) -> (Workflow, BTreeMap<Arc<str>, Workflow>) {
        let names = get(&raw.sources).map(names).unwrap_or_default();
        let mut scope = dependent::Scope::new(names, sources);
        let workflow = located(&raw.workflow).map(|Located { value, place }| Workflow {
            dependents: self.dependents(&value.dependents, *place, &mut scope),
            explicit: get(&value.invocation) == Some(&raw::Invocation::Explicit),
            errors_to_reconciler: get(&value.errors) == Some(&raw::ErrorsTo::Reconciler),
        });
        let mut standalone = BTreeMap::new();
        for (name, _, workflow) in get(&raw.standalone)
            .map(|named| self.each(named))
            .unwrap_or_default()
        {
            let Located { value, place } = workflow;
            let workflow = Workflow {
                dependents: self.dependents(&value.dependents, *place, &mut scope),
                explicit: true,
                errors_to_reconciler: get(&value.errors) == Some(&raw::ErrorsTo::Reconciler),
            };
            standalone.insert(Arc::clone(name), workflow);
        }
        (workflow.unwrap_or_default(), standalone)
    }
}

/// Returns the names of a mapping, also of entries that are wrong: what refers to them is right.
fn names<T>(named: &Named<T>) -> BTreeSet<&str> {
    named
        .0
        .iter()
        .filter_map(|(name, _)| name.read())
        .map(|name| &*name.value.0.0)
        .collect()
}

fn mapping_keys(raw: &raw::MappingKeys) -> MappingKeys {
    let defaults = MappingKeys::default();
    let key = |field: &Maybe<OrWord<raw::Nothing, Scalar<Key>>>, default| match get(field) {
        None => default,
        Some(OrWord::Word(_)) => None,
        Some(OrWord::Value(Scalar(Key(key)))) => Some(Arc::clone(key)),
    };
    MappingKeys {
        name: get(&raw.name).map_or(defaults.name, |Scalar(Key(key))| Arc::clone(key)),
        namespace: key(&raw.namespace, defaults.namespace),
        kind: key(&raw.kind, defaults.kind),
    }
}

fn permission(verb: raw::Verb) -> Permission {
    match verb {
        raw::Verb::Get => Permission::Get,
        raw::Verb::Create => Permission::Create,
        raw::Verb::Apply => Permission::Apply,
        raw::Verb::Update => Permission::Update,
        raw::Verb::Patch => Permission::Patch,
        raw::Verb::Delete => Permission::Delete,
    }
}
