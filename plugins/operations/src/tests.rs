//! What an attempt comes to, as values.

use capstan_guest::test;
use serde_json::Value;

use super::*;

fn task(spec: &Value, status: &Value) -> Task {
    let task = json!({ "metadata": { "name": "a", "generation": 2 }, "spec": spec, "status": status });
    serde_json::from_value(task).unwrap()
}

fn attempt(number: u32, task: &Task) -> Result<Update> {
    test::with(test::Run::new().retry(number, false), || Operations::reconcile(task)).answer
}

fn done(attempts: u32) -> Update {
    Update::status(json!({ "state": "Done", "attempts": attempts, "observedGeneration": 2 }))
}

#[test]
fn so_many_attempts_fail_as_the_spec_says() {
    let task = task(&json!({ "failures": 2, "memoryMi": 1 }), &json!({}));
    for number in [0, 1] {
        assert_eq!(attempt(number, &task).unwrap_err().message(), "fails on purpose: spec.failures is 2");
    }
    assert_eq!(attempt(2, &task), Ok(done(3)));
}

#[test]
fn a_fresh_run_is_the_first_attempt() {
    let recorded = test::with(test::Run::new(), || Operations::reconcile(&task(&json!({}), &json!({}))));
    assert_eq!(recorded.answer, Ok(done(1)));
    assert_eq!(recorded.logs[0].message, "done");
}

#[test]
fn what_is_done_is_not_done_again_until_the_spec_changes() {
    let spec = json!({ "failures": 1 });
    assert_eq!(attempt(0, &task(&spec, &json!({ "observedGeneration": 2 }))), Ok(Update::nothing()));
    assert!(attempt(0, &task(&spec, &json!({ "observedGeneration": 1 }))).is_err());
}
