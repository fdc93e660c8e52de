//! Shuts a process in: limits, and where the kernel has them, Landlock and a filter of system calls.

use std::fs;
use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setpriority_process, setrlimit};

/// How far behind others it is: as the threads are that components otherwise run on.
const NICE: i32 = 5;

/// How much rather than the daemon it is ended, where the system must end somebody for want of memory.
const OOM_SCORE: i32 = 500;

/// Memory that may be written beside that of instances: what the process has at its start comes to it.
const BESIDE: u64 = 64 << 20;

/// The same for each instance: its stack, tables, handles, and what is said to it and by it.
const EACH: u64 = 24 << 20;

/// What an instance's thread reserves beside that, as C libraries do for a thread that allocates.
const RESERVED: u64 = 256 << 20;

/// Open files beside a lane for each instance.
const FILES: u64 = 16;

/// A wall, and why it does not stand if so.
pub(super) type Wall = (String, Option<String>);

/// Lets others go first, in every respect, and goes with the daemon.
pub(super) fn step_back() -> io::Result<()> {
    system::go_along()?;
    // Elsewhere than on Linux there is no such file.
    if let Ok(text) = fs::read_to_string("/proc/self/oom_score_adj") {
        let score = text.trim().parse().unwrap_or(0) + OOM_SCORE;
        drop(fs::write("/proc/self/oom_score_adj", score.min(1000).to_string()));
    }
    // One that has stepped back further already stays there.
    let _stays = setpriority_process(None, NICE);
    bound(Resource::Core, 0)?;
    bound(Resource::Fsize, 0)
}

/// Leaves nothing open to this process but what it has, and memory of so many bytes for instances.
///
/// # Errors
/// If a limit can't be set. A wall that the kernel does not have is told in the answer.
pub(super) fn shut(memory: u64, instances: u64) -> io::Result<Vec<Wall>> {
    let beside = BESIDE.saturating_add(EACH.saturating_mul(instances));
    let more = memory.saturating_add(beside);
    bound(Resource::Data, has("VmData:").saturating_add(more))?;
    // What is only read or reserved has page tables, too.
    let reserved = RESERVED.saturating_mul(instances);
    let space = has("VmSize:").saturating_add(more).saturating_add(reserved);
    bound(Resource::As, space)?;
    bound(Resource::Nofile, FILES + instances)?;
    system::shut()
}

