//! Decides how things are said: in colour, with spinners and cut to the width on a terminal, as plain lines elsewhere.

use std::env;
use std::fmt::Display;
use std::io::{self, Write};
use std::time::Duration;

use anyhow::Result;
use bench::clock::Stopwatch;
use console::Term;
use indicatif::{ProgressBar, ProgressStyle};

/// Between two signs of life where there is no spinner.
const SIGN_OF_LIFE: Duration = Duration::from_secs(20);
/// How wide the names of tasks are.
const LABEL: usize = 16;
/// The widest lines, for the eye's sake.
const WIDEST: usize = 110;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ui {
    /// Whether somebody sees what is overwritten.
    lively: bool,
    /// None where lines are not cut.
    width: Option<usize>,
}

/// Something that takes a while. Say [`Task::done`] or [`Task::failed`] at its end.
#[derive(Debug)]
pub(crate) struct Task {
    ui: Ui,
    label: String,
    bar: ProgressBar,
    watch: Stopwatch,
    last_sign: Stopwatch,
}

// === impl Ui ===

impl Ui {
    pub(crate) fn new() -> Self {
        let out = Term::stdout();
        let ci = env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false");
        Self {
            lively: !ci && out.is_term() && Term::stderr().is_term(),
            width: out.is_term().then(|| usize::from(out.size().1).min(WIDEST)),
        }
    }

    /// Writes a line to standard output, cut to the terminal's width.
    pub(crate) fn line(self, text: impl Display) {
        let text = text.to_string();
        let mut out = io::stdout().lock();
        for line in text.split('\n') {
            let line = match self.width {
                Some(width) => console::truncate_str(line, width, "…"),
                None => line.into(),
            };
            // Whoever closed our output doesn't want to know.
            drop(writeln!(out, "{}", line.trim_end()));
        }
    }

    /// Does something that takes a while; it returns a sentence on what has come of it.
    pub(crate) fn doing(self, label: &str, work: impl FnOnce(&mut Task) -> Result<String>) -> Result<()> {
        self.making(label, |task| Ok(((), work(task)?)))
    }

    /// As [`Self::doing`], for what is needed afterwards.
    pub(crate) fn making<T>(self, label: &str, work: impl FnOnce(&mut Task) -> Result<(T, String)>) -> Result<T> {
        let mut task = self.task(label);
        match work(&mut task) {
            Ok((made, detail)) => {
                task.done(&detail);
                Ok(made)
            }
            Err(error) => {
                task.failed("");
                Err(error)
            }
        }
    }

    pub(crate) fn task(self, label: &str) -> Task {
        let bar = if self.lively { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        bar.set_style(style("  {spinner:.cyan} {prefix} {wide_msg:.dim} {elapsed:>4}"));
        bar.set_prefix(format!("{label:LABEL$}"));
        bar.enable_steady_tick(Duration::from_millis(100));
        Task { ui: self, label: label.to_owned(), bar, watch: Stopwatch::start(), last_sign: Stopwatch::start() }
    }
}

/// The templates are constants of this file, so that a wrong one shows at the first use.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner()).progress_chars("━╸ ")
}

// === impl Task ===

impl Task {
    pub(crate) fn at(&mut self, what: &str) {
        self.bar.set_message(what.to_owned());
        if !self.ui.lively && self.last_sign.spent() > SIGN_OF_LIFE {
            self.last_sign = Stopwatch::start();
            let spent = said(self.watch.spent());
            self.ui.line(format!("    {:LABEL$} {what} ({spent} so far)", self.label));
        }
    }

    /// Says how far it is, which makes a bar of the spinner.
    pub(crate) fn progress(&mut self, done: u64, of: u64, what: &str) {
        if self.bar.length() != Some(of) {
            self.bar.set_style(style(
                "  {spinner:.cyan} {prefix} {bar:24.cyan/dim} {pos}/{len} {wide_msg:.dim} {elapsed:>4}",
            ));
            self.bar.set_length(of);
        }
        self.bar.set_position(done);
        self.at(what);
    }

    /// Writes lines while it goes on.
    pub(crate) fn whole(&self, lines: &[String]) {
        self.bar.suspend(|| whole(lines));
    }

    /// Says at once, where there is no spinner, that it has begun.
    pub(crate) fn announce(&self, what: &str) {
        if self.ui.lively {
            self.bar.set_message(what.to_owned());
        } else {
            self.ui.line(format!("    {:LABEL$} {what}", self.label));
        }
    }

