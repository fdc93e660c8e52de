//! From a file to a plugin: is it a component, does the daemon offer what it imports, does it export what the manifest needs?

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use capstan_core::guest::Failure;
use capstan_core::manifest::{Condition, Controller, Dependent, Instances, Isolation, Matching, Operator, Permission};
use capstan_core::room::Room;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};
use wasmtime::component::types::{self, ComponentItem};
use wasmtime::component::{Component, InstancePre, Linker};

use super::bindings::CONTRACT;
use super::bindings::exports::capstan::operator::{cleaner, condition, dependent, error_handler, reconciler};
use super::bounds::{self, Excess, Refused};
use super::code::{self, Code, digest};
pub use super::code::{Budget, CodeCache};
pub use super::compiler::{Limits as CompileLimits, run as compile};
use super::ending::{self, Broken, Ending, Otherwise};
use super::engine::Engine;
use super::instance::{Call, Indices, Question, State};
use super::place::{Here, Place};
use super::process::Apart;
pub use super::process::run as run_apart;
use super::shelf::Shelf;
use super::usage::Counters;
use super::{Facts, Loaded, Plugin, imports};
use crate::read;

/// The contract's package.
const PACKAGE: &str = "capstan:operator";

/// The packages of WASI that are linked, and their version up to compatible ones.
const WASI: [&str; 6] = ["wasi:cli", "wasi:clocks", "wasi:filesystem", "wasi:io", "wasi:random", "wasi:sockets"];

/// An interface that a manifest can need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Interface {
    /// `reconciler`
    Reconciler,
    /// `dependent`
    Dependent,
    /// `matcher`
    Matcher,
    /// `condition`
    Condition,
}

/// An interface that the manifest needs, and the field that says so.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// What has to be exported.
    pub interface: Interface,
    /// The field of the manifest, as a path: `spec.controllers.webpage`.
    pub field: String,
}

/// Where the machine code of a component came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// How long it took to have it: to compile it, or to read it.
    pub took: Duration,
    /// Whether it had been compiled before, and was kept.
    pub from_cache: bool,
}

/// Where a component's bytes are.
enum Wasm {
    /// In the file that the manifest names.
    File,
    /// Here.
    Bytes(Vec<u8>),
}

/// A component that is compiled.
struct Ready {
    code: Code,
    digest: String,
    compiled: Compiled,
}

/// What is found out about a component before it is compiled.
enum Look {
    /// That is not necessary.
    Kept(String, Box<Code>),
    /// It may be: its digest, and what is in it.
    New(String, Vec<u8>),
}

/// What WebAssembly begins with.
const MAGIC: &[u8] = b"\0asm";

/// What a file begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Empty,
    NotWasm,
    CoreModule,
    Truncated,
    Component,
}

