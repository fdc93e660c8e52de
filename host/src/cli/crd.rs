//! `capstan crd`: writes the `CustomResourceDefinition` that an author's types come to, or says where the file differs from it.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use capstan_core::rbac;
use capstan_core::schema::{drift, misspelt, typed};
use serde_json::Value;

use crate::cli::args::Crd;
use crate::cli::beside;
use crate::cli::dev::build::asked;
use crate::cli::dev::project::{DEFINITIONS, FILE, Project};
use crate::cli::objects::documents;
use crate::read;

/// Writes the file, or compares it with the types; exits with 1 if they differ.
///
/// # Errors
/// If the folder says no `types`, these come to no definition, or the file can't be read or written.
pub async fn run(args: &Crd) -> anyhow::Result<ExitCode> {
    let project = Project::said(&args.folder)?;
    let Some(command) = &project.types else {
        anyhow::bail!(
            "{} says no `types`: the command that prints what the types of the source say, such as `types: python -m capstan types app.py`",
            args.folder.join(FILE).display()
        );
    };
    let made = made(&project, command).await?;
    let file = file(&project, &made);
    let (mut lines, code) = if args.check {
        let lines = Found::read(&file)?.differences(&made);
        let code = if lines.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        (lines, code)
    } else {
        let changed = write(&file, command, &made)?.is_some();
        let what = if changed { "written" } else { "says already what the types say" };
        (vec![format!("{}: {what}", file.display())], ExitCode::SUCCESS)
    };
    lines.extend(spelling(&made));
    let text = lines.join("\n") + if lines.is_empty() { "" } else { "\n" };
    std::io::stdout().lock().write_all(text.as_bytes()).context("write to standard output")?;
    Ok(code)
}

/// Writes the file if the types have come to something else; returns its path then, and what it said otherwise, a line each.
///
/// # Errors
/// If the types come to no definition, or the file can't be read or written.
pub(super) async fn written(project: &Project) -> anyhow::Result<Option<(PathBuf, Vec<String>)>> {
    let Some(command) = &project.types else {
        return Ok(None);
    };
    let made = made(project, command).await?;
    let file = file(project, &made);
    Ok(write(&file, command, &made)?.map(|lost| (file, lost)))
}

/// Returns the definitions that the types come to.
async fn made(project: &Project, command: &str) -> anyhow::Result<Vec<Value>> {
    let said = asked(&project.folder, command, read::DEFINITIONS).await?;
    typed(&said, rbac::plural).with_context(|| format!("`{command}`"))
}

/// Returns the file with the definitions: the first of the folder's that has one of them, or is not there yet.
fn file(project: &Project, made: &[Value]) -> PathBuf {
    let usual = || if project.folder == Path::new(".") { DEFINITIONS.into() } else { project.folder.join(DEFINITIONS) };
    let has_one = |file: &&PathBuf| match Found::read(file) {
        Ok(found) => made.iter().any(|made| found.of(made).is_some()),
        Err(_) => !file.exists(),
    };
    project.definitions.iter().find(has_one).cloned().unwrap_or_else(usual)
}

/// Returns what is said of fields that are spelled otherwise than Kubernetes spells fields: it is right, but not what users expect.
fn spelling(made: &[Value]) -> Vec<String> {
    let mut lines: Vec<_> = made.iter().flat_map(misspelt).map(|line| format!("warning: {line}")).collect();
    let how = "warning: for all fields of a type in Rust, `#[serde(rename_all = \"camelCase\")]` says that";
    lines.extend((!lines.is_empty()).then(|| how.to_owned()));
    lines
}

/// Returns the first line of a file: where it comes from.
pub(super) fn origin(command: &str) -> String {
    format!("{ORIGIN}, by `{command}`: `capstan crd` writes it.")
}

/// How files begin that were written here.
const ORIGIN: &str = "# What the types of the source say";

