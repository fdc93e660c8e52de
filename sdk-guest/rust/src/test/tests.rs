//! The author's API over the double, and the glue between the contract and the author's traits.

use std::time::Duration;

use serde::Deserialize;

use super::*;
use crate::bindings::bulk::exports::capstan::operator::bulk::Guest as _;
use crate::bindings::cleaner::exports::capstan::operator::cleaner::{DeleteControl, Guest as _};
use crate::bindings::condition::exports::capstan::operator::condition::{ConditionResult, Guest as _};
use crate::bindings::dependent::exports::capstan::operator::dependent::Guest as _;
use crate::bindings::error_handler::exports::capstan::operator::error_handler::{
    self, ErrorHandling, Guest as _, NextStep,
};
use crate::bindings::filter::exports::capstan::operator::filter::{self, Guest as _};
use crate::bindings::imports::capstan::operator::types::{Learned, ObjectKey, Pair, SourceEvent};
use crate::bindings::inbound::exports::capstan::operator::inbound::{Guest as _, InboundAnswer, InboundRequest};
use crate::bindings::initializer::exports::capstan::operator::initializer::Guest as _;
use crate::bindings::mapper::exports::capstan::operator::mapper::Guest as _;
use crate::bindings::matcher::exports::capstan::operator::matcher::Guest as _;
use crate::bindings::poller::exports::capstan::operator::poller::{Guest as _, PrimaryResources};
use crate::bindings::reconciler::exports::capstan::operator::reconciler::{Guest as _, PrimaryUpdate, UpdateControl};
use crate::bindings::resource_poller::exports::capstan::operator::resource_poller::{Guest as _, PollResult};
use crate::bindings::retry_policy::exports::capstan::operator::retry_policy::{self, Guest as _};
use crate::bindings::secondary_mapper::exports::capstan::operator::secondary_mapper::Guest as _;
use crate::bindings::validator::exports::capstan::operator::validator::{self, Guest as _};
use crate::expectations::{self, Outcome};
use crate::glue::{Adapter, Described as _, primary};
use crate::operations::{self, By, Options, Removal};
use crate::recorder;
use crate::workflow::{self, ObjectResult, Operation};
use crate::{
    Change, Cleaner, Deletion, Dependents, Error, ErrorHandler, FailedRun, Failure, FailureClass, Handled, Initializer,
    Json, Keys, Match, Met, NextRetry, Origin, PrimaryThings, Problem, Received, Reconciler, Request, Result,
    RetryPolicy, Things, Update, Validator, bulks, cache, conditions, config, context, dependents, filters, mappers,
    matchers, memo, pollers, receivers, resource_pollers, secondaries, secondary, secondary_mappers, sources, system,
};

#[derive(Debug, PartialEq, Deserialize)]
struct Page {
    html: String,
}

const PAGE: &str = r#"{"html": "<html/>"}"#;

struct Operator;

impl Reconciler for Operator {
    type Primary = Page;

    fn reconcile(page: &Page) -> Result<Update> {
        match page.html.as_str() {
            "nothing" => Ok(Update::nothing().reschedule(Duration::from_millis(1500))),
            "object" => Ok(Update::object(json!({ "spec": 1 })).only_at("7")),
            "null" => Ok(Update::object(json!({ "metadata": null })).only_at("7")),
            "odd" => Ok(Update::object(json!([1])).only_at("7")),
            "no object" => Ok(Update::object_and_status(json!("a"), json!({ "ok": true }))),
            "both" => Ok(Update::object_and_status(json!({ "spec": 1 }), json!({ "ok": true }))),
            "locked" => Ok(Update::status(json!({ "ok": true })).only_at("7")),
            "fail" => Err("no".into()),
            "silent" => Err("".into()),
            "no status" => Ok(Update::status(None::<Value>).only_at("7")),
            "no object or status" => Ok(Update::object_and_status(None::<Value>, None::<Value>)),
            "status alone" => Ok(Update::object_and_status(None::<Value>, json!({ "ok": true }))),
            "object alone" => Ok(Update::object_and_status(json!({ "spec": 1 }), None::<Value>)),
            "map" => Ok(Update::status(BTreeMap::from([((1, 2), 3)]))),
            _ => Ok(Update::status(json!({ "ok": true })).reschedule(Duration::MAX)),
        }
    }
}

impl Cleaner for Operator {
    type Primary = Page;

    fn cleanup(page: &Page) -> Result<Deletion> {
        Ok(match page.html.as_str() {
            "keep" => Deletion::keep_finalizer(),
            "later" => Deletion::keep_finalizer().reschedule(Duration::from_secs(2)),
            _ => Deletion::remove_finalizer(),
        })
    }
}

impl ErrorHandler for Operator {
    type Primary = Page;

    fn handle_error(page: &Page, failure: &Failure) -> Result<Option<Handled>> {
        Ok(match page.html.as_str() {
            "status" => Some(Handled::status(json!({ "error": failure.message }))),
            "stop" => Some(Handled::status(json!({ "error": failure.message })).stop()),
            "later" => Some(Handled::new().reschedule(Duration::from_secs(2))),
            "slow" => Some(Handled::status(json!({ "error": failure.message })).retry_after(Duration::from_secs(3))),
            "quiet" => Some(Handled::new()),
            "wordless" => Some(Handled::status(None::<Value>).stop()),
            "torn" => Some(Handled::new().stop().retry_after(Duration::from_secs(3))),
            _ => None,
        })
    }
}

impl RetryPolicy for Operator {
    type Primary = Page;

    fn decide_retry(page: &Page, failed: &FailedRun) -> Result<NextRetry> {
        if failed.failure_class == FailureClass::Conflict {
            return Ok(NextRetry::after(Duration::from_millis(100)));
        }
        if failed.failure_class == FailureClass::Rejected {
            return Ok(NextRetry::stop());
        }
        if page.html == "broken" { Err("no html".into()) } else { Ok(NextRetry::declared()) }
    }
}

