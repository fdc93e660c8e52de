//! Holds the primaries that have a label for this daemon, renews that, and gives them back at the end (PA-6).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use capstan_core::manifest::{Namespaces, Operator};
use capstan_core::object::Gvk;
use capstan_core::object::hold::{HELD, Hold, MARGIN};
use capstan_core::text::said;
use http::header::DATE;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::fmt::rfc2822;
use kube::api::{Api, ListParams, PartialObjectMeta, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::client::{ApiServer, told};
use crate::logging::Log;
use crate::operators;

/// How long a hold lasts that nobody renews.
const LASTS: Duration = Duration::from_mins(1);

/// How often it is renewed.
const RENEW: Duration = Duration::from_secs(15);

/// How long whoever had a primary before has to end its run.
const LEAD: Duration = Duration::from_secs(5);

/// The most primaries of a kind that are held.
const MOST: usize = 100;

/// The most by which the clock of this machine may differ from that of the API server.
const SKEW: Duration = Duration::from_secs(5);

/// A primary: kind, namespace and name.
type Named = (Gvk, Option<String>, String);

/// Primaries that are held.
pub(super) struct Takeover {
    client: kube::Client,
    api: Arc<ApiServer>,
    manifest: PathBuf,
    /// The label.
    label: String,
    /// The name of this daemon.
    pub(super) name: Arc<str>,
    /// Those that are held by others, and by whom, which has been told; `None`: by us.
    known: BTreeMap<Named, Option<String>>,
    /// Where primaries are, by the last manifest that was right.
    places: BTreeSet<(Gvk, Option<String>)>,
    log: Log,
}

/// What becomes of a hold that is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Release {
    /// It ends at once: nothing is written here any more.
    AtOnce,
    /// It ends when what runs here has been broken off.
    AfterLead,
}

/// What follows from the annotation of a primary that has the label.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// It is held for us from now on, or still.
    Hold(Hold),
    /// Somebody else holds it.
    Leave(String),
}

impl Takeover {
    /// Returns a takeover of the primaries of this manifest that have this label.
    ///
    /// # Errors
    /// If the clock of this machine is not that of the API server: both have to know when a hold is over.
    pub(super) async fn new(
        (client, api): (kube::Client, Arc<ApiServer>),
        manifest: PathBuf,
        label: String,
        log: Log,
    ) -> anyhow::Result<Self> {
        let skew = skew(&client).await.context("compare the clock with that of the API server")?;
        anyhow::ensure!(skew <= SKEW, Skewed(skew));
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_else(|_| "localhost".to_owned());
        let user = std::env::var("USER").unwrap_or_else(|_| "somebody".to_owned());
        let name = format!("{user}@{}/{}", host.trim(), std::process::id()).into();
        let places = exact(&operators::valid(std::slice::from_ref(&manifest))?)?;
        Ok(Self { client, api, manifest, label, name, known: BTreeMap::new(), places, log })
    }

    /// Holds what has the label, for as long as this is waited for. Returns why it can't go on: the clock is wrong.
    pub(super) async fn keep(&mut self) -> anyhow::Error {
        loop {
            // What takes longer is tried anew: a hold that nobody renews ends.
            let round = timeout(RENEW, self.round()).await;
            let round =
                round.unwrap_or_else(|_| Err(anyhow::anyhow!("the API server has not answered within {RENEW:?}")));
            if let Err(error) = round {
                if error.is::<Skewed>() {
                    return error;
                }
                self.log.say(&format!("error: hold primaries with {}: {}", self.label, told(&error)));
            }
            sleep(RENEW).await;
        }
    }

    /// Gives back what is held, in no more time than the holds last anyway.
    pub(super) async fn give_back(&mut self) {
        if timeout(LASTS, self.give_all_back()).await.is_err() {
            self.log.say(&format!("error: what is held could not be given back; the holds end within {LASTS:?}"));
        }
    }

