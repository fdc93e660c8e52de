//! A shard selector, and which objects are in its ranges: those whose uid or namespace has a hash in one of them (IN-3).
//!
//! An API server that does not know the parameter answers with all objects, so it is asked, and every object is looked
//! at here, too.

use std::sync::Arc;

use super::Header;
use super::labels::LONGEST;

/// A shard selector, as the API server takes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shard {
    text: Arc<str>,
    /// Sorted, and none that touches the one before it.
    ranges: Arc<[Range]>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Range {
    of: Of,
    /// The first hash that is in it.
    from: u64,
    /// The last.
    to: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Of {
    Uid,
    Namespace,
}

/// The hash behind the last one, which no `u64` holds.
const END: &str = "10000000000000000";

// === impl Shard ===

impl Shard {
    /// Parses a selector.
    ///
    /// # Errors
    /// A sentence that says what would be right.
    ///
    /// ```
    /// # use capstan_core::object::shard::Shard;
    /// let half = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')";
    /// assert!(Shard::parse(half).is_ok());
    /// assert!(Shard::parse("shardRange(object.metadata.name, '0x0', '0x8')").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > LONGEST {
            return Err(format!("found {} bytes; expected at most {LONGEST}", text.len()));
        }
        let mut ranges =
            text.split("||").map(|range| Range::parse(range.trim())).collect::<Result<Vec<Range>, String>>()?;
        ranges.sort();
        ranges.dedup_by(|next, before| {
            let touches = next.of == before.of && next.from <= before.to.saturating_add(1);
            if touches {
                before.to = before.to.max(next.to);
            }
            touches
        });
        Ok(Self { text: text.into(), ranges: ranges.into() })
    }

    /// Returns it as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns true if no object can be in both.
    pub fn excludes(&self, other: &Self) -> bool {
        // Both are sorted: of two that are apart, the lower one is apart from all that follow, too.
        let (mut ones, mut others) = (self.ranges.iter().peekable(), other.ranges.iter().peekable());
        while let (Some(one), Some(other)) = (ones.peek(), others.peek()) {
            if one.of != other.of || (one.from <= other.to && other.from <= one.to) {
                return false;
            }
            if one.to < other.from {
                ones.next();
            } else {
                others.next();
            }
        }
        // What is left would have to be of the same.
        let of = |ranges: &[Range]| (ranges.first().map(|range| range.of), ranges.last().map(|range| range.of));
        of(&self.ranges) == of(&other.ranges) && of(&self.ranges).0 == of(&self.ranges).1
    }

    /// Returns true if an object is in one of the ranges.
    pub fn takes(&self, header: &Header) -> bool {
        let hash = |of| match of {
            Of::Uid => hash(&header.uid),
            Of::Namespace => hash(header.key.namespace.as_deref().unwrap_or_default()),
        };
        self.ranges.iter().any(|Range { of, from, to }| (*from..=*to).contains(&hash(*of)))
    }
}

impl Range {
    fn parse(text: &str) -> Result<Self, String> {
        const RIGHT: &str = "expected `shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')`, or several of these with `||` between, where `object.metadata.namespace` may stand for the uid";
        let inside = text.strip_prefix("shardRange(").and_then(|rest| rest.strip_suffix(')'));
        let parts: Vec<&str> = inside.map(|inside| inside.split(',').map(str::trim).collect()).unwrap_or_default();
        let [of, from, to] = parts.as_slice() else {
            return Err(RIGHT.to_owned());
        };
        let of = match *of {
            "object.metadata.uid" => Of::Uid,
            "object.metadata.namespace" => Of::Namespace,
            _ => return Err(RIGHT.to_owned()),
        };
        let hex = |text: &str| {
            let digits = text.strip_prefix("'0x").and_then(|rest| rest.strip_suffix('\''));
            let digits = digits.filter(|digits| digits.len() == 16 || *digits == END);
            let wrong = || {
                format!(
                    "found {text}; expected 16 hexadecimal digits behind 0x, in single quotes, or '0x{END}' for the end"
                )
            };
            let number = |digits: &str| {
                digits.chars().try_fold(0, |number: u128, digit| Some(16 * number + u128::from(digit.to_digit(16)?)))
            };
            digits.and_then(number).ok_or_else(wrong)
        };
        let (from, to) = (hex(from)?, hex(to)?);
        let empty = || "found a range that ends before it begins, or is empty".to_owned();
        if from >= to {
            return Err(empty());
        }
        let bound = |hash: u128| u64::try_from(hash).map_err(|_| empty());
        Ok(Self { of, from: bound(from)?, to: bound(to - 1)? })
    }
}

