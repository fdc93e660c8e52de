//! What is polled outside of the cluster: when, for whom, and what follows from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::wait;
use parking_lot::Mutex;
use scenarios::{Daemon, LATER, Place, SOON};
use serde_json::{Value, json};

use crate::web;

/// Steps that show what was polled, and how often the probes `a` and `b` were.
fn looking() -> Value {
    let count = |name: &str| json!({ "memo": { "lifetime": "plugin", "get": format!("polls {name}") }, "as": name });
    let things =
        json!({ "read": { "in": { "source": "things" }, "select": "related" }, "as": "things", "show": ["/id"] });
    json!([things, { "memo": { "lifetime": "primary", "count": "runs" }, "as": "runs" }, count("a"), count("b")])
}

/// Waits until a number in the status of a probe is at least this, and returns the probe.
fn await_at_least(place: &Place, name: &str, field: &str, least: u64) -> Value {
    let what = format!("{field} {least} of {name}");
    place.await_object(&place.probes(), name, &what, |probe| probe["status"][field].as_u64() >= Some(least))
}

/// Returns what `/debug/controllers` says of a source of the one controller there is.
fn polled(daemon: &Daemon, source: &str) -> Value {
    daemon.controllers()["controllers"][0]["polled"][source].clone()
}

#[test]
fn s047_what_belongs_to_each_primary_is_polled_until_that_is_deleted() {
    // PP-2, XC-1, XC-6
    let place = Place::new("s047");
    let daemon = place.daemon(
        &place.probe_manifest("sources: { things: { pollEach: { every: 100ms, id: /id } } }\nrateLimit: none\n"),
    );
    let poll = json!({ "things": { "things": [{ "id": 1 }], "count": true } });
    for name in ["a", "b"] {
        place.probe(name, json!({ "reconcile": { "do": looking() }, "polls": poll }));
    }
    for name in ["a", "b"] {
        await_at_least(&place, name, "runs", 3);
        await_at_least(&place, name, name, 3);
    }
    place.delete(&place.probes(), "b");
    place.await_gone(&place.probes(), "b");
    let gone = |status: &Value| (status["a"].as_u64().unwrap(), status["b"].as_u64().unwrap());
    // A poll that was under way may have counted still.
    let (first, _) = gone(&place.find(&place.probes(), "a").unwrap()["status"]);
    let (first, frozen) = gone(&await_at_least(&place, "a", "a", first + 2)["status"]);
    let (_, after) = gone(&await_at_least(&place, "a", "a", first + 6)["status"]);
    assert_eq!(after, frozen, "the polls of one that is gone");
    // A run about it might still have read what was polled.
    let left = || if polled(&daemon, "things")["primaries"] == 1 { Ok(()) } else { Err(polled(&daemon, "things")) };
    wait::until_ok(SOON, "its things to be forgotten", left).unwrap();
}

#[test]
fn what_a_run_writes_outside_of_the_cluster_is_read_at_once_and_by_the_next_run() {
    // XC-4
    let place = Place::new("remember");
    let daemon = place.daemon(&place.probe_manifest("sources: { things: { pollEach: { every: 1h, id: /id } } }\n"));
    let poll = json!({ "things": { "things": [{ "id": "old" }], "count": true } });
    let write = json!([
        { "read": { "in": { "source": "things" }, "select": "related" }, "as": "before", "show": ["/id"] },
        { "remember": { "name": "things", "actual": { "id": "new" } } },
        { "forget": { "name": "things", "id": "old" } },
        { "read": { "in": { "source": "things" }, "select": "related" }, "as": "after", "show": ["/id"] },
    ]);
    place.probe("a", json!({ "reconcile": { "do": write, "status": {} }, "polls": poll }));
    let shown = |status: &Value, field: &str| status[field][0]["/id"].clone();
    let first = place.await_object(&place.probes(), "a", "the write", |probe| probe["status"]["after"].is_array());
    assert_eq!((shown(&first["status"], "before"), shown(&first["status"], "after")), (json!("old"), json!("new")));
    daemon.await_quiet();
    let runs = daemon.runs();
    let looking = looking();
    place.merge(
        &place.probes(),
        "a",
        &json!({ "spec": { "reconcile": { "do": looking, "status": { "look": true } } } }),
    );
    let next = place.await_object(&place.probes(), "a", "the next run", |probe| probe["status"]["things"].is_array());
    assert_eq!(next["status"]["things"], json!([{ "/id": "new" }]));
    assert_eq!(
        (daemon.runs(), next["status"]["a"].as_u64()),
        (runs + 1, Some(1)),
        "nothing was polled again, and nobody woken"
    );
}

