//! Decides how much memory a component takes beside its linear memories and its machine code: what describes it, and each of its
//! instances.
//!
//! wasmtime says of neither how much it is; the factors here are no less than what it takes of the worst component of each
//! sort (`host/tests/weight.rs` measures them).

use std::fs::File;
use std::io;

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object as _, ObjectSection as _, ReadCache};
use wasmparser::{
    ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentOuterAliasKind, ElementItems,
    ElementSectionReader, Encoding, Instance, Parser, Payload,
};

use super::bounds::{Excess, Measure, Refused};

/// What the daemon keeps of one byte of what the compiler says of a component.
const PER_BYTE: u64 = 16;

/// The section in which it says that.
const SAID: &[u8] = b".wasmtime.info";

/// What it keeps of a type of a core module, and of each byte of that.
const TYPE: u64 = 500;
const TYPE_BYTE: u64 = 50;

/// What it keeps of an instance of a core module, and of what is in there.
const CORE_INSTANCE: u64 = 1 << 10;
const IMPORT: u64 = 40;
const GLOBAL: u64 = 48;
const DATA: u64 = 16;
const ELEMENT: u64 = 48;
const OTHER: u64 = 256;

/// What it keeps for each function that passes the border of an instance of a component.
const CROSSING: u64 = 256;

/// Bytes of memory, at most, that a component takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// For its types, as long as it is loaded.
    pub types: u64,
    /// For what describes one instance of it: of all core modules that are instantiated.
    pub instance: u64,
}

/// A module or component that is being read.
struct Open {
    encoding: Encoding,
    /// What an instance of it takes.
    instance: u64,
    /// The same of the modules and components that are in it, by index.
    modules: Vec<u64>,
    components: Vec<u64>,
}

/// What has been read so far.
#[derive(Default)]
struct Count {
    types: u64,
    /// The innermost last.
    open: Vec<Open>,
    /// What an instance of what was read last takes.
    instance: u64,
}

impl Weight {
    /// Weighs a component. Looks at no code.
    ///
    /// # Errors
    /// If it can't be read to its end, or is too heavy.
    pub fn of(wasm: &[u8]) -> Result<Self, Refused> {
        let mut count = Count::default();
        for payload in Parser::new(0).parse_all(wasm) {
            count.take(&payload?)?;
        }
        let Count { types, instance, .. } = count;
        Measure::Types.holds(types)?;
        Measure::Instance.holds(instance)?;
        Ok(Self { types, instance })
    }

    /// Returns how much memory it takes as long as it is loaded, by what the compiler says of it in this file.
    ///
    /// # Errors
    /// If that is too much, or the file is no compiled code.
    pub fn loaded(&self, code: &File) -> io::Result<Result<u64, Excess>> {
        let cache = ReadCache::new(code);
        let file = ElfFile64::<LittleEndian, _>::parse(&cache).map_err(io::Error::other)?;
        let said = file.section_by_name_bytes(SAID).ok_or_else(|| io::Error::other("it says nothing of itself"))?;
        let said = said.size().saturating_mul(PER_BYTE);
        Ok(Measure::Description.within(said).map(|()| said.saturating_add(self.types)))
    }
}

