//! The SDKs of Python, JavaScript and Go, inside WebAssembly: the same sample, the same questions, and the same outcome.

use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cluster::wait;
use scenarios::{Daemon, Place, SOON, capstan, component, replaced_exports_of, repository};
use serde_json::{Value, json};

use crate::inbound::Door;

/// How long the compilation of a component may take, where several wait for a few cores.
pub(crate) const COMPILING: Duration = Duration::from_mins(10);

/// What the probes say wherever a text may be: two bytes and four bytes for a character.
const WORD: &str = "Grüße 👋";

/// Starts the daemon of a manifest once its components are compiled, so that it is ready soon.
pub(crate) fn daemon(place: &Place, manifest: &str) -> Daemon {
    compile(manifest);
    place.daemon(manifest)
}

/// Waits until the components of a manifest are compiled.
pub(crate) fn compile(manifest: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (file, said) = (folder.path().join("m.yaml"), folder.path().join("said"));
    fs::write(&file, manifest).unwrap();
    let mut check = Command::new(capstan())
        .args(["check", "-m"])
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let ended = wait::until(COMPILING, "the components to be compiled", || check.try_wait().unwrap());
    drop(check.kill());
    let said = fs::read_to_string(said).unwrap();
    assert!(ended.unwrap().success(), "{said}");
}

// === what an author may ask for ===

fn manifest(place: &Place, component_name: &str) -> String {
    let (path, namespace) = (component(component_name), place.namespace.name());
    let path = path.display();
    format!(
        r"
apiVersion: capstan.dev/v1alpha1
kind: Operator
metadata: {{ name: {namespace} }}
spec:
  plugins:
    probe:
      component: {{ path: {path} }}
      limits: {{ timeout: 20s }}
      config: {{ word: {WORD}, numbers: [1, 2.5] }}
      capabilities:
        kubernetes:
          - {{ apiVersion: v1, kind: ConfigMap, verbs: [get, watch, create, apply, update, patch, delete] }}
  controllers:
    {namespace}:
      plugin: probe
      primary: {{ apiVersion: test.capstan.dev/v1, kind: Probe }}
      namespaces: [{namespace}]
      finalizer: probes.test.capstan.dev/finalizer
      retry: {{ initialInterval: 50ms, multiplier: 1, maxAttempts: 2 }}
      indexes: {{ by-text: {{ pointer: /spec/text }} }}
      sources:
        maps: {{ informer: {{ apiVersion: v1, kind: ConfigMap }} }}
        asked: {{ informer: {{ apiVersion: v1, kind: ConfigMap, labelSelector: asked, mapper: {{ export: to-probes }}, secondaries: {{ export: to-maps }}, filters: {{ generic: {{ export: shown }} }} }} }}
        themes: {{ poll: {{ every: 1h, id: /id }} }}
        domains: {{ pollEach: {{ every: 1h, id: /id }} }}
        registry: {{ pollEach: {{ every: 1h, id: /id }} }}
        hooks: {{ inbound: {{ token: none, requestsPerSecond: 1000 }} }}
      workflow:
        dependents:
          first:
            apiVersion: v1
            kind: ConfigMap
            source: maps
            match: {{ export: same-data }}
            reconcilePrecondition: {{ export: wanted }}
            readyPostcondition: {{ export: ready }}
            config: {{ theme: dark }}
      standalone:
        away:
          dependents:
            away: {{ external: {{ source: registry }}, match: {{ generic: {{}} }} }}
        briefly:
          dependents:
            brief: {{ external: {{ source: registry }}, match: {{ generic: {{}} }} }}
        flow:
          dependents:
            extra: {{ apiVersion: v1, kind: ConfigMap, source: maps }}
        many:
          dependents:
            all: {{ apiVersion: v1, kind: ConfigMap, source: maps, bulk: true }}
"
    )
}

/// A probe that is asked, and what it is expected to say.
struct Asked<'a> {
    namespace: &'a str,
    generation: u64,
    text: &'a str,
    note: &'a str,
    /// What was done with the managed dependent.
    done: &'a str,
    retry: Option<Value>,
}

