//! Holds what is charged for components to what they take: the worst of each sort is loaded and started, and its bytes are counted.
#![allow(clippy::unwrap_used, clippy::panic, clippy::cast_possible_truncation, reason = "a test may fail loudly")]

use std::fmt::Write as _;
use std::io::Write as _;

use capstan::plugin::weight::Weight;
use peak_alloc::PeakAlloc;
use wasmtime::component::{Component, Linker};
use wasmtime::{Config, Engine, ResourceLimiter, Store};

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// So many of something, each with its number.
fn many(count: usize, item: impl Fn(usize) -> String) -> String {
    (0..count).map(item).collect()
}

fn component(text: &str) -> Vec<u8> {
    wat::parse_str(format!("(component {text})")).unwrap()
}

/// A component that starts a module so many times.
fn started(times: usize, module: &str) -> Vec<u8> {
    let instances = "(core instance (instantiate $m))".repeat(times);
    component(&format!("(core module $m {module}) {instances}"))
}

/// A type of a function, unlike those with other numbers.
fn of_type(number: usize, parameters: usize) -> String {
    let kinds = ["i32", "i64", "f32", "f64"];
    let kind = |digit: usize| kinds.get((number >> (2 * digit.min(20))) % 4).unwrap();
    let parameters = many(parameters, |digit| format!(" {}", kind(digit)));
    format!("(type (func (param{parameters})))")
}

/// Core modules that take as much memory as is to be had for their size, by name.
fn worst_modules() -> Vec<(&'static str, Vec<u8>)> {
    let long = "n".repeat(5000);
    let elements = |kind: &str| many(50, |_| format!("(elem {kind} {})", "0 ".repeat(1000)));
    vec![
        ("types", started(1, &many(3000, |number| of_type(number, 12)))),
        ("long types", started(1, &many(100, |number| of_type(number, 1000)))),
        ("functions", started(1, &"(func)".repeat(20_000))),
        ("exports", started(1, &format!("(func){}", many(20_000, |number| format!("(export \"{number}\" (func 0))"))))),
        (
            "long names",
            started(1, &format!("(func){}", many(100, |number| format!("(export \"{number}{long}\" (func 0))")))),
        ),
        ("globals", started(3, &many(20_000, |number| format!("(global (mut i64) (i64.const {number}))")))),
        ("globals with functions", started(3, &format!("(func){}", "(global funcref (ref.func 0))".repeat(5000)))),
        ("segments", started(3, &"(data \"\")".repeat(20_000))),
        (
            "segments of a memory",
            started(3, &format!("(memory 1){}", many(5000, |at| format!("(data (i32.const {at}) \"a\")")))),
        ),
        ("elements", started(3, &format!("(func){}", elements("func")))),
        (
            "elements of a table",
            started(3, &format!("(table 60000 funcref) (func){}", elements("(i32.const 59000) func"))),
        ),
        (
            "one element at the end of each table",
            started(
                1,
                &format!(
                    "(func){}",
                    many(60, |table| format!("(table 1500 funcref)(elem (table {table}) (i32.const 1499) func 0)"))
                ),
            ),
        ),
    ]
}

/// A component that gives a function of the host to a module, again and again.
fn lowered() -> Vec<u8> {
    let imports = many(500, |number| format!("(import \"a\" \"f{number}\" (func (param i32)))"));
    let lowered = many(500, |number| format!("(core func $l{number} (canon lower (func $f)))"));
    let exported = many(500, |number| format!("(export \"f{number}\" (func $l{number}))"));
    let given = format!("(core instance (instantiate $m (with \"a\" (instance {exported}))))");
    component(&format!("(import \"f\" (func $f (param \"x\" u8))) (core module $m {imports}) {lowered} {given}"))
}

