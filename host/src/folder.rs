//! A folder for files that this daemon alone has written: each is sealed under its name with a secret key, and opened by
//! descriptor, so that what somebody else puts there is not taken.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use ring::digest::{Context, SHA256};
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};
use rustix::fs::{
    AtFlags, Dir, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, fchmod, fstat, futimens, openat, renameat, statat,
    unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use tracing::warn;

use crate::read;

/// The file with the key, where nobody names another.
const KEY: &str = "key";

/// Bytes of a key, and of a seal.
const LENGTH: usize = 32;

/// Bits of a mode.
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

const NOW: Timestamps = Timestamps {
    last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
    last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
};

/// The folder. What it is called does not matter once it is open.
#[derive(Debug)]
pub(crate) struct Folder {
    dir: OwnedFd,
    key: hmac::Key,
    /// Whether the key is kept elsewhere, so that who can write here can't seal.
    is_sealed: bool,
    /// The files that are being written.
    drafts: Mutex<BTreeSet<String>>,
}

/// A file that is being written, and is removed if it is not kept.
pub(crate) struct Draft {
    folder: Arc<Folder>,
    file: File,
    /// What it is called meanwhile; none once it is kept.
    name: Option<String>,
}

/// An entry, its bytes, and when it was written or used last.
struct Entry {
    name: String,
    size: u64,
    used: (i64, u64),
}

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// So many entries, beside those that are in use.
    Entries(usize),
    /// So many bytes, those that are in use among them.
    Bytes(u64),
}

impl Folder {
    /// Opens a folder, which is made if it does not exist. It must be ours alone, and so must the way to it, unless the key
    /// is kept elsewhere: then it does not matter who can put another folder in its place, and one of ours that others can use
    /// is closed to them. The kubelet opens all that is on a claim to the group of the pod (`fsGroup`).
    ///
    /// # Errors
    /// What is wrong with the folder, or with the key.
    pub(crate) fn open(path: &Path, key_file: Option<&Path>) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let dir = walk(&path.canonicalize()?, key_file.is_none())?;
        let key = match key_file {
            Some(file) => key_of(file)
                .map_err(|error| named(&error, &format!("the key {} (--code-cache-key-file)", file.display()))),
            None => own_key(&dir).map_err(|error| named(&error, KEY)),
        }?;
        let (key, is_sealed) = (hmac::Key::new(hmac::HMAC_SHA256, &key), key_file.is_some());
        Ok(Self { dir, key, is_sealed, drafts: Mutex::default() })
    }

    /// Starts a file.
    pub(crate) fn draft(self: &Arc<Self>) -> io::Result<Draft> {
        let (name, file) = self.begin()?;
        Ok(Draft { file, folder: Arc::clone(self), name: Some(name) })
    }

    fn begin(&self) -> io::Result<(String, File)> {
        let name = draft_name()?;
        let file = create(&self.dir, &name)?;
        self.drafts.lock().insert(name.clone());
        Ok((name, file))
    }

    /// Puts a copy in the place of a file that others can write to, so that nobody has it open: a seal is looked at before what it is on is used.
    fn copied(&self, file: &File, name: &str) -> io::Result<File> {
        let (draft, mut copy) = self.begin()?;
        let length = file.metadata()?.len();
        let copied = io::copy(&mut file.take(length), &mut copy);
        let copied = copied.and_then(|_| Ok(renameat(&self.dir, &*draft, &self.dir, name)?));
        self.drafts.lock().remove(&draft);
        copied.inspect_err(|_| drop(self.remove(&draft))).map(|()| copy)
    }

    fn seal(&self, mut file: &File, name: &str) -> io::Result<()> {
        let sealed = sealed(file, name, file.metadata()?.len())?;
        file.seek(SeekFrom::End(0))?;
        // What does not reach the disk before a power cut shows by its seal, so that nothing waits for the disk.
        file.write_all(hmac::sign(&self.key, &sealed).as_ref())
    }

    /// Writes a file, all or nothing.
    pub(crate) fn write(self: &Arc<Self>, name: &str, content: &[u8]) -> io::Result<()> {
        let mut draft = self.draft()?;
        draft.file.write_all(content)?;
        draft.keep(name)
    }

    /// Opens a file that was kept under this name; none if it is not there. Behind its content is the seal.
    ///
    /// # Errors
    /// If it is not what was kept, or can't be read.
    pub(crate) fn get(&self, name: &str) -> io::Result<Option<File>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut file = match openat(&self.dir, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let others = private(&file, if self.is_sealed { 0 } else { OTHERS_WRITE })? & OTHERS_WRITE;
        if others != 0 {
            file = self.copied(&file, name)?;
        }
        let foreign = || refusal("it is damaged, or was not written by this daemon");
        let length = file.metadata()?.len();
        let length = length.checked_sub(LENGTH as u64).ok_or_else(foreign)?;
        let sealed = sealed(&file, name, length)?;
        let mut seal = [0; LENGTH];
        file.seek(SeekFrom::Start(length))?;
        file.read_exact(&mut seal)?;
        hmac::verify(&self.key, &sealed, &seal).map_err(|_| foreign())?;
        file.rewind()?;
        // It may be removed a little earlier if that fails.
        let _kept_anyway = futimens(&file, &NOW);
        Ok(Some(file))
    }

    /// Returns what is in a file that was kept under this name, up to so many bytes.
    ///
    /// # Errors
    /// As for [`Folder::get`].
    pub(crate) fn read(&self, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = self.get(name)? else {
            return Ok(None);
        };
        let mut content = read::opened(file, most + LENGTH as u64)?;
        content.truncate(content.len().saturating_sub(LENGTH));
        Ok(Some(content))
    }

    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.dir, name, AtFlags::empty())?)
    }

    /// Lists the files.
    fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in Dir::read_from(&self.dir)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            if let Ok(stat) = statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                let used = (stat.st_mtime, stat.st_mtime_nsec);
                let size = u64::try_from(stat.st_size).unwrap_or_default();
                entries.push(Entry { name: name.to_owned(), size, used });
            }
        }
        Ok(entries)
    }

    /// Removes what is too much of the entries with one of these endings, but none that is `held`, or is being written.
    pub(crate) fn prune(&self, endings: &[&str], keep: Keep, held: impl Fn(&str) -> bool) {
        let mut entries = self.entries().unwrap_or_default();
        entries.retain(|entry| endings.contains(&entry.name.rsplit('.').next().unwrap_or_default()));
        let held = |entry: &str| held(entry) || self.drafts.lock().contains(entry);
        for name in keep.surplus(entries, held) {
            if let Err(error) = self.remove(&name) {
                warn!(file = %name, %error, "an old entry of a cache stays");
            }
        }
    }
}

