//! Decides how texts of others are shown in the log, on a page or in a status: as one bounded line without invisible
//! characters.
//!
//! Others are components, the API server, manifests, and users who name objects. Their texts pass [`said`] where they
//! enter, so that code which passes them on need not do it. A text that has passed once passes again unchanged.

use std::borrow::Cow;
use std::fmt::{self, Write};

/// The longest text of others, in bytes.
pub const LONGEST: usize = 1 << 10;

/// The most lines of a [`block`].
pub const LINES: usize = 100;

/// Bytes for the note that says how much was left out.
const MARK: usize = 48;

/// Returns a text of others as one line of at most [`LONGEST`] bytes.
///
/// ```
/// assert_eq!(capstan_core::text::said("oops\nERROR all is lost"), r"oops\nERROR all is lost");
/// ```
pub fn said(text: &str) -> Cow<'_, str> {
    said_within(text, LONGEST)
}

/// Returns the same as [`said`] for an owned text, without a copy if the text stays as it is.
pub fn kept(text: String) -> String {
    match said(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(line) => line,
    }
}

/// Returns a text as one line of at most `limit` bytes. Line breaks, control characters (except tab), bidirectional
/// and invisible characters are escaped. A longer text is cut between characters and ends with a note of how much was
/// left out.
pub fn said_within(text: &str, limit: usize) -> Cow<'_, str> {
    let begin = floor(text, limit);
    if begin == text.len() && text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(begin);
    // Where to cut if the text does not fit: in the line, and in the text.
    let (mut fits, mut taken) = (0, 0);
    for (at, c) in text.char_indices() {
        push(&mut line, c);
        if line.len() > limit {
            line.truncate(fits);
            // Writing to a string cannot fail.
            let _infallible = write!(line, "{}", Omitted(text.len() - taken));
            return Cow::Owned(line);
        }
        if line.len() + MARK <= limit {
            (fits, taken) = (line.len(), at + c.len_utf8());
        }
    }
    Cow::Owned(line)
}

/// Returns a text as one line of at most `limit` bytes. A longer one is cut in its middle: errors begin with what was asked, and end with what is
/// wrong.
pub fn said_to_its_end(text: &str, limit: usize) -> Cow<'_, str> {
    let line = one_line(text);
    if line.len() <= limit {
        return line;
    }
    let part = limit.saturating_sub(MARK) / 2;
    let begin = floor(&line, part);
    let end = line.ceil_char_boundary(line.len() - part);
    let part = |range: std::ops::Range<usize>| line.get(range).unwrap_or_default();
    format!("{}{} …{}", part(0..begin), Omitted(end - begin), part(end..line.len())).into()
}

/// Returns a text as one line, without a limit.
pub fn one_line(text: &str) -> Cow<'_, str> {
    said_within(text, usize::MAX)
}

/// Returns a text of several lines, such as an error with an excerpt of a file: each line as by [`said`], and at most
/// [`LINES`] of them.
pub fn block(text: &str) -> String {
    let mut lines = text.lines();
    let mut block: Vec<_> = lines.by_ref().take(LINES).map(said).collect();
    let more = lines.count();
    if more > 0 {
        block.push(Cow::Owned(format!("… ({more} lines left out)")));
    }
    block.join("\n")
}

/// Returns a text of several lines for a terminal, each as by [`one_line`].
pub fn lines(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(one_line).collect();
    lines.join("\n")
}

/// A writer that passes texts on as [`said_within`] returns them, without a buffer.
#[derive(Debug)]
pub struct Line<W> {
    out: W,
    left: usize,
    omitted: usize,
}

impl<W: Write> Line<W> {
    /// Returns a writer of at most `limit` bytes to `out`.
    pub fn new(out: W, limit: usize) -> Self {
        Self { out, left: limit, omitted: 0 }
    }

    /// Writes how much was left out, if anything was.
    ///
    /// # Errors
    /// If `out` can't be written.
    pub fn finish(mut self) -> fmt::Result {
        match self.omitted {
            0 => Ok(()),
            omitted => write!(self.out, "{}", Omitted(omitted)),
        }
    }
}

impl<W: Write> Write for Line<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.omitted > 0 {
            self.omitted += text.len();
            return Ok(());
        }
        let line = one_line(text);
        let fitting = floor(&line, self.left);
        let (begin, rest) = line.split_at(fitting);
        self.left -= begin.len();
        self.omitted = rest.len();
        self.out.write_str(begin)
    }
}

