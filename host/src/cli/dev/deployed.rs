//! Finds daemons that the Helm chart has put into a cluster and that work on the same primaries, so that there are never two writers.

use std::collections::BTreeSet;
use std::path::Path;

use capstan_core::manifest::{self, Operator};
use capstan_core::object::Gvk;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};

use super::takeover;

/// The chart's label, and how its values begin.
const CHART: &str = "helm.sh/chart";
const CAPSTAN: &str = "capstan-";

/// Which release an object belongs to.
const RELEASE: &str = "app.kubernetes.io/instance";

/// A kind, everywhere (`None`) or in a namespace.
type Place = (Gvk, Option<String>);

/// Returns the daemons that have controllers for primaries at any of these places, each as it is told to people.
///
/// # Errors
/// If one may not look, or the API server does not answer.
pub(super) async fn find(client: &kube::Client, places: &BTreeSet<Place>) -> anyhow::Result<Vec<String>> {
    let of_chart = ListParams::default().labels(CHART);
    let deployments = Api::<Deployment>::all(client.clone()).list(&of_chart).await?;
    let mut found = Vec::new();
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
        let manifests = Api::<ConfigMap>::namespaced(client.clone(), namespace).list(&of_release).await?;
        let texts = manifests.iter().flat_map(|map| map.data.iter().flatten());
        let same = texts.flat_map(|(file, text)| same(file, text, places));
        found.extend(same.map(|what| {
            format!("deployment {} in namespace {namespace} runs {what}", metadata.name.as_deref().unwrap_or_default())
        }));
    }
    if objects {
        let all = Api::<DynamicObject>::all_with(client.clone(), &operators()).list(&ListParams::default()).await?;
        for object in all {
            let (name, namespace) = (object.metadata.name.clone(), object.metadata.namespace.clone());
            let of = format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default());
            let operator = serde_json::to_value(&object).ok().and_then(|object| {
                manifest::parse_object(&object, Path::new(&of), &manifest::Defaults::default()).ok()
            });
            found.extend(meeting(operator.iter(), places).map(|what| format!("the object {of} is {what}")));
        }
    }
    Ok(found)
}

/// Whether a daemon runs the operators that are objects of the cluster.
fn takes_objects(Deployment { spec, .. }: &Deployment) -> bool {
    let containers = spec.template.spec.iter().flat_map(|pod| &pod.containers);
    let mut arguments = containers.flat_map(|container| container.args.iter().flatten());
    arguments.any(|argument| argument == "--operators=cluster")
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
    use super::*;

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
