//! What a component imports and exports: whether the daemon offers the one, and calls the other.

use std::collections::BTreeSet;
use std::path::Path;

use capstan_core::guest::Interface;
use capstan_core::manifest::Permission;
use capstan_core::registry::artifact::Interfaces;
use wasmtime::component::types::{self, ComponentItem};
use wasmtime::component::{Component, Linker};

use super::error::{Error, PACKAGE};
use crate::plugin::bindings::CONTRACT;
use crate::plugin::instance::{Indices, State};

/// The packages of WASI that are linked, and their version up to compatible ones.
const WASI: [&str; 6] = ["wasi:cli", "wasi:clocks", "wasi:filesystem", "wasi:io", "wasi:random", "wasi:sockets"];

/// Returns the ways in which a component can ask to write: what it imports of `operations`, as the manifest would permit it.
pub(super) fn writes(component: &Component) -> BTreeSet<Permission> {
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

/// Returns the names of what a component imports and exports.
pub(super) fn named(component: &Component) -> Interfaces {
    let (engine, ty) = (component.engine(), component.component_type());
    Interfaces {
        imports: ty.imports(engine).map(|(name, _)| name.to_owned()).collect(),
        exports: ty.exports(engine).map(|(name, _)| name.to_owned()).collect(),
    }
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
pub(super) fn check_imports(
    component: &Component,
    linker: &Linker<State>,
    path: &Path,
    http: bool,
) -> Result<(), Error> {
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
                    missing.extend(lacking(name, &functions, &mut probe, http));
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
fn lacking(name: &str, functions: &[String], probe: &mut Linker<State>, http: bool) -> Vec<String> {
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
        "wasi:http" if !http => {
            let message = "the manifest permits it no host; add those that it needs to `capabilities.http`, build without it, or stub it out";
            vec![format!("`{name}`: {message}")]
        }
        "wasi:http" if !["types", "outgoing-handler"].contains(&interface) => vec![format!("`{name}`")],
        package if !WASI.contains(&package) && package != "wasi:http" => vec![format!("`{name}`")],
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
pub(super) fn find_exports(component: &Component, path: &Path) -> Result<Indices, Error> {
    let mut found = Indices::new();
    for &interface in Interface::ALL {
        let name = interface.name();
        let Some(instance) = component.get_export_index(None, format!("{PACKAGE}/{name}@{CONTRACT}")) else {
            continue;
        };
        for &function in interface.functions() {
            let index = component.get_export_index(Some(&instance), function.name());
            let index = index.ok_or_else(|| Error::Signature {
                path: path.to_owned(),
                interface: name.to_owned(),
                reason: format!("there is no function `{}`", function.name()),
            })?;
            found.insert(function, index);
        }
    }
    Ok(found)
}

/// Writes an error with its causes in one line.
pub(super) fn chain(error: &wasmtime::Error) -> String {
    format!("{error:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

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
