//! Visits the nodes whose dependents are many objects: asks which there should be, deletes what is too much, and brings each of the
//! others in line by itself (BD rules).

use std::collections::{BTreeSet, HashSet};
use std::fmt::Display;
use std::sync::Arc;

use super::visitor::{Stopped, Visitor};
use super::{SOME, is_watched};
use crate::cluster::Propagation;
use crate::cpu;
use crate::dependent::ownership;
use crate::dependent::{self, Desired};
use crate::guest::{CallReason, DesiredSet, NodeFailure, Operation};
use crate::manifest::Dependent;
use crate::object::{Object, ObjectRef};
use crate::reconciler::verdicts::Verdict;
use crate::source::{Source, Within};

/// The memory that the daemon takes for an object of an answer beside its text, until the run ends, in bytes.
const EACH: usize = 256;

/// The failures of objects that are told in full; of the others only how many there are.
const TOLD: usize = 3;

/// After so many refusals in a row for want of rights, the other objects are not tried in this run.
const FORBIDDEN: usize = 20;

/// An object that a bulk dependent should have.
struct Wanted<'a> {
    key: ObjectRef,
    answer: &'a str,
    /// The hash of the answer.
    hash: u64,
}

/// What a bulk dependent should have.
struct WantedSet<'a> {
    /// The objects, without those that are refused before they are sent.
    all: Vec<Wanted<'a>>,
    /// The names of all of them; `None` if that of one is not known, so that it is not known either what is too much.
    keys: Option<BTreeSet<ObjectRef>>,
}

/// What was done with the objects of a node, one after another, and the failures among them.
pub(super) struct Tally<'a> {
    done: &'a mut Vec<(String, Operation)>,
    /// The first failures, as texts.
    told: Vec<String>,
    failures: usize,
    /// Why the API server refused them, if it was the same for all.
    refused: Option<CallReason>,
    /// How many of the last ones were refused for want of rights.
    forbidden: usize,
}

// === impl Visitor ===

