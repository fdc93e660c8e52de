//! Runs with dependents of which several mean the same object.

use std::collections::BTreeSet;

use super::*;

/// A bench whose dependents are made from templates: each has a name that the page says, and who has made it.
fn bench(dependents: &[(&str, &str)]) -> Bench {
    let dependents: String = dependents
        .iter()
        .map(|(name, more)| {
            format!("          {name}: {{ apiVersion: v1, kind: ConfigMap{more}, desired: {{ template: {{ metadata: {{ name: \"${{primary.spec.{name}}}\" }}, data: {{ by: {name} }} }} }} }}\n")
        })
        .collect();
    let text = format!(
        "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: a }}\nspec:\n  controllers:\n    pages:\n      primary: {{ apiVersion: sample.dev/v1, kind: Page }}\n      workflow:\n        dependents:\n{dependents}"
    );
    Bench::of(Script { exports: &[], ..Script::default() }, &text)
}

impl Bench {
    /// Has the page say this, and runs until nothing more is done; returns what was written, and the error of the last run.
    async fn settled(&mut self, spec: Value) -> (Vec<String>, Option<String>) {
        self.page_of(json!({ "uid": "page" }), spec);
        let mut all = Vec::new();
        for _ in 0..4 {
            let (ended, writes) = self.ended().await;
            self.show();
            for gone in writes.iter().filter_map(|write| write.strip_prefix("delete ConfigMap ")) {
                if let Some(last) = self.maps.cache().get(&ObjectRef::namespaced("n", gone)) {
                    self.maps.apply(Watch::Deleted(last));
                }
            }
            all.extend(writes.clone());
            if writes.is_empty() {
                return (all, ended.error);
            }
        }
        panic!("it goes on for ever: {all:?}")
    }
}

#[tokio::test(start_paused = true)]
async fn the_second_dependent_that_wants_an_object_fails_and_names_both() {
    // KD-13
    let mut bench = bench(&[("one", ""), ("two", "")]);
    let (writes, error) = bench.settled(json!({ "one": "x", "two": "x" })).await;
    assert_eq!(writes, strings(&["create ConfigMap x"]));
    let told = "the workflow failed: two: ConfigMap n/x is desired by one and by two, so that each would undo what the other writes: give one of them another name, or conditions of which only one is met at a time";
    assert_eq!(error.as_deref(), Some(told));
    assert_eq!(bench.data("x"), json!({ "by": "one" }));
    let reasons: Vec<String> = bench.published.lock().iter().map(|(reason, _)| reason.clone()).collect();
    assert!(!reasons.contains(&"DependentContested".to_owned()), "nobody else is blamed: {reasons:?}");
    let (writes, error) = bench.settled(json!({ "one": "x", "two": "y" })).await;
    assert_eq!((writes, error), (strings(&["create ConfigMap y"]), None));
    // To exchange names is no clash.
    let (writes, error) = bench.settled(json!({ "one": "y", "two": "x" })).await;
    assert_eq!((writes, error), (strings(&["update ConfigMap y", "update ConfigMap x"]), None));
}

