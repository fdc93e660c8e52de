//! Decides what a Secret or ConfigMap of the daemon's own namespace gives an operator: nothing, unless its label names the operator
//! (CV rules).
//!
//! Whoever writes the manifest names the object; whoever runs the daemon labels it. No message has anything of its values.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::budget::Budget;
use crate::text::said_within;

/// The label of a Secret or ConfigMap that permits its values to operators as `config`: one name, or several with `_` between them.
pub const CONFIG_FOR: &str = "capstan.dev/config-for";

/// The label of a Secret that permits its kubeconfig to operators, in the same way.
pub const KUBECONFIG_FOR: &str = "capstan.dev/kubeconfig-for";

/// The key of a Secret that has what images are pulled with, and the type of such a Secret.
pub const PULL_KEY: &str = ".dockerconfigjson";
const PULL_SECRET: &str = "kubernetes.io/dockerconfigjson";

/// The most bytes of a value of `config`.
pub const LONGEST_VALUE: usize = 64 << 10;

/// The types of Secrets that hold somebody's credentials for the cluster or its images, with what they are. No component is given these.
const CREDENTIALS: [(&str, &str); 5] = [
    ("kubernetes.io/service-account-token", "the token of a service account"),
    ("bootstrap.kubernetes.io/token", "a token with which nodes join the cluster"),
    ("kubernetes.io/dockercfg", "what images are pulled with"),
    (PULL_SECRET, "what images are pulled with"),
    ("helm.sh/release.v1", "a release of Helm, with all values in it"),
];

/// What has values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// A Secret.
    Secret,
    /// A ConfigMap.
    ConfigMap,
    /// A Secret with what images are pulled with: only the daemon itself is given what is in it.
    PullSecret,
}

/// Returns what an object, given as JSON, has under a key, as a value of `config` for an operator.
///
/// # Errors
/// Why it is not given: the object does not permit it to the operator, is one that no operator is given, or has no such text.
pub fn value((holder, json): (Holder, &str), key: &str, operator: &str, budget: &mut Budget) -> Result<String, String> {
    let object = read(json, budget)?;
    names(&object, CONFIG_FOR, operator)?;
    if holder == Holder::PullSecret && object.get("type").and_then(Value::as_str) != Some(PULL_SECRET) {
        return Err(format!("its type is not {PULL_SECRET}"));
    }
    if let Some(what) = owned(&object).filter(|_| holder != Holder::PullSecret) {
        return Err(format!("it is {what}, which no component is given, whatever its labels say"));
    }
    let longest = LONGEST_VALUE;
    match holder {
        Holder::Secret | Holder::PullSecret => decoded(&object, key, longest),
        Holder::ConfigMap => plain(&object, key, longest),
    }
}

/// Returns the text under a key of a Secret, given as JSON, and the Secret, if a label names the operator.
///
/// # Errors
/// Why not.
pub(crate) fn secret(
    json: &str,
    (label, operator): (&str, &str),
    (key, longest): (&str, usize),
    budget: &mut Budget,
) -> Result<(String, Value), String> {
    let secret = read(json, budget)?;
    names(&secret, label, operator)?;
    Ok((decoded(&secret, key, longest)?, secret))
}

impl Holder {
    /// Returns the name of the kind.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Secret | Self::PullSecret => "Secret",
            Self::ConfigMap => "ConfigMap",
        }
    }

    /// Returns the plural in lower case, as roles name it.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Secret | Self::PullSecret => "secrets",
            Self::ConfigMap => "configmaps",
        }
    }
}

fn read(json: &str, budget: &mut Budget) -> Result<Value, String> {
    budget.read(json).map_err(|_| "it is too large, or can't be read".to_owned())
}

fn label<'a>(object: &'a Value, label: &str) -> Option<&'a str> {
    object.get("metadata")?.get("labels")?.get(label)?.as_str()
}

/// Finds that a label does not name an operator.
fn names(object: &Value, key: &str, operator: &str) -> Result<(), String> {
    match label(object, key) {
        Some(names) if names.split('_').any(|name| name == operator) => Ok(()),
        Some(_) | None => Err(format!("its label {key} does not name the operator {operator}")),
    }
}

