//! Runs with dependents outside of the cluster: a shop that the component writes to and polls.

use super::*;

/// The sources and one dependent, with further fields.
fn one(more: &str) -> String {
    format!(
        "sources: {{ things: {{ pollEach: {{ every: 1h, id: /id }} }} }}\nworkflow: {{ dependents: {{ thing: {{ external: {{ source: things }}{more} }} }} }}"
    )
}

const STATE: &str = "sources: { things: { pollEach: { every: 1h, id: /id } } }\nworkflow: { dependents: { thing: { external: { source: things, state: { apiVersion: v1, kind: ConfigMap } } } } }";
const BULK: &str = "sources: { things: { pollEach: { every: 1h, id: /id } } }\nworkflow: { dependents: { thing: { external: { source: things, key: { cel: thing.name } }, bulk: true } } }";
const BULK_STATE: &str = "sources: { things: { pollEach: { every: 1h, id: /id } } }\nworkflow: { dependents: { thing: { external: { source: things, key: { cel: thing.name }, state: { apiVersion: v1, kind: ConfigMap } }, bulk: true } } }";

/// A component that writes to a shop, and what there is in that.
#[derive(Clone)]
struct Shop {
    stock: Arc<Mutex<Stock>>,
    /// What is done, with the writes to the API server in between.
    log: Arc<Server>,
    run: Option<Arc<dyn Context>>,
}

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a way of its own to behave")]
struct Stock {
    things: BTreeMap<String, Value>,
    made: usize,
    /// The functions that fail, with what they say.
    fails: BTreeMap<&'static str, Failure>,
    /// It does what it is asked, and fails all the same.
    loses: bool,
    /// It finds only what a config map remembers.
    by_state: bool,
    /// What `create` answers as the state, by its name; the names of things without it.
    state: Option<&'static str>,
    /// The bytes that it adds to new things.
    grows: usize,
    /// It writes names in lower case.
    renames: bool,
    /// It makes things, and never answers.
    hangs: bool,
    /// Its answers have no id.
    nameless: bool,
}

impl Guest for Shop {
    fn open(&self, run: Arc<dyn Context>) -> Box<dyn Session> {
        Box::new(Self { run: Some(run), ..self.clone() })
    }

    fn open_nested(&self, run: Arc<dyn Context>) -> Box<dyn Session> {
        self.open(run)
    }

    fn exports(&self, interface: Interface) -> bool {
        let used = [
            Interface::Reconciler,
            Interface::Dependent,
            Interface::Bulk,
            Interface::External,
            Interface::ResourcePoller,
        ];
        used.contains(&interface)
    }
}

impl Shop {
    fn log(&self, what: String) {
        self.log.writes.lock().push(what);
    }

    /// Returns what fails, before or after it is done.
    fn fails(&self, function: &'static str, after: bool) -> Result<(), Failure> {
        let stock = self.stock.lock();
        match stock.fails.get(function).filter(|_| stock.loses == after) {
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        }
    }

    fn create(&self, desired: &str) -> Result<Created, Failure> {
        let mut thing: Value = serde_json::from_str(desired).unwrap();
        self.log(format!("create {}", label(&thing)));
        self.fails("create", false)?;
        let mut stock = self.stock.lock();
        stock.made += 1;
        let id = thing["id"].as_str().map_or_else(|| format!("id-{}", stock.made), str::to_owned);
        thing["id"] = json!(id);
        if stock.grows > 0 {
            thing["more"] = json!("x".repeat(stock.grows));
        }
        if stock.renames {
            thing["name"] = json!(label(&thing).to_lowercase());
        }
        stock.things.insert(id.clone(), thing.clone());
        let name = stock.state.map_or_else(|| label(&thing), str::to_owned);
        if stock.nameless {
            thing.as_object_mut().unwrap().remove("id");
        }
        drop(stock);
        self.fails("create", true)?;
        let wanted = self.run.as_ref().unwrap().settings().contains("state");
        let state = wanted.then(|| json!({ "metadata": { "name": name }, "data": { "id": id } }).to_string());
        Ok(Created { actual: thing.to_string(), state })
    }

    /// Returns the things that are found.
    async fn found(&self) -> Vec<String> {
        let (things, by_state) = {
            let stock = self.stock.lock();
            (stock.things.clone(), stock.by_state)
        };
        if !by_state {
            return things.values().map(Value::to_string).collect();
        }
        let place = Place::Kind(config_map());
        let maps = self.run.as_ref().unwrap().find_all(related(place)).await.unwrap().items;
        let id = |map: &String| serde_json::from_str::<Value>(map).unwrap()["data"]["id"].as_str().unwrap().to_owned();
        maps.iter().filter_map(|map| things.get(&id(map))).map(Value::to_string).collect()
    }
}

fn related(place: Place) -> Query {
    Query {
        place,
        selection: Selection::Related,
        labels: None,
        fields: vec![],
        newest_only: false,
        limit: None,
        after: None,
    }
}

/// Returns what a thing is called here.
fn label(thing: &Value) -> String {
    thing["name"].as_str().or(thing["id"].as_str()).unwrap_or("thing").to_owned()
}