/// Why a component cannot be used. Each text begins with [`Error::step`]. Not worth retrying with the same file, but for
/// [`Error::Read`], [`Error::Empty`] and [`Error::Truncated`], which a file that is being copied gives too, and
/// [`Error::Prepare`], which is the daemon's own.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The manifest has no such plugin.
    #[error("find plugin {0:?}: the manifest has none of that name under spec.plugins")]
    Unknown(String),
    /// The file.
    #[error("read component {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// There is nothing in it.
    #[error("verify {}: it is empty; it should be a WebAssembly component", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// It does not begin as WebAssembly does.
    #[error(
        "verify {}: it is not WebAssembly, because it begins with \"{}\"; it should be a component, which begins with \"\\0asm\"",
        path.display(), begin.escape_ascii()
    )]
    NotWasm {
        /// The file.
        path: PathBuf,
        /// Its first bytes; not more of them, for it may be a secret.
        begin: Vec<u8>,
    },
    /// A core module.
    #[error(
        "verify {}: it is a core module, not a component: build it for wasm32-wasip2, or wrap it with `wasm-tools component new`",
        path.display()
    )]
    CoreModule {
        /// The file.
        path: PathBuf,
    },
    /// The end is missing.
    #[error(
        "verify {}: it is cut off: it ends within a section, after {length} bytes; copy it again, whole",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its length.
        length: usize,
    },
    /// No valid component, or one that uses what the daemon does not switch on.
    #[error("compile {}: it is not a valid component: {reason}", path.display())]
    Compile {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// It is made of more than anything that is meant.
    #[error("verify {}: {excess}; build it with optimization, or of less", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// What is too large, and where.
        excess: Excess,
    },
    /// To compile it takes more than it may.
    #[error(
        "compile {}: {reason}; build it smaller, or allow more (--compile-memory, --compile-timeout)",
        path.display()
    )]
    Costly {
        /// The file.
        path: PathBuf,
        /// Of what, and how much.
        reason: String,
    },
    /// It was built for another contract.
    #[error(
        "check {}: it was built for {PACKAGE} {found}, this daemon offers {CONTRACT}; build it with an SDK for {CONTRACT}",
        path.display()
    )]
    Contract {
        /// The file.
        path: PathBuf,
        /// The version that it was built for.
        found: String,
    },
    /// It imports what is not there.
    #[error("check {}: it imports what this daemon does not offer: {}", path.display(), missing.join("; "))]
    Imports {
        /// The file.
        path: PathBuf,
        /// Each import, and what can be done about it.
        missing: Vec<String>,
    },
    /// What it imports is there, but not with that signature.
    #[error("link {}: it does not fit this daemon: {reason}", path.display())]
    Link {
        /// The file.
        path: PathBuf,
        /// Interface, function and difference.
        reason: String,
    },
    /// It lacks what the manifest needs.
    #[error(
        "check {}: it lacks exports that the manifest needs: {}; it exports {}",
        path.display(), listed(missing), names(found)
    )]
    Exports {
        /// The file.
        path: PathBuf,
        /// All of them.
        missing: Vec<Need>,
        /// The interfaces of the contract that it has instead.
        found: Vec<&'static str>,
    },
    /// An export is not as the contract says.
    #[error(
        "check {}: it exports `{interface}` otherwise than {PACKAGE} {CONTRACT} says: {reason}",
        path.display()
    )]
    Signature {
        /// The file.
        path: PathBuf,
        /// The interface.
        interface: String,
        /// The function, and the difference.
        reason: String,
    },
    /// It does not start.
    #[error("start {}", path.display())]
    Start {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Failure,
    },
    /// The daemon's own side.
    #[error("prepare to load components: {0}")]
    Prepare(String),
}

// === impl Error ===

impl Error {
    /// Returns the step that failed: `find` in the manifest, `read`, `verify` that it is a whole component, `compile`,
    /// `check` against the contract and the manifest, `link` with what the daemon offers, `start`; `prepare` is the daemon's
    /// own.
    pub fn step(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "find",
            Self::Read { .. } => "read",
            Self::Empty { .. }
            | Self::NotWasm { .. }
            | Self::CoreModule { .. }
            | Self::Truncated { .. }
            | Self::TooLarge { .. } => "verify",
            Self::Compile { .. } | Self::Costly { .. } => "compile",
            Self::Contract { .. } | Self::Imports { .. } | Self::Exports { .. } | Self::Signature { .. } => "check",
            Self::Link { .. } => "link",
            Self::Start { .. } => "start",
            Self::Prepare(_) => "prepare",
        }
    }
}

// === impl Plugin ===

impl Plugin {
    /// Loads the component of the plugin `name`: reads and compiles it (on threads of its own, or out of the cache),
    /// compares its imports with what this daemon offers and its exports with what the manifest needs, and starts it once
    /// for a try. To be called on the runtime that executions run on.
    ///
    /// # Errors
    /// [`Error`], with the file and all that is wrong with its imports or its exports.
    pub async fn load(engine: &Engine, cache: &CodeCache, operator: &Operator, name: &str) -> Result<Self, Error> {
        Self::made(engine, cache, operator, name, Wasm::File).await
    }

    /// The same with bytes that have been read already, so that what was looked at is what is loaded. The file's name is
    /// used in messages only.
    ///
    /// # Errors
    /// As for [`Plugin::load`], but for [`Error::Read`].
    pub async fn load_bytes(
        engine: &Engine,
        cache: &CodeCache,
        operator: &Operator,
        name: &str,
        wasm: Vec<u8>,
    ) -> Result<Self, Error> {
        Self::made(engine, cache, operator, name, Wasm::Bytes(wasm)).await
    }

