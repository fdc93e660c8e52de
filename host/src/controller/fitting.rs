//! Looks whether the fields that the manifest of a running controller names are in the schemas that the API server publishes, and
//! warns of those that are not (LC-14).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use capstan_core::budget::{self, Budget};
use capstan_core::cluster::{Error, Reason};
use capstan_core::kinds::is_built_in;
use capstan_core::manifest::Controller;
use capstan_core::manifest::fit::{Misfit, can_have, misfits, named};
use capstan_core::object::Gvk;
use capstan_core::schema::{Kind, Known, Schema};
use tokio::time::{Instant, sleep, timeout};

use super::declared::{Declared, Environment, KindAt, LONGEST_PAUSE, Sites};
use super::handle::Handle;
use super::rest::kinds_of;
use crate::backoff::Backoff;
use crate::client::published::Published;

/// How often a document is asked for that does not have the kind: that of one that has just come is published a little later.
const TRIES: usize = 5;

/// The longest pause before a kind that can't have the conditions that the manifest asks for is looked at again.
const LONGEST_UNFIT: Duration = Duration::from_mins(1);

/// The longest that a document waits for the processor time of its plugin: no other controller is given one meanwhile.
const TURN: Duration = Duration::from_secs(2);

/// The most findings that are told of one version.
const MOST: usize = 20;

/// What a document says: what is not there, and whether primaries can have conditions, if that is known.
type Found = (Vec<Misfit>, Option<bool>);

