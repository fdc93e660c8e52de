//! Compiled code: kept in a folder that nobody else can use, and mapped from there; and which component is compiled when.
//!
//! Compiling takes from 0.1 s (Rust) to 10 s (Python, JavaScript), and mapped code takes less memory than code that was
//! compiled in this process. It goes on one component at a time, when all that is compiled already is in place, and ends
//! with the future that waits for it.

mod budget;
mod failure;
mod mapped;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use capstan_core::room::Room;
use capstan_core::turns::{self, Turns};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use rayon::ThreadPoolBuilder;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::bounds::Excess;
use super::compiler::{self, Limits};
use super::engine::Engine;
use crate::folder::{Draft, Folder, Keep};
pub use budget::Budget;
use failure::{Attempt, Failure, Verdict};
pub(super) use mapped::{Code, Found, Memory, Shared as SharedCode, alone};
use mapped::{Entry, in_memory};

/// Bytes of compiled components kept on disk, where nobody says otherwise.
const KEEP: u64 = 2 << 30;

/// Components that are read at once.
const READERS: usize = 2;

/// Components that are read besides, as long as those hang.
const SPARE_READERS: usize = 2;

/// How long is waited for all that is compiled already: one of them may be slow to start.
const HEAD_START: Duration = Duration::from_secs(5);

/// Where compiled code is kept, and how it comes to be. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CodeCache {
    shared: Arc<Shared>,
    /// The process that compiles. None: this one, without bounds, which is for tests.
    compiler: Option<Arc<Compiler>>,
    /// Keeps others from compiling.
    head_start: Option<Arc<HeadStart>>,
    /// Whether failures are remembered.
    remembers: bool,
    /// The memory for what describes components.
    room: Room,
}

#[derive(Debug)]
struct Shared {
    /// None: nowhere.
    folder: Option<Arc<Folder>>,
    /// Bytes that are kept there.
    keep: u64,
    /// What is mapped, by the names of entries.
    in_use: Mutex<BTreeMap<String, Weak<Entry>>>,
    readers: Semaphore,
    /// Places of readers for those that have waited for too long.
    spare: Semaphore,
    turns: Turns,
    /// How many are to be in place before anything is compiled.
    ahead: watch::Sender<usize>,
    /// How many have been compiled, or begun to be.
    compiled: Counter,
}

#[derive(Debug)]
struct Compiler {
    command: Vec<OsString>,
    budget: Budget,
}

/// Counts somebody in who is to be in place before anything is compiled, until it is given up.
#[derive(Debug)]
struct HeadStart {
    shared: Arc<Shared>,
    over: AtomicBool,
}

/// A component that the other process is to compile.
#[derive(Clone, Copy)]
struct Job<'a> {
    compiler: &'a Compiler,
    limits: Limits,
    engine: &'a Engine,
    wasm: &'a [u8],
    digest: &'a str,
}

/// The right to compile.
pub(super) struct Turn(#[expect(dead_code, reason = "it is held")] turns::Turn);

/// Why there is no code.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// What is wrong with the component, and where.
    #[error("{0}")]
    Invalid(String),
    /// It takes more than it may.
    #[error("{0}")]
    Costly(String),
    /// It takes more memory than any may.
    #[error("{0}")]
    TooLarge(Excess),
    /// The daemon's own side. Worth retrying.
    #[error("{0}")]
    Prepare(String),
    /// The compiled code is not for this machine, or this version. Worth compiling again.
    #[error("{0}")]
    Unusable(String),
}

// === impl CodeCache ===

impl CodeCache {
    /// Keeps compiled code in this folder, which is made if it does not exist. It must be ours alone, and what is in there
    /// is sealed with a key: that of the file, or one that is made beside the code. If something is wrong with folder or
    /// key, there is a warning, and each start compiles again. With more than `keep` bytes, what was used longest ago goes;
    /// what is in use never does, even if it has more.
    pub fn keyed(dir: &Path, key: Option<&Path>, keep: u64) -> Self {
        match Folder::open(dir, key) {
            Ok(folder) => Self::with(Some(Arc::new(folder)), keep),
            Err(error) => {
                warn!(dir = %dir.display(), %error, "compiled code is not kept; components are compiled at each start");
                Self::none()
            }
        }
    }

    /// Keeps compiled code in this folder, with a key beside it.
    pub fn at(dir: &Path) -> Self {
        Self::keyed(dir, None, KEEP)
    }

    /// Keeps nothing.
    pub fn none() -> Self {
        Self::with(None, KEEP)
    }

