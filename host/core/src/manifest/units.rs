//! Durations, sizes and counts as a manifest writes them.

use std::fmt;
use std::time::Duration;

use schemars::{Schema, json_schema};
use serde_json::Number;

use crate::yaml::Form;

/// A stretch of time, read and shown as `500ms`, `5s`, `1h30m`.
#[derive(Clone, Copy, Debug)]
pub struct Time(pub Duration);

/// A stretch of time for people, rounded: `18.2ms`, `5.7s`, `1m5s`, `10h`.
#[derive(Clone, Copy, Debug)]
pub struct Rounded(pub Duration);

/// A number of bytes, read and shown as `64Mi`, `4Ki`, `100000`.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub u64);

/// How many things run at once.
pub(super) struct Workers(pub(super) u32);

/// How many objects are answered at once.
pub(super) struct Objects(pub(super) u32);

/// A place in an order.
pub(super) struct Priority(pub(super) u32);

/// How many requests are made.
pub(super) struct Requests(pub(super) u32);

/// How often something is done.
pub(super) struct Times(pub(super) u32);

/// A count of sources that runs register.
pub(super) struct Registered(pub(super) u32);

/// How many of a kind there may be.
pub(super) struct Counted(pub(super) u32);

/// A factor from 1.
pub(super) struct Factor(pub(super) f64);

/// A share, from 0 to 1.
pub(super) struct Share(pub(super) f64);

/// The longest duration: what a component is told as milliseconds is a `u32`.
pub(super) const LONGEST: Duration = Duration::from_millis(u32::MAX as u64);

/// Returns the duration that a text such as `500ms`, `5s` or `1h30m` means, as the command line takes it too.
///
/// # Errors
/// What is wrong with the text, and what would be right.
pub fn duration(text: &str) -> Result<Duration, String> {
    Time::text(text).map(|Time(duration)| duration)
}

/// Returns the number of bytes that a text such as `64Mi` means, as the command line takes it too.
///
/// # Errors
/// What is wrong with the text, and what would be right.
pub fn size(text: &str) -> Result<u64, String> {
    Bytes::text(text).map(|Bytes(bytes)| bytes)
}

// === impl Time ===

/// The units of durations in milliseconds, as they must follow each other.
const TIMES: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl Form for Time {
    const WHAT: &'static str = "a duration such as `500ms`, `5s` or `1h30m`";

    fn text(text: &str) -> Result<Self, String> {
        if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(format!("a duration needs a unit: `{text}s`?"));
        }
        let mut rest = text;
        let mut units = TIMES.iter();
        let mut sum = Some(0_u64);
        while !rest.is_empty() {
            let (number, after) = split(rest, |c| c.is_ascii_digit());
            let (unit, after) = split(after, |c| c.is_ascii_alphabetic());
            let found = units.find(|(name, _)| *name == unit);
            let (false, Some((_, factor))) = (number.is_empty(), found) else {
                return Err(format!("expected {}", Self::WHAT));
            };
            let part = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*factor));
            sum = sum.zip(part).and_then(|(sum, part)| sum.checked_add(part));
            rest = after;
        }
        match sum.map(Duration::from_millis) {
            Some(Duration::ZERO) if text.is_empty() => Err(format!("expected {}", Self::WHAT)),
            Some(Duration::ZERO) => Err("expected a duration longer than nothing".to_owned()),
            Some(duration) if duration <= LONGEST => Ok(Self(duration)),
            _ => Err("expected at most `1193h`, which is 49 days".to_owned()),
        }
    }

    fn number(number: &Number) -> Result<Self, String> {
        Err(format!("a duration needs a unit: `{number}s`?"))
    }

    fn schema() -> Schema {
        json_schema!({ "title": "duration", "type": "string", "minLength": 2, "pattern": "^([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$" })
    }
}

