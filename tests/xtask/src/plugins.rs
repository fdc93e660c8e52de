//! Builds the sample plugins, and those that only tests use, as components and puts them, with their manifests, where the daemon and the tests find them.

mod go;
mod javascript;
mod python;

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::files;
use crate::process::{self, Finished};
use crate::test::tally::Tally;
use crate::ui::{self, Task, Ui, size};
use crate::workspace::Workspace;

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
    /// Which plugins; without it all in plugins/ and tests/guests/.
    names: Vec<String>,
}

#[derive(Clone)]
struct Plugin {
    name: String,
    folder: PathBuf,
    /// None if it is a package of the workspace.
    language: Option<&'static Language>,
}

/// A language other than Rust, and what is done by its own means.
pub(crate) struct Language {
    /// What the name of some file ends with in the folder of a plugin in it.
    mark: &'static str,
    /// What components in it are made of beside that folder, from the root.
    inputs: &'static [&'static str],
    /// Builds the plugin in a folder, and returns the component.
    build: fn(&mut Task, &Workspace, &Path) -> Result<Vec<u8>>,
    /// Runs the unit tests of the SDK and of the plugins in these folders. That tests fail is no error.
    pub(crate) test: fn(&mut Task, &Workspace, &[PathBuf]) -> Result<Vec<Tested>>,
    /// Makes the packages of the SDK in a folder.
    pub(crate) pack: fn(&mut Task, &Workspace, &Path) -> Result<()>,
}

/// A run of unit tests, and what they add up to.
pub(crate) type Tested = (Finished, Tally);

pub(crate) const LANGUAGES: [&Language; 3] = [&go::LANGUAGE, &javascript::LANGUAGE, &python::LANGUAGE];

pub(crate) fn run(ui: &Ui, workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    ui.doing("plugins", |task| build(task, workspace, &args.names))?;
    ui::uncut(format!("    {}", workspace.built_plugins().display()));
    Ok(ExitCode::SUCCESS)
}

/// Builds plugins, all if none is named; returns a sentence on each.
pub(crate) fn build(task: &mut Task, workspace: &Workspace, names: &[String]) -> Result<String> {
    let plugins = chosen(all(workspace)?, names)?;
    let mut command = workspace.cargo();
    command.args(["build", "--target", TARGET, "--profile", PROFILE]);
    let mut packages = plugins.iter().filter(|plugin| plugin.language.is_none()).peekable();
    if packages.peek().is_some() {
        ensure_target(task, workspace, TARGET)?;
        command.args(packages.flat_map(|plugin| ["-p", &plugin.name]));
        process::must(task, command, "the build of the plugins")?;
    }
    let installed = plugins.iter().map(|plugin| plugin.install(task, workspace));
    Ok(installed.collect::<Result<Vec<_>>>()?.join(", "))
}

/// Returns the toolchain of Go that the SDK names, as `GOTOOLCHAIN` wants it.
pub(crate) fn go_toolchain(workspace: &Workspace) -> Result<String> {
    go::named(workspace, "toolchain ")
}

/// Runs the unit tests of a language's SDK and plugins.
pub(crate) fn test(task: &mut Task, workspace: &Workspace, language: &'static Language) -> Result<Vec<Tested>> {
    let plugins = all(workspace)?.into_iter();
    let those = plugins.filter(|plugin| plugin.language.is_some_and(|its| its.mark == language.mark));
    (language.test)(task, workspace, &those.map(|plugin| plugin.folder).collect::<Vec<_>>())
}

/// Runs unit tests, and reads what they add up to. A run that fails has a failure, whatever it says.
fn tested(task: &mut Task, command: Command, results: fn(&[String]) -> Tally) -> Result<Tested> {
    let folder = command.get_current_dir().map(|folder| folder.display().to_string()).unwrap_or_default();
    let finished = process::run(command, &mut |line| {
        if !line.trim().is_empty() {
            task.at(line.trim());
        }
    })?;
    let mut tally = results(&finished.output);
    if !finished.status.success() && tally.failed == 0 {
        tally.failed = 1;
        tally.failures.push(format!("{folder} (ended without a result)"));
    }
    Ok((finished, tally))
}

fn all(workspace: &Workspace) -> Result<Vec<Plugin>> {
    let mut plugins = Vec::new();
    for folder in workspace.plugins()?.into_iter().filter(|path| path.is_dir()) {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let files = files::entries(&folder)?;
        let has = |mark: &str| files.iter().any(|file| file.to_string_lossy().ends_with(mark));
        let language = LANGUAGES.into_iter().find(|language| has(language.mark));
        if has("Cargo.toml") {
            plugins.push(Plugin { name, folder, language: None });
        } else if language.is_some() {
            plugins.push(Plugin { name, folder, language });
        }
    }
    Ok(plugins)
}

fn chosen(all: Vec<Plugin>, names: &[String]) -> Result<Vec<Plugin>> {
    if names.is_empty() {
        return Ok(all);
    }
    let find = |name: &String| {
        all.iter().find(|plugin| plugin.name == *name).cloned().with_context(|| {
            let known: Vec<&str> = all.iter().map(|plugin| &*plugin.name).collect();
            format!("no plugin {name}; there is {}", known.join(", "))
        })
    };
    names.iter().map(find).collect()
}

