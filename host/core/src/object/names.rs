//! Defines what objects and kinds are called: key, group, version and kind, resource version.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Error;

/// The name of an object whose kind is clear from the place (`ID-1`): neither kind nor uid take part, so a deleted and
/// re-created object keeps its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(Option<String>, String)", into = "(Option<String>, String)")]
pub struct ObjectRef {
    /// The namespace; `None` for a cluster-scoped object.
    pub namespace: Option<Arc<str>>,
    /// The name.
    pub name: Arc<str>,
}

/// Group, version and kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "(String, String)", into = "(String, String)")]
pub struct Gvk {
    /// The API group; empty for the core group.
    pub group: Arc<str>,
    /// The version: `v1`, `v1beta1`.
    pub version: Arc<str>,
    /// The kind in singular: `ConfigMap`.
    pub kind: Arc<str>,
}

/// The scope of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// Its objects live in a namespace.
    Namespaced,
    /// Its objects live in no namespace.
    Cluster,
}

/// A `resourceVersion`, ordered as the decimal number that it is (`ID-4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Version(pub u64);

impl ObjectRef {
    /// Returns the key of an object in a namespace.
    pub fn namespaced(namespace: &str, name: &str) -> Self {
        Self { namespace: Some(namespace.into()), name: name.into() }
    }

    /// Returns the key of a cluster-scoped object.
    pub fn cluster(name: &str) -> Self {
        Self { namespace: None, name: name.into() }
    }
}

impl fmt::Display for ObjectRef {
    /// Writes `namespace/name`, or `name` alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl From<(Option<String>, String)> for ObjectRef {
    fn from((namespace, name): (Option<String>, String)) -> Self {
        Self { namespace: namespace.map(Into::into), name: name.into() }
    }
}

impl From<ObjectRef> for (Option<String>, String) {
    fn from(key: ObjectRef) -> Self {
        let namespace = key.namespace.as_deref().map(str::to_owned);
        (namespace, key.name.to_string())
    }
}

impl TryFrom<(String, String)> for Gvk {
    type Error = Error;

    fn try_from((api_version, kind): (String, String)) -> Result<Self, Error> {
        Self::parse(&api_version, &kind)
    }
}

impl From<Gvk> for (String, String) {
    fn from(gvk: Gvk) -> Self {
        (gvk.api_version().into_owned(), gvk.kind.to_string())
    }
}

impl Gvk {
    /// Returns true if its objects are Secrets, of which nothing is said in logs, Events or statuses (`SSA-7`).
    pub fn is_secret(&self) -> bool {
        self.group.is_empty() && &*self.kind == "Secret"
    }

    /// Returns true if its objects are namespaces.
    pub fn is_namespace(&self) -> bool {
        self.group.is_empty() && &*self.kind == "Namespace"
    }

    /// Returns the kind that `apiVersion` and `kind` stand for.
    ///
    /// # Errors
    /// [`Error::ApiVersion`] if `api_version` is empty or has more than one slash.
    ///
    /// ```
    /// # use capstan_core::object::Gvk;
    /// let gvk = Gvk::parse("apps/v1", "Deployment").unwrap();
    /// assert_eq!((&*gvk.group, &*gvk.version), ("apps", "v1"));
    /// assert_eq!(gvk.api_version(), "apps/v1");
    /// ```
    pub fn parse(api_version: &str, kind: &str) -> Result<Self, Error> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if version.is_empty() || version.contains('/') || (group.is_empty() && api_version.contains('/')) {
            return Err(Error::ApiVersion(api_version.to_owned()));
        }
        Ok(Self { group: group.into(), version: version.into(), kind: kind.into() })
    }

    /// Returns group and kind: what its objects are in each version.
    pub(crate) fn group_kind(&self) -> (Arc<str>, Arc<str>) {
        (Arc::clone(&self.group), Arc::clone(&self.kind))
    }

    /// Returns true if objects of both are the same, perhaps in different versions.
    pub fn is_kind_of(&self, other: &Self) -> bool {
        self.group == other.group && self.kind == other.kind
    }

    /// Returns group and version as in the field `apiVersion`: `v1`, `apps/v1`.
    pub fn api_version(&self) -> Cow<'_, str> {
        if self.group.is_empty() {
            Cow::Borrowed(&self.version)
        } else {
            Cow::Owned(format!("{}/{}", self.group, self.version))
        }
    }
}

impl fmt::Display for Gvk {
    /// Writes `apps/v1 Deployment`, as in error messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.api_version(), self.kind)
    }
}

impl Version {
    /// Returns the version that a `resourceVersion` stands for.
    ///
    /// # Errors
    /// [`Error::Version`] for anything but a decimal number.
    pub fn parse(text: &str) -> Result<Self, Error> {
        text.parse().map(Self).map_err(|_| Error::Version(text.to_owned()))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Returns true if a text can be a segment of a request path as it is: a name, a namespace, a subresource. Any other
/// text of a component could lead to another object than the one that is permitted.
pub fn is_path_segment(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._:@~!$&'()*+,;=".contains(&b);
    !matches!(text, "" | "." | "..") && text.bytes().all(plain)
}
