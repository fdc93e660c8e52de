//! Decides whether a value that a component keeps fits: within a bound, and in memory that its plugin has borrowed.

use std::collections::BTreeMap;

use crate::guest::{CallError, CallReason};
use crate::room::Holding;
use crate::room::charge::Charge;

/// The memory that a memo takes besides its text, in bytes.
const EACH: usize = 128;

/// Values by key. Their memory is given back when they are dropped.
#[derive(Default)]
pub struct Memos {
    values: BTreeMap<String, String>,
    /// Bytes of all keys and values.
    size: usize,
    taken: Charge,
}

impl Memos {
    /// Returns a value.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// Sets or removes a value. `bound` is the most bytes of all keys and values, with the name of that limit;
    /// `holding` returns the memory to borrow from, and is called for the first value.
    ///
    /// # Errors
    /// `exhausted` beyond the bound, or if there is no memory to borrow; then nothing has changed.
    pub fn keep(
        &mut self,
        key: &str,
        value: Option<String>,
        (bound, limit): (usize, &str),
        holding: impl FnOnce() -> Option<Holding>,
    ) -> Result<(), CallError> {
        let text = |value: &String| key.len() + value.len();
        let (old, new) = (self.values.get(key).map(text), value.as_ref().map(text));
        let size = self.size - old.unwrap_or(0) + new.unwrap_or(0);
        let exhausted = |message| Err(CallError::new(CallReason::Exhausted, message));
        if size > bound && new > old {
            return exhausted(format!("memo {key:?} would make {size} bytes, {bound} are allowed ({limit})"));
        }
        let [had, has] = [old, new].map(|text| text.map_or(0, |text| bytes(EACH + text)));
        self.taken.begin(holding);
        if !self.taken.set(self.taken.bytes() - had + has) {
            return exhausted(format!("memo {key:?}: there is no memory for it (--plugin-memory)"));
        }
        self.size = size;
        match value {
            Some(value) => drop(self.values.insert(key.to_owned(), value)),
            None => drop(self.values.remove(key)),
        }
        Ok(())
    }
}

fn bytes(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::Room;

    #[test]
    fn memos_are_bounded_by_all_keys_and_values_and_borrow_what_they_take() {
        let room = Room::new(2_000);
        let mut memos = Memos::default();
        let mut keep = |key: &str, value: Option<&str>, bound| {
            let holding = || Some(room.holding(&"p".into()));
            let bound = (bound, "limits.memo.run");
            let kept = memos.keep(key, value.map(str::to_owned), bound, holding);
            let kept = kept.map_err(|error| error.message);
            (kept, memos.get(key).map(str::to_owned))
        };
        let is = |value: &str| (Ok(()), Some(value.to_owned()));
        assert_eq!(keep("a", Some("1234"), 10), is("1234"));
        let (refused, kept) = keep("b", Some("12345"), 10);
        assert_eq!(kept, None);
        let text = r#"memo "b" would make 11 bytes, 10 are allowed (limits.memo.run)"#;
        assert_eq!(refused, Err(text.to_owned()));
        assert_eq!(keep("a", Some("123456789"), 10), is("123456789"));
        for _ in 0..2 {
            assert_eq!(keep("a", None, 10), (Ok(()), None));
        }
        assert_eq!(keep("a", Some(&"x".repeat(1_300)), 9_000).0, Ok(()));
        let (refused, _) = keep("b", Some("y"), 9_000);
        assert!(refused.is_err_and(|text| text.contains("--plugin-memory")));
        assert_eq!(keep("a", Some("z"), 9_000), is("z"));
        assert_eq!(keep("b", Some("y"), 9_000), is("y"), "there is room again");
        drop(memos);
        assert!(room.holding(&"other".into()).try_grow(1_500));
    }
}