impl Visitor<'_> {
    /// Deletes the surplus, then creates or updates each object that should be there, or finds that it is as desired (`BD-1`). The
    /// failure of one object does not keep the others from being brought in line.
    pub(super) async fn reconcile_all(
        &self,
        (name, spec, source): (&Arc<str>, &Dependent, &Source),
        done: &mut Vec<(String, Operation)>,
    ) -> Result<(), Stopped> {
        let set = self.desired_set(name).await?;
        let mut tally = Tally::of(done);
        let wanted = self.wanted((name, spec), &set, &mut tally).await?;
        let answers: HashSet<u64> = wanted.all.iter().map(|wanted| wanted.hash).collect();
        let Self { run, .. } = self;
        run.controller.verdicts.change_bulk(&run.primary, name, |matched| matched.retain(&answers));
        // What a creation without an answer has made may be too much by now.
        self.look_for_unanswered(name, spec).await?;
        if let Some(meant) = wanted.keys.filter(|_| spec.manage.delete) {
            self.delete_members(name, spec, &meant, &mut tally).await?;
        }
        for (number, one) in wanted.all.into_iter().enumerate() {
            if number % SOME == 0 {
                cpu::rest().await;
            }
            let key = one.key.clone();
            let result = self.reconcile_object(name, spec, source, one).await;
            tally.note(&key, result)?;
        }
        tally.end("")
    }

    /// Deletes all objects (`BD-3`).
    pub(super) async fn delete_all(
        &self,
        name: &Arc<str>,
        spec: &Dependent,
        done: &mut Vec<(String, Operation)>,
    ) -> Result<(), Stopped> {
        let Self { run, .. } = self;
        run.controller.verdicts.change_bulk(&run.primary, name, |matched| matched.retain(&HashSet::new()));
        let mut tally = Tally::of(done);
        self.delete_members(name, spec, &BTreeSet::new(), &mut tally).await?;
        tally.end("")
    }

    /// Deletes the objects that bear the mark, without those that are `meant`. Each is looked at again when it is its turn, and deleted in
    /// the version that was looked at: whoever takes the mark off keeps the object.
    async fn delete_members(
        &self,
        name: &Arc<str>,
        spec: &Dependent,
        meant: &BTreeSet<ObjectRef>,
        tally: &mut Tally<'_>,
    ) -> Result<(), Stopped> {
        let (own, source) = (self.run.mark(name), self.source(name).await?);
        for seen in self.members(name, spec, meant).await? {
            let now = source.get(seen.key()).filter(|now| now.header().uid == seen.header().uid);
            let is_own = |now: &Object| ownership::is_made_by(now, &own) && !self.is_taken(name, spec, now);
            let Some(now) = now.filter(is_own) else {
                continue;
            };
            let deleted = self
                .delete_by(name, &now, dependent::delete_as_seen(spec.gvk.clone(), &now, Propagation::Background))
                .await;
            tally.note(now.key(), deleted.map(|()| Operation::Deleted))?;
        }
        Ok(())
    }

    /// Returns the objects of a bulk that exist, without those that are `meant`: those that bear its mark; of one that is only read, all
    /// that belong to the primary (`BD-2`).
    pub(super) async fn members(
        &self,
        name: &Arc<str>,
        spec: &Dependent,
        meant: &BTreeSet<ObjectRef>,
    ) -> Result<Vec<Object>, Stopped> {
        let source = self.source(name).await?;
        let primary = self.run.primary.key();
        source.shows_all(Within::Related(primary))?;
        let related = source.related(primary);
        // What is not watched any more shows nothing: what was there is not gone.
        source.watched()?;
        if !spec.manage.create {
            return Ok(related);
        }
        self.made_by(name, related, meant).await
    }

    /// Returns the component's answer to `desired-set`, which is asked for once per run (`CX-3`).
    pub(super) async fn desired_set(&self, name: &Arc<str>) -> Result<Arc<DesiredSet>, Stopped> {
        if let Some(set) = self.run.desired_set(name) {
            return Ok(set);
        }
        let set = self.session.desired_set(name, self.run.primary.json()).await;
        let set = set.map_err(|failure| failure.message)?;
        {
            let text = set.objects.iter().map(String::len).sum::<usize>();
            let mut budget = self.run.budget.lock();
            let paid = budget.text(text).and_then(|()| budget.hold(text + EACH * set.objects.len()));
            paid.map_err(|error| format!("what `desired-set` answered: {error}"))?;
        }
        let set = Arc::new(set);
        self.run.keep_desired_set(name, &set);
        Ok(set)
    }

    /// Returns the objects of an answer with their keys, and notes those that are refused. The same key twice is a failure. An answer that
    /// was found to match an object is not read again.
    async fn wanted<'a>(
        &self,
        (name, spec): (&Arc<str>, &Dependent),
        set: &'a DesiredSet,
        tally: &mut Tally<'_>,
    ) -> Result<WantedSet<'a>, Stopped> {
        let controller = &self.run.controller;
        let (mut keys, mut all_named) = (BTreeSet::new(), true);
        let mut all = Vec::with_capacity(set.objects.len());
        let mut take = |key: &ObjectRef| {
            let twice =
                || format!("{key} is twice in what `desired-set` answered for {name}: let each object be in it once");
            if keys.insert(key.clone()) { Ok(()) } else { Err(Stopped::from(twice())) }
        };
        for (number, answer) in set.objects.iter().enumerate() {
            if number % SOME == 0 {
                cpu::rest().await;
            }
            let hash = controller.hash(answer);
            let known = controller.verdicts.verdict_of_bulk(&self.run.primary, name, hash);
            // What is completed is not kept for all of them at once.
            let completed = || self.complete(name, spec, answer).map(|desired| desired.key().clone());
            match known.map_or_else(completed, |known| Ok(known.key)) {
                Ok(key) => {
                    take(&key)?;
                    all.push(Wanted { key, answer, hash });
                }
                Err(stopped) => {
                    let named = self.read(name, spec, |origin, budget| Desired::named(answer, origin, budget));
                    named.iter().try_for_each(&mut take)?;
                    all_named &= named.is_some();
                    let told =
                        named.map_or_else(|| format!("number {} of the answer", number + 1), |key| key.to_string());
                    tally.note(&told, Err(stopped))?;
                }
            }
        }
        Ok(WantedSet { all, keys: all_named.then_some(keys) })
    }

    /// Brings one object in line, as that of a dependent that is not many.
    async fn reconcile_object(
        &self,
        name: &Arc<str>,
        spec: &Dependent,
        source: &Source,
        Wanted { key, answer, hash }: Wanted<'_>,
    ) -> Result<Operation, Stopped> {
        self.want(name, spec, &key)?;
        let Self { run, .. } = self;
        let (verdicts, guest) = (&run.controller.verdicts, &run.controller.guest);
        let known = verdicts.verdict_of_bulk(&run.primary, name, hash);
        if known.is_some_and(|known| source.get(&key).is_some_and(|actual| actual.version() == known.version)) {
            return Ok(Operation::Unchanged);
        }
        let desired: Desired = self.complete(name, spec, answer)?;
        source.known(Within::Object(desired.key()))?;
        is_watched(source, desired.key())?;
        let actual = source.get(desired.key()).filter(|object| self.belongs(name, spec, object));
        let (operation, now) = self.bring_in_line((name, spec, source), (&desired, hash), actual).await?;
        if let Some(now) = now {
            let verdict = Verdict::of(hash, &now);
            verdicts.change_bulk(&run.primary, name, |matched| matched.keep(verdict, || guest.lasting()));
        }
        Ok(operation)
    }
}

// === impl Tally ===

impl<'a> Tally<'a> {
    pub(super) fn of(done: &'a mut Vec<(String, Operation)>) -> Self {
        Self { done, told: Vec::new(), failures: 0, refused: None, forbidden: 0 }
    }

    /// Takes in what was done with an object.
    ///
    /// # Errors
    /// A failure after which the other objects would fail, too, or the last of many for want of rights.
    pub(super) fn note(&mut self, key: &impl Display, result: Result<Operation, Stopped>) -> Result<(), Stopped> {
        let stopped = match result {
            Ok(operation) => {
                self.done.push((key.to_string(), operation));
                self.forbidden = 0;
                return Ok(());
            }
            Err(stopped) if stopped.stops_others() => return Err(stopped),
            Err(stopped) => stopped,
        };
        self.forbidden = if stopped.is_forbidden() { self.forbidden + 1 } else { 0 };
        let NodeFailure { message, refused } = stopped.into();
        self.refused =
            if self.failures == 0 { refused } else { self.refused.filter(|before| Some(*before) == refused) };
        self.failures += 1;
        if self.told.len() < TOLD {
            self.told.push(format!("{key}: {message}"));
        }
        if self.forbidden < FORBIDDEN { Ok(()) } else { self.end(", so that the others were not tried") }
    }

    /// Fails if an object did; `then` says what follows from the failures.
    pub(super) fn end(&self, then: &str) -> Result<(), Stopped> {
        let Self { done, told, failures, refused, .. } = self;
        let more = match failures - told.len() {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let all = done.len() + failures;
        let message = format!("{failures} of {all} objects failed{then}: {}{more}", told.join("; "));
        if *failures == 0 { Ok(()) } else { Err(Stopped::Several(NodeFailure { message, refused: *refused })) }
    }
}
