//! Decides who may do what: everything, unless a test says otherwise.

use serde_json::{Value, json};

use crate::kinds::full_name;
use crate::request::{Asked, Place};
use crate::status::Refusal;

/// What a user may not do. A field that is `None` stands for all values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Denied {
    /// The user.
    pub user: Option<String>,
    /// The verb, as RBAC has it: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`.
    pub verb: Option<String>,
    /// The kind, as `deployments.apps`.
    pub kind: Option<String>,
    /// The namespace.
    pub namespace: Option<String>,
}

/// What may not be done, and the answer to reviews of rights.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rights {
    pub(crate) denied: Vec<Denied>,
    /// The answer to all reviews; `None` = the truth.
    pub(crate) reviews: Option<bool>,
}

/// What a user wants to do.
struct Wish<'a> {
    user: &'a str,
    verb: &'a str,
    kind: &'a str,
    namespace: Option<&'a str>,
}

impl Denied {
    fn covers(&self, wish: &Wish<'_>) -> bool {
        let is = |mine: &Option<String>, theirs: &str| mine.as_deref().is_none_or(|mine| mine == theirs);
        // A user who may not do it in one namespace may not do it in all of them at once.
        let namespace = wish.namespace.is_none_or(|namespace| is(&self.namespace, namespace));
        is(&self.user, wish.user) && is(&self.verb, wish.verb) && is(&self.kind, wish.kind) && namespace
    }
}

impl Rights {
    fn allow(&self, wish: &Wish<'_>) -> bool {
        !self.denied.iter().any(|denied| denied.covers(wish))
    }

    /// Refuses a request that is not permitted, whether or not the kind is served.
    pub(crate) fn check(&self, asked: &Asked, place: &Place) -> Result<(), Refusal> {
        let part = place.subresource.as_ref().map_or_else(String::new, |part| format!("/{part}"));
        let verb = asked.verb(place);
        let group = place.group();
        let kind = full_name(&place.plural, group);
        let wish = Wish { user: &asked.user, verb, kind: &kind, namespace: place.namespace.as_deref() };
        if self.allow(&wish) {
            return Ok(());
        }
        let scope = match &place.namespace {
            Some(namespace) => format!(" in the namespace {namespace:?}"),
            None => " at the cluster scope".to_owned(),
        };
        let (user, plural) = (&asked.user, &place.plural);
        let why = format!("User {user:?} cannot {verb} resource \"{plural}{part}\" in API group {group:?}{scope}");
        Err(Refusal::forbidden((plural, group), place.name.as_deref().unwrap_or_default(), &why))
    }

    /// Answers a `SelfSubjectAccessReview`; `None` if it is another request.
    pub(crate) fn review(&self, asked: &Asked, place: &Place) -> Option<Result<Value, Refusal>> {
        let reviews = place.api_version == "authorization.k8s.io/v1" && place.plural == "selfsubjectaccessreviews";
        if !reviews || asked.method != http::Method::POST {
            return None;
        }
        let Some(mut review) = asked.json().filter(Value::is_object) else {
            return Some(Err(Refusal::bad("the body is no SelfSubjectAccessReview")));
        };
        let attributes = review.pointer("/spec/resourceAttributes").cloned().unwrap_or_default();
        let text = |field: &str| attributes.get(field).and_then(Value::as_str).unwrap_or_default();
        let kind = match (text("resource"), text("group")) {
            (resource, "") => resource.to_owned(),
            (resource, group) => format!("{resource}.{group}"),
        };
        let wish = Wish {
            user: &asked.user,
            verb: text("verb"),
            kind: &kind,
            namespace: Some(text("namespace")).filter(|namespace| !namespace.is_empty()),
        };
        let allowed = self.reviews.unwrap_or_else(|| self.allow(&wish));
        if let Some(review) = review.as_object_mut() {
            review.insert("kind".to_owned(), "SelfSubjectAccessReview".into());
            review.insert("apiVersion".to_owned(), "authorization.k8s.io/v1".into());
            review.insert("status".to_owned(), json!({ "allowed": allowed }));
            review.entry("metadata").or_insert_with(|| json!({}));
        }
        Some(Ok(review))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_in_one_namespace_may_not_in_all() {
        let denied = Denied { verb: Some("list".to_owned()), namespace: Some("a".to_owned()), ..Denied::default() };
        let wish = |verb, namespace| Wish { user: "u", verb, kind: "configmaps", namespace };
        let table =
            [("list", Some("a"), true), ("list", Some("b"), false), ("list", None, true), ("get", Some("a"), false)];
        for (verb, namespace, expected) in table {
            assert_eq!(denied.covers(&wish(verb, namespace)), expected, "{verb} {namespace:?}");
        }
    }
}
