//! Decides whether an object is as wanted when no owned fields are recorded: by differences, where additions are
//! tolerated (GM rules).

use serde_json::{Map, Value};

use super::defaults::{self, Kind};
use super::difference::{Differences, Secrecy, Step, Stop, Walked};
use crate::budget::{Budget, OPERATION};
use crate::guest::MatchResult;
use crate::manifest::GenericMatching;

/// Whether the actual value may have more than the wanted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// It may have more: fields in a map, elements between those of a list.
    Tolerant,
    /// It may not have more.
    Exact,
}

/// Returns whether `actual` has all that `desired` has (`GM-1`), as strictly as `flags` demand (`GM-2`).
///
/// ```
/// # use capstan_core::budget::Budget;
/// # use capstan_core::dependent::diff::compare;
/// # use capstan_core::guest::MatchResult;
/// # use serde_json::json;
/// let (actual, desired) = (json!({"data": {"a": "1", "b": "2"}}), json!({"data": {"a": "1"}}));
/// let mut budget = Budget::of_run();
/// assert_eq!(compare(&actual, &desired, &Default::default(), &mut budget), MatchResult::Matches);
/// ```
pub fn compare(actual: &Value, desired: &Value, flags: &GenericMatching, budget: &mut Budget) -> MatchResult {
    let GenericMatching { ignore, strict_metadata, equality } = flags;
    let manner = if *equality || !ignore.is_empty() { Manner::Exact } else { Manner::Tolerant };
    let tags = if *strict_metadata { Manner::Exact } else { Manner::Tolerant };
    Walk::run(actual, desired, ignore, budget, |walk| {
        for name in top_level(actual, desired) {
            let (found, wanted) = (actual.get(name), desired.get(name));
            walk.below(Step::Key(name), |walk| match name {
                "apiVersion" | "kind" | "status" => Ok(()),
                "metadata" => ["labels", "annotations"].into_iter().try_for_each(|name| {
                    let (found, wanted) = (field(found, name), field(wanted, name));
                    walk.below(Step::Key(name), |walk| walk.compare(found, wanted, tags))
                }),
                _ => walk.compare(found, wanted, manner),
            })?;
        }
        Ok(())
    })
}

/// Returns whether the status of `actual` has all that the status of `desired` has (`GM-4`). Differences under the
/// JSON pointers `ignore` do not count.
pub fn compare_status<P: AsRef<str>>(
    actual: &Value,
    desired: &Value,
    ignore: &[P],
    budget: &mut Budget,
) -> MatchResult {
    let (found, wanted) = (actual.get("status"), desired.get("status"));
    Walk::run(actual, desired, ignore, budget, |walk| {
        walk.below(Step::Key("status"), |walk| walk.compare(found, wanted, Manner::Tolerant))
    })
}

/// Returns whether both objects are equal, except under the JSON pointers `ignore`.
pub fn compare_all<P: AsRef<str>>(actual: &Value, desired: &Value, ignore: &[P], budget: &mut Budget) -> MatchResult {
    Walk::run(actual, desired, ignore, budget, |walk| walk.compare(Some(actual), Some(desired), Manner::Exact))
}

/// Returns whether `actual` has all that `desired` has, except under the JSON pointers `ignore`: the same as [`compare`] for documents that
/// are no Kubernetes objects.
pub fn compare_some<P: AsRef<str>>(actual: &Value, desired: &Value, ignore: &[P], budget: &mut Budget) -> MatchResult {
    Walk::run(actual, desired, ignore, budget, |walk| walk.compare(Some(actual), Some(desired), Manner::Tolerant))
}

/// A walk through both trees at once.
struct Walk<'a, 'b> {
    kind: Kind<'a>,
    differences: Differences<'a, 'b>,
}

