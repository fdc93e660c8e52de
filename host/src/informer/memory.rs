//! Decides how much memory the informers of one cluster have for what they keep, and for what is on its way to them.

use std::sync::Arc;

use capstan_core::cache::Writer;
use capstan_core::room::{Owners, Room};

use crate::client::transit::Transit;

/// What is on its way takes no memory from caches, but a quarter of what those have at most, and this if that is less.
const LEAST_TRANSIT: u64 = 32 << 20;

/// What the informers of one cluster may take. A clone is another handle of the same.
#[derive(Clone)]
pub struct Memory {
    /// Bytes of objects that each informer may keep.
    each: usize,
    /// Bytes that all informers may keep.
    total: u64,
    /// What all caches keep together.
    all: Room,
    /// What those of other clusters keep together.
    others: Room,
    /// What those of this cluster keep together; none for that of the daemon.
    here: Option<Room>,
    /// What is on its way.
    transit: Room,
    /// The same of all other clusters together.
    elsewhere: Room,
}

impl Memory {
    /// Returns what the informers of the daemon's own cluster have: `each` so many bytes at most, all of them, those of other clusters
    /// included, `total`.
    pub fn new(each: usize, total: u64) -> Self {
        Self {
            each,
            total,
            all: Room::new(total),
            others: Room::new(total / 2),
            here: None,
            transit: Room::new((total / 4).max(LEAST_TRANSIT)),
            elsewhere: Room::new((total / 8).max(LEAST_TRANSIT)),
        }
    }

    /// Returns what the informers of one more cluster have: no more than a quarter of all, and no more than half of it with those of further
    /// clusters (`CU-1`).
    #[must_use]
    pub fn of_other(&self) -> Self {
        let here = Some(Room::new(self.total / 4));
        Self { here, transit: self.elsewhere.clone(), ..self.clone() }
    }

    /// Returns the bytes that each informer may keep.
    pub(super) fn each(&self) -> usize {
        self.each
    }

    /// Returns the writer of the cache of an informer, which counts for `account`, and for `share` in its cluster. The operators that share it
    /// are its owners: one with many accounts has no more by right than one with a single one.
    pub(super) fn writer(&self, account: &Arc<str>, share: &Arc<str>, owners: &Owners) -> Writer {
        let writer = Writer::bounded(self.each).sharing(self.all.holding(account).of(owners));
        match &self.here {
            None => writer,
            Some(here) => writer.sharing(self.others.holding(account)).sharing(here.holding(share)),
        }
    }

    /// Returns the memory of what is on its way to an informer, or to somebody else who asks the same API server.
    pub fn transit(&self, account: Arc<str>) -> Transit {
        Transit::new(self.transit.clone(), account)
    }
}

#[cfg(test)]
mod tests {
    use capstan_core::cache::Event;
    use capstan_core::object::{Gvk, Managers, Object};

    use super::*;

    /// Returns how many MiB of objects a cache takes in.
    fn filled(writer: &mut Writer) -> usize {
        let object = |n: usize| {
            let json = format!(
                r#"{{"metadata":{{"namespace":"n","name":"o{n}","resourceVersion":"{n}"}},"f":"{}"}}"#,
                "x".repeat(1 << 18)
            );
            Object::parse(&json, &Gvk::parse("v1", "ConfigMap").unwrap(), &Managers::default()).unwrap()
        };
        (1..=1000).take_while(|n| writer.apply(Event::Applied(object(*n))).is_some()).count();
        writer.cache().bytes() >> 20
    }

    fn owner(name: &str) -> Owners {
        let owners = Owners::default();
        owners.add(&name.into());
        owners
    }

    #[test]
    fn an_operator_with_very_many_namespaces_leaves_others_memory_for_their_objects() {
        let memory = Memory::new(1 << 30, 64 << 20);
        let mut writers = Vec::new();
        for number in 0..500 {
            let account = format!("namespace n{number}").into();
            let mut writer = memory.writer(&account, &account, &owner("hog"));
            filled(&mut writer);
            writers.push(writer);
        }
        let taken: usize = writers.iter().map(|writer| writer.cache().bytes() >> 18).sum();
        assert!(taken <= 240, "{taken} quarters of a MiB");
        let mut other = memory.writer(&"pages".into(), &"pages".into(), &owner("other"));
        assert!(filled(&mut other) >= 1);
    }

    #[test]
    fn other_clusters_have_a_part_of_the_memory_for_caches_and_leave_the_rest_to_the_daemons_own() {
        // CU-1
        let memory = Memory::new(1 << 30, 32 << 20);
        let clusters = ["edge", "far", "off"].map(|name| (memory.of_other(), Arc::from(name)));
        let mut writers: Vec<_> =
            clusters.iter().map(|(memory, name)| memory.writer(name, &"maps".into(), &owner("edges"))).collect();
        let taken: Vec<_> = writers.iter_mut().map(filled).collect();
        assert!(taken[0] == 5 && taken.iter().all(|taken| (1..=8).contains(taken)), "{taken:?}");
        assert!(taken.iter().sum::<usize>() <= 16, "{taken:?}");
        let mut own = memory.writer(&"maps".into(), &"maps".into(), &owner("own"));
        assert!(filled(&mut own) >= 8, "{own:?}");
        // Several watches of one cluster have no more than one.
        let (whole, name) = (Memory::new(1 << 30, 32 << 20), "edge".into());
        let (edge, far) = (whole.of_other(), whole.of_other());
        let mut several = ["maps", "secrets", "pods"].map(|share| edge.writer(&name, &share.into(), &owner("edges")));
        let taken: usize = several.iter_mut().map(filled).sum();
        assert!((5..=8).contains(&taken), "{taken}");
        assert!(filled(&mut far.writer(&"far".into(), &"maps".into(), &owner("far"))) >= 4);
    }
}
