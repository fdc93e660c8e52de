//! Polls of things outside of the cluster, and requests that tell of them, with a scripted component: what runs see of them, and whom they wake.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail loudly")]
#![allow(
    clippy::too_many_lines,
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    reason = "builders that are read beside their use"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::cache::{Event as Watch, Writer};
use capstan_core::cluster::{Cluster, Error, Write};
use capstan_core::external::schedule::{Polled, Streak, Turn};
use capstan_core::external::{External, Standing};
use capstan_core::guest::{
    Answer, Call, Cause, Changed, Context, Failure, Function, Guest, InboundAnswer, InboundRequest, Interface, Learned,
    PolledAll, PolledOne, PrimaryThings, PrimaryUpdate, Selection, Session, SourceEvent, UpdateControl,
};
use capstan_core::guest::{Lifetime, Place, Query, WriteOptions, WriteRequest, WriteVerb};
use capstan_core::manifest;
use capstan_core::object::fields::Fields;
use capstan_core::object::{Gvk, Managers, Object, ObjectRef, Scope, Version};
use capstan_core::permission::{Home, Permissions};
use capstan_core::queue::{self, Policy, Queue};
use capstan_core::reconciler::inbound::{self, Received};
use capstan_core::reconciler::verdicts::Verdicts;
use capstan_core::reconciler::{Controller, execute, polling};
use capstan_core::source::callback::{Callback, Faults};
use capstan_core::source::filter::Filter;
use capstan_core::source::mapper::Mapper;
use capstan_core::source::registered::Registered;
use capstan_core::source::{Role, Source, Spec, Trigger, TriggerKind};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// What a poll or a run does before it answers, and what it notes of that.
type Ask = Arc<dyn Fn(Arc<dyn Context>) -> BoxFuture<'static, Vec<String>> + Send + Sync>;

/// What polls answer, one after another; the last one again and again.
type Answers = Vec<Result<Vec<Value>, &'static str>>;

/// Answers for the filters `large`, which wants a `v` above 9, `slow`, which takes too long, and `fails`.
fn accepts(name: &str, changed: Changed<'_>) -> Result<bool, Failure> {
    let (Changed::Added(thing) | Changed::Updated { after: thing, .. } | Changed::Deleted { last: thing, .. }) =
        changed;
    match name {
        "large" => Ok(serde_json::from_str::<Value>(thing).unwrap()["v"].as_u64() > Some(9)),
        "slow" => Err(Failure::new(Cause::Timeout, "took too long")),
        _ => Err(Failure::other("has no idea")),
    }
}

/// A component that answers from a script. It has one permit, as a plugin with `limits.concurrency: 1`.
#[derive(Clone)]
struct Script {
    answers: Arc<Mutex<Answers>>,
    again: Option<Duration>,
    on_poll: Option<Ask>,
    on_reconcile: Option<Ask>,
    notes: Arc<Mutex<Vec<String>>>,
    permit: Arc<Semaphore>,
}

impl Script {
    fn new(answers: &[Result<Vec<Value>, &'static str>]) -> Self {
        Self {
            answers: Arc::new(Mutex::new(answers.to_vec())),
            again: None,
            on_poll: None,
            on_reconcile: None,
            notes: Arc::default(),
            permit: Arc::new(Semaphore::new(1)),
        }
    }

    fn things(&self) -> Result<Vec<String>, Failure> {
        let mut answers = self.answers.lock();
        let answer = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
        let texts = |things: Vec<Value>| things.iter().map(Value::to_string).collect();
        answer.map(texts).map_err(Failure::other)
    }
}

struct Scene {
    script: Script,
    run: Arc<dyn Context>,
    nested: bool,
    held: tokio::sync::Mutex<Option<tokio::sync::OwnedSemaphorePermit>>,
}

impl Guest for Script {
    fn open(&self, run: Arc<dyn Context>) -> Box<dyn Session> {
        Box::new(Scene { script: self.clone(), run, nested: false, held: tokio::sync::Mutex::default() })
    }

    fn open_nested(&self, run: Arc<dyn Context>) -> Box<dyn Session> {
        Box::new(Scene { script: self.clone(), run, nested: true, held: tokio::sync::Mutex::default() })
    }

    fn exports(&self, interface: Interface) -> bool {
        matches!(interface, Interface::Reconciler | Interface::Poller | Interface::ResourcePoller)
    }
}

impl Session for Scene {
    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<Answer, Failure>> {
        async move {
            self.ready().await?;
            let Script { on_poll, on_reconcile, notes, again, .. } = &self.script;
            let asks = if matches!(call, Call::Reconcile { .. }) { on_reconcile } else { on_poll };
            notes.lock().push(call.function().map_or("start", Function::name).to_owned());
            if let Some(ask) = asks {
                let asked = ask(Arc::clone(&self.run)).await;
                if asked == ["fails"] {
                    return Err(Failure::other("fails"));
                }
                notes.lock().extend(asked);
            }
            Ok(match call {
                Call::Poll { .. } => {
                    let primaries = self.script.things()?.into_iter().map(|thing| PrimaryThings {
                        primary: key(serde_json::from_str::<Value>(&thing).unwrap()["of"].as_str().unwrap_or("a")),
                        things: vec![thing],
                    });
                    Answer::Poll(PolledAll { primaries: primaries.collect() })
                }
                Call::PollOne { .. } => Answer::PollOne(PolledOne { things: self.script.things()?, again: *again }),
                Call::Reconcile { .. } => {
                    Answer::Reconcile(UpdateControl { update: PrimaryUpdate::Nothing, reschedule: None })
                }
                Call::Accepts { name, changed } => Answer::Accepts(accepts(name, changed)?),
                Call::Receive { request, .. } => Answer::Receive(understood(&request.body)?),
                Call::Start
                | Call::Cleanup { .. }
                | Call::HandleError { .. }
                | Call::DecideRetry { .. }
                | Call::Validate { .. }
                | Call::Initialize { .. }
                | Call::Desired { .. }
                | Call::Match { .. }
                | Call::IsMet { .. }
                | Call::ToPrimaries { .. }
                | Call::ToSecondaries { .. }
                | Call::Create { .. }
                | Call::Update { .. }
                | Call::Remove { .. }
                | Call::DesiredSet { .. }
                | Call::Describe {} => unreachable!("nobody asks"),
            })
        }
        .boxed()
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), Failure>> {
        async {
            let mut held = self.held.lock().await;
            if !self.nested && held.is_none() {
                *held = Some(Arc::clone(&self.script.permit).acquire_owned().await.unwrap());
            }
            Ok(())
        }
        .boxed()
    }
}

/// An API server that is never asked.
struct Nobody;

impl Cluster for Nobody {
    fn write(&self, _: Write) -> BoxFuture<'_, Result<Option<Object>, Error>> {
        unreachable!("nothing is written")
    }

