//! Components for tests: small ones out of WebAssembly text, and the samples that `cargo xtask plugins` has built.

use std::path::{Path, PathBuf};

use wit_component::{ComponentEncoder, StringEncoding};
use wit_parser::Resolve;

/// A component to be made.
pub struct Guest<'a> {
    /// Its world: lines of `import` and `export`.
    pub world: &'a str,
    /// What is changed in the contract before it is built against it.
    pub contract: &'a dyn Fn(String) -> String,
    /// Its functions, in WebAssembly text, beside memory and allocation.
    pub text: &'a str,
}

/// The world of a component that exports the reconciler.
pub const RECONCILER: &str = "export capstan:operator/reconciler@0.1.0;";

/// Of WASI what components for tests need.
const WASI: [(&str, &str); 3] = [
    ("http.wit", "package wasi:http@0.2.0; interface types { ask: func(); }"),
    (
        "io.wit",
        "package wasi:io@0.2.0;
        interface error { resource error; }
        interface streams {
            use error.{error};
            variant stream-error { last-operation-failed(error), closed }
            resource output-stream {
                blocking-write-and-flush: func(contents: list<u8>) -> result<_, stream-error>;
            }
        }",
    ),
    (
        "cli.wit",
        "package wasi:cli@0.2.0;
        interface stdout {
            use wasi:io/streams@0.2.0.{output-stream};
            get-stdout: func() -> output-stream;
        }",
    ),
];

impl Default for Guest<'_> {
    /// A reconciler that answers "nothing to do".
    fn default() -> Self {
        Self {
            world: RECONCILER,
            contract: &|text| text,
            text: r#"(func (export "capstan:operator/reconciler@0.1.0#reconcile") (param i32 i32) (result i32) i32.const 1024)"#,
        }
    }
}

impl Guest<'_> {
    /// Makes it. Answers of exports are built at 1024, which is zero: most often that means "nothing".
    pub fn build(&self) -> Vec<u8> {
        let module = format!(
            r#"(module
                {imports}
                (memory (export "memory") 1)
                (global $top (mut i32) (i32.const 4096))
                (func $grow (param $bytes i32)
                    (if (i32.gt_u (i32.add (global.get $top) (local.get $bytes)) (i32.mul (memory.size) (i32.const 65536)))
                        (then (drop (memory.grow (i32.add (i32.const 1) (i32.div_u (local.get $bytes) (i32.const 65536))))))))
                (func (export "cabi_realloc") (param i32 i32 i32) (param $size i32) (result i32)
                    (local $at i32)
                    (call $grow (local.get $size))
                    (local.set $at (global.get $top))
                    (global.set $top (i32.and (i32.add (i32.add (local.get $at) (local.get $size)) (i32.const 15)) (i32.const -16)))
                    (local.get $at))
                {text})"#,
            imports = self.text.lines().filter(|line| line.trim_start().starts_with("(import")).collect::<String>(),
            text = self
                .text
                .lines()
                .filter(|line| !line.trim_start().starts_with("(import"))
                .collect::<Vec<_>>()
                .join("\n"),
        );
        let mut module = wat::parse_str(&module).unwrap_or_else(|error| panic!("{error}\n{module}"));
        let mut resolve = Resolve::default();
        let contract = (self.contract)(contract());
        resolve.push_str("contract.wit", &contract).unwrap();
        for (name, wasi) in WASI {
            resolve.push_str(name, wasi).unwrap();
        }
        let world = format!("package test:guest; world guest {{ {} }}", self.world);
        let package = resolve.push_str("world.wit", &world).unwrap();
        let world = resolve.select_world(&[package], None).unwrap();
        wit_component::embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
        ComponentEncoder::default().module(&module).unwrap().encode().unwrap()
    }
}

/// Returns the contract in one text.
fn contract() -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit");
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "wit"));
    // The file with the package's name comes first.
    files.sort_by_key(|file| (!file.ends_with("types.wit"), file.clone()));
    files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect()
}

/// Returns the file of a sample.
pub fn sample(name: &str) -> PathBuf {
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../plugins");
    let dir = std::env::var_os("CAPSTAN_TEST_PLUGINS").map_or(built, PathBuf::from);
    let file = dir.join(format!("{name}.wasm"));
    assert!(
        file.exists(),
        "{} is missing: run `cargo xtask plugins`, or say in CAPSTAN_TEST_PLUGINS where it is",
        file.display()
    );
    file
}
