//! Decides the objects of the cluster: the primaries, the dependents that they want, and the manifest about them.

use std::path::Path;
use std::time::Duration;

use capstan_core::manifest;
use model::Which;
use serde_json::{Value, json};

/// The kind of the primaries.
pub(crate) const THINGS: Which<'_> = Which { api_version: "sim.dev/v1", kind: "Thing" };

/// The kind of the objects that they want.
pub(crate) const MAPS: Which<'_> = Which { api_version: "v1", kind: "ConfigMap" };

/// The primaries that there may be, with their namespaces.
pub(crate) const NAMES: [(&str, &str); 4] = [("a", "one"), ("a", "two"), ("b", "one"), ("b", "three")];

/// A primary, as a number in [`NAMES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Thing(pub(crate) usize);

/// An object that a primary wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Dependent {
    /// Written by server-side apply.
    Applied,
    /// Written without server-side apply.
    Plain,
    /// Deleted by the daemon, if the primary is deleted or does not want it any more.
    Kept,
    /// The same, and before the one on which it depends, which is that one.
    Later,
    /// Left alone, if the primary does not want it.
    Active,
    /// In one version of the manifest only.
    More,
}

/// All dependents that the manifest has in the end.
pub(crate) const DEPENDENTS: [Dependent; 5] =
    [Dependent::Applied, Dependent::Plain, Dependent::Kept, Dependent::Later, Dependent::Active];

/// The settings that stay the same as long as a simulation lasts.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "one fact per field of the manifest")]
pub(crate) struct Setup {
    pub(crate) generation_aware: bool,
    pub(crate) server_side_apply: bool,
    pub(crate) cleaner: bool,
    /// True if owner references tie all dependents to their primaries.
    pub(crate) tied: bool,
    /// True if nothing follows a swap.
    pub(crate) quiet_swap: bool,
    /// True if the operator has an account of its own, whose rights are asked about.
    pub(crate) account: bool,
    /// True if expressions are asked about what changes.
    pub(crate) asks: bool,
    /// What the controller does if something can't be listed two seconds after its start; `None` if it waits for minutes.
    pub(crate) hurry: Option<OnStartError>,
    /// The most retries; `None` if there is no end.
    pub(crate) attempts: Option<u32>,
}

/// What the manifest says about a start without something that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnStartError {
    Wait,
    GoOn,
    Fail,
}

/// All of these.
pub(crate) const ON_START_ERROR: [OnStartError; 3] = [OnStartError::Wait, OnStartError::GoOn, OnStartError::Fail];

/// A version of the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// As it is at the beginning and in the end.
    Usual,
    /// With other settings.
    Settings,
    /// One namespace less.
    Fewer,
    /// All namespaces.
    All,
    /// One more source.
    Source,
    /// Another finalizer.
    Renamed,
    /// One more dependent.
    More,
    /// An interval, and a rate limit.
    Paced,
}

/// The interval of [`Variant::Paced`].
pub(crate) const INTERVAL: Duration = Duration::from_secs(20);

/// Its rate limit: this many runs of a primary in this time.
pub(crate) const RATE: (u32, Duration) = (2, Duration::from_secs(10));

/// The versions in which a run leads to the same.
pub(crate) const VARIANTS: [Variant; 5] =
    [Variant::Usual, Variant::Settings, Variant::Fewer, Variant::All, Variant::Source];

impl Setup {
    /// True if primaries have a finalizer.
    pub(crate) fn has_finalizer(self) -> bool {
        self.cleaner || !self.tied
    }
}

impl Variant {
    /// True if a namespace is watched.
    pub(crate) fn watches(self, namespace: &str) -> bool {
        self != Self::Fewer || namespace == "a"
    }

    /// True if a run does the same in both.
    pub(crate) fn runs_as(self, other: Self) -> bool {
        let run = |variant: Self| match variant {
            Self::Usual | Self::Fewer | Self::All => 0,
            Self::Settings => 1,
            Self::Source => 2,
            Self::Renamed => 3,
            Self::More => 4,
            Self::Paced => 5,
        };
        run(self) == run(other)
    }

    fn namespaces(self) -> &'static str {
        match self {
            Self::Usual | Self::Settings | Self::Source | Self::Renamed | Self::More | Self::Paced => "[a, b]",
            Self::Fewer => "[a]",
            Self::All => "all",
        }
    }

    fn sources(self) -> &'static str {
        match self {
            Self::Source => {
                "{ more: { informer: { apiVersion: v1, kind: ConfigMap, labelSelector: more=yes, mapper: ownerReference } } }"
            }
            Self::Usual | Self::Settings | Self::Fewer | Self::All | Self::Renamed | Self::More | Self::Paced => "{}",
        }
    }

    fn pace(self) -> String {
        if self != Self::Paced {
            return "maxReconciliationInterval: none".to_owned();
        }
        let (interval, (count, within)) = (INTERVAL.as_secs(), (RATE.0, RATE.1.as_secs()));
        format!(
            "maxReconciliationInterval: {interval}s
      rateLimit: {{ maxReconciliations: {count}, within: {within}s }}"
        )
    }

    fn finalizer(self) -> &'static str {
        if self == Self::Renamed { "sim.dev/renamed" } else { "sim.dev/finalizer" }
    }

    fn more(self, filters: &str) -> String {
        let more = format!("\n          more: {{ apiVersion: v1, kind: ConfigMap, filters: {filters} }}");
        if self == Self::More { more } else { String::new() }
    }
}

impl Thing {
    pub(crate) const ALL: [Self; NAMES.len()] = [Self(0), Self(1), Self(2), Self(3)];

