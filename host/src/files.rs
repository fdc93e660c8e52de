//! Waits until a file in use has changed and is whole again: written, replaced, renamed over, or under another link.
//!
//! Folders are watched, not files: a file that is replaced is another inode, and a `ConfigMap` changes when the link
//! beside it (`..data`) is switched. A file that a writer still has open counts as unchanged, so that half a file is
//! never read.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use notify::{Config, Event, PollWatcher, RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::backoff::until;

/// A change counts as complete when nothing has happened for this long.
const SETTLE: Duration = Duration::from_millis(100);

/// Changes that continue for this long are looked at all the same.
const LONGEST: Duration = Duration::from_secs(2);

/// How long after its last change a file counts as being written, if no event says that it is complete: some writers
/// change a file without opening it.
const WRITING: Duration = Duration::from_mins(1);

/// The interval of polling where the system does not report changes.
const POLL: Duration = Duration::from_secs(2);

/// Symlinks followed before giving up; Linux's own limit.
const LINKS: usize = 40;

/// Watches the files that are in use.
pub struct Files {
    watcher: Box<dyn Watcher + Send>,
    shared: Arc<Shared>,
    /// The folders that are watched, each with its device and inode: a folder that is made again has to be watched
    /// again.
    watched: BTreeMap<PathBuf, (u64, u64)>,
}

struct Shared {
    state: Mutex<State>,
    changed: Notify,
    /// True if the system reports when a writer closes a file.
    tells_closing: bool,
}

/// What the events so far mean: whether something has changed, and which files are being written.
#[derive(Debug, Default)]
struct State {
    interest: Watchlist,
    /// True if something has changed since the last wait for a change.
    changed: bool,
    /// Files that are being written, with the time of the last change.
    open: BTreeMap<PathBuf, Instant>,
}

/// The paths whose changes matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watchlist {
    /// The folders to watch.
    folders: BTreeSet<PathBuf>,
    /// The files and links that matter.
    names: BTreeSet<PathBuf>,
    /// The folders in which every manifest matters.
    manifests: BTreeSet<PathBuf>,
}

// === impl Files ===

impl Default for Files {
    fn default() -> Self {
        Self::new()
    }
}

impl Files {
    /// Returns a watcher of nothing yet. Where the system does not report changes (no more inotify instances, say),
    /// it polls every few seconds.
    pub fn new() -> Self {
        let shared = Shared::new(cfg!(target_os = "linux"));
        match RecommendedWatcher::new(shared.listener(), Config::default()) {
            Ok(watcher) => Self::of(Box::new(watcher), shared),
            Err(error) => {
                tracing::warn!(%error, every = ?POLL, "the system does not tell of changed files; looking for them");
                Self::polling()
            }
        }
    }

    fn polling() -> Self {
        let shared = Shared::new(false);
        let config = Config::default().with_poll_interval(POLL);
        match PollWatcher::new(shared.listener(), config) {
            Ok(watcher) => Self::of(Box::new(watcher), shared),
            Err(error) => {
                tracing::error!(%error, "changed files are seen after SIGHUP only");
                Self::of(Box::new(notify::NullWatcher), shared)
            }
        }
    }

    fn of(watcher: Box<dyn Watcher + Send>, shared: Arc<Shared>) -> Self {
        Self { watcher, shared, watched: BTreeMap::new() }
    }

    /// Watches these files from now on, and no others.
    pub fn watch(&mut self, list: Watchlist) {
        let folders = list.folders.clone();
        {
            let mut state = self.shared.state.lock();
            // No event would report the end of writing another file.
            state.open.retain(|path, _| list.has(path));
            state.interest = list;
        }
        let now: BTreeMap<_, _> =
            folders.into_iter().filter_map(|folder| Some((folder.clone(), identity(&folder)?))).collect();
        let old = std::mem::take(&mut self.watched);
        for folder in old.iter().filter(|(at, id)| now.get(*at) != Some(id)) {
            // A folder that is gone has lost its watch already.
            drop(self.watcher.unwatch(folder.0));
        }
        for (folder, id) in now {
            if old.get(&folder) != Some(&id)
                && let Err(error) = self.watcher.watch(&folder, RecursiveMode::NonRecursive)
            {
                tracing::warn!(folder = %folder.display(), %error, "changes of files here are seen after SIGHUP only");
            }
            self.watched.insert(folder, id);
        }
    }

