//! Compiled code: kept in a folder that nobody else can use, and mapped from there.
//!
//! Compiling takes from 0.1 s (Rust) to 10 s (Python, JavaScript), and mapped code takes less memory than code that was
//! compiled in this process.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use tracing::warn;
use wasmtime::Engine;
use wasmtime::component::Component;

use super::bindings::map_compiled;
use super::engine::{config, unfit};

/// Compiled components kept on disk; the oldest go.
const KEEP: usize = 16;

/// Where compiled code is kept. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CodeCache {
    /// None: nowhere.
    dir: Option<Arc<Path>>,
    /// The process that compiles. None: this one.
    compiler: Option<Arc<[OsString]>>,
}

/// A compiled component.
pub(super) struct Code {
    pub(super) component: Component,
    /// Whether it was compiled before.
    pub(super) kept: bool,
}

// === impl CodeCache ===

impl CodeCache {
    /// Keeps compiled code in this folder, which is made if it does not exist. It must be ours alone, because what is in
    /// there is run without being checked; if it is not, there is a warning, and each start compiles again.
    pub fn at(dir: &Path) -> Self {
        match private(dir) {
            Ok(()) => Self {
                dir: Some(dir.into()),
                compiler: None,
            },
            Err(error) => {
                warn!(dir = %dir.display(), %error, "no folder for compiled code; components are compiled at each start");
                Self::none()
            }
        }
    }

    /// Keeps nothing.
    pub fn none() -> Self {
        Self {
            dir: None,
            compiler: None,
        }
    }

    /// Lets another process compile: this command line, which gets the component on its standard input and the file to
    /// write as its last argument, and is expected to call [`compile_into`]. What compiling takes, 10 MB for a small
    /// component and hundreds for Python, would stay with this process. Without a folder it makes no difference.
    #[must_use]
    pub fn compiled_by(mut self, command: impl IntoIterator<Item = OsString>) -> Self {
        self.compiler = Some(command.into_iter().collect());
        self
    }

    /// Returns a component out of the folder, or compiled. `digest` is [`digest`] of `wasm`. Takes its time: not for threads
    /// that others wait for.
    ///
    /// # Errors
    /// What is wrong with the component, and where; or that it is [`unfit`] for the engine's pool.
    pub(super) fn component(
        &self,
        engine: &Engine,
        wasm: &[u8],
        digest: &str,
    ) -> wasmtime::Result<Code> {
        let fresh = |component| Code {
            component,
            kept: false,
        };
        let Some(dir) = &self.dir else {
            return Component::from_binary(engine, wasm).map(fresh);
        };
        let file = dir.join(name(engine, digest));
        if let Some(component) = recall(engine, &file)? {
            return Ok(Code {
                component,
                kept: true,
            });
        }
        if self.elsewhere(&file, wasm)
            && let Some(component) = recall(engine, &file)?
        {
            prune(dir);
            return Ok(fresh(component));
        }
        match keep(&file, &engine.precompile_component(wasm)?) {
            Ok(()) => prune(dir),
            Err(error) => warn!(file = %file.display(), %error, "compiled code cannot be kept"),
        }
        match recall(engine, &file)? {
            Some(component) => Ok(fresh(component)),
            None => Component::from_binary(engine, wasm).map(fresh),
        }
    }

    /// Has a component compiled by another process. False if there is none, or it failed: then the one that asked does it,
    /// and learns what is wrong.
    fn elsewhere(&self, file: &Path, wasm: &[u8]) -> bool {
        let Some(command) = self.compiler.as_deref() else {
            return false;
        };
        let spawned = spawn(command, file, wasm);
        if let Err(error) = &spawned {
            warn!(?command, %error, "the process that compiles failed; compiling here");
        }
        spawned.is_ok()
    }
}

/// Compiles a component and writes the code for a [`CodeCache`] with the same version of this program.
///
/// # Errors
/// If it cannot be read, is no valid component, or the code cannot be written.
pub fn compile_into(file: &Path, mut wasm: impl Read) -> io::Result<()> {
    let mut bytes = Vec::new();
    wasm.read_to_end(&mut bytes)?;
    let other = |error: wasmtime::Error| io::Error::other(format!("{error:#}"));
    let engine = Engine::new(&config()).map_err(other)?;
    keep(file, &engine.precompile_component(&bytes).map_err(other)?)
}

fn spawn(command: &[OsString], file: &Path, wasm: &[u8]) -> io::Result<()> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut child = Command::new(program)
        .args(arguments)
        .arg(file)
        .env("RAYON_NUM_THREADS", threads().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    // Dropped after that, so that it sees the end.
    let fed = child.stdin.take().map(|mut stdin| stdin.write_all(wasm));
    let status = child.wait()?;
    fed.transpose()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(status.to_string()))
    }
}

/// Returns how many threads compile: one core is left to those who are at work.
pub(super) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1).max(1))
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
    engine.precompile_compatibility_hash().hash(&mut hasher);
    format!("{digest}-{:016x}.cwasm", hasher.finish())
}

/// Returns what was kept under a name; none if it is not there or not what was written.
///
/// # Errors
/// If it is [`unfit`].
fn recall(engine: &Engine, file: &Path) -> wasmtime::Result<Option<Component>> {
    let known = match intact(file) {
        Ok(intact) => intact,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            warn!(file = %file.display(), %error, "compiled code cannot be read");
            return Ok(None);
        }
    };
    if known {
        match map_compiled(engine, file) {
            Ok(component) => return Ok(Some(component)),
            Err(error) if unfit(&error) => return Err(error),
            Err(_) => {}
        }
    }
    warn!(file = %file.display(), "compiled code is damaged; compiling again");
    Ok(None)
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
