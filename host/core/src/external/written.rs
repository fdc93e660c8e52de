//! Decides what an answer means for things that runs have written since the one before: an answer that has not seen a write does not undo it
//! (XC-4, XC-5).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Things;
use super::shares::EACH;

/// The most states of one thing that are known as replaced. Beyond them the oldest is forgotten.
const MOST_REPLACED: usize = 8;

/// What runs have written of the things of one primary since its last answer, by their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Written(BTreeMap<Arc<str>, Mark>);

/// What runs have written of a thing.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark {
    /// The states that were replaced, `None` where there was nothing.
    replaced: Vec<Option<Arc<str>>>,
    /// What it is now; `None`: it has been removed.
    now: Option<Arc<str>>,
}

/// What an answer means after writes.
#[derive(Debug)]
pub(super) struct Confirmed {
    pub(super) things: Things,
    /// The writes that the next answer does not undo, either.
    pub(super) written: Written,
    /// Whether things are otherwise than the answer says.
    pub(super) overruled: bool,
}

/// A write of a run outside of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// There is a new thing.
    Created(Arc<str>),
    /// A thing is another than it was.
    Replaced {
        /// What it was.
        before: Arc<str>,
        /// What it is.
        now: Arc<str>,
    },
    /// A thing has been removed.
    Removed,
}

impl Written {
    /// Returns the things with a write taken in; `None` if they stay as they are, because they show something newer already (`XC-4`).
    pub(super) fn take(&mut self, things: &Things, id: &Arc<str>, write: Write) -> Option<Things> {
        let known = things.get(id);
        let (fits, now) = match write {
            Write::Created(now) => (known.is_none(), Some(now)),
            Write::Replaced { before, now } => (known == Some(&before), Some(now)),
            Write::Removed => (known.is_some(), None),
        };
        if !fits {
            return None;
        }
        self.note(id, known.cloned(), now.clone());
        let mut things = things.clone();
        match now {
            Some(now) => drop(things.insert(Arc::clone(id), now)),
            None => drop(things.remove(id)),
        }
        Some(things)
    }

    /// Takes in a write where nothing is known of the things. Returns false if nothing follows from it: of what has been removed it is not known
    /// what it was.
    pub(super) fn mark(&mut self, id: &Arc<str>, write: Write) -> bool {
        let written = self.0.get(id).and_then(|mark| mark.now.clone());
        let (before, now) = match write {
            Write::Created(now) => (written, Some(now)),
            Write::Replaced { before, now } => (Some(before), Some(now)),
            Write::Removed if written.is_none() => return false,
            Write::Removed => (written, None),
        };
        self.note(id, before, now);
        true
    }

    /// Returns what has been written of one thing.
    pub(super) fn of(&self, id: &Arc<str>) -> Self {
        Self(self.0.get(id).map(|mark| (Arc::clone(id), mark.clone())).into_iter().collect())
    }

    /// Replaces what has been written of one thing.
    pub(super) fn replace(&mut self, id: &Arc<str>, Self(one): Self) {
        self.0.remove(id);
        self.0.extend(one);
    }

    fn note(&mut self, id: &Arc<str>, before: Option<Arc<str>>, now: Option<Arc<str>>) {
        let mark = self.0.entry(Arc::clone(id)).or_insert_with(|| Mark { replaced: Vec::new(), now: None });
        if mark.replaced.len() == MOST_REPLACED {
            mark.replaced.remove(0);
        }
        mark.replaced.push(before);
        mark.now = now;
    }

    /// Returns what an answer means after these writes: where it shows what was replaced, or nothing, what was written stands (`XC-5`). The next
    /// answer is right, unless what was written is `held`.
    pub(super) fn confirm(self, mut answer: Things, held: bool) -> Confirmed {
        let (mut written, mut overruled) = (Self::default(), false);
        for (id, mark) in self.0 {
            let Mark { replaced, now } = &mark;
            let seen = answer.get(&id);
            let is_old = seen.is_none() || replaced.iter().any(|before| before.as_ref() == seen);
            let is_new = seen == now.as_ref();
            if is_old && !is_new {
                overruled = true;
                match now {
                    Some(now) => drop(answer.insert(Arc::clone(&id), Arc::clone(now))),
                    None => drop(answer.remove(&id)),
                }
            }
            written.0.extend((held && (is_old || is_new)).then_some((id, mark)));
        }
        Confirmed { things: answer, written, overruled }
    }

    /// Returns what a thing is since the last write of it; what it is `otherwise`, if it was not written.
    pub(super) fn now<'a>(&'a self, id: &Arc<str>, otherwise: Option<&'a Arc<str>>) -> Option<&'a Arc<str>> {
        self.0.get(id).map_or(otherwise, |mark| mark.now.as_ref())
    }

