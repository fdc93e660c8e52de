//! Components in a process of their own: the same as in the daemon's, and what the daemon does when the process is not as it should be.

use std::ffi::OsString;
use std::io::{IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use capstan::plugin::engine::{Engine, Pool};
use capstan::plugin::loader::Error;
use capstan::plugin::{Component as _, Plugin};
use capstan::workers::Workers;
use capstan_core::cpu::Job;
use capstan_core::guest::{Cause, Guest as _};
use capstan_core::manifest::{Instances, Isolation, Limits, Warm};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

use crate::calls::{IF_TOLD, WORKFLOW, engine, load_declared, load_into, nth, reconciler, short};
use crate::runs::{ISOLATION, Script, script};

/// Tests that need a clock which stands still, or say which engine and which cache there is.
const NOT_APART: [&str; 5] = [
    "apart::",
    "compiling::",
    "loading::",
    "the_time_of_calls_is_summed_up",
    "an_instance_that_nobody_uses_is_dropped_and_then_nothing_wakes_up",
];

#[test]
fn what_holds_for_components_holds_in_a_process_of_their_own() {
    let skipped = NOT_APART.iter().flat_map(|name| ["--skip", name]);
    let tests = Command::new(std::env::current_exe().unwrap())
        .args(skipped)
        .args(["--skip", "warm_instances_go_with_the_version"])
        .env(ISOLATION, "process")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&tests.stdout).into_owned();
    assert!(tests.status.success(), "{told}");
    assert!(!told.contains("running 0 tests"), "{told}");
}

/// Loads a component into a process of its own, which this command starts.
async fn load(engine: &Engine, wasm: &[u8], limits: Limits, instances: Instances) -> Result<Plugin, Error> {
    load_declared(engine, wasm, limits, |guest| {
        (guest.instances, guest.isolation) = (instances, Isolation::Process);
    })
    .await
}

async fn apart(wasm: &[u8], limits: Limits) -> Plugin {
    let engine = engine(&limits);
    load(&engine, wasm, limits, Instances::Fresh).await.unwrap()
}

fn process(plugin: &Plugin) -> Pid {
    let id = i32::try_from(plugin.process_id().unwrap()).unwrap();
    Pid::from_raw(id).unwrap()
}

fn exists(process: Pid) -> bool {
    PathBuf::from(format!("/proc/{}", process.as_raw_nonzero())).exists()
}

/// Waits for something, not for ever.
async fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// A run whose workflow never ends.
fn endless() -> Arc<Script> {
    Arc::new(Script { on_workflow: Some(Box::new(|_| Box::pin(futures::future::pending()))), ..Script::default() })
}

#[tokio::test]
async fn a_process_that_is_killed_costs_its_runs_and_the_next_one_has_another() {
    // What ends the run is to be the death of the process.
    let limits = Limits { timeout: Duration::from_mins(1), ..Limits::default() };
    let plugin = apart(&reconciler(WORKFLOW, IF_TOLD), limits).await;
    let first = process(&plugin);
    let (one, idle) = (plugin.open(endless()), plugin.open(script()));
    assert_eq!(one.reconcile("").await, nth(1));
    assert_eq!(idle.reconcile("").await, nth(1));
    let mut call = Box::pin(one.reconcile("{}"));
    assert!(futures::poll!(&mut call).is_pending());
    kill_process(first, Signal::KILL).unwrap();
    let failure = call.await.unwrap_err();
    assert_eq!(failure.cause, Cause::Trap);
    assert_eq!(
        failure.message,
        "the process of test/guest has ended (signal 9, from the system for want of memory, or from somebody else)"
    );
    // What had an instance there has lost it; what comes now has another process.
    assert_eq!(idle.reconcile("").await.unwrap_err(), failure);
    assert_eq!(idle.reconcile("").await, nth(1));
    assert_eq!(plugin.open(script()).reconcile("").await, nth(1));
    assert_ne!(process(&plugin), first);
    let usage = plugin.usage();
    assert_eq!((usage.processes_started, usage.traps), (2, 2));
}

#[test]
fn a_process_outlives_the_thread_on_which_it_was_asked_for() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).thread_keep_alive(Duration::from_millis(1)).enable_all().build().unwrap();
    let task = runtime.spawn(async {
        let plugin = apart(&reconciler(WORKFLOW, IF_TOLD), Limits::default()).await;
        let thread = PathBuf::from("/proc").join(std::fs::read_link("/proc/thread-self").unwrap());
        // Another thread takes the place of this one meanwhile, which has nothing to do any more afterwards.
        tokio::task::block_in_place(|| {
            let (tell, told) = std::sync::mpsc::channel();
            tokio::spawn(async move { tell.send(()) });
            told.recv().unwrap();
        });
        (plugin, thread)
    });
    runtime.block_on(async {
        let (plugin, thread) = task.await.unwrap();
        let first = process(&plugin);
        until("the thread has ended", || !thread.exists()).await;
        assert_eq!(plugin.open(script()).reconcile("").await, nth(1));
        assert_eq!((process(&plugin), plugin.usage().processes_started), (first, 1));
    });
}

