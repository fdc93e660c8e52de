//! What must hold of all work on documents, whatever they say: one target for each kind of work. A target takes bytes, makes
//! documents of them, and panics if something does not hold: also if the work takes more memory or time than it may.
//!
//! `cargo test -p fuzz` tries some thousands of inputs; `cargo xtask fuzz` hunts for inputs that reach new code, with libFuzzer.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a target fails loudly"
)]

use std::path::Path;

use arbitrary::{Result, Unstructured};
#[cfg(feature = "daemon")]
use capstan::plugin::{bounds, weight::Weight};
use capstan_core::budget::{Budget, OPERATION, WEIGHT, weight};
use capstan_core::cel::Expression;
use capstan_core::dependent::diff;
use capstan_core::dependent::managed_fields::{self, Comparison, Part};
use capstan_core::guest::MatchResult;
use capstan_core::manifest::{self, GenericMatching};
use capstan_core::object::pointer::Pointer;
use capstan_core::object::{Gvk, Managers, Object};
use capstan_core::patch::{self, Patch};
use capstan_core::reconciler::mask::Mask;
use capstan_core::workflow::condition;
use serde_json::{Value, json};

#[cfg(feature = "daemon")]
mod archives;
mod bounded;
mod documents;
mod expressions;
mod kubeconfigs;
mod schemas;
mod signed;
mod templates;

#[cfg(feature = "daemon")]
pub use archives::archives;
use bounded::within_bounds;
use documents::Documents;
pub use kubeconfigs::kubeconfigs;
pub use schemas::schemas;
pub use signed::signatures;
pub use templates::templates;

/// A target: what it is called, and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] = &[
    ("comparing", comparing),
    ("patching", patching),
    ("cel", cel),
    ("manifest", manifest),
    ("masks", masks),
    ("fields", fields),
    ("signatures", signatures),
    ("templates", templates),
    ("schemas", schemas),
    ("kubeconfigs", kubeconfigs),
    #[cfg(feature = "daemon")]
    ("components", components),
    #[cfg(feature = "daemon")]
    ("archives", archives),
];

/// Steps that one piece of work may take here: few, so that whatever does not pay is found by its time.
const STEPS: u64 = OPERATION;

