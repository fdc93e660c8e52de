//! From a file to a plugin: is it a component, does the daemon offer what it imports, does it export what the manifest needs?

use std::collections::BTreeSet;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::guest::{Answer, Call, Cause, Description, Failure, Function, Interface};
use capstan_core::manifest::needs::{needs, unwanted};
use capstan_core::manifest::{self, Instances, Isolation, Operator};
use capstan_core::operator::tenant;
use capstan_core::operator::wants::About;
use capstan_core::room::Holding;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};
use wasmtime::component::{Component, InstancePre};

use super::ambient::Ambient;
use super::bounds::{self, Refused};
use super::code::{self, Code, Found, digest};
pub use super::code::{Budget, CodeCache};
pub use super::compiler::{Limits as CompileLimits, run as compile};
use super::ending::{self, Broken, Ending, Otherwise};
use super::engine::Engine;
use super::idle::IdleInstances;
use super::instance::{Indices, Parts, State, called};
use super::network::Network;
use super::place::Place;
use super::process::Apart;
pub use super::process::run as run_apart;
use super::usage::Counters;
use super::weight::Weight;
use super::{Facts, Loaded, Plugin, imports};

mod error;
mod names;
mod offer;
mod wasm;
mod whole;

pub use error::Error;
pub use names::UNCHECKED;
pub use wasm::Wasm;

use offer::{chain, check_imports, find_exports, named, writes};
use whole::verify;

/// How long something is compiled before the log says so, and again.
const FIRST_WORD: Duration = Duration::from_secs(2);
const NEXT_WORD: Duration = Duration::from_secs(10);

/// A component that is compiled.
struct Ready {
    code: Code,
    known: Known,
    /// Bytes of memory that describe it.
    weight: u64,
}

/// What is found out about a component by reading it.
struct Known {
    digest: String,
    /// Its bytes.
    size: u64,
    weight: Weight,
}

/// Who loads a component, and how long that may take to find memory.
struct Loading<'a> {
    engine: &'a Engine,
    cache: &'a CodeCache,
    team: Arc<str>,
    wasm: &'a Wasm,
    timeout: Duration,
}

/// What is found out about a component before it is compiled.
enum Look {
    /// That is not necessary.
    Kept(Known, Found),
    /// It may be: what is in it.
    New(Known, Vec<u8>),
}

// === impl Plugin ===

impl Plugin {
    /// Loads the component of the plugin `name`: reads and compiles it (on threads of its own, or out of the cache),
    /// compares its imports with what this daemon offers and its exports with what the manifest needs, starts it once for a
    /// try, and compares the names that it answers to with those of the manifest. To be called on the runtime that runs run on.
    ///
    /// # Errors
    /// [`Error`], with the file and all that is wrong with its imports, its exports or its names.
    pub async fn load(engine: &Engine, cache: &CodeCache, operator: &Operator, name: &str) -> Result<Self, Error> {
        let component = operator.plugins.get(name).and_then(|plugin| plugin.component.as_ref());
        let Some(manifest::Component::File(path)) = component else {
            return Err(Error::Unknown(name.to_owned()));
        };
        Self::load_from(engine, cache, (operator, name), &Wasm::of_file(path)).await
    }

    /// The same, of a component that is elsewhere than in a file.
    ///
    /// # Errors
    /// As [`Plugin::load`].
    pub async fn load_from(
        engine: &Engine,
        cache: &CodeCache,
        (operator, name): (&Operator, &str),
        wasm: &Wasm,
    ) -> Result<Self, Error> {
        let (name, plugin) = operator.plugins.get_key_value(name).ok_or_else(|| Error::Unknown(name.to_owned()))?;
        let path = wasm.name();
        let begun = Instant::now();
        let (team, timeout) = (tenant::team(&operator.name), plugin.limits.timeout);
        let ready = compiled(Loading { engine, cache, team, wasm, timeout }).await?;
        if let Some((_, reason)) = &ready.code.mapped.unfit {
            warn!(plugin = %name, component = %path.display(), reason, "it does not fit the pool of instances; each of its own is allocated by itself, which is slower");
        }
        let facts = Facts { weight: ready.known.weight.instance, ..Facts::of(operator, name, plugin, engine) };
        let linked = linked(&ready, operator, path, &facts)?;
        let beside = ready.beside(plugin, &facts).await?;
        let mut loaded = Loaded { _beside: beside, ..Loaded::new(engine, ready, linked, facts, plugin)? };
        loaded.description = loaded.try_start(path).await?;
        names::check(operator, name, (path, loaded.description.as_ref()))?;
        info!(plugin = %name, component = %path.display(), from_cache = loaded.from_cache, took = %manifest::Rounded(begun.elapsed()), "loaded");
        Ok(Self { inner: Arc::new(loaded) })
    }
}