/// Writes the definitions unless the file has them; returns what it said otherwise if it was written. What somebody else has written stays.
fn write(file: &Path, command: &str, made: &[Value]) -> anyhow::Result<Option<Vec<String>>> {
    let mut lines = Vec::new();
    if file.exists() {
        let found = Found::read(file)?;
        lines = found.differences(made);
        if lines.is_empty() {
            return Ok(None);
        }
        let others = found.others(made);
        ensure!(
            found.is_ours && others.is_empty(),
            "{}: {}, so it is not written anew; mend it by hand, or remove it:\n{}",
            file.display(),
            if found.is_ours { "there is more in it than the types say" } else { "`capstan crd` has not written it" },
            lines.join("\n")
        );
    }
    let texts: Result<Vec<_>, _> = made.iter().map(serde_yaml::to_string).collect();
    let text = format!("{}\n{}", origin(command), texts?.join("---\n"));
    beside::write(file, text.as_bytes())?;
    Ok(Some(lines))
}

/// What a file with definitions has.
struct Found {
    file: PathBuf,
    /// Whether it was written here.
    is_ours: bool,
    documents: Vec<Value>,
}

impl Found {
    fn read(file: &Path) -> anyhow::Result<Self> {
        let text = read::text(file, read::DEFINITIONS).with_context(|| format!("read {}", file.display()))?;
        let documents = documents(file, &text)?;
        Ok(Self { file: file.to_owned(), is_ours: text.starts_with(ORIGIN), documents })
    }

    /// Returns what it has in place of a definition.
    fn of(&self, definition: &Value) -> Option<&Value> {
        self.documents.iter().find(|found| name(found) == name(definition))
    }

    /// Returns where it differs from definitions, a line each.
    fn differences(&self, made: &[Value]) -> Vec<String> {
        let missing = |definition| vec![format!("{} is missing; the types have it", name(definition))];
        let lines = made.iter().flat_map(|definition| match self.of(definition) {
            Some(found) => drift(found, definition),
            None => missing(definition),
        });
        let others = self.others(made).into_iter().map(|what| format!("{what} is not in the types"));
        lines.chain(others).map(|line| format!("{}: {line}", self.file.display())).collect()
    }

    /// Returns what it has that the types have not: definitions, and versions of them.
    fn others(&self, made: &[Value]) -> Vec<String> {
        let mut others = Vec::new();
        for found in &self.documents {
            match made.iter().find(|made| name(made) == name(found)) {
                None => others.push(name(found)),
                Some(made) => {
                    let versions = versions(found).difference(&versions(made)).cloned().collect::<Vec<_>>();
                    others.extend(versions.into_iter().map(|version| format!("{version} of {}", name(found))));
                }
            }
        }
        others
    }
}

