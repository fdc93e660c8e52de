//! The daemon's adapters: everything that talks to the outside. The decisions are in [`capstan_core`].
//!
//! In reading order: [`run`] puts the parts together; [`supervisor`] keeps what runs in line with the manifests,
//! which [`operators`] reads (with [`read`]) and [`files`] watches; [`controller`] brings one controller up and
//! changes it while it runs; [`informer`] keeps caches in sync with the API server; [`client`] talks to the API
//! server, [`registry`] to registries of components; [`plugin`] runs components, on the threads of [`workers`]; [`control`], [`admin`], [`metrics`],
//! [`logging`] and [`shutdown`] are what any daemon has; [`cli`] has the arguments, and the commands
//! [`init`](cli::init), [`dev`](cli::dev), [`component`](cli::component), [`check`](cli::check), [`test`](cli::test),
//! [`plugins`](cli::plugins), [`rbac`](cli::rbac), [`graph`](cli::graph), [`push`](cli::push), [`pull`](cli::pull),
//! [`inspect`](cli::inspect), [`save`](cli::save) and [`load`](cli::load).

use std::io::Write;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use capstan_core::{manifest, operator, text};
use clap::CommandFactory;

pub mod admin;
mod allocator;
pub mod backoff;
pub mod cli;
pub mod client;
pub mod clusters;
pub mod control;
pub mod controller;
pub mod descriptors;
pub mod files;
mod folder;
mod guard;
pub mod http;
pub mod inbound;
pub mod informer;
mod kubeconfig;
mod listen;
pub mod logging;
pub mod machine;
pub mod metrics;
pub mod names;
pub mod operators;
pub mod part;

pub mod plugin;
pub mod read;
pub mod readiness;
pub mod registry;
pub mod run;
pub mod shutdown;
pub mod supervisor;
mod tls;
pub mod watchdog;
pub mod workers;

use cli::args::{Cli, Command, Documents, Kind, LogFormat, Output};
use logging::Log;
use plugin::loader::CompileLimits;

/// Runs the command that the command line names, and returns the exit code; an error is printed with its causes.
pub fn main(cli: Cli) -> ExitCode {
    let done = match cli.command {
        Command::Init(args) => cli::init::run(&args),
        Command::Dev(args) => {
            let log = logging::start_for_author();
            return ended(block_on(cli::dev::run(args, log.clone())), &log);
        }
        Command::Crd(args) => block_on(async move { cli::crd::run(&args).await }),
        Command::Run(args) => {
            let log = logging::start(args.log_format);
            return ended(block_on(run::run(args, log.clone())), &log);
        }
        Command::Check(args) => {
            let log = logging::start(LogFormat::Auto);
            return ended(block_on(async move { cli::check::run(&args).await }), &log);
        }
        Command::Test(args) => {
            // What components log is of interest only if somebody asks for it.
            let _log = std::env::var_os("RUST_LOG").map(|_| logging::start(LogFormat::Auto));
            block_on(async move { cli::test::run(&args).await })
        }
        Command::Plugins(args) => block_on(async move { cli::plugins::run(&args).await }),
        Command::Rbac(args) => cli::rbac::run(&args),
        Command::Graph(args) => block_on(async move { cli::graph::run(&args).await }),
        Command::Push(args) => block_on(async move { cli::push::run(&args).await }),
        Command::Pull(args) => block_on(async move { cli::pull::run(&args).await }),
        Command::Inspect(args) => block_on(async move { cli::inspect::run(&args).await }),
        Command::Approve(args) => block_on(async move { cli::approve::run(&args).await }),
        Command::Sign(args) => block_on(async move { cli::sign::run(&args).await }),
        Command::Verify(args) => block_on(async move { cli::verify::run(&args).await }),
        Command::Save(args) => block_on(async move { cli::save::run(&args).await }),
        Command::Load(args) => block_on(async move { cli::load::run(&args).await }),
        Command::Schema { kind } => print(&format!(
            "{:#}\n",
            match kind {
                Kind::Operator => manifest::schema(),
                Kind::Defaults => manifest::schema_of_defaults(),
                Kind::Ceilings => manifest::schema_of_ceilings(),
            }
        )),
        Command::OperatorCrd { output } => print(&definitions(output)),
        Command::Completions { shell } => completions(shell),
        Command::CompileComponent { memory, cpu } => {
            let cpu = Duration::from_secs(cpu);
            let clock = Duration::MAX;
            Ok(plugin::loader::compile(&CompileLimits { memory, cpu, clock }))
        }
        Command::Component(args) => cli::component::run(&args),
        Command::RunComponent => Ok(plugin::loader::run_apart()),
        Command::Version { output } => print(&version(output)),
    };
    done.unwrap_or_else(|error| {
        // If standard error is gone, the error can't be reported anywhere.
        drop(writeln!(std::io::stderr(), "{}", failed(&error)));
        ExitCode::FAILURE
    })
}

/// Returns the exit code. An error is written through the log, so that it comes last, and a reader that does not read
/// blocks nothing.
fn ended(done: anyhow::Result<ExitCode>, log: &Log) -> ExitCode {
    log.tell();
    let code = done.unwrap_or_else(|error| {
        log.say(&failed(&error));
        ExitCode::FAILURE
    });
    log.flush(logging::LAST_LINES);
    code
}

fn failed(error: &anyhow::Error) -> String {
    format!("error: {}", text::block(&client::told(error)))
}

fn block_on(task: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // Runs have threads of their own. With more threads here, each answer of the API server wakes one for
        // nothing.
        .worker_threads(cores.div_ceil(2))
        .on_thread_park(allocator::give_back)
        .enable_all()
        .build()
        .context("start the runtime")?;
    let done = runtime.block_on(task);
    // Runs that did not drain in time are not waited for.
    runtime.shutdown_background();
    done
}

fn print(text: &str) -> anyhow::Result<ExitCode> {
    std::io::stdout().lock().write_all(text.as_bytes()).context("write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

fn completions(shell: clap_complete::Shell) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "capstan", &mut script);
    print(&String::from_utf8(script).context("the completion script")?)
}

/// Returns the definitions of operators and of their approvals.
fn definitions(output: Documents) -> String {
    let all = [manifest::definition(), operator::approval::definition()];
    match output {
        Documents::Yaml => all.map(|one| serde_yaml::to_string(&one).unwrap_or_default()).join("---\n"),
        Documents::Json => {
            format!("{:#}\n", serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": all }))
        }
    }
}

fn version(output: Output) -> String {
    let facts = serde_json::json!({ "version": env!("CARGO_PKG_VERSION"), "contract": plugin::CONTRACT });
    match output {
        Output::Table => {
            format!("capstan {}\ncontract capstan:operator@{}\n", env!("CARGO_PKG_VERSION"), plugin::CONTRACT)
        }
        Output::Json => format!("{facts:#}\n"),
        Output::Yaml => serde_yaml::to_string(&facts).unwrap_or_default(),
    }
}
