//! What is sent to the API server for what is asked of it, as values.

use bytes::Bytes;
use capstan_core::cluster::{Deletion, Target, Verb, Write};
use capstan_core::object::{Gvk, ObjectRef, Version};
use http::{Method, Request};
use serde_json::{Value, json};

use super::{Identity, Kind, USER_AGENT};

/// A request, or why there can be none.
pub(crate) type Asked = http::Result<Request<Bytes>>;

const JSON: &str = "application/json";

/// Asks for the metadata of an object, or of a list, and for whole objects where the API server knows no other form.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Which objects of a kind are listed or watched; `None` stands for all.
pub(crate) struct Selection<'a> {
    pub(crate) namespace: Option<&'a str>,
    pub(crate) labels: Option<&'a str>,
    pub(crate) fields: Option<&'a str>,
    pub(crate) shard: Option<&'a str>,
    pub(crate) form: Form,
}

/// How much is sent of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    /// All of them.
    #[default]
    Whole,
    /// Their metadata.
    Metadata,
}

/// Asks which kinds there are of this group and version.
pub(super) fn discover(gvk: &Gvk) -> Asked {
    Identity::Daemon.asks(Method::GET, &group_path(gvk), None)
}

/// Asks for the document that has the schemas of this group and version.
pub(super) fn published(gvk: &Gvk) -> Asked {
    Identity::Daemon.asks(Method::GET, &format!("/openapi/v3{}", group_path(gvk)), None)
}

/// Asks for an object.
pub(super) fn get(who: &Identity, kind: &Kind, target: &Target) -> Asked {
    who.asks(Method::GET, &kind.object_path(target), None)
}

/// Asks for an object as a list has it, for which the right to list is enough.
pub(super) fn look(who: &Identity, kind: &Kind, key: &ObjectRef) -> Asked {
    let (namespace, name) = (key.namespace.as_deref(), format!("metadata.name={}", key.name));
    let which = Selection { namespace, labels: None, fields: Some(&name), shard: None, form: Form::Whole };
    who.asks(Method::GET, &which.path(kind, []), None)
}

/// Asks for a page of so many objects, behind those that end with `next`.
pub(crate) fn page(kind: &Kind, which: &Selection<'_>, limit: u32, next: Option<&str>) -> Asked {
    let path = which.path(kind, [("limit", Some(&*limit.to_string())), ("continue", next)]);
    let accept = match which.form {
        Form::Whole => JSON,
        Form::Metadata => METADATA_LIST,
    };
    Identity::Daemon.asks_for(accept, Method::GET, &path, None)
}

/// Asks for changes from a version on, for so many seconds; without one, for all objects and then their changes.
pub(crate) fn watch(kind: &Kind, which: &Selection<'_>, from: Option<Version>, seconds: u64) -> Asked {
    let (from, seconds) = (from.map(|from| from.to_string()), seconds.to_string());
    let initial = |value| from.is_none().then_some(value);
    let parameters = [
        ("watch", Some("true")),
        ("sendInitialEvents", initial("true")),
        ("resourceVersionMatch", initial("NotOlderThan")),
        ("resourceVersion", from.as_deref()),
        ("allowWatchBookmarks", Some("true")),
        ("timeoutSeconds", Some(&*seconds)),
    ];
    let accept = match which.form {
        Form::Whole => JSON,
        Form::Metadata => METADATA,
    };
    Identity::Daemon.asks_for(accept, Method::GET, &which.path(kind, parameters), None)
}

/// Whether the API server carries a write out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// It does.
    CarriedOut,
    /// It answers what that would lead to.
    DryRun,
}

/// Asks for a write.
pub(super) fn write(who: &Identity, kind: &Kind, write: &Write, how: Manner) -> Asked {
    let Write { target, verb, .. } = write;
    let object = || kind.object_path(target);
    let (method, path, manager, content) = match verb {
        Verb::Create { manager, .. } if target.subresource.is_none() => {
            (Method::POST, kind.path(target.key.namespace.as_deref()), manager, JSON)
        }
        Verb::Create { manager, .. } => (Method::POST, object(), manager, JSON),
        Verb::Replace { manager, .. } => (Method::PUT, object(), manager, JSON),
        Verb::Apply { manager, .. } => (Method::PATCH, object(), manager, "application/apply-patch+yaml"),
        Verb::JsonPatch { manager, .. } => (Method::PATCH, object(), manager, "application/json-patch+json"),
        Verb::MergePatch { manager, .. } => (Method::PATCH, object(), manager, "application/merge-patch+json"),
        Verb::Delete(deletion) => {
            return who.asks(Method::DELETE, &object(), Some((JSON, options(deletion).to_string())));
        }
    };
    let forced = matches!(verb, Verb::Apply { force: true, .. }).then_some("true");
    let dry = (how == Manner::DryRun).then_some("All");
    let validation = write.validated().parameter();
    let path = with(
        path,
        [("fieldManager", Some(&**manager)), ("fieldValidation", Some(validation)), ("force", forced), ("dryRun", dry)],
    );
    who.asks(method, &path, Some((content, verb.body().into_owned())))
}