/// Returns how much memory of a sort this process has, as the kernel names it.
fn has(sort: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let kib = lines.find_map(|line| {
        let rest = line.strip_prefix(sort)?;
        rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    kib.unwrap_or_default() << 10
}

fn bound(resource: Resource, most: u64) -> io::Result<()> {
    // What others have bounded before stays.
    let most = most.min(getrlimit(resource).maximum.unwrap_or(u64::MAX));
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    Ok(setrlimit(resource, limit)?)
}

#[cfg(target_os = "linux")]
mod system {
    //! What Linux has.

    use std::io;

    use landlock::{
        ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _, RulesetStatus,
        Scope,
    };
    use rustix::process::{DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal};
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp as Is, SeccompCondition, SeccompFilter,
        SeccompRule, apply_filter_all_threads,
    };

    use super::Wall;

    /// The version of Landlock whose rights are asked for: the first that keeps signals in. What the kernel does not know is left out.
    const WANTED: ABI = ABI::V6;

    /// What is needed to compute, to wait, to say and to hear something, to have memory, and to have threads.
    #[rustfmt::skip]
    const CALLS: &[libc::c_long] = &[
        libc::SYS_read, libc::SYS_write, libc::SYS_readv, libc::SYS_writev, libc::SYS_recvfrom, libc::SYS_sendto,
        libc::SYS_recvmsg, libc::SYS_close, libc::SYS_ppoll,
        libc::SYS_munmap, libc::SYS_mremap, libc::SYS_madvise, libc::SYS_brk,
        libc::SYS_futex, libc::SYS_sched_yield, libc::SYS_sched_getaffinity, libc::SYS_getcpu,
        libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_clock_nanosleep, libc::SYS_nanosleep, libc::SYS_gettimeofday,
        libc::SYS_getrandom, libc::SYS_getpid, libc::SYS_gettid, libc::SYS_restart_syscall,
        libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn, libc::SYS_sigaltstack,
        libc::SYS_set_robust_list, libc::SYS_rseq, libc::SYS_membarrier,
        // The C library falls back to `clone`, whose flags can be looked at.
        libc::SYS_clone3,
        libc::SYS_exit, libc::SYS_exit_group,
    ];

    /// `PAGEMAP_SCAN`, by which the pool finds what an instance has written.
    const PAGEMAP_SCAN: u64 = 0xc060_6610;

    /// `PR_SET_VMA`, by which allocators name memory.
    const PR_SET_VMA: u64 = 0x5356_4d41;

    /// Ends this process with the thread that has started it, which lasts as long as components run there.
    pub(super) fn go_along() -> io::Result<()> {
        Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
    }

    pub(super) fn shut() -> io::Result<Vec<Wall>> {
        // Others of the same user do not look into it, nor it into them by way of being looked at.
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        let wall = |name: &str, why: Option<String>| (name.to_owned(), why);
        Ok(vec![wall("landlock", landlock().err()), wall("seccomp", seccomp().err())])
    }

    /// Takes away all rights to files, TCP ports, and signals and abstract sockets of others.
    pub(super) fn landlock() -> Result<(), String> {
        let shut = || {
            let rules = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
            let rules = rules
                .handle_access(AccessFs::from_all(WANTED))?
                .handle_access(AccessNet::from_all(WANTED))?
                .scope(Scope::from_all(WANTED))?;
            rules.create()?.restrict_self()
        };
        let status = shut().map_err(|error: landlock::RulesetError| error.to_string())?;
        match status.ruleset {
            RulesetStatus::FullyEnforced => Ok(()),
            RulesetStatus::PartiallyEnforced => Err("the kernel has a part of it only".to_owned()),
            RulesetStatus::NotEnforced => Err("the kernel does not have it".to_owned()),
        }
    }

    /// Takes away all system calls but those that are needed, from every thread: also from one that an allocator or a library has begun.
    fn seccomp() -> Result<(), String> {
        // The one before says how `clone3` is refused; of two that refuse, the later decides.
        for filter in [without_clone3(), needed()] {
            let program: BpfProgram = filter.and_then(TryInto::try_into).map_err(|error| error.to_string())?;
            apply_filter_all_threads(&program).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    type Filter = Result<SeccompFilter, seccompiler::BackendError>;

    fn without_clone3() -> Filter {
        let refused = errno(libc::ENOSYS);
        let calls = [(libc::SYS_clone3, Vec::new())].into();
        let arch = std::env::consts::ARCH.try_into()?;
        SeccompFilter::new(calls, SeccompAction::Allow, refused, arch)
    }

    fn needed() -> Filter {
        let rule = |argument, is, value| SeccompRule::new(vec![condition(argument, is, value)?]);
        let bits = |value: libc::c_int| u64::from(value.unsigned_abs());
        let exec = Is::MaskedEq(bits(libc::PROT_EXEC));
        let uncounted = bits(libc::MAP_SHARED | libc::MAP_GROWSDOWN);
        let thread = bits(libc::CLONE_THREAD);
        let own = u64::from(std::process::id());
        let mut calls: std::collections::BTreeMap<_, _> = CALLS.iter().map(|call| (*call, Vec::new())).collect();
        calls.extend([
            // No new code, and no memory that `RLIMIT_DATA` leaves out.
            (
                libc::SYS_mmap,
                vec![SeccompRule::new(vec![
                    condition(2, exec.clone(), 0)?,
                    condition(3, Is::MaskedEq(uncounted), 0)?,
                ])?],
            ),
            (libc::SYS_mprotect, vec![rule(2, exec, 0)?]),
            // What is asked of descriptors, but no signals on their behalf: these reach others.
            (
                libc::SYS_fcntl,
                vec![
                    rule(1, Is::Eq, bits(libc::F_GETFD))?,
                    rule(1, Is::Eq, bits(libc::F_SETFD))?,
                    rule(1, Is::Eq, bits(libc::F_GETFL))?,
                    rule(1, Is::Eq, bits(libc::F_DUPFD_CLOEXEC))?,
                    SeccompRule::new(vec![
                        condition(1, Is::Eq, bits(libc::F_SETFL))?,
                        condition(2, Is::MaskedEq(bits(libc::O_ASYNC)), 0)?,
                    ])?,
                ],
            ),
            // Threads, and no processes.
            (libc::SYS_clone, vec![rule(0, Is::MaskedEq(thread), thread)?]),
            // Its own end, and nobody else's.
            (libc::SYS_tgkill, vec![rule(0, Is::Eq, own)?]),
            (libc::SYS_ioctl, vec![rule(1, Is::Eq, PAGEMAP_SCAN)?]),
            (libc::SYS_prctl, vec![rule(0, Is::Eq, bits(libc::PR_SET_NAME))?, rule(0, Is::Eq, PR_SET_VMA)?]),
        ]);
        // `poll` is a call of its own on older architectures only.
        #[cfg(target_arch = "x86_64")]
        calls.insert(libc::SYS_poll, Vec::new());
        let arch = std::env::consts::ARCH.try_into()?;
        SeccompFilter::new(calls, errno(libc::EPERM), SeccompAction::Allow, arch)
    }

    fn condition(argument: u8, is: Is, value: u64) -> Result<SeccompCondition, seccompiler::BackendError> {
        SeccompCondition::new(argument, Length::Dword, is, value)
    }

    fn errno(error: libc::c_int) -> SeccompAction {
        SeccompAction::Errno(error.unsigned_abs())
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    //! Elsewhere than on Linux there is neither.

    use std::io;

    use super::Wall;

    /// The end of the socket has to do.
    pub(super) fn go_along() -> io::Result<()> {
        Ok(())
    }

    pub(super) fn shut() -> io::Result<Vec<Wall>> {
        let not = |name: &str| (name.to_owned(), Some("only Linux has it".to_owned()));
        Ok(vec![not("landlock"), not("seccomp")])
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs::File;
    use std::net::{TcpStream, UdpSocket};
    use std::os::unix::net::UnixStream;
    use std::process::Command;
    use std::sync::mpsc;
    use std::thread;

    use rustix::fs::{FlockOperation, OFlags, fcntl_lock, fcntl_setfl};
    use rustix::process::{Pid, getppid, test_kill_process};

    use super::*;
    use crate::plugin::engine::unpooled;

    /// What is tried behind the walls, and whether it went.
    fn tried(wasm: &wasmtime::Engine, parent: Pid) -> Vec<(&'static str, bool)> {
        let module =
            || wasmtime::Module::new(wasm, b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x03\x02\x01\0\x0a\x04\x01\x02\0\x0b");
        let signals = OFlags::from_bits_retain(libc::O_ASYNC.unsigned_abs());
        vec![
            ("read a file", File::open("/proc/self/status").is_ok()),
            ("write a file", File::create("/dev/null").is_ok()),
            ("resolve and connect", TcpStream::connect("127.0.0.1:1").is_ok()),
            ("make a socket", UdpSocket::bind("127.0.0.1:0").is_ok()),
            ("make a pair of sockets", UnixStream::pair().is_ok()),
            ("run a program", Command::new("/bin/true").status().is_ok()),
            ("look for others", test_kill_process(parent).is_ok()),
            ("take new code", module().is_ok()),
            ("have signals sent", fcntl_setfl(io::stdin(), signals).is_ok()),
            ("lock a file", fcntl_lock(io::stdin(), FlockOperation::NonBlockingLockShared).is_ok()),
            // And what it needs.
            ("have memory", !vec![1_u8; 32 << 20].is_empty()),
            ("have a thread", thread::spawn(|| 1).join().is_ok()),
        ]
    }

    #[test]
    #[ignore = "shuts in the process that it runs in: the test below starts one"]
    fn behind_the_walls() {
        let (wasm, parent) = (unpooled().unwrap(), getppid().unwrap());
        step_back().unwrap();
        // One that was there before: Landlock does not bind it.
        let (begin, begins) = mpsc::channel::<()>();
        let before = thread::spawn(move || {
            begins.recv().unwrap();
            UdpSocket::bind("127.0.0.1:0").is_ok()
        });
        let walls = shut(64 << 20, 4).unwrap();
        assert!(walls.iter().any(|(name, missing)| name == "seccomp" && missing.is_none()), "{walls:?}");
        let tried = tried(&wasm, parent);
        let went: Vec<_> = tried.iter().filter(|(_, went)| *went).map(|(what, _)| *what).collect();
        assert_eq!(went, ["have memory", "have a thread"]);
        begin.send(()).unwrap();
        assert!(!before.join().unwrap(), "a thread from before makes a socket");
    }

    #[test]
    #[ignore = "shuts in the process that it runs in: the test below starts one"]
    fn behind_landlock_alone() {
        let begun = system::landlock();
        let tried = [
            File::open("/proc/self/status").map(drop),
            File::create("/dev/null").map(drop),
            Command::new("/bin/true").status().map(drop),
        ];
        let refused = tried.iter().filter(|tried| {
            let kind = tried.as_ref().map_err(io::Error::kind);
            kind == Err(io::ErrorKind::PermissionDenied)
        });
        let lacking = begun == Err("the kernel does not have it".to_owned());
        assert_eq!(refused.count(), if lacking { 0 } else { 3 });
    }

    /// Runs a test of this module in a process of its own, and returns what went wrong there.
    fn alone(name: &str) -> io::Result<Option<String>> {
        let name = format!("plugin::process::confine::tests::{name}");
        let shut_in = Command::new(std::env::current_exe()?)
            .args(["--exact", &name, "--ignored", "--nocapture"])
            .arg("--test-threads=1")
            .output()?;
        let told = String::from_utf8_lossy(&shut_in.stdout);
        let passed = shut_in.status.success() && told.contains("1 passed");
        let said = String::from_utf8_lossy(&shut_in.stderr);
        Ok((!passed).then(|| format!("{}: {told}{said}", shut_in.status)))
    }

    #[test]
    fn who_is_shut_in_reaches_no_file_no_socket_no_program_and_no_new_code() {
        assert_eq!(alone("behind_the_walls").unwrap(), None);
    }

    #[test]
    fn landlock_alone_keeps_from_files_and_programs_where_there_is_one() {
        assert_eq!(alone("behind_landlock_alone").unwrap(), None);
    }
}
