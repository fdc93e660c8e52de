//! `capstan crd`: writes the `CustomResourceDefinition` that an author's types come to, or says where the file differs from it.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use capstan_core::rbac;
use capstan_core::schema::{drift, typed};
use serde_json::Value;

use crate::cli::args::Crd;
use crate::cli::dev::build::asked;
use crate::cli::dev::project::{FILE, Project};
use crate::cli::objects::placed;
use crate::read;

/// The file where the folder says nothing else.
const USUAL: &str = "crd.yaml";

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
    let file = file(&project);
    let (lines, code) = if args.check {
        let lines = differences(&file, &made)?;
        let code = if lines.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        (lines, code)
    } else {
        let changed = write(&file, command, &made)?;
        let what = if changed { "written" } else { "says already what the types say" };
        (vec![format!("{}: {what}", file.display())], ExitCode::SUCCESS)
    };
    let text = lines.join("\n") + if lines.is_empty() { "" } else { "\n" };
    std::io::stdout().lock().write_all(text.as_bytes()).context("write to standard output")?;
    Ok(code)
}

/// Writes the file if the types have come to something else; returns its path then.
///
/// # Errors
/// If the types come to no definition, or the file can't be read or written.
pub(super) async fn written(project: &Project) -> anyhow::Result<Option<PathBuf>> {
    let Some(command) = &project.types else {
        return Ok(None);
    };
    let made = made(project, command).await?;
    let file = file(project);
    Ok(write(&file, command, &made)?.then_some(file))
}

/// Returns the definitions that the types come to.
async fn made(project: &Project, command: &str) -> anyhow::Result<Vec<Value>> {
    let said = asked(&project.folder, command, read::DEFINITIONS).await?;
    typed(&said, rbac::plural).with_context(|| format!("`{command}`"))
}

/// Returns the file with the definitions.
fn file(project: &Project) -> PathBuf {
    let usual = || if project.folder == Path::new(".") { USUAL.into() } else { project.folder.join(USUAL) };
    project.definitions.first().cloned().unwrap_or_else(usual)
}

/// Returns the first line of a file: where it comes from.
pub(super) fn origin(command: &str) -> String {
    format!("# What the types of the source say, by `{command}`: `capstan crd` writes it.")
}

/// Writes the definitions unless the file has them; says whether it was written.
fn write(file: &Path, command: &str, made: &[Value]) -> anyhow::Result<bool> {
    if differences(file, made).is_ok_and(|lines| lines.is_empty()) {
        return Ok(false);
    }
    let texts: Result<Vec<_>, _> = made.iter().map(serde_yaml::to_string).collect();
    let text = format!("{}\n{}", origin(command), texts?.join("---\n"));
    fs::write(file, text).with_context(|| format!("write {}", file.display()))?;
    Ok(true)
}

/// Returns where the file differs from the definitions, a line each.
fn differences(file: &Path, made: &[Value]) -> anyhow::Result<Vec<String>> {
    let text = read::text(file, read::DEFINITIONS).with_context(|| format!("read {}", file.display()))?;
    let found: Vec<Value> = serde_yaml::from_multiple(&text).map_err(|error| placed(file, &error))?;
    let found: Vec<_> = found.into_iter().filter(|document| !document.is_null()).collect();
    let name = |definition: &Value| definition.pointer("/metadata/name").and_then(Value::as_str).map(str::to_owned);
    let mut lines = Vec::new();
    for definition in made {
        match found.iter().find(|found| name(found) == name(definition)) {
            Some(found) => lines.extend(drift(found, definition)),
            None => lines.push(format!("{} is missing; the types have it", name(definition).unwrap_or_default())),
        }
    }
    for other in found.iter().filter(|found| !made.iter().any(|made| name(made) == name(found))) {
        lines.push(format!("{} is not in the types", name(other).unwrap_or_default()));
    }
    Ok(lines.into_iter().map(|line| format!("{}: {line}", file.display())).collect())
}

#[cfg(test)]
mod tests {
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
        let lines = differences(&path("crd.yaml"), &made).unwrap();
        let expected = format!("{}: v1: spec.name: found maxLength 64; the types say 63", path("crd.yaml").display());
        assert_eq!(lines, [expected]);
        assert_eq!(crd(folder.path(), true).await.unwrap(), ExitCode::FAILURE);
        assert_eq!(written(&project).await.unwrap(), Some(path("crd.yaml")));
        assert_eq!(written(&project).await.unwrap(), None);
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