    async fn give_all_back(&mut self) {
        for (named, by) in std::mem::take(&mut self.known) {
            if by.is_none()
                && let Err(error) = self.release(&named, Release::AtOnce).await
            {
                let (gvk, _, name) = &named;
                let (kind, why) = (&gvk.kind, told(&error));
                self.log.say(&format!("error: give back {kind} {name}: {why}; its hold ends within {LASTS:?}"));
            }
        }
    }

    /// Renews all holds. What fails for one primary or kind keeps no other from being renewed; returns the first failure.
    async fn round(&mut self) -> anyhow::Result<()> {
        let skew = skew(&self.client).await.context("compare the clock with that of the API server")?;
        if skew > SKEW {
            return Err(Skewed(skew).into());
        }
        // While the manifest is wrong, the last good version goes on.
        let mut first = match operators::valid(std::slice::from_ref(&self.manifest)) {
            Ok(operators) => exact(&operators).map(|places| self.places = places),
            Err(_) => Ok(()),
        };
        let mut gone: BTreeSet<Named> = self.known.keys().cloned().collect();
        for (gvk, namespace) in self.places.clone() {
            let held = self.hold_all(&gvk, namespace.as_deref(), &mut gone).await;
            first = first.and(held);
        }
        for named in gone {
            // It has the label no more, or is gone.
            if self.known.remove(&named) == Some(None) {
                first = first.and(self.release(&named, Release::AfterLead).await);
            }
        }
        first
    }

    /// Holds what has the label of a kind, and takes that out of what is `gone`; all of the kind, if it is not known.
    async fn hold_all(&mut self, gvk: &Gvk, namespace: Option<&str>, gone: &mut BTreeSet<Named>) -> anyhow::Result<()> {
        let all = ListParams::default().labels(&self.label).limit(u32::try_from(MOST + 1).unwrap_or(u32::MAX));
        let listed = async { anyhow::Ok(self.of(gvk, namespace).await?.list_metadata(&all).await?.items) };
        let listed = listed.await.with_context(|| format!("list {}", gvk.kind)).and_then(|objects| {
            anyhow::ensure!(
                objects.len() <= MOST,
                "more than {MOST} {} have the label; a takeover is for few: expected a label that fewer have",
                gvk.kind
            );
            Ok(objects)
        });
        let objects = listed.inspect_err(|_| gone.retain(|(kind, ..)| kind != gvk))?;
        let mut first = Ok(());
        for object in objects {
            let ObjectMeta { name, namespace, .. } = &object.metadata;
            gone.remove(&(gvk.clone(), namespace.clone(), name.clone().unwrap_or_default()));
            first = first.and(self.hold(gvk, object).await);
        }
        first
    }

    /// Holds a primary, if nobody else does, and tells of it the first time.
    async fn hold(&mut self, gvk: &Gvk, object: PartialObjectMeta<DynamicObject>) -> anyhow::Result<()> {
        let ObjectMeta { name, namespace, resource_version, annotations, .. } = object.metadata;
        let named = (gvk.clone(), namespace, name.unwrap_or_default());
        let held = annotations.and_then(|mut all| all.remove(HELD));
        let mut by = None;
        match step(held.as_deref(), &self.name, Timestamp::now()) {
            Step::Leave(other) => by = Some(other),
            Step::Hold(hold) => {
                let version = resource_version.unwrap_or_default();
                if !self.annotate(&named, &version, Some(hold.text())).await? {
                    // The next round knows.
                    let changed = || Some("somebody who has just changed it".to_owned());
                    by = self.known.get(&named).cloned().unwrap_or_else(changed);
                }
            }
        }
        if self.known.get(&named) != Some(&by) {
            let (_, _, name) = &named;
            self.log.say(&match &by {
                None => format!("{} {name} is held for this daemon", gvk.kind),
                Some(other) => format!("{} {name} is left alone: it is held by {}", gvk.kind, said(other)),
            });
        }
        self.known.insert(named, by);
        Ok(())
    }

