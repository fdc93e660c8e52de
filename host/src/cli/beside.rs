//! Writes a file in one go: beside its place under a name that nobody has, then moved there. Nobody takes half of it for the whole, and a link that
//! somebody has put in its place, or in that of its first half, leads nowhere.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// How many names are tried that nobody can know.
const TRIES: u32 = 16;

/// A file that is not in its place yet. It goes if it never is.
pub(super) struct Beside {
    next: Option<PathBuf>,
    place: PathBuf,
}

/// Writes a whole file.
///
/// # Errors
/// If it can't be written.
pub(super) fn write(place: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let (beside, mut file) = Beside::begin(place)?;
    file.write_all(bytes).with_context(|| format!("write {}", place.display()))?;
    beside.done()
}

impl Beside {
    /// Begins a file, which is to be written.
    ///
    /// # Errors
    /// If none can be made there.
    pub(super) fn begin(place: &Path) -> anyhow::Result<(Self, File)> {
        let name = place.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let writing = || format!("write {}", place.display());
        for _ in 0..TRIES {
            let next = place.with_file_name(format!(".{name}.{:016x}", RandomState::new().hash_one(&name)));
            // Of a new file only: a link that is there already is one.
            match OpenOptions::new().write(true).create_new(true).open(&next) {
                Ok(file) => return Ok((Self { next: Some(next), place: place.to_owned() }, file)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).with_context(writing),
            }
        }
        Err(std::io::Error::from(ErrorKind::AlreadyExists)).with_context(writing)
    }

    /// Puts it in its place.
    ///
    /// # Errors
    /// If it can't be moved there.
    pub(super) fn done(mut self) -> anyhow::Result<()> {
        if let Some(next) = &self.next {
            fs::rename(next, &self.place).with_context(|| format!("write {}", self.place.display()))?;
        }
        self.next = None;
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if let Some(next) = &self.next {
            // It is not whole, and in nobody's way if it stays.
            drop(fs::remove_file(next));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_link_in_the_place_of_a_file_is_replaced_and_what_it_leads_to_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (elsewhere, place) = (folder.path().join("elsewhere"), folder.path().join("place"));
        fs::write(&elsewhere, "another's").unwrap();
        symlink("elsewhere", &place).unwrap();
        write(&place, b"ours").unwrap();
        assert_eq!([&elsewhere, &place].map(|file| fs::read_to_string(file).unwrap()), ["another's", "ours"]);
        assert!(!place.is_symlink());
        write(&place, b"again").unwrap();
        assert_eq!(
            (names(folder.path()), fs::read(&place).unwrap()),
            (vec!["elsewhere".into(), "place".into()], b"again".into())
        );
    }

    #[test]
    fn what_is_not_whole_is_in_nobodys_place_and_goes() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("place");
        fs::write(&place, "before").unwrap();
        let (beside, mut file) = Beside::begin(&place).unwrap();
        file.write_all(b"half").unwrap();
        assert_eq!((names(folder.path()).len(), fs::read_to_string(&place).unwrap()), (2, "before".to_owned()));
        drop(beside);
        assert_eq!(names(folder.path()), ["place"]);
        let missing = write(&folder.path().join("no/place"), b"").unwrap_err();
        assert!(format!("{missing:#}").starts_with("write "), "{missing:#}");
    }
}
