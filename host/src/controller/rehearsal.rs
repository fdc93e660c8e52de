//! Plays a primary's runs without a cluster: the daemon's own core and the component, upon objects in memory, until nothing changes any more.

#![expect(
    clippy::indexing_slicing,
    reason = "a JSON value that is not there is null, and what is written to has been read as an object"
)]

mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use capstan_core::cache::{Event as Seen, Writer};
use capstan_core::conditions::Possible;
use capstan_core::dependent::ownership::{MARK, Mark};
use capstan_core::guest::{Guest, Interface};
use capstan_core::manifest::needs::{Need, needs};
use capstan_core::manifest::{self, Capabilities, Limits, Mapper, Operator, Secondaries};
use capstan_core::object::labels::Selector;
use capstan_core::object::{Gvk, Object, ObjectRef, Scope, Version};
use capstan_core::permission::{Home, Permissions};
use capstan_core::queue::{Event, Mode, Next, Policy, Queue};
use capstan_core::reconciler::verdicts::Verdicts;
use capstan_core::reconciler::{self, Controller, Ended};
use capstan_core::schema::{Definition, Nulls};
use capstan_core::source::registered::Registered;
use capstan_core::source::{Source, callback::Faults};
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::declared::{KindAt, Kinds, finalizer_name};
use super::plan::{Plan, Planned};
use super::sources::{Joined, Sources};
use crate::client::Kind;
use server::{NOW, Server};
pub use server::{Written, admit};

/// The most runs. What has not come to rest by then changes something in every run.
pub const MOST_RUNS: u32 = 10;

/// The namespace of what names none.
const NAMESPACE: &str = "default";

/// The uid of a primary that names none.
const UID: &str = "00000000-0000-0000-0000-000000000000";

/// What is played.
pub struct Scene<'a> {
    /// The operator.
    pub operator: &'a Operator,
    /// Its controller.
    pub spec: &'a manifest::Controller,
    /// The plugin of that.
    pub guest: Arc<dyn Guest>,
    /// The primary.
    pub primary: Value,
    /// What else there is: each with its kind.
    pub world: Vec<(Gvk, Value)>,
    /// The definitions of custom kinds, as far as they are known.
    pub definitions: Arc<[Definition]>,
}

/// What has come of it.
#[derive(Debug)]
pub struct Played {
    /// The number of runs.
    pub runs: u32,
    /// How many of them have only asked for writes that were refused.
    pub refused: u32,
    /// Whether the last of them has changed nothing any more, or there is nothing left to run for.
    pub at_rest: bool,
    /// The text of the failure of the last run.
    pub failure: Option<String>,
    /// When the primary runs again although nothing happens, as its last run asks.
    pub again: Option<Duration>,
    /// What was written, in order.
    pub writes: Vec<Written>,
    /// The Kubernetes Events, in order.
    pub events: Vec<Told>,
    /// The primary afterwards; null if it has gone.
    pub primary: Value,
    /// What else there is to know, in sentences.
    pub notes: Vec<String>,
}