impl Count {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others describe nothing that is kept")]
    fn take(&mut self, payload: &Payload<'_>) -> Result<(), Refused> {
        match payload {
            Payload::Version { encoding, .. } => self.begin(*encoding),
            Payload::End(_) => self.end(),
            Payload::TypeSection(section) => self.typed(section.count(), section.range().len()),
            Payload::CoreTypeSection(section) => self.typed(section.count(), section.range().len()),
            Payload::ImportSection(section) => {
                self.add(IMPORT, section.clone().into_imports().count() as u64);
            }
            Payload::GlobalSection(section) => self.add(GLOBAL, section.count().into()),
            Payload::ExportSection(section) => self.add(IMPORT, section.count().into()),
            Payload::TableSection(section) => self.add(OTHER, section.count().into()),
            Payload::MemorySection(section) => self.add(OTHER, section.count().into()),
            Payload::TagSection(section) => self.add(OTHER, section.count().into()),
            Payload::DataSection(section) => self.add(DATA, section.count().into()),
            Payload::ElementSection(section) => self.elements(section)?,
            Payload::ComponentCanonicalSection(section) => {
                self.add(CROSSING, section.count().into());
                self.typed(section.count(), 0);
            }
            Payload::InstanceSection(section) => {
                for instance in section.clone() {
                    if let Instance::Instantiate { module_index, .. } = instance? {
                        self.instantiate(Open::modules, module_index)?;
                    }
                }
            }
            Payload::ComponentInstanceSection(section) => {
                for instance in section.clone() {
                    if let ComponentInstance::Instantiate { component_index, .. } = instance? {
                        self.instantiate(Open::components, component_index)?;
                    }
                }
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section.clone() {
                    self.alias(&alias?)?;
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section.clone() {
                    let export = export?;
                    self.again(export.kind, 0, export.index)?;
                }
            }
            Payload::ComponentImportSection(section) => {
                for import in section.clone() {
                    if let ComponentExternalKind::Module | ComponentExternalKind::Component = import?.ty.kind() {
                        return Err(unknown());
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, encoding: Encoding) {
        let instance = if encoding == Encoding::Module { CORE_INSTANCE } else { 0 };
        self.open.push(Open { encoding, instance, modules: Vec::new(), components: Vec::new() });
    }

    fn end(&mut self) {
        let Some(Open { encoding, instance, .. }) = self.open.pop() else {
            return;
        };
        self.instance = instance;
        if let Some(around) = self.open.last_mut() {
            (if encoding == Encoding::Module { &mut around.modules } else { &mut around.components }).push(instance);
        }
    }

    fn elements(&mut self, section: &ElementSectionReader<'_>) -> Result<(), Refused> {
        self.add(OTHER, section.count().into());
        for element in section.clone() {
            let items = match element?.items {
                ElementItems::Functions(items) => items.count(),
                ElementItems::Expressions(_, items) => items.count(),
            };
            self.add(ELEMENT, items.into());
        }
        Ok(())
    }

    fn typed(&mut self, types: u32, bytes: usize) {
        let (types, bytes) = (u64::from(types) * TYPE, (bytes as u64).saturating_mul(TYPE_BYTE));
        self.types = self.types.saturating_add(types).saturating_add(bytes);
    }

    fn add(&mut self, each: u64, count: u64) {
        if let Some(open) = self.open.last_mut() {
            open.instance = open.instance.saturating_add(each.saturating_mul(count));
        }
    }

    /// Counts an instance of something in what is being read.
    fn instantiate(&mut self, of: fn(&mut Open) -> &mut Vec<u64>, index: u32) -> Result<(), Refused> {
        let instance = self.find(of, 0, index)?;
        self.add(instance, 1);
        Ok(())
    }

    /// Takes in that something has one index more.
    fn alias(&mut self, alias: &ComponentAlias<'_>) -> Result<(), Refused> {
        match *alias {
            ComponentAlias::InstanceExport {
                kind: ComponentExternalKind::Module | ComponentExternalKind::Component,
                ..
            } => Err(unknown()),
            ComponentAlias::Outer { kind: ComponentOuterAliasKind::CoreModule, count, index } => {
                self.again(ComponentExternalKind::Module, count, index)
            }
            ComponentAlias::Outer { kind: ComponentOuterAliasKind::Component, count, index } => {
                self.again(ComponentExternalKind::Component, count, index)
            }
            ComponentAlias::InstanceExport { .. }
            | ComponentAlias::CoreInstanceExport { .. }
            | ComponentAlias::Outer { .. } => Ok(()),
        }
    }

    /// Takes in that a module or component so far around has one index more in what is being read.
    fn again(&mut self, kind: ComponentExternalKind, around: u32, index: u32) -> Result<(), Refused> {
        let of = match kind {
            ComponentExternalKind::Module => Open::modules,
            ComponentExternalKind::Component => Open::components,
            ComponentExternalKind::Func
            | ComponentExternalKind::Value
            | ComponentExternalKind::Type
            | ComponentExternalKind::Instance => return Ok(()),
        };
        let found = self.find(of, around, index)?;
        if let Some(open) = self.open.last_mut() {
            of(open).push(found);
        }
        Ok(())
    }

    fn find(&mut self, of: fn(&mut Open) -> &mut Vec<u64>, around: u32, index: u32) -> Result<u64, Refused> {
        let open = self.open.iter_mut().rev().nth(around as usize).ok_or_else(unknown)?;
        of(open).get(index as usize).copied().ok_or_else(unknown)
    }
}

impl Open {
    fn modules(&mut self) -> &mut Vec<u64> {
        &mut self.modules
    }

    fn components(&mut self) -> &mut Vec<u64> {
        &mut self.components
    }
}

fn unknown() -> Refused {
    let why = "it instantiates a module or component that is not in it where it says so, and nobody knows how much memory that takes";
    Refused::Malformed(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weigh(text: &str) -> Result<Weight, String> {
        let wasm = wat::parse_str(format!("(component {text})")).unwrap();
        Weight::of(&wasm).map_err(|refused| refused.to_string())
    }

    #[test]
    fn an_instance_weighs_what_all_modules_do_that_it_starts_however_they_are_named() {
        let module = "(core module $m (global i32 (i32.const 0)) (global i32 (i32.const 0)))";
        let one = CORE_INSTANCE + 2 * GLOBAL;
        let start = "(core instance (instantiate $m))";
        let component = format!("(component $c {module} {start} {start})");
        for (text, times) in [
            (module.to_owned(), 0),
            (format!("{module} {start} {start} {start}"), 3),
            (format!("(core module) {module} (core module) {start}"), 1),
            (component.clone(), 0),
            (format!("{component} {}", "(instance (instantiate $c))".repeat(3)), 6),
            // In what surrounds it, by the number of levels; and by what was exported, which counts as one more.
            (format!("{module} (component $c {start} (component {start})) (instance (instantiate $c))"), 1),
            (
                format!(
                    "{module} (component $c (component $d {start}) (instance (instantiate $d))) (instance (instantiate $c))"
                ),
                1,
            ),
            (format!("{component} (component $d (instance (instantiate $c))) (instance (instantiate $d))"), 2),
            (format!("(core module) {module} (export $e \"e\" (core module $m)) (core instance (instantiate $e))"), 1),
        ] {
            assert_eq!(weigh(&text), Ok(Weight { types: 0, instance: times * one }), "{text}");
        }
    }

    #[test]
    fn what_nobody_knows_the_weight_of_is_refused() {
        for text in [
            "(import \"m\" (core module $m)) (core instance (instantiate $m))",
            "(component (import \"c\" (component $c)) (instance (instantiate $c)))",
            "(component $c (core module $m) (export \"m\" (core module $m))) (instance $i (instantiate $c)) (alias export $i \"m\" (core module $n))",
        ] {
            assert_eq!(weigh(text), Err(unknown().to_string()), "{text}");
        }
    }

    #[test]
    fn what_weighs_too_much_is_refused_with_how_much() {
        let globals = "(global i64 (i64.const 0))".repeat(2000);
        let heavy = format!("(core module $m {globals}) {}", "(core instance (instantiate $m))".repeat(200));
        assert_eq!(
            weigh(&heavy),
            Err("it has 19404800 bytes of memory for the globals, imports and table entries of each of its instances; at most 16777216 are compiled".to_owned())
        );
        let types = format!("(core module {})", "(type (func (param i32)))".repeat(30_000));
        let refused = weigh(&types).unwrap_err();
        assert!(refused.ends_with("bytes of memory for its types; at most 16777216 are compiled"), "{refused}");
    }
}
