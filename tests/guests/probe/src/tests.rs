//! The language of the spec, as values. Traps and endless loops are for the daemon's tests.
#![allow(
    clippy::needless_pass_by_value,
    clippy::unnecessary_wraps,
    reason = "values are written in place, and compared whole"
)]

use capstan_guest::context::Retry;
use capstan_guest::operations::Mode;
use capstan_guest::test::{self, Run, Verb};
use capstan_guest::{Origin, Reason};

use super::*;

fn probe(spec: Value) -> Probe {
    let metadata = json!({ "name": "p", "namespace": "web", "generation": 4 });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

fn reconcile(run: Run, reconcile: Value) -> test::Recorded<Result<Update>> {
    let probe = probe(json!({ "reconcile": reconcile }));
    test::with(run, || Prober::reconcile(&probe))
}

/// Runs steps and returns the status that they lead to.
fn seen(run: Run, steps: Value) -> Result<Update> {
    reconcile(run, json!({ "do": steps })).answer
}

fn status(status: Value) -> Result<Update> {
    Ok(Update::status(status))
}

fn config_map(data: &str) -> Value {
    let metadata = json!({ "name": "cm", "namespace": "web" });
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { "a": data } })
}

#[test]
fn an_empty_spec_does_nothing() {
    assert_eq!(reconcile(Run::new(), json!({})).answer, Ok(Update::nothing()));
}

