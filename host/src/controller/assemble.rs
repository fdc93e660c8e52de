//! Assembles what the runs of a controller need.

use std::sync::Arc;

use capstan_core::conditions::Possible;
use capstan_core::manifest;
use capstan_core::permission::Permissions;
use capstan_core::queue::Queue;
use capstan_core::reconciler::verdicts::Verdicts;
use capstan_core::reconciler::{self, Controller, Elsewhere};
use capstan_core::source::Listener;
use capstan_core::source::registered::Registered;
use prometheus_client::metrics::counter::Counter;
use serde_json::{Value, json};

use super::declared::{Declared, Environment};
use super::sources::Sources;
use crate::client::recorder::Origin;
use crate::client::{Access, ApiServer, Identity};

/// The state that stays from one version of a controller to the next.
pub(super) struct Kept {
    pub(super) tell: Listener,
    pub(super) queue: Queue,
    pub(super) verdicts: Arc<Verdicts>,
    pub(super) edition: u64,
    pub(super) registered: Arc<Registered>,
    pub(super) conditions: Arc<Possible>,
}

/// Warns of primaries that carry a finalizer which versions before the daemon's start used.
pub(super) fn warn_of_unused(controller: &Controller) {
    let (finalizer, heeded) = (&controller.finalizer, controller.finalizers());
    if controller.spec.all_events() || heeded.own.is_some() || heeded.former.contains(finalizer) {
        return;
    }
    let primaries = controller.primaries.carrying(finalizer);
    if primaries > 0 {
        tracing::warn!(%finalizer, primaries, "primaries carry a finalizer that this version does not use: they can't be deleted until `finalizers: {{ formerly: [...] }}` names it");
    }
}

/// Warns of objects that a version before has made, and this one knows nothing of.
pub(super) fn warn_of_abandoned(before: &Controller, now: &Controller) {
    let names: Vec<_> = before.spec.abandoned_by(&now.spec).map(|name| &**name).collect();
    if !names.is_empty() && !now.primaries.list(None).is_empty() {
        let dependents = names.join(", ");
        tracing::warn!(controller = %now.spec.name, %dependents, "the manifest does not have these dependents any more: the objects that were made for them stay as they are; delete them by hand, or have a version with `reconcilePrecondition: {{ cel: \"false\" }}` for each delete them first");
    }
}

/// Assembles what the runs need.
///
/// # Errors
/// Those of [`check`].
pub(super) fn assemble(declared: &Declared, environment: &Environment, sources: Sources, kept: Kept) -> Controller {
    let Kept { tell, queue, verdicts, edition, registered, conditions } = kept;
    let Sources { primaries, secondaries, externals, finalizer, on_demand, .. } = sources;
    let Declared { operator, spec, plugin, guest, .. } = declared;
    let counters = environment.metrics.plugins.of(operator, &spec.plugin);
    let per_second = plugin.limits.requests_per_second.min(environment.requests_per_second);
    let unit = (operator, &spec.plugin);
    let who = declared.who(environment);
    let account: Arc<str> = format!("operator {operator}").into();
    let within = declared.within_ceiling(environment);
    let access = |api: &Arc<ApiServer>, who| {
        Access::new(Arc::clone(api), who).counting_for(Arc::clone(&account)).within(within.clone())
    };
    let metered = |api: &Arc<ApiServer>, who: Identity| {
        let api = access(api, who);
        environment.meters.api_of(unit, per_second, api, counters.clone())
    };
    let own = declared.site(environment).api;
    let cluster = metered(&own, who.clone());
    let elsewhere = declared.others.iter().map(|(name, other)| {
        let api = Arc::clone(&other.site.api);
        let cluster = Arc::new(metered(&api, Identity::Daemon));
        (Arc::clone(name), Elsewhere { cluster, away: Box::new(move || api.is_away()) })
    });
    let elsewhere = elsewhere.collect();
    Controller {
        operator: Arc::clone(operator),
        limits: plugin.limits.clone(),
        primaries,
        secondaries,
        externals,
        on_demand,
        registered,
        finalizer,
        guest: Arc::clone(guest),
        permissions: Permissions::new(spec, &plugin.capabilities, declared.home(environment)),
        cluster: Arc::new(cluster),
        elsewhere,
        tell,
        queue,
        verdicts,
        edition,
        settings: settings(spec, environment),
        holder: environment.holder.clone(),
        events: events(declared, environment, access(&own, who), counters.counts.dropped.clone()),
        conditions,
        spec: spec.clone(),
    }
}

/// Returns the function that publishes the Kubernetes Events of a controller.
fn events(declared: &Declared, environment: &Environment, api: Access, dropped: Counter) -> reconciler::Events {
    let Declared { operator, spec, .. } = declared;
    let of_other = spec.cluster.as_ref().and_then(|cluster| declared.others.get(cluster));
    let recorder = of_other.map_or(&environment.recorder, |other| &other.recorder).clone();
    let origin = Origin {
        api,
        plugin: format!("{operator}/{}", spec.plugin).into(),
        controller: Arc::clone(&spec.own_name),
        gvk: spec.primary.clone(),
        owner_reference: spec.events.owner_reference,
        dropped,
    };
    Box::new(move |primary, event, name| recorder.publish(&origin, primary, event, name))
}

/// Returns the answer of `context.settings`.
fn settings(spec: &manifest::Controller, environment: &Environment) -> Value {
    json!({
        "controller": spec.settings(),
        "daemon": {
            "identity": &*environment.identity,
            "namespace": &*environment.home.own,
            "version": env!("CARGO_PKG_VERSION"),
        },
    })
}
