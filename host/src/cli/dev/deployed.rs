//! Finds daemons that the Helm chart has put into a cluster and that work on the same primaries, so that there are never two writers.

use std::collections::BTreeSet;
use std::path::Path;

use capstan_core::manifest::{self, Operator};
use capstan_core::object::Gvk;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Container};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, ObjectList};

use super::takeover;

/// The chart's label, and how its values begin.
const CHART: &str = "helm.sh/chart";
const CAPSTAN: &str = "capstan-";

/// Which release an object belongs to.
const RELEASE: &str = "app.kubernetes.io/instance";

/// Where the chart puts the manifests that are in `ConfigMap`s of the release, and the image looks for them.
const OPERATORS: &str = "/etc/capstan/operators";

/// A kind, everywhere (`None`) or in a namespace.
pub(super) type Place = (Gvk, Option<String>);

/// Returns the daemons that have controllers for primaries at any of these places, each as it is told to people: as far as one may look.
///
/// # Errors
/// If there is none where one may look, and one may not look everywhere, a daemon has manifests that are nowhere in the cluster, or the API server
/// does not answer.
pub(super) async fn find(client: &kube::Client, places: &BTreeSet<Place>) -> anyhow::Result<Vec<String>> {
    let of_chart = ListParams::default().labels(CHART);
    let deployments = Api::<Deployment>::all(client.clone()).list(&of_chart).await?;
    let (mut found, mut unseen) = (Vec::new(), None);
    let mut objects = false;
    for deployment in deployments {
        let Deployment { metadata, spec, .. } = &deployment;
        let label = |name: &str| metadata.labels.as_ref()?.get(name).cloned();
        let runs = spec.replicas != Some(0);
        let (Some(namespace), true, true) =
            (&metadata.namespace, runs, label(CHART).is_some_and(|chart| chart.starts_with(CAPSTAN)))
        else {
            continue;
        };
        let of_release = ListParams::default().labels(&format!("{RELEASE}={}", label(RELEASE).unwrap_or_default()));
        objects |= takes_objects(&deployment);
        let name = format!("deployment {} in namespace {namespace}", metadata.name.as_deref().unwrap_or_default());
        if let Some(path) = hidden(&deployment) {
            unseen.get_or_insert_with(|| {
                anyhow::anyhow!("{name} takes manifests from {path}, which can't be seen from here")
            });
        }
        let manifests = Api::<ConfigMap>::namespaced(client.clone(), namespace).list(&of_release).await;
        let manifests = seen(manifests, &mut unseen);
        let texts = manifests.iter().flat_map(|map| map.data.iter().flatten());
        let same = texts.flat_map(|(file, text)| same(file, text, places));
        found.extend(same.map(|what| format!("{name} runs {what}")));
    }
    if objects {
        let all = Api::<DynamicObject>::all_with(client.clone(), &operators()).list(&ListParams::default()).await;
        // What nobody runs has no state.
        for object in seen(all, &mut unseen).into_iter().filter(|object| object.data.pointer("/status/state").is_some())
        {
            let (name, namespace) = (object.metadata.name.clone(), object.metadata.namespace.clone());
            let of = format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default());
            let operator = serde_json::to_value(&object).ok().and_then(|object| {
                manifest::parse_object(&object, Path::new(&of), &manifest::Defaults::default()).ok()
            });
            found.extend(meeting(operator.iter(), places).map(|what| format!("the object {of} is {what}")));
        }
    }
    match unseen {
        Some(error) if found.is_empty() => Err(error),
        Some(_) | None => Ok(found),
    }
}

/// Returns what is in a list; nothing if it can't be had, and the first reason for that.
fn seen<T: Clone>(list: kube::Result<ObjectList<T>>, unseen: &mut Option<anyhow::Error>) -> Vec<T> {
    match list {
        Ok(list) => list.items,
        Err(error) => {
            unseen.get_or_insert(error.into());
            Vec::new()
        }
    }
}

/// Whether a daemon runs the operators that are objects of the cluster.
fn takes_objects(deployment: &Deployment) -> bool {
    containers(deployment).any(|container| told(container, &["--operators"], "CAPSTAN_OPERATORS").contains(&"cluster"))
}

/// Returns a path of manifests that are not those of the release.
fn hidden(deployment: &Deployment) -> Option<&str> {
    let manifests = |container| told(container, &["--manifest", "-m"], "CAPSTAN_MANIFESTS");
    containers(deployment).flat_map(manifests).find(|path| !Path::new(path).starts_with(OPERATORS))
}

fn containers(Deployment { spec, .. }: &Deployment) -> impl Iterator<Item = &Container> {
    spec.template.spec.iter().flat_map(|pod| &pod.containers)
}