impl Asked<'_> {
    /// Returns the whole status but for what is another each time.
    fn status(&self) -> Value {
        let Self { namespace, generation, text, note, done, retry } = self;
        let made = format!("p-{generation}");
        let refused =
            |reason: &str, code: u16, message: &str| json!({ "reason": reason, "code": code, "message": message });
        let stale = format!(
            "update v1 ConfigMap {namespace}/{made}-one: Operation cannot be fulfilled on configmaps \"{made}-one\": \
             the object has been modified; please apply your changes to the latest version and try again (HTTP 409)"
        );
        let node = |name: &str, done: &str| json!({ "name": name, "done": [{ "key": format!("{namespace}/p-{name}"), "operation": done }] });
        let mut first = node("first", done);
        let detail = json!({ "dependent": "first", "data": { "text": text }, "note": note });
        first["conditions"] = json!([
            { "role": "reconcile-precondition", "met": true },
            { "role": "ready-postcondition", "met": true, "detail": detail },
        ]);
        let object = |name: &str, done: &str| json!({ "key": format!("{namespace}/p-all{name}"), "operation": done });
        let own = object(&format!("-{text}"), if *done == "updated" { "created" } else { done });
        let mut all = vec![object("", done), own];
        if *done == "updated" {
            all.insert(0, object("-a", "deleted"));
        }
        let many = json!({ "name": "all", "done": all });
        let flow = |node: Value| json!({ "nodes": [node], "complete": true });
        let thing =
            |name: &str, id: &str, done: &str| json!({ "name": name, "done": [{ "key": id, "operation": done }] });
        let mut seen = json!({ "id": "7", "text": text, "word": WORD });
        match *done {
            "created" => seen["made"] = WORD.into(),
            _ => seen["was"] = "a".into(),
        }
        // PP-1, PP-2: polls belong to no run, and write nothing.
        let theme = json!({ "id": "dark", "word": WORD, "beside": true });
        let domain = json!({ "id": 7, "name": "p", "denied": "misplaced" });
        bare(&json!({
            "operations": {
                "written": ["1", "2", "3", "4", "5", "6"],
                "conflict": refused("conflict", 409, &stale),
                "denied": refused("denied", 0, "the manifest does not permit `delete` on v1 Secret; add it to spec.plugins.probe.capabilities.kubernetes"),
                "differs": format!("/data/v: found \"6\", wanted \"{WORD}\""),
            },
            "cache": {
                "one": { "text": text },
                "named": { "v": "6" },
                "related": [format!("{made}-one"), format!("{made}-two")],
                "page": { "data": { "v": "6" }, "more": true },
                "primaries": ["p"],
                "indexed": ["p"],
                "missing": refused("missing", 0, "no source is called \"nowhere\"; there are: all, asked, extra, first, maps, domains, hooks, registry, themes"),
                "led": ["asked"],
                "polled": { "themes": [theme], "domain": domain, "named": theme },
            },
            "memo": {
                "run": { "word": WORD },
                "primary": generation,
                "plugin": { "word": WORD },
                "prepared": generation,
                "full": refused("exhausted", 0, "memo \"long\" would make 5011 bytes, 4096 are allowed (limits.memo.primary)"),
            },
            "workflow": {
                "managed": flow(first),
                "dependent": node("extra", "created"),
                "flow": flow(node("extra", "unchanged")),
                "last": flow(node("extra", "unchanged")),
                "removed": node("extra", "deleted"),
                "unknown": refused("missing", 0, "no standalone workflow is called \"unknown\"; there are: away, briefly, flow, many"),
                // BD-1
                "many": flow(many),
                // XD-1
                "away": flow(thing("away", "7", done)),
                "seen": seen,
                "brief": [thing("brief", "8", "created"), thing("brief", "8", "deleted")],
            },
            // ES-4
            "sources": {
                "new": true,
                "again": false,
                "found": 0,
                "denied": refused("denied", 0, "the manifest does not permit `watch` on v1 Secret; add it to spec.plugins.probe.capabilities.kubernetes"),
                "invalid": refused("invalid", 0, "source \"bad\": informer: the field `apiVersion` is missing; informer: the field `kind` is missing"),
                "declared": refused("denied", 0, "source \"maps\" is declared by the manifest: it stays as long as that declares it"),
                // XC-4
                "kept": refused("invalid", 0, "source \"maps\" has objects of the cluster: what is written to them is known by itself"),
                "gone": refused("missing", 0, "source \"nowhere\" is not there; of things outside of the cluster there are: domains, hooks, registry, themes"),
            },
            "expected": {
                "set": true,
                "pending": { "name": "word", "timedOut": false },
                "check": "pending",
                "done": "fulfilled",
                "cleared": false,
                "refused": refused("invalid", 0, "the name of an expectation has 0 bytes; it may have 1 to 253"),
            },
            "run": {
                "info": { "controller": namespace, "retry": retry, "primaryDeleted": false, "finalStateUnknown": false },
                "config": { "word": WORD, "numbers": [1, 2.5] },
                "settings": { "theme": "dark" },
            },
        }))
    }

    /// Waits for the status, compares it, and returns what is another each time.
    fn answers(&self, place: &Place) -> Value {
        let generation = self.generation;
        let what = format!("the answers of generation {generation}");
        let mut probe =
            place.await_object(&place.probes(), "p", &what, |probe| probe["status"]["memo"]["primary"] == generation);
        let chance = probe["status"]["chance"].take();
        assert_eq!(bare(&probe["status"]), self.status());
        chance
    }
}

