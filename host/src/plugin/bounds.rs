//! Decides whether a component is small enough to be compiled: the compiler's time and memory grow faster than what it is given.
//!
//! The bounds are several times what interpreters in WebAssembly have, whose main loops are the largest functions that
//! anybody means. They keep out what is made to be expensive; what passes them is compiled with limits of its own
//! (`compiler.rs`).

use std::fmt;

use wasmparser::{BinaryReaderError, ElementItems, Encoding, FunctionBody, Operator, Parser, Payload, TypeRef};

/// Why a component is not compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It cannot be read to its end.
    #[error("{0}")]
    Malformed(String),
    /// Something in it is too large.
    #[error("{0}")]
    TooLarge(Excess),
}

/// What is too large, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excess {
    /// Where; none if it is the component as a whole.
    pub at: Option<Function>,
    /// What was measured.
    pub measure: Measure,
    /// How much there is, as far as it was counted.
    pub found: u64,
}

/// A function of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// Counts the core modules of the component, from 0.
    pub module: u64,
    /// Its index in the module, as in a disassembly.
    pub index: u64,
}

/// What is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Bytes of the component.
    Bytes,
    /// Bytes of a function.
    Body,
    /// Instructions of a function.
    Operators,
    /// Local variables of a function.
    Locals,
    /// Places of a function to which it may branch.
    Branches,
    /// Local variables × branches of a function: what the compiler looks at to find which value is where.
    Spread,
    /// The same of all functions together.
    AllSpread,
    /// Local variables of all functions together.
    AllLocals,
    /// Functions.
    Functions,
    /// Entries of all sections, beside code: types, imports, exports and so on.
    Entries,
    /// Entries of tables.
    Elements,
    /// Core modules.
    Modules,
    /// Components in the component.
    Components,
    /// Components in components in components.
    Depth,
    /// Bytes of memory for the types of core modules, as long as it is loaded.
    Types,
    /// The same for all else that describes it.
    Description,
    /// Bytes of memory for what describes one instance.
    Instance,
}

/// What has been counted so far.
#[derive(Default)]
struct Count {
    modules: u64,
    components: u64,
    functions: u64,
    entries: u64,
    elements: u64,
    locals: u64,
    spread: u64,
    /// The modules and components that are being read, the innermost last.
    open: Vec<Open>,
}

/// A module or component that is being read.
#[derive(Clone, Copy)]
struct Open {
    /// Counts the modules.
    module: u64,
    /// The index of its next function.
    next: u64,
}

/// Decides whether these bytes may be given to the compiler. Looks at each byte once.
///
/// # Errors
/// The first thing that is too large, or cannot be read.
pub fn check(wasm: &[u8]) -> Result<(), Refused> {
    Measure::Bytes.holds(wasm.len() as u64)?;
    let mut count = Count::default();
    for payload in Parser::new(0).parse_all(wasm) {
        count.take(&payload?)?;
    }
    Ok(())
}

impl Count {
    #[expect(clippy::wildcard_enum_match_arm, reason = "all other sections are counted")]
    fn take(&mut self, payload: &Payload<'_>) -> Result<(), Refused> {
        match payload {
            Payload::Version { encoding, .. } => self.begin(*encoding)?,
            Payload::End(_) => drop(self.open.pop()),
            Payload::ImportSection(section) => {
                for import in section.clone().into_imports() {
                    self.entries(1)?;
                    if let (TypeRef::Func(_) | TypeRef::FuncExact(_), Some(open)) = (import?.ty, self.open.last_mut()) {
                        open.next += 1;
                    }
                }
            }
            Payload::ElementSection(section) => {
                self.entries(section.count())?;
                for element in section.clone() {
                    self.elements += u64::from(match element?.items {
                        ElementItems::Functions(items) => items.count(),
                        ElementItems::Expressions(_, items) => items.count(),
                    });
                    Measure::Elements.holds(self.elements)?;
                }
            }
            Payload::CodeSectionEntry(body) => self.function(body)?,
            payload => self.entries(entries(payload))?,
        }
        Ok(())
    }

    fn begin(&mut self, encoding: Encoding) -> Result<(), Refused> {
        let module = self.modules;
        match encoding {
            Encoding::Module => {
                self.modules += 1;
                Measure::Modules.holds(self.modules)?;
            }
            Encoding::Component => {
                self.components += 1;
                Measure::Components.holds(self.components)?;
            }
        }
        self.open.push(Open { module, next: 0 });
        Measure::Depth.holds(self.open.len() as u64)
    }

    fn entries(&mut self, more: u32) -> Result<(), Refused> {
        self.entries += u64::from(more);
        Measure::Entries.holds(self.entries)
    }