    /// Gives our hold up, unless it is another one by now.
    async fn release(&self, named: &Named, how: Release) -> anyhow::Result<()> {
        let (gvk, namespace, name) = named;
        for _ in 0..3 {
            let Some(now) = self.of(gvk, namespace.as_deref()).await?.get_metadata_opt(name).await? else {
                return Ok(());
            };
            let held = now.metadata.annotations.as_ref().and_then(|all| Hold::read(all.get(HELD)?));
            let Some(hold) = held.filter(|hold| hold.holder == *self.name) else {
                return Ok(());
            };
            let version = now.metadata.resource_version.unwrap_or_default();
            let text = match how {
                Release::AtOnce => None,
                Release::AfterLead => Some(ending(&hold, Timestamp::now()).text()),
            };
            if self.annotate(named, &version, text).await? {
                return Ok(());
            }
        }
        anyhow::bail!("others keep changing it")
    }

    /// Writes the annotation, or removes it; false if the object is not in this version any more.
    async fn annotate(
        &self,
        (gvk, namespace, name): &Named,
        version: &str,
        text: Option<String>,
    ) -> anyhow::Result<bool> {
        let patch = json!({ "metadata": { "resourceVersion": version, "annotations": { HELD: text } } });
        let api = self.of(gvk, namespace.as_deref()).await?;
        match api.patch_metadata(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
            Err(error) => Err(error).with_context(|| format!("annotate {} {name}", gvk.kind)),
        }
    }

    async fn of(&self, gvk: &Gvk, namespace: Option<&str>) -> anyhow::Result<Api<DynamicObject>> {
        let kind = self.api.resolve(gvk).await?;
        let named = kube::core::GroupVersionKind::gvk(&gvk.group, &gvk.version, &gvk.kind);
        let resource = ApiResource::from_gvk_with_plural(&named, &kind.plural);
        let client = self.client.clone();
        Ok(match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        })
    }
}

/// Returns where primaries of operators are in this cluster: kinds, each everywhere (`None`) or in a namespace.
pub(super) fn places(operators: &[Operator]) -> BTreeSet<(Gvk, Option<String>)> {
    let controllers = operators.iter().flat_map(|operator| operator.controllers.values());
    let here = controllers.filter(|spec| spec.cluster.is_none());
    here.flat_map(|spec| match &spec.namespaces {
        Namespaces::Listed(names) => {
            names.iter().map(|name| (spec.primary.clone(), Some(name.to_string()))).collect::<Vec<_>>()
        }
        Namespaces::All | Namespaces::Own | Namespaces::Selected(_) => vec![(spec.primary.clone(), None)],
    })
    .collect()
}

/// Returns the same, where each can be found as the daemon does.
///
/// # Errors
/// If primaries are selected by more than kind and namespace: what has the label, and is not selected, would be done by nobody.
fn exact(operators: &[Operator]) -> anyhow::Result<BTreeSet<(Gvk, Option<String>)>> {
    for spec in operators.iter().flat_map(|operator| operator.controllers.values()) {
        let selects = spec.label_selector.is_some() || spec.field_selector.is_some() || spec.shard_selector.is_some();
        let moves = matches!(spec.namespaces, Namespaces::Own | Namespaces::Selected(_));
        anyhow::ensure!(
            !selects && !moves,
            "controller {}: a takeover needs primaries that are told by kind and namespaces alone; leave out `labelSelector`, `fieldSelector`, `shardSelector`, and `namespaces: own` or by selector",
            spec.name
        );
    }
    Ok(places(operators))
}

/// Returns a hold that ends when what runs here has been broken off, and that is broken off at once.
fn ending(hold: &Hold, now: Timestamp) -> Hold {
    let from = hold.times().map_or(now, |(from, _)| from);
    Hold::new(&hold.holder, from, now + LEAD)
}

/// The clock of this machine is not that of the API server.
#[derive(Debug, thiserror::Error)]
#[error(
    "the clock of this machine differs by {0:.0?} from that of the API server; a takeover needs {SKEW:?} at most, as it ends by the clock: set it right"
)]
struct Skewed(Duration);

