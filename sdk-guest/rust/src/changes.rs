//! Decides what an author's filters and mappers get and answer.

use serde::de::DeserializeOwned;

use crate::bindings::filter::exports::capstan::operator::filter;
use crate::bindings::imports::capstan::operator::types::ObjectKey;
use crate::{Json, Result};

/// What happened to an object, for a filter.
///
/// ```
/// # use capstan_guest::{Change, Json, Result};
/// # use serde_json::{Value, json};
/// fn has_theme(change: &Change) -> Result<bool> {
///     let object: Value = change.object()?;
///     Ok(object["data"]["theme"].is_string())
/// }
/// assert_eq!(has_theme(&Change::Added(Json::of(&json!({ "data": { "theme": "dark" } }))?)), Ok(true));
/// # Ok::<_, capstan_guest::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// It is new.
    Added(Json),
    /// It has changed.
    Updated {
        /// As it was.
        before: Json,
        /// As it is.
        after: Json,
    },
    /// It is gone.
    Deleted {
        /// As it was last seen.
        last: Json,
        /// True if the deletion was missed, so that there may have been later versions.
        final_state_unknown: bool,
    },
}

impl Change {
    /// Returns the object as it is, or was last seen.
    pub fn object<T: DeserializeOwned>(&self) -> Result<T> {
        match self {
            Self::Added(object) | Self::Updated { after: object, .. } | Self::Deleted { last: object, .. } => {
                object.parse()
            }
        }
    }

    /// Returns the object as it was before an update.
    pub fn before<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        match self {
            Self::Updated { before, .. } => before.parse().map(Some),
            Self::Added(_) | Self::Deleted { .. } => Ok(None),
        }
    }
}

impl From<filter::Change> for Change {
    fn from(change: filter::Change) -> Self {
        match change {
            filter::Change::Added(object) => Self::Added(Json::unchecked(object)),
            filter::Change::Updated(filter::ObjectUpdate { before, after }) => {
                Self::Updated { before: Json::unchecked(before), after: Json::unchecked(after) }
            }
            filter::Change::Deleted(filter::ObjectDeletion { last, final_state_unknown }) => {
                Self::Deleted { last: Json::unchecked(last), final_state_unknown }
            }
        }
    }
}

/// The objects that belong to another one, by their names, for mappers.
///
/// They come from anything with texts: `name`, which is in the namespace of the object that the mapper was asked about, or
/// `namespace/name`.
///
/// ```
/// # use capstan_guest::Keys;
/// let keys = Keys::from(vec!["hello", "other-namespace/hello"]);
/// assert_eq!(keys, Keys::none().named("hello").of("other-namespace", "hello"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use = "it is returned from a mapper"]
pub struct Keys(pub(crate) Vec<ObjectKey>);

impl ObjectKey {
    /// Returns the name of an object; an empty namespace is none.
    pub(crate) fn of(namespace: Option<&str>, name: &str) -> Self {
        Self { namespace: some_namespace(namespace), name: name.to_owned() }
    }
}

/// Returns a namespace; an empty one is none, which is how a cluster-scoped object has it in some places.
pub(crate) fn some_namespace(namespace: Option<&str>) -> Option<String> {
    namespace.filter(|namespace| !namespace.is_empty()).map(str::to_owned)
}

impl Keys {
    /// Nothing belongs to it.
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds an object of the same namespace, or one that lives in none.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.0.push(ObjectKey { namespace: None, name: name.into() });
        self
    }

    /// Adds an object of a namespace. The manifest has to permit it if that is another one: `acrossNamespaces`.
    pub fn of(mut self, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        self.0.push(ObjectKey::of(Some(&namespace.into()), &name.into()));
        self
    }
}

impl<T: AsRef<str>> FromIterator<T> for Keys {
    fn from_iter<I: IntoIterator<Item = T>>(texts: I) -> Self {
        let key = |text: T| match text.as_ref().split_once('/') {
            Some((namespace, name)) => ObjectKey::of(Some(namespace), name),
            None => ObjectKey::of(None, text.as_ref()),
        };
        Self(texts.into_iter().map(key).collect())
    }
}

impl<T: AsRef<str>> From<Vec<T>> for Keys {
    fn from(texts: Vec<T>) -> Self {
        texts.into_iter().collect()
    }
}

impl<T: AsRef<str>> From<Option<T>> for Keys {
    fn from(text: Option<T>) -> Self {
        text.into_iter().collect()
    }
}
