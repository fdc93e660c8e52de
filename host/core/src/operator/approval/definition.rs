//! Makes the definition (CRD) of approvals of operators, in which each field has a bound.

use serde_json::{Value, json};

use crate::manifest::of_kind;

/// The most components of an operator.
const COMPONENTS: u32 = 64;

/// The longest name, and text for people.
const NAME: u32 = 253;
const TEXT: u32 = 1024;

/// Returns the definition of the kind `OperatorApproval` of `capstan.dev/v1alpha1`, as JSON.
pub fn definition() -> Value {
    let named = json!({
        "rule": "self.metadata.name == self.spec.operator",
        "message": "an approval has the name of its operator",
        "fieldPath": ".spec.operator",
    });
    let schema = json!({
        "description": "The approval of one version of an operator, which wants more than the one in force and waits (`onNewVersion: ask`). `capstan approve` writes it.",
        "x-kubernetes-validations": [named],
    });
    let columns = [
        ["Given", "string", ".spec.given", "The digest of all that the approved version is given"],
        ["By", "string", ".spec.by", "Who says to have approved it"],
        ["Reason", "string", ".spec.reason", "Why"],
        ["Age", "date", ".metadata.creationTimestamp", "Since when it is there"],
    ];
    let names = json!({ "shortNames": ["opap"] });
    of_kind("OperatorApproval", &columns, json!({ "spec": spec() }), [schema, json!({}), names])
}

/// Returns the schema of what an approval says.
fn spec() -> Value {
    let digest = |says: &str| json!({ "type": "string", "description": says, "maxLength": 71, "pattern": "^sha256:[0-9a-f]{64}$" });
    let text = |says: &str, longest: u32| json!({ "type": "string", "description": says, "maxLength": longest });
    let components = json!({
        "type": "object",
        "description": "The digests of its components, by plugin: all of them, and no others. Without it, it has none.",
        "maxProperties": COMPONENTS,
        "additionalProperties": digest("SHA-256 of the component."),
    });
    json!({
        "type": "object",
        "description": "Which version is approved.",
        "required": ["operator", "given"],
        "properties": {
            "operator": text("The operator, whose name the approval has.", NAME),
            "components": components,
            "given": digest("The digest of all that its manifest gives it."),
            "by": text("Who has approved it, for people: the API server knows who has written this.", TEXT),
            "reason": text("Why, for people.", TEXT),
        },
    })
}
