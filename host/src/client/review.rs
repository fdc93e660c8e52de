//! Asks the API server what somebody may do.

use http::Method;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};

use super::{About, ApiServer, Identity, Kind, pulse};
use capstan_core::cluster::Error;

/// Where it is asked. Whoever is known to the API server may ask this about themselves.
const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

impl ApiServer {
    /// Says whether somebody may list the objects of a kind, in one namespace or everywhere (none). It is asked for in the name
    /// of who it is about, so it takes no right but to act in that name.
    ///
    /// # Errors
    /// As the request failed.
    pub async fn may_list(&self, who: &Identity, kind: &Kind, namespace: Option<&str>) -> Result<bool, Error> {
        let about = About { who, verb: "review the right to list", gvk: &kind.gvk, key: None };
        let attributes = ResourceAttributes {
            group: Some(kind.gvk.group.to_string()),
            resource: Some(kind.plural.to_string()),
            verb: Some("list".to_owned()),
            namespace: namespace.map(str::to_owned),
            ..ResourceAttributes::default()
        };
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(attributes),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let review = serde_json::to_string(&review).map_err(|e| about.invalid(&e))?;
        let body = Some(("application/json", &*review));
        // Nothing is stored for it.
        let answer = self.send(&about, Method::POST, PATH, body);
        let answer = self.whole(&about, pulse::Kind::Read, answer).await?;
        let answer: SelfSubjectAccessReview = serde_json::from_slice(&answer).map_err(|e| about.broken(&e))?;
        let status = answer.status.unwrap_or_default();
        Ok(status.allowed && status.denied != Some(true))
    }
}
