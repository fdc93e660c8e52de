//! Decides what whoever joins an informer is told: all that is there, in portions beside what comes in for others, and at last what has changed
//! meanwhile.

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use capstan_core::cache::Cache;
use capstan_core::cpu;
use capstan_core::object::ObjectRef;
use capstan_core::source::Attaching;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

use super::{Shared, Subscriber, Subscribers, aside};

/// So many changed objects are looked through while nothing comes in; more are looked through beside that.
const FEW: usize = 100;

/// So often it is tried to find no more that have changed meanwhile.
const ROUNDS: usize = 16;

/// A subscriber that is being told of what there is.
pub(super) struct Joining {
    pub(super) number: u64,
    pub(super) subscriber: Subscriber,
    /// The objects that have changed since what it is told of.
    missed: Mutex<BTreeSet<ObjectRef>>,
    /// Tells it, if nobody waits for that.
    _task: Option<AbortOnDropHandle<()>>,
}

/// The way of a subscriber into an informer.
pub(super) struct Join {
    shared: Arc<Shared>,
    number: u64,
    subscriber: Subscriber,
    stage: Stage,
    rounds: usize,
}

/// How far a subscriber is told.
enum Stage {
    /// Not at all; this was there when it joined.
    Before(Cache),
    Under(Attaching),
}

impl Joining {
    fn new(join: &Join) -> Self {
        Self { number: join.number, subscriber: join.subscriber.clone(), missed: Mutex::default(), _task: None }
    }

    /// Notes that an object has changed, of which the subscriber is told later.
    pub(super) fn miss(&self, object: &ObjectRef) {
        self.missed.lock().insert(object.clone());
    }
}

impl Shared {
    /// Begins to tell a subscriber of all that is there. One that needs fields which are not there waits for the list that has them.
    pub(super) fn subscribe(self: &Arc<Self>, number: u64, subscriber: Subscriber) -> Option<Join> {
        let subscribers = &self.subscribers;
        let mut subscribers = subscribers.try_write().unwrap_or_else(|| aside(|| subscribers.write()));
        self.untold.lock().insert(number);
        if self.kept.has(subscriber.source.spec().stays()) {
            let join = Join::begin(self, number, subscriber);
            subscribers.joining.push(Joining::new(&join));
            return Some(join);
        }
        // What it goes on from may have been shown with fewer fields.
        subscriber.source.awaits(self.scope().namespace.as_deref());
        subscribers.waiting.push((number, subscriber));
        None
    }

    /// Begins to tell those who have waited for what is there by now.
    pub(super) fn admit(self: &Arc<Self>, subscribers: &mut Subscribers, ready: Vec<(u64, Subscriber)>) {
        for (number, subscriber) in ready {
            let join = Join::begin(self, number, subscriber);
            let joining = Joining::new(&join);
            // It ends only after this is over. Without a runtime the daemon is ending.
            let task = Handle::try_current().ok().map(|runtime| runtime.spawn(join.rested()));
            subscribers.joining.push(Joining { _task: task.map(AbortOnDropHandle::new), ..joining });
        }
    }
}

impl Join {
    /// Begins while nothing comes in.
    fn begin(shared: &Arc<Shared>, number: u64, subscriber: Subscriber) -> Self {
        Self { shared: Arc::clone(shared), number, subscriber, stage: Stage::Before(shared.cache.frozen()), rounds: 0 }
    }

    /// Tells all, and gives others a turn after each portion.
    pub(super) async fn rested(mut self) {
        while self.step() {
            cpu::rest().await;
        }
    }

    /// Tells a portion. Returns false once all is told, and what comes in is told like to others.
    pub(super) fn step(&mut self) -> bool {
        aside(|| self.go_on())
    }

    fn go_on(&mut self) -> bool {
        let Self { shared, number, subscriber, stage, .. } = self;
        match stage {
            Stage::Before(cache) => {
                // Nobody leaves, or gives in, as long as that is held.
                let subscribers = shared.subscribers.read();
                let stays = subscribers.joining.iter().any(|joining| joining.number == *number);
                if stays {
                    let namespace = shared.scope().namespace.as_deref();
                    *stage = Stage::Under(subscriber.source.begin_attach(namespace, cache.clone()));
                }
                return stays;
            }
            Stage::Under(attaching) => {
                if let Some(triggers) = subscriber.source.attach_on(attaching) {
                    subscriber.tell(triggers);
                    return true;
                }
            }
        }
        self.catch_up()
    }