/// Returns the values that a container is given by one of these flags, else by a variable; one that is elsewhere is told by its name.
fn told<'a>(container: &'a Container, flags: &[&str], variable: &'a str) -> Vec<&'a str> {
    let mut arguments = container.command.iter().chain(&container.args).flatten().map(String::as_str);
    let mut values = Vec::new();
    while let Some(argument) = arguments.next() {
        let rest = flags.iter().find_map(|flag| argument.strip_prefix(flag));
        match rest.map(|rest| (rest, rest.strip_prefix('='))) {
            Some(("", _)) => values.extend(arguments.next()),
            Some((_, Some(value))) => values.push(value),
            // As in `-m/etc/operators`.
            Some((value, None)) if !argument.starts_with("--") => values.push(value),
            Some((_, None)) | None => {}
        }
    }
    let set = || container.env.iter().flatten().find(|set| set.name == variable);
    if values.is_empty()
        && let Some(set) = set()
    {
        values.push(set.value.as_deref().unwrap_or(variable));
    }
    values.into_iter().flat_map(|value| value.split(',')).collect()
}

/// Returns the kind of operators.
fn operators() -> ApiResource {
    let kind = GroupVersionKind::gvk("capstan.dev", "v1alpha1", "Operator");
    ApiResource::from_gvk_with_plural(&kind, "operators")
}

/// Returns the operators of a file that have primaries at one of these places.
fn same(file: &str, text: &str, places: &BTreeSet<Place>) -> Vec<String> {
    let operators = manifest::parse(text, Path::new(file)).unwrap_or_default();
    meeting(operators.iter(), places).collect()
}

