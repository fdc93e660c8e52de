//! What is wrong with a text, with the place in it, as it is shown to its author.

use std::fmt;
use std::path::{Path, PathBuf};

/// The most faults that are told of a document: whoever has made so many sees by them what to do about the others.
const MOST: usize = 64;

/// The most bytes of what is told of all of them. One that begins within that is told to its end.
const LONGEST: usize = 32 << 10;

/// The longest path and the longest line that are shown whole, in bytes; the longest name that is suggested, and the most that are listed.
const PATH: usize = 512;
const LINE: usize = 4096;
const NAME: usize = 64;
const LISTED: usize = 20;

/// What was found wrong, in the order of the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Errors {
    problems: Vec<Problem>,
    /// How many others there are, of which nothing is told.
    more: usize,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, as it was named to the reader.
    pub file: PathBuf,
    /// The line, from 1; 0 where there are no lines: in an object of the cluster.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The field: `spec.controllers.webpage.retry`; empty for the document as a whole.
    pub path: String,
    /// What was found, and what would be right.
    pub message: String,
    /// What else helps: the fields that exist.
    pub help: Option<String>,
    /// The line of the text with a caret below; `None` if the text is not at hand.
    pub snippet: Option<String>,
}

/// A stretch of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The line, from 1; 0 where there are no lines.
    pub(crate) line: usize,
    /// The first column, from 1.
    pub(crate) column: usize,
    /// So many characters.
    pub(crate) width: usize,
}

/// Where a field is.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The field's path.
    pub(crate) path: String,
    /// Where in the text.
    pub(crate) mark: Mark,
}

/// Something wrong at a node, before it is put into words with its place.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// The node's number.
    pub(crate) place: usize,
    /// What was found, and what would be right.
    pub(crate) message: String,
    /// What else helps.
    pub(crate) help: Option<String>,
    /// The character of the node's text at which it breaks, and that text.
    pub(crate) inside: Option<(usize, String)>,
}

/// What is wrong with a document: its first faults, and how many others there are.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    told: Vec<Fault>,
    more: usize,
}

/// Why a text is not of its form, and the character at which that shows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}, at character {}", offset + 1)]
pub struct Broken {
    /// Characters before the one at which it breaks.
    pub offset: usize,
    /// What is wrong there.
    pub message: String,
}

/// Returns the one of `allowed` that `text` may have been meant to be. Each pair of letters is compared, so that what is long is neither
/// looked for nor suggested.
pub fn similar<'a>(text: &str, allowed: &[&'a str]) -> Option<&'a str> {
    if text.len() > NAME {
        return None;
    }
    let plain = |text: &str| text.to_lowercase().replace(['-', '_'], "");
    let wanted = plain(text);
    let near = |candidate: &&'a str| (strsim::damerau_levenshtein(&wanted, &plain(candidate)), *candidate);
    let (distance, best) = allowed.iter().filter(|candidate| candidate.len() <= NAME).map(near).min()?;
    (distance <= (wanted.chars().count() / 3).max(1)).then_some(best)
}

