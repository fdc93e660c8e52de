//! The acts: what a visitor would do to a page, and what the operator owes them for it.

use anyhow::Result;
use serde_json::{Value, json};

use crate::demo::act::{Act, Deed, Expected, Stage};
use crate::demo::edit::Edit;
use crate::demo::world::{Kind, World};

/// The page of `plugins/webpage/example.yaml`.
pub(crate) const PAGE: &str = "hello";
/// The file in the `ConfigMap`.
const FILE: &str = "/data/index.html";
const NEW: &str = "<html><body>Hello again!</body></html>";
const BROKEN: &str = "Hello, but this is no page";
/// What the changed operator makes of `<html>`.
const TITLED: &str = "<html><title>Version 2</title>";

/// What a page has beside its `ConfigMap`, and what another title does not change.
const LEFT_ALONE: [Kind; 2] = [Kind::Deployment, Kind::Service];

/// Plays all acts; returns how many there were.
///
/// # Errors
/// As [`Stage::play`].
pub(crate) fn acts(stage: &mut Stage<'_>) -> Result<usize> {
    stage.play(&apply())?;
    stage.play(&change())?;
    stage.play(&hide())?;
    stage.play(&expose())?;
    let uid = stage.world().value(Kind::ConfigMap, "/metadata/uid").cloned();
    stage.play(&delete_map(uid))?;
    let kept = LEFT_ALONE.map(|kind| stage.world().written(kind));
    stage.play(&swap(kept))?;
    stage.play(&spoil())?;
    stage.play(&delete())?;
    Ok(stage.acts())
}

/// Returns the change of the operator: its pages get a title.
pub(crate) fn edit() -> Edit {
    Edit {
        file: "src/lib.rs",
        from: r#""index.html": page.html()? }"#,
        to: format!(r#""index.html": page.html()?.replace("<html>", "{TITLED}") }}"#),
    }
}

fn apply() -> Act {
    Act {
        title: "Apply a page",
        deed: kubectl(Kind::WebPage, &["apply", "-f", "plugins/webpage/example.yaml"]),
        expected: vec![
            Expected::soon("a ConfigMap with the page, a Deployment and a Service are there", |world| {
                let html = world.value(Kind::WebPage, "/spec/html");
                html.is_some()
                    && world.value(Kind::ConfigMap, FILE) == html
                    && world.has(Kind::Deployment)
                    && world.has(Kind::Service)
            }),
            Expected::soon("an Ingress is there if the page wants to be exposed", is_exposed_as_wanted),
            Expected::soon("the status says that the page is good", is_good),
            Expected::soon("the Deployment is ready", |world| {
                world.value(Kind::Deployment, "/status/readyReplicas") == Some(&json!(1))
            }),
        ],
    }
}

fn change() -> Act {
    Act {
        title: "Change its HTML",
        deed: patch(&json!({ "spec": { "html": NEW } })),
        expected: vec![
            Expected::soon("the ConfigMap has the new page", has_new_page),
            Expected::soon("the status says so", is_good),
        ],
    }
}

fn hide() -> Act {
    Act {
        title: "Take it off the net",
        deed: patch(&json!({ "spec": { "exposed": false } })),
        expected: vec![
            Expected::soon("the Ingress is gone", |world| !world.has(Kind::Ingress)),
            Expected::still("the rest stays", has_base),
        ],
    }
}

fn expose() -> Act {
    Act {
        title: "Put it on the net",
        deed: patch(&json!({ "spec": { "exposed": true } })),
        expected: vec![Expected::soon("an Ingress is there", |world| world.has(Kind::Ingress))],
    }
}

/// `kept` is what the kinds of [`LEFT_ALONE`] are now.
fn swap(kept: [Option<Value>; 2]) -> Act {
    Act {
        title: "Change the operator, while it runs",
        deed: Deed::Swap,
        expected: vec![
            Expected::soon("the daemon says that the new version is at work", |world| {
                world.plugin().is_some_and(|plugin| plugin.version == 2 && plugin.state == "active")
            }),
            Expected::soon("the page's ConfigMap has the new title", has_titled_page),
            Expected::still("the Deployment and the Service were left alone", move |world| {
                kept.iter().all(Option::is_some) && kept == LEFT_ALONE.map(|kind| world.written(kind))
            }),
        ],
    }
}

/// `uid` is that of the `ConfigMap` now.
fn delete_map(uid: Option<Value>) -> Act {
    Act {
        title: "Delete its ConfigMap",
        deed: kubectl(Kind::ConfigMap, &["delete", "configmap", &format!("{PAGE}-html")]),
        expected: vec![Expected::soon("it is back, with the page", move |world| {
            has_new_page(world) && world.value(Kind::ConfigMap, "/metadata/uid") != uid.as_ref()
        })],
    }
}

fn spoil() -> Act {
    Act {
        title: "Spoil its HTML",
        deed: patch(&json!({ "spec": { "html": BROKEN } })),
        expected: vec![
            Expected::soon("the status says what is wrong", |world| {
                let status = |field: &str| world.value(Kind::WebPage, &format!("/status/{field}"));
                status("areWeGood") == Some(&json!(false))
                    && status("errorMessage").and_then(Value::as_str).is_some_and(|text| !text.is_empty())
            }),
            Expected::still("the last good page is still served", |world| has_titled_page(world) && has_base(world)),
        ],
    }
}

fn delete() -> Act {
    Act {
        title: "Delete the page",
        deed: kubectl(Kind::WebPage, &["delete", "webpage", PAGE]),
        expected: vec![Expected::soon(
            "all that it had is gone too, by Kubernetes' garbage collection",
            World::is_empty,
        )],
    }
}

/// A change of this kind is where it begins.
fn kubectl(cause: Kind, words: &[&str]) -> Deed {
    let words = words.iter().map(|&word| word.to_owned()).collect();
    Deed::Kubectl { words, cause }
}

fn patch(patch: &Value) -> Deed {
    let patch = patch.to_string();
    let words = ["patch", "webpage", PAGE, "--type", "merge", "-p", &patch];
    kubectl(Kind::WebPage, &words)
}

fn has_new_page(world: &World) -> bool {
    world.value(Kind::ConfigMap, FILE) == Some(&json!(NEW))
}

fn has_titled_page(world: &World) -> bool {
    let page = NEW.replace("<html>", TITLED);
    world.value(Kind::ConfigMap, FILE) == Some(&json!(page))
}

fn has_base(world: &World) -> bool {
    [Kind::ConfigMap, Kind::Deployment, Kind::Service].into_iter().all(|kind| world.has(kind))
}

fn is_exposed_as_wanted(world: &World) -> bool {
    let wanted = world.value(Kind::WebPage, "/spec/exposed") == Some(&json!(true));
    world.has(Kind::Ingress) == wanted
}

/// The status is about the page as it is now, and says that it is good.
fn is_good(world: &World) -> bool {
    let generation = world.value(Kind::WebPage, "/metadata/generation");
    generation.is_some()
        && world.value(Kind::WebPage, "/status/observedGeneration") == generation
        && world.value(Kind::WebPage, "/status/areWeGood") == Some(&json!(true))
}
