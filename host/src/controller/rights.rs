//! Decides whether a controller may run: as long as the account of its operator may read what it watches.
//!
//! Caches are shared, and filled with the daemon's rights. So the API server is asked about the account before a controller
//! starts, and again and again while it runs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::cluster::{Error, Reason};
use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::LONGEST_PAUSE;
use super::plan::Plan;
use crate::client::{ApiServer, Identity, Kind};
use crate::pause::{Chance, Pause};

/// From one time that the API server is asked to the next, at most.
const AGAIN: Duration = Duration::from_secs(30);

/// How long its last answer counts while it can't be asked.
const KEPT: Duration = Duration::from_mins(5);

/// What an operator with an account of its own reads out of caches.
pub(super) struct Rights {
    user: Arc<str>,
    reads: Vec<Read>,
    ask: Ask,
    /// Is told when the API server is back.
    returns: watch::Receiver<()>,
    chance: Chance,
}

/// The objects of a kind, in one namespace or everywhere (none).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Read {
    kind: Kind,
    namespace: Option<Arc<str>>,
}

/// Asks the API server whether a read is permitted.
type Ask = Box<dyn Fn(Read) -> BoxFuture<'static, Result<bool, Error>> + Send + Sync>;

/// Whether all of them are permitted; what is missing, if not.
type Answer = Result<Option<String>, Error>;

impl Rights {
    /// Returns what a plan reads in the name of an account; none if the daemon reads for itself.
    pub(super) fn of(who: &Identity, plan: &Plan, api: &Arc<ApiServer>) -> Option<Self> {
        let Identity::Operator(_) = who else {
            return None;
        };
        let mut reads: Vec<Read> = Vec::new();
        for (scope, kind, _) in plan.scopes() {
            let read = Read { kind: kind.clone(), namespace: scope.namespace.clone() };
            if !reads.contains(&read) {
                reads.push(read);
            }
        }
        let ask = {
            let (api, who) = (Arc::clone(api), who.clone());
            move |Read { kind, namespace }: Read| -> BoxFuture<'static, Result<bool, Error>> {
                let (api, who) = (Arc::clone(&api), who.clone());
                Box::pin(async move { api.may_list(&who, &kind, namespace.as_deref()).await })
            }
        };
        Some(Self {
            user: who.user().into(),
            reads,
            ask: Box::new(ask),
            returns: api.pulse().returns(),
            chance: api.chance().clone(),
        })
    }

    /// Waits until everything may be read; `tell` is told what is missing.
    pub(super) async fn granted(&self, tell: impl Fn(String)) {
        let mut pause = Pause::up_to(LONGEST_PAUSE, &self.chance);
        let mut returns = self.returns.clone();
        loop {
            let (why, after) = match self.look().await {
                Ok(None) => return,
                Ok(Some(why)) => (why, pause.longer()),
                Err(error) => {
                    let after = pause.after(&error);
                    (error.message, after)
                }
            };
            tracing::warn!(%why, again_in = ?after, "waiting for a right");
            tell(why);
            tokio::select! {
                // Either way it is asked again.
                biased;
                () = sleep(after) => {}
                Ok(()) = returns.changed() => {}
            }
        }
    }

    /// Waits until something may not be read any more, or could not be asked about for too long. Returns what.
    pub(super) async fn lost(&self) -> String {
        let mut known = Instant::now();
        loop {
            sleep(self.chance.jitter(AGAIN)).await;
            let asked = Instant::now();
            let answer = self.look().await;
            match verdict(answer, asked.duration_since(known)) {
                Verdict::Granted => known = asked,
                Verdict::Kept => {}
                Verdict::Lost(why) => return why,
            }
        }
    }

    async fn look(&self) -> Answer {
        for read in &self.reads {
            if !(self.ask)(read.clone()).await? {
                return Ok(Some(format!("{} may not list {read}", self.user)));
            }
        }
        Ok(None)
    }
}

/// What an answer means to a controller that runs.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It goes on.
    Granted,
    /// It goes on, because it was permitted lately.
    Kept,
    /// It stops.
    Lost(String),
}

