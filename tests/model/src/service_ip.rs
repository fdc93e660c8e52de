//! Decides which addresses a Service has.

use serde_json::{Value, json};

/// The fields that a Service is given, and keeps.
const GIVEN: [&str; 4] = ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"];

/// Gives a Service the address of this number, unless it is to have none or asks for one.
pub(crate) fn allocate(object: &mut Value, number: u32) {
    let [_, _, high, low] = number.to_be_bytes();
    let address = format!("10.96.{high}.{low}");
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    if spec.get("type") == Some(&"ExternalName".into()) {
        return;
    }
    let given =
        spec.get("clusterIP").and_then(Value::as_str).filter(|given| !given.is_empty()).unwrap_or(&address).to_owned();
    let values = [json!(given), json!([given]), json!(["IPv4"]), json!("SingleStack")];
    for (field, value) in GIVEN.into_iter().zip(values) {
        spec.entry(field).or_insert(value);
    }
}

/// Keeps the addresses of a Service that is written without them.
pub(crate) fn keep(old: &Value, new: &mut Value) {
    let (Some(old), Some(new)) = (old.get("spec"), new.get_mut("spec").and_then(Value::as_object_mut)) else {
        return;
    };
    if new.get("type") == Some(&"ExternalName".into()) {
        return;
    }
    for field in GIVEN {
        if let Some(value) = old.get(field).filter(|_| !new.contains_key(field)) {
            new.insert(field.to_owned(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_given_once_and_kept() {
        let mut old = json!({ "spec": { "type": "ClusterIP" } });
        allocate(&mut old, 1);
        assert_eq!(old["spec"]["clusterIPs"], json!(["10.96.0.1"]));
        let mut new = json!({ "spec": { "type": "ClusterIP", "ports": [] } });
        keep(&old, &mut new);
        assert_eq!(new["spec"]["clusterIP"], "10.96.0.1");
    }
}
