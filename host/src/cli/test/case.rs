//! Reads the folder of a golden case, and says at file and line what is wrong in it.

#![expect(clippy::indexing_slicing, reason = "a JSON value that is not there is null")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use capstan_core::kinds::is_built_in;
use capstan_core::manifest::{Controller, Operator};
use capstan_core::object::Gvk;
use capstan_core::operator::ceiling::kinds::fields;
use capstan_core::schema::{Definition, Nulls};
use capstan_core::yaml;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cli::objects::{misread, objects, placed, text};
use crate::controller::rehearsal::{MOST_RUNS, Played, Scene, Written, admit, held_by};
use crate::plugin::CONTRACT;

/// The most that is told of a file: each is looked up in it.
const TOLD: usize = 64;

/// The files that a case may have.
pub(in crate::cli) const FILES: [&str; 3] = ["primary.yaml", "world.yaml", "expected.yaml"];

/// A case as it is read: the primary, and what else there is.
pub(super) struct Case {
    folder: PathBuf,
    /// The kind of the primary.
    pub(super) kind: Gvk,
    /// The primary.
    pub(super) primary: Value,
    /// What else there is.
    pub(super) world: Vec<(Gvk, Value)>,
}

/// What comes of a case: the content of `expected.yaml`.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Expected {
    /// The contract between daemon and component for which it was written.
    contract: String,
    /// How many runs it took until nothing changed any more.
    runs: u32,
    /// `succeeded`, or the text of the failure.
    pub(super) ended: String,
    /// The primary runs again after this time, as its last run asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    again: Option<String>,
    /// What was written, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    writes: Vec<ExpectedWrite>,
    /// The Kubernetes Events: type, reason and text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    events: Vec<String>,
    /// The status of the primary afterwards.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    status: Value,
}

/// A write: what it is called, and what is sent.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ExpectedWrite {
    /// The verb and the object.
    write: String,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    /// The object or the patch.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    body: Value,
}

/// Returns the folders of all cases whose names contain a text, in order.
///
/// # Errors
/// If there is none, or the folder can't be read.
pub(super) fn folders(cases: &Path, filter: &str) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(cases).with_context(|| format!("read the cases in {}", cases.display()))?;
    let mut all: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()).collect();
    all.sort();
    let found: Vec<_> = all.iter().filter(|path| name(path).contains(filter)).cloned().collect();
    let names = || all.iter().map(|path| name(path)).collect::<Vec<_>>().join(", ");
    anyhow::ensure!(
        !all.is_empty(),
        "there is no case in {}: make the folder NAME with primary.yaml in it",
        cases.display()
    );
    anyhow::ensure!(!found.is_empty(), "no case has {filter} in its name; there is {}", names());
    Ok(found)
}

