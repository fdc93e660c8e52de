//! Reads how much memory the daemon may have.

use std::fs;

/// The limit of a container, under version 2 and version 1 of control groups.
const LIMITS: [&str; 2] = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];

/// Returns how many bytes of memory there are: what the container may have, or what the machine has if that is less;
/// `u64::MAX` if neither is known.
pub fn memory() -> u64 {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let limits = LIMITS.map(read);
    least(limits.each_ref().map(String::as_str), &read("/proc/meminfo"))
}

fn least(limits: [&str; 2], machine: &str) -> u64 {
    let total = machine.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let total = total.and_then(|text| text.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    // `max` says that there is no limit.
    let limits = limits.into_iter().filter_map(|text| text.trim().parse().ok());
    let all = limits.chain(total.map(|kib| kib.saturating_mul(1024)));
    all.min().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_bound_counts() {
        let machine = "MemFree: 1 kB\nMemTotal:       16384 kB\n";
        for (limits, machine, bytes) in [
            (["1048576\n", ""], machine, 1 << 20),
            (["max\n", ""], machine, 16 << 20),
            (["", "9223372036854771712"], machine, 16 << 20),
            (["", ""], "", u64::MAX),
        ] {
            assert_eq!(least(limits, machine), bytes, "{limits:?}");
        }
    }
}
