//! Decides whether a difference is only the API server's way to store what was applied (SN rules).
//!
//! It is asked about differences only, so comparing equal trees costs nothing here. It goes beyond claim templates
//! (`SN-1`) and environments and quantities of containers (`SN-2`): it also covers fields where a real API server was
//! seen to answer with another value than the applied one, and where a difference would therefore be "repaired"
//! forever (`SSA-5`).

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::difference::Step;

/// The kind of the object that is compared, as far as it is needed here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind<'a> {
    /// The kind: `StatefulSet`.
    pub(super) name: &'a str,
    /// The way in which the API server stores objects of this kind.
    pub(super) storage: Storage,
}

/// The ways in which the API server stores objects of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Storage {
    /// As a Go struct: null and zero values are dropped, quantities are written in canonical form. All built-in
    /// kinds.
    Struct,
    /// As it was sent: custom resources, except for their metadata.
    Verbatim,
}

/// The part of the object that is owned together with the place of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// The field itself. If it is owned but missing, a zero value was applied: when another client removes a field,
    /// the ownership is removed, too.
    Field,
    /// A value around the place, which is owned as a whole: nothing is known about the place itself.
    Within,
}

/// Two values that are not the same. `None` stands for a missing value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Difference<'a> {
    /// The place.
    pub(super) path: &'a [Step<'a>],
    /// The part that is owned.
    pub(super) extent: Extent,
    /// The value that the API server has.
    pub(super) found: Option<&'a Value>,
    /// The value that is wanted.
    pub(super) wanted: Option<&'a Value>,
}

impl<'a> Kind<'a> {
    /// Returns the kind of an object, from the first of these trees that has the fields.
    pub(super) fn of(trees: [&'a Value; 2]) -> Self {
        let stated = |field| trees.iter().find_map(|tree| tree.get(field).and_then(Value::as_str)).unwrap_or_default();
        Self { name: stated("kind"), storage: Storage::of(stated("apiVersion")) }
    }

    /// Returns true for `v1 Secret`. It looks at the kind alone, to be on the safe side.
    pub(super) fn is_secret(self) -> bool {
        self.name == "Secret"
    }

    /// Returns how the API server stores the field at `path`.
    pub(super) fn storage_at(self, path: &[Step<'_>]) -> Storage {
        match path.first() {
            Some(Step::Key("metadata")) => Storage::Struct,
            _ => self.storage,
        }
    }
}

impl Storage {
    /// Returns how kinds of this `apiVersion` are stored. Built-in groups have no dot, or end in `.k8s.io`; a CRD of
    /// a group in `k8s.io` counts as built-in, which only means that its zero values count as missing.
    pub(super) fn of(api_version: &str) -> Self {
        match api_version.split_once('/') {
            Some((group, _)) if group.contains('.') && !group.ends_with(".k8s.io") => Self::Verbatim,
            _ => Self::Struct,
        }
    }
}

/// Returns a desired object with the defaults that follow from what it says elsewhere: limits of containers are made of one another (`SN-4`).
pub(super) fn completed(desired: &Value) -> Cow<'_, Value> {
    let is = |field: &str, value: &str| desired.get(field).is_some_and(|found| found == value);
    if !(is("apiVersion", "v1") && is("kind", "LimitRange")) {
        return Cow::Borrowed(desired);
    }
    let mut completed = desired.clone();
    let limits = completed.pointer_mut("/spec/limits").and_then(Value::as_array_mut);
    let of_containers = |limit: &&mut Map<String, Value>| limit.get("type").is_some_and(|kind| kind == "Container");
    for limit in limits.into_iter().flatten().filter_map(Value::as_object_mut).filter(of_containers) {
        for (to, from) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")] {
            let Some(Value::Object(from)) = limit.get(from).cloned() else { continue };
            if let Some(to) = limit.entry(to).or_insert_with(|| Value::Object(Map::new())).as_object_mut() {
                for (resource, quantity) in from {
                    to.entry(resource).or_insert(quantity);
                }
            }
        }
    }
    Cow::Owned(completed)
}

