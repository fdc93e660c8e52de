//! Runs of controllers whose dependents and status are made from templates.

use super::*;

/// A bench without a component.
fn templates(fields: &str) -> Bench {
    let fields: String = fields.lines().map(|line| format!("      {line}\n")).collect();
    let text = format!(
        "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: a }}\nspec:\n  controllers:\n    pages:\n      primary: {{ apiVersion: sample.dev/v1, kind: Page }}\n      finalizer: sample.dev/finalizer\n{fields}"
    );
    Bench::of(Script { exports: &[], ..Script::default() }, &text)
}

const PAGE: &str = r#"workflow:
  dependents:
    map: { apiVersion: v1, kind: ConfigMap, desired: { template: { metadata: { name: "map-${primary.metadata.name}" }, data: { title: "<${primary.spec.title}>", more: "${has(primary.spec.more) ? primary.spec.more : null}" } } } }
    next: { apiVersion: v1, kind: ConfigMap, dependsOn: [map], desired: { template: { metadata: { name: next }, data: { of: "${dependents.map.metadata.uid} ${dependents.map.data.title}" } } } }
status: { template: { title: "${primary.spec.title}", ready: "${workflow.complete && workflow.ready.next}", problem: "${has(workflow.failed.map) ? workflow.failed.map : null}", of: "${dependents.next == null ? null : dependents.next.data.of}" } }
"#;

impl Bench {
    fn status(&self) -> Value {
        let key = (self.controller.spec.primary.clone(), ObjectRef::namespaced("n", "a"));
        self.server.objects.lock()[&key]["status"].clone()
    }

    /// Has the watches show what is on the server.
    fn watch(&mut self) {
        let objects = self.server.objects.lock().clone();
        for ((gvk, _), tree) in objects {
            let object = Object::parse(&tree.to_string(), &gvk, &Managers::all()).unwrap();
            let writer = if gvk == self.controller.spec.primary { &mut self.pages } else { &mut self.maps };
            writer.apply(Watch::Applied(object));
        }
    }

    /// Has a config map gone from the server and from the cache.
    fn gone(&mut self, name: &str) {
        let key = (config_map(), ObjectRef::namespaced("n", name));
        self.server.objects.lock().remove(&key);
        if let Some(last) = self.maps.cache().get(&key.1) {
            self.maps.apply(Watch::Deleted(last));
        }
    }

