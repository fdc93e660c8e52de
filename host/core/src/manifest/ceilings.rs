//! What operators of other namespaces than the daemon's own may have at most (CE rules).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::{Limits, OnNewVersion};
use crate::kinds::Verb;
use crate::network::Destination;
use crate::registry::signature::Key;
use crate::yaml::Errors;

/// The ceilings, by namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ceilings(BTreeMap<Arc<str>, Arc<Ceiling>>);

/// The verbs on each resource, by its group and name.
pub(super) type Rules = BTreeMap<(Arc<str>, Arc<str>), BTreeSet<Verb>>;

/// What the operators of a namespace may have at most. They work in that namespace alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Ceiling {
    /// Its name, for messages.
    pub name: Arc<str>,
    /// The namespaces that it is for.
    pub namespaces: BTreeSet<Arc<str>>,
    /// The service accounts of an operator's namespace in whose name it may act.
    pub service_accounts: BTreeSet<Arc<str>>,
    /// What may be needed of the API server: the verbs on each resource, by its group and name.
    pub rules: Rules,
    /// The operators of a namespace.
    pub operators: usize,
    /// The plugins of all of them; default 10.
    pub plugins: usize,
    /// The controllers of all of them; default 10.
    pub controllers: usize,
    /// What each plugin may use up, as far as ceilings bound it.
    pub limits: Limits,
    /// Where HTTP requests may be sent.
    pub http: Vec<Destination>,
    /// Where TCP connections may be opened.
    pub tcp: Vec<Destination>,
    /// Where components may come from: registries, or paths in them.
    pub registries: Vec<Arc<str>>,
    /// One of these has to have signed each component; without any, whoever else is demanded.
    pub keys: Vec<Key>,
    /// What becomes of versions that want more, whatever manifests say.
    pub on_new_version: OnNewVersion,
    /// Whether requests from outside may be taken.
    pub inbound: bool,
}

impl Ceilings {
    /// Returns the ceilings that a file with one YAML document declares. `file` is named in errors.
    ///
    /// # Errors
    /// [`Errors`] with all that is wrong, each with its place.
    ///
    /// ```
    /// # use std::path::Path;
    /// # use capstan_core::manifest::Ceilings;
    /// let text = "
    /// apiVersion: capstan.dev/v1alpha1
    /// kind: Ceilings
    /// spec:
    ///   ceilings:
    ///     teams:
    ///       namespaces: [team-a]
    ///       serviceAccounts: [pages]
    ///       rules: [{ apiGroups: [example.com], resources: [pages], verbs: [get, list, watch, patch] }]
    /// ";
    /// assert!(Ceilings::parse(text, Path::new("ceilings.yaml")).unwrap().of("team-a").is_some());
    /// let errors = Ceilings::parse(&text.replace("patch", "push"), Path::new("ceilings.yaml")).unwrap_err();
    /// assert!(errors.to_string().starts_with("ceilings.yaml:9:"));
    /// ```
    pub fn parse(text: &str, file: &Path) -> Result<Self, Errors> {
        super::parse::ceilings(text, file).map(Self)
    }

    /// Returns the ceiling of a namespace; `None`: the daemon runs no operators of it.
    pub fn of(&self, namespace: &str) -> Option<&Arc<Ceiling>> {
        self.0.get(namespace)
    }

    /// Returns all namespaces that have one.
    pub fn namespaces(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.keys()
    }

    /// Returns each ceiling once.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Ceiling>> {
        self.0.iter().filter(|(namespace, ceiling)| ceiling.namespaces.first() == Some(namespace)).map(|(_, one)| one)
    }
}