    fn with(folder: Option<Arc<Folder>>, keep: u64) -> Self {
        Self {
            shared: Arc::new(Shared {
                folder,
                keep,
                in_use: Mutex::default(),
                readers: Semaphore::new(READERS),
                spare: Semaphore::new(SPARE_READERS),
                turns: Turns::new(1, 1),
                ahead: watch::Sender::new(0),
                compiled: Counter::default(),
            }),
            compiler: None,
            head_start: None,
            remembers: true,
            room: Room::default(),
        }
    }

    /// Returns the same with so many bytes of memory for what describes components.
    #[must_use]
    pub fn within(self, bytes: u64) -> Self {
        Self { room: Room::new(bytes), ..self }
    }

    /// Lets another process compile: this command line, which is expected to end up in [`super::loader::compile`]. What
    /// compiling takes, 10 MB for a small component and hundreds for Python, would stay with this process; and there is no
    /// bound to what it takes.
    #[must_use]
    pub fn compiled_by(mut self, command: impl IntoIterator<Item = OsString>, budget: Budget) -> Self {
        let command = command.into_iter().collect();
        self.compiler = Some(Arc::new(Compiler { command, budget }));
        self
    }

    /// Returns the same for somebody who is to be in place, if its code is kept, before anything is compiled: until the
    /// last clone of this is dropped, or something of it has to be compiled.
    #[must_use]
    pub fn with_head_start(&self) -> Self {
        self.shared.ahead.send_modify(|ahead| *ahead += 1);
        Self {
            head_start: Some(Arc::new(HeadStart { shared: Arc::clone(&self.shared), over: AtomicBool::new(false) })),
            ..self.clone()
        }
    }

    /// Returns the same for somebody who wants it tried again, whatever happened before.
    #[must_use]
    pub fn without_failures(&self) -> Self {
        Self { remembers: false, ..self.clone() }
    }

    /// Returns what counts the components that are compiled.
    pub fn compiled(&self) -> Counter {
        self.shared.compiled.clone()
    }

