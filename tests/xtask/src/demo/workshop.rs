//! Builds another version of the sample, from a copy of its source, as its author would; the sample itself stays as it is.
//!
//! The copy is a workspace of its own, with what the root's says of versions, profiles and lints. It is built where all else is,
//! so that only the sample itself has to be compiled.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::builds;
use crate::demo::PLUGIN;
use crate::demo::edit::{Edit, Edited};
use crate::interrupt;
use crate::plugins::{PROFILE, TARGET};
use crate::ui::{Task, size};
use crate::workspace::Workspace;

/// The package's name in the copy. Under its own name it would be built over what the sample itself is built to.
const PACKAGE: &str = "webpage-demo";

/// Where the sample is changed and built.
#[derive(Debug)]
pub(crate) struct Workshop<'a> {
    workspace: &'a Workspace,
    /// Stays for the next time; demos at the same time take turns.
    folder: PathBuf,
    edit: Edit,
    edited: Edited,
}

/// Which source is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    AsItIs,
    Changed,
}

impl<'a> Workshop<'a> {
    /// Copies the source, and builds it once as it is, so that what it needs is there.
    ///
    /// # Errors
    /// When the line to be changed is not there, when files can't be read or written, when the build fails, or when
    /// interrupted.
    pub(crate) fn open(task: &mut Task, workspace: &'a Workspace, edit: Edit) -> Result<Self> {
        let edited = edit.apply(&read(&sample(workspace).join(edit.file))?)?;
        let workshop = Self { workspace, folder: workspace.target.join("demo"), edit, edited };
        workshop.build(task, Source::AsItIs)?;
        Ok(workshop)
    }

    /// Returns the file that is changed, for people, and what the change is.
    pub(crate) fn change(&self) -> (String, &Edited) {
        let path = sample(self.workspace).join(self.edit.file);
        let path = self.workspace.short(&path).display();
        (format!("{path}:{}", self.edited.line), &self.edited)
    }

    /// Builds the changed source, and writes the component to `out`; returns a sentence on it.
    ///
    /// # Errors
    /// When files can't be read or written, when the build fails, or when interrupted.
    pub(crate) fn rebuild(&self, task: &mut Task, out: &Path) -> Result<String> {
        let component = self.build(task, Source::Changed)?;
        fs::write(out, &component).with_context(|| format!("write {}", out.display()))?;
        Ok(format!("{PLUGIN} ({})", size(component.len() as u64)))
    }

    /// Returns commands by which a visitor changes the copy, builds it, and puts it in the place of `component`.
    pub(crate) fn by_hand(&self, component: &Path) -> [String; 2] {
        let arguments = self.arguments(|path| path.display().to_string());
        [
            format!("${{EDITOR:-vi}} {}", self.copy().join(self.edit.file).display()),
            format!("cargo {} && cp {} {}", arguments.join(" "), self.component().display(), component.display()),
        ]
    }

    fn copy(&self) -> PathBuf {
        self.folder.join(PLUGIN)
    }

    /// Returns where cargo puts the component.
    fn component(&self) -> PathBuf {
        let built = self.workspace.target.join(TARGET).join(PROFILE);
        built.join(PACKAGE.replace('-', "_")).with_extension("wasm")
    }

    fn arguments<T: From<&'static str>>(&self, path: impl Fn(&Path) -> T) -> [T; 9] {
        [
            "build".into(),
            "--manifest-path".into(),
            path(&self.folder.join("Cargo.toml")),
            "--target".into(),
            TARGET.into(),
            "--profile".into(),
            PROFILE.into(),
            "--target-dir".into(),
            path(&self.workspace.target),
        ]
    }

    /// Returns the component.
    fn build(&self, task: &mut Task, source: Source) -> Result<Vec<u8>> {
        fs::create_dir_all(&self.folder).with_context(|| format!("create {}", self.folder.display()))?;
        let _lock = hold(task, &self.folder.join("lock"))?;
        self.lay_out(source)?;
        let mut command = self.workspace.cargo();
        command.args(self.arguments(|path| path.as_os_str().to_owned()));
        builds::must(task, command, "the build of the copy of the sample")?;
        let component = self.component();
        fs::read(&component).with_context(|| format!("read {}", component.display()))
    }

    /// Writes all that the build needs, as another demo may have left something else.
    fn lay_out(&self, source: Source) -> Result<()> {
        let root = &self.workspace.root;
        let copy = self.copy();
        match fs::remove_dir_all(&copy) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("remove {}", copy.display()));
            }
            Ok(()) | Err(_) => {}
        }
        copy_all(&sample(self.workspace), &copy)?;
        let named = renaming().apply(&read(&copy.join("Cargo.toml"))?)?;
        write(&copy.join("Cargo.toml"), &named.text)?;
        match source {
            Source::AsItIs => {}
            Source::Changed => write(&copy.join(self.edit.file), &self.edited.text)?,
        }
        let manifest = manifest(&read(&root.join("Cargo.toml"))?, root)?;
        write(&self.folder.join("Cargo.toml"), &manifest)?;
        write(&self.folder.join("Cargo.lock"), &read(&root.join("Cargo.lock"))?)
    }
}

/// Returns the sample's folder.
fn sample(workspace: &Workspace) -> PathBuf {
    workspace.root.join("plugins").join(PLUGIN)
}