/// Returns a document without what languages say differently of nothing: nulls and empty lists.
fn bare(document: &Value) -> Value {
    match document {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name, bare(value)));
            let is_something = |value: &Value| !value.is_null() && *value != json!([]);
            Value::Object(
                fields.filter(|(_, value)| is_something(value)).map(|(name, value)| (name.clone(), value)).collect(),
            )
        }
        Value::Array(items) => items.iter().map(bare).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => document.clone(),
    }
}

#[expect(clippy::disallowed_methods, reason = "other processes run in real time")]
fn now_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64() * 1000.0
}

/// Time and chance are those of now, and no others than the daemon's.
fn is_plausible(chance: &Value, begun: f64) {
    let (number, text) = (|field: &str| chance[field].as_f64().unwrap(), |field: &str| chance[field].as_str().unwrap());
    // Whole milliseconds may be cut off.
    let lasting = begun.floor()..=now_ms();
    assert!(lasting.contains(&number("nowMs")), "{chance}");
    assert!(lasting.contains(&number("clockMs")), "{chance}");
    let now = text("now");
    let is_time = now.len() == 20 && now.starts_with("20") && now.ends_with('Z');
    assert!(is_time && now.as_bytes()[10] == b'T', "{chance}");
    let uuid = text("uuid");
    let is_uuid = uuid.len() == 36 && uuid.as_bytes()[14] == b'4' && uuid.matches('-').count() == 4;
    assert!(is_uuid, "{chance}");
    assert_eq!(chance["bytes"], 8);
    assert!(chance["imminent"].is_boolean(), "{chance}");
    let left = number("leftMs");
    assert!(left > 0.0 && left <= 20_000.0, "{chance}");
}

