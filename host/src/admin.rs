//! Serves probes, metrics and diagnostics over HTTP.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use prometheus_client::registry::Registry;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::fleet::board::Report;

/// What the pages show. The functions are called at each request.
pub struct Pages {
    /// Lists what is not ready yet, by name and reason; empty = ready.
    pub unready: Box<dyn Fn() -> Vec<Unready> + Send + Sync>,
    /// Returns the state of controllers, queues and informers.
    pub controllers: Box<dyn Fn() -> serde_json::Value + Send + Sync>,
    /// Returns the state of plugins and manifests.
    pub plugins: Box<dyn Fn() -> Report + Send + Sync>,
    /// The metrics.
    pub registry: Registry,
}

/// Something that is not ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unready {
    /// What: an informer, a plugin.
    pub what: String,
    /// Why, in one sentence.
    pub why: String,
}

/// A server that is bound, but does not answer yet.
pub struct Server {
    listener: TcpListener,
    router: Router,
}

impl Server {
    /// Binds the address.
    ///
    /// # Errors
    /// If it is taken or not ours.
    pub async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
        TcpListener::bind(address).await
    }

    /// Returns a server of these pages.
    pub fn new(listener: TcpListener, pages: Pages) -> Self {
        let router = Router::new()
            .route("/livez", get(|| async { "ok\n" }))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .route("/debug/controllers", get(controllers))
            .route("/debug/plugins", get(plugins))
            .with_state(Arc::new(pages));
        Self { listener, router }
    }

    /// Returns where it listens: the real port if port 0 was asked for.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let served = axum::serve(self.listener, self.router)
            .with_graceful_shutdown(stop.cancelled_owned())
            .await;
        if let Err(error) = served {
            tracing::error!(%error, "serving probes and metrics failed");
        }
    }
}

/// 200 once every cache is filled and every plugin is loaded; else 503 with the reasons, one per line.
async fn readyz(State(pages): State<Arc<Pages>>) -> Response {
    let unready = (pages.unready)();
    if unready.is_empty() {
        return "ok\n".into_response();
    }
    let lines: Vec<_> = unready
        .iter()
        .map(|u| format!("{}: {}", u.what, u.why))
        .collect();
    (
        StatusCode::SERVICE_UNAVAILABLE,
        lines.join(
            "
",
        ) + "
",
    )
        .into_response()
}

async fn metrics(State(pages): State<Arc<Pages>>) -> Response {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &pages.registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn plugins(State(pages): State<Arc<Pages>>) -> Json<Report> {
    Json((pages.plugins)())
}

async fn controllers(State(pages): State<Arc<Pages>>) -> Json<serde_json::Value> {
    Json((pages.controllers)())
}