/// Asks whether somebody may list the objects of a kind, in one namespace or everywhere (`None`). Whoever is known to the API server
/// may ask this about themselves.
pub(super) fn review(who: &Identity, kind: &Kind, namespace: Option<&str>) -> Asked {
    let attributes =
        json!({ "group": &*kind.gvk.group, "resource": &*kind.plural, "verb": "list", "namespace": namespace });
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": attributes },
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    who.asks(Method::POST, path, Some((JSON, review.to_string())))
}

fn options(Deletion { propagation, uid, version, grace_seconds }: &Deletion) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": propagation,
        "gracePeriodSeconds": grace_seconds,
        "preconditions": { "uid": uid, "resourceVersion": version },
    })
}

fn group_path(gvk: &Gvk) -> String {
    let prefix = if gvk.group.is_empty() { "/api" } else { "/apis" };
    format!("{prefix}/{}", gvk.api_version())
}

/// Returns a path with these parameters, without those that have no value.
fn with<'a>(path: String, parameters: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) -> String {
    let given = parameters.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let start = path.len() + 1;
    form_urlencoded::Serializer::for_suffix(path + "?", start).extend_pairs(given).finish()
}

impl Identity {
    /// Returns a request in this name, with a body of this type.
    pub(super) fn asks(&self, method: Method, path: &str, body: Option<(&'static str, String)>) -> Asked {
        self.asks_for(JSON, method, path, body)
    }

    /// Returns a request in this name for an answer of the type `accept`.
    fn asks_for(&self, accept: &str, method: Method, path: &str, body: Option<(&'static str, String)>) -> Asked {
        let mut request = Request::builder().method(method).uri(path).header("user-agent", USER_AGENT);
        request = request.header("accept", accept);
        // This header alone: with the groups left out, the API server fills in those of the service account.
        if let Self::Operator(user) = self {
            request = request.header("impersonate-user", user.clone());
        }
        let Some((content, text)) = body else {
            return request.body(Bytes::new());
        };
        request.header("content-type", content).body(text.into())
    }
}

impl Selection<'_> {
    fn path<'a>(&'a self, kind: &Kind, parameters: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) -> String {
        let Self { namespace, labels, fields, shard, form: _ } = *self;
        let selectors = [("labelSelector", labels), ("fieldSelector", fields), ("shardSelector", shard)];
        with(kind.path(namespace), parameters.into_iter().chain(selectors))
    }
}

impl Kind {
    fn path(&self, namespace: Option<&str>) -> String {
        let root = group_path(&self.gvk);
        match namespace {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{}", self.plural),
            None => format!("{root}/{}", self.plural),
        }
    }

