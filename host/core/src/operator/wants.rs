//! Lists what a version of an operator wants: what its components import and offer, and what its manifest gives them (`AP-1`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde_json::json;

use crate::guest::{Description, Names};
use crate::manifest::{Component, Operator};
use crate::network::Destination;
use crate::registry::Digest;
use crate::registry::artifact::Interfaces;
use crate::rollout::plan::Attempt;

mod given;

/// What a version of an operator wants, field by field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wants(pub(super) BTreeMap<Field, Want>);

/// What is wanted, as it is told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Field {
    /// By whom: a plugin, a controller, the operator as a whole; empty where there is only a component.
    pub(super) of: String,
    pub(super) rank: Rank,
    /// A right, a limit, a field.
    pub(super) what: String,
}

/// What fields are about, in the order in which they are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// What the manifest permits.
    Given,
    /// What the component asks the daemon for.
    Import,
    /// What it offers.
    Export,
    /// What it answers to.
    Name,
    /// What is only told.
    Told,
}

/// How much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// These: one more is more.
    These(BTreeSet<Thing>),
    /// At most so much.
    AtMost(Amount),
    /// These names, with their versions, which may be empty.
    Names(BTreeMap<String, String>),
    /// This text.
    Text(String),
}

/// One of the things that a right is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Thing {
    /// All that there are, as they are called.
    All(&'static str),
    /// This one.
    One(String),
    /// What is in a place, everywhere if there is none; as far as it is selected, all of it if nothing is said.
    In { place: Option<String>, selected: String },
    /// These hosts; `true`: also at addresses of private networks.
    Host(Destination),
}

/// A bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Amount {
    /// How much; `None`: there is no bound.
    pub(super) most: Option<u64>,
    /// What holds where nothing is said of it.
    pub(super) usual: Option<u64>,
    /// What is counted.
    pub(super) unit: &'static str,
}

/// What is known of a component without running it for somebody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The names of its imports and exports.
    pub interfaces: Interfaces,
    /// Its bytes.
    pub size: u64,
}

/// The package of the contract between components and the daemon.
const CONTRACT: &str = "capstan:operator/";

/// What imports begin with by which a component reaches nothing but itself, its own run, and what it prints. All others reach out.
const WITHIN: [&str; 13] = [
    "wasi:cli/",
    "wasi:clocks/",
    "wasi:filesystem/",
    "wasi:io/",
    "wasi:random/",
    "capstan:operator/types",
    "capstan:operator/context",
    "capstan:operator/workflow",
    "capstan:operator/expectations",
    "capstan:operator/memo",
    "capstan:operator/config",
    "capstan:operator/log",
    "capstan:operator/system",
];

// === impl Wants ===

impl Wants {
    /// Returns what one component wants.
    pub fn of_component(about: &About) -> Self {
        let mut wants = Self::default();
        wants.add_component("", about, None);
        wants
    }

    /// Returns what the manifest of an operator gives.
    pub fn of_manifest(operator: &Operator) -> Self {
        let mut wants = Self::default();
        wants.add_operator(operator.on_new_version);
        let controllers = || operator.controllers.values();
        for (name, plugin) in &operator.plugins {
            wants.add_plugin(name, plugin, &controllers().filter(|of| of.plugin == *name).collect::<Vec<_>>());
        }
        controllers().for_each(|controller| wants.add_controller(controller));
        wants
    }

    /// Adds what a plugin of an operator wants: as it is declared, and what is known of its component, if it has one.
    #[must_use]
    pub fn and(mut self, plugin: &str, attempt: &Attempt, component: (Option<&About>, Option<&Description>)) -> Self {
        self.add_operator(attempt.on_new_version);
        self.add_plugin(plugin, &attempt.plugin, &attempt.controllers.values().collect::<Vec<_>>());
        attempt.controllers.values().for_each(|controller| self.add_controller(controller));
        if let (Some(about), description) = component {
            self.add_component(&of_plugin(plugin), about, description);
        }
        self
    }

    /// Whether it wants nothing at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a digest of all that the manifest gives. What is as usual leaves no trace in it, so that it stays as it is where a new daemon knows
    /// of more.
    pub fn given(&self) -> Digest {
        let mut lines = Vec::new();
        for (Field { of, what, .. }, want) in self.0.iter().filter(|(field, _)| field.rank == Rank::Given) {
            match want {
                Want::These(things) => {
                    lines.extend(things.iter().map(|thing| json!([of, what, thing.to_string()])));
                }
                Want::AtMost(Amount { most, unit, .. }) => lines.push(json!([of, what, most, unit])),
                Want::Names(_) | Want::Text(_) => {}
            }
        }
        Digest::sha256(json!(["v1", lines]).to_string().as_bytes())
    }

