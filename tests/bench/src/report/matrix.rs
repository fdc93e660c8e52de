//! Decides how one figure of several subjects is told: a table in Markdown with a column for each of them, to be put into a page.

use super::Row;

/// Between the subject and the figure in a name.
const APART: &str = ": ";

/// Returns the lines of the table of rows that are named `subject: figure`, both in the order in which they first come.
pub(super) fn of(rows: &[Row]) -> Vec<String> {
    let (mut subjects, mut figures) = (Vec::<&str>::new(), Vec::<(&str, &str)>::new());
    for row in rows {
        let (subject, figure) = split(row);
        if !subjects.contains(&subject) {
            subjects.push(subject);
        }
        if !figures.contains(&(figure, row.unit)) {
            figures.push((figure, row.unit));
        }
    }
    let mut lines =
        vec![format!("| | {} |", subjects.join(" | ")), format!("| --- |{}", " ---: |".repeat(subjects.len()))];
    lines.extend(figures.into_iter().map(|(figure, unit)| {
        let cells = subjects.iter().map(|subject| {
            let row = rows.iter().find(|row| split(row) == (*subject, figure));
            row.map_or_else(String::new, |row| format!("{} {unit}", row.range()).trim_end().to_owned())
        });
        format!("| {figure} | {} |", cells.collect::<Vec<_>>().join(" | "))
    }));
    lines
}

fn split(row: &Row) -> (&str, &str) {
    row.name.split_once(APART).unwrap_or(("", &row.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Measure;

    #[test]
    fn a_figure_that_a_subject_does_not_have_leaves_a_gap() {
        let row = |name: &str, unit, values: &[f64]| Row {
            measure: Measure::Languages,
            name: name.to_owned(),
            unit,
            values: values.to_vec(),
            target: None,
            met: None,
        };
        let rows = [
            row("Rust: component", "MiB", &[0.25]),
            row("Rust: fresh: writes", "", &[0.0]),
            row("Go: component", "MiB", &[2.0, 2.5]),
        ];
        let table = "\
| | Rust | Go |
| --- | ---: | ---: |
| component | 0.25 MiB | 2.00 – 2.50 MiB |
| fresh: writes | 0 |  |";
        assert_eq!(of(&rows).join("\n"), table);
    }
}
