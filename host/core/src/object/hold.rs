//! Decides whether a primary is held for one daemon, so that all others leave it alone, and until when (PA-6).

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The annotation that pauses a primary (`PA-1`).
pub const PAUSED: &str = "capstan.dev/paused";

/// The annotation that says which daemon alone may do something for a primary, and until when (`PA-6`).
pub const HELD: &str = "capstan.dev/held";

/// So long before its end whoever has a hold acts on it no more: the clocks of others may be ahead, and requests take their time.
pub const MARGIN: Duration = Duration::from_secs(15);

/// Why a daemon leaves a primary alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apart {
    /// Another daemon holds it, or this one does not, which does nothing for others; and for how much longer, if a time ends that.
    Held(Option<Duration>),
    /// The annotation's value is none: whoever set it wants something to stop.
    Unclear,
}

/// Who holds a primary: the value of the annotation [`HELD`], as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The name of the daemon.
    pub holder: String,
    /// When it begins: until then, whoever had the primary before comes to its end.
    from: String,
    /// When others may have the primary again, unless this is renewed.
    until: String,
}

impl Hold {
    /// Returns a hold from one time to another.
    pub fn new(holder: &str, from: Timestamp, until: Timestamp) -> Self {
        Self { holder: holder.to_owned(), from: from.to_string(), until: until.to_string() }
    }

    /// Reads the annotation's value; `None` if it is none.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().filter(|hold: &Self| hold.times().is_some())
    }

    /// Returns the annotation's value.
    pub fn text(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// Returns when it begins and when it ends.
    pub fn times(&self) -> Option<(Timestamp, Timestamp)> {
        Some((self.from.parse().ok()?, self.until.parse().ok()?))
    }

    /// Returns true if it has not ended.
    pub fn lasts(&self, now: Timestamp) -> bool {
        self.times().is_some_and(|(_, until)| now < until)
    }
}

/// Returns why a daemon leaves a primary alone, `None` if it does not; from the annotation's value, the name under which the daemon holds
/// primaries (`None`: it does what nobody else holds), and the time.
pub fn apart(annotation: Option<&str>, own: Option<&str>, now: Timestamp) -> Option<Apart> {
    let left = |until: Timestamp| now.duration_until(until).try_into().ok().filter(|left: &Duration| !left.is_zero());
    let hold = match (annotation, own) {
        (None, None) => return None,
        (None, Some(_)) => return Some(Apart::Held(None)),
        (Some(text), _) => Hold::read(text),
    };
    let Some((hold, (from, until))) = hold.and_then(|hold| Some((hold.clone(), hold.times()?))) else {
        return Some(Apart::Unclear);
    };
    match own {
        // PA-6: one that is over is none.
        None => left(until).map(|left| Apart::Held(Some(left))),
        Some(own) if hold.holder != own => Some(Apart::Held(None)),
        Some(_) => match left(from) {
            Some(left) => Some(Apart::Held(Some(left))),
            None if left(until).is_some_and(|left| left > MARGIN) => None,
            None => Some(Apart::Held(None)),
        },
    }
}

/// Returns true if a hold is another one than before, or ends earlier: that it is renewed is no news.
pub fn passed_on(before: Option<&str>, after: Option<&str>) -> bool {
    if before == after {
        return false;
    }
    let read = |text: Option<&str>| text.and_then(Hold::read).and_then(|hold| Some((hold.times()?, hold.holder)));
    match (read(before), read(after)) {
        (Some(((from, until), holder)), Some(((now_from, now_until), now_holder))) => {
            (from, holder) != (now_from, now_holder) || now_until < until
        }
        (None, None) => before.is_none() || after.is_none(),
        (Some(_), None) | (None, Some(_)) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_primary_is_done_by_its_holder_alone_from_when_others_have_ended_until_a_margin_before_it_is_over() {
        // PA-6
        let at = |second: i64| Timestamp::from_second(1_800_000_000 + second).unwrap();
        let seconds = |n| Some(Apart::Held(Some(Duration::from_secs(n))));
        let ana = Hold::new("ana", at(5), at(60)).text();
        let (ana, idle) = (Some(&*ana), Some(Apart::Held(None)));
        for (annotation, own, now, expected) in [
            (None, None, 0, None),
            (ana, None, 0, seconds(60)),
            (ana, None, 59, seconds(1)),
            (ana, None, 60, None),
            (None, Some("ana"), 0, idle),
            (ana, Some("bo"), 10, idle),
            (ana, Some("bo"), 70, idle),
            (ana, Some("ana"), 0, seconds(5)),
            (ana, Some("ana"), 5, None),
            (ana, Some("ana"), 44, None),
            (ana, Some("ana"), 45, idle),
            (ana, Some("ana"), 61, idle),
            (Some("ana"), None, 0, Some(Apart::Unclear)),
            (Some(r#"{"holder":"ana","from":"","until":"soon"}"#), None, 0, Some(Apart::Unclear)),
        ] {
            assert_eq!(apart(annotation, own, at(now)), expected, "{annotation:?} {own:?} {now}");
        }
        // At no time two: whatever the daemon without a name does, the holder does not.
        for now in -10..80 {
            let (others, own) = (apart(ana, None, at(now)), apart(ana, Some("ana"), at(now)));
            assert!(others.is_some() || own.is_some(), "{now}");
        }
    }

    #[test]
    fn that_a_hold_is_renewed_is_no_news_and_that_it_begins_anew_or_ends_earlier_is() {
        // PA-6
        let at = |second| Timestamp::from_second(second).unwrap();
        let hold = |holder, from, until| Hold::new(holder, at(from), at(until)).text();
        let (ana, renewed, anew) = (hold("ana", 1, 60), hold("ana", 1, 75), hold("ana", 2, 75));
        let (given_up, bo) = (hold("ana", 1, 50), hold("bo", 1, 60));
        for (before, after, news) in [
            (None, None, false),
            (None, Some(&*ana), true),
            (Some(&*ana), Some(&*renewed), false),
            (Some(&*ana), Some(&*anew), true),
            (Some(&*ana), Some(&*given_up), true),
            (Some(&*ana), Some(&*bo), true),
            (Some(&*ana), None, true),
            (Some("x"), Some("y"), false),
            (Some("x"), Some(&*ana), true),
        ] {
            assert_eq!(passed_on(before, after), news, "{before:?} {after:?}");
        }
    }
}
