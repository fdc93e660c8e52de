use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use capstan::plugin::Plugin;
use capstan::plugin::engine::{Engine, Pool};
use capstan::plugin::loader::{Budget, CodeCache, Error};
use capstan_core::manifest::Limits;
use tempfile::TempDir;
use tokio::time::{Instant, timeout};

use crate::guests::Guest;
use crate::runs::{operator, write};

const BUDGET: Budget = Budget { memory: Some(1 << 30), cpu: Duration::from_mins(2), clock: Duration::from_mins(6) };

fn daemon() -> [OsString; 2] {
    [env!("CARGO_BIN_EXE_capstan").into(), "compile-component".into()]
}

fn shell(script: &str) -> [OsString; 3] {
    ["/bin/sh".into(), "-c".into(), script.into()]
}

/// A folder with a component, which is loaded again and again.
struct Place {
    dir: TempDir,
    component: PathBuf,
}

fn place(wasm: &[u8]) -> Place {
    let dir = tempfile::tempdir().unwrap();
    let component = write(&dir, "guest", wasm);
    Place { dir, component }
}

impl Place {
    fn code(&self) -> PathBuf {
        self.dir.path().join("code")
    }

    fn cache(&self, command: impl IntoIterator<Item = OsString>, budget: Budget) -> CodeCache {
        CodeCache::at(&self.code()).compiled_by(command, budget)
    }

    async fn load(&self, cache: &CodeCache) -> Result<Plugin, Error> {
        let engine = Engine::new(Pool { instances: 4 }).unwrap();
        let operator = operator(&self.component, Limits::default());
        Plugin::load(&engine, cache, &operator, "guest").await
    }

    /// Returns why it is not loaded, without the folder.
    async fn refusal(&self, cache: &CodeCache) -> String {
        let error = self.load(cache).await.unwrap_err();
        let error = anyhow::Error::from(error);
        let folder = format!("{}/", self.dir.path().display());
        format!("{error:#}").replace(&folder, "")
    }

    fn names(&self, ending: &str) -> usize {
        let entries = fs::read_dir(self.code()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(ending)).count()
    }
}

/// A reconciler with functions in which each of many values lives across each of many branches: cheap to write, dear to
/// compile.
fn bomb(functions: usize, size: usize) -> Vec<u8> {
    let locals = "(local i32)".repeat(size);
    let change = |n| format!("(block (br_if 0 (local.get 0)) (local.set {n} (local.get 0)))");
    let changes: Vec<_> = (1..=size).map(change).collect();
    let uses: Vec<_> = (1..=size).map(|n| format!("(i32.add (local.get {n}))")).collect();
    let (changes, uses) = (changes.concat(), uses.concat());
    let function = format!("(func (param i32) (result i32) {locals} {changes} (local.get 0) {uses})\n");
    let text = format!("{}\n{}", Guest::default().text, function.repeat(functions));
    Guest { text: &text, ..Guest::default() }.build()
}

#[tokio::test]
async fn another_process_compiles_and_its_code_is_kept() {
    let place = place(&Guest::default().build());
    for from_cache in [false, true] {
        let plugin = place.load(&place.cache(daemon(), BUDGET)).await.unwrap();
        assert_eq!(plugin.from_cache(), from_cache);
    }
    // It is good for one that compiles by itself as well.
    let plugin = place.load(&CodeCache::at(&place.code())).await.unwrap();
    assert!(plugin.from_cache());
    assert_eq!((place.names(".cwasm"), place.names(".draft"), place.names(".failed")), (1, 0, 0));
}

#[tokio::test]
async fn another_process_compiles_also_where_nothing_can_be_kept() {
    let place = place(&Guest::default().build());
    fs::create_dir(place.code()).unwrap();
    fs::set_permissions(place.code(), fs::Permissions::from_mode(0o777)).unwrap();
    for cache in [CodeCache::none(), CodeCache::at(&place.code())] {
        let cache = cache.compiled_by(daemon(), BUDGET);
        let plugin = place.load(&cache).await.unwrap();
        assert!(!plugin.from_cache());
    }
    assert_eq!(place.names(""), 0);
}