/// Returns true if a difference does not count.
pub(super) fn excused(kind: Kind<'_>, difference: &Difference<'_>) -> bool {
    let Difference { path, extent, found, wanted } = *difference;
    let storage = kind.storage_at(path);
    match (found, wanted) {
        (None, None | Some(Value::Null)) => true,
        (None, Some(wanted)) => storage == Storage::Struct && vanishes(wanted, extent),
        (Some(Value::Object(_)), Some(Value::Object(wanted))) => wanted.is_empty() && granular(kind, path),
        (Some(found), Some(wanted)) => respelled(kind, path, found, wanted),
        (Some(found), None) => storage == Storage::Struct && extent == Extent::Within && default_at(kind, path, found),
    }
}

/// Returns true if both values are the same quantity, written in two ways.
pub(super) fn respelled(kind: Kind<'_>, path: &[Step<'_>], found: &Value, wanted: &Value) -> bool {
    kind.storage_at(path) == Storage::Struct && quantity_at(path) && same_quantity(found, wanted) == Some(true)
}

/// Returns true if nothing is stored for this value: for an empty variable of a container (`SN-2`), an empty list, or an empty map of labels,
/// annotations or data. Elsewhere a field without a record of its owner may be one of a map, where nothing is not the same as an empty text, or
/// a struct that is there though nothing is in it (`emptyDir`).
pub(super) fn unset(kind: Kind<'_>, path: &[Step<'_>], wanted: &Value) -> bool {
    kind.storage_at(path) == Storage::Struct
        && match wanted {
            Value::String(text) => text.is_empty() && matches!(*names(path), [.., "env", "value"]),
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => {
                let is_map = matches!(
                    *names(path),
                    [.., "metadata", "labels" | "annotations"] | ["data" | "binaryData" | "stringData"]
                );
                fields.is_empty() && is_map
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
}

/// Returns true if the API server drops this value of a struct, such as the empty variable of `SN-2`: `value: ""`.
fn vanishes(wanted: &Value, extent: Extent) -> bool {
    match (wanted, extent) {
        (Value::Null, _) => true,
        (Value::String(text), _) => text.is_empty(),
        (Value::Array(items), _) => items.is_empty(),
        // A Go pointer to such a value is stored, and a missing field has another meaning: tolerationSeconds,
        // namespaceSelector.
        (Value::Bool(_) | Value::Number(_) | Value::Object(_), Extent::Within) => false,
        (Value::Bool(truth), Extent::Field) => !truth,
        (Value::Number(number), Extent::Field) => number.as_f64() == Some(0.0),
        (Value::Object(fields), Extent::Field) => fields.is_empty(),
    }
}

/// Returns true if the map at `path` is merged field by field, so that an empty map asks for nothing. Types generated
/// from Go write such maps even if they were not set.
fn granular(kind: Kind<'_>, path: &[Step<'_>]) -> bool {
    kind.storage_at(path) == Storage::Struct
        && matches!(
            path,
            [.., Step::Key("metadata"), Step::Key("labels" | "annotations")]
                | [.., Step::Key("template" | "jobTemplate"), Step::Key("metadata" | "spec")]
                | [Step::Key("spec")]
                | [Step::Key("spec"), Step::Key("strategy" | "updateStrategy")]
        )
}

/// Returns true if the API server adds this value as a default inside a value that is owned as a whole.
fn default_at(kind: Kind<'_>, path: &[Step<'_>], found: &Value) -> bool {
    match *names(path) {
        // SN-1
        [.., "volumeClaimTemplates", "apiVersion" | "kind" | "status"]
        | [.., "volumeClaimTemplates", "spec", "volumeMode"] => kind.name == "StatefulSet",
        [.., "fieldRef", "apiVersion"] => found == "v1",
        [.., "resourceFieldRef", "divisor"] => found == "0",
        [.., "serviceAccountToken", "expirationSeconds"] => found == 3600,
        [.., "ports", "protocol"] => found == "TCP",
        ["ports", "name"] => found == "",
        // Of claims, and of their templates.
        [.., "devices", "requests", "exactly" | "firstAvailable", "allocationMode"] => found == "ExactCount",
        [.., "devices", "requests", "exactly" | "firstAvailable", "count"] => found == 1,
        ["endpoints", "conditions"] => found.as_object().is_some_and(Map::is_empty),
        ["roleRef" | "subjects", "apiGroup"] => found == "rbac.authorization.k8s.io",
        ["webhooks", "rules", "scope"]
        | ["spec", "matchConstraints" | "matchResources", "resourceRules" | "excludeResourceRules", "scope"] => {
            found == "*"
        }
        ["spec", "matchConstraints" | "matchResources", "matchPolicy"] => found == "Equivalent",
        ["spec", "matchConstraints" | "matchResources", "namespaceSelector" | "objectSelector"] => {
            found.as_object().is_some_and(Map::is_empty)
        }
        _ => false,
    }
}