#[tokio::test]
async fn a_process_that_is_killed_while_it_waits_for_an_answer_costs_its_run_at_once() {
    let limits = Limits { timeout: Duration::from_mins(1), ..Limits::default() };
    let plugin = apart(&reconciler(WORKFLOW, IF_TOLD), limits).await;
    let run = endless();
    let session = plugin.open(Arc::clone(&run) as _);
    let kill = async {
        until("it asks", || !run.asked.lock().is_empty()).await;
        kill_process(process(&plugin), Signal::KILL).unwrap();
    };
    let (ended, ()) = futures::join!(session.reconcile("{}"), kill);
    assert_eq!(ended.unwrap_err().cause, Cause::Trap);
}

#[tokio::test]
async fn warm_instances_of_a_process_that_is_gone_are_not_used() {
    let instances = Instances::Warm(Warm::within(Limits::default().memory));
    let limits = Limits::default();
    let engine = engine(&limits);
    let wasm = reconciler("", "");
    let plugin = load(&engine, &wasm, limits, instances).await.unwrap();
    for n in 1..=2 {
        assert_eq!(plugin.open(script()).reconcile("").await, nth(n));
    }
    let first = process(&plugin);
    kill_process(first, Signal::KILL).unwrap();
    until("the end of it is seen", || plugin.process_id().is_none()).await;
    assert_eq!(plugin.open(script()).reconcile("").await, nth(1));
}

#[tokio::test]
async fn a_process_ends_with_the_last_run_of_its_plugin_and_is_not_left_as_a_zombie() {
    let plugin = apart(&reconciler("", ""), Limits::default()).await;
    let (process, last) = (process(&plugin), plugin.open(script()));
    drop(plugin);
    assert_eq!(last.reconcile("").await, nth(1));
    assert!(exists(process));
    drop(last);
    until("it goes", || !exists(process)).await;
}

#[tokio::test]
async fn a_call_that_is_given_up_ends_there_too_and_costs_nothing_else() {
    let plugin = apart(&reconciler("(func $do (loop (br 0)))", IF_TOLD), short()).await;
    let before = process(&plugin);
    let beside = plugin.open(script());
    assert_eq!(beside.reconcile("").await, nth(1));
    let late = plugin.open(script()).reconcile("{}").await.unwrap_err();
    assert_eq!(late.cause, Cause::Timeout);
    assert_eq!(beside.reconcile("").await, nth(2));
    assert_eq!(process(&plugin), before);
    // It computes no more.
    let used = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", before.as_raw_nonzero()));
        let stat = stat.unwrap();
        let fields = stat.rsplit(") ").next().unwrap().split(' ');
        fields.skip(11).take(2).map(|n| n.parse::<u64>().unwrap()).sum::<u64>()
    };
    let mut last = u64::MAX;
    until("it rests", || std::mem::replace(&mut last, used()) == used()).await;
}

#[tokio::test]
async fn what_a_process_computes_is_its_plugins_time() {
    let plugin = apart(&reconciler("(func $do (loop (br 0)))", IF_TOLD), short()).await;
    let workers = Workers::start().unwrap();
    let account = workers.account("test/guest", Some(Duration::from_millis(100)));
    let kept = account.clone();
    let job = Job { controller: "web".into(), key: None };
    let begun = Instant::now();
    let run = async move {
        let run = async { plugin.open(script()).reconcile("{}").await };
        account.run(job, run).await
    };
    let late = workers.runtime().spawn(run).await.unwrap().unwrap_err();
    assert_eq!(late.cause, Cause::Timeout);
    let spent = workers.cpu().spent();
    assert_eq!(spent.len(), 1);
    // A tenth of a core, and what it may have saved up before.
    let (used, most) = (spent[0].time, begun.elapsed());
    assert!(used > Duration::from_millis(10) && used <= most, "{used:?} of {most:?}");
    drop(kept);
}

// === a process that is not as it should be ===

fn shell(script: &str) -> [OsString; 3] {
    ["/bin/sh".into(), "-c".into(), script.into()]
}

/// The command that makes this program a process which does that.
fn hostile(how: &str) -> [OsString; 5] {
    let own = std::env::current_exe().unwrap().into();
    let name = format!("apart::process_that_{how}").into();
    [own, "--exact".into(), name, "--ignored".into(), "--test-threads=1".into()]
}

async fn load_by(command: impl IntoIterator<Item = OsString>, limits: Limits) -> Result<Plugin, Error> {
    let engine = Engine::new(Pool::of([&limits])).unwrap().with_processes(command);
    load(&engine, &reconciler("", ""), limits, Instances::Fresh).await
}