impl Keep {
    /// Returns the names of entries that are too much: of those that nobody holds, the ones that were used longest ago.
    fn surplus(self, mut entries: Vec<Entry>, held: impl Fn(&str) -> bool) -> Vec<String> {
        entries.sort_by_key(|entry| (!held(&entry.name), Reverse(entry.used)));
        let (mut count, mut bytes) = (0, 0_u64);
        entries.retain(|entry| {
            bytes = bytes.saturating_add(entry.size);
            let held = held(&entry.name);
            count += usize::from(!held);
            let kept = match self {
                Self::Entries(most) => count <= most,
                Self::Bytes(most) => bytes <= most,
            };
            !held && !kept
        });
        entries.into_iter().map(|entry| entry.name).collect()
    }
}

impl Draft {
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Seals what was written, and puts it under the name.
    pub(crate) fn keep(mut self, name: &str) -> io::Result<()> {
        self.folder.seal(&self.file, name)?;
        if let Some(before) = &self.name {
            let dir = &self.folder.dir;
            renameat(dir, &**before, dir, name)?;
            self.folder.drafts.lock().remove(before);
            self.name = None;
        }
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // If it stays, it goes with the oldest entries.
            drop(self.folder.remove(name));
            self.folder.drafts.lock().remove(name);
        }
    }
}

/// Returns what is sealed: the name, and the digest of the first bytes of a file.
fn sealed(mut file: &File, name: &str, length: u64) -> io::Result<Vec<u8>> {
    let mut digest = Context::new(&SHA256);
    file.rewind()?;
    let mut content = file.take(length);
    let mut buffer = vec![0; 64 << 10];
    loop {
        match content.read(&mut buffer)? {
            0 => break,
            n => digest.update(buffer.get(..n).unwrap_or_default()),
        }
    }
    Ok([name.as_bytes(), b"\0", digest.finish().as_ref()].concat())
}