/// Returns some of these names in their order, and how many more there are.
pub(crate) fn listed(names: &[&str]) -> String {
    let mut sorted = names.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let more = sorted.len().saturating_sub(LISTED);
    sorted.truncate(LISTED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", sorted.join(", "))
}

/// Returns a list for a sentence: "`a`, `b` or `c`".
pub(crate) fn either(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

// === impl Errors ===

impl Errors {
    pub(crate) fn new(mut problems: Vec<Problem>) -> Self {
        problems.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
        Self { problems, more: 0 }
    }

    /// Returns the same where there are so many more.
    pub(crate) fn and(self, more: usize) -> Self {
        Self { more: self.more + more, ..self }
    }

    /// Returns the problems that are told; there is at least one.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl fmt::Display for Errors {
    /// Writes one paragraph for each, as far as that is no text that nobody reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut written, mut told) = (0, 0);
        for problem in &self.problems {
            if written > LONGEST {
                break;
            }
            let text = problem.to_string();
            write!(f, "{}{text}", if told > 0 { "\n\n" } else { "" })?;
            (written, told) = (written + text.len(), told + 1);
        }
        match self.problems.len() - told + self.more {
            0 => Ok(()),
            more => write!(f, "\n\n… and {more} more"),
        }
    }
}

// === impl Faults ===

impl Faults {
    /// Takes in a fault. It is not even put into words if so many are told already.
    pub(crate) fn add(&mut self, fault: impl FnOnce() -> Fault) {
        if self.are_many() {
            self.more += 1;
        } else {
            self.told.push(fault());
        }
    }

    /// Whether of the next one only that it is there would be told.
    pub(crate) fn are_many(&self) -> bool {
        self.told.len() >= MOST
    }

    /// Returns how many there are.
    pub(crate) fn count(&self) -> usize {
        self.told.len() + self.more
    }

    /// Returns those that are told, and how many others there are.
    pub(crate) fn into_parts(self) -> (Vec<Fault>, usize) {
        (self.told, self.more)
    }
}

// === impl Fault ===

impl Fault {
    pub(crate) fn new(place: usize, message: impl Into<String>) -> Self {
        Self { place, message: message.into(), help: None, inside: None }
    }
}

impl Place {
    /// Returns the start of a file.
    pub(crate) fn start() -> Self {
        Self { path: String::new(), mark: Mark { line: 1, column: 1, width: 1 } }
    }
}

// === impl At ===

/// A place in a file, or what has no lines as a whole.
pub(crate) struct At<'a> {
    /// The file.
    pub(crate) file: &'a Path,
    /// Where in it.
    pub(crate) mark: Mark,
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, mark: Mark { line, column, .. } } = self;
        match line {
            0 => write!(f, "{}", file.display()),
            _ => write!(f, "{}:{line}:{column}", file.display()),
        }
    }
}

// === impl Problem ===

impl Problem {
    /// Puts a fault of what has no lines into words.
    pub(crate) fn of_field(file: &Path, path: &str, fault: Fault) -> Self {
        let Fault { message, help, .. } = fault;
        Self { file: file.to_owned(), line: 0, column: 0, path: short(path), message, help, snippet: None }
    }

    /// Puts a fault into words. `text` is the whole file.
    pub(crate) fn new(file: &Path, text: &str, place: &Place, fault: Fault) -> Self {
        let Fault { message, help, inside, .. } = fault;
        let source = text.lines().nth(place.mark.line.saturating_sub(1)).unwrap_or_default();
        let mark = inside.map_or(place.mark, |(offset, inner)| narrowed(source, place.mark, offset, &inner));
        Self {
            file: file.to_owned(),
            line: mark.line,
            column: mark.column,
            path: short(&place.path),
            message,
            help,
            snippet: (source.len() <= LINE).then(|| snippet(source, mark)),
        }
    }
}

/// Returns a path as it is shown.
fn short(path: &str) -> String {
    if path.len() <= PATH { path.to_owned() } else { path.chars().take(PATH).chain(['…']).collect() }
}

/// Returns the mark of one character of a scalar, if the scalar stands in the text as it is, quoted or not.
fn narrowed(source: &str, mark: Mark, offset: usize, inner: &str) -> Mark {
    let from = |column: usize| source.chars().skip(column.saturating_sub(1));
    let starts = [mark.column, mark.column + 1];
    let stands = |column: &usize| inner.chars().eq(from(*column).take(inner.chars().count()));
    match starts.into_iter().find(stands) {
        Some(column) => Mark { column: column + offset, width: 1, ..mark },
        None => mark,
    }
}

fn snippet(source: &str, mark: Mark) -> String {
    let gutter = " ".repeat(mark.line.to_string().len());
    let length = source.trim_end().chars().count();
    let width = mark.width.min((length + 1).saturating_sub(mark.column)).max(1);
    let (indent, carets) = (" ".repeat(mark.column.saturating_sub(1)), "^".repeat(width));
    format!("{gutter} |\n{} | {}\n{gutter} | {indent}{carets}", mark.line, source.trim_end())
}

impl fmt::Display for Problem {
    /// Writes `file:line:column: field: message`, and below it the line, and what helps.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = Mark { line: self.line, column: self.column, width: 0 };
        write!(f, "{}: ", At { file: &self.file, mark })?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        if let Some(snippet) = &self.snippet {
            write!(f, "\n{snippet}")?;
        }
        if let Some(help) = self.help.as_ref().filter(|_| self.line == 0) {
            write!(f, "; {help}")?;
        } else if let Some(help) = &self.help {
            let gutter = " ".repeat(self.line.to_string().len());
            write!(f, "\n{gutter} = {help}")?;
        }
        Ok(())
    }
}
