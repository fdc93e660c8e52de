//! Supplies manifests and components from files: watches, reads and compiles what the command line names.

use std::borrow::Cow;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::manifest::{Component as Source, Image, Operator};
use capstan_core::registry::Digest;
use capstan_core::rollout::File;
use capstan_core::room::Room;
use futures::FutureExt;
use futures::future::BoxFuture;
use prometheus_client::metrics::counter::Counter;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;

use super::supply::{Again, Component, Content, Loader, Refusal, Supply, Values};
use crate::cli::args;
use crate::files::{Files, Watchlist};
use crate::operators::{self, Manifests};
use crate::plugin::engine::{Engine, Pool};
use crate::plugin::loader::{self, CodeCache, Wasm};
use crate::plugin::{Outside, Plugin, Templates};
use crate::registry::images::Images;

/// A component must not have changed for this long before it is read; [`Files`] waits for later changes.
const QUIET: Duration = Duration::from_millis(100);

/// How often a component that keeps changing is looked at before it is read all the same, and refused if it changes
/// again.
const LOOKS: usize = 50;

/// The manifests and components that the command line names.
pub struct Disk {
    manifests: Manifests,
    files: Files,
    cache: CodeCache,
    images: Images,
    engine: Engine,
    /// SIGHUP has everything looked at again, also what was refused.
    hangup: Signal,
}

/// Loads the plugins of one operator.
struct FromDisk {
    engine: Engine,
    /// It has a head start: until it is dropped, or has to compile something itself, nothing is compiled for others.
    cache: CodeCache,
    images: Images,
}

/// The identity of a file, without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

// === impl Disk ===

impl Disk {
    /// Returns what the command line names, with the memory of `room` for all instances together and a quarter as much for what describes
    /// their components, and a network as `outside`. What is in
    /// registries is among the `images`.
    ///
    /// # Errors
    /// If no component can run on this machine, the defaults are wrong, or the system refuses the signal handler.
    pub fn new(source: &args::Source, room: Room, outside: Outside, images: Images) -> anyhow::Result<Self> {
        Ok(Self {
            manifests: Manifests::new(&source.manifests, source.defaults.as_deref())?,
            cache: operators::code_cache(source).within(room.total() / 4),
            engine: operators::engine(&[])?.with_room(room).with_outside(outside),
            files: Files::new(),
            images,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Returns what counts the components that are compiled.
    pub fn compiled(&self) -> Counter {
        self.cache.compiled()
    }

    fn watch(&mut self, operators: &[Operator]) {
        let mut list = Watchlist::default();
        for path in self.manifests.paths() {
            list.add_manifests(path);
        }
        for plugin in operators.iter().flat_map(|operator| operator.plugins.values()) {
            if let Some(Source::File(component)) = &plugin.component {
                list.add_file(component);
            }
        }
        self.files.watch(list);
    }

    /// Starts another engine if the present one has no room for all plugins; loaded components stay where they are.
    fn make_room(&mut self, operators: &[Operator]) {
        let plugins = operators.iter().flat_map(|operator| operator.plugins.values());
        let plugins = plugins.filter(|plugin| plugin.component.is_some());
        let needed = Pool::of(plugins.map(|plugin| &plugin.limits));
        if self.engine.pool().holds(needed) {
            return;
        }
        match operators::engine_with(&[self.engine.pool().grown(needed), needed]) {
            Ok(engine) => {
                let (room, outside) = (self.engine.room().clone(), self.engine.outside().clone());
                self.engine = engine.with_room(room).with_outside(outside);
            }
            Err(error) => {
                tracing::error!(error = %format_args!("{error:#}"), "no larger engine; runs may fail for want of instances");
            }
        }
    }
}

impl Supply for Disk {
    fn manifests(&mut self, before: &[Operator]) -> Vec<File> {
        self.watch(before);
        operators::scan(&self.manifests, before, &self.files.writing())
    }

    fn want(&mut self, operators: &[Operator]) {
        self.watch(operators);
        self.make_room(operators);
    }

    fn content(&self, component: &Path) -> Content {
        let written = || component.canonicalize().is_ok_and(|path| self.files.writing().contains(&path));
        match Stamp::of(component) {
            Some(_) if written() => Content::Half,
            Some(stamp) => Content::Whole(format!("{stamp:?}").into()),
            None => Content::Missing,
        }
    }

    fn changed(&mut self) -> BoxFuture<'_, Again> {
        let Self { files, hangup, .. } = self;
        let changed = files.changed();
        async move {
            tokio::select! {
                _ = hangup.recv() => Again::InAnyCase,
                () = changed => Again::OnceChanged,
            }
        }
        .boxed()
    }

    fn loader(&self, again: Again) -> Box<dyn Loader> {
        let cache = self.cache.with_head_start();
        let cache = match again {
            Again::OnceChanged => cache,
            Again::InAnyCase => cache.without_failures(),
        };
        Box::new(FromDisk { engine: self.engine.clone(), cache, images: self.images.clone() })
    }
}

impl Loader for FromDisk {
    fn load<'a>(
        &'a self,
        operator: &'a Operator,
        plugin: &'a str,
        (content, values): (&'a Content, &'a Values),
    ) -> BoxFuture<'a, Result<Arc<dyn Component>, Refusal>> {
        async move {
            let path = match operator.plugins.get(plugin).and_then(|plugin| plugin.component.as_ref()) {
                Some(Source::File(path)) => path,
                Some(Source::Registry(image)) => {
                    let wasm = self.pulled(image, content)?;
                    let operator = given(operator, plugin, values);
                    let loaded = Plugin::load_from(&self.engine, &self.cache, (&operator, plugin), &wasm).await;
                    return Ok(Arc::new(loaded.map_err(|error| Refusal::of(&error))?) as Arc<dyn Component>);
                }
                None => {
                    let templates = Templates::new(&operator.name, plugin, self.engine.room());
                    return Ok(Arc::new(templates) as Arc<dyn Component>);
                }
            };
            let unread = |how: &str| Err(Refusal::new("read", &format!("{} {how}", path.display())));
            if *content == Content::Half {
                return unread("is being written; its end is waited for");
            }
            let file = quiet(path).await;
            let loaded = Plugin::load(&self.engine, &self.cache, &given(operator, plugin, values), plugin).await;
            let loaded = loaded.map_err(|error| Refusal::of(&error))?;
            if Stamp::of(path) != file {
                return unread("has changed while it was read");
            }
            Ok(Arc::new(loaded) as Arc<dyn Component>)
        }
        .boxed()
    }
}

