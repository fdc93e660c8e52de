//! Reads manifests, and says where the command line wants components to be compiled and kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use capstan_core::manifest::{self, Ceiling, Ceilings, Component, Defaults, Operator};
use capstan_core::registry::mirror::{Entry, Mirrors};
use capstan_core::registry::signature::{Demand, Key};
use capstan_core::rollout::{File, Wanted};
use capstan_core::text;

use crate::cli::args::Source;
use crate::files::is_manifest;
use crate::plugin::engine::{Engine, Pool};
use crate::plugin::loader::{Budget, CodeCache, Wasm};
use crate::plugin::{Outside, Plugin};
use crate::read;
use crate::registry::Proxies;
use crate::registry::images::{Images, Rules};
use crate::registry::kept::Place;

/// What was read, before components are loaded.
pub struct Read {
    /// The valid operators.
    pub operators: Vec<Operator>,
    /// What is wrong with the others: file and message, which may have several lines.
    pub problems: Vec<(PathBuf, String)>,
}

/// The manifests that a command line names, and what holds where they say nothing.
pub struct Manifests {
    paths: Vec<PathBuf>,
    defaults: Defaults,
}

impl Manifests {
    /// Returns these files and folders with the defaults of a file.
    ///
    /// # Errors
    /// If the file of defaults can't be read, or is wrong.
    pub fn new(paths: &[PathBuf], defaults: Option<&Path>) -> anyhow::Result<Self> {
        Ok(Self { paths: paths.to_owned(), defaults: self::defaults(defaults)? })
    }

    /// Returns the same for operators that have a ceiling.
    #[must_use]
    pub fn below(self, ceiling: &Ceiling) -> Self {
        Self { defaults: self.defaults.below(ceiling), ..self }
    }

    /// Returns the files and folders.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    fn parsed(&self, path: PathBuf, content: &str) -> File {
        let operators = manifest::parse_with(content, &path, &self.defaults);
        File { content: operators.map_err(|errors| text::block(&errors.to_string())), path }
    }
}

/// Reads what holds where manifests say nothing.
///
/// # Errors
/// If the file can't be read, or is wrong.
pub fn defaults(file: Option<&Path>) -> anyhow::Result<Defaults> {
    let Some(file) = file else {
        return Ok(Defaults::default());
    };
    let content = read::text(file, read::TEXT).with_context(|| format!("read defaults {}", file.display()))?;
    Defaults::parse(&content, file).map_err(wrong)
}

/// Reads what operators of other namespaces may have at most.
///
/// # Errors
/// If the file can't be read, or is wrong.
pub fn ceilings(file: &Path) -> anyhow::Result<Ceilings> {
    let content = read::text(file, read::TEXT).with_context(|| format!("read ceilings {}", file.display()))?;
    Ceilings::parse(&content, file).map_err(wrong)
}

/// The same for a daemon that lives in this namespace.
///
/// # Errors
/// As for [`ceilings`], and if one of them is for that namespace, whose operators have none.
pub fn ceilings_of_others(file: &Path, own: &str) -> anyhow::Result<Ceilings> {
    let ceilings = ceilings(file)?;
    if let Some(ceiling) = ceilings.of(own) {
        anyhow::bail!(
            "{}: spec.ceilings.{}.namespaces: found `{own}`, the daemon's own namespace, whose operators have no ceiling; expected other ones",
            file.display(),
            ceiling.name
        );
    }
    Ok(ceilings)
}

#[expect(clippy::needless_pass_by_value, reason = "it is what errors are mapped by")]
fn wrong(errors: manifest::Errors) -> anyhow::Error {
    anyhow::anyhow!(text::block(&errors.to_string()))
}

/// Reads all manifests.
///
/// # Errors
/// If a path does not exist or can't be read, or a folder has no manifest in it.
pub fn read(manifests: &Manifests) -> anyhow::Result<Read> {
    for path in &manifests.paths {
        anyhow::ensure!(!files(path)?.is_empty(), "folder {} has no *.yaml or *.yml file", path.display());
    }
    read_some(manifests)
}