impl Validator for Operator {
    type Primary = Page;

    fn validate(page: &Page) -> Result<Vec<Problem>> {
        match page.html.as_str() {
            "" => Ok(vec![Problem::at("spec.html", "it is empty"), Problem::new("so nothing is shown")]),
            "broken" => Err("can't say".into()),
            _ => Ok(Vec::new()),
        }
    }
}

impl Initializer for Operator {
    type Primary = Page;

    fn initialize(page: &Page) -> Result<()> {
        if page.html == "unready" { Err("not yet".into()) } else { memo::set(Lifetime::Run, "html", &page.html) }
    }
}

#[dependents]
impl Operator {
    fn service() -> Value {
        json!({ "kind": "Service" })
    }

    #[desired("config")]
    fn configmap(page: &Page) -> Result<Value, String> {
        if page.html.is_empty() { Err("no html".to_owned()) } else { Ok(json!({ "data": page.html })) }
    }

    fn html_text(page: &Page) -> String {
        page.html.clone()
    }
}

#[bulks]
impl Operator {
    fn letters(page: &Page) -> Vec<Value> {
        page.html.chars().map(|letter| json!({ "metadata": { "name": letter } })).collect()
    }

    #[desired_set("no-letters")]
    fn none(page: &Page) -> Result<Option<Value>, String> {
        if page.html.is_empty() { Err("no html".to_owned()) } else { Ok(None) }
    }

    fn misfit() -> [BTreeMap<(u8, u8), u8>; 1] {
        [BTreeMap::from([((1, 2), 3)])]
    }
}

#[matchers]
impl Operator {
    fn same_html(actual: &Page, desired: &Page) -> Match {
        Match::equal("html", &actual.html, &desired.html)
    }

    #[matcher("as-page")]
    fn like_the_page(actual: &Json, _desired: &Value, page: &Page) -> Result<Match> {
        Ok(Match::equal("html", &actual.parse::<Page>()?, page))
    }
}

#[conditions]
impl Operator {
    fn has_html(page: &Page) -> bool {
        !page.html.is_empty()
    }

    fn is_there(_page: &Page, dependent: &str) -> Result<Met> {
        Ok(Met::from(secondary(dependent)?.is_some()).detail(dependent))
    }
}

#[pollers]
impl Operator {
    fn themes() -> PrimaryThings {
        let one = PrimaryThings::new().of("n", "a", [json!({ "id": 1 }), json!({ "id": 2 })]);
        one.of(None, "b", [] as [Value; 0])
    }

    #[poller("broken")]
    fn no_json() -> PrimaryThings {
        PrimaryThings::new().of("n", "a", [BTreeMap::from([((1, 2), 3)])])
    }

    fn down() -> Result<PrimaryThings> {
        Err("no way".into())
    }
}

#[resource_pollers]
impl Operator {
    fn domains(page: &Page) -> Result<Vec<Value>> {
        if page.html.is_empty() { Err("no html".into()) } else { Ok(vec![json!({ "id": page.html })]) }
    }

    #[resource_poller("soon")]
    fn again() -> Things {
        Things::none().again(Duration::from_secs(2))
    }
}

#[receivers]
impl Operator {
    fn builds(request: &Request) -> Result<Received> {
        let build: Value = request.json()?;
        let name = build["page"].as_str().ok_or("no page")?;
        Ok(Received::new().present("n", name, &build).wake(None, "b").gone("n", name, "7"))
    }

    #[receiver("echo")]
    fn says(request: &Request) -> Received {
        let kind = request.get("X-Kind").unwrap_or("none");
        Received::new().status(200).text(format!("{} {kind} {}", request.path, request.body))
    }

    fn broken(_request: &Request) -> Received {
        Received::new().present("n", "a", BTreeMap::from([((1, 2), 3)]))
    }
}

#[filters]
impl Operator {
    fn shown(change: &Change) -> Result<bool> {
        Ok(!change.object::<Page>()?.html.is_empty())
    }

    #[filter("grows")]
    fn is_longer(change: &Change) -> Result<bool> {
        let before = change.before::<Page>()?.map_or(0, |page| page.html.len());
        Ok(change.object::<Page>()?.html.len() > before)
    }

    fn missed(change: &Change) -> bool {
        matches!(change, Change::Deleted { final_state_unknown: true, .. })
    }
}

#[mappers]
impl Operator {
    fn to_pages(page: &Page) -> Vec<String> {
        page.html.split_whitespace().map(str::to_owned).collect()
    }

    #[mapper("of")]
    fn one(page: &Page) -> Result<Keys> {
        if page.html.is_empty() { Err("no html".into()) } else { Ok(Keys::none().of("n", &page.html).named("b")) }
    }
}

#[secondary_mappers]
impl Operator {
    fn to_themes(page: &Page) -> Option<&'static str> {
        (!page.html.is_empty()).then_some("m/dark")
    }
}

crate::export!(Operator: Reconciler, Cleaner, ErrorHandler, RetryPolicy, Validator, Initializer, Dependents, Bulks, Matchers, Conditions, Pollers, ResourcePollers, Receivers, Filters, Mappers, SecondaryMappers);

/// A type whose names are known at run time only, beside one whose are not.
struct Open;

impl Dependents for Open {
    type Primary = Page;

    fn desired(name: &str, _: &Page) -> Result<Json> {
        Json::of(&name)
    }
}

