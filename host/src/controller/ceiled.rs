//! Notices that a kind which is watched for an operator under a ceiling is more than the ceiling has by now (CE-6).

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::client::{ApiServer, Kind, Within};

/// A ceiling, and who tells what kinds are called.
pub(super) struct Ceiled {
    pub(super) within: Within,
    pub(super) api: Arc<ApiServer>,
}

impl Ceiled {
    /// Asks what kinds are called, which are watched as these, and returns those that may not be any more, with the reason. What can't be found out goes on.
    pub(super) async fn beyond<'a>(&self, watched: impl Iterator<Item = &'a Kind> + Clone) -> Vec<(&'a Kind, String)> {
        let mut asked = BTreeSet::new();
        for kind in watched.clone() {
            // All kinds of a group are told at once; those of Kubernetes itself stay as they are.
            if kind.gvk.group.contains('.')
                && asked.insert(kind.gvk.api_version())
                && let Err(error) = self.api.look_again(&kind.gvk).await
            {
                tracing::debug!(%error, "what a kind is called can't be found out");
            }
        }
        watched.filter_map(|kind| Some((kind, self.why(kind)?))).collect()
    }

    /// Says why a kind may not be watched any more; none if it may.
    fn why(&self, kind: &Kind) -> Option<String> {
        let now = self.api.known(&kind.gvk).unwrap_or_else(|| kind.clone());
        self.within.permit_watch(&now).err().map(|error| error.message)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use capstan_core::manifest::Ceilings;
    use capstan_core::object::{Gvk, Managers, Scope};
    use parking_lot::Mutex;

    use super::*;
    use crate::client::InForce;
    use crate::client::tests::{Answer, Step, scripted};

    const CEILINGS: &str = "
apiVersion: capstan.dev/v1alpha1
kind: Ceilings
spec:
  ceilings:
    teams:
      namespaces: [team]
      serviceAccounts: [pages]
      rules: [{ apiGroups: [a.dev], resources: [people, folk], verbs: [list, watch] }]
";

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_is_more_than_the_ceiling_has_by_now_is_watched_no_more() {
        // CE-6
        let answer = Arc::new(Mutex::new((200, String::new())));
        let (client, asked) = scripted({
            let answer = Arc::clone(&answer);
            move |_: &str| {
                let (status, text) = answer.lock().clone();
                Answer(Some(status), vec![Step::Comes(text)])
            }
        });
        let api = Arc::new(ApiServer::new(client, Managers::default()));
        let ceilings = Arc::new(InForce::new(Ceilings::parse(CEILINGS, Path::new("c")).unwrap()));
        let ceiled = Ceiled { within: ceilings.of(&"team".into()), api };
        let kind = |kind: &str, plural: &str| Kind {
            gvk: Gvk::parse("a.dev/v1", kind).unwrap(),
            plural: plural.into(),
            scope: Scope::Namespaced,
        };
        let watched = [kind("Person", "people"), kind("Person", "people")];
        let served = |plural: &str, namespaced: bool| {
            format!(r#"{{"resources":[{{"name":"{plural}","kind":"Person","namespaced":{namespaced}}}]}}"#)
        };
        for (status, text, expected) in [
            (200, served("people", true), None),
            // IN-6: who notices that is told what else it may be called.
            (200, served("folk", true), None),
            (
                200,
                served("persons", true),
                Some(
                    "found a.dev/v1 Person, and a need for list, watch of persons.a.dev, as the API server calls it; the ceiling `teams` permits nothing of it, and folk, people of its group",
                ),
            ),
            (
                200,
                served("people", false),
                Some(
                    "found a.dev/v1 Person, which lives in no namespace; the ceiling `teams` permits what lives in team alone",
                ),
            ),
            // It is not served, or that is not known: there is nothing new.
            (200, r#"{"resources":[]}"#.to_owned(), None),
            (403, String::new(), None),
        ] {
            *answer.lock() = (status, text);
            let before = asked.lock().len();
            let found = ceiled.beyond(watched.iter()).await;
            let whys: Vec<_> = found.into_iter().map(|(_, why)| why).collect();
            assert_eq!(whys, expected.map(|why| vec![why; 2]).unwrap_or_default(), "{status}");
            assert_eq!(asked.lock().len(), before + 1);
        }
    }
}