/// Why nothing can be said of a kind.
#[derive(Debug, thiserror::Error)]
enum Unread {
    /// The document did not come.
    #[error(transparent)]
    Asked(#[from] Error),
    /// It is none, or costs too much.
    #[error("the published schema can't be read: {0}")]
    Read(#[from] budget::Error),
    /// It is no text.
    #[error("the published schema is no text")]
    NoText,
    /// It was not its turn.
    #[error("its plugin uses all of its processor time for something else")]
    NoTurn,
    /// It does not have the kind.
    #[error("no schema of it is published")]
    Absent,
}

/// Looks at each version that runs, for as long as this is polled.
pub(super) async fn follow(handle: Arc<Handle>, environment: Arc<Environment>) {
    let mut edition = handle.edition.subscribe();
    let mut told = BTreeSet::new();
    let chance = environment.api.chance().of(&format!("{} conditions", handle.name));
    let mut pause = Backoff::up_to(LONGEST_UNFIT, &chance);
    loop {
        edition.mark_unchanged();
        let mut again = None;
        if let Some(declared) = handle.running() {
            tokio::select! {
                biased;
                Ok(()) = edition.changed() => continue,
                found = look(&handle, &declared, &environment) => told = tell(&declared, found, &told),
            }
            again = lacks_conditions(&handle).then(|| pause.longer());
        }
        tokio::select! {
            changed = edition.changed() => {
                if changed.is_err() {
                    // Never happens: the handle has the sender.
                    return;
                }
                pause = Backoff::up_to(LONGEST_UNFIT, &chance);
            }
            () = sleep(again.unwrap_or_default()), if again.is_some() => {}
        }
    }
}

/// Whether the conditions that the running version asks for are left out.
fn lacks_conditions(handle: &Handle) -> bool {
    let running = handle.controller();
    running.is_some_and(|now| now.spec.keeps_conditions() && now.conditions.known() != Some(true))
}

/// Takes in what is known of whether primaries can have the conditions that the manifest asks for (`SC-5`).
fn learn(handle: &Handle, known: Option<bool>) {
    if let (Some(controller), Some(can)) = (handle.controller(), known)
        && controller.conditions.learn(can)
    {
        handle.queue.event_for_all(Instant::now());
    }
}

/// Warns of what was found and not told before. Returns all of it.
fn tell(declared: &Declared, found: Vec<Misfit>, told: &BTreeSet<(String, String)>) -> BTreeSet<(String, String)> {
    let all: BTreeSet<_> = found.into_iter().map(|misfit| (misfit.field, misfit.message)).collect();
    let new: Vec<_> = all.difference(told).collect();
    for (field, why) in new.iter().take(MOST) {
        tracing::warn!(operator = %declared.operator, field, why, "the manifest names what its kind does not have");
    }
    let more = new.len().saturating_sub(MOST);
    if more > 0 {
        tracing::warn!(operator = %declared.operator, more, "the manifest names more that its kinds do not have");
    }
    all
}

/// Returns what a version names that its kinds do not have, as far as that can be told.
pub(super) async fn look(handle: &Handle, declared: &Declared, environment: &Environment) -> Vec<Misfit> {
    let spec = &declared.spec;
    let sites = declared.sites(environment);
    let mut found = misfits(spec, &ask(spec, &scopes(spec, &sites)), &mut Budget::of_run()).unwrap_or_default();
    // Each group and version has one document.
    let mut documents = BTreeMap::<_, Vec<KindAt>>::new();
    let kinds = named(spec).into_iter().map(|(gvk, cluster)| KindAt::of(spec, cluster.as_ref(), &gvk));
    let is_served = |at: &KindAt| sites.at(at.cluster.as_ref()).api.known(&at.gvk).is_some();
    for at in kinds.filter(|at| !is_built_in(&at.gvk) && is_served(at)) {
        let document = (at.cluster.clone(), at.gvk.api_version().into_owned());
        documents.entry(document).or_default().push(at);
    }
    let primary = KindAt::of_primaries(spec);
    for kinds in documents.into_values() {
        match read(handle, spec, &sites, &kinds).await {
            Ok((misfits, can)) => {
                found.extend(misfits);
                if kinds.contains(&primary) {
                    learn(handle, can);
                }
            }
            Err(error) => {
                let kinds: Vec<_> = kinds.iter().map(ToString::to_string).collect();
                tracing::debug!(%error, kinds = kinds.join(", "), "what the manifest names is not looked for in its kinds");
            }
        }
    }
    if spec.keeps_conditions() && handle.controller().is_some_and(|now| now.conditions.known().is_none()) {
        let field = format!("spec.controllers.{}.statusConditions", spec.own_name);
        let message = format!(
            "found `standard`; whether {} can have conditions is not known yet, and none are written until it is",
            spec.primary
        );
        found.push(Misfit::new(field, message));
    }
    found
}

/// Returns what a controller names that these kinds, all of one group and version, do not have; and whether its primaries can have
/// conditions, if that is known.
async fn read(handle: &Handle, spec: &Controller, sites: &Sites, kinds: &[KindAt]) -> Result<Found, Unread> {
    let Some(KindAt { cluster, gvk }) = kinds.first() else {
        return Ok((Vec::new(), None));
    };
    let api = &sites.at(cluster.as_ref()).api;
    let mut pause = Backoff::up_to(LONGEST_PAUSE, &api.chance().of(&format!("{} schemas", handle.name)));
    let mut tries = 1;
    loop {
        let looked = match api.published(gvk).await {
            Ok(mut document) => {
                let lenient = tries == TRIES;
                let comparing = handle.in_turn(None, async { compare(&mut document, (spec, sites), kinds, lenient) });
                timeout(TURN, comparing).await.unwrap_or(Err(Unread::NoTurn))
            }
            Err(error) => Err(error.into()),
        };
        match looked {
            Err(error) if error.may_end() && tries < TRIES => sleep(pause.longer()).await,
            looked => return looked,
        }
        tries += 1;
    }
}

/// Returns what a controller names that kinds do not have by their document. Kinds that are not in it have everything if that
/// is `lenient`.
fn compare(
    Published { text, budget, .. }: &mut Published,
    (spec, sites): (&Controller, &Sites),
    kinds: &[KindAt],
    lenient: bool,
) -> Result<Found, Unread> {
    let document = std::str::from_utf8(text).map_err(|_| Unread::NoText)?;
    let mut known = scopes(spec, sites);
    for at in kinds {
        let schema = Schema::published(document, &at.gvk, budget)?;
        if schema.is_none() && !lenient {
            return Err(Unread::Absent);
        }
        let plural = sites.at(at.cluster.as_ref()).api.known(&at.gvk).map(|kind| kind.plural);
        budget.text(document.len()).map_err(budget::Error::from)?;
        if let Some(kind) = known.get_mut(at) {
            kind.status = plural.map(|plural| document.contains(&format!("/{plural}/{{name}}/status\"")));
            kind.schema = schema;
        }
    }
    let ask = ask(spec, &known);
    let can = can_have(spec, &ask, budget).map_err(budget::Error::from)?;
    Ok((misfits(spec, &ask, budget).map_err(budget::Error::from)?, can))
}

/// Returns where the kinds of a controller live that are known to be served.
fn scopes<'d>(spec: &Controller, sites: &Sites) -> BTreeMap<KindAt, Kind<'d>> {
    let known = kinds_of(spec).into_keys().filter_map(|at| {
        let scope = sites.at(at.cluster.as_ref()).api.known(&at.gvk)?.scope;
        Some((at, Kind { scope, schema: None, selectable: None, status: None }))
    });
    known.collect()
}

/// Answers what is known of kinds.
fn ask<'k>(
    spec: &'k Controller,
    kinds: &'k BTreeMap<KindAt, Kind<'k>>,
) -> impl Fn(&Gvk, Option<&Arc<str>>) -> Known<'k> {
    |gvk, cluster| kinds.get(&KindAt::of(spec, cluster, gvk)).map_or(Known::Nothing, Known::Served)
}

impl Unread {
    /// Whether it may be otherwise a little later.
    fn may_end(&self) -> bool {
        match self {
            Self::Asked(error) => matches!(error.reason, Reason::UnknownKind | Reason::Unreachable | Reason::Busy),
            Self::Absent | Self::NoTurn => true,
            Self::NoText | Self::Read(_) => false,
        }
    }
}
