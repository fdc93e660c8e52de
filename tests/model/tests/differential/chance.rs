//! Decides what is drawn: the same seed gives the same operations.

use serde_json::{Map, Value, json};

/// Numbers that look random.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    /// Returns a number below another.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % end as u64).unwrap()
    }

    /// Returns whether something happens that does once in so many times.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Returns one of these.
    pub(crate) fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    /// Returns some of these, in any order.
    pub(crate) fn some<T: Clone>(&mut self, all: &[T]) -> Vec<T> {
        let mut all = all.to_vec();
        let count = self.below(all.len() + 1);
        (0..count).map(|_| all.remove(self.below(all.len()))).collect()
    }

    /// Returns a map with some of these names, with one of these values each.
    pub(crate) fn map(&mut self, names: &[&str], values: &[Value]) -> Value {
        let names = self.some(names);
        let map: Map<String, Value> = names.into_iter().map(|name| (name.to_owned(), self.of(values))).collect();
        Value::Object(map)
    }

    /// Returns a small document of any kind.
    pub(crate) fn any(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 4 } else { 7 }) {
            0 => json!(self.below(2)),
            1 => json!(self.of(&["x", "y"])),
            2 => json!(true),
            3 => json!([1]),
            4 => json!([{ "name": self.of(&["x", "y"]) }]),
            _ => {
                let names = self.some(&["p", "q", "r"]);
                let map: Map<String, Value> =
                    names.into_iter().map(|name| (name.to_owned(), self.any(depth - 1))).collect();
                Value::Object(map)
            }
        }
    }
}
