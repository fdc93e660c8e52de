//! Decides how rows are laid out in columns.

use console::measure_text_width;

/// Returns the rows with their cells below one another, two spaces apart; colours don't count as width.
pub(crate) fn render(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| measure_text_width(cell)).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| {
            let fill = width.saturating_sub(measure_text_width(cell));
            format!("{cell}{}", " ".repeat(fill))
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_stand_below_one_another_whatever_their_colour() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [
            row(["step", "result", "time"]),
            row(["core", "\u{1b}[32mok\u{1b}[0m", "3 s"]),
            row(["fmt", "failed", ""]),
        ];
        let lines = ["step  result  time", "core  \u{1b}[32mok\u{1b}[0m      3 s", "fmt   failed"];
        assert_eq!(render(&rows), lines.join("\n"));
    }
}
