//! Reads the plugin's own configuration.

use serde::de::DeserializeOwned;

use crate::{Result, daemon, json};

/// Returns the `config` of the plugin in the manifest, with its references to Secrets and `ConfigMap`s resolved; an empty
/// object if there is none.
///
/// ```
/// # use serde::Deserialize;
/// #[derive(Deserialize)]
/// #[serde(rename_all = "camelCase")]
/// struct Config {
///     page_title: String,
/// }
/// # let run = capstan_guest::test::Run::new().config(serde_json::json!({ "pageTitle": "hello" }));
/// # capstan_guest::test::with(run, || {
/// let config: Config = capstan_guest::config::get()?;
/// # assert_eq!(config.page_title, "hello");
/// # Ok::<_, capstan_guest::Error>(())
/// # }).answer?;
/// # Ok::<_, capstan_guest::Error>(())
/// ```
pub fn get<T: DeserializeOwned>() -> Result<T> {
    json::parse(&daemon::config::get()).map_err(|error| error.context("config"))
}
