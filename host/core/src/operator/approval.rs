//! Decides whether a version of an operator waits for an approval, and reads and writes approvals (AP rules).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::difference::Difference;
pub use super::wants::Identity;
use crate::manifest::OnNewVersion;
use crate::registry::Digest;

mod definition;

pub use definition::definition;

/// A version that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Which one it is.
    pub version: Identity,
    /// What is otherwise in it than in the one in force, line by line; all that it wants, if none is.
    pub difference: Vec<String>,
    /// Whether that is more.
    pub wants_more: bool,
    /// Since when it waits, in RFC 3339.
    pub since: String,
    /// The command that approves it.
    pub command: String,
    /// Where the approval is read: `NAMESPACE/NAME`.
    pub place: String,
}

/// The word for programs of what waits for an approval.
pub const APPROVAL_REQUIRED: &str = "ApprovalRequired";

/// The most lines of a difference that are kept of a version.
pub const LINES: usize = 30;

/// Whether what was in force is remembered when a daemon ends (`AP-4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// In the status of the object that the operator is.
    Status,
    /// Nowhere, as the operator is in a file: only what is approved as it is can be put in force again.
    Nowhere,
}

/// Whether a version waits that differs so from what is in force. `said` is what the daemon, the version and what is in force say of it: the strictest
/// counts, so that nobody goes around it by an edit. `known` are the versions that were approved, or in force when the daemon ended.
pub fn waits<'a>(
    said: impl IntoIterator<Item = OnNewVersion>,
    (difference, memory): (&Difference, Memory),
    version: &Identity,
    known: impl IntoIterator<Item = &'a Identity>,
) -> bool {
    let asks = said.into_iter().any(|said| said == OnNewVersion::Ask);
    let is_more = difference.wants_more || memory == Memory::Nowhere;
    asks && is_more && !known.into_iter().any(|known| known == version)
}

/// Returns the version that an object of the kind approves, and of which operator; `None` if it approves nothing: it is named after another one, or
/// is damaged.
pub fn approved(object: &Value) -> Option<(Arc<str>, Identity)> {
    let spec = object.get("spec")?;
    let operator = spec.get("operator")?.as_str()?;
    let name = object.pointer("/metadata/name")?.as_str()?;
    Some((operator.into(), Identity::read(spec)?)).filter(|_| name == operator)
}

/// Returns the object that approves a version of an operator; `by` and `reason` are for people.
pub fn approval(
    (namespace, operator): (&str, &str),
    version: &Identity,
    (by, reason): (Option<&str>, Option<&str>),
) -> Value {
    let mut spec = version.told();
    let said = [("operator", Some(operator)), ("by", by), ("reason", reason)];
    spec.extend(said.into_iter().filter_map(|(field, value)| Some((field.to_owned(), value?.into()))));
    json!({
        "apiVersion": "capstan.dev/v1alpha1",
        "kind": "OperatorApproval",
        "metadata": { "name": operator, "namespace": namespace },
        "spec": spec,
    })
}

/// Returns the command that approves what waits of an operator; by name the `version`, where no status says which one that is.
pub fn command((namespace, operator): (&str, &str), version: Option<&Identity>) -> String {
    let mut command = format!("capstan approve {operator} -n {namespace}");
    if let Some(Identity { components, given }) = version {
        command.extend(components.iter().map(|(plugin, digest)| format!(" --digest {plugin}={digest}")));
        command.extend([format!(" --given {given}")]);
    }
    command
}

impl Asked {
    /// Returns what is to be known of it, for people.
    pub fn message(&self) -> String {
        let Self { difference, wants_more, command, .. } = self;
        let why = if *wants_more {
            format!("it wants more than what is in force: {}", difference.join("; "))
        } else {
            "it is another version than the one in force, and of operators in files nothing remembers which one that was".to_owned()
        };
        format!("{why}; approve it by `{command}`")
    }

