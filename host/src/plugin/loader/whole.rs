//! Whether a file is a component, and there to its end.

use std::path::Path;

use wasmparser::BinaryReader;

use super::error::Error;

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

/// Looks at what a component begins with, and whether it is there to its end.
pub(super) fn verify(wasm: &[u8], path: &Path) -> Result<(), Error> {
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
fn sections_end(bytes: &[u8]) -> bool {
    let mut reader = BinaryReader::new(bytes, 0);
    while !reader.eof() {
        if reader.read_u8().and_then(|_id| reader.read_reader()).is_err() {
            return false;
        }
    }
    true
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
}
