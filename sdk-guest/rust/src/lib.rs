//! Write a Kubernetes operator as a WebAssembly component for Capstan.
//!
//! This is all of it: the types of the custom resource, what its dependents should be, what to say in its status.
//!
//! ```
//! use capstan_guest::{Metadata, Reconciler, Result, Update, dependents, info, secondary};
//! use serde::{Deserialize, Serialize};
//! use serde_json::{Value, json};
//!
//! #[derive(Deserialize)]
//! struct WebPage {
//!     metadata: Metadata,
//!     spec: Spec,
//! }
//!
//! #[derive(Deserialize)]
//! struct Spec {
//!     html: String,
//! }
//!
//! #[derive(Serialize)]
//! #[serde(rename_all = "camelCase")]
//! struct Status {
//!     are_we_good: bool,
//! }
//!
//! struct WebPageOperator;
//!
//! impl Reconciler for WebPageOperator {
//!     type Primary = WebPage;
//!
//!     fn reconcile(page: &WebPage) -> Result<Update> {
//!         if !page.spec.html.contains("<html") {
//!             return Err("spec.html is not an HTML page".into());
//!         }
//!         let ready = secondary("deployment")?.is_some_and(|d| d["status"]["readyReplicas"].as_u64() > Some(0));
//!         info!("reconciled", page = page.metadata.name, ready);
//!         Ok(Update::status(Status { are_we_good: ready }))
//!     }
//! }
//!
//! #[dependents]
//! impl WebPageOperator {
//!     #[desired("html-config")]
//!     fn configmap(page: &WebPage) -> Value {
//!         json!({
//!             "apiVersion": "v1",
//!             "kind": "ConfigMap",
//!             "metadata": { "name": page.metadata.name },
//!             "data": { "index.html": page.spec.html },
//!         })
//!     }
//! }
//!
//! capstan_guest::export!(WebPageOperator: Reconciler, Dependents);
//! #
//! # let page: WebPage = serde_json::from_value(json!({ "metadata": { "name": "a" }, "spec": { "html": "<html/>" } }))?;
//! # assert_eq!(WebPageOperator::reconcile(&page), Ok(Update::status(json!({ "areWeGood": false }))));
//! # Ok::<_, serde_json::Error>(())
//! ```
//!
//! Put `crate-type = ["cdylib"]` under `[lib]` in `Cargo.toml` and build with
//! `cargo build --release --target wasm32-wasip2`: the result is the component that a manifest names.
//!
//! # What a component can do
//!
//! It implements what it needs, and names that in [`export!`]: a [`Reconciler`], a [`Cleaner`], an [`ErrorHandler`],
//! a [`RetryPolicy`], a [`Validator`], an [`Initializer`], [`Dependents`], [`Bulks`], [`External`], [`Matchers`], [`Conditions`], [`Pollers`], [`ResourcePollers`],
//! [`Receivers`], [`Filters`], [`Mappers`], [`SecondaryMappers`]. While it is called it may ask the daemon:
//!
//! | for | with |
//! | --- | --- |
//! | objects of the daemon's caches | [`secondary`], [`secondaries`], [`cache`] |
//! | the run: retry, time left, settings | [`context`] |
//! | writes | [`operations`] |
//! | workflows run by hand, and results | [`workflow`] |
//! | what is expected of the primary in time | [`expectations`] |
//! | sources that come and go | [`sources`] |
//! | values that outlive the call | [`memo`] |
//! | Kubernetes Events | [`recorder`] |
//! | conditions of its own in the status | [`set_condition`] |
//! | its configuration | [`config`] |
//! | log lines | [`info!`], [`warn!`] and the like |
//! | time and chance | [`system`] |
//!
//! A component imports only what it uses. An [`Error`] is made from anything that can be shown, by `?` or `into()`. A panic ends
//! the call, and its message is in the daemon's log.
//!
//! # Tests
//!
//! The functions above are ordinary functions: `cargo test` calls them, and [`test::with`] stands in for the daemon.