/// The note of how many bytes were left out.
struct Omitted(usize);

impl fmt::Display for Omitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "… ({} bytes left out)", self.0)
    }
}

fn push(line: &mut String, c: char) {
    if is_plain(c) {
        line.push(c);
    } else {
        line.extend(c.escape_default());
    }
}

/// Returns the last position up to `limit` at which a text can be cut.
fn floor(text: &str, limit: usize) -> usize {
    let mut at = limit.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Returns true if a character is visible and does not change the text around it.
pub fn is_plain(c: char) -> bool {
    match c {
        '\t' | ' '..='\u{7e}' => true,
        // Soft hyphen, and characters that join others, change the direction, or have no width.
        '\u{ad}'
        | '\u{34f}'
        | '\u{61c}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        // Ends of lines and paragraphs, and bidirectional controls.
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{3164}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        // Tags, which encode invisible ASCII.
        | '\u{e0000}'..='\u{e0fff}' => false,
        c => !c.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_shown_to_its_end_is_cut_in_its_middle() {
        for (text, limit, expected) in [
            ("all of it", 9, "all of it"),
            ("one\ntwo", 48, r"one\ntwo"),
            (&*format!("begin {} end", "ä".repeat(100)), 68, "begin ää… (190 bytes left out) …äää end"),
        ] {
            let shown = said_to_its_end(text, limit);
            assert_eq!(shown, expected);
            assert!(shown.len() <= limit.max(text.len().min(limit)), "{shown}");
        }
    }

    #[test]
    fn what_hides_forges_colours_or_turns_around_is_escaped() {
        let table = [
            ("as it is: äöü 日本 🙂\t{}", "as it is: äöü 日本 🙂\t{}"),
            ("a\nERROR b", r"a\nERROR b"),
            ("a\r\nb", r"a\r\nb"),
            ("\u{1b}[31mred\u{1b}]0;title\u{7}", r"\u{1b}[31mred\u{1b}]0;title\u{7}"),
            ("\u{9b}31m", r"\u{9b}31m"),
            ("\u{85}next", r"\u{85}next"),
            ("user\u{202e}txt.exe", r"user\u{202e}txt.exe"),
            ("\u{2066}a\u{2069}", r"\u{2066}a\u{2069}"),
            ("a\u{2028}b\u{2029}c", r"a\u{2028}b\u{2029}c"),
            ("a\u{200b}\u{200f}\u{feff}b", r"a\u{200b}\u{200f}\u{feff}b"),
            ("\u{e0041}", r"\u{e0041}"),
            ("\0\u{7f}", r"\u{0}\u{7f}"),
        ];
        for (text, expected) in table {
            assert_eq!(said(text), expected);
            assert_eq!(said(&said(text)), expected, "again");
        }
    }

    #[test]
    fn what_is_too_long_is_cut_between_characters_and_says_by_how_much() {
        let long = "ä".repeat(4_000_000);
        let cut = said(&long);
        assert!(cut.len() <= LONGEST);
        let kept = cut.chars().filter(|&c| c == 'ä').count();
        assert_eq!(cut, format!("{}… ({} bytes left out)", "ä".repeat(kept), 8_000_000 - 2 * kept));
        assert_eq!(said(&cut), cut, "what was cut once is not cut again");
        assert_eq!(said(&"a".repeat(LONGEST)).len(), LONGEST);
    }

    #[test]
    fn the_bound_holds_for_what_escaping_makes_of_a_text() {
        let cut = said(&"\u{1b}".repeat(LONGEST)).into_owned();
        assert!(cut.len() <= LONGEST, "{}", cut.len());
        assert!(cut.ends_with("bytes left out)"));
    }

    #[test]
    fn a_block_keeps_its_lines_and_nothing_else() {
        assert_eq!(block("a\n  \u{1b}[2J\n"), "a\n  \\u{1b}[2J");
        let long = block(&"x\n".repeat(LINES + 7));
        assert_eq!(long.lines().count(), LINES + 1);
        assert!(long.ends_with("… (7 lines left out)"));
    }

    #[test]
    fn a_line_takes_its_text_in_pieces() {
        let mut out = String::new();
        let mut line = Line::new(&mut out, 8);
        line.write_str("ab\n").unwrap();
        line.write_str("cdefghi").unwrap();
        write!(line, "jkl").unwrap();
        line.finish().unwrap();
        assert_eq!(out, "ab\\ncdef… (6 bytes left out)");
    }
}