#[tokio::test]
async fn a_process_that_does_not_come_up_is_told_with_its_last_words() {
    for (command, expected) in [
        (r"printf 'no\nway' >&2; exit 3", r"the process of test/guest has ended (exit status 3): no\nway"),
        ("printf 'ABCDEFGH' >&0; exit 0", "the process of test/guest has ended (exit status 0)"),
        (
            "kill -9 $$",
            "the process of test/guest has ended (signal 9, from the system for want of memory, or from somebody else)",
        ),
    ] {
        let loaded = load_by(shell(command), Limits::default()).await;
        let Err(Error::Prepare(why)) = loaded else {
            panic!("{command} is no process for a component: {loaded:?}");
        };
        assert_eq!(why, expected);
    }
    let missing = load_by(["/nowhere".into()], Limits::default()).await;
    let why = missing.unwrap_err().to_string();
    assert!(why.contains("could not be started: "), "{why}");
    let limits = Limits::default();
    let none = Engine::new(Pool::of([&limits])).unwrap();
    let refused = load(&none, &reconciler("", ""), limits, Instances::Fresh).await;
    assert!(matches!(refused, Err(Error::Prepare(_))));
}

#[tokio::test]
async fn a_process_that_breaks_the_rules_is_ended_and_harms_nobody_else() {
    let limits = Limits::default();
    let engine = engine(&limits);
    let wasm = reconciler("", "");
    let beside = load_into(&engine, &wasm, limits.clone(), Instances::Fresh);
    let beside = beside.await.unwrap();
    for (how, expected) in [
        ("talks_nonsense", "the process of test/guest had to be ended: what it says can't be read"),
        ("says_too_much", "the process of test/guest had to be ended: it says more than it may"),
        ("answers_something_else", "the process of test/guest had to be ended: it answers what was not asked"),
        ("hangs_up", "the process of test/guest had to be ended: it has hung up"),
        ("says_nothing", "the component took longer than 1s (limits.timeout)"),
        ("never_ends", "the component took longer than 1s (limits.timeout)"),
    ] {
        let limits = Limits {
            // It is looked whether the process has ended, which takes its time.
            timeout: Duration::from_secs(if how == "hangs_up" { 4 } else { 1 }),
            ..Limits::default()
        };
        let (begun, loaded) = (Instant::now(), load_by(hostile(how), limits).await);
        let Err(Error::Start { source, .. }) = loaded else {
            panic!("{how}: it was taken for a component: {loaded:?}");
        };
        assert_eq!(source.message, expected, "{how}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{how}");
        assert_eq!(beside.open(script()).reconcile("").await, nth(1), "{how}");
    }
}

/// Says that it is ready, and does something to the first lane that it is given.
fn lane(act: impl FnOnce(UnixStream)) {
    let mut control = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let mut head = [0; 4];
    control.read_exact(&mut head).unwrap();
    let mut setup = vec![0; u32::from_le_bytes(head).try_into().unwrap()];
    control.read_exact(&mut setup).unwrap();
    // No walls.
    control.write_all(&[1, 0, 0, 0, 0]).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(&control, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::empty()).unwrap();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message {
            return act(UnixStream::from(fds.next().unwrap()));
        }
    }
}

fn says(lane: &mut UnixStream, frame: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(frame.len()).unwrap();
    lane.write_all(&[&length.to_le_bytes(), frame].concat())
}

fn hang() -> ! {
    loop {
        std::thread::park();
    }
}

#[test]
#[ignore = "is a process that another test starts"]
fn process_that_talks_nonsense() {
    lane(|mut lane| {
        says(&mut lane, &[0xff; 64]).unwrap();
        hang();
    });
}

#[test]
#[ignore = "is a process that another test starts"]
fn process_that_says_too_much() {
    lane(|mut lane| {
        lane.write_all(&[0xff; 64]).unwrap();
        hang();
    });
}

#[test]
#[ignore = "is a process that another test starts"]
fn process_that_answers_something_else() {
    // No time, no memory, nothing said; done, well, with a desired object.
    lane(|mut lane| {
        says(&mut lane, &[0, 0, 0, 0, 1, 0, 0, 4, 0]).unwrap();
        hang();
    });
}

#[test]
#[ignore = "is a process that another test starts"]
fn process_that_hangs_up() {
    lane(drop);
    hang();
}

#[test]
#[ignore = "is a process that another test starts"]
fn process_that_says_nothing() {
    lane(|_lane| hang());
}

#[test]
#[ignore = "is a process that another test starts"]
fn process_that_never_ends() {
    // No time, no memory, nothing said; asks to go on, again and again, whatever the answer.
    lane(|mut lane| {
        while says(&mut lane, &[0, 0, 0, 0, 0, 16]).is_ok() {}
        hang();
    });
}
