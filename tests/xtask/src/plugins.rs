//! Builds the sample plugins as components and puts them, with their manifests, where the daemon and the tests find them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::builds;
use crate::ui::{self, Task, Ui, size};
use crate::workspace::{Package, Workspace};

/// What components are compiled for.
const TARGET: &str = "wasm32-wasip2";
/// Cargo's profile for components, and the folder that it builds them in.
const PROFILE: &str = "plugin";

/// `cargo xtask plugins`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask plugins            all of them
  cargo xtask plugins webpage    one

They are put into <target>/plugins/NAME.wasm, with the manifest plugins/NAME/NAME.yaml beside it:
  capstan run -m target/plugins/webpage.yaml")]
pub(crate) struct Args {
    /// Which plugins; without it all below plugins/.
    names: Vec<String>,
}

/// Whether a file had to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Put {
    Changed,
    Unchanged,
}

/// Runs the command.
///
/// # Errors
/// When a name is unknown, the target can't be had, or a build fails.
pub(crate) fn run(ui: &Ui, workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    ui.doing("plugins", |task| build(task, workspace, &args.names))?;
    ui::uncut(format!("    {}", workspace.built_plugins().display()));
    Ok(ExitCode::SUCCESS)
}

/// Builds plugins, all if none is named; returns a sentence on each.
///
/// # Errors
/// As [`run`].
pub(crate) fn build(task: &mut Task, workspace: &Workspace, names: &[String]) -> Result<String> {
    let packages = chosen(workspace, names)?;
    ensure_target(task, workspace)?;
    let mut command = workspace.cargo();
    command.args(["build", "--target", TARGET, "--profile", PROFILE]);
    for package in &packages {
        command.args(["-p", &package.name]);
    }
    builds::must(task, command, "the build of the plugins")?;
    let built = workspace.target.join(TARGET).join(PROFILE);
    let folder = workspace.built_plugins();
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let mut details = Vec::new();
    for package in packages {
        details.push(install(package, &built, &folder)?);
    }
    Ok(details.join(", "))
}

fn chosen<'a>(workspace: &'a Workspace, names: &[String]) -> Result<Vec<&'a Package>> {
    let all: Vec<&Package> = workspace.plugins().collect();
    if names.is_empty() {
        return Ok(all);
    }
    let find = |name: &String| {
        all.iter()
            .copied()
            .find(|package| package.name == *name)
            .with_context(|| {
                let known: Vec<&str> = all.iter().map(|package| package.name.as_str()).collect();
                format!("no plugin {name}; there is {}", known.join(", "))
            })
    };
    names.iter().map(find).collect()
}

/// Makes sure that the standard library for components is there.
fn ensure_target(task: &mut Task, workspace: &Workspace) -> Result<()> {
    let output = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", TARGET])
        .current_dir(&workspace.root)
        .output()
        .context("start rustc")?;
    let library = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && Path::new(library.trim()).is_dir() {
        return Ok(());
    }
    task.at("adding the target to the toolchain");
    let mut command = Command::new("rustup");
    command
        .args(["target", "add", TARGET])
        .current_dir(&workspace.root);
    builds::must(task, command, &format!("rustup target add {TARGET}")).with_context(|| {
        format!(
            "Rust's standard library for {TARGET} is missing: install Rust by https://rustup.rs, \
             or add {TARGET} to your toolchain by its own means"
        )
    })
}

/// Puts a component and its manifest into `folder`; returns a sentence on it.
fn install(package: &Package, built: &Path, folder: &Path) -> Result<String> {
    let Package {
        name, component, ..
    } = package;
    let library = component.as_deref().unwrap_or(name).replace('-', "_");
    let wasm = built.join(library).with_extension("wasm");
    let bytes = fs::read(&wasm).with_context(|| format!("read {}", wasm.display()))?;
    let put = put(&folder.join(name).with_extension("wasm"), &bytes)?;
    let manifest = package.folder.join(name).with_extension("yaml");
    if manifest.is_file() {
        let text = fs::read(&manifest).with_context(|| format!("read {}", manifest.display()))?;
        self::put(&folder.join(name).with_extension("yaml"), &text)?;
    }
    let word = match put {
        Put::Changed => "built",
        Put::Unchanged => "unchanged",
    };
    Ok(format!("{name} ({}, {word})", size(bytes.len() as u64)))
}

/// Writes a file unless it says that already. A daemon may be reading the file, and never sees half of it.
fn put(path: &Path, bytes: &[u8]) -> Result<Put> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(Put::Unchanged);
    }
    let folder = path.parent().context("a file is in a folder")?;
    let mut part = tempfile::Builder::new()
        // As any file that a build leaves; the umask still counts.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)?;
    std::io::Write::write_all(&mut part, bytes)?;
    part.persist(path)
        .with_context(|| format!("write {}", path.display()))?;
    Ok(Put::Changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(root: &Path) -> Workspace {
        let package = |name: &str| Package {
            name: name.to_owned(),
            folder: root.join("plugins").join(name),
            component: Some(name.replace('-', "_")),
            has_benches: false,
        };
        Workspace {
            root: root.to_owned(),
            target: root.join("target"),
            packages: vec![package("web-page"), package("probe")],
        }
    }

    #[test]
    fn a_name_that_is_no_plugin_is_refused_with_those_that_are() {
        let workspace = workspace(Path::new("/w"));
        let error = chosen(&workspace, &["webpgae".to_owned()]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no plugin webpgae; there is web-page, probe"
        );
        let names = |names: &[String]| {
            let packages = chosen(&workspace, names).unwrap();
            packages
                .iter()
                .map(|package| package.name.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (names(&[]), names(&["probe".to_owned()])),
            (
                vec!["web-page".to_owned(), "probe".to_owned()],
                vec!["probe".to_owned()]
            )
        );
    }

    #[test]
    fn a_component_and_its_manifest_are_put_side_by_side_and_only_if_changed() {
        let root = tempfile::tempdir().unwrap();
        let workspace = workspace(root.path());
        let built = root.path().join("built");
        let folder = workspace.built_plugins();
        let [page, _] = workspace.packages.as_slice() else {
            panic!("two packages")
        };
        for path in [&built, &folder, &page.folder] {
            fs::create_dir_all(path).unwrap();
        }
        fs::write(built.join("web_page.wasm"), "wasm").unwrap();
        fs::write(page.folder.join("web-page.yaml"), "yaml").unwrap();
        let install = || install(page, &built, &folder).unwrap();
        assert_eq!(
            [install(), install()],
            ["web-page (0 KB, built)", "web-page (0 KB, unchanged)"]
        );
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(
            [read("web-page.wasm"), read("web-page.yaml")],
            ["wasm", "yaml"]
        );
        let files = fs::read_dir(&folder).unwrap().count();
        assert_eq!(files, 2, "nothing is left of the writing");
    }
}
