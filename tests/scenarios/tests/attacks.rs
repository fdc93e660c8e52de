//! Documents and calls that would cost the daemon without end: it lives on, says who it was, and others notice nothing.

use std::time::Duration;

use cluster::{Query, wait};
use scenarios::memory::Memory;
use scenarios::{Daemon, LATER, Place, SOON, Start};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

const PRIMARY: &str = "{ apiVersion: test.capstan.dev/v1, kind: Probe }";
const OVER_BUDGET: &str = "capstan_reconciliations_over_budget_total";
const FAILURES: &str = "capstan_reconciliations_failure_total";
/// What a component asks for and may not have.
const REFUSED: &str = "capstan_plugin_connections_total";

/// How often others are asked how they are.
const LOOKS: usize = 5;

/// What the daemon may hold beside what instances and caches hold, in bytes.
const OWN: u64 = 400 << 20;

/// What the allocator may keep of it once it is over, in bytes.
const KEPT: u64 = 64 << 20;

/// A daemon that works for two operators: one that is used for an attack, and one that has nothing to do with it.
struct Attacked {
    place: Place,
    daemon: Daemon,
    memory: Memory,
}

/// How an attack is set up.
#[derive(Default)]
struct Setting<'a> {
    /// Fields of the plugin, of the manifest's syntax.
    plugin: &'a str,
    /// Fields of the controller.
    controller: &'a str,
    arguments: &'a [&'a str],
}

impl Attacked {
    fn begin(prefix: &str, setting: &Setting<'_>) -> Self {
        let place = Place::new(prefix);
        let fields = format!("labelSelector: attack\n{}", setting.controller);
        let attacker = place.manifest("probe", PRIMARY, setting.plugin, &fields);
        let victim = place.probe_manifest("labelSelector: victim\n");
        let victim = place.renamed(&victim, "victim");
        let start = Start::new(&format!("{attacker}---\n{victim}"));
        let daemon = start.arguments(setting.arguments).run(&place).until_ready();
        let memory = Memory::of(daemon.pid());
        let attacked = Self { place, daemon, memory };
        attacked.others_are_well();
        attacked
    }

    /// Creates a primary of the operator under attack.
    fn attack(&self, name: &str, spec: Value) {
        self.place.labelled_probe(name, "attack", spec);
    }

    /// Asserts that the daemon is alive and the other operator's primaries run, one after another.
    fn others_are_well(&self) {
        for _ in 0..LOOKS {
            let name = format!("victim-{}", self.daemon.runs());
            let spec = json!({ "reconcile": { "status": { "well": true } } });
            self.place.labelled_probe(&name, "victim", spec);
            let path = self.place.probes();
            self.place.await_object(&path, &name, "the victim's status", |probe| {
                let begun = Instant::now();
                assert_eq!(self.daemon.get("/livez").0, 200);
                let took = begun.elapsed();
                assert!(took < Duration::from_secs(1), "/livez took {took:?}");
                probe["status"]["well"] == true
            });
            self.place.delete(&path, &name);
        }
    }

    /// Waits for the status of an attacking primary.
    fn status(&self, name: &str) -> Value {
        let status = wait::until_ok(LATER, "the attacker's status", || {
            let probe = self.place.find(&self.place.probes(), name).unwrap();
            let status = &probe["status"];
            if status.is_null() { Err(self.daemon.log()) } else { Ok(status.clone()) }
        });
        status.unwrap()
    }

    /// Waits until a run failed for a reason with this text, and asserts that the line says whose it was.
    fn failure(&self, key: &str, text: &str) {
        let line = wait::until_ok(LATER, text, || {
            let lines = self.daemon.lines();
            let line = lines.into_iter().find(|line| {
                let line = line.to_string();
                line.contains(text) && line.contains(key)
            });
            line.ok_or_else(|| self.daemon.log())
        });
        let line = line.unwrap().to_string();
        assert!(line.contains(self.place.namespace.name()), "{line}");
    }

