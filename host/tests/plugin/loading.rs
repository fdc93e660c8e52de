use std::collections::BTreeMap;
use std::error::Error as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use capstan::plugin::bounds::Measure;
use capstan::plugin::engine::{Engine, Pool};
use capstan::plugin::loader::{CodeCache, Error};
use capstan::plugin::weight::Weight;
use capstan::plugin::{Component as _, Plugin};
use capstan_core::guest::{Guest as _, Interface};
use capstan_core::manifest::filters::Question;
use capstan_core::manifest::needs::{Need, needs};
use capstan_core::manifest::polls::{Each, Polled};
use capstan_core::manifest::{
    Condition, Dependent, External, Filters, Keep, Limits, Manage, Mapper, Matching, Secondaries, Source, Stored,
    TriggeredBy,
};
use capstan_core::object::pointer::Pointer;

use crate::asks::Lines;
use crate::guests::{Guest, RECONCILER, sample};
use crate::runs::{gvk, operator, read_only, write};

fn engine() -> Engine {
    Engine::new(Pool { instances: 4 }).unwrap()
}

async fn load(wasm: &[u8]) -> Result<Plugin, Error> {
    let dir = tempfile::tempdir().unwrap();
    let operator = operator(&write(&dir, "guest", wasm), Limits::default());
    Plugin::load(&engine(), &CodeCache::none(), &operator, "guest").await
}

/// Returns the error's text with its causes, and without the folder.
async fn refusal(wasm: &[u8]) -> String {
    let Err(error) = load(wasm).await else { panic!("it was loaded") };
    refused(&error)
}

fn refused(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    assert!(text.starts_with(error.step()), "{}: {text}", error.step());
    let start = text.find("/guest.wasm").unwrap();
    let dir = text[..start].rfind(' ').map_or(0, |at| at + 1);
    format!("{}{}", &text[..dir], &text[start + 1..])
}

#[tokio::test]
async fn what_is_no_component_is_refused() {
    let whole = Guest::default().build();
    let module = wat::parse_str("(module)").unwrap();
    let mut garbage = whole.clone();
    garbage[8] = 0x7f;
    let cut = &whole[..whole.len() - 3];
    let cut_off = |length: usize| {
        format!(
            "verify guest.wasm: it is cut off: it ends within a section, after {length} bytes; copy it again, whole"
        )
    };
    let other = r#"verify guest.wasm: it is not WebAssembly, because it begins with "apiV"; it should be a component, which begins with "\0asm""#;
    for (wasm, expected) in [
        (&b"apiVersion: v1\nkind: Operator"[..], other.to_owned()),
        (b"", "verify guest.wasm: it is empty; it should be a WebAssembly component".to_owned()),
        (
            &module,
            "verify guest.wasm: it is a core module, not a component: build it for wasm32-wasip2, or wrap it with `wasm-tools component new`"
                .to_owned(),
        ),
        (&whole[..6], cut_off(6)),
        (&whole[..3], cut_off(3)),
        (cut, cut_off(cut.len())),
    ] {
        assert_eq!(refusal(wasm).await, expected);
    }
    let text = refusal(&garbage).await;
    assert!(
        text.starts_with("compile guest.wasm: it is not a valid component: ") && text.contains("offset 0xa"),
        "{text}"
    );
}

#[tokio::test]
async fn a_file_that_is_not_there_is_named() {
    let operator = operator("/nowhere/guest.wasm".as_ref(), Limits::default());
    let error = Plugin::load(&engine(), &CodeCache::none(), &operator, "guest").await.err().unwrap();
    assert_eq!(refused(&error), "read component guest.wasm: No such file or directory (os error 2)");
    let error = Plugin::load(&engine(), &CodeCache::none(), &operator, "other").await.err().unwrap();
    assert_eq!(error.step(), "find");
    assert_eq!(error.to_string(), "find plugin \"other\": the manifest has none of that name under spec.plugins");
}

/// Returns a reconciler for another version of the contract, which asks one function of an import.
fn of_version(version: &str, import: &str, function: &str, more: &dyn Fn(String) -> String) -> Vec<u8> {
    let world = format!("import capstan:operator/{import}@{version}; export capstan:operator/reconciler@{version};");
    let text = format!(
        r#"(import "capstan:operator/{import}@{version}" "{function}" (func $ask (result i32)))
        (func (export "capstan:operator/reconciler@{version}#reconcile") (param i32 i32) (result i32) (drop (call $ask)) i32.const 1024)"#
    );
    let contract = |text: String| more(text.replace("operator@0.1.0;", &format!("operator@{version};")));
    Guest { world: &world, contract: &contract, text: &text }.build()
}