impl FromDisk {
    /// Returns a component that was pulled.
    fn pulled(&self, Image { reference, .. }: &Image, content: &Content) -> Result<Wasm, Refusal> {
        let refused = |why: &str| Refusal::new("pull", &format!("pull {reference}: {why}"));
        let digest = match content {
            Content::Whole(digest) => Digest::parse(digest).map_err(|why| refused(&why))?,
            Content::Refused(why) => return Err(refused(why)),
            Content::Missing | Content::Half | Content::Pulled => return Err(refused("it has not been pulled")),
        };
        let images = self.images.clone();
        Ok(Wasm::new(&reference.to_string(), move || images.read(&digest)))
    }
}

/// Returns an operator, one of whose plugins has these values in its `config`.
fn given<'a>(operator: &'a Operator, plugin: &str, values: &Values) -> Cow<'a, Operator> {
    let mut operator = Cow::Borrowed(operator);
    if !values.is_empty()
        && let Some(plugin) = operator.to_mut().plugins.get_mut(plugin)
    {
        plugin.config = Arc::new(values.within(&plugin.config));
    }
    operator
}

/// Waits until a file has not changed for a moment, but not forever, and returns its stamp.
async fn quiet(path: &Path) -> Option<Stamp> {
    let mut last = Stamp::of(path);
    for _ in 0..LOOKS {
        if last.is_none_or(|stamp| stamp.age() >= QUIET) {
            break;
        }
        sleep(QUIET / 2).await;
        last = Stamp::of(path);
    }
    last
}

impl Stamp {
    /// Returns the stamp of a file as it is now; `None` if there is no such file.
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }

    /// Returns how long ago its content changed, as far as the clocks agree.
    fn age(self) -> Duration {
        let (seconds, nanos) = self.modified;
        let now = k8s_openapi::jiff::Timestamp::now().as_nanosecond();
        let then = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        match u64::try_from(now - then) {
            Ok(nanos) => Duration::from_nanos(nanos),
            // In the future, or centuries ago.
            Err(_) => QUIET,
        }
    }
}

impl Refusal {
    fn of(error: &loader::Error) -> Self {
        Self::new(error.step(), &error.told())
    }
}