/// A Kubernetes Event: type, reason and text.
type Told = (&'static str, String, String);

/// The caches of one source, by place.
struct Fed {
    source: Arc<Source>,
    labels: Option<Selector>,
    places: Vec<(Option<Arc<str>>, Writer)>,
}

/// Plays a scene.
///
/// # Errors
/// If the controller has what is not played, or an object is none.
pub async fn play(scene: Scene<'_>) -> anyhow::Result<Played> {
    refuse(&scene)?;
    let server = Arc::new(Server::new(Arc::clone(&scene.definitions)));
    let key = set(&server, &scene)?;
    let events = Arc::<Mutex<Vec<_>>>::default();
    let (controller, mut fed) = assemble(&scene, &server, Arc::clone(&events))?;
    let controller = Arc::new(controller);
    let mut played = Played {
        runs: 0,
        refused: 0,
        at_rest: false,
        failure: None,
        again: None,
        writes: vec![],
        events: vec![],
        primary: Value::Null,
        notes: unfound(&scene, &controller, (&server, &key))?,
    };
    let now: Timestamp = NOW.parse().context("the time of day")?;
    while played.runs < MOST_RUNS {
        played.runs += 1;
        let (before, deleting) = (server.writes().len(), is_deleting(&server, scene.spec, &key));
        controller.queue.event(&key, Event::PrimaryChanged { deleting }, Instant::now());
        let mut ticket = controller.queue.next().await.context("the queue has ended")?;
        let Ended { finished, error, .. } = reconciler::execute(Arc::clone(&controller), &mut ticket, now).await;
        let settled = ticket.finish(finished, Instant::now());
        played.failure = error;
        played.again = if let Next::Again(after) = settled.next { Some(after) } else { None };
        feed(&server, &mut fed)?;
        let is_gone = server.tree(&scene.spec.primary, &key).is_none();
        let news = server.writes().split_off(before);
        played.refused += u32::from(!news.is_empty() && news.iter().all(|write| write.refused.is_some()));
        // Others may hold it for longer.
        let is_let_go = matches!(settled.next, Next::AwaitDeletion);
        played.at_rest = is_gone || is_let_go || news.is_empty();
        if played.failure.is_some() || played.at_rest {
            break;
        }
    }
    played.writes = server.writes();
    played.events = std::mem::take(&mut events.lock());
    played.primary = server.tree(&scene.spec.primary, &key).unwrap_or_default();
    Ok(played)
}

/// Tells of objects that bear the mark of one of the primary's dependents, and are not found for it: they are left alone.
fn unfound(
    Scene { spec, .. }: &Scene<'_>,
    controller: &Controller,
    (server, key): (&Server, &ObjectRef),
) -> anyhow::Result<Vec<String>> {
    let mut told = Vec::new();
    for (name, dependent) in spec.dependents() {
        let Some(source) = controller.secondaries.get(name) else { continue };
        for object in server.list(&dependent.gvk)? {
            let is_meant = |mark: &Mark| mark.dependent == **name && mark.primary.name == *key.name;
            let by = Mark::of(&object).filter(is_meant).and_then(|_| source.unfound(&object, key));
            told.extend(by.map(|by| {
                format!(
                    "{} {} has the annotation {MARK} of dependent {name}, which does not find it, and leaves it alone: it is found by {by}",
                    dependent.gvk,
                    object.key()
                )
            }));
        }
    }
    Ok(told)
}

/// Returns the finalizers by which a controller learns that a primary is deleted, its own first; none if it needs none, or leaves them to its component.
pub fn held_by(Scene { spec, guest, definitions, .. }: &Scene<'_>) -> Vec<Arc<str>> {
    if spec.all_events() || !needs_finalizer(spec, &**guest) {
        return vec![];
    }
    let kinds = kinds(spec, &Server::new(Arc::clone(definitions)));
    let own = finalizer_name(spec, kinds.get(&KindAt::of_primaries(spec)));
    [own].into_iter().chain(spec.former_finalizers.iter().cloned()).collect()
}

fn needs_finalizer(spec: &manifest::Controller, guest: &dyn Guest) -> bool {
    spec.deletes_dependents() || guest.exports(Interface::Cleaner)
}

/// Refuses a controller with what would have to come from outside.
fn refuse(Scene { operator, spec, world, .. }: &Scene<'_>) -> anyhow::Result<()> {
    if let Some((name, _)) = spec.sources.iter().find(|(_, source)| source.cluster.is_some()) {
        anyhow::bail!("controller {}: source {name} is in another cluster, which is not played", spec.name);
    }
    let is_there = |source: &manifest::Source| world.iter().any(|(gvk, _)| *gvk == source.gvk);
    if let Some((name, source)) = spec.sources.iter().find(|(_, source)| asks(source) && is_there(source)) {
        anyhow::bail!(
            "controller {}: source {name} asks the component whose objects are whose, which is not played, so it shows none: leave each {} out of world.yaml",
            spec.name,
            source.gvk.kind
        );
    }
    if let Some(name) = spec.externals.keys().next() {
        anyhow::bail!("controller {}: source {name} is outside of the cluster, which is not played", spec.name);
    }
    anyhow::ensure!(spec.cluster.is_none(), "controller {}: it is in another cluster, which is not played", spec.name);
    let filters = |need: &Need| need.interface == Interface::Filter && need.controller == spec.own_name;
    anyhow::ensure!(
        !needs(operator, &spec.plugin).iter().any(filters),
        "controller {}: its component filters changes, which is not played",
        spec.name
    );
    Ok(())
}

/// Returns true if a source asks the component whose its objects are: it shows none here.
fn asks(source: &manifest::Source) -> bool {
    matches!(source.mapper, Mapper::Export(_)) || matches!(source.secondaries, Some(Secondaries::Export(_)))
}

/// Puts everything there; returns the primary's name.
fn set(server: &Server, scene: &Scene<'_>) -> anyhow::Result<ObjectRef> {
    let Scene { spec, primary, world, .. } = scene;
    let mut primary = primary.clone();
    drop(admit(&scene.definitions, &spec.primary, &mut primary, Nulls::LeftOut)?);
    complete(server.place(&spec.primary), &mut primary).context("the primary")?;
    let metadata = primary["metadata"].as_object_mut().context("the primary has no metadata")?;
    metadata.entry("uid").or_insert_with(|| UID.into());
    let uid = metadata.get("uid").cloned().unwrap_or_default();
    let put = server.put(&spec.primary, primary, None).context("the primary")?;
    for (gvk, object) in world {
        let mut object = object.clone();
        drop(admit(&scene.definitions, gvk, &mut object, Nulls::LeftOut)?);
        complete(server.place(gvk), &mut object).with_context(|| format!("a {}", gvk.kind))?;
        let mut is_ours = false;
        let owners = object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut);
        for owner in owners.into_iter().flatten().filter_map(Value::as_object_mut) {
            let is = |field: &str, wanted: &str| owner.get(field).is_some_and(|found| found == wanted);
            if is("kind", &spec.primary.kind) && is("name", &put.key().name) {
                owner.insert("uid".to_owned(), uid.clone());
                for field in ["controller", "blockOwnerDeletion"] {
                    owner.entry(field).or_insert_with(|| false.into());
                }
                is_ours = true;
            }
        }
        server.put(gvk, object, is_ours.then_some(&*spec.field_manager)).with_context(|| format!("a {}", gvk.kind))?;
    }
    Ok(put.key().clone())
}