fn the_daemon_is_asked_for_all_that_there_is(component: &str) {
    // CX-1a, CX-1b, DR-7
    let (place, begun) = (Place::new("asks"), now_ms());
    let map = json!({ "metadata": { "labels": { "asked": "" } }, "data": { "of": "p", "word": WORD } });
    place.create("v1", "ConfigMap", &place.config_maps(), "asked", map);
    let daemon = daemon(&place, &manifest(&place, component));
    place.probe("p", json!({ "text": "a", "note": "b" }));
    let mut asked =
        Asked { namespace: place.namespace.name(), generation: 1, text: "a", note: "b", done: "created", retry: None };
    let first = asked.answers(&place);
    let line = await_line(&daemon, "asked");
    assert_eq!((&line["level"], &line["call"]), (&json!("INFO"), &json!("reconcile")));
    assert_eq!(line["fields"], json!({ "word": WORD, "generation": "1" }));
    // ER-1
    assert_eq!(events(&place), expected_events(place.namespace.name()));
    place.await_gone(&place.config_maps(), "p-1-two");
    let one = place.find(&place.config_maps(), "p-1-one").unwrap();
    assert_eq!(one["data"], json!({ "v": "6" }));

    // The component's own comparison finds a difference in the data, and none in the note.
    place.merge(&place.probes(), "p", &json!({ "spec": { "text": "c" } }));
    (asked.generation, asked.text, asked.done) = (2, "c", "updated");
    let second = asked.answers(&place);
    await_line(&daemon, &format!("data, {WORD}"));
    // An event of what came before would have it run again at once, and not as a second attempt.
    daemon.await_quiet();
    let change = json!({ "spec": { "note": "d", "fail": { "reconcile": "once" } } });
    place.merge(&place.probes(), "p", &change);
    (asked.generation, asked.note, asked.done) = (3, "d", "unchanged");
    asked.retry = Some(json!({ "attempt": 1, "last": false }));
    let third = asked.answers(&place);

    let all = [first, second, third];
    for chance in &all {
        is_plausible(chance, begun);
    }
    for field in ["uuid", "dice"] {
        let values = [&all[0][field], &all[1][field], &all[2][field]];
        let differ = values[0] != values[1] && values[1] != values[2] && values[0] != values[2];
        assert!(differ, "{field}: {values:?}");
    }
    changes_are_filtered_and_mapped(&place, &daemon);
    assert!(daemon.stop().success());
}

/// The component has the last word on which changes of the config map `asked` wake the probe.
fn changes_are_filtered_and_mapped(place: &Place, daemon: &Daemon) {
    // IM-3, IS-1
    daemon.await_quiet();
    let runs = daemon.runs();
    place.merge(&place.config_maps(), "asked", &json!({ "data": { "note": "nobody cares" } }));
    daemon.await_quiet();
    assert_eq!(daemon.runs(), runs);
    place.merge(&place.config_maps(), "asked", &json!({ "data": { "word": "another" } }));
    daemon.await_runs(runs + 1);
    place.merge(&place.config_maps(), "asked", &json!({ "data": { "of": "nobody", "word": WORD } }));
    daemon.await_runs(runs + 2);
    daemon.await_quiet();
    place.merge(&place.config_maps(), "asked", &json!({ "data": { "word": "yet another" } }));
    daemon.await_quiet();
    assert_eq!(daemon.runs(), runs + 2, "it is nobody's");
    assert_eq!(daemon.count("capstan_callback_failures_total", ""), 0, "{}", daemon.log());
}

/// Waits for a line of a component's, or about it, with this text in it, and returns it.
fn await_line(daemon: &Daemon, text: &str) -> Value {
    serde_json::from_str(&daemon.await_line(text)).unwrap()
}

/// Waits for both Events, and returns what the component has a say in.
fn events(place: &Place) -> Value {
    let path = place.namespace.path("v1", "events");
    let about = |event: &&Value| event["involvedObject"]["kind"] == "Probe";
    let events = wait::until_ok(SOON, "the Events", || {
        let list = place.cluster.api().get(&path).unwrap();
        let mut events: Vec<Value> = list["items"].as_array().unwrap().iter().filter(about).cloned().collect();
        events.sort_by_key(|event| event["reason"].to_string());
        if events.len() == 2 { Ok(events) } else { Err(list) }
    });
    let told = |event: &Value| {
        json!({
            "type": event["type"], "reason": event["reason"], "message": event["message"], "action": event["action"],
            "by": event["reportingComponent"], "labels": event["metadata"]["labels"], "annotations": event["metadata"]["annotations"],
        })
    };
    events.unwrap().iter().map(told).collect()
}

