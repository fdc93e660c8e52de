//! Builds the sample plugins as components and puts them, with their manifests, where the daemon and the tests find them.

mod go;
mod javascript;
mod python;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::builds;
use crate::process::Finished;
use crate::test::tally::Tally;
use crate::ui::{self, Task, Ui, size};
use crate::workspace::{Package, Workspace};

/// What components are compiled for.
pub(crate) const TARGET: &str = "wasm32-wasip2";
/// Cargo's profile for components, and the folder that it builds them in.
pub(crate) const PROFILE: &str = "plugin";

/// `cargo xtask plugins`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask plugins                  all of them
  cargo xtask plugins webpage          one
  cargo xtask plugins webpage-python   one in another language: its tools are installed the first time

They are put into <target>/plugins/NAME.wasm, with the manifest plugins/NAME/NAME.yaml beside it:
  capstan run -m target/plugins/webpage.yaml")]
pub(crate) struct Args {
    /// Which plugins; without it all below plugins/.
    names: Vec<String>,
}

/// A sample plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Plugin<'a> {
    /// A package of the workspace.
    Rust(&'a Package),
    /// A folder with something else in it.
    Other(Other),
}

/// A plugin that cargo does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Other {
    name: String,
    folder: PathBuf,
    language: Language,
}

/// A language other than Rust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Python,
    JavaScript,
    Go,
}

/// What has become of the unit tests of a language.
#[derive(Debug)]
pub(crate) struct Tested {
    /// How the first run that failed has ended, or else the last one; and what all wrote.
    pub(crate) finished: Finished,
    /// What they add up to.
    pub(crate) tally: Tally,
}

/// Whether a file had to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Put {
    Changed,
    Unchanged,
}

/// Runs the command.
pub(crate) fn run(ui: &Ui, workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    ui.doing("plugins", |task| build(task, workspace, &args.names))?;
    ui::uncut(format!("    {}", workspace.built_plugins().display()));
    Ok(ExitCode::SUCCESS)
}

/// Builds plugins, all if none is named; returns a sentence on each.
pub(crate) fn build(task: &mut Task, workspace: &Workspace, names: &[String]) -> Result<String> {
    let plugins = chosen(workspace, names)?;
    let folder = workspace.built_plugins();
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let packages: Vec<&Package> = plugins.iter().filter_map(Plugin::package).collect();
    let mut details = Vec::new();
    if !packages.is_empty() {
        let built = build_packages(task, workspace, &packages)?;
        for package in packages {
            details.push(install(package, &built, &folder)?);
        }
    }
    for plugin in &plugins {
        if let Plugin::Other(other) = plugin {
            details.push(other.build(task, workspace, &folder)?);
        }
    }
    Ok(details.join(", "))
}

/// Runs the unit tests of a language's SDK and plugins.
pub(crate) fn test(task: &mut Task, workspace: &Workspace, language: Language) -> Result<Tested> {
    let folders: Vec<PathBuf> =
        others(workspace)?.into_iter().filter(|other| other.language == language).map(|other| other.folder).collect();
    match language {
        Language::Python => python::test(task, workspace, &folders),
        Language::JavaScript => javascript::test(task, workspace, &folders),
        Language::Go => go::test(task, workspace, &folders),
    }
}

/// Makes the packages of a language's SDK in the folder `out`.
pub(crate) fn pack(task: &mut Task, workspace: &Workspace, language: Language, out: &Path) -> Result<()> {
    match language {
        Language::Python => python::pack(task, workspace, out),
        Language::JavaScript => javascript::pack(task, workspace, out),
        Language::Go => go::pack(task, workspace, out),
    }
}

/// Builds packages, and returns the folder that their components are in.
fn build_packages(task: &mut Task, workspace: &Workspace, packages: &[&Package]) -> Result<PathBuf> {
    ensure_target(task, workspace, TARGET)?;
    let mut command = workspace.cargo();
    command.args(["build", "--target", TARGET, "--profile", PROFILE]);
    for package in packages {
        command.args(["-p", &package.name]);
    }
    builds::must(task, command, "the build of the plugins")?;
    Ok(workspace.target.join(TARGET).join(PROFILE))
}

