//! Decides how values cross the component's boundary: as JSON texts, read and written where they are needed.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::{Error, Result};

/// A JSON document as text, not read yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Json(String);

impl Json {
    /// Writes a value. Fails if it is no JSON, such as a map whose keys are no texts.
    pub fn of(value: &(impl Serialize + ?Sized)) -> Result<Self> {
        Ok(Self(serde_json::to_string(value)?))
    }

    /// Takes a text as it is. Whoever receives it finds out whether it is JSON.
    pub fn unchecked(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Reads it as a value of the author's type, or as `serde_json::Value`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        parse(&self.0)
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the text.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw = serde_json::from_str::<&RawValue>(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self(String::from(Box::<str>::from(raw))))
    }
}

/// Reads a text as `T`; the error names the type.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text)
        .map_err(|error| Error::from(error).context(format_args!("not a valid {}", type_name::<T>())))
}

/// Returns the name of a type without its path.
fn type_name<T>() -> &'static str {
    let name = std::any::type_name::<T>();
    let path = name.split('<').next().unwrap_or(name);
    path.rsplit("::").next().unwrap_or(name)
}

/// The `metadata` of a Kubernetes object, as far as a reconciler usually needs it.
///
/// ```
/// # use serde::Deserialize;
/// #[derive(Deserialize)]
/// struct WebPage {
///     metadata: capstan_guest::Metadata,
/// }
/// let page: WebPage = serde_json::from_str(r#"{"metadata": {"name": "hello", "generation": 2}}"#)?;
/// assert_eq!((page.metadata.name.as_str(), page.metadata.generation), ("hello", Some(2)));
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "types", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// The name.
    pub name: String,
    /// The namespace; `None` for a cluster-scoped object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The id that no other object ever has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Grows with each change of the spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Changes with each write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// When the object was made, in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
    /// When its deletion was asked for, in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
    /// Who has to tidy up before it goes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
}
