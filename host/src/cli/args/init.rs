//! The arguments of `capstan init`: what the new folder is for, and which names are possible.

use std::path::PathBuf;

use capstan_core::object::labels::{is_domain, is_label};
use clap::{Args, ValueEnum};

/// `capstan init`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  capstan init --lang python greeting
  capstan init --lang go --group example.org --kind WebPage web-page
  capstan init --lang rust --sdk ../capstan/sdk-guest greeting

The folder has a small operator that works, with its manifest, custom resource, example, unit tests and a README whose
commands work in their order.")]
pub struct Init {
    /// The name of the operator, and of the folder.
    #[arg(value_parser = name)]
    pub name: String,
    /// The language.
    #[arg(short, long = "lang", value_enum, value_name = "LANGUAGE")]
    pub language: Language,
    /// The API group of the custom resource.
    #[arg(long, default_value = "example.com", value_parser = group)]
    pub group: String,
    /// The kind of the custom resource; without it made of the name: `WebPage` of web-page.
    #[arg(long, value_parser = kind)]
    pub kind: Option<String>,
    /// What several of the kind are called; without it a guess: `webpages`.
    #[arg(long, value_parser = plural)]
    pub plural: Option<String>,
    /// The folder to make, which may be there if it is empty; without it one of the operator's name.
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,
    /// Where the SDKs are, if not at the language's package registry: `sdk-guest` of a checkout, or a folder of packages
    /// (`cargo xtask packages`).
    #[arg(long, value_name = "FOLDER", env = "CAPSTAN_SDK")]
    pub sdk: Option<PathBuf>,
}

/// The languages that have an SDK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Language {
    /// Rust.
    Rust,
    /// Python.
    Python,
    /// JavaScript.
    #[value(name = "javascript", alias = "js")]
    JavaScript,
    /// TypeScript.
    #[value(name = "typescript", alias = "ts")]
    TypeScript,
    /// Go.
    Go,
}

/// The most bytes of a kind, as it is a DNS label in lower case.
const LONGEST_KIND: usize = 63;

/// What the templates call something else, or their languages do.
const TAKEN: &[&str] = &[
    "Deserialize",
    "Error",
    "Metadata",
    "Object",
    "Operator",
    "Option",
    "Problem",
    "Reconciler",
    "Record",
    "Resource",
    "Result",
    "Run",
    "Self",
    "Spec",
    "Status",
    "String",
    "Update",
    "Validator",
    "Value",
    "Vec",
];

/// What is no text in YAML.
const YAML: &[&str] = &["false", "n", "no", "null", "off", "on", "true", "y", "yes"];

impl Init {
    /// Returns the kind of the custom resource.
    ///
    /// # Errors
    /// If the name makes none that is possible.
    pub fn kind(&self) -> Result<String, String> {
        if let Some(kind) = &self.kind {
            return Ok(kind.clone());
        }
        let word = |word: &str| {
            let mut letters = word.chars();
            letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect::<String>()
        };
        let made: String = self.name.split('-').map(word).collect();
        kind(&made).map_err(|why| format!("the name {} makes the kind {made}: {why}; say another by --kind", self.name))
    }
}

/// Takes a DNS label that begins with a letter, as packages of all languages want it.
fn name(text: &str) -> Result<String, String> {
    let right =
        "expected lower case letters, digits and dashes between them, a letter first, at most 63, such as web-page";
    if YAML.contains(&text) {
        return Err(format!("{text} is a value of its own in YAML; expected another, such as my-{text}"));
    }
    let is_right = is_label(text) && text.starts_with(|first: char| first.is_ascii_lowercase());
    if is_right { Ok(text.to_owned()) } else { Err(right.to_owned()) }
}

fn group(text: &str) -> Result<String, String> {
    let right = "expected a domain with a dot in it, in lower case, such as example.com";
    if is_domain(text) && text.contains('.') { Ok(text.to_owned()) } else { Err(right.to_owned()) }
}

fn plural(text: &str) -> Result<String, String> {
    let right =
        "expected lower case letters, digits and dashes between them, a letter first, at most 63, such as webpages";
    let is_right = is_label(text) && text.starts_with(|first: char| first.is_ascii_lowercase());
    if is_right { Ok(text.to_owned()) } else { Err(right.to_owned()) }
}

fn kind(text: &str) -> Result<String, String> {
    let is_word =
        text.starts_with(|first: char| first.is_ascii_uppercase()) && text.bytes().all(|b| b.is_ascii_alphanumeric());
    if !is_word || text.len() > LONGEST_KIND {
        return Err("expected letters and digits, a capital first, at most 63, such as WebPage".to_owned());
    }
    if TAKEN.contains(&text) {
        return Err(format!("{text} is a word of the new source itself; expected another, such as My{text}"));
    }
    Ok(text.to_owned())
}