// Contract, rule 7.
#[tokio::test]
async fn another_contract_is_refused_and_a_later_one_by_what_it_uses() {
    let as_is = |text: String| text;
    let function = |text: String| text.replace("next-imminent: func", "tenant: func() -> bool; next-imminent: func");
    let interface = |text: String| format!("{text}\ninterface tracing {{ enabled: func() -> bool; }}");
    let refused = refusal(&of_version("0.2.0", "context", "next-imminent", &as_is)).await;
    assert_eq!(
        refused,
        "check guest.wasm: it was built for capstan:operator 0.2.0, this daemon offers 0.1.0; build it with an SDK for 0.1.0"
    );
    let later = load(&of_version("0.1.7", "context", "next-imminent", &as_is)).await.unwrap();
    assert!(later.exports(Interface::Reconciler));
    let refused = refusal(&of_version("0.1.7", "context", "tenant", &function)).await;
    assert_eq!(
        refused,
        "check guest.wasm: it imports what this daemon does not offer: `context.tenant` of capstan:operator 0.1.7, which has more than 0.1.0"
    );
    let refused = refusal(&of_version("0.1.7", "tracing", "enabled", &interface)).await;
    assert_eq!(
        refused,
        "check guest.wasm: it imports what this daemon does not offer: the interface `tracing` of capstan:operator 0.1.7, which has more \
         than 0.1.0"
    );
}

#[tokio::test]
async fn an_import_with_another_signature_is_refused() {
    let changed = |text: String| text.replace("next-imminent: func() -> bool", "next-imminent: func() -> u32");
    let text = refusal(&of_version("0.1.0", "context", "next-imminent", &changed)).await;
    assert_eq!(
        text,
        "link guest.wasm: it does not fit this daemon: component imports instance `capstan:operator/context@0.1.0`, but a matching \
         implementation was not found in the linker: instance export `next-imminent` has the wrong type: type mismatch with \
         results: expected `bool` found `u32`"
    );
}

#[tokio::test]
async fn there_is_no_network() {
    let world = format!("import wasi:http/types@0.2.0; {RECONCILER}");
    let text = format!("(import \"wasi:http/types@0.2.0\" \"ask\" (func))\n{}", Guest::default().text);
    let wasm = Guest { world: &world, text: &text, ..Guest::default() }.build();
    assert_eq!(
        refusal(&wasm).await,
        "check guest.wasm: it imports what this daemon does not offer: `wasi:http/types@0.2.0`: the manifest permits it no \
         host; add those that it needs to `capabilities.http`, build without it, or stub it out"
    );
}

#[tokio::test]
async fn an_export_with_another_signature_is_refused() {
    let contract = |text: String| text.replace("reconcile: func(primary: json)", "reconcile: func(primary: u32)");
    let text =
        r#"(func (export "capstan:operator/reconciler@0.1.0#reconcile") (param i32) (result i32) i32.const 1024)"#;
    let text = refusal(&Guest { contract: &contract, text, ..Guest::default() }.build()).await;
    assert_eq!(
        text,
        "check guest.wasm: it exports `reconciler` otherwise than capstan:operator 0.1.0 says: failed to convert function to given type: \
         type mismatch with parameters: expected `string` found `u32`"
    );
    let contract = |text: String| text.replace("match: func(name: string, ", "match: func(");
    let world = "export capstan:operator/matcher@0.1.0;";
    let text = r#"(func (export "capstan:operator/matcher@0.1.0#match") (param i32 i32 i32 i32 i32 i32) (result i32) i32.const 1024)"#;
    let text = refusal_of_any(&Guest { world, contract: &contract, text }.build()).await;
    assert_eq!(
        text,
        "check guest.wasm: it exports `matcher` otherwise than capstan:operator 0.1.0 says: failed to convert function to given type: type \
         mismatch with parameters: expected 4-tuple, found 3-tuple"
    );
}

