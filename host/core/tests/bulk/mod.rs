//! Runs with dependents of which there are as many as the primary says.

use capstan_core::reconciler::Ended;

use super::*;

const BULK: &str = "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap, bulk: true } } }";
const OWN: &str =
    "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap, bulk: true, garbageCollected: false } } }";

/// A bench whose component has as many config maps as the page says.
fn bench(fields: &str) -> Bench {
    let script =
        Script { exports: &[Interface::Reconciler, Interface::Dependent, Interface::Bulk], ..Script::default() };
    Bench::new(script, fields)
}

impl Bench {
    /// Puts a page there that wants these config maps, each with its value.
    fn wants(&mut self, set: &[(&str, &str)]) {
        self.page_of(json!({ "uid": "page", "finalizers": ["sample.dev/finalizer"] }), json!({ "set": set }));
    }

    /// Has the watch show what there is.
    fn seen(&mut self) {
        let there = self.server.objects.lock().clone();
        let there = there.iter().filter(|((gvk, _), _)| *gvk == config_map());
        let there: Vec<Object> =
            there.map(|((gvk, _), tree)| Object::parse(&tree.to_string(), gvk, &Managers::all()).unwrap()).collect();
        let source = Arc::clone(&self.controller.secondaries["cm"]);
        for mut gone in source.list(None) {
            if there.iter().any(|object| object.key() == gone.key()) {
                continue;
            }
            *self.server.version.lock() += 1;
            let version = self.server.version.lock().to_string();
            let mut tree: Value = serde_json::from_str(gone.json()).unwrap();
            tree["metadata"]["resourceVersion"] = version.into();
            gone = Object::parse(&tree.to_string(), &config_map(), &Managers::all()).unwrap();
            self.maps.apply(Watch::Applied(gone.clone())).map(|change| source.on(change));
            self.maps.apply(Watch::Deleted(gone)).map(|change| source.on(change));
        }
        for object in there {
            self.maps.apply(Watch::Applied(object)).map(|change| source.on(change));
        }
    }

    /// Runs the page once, and returns how that ended and what was written.
    pub(super) async fn ended(&self) -> (Ended, Vec<String>) {
        let key = ObjectRef::namespaced("n", "a");
        self.queue.event(&key, queue::Event::PrimaryChanged { deleting: false }, Instant::now());
        let mut ticket = self.queue.next().await.unwrap();
        let ended = execute(Arc::clone(&self.controller), &mut ticket, NOW).await;
        ticket.finish(ended.finished, Instant::now());
        (ended, std::mem::take(&mut self.server.writes.lock()))
    }

    /// The same, of a run that fails.
    async fn failure(&self) -> (String, Vec<String>) {
        let (ended, writes) = self.ended().await;
        (ended.error.unwrap(), writes)
    }

    /// Returns the names of the config maps that there are.
    fn names(&self) -> Vec<String> {
        let objects = self.server.objects.lock();
        objects.keys().filter(|(gvk, _)| *gvk == config_map()).map(|(_, key)| key.name.to_string()).collect()
    }
}

