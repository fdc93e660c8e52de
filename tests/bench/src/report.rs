//! Decides how figures are told: rounds side by side, with the target where there is one, and the machine before them.

use std::{fs, thread};

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

use crate::measure::{Measure, Sizes};
use crate::subject::Subject;

/// The least width of the names.
const NAME: usize = 26;

/// What a figure should be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Target {
    /// No more than this.
    AtMost(f64),
    /// Nothing but this.
    Exactly(f64),
}

/// One figure of all rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    measure: Measure,
    name: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    unit: &'static str,
    /// In the order of the rounds.
    values: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Target>,
    /// Whether each value is as it should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    met: Option<bool>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    setting: Setting,
    figures: Vec<Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    remarks: Vec<String>,
}

/// The machine and the software, without which figures mean nothing.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Setting {
    cores: usize,
    cpu: String,
    #[serde(rename = "memoryGiB")]
    memory: u64,
    kernel: String,
    /// What the daemon says of itself.
    capstan: Value,
    kubernetes: String,
    rounds: usize,
    #[serde(flatten)]
    pub(crate) sizes: Sizes,
}

/// What there must be nothing of while components are swapped.
const NOTHING: [&str; 3] = [": lost runs", ": doubled runs", ": writes"];

// === impl Target ===

impl Target {
    /// Returns the target of a figure, if it has one. Those of `create` are set for 1,000 pages, that of `cache` for
    /// 10,000 Deployments, that of `swaps` for 1,000 swaps.
    fn of(measure: Measure, name: &str) -> Option<Self> {
        let target = match (measure, name) {
            (Measure::Idle, "Pss") => Self::AtMost(20.0),
            (Measure::Create, "operator CPU") => Self::AtMost(2.4),
            (Measure::Create, "writes") => Self::Exactly(4000.0),
            (Measure::Restart, "until all are reconciled") => Self::AtMost(0.6),
            (Measure::Restart, "operator CPU") => Self::AtMost(0.5),
            (Measure::Restart | Measure::Noop, "writes")
            | (Measure::Noop, "reads")
            | (Measure::Fleet, "warm: pulls" | "warm: compiled") => Self::Exactly(0.0),
            (Measure::Noop, "CPU of a reconcile") => Self::AtMost(200.0),
            (Measure::Cache, "start to synced") => Self::AtMost(1.0),
            (Measure::Cache, "Pss above idle") => Self::AtMost(60.0),
            (Measure::Cache, "packed: Pss above idle") => Self::AtMost(8.0),
            (Measure::Cache, "metadata only: Pss above idle") => Self::AtMost(4.0),
            (Measure::Cache, "peak RSS / Pss") => Self::AtMost(1.3),
            (Measure::Swap, name) if name.ends_with(": more at a swap") => Self::AtMost(5.0),
            (Measure::Swap, name) if NOTHING.iter().any(|end| name.ends_with(end)) => Self::Exactly(0.0),
            (Measure::Swaps, "growth of Pss since the first tenth") => Self::AtMost(5.0),
            (Measure::Neighbours, name) if name.ends_with(": p99 / p99 alone") => Self::AtMost(3.0),
            (Measure::Neighbours, name) if name.ends_with(": /livez, p99") => Self::AtMost(20.0),
            (Measure::Follow, "its end to in force, without that, most") => Self::AtMost(1500.0),
            (Measure::Fleet, "cold: pulls of a component, most") => Self::Exactly(1.0),
            (Measure::Fleet, "cold: pulls" | "cold: compiled") => Self::Exactly(20.0),
            (Measure::Tenants, "Pss of an idle one") => Self::AtMost(0.7),
            (Measure::Tenants, "one more, created to Ready, median") => Self::AtMost(300.0),
            _ => return None,
        };
        Some(target)
    }

    #[expect(clippy::float_cmp, reason = "counts, exact as f64")]
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::Exactly(wanted) => value == wanted,
        }
    }
}

// === impl Setting ===

impl Setting {
    pub(crate) fn of(subject: &Subject, kubernetes: String, rounds: usize, sizes: Sizes) -> Result<Self> {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Ok(Self {
            cores: thread::available_parallelism()?.get(),
            cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown CPU".to_owned()),
            memory: gibibytes(&read("/proc/meminfo")),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            capstan: subject.version()?,
            kubernetes,
            rounds,
            sizes,
        })
    }

    pub(crate) fn lines(&self) -> [String; 2] {
        let Self { cores, cpu, memory, kernel, capstan, kubernetes, rounds, .. } = self;
        let version = capstan.get("version").and_then(Value::as_str).unwrap_or("?");
        let times = if *rounds == 1 { "once".to_owned() } else { format!("{rounds} times, from least to most") };
        [
            format!("{cores} cores ({cpu}), {memory} GiB, Linux {kernel}; server, harness and daemon share them"),
            format!("capstan {version}, Kubernetes {kubernetes}; measured {times}"),
        ]
    }
}

fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim_start().strip_prefix(':')?.trim().to_owned())
}

fn gibibytes(meminfo: &str) -> u64 {
    let total = field(meminfo, "MemTotal").and_then(|text| text.strip_suffix(" kB")?.trim().parse::<u64>().ok());
    // The kernel keeps some for itself: 23.5 GiB are a machine of 24.
    total.unwrap_or_default().div_ceil(1 << 20)
}

// === impl Report ===

impl Report {
    pub(crate) fn new(setting: Setting, mut figures: Vec<Row>, remarks: Vec<String>) -> Self {
        // A name that only a later round had still belongs to its measure.
        figures.sort_by_key(|row| row.measure);
        Self { setting, figures, remarks }
    }

