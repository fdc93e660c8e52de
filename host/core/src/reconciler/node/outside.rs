//! Visits the nodes that are outside of the cluster: asks what should be, finds out by its source what there is, and has the component write
//! what differs (XD rules).

use std::sync::Arc;

use tokio::time::Instant;

use super::contested::{Drift, Of};
use super::visitor::{Stopped, Visitor};
use crate::external::{self, External, Keyed, Things, Write};
use crate::guest::{Cause, Created, Failure, MatchResult, Operation};
use crate::manifest::{GenericMatching, Matching, Outside};
use crate::object::Object;
use crate::reconciler::polling;
use crate::reconciler::run::Run;
use crate::workflow::condition::Found;

mod comparing;
mod many;
mod state;

use comparing::{Declared, Wanted};
use state::States;

/// What there is of a dependent outside of the cluster when it is visited.
pub(super) struct Site<'a> {
    name: &'a Arc<str>,
    spec: &'a Outside,
    source: &'a External,
    things: Things,
    states: States,
}

/// A write outside of the cluster that is under way. Unless it is known how it has ended, also because the run is broken off, it is not known what
/// there is.
struct Unsure<'s> {
    source: &'s External,
    primary: &'s Object,
    known: bool,
}

impl Unsure<'_> {
    fn known(mut self) {
        self.known = true;
    }
}

impl Drop for Unsure<'_> {
    fn drop(&mut self) {
        if !self.known {
            self.source.doubt(self.primary.key(), &self.primary.header().uid);
        }
    }
}

/// A thing that there is: its id, and what it is.
type Actual = (Arc<str>, Arc<str>);

impl<'a> Site<'a> {
    fn declared(&self) -> Declared<'a> {
        (self.name, self.spec, self.source)
    }
}