    /// Waits until the operator under attack is named in a line with this text and counted by a metric, and asserts that the other is not.
    fn is_blamed(&self, text: &str, metric: &str) {
        let name = self.place.namespace.name();
        self.daemon.blames(name, text, metric);
        assert_eq!(self.daemon.count(metric, &format!("=\"{name}-victim\"")), 0);
    }

    /// Returns how long an operator has computed, in seconds.
    fn spent(&self, operator: &str) -> f64 {
        let label = format!("operator=\"{operator}\"");
        let spent = self.daemon.metric("capstan_plugin_cpu_seconds_total", &label);
        assert!(spent > 0.0, "{operator}");
        spent
    }

    /// Ends an attack. Also of one that costs no more than anything else it is known whose time it took.
    fn end(self) {
        self.others_are_well();
        self.spent(self.place.namespace.name());
        assert!(self.daemon.stop().success());
    }
}

/// A list in a list in a list, and this in the innermost.
fn nested(levels: usize, innermost: Value) -> Value {
    (0..levels).fold(innermost, |inner, _| json!([inner]))
}

/// Maps in maps, each under `a`.
fn chain(levels: usize) -> Value {
    (0..levels).fold(json!("end"), |inner, _| json!({ "a": inner }))
}

// === comparing ===

#[test]
fn lists_in_lists_are_compared_in_no_time_however_deep() {
    let attacked = Attacked::begin("deep", &Setting::default());
    let compare = json!({ "compare": { "by": "generic", "actual": { "spec": nested(60, json!(1)) }, "desired": { "spec": nested(60, json!(2)) } } });
    let spec = json!({ "reconcile": { "do": [compare], "status": {}, "reschedule": 0 } });
    for name in ["a", "b"] {
        attacked.attack(name, spec.clone());
    }
    attacked.others_are_well();
    for name in ["a", "b"] {
        let status = attacked.status(name);
        assert!(status["compare"]["differs"].is_string(), "{status}");
    }
    attacked.end();
}

/// What a primary's user changes in the innermost of a list, an honest component copies into a dependent.
#[test]
fn a_deep_list_of_a_primary_is_matched_in_no_time() {
    let setting = Setting {
        controller: "workflow:\n  dependents:\n    own: { apiVersion: test.capstan.dev/v1, kind: Probe, match: { generic: {} } }\n",
        ..Setting::default()
    };
    let attacked = Attacked::begin("deep-match", &setting);
    let wanted = |innermost: u32| {
        let object = json!({ "metadata": { "name": "copy" }, "spec": { "list": nested(40, json!(innermost)) } });
        json!({ "dependents": { "own": object }, "reconcile": { "status": { "seen": innermost } } })
    };
    attacked.attack("p", wanted(1));
    let path = attacked.place.probes();
    let innermost = |value: u32| {
        let list = nested(40, json!(value));
        let place = &attacked.place;
        place.await_object(&path, "copy", "the copy", |copy| copy["spec"]["list"] == list);
    };
    innermost(1);
    let changed = json!({ "spec": wanted(2) });
    attacked.place.merge(&path, "p", &changed);
    innermost(2);
    attacked.end();
}

#[test]
fn all_keys_of_a_large_status_may_change_at_once() {
    let attacked = Attacked::begin("wide", &Setting::default());
    let keys = |value: u32| -> Map<String, Value> { (0..20_000).map(|n| (format!("k{n}"), json!(value))).collect() };
    let spec = |value| json!({ "reconcile": { "status": { "keys": keys(value) } } });
    attacked.attack("p", spec(1));
    attacked.others_are_well();
    let path = attacked.place.probes();
    let seen = |value: u32| {
        let key = wait::until_ok(LATER, "the status", || {
            let probe = attacked.place.find(&path, "p").unwrap();
            match &probe["status"]["keys"]["k9999"] {
                found if *found == value => Ok(()),
                _ => Err(attacked.daemon.log()),
            }
        });
        key.unwrap();
    };
    seen(1);
    let changed = json!({ "spec": spec(2) });
    attacked.place.merge(&path, "p", &changed);
    attacked.others_are_well();
    seen(2);
    attacked.end();
}

