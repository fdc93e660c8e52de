//! Decides which defaults the API server sets in objects of its own kinds.

use serde_json::{Map as Json, Value, json};

use crate::decode::set_defaults;
use crate::kinds::Kind;

/// Sets the defaults of fields that are missing.
pub(crate) fn fill(kind: &Kind, object: &mut Value) {
    if kind.custom {
        set_defaults(object, &kind.schema);
        return;
    }
    match kind.name.as_str() {
        "Secret" => secret(object),
        "Service" => service(object),
        "Deployment" => deployment(object),
        "Namespace" => namespace(object),
        _ => {}
    }
}

fn namespace(object: &mut Value) {
    let name = object.pointer("/metadata/name").cloned().unwrap_or_default();
    default(object, "/metadata", "labels", json!({}));
    default(object, "/metadata/labels", "kubernetes.io/metadata.name", name);
}

fn secret(object: &mut Value) {
    default(object, "", "type", json!("Opaque"));
    let texts = map(object, "").and_then(|object| object.remove("stringData"));
    let texts = texts.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
    if !texts.is_empty() {
        default(object, "", "data", json!({}));
    }
    if let Some(data) = map(object, "/data") {
        data.extend(
            texts
                .iter()
                .map(|(name, text)| (name.clone(), base64(text.as_str().unwrap_or_default().as_bytes()).into())),
        );
    }
}

fn service(object: &mut Value) {
    default(object, "", "spec", json!({}));
    for (field, value) in [("type", "ClusterIP"), ("sessionAffinity", "None")] {
        default(object, "/spec", field, value.into());
    }
    if object.pointer("/spec/type") != Some(&"ExternalName".into()) {
        default(object, "/spec", "internalTrafficPolicy", "Cluster".into());
    }
    for port in list(object, "/spec/ports") {
        let target = port.get("port").cloned();
        default(port, "", "protocol", "TCP".into());
        default(port, "", "targetPort", target.unwrap_or_default());
    }
}

fn deployment(object: &mut Value) {
    let table = [
        ("replicas", json!(1)),
        ("revisionHistoryLimit", json!(10)),
        ("progressDeadlineSeconds", json!(600)),
        ("strategy", json!({})),
    ];
    for (field, value) in table {
        default(object, "/spec", field, value);
    }
    default(object, "/spec/strategy", "type", "RollingUpdate".into());
    if object.pointer("/spec/strategy/type") == Some(&"RollingUpdate".into()) {
        default(object, "/spec/strategy", "rollingUpdate", json!({}));
        for field in ["maxSurge", "maxUnavailable"] {
            default(object, "/spec/strategy/rollingUpdate", field, "25%".into());
        }
    }
    let pod = "/spec/template/spec";
    let table = [
        ("restartPolicy", json!("Always")),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("securityContext", json!({})),
    ];
    for (field, value) in table {
        default(object, pod, field, value);
    }
    for volume in list(object, &format!("{pod}/volumes")) {
        for source in ["configMap", "secret"] {
            default(volume, &format!("/{source}"), "defaultMode", json!(420));
        }
    }
    for containers in ["containers", "initContainers"] {
        for container in list(object, &format!("{pod}/{containers}")) {
            fill_container(container);
        }
    }
}

fn fill_container(container: &mut Value) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let tag = image.rsplit('/').next().and_then(|name| name.split_once(':')).map(|(_, tag)| tag);
    let pull = if matches!(tag, None | Some("latest")) && !image.contains('@') { "Always" } else { "IfNotPresent" };
    let table = [
        ("imagePullPolicy", json!(pull)),
        ("terminationMessagePath", json!("/dev/termination-log")),
        ("terminationMessagePolicy", json!("File")),
        ("resources", json!({})),
    ];
    for (field, value) in table {
        default(container, "", field, value);
    }
    for port in list(container, "/ports") {
        default(port, "", "protocol", "TCP".into());
    }
}

fn map<'a>(object: &'a mut Value, path: &str) -> Option<&'a mut Json<String, Value>> {
    object.pointer_mut(path)?.as_object_mut()
}

fn list<'a>(object: &'a mut Value, path: &str) -> impl Iterator<Item = &'a mut Value> {
    object.pointer_mut(path).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Sets a field of the map at `path`, if there is such a map and the field is missing.
fn default(object: &mut Value, path: &str, field: &str, value: Value) {
    if let Some(map) = map(object, path).filter(|map| map.get(field).is_none_or(Value::is_null)) {
        map.insert(field.to_owned(), value);
    }
}

/// Returns bytes in base64, as Secrets have them.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let number = three.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for at in 0..4 {
            let digit = usize::try_from(number >> (18 - 6 * at) & 63).unwrap_or_default();
            let digit = DIGITS.get(digit).map_or('=', |digit| char::from(*digit));
            text.push(if at <= three.len() { digit } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_a_secret_become_data() {
        let mut object = json!({ "data": { "a": "AA==" }, "stringData": { "b": "hello", "c": "hi" } });
        secret(&mut object);
        assert_eq!(object, json!({ "type": "Opaque", "data": { "a": "AA==", "b": "aGVsbG8=", "c": "aGk=" } }));
    }

    #[test]
    fn an_image_without_a_tag_is_always_pulled() {
        for (image, pull) in
            [("a", "Always"), ("r:80/a", "Always"), ("r:80/a:1", "IfNotPresent"), ("a:latest", "Always")]
        {
            let mut container = json!({ "image": image });
            fill_container(&mut container);
            assert_eq!(container["imagePullPolicy"], pull, "{image}");
        }
    }
}
