//! Decides how a long run of cargo is shown while it goes on, and what is left of it at its end.

use std::process::Command;

use anyhow::{Result, bail};
use console::strip_ansi_codes;

use crate::process::{self, Finished};
use crate::ui::Task;

/// Runs cargo, which shows on `task`; `on_line` gets each line too, without its colours.
pub(crate) fn show(task: &mut Task, mut command: Command, on_line: &mut dyn FnMut(&str)) -> Result<Finished> {
    let colour = if console::colors_enabled() { "always" } else { "never" };
    command
        .env("CARGO_TERM_COLOR", colour)
        // Else cargo says nothing of its progress, as it does not write to a terminal.
        .env("CARGO_TERM_PROGRESS_WHEN", "always")
        .env("CARGO_TERM_PROGRESS_WIDTH", "120");
    process::run(command, &mut |line| {
        let plain = strip_ansi_codes(line);
        match units(&plain) {
            Some((done, of, what)) => task.progress(done, of, what),
            None if plain.trim().is_empty() => {}
            None => task.at(plain.trim()),
        }
        on_line(&plain);
    })
}

/// As [`show`], for a build that has to succeed.
pub(crate) fn must(task: &mut Task, command: Command, what: &str) -> Result<()> {
    let Finished { status, output } = show(task, command, &mut |_| {})?;
    if status.success() {
        return Ok(());
    }
    task.whole(&output);
    bail!("{what} failed ({status})");
}

/// Returns how many units of how many are built, and which are being built, from cargo's progress line.
pub(crate) fn units(line: &str) -> Option<(u64, u64, &str)> {
    let [done, of, what] = process::found(r"^\s*\S+ \[.*\] (\d+)/(\d+):?(.*)$", line)?;
    Some((done.parse().ok()?, of.parse().ok()?, what.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_progress_lines_are_progress() {
        let table = [
            ("    Building [=====>   ] 126/127: xtask(bin), syn", Some((126, 127, "xtask(bin), syn"))),
            ("    Building [=====>   ] 3/9", Some((3, 9, ""))),
            ("   Compiling syn v2.0.1 (a [b] 1/2)", None),
            ("test result: ok. 3 passed; 0 failed", None),
            ("[2/3] a", None),
        ];
        assert_eq!(table.map(|(line, _)| units(line)), table.map(|(_, expected)| expected));
    }
}
