//! Notices that a kind which is watched is another by now: it was made anew with another plural, or to live elsewhere (`IN-6`).

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::object::Scope;
use futures::FutureExt;
use futures::future::select_all;
use tokio::sync::watch;
use tokio::time::sleep;

use super::declared::Sites;
use super::plan::Plan;
use crate::client::{ApiServer, Kind};

/// How often it is asked what the kinds are. A request that is answered as if one were another has it asked at once.
const EVERY: Duration = Duration::from_secs(30);

/// The same while one of them is not served.
const UNSERVED: Duration = Duration::from_secs(10);

/// The same while one of them is in doubt, and was asked about just before.
const DOUBTED: Duration = Duration::from_secs(2);

/// The kinds that are watched, each with who tells what it is. Those of Kubernetes itself stay as they are.
#[derive(Default)]
pub(super) struct Watched(Vec<(Arc<ApiServer>, Kind)>);

impl Watched {
    /// Returns the kinds that a plan watches.
    pub(super) fn of(plan: &Plan, sites: &Sites) -> Self {
        Self::new(plan.scopes().map(|(scope, kind, _)| (&sites.at(scope.cluster.as_ref()).api, kind)))
    }

    /// Returns these kinds, each once.
    pub(super) fn new<'a>(all: impl Iterator<Item = (&'a Arc<ApiServer>, &'a Kind)>) -> Self {
        let mut kinds = Vec::<(Arc<ApiServer>, Kind)>::new();
        // A group without a dot has no custom resources.
        for (api, kind) in all.filter(|(_, kind)| kind.gvk.group.contains('.')) {
            if !kinds.iter().any(|(other, known)| Arc::ptr_eq(other, api) && known == kind) {
                kinds.push((Arc::clone(api), kind.clone()));
            }
        }
        Self(kinds)
    }

    /// Returns true if one of the kinds is another one among those of `next`.
    pub(super) fn is_renamed_in(&self, next: &Self) -> bool {
        let mut kinds = self.0.iter();
        kinds.any(|(api, kind)| {
            let mut next = next.0.iter().filter(|(other, _)| Arc::ptr_eq(other, api));
            next.any(|(_, now)| now.gvk == kind.gvk && now != kind)
        })
    }

    /// Waits until one of the kinds is another than the one that is watched, and says so.
    pub(super) async fn renamed(&self) -> String {
        let mut doubts: Vec<_> = self.0.iter().map(|(api, _)| api.presence().doubts()).collect();
        let mut failed = false;
        while let Some(pause) = self.pause(failed) {
            if let Some(why) = self.why() {
                return why;
            }
            failed = false;
            tokio::select! {
                _ = select_all(doubts.iter_mut().map(|doubts| doubts.changed().boxed())) => {}
                () = sleep(pause) => {}
            }
            doubts.iter_mut().for_each(watch::Receiver::mark_unchanged);
            for (api, kind) in &self.0 {
                let age = if api.known(&kind.gvk).is_some() { EVERY } else { UNSERVED };
                // Others who watch it have asked, perhaps.
                if let Err(error) = api.renew(&kind.gvk, age / 2).await {
                    failed = true;
                    tracing::debug!(%error, "what a kind is called can't be found out");
                }
            }
        }
        pending().await
    }

    /// Returns how long to wait before the kinds are asked about, the last time in vain or not; none if there are none.
    fn pause(&self, failed: bool) -> Option<Duration> {
        let longest = |(api, kind): &(Arc<ApiServer>, Kind)| match api.known(&kind.gvk) {
            _ if failed => EVERY,
            None => UNSERVED,
            Some(_) if api.presence().is_doubted(&kind.gvk) => DOUBTED,
            Some(_) => EVERY,
        };
        let (api, _) = self.0.first()?;
        Some(api.chance().jitter(self.0.iter().map(longest).min()?))
    }

    /// Says of a kind that it is another; none if none is, as far as is known. One that is not served may come back as it was.
    fn why(&self) -> Option<String> {
        let named = |Kind { plural, scope, .. }: &Kind| match scope {
            Scope::Namespaced => format!("`{plural}` in namespaces"),
            Scope::Cluster => format!("`{plural}` in no namespace"),
        };
        self.0.iter().find_map(|(api, kind)| {
            let now = api.known(&kind.gvk).filter(|now| now != kind)?;
            Some(format!("{} was {}, and is {} now", kind.gvk, named(kind), named(&now)))
        })
    }
}