#[tokio::test]
async fn what_needs_more_memory_than_there_is_is_refused_and_remembered() {
    let place = place(&bomb(1, 1_500));
    let small = Budget { memory: Some(48 << 20), ..BUDGET };
    let why = "compile guest.wasm: it needs more than 48Mi of memory to be compiled";
    let hint = "; build it smaller, or allow more (--compile-memory, --compile-timeout)";
    let cache = place.cache(daemon(), small);
    assert_eq!(place.refusal(&cache).await, format!("{why}{hint}"));
    // Another daemon does not try it again, whoever would compile.
    let cache = place.cache(["/bin/false".into()], small);
    assert_eq!(place.refusal(&cache).await, format!("{why}, as was found out before{hint}"));
    // Not even this one, unless it is told to.
    let told = place.refusal(&cache.without_failures()).await;
    assert!(!told.contains("before"), "{told}");
    assert_eq!(place.names(".failed"), 1);
    let plugin = place.load(&place.cache(daemon(), BUDGET)).await;
    assert!(plugin.is_ok());
    assert_eq!(place.names(".failed"), 0);
}

#[tokio::test]
async fn what_needs_more_time_than_there_is_is_refused() {
    let place = place(&bomb(20, 1_500));
    let short = Budget { cpu: Duration::from_secs(1), ..BUDGET };
    let why = place.refusal(&place.cache(daemon(), short)).await;
    let expected = "compile guest.wasm: it needs more than 1s of CPU time to be compiled; ";
    assert!(why.starts_with(expected), "{why}");
    assert_eq!((place.names(".draft"), place.names(".cwasm")), (0, 0));
}

#[tokio::test]
async fn a_compiler_that_does_nothing_is_ended_by_the_clock() {
    let place = place(&Guest::default().build());
    let short = Budget { clock: Duration::from_millis(100), ..BUDGET };
    let cache = place.cache(shell("exec sleep 600"), short);
    let why = place.refusal(&cache).await;
    assert!(why.starts_with("compile guest.wasm: it is not compiled after 100ms; "), "{why}");
    assert_eq!(place.names(".failed"), 0);
}

#[tokio::test]
async fn nothing_that_a_compiler_dies_of_is_tried_in_here() {
    for (script, expected) in [
        ("echo it is odd >&2; exit 1", "compile guest.wasm: it is not a valid component: it is odd"),
        ("kill -SEGV $$", "compile guest.wasm: it breaks the compiler (signal 11): ; build"),
        ("kill -KILL $$", "compile guest.wasm: the system has ended the process that compiles it"),
        ("exit 101", "compile guest.wasm: it breaks the compiler (exit status 101): ; build"),
        ("exit 3", "prepare to load components: "),
        ("exit 0", "prepare to load components: "),
    ] {
        let place = place(&Guest::default().build());
        let why = place.refusal(&place.cache(shell(script), BUDGET)).await;
        assert!(why.starts_with(expected), "{script}: {why}");
        let tried_again = script == "exit 3" || script == "exit 0";
        assert_eq!(place.names(".failed") == 0, tried_again, "{script}");
    }
}

#[tokio::test]
async fn without_the_other_process_nothing_is_compiled_and_nothing_remembered() {
    for command in [vec!["/nowhere".into()], vec![]] {
        let place = place(&Guest::default().build());
        let why = place.refusal(&place.cache(command, BUDGET)).await;
        let expected = "prepare to load components: start the process that compiles: ";
        assert!(why.starts_with(expected), "{why}");
        assert_eq!((place.names(".cwasm"), place.names(".failed")), (0, 0));
        // Once it can be started, it is.
        place.load(&place.cache(daemon(), BUDGET)).await.unwrap();
    }
}

/// Whether a process is there.
fn lives(pid: &str) -> bool {
    Path::new("/proc").join(pid.trim()).exists()
}