    /// Runs the page once, and returns what was written and the error.
    async fn tried(&self) -> (Vec<String>, Option<String>) {
        let (ended, writes) = self.ended().await;
        (writes, ended.error)
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_without_a_component_writes_what_its_templates_say_and_nothing_twice() {
    // DT-1, DT-5, DT-6
    let mut bench = templates(PAGE);
    bench.page_of(json!({ "uid": "page" }), json!({ "title": "one" }));
    let created = strings(&["create ConfigMap map-a", "create ConfigMap next", "patch Page a/status"]);
    assert_eq!(bench.run().await, (DONE, vec![], created));
    assert_eq!(bench.data("map-a"), json!({ "title": "<one>" }));
    assert_eq!(bench.data("next"), json!({ "of": "u-1 <one>" }));
    assert_eq!(bench.status(), json!({ "title": "one", "ready": true, "of": "u-1 <one>" }));
    assert_eq!(bench.run().await, (DONE, vec![], vec![]));
    bench.watch();
    assert_eq!(bench.run().await, (DONE, vec![], vec![]));
    // The spec changes, and with it all that is made of it.
    bench.page_of(json!({ "uid": "page" }), json!({ "title": "two", "more": "words" }));
    let changed = strings(&["update ConfigMap map-a", "update ConfigMap next", "patch Page a/status"]);
    assert_eq!(bench.run().await, (DONE, vec![], changed));
    assert_eq!(bench.data("map-a"), json!({ "title": "<two>", "more": "words" }));
    assert_eq!(bench.data("next"), json!({ "of": "u-1 <two>" }));
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_changes_is_put_right() {
    let mut bench = templates(PAGE);
    bench.page_of(json!({ "uid": "page" }), json!({ "title": "one" }));
    bench.run().await;
    bench.watch();
    let key = (config_map(), ObjectRef::namespaced("n", "map-a"));
    let mut drifted = bench.server.objects.lock()[&key].clone();
    drifted["data"]["title"] = "drift".into();
    bench.server.put(&config_map(), drifted);
    bench.watch();
    assert_eq!(bench.run().await.2, strings(&["update ConfigMap map-a"]));
    assert_eq!(bench.data("map-a"), json!({ "title": "<one>" }));
}

#[tokio::test(start_paused = true)]
async fn a_missing_field_fails_the_dependent_with_the_place_in_its_template_and_the_status_tells_it() {
    // DT-4, DT-6
    let mut bench = templates(PAGE);
    bench.page_of(json!({ "uid": "page" }), json!({}));
    let (writes, error) = bench.tried().await;
    let why = "the template at /data/title: CEL expression \"primary.spec.title\" failed: there is no field \"title\"";
    assert_eq!(error, Some(format!("the workflow failed: map: {why}")));
    assert_eq!(writes, vec![""; 0], "the status needs the field, too");
    let mut bench = templates(&PAGE.replace("title: \"${primary.spec.title}\", ready", "ready"));
    bench.page_of(json!({ "uid": "page" }), json!({}));
    let (writes, error) = bench.tried().await;
    assert_eq!(error, Some(format!("the workflow failed: map: {why}")));
    assert_eq!(writes, strings(&["patch Page a/status"]));
    assert_eq!(bench.status(), json!({ "ready": false, "problem": why }));
}

#[tokio::test(start_paused = true)]
async fn a_status_that_can_not_be_made_fails_the_run() {
    // DT-6
    let mut bench = templates("status: { template: { deep: [{ title: \"${primary.spec.title}\" }] } }");
    bench.page_of(json!({ "uid": "page" }), json!({}));
    let (writes, error) = bench.tried().await;
    let why = "status: the template at /deep/0/title: CEL expression \"primary.spec.title\" failed: there is no field \"title\"";
    assert_eq!((writes, error.as_deref()), (vec![], Some(why)));
    bench.page_of(json!({ "uid": "page" }), json!({ "title": "one" }));
    assert_eq!(bench.tried().await, (strings(&["patch Page a/status"]), None));
}

#[tokio::test(start_paused = true)]
async fn what_no_owner_reference_sees_to_is_deleted_though_the_rest_of_its_template_has_no_value_any_more() {
    // DT-1, DT-5
    let fields = PAGE.replace(
        "map: { apiVersion: v1, kind: ConfigMap,",
        "map: { apiVersion: v1, kind: ConfigMap, garbageCollected: false,",
    );
    let fields = fields.replace(
        "next: { apiVersion: v1, kind: ConfigMap,",
        "next: { apiVersion: v1, kind: ConfigMap, garbageCollected: false,",
    );
    let mut bench = templates(&fields);
    bench.page_of(json!({ "uid": "page" }), json!({ "title": "one" }));
    assert_eq!(bench.run().await.2, strings(&["patch Page a"]), "the finalizer");
    bench.watch();
    assert_eq!(bench.run().await.2.len(), 3);
    bench.watch();
    let going =
        json!({ "uid": "page", "finalizers": ["sample.dev/finalizer"], "deletionTimestamp": "2026-01-01T00:00:00Z" });
    bench.page_of(going, json!({}));
    let (finished, calls, writes) = bench.run().await;
    assert_eq!(writes, strings(&["delete ConfigMap next", "delete ConfigMap map-a", "patch Page a"]));
    assert_eq!((finished, calls), (Finished::Done { finalizer_removed: true, again: None }, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_template_stands_beside_dependents_of_the_component() {
    // DT-1: the component is asked for one of them, and reconciles
    const MIXED: &str = r#"workflow:
  dependents:
    own: { apiVersion: v1, kind: ConfigMap }
    made: { apiVersion: v1, kind: ConfigMap, dependsOn: [own], desired: { template: { metadata: { name: made }, data: "${dependents.own.data}" } } }
"#;
    let mut bench = Bench::new(Script::default(), MIXED);
    bench.page(json!({ "uid": "page" }));
    let writes = strings(&["create ConfigMap a", "create ConfigMap made"]);
    assert_eq!(bench.run().await, (DONE, strings(&["desired own", "reconcile"]), writes));
    assert_eq!(bench.data("made"), json!({ "x": "y" }));
}

#[tokio::test(start_paused = true)]
async fn a_template_of_which_much_would_come_is_refused_by_the_budget_of_the_run() {
    // DT-4
    let items = format!("[{}]", ["0"; 40].join(","));
    let large = format!("{items}.map(i, {items}.map(j, {items}.map(k, primary.spec.text)))");
    let fields = format!(
        "workflow: {{ dependents: {{ map: {{ apiVersion: v1, kind: ConfigMap, desired: {{ template: {{ metadata: {{ name: a }}, data: {{ a: \"${{{large}}}\" }} }} }} }} }} }}"
    );
    let mut bench = templates(&fields);
    bench.page_of(json!({ "uid": "page" }), json!({ "text": "x".repeat(100) }));
    let (writes, error) = bench.tried().await;
    assert_eq!(writes, vec![""; 0]);
    let why = "the workflow failed: map: the template at /data/a: what it makes is larger than 4194304 bytes";
    assert_eq!(error.as_deref(), Some(why));
    // Each expression has its part of the budget, and all have one together.
    let many: Vec<_> =
        (0..200).map(|i| format!("f{i}: \"${{size({items}.map(i, primary.spec.list.map(j, j + 1)))}}\"")).collect();
    let mut bench = templates(&format!("status: {{ template: {{ {} }} }}", many.join(", ")));
    bench.page_of(json!({ "uid": "page" }), json!({ "list": vec![1; 2000] }));
    let (writes, error) = bench.tried().await;
    assert_eq!(writes, vec![""; 0]);
    let error = error.unwrap();
    assert!(error.starts_with("status: the template at /f"), "{error}");
    assert!(error.contains("too expensive: it takes more than "), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_not_there_is_null() {
    // DT-3
    const COPY: &str = r#"sources: { s: { informer: { apiVersion: v1, kind: ConfigMap, secondaries: { pointer: /spec/of }, mapper: { pointer: /data/page } } } }
workflow:
  dependents:
    source: { apiVersion: v1, kind: ConfigMap, readOnly: true, source: s, name: { cel: primary.spec.of } }
    copy: { apiVersion: v1, kind: ConfigMap, source: s, dependsOn: [source], desired: { template: { metadata: { name: copy }, data: "${dependents.source == null ? {} : dependents.source.data}" } } }
"#;
    let mut bench = templates(COPY);
    bench.page_of(json!({ "uid": "page" }), json!({ "of": "origin" }));
    assert_eq!(bench.run().await.2, strings(&["create ConfigMap copy"]));
    assert_eq!(bench.data("copy"), json!({}));
    let mut bench = templates(&COPY.replace("dependents.source == null ? {} : ", ""));
    bench.page_of(json!({ "uid": "page" }), json!({ "of": "origin" }));
    let why = "the workflow failed: copy: the template at /data: CEL expression \"dependents.source.data\" failed: it needs a field of something that is not there";
    assert_eq!(bench.tried().await, (vec![], Some(why.to_owned())));
}

/// Of the second, the third has its name.
const NAMED: &str = r#"workflow:
  dependents:
    base: { apiVersion: v1, kind: ConfigMap, garbageCollected: false, desired: { template: { metadata: { name: base } } } }
    a: { apiVersion: v1, kind: ConfigMap, garbageCollected: false, CONDITION desired: { template: { metadata: { name: a } } } }
    b: { apiVersion: v1, kind: ConfigMap, garbageCollected: false, dependsOn: [a], deletePostcondition: gone, desired: { template: { metadata: { name: "${dependents.a.metadata.name}-b" } } } }
"#;

/// Returns a bench of it in which all is made.
async fn named(condition: &str) -> Bench {
    let mut bench = templates(&NAMED.replace("CONDITION", condition));
    bench.page_of(json!({ "uid": "page", "finalizers": ["sample.dev/finalizer"] }), json!({ "on": true }));
    let (writes, error) = bench.tried().await;
    assert_eq!((writes.len(), error), (3, None));
    bench.watch();
    bench
}

impl Bench {
    /// Has it forget, as a restart does.
    fn forget(&mut self) {
        Arc::get_mut(&mut self.controller).unwrap().verdicts = Arc::new(Verdicts::default());
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_named_after_what_is_unwanted_settles() {
    // DT-1
    let mut bench = named("reconcilePrecondition: { cel: primary.spec.on },").await;
    let off = json!({ "uid": "page", "finalizers": ["sample.dev/finalizer"] });
    bench.page_of(off, json!({ "on": false }));
    assert_eq!(bench.tried().await, (strings(&["delete ConfigMap a-b"]), None));
    bench.gone("a-b");
    assert_eq!(bench.tried().await, (strings(&["delete ConfigMap a"]), None));
    bench.gone("a");
    assert_eq!(bench.tried().await, (vec![], None));
    bench.forget();
    assert_eq!(bench.tried().await, (vec![], None));
}

#[tokio::test(start_paused = true)]
async fn what_is_named_after_what_is_inactive_is_deleted() {
    // DT-1, DT-3
    for forgets in [false, true] {
        let mut bench = named("activation: { cel: primary.spec.on },").await;
        let off = json!({ "uid": "page", "finalizers": ["sample.dev/finalizer"] });
        bench.page_of(off, json!({ "on": false }));
        if forgets {
            bench.forget();
        }
        let base = forgets.then(|| "update ConfigMap base".to_owned());
        let (mut writes, error) = bench.tried().await;
        writes.retain(|write| Some(write) != base.as_ref());
        assert_eq!((writes, error), (strings(&["delete ConfigMap a-b"]), None));
        bench.gone("a-b");
        assert_eq!(bench.tried().await, (vec![], None));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_named_after_what_somebody_else_has_deleted_keeps_no_primary() {
    // DT-1
    for forgets in [false, true] {
        let mut bench = named("").await;
        bench.gone("a");
        if forgets {
            bench.forget();
        }
        let going = json!({ "uid": "page", "finalizers": ["sample.dev/finalizer"], "deletionTimestamp": "2026-01-01T00:00:00Z" });
        bench.page_of(going, json!({ "on": true }));
        let (mut writes, error) = bench.tried().await;
        writes.sort();
        assert_eq!((writes, error), (strings(&["delete ConfigMap a-b", "delete ConfigMap base"]), None));
        bench.gone("a-b");
        bench.gone("base");
        assert_eq!(bench.tried().await, (strings(&["patch Page a"]), None));
    }
}

#[tokio::test(start_paused = true)]
async fn the_status_shows_what_is_there_of_a_dependent_whose_name_can_not_be_made_any_more() {
    // DT-6
    const RENAMED: &str = r#"workflow: { dependents: { a: { apiVersion: v1, kind: ConfigMap, desired: { template: { metadata: { name: "${primary.spec.name}" } } } } } }
status: { template: { of: "${dependents.a == null ? '-' : dependents.a.metadata.name}", problem: "${has(workflow.failed.a) ? workflow.failed.a : null}" } }
"#;
    let mut bench = templates(RENAMED);
    let why = "the template at /metadata/name: CEL expression \"primary.spec.name\" failed: there is no field \"name\"";
    bench.page_of(json!({ "uid": "page" }), json!({ "name": "one" }));
    assert_eq!(bench.tried().await, (strings(&["create ConfigMap one", "patch Page a/status"]), None));
    bench.watch();
    bench.page_of(json!({ "uid": "page" }), json!({}));
    let (writes, error) = bench.tried().await;
    assert_eq!((writes, error), (strings(&["patch Page a/status"]), Some(format!("the workflow failed: a: {why}"))));
    assert_eq!(bench.status(), json!({ "of": "one", "problem": why }));
    let mut bench = templates(RENAMED);
    bench.page_of(json!({ "uid": "page" }), json!({}));
    bench.tried().await;
    assert_eq!(bench.status(), json!({ "of": "-", "problem": why }));
}

#[tokio::test(start_paused = true)]
async fn a_conflict_that_the_next_try_resolves_is_not_told_in_the_status() {
    // DT-6
    let mut bench = templates(PAGE);
    bench.page_of(json!({ "uid": "page" }), json!({ "title": "one" }));
    bench.tried().await;
    bench.watch();
    bench.page_of(json!({ "uid": "page" }), json!({ "title": "two" }));
    for failure in [conflict("another one"), unavailable(Reason::Unreachable, 503)] {
        bench.server.failures.lock().push(failure);
        let (writes, error) = bench.tried().await;
        assert_eq!(writes, strings(&["update ConfigMap map-a failed"]));
        assert!(error.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn the_status_is_not_told_for_longer_than_a_run_may_take() {
    // DT-6, RT-6
    let mut bench = templates(&format!(
        "reconciliationTimeout: 5s\n{}",
        PAGE.replace("title: \"${primary.spec.title}\", ready", "ready")
    ));
    bench.page_of(json!({ "uid": "page" }), json!({}));
    bench.server.hangs.store(true, Ordering::Relaxed);
    let began = Instant::now();
    let (_, error) = timeout(Duration::from_mins(1), bench.tried()).await.unwrap();
    assert!(error.unwrap().starts_with("the workflow failed: map: "));
    assert_eq!(began.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn why_a_secret_has_failed_is_not_told_in_the_status() {
    // DT-6
    const SECRET: &str = r#"workflow: { dependents: { a: { apiVersion: v1, kind: Secret, desired: { template: { metadata: { name: "${primary.spec.name}" } } } } } }
status: { template: { problem: "${workflow.failed.a}" } }
"#;
    let mut bench = templates(SECRET);
    bench.page_of(json!({ "uid": "page" }), json!({}));
    assert_eq!(bench.tried().await.0, strings(&["patch Page a/status"]));
    assert_eq!(bench.status(), json!({ "problem": "the log says why" }));
}

#[tokio::test(start_paused = true)]
async fn each_of_many_that_are_named_after_each_other_is_looked_up_once() {
    // DT-3, DT-4: each name needs all before
    let one = |i: usize| {
        let before: Vec<_> = (0..i).map(|other| format!("d{other}")).collect();
        let sizes: Vec<_> = before.iter().map(|name| format!("size(dependents.{name}.metadata.name)")).collect();
        let sum = if sizes.is_empty() { "0".to_owned() } else { format!("[{}].size()", sizes.join(", ")) };
        format!(
            "    d{i}: {{ apiVersion: v1, kind: ConfigMap, dependsOn: [{}], desired: {{ template: {{ metadata: {{ name: \"d-${{{sum}}}\" }} }} }} }}\n",
            before.join(", ")
        )
    };
    let all: String = (0..24).map(one).collect();
    let status = "status: { template: { last: \"${dependents.d23.metadata.name}\" } }\n";
    let mut bench = templates(&format!("workflow:\n  dependents:\n{all}{status}"));
    bench.page_of(json!({ "uid": "page" }), json!({}));
    let (writes, error) = bench.tried().await;
    assert_eq!((writes.len(), error), (25, None));
    assert_eq!(bench.status(), json!({ "last": "d-23" }));
    bench.watch();
    // After a restart no name is known.
    bench.forget();
    assert_eq!(bench.tried().await.1, None);
}

#[tokio::test(start_paused = true)]
async fn what_a_secret_holds_is_not_told_of_what_a_template_makes_of_it_either() {
    // DT-4: one template further on, in the status, and in a condition
    const CHAIN: &str = r#"workflow:
  dependents:
    a: { apiVersion: v1, kind: Secret, desired: { template: { metadata: { name: a }, data: { k: "${primary.spec.value}" } } } }
    map: { apiVersion: v1, kind: ConfigMap, dependsOn: [a], CONDITION desired: { template: { metadata: { name: map }, data: { v: "${dependents.a.data.k}" } } } }
    NEXT
STATUS
"#;
    let look = "dependents.map.data[dependents.map.data.v]";
    let next = format!(
        "next: {{ apiVersion: v1, kind: ConfigMap, dependsOn: [map], desired: {{ template: {{ metadata: {{ name: next }}, data: {{ x: \"${{{look}}}\" }} }} }} }}"
    );
    let condition = "readyPostcondition: { cel: \"int(dependent.data.v) == 1\" },";
    let status = format!("status: {{ template: {{ x: \"${{{look}}}\" }} }}");
    for (next, condition, status) in [(&*next, "", ""), ("", "", &*status), ("", condition, "")] {
        let chain = CHAIN.replace("NEXT", next).replace("CONDITION", condition).replace("STATUS", status);
        let mut bench = templates(&chain);
        bench.page_of(json!({ "uid": "page" }), json!({ "value": "hunter2" }));
        let error = bench.tried().await.1.unwrap_or_default();
        let walks = bench.controller.verdicts.walks.of(&ObjectRef::namespaced("n", "a"), Instant::now());
        let told = format!("{error} {:?} {walks:?}", bench.published.lock());
        assert!(told.contains("on values of a Secret") && !told.contains("hunter2"), "{told}");
    }
}