    pub(crate) fn namespace(self) -> &'static str {
        NAMES[self.0].0
    }

    pub(crate) fn name(self) -> &'static str {
        NAMES[self.0].1
    }

    /// Returns all of them.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter()
    }

    /// Returns it as a user creates it.
    pub(crate) fn object(self, value: u64, extra: bool) -> Value {
        json!({
            "apiVersion": THINGS.api_version,
            "kind": THINGS.kind,
            "metadata": { "namespace": self.namespace(), "name": self.name(), "labels": { "watched": "yes" } },
            "spec": { "value": value, "extra": extra },
        })
    }
}

impl Dependent {
    /// Returns its name in the manifest.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Plain => "plain",
            Self::Kept => "kept",
            Self::Later => "later",
            Self::Active => "active",
            Self::More => "more",
        }
    }

    /// Returns the name of the object.
    pub(crate) fn object_name(self, primary: &str) -> String {
        format!("{primary}-{}", self.name())
    }

    /// Returns its desired state, which follows from the primary alone.
    pub(crate) fn desired(self, primary: &Value) -> Value {
        let name = primary["metadata"]["name"].as_str().unwrap_or_default();
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "namespace": primary["metadata"]["namespace"], "name": self.object_name(name) },
            "data": { "spec": primary["spec"].to_string() },
        })
    }

    /// True if a primary wants it.
    pub(crate) fn is_wanted(self, primary: &Value) -> bool {
        match self {
            Self::Applied | Self::Plain | Self::More => true,
            Self::Kept | Self::Later => primary["spec"]["extra"] == true,
            Self::Active => primary["spec"]["value"].as_u64().is_some_and(|value| value.is_multiple_of(2)),
        }
    }

    /// True if it is deleted if it is not wanted.
    pub(crate) fn is_deleted(self) -> bool {
        matches!(self, Self::Kept | Self::Later)
    }
}

/// Returns the definition of the primaries' kind.
pub(crate) fn definition() -> Value {
    let spec = json!({ "type": "object", "properties": {
        "value": { "type": "integer" }, "extra": { "type": "boolean" }, "poked": { "type": "integer" },
    } });
    let status = json!({ "type": "object", "properties": {
        "observedGeneration": { "type": "integer" }, "value": { "type": "integer" },
    } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "things.sim.dev" },
        "spec": {
            "group": "sim.dev",
            "names": { "kind": "Thing", "plural": "things", "singular": "thing" },
            "scope": "Namespaced",
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": spec, "status": status } } },
            }],
        },
    })
}

/// Returns the operator of the manifest.
pub(crate) fn operator(setup: Setup, variant: Variant) -> manifest::Operator {
    let Setup { generation_aware, server_side_apply, quiet_swap, account, tied, asks, hurry, attempts, .. } = setup;
    let attempts = attempts.map_or_else(|| "unlimited".to_owned(), |attempts| attempts.to_string());
    let hurry = match hurry {
        None => "",
        Some(OnStartError::Wait) => "      cacheSyncTimeout: 2s\n      onStartError: wait\n",
        Some(OnStartError::GoOn) => "      cacheSyncTimeout: 2s\n      onStartError: goOn\n",
        Some(OnStartError::Fail) => "      cacheSyncTimeout: 2s\n      onStartError: fail\n",
    };
    let (namespaces, sources) = (variant.namespaces(), variant.sources());
    let config = if variant == Variant::Settings { "other" } else { "usual" };
    let swap = if quiet_swap { "nothing" } else { "reconcileAll" };
    let account = if account { "  serviceAccount: { name: sim, namespace: a }\n" } else { "" };
    let filters = if asks { "{ generic: { cel: has(object.metadata.name) } }" } else { "{}" };
    let (finalizer, more, pace) = (variant.finalizer(), variant.more(filters), variant.pace());
    let text = format!(
        "apiVersion: capstan.dev/v1alpha1
kind: Operator
metadata: {{ name: sim }}
spec:
{account}  plugins:
    sim:
      component: {{ path: sim.wasm }}
      onSwap: {swap}
      config: {{ mood: {config} }}
      capabilities:
        kubernetes:
          - {{ apiVersion: v1, kind: ConfigMap, verbs: [get, create, apply, update, patch, delete] }}
          - {{ apiVersion: sim.dev/v1, kind: Thing, verbs: [get, create, apply, update, patch, delete] }}
  controllers:
    things:
      plugin: sim
      primary: {{ apiVersion: sim.dev/v1, kind: Thing }}
      namespaces: {namespaces}
      labelSelector: watched=yes
      finalizer: {finalizer}
      finalizers: {{ formerly: [sim.dev/finalizer, sim.dev/renamed] }}
      generationAware: {generation_aware}
      serverSideApply: {server_side_apply}
      {pace}
      retry: {{ initialInterval: 1s, multiplier: 1.5, maxAttempts: {attempts}, maxInterval: 4s }}
{hurry}      filters: {filters}
      sources: {sources}
      workflow:
        dependents:
          applied: {{ apiVersion: v1, kind: ConfigMap, filters: {filters}, serverSideApply: true }}
          plain: {{ apiVersion: v1, kind: ConfigMap, filters: {filters}, dependsOn: [applied] }}
          kept: {{ apiVersion: v1, kind: ConfigMap, filters: {filters}, garbageCollected: {tied}, reconcilePrecondition: {{ cel: primary.spec.extra }} }}
          later: {{ apiVersion: v1, kind: ConfigMap, filters: {filters}, garbageCollected: {tied}, dependsOn: [kept], reconcilePrecondition: {{ cel: primary.spec.extra }} }}
          active: {{ apiVersion: v1, kind: ConfigMap, filters: {filters}, activation: {{ cel: primary.spec.value % 2 == 0 }} }}{more}
"
    );
    let operators = manifest::parse(&text, Path::new("sim.yaml"));
    operators.expect("the manifest is right").remove(0)
}