    /// Ends it well, and returns how long it took.
    pub(crate) fn done(self, detail: &str) -> Duration {
        self.end(&green("✓"), detail)
    }

    /// Ends it badly, and returns how long it took.
    pub(crate) fn failed(self, detail: &str) -> Duration {
        self.end(&red("✗"), detail)
    }

    pub(crate) fn skipped(self, detail: &str) -> Duration {
        self.end(&dim("–"), detail)
    }

    fn end(self, mark: &str, detail: &str) -> Duration {
        let spent = self.watch.spent();
        self.bar.finish_and_clear();
        let time = dim(&said(spent));
        self.ui.line(format!("  {mark} {:LABEL$} {detail}  {time}", self.label));
        spent
    }
}

/// Writes a line that may be copied, and is never cut.
pub(crate) fn uncut(text: impl Display) {
    whole(&[text.to_string()]);
}

pub(crate) fn whole(lines: &[String]) {
    let mut out = io::stdout().lock();
    for line in lines {
        drop(writeln!(out, "{line}"));
    }
}

pub(crate) fn error(error: &anyhow::Error) {
    let word = console::style("error").for_stderr().red().bold();
    drop(writeln!(io::stderr(), "{word}: {error:#}"));
}

/// Asks a question; anything but yes is no. None if nobody is there to answer.
pub(crate) fn ask(question: &str) -> Option<bool> {
    if !Term::stdout().is_term() || !io::IsTerminal::is_terminal(&io::stdin()) {
        return None;
    }
    let mut out = io::stdout().lock();
    drop(write!(out, "{question} [y/N] ").and_then(|()| out.flush()));
    let mut answer = String::new();
    let is_read = io::stdin().read_line(&mut answer).is_ok();
    Some(is_read && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

macro_rules! styles {
    ($($(#[$doc:meta])* $style:ident)*) => {
        $($(#[$doc])* pub(crate) fn $style(text: &str) -> String {
            console::style(text).$style().to_string()
        })*
    };
}
styles! {
    /// What is beside the point.
    dim
    /// A heading.
    bold
    /// What is well.
    green
    /// What is not.
    red
    /// What can be typed.
    cyan
}

/// Returns a size as people say it: `118 KB`, `3.2 MB`.
pub(crate) fn size(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let kilobytes = bytes as f64 / 1000.0;
    if kilobytes < 1000.0 { format!("{kilobytes:.0} KB") } else { format!("{:.1} MB", kilobytes / 1000.0) }
}

/// Returns the rows with their cells below one another, two spaces apart; colours don't count as width.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| console::measure_text_width(cell)).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| {
            let fill = width.saturating_sub(console::measure_text_width(cell));
            format!("{cell}{}", " ".repeat(fill))
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns a duration as people say it: `14 ms`, `1.31 s`, `42 s`, `3 min 05 s`.
pub(crate) fn said(time: Duration) -> String {
    // Rounded as all decimals are.
    let millis = (time + Duration::from_micros(500)).as_millis();
    let seconds = millis / 1000;
    match seconds {
        0 => format!("{millis} ms"),
        1..10 => format!("{:.2} s", time.as_secs_f64()),
        10..120 => format!("{seconds} s"),
        _ => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_said_in_the_unit_that_fits() {
        assert_eq!([1_499, 118_200, 23_440_000].map(size), ["1 KB", "118 KB", "23.4 MB"]);
    }

    #[test]
    fn cells_stand_below_one_another_whatever_their_colour() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [
            row(["step", "result", "time"]),
            row(["core", "\u{1b}[32mok\u{1b}[0m", "3 s"]),
            row(["fmt", "failed", ""]),
        ];
        let lines = ["step  result  time", "core  \u{1b}[32mok\u{1b}[0m      3 s", "fmt   failed"];
        assert_eq!(table(&rows), lines.join("\n"));
    }

    #[test]
    fn a_duration_is_said_with_as_many_digits_as_matter() {
        let table = [
            (0, "0 ms"),
            (14_600, "15 ms"),
            (999_400, "999 ms"),
            (999_600, "1.00 s"),
            (1_310_000, "1.31 s"),
            (42_700_000, "42 s"),
            (185_000_000, "3 min 05 s"),
        ];
        let said = table.map(|(micros, _)| said(Duration::from_micros(micros)));
        assert_eq!(said, table.map(|(_, text)| text.to_owned()));
    }
}
