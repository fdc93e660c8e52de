//! Runs with dependents that others keep changing.

use super::*;

const TWO: &str =
    "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap }, other: { apiVersion: v1, kind: ConfigMap } } }";
const SECRET: &str = "workflow: { dependents: { cm: { apiVersion: v1, kind: ConfigMap, match: { export: same } } } }";

/// A bench with a page whose dependents are there, and the Events about it.
async fn bench(fields: &str) -> (Bench, Arc<Mutex<Vec<Event>>>) {
    let mut bench = Bench::new(Script::default(), fields);
    let events = Arc::<Mutex<Vec<Event>>>::default();
    let told = Arc::clone(&events);
    Arc::get_mut(&mut bench.controller).unwrap().events = Box::new(move |_, event, _| told.lock().push(event));
    bench.controller.conditions.learn(true);
    bench.page_of(json!({ "uid": "page" }), json!({ "names": { "cm": "a", "other": "b" } }));
    bench.run().await;
    bench.show();
    (bench, events)
}

impl Bench {
    /// Has somebody else change a config map.
    fn meddle(&mut self, name: &str) {
        let key = (config_map(), ObjectRef::namespaced("n", name));
        let mut map = self.server.objects.lock()[&key].clone();
        map["data"]["x"] = "z".into();
        let share =
            json!({ "manager": "kubectl-edit", "operation": "Update", "fieldsV1": { "f:data": { "f:x": {} } } });
        map["metadata"]["managedFields"].as_array_mut().unwrap().push(share);
        self.server.put(&config_map(), map);
        self.show();
    }

    /// Has the watch show all config maps as they are.
    pub(super) fn show(&mut self) {
        let all = self.server.objects.lock().clone();
        let all = all.into_iter().filter(|((gvk, _), _)| *gvk == config_map());
        let all = all.map(|((gvk, _), tree)| Object::parse(&tree.to_string(), &gvk, &Managers::all()).unwrap());
        let mut all: Vec<Object> = all.collect();
        all.sort_by_key(Object::version);
        for map in all {
            self.maps.apply(Watch::Applied(map));
        }
    }

    /// Has somebody else change it, and runs; returns how often it was written, and when the page runs again.
    async fn meddled(&mut self, name: &str) -> (usize, Option<Duration>) {
        self.meddle(name);
        let (finished, _, writes) = self.run().await;
        self.show();
        let Finished::Done { again, .. } = finished else { panic!("{finished:?}") };
        (writes.iter().filter(|write| **write == format!("update ConfigMap {name}")).count(), again)
    }
}

#[tokio::test(start_paused = true)]
async fn what_others_keep_changing_is_put_right_less_and_less_often_and_what_is_beside_it_at_once() {
    // LG-1, LG-2, LG-3
    let seconds = Duration::from_secs;
    let (mut bench, events) = bench(TWO).await;
    for number in 1..=5 {
        assert_eq!(bench.meddled("a").await, (1, None), "{number}");
    }
    assert_eq!(bench.meddled("a").await, (0, Some(seconds(5))));
    sleep(seconds(2)).await;
    assert_eq!(bench.meddled("a").await, (0, Some(seconds(3))));
    assert_eq!(bench.meddled("b").await, (1, Some(seconds(3))), "its sibling");
    sleep(seconds(3)).await;
    assert_eq!(bench.run().await.2, strings(&["update ConfigMap a"]));
    bench.show();
    assert_eq!(bench.meddled("a").await, (0, Some(seconds(10))));
    let told =
        "dependent cm, n/a: others keep changing /data/x, last kubectl-edit; it is put right less and less often";
    let events = events.lock().clone();
    let shown: Vec<_> = events.iter().map(|event| (event.warning, &*event.reason, &*event.message)).collect();
    assert_eq!(shown, [(true, "DependentContested", told)], "once");
    // Something else is wanted.
    Arc::get_mut(&mut bench.controller).unwrap().edition = 2;
    assert_eq!(bench.run().await.2, strings(&["update ConfigMap a"]));
}

