//! Which names a component answers to, compared with its manifest when it is loaded.

use std::error::Error as _;
use std::fs;

use capstan::plugin::Plugin;
use capstan::plugin::engine::{Engine, Pool};
use capstan::plugin::loader::{CodeCache, Error};
use capstan_core::guest::{Cause, Guest as _, Names};
use capstan_core::manifest::{Operator, parse};
use tempfile::TempDir;

use crate::guests::Guest;
use crate::runs::script;

const RECONCILE: &str =
    r#"(func (export "capstan:operator/reconciler@0.1.0#reconcile") (param i32 i32) (result i32) i32.const 1024)"#;
const DESIRED: &str =
    r#"(func (export "capstan:operator/dependent@0.1.0#desired") (param i32 i32 i32 i32) (result i32) i32.const 1024)"#;
const WORLD: &str = "export capstan:operator/reconciler@0.1.0; export capstan:operator/dependent@0.1.0; export capstan:operator/description@0.1.0;";

/// Where the answer of `describe` is.
const AT: usize = 16 << 10;

/// An entry of a description: the interface, and its names; none if they are open.
type Entry<'a> = (&'a str, Option<&'a [&'a str]>);

/// Returns a component that describes itself so.
fn described(entries: &[Entry<'_>]) -> Vec<u8> {
    described_by(DESIRED, entries)
}

/// The same with this function for desired states.
fn described_by(desired: &str, entries: &[Entry<'_>]) -> Vec<u8> {
    let mut memory = vec![0; 12 + 32 * entries.len()];
    let put = |memory: &mut Vec<u8>, at: usize, number: usize| {
        let number = u32::try_from(number).unwrap();
        memory[at..at + 4].copy_from_slice(&number.to_le_bytes());
    };
    let text = |memory: &mut Vec<u8>, at: usize, text: &str| {
        let end = memory.len();
        memory.extend(text.as_bytes());
        put(memory, at, AT + end);
        put(memory, at + 4, text.len());
    };
    put(&mut memory, 4, AT + 12);
    put(&mut memory, 8, entries.len());
    for (number, (exported, names)) in entries.iter().enumerate() {
        let at = 12 + 32 * number;
        text(&mut memory, at, exported);
        let Some(names) = names else { continue };
        put(&mut memory, at + 20, 1);
        memory.resize(memory.len().next_multiple_of(4), 0);
        let list = memory.len();
        put(&mut memory, at + 24, AT + list);
        put(&mut memory, at + 28, names.len());
        memory.resize(list + 8 * names.len(), 0);
        for (place, name) in names.iter().enumerate() {
            text(&mut memory, list + 8 * place, name);
        }
    }
    let bytes = memory.iter().fold(String::new(), |text, byte| text + &format!("\\{byte:02x}"));
    let describe = format!("i32.const {AT}");
    component(desired, &describe, &format!("(data (i32.const {AT}) \"{bytes}\")"))
}

/// Returns a component that does this to describe itself.
fn describing(describe: &str, more: &str) -> Vec<u8> {
    component(DESIRED, describe, more)
}

fn component(desired: &str, describe: &str, more: &str) -> Vec<u8> {
    let text = format!(
        "{RECONCILE}\n{desired}\n{more}\n(func (export \"capstan:operator/description@0.1.0#describe\") (result i32) {describe})"
    );
    Guest { world: WORLD, text: &text, ..Guest::default() }.build()
}

/// Writes a component and a manifest with a dependent `config-map`.
fn folder(wasm: &[u8], fields: &str) -> (TempDir, Operator) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("guest.wasm"), wasm).unwrap();
    let manifest = format!(
        "apiVersion: capstan.dev/v1alpha1
kind: Operator
metadata: {{ name: web }}
spec:
  plugins: {{ guest: {{ component: {{ path: guest.wasm }}{fields} }} }}
  controllers:
    web:
      plugin: guest
      primary: {{ apiVersion: sample.dev/v1, kind: Page }}
      workflow:
        dependents:
          config-map: {{ apiVersion: v1, kind: ConfigMap }}
"
    );
    let file = folder.path().join("web.yaml");
    fs::write(&file, &manifest).unwrap();
    let operator = parse(&manifest, &file).unwrap_or_else(|errors| panic!("{errors}")).remove(0);
    (folder, operator)
}

async fn load(wasm: &[u8], fields: &str) -> Result<Plugin, (&'static str, String)> {
    let (step, text, _) = match loaded(wasm, fields).await {
        Ok(plugin) => return Ok(plugin),
        Err(refused) => refused,
    };
    Err((step, text))
}