/// Returns the hash of a text by which the API server chooses: FNV-1a of 64 bits.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Gvk, Managers, Object};

    #[test]
    fn the_hash_is_fnv_1a() {
        for (text, expected) in
            [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
        {
            assert_eq!(hash(text), expected, "{text}");
        }
    }

    #[test]
    fn an_object_is_in_exactly_one_of_the_shards_that_share_all_hashes() {
        // IN-3
        let range = |of, from, to| format!("shardRange(object.metadata.{of}, '0x{from}', '0x{to}')");
        let (low, middle) = ("0000000000000000", "8000000000000000");
        let shard = |text: &str| Shard::parse(text).unwrap();
        let (first, second) = (shard(&range("uid", low, middle)), shard(&range("uid", middle, END)));
        let both = shard(&format!("{} || {}", range("uid", low, middle), range("uid", middle, END)));
        let namespace = shard(&range("namespace", middle, END));
        assert!(first.excludes(&second) && !first.excludes(&both) && !first.excludes(&namespace));
        let mut counts = [0, 0];
        for n in 0..100 {
            let json = format!(r#"{{"metadata":{{"name":"a","namespace":"a","uid":"{n}-uid"}}}}"#);
            let object = Object::parse(&json, &Gvk::parse("v1", "X").unwrap(), &Managers::default()).unwrap();
            let taken = [&first, &second].map(|shard| shard.takes(object.header()));
            assert_ne!(taken[0], taken[1]);
            counts[usize::from(taken[1])] += 1;
            assert!(both.takes(object.header()));
            // The hash of `a` begins with `af`.
            assert!(namespace.takes(object.header()));
        }
        assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
    }

    #[test]
    fn ranges_that_touch_are_one_and_shards_exclude_each_other_only_if_all_of_their_ranges_do() {
        // IN-3, LC-3
        let range = |of: &str, from: &str, to: &str| {
            format!("shardRange(object.metadata.{of}, '0x{from}000000000000000', '0x{to}000000000000000')")
        };
        let shard = |ranges: &[(&str, &str, &str)]| {
            let ranges: Vec<_> = ranges.iter().map(|(of, from, to)| range(of, from, to)).collect();
            Shard::parse(&ranges.join(" || ")).unwrap()
        };
        let whole = shard(&[("uid", "4", "8"), ("uid", "0", "5"), ("uid", "8", "10"), ("uid", "1", "2")]);
        assert_eq!(whole.ranges.len(), 1);
        let even = shard(&[("uid", "8", "9"), ("uid", "0", "1"), ("uid", "4", "5")]);
        let odd = shard(&[("uid", "1", "4"), ("uid", "9", "10"), ("uid", "5", "8")]);
        let mixed = shard(&[("uid", "1", "2"), ("namespace", "4", "5")]);
        for (one, other, expected) in [
            (&even, &odd, true),
            (&even, &even, false),
            (&even, &whole, false),
            (&even, &mixed, false),
            (&shard(&[("namespace", "0", "1")]), &even, false),
        ] {
            assert_eq!([one.excludes(other), other.excludes(one)], [expected; 2], "{one:?} {other:?}");
        }
    }

    #[test]
    fn what_is_no_selector_is_told_with_what_would_be_right() {
        for (text, message) in [
            ("", "expected `shardRange("),
            ("shardRange(object.metadata.name, '0x0000000000000000', '0x8000000000000000')", "expected `shardRange("),
            ("shardRange(object.metadata.uid, '0x0', '0x8000000000000000')", "found '0x0'; expected 16"),
            ("shardRange(object.metadata.uid, 0x0000000000000000, '0x8000000000000000')", "found 0x0000000000000000"),
            ("shardRange(object.metadata.uid, '0x8000000000000000', '0x8000000000000000')", "found a range that ends"),
            (
                "shardRange(object.metadata.uid, '0x10000000000000000', '0x10000000000000000')",
                "found a range that ends",
            ),
        ] {
            let problem = Shard::parse(text).unwrap_err();
            assert!(problem.starts_with(message), "{text}: {problem}");
        }
    }
}