impl<'a> Walk<'a, '_> {
    /// Runs a walk within the part of the budget that one comparison may take, and returns its verdict.
    fn run<P: AsRef<str>>(
        actual: &'a Value,
        desired: &'a Value,
        ignore: &[P],
        budget: &mut Budget,
        walk: impl FnOnce(&mut Walk<'a, '_>) -> Walked,
    ) -> MatchResult {
        let kind = Kind::of([desired, actual]);
        let secrecy = if kind.is_secret() { Secrecy::Secret } else { Secrecy::Open };
        budget.within(OPERATION, |budget| {
            let mut begun = Walk { kind, differences: Differences::new(secrecy, ignore, budget) };
            let walked = walk(&mut begun);
            begun.differences.verdict(walked)
        })
    }

    /// Compares two values. A null that was found counts as missing; a wanted null means that the field has to be
    /// absent.
    fn compare(&mut self, found: Option<&'a Value>, wanted: Option<&'a Value>, manner: Manner) -> Walked {
        match (found.filter(|found| !found.is_null()), wanted) {
            (None, None | Some(Value::Null)) => Ok(()),
            (Some(_), None) if manner == Manner::Tolerant => Ok(()),
            (None, Some(wanted)) if defaults::unset(self.kind, self.differences.path(), wanted) => Ok(()),
            (Some(Value::Object(found)), Some(Value::Object(wanted))) => self.maps(found, wanted, manner),
            (Some(Value::Array(found)), Some(Value::Array(wanted))) => self.lists(found, wanted, manner),
            (Some(found), Some(wanted)) if defaults::same_scalar(found, wanted) => Ok(()),
            (Some(found), Some(wanted)) if defaults::respelled(self.kind, self.differences.path(), found, wanted) => {
                Ok(())
            }
            (found, wanted) => self.differences.values(found, wanted),
        }
    }

    fn maps(&mut self, found: &'a Map<String, Value>, wanted: &'a Map<String, Value>, manner: Manner) -> Walked {
        for (name, wanted) in wanted {
            self.below(Step::Key(name), |walk| walk.compare(found.get(name), Some(wanted), manner))?;
        }
        if manner == Manner::Exact {
            for (name, found) in found {
                if !wanted.contains_key(name) {
                    self.below(Step::Key(name), |walk| walk.compare(Some(found), None, manner))?;
                }
            }
        }
        Ok(())
    }

    /// Compares two lists. If tolerant, the wanted elements have to be found in the same order, with any others
    /// between them (`GM-1`), however a patch would express the difference.
    fn lists(&mut self, found: &'a [Value], wanted: &'a [Value], manner: Manner) -> Walked {
        if manner == Manner::Tolerant {
            if self.embeds(found, wanted)? {
                return Ok(());
            }
            if self.differences.is_trial() {
                // A trial does not need the place of a difference; to look for it would double the work at each
                // level.
                return Err(Stop::Differs);
            }
        }
        let length = match manner {
            Manner::Tolerant => wanted.len(),
            Manner::Exact => wanted.len().max(found.len()),
        };
        for index in 0..length {
            self.below(Step::Index(index), |walk| walk.compare(found.get(index), wanted.get(index), manner))?;
        }
        Ok(())
    }

    /// Returns true if each wanted element is found, in this order. Taking the first match never prevents a later
    /// one.
    fn embeds(&mut self, found: &'a [Value], wanted: &'a [Value]) -> Result<bool, Stop> {
        let mut rest = found.iter().enumerate();
        'wanted: for wanted in wanted {
            for (index, found) in rest.by_ref() {
                self.differences.begin_trial();
                let walked =
                    self.below(Step::Index(index), |walk| walk.compare(Some(found), Some(wanted), Manner::Tolerant));
                if self.differences.end_trial(walked)? {
                    continue 'wanted;
                }
            }
            return Ok(false);
        }
        Ok(true)
    }

    fn below(&mut self, step: Step<'a>, compare: impl FnOnce(&mut Self) -> Walked) -> Walked {
        self.differences.enter(step)?;
        let walked = compare(self);
        self.differences.leave();
        walked
    }
}

/// Returns the names of the fields of both trees, each once.
fn top_level<'a>(actual: &'a Value, desired: &'a Value) -> impl Iterator<Item = &'a str> {
    let wanted = desired.as_object().into_iter().flat_map(Map::keys);
    let found = actual.as_object().into_iter().flat_map(Map::keys).filter(|name| desired.get(name).is_none());
    wanted.chain(found).map(String::as_str)
}

