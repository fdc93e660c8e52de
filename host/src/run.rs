//! The composition root: builds every part, hands each its neighbours, and spawns the tasks.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use capstan_core::object::Managers;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::admin::{Pages, Server, Unready};
use crate::args;
use crate::client::{ApiServer, USER_AGENT, recorder};
use crate::controller::Neighbours;
use crate::fleet::Fleet;
use crate::fleet::board::{self, Board};
use crate::informer::State;
use crate::informer::pool::Pool;
use crate::metrics::Metrics;
use crate::operators::{self, Read};
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
    check(&args.source)?;
    let listener = Server::listen(args.listen).await;
    let listener = listener.with_context(|| format!("listen on {}", args.listen))?;
    let (client, namespace) = connect(args.kubeconfig.clone(), args.context.clone()).await?;
    let api = Arc::new(ApiServer::new(client, Managers::default()));
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
    let board = Arc::new(Board::default());
    let fleet = Fleet::new(
        args.source.clone(),
        Arc::clone(&neighbours),
        Arc::clone(&board),
        stop.clone(),
    )?;
    let server = Server::new(listener, pages(&board, neighbours.pool.clone(), &metrics));
    tracing::info!(address = %server.address()?, "serving probes and metrics");
    let server_stop = CancellationToken::new();
    let server = tokio::spawn(server.run(server_stop.clone()));
    let recorder = tokio::spawn(writer.run());
    // Controllers end once their runs have drained; what they lean on ends after them.
    fleet.run().await?;
    informers_stop.cancel();
    neighbours.pool.ended().await;
    drop((neighbours, board));
    server_stop.cancel();
    // The events of the last runs are written; neither they nor a slow reader of a page hold the end up.
    let ended = tokio::time::timeout(LAST_WORDS, futures::future::join(server, recorder)).await;
    if ended.is_err() {
        tracing::warn!("events are not written, or pages not read; not waited for");
    }
    tracing::info!("stopped");
    Ok(())
}

/// Makes sure that there is something to run. What is wrong with some of the manifests only, the fleet tells.
fn check(source: &args::Source) -> anyhow::Result<()> {
    let Read {
        operators,
        problems,
    } = operators::read(source)?;
    let problems: Vec<_> = problems.into_iter().map(|(_, problem)| problem).collect();
    anyhow::ensure!(
        !operators.is_empty() || problems.is_empty(),
        "no manifest is valid:\n{}",
        problems.join("\n")
    );
    anyhow::ensure!(!operators.is_empty(), "the manifests declare no controller");
    Ok(())
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

fn pages(board: &Arc<Board>, pool: Pool, metrics: &Arc<Metrics>) -> Pages {
    let unready = {
        let (board, pool) = (Arc::clone(board), pool.clone());
        move || {
            let failing = pool
                .states()
                .into_iter()
                .filter_map(|(scope, state, _)| match state {
                    State::Failing(why) => Some(Unready {
                        what: format!("informer {scope}"),
                        why,
                    }),
                    State::Listing | State::Watching => None,
                });
            board.unready().into_iter().chain(failing).collect()
        }
    };
    let controllers = {
        let board = Arc::clone(board);
        move || {
            let informers = pool.states().into_iter().map(|(scope, state, objects)| {
                let (state, why) = match state {
                    State::Listing => ("listing", None),
                    State::Watching => ("watching", None),
                    State::Failing(why) => ("failing", Some(why)),
                };
                json!({ "scope": scope.to_string(), "state": state, "why": why, "objects": objects })
            });
            let controllers = board.controllers();
            json!({
                "controllers": controllers.iter().map(|handle| handle.describe()).collect::<Vec<_>>(),
                "informers": informers.collect::<Vec<_>>(),
            })
        }
    };
    let mut registry = metrics.registry();
    registry.register_collector(Box::new(board::Metrics(Arc::clone(board))));
    Pages {
        unready: Box::new(unready),
        controllers: Box::new(controllers),
        plugins: {
            let board = Arc::clone(board);
            Box::new(move || board.report())
        },
        registry,
    }
}
