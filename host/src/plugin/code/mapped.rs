//! Compiled code as it is used: mapped out of a file whose content is ours, for the engine that it fits.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::ops::Deref;
use std::sync::{Arc, Weak};

use capstan_core::room::{self, Holding, Owners, Room};
use parking_lot::Mutex;
use tokio::time::Instant;
use wasmtime::component::Component;

use super::Error;
use crate::plugin::bindings::{load_compiled, map_compiled, path_to};
use crate::plugin::engine::{Engine, Pool, pooled, unfit, unpooled};
use crate::plugin::weight::Weight;

/// A compiled component in a file whose content is ours. It takes no memory yet.
pub(in crate::plugin) struct Found {
    pub(super) file: File,
    /// Whether it was compiled before.
    pub(in crate::plugin) kept: bool,
    /// Where it is kept, if it is.
    pub(super) entry: Option<Arc<Entry>>,
}

/// A compiled component, for one plugin.
pub(in crate::plugin) struct Code {
    /// Shared with all plugins that run the same code in the same engine.
    pub(in crate::plugin) mapped: Shared,
    /// Where it runs: the engine that was asked for, or the one beside it.
    pub(in crate::plugin) engine: Engine,
    /// Whether it was compiled before.
    pub(in crate::plugin) kept: bool,
    /// Where it was mapped from.
    file: File,
}

/// A compiled component in memory. Keeps its entry of the cache from being removed.
pub(in crate::plugin) struct Mapped {
    pub(in crate::plugin) component: Component,
    /// The engine that was asked for.
    wasm: wasmtime::Engine,
    /// Where it runs instead, and why, if it does not fit that engine's pool.
    pub(in crate::plugin) unfit: Option<(Engine, String)>,
    entry: Option<Arc<Entry>>,
    memory: Memory,
}

/// The memory that describes a component, which belongs to all who run it.
#[derive(Debug)]
pub(in crate::plugin) struct Memory {
    owners: Owners,
    /// Given back when nobody runs it any more.
    _held: Holding,
}

/// Code that somebody runs, among others perhaps.
pub(in crate::plugin) struct Shared {
    pub(super) mapped: Arc<Mapped>,
    /// The plugin.
    owner: Arc<str>,
}

/// An entry of the cache that is in use, and what is mapped of it: once for each engine.
#[derive(Default)]
pub(in crate::plugin) struct Entry(Mutex<Vec<Weak<Mapped>>>);

impl Entry {
    /// Returns what is mapped of it for this engine, if somebody runs that.
    fn find(&self, engine: &Engine) -> Option<Arc<Mapped>> {
        let mut known = self.0.lock();
        known.retain(|mapped| mapped.strong_count() > 0);
        known.iter().filter_map(Weak::upgrade).find(|mapped| wasmtime::Engine::same(&mapped.wasm, engine.wasm()))
    }
}

impl Memory {
    /// Takes so many bytes, for now as those of this plugin, out of what there is for the code of this digest. Waits for them until the
    /// deadline at the longest.
    ///
    /// # Errors
    /// If they are not there.
    pub(super) async fn take(
        room: &Room,
        (digest, owner): (&str, &Arc<str>),
        bytes: u64,
        deadline: Instant,
    ) -> Result<Self, room::Error> {
        let owners = Owners::default();
        owners.add(owner);
        let account = format!("the component of sha256:{digest}").into();
        let mut held = room.holding(&account).of(&owners);
        held.grow(bytes, deadline).await?;
        Ok(Self { owners, _held: held })
    }
}

impl Found {
    /// Returns how many bytes of memory it will take beside machine code, where its component weighs so much.
    ///
    /// # Errors
    /// If that is more than any may take, or this is no compiled code.
    pub(in crate::plugin) fn weight(&self, weight: &Weight) -> Result<u64, Error> {
        let weight = weight.loaded(&self.file).map_err(|error| Error::Unusable(error.to_string()))?;
        weight.map_err(Error::TooLarge)
    }

    /// Returns the code if somebody runs it in this engine, so that it takes no more memory.
    pub(super) fn known(&self, engine: &Engine, owner: &Arc<str>) -> Option<Code> {
        let mapped = self.entry.as_ref()?.find(engine)?;
        self.code(engine, mapped, owner).ok()
    }

    /// Maps the code for the engine's pool, or if it does not fit there, for the engine beside it. Where files can't be mapped as code, it is
    /// copied. What others run is used with them.
    pub(super) fn map(self, engine: &Engine, memory: Memory, owner: &Arc<str>) -> wasmtime::Result<Code> {
        let mapped = match self.entry.as_ref().and_then(|entry| entry.find(engine)) {
            Some(mapped) => mapped,
            None => self.mapped(engine, memory)?,
        };
        Ok(self.code(engine, mapped, owner)?)
    }

    fn mapped(&self, engine: &Engine, memory: Memory) -> wasmtime::Result<Arc<Mapped>> {
        let Self { file, entry, .. } = self;
        let (component, unfit) = fitting(engine, |wasm| map_compiled(wasm, file)).or_else(|_| {
            let code = whole(file)?;
            fitting(engine, |wasm| load_compiled(wasm, &code))
        })?;
        let (wasm, entry) = (engine.wasm().clone(), entry.clone());
        let mapped = Arc::new(Mapped { component, wasm, unfit, entry, memory });
        if let Some(entry) = &mapped.entry {
            entry.0.lock().push(Arc::downgrade(&mapped));
        }
        Ok(mapped)
    }

    fn code(&self, engine: &Engine, mapped: Arc<Mapped>, owner: &Arc<str>) -> io::Result<Code> {
        let file = self.file.try_clone()?;
        let engine = mapped.unfit.as_ref().map_or(engine, |(apart, _)| apart).clone();
        Ok(Code { mapped: Shared::new(mapped, owner), engine, kept: self.kept, file })
    }
}

impl Shared {
    fn new(mapped: Arc<Mapped>, owner: &Arc<str>) -> Self {
        mapped.memory.owners.add(owner);
        Self { mapped, owner: Arc::clone(owner) }
    }
}

impl Deref for Shared {
    type Target = Mapped;

    fn deref(&self) -> &Mapped {
        &self.mapped
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.mapped.memory.owners.remove(&self.owner);
    }
}

impl Code {
    /// Returns a file with the code for another process: one that can be read, and nothing else.
    pub(in crate::plugin) fn readable(&self) -> io::Result<File> {
        File::open(path_to(&self.file))
    }
}

/// Loads code for the engine's pool, or if it does not fit there, for the engine beside it, with why.
fn fitting(
    engine: &Engine,
    load: impl Fn(&wasmtime::Engine) -> wasmtime::Result<Component>,
) -> wasmtime::Result<(Component, Option<(Engine, String)>)> {
    match load(engine.wasm()) {
        Err(error) if unfit(&error) => {
            let apart = engine.apart()?;
            Ok((load(apart.wasm())?, Some((apart, format!("{error:#}")))))
        }
        done => Ok((done?, None)),
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

/// Makes a file that is nowhere.
#[cfg(not(target_os = "linux"))]
pub(super) fn in_memory() -> io::Result<File> {
    let path = std::env::temp_dir().join(format!("capstan-{}-{:?}", std::process::id(), std::time::Instant::now()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}