    fn function(&mut self, body: &FunctionBody<'_>) -> Result<(), Refused> {
        self.functions += 1;
        Measure::Functions.holds(self.functions)?;
        let at = self.open.last_mut().map(|open| {
            open.next += 1;
            Function { module: open.module, index: open.next - 1 }
        });
        let within = |measure: Measure, found| measure.holds_at(at, found);
        within(Measure::Body, body.as_bytes().len() as u64)?;
        let mut locals = 0;
        for declared in body.get_locals_reader()? {
            locals += u64::from(declared?.0);
            within(Measure::Locals, locals)?;
        }
        let (mut operators, mut branches) = (0, 1);
        let mut reader = body.get_operators_reader()?;
        while !reader.eof() {
            operators += 1;
            branches += targets(&reader.read()?);
        }
        within(Measure::Operators, operators)?;
        within(Measure::Branches, branches)?;
        within(Measure::Spread, branches * locals)?;
        self.locals += locals;
        self.spread += branches * locals;
        Measure::AllLocals.holds(self.locals)?;
        Measure::AllSpread.holds(self.spread)
    }
}

/// Returns how many blocks an instruction gives the compiler.
#[expect(clippy::wildcard_enum_match_arm, reason = "the other hundreds give none")]
fn targets(operator: &Operator<'_>) -> u64 {
    match operator {
        Operator::Block { .. }
        | Operator::Else
        | Operator::Br { .. }
        | Operator::BrIf { .. }
        | Operator::BrOnNull { .. }
        | Operator::BrOnNonNull { .. }
        | Operator::BrOnCast { .. }
        | Operator::BrOnCastFail { .. } => 1,
        Operator::If { .. } | Operator::Loop { .. } => 2,
        Operator::TryTable { try_table } => 1 + try_table.catches.len() as u64,
        Operator::BrTable { targets } => 1 + u64::from(targets.len()),
        _ => 0,
    }
}

/// Returns how many entries a section says it has.
#[expect(clippy::wildcard_enum_match_arm, reason = "the others have none, or are counted elsewhere")]
fn entries(payload: &Payload<'_>) -> u32 {
    match payload {
        Payload::TypeSection(section) => section.count(),
        Payload::FunctionSection(section) => section.count(),
        Payload::TableSection(section) => section.count(),
        Payload::MemorySection(section) => section.count(),
        Payload::TagSection(section) => section.count(),
        Payload::GlobalSection(section) => section.count(),
        Payload::ExportSection(section) => section.count(),
        Payload::DataSection(section) => section.count(),
        Payload::InstanceSection(section) => section.count(),
        Payload::CoreTypeSection(section) => section.count(),
        Payload::ComponentInstanceSection(section) => section.count(),
        Payload::ComponentAliasSection(section) => section.count(),
        Payload::ComponentTypeSection(section) => section.count(),
        Payload::ComponentCanonicalSection(section) => section.count(),
        Payload::ComponentImportSection(section) => section.count(),
        Payload::ComponentExportSection(section) => section.count(),
        _ => 0,
    }
}

impl Measure {
    /// Returns the most that there may be.
    pub fn bound(self) -> u64 {
        match self {
            Self::Bytes => crate::read::COMPONENT,
            Self::Body => 2 << 20,
            Self::Spread => 16_000_000,
            Self::AllSpread => 256_000_000,
            Self::AllLocals => 5_000_000,
            Self::Branches | Self::Functions => 200_000,
            Self::Locals => 20_000,
            Self::Operators | Self::Entries | Self::Elements => 1_000_000,
            Self::Modules | Self::Components => 200,
            Self::Depth => 20,
            Self::Types | Self::Instance => 16 << 20,
            Self::Description => 32 << 20,
        }
    }

    /// Whether there is no more of it in a component.
    ///
    /// # Errors
    /// How much more there is.
    pub(super) fn within(self, found: u64) -> Result<(), Excess> {
        let is_within = found <= self.bound();
        is_within.then_some(()).ok_or(Excess { at: None, measure: self, found })
    }

    pub(super) fn holds(self, found: u64) -> Result<(), Refused> {
        self.within(found).map_err(Refused::TooLarge)
    }

    fn holds_at(self, at: Option<Function>, found: u64) -> Result<(), Refused> {
        self.within(found).map_err(|excess| Refused::TooLarge(Excess { at, ..excess }))
    }
}

