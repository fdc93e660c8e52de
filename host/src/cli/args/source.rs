//! The arguments that say where manifests are, and what may be kept and taken for their components.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::registry::MirrorsOf;
use super::{seconds, size};

/// The variable that names manifests.
pub(super) const MANIFESTS: &str = "CAPSTAN_MANIFESTS";

/// The manifests and the options for their components.
#[derive(Args, Clone, Debug)]
pub struct Source {
    /// A manifest, or a folder whose *.yaml and *.yml files are manifests; may be given several times.
    #[arg(
        short,
        long = "manifest",
        value_name = "PATH",
        required = true,
        env = MANIFESTS,
        value_delimiter = ','
    )]
    pub manifests: Vec<PathBuf>,
    /// A file with what holds for controllers and dependents whose manifest does not say otherwise; read once (`capstan schema
    /// defaults` has its fields).
    #[arg(long, value_name = "FILE", env = "CAPSTAN_DEFAULTS")]
    pub defaults: Option<PathBuf>,
    /// The folder of compiled components; without it capstan/code below `$XDG_CACHE_HOME` or ~/.cache.
    #[arg(long, value_name = "FOLDER", env = "CAPSTAN_CODE_CACHE")]
    pub code_cache: Option<PathBuf>,
    /// A file with 32 random bytes or more, the key by which the daemon recognises compiled components as its own;
    /// without it, a key is made in the folder of the code cache.
    #[arg(long, value_name = "FILE", env = "CAPSTAN_CODE_CACHE_KEY_FILE")]
    pub code_cache_key_file: Option<PathBuf>,
    /// The most that is kept of compiled components: those go that were used longest ago, and none that is in use.
    #[arg(long, value_name = "SIZE", default_value = "2Gi", value_parser = size, allow_hyphen_values = true, env = "CAPSTAN_CODE_CACHE_SIZE")]
    pub code_cache_size: u64,
    /// The folder of components that were pulled from registries; without it the folder components within that of compiled ones.
    #[arg(long, value_name = "FOLDER", env = "CAPSTAN_COMPONENT_CACHE")]
    pub component_cache: Option<PathBuf>,
    /// The most that is kept of components that were pulled: those go that were used longest ago, and none that is in use.
    #[arg(long, value_name = "SIZE", default_value = "1Gi", value_parser = size, allow_hyphen_values = true, env = "CAPSTAN_COMPONENT_CACHE_SIZE")]
    pub component_cache_size: u64,
    /// A registry, with its port, that a manifest may ask without TLS (component.insecure); may be given several times.
    #[arg(
        long = "insecure-registry",
        value_name = "HOST:PORT",
        value_parser = host,
        env = "CAPSTAN_INSECURE_REGISTRIES",
        value_delimiter = ','
    )]
    pub insecure_registries: Vec<String>,
    /// Where registries are mirrored.
    #[command(flatten)]
    pub mirrors: MirrorsOf,
    /// A file with a public key in PEM: components of registries have to be signed by it, or by one of them if it is given several
    /// times, and by what their manifest demands (component.verify) as well.
    #[arg(long = "verify-key", value_name = "FILE", env = "CAPSTAN_VERIFY_KEYS", value_delimiter = ',')]
    pub verify_keys: Vec<PathBuf>,
    /// The most memory that compiling a component may take; without it, what is left of the cgroup's limit or the
    /// machine's, at most 2Gi.
    #[arg(long, value_name = "SIZE", value_parser = size, allow_hyphen_values = true, env = "CAPSTAN_COMPILE_MEMORY")]
    pub compile_memory: Option<u64>,
    /// The most CPU time that compiling a component may take; by the clock it may take three times that.
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = seconds, allow_hyphen_values = true, env = "CAPSTAN_COMPILE_TIMEOUT")]
    pub compile_timeout: Duration,
}

impl Source {
    /// Leaves out the manifests that are missing, if they are those that the environment names.
    pub(super) fn leave_unmounted(&mut self, environment: Option<&OsStr>) {
        let named = environment.and_then(OsStr::to_str).into_iter().flat_map(|paths| paths.split(','));
        if named.map(PathBuf::from).eq(self.manifests.iter().cloned()) {
            self.manifests.retain(|path| path.exists());
        }
    }
}

/// Reads a host with its port, as it stands in references.
fn host(text: &str) -> Result<String, String> {
    let is_one = !text.is_empty() && !text.contains(|c: char| c == '/' || c.is_whitespace());
    is_one.then(|| text.to_owned()).ok_or_else(|| {
        "expected a host with its port, such as registry.dev.svc:5000, without https:// or a path".to_owned()
    })
}