#[test]
fn a_poll_for_all_primaries_comes_before_the_first_run_and_wakes_those_whose_things_change() {
    // PP-1, XC-1, XC-2
    let place = Place::new("poll-all");
    let spec =
        |id: u32| json!({ "reconcile": { "do": looking() }, "polled": { "things": { "things": [{ "id": id }] } } });
    place.probe("a", spec(1));
    place.probe("b", spec(1));
    let daemon = place.daemon(&place.probe_manifest("sources: { things: { poll: { every: 200ms, id: /id } } }\n"));
    for name in ["a", "b"] {
        let probe = place.await_object(&place.probes(), name, "its run", |probe| probe["status"]["runs"].is_u64());
        assert_eq!(probe["status"]["things"], json!([{ "/id": 1 }]), "in the first run");
    }
    daemon.await_quiet();
    let runs = |name| place.find(&place.probes(), name).unwrap()["status"]["runs"].as_u64().unwrap();
    let before = (runs("a"), runs("b"));
    // A change of the spec is an event, too: the next one is that of the poll.
    place.merge(&place.probes(), "a", &spec(2).as_object().map(|spec| json!({ "spec": spec })).unwrap());
    place.await_object(&place.probes(), "a", "the new thing", |probe| {
        probe["status"]["things"] == json!([{ "/id": 2 }])
    });
    daemon.await_quiet();
    assert!(runs("a") > before.0);
    assert_eq!(runs("b"), before.1, "its things are as they were");
    let told = polled(&daemon, "things");
    assert_eq!((&told["primaries"], &told["things"], &told["failuresInARow"]), (&json!(2), &json!(2), &json!(0)));
}

#[test]
fn a_poll_that_fails_keeps_what_was_known_and_is_told_once() {
    // PP-1
    let place = Place::new("poll-fails");
    let daemon = place.daemon(&place.probe_manifest(
        "sources: { things: { poll: { every: 100ms, id: /id } } }\nretry: { initialInterval: 100ms }\n",
    ));
    place.probe("a", json!({ "reconcile": { "do": looking() }, "polled": { "things": { "things": [{ "id": 1 }] } } }));
    let thing = |probe: &Value| probe["status"]["things"] == json!([{ "/id": 1 }]);
    place.await_object(&place.probes(), "a", "its thing", thing);
    let wrong = [
        ("returned", json!({ "do": { "fail": "no way" } }), "no way"),
        ("trap", json!({ "do": "trap" }), "traps on purpose"),
        ("endless", json!({ "do": "loop" }), "took longer than"),
        ("too large", json!({ "do": "allocate" }), "limits.memory"),
        ("no JSON", json!({ "texts": ["{"] }), "EOF while parsing"),
        ("no id", json!({ "things": [{ "name": 1 }] }), "a thing has no id"),
    ];
    // In one step: in between, there would be nothing to poll.
    let polls = |poll: Value| {
        let mut all = json!({ "do": null, "things": null, "texts": null });
        all.as_object_mut().unwrap().extend(poll.as_object().unwrap().clone());
        place.merge(&place.probes(), "a", &json!({ "spec": { "polled": { "things": all } } }));
    };
    for (what, poll, why) in wrong {
        polls(poll);
        let found = wait::until_ok(LATER, what, || {
            let lines = daemon.lines();
            let told = lines
                .iter()
                .filter(|line| line["message"] == "a poll has failed: what was known stays, and it is tried again");
            let told: Vec<_> =
                told.filter(|line| line["error"].as_str().is_some_and(|error| error.contains(why))).collect();
            if told.is_empty() { Err(format!("{lines:?}")) } else { Ok(told.len()) }
        });
        assert_eq!(found.unwrap(), 1, "{what}: lines of the log");
        assert!(polled(&daemon, "things")["failuresInARow"].as_u64() > Some(0), "{what}");
        assert!(thing(&place.find(&place.probes(), "a").unwrap()), "{what}");
        polls(json!({ "things": [{ "id": 1 }] }));
        let well = || (polled(&daemon, "things")["failuresInARow"] == 0).then_some(());
        wait::until(LATER, "a poll that succeeds", well).unwrap();
    }
    assert!(daemon.count("capstan_callback_failures_total", "poller") >= 6);
}