    fn object_path(&self, Target { key, subresource, .. }: &Target) -> String {
        let path = format!("{}/{}", self.path(key.namespace.as_deref()), key.name);
        match subresource {
            Some(subresource) => format!("{path}/{subresource}"),
            None => path,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use capstan_core::budget::Budget;
    use capstan_core::cluster::{FieldValidation, Propagation};
    use capstan_core::patch::Patch;
    use http::HeaderValue;

    use super::*;
    use crate::client::tests::config_maps;

    /// Writes a request as `METHOD path`, with its type and body if it has one.
    fn written(asked: Asked) -> String {
        let request = asked.unwrap();
        let line = format!("{} {}", request.method(), request.uri());
        let Some(content) = request.headers().get("content-type") else {
            assert!(request.body().is_empty());
            return line;
        };
        let [content, body] = [content.as_bytes(), request.body()].map(|text| std::str::from_utf8(text).unwrap());
        format!("{line} {content} {body}")
    }

    fn maps() -> Target {
        Target::object(config_maps().gvk, ObjectRef::namespaced("n", "a"))
    }

    #[test]
    fn each_read_has_its_path_and_query() {
        let (daemon, kind) = (&Identity::Daemon, config_maps());
        let pages = Gvk::parse("sample.dev/v1", "Page").unwrap();
        let form = Form::Whole;
        let all = Selection { namespace: None, labels: None, fields: None, shard: None, form };
        let fields = Some("metadata.namespace!=m");
        let some = Selection { namespace: Some("n"), labels: Some("a=b,c"), fields, shard: None, form };
        let shard = Selection { shard: Some("shardRange(a, 'b')"), ..all };
        for (asked, expected) in [
            (discover(&kind.gvk), "/api/v1"),
            (discover(&pages), "/apis/sample.dev/v1"),
            (published(&pages), "/openapi/v3/apis/sample.dev/v1"),
            (get(daemon, &kind, &maps()), "/api/v1/namespaces/n/configmaps/a"),
            (look(daemon, &kind, &maps().key), "/api/v1/namespaces/n/configmaps?fieldSelector=metadata.name%3Da"),
            (page(&kind, &all, 500, None), "/api/v1/configmaps?limit=500"),
            (
                page(&kind, &some, 1, Some("a/+=")),
                "/api/v1/namespaces/n/configmaps?limit=1&continue=a%2F%2B%3D&labelSelector=a%3Db%2Cc&fieldSelector=metadata.namespace%21%3Dm",
            ),
            (page(&kind, &shard, 7, None), "/api/v1/configmaps?limit=7&shardSelector=shardRange%28a%2C+%27b%27%29"),
            (
                watch(&kind, &all, None, 9),
                "/api/v1/configmaps?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=9",
            ),
            (
                watch(&kind, &some, Some(Version(7)), 9),
                "/api/v1/namespaces/n/configmaps?watch=true&resourceVersion=7&allowWatchBookmarks=true&timeoutSeconds=9&labelSelector=a%3Db%2Cc&fieldSelector=metadata.namespace%21%3Dm",
            ),
        ] {
            assert_eq!(written(asked), format!("GET {expected}"));
        }
    }

    #[test]
    fn metadata_alone_are_asked_for_where_nothing_else_is_kept() {
        // BC-2
        let all = Selection { namespace: None, labels: None, fields: None, shard: None, form: Form::Whole };
        let metadata = Selection { form: Form::Metadata, ..all };
        let kind = config_maps();
        for (asked, accepted) in [
            (page(&kind, &all, 500, None), JSON),
            (watch(&kind, &all, None, 9), JSON),
            (page(&kind, &metadata, 500, None), METADATA_LIST),
            (watch(&kind, &metadata, None, 9), METADATA),
        ] {
            assert_eq!(asked.unwrap().headers()["accept"], accepted);
        }
    }

    #[test]
    fn each_verb_has_its_method_path_type_and_body() {
        let manager = || Arc::from("a b");
        let body = || r#"{"a":1}"#.to_owned();
        let status = Target { subresource: Some("status".into()), ..maps() };
        let patch = Patch::read(r#"[{"op":"remove","path":"/a"}]"#, &mut Budget::of_run()).unwrap();
        let apply = |force| Verb::Apply { body: body(), manager: manager(), force };
        let create = || Verb::Create { body: body(), manager: manager() };
        let exact = Deletion {
            propagation: Some(Propagation::Orphan),
            uid: Some("u".to_owned()),
            version: Some("7".to_owned()),
            grace_seconds: Some(0),
        };
        for (target, verb, expected) in [
            (maps(), create(), r#"POST ?Strict application/json {"a":1}"#),
            (status.clone(), create(), r#"POST /a/status?Strict application/json {"a":1}"#),
            (maps(), Verb::Replace { body: body(), manager: manager() }, r#"PUT /a?Warn application/json {"a":1}"#),
            (maps(), apply(false), r#"PATCH /a?Strict application/apply-patch+yaml {"a":1}"#),
            (status, apply(true), r#"PATCH /a/status?Strict&force=true application/apply-patch+yaml {"a":1}"#),
            (
                maps(),
                Verb::JsonPatch { patch, manager: manager() },
                r#"PATCH /a?Strict application/json-patch+json [{"op":"remove","path":"/a"}]"#,
            ),
            (
                maps(),
                Verb::MergePatch { body: body(), manager: manager() },
                r#"PATCH /a?Strict application/merge-patch+json {"a":1}"#,
            ),
            (
                maps(),
                Verb::Delete(Deletion::default()),
                r#"DELETE /a application/json {"apiVersion":"v1","gracePeriodSeconds":null,"kind":"DeleteOptions","preconditions":{"resourceVersion":null,"uid":null},"propagationPolicy":null}"#,
            ),
            (
                maps(),
                Verb::Delete(exact),
                r#"DELETE /a application/json {"apiVersion":"v1","gracePeriodSeconds":0,"kind":"DeleteOptions","preconditions":{"resourceVersion":"7","uid":"u"},"propagationPolicy":"Orphan"}"#,
            ),
        ] {
            let strict = Write::new(target, verb, FieldValidation::Strict);
            let asked = written(write(&Identity::Daemon, &config_maps(), &strict, Manner::CarriedOut));
            let asked = asked.replacen("fieldManager=a+b&fieldValidation=", "", 1);
            assert_eq!(asked.replacen("/api/v1/namespaces/n/configmaps", "", 1), expected);
        }
    }

    #[test]
    fn a_request_says_who_asks_and_a_review_about_whom() {
        let operator = Identity::Operator(HeaderValue::from_static("web"));
        for (who, named) in [(&Identity::Daemon, None), (&operator, Some("web"))] {
            let request = get(who, &config_maps(), &maps()).unwrap();
            let header = |name| request.headers().get(name).map(|value| value.to_str().unwrap());
            let found = ["user-agent", "accept", "impersonate-user"].map(header);
            assert_eq!(found, [Some(USER_AGENT), Some("application/json"), named]);
        }
        let attributes = r#"{"group":"","namespace":null,"resource":"configmaps","verb":"list"}"#;
        let expected = format!(
            r#"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews application/json {{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{{"resourceAttributes":{attributes}}}}}"#
        );
        assert_eq!(written(review(&operator, &config_maps(), None)), expected);
    }
}
