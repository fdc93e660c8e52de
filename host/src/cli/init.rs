//! `capstan init`: decides what a new folder for an operator has, and makes it.

mod language;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use capstan_core::rbac;

use crate::cli::args::Init;
use crate::cli::beside;
use crate::cli::crd;
use language::{COMMON, Template, facts, find, sdk};

/// The commands of the README that are shown at once.
const FIRST: usize = 3;

/// Makes the folder, and says what is in it and what comes next.
///
/// # Errors
/// If the folder is not empty or can't be written, or the SDK is not where `--sdk` says.
pub fn run(args: &Init) -> anyhow::Result<ExitCode> {
    let files = files(args)?;
    let folder = args.dir.as_deref().unwrap_or(Path::new(&args.name));
    make(folder, &files)?;
    std::io::stdout().lock().write_all(told(folder, &files).as_bytes()).context("write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the files of the new folder, by their paths.
fn files(args: &Init) -> anyhow::Result<Vec<(&'static str, String)>> {
    let Init { name, language, group, .. } = args;
    let (facts, version) = (facts(*language), env!("CARGO_PKG_VERSION"));
    let kind = args.kind().map_err(anyhow::Error::msg)?;
    let path = args.sdk.as_deref().map(|all| find(*language, all)).transpose()?;
    let values = [
        // First: it has placeholders itself.
        ("steps", facts.steps.to_owned()),
        // And this.
        ("called", args.plural.as_ref().map_or("", |_| facts.called).to_owned()),
        ("name", name.clone()),
        ("plural", args.plural.clone().unwrap_or_else(|| rbac::plural(&kind))),
        ("singular", kind.to_lowercase()),
        ("kind", kind),
        ("group", group.clone()),
        ("language", facts.title.to_owned()),
        ("source", facts.source.to_owned()),
        ("test", facts.test.to_owned()),
        ("component", facts.component.to_owned()),
        ("build", facts.build.to_owned()),
        ("types", facts.types.map_or_else(String::new, |types| format!("types: {types}"))),
        ("origin", origin(facts.types)),
        ("definition", definition(facts.types).to_owned()),
        ("instances", facts.instances.to_owned()),
        ("version", version.to_owned()),
        ("sdk", sdk(*language, version, path.as_deref())),
    ];
    let filled = |(file, text): &Template| {
        let text = values
            .iter()
            .fold((*text).to_owned(), |text, (name, value)| text.replace(&format!("{{{{{name}}}}}"), value));
        (*file, format!("{}\n", text.trim_end()))
    };
    Ok(facts.files.iter().chain(COMMON).chain([&("crd.yaml", facts.crd)]).map(filled).collect())
}

/// Returns the first line of the definition: where it comes from.
fn origin(types: Option<&str>) -> String {
    types.map_or_else(|| "# Written by hand: JavaScript has no types.".to_owned(), crd::origin)
}

/// Returns how the README calls the definition.
fn definition(types: Option<&str>) -> &'static str {
    if types.is_some() {
        "the custom resource, as the types of the source say: `capstan crd` writes it"
    } else {
        "the custom resource"
    }
}

/// Writes the files into a folder that is empty, or not there yet.
fn make(folder: &Path, files: &[(&str, String)]) -> anyhow::Result<()> {
    if folder.exists() {
        let mut entries = fs::read_dir(folder).with_context(|| format!("read folder {}", folder.display()))?;
        if let Some(entry) = entries.next() {
            let name = entry.map(|entry| entry.file_name().to_string_lossy().into_owned()).unwrap_or_default();
            anyhow::bail!(
                "folder {} is not empty: there is {name}; expected one that is, or name another by --dir",
                folder.display()
            );
        }
    }
    for (file, text) in files {
        let path = folder.join(file);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).with_context(|| format!("create folder {}", parent.display()))?;
        beside::write(&path, text.as_bytes())?;
    }
    Ok(())
}

/// Returns what was made, and the next commands.
fn told(folder: &Path, files: &[(&str, String)]) -> String {
    let names: Vec<_> = files.iter().map(|(file, _)| *file).collect();
    let readme = files.iter().find(|(file, _)| *file == "README.md").map_or("", |(_, text)| text);
    let enter = format!("cd {}", folder.display());
    let next: Vec<_> = std::iter::once(&*enter).chain(commands(readme)).take(FIRST).collect();
    format!(
        "made {}: {}\n\nnext:\n  {}\nREADME.md goes on from there.\n",
        folder.display(),
        names.join(", "),
        next.join("\n  ")
    )
}

/// Returns the commands of a README, without what it says of them.
fn commands(readme: &str) -> impl Iterator<Item = &str> {
    let fences = readme.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    fences.flat_map(str::lines).map(|line| line.split(" #").next().unwrap_or(line).trim_end())
}

#[cfg(test)]
mod tests {
    use clap::{Parser, ValueEnum};

    use super::*;
    use crate::cli::args::{Cli, Command, Language};

    fn args(words: &[&str]) -> Result<Init, String> {
        let line = ["capstan", "init"].iter().chain(words);
        let cli = Cli::try_parse_from(line).map_err(|error| error.to_string())?;
        let Command::Init(init) = cli.command else { panic!("another command") };
        Ok(init)
    }

    fn made(words: &[&str]) -> Vec<(&'static str, String)> {
        files(&args(words).unwrap()).unwrap()
    }

    #[test]
    fn no_placeholder_is_left_in_any_language() {
        for language in Language::value_variants() {
            let name = language.to_possible_value().unwrap();
            for (file, text) in made(&["--lang", name.get_name(), "web-page"]) {
                // JSDoc has braces around the kind.
                let text = text.replace("{{WebPage}", "").replace("{WebPage}}", "");
                assert!(!text.contains("{{") && text.ends_with('\n'), "{file} of {language:?}:\n{text}");
            }
        }
    }

