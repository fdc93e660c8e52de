//! Decides which objects are looked at, and what there is to tell when one of them changes.

use std::collections::BTreeMap;

use serde_json::Value;

/// The page of `plugins/webpage/example.yaml`.
pub(super) const PAGE: &str = "hello";

pub(super) struct Kind {
    pub(super) name: &'static str,
    /// Where its objects are; `NS` stands for the namespace.
    pub(super) path: &'static str,
    /// The fields that are told when they change.
    news: &'static [&'static str],
}

pub(super) const KINDS: [Kind; 5] = [
    Kind { name: "WebPage", path: "/apis/sample.capstan.dev/v1/namespaces/NS/webpages", news: PAGE_NEWS },
    Kind { name: "ConfigMap", path: "/api/v1/namespaces/NS/configmaps", news: &["/data/index.html"] },
    Kind { name: "Deployment", path: "/apis/apps/v1/namespaces/NS/deployments", news: &["/status/readyReplicas"] },
    Kind { name: "Service", path: "/api/v1/namespaces/NS/services", news: &[] },
    Kind { name: "Ingress", path: "/apis/networking.k8s.io/v1/namespaces/NS/ingresses", news: &[] },
];
const PAGE_NEWS: &[&str] =
    &["/spec/exposed", "/spec/html", "/status/areWeGood", "/status/errorMessage", "/status/observedGeneration"];
/// What the daemon says of the plugin.
pub(super) const PLUGIN: Kind = Kind { name: "plugin", path: "", news: &["/state", "/version", "/digest"] };

/// The page, the objects that it owns, and the plugin that looks after it, by their kinds, as last seen.
#[derive(Default)]
pub(super) struct World(BTreeMap<&'static str, Value>);

impl World {
    /// Takes in an object as it is now, or was at last; returns a mark and what is new about it, if that is to be told.
    pub(super) fn take(&mut self, kind: &Kind, object: Value, is_there: bool) -> Option<(char, String)> {
        if !is_ours(kind, &object) {
            return None;
        }
        if !is_there {
            return self.0.remove(kind.name).map(|_| ('-', String::new()));
        }
        let Some(before) = self.0.get(kind.name) else {
            self.0.insert(kind.name, object);
            return Some(('+', String::new()));
        };
        let news = kind.news.iter().filter_map(|pointer| {
            let (was, is) = (before.pointer(pointer), object.pointer(pointer));
            let field = pointer.rsplit('/').next()?;
            (was != is).then(|| is.map_or_else(|| format!("no {field}"), |value| format!("{field}: {}", plain(value))))
        });
        let news = news.collect::<Vec<_>>().join(", ");
        self.0.insert(kind.name, object);
        (!news.is_empty()).then_some(('~', news))
    }

    pub(super) fn has(&self, kind: &str) -> bool {
        self.0.contains_key(kind)
    }

    pub(super) fn at(&self, kind: &str, pointer: &str) -> Option<&Value> {
        self.0.get(kind)?.pointer(pointer)
    }

    /// Returns the object of a kind without what the cluster adds to it by and by.
    pub(super) fn written(&self, kind: &str) -> Option<Value> {
        let mut object = self.0.get(kind)?.clone();
        object.as_object_mut()?.remove("status");
        let metadata = object.get_mut("metadata")?.as_object_mut()?;
        metadata.retain(|field, _| field != "resourceVersion" && field != "managedFields");
        Some(object)
    }
}

fn is_ours(kind: &Kind, object: &Value) -> bool {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let is_page = |object: &Value, name| object.pointer(name).is_some_and(|name| name == PAGE);
    match kind.name {
        "plugin" => true,
        "WebPage" => is_page(object, "/metadata/name"),
        _ => owners.is_some_and(|all| all.iter().any(|it| is_page(it, "/name") && it["kind"] == "WebPage")),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), |text| text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn owned(owner: &str, rest: &Value) -> Value {
        let mut object = json!({ "metadata": { "ownerReferences": [{ "kind": "WebPage", "name": owner }] } });
        object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        object
    }

    #[test]
    fn an_object_is_told_when_it_comes_and_goes_and_between_by_what_is_new() {
        let mut world = World::default();
        let mut take = |kind: &Kind, object: Value, is_there| {
            let told = world.take(kind, object, is_there);
            told.map(|(mark, news)| format!("{mark} {news}")).unwrap_or_default()
        };
        let [page, map, deployment, ..] = &KINDS;
        let of_page = |spec: &str, status: Value| json!({ "metadata": { "name": "hello" }, "spec": { "html": spec }, "status": status });
        assert_eq!(take(page, of_page("a", json!({})), true), "+ ");
        assert_eq!(take(page, of_page("a", json!({ "other": 1 })), true), "");
        assert_eq!(take(page, of_page("<b>\n</b>", json!({})), true), "~ html: <b> </b>");
        assert_eq!(
            take(page, of_page("<b>\n</b>", json!({ "errorMessage": "no\nhtml" })), true),
            "~ errorMessage: no html"
        );
        assert_eq!(
            take(page, of_page("<b>\n</b>", json!({ "areWeGood": true })), true),
            "~ areWeGood: true, no errorMessage"
        );
        assert_eq!(take(deployment, owned("hello", &json!({})), true), "+ ");
        let ready = json!({ "status": { "readyReplicas": 1 } });
        assert_eq!(take(deployment, owned("hello", &ready), true), "~ readyReplicas: 1");
        let of_map = |html: &str| owned("hello", &json!({ "data": { "index.html": html } }));
        assert_eq!(take(map, of_map("a"), true), "+ ");
        assert_eq!(take(map, of_map("b"), true), "~ index.html: b");
        assert_eq!([take(map, of_map("b"), false), take(map, of_map("b"), false)], ["- ", ""]);
        assert_eq!(take(map, owned("another", &json!({})), true), "");
        assert_eq!(take(map, json!({ "metadata": { "name": "kube-root-ca.crt" } }), true), "");
        let of_plugin = |version: u64| json!({ "state": "active", "version": version, "digest": "5f3a" });
        assert_eq!([take(&PLUGIN, of_plugin(1), true), take(&PLUGIN, of_plugin(2), true)], ["+ ", "~ version: 2"]);
        assert_eq!(world.at("Deployment", "/status/readyReplicas"), Some(&json!(1)));
        assert!(world.has("WebPage") && !world.has("ConfigMap"));
    }

    #[test]
    fn what_is_written_to_an_object_is_told_apart_from_what_the_cluster_adds() {
        let written = |image: &str, version: &str| {
            let mut object = owned("hello", &json!({ "spec": { "image": image }, "status": { "version": version } }));
            object["metadata"]["resourceVersion"] = json!(version);
            let mut world = World::default();
            world.take(&KINDS[2], object, true);
            world.written("Deployment").unwrap()
        };
        assert_eq!(written("nginx", "1"), written("nginx", "2"));
        assert_ne!(written("nginx", "1"), written("apache", "1"));
    }
}