/// Reads all manifests; there need not be any.
///
/// # Errors
/// If a path does not exist or can't be read.
pub fn read_some(manifests: &Manifests) -> anyhow::Result<Read> {
    let mut found = Vec::new();
    for path in &manifests.paths {
        for path in files(path)? {
            let text = read::text(&path, read::TEXT);
            let text = text.with_context(|| format!("read manifest {}", path.display()))?;
            found.push(manifests.parsed(path, &text));
        }
    }
    let Wanted { operators, problems } = Wanted::after(&[], &found);
    Ok(Read { operators, problems })
}

/// Reads manifests that all have to be valid.
///
/// # Errors
/// As [`read()`]; and what is wrong with any of them.
pub fn valid(paths: &[PathBuf]) -> anyhow::Result<Vec<Operator>> {
    valid_with(&Manifests::new(paths, None)?)
}

/// Reads manifests that all have to be valid, with their defaults.
///
/// # Errors
/// As [`valid`].
pub fn valid_with(manifests: &Manifests) -> anyhow::Result<Vec<Operator>> {
    let Read { operators, problems } = read(manifests)?;
    if !problems.is_empty() {
        let texts: Vec<_> = problems.into_iter().map(|(_, text)| text).collect();
        anyhow::bail!("not all manifests are valid:\n{}", texts.join("\n"));
    }
    Ok(operators)
}

/// Reads all manifests as they are now, where `before` is what they said last. What can't be read is told as a problem of
/// its file; of a folder that can't be read, as one of each file that was in it. A file that somebody is writing, by its
/// real path in `writing`, says what it said before.
pub fn scan(manifests: &Manifests, before: &[Operator], writing: &BTreeSet<PathBuf>) -> Vec<File> {
    let mut found = Vec::new();
    for path in &manifests.paths {
        let said = |file: &Path| {
            let said = before.iter().filter(|operator| operator.origin.file() == file);
            said.cloned().collect::<Vec<_>>()
        };
        let inside = before.iter().map(|operator| operator.origin.file());
        let inside: BTreeSet<_> = inside.filter(|file| file.parent() == Some(path)).collect();
        match files(path) {
            // A folder that is gone looks like a file that is missing.
            Ok(_) if !inside.is_empty() && !path.is_dir() => {
                let why = format!("read folder {}: it is not there", path.display());
                found.extend(inside.into_iter().map(|file| broken(file.to_owned(), &why)));
            }
            Ok(files) => found.extend(files.into_iter().filter_map(|path| {
                if path.canonicalize().is_ok_and(|path| writing.contains(&path)) {
                    let content = said(&path);
                    return (!content.is_empty()).then_some(File { content: Ok(content), path });
                }
                Some(match read::text(&path, read::TEXT) {
                    Ok(text) => manifests.parsed(path, &text),
                    Err(error) => {
                        let why = format!("read manifest {}: {error}", path.display());
                        broken(path, &why)
                    }
                })
            })),
            Err(error) => {
                let why = format!("{error:#}");
                found.extend(inside.into_iter().map(|file| broken(file.to_owned(), &why)));
                found.push(broken(path.clone(), &why));
            }
        }
    }
    found
}

fn broken(path: PathBuf, why: &str) -> File {
    File { path, content: Err(text::block(why)) }
}

/// Starts an engine with room for the plugins of these operators.
///
/// # Errors
/// If no component can run on this machine.
pub fn engine(operators: &[Operator]) -> anyhow::Result<Engine> {
    let plugins = operators.iter().flat_map(|operator| operator.plugins.values());
    let limits = plugins.filter(|plugin| plugin.component.is_some()).map(|plugin| &plugin.limits);
    engine_with(&[Pool::of(limits)])
}

/// Returns an engine with the first of these pools that can be had.
///
/// # Errors
/// If no component can run on this machine.
pub fn engine_with(pools: &[Pool]) -> anyhow::Result<Engine> {
    let engine = Engine::first_of(pools).context("start the engine for components")?;
    // Without, plugins that want a process of their own are refused; why is told where compiling misses it.
    Ok(match program() {
        Ok(program) => engine.with_processes([program.into(), "run-component".into()]),
        Err(_) => engine,
    })
}

