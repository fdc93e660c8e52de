//! Waits for the namespaces that a controller's manifest selects by their labels, and has it watch those (NS-5).

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::manifest::{Filters, Keep, Namespaces};
use capstan_core::object::{Gvk, Scope as ObjectScope};
use capstan_core::source::filter::{Filter, PrimaryFilter};
use capstan_core::source::{Role, Source, Spec};
use tokio::sync::watch;
use tokio::time::sleep;

use super::declared::{Declared, Environment};
use super::handle::Handle;
use super::selection::{At, Names};
use crate::client::Kind;
use crate::informer::pool::Subscription;
use crate::informer::{PageSize, Scope, Selectors, State, Subscriber};

/// From one change of what is watched to the next, at least.
const QUIET: Duration = Duration::from_secs(2);

/// Which namespaces are selected, or why they can't be watched, with those that are.
type Found = Result<Names, (String, Option<Names>)>;

/// A watch on the namespaces that are selected.
struct Watching {
    at: At,
    subscription: Subscription,
    /// Is told that there are others.
    changed: watch::Receiver<()>,
    /// What was told last: which they are, or why that is not known.
    told: Option<Found>,
}

// === following ===

/// Has a controller watch the namespaces that are selected, for as long as this is polled.
pub(super) async fn follow(handle: Arc<Handle>, environment: Arc<Environment>) {
    let mut watching: Option<Watching> = None;
    loop {
        let wanted = handle.selection.lock().wanted();
        if watching.as_ref().map(|watching| &watching.at) != wanted.as_ref().map(|(at, _)| at) {
            handle.unselected.send_replace(None);
            watching = wanted.map(|(at, declared)| Watching::begin(at, &declared, (&handle, &environment)));
        } else if let (Some(watching), Some((at, _))) = (&mut watching, wanted) {
            watching.at = at;
        }
        let next = async {
            match &mut watching {
                Some(watching) => (watching.next().await, watching.at.clone()),
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = handle.selecting.notified() => {}
            (found, at) = next => {
                let go_over = |names: &Names| {
                    let mut selection = handle.selection.lock();
                    if let Some(declared) = selection.find(&at, names) {
                        handle.go_over(declared, &environment);
                    }
                };
                let known = in_force(&handle, &at).or_else(|| handle.selection.lock().known(&at));
                // What is being listed goes on, whatever is left meanwhile.
                let mut begun = Vec::new();
                match found {
                    Ok(names) => {
                        // What is left waits for nothing that is to be listed.
                        if let Some(rest) = known.and_then(|known| left(&known, &names)).filter(|rest| *rest != names) {
                            begun = std::mem::take(&mut *handle.begun.lock());
                            go_over(&rest);
                            sleep(QUIET).await;
                        }
                        tracing::info!(selector = &*at.selector, namespaces = names.len(), "these namespaces are selected");
                        handle.unselected.send_replace(None);
                        go_over(&names);
                    }
                    Err((why, named)) => {
                        tracing::warn!(selector = &*at.selector, %why, "it is not known which namespaces are selected");
                        handle.unselected.send_replace(Some(why));
                        // Too many are selected; those that are no more are left all the same.
                        if let Some(rest) = known.zip(named).and_then(|(known, named)| left(&known, &named)) {
                            go_over(&rest);
                        }
                    }
                }
                // Several that come or go together are one change.
                sleep(QUIET).await;
                drop(begun);
            }
        }
    }
}

/// Waits for ever, and says what for: a version whose namespaces are known takes the place of this one.
pub(super) async fn unknown<T>(handle: &Handle, selector: &str, wait: impl Fn(String)) -> T {
    let mut unselected = handle.unselected.subscribe();
    loop {
        let why = unselected.borrow_and_update().as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        wait(format!("waiting for the namespaces that `{selector}` selects{why}"));
        if unselected.changed().await.is_err() {
            return pending().await;
        }
    }
}

// === impl Watching ===

impl Watching {
    fn begin(at: At, declared: &Declared, (handle, environment): (&Handle, &Environment)) -> Self {
        let gvk = Gvk { group: "".into(), version: "v1".into(), kind: "Namespace".into() };
        let kind = Kind { gvk: gvk.clone(), plural: "namespaces".into(), scope: ObjectScope::Cluster };
        let scope = Scope {
            gvk: gvk.clone(),
            namespace: None,
            cluster: at.remote.as_ref().map(|remote| Arc::clone(&remote.id)),
            except: None,
            selectors: Selectors { labels: Some(Arc::clone(&at.selector)), ..Selectors::default() },
            alone: None,
            page: PageSize::default(),
        };
        let filter = PrimaryFilter { generation_aware: true, finalizer: None };
        let spec = Spec {
            name: "namespaces".into(),
            gvk,
            cluster: scope.cluster.clone(),
            role: Role::Primary,
            filter: Filter::primary(filter, Filters::default()),
            indexes: BTreeMap::new(),
            fields: Keep::Metadata.fields(),
            bounded: None,
            packed: false,
            faults: Arc::clone(&handle.faults),
        };
        let (sender, changed) = watch::channel(());
        let listener = Arc::new(move |_| sender.send_modify(|()| ()));
        let subscriber = Subscriber { source: Arc::new(Source::new(spec)), listener };
        let subscription = declared.site(environment).pool.join(&scope, &kind, subscriber);
        Self { at, subscription, changed, told: None }
    }

    /// Waits until other namespaces are selected than before, or it is not known which for another reason.
    async fn next(&mut self) -> Found {
        loop {
            let found = self.look();
            if let Some(found) = found.filter(|found| self.told.as_ref() != Some(found)) {
                self.told = Some(found.clone());
                return found;
            }
            let Self { subscription, changed, .. } = self;
            let ended = tokio::select! {
                biased;
                state = subscription.state.changed() => state.is_err(),
                changed = changed.changed() => changed.is_err(),
            };
            if ended {
                // With the daemon.
                return pending().await;
            }
        }
    }

    /// Returns which namespaces are selected, or why that is not known; none as long as they are listed.
    fn look(&self) -> Option<Found> {
        let Self { subscription, .. } = self;
        if !subscription.is_filled() {
            return match subscription.state() {
                State::Failing(why) => Some(Err((why, None))),
                State::Listing | State::Watching => None,
            };
        }
        if !subscription.cache.is_complete() {
            let why =
                "not all of them have found room in memory, or could be read: what is left out is not known to be gone";
            return Some(Err((why.to_owned(), None)));
        }
        let names: BTreeSet<Arc<str>> =
            subscription.cache.list().iter().map(|namespace| Arc::clone(&namespace.key().name)).collect();
        Some(within_bounds(names, self.at.most))
    }
}

/// Returns the namespaces if they are not too many to be watched one by one.
fn within_bounds(names: BTreeSet<Arc<str>>, most: usize) -> Found {
    let (found, names) = (names.len(), Arc::new(names));
    if found > most {
        let why = format!(
            "it selects {found} namespaces, and at most {most} can be watched one by one; select fewer, or watch `all`"
        );
        return Err((why, Some(names)));
    }
    Ok(names)
}

/// Returns the selected namespaces that the running version watches, whatever has been found since.
fn in_force(handle: &Handle, at: &At) -> Option<Names> {
    let running = handle.running().filter(|running| At::of(running).as_ref() == Some(at))?;
    match &running.spec.namespaces {
        Namespaces::Selected(selected) => selected.found.clone(),
        Namespaces::All | Namespaces::Own | Namespaces::Listed(_) => None,
    }
}

/// Returns which of the known namespaces are still selected; none if all are.
fn left(known: &Names, selected: &Names) -> Option<Names> {
    let rest: BTreeSet<_> = known.intersection(selected).cloned().collect();
    (rest.len() < known.len()).then(|| Arc::new(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_namespaces_are_selected_than_can_be_watched_one_by_one() {
        // NS-5, NS-6
        let names = |count: usize| (0..count).map(|n| format!("n{n}").into()).collect::<BTreeSet<Arc<str>>>();
        assert_eq!(within_bounds(names(500), 500).map(|names| names.len()).ok(), Some(500));
        assert!(within_bounds(names(500), 499).is_err());
        let why = "it selects 501 namespaces, and at most 500 can be watched one by one; select fewer, or watch `all`";
        let found = within_bounds(names(501), 500);
        assert_eq!(
            found.map_err(|(why, named)| (why, named.map(|named| named.len()))),
            Err((why.to_owned(), Some(501)))
        );
    }

    #[test]
    fn what_is_no_more_selected_is_left_whatever_is_selected_besides() {
        // NS-5
        let names = |text: &str| -> Names { Arc::new(text.split_whitespace().map(Arc::from).collect()) };
        for (known, selected, rest) in [
            ("a b", "a b", None),
            ("a b", "a b c", None),
            ("a b", "b c", Some("b")),
            ("a b", "c", Some("")),
            ("", "c", None),
        ] {
            assert_eq!(left(&names(known), &names(selected)), rest.map(names), "{known:?} {selected:?}");
        }
    }
}