    /// Waits until something that matters has changed, and nothing has happened for a moment. The future may be
    /// dropped at any time without losing a change.
    pub fn changed(&self) -> impl Future<Output = ()> + Send + use<> {
        let shared = Arc::clone(&self.shared);
        async move { shared.changed().await }
    }

    /// Returns the files that are being written, by their real paths.
    pub fn writing(&self) -> BTreeSet<PathBuf> {
        self.shared.state.lock().open.keys().cloned().collect()
    }
}

/// Returns the device and inode of a folder; `None` if they can't be read.
fn identity(folder: &Path) -> Option<(u64, u64)> {
    let metadata = fs::metadata(folder).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

// === impl Shared ===

impl Shared {
    async fn changed(&self) {
        let Shared { changed, state, .. } = self;
        loop {
            let (heard, complete) = {
                let state = state.lock();
                (state.changed, state.complete_at())
            };
            // Otherwise a change would be lost whose notification went to a wait that was dropped.
            if !heard {
                tokio::select! {
                    () = changed.notified() => {}
                    () = until(complete) => state.lock().close_old(Instant::now()),
                }
            }
            let settled = async { while timeout(SETTLE, changed.notified()).await.is_ok() {} };
            // Files that change all the time are looked at all the same.
            let _settled = timeout(LONGEST, settled).await;
            if std::mem::take(&mut state.lock().changed) {
                return;
            }
        }
    }

    fn new(tells_closing: bool) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), changed: Notify::new(), tells_closing })
    }

    fn listener(self: &Arc<Self>) -> impl Fn(notify::Result<Event>) + Send + 'static {
        let shared = Arc::clone(self);
        move |event| {
            let heard = match event {
                Ok(event) => shared.state.lock().hear(&event, shared.tells_closing),
                Err(error) => {
                    tracing::warn!(%error, "changes of files may have been missed");
                    shared.state.lock().changed = true;
                    true
                }
            };
            if heard {
                shared.changed.notify_one();
            }
        }
    }
}

// === impl State ===

impl State {
    /// Takes an event in. Returns true if it matters.
    fn hear(&mut self, event: &Event, tells_closing: bool) -> bool {
        if event.need_rescan() {
            // The events that were missed may include ends of writing.
            self.open.clear();
            self.changed = true;
            return true;
        }
        let mut matters = false;
        for path in &event.paths {
            if !self.interest.has(path) {
                continue;
            }
            match event.kind {
                EventKind::Modify(ModifyKind::Data(_)) if tells_closing => {
                    // Reported when the file is closed; but it has to be known that there is a writer.
                    self.open.insert(path.clone(), Instant::now());
                    matters = true;
                    continue;
                }
                EventKind::Access(AccessKind::Close(AccessMode::Write))
                | EventKind::Remove(_)
                | EventKind::Modify(ModifyKind::Name(_)) => drop(self.open.remove(path)),
                EventKind::Access(_) => continue,
                EventKind::Any | EventKind::Create(_) | EventKind::Modify(_) | EventKind::Other => {}
            }
            matters = true;
            self.changed = true;
        }
        matters
    }

    /// Returns when the first of the files that are being written counts as complete; `None` if there are none.
    fn complete_at(&self) -> Option<Instant> {
        self.open.values().min().map(|last| *last + WRITING)
    }

    fn close_old(&mut self, now: Instant) {
        let before = self.open.len();
        self.open.retain(|_, last| *last + WRITING > now);
        self.changed |= self.open.len() < before;
    }
}

// === impl Watchlist ===

impl Watchlist {
    /// Adds a file, with all links that lead to it.
    pub fn add_file(&mut self, path: &Path) {
        self.follow(path);
    }

    /// Adds what a command line names: a manifest, or a folder of them.
    pub fn add_manifests(&mut self, path: &Path) {
        let at = self.follow(path);
        let Ok(entries) = fs::read_dir(&at) else {
            return;
        };
        for entry in entries.flatten() {
            if is_manifest(&entry.path()) {
                self.follow(&entry.path());
            }
        }
        self.folders.insert(at.clone());
        self.manifests.insert(at);
    }