/// Hands the documents that the bytes stand for to a target. Bytes that are too few stand for none.
fn with(data: &[u8], act: impl FnOnce(&mut Documents<'_>) -> Result<()>) {
    match act(&mut Documents(Unstructured::new(data))) {
        // Too few bytes are no failure.
        Ok(()) | Err(_) => {}
    }
}

/// Comparing an object with what it should be says that an object is as itself, and stops where it costs too much.
pub fn comparing(data: &[u8]) {
    with(data, |documents| {
        let (actual, desired) = documents.two()?;
        let ignore = documents.pointers()?;
        let flags = GenericMatching {
            ignore: ignore.iter().map(|text| text.as_str().into()).collect(),
            strict_metadata: documents.0.arbitrary()?,
            equality: documents.0.arbitrary()?,
        };
        within_bounds(|| {
            let mut budget = Budget::of(STEPS);
            let verdict = diff::compare(&actual, &desired, &flags, &mut budget);
            drop(verdict);
            drop(diff::compare_status(&actual, &desired, &ignore, &mut budget));
            let all = diff::compare_all(&actual, &desired, &ignore, &mut budget);
            if budget.refused().is_none() && ignore.is_empty() {
                let equal = all == MatchResult::Matches;
                let [one, other] = [&actual, &desired].map(documents::seen);
                assert_eq!(equal, documents::alike(&one, &other), "{actual} {desired}");
            }
            let mut budget = Budget::of(STEPS);
            let same = diff::compare(&actual, &actual, &flags, &mut budget);
            assert!(same == MatchResult::Matches || budget.refused().is_some());
        });
        Ok(())
    });
}

/// A difference leads from one document to the other; a patch makes nothing that is deeper or heavier than a document may be.
pub fn patching(data: &[u8]) {
    with(data, |documents| {
        let (before, after) = documents.two()?;
        let patch = documents.patch(&before)?;
        if !is_readable(&before) || !is_readable(&after) {
            return Ok(());
        }
        within_bounds(|| {
            let mut budget = Budget::of(STEPS);
            if let Ok(difference) = patch::diff(&before, &after, &mut budget) {
                let text = difference.text();
                match Patch::read(&text, &mut Budget::of(STEPS)) {
                    Ok(read) => assert_eq!(read, difference),
                    Err(patch::Error::Exceeded(_)) => {}
                    Err(error) => panic!("{error}: {text}"),
                }
                let mut budget = Budget::of(STEPS);
                match difference.apply(before.clone(), &mut budget) {
                    Ok(led_to) => assert_eq!(led_to, after, "{text}"),
                    Err(patch::Error::Exceeded(_)) => {}
                    Err(error) => panic!("{error}: {text}"),
                }
            }
            let mut merged = before.clone();
            if patch::merge(&mut merged, &after, &mut Budget::of(STEPS)).is_ok() {
                assert!(is_readable(&merged));
            }
            let mut budget = Budget::of(STEPS);
            if let Ok(patch) = Patch::read(&patch.to_string(), &mut budget)
                && let Ok(patched) = patch.apply(before, &mut budget)
            {
                assert!(is_readable(&patched));
            }
        });
        Ok(())
    });
}

/// Whether a document is one that could have been read.
fn is_readable(document: &Value) -> bool {
    let text = document.to_string();
    weight(&text) <= WEIGHT && Budget::of(u64::MAX).read(&text).is_ok()
}

/// An expression that a manifest may have ends, whatever the documents say.
pub fn cel(data: &[u8]) {
    with(data, |documents| {
        let expression = expressions::expression(&mut documents.0)?;
        let (primary, dependent) = documents.two()?;
        let primary = json!({ "metadata": { "name": "p" }, "spec": primary });
        within_bounds(|| {
            let Ok(expression) = Expression::parse(&expression, &condition::VARIABLES) else {
                return;
            };
            // Any answer will do.
            drop(condition::met(
                &expression,
                &primary,
                &condition::Found::One(dependent),
                true,
                &mut Budget::of(STEPS),
            ));
            let variables = [("primary", &primary), ("dependent", &Value::Null)];
            drop(expression.text(&variables, &mut Budget::of(STEPS)));
        });
        Ok(())
    });
}

/// A manifest is read or refused.
pub fn manifest(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let about = |text: &str| {
        within_bounds(|| match manifest::parse(text, Path::new("operator.yaml")) {
            Ok(operators) => drop(operators),
            Err(errors) => assert!(!errors.to_string().is_empty()),
        });
    };
    about(&text);
    with(data, |documents| {
        about(&documents.manifest()?);
        Ok(())
    });
}

/// Fields and keys that are asked for are found in any object, in the order of its text.
pub fn masks(data: &[u8]) {
    with(data, |documents| {
        let object = documents.object()?;
        let pointers = documents.pointers()?;
        within_bounds(|| {
            let text = object.to_string();
            let (gvk, managers) = (Gvk::parse("v1", "ConfigMap"), Managers::all());
            let gvk = gvk.expect("a kind");
            let Ok(parsed) = Object::parse(&text, &gvk, &managers) else {
                return;
            };
            if let Ok(mask) = Mask::of(&pointers)
                && let Ok(masked) = mask.apply(&parsed, &mut Budget::of(STEPS))
            {
                let read = |text: &str| serde_json::from_str::<Value>(text);
                // What is too deep to be read here is cut out of the text all the same.
                let (Ok(masked), Ok(whole)) = (read(&masked), read(parsed.json())) else {
                    return;
                };
                part_of(&masked, &whole);
            }
            for pointer in &pointers {
                if let Ok(pointer) = Pointer::parse(pointer) {
                    drop(pointer.keys(&parsed));
                }
            }
            drop(parsed.tags());
        });
        Ok(())
    });
}

/// Asserts that all that a document says another one says as well.
fn part_of(part: &Value, whole: &Value) {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => {
            for (name, value) in part {
                part_of(value, whole.get(name).expect("a field of the object"));
            }
        }
        (part, whole) => assert_eq!(part, whole),
    }
}

/// What the API server records of our fields is compared or refused.
pub fn fields(data: &[u8]) {
    with(data, |documents| {
        let (actual, desired) = documents.two()?;
        let fields = documents.fields(&desired)?;
        let ignore = documents.pointers()?;
        let part = if documents.0.arbitrary()? { Part::Object } else { Part::Status };
        within_bounds(|| {
            let comparison =
                Comparison { fields: Some(&fields), actual: &actual, desired: &desired, part, ignore: &ignore };
            drop(managed_fields::compare(&comparison, &mut Budget::of(STEPS)));
        });
        Ok(())
    });
}

/// A component is measured or refused before anything is made of it.
#[cfg(feature = "daemon")]
pub fn components(data: &[u8]) {
    let measured = |wasm: &[u8]| {
        within_bounds(|| {
            drop(Weight::of(wasm));
            drop(bounds::check(wasm));
        });
    };
    measured(data);
    measured(&[b"\0asm\x0d\0\x01\0", data].concat());
    let module = [b"\0asm\x01\0\0\0", data].concat();
    if let Ok(length) = u8::try_from(module.len())
        && length < 0x80
    {
        let component = [b"\0asm\x0d\0\x01\0\x01", &[length][..], &module].concat();
        measured(&component);
    }
}