    /// Reads a component on a thread of its own, not too many at once.
    pub(super) async fn reading<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        let Shared { readers, spare, .. } = &*self.shared;
        let _permit = match timeout(HEAD_START, readers.acquire()).await {
            Ok(permit) => permit,
            // Those that hang, as on a server that is gone, do not keep the others from being read.
            Err(_elapsed) => tokio::select! {
                permit = readers.acquire() => permit,
                permit = spare.acquire() => permit,
            },
        };
        aside(1, read).await
    }

    /// Returns the code of a component with this digest, if it is kept. Takes its time: not for threads that others wait
    /// for.
    pub(super) fn recall(&self, engine: &Engine, digest: &str) -> Option<Found> {
        let folder = self.shared.folder.as_ref()?;
        let name = name(engine, digest);
        // First, so that it is not removed in between.
        let entry = self.shared.hold(&name);
        match folder.get(&name) {
            Ok(file) => Some(Found { file: file?, kept: true, entry: Some(entry) }),
            Err(error) => {
                warn!(file = name, %error, "compiled code is not taken; compiling again");
                None
            }
        }
    }

    /// Maps the code of a component into memory for a plugin of this team. What others run takes no more.
    ///
    /// # Errors
    /// [`Error::Prepare`] if there is no room for it by the deadline, [`Error::Unusable`] if it can't be mapped.
    pub(super) async fn map(
        &self,
        found: Found,
        engine: &Engine,
        (digest, team): (&str, &Arc<str>),
        (weight, deadline): (u64, Instant),
    ) -> Result<Code, Error> {
        if let Some(code) = found.known(engine, team) {
            return Ok(code);
        }
        let memory = Memory::take(&self.room, (digest, team), weight, deadline).await;
        let memory = memory.map_err(|error| Error::Prepare(format!("make room for what describes it: {error}")))?;
        let (engine, team) = (engine.clone(), Arc::clone(team));
        let mapped = self.reading(move || found.map(&engine, memory, &team)).await?;
        mapped.map_err(|error| Error::Unusable(format!("{error:#}")))
    }

    /// Waits until this one may compile: one at a time, team by team, and after all that have a head start.
    pub(super) async fn turn(&self, team: &Arc<str>) -> Turn {
        if let Some(head_start) = &self.head_start {
            head_start.give_up();
        }
        let turn = self.shared.turns.wait(team).await;
        let mut ahead = self.shared.ahead.subscribe();
        // However that ends.
        drop(timeout(HEAD_START, ahead.wait_for(|ahead| *ahead == 0)).await);
        Turn(turn)
    }

    /// Returns why this component could not be compiled before, if that was with the same program and no less room.
    ///
    /// # Errors
    /// As [`CodeCache::compile`] has told it then.
    pub(super) fn remembered(&self, digest: &str) -> Result<(), Error> {
        let (Some(compiler), Some(folder)) = (&self.compiler, &self.shared.folder) else {
            return Ok(());
        };
        match Failure::read(folder, digest) {
            Some(failure) if self.remembers && failure.counts(compiler.budget.limits()) => Err(failure.error()),
            Some(_) | None => Ok(()),
        }
    }

    /// Compiles a component that is not kept yet. `digest` is [`digest`] of `wasm`.
    ///
    /// # Errors
    /// What is wrong with the component, or what it takes too much of, also if that was found out before.
    pub(super) async fn compile(
        &self,
        _turn: &Turn,
        engine: &Engine,
        wasm: Vec<u8>,
        digest: &str,
    ) -> Result<Found, Error> {
        let Some(compiler) = &self.compiler else {
            self.shared.compiled.inc();
            return self.compile_here(engine, wasm, digest).await;
        };
        self.remembered(digest)?;
        let limits = compiler.budget.limits();
        compiler.budget.suffices(limits)?;
        self.shared.compiled.inc();
        let attempt = Attempt::begin(self.shared.folder.clone(), digest, limits);
        let job = Job { compiler, limits, engine, wasm: &wasm, digest };
        let error = match self.compile_elsewhere(job).await {
            Ok(code) => return Ok(code),
            Err(error) => error,
        };
        match error {
            // Never in here, where nothing bounds what it takes.
            compiler::Error::NotStarted(error) => {
                Err(Error::Prepare(format!("start the process that compiles: {error}")))
            }
            compiler::Error::Unable(why) => Err(Error::Prepare(why)),
            // On another day it may be faster.
            late @ compiler::Error::Late(_) => Err(Error::Costly(late.to_string())),
            compiler::Error::Invalid(why) => {
                attempt.failed(Verdict::Invalid(why.clone()));
                Err(Error::Invalid(why))
            }
            compiler::Error::Costly(why) => {
                attempt.failed(Verdict::Costly(why.clone()));
                Err(Error::Costly(why))
            }
        }
    }

    /// Has it compiled by the other process, into a file that is kept, or if that can't be, into memory.
    async fn compile_elsewhere(&self, job: Job<'_>) -> Result<Found, compiler::Error> {
        let Job { compiler: Compiler { command, .. }, limits, engine, wasm, digest } = job;
        let unable = |error: io::Error| compiler::Error::Unable(error.to_string());
        if let Some(folder) = &self.shared.folder {
            match folder.draft() {
                Ok(draft) => {
                    let out = draft.file().try_clone().map_err(unable)?;
                    match compiler::compile(command, &limits, wasm, out).await {
                        // No space left, perhaps.
                        Err(compiler::Error::Unable(why)) => {
                            warn!(why, "compiled code can't be written; it is not kept");
                        }
                        done => {
                            done?;
                            return self.kept(engine, draft, digest).await;
                        }
                    }
                }
                Err(error) => warn!(%error, "compiled code can't be written; it is not kept"),
            }
        }
        let file = in_memory().map_err(unable)?;
        let out = file.try_clone().map_err(unable)?;
        compiler::compile(command, &limits, wasm, out).await?;
        Ok(Found { file, kept: false, entry: None })
    }

    /// Seals code that has just been compiled, and puts it into the folder.
    async fn kept(&self, engine: &Engine, draft: Draft, digest: &str) -> Result<Found, compiler::Error> {
        let (name, shared) = (name(engine, digest), Arc::clone(&self.shared));
        let kept = aside(1, move || {
            let entry = shared.hold(&name);
            let file = draft.file().try_clone()?;
            if let Err(error) = draft.keep(&name) {
                warn!(%error, "compiled code can't be kept");
            }
            shared.prune();
            Ok(Found { file, kept: false, entry: Some(entry) })
        });
        let kept = kept.await.map_err(|error| compiler::Error::Unable(error.to_string()))?;
        kept.map_err(|error: io::Error| compiler::Error::Unable(error.to_string()))
    }

    async fn compile_here(&self, engine: &Engine, wasm: Vec<u8>, digest: &str) -> Result<Found, Error> {
        let (engine, digest, shared) = (engine.clone(), digest.to_owned(), Arc::clone(&self.shared));
        let compiled = aside(compiler::threads(), move || {
            let code = engine.wasm().precompile_component(&wasm);
            let code = code.map_err(|error| Error::Invalid(format!("{error:#}")))?;
            let name = name(&engine, &digest);
            let entry = shared.hold(&name);
            if let Err(error) = shared.keep(&name, &code) {
                warn!(%error, "compiled code can't be kept");
            }
            shared.prune();
            // From the file if it is there: that takes less memory.
            if let Some(folder) = &shared.folder
                && let Ok(Some(file)) = folder.get(&name)
            {
                return Ok(Found { file, kept: false, entry: Some(entry) });
            }
            let unable = |error: io::Error| Error::Prepare(error.to_string());
            let mut file = in_memory().map_err(unable)?;
            file.write_all(&code).map_err(unable)?;
            Ok(Found { file, kept: false, entry: None })
        });
        compiled.await?
    }
}