    fn dry_run(&self, _: Write) -> BoxFuture<'_, Result<Option<Object>, Error>> {
        unreachable!("nothing is tried")
    }

    fn get<'a>(&'a self, _: &'a Gvk, _: &'a ObjectRef) -> BoxFuture<'a, Result<Option<Object>, Error>> {
        unreachable!("nothing is read")
    }

    fn scope(&self, _: &Gvk) -> Option<Scope> {
        Some(Scope::Namespaced)
    }
}

/// A controller over pages with one source, `x`.
struct Bench {
    controller: Arc<Controller>,
    source: Arc<External>,
    pages: Writer,
    notes: Arc<Mutex<Vec<String>>>,
    told: Arc<Mutex<Vec<Trigger>>>,
    /// How many filters have failed.
    failed: Arc<Mutex<usize>>,
    /// What each call of the component needs.
    permit: Arc<Semaphore>,
}

impl Bench {
    fn new(script: Script, source: &str) -> Self {
        Self::with(script, source, "")
    }

    /// A bench with more fields of the controller, in YAML flow style.
    fn with(script: Script, source: &str, fields: &str) -> Self {
        let text = format!(
            "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: a }}\nspec:\n  plugins: {{ p: {{ component: {{ path: p.wasm }} }} }}\n  controllers:\n    pages: {{ plugin: p, primary: {{ apiVersion: sample.dev/v1, kind: Page }}, retry: none, sources: {{ x: {source} }}{fields} }}\n"
        );
        let operator = manifest::parse(&text, Path::new("a.yaml")).unwrap().remove(0);
        let spec = operator.controllers["pages"].clone();
        let mut pages = Writer::default();
        pages.start_list();
        pages.finish_list(Version(0));
        let failed = Arc::<Mutex<usize>>::default();
        let counted = Arc::clone(&failed);
        let faults = Faults::new("pages", move |what| *counted.lock() += usize::from(what == Callback::Filter));
        let primaries = Arc::new(Source::new(Spec {
            name: "primaries".into(),
            gvk: spec.primary.clone(),
            cluster: None,
            role: Role::Primary,
            filter: Filter::default(),
            indexes: BTreeMap::new(),
            fields: Fields::whole(),
            bounded: None,
            packed: false,
            faults: Arc::new(faults),
        }));
        primaries.attach(None, pages.cache());
        let (notes, permit) = (Arc::clone(&script.notes), Arc::clone(&script.permit));
        let told = Arc::<Mutex<Vec<Trigger>>>::default();
        let queue = Queue::new(Policy { max_interval: None, retry: None, ..Policy::default() });
        queue.start(Instant::now());
        let source = Arc::new(External::new(&"x".into(), spec.externals["x"].clone()));
        let controller = Controller {
            operator: Arc::clone(&operator.name),
            limits: operator.plugins["p"].limits.clone(),
            primaries,
            secondaries: BTreeMap::new(),
            externals: [("x".into(), Arc::clone(&source))].into(),
            on_demand: Arc::default(),
            registered: Registered::none(),
            finalizer: "sample.dev/finalizer".into(),
            guest: Arc::new(script),
            permissions: Permissions::new(&spec, &operator.plugins["p"].capabilities, Home::default()),
            cluster: Arc::new(Nobody),
            elsewhere: BTreeMap::new(),
            tell: {
                let told = Arc::clone(&told);
                Arc::new(move |triggers| told.lock().extend(triggers))
            },
            queue,
            verdicts: Arc::new(Verdicts::default()),
            edition: 1,
            settings: json!({ "controller": { "name": "pages" } }),
            holder: None,
            events: Box::new(|_, _, _| {}),
            conditions: Arc::default(),
            spec,
        };
        Self { controller: Arc::new(controller), source, pages, notes, told, failed, permit }
    }

    fn page(&mut self, name: &str, spec: Value) {
        let metadata = json!({ "name": name, "namespace": "n", "uid": format!("u-{name}"), "resourceVersion": "1" });
        let tree = json!({ "apiVersion": "sample.dev/v1", "kind": "Page", "metadata": metadata, "spec": spec });
        let page = Object::parse(&tree.to_string(), &self.controller.spec.primary, &Managers::default()).unwrap();
        self.pages.apply(Watch::Applied(page));
    }

    fn gone(&mut self, name: &str) {
        self.pages.apply(Watch::Deleted(self.controller.primaries.get(&key(name)).unwrap()));
    }

    async fn poll(&self) -> Result<(), String> {
        polling::poll(&self.controller, &self.source).await.map_err(|failure| failure.message)
    }

    async fn poll_one(&self, name: &str) -> Result<Polled, String> {
        self.poll_turn(name, &format!("u-{name}")).await
    }

    async fn poll_turn(&self, name: &str, uid: &str) -> Result<Polled, String> {
        let turn = Turn { primary: key(name), uid: uid.into() };
        polling::poll_one(&self.controller, &self.source, &turn).await.map_err(|failure| failure.message)
    }

    /// Runs a page, and returns why that failed.
    async fn run(&self, name: &str) -> Option<String> {
        let key = key(name);
        self.controller.queue.event(&key, queue::Event::PrimaryChanged { deleting: false }, Instant::now());
        let mut ticket = self.controller.queue.next().await.unwrap();
        let ended = execute(Arc::clone(&self.controller), &mut ticket, Timestamp::UNIX_EPOCH).await;
        ticket.finish(ended.finished, Instant::now());
        ended.error
    }

    /// Sends a request, and returns what it is answered with, and of how many primaries nothing is kept.
    async fn receive(&self, body: &str) -> Result<(u16, usize), String> {
        let request = InboundRequest { body: body.to_owned(), ..InboundRequest::default() };
        let current = || Some(Arc::clone(&self.controller));
        let received = inbound::receive(&self.controller, &self.source, request, current).await;
        received.map(|Received { status, dropped, .. }| (status, dropped)).map_err(|problem| problem.to_string())
    }

    fn notes(&self) -> Vec<String> {
        std::mem::take(&mut self.notes.lock())
    }

    /// Returns whom polls have woken.
    fn woken(&self) -> Vec<String> {
        let told = std::mem::take(&mut *self.told.lock());
        let names = told.into_iter().map(|Trigger { primary, what, .. }| match what {
            TriggerKind::Related { source, .. } => format!("{} by {source}", primary.name),
            TriggerKind::Changed { .. } | TriggerKind::Deleted { .. } => unreachable!("polls say nothing of primaries"),
        });
        names.collect()
    }
}

const TOGETHER: &str = "{ poll: { every: 10s, id: /id } }";
const EACH: &str = "{ pollEach: { every: 10s, id: /id } }";
const INBOUND: &str = "{ inbound: { token: none } }";
const FETCHED: &str = "{ inbound: { token: none, fetch: {} } }";

