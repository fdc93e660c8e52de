//! Decides what a line of a source is changed to.

use anyhow::{Result, bail};

/// A change of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    /// The file, from the sample's folder.
    pub(crate) file: &'static str,
    /// What is replaced. It has to be there once.
    pub(crate) from: &'static str,
    /// What comes in its place, on one line as well.
    pub(crate) to: String,
}

/// A text with a line changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edited {
    /// All of it.
    pub(crate) text: String,
    /// The number of the line, from 1.
    pub(crate) line: usize,
    /// The line before, without its indentation.
    pub(crate) before: String,
    /// The line now, without its indentation.
    pub(crate) after: String,
}

impl Edit {
    /// Returns what it makes of a text.
    ///
    /// # Errors
    /// When what is to be replaced is not there, or more than once.
    pub(crate) fn apply(&self, text: &str) -> Result<Edited> {
        let Self { file, from, to } = self;
        let mut found = text.lines().enumerate().filter(|(_, l)| l.contains(from));
        let Some((index, before)) = found.next() else {
            bail!("{file}: no line has `{from}`, which is to become `{to}`");
        };
        if text.matches(from).count() > 1 {
            bail!("{file}: `{from}` is to become `{to}`, but is there more than once");
        }
        Ok(Edited {
            text: text.replace(from, to),
            line: index + 1,
            before: before.trim().to_owned(),
            after: before.replace(from, to).trim().to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit() -> Edit {
        Edit { file: "src/lib.rs", from: "html()", to: "title()".to_owned() }
    }

    #[test]
    fn the_line_is_changed_and_told() {
        let expected = Edited {
            text: "a\n  b: title(),\nc\n".to_owned(),
            line: 2,
            before: "b: html(),".to_owned(),
            after: "b: title(),".to_owned(),
        };
        let edited = edit().apply("a\n  b: html(),\nc\n").unwrap();
        assert_eq!(edited, expected);
    }

    #[test]
    fn what_is_not_there_once_is_not_changed() {
        let table = [
            ("a\n", "src/lib.rs: no line has `html()`, which is to become `title()`"),
            ("html() html()\n", "src/lib.rs: `html()` is to become `title()`, but is there more than once"),
            ("html()\nhtml()\n", "src/lib.rs: `html()` is to become `title()`, but is there more than once"),
        ];
        for (text, expected) in table {
            let error = edit().apply(text).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }
}
