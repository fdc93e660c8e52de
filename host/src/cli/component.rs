//! `capstan component`: makes a component of the parts that a language's own tools have compiled.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use super::beside;
use crate::cli::args::Component;

/// What a core module calls its system, for which the adapter stands in.
const SYSTEM: &str = "wasi_snapshot_preview1";

/// Joins the parts, and writes the component.
///
/// # Errors
/// If a part is missing, the parts don't fit each other, or the component can't be written.
pub fn run(args: &Component) -> anyhow::Result<ExitCode> {
    let Component { parts, output } = args;
    let component = join(parts).with_context(|| format!("make a component of {}", parts.display()))?;
    // Written in one go: a daemon may be reading the old one.
    beside::write(output, &component)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the component of a core module and an adapter, each with its world of the folder `wit`.
fn join(parts: &Path) -> anyhow::Result<Vec<u8>> {
    let mut core = fs::read(parts.join("core.wasm")).context("read core.wasm")?;
    let mut adapter = wat::parse_file(parts.join("adapter.wat"))?;
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(parts.join("wit"))?;
    for (module, name) in [(&mut core, "component"), (&mut adapter, "adapter")] {
        let world = resolve.select_world(&[package], Some(name))?;
        embed_component_metadata(module, &resolve, world, StringEncoding::UTF8)?;
    }
    ComponentEncoder::default().module(&core)?.adapter(SYSTEM, &adapter)?.encode()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORLDS: &str = "package a:b;\nworld component { export run: func(); }\nworld adapter {}\n";

    fn parts(core: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("wit")).unwrap();
        fs::write(folder.path().join("wit/world.wit"), WORLDS).unwrap();
        fs::write(folder.path().join("adapter.wat"), "(module)").unwrap();
        fs::write(folder.path().join("core.wasm"), wat::parse_str(core).unwrap()).unwrap();
        folder
    }

    #[test]
    fn parts_become_a_component_in_one_go() {
        let folder = parts(r#"(module (func (export "run")) (memory (export "memory") 1))"#);
        let output = folder.path().join("a.wasm");
        let args = Component { parts: folder.path().to_owned(), output: output.clone() };
        run(&args).unwrap();
        assert!(wasmparser::Parser::is_component(&fs::read(&output).unwrap()));
        assert!(!folder.path().join("a.wasm.next").exists());
    }

    #[test]
    fn a_core_module_that_lacks_an_export_is_told_by_name() {
        let folder = parts("(module)");
        let args = Component { parts: folder.path().to_owned(), output: folder.path().join("a.wasm") };
        let said = format!("{:#}", run(&args).unwrap_err());
        assert!(said.starts_with("make a component of ") && said.contains("`run`"), "{said}");
    }
}