fn key(name: &str) -> ObjectRef {
    ObjectRef::namespaced("n", name)
}

fn query(selection: Selection) -> Query {
    let place = Place::Source("x".to_owned());
    Query { place, selection, labels: None, fields: Vec::new(), newest_only: false, limit: None, after: None }
}

/// Returns what a request says: each word of its body is `NAME` (run), `NAME+THING` (a thing that is there) or `NAME-ID` (one that is gone),
/// or a status.
fn understood(body: &str) -> Result<InboundAnswer, Failure> {
    let mut answer = InboundAnswer { status: 202, body: "thanks".to_owned(), events: Vec::new() };
    for word in body.split_whitespace() {
        let event = |name: &str, learned| SourceEvent { primary: key(name), learned };
        if let Ok(status) = word.parse() {
            answer.status = status;
        } else if word == "fail" {
            return Err(Failure::other("no sense"));
        } else if word == "long" {
            answer.body = "x".repeat((64 << 10) + 1);
        } else if let Some((name, thing)) = word.split_once('+') {
            answer.events.push(event(name, Learned::Present(thing.to_owned())));
        } else if let Some((name, id)) = word.split_once('-') {
            answer.events.push(event(name, Learned::Gone(id.to_owned())));
        } else {
            answer.events.push(event(word, Learned::Wake));
        }
    }
    Ok(answer)
}

/// Returns what a call sees of the things of its primary.
fn looks() -> Option<Ask> {
    Some(Arc::new(|run: Arc<dyn Context>| {
        async move {
            let page = run.find_all(query(Selection::Related)).await;
            vec![page.map_or_else(|error| format!("{:?}: {error}", error.reason), |page| page.items.join(" "))]
        }
        .boxed()
    }))
}