#[cfg(test)]
mod tests {
    use capstan_core::object::{Gvk, Managers};
    use parking_lot::Mutex;
    use tokio::time::Instant;

    use super::*;
    use crate::client::tests::{Answer, Step, config_maps, scripted};

    fn person(plural: &str, scope: Scope) -> Kind {
        Kind { gvk: Gvk::parse("a.dev/v1", "Person").unwrap(), plural: plural.into(), scope }
    }

    fn served(plural: &str, namespaced: bool) -> String {
        format!(r#"{{"resources":[{{"name":"{plural}","kind":"Person","namespaced":{namespaced}}}]}}"#)
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_is_made_anew_is_noticed_within_half_a_minute_and_soon_after_a_doubt() {
        // IN-6
        let folk = "a.dev/v1 Person was `people` in namespaces, and is `folk` in namespaces now";
        let cluster = "a.dev/v1 Person was `people` in namespaces, and is `people` in no namespace now";
        for (then, expected) in [
            (served("people", true), None),
            (served("folk", true), Some(folk)),
            (served("people", false), Some(cluster)),
            // It is not served, or that can't be read: there is nothing new.
            (r#"{"resources":[]}"#.to_owned(), None),
            ("{}".to_owned(), None),
        ] {
            for doubted in [false, true] {
                let answer = Arc::new(Mutex::new(served("people", true)));
                let (client, asked) = scripted({
                    let answer = Arc::clone(&answer);
                    move |_: &str| Answer(Some(200), vec![Step::Comes(answer.lock().clone())])
                });
                let api = Arc::new(ApiServer::new(client, Managers::default()));
                let kind = api.resolve(&person("", Scope::Cluster).gvk).await.unwrap();
                let maps = config_maps();
                let watched = [&kind, &maps, &kind].map(|kind| (&api, kind));
                let [mine, others] = [(); 2].map(|()| Watched::new(watched.into_iter()));
                answer.lock().clone_from(&then);
                let began = Instant::now();
                let doubt = async {
                    sleep(Duration::from_secs(2)).await;
                    if doubted {
                        api.doubt(&kind.gvk);
                    }
                    pending::<()>().await;
                };
                let both = async { tokio::join!(mine.renamed(), others.renamed()) };
                let found = tokio::select! {
                    (found, same) = both => {
                        assert_eq!(found, same);
                        Some(found)
                    }
                    () = doubt => None,
                    () = sleep(Duration::from_secs(35)) => None,
                };
                assert_eq!(found.as_deref(), expected, "{then}");
                let within = if doubted { 2 } else { 30 };
                assert!(found.is_none() || began.elapsed() <= Duration::from_secs(within), "{:?}", began.elapsed());
                // They ask for one another; what is not served is asked about more often.
                assert!((2..=12).contains(&asked.lock().len()), "{:?}", asked.lock());
                assert!(asked.lock().iter().all(|path| path == "/apis/a.dev/v1"), "{:?}", asked.lock());
            }
        }
    }

    #[tokio::test]
    async fn a_kind_is_renamed_only_if_the_same_one_is_watched_and_is_another() {
        let (client, _) = scripted(|_| Answer(Some(503), Vec::new()));
        let [one, other] = [(); 2].map(|()| Arc::new(ApiServer::new(client.clone(), Managers::default())));
        let people = person("people", Scope::Namespaced);
        let thing = Kind { gvk: Gvk::parse("a.dev/v1", "Thing").unwrap(), ..people.clone() };
        let before = Watched::new([(&one, &people)].into_iter());
        for (api, kind, expected) in [
            (&one, people.clone(), false),
            (&one, person("folk", Scope::Namespaced), true),
            (&one, person("people", Scope::Cluster), true),
            (&other, person("folk", Scope::Namespaced), false),
            (&one, thing, false),
        ] {
            let next = Watched::new([(api, &kind)].into_iter());
            assert_eq!(before.is_renamed_in(&next), expected, "{kind:?}");
        }
        assert!(!before.is_renamed_in(&Watched::default()));
    }
}