    async fn made(
        engine: &Engine,
        cache: &CodeCache,
        operator: &Operator,
        name: &str,
        wasm: Wasm,
    ) -> Result<Self, Error> {
        let (name, plugin) = operator.plugins.get_key_value(name).ok_or_else(|| Error::Unknown(name.to_owned()))?;
        let path = &plugin.component;
        let begun = Instant::now();
        let ready = compiled(engine, cache, path, wasm).await?;
        if let Some(reason) = &ready.code.unfit {
            warn!(plugin = %name, component = %path.display(), reason, "it does not fit the pool of instances; each of its own is allocated by itself, which is slower");
        }
        let linked = linked(&ready, operator, name, path)?;
        let facts = Facts::of(operator, name, plugin, engine.room());
        let loaded = Loaded::new(engine, ready, linked, facts, plugin)?;
        loaded.try_start(path).await?;
        let Compiled { from_cache, .. } = loaded.compiled;
        info!(plugin = %name, component = %path.display(), from_cache, took = ?begun.elapsed(), "loaded");
        Ok(Self { inner: Arc::new(loaded) })
    }
}

/// Links a component with what the daemon offers, and finds its exports.
pub(super) fn found(
    engine: &wasmtime::Engine,
    component: &Component,
    path: &Path,
) -> Result<(InstancePre<State>, Indices), Error> {
    let linker = imports::linker(engine).map_err(|error| Error::Prepare(format!("{error:#}")))?;
    check_imports(component, &linker, path)?;
    let link = |error| Error::Link { path: path.to_owned(), reason: chain(&error) };
    let pre = linker.instantiate_pre(component).map_err(link)?;
    let exports = find_exports(&pre, path)?;
    Ok((pre, exports))
}

/// Compares a component with the daemon and with the manifest.
fn linked(ready: &Ready, operator: &Operator, name: &str, path: &Path) -> Result<(InstancePre<State>, Indices), Error> {
    let Code { engine, component, .. } = &ready.code;
    let (pre, exports) = found(engine.wasm(), component, path)?;
    let missing: Vec<_> = needs(operator, name).into_iter().filter(|need| !need.interface.within(&exports)).collect();
    if missing.is_empty() {
        return Ok((pre, exports));
    }
    Err(Error::Exports { path: path.to_owned(), missing, found: exports.names() })
}