#[tokio::test(start_paused = true)]
async fn an_object_goes_from_one_dependent_to_another_and_is_neither_deleted_nor_made_anew() {
    // KD-13
    for condition in ["reconcilePrecondition", "activation"] {
        let wanted = |name: &str| format!(", {condition}: {{ cel: primary.spec.on == '{name}' }}");
        let mut bench = bench(&[("one", &wanted("one")), ("two", &wanted("two"))]);
        let says = |on: &str| json!({ "one": "x", "two": "x", "on": on });
        let mut written = strings(&["create ConfigMap x"]);
        for on in ["one", "two", "one"] {
            assert_eq!(bench.settled(says(on)).await, (written, None), "{condition} {on}");
            assert_eq!(bench.data("x"), json!({ "by": on }));
            written = strings(&["update ConfigMap x"]);
        }
        if condition == "reconcilePrecondition" {
            let (writes, error) = bench.settled(says("")).await;
            assert!(writes.iter().all(|write| write == "delete ConfigMap x") && error.is_none(), "{writes:?}");
            let key = (config_map(), ObjectRef::namespaced("n", "x"));
            assert!(!bench.server.objects.lock().contains_key(&key));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_dependent_may_want_that_is_not_visited_yet_is_left_to_it() {
    // KD-13: `later` waits for `base`.
    let wanted = |name: &str| format!(", reconcilePrecondition: {{ cel: primary.spec.on == '{name}' }}");
    let (first, later) = (wanted("first"), wanted("later") + ", dependsOn: [base]");
    let base = ", readyPostcondition: { cel: primary.spec.ready }";
    let mut bench = bench(&[("base", base), ("first", &first), ("later", &later)]);
    let says = |on: &str, ready: bool| json!({ "base": "base", "first": "x", "later": "x", "on": on, "ready": ready });
    let made = strings(&["create ConfigMap base", "create ConfigMap x"]);
    assert_eq!(bench.settled(says("first", true)).await, (made, None));
    for (on, ready, writes, by) in [
        ("later", false, &[][..], "first"),
        ("later", true, &["update ConfigMap x"], "later"),
        ("later", false, &[], "later"),
        ("first", false, &["update ConfigMap x"], "first"),
    ] {
        assert_eq!(bench.settled(says(on, ready)).await, (strings(writes), None), "{on} {ready}");
        assert_eq!(bench.data("x"), json!({ "by": by }));
    }
}

#[tokio::test(start_paused = true)]
async fn a_bulk_and_a_dependent_of_one_object_do_not_share_it() {
    // KD-13
    const BOTH: &str = "workflow: { dependents: { one: { apiVersion: v1, kind: ConfigMap }, set: { apiVersion: v1, kind: ConfigMap, bulk: true } } }";
    let exports = &[Interface::Reconciler, Interface::Dependent, Interface::Bulk];
    let mut bench = Bench::new(Script { exports, ..Script::default() }, BOTH);
    let says = |set: Value| json!({ "names": { "one": "x" }, "set": set });
    let (writes, error) = bench.settled(says(json!([["x", "1"], ["y", "2"]]))).await;
    assert_eq!(writes, strings(&["create ConfigMap x", "create ConfigMap y"]));
    let error = error.unwrap();
    assert!(error.contains("ConfigMap n/x is desired by one and by set"), "{error}");
    assert_eq!(bench.settled(says(json!([["y", "2"]]))).await, (vec![], None));
    assert_eq!(bench.data("x"), json!({ "x": "y" }));
}

#[tokio::test(start_paused = true)]
async fn an_object_goes_that_several_mean_and_none_wants_as_what_they_depend_on_is_not_wanted() {
    // KD-13, WF-5
    for manage in ["", ", manage: [create, update]"] {
        let child = |name: &str, more: &str| {
            format!(", dependsOn: [base], reconcilePrecondition: {{ cel: primary.spec.on == '{name}' }}{more}")
        };
        let base = ", reconcilePrecondition: { cel: primary.spec.all }";
        let mut bench = bench(&[("base", base), ("one", &child("one", "")), ("two", &child("two", manage))]);
        let says = |all: bool| json!({ "base": "base", "one": "x", "two": "x", "on": "one", "all": all });
        let made = strings(&["create ConfigMap base", "create ConfigMap x"]);
        assert_eq!(bench.settled(says(true)).await, (made, None));
        let (writes, error) = bench.settled(says(false)).await;
        let writes: BTreeSet<_> = writes.into_iter().collect();
        let gone: BTreeSet<_> = strings(&["delete ConfigMap base", "delete ConfigMap x"]).into_iter().collect();
        assert_eq!((writes, error), (gone, None), "{manage}");
    }
}
