//! Compiled code as it is used: mapped out of a file whose content is ours, for the engine that it fits.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use wasmtime::component::Component;

use crate::plugin::bindings::{load_compiled, map_compiled, path_to};
use crate::plugin::engine::{Engine, Pool, pooled, unfit, unpooled};

/// A compiled component, for one plugin.
pub(in crate::plugin) struct Code {
    /// Shared with all plugins that run the same code in the same engine.
    pub(in crate::plugin) mapped: Arc<Mapped>,
    /// Where it runs: the engine that was asked for, or the one beside it.
    pub(in crate::plugin) engine: Engine,
    /// Whether it was compiled before.
    pub(in crate::plugin) kept: bool,
    /// Where it was mapped from, if it was.
    file: Option<File>,
}

/// A compiled component in memory. Keeps its entry of the cache from being removed.
pub(in crate::plugin) struct Mapped {
    pub(in crate::plugin) component: Component,
    /// The engine that was asked for.
    wasm: wasmtime::Engine,
    /// Where it runs instead, and why, if it does not fit that engine's pool.
    pub(in crate::plugin) unfit: Option<(Engine, String)>,
    entry: Option<Arc<Entry>>,
}

/// An entry of the cache that is in use, and what is mapped of it: once for each engine.
#[derive(Default)]
pub(super) struct Entry(Mutex<Vec<Weak<Mapped>>>);

impl Entry {
    /// Returns what is mapped of it for this engine, if somebody runs that.
    fn find(&self, engine: &Engine) -> Option<Arc<Mapped>> {
        let mut known = self.0.lock();
        known.retain(|mapped| mapped.strong_count() > 0);
        known.iter().filter_map(Weak::upgrade).find(|mapped| wasmtime::Engine::same(&mapped.wasm, engine.wasm()))
    }
}

impl Code {
    /// Maps code out of a file whose content is ours, for the engine's pool, or if it does not fit there, for the engine
    /// beside it. Where files can't be mapped as code, it is copied. What others run is used with them.
    pub(super) fn mapped(
        engine: &Engine,
        file: &File,
        kept: bool,
        entry: Option<Arc<Entry>>,
    ) -> wasmtime::Result<Self> {
        let known = entry.as_ref().and_then(|entry| entry.find(engine));
        let mapped = known.map_or_else(|| Mapped::of_file(engine, file, entry), Ok)?;
        Ok(Self { file: file.try_clone().ok(), kept, ..Self::of(engine, mapped) })
    }

    fn of(engine: &Engine, mapped: Arc<Mapped>) -> Self {
        let engine = mapped.unfit.as_ref().map_or(engine, |(apart, _)| apart).clone();
        Self { mapped, engine, kept: false, file: None }
    }

    /// Returns a file with the code for another process: one that can be read, and nothing else.
    pub(in crate::plugin) fn readable(&self) -> io::Result<File> {
        if let Some(file) = &self.file {
            return File::open(path_to(file));
        }
        let mut file = in_memory()?;
        file.write_all(&self.mapped.component.serialize().map_err(io::Error::other)?)?;
        File::open(path_to(&file))
    }

    /// Takes code out of memory, in the same way.
    pub(super) fn copied(engine: &Engine, code: &[u8]) -> wasmtime::Result<Self> {
        let mapped = Mapped::fitting(engine, |wasm| load_compiled(wasm, code))?;
        Ok(Self::of(engine, Arc::new(mapped)))
    }
}

impl Mapped {
    fn of_file(engine: &Engine, file: &File, entry: Option<Arc<Entry>>) -> wasmtime::Result<Arc<Self>> {
        let mapped = Self::fitting(engine, |wasm| map_compiled(wasm, file)).or_else(|_| {
            let code = whole(file)?;
            Self::fitting(engine, |wasm| load_compiled(wasm, &code))
        })?;
        let mapped = Arc::new(Self { entry, ..mapped });
        if let Some(entry) = &mapped.entry {
            entry.0.lock().push(Arc::downgrade(&mapped));
        }
        Ok(mapped)
    }

    fn fitting(
        engine: &Engine,
        load: impl Fn(&wasmtime::Engine) -> wasmtime::Result<Component>,
    ) -> wasmtime::Result<Self> {
        let (component, unfit) = match load(engine.wasm()) {
            Err(error) if unfit(&error) => {
                let apart = engine.apart()?;
                (load(apart.wasm())?, Some((apart, format!("{error:#}"))))
            }
            done => (done?, None),
        };
        Ok(Self { component, wasm: engine.wasm().clone(), unfit, entry: None })
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