// What `#[dependents]` and the like write refers to the crate by its name.
#[cfg(test)]
extern crate self as capstan_guest;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod answers;
#[doc(hidden)]
pub mod bindings;
pub mod cache;
mod changes;
pub mod config;
pub mod context;
#[cfg(not(target_arch = "wasm32"))]
mod double;
mod error;
pub mod expectations;
mod exports;
#[doc(hidden)]
pub mod glue;
mod inbound;
mod json;
pub mod log;
pub mod memo;
pub mod operations;
pub mod recorder;
pub mod sources;
mod status;
pub mod system;
#[cfg(not(target_arch = "wasm32"))]
pub mod test;
#[cfg(feature = "types")]
pub mod types;
pub mod workflow;

pub use answers::{Created, Deletion, Handled, Match, Met, NextRetry, PrimaryThings, Problem, Things, Update};
pub use cache::{secondaries, secondary};
pub use changes::{Change, Keys};
pub use error::{Error, Reason, Result};
pub use exports::{
    Bulks, Cleaner, Conditions, DependentFailure, Dependents, ErrorHandler, External, FailedRun, Failure, FailureClass,
    Filters, Initializer, Mappers, Matchers, Names, Origin, Pollers, Receivers, Reconciler, ResourcePollers,
    RetryPolicy, SecondaryMappers, Validator,
};
pub use inbound::{Received, Request};
pub use json::{Json, Metadata};
pub use operations::ObjectRef;
pub use status::{ConditionStatus, StatusCondition, set_condition};

/// Says what dependents should look like: each function of the block is the desired state of one.
///
/// A function takes the primary by reference, or nothing, and returns anything that serializes to the object, or a `Result` of
/// it. Its name is the dependent's, with `-` for `_`; `#[desired("name")]` above it says another.
///
/// ```
/// use capstan_guest::{Result, dependents};
/// use serde_json::{Value, json};
/// # #[derive(serde::Deserialize)]
/// # struct WebPage { html: String }
/// # struct WebPageOperator;
///
/// #[dependents]
/// impl WebPageOperator {
///     fn service(page: &WebPage) -> Value {
///         json!({ "kind": "Service" })
///     }
///
///     #[desired("html-config")]
///     fn configmap(page: &WebPage) -> Result<Value> {
///         Ok(json!({ "kind": "ConfigMap", "data": { "index.html": page.html } }))
///     }
/// }
/// # capstan_guest::export!(WebPageOperator: Dependents);
/// ```
pub use capstan_guest_macros::dependents;

/// Says what dependents should look like of which there are as many as the primary says (`bulk: true` in the manifest): each function
/// of the block is the desired state of one such dependent.
///
/// A function takes the primary by reference, or nothing, and returns a list, or anything else that can be gone through, of what
/// serializes to an object, or a `Result` of it. Its name is the dependent's, with `-` for `_`; `#[desired_set("name")]` above it
/// says another.
///
/// ```
/// use capstan_guest::bulks;
/// use serde_json::{Value, json};
/// # #[derive(serde::Deserialize)]
/// # struct WebPage { themes: Vec<String> }
/// # struct WebPageOperator;
///
/// #[bulks]
/// impl WebPageOperator {
///     fn themes(page: &WebPage) -> Vec<Value> {
///         page.themes.iter().map(|theme| json!({ "metadata": { "name": theme } })).collect()
///     }
/// }
/// # capstan_guest::export!(WebPageOperator: Bulks);
/// ```
pub use capstan_guest_macros::bulks;

/// Compares dependents in the component's own way: each function of the block is one comparison.
///
/// A function takes the actual object, the desired one and the primary, each by reference and of a type of the author; the
/// primary may be left out. It returns a `Match` or a `Result` of it. Its name is what the manifest says after `export:`, with `-` for `_`;
/// `#[matcher("name")]` above it says another.
///
/// ```
/// use capstan_guest::{Match, matchers};
/// # use std::collections::BTreeMap;
/// # #[derive(serde::Deserialize)]
/// # struct ConfigMap { data: BTreeMap<String, String> }
/// # struct WebPageOperator;
///
/// #[matchers]
/// impl WebPageOperator {
///     fn same_data(actual: &ConfigMap, desired: &ConfigMap) -> Match {
///         Match::equal("data", &actual.data, &desired.data)
///     }
/// }
/// # capstan_guest::export!(WebPageOperator: Matchers);
/// ```
pub use capstan_guest_macros::matchers;

