//! The fields of what a controller watches, and of how that leads to primaries.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::names::{ApiVersion, Export, FieldSelector, Key, KindName, Name};
use super::super::units::{Bytes, Objects, Priority, Time};
use super::{Filters, Inbound, Kept, Maybe, MaybeLeaf, Named, Namespaces, Nothing, Poll, PollEach};
use crate::object::pointer::Pointer;
use crate::object::shard::Shard;
use crate::yaml::{Leaf, OrWord, Scalar, Slot};

/// Something that is watched, or polled.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::large_enum_variant, reason = "there are few, for a moment")]
pub(in crate::manifest) enum Source {
    /// Kubernetes objects.
    Informer(Slot<Informer>),
    /// Things outside of the cluster, which the plugin reads for all primaries at once, by its export `poller` (`PP-1`).
    Poll(Slot<Poll>),
    /// Things outside of the cluster, which the plugin reads for each primary by itself, by its export `resource-poller` (`PP-2`).
    PollEach(Slot<PollEach>),
    /// What is told of by requests from outside, which the plugin understands by its export `inbound` (`IB-1`, `IB-2`).
    Inbound(Slot<Inbound>),
}

/// A watch on Kubernetes objects.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct Informer {
    /// Group and version of the kind.
    pub(in crate::manifest) api_version: Leaf<ApiVersion>,
    /// The kind.
    pub(in crate::manifest) kind: Leaf<KindName>,
    /// The cluster, of those in `clusters`, in which they are; without it, that of the controller (`IN-3`, `CU-4`).
    pub(in crate::manifest) cluster: MaybeLeaf<Name>,
    /// Where; without it, where the controller watches its primaries (`IN-1`).
    pub(in crate::manifest) namespaces: Maybe<Namespaces>,
    /// Only objects with these labels, as for `kubectl -l` (`IN-3`).
    #[schemars(title = "label selector")]
    pub(in crate::manifest) label_selector: Maybe<String>,
    /// Only objects with these values of fields, as for `kubectl --field-selector`. Which fields can select, the API server decides: of
    /// custom kinds name, namespace, and what their definition names (`IN-3`).
    pub(in crate::manifest) field_selector: MaybeLeaf<FieldSelector>,
    /// Only objects whose uid or namespace has a hash in these ranges, so that several daemons can share them (`IN-3`).
    pub(in crate::manifest) shard_selector: MaybeLeaf<Shard>,
    /// How many objects an API server without streaming lists is asked for at once. Of those who share an informer the largest holds
    /// (`IN-3`).
    #[schemars(extend("default" = 500))]
    pub(in crate::manifest) page_size: MaybeLeaf<Objects>,
    /// Keep only these fields of objects in memory, by JSON pointers, or with `metadata` none beside the metadata, of which the API server then
    /// sends no more. What identifies an object, its labels and owner references are always kept, annotations only if they are named
    /// (`BC-2`).
    pub(in crate::manifest) keep: Maybe<Kept>,
    /// Keep all fields of objects but these. Of the metadata, only annotations can be left out; not together with `keep` (`BC-2`).
    pub(in crate::manifest) drop: Maybe<Vec<Leaf<Pointer>>>,
    /// Keep objects packed in memory, where that makes them smaller: some 200 bytes of 3 KB where they are much alike, and each read unpacks
    /// what it reads. One watch packs for all who share it, if one of them says so (`BC-4`).
    #[schemars(extend("default" = false))]
    pub(in crate::manifest) packed: Maybe<bool>,
    /// Whether others that watch the same, with the same selectors, share its informer. With `false` it has one of its own: one more watch
    /// and one more copy in memory, with which nobody else has to do (`PO-4`).
    #[schemars(extend("default" = true))]
    pub(in crate::manifest) shared: Maybe<bool>,
    /// Whether it is listed before others when the controller starts: those with the lowest number first, and what has none, the primaries
    /// among it, after all of them, all at once. `cacheSyncTimeout` counts for each number anew (`ES-2`).
    pub(in crate::manifest) start_priority: MaybeLeaf<Priority>,
    /// Keep only so many objects whole, those that came or were read last. Of the others only what says which they are and how they are found
    /// stays; who reads one asks the API server for it, as one of the requests that a run may make (`BC-1`).
    pub(in crate::manifest) bounded: Maybe<CacheBound>,
    /// How the primaries of an object are found (`IM-1`, `IM-2`).
    #[schemars(extend("default" = "ownerReference"))]
    pub(in crate::manifest) mapper: Maybe<Mapper>,
    /// How the objects of a primary are found, if that does not follow from `mapper`; only together with one (`IM-4`).
    pub(in crate::manifest) secondaries: Maybe<Secondaries>,
    /// Whether `mapper` by `pointer`, `cel`, `export` or `index`, and `secondaries`, may lead from one namespace into another. Whoever may
    /// write such an object anywhere can then attach it to any primary, and wake that.
    #[schemars(extend("default" = false))]
    pub(in crate::manifest) across_namespaces: Maybe<bool>,
    /// Which changes of an object make its primaries run (`IS-1`).
    #[schemars(extend("default" = {}))]
    pub(in crate::manifest) filters: Maybe<Filters>,
    /// Indexes over the objects, by name (`IX-1`). An object has at most 32 keys in each, and one more for each 64 bytes of it.
    #[schemars(extend("default" = {}, "maxProperties" = 32))]
    pub(in crate::manifest) indexes: Maybe<Named<Index>>,
}