    /// Adds a path as it is resolved now, link by link, and returns where it leads. If something is missing on the
    /// way, its creation is watched for.
    fn follow(&mut self, path: &Path) -> PathBuf {
        let Ok(path) = std::path::absolute(path) else {
            return path.to_owned();
        };
        let mut at = PathBuf::new();
        let mut rest = parts(&path);
        let mut links = 0;
        while let Some(part) = rest.pop() {
            let folder = at.clone();
            if part == ".." {
                at.pop();
                continue;
            }
            at.push(part);
            match fs::symlink_metadata(&at) {
                Err(_) => {
                    self.see(folder, at.clone());
                    break;
                }
                Ok(metadata) if metadata.is_symlink() && links < LINKS => {
                    links += 1;
                    let target = fs::read_link(&at).unwrap_or_default();
                    self.see(folder.clone(), at);
                    at = if target.is_absolute() { PathBuf::new() } else { folder };
                    rest.extend(parts(&target));
                }
                Ok(_) if rest.is_empty() => self.see(folder, at.clone()),
                Ok(_) => {}
            }
        }
        at
    }

    fn see(&mut self, folder: PathBuf, name: PathBuf) {
        self.folders.insert(folder);
        self.names.insert(name);
    }

    /// True if a change of this path matters.
    fn has(&self, path: &Path) -> bool {
        let listed = || path.parent().is_some_and(|folder| self.manifests.contains(folder));
        self.names.contains(path) || self.folders.contains(path) || (is_manifest(path) && listed())
    }
}

/// Returns the parts of a path in reverse order.
fn parts(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter_map(|part| match part {
        Component::CurDir => None,
        Component::Prefix(_) | Component::RootDir | Component::ParentDir | Component::Normal(_) => {
            Some(part.as_os_str().to_owned())
        }
    });
    let mut parts: Vec<_> = parts.collect();
    parts.reverse();
    parts
}

