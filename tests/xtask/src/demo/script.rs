//! The acts: what a visitor would do to a page, and what the operator owes them for it.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use super::stage::Stage;
use super::world::{PAGE, World};
use crate::workspace::Workspace;

const NEW: &str = "<html><body>Hello again!</body></html>";
/// What the changed operator makes of it.
const TITLED: &str = "<html><title>Version 2</title><body>Hello again!</body></html>";
const BROKEN: &str = "Hello, but this is no page";

/// Plays all acts. `component` is the file that the daemon has the component from.
pub(super) fn play(stage: &mut Stage<'_>, workspace: &Workspace, component: &Path) -> Result<()> {
    apply(stage)?;
    change(stage)?;
    swap(stage, workspace, component)?;
    end(stage)
}

fn apply(stage: &mut Stage<'_>) -> Result<()> {
    stage.act("Apply a page");
    stage.kubectl("WebPage", &["apply", "-f", "plugins/webpage/example.yaml"]);
    stage.expect(
        &[
            ("a ConfigMap with the page, a Deployment and a Service are there", &|world| {
                let html = world.at("WebPage", "/spec/html");
                html.is_some() && world.at("ConfigMap", "/data/index.html") == html && has_base(world)
            }),
            ("an Ingress is there if the page wants to be exposed", &|world| {
                world.has("Ingress") == (world.at("WebPage", "/spec/exposed") == Some(&json!(true)))
            }),
            ("the status says that the page is good", &is_good),
            ("the Deployment is ready", &|world| world.at("Deployment", "/status/readyReplicas") == Some(&json!(1))),
        ],
        &[],
    )
}

fn change(stage: &mut Stage<'_>) -> Result<()> {
    stage.act("Change its HTML");
    patch(stage, &json!({ "html": NEW }));
    stage.expect(
        &[("the ConfigMap has the new page", &|world| shows(world, NEW)), ("the status says so", &is_good)],
        &[],
    )?;

    stage.act("Take it off the net");
    patch(stage, &json!({ "exposed": false }));
    stage.expect(&[("the Ingress is gone", &|world| !world.has("Ingress"))], &[("the rest stays", &has_base)])?;

    stage.act("Put it on the net");
    patch(stage, &json!({ "exposed": true }));
    stage.expect(&[("an Ingress is there", &|world| world.has("Ingress"))], &[])?;

    stage.act("Delete its ConfigMap");
    let uid = stage.world.at("ConfigMap", "/metadata/uid").cloned();
    stage.kubectl("ConfigMap", &["delete", "configmap", &format!("{PAGE}-html")]);
    stage.expect(
        &[("it is back, with the page", &|world| {
            shows(world, NEW) && world.at("ConfigMap", "/metadata/uid") != uid.as_ref()
        })],
        &[],
    )
}

fn swap(stage: &mut Stage<'_>, workspace: &Workspace, component: &Path) -> Result<()> {
    stage.act("Change the operator, while it runs");
    let others = |world: &World| ["Deployment", "Service"].map(|kind| world.written(kind));
    let kept = others(&stage.world);
    stage.swap(workspace, component)?;
    stage.expect(
        &[
            ("the daemon says that the new version is at work", &|world| {
                world.at("plugin", "/version") == Some(&json!(2))
                    && world.at("plugin", "/state") == Some(&json!("active"))
            }),
            ("the page's ConfigMap has the new title", &|world| shows(world, TITLED)),
        ],
        &[("the Deployment and the Service were left alone", &|world| {
            kept.iter().all(Option::is_some) && kept == others(world)
        })],
    )?;
    stage.vouch()
}

fn end(stage: &mut Stage<'_>) -> Result<()> {
    stage.act("Spoil its HTML");
    patch(stage, &json!({ "html": BROKEN }));
    stage.expect(
        &[("the status says what is wrong", &|world| {
            let error = world.at("WebPage", "/status/errorMessage").and_then(Value::as_str);
            world.at("WebPage", "/status/areWeGood") == Some(&json!(false))
                && error.is_some_and(|text| !text.is_empty())
        })],
        &[("the last good page is still served", &|world| shows(world, TITLED) && has_base(world))],
    )?;

    stage.act("Delete the page");
    stage.kubectl("WebPage", &["delete", "webpage", PAGE]);
    let gone = |world: &World| {
        !["WebPage", "ConfigMap", "Deployment", "Service", "Ingress"].iter().any(|kind| world.has(kind))
    };
    stage.expect(&[("all that it had is gone too, by Kubernetes' garbage collection", &gone)], &[])
}

fn patch(stage: &mut Stage<'_>, spec: &Value) {
    let patch = json!({ "spec": spec }).to_string();
    stage.kubectl("WebPage", &["patch", "webpage", PAGE, "--type", "merge", "-p", &patch]);
}

fn shows(world: &World, html: &str) -> bool {
    world.at("ConfigMap", "/data/index.html") == Some(&json!(html))
}

fn has_base(world: &World) -> bool {
    ["ConfigMap", "Deployment", "Service"].iter().all(|kind| world.has(kind))
}

/// The status is about the page as it is now, and says that it is good.
fn is_good(world: &World) -> bool {
    let generation = world.at("WebPage", "/metadata/generation");
    generation.is_some()
        && world.at("WebPage", "/status/observedGeneration") == generation
        && world.at("WebPage", "/status/areWeGood") == Some(&json!(true))
}