/// Links a component with what the daemon offers, and finds its exports.
pub(super) fn found(
    engine: &wasmtime::Engine,
    component: &Component,
    path: &Path,
    network: &Network,
) -> Result<(InstancePre<State>, Indices), Error> {
    let linker = imports::linker(engine, network).map_err(|error| Error::Prepare(format!("{error:#}")))?;
    check_imports(component, &linker, path, network.has_http())?;
    let link = |error| Error::Link { path: path.to_owned(), reason: chain(&error) };
    let pre = linker.instantiate_pre(component).map_err(link)?;
    let exports = find_exports(component, path)?;
    Ok((pre, exports))
}

/// Compares a component with the daemon and with the manifest.
fn linked(
    ready: &Ready,
    operator: &Operator,
    path: &Path,
    Facts { name, network, .. }: &Facts,
) -> Result<(InstancePre<State>, Indices), Error> {
    let Code { engine, mapped, .. } = &ready.code;
    let (pre, exports) = found(engine.wasm(), &mapped.component, path, network)?;
    let found = interfaces(&exports);
    let missing: Vec<_> = needs(operator, name).into_iter().filter(|need| !found.contains(&need.interface)).collect();
    if !missing.is_empty() {
        return Err(Error::Exports { path: path.to_owned(), missing, found: found.into_iter().collect() });
    }
    let unwanted: Vec<_> =
        unwanted(operator, name).into_iter().filter(|need| found.contains(&need.interface)).collect();
    if unwanted.is_empty() { Ok((pre, exports)) } else { Err(Error::Unwanted { path: path.to_owned(), unwanted }) }
}

/// Returns the interfaces whose functions a component exports.
fn interfaces(exports: &Indices) -> BTreeSet<Interface> {
    exports.keys().map(|function| function.interface()).collect()
}

impl Ready {
    /// Takes the memory for what describes it in the process that its instances have for themselves, if they have one.
    async fn beside(&self, plugin: &manifest::Plugin, facts: &Facts) -> Result<Option<Holding>, Error> {
        if plugin.isolation == Isolation::Shared {
            return Ok(None);
        }
        let mut holding = facts.room.holding(&facts.unit);
        let grown = holding.grow(self.weight, Instant::now() + facts.limits.timeout).await;
        grown.map_err(|error| Error::Prepare(error.to_string()))?;
        Ok(Some(holding))
    }
}

impl Facts {
    fn of(operator: &Operator, name: &Arc<str>, plugin: &manifest::Plugin, engine: &Engine) -> Self {
        let (room, limits) = (engine.room(), &plugin.limits);
        let network = Network::new(engine.outside(), (&operator.name, name), &plugin.capabilities, limits, room);
        Self {
            name: Arc::clone(name),
            unit: format!("{}/{name}", operator.name).into(),
            limits: limits.clone(),
            config: plugin.config.to_string(),
            log: Arc::default(),
            memo: Some(Mutex::default()),
            room: room.clone(),
            network: Arc::new(network),
            ambient: engine.ambient(),
            weight: 0,
        }
    }
}

