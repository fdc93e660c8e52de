//! Where the bytes of a component come from, and what that is called in messages.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::read;

/// Reads the bytes of a component. It may take its time.
type Read = dyn Fn() -> io::Result<Vec<u8>> + Send + Sync;

/// A component that can be read, again and again.
#[derive(Clone)]
pub struct Wasm {
    name: PathBuf,
    read: Arc<Read>,
}

impl Wasm {
    /// Returns what is in a file.
    pub fn of_file(path: &Path) -> Self {
        let file = path.to_owned();
        Self { name: path.to_owned(), read: Arc::new(move || read::bytes(&file, read::COMPONENT)) }
    }

    /// Returns what is called so, and read so.
    pub fn new(name: &str, read: impl Fn() -> io::Result<Vec<u8>> + Send + Sync + 'static) -> Self {
        Self { name: name.into(), read: Arc::new(read) }
    }

    /// Returns what it is called.
    pub(super) fn name(&self) -> &Path {
        &self.name
    }

    /// Returns its bytes.
    pub(super) fn read(&self) -> io::Result<Vec<u8>> {
        (self.read)()
    }
}
