//! `capstan plugins`: asks a running daemon how its plugins are, and prints the answer.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use capstan_core::manifest;
use capstan_core::text;
use k8s_openapi::jiff::Timestamp;

use crate::cli::args::{Output, Plugins};
use crate::cli::daemon;
use crate::controller::{LastError, LastFailure};
use crate::supervisor::status::{Registry, Report, Row, State};

/// Asks, prints, and exits with 0 if everything that the manifests say is in force, else with 1.
///
/// # Errors
/// If no daemon answers at the address.
pub async fn run(args: &Plugins) -> anyhow::Result<ExitCode> {
    let report = daemon::asked(&args.address, ask_all(&args.address)).await?;
    let text = match args.output {
        Output::Table => text::lines(&table(&report, Timestamp::now())),
        Output::Json => format!("{}\n", serde_json::to_string_pretty(&report)?),
        Output::Yaml => serde_yaml::to_string(&report)?,
    };
    std::io::stdout().lock().write_all(text.as_bytes()).context("write to standard output")?;
    let settled = |row: &Row| row.state == State::Active;
    Ok(if report.plugins.iter().all(settled) && report.manifests.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Asks for one part after the other.
async fn ask_all(address: &str) -> anyhow::Result<Report> {
    let mut report = ask(address, None).await?;
    while let Some(next) = report.next.take() {
        let more = ask(address, Some(&next)).await?;
        report.plugins.extend(more.plugins);
        report.next = more.next;
    }
    Ok(report)
}

async fn ask(address: &str, after: Option<&str>) -> anyhow::Result<Report> {
    let part: Vec<_> = after.map(|after| ("continue", after)).into_iter().collect();
    daemon::page(address, "/debug/plugins", &part).await
}

/// Returns the table: one line for each plugin, and below it what is wrong.
fn table(report: &Report, now: Timestamp) -> String {
    let head = [
        "OPERATOR",
        "NAME",
        "STATE",
        "VERSION",
        "DIGEST",
        "AGE",
        "PRIMARIES",
        "FAILING",
        "CALLS",
        "FAILED",
        "INSTANCES",
        "PEAK",
    ];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    lines.extend(report.plugins.iter().map(|row| line(row, now)));
    let widths: Vec<usize> = (0..head.len())
        .map(|column| lines.iter().filter_map(|line| line.get(column)).map(String::len).max())
        .map(Option::unwrap_or_default)
        .collect();
    let mut text = String::new();
    for line in lines {
        let cells: Vec<_> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        // Writing to a string cannot fail.
        let _infallible = writeln!(text, "{}", cells.join("   ").trim_end());
    }
    for row in &report.plugins {
        if let Some(waiting) = &row.waiting {
            let _infallible = writeln!(text, "\n{}/{}: {waiting}", row.operator, row.name);
        }
        if let Some(LastFailure { controller, key, error }) = &row.last_error {
            let LastError { time, attempt, class, message } = error;
            let _infallible = writeln!(
                text,
                "\n{}/{}: {} of {} primaries fail; last {controller} {key} at {time}, {class}, after {attempt} retries\n  {message}",
                row.operator, row.name, row.failing, row.primaries
            );
        }
        if let Some(registry) = &row.registry {
            let _infallible = writeln!(text, "\n{}/{}: {}", row.operator, row.name, of_registry(registry, now));
        }
        if let Some(problem) = &row.problem {
            let _infallible = writeln!(
                text,
                "\n{}/{}: since {}, step {}\n  {}",
                row.operator, row.name, problem.since, problem.step, problem.message
            );
        }
    }
    for manifest in &report.manifests {
        let _infallible = writeln!(text, "\nmanifest {}\n{}", manifest.file, manifest.problem);
    }
    text
}

fn line(row: &Row, now: Timestamp) -> Vec<String> {
    let dash = || "-".to_owned();
    let state = match row.state {
        State::Loading => "loading",
        State::Active => "active",
        State::Waiting => "waiting",
        State::Outdated => "outdated",
        State::WaitingForApproval => "waiting for approval",
        State::Failed => "failed",
    };
    let since = row.since.as_ref().and_then(|since| since.parse::<Timestamp>().ok());
    let usage = row.usage.as_ref();
    vec![
        row.operator.clone(),
        row.name.clone(),
        state.to_owned(),
        row.version.to_string(),
        row.digest.as_ref().map_or_else(dash, |digest| digest.chars().take(12).collect()),
        since.map_or_else(dash, |since| age(now.duration_since(since).as_secs())),
        row.primaries.to_string(),
        row.failing.to_string(),
        usage.map_or_else(dash, |usage| usage.calls.to_string()),
        usage.map_or_else(dash, |usage| usage.failed().to_string()),
        usage.map_or_else(dash, |usage| usage.instances.to_string()),
        usage.map_or_else(dash, |usage| size(usage.peak_memory_bytes)),
    ]
}

/// Says what a registry has answered, who has signed that, when it was asked, and when it is asked again.
fn of_registry(Registry { digest, signed_by, checked, next, mirror, problem }: &Registry, now: Timestamp) -> String {
    let time = |time: &Option<String>| time.as_ref()?.parse::<Timestamp>().ok();
    let digest = digest.as_deref().unwrap_or("not pulled yet");
    let checked = time(checked).map(|time| format!(", checked {} ago", age(now.duration_since(time).as_secs())));
    let next = time(next).map(|time| format!(", next in {}", age(time.duration_since(now).as_secs())));
    let problem = problem.as_ref().map(|problem| format!("\n  the registry: {problem}"));
    let mirror = mirror.as_ref().map(|mirror| format!(", from its mirror {mirror}"));
    let signed = (!signed_by.is_empty()).then(|| format!(", signed by {}", signed_by.join(" and ")));
    [mirror, signed, checked, next, problem].into_iter().flatten().fold(digest.to_owned(), |said, more| said + &more)
}

/// Returns a time as kubectl says it: `42s`, `5m`, `3h`, `12d`.
fn age(seconds: i64) -> String {
    match seconds.max(0) {
        s @ 0..120 => format!("{s}s"),
        s @ 120..7_200 => format!("{}m", s / 60),
        s @ 7_200..172_800 => format!("{}h", s / 3_600),
        s => format!("{}d", s / 86_400),
    }
}

/// Returns a size in full `Ki`, or from 1 MiB on in full `Mi`, not less than it is.
fn size(bytes: u64) -> String {
    let unit = if bytes < 1 << 20 { 1 << 10 } else { 1 << 20 };
    manifest::Bytes(bytes.checked_next_multiple_of(unit).unwrap_or(bytes)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::Usage;
    use crate::supervisor::status::{Manifest, Problem};

    fn row(name: &str) -> Row {
        Row {
            operator: "web".to_owned(),
            name: name.to_owned(),
            state: State::Active,
            version: 2,
            digest: Some("0123456789abcdef".to_owned()),
            since: Some("2026-11-21T10:00:00Z".to_owned()),
            component: format!("/plugins/{name}.wasm"),
            registry: None,
            controllers: vec!["page".to_owned()],
            problem: None,
            waiting: None,
            refused: 0,
            process: None,
            primaries: 7,
            failing: 0,
            last_error: None,
            usage: Some(Usage {
                calls: 120,
                errors: 1,
                traps: 2,
                timeouts: 3,
                instances: 4,
                peak_memory_bytes: 12 << 20,
                ..Usage::default()
            }),
        }
    }

    #[test]
    fn the_table_has_a_line_for_each_plugin_and_below_it_what_is_wrong() {
        let problem = Problem {
            step: "compile".to_owned(),
            message: "b.wasm is cut off".to_owned(),
            since: "2026-11-21T10:04:00Z".to_owned(),
        };
        let failed = Row {
            state: State::Failed,
            version: 0,
            digest: None,
            since: None,
            problem: Some(problem),
            usage: None,
            primaries: 0,
            ..row("b")
        };
        let error = LastError {
            time: "2026-11-21T10:03:00Z".to_owned(),
            attempt: 2,
            class: "returned".to_owned(),
            message: "no html".to_owned(),
        };
        let last_error = LastFailure { controller: "page".to_owned(), key: "default/a".to_owned(), error };
        let failing = Row { failing: 1, last_error: Some(last_error), ..row("page") };
        let registry = Registry {
            digest: Some("sha256:01".to_owned()),
            signed_by: vec!["sha256:02".to_owned()],
            checked: Some("2026-11-21T10:04:20Z".to_owned()),
            next: Some("2026-11-21T10:05:20Z".to_owned()),
            mirror: Some("m.io".to_owned()),
            problem: Some("it fails (503)".to_owned()),
        };
        let failing = Row { registry: Some(registry), ..failing };
        let templates = Row { version: 1, digest: None, usage: None, component: String::new(), ..row("templates") };
        let report = Report {
            plugins: vec![failing, failed, templates],
            manifests: vec![Manifest {
                file: "x.yaml".to_owned(),
                problem: "x.yaml:1:1: it is empty".to_owned(),
                goes_on: false,
            }],
            next: None,
        };
        let now = "2026-11-21T10:05:00Z".parse().unwrap();
        let expected = "\
OPERATOR   NAME        STATE    VERSION   DIGEST         AGE   PRIMARIES   FAILING   CALLS   FAILED   INSTANCES   PEAK
web        page        active   2         0123456789ab   5m    7           1         120     6        4           12Mi
web        b           failed   0         -              -     0           0         -       -        -           -
web        templates   active   1         -              5m    7           0         -       -        -           -

web/page: 1 of 7 primaries fail; last page default/a at 2026-11-21T10:03:00Z, returned, after 2 retries
  no html

web/page: sha256:01, from its mirror m.io, signed by sha256:02, checked 40s ago, next in 20s
  the registry: it fails (503)

web/b: since 2026-11-21T10:04:00Z, step compile
  b.wasm is cut off

manifest x.yaml
x.yaml:1:1: it is empty
";
        assert_eq!(table(&report, now), expected);
    }

    #[test]
    fn a_report_is_read_as_it_is_written() {
        let report = Report { plugins: vec![row("page")], manifests: Vec::new(), next: Some("web/page".to_owned()) };
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    }

    #[test]
    fn ages_and_sizes_are_said_as_kubernetes_does() {
        assert_eq!([-3, 42, 300, 7_200, 200_000].map(age), ["0s", "42s", "5m", "2h", "2d"]);
        assert_eq!([0, 1, 65_536, 1 << 20, 1 + (3 << 20)].map(size), ["0", "1Ki", "64Ki", "1Mi", "4Mi"]);
    }
}
