//! Runs in which the API server is asked what a write would lead to.

use super::*;

const DRY_RUN: &str = "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap, match: dryRun } } }";
const RECREATE: &str = "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap, onImmutable: recreate } } }";
const FAIL: &str = "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap } } }";

/// A bench with a page whose config map is there and as it is wanted.
async fn bench(fields: &str) -> Bench {
    let mut bench = Bench::new(Script::default(), fields);
    bench.page(json!({ "uid": "page" }));
    assert_eq!(bench.run().await.2, ["create ConfigMap a"]);
    bench.show();
    bench
}

impl Bench {
    /// Has somebody else change the config map.
    fn merge_map(&mut self, change: &Value) {
        let mut map = self.server.objects.lock()[&(config_map(), ObjectRef::namespaced("n", "a"))].clone();
        json_patch::merge(&mut map, change);
        self.server.put(&config_map(), map);
        self.show();
    }

    /// Has the component want another text in the config map, which the API server refuses so often as an update.
    fn wants_text(&mut self, text: &str, refusals: usize) {
        let desired = Ok(json!({ "metadata": { "name": "a" }, "data": { "x": text } }));
        Arc::get_mut(&mut self.controller).unwrap().guest = Arc::new(Script { desired, ..Script::default() });
        let refused = || unavailable(Reason::Invalid, 422);
        self.server.failures.lock().extend(std::iter::repeat_with(refused).take(refusals));
    }