// === the way to it ===

/// Opens a folder by its real path, and looks at each folder on the way.
fn walk(path: &Path, careful: bool) -> io::Result<OwnedFd> {
    let open = |at: &OwnedFd, name: &Path| {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok::<_, io::Error>(openat(at, name, flags, Mode::empty())?)
    };
    let mut dir = open(&rustix::fs::open("/", OFlags::DIRECTORY, Mode::empty())?, Path::new("."))?;
    let mut at = PathBuf::from("/");
    for part in path.components() {
        let Component::Normal(part) = part else {
            continue;
        };
        if careful {
            safe(&dir).map_err(|error| named(&error, &at.display().to_string()))?;
        }
        at.push(part);
        dir = open(&dir, part.as_ref())?;
    }
    let stat = fstat(&dir)?;
    if stat.st_uid != geteuid().as_raw() {
        return Err(refusal("it belongs to another user"));
    }
    if stat.st_mode & 0o077 != 0 {
        if careful {
            return Err(refusal("others can use it; its mode should be 0700"));
        }
        fchmod(&dir, Mode::RWXU)?;
    }
    Ok(dir)
}

/// Refuses a folder in which others can put another one in the place of ours.
fn safe(dir: &OwnedFd) -> io::Result<()> {
    let stat = fstat(dir)?;
    if stat.st_uid != 0 && stat.st_uid != geteuid().as_raw() {
        return Err(refusal("it belongs to another user"));
    }
    if stat.st_mode & OTHERS_WRITE != 0 && stat.st_mode & STICKY == 0 {
        return Err(refusal(
            "others can write it and it has no sticky bit; use another folder, or keep the key elsewhere (--code-cache-key-file)",
        ));
    }
    Ok(())
}

// === the key ===

/// Returns the key that is in the folder, and makes one if there is none.
fn own_key(dir: &OwnedFd) -> io::Result<Vec<u8>> {
    let known = || -> io::Result<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(dir, KEY, flags, Mode::empty())?);
        private(&file, 0o077)?;
        let key = read::opened(file, LENGTH as u64)?;
        if key.len() < LENGTH {
            return Err(refusal("it is too short; remove it"));
        }
        Ok(key)
    };
    match known() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        known => return known,
    }
    let key: [u8; LENGTH] = random()?;
    let draft = draft_name()?;
    let mut file = create(dir, &draft)?;
    file.write_all(&key)?;
    file.sync_all()?;
    // Another process may have been faster.
    let linked = rustix::fs::linkat(dir, &*draft, dir, KEY, AtFlags::empty());
    unlinkat(dir, &*draft, AtFlags::empty())?;
    match linked {
        Ok(()) | Err(Errno::EXIST) => known(),
        Err(error) => Err(error.into()),
    }
}

/// Returns the key that somebody has put into a file.
fn key_of(path: &Path) -> io::Result<Vec<u8>> {
    let file = read::open(path)?;
    private(&file, 0o037)?;
    let key = read::opened(file, read::TEXT)?;
    if key.len() < LENGTH {
        let why = format!("it has {} bytes; a key has {LENGTH} random bytes or more", key.len());
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(key)
}

/// Returns the mode of a file; refuses one that is not regular, belongs to somebody who is neither this user nor root, or has one of
/// these bits of the mode.
fn private(file: &File, forbidden: u32) -> io::Result<u32> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(refusal("it is not a regular file"));
    }
    if metadata.uid() != 0 && metadata.uid() != geteuid().as_raw() {
        return Err(refusal("it belongs to another user"));
    }
    let mode = metadata.mode() & 0o777;
    if mode & forbidden != 0 {
        let why = format!("others can use it; its mode is {mode:04o} and should be 0600 or less");
        return Err(refusal(&why));
    }
    Ok(mode)
}

/// Returns a name that nobody else has: two daemons may share the folder, and in its own pod each has the number 1.
fn draft_name() -> io::Result<String> {
    let number = u128::from_ne_bytes(random()?);
    Ok(format!("{number:032x}.draft"))
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| io::Error::other("the system gives no random bytes"))?;
    Ok(bytes)
}