/// Returns true if the field at `path` is a quantity.
fn quantity_at(path: &[Step<'_>]) -> bool {
    match *names(path) {
        // The last two are those of CSIStorageCapacity.
        [.., "target", "value"] | [.., "resourceFieldRef", "divisor"] | ["capacity" | "maximumVolumeSize"] => true,
        // LimitRange
        ["spec", "limits", limit, _] => {
            matches!(limit, "default" | "defaultRequest" | "min" | "max" | "maxLimitRequestRatio")
        }
        [.., parent, name] => {
            matches!(parent, "requests" | "limits" | "hard" | "overhead" | "podFixed" | "capacity")
                || matches!(name, "sizeLimit" | "averageValue")
        }
        _ => false,
    }
}

/// Returns the names on a path, without the positions in lists.
fn names<'a>(path: &[Step<'a>]) -> Box<[&'a str]> {
    let name = |step: &Step<'a>| match *step {
        Step::Key(name) => Some(name),
        Step::Index(_) => None,
    };
    path.iter().filter_map(name).collect()
}

/// Returns whether two quantities are equal as numbers (`SN-2`); `None` if one is not a quantity.
fn same_quantity(one: &Value, other: &Value) -> Option<bool> {
    Some(quantity(one)? == quantity(other)?)
}

