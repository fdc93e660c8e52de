//! Reads, writes and locks files for what builds: whoever looks sees a file whole, and one process builds at a time.

use std::fs::{self, File, TryLockError};
use std::path::Path;

use anyhow::{Context, Result};

use crate::interrupt;
use crate::ui::Task;

/// Returns the text of a file; an error names it.
pub(crate) fn text(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

/// Returns a lock that ends with the returned file, and with the process. Meanwhile `task` says what is waited for.
pub(crate) fn lock(task: &mut Task, path: &Path, waiting: &str) -> Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    }
    let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {
                task.at(waiting);
                interrupt::pause()?;
            }
            Err(TryLockError::Error(error)) => return Err(error).with_context(|| format!("lock {}", path.display())),
        }
    }
}