    pub(crate) fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    pub(crate) fn table(&self) -> String {
        let mut lines = self.setting.lines().to_vec();
        for rows in self.figures.chunk_by(|one, next| one.measure == next.measure) {
            let Some(Row { measure, .. }) = rows.first() else {
                continue;
            };
            lines.push(format!("\n{}: {}", measure.name(), measure.about(self.setting.sizes)));
            if *measure == Measure::Languages {
                lines.extend(matrix(rows));
                continue;
            }
            let names = rows.iter().map(|row| row.name.chars().count());
            let width = names.max().unwrap_or_default().max(NAME);
            lines.extend(rows.iter().map(|row| row.line(width).trim_end().to_owned()));
        }
        lines.extend((!self.remarks.is_empty()).then(String::new));
        lines.extend(self.remarks.iter().cloned());
        lines.join("\n") + "\n"
    }
}

/// Adds a figure to those of its name, or as the first one of it.
pub(crate) fn add(rows: &mut Vec<Row>, measure: Measure, name: String, unit: &'static str, value: f64) {
    let target = Target::of(measure, &name);
    let met = target.map(|target| target.is_met(value));
    if let Some(row) = rows.iter_mut().find(|row| row.measure == measure && row.name == name) {
        row.values.push(value);
        row.met = row.met.and_then(|before| Some(before && met?));
    } else {
        rows.push(Row { measure, name, unit, values: vec![value], target, met });
    }
}

impl Row {
    /// Returns the least and the most value; one, if they read the same.
    fn range(&self) -> String {
        let least = self.values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (least, most) = (amount(least, self.unit), amount(most, self.unit));
        if least == most { least } else { format!("{least} – {most}") }
    }

    fn line(&self, width: usize) -> String {
        let range = self.range();
        let told = format!("  {:<width$} {range:>17} {:<4}", self.name, self.unit);
        let Some(target) = self.target else {
            return told;
        };
        let word = if self.met == Some(true) { "met" } else { "MISSED" };
        let (how, value) = match target {
            Target::AtMost(most) => ("at most", most),
            Target::Exactly(wanted) => ("exactly", wanted),
        };
        format!("{told} {how} {}: {word}", amount(value, self.unit))
    }
}

/// Returns the lines of a table in Markdown, to be put into a page, with a column for each subject of rows that are named
/// `subject: figure`; both in the order in which they first come.
fn matrix(rows: &[Row]) -> Vec<String> {
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
    row.name.split_once(": ").unwrap_or(("", &row.name))
}

/// Returns a number with as many digits as it deserves; one without a unit is a count if it can be.
fn amount(value: f64, unit: &str) -> String {
    let is_count = unit.is_empty() && value.fract() == 0.0;
    if is_count || value.abs() >= 1000.0 {
        return grouped(&format!("{value:.0}"));
    }
    if value.abs() < 10.0 { format!("{value:.2}") } else { format!("{value:.1}") }
}

/// Returns a count with its thousands set apart.
pub(crate) fn count(count: usize) -> String {
    grouped(&count.to_string())
}

fn grouped(digits: &str) -> String {
    let mut told = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && told != "-" && (digits.len() - at).is_multiple_of(3) {
            told.push(',');
        }
        told.push(digit);
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_stand_side_by_side_and_the_worst_one_decides() {
        let mut rows = Vec::new();
        for (measure, name, value) in [
            (Measure::Create, "operator CPU", 2.3),
            (Measure::Create, "operator CPU", 2.5),
            (Measure::Create, "patch pods", 7.0),
            (Measure::Restart, "operator CPU", 0.4),
        ] {
            add(&mut rows, measure, name.to_owned(), "s", value);
        }
        let lines: Vec<String> = rows.iter().map(|row| row.line(NAME).trim_end().to_owned()).collect();
        assert_eq!(
            lines,
            [
                "  operator CPU                     2.30 – 2.50 s    at most 2.40: MISSED",
                "  patch pods                              7.00 s",
                "  operator CPU                            0.40 s    at most 0.50: met",
            ]
        );
    }

    #[test]
    fn numbers_have_the_digits_that_they_deserve() {
        let times = [0.0, 0.004, 2.345, 45.67, 4000.0, 999.5].map(|time| amount(time, "s"));
        assert_eq!(times, ["0.00", "0.00", "2.35", "45.7", "4,000", "999.5"]);
        let counts = [0.0, 4000.0, -180.0, 1_234_567.8, 1.04].map(|count| amount(count, ""));
        assert_eq!(counts, ["0", "4,000", "-180", "1,234,568", "1.04"]);
        assert_eq!(count(1_000_000), "1,000,000");
    }

    #[test]
    fn an_exact_target_is_missed_by_one() {
        let target = Target::of(Measure::Create, "writes");
        assert_eq!(target.map(|target| [3999.0, 4000.0, 4001.0].map(|n| target.is_met(n))), Some([false, true, false]));
    }

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
        assert_eq!(matrix(&rows).join("\n"), table);
    }

    #[test]
    fn the_machine_is_read_from_what_the_kernel_writes() {
        let cpu = "processor\t: 0\nmodel name\t: Some CPU @ 2.00GHz\n";
        assert_eq!(field(cpu, "model name").as_deref(), Some("Some CPU @ 2.00GHz"));
        assert_eq!(gibibytes("MemTotal:       24640000 kB\nMemFree: 1 kB\n"), 24);
    }
}