    /// Runs the page once, and returns what was written; the failure of the run last.
    async fn tries(&self) -> Vec<String> {
        let (ended, mut log) = self.ended().await;
        log.extend(ended.error);
        log
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_is_blamed_for_what_the_api_server_makes_of_each_write() {
    // LG-1
    let mut bench = bench(FAIL).await;
    bench.server.respells.store(true, Ordering::Relaxed);
    bench.wants_text("Z", 0);
    for number in 0..12 {
        bench.merge_map(&json!({ "metadata": { "labels": { "by": number.to_string() } } }));
        assert_eq!(bench.tries().await, ["update ConfigMap a"], "{number}");
        bench.show();
    }
    assert_eq!(*bench.published.lock(), []);
}

#[tokio::test(start_paused = true)]
async fn what_differs_is_written_only_if_that_would_change_something_which_is_asked_for_once_for_each_version() {
    // TR-1
    let mut bench = bench(DRY_RUN).await;
    bench.server.respells.store(true, Ordering::Relaxed);
    bench.wants_text("Z", 0);
    assert_eq!(bench.tries().await, ["try to update ConfigMap a", "update ConfigMap a"]);
    bench.show();
    assert_eq!(bench.tries().await, [""; 0], "what was written is as it is wanted");
    assert_eq!(bench.data("a"), json!({ "x": "z" }));
    bench.merge_map(&json!({ "metadata": { "labels": { "by": "others" } } }));
    assert_eq!(bench.tries().await, ["try to update ConfigMap a"]);
    assert_eq!(bench.tries().await, [""; 0]);
    bench.wants_text("z", 0);
    assert_eq!(bench.tries().await, [""; 0], "what is equal is not asked about");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_that_is_refused_is_the_failure_of_the_dependent() {
    // TR-1
    let mut bench = bench(DRY_RUN).await;
    bench.wants_text("z", 1);
    assert_eq!(bench.tries().await, ["try to update ConfigMap a failed", "the workflow failed: cm: HTTP 422"]);
    assert_eq!(bench.data("a"), json!({ "x": "y" }));
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_updated_is_made_anew_if_nothing_else_is_wrong_with_it() {
    // TR-2
    let failed = "update ConfigMap a failed";
    let mut made_anew = bench(RECREATE).await;
    made_anew.wants_text("z", 1);
    let expected = [failed, "try to create ConfigMap a", "delete ConfigMap a", "create ConfigMap a"];
    assert_eq!(made_anew.tries().await, expected);
    assert_eq!(made_anew.data("a"), json!({ "x": "z" }));
    made_anew.show();
    assert_eq!(made_anew.tries().await, [""; 0]);

    let why = "the workflow failed: cm: HTTP 422";
    let mut wrong = bench(RECREATE).await;
    wrong.wants_text("z", 2);
    assert_eq!(wrong.tries().await, [failed, "try to create ConfigMap a failed", why]);
    let mut left = bench(FAIL).await;
    left.wants_text("z", 1);
    assert_eq!(left.tries().await, [failed, why]);
    for bench in [wrong, left] {
        assert_eq!(bench.data("a"), json!({ "x": "y" }));
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_made_anew_that_would_be_the_same_again_or_that_admission_forbids_to_change() {
    // TR-2
    let (failed, why) = ("update ConfigMap a failed", "the workflow failed: cm: HTTP 422");
    let mut same = bench(RECREATE).await;
    same.merge_map(&json!({ "data": { "x": "others" } }));
    same.server.failures.lock().push(unavailable(Reason::Invalid, 422));
    assert_eq!(same.tries().await, [failed, why]);
    let mut forbidden = bench(RECREATE).await;
    forbidden.wants_text("z", 0);
    let denied = "ValidatingAdmissionPolicy 'freeze' with binding 'all' denied request: not today";
    forbidden.server.failures.lock().push(Error::new(Reason::Invalid, 422, denied));
    assert_eq!(forbidden.tries().await[0], failed);
    assert_eq!(forbidden.data("a"), json!({ "x": "y" }));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_ours_any_more_is_not_made_anew() {
    // TR-2: the caches still show it as it was.
    let mut bench = bench(RECREATE).await;
    bench.wants_text("z", 1);
    let key = (config_map(), ObjectRef::namespaced("n", "a"));
    let mut map = bench.server.objects.lock()[&key].clone();
    map["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    bench.server.put(&config_map(), map);
    assert_eq!(bench.tries().await, ["update ConfigMap a failed", "the workflow failed: cm: HTTP 422"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_going_already_is_waited_for_and_made_anew_once_it_is_gone() {
    // TR-2
    let mut bench = bench(RECREATE).await;
    bench.merge_map(&json!({ "metadata": { "finalizers": ["a.b/c"], "deletionTimestamp": "2026-01-01T00:00:00Z" } }));
    bench.wants_text("z", 1);
    let (finished, _, writes) = bench.run().await;
    assert_eq!(writes, ["update ConfigMap a failed"]);
    assert_eq!(finished, Finished::Done { finalizer_removed: false, again: Some(Duration::from_secs(10)) });
    let key = ObjectRef::namespaced("n", "a");
    let gone = taken_away(&bench, &key);
    bench.maps.apply(Watch::Deleted(gone));
    assert_eq!(bench.tries().await, ["create ConfigMap a"]);
}

/// Takes a config map away, and returns it as it was.
fn taken_away(bench: &Bench, key: &ObjectRef) -> Object {
    let tree = bench.server.objects.lock().remove(&(config_map(), key.clone())).unwrap();
    Object::parse(&tree.to_string(), &config_map(), &Managers::all()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_is_deleted_to_be_made_anew_is_not_ready_in_the_conditions() {
    // TR-2, SC-1
    let mut bench = Bench::new(Script::default(), &format!("statusConditions: standard\n{RECREATE}"));
    bench.controller.conditions.learn(true);
    bench.page(json!({ "uid": "page" }));
    bench.run().await;
    bench.show();
    bench.merge_map(&json!({ "metadata": { "finalizers": ["a.b/c"], "deletionTimestamp": "2026-01-01T00:00:00Z" } }));
    bench.wants_text("z", 1);
    bench.run().await;
    let page = (bench.controller.spec.primary.clone(), ObjectRef::namespaced("n", "a"));
    let ready = bench.server.objects.lock()[&page]["status"]["conditions"][0].clone();
    let message = ready["message"].as_str().unwrap().to_owned();
    assert_eq!([&ready["type"], &ready["status"]], ["Ready", "False"], "{ready}");
    assert!(message.contains("cm (it is deleted to be made anew)"), "{message}");
}
