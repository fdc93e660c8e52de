//! Decides what there is in the cluster: which primaries, what they want, and what the manifest says about them.

use std::path::Path;

use capstan_core::manifest;
use model::Which;
use serde_json::{Value, json};

/// The primaries.
pub(crate) const THINGS: Which<'_> = Which { api_version: "sim.dev/v1", kind: "Thing" };

/// What they want.
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
    /// Written otherwise.
    Plain,
    /// Deleted by the daemon, if the primary goes or does not want it any more.
    Kept,
}

/// All dependents.
pub(crate) const DEPENDENTS: [Dependent; 3] = [Dependent::Applied, Dependent::Plain, Dependent::Kept];

/// What stays the same as long as a simulation lasts.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "one fact per field of the manifest")]
pub(crate) struct Setup {
    pub(crate) generation_aware: bool,
    pub(crate) server_side_apply: bool,
    pub(crate) cleaner: bool,
    /// Nothing follows a swap.
    pub(crate) quiet_swap: bool,
    /// An account of its own, whose rights are asked about.
    pub(crate) account: bool,
}

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
    /// A source more.
    Source,
}

/// All versions.
pub(crate) const VARIANTS: [Variant; 5] =
    [Variant::Usual, Variant::Settings, Variant::Fewer, Variant::All, Variant::Source];

impl Variant {
    /// Whether it has a namespace watched.
    pub(crate) fn watches(self, namespace: &str) -> bool {
        self != Self::Fewer || namespace == "a"
    }

    fn namespaces(self) -> &'static str {
        match self {
            Self::Usual | Self::Settings | Self::Source => "[a, b]",
            Self::Fewer => "[a]",
            Self::All => "all",
        }
    }

    fn sources(self) -> &'static str {
        match self {
            Self::Source => {
                "{ more: { informer: { apiVersion: v1, kind: ConfigMap, labelSelector: more=yes, mapper: ownerReference } } }"
            }
            Self::Usual | Self::Settings | Self::Fewer | Self::All => "{}",
        }
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

    /// Returns it as somebody creates it.
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
        }
    }

    /// Returns the name of the object.
    pub(crate) fn object_name(self, primary: &str) -> String {
        format!("{primary}-{}", self.name())
    }

    /// Returns what it is to be: nothing but what the primary says decides.
    pub(crate) fn desired(self, primary: &Value) -> Value {
        let name = primary["metadata"]["name"].as_str().unwrap_or_default();
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "namespace": primary["metadata"]["namespace"], "name": self.object_name(name) },
            "data": { "spec": primary["spec"].to_string() },
        })
    }

    /// Whether a primary wants it.
    pub(crate) fn is_wanted(self, primary: &Value) -> bool {
        match self {
            Self::Applied | Self::Plain => true,
            Self::Kept => primary["spec"]["extra"] == true,
        }
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

/// Returns what the manifest says.
pub(crate) fn operator(setup: Setup, variant: Variant) -> manifest::Operator {
    let Setup { generation_aware, server_side_apply, quiet_swap, account, .. } = setup;
    let (namespaces, sources) = (variant.namespaces(), variant.sources());
    let config = if variant == Variant::Settings { "other" } else { "usual" };
    let swap = if quiet_swap { "nothing" } else { "reconcileAll" };
    let account = if account { "  serviceAccount: { name: sim, namespace: a }\n" } else { "" };
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
      finalizer: sim.dev/finalizer
      generationAware: {generation_aware}
      serverSideApply: {server_side_apply}
      maxReconciliationInterval: none
      retry: {{ initialInterval: 1s, multiplier: 1.5, maxAttempts: unlimited, maxInterval: 4s }}
      sources: {sources}
      workflow:
        dependents:
          applied: {{ apiVersion: v1, kind: ConfigMap, serverSideApply: true }}
          plain: {{ apiVersion: v1, kind: ConfigMap, dependsOn: [applied] }}
          kept: {{ apiVersion: v1, kind: ConfigMap, garbageCollected: false, reconcilePrecondition: {{ cel: primary.spec.extra }} }}
"
    );
    let operators = manifest::parse(&text, Path::new("sim.yaml"));
    operators.expect("the manifest is right").remove(0)
}