#[test]
fn polls_and_runs_of_a_plugin_with_one_place_do_not_wait_for_each_other() {
    // PP-2
    let place = Place::new("poll-one-place");
    let plugin = "limits: { concurrency: 1, timeout: 3s }\n";
    let primary = "{ apiVersion: test.capstan.dev/v1, kind: Probe }";
    let fields =
        "sources: { things: { pollEach: { every: 100ms, id: /id, concurrency: 4 } } }\nrateLimit: none\nretry: none\n";
    for isolation in ["shared", "process"] {
        let manifest = place.manifest("probe", primary, &format!("{plugin}isolation: {isolation}\n"), fields);
        let daemon = place.daemon(&manifest);
        for n in 0..8 {
            let poll = json!({ "things": { "do": { "busyMs": 5 }, "things": [{ "id": 1 }], "count": true } });
            place.probe(&format!("{isolation}-{n}"), json!({ "reconcile": { "do": looking() }, "polls": poll }));
        }
        for n in 0..8 {
            await_at_least(&place, &format!("{isolation}-{n}"), "runs", 3);
        }
        assert_eq!(daemon.count("capstan_reconciliations_failure_total", ""), 0, "{isolation}: {}", daemon.log());
        assert_eq!(daemon.count("capstan_callback_failures_total", "poller"), 0, "{isolation}: {}", daemon.log());
        for n in 0..8 {
            place.delete(&place.probes(), &format!("{isolation}-{n}"));
        }
        for n in 0..8 {
            place.await_gone(&place.probes(), &format!("{isolation}-{n}"));
        }
    }
}

/// A server outside of the cluster that keeps texts by their ids. It lasts as long as the process.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    things: BTreeMap<u32, String>,
    made: u32,
    polls: u32,
}

impl Store {
    /// Starts it, and returns its port.
    fn start(&self) -> u16 {
        let store = self.clone();
        web::serve(move |method, path, body| {
            let id = path.strip_prefix("/things/").and_then(|id| id.parse().ok());
            store.act(method, id, body)
        })
    }

    fn act(&self, method: &str, id: Option<u32>, body: String) -> (u16, String) {
        let mut kept = self.0.lock();
        match (method, id) {
            ("POST", None) => {
                kept.made += 1;
                let id = kept.made;
                kept.things.insert(id, body);
                (200, id.to_string())
            }
            ("GET", Some(id)) => {
                kept.polls += 1;
                let thing = kept.things.get(&id).map(|data| json!({ "id": id, "data": data }).to_string());
                thing.map_or((404, String::new()), |thing| (200, thing))
            }
            ("PUT", Some(id)) => {
                kept.things.insert(id, body);
                (200, String::new())
            }
            ("DELETE", Some(id)) => {
                kept.things.remove(&id);
                (200, String::new())
            }
            _ => (400, String::new()),
        }
    }

    fn things(&self) -> BTreeMap<u32, String> {
        self.0.lock().things.clone()
    }
}

#[test]
fn s158_a_resource_outside_of_the_cluster_keeps_its_id_in_the_status() {
    // PP-2, XC-3
    let (place, store) = (Place::new("s158"), Store::default());
    let port = store.start();
    let plugin = format!("capabilities: {{ http: [\"http://127.0.0.1:{port}\"] }}\n");
    let primary = "{ apiVersion: test.capstan.dev/v1, kind: Probe }";
    let fields = "sources: { things: { pollEach: { every: 300ms, id: /id, when: { cel: \"has(primary.status) && has(primary.status.id)\" } } } }\n";
    let daemon = place.daemon(&place.manifest("probe-http", primary, &plugin, fields));
    let keep = |data: &str| json!({ "keep": { "url": format!("http://127.0.0.1:{port}/things"), "data": data } });
    place.probe("p", keep("first"));
    let probe = place.await_object(&place.probes(), "p", "the id", |probe| probe["status"]["id"].is_string());
    assert_eq!(probe["status"]["id"], "1");
    let polls = || store.0.lock().polls;
    let thrice = polls() + 3;
    wait::until(SOON, "polls", || (polls() >= thrice).then_some(())).unwrap();
    assert_eq!(store.things(), [(1, "first".to_owned())].into(), "exactly one");

    place.merge(&place.probes(), "p", &json!({ "spec": keep("second") }));
    let is = |data: &'static str| move |things: BTreeMap<u32, String>| things == [(1, data.to_owned())].into();
    wait::until(SOON, "the new data", || is("second")(store.things()).then_some(())).unwrap();
    // Somebody else changes it out there: the poll finds out, and the run puts it right.
    store.0.lock().things.insert(1, "other".to_owned());
    wait::until(SOON, "the repair", || is("second")(store.things()).then_some(())).unwrap();

    place.delete(&place.probes(), "p");
    place.await_gone(&place.probes(), "p");
    assert_eq!(store.things(), BTreeMap::new());
    assert_eq!(daemon.count("capstan_callback_failures_total", "poller"), 0);
}