fn expected_events(controller: &str) -> Value {
    let by = format!("capstan/{controller}");
    json!([
        {
            "type": "Normal", "reason": "Asked", "message": WORD, "action": "ask", "by": by,
            "labels": { "a": "b" }, "annotations": { "c": WORD, "capstan.dev/component": "prober" },
        },
        {
            "type": "Warning", "reason": "Odd", "message": "nobody knows why", "action": null,
            "by": by, "labels": null, "annotations": null,
        },
    ])
}

/// Waits until the primary's failures are at an end, and returns what the error handler was told the last time.
fn last_failure(place: &Place, name: &str) -> Value {
    let probe = place.await_object(&place.probes(), name, "the last failure", |probe| {
        probe["status"]["failure"]["retry"]["last"] == true
    });
    bare(&probe["status"]["failure"])
}

fn a_failure_is_handed_to_the_error_handler(component: &str) {
    let place = Place::new("fails");
    let daemon = daemon(&place, &manifest(&place, component));
    let fails = |name: &str, fail: Value| {
        place.probe(name, json!({ "text": "a", "note": "b", "fail": fail }));
        last_failure(&place, name)
    };
    let retry = json!({ "attempt": 2, "last": true });
    let message = format!("reconcile has failed: {WORD}");
    let expected = json!({ "origin": "reconciler", "message": message, "retry": retry });
    assert_eq!(fails("error", json!({ "reconcile": "error" })), expected);

    // What nobody catches is told in the daemon's words.
    let message =
        "the manifest does not permit `delete` on v1 Secret; add it to spec.plugins.probe.capabilities.kubernetes";
    let expected = json!({ "origin": "reconciler", "message": message, "retry": retry });
    assert_eq!(fails("denied", json!({ "reconcile": "denied" })), expected);

    let message = format!("first has failed: {WORD}");
    let expected = json!({
        "origin": "workflow", "message": format!("the workflow failed: first: {message}"),
        "dependents": [{ "name": "first", "message": message }], "retry": retry,
    });
    assert_eq!(fails("workflow", json!({ "first": "error" })), expected);

    // VA-1, VA-2: what is wrong with a primary is told at once, for nothing else is tried.
    place.probe("wrong", json!({ "text": "a", "note": "b", "wrong": "spec.note" }));
    let retry = json!({ "attempt": 0, "last": true });
    let expected = json!({ "origin": "other", "message": format!("spec.note: {WORD}"), "retry": retry });
    assert_eq!(last_failure(&place, "wrong"), expected);

    let spec = json!({ "text": "a", "note": "b", "stop": true, "fail": { "reconcile": "error" } });
    place.probe("stopped", spec);
    let stopped =
        place.await_object(&place.probes(), "stopped", "the failure", |probe| probe["status"]["failure"].is_object());
    daemon.await_quiet();
    assert_eq!(place.find(&place.probes(), "stopped").unwrap(), stopped);
    let failure = &stopped["status"]["failure"];
    assert_eq!(failure["retry"], json!({ "attempt": 0, "last": false }));

    // RT-5: it says when it is retried, and that it is not.
    let decided = |spec: Value, name: &str| {
        let before = daemon.lines().len();
        place.probe(name, spec);
        let lines = wait::until(SOON, name, || {
            let lines = daemon.lines().split_off(before);
            lines.iter().any(|line| line.to_string().contains("no retries left")).then_some(lines)
        });
        let decides = lines.unwrap().into_iter().filter(|line| line["message"] == "decides");
        decides.map(|mut line| line["fields"].take()).collect::<Vec<_>>()
    };
    let fails = json!({ "reconcile": "error" });
    let spec = json!({ "text": "a", "note": "b", "fail": fails, "stopRetry": true });
    let decides = |attempt: &str| json!({ "of": "returned", "attempt": attempt });
    assert_eq!(decided(spec, "not-retried"), [decides("0")]);
    let spec = json!({ "text": "a", "note": "b", "fail": fails });
    assert_eq!(decided(spec, "retried"), [decides("0"), decides("1")]);
    assert!(daemon.stop().success());
}

