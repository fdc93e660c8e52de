//! Remembers, per primary, what comparisons said and which values the guest keeps, so that a run that changes nothing costs little.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::object::{Object, ObjectRef, Version};
use crate::reconciler::memos::Memos;

/// What is remembered between the runs of a controller.
#[derive(Default)]
pub struct Memory {
    hasher: RandomState,
    primaries: Mutex<HashMap<ObjectRef, Remembered>>,
}

/// What is remembered of one primary. Bounded: one verdict per dependent and two for itself, memos within their limit.
#[derive(Default)]
struct Remembered {
    verdicts: Vec<(Arc<str>, Verdict)>,
    memos: Memos,
}

/// A document that was found to be in force already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The hash of what the guest answered.
    pub answer: u64,
    /// The uid of the primary that the answer was completed with.
    pub owner: Box<str>,
    /// The object that it was compared with.
    pub key: ObjectRef,
    /// The version of that object.
    pub version: Version,
}

impl Verdict {
    /// Returns the verdict that a document about the primary itself is in force in this version of it.
    pub fn of(answer: u64, primary: &Object) -> Self {
        let owner = primary.header().uid.clone();
        Self {
            answer,
            owner,
            key: primary.key().clone(),
            version: primary.version(),
        }
    }
}

impl Memory {
    /// Returns the hash of a document that an edition of a controller made. Another edition may compare in another way: it
    /// trusts none of these verdicts.
    pub fn hash(&self, edition: u64, document: &str) -> u64 {
        self.hasher.hash_one((edition, document))
    }

    /// Returns the last verdict on a dependent of a primary.
    pub fn verdict(&self, primary: &ObjectRef, name: &str) -> Option<Verdict> {
        let primaries = self.primaries.lock();
        let verdicts = &primaries.get(primary)?.verdicts;
        verdicts
            .iter()
            .find(|(known, _)| &**known == name)
            .map(|(_, verdict)| verdict.clone())
    }

    /// Keeps the verdict that an object matches.
    pub fn keep_verdict(&self, primary: &ObjectRef, name: &Arc<str>, verdict: Verdict) {
        let mut primaries = self.primaries.lock();
        let verdicts = &mut primaries.entry(primary.clone()).or_default().verdicts;
        match verdicts.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = verdict,
            None => verdicts.push((Arc::clone(name), verdict)),
        }
    }

    /// Returns a memo of a primary.
    pub fn memo(&self, primary: &ObjectRef, key: &str) -> Option<String> {
        let primaries = self.primaries.lock();
        primaries.get(primary)?.memos.get(key).map(str::to_owned)
    }

    /// Lets `act` change the memos of a primary.
    pub fn change_memos<T>(&self, primary: &ObjectRef, act: impl FnOnce(&mut Memos) -> T) -> T {
        let mut primaries = self.primaries.lock();
        act(&mut primaries.entry(primary.clone()).or_default().memos)
    }

    /// Forgets all primaries but those that `keep` wants.
    pub fn retain(&self, keep: impl Fn(&ObjectRef) -> bool) {
        self.primaries.lock().retain(|key, _| keep(key));
    }

    /// Forgets a primary that is gone.
    pub fn forget(&self, primary: &ObjectRef) {
        self.primaries.lock().remove(primary);
    }
}