/// Gives an object its namespace, if its kind has one and it names none.
fn complete(scope: Scope, object: &mut Value) -> anyhow::Result<()> {
    let metadata = object["metadata"].as_object_mut().context("there is no metadata")?;
    if metadata.get("namespace").is_some_and(|said| said.is_null() || said == "") {
        metadata.remove("namespace");
    }
    match scope {
        Scope::Namespaced => drop(metadata.entry("namespace").or_insert_with(|| NAMESPACE.into())),
        Scope::Cluster => anyhow::ensure!(
            !metadata.contains_key("namespace"),
            "found metadata.namespace; its kind lives in no namespace: leave it out"
        ),
    }
    Ok(())
}

fn is_deleting(server: &Server, spec: &manifest::Controller, key: &ObjectRef) -> bool {
    server.tree(&spec.primary, key).is_some_and(|tree| !tree["metadata"]["deletionTimestamp"].is_null())
}

/// Returns the controller, as the daemon would have it, and what its caches are fed by.
fn assemble(
    scene: &Scene<'_>,
    server: &Arc<Server>,
    events: Arc<Mutex<Vec<Told>>>,
) -> anyhow::Result<(Controller, Vec<Fed>)> {
    let Scene { operator, spec, guest, .. } = scene;
    let kinds = kinds(spec, server);
    let finalizer = finalizer_name(spec, kinds.get(&KindAt::of_primaries(spec)));
    let used = needs_finalizer(spec, &**guest).then(|| Arc::clone(&finalizer));
    let home = Home { own: NAMESPACE.into(), closed: None };
    let faults = Arc::new(Faults::new(&spec.name, |_| {}));
    let plan = Plan::new(spec, used, (&kinds, &BTreeMap::new()), &home, &faults);
    let sources = Sources::planned(&plan, finalizer, None, &Joined::default(), &**guest);
    let mut fed = fed(&plan, &sources)?;
    // What dependents make of the kind of such a source is none of its.
    let silent: Vec<_> = spec.sources.iter().filter(|(_, source)| asks(source)).map(|(name, _)| name).collect();
    fed.retain(|fed| {
        !silent.iter().any(|name| sources.secondaries.get(*name).is_some_and(|one| Arc::ptr_eq(one, &fed.source)))
    });
    feed(server, &mut fed)?;
    let plugin = operator.plugins.get(&spec.plugin);
    let queue = Queue::new(policy(spec));
    queue.start(Instant::now());
    let conditions = Arc::new(Possible::default());
    conditions.learn(true);
    let controller = Controller {
        operator: Arc::clone(&operator.name),
        limits: plugin.map_or_else(Limits::default, |plugin| plugin.limits.clone()),
        primaries: sources.primaries,
        secondaries: sources.secondaries,
        externals: sources.externals,
        on_demand: Arc::default(),
        registered: Registered::none(),
        finalizer: sources.finalizer,
        guest: Arc::clone(guest),
        permissions: Permissions::new(
            spec,
            plugin.map_or(&Capabilities::default(), |plugin| &plugin.capabilities),
            home,
        ),
        cluster: Arc::clone(server) as Arc<_>,
        elsewhere: BTreeMap::new(),
        tell: Arc::new(|_| {}),
        queue,
        verdicts: Arc::new(Verdicts::default()),
        edition: 1,
        settings: json!({
            "controller": spec.settings(),
            "daemon": { "identity": "capstan test", "namespace": NAMESPACE, "version": env!("CARGO_PKG_VERSION") },
        }),
        holder: None,
        events: Box::new(move |_, event, _| {
            let sort = if event.warning { "Warning" } else { "Normal" };
            events.lock().push((sort, event.reason, event.message));
        }),
        conditions,
        spec: (*spec).clone(),
    };
    Ok((controller, fed))
}