fn field<'a>(map: Option<&'a Value>, name: &str) -> Option<&'a Value> {
    map.and_then(|map| map.get(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::budget::RUN;

    fn compare(actual: &Value, desired: &Value, flags: &GenericMatching) -> MatchResult {
        super::compare(actual, desired, flags, &mut Budget::of_run())
    }

    fn compare_status<P: AsRef<str>>(actual: &Value, desired: &Value, ignore: &[P]) -> MatchResult {
        super::compare_status(actual, desired, ignore, &mut Budget::of_run())
    }

    fn compare_all<P: AsRef<str>>(actual: &Value, desired: &Value, ignore: &[P]) -> MatchResult {
        super::compare_all(actual, desired, ignore, &mut Budget::of_run())
    }

    fn text(verdict: MatchResult) -> Option<String> {
        match verdict {
            MatchResult::Matches => None,
            MatchResult::Differs(text) => Some(text),
        }
    }

    fn flags(ignore: &[&str], strict_metadata: bool, equality: bool) -> GenericMatching {
        GenericMatching { ignore: ignore.iter().map(|text| (*text).into()).collect(), strict_metadata, equality }
    }

    #[test]
    #[rustfmt::skip]
    fn additions_are_tolerated_and_nothing_else() {
        // GM-1
        for (actual, desired, expected) in [
            (json!({"spec": {"a": 1, "b": {"c": 2}}}), json!({"spec": {"a": 1}}), None),
            (json!({"spec": {"a": 1}, "data": {}}), json!({"spec": {"a": 1}}), None),
            (json!({"spec": {"a": 2}}), json!({"spec": {"a": 1}}), Some("/spec/a: found 2, wanted 1")),
            (json!({"spec": {}}), json!({"spec": {"a": 1}}), Some("/spec/a: found nothing, wanted 1")),
            (json!({}), json!({"spec": {"a": 1}}), Some("/spec: found nothing, wanted {\"a\":1}")),
            (json!({"data": {"k": "1"}}), json!({"data": {"k": "2"}}), Some("/data/k: found \"1\", wanted \"2\"")),
            (json!({"rules": [1]}), json!({"rules": [2]}), Some("/rules/0: found 1, wanted 2")),
            (json!({"spec": {"a": 1}}), json!({"spec": {"a": null}}), Some("/spec/a: found 1, wanted null")),
            (json!({"spec": {}}), json!({"spec": {"a": null}}), None),
            (json!({"spec": {"a": 1}}), json!({"spec": {"a": 1.0}}), None),
            (json!({"spec": {"a": "1"}}), json!({"spec": {"a": 1}}), Some("/spec/a: found \"1\", wanted 1")),
            // These fields are not compared.
            (json!({"status": 1, "kind": "A", "apiVersion": "v1"}), json!({"status": 2, "kind": "B", "apiVersion": "v2"}), None),
            (json!({"metadata": {"uid": "1"}}), json!({"metadata": {"uid": "2", "finalizers": ["x"]}}), None),
        ] {
            assert_eq!(
                text(compare(&actual, &desired, &flags(&[], false, false))).as_deref(),
                expected,
                "{actual} {desired}"
            );
        }
    }

    #[test]
    #[rustfmt::skip]
    fn a_list_may_have_more_elements_anywhere_but_no_other_order() {
        // GM-1: whichever patch would express the difference
        for (actual, desired, matches) in [
            (json!([1, 2, 3]), json!([1, 3]), true),
            (json!([1, 1]), json!([1]), true),
            (json!([1]), json!([]), true),
            (json!([1]), json!([1, 1]), false),
            (json!([1, 2]), json!([2, 1]), false),
            (json!([{"n": "x"}, {"n": "a", "default": 1}]), json!([{"n": "a"}]), true),
            (json!([{"n": "a", "l": [1, 2]}]), json!([{"n": "a", "l": [2]}]), true),
            (json!([{"a": 1}, {"a": 1, "b": 2}]), json!([{"b": 2}, {"a": 1}]), false),
            (json!([[1], [1, 2]]), json!([[2]]), true),
        ] {
            let object = |list: &Value| json!({"spec": {"list": list}});
            let verdict = compare(
                &object(&actual),
                &object(&desired),
                &flags(&[], false, false),
            );
            assert_eq!(
                verdict == MatchResult::Matches,
                matches,
                "{actual} {desired}: {verdict:?}"
            );
        }
    }

    #[test]
    #[rustfmt::skip]
    fn labels_and_annotations_count_and_additions_to_them_if_strict() {
        // GM-1, GM-2
        let object =
            |labels: Value| json!({"metadata": {"labels": labels, "annotations": {"k": "v"}}});
        for (found, wanted, strict, expected) in [
            (json!({"a": "1", "b": "2"}), json!({"a": "1"}), false, None),
            (json!({"a": "1", "b": "2"}), json!({"a": "1"}), true, Some("/metadata/labels/b: found \"2\", no longer wanted")),
            (json!({"a": "1"}), json!({"a": "2"}), false, Some("/metadata/labels/a: found \"1\", wanted \"2\"")),
            (json!(null), json!({"a": "2"}), false, Some("/metadata/labels: found nothing, wanted {\"a\":\"2\"}")),
        ] {
            let verdict = compare(
                &object(found.clone()),
                &object(wanted.clone()),
                &flags(&[], strict, false),
            );
            assert_eq!(text(verdict).as_deref(), expected, "{found} {wanted}");
        }
        let (one, none) = (object(json!({"a": "1"})), json!({}));
        let expected = "/metadata/labels: found {\"a\":\"1\"}, no longer wanted; /metadata/annotations: found {\"k\":\"v\"}, no longer wanted";
        assert_eq!(
            text(compare(&one, &none, &flags(&[], true, false))).as_deref(),
            Some(expected)
        );
    }

    #[test]
    #[rustfmt::skip]
    fn with_equality_or_ignored_paths_an_addition_is_a_difference() {
        // GM-2
        let (actual, desired) = (
            json!({"spec": {"a": 1, "b": {"c": 2}, "l": [1, 2]}, "data": 1}),
            json!({"spec": {"a": 1, "l": [1]}}),
        );
        let both = "/spec/l/1: found 2, no longer wanted; /spec/b: found {\"c\":2}, no longer wanted; /data: found 1, no longer wanted";
        for (ignore, equality, expected) in [
            (&[][..], true, Some(both)),
            (&["/spec/l", "/data"][..], false, Some("/spec/b: found {\"c\":2}, no longer wanted")),
            (&["/spec/b", "/spec/l/1", "/data"][..], false, None),
            (&["/spec", "/data"][..], false, None),
        ] {
            assert_eq!(
                text(compare(&actual, &desired, &flags(ignore, false, equality))).as_deref(),
                expected
            );
        }
    }

    #[test]
    #[rustfmt::skip]
    fn only_the_status_counts_for_a_status() {
        // GM-4
        for (found, wanted, expected) in [
            (json!({"a": 1, "theirs": 2}), json!({"a": 1}), None),
            (json!({"a": 2}), json!({"a": 1}), Some("/status/a: found 2, wanted 1")),
            (json!({"a": 2}), json!({"a": null}), Some("/status/a: found 2, wanted null")),
            (json!({"a": 2}), json!(null), Some("/status: found {\"a\":2}, wanted null")),
            (json!(null), json!({}), Some("/status: found nothing, wanted {}")),
        ] {
            let (actual, desired) = (
                json!({"spec": 1, "status": found}),
                json!({"spec": 2, "status": wanted}),
            );
            assert_eq!(
                text(compare_status::<&str>(&actual, &desired, &[])).as_deref(),
                expected
            );
        }
        let (actual, desired) = (
            json!({"status": {"a": 1, "b": 1}}),
            json!({"status": {"a": 2, "b": 1}}),
        );
        assert_eq!(
            compare_status(&actual, &desired, &["/status/a"]),
            MatchResult::Matches
        );
    }

    #[test]
    fn everything_counts_for_equality() {
        let (actual, desired) = (json!({"status": 1, "x": 1}), json!({"status": 1}));
        assert_eq!(text(compare_all::<&str>(&actual, &desired, &[])).as_deref(), Some("/x: found 1, no longer wanted"));
        assert_eq!(compare_all(&actual, &desired, &["/x"]), MatchResult::Matches);
        assert_eq!(compare_all::<&str>(&actual, &actual, &[]), MatchResult::Matches);
    }

    #[test]
    fn an_empty_variable_is_not_stored_and_an_empty_label_is() {
        // SN-2
        let pod = |version: &str, value: Value, labels: Value| {
            let containers = json!([{ "name": "c", "env": [value] }]);
            json!({ "apiVersion": version, "metadata": { "labels": labels }, "spec": { "containers": containers } })
        };
        let (unset, empty) = (json!({ "name": "A" }), json!({ "name": "A", "value": "" }));
        for (version, label, matches) in
            [("v1", json!({}), true), ("v1", json!({ "a": "" }), false), ("sample.dev/v1", json!({}), false)]
        {
            let (actual, desired) = (pod(version, unset.clone(), json!({})), pod(version, empty.clone(), label));
            let verdict = compare(&actual, &desired, &flags(&[], false, false));
            assert_eq!(verdict == MatchResult::Matches, matches, "{desired}");
        }
    }

    #[test]
    fn empty_maps_of_labels_and_data_and_empty_lists_are_not_stored() {
        // SN-2
        for (version, wanted, matches) in [
            ("v1", json!({ "metadata": { "labels": {}, "annotations": {}, "finalizers": [] } }), true),
            ("sample.dev/v1", json!({ "metadata": { "labels": {} } }), true),
            ("v1", json!({ "data": {}, "binaryData": {} }), true),
            ("sample.dev/v1", json!({ "data": {} }), false),
            ("sample.dev/v1", json!({ "spec": { "list": [] } }), false),
            (
                "apps/v1",
                json!({ "spec": { "template": { "metadata": { "labels": {} }, "spec": { "volumes": [] } } } }),
                true,
            ),
            ("apps/v1", json!({ "spec": { "template": { "spec": { "securityContext": {} } } } }), false),
        ] {
            let mut desired = wanted.clone();
            desired["apiVersion"] = json!(version);
            let template = json!({ "metadata": {}, "spec": {} });
            let actual = json!({ "apiVersion": version, "metadata": {}, "spec": { "template": template } });
            let verdict = compare(&actual, &desired, &flags(&[], false, false));
            assert_eq!(verdict == MatchResult::Matches, matches, "{version}: {wanted}");
        }
    }

    #[test]
    fn a_quantity_of_a_built_in_kind_may_be_spelled_otherwise() {
        let object =
            |version: &str, cpu: &str| json!({"apiVersion": version, "spec": {"resources": {"limits": {"cpu": cpu}}}});
        for (version, matches) in [("apps/v1", true), ("sample.dev/v1", false)] {
            let verdict = compare(&object(version, "1"), &object(version, "1000m"), &flags(&[], false, false));
            assert_eq!(verdict == MatchResult::Matches, matches, "{version}");
        }
    }

    /// Returns a value inside this number of nested lists.
    fn nested(levels: usize, value: Value) -> Value {
        (0..levels).fold(value, |inner, _| json!([inner]))
    }

    #[test]
    fn what_a_comparison_costs_grows_with_the_documents_and_no_faster() {
        let wide = |value: Value| Value::Array(vec![value; 10_000]);
        let nulls: Map<_, _> =
            (0..3_000).map(|n| (n.to_string(), Value::Null)).chain([("z".to_owned(), json!(1))]).collect();
        for (about, actual, desired, steps) in [
            ("deep", nested(120, json!(1)), nested(120, json!(2)), 20_000),
            ("deep, the same", nested(120, json!(1)), nested(120, json!(1)), 1_000),
            ("wide", wide(json!([1])), wide(json!([2])), 100_000),
            ("wide, all but the last", wide(json!([1])), json!([[1], [2]]), 100_000),
            // Each element is compared with all that is wanted: only the budget ends this.
            ("square", wide(json!({})), json!([Value::Object(nulls)]), OPERATION),
        ] {
            let object = |list| json!({ "spec": list });
            let mut budget = Budget::of_run();
            let flags = GenericMatching::default();
            super::compare(&object(actual), &object(desired), &flags, &mut budget);
            let spent = RUN - budget.left();
            assert!(spent <= steps, "{about}: {spent} steps");
        }
    }

    #[test]
    fn what_is_too_large_to_compare_differs() {
        let (actual, desired) = (json!({"spec": vec![1; 100]}), json!({"spec": vec![1; 100]}));
        let flags = GenericMatching::default();
        assert_eq!(
            text(super::compare(&actual, &desired, &flags, &mut Budget::of(50))).as_deref(),
            Some("too large to compare: it takes more than 50 steps")
        );
    }
}
