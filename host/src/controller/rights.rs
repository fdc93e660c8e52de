//! Decides whether a controller may run: as long as the account of its operator may read what it watches.
//!
//! Caches are shared, and filled with the daemon's rights. So the API server is asked about the account before a controller
//! starts, and again and again while it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::cluster::{Error, Reason};
use capstan_core::manifest::Ceilings;
use capstan_core::object::Gvk;
use capstan_core::startup::{Fill, Needed, Watched};
use futures::future::BoxFuture;
use futures::stream::{BoxStream, iter};
use futures::{FutureExt, StreamExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::ceiled::Ceiled;
use super::declared::{Declared, Environment};
use super::plan::Plan;
use crate::backoff::Chance;
use crate::client::{ApiServer, Identity, Kind, Within};
use crate::informer::Scope;

/// From one time that the API server is asked to the next, at most.
const AGAIN: Duration = Duration::from_secs(30);

/// How long its last answer counts while it can't be asked.
const KEPT: Duration = Duration::from_mins(5);

/// So many questions are put to the API server at once.
const AT_ONCE: usize = 8;

/// Whoever reads a kind in more namespaces than this is first asked about in all at once: most may read it in all or in none.
const FEW: usize = 2;

/// What an operator with an account of its own reads out of caches.
pub(super) struct Rights {
    user: Arc<str>,
    reads: Vec<(Read, Needed)>,
    /// What it was started without.
    denied: Vec<Read>,
    ask: Ask,
    /// Who says whether it is within a ceiling, if the operator has one.
    ceiled: Option<Ceiled>,
    chance: Chance,
}

/// The objects of a kind, in one namespace or everywhere (none).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) kind: Kind,
    pub(super) namespace: Option<Arc<str>>,
}

/// A right that is gone.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lost {
    /// What is not there any more by name, if it is known to be missing.
    pub(super) names: BTreeSet<Arc<str>>,
    pub(super) why: String,
}

/// Asks the API server whether a read is permitted.
type Ask = Box<dyn Fn(Read) -> BoxFuture<'static, Result<bool, Error>> + Send + Sync>;

/// The first read that is not permitted; `None` if all are.
type Answer = Result<Option<Lost>, Error>;

impl Rights {
    /// Returns what a plan reads in the name of an account; none if the daemon reads for itself.
    pub(super) fn of(declared: &Declared, plan: &Plan, environment: &Environment) -> Option<Self> {
        let (who, within) = (declared.who(environment), declared.within_ceiling(environment));
        // In another cluster, the rights of whom its kubeconfig names count.
        let here = plan.scopes().filter(|(scope, ..)| scope.cluster.is_none());
        let watched = here.map(|(scope, kind, planned)| (scope, kind, planned.needed));
        Self::to_read((&who, within), watched, &environment.api)
    }