fn renaming() -> Edit {
    Edit { file: "Cargo.toml", from: "name = \"webpage\"", to: format!("name = \"{PACKAGE}\"") }
}

/// Returns the root's manifest for a workspace that has the copy as its only member.
fn manifest(text: &str, root: &Path) -> Result<String> {
    let root = root.to_str().context("the root's path is not Unicode")?;
    // A string of JSON is one of TOML. This one goes on.
    let quoted = serde_json::to_string(root)?;
    let path = format!("path = {}/", quoted.strip_suffix('"').unwrap_or(&quoted));
    let mut manifest = "# Follows from the root's, by `cargo xtask demo`.\n".to_owned();
    let mut section = "";
    for line in text.lines() {
        if line.starts_with('[') {
            section = line.trim();
        }
        let line = match section {
            "" => continue,
            // The other members stay where they are.
            "[workspace]" => match line.split_whitespace().next() {
                Some("[workspace]") => format!("{line}\nmembers = [\"{PLUGIN}\"]"),
                Some("resolver") => line.to_owned(),
                Some(_) | None => continue,
            },
            "[workspace.dependencies]" => line.replace("path = \"", &path), // Its overrides are for packages that are not needed here, which cargo would warn of.
            name if name.starts_with("[profile.dev") => continue,
            _ => line.to_owned(),
        };
        manifest.push_str(&line);
        manifest.push('\n');
    }
    let needed = ["[workspace]".to_owned(), "[workspace.dependencies]".to_owned(), format!("[profile.{PROFILE}]")];
    for section in needed {
        if !manifest.lines().any(|line| line.trim() == section) {
            bail!("Cargo.toml: there is no section {section}, which the copy of the sample needs");
        }
    }
    Ok(manifest)
}

/// Returns a lock that ends with the returned file, and with the process.
fn hold(task: &mut Task, path: &Path) -> Result<File> {
    let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {
                task.at("waiting for another demo, which builds");
                interrupt::pause()?;
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("lock {}", path.display()));
            }
        }
    }
}

fn copy_all(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("create {}", to.display()))?;
    let entries = fs::read_dir(from).with_context(|| format!("read {}", from.display()))?;
    for entry in entries {
        let entry = entry?;
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_all(&path, &to)?;
        } else {
            fs::copy(&path, &to).with_context(|| format!("copy {} to {}", path.display(), to.display()))?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::script;

    fn root() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
    }

    #[test]
    fn the_copy_has_what_the_root_says_and_is_the_only_member() {
        let text = r#"# The root.
[workspace]
resolver = "3"
members = [
  "host",
  "plugins/webpage",
]

[workspace.dependencies]
capstan-guest = { path = "sdk" }
serde = "1"

# For tests.
[profile.dev]
debug = false
[profile.dev.package.regalloc2]
opt-level = 1

[profile.plugin]
lto = true
"#;
        let expected = r#"# Follows from the root's, by `cargo xtask demo`.
[workspace]
members = ["webpage"]
resolver = "3"
[workspace.dependencies]
capstan-guest = { path = "/a \"b\"/sdk" }
serde = "1"

# For tests.
[profile.plugin]
lto = true
"#;
        assert_eq!(manifest(text, Path::new("/a \"b\"")).unwrap(), expected);
    }

    #[test]
    fn a_root_without_the_profile_is_refused() {
        let text = "[workspace]\n[workspace.dependencies]\n";
        let error = manifest(text, Path::new("/w")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Cargo.toml: there is no section [profile.plugin], which the copy of the sample needs"
        );
    }

    #[test]
    fn the_sample_has_the_lines_that_are_changed() {
        let sample = root().join("plugins").join(PLUGIN);
        for edit in [renaming(), script::edit()] {
            let text = read(&sample.join(edit.file)).unwrap();
            let edited = edit.apply(&text).unwrap();
            assert!(edited.after.contains(&edit.to));
        }
        manifest(&read(&root().join("Cargo.toml")).unwrap(), root()).unwrap();
    }

    #[test]
    fn a_copy_is_laid_out_anew_with_and_without_the_change() {
        let target = tempfile::tempdir().unwrap();
        let workspace = Workspace { root: root().to_owned(), target: target.path().to_owned(), packages: vec![] };
        let edit = script::edit();
        let source = read(&sample(&workspace).join(edit.file)).unwrap();
        let edited = edit.apply(&source).unwrap();
        let changed = edited.text.clone();
        let workshop = Workshop { workspace: &workspace, folder: target.path().join("demo"), edit, edited };
        fs::create_dir(&workshop.folder).unwrap();
        let library = workshop.copy().join("src/lib.rs");
        for (version, expected) in [(Source::Changed, &changed), (Source::AsItIs, &source)] {
            workshop.lay_out(version).unwrap();
            assert_eq!(&read(&library).unwrap(), expected);
            // Left by somebody; gone the next time.
            assert!(!workshop.copy().join("build.rs").exists());
            write(&workshop.copy().join("build.rs"), "").unwrap();
        }
        let package = read(&workshop.copy().join("Cargo.toml")).unwrap();
        assert!(package.contains("name = \"webpage-demo\"\n"));
        assert!(workshop.component().ends_with("wasm32-wasip2/plugin/webpage_demo.wasm"));
    }
}
