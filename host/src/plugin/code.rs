//! Compiled code: kept in a folder that nobody else can use, and mapped from there.
//!
//! Compiling takes from 0.1 s (Rust) to 10 s (Python, JavaScript), and mapped code takes less memory than code that was
//! compiled in this process.

use std::fs::{self, DirBuilder, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use tracing::warn;
use wasmtime::Engine;
use wasmtime::component::Component;

use super::bindings::map_compiled;

/// Compiled components kept on disk; the oldest go.
const KEEP: usize = 16;

/// Where compiled code is kept. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CodeCache {
    /// None: nowhere.
    dir: Option<Arc<Path>>,
}

// === impl CodeCache ===

impl CodeCache {
    /// Keeps compiled code in this folder, which is made if it does not exist. It must be ours alone, because what is in
    /// there is run without being checked; if it is not, there is a warning, and each start compiles again.
    pub fn at(dir: &Path) -> Self {
        match private(dir) {
            Ok(()) => Self {
                dir: Some(dir.into()),
            },
            Err(error) => {
                warn!(dir = %dir.display(), %error, "no folder for compiled code; components are compiled at each start");
                Self::none()
            }
        }
    }

    /// Keeps nothing.
    pub fn none() -> Self {
        Self { dir: None }
    }

    /// Returns a component out of the folder, or compiled. Takes its time: not for threads that others wait for.
    ///
    /// # Errors
    /// What is wrong with the component, and where.
    pub(super) fn component(&self, engine: &Engine, wasm: &[u8]) -> wasmtime::Result<Component> {
        let Some(dir) = &self.dir else {
            return Component::from_binary(engine, wasm);
        };
        let file = dir.join(name(engine, wasm));
        if let Some(component) = recall(engine, &file) {
            return Ok(component);
        }
        match keep(&file, &engine.precompile_component(wasm)?) {
            Ok(()) => prune(dir),
            Err(error) => warn!(file = %file.display(), %error, "compiled code cannot be kept"),
        }
        match recall(engine, &file) {
            Some(component) => Ok(component),
            None => Component::from_binary(engine, wasm),
        }
    }
}

/// Makes a folder that only this user can use, or finds out that it is one.
fn private(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let metadata = fs::symlink_metadata(dir)?;
    let refuse = |why| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    if !metadata.is_dir() {
        return refuse("it is not a folder");
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return refuse("it belongs to another user");
    }
    if metadata.mode() & 0o077 != 0 {
        return refuse("others can use it; its mode should be 0700");
    }
    Ok(())
}

/// Returns the name under which the code of a component is kept: what it was made of, and for which engine.
fn name(engine: &Engine, wasm: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    let mut name = String::new();
    for byte in ring::digest::digest(&SHA256, wasm).as_ref() {
        // Writing to a string cannot fail.
        let _infallible = std::fmt::Write::write_fmt(&mut name, format_args!("{byte:02x}"));
    }
    format!("{name}-{:016x}.cwasm", hasher.finish())
}

/// Returns what was kept under a name; none if it is not there or not what was written.
fn recall(engine: &Engine, file: &Path) -> Option<Component> {
    let known = match intact(file) {
        Ok(intact) => intact,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            warn!(file = %file.display(), %error, "compiled code cannot be read");
            return None;
        }
    };
    let component = if known {
        map_compiled(engine, file).ok()
    } else {
        None
    };
    if component.is_none() {
        warn!(file = %file.display(), "compiled code is damaged; compiling again");
    }
    component
}

/// Whether a file ends with the digest of what stands before. (What reads it looks at sections by offset, and not at the
/// end.)
fn intact(file: &Path) -> io::Result<bool> {
    let mut file = File::open(file)?;
    let length = file.metadata()?.len();
    let Some(length) = length.checked_sub(SHA256_OUTPUT_LEN as u64) else {
        return Ok(false);
    };
    let mut context = Context::new(&SHA256);
    let mut code = Read::by_ref(&mut file).take(length);
    let mut buffer = vec![0; 64 << 10];
    loop {
        match code.read(&mut buffer)? {
            0 => break,
            n => context.update(buffer.get(..n).unwrap_or_default()),
        }
    }
    let mut digest = [0; SHA256_OUTPUT_LEN];
    file.seek(SeekFrom::Start(length))?;
    file.read_exact(&mut digest)?;
    Ok(context.finish().as_ref() == digest)
}

/// Writes compiled code with its digest, all or nothing.
fn keep(file: &Path, code: &[u8]) -> io::Result<()> {
    // Two plugins may be the same file.
    static DRAFTS: AtomicU32 = AtomicU32::new(0);
    let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let draft = file.with_extension(format!("{}-{number}.draft", std::process::id()));
    let write = || {
        let mut out = File::create(&draft)?;
        out.write_all(code)?;
        out.write_all(ring::digest::digest(&SHA256, code).as_ref())?;
        out.sync_all()?;
        fs::rename(&draft, file)
    };
    let written = write();
    if written.is_err() {
        // It may not even have been made.
        drop(fs::remove_file(&draft));
    }
    written
}

/// Removes all but the youngest entries. Code that is in use stays mapped.
fn prune(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    let mut files: Vec<_> = entries
        .flatten()
        .filter(|entry| {
            entry
                .path()
                .extension()
                .is_some_and(|extension| extension == "cwasm" || extension == "draft")
        })
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    files.sort_by(|one, other| other.cmp(one));
    for (_, file) in files.iter().skip(KEEP) {
        if let Err(error) = fs::remove_file(file) {
            warn!(file = %file.display(), %error, "an old entry stays");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_entries_go() {
        let dir = tempfile::tempdir().unwrap();
        let time = |n: u64| std::time::UNIX_EPOCH + std::time::Duration::from_secs(n);
        let name = |n: u64| dir.path().join(format!("{n}.cwasm"));
        for n in 0..20 {
            File::create(name(n))
                .unwrap()
                .set_modified(time(n))
                .unwrap();
        }
        fs::write(dir.path().join("README"), "").unwrap();
        prune(dir.path());
        let left: Vec<_> = (0..20).filter(|&n| name(n).exists()).collect();
        assert_eq!(left, (4..20).collect::<Vec<_>>());
        assert!(dir.path().join("README").exists());
    }
}