fn policy(spec: &manifest::Controller) -> Policy {
    let mode = if spec.all_events() { Mode::AllEvents } else { Mode::Normal };
    Policy { retry: spec.retry.clone(), retry_by: spec.retry_by.clone(), mode, ..Policy::default() }
}

/// Returns the kinds that a controller needs, as discovery would know them.
fn kinds(spec: &manifest::Controller, server: &Server) -> Kinds {
    let sources = spec.sources.values().map(|source| &source.gvk);
    let dependents = spec.dependents().map(|(_, dependent)| &dependent.gvk);
    let all: BTreeSet<&Gvk> = sources.chain(dependents).chain([&spec.primary]).collect();
    let kind = |gvk: &Gvk| Kind { gvk: gvk.clone(), plural: server.plural(gvk).into(), scope: server.place(gvk) };
    all.into_iter().map(|gvk| (KindAt { cluster: None, gvk: gvk.clone() }, kind(gvk))).collect()
}

/// Returns an empty cache for each place that a source of the plan watches.
fn fed(plan: &Plan, sources: &Sources) -> anyhow::Result<Vec<Fed>> {
    let named = plan.secondaries.iter().filter_map(|(name, planned)| Some((sources.secondaries.get(name)?, planned)));
    let all = named.chain([(&sources.primaries, &plan.primaries)]);
    let fed = all.map(|(source, planned): (&Arc<Source>, &Planned)| {
        let labels = planned.selectors().and_then(|selectors| selectors.labels.as_deref());
        let places = planned.scopes.iter().map(|(scope, _)| {
            let mut writer = Writer::default();
            writer.start_list();
            drop(writer.finish_list(Version(0)));
            source.attach(scope.namespace.as_deref(), writer.cache());
            (scope.namespace.clone(), writer)
        });
        Ok(Fed {
            source: Arc::clone(source),
            labels: labels.map(Selector::parse).transpose()?,
            places: places.collect(),
        })
    });
    fed.collect()
}

/// Has the caches see what there is now.
fn feed(server: &Server, fed: &mut [Fed]) -> anyhow::Result<()> {
    for Fed { source, labels, places } in fed {
        let there = server.list(&source.spec().gvk)?;
        for (namespace, writer) in places {
            let is_here = |object: &&Object| namespace.is_none() || object.key().namespace == *namespace;
            let here: Vec<&Object> =
                there.iter().filter(is_here).filter(|object| is_selected(labels.as_ref(), object)).collect();
            let gone = writer.cache().list().into_iter().filter(|old| !here.iter().any(|now| now.key() == old.key()));
            let gone: Vec<_> = gone.map(Seen::Deleted).collect();
            let news = here.into_iter().cloned().map(Seen::Applied).chain(gone);
            for change in news.filter_map(|event| writer.apply(event)) {
                // Which primaries are concerned does not matter: there is one.
                drop(source.on(change));
            }
        }
    }
    Ok(())
}

fn is_selected(labels: Option<&Selector>, object: &Object) -> bool {
    let Some(labels) = labels else { return true };
    let tree: Value = serde_json::from_str(object.json()).unwrap_or_default();
    labels.matches(|key| tree["metadata"]["labels"][key].as_str())
}