/// Says what an object is, if it is one of the daemon's own, or somebody's credentials.
fn owned(object: &Value) -> Option<&'static str> {
    if label(object, KUBECONFIG_FOR).is_some() {
        return Some("a kubeconfig of another cluster");
    }
    if label(object, "helm.sh/chart").is_some_and(|chart| chart.starts_with("capstan-")) {
        return Some("one of the daemon's own");
    }
    let found = object.get("type")?.as_str()?;
    CREDENTIALS.iter().find(|(credentials, _)| *credentials == found).map(|(_, what)| *what)
}

/// Returns a text of a Secret's data.
fn decoded(secret: &Value, key: &str, longest: usize) -> Result<String, String> {
    let Some(text) = data(secret, key) else {
        return Err(lacks(secret, key));
    };
    // Without the padding that a shorter text may have.
    if text.len() / 4 * 3 > longest + 2 {
        return Err(too_long(key, longest));
    }
    let text = text_in(text).ok_or_else(|| format!("its {key:?} is no text"))?;
    if text.len() > longest { Err(too_long(key, longest)) } else { Ok(text) }
}

/// Returns the text that some base64 stands for, if it is one.
pub(crate) fn text_in(base64: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(base64).ok()?).ok()
}

/// Returns a text of a ConfigMap's data.
fn plain(map: &Value, key: &str, longest: usize) -> Result<String, String> {
    match data(map, key) {
        Some(text) if text.len() > longest => Err(too_long(key, longest)),
        Some(text) => Ok(text.to_owned()),
        None if map.get("binaryData").is_some_and(|data| data.get(key).is_some()) => {
            Err(format!("its {key:?} is no text: it is among `binaryData`"))
        }
        None => Err(lacks(map, key)),
    }
}

fn data<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("data")?.get(key)?.as_str()
}

fn too_long(key: &str, longest: usize) -> String {
    format!("its {key:?} is longer than {longest} bytes")
}

