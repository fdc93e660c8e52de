//! The composition root: builds every part, hands each its environment, and spawns the tasks.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use capstan_core::health::DAEMON;
use capstan_core::object::Managers;
use capstan_core::permission::Home;
use capstan_core::room::Room;
use futures::FutureExt as _;
use http::Uri;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::admin::access::Gate;
use crate::admin::{Admin, Listeners, Pages};
use crate::cli::args;
use crate::client::meter::Meters;
use crate::client::{ApiServer, InForce, USER_AGENT, recorder};
use crate::clusters::{Clusters, Other, Own, Reach, Up};
use crate::control::{self, Control};
use crate::controller::Environment;
use crate::guard::Guard;
use crate::inbound::desk::Desk;
use crate::inbound::{self, Certificate, Port};
use crate::informer::pool::Pool;
use crate::informer::{Memory, State};
use crate::logging::Log;
use crate::metrics::Metrics;
use crate::operators::{self, Manifests, Read};
use crate::part::Part;
use crate::plugin::Outside;
use crate::readiness::{Matter, Unready};
use crate::supervisor::Supervisor;
use crate::supervisor::asking::Asking;
use crate::supervisor::disk::Disk;
use crate::supervisor::objects::approvals::Approvals;
use crate::supervisor::objects::ceilings::Followed;
use crate::supervisor::objects::telling::Teller;
use crate::supervisor::objects::{Objects, WithObjects};
use crate::supervisor::status::{self, Status};
use crate::supervisor::supply::Supply;
use crate::watchdog::named;
use crate::workers::{self, Workers};
use crate::{descriptors, kubeconfig, listen};

/// How long the last events and answers may take.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// How many of the objects that can't be read are named, for each informer.
const NAMED: usize = 20;

/// Where a pod finds the namespace that it is in.
const NAMESPACE_OF_POD: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// How long a connection to the API server may take to come about.
const CONNECT: Duration = Duration::from_secs(10);

/// Runs the daemon until it is told to stop.
///
/// # Errors
/// What keeps it from starting at all: no valid operator, no kubeconfig, an address that is taken.
pub async fn run(args: args::Run, log: Log) -> anyhow::Result<ExitCode> {
    let listener = listen::ahead(args.listen)?;
    run_with(args, log, (listener, None, |disk| Box::new(disk) as Box<dyn Supply>)).await
}