/// Returns the folder that the command line names for compiled code, or the usual one.
pub fn code_cache(source: &Source) -> CodeCache {
    let cache = match code_folder(source) {
        Some(folder) => CodeCache::keyed(&folder, source.code_cache_key_file.as_deref(), source.code_cache_size),
        None => CodeCache::none(),
    };
    let budget = Budget {
        memory: source.compile_memory,
        cpu: source.compile_timeout,
        clock: source.compile_timeout.saturating_mul(3),
    };
    // Another process compiles: what that takes is bounded there, and given back at its end.
    match program() {
        Ok(program) => cache.compiled_by([program.into(), "compile-component".into()], budget),
        Err(error) => {
            tracing::warn!(%error, "the program's own file is not known; no component can be compiled");
            cache.compiled_by([], budget)
        }
    }
}

/// Returns the components of registries, with the folder that the command line names for them, or one within that of compiled code.
///
/// # Errors
/// If a key can't be read by which they have to be signed.
pub fn images(source: &Source, outside: Outside) -> anyhow::Result<Images> {
    let usual = || code_folder(source).map(|folder| folder.join("components"));
    let folder = source.component_cache.clone().or_else(usual);
    let place = |folder| Place { folder, key: source.code_cache_key_file.clone(), most: source.component_cache_size };
    let keys = source.verify_keys.iter().map(|file| key(file)).collect::<anyhow::Result<Vec<_>>>()?;
    let floor = (!keys.is_empty()).then_some(Demand { whose: "--verify-key", keys, signed_as: Vec::new() });
    let insecure = source.insecure_registries.iter().cloned().collect();
    let mirrors = mirrors(&source.mirrors.registry_mirrors)?;
    Ok(Images::new(outside, folder.map(place), Rules { insecure, floor, mirrors, proxies: Proxies::of_environment() }))
}

/// Returns the mirrors of registries that the command line names.
///
/// # Errors
/// If that leaves a registry without a place.
pub fn mirrors(entries: &[Entry]) -> anyhow::Result<Mirrors> {
    Mirrors::of(entries).map_err(anyhow::Error::msg).context("--registry-mirror")
}

/// Returns the public key of a file.
///
/// # Errors
/// If there is none.
pub fn key(file: &Path) -> anyhow::Result<Key> {
    let what = || format!("read key {}", file.display());
    let text = read::text(file, read::TEXT).with_context(what)?;
    Key::parse(&text).map_err(anyhow::Error::msg).with_context(what)
}

fn code_folder(source: &Source) -> Option<PathBuf> {
    let usual = || {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|folder| folder.is_absolute());
        cache.or_else(|| std::env::home_dir().map(|home| home.join(".cache"))).map(|cache| cache.join("capstan/code"))
    };
    source.code_cache.clone().or_else(usual)
}

/// Returns a path to this program, which on Linux is good even after the file has been replaced.
fn program() -> std::io::Result<PathBuf> {
    let own = Path::new("/proc/self/exe");
    if own.exists() {
        return Ok(own.to_owned());
    }
    std::env::current_exe()
}

/// Why a component of a registry is not loaded by a command that ends.
const NOT_PULLED: &str = "it is in a registry; get it with `capstan pull`, and name the file";

/// Loads the plugins of an operator that have a component, of registries those that were `pulled`; those that fail come with the reason.
pub async fn plugins(
    engine: &Engine,
    cache: &CodeCache,
    operator: &Operator,
    pulled: &BTreeMap<Arc<str>, Wasm>,
) -> (BTreeMap<Arc<str>, Plugin>, Vec<(Arc<str>, String)>) {
    let (mut loaded, mut failed) = (BTreeMap::new(), Vec::new());
    for (name, plugin) in &operator.plugins {
        let wasm = match &plugin.component {
            Some(Component::File(path)) => Some(Wasm::of_file(path)),
            Some(Component::Registry(_)) => pulled.get(name).cloned(),
            None => continue,
        };
        let Some(wasm) = wasm else {
            failed.push((Arc::clone(name), NOT_PULLED.to_owned()));
            continue;
        };
        match Plugin::load_from(engine, cache, (operator, name), &wasm).await {
            Ok(plugin) => drop(loaded.insert(Arc::clone(name), plugin)),
            Err(error) => failed.push((Arc::clone(name), error.told())),
        }
    }
    (loaded, failed)
}

/// Returns the file that is named, or those of the folder that is named, in order.
fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path).with_context(|| format!("read folder {}", path.display()))?;
    let mut found: Vec<_> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_manifest(path)).collect();
    found.sort();
    Ok(found)
}