fn a_primary_comes_back_and_goes_when_it_is_told_to(component: &str) {
    let place = Place::new("again");
    let daemon = daemon(&place, &manifest(&place, component));
    let spec = json!({ "text": "a", "note": "b", "again": true, "wanted": false });
    place.probe("p", spec);
    let probe = place.await_object(&place.probes(), "p", "three runs", |probe| probe["status"].is_object());
    assert_eq!(probe["status"], json!({ "runs": 3 }));
    let metadata = &probe["metadata"];
    assert_eq!(metadata["annotations"], json!({ "runs": "3" }));
    assert_eq!(metadata["finalizers"], json!(["probes.test.capstan.dev/finalizer"]));
    assert!(place.find(&place.config_maps(), "p-first").is_none());
    place.delete(&place.probes(), "p");
    place.await_gone(&place.probes(), "p");
    daemon.await_quiet();
    let tidied = daemon.lines().into_iter().filter(|line| line["message"] == "tidied");
    let calls: Vec<Value> = tidied.map(|mut line| line["fields"].take()).collect();
    assert_eq!(calls, [json!({ "calls": "1" }), json!({ "calls": "2" })]);
    assert!(daemon.stop().success());
}

fn a_run_follows_the_end_of_a_primary_with_its_last_known_object(component: &str) {
    // AE-1, AE-2, LC-5
    let place = Place::new("ends");
    let (primary, fields) =
        ("{ apiVersion: test.capstan.dev/v1, kind: Probe }", "triggerOnAllEvents: true\nretry: none\n");
    let manifest = place.manifest(component, primary, "limits: { timeout: 20s }\n", fields);
    // The probe has a cleaner, with which it is refused.
    let folder = replaced_exports_of(component, &manifest, &[("cleaner", "tidying")]);
    let manifest = fs::read_to_string(folder.path("operator.yaml")).unwrap();
    let daemon = daemon(&place, &manifest);
    // A run needs more than this manifest has, so that it may as well fail.
    let fail = json!({ "reconcile": "error" });
    place.probe("p", json!({ "text": "first", "note": "b", "stop": true, "fail": fail }));
    let has_run = |probe: &Value| probe["status"]["failure"].is_object();
    let probe = place.await_object(&place.probes(), "p", "a run", has_run);
    assert_eq!(probe["metadata"]["finalizers"], Value::Null);
    place.merge(&place.probes(), "p", &json!({ "spec": { "text": "last" } }));
    daemon.await_runs(2);
    daemon.await_quiet();
    place.delete(&place.probes(), "p");
    place.await_gone(&place.probes(), "p");
    let line = await_line(&daemon, "\"message\":\"gone\"");
    assert_eq!(line["fields"], json!({ "text": "last", "generation": "2" }));
    daemon.await_quiet();
    assert_eq!((daemon.runs(), daemon.count("capstan_custom_resources", "")), (3, 0));
    assert!(daemon.stop().success());
}