/// Runs the daemon with its probes at what listens already; for primaries that are held for it by this name, if it has one; with what a
/// function makes of the files as the supply of manifests and components.
///
/// # Errors
/// As for [`run`].
pub async fn run_with(
    args: args::Run,
    log: Log,
    (listener, holder, supply): (TcpListener, Option<Arc<str>>, impl FnOnce(Disk) -> Box<dyn Supply>),
) -> anyhow::Result<ExitCode> {
    descriptors::raise();
    let args = args.with_what_is_mounted();
    let stop = CancellationToken::new();
    let control = Control::start(control::Start {
        listener,
        drain: args.drain,
        stop: stop.clone(),
        exit: Box::new({
            let log = log.clone();
            move |code| control::exit(code, &log)
        }),
        log: log.clone(),
    });
    let control = control.await?;
    tracing::info!(address = %control.address(), "serving probes and metrics");
    serve(&args, stop, (&control, log), (holder, supply)).await?;
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::too_many_lines, reason = "wiring, in the order in which parts need each other")]
async fn serve(
    args: &args::Run,
    stop: CancellationToken,
    (control, log): (&Control, Log),
    (holder, supply): (Option<Arc<str>>, impl FnOnce(Disk) -> Box<dyn Supply>),
) -> anyhow::Result<()> {
    check(args)?;
    let listeners = Listeners::bind(&args.admin_addresses())?;
    let (client, namespace, server) = connect(args.kubeconfig.clone(), args.context.clone()).await?;
    let home = home(args, namespace);
    let gate = Gate::new(client.clone());
    let memory = Memory::new(args.cache_size, args.cache_memory());
    let transit = memory.transit(DAEMON.into());
    let api = Arc::new(ApiServer::new(client, Managers::default()).taking(transit));
    let metrics = Arc::new(Metrics::default());
    let (recorder, writer) = recorder::recorder(identity());
    let informers_stop = CancellationToken::new();
    let workers = Workers::start().context("start the threads of executions")?;
    let cpu = workers.cpu().clone();
    let port = inbound_port(args)?;
    let mut own = listeners.ports();
    own.extend(port.as_ref().map(Port::number));
    own.insert(control.address().port());
    let outside = Outside::new(own, Arc::clone(&metrics));
    let mut guard = Guard::new(&outside, &server);
    let again = guard.look().await;
    let _guard = AbortOnDropHandle::new(tokio::spawn(guard.keep(again)));
    let clusters = Clusters::new(Own {
        api: Arc::clone(&api),
        metrics: Arc::clone(&metrics),
        memory: memory.clone(),
        stop: informers_stop.clone(),
        namespace: Arc::clone(&home.own),
        reach: reach(&outside),
        identity: identity().into(),
    });
    let ceilings = args.ceilings.as_deref().map(|file| operators::ceilings_of_others(file, &home.own));
    let ceilings = ceilings.transpose()?.unwrap_or_default();
    let environment = Arc::new(Environment {
        pool: Pool::new(Arc::clone(&api), Arc::clone(&metrics), memory, informers_stop.clone()),
        clusters: Arc::new(clusters),
        api,
        metrics: Arc::clone(&metrics),
        recorder,
        home,
        meters: Meters::default(),
        requests_per_second: args.plugin_requests.get(),
        identity: identity().into(),
        drain: args.drain,
        workers,
        swapped: Notify::new(),
        holder,
        ceilings: Arc::new(InForce::new(ceilings)),
    });
    let images = operators::images(&args.source, outside.clone())?;
    let status = Arc::new(Status::pulling(images.clone()));
    let disk = Disk::new(&args.source, Room::new(args.plugin_memory()), outside, images.clone())?;
    let compiled = disk.compiled();
    let (supply, teller, asking) = with_objects(supply(disk), (args, &status), &environment).await?;
    let _teller =
        teller.map(|teller| AbortOnDropHandle::new(tokio::spawn(named("the status of operators", teller.run()))));
    let supervisor = Supervisor::new(supply, Arc::clone(&environment), Arc::clone(&status), stop.clone())
        .pulling(images)
        .asking(asking)
        .capped(args.plugin_concurrency());
    let desk = Desk::new(&status, supervisor.tokens(), &metrics, environment.workers.runtime());
    let requests = match port {
        Some(port) => port.serve(desk, supervisor.takes_requests(), stop.clone()).boxed(),
        None => inbound::tell(supervisor.takes_requests()).boxed(),
    };
    let _requests = AbortOnDropHandle::new(tokio::spawn(requests));
    let mut pages = pages(&status, &environment, log);
    let spent = Box::new(workers::Metrics(cpu));
    pages.registry.register_collector(spent);
    pages.registry.register_collector(Box::new(Up(Arc::clone(&environment.clusters))));
    let warnings = environment.api.warnings();
    pages.registry.register("api_server_warnings", "Warnings that the API server has sent with its answers", warnings);
    pages.registry.register(
        "components_compiled",
        "Components that were compiled, as no code of theirs was kept",
        compiled,
    );
    let pages = Admin::new(pages);
    if listeners.is_empty() {
        control.show(pages.router());
    }
    control.ask(question(&status, &environment));
    let server_stop = CancellationToken::new();
    let server = listeners.serve(pages, args.metrics_auth, gate, server_stop.clone());
    let server = tokio::spawn(server);
    let recorder_stop = CancellationToken::new();
    let recorder = tokio::spawn(named("Events", writer.run(recorder_stop.clone())));
    let back = || {
        for controller in status.controllers() {
            controller.resume();
        }
    };
    // Controllers end once their runs have drained; what they lean on ends after them.
    tokio::select! {
        () = named("the supervisor", supervisor.run()) => {}
        () = environment.api.listen(back) => {}
    }
    informers_stop.cancel();
    environment.pool.ended().await;
    let clusters = Arc::clone(&environment.clusters);
    drop((environment, status));
    server_stop.cancel();
    recorder_stop.cancel();
    // The events of the last runs are written; neither they nor a slow reader of a page hold the end up.
    let ended = tokio::time::timeout(LAST_WORDS, futures::future::join3(server, recorder, clusters.ended())).await;
    if ended.is_err() {
        tracing::warn!("events are not written, or pages not read; not waited for");
    }
    tracing::info!("stopped");
    Ok(())
}

