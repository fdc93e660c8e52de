//! Decides which scenarios a test shows: those after which a test is named, of all rows of `tests/scenarios/scenarios.md`.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde_json::{Value, json};
use walkdir::WalkDir;

use crate::process::found;
use crate::ui::{self, Ui, bold, dim, green};
use crate::workspace::Workspace;

const ROWS: &str = "tests/scenarios/scenarios.md";
const TESTS: &str = "tests/scenarios/tests";

/// `cargo xtask scenarios`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask scenarios              all rows: their tests, or why there is none
  cargo xtask scenarios -o json      the same for programs
  cargo xtask test --only scenarios -- s012   the tests of row 12

The rows are in tests/scenarios/scenarios.md; a test shows row 12 if its name starts with s012_.")]
pub(crate) struct Args {
    /// How it is printed.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Format::Table)]
    output: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Table,
    Json,
}

/// A scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    number: u16,
    section: String,
    title: String,
    /// Why no test shows it; empty if one does.
    reason: String,
    /// The tests that show it, as `module::name`.
    tests: Vec<String>,
}

pub(crate) fn run(ui: &Ui, workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    let rows = load(&workspace.root)?;
    match args.output {
        Format::Table => {
            // Not cut: names of tests may be copied.
            ui::uncut(ui::table(&cells(&rows)));
            let shown = rows.iter().filter(|row| !row.tests.is_empty()).count();
            ui.line(format!("\n{shown} of {} shown", rows.len()));
        }
        Format::Json => {
            let rows: Value = rows.iter().map(Row::json).collect();
            ui::uncut(format!("{rows:#}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns all rows with their tests.
fn load(root: &Path) -> Result<Vec<Row>> {
    let read = |path: &Path| fs::read_to_string(path).with_context(|| path.display().to_string());
    let mut rows = rows(&read(&root.join(ROWS))?)?;
    for entry in WalkDir::new(root.join(TESTS)).sort_by_file_name() {
        let entry = entry?;
        let file = entry.path();
        if file.extension().is_some_and(|extension| extension == "rs") {
            let module = file.file_stem().unwrap_or_default().to_string_lossy();
            name_tests(&mut rows, &module, &read(file)?)?;
        }
    }
    Ok(rows)
}

/// Reads the rows of a document with a table below each heading.
fn rows(text: &str) -> Result<Vec<Row>> {
    let mut section = "";
    let mut rows = Vec::<Row>::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading;
        } else if let Some([number, title, reason]) = found(r"^\| (\d+) \| (.+?) \|(.*)\|$", line) {
            let number = number.parse().with_context(|| format!("{ROWS}: {line}"))?;
            ensure!(rows.iter().all(|row| row.number != number), "{ROWS} has row {number} twice");
            let (section, title, reason) = (section.to_owned(), title.to_owned(), reason.trim().to_owned());
            rows.push(Row { number, section, title, reason, tests: Vec::new() });
        }
    }
    Ok(rows)
}

/// Adds the tests of a module to the rows after which they are named.
fn name_tests(rows: &mut [Row], module: &str, source: &str) -> Result<()> {
    for line in source.lines() {
        let Some([name, number]) = found(r"^ *fn (s(\d{3})_\w+)", line) else { continue };
        let row = rows.iter_mut().find(|row| format!("{:03}", row.number) == number);
        let row = row.with_context(|| format!("{module}::{name} shows row {number}, which {ROWS} does not have"))?;
        row.tests.push(format!("{module}::{name}"));
    }
    Ok(())
}

fn cells(rows: &[Row]) -> Vec<Vec<String>> {
    let mut cells = vec![["row", "what is shown", "by, or why not"].map(bold).to_vec()];
    let mut section = "";
    for row in rows {
        if row.section != section {
            section = &row.section;
            cells.push(vec![String::new(), bold(section)]);
        }
        let by = if row.tests.is_empty() { dim(&row.reason) } else { green(&row.tests.join(" ")) };
        cells.push(vec![format!("{:>3}", row.number), row.title.clone(), by]);
    }
    cells
}

// === impl Row ===

impl Row {
    fn json(&self) -> Value {
        let Self { number, section, title, reason, tests } = self;
        let reason = (!reason.is_empty()).then_some(reason);
        json!({ "row": number, "section": section, "title": title, "tests": tests, "reason": reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The row that shows nothing.
    const EMPTY: [u16; 1] = [3];
    /// The rows that wait for what is not there yet: leader election, series of primaries, and metrics that say what an event was.
    const WAITING: [u16; 6] = [8, 9, 136, 137, 141, 144];

    #[test]
    fn each_scenario_has_a_test_or_a_reason_and_not_both() {
        let root = Workspace::load().unwrap().root;
        let rows = load(&root).unwrap();
        assert_eq!(rows.len(), 133);
        let wrong = rows.iter().filter(|row| row.tests.is_empty() == row.reason.is_empty());
        assert_eq!(wrong.collect::<Vec<_>>(), Vec::<&Row>::new());
        let josdk = fs::read_to_string(root.join("docs/josdk.md")).unwrap();
        let (_, missing) = josdk.split_once("\n## What is not there yet\n").unwrap();
        let (missing, _) = missing.split_once("\n## ").unwrap();
        let waits = |row: &&Row| row.reason.strip_prefix("waits for ").is_some_and(|what| missing.contains(what));
        let (waiting, empty): (Vec<_>, Vec<_>) = rows.iter().filter(|row| !row.reason.is_empty()).partition(waits);
        let numbers = |rows: &[&Row]| rows.iter().map(|row| row.number).collect::<Vec<_>>();
        assert_eq!((&*numbers(&empty), &*numbers(&waiting)), (&EMPTY[..], &WAITING[..]));
    }

    fn row(number: u16, title: &str, reason: &str, tests: &[&str]) -> Row {
        let text = |text: &str| text.to_owned();
        let tests = tests.iter().map(|&test| text(test)).collect();
        Row { number, section: text("Base"), title: text(title), reason: text(reason), tests }
    }

    const TEXT: &str = "\
## Base

| row | what is shown | why no test shows it |
| --- | --- | --- |
| 1 | one | |
| 12 | twelve | no time |";

    #[test]
    fn tests_stand_at_the_rows_after_which_they_are_named() {
        let mut rows = rows(TEXT).unwrap();
        name_tests(&mut rows, "base", "#[test]\nfn s001_a() {\n    fn s001_b() {\nfn s1_c() {\nfn other() {").unwrap();
        let expected = [row(1, "one", "", &["base::s001_a", "base::s001_b"]), row(12, "twelve", "no time", &[])];
        assert_eq!(rows, expected);
        let error = name_tests(&mut rows, "base", "fn s002_a() {").unwrap_err().to_string();
        assert!(error.starts_with("base::s002_a shows row 002"), "{error}");
    }

    #[test]
    fn a_row_that_is_there_twice_is_an_error() {
        let error = rows(&format!("{TEXT}\n| 12 | again | |")).unwrap_err().to_string();
        assert_eq!(error, "tests/scenarios/scenarios.md has row 12 twice");
    }

    #[test]
    fn rows_are_printed_with_tests_or_reasons() {
        console::set_colors_enabled(false);
        let rows = [row(1, "one", "", &["base::s001_a"]), row(12, "twelve", "no time", &[])];
        let lines = [
            "row  what is shown  by, or why not",
            "     Base",
            "  1  one            base::s001_a",
            " 12  twelve         no time",
        ];
        assert_eq!(ui::table(&cells(&rows)), lines.join("\n"));
        let json = json!({ "row": 12, "section": "Base", "title": "twelve", "tests": [], "reason": "no time" });
        assert_eq!(rows[1].json(), json);
    }
}