    #[test]
    fn the_names_of_the_custom_resource_follow_from_the_name() {
        for (words, expected) in [
            (vec!["web-page"], "example.com/v1alpha1, kind: WebPage"),
            (vec!["policy", "--group", "a.dev"], "a.dev/v1alpha1, kind: Policy"),
            (vec!["x", "--kind", "WebPage"], "example.com/v1alpha1, kind: WebPage"),
        ] {
            let files = made(&[&["--lang", "go"], &words[..]].concat());
            let manifest = files.iter().find(|(file, _)| *file == "operator.yaml").unwrap();
            assert!(manifest.1.contains(expected), "{}", manifest.1);
        }
        let files = made(&["--lang", "go", "policy"]);
        let crd = files.iter().find(|(file, _)| *file == "crd.yaml").unwrap();
        assert!(crd.1.contains("name: policies.example.com") && crd.1.contains("singular: policy"), "{}", crd.1);
    }

    #[test]
    fn the_plural_is_a_guess_or_what_is_said_and_then_the_types_say_it_too() {
        for (language, source, expected) in [
            ("rust", "src/lib.rs", ", plural = \"gateaux\", conditions"),
            ("python", "app.py", "/v1alpha1\", plural=\"gateaux\", columns"),
            ("typescript", "src/operator.ts", "v1alpha1\n * @plural gateaux\n * @column"),
            ("go", "main.go", "root=true\n// +kubebuilder:resource:path=gateaux\n// +kubebuilder:printcolumn"),
            ("javascript", "crd.yaml", "    plural: gateaux\n"),
        ] {
            for (plural, name) in [(&["--plural", "gateaux"][..], "gateaux"), (&[], "gateaus")] {
                let files = made(&[&["--lang", language, "gateau"], plural].concat());
                let text = |file: &str| &files.iter().find(|(path, _)| *path == file).unwrap().1;
                assert!(text("crd.yaml").contains(&format!("name: {name}.example.com\n")), "{}", text("crd.yaml"));
                assert_eq!(text(source).contains(expected), !plural.is_empty(), "{}", text(source));
            }
        }
        for (name, plural) in [("batch", "batches"), ("gateway", "gateways")] {
            let files = made(&["--lang", "python", name]);
            assert!(files.iter().any(|(_, text)| text.contains(&format!("kubectl get {plural}"))), "{plural}");
        }
    }

    #[test]
    fn names_that_can_be_none_are_refused_with_what_would_be_right() {
        for (words, expected) in [
            (vec!["Web_Page"], "such as web-page"),
            (vec!["1st"], "a letter first"),
            (vec!["on"], "such as my-on"),
            (vec!["page", "--group", "example"], "a domain with a dot"),
            (vec!["page", "--kind", "webPage"], "a capital first"),
            (vec!["page", "--plural", "Pages"], "such as webpages"),
            (vec!["page", "--kind", "Spec"], "such as MySpec"),
        ] {
            let said = args(&[&["--lang", "go"], &words[..]].concat()).unwrap_err();
            assert!(said.contains(expected), "{words:?}: {said}");
        }
        let said = files(&args(&["--lang", "go", "operator"]).unwrap()).unwrap_err().to_string();
        assert!(said.contains("say another by --kind"), "{said}");
    }

    #[test]
    fn a_folder_that_is_not_empty_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let files = made(&["--lang", "python", "page"]);
        make(folder.path(), &files).unwrap();
        fs::write(folder.path().join("app.py"), "mine").unwrap();
        let said = make(folder.path(), &files).unwrap_err().to_string();
        assert!(said.contains("is not empty: there is "), "{said}");
        assert_eq!(fs::read_to_string(folder.path().join("app.py")).unwrap(), "mine");
    }

    #[test]
    fn what_comes_next_are_the_first_commands_of_the_readme() {
        let said = told(Path::new("a"), &made(&["--lang", "javascript", "page"]));
        assert!(said.ends_with("next:\n  cd a\n  npm install\n  npm test\nREADME.md goes on from there.\n"), "{said}");
    }

    #[test]
    fn the_sdk_is_the_published_one_or_that_of_a_folder() {
        let all = tempfile::tempdir().unwrap();
        let sdks = all.path().canonicalize().unwrap();
        let wheel = sdks.join("python/capstan_guest-0.1.0-py3-none-any.whl");
        for folder in ["rust", "python", "javascript"] {
            fs::create_dir(sdks.join(folder)).unwrap();
        }
        fs::write(&wheel, "").unwrap();
        let place = sdks.to_str().unwrap();
        let table = [
            ("python", "requirements.txt", format!("{place}/python/capstan_guest-0.1.0-py3-none-any.whl\n")),
            ("typescript", "package.json", format!("\"@capstan/guest\": \"file:{place}/javascript\"")),
            ("rust", "Cargo.toml", format!("capstan-guest-macros = {{ path = \"{place}/rust/macros\" }}")),
        ];
        for (language, name, expected) in table {
            let files = made(&["--lang", language, "--sdk", place, "page"]);
            let (_, text) = files.iter().find(|(file, _)| *file == name).unwrap();
            assert!(text.contains(&expected), "{text}");
        }
        let said = files(&args(&["--lang", "go", "--sdk", place, "page"]).unwrap()).unwrap_err().to_string();
        assert!(said.starts_with("there is no SDK for Go at ") && said.contains("expected sdk-guest"), "{said}");
        let published = made(&["--lang", "python", "page"]);
        assert!(published.iter().any(|(_, text)| text == concat!("capstan-guest==", env!("CARGO_PKG_VERSION"), "\n")));
    }
}