// === patching ===

/// Permits a probe to patch itself.
const PATCHES: &str =
    "capabilities: { kubernetes: [{ apiVersion: test.capstan.dev/v1, kind: Probe, verbs: [patch, update] }] }\n";

/// A step that patches the probe of this name, and keeps what becomes of it.
fn patch(attacked: &Attacked, name: &str, patch: Value) -> Value {
    let namespace = attacked.place.namespace.name();
    let target = json!({ "apiVersion": "test.capstan.dev/v1", "kind": "Probe", "namespace": namespace, "name": name });
    json!({ "write": { "verb": "jsonPatch", "target": target, "patch": patch }, "mayFail": true, "as": "bomb" })
}

#[test]
fn a_patch_that_doubles_what_it_copies_is_refused() {
    let setting = Setting { plugin: PATCHES, ..Setting::default() };
    let attacked = Attacked::begin("bombs", &setting);
    let copy = |from: &str, path: &str| json!({ "op": "copy", "from": from, "path": path });
    let wide: Vec<_> = (0..27).map(|n| copy("/spec/x", &format!("/spec/x/k{n}"))).collect();
    let deep: Vec<_> = (0..14).map(|n| copy("/spec/x", &format!("/spec/x{}", "/a".repeat(16 << n.min(8))))).collect();
    for (name, bomb) in [("wide", json!(wide)), ("deep", json!(deep))] {
        let steps = [patch(&attacked, name, bomb)];
        let spec = json!({ "x": chain(16), "reconcile": { "do": steps, "status": {} } });
        attacked.attack(name, spec);
    }
    attacked.others_are_well();
    for name in ["wide", "deep"] {
        let status = attacked.status(name);
        let refused = status["bomb"]["refused"].as_str();
        assert!(refused.is_some(), "{name}: {status}");
    }
    attacked.is_blamed("what this run does with documents costs more than it may", OVER_BUDGET);
    let peak = attacked.memory.peak();
    assert!(peak < OWN, "{peak}");
    attacked.end();
}

#[test]
fn an_edit_repeats_no_long_path_for_each_field_that_it_changes() {
    let setting = Setting { plugin: PATCHES, ..Setting::default() };
    let attacked = Attacked::begin("long-path", &setting);
    let namespace = attacked.place.namespace.name();
    let long = "k".repeat(200 << 10);
    let object = |value: u32| {
        let fields: Map<String, Value> = (0..5_000).map(|n| (format!("f{n}"), json!(value))).collect();
        json!({
            "apiVersion": "test.capstan.dev/v1", "kind": "Probe", "metadata": { "namespace": namespace, "name": "p", "uid": "u", "resourceVersion": "1" },
            "spec": { &*long: fields },
        })
    };
    let edit =
        json!({ "write": { "verb": "edit", "object": object(2), "actual": object(1) }, "mayFail": true, "as": "bomb" });
    attacked.attack("p", json!({ "reconcile": { "do": [edit], "status": {} } }));
    attacked.others_are_well();
    // Whether it is refused or sent, as one field in place of thousands.
    attacked.status("p");
    let peak = attacked.memory.peak();
    assert!(peak < OWN, "{peak}");
    attacked.end();
}

// === CEL ===

#[test]
fn a_condition_may_not_compute_for_as_long_as_its_primary_wants() {
    let cel = |expression: &str| {
        format!(
            "workflow:\n  dependents:\n    own: {{ apiVersion: v1, kind: ConfigMap, reconcilePrecondition: {{ cel: {expression:?} }} }}\n"
        )
    };
    let hosts = "primary.spec.hosts.all(h, primary.spec.hosts.exists_one(x, x == h))";
    let pattern = "primary.spec.text.matches(primary.spec.pattern)";
    let many: Vec<_> = (0..40_000).map(|n| format!("h{n}")).collect();
    for (prefix, expression, data, metric) in [
        ("cel-n2", hosts, json!({ "hosts": many }), OVER_BUDGET),
        ("cel-regex", pattern, json!({ "text": "a".repeat(400_000), "pattern": "(a{0,200}){0,200}$" }), FAILURES),
    ] {
        let setting = Setting { controller: &cel(expression), ..Setting::default() };
        let attacked = Attacked::begin(prefix, &setting);
        let mut spec = data;
        spec["dependents"] = json!({ "own": { "metadata": { "name": "own" } } });
        for name in ["a", "b"] {
            attacked.attack(name, spec.clone());
        }
        attacked.others_are_well();
        attacked.failure("/a", expression);
        attacked.is_blamed(expression, metric);
        attacked.end();
    }
}