#[test]
fn the_answer_is_what_the_spec_says() {
    let second = Duration::from_secs(1);
    let table = [
        (json!({ "status": { "a": 1 } }), Update::status(json!({ "a": 1, "observedGeneration": 4 }))),
        (json!({ "reschedule": 1000 }), Update::nothing().reschedule(second)),
        (json!({ "object": { "spec": 1 }, "onlyAt": "7" }), Update::object(json!({ "spec": 1 })).only_at("7")),
        (
            json!({ "object": { "spec": 1 }, "status": {} }),
            Update::object_and_status(json!({ "spec": 1 }), json!({ "observedGeneration": 4 })),
        ),
        (json!({ "badJson": true }), Update::unchecked_status(Json::unchecked(r#"{"status": "#))),
        (
            json!({ "otherName": "q" }),
            Update::unchecked_status(Json::unchecked(r#"{"metadata":{"name":"q"},"status":{}}"#)),
        ),
    ];
    for (asked, expected) in table {
        assert_eq!(reconcile(Run::new(), asked.clone()).answer, Ok(expected), "{asked}");
    }
}

#[test]
fn the_primary_is_answered_with_a_change() {
    let asked = json!({ "change": { "metadata": { "labels": { "a": "b" }, "generation": null } }, "onlyAt": "given" });
    let mut expected = probe(json!({ "reconcile": asked })).whole;
    expected["metadata"]["labels"] = json!({ "a": "b" });
    expected["metadata"].as_object_mut().unwrap().remove("generation");
    // It was received without a version.
    assert_eq!(reconcile(Run::new(), asked).answer, Ok(Update::object(expected).only_at("given")));
}

#[test]
fn a_primary_of_another_kind_has_its_spec_in_an_annotation() {
    let spec = json!({ "reconcile": { "status": { "a": 1 } } }).to_string();
    let metadata = json!({ "name": "s", "annotations": { "test.capstan.dev/spec": spec } });
    let service = serde_json::from_value(json!({ "metadata": metadata, "spec": { "reconcile": 1 } })).unwrap();
    let expected = Update::status(json!({ "a": 1, "observedGeneration": null }));
    assert_eq!(test::with(Run::new(), || Prober::reconcile(&service)).answer, Ok(expected));
}

#[test]
fn runs_take_turns_and_the_last_stays() {
    let turns = json!({ "turns": [{ "reschedule": 1000 }, { "status": { "a": 1 } }] });
    let first = Ok(Update::nothing().reschedule(Duration::from_secs(1)));
    let second = status(json!({ "a": 1, "observedGeneration": 4 }));
    let mut run = Run::new();
    for expected in [first, second.clone(), second] {
        let recorded = reconcile(run, turns.clone());
        assert_eq!(recorded.answer, expected);
        run = recorded.memos.into_iter().fold(Run::new(), |run, ((life, key), value)| run.memo(life, &key, value));
    }
}

#[test]
fn a_typo_is_an_error() {
    let table = [
        (json!({ "stats": {} }), "unknown field `stats`"),
        (json!({ "do": "tarp" }), "unknown variant `tarp`"),
        (json!({ "do": { "write": { "verb": "apply", "objct": {} } } }), "unknown field `objct`"),
    ];
    for (asked, text) in table {
        let error = serde_json::from_value::<Reconcile>(asked).err().unwrap().to_string();
        assert!(error.starts_with(text), "{error}");
    }
}

#[test]
fn failing_stops_after_so_many_retries() {
    let steps = json!([{ "failTimes": 2 }, { "see": ["retry"] }]);
    let error = |attempt| Err(format!("fails on purpose, attempt {attempt}").into());
    assert_eq!(seen(Run::new(), steps.clone()), error(0));
    assert_eq!(seen(Run::new().retry(1, false), steps.clone()), error(1));
    let expected = json!({ "retry": { "attempt": 2, "last": true }, "observedGeneration": 4 });
    assert_eq!(seen(Run::new().retry(2, true), steps), status(expected));
    assert_eq!(seen(Run::new(), json!({ "fail": "so be it" })), Err("so be it".into()));
}

#[test]
fn writes_carry_their_fine_print() {
    let steps = json!({ "write": { "verb": "apply", "object": config_map("x"), "mode": "force-filter", "subresource": "status" } });
    let recorded = reconcile(Run::new(), json!({ "do": steps }));
    assert_eq!(recorded.answer, status(json!({ "write": "cm", "observedGeneration": 4 })));
    let write = recorded.writes.into_iter().next().unwrap();
    assert_eq!(
        (write.verb, write.mode, write.subresource.as_deref()),
        (Verb::Apply, Mode::ForceFilter, Some("status"))
    );
    assert_eq!(write.body, config_map("x"));
}

#[test]
fn a_refusal_fails_the_run_or_is_kept() {
    let run = || Run::new().refuse(Verb::Apply, Reason::Denied, "not in the manifest");
    let write = json!({ "verb": "apply", "object": config_map("x") });
    let error = seen(run(), json!({ "write": write })).unwrap_err();
    assert_eq!((error.message(), error.reason()), ("not in the manifest", Some(Reason::Denied)));
    let kept = json!({ "refused": "denied", "code": null, "message": "not in the manifest" });
    let answer = seen(run(), json!({ "write": write, "mayFail": true, "as": "forbidden" }));
    assert_eq!(answer, status(json!({ "forbidden": kept, "observedGeneration": 4 })));
}

#[test]
fn reads_show_names_or_the_asked_fields() {
    let run = || Run::new().secondary("configs", config_map("x"));
    let table = [
        (json!({ "read": { "in": { "source": "configs" }, "select": "one" } }), json!("cm")),
        (json!({ "read": { "in": { "source": "other" }, "select": "one" } }), Value::Null),
        (
            json!({ "read": { "in": { "kind": { "apiVersion": "v1", "kind": "ConfigMap" } }, "select": "everywhere" } }),
            json!(["cm"]),
        ),
        (
            json!({ "read": { "in": { "source": "configs" }, "select": "related", "limit": 1 }, "show": ["/data/a"] }),
            json!([{ "/data/a": "x" }]),
        ),
        (
            json!({ "read": { "in": { "source": "configs" }, "select": { "named": { "namespace": "web", "name": "cm" } } } }),
            json!("cm"),
        ),
    ];
    for (step, expected) in table {
        let answer = seen(run(), step.clone());
        assert_eq!(answer, status(json!({ "read": expected, "observedGeneration": 4 })), "{step}");
    }
}

#[test]
fn what_is_awaited_is_kept_once_it_is_there_and_what_is_told_is_logged() {
    let run = Run::new().secondary("configs", config_map("x"));
    let read = json!({ "in": { "source": "configs" }, "select": "one" });
    let recorded = reconcile(run, json!({ "do": [{ "await": read }, { "read": read, "tell": true }] }));
    assert_eq!(recorded.answer, status(json!({ "await": "cm", "observedGeneration": 4 })));
    assert_eq!(recorded.logs[0].message, "seen");
}

#[test]
fn memos_count_runs() {
    let count = json!({ "memo": { "lifetime": "primary", "count": "runs" }, "as": "runs" });
    let first = reconcile(Run::new(), json!({ "do": count }));
    assert_eq!(first.answer, status(json!({ "runs": 1, "observedGeneration": 4 })));
    let run = first.memos.into_iter().fold(Run::new(), |run, ((lifetime, key), value)| run.memo(lifetime, &key, value));
    assert_eq!(seen(run, count), status(json!({ "runs": 2, "observedGeneration": 4 })));
}

#[test]
fn comparisons_say_what_they_found() {
    let compare =
        |desired: Value| json!({ "compare": { "by": "generic", "actual": { "a": 1, "b": 2 }, "desired": desired } });
    assert_eq!(
        seen(Run::new(), compare(json!({ "a": 1 }))),
        status(json!({ "compare": "matches", "observedGeneration": 4 }))
    );
    let differs = json!({ "differs": "the documents differ" });
    assert_eq!(
        seen(Run::new(), compare(json!({ "a": 2 }))),
        status(json!({ "compare": differs, "observedGeneration": 4 }))
    );
}

#[test]
fn events_and_lines_are_recorded() {
    let recorded = reconcile(
        Run::new(),
        json!({ "do": [
            { "event": { "warning": true, "reason": "Odd", "message": "it is odd", "key": "k" } },
            { "log": { "message": "here", "level": "warn", "fields": { "a": "b" } } },
        ] }),
    );
    assert_eq!(recorded.answer, Ok(Update::nothing()));
    assert_eq!((recorded.events[0].reason.as_str(), recorded.events[0].key.as_deref()), ("Odd", Some("k")));
    assert_eq!(recorded.logs[0].message, "here");
}

#[test]
fn cleanup_keeps_or_removes_the_finalizer() {
    let table = [
        (json!({}), Ok(Deletion::remove_finalizer())),
        (json!({ "keep": true }), Ok(Deletion::keep_finalizer())),
        (json!({ "keep": true, "reschedule": 150 }), Ok(Deletion::keep_finalizer().reschedule(millis(150)))),
        (json!({ "do": { "fail": "no" } }), Err("no".into())),
    ];
    for (cleanup, expected) in table {
        assert_eq!(Prober::cleanup(&probe(json!({ "cleanup": cleanup }))), expected);
    }
}

#[test]
fn errors_are_handled_as_the_spec_says() {
    let failure = Failure {
        origin: Origin::OutOfMemory,
        message: "no".to_owned(),
        refused: None,
        dependents: vec![],
        retry: Retry { attempt: 1, last: true },
    };
    let shown = json!({
        "failure": {
            "origin": "out-of-memory", "message": "no", "refused": null, "dependents": [], "retry": { "attempt": 1, "last": true },
        },
        "observedGeneration": 4,
    });
    let table = [
        (json!({}), None),
        (json!({ "onError": {} }), Some(Handled::new())),
        (json!({ "onError": { "failure": true, "next": "stop" } }), Some(Handled::status(shown).stop())),
        (
            json!({ "onError": { "failures": true } }),
            Some(Handled::status(json!({ "failures": ["1: no"], "observedGeneration": 4 }))),
        ),
        (json!({ "onError": { "next": { "reschedule": 20 } } }), Some(Handled::new().reschedule(millis(20)))),
    ];
    for (spec, expected) in table {
        assert_eq!(Prober::handle_error(&probe(spec), &failure), Ok(expected));
    }
}

#[test]
fn dependents_are_what_the_spec_has() {
    let spec = json!({ "dependents": {
        "cm": { "kind": "ConfigMap" },
        "broken": { "$text": "{" },
        "failing": { "$do": { "fail": "no" }, "kind": "ConfigMap" },
        "logging": { "$do": { "see": ["retry"] }, "kind": "ConfigMap" },
    } });
    let table = [
        ("cm", Ok(Json::unchecked(r#"{"kind":"ConfigMap"}"#))),
        ("broken", Ok(Json::unchecked("{"))),
        ("failing", Err("no".into())),
        ("logging", Ok(Json::unchecked(r#"{"kind":"ConfigMap"}"#))),
        ("other", Err("spec.dependents has no `other`".into())),
    ];
    for (name, expected) in table {
        assert_eq!(Prober::desired(name, &probe(spec.clone())), expected, "{name}");
    }
}

#[test]
fn bulks_are_what_the_spec_has() {
    // BD-1
    let spec = json!({ "bulks": { "maps": [{ "kind": "ConfigMap" }, { "$text": "{" }], "bad": [{ "$do": { "fail": "no" } }] } });
    let set = |name: &str| Prober::desired_set(name, &probe(spec.clone()));
    assert_eq!(set("maps"), Ok(vec![Json::unchecked(r#"{"kind":"ConfigMap"}"#), Json::unchecked("{")]));
    assert_eq!(set("bad"), Err("no".into()));
    assert_eq!(set("other"), Err("spec.bulks has no `other`".into()));
}

#[test]
fn a_dependent_has_fields_of_what_is_there() {
    let field = |pointer: &str| json!({ "source": "configs", "field": pointer });
    let copy = json!({ "/data/kept": field("/data/a"), "/data/none": field("/data/b") });
    let probe = probe(json!({ "dependents": { "cm": { "data": { "own": "y" }, "$copy": copy } } }));
    let run = Run::new().secondary("configs", config_map("x"));
    let desired = test::with(run, || Prober::desired("cm", &probe)).answer;
    assert_eq!(desired, Json::of(&json!({ "data": { "kept": "x", "own": "y" } })));
}

#[test]
fn matchers_compare_data_alone() {
    let json = |value: Value| Json::of(&value).unwrap();
    let probe = probe(json!({ "matchers": { "bad": { "do": { "fail": "no" } } } }));
    let same = |name: &str, actual, desired| Prober::matches(name, &json(actual), &json(desired), &probe);
    assert_eq!(same("any", json!({ "data": 1, "x": 1 }), json!({ "data": 1 })), Ok(Match::Matches));
    assert_eq!(same("any", json!({ "data": 1 }), json!({ "data": 2 })), Ok(Match::Differs("data".to_owned())));
    assert_eq!(same("bad", json!({}), json!({})), Err("no".into()));
}

#[test]
fn conditions_are_what_the_spec_has() {
    let probe = probe(json!({ "conditions": {
        "yes": true,
        "detailed": { "met": false, "detail": { "why": "not yet" } },
        "failing": { "do": { "fail": "no" }, "met": true },
    } }));
    let is_met = |name| Prober::is_met(name, "cm", &probe);
    assert_eq!(is_met("yes"), Ok(true.into()));
    assert_eq!(is_met("detailed"), Ok(Met::from(false).detail(json!({ "why": "not yet" }))));
    assert_eq!(is_met("failing"), Err("no".into()));
    assert_eq!(is_met("other"), Err("spec.conditions has no `other`, asked for `cm`".into()));
}
