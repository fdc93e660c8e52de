//! Puts together what the runs of a controller need.

use std::collections::BTreeMap;
use std::sync::Arc;

use capstan_core::manifest;
use capstan_core::permission::Permissions;
use capstan_core::queue::Queue;
use capstan_core::reconciler::flow::{self, Flow};
use capstan_core::reconciler::memory::Memory;
use capstan_core::reconciler::{self, Controller};
use capstan_core::source::Listener;
use prometheus_client::metrics::counter::Counter;
use serde_json::{Value, json};

use super::declared::{Declared, Neighbours};
use super::sources::Sources;
use crate::client::recorder::Origin;
use crate::client::{Access, Identity};

/// Checks the workflows of a controller once more.
///
/// # Errors
/// If one of them is none, for instance because it has a circle.
pub fn check(spec: &manifest::Controller) -> Result<(), flow::Error> {
    Flows::new(spec).map(drop)
}

/// What stays from one version of a controller to the next.
pub(super) struct Kept {
    pub(super) tell: Listener,
    pub(super) queue: Queue,
    pub(super) memory: Arc<Memory>,
    pub(super) edition: u64,
}

/// The workflows of a controller.
struct Flows {
    managed: Flow,
    standalone: BTreeMap<Arc<str>, Flow>,
}

impl Flows {
    fn new(spec: &manifest::Controller) -> Result<Self, flow::Error> {
        let standalone = spec.standalone.iter().map(|(name, workflow)| Ok((Arc::clone(name), Flow::new(workflow)?)));
        Ok(Self { managed: Flow::new(&spec.workflow)?, standalone: standalone.collect::<Result<_, flow::Error>>()? })
    }
}

/// Warns of primaries that carry a finalizer which versions before the daemon's start used.
pub(super) fn warn_of_unused(controller: &Controller) {
    let (finalizer, heeded) = (&controller.finalizer, controller.finalizers());
    if heeded.own.is_some() || heeded.former.contains(finalizer) {
        return;
    }
    let primaries = controller.primaries.carrying(finalizer);
    if primaries > 0 {
        tracing::warn!(%finalizer, primaries, "primaries carry a finalizer that this version does not use: they can't be deleted until `finalizers: {{ formerly: [...] }}` names it");
    }
}

/// Puts together what the runs need.
///
/// # Errors
/// Those of [`check`].
pub(super) fn assemble(
    declared: &Declared,
    neighbours: &Neighbours,
    sources: Sources,
    kept: Kept,
) -> Result<Controller, flow::Error> {
    let Kept { tell, queue, memory, edition } = kept;
    let Sources { primaries, secondaries, finalizer } = sources;
    let Declared { operator, spec, plugin, guest, .. } = declared;
    let counters = neighbours.metrics.plugins.of(operator, &spec.plugin);
    let per_second = plugin.limits.requests_per_second.min(neighbours.requests_per_second);
    let unit = (operator, &spec.plugin);
    let who = Identity::of(spec.service_account.as_ref(), &neighbours.home.own);
    let api = Access::new(Arc::clone(&neighbours.api), who.clone());
    let cluster = neighbours.meters.api_of(unit, per_second, api, counters.throttled);
    let flows = Flows::new(spec)?;
    Ok(Controller {
        operator: Arc::clone(operator),
        limits: plugin.limits.clone(),
        primaries,
        secondaries,
        workflow: flows.managed,
        standalone: flows.standalone,
        finalizer,
        guest: Arc::clone(guest),
        permissions: Permissions::new(spec, &plugin.capabilities, neighbours.home.clone()),
        cluster: Arc::new(cluster),
        tell,
        queue,
        memory,
        edition,
        settings: settings(spec, neighbours),
        events: events(declared, neighbours, who, counters.dropped),
        spec: spec.clone(),
    })
}

/// Returns what takes the Kubernetes Events of a controller.
fn events(declared: &Declared, neighbours: &Neighbours, who: Identity, dropped: Counter) -> reconciler::Events {
    let Declared { operator, spec, .. } = declared;
    let recorder = neighbours.recorder.clone();
    let origin = Origin {
        who,
        plugin: format!("{operator}/{}", spec.plugin).into(),
        controller: Arc::clone(&spec.name),
        gvk: spec.primary.clone(),
        dropped,
    };
    Box::new(move |primary, event| recorder.publish(&origin, primary, event))
}

/// What `context.settings` answers.
fn settings(spec: &manifest::Controller, neighbours: &Neighbours) -> Value {
    json!({
        "controller": spec.settings(),
        "daemon": {
            "identity": &*neighbours.identity,
            "namespace": &*neighbours.home.own,
            "version": env!("CARGO_PKG_VERSION"),
        },
    })
}