// === memory ===

#[test]
fn what_is_printed_published_and_asked_for_takes_little_memory() {
    let setting = Setting {
        controller: "minRescheduleInterval: none\n",
        arguments: &["--plugin-memory", "192Mi"],
        ..Setting::default()
    };
    let attacked = Attacked::begin("memory", &setting);
    let shout = json!({ "times": { "n": 6, "do": [{ "shout": 4 << 20 }] } });
    let event = json!({ "event": { "reason": "Long", "message": "m".repeat(1 << 20) } });
    // More than a run may ask for.
    let events = json!({ "times": { "n": 120, "do": [event] } });
    let everything = json!({ "read": { "in": "primaries", "select": "everywhere" }, "mayFail": true, "as": "all" });
    for n in 0..60 {
        let ballast = json!({ "ballast": "b".repeat(1 << 20) });
        attacked.attack(&format!("large-{n}"), ballast);
    }
    let cached = attacked.daemon.metric("capstan_informer_bytes", "Probe");
    for n in 0..4 {
        for (name, step) in [("shout", &shout), ("events", &events), ("all", &everything)] {
            let spec = json!({ "reconcile": { "do": [step], "status": { "ran": true } } });
            attacked.attack(&format!("{name}-{n}"), spec);
        }
    }
    attacked.others_are_well();
    attacked.failure("/shout-", "output beyond limits.log was dropped");
    attacked.is_blamed("limits.requests", REFUSED);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is a number of bytes")]
    let cached = cached as u64;
    let peak = attacked.memory.peak();
    let most = OWN + (192 << 20) + 2 * cached;
    assert!(peak < most, "{peak} of {most}, {cached} in caches");
    attacked.end();
}

/// Specs that cost much, each in its own way, by what they do.
fn costly(attacked: &Attacked, name: &str) -> Vec<(&'static str, Value)> {
    let copies: Vec<_> =
        (0..27).map(|n| json!({ "op": "copy", "from": "/spec/x", "path": format!("/spec/x/k{n}") })).collect();
    let compare = json!({ "compare": { "by": "generic", "actual": { "spec": nested(60, json!(1)) }, "desired": { "spec": nested(60, json!(2)) } } });
    let many: Vec<_> = (0..40_000).map(|n| format!("h{n}")).collect();
    let event = json!({ "event": { "reason": "Long", "message": "m".repeat(1 << 20) } });
    let everything = json!({ "read": { "in": "primaries", "select": "everywhere" }, "mayFail": true, "as": "all" });
    let doing = |steps: Value| json!({ "reconcile": { "do": steps, "status": {} } });
    let mut bomb = doing(json!([patch(attacked, &format!("bomb-{name}"), json!(copies))]));
    bomb["x"] = chain(16);
    vec![
        ("bomb", bomb),
        ("compare", doing(json!([compare]))),
        ("hosts", json!({ "hosts": many })),
        ("pattern", json!({ "text": "a".repeat(400_000), "pattern": "(a{0,200}){0,200}$" })),
        ("hoard", doing(json!(["allocate"]))),
        ("loop", doing(json!(["loop"]))),
        ("shout", doing(json!([{ "times": { "n": 6, "do": [{ "shout": 4 << 20 }] } }]))),
        ("events", doing(json!([{ "times": { "n": 50, "do": [event] } }]))),
        ("all", doing(json!([everything]))),
        ("ballast", json!({ "ballast": "b".repeat(1 << 20) })),
    ]
}