impl Visitor<'_> {
    /// Has the component asked what of a source belongs to the primary, on behalf of this session: that waits for no other turn.
    pub(super) async fn heed(&self, source: &crate::source::Source) -> Result<(), Stopped> {
        if source.asks_exports() {
            self.session.ready().await.map_err(|failure| failed("to-secondaries", &failure))?;
        }
        Ok(self.run.heed(source).await?)
    }

    /// Creates or updates what should be, or finds that it is as desired (`DR-2`). Adds what was done with each thing to what was `done`.
    pub(super) async fn reconcile_outside(
        &self,
        name: &Arc<str>,
        spec: &Outside,
        done: &mut Vec<(String, Operation)>,
    ) -> Result<(), Stopped> {
        self.settle_kept(name, spec).await?;
        let site = self.site(name, spec).await?;
        if !spec.manage.create && !spec.manage.update {
            done.extend(site.things.keys().map(|id| (id.to_string(), Operation::Unchanged)));
            return Ok(());
        }
        if spec.bulk {
            return self.reconcile_things(&site, done).await;
        }
        let wanted = self.wanted_thing(site.declared()).await?;
        let actual = self.meant_thing(&site, wanted.key.as_ref())?;
        let (id, operation) = self.bring_thing_in_line(&site, &wanted, actual).await?;
        if let Some(id) = &id {
            self.run.keep_thing(name, id);
        }
        done.extend(id.map(|id| (id.to_string(), operation)));
        Ok(())
    }

    /// Removes what there is of a dependent (`XD-2`). That there is nothing is a success. Adds each thing to what was `done`.
    pub(super) async fn remove_outside(
        &self,
        name: &Arc<str>,
        spec: &Outside,
        done: &mut Vec<(String, Operation)>,
    ) -> Result<(), Stopped> {
        // A thing whose id is remembered nowhere else would be taken for absent.
        self.settle_kept(name, spec).await?;
        let site = self.site(name, spec).await?;
        if spec.bulk {
            self.remove_things(&site, done).await?;
        } else {
            if let Some((id, actual)) = self.to_be_removed(&site).await? {
                self.remove_thing(site.declared(), &id, &actual).await?;
                self.run.controller.verdicts.change_contests(&self.run.primary, |all| all.forget(name, None));
                done.push((id.to_string(), Operation::Deleted));
            }
            self.delete_states(spec, &site.states.all()).await?;
        }
        Ok(())
    }

    /// Returns what there is of a dependent, for conditions and templates.
    pub(super) async fn found_outside(&self, name: &Arc<str>, spec: &Outside) -> Result<Found, Stopped> {
        let site = self.site(name, spec).await?;
        let tree = |text: &str| self.run.budget.lock().read(text).map_err(|error| error.to_string());
        if spec.bulk {
            let all = site.things.values().map(|text| tree(text)).collect::<Result<_, _>>()?;
            return Ok(Found::Many(all));
        }
        let known = self.run.kept_thing(name).and_then(|id| site.things.get_key_value(&id));
        let actual = match known {
            Some((id, text)) => Some((Arc::clone(id), Arc::clone(text))),
            None if site.things.is_empty() => None,
            None => self.meant_thing(&site, self.key_of_wanted(site.declared()).await?.as_ref())?,
        };
        Ok(Found::One(actual.map(|(_, text)| tree(&text)).transpose()?.unwrap_or_default()))
    }

    /// Returns what there is of a dependent, once that is known: what could not be read is not taken for absent.
    async fn site<'a>(&'a self, name: &'a Arc<str>, spec: &'a Outside) -> Result<Site<'a>, Stopped> {
        let Run { controller, primary, .. } = self.run;
        let source = controller.externals.get(&spec.source);
        let source = source.ok_or_else(|| format!("no source is called {}", spec.source))?;
        if source.spec.each().is_some() && !source.knows(primary.key(), &primary.header().uid) {
            // The poll is a call on behalf of this session, and waits for no other turn.
            self.session.ready().await.map_err(|failure| failed("poll-one", &failure))?;
            let polled = polling::needed(controller, source, primary).await;
            polled.map_err(|error| Stopped::Unread(error.message))?;
        }
        source
            .known_of(primary.key(), &primary.header().uid)
            .map_err(|unknown| Stopped::Unread(unknown.to_string()))?;
        let things = source.of(primary.key(), &primary.header().uid);
        let paid = self.run.budget.lock().text(things.values().map(|thing| thing.len()).sum());
        paid.map_err(|error| format!("the things of source {}: {error}", source.name))?;
        let states = self.states(spec).await?;
        Ok(Site { name, spec, source, things, states })
    }

    /// Returns the thing with this key, or without one the only one that there is (`XD-1`).
    fn meant_thing(&self, site: &Site<'_>, key: Option<&Arc<str>>) -> Result<Option<Actual>, Stopped> {
        let Site { name, spec, source, things, .. } = site;
        let mut sharing = self.run.controller.spec.outside().filter(|(_, other)| other.source == spec.source);
        if let Some((other, _)) = sharing.find(|(other, _)| key.is_none() && other != name) {
            let message = format!(
                "the dependent {other} has the source {}, too, so that it is not known which of its things is meant: let what is desired have the id, or say `external.key` in the manifest",
                source.name
            );
            return Err(message.into());
        }
        let keyed = Keyed::of(things, spec.key.as_ref(), &mut self.run.budget.lock()).map_err(|e| e.to_string())?;
        let id = keyed.one(source, key.map(|key| &**key)).map_err(|unclear| unclear.to_string())?;
        let actual = id.and_then(|id| things.get_key_value(id));
        Ok(actual.map(|(id, text)| (Arc::clone(id), Arc::clone(text))))
    }

    /// Returns the thing that is to go. Of what requests tell it may not be known, as after a start of the daemon: then the component gets
    /// what is desired in its place.
    async fn to_be_removed(&self, site: &Site<'_>) -> Result<Option<Actual>, Stopped> {
        let told = site.source.spec.is_only_told();
        if site.things.is_empty() && !told {
            return Ok(None);
        }
        let key = self.key_of_wanted(site.declared()).await?;
        let actual = self.meant_thing(site, key.as_ref())?;
        let is_only = key.is_none() && !site.things.is_empty();
        if actual.is_some() || !told || is_only {
            return Ok(actual);
        }
        let wanted = self.wanted_thing(site.declared()).await?;
        Ok(Some((wanted.key.unwrap_or_default(), wanted.text.into())))
    }

    /// Creates a thing, or updates it if it differs. Returns its id, if there is one then, and what was done.
    async fn bring_thing_in_line(
        &self,
        site: &Site<'_>,
        wanted: &Wanted,
        actual: Option<Actual>,
    ) -> Result<(Option<Arc<str>>, Operation), Stopped> {
        let Site { name, spec, source, .. } = site;
        let called = wanted.key.as_ref().unwrap_or(name);
        let wants = self.run.controller.hash(&wanted.text);
        let mut drift = Drift { name, of: Of::Thing(spec, called), wanted: wants, what: None };
        let Some((id, text)) = actual else {
            if !spec.manage.create || self.is_held(&drift).await {
                return Ok((None, Operation::Unchanged));
            }
            let id = self.create_thing(site, wanted).await?;
            self.note_put_right(&drift);
            return Ok((Some(id), Operation::Created));
        };
        if !spec.manage.update {
            return Ok((Some(id), Operation::Unchanged));
        }
        let MatchResult::Differs(what) = self.compare_thing(site, &text, wanted).await? else {
            return Ok((Some(id), Operation::Unchanged));
        };
        drift.what = Some(&what);
        if self.is_held(&drift).await {
            return Ok((Some(id), Operation::Unchanged));
        }
        let Run { primary, .. } = self.run;
        let unsure = self.unsure(source);
        let updated = self.session.update(name, &text, &wanted.text, primary.json()).await;
        let updated = updated.map_err(|failure| failed("update", &failure))?;
        self.take_updated(site, (&id, text), updated)?;
        unsure.known();
        self.note_put_right(&drift);
        Ok((Some(id), Operation::Updated))
    }

    /// Takes in what `update` has answered.
    fn take_updated(
        &self,
        site: &Site<'_>,
        (id, before): (&Arc<str>, Arc<str>),
        answer: String,
    ) -> Result<(), Stopped> {
        let (found, now) = self.read_thing(site, "update", answer)?;
        if found != *id {
            let message =
                format!("`update` of {:?} answered a thing with the id {:?}; expected the same id", &**id, &*found);
            return Err(message.into());
        }
        tracing::debug!(dependent = %site.name, %id, "thing updated");
        self.keep(site.source, id, Write::Replaced { before, now })
    }

    /// Creates a thing, and what remembers its id (`XD-2`). Returns the id.
    async fn create_thing(&self, site: &Site<'_>, wanted: &Wanted) -> Result<Arc<str>, Stopped> {
        let Run { primary, .. } = self.run;
        let room = site.source.room_for(primary.key(), wanted.text.len());
        room.map_err(|refused| format!("nothing is created: source {}: {refused}", site.source.name))?;
        let unsure = self.unsure(site.source);
        let created = self.session.create(site.name, &wanted.text, primary.json()).await;
        let Created { actual, state } = created.map_err(|failure| failed("create", &failure))?;
        let (id, actual) = match self.read_thing(site, "create", actual.clone()) {
            Ok(found) => found,
            Err(stopped) => {
                self.take_back_unread(site, state, &actual).await;
                return Err(stopped);
            }
        };
        tracing::debug!(dependent = %site.name, %id, "thing created");
        let taken = self.take_created(site, wanted, (&id, Arc::clone(&actual)));
        // Whatever else is wrong, the id is not lost.
        let thing = (Arc::clone(&id), actual);
        self.keep_state(site, wanted.key.as_ref().unwrap_or(&id), thing, state).await?;
        taken?;
        unsure.known();
        Ok(id)
    }

    /// Removes a thing again whose id can't be read, so that what remembers it can't be found: it would be left behind.
    async fn take_back_unread(&self, site: &Site<'_>, state: Option<String>, actual: &str) {
        if state.is_none() {
            return;
        }
        let removed = self.session.remove(site.name, actual, self.run.primary.json()).await;
        let error = removed.err().map(|failure| failure.message);
        tracing::warn!(dependent = %site.name, error, "thing whose id can't be read is removed");
    }

    /// Takes in a thing that was created. One that is not what was desired would not be found again.
    fn take_created(
        &self,
        site: &Site<'_>,
        wanted: &Wanted,
        (id, actual): (&Arc<str>, Arc<str>),
    ) -> Result<(), Stopped> {
        self.keep(site.source, id, Write::Created(Arc::clone(&actual)))?;
        let (what, found, desired) = match (&site.spec.key, &wanted.id, &wanted.key) {
            (_, Some(wanted), _) if wanted != id => ("id", Arc::clone(id), wanted),
            (Some(_), _, Some(wanted)) => match self.key_of_thing(site, &actual)? {
                Some(key) if key != *wanted => ("key", key, wanted),
                Some(_) | None => return Ok(()),
            },
            _ => return Ok(()),
        };
        let message = format!(
            "`create` answered a thing with the {what} {found:?}, and the {what} {desired:?} is desired: it would not be found again; let what is desired be as the other side has it"
        );
        Err(message.into())
    }

    fn key_of_thing(&self, site: &Site<'_>, actual: &str) -> Result<Option<Arc<str>>, Stopped> {
        let budget = &mut self.run.budget.lock();
        let tree = budget.read(actual).map_err(|error| error.to_string())?;
        let key = external::key_of(&tree, site.spec.key.as_ref(), site.source, budget);
        Ok(key.map_err(|unclear| format!("what `create` answered: {unclear}"))?)
    }

    /// Returns what has the things of the primary polled before anything else is made of them, unless it gets to know how a write has ended.
    fn unsure<'s>(&'s self, source: &'s External) -> Unsure<'s> {
        Unsure { source, primary: &self.run.primary, known: false }
    }

    /// Has the component remove a thing.
    async fn remove_thing(&self, (name, _, source): Declared<'_>, id: &Arc<str>, actual: &str) -> Result<(), Stopped> {
        let unsure = self.unsure(source);
        let removed = self.session.remove(name, actual, self.run.primary.json()).await;
        removed.map_err(|failure| failed("remove", &failure))?;
        tracing::debug!(dependent = %name, %id, "thing removed");
        self.keep(source, id, Write::Removed)?;
        unsure.known();
        Ok(())
    }

    /// Takes in what was written, so that whoever comes next reads it (`DR-4`); unless the primary has been made again meanwhile, whose
    /// things these are not.
    fn keep(&self, source: &External, id: &Arc<str>, write: Write) -> Result<(), Stopped> {
        let Run { controller, primary, .. } = self.run;
        let (key, uid) = (primary.key(), &*primary.header().uid);
        if !self.run.is_current() {
            return Ok(());
        }
        let kept = source.write((key, uid), id, write, || controller.guest.lasting());
        source.settle_later((key, uid), Instant::now());
        kept.map_err(|refused| format!("what was written is not remembered: source {}: {refused}", source.name).into())
    }

    /// Reads a thing that the component has answered: its id, and how it is written.
    fn read_thing(&self, site: &Site<'_>, function: &str, answer: String) -> Result<Actual, Stopped> {
        let things = external::read(&[answer], &site.source.spec.id, &mut self.run.budget.lock());
        let things = things.map_err(|problem| format!("what `{function}` answered: {problem}"))?;
        let thing = things.into_iter().next();
        Ok(thing.ok_or_else(|| format!("`{function}` answered nothing"))?)
    }

    async fn compare_thing(&self, site: &Site<'_>, actual: &str, wanted: &Wanted) -> Result<MatchResult, Stopped> {
        let Site { name, spec, .. } = site;
        let flags = match &spec.matching {
            Matching::Generic(flags) => flags,
            Matching::Usual | Matching::DryRun => &GenericMatching { equality: true, ..GenericMatching::default() },
            Matching::Export(export) => {
                let asked = self.session.matches(export, actual, &wanted.text, self.run.primary.json()).await;
                return asked.map_err(|failure| Stopped::Asked(format!("match {export} of {name}: {failure}")));
            }
        };
        Ok(wanted.compare(actual, flags, &mut self.run.budget.lock())?)
    }
}

/// Returns why a call has failed: what the component returns is about one thing, and all else about the component.
fn failed(function: &str, failure: &Failure) -> Stopped {
    let message = format!("{function}: {}", failure.message);
    match failure.cause {
        Cause::Returned => Stopped::Failed(message),
        Cause::Trap | Cause::Timeout | Cause::OutOfMemory | Cause::Other => Stopped::Asked(message),
    }
}
