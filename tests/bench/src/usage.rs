//! Decides how much memory and CPU a process has used, from what the kernel says in `/proc`.

use std::fmt::Display;
use std::fs;

use anyhow::{Context, Error, Result};

/// The kernel counts CPU time for user space in hundredths of a second on every platform (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;
/// Where a process's own times are in `stat`, counted from after its name.
const OWN: usize = 11;
/// Where those of its children are.
const WAITED_FOR: usize = 13;

/// Returns user and system time of a process, all its threads together, in seconds.
pub fn cpu(process: impl Display) -> Result<f64> {
    ticks_of(&read(&format!("/proc/{process}/stat"))?, OWN)
}

/// Returns user and system time of this program's children that have ended and been waited for, with theirs, in seconds.
pub fn children_cpu() -> Result<f64> {
    ticks_of(&read("/proc/self/stat")?, WAITED_FOR)
}

/// Returns how many mappings of memory, open files and threads a process has.
pub fn holdings(pid: u32) -> Result<[usize; 3]> {
    let entries = |path: String| Ok::<_, Error>(fs::read_dir(&path).with_context(|| format!("read {path}"))?.count());
    let mappings = read(&format!("/proc/{pid}/maps"))?.lines().count();
    Ok([mappings, entries(format!("/proc/{pid}/fd"))?, entries(format!("/proc/{pid}/task"))?])
}

/// Returns how long the machine's cores have been busy since it started, taken together, in seconds; with the time that
/// the machine's host kept for itself.
pub fn machine_cpu() -> Result<f64> {
    busy_of(&read("/proc/stat")?)
}

/// Returns the memory of a process in MiB; what is shared with other processes counts in proportion (Pss).
pub fn pss(pid: u32) -> Result<f64> {
    mib(&read(&format!("/proc/{pid}/smaps_rollup"))?, "Pss:")
}

/// Returns the memory of a process that no file has, in MiB (Pss of anonymous pages).
pub fn anonymous(pid: u32) -> Result<f64> {
    mib(&read(&format!("/proc/{pid}/smaps_rollup"))?, "Pss_Anon:")
}

/// Returns the most memory that a process has ever had, in MiB (`VmHWM`).
pub fn peak(pid: u32) -> Result<f64> {
    mib(&read(&format!("/proc/{pid}/status"))?, "VmHWM:")
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("read {path}"))
}

/// Returns the two times, user and system, that begin at this field after the name.
fn ticks_of(stat: &str, field: usize) -> Result<f64> {
    // The second field is the name in brackets, which may contain anything.
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest);
    let mut numbers = fields.into_iter().flat_map(str::split_whitespace).skip(field);
    let mut next = || numbers.next()?.parse::<f64>().ok();
    let ticks = next().and_then(|user| Some(user + next()?));
    Ok(ticks.context("CPU time in stat")? / TICKS_PER_SECOND)
}

fn busy_of(stat: &str) -> Result<f64> {
    let line = stat.lines().next().and_then(|line| line.strip_prefix("cpu"));
    let line = line.context("the cores together in stat")?;
    let fields = line.split_whitespace().map(str::parse);
    let fields: Vec<f64> = fields.collect::<Result<_, _>>().context("numbers in stat")?;
    // user nice system idle iowait irq softirq steal; guests are in user already.
    let idle = [3, 4];
    let busy = fields.iter().take(8).enumerate();
    let busy = busy.filter(|(at, _)| !idle.contains(at)).map(|(_, ticks)| ticks);
    Ok(busy.sum::<f64>() / TICKS_PER_SECOND)
}

fn mib(text: &str, field: &str) -> Result<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    Ok(kib.with_context(|| format!("{field} in kB"))? / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_whatever_the_name_of_the_process() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194304 100 0 0 0 150 25 0 0 20 0 4 0 1000 0 0";
        assert_eq!(ticks_of(stat, OWN).ok(), Some(1.75));
        let stat = "7 (a) S 1 7 7 0 -1 4194304 100 0 0 0 150 25 30 20 20 0 4 0 1000 0 0";
        assert_eq!(ticks_of(stat, WAITED_FOR).ok(), Some(0.5));
    }

    #[test]
    fn idle_and_waiting_cores_are_not_busy() {
        let stat = "cpu  100 20 30 9000 800 1 2 47 5 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n";
        assert_eq!(busy_of(stat).ok(), Some(2.0));
    }

    #[test]
    fn memory_is_read_by_its_field() {
        let rollup = "00400000-7fff [rollup]\nRss:    4096 kB\nPss:     2560 kB\nPss_Anon: 1 kB\n";
        assert_eq!(mib(rollup, "Pss:").ok(), Some(2.5));
        assert_eq!(mib(rollup, "VmHWM:").unwrap_err().to_string(), "VmHWM: in kB");
    }

    #[test]
    fn this_process_has_memory_and_cpu_time() {
        let pid = std::process::id();
        let memory = (pss(pid).unwrap(), peak(pid).unwrap());
        assert!(memory.0 > 0.1 && memory.1 > 0.1, "{memory:?}");
        assert!(machine_cpu().unwrap() >= cpu("self").unwrap());
        let [mappings, files, threads] = holdings(pid).unwrap();
        assert!(mappings > 1 && files > 1 && threads >= 1, "{mappings} {files} {threads}");
    }
}