impl From<BinaryReaderError> for Refused {
    fn from(error: BinaryReaderError) -> Self {
        Self::Malformed(error.to_string())
    }
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, measure, found } = self;
        match at {
            Some(Function { module, index }) => {
                write!(f, "function {index} of core module {module} has ")?;
            }
            None => write!(f, "it has ")?,
        }
        write!(f, "{found} {measure}; at most {} are compiled", measure.bound())
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bytes | Self::Body => "bytes",
            Self::Operators => "instructions",
            Self::Locals => "local variables",
            Self::Branches => "branches",
            Self::Spread => "local variables × branches",
            Self::AllSpread => "local variables × branches in all functions together",
            Self::AllLocals => "local variables in all functions together",
            Self::Functions => "functions",
            Self::Entries => "types, imports, exports and other entries",
            Self::Elements => "entries of tables",
            Self::Modules => "core modules",
            Self::Components => "components in it",
            Self::Depth => "levels of components",
            Self::Types => "bytes of memory for its types",
            Self::Description => "bytes of memory for its names, imports, exports and what else describes it",
            Self::Instance => "bytes of memory for the globals, imports and table entries of each of its instances",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: &[u8] = b"\0asm\x01\0\0\0";

    fn number(mut n: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while n >= 0x80 {
            bytes.push(u8::try_from(n & 0x7f).unwrap() | 0x80);
            n >>= 7;
        }
        bytes.push(u8::try_from(n).unwrap());
        bytes
    }

    fn section(id: u8, content: &[u8]) -> Vec<u8> {
        [&[id][..], &number(content.len()), content].concat()
    }

    /// A function with so many local variables and this code.
    fn function(locals: usize, code: &[u8]) -> Vec<u8> {
        let body = [&[1][..], &number(locals), b"\x7f", code, b"\x0b"].concat();
        [number(body.len()), body].concat()
    }

    /// A module with this function so many times, after an imported one.
    fn module(count: usize, function: &[u8]) -> Vec<u8> {
        let content = |count: usize, item: &[u8]| [number(count), item.repeat(count)].concat();
        [
            MODULE.to_vec(),
            section(1, b"\x01\x60\0\0"),
            section(2, b"\x01\x01a\x01b\0\0"),
            section(3, &content(count, b"\0")),
            section(10, &content(count, function)),
        ]
        .concat()
    }

    fn component(parts: &[Vec<u8>]) -> Vec<u8> {
        [b"\0asm\x0d\0\x01\0".to_vec(), parts.concat()].concat()
    }

    fn with(module: &[u8]) -> Vec<u8> {
        component(&[section(1, &self::module(0, b"")), section(1, module)])
    }

    fn blocks(count: usize) -> Vec<u8> {
        b"\x02\x40\x0c\0\x0b".repeat(count)
    }

    fn excess(wasm: &[u8]) -> Excess {
        match check(wasm) {
            Err(Refused::TooLarge(excess)) => excess,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_function_in_which_everything_may_be_everywhere_is_named() {
        let bomb = |n| with(&module(2, &function(n, &blocks(n))));
        assert_eq!(check(&bomb(100)), Ok(()));
        assert_eq!(
            excess(&bomb(7_000)).to_string(),
            "function 1 of core module 1 has 98007000 local variables × branches; at most 16000000 are compiled"
        );
    }

    #[test]
    fn each_bound_is_kept() {
        let one = |function: &[u8]| with(&module(1, function));
        let table = [b"\x41\0\x0e".to_vec(), number(200_000), vec![0; 200_001]].concat();
        let nothing = function(0, b"");
        let elements = [b"\x01\x01\0".to_vec(), number(1_000_001), vec![0; 1_000_001]].concat();
        let elements = [MODULE.to_vec(), section(9, &elements)].concat();
        let globals = [number(1_000_001), b"\x7f\0\x41\0\x0b".repeat(1_000_001)].concat();
        let globals = [MODULE.to_vec(), section(6, &globals)].concat();
        let nested = (0..21).fold(component(&[]), |inner, _| component(&[section(4, &inner)]));
        for (wasm, measure) in [
            (one(&function(20_001, b"")), Measure::Locals),
            (one(&function(0, &table)), Measure::Branches),
            (one(&function(0, &vec![1; 1_000_001])), Measure::Operators),
            (one(&function(0, &vec![1; (2 << 20) + 1])), Measure::Body),
            (with(&elements), Measure::Elements),
            (with(&module(200_001, &nothing)), Measure::Functions),
            (with(&globals), Measure::Entries),
            (component(&vec![section(1, &module(0, b"")); 201]), Measure::Modules),
            (component(&vec![section(4, &component(&[])); 200]), Measure::Components),
            (nested, Measure::Depth),
            (with(&module(251, &function(20_000, b""))), Measure::AllLocals),
            (with(&module(17, &function(4_000, &blocks(1_950)))), Measure::AllSpread),
            (vec![0; (64 << 20) + 1], Measure::Bytes),
        ] {
            let excess = excess(&wasm);
            assert_eq!(excess.measure, measure, "{excess}");
            assert!(excess.found > measure.bound(), "{excess}");
        }
    }

    #[test]
    fn what_is_damaged_anywhere_is_told_with_its_place_and_nothing_panics() {
        let whole = with(&module(2, &function(3, &blocks(3))));
        assert_eq!(check(&whole), Ok(()));
        for at in 0..whole.len() {
            for byte in 0..=255 {
                let mut damaged = whole.clone();
                damaged[at] = byte;
                drop(check(&damaged));
            }
        }
        let refused = check(&whole[..whole.len() - 3]).unwrap_err().to_string();
        assert!(refused.contains("offset 0x"), "{refused}");
    }
}