#[tokio::test]
async fn a_compiler_ends_with_those_who_wait_for_it() {
    let place = place(&Guest::default().build());
    let told = place.dir.path().join("pid");
    let script = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600", told.display());
    let cache = place.cache(shell(&script), BUDGET);
    let begun = Instant::now();
    let started = async {
        while !told.exists() {
            assert!(begun.elapsed() < Duration::from_secs(30), "nothing is started");
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = place.load(&cache) => panic!("it was loaded"),
        () = started => {}
    }
    let pid = fs::read_to_string(told).unwrap();
    let gone = async {
        while lives(&pid) {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(30), gone).await.expect("to be gone");
    assert_eq!((place.names(".failed"), place.names(".draft")), (0, 0));
    // Another one gets the turn.
    let cache = cache.compiled_by(daemon(), BUDGET);
    place.load(&cache).await.unwrap();
}

#[tokio::test]
async fn what_is_kept_is_loaded_while_another_component_is_compiled() {
    let (known, slow) = (place(&Guest::default().build()), place(&bomb(1, 10)));
    known.load(&known.cache(daemon(), BUDGET)).await.unwrap();
    let cache = known.cache(shell("exec sleep 600"), BUDGET);
    let begun = Instant::now();
    tokio::select! {
        _ = slow.load(&cache) => panic!("it was compiled"),
        plugin = async {
            while known.names(".failed") == 0 {
                assert!(begun.elapsed() < Duration::from_secs(30), "nothing is compiled");
                tokio::task::yield_now().await;
            }
            known.load(&cache).await
        } => assert!(plugin.unwrap().from_cache()),
    }
}

#[tokio::test]
async fn what_is_made_to_be_dear_is_refused_before_it_is_compiled() {
    let place = place(&bomb(1, 4_000));
    let why = place.refusal(&place.cache(shell("exit 3"), BUDGET)).await;
    assert_eq!(
        why,
        "verify guest.wasm: function 3 of core module 0 has 32004000 local variables × branches; at most 16000000 are compiled; \
         build it with optimization, or of less"
    );
}

#[tokio::test]
async fn a_component_is_a_regular_file_of_bounded_size() {
    let mut place = place(b"");
    let at = |name: &str| place.dir.path().join(name);
    let fifo = at("fifo.wasm");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let large = at("large.wasm");
    fs::File::create(&large).unwrap().set_len(10 << 30).unwrap();
    let folder = at("folder.wasm");
    fs::create_dir(&folder).unwrap();
    for (component, why) in [
        ("/dev/zero".into(), "it is a device; it should be a regular file"),
        (fifo, "it is a FIFO; it should be a regular file"),
        (folder, "it is a folder; it should be a regular file"),
        (large, "it has 10737418240 bytes or more; at most 67108864 are read"),
    ] {
        place.component = component;
        let refusal = place.refusal(&CodeCache::none()).await;
        let expected = format!("read component {}: {why}", place.component.display());
        let expected = expected.replace(&format!("{}/", place.dir.path().display()), "");
        assert_eq!(refusal, expected);
    }
}

#[test]
fn the_process_that_compiles_bounds_itself() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
    command.args(["compile-component", "--memory", "134217728", "--cpu", "7"]);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
    let mut child = command.spawn().unwrap();
    let about = |file: &str| {
        let path = format!("/proc/{}/{file}", child.id());
        fs::read_to_string(path).unwrap_or_default()
    };
    let limits = || {
        let text = about("limits");
        let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        lines.collect::<Vec<_>>()
    };
    let bounded = |line: &str| limits().iter().any(|limit| limit.starts_with(line));
    let begun = Instant::now();
    while !bounded("Max open files 64 64") {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", limits());
        std::thread::yield_now();
    }
    for line in [
        "Max data size 134217728 134217728",
        "Max cpu time 7 8",
        "Max file size 268435456 268435456",
        "Max core file size 0 0",
    ] {
        assert!(bounded(line), "{line}: {:?}", limits());
    }
    assert_eq!(about("oom_score_adj").trim(), "1000");
    child.kill().unwrap();
    child.wait().unwrap();
}