fn made(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| format!("create ConfigMap {name}")).collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_too_much_goes_first_and_the_others_are_brought_in_line_one_by_one() {
    // BD-1, BD-3: whether owner references lead to the primary or not.
    for fields in [BULK, OWN] {
        let mut bench = bench(fields);
        bench.wants(&[("one", "1"), ("two", "2"), ("three", "3")]);
        let calls = strings(&["desired-set cm", "reconcile"]);
        assert_eq!(bench.run().await, (DONE, calls.clone(), made(&["one", "two", "three"])), "{fields}");
        assert_eq!(bench.run().await, (DONE, calls, vec![]), "nothing has changed");
        bench.seen();
        bench.wants(&[("four", "4"), ("two", "other"), ("three", "3")]);
        let writes = strings(&["delete ConfigMap one", "create ConfigMap four", "update ConfigMap two"]);
        assert_eq!(bench.run().await.2, writes, "{fields}");
        assert_eq!(bench.data("two"), json!({ "x": "other" }));
        bench.seen();
        assert_eq!(bench.run().await.2, strings(&[]), "{fields}");
        bench.wants(&[]);
        assert_eq!(bench.run().await.2.len(), 3, "{fields}");
        assert_eq!(bench.names(), strings(&[]));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_desired_twice_is_an_error_that_names_it_and_changes_nothing() {
    // BD-1
    let mut bench = bench(BULK);
    bench.wants(&[("one", "1")]);
    bench.run().await;
    bench.wants(&[("two", "2"), ("two", "3")]);
    let (error, writes) = bench.failure().await;
    assert_eq!(writes, strings(&[]));
    assert!(error.contains("n/two is twice in what `desired-set` answered for cm"), "{error}");
    // One that is known to match is found as well.
    bench.wants(&[("one", "1"), ("one", "1")]);
    let (error, writes) = bench.failure().await;
    assert_eq!((writes, error.contains("n/one is twice")), (vec![], true), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_failure_of_one_object_leaves_the_others_alone_unless_the_api_server_is_away() {
    // BD-1
    let mut bench = bench(BULK);
    bench.wants(&[("one", "1"), ("two", "2"), ("three", "3")]);
    bench.server.failures.lock().push(unavailable(Reason::Rejected, 403));
    let (error, writes) = bench.failure().await;
    assert_eq!(writes, strings(&["create ConfigMap one failed", "create ConfigMap two", "create ConfigMap three"]));
    assert!(error.contains("1 of 3 objects failed: n/one: "), "{error}");
    assert_eq!(bench.run().await.2, made(&["one"]), "the others are known to match");

    bench.wants(&[("four", "4"), ("five", "5"), ("one", "1")]);
    bench.server.failures.lock().extend([
        unavailable(Reason::Unreachable, 503),
        unavailable(Reason::Rejected, 403),
        unavailable(Reason::Rejected, 403),
    ]);
    let (_, writes) = bench.failure().await;
    let expected = ["delete ConfigMap three failed", "delete ConfigMap two failed", "create ConfigMap four failed"];
    assert_eq!(writes, strings(&expected));
}

#[tokio::test(start_paused = true)]
async fn one_object_that_is_refused_before_it_is_sent_leaves_the_others_alone_and_stays_itself() {
    // BD-1: what is too much goes all the same, unless it is not known what that is.
    for (fields, refused, told, deleted) in [
        (OWN, json!(["n2/two", "2"]), "1 of 3 objects failed: n2/two: dependent cm: metadata.namespace is", true),
        (BULK, json!(["n2/two", "2"]), "1 of 3 objects failed: n2/two: dependent cm: n2/two can't be owned", true),
        (
            OWN,
            json!([7, "2"]),
            "1 of 2 objects failed: number 1 of the answer: dependent cm: metadata.name is a n",
            false,
        ),
    ] {
        let mut bench = bench(fields);
        bench.wants(&[("one", "1"), ("old", "1")]);
        bench.run().await;
        bench.seen();
        let set = json!({ "set": [refused, ["one", "other"]] });
        bench.page_of(json!({ "uid": "page", "finalizers": ["sample.dev/finalizer"] }), set);
        let (error, writes) = bench.failure().await;
        assert!(error.contains(told), "{error}");
        let deletion = strings(if deleted { &["delete ConfigMap old"] } else { &[] });
        assert_eq!(writes, [deletion, strings(&["update ConfigMap one"])].concat(), "{told}");
        assert_eq!(bench.data("one"), json!({ "x": "other" }));
    }
    // What it means may be there.
    let mut bench = bench(BULK);
    bench.wants(&[("one", "1"), ("two", "2")]);
    bench.run().await;
    bench.seen();
    let set = json!({ "set": [["one", "1"], ["two", "2", [{ "kind": "Page" }]]] });
    bench.page_of(json!({ "uid": "page", "finalizers": ["sample.dev/finalizer"] }), set);
    let (error, writes) = bench.failure().await;
    assert!(error.contains("1 of 2 objects failed: n/two: dependent cm: metadata.ownerReferences"), "{error}");
    assert_eq!((writes, bench.names()), (strings(&[]), strings(&["one", "two"])));
    // Twice is twice, refused or not.
    let set = json!({ "set": [["two", "1"], ["two", "2", [{ "kind": "Page" }]]] });
    bench.page_of(json!({ "uid": "page", "finalizers": ["sample.dev/finalizer"] }), set);
    let (error, writes) = bench.failure().await;
    assert_eq!((writes, error.contains("n/two is twice")), (vec![], true), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_is_forbidden_again_and_again_is_not_tried_for_all_others() {
    // BD-1
    let names: Vec<_> = (0..50).map(|n| format!("cm-{n:02}")).collect();
    let set: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    for (refusals, (reason, code), tried, said) in [
        (15, (Reason::Forbidden, 403), 50, "15 of 50 objects failed: n/cm-00: "),
        (60, (Reason::Forbidden, 403), 20, "20 of 20 objects failed, so that the others were not tried: n/cm-00: "),
        // Each may be invalid for a reason of its own.
        (40, (Reason::Rejected, 422), 50, "40 of 50 objects failed: n/cm-00: "),
    ] {
        let mut bench = bench(BULK);
        bench.wants(&set);
        bench.server.failures.lock().extend(vec![unavailable(reason, code); refusals]);
        let (error, writes) = bench.failure().await;
        assert_eq!(writes.len(), tried);
        assert!(error.contains(said), "{error}");
        assert!(error.contains(&format!("; and {} more", refusals.min(tried) - 3)), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_others_have_under_a_desired_name_is_an_error_that_says_whose_it_is() {
    // BD-1, KD-6
    const BESIDE: &str = "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap, bulk: true }, \
         other: { apiVersion: v1, kind: ConfigMap, bulk: true, dependsOn: [cm] } } }";
    let owned = |uid: &str| json!([{ "apiVersion": "sample.dev/v1", "kind": "Page", "name": "b", "uid": uid }]);
    let marked = |operator: &str| {
        let mark = json!({ "operator": operator, "controller": "pages", "dependent": "other",
            "primary": { "apiVersion": "sample.dev/v1", "kind": "Page", "namespace": "n", "name": "a", "uid": "page" } });
        json!({ "capstan.dev/made-for": mark.to_string() })
    };
    for (metadata, whose) in [
        (json!({}), "nobody is named as its owner"),
        (json!({ "ownerReferences": owned("u-2") }), "owned by Page b (uid u-2)"),
        (
            json!({ "ownerReferences": owned("page"), "annotations": marked("a") }),
            "made for this primary by dependent other of controller pages of operator a",
        ),
        (
            json!({ "ownerReferences": owned("page"), "annotations": marked("b") }),
            "made for this primary by dependent other of controller pages of operator b",
        ),
    ] {
        for shown in [false, true] {
            let mut bench = bench(BESIDE);
            let mut tree = json!({ "metadata": { "name": "one", "namespace": "n", "uid": "theirs" } });
            json_patch::merge(&mut tree, &json!({ "metadata": metadata }));
            bench.server.put(&config_map(), tree);
            if shown {
                bench.seen();
            }
            bench.wants(&[("one", "1"), ("two", "2")]);
            let (error, writes) = bench.failure().await;
            assert_eq!(writes, made(&["one", "two"]), "{whose}");
            assert!(error.contains("1 of 2 objects failed: n/one: ConfigMap n/one exists and is not ours"), "{error}");
            assert!(error.contains(whose), "{error}");
            assert_eq!(bench.data("one"), Value::Null, "it is as it was");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_single_dependent_has_made_is_not_taken_by_a_bulk_of_the_kind() {
    // BD-1, KD-13: no mark says whose it is, whether the single one still wants it or not.
    const BESIDE: &str = "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap, bulk: true }, \
         single: { apiVersion: v1, kind: ConfigMap, activation: { cel: '!has(primary.spec.off)' } } } }";
    let [theirs, both] = ["exists and is not ours", "is desired by single and by cm"];
    for (known, off, told) in [(true, true, theirs), (false, true, theirs), (true, false, both), (false, false, both)] {
        let mut bench = bench(BESIDE);
        bench.wants(&[]);
        assert_eq!(bench.run().await.2, made(&["a"]));
        bench.seen();
        if !known {
            // As if the daemon had begun anew.
            bench.controller.verdicts.forget_unless(&ObjectRef::namespaced("n", "a"), None);
        }
        let mut spec = json!({ "set": [["a", "bulk"], ["one", "1"]] });
        if off {
            spec["off"] = true.into();
        }
        bench.page_of(json!({ "uid": "page", "finalizers": ["sample.dev/finalizer"] }), spec);
        let (error, writes) = bench.failure().await;
        assert!(error.contains(&format!("1 of 2 objects failed: n/a: ConfigMap n/a {told}")), "{error}");
        assert!(writes.contains(&"create ConfigMap one".to_owned()), "{writes:?}");
        bench.seen();
        bench.wants(&[]);
        assert_eq!(bench.run().await.2, strings(&["delete ConfigMap one"]));
        assert_eq!(bench.names(), strings(&["a"]));
    }
}

#[tokio::test(start_paused = true)]
async fn who_takes_the_mark_off_keeps_the_object_also_if_that_was_not_seen_yet() {
    // BD-1
    for shown in [true, false] {
        let mut bench = bench(BULK);
        bench.wants(&[("one", "1"), ("two", "2")]);
        bench.run().await;
        bench.seen();
        let mut tree = bench.server.objects.lock()[&(config_map(), ObjectRef::namespaced("n", "two"))].clone();
        tree["metadata"]["annotations"] = json!({});
        bench.server.put(&config_map(), tree);
        if shown {
            bench.seen();
        }
        bench.wants(&[]);
        let (_, writes) = bench.ended().await;
        assert!(writes.contains(&"delete ConfigMap one".to_owned()), "{writes:?}");
        assert_eq!(bench.names(), strings(&["two"]), "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_of_others_is_too_much() {
    // BD-1, BD-3: what another dependent, or nobody known, has made for the same primary.
    const BESIDE: &str = "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap, bulk: true }, \
         single: { apiVersion: v1, kind: ConfigMap, onRename: delete } } }";
    let owner = json!([{ "apiVersion": "sample.dev/v1", "kind": "Page", "name": "a", "uid": "page" }]);
    let mut bench = bench(BESIDE);
    let tree =
        json!({ "metadata": { "name": "by-hand", "namespace": "n", "uid": "theirs", "ownerReferences": owner } });
    bench.server.put(&config_map(), tree);
    bench.wants(&[("one", "1"), ("two", "2")]);
    bench.run().await;
    bench.seen();
    bench.wants(&[]);
    let mut writes = bench.run().await.2;
    writes.sort();
    assert_eq!(writes, strings(&["delete ConfigMap one", "delete ConfigMap two"]));
    assert_eq!(bench.names(), strings(&["a", "by-hand"]), "the single one is called a");
    // Nor is what the bulk has a former object of the single one.
    bench.seen();
    let spec = json!({ "set": [["one", "1"]], "names": { "single": "b" } });
    bench.page_of(json!({ "uid": "page" }), spec);
    bench.run().await;
    bench.seen();
    bench.run().await;
    assert_eq!(bench.names(), strings(&["b", "by-hand", "one"]));
}

#[tokio::test(start_paused = true)]
async fn all_objects_go_with_the_precondition_and_are_waited_for() {
    // BD-3, WF-5
    const WANTED: &str = "workflow: { dependents: { parent: { apiVersion: v1, kind: ConfigMap, reconcilePrecondition: { cel: primary.spec.on } }, \
         cm: { apiVersion: v1, kind: ConfigMap, bulk: true, dependsOn: [parent], deletePostcondition: gone } } }";
    let mut bench = bench(WANTED);
    let spec = |on: bool| json!({ "set": [["one", "1"], ["two", "2"]], "on": on });
    bench.page_of(json!({ "uid": "page" }), spec(true));
    assert_eq!(bench.run().await.2, made(&["a", "one", "two"]));
    bench.seen();
    bench.page_of(json!({ "uid": "page" }), spec(false));
    let first = bench.run().await;
    assert_eq!(first.1, strings(&["reconcile"]), "what it should be is not asked");
    assert_eq!(
        first.2,
        strings(&["delete ConfigMap one", "delete ConfigMap two"]),
        "its parent waits until they are gone"
    );
    bench.seen();
    assert_eq!(bench.run().await.2, strings(&["delete ConfigMap a"]));
}

#[tokio::test(start_paused = true)]
async fn a_primary_goes_once_all_objects_that_it_alone_has_are_gone() {
    // BD-3, DR-5
    const WAITED: &str = "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap, bulk: true, garbageCollected: false, deletePostcondition: gone } } }";
    let mut bench = bench(WAITED);
    bench.wants(&[("one", "1"), ("two", "2")]);
    bench.run().await;
    bench.seen();
    let going =
        json!({ "uid": "page", "finalizers": ["sample.dev/finalizer"], "deletionTimestamp": "2026-01-01T00:00:00Z" });
    bench.page(going);
    let (_, calls, writes) = bench.run().await;
    assert_eq!((calls, writes), (vec![], strings(&["delete ConfigMap one", "delete ConfigMap two"])));
    bench.seen();
    assert_eq!(bench.run().await.2, strings(&["patch Page a"]));
}

#[tokio::test(start_paused = true)]
async fn a_template_has_the_objects_of_a_bulk_as_a_list() {
    // DT-3
    const SUM: &str = r#"workflow:
  dependents:
    cm: { apiVersion: v1, kind: ConfigMap, bulk: true }
    sum: { apiVersion: v1, kind: ConfigMap, dependsOn: [cm], desired: { template: { metadata: { name: sum }, data: { of: "${dependents.cm.size()}, ${dependents.cm.exists(map, map.data.x == '2')}" } } } }
"#;
    let mut bench = bench(SUM);
    bench.wants(&[("one", "1"), ("two", "2")]);
    assert_eq!(bench.run().await.2, made(&["one", "two", "sum"]));
    assert_eq!(bench.data("sum"), json!({ "of": "2, true" }));
}

#[tokio::test(start_paused = true)]
async fn what_a_creation_without_an_answer_has_made_of_a_bulk_is_too_much_later() {
    // BD-1, KD-9
    let mut bench = bench(BULK);
    bench.wants(&[("one", "1"), ("two", "2")]);
    bench.server.loses.store(true, Ordering::Relaxed);
    assert_eq!(bench.ended().await.1, made(&["one"]), "the others wait for the API server");
    bench.wants(&[("two", "2")]);
    assert_eq!(bench.run().await.2, strings(&["delete ConfigMap one", "create ConfigMap two"]));
}

#[tokio::test(start_paused = true)]
async fn of_what_is_only_read_nobody_is_asked_and_all_that_is_there_counts() {
    // BD-2
    const READ: &str = "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap, bulk: true, readOnly: true, \
         readyPostcondition: { cel: \"dependents.map(d, d.metadata.name) == ['x', 'y']\" } }, \
         after: { apiVersion: v1, kind: ConfigMap, dependsOn: [cm] } } }";
    let owner = json!([{ "apiVersion": "sample.dev/v1", "kind": "Page", "name": "a", "uid": "page" }]);
    let mut bench = bench(READ);
    for name in ["x", "y"] {
        let metadata = json!({ "name": name, "namespace": "n", "uid": name, "ownerReferences": owner });
        bench.server.put(&config_map(), json!({ "metadata": metadata }));
    }
    bench.seen();
    bench.wants(&[("one", "1")]);
    assert_eq!(bench.run().await, (DONE, strings(&["desired after", "reconcile"]), made(&["a"])));
}

#[tokio::test(start_paused = true)]
async fn what_a_bulk_has_is_told_from_what_others_of_its_source_have() {
    // BD-1, CX-1b
    const BESIDE: &str = "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap, bulk: true }, \
         single: { apiVersion: v1, kind: ConfigMap, activation: { cel: primary.spec.on } } } }";
    let ask: Ask = Arc::new(|run: Arc<dyn Context>| {
        async move {
            let mut found = Vec::new();
            for name in ["cm", "single"] {
                let one = run.find_one(Place::Source(name.to_owned())).await;
                let named = |object: String| {
                    let object: Value = serde_json::from_str(&object).unwrap();
                    object["metadata"]["name"].as_str().unwrap().to_owned()
                };
                let found_one = one.map(|one| one.map_or_else(|| "none".to_owned(), named));
                found.push(found_one.unwrap_or_else(|error| error.message));
            }
            found
        }
        .boxed()
    });
    let exports = &[Interface::Reconciler, Interface::Dependent, Interface::Bulk];
    let mut bench = Bench::new(Script { exports, ask: Some(ask), ..Script::default() }, BESIDE);
    let spec = |set: &[(&str, &str)], on: bool| json!({ "set": set, "on": on });
    for (set, on, told) in [
        // What the single one is called is not known yet.
        (&[("one", "1")][..], false, ["one", "none"]),
        (&[("one", "1")][..], true, ["one", "a"]),
        (
            &[("one", "1"), ("two", "2")][..],
            false,
            ["several objects of source cm belong to the primary: n/one, n/two", "a"],
        ),
        (&[][..], true, ["none", "a"]),
    ] {
        bench.page_of(json!({ "uid": "page" }), spec(set, on));
        bench.run().await;
        bench.seen();
        let calls = bench.run().await.1;
        assert_eq!(calls[calls.len() - 2..], strings(&told), "{set:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_bulk_of_2000_objects_costs_in_line_with_their_number_and_nothing_when_nothing_changes() {
    // BD-1: each object is paid for once. If each looked at all the others, these would take a hundred times as much as a run may.
    let names: Vec<String> = (0..2_000).map(|n| format!("m{n:04}")).collect();
    let text = "x".repeat(1_600);
    let all: Vec<(&str, &str)> = names.iter().map(|name| (&**name, &*text)).collect();
    let mut bench = bench(BULK);
    bench.wants(&all);
    let (ended, writes) = bench.ended().await;
    assert_eq!((ended.error, ended.exceeded, writes.len()), (None, None, 2_000));
    bench.seen();
    let (ended, writes) = bench.ended().await;
    assert_eq!((ended.error, ended.exceeded, writes), (None, None, vec![]));
    bench.wants(&all[..1_000]);
    let (ended, writes) = bench.ended().await;
    assert_eq!((ended.error, ended.exceeded, writes.len()), (None, None, 1_000));
}
