//! Reads manifests and loads the components that they name; what is broken is told and left out, the rest goes on.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use capstan_core::guest::Guest;
use capstan_core::manifest::{self, Operator};

use crate::admin::Unready;
use crate::args::Source;
use crate::client::chain;
use crate::controller::Declared;
use crate::plugin::Plugin;
use crate::plugin::engine::{Engine, Pool};
use crate::plugin::loader::CodeCache;

/// What was found at the places that the command line names.
pub struct Loaded {
    /// The valid operators.
    pub operators: Vec<Operator>,
    /// Their controllers, each with its plugin.
    pub controllers: Vec<Declared>,
    /// What could not be used, and why.
    pub broken: Vec<Unready>,
}

/// What was read, before components are loaded.
pub struct Read {
    /// The valid operators.
    pub operators: Vec<Operator>,
    /// What is wrong with the others: file and message, which may have several lines.
    pub problems: Vec<(PathBuf, String)>,
}

impl Read {
    /// Adds the operators of a file, but for those whose names are taken by the ones before.
    fn add(&mut self, file: &Path, operators: Vec<Operator>) {
        for operator in operators {
            self.operators.push(operator);
            if let Err(errors) = manifest::check_together(&self.operators) {
                self.operators.pop();
                self.problems.push((file.to_owned(), errors.to_string()));
            }
        }
    }
}

/// Reads all manifests.
///
/// # Errors
/// If a path does not exist or can't be read, or a folder has no manifest in it.
pub fn read(source: &Source) -> anyhow::Result<Read> {
    let mut read = Read {
        operators: Vec::new(),
        problems: Vec::new(),
    };
    for file in files(&source.manifests)? {
        let text = fs::read_to_string(&file)
            .with_context(|| format!("read manifest {}", file.display()))?;
        match manifest::parse(&text, &file) {
            Ok(operators) => read.add(&file, operators),
            Err(errors) => read.problems.push((file, errors.to_string())),
        }
    }
    Ok(read)
}

/// Reads all manifests and loads their components.
///
/// # Errors
/// As [`read`]; also if no manifest is valid, or the machine can run no component at all.
pub async fn load(source: &Source) -> anyhow::Result<Loaded> {
    let Read {
        operators,
        problems,
    } = read(source)?;
    for (_, problem) in &problems {
        tracing::error!("{problem}");
    }
    anyhow::ensure!(
        problems.is_empty() || !operators.is_empty(),
        "no manifest is valid:\n{}",
        joined(&problems)
    );
    let broken = problems.into_iter().map(|(file, why)| Unready {
        what: format!("manifest {}", file.display()),
        why,
    });
    let mut loaded = Loaded {
        broken: broken.collect(),
        controllers: Vec::new(),
        operators,
    };
    let engine = engine(&loaded.operators)?;
    let cache = code_cache(source);
    for operator in &loaded.operators {
        let (plugins, failed) = plugins(&engine, &cache, operator).await;
        for (name, why) in failed {
            tracing::error!(plugin = %name, error = %why, "the plugin can't be used; its controllers don't start");
            loaded.broken.push(Unready {
                what: format!("plugin {name}"),
                why,
            });
        }
        loaded.controllers.extend(declared(operator, &plugins));
    }
    Ok(loaded)
}

/// Starts an engine with room for the plugins of these operators.
///
/// # Errors
/// If no component can run on this machine.
pub fn engine(operators: &[Operator]) -> anyhow::Result<Engine> {
    let limits = operators
        .iter()
        .flat_map(|operator| operator.plugins.values())
        .map(|plugin| &plugin.limits);
    Engine::new(Pool::of(limits)).context("start the engine for components")
}

/// Returns the folder that the command line names for compiled code, or the usual one.
pub fn code_cache(source: &Source) -> CodeCache {
    let usual = || {
        let cache = std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .filter(|folder| folder.is_absolute());
        cache
            .or_else(|| std::env::home_dir().map(|home| home.join(".cache")))
            .map(|cache| cache.join("capstan/code"))
    };
    match source.code_cache.clone().or_else(usual) {
        // The compiler's memory is not given back by a process that goes on: another one compiles.
        Some(folder) => match std::env::current_exe() {
            Ok(program) => {
                CodeCache::at(&folder).compiled_by([program.into(), "compile-component".into()])
            }
            Err(_) => CodeCache::at(&folder),
        },
        None => CodeCache::none(),
    }
}

/// Loads the plugins of an operator; those that fail come with the reason.
pub async fn plugins(
    engine: &Engine,
    cache: &CodeCache,
    operator: &Operator,
) -> (BTreeMap<Arc<str>, Plugin>, Vec<(Arc<str>, String)>) {
    let (mut loaded, mut failed) = (BTreeMap::new(), Vec::new());
    for name in operator.plugins.keys() {
        match Plugin::load(engine, cache, operator, name).await {
            Ok(plugin) => drop(loaded.insert(Arc::clone(name), plugin)),
            Err(error) => failed.push((Arc::clone(name), chain(&error))),
        }
    }
    (loaded, failed)
}

/// Returns the controllers whose plugins are loaded.
fn declared(operator: &Operator, loaded: &BTreeMap<Arc<str>, Plugin>) -> Vec<Declared> {
    let controllers = operator.controllers.values().filter_map(|spec| {
        let plugin = operator.plugins.get(&spec.plugin)?.clone();
        let guest = Arc::new(loaded.get(&spec.plugin)?.clone()) as Arc<dyn Guest>;
        Some(Declared {
            spec: spec.clone(),
            plugin,
            guest,
        })
    });
    controllers.collect()
}

/// Returns the files that are named, and those of the folders that are named, in order.
fn files(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries =
            fs::read_dir(path).with_context(|| format!("read folder {}", path.display()))?;
        let mut found: Vec<_> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| is_yaml(path))
            .collect();
        anyhow::ensure!(
            !found.is_empty(),
            "folder {} has no *.yaml or *.yml file",
            path.display()
        );
        found.sort();
        files.extend(found);
    }
    Ok(files)
}

fn is_yaml(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "yaml" || extension == "yml")
}

fn joined(problems: &[(PathBuf, String)]) -> String {
    problems
        .iter()
        .map(|(_, problem)| problem.as_str())
        .collect::<Vec<_>>()
        .join("\n")
}