#[tokio::test(start_paused = true)]
async fn those_run_whose_things_have_changed_if_they_are_there() {
    // PP-1, XC-1, XC-2
    let (a, b) = (json!({ "id": 1, "of": "a" }), json!({ "id": 1, "of": "b" }));
    let script = Script::new(&[Ok(vec![a.clone(), b.clone()]), Ok(vec![a, b.clone()]), Ok(vec![b]), Ok(vec![])]);
    let mut bench = Bench::new(script, TOGETHER);
    bench.page("a", json!({}));
    for woken in [vec!["a by x"], vec![], vec!["a by x"], vec![]] {
        assert_eq!(bench.poll().await, Ok(()));
        assert_eq!(bench.woken(), woken);
    }
    assert_eq!(bench.notes(), ["poll"; 4]);
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_one_primary_does_not_keep_what_has_gone_of_another() {
    // PP-1
    let answers = [Ok(vec![json!({ "id": 1, "of": "a" })]), Ok(vec![json!({ "name": 1, "of": "b" })])];
    let mut bench = Bench::new(Script::new(&answers), TOGETHER);
    bench.page("a", json!({}));
    for (woken, things, ends) in [(vec!["a by x"], 1, Ok(())), (vec!["a by x"], 0, Err(()))] {
        assert_eq!(bench.poll().await.map_err(drop), ends);
        assert_eq!(bench.woken(), woken);
        assert_eq!(bench.source.counts().things, things);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_sees_what_was_polled_and_is_refused_what_was_not() {
    // PP-1
    let thing = json!({ "id": 1, "of": "a" });
    let script =
        Script { on_reconcile: looks(), ..Script::new(&[Err("no way"), Ok(vec![thing]), Err("down"), Err("down")]) };
    let mut bench = Bench::new(script, TOGETHER);
    bench.page("a", json!({}));
    let seen = async || {
        let failed = bench.run("a").await;
        assert_eq!(failed, None);
        bench.notes().pop().unwrap()
    };
    assert_eq!(seen().await, "Unreachable: source x has not been polled yet");
    assert_eq!(bench.poll().await, Err("no way".to_owned()));
    bench.source.fail("no way");
    assert_eq!(seen().await, "Unreachable: source x has not been polled with success yet: no way");
    assert_eq!(bench.poll().await, Ok(()));
    assert_eq!(bench.controller.queue.counts(Instant::now()).due, 1, "whoever could not be told before runs");
    assert_eq!(seen().await, r#"{"id":1,"of":"a"}"#);
    assert_eq!(bench.poll().await, Err("down".to_owned()));
    assert_eq!(seen().await, r#"{"id":1,"of":"a"}"#, "what was known stays");
}

#[tokio::test(start_paused = true)]
async fn the_first_look_of_a_run_polls_its_primary_and_wakes_nobody() {
    // PP-2
    let script =
        Script { on_reconcile: looks(), ..Script::new(&[Ok(vec![json!({ "id": 1 })]), Ok(vec![json!({ "id": 2 })])]) };
    let mut bench = Bench::new(script, EACH);
    bench.page("a", json!({}));
    assert_eq!(bench.run("a").await, None);
    // With one permit for all, which the run has.
    assert_eq!(bench.notes(), ["reconcile", "poll-one", r#"{"id":1}"#]);
    assert_eq!(bench.run("a").await, None);
    assert_eq!(bench.notes(), ["reconcile", r#"{"id":1}"#], "once is enough");
    assert_eq!(bench.woken(), [""; 0]);
    assert_eq!(bench.poll_one("a").await, Ok(Polled::Well(None)));
    assert_eq!((bench.notes(), bench.woken()), (vec!["poll-one".to_owned()], vec!["a by x".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_look_that_can_not_be_answered_is_refused() {
    // PP-2
    let script = Script { on_reconcile: looks(), ..Script::new(&[Err("no way")]) };
    let mut bench = Bench::new(script, EACH);
    bench.page("a", json!({}));
    assert_eq!(bench.run("a").await, None);
    assert_eq!(bench.notes().pop().unwrap(), "Unreachable: polling source x: no way");
}

#[tokio::test(start_paused = true)]
async fn a_primary_that_is_polled_in_vain_is_told_why_and_when_it_works_again() {
    // PP-4
    for (fields, told) in [("", true), (", events: { ofFailures: false }", false)] {
        let mut bench = Bench::with(Script::new(&[Ok(vec![])]), EACH, fields);
        let published = Arc::<Mutex<Vec<(String, bool, String)>>>::default();
        let events = Arc::clone(&published);
        Arc::get_mut(&mut bench.controller).unwrap().events = Box::new(move |primary, event, _| {
            let about = format!("{}: {}", primary.key(), event.message);
            events.lock().push((event.reason, event.warning, about));
        });
        bench.page("a", json!({}));
        for (uid, streak) in [("u-a", Streak::Began), ("u-a", Streak::Ended), ("u-before", Streak::Began)] {
            let turn = Turn { primary: key("a"), uid: uid.into() };
            polling::record(&bench.controller, &bench.source, &turn, streak, "HTTP 503");
        }
        let failed = "n/a: polling x fails again and again: HTTP 503; what was known stays, and it is tried again";
        let expected = [("PollFailed", true, failed), ("PollSucceeded", false, "n/a: polling x works again")];
        let expected = expected.map(|(reason, warning, about)| (reason.to_owned(), warning, about.to_owned()));
        assert_eq!(*published.lock(), if told { expected.to_vec() } else { vec![] }, "{fields}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_who_is_wanted_is_polled_and_who_is_gone_has_nothing() {
    // PP-2, XC-6
    let script = Script {
        again: Some(Duration::from_secs(1)),
        on_reconcile: looks(),
        ..Script::new(&[Ok(vec![json!({ "id": 1 })])])
    };
    let mut bench = Bench::new(script, "{ pollEach: { every: 10s, id: /id, when: { cel: primary.spec.on } } }");
    for (name, on) in [("a", json!(true)), ("b", json!(false)), ("c", json!("no truth value"))] {
        bench.page(name, json!({ "on": on }));
    }
    let well = Ok(Polled::Well(Some(Duration::from_secs(1))));
    for (name, polled) in [("a", well.clone()), ("b", Ok(Polled::Unwanted)), ("c", well), ("d", Ok(Polled::Unwanted))] {
        assert_eq!(bench.poll_one(name).await, polled, "{name}");
    }
    assert_eq!(bench.notes(), ["poll-one"; 2], "a question without an answer polls");
    assert_eq!(bench.run("b").await, None);
    assert_eq!(bench.notes(), ["reconcile", ""], "it has none, and nobody asks");
    bench.page("a", json!({ "on": false }));
    assert_eq!(bench.poll_one("a").await, Ok(Polled::Unwanted));
    assert_eq!(bench.source.standing(&key("a"), "u-a"), Some(Standing::Unwanted));
    assert_eq!((bench.source.of(&key("a"), "u-a").len(), bench.source.of(&key("c"), "u-c").len()), (0, 1));
    bench.gone("c");
    assert_eq!(bench.poll_one("c").await, Ok(Polled::Unwanted));
    assert_eq!(bench.source.of(&key("c"), "u-c").len(), 1, "for the run about its end");
}

#[tokio::test(start_paused = true)]
async fn what_is_polled_for_a_primary_that_is_made_again_meanwhile_is_nobodys() {
    // PP-2, XC-6
    let mut bench = Bench::new(Script::new(&[Ok(vec![json!({ "id": 1 })]), Ok(vec![json!({ "id": 2 })])]), EACH);
    bench.page("a", json!({}));
    assert_eq!(bench.poll_turn("a", "before").await, Ok(Polled::Unwanted), "its turn comes too late");
    assert_eq!(bench.notes(), [""; 0]);
    let permit = Arc::clone(&bench.permit).acquire_owned().await.unwrap();
    let (controller, source) = (Arc::clone(&bench.controller), Arc::clone(&bench.source));
    let turn = Turn { primary: key("a"), uid: "u-a".into() };
    let mut late = polling::poll_one(&controller, &source, &turn).boxed();
    assert!(late.as_mut().now_or_never().is_none(), "it waits for its turn to compute");
    bench.gone("a");
    drop(permit);
    assert!(matches!(late.await, Ok(Polled::Unwanted)));
    assert_eq!((bench.notes(), bench.source.counts().primaries), (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn as_long_as_it_is_not_known_whether_a_primary_is_there_nothing_is_forgotten_and_its_poll_is_tried_again() {
    // XC-6, IB-6
    let mut bench = Bench::new(Script::new(&[Ok(vec![json!({ "id": 1 })])]), FETCHED);
    bench.page("a", json!({}));
    bench.receive("a").await.unwrap();
    bench.poll_one("a").await.unwrap();
    let known = || bench.source.of(&key("a"), "u-a").len();
    assert_eq!(known(), 1);
    bench.controller.primaries.awaits(None);
    let doubt = bench.controller.primaries.look(&key("a")).unwrap_err().to_string();
    assert_eq!(bench.poll_one("a").await, Err(doubt));
    assert_eq!(known(), 1);
    bench.controller.primaries.attach(None, bench.pages.cache());
    bench.poll_one("a").await.unwrap();
    assert_eq!(known(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_look_at_all_waits_until_each_has_had_its_turn_and_leaves_out_whom_no_poll_has_found() {
    // PP-2
    let everywhere = || -> Option<Ask> {
        Some(Arc::new(|run: Arc<dyn Context>| {
            async move {
                let found = run.find_all(query(Selection::Everywhere)).await;
                vec![found.map_or_else(|error| error.to_string(), |page| page.items.join(" "))]
            }
            .boxed()
        }))
    };
    let script = Script {
        on_reconcile: everywhere(),
        ..Script::new(&[Ok(vec![json!({ "id": 1 })]), Err("no way"), Ok(vec![json!({ "id": 2 })])])
    };
    let when = "{ pollEach: { every: 10s, id: /id, when: { cel: primary.spec.on } } }";
    let mut bench = Bench::new(script, when);
    for (name, on) in [("a", true), ("b", true), ("c", false), ("d", true)] {
        bench.page(name, json!({ "on": on }));
    }
    let mut seen = Vec::new();
    for name in ["a", "b", "c", "d"] {
        drop(bench.poll_one(name).await);
        assert_eq!(bench.run("a").await, None);
        seen.extend(bench.notes().pop());
    }
    let waits = |text: &str| format!("source x has not been polled yet for {text} more primaries");
    assert_eq!(seen, [waits("n/b and 2"), waits("n/c and 1"), waits("n/d and 0"), r#"{"id":1} {"id":2}"#.to_owned()]);
    drop(bench.poll_one("b").await);
    assert_eq!(bench.run("a").await, None);
    assert_eq!(bench.notes().pop().unwrap(), r#"{"id":1} {"id":2} {"id":2}"#);
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_an_answer_is_a_failure_and_changes_nothing() {
    // XC-3
    let answers = [
        Ok(vec![json!({ "id": 1 })]),
        Ok(vec![json!({ "name": 1 })]),
        Ok(vec![json!({ "id": 1 }), json!({ "id": 1 })]),
    ];
    let mut bench = Bench::new(Script::new(&answers), "{ pollEach: { every: 10s, id: /id, bounded: { things: 1 } } }");
    bench.page("a", json!({}));
    bench.page("b", json!({}));
    assert_eq!(bench.poll_one("a").await, Ok(Polled::Well(None)));
    let said = bench.poll_one("a").await.unwrap_err();
    assert!(said.starts_with("a thing has no id: at \"/id\" there is nothing"), "{said}");
    assert_eq!(bench.poll_one("a").await, Err("two things of a primary have the id \"1\"".to_owned()));
    assert_eq!(bench.source.of(&key("a"), "u-a").len(), 1);
    let script = Script::new(&[Ok(vec![json!({ "id": 1 }), json!({ "id": 2 })])]);
    let mut bench = Bench::new(script, "{ pollEach: { every: 10s, id: /id, bounded: { things: 1 } } }");
    bench.page("a", json!({}));
    assert_eq!(
        bench.poll_one("a").await,
        Err("the things of one primary may take half of what is free: 2 of 1 (bounded.things and bounded.memory)"
            .to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn a_poll_belongs_to_no_run_and_does_what_only_a_run_can_not() {
    let ask: Ask = Arc::new(|run: Arc<dyn Context>| {
        async move {
            let reason = |error: capstan_core::guest::CallError| format!("{:?}", error.reason);
            let verb = WriteVerb::Apply("{}".to_owned());
            let write = run.write(WriteRequest { verb, options: WriteOptions::default() }).await.map_err(reason);
            let primaries = run.find_all(Query { place: Place::Primaries, ..query(Selection::Everywhere) }).await;
            let related = run.find_one(Place::Source("x".to_owned())).await.map_err(reason);
            let memo = run.set_memo(Lifetime::Primary, "m", Some("1".to_owned())).map_err(reason);
            let primary = run.info().primary.map(|primary| primary.name.to_string());
            let beside = run.info().beside;
            vec![format!("{beside} {primary:?} {write:?} {} {related:?} {memo:?}", primaries.unwrap().items.len())]
        }
        .boxed()
    });
    let nothing = "Err(\"Misplaced\")";
    for (source, told) in [
        (TOGETHER, format!("true None {nothing} 1 {nothing} {nothing}")),
        (EACH, format!("true Some(\"a\") {nothing} 1 Err(\"Unreachable\") Ok(())")),
    ] {
        let script = Script { on_poll: Some(Arc::clone(&ask)), ..Script::new(&[Ok(vec![])]) };
        let mut bench = Bench::new(script, source);
        bench.page("a", json!({}));
        if source == TOGETHER {
            assert_eq!(bench.poll().await, Ok(()));
        } else {
            assert_eq!(bench.poll_one("a").await, Ok(Polled::Well(None)));
        }
        assert_eq!(bench.notes().pop().unwrap(), told);
    }
}

#[tokio::test(start_paused = true)]
async fn things_are_found_by_primary_namespace_and_id_and_come_in_pages() {
    let answers = [("b", 3), ("a", 2), ("a", 10), ("a", 1)];
    let script = Script {
        on_reconcile: Some(Arc::new(|run: Arc<dyn Context>| {
            async move {
                let mut told = Vec::new();
                for selection in [
                    Selection::Related,
                    Selection::Namespaced("n".to_owned()),
                    Selection::Namespaced("m".to_owned()),
                    Selection::Everywhere,
                ] {
                    let mut asked = query(selection);
                    (asked.limit, asked.fields) = (Some(2), vec!["/of".to_owned()]);
                    let mut pages = Vec::new();
                    loop {
                        let page = run.find_all(asked.clone()).await.unwrap();
                        pages.push(page.items.join(" "));
                        asked.after = page.next;
                        if asked.after.is_none() {
                            break;
                        }
                    }
                    told.push(pages.join(" | "));
                }
                let named = |id| run.find_named(Place::Source("x".to_owned()), ObjectRef::cluster(id));
                told.push(format!("{:?} {:?}", named("10").await.unwrap(), named("3").await.unwrap()));
                let one = run.find_one(Place::Source("x".to_owned())).await.unwrap_err();
                told.push(one.to_string());
                for wrong in [
                    Query { labels: Some("a=b".to_owned()), ..query(Selection::Related) },
                    query(Selection::Indexed { index: "i".to_owned(), key: "k".to_owned() }),
                ] {
                    told.push(run.find_all(wrong).await.unwrap_err().to_string());
                }
                told
            }
            .boxed()
        })),
        ..Script::new(&[Ok(answers.map(|(of, id)| json!({ "id": id, "of": of, "more": true })).to_vec())])
    };
    let mut bench = Bench::new(script, TOGETHER);
    bench.page("a", json!({}));
    assert_eq!(bench.poll().await, Ok(()));
    assert_eq!(bench.run("a").await, None);
    let thing = |of: &str, id: u32| format!(r#"{{"id":{id},"of":"{of}"}}"#);
    let of_a = format!("{} {} | {}", thing("a", 1), thing("a", 10), thing("a", 2));
    let all = format!("{} {} | {} {}", thing("a", 1), thing("a", 10), thing("a", 2), thing("b", 3));
    let whole = r#"Some("{\"id\":10,\"more\":true,\"of\":\"a\"}") None"#;
    assert_eq!(
        bench.notes()[2..],
        [
            of_a.as_str(),
            &all,
            "",
            &all,
            whole,
            "several things of source x belong to the primary: 1, 10, 2",
            "source x has things outside of the cluster, which have no labels",
            "source x has things outside of the cluster, and no index",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_poll_takes_nothing_for_absent_of_which_a_mapper_has_not_said_whose_it_is() {
    // PP-2, IM-3
    let ask: Ask = Arc::new(|run: Arc<dyn Context>| {
        async move {
            let query = Query { place: Place::Source("maps".to_owned()), ..query(Selection::Related) };
            let page = run.find_all(query).await;
            vec![page.map_or_else(|error| format!("{:?}: {error}", error.reason), |page| page.items.join(" "))]
        }
        .boxed()
    });
    let mut bench = Bench::new(Script { on_poll: Some(ask), ..Script::new(&[Ok(vec![])]) }, EACH);
    let (spec, mut writer) = (bench.controller.primaries.spec().clone(), Writer::default());
    writer.start_list();
    writer.finish_list(Version(0));
    let mapper = Mapper::new(spec.gvk.clone(), Scope::Namespaced, manifest::Mapper::Export("m".into()));
    let gvk = Gvk::parse("v1", "ConfigMap").unwrap();
    let maps = Source::new(Spec { name: "maps".into(), gvk: gvk.clone(), role: Role::Secondary(mapper), ..spec });
    maps.attach(None, writer.cache());
    let map = r#"{"metadata":{"namespace":"n","name":"s","uid":"u","resourceVersion":"2"}}"#;
    let map = Object::parse(map, &gvk, &Managers::default()).unwrap();
    assert_eq!(maps.on(writer.apply(Watch::Applied(map)).unwrap()), []);
    let controller = Arc::get_mut(&mut bench.controller).unwrap();
    controller.secondaries.insert("maps".into(), Arc::new(maps));
    bench.page("a", json!({}));
    bench.poll_one("a").await.unwrap();
    let [_, said] = &bench.notes()[..] else { panic!("one poll") };
    assert!(
        said.starts_with("Unreachable: ") && said.contains("its `mapper` has not been asked about s yet"),
        "{said}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_reads_what_it_has_written_outside_of_the_cluster_and_so_does_the_next_one() {
    // XC-4, XC-5
    for declared in [TOGETHER, EACH] {
        let told: Ask = Arc::new(|run: Arc<dyn Context>| {
            async move {
                let look = async || {
                    let page = run.find_all(query(Selection::Related)).await;
                    page.map_or_else(|error| format!("{:?}: {error}", error.reason), |page| page.items.join(" "))
                };
                let answered = |result: Result<(), _>| match result {
                    Ok(()) => "ok".to_owned(),
                    Err(capstan_core::guest::CallError { reason, message, .. }) => format!("{reason:?}: {message}"),
                };
                let mut notes = vec![look().await];
                let text = |value: Value| value.to_string();
                let (one, two) = (|| text(json!({ "id": 1, "of": "a" })), || text(json!({ "id": 2, "of": "a" })));
                notes.push(answered(run.remember("x", two(), None)));
                notes.push(look().await);
                notes.push(answered(run.forget("x", "1")));
                notes.push(look().await);
                notes.push(answered(run.remember("x", two(), Some(one()))));
                notes.push(answered(run.remember("x", text(json!({ "of": "a" })), None)));
                notes.push(answered(run.remember("y", two(), None)));
                notes
            }
            .boxed()
        });
        let mut script = Script::new(&[Ok(vec![json!({ "id": 1, "of": "a" })])]);
        script.on_reconcile = Some(told);
        let mut bench = Bench::new(script, declared);
        bench.page("a", json!({}));
        if declared == TOGETHER {
            bench.poll().await.unwrap();
        }
        assert_eq!(bench.run("a").await, None);
        let (one, two) = (r#"{"id":1,"of":"a"}"#, r#"{"id":2,"of":"a"}"#);
        let mut notes = bench.notes();
        notes.retain(|note| !note.starts_with("poll") && note != "reconcile");
        assert_eq!(
            notes,
            [
                one,
                "ok",
                &format!("{one} {two}"),
                "ok",
                two,
                "Invalid: source x: the thing has the id \"2\", and what it replaces has \"1\"; expected the same",
                "Invalid: source x: the thing: a thing has no id: at \"/id\" there is nothing; a text that is not empty, or a whole number, was expected",
                "Missing: source \"y\" is not there; of things outside of the cluster there are: x",
            ],
            "{declared}"
        );
        bench.woken();
        // An answer from before does not undo it, and wakes nobody.
        if declared == TOGETHER {
            bench.poll().await.unwrap();
        } else {
            bench.poll_one("a").await.unwrap();
        }
        assert_eq!(bench.woken(), Vec::<String>::new());
        assert_eq!(bench.source.of(&key("a"), "u-a").keys().map(|id| &**id).collect::<Vec<_>>(), ["2"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_wakes_the_primaries_whose_things_it_changes_and_their_runs_see_them() {
    // IB-1, IB-2
    let mut script = Script::new(&[Ok(vec![])]);
    script.on_reconcile = looks();
    let mut bench = Bench::new(script, INBOUND);
    bench.page("a", json!({}));
    bench.page("b", json!({}));
    for (body, answer, woken, seen) in [
        ("a", (202, 0), vec!["a by x"], ""),
        (r#"201 a+{"id":1}"#, (201, 0), vec!["a by x"], r#"{"id":1}"#),
        // Equal things are no change, in whatever order their fields are.
        (r#"a+{"id":1}"#, (202, 0), vec![], r#"{"id":1}"#),
        (
            r#"a+{"id":2,"v":1} b+{"id":1} b"#,
            (202, 0),
            vec!["b by x", "a by x", "b by x"],
            r#"{"id":1} {"id":2,"v":1}"#,
        ),
        (r#"a+{"v":1,"id":2}"#, (202, 0), vec![], r#"{"id":1} {"id":2,"v":1}"#),
        ("a-1 a-7", (202, 0), vec!["a by x"], r#"{"id":2,"v":1}"#),
        // XC-6: of what is not there nothing is kept.
        (r#"c c+{"id":1} a-2"#, (202, 2), vec!["a by x"], ""),
        ("429", (429, 0), vec![], ""),
    ] {
        assert_eq!(bench.receive(body).await, Ok(answer), "{body}");
        assert_eq!(bench.woken(), woken, "{body}");
        bench.notes();
        assert_eq!(bench.run("a").await, None);
        assert_eq!(bench.notes()[1..].join(", "), seen, "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_not_understood_changes_nothing_and_one_without_room_no_more_than_there_is() {
    // IB-2, IB-4
    let mut bench = Bench::new(Script::new(&[Ok(vec![])]), "{ inbound: { token: none, bounded: { things: 2 } } }");
    bench.page("a", json!({}));
    for (body, why) in [
        ("a fail", "no sense"),
        ("a 199", "it answers with the status 199; expected one from 200 to 599"),
        ("a 600", "it answers with the status 600; expected one from 200 to 599"),
        ("a long", "it answers with 65537 bytes; expected at most 65536"),
        (
            r#"a a+{"name":1}"#,
            "a thing has no id: at \"/id\" there is nothing; a text that is not empty, or a whole number, was expected",
        ),
    ] {
        assert_eq!(bench.receive(body).await, Err(why.to_owned()), "{body}");
        assert_eq!((bench.woken(), bench.source.counts().things), (vec![], 0), "{body}");
    }
    bench.page("b", json!({}));
    let full = bench.receive(r#"a+{"id":1} a+{"id":2} a+{"id":3} b"#).await;
    let share =
        "n/a: the things of one primary may take half of what is free: 2 of 1 (bounded.things and bounded.memory)";
    assert_eq!(full, Err(share.to_owned()));
    let woken = vec!["b by x".to_owned(), "a by x".to_owned()];
    assert_eq!((bench.woken(), bench.source.counts().things), (woken, 1), "the others are kept");
}

#[tokio::test(start_paused = true)]
async fn what_a_request_says_of_primaries_that_may_be_there_is_to_be_sent_again_and_the_others_hear_of_theirs() {
    // IB-1
    let mut bench = Bench::new(Script::new(&[Ok(vec![])]), INBOUND);
    bench.page("a", json!({}));
    bench.pages.quarantine(Some(&key("b")));
    for body in [r#"b b+{"id":1} a+{"id":1}"#, r#"a+{"id":2} b"#] {
        let doubt = "source primaries does not know all of sample.dev/v1 Page yet: this object can't be read";
        assert_eq!(bench.receive(body).await, Err(doubt.to_owned()), "{body}");
        assert_eq!(bench.woken(), ["a by x"]);
    }
    assert_eq!(bench.source.counts().things, 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_told_of_a_primary_that_goes_or_is_made_again_meanwhile_does_not_stay() {
    // XC-6
    let mut bench = Bench::new(Script::new(&[Ok(vec![])]), INBOUND);
    bench.page("a", json!({}));
    bench.receive(r#"a+{"id":1}"#).await.unwrap();
    for (uid, things) in [("u-a", 1), ("another", 0)] {
        bench.source.forget_others(&key("a"), uid);
        assert_eq!(bench.source.counts().things, things, "{uid}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_to_a_source_that_has_become_another_is_to_be_sent_again() {
    // IB-5
    let mut bench = Bench::new(Script::new(&[Ok(vec![])]), INBOUND);
    bench.page("a", json!({}));
    let request = || InboundRequest { body: r#"a a+{"id":1}"#.to_owned(), ..InboundRequest::default() };
    let other = Bench::new(Script::new(&[Ok(vec![])]), INBOUND);
    for now in [None, Some(Arc::clone(&other.controller))] {
        let received = inbound::receive(&bench.controller, &bench.source, request(), || now.clone()).await;
        assert!(matches!(received, Err(inbound::Problem::NotNow(_))), "{received:?}");
        assert_eq!((bench.woken(), bench.source.counts().things), (vec![], 0));
    }
    assert!(
        inbound::receive(&bench.controller, &bench.source, request(), || Some(Arc::clone(&bench.controller)))
            .await
            .is_ok()
    );
}

#[tokio::test(start_paused = true)]
async fn a_primary_that_is_made_again_has_nothing_of_what_was_told_of_the_one_before() {
    // XC-6
    let mut script = Script::new(&[Ok(vec![])]);
    script.on_reconcile = looks();
    let mut bench = Bench::new(script, INBOUND);
    bench.page("a", json!({}));
    bench.receive(r#"a+{"id":1}"#).await.unwrap();
    assert_eq!(bench.source.of(&key("a"), "u-a").len(), 1);
    assert_eq!(bench.source.of(&key("a"), "another").len(), 0);
    let learned = bench
        .source
        .learn((&key("a"), "another"), &"2".into(), Some("{}".into()), || None)
        .map(|change| change.is_some());
    assert_eq!((learned, bench.source.of(&key("a"), "u-a").len(), bench.source.counts().things), (Ok(true), 0, 1));
    bench.source.forget(&key("a"));
    assert_eq!(bench.source.counts().bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_only_says_that_something_has_changed_has_it_read_and_wakes_whom_that_concerns() {
    // IB-6
    let thing = |v: u32| vec![json!({ "id": 1, "v": v })];
    let mut script = Script::new(&[Ok(thing(1)), Ok(thing(1)), Err("is away"), Ok(thing(2))]);
    script.on_reconcile = looks();
    let mut bench = Bench::new(script, FETCHED);
    bench.page("a", json!({}));
    assert_eq!(bench.run("a").await, None);
    assert_eq!(bench.notes(), ["reconcile", "poll-one", r#"{"id":1,"v":1}"#], "nobody has told anything");
    for (failed, woken) in [(false, vec![]), (true, vec![]), (false, vec!["a by x"])] {
        if !failed {
            assert_eq!(bench.receive("a").await, Ok((202, 0)));
            assert_eq!(bench.woken(), Vec::<String>::new(), "it is not known yet whether it concerns it");
        }
        let asked = bench.source.asked().now_or_never().map(|asked| asked[0].0.clone());
        assert_eq!(asked, (!failed).then(|| Turn { primary: key("a"), uid: "u-a".into() }));
        assert_eq!(bench.poll_one("a").await.is_err(), failed);
        assert_eq!(bench.woken(), woken);
        bench.source.ask_on();
        let left = bench.source.asked().now_or_never().map_or(0, |asked| asked.len());
        assert_eq!(left, 0, "{failed}");
    }
    bench.notes();
    assert_eq!(bench.run("a").await, None);
    assert_eq!(bench.notes(), ["reconcile", r#"{"id":1,"v":2}"#]);
    // What is not there is dropped, and nobody asks for it.
    assert_eq!(bench.receive("b").await, Ok((202, 1)));
    assert!(bench.source.asked().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn what_a_request_says_stands_beside_what_is_read_of_the_rest() {
    // IB-2, IB-6
    let read = vec![json!({ "id": 1, "v": "old" }), json!({ "id": 2 })];
    let mut script = Script::new(&[Ok(read)]);
    script.on_reconcile = looks();
    let mut bench = Bench::new(script, FETCHED);
    bench.page("a", json!({}));
    for (body, woken, notes) in [
        (r#"a+{"id":3}"#, 1, "receive reconcile poll-one {\"id\":1,\"v\":\"old\"} {\"id\":2} {\"id\":3}"),
        (r#"a+{"id":3}"#, 0, "receive reconcile {\"id\":1,\"v\":\"old\"} {\"id\":2} {\"id\":3}"),
        ("a-1", 1, "receive reconcile {\"id\":2} {\"id\":3}"),
    ] {
        assert_eq!(bench.receive(body).await, Ok((202, 0)));
        assert_eq!(bench.woken().len(), woken, "{body}");
        assert_eq!(bench.run("a").await, None);
        assert_eq!(bench.notes().join(" "), notes, "{body}");
    }
    let asked = bench.source.asked().now_or_never().map(|asked| asked.len());
    assert_eq!(asked, Some(1), "the answer has not shown what was told, so it is read once more");
}

#[tokio::test(start_paused = true)]
async fn what_a_run_that_fails_has_written_is_read_again_once_a_run_has_ended_well() {
    // IB-6, XC-5
    let broken = Arc::new(Mutex::new(true));
    let fails = Arc::clone(&broken);
    let mut script = Script::new(&[Ok(vec![])]);
    script.on_reconcile = Some(Arc::new(move |run: Arc<dyn Context>| {
        let broken = Arc::clone(&fails);
        async move {
            run.find_all(query(Selection::Related)).await.unwrap();
            drop(run.remember("x", r#"{"id":1}"#.to_owned(), None));
            if *broken.lock() { vec!["fails".to_owned()] } else { vec![] }
        }
        .boxed()
    }));
    let mut bench = Bench::new(script, FETCHED);
    bench.page("a", json!({}));
    let asked = || bench.source.asked().now_or_never().map_or(0, |asked| asked.len());
    assert!(bench.run("a").await.is_some());
    assert_eq!(asked(), 0);
    for _ in 0..3 {
        bench.poll_one("a").await.unwrap();
        assert_eq!((asked(), bench.source.counts().things), (0, 1), "no answer ends what it has written");
    }
    *broken.lock() = false;
    assert_eq!(bench.run("a").await, None);
    assert_eq!(asked(), 1);
    bench.poll_one("a").await.unwrap();
    assert_eq!((asked(), bench.source.counts().things), (1, 1));
    bench.poll_one("a").await.unwrap();
    assert_eq!((asked(), bench.source.counts().things), (0, 0), "the next one is the truth");
}

#[tokio::test(start_paused = true)]
async fn a_look_at_all_has_those_read_whom_nobody_has_looked_at() {
    // IB-6
    let mut script = Script::new(&[Ok(vec![json!({ "id": 1 })])]);
    script.on_reconcile = Some(Arc::new(|run: Arc<dyn Context>| {
        async move {
            let page = run.find_all(query(Selection::Everywhere)).await;
            vec![page.map_or_else(|error| format!("{:?}", error.reason), |page| page.items.join(" "))]
        }
        .boxed()
    }));
    let mut bench = Bench::new(script, FETCHED);
    bench.page("a", json!({}));
    bench.page("b", json!({}));
    assert_eq!(bench.run("a").await, None);
    assert_eq!(bench.notes(), ["reconcile", "Unreachable"]);
    let asked = bench.source.asked().now_or_never().unwrap();
    for (Turn { primary, .. }, _) in asked {
        bench.poll_one(&primary.name).await.unwrap();
    }
    bench.notes();
    assert_eq!(bench.run("a").await, None);
    assert_eq!(bench.notes(), ["reconcile", r#"{"id":1} {"id":1}"#]);
}

/// Returns the pages and things of a poll: `NAME=V` is a thing of that page.
fn of_pages(text: &str) -> Vec<Value> {
    let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
    pairs.map(|(of, v)| json!({ "id": v.len(), "of": of, "v": v.parse::<u64>().unwrap() })).collect()
}

#[tokio::test(start_paused = true)]
async fn a_primary_runs_if_a_filter_lets_one_change_of_its_things_pass_and_reads_them_all_the_same() {
    // XC-7, XC-1
    for (filters, changed) in [
        ("", ["a", "a b", "a", "b"]),
        ("onAdd: { cel: object.v > 5 }", ["", "a b", "a", "b"]),
        ("onUpdate: { cel: object.v > oldObject.v }", ["a", "b", "a", "b"]),
        ("onDelete: { cel: finalStateUnknown && object.v > 5 }", ["a", "a b", "a", ""]),
        ("generic: { cel: object.of != 'a' }", ["", "b", "", "b"]),
        ("onAdd: { cel: object.v > 5 }, generic: { export: large }", ["", "", "a", ""]),
        ("onUpdate: { export: large }", ["a", "", "a", "b"]),
        ("onUpdate: { export: fails }, onAdd: { cel: object.w > 5 }", ["a", "a b", "a", "b"]),
    ] {
        // Two things of one page differ in length.
        let answers = ["b=2", "a=3 b=2", "a=2 b=4", "b=4 a=20", "a=20"];
        let answers: Vec<_> = answers.iter().map(|text| Ok(of_pages(text))).collect();
        let declared = format!("{{ poll: {{ every: 10s, id: /id, filters: {{ {filters} }} }} }}");
        let mut bench = Bench::new(Script::new(&answers), &declared);
        bench.page("a", json!({}));
        bench.page("b", json!({}));
        bench.poll().await.unwrap();
        assert_eq!(bench.woken(), ["b by x"], "whatever the filters say, all run at first");
        for (step, expected) in changed.into_iter().enumerate() {
            bench.poll().await.unwrap();
            let mut woken: Vec<_> = bench.woken().into_iter().map(|name| name.replace(" by x", "")).collect();
            woken.dedup();
            assert_eq!(woken.join(" "), expected, "{filters}: {step}");
        }
        assert_eq!(bench.source.of(&key("a"), "u-a").len(), 1, "what is filtered is known");
        let failed = *bench.failed.lock();
        assert_eq!(failed > 0, filters.contains("fails"), "{filters}: {failed}");
    }
}

#[tokio::test(start_paused = true)]
async fn filters_are_asked_about_what_is_polled_for_one_primary_and_about_what_requests_say() {
    // XC-7
    let filters = "filters: { onAdd: { export: large }, onDelete: { cel: finalStateUnknown } }";
    let answers = [Ok(vec![json!({ "id": 1, "v": 3 })]), Ok(vec![json!({ "id": 2, "v": 30 })]), Ok(vec![])];
    let mut bench = Bench::new(Script::new(&answers), &format!("{{ pollEach: {{ every: 10s, id: /id, {filters} }} }}"));
    bench.page("a", json!({}));
    for woken in [0, 1, 1] {
        bench.poll_one("a").await.unwrap();
        assert_eq!(bench.woken().len(), woken);
    }
    let mut bench = Bench::new(Script::new(&[Ok(vec![])]), &format!("{{ inbound: {{ token: none, {filters} }} }}"));
    bench.page("a", json!({}));
    for (body, woken) in
        [(r#"a+{"id":1,"v":3}"#, 0), (r#"a+{"id":2,"v":30}"#, 1), (r#"a+{"id":1,"v":4}"#, 1), ("a-1", 0), ("a", 1)]
    {
        assert_eq!(bench.receive(body).await, Ok((202, 0)));
        assert_eq!(bench.woken().len(), woken, "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_filter_that_takes_too_long_is_not_asked_about_the_rest_of_an_answer() {
    // XC-7
    let answers = ["c=1", "a=1 b=1"].map(|text| Ok(of_pages(text)));
    let declared = "{ poll: { every: 10s, id: /id, filters: { generic: { export: slow } } } }";
    let mut bench = Bench::new(Script::new(&answers), declared);
    bench.page("a", json!({}));
    bench.page("b", json!({}));
    bench.poll().await.unwrap();
    bench.notes();
    bench.poll().await.unwrap();
    assert_eq!(bench.woken(), ["a by x", "b by x"]);
    assert_eq!((bench.notes(), *bench.failed.lock()), (vec!["poll".to_owned(), "accepts".to_owned()], 2));
}

#[tokio::test(start_paused = true)]
async fn whoever_was_not_asked_about_before_the_end_of_a_poll_runs() {
    // XC-7
    let mut script = Script::new(&["c=1", "a=1 b=1"].map(|text| Ok(of_pages(text))));
    let calls = Arc::new(Mutex::new(0));
    script.on_poll = Some(Arc::new(move |_| {
        *calls.lock() += 1;
        let hangs = *calls.lock() == 4;
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            Vec::new()
        }
        .boxed()
    }));
    let declared = "{ poll: { every: 10s, id: /id, filters: { generic: { export: large } } } }";
    let mut bench = Bench::new(script, declared);
    bench.page("a", json!({}));
    bench.page("b", json!({}));
    bench.poll().await.unwrap();
    let broken_off = tokio::time::timeout(Duration::from_secs(1), bench.poll()).await;
    assert!(broken_off.is_err());
    assert_eq!(bench.woken(), ["b by x"], "the filter does not want a");
}