#[test]
fn what_attacks_take_is_given_back_or_used_again() {
    all_is_given_back("all", "shared");
}

#[test]
fn what_attacks_on_a_plugin_with_a_process_take_is_given_back_or_used_again() {
    all_is_given_back("all-apart", "process");
}

/// An allocator keeps some of what was freed, but the second time it needs no more.
fn all_is_given_back(prefix: &str, isolation: &str) {
    let hosts = "has(primary.spec.hosts) && primary.spec.hosts.all(h, primary.spec.hosts.exists_one(x, x == h))";
    let pattern = "has(primary.spec.pattern) && primary.spec.text.matches(primary.spec.pattern)";
    let setting = Setting {
        plugin: &format!("isolation: {isolation}\nlimits: {{ timeout: 3s }}\n{PATCHES}"),
        controller: &format!(
            "workflow:\n  dependents:\n    own: {{ apiVersion: v1, kind: ConfigMap, reconcilePrecondition: {{ cel: {:?} }} }}\n",
            format!("{hosts} || {pattern}")
        ),
        arguments: &["--plugin-memory", "192Mi"],
    };
    let attacked = Attacked::begin(prefix, &setting);
    let path = attacked.place.probes();
    let before = attacked.memory.held();
    let mut most = before + KEPT;
    for _round in 0..2 {
        let mut names = Vec::new();
        for number in ["1", "2", "3"] {
            for (name, spec) in costly(&attacked, number) {
                let name = format!("{name}-{number}");
                attacked.attack(&name, spec);
                names.push(name);
            }
        }
        attacked.others_are_well();
        attacked.failure("/loop-", "limits.timeout");
        attacked.others_are_well();
        for name in names {
            attacked.place.merge(&path, &name, &json!({ "spec": null }));
            attacked.place.delete(&path, &name);
            attacked.place.await_gone(&path, &name);
        }
        wait::until_ok(LATER, "the memory to be given back", || {
            let held = attacked.memory.held();
            (held <= most).then_some(()).ok_or_else(|| format!("{held} of {most}, {before} before"))
        })
        .unwrap();
        let held = attacked.memory.held();
        most = held + KEPT / 4;
    }
    let peak = attacked.memory.peak();
    assert!(peak < OWN + (192 << 20), "{peak}");
    attacked.end();
}

// === others ===

#[test]
fn one_primary_that_is_too_deep_keeps_nobody_from_reading_the_others() {
    let attacked = Attacked::begin("abyss", &Setting::default());
    attacked.attack("abyss", json!({ "deep": chain(1_000) }));
    let read = json!({ "read": { "in": "primaries", "select": "everywhere", "fields": ["/metadata/name", "/spec/reconcile/status"] } });
    let spec = json!({ "reconcile": { "do": [read], "status": {} } });
    attacked.attack("reader", spec);
    let status = attacked.status("reader");
    let names = status["read"].as_array().unwrap();
    assert!(names.contains(&json!("reader")), "{status}");
    attacked.is_blamed("/abyss", FAILURES);
    attacked.end();
}

#[test]
fn runs_that_never_end_take_no_turn_from_another_plugin() {
    let setting = Setting {
        plugin: "limits: { timeout: 3s, concurrency: 40 }\n",
        arguments: &["--plugin-concurrency", "40"],
        ..Setting::default()
    };
    let attacked = Attacked::begin("spinners", &setting);
    for n in 0..40 {
        let spec = json!({ "reconcile": { "do": ["loop"] } });
        attacked.attack(&format!("spinner-{n}"), spec);
    }
    attacked.others_are_well();
    attacked.failure("/spinner-", "limits.timeout");
    attacked.is_blamed("limits.timeout", "capstan_plugin_broken_calls_total");
    let name = attacked.place.namespace.name();
    let spent = |operator: &str| attacked.spent(operator);
    // They are retried, so that this comes true however little processor time there is for the daemon.
    wait::until_ok(LATER, "the spinners to have spent ten times as much", || {
        let (spinners, victim) = (spent(name), spent(&format!("{name}-victim")));
        (spinners > 10.0 * victim).then_some(()).ok_or(format!("{spinners} s, the victim {victim} s"))
    })
    .unwrap();
    attacked.end();
}