/// Says what an answer means where the last one that permitted everything is so old.
fn verdict(answer: Answer, age: Duration) -> Verdict {
    match answer {
        Ok(None) => Verdict::Granted,
        Ok(Some(why)) => Verdict::Lost(why),
        // That is an answer, too: nobody may ask in its name any more.
        Err(error) if error.reason == Reason::Forbidden => Verdict::Lost(error.message),
        Err(_) if age < KEPT => Verdict::Kept,
        Err(error) => Verdict::Lost(format!(
            "what the operator may read could not be asked for {} s: {}",
            age.as_secs(),
            error.message
        )),
    }
}

impl fmt::Display for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, namespace } = self;
        write!(f, "{}", kind.gvk)?;
        match namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => write!(f, " in the whole cluster"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use capstan_core::object::{Gvk, Scope};
    use parking_lot::Mutex;

    use super::*;

    fn away() -> Error {
        Error::new(Reason::Unreachable, 0, "away")
    }

    fn read(namespace: Option<&str>) -> Read {
        let kind =
            Kind { gvk: Gvk::parse("v1", "Secret").unwrap(), plural: "secrets".into(), scope: Scope::Namespaced };
        Read { kind, namespace: namespace.map(Arc::from) }
    }

    /// Returns rights of which the API server says one after the other, and the last for ever.
    fn rights(answers: impl IntoIterator<Item = Result<bool, Error>>) -> Rights {
        let answers = Mutex::new(answers.into_iter().collect::<VecDeque<_>>());
        let ask = move |_| -> BoxFuture<'static, Result<bool, Error>> {
            let mut answers = answers.lock();
            let answer = match answers.len() {
                1 => answers[0].clone(),
                _ => answers.pop_front().unwrap(),
            };
            Box::pin(std::future::ready(answer))
        };
        Rights {
            user: "pages".into(),
            reads: vec![read(Some("a"))],
            ask: Box::new(ask),
            returns: watch::channel(()).1,
            chance: Chance::default(),
        }
    }

    #[test]
    fn what_may_not_be_read_stops_and_silence_counts_as_the_last_answer_for_five_minutes() {
        let minutes = Duration::from_mins;
        let lost = |why: &str| Verdict::Lost(why.to_owned());
        let table = [
            (Ok(None), minutes(60), Verdict::Granted),
            (Ok(Some("no".to_owned())), minutes(0), lost("no")),
            (Err(away()), minutes(4), Verdict::Kept),
            (Err(Error::new(Reason::Forbidden, 403, "never")), minutes(0), lost("never")),
            (Err(away()), minutes(5), lost("what the operator may read could not be asked for 300 s: away")),
        ];
        for (answer, age, expected) in table {
            assert_eq!(verdict(answer, age), expected);
        }
    }

    #[test]
    fn what_is_missing_is_told_with_account_kind_and_place() {
        let told = [read(Some("a")), read(None)].map(|read| read.to_string());
        assert_eq!(told, ["v1 Secret in namespace a", "v1 Secret in the whole cluster"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_right_is_waited_for_and_its_loss_is_seen_within_half_a_minute() {
        let missing = Mutex::new(Vec::new());
        let waiting = rights([Ok(false), Err(away()), Ok(true)]);
        waiting.granted(|why| missing.lock().push(why)).await;
        assert_eq!(*missing.lock(), ["pages may not list v1 Secret in namespace a", "away"]);

        let begun = Instant::now();
        let why = rights([Ok(true), Err(away()), Ok(true), Ok(false)]).lost().await;
        assert_eq!(why, "pages may not list v1 Secret in namespace a");
        assert!(begun.elapsed() <= 4 * AGAIN, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn rights_that_nobody_can_be_asked_about_are_lost_in_the_end() {
        let begun = Instant::now();
        rights([Err(away())]).lost().await;
        let took = begun.elapsed();
        assert!(took >= KEPT && took <= KEPT + AGAIN, "{took:?}");
    }
}
