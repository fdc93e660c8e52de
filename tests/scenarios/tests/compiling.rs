//! What it costs others that a component can't be compiled: nothing.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use cluster::wait;
use scenarios::memory::Memory;
use scenarios::{Daemon, Folder, LATER, Place, Start, capstan, component};
use serde_json::{Value, json};

/// What a daemon may hold beside what the process that compiles may, in bytes.
const OWN: u64 = 400 << 20;

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

/// A component of so many functions, in each of which so many values live across as many branches: cheap to write, dear to
/// compile.
fn bomb(functions: usize, size: usize) -> Vec<u8> {
    let mut code = [&[1][..], &number(size), b"\x7f"].concat();
    for n in 1..=size {
        // (block (br_if 0 (local.get 0)) (local.set n (local.get 0)))
        code.extend(b"\x02\x40\x20\0\x0d\0\x20\0\x21");
        code.extend(number(n));
        code.push(0x0b);
    }
    code.extend(b"\x20\0");
    for n in 1..=size {
        // (i32.add (local.get n))
        code.push(0x20);
        code.extend(number(n));
        code.push(0x6a);
    }
    code.push(0x0b);
    let function = [number(code.len()), code].concat();
    let module = [
        b"\0asm\x01\0\0\0".to_vec(),
        section(1, b"\x01\x60\x01\x7f\x01\x7f"),
        section(3, &[number(functions), vec![0; functions]].concat()),
        section(10, &[number(functions), function.repeat(functions)].concat()),
    ];
    [b"\0asm\x0d\0\x01\0".to_vec(), section(1, &module.concat())].concat()
}

/// A manifest of an operator that nobody would miss.
fn other(place: &Place, name: &str) -> String {
    format!(
        "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: {name} }}\nspec:\n  plugins:\n    {name}: {{ component: {{ path: {name}.wasm }} }}\n  controllers:\n    {name}:\n      plugin: {name}\n      primary: {{ apiVersion: v1, kind: ConfigMap }}\n      namespaces: [{}]\n",
        place.namespace.name()
    )
}

fn start(place: &Place, folder: &Folder, more: &[&str]) -> Daemon {
    let cache = folder.path("cache").display().to_string();
    let arguments = [&["--code-cache", &cache][..], more].concat();
    Start::at(&folder.path("")).arguments(&arguments).run(place)
}

/// Waits until a plugin is refused, and returns why.
fn problem(daemon: &Daemon, plugin: &str) -> Value {
    wait::until_ok(LATER, "the plugin to be refused", || {
        let row = daemon.plugin(plugin).unwrap_or_default();
        let message = row["problem"]["message"].clone();
        if message.is_null() {
            return Err(row);
        }
        Ok(message)
    })
    .unwrap()
}

#[test]
fn an_operator_is_well_beside_one_that_cannot_be_compiled_also_after_restarts() {
    let place = Place::new("bomb");
    let folder = Folder::new();
    folder.put("operator.yaml", place.probe_manifest(""));
    let limits = ["--compile-memory", "256Mi"];
    let daemon = start(&place, &folder, &limits);
    daemon.await_plugin("probe", "active", 1);
    let memory = Memory::of(daemon.pid());
    folder.put("bomb.wasm", bomb(4, 2_500));
    folder.put("bomb.yaml", other(&place, "bomb"));
    let why = problem(&daemon, "bomb");
    let needs = "it needs more than 256Mi of memory to be compiled";
    assert!(why.as_str().unwrap().contains(needs), "{why}");
    daemon.blames("bomb", needs, "capstan_plugin_compile_failures_total");
    let peak = memory.peak();
    assert!(peak < OWN + (256 << 20), "{peak}");
    assert_eq!(daemon.count("capstan_plugin_compile_failures_total", "plugin=\"bomb\""), 1);
    assert_eq!(daemon.count("capstan_components_compiled_total", ""), 2);
    place.probe("one", json!({ "reconcile": { "status": {} } }));
    place.await_object(&place.probes(), "one", "a status", |probe| probe["status"].is_object());
    daemon.stop();
    for _ in 0..2 {
        let daemon = start(&place, &folder, &limits);
        daemon.await_plugin("probe", "active", 1);
        let why = problem(&daemon, "bomb");
        assert!(why.as_str().unwrap().contains("as was found out before"), "{why}");
        assert_eq!(daemon.count("capstan_components_compiled_total", ""), 0);
        daemon.stop();
    }
}