impl Plugin {
    /// Puts the component and the manifest, if it has one, side by side; returns a sentence on it.
    fn install(&self, task: &mut Task, workspace: &Workspace) -> Result<String> {
        let Self { name, folder, language } = self;
        let to = workspace.built_plugins().join(name);
        let wasm = to.with_extension("wasm");
        let is_changed = if let Some(language) = language {
            self.build(task, workspace, language, &wasm)?
        } else {
            let library = name.replace('-', "_");
            let built = workspace.target.join(TARGET).join(PROFILE).join(library).with_extension("wasm");
            files::put(&wasm, &files::bytes(&built)?)?
        };
        let manifest = folder.join(name).with_extension("yaml");
        if manifest.is_file() {
            files::put(&to.with_extension("yaml"), &files::bytes(&manifest)?)?;
        }
        let word = if is_changed { "built" } else { "unchanged" };
        Ok(format!("{name} ({}, {word})", size(wasm.metadata()?.len())))
    }

    /// Builds the component, unless what is there was built of the same files; returns whether it has changed.
    fn build(&self, task: &mut Task, workspace: &Workspace, language: &Language, wasm: &Path) -> Result<bool> {
        let mut places: Vec<&Path> = language.inputs.iter().map(Path::new).collect();
        places.push(&self.folder);
        let inputs = files::fingerprint(&workspace.root, &places)?;
        let note = wasm.with_extension("wasm.built");
        if fs::read_to_string(&note).is_ok_and(|noted| noted == built(inputs, wasm)) {
            return Ok(false);
        }
        task.at(&format!("building {}", workspace.short(&self.folder).display()));
        let component = (language.build)(task, workspace, &self.folder)?;
        let is_changed = files::put(wasm, &component)?;
        // Last: a build that was cut short is done again.
        files::put(&note, built(inputs, wasm).as_bytes())?;
        Ok(is_changed)
    }
}

/// Returns the note that a component was built from these inputs. It tells of the component too: worktrees share the folder.
fn built(inputs: u64, component: &Path) -> String {
    let mut hasher = DefaultHasher::new();
    // Without a component it says so, and is never what was noted.
    fs::read(component).ok().hash(&mut hasher);
    format!("{inputs:016x} {:016x}\n", hasher.finish())
}

/// Makes sure that the standard library for a target is there.
pub(crate) fn ensure_target(task: &mut Task, workspace: &Workspace, target: &str) -> Result<()> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", target]).current_dir(&workspace.root);
    let output = rustc.output().context("start rustc")?;
    let library = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && Path::new(library.trim()).is_dir() {
        return Ok(());
    }
    task.at("adding the target to the toolchain");
    let mut command = Command::new("rustup");
    command.args(["target", "add", target]).current_dir(&workspace.root);
    process::must(task, command, &format!("rustup target add {target}")).with_context(|| {
        format!(
            "Rust's standard library for {target} is missing: install Rust by https://rustup.rs, \
             or add {target} to your toolchain by its own means"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugins(root: &Path) -> Workspace {
        let workspace = Workspace { root: root.to_owned(), target: root.join("target"), benches: vec![] };
        for file in [
            "plugins/page-go/go.mod",
            "plugins/page-js/package.json",
            "plugins/page-js/tool.py",
            "plugins/web-page/Cargo.toml",
            "plugins/notes/README.md",
            "tests/guests/probe-py/probe.py",
        ] {
            files::put(&root.join(file), b"").unwrap();
        }
        workspace
    }

    #[test]
    fn a_name_that_is_no_plugin_is_refused_with_those_that_are() {
        let root = tempfile::tempdir().unwrap();
        let workspace = plugins(root.path());
        let all = || all(&workspace).unwrap();
        let error = chosen(all(), &["webpgae".to_owned()]).err().unwrap();
        assert_eq!(error.to_string(), "no plugin webpgae; there is page-go, page-js, web-page, probe-py");
        assert_eq!(chosen(all(), &[]).unwrap().len(), 4);
        let [page] = chosen(all(), &["page-js".to_owned()]).unwrap().try_into().ok().unwrap();
        assert_eq!((&*page.name, page.language.unwrap().mark), ("page-js", "package.json"));
    }

    #[test]
    fn a_component_and_its_manifest_are_put_side_by_side_and_only_if_changed() {
        let root = tempfile::tempdir().unwrap();
        let workspace = plugins(root.path());
        let built = workspace.target.join(TARGET).join(PROFILE).join("web_page.wasm");
        files::put(&built, b"wasm").unwrap();
        files::put(&root.path().join("plugins/web-page/web-page.yaml"), b"yaml").unwrap();
        let [page] = chosen(all(&workspace).unwrap(), &["web-page".to_owned()]).unwrap().try_into().ok().unwrap();
        let install = || page.install(&mut Ui::new().task("test"), &workspace).unwrap();
        assert_eq!([install(), install()], ["web-page (0 KB, built)", "web-page (0 KB, unchanged)"]);
        let read = |name: &str| fs::read_to_string(workspace.built_plugins().join(name)).unwrap();
        assert_eq!([read("web-page.wasm"), read("web-page.yaml")], ["wasm", "yaml"]);
    }

    #[test]
    fn a_component_is_as_noted_until_it_or_its_sources_change() {
        let root = tempfile::tempdir().unwrap();
        let out = root.path().join("a.wasm");
        fs::write(&out, "wasm").unwrap();
        let noted = built(1, &out);
        assert!(built(1, &out) == noted && built(2, &out) != noted);
        fs::write(&out, "other").unwrap();
        assert_ne!(built(1, &out), noted);
        fs::remove_file(&out).unwrap();
        assert_ne!(built(1, &out), noted);
    }
}