    /// Returns what is read in the name of an account, given what is watched; none if the daemon reads for itself.
    pub(super) fn to_read<'a>(
        (who, within): (&Identity, Option<Within>),
        watched: impl Iterator<Item = (&'a Scope, &'a Kind, Needed)>,
        api: &Arc<ApiServer>,
    ) -> Option<Self> {
        let Identity::Operator(_) = who else {
            return None;
        };
        let mut reads: Vec<(Read, Needed)> = Vec::new();
        for (scope, kind, needed) in watched {
            let read = Read { kind: kind.clone(), namespace: scope.namespace.clone() };
            match reads.iter_mut().find(|(known, _)| *known == read) {
                Some((_, known)) if needed == Needed::Always => *known = needed,
                Some(_) => {}
                None => reads.push((read, needed)),
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
            denied: Vec::new(),
            ask: Box::new(ask),
            ceiled: within.map(|within| Ceiled { within, api: Arc::clone(api) }),
            chance: api.chance().clone(),
        })
    }

    /// Asks about each read. Returns what is known of it, with an error of the API server if there was one.
    pub(super) async fn seen(&self) -> (Vec<(Read, Watched)>, Option<Error>) {
        let (mut seen, mut away) = (Vec::new(), None);
        let mut answers = self.answers(self.read()).await.zip(iter(self.reads.clone()));
        while let Some(((read, fill), (_, needed))) = answers.next().await {
            let fill = fill.unwrap_or_else(|error| {
                away = Some(error);
                Fill::UnderWay
            });
            let what = read.name();
            seen.push((read, Watched { what, needed, fill }));
        }
        (seen, away)
    }

    fn read(&self) -> Vec<Read> {
        self.reads.iter().map(|(read, _)| read.clone()).collect()
    }

    /// Asks about reads, several at once, and returns the answers in their order. Where a kind is read in many namespaces and may be read in
    /// all, that is the one question.
    async fn answers(&self, reads: Vec<Read>) -> BoxStream<'_, (Read, Result<Fill, Error>)> {
        let mut namespaces = BTreeMap::<Gvk, (Kind, usize)>::new();
        for Read { kind, namespace } in &reads {
            namespaces.entry(kind.gvk.clone()).or_insert((kind.clone(), 0)).1 += usize::from(namespace.is_some());
        }
        let many = namespaces.into_values().filter(|(_, count)| *count > FEW);
        let everywhere: Vec<_> = many.map(|(kind, _)| Read { kind, namespace: None }).collect();
        let asked = iter(everywhere).map(|read| self.answer(read, None)).buffered(AT_ONCE);
        let everywhere: BTreeMap<_, _> = asked.map(|(Read { kind, .. }, answer)| (kind.gvk, answer)).collect().await;
        let answer = move |read: Read| {
            let known = match everywhere.get(&read.kind.gvk) {
                // In single ones it may, perhaps.
                Some(Ok(Fill::Lacking(_) | Fill::UnderWay)) | None => None,
                Some(known @ (Ok(Fill::Filled) | Err(_))) => Some(known.clone()),
            };
            self.answer(read, known)
        };
        iter(reads).map(answer).buffered(AT_ONCE).boxed()
    }

    /// Asks about a read, unless the answer is known.
    fn answer(&self, read: Read, known: Option<Result<Fill, Error>>) -> BoxFuture<'_, (Read, Result<Fill, Error>)> {
        let answer = async move {
            let answer = match known {
                Some(known) => known,
                None => self.ask(&read).await,
            };
            (read, answer)
        };
        answer.boxed()
    }

    /// Asks about a read.
    async fn ask(&self, read: &Read) -> Result<Fill, Error> {
        match (self.ask)(read.clone()).await {
            Ok(true) => Ok(Fill::Filled),
            Ok(false) => Ok(Fill::Lacking(format!("{} may not list {read}", self.user).into())),
            // That is an answer, too: nobody may ask in its name.
            Err(error) if error.reason == Reason::Forbidden => Ok(Fill::Lacking(error.message.into())),
            Err(error) => Err(error),
        }
    }

    /// Goes on without these reads.
    pub(super) fn without(&mut self, denied: Vec<Read>) {
        self.reads.retain(|(read, _)| !denied.contains(read));
        self.denied = denied;
    }

    /// Whether it goes on without some reads.
    pub(super) fn lacks_any(&self) -> bool {
        !self.denied.is_empty()
    }

    /// Asks whether something may be read that it goes on without.
    pub(super) async fn granted(&self) -> bool {
        let mut answers = self.answers(self.denied.clone()).await;
        while let Some((_, answer)) = answers.next().await {
            if let Ok(Fill::Filled) = answer {
                return true;
            }
        }
        false
    }

    /// Waits until something may not be read any more, or could not be asked about for too long. Returns what.
    pub(super) async fn lost(&self) -> Lost {
        let mut known = Instant::now();
        let mut news = self.ceiled.as_ref().map(|ceiled| ceiled.within.news());
        loop {
            tokio::select! {
                () = sleep(self.chance.jitter(AGAIN)) => {}
                () = other_ceilings(&mut news) => {}
            }
            if let Some(lost) = self.beyond().await {
                return lost;
            }
            let asked = Instant::now();
            let answer = self.look().await;
            match verdict(answer, asked.duration_since(known)) {
                Verdict::Granted => known = asked,
                Verdict::Kept => {}
                Verdict::Lost(lost) => return lost,
            }
        }
    }

    /// Returns what is more than the ceiling has by now; none if nothing is.
    async fn beyond(&self) -> Option<Lost> {
        let reads = self.reads.iter().map(|(read, _)| read);
        let beyond = self.ceiled.as_ref()?.beyond(reads.clone().map(|read| &read.kind)).await;
        let (_, why) = beyond.first()?;
        let is_beyond = |read: &&Read| beyond.iter().any(|(kind, _)| **kind == read.kind);
        Some(Lost { names: reads.filter(is_beyond).map(Read::name).collect(), why: why.clone() })
    }

    async fn look(&self) -> Answer {
        let mut answers = self.answers(self.read()).await;
        let mut lost = None;
        while let Some((read, answer)) = answers.next().await {
            // All that is lost, so that none of it is waited for.
            match answer {
                Ok(Fill::Lacking(why)) => {
                    let new = || Lost { names: BTreeSet::new(), why: why.to_string() };
                    lost.get_or_insert_with(new).names.insert(read.name());
                }
                Ok(Fill::Filled | Fill::UnderWay) => {}
                Err(error) => return lost.map_or(Err(error), |lost| Ok(Some(lost))),
            }
        }
        Ok(lost)
    }
}

