//! Kubeconfigs of other clusters, as whoever may write a Secret has put them there.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use capstan_core::budget::Budget;
use capstan_core::granted::KUBECONFIG_FOR;
use capstan_core::kubeconfig::{Credentials, Kubeconfig, REACHES};
use serde_json::{Value, json};

use crate::bounded::within_bounds;
use crate::{STEPS, with};

/// What stands for a secret.
const SECRET: &str = "s3cr3t-t0k3n";

/// A kubeconfig is used for its server and credentials or refused, and no message has anything secret of it.
pub fn kubeconfigs(data: &[u8]) {
    within_bounds(|| about(&secret(&String::from_utf8_lossy(data))));
    with(data, |documents| {
        let mut kubeconfig = kubeconfig();
        for _ in 0..documents.0.int_in_range(0..=4)? {
            documents.change(&mut kubeconfig)?;
        }
        let mut secret = secret(&kubeconfig.to_string());
        if documents.0.ratio(1, 4)? {
            documents.change(&mut secret)?;
        }
        within_bounds(|| about(&secret));
        Ok(())
    });
}

/// Returns one as it should be.
fn kubeconfig() -> Value {
    let authority = STANDARD.encode("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let cluster = json!({ "server": "https://edge.example:6443", "certificate-authority-data": authority });
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "edge",
        "clusters": [{ "name": "edge", "cluster": cluster }],
        "users": [{ "name": "pages", "user": { "token": SECRET } }],
        "contexts": [{ "name": "edge", "context": { "cluster": "edge", "user": "pages" } }],
    })
}

/// Returns a Secret that permits the operator to use this.
fn secret(kubeconfig: &str) -> Value {
    let annotations = json!({ REACHES: "edge.example" });
    json!({
        "apiVersion": "v1", "kind": "Secret", "data": { "kubeconfig": STANDARD.encode(kubeconfig) },
        "metadata": { "name": "edge", "labels": { KUBECONFIG_FOR: "pages" }, "annotations": annotations },
    })
}

fn about(secret: &Value) {
    let read =
        |operator: &str| Kubeconfig::of_secret(&secret.to_string(), "kubeconfig", operator, &mut Budget::of(STEPS));
    match read("pages") {
        Ok(kubeconfig) => {
            assert!(kubeconfig.server.starts_with("https://") && !kubeconfig.authority.is_empty());
            assert!(!format!("{kubeconfig:?}").contains(SECRET));
            if let Credentials::Token(token) = &kubeconfig.credentials {
                assert!(token.bytes().all(|byte| byte.is_ascii_graphic()), "it is no header's");
            }
        }
        Err(why) => assert!(!why.is_empty() && why.len() < 4_096 && !why.contains(SECRET), "{why}"),
    }
    assert!(read("others").is_err());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_as_it_should_be_is_used() {
        let secret = secret(&kubeconfig().to_string()).to_string();
        let read = Kubeconfig::of_secret(&secret, "kubeconfig", "pages", &mut Budget::of(STEPS));
        assert!(read.is_ok_and(|read| read.credentials == Credentials::Token(SECRET.to_owned())));
    }
}
