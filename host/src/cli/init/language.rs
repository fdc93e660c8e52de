//! Decides what is different from language to language in a new folder: the files, and how they name the SDK.

use std::fs;
use std::path::Path;

use crate::cli::args::Language;

/// A file of a new folder: its path there, and its text with placeholders.
pub(super) type Template = (&'static str, &'static str);

/// What a language has of its own.
pub(super) struct Facts {
    /// What people call it.
    pub(super) title: &'static str,
    /// The file with the operator.
    pub(super) source: &'static str,
    /// The file with its unit tests.
    pub(super) test: &'static str,
    /// The component that is built, from the manifest.
    pub(super) component: &'static str,
    /// How the manifest wants its instances: a language that starts slowly keeps them.
    pub(super) instances: &'static str,
    /// The command that builds it.
    pub(super) build: &'static str,
    /// The command that prints what the types say; `None`: the definition is written by hand.
    pub(super) types: Option<&'static str>,
    /// How the types say the plural that somebody has named.
    pub(super) called: &'static str,
    /// The definition: what the command comes to.
    pub(super) crd: &'static str,
    /// The part of the README on building and testing.
    pub(super) steps: &'static str,
    /// The files beside those that all languages have.
    pub(super) files: &'static [Template],
    /// The folder of the SDK, in the one that has all of them.
    pub(super) sdk: &'static str,
}

macro_rules! files {
    ($folder:literal: $($file:literal)*) => {
        &[$(($file, include_str!(concat!("../../../templates/", $folder, "/", $file)))),*]
    };
}

macro_rules! steps {
    ($folder:literal) => {
        include_str!(concat!("../../../templates/", $folder, "/steps.md"))
    };
}

/// The files that a folder has in all languages.
pub(super) const COMMON: &[Template] = files!("common": "README.md" "dev.yaml" "operator.yaml" "example.yaml" "cases/hello/primary.yaml" "cases/hello/expected.yaml");

/// The definition of the languages that say of fields what the others do.
const CRD: &str = include_str!("../../../templates/common/crd.yaml");

const RUST: Facts = Facts {
    title: "Rust",
    source: "src/lib.rs",
    test: "src/tests.rs",
    component: "target/wasm32-wasip2/release/operator.wasm",
    instances: "fresh",
    build: "cargo build --release --target wasm32-wasip2",
    types: Some("cargo run -q --example types"),
    called: ", plural = \"{{plural}}\"",
    crd: CRD,
    steps: steps!("rust"),
    files: files!("rust": "src/lib.rs" "src/tests.rs" "examples/types.rs" "Cargo.toml" ".gitignore"),
    sdk: "rust",
};

const PYTHON: Facts = Facts {
    title: "Python",
    source: "app.py",
    test: "test_app.py",
    component: "operator.wasm",
    instances: "warm",
    build: "python -m capstan build app.py -o operator.wasm",
    types: Some("python -m capstan types app.py"),
    called: ", plural=\"{{plural}}\"",
    crd: CRD,
    steps: steps!("python"),
    files: files!("python": "app.py" "test_app.py" "requirements.txt" ".gitignore"),
    sdk: "python",
};

const JAVASCRIPT: Facts = Facts {
    title: "JavaScript",
    source: "src/operator.js",
    test: "test/operator.test.js",
    component: "operator.wasm",
    instances: "fresh",
    build: "npm run build",
    types: None,
    called: "",
    crd: CRD,
    steps: steps!("javascript"),
    files: files!("javascript": "src/operator.js" "test/operator.test.js" "package.json" ".npmrc" ".gitignore"),
    sdk: "javascript",
};

const TYPESCRIPT: Facts = Facts {
    title: "TypeScript",
    source: "src/operator.ts",
    test: "test/operator.test.ts",
    component: "operator.wasm",
    instances: "fresh",
    build: "npm run build",
    types: Some("npx capstan-js types src/operator.ts"),
    called: " * @plural {{plural}}\n",
    crd: CRD,
    steps: steps!("typescript"),
    files: files!("typescript": "src/operator.ts" "test/operator.test.ts" "test/tsconfig.json" "package.json" "tsconfig.json" ".npmrc" ".gitignore"),
    sdk: "javascript",
};

const GO: Facts = Facts {
    title: "Go",
    source: "main.go",
    test: "main_test.go",
    component: "operator.wasm",
    instances: "warm",
    build: "go tool component -o operator.wasm",
    types: Some("go tool types"),
    called: "// +kubebuilder:resource:path={{plural}}\n",
    crd: include_str!("../../../templates/go/crd.yaml"),
    steps: steps!("go"),
    files: files!("go": "main.go" "main_test.go" "go.mod" ".gitignore"),
    sdk: "go",
};

pub(super) fn facts(language: Language) -> &'static Facts {
    match language {
        Language::Rust => &RUST,
        Language::Python => &PYTHON,
        Language::JavaScript => &JAVASCRIPT,
        Language::TypeScript => &TYPESCRIPT,
        Language::Go => &GO,
    }
}

/// Returns how a project names the SDK: the published one of this version, or that at a path.
pub(super) fn sdk(language: Language, version: &str, path: Option<&str>) -> String {
    match (language, path) {
        (Language::Rust | Language::Go, None) => String::new(),
        (Language::Rust, Some(path)) => format!(
            "\n# The SDK as it is there, until the registry's is wanted.\n[patch.crates-io]\ncapstan-guest = {{ path = \"{path}\" }}\ncapstan-guest-macros = {{ path = \"{path}/macros\" }}\n"
        ),
        (Language::Go, Some(path)) => format!("\nreplace github.com/capstan-dev/capstan/sdk-guest/go => {path}\n"),
        (Language::Python, None) => format!("capstan-guest=={version}"),
        (Language::Python, Some(path)) => path.to_owned(),
        (Language::JavaScript | Language::TypeScript, None) => version.to_owned(),
        (Language::JavaScript | Language::TypeScript, Some(path)) => format!("file:{path}"),
    }
}

/// Returns the path of a language's SDK in a folder that has all of them: the package, or else the folder itself.
///
/// # Errors
/// If it is not there, or its path can't stand in the files of a project.
pub(super) fn find(language: Language, all: &Path) -> anyhow::Result<String> {
    let wanted = facts(language).sdk;
    let folder = all.join(wanted).canonicalize().map_err(|error| {
        anyhow::anyhow!(
            "there is no SDK for {} at {}: {error}; expected sdk-guest of a checkout, or a folder of packages (`cargo xtask packages`)",
            facts(language).title,
            all.join(wanted).display()
        )
    })?;
    let packages = fs::read_dir(&folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let is_package = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "whl" || end == "tgz");
    let found = packages.filter(is_package).max().unwrap_or(folder);
    let path = found.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.+@".contains(c);
    anyhow::ensure!(
        path.chars().all(plain),
        "the path of the SDK can't stand in the files of a project: {path}; expected letters, digits and any of /-_.+@"
    );
    Ok(path.into_owned())
}
