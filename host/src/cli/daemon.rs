//! Asks a running daemon for a page of its diagnostics.

use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;

/// How long the daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest answer, in bytes.
const LONGEST: usize = 16 << 20;

/// Waits for what is asked of the daemon at an address, and says at which if it does not answer.
///
/// # Errors
/// If no daemon answers there in time.
pub(super) async fn asked<T>(address: &str, asking: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let answer = tokio::time::timeout(PATIENCE, asking).await;
    answer.map_err(|_| anyhow::anyhow!("no answer within {PATIENCE:?}")).flatten().with_context(|| {
        format!(
            "ask the daemon at {address} (its --admin-listen or --listen; for one in a cluster, `kubectl port-forward` first)"
        )
    })
}

/// Returns a page, by its path and the names and values of its query.
///
/// # Errors
/// If it is not served, or is not what is expected.
pub(super) async fn page<T: DeserializeOwned>(address: &str, path: &str, query: &[(&str, &str)]) -> anyhow::Result<T> {
    let address = address.trim_start_matches("http://").trim_end_matches('/');
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
    let uri = format!("http://{address}{path}?{query}").parse()?;
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let response = client.get(uri).await?;
    let status = response.status();
    anyhow::ensure!(
        status.is_success(),
        "it answers with HTTP {status}: is it capstan's --admin-listen, at an address of this host?"
    );
    let body = Limited::new(response.into_body(), LONGEST);
    let body = body.collect().await.map_err(anyhow::Error::from_boxed)?;
    Ok(serde_json::from_slice(&body.to_bytes())?)
}