/// Returns the supply with the operators of the cluster, if they are wanted, who says how they are, and who says whether versions are put in force.
async fn with_objects(
    supply: Box<dyn Supply>,
    (args, status): (&args::Run, &Arc<Status>),
    environment: &Environment,
) -> anyhow::Result<(Box<dyn Supply>, Option<Teller>, Asking)> {
    let Environment { pool, home, .. } = environment;
    let Some(args::Operators::Cluster) = args.operators else {
        return Ok((supply, None, if args.unasked { Asking::Nobody } else { Asking::Nowhere }));
    };
    let defaults = operators::defaults(args.source.defaults.as_deref())?;
    let in_force = &environment.ceilings;
    let followed = args.ceilings.as_ref().map(|file| Followed::new(file.clone(), &home.own, Arc::clone(in_force)));
    let mut objects = Objects::watch(pool, &home.own, defaults, (Arc::clone(in_force), followed));
    let teller = Teller::new(objects.known(), Arc::clone(status), environment);
    let floor = args.on_new_version.unwrap_or_default();
    let approvals = Approvals::new(pool, &home.own, objects.known(), floor);
    objects.listed().await;
    let supply = Box::new(WithObjects::new(supply, objects));
    Ok((supply, Some(teller), Asking::Of(Arc::new(approvals))))
}

/// Makes sure that there is something to run. What is wrong with some of the manifests only, the supervisor tells.
fn check(args::Run { source, operators: others, .. }: &args::Run) -> anyhow::Result<()> {
    let manifests = Manifests::new(&source.manifests, source.defaults.as_deref())?;
    if others.is_some() {
        operators::read_some(&manifests)?;
        return Ok(());
    }
    let Read { operators, problems } = operators::read(&manifests)?;
    let problems: Vec<_> = problems.into_iter().map(|(_, problem)| problem).collect();
    anyhow::ensure!(!operators.is_empty() || problems.is_empty(), "no manifest is valid:\n{}", problems.join("\n"));
    anyhow::ensure!(!operators.is_empty(), "the manifests declare no controller");
    Ok(())
}

/// Returns a client, the namespace that the daemon lives in, and where the API server is.
async fn connect(file: Option<PathBuf>, context: Option<String>) -> anyhow::Result<(kube::Client, String, Uri)> {
    let mut config = kubeconfig::find(file, context).await?;
    // A write that may or may not have happened is looked into by the next run, not sent again blindly.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    let namespace = config.default_namespace.clone();
    tracing::info!(server = %config.cluster_url, %namespace, agent = USER_AGENT, "using cluster");
    let server = config.cluster_url.clone();
    let client = kube::Client::try_from(config).context("make a client for the API server")?;
    Ok((client, namespace, server))
}

/// Returns where the daemon lives, which is told by the command line or by its pod. Elsewhere nothing of it is in the
/// cluster, and `own` is the namespace of the kubeconfig.
fn home(args: &args::Run, of_kubeconfig: String) -> Home {
    let of_pod = || {
        let text = std::fs::read_to_string(NAMESPACE_OF_POD).ok()?;
        Some(text.trim().to_owned()).filter(|name| !name.is_empty())
    };
    let lives_in = args.namespace.clone().or_else(of_pod).map(Arc::from);
    let own = args.namespace.clone().unwrap_or(of_kubeconfig).into();
    let closed = lives_in.filter(|_| !args.allow_own_namespace);
    if let Some(namespace) = &closed {
        tracing::info!(%namespace, "components can't reach the daemon's own namespace");
    }
    Home { own, closed }
}

/// Who the daemon is.
fn identity() -> String {
    let kernels = std::fs::read_to_string("/proc/sys/kernel/hostname");
    identity_of(&[std::env::var("HOSTNAME").ok(), kernels.ok()])
}

/// Returns the first of these names that says something (`LE-2`).
fn identity_of(names: &[Option<String>]) -> String {
    let mut said = names.iter().flatten().map(|name| name.trim()).filter(|name| !name.is_empty());
    said.next().unwrap_or("capstan").to_owned()
}

/// Returns what says which addresses the daemon reaches for kubeconfigs: no others than components do.
fn reach(outside: &Outside) -> Reach {
    let outside = outside.clone();
    Arc::new(move |entry, address| outside.check(entry, address))
}

