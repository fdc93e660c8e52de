//! Waits for primaries that appear, change or go, for those who look after each of them, whatever the filters say of it.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Source;
use crate::object::ObjectRef;

/// Those who want to know of primaries that appear, change or go.
#[derive(Debug, Default)]
pub struct Touched(Mutex<Vec<Weak<TouchedKeys>>>);

/// The primaries that one of them has not looked at yet: each at most once, however often it changes.
#[derive(Debug, Default)]
pub struct TouchedKeys {
    waiting: Mutex<BTreeSet<ObjectRef>>,
    came: Notify,
}

impl Source {
    /// Tells these of each object that appears, changes or goes, whatever the filter says.
    #[must_use]
    pub fn touching(self, touched: &Arc<Touched>) -> Self {
        Self { touched: Some(Arc::clone(touched)), ..self }
    }

    /// Tells those who want to know of each change.
    pub(super) fn touch(&self, key: &ObjectRef) {
        if let Some(touched) = &self.touched {
            touched.note(key);
        }
    }
}

impl Touched {
    /// Returns what is touched from now on, for one waiter, as long as that keeps it.
    pub fn subscribe(&self) -> Arc<TouchedKeys> {
        let keys = Arc::<TouchedKeys>::default();
        let mut all = self.0.lock();
        all.retain(|keys| keys.strong_count() > 0);
        all.push(Arc::downgrade(&keys));
        keys
    }

    /// Takes in that a primary has appeared, changed or gone. Never waits.
    fn note(&self, primary: &ObjectRef) {
        for keys in self.0.lock().iter().filter_map(Weak::upgrade) {
            keys.add(primary.clone());
        }
    }
}

impl TouchedKeys {
    /// Adds a primary.
    pub fn add(&self, primary: ObjectRef) {
        if self.waiting.lock().insert(primary) {
            self.came.notify_one();
        }
    }

    /// Waits for primaries, and takes all that there are.
    pub async fn take(&self) -> BTreeSet<ObjectRef> {
        loop {
            let taken = std::mem::take(&mut *self.waiting.lock());
            if !taken.is_empty() {
                return taken;
            }
            self.came.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use futures::FutureExt as _;

    use super::*;
    use crate::cache::{Event, Writer};
    use crate::manifest::Filters;
    use crate::object::fields::Fields;
    use crate::object::{Gvk, Managers, Object};
    use crate::source::filter::{Filter, PrimaryFilter};
    use crate::source::{Role, Spec};

    #[tokio::test]
    async fn each_change_is_noted_whatever_the_filter_says() {
        // CF-6
        let touched = Arc::<Touched>::default();
        let keys = touched.subscribe();
        let spec = Spec {
            name: "primaries".into(),
            gvk: Gvk::parse("sample.dev/v1", "Page").unwrap(),
            cluster: None,
            role: Role::Primary,
            filter: Filter::primary(PrimaryFilter { generation_aware: true, finalizer: None }, Filters::default()),
            indexes: BTreeMap::new(),
            fields: Fields::whole(),
            bounded: None,
            packed: false,
            faults: Arc::default(),
        };
        let gvk = spec.gvk.clone();
        let (source, mut writer) = (Source::new(spec).touching(&touched), Writer::default());
        source.attach(None, writer.cache());
        for (version, passes) in [(1, true), (2, false)] {
            let labelled = format!(
                r#"{{"metadata":{{"name":"a","uid":"u","generation":1,"resourceVersion":"{version}","labels":{{"v":"{version}"}}}}}}"#
            );
            let object = Object::parse(&labelled, &gvk, &Managers::default()).unwrap();
            let triggers = source.on(writer.apply(Event::Applied(object)).unwrap());
            assert_eq!(triggers.len(), usize::from(passes), "{version}");
            assert_eq!(keys.take().now_or_never(), Some([ObjectRef::cluster("a")].into()), "{version}");
        }
    }

    #[tokio::test]
    async fn each_waiter_gets_a_primary_once_however_often_it_changes() {
        let touched = Touched::default();
        let (one, other) = (touched.subscribe(), touched.subscribe());
        let [a, b] = ["a", "b"].map(ObjectRef::cluster);
        for key in [&a, &b, &a] {
            touched.note(key);
        }
        assert_eq!(one.take().await, [a.clone(), b.clone()].into());
        assert_eq!(one.take().now_or_never(), None);
        let mut waits = Box::pin(one.take());
        assert_eq!((&mut waits).now_or_never(), None);
        touched.note(&a);
        assert_eq!(waits.now_or_never(), Some([a.clone()].into()), "who waits is woken");
        touched.note(&b);
        assert_eq!(one.take().await, [b.clone()].into());
        assert_eq!(other.take().await, [a, b].into());
        drop(other);
        drop(touched.subscribe());
        assert_eq!(touched.0.lock().len(), 2, "of those one is there still, and one has just gone");
    }
}