/// The same for a component that need not reconcile.
async fn refusal_of_any(wasm: &[u8]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut operator = operator(&write(&dir, "guest", wasm), Limits::default());
    operator.controllers.clear();
    let error = Plugin::load(&engine(), &CodeCache::none(), &operator, "guest").await.err().unwrap().to_string();
    error.replace(&format!("{}/", dir.path().display()), "")
}

#[tokio::test]
async fn all_missing_exports_are_named_with_the_field_that_needs_them() {
    let dir = tempfile::tempdir().unwrap();
    let wasm = Guest {
        world: "export capstan:operator/cleaner@0.1.0;",
        text: r#"(func (export "capstan:operator/cleaner@0.1.0#cleanup") (param i32 i32) (result i32) i32.const 1024)"#,
        ..Guest::default()
    };
    let mut operator = operator(&write(&dir, "guest", &wasm.build()), Limits::default());
    let controller = operator.controllers.get_mut("web").unwrap();
    let mut configmap = read_only(gvk("v1", "ConfigMap"));
    configmap.manage = Manage::default();
    configmap.matching = Matching::Export("same-data".into());
    configmap.conditions.ready_postcondition = Some(Condition::Export("ready".into()));
    controller.workflow.dependents.insert("configmap".into(), configmap);
    // BD-2: what is desired of a bulk that is only read is not asked.
    let many = Dependent { bulk: true, ..read_only(gvk("v1", "Secret")) };
    controller.workflow.dependents.insert("read".into(), many.clone());
    controller.workflow.dependents.insert("secrets".into(), Dependent { manage: Manage::default(), ..many });
    controller.externals.extend(externals());
    let asks = |on_add: &str| Filters { on_add: Some(Question::Export(on_add.into())), ..Filters::default() };
    controller.filters = asks("wanted");
    controller.sources.insert("maps".into(), mapped_by_exports(asks("visible")));
    let need = |interface, name: &str, field: &str| Need {
        interface,
        controller: "web".into(),
        name: (!name.is_empty()).then(|| name.into()),
        field: format!("spec.controllers.web.{field}"),
    };
    assert_eq!(
        needs(&operator, "guest"),
        [
            need(Interface::Reconciler, "", "plugin"),
            need(Interface::ResourcePoller, "domains", "sources.domains.pollEach"),
            need(Interface::Inbound, "hooks", "sources.hooks.inbound"),
            need(Interface::ResourcePoller, "hooks", "sources.hooks.inbound.fetch"),
            need(Interface::Poller, "themes", "sources.themes.poll"),
            need(Interface::Filter, "wanted", "filters.onAdd.export"),
            need(Interface::Mapper, "to-pages", "sources.maps.informer.mapper.export"),
            need(Interface::SecondaryMapper, "to-maps", "sources.maps.informer.secondaries.export"),
            need(Interface::Filter, "visible", "sources.maps.informer.filters.onAdd.export"),
            need(Interface::Dependent, "configmap", "workflow.dependents.configmap"),
            need(Interface::Matcher, "same-data", "workflow.dependents.configmap.match.export"),
            need(Interface::Condition, "ready", "workflow.dependents.configmap.readyPostcondition.export"),
            need(Interface::Bulk, "secrets", "workflow.dependents.secrets"),
        ]
    );
    let error = Plugin::load(&engine(), &CodeCache::none(), &operator, "guest").await.err().unwrap().to_string();
    assert_eq!(
        error.replace(&format!("{}/", dir.path().display()), ""),
        "check guest.wasm: it lacks exports that the manifest needs: `reconciler` (spec.controllers.web.plugin), `resource-poller` \
         (spec.controllers.web.sources.domains.pollEach), `inbound` (spec.controllers.web.sources.hooks.inbound), `resource-poller` \
         (spec.controllers.web.sources.hooks.inbound.fetch), `poller` (spec.controllers.web.sources.themes.poll), `filter` (spec.controllers.web.filters.onAdd.export), `mapper` (spec.controllers.web.sources.maps.informer.mapper.export), \
         `secondary-mapper` (spec.controllers.web.sources.maps.informer.secondaries.export), `filter` \
         (spec.controllers.web.sources.maps.informer.filters.onAdd.export), `dependent` \
         (spec.controllers.web.workflow.dependents.configmap), `matcher` \
         (spec.controllers.web.workflow.dependents.configmap.match.export), `condition` \
         (spec.controllers.web.workflow.dependents.configmap.readyPostcondition.export), `bulk` \
         (spec.controllers.web.workflow.dependents.secrets); it exports `cleaner`"
    );
}