/// Loads a component; of one that is refused, returns the step, the error with its cause, and how it is told.
async fn loaded(wasm: &[u8], fields: &str) -> Result<Plugin, (&'static str, String, String)> {
    let (folder, operator) = folder(wasm, fields);
    let engine = Engine::new(Pool { instances: 4 }).unwrap();
    let loaded = Plugin::load(&engine, &CodeCache::none(), &operator, "guest").await;
    loaded.map_err(|error: Error| {
        let causes = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        let shown = |text: &str| text.replace(&format!("{}/", folder.path().display()), "");
        (error.step(), shown(&format!("{error}{causes}")), shown(&error.told()))
    })
}

// LC-15
#[tokio::test]
async fn a_component_that_lacks_a_name_of_the_manifest_is_refused_with_line_and_remedy() {
    let refused = loaded(&described(&[("dependent", Some(&["configmap", "quota"])), ("reconciler", None)]), "").await;
    let (step, text, told) = refused.err().unwrap();
    assert_eq!((step, &told), ("check", &text));
    assert_eq!(
        text,
        "check guest.wasm: it does not answer to all names that the manifest uses:

web.yaml:12:11: spec.controllers.web.workflow.dependents.config-map: the component has no desired state for `config-map`; did you mean `configmap`?
   |
12 |           config-map: { apiVersion: v1, kind: ConfigMap }
   |           ^^^^^^^^^^
   = it has: `configmap`, `quota`"
    );
    let (_, text) = load(&described(&[("dependent", Some(&["config-map"]))]), "").await.err().unwrap();
    assert!(
        text.contains("web.yaml:8:") && text.contains("the component has no reconciler for the controller `web`"),
        "{text}"
    );
}

// LC-15
#[tokio::test]
async fn a_component_that_has_all_names_or_leaves_them_open_is_loaded_and_so_is_one_that_says_nothing() {
    for (names, entry) in [(Some(&["config-map", "more"][..]), true), (None, false)] {
        let plugin = load(&described(&[("dependent", names), ("reconciler", None)]), "").await.unwrap();
        let description = plugin.description().unwrap();
        assert_eq!(matches!(description.entries[0].names, Names::These(_)), entry);
    }
    let silent = Guest {
        world: "export capstan:operator/reconciler@0.1.0; export capstan:operator/dependent@0.1.0;",
        text: &format!("{RECONCILE}\n{DESIRED}"),
        ..Guest::default()
    };
    assert_eq!(load(&silent.build(), "").await.unwrap().description(), None);
}

// LC-15
#[tokio::test]
async fn a_component_that_describes_what_it_does_not_have_fails_where_it_is_asked_for_that_and_nowhere_else() {
    let (ends, traps) = ("i32.const 1024)", "unreachable)");
    let lies = DESIRED.replace(ends, traps);
    let wasm = described_by(&lies, &[("dependent", Some(&["config-map"])), ("reconciler", None)]);
    let plugin = load(&wasm, "").await.unwrap();
    let failure = plugin.open(script()).desired("config-map", "{}").await.unwrap_err();
    assert_eq!(failure.cause, Cause::Trap);
    assert!(plugin.open(script()).reconcile("{}").await.is_ok());
}

// LC-15
#[tokio::test]
async fn a_description_that_fails_or_is_too_much_is_a_load_error_within_the_plugins_limits() {
    let none = 2048;
    let error = format!(
        "(i32.store8 (i32.const {none}) (i32.const 1)) (i32.store (i32.const {}) (i32.const 3072)) (i32.store (i32.const {}) (i32.const 2)) i32.const {none}",
        none + 4,
        none + 8
    );
    let many: Vec<String> = (0..1025).map(|n| format!("n{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (wasm, fields, expected) in [
        (describing(&error, "(data (i32.const 3072) \"no\")"), "", "describe guest.wasm: no"),
        (describing("unreachable", ""), "", "describe guest.wasm: the component trapped"),
        (
            describing("(loop $on (br $on)) unreachable", ""),
            ", limits: { timeout: 300ms }",
            "describe guest.wasm: the component took longer than 300ms (limits.timeout)",
        ),
        (
            describing("(call $grow (i32.const 8000000)) unreachable", ""),
            ", limits: { memory: 1Mi }",
            "describe guest.wasm: the component wanted more than 1Mi of memory (limits.memory)",
        ),
        (
            described(&[("dependent", Some(&many))]),
            "",
            "describe guest.wasm: the call could not be made, or its answer not be read: it describes 1025 names, and may describe 1024",
        ),
    ] {
        let (step, text) = load(&wasm, fields).await.err().unwrap();
        assert_eq!(step, "describe", "{text}");
        assert!(text.starts_with(expected), "{text}");
    }
}