/// Components of many parts that do.
fn worst_components() -> Vec<(&'static str, Vec<u8>)> {
    let functions = |count| many(count, |number| format!("(export \"f{number}\" (func (param \"a{number}\" string)))"));
    let lifted = |number| {
        format!("(func $l{number} (canon lift (core func $i \"f\"))) (export \"e{number}\" (func $l{number}))")
    };
    let nested = "(component (core module $m) (core instance (instantiate $m)) (core instance (instantiate $m)))";
    vec![
        ("modules", component(&many(200, |_| "(core module (func (export \"a\")) (memory 1))".to_owned()))),
        ("instances", started(200, "(func (export \"a\"))")),
        (
            "components",
            component(&format!(
                "(component $c {nested} (instance (instantiate 0)) (instance (instantiate 0))) {}",
                "(instance (instantiate $c))".repeat(50)
            )),
        ),
        (
            "one type of instances, imported often",
            component(&format!(
                "(type $t (instance {})) {}",
                functions(100),
                many(100, |number| format!("(import \"i{number}\" (instance (type $t)))"))
            )),
        ),
        ("lowered functions", lowered()),
        (
            "lifted functions",
            component(&format!(
                "(core module $m (func (export \"f\"))) (core instance $i (instantiate $m)) {}",
                many(5000, lifted)
            )),
        ),
        (
            "resources",
            component(&many(5000, |number| {
                format!("(type $r{number} (resource (rep i32))) (core func (canon resource.new $r{number}))")
            })),
        ),
        ("imported types", component(&many(3000, |number| format!("(import \"r{number}\" (type (sub resource)))")))),
    ]
}

/// Bytes of memory, as long as a component is loaded, and for an instance of it; none of that if it can't be started alone.
struct Measured {
    charged: [u64; 2],
    taken: [u64; 2],
}

/// The elements of tables, which are charged when those grow.
struct Elements(usize);

impl ResourceLimiter for Elements {
    fn memory_growing(&mut self, _: usize, _: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(true)
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        self.0 += desired - current;
        Ok(true)
    }
}

#[allow(unsafe_code, reason = "the code was compiled just now")]
fn measure(engine: &Engine, wasm: &[u8]) -> Measured {
    let weight = Weight::of(wasm).unwrap();
    let mut code = tempfile::NamedTempFile::new().unwrap();
    code.write_all(&engine.precompile_component(wasm).unwrap()).unwrap();
    let charged = weight.loaded(code.as_file()).unwrap().unwrap();
    let since = |before: usize| ALLOCATED.current_usage().saturating_sub(before) as u64;
    let before = ALLOCATED.current_usage();
    let component = unsafe { Component::deserialize_file(engine, code.path()) }.unwrap();
    let loaded = since(before);
    let ready = Linker::<Elements>::new(engine).instantiate_pre(&component);
    let before = ALLOCATED.current_usage();
    let mut store = Store::new(engine, Elements(0));
    store.set_epoch_deadline(1);
    store.limiter(|elements| elements);
    let instance = ready.ok().map(|ready| ready.instantiate(&mut store).unwrap());
    let tables = store.data().0 as u64 * 8;
    let started = if instance.is_some() { since(before).saturating_sub(tables) } else { 0 };
    Measured { charged: [charged, weight.instance], taken: [loaded, started] }
}

/// What any component and any store takes, however small it is.
const LEAST: u64 = 64 << 10;

#[test]
fn no_component_takes_more_memory_than_it_is_charged_for() {
    let engine = Engine::new(Config::new().epoch_interruption(true).concurrency_support(false)).unwrap();
    // What all have in common is made with the first.
    measure(&engine, &component(""));
    let mut wrong = String::new();
    for (name, wasm) in worst_modules().into_iter().chain(worst_components()) {
        let Measured { charged, taken } = measure(&engine, &wasm);
        if (0..2).any(|at| taken.get(at).unwrap().saturating_sub(LEAST) > *charged.get(at).unwrap()) {
            writeln!(wrong, "{name}: charged {charged:?}, taken {taken:?}").unwrap();
        }
    }
    assert_eq!(wrong, "");
}