/// Decides conditions of a workflow: each function of the block is one condition.
///
/// A function takes the primary by reference, and if it likes the name of the dependent as `&str`. It returns a `bool`, or a
/// [`Met`] to add a detail, or a `Result` of either. Its name is what the manifest says after `export:`, with `-` for `_`;
/// `#[condition("name")]` above it says another.
///
/// ```
/// use capstan_guest::{Met, Result, cache, conditions, secondaries};
/// use serde_json::Value;
/// # #[derive(serde::Deserialize)]
/// # struct WebPage { exposed: bool }
/// # struct WebPageOperator;
///
/// #[conditions]
/// impl WebPageOperator {
///     fn is_exposed(page: &WebPage) -> bool {
///         page.exposed
///     }
///
///     fn is_there(_page: &WebPage, dependent: &str) -> Result<bool> {
///         Ok(cache::source(dependent).one::<Value>()?.is_some())
///     }
///
///     fn are_three(_page: &WebPage, dependent: &str) -> Result<Met> {
///         let found = secondaries(dependent)?.len();
///         Ok(Met::from(found == 3).detail(format!("{found} of 3")))
///     }
/// }
/// # capstan_guest::export!(WebPageOperator: Conditions);
/// ```
pub use capstan_guest_macros::conditions;

/// Reads things outside of the cluster for all primaries at once: each function of the block is one source of the manifest with
/// `poll`.
///
/// A function takes nothing, and returns [`PrimaryThings`] or a `Result` of it. Its name is that of the source, with `-` for `_`;
/// `#[poller("name")]` above it says another. What it answers is read with [`secondaries`].
///
/// ```
/// use capstan_guest::{Result, PrimaryThings, pollers};
/// use serde_json::json;
/// # struct WebPageOperator;
///
/// #[pollers]
/// impl WebPageOperator {
///     fn themes() -> Result<PrimaryThings> {
///         Ok(PrimaryThings::new().of("default", "hello", [json!({ "id": "dark", "color": "#222" })]))
///     }
/// }
/// # capstan_guest::export!(WebPageOperator: Pollers);
/// ```
pub use capstan_guest_macros::pollers;

/// Reads things outside of the cluster for one primary: each function of the block is one source of the manifest with `pollEach`,
/// or with `inbound` and `fetch`.
///
/// A function takes the primary by reference, or nothing, and returns a `Vec` of anything that serializes, or [`Things`] to say when
/// they are read again, or a `Result` of either. Its name is that of the source, with `-` for `_`; `#[resource_poller("name")]` above
/// it says another.
///
/// ```
/// use capstan_guest::{Result, resource_pollers};
/// use serde_json::{Value, json};
/// # #[derive(serde::Deserialize)]
/// # struct WebPage { domain: String }
/// # struct WebPageOperator;
///
/// #[resource_pollers]
/// impl WebPageOperator {
///     fn domains(page: &WebPage) -> Result<Vec<Value>> {
///         Ok(vec![json!({ "name": page.domain, "registered": true })])
///     }
/// }
/// # capstan_guest::export!(WebPageOperator: ResourcePollers);
/// ```
pub use capstan_guest_macros::resource_pollers;

/// Understands requests from outside: each function of the block is one source of the manifest with `inbound`.
///
/// A function takes the [`Request`] by reference, and returns [`Received`] or a `Result` of it. Its name is that of the source, with `-`
/// for `_`; `#[receiver("name")]` above it says another. What it says is there is read with [`secondaries`].
///
/// ```
/// use capstan_guest::{Received, Request, Result, receivers};
/// use serde_json::Value;
/// # struct WebPageOperator;
///
/// #[receivers]
/// impl WebPageOperator {
///     fn builds(request: &Request) -> Result<Received> {
///         let build: Value = request.json()?;
///         let Some(page) = build["page"].as_str() else {
///             return Ok(Received::new().status(400).text("no page is named"));
///         };
///         Ok(Received::new().present("default", page, &build))
///     }
/// }
/// # capstan_guest::export!(WebPageOperator: Receivers);
/// ```
pub use capstan_guest_macros::receivers;