    /// Takes in what has changed meanwhile, while nothing else changes; later, if that is much. Returns false if nothing is left.
    fn catch_up(&mut self) -> bool {
        let Self { shared, number, subscriber, stage, rounds } = self;
        let Stage::Under(attaching) = stage else {
            return true;
        };
        let mut subscribers = shared.subscribers.write();
        let Some(at) = subscribers.joining.iter().position(|joining| joining.number == *number) else {
            // It has left, or given in.
            return false;
        };
        let missed = subscribers.joining.get(at).map(|joining| mem::take(&mut *joining.missed.lock()));
        let missed = missed.unwrap_or_default();
        let source = &subscriber.source;
        *rounds += 1;
        if missed.len() > FEW && *rounds < ROUNDS {
            source.attach_again(attaching, shared.cache.frozen(), missed);
            return true;
        }
        source.attach_again(attaching, shared.cache.clone(), missed);
        while let Some(triggers) = source.attach_on(attaching) {
            subscriber.tell(triggers);
        }
        subscriber.tell(source.attached(attaching));
        if shared.listing.load(Ordering::Relaxed) {
            source.before_list(shared.scope().namespace.as_deref());
        }
        subscribers.joining.swap_remove(at);
        subscribers.present.push((*number, subscriber.clone()));
        shared.untold.lock().remove(number);
        // Whoever waits until it is told looks again.
        shared.state.send_modify(|_| {});
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use capstan_core::cache::Writer;
    use capstan_core::object::{Managers, Object};
    use capstan_core::source::{Listener, Trigger, TriggerKind};

    use super::super::list_watch::tests::map;
    use super::super::pool::tests::{shared, subscriber};
    use super::super::{Item, take};
    use super::*;
    use crate::client::tests::config_maps;

    const SOON: Duration = Duration::from_secs(5);

    fn object(name: &str, version: u64) -> Object {
        Object::parse(&map(name, version), &config_maps().gvk, &Managers::default()).unwrap()
    }

    fn told(told: &Mutex<Vec<Trigger>>) -> Vec<String> {
        let told = mem::take(&mut *told.lock()).into_iter();
        let each = told.map(|Trigger { primary, what, .. }| {
            let sign = if matches!(what, TriggerKind::Deleted { .. }) { "-" } else { "" };
            format!("{sign}{}", primary.name)
        });
        each.collect()
    }

    #[test]
    fn what_somebody_is_told_on_joining_holds_up_nobody_else() {
        // PO-3
        let mut writer = Writer::default();
        let shared = shared(&writer);
        let (there, heard) = subscriber();
        let mut join = shared.subscribe(1, there).unwrap();
        while join.step() {}
        let mut take = {
            let shared = Arc::clone(&shared);
            move |item| take(&shared, &mut writer, &mut false, item)
        };
        for (name, version) in [("a", 1), ("b", 2), ("c", 3)] {
            take(Item::Applied(object(name, version)));
        }
        assert_eq!(told(&heard), ["a", "b", "c"]);
        // It takes its time.
        let ((late, heard_late), (release, released), (tell, begun)) =
            (subscriber(), mpsc::channel::<()>(), mpsc::channel());
        let listener: Listener = {
            let (inner, released) = (Arc::clone(&late.listener), Mutex::new(released));
            Arc::new(move |triggers| {
                inner(triggers);
                tell.send(()).unwrap();
                released.lock().recv().unwrap_or_default();
            })
        };
        let late = Subscriber { listener, ..late };
        let joining = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let mut join = shared.subscribe(2, late).unwrap();
                while join.step() {}
            })
        };
        begun.recv_timeout(SOON).unwrap();
        let (done, soon) = mpsc::channel();
        let goes_on = thread::spawn(move || {
            take(Item::Applied(object("b", 4)));
            take(Item::Deleted(object("c", 5)));
            take(Item::Applied(object("d", 6)));
            done.send(()).unwrap();
            take
        });
        assert_eq!(soon.recv_timeout(SOON), Ok(()), "others hear of what comes in");
        assert_eq!(told(&heard), ["b", "-c", "d"]);
        assert_eq!(told(&heard_late), ["a", "b", "c"]);
        assert!(shared.untold.lock().contains(&2));
        drop(release);
        joining.join().unwrap();
        assert_eq!(told(&heard_late), ["b", "-c", "d"], "what has changed meanwhile");
        goes_on.join().unwrap()(Item::Applied(object("e", 7)));
        assert_eq!((told(&heard), told(&heard_late)), (vec!["e".to_owned()], vec!["e".to_owned()]));
        assert!(shared.untold.lock().is_empty());
    }
}