    /// Returns the same without the difference, where that stands beside it.
    pub fn summary(&self) -> String {
        let Self { difference, wants_more, command, .. } = self;
        match difference.as_slice() {
            [_, _, ..] if *wants_more => {
                format!("it wants more than what is in force, as `status.waiting` says; approve it by `{command}`")
            }
            _ => self.message(),
        }
    }
}

impl Identity {
    /// Reads it out of an object that has it among its fields.
    pub fn read(object: &Value) -> Option<Self> {
        let components = match object.get("components") {
            None | Some(Value::Null) => BTreeMap::new(),
            Some(components) => {
                let parts = components.as_object()?.iter();
                parts.map(|(name, digest)| Some((name.as_str().into(), digest_of(digest)?))).collect::<Option<_>>()?
            }
        };
        Some(Self { components, given: digest_of(object.get("given")?)? })
    }

    /// Returns it as the fields `components` and `given`.
    pub fn told(&self) -> Map<String, Value> {
        let components = self.components.iter().map(|(name, digest)| (name.to_string(), digest.to_string().into()));
        let components = ("components".to_owned(), Value::Object(components.collect()));
        [components, ("given".to_owned(), self.given.to_string().into())].into_iter().collect()
    }
}

fn digest_of(value: &Value) -> Option<Digest> {
    Digest::parse(value.as_str()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(component: &str, given: &str) -> Identity {
        let digest = |text: &str| Digest::sha256(text.as_bytes());
        Identity { components: BTreeMap::from([("web".into(), digest(component))]), given: digest(given) }
    }

    #[test]
    fn a_version_that_wants_more_waits_where_anybody_asks_and_it_was_not_approved_as_it_is() {
        // AP-2, AP-3, AP-4
        use OnNewVersion::{Apply, Ask};
        let [more, same] = [true, false].map(|wants_more| Difference { wants_more, ..Difference::default() });
        let known = [version("1", "a")];
        for (said, difference, found, expected) in [
            // The daemon, the version in force, the one that is wanted.
            ([Apply, Apply, Apply], &more, version("2", "b"), false),
            ([Apply, Apply, Ask], &more, version("2", "b"), true),
            ([Apply, Ask, Apply], &more, version("2", "b"), true),
            ([Ask, Apply, Apply], &more, version("2", "b"), true),
            ([Ask, Ask, Ask], &same, version("2", "b"), false),
            ([Ask, Ask, Ask], &more, version("1", "a"), false),
            // Of both parts.
            ([Ask, Ask, Ask], &more, version("1", "b"), true),
            ([Ask, Ask, Ask], &more, version("2", "a"), true),
        ] {
            assert_eq!(waits(said, (difference, Memory::Status), &found, &known), expected, "{said:?} {found:?}");
        }
        // In a file: each one that is not approved as it is.
        for (said, found, expected) in
            [(Ask, version("2", "b"), true), (Ask, version("1", "a"), false), (Apply, version("2", "b"), false)]
        {
            assert_eq!(waits([said], (&same, Memory::Nowhere), &found, &known), expected, "{said:?} {found:?}");
        }
    }

    #[test]
    fn an_approval_is_read_as_it_was_written_and_is_of_the_operator_that_has_its_name() {
        // AP-3
        let good = approval(("capstan", "pages"), &version("1", "a"), (Some("me"), None));
        assert_eq!(approved(&good), Some(("pages".into(), version("1", "a"))));
        let broken = |pointer: &str, value: Value| {
            let mut object = good.clone();
            *object.pointer_mut(pointer).unwrap() = value;
            approved(&object)
        };
        assert_eq!(broken("/metadata/name", "other".into()), None);
        assert_eq!(broken("/spec/given", "sha256:1".into()), None);
        assert_eq!(broken("/spec/components/web", Value::Null), None);
        assert_eq!(broken("/spec/components", "web".into()), None);
        // Templates have none.
        assert!(broken("/spec/components", json!({})).unwrap().1.components.is_empty());
    }
}
