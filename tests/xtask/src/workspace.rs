//! Knows where things are: the workspace, its packages, cargo's target folder.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::files;

/// What `cargo metadata` says, as far as it is used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    /// The members that have benchmarks for `cargo bench`.
    pub(crate) benches: Vec<String>,
}

impl Workspace {
    pub(crate) fn load() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .context("this package is two folders below the root")?;
        let output =
            cargo(root).args(["metadata", "--format-version=1", "--no-deps"]).output().context("start cargo")?;
        if !output.status.success() {
            bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Self::read(&serde_json::from_slice(&output.stdout)?)
    }

    fn read(metadata: &Value) -> Result<Self> {
        let path = |field: &str| metadata.get(field).and_then(Value::as_str).map(PathBuf::from);
        let packages = metadata.get("packages").and_then(Value::as_array).context("cargo names no packages")?;
        let is_bench =
            |target: &Value| target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "bench"));
        let benches =
            packages.iter().filter(|package| package["targets"].as_array().is_some_and(|all| all.iter().any(is_bench)));
        Ok(Self {
            root: path("workspace_root").context("cargo names no workspace")?,
            target: path("target_directory").context("cargo names no target folder")?,
            benches: benches.filter_map(|package| Some(package["name"].as_str()?.to_owned())).collect(),
        })
    }

    pub(crate) fn cargo(&self) -> Command {
        cargo(&self.root)
    }

    /// Returns the build of the daemon. It has the features of the whole workspace, as tests and lints have them: with
    /// `-p capstan` a few dependencies of wasmtime have fewer, and wasmtime is compiled a second time.
    pub(crate) fn build_daemon(&self) -> Command {
        let mut command = self.cargo();
        command.args(["build", "--workspace", "--bin", "capstan"]);
        command
    }

    /// Returns the daemon's program, as [`Self::build_daemon`] builds it.
    pub(crate) fn daemon(&self) -> PathBuf {
        self.target.join("debug/capstan")
    }

    /// Returns the folders of the samples, then those of the components that only tests use.
    pub(crate) fn plugins(&self) -> Result<Vec<PathBuf>> {
        let [samples, guests] = ["plugins", "tests/guests"].map(|folder| files::entries(&self.root.join(folder)));
        Ok([samples?, guests?].concat())
    }

    pub(crate) fn built_plugins(&self) -> PathBuf {
        self.target.join("plugins")
    }

    /// Returns a path as seen from the root, for people.
    pub(crate) fn short<'a>(&self, path: &'a Path) -> &'a Path {
        path.strip_prefix(&self.root).unwrap_or(path)
    }
}

/// Returns cargo without what `cargo run` has told us: build scripts that look at such variables would run again.
fn cargo(folder: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(folder);
    untold(&mut command);
    command
}

/// Keeps from a command what `cargo run` has told us.
pub(crate) fn untold(command: &mut Command) {
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let ours = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"].iter().any(|start| text.starts_with(start))
            || ["CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE", "OUT_DIR"].contains(&&*text);
        if ours {
            command.env_remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A pattern, a command or a name with a placeholder names no file.
    #[test]
    fn the_files_that_documents_for_contributors_name_are_there() {
        let root = Workspace::load().unwrap().root;
        for document in ["CONTRIBUTING.md", "DESIGN.md", "SECURITY.md"] {
            let text = std::fs::read_to_string(root.join(document)).unwrap();
            let words = text.split('`').skip(1).step_by(2);
            let paths = words.filter(|word| {
                let top = word.split_once('/').map(|(top, _)| root.join(top));
                top.is_some_and(|top| top.is_dir())
                    && !(word.starts_with('/') || word.contains(['*', '{', ' ', '\n']))
                    && !word.contains("LANGUAGE")
            });
            let missing: Vec<&str> = paths.filter(|path| !root.join(path).exists()).collect();
            assert_eq!(missing, Vec::<&str>::new(), "{document}");
        }
    }

    #[test]
    fn packages_with_benchmarks_are_known_by_their_targets() {
        let package =
            |name: &str, kind: &str| json!({ "name": name, "targets": [{ "kind": ["lib"] }, { "kind": [kind] }] });
        let packages = [package("a", "bench"), package("b", "test")];
        let metadata = json!({ "workspace_root": "/w", "target_directory": "/t", "packages": packages });
        let workspace = Workspace::read(&metadata).unwrap();
        assert_eq!(workspace.benches, ["a"]);
        assert_eq!(workspace.built_plugins(), Path::new("/t/plugins"));
    }
}
