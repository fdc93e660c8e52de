//! Decides if the objects in the cluster are as they have to be, and if runs have seen them.

use model::Model;
use serde_json::Value;

use crate::stage::Stage;
use crate::world::{DEPENDENTS, Dependent, MAPS, Setup, THINGS, Thing};

/// Returns what is wrong once nothing goes wrong any more and all is quiet.
pub(crate) fn settled(model: &Model, setup: Setup) -> Vec<String> {
    let mut wrong = Vec::new();
    for thing in Thing::all() {
        match model.object(THINGS, Some(thing.namespace()), thing.name()) {
            Some(object) => wrong.extend(of_primary(model, (thing, setup), &object)),
            None => wrong.extend(left(model, thing)),
        }
    }
    wrong
}

/// Returns which primaries have changed since a run has seen them, in something that makes them run, once all is quiet.
pub(crate) fn unseen(stage: &Stage, setup: Setup) -> Vec<String> {
    let mut wrong = Vec::new();
    for thing in Thing::all() {
        let Some(object) = stage.model.object(THINGS, Some(thing.namespace()), thing.name()) else {
            continue;
        };
        let (who, metadata) = (name(&object), &object["metadata"]);
        let version = metadata["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
        let seen = stage.seen(&(thing.namespace().to_owned(), thing.name().to_owned())).unwrap_or_default();
        if metadata["uid"] != seen.uid {
            wrong.push(format!("no run has seen {who}, but one of the same name"));
        } else if metadata["generation"] != seen.generation {
            wrong.push(format!("runs have seen generation {} of {who}: {}", seen.generation, metadata["generation"]));
        } else if !setup.generation_aware && seen.version < version && !stage.is_hushed(version) {
            wrong.push(format!("runs have seen version {} of {who}, not {version}", seen.version));
        }
    }
    wrong
}

/// Returns what is wrong once everything is deleted.
pub(crate) fn gone(model: &Model) -> Vec<String> {
    let primaries = model.objects(THINGS);
    let there =
        primaries.iter().map(|object| format!("{} is still there: {}", name(object), object["metadata"]["finalizers"]));
    there.chain(Thing::all().flat_map(|thing| left(model, thing))).collect()
}

fn of_primary(model: &Model, (thing, setup): (Thing, Setup), object: &Value) -> Vec<String> {
    let who = name(object);
    let metadata = &object["metadata"];
    if metadata["deletionTimestamp"].is_string() {
        return vec![format!("{who} is not cleaned up: {}", metadata["finalizers"])];
    }
    let mut wrong = Vec::new();
    let (seen, is) = (&object["status"]["observedGeneration"], &metadata["generation"]);
    if seen != is {
        wrong.push(format!("the last run of {who} has seen generation {seen} of {is}"));
    }
    let finalizers = &metadata["finalizers"];
    let there: Vec<_> = finalizers.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    // The last version of the manifest is none that names another.
    let expected: &[&str] = if setup.has_finalizer() { &["sim.dev/finalizer"] } else { &[] };
    if there != expected {
        wrong.push(format!("{who} has finalizers {finalizers}"));
    }
    for dependent in DEPENDENTS {
        let there = of(model, thing, dependent);
        wrong.extend(match there {
            Some(_) if !dependent.is_wanted(object) && !dependent.is_deleted() => None,
            Some(_) if !dependent.is_wanted(object) => {
                Some(format!("{who} does not want {} that is there", dependent.name()))
            }
            None if dependent.is_wanted(object) => Some(format!("{who} wants {} that is not there", dependent.name())),
            Some(there) => differs(dependent, &there, object),
            None => None,
        });
    }
    wrong
}

fn differs(dependent: Dependent, there: &Value, primary: &Value) -> Option<String> {
    let desired = dependent.desired(primary);
    if there["data"] != desired["data"] {
        let [is, wanted] = [there, &desired].map(|object| &object["data"]);
        return Some(format!("{} is {is} instead of {wanted}", name(there)));
    }
    let owner = &there["metadata"]["ownerReferences"][0]["uid"];
    let owned = !dependent.is_deleted();
    let of_primary = *owner == primary["metadata"]["uid"];
    (owned && !of_primary).then(|| format!("{} belongs to {owner}", name(there)))
}

/// Returns the dependents that are left of a deleted primary.
fn left(model: &Model, thing: Thing) -> Vec<String> {
    let left = DEPENDENTS.into_iter().chain([Dependent::More]).filter_map(|dependent| of(model, thing, dependent));
    left.map(|object| format!("{} is left behind", name(&object))).collect()
}

fn of(model: &Model, thing: Thing, dependent: Dependent) -> Option<Value> {
    model.object(MAPS, Some(thing.namespace()), &dependent.object_name(thing.name()))
}

fn name(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}