/// Returns what lists what is not ready. An informer that fails is a matter of those who need it: if the API server is to
/// blame, that is told of by itself.
fn question(status: &Arc<Status>, environment: &Environment) -> control::Question {
    let (status, pool) = (Arc::clone(status), environment.pool.clone());
    let (api, clusters) = (Arc::clone(&environment.api), Arc::clone(&environment.clusters));
    Box::new(move || {
        let told = |what, why, matter| Unready { what, why, matter };
        let alone = status.operators().len() < 2;
        let server = api.pulse().troubles().into_iter().map(|trouble| Unready::of_server(trouble, alone));
        let failing = |pool: &Pool| {
            let needed = pool.states().into_iter().filter(|seen| seen.needed);
            let failing = needed.filter_map(|seen| match seen.state {
                State::Failing(why) => Some(told(format!("informer {}", seen.scope), why, Matter::Operator)),
                State::Listing | State::Watching => None,
            });
            failing.collect::<Vec<_>>()
        };
        let others = clusters.all();
        let others = others.iter().flat_map(|other| {
            let away = other.site.api.trouble();
            let away = away.map(|why| told(format!("cluster {}", other.id), why, Matter::Operator));
            away.into_iter().chain(failing(&other.site.pool))
        });
        status.unready().into_iter().chain(failing(&pool)).chain(server).chain(others).collect()
    })
}

/// Returns the port for requests from outside, if there is to be one.
fn inbound_port(args: &args::Run) -> anyhow::Result<Option<Port>> {
    let Some(address) = args.inbound_listen else {
        return Ok(None);
    };
    let certificate = match (&args.inbound_tls_cert, &args.inbound_tls_key) {
        (Some(certificate), Some(key)) => Some(Certificate::read(certificate, key)?),
        (None | Some(_), _) => None,
    };
    Port::take(address, certificate).map(Some)
}

/// Returns how another cluster is.
fn described(other: &Other) -> Value {
    let why = other.site.api.trouble();
    json!({ "name": &*other.id, "up": why.is_none(), "why": why })
}

fn pages(status: &Arc<Status>, environment: &Environment, log: Log) -> Pages {
    let (pool, metrics) = (environment.pool.clone(), &environment.metrics);
    let controllers = {
        let (status, clusters) = (Arc::clone(status), Arc::clone(&environment.clusters));
        move |part: &Part| {
            let others = clusters.all();
            let seen = pool.states().into_iter().chain(others.iter().flat_map(|other| other.site.pool.states()));
            let informers = seen.map(|seen| {
                let (state, why) = match seen.state {
                    State::Listing => ("listing", None),
                    State::Watching => ("watching", None),
                    State::Failing(why) => ("failing", Some(why)),
                };
                let unreadable = seen.unreadable.iter().take(NAMED).map(ToString::to_string);
                json!({
                    "scope": seen.scope.to_string(),
                    "state": state,
                    "needed": seen.needed,
                    "why": why,
                    "objects": seen.objects,
                    "unreadable": unreadable.collect::<Vec<_>>(),
                })
            });
            let (controllers, next) = status.describe(part);
            json!({
                "controllers": controllers,
                "informers": informers.collect::<Vec<_>>(),
                "clusters": others.iter().map(|other| described(other)).collect::<Vec<_>>(),
                "continue": next,
            })
        }
    };
    let mut registry = metrics.registry();
    registry.register_collector(Box::new(status::Metrics(Arc::clone(status))));
    registry.register_collector(Box::new(log));
    Pages {
        controllers: Box::new(controllers),
        plugins: {
            let status = Arc::clone(status);
            Box::new(move |part| status.report(part))
        },
        workflows: {
            let status = Arc::clone(status);
            Box::new(move |part, object| status.walks(part, object))
        },
        registry,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_is_called_as_its_pod_or_else_as_its_host() {
        // LE-2
        let said = |name: &str| Some(name.to_owned());
        for (names, expected) in [
            ([said("pod"), said("host")], "pod"),
            ([None, said("host\n")], "host"),
            ([said(" "), said("host")], "host"),
            ([said(""), None], "capstan"),
        ] {
            assert_eq!(identity_of(&names), expected, "{names:?}");
        }
    }
}