/// Returns a source outside of the cluster of each kind.
fn externals() -> [(std::sync::Arc<str>, External); 3] {
    let each = Each { every: Some(Duration::from_secs(1)), first_after: Duration::ZERO, when: None, concurrency: 1 };
    let together = Polled::Together { every: Duration::from_secs(1) };
    [("domains", Polled::Each(each.clone())), ("hooks", Polled::Inbound(Some(each))), ("themes", together)].map(
        |(name, polled)| {
            let id = Pointer::parse("/id").unwrap();
            (name.into(), External { id, things: 1, memory: 1, filters: Filters::default(), polled })
        },
    )
}

/// Returns a source of config maps about which the component is asked.
fn mapped_by_exports(filters: Filters) -> Source {
    Source {
        gvk: gvk("v1", "ConfigMap"),
        cluster: None,
        namespaces: None,
        label_selector: None,
        field_selector: None,
        shard_selector: None,
        page_size: 500,
        keep: Keep::Whole,
        shared: true,
        start_priority: None,
        bounded: None,
        stored: Stored::Plain,
        mapper: Mapper::Export("to-pages".into()),
        secondaries: Some(Secondaries::Export("to-maps".into())),
        across_namespaces: false,
        filters,
        indexes: BTreeMap::new(),
    }
}

#[tokio::test]
async fn a_cleaner_that_would_never_be_called_is_refused_with_the_field_that_says_so() {
    // LC-5
    let dir = tempfile::tempdir().unwrap();
    let mut operator = operator(&write(&dir, "guest", &cleaner()), Limits::default());
    assert!(Plugin::load(&engine(), &CodeCache::none(), &operator, "guest").await.is_ok());
    operator.controllers.get_mut("web").unwrap().triggered_by = TriggeredBy::AllEvents;
    let error = Plugin::load(&engine(), &CodeCache::none(), &operator, "guest").await.err().unwrap();
    assert_eq!(error.step(), "check");
    let error = error.to_string();
    let said = "check guest.wasm: it exports what the manifest leaves no place for: `cleaner` (spec.controllers.web.triggerOnAllEvents)";
    assert!(error.replace(&format!("{}/", dir.path().display()), "").starts_with(said), "{error}");
}

#[tokio::test]
async fn a_component_that_does_not_start_is_refused() {
    let text = format!("(func $init unreachable) (start $init)\n{}", Guest::default().text);
    let text = refusal(&Guest { text: &text, ..Guest::default() }.build()).await;
    assert_eq!(text, "start guest.wasm: the component trapped: unreachable executed (in `init`)");
}

#[tokio::test]
async fn a_component_that_needs_more_memory_than_it_may_have_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { memory: 32 << 10, ..Limits::default() };
    let operator = operator(&write(&dir, "guest", &Guest::default().build()), limits);
    let error = Plugin::load(&engine(), &CodeCache::none(), &operator, "guest").await.err().unwrap();
    assert_eq!(error.source().unwrap().to_string(), "the component wanted more than 32Ki of memory (limits.memory)");
}

#[tokio::test]
async fn a_component_without_any_export_of_the_contract_is_told_so() {
    let wasm = Guest { world: "", text: "", ..Guest::default() };
    assert_eq!(
        refusal(&wasm.build()).await,
        "check guest.wasm: it lacks exports that the manifest needs: `reconciler` (spec.controllers.web.plugin); it exports \
         nothing of capstan:operator"
    );
}

#[tokio::test]
async fn a_plugin_says_which_component_was_loaded() {
    let wasm = Guest::default().build();
    let plugin = load(&wasm).await.unwrap();
    assert_eq!(exports(&plugin), PLAIN);
    let digest = ring::digest::digest(&ring::digest::SHA256, &wasm);
    let bytes = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
    assert_eq!(plugin.digest(), bytes.collect::<String>());
}

// === what instances are made of ===

/// A reconciler with so many tables more than it needs, each with so many elements.
fn with_tables(count: usize, elements: usize) -> Vec<u8> {
    let table = format!("(table {elements} funcref)\n");
    let text = format!("{}\n{}", table.repeat(count), Guest::default().text);
    Guest { text: &text, ..Guest::default() }.build()
}

