//! Reads which names a component imports and exports.

use capstan_core::registry::artifact::Interfaces;
use wasmparser::{BinaryReaderError, Parser, Payload};

/// Returns the names of a component's imports and exports.
///
/// # Errors
/// If it is no component.
pub fn interfaces(component: &[u8]) -> Result<Interfaces, String> {
    if !Parser::is_component(component) {
        return Err("it is not a WebAssembly component".to_owned());
    }
    let broken = |error: BinaryReaderError| format!("it is damaged: {error}");
    let mut found = Interfaces::default();
    // What is within it has imports and exports of its own.
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(component) {
        let payload = payload.map_err(broken)?;
        if matches!(payload, Payload::ModuleSection { .. } | Payload::ComponentSection { .. }) {
            depth += 1;
        }
        if matches!(payload, Payload::End(_)) {
            depth = depth.saturating_sub(1);
        }
        if depth == 0 {
            names(payload, &mut found).map_err(broken)?;
        }
    }
    Ok(found)
}

/// Adds the names of a section.
fn names(payload: Payload<'_>, found: &mut Interfaces) -> Result<(), BinaryReaderError> {
    if let Payload::ComponentImportSection(section) = payload {
        for import in section {
            found.imports.push(import?.name.name.to_owned());
        }
    } else if let Payload::ComponentExportSection(section) = payload {
        for export in section {
            found.exports.push(export?.name.name.to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_those_of_the_component_itself_and_not_of_what_is_in_it() {
        let text = r#"(component
            (import "a:b/c" (instance))
            (core module (import "x" "y" (func)) (export "z" (func 0)))
            (component $inner (import "d" (func)) (export "e" (func 0)))
            (export "f:g/h" (instance 0)))"#;
        let found = interfaces(&wat::parse_str(text).unwrap()).unwrap();
        assert_eq!((found.imports, found.exports), (vec!["a:b/c".to_owned()], vec!["f:g/h".to_owned()]));
        let said = interfaces(&wat::parse_str("(module)").unwrap()).unwrap_err();
        assert_eq!(said, "it is not a WebAssembly component");
    }
}
