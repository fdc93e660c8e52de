//! Reads the Kubernetes objects of a YAML file, and says at file and line what is wrong in it.

#![expect(clippy::indexing_slicing, reason = "a JSON value that is not there is null")]

use std::path::Path;

use anyhow::Context as _;
use capstan_core::object::Gvk;
use serde_json::Value;

use crate::read;

/// Reads the objects of a file, each with its kind.
///
/// # Errors
/// What is wrong in the file, at which line.
pub(super) fn objects(file: &Path) -> anyhow::Result<Vec<(Gvk, Value)>> {
    let text = text(file)?;
    let documents: Vec<Value> = serde_yaml::from_multiple(&text).map_err(|error| placed(file, &error))?;
    documents.into_iter().filter(|document| !document.is_null()).map(|object| kinded(file, &text, object)).collect()
}

/// Returns an object with its kind; an error names the first line that begins with the field.
fn kinded(file: &Path, text: &str, object: Value) -> anyhow::Result<(Gvk, Value)> {
    let at = |field: &str| text.lines().position(|line| line.starts_with(field)).map_or(1, |line| line + 1);
    let field = |name: &str| {
        let found = object[name].as_str();
        found.with_context(|| format!("{}:{}: the field `{name}` is missing, or no text", file.display(), at(name)))
    };
    let gvk = Gvk::parse(field("apiVersion")?, field("kind")?);
    let gvk = gvk.with_context(|| format!("{}:{}: apiVersion", file.display(), at("apiVersion")))?;
    anyhow::ensure!(
        object["metadata"]["name"].is_string(),
        "{}:{}: metadata has no `name`",
        file.display(),
        at("metadata")
    );
    Ok((gvk, object))
}

pub(super) fn text(file: &Path) -> anyhow::Result<String> {
    read::text(file, read::TEXT).with_context(|| format!("read {}", file.display()))
}

/// Returns what is wrong with a file, at its line.
pub(super) fn placed(file: &Path, error: &serde_yaml::Error) -> anyhow::Error {
    use serde_yaml::MessageFormatter as _;
    let said = serde_yaml::UserMessageFormatter.format_message(error);
    // A number is read as its type in here is called.
    let said = match said.strip_prefix("invalid ") {
        Some("u8" | "u16" | "u32" | "u64" | "usize") => "found something else; expected a whole number".to_owned(),
        Some("bool" | "boolean") => "found something else; expected true or false".to_owned(),
        Some(_) | None => said.into_owned(),
    };
    match error.location() {
        Some(at) => anyhow::anyhow!("{}:{}:{}: {said}", file.display(), at.line(), at.column()),
        None => anyhow::anyhow!("{}: {said}", file.display()),
    }
}
