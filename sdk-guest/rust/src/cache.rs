//! Reads from the daemon's caches: no request is sent, and own writes are visible at once.
//!
//! ```
//! # use capstan_guest::{cache, secondary, test};
//! # use serde_json::{Value, json};
//! # let run = test::Run::new().secondary("deployment", json!({ "kind": "Deployment" }));
//! # test::with(run, || {
//! let deployment = secondary("deployment")?;                       // the one that belongs to the primary
//! let pods: Vec<Value> = cache::source("pods").related().labels("app=web").all()?;
//! let theme: Option<Value> = cache::kind("v1", "ConfigMap").named("themes", "dark")?;
//! # assert!(deployment.is_some() && pods.is_empty() && theme.is_none());
//! # Ok::<_, capstan_guest::Error>(())
//! # }).answer?;
//! # Ok::<_, capstan_guest::Error>(())
//! ```

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::bindings::imports::capstan::operator::cache::{IndexEntry, Place as Where, Query as Question, Selection};
use crate::bindings::imports::capstan::operator::types::{KindRef, ObjectKey, Page as Part};
use crate::{Error, Result, daemon, json};

/// Returns the one object of a source that belongs to the primary; `None` if there is none. The source of a dependent has
/// the dependent's name. Fails with [`Reason::Ambiguous`](crate::Reason::Ambiguous) if there are several.
pub fn secondary(source: &str) -> Result<Option<Value>> {
    self::source(source).one()
}

/// Returns the objects of a source that belong to the primary.
pub fn secondaries(source: &str) -> Result<Vec<Value>> {
    self::source(source).related().all()
}

/// One source. The source of a dependent has the dependent's name.
pub fn source(name: &str) -> Place {
    Place(Where::Source(name.to_owned()))
}

/// All sources of a kind: `kind("apps/v1", "Deployment")`.
pub fn kind(api_version: &str, kind: &str) -> Place {
    Place(Where::Kind(KindRef { api_version: api_version.to_owned(), kind: kind.to_owned() }))
}

/// The primaries of this controller.
pub fn primaries() -> Place {
    Place(Where::Primaries)
}

/// Where to look.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "ask it for objects"]
pub struct Place(Where);

impl Place {
    /// Returns the one object that belongs to the primary; `None` if there is none. Fails if there are several, or if no
    /// source watches the kind.
    pub fn one<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        read(daemon::cache::find_one(&self.0).map_err(Error::of_call)?)
    }

    /// Returns an object by its name, whether it belongs to the primary or not. The namespace of a cluster-scoped object is
    /// `None`, or empty.
    pub fn named<'a, T: DeserializeOwned>(
        &self,
        namespace: impl Into<Option<&'a str>>,
        name: &str,
    ) -> Result<Option<T>> {
        let key = ObjectKey::of(namespace.into(), name);
        read(daemon::cache::find_named(&self.0, &key).map_err(Error::of_call)?)
    }

    /// Selects the objects that belong to the primary.
    pub fn related(self) -> Query {
        self.select(Selection::Related)
    }

    /// Selects all objects of one namespace, whether they belong to the primary or not.
    pub fn in_namespace(self, namespace: &str) -> Query {
        self.select(Selection::Namespaced(namespace.to_owned()))
    }

    /// Selects all objects.
    pub fn everywhere(self) -> Query {
        self.select(Selection::Everywhere)
    }

    /// Selects the objects under a key of an index of the manifest.
    pub fn indexed(self, index: &str, key: &str) -> Query {
        self.select(Selection::Indexed(IndexEntry { index: index.to_owned(), key: key.to_owned() }))
    }

    fn select(self, selection: Selection) -> Query {
        Query(Question {
            place: self.0,
            selection,
            labels: None,
            fields: Vec::new(),
            newest_only: false,
            limit: None,
            after: None,
        })
    }
}

/// A question for many objects.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "ask it for objects"]
pub struct Query(Question);

impl Query {
    /// Keeps those that a label selector accepts, written as for kubectl.
    pub fn labels(mut self, selector: &str) -> Self {
        self.0.labels = Some(selector.to_owned());
        self
    }

    /// Returns only these fields, as JSON pointers, beside apiVersion, kind, namespace and name. Large answers cost time.
    pub fn fields<'a>(mut self, pointers: impl IntoIterator<Item = &'a str>) -> Self {
        self.0.fields.extend(pointers.into_iter().map(str::to_owned));
        self
    }

    /// Returns only the newest version of an object that several sources hold.
    pub fn newest_only(mut self) -> Self {
        self.0.newest_only = true;
        self
    }

    /// Returns at most so many objects in a page.
    pub fn limit(mut self, limit: u32) -> Self {
        self.0.limit = Some(limit);
        self
    }

    /// Begins where a [`Page`] before ended.
    pub fn after(mut self, next: impl Into<String>) -> Self {
        self.0.after = Some(next.into());
        self
    }

    /// Returns all objects, page by page, ordered by namespace and name.
    pub fn all<T: DeserializeOwned>(self) -> Result<Vec<T>> {
        let mut query = self;
        let mut items = Vec::new();
        loop {
            let page = query.page()?;
            items.extend(page.items);
            match page.next {
                Some(next) => query = query.after(next),
                None => return Ok(items),
            }
        }
    }

    /// Returns one page.
    pub fn page<T: DeserializeOwned>(&self) -> Result<Page<T>> {
        let Part { items, next } = daemon::cache::find_all(&self.0).map_err(Error::of_call)?;
        Ok(Page { items: items.iter().map(|item| json::parse(item)).collect::<Result<_>>()?, next })
    }
}

/// Part of a long answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The objects, ordered by namespace and name.
    pub items: Vec<T>,
    /// Where the next page begins; `None` = this was the last.
    pub next: Option<String>,
}

fn read<T: DeserializeOwned>(object: Option<String>) -> Result<Option<T>> {
    object.map(|text| json::parse(&text)).transpose()
}
