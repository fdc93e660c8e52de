//! The sources of a controller, and its indexes: what is watched beside primaries and dependents, and how it leads to primaries.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::filters::OBJECT;
use super::super::names::{FieldSelector, Key, Name};
use super::super::raw::{self, Maybe, Named};
use super::super::units::Priority;
use super::super::{ByIndex, External, Keys, Mapper, MappingKeys, Secondaries, Source};
use super::inbound::Doors;
use super::keep::{bound, stored};
use super::{Check, MOST_ASKED, flag, get, located, page_size};
use crate::cel::Right;
use crate::object::pointer::Pointer;
use crate::yaml::{Located, OrWord, Scalar, Slot};

/// The indexes over primaries, by name.
type Indexes = BTreeMap<Arc<str>, Keys>;

/// The most sources of a controller: each is looked up, and asked about, for others too.
const MOST_SOURCES: usize = 64;

/// The sources of a controller that are right, by name.
#[derive(Default)]
pub(super) struct Sources {
    /// Those that watch.
    pub(super) watched: BTreeMap<Arc<str>, Source>,
    /// Those of things outside of the cluster.
    pub(super) polled: BTreeMap<Arc<str>, External>,
    /// What is let in at those of these that take requests from outside.
    pub(super) inbound: Doors,
}