async fn reconciles(plugin: &Plugin) -> bool {
    let session = plugin.open(crate::runs::script());
    session.reconcile("{}").await.is_ok()
}

#[tokio::test]
async fn a_component_as_large_as_the_largest_runs_in_the_pool() {
    // As many tables as there are for an instance, and as many elements.
    let plugin = load(&with_tables(8, 12_500)).await.unwrap();
    assert!(reconciles(&plugin).await);
}

#[tokio::test]
async fn what_does_not_fit_the_pool_runs_beside_it_and_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let code = dir.path().join("code");
    for cache in [CodeCache::none(), CodeCache::at(&code), CodeCache::at(&code)] {
        let (lines, _guard) = Lines::capture();
        let operator = operator(&write(&dir, "guest", &with_tables(9, 1)), Limits::default());
        let engine = engine();
        // Twice: the engine beside it is made once.
        let load = || Plugin::load(&engine, &cache, &operator, "guest");
        let plugins = [load().await.unwrap(), load().await.unwrap()];
        for plugin in &plugins {
            assert!(reconciles(plugin).await);
        }
        let reason = "defined tables count of 9 exceeds the per-instance limit of 8";
        assert_eq!(lines.text().matches(reason).count(), 2, "{}", lines.text());
    }
    assert_eq!(compiled(&code).len(), 1);
}

#[tokio::test]
async fn what_no_instance_may_have_is_refused_with_its_bound() {
    assert_eq!(
        refusal(&with_tables(1, 100_001)).await,
        "start guest.wasm: the component wanted tables of more than 100000 elements"
    );
    let text = refusal(&with_tables(65, 1)).await;
    assert!(text.starts_with("start guest.wasm: ") && text.ends_with("table count too high at 65"), "{text}");
}

// === compiled code ===

/// Returns the entries of a cache.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Returns those that are code.
fn compiled(dir: &Path) -> Vec<PathBuf> {
    let mut files = entries(dir);
    files.retain(|file| file.extension().is_some_and(|ending| ending == "cwasm"));
    files
}

fn cleaner() -> Vec<u8> {
    let text = r#"(func (export "capstan:operator/cleaner@0.1.0#cleanup") (param i32 i32) (result i32) i32.const 1024)
        (func (export "capstan:operator/reconciler@0.1.0#reconcile") (param i32 i32) (result i32) i32.const 1024)"#;
    let world = format!("export capstan:operator/cleaner@0.1.0; {RECONCILER}");
    Guest { world: &world, text, ..Guest::default() }.build()
}

const PLAIN: &[Interface] = &[Interface::Reconciler];

fn exports(plugin: &Plugin) -> Vec<Interface> {
    let all = Interface::ALL.iter().copied();
    all.filter(|interface| plugin.exports(*interface)).collect()
}

#[tokio::test]
async fn compiled_code_is_kept_and_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let code = dir.path().join("deep/code");
    let cache = CodeCache::at(&code);
    assert_eq!(fs::metadata(&code).unwrap().permissions().mode() & 0o777, 0o700);
    let plain = operator(&write(&dir, "plain", &Guest::default().build()), Limits::default());
    let other = operator(&write(&dir, "other", &cleaner()), Limits::default());
    let loaded = async |operator| exports(&Plugin::load(&engine(), &cache, operator, "guest").await.unwrap());
    assert_eq!(loaded(&plain).await, PLAIN);
    let [plain_code] = &compiled(&code)[..] else { panic!("one entry") };
    assert_eq!(loaded(&other).await, [Interface::Reconciler, Interface::Cleaner]);
    let is_other = |file: &PathBuf| file != plain_code;
    let other_code = compiled(&code).into_iter().find(is_other).unwrap();
    // Another component's code under its name is not taken, although the daemon has written it.
    let written = fs::read(plain_code).unwrap();
    fs::copy(&other_code, plain_code).unwrap();
    assert_eq!(loaded(&plain).await, PLAIN);
    assert!(fs::read(plain_code).unwrap() == written, "it was compiled again");
}

#[tokio::test]
async fn a_plugin_says_where_its_code_came_from() {
    let dir = tempfile::tempdir().unwrap();
    let cache = CodeCache::at(&dir.path().join("code"));
    let operator = operator(&write(&dir, "guest", &Guest::default().build()), Limits::default());
    let mut from_cache = Vec::new();
    for _ in 0..2 {
        let plugin = Plugin::load(&engine(), &cache, &operator, "guest").await.unwrap();
        from_cache.push(plugin.from_cache());
    }
    assert_eq!(from_cache, [false, true]);
}