#[test]
fn a_component_describes_the_names_that_it_was_built_with() {
    // LC-15
    let told: Vec<String> = Operator::entries()
        .into_iter()
        .map(|known| {
            assert_eq!(known.controller, None);
            known
                .names
                .map_or_else(|| known.exported.clone(), |names| format!("{}: {}", known.exported, names.join(" ")))
        })
        .collect();
    assert_eq!(
        told,
        [
            "reconciler",
            "cleaner",
            "error-handler",
            "retry-policy",
            "validator",
            "initializer",
            "dependent: service config html-text",
            "bulk: letters no-letters misfit",
            "matcher: same-html as-page",
            "condition: has-html is-there",
            "poller: themes broken down",
            "resource-poller: domains soon",
            "inbound: builds echo broken",
            "filter: shown grows missed",
            "mapper: to-pages of",
            "secondary-mapper: to-themes",
        ]
    );
    assert_eq!(Open::NAMES, None);
}

#[test]
fn a_bulk_is_all_objects_by_name_of_the_dependent() {
    // BD-1
    let set = |name: &str, html: &str| Adapter::<Operator>::desired_set(name.to_owned(), page(html));
    let named = |name: &str| format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
    assert_eq!(set("letters", "ab"), Ok(vec![named("a"), named("b")]));
    assert_eq!(set("letters", ""), Ok(vec![]));
    assert_eq!(set("no-letters", "ab"), Ok(vec![]));
    assert_eq!(set("no-letters", ""), Err("no html".to_owned()));
    assert_eq!(set("misfit", ""), Err("key must be a string".to_owned()));
    let unknown = "this component has no desired set for `x`; it has: letters, no-letters, misfit";
    assert_eq!(set("x", ""), Err(unknown.to_owned()));
}

#[test]
fn filters_see_the_object_as_it_is_and_was() {
    let accepts = |name: &str, change| Adapter::<Operator>::accepts(name.to_owned(), change);
    let updated = |before: &str, after: &str| {
        filter::Change::Updated(filter::ObjectUpdate { before: page(before), after: page(after) })
    };
    let deleted = |html: &str, final_state_unknown| {
        filter::Change::Deleted(filter::ObjectDeletion { last: page(html), final_state_unknown })
    };
    for (name, change, accepted) in [
        ("shown", filter::Change::Added(page("a")), true),
        ("shown", updated("a", ""), false),
        ("shown", deleted("a", false), true),
        ("grows", updated("a", "ab"), true),
        ("grows", updated("ab", "a"), false),
        ("grows", filter::Change::Added(page("a")), true),
        ("missed", deleted("a", true), true),
        ("missed", deleted("a", false), false),
    ] {
        assert_eq!(accepts(name, change.clone()), Ok(accepted), "{name}: {change:?}");
    }
    let unknown = "this component has no filter `x`; it has: shown, grows, missed";
    assert_eq!(accepts("x", filter::Change::Added(page("a"))), Err(unknown.to_owned()));
    assert!(accepts("shown", filter::Change::Added("{".to_owned())).is_err());
}

#[test]
fn mappers_answer_with_names_and_namespaces() {
    let to = |name: &str, html: &str| Adapter::<Operator>::to_primaries(name.to_owned(), page(html));
    let key = |namespace: Option<&str>, name: &str| ObjectKey {
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
    };
    assert_eq!(to("to-pages", "a n/b"), Ok(vec![key(None, "a"), key(Some("n"), "b")]));
    assert_eq!(to("to-pages", ""), Ok(vec![]));
    assert_eq!(to("of", "a"), Ok(vec![key(Some("n"), "a"), key(None, "b")]));
    assert_eq!(to("of", ""), Err("no html".to_owned()));
    assert_eq!(to("x", ""), Err("this component has no mapper `x`; it has: to-pages, of".to_owned()));
    let led = |name: &str, html: &str| Adapter::<Operator>::to_secondaries(name.to_owned(), page(html));
    assert_eq!(led("to-themes", "a"), Ok(vec![key(Some("m"), "dark")]));
    assert_eq!(led("to-themes", ""), Ok(vec![]));
    assert_eq!(led("x", ""), Err("this component has no secondary mapper `x`; it has: to-themes".to_owned()));
}

#[test]
fn an_answer_to_a_request_has_a_status_of_http() {
    let wrong = |status| Received::new().status(status).into_answer().map(|answer| answer.status);
    assert_eq!([200, 599].map(wrong), [Ok(200), Ok(599)]);
    for status in [0, 199, 600] {
        assert_eq!(wrong(status), Err(format!("the status {status} is not from 200 to 599").into()));
    }
}

#[test]
fn headers_of_one_name_are_one() {
    let pair = |name: &str, value: &str| Pair { name: name.to_owned(), value: value.to_owned() };
    let headers = vec![pair("x-kind", "push"), pair("x-id", "7"), pair("x-kind", "more")];
    let request = Request::from(InboundRequest { path: String::new(), headers, body: String::new() });
    assert_eq!(request, Request::new("").header("X-Kind", "push").header("x-id", "7").header("x-kind", "more"));
    assert_eq!((request.get("X-Kind"), request.headers.len()), (Some("push, more"), 2));
}

#[test]
fn a_detail_or_state_that_is_none_is_not_told() {
    assert_eq!(Met::from(true).detail(None::<Value>), Met::from(true));
    assert_eq!(crate::Created::new(7).and_then(|created| created.state(None::<Value>)), crate::Created::new(7));
}

#[test]
fn an_empty_namespace_is_none() {
    let none = ObjectKey { namespace: None, name: "a".to_owned() };
    assert_eq!(Keys::from(vec!["/a"]).of("", "a"), Keys(vec![none.clone(), none.clone()]));
    let answer = Received::new().wake("", "a").into_answer().unwrap();
    assert_eq!(answer.events[0].primary, none);
    let things = PrimaryThings::new().of("", "a", [1]);
    assert_eq!(crate::glue::by_primary(things).unwrap()[0].primary, none);
    assert_eq!(ObjectRef::new("v1", "Node", "a").in_namespace(""), ObjectRef::new("v1", "Node", "a"));
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "a", "namespace": "" } });
    assert_eq!(ObjectRef::of(&node), Ok(ObjectRef::new("v1", "Node", "a")));
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "a" } });
    with(Run::new().unrelated("nodes", node.clone()), || {
        assert_eq!(cache::source("nodes").named::<Value>("", "a"), Ok(Some(node)));
    });
}