    fn add_component(&mut self, of: &str, About { interfaces, size }: &About, description: Option<&Description>) {
        let Interfaces { imports, exports } = interfaces;
        let mut add = |rank, what: &str, want| {
            self.0.insert(Field { of: of.to_owned(), rank, what: what.to_owned() }, want);
        };
        add(Rank::Import, "import", Want::Names(versions(imports)));
        add(Rank::Export, "export", Want::Names(versions(exports)));
        if let Some(description) = description {
            add(Rank::Name, "name", Want::Names(names(description)));
        }
        let contract = imports.iter().chain(exports).find_map(|name| name.strip_prefix(CONTRACT)?.split_once('@'));
        if let Some((_, version)) = contract {
            add(Rank::Told, "contract", Want::Text(version.to_owned()));
        }
        // Last of all.
        add(Rank::Told, "size", Want::AtMost(Amount { most: Some(*size), usual: None, unit: "bytes" }));
    }

    /// Adds one of the things that somebody is given.
    fn give(&mut self, of: &str, what: String, thing: Thing) {
        let want = self.0.entry(Field { of: of.to_owned(), rank: Rank::Given, what });
        if let Want::These(things) = want.or_insert_with(|| Want::These(BTreeSet::new())) {
            things.insert(thing);
        }
    }

    /// Adds a bound that is not as usual.
    fn bound(&mut self, of: &str, what: &str, most: Option<u64>, (usual, unit): (Option<u64>, &'static str)) {
        if most != usual {
            let field = Field { of: of.to_owned(), rank: Rank::Given, what: what.to_owned() };
            self.0.insert(field, Want::AtMost(Amount { most, usual, unit }));
        }
    }
}

/// Whether a component reaches out by an import, so that one more is more.
pub(super) fn reaches_out(import: &str) -> bool {
    !WITHIN.iter().any(|within| import.starts_with(within))
}

fn of_plugin(name: &str) -> String {
    format!("plugin {name}")
}

/// Returns names without their versions, and which those are.
fn versions(names: &[String]) -> BTreeMap<String, String> {
    let parts = |name: &String| {
        let (name, version) = name.split_once('@').unwrap_or((name, ""));
        (name.to_owned(), version.to_owned())
    };
    names.iter().map(parts).collect()
}

/// Returns the names that a component answers to: `condition ready`, `reconciler of the controller web`.
fn names(description: &Description) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in &description.entries {
        let of = entry.controller.as_ref().map(|name| format!(" of the controller {name}")).unwrap_or_default();
        let mut add = |name: &str| found.insert(format!("{}{name}{of}", entry.exported), String::new());
        match &entry.names {
            Names::Open => drop(add("")),
            Names::These(names) => names.iter().for_each(|name| drop(add(&format!(" {name}")))),
        }
    }
    found
}

// === impl Thing ===

impl Thing {
    /// Whether who has this has the other as well.
    pub(super) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All(_), _) => true,
            (Self::Host(own), Self::Host(other)) => own.covers(other),
            (Self::In { place, selected }, Self::In { place: other, selected: others }) => {
                (place.is_none() || place == other) && (selected.is_empty() || selected == others)
            }
            (own, other) => own == other,
        }
    }

    /// Returns where a component is found.
    fn place(component: &Component) -> Self {
        Self::One(match component {
            Component::File(_) => "files of the daemon".to_owned(),
            Component::Registry(image) => image.reference.name(),
        })
    }
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(all) => f.write_str(all),
            Self::One(name) => f.write_str(name),
            Self::In { place, selected } => {
                write!(f, "{}{selected}", place.as_deref().unwrap_or("all namespaces"))
            }
            Self::Host(to) if to.internal => write!(f, "{to}, also in private networks"),
            Self::Host(to) => write!(f, "{to}"),
        }
    }
}

/// What a version is: its components, by plugin, and what its manifest gives them. An approval is of one of these (`AP-3`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The digests of its components.
    pub components: BTreeMap<Arc<str>, Digest>,
    /// That of what it is given.
    pub given: Digest,
}