/// Returns those of operators that have primaries at one of these places.
fn meeting<'a>(
    operators: impl Iterator<Item = &'a Operator>,
    places: &BTreeSet<Place>,
) -> impl Iterator<Item = String> {
    let meets = |(kind, namespace): &Place, (other, theirs): &Place| {
        kind == other && (namespace.is_none() || theirs.is_none() || namespace == theirs)
    };
    operators.filter_map(move |operator| {
        let theirs = takeover::places(std::slice::from_ref(operator));
        let (kind, _) = places.iter().find(|place| theirs.iter().any(|other| meets(place, other)))?;
        Some(format!("operator {} for {kind}", operator.name))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::tests::{Answer, Step, scripted};

    #[tokio::test]
    async fn what_is_found_counts_though_one_may_not_look_everywhere() {
        let of_chart = |namespace: &str, arguments: &[&str]| {
            let labels = json!({ CHART: "capstan-1.0.0", RELEASE: "capstan" });
            let pod = json!({ "spec": { "containers": [{ "name": "capstan", "args": arguments }] } });
            json!({
                "metadata": { "name": "capstan", "namespace": namespace, "labels": labels },
                "spec": { "selector": {}, "template": pod },
            })
        };
        let controllers =
            json!({ "page": { "plugin": "web", "primary": { "apiVersion": "a.dev/v1", "kind": "Page" } } });
        let spec = json!({ "plugins": { "web": { "component": { "path": "web.wasm" } } }, "controllers": controllers });
        let operator = json!({
            "apiVersion": "capstan.dev/v1alpha1", "kind": "Operator", "metadata": { "name": "web" }, "spec": spec,
        });
        let places = BTreeSet::from([(Gvk::parse("a.dev/v1", "Page").unwrap(), None)]);
        let deployed = "deployment capstan in namespace b runs operator web for a.dev/v1 Page";
        for (mine, theirs, expected) in [
            (Some(true), Some(true), Ok(vec![deployed])),
            // The list of one namespace is refused, or that of the objects.
            (None, Some(true), Ok(vec![deployed])),
            (Some(false), Some(true), Ok(vec![deployed])),
            (None, Some(false), Err(())),
            (Some(false), Some(false), Err(())),
        ] {
            let text = operator.to_string();
            let (client, _) = scripted(move |path| {
                let list = |items: Vec<serde_json::Value>| {
                    let list = json!({ "kind": "List", "apiVersion": "v1", "metadata": {}, "items": items });
                    Answer(Some(200), vec![Step::Comes(list.to_string())])
                };
                let refused = || {
                    let status = json!({ "kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "no" });
                    Answer(Some(403), vec![Step::Comes(status.to_string())])
                };
                let maps = |there: Option<bool>| match there {
                    Some(true) => list(vec![json!({ "metadata": { "name": "m" }, "data": { "web.yaml": text } })]),
                    Some(false) => list(vec![]),
                    None => refused(),
                };
                match path.split('?').next().unwrap() {
                    "/apis/apps/v1/deployments" => {
                        list(vec![of_chart("a", &["run", "--operators=cluster"]), of_chart("b", &["run"])])
                    }
                    "/api/v1/namespaces/a/configmaps" => maps(mine.map(|_| false)),
                    "/api/v1/namespaces/b/configmaps" => maps(theirs),
                    "/apis/capstan.dev/v1alpha1/operators" if mine == Some(true) => list(vec![]),
                    other => {
                        assert_eq!(other, "/apis/capstan.dev/v1alpha1/operators");
                        refused()
                    }
                }
            });
            let found = find(&client, &places).await.map_err(drop);
            assert_eq!(
                found,
                expected.map(|found| found.into_iter().map(str::to_owned).collect()),
                "{mine:?} {theirs:?}"
            );
        }
    }

    #[test]
    fn manifests_that_do_not_belong_to_the_release_are_known_to_be_hidden() {
        let own = "/etc/capstan/operators";
        let deployed = |arguments: &[&str], environment: serde_json::Value| -> Deployment {
            let container = json!({ "name": "capstan", "args": arguments, "env": environment });
            let spec = json!({ "selector": {}, "template": { "spec": { "containers": [container] } } });
            serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap()
        };
        let by = |value: &str| json!([{ "name": "CAPSTAN_MANIFESTS", "value": value }]);
        let elsewhere = json!([{ "name": "CAPSTAN_MANIFESTS", "valueFrom": {} }]);
        for (arguments, environment, expected) in [
            (&["run"][..], json!([]), None),
            (&["run", "--manifest=/etc/capstan/operators"], json!([]), None),
            (
                &["run", "--manifest=/etc/capstan/operators", "--manifest=/etc/team/a.yaml"],
                json!([]),
                Some("/etc/team/a.yaml"),
            ),
            (&["run", "-m", "/etc/team"], json!([]), Some("/etc/team")),
            (&["run", "--manifest", "/etc/capstan/operators/a.yaml,/b"], json!([]), Some("/b")),
            (&["run", "--metrics-auth=token"], json!([]), None),
            (&["run"], by(own), None),
            (&["run"], by("/etc/capstan/operators,/etc/more"), Some("/etc/more")),
            (&["run", "--manifest=/etc/capstan/operators"], by("/etc/more"), None),
            (&["run"], elsewhere, Some("CAPSTAN_MANIFESTS")),
        ] {
            assert_eq!(hidden(&deployed(arguments, environment)), expected, "{arguments:?}");
        }
        let operators = |arguments: &[&str]| takes_objects(&deployed(arguments, json!([])));
        assert!(operators(&["run", "--operators=cluster"]) && operators(&["run", "--operators", "cluster"]));
        assert!(!operators(&["run"]) && !operators(&["run", "--operators=none"]));
        assert!(takes_objects(&deployed(&["run"], json!([{ "name": "CAPSTAN_OPERATORS", "value": "cluster" }]))));
    }

    #[tokio::test]
    async fn a_daemon_whose_manifests_are_hidden_is_told() {
        let (client, _) = scripted(|path| {
            let deployment = json!({
                "metadata": { "name": "capstan", "namespace": "a", "labels": { CHART: "capstan-1.0.0", RELEASE: "capstan" } },
                "spec": { "selector": {}, "template": { "spec": { "containers": [{ "name": "capstan", "args": ["run", "--manifest=/etc/team"] }] } } },
            });
            let items = if path.starts_with("/apis/apps/v1/deployments") { vec![deployment] } else { vec![] };
            let list = json!({ "kind": "List", "apiVersion": "v1", "metadata": {}, "items": items });
            Answer(Some(200), vec![Step::Comes(list.to_string())])
        });
        let places = BTreeSet::from([(Gvk::parse("a.dev/v1", "Page").unwrap(), None)]);
        let error = find(&client, &places).await.unwrap_err().to_string();
        assert_eq!(
            error,
            "deployment capstan in namespace a takes manifests from /etc/team, which can't be seen from here"
        );
    }

    #[test]
    fn a_manifest_with_a_controller_for_the_same_kind_is_found() {
        let text = "apiVersion: capstan.dev/v1alpha1
kind: Operator
metadata: { name: web }
spec:
  plugins: { web: { component: { path: web.wasm } } }
  controllers: { page: { plugin: web, primary: { apiVersion: a.dev/v1, kind: Page } } }
";
        let at = |kind, namespace: Option<&str>| {
            BTreeSet::from([(Gvk::parse("a.dev/v1", kind).unwrap(), namespace.map(str::to_owned))])
        };
        let found = ["operator web for a.dev/v1 Page"];
        assert_eq!(same("web.yaml", text, &at("Page", None)), found);
        assert_eq!(same("web.yaml", text, &at("Page", Some("a"))), found);
        assert!(same("web.yaml", text, &at("Site", None)).is_empty());
        assert!(same("web.yaml", "x: 1", &at("Page", None)).is_empty());
        let listed = text.replace("kind: Page }", "kind: Page }, namespaces: [b]");
        assert_eq!(same("web.yaml", &listed, &at("Page", Some("b"))), found);
        assert!(same("web.yaml", &listed, &at("Page", Some("a"))).is_empty());
    }
}