#[test]
fn what_is_compiled_already_starts_first_and_a_corrected_component_is_not_waited_for() {
    let place = Place::new("slow");
    let folder = Folder::new();
    folder.put("z-operator.yaml", place.probe_manifest(""));
    let daemon = start(&place, &folder, &[]);
    daemon.await_plugin("probe", "active", 1);
    daemon.stop();
    // It takes minutes, and comes first by its name.
    folder.put("slow.wasm", bomb(10_000, 100));
    folder.put("a-slow.yaml", other(&place, "slow"));
    let daemon = start(&place, &folder, &["--compile-timeout", "1h"]);
    daemon.await_plugin("probe", "active", 1);
    assert_eq!(daemon.plugin("slow").unwrap()["state"], "loading");
    // What is right is taken although the other is still being compiled.
    folder.put("slow.wasm", fs::read(component("probe")).unwrap());
    daemon.await_plugin("slow", "active", 1);
}

/// Returns the largest file of a folder.
fn largest(folder: &Path) -> PathBuf {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    files.max_by_key(|path| path.metadata().unwrap().len()).unwrap()
}

#[test]
fn code_that_somebody_has_changed_is_not_run_but_compiled_anew() {
    let (place, folder) = (Place::new("changed-code"), Folder::new());
    folder.put("operator.yaml", place.probe_manifest(""));
    let daemon = start(&place, &folder, &[]);
    daemon.await_plugin("probe", "active", 1);
    daemon.stop();
    let code = largest(&folder.path("cache"));
    let mut bytes = fs::read(&code).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&code, bytes).unwrap();
    for compiled in [1, 0] {
        let daemon = start(&place, &folder, &[]);
        daemon.await_plugin("probe", "active", 1);
        assert_eq!(daemon.count("capstan_components_compiled_total", ""), compiled);
        assert_eq!(daemon.log().contains("compiling again"), compiled > 0, "{}", daemon.log());
        daemon.stop();
    }
}

#[test]
fn what_could_not_be_compiled_by_the_daemons_own_fault_is_tried_again() {
    let (place, folder) = (Place::new("own-fault"), Folder::new());
    folder.put("late.yaml", other(&place, "late"));
    let home = tempfile::tempdir().unwrap();
    let program = home.path().join("capstan");
    fs::copy(capstan(), &program).unwrap();
    let mode = |mode| fs::set_permissions(&program, Permissions::from_mode(mode)).unwrap();
    let mut command = Command::new(&program);
    command
        .args(["run", "--listen", "127.0.0.1:0", "--log-format", "json"])
        .args(["-m".as_ref(), folder.path("").as_os_str()])
        .args(["--code-cache".as_ref(), home.path().join("code").as_os_str()])
        .env("KUBECONFIG", place.cluster.admin_kubeconfig());
    let daemon = Daemon::spawn(command, tempfile::tempdir().unwrap());
    // Another process of it can't be started.
    mode(0o644);
    folder.put("late.wasm", fs::read(component("probe")).unwrap());
    let why = || daemon.plugin("late").unwrap_or_default()["problem"]["message"].to_string();
    let expected = "prepare to load components: start the process that compiles: ";
    wait::until_ok(LATER, "the plugin to be refused", || {
        let why = why();
        if why.contains(expected) { Ok(()) } else { Err(why) }
    })
    .unwrap();
    mode(0o755);
    daemon.await_plugin("late", "active", 1);
}

#[test]
fn a_file_without_an_end_is_refused_at_once() {
    let place = Place::new("endless");
    let folder = Folder::new();
    let endless = other(&place, "endless").replace("endless.wasm", "/dev/zero");
    folder.put("endless.yaml", endless);
    folder.put("operator.yaml", place.probe_manifest(""));
    let daemon = start(&place, &folder, &[]);
    daemon.await_plugin("probe", "active", 1);
    let why = problem(&daemon, "endless");
    assert_eq!(why, "read component /dev/zero: it is a device; it should be a regular file");
    daemon.blames("endless", "it is a device", "capstan_plugin_versions_refused_total");
}
