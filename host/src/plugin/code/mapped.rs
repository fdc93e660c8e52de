//! Compiled code as it is used: mapped out of a file whose content is ours, for the engine that it fits.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};

use wasmtime::component::Component;

use super::Hold;
use crate::plugin::bindings::{load_compiled, map_compiled, path_to};
use crate::plugin::engine::{Engine, Pool, pooled, unfit, unpooled};

/// A compiled component.
pub(in crate::plugin) struct Code {
    pub(in crate::plugin) component: Component,
    /// Where it runs: the engine that was asked for, or the one beside it.
    pub(in crate::plugin) engine: Engine,
    /// Why it does not fit the pool, if it does not.
    pub(in crate::plugin) unfit: Option<String>,
    /// Whether it was compiled before.
    pub(in crate::plugin) kept: bool,
    /// Where it was mapped from, if it was.
    file: Option<File>,
    /// Keeps its entry from being removed.
    pub(in crate::plugin) hold: Hold,
}

impl Code {
    /// Maps code out of a file whose content is ours, for the engine's pool, or if it does not fit there, for the engine
    /// beside it. Where files can't be mapped as code, it is copied.
    pub(super) fn mapped(engine: &Engine, file: &File, kept: bool, hold: Hold) -> wasmtime::Result<Self> {
        let code = match Self::fitting(engine, |engine| map_compiled(engine, file)) {
            Err(_) => Self::copied(engine, &whole(file)?)?,
            Ok(code) => code,
        };
        let file = file.try_clone().ok();
        Ok(Self { kept, file, hold, ..code })
    }

    /// Returns a file with the code for another process: one that can be read, and nothing else.
    pub(in crate::plugin) fn readable(&self) -> io::Result<File> {
        if let Some(file) = &self.file {
            return File::open(path_to(file));
        }
        let mut file = in_memory()?;
        file.write_all(&self.component.serialize().map_err(io::Error::other)?)?;
        File::open(path_to(&file))
    }

    /// Takes code out of memory, in the same way.
    pub(super) fn copied(engine: &Engine, code: &[u8]) -> wasmtime::Result<Self> {
        Self::fitting(engine, |engine| load_compiled(engine, code))
    }

    fn fitting(
        engine: &Engine,
        load: impl Fn(&wasmtime::Engine) -> wasmtime::Result<Component>,
    ) -> wasmtime::Result<Self> {
        let (component, engine, unfit) = match load(engine.wasm()) {
            Err(error) if unfit(&error) => {
                let apart = engine.apart()?;
                (load(apart.wasm())?, apart, Some(format!("{error:#}")))
            }
            done => (done?, engine.clone(), None),
        };
        Ok(Self { component, engine, unfit, kept: false, file: None, hold: Hold::default() })
    }
}

/// Returns code out of a file whose content is ours, with an engine of its own that has no ticker yet: a pool, if it fits there.
pub(in crate::plugin) fn alone(pool: Pool, file: &File) -> wasmtime::Result<(wasmtime::Engine, Component)> {
    let mapped = pooled(pool).and_then(|wasm| {
        let component = map_compiled(&wasm, file)?;
        Ok((wasm, component))
    });
    mapped.or_else(|_| {
        let wasm = unpooled()?;
        let component = map_compiled(&wasm, file).or_else(|_| load_compiled(&wasm, &whole(file)?))?;
        Ok((wasm, component))
    })
}

fn whole(mut file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Makes a file that is nowhere.
#[cfg(target_os = "linux")]
pub(super) fn in_memory() -> io::Result<File> {
    Ok(rustix::fs::memfd_create("code", rustix::fs::MemfdFlags::CLOEXEC)?.into())
}

/// Makes a file that is nowhere: only Linux has that.
#[cfg(not(target_os = "linux"))]
pub(super) fn in_memory() -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}