#[tokio::test]
async fn damaged_code_is_compiled_again() {
    let dir = tempfile::tempdir().unwrap();
    let code = dir.path().join("code");
    let cache = CodeCache::at(&code);
    let operator = operator(&write(&dir, "guest", &Guest::default().build()), Limits::default());
    Plugin::load(&engine(), &cache, &operator, "guest").await.unwrap();
    let [file] = &compiled(&code)[..] else { panic!("one entry") };
    let good = fs::read(file).unwrap();
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    for damaged in [&flipped[..], &good[..good.len() / 2], b""] {
        fs::write(file, damaged).unwrap();
        assert_eq!(exports(&Plugin::load(&engine(), &cache, &operator, "guest").await.unwrap()), PLAIN);
        assert_eq!(fs::read(file).unwrap().len(), good.len(), "it was written again");
    }
}

#[tokio::test]
async fn a_folder_that_others_can_write_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let code = dir.path().join("code");
    fs::create_dir(&code).unwrap();
    fs::set_permissions(&code, fs::Permissions::from_mode(0o755)).unwrap();
    let operator = operator(&write(&dir, "guest", &Guest::default().build()), Limits::default());
    Plugin::load(&engine(), &CodeCache::at(&code), &operator, "guest").await.unwrap();
    assert_eq!(entries(&code), [] as [PathBuf; 0]);
}

/// The component with a module of so many globals, started so many times; nothing of it is ever used.
fn heavier(mut wasm: Vec<u8>, globals: usize, times: usize) -> Vec<u8> {
    let number = |mut n: usize| {
        let mut bytes = Vec::new();
        while n >= 0x80 {
            bytes.push(u8::try_from(n & 0x7f).unwrap() | 0x80);
            n >>= 7;
        }
        bytes.push(u8::try_from(n).unwrap());
        bytes
    };
    let section = |id: u8, content: Vec<u8>| [vec![id], number(content.len()), content].concat();
    let sections = wasmparser::Parser::new(0).parse_all(&wasm).map(Result::unwrap);
    let nested = sections.filter(|payload| matches!(payload, wasmparser::Payload::ModuleSection { .. })).count();
    let module = wat::parse_str(format!("(module {})", "(global (mut i64) (i64.const 0))".repeat(globals))).unwrap();
    let start = [vec![0], number(nested), vec![0]].concat();
    wasm.extend(section(1, module));
    wasm.extend(section(2, [number(times), start.repeat(times)].concat()));
    wasm
}

#[tokio::test]
async fn globals_of_a_component_are_memory_of_its_instances() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { memory: 2 << 20, ..Limits::default() };
    let load = async |globals, times| {
        let wasm = heavier(Guest::default().build(), globals, times);
        let path = write(&dir, &format!("{globals}-{times}"), &wasm);
        let operator = operator(&path, limits.clone());
        Plugin::load(&engine(), &CodeCache::none(), &operator, "guest").await
    };
    let why = |loaded: Result<Plugin, Error>| {
        let error = loaded.unwrap_err();
        format!("{error}: {}", error.source().map(ToString::to_string).unwrap_or_default())
    };
    let light = load(1000, 10).await.unwrap();
    assert!(light.usage().peak_memory_bytes > 10 * 1000 * 16, "{:?}", light.usage());
    let heavy = why(load(1000, 50).await);
    assert!(heavy.ends_with("the component wanted more than 2Mi of memory (limits.memory)"), "{heavy}");
    let bomb = why(load(250_000, 240).await);
    assert!(
        bomb.contains(
            "bytes of memory for the globals, imports and table entries of each of its instances; at most 16777216"
        ),
        "{bomb}"
    );
}

#[test]
fn what_people_build_weighs_a_small_part_of_what_it_may() {
    for name in ["probe", "probe-go", "probe-javascript", "probe-python"] {
        let Weight { types, instance } = Weight::of(&fs::read(sample(name)).unwrap()).unwrap();
        let part = |weight: u64, measure: Measure| weight * 8 < measure.bound();
        assert!(part(types, Measure::Types) && part(instance, Measure::Instance), "{name}: {types}, {instance}");
    }
}