/// Decides what follows from the annotation of a primary that has the label.
fn step(annotation: Option<&str>, own: &str, now: Timestamp) -> Step {
    let end = now + LASTS;
    let Some(text) = annotation else {
        return Step::Hold(Hold::new(own, now + LEAD, end));
    };
    match Hold::read(text) {
        None => Step::Leave("somebody who has not said it right".to_owned()),
        Some(hold) if !hold.lasts(now) => Step::Hold(Hold::new(own, now + LEAD, end)),
        Some(hold) if hold.holder == own => {
            // Nobody else has begun meanwhile. What has been given up here begins anew, so that it runs.
            let goes_on = hold.times().filter(|(_, until)| now + MARGIN < *until);
            Step::Hold(Hold::new(own, goes_on.map_or(now + LEAD, |(from, _)| from), end))
        }
        Some(hold) => Step::Leave(hold.holder),
    }
}

/// Returns by how much the clock of the API server differs from ours, however long its answer takes.
async fn skew(client: &kube::Client) -> anyhow::Result<Duration> {
    let request = http::Request::get("/version").body(kube::client::Body::empty())?;
    let asked = Timestamp::now();
    let answer = client.send(request).await?;
    let theirs = answer.headers().get(DATE).and_then(|date| date.to_str().ok()).context("it says no time")?;
    Ok(apart(rfc2822::DateTimeParser::new().parse_timestamp(theirs)?, (asked, Timestamp::now())))
}

/// Returns by how much a time is before or after the time between two others.
fn apart(time: Timestamp, (from, to): (Timestamp, Timestamp)) -> Duration {
    time.duration_since(time.clamp(from, to)).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use capstan_core::object::hold;

    use super::*;

    #[test]
    fn what_nobody_holds_is_held_what_is_ours_is_renewed_and_the_rest_is_left_alone() {
        let at = |second: i64| Timestamp::from_second(1_800_000_000 + second).unwrap();
        let (ana, bo) = (Hold::new("ana", at(5), at(60)), Hold::new("bo", at(5), at(60)));
        let (ana, bo) = (ana.text(), bo.text());
        for (annotation, now, expected) in [
            (None, 0, Step::Hold(Hold::new("ana", at(5), at(60)))),
            (Some(&*ana), 15, Step::Hold(Hold::new("ana", at(5), at(75)))),
            (Some(&*ana), 44, Step::Hold(Hold::new("ana", at(5), at(104)))),
            (Some(&*ana), 45, Step::Hold(Hold::new("ana", at(50), at(105)))),
            (Some(&*ana), 60, Step::Hold(Hold::new("ana", at(65), at(120)))),
            (Some(&*bo), 59, Step::Leave("bo".to_owned())),
            (Some(&*bo), 60, Step::Hold(Hold::new("ana", at(65), at(120)))),
            (Some("bo"), 60, Step::Leave("somebody who has not said it right".to_owned())),
        ] {
            assert_eq!(step(annotation, "ana", at(now)), expected, "{annotation:?} {now}");
        }
    }
    #[test]
    fn what_is_given_up_ends_at_once_here_and_a_little_later_for_others() {
        // PA-6
        let at = |second: i64| Timestamp::from_second(1_800_000_000 + second).unwrap();
        let text = ending(&Hold::new("ana", at(5), at(75)), at(20)).text();
        let apart = |own, second| hold::apart(Some(&text), own, at(second)).is_some();
        assert!(apart(Some("ana"), 20) && apart(None, 24) && !apart(None, 25));
    }

    #[test]
    fn a_slow_answer_is_no_wrong_clock() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        for (time, expected) in [(0, 10), (10, 0), (15, 0), (20, 0), (23, 3)] {
            assert_eq!(apart(at(time), (at(10), at(20))), Duration::from_secs(expected), "{time}");
        }
    }
}