fn lacks(object: &Value, key: &str) -> String {
    let data = object.get("data").and_then(Value::as_object);
    let there = data.map(|data| data.keys().map(String::as_str).collect::<Vec<_>>().join(", "));
    match there {
        Some(there) if !there.is_empty() => format!("it has no {key:?}; there is: {}", said_within(&there, 200)),
        Some(_) | None => format!("it has no {key:?}; it is empty"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(holder: Holder, object: &Value) -> String {
        value((holder, &object.to_string()), "password", "pages", &mut Budget::of_run()).unwrap_or_else(|why| why)
    }

    #[test]
    fn a_value_is_given_to_whom_the_label_names() {
        // CV-2
        let refused = "its label capstan.dev/config-for does not name the operator pages";
        for (label, expected) in [
            (json!("pages"), "secret"),
            (json!("shop_pages"), "secret"),
            (json!("pages2"), refused),
            (json!("shop"), refused),
            (json!(""), refused),
            (json!(null), refused),
        ] {
            let secret = json!({ "metadata": { "labels": { CONFIG_FOR: label } }, "data": { "password": "c2VjcmV0" } });
            assert_eq!(found(Holder::Secret, &secret), expected, "{label}");
            let map = json!({ "metadata": { "labels": { CONFIG_FOR: label } }, "data": { "password": "secret" } });
            assert_eq!(found(Holder::ConfigMap, &map), expected, "{label}");
        }
        assert_eq!(found(Holder::Secret, &json!({ "data": { "password": "c2VjcmV0" } })), refused);
    }

    #[test]
    fn what_images_are_pulled_with_is_given_to_the_daemon_alone() {
        // OC-3
        let secret = |kind: &str, label: &str| json!({ "type": kind, "metadata": { "labels": { CONFIG_FOR: label } }, "data": { PULL_KEY: "e30=" } });
        let given = |holder, secret: Value| {
            value((holder, &secret.to_string()), PULL_KEY, "pages", &mut Budget::of_run()).unwrap_or_else(|why| why)
        };
        for (holder, kind, label, expected) in [
            (Holder::PullSecret, PULL_SECRET, "pages", "{}"),
            (
                Holder::PullSecret,
                PULL_SECRET,
                "shop",
                "its label capstan.dev/config-for does not name the operator pages",
            ),
            (Holder::PullSecret, "Opaque", "pages", "its type is not kubernetes.io/dockerconfigjson"),
            (
                Holder::Secret,
                PULL_SECRET,
                "pages",
                "it is what images are pulled with, which no component is given, whatever its labels say",
            ),
        ] {
            assert_eq!(given(holder, secret(kind, label)), expected, "{holder:?} {kind} {label}");
        }
    }

    #[test]
    fn what_is_the_daemons_own_or_somebodys_credentials_is_given_to_nobody() {
        // CV-2
        let never = |what: &str| format!("it is {what}, which no component is given, whatever its labels say");
        for (labels, kind, expected) in [
            (json!({}), "Opaque", "secret".to_owned()),
            (json!({}), "kubernetes.io/basic-auth", "secret".to_owned()),
            (json!({}), "kubernetes.io/tls", "secret".to_owned()),
            (json!({ "helm.sh/chart": "shop-1.0.0" }), "Opaque", "secret".to_owned()),
            (json!({ "helm.sh/chart": "capstan-0.1.0" }), "Opaque", never("one of the daemon's own")),
            (json!({ KUBECONFIG_FOR: "pages" }), "Opaque", never("a kubeconfig of another cluster")),
            (json!({}), "kubernetes.io/service-account-token", never("the token of a service account")),
            (json!({}), "bootstrap.kubernetes.io/token", never("a token with which nodes join the cluster")),
            (json!({}), "kubernetes.io/dockercfg", never("what images are pulled with")),
            (json!({}), "kubernetes.io/dockerconfigjson", never("what images are pulled with")),
            (json!({}), "helm.sh/release.v1", never("a release of Helm, with all values in it")),
        ] {
            let mut secret =
                json!({ "metadata": { "labels": labels }, "type": kind, "data": { "password": "c2VjcmV0" } });
            secret["metadata"]["labels"][CONFIG_FOR] = json!("pages");
            assert_eq!(found(Holder::Secret, &secret), expected, "{labels} {kind}");
        }
    }

    #[test]
    fn what_is_no_text_or_too_long_is_refused_and_nothing_of_it_is_said() {
        // CV-2
        let long = "x".repeat(LONGEST_VALUE + 1);
        let right = "x".repeat(LONGEST_VALUE);
        for (data, secret, map) in [
            (json!({}), r#"it has no "password"; it is empty"#, r#"it has no "password"; it is empty"#),
            (
                json!({ "user": "eA==" }),
                r#"it has no "password"; there is: user"#,
                r#"it has no "password"; there is: user"#,
            ),
            (json!({ "password": "?" }), r#"its "password" is no text"#, "?"),
            (json!({ "password": STANDARD.encode([0xff]) }), r#"its "password" is no text"#, "/w=="),
            (
                json!({ "password": STANDARD.encode(&long) }),
                r#"its "password" is longer than 65536 bytes"#,
                r#"its "password" is longer than 65536 bytes"#,
            ),
            (json!({ "password": STANDARD.encode(&right) }), &right, r#"its "password" is longer than 65536 bytes"#),
            (json!({ "password": right }), r#"its "password" is no text"#, &right),
            (
                json!({ "password": 7 }),
                r#"it has no "password"; there is: password"#,
                r#"it has no "password"; there is: password"#,
            ),
        ] {
            let object = json!({ "metadata": { "labels": { CONFIG_FOR: "pages" } }, "data": data });
            assert_eq!(found(Holder::Secret, &object), secret, "{}", said_within(&data.to_string(), 60));
            assert_eq!(found(Holder::ConfigMap, &object), map, "{}", said_within(&data.to_string(), 60));
        }
        let binary = json!({ "metadata": { "labels": { CONFIG_FOR: "pages" } }, "binaryData": { "password": "eA==" } });
        assert_eq!(found(Holder::ConfigMap, &binary), r#"its "password" is no text: it is among `binaryData`"#);
    }
}
