//! Visits a dependent that is many things outside of the cluster: removes those that are too much, and brings each of the others in line by
//! itself (BD rules).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Site;
use super::comparing::Wanted;
use crate::cpu;
use crate::external::{Keyed, Things};
use crate::guest::Operation;
use crate::reconciler::node::SOME;
use crate::reconciler::node::bulk::Tally;
use crate::reconciler::node::visitor::{Stopped, Visitor};
use crate::reconciler::run::Run;

impl Visitor<'_> {
    /// Removes the surplus, then creates or updates each thing that should be there, or finds that it is as desired (`BD-1`). The failure of
    /// one does not keep the others from being brought in line.
    pub(super) async fn reconcile_things(
        &self,
        site: &Site<'_>,
        done: &mut Vec<(String, Operation)>,
    ) -> Result<(), Stopped> {
        let set = self.desired_set(site.name).await?;
        let mut tally = Tally::of(done);
        let keys = self.keys(site, &set.objects, &mut tally).await?;
        let keyed = self.keyed(site)?;
        // If it is not known of each which thing it is, it is not known either what is too much.
        if site.spec.manage.delete && keys.len() == set.objects.len() {
            let meant: BTreeSet<Arc<str>> = keys.iter().map(|(key, _)| Arc::clone(key)).collect();
            self.remove_but(site, &keyed, &meant, &mut tally).await?;
        }
        let Run { primary, .. } = self.run;
        let left = site.source.of(primary.key(), &primary.header().uid);
        for (number, (key, answer)) in keys.iter().enumerate() {
            if number % SOME == 0 {
                cpu::rest().await;
            }
            let result = self.reconcile_thing(site, (&keyed, &left), key, answer).await;
            tally.note(key, result)?;
        }
        tally.end("")
    }

    /// Removes all things (`BD-3`).
    pub(super) async fn remove_things(
        &self,
        site: &Site<'_>,
        done: &mut Vec<(String, Operation)>,
    ) -> Result<(), Stopped> {
        let mut tally = Tally::of(done);
        self.remove_but(site, &self.keyed(site)?, &BTreeSet::new(), &mut tally).await?;
        tally.end("")
    }

    /// Removes all things but those that are `meant`, and what remembers what is gone.
    async fn remove_but(
        &self,
        site: &Site<'_>,
        keyed: &Keyed,
        meant: &BTreeSet<Arc<str>>,
        tally: &mut Tally<'_>,
    ) -> Result<(), Stopped> {
        let surplus = keyed.iter().filter(|(key, _)| !meant.contains(*key));
        let surplus: Vec<_> = surplus.flat_map(|(key, ids)| ids.iter().map(move |id| (key, id))).collect();
        for (number, (key, id)) in surplus.into_iter().enumerate() {
            if number % SOME == 0 {
                cpu::rest().await;
            }
            let removed = self.remove_one(site, key, id).await;
            tally.note(id, removed.map(|()| Operation::Deleted))?;
        }
        self.delete_states(site.spec, &site.states.leftovers(&site.things, meant)).await
    }

    /// Removes a thing, then what remembers it (`BD-4`).
    async fn remove_one(&self, site: &Site<'_>, key: &str, id: &Arc<str>) -> Result<(), Stopped> {
        let Some(actual) = site.things.get(id) else {
            return Ok(());
        };
        self.remove_thing(site.declared(), id, actual).await?;
        let Run { controller, primary, .. } = self.run;
        controller.verdicts.change_contests(primary, |all| all.forget(site.name, Some(key)));
        self.delete_states(site.spec, &site.states.of(id)).await
    }

    /// Brings one thing in line, as that of a dependent that is not many. A thing that is `left` under another key than it was made with is
    /// not followed by another one, whose object could take the place of what remembers it.
    async fn reconcile_thing(
        &self,
        site: &Site<'_>,
        (keyed, left): (&Keyed, &Things),
        key: &Arc<str>,
        answer: &str,
    ) -> Result<Operation, Stopped> {
        let id = keyed.one(site.source, Some(key)).map_err(|unclear| unclear.to_string())?;
        let actual =
            id.and_then(|id| site.things.get_key_value(id)).map(|(id, text)| (Arc::clone(id), Arc::clone(text)));
        if actual.is_none()
            && let Some(other) = site.states.made_as(key, left)
        {
            let message = format!(
                "nothing is created: the thing {other:?} was made as this one, and has another key now; remove it, or let it have this key again"
            );
            return Err(message.into());
        }
        let wanted = Wanted::of(answer.to_owned(), site.declared(), None, &mut self.run.budget.lock())?;
        self.bring_thing_in_line(site, &wanted, actual).await.map(|(_, operation)| operation)
    }

    fn keyed(&self, site: &Site<'_>) -> Result<Keyed, Stopped> {
        let keyed = Keyed::of(&site.things, site.spec.key.as_ref(), &mut self.run.budget.lock());
        Ok(keyed.map_err(|unclear| format!("the things of source {}: {unclear}", site.source.name))?)
    }

    /// Returns what is desired with its keys, in order, and notes what has none. The same key twice is a failure.
    async fn keys<'a>(
        &self,
        site: &Site<'_>,
        answers: &'a [String],
        tally: &mut Tally<'_>,
    ) -> Result<Vec<(Arc<str>, &'a str)>, Stopped> {
        let (mut keys, mut seen) = (Vec::with_capacity(answers.len()), BTreeSet::new());
        for (number, answer) in answers.iter().enumerate() {
            if number % SOME == 0 {
                cpu::rest().await;
            }
            // What is read is not kept for all of them at once.
            let wanted = Wanted::of(answer.clone(), site.declared(), None, &mut self.run.budget.lock());
            let unknown = || {
                let at = site.source.spec.id.text();
                format!(
                    "what is desired of {} has nothing at {at:?}, so that it is not known which thing it is: let it have the id, or say `external.key` in the manifest",
                    site.name
                )
            };
            let key = match wanted.and_then(|wanted| wanted.key.ok_or_else(unknown)) {
                Ok(key) => key,
                Err(text) => {
                    tally.note(&format_args!("number {} of the answer", number + 1), Err(text.into()))?;
                    continue;
                }
            };
            if !seen.insert(Arc::clone(&key)) {
                let text = format!(
                    "{key:?} is twice in what `desired-set` answered for {}: let each thing be in it once",
                    site.name
                );
                return Err(text.into());
            }
            keys.push((key, &**answer));
        }
        Ok(keys)
    }
}
