//! Decides what a run is for: reconcile, clean up, add the finalizer first, or nothing (DI rules).

use crate::object::Header;

/// What a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The primary is going and nothing of ours holds it back (`DI-3`).
    Nothing,
    /// The finalizer comes first; the event of that write brings the next run (`DI-4`).
    AddFinalizer,
    /// The world is brought in line with the primary (`DI-5`).
    Reconcile,
    /// The primary is going and waits for us (`DI-3`).
    Cleanup,
}

/// Decides from the primary's header and the finalizer, none if nothing needs cleanup (`DI-2`).
pub fn decide(primary: &Header, finalizer: Option<&str>) -> Decision {
    let held = finalizer.is_some_and(|finalizer| primary.has_finalizer(finalizer));
    match (primary.deleting, finalizer) {
        (true, _) if held => Decision::Cleanup,
        (true, _) => Decision::Nothing,
        (false, Some(_)) if !held => Decision::AddFinalizer,
        (false, _) => Decision::Reconcile,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Gvk, Managers, Object};

    #[test]
    fn deletion_mark_and_finalizer_decide() {
        const OURS: &str = "sample.dev/finalizer";
        for (deleting, present, used, wanted) in [
            (false, false, false, Decision::Reconcile),
            (false, false, true, Decision::AddFinalizer), // DI-4
            (false, true, true, Decision::Reconcile),
            (true, true, true, Decision::Cleanup),  // DI-3
            (true, false, true, Decision::Nothing), // DI-3
            (true, true, false, Decision::Nothing), // DI-3: not in use any more
        ] {
            let mut meta = serde_json::json!({ "name": "a", "finalizers": ["other.dev/f"] });
            if deleting {
                meta["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            }
            if present {
                meta["finalizers"] = serde_json::json!(["other.dev/f", OURS]);
            }
            let text = serde_json::json!({ "metadata": meta }).to_string();
            let gvk = Gvk::parse("v1", "Service").unwrap();
            let object = Object::parse(&text, &gvk, &Managers::default()).unwrap();
            let decision = decide(object.header(), used.then_some(OURS));
            assert_eq!(
                decision, wanted,
                "deleting {deleting}, present {present}, used {used}"
            );
        }
    }
}