/// Returns a quantity in units of 10⁻⁹, the finest unit of Kubernetes; rounded up, as in Kubernetes.
fn quantity(value: &Value) -> Option<i128> {
    match value {
        Value::String(text) => parse_quantity(text),
        Value::Number(number) => parse_quantity(&number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn parse_quantity(text: &str) -> Option<i128> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = [whole, fraction].concat();
    let mantissa: i128 = digits.parse().ok()?;
    let (factor, exponent) = scale(suffix)?;
    // mantissa × factor × 10^(exponent - decimals + 9)
    let power = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?.checked_add(9)?;
    let scaled = mantissa.checked_mul(factor)?;
    let ten = 10_i128.checked_pow(power.unsigned_abs());
    let nanos = match (power < 0, ten) {
        (false, ten) => scaled.checked_mul(ten?)?,
        (true, Some(ten)) => scaled.checked_add(ten - 1)? / ten,
        (true, None) => i128::from(scaled != 0),
    };
    Some(if negative { -nanos } else { nanos })
}

/// Returns the factor and the power of ten that a suffix stands for.
fn scale(suffix: &str) -> Option<(i128, i32)> {
    let decimal = |exponent| Some((1, exponent));
    let binary = |power: u32| Some((1_i128 << power, 0));
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        other => decimal(other.strip_prefix(['e', 'E'])?.parse().ok()?),
    }
}

/// Returns true if two scalars are the same. Numbers are compared as numbers, because the API server writes `1.0` as
/// `1`.
pub(super) fn same_scalar(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(a), Value::Number(b)) => a == b || (a.as_f64() == b.as_f64() && (a.is_f64() || b.is_f64())),
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_limits_of_containers_are_made_of_one_another() {
        // SN-4
        let range = |limit: &Value| json!({ "apiVersion": "v1", "kind": "LimitRange", "spec": { "limits": [limit] } });
        for (limit, expected) in [
            (
                json!({ "type": "Container", "default": { "memory": "64Mi" } }),
                json!({ "type": "Container", "default": { "memory": "64Mi" }, "defaultRequest": { "memory": "64Mi" } }),
            ),
            (
                json!({ "type": "Container", "max": { "cpu": "1" }, "min": { "cpu": "100m", "memory": "1Mi" } }),
                json!({ "type": "Container", "max": { "cpu": "1" }, "min": { "cpu": "100m", "memory": "1Mi" },
                    "default": { "cpu": "1" }, "defaultRequest": { "cpu": "1", "memory": "1Mi" } }),
            ),
            (json!({ "type": "Pod", "max": { "cpu": "1" } }), json!({ "type": "Pod", "max": { "cpu": "1" } })),
        ] {
            assert_eq!(*completed(&range(&limit)), range(&expected));
        }
    }

    #[test]
    fn quantities_are_compared_as_numbers() {
        // SN-2
        for (one, other, same) in [
            (json!("1000m"), json!("1"), Some(true)),
            (json!("1024Mi"), json!("1Gi"), Some(true)),
            (json!("0.5"), json!("500m"), Some(true)),
            (json!(0.5), json!("500m"), Some(true)),
            (json!(2), json!("2"), Some(true)),
            (json!("1e3"), json!("1k"), Some(true)),
            (json!("1E"), json!("1000P"), Some(true)),
            (json!("1.5Gi"), json!("1536Mi"), Some(true)),
            (json!("-1"), json!("-1000m"), Some(true)),
            (json!("0.1n"), json!("1n"), Some(true)),
            (json!("+5"), json!("5.0"), Some(true)),
            (json!(".5"), json!("500m"), Some(true)),
            (json!("1G"), json!("1Gi"), Some(false)),
            (json!("-1"), json!("1"), Some(false)),
            (json!("1"), json!("1x"), None),
            (json!(""), json!("0"), None),
            (json!("1e999999999999"), json!("0"), None),
            (json!("1e99999"), json!("0"), None),
            (json!("1e-99999"), json!("1n"), Some(true)),
            (json!(true), json!("1"), None),
        ] {
            assert_eq!(same_quantity(&one, &other), same, "{one} and {other}");
        }
    }

    #[test]
    fn what_the_api_server_writes_otherwise_is_no_difference() {
        // SN-2, SSA-5
        let excused = |path: &[&str], found: Value, wanted: Option<Value>| {
            let path: Vec<_> = path.iter().map(|name| Step::Key(name)).collect();
            let (found, wanted) = (Some(&found), wanted.as_ref());
            let difference = Difference { path: &path, extent: Extent::Within, found, wanted };
            excused(Kind { name: "Kind", storage: Storage::Struct }, &difference)
        };
        for path in [&["overhead", "podFixed", "cpu"][..], &["capacity"], &["maximumVolumeSize"]] {
            assert!(excused(path, json!("1"), Some(json!("1000m"))), "{path:?}");
            assert!(!excused(path, json!("1"), Some(json!("1001m"))), "{path:?}");
        }
        for form in ["exactly", "firstAvailable"] {
            let path = |field| ["spec", "spec", "devices", "requests", form, field];
            assert!(excused(&path("allocationMode"), json!("ExactCount"), None), "{form}");
            assert!(excused(&path("count"), json!(1), None), "{form}");
            assert!(!excused(&path("allocationMode"), json!("All"), None) && !excused(&path("count"), json!(2), None));
        }
    }

    #[test]
    fn built_in_kinds_are_kept_as_structs() {
        for (api_version, storage) in [
            ("v1", Storage::Struct),
            ("apps/v1", Storage::Struct),
            ("networking.k8s.io/v1", Storage::Struct),
            ("sample.capstan.dev/v1", Storage::Verbatim),
        ] {
            assert_eq!(Storage::of(api_version), storage, "{api_version}");
        }
    }

    #[test]
    fn numbers_are_the_same_whatever_their_spelling() {
        assert!(same_scalar(&json!(1), &json!(1.0)));
        assert!(!same_scalar(&json!(9_007_199_254_740_993_i64), &json!(9_007_199_254_740_992_i64)));
        assert!(!same_scalar(&json!(1), &json!("1")));
    }
}