fn a_request_from_outside_is_understood(component: &str) {
    // IB-1, IB-2, IB-5
    let place = Place::new("told");
    let manifest = manifest(&place, component);
    compile(&manifest);
    let (daemon, door) = Door::of(&place, &manifest);
    place.probe("p", json!({ "text": "a", "note": "b" }));
    place.await_object(&place.probes(), "p", "a run", |probe| probe["status"]["memo"]["primary"] == 1);
    daemon.await_quiet();
    let (runs, namespace) = (daemon.runs(), place.namespace.name());
    let body = json!({ "namespace": namespace, "present": { "id": 7, "word": WORD } }).to_string();
    let answer = door.send("POST", "/x?y=z", None, &body);
    assert_eq!(answer, (201, format!("{WORD} /x?y=z push")), "{}", daemon.log());
    daemon.await_runs(runs + 1);
    let known = &daemon.controller(namespace).unwrap()["polled"]["hooks"];
    assert_eq!(known["things"], 1, "{known}");
    assert_eq!(door.send("POST", "", None, r#"{"explode":true}"#).0, 500);
    daemon.await_line(&format!("exploded: {WORD}"));
    assert!(daemon.stop().success());
}

/// What an exception of an author's function is called.
struct Exception {
    component: &'static str,
    /// The author's file, as seen from the component's folder.
    file: &'static str,
    /// The failure that it becomes, and its place in the stack; `LINE` stands for the line that throws it.
    message: &'static str,
    frame: &'static str,
}

fn an_exception_is_told_with_its_text_and_its_stack(exception: &Exception) {
    let Exception { component, file, message, frame } = exception;
    let source = repository().join(format!("tests/guests/{component}/{file}"));
    let source = fs::read_to_string(source).unwrap();
    let line = source.lines().position(|line| line.contains("exploded: "));
    let line = (line.unwrap() + 1).to_string();
    let (message, frame) = (message.replace("LINE", &line), frame.replace("LINE", &line));
    let place = Place::new("explodes");
    let daemon = daemon(&place, &manifest(&place, component));
    for (name, call, fail) in
        [("p", "reconcile", json!({ "reconcile": "explode" })), ("q", "desired", json!({ "first": "explode" }))]
    {
        place.probe(name, json!({ "text": "a", "note": "b", "fail": fail }));
        let failure = last_failure(&place, name);
        let told = if call == "reconcile" { &failure["message"] } else { &failure["dependents"][0]["message"] };
        assert_eq!(*told, message);
        let key = format!("{}/{name}", place.namespace.name());
        let lines = daemon.lines();
        let stack =
            lines.iter().find(|line| line["key"] == key && line["call"] == call && !line["fields"]["stack"].is_null());
        let line = stack.unwrap().to_string().replace("\\\"", "\"");
        assert!(line.contains(&frame), "{frame:?} is not in {line}");
        assert!(line.contains(WORD), "{line}");
    }
    assert!(daemon.stop().success());
}

// === the languages ===

/// The tests of a language: its sample, its probe, and how it tells of an exception.
macro_rules! language {
    ($module:ident, $sample:literal, $exception:expr) => {
        mod $module {
            use super::Exception;
            use crate::webpage::{Instances, a_page_lives};

            const EXCEPTION: Exception = $exception;

            #[test]
            fn a_page_lives_as_the_sample_says() {
                a_page_lives($sample, Instances::Fresh);
            }

            #[test]
            fn a_page_lives_in_a_warm_instance() {
                a_page_lives($sample, Instances::Warm);
            }

            #[test]
            fn the_daemon_is_asked_for_all_that_there_is() {
                super::the_daemon_is_asked_for_all_that_there_is(EXCEPTION.component);
            }

            #[test]
            fn a_run_follows_the_end_of_a_primary_with_its_last_known_object() {
                super::a_run_follows_the_end_of_a_primary_with_its_last_known_object(EXCEPTION.component);
            }

            #[test]
            fn a_request_from_outside_is_understood() {
                super::a_request_from_outside_is_understood(EXCEPTION.component);
            }

            #[test]
            fn a_failure_is_handed_to_the_error_handler() {
                super::a_failure_is_handed_to_the_error_handler(EXCEPTION.component);
            }

            #[test]
            fn a_primary_comes_back_and_goes_when_it_is_told_to() {
                super::a_primary_comes_back_and_goes_when_it_is_told_to(EXCEPTION.component);
            }

            #[test]
            fn an_exception_is_told_with_its_text_and_its_stack() {
                super::an_exception_is_told_with_its_text_and_its_stack(&EXCEPTION);
            }
        }
    };
}

language!(
    in_python,
    "webpage-python",
    Exception {
        component: "probe-python",
        file: "probe.py",
        message: "ValueError: exploded: Grüße 👋",
        frame: "File \"probe.py\", line LINE, in explode",
    }
);
language!(
    in_javascript,
    "webpage-javascript",
    Exception {
        component: "probe-javascript",
        file: "src/operator.js",
        message: "RangeError: exploded: Grüße 👋",
        frame: "explode (src/operator.js:LINE)",
    }
);
language!(
    in_go,
    "webpage-go",
    Exception {
        component: "probe-go",
        file: "main.go",
        message: "panic: exploded: Grüße 👋 (in main.explode main.go:LINE)",
        frame: "main.explode main.go:LINE",
    }
);
