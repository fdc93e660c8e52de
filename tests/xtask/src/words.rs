//! Holds the four SDKs and their READMEs to one vocabulary: the table of words in docs/languages.md.

use crate::files;
use crate::workspace::Workspace;

const PAGE: &str = "docs/languages.md";
const TITLE: &str = "## Words\n";
/// The columns of the table, with the folder and the sources of each SDK, and how a line begins what an author can name.
const LANGUAGES: [(&str, &str, &[&str], Form); 4] = [
    ("rust", "src", &["rs"], Form::After(&["fn ", "struct ", "trait ", "enum "], "")),
    ("python", "src/capstan", &["py"], Form::After(&["def ", "class "], "    ")),
    ("javascript", "src", &["d.ts"], Form::Before(&["?", "(", ":", "<", " {"])),
    ("go", "capstan", &["go"], Form::After(&["func ", "type ", ") "], "\t")),
];

/// How a name is declared.
#[derive(Clone, Copy)]
enum Form {
    /// It stands behind one of these words, or after this at the beginning of a line, as fields do.
    After(&'static [&'static str], &'static str),
    /// One of these stands behind it.
    Before(&'static [&'static str]),
}

/// A cell of the table: what is said of a word in a language.
enum Cell<'a> {
    /// It is called so.
    Same(&'a str),
    /// It is called something else.
    Other(&'a str),
    /// The language says it with what it has.
    Otherwise,
}

impl<'a> Cell<'a> {
    fn of(text: &'a str) -> Self {
        let code = |text: &'a str| text.strip_prefix('`')?.strip_suffix('`').filter(|name| name.chars().all(is_part));
        match (code(text), text.strip_prefix('*').and_then(|text| code(text.strip_suffix('*')?))) {
            (Some(name), _) => Self::Same(name),
            (None, Some(name)) => Self::Other(name),
            (None, None) => Self::Otherwise,
        }
    }
}

impl Form {
    /// Whether a line declares a name.
    fn declares(self, line: &str, name: &str) -> bool {
        if line.trim_start().starts_with(['*', '/', '#']) {
            return false;
        }
        match self {
            Self::After(words, field) => {
                let follows =
                    |word: &&str| line.match_indices(word).any(|(at, _)| begins(&line[at + word.len()..], name));
                words.iter().any(follows)
                    || (!field.is_empty() && line.strip_prefix(field).is_some_and(|rest| begins(rest, name)))
            }
            Self::Before(ends) => line.match_indices(name).any(|(at, _)| {
                let (before, rest) = (&line[..at], &line[at + name.len()..]);
                !before.ends_with(is_part) && ends.iter().any(|end| rest.starts_with(end))
            }),
        }
    }
}

/// Whether a text begins with a name, and not with a longer one.
fn begins(text: &str, name: &str) -> bool {
    text.strip_prefix(name).is_some_and(|rest| !rest.starts_with(is_part))
}

fn is_part(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn plain(name: &str) -> String {
    name.replace('_', "").to_lowercase()
}

/// Returns the lines of the table: a word, and a cell for each language.
fn rows(page: &str) -> Vec<(&str, Vec<&str>)> {
    let table = page.split_once(TITLE).map_or("", |(_, rest)| rest.split("\n## ").next().unwrap_or(rest));
    let rows = table.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let rows = rows.map(|row| row.split(" | ").map(str::trim).collect::<Vec<_>>());
    rows.filter(|cells| cells.len() == LANGUAGES.len() + 1 && cells[0].chars().all(is_part) && !cells[0].is_empty())
        .map(|cells| (cells[0], cells[1..].to_vec()))
        .collect()
}

#[test]
fn a_word_is_the_same_in_all_languages_and_stands_in_their_sources_and_readmes() {
    let workspace = Workspace::load().unwrap();
    let page = files::text(&workspace.root.join(PAGE)).unwrap();
    let rows = rows(&page);
    assert!(rows.len() > 60, "{PAGE} has {} words", rows.len());
    let mut problems = Vec::new();
    for (column, (language, folder, ends, form)) in LANGUAGES.into_iter().enumerate() {
        let sdk = workspace.root.join("sdk-guest").join(language);
        let sources = files::entries(&sdk.join(folder)).unwrap();
        let is_source =
            |path: &&std::path::PathBuf| ends.iter().any(|end| path.to_string_lossy().ends_with(&format!(".{end}")));
        let source: Vec<_> = sources.iter().filter(is_source).map(|path| files::text(path).unwrap()).collect();
        let readme = files::text(&sdk.join("README.md")).unwrap();
        for (word, cells) in &rows {
            let name = match Cell::of(cells[column]) {
                Cell::Otherwise => continue,
                Cell::Same(name) if plain(name) != plain(word) => {
                    problems.push(format!("{word} is called {name} in {language}"));
                    continue;
                }
                Cell::Same(name) | Cell::Other(name) => name,
            };
            if !source.iter().flat_map(|text| text.lines()).any(|line| form.declares(line, name)) {
                problems.push(format!("{language} has no {name}"));
            }
            if !readme.split(|letter| !is_part(letter)).any(|part| part == name) {
                problems.push(format!("the README of {language} does not have {name}"));
            }
        }
    }
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn a_name_is_declared_where_it_stands_alone() {
    for (form, line, name, expected) in [
        (LANGUAGES[0].3, "pub fn check_and_set(", "check", false),
        (LANGUAGES[1].3, "    stop: bool = False", "stop", true),
        (LANGUAGES[1].3, "    # stop: bool", "stop", false),
        (LANGUAGES[2].3, "  keepFinalizer?: boolean;", "Finalizer", false),
        (LANGUAGES[2].3, "  /** poll (all) */", "poll", false),
        (LANGUAGES[3].3, "func (r Run) Apply[T any](object T)", "Apply", true),
    ] {
        assert_eq!(form.declares(line, name), expected, "{line}");
    }
}