#[test]
fn expressions_about_what_comes_hold_up_no_events_of_others() {
    let place = Place::new("costly-index");
    let maps = |fields: &str| {
        format!(
            "sources: {{ maps: {{ informer: {{ apiVersion: v1, kind: ConfigMap, mapper: {{ annotations: {{}} }}{fields} }} }} }}\n"
        )
    };
    // As many as a controller may have, each as costly as one may be.
    let pairs = "has(object.data) && object.data.map(a, object.data.map(b, a + b)).size() == 0 ? ['x'] : []";
    let indexes: String = (0..30).map(|n| format!("i{n}: {{ cel: \"{pairs}\" }}, ")).collect();
    let costly = maps(&format!(", indexes: {{ {} }}", indexes.trim_end_matches(", ")));
    let attacker = place.manifest("probe", PRIMARY, "", &format!("labelSelector: attack\n{costly}"));
    let victim = place.renamed(&place.probe_manifest(&format!("labelSelector: victim\n{}", maps(""))), "victim");
    let daemon = Start::new(&format!("{attacker}---\n{victim}")).run(&place).until_ready();
    place.labelled_probe("victim", "victim", json!({}));
    wait::until(LATER, "its first run", || (daemon.runs_of("victim") > 0).then_some(())).unwrap();
    let data: Map<String, Value> = (0..200).map(|n| (format!("key-{n}"), json!("x"))).collect();
    for n in 0..300 {
        place.create("v1", "ConfigMap", &place.config_maps(), &format!("costly-{n}"), json!({ "data": data }));
    }
    // What concerns the victim comes behind all that, in the same watch.
    let news = place.map_of("victim", "news", json!({}));
    place.create("v1", "ConfigMap", &place.config_maps(), "news", news);
    wait::until(SOON, "the run about the news", || (daemon.runs_of("victim") > 1).then_some(())).unwrap();
    let asked = daemon.count("capstan_callback_failures_total", "");
    assert!(asked < 300 * 30, "the victim's turn came before all that had been asked");
    assert_eq!(daemon.get("/readyz").0, 200);
}

// === writing ===

#[test]
fn a_plugin_writes_no_more_than_it_may_whatever_its_primaries_ask_for() {
    let limits = "limits: { requestsPerSecond: 20 }\n";
    let setting = Setting { plugin: limits, controller: "rateLimit: none\n", ..Setting::default() };
    let attacked = Attacked::begin("writes", &setting);
    let count = json!([{ "memo": { "lifetime": "primary", "count": "runs" }, "as": "runs" }]);
    let spec = json!({ "reconcile": { "do": count, "status": {}, "reschedule": 0 } });
    for n in 0..8 {
        attacked.attack(&format!("writer-{n}"), spec.clone());
    }
    let audit = attacked.place.cluster.audit().unwrap();
    let query =
        |mark| Query::since(mark).namespace(attacked.place.namespace.name()).resource("probes").verbs(["patch"]);
    let written = |query: &Query| {
        let requests = audit.requests(query).unwrap();
        requests.into_iter().filter(|request| request.name.starts_with("writer-")).count()
    };
    let begun = audit.mark().unwrap();
    // What it may send at once after a rest.
    wait::until(LATER, "its burst", || (written(&query(begun)) > 100).then_some(())).unwrap();
    let (mark, since) = (audit.mark().unwrap(), Instant::now());
    attacked.others_are_well();
    wait::until(LATER, "three seconds", || (since.elapsed() > Duration::from_secs(3)).then_some(())).unwrap();
    let (more, took) = (written(&query(mark)), since.elapsed());
    let most = 20 * (took.as_secs() + 3);
    assert!((20..=usize::try_from(most).unwrap()).contains(&more), "{more} writes in {took:?}");
    attacked.is_blamed("limits.requestsPerSecond", "capstan_plugin_requests_throttled_total");
    attacked.end();
}
