//! How long it takes to find out that a dependent is as desired: what a restart does for every dependent of every primary.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs, reason = "a benchmark may fail loudly")]

use capstan_core::budget::Budget;
use capstan_core::dependent::managed_fields::{self, Comparison, Part};
use capstan_core::dependent::{self, compare_applied, diff};
use capstan_core::guest::MatchResult;
use capstan_core::manifest::GenericMatching;
use capstan_core::object::{Gvk, Managers, Object};
use divan::{Bencher, black_box};
use serde_json::Value;

fn main() {
    divan::main();
}

/// A Deployment of 2 KB beside 1.3 KB of managed fields, as an API server answered it, and what was applied.
struct Case {
    object: Object,
    desired: Value,
}

fn case() -> Case {
    let file: Value = serde_yaml::from_str(include_str!("../tests/golden/applied/deployment.yaml")).unwrap();
    let gvk = Gvk::parse("apps/v1", "Deployment").unwrap();
    let object = Object::parse(&file["actual"].to_string(), &gvk, &Managers::new(["webpage"])).unwrap();
    Case { object, desired: file["desired"].clone() }
}

/// All of it: from the cached text to the verdict.
#[divan::bench]
fn cached_text_by_managed_fields(bencher: Bencher<'_, '_>) {
    let Case { object, desired } = case();
    bencher.bench(|| {
        let verdict =
            compare_applied(black_box(&object), &desired, "webpage", Part::Object, &mut Budget::of_run()).unwrap();
        assert_eq!(verdict, MatchResult::Matches);
    });
}

/// Without reading the cached text.
#[divan::bench]
fn trees_by_managed_fields(bencher: Bencher<'_, '_>) {
    let Case { object, desired } = case();
    let actual = object.tree(&mut Budget::of_run()).unwrap();
    let share = dependent::share(&object, "webpage", Part::Object);
    let fields = &*share.unwrap().unwrap().fields;
    let ignore: &[&str] = &[];
    bencher.bench(|| {
        let comparison = Comparison {
            fields: Some(fields),
            actual: black_box(&actual),
            desired: &desired,
            part: Part::Object,
            ignore,
        };
        managed_fields::compare(&comparison, &mut Budget::of_run()).unwrap()
    });
}

/// Reading the cached text alone.
#[divan::bench]
fn reading_the_cached_text(bencher: Bencher<'_, '_>) {
    let Case { object, .. } = case();
    bencher.bench(|| black_box(&object).tree(&mut Budget::of_run()).unwrap());
}

/// Reading what the component answered.
#[divan::bench]
fn reading_the_answer(bencher: Bencher<'_, '_>) {
    let text = case().desired.to_string();
    bencher.bench(|| serde_json::from_str::<Value>(black_box(&text)).unwrap());
}

#[divan::bench]
fn trees_by_differences(bencher: Bencher<'_, '_>) {
    let Case { object, desired } = case();
    let actual = object.tree(&mut Budget::of_run()).unwrap();
    bencher.bench(|| diff::compare(black_box(&actual), &desired, &GenericMatching::default(), &mut Budget::of_run()));
}