fn name(definition: &Value) -> String {
    definition.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn versions(definition: &Value) -> BTreeSet<String> {
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
    versions.filter_map(|version| Some(version.get("name")?.as_str()?.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const TYPES: &str = r#"{ "apiVersion": "sample.dev/v1", "kind": "Page", "schema": { "type": "object", "properties": { "spec": { "type": "object", "properties": { "name": { "type": "string", "maxLength": 63 } } } } } }"#;

    async fn crd(folder: &Path, check: bool) -> anyhow::Result<ExitCode> {
        run(&Crd { folder: folder.to_owned(), check }).await
    }

    #[tokio::test]
    async fn the_file_is_what_the_types_come_to_until_one_of_them_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = |file: &str| folder.path().join(file);
        fs::write(path("dev.yaml"), "types: cat types.json\n").unwrap();
        fs::write(path("types.json"), TYPES).unwrap();
        let said = crd(folder.path(), true).await.unwrap_err().to_string();
        assert!(said.contains("crd.yaml"), "{said}");
        assert_eq!(crd(folder.path(), false).await.unwrap(), ExitCode::SUCCESS);
        assert_eq!(crd(folder.path(), true).await.unwrap(), ExitCode::SUCCESS);
        let text = fs::read_to_string(path("crd.yaml")).unwrap();
        assert!(text.starts_with("# What the types of the source say, by `cat types.json`"), "{text}");
        // As people like it, and with something else in it.
        fs::write(path("crd.yaml"), text.replace("maxLength: 63", "maxLength: 64 # a")).unwrap();
        let project = Project::said(folder.path()).unwrap();
        let made = made(&project, "cat types.json").await.unwrap();
        let lines = Found::read(&path("crd.yaml")).unwrap().differences(&made);
        let expected = format!("{}: v1: spec.name: found maxLength 64; the types say 63", path("crd.yaml").display());
        assert_eq!(lines, [expected], "it is told by whoever writes it, too");
        assert_eq!(crd(folder.path(), true).await.unwrap(), ExitCode::FAILURE);
        assert_eq!(written(&project).await.unwrap(), Some((path("crd.yaml"), lines)));
        assert_eq!(written(&project).await.unwrap(), None);
    }

    #[tokio::test]
    async fn fields_that_kubernetes_would_spell_otherwise_are_told_and_written() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("dev.yaml"), "types: cat types.json\n").unwrap();
        let said = |types: &str| fs::write(folder.path().join("types.json"), types).unwrap();
        let project = Project::said(folder.path()).unwrap();
        said(TYPES);
        assert_eq!(spelling(&made(&project, "cat types.json").await.unwrap()), Vec::<String>::new());
        said(&TYPES.replace(r#""name""#, r#""full_name""#));
        let made = made(&project, "cat types.json").await.unwrap();
        assert_eq!(
            spelling(&made),
            [
                "warning: v1: spec.full_name: Kubernetes spells it fullName",
                "warning: for all fields of a type in Rust, `#[serde(rename_all = \"camelCase\")]` says that",
            ]
        );
        assert_eq!(crd(folder.path(), false).await.unwrap(), ExitCode::SUCCESS);
    }

    #[tokio::test]
    async fn what_somebody_else_has_written_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = |file: &str| folder.path().join(file);
        fs::write(path("types.json"), TYPES).unwrap();
        let said = |crds: &str| fs::write(path("dev.yaml"), format!("types: cat types.json\n{crds}")).unwrap();
        said("");
        assert_eq!(crd(folder.path(), false).await.unwrap(), ExitCode::SUCCESS);
        let ours = fs::read_to_string(path("crd.yaml")).unwrap();
        // Definitions of others come first in the list.
        let vendor = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: { name: issuers.vendor.dev }\n";
        fs::write(path("vendor.yaml"), vendor).unwrap();
        said("crds: [vendor.yaml, crd.yaml]\n");
        fs::remove_file(path("crd.yaml")).unwrap();
        assert_eq!(crd(folder.path(), false).await.unwrap(), ExitCode::SUCCESS);
        assert_eq!(fs::read_to_string(path("vendor.yaml")).unwrap(), vendor);
        assert_eq!(fs::read_to_string(path("crd.yaml")).unwrap(), ours);
        // Something by hand in our file, a file that is all by hand, and one that is being edited.
        let other = ours.replace("maxLength: 63", "maxLength: 64");
        let by_hand = other.split_once('\n').unwrap().1.to_owned();
        for (text, expected) in [
            (format!("{other}---\n{vendor}"), "there is more in it than the types say, so it is not written anew"),
            (by_hand, "`capstan crd` has not written it, so it is not written anew"),
            ("a: [".to_owned(), "crd.yaml"),
        ] {
            said("");
            fs::write(path("crd.yaml"), &text).unwrap();
            let why = format!("{:#}", crd(folder.path(), false).await.unwrap_err());
            assert!(why.contains(expected), "{why}");
            assert_eq!(fs::read_to_string(path("crd.yaml")).unwrap(), text);
        }
    }

    #[tokio::test]
    async fn a_folder_without_types_and_types_that_come_to_nothing_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let told = async |text: &str| {
            fs::write(folder.path().join("dev.yaml"), text).unwrap();
            format!("{:#}", crd(folder.path(), false).await.unwrap_err())
        };
        assert!(told("build: make\n").await.contains("dev.yaml says no `types`: the command that prints"));
        assert!(told("types: echo []\n").await.starts_with("`echo []`: it prints no resource; mark the type"));
        assert!(told("types: echo no >&2; false\n").await.starts_with("no\n`echo no >&2; false` has failed"));
    }
}