impl Session for Shop {
    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<Answer, Failure>> {
        async move {
            Ok(match call {
                Call::Reconcile { .. } => {
                    self.fails("reconcile", false)?;
                    let seen = self.run.as_ref().unwrap().find_all(related(Place::Source("thing".into()))).await;
                    let seen = seen.map_or_else(|error| vec![error.message], |page| page.items);
                    let data = |thing: &String| serde_json::from_str::<Value>(thing).unwrap()["data"].clone();
                    if !seen.is_empty() && seen.len() < 10 {
                        self.log(format!("sees {}", Value::Array(seen.iter().map(data).collect())));
                    }
                    Answer::Reconcile(UpdateControl { update: PrimaryUpdate::Nothing, reschedule: None })
                }
                Call::Desired { name, primary } => {
                    let primary: Value = serde_json::from_str(primary).unwrap();
                    let desired =
                        [&primary["spec"][name], &primary["spec"]["thing"]].into_iter().find(|it| it.is_object());
                    Answer::Desired(desired.unwrap().to_string())
                }
                Call::DesiredSet { primary, .. } => {
                    let primary: Value = serde_json::from_str(primary).unwrap();
                    let set = primary["spec"]["set"].as_object().unwrap();
                    let thing = |(name, data): (&String, &Value)| json!({ "name": name, "data": data }).to_string();
                    Answer::DesiredSet(DesiredSet { objects: set.iter().map(thing).collect() })
                }
                Call::PollOne { .. } => {
                    self.fails("poll", false)?;
                    Answer::PollOne(PolledOne { things: self.found().await, again: None })
                }
                Call::Create { desired, .. } => {
                    let created = self.create(desired)?;
                    if self.stock.lock().hangs {
                        std::future::pending::<()>().await;
                    }
                    Answer::Create(created)
                }
                Call::Update { actual, desired, .. } => {
                    let (before, mut thing): (Value, Value) =
                        (serde_json::from_str(actual).unwrap(), serde_json::from_str(desired).unwrap());
                    self.log(format!("update {}", label(&before)));
                    self.fails("update", false)?;
                    thing["id"] = before["id"].clone();
                    let id = thing["id"].as_str().unwrap().to_owned();
                    self.stock.lock().things.insert(id, thing.clone());
                    Answer::Update(thing.to_string())
                }
                Call::Remove { actual, .. } => {
                    let thing: Value = serde_json::from_str(actual).unwrap();
                    self.log(format!("remove {}", label(&thing)));
                    self.fails("remove", false)?;
                    self.stock.lock().things.remove(thing["id"].as_str().unwrap_or_default());
                    Answer::Remove(())
                }
                Call::Start
                | Call::Cleanup { .. }
                | Call::HandleError { .. }
                | Call::DecideRetry { .. }
                | Call::Validate { .. }
                | Call::Initialize { .. }
                | Call::Match { .. }
                | Call::IsMet { .. }
                | Call::Poll { .. }
                | Call::Receive { .. }
                | Call::Accepts { .. }
                | Call::ToPrimaries { .. }
                | Call::ToSecondaries { .. }
                | Call::Describe { .. } => unreachable!("nobody asks"),
            })
        }
        .boxed()
    }
}

/// Returns a bench with a shop.
fn bench(fields: &str) -> (Bench, Shop) {
    let mut bench = Bench::new(Script::default(), fields);
    let shop = Shop { stock: Arc::default(), log: Arc::clone(&bench.server), run: None };
    let controller = Arc::get_mut(&mut bench.controller).unwrap();
    controller.guest = Arc::new(shop.clone());
    controller.settings = controller.spec.settings();
    if !fields.contains("state:") {
        controller.settings = json!({});
    }
    (bench, shop)
}

impl Bench {
    fn wants_thing(&mut self, spec: Value) {
        self.page_of(json!({ "uid": "page", "finalizers": ["sample.dev/finalizer"] }), spec);
    }

    fn goes(&mut self, spec: Value) {
        let metadata = json!({ "uid": "page", "finalizers": ["sample.dev/finalizer"], "deletionTimestamp": "2026-01-01T00:00:00Z" });
        self.page_of(metadata, spec);
    }

    /// Runs the page once, and returns what was done; the failure of the run last.
    async fn does(&self) -> Vec<String> {
        let (ended, mut log) = self.ended().await;
        log.extend(ended.error);
        log
    }

    /// Returns the names of the config maps that there are.
    fn maps(&self) -> Vec<String> {
        let objects = self.server.objects.lock();
        objects.keys().filter(|(gvk, _)| *gvk == config_map()).map(|(_, key)| key.name.to_string()).collect()
    }

    fn source(&self) -> &Arc<External> {
        &self.controller.externals["things"]
    }

    /// Forgets what was polled, as after a start of the daemon.
    fn restarts(&self) {
        self.source().forget(&ObjectRef::namespaced("n", "a"));
    }

    /// Has polls show what there is, until nothing that was written stands against them.
    fn polled(&self, shop: &Shop) {
        for _ in 0..2 {
            self.poll(shop);
        }
    }

    fn poll(&self, shop: &Shop) {
        let things =
            shop.stock.lock().things.iter().map(|(id, thing)| (id.as_str().into(), thing.to_string().into())).collect();
        let (source, page) = (self.source(), ObjectRef::namespaced("n", "a"));
        source.take_one(source.begin(), (&page, "page"), things, || None).unwrap();
    }
}

fn spec(data: &str) -> Value {
    json!({ "thing": { "data": data } })
}

