//! Decides which operations there are, and what is in them.

use std::fmt::{self, Display, Formatter};

use serde_json::Value;

use crate::chance::Chance;
use crate::object::{applied, change, json_patch, whole};

/// A kind that operations are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    ConfigMap,
    Secret,
    Service,
    Deployment,
    Thing,
    Probe,
}

/// What a request says of a version or a uid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Nothing,
    /// That of the object as it is.
    Current,
    /// One that it had once; another if it had none.
    Former,
}

/// An operation.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) kind: Kind,
    pub(crate) name: &'static str,
    pub(crate) status: bool,
    /// What stands in the query.
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) act: Act,
}

/// What an operation does.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Create(Value),
    /// Reads the object, merges this into it, and puts it.
    Replace {
        change: Value,
        version: Said,
        uid: Said,
    },
    Merge {
        patch: Value,
        version: Said,
    },
    Json(Value),
    Apply {
        object: Value,
        version: Said,
    },
    Delete {
        version: Said,
        uid: Said,
    },
    Get,
    List,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] =
        [Self::ConfigMap, Self::Secret, Self::Service, Self::Deployment, Self::Thing, Self::Probe];

    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Self::ConfigMap | Self::Secret | Self::Service => "v1",
            Self::Deployment => "apps/v1",
            Self::Thing => "model.capstan.dev/v1",
            Self::Probe => "test.capstan.dev/v1",
        }
    }

    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmaps",
            Self::Secret => "secrets",
            Self::Service => "services",
            Self::Deployment => "deployments",
            Self::Thing => "things",
            Self::Probe => "probes",
        }
    }

    /// Returns the path of its objects in a namespace.
    pub(crate) fn path(self, namespace: &str) -> String {
        let root = if self.api_version() == "v1" { "/api" } else { "/apis" };
        format!("{root}/{}/namespaces/{namespace}/{}", self.api_version(), self.plural())
    }

    /// Returns whether `/status` is a path of its own.
    pub(crate) fn has_status(self) -> bool {
        !matches!(self, Self::ConfigMap | Self::Secret)
    }
}

/// Draws an operation on one of these kinds.
pub(crate) fn draw(chance: &mut Chance, kinds: &[Kind]) -> Operation {
    let kind = chance.of(kinds);
    let name = chance.of(&["a", "b"]);
    let status = kind.has_status() && chance.once_in(4);
    let act = act(chance, kind, name, status);
    let query = query(chance, &act);
    Operation {
        kind,
        name,
        status: status && matches!(act, Act::Replace { .. } | Act::Merge { .. } | Act::Apply { .. } | Act::Get),
        query,
        act,
    }
}

fn act(chance: &mut Chance, kind: Kind, name: &str, status: bool) -> Act {
    let said =
        |chance: &mut Chance| chance.of(&[Said::Nothing, Said::Nothing, Said::Current, Said::Current, Said::Former]);
    match chance.below(16) {
        0 | 1 => Act::Create(whole(chance, kind, name)),
        2..=4 => Act::Replace {
            change: change(chance, kind, status),
            version: said(chance),
            uid: chance.of(&[Said::Nothing, Said::Current, Said::Current, Said::Former]),
        },
        5 | 6 => Act::Merge {
            patch: change(chance, kind, status),
            version: if chance.once_in(3) { said(chance) } else { Said::Nothing },
        },
        7 => Act::Json(json_patch(chance, kind)),
        8..=11 => Act::Apply {
            object: applied(chance, kind, name, status),
            version: if chance.once_in(8) { said(chance) } else { Said::Nothing },
        },
        12 | 13 => Act::Delete {
            version: if chance.once_in(3) { said(chance) } else { Said::Nothing },
            uid: if chance.once_in(3) { said(chance) } else { Said::Nothing },
        },
        14 => Act::Get,
        _ => Act::List,
    }
}

fn query(chance: &mut Chance, act: &Act) -> Vec<(&'static str, String)> {
    let mut query = Vec::new();
    match act {
        Act::Get | Act::Delete { .. } => {}
        Act::List => query = list_query(chance),
        Act::Create(_) | Act::Replace { .. } | Act::Merge { .. } | Act::Json(_) | Act::Apply { .. } => {
            let applies = matches!(act, Act::Apply { .. });
            if applies || chance.once_in(2) {
                query.push(("fieldManager", chance.of(&["m1", "m2", "m3"]).to_owned()));
            }
            if applies && chance.once_in(3) {
                query.push(("force", "true".to_owned()));
            }
            if chance.once_in(8) {
                query.push(("fieldValidation", chance.of(&["Strict", "Ignore", "Warn"]).to_owned()));
            }
        }
    }
    if !matches!(act, Act::Get | Act::List) && chance.once_in(12) {
        query.push(("dryRun", "All".to_owned()));
    }
    query
}

fn list_query(chance: &mut Chance) -> Vec<(&'static str, String)> {
    let labels = ["x", "x=1", "!x", "x!=1", "x in (1,2)", "y notin (1)"];
    let fields = ["metadata.name=a", "metadata.name!=a", "metadata.namespace!=default", "spec.x=1"];
    let mut query = Vec::new();
    let mut add = |drawn: bool, name, value: &str| query.extend(drawn.then(|| (name, value.to_owned())));
    add(chance.once_in(2), "labelSelector", chance.of(&labels));
    add(chance.once_in(3), "fieldSelector", chance.of(&fields));
    add(chance.once_in(2), "limit", "1");
    query
}

impl Operation {
    /// Returns what it is about.
    pub(crate) fn about(&self) -> String {
        format!("{:?} {}", self.kind, self.name)
    }
}

impl Act {
    /// Returns the method and the content type.
    pub(crate) fn method(&self) -> (&'static str, &'static str) {
        match self {
            Self::Create(_) => ("POST", "application/json"),
            Self::Replace { .. } => ("PUT", "application/json"),
            Self::Merge { .. } => ("PATCH", "application/merge-patch+json"),
            Self::Json(_) => ("PATCH", "application/json-patch+json"),
            Self::Apply { .. } => ("PATCH", "application/apply-patch+yaml"),
            Self::Delete { .. } => ("DELETE", "application/json"),
            Self::Get | Self::List => ("GET", ""),
        }
    }
}

impl Display for Operation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { kind, name, status, query, act } = self;
        let part = if *status { "/status" } else { "" };
        write!(f, "{kind:?} {name}{part} {query:?} ")?;
        match act {
            Act::Create(object) => write!(f, "create {object}"),
            Act::Replace { change, version, uid } => write!(f, "replace {change} version {version:?} uid {uid:?}"),
            Act::Merge { patch, version } => write!(f, "merge {patch} version {version:?}"),
            Act::Json(patch) => write!(f, "patch {patch}"),
            Act::Apply { object, version } => write!(f, "apply {object} version {version:?}"),
            Act::Delete { version, uid } => write!(f, "delete version {version:?} uid {uid:?}"),
            Act::Get => f.write_str("get"),
            Act::List => f.write_str("list"),
        }
    }
}
