//! Decides what is told of the machine and the software, without which figures mean nothing.

use std::fs;
use std::thread;

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

use crate::measure::Sizes;
use crate::subject::Subject;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_read_from_what_the_kernel_writes() {
        let cpu = "processor\t: 0\nmodel name\t: Some CPU @ 2.00GHz\n";
        assert_eq!(field(cpu, "model name").as_deref(), Some("Some CPU @ 2.00GHz"));
        assert_eq!(gibibytes("MemTotal:       24640000 kB\nMemFree: 1 kB\n"), 24);
    }
}