/// Decides which changes of objects matter, where CEL is not enough: each function of the block is one filter.
///
/// A function takes the [`Change`] by reference and returns a `bool` or a `Result` of it. Its name is what the manifest says after
/// `export:`, with `-` for `_`; `#[filter("name")]` above it says another. An error lets the change pass.
///
/// ```
/// use capstan_guest::{Change, Result, filters};
/// use serde_json::Value;
/// # struct WebPageOperator;
///
/// #[filters]
/// impl WebPageOperator {
///     fn has_theme(change: &Change) -> Result<bool> {
///         Ok(change.object::<Value>()?["data"]["theme"].is_string())
///     }
/// }
/// # capstan_guest::export!(WebPageOperator: Filters);
/// ```
pub use capstan_guest_macros::filters;

/// Finds the primaries of secondaries: each function of the block is one mapper.
///
/// A function takes the secondary by reference, as a type of the author, and returns a `Vec` of texts (`name` or `namespace/name`), an
/// `Option` of one, or [`Keys`], or a `Result` of these. Its name is what the manifest says after `mapper: { export: … }`, with `-`
/// for `_`; `#[mapper("name")]` above it says another.
///
/// ```
/// use capstan_guest::mappers;
/// # #[derive(serde::Deserialize)]
/// # struct Theme { pages: Vec<String> }
/// # struct WebPageOperator;
///
/// #[mappers]
/// impl WebPageOperator {
///     fn theme_to_pages(theme: &Theme) -> Vec<String> {
///         theme.pages.clone()
///     }
/// }
/// # capstan_guest::export!(WebPageOperator: Mappers);
/// ```
pub use capstan_guest_macros::mappers;

/// Finds the secondaries of primaries: each function of the block is one mapper.
///
/// A function takes the primary by reference, or nothing, and returns what those of [`mappers`] do. Its name is what the manifest says
/// after `secondaries: { export: … }`, with `-` for `_`; `#[secondary_mapper("name")]` above it says another.
///
/// ```
/// use capstan_guest::secondary_mappers;
/// # #[derive(serde::Deserialize)]
/// # struct WebPage { theme: Option<String> }
/// # struct WebPageOperator;
///
/// #[secondary_mappers]
/// impl WebPageOperator {
///     fn page_to_themes(page: &WebPage) -> Option<String> {
///         page.theme.clone()
///     }
/// }
/// # capstan_guest::export!(WebPageOperator: SecondaryMappers);
/// ```
pub use capstan_guest_macros::secondary_mappers;

/// Exports what a type implements; a component has one such line.
///
/// ```
/// # use capstan_guest::{Reconciler, Result, Update};
/// # struct WebPageOperator;
/// # impl Reconciler for WebPageOperator {
/// #     type Primary = serde_json::Value;
/// #     fn reconcile(_: &serde_json::Value) -> Result<Update> { Ok(Update::nothing()) }
/// # }
/// capstan_guest::export!(WebPageOperator: Reconciler);
/// ```
///
/// What it names must be implemented:
///
/// ```compile_fail
/// struct WebPageOperator;
/// capstan_guest::export!(WebPageOperator: Reconciler);
/// ```
///
/// A component may serve several controllers of a manifest, each by its name there:
///
/// ```
/// # use capstan_guest::{Cleaner, Deletion, Reconciler, Result, Update};
/// # use serde_json::Value;
/// # struct WebPageOperator;
/// # struct ThemeOperator;
/// # impl Reconciler for WebPageOperator {
/// #     type Primary = Value;
/// #     fn reconcile(_: &Value) -> Result<Update> { Ok(Update::nothing()) }
/// # }
/// # impl Reconciler for ThemeOperator {
/// #     type Primary = Value;
/// #     fn reconcile(_: &Value) -> Result<Update> { Ok(Update::nothing()) }
/// # }
/// # impl Cleaner for ThemeOperator {
/// #     type Primary = Value;
/// #     fn cleanup(_: &Value) -> Result<Deletion> { Ok(Deletion::remove_finalizer()) }
/// # }
/// capstan_guest::export!(
///     "webpage" => WebPageOperator: Reconciler;
///     "theme" => ThemeOperator: Reconciler, Cleaner;
/// );
/// ```
pub use capstan_guest_macros::export;

// Where the imports are: the daemon, or in native tests what stands in for it.
#[cfg(target_arch = "wasm32")]
use bindings::imports::capstan::operator as daemon;
#[cfg(not(target_arch = "wasm32"))]
use double as daemon;