impl fmt::Display for Time {
    /// Writes it without parts of a millisecond.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_millis();
        if rest == 0 {
            return f.write_str("0s");
        }
        for (unit, size) in TIMES.map(|(unit, size)| (unit, u128::from(size))) {
            if rest >= size {
                write!(f, "{}{unit}", rest / size)?;
                rest %= size;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The first that it does not fill, once rounded to a tenth.
        for (unit, size, full) in [("ms", 1_000, 1_000), ("s", 1_000_000, 60)] {
            let tenths = (self.0.as_micros() * 10 + size / 2) / size;
            if tenths < full * 10 {
                let (whole, tenth) = (tenths / 10, tenths % 10);
                return if tenth == 0 { write!(f, "{whole}{unit}") } else { write!(f, "{whole}.{tenth}{unit}") };
            }
        }
        let half = Duration::from_millis(500);
        Time(Duration::from_secs(self.0.saturating_add(half).as_secs())).fmt(f)
    }
}

fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

// === impl Bytes ===

const SIZES: [(&str, u64); 7] =
    [("", 1), ("k", 1000), ("M", 1_000_000), ("G", 1_000_000_000), ("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30)];

impl Form for Bytes {
    const WHAT: &'static str = "a size such as `64Mi`, `4Ki` or a number of bytes";

    fn text(text: &str) -> Result<Self, String> {
        let (number, unit) = split(text, |c| c.is_ascii_digit());
        let number: u64 = number.parse().map_err(|_| format!("expected {}", Self::WHAT))?;
        let Some((_, factor)) = SIZES.iter().find(|(name, _)| *name == unit) else {
            let unit = unit.to_uppercase();
            let near = ["Ki", "Mi", "Gi"].into_iter().find(|near| unit.starts_with(&near[..1].to_uppercase()));
            let hint = near.map(|near| format!("did you mean `{number}{near}`? ")).unwrap_or_default();
            return Err(format!("{hint}expected {}", Self::WHAT));
        };
        number.checked_mul(*factor).map(Self).ok_or_else(|| "expected a size that fits into 64 bits".to_owned())
    }

    fn number(number: &Number) -> Result<Self, String> {
        number.as_u64().map(Self).ok_or_else(|| format!("expected {}", Self::WHAT))
    }

    fn schema() -> Schema {
        json_schema!({ "title": "size", "anyOf": [
            { "type": "string", "pattern": "^[0-9]+(k|M|G|Ki|Mi|Gi)?$" },
            { "type": "integer", "minimum": 0 },
        ]})
    }
}

impl fmt::Display for Bytes {
    /// Writes it in full, with the largest unit of 1024 that allows that.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |size: u64| size.is_power_of_two() && size <= self.0 && self.0.is_multiple_of(size);
        let (unit, size) = SIZES.iter().rev().find(|(_, size)| fits(*size)).unwrap_or(&("", 1));
        write!(f, "{}{unit}", self.0 / size)
    }
}

// === impl numbers ===

macro_rules! numbers {
    ($what:literal, $json:literal, $read:ident: $($type:ident from $least:literal to $most:literal),* $(,)?) => {
        $(
            impl Form for $type {
                const WHAT: &'static str = concat!("a ", $what, " from ", $least, " to ", $most);

                fn number(number: &Number) -> Result<Self, String> {
                    let within = $read(number, $least, $most);
                    within.map(Self).ok_or_else(|| format!("expected {}", Self::WHAT))
                }

                fn schema() -> Schema {
                    let title = concat!($what, " from ", $least, " to ", $most);
                    json_schema!({ "title": title, "type": $json, "minimum": $least, "maximum": $most })
                }
            }
        )*
    };
}

// What is beyond is a slip of the pen, or meant to do harm: no machine has room for it.
numbers!(
    "whole number", "integer", whole:
    Workers from 1 to 1024,
    Counted from 1 to 10_000,
    Objects from 1 to 10_000,
    Priority from 1 to 100,
    Requests from 0 to 100_000,
    Times from 1 to 1_000_000,
    // Each is watched, and asked about each event.
    Registered from 1 to 64,
);

numbers!("number", "number", real: Factor from 1 to 100, Share from 0 to 1);

fn whole(number: &Number, least: u32, most: u32) -> Option<u32> {
    number.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|n| (least..=most).contains(n))
}

fn real(number: &Number, least: u32, most: u32) -> Option<f64> {
    number.as_f64().filter(|n| (f64::from(least)..=f64::from(most)).contains(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_from_large_to_small() {
        for (text, expected) in [
            ("500ms", Ok(500)),
            ("5s", Ok(5_000)),
            ("1m", Ok(60_000)),
            ("10h", Ok(36_000_000)),
            ("1h30m", Ok(5_400_000)),
            ("1h1m1s1ms", Ok(3_661_001)),
            ("4294967295ms", Ok(4_294_967_295)),
            ("4294967296ms", Err("expected at most `1193h`, which is 49 days")),
            ("99999999999999999999h", Err("expected at most `1193h`, which is 49 days")),
            ("30", Err("a duration needs a unit: `30s`?")),
            ("0s", Err("expected a duration longer than nothing")),
            ("", Err("expected a duration such as `500ms`, `5s` or `1h30m`")),
            ("h", Err("expected a duration such as `500ms`, `5s` or `1h30m`")),
            ("1s1h", Err("expected a duration such as `500ms`, `5s` or `1h30m`")),
            ("1s1s", Err("expected a duration such as `500ms`, `5s` or `1h30m`")),
            ("1.5h", Err("expected a duration such as `500ms`, `5s` or `1h30m`")),
            ("1 h", Err("expected a duration such as `500ms`, `5s` or `1h30m`")),
            ("2d", Err("expected a duration such as `500ms`, `5s` or `1h30m`")),
            ("-1s", Err("expected a duration such as `500ms`, `5s` or `1h30m`")),
        ] {
            let found = Time::text(text).map(|Time(duration)| duration);
            assert_eq!(found, expected.map(Duration::from_millis).map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn durations_are_rounded_for_people() {
        for (nanos, expected) in [
            (0, "0ms"),
            (18_249_999, "18.2ms"),
            (12_000_000, "12ms"),
            (999_940_000, "999.9ms"),
            (999_960_000, "1s"),
            (5_725_248_263, "5.7s"),
            (59_940_000_000, "59.9s"),
            (59_960_000_000, "1m"),
            (65_400_000_000, "1m5s"),
            (36_000_000_000_000, "10h"),
        ] {
            assert_eq!(Rounded(Duration::from_nanos(nanos)).to_string(), expected);
        }
        assert!(Rounded(Duration::MAX).to_string().ends_with('s'));
    }

    #[test]
    fn durations_and_sizes_are_shown_as_they_are_written() {
        for text in ["1h30m", "2s", "500ms", "10h", "1m1s1ms"] {
            assert_eq!(Time::text(text).unwrap().to_string(), text);
        }
        assert_eq!(Time(Duration::from_nanos(1)).to_string(), "0s");
        for text in ["0", "64Mi", "3Gi", "1536Ki", "1000"] {
            assert_eq!(Bytes::text(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn sizes_have_units_of_1000_and_1024() {
        for (text, expected) in [
            ("64Mi", Ok(67_108_864)),
            ("4Ki", Ok(4_096)),
            ("1Gi", Ok(1_073_741_824)),
            ("3k", Ok(3_000)),
            ("2M", Ok(2_000_000)),
            ("1G", Ok(1_000_000_000)),
            ("512", Ok(512)),
            ("17179869183Gi", Ok(18_446_744_072_635_809_792)),
            ("17179869184Gi", Err("expected a size that fits into 64 bits")),
            ("64mb", Err("did you mean `64Mi`? expected a size such as `64Mi`, `4Ki` or a number of bytes")),
            ("1T", Err("expected a size such as `64Mi`, `4Ki` or a number of bytes")),
            ("Mi", Err("expected a size such as `64Mi`, `4Ki` or a number of bytes")),
            ("", Err("expected a size such as `64Mi`, `4Ki` or a number of bytes")),
        ] {
            assert_eq!(Bytes::text(text).map(|Bytes(n)| n), expected.map_err(str::to_owned), "{text}");
        }
    }
}