impl Loaded {
    /// Returns a component that has not been tried yet.
    fn new(
        engine: &Engine,
        ready: Ready,
        (pre, exports): (InstancePre<State>, Indices),
        facts: Facts,
        plugin: &manifest::Plugin,
    ) -> Result<Self, Error> {
        let Ready { code, known: Known { digest, size, .. }, .. } = ready;
        let concurrency = facts.limits.concurrency.clamp(1, Semaphore::MAX_PERMITS);
        let (facts, counters) = (Arc::new(facts), Arc::new(Counters::default()));
        let (writes, about) = (writes(pre.component()), About { interfaces: named(pre.component()), size });
        let interfaces = interfaces(&exports);
        let place = match plugin.isolation {
            Isolation::Shared => Place::Here(Parts {
                pre,
                exports: Arc::new(exports),
                facts: Arc::clone(&facts),
                counters: Arc::clone(&counters),
            }),
            Isolation::Process => {
                let prepare = |why: String| Error::Prepare(why);
                let command = engine.command();
                let command =
                    command.ok_or_else(|| prepare("no program is known that a process can run".to_owned()))?;
                let readable = code
                    .readable()
                    .map_err(|error| prepare(format!("hand the compiled code to a process: {error}")))?;
                Place::Apart(Apart::new(Arc::clone(command), readable, &facts, &counters))
            }
        };
        // With room for the instances of all runs, and of what they ask for on the way.
        let room = facts.limits.concurrency.saturating_mul(2);
        let idle = match plugin.instances {
            Instances::Fresh => None,
            // What has run before is nothing to a rehearsal.
            Instances::Warm(_) if facts.ambient == Ambient::Rehearsal => None,
            Instances::Warm(bounds) => {
                let memory = (facts.room.clone(), Arc::clone(&facts.unit));
                Some(IdleInstances::new(bounds, room, memory, Handle::current()))
            }
        };
        Ok(Self {
            engine: code.engine,
            place,
            exports: interfaces,
            description: None,
            writes,
            about,
            permits: Arc::new(Semaphore::new(concurrency)),
            idle,
            counters,
            facts,
            digest,
            from_cache: code.kept,
            _mapped: code.mapped,
            _beside: None,
        })
    }

    /// Starts the component once, looks at the signatures of its exports, which no earlier step does, and asks it which names it
    /// answers to, if it says that. All of it within the time of one call.
    async fn try_start(&self, path: &Path) -> Result<Option<Description>, Error> {
        let Self { engine, facts, place, counters, exports, .. } = self;
        // Nothing of the component has run by then.
        let ready = place.ready().await;
        ready.map_err(|ending| Error::Prepare(ending.failure(&facts.limits, None).message))?;
        let mut output = facts.output();
        output.begin(called(None));
        let output = Arc::new(Mutex::new(output));
        let deadline = Instant::now() + facts.limits.timeout;
        let _busy = engine.enter();
        let mut has_started = false;
        let tried = timeout_at(deadline, async {
            let mut instance = place.start(None, Arc::clone(&output), deadline).await?;
            drop(instance.answer(&Call::Start, deadline).await?);
            has_started = true;
            counters.memory(instance.memory());
            if !exports.contains(&Interface::Description) {
                return wasmtime::Result::Ok(None);
            }
            output.lock().begin(called(Some(Function::Describe)));
            let answer = instance.answer(&Call::Describe {}, deadline).await?;
            counters.memory(instance.memory());
            Ok(Some(answer))
        })
        .await;
        let mut output = output.lock();
        output.finish();
        let source = match tried {
            Ok(Ok(None)) => return Ok(None),
            Ok(Ok(Some(Ok(Answer::Describe(description))))) => return Ok(Some(description)),
            Ok(Ok(Some(Ok(_)))) => Failure::other("the component answers what was not asked"),
            Ok(Ok(Some(Err(message)))) => Failure::new(Cause::Returned, message),
            Ok(Err(error)) => {
                let ending = Broken::of(&error).ending;
                if let Ending::Otherwise(Otherwise { interface, reason }) = ending {
                    return Err(Error::Signature { path: path.to_owned(), interface, reason });
                }
                ending.failure(&facts.limits, output.last_words())
            }
            Err(_elapsed) => ending::overdue(facts.limits.timeout),
        };
        let path = path.to_owned();
        Err(if has_started { Error::Describe { path, source } } else { Error::Start { path, source } })
    }
}

// === reading ===

