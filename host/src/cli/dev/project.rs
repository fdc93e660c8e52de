//! Reads what an operator's folder says of itself: how it is built, and which files are its manifest, definitions and examples.

use std::path::{Path, PathBuf};

use capstan_core::schema::{Definition, definitions};
use serde::Deserialize;

use crate::cli::objects::{placed, text};

/// The file that says it.
pub(in crate::cli) const FILE: &str = "dev.yaml";

/// The file with definitions where the folder says nothing else.
pub(in crate::cli) const DEFINITIONS: &str = "crd.yaml";

/// An operator's folder.
#[derive(Debug)]
pub(in crate::cli) struct Project {
    /// The folder.
    pub(in crate::cli) folder: PathBuf,
    /// The command that makes the component, for a shell in the folder; `None` if there is none to make.
    pub(super) build: Option<String>,
    /// The command that prints what the types say of the custom resource; `None` if its definition is written by hand.
    pub(in crate::cli) types: Option<String>,
    /// The manifest.
    pub(super) manifest: PathBuf,
    /// Files with definitions of kinds, which are applied before it runs.
    pub(in crate::cli) definitions: Vec<PathBuf>,
    /// Files with objects that are applied once it runs.
    pub(super) examples: Vec<PathBuf>,
}

/// The content of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    #[serde(default)]
    build: Option<String>,
    #[serde(default)]
    types: Option<String>,
    #[serde(default = "manifest")]
    manifest: PathBuf,
    #[serde(default)]
    crds: Option<Vec<PathBuf>>,
    #[serde(default)]
    examples: Option<Vec<PathBuf>>,
}

fn manifest() -> PathBuf {
    "operator.yaml".into()
}

/// Returns the folder in which a manifest is.
pub(in crate::cli) fn folder_of(manifest: &Path) -> &Path {
    manifest.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the kinds that are defined in a folder: in the files that its `dev.yaml` names, or in `crd.yaml`.
///
/// # Errors
/// If a file can't be read, or what is wrong in it at which line.
pub(in crate::cli) fn definitions_in(folder: &Path) -> anyhow::Result<Vec<Definition>> {
    let files = if folder.join(FILE).is_file() {
        Project::said(folder)?.definitions
    } else {
        Some(folder.join(DEFINITIONS)).filter(|file| file.is_file()).into_iter().collect()
    };
    let mut all = Vec::new();
    for file in files {
        all.extend(definitions(&text(&file)?, &file)?);
    }
    Ok(all)
}

impl Project {
    /// Reads the folder, and makes sure that the files are there which it names.
    ///
    /// # Errors
    /// If it is none of an operator, or what is wrong with its file at which line.
    pub(super) fn read(folder: &Path) -> anyhow::Result<Self> {
        let project = Self::said(folder)?;
        if let Some(missing) = project.beside().find(|file| !file.is_file()) {
            anyhow::bail!(
                "{} is not the folder of an operator: there is no {}, which {} names",
                folder.display(),
                missing.display(),
                at(folder, Path::new(FILE)).display()
            );
        }
        Ok(project)
    }

    /// Reads what the folder says, whether the files are there or not.
    ///
    /// # Errors
    /// If it is none of an operator, or what is wrong with its file at which line.
    pub(in crate::cli) fn said(folder: &Path) -> anyhow::Result<Self> {
        let file = at(folder, Path::new(FILE));
        anyhow::ensure!(
            file.is_file(),
            "{} is not the folder of an operator: there is no {FILE}; expected a folder that `capstan init` has made, or a {FILE} with `build: COMMAND` in it beside the manifest operator.yaml",
            folder.display()
        );
        let Said { build, types, manifest, crds, examples } =
            serde_yaml::from_str(&text(&file)?).map_err(|error| placed(&file, &error))?;
        let usual = |said: Option<Vec<PathBuf>>, usual: &str| {
            let found = || Some(at(folder, Path::new(usual))).filter(|file| file.is_file()).into_iter().collect();
            said.map_or_else(found, |said| said.iter().map(|file| at(folder, file)).collect())
        };
        Ok(Self {
            build,
            types,
            manifest: at(folder, &manifest),
            definitions: usual(crds, DEFINITIONS),
            examples: usual(examples, "example.yaml"),
            folder: folder.to_owned(),
        })
    }
}

impl Project {
    /// Returns the files of which the component is not built.
    pub(super) fn beside(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.manifest].into_iter().chain(&self.definitions).chain(&self.examples)
    }
}

/// Returns a file of the folder, by the path that people know.
fn at(folder: &Path, file: &Path) -> PathBuf {
    if folder == Path::new(".") { file.to_owned() } else { folder.join(file) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_folder_says_how_it_is_built_and_the_rest_is_usual() {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| fs::write(folder.path().join(file), text).unwrap();
        let read = || Project::read(folder.path()).map_err(|error| error.to_string());
        let said = read().unwrap_err();
        assert!(said.contains("there is no dev.yaml; expected a folder that `capstan init` has made"), "{said}");
        write("dev.yaml", "build: make\n");
        let said = read().unwrap_err();
        assert!(said.contains("there is no ") && said.contains("operator.yaml, which "), "{said}");
        write("operator.yaml", "");
        write("example.yaml", "");
        let project = read().unwrap();
        assert_eq!((project.build.as_deref(), project.definitions.len()), (Some("make"), 0));
        assert_eq!(project.examples, [folder.path().join("example.yaml")]);
        write("dev.yaml", "crds: []\nbuilds: make\n");
        let said = read().unwrap_err();
        assert!(said.contains("dev.yaml:2:1: ") && said.contains("builds"), "{said}");
    }

    #[test]
    fn files_of_the_folder_that_one_is_in_are_named_as_they_are() {
        assert_eq!(at(Path::new("."), Path::new("a.yaml")), Path::new("a.yaml"));
        assert_eq!(at(Path::new("x"), Path::new("a.yaml")), Path::new("x/a.yaml"));
    }
}
