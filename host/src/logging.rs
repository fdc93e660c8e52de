//! Sets up the log: to standard error, as text or JSON, filtered by `RUST_LOG`.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::args::LogFormat;

/// What is logged when `RUST_LOG` says nothing. What kube's client would say of a failed request, we say ourselves.
const DEFAULT: &str = "info,kube_client=off,hyper=warn,rustls=warn,wasmtime=warn,cranelift=warn";

/// Starts logging for the whole process. A second call does nothing.
pub fn start(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let log = log.with_target(false);
    let started = match format {
        LogFormat::Json => log
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(true)
            .try_init(),
        LogFormat::Text => log.with_ansi(false).try_init(),
        LogFormat::Auto => log.with_ansi(std::io::stderr().is_terminal()).try_init(),
    };
    if started.is_err() {
        tracing::debug!("logging was set up before");
    }
}
