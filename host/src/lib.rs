//! The daemon's adapters: everything that talks to the outside. The decisions are in [`capstan_core`].
//!
//! In reading order: [`run`] puts the parts together; [`fleet`] keeps what runs as the manifests say, which [`operators`]
//! reads and [`files`] watches; [`controller`] brings one controller up and changes it while it runs; [`informer`] keeps
//! caches true; [`client`] talks to the API server; [`plugin`] runs components; [`admin`], [`metrics`], [`logging`] and
//! [`shutdown`] are what any daemon has; [`check`], [`plugins`] and [`rbac`] are commands.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::CommandFactory;

pub mod admin;
pub mod args;
pub mod check;
pub mod client;
pub mod controller;
pub mod files;
pub mod fleet;
pub mod informer;
pub mod logging;
pub mod metrics;
pub mod operators;
pub mod plugin;
pub mod plugins;
pub mod rbac;
pub mod run;
pub mod shutdown;

use args::{Cli, Command, LogFormat, Output};

/// Does what the command line says, and returns how to exit; an error is printed with its causes.
pub fn main(cli: Cli) -> ExitCode {
    let done = match cli.command {
        Command::Run(args) => {
            logging::start(args.log_format);
            block_on(run::run(args))
        }
        Command::Check(args) => {
            logging::start(LogFormat::Auto);
            block_on(async move { check::run(&args).await })
        }
        Command::Plugins(args) => block_on(async move { plugins::run(&args).await }),
        Command::Rbac(args) => rbac::run(&args),
        Command::Schema => print(&format!("{:#}\n", capstan_core::manifest::schema())),
        Command::Completions { shell } => completions(shell),
        Command::CompileComponent { file } => compile(&file),
        Command::Version { output } => print(&version(output)),
    };
    done.unwrap_or_else(|error| {
        // Where standard error is gone there is nobody to tell.
        drop(writeln!(std::io::stderr(), "error: {error:#}"));
        ExitCode::FAILURE
    })
}

fn block_on(task: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    let done = runtime.block_on(task);
    // Runs that did not drain in time are not waited for.
    runtime.shutdown_background();
    done
}

fn print(text: &str) -> anyhow::Result<ExitCode> {
    std::io::stdout()
        .lock()
        .write_all(text.as_bytes())
        .context("write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

fn completions(shell: clap_complete::Shell) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "capstan", &mut script);
    print(&String::from_utf8(script).context("the completion script")?)
}

fn compile(file: &Path) -> anyhow::Result<ExitCode> {
    plugin::loader::compile_into(file, std::io::stdin().lock()).context("compile the component")?;
    Ok(ExitCode::SUCCESS)
}

fn version(output: Output) -> String {
    let facts =
        serde_json::json!({ "version": env!("CARGO_PKG_VERSION"), "contract": plugin::CONTRACT });
    match output {
        Output::Table => format!(
            "capstan {}\ncontract capstan:operator@{}\n",
            env!("CARGO_PKG_VERSION"),
            plugin::CONTRACT
        ),
        Output::Json => format!("{facts:#}\n"),
        Output::Yaml => serde_yaml::to_string(&facts).unwrap_or_default(),
    }
}