fn create(dir: &OwnedFd, name: &str) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?;
    Ok(file.into())
}

fn refusal(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

fn named(error: &io::Error, what: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn open(path: &Path, key: Option<&Path>) -> Result<Arc<Folder>, String> {
        let folder = Folder::open(path, key).map(Arc::new);
        folder.map_err(|error| error.to_string())
    }

    /// Returns what is under a name: content, nothing, or why not.
    fn got(folder: &Folder, name: &str) -> String {
        match folder.read(name, read::TEXT) {
            Ok(Some(content)) => String::from_utf8(content).unwrap(),
            Ok(None) => "nothing".to_owned(),
            Err(error) => format!("error: {error}"),
        }
    }

    const FOREIGN: &str = "error: it is damaged, or was not written by this daemon";

    #[test]
    fn what_was_kept_is_taken_by_the_next_daemon_and_by_nobody_with_another_key() {
        let dir = tempfile::tempdir().unwrap();
        let (path, key) = (dir.path().join("deep/code"), dir.path().join("key"));
        fs::write(&key, [7; 32]).unwrap();
        mode(&key, 0o440);
        let (plain, keyed) = (open(&path, None).unwrap(), open(&path, Some(&key)).unwrap());
        plain.write("a", b"one").unwrap();
        assert_eq!(got(&open(&path, None).unwrap(), "a"), "one");
        assert_eq!(got(&keyed, "a"), FOREIGN);
        keyed.write("a", b"two").unwrap();
        assert_eq!(got(&open(&path, Some(&key)).unwrap(), "a"), "two");
        assert_eq!((got(&plain, "a"), got(&plain, "b")), (FOREIGN.to_owned(), "nothing".to_owned()));
    }

    #[test]
    fn what_was_put_there_or_renamed_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("code");
        let folder = open(&path, None).unwrap();
        folder.write("a", b"code").unwrap();
        let sealed = fs::read(path.join("a")).unwrap();
        let at = |name: &str| path.join(name);
        fs::copy(at("a"), at("renamed")).unwrap();
        fs::write(at("foreign"), [b"code".as_slice(), &[1; 32]].concat()).unwrap();
        fs::write(at("short"), "code").unwrap();
        fs::write(at("longer"), [&b"x"[..], &sealed].concat()).unwrap();
        for name in ["renamed", "foreign", "short", "longer"] {
            assert_eq!(got(&folder, name), FOREIGN, "{name}");
        }
        symlink("a", at("link")).unwrap();
        mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        fs::create_dir(at("dir")).unwrap();
        for name in ["link", "fifo", "dir"] {
            assert!(got(&folder, name).starts_with("error: "), "{name}");
        }
        mode(&at("a"), 0o622);
        assert!(got(&folder, "a").contains("others can use it"));
        mode(&at("a"), 0o600);
        if geteuid().is_root() {
            std::os::unix::fs::chown(at("a"), Some(65_534), None).unwrap();
            assert_eq!(got(&folder, "a"), "error: it belongs to another user");
        }
    }

    #[test]
    fn a_folder_that_takes_the_place_of_ours_is_not_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("code");
        let folder = open(&path, None).unwrap();
        folder.write("a", b"ours").unwrap();
        fs::rename(&path, dir.path().join("away")).unwrap();
        fs::create_dir(&path).unwrap();
        fs::copy(dir.path().join("away/a"), path.join("b")).unwrap();
        assert_eq!((got(&folder, "a"), got(&folder, "b")), ("ours".to_owned(), "nothing".to_owned()));
        folder.write("c", b"new").unwrap();
        assert!(dir.path().join("away/c").exists());
    }

    #[test]
    fn a_folder_is_refused_if_others_can_use_it_or_replace_it() {
        let dir = tempfile::tempdir().unwrap();
        let (parent, key) = (dir.path().join("parent"), dir.path().join("key"));
        let path = parent.join("code");
        fs::create_dir_all(&path).unwrap();
        fs::write(&key, [7; 32]).unwrap();
        mode(&key, 0o400);
        mode(&path, 0o755);
        let refused = open(&path, None).unwrap_err();
        assert_eq!(refused, "others can use it; its mode should be 0700");
        mode(&path, 0o700);
        for writable in [0o777, 0o775] {
            mode(&parent, writable);
            let refused = open(&path, None).unwrap_err();
            assert!(refused.contains("parent: others can write it"), "{refused}");
            // What is in there is known by its seal.
            assert!(open(&path, Some(&key)).is_ok());
        }
        mode(&parent, 0o1777);
        assert!(open(&path, None).is_ok());
        if geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            let refused = open(&path, Some(&key)).unwrap_err();
            assert_eq!(refused, "it belongs to another user");
        }
    }

    #[test]
    fn what_the_kubelet_has_opened_to_the_group_of_the_pod_is_ours_alone_again() {
        let dir = tempfile::tempdir().unwrap();
        let (path, key) = (dir.path().join("code"), dir.path().join("key"));
        fs::write(&key, [7; 32]).unwrap();
        mode(&key, 0o440);
        for (name, content) in [("a", "one"), ("b", "two")] {
            open(&path, Some(&key)).unwrap().write(name, content.as_bytes()).unwrap();
        }
        let at = |name: &str| path.join(name);
        // As of a volume with `fsGroup`.
        let opened = || {
            mode(&path, 0o2770);
            for entry in fs::read_dir(&path).unwrap() {
                mode(&entry.unwrap().path(), 0o660);
            }
        };
        opened();
        let mut held = ["a", "b"].map(|name| File::options().read(true).write(true).open(at(name)).unwrap());
        let folder = open(&path, Some(&key)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o700);
        let mut found = folder.get("a").unwrap().unwrap();
        assert_eq!(fs::metadata(at("a")).unwrap().mode() & 0o7777, 0o600);
        // Who has had a file open meanwhile changes nothing of what is used, and what is changed is not taken.
        for file in &mut held {
            file.write_all(b"bad").unwrap();
        }
        let mut content = [0; 3];
        found.read_exact(&mut content).unwrap();
        assert_eq!(content, *b"one");
        assert_eq!((got(&folder, "a"), got(&folder, "b")), ("one".to_owned(), FOREIGN.to_owned()));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 2, "no draft is left");
        // The key itself is not sealed: who could read it can seal what he likes.
        fs::remove_dir_all(&path).unwrap();
        open(&path, None).unwrap().write("a", b"one").unwrap();
        opened();
        assert!(open(&path, None).unwrap_err().starts_with("others can use it"));
        mode(&path, 0o700);
        assert!(open(&path, None).unwrap_err().starts_with("key: others can use it"));
    }

    #[test]
    fn drafts_of_daemons_that_share_a_folder_have_names_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let folders = [(); 2].map(|()| open(&dir.path().join("code"), None).unwrap());
        let drafts = folders.each_ref().map(|folder| folder.draft().unwrap());
        let names: BTreeSet<_> = drafts.iter().map(|draft| draft.name.clone().unwrap()).collect();
        assert_eq!(names.len(), 2);
        let number = format!("{}-", std::process::id());
        assert!(names.iter().all(|name| !name.starts_with(&number)), "the other one may have the same: {names:?}");
        for (mut draft, (name, content)) in drafts.into_iter().zip([("a", b"one"), ("b", b"two")]) {
            draft.file.write_all(content).unwrap();
            draft.keep(name).unwrap();
        }
        assert_eq!([("a", "one"), ("b", "two")].map(|(name, _)| got(&folders[0], name)), ["one", "two"]);
    }

    #[test]
    fn a_key_that_others_can_read_or_that_is_none_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (path, key) = (dir.path().join("code"), dir.path().join("key"));
        let with = |key: &Path| open(&path, Some(key)).unwrap_err();
        fs::write(&key, [7; 31]).unwrap();
        mode(&key, 0o400);
        assert!(with(&key).ends_with("it has 31 bytes; a key has 32 random bytes or more"));
        fs::write(&key, [7; 32]).unwrap();
        mode(&key, 0o444);
        assert!(with(&key).contains("its mode is 0444"));
        let refused = with("/dev/zero".as_ref());
        assert_eq!(refused, "the key /dev/zero (--code-cache-key-file): it is a device; it should be a regular file");
        open(&path, None).unwrap();
        mode(&path.join("key"), 0o640);
        assert!(open(&path, None).unwrap_err().contains("key: others can use it"));
    }
}
