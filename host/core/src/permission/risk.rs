//! Decides which declarations give a component, or others, more than they seem to: kinds by which rights are gained or given, requests
//! without a token, and secrets in a manifest.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::manifest::{Grant, Operator, Permission};
use crate::object::Gvk;
use crate::yaml;

/// A declaration that gives more than it seems to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Risk {
    /// The field of the manifest.
    pub field: String,
    /// What is declared: a kind, or the value of a field.
    pub what: String,
    /// What the declaration gives.
    pub why: &'static str,
}

/// The access to a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Read,
    Write,
}

const ANY: &[Deed] = &[Deed::Read, Deed::Write];

const WRITE: &[Deed] = &[Deed::Write];

const RBAC: &str = "rbac.authorization.k8s.io";

const ADMISSION: &str = "admissionregistration.k8s.io";

const CERTIFICATES: &str = "certificates.k8s.io";

/// Rows: an API group, its kinds, the access that is a risk, and why.
const KINDS: &[(&str, &[&str], &[Deed], &str)] = &[
    (
        "",
        &["Secret"],
        ANY,
        "credentials are read from them, and one of type service-account-token becomes a token of any service account of its namespace",
    ),
    ("", &["ServiceAccount"], WRITE, "what runs as one has its rights, and tokens of it can be made"),
    ("", &["Node"], WRITE, "a node decides what runs where, and with whose rights"),
    ("", &["Namespace"], WRITE, "its labels decide which pods are refused, and all that is in it goes with it"),
    ("", &["PersistentVolume"], WRITE, "one may be a folder of a node"),
    (
        RBAC,
        &["Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"],
        WRITE,
        "they give rights: to anybody, all that the daemon has; others only if `bind` is given by hand (docs/install.md)",
    ),
    (
        ADMISSION,
        &["MutatingWebhookConfiguration", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"],
        WRITE,
        "they see and change what everybody writes",
    ),
    (
        ADMISSION,
        &["ValidatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"],
        WRITE,
        "they see and refuse what everybody writes",
    ),
    (
        "apiextensions.k8s.io",
        &["CustomResourceDefinition"],
        WRITE,
        "all objects of the kind go with it, and a conversion webhook in it sees and changes them",
    ),
    (
        "apiregistration.k8s.io",
        &["APIService"],
        WRITE,
        "it sends requests for a whole API group, with who made them, elsewhere",
    ),
    (
        CERTIFICATES,
        &["CertificateSigningRequest", "ClusterTrustBundle"],
        WRITE,
        "a certificate is an identity, and one that is trusted vouches for others",
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        &["FlowSchema", "PriorityLevelConfiguration"],
        WRITE,
        "they decide whose requests the API server serves",
    ),
];

/// What names of secrets end with.
const SECRETS: [&str; 7] = ["password", "passwd", "passphrase", "secret", "token", "apikey", "privatekey"];

/// Returns the risks of an operator, sorted.
pub fn of(operator: &Operator) -> BTreeSet<Risk> {
    let mut risks = BTreeSet::new();
    for (name, plugin) in &operator.plugins {
        let field: Arc<str> = format!("spec.plugins.{name}.capabilities.kubernetes").into();
        for Grant { gvk, verbs, .. } in &plugin.capabilities.kubernetes {
            let reads = |verb: &Permission| matches!(verb, Permission::Get | Permission::Watch);
            let deed = if verbs.iter().all(reads) { Deed::Read } else { Deed::Write };
            risks.extend(risk(&field, gvk, deed));
        }
        risks.extend(secrets(&format!("spec.plugins.{name}.config"), &plugin.config));
    }
    for controller in operator.controllers.values() {
        let field = format!("spec.controllers.{}", controller.own_name);
        for (source, declared) in &controller.sources {
            let field = format!("{field}.sources.{source}");
            risks.extend(risk(&field, &declared.gvk, Deed::Read));
        }
        let open = controller.inbound.iter().filter(|(_, inbound)| inbound.senders.token().is_none());
        risks.extend(open.map(|(source, _)| Risk {
            field: format!("{field}.sources.{source}.inbound"),
            what: "`token: none`".to_owned(),
            why: "whoever reaches the port has the component called, and has to be known by it",
        }));
        for (dependent, declared) in controller.dependents() {
            let manage = declared.manage;
            if manage.create || manage.update || manage.delete {
                let field = format!("{field}: dependent {dependent}");
                risks.extend(risk(&field, &declared.gvk, Deed::Write));
            }
        }
        risks.extend(risk(&format!("{field}.primary"), &controller.primary, Deed::Write));
    }
    risks
}

/// Returns the texts of a configuration that are called as secrets are, without their values.
fn secrets(field: &str, config: &Value) -> Vec<Risk> {
    let below = |name: &str, value: &Value| {
        let field = yaml::join(field, name);
        let plain = name.to_lowercase().replace(['-', '_', '.'], "");
        let is_told = value.as_str().is_some_and(|text| !text.is_empty());
        if !(is_told && SECRETS.iter().any(|word| plain.ends_with(word))) {
            return secrets(&field, value);
        }
        let why = "whoever reads the manifest has it; `configFrom` takes it from a Secret";
        vec![Risk { field, what: "a secret in the manifest".to_owned(), why }]
    };
    match config {
        Value::Object(fields) => fields.iter().flat_map(|(name, value)| below(name, value)).collect(),
        Value::Array(items) => {
            items.iter().enumerate().flat_map(|(i, item)| secrets(&format!("{field}[{i}]"), item)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

fn risk(field: &str, gvk: &Gvk, deed: Deed) -> Option<Risk> {
    let mut kinds = KINDS.iter();
    let (_, _, _, why) = kinds.find(|(group, kinds, deeds, _)| {
        *gvk.group == **group && kinds.contains(&&*gvk.kind) && deeds.contains(&deed)
    })?;
    Some(Risk { field: field.to_owned(), what: gvk.to_string(), why })
}

impl fmt::Display for Risk {
    /// Writes the field, what it declares, and the reason.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, what, why } = self;
        write!(f, "{field}: {what} gives more than it seems to: {why}")
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::manifest::parse;

    #[test]
    fn a_secret_in_a_configuration_is_told_of_without_its_value() {
        let config = serde_json::json!({
            "password": "hunter2", "url": "https://a.dev", "token": "", "tokens": 3,
            "users": [{ "api-key": "hunter3", "name": "x" }], "tokenLifetime": "1h",
        });
        let told: Vec<String> = secrets("config", &config).iter().map(ToString::to_string).collect();
        let why = "a secret in the manifest gives more than it seems to: whoever reads the manifest has it; `configFrom` takes it from a Secret";
        assert_eq!(told, [format!("config.password: {why}"), format!("config.users[0].api-key: {why}")]);
    }

    #[test]
    fn kinds_that_give_rights_are_told_wherever_they_are_declared() {
        let told = |grant: &str, controller: &str| -> Vec<String> {
            let text = format!(
                "{{ apiVersion: capstan.dev/v1alpha1, kind: Operator, metadata: {{ name: o }}, spec: {{ \
                 plugins: {{ p: {{ component: {{ path: p.wasm }}, capabilities: {{ kubernetes: [{grant}] }} }} }}, \
                 controllers: {{ c: {{ plugin: p, primary: {{ apiVersion: a.dev/v1, kind: Page }}, {controller} }} }} }} }}"
            );
            let operators = parse(&text, Path::new("o.yaml")).unwrap_or_else(|e| panic!("{e}"));
            let risks = of(&operators[0]).into_iter();
            risks.map(|risk| format!("{} {}", risk.field, risk.what)).collect()
        };
        let role = "apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding";
        let grant = "spec.plugins.p.capabilities.kubernetes";
        for (granted, controller, expected) in [
            (String::new(), String::new(), vec![]),
            ("{ apiVersion: v1, kind: ConfigMap, verbs: [apply] }".to_owned(), String::new(), vec![]),
            (
                "{ apiVersion: v1, kind: Secret, verbs: [get] }".to_owned(),
                String::new(),
                vec![format!("{grant} v1 Secret")],
            ),
            (format!("{{ {role}, verbs: [get] }}"), String::new(), vec![]),
            (
                format!("{{ {role}, verbs: [get, apply] }}"),
                String::new(),
                vec![format!("{grant} rbac.authorization.k8s.io/v1 RoleBinding")],
            ),
            (
                String::new(),
                "sources: { s: { informer: { apiVersion: v1, kind: Secret } } }".to_owned(),
                vec!["spec.controllers.c.sources.s v1 Secret".to_owned()],
            ),
            (
                String::new(),
                format!("workflow: {{ dependents: {{ d: {{ {role} }}, e: {{ {role}, readOnly: true }} }} }}"),
                vec!["spec.controllers.c: dependent d rbac.authorization.k8s.io/v1 RoleBinding".to_owned()],
            ),
            (
                String::new(),
                "sources: { s: { inbound: { token: none } }, t: { inbound: { token: { secret: { name: t } } } } }"
                    .to_owned(),
                vec!["spec.controllers.c.sources.s.inbound `token: none`".to_owned()],
            ),
            // A kind of another group with the same name.
            ("{ apiVersion: b.dev/v1, kind: Secret, verbs: [apply] }".to_owned(), String::new(), vec![]),
        ] {
            assert_eq!(told(&granted, &controller), expected, "{granted} {controller}");
        }
    }
}
