//! Serves metrics and diagnostics over HTTP: to clients on this host, and to others if the API server permits them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router, middleware};
use futures::future::join_all;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::cli::args::MetricsAuth;
use crate::http::{self, Bounds};
use crate::listen;
use crate::part::Part;
use crate::supervisor::status::{Report, Walks};

pub mod access;

use access::Gate;

/// Limits of the server at each address.
const BOUNDS: Bounds = Bounds { connections: 64, answer: Duration::from_secs(10) };

/// At most this many pages are built at the same time.
const AT_ONCE: usize = 2;

/// The pages that there are.
const INDEX: &str = "\
Capstan, an operator daemon. Pages:
  /livez                is the process alive?
  /readyz?verbose       is every controller and plugin ready, and if not, why?
  /metrics              metrics, for Prometheus
  /debug/controllers    controllers, their queues and what they watch, as JSON
  /debug/workflows      what the workflows of primaries came to in their last runs, as JSON; ?object=NAMESPACE/NAME is about one
  /debug/plugins        manifests and plugins, as JSON; `capstan plugins` shows them as a table
Those below /debug take ?limit=N&continue=TEXT. The first two are at --listen, the others at --admin-listen if that is another one.
";

/// The content of the pages. The functions are called on each request.
pub struct Pages {
    /// Returns the state of controllers, queues and informers.
    pub controllers: Box<dyn Fn(&Part) -> serde_json::Value + Send + Sync>,
    /// Returns the state of plugins and manifests.
    pub plugins: Box<dyn Fn(&Part) -> Report + Send + Sync>,
    /// Returns what the workflows of primaries came to, of all or of those with a name.
    pub workflows: Box<LastWalks>,
    /// The metrics.
    pub registry: Registry,
}

/// Returns what the workflows of primaries came to, a part of all, or of those with a name.
type LastWalks = dyn Fn(&Part, Option<&str>) -> Walks + Send + Sync;

/// Addresses that are bound, but not served yet.
pub struct Listeners(Vec<(SocketAddr, TcpListener)>);

/// Serves the pages. Cheap to clone.
#[derive(Clone)]
pub struct Admin(Arc<Desk>);

struct Desk {
    pages: Pages,
    places: Semaphore,
}

// === impl Listeners ===

impl Listeners {
    /// Binds the addresses.
    ///
    /// # Errors
    /// If an address is in use or does not belong to this host.
    pub fn bind(addresses: &[SocketAddr]) -> anyhow::Result<Self> {
        let mut bound = Vec::new();
        for address in addresses {
            let listener = listen::listen(*address);
            let listener = listener.with_context(|| format!("listen on {address}"))?;
            let address = listener.local_addr().context("find the own address")?;
            bound.push((address, listener));
        }
        Ok(Self(bound))
    }

    /// Returns the ports that are bound.
    pub fn ports(&self) -> BTreeSet<u16> {
        self.0.iter().map(|(address, _)| address.port()).collect()
    }

    /// True if no address is bound.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Serves the pages until `stop` is cancelled: at a loopback address to everyone, at other addresses behind
    /// `gate`. With [`MetricsAuth::None`] other addresses serve the metrics alone, open to all.
    pub async fn serve(self, pages: Admin, auth: MetricsAuth, gate: Gate, stop: CancellationToken) {
        let gate = Arc::new(gate);
        let servers = self.0.into_iter().map(|(address, listener)| {
            tracing::info!(%address, "serving metrics and diagnostics");
            let guard = middleware::from_fn_with_state(Arc::clone(&gate), access::guard);
            let router = match auth {
                _ if address.ip().is_loopback() => pages.router(),
                MetricsAuth::Token => pages.router().layer(guard),
                MetricsAuth::None => pages.metrics(),
            };
            http::serve(listener, router, BOUNDS, stop.clone())
        });
        join_all(servers).await;
    }
}

// === impl Admin ===

impl Admin {
    /// Returns a server of these pages.
    pub fn new(pages: Pages) -> Self {
        Self(Arc::new(Desk { pages, places: Semaphore::new(AT_ONCE) }))
    }

    /// Returns the routes of all pages.
    pub fn router(&self) -> Router {
        let debug = Router::new().route("/debug/controllers", get(controllers)).route("/debug/plugins", get(plugins));
        let debug = debug.route("/debug/workflows", get(workflows)).route("/", get(index)).route("/debug", get(index));
        self.metrics().merge(debug.with_state(Arc::clone(&self.0)))
    }

    /// Returns the route of the metrics alone.
    fn metrics(&self) -> Router {
        let metrics = Router::new().route("/metrics", get(metrics));
        metrics.with_state(Arc::clone(&self.0))
    }
}

// === pages ===

async fn index() -> &'static str {
    INDEX
}

async fn metrics(State(desk): State<Arc<Desk>>) -> Response {
    let _place = desk.places.acquire().await;
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &desk.pages.registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn plugins(State(desk): State<Arc<Desk>>, uri: Uri) -> Json<Report> {
    let _place = desk.places.acquire().await;
    Json((desk.pages.plugins)(&Part::of(&uri)))
}

async fn controllers(State(desk): State<Arc<Desk>>, uri: Uri) -> Json<serde_json::Value> {
    let _place = desk.places.acquire().await;
    Json((desk.pages.controllers)(&Part::of(&uri)))
}

async fn workflows(State(desk): State<Arc<Desk>>, uri: Uri) -> Json<Walks> {
    let _place = desk.places.acquire().await;
    let query = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let object = query.into_iter().find_map(|(name, value)| (name == "object").then_some(value));
    Json((desk.pages.workflows)(&Part::of(&uri), object.as_deref()))
}
