//! Decides nothing about Capstan: gives tests, benchmarks and the demo a real control plane of local processes.
//!
//! In reading order: [`tools`] finds or builds the binaries, [`cluster`] is the control plane to its user, `start`
//! and `keeper` run its processes, [`identity`] has its users, [`api`] and kubectl talk to it, [`connect`] leads to it, [`audit`]
//! shows the requests that it has seen, [`namespace`] keeps tests apart, [`wait`] waits for conditions.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! use std::time::Duration;
//!
//! let cluster = cluster::shared()?;
//! let namespace = cluster.namespace("example")?;
//! let maps = namespace.path("v1", "configmaps");
//! cluster.api().create(&maps, &serde_json::json!({ "metadata": { "name": "a" }, "data": { "key": "value" } }))?;
//! cluster::wait::until_ok(Duration::from_secs(5), "the config map", || cluster.api().get(&format!("{maps}/a")))?;
//! # Ok(())
//! # }
//! ```

use std::env;
use std::io::Write;
use std::panic;
use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Result, anyhow};

pub mod api;
pub mod audit;
pub mod cluster;
pub mod connect;
pub mod identity;
mod keeper;
pub mod namespace;
mod start;
pub mod tools;
pub mod wait;

pub use api::{Api, ApiError, Call, Reply};
pub use audit::{Audit, AuditScope, Mark, Query, Request};
pub use cluster::{Cluster, Options};
pub use identity::{ADMIN, User, VISITOR};
pub use namespace::Namespace;
pub use tools::{Progress, Tool, Tools, cache, kubernetes_version, prepare};

/// Names the folder of a running control plane that [`shared`] attaches to.
pub const SHARED: &str = "CAPSTAN_TEST_CLUSTER";
/// Keeps logs and namespaces after the end, so that they can be looked at.
pub const KEEP: &str = "CAPSTAN_KEEP";

/// Returns the control plane that all tests of a run share: the one that [`SHARED`] names, else one of this process,
/// started with the first call and ended with the process. A panic keeps its logs and prints where they are.
///
/// # Errors
/// As [`Cluster::attach`] or [`Cluster::start`]; each call then fails for the same reason.
pub fn shared() -> Result<&'static Cluster> {
    shared_with(Options::default)
}

/// Returns the control plane that all tests of a run share, like [`shared`]; if it has to be started, then with these
/// options.
///
/// # Errors
/// As [`shared`].
pub fn shared_with(options: impl FnOnce() -> Options) -> Result<&'static Cluster> {
    static CLUSTER: OnceLock<Result<Cluster, String>> = OnceLock::new();
    let cluster = CLUSTER.get_or_init(|| open_shared(&options()).map_err(|error| format!("{error:#}")));
    cluster.as_ref().map_err(|error| anyhow!(error.clone()))
}

fn open_shared(options: &Options) -> Result<Cluster> {
    if let Some(folder) = env::var_os(SHARED).filter(|folder| !folder.is_empty()) {
        return Cluster::attach(Path::new(&folder));
    }
    let cluster = Cluster::start(options)?;
    let folder = cluster.dir().to_owned();
    if is_kept() {
        cluster.keep()?;
        say(&format!("the control plane's folder is {}", folder.display()));
    }
    // A value in a static is never dropped, so a failing test has to be noticed here.
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if start::keep(&folder).is_ok() {
            say(&format!("the logs of the control plane are in {}", folder.display()));
        }
        before(info);
    }));
    Ok(cluster)
}

/// Returns true if [`KEEP`] is set.
fn is_kept() -> bool {
    env::var_os(KEEP).is_some_and(|value| !value.is_empty() && value != "0")
}

fn hex<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> String {
    const DIGITS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let halves = bytes.into_iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    halves.filter_map(|half| DIGITS.get(usize::from(half))).collect()
}

/// Writes a line to standard error itself, past the test harness: it shows while a test waits.
fn say(line: &str) {
    // This can't be reported anywhere.
    drop(writeln!(std::io::stderr(), "cluster: {line}"));
}
