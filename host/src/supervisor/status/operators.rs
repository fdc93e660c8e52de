//! Shows how the operators are that are objects of the cluster: what their status is made of.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::manifest::Component as Source;
use capstan_core::operator::status::{Plugin, State, UNSIGNED};
use capstan_core::registry::{Digest, Failure, Kind};

use tokio::time::Instant;

use super::{Entry, Phase, Status, Unit};
use crate::readiness::{Matter, Unready};
use crate::supervisor::supply;

/// The step at which a component is not had of its registry.
const PULL: &str = "pull";

/// So much is remembered of what operators have left behind.
const LEFT: usize = 100;

impl Status {
    /// Returns the plugins of an operator, and what its controllers need and have not got.
    pub(in crate::supervisor) fn of_operator(&self, operator: &Arc<str>) -> (Vec<Plugin>, Vec<String>) {
        let running = self.controllers.lock().clone();
        let all = self.plugins.lock();
        let first = Unit { operator: Arc::clone(operator), plugin: "".into() };
        let own = all.range(first..).take_while(|(unit, _)| unit.operator == *operator);
        let (mut plugins, mut lacking) = (Vec::new(), Vec::new());
        for (unit, entry) in own {
            let waiting = entry.controllers.iter().find_map(|name| Some((name, running.get(name)?.waiting()?)));
            let waiting = waiting.map(|(name, why)| format!("controller {name}: {why}"));
            plugins.push(self.plugin(unit, entry, waiting.as_ref()));
            lacking.extend(waiting);
            let unready = entry.controllers.iter().filter_map(|name| running.get(name)?.unready());
            lacking.extend(unready.map(|Unready { what, why, .. }| format!("{what}: {why}")));
        }
        (plugins, lacking)
    }

    fn plugin(&self, unit: &Unit, entry: &Entry, waiting: Option<&String>) -> Plugin {
        let seen = self.seen(unit, entry);
        let wrong = seen.as_ref().and_then(|seen| seen.problem.as_ref()).filter(|_| entry.in_force.is_none());
        let known = seen.as_ref().and_then(|seen| seen.known.as_ref());
        let digest = entry.in_force.as_ref().map(|now| now.plugin.digest()).filter(|digest| !digest.is_empty());
        let is_known = |component: &Digest| digest == Some(component.hex());
        // What was wrong with a version before the one that is being loaded is over.
        let problem = entry.problem.as_ref().filter(|_| entry.phase == Phase::Settled);
        // The reference names what can't be used, and what it named before goes on.
        let found = seen.as_ref().and_then(|seen| seen.problem.as_ref());
        let is_unusable = |problem: &&Failure| matches!(problem.kind, Kind::Wrong | Kind::Unsigned);
        let goes_on = problem.is_none() && entry.state(waiting) == State::Active;
        let unusable = found.filter(is_unusable).filter(|_| goes_on);
        let unseen = found.filter(|problem| goes_on && !is_unusable(problem));
        let step = |failure: &Failure| if failure.kind == Kind::Unsigned { UNSIGNED } else { PULL };
        // That of a pull says only that it has failed.
        let step_of = |name: &str| if name == PULL { found.map_or(PULL, step).to_owned() } else { name.to_owned() };
        Plugin {
            name: Arc::clone(&unit.plugin),
            state: if unusable.is_some() { State::Outdated } else { entry.state(waiting) },
            is_pulled: matches!(entry.component, Some(Source::Registry(_)))
                && entry.in_force.is_none()
                && known.is_none()
                && wrong.is_none(),
            component: entry.component(),
            image: known.filter(|known| is_known(&known.component)).map(|known| known.digest.to_string()),
            digest: digest.map(str::to_owned),
            since: entry.in_force.as_ref().map(|now| now.since.to_string()),
            problem: problem
                .map(|problem| (step_of(&problem.step), problem.message.clone()))
                .or_else(|| unusable.map(|problem| (step(problem).to_owned(), problem.message.clone()))),
            is_tried_again: problem.is_some_and(|problem| supply::is_tried_again(&problem.step)),
            is_followed: found.is_some() && seen.as_ref().is_some_and(|seen| seen.next.is_some()),
            unseen: unseen.map(|problem| problem.message.clone()),
        }
    }

    /// Returns what is wrong with the manifest of this file or object.
    pub(in crate::supervisor) fn problem_of(&self, file: &Path) -> Option<String> {
        self.manifests.lock().get(file).map(|manifest| manifest.problem.clone())
    }

    /// Says who else runs an operator; nobody any more without a name.
    pub(in crate::supervisor) fn rival(&self, operator: &Arc<str>, daemon: Option<String>) {
        let mut rivals = self.rivals.lock();
        match daemon {
            Some(daemon) => rivals.insert(Arc::clone(operator), daemon),
            None => rivals.remove(operator),
        };
    }

    /// Says what an operator has left behind when it ended.
    pub(in crate::supervisor) fn left(&self, operator: &Arc<str>, what: String) {
        let mut left = self.left.lock();
        left.push_back((Instant::now(), Arc::clone(operator), what));
        // Those of files are told by nobody.
        let more = left.len().saturating_sub(LEFT);
        left.drain(..more);
    }

    /// Takes what these operators have left behind within a time, each with what: what was left before is no news of them.
    pub(in crate::supervisor) fn take_left(
        &self,
        is_one: impl Fn(&Arc<str>) -> bool,
        within: Duration,
    ) -> Vec<(Arc<str>, String)> {
        let mut left = self.left.lock();
        left.retain(|(since, ..)| since.elapsed() < within);
        let (own, others): (VecDeque<_>, _) = left.drain(..).partition(|(_, of, _)| is_one(of));
        *left = others;
        own.into_iter().map(|(_, of, what)| (of, what)).collect()
    }

    /// Returns the operators that other daemons run, too.
    pub(super) fn rivals(&self) -> Vec<Unready> {
        let told = |(operator, daemon): (&Arc<str>, &String)| Unready {
            what: format!("operator {operator}"),
            why: format!("the daemon {daemon} says its status, too: two daemons run it; stop one of them"),
            matter: Matter::Operator,
        };
        self.rivals.lock().iter().map(told).collect()
    }
}