/// Does something on threads that end with it: they and what they have allocated would otherwise stay for ever.
async fn aside<T: Send + 'static>(threads: usize, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    let pool = ThreadPoolBuilder::new().num_threads(threads).thread_name(|n| format!("compile-{n}")).build();
    let pool = pool.map_err(|error| Error::Prepare(error.to_string()))?;
    let (tell, told) = oneshot::channel();
    pool.spawn(move || {
        // Nobody waits any more if this fails.
        drop(tell.send(work()));
    });
    let gone = |_| Error::Prepare("the thread that compiles is gone".to_owned());
    told.await.map_err(gone)
}

/// Returns the SHA-256 of a component, in hexadecimal.
pub(super) fn digest(wasm: &[u8]) -> String {
    let mut digest = String::with_capacity(2 * SHA256_OUTPUT_LEN);
    for byte in ring::digest::digest(&SHA256, wasm).as_ref() {
        // Writing to a string cannot fail.
        let _infallible = std::fmt::Write::write_fmt(&mut digest, format_args!("{byte:02x}"));
    }
    digest
}

/// Returns the name under which the code of a component is kept: what it was made of, and for which engine.
fn name(engine: &Engine, digest: &str) -> String {
    let mut hasher = DefaultHasher::new();
    engine.wasm().precompile_compatibility_hash().hash(&mut hasher);
    format!("{digest}-{:016x}.cwasm", hasher.finish())
}

// === impl Shared ===

impl Shared {
    /// Keeps an entry from being removed, from now on.
    fn hold(&self, name: &str) -> Arc<Entry> {
        let mut in_use = self.in_use.lock();
        in_use.retain(|_, hold| hold.strong_count() > 0);
        let known = in_use.get(name).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let entry = Arc::default();
            in_use.insert(name.to_owned(), Arc::downgrade(&entry));
            entry
        })
    }

    fn keep(&self, name: &str, code: &[u8]) -> io::Result<()> {
        match &self.folder {
            Some(folder) => folder.write(name, code),
            None => Ok(()),
        }
    }

    /// Removes what was not used for the longest time. Code that is in use would stay mapped; but it would have to be
    /// compiled again at the next start.
    fn prune(&self) {
        let Some(folder) = &self.folder else {
            return;
        };
        let in_use = self.in_use.lock().clone();
        let held = |name: &str| in_use.get(name).is_some_and(|hold| hold.strong_count() > 0);
        folder.prune(&["cwasm", "draft"], Keep::Bytes(self.keep), held);
    }
}

// === impl HeadStart ===

impl HeadStart {
    fn give_up(&self) {
        if !self.over.swap(true, Ordering::SeqCst) {
            self.shared.ahead.send_modify(|ahead| *ahead = ahead.saturating_sub(1));
        }
    }
}

