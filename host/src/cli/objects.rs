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
    documents(file, &text)?.into_iter().map(|object| kinded(file, &text, object)).collect()
}

/// Reads the documents of a file, without empty ones, as kubectl does: `yes` is true, and `017` is 15.
///
/// # Errors
/// What is wrong in the file, at which line.
pub(super) fn documents(file: &Path, text: &str) -> anyhow::Result<Vec<Value>> {
    let documents = serde_yaml::from_multiple_with_options::<Value>(text, options());
    let mut documents = documents.map_err(|error| placed(file, &error))?;
    documents.retain(|document| !document.is_null());
    Ok(documents)
}

fn options() -> serde_yaml::Options {
    serde_yaml::options! { legacy_octal_numbers: true }
}

/// Returns what helps if a field of an object is something else than was meant: it is written as a word that YAML takes for a truth value or a number.
pub(super) fn misread(written: &str) -> Option<String> {
    let value: Value = serde_yaml::from_str_with_options(written, options()).ok()?;
    let read = value.to_string();
    let is_other = (value.is_boolean() || value.is_number()) && read != written;
    is_other.then(|| format!("`{written}` without quotes is {read} in YAML: quote it if it is a text"))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_are_what_kubectl_takes_them_for() {
        let text = "[y, yes, On, n, off, 'y', 017, -017, 0, 0.5, 0o17, 0x1f, '017', 1e3, v017, 10]\n";
        let read = documents(Path::new("a.yaml"), text).unwrap();
        let expected = json!([true, true, true, false, false, "y", 15, -15, 0, 0.5, 15, 31, "017", 1000.0, "v017", 10]);
        assert_eq!(read, [expected]);
        for (written, hint) in [
            ("y", Some("`y` without quotes is true in YAML: quote it if it is a text")),
            ("017", Some("`017` without quotes is 15 in YAML: quote it if it is a text")),
            ("'y'", None),
            ("true", None),
            ("7", None),
            ("hello", None),
        ] {
            assert_eq!(misread(written).as_deref(), hint, "{written}");
        }
    }
}