    /// Whether nothing has been written.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the bytes of all that it keeps: each thing may be there twice, with each state that it had.
    pub(super) fn size(&self) -> u64 {
        let text = |text: &Option<Arc<str>>| EACH + text.as_ref().map_or(0, |text| text.len() as u64);
        let mark = |Mark { replaced, now }: &Mark| replaced.iter().map(text).sum::<u64>() + text(now);
        self.0.iter().map(|(id, one)| id.len() as u64 + mark(one)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn things(texts: &str) -> Things {
        let each = texts.split_whitespace().filter_map(|text| text.split_once('='));
        each.map(|(id, text)| (id.into(), text.into())).collect()
    }

    /// Returns things as `id=text`.
    fn texts(things: &Things) -> String {
        things.iter().map(|(id, text)| format!("{id}={text}")).collect::<Vec<_>>().join(" ")
    }

    /// Reads `+a=1` as created, `a=1>2` as replaced, `-a` as removed.
    fn write(text: &str) -> (Arc<str>, Write) {
        if let Some(id) = text.strip_prefix('-') {
            return (id.into(), Write::Removed);
        }
        let (id, text) = text.split_once('=').unwrap();
        match text.split_once('>') {
            Some((before, now)) => (id.into(), Write::Replaced { before: before.into(), now: now.into() }),
            None => (id.trim_start_matches('+').into(), Write::Created(text.into())),
        }
    }

    #[test]
    fn a_write_is_kept_unless_something_newer_is_known_and_one_answer_that_has_not_seen_it_does_not_undo_it() {
        // XC-4, XC-5
        for (known, writes, after, answer, confirmed) in [
            // Created: not yet seen, seen, and changed by somebody meanwhile.
            ("", "+a=1", "a=1", "", "a=1"),
            ("", "+a=1", "a=1", "a=1", "a=1"),
            ("", "+a=1", "a=1", "a=7", "a=7"),
            ("a=7", "+a=1", "a=7", "a=8", "a=8"),
            // Replaced, once and twice: any of the states that it had is an old one.
            ("a=1", "a=1>2", "a=2", "a=1", "a=2"),
            ("a=1", "a=1>2", "a=2", "", "a=2"),
            ("a=1", "a=1>2 a=2>3", "a=3", "a=1", "a=3"),
            ("a=1", "a=1>2 a=2>3", "a=3", "a=2", "a=3"),
            ("a=1", "a=1>2 a=2>3", "a=3", "a=4", "a=4"),
            ("a=7", "a=1>2", "a=7", "a=1", "a=1"),
            ("", "a=1>2", "", "", ""),
            // Removed: the old state is shown still, nothing is, or it has been made again.
            ("a=1", "-a", "", "a=1", ""),
            ("a=1", "-a", "", "", ""),
            ("a=1", "-a", "", "a=2", "a=2"),
            ("", "-a", "", "a=1", "a=1"),
            ("a=1", "-a +a=2", "a=2", "a=1", "a=2"),
            ("a=1", "a=1>2 -a", "", "a=1", ""),
            // The others are as the answer says.
            ("a=1 b=1", "a=1>2", "a=2 b=1", "a=1 c=1", "a=2 c=1"),
        ] {
            let (mut now, mut written) = (things(known), Written::default());
            for (id, write) in writes.split_whitespace().map(write) {
                now = written.take(&now, &id, write).unwrap_or(now);
            }
            assert_eq!(texts(&now), after, "{known:?} {writes:?}");
            let found = written.clone().confirm(things(answer), false);
            assert_eq!(texts(&found.things), confirmed, "{known:?} {writes:?}, then {answer:?}");
            assert!(found.written.is_empty());
            // What is held stands as long as nothing newer is shown.
            let held = written.confirm(things(answer), true);
            let [again, later] = [answer, "a=9"].map(|answer| held.written.clone().confirm(things(answer), true));
            assert_eq!(texts(&again.things), confirmed, "{known:?} {writes:?}, then twice {answer:?}");
            assert_eq!((texts(&later.things), later.written.is_empty()), ("a=9".to_owned(), true));
        }
    }

    #[test]
    fn states_beyond_the_last_few_are_forgotten() {
        // XC-5
        let (mut now, mut written) = (things("a=0"), Written::default());
        let mut size = 0;
        for step in 0..20 {
            let write = Write::Replaced { before: step.to_string().into(), now: (step + 1).to_string().into() };
            now = written.take(&now, &"a".into(), write).unwrap();
            assert!(step < 8 || written.size() <= size + 20, "{step}: {} {size}", written.size());
            size = written.size();
        }
        assert_eq!(texts(&written.clone().confirm(things("a=12"), false).things), "a=20");
        assert_eq!(texts(&written.confirm(things("a=11"), false).things), "a=11");
    }
}
