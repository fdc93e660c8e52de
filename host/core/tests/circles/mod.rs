//! Finds files that import each other in a circle. What a file has in folders of its own is part of it: between a module and what it
//! is made of nothing is said.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::sources::files;

/// What each module imports, as paths from the root of the crate: `plugin::loader`.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Returns the circles below a folder of sources, each as the modules on its way.
pub(crate) fn circles(src: &Path) -> Vec<String> {
    let texts: BTreeMap<String, String> = files(src)
        .into_iter()
        .map(|file| (module(src, &file), fs::read_to_string(&file).expect("a source file")))
        .filter(|(module, _)| !module.is_empty())
        .collect();
    found_in(&imports(&texts))
}

/// Returns what modules import, given their texts.
pub(crate) fn imports(texts: &BTreeMap<String, String>) -> Imports {
    let of = |(module, text): (&String, &String)| {
        let paths = paths(text).into_iter().map(|path| absolute(module, &path));
        let modules = paths.filter_map(|path| longest(&path, texts));
        let kin = |other: &String| within(other, module) || within(module, other);
        (module.clone(), modules.filter(|other| !kin(other)).collect())
    };
    texts.iter().map(of).collect()
}

/// Returns the circles that imports make: from each module that leads back to itself, the shortest way.
pub(crate) fn found_in(imports: &Imports) -> Vec<String> {
    let mut circles = BTreeMap::new();
    for start in imports.keys() {
        let mut ways = vec![vec![start]];
        let mut seen = BTreeSet::new();
        while let Some(way) = (!ways.is_empty()).then(|| ways.remove(0)) {
            let last = *way.last().expect("a way has a start");
            for next in imports.get(last).into_iter().flatten() {
                if next == start {
                    let members: BTreeSet<_> = way.iter().copied().collect();
                    let text = way.iter().copied().chain([start]).map(String::as_str).collect::<Vec<_>>().join(" → ");
                    circles.entry(members).or_insert(text);
                } else if seen.insert(next) {
                    ways.push(way.iter().copied().chain([next]).collect());
                }
            }
        }
    }
    circles.into_values().collect()
}

/// Returns a file's module; nothing for the root.
fn module(src: &Path, file: &Path) -> String {
    let path = file.strip_prefix(src).expect("a file below src").with_extension("");
    let name = path.to_string_lossy().replace('/', "::");
    if matches!(&*name, "lib" | "main") { String::new() } else { name }
}

/// Returns the paths that a text names beginning with `crate` or `super`, but for those in comments and in its tests.
fn paths(text: &str) -> Vec<String> {
    let code = text.split("\n#[cfg(test)]").next().unwrap_or(text);
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or(line));
    let code = lines.collect::<Vec<_>>().join(" ").replace("(in crate::", "(in ");
    let starts = ["crate::", "super::"].iter().flat_map(|start| code.match_indices(start)).map(|(at, _)| at);
    let whole = |at: &usize| !code[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
    starts.filter(whole).flat_map(|at| expanded(&code[at..])).collect()
}

/// Returns the paths that a path with braces stands for: `a::{b, c::{d, e}}` is `a::b`, `a::c::d` and `a::c::e`.
fn expanded(code: &str) -> Vec<String> {
    let end = code.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(code.len());
    let (head, rest) = code.split_at(end);
    let Some(inside) = rest.strip_prefix('{').filter(|_| head.ends_with("::")) else {
        return vec![head.trim_end_matches(':').to_owned()];
    };
    let (mut depth, mut parts, mut begin) = (0, Vec::new(), 0);
    for (at, c) in inside.char_indices() {
        match c {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                parts.push(inside[begin..at].trim());
                begin = at + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    let all = parts.into_iter().filter(|part| !part.is_empty()).flat_map(expanded);
    all.map(|part| format!("{head}{part}")).collect()
}

/// Returns a path of a module from the root of its crate.
fn absolute(module: &str, path: &str) -> String {
    if let Some(path) = path.strip_prefix("crate::") {
        return path.to_owned();
    }
    let (mut base, mut path) = (module, path);
    while let Some(rest) = path.strip_prefix("super::") {
        base = base.rsplit_once("::").map_or("", |(above, _)| above);
        path = rest;
    }
    if base.is_empty() { path.to_owned() } else { format!("{base}::{path}") }
}

/// Returns the module that a path leads to, or into.
fn longest(path: &str, modules: &BTreeMap<String, String>) -> Option<String> {
    let mut path = path;
    loop {
        if modules.contains_key(path) {
            return Some(path.to_owned());
        }
        path = path.rsplit_once("::")?.0;
    }
}

/// Whether a module is another one, or part of it.
fn within(part: &str, whole: &str) -> bool {
    part.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}