fn chosen<'a>(workspace: &'a Workspace, names: &[String]) -> Result<Vec<Plugin<'a>>> {
    let mut all: Vec<Plugin<'a>> = workspace.plugins().map(Plugin::Rust).collect();
    all.extend(others(workspace)?.into_iter().map(Plugin::Other));
    if names.is_empty() {
        return Ok(all);
    }
    let find = |name: &String| {
        let found = all.iter().find(|plugin| plugin.name() == name);
        found.cloned().with_context(|| {
            let known: Vec<&str> = all.iter().map(Plugin::name).collect();
            format!("no plugin {name}; there is {}", known.join(", "))
        })
    };
    names.iter().map(find).collect()
}

/// Returns the plugins in other languages, by name.
fn others(workspace: &Workspace) -> Result<Vec<Other>> {
    let folder = workspace.root.join("plugins");
    let entries = fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
    let mut others = Vec::new();
    for entry in entries {
        let folder = entry?.path();
        if let (Some(language), Some(name)) = (Language::of(&folder), folder.file_name()) {
            others.push(Other { name: name.to_string_lossy().into_owned(), folder, language });
        }
    }
    others.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(others)
}

// === impl Plugin ===

impl Plugin<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Rust(package) => &package.name,
            Self::Other(other) => &other.name,
        }
    }

    fn package(&self) -> Option<&Package> {
        match self {
            Self::Rust(package) => Some(package),
            Self::Other(_) => None,
        }
    }
}

// === impl Other ===

impl Other {
    /// Builds it into `folder`, beside its manifest; returns a sentence on it.
    fn build(&self, task: &mut Task, workspace: &Workspace, folder: &Path) -> Result<String> {
        let Self { name, folder: source, language } = self;
        let wasm = folder.join(name).with_extension("wasm");
        let before = fs::read(&wasm).ok();
        match language {
            Language::Python => python::build(task, workspace, source, &wasm)?,
            Language::JavaScript => javascript::build(task, workspace, source, &wasm)?,
            Language::Go => go::build(task, workspace, source, &wasm)?,
        }
        put_manifest(source, name, folder)?;
        let after = fs::read(&wasm).with_context(|| format!("read {}", wasm.display()))?;
        let put = if before.as_ref() == Some(&after) { Put::Unchanged } else { Put::Changed };
        Ok(put.said(name, after.len()))
    }
}

// === impl Tested ===

impl Tested {
    /// Adds another run.
    fn add(&mut self, other: Self) {
        let Self { finished, tally } = other;
        if self.finished.status.success() {
            self.finished.status = finished.status;
        }
        self.finished.output.extend(finished.output);
        self.tally.add(tally);
    }
}

// === impl Language ===

impl Language {
    pub(crate) const ALL: [Self; 3] = [Self::Python, Self::JavaScript, Self::Go];

    /// Returns the language that the files of a plugin are written in; none if that is Rust, or nothing.
    fn of(folder: &Path) -> Option<Self> {
        let has = |name: &str| folder.join(name).is_file();
        let python = || {
            let mut entries = fs::read_dir(folder).ok()?.flatten();
            entries.find(|entry| entry.path().extension().is_some_and(|end| end == "py"))
        };
        if has("Cargo.toml") {
            None
        } else if has("go.mod") {
            Some(Self::Go)
        } else if has("package.json") {
            Some(Self::JavaScript)
        } else {
            python().map(|_| Self::Python)
        }
    }
}