fn name(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl Case {
    /// Reads a case.
    ///
    /// # Errors
    /// What is wrong in which file, at which line.
    pub(super) fn read(folder: &Path) -> anyhow::Result<Self> {
        for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
            let file = entry?.file_name().to_string_lossy().into_owned();
            anyhow::ensure!(
                FILES.contains(&&*file) || file.starts_with('.'),
                "{}: a case has no such file; expected {}",
                folder.join(&file).display(),
                FILES.join(", ")
            );
        }
        let file = folder.join("primary.yaml");
        let mut primaries = objects(&file)?;
        let (kind, primary) = primaries
            .pop()
            .with_context(|| format!("{}:1: there is no object; expected the primary", file.display()))?;
        anyhow::ensure!(
            primaries.is_empty(),
            "{}:1: there are several objects; expected the primary alone, and others in world.yaml",
            file.display()
        );
        let world = folder.join("world.yaml");
        let world = if world.exists() { objects(&world)? } else { Vec::new() };
        Ok(Self { folder: folder.to_owned(), kind, primary, world })
    }

    /// Checks that its controller may look at all kinds that there are.
    ///
    /// # Errors
    /// Those that it knows nothing of, at file and line.
    pub(super) fn check_kinds(&self, operator: &Operator, spec: &Controller) -> anyhow::Result<()> {
        let plugin = operator.plugins.get(&spec.plugin);
        let grants = plugin.into_iter().flat_map(|plugin| &plugin.capabilities.kubernetes).map(|grant| &grant.gvk);
        let kinds: BTreeSet<_> = fields(spec).into_iter().map(|(_, gvk)| gvk).chain(grants).collect();
        let names: Vec<_> = kinds.iter().map(ToString::to_string).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let mut wrong = Vec::new();
        for (at, (kind, _)) in self.world.iter().enumerate().filter(|(_, (kind, _))| !kinds.contains(kind)) {
            let file = self.world_file();
            let near = yaml::similar(&kind.to_string(), &names);
            let near =
                near.map_or_else(|| format!("there is {}", names.join(", ")), |near| format!("did you mean {near}?"));
            wrong.push(format!(
                "{}:{}: kind: found {kind}, which neither controller {} has as primary, source or dependent nor `capabilities.kubernetes` of its plugin names; {near}",
                file.display(),
                yaml::line_of(&text(&file)?, at, "kind"),
                spec.own_name,
            ));
        }
        anyhow::ensure!(wrong.is_empty(), wrong.join("\n"));
        Ok(())
    }

    /// Checks that a primary that is deleted has one of the finalizers by which its controller learns of that: without it, nothing is cleaned up.
    ///
    /// # Errors
    /// If it has none, at file and line, with those that it may have.
    pub(super) fn check_finalizers(&self, scene: &Scene<'_>) -> anyhow::Result<()> {
        let (known, metadata) = (held_by(scene), &self.primary["metadata"]);
        let found = metadata["finalizers"].as_array().map_or(&[][..], Vec::as_slice);
        let is_known = |found: &Value| known.iter().any(|known| *found == **known);
        if metadata["deletionTimestamp"].is_null() || known.is_empty() || found.iter().any(is_known) {
            return Ok(());
        }
        let Scene { spec, definitions, .. } = scene;
        let is_guess = spec.finalizer.is_none() && Definition::plural(definitions, &self.kind).is_none();
        let guess = "; its plural is guessed, as no definition beside the manifest says it";
        let file = self.primary_file();
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        anyhow::bail!(
            "{}:{}: metadata.finalizers: found {} and a deletionTimestamp, so controller {} would clean up nothing; expected {}{}",
            file.display(),
            yaml::line_of(&text(&file)?, 0, "metadata.finalizers"),
            if found.is_empty() { "none".to_owned() } else { found.join(", ") },
            spec.own_name,
            known.join(" or "),
            if is_guess && !is_built_in(&self.kind) { guess } else { "" },
        )
    }

    /// Checks that its objects fit their definitions, as far as there are any.
    ///
    /// # Errors
    /// All that does not, at file and line.
    pub(super) fn check(&self, definitions: &[Definition]) -> anyhow::Result<()> {
        let primary = std::slice::from_ref(&self.primary).iter().map(|primary| (&self.kind, primary));
        let world = self.world.iter().map(|(kind, object)| (kind, object));
        let mut wrong = unfit(definitions, &self.primary_file(), primary)?;
        wrong.extend(unfit(definitions, &self.world_file(), world)?);
        anyhow::ensure!(wrong.is_empty(), wrong.join("\n"));
        Ok(())
    }

    /// Returns the file that says what is expected.
    pub(super) fn expected_file(&self) -> PathBuf {
        self.folder.join("expected.yaml")
    }

    /// Returns the file with the primary.
    pub(super) fn primary_file(&self) -> PathBuf {
        self.folder.join("primary.yaml")
    }

    fn world_file(&self) -> PathBuf {
        self.folder.join("world.yaml")
    }

    /// Returns what is expected; none if nobody has said it yet.
    ///
    /// # Errors
    /// What is wrong in the file, at which line; or that it is for another contract.
    pub(super) fn expected(&self) -> anyhow::Result<Option<Expected>> {
        let file = self.expected_file();
        if !file.exists() {
            return Ok(None);
        }
        let text = text(&file)?;
        let expected: Expected = serde_yaml::from_str(&text).map_err(|error| placed(&file, &error))?;
        if expected.contract != CONTRACT {
            let line = text.lines().position(|line| line.starts_with("contract:")).map_or(1, |line| line + 1);
            anyhow::bail!(
                "{}:{line}: contract: found {}; this daemon has {CONTRACT}: if the case still holds, write it anew by --bless",
                file.display(),
                expected.contract
            );
        }
        Ok(Some(expected))
    }
}

/// Returns what does not fit of the objects of a file.
fn unfit<'a>(
    definitions: &[Definition],
    file: &Path,
    objects: impl Iterator<Item = (&'a Gvk, &'a Value)>,
) -> anyhow::Result<Vec<String>> {
    let (mut wrong, text) = (Vec::new(), if file.exists() { text(file)? } else { String::new() });
    for (at, (kind, object)) in objects.enumerate() {
        for unfit in admit(definitions, kind, &mut object.clone(), Nulls::LeftOut)? {
            if wrong.len() == TOLD {
                wrong.push(format!("{}: and more", file.display()));
                return Ok(wrong);
            }
            let line = yaml::line_of(&text, at, &unfit.path);
            let hint = yaml::written_at(&text, at, &unfit.path).and_then(|written| misread(&written));
            let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
            wrong.push(format!("{}:{line}: {unfit}{hint}", file.display()));
        }
    }
    Ok(wrong)
}

impl Expected {
    /// Returns what has come of a case.
    pub(super) fn of(played: Played) -> Self {
        let Played { runs, refused, at_rest, failure, again, writes, events, primary, notes: _ } = played;
        let ended = match &failure {
            Some(failure) => format!("failed: {failure}"),
            None if !at_rest && refused > 0 => {
                format!(
                    "not at rest: each of {MOST_RUNS} runs has asked for writes; in {refused} of them all were refused"
                )
            }
            None if !at_rest => format!("not at rest: each of {MOST_RUNS} runs has written something"),
            None if primary.is_null() => "succeeded: the primary has gone".to_owned(),
            None => "succeeded".to_owned(),
        };
        let write = |Written { what, body, refused }| ExpectedWrite { write: what, refused, body };
        Self {
            contract: CONTRACT.to_owned(),
            runs,
            ended,
            again: again.map(|after| format!("{}ms", after.as_millis())),
            writes: writes.into_iter().map(write).collect(),
            events: events.into_iter().map(|(sort, reason, text)| format!("{sort} {reason}: {text}")).collect(),
            status: primary["status"].clone(),
        }
    }

    /// Returns a few words on it.
    pub(super) fn sum(&self) -> String {
        format!("{} runs, {} writes", self.runs, self.writes.len())
    }

    /// Returns the text of the file that says it.
    ///
    /// # Errors
    /// If it can't be written as YAML.
    pub(super) fn text(&self) -> anyhow::Result<String> {
        Ok(serde_yaml::to_string(self)?)
    }
}