/// True if a file of a folder is a manifest, by its name.
pub fn is_manifest(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::os::unix::fs::symlink;

    use notify::event::{CreateKind, DataChange};
    use tokio::time::Instant;

    use super::*;

    /// A folder under its real name, with a watcher of what `list` says.
    struct Place {
        folder: tempfile::TempDir,
        files: Files,
    }

    fn place(fill: impl Fn(&Path), list: impl Fn(&Path, &mut Watchlist)) -> Place {
        let folder = tempfile::tempdir().unwrap();
        fill(folder.path());
        let mut files = Files::new();
        let mut interest = Watchlist::default();
        list(folder.path(), &mut interest);
        files.watch(interest);
        Place { folder, files }
    }

    impl Place {
        async fn is_told(&self) {
            let told = timeout(Duration::from_secs(10), self.files.changed());
            told.await.expect("to be told");
        }
    }

    fn write(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
    }

    #[tokio::test]
    async fn a_file_that_is_written_replaced_or_removed_is_told_of() {
        let place = place(|at| write(&at.join("a.wasm"), "1"), |at, list| list.add_file(&at.join("a.wasm")));
        let at = place.folder.path();
        write(&at.join("a.wasm"), "2");
        place.is_told().await;
        write(&at.join("draft"), "3");
        fs::rename(at.join("draft"), at.join("a.wasm")).unwrap();
        place.is_told().await;
        fs::remove_file(at.join("a.wasm")).unwrap();
        place.is_told().await;
        write(&at.join("a.wasm"), "4");
        place.is_told().await;
    }

    #[tokio::test]
    async fn a_change_is_told_of_although_the_wait_for_it_was_dropped() {
        let place = place(|at| write(&at.join("a.wasm"), "1"), |at, list| list.add_file(&at.join("a.wasm")));
        let heard = || place.files.shared.state.lock().changed;
        write(&place.folder.path().join("a.wasm"), "2");
        let begun = Instant::now();
        while !heard() {
            assert!(begun.elapsed() < Duration::from_secs(10), "nothing is heard");
            // Dropped while it waits for more events.
            assert!(timeout(SETTLE / 10, place.files.changed()).await.is_err());
        }
        place.is_told().await;
    }

    #[test]
    fn only_what_is_in_use_matters() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().canonicalize().unwrap();
        fs::create_dir(at.join("operators")).unwrap();
        let mut state = State::default();
        state.interest.add_file(&at.join("a.wasm"));
        state.interest.add_manifests(&at.join("operators"));
        let table = [
            ("a.wasm", true),
            ("b.wasm", false),
            ("a.yaml", false),
            ("operators/new.yaml", true),
            ("operators/notes.txt", false),
            ("operators", true),
        ];
        for (name, expected) in table {
            let event = Event::new(EventKind::Create(CreateKind::File)).add_path(at.join(name));
            assert_eq!(state.hear(&event, true), expected, "{name}");
        }
        let read = EventKind::Access(AccessKind::Open(AccessMode::Read));
        let event = Event::new(read).add_path(at.join("a.wasm"));
        assert!(!state.hear(&event, true), "to read a file does not change it");
    }

    #[tokio::test]
    async fn of_a_folder_every_manifest_counts() {
        let place = place(|_| {}, |at, list| list.add_manifests(at));
        write(&place.folder.path().join("new.yaml"), "1");
        place.is_told().await;
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn what_is_being_written_is_told_of_when_it_is_whole() {
        let place = place(|at| write(&at.join("a.wasm"), "1"), |at, list| list.add_file(&at.join("a.wasm")));
        let path = place.folder.path().join("a.wasm");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"half").unwrap();
        let begun = Instant::now();
        while !place.files.writing().contains(&path) {
            assert!(begun.elapsed() < Duration::from_secs(10), "the writing is not seen");
            tokio::task::yield_now().await;
        }
        let writer = async {
            // Long after a moment without any event.
            tokio::time::sleep(3 * SETTLE).await;
            file.write_all(b" and half").unwrap();
            drop(file);
        };
        tokio::join!(place.is_told(), writer);
        assert_eq!(fs::read_to_string(path).unwrap(), "half and half");
    }

    #[tokio::test]
    async fn a_config_map_that_flips_its_link_is_told_of() {
        // As the kubelet does it: name -> ..data/name, ..data -> ..2026_11_21.
        let version = |at: &Path, name: &str| {
            fs::create_dir(at.join(name)).unwrap();
            write(&at.join(name).join("a.yaml"), name);
        };
        let place = place(
            |at| {
                version(at, "..1");
                symlink("..1", at.join("..data")).unwrap();
                symlink("..data/a.yaml", at.join("a.yaml")).unwrap();
            },
            |at, list| list.add_manifests(at),
        );
        let at = place.folder.path();
        version(at, "..2");
        symlink("..2", at.join("..data_tmp")).unwrap();
        fs::rename(at.join("..data_tmp"), at.join("..data")).unwrap();
        place.is_told().await;
        assert_eq!(fs::read_to_string(at.join("a.yaml")).unwrap(), "..2");
    }

    #[tokio::test]
    async fn a_folder_that_comes_later_is_waited_for() {
        let place = place(|_| {}, |at, list| list.add_file(&at.join("plugins/a.wasm")));
        fs::create_dir(place.folder.path().join("plugins")).unwrap();
        place.is_told().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_changed_without_being_opened_is_complete_after_a_while() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("a.wasm");
        let mut state = State::default();
        state.interest.add_file(&path);
        let data = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        state.hear(&Event::new(data).add_path(path), true);
        let complete = state.complete_at().unwrap();
        assert_eq!((state.changed, complete), (false, Instant::now() + WRITING));
        state.close_old(complete);
        assert_eq!((state.changed, state.complete_at()), (true, None));
    }

    #[test]
    fn a_link_in_the_middle_of_a_path_is_watched_where_it_stands() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().canonicalize().unwrap();
        fs::create_dir(at.join("v1")).unwrap();
        write(&at.join("v1/a.wasm"), "1");
        symlink("v1", at.join("current")).unwrap();
        let mut list = Watchlist::default();
        list.add_file(&at.join("current/a.wasm"));
        let names = ["current", "v1/a.wasm"].map(|name| at.join(name));
        assert_eq!(list.names, BTreeSet::from(names));
        assert_eq!(list.folders, BTreeSet::from([at.clone(), at.join("v1")]));
    }

    #[test]
    fn a_link_to_itself_has_an_end() {
        let folder = tempfile::tempdir().unwrap();
        symlink("a", folder.path().join("a")).unwrap();
        let mut list = Watchlist::default();
        list.add_file(&folder.path().join("a"));
        assert!(list.names.iter().any(|name| name.ends_with("a")));
    }
}