#[test]
fn pollers_answer_with_things_by_name_of_the_source() {
    let all = |name: &str| Adapter::<Operator>::poll(name.to_owned());
    let of = |namespace: Option<&str>, name: &str, resources: &[&str]| PrimaryResources {
        primary: ObjectKey { namespace: namespace.map(str::to_owned), name: name.to_owned() },
        resources: resources.iter().map(|&text| text.to_owned()).collect(),
    };
    assert_eq!(all("themes"), Ok(vec![of(Some("n"), "a", &[r#"{"id":1}"#, r#"{"id":2}"#]), of(None, "b", &[])]));
    assert_eq!(all("broken"), Err("key must be a string".to_owned()));
    assert_eq!(all("down"), Err("no way".to_owned()));
    assert_eq!(all("x"), Err("this component has no poller of `x`; it has: themes, broken, down".to_owned()));
    let one = |name: &str, html: &str| Adapter::<Operator>::poll_one(name.to_owned(), page(html));
    let answer = |things: &[&str], again_ms| {
        Ok(PollResult { resources: things.iter().map(|&text| text.to_owned()).collect(), again_ms })
    };
    assert_eq!(one("domains", "x"), answer(&[r#"{"id":"x"}"#], None));
    assert_eq!(one("domains", ""), Err("no html".to_owned()));
    assert_eq!(one("soon", ""), answer(&[], Some(2000)));
    assert_eq!(one("x", ""), Err("this component has no resource poller of `x`; it has: domains, soon".to_owned()));
}

#[test]
fn receivers_say_what_a_request_says_and_what_it_is_answered_with() {
    let ask = |name: &str, request: &Request| {
        let Request { path, headers, body } = request.clone();
        let headers = headers.into_iter().map(|(name, value)| Pair { name, value }).collect();
        let answer = Adapter::<Operator>::receive(name.to_owned(), InboundRequest { path, headers, body });
        answer.map(|InboundAnswer { status, body, events }| (status, body, events))
    };
    let event = |namespace: Option<&str>, name: &str, learned| SourceEvent {
        primary: ObjectKey { namespace: namespace.map(str::to_owned), name: name.to_owned() },
        learned,
    };
    let learned = vec![
        event(Some("n"), "a", Learned::Present(r#"{"id":1,"page":"a"}"#.to_owned())),
        event(None, "b", Learned::Wake),
        event(Some("n"), "a", Learned::Gone("7".to_owned())),
    ];
    assert_eq!(ask("builds", &Request::new(r#"{"page":"a","id":1}"#)), Ok((202, String::new(), learned)));
    assert_eq!(ask("builds", &Request::new("{}")), Err("no page".to_owned()));
    let echoed = Request::new("body").path("/x?y").header("X-Kind", "push");
    assert_eq!(ask("echo", &echoed), Ok((200, "/x?y push body".to_owned(), vec![])));
    assert_eq!(ask("broken", &Request::default()), Err("key must be a string".to_owned()));
    let unknown = "this component has no receiver of `x`; it has: builds, echo, broken";
    assert_eq!(ask("x", &Request::default()), Err(unknown.to_owned()));
}

#[test]
fn things_of_the_primary_are_read_like_secondaries() {
    let run = Run::new().thing("domains", "a", json!({ "id": "a" })).thing("domains", "7", json!({ "id": 7 }));
    with(run, || {
        assert_eq!(secondaries("domains"), Ok(vec![json!({ "id": "a" }), json!({ "id": 7 })]));
        assert_eq!(cache::source("domains").named(None, "7"), Ok(Some(json!({ "id": 7 }))));
        assert_eq!(cache::source("domains").named::<Value>(None, "8"), Ok(None));
        assert_eq!(secondaries("others"), Ok(vec![]));
        assert_eq!(secondary("domains").unwrap_err().reason(), Some(Reason::Ambiguous));
    });
}

fn page(html: &str) -> String {
    json!({ "html": html }).to_string()
}

fn config_map(name: &str, label: &str) -> Value {
    let metadata = json!({ "name": name, "namespace": "web", "labels": { "app": label } });
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { "a": "b" } })
}

// === what the daemon gets ===

#[test]
fn an_update_becomes_what_the_contract_wants() {
    let update = |update, reschedule_ms| Ok(UpdateControl { update, reschedule_ms });
    let table = [
        ("nothing", update(PrimaryUpdate::Nothing, Some(1500))),
        ("object", update(PrimaryUpdate::Object(r#"{"metadata":{"resourceVersion":"7"},"spec":1}"#.into()), None)),
        ("null", update(PrimaryUpdate::Object(r#"{"metadata":{"resourceVersion":"7"}}"#.into()), None)),
        ("odd", Err("[1] is no object".to_owned())),
        ("no object", Err(r#""a" is no object"#.to_owned())),
        ("both", update(PrimaryUpdate::ObjectAndStatus(r#"{"spec":1,"status":{"ok":true}}"#.into()), None)),
        (
            "locked",
            update(PrimaryUpdate::Status(r#"{"metadata":{"resourceVersion":"7"},"status":{"ok":true}}"#.into()), None),
        ),
        ("status", update(PrimaryUpdate::Status(r#"{"status":{"ok":true}}"#.into()), Some(u32::MAX))),
        ("fail", Err("no".to_owned())),
        ("silent", Err("an error without a message".to_owned())),
        ("no status", update(PrimaryUpdate::Nothing, None)),
        ("no object or status", update(PrimaryUpdate::Nothing, None)),
        ("status alone", update(PrimaryUpdate::Status(r#"{"status":{"ok":true}}"#.into()), None)),
        ("object alone", update(PrimaryUpdate::Object(r#"{"spec":1}"#.into()), None)),
        ("map", Err("key must be a string".to_owned())),
    ];
    for (html, expected) in table {
        assert_eq!(Adapter::<Operator>::reconcile(page(html)), expected, "{html}");
    }
}

#[test]
fn what_is_wrong_with_a_primary_is_told_by_field() {
    let problem = |field: Option<&str>, message: &str| validator::Problem {
        field: field.map(str::to_owned),
        message: message.to_owned(),
    };
    with(Run::new(), || {
        let validate = |html| Adapter::<Operator>::validate(page(html), None);
        let found = validate("").unwrap();
        assert_eq!(found, [problem(Some("spec.html"), "it is empty"), problem(None, "so nothing is shown")]);
        assert_eq!(validate("<b>"), Ok(Vec::new()));
        assert_eq!(validate("broken"), Err("can't say".to_owned()));
    });
}

#[test]
fn what_prepares_a_run_hands_values_to_the_calls_that_follow() {
    with(Run::new(), || {
        assert_eq!(Adapter::<Operator>::initialize(page("unready")), Err("not yet".to_owned()));
        assert_eq!(Adapter::<Operator>::initialize(page("<b>")), Ok(()));
        assert_eq!(memo::get(Lifetime::Run, "html"), Ok(Some("<b>".to_owned())));
    });
}

#[test]
fn a_delete_becomes_what_the_contract_wants() {
    let table = [
        ("keep", DeleteControl::KeepFinalizer(None)),
        ("later", DeleteControl::KeepFinalizer(Some(2000))),
        ("", DeleteControl::RemoveFinalizer),
    ];
    for (html, expected) in table {
        assert_eq!(Adapter::<Operator>::cleanup(page(html)), Ok(expected), "{html}");
    }
}

#[test]
fn an_error_control_becomes_what_the_contract_wants() {
    let handled = |status: Option<&str>, next| {
        error_handler::ErrorControl::Handled(ErrorHandling { status: status.map(str::to_owned), next })
    };
    let status = Some(r#"{"status":{"error":"no"}}"#);
    let table = [
        ("status", handled(status, NextStep::Retry)),
        ("stop", handled(status, NextStep::Stop)),
        ("later", handled(None, NextStep::RescheduleMs(2000))),
        ("slow", handled(status, NextStep::RetryAfterMs(3000))),
        ("quiet", handled(None, NextStep::Retry)),
        ("wordless", handled(None, NextStep::Stop)),
        ("", error_handler::ErrorControl::Unhandled),
    ];
    let failure = Failure {
        origin: Origin::Reconciler,
        message: "no".to_owned(),
        refused: None,
        dependents: vec![],
        retry: Retry { attempt: 0, last: false },
    };
    assert_eq!(failure.to_string(), "no");
    for (html, expected) in table {
        let answer = Adapter::<Operator>::handle_error(page(html), failure.clone());
        assert_eq!(answer, Ok(expected), "{html}");
    }
    let torn = Adapter::<Operator>::handle_error(page("torn"), failure);
    assert_eq!(torn, Err("stop, retry_after and reschedule exclude each other".to_owned()));
}

#[test]
fn a_next_retry_becomes_what_the_contract_wants() {
    // RT-5
    let declared = || Ok(retry_policy::NextRetry::Declared);
    for (failure_class, html, expected) in [
        (FailureClass::Conflict, "", Ok(retry_policy::NextRetry::AfterMs(100))),
        (FailureClass::Rejected, "", Ok(retry_policy::NextRetry::Stop)),
        (FailureClass::OutOfMemory, "", declared()),
        (FailureClass::Returned, "broken", Err("no html".to_owned())),
    ] {
        let retry = Retry { attempt: 1, last: false };
        let failed = FailedRun { failure_class, message: "no".to_owned(), retry };
        assert_eq!(Adapter::<Operator>::decide_retry(page(html), failed), expected);
    }
}

#[test]
fn a_dependent_is_found_by_its_name() {
    let unknown = "this component has no desired state for `configmap`; it has: service, config, html-text";
    let table = [
        ("service", "x", Ok(r#"{"kind":"Service"}"#)),
        ("config", "x", Ok(r#"{"data":"x"}"#)),
        ("config", "", Err("no html")),
        ("html-text", "x", Ok("\"x\"")),
        ("configmap", "x", Err(unknown)),
    ];
    for (name, html, expected) in table {
        let desired = Adapter::<Operator>::desired(name.to_owned(), page(html));
        assert_eq!(desired.as_deref().map_err(String::as_str), expected, "{name}");
    }
}

#[test]
fn a_matcher_is_found_by_its_name_and_given_types() {
    let unknown = "this component has no matcher `same_html`; it has: same-html, as-page";
    let table = [
        ("same-html", page("a"), page("a"), Ok(Match::Matches)),
        ("same-html", page("a"), page("b"), Ok(Match::Differs("html".to_owned()))),
        ("same-html", page("a"), "{}".to_owned(), Err("not a valid Page: missing field `html` at line 1 column 2")),
        ("as-page", page("<html/>"), "1".to_owned(), Ok(Match::Matches)),
        ("same_html", page("a"), page("a"), Err(unknown)),
    ];
    for (name, actual, desired, expected) in table {
        let answer = Adapter::<Operator>::match_(name.to_owned(), actual, desired, PAGE.to_owned());
        assert_eq!(answer.as_ref().map_err(String::as_str), expected.as_ref().map_err(|text| *text), "{name}");
    }
}

#[test]
fn a_condition_is_found_by_its_name() {
    let is_met = |name: &str| Adapter::<Operator>::is_met(name.to_owned(), "service".to_owned(), PAGE.to_owned());
    let run = Run::new().secondary("service", json!({}));
    with(run, || {
        assert_eq!(is_met("has-html"), Ok(ConditionResult { met: true, detail: None }));
        assert_eq!(is_met("is-there"), Ok(ConditionResult { met: true, detail: Some("\"service\"".to_owned()) }));
        let unknown = "this component has no condition `x`; it has: has-html, is-there";
        assert_eq!(is_met("x"), Err(unknown.to_owned()));
    });
}

#[test]
fn a_primary_that_does_not_fit_says_what_is_wrong() {
    let answer = Adapter::<Operator>::reconcile("{}".to_owned());
    assert_eq!(answer, Err("the primary: not a valid Page: missing field `html` at line 1 column 2".to_owned()));
}

#[test]
fn a_primary_is_read_once_for_each_text_and_type() {
    let first = primary::<Page>(PAGE).unwrap();
    let as_value = primary::<Value>(PAGE).unwrap();
    assert!(std::rc::Rc::ptr_eq(&first, &primary::<Page>(PAGE).unwrap()));
    assert!(std::rc::Rc::ptr_eq(&as_value, &primary::<Value>(PAGE).unwrap()));
    let other = primary::<Page>(&page("other")).unwrap();
    assert_eq!(other.html, "other");
    let again = primary::<Page>(PAGE).unwrap();
    assert_eq!(again.html, "<html/>");
    assert!(!std::rc::Rc::ptr_eq(&first, &again));
}

// === errors ===

#[test]
fn anything_that_can_be_shown_becomes_an_error() {
    let errors: [(Error, &str); 4] = [
        ("text".into(), "text"),
        (format!("{} texts", 2).into(), "2 texts"),
        (serde_json::from_str::<u8>("x").unwrap_err().into(), "expected value at line 1 column 1"),
        ("x".parse::<u8>().unwrap_err().into(), "invalid digit found in string"),
    ];
    for (error, message) in errors {
        assert_eq!((error.message(), error.reason(), error.code()), (message, None, None));
    }
}

#[test]
fn a_refused_call_keeps_reason_and_code_through_context() {
    let refused = CallError { reason: Reason::Conflict, code: 409, message: "somebody was faster".to_owned() };
    let error = Error::of_call(refused).context("theme");
    assert_eq!(error.message(), "theme: somebody was faster");
    assert_eq!((error.reason(), error.code()), (Some(Reason::Conflict), Some(409)));
    assert_eq!(format!("{error:?}"), "theme: somebody was faster (CallReason::Conflict, 409)");
}

// === the double ===

/// Four config maps, three of them the primary's, and one primary.
fn caches() -> Run {
    Run::new()
        .secondary("configs", config_map("b", "web"))
        .secondary("configs", config_map("a", "web"))
        .secondary("configs", config_map("c", "db"))
        .unrelated("configs", config_map("theme", "web"))
        .secondary("deployment", json!({ "kind": "Deployment" }))
        .primary(json!({ "metadata": { "name": "one" } }))
        .indexed("by-theme", "dark", "theme")
}

#[test]
fn the_cache_answers_by_place_and_selection() {
    let configs = || cache::source("configs");
    let table = [
        (configs().related(), "a b c"),
        (configs().everywhere(), "a b c theme"),
        (configs().related().limit(2), "a b c"),
        (configs().related().labels("app=web"), "a b"),
        (cache::kind("v1", "ConfigMap").in_namespace("web").labels("app!=web"), "c"),
        (configs().everywhere().labels("app in (db, x), !old"), "c"),
        (configs().everywhere().labels("app notin (db,x),app"), "a b theme"),
        (configs().everywhere().labels("tier!=front"), "a b c theme"),
        (configs().everywhere().labels("tier"), ""),
        (configs().indexed("by-theme", "dark"), "theme"),
        (configs().indexed("by-theme", "light"), ""),
        (cache::primaries().everywhere(), "one"),
        (cache::source("other").everywhere(), ""),
    ];
    with(caches(), || {
        for (query, expected) in table {
            let objects: Vec<Value> = query.clone().all().unwrap();
            let names: Vec<_> = objects.iter().map(|o| o["metadata"]["name"].as_str().unwrap()).collect();
            assert_eq!(names.join(" "), expected, "{query:?}");
        }
    });
}

#[test]
fn one_object_is_found_by_relation_or_name() {
    let named = |namespace, name| cache::source("configs").named::<Json>(namespace, name).unwrap();
    with(caches(), || {
        assert_eq!(secondary("deployment").unwrap(), Some(json!({ "kind": "Deployment" })));
        assert_eq!(secondary("nothing").unwrap(), None);
        assert_eq!(secondaries("configs").unwrap().len(), 3);
        assert!(named("web", "theme").is_some());
        assert_eq!(named("other", "theme"), None);
        let page = cache::source("configs").related().limit(2).page::<Json>().unwrap();
        assert_eq!((page.items.len(), page.next.as_deref()), (2, Some("2")));
    });
}

#[test]
fn a_source_that_the_controller_does_not_have_is_refused_if_the_test_says_which_it_has() {
    with(Run::new().source("settings").secondary("configs", config_map("a", "web")), || {
        assert_eq!(secondary("settings"), Ok(None));
        assert!(secondary("configs").is_ok_and(|found| found.is_some()));
        let asked = cache::source("setings");
        for refused in [
            secondary("setings").map(|_| ()),
            secondaries("setings").map(|_| ()),
            asked.named::<Value>(None, "a").map(|_| ()),
        ] {
            let error = refused.unwrap_err();
            assert_eq!(error.reason(), Some(Reason::Missing));
            let text = r#"no source is called "setings"; there are: configs, settings"#;
            assert!(error.message().contains(text), "{}", error.message());
        }
    });
}

#[test]
fn a_wrong_question_says_what_is_wrong() {
    with(caches(), || {
        assert_eq!(secondary("configs").unwrap_err().reason(), Some(Reason::Ambiguous));
        let misplaced = cache::primaries().related().all::<Value>().unwrap_err();
        assert_eq!(misplaced.reason(), Some(Reason::Misplaced));
        let invalid = cache::source("configs").related().labels("a b").all::<Value>().unwrap_err();
        assert_eq!(invalid.reason(), Some(Reason::Invalid));
    });
}

#[test]
fn fields_are_cut_to_what_was_asked_for() {
    with(Run::new().secondary("configs", config_map("a", "web")), || {
        let objects: Vec<Value> = cache::source("configs").related().fields(["/metadata/labels/app"]).all().unwrap();
        let metadata = json!({ "name": "a", "namespace": "web", "labels": { "app": "web" } });
        assert_eq!(objects, [json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata })]);
    });
}

#[test]
fn writes_are_recorded_and_seen_by_later_reads() {
    let target = ObjectRef::new("v1", "ConfigMap", "a").in_namespace("web");
    let run = Run::new().secondary("configs", config_map("a", "old"));
    let recorded = with(run, || {
        operations::apply(&config_map("a", "new"))?;
        assert_eq!(secondary("configs")?, Some(config_map("a", "new")));
        let patched = operations::merge_patch(&target, &json!({ "data": { "a": null, "c": "d" } }))?;
        assert_eq!(patched.parse::<Value>()?["data"], json!({ "c": "d" }));
        let patch = json!([{ "op": "add", "path": "/data/e", "value": "f" }]);
        Options::new().mode(Mode::Plain).json_patch(&target, &patch)?;
        assert_eq!(secondary("configs")?.unwrap()["data"], json!({ "c": "d", "e": "f" }));
        Removal::new().grace_seconds(0).remove(&target)?;
        assert_eq!(secondary("configs")?, None);
        operations::create(&config_map("a", "new"))?;
        let again = operations::create(&config_map("a", "new")).unwrap_err();
        assert_eq!((again.reason(), again.code()), (Some(Reason::Conflict), Some(409)));
        Options::new().subresource("status").update(&config_map("a", "new"))?;
        operations::edit(&config_map("a", "new"))
    });
    recorded.answer.unwrap();
    let seen: Vec<_> = recorded
        .writes
        .iter()
        .map(|write| (write.verb, write.mode, write.subresource.as_deref(), write.target == target))
        .collect();
    assert_eq!(
        seen,
        [
            (Verb::Apply, Mode::Usual, None, true),
            (Verb::MergePatch, Mode::Usual, None, true),
            (Verb::JsonPatch, Mode::Plain, None, true),
            (Verb::Remove, Mode::Usual, None, true),
            (Verb::Create, Mode::Usual, None, true),
            (Verb::Create, Mode::Usual, None, true),
            (Verb::Update, Mode::Usual, Some("status"), true),
            (Verb::Edit, Mode::Usual, None, true),
        ]
    );
}

#[test]
fn refused_writes_fail_with_their_reason_and_are_not_recorded() {
    let run = Run::new().refuse(Verb::Apply, Reason::Denied, "not in the manifest");
    let recorded = with(run, || operations::apply(&config_map("a", "x")));
    let error = recorded.answer.unwrap_err();
    assert_eq!((error.message(), error.reason(), error.code()), ("not in the manifest", Some(Reason::Denied), None));
    assert_eq!(recorded.writes, []);
}

#[test]
fn finalizers_are_those_of_the_primary() {
    let primary = json!({ "apiVersion": "v1", "kind": "Page", "metadata": { "name": "a" } });
    with(Run::new().primary(primary), || {
        let with_one = operations::add_finalizer("x/y").unwrap().parse::<Value>().unwrap();
        assert_eq!(with_one["metadata"]["finalizers"], json!(["x/y"]));
        let without = operations::remove_finalizer("x/y").unwrap().parse::<Value>().unwrap();
        assert_eq!(without["metadata"]["finalizers"], json!([]));
    });
    let error = with(Run::new(), || operations::add_finalizer(None)).answer.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::Missing));
}

#[test]
fn comparing_tolerates_additions_and_what_is_ignored() {
    let (actual, desired) = (json!({ "a": 1, "b": 2, "status": { "c": 3 } }), json!({ "a": 1 }));
    let table = [
        (By::Generic, json!({ "a": 1 }), vec![], true),
        (By::Generic, json!({ "a": 2 }), vec![], false),
        (By::Generic, json!({ "a": 2 }), vec!["/a"], true),
        (By::Equality, desired, vec![], false),
        (By::Equality, json!({ "a": 1 }), vec!["/b", "/status"], true),
        (By::StatusOnly, json!({ "a": 2, "status": { "c": 3 } }), vec![], true),
        (By::StatusOnly, json!({ "status": { "c": 4 } }), vec![], false),
    ];
    for (by, desired, ignore, matches) in table {
        let answer = operations::compare(by, &actual, &desired, &ignore).unwrap();
        assert_eq!(answer == Match::Matches, matches, "{by:?} {desired} {ignore:?}");
    }
}

#[test]
fn memos_last_from_call_to_call() {
    let first = with(Run::new(), || memo::set(Lifetime::Primary, "seen", &3));
    first.answer.unwrap();
    let run = first.memos.into_iter().fold(Run::new(), |run, ((lifetime, key), value)| run.memo(lifetime, &key, value));
    with(run, || {
        assert_eq!(memo::get::<u8>(Lifetime::Primary, "seen").unwrap(), Some(3));
        assert_eq!(memo::get::<u8>(Lifetime::Run, "seen").unwrap(), None);
        memo::remove(Lifetime::Primary, "seen").unwrap();
        assert_eq!(memo::get::<u8>(Lifetime::Primary, "seen").unwrap(), None);
    });
}

#[test]
fn workflows_answer_what_the_test_says() {
    let node = NodeResult {
        name: "pod".to_owned(),
        done: vec![ObjectResult { key: "pod".to_owned(), operation: Operation::Created }],
        conditions: vec![],
        failed: None,
    };
    let result = WorkflowResult { nodes: vec![node.clone()], complete: true };
    let run = Run::new().workflow("preview", result.clone()).workflow(None, result.clone()).dependent(node.clone());
    with(run, || {
        assert_eq!(workflow::managed().last_result(), None);
        assert_eq!(workflow::managed().reconcile(), Ok(result.clone()));
        assert_eq!(workflow::managed().last_result(), Some(result.clone()));
        assert_eq!(workflow::standalone("preview").cleanup(), Ok(result));
        assert_eq!(workflow::dependent("pod").reconcile(), Ok(node.clone()));
        assert_eq!(workflow::dependent("pod").remove(), Ok(node));
        let error = workflow::standalone("other").reconcile().unwrap_err();
        assert_eq!(error.reason(), Some(Reason::Missing));
    });
}

#[test]
fn the_run_is_as_the_test_says() {
    let run = Run::new()
        .controller("pages")
        .retry(2, true)
        .next_imminent()
        .primary_deleted()
        .config(json!({ "title": "x" }))
        .settings(json!({ "controller": { "name": "pages" } }))
        .now("2026-02-01T00:00:00Z", 1.5);
    with(run, || {
        let run = context::run().unwrap();
        assert_eq!((run.controller.as_str(), run.primary_deleted), ("pages", true));
        assert_eq!(context::retry(), Some(Retry { attempt: 2, last: true }));
        assert!(context::next_imminent());
        assert_eq!(context::time_left(), Duration::from_secs(5));
        assert_eq!(config::get::<Value>().unwrap(), json!({ "title": "x" }));
        assert_eq!(context::settings::<Value>().unwrap(), json!({ "controller": { "name": "pages" } }));
        assert_eq!((system::now().as_str(), system::now_ms()), ("2026-02-01T00:00:00Z", 1.5));
        assert_ne!(system::uuid(), system::uuid());
        assert_eq!([0, 3, 4096, 10_000].map(|len| system::random_bytes(len).len()), [0, 3, 4096, 10_000]);
    });
    assert_eq!(context::retry(), None, "the run is over");
}

#[test]
fn a_call_beside_all_runs_finds_its_controller_in_the_settings() {
    let run = || Run::new().controller("pages").settings(json!({ "controller": { "name": "themes" } }));
    let called = |run| with(run, || (context::run().is_some(), crate::glue::controller())).answer;
    assert_eq!(called(run()), (true, "pages".to_owned()));
    assert_eq!(called(run().beside()), (false, "themes".to_owned()));
}

#[test]
fn what_is_expected_is_checked_and_set() {
    // XP-1, XP-2, XP-3
    let timeout = Duration::from_secs(1);
    let (yes, no) = (|| Ok(true), || Ok(false));
    let recorded = with(Run::new(), || {
        assert_eq!(expectations::check("ready", yes), Ok(None));
        assert_eq!(expectations::check_and_set("ready", timeout, yes), Ok(false));
        assert_eq!(expectations::pending(), None);
        assert_eq!(expectations::check_and_set("ready", timeout, no), Ok(true));
        assert_eq!(expectations::check("gone", yes), Ok(None));
        assert_eq!(expectations::check("ready", no), Ok(Some(Outcome::Pending)));
        assert_eq!(expectations::check("ready", || Err("unknown".into())), Err("unknown".into()));
        assert_eq!(expectations::check("ready", yes), Ok(Some(Outcome::Fulfilled)));
        assert!(!expectations::clear("ready"));
        let refused = expectations::expect("", timeout).unwrap_err();
        assert_eq!(refused.reason(), Some(Reason::Invalid));
        expectations::expect("gone", timeout)
    });
    assert_eq!(recorded.expectation, Some(Expectation { name: "gone".to_owned(), timed_out: false }));
    let recorded = with(Run::new().expectation("ready", true), || {
        assert_eq!(expectations::check("ready", no), Ok(Some(Outcome::TimedOut)));
        expectations::clear("ready")
    });
    assert_eq!((recorded.answer, recorded.expectation), (true, None));
}

#[test]
fn a_source_that_is_registered_is_there_until_it_is_deregistered() {
    // ES-4
    let declared = |kind: &str| json!({ "informer": { "apiVersion": "v1", "kind": kind } });
    let recorded = with(Run::new().registered("keys", declared("Secret")), || {
        assert_eq!(sources::register("keys", &declared("ConfigMap")), Ok(false));
        assert_eq!(sources::register("maps", &declared("ConfigMap")), Ok(true));
        for _ in 0..2 {
            assert_eq!(sources::deregister("keys"), Ok(()), "what is not there is no error");
        }
        assert_eq!(sources::register("keys", &declared("Pod")), Ok(true));
        sources::deregister("maps")
    });
    assert_eq!(recorded.answer, Ok(()));
    assert_eq!(recorded.registered, BTreeMap::from([("keys".to_owned(), declared("Pod"))]));
}

#[test]
fn log_lines_and_events_are_recorded() {
    let recorded = with(Run::new(), || {
        let page = "hello";
        crate::warn!("not so good", page, replicas = 1 + 1);
        recorder::normal("Published", "it is online");
        recorder::Event::warning("NoTheme", "later").key("theme").label("a", "b").publish();
    });
    let fields = BTreeMap::from([("page", "hello"), ("replicas", "2")]);
    let fields = fields.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    assert_eq!(recorded.logs, [Line { level: Level::Warn, message: "not so good".to_owned(), fields }]);
    let events: Vec<_> = recorded.events.iter().map(|event| (event.reason.as_str(), event.key.as_deref())).collect();
    assert_eq!(events, [("Published", None), ("NoTheme", Some("theme"))]);
}