#[tokio::test(start_paused = true)]
async fn what_is_outside_of_the_cluster_is_created_once_read_at_once_updated_where_it_differs_and_removed() {
    // XD-1, DR-2, DR-4, DR-5
    let (mut bench, shop) = bench(&one(""));
    bench.wants_thing(spec("x"));
    assert_eq!(bench.does().await, ["create thing", "sees [\"x\"]"]);
    assert_eq!(bench.does().await, ["sees [\"x\"]"], "nothing differs, with an id that only the shop knows");
    bench.restarts();
    assert_eq!(bench.does().await, ["sees [\"x\"]"], "it is polled before it is taken for absent");
    shop.stock.lock().things.get_mut("id-1").unwrap()["data"] = json!("else");
    bench.polled(&shop);
    assert_eq!(bench.does().await, ["update id-1", "sees [\"x\"]"]);
    bench.wants_thing(spec("y"));
    assert_eq!(bench.does().await, ["update id-1", "sees [\"y\"]"]);
    shop.stock.lock().things.clear();
    bench.polled(&shop);
    assert_eq!(bench.does().await, ["create thing", "sees [\"y\"]"]);
    bench.goes(spec("y"));
    assert_eq!(bench.does().await, ["remove id-2", "patch Page a"], "then the finalizer goes");
    assert!(shop.stock.lock().things.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_comes_before_what_has_to_be_removed() {
    // DR-5
    for (manage, finalizer) in [("", true), (", manage: [create, update]", false)] {
        let (mut bench, _) = bench(&one(manage));
        bench.page_of(json!({ "uid": "page" }), spec("x"));
        let log = bench.does().await;
        assert_eq!(log.contains(&"patch Page a".to_owned()), finalizer, "{log:?}");
        assert_eq!(log.contains(&"create thing".to_owned()), !finalizer, "{log:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_component_may_have_written_by_hand_needs_no_finalizer_of_the_daemon() {
    // XD-5, DI-2
    let fields = "sources: { things: { pollEach: { every: 1h, id: /id } } }\nstandalone: { alone: { dependents: { thing: { external: { source: things } } } } }";
    let (mut bench, shop) = bench(fields);
    shop.stock.lock().things.insert("id-1".to_owned(), json!({ "id": "id-1", "data": "x" }));
    bench.page_of(json!({ "uid": "page" }), spec("y"));
    assert_eq!(bench.does().await, ["sees [\"x\"]"], "nothing is written, nor a finalizer");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_created_or_taken_for_gone_because_a_poll_has_failed() {
    // XD-1: what is not known is not absent.
    let (mut bench, shop) = bench(&one(""));
    let away = Failure::new(Cause::Returned, "the shop is closed");
    shop.stock.lock().fails.insert("poll", away);
    bench.wants_thing(spec("x"));
    let log = bench.does().await;
    assert_eq!(log, ["the workflow failed: thing: polling source things: the shop is closed"]);
    bench.goes(spec("x"));
    assert_eq!(bench.does().await, log, "the finalizer stays");
    shop.stock.lock().fails.clear();
    assert_eq!(bench.does().await, ["patch Page a"], "that there is nothing is a success");
}

#[tokio::test(start_paused = true)]
async fn a_dependent_whose_primary_the_manifest_does_not_want_polled_is_polled_all_the_same() {
    // XD-1, PP-2
    let fields = one("").replace("id: /id", "id: /id, when: { cel: 'false' }");
    let (mut bench, shop) = bench(&fields);
    shop.stock.lock().things.insert("id-0".to_owned(), json!({ "id": "id-0", "data": "x" }));
    bench.wants_thing(spec("x"));
    assert_eq!(bench.does().await, ["sees [\"x\"]"], "it is there");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_fails_its_node_alone_and_what_there_is_is_polled_again_before_the_next() {
    // XD-1
    let (mut bench, shop) = bench(&one(""));
    bench.wants_thing(spec("x"));
    shop.stock.lock().fails.insert("create", Failure::new(Cause::Timeout, "it takes too long"));
    shop.stock.lock().loses = true;
    assert_eq!(bench.does().await, ["create thing", "the workflow failed: thing: create: it takes too long"]);
    assert_eq!(bench.does().await, ["sees [\"x\"]"], "the first call has created it after all");
    shop.stock.lock().loses = false;
    shop.stock.lock().fails.insert("remove", Failure::new(Cause::Returned, "not now"));
    bench.goes(spec("x"));
    for _ in 0..2 {
        assert_eq!(
            bench.does().await,
            ["remove id-1", "the workflow failed: thing: remove: not now"],
            "the finalizer stays"
        );
    }
    shop.stock.lock().fails.clear();
    assert_eq!(bench.does().await, ["remove id-1", "patch Page a"]);
}

#[tokio::test(start_paused = true)]
async fn one_of_several_is_told_by_its_id_or_key_and_else_both_are_named() {
    // XD-1, KD-4
    let things =
        || [("1", "a"), ("2", "b")].map(|(id, name)| (id.to_owned(), json!({ "id": id, "name": name, "data": "x" })));
    let by_key = one("").replace("source: things }", "source: things, key: { cel: thing.name } }");
    let named = one(", name: { cel: primary.spec.id }");
    let unclear = "the workflow failed: thing: several things of source things could be meant: \"1\" and \"2\"; let what is desired have the id, or say `key` in the manifest";
    for (fields, desired, id, expected) in [
        (one(""), json!({ "name": "b", "data": "y" }), Value::Null, unclear),
        (one(""), json!({ "id": "2", "name": "b", "data": "y" }), Value::Null, "update b"),
        (one(""), json!({ "id": "3", "name": "c", "data": "y" }), Value::Null, "create c"),
        (by_key, json!({ "name": "b", "data": "y" }), Value::Null, "update b"),
        (named.clone(), json!({ "name": "b", "data": "y" }), json!("2"), "update b"),
        (
            named,
            json!({ "id": "1", "data": "y" }),
            json!("2"),
            "the workflow failed: thing: what is desired of thing: it has the id \"1\", and the manifest says \"2\": let `name` say the same",
        ),
    ] {
        let (mut bench, shop) = bench(&fields);
        shop.stock.lock().things.extend(things());
        bench.wants_thing(json!({ "thing": desired, "id": id }));
        let log = bench.does().await;
        assert!(log[0].starts_with(expected), "{fields} {log:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_thing_is_compared_as_the_manifest_says() {
    // XD-1, GM-2
    let generic = ", match: { generic: {} }";
    let ignoring = ", match: { generic: { ignore: [/size] } }";
    for (more, actual, differs) in [
        ("", json!({ "id": "1", "data": "x" }), false),
        ("", json!({ "id": "1", "data": "x", "size": 3 }), true),
        (generic, json!({ "id": "1", "data": "x", "size": 3 }), false),
        (generic, json!({ "id": "1", "data": "z", "size": 3 }), true),
        (ignoring, json!({ "id": "1", "data": "x", "size": 3 }), false),
        (ignoring, json!({ "id": "1", "data": "x", "other": 3 }), true),
        (", manage: [create, delete]", json!({ "id": "1", "data": "z" }), false),
    ] {
        let (mut bench, shop) = bench(&one(more));
        shop.stock.lock().things.insert("1".to_owned(), actual.clone());
        bench.wants_thing(spec("x"));
        let updated = bench.does().await.contains(&"update 1".to_owned());
        assert_eq!(updated, differs, "{more} {actual}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_object_that_remembers_an_id_is_written_after_its_thing_and_deleted_after_it() {
    // XD-2
    let (mut bench, shop) = bench(STATE);
    shop.stock.lock().by_state = true;
    bench.wants_thing(json!({ "thing": { "name": "t", "data": "x" } }));
    assert_eq!(bench.does().await, ["create t", "create ConfigMap t", "sees [\"x\"]"]);
    let map = bench.server.objects.lock()[&(config_map(), ObjectRef::namespaced("n", "t"))].clone();
    assert_eq!(map["data"], json!({ "id": "id-1" }));
    assert_eq!(map["metadata"]["ownerReferences"][0]["uid"], "page");
    let annotations = &map["metadata"]["annotations"];
    assert_eq!([&annotations["capstan.dev/external-key"], &annotations["capstan.dev/external-id"]], ["id-1", "id-1"]);
    bench.restarts();
    assert_eq!(bench.does().await, ["sees [\"x\"]"], "it is found by what remembers it");
    bench.goes(json!({ "thing": { "name": "t", "data": "x" } }));
    assert_eq!(bench.does().await, ["remove t", "delete ConfigMap t", "patch Page a"]);
}

#[tokio::test(start_paused = true)]
async fn what_remembers_a_thing_that_is_gone_goes_too_and_another_takes_its_place() {
    // XD-2
    let (mut bench, shop) = bench(STATE);
    shop.stock.lock().by_state = true;
    let spec = json!({ "thing": { "name": "t", "data": "x" } });
    bench.wants_thing(spec.clone());
    bench.does().await;
    shop.stock.lock().things.clear();
    bench.polled(&shop);
    assert_eq!(bench.does().await, ["create t", "update ConfigMap t", "sees [\"x\"]"]);
    assert_eq!(bench.data("t"), json!({ "id": "id-2" }));
    shop.stock.lock().things.clear();
    bench.polled(&shop);
    bench.goes(spec);
    assert_eq!(bench.does().await, ["delete ConfigMap t", "patch Page a"]);
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_written_of_a_new_thing_is_written_later_and_no_second_thing_created() {
    // XD-2
    let (mut bench, shop) = bench(STATE);
    shop.stock.lock().by_state = true;
    bench.wants_thing(json!({ "thing": { "name": "t", "data": "x" } }));
    bench.server.failures.lock().extend([unavailable(Reason::Busy, 429), unavailable(Reason::Busy, 429)]);
    assert_eq!(bench.does().await, ["create t", "create ConfigMap t failed", "the workflow failed: thing: HTTP 429"]);
    assert_eq!(bench.does().await, ["create ConfigMap t failed", "the workflow failed: thing: HTTP 429"]);
    assert_eq!(bench.does().await, ["create ConfigMap t", "sees [\"x\"]"]);
    assert_eq!((bench.data("t"), shop.stock.lock().made), (json!({ "id": "id-1" }), 1));
}

#[tokio::test(start_paused = true)]
async fn a_thing_is_removed_again_if_what_remembers_it_is_refused_and_made_anew_by_a_better_component() {
    // XD-2
    let (mut bench, shop) = bench(STATE);
    shop.stock.lock().by_state = true;
    bench.wants_thing(json!({ "thing": { "name": "t", "data": "x" } }));
    let refused = || unavailable(Reason::Invalid, 422);
    bench.server.failures.lock().push(refused());
    let (failed, why) = ("create ConfigMap t failed", "the workflow failed: thing: HTTP 422");
    assert_eq!(bench.does().await, ["create t", failed, "remove t", why]);
    // What can't be removed at once is removed by the next run.
    bench.server.failures.lock().extend([refused(), refused()]);
    shop.stock.lock().fails.insert("remove", Failure::new(Cause::Returned, "not now"));
    assert_eq!(bench.does().await, ["create t", failed, "remove t", why]);
    shop.stock.lock().fails.clear();
    assert_eq!(bench.does().await, [failed, "remove t", "create t", "create ConfigMap t", "sees [\"x\"]"]);
    assert_eq!((bench.data("t"), shop.stock.lock().things.len()), (json!({ "id": "id-3" }), 1));
}

#[tokio::test(start_paused = true)]
async fn a_thing_that_nothing_remembers_is_removed_with_its_primary() {
    // XD-2
    let (mut bench, shop) = bench(STATE);
    Arc::get_mut(&mut bench.controller).unwrap().settings = json!({});
    shop.stock.lock().by_state = true;
    bench.wants_thing(spec("x"));
    shop.stock.lock().fails.insert("remove", Failure::new(Cause::Returned, "not now"));
    bench.does().await;
    bench.restarts();
    bench.goes(spec("x"));
    assert_eq!(bench.does().await, ["remove id-1", "the workflow failed: thing: remove: not now"]);
    shop.stock.lock().fails.clear();
    assert_eq!(bench.does().await, ["remove id-1", "patch Page a"]);
    assert!(shop.stock.lock().things.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_state_that_the_manifest_does_not_want_or_that_is_missing_is_an_error() {
    // XD-2
    for (fields, settings, expected) in [
        (STATE.to_owned(), json!({}), "`create` answered no `state`, and the manifest wants a v1 ConfigMap for it"),
        (one(""), json!("state"), "`create` answered a `state`; say its kind under `external.state` in the manifest"),
    ] {
        let (mut bench, _) = bench(&fields);
        Arc::get_mut(&mut bench.controller).unwrap().settings = settings;
        bench.wants_thing(spec("x"));
        assert_eq!(bench.does().await.last().unwrap(), &format!("the workflow failed: thing: {expected}"));
    }
}

#[tokio::test(start_paused = true)]
async fn of_many_things_those_that_are_too_much_go_first_and_the_others_are_brought_in_line_one_by_one() {
    // BD-1, BD-3
    let (mut bench, shop) = bench(BULK);
    bench.wants_thing(json!({ "set": { "a": 1, "b": 2, "c": 3 } }));
    assert_eq!(bench.does().await, ["create a", "create b", "create c", "sees [1,2,3]"]);
    assert_eq!(bench.does().await, ["sees [1,2,3]"]);
    bench.wants_thing(json!({ "set": { "b": 5, "c": 3, "d": 4 } }));
    assert_eq!(bench.does().await, ["remove a", "update b", "create d", "sees [5,3,4]"]);
    let refusal = Failure::new(Cause::Returned, "no more");
    shop.stock.lock().fails.insert("create", refusal);
    bench.wants_thing(json!({ "set": { "a": 1, "b": 6, "c": 3, "d": 4 } }));
    let failed = "the workflow failed: thing: 1 of 4 objects failed: a: create: no more";
    assert_eq!(bench.does().await, ["create a", "update b", failed], "one does not keep the others");
    // Nor does one of which it can't be said which thing it is. Any may be meant by that, so nothing is too much.
    shop.stock.lock().fails.clear();
    bench.wants_thing(json!({ "set": { "": 1, "b": 7, "d": 4 } }));
    let log = bench.does().await;
    assert_eq!((log.len(), &*log[0]), (2, "update b"), "{log:?}");
    assert!(
        log[1].contains("thing: 1 of 3 objects failed: number 1 of the answer: what is desired of thing: "),
        "{log:?}"
    );
    bench.goes(json!({ "set": {} }));
    assert_eq!(bench.does().await, ["remove b", "remove c", "remove d", "patch Page a"]);
}

#[tokio::test(start_paused = true)]
async fn of_many_things_that_are_only_read_all_that_there_are_count_and_nothing_is_written() {
    // BD-2, BD-3, BD-4, DR-1
    let gate = ", bulk: true, readOnly: true, readyPostcondition: { cel: size(dependents) == 2 }";
    let (mut bench, shop) = bench(&one(gate));
    for (id, data) in [("id-1", "x"), ("id-2", "y")] {
        shop.stock.lock().things.insert(id.to_owned(), json!({ "id": id, "data": data }));
    }
    let walk = |bench: &Bench| {
        let key = ObjectRef::namespaced("n", "a");
        let walk = bench.controller.verdicts.walks.of(&key, Instant::now()).unwrap();
        serde_json::from_str::<Value>(&walk.workflows).unwrap()[0]["nodes"][0].clone()
    };
    bench.page_of(json!({ "uid": "page" }), json!({ "set": { "new": "z" } }));
    assert_eq!(bench.does().await, [r#"sees ["x","y"]"#]);
    assert_eq!(walk(&bench), json!({ "name": "thing", "unchanged": 2 }));
    shop.stock.lock().things.remove("id-1");
    bench.polled(&shop);
    assert_eq!(bench.does().await, [r#"sees ["y"]"#]);
    assert_eq!(walk(&bench), json!({ "name": "thing", "unchanged": 1, "unmet": ["readyPostcondition"] }));
    bench.goes(json!({ "set": {} }));
    let log = bench.does().await;
    assert!(!log.iter().any(|done| done.contains("remove")), "{log:?}");
    assert_eq!(shop.stock.lock().things.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_remembers_one_of_many_stays_until_its_thing_is_gone() {
    // BD-4
    let (mut bench, shop) = bench(BULK_STATE);
    shop.stock.lock().by_state = true;
    bench.wants_thing(json!({ "set": { "a": 1, "b": 2 } }));
    let made = ["create a", "create ConfigMap a", "create b", "create ConfigMap b", "sees [1,2]"];
    assert_eq!(bench.does().await, made);
    bench.wants_thing(json!({ "set": { "b": 2 } }));
    shop.stock.lock().fails.insert("remove", Failure::new(Cause::Returned, "not now"));
    let log = bench.does().await;
    assert_eq!((&*log[0], log.len(), bench.maps()), ("remove a", 2, strings(&["a", "b"])), "{log:?}");
    shop.stock.lock().fails.clear();
    assert_eq!(bench.does().await, ["remove a", "delete ConfigMap a", "sees [2]"]);
    bench.goes(json!({ "set": {} }));
    let log = bench.does().await;
    assert_eq!(
        (&log[..2], log.last().unwrap().as_str()),
        (&strings(&["remove b", "delete ConfigMap b"])[..], "patch Page a")
    );
    assert!(shop.stock.lock().things.is_empty() && bench.maps().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_remembers_things_stays_when_the_manifest_tells_them_by_another_key() {
    // XD-2
    let (mut bench, shop) = bench(BULK_STATE);
    shop.stock.lock().by_state = true;
    bench.wants_thing(json!({ "set": { "a": 1, "b": 2 } }));
    bench.does().await;
    let (other, _) = self::bench(&BULK_STATE.replace("thing.name", "thing.name + thing.name"));
    let controller = Arc::get_mut(&mut bench.controller).unwrap();
    controller.spec = other.controller.spec.clone();
    assert_eq!(bench.does().await, ["sees [1,2]"]);
    assert_eq!((bench.maps(), shop.stock.lock().made), (strings(&["a", "b"]), 2));
}

#[tokio::test(start_paused = true)]
async fn a_thing_that_was_renamed_and_can_not_be_removed_is_not_lost_to_one_that_takes_its_place() {
    // BD-4, XD-2
    let (mut bench, shop) = bench(BULK_STATE);
    shop.stock.lock().by_state = true;
    bench.wants_thing(json!({ "set": { "a": 1 } }));
    bench.does().await;
    shop.stock.lock().things.get_mut("id-1").unwrap()["name"] = json!("renamed");
    shop.stock.lock().fails.insert("remove", Failure::new(Cause::Returned, "not now"));
    bench.polled(&shop);
    let log = bench.does().await;
    let said = "a: nothing is created: the thing \"id-1\" was made as this one, and has another key now; remove it, or let it have this key again";
    assert!(log.len() == 2 && log[0] == "remove renamed" && log[1].contains(said), "{log:?}");
    assert_eq!(bench.data("a"), json!({ "id": "id-1" }));
    shop.stock.lock().fails.clear();
    let log = bench.does().await;
    assert_eq!(log[..3], strings(&["remove renamed", "delete ConfigMap a", "create a"]), "{log:?}");
    assert_eq!(bench.data("a"), json!({ "id": "id-2" }));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_broken_off_while_it_makes_a_thing_leaves_nothing_to_be_made_twice() {
    // XD-1, XD-2: while the component makes it, and while what remembers it is written.
    for fields in [one(""), STATE.to_owned()] {
        let (mut bench, shop) = bench(&fields);
        bench.wants_thing(json!({ "thing": { "name": "t", "data": "x" } }));
        let at_the_shop = fields != STATE;
        shop.stock.lock().by_state = !at_the_shop;
        shop.stock.lock().hangs = at_the_shop;
        bench.server.hangs.store(!at_the_shop, Ordering::Relaxed);
        assert!(timeout(Duration::from_secs(1), bench.does()).await.is_err());
        bench.server.writes.lock().clear();
        shop.stock.lock().hangs = false;
        bench.server.hangs.store(false, Ordering::Relaxed);
        let log = bench.does().await;
        let expected: &[&str] = if at_the_shop { &["sees [\"x\"]"] } else { &["create ConfigMap t", "sees [\"x\"]"] };
        assert_eq!((&log[..], shop.stock.lock().things.len()), (&strings(expected)[..], 1), "{fields}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_made_stands_against_polls_until_a_run_has_ended_well() {
    // XC-5, XD-3: its id may be written at the end of the run, from where polls take it.
    let (mut bench, shop) = bench(&one(""));
    bench.wants_thing(spec("x"));
    shop.stock.lock().fails.insert("reconcile", Failure::new(Cause::Returned, "not now"));
    let nothing = |bench: &Bench| {
        let (source, page) = (bench.source(), ObjectRef::namespaced("n", "a"));
        source.take_one(source.begin(), (&page, "page"), BTreeMap::new(), || None).unwrap();
    };
    assert_eq!(bench.does().await, ["create thing", "not now"]);
    for _ in 0..3 {
        nothing(&bench);
        assert_eq!(bench.does().await, ["not now"]);
    }
    shop.stock.lock().fails.clear();
    assert_eq!(bench.does().await, ["sees [\"x\"]"]);
    nothing(&bench);
    assert_eq!(bench.does().await, ["sees [\"x\"]"], "one poll may not have seen it");
    nothing(&bench);
    nothing(&bench);
    assert_eq!(bench.does().await, ["create thing", "sees [\"x\"]"]);
}

#[tokio::test(start_paused = true)]
async fn a_thing_whose_id_can_not_be_read_is_removed_again_if_only_its_object_would_remember_it() {
    // XD-2
    let (mut bench, shop) = bench(STATE);
    shop.stock.lock().by_state = true;
    shop.stock.lock().nameless = true;
    bench.wants_thing(json!({ "thing": { "name": "t", "data": "x" } }));
    let log = bench.does().await;
    assert_eq!(log[..2], ["create t", "remove t"], "{log:?}");
    assert!(bench.maps().is_empty());
}

#[tokio::test(start_paused = true)]
async fn polls_between_a_creation_and_what_remembers_it_have_nothing_made_twice() {
    // XD-2, XC-5
    let (mut bench, shop) = bench(BULK_STATE);
    shop.stock.lock().by_state = true;
    bench.wants_thing(json!({ "set": { "a": 1, "b": 2 } }));
    polls_before(&bench, &shop, "create ConfigMap a");
    let late = bench.source().begin();
    bench.does().await;
    bench.source().take_one(late, (&ObjectRef::namespaced("n", "a"), "page"), BTreeMap::new(), || None).unwrap();
    assert_eq!(bench.does().await, ["sees [1,2]"]);
}

#[tokio::test(start_paused = true)]
async fn polls_between_a_removal_and_what_remembers_its_thing_leave_nothing_behind() {
    // BD-4
    let (mut bench, shop) = bench(BULK_STATE);
    shop.stock.lock().by_state = true;
    bench.wants_thing(json!({ "set": { "a": 1, "b": 2 } }));
    bench.does().await;
    bench.wants_thing(json!({ "set": { "b": 2 } }));
    shop.stock.lock().fails.insert("remove", Failure::new(Cause::Returned, "not now"));
    bench.does().await;
    shop.stock.lock().fails.clear();
    polls_before(&bench, &shop, "delete ConfigMap a");
    assert_eq!(bench.does().await, ["remove a", "delete ConfigMap a", "sees [2]"]);
}

/// Has polls come before a write.
fn polls_before(bench: &Bench, shop: &Shop, write: &'static str) {
    let (source, shop, server) = (Arc::clone(bench.source()), shop.clone(), Arc::downgrade(&bench.server));
    *bench.server.meanwhile.lock() = Some(Box::new(move |found| {
        if found == write {
            poll_by_state(&source, &shop, &server.upgrade().unwrap());
        }
    }));
}

/// Polls twice as a component does that finds what config maps remember: the first answer does not undo a write, the second would.
fn poll_by_state(source: &External, shop: &Shop, server: &Server) {
    let page = ObjectRef::namespaced("n", "a");
    for _ in 0..2 {
        let began = source.begin();
        let maps = server.objects.lock();
        let maps = maps.iter().filter(|((gvk, _), _)| *gvk == config_map()).map(|(_, map)| map);
        let ids: Vec<String> = maps.map(|map| map["data"]["id"].as_str().unwrap().to_owned()).collect();
        let stock = shop.stock.lock();
        let there = ids.iter().filter_map(|id| Some((id.as_str().into(), stock.things.get(id)?.to_string().into())));
        source.take_one(began, (&page, "page"), there.collect(), || None).unwrap();
        source.settle(began, |key| *key == page);
    }
}

#[tokio::test(start_paused = true)]
async fn thousands_of_things_are_within_what_a_run_may_spend() {
    // BD-1
    let (mut bench, shop) = bench(BULK);
    let set: serde_json::Map<_, _> = (0..3_000).map(|number| (format!("t-{number:04}"), json!(number))).collect();
    bench.wants_thing(json!({ "set": set }));
    assert_eq!(bench.does().await.len(), 3_000);
    assert_eq!(bench.does().await, Vec::<String>::new());
    bench.restarts();
    assert_eq!(bench.does().await, Vec::<String>::new());
    assert_eq!(shop.stock.lock().things.len(), 3_000);
    bench.goes(json!({ "set": {} }));
    assert_eq!(bench.does().await.len(), 3_001);
}

#[tokio::test(start_paused = true)]
async fn what_the_same_key_is_desired_for_twice_or_none_is_an_error() {
    // BD-1
    let fields = BULK.replace(", key: { cel: thing.name }", "");
    let (mut bench, _) = bench(&fields);
    bench.wants_thing(json!({ "set": { "a": 1 } }));
    let expected = "the workflow failed: thing: 1 of 1 objects failed: number 1 of the answer: what is desired of thing has nothing at \"/id\", so that it is not known which thing it is: let it have the id, or say `external.key` in the manifest";
    assert_eq!(bench.does().await, [expected]);
    let fields = BULK.replace("thing.name", "\"'same'\"");
    let (mut bench, _) = self::bench(&fields);
    bench.wants_thing(json!({ "set": { "a": 1, "b": 2 } }));
    let expected = "the workflow failed: thing: \"same\" is twice in what `desired-set` answered for thing: let each thing be in it once";
    assert_eq!(bench.does().await, [expected]);
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_remembered_is_not_created() {
    // XD-1
    let fields = one("").replace("id: /id", "id: /id, bounded: { memory: 1Ki }");
    let (mut bench, shop) = bench(&fields);
    bench.wants_thing(spec(&"x".repeat(500)));
    let log = bench.does().await;
    assert!(log[0].starts_with("the workflow failed: thing: nothing is created: source things: "), "{log:?}");
    assert_eq!(shop.stock.lock().made, 0);
}

#[tokio::test(start_paused = true)]
async fn what_was_made_for_a_primary_is_not_known_as_that_of_another_with_its_name() {
    // ID-1
    let (mut bench, shop) = bench(&one(", manage: [create, update]"));
    bench.wants_thing(spec("x"));
    bench.does().await;
    shop.stock.lock().things.clear();
    bench.page_of(json!({ "uid": "second" }), spec("y"));
    assert_eq!(bench.does().await, ["create thing", "sees [\"y\"]"]);
}

#[tokio::test(start_paused = true)]
async fn of_a_source_of_several_dependents_nothing_is_taken_that_is_told_by_nothing() {
    // XD-1, XD-4
    let two = "sources: { things: { pollEach: { every: 1h, id: /id } } }\nworkflow: { dependents: { other: { external: { source: things, key: { cel: thing.name } } }, thing: { external: { source: things }, reconcilePrecondition: { cel: primary.spec.wanted } } } }";
    let (mut bench, shop) = bench(two);
    let spec = |wanted: bool| json!({ "other": { "name": "other" }, "thing": { "data": "x" }, "wanted": wanted });
    let why = "the workflow failed: thing: the dependent other has the source things, too, so that it is not known which of its things is meant: let what is desired have the id, or say `external.key` in the manifest";
    bench.wants_thing(spec(true));
    let log = bench.does().await;
    assert_eq!((log.len(), log.last().unwrap().as_str()), (2, why), "{log:?}");
    bench.wants_thing(spec(false));
    assert_eq!(bench.does().await, [why]);
    assert_eq!(shop.stock.lock().things.len(), 1, "the other's stays");
}

#[tokio::test(start_paused = true)]
async fn a_thing_that_can_not_be_remembered_is_polled_before_another_is_created() {
    // XD-1
    let (mut bench, shop) = bench(&one("").replace("every: 1h,", "every: 1h, bounded: { things: 100, memory: 4Ki },"));
    shop.stock.lock().grows = 10_000;
    bench.wants_thing(spec("x"));
    for _ in 0..3 {
        let log = bench.does().await;
        assert!(log.last().unwrap().contains("source things"), "{log:?}");
    }
    assert_eq!(shop.stock.lock().made, 1, "no second one");
}

#[tokio::test(start_paused = true)]
async fn what_is_created_under_another_key_than_desired_is_told() {
    // XD-1
    let (mut bench, shop) = bench(&one("").replace("source: things }", "source: things, key: { cel: thing.name } }"));
    shop.stock.lock().renames = true;
    bench.wants_thing(json!({ "thing": { "name": "Foo" } }));
    let log = bench.does().await;
    let why = "the workflow failed: thing: `create` answered a thing with the key \"foo\", and the key \"Foo\" is desired: it would not be found again; let what is desired be as the other side has it";
    assert_eq!(log, ["create Foo", why]);
}

#[tokio::test(start_paused = true)]
async fn a_primary_stays_until_what_remembers_its_thing_is_written_so_that_this_is_found() {
    // XD-2
    let (mut bench, shop) = bench(STATE);
    Arc::get_mut(&mut bench.controller).unwrap().settings = json!("state");
    shop.stock.lock().by_state = true;
    bench.wants_thing(spec("x"));
    bench.server.failures.lock().push(unavailable(Reason::Unreachable, 503));
    bench.does().await;
    // No poll finds it.
    bench.restarts();
    bench.goes(spec("x"));
    bench.server.failures.lock().push(unavailable(Reason::Unreachable, 503));
    let log = bench.does().await;
    assert!(!log.contains(&"patch Page a".to_owned()), "{log:?}");
    let log = bench.does().await;
    assert!(log.contains(&"remove id-1".to_owned()) && log.last().unwrap() == "patch Page a", "{log:?}");
    assert!(shop.stock.lock().things.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_thing_without_a_key_is_no_hindrance_to_others_nor_to_the_end() {
    // XD-1, BD-3
    let (mut bench, shop) = bench(BULK);
    shop.stock.lock().things.insert("id-0".to_owned(), json!({ "id": "id-0" }));
    bench.wants_thing(json!({ "set": { "a": 1 } }));
    assert_eq!(bench.does().await[..2], strings(&["remove id-0", "create a"]));
    shop.stock.lock().things.insert("id-9".to_owned(), json!({ "id": "id-9" }));
    bench.polled(&shop);
    bench.goes(json!({ "set": {} }));
    assert_eq!(bench.does().await.last().unwrap(), "patch Page a");
    assert!(shop.stock.lock().things.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_thing_that_others_keep_changing_or_removing_is_put_right_less_and_less_often() {
    // LG-4
    for removes in [false, true] {
        let (mut bench, shop) = bench(&one(", match: { generic: {} }"));
        bench.wants_thing(json!({ "thing": { "id": "1", "data": "x" } }));
        bench.does().await;
        let put_right = if removes { "create 1" } else { "update 1" };
        let mut times = 0;
        for _ in 0..7 {
            let there = (!removes).then(|| ("1".to_owned(), json!({ "id": "1", "data": "z" })));
            shop.stock.lock().things = there.into_iter().collect();
            bench.polled(&shop);
            times += bench.does().await.iter().filter(|what| **what == put_right).count();
        }
        assert_eq!(times, 4, "{put_right}: the first time counts");
        let Finished::Done { again, .. } = bench.run().await.0 else { panic!("it has failed") };
        assert_eq!(again, Some(Duration::from_secs(5)));
        let what = if removes { "deleting it" } else { "changing /data" };
        let told = format!("dependent thing, 1: others keep {what}; it is put right less and less often");
        assert_eq!(*bench.published.lock(), [("DependentContested".to_owned(), told)]);
    }
}