/// Returns the compiled component: out of the cache or, when it is its turn, compiled. What waits for its turn is not kept in
/// memory, but read again.
async fn compiled(loading: Loading<'_>) -> Result<Ready, Error> {
    let path = loading.wasm.name();
    let (mut turn, mut trusts) = (None, true);
    loop {
        let (known, found) = match (loading.look(trusts).await?, &turn) {
            (Look::Kept(known, found), _) => (known, found),
            (Look::New(known, wasm), Some(turn)) => {
                let say = |seconds| info!(component = %path.display(), seconds, "compiling; the result is kept for later starts");
                let found = loading.cache.compile(turn, loading.engine, wasm, &known.digest);
                let found = patiently(found, say).await;
                (known, found.map_err(|error| Error::of(path, error))?)
            }
            (Look::New(..), None) => {
                turn = Some(loading.cache.turn(&loading.team).await);
                continue;
            }
        };
        let was_kept = found.kept;
        match loading.map(known, found).await {
            Err(code::Error::Unusable(error)) if was_kept => {
                warn!(component = %path.display(), error, "compiled code can't be used; compiling again");
                trusts = false;
            }
            done => return done.map_err(|error| Error::of(path, error)),
        }
    }
}

impl Loading<'_> {
    /// Reads the component, and finds it in the cache, if that is trusted, or decides that it may be compiled.
    async fn look(&self, trusts: bool) -> Result<Look, Error> {
        let (engine, cache, wasm) = (self.engine.clone(), self.cache.clone(), self.wasm.clone());
        let look = self.cache.reading(move || look(&engine, &cache, &wasm, trusts));
        look.await.map_err(|error| Error::of(self.wasm.name(), error))?
    }

    /// Maps compiled code into memory, once there is room for what describes it.
    async fn map(&self, known: Known, found: Found) -> Result<Ready, code::Error> {
        let Self { engine, cache, team, timeout, .. } = self;
        let weight = found.weight(&known.weight)?;
        let deadline = Instant::now() + *timeout;
        let code = cache.map(found, engine, (&known.digest, team), (weight, deadline)).await?;
        Ok(Ready { code, known, weight })
    }
}

/// Waits for something that may take long, and says after how many seconds it still goes on.
async fn patiently<T>(work: impl Future<Output = T>, mut say: impl FnMut(u64)) -> T {
    let begun = Instant::now();
    let mut work = pin!(work);
    let mut until = begun + FIRST_WORD;
    loop {
        if let Ok(done) = timeout_at(until, &mut work).await {
            return done;
        }
        say(begun.elapsed().as_secs());
        until = Instant::now() + NEXT_WORD;
    }
}

fn look(engine: &Engine, cache: &CodeCache, wasm: &Wasm, trusts: bool) -> Result<Look, Error> {
    let path = wasm.name();
    let refused = |refused| match refused {
        Refused::Malformed(reason) => Error::Compile { path: path.to_owned(), reason },
        Refused::TooLarge(excess) => Error::TooLarge { path: path.to_owned(), excess },
    };
    let wasm = wasm.read().map_err(|source| Error::Read { path: path.to_owned(), source })?;
    verify(&wasm, path)?;
    let weight = Weight::of(&wasm).map_err(refused)?;
    let known = Known { digest: digest(&wasm), size: wasm.len() as u64, weight };
    if let Some(found) = cache.recall(engine, &known.digest).filter(|_| trusts) {
        return Ok(Look::Kept(known, found));
    }
    bounds::check(&wasm).map_err(refused)?;
    let remembered = cache.remembered(&known.digest);
    remembered.map_err(|error| Error::of(path, error))?;
    Ok(Look::New(known, wasm))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_takes_long_is_told_of_while_it_goes_on() {
        for (takes, expected) in [(0, vec![]), (1, vec![]), (3, vec![2]), (25, vec![2, 12, 22])] {
            let mut told = Vec::new();
            let work = tokio::time::sleep(Duration::from_secs(takes));
            patiently(work, |seconds| told.push(seconds)).await;
            assert_eq!(told, expected, "{takes} s");
        }
    }
}
