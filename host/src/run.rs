//! The composition root: builds every part, hands each its neighbours, and spawns the tasks.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use capstan_core::manifest::Operator;
use capstan_core::object::Managers;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::admin::{Pages, Server, Unready};
use crate::args;
use crate::client::{ApiServer, USER_AGENT, recorder};
use crate::controller::{self, Declared, Handle, Neighbours};
use crate::informer::State;
use crate::informer::pool::Pool;
use crate::metrics::Metrics;
use crate::operators::{self, Loaded};
use crate::shutdown::{ABORTED, Signals};

/// How long the last events and answers may take.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// Runs the daemon until it is told to stop.
///
/// # Errors
/// What keeps it from starting at all: no valid operator, no kubeconfig, an address that is taken.
pub async fn run(args: args::Run) -> anyhow::Result<ExitCode> {
    let signals = Signals::listen().context("listen for signals")?;
    let stop = CancellationToken::new();
    let drained = tokio::select! {
        // A signal is heard first, whatever else is ready.
        biased;
        () = signals.run(stop.clone()) => return Ok(ExitCode::from(ABORTED)),
        drained = serve(&args, stop.clone()) => drained,
    };
    drained.map(|()| ExitCode::SUCCESS)
}

async fn serve(args: &args::Run, stop: CancellationToken) -> anyhow::Result<()> {
    let loaded = tokio::select! {
        loaded = operators::load(&args.source) => loaded?,
        () = stop.cancelled() => return Ok(()),
    };
    let Loaded {
        operators,
        controllers,
        broken,
    } = loaded;
    anyhow::ensure!(
        !controllers.is_empty() || !broken.is_empty(),
        "the manifests declare no controller"
    );
    let listener = Server::listen(args.listen).await;
    let listener = listener.with_context(|| format!("listen on {}", args.listen))?;
    let (client, namespace) = connect(args.kubeconfig.clone(), args.context.clone()).await?;
    let api = Arc::new(ApiServer::new(client, managers(&operators)));
    let metrics = Arc::new(Metrics::default());
    let (recorder, writer) = recorder::recorder(Arc::clone(&api), identity());
    let informers_stop = CancellationToken::new();
    let neighbours = Arc::new(Neighbours {
        pool: Pool::new(
            Arc::clone(&api),
            Arc::clone(&metrics),
            informers_stop.clone(),
        ),
        api,
        metrics: Arc::clone(&metrics),
        recorder,
        namespace: namespace.into(),
        identity: identity().into(),
        drain: args.drain,
    });
    let (mut running, handles) = spawn(controllers, &neighbours, &stop);
    let pages = pages(Arc::new(handles), &neighbours, broken, &metrics);
    let server = Server::new(listener, pages);
    tracing::info!(address = %server.address()?, "serving probes and metrics");
    let server_stop = CancellationToken::new();
    let server = tokio::spawn(server.run(server_stop.clone()));
    let recorder = tokio::spawn(writer.run());
    // Controllers end once their runs have drained; what they lean on ends after them.
    stop.cancelled().await;
    while running.join_next().await.is_some() {}
    informers_stop.cancel();
    neighbours.pool.ended().await;
    drop(neighbours);
    server_stop.cancel();
    // The events of the last runs are written; neither they nor a slow reader of a page hold the end up.
    let ended = tokio::time::timeout(LAST_WORDS, futures::future::join(server, recorder)).await;
    if ended.is_err() {
        tracing::warn!("events are not written, or pages not read; not waited for");
    }
    tracing::info!("stopped");
    Ok(())
}

/// Starts the controllers.
fn spawn(
    controllers: Vec<Declared>,
    neighbours: &Arc<Neighbours>,
    stop: &CancellationToken,
) -> (JoinSet<()>, Vec<Arc<Handle>>) {
    let (mut running, mut handles) = (JoinSet::new(), Vec::new());
    for declared in controllers {
        let handle = Arc::new(Handle::new(&declared.spec));
        handles.push(Arc::clone(&handle));
        let span = tracing::info_span!("controller", controller = %declared.spec.name);
        let run = controller::run(declared, handle, Arc::clone(neighbours), stop.clone());
        running.spawn(run.instrument(span));
    }
    (running, handles)
}

/// Returns a client, and the namespace that the daemon lives in.
async fn connect(
    file: Option<PathBuf>,
    context: Option<String>,
) -> anyhow::Result<(kube::Client, String)> {
    let options = KubeConfigOptions {
        context,
        ..KubeConfigOptions::default()
    };
    let mut config = match (file, &options.context) {
        (Some(file), _) => {
            let kubeconfig = Kubeconfig::read_from(&file).with_context(|| format!("read kubeconfig {}", file.display()))?;
            let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
            config.with_context(|| format!("use kubeconfig {}", file.display()))?
        }
        (None, Some(name)) => {
            let config = kube::Config::from_kubeconfig(&options).await;
            config.with_context(|| format!("use context {name} of the kubeconfig"))?
        }
        (None, None) => kube::Config::infer().await.context(
            "find a cluster: give --kubeconfig, set KUBECONFIG, have ~/.kube/config, or run in a pod with a service account",
        )?,
    };
    // A write that may or may not have happened is looked into by the next run, not sent again blindly.
    config.default_retry = false;
    let namespace = config.default_namespace.clone();
    tracing::info!(server = %config.cluster_url, %namespace, agent = USER_AGENT, "using cluster");
    let client = kube::Client::try_from(config).context("make a client for the API server")?;
    Ok((client, namespace))
}

fn managers(operators: &[Operator]) -> Managers {
    let controllers = operators
        .iter()
        .flat_map(|operator| operator.controllers.values());
    Managers::new(controllers.map(|controller| &*controller.field_manager))
}

/// Who the daemon is: the name of its pod or host (`LE-2`).
fn identity() -> String {
    let kernels = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    std::env::var("HOSTNAME")
        .ok()
        .or_else(kernels)
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "capstan".to_owned())
}

fn pages(
    handles: Arc<Vec<Arc<Handle>>>,
    neighbours: &Arc<Neighbours>,
    broken: Vec<Unready>,
    metrics: &Arc<Metrics>,
) -> Pages {
    let (described, pool) = (Arc::clone(&handles), Arc::downgrade(neighbours));
    let neighbours = Arc::downgrade(neighbours);
    let unready = move || {
        let controllers = handles.iter().filter_map(|handle| handle.unready());
        let informers = neighbours
            .upgrade()
            .map(|neighbours| neighbours.pool.states())
            .unwrap_or_default();
        let failing = informers
            .into_iter()
            .filter_map(|(scope, state, _)| match state {
                State::Failing(why) => Some(Unready {
                    what: format!("informer {scope}"),
                    why,
                }),
                State::Listing | State::Watching => None,
            });
        broken
            .iter()
            .cloned()
            .chain(controllers)
            .chain(failing)
            .collect()
    };
    let controllers = move || {
        let informers = pool
            .upgrade()
            .map(|neighbours| neighbours.pool.states())
            .unwrap_or_default();
        let informers = informers.into_iter().map(|(scope, state, objects)| {
            let (state, why) = match state {
                State::Listing => ("listing", None),
                State::Watching => ("watching", None),
                State::Failing(why) => ("failing", Some(why)),
            };
            json!({ "scope": scope.to_string(), "state": state, "why": why, "objects": objects })
        });
        json!({
            "controllers": described.iter().map(|handle| handle.describe()).collect::<Vec<_>>(),
            "informers": informers.collect::<Vec<_>>(),
        })
    };
    Pages {
        unready: Box::new(unready),
        controllers: Box::new(controllers),
        registry: metrics.registry(),
    }
}