impl Facts {
    fn of(operator: &Operator, name: &Arc<str>, plugin: &capstan_core::manifest::Plugin, room: &Room) -> Self {
        Self {
            name: Arc::clone(name),
            unit: format!("{}/{name}", operator.name).into(),
            limits: plugin.limits.clone(),
            config: plugin.config.to_string(),
            log: Arc::default(),
            memo: Some(Mutex::default()),
            room: room.clone(),
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
        plugin: &capstan_core::manifest::Plugin,
    ) -> Result<Self, Error> {
        let Ready { code, digest, compiled } = ready;
        let concurrency = facts.limits.concurrency.clamp(1, Semaphore::MAX_PERMITS);
        let (facts, counters) = (Arc::new(facts), Arc::new(Counters::default()));
        let writes = writes(pre.component());
        let interfaces = exports.exports();
        let place = match plugin.isolation {
            Isolation::Shared => Place::Here(Here {
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
        let shelf = match plugin.instances {
            Instances::Fresh => None,
            Instances::Warm(bounds) => Some(Shelf::new(bounds, room, Handle::current())),
        };
        Ok(Self {
            engine: code.engine,
            place,
            exports: interfaces,
            writes,
            permits: Arc::new(Semaphore::new(concurrency)),
            shelf,
            counters,
            facts,
            digest,
            compiled,
            _hold: code.hold,
        })
    }

    /// Starts the component once and looks at the signatures of its exports, which no earlier step does.
    async fn try_start(&self, path: &Path) -> Result<(), Error> {
        let Self { engine, facts, place, counters, .. } = self;
        // Nothing of the component has run by then.
        let ready = place.ready().await;
        ready.map_err(|ending| Error::Prepare(ending.failure(&facts.limits, None).message))?;
        let mut output = facts.output();
        output.begin(Call::Start.name());
        let output = Arc::new(Mutex::new(output));
        let deadline = Instant::now() + facts.limits.timeout;
        let _busy = engine.enter();
        let start = timeout_at(deadline, async {
            let mut instance = place.start(None, Arc::clone(&output), deadline).await?;
            instance.begin(Call::Start, deadline);
            drop(instance.answer(&Question::Start).await?);
            wasmtime::Result::Ok(instance.memory())
        })
        .await;
        let mut output = output.lock();
        output.finish();
        let source = match start {
            Ok(Ok(memory)) => {
                counters.memory(memory);
                return Ok(());
            }
            Ok(Err(error)) => {
                let ending = Broken::of(&error).ending;
                if let Ending::Otherwise(Otherwise { interface, reason }) = ending {
                    return Err(Error::Signature { path: path.to_owned(), interface, reason });
                }
                ending.failure(&facts.limits, output.last_words())
            }
            Err(_elapsed) => ending::overdue(facts.limits.timeout),
        };
        Err(Error::Start { path: path.to_owned(), source })
    }
}

// === what the manifest needs ===

/// Returns what the plugin `name` has to export for this manifest, in the order of the manifest's fields.
pub fn needs(operator: &Operator, name: &str) -> Vec<Need> {
    let mut needs = Vec::new();
    for controller in users(operator, name) {
        let field = format!("spec.controllers.{}", controller.name);
        needs.push(Need { interface: Interface::Reconciler, field: format!("{field}.plugin") });
        for (name, dependent) in &controller.workflow.dependents {
            dependent_needs(dependent, &format!("{field}.workflow.dependents.{name}"), &mut needs);
        }
        for (workflow, standalone) in &controller.standalone {
            for (name, dependent) in &standalone.dependents {
                dependent_needs(dependent, &format!("{field}.standalone.{workflow}.dependents.{name}"), &mut needs);
            }
        }
    }
    needs
}

fn dependent_needs(dependent: &Dependent, field: &str, needs: &mut Vec<Need>) {
    let mut need = |interface, field: String| needs.push(Need { interface, field });
    let manage = dependent.manage;
    // KD-4: a dependent that is only deleted needs no desired state if the manifest says its name.
    if manage.create || manage.update || (manage.delete && dependent.called.is_none()) {
        need(Interface::Dependent, field.to_owned());
    }
    if let Matching::Export(_) = dependent.matching {
        need(Interface::Matcher, format!("{field}.match.export"));
    }
    let conditions = &dependent.conditions;
    for (role, condition) in [
        ("activation", &conditions.activation),
        ("reconcilePrecondition", &conditions.reconcile_precondition),
        ("readyPostcondition", &conditions.ready_postcondition),
        ("deletePostcondition", &conditions.delete_postcondition),
    ] {
        if let Some(Condition::Export(_)) = condition {
            need(Interface::Condition, format!("{field}.{role}.export"));
        }
    }
}

fn users<'a>(operator: &'a Operator, plugin: &'a str) -> impl Iterator<Item = &'a Controller> {
    operator.controllers.values().filter(move |controller| &*controller.plugin == plugin)
}

impl Interface {
    fn within(self, exports: &Indices) -> bool {
        match self {
            Self::Reconciler => exports.reconciler.is_some(),
            Self::Dependent => exports.dependent.is_some(),
            Self::Matcher => exports.matcher.is_some(),
            Self::Condition => exports.condition.is_some(),
        }
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reconciler => "reconciler",
            Self::Dependent => "dependent",
            Self::Matcher => "matcher",
            Self::Condition => "condition",
        })
    }
}

fn listed(missing: &[Need]) -> String {
    let lines: Vec<_> = missing.iter().map(|need| format!("`{}` ({})", need.interface, need.field)).collect();
    lines.join(", ")
}

fn names(found: &[&str]) -> String {
    match found {
        [] => format!("nothing of {PACKAGE}"),
        found => format!("`{}`", found.join("`, `")),
    }
}

// === imports and exports ===

/// Returns the ways in which a component can ask to write: what it imports of `operations`, as the manifest would permit it.
fn writes(component: &Component) -> BTreeSet<Permission> {
    let engine = component.engine();
    let ty = component.component_type();
    let mut writes = BTreeSet::new();
    for (name, import) in ty.imports(engine) {
        let ComponentItem::ComponentInstance(instance) = import.ty else {
            continue;
        };
        if parts(name).is_some_and(|(_, interface, _)| interface == "operations") {
            let functions = functions(&instance, engine);
            writes.extend(functions.iter().filter_map(|function| permission(function)));
        }
    }
    writes
}

/// Returns what a function of `operations` needs; none if that is nothing that a manifest can give.
fn permission(function: &str) -> Option<Permission> {
    match function {
        "create" => Some(Permission::Create),
        "apply" | "force-apply" => Some(Permission::Apply),
        "update" => Some(Permission::Update),
        "edit" | "json-patch" | "merge-patch" => Some(Permission::Patch),
        "remove" => Some(Permission::Delete),
        _ => None,
    }
}

/// Compares what a component imports with what the linker has, and says all that is missing at once.
fn check_imports(component: &Component, linker: &Linker<State>, path: &Path) -> Result<(), Error> {
    let engine = component.engine();
    let ty = component.component_type();
    let mut names = ty.imports(engine).map(|(name, _)| name).chain(ty.exports(engine).map(|(name, _)| name));
    if let Some(found) = names.find_map(foreign) {
        return Err(Error::Contract { path: path.to_owned(), found: found.to_owned() });
    }
    // Only asked, never run.
    let mut probe = linker.clone();
    let mut missing = Vec::new();
    for (name, import) in ty.imports(engine) {
        match import.ty {
            ComponentItem::ComponentInstance(instance) => {
                let functions = functions(&instance, engine);
                if !functions.is_empty() {
                    missing.extend(lacking(name, &functions, &mut probe));
                }
            }
            ComponentItem::Type(_) => {}
            ComponentItem::ComponentFunc(_)
            | ComponentItem::CoreFunc(_)
            | ComponentItem::Module(_)
            | ComponentItem::Component(_)
            | ComponentItem::Resource(_) => missing.push(format!("`{name}`")),
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(Error::Imports { path: path.to_owned(), missing }) }
}

/// Returns the version of the contract that a name speaks of, if this daemon does not serve it.
fn foreign(name: &str) -> Option<&str> {
    let (package, _, version) = parts(name)?;
    (package == PACKAGE && !compatible(version, CONTRACT)).then_some(version)
}

/// Splits `wasi:io/poll@0.2.6` into package, interface and version.
fn parts(name: &str) -> Option<(&str, &str, &str)> {
    let (package, rest) = name.split_once('/')?;
    let (interface, version) = rest.split_once('@')?;
    Some((package, interface, version))
}

/// Whether two versions are the same up to what may be added: `0.1.7` and `0.1.0` are.
fn compatible(one: &str, other: &str) -> bool {
    let head = |version: &str| {
        let mut numbers = version.splitn(3, '.').map(str::to_owned);
        (numbers.next(), numbers.next())
    };
    head(one) == head(other)
}

/// Returns the functions and resources of an imported interface; one without is there for its types only.
fn functions(instance: &types::ComponentInstance, engine: &wasmtime::Engine) -> Vec<String> {
    let items = instance.exports(engine);
    let callable =
        items.filter(|(_, item)| matches!(item.ty, ComponentItem::ComponentFunc(_) | ComponentItem::Resource(_)));
    callable.map(|(name, _)| name.to_owned()).collect()
}

/// Returns what an import asks for in vain.
fn lacking(name: &str, functions: &[String], probe: &mut Linker<State>) -> Vec<String> {
    let Some((package, interface, version)) = parts(name) else {
        return vec![format!("`{name}`")];
    };
    match package {
        PACKAGE => {
            let known = format!("{PACKAGE}/{interface}@{CONTRACT}");
            // Interfaces are instances, so a function of that name can be defined unless there is one.
            if !defined(probe, None, &known) {
                return vec![format!(
                    "the interface `{interface}` of {PACKAGE} {version}, which has more than {CONTRACT}"
                )];
            }
            let unknown = functions.iter().filter(|function| !defined(probe, Some(&known), function));
            unknown
                .map(|function| {
                    format!("`{interface}.{function}` of {PACKAGE} {version}, which has more than {CONTRACT}")
                })
                .collect()
        }
        "wasi:http" => {
            vec![format!("`{name}`: components have no network; build without it, or stub it out")]
        }
        package if !WASI.contains(&package) => vec![format!("`{name}`")],
        _ if !compatible(version, "0.2.0") => vec![format!("`{name}`: the daemon has WASI 0.2")],
        // Which of its interfaces and functions there are is asked by linking.
        _ => Vec::new(),
    }
}

/// Whether the linker has something under that name. It has no question for this, but refuses to define a name twice.
fn defined(linker: &mut Linker<State>, interface: Option<&str>, name: &str) -> bool {
    let mut place = match interface {
        None => linker.root(),
        Some(interface) => match linker.instance(interface) {
            Ok(instance) => instance,
            Err(_) => return true,
        },
    };
    place.func_new(name, |_, _, _, _| Ok(())).is_err()
}

/// Returns the exports that the daemon calls.
fn find_exports(pre: &InstancePre<State>, path: &Path) -> Result<Indices, Error> {
    let component = pre.component();
    let bad = |interface: &str, error: &wasmtime::Error| Error::Signature {
        path: path.to_owned(),
        interface: interface.to_owned(),
        reason: chain(error),
    };
    let exported = |interface: &str| component.get_export_index(None, format!("{PACKAGE}/{interface}@{CONTRACT}"));
    let mut found = Indices::default();
    if exported("reconciler").is_some() {
        found.reconciler = Some(reconciler::GuestIndices::new(pre).map_err(|error| bad("reconciler", &error))?);
    }
    if exported("cleaner").is_some() {
        found.cleaner = Some(cleaner::GuestIndices::new(pre).map_err(|error| bad("cleaner", &error))?);
    }
    if exported("error-handler").is_some() {
        found.error_handler =
            Some(error_handler::GuestIndices::new(pre).map_err(|error| bad("error-handler", &error))?);
    }
    if exported("dependent").is_some() {
        found.dependent = Some(dependent::GuestIndices::new(pre).map_err(|error| bad("dependent", &error))?);
    }
    if exported("condition").is_some() {
        found.condition = Some(condition::GuestIndices::new(pre).map_err(|error| bad("condition", &error))?);
    }
    if let Some(matcher) = exported("matcher") {
        let function = component.get_export_index(Some(&matcher), "match");
        let missing = || bad("matcher", &wasmtime::format_err!("there is no function `match`"));
        found.matcher = Some(function.ok_or_else(missing)?);
    }
    Ok(found)
}

/// Writes an error with its causes in one line.
fn chain(error: &wasmtime::Error) -> String {
    format!("{error:#}")
}

// === reading ===

/// Returns the compiled component: out of the cache or, when it is its turn, compiled. What waits for its turn is not kept in
/// memory, but read again.
async fn compiled(engine: &Engine, cache: &CodeCache, path: &Path, wasm: Wasm) -> Result<Ready, Error> {
    let (begun, wasm) = (Instant::now(), Arc::new(wasm));
    let look = async || {
        let (engine, cache_there) = (engine.clone(), cache.clone());
        let (path_there, wasm) = (path.to_owned(), Arc::clone(&wasm));
        let look = cache.reading(move || look(&engine, &cache_there, &path_there, &wasm));
        look.await.map_err(|error| Error::of(path, error))?
    };
    let mut turn = None;
    let (digest, code) = loop {
        match (look().await?, &turn) {
            (Look::Kept(digest, code), _) => break (digest, *code),
            (Look::New(digest, wasm), Some(turn)) => {
                let code = cache.compile(turn, engine, wasm, &digest).await;
                break (digest, code.map_err(|error| Error::of(path, error))?);
            }
            (Look::New(..), None) => {}
        }
        turn = Some(cache.turn().await);
    };
    let compiled = Compiled { took: begun.elapsed(), from_cache: code.kept };
    Ok(Ready { code, digest, compiled })
}

/// Reads a component, and finds it in the cache or decides that it may be compiled.
fn look(engine: &Engine, cache: &CodeCache, path: &Path, wasm: &Wasm) -> Result<Look, Error> {
    let wasm = wasm.bytes(path)?;
    verify(&wasm, path)?;
    let digest = digest(&wasm);
    if let Some(code) = cache.recall(engine, &digest) {
        return Ok(Look::Kept(digest, Box::new(code)));
    }
    bounds::check(&wasm).map_err(|refused| match refused {
        Refused::Malformed(reason) => Error::Compile { path: path.to_owned(), reason },
        Refused::TooLarge(excess) => Error::TooLarge { path: path.to_owned(), excess },
    })?;
    let remembered = cache.remembered(&digest);
    remembered.map_err(|error| Error::of(path, error))?;
    Ok(Look::New(digest, wasm))
}

impl Error {
    fn of(path: &Path, error: code::Error) -> Self {
        let path = path.to_owned();
        match error {
            code::Error::Invalid(reason) => Self::Compile { path, reason },
            code::Error::Costly(reason) => Self::Costly { path, reason },
            code::Error::Prepare(why) => Self::Prepare(why),
        }
    }
}

impl Wasm {
    fn bytes(&self, path: &Path) -> Result<Vec<u8>, Error> {
        match self {
            Self::Bytes(wasm) => Ok(wasm.clone()),
            Self::File => {
                read::bytes(path, read::COMPONENT).map_err(|source| Error::Read { path: path.to_owned(), source })
            }
        }
    }
}

/// Looks at what a component begins with, and whether it is there to its end.
fn verify(wasm: &[u8], path: &Path) -> Result<(), Error> {
    let path = path.to_owned();
    match Sort::of(wasm) {
        Sort::Component => Ok(()),
        Sort::Empty => Err(Error::Empty { path }),
        Sort::NotWasm => Err(Error::NotWasm { path, begin: wasm.iter().take(MAGIC.len()).copied().collect() }),
        Sort::CoreModule => Err(Error::CoreModule { path }),
        Sort::Truncated => Err(Error::Truncated { path, length: wasm.len() }),
    }
}

impl Sort {
    fn of(bytes: &[u8]) -> Self {
        // Version and layer: a component is layer 1.
        const MODULE: &[u8] = b"\x01\0\0\0";
        if bytes.is_empty() {
            return Self::Empty;
        }
        if !bytes.starts_with(MAGIC) {
            return if MAGIC.starts_with(bytes) { Self::Truncated } else { Self::NotWasm };
        }
        match bytes.get(4..8) {
            Some(MODULE) => Self::CoreModule,
            Some(_) if sections_end(bytes.get(8..).unwrap_or_default()) => Self::Component,
            None | Some(_) => Self::Truncated,
        }
    }
}

/// Whether a sequence of sections, each a byte, a length and so many bytes, ends where the bytes end.
fn sections_end(mut bytes: &[u8]) -> bool {
    while let Some((_id, rest)) = bytes.split_first() {
        let Some((length, rest)) = leb128(rest) else {
            return false;
        };
        let Some(rest) = usize::try_from(length).ok().and_then(|length| rest.get(length..)) else {
            return false;
        };
        bytes = rest;
    }
    true
}

/// Reads a number in groups of seven bits, lowest first.
fn leb128(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (n, &byte) in bytes.iter().enumerate().take(5) {
        number |= u64::from(byte & 0x7f) << (7 * n);
        if byte & 0x80 == 0 {
            return Some((number, bytes.get(n + 1..)?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_is_shows_at_its_beginning_and_its_end() {
        let component = |sections: &[u8]| [b"\0asm\x0d\0\x01\0", sections].concat();
        for (bytes, sort) in [
            (b"#!/bin/sh".to_vec(), Sort::NotWasm),
            (Vec::new(), Sort::Empty),
            (b"\0as".to_vec(), Sort::Truncated),
            (b"\0asm\x0d\0".to_vec(), Sort::Truncated),
            (b"\0asm\x01\0\0\0".to_vec(), Sort::CoreModule),
            (component(b""), Sort::Component),
            (component(b"\x00\x02ab"), Sort::Component),
            (component(b"\x00\x02ab\x01"), Sort::Truncated),
            (component(b"\x00\x02a"), Sort::Truncated),
            (component(b"\x00\x82\x00ab"), Sort::Component),
            (component(b"\x00\x82"), Sort::Truncated),
            (component(b"\x00\xff\xff\xff\xff\xff"), Sort::Truncated),
        ] {
            assert_eq!(Sort::of(&bytes), sort, "{bytes:?}");
        }
    }

    #[test]
    fn versions_fit_up_to_what_may_be_added() {
        for (one, other, fit) in
            [("0.1.0", "0.1.7", true), ("0.1.0", "0.2.0", false), ("0.2.6", "0.2.0", true), ("1.1.0", "0.1.0", false)]
        {
            assert_eq!(compatible(one, other), fit, "{one} {other}");
        }
        assert_eq!(foreign("capstan:operator/cache@0.2.0"), Some("0.2.0"));
        assert_eq!(foreign("capstan:operator/cache@0.1.9"), None);
        assert_eq!(foreign("wasi:io/poll@0.3.0"), None);
    }
}