/// How many objects of a source, or primaries, are kept whole.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct CacheBound {
    /// The most objects (`BC-1`).
    #[schemars(extend("default" = 1000))]
    pub(in crate::manifest) objects: MaybeLeaf<Objects>,
    /// The most memory of all of them (`BC-1`).
    #[schemars(extend("default" = "8Mi"))]
    pub(in crate::manifest) bytes: MaybeLeaf<Bytes>,
    /// They are forgotten when they have not been read for so long; without it, never for that (`BC-1`).
    pub(in crate::manifest) unused: MaybeLeaf<Time>,
}

/// How the primaries of an object are found.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::manifest) enum Mapper {
    /// By owner references (`IM-1`).
    OwnerReference,
    /// By owner references of the primary's kind, whatever their group: for objects that carry those of a former one (`IM-2`).
    OwnerKind,
    /// By annotations that name the primary (`IM-2`).
    Annotations(Slot<MappingKeys>),
    /// By labels that name the primary (`IM-2`).
    Labels(Slot<MappingKeys>),
    /// By a text, or a list of texts, in the object: the names of primaries, as `name` or `namespace/name` (`IM-2`).
    Pointer(Leaf<Pointer>),
    /// The same by a CEL expression over `object` (`IM-3`).
    Cel(Slot<String>),
    /// By the component, with its export `mapper` (`IM-3`).
    Export(Leaf<Export>),
    /// By an index of the primaries, which say there what they refer to (`IX-2`).
    Index(Slot<IndexMapper>),
}

/// An index of the primaries in which objects are looked up.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct IndexMapper {
    /// Its name in `indexes` of the controller (`IX-2`).
    pub(in crate::manifest) name: Leaf<Name>,
    /// The key, or keys, under which the primaries of an object are in it (`IX-2`).
    #[schemars(extend("default" = { "pointer": "/metadata/name" }))]
    pub(in crate::manifest) key: Maybe<Index>,
}

/// How the objects of a primary are found.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::manifest) enum Secondaries {
    /// By a text, or a list of texts, in the primary: their names, as `name` or `namespace/name` (`IM-4`).
    Pointer(Leaf<Pointer>),
    /// The same by a CEL expression over `primary` (`IM-4`).
    Cel(Slot<String>),
    /// By the component, with its export `secondary-mapper` (`IM-4`).
    Export(Leaf<Export>),
}

/// The keys of annotations or labels that name a primary.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifest) struct MappingKeys {
    /// The key that holds the primary's name (`IM-2`).
    #[schemars(extend("default" = "capstan.dev/primary-name"))]
    pub(in crate::manifest) name: MaybeLeaf<Key>,
    /// The key that holds its namespace; `none` if it is always that of the object (`IM-2`).
    #[schemars(extend("default" = "capstan.dev/primary-namespace"))]
    pub(in crate::manifest) namespace: Maybe<OrWord<Nothing, Scalar<Key>>>,
    /// The key that holds its kind as `group/version/Kind`; `none` if it is not looked at (`IM-2`).
    #[schemars(extend("default" = "capstan.dev/primary-type"))]
    pub(in crate::manifest) kind: Maybe<OrWord<Nothing, Scalar<Key>>>,
    /// Whether an object in one namespace may name a primary in another. Whoever may write such an object anywhere can then
    /// attach it to any primary, and wake that.
    #[schemars(extend("default" = false))]
    pub(in crate::manifest) across_namespaces: Maybe<bool>,
}

/// The key under which objects are found.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::manifest) enum Index {
    /// A JSON pointer to a text, or a list of texts (`IX-1`).
    Pointer(Leaf<Pointer>),
    /// A CEL expression over `object` for a text, or a list of texts (`IX-1`).
    Cel(Slot<String>),
}
