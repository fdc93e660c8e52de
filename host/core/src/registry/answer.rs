//! Decides what it means that a registry gives no component: whether it is the component that is wrong, or asking again may help, and when.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;

use super::Credentials;
use crate::text::said;

/// The longest that a registry may ask to be left alone.
const LONGEST: Duration = Duration::from_hours(1);

/// Why there is no component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Of which kind that is.
    pub kind: Kind,
    /// What has happened, for people, without the reference.
    pub message: String,
    /// How long the registry asks to be left alone.
    pub after: Option<Duration>,
}

/// What follows from a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What the reference names is no component that can be used, and never becomes one.
    Wrong,
    /// Who asks may not have it.
    Denied,
    /// It is not there.
    Missing,
    /// The registry does not answer as it should, for now.
    Away,
    /// It is there, but not signed as it has to be.
    Unsigned,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The manifest.
    Manifest,
    /// The component, or its config.
    Blob,
    /// A token.
    Token,
    /// The right to write.
    Upload,
    /// A list of what refers to a manifest.
    Referrers,
    /// A signature.
    Signature,
}

#[derive(Deserialize)]
struct Errors {
    errors: Vec<Reason>,
}

#[derive(Deserialize)]
struct Reason {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

// === impl Failure ===

impl Failure {
    /// Returns a failure of a kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), after: None }
    }

    /// Returns the failure of who finds what can never be used.
    pub fn wrong(message: impl Into<String>) -> Self {
        Self::new(Kind::Wrong, message)
    }

    /// Returns what an answer with this status means, where `reason` is the beginning of its body, and `after` its header `Retry-After`.
    pub fn of(status: u16, (part, who): (Part, &Credentials), reason: &[u8], after: Option<&str>) -> Self {
        let (what, said) = (part.words(), reasons(reason));
        let signed_in = *who != Credentials::Anonymous;
        let (kind, message) = match status {
            401 if signed_in => {
                (Kind::Denied, format!("it does not take the user's name and password ({status}){said}"))
            }
            401 => (
                Kind::Denied,
                format!("it wants to know who asks ({status}), and there are no credentials for it{said}"),
            ),
            403 => (Kind::Denied, format!("who asks may not have {what} ({status}){said}")),
            404 => (Kind::Missing, format!("it does not have {what} ({status}){said}")),
            // What registries answer that know nothing of referrers.
            400 | 405 | 406 | 501 if part == Part::Referrers => {
                (Kind::Missing, format!("it knows nothing of referrers ({status}){said}"))
            }
            429 => (Kind::Away, format!("it is asked too often ({status}){said}")),
            500.. => (Kind::Away, format!("it fails ({status}){said}")),
            _ => (Kind::Away, format!("it answers {status} when asked for {what}{said}")),
        };
        let after = after.and_then(|after| after.trim().parse().ok()).map(Duration::from_secs);
        Self { kind, message, after: after.map(|after| after.min(LONGEST)) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Part {
    fn words(self) -> &'static str {
        match self {
            Self::Manifest => "the manifest",
            Self::Blob => "the component",
            Self::Token => "a token",
            Self::Upload => "what is written",
            Self::Referrers => "a list of signatures",
            Self::Signature => "the signature",
        }
    }
}

/// Returns what a registry says of itself, as the end of a sentence.
fn reasons(body: &[u8]) -> String {
    let Ok(Errors { errors }) = serde_json::from_slice(body) else {
        return String::new();
    };
    let first = errors.iter().find(|reason| !reason.code.is_empty() || !reason.message.is_empty());
    let Some(Reason { code, message }) = first else {
        return String::new();
    };
    let text =
        [code.as_str(), message.as_str()].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ");
    format!("; it says {}", said(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_is_one_clear_sentence_and_says_when_to_ask_again() {
        // OC-5
        let user = Credentials::User { name: "a".to_owned(), password: "b".to_owned() };
        let body = br#"{"errors":[{"code":"DENIED","message":"no\nway","detail":{"x":1}}]}"#;
        let (manifest, blob) = (Part::Manifest, Part::Blob);
        for (status, part, who, reason, after, kind, expected, seconds) in [
            (
                401,
                manifest,
                &Credentials::Anonymous,
                &b""[..],
                None,
                Kind::Denied,
                "it wants to know who asks (401), and there are no credentials for it",
                None,
            ),
            (
                401,
                manifest,
                &user,
                &body[..],
                None,
                Kind::Denied,
                r"it does not take the user's name and password (401); it says DENIED: no\nway",
                None,
            ),
            (403, blob, &user, b"<html>", None, Kind::Denied, "who asks may not have the component (403)", None),
            (
                404,
                manifest,
                &user,
                b"{\"errors\":[{}]}",
                None,
                Kind::Missing,
                "it does not have the manifest (404)",
                None,
            ),
            (429, manifest, &user, b"", Some("120"), Kind::Away, "it is asked too often (429)", Some(120)),
            (429, manifest, &user, b"", Some("99999"), Kind::Away, "it is asked too often (429)", Some(3600)),
            (503, Part::Token, &user, b"", Some("Wed, 21 Oct"), Kind::Away, "it fails (503)", None),
            (405, Part::Referrers, &user, b"", None, Kind::Missing, "it knows nothing of referrers (405)", None),
            (418, Part::Token, &user, b"", None, Kind::Away, "it answers 418 when asked for a token", None),
        ] {
            let found = Failure::of(status, (part, who), reason, after);
            let expected = Failure { kind, message: expected.to_owned(), after: seconds.map(Duration::from_secs) };
            assert_eq!(found, expected);
        }
    }
}