#[tokio::test(start_paused = true)]
async fn what_people_change_now_and_then_is_put_right_at_once() {
    // LG-1
    let (mut bench, events) = bench(TWO).await;
    for number in 1..=20 {
        assert_eq!(bench.meddled("a").await, (1, None), "{number}");
        sleep(Duration::from_secs(61)).await;
    }
    assert!(events.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_conditions_name_the_field_and_who_changes_it_until_others_have_settled() {
    // LG-2, LG-3, SC-1
    let conditions = |bench: &Bench| {
        let key = (bench.controller.spec.primary.clone(), ObjectRef::namespaced("n", "a"));
        let page = bench.server.objects.lock()[&key].clone();
        let all = page["status"]["conditions"].as_array().cloned().unwrap();
        let text = |one: &Value| format!("{}={}/{}", one["type"], one["status"], one["reason"]).replace('"', "");
        (all.iter().map(text).collect::<Vec<_>>(), all[0]["message"].as_str().unwrap().to_owned())
    };
    let (mut bench, _) = bench(&format!("statusConditions: standard\n{TWO}")).await;
    for _ in 0..6 {
        bench.meddled("a").await;
    }
    let contested =
        ["Ready=False/DependentContested", "Progressing=True/DependentContested", "Degraded=True/DependentContested"];
    let message = "contested: cm (others keep changing /data/x, last kubectl-edit)".to_owned();
    assert_eq!(conditions(&bench), (strings(&contested), message));
    sleep(Duration::from_secs(5)).await;
    let (finished, _, writes) = bench.run().await;
    let minute = Finished::Done { finalizer_removed: false, again: Some(Duration::from_mins(1)) };
    assert_eq!((finished, writes), (minute, strings(&["update ConfigMap a"])), "it may not be over yet");
    bench.show();
    sleep(Duration::from_mins(1)).await;
    let (finished, _, writes) = bench.run().await;
    assert_eq!((finished, writes), (DONE, strings(&["patch Page a/status"])));
    assert_eq!(conditions(&bench).0[0], "Ready=True/Succeeded");
}

#[tokio::test(start_paused = true)]
async fn what_others_keep_deleting_is_made_less_and_less_often() {
    // LG-1, LG-3
    let (mut bench, events) = bench(WORKFLOW).await;
    let source = Arc::clone(&bench.controller.secondaries["cm"]);
    for number in 1..=6 {
        let key = (config_map(), ObjectRef::namespaced("n", "a"));
        let map = bench.server.objects.lock().remove(&key);
        let mut map = map.unwrap();
        bench
            .maps
            .apply(Watch::Applied(Object::parse(&map.to_string(), &config_map(), &Managers::all()).unwrap()))
            .map(|change| source.on(change));
        *bench.server.version.lock() += 1;
        map["metadata"]["resourceVersion"] = bench.server.version.lock().to_string().into();
        let gone = Object::parse(&map.to_string(), &config_map(), &Managers::all()).unwrap();
        bench.maps.apply(Watch::Deleted(gone)).map(|change| source.on(change));
        let writes = bench.run().await.2;
        assert_eq!(writes, strings(if number <= 5 { &["create ConfigMap a"] } else { &[] }), "{number}");
    }
    assert!(events.lock()[0].message.contains("others keep deleting it"));
}

#[tokio::test(start_paused = true)]
async fn what_a_component_says_of_a_difference_is_not_told_to_others() {
    // LG-3
    let differs = Ok(MatchResult::Differs("/data/x: found \"secret\"".to_owned()));
    let (mut bench, events) = bench(SECRET).await;
    let mut script = Script { matches: differs, ..Script::default() };
    script.calls = Arc::clone(&bench.calls);
    Arc::get_mut(&mut bench.controller).unwrap().guest = Arc::new(script);
    for _ in 0..6 {
        bench.meddled("a").await;
    }
    let events = events.lock().clone();
    assert!(events[0].message.contains("others keep changing it;"), "{events:?}");
}