/// Makes sure that the standard library for a target is there.
pub(crate) fn ensure_target(task: &mut Task, workspace: &Workspace, target: &str) -> Result<()> {
    let output = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", target])
        .current_dir(&workspace.root)
        .output()
        .context("start rustc")?;
    let library = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && Path::new(library.trim()).is_dir() {
        return Ok(());
    }
    task.at("adding the target to the toolchain");
    let mut command = Command::new("rustup");
    command.args(["target", "add", target]).current_dir(&workspace.root);
    builds::must(task, command, &format!("rustup target add {target}")).with_context(|| {
        format!(
            "Rust's standard library for {target} is missing: install Rust by https://rustup.rs, \
             or add {target} to your toolchain by its own means"
        )
    })
}

/// Puts a component and its manifest into `folder`; returns a sentence on it.
fn install(package: &Package, built: &Path, folder: &Path) -> Result<String> {
    let Package { name, component, .. } = package;
    let library = component.as_deref().unwrap_or(name).replace('-', "_");
    let wasm = built.join(library).with_extension("wasm");
    let bytes = fs::read(&wasm).with_context(|| format!("read {}", wasm.display()))?;
    let put = put(&folder.join(name).with_extension("wasm"), &bytes)?;
    put_manifest(&package.folder, name, folder)?;
    Ok(put.said(name, bytes.len()))
}

/// Puts the manifest of a plugin, if it has one, beside its component.
fn put_manifest(source: &Path, name: &str, folder: &Path) -> Result<()> {
    let manifest = source.join(name).with_extension("yaml");
    if manifest.is_file() {
        let text = fs::read(&manifest).with_context(|| format!("read {}", manifest.display()))?;
        put(&folder.join(name).with_extension("yaml"), &text)?;
    }
    Ok(())
}

impl Put {
    fn said(self, name: &str, bytes: usize) -> String {
        let word = match self {
            Self::Changed => "built",
            Self::Unchanged => "unchanged",
        };
        format!("{name} ({}, {word})", size(bytes as u64))
    }
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
    part.persist(path).with_context(|| format!("write {}", path.display()))?;
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
        let root = tempfile::tempdir().unwrap();
        let workspace = workspace(root.path());
        for (plugin, file) in [
            ("page-go", "go.mod"),
            ("page-js", "package.json"),
            ("page-py", "page.py"),
            ("probe", "Cargo.toml"),
            ("notes", "README.md"),
        ] {
            let folder = root.path().join("plugins").join(plugin);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(file), "").unwrap();
        }
        let error = chosen(&workspace, &["webpgae".to_owned()]).unwrap_err();
        assert_eq!(error.to_string(), "no plugin webpgae; there is web-page, probe, page-go, page-js, page-py");
        let names = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            let plugins = chosen(&workspace, &names).unwrap();
            let names: Vec<String> = plugins.iter().map(|plugin| plugin.name().to_owned()).collect();
            names.join(" ")
        };
        assert_eq!(names(&[]), "web-page probe page-go page-js page-py");
        assert_eq!(names(&["probe", "page-js"]), "probe page-js");
        let languages = others(&workspace).unwrap().into_iter().map(|other| other.language);
        assert_eq!(languages.collect::<Vec<_>>(), [Language::Go, Language::JavaScript, Language::Python]);
    }

    #[test]
    fn a_component_and_its_manifest_are_put_side_by_side_and_only_if_changed() {
        let root = tempfile::tempdir().unwrap();
        let workspace = workspace(root.path());
        let built = root.path().join("built");
        let folder = workspace.built_plugins();
        let [page, _] = workspace.packages.as_slice() else { panic!("two packages") };
        for path in [&built, &folder, &page.folder] {
            fs::create_dir_all(path).unwrap();
        }
        fs::write(built.join("web_page.wasm"), "wasm").unwrap();
        fs::write(page.folder.join("web-page.yaml"), "yaml").unwrap();
        let install = || install(page, &built, &folder).unwrap();
        assert_eq!([install(), install()], ["web-page (0 KB, built)", "web-page (0 KB, unchanged)"]);
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!([read("web-page.wasm"), read("web-page.yaml")], ["wasm", "yaml"]);
        let files = fs::read_dir(&folder).unwrap().count();
        assert_eq!(files, 2, "nothing is left of the writing");
    }
}
