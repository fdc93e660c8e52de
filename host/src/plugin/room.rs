//! How much memory a compilation may have, where nobody says: what is left of the machine's, or of the cgroup's limit.

use std::fs;
use std::path::Path;

/// The most that is given: the largest interpreters need half of it.
const MOST: u64 = 2 << 30;

/// With less, nothing is worth being begun.
pub(super) const LEAST: u64 = 64 << 20;

/// What is given where nobody says how much there is.
const UNKNOWN: u64 = 512 << 20;

/// The least that is kept for those who are at work meanwhile.
const RESERVE: u64 = 64 << 20;

/// Memory that is bounded: a cgroup's, or the machine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Room {
    /// All of it.
    limit: u64,
    /// What is in use and can't be given back.
    used: u64,
}

/// Returns how many bytes there are for a compilation now: not more than are left, for who takes more than a cgroup has ends all
/// that is in it.
pub(super) fn now() -> u64 {
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let groups = read("/proc/self/cgroup".as_ref());
    let of_groups = folders(&groups).into_iter().filter_map(|folder| {
        let folder = Path::new(&folder);
        let of = |names: [&str; 2]| {
            Room::of_group(
                &read(&folder.join(names[0])),
                &read(&folder.join(names[1])),
                &read(&folder.join("memory.stat")),
            )
        };
        of(["memory.max", "memory.current"]).or_else(|| of(["memory.limit_in_bytes", "memory.usage_in_bytes"]))
    });
    let machine = Room::of_machine(&read("/proc/meminfo".as_ref()));
    share(of_groups.chain(machine))
}

/// Returns the folders that may have this process's limits: of its cgroups and of those around them. In a container, what
/// is around is not seen, and the folder at the top is its own.
fn folders(groups: &str) -> Vec<String> {
    let mut folders = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let top = match controllers {
            "" => "/sys/fs/cgroup",
            _ if controllers.split(',').any(|name| name == "memory") => "/sys/fs/cgroup/memory",
            _ => continue,
        };
        let around = Path::new(path).ancestors();
        folders.extend(around.map(|path| {
            let path = path.to_string_lossy();
            format!("{top}{}", path.trim_end_matches('/'))
        }));
    }
    folders
}

/// Returns what is given of memory that is bounded several times.
fn share(rooms: impl Iterator<Item = Room>) -> u64 {
    rooms.map(Room::share).min().unwrap_or(UNKNOWN).min(MOST)
}

impl Room {
    /// Reads what cgroups of both versions say: the limit, what is in use, and what of that is only kept of files.
    fn of_group(limit: &str, used: &str, stat: &str) -> Option<Self> {
        let limit = limit.trim().parse().ok()?;
        let used: u64 = used.trim().parse().ok()?;
        let kept = |names: [&str; 2]| -> Option<u64> { names.into_iter().map(|name| field(stat, name)).sum() };
        let kept =
            kept(["total_inactive_file", "total_active_file"]).or_else(|| kept(["inactive_file", "active_file"]));
        let used = used.saturating_sub(kept.unwrap_or_default());
        Some(Self { limit, used })
    }

    fn of_machine(meminfo: &str) -> Option<Self> {
        let limit = field(meminfo, "MemTotal:")?.checked_mul(1 << 10)?;
        let free = field(meminfo, "MemAvailable:")?.checked_mul(1 << 10)?;
        Some(Self { limit, used: limit.saturating_sub(free) })
    }

    fn share(self) -> u64 {
        let Self { limit, used } = self;
        let reserve = RESERVE.max(limit / 8);
        limit.saturating_sub(used).saturating_sub(reserve)
    }
}

/// Returns the number after a name.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_whitespace);
    lines.find_map(|mut words| (words.next()? == name).then(|| words.next()?.parse().ok())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MI: u64 = 1 << 20;

    #[test]
    fn what_is_left_of_the_limit_is_given() {
        let room = |limit, used| Room { limit: limit * MI, used: used * MI };
        for (rooms, expected) in [
            (vec![room(4096, 1000)], 2048),
            (vec![room(2048, 300)], 1492),
            // A reserve of at least 64 MiB; and nothing that is not there.
            (vec![room(1024, 300)], 596),
            (vec![room(1024, 1000)], 0),
            (vec![room(256, 10)], 182),
            (vec![room(256, 150)], 42),
            (vec![room(256, 200)], 0),
            // The narrowest counts.
            (vec![room(1 << 40, 0), room(1024, 100), room(8192, 0)], 796),
            (vec![], 512),
        ] {
            assert_eq!(share(rooms.clone().into_iter()), expected * MI, "{rooms:?}");
        }
    }

    #[test]
    fn both_versions_of_cgroups_and_the_machine_are_read() {
        let stat = "anon 7\ninactive_file 300\nactive_file 100\n";
        let old = "inactive_file 1\nactive_file 1\ntotal_inactive_file 300\ntotal_active_file 100\n";
        let expected = Some(Room { limit: 5000, used: 600 });
        assert_eq!(Room::of_group("5000\n", "1000\n", stat), expected);
        assert_eq!(Room::of_group("5000\n", "1000\n", old), expected);
        assert_eq!(Room::of_group("max\n", "1000\n", stat), None);
        let meminfo = "MemTotal:       10 kB\nMemFree:  1 kB\nMemAvailable:   4 kB\n";
        let machine = Some(Room { limit: 10 << 10, used: 6 << 10 });
        assert_eq!(Room::of_machine(meminfo), machine);
        assert_eq!(
            folders("4:memory:/a/b\n1:cpu,cpuacct:/a\n0::/c\n"),
            [
                "/sys/fs/cgroup/memory/a/b",
                "/sys/fs/cgroup/memory/a",
                "/sys/fs/cgroup/memory",
                "/sys/fs/cgroup/c",
                "/sys/fs/cgroup"
            ]
        );
    }
}