impl Drop for HeadStart {
    fn drop(&mut self) {
        self.give_up();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn entries_that_are_in_use_stay_and_of_the_others_the_oldest_go() {
        let dir = tempfile::tempdir().unwrap();
        let code = dir.path().join("code");
        let cache = CodeCache::keyed(&code, None, 16 * 1000);
        let time = |n: u64| std::time::UNIX_EPOCH + Duration::from_secs(n);
        let name = |n: u64| format!("{n}.cwasm");
        for n in 0..20 {
            let file = File::create(code.join(name(n))).unwrap();
            file.set_len(1000).unwrap();
            file.set_modified(time(n)).unwrap();
        }
        let hold = cache.shared.hold(&name(1));
        cache.shared.prune();
        let left = || {
            let left = (0..20).filter(|&n| code.join(name(n)).exists());
            left.collect::<Vec<_>>()
        };
        let expected: Vec<_> = [1].into_iter().chain(5..20).collect();
        assert_eq!(left(), expected, "what is in use counts, and is never removed");
        assert!(code.join("key").exists());
        drop(hold);
        File::create(code.join(name(20))).unwrap().set_len(1000).unwrap();
        cache.shared.prune();
        assert_eq!(left(), (5..20).collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn code_is_in_memory_once_for_each_engine_as_long_as_somebody_runs_it() {
        // A component with nothing in it.
        const WASM: &[u8] = b"\0asm\x0d\0\x01\0";
        let dir = tempfile::tempdir().unwrap();
        // For two engines, and nobody more.
        let cache = CodeCache::at(&dir.path().join("code")).within(4000);
        let pool = crate::plugin::engine::Pool { instances: 4 };
        let (engine, other, third) =
            (Engine::new(pool).unwrap(), Engine::new(pool).unwrap(), Engine::new(pool).unwrap());
        let (digest, team) = (digest(WASM), Arc::from("team"));
        let soon = Instant::now() + Duration::from_millis(100);
        let load = async |engine| {
            let found = cache.recall(engine, &digest).unwrap();
            assert!(found.kept);
            cache.map(found, engine, (&digest, &team), (1500, soon)).await
        };
        let turn = cache.turn(&team).await;
        drop(cache.compile(&turn, &engine, WASM.to_vec(), &digest).await.unwrap());
        let first = load(&engine).await.unwrap();
        let same = |one: &Code, other: &Code| Arc::ptr_eq(&one.mapped.mapped, &other.mapped.mapped);
        assert!(same(&first, &load(&engine).await.unwrap()));
        let elsewhere = load(&other).await.unwrap();
        assert!(!same(&first, &elsewhere));
        assert!(same(&elsewhere, &load(&other).await.unwrap()));
        let refused = load(&third).await.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.starts_with("make room for what describes it: the 4000 bytes"), "{refused}");
        assert!(refused.ends_with(&format!("3000 bytes of it has the component of sha256:{digest}")), "{refused}");
        let gone = Arc::downgrade(&first.mapped.mapped);
        drop(first);
        assert!(gone.upgrade().is_none(), "another engine does not keep it");
        drop(load(&third).await.unwrap());
        let engines = [&engine, &third];
        for engine in engines {
            drop(load(engine).await.unwrap());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_already_comes_first_but_is_not_waited_for_for_ever() {
        let cache = CodeCache::none();
        let begun = Instant::now();
        let (one, other) = (cache.with_head_start(), cache.with_head_start());
        // It has to compile, so that it is not ahead itself.
        let team = Arc::from("team");
        drop(other.turn(&team).await);
        assert_eq!(begun.elapsed(), HEAD_START);
        let slow = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(one);
        };
        let (turn, ()) = tokio::join!(cache.turn(&team), slow);
        assert_eq!(begun.elapsed(), HEAD_START + Duration::from_secs(1));
        drop(turn);
        drop(cache.turn(&team).await);
        assert_eq!(begun.elapsed(), HEAD_START + Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_hangs_keeps_no_other_from_being_read_and_never_are_many_read_at_once() {
        let cache = CodeCache::none();
        let (at_once, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (end, hang) = std::sync::mpsc::channel::<()>();
        let hang = Arc::new(Mutex::new(hang));
        let mut hanging = tokio::task::JoinSet::new();
        for _ in 0..READERS {
            let (cache, hang) = (cache.clone(), Arc::clone(&hang));
            let hangs = async move { cache.reading(move || hang.lock().recv().is_err()).await };
            hanging.spawn(hangs);
        }
        tokio::task::yield_now().await;
        let reads = (0..50).map(|_| {
            let (at_once, most) = (Arc::clone(&at_once), Arc::clone(&most));
            cache.reading(move || {
                let now = at_once.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
                std::thread::park_timeout(Duration::from_millis(2));
                at_once.fetch_sub(1, Ordering::SeqCst);
            })
        });
        for read in futures::future::join_all(reads).await {
            read.unwrap();
        }
        let most = most.load(Ordering::SeqCst);
        assert!(most <= SPARE_READERS, "{most} at once, beside those that hang");
        drop(end);
        hanging.join_all().await;
    }

    #[tokio::test(start_paused = true)]
    async fn one_compiles_at_a_time_and_teams_take_turns() {
        let cache = CodeCache::none();
        let (greedy, other) = (Arc::from("greedy"), Arc::from("other"));
        let turn = cache.turn(&greedy).await;
        let mut more: Vec<_> = (0..8).map(|_| Box::pin(cache.turn(&greedy))).collect();
        for more in &mut more {
            assert!(timeout(Duration::from_secs(1), more).await.is_err());
        }
        let mut others = Box::pin(cache.turn(&other));
        assert!(timeout(Duration::from_mins(1), &mut others).await.is_err());
        drop(turn);
        // Before all that have waited for longer.
        assert!(timeout(Duration::from_secs(1), others).await.is_ok());
    }
}