/// Waits until a right is lost; for ever, if none is needed.
pub(super) async fn lost(rights: Option<&Rights>) -> Lost {
    match rights {
        Some(rights) => Box::pin(rights.lost()).await,
        None => std::future::pending().await,
    }
}

/// Waits until other ceilings hold; for ever, if the operator has none.
async fn other_ceilings(news: &mut Option<watch::Receiver<Arc<Ceilings>>>) {
    if let Some(news) = news
        && news.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// What an answer means to a controller that runs.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It goes on.
    Granted,
    /// It goes on, because it was permitted lately.
    Kept,
    /// It stops.
    Lost(Lost),
}

/// Says what an answer means where the last one that permitted everything is so old.
fn verdict(answer: Answer, age: Duration) -> Verdict {
    match answer {
        Ok(None) => Verdict::Granted,
        Ok(Some(lost)) => Verdict::Lost(lost),
        Err(_) if age < KEPT => Verdict::Kept,
        Err(error) => {
            let seconds = age.as_secs();
            let why = format!("what the operator may read could not be asked for {seconds} s: {}", error.message);
            Verdict::Lost(Lost { names: BTreeSet::new(), why })
        }
    }
}

impl Read {
    /// Returns what it is called among all that a controller waits for.
    pub(super) fn name(&self) -> Arc<str> {
        format!("the right to list {self}").into()
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

    /// The namespaces of the questions, in their order; `None`: all at once.
    type Asked = Arc<Mutex<Vec<Option<Arc<str>>>>>;

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
            reads: vec![(read(Some("a")), Needed::Always)],
            denied: Vec::new(),
            ask: Box::new(ask),
            ceiled: None,
            chance: Chance::default(),
        }
    }

    #[test]
    fn what_may_not_be_read_stops_and_silence_counts_as_the_last_answer_for_five_minutes() {
        let minutes = Duration::from_mins;
        let lost = |name: Option<&str>, why: &str| Lost {
            names: name.map(Arc::from).into_iter().collect(),
            why: why.to_owned(),
        };
        let silent = "what the operator may read could not be asked for 300 s: away";
        let table = [
            (Ok(None), minutes(60), Verdict::Granted),
            (Ok(Some(lost(Some("it"), "no"))), minutes(0), Verdict::Lost(lost(Some("it"), "no"))),
            (Err(away()), minutes(4), Verdict::Kept),
            (Err(away()), minutes(5), Verdict::Lost(lost(None, silent))),
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
    async fn a_right_that_is_gone_on_without_is_asked_for_again_and_the_loss_of_one_is_seen_within_half_a_minute() {
        let (seen, error) = rights([Err(away())]).seen().await;
        let fills = seen.into_iter().map(|(_, watched)| watched.fill);
        assert_eq!((fills.collect::<Vec<_>>(), error.is_some()), (vec![Fill::UnderWay], true));
        let missing = "pages may not list v1 Secret in namespace a";
        let mut waiting = rights([Ok(false), Ok(false), Err(away()), Ok(true)]);
        let (seen, _) = waiting.seen().await;
        assert_eq!(seen[0].1.fill, Fill::Lacking(missing.into()));
        waiting.without(seen.into_iter().map(|(read, _)| read).collect());
        let asked = [waiting.granted().await, waiting.granted().await, waiting.granted().await];
        assert_eq!(asked, [false, false, true]);
        let forbidden = Error::new(Reason::Forbidden, 403, "never");
        let (seen, error) = rights([Err(forbidden.clone())]).seen().await;
        assert_eq!((&seen[0].1.fill, error), (&Fill::Lacking("never".into()), None));
        assert_eq!(rights([Err(forbidden)]).lost().await.why, "never");

        let begun = Instant::now();
        let lost = rights([Ok(true), Err(away()), Ok(true), Ok(false)]).lost().await;
        assert_eq!(lost.why, missing);
        assert!(begun.elapsed() <= 4 * AGAIN, "{:?}", begun.elapsed());
    }

    /// Returns rights to read in 500 namespaces that the API server answers about so, each time after a second; and what it is asked.
    fn many(answer: impl Fn(Option<&str>) -> Result<bool, Error> + Send + Sync + 'static) -> (Rights, Asked) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        let ask = move |read: Read| -> BoxFuture<'static, Result<bool, Error>> {
            let answer = answer(read.namespace.as_deref());
            noted.lock().push(read.namespace);
            Box::pin(async {
                sleep(Duration::from_secs(1)).await;
                answer
            })
        };
        let reads = (0..500).map(|n| (read(Some(&format!("n{n}"))), Needed::Always)).collect();
        (Rights { reads, ask: Box::new(ask), ..rights([Ok(true)]) }, asked)
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_many_namespaces_is_asked_about_all_at_once_and_only_without_that_right_about_each_some_beside_others()
     {
        let missing = |seen: &[(Read, Watched)]| {
            let lacking = seen.iter().filter(|(_, watched)| watched.fill != Fill::Filled);
            lacking.map(|(read, _)| read.namespace.clone().unwrap().to_string()).collect::<Vec<_>>()
        };
        let (all, asked) = many(|_| Ok(true));
        let (seen, error) = all.seen().await;
        assert_eq!((seen.len(), missing(&seen), error), (500, vec![], None));
        assert_eq!(all.look().await.unwrap(), None);
        assert_eq!(*asked.lock(), [None, None]);

        let (mut each, asked) = many(|namespace| Ok(!matches!(namespace, None | Some("n7"))));
        let begun = Instant::now();
        let (seen, _) = each.seen().await;
        assert_eq!((missing(&seen), asked.lock().len()), (vec!["n7".to_owned()], 501));
        assert!(begun.elapsed() < Duration::from_secs(70), "{:?}", begun.elapsed());
        let lost = each.look().await.unwrap().unwrap();
        let names = ["the right to list v1 Secret in namespace n7".into()];
        assert_eq!((&*lost.why, lost.names), ("pages may not list v1 Secret in namespace n7", names.into()));
        let (two, _) = many(|namespace| match namespace {
            Some("n9") => Err(away()),
            namespace => Ok(!matches!(namespace, None | Some("n7" | "n8"))),
        });
        assert_eq!(two.look().await.unwrap().unwrap().names.len(), 2, "all that is lost as far as it is known");
        each.without(vec![read(Some("n7"))]);
        assert!(!each.granted().await);
        assert_eq!(each.look().await.unwrap(), None);

        // Nobody is asked 500 times who does not answer.
        let (silent, asked) = many(|_| Err(away()));
        let (seen, error) = silent.seen().await;
        assert_eq!((missing(&seen).len(), error), (500, Some(away())));
        assert!(silent.look().await.is_err());
        assert_eq!(*asked.lock(), [None, None]);
    }

    #[tokio::test(start_paused = true)]
    async fn rights_that_nobody_can_be_asked_about_are_lost_in_the_end() {
        let begun = Instant::now();
        rights([Err(away())]).lost().await;
        let took = begun.elapsed();
        assert!(took >= KEPT && took <= KEPT + AGAIN, "{took:?}");
    }
}