impl Check<'_> {
    pub(super) fn indexes(&mut self, field: &Maybe<Named<raw::Index>>) -> Indexes {
        let mut indexes = BTreeMap::new();
        let Some(Located { value: named, place }) = located(field) else {
            return indexes;
        };
        if !self.few(*place, (named.0.len(), "indexes"), MOST_ASKED, ", which are asked about each event") {
            return indexes;
        }
        for (name, _, index) in self.each(named) {
            indexes.extend(self.keys(index).map(|keys| (Arc::clone(name), keys)));
        }
        indexes
    }

    fn keys(&mut self, index: &Located<raw::Index>) -> Option<Keys> {
        match &index.value {
            raw::Index::Pointer(pointer) => {
                self.asked += 1;
                self.need(pointer, index.place, "pointer").map(|pointer| Keys::Pointer(pointer.value.0.clone()))
            }
            raw::Index::Cel(cel) => self.asked(cel, index.place, (&[OBJECT], Right::Texts)).map(Keys::Cel),
        }
    }

    pub(super) fn sources(&mut self, field: &Maybe<Named<raw::Source>>, primaries: &Indexes) -> Sources {
        let Sources { mut watched, mut polled, mut inbound } = Sources::default();
        if let Some(named) = located(field) {
            let instead = ": one source may watch several namespaces, and a source without a label selector all objects of its kind";
            if !self.few(named.place, (named.value.0.len(), "sources"), MOST_SOURCES, instead) {
                return Sources::default();
            }
        }
        for (name, _, source) in get(field).map(|named| self.each(named)).unwrap_or_default() {
            let (name, place) = (Arc::clone(name), source.place);
            match &source.value {
                raw::Source::Informer(informer) => {
                    let informer = self.need(informer, place, "informer");
                    let found = informer.and_then(|informer| self.source_of(informer, primaries));
                    watched.extend(found.map(|source| (name, source)));
                }
                raw::Source::Poll(poll) => {
                    let found = self.need(poll, place, "poll").and_then(|poll| self.poll(poll));
                    polled.extend(found.map(|external| (name, external)));
                }
                raw::Source::PollEach(poll) => {
                    let found = self.need(poll, place, "pollEach").and_then(|poll| self.poll_each(poll));
                    polled.extend(found.map(|external| (name, external)));
                }
                raw::Source::Inbound(raw) => {
                    let found = self.need(raw, place, "inbound").and_then(|raw| self.inbound(raw));
                    if let Some((external, door)) = found {
                        polled.insert(Arc::clone(&name), external);
                        inbound.insert(name, door);
                    }
                }
            }
        }
        Sources { watched, polled, inbound }
    }

    /// Returns a source that a run declares; if not, or if anything was found wrong, there is a fault.
    pub(in super::super) fn registration(
        &mut self,
        document: &Slot<raw::Source>,
        primaries: &Indexes,
    ) -> Option<(Source, usize)> {
        let Located { value, place } = document.read()?;
        match value {
            raw::Source::Informer(informer) => {
                let informer = self.need(informer, *place, "informer")?;
                let source = self.source_of(informer, primaries)?;
                let leads_away = match &source.mapper {
                    Mapper::Annotations(keys) | Mapper::Labels(keys) => keys.across_namespaces,
                    Mapper::OwnerReference
                    | Mapper::OwnerKind
                    | Mapper::Named(_)
                    | Mapper::Index(_)
                    | Mapper::Export(_) => source.across_namespaces,
                };
                if source.start_priority.is_some() {
                    self.fault(
                        *place,
                        "found `startPriority`; a source that a run registers is listed at once, so expected none",
                    );
                }
                if leads_away || source.across_namespaces {
                    self.fault(*place, "found `acrossNamespaces`; only a manifest lets objects of one namespace wake primaries of another: declare the source there");
                }
                Some((source, self.asked))
            }
            raw::Source::Poll(_) | raw::Source::PollEach(_) | raw::Source::Inbound(_) => {
                self.fault(
                    *place,
                    "found a source of things outside of the cluster; expected `informer`: what is polled, or told of by requests, only a manifest declares",
                );
                None
            }
        }
    }

    fn source_of(&mut self, informer: &Located<raw::Informer>, primaries: &Indexes) -> Option<Source> {
        let Located { value: raw, place } = informer;
        let gvk = self.gvk(&raw.api_version, &raw.kind, *place);
        let cluster = self.cluster(&raw.cluster);
        let namespaces = self.namespaces(&raw.namespaces);
        let label_selector = self.label_selector(&raw.label_selector);
        let mapper = located(&raw.mapper).map(|mapper| self.mapper(mapper, primaries));
        let secondaries = self.secondaries(raw);
        let across_namespaces = self.across_namespaces(raw, mapper.as_ref());
        let filters = self.filters(&raw.filters);
        let indexes = self.indexes(&raw.indexes);
        let source = Source {
            gvk: gvk?,
            cluster,
            namespaces,
            label_selector,
            field_selector: get(&raw.field_selector).map(|Scalar(FieldSelector(text))| Arc::clone(text)),
            shard_selector: get(&raw.shard_selector).map(|Scalar(shard)| shard.clone()),
            page_size: page_size(&raw.page_size),
            keep: self.keep(&raw.keep, &raw.drop),
            stored: stored(&raw.packed),
            shared: flag(&raw.shared, true),
            start_priority: get(&raw.start_priority).map(|Scalar(Priority(n))| *n),
            bounded: get(&raw.bounded).map(bound),
            mapper: mapper.unwrap_or(Mapper::OwnerReference),
            secondaries,
            across_namespaces,
            filters,
            indexes,
        };
        self.forgettable(&raw.bounded, &source);
        self.looked_at((&raw.keep, &raw.drop), &source.fields(), source.looks_at());
        Some(source)
    }

    fn mapper(&mut self, mapper: &Located<raw::Mapper>, primaries: &Indexes) -> Mapper {
        let Located { value, place } = mapper;
        let none = || Mapper::OwnerReference;
        let (keys, by): (_, fn(MappingKeys) -> Mapper) = match value {
            raw::Mapper::OwnerReference => return Mapper::OwnerReference,
            raw::Mapper::OwnerKind => return Mapper::OwnerKind,
            raw::Mapper::Annotations(keys) => (self.need(keys, *place, "annotations"), Mapper::Annotations),
            raw::Mapper::Labels(keys) => (self.need(keys, *place, "labels"), Mapper::Labels),
            raw::Mapper::Pointer(pointer) => {
                self.asked += 1;
                let pointer = self.need(pointer, *place, "pointer");
                return pointer.map_or_else(none, |pointer| Mapper::Named(Keys::Pointer(pointer.value.0.clone())));
            }
            raw::Mapper::Cel(cel) => {
                return self
                    .asked(cel, *place, (&[OBJECT], Right::Texts))
                    .map_or_else(none, |cel| Mapper::Named(Keys::Cel(cel)));
            }
            raw::Mapper::Export(export) => {
                return self.asked_of(export, *place).map_or_else(none, Mapper::Export);
            }
            raw::Mapper::Index(index) => {
                let by = self.need(index, *place, "index").and_then(|index| self.by_index(index, primaries));
                return by.map_or_else(none, Mapper::Index);
            }
        };
        by(keys.map(|keys| mapping_keys(&keys.value)).unwrap_or_default())
    }

    fn by_index(&mut self, index: &Located<raw::IndexMapper>, primaries: &Indexes) -> Option<ByIndex> {
        let Located { value: raw, place } = index;
        let name = self.need(&raw.name, *place, "name");
        let key = match located(&raw.key) {
            None => Pointer::parse("/metadata/name").ok().map(Keys::Pointer),
            Some(key) => self.keys(key),
        };
        let Located { value: Scalar(Name(name)), place } = name?;
        self.known(*place, "index of the primaries", name, &primaries.keys().map(|name| &**name).collect());
        Some(ByIndex { name: Arc::clone(name), key: key? })
    }

    // IM-4
    fn secondaries(&mut self, raw: &raw::Informer) -> Option<Secondaries> {
        let Located { value, place } = located(&raw.secondaries)?;
        if raw.mapper.is_none() {
            self.fault(*place, "found `secondaries` without `mapper`; expected how the primaries of an object are found, too, such as `mapper: { index: … }`");
        }
        match value {
            raw::Secondaries::Pointer(pointer) => {
                let keys = self.need(pointer, *place, "pointer").map(|pointer| Keys::Pointer(pointer.value.0.clone()));
                keys.map(Secondaries::Named)
            }
            raw::Secondaries::Cel(cel) => {
                self.cel(cel, *place, (&["primary"], Right::Texts)).map(|cel| Secondaries::Named(Keys::Cel(cel)))
            }
            raw::Secondaries::Export(export) => self.asked_of(export, *place).map(Secondaries::Export),
        }
    }

    fn across_namespaces(&mut self, raw: &raw::Informer, mapper: Option<&Mapper>) -> bool {
        let Some(across) = located(&raw.across_namespaces).filter(|across| across.value) else {
            return false;
        };
        match mapper {
            Some(Mapper::Named(_) | Mapper::Export(_) | Mapper::Index(_)) => {}
            _ if raw.secondaries.is_some() => {}
            Some(Mapper::Annotations(_) | Mapper::Labels(_)) => {
                self.fault(across.place, "found `acrossNamespaces` beside a mapper by annotations or labels; expected it among the keys of that");
            }
            Some(Mapper::OwnerReference | Mapper::OwnerKind) | None => {
                self.fault(across.place, "found `acrossNamespaces` with owner references, which can't lead from one namespace into another; expected another `mapper`");
            }
        }
        flag(&raw.across_namespaces, false)
    }
}

pub(super) fn mapping_keys(raw: &raw::MappingKeys) -> MappingKeys {
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
        across_namespaces: flag(&raw.across_namespaces, false),
    }
}
