//! What an answer of the API server means: objects, kinds, or an error.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use capstan_core::cluster::{Error, Reason, Says, Verb, Write, kept_back, quotes_nothing};
use capstan_core::health::{DAEMON, Sender};
use capstan_core::object::{Gvk, Managers, Object, ObjectRef, Scope};
use capstan_core::text::{LONGEST, said_to_its_end, said_within};
use http::StatusCode;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::transit::Unread;
use super::tries::Repeats;
use super::{ANSWER, Broken, Identity, Kind, REFUSAL};

/// How the API server begins to say, with HTTP 500, that an apply has a field that its kind does not have, or one of another type.
const UNTYPED: &str = "failed to create typed patch object";

/// How it says so of the object that is there, which nothing can be applied to then, as its kind had other types when it was written; and of a
/// value that is none of its type, such as a quantity.
const MISFIT: [&str; 3] =
    ["failed to create typed live object", " to smd typed: ", "unable to convert unstructured object to "];

/// How the API server says, with HTTP 400, that what was sent has fields that it does not know, or that are there twice.
const STRICT: &str = "strict decoding error";

/// How the API server says, with HTTP 403, that nobody gives rights that they don't have.
const GRANTING: &str = "attempting to grant RBAC permissions";

/// The most fields that are named of one refusal.
const NAMED: usize = 16;

/// What is said of an answer that is made for a browser.
const PAGE: &str = "the answer is a web page: this is no API server, or something stands before it";

/// What a request is about, for messages: `apply v1 ConfigMap default/a`; and who sends it.
pub(super) struct About<'a> {
    pub(super) who: &'a Identity,
    pub(super) verb: &'a str,
    pub(super) gvk: &'a Gvk,
    pub(super) key: Option<&'a ObjectRef>,
    /// Whether what the API server says may quote a Secret (`SSA-7`, `DT-4`).
    pub(super) quotes_secret: bool,
    /// Whether it is about objects of the kind, so that an answer as if that were not served puts the kind in doubt.
    pub(super) is_of_objects: bool,
    /// Whether it may be sent again.
    pub(super) repeats: Repeats<'a>,
    /// Whom it is sent for, who may share `who` with others; `None`: the daemon.
    account: Option<&'a Arc<str>>,
}

/// A list, of which the first object counts: the others take no memory.
#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow, rename = "items", deserialize_with = "first")]
    first: Option<&'a RawValue>,
}

/// Reads the first of several things.
fn first<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    struct First<'a>(PhantomData<&'a ()>);
    impl<'de: 'a, 'a> Visitor<'de> for First<'a> {
        type Value = Option<&'a RawValue>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of objects")
        }

        fn visit_seq<S: SeqAccess<'de>>(self, mut items: S) -> Result<Self::Value, S::Error> {
            let first = items.next_element()?;
            while items.next_element::<IgnoredAny>()?.is_some() {}
            Ok(first)
        }
    }
    deserializer.deserialize_seq(First(PhantomData))
}

/// The kinds of a group and version, as far as they count. All has to be there: an answer made of nothing would take many times its
/// length in memory.
#[derive(Deserialize)]
struct Served {
    resources: Vec<Resource>,
}

/// A kind, or a part of one.
#[derive(Deserialize)]
struct Resource {
    name: String,
    kind: String,
    namespaced: bool,
}

impl Display for About<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, gvk, key, .. } = self;
        write!(f, "{verb} {gvk}")?;
        key.map_or(Ok(()), |key| write!(f, " {key}"))
    }
}

impl<'a> About<'a> {
    pub(super) fn new(who: &'a Identity, verb: &'a str, gvk: &'a Gvk, key: Option<&'a ObjectRef>) -> Self {
        Self {
            who,
            verb,
            gvk,
            key,
            quotes_secret: gvk.is_secret(),
            is_of_objects: true,
            repeats: Repeats::Never,
            account: None,
        }
    }

    /// Returns the same of what is about a kind, and none of its objects.
    pub(super) fn of_kind(self) -> Self {
        Self { is_of_objects: false, ..self }
    }

    /// Returns the same of what only reads.
    pub(super) fn reading(self) -> Self {
        Self { repeats: Repeats::Reads, ..self }
    }

    /// Returns the same as of this account.
    pub(super) fn of(self, account: &'a Arc<str>) -> Self {
        Self { account: Some(account), ..self }
    }

    /// Returns whose request it is, as far as that says something of the API server.
    pub(super) fn sender(&self) -> Sender {
        let account = self.account.map_or_else(|| DAEMON.into(), Arc::clone);
        Sender { account, group: Arc::clone(&self.gvk.group) }
    }

    pub(super) fn write(who: &'a Identity, Write { target, verb, shows_secret, .. }: &'a Write) -> Self {
        let about = Self::new(who, verb.name(), &target.gvk, Some(&target.key));
        let quotes_secret = about.quotes_secret || *shows_secret;
        Self { quotes_secret, repeats: Repeats::Writes(verb), ..about }
    }

    fn error(&self, reason: Reason, code: u16, text: &dyn Display) -> Error {
        Error::new(reason, code, format!("{self}: {text}"))
    }

    pub(super) fn unreachable(&self, text: &dyn Display) -> Error {
        self.error(Reason::Unreachable, 0, &format_args!("the API server can't be reached: {text}"))
    }

    pub(super) fn late(&self, after: Duration) -> Error {
        self.unreachable(&format_args!("no answer within {} s", after.as_secs()))
    }

    pub(super) fn invalid(&self, text: &dyn Display) -> Error {
        self.error(Reason::Invalid, 0, text)
    }

    pub(super) fn broken(&self, text: &dyn Display) -> Error {
        self.error(Reason::Unusable, 0, &format_args!("the API server's answer can't be read: {text}"))
    }

    /// Says why a successful answer can't be read.
    pub(super) fn unread(&self, unread: &Unread) -> Error {
        match unread {
            Unread::Broken(Broken::Long) => self.broken(&format_args!("it is longer than {ANSWER} bytes")),
            Unread::Broken(Broken::Off(why)) => self.unreachable(why),
            // As if it had been lost: whoever asks is not to blame, and what was written is written.
            Unread::NoRoom(why) => self.error(Reason::Unreachable, 0, why),
        }
    }

    /// Turns an answer that is no success into an error.
    pub(super) fn refused(&self, status: StatusCode, body: Result<Bytes, Broken>) -> Error {
        let code = status.as_u16();
        let body = match body {
            Ok(body) => body,
            Err(Broken::Long) => format!("an explanation of more than {REFUSAL} bytes").into(),
            // Only the explanation says whether an object is missing or its kind, and whether a test failed or all is wrong.
            Err(Broken::Off(error)) => {
                return self.unreachable(&format_args!("its answer (HTTP {code}) broke off: {error}"));
            }
        };
        let Status { message, reason, details, .. } = serde_json::from_slice(&body).unwrap_or_default();
        let text = message.unwrap_or_else(|| match String::from_utf8_lossy(&body).trim() {
            page if page.starts_with('<') => PAGE.to_owned(),
            text => text.to_owned(),
        });
        let causes = details.and_then(|details| details.causes).unwrap_or_default();
        let mut fields: Vec<_> = causes.into_iter().filter_map(|cause| cause.field).collect();
        if fields.is_empty() {
            fields = unknown_fields(&text);
        }
        let absent = text.contains("could not find the requested resource") || text == "404 page not found";
        let reason = match code {
            404 if absent => Reason::UnknownKind,
            404 if reason.as_deref() == Some("NotFound") => Reason::Missing,
            // Whoever says so does not know the object.
            404 => Reason::Unreachable,
            409 => Reason::Conflict,
            401 | 403 => Reason::Forbidden,
            429 => Reason::Busy,
            400..=499 => Reason::Rejected,
            // What was sent, or is there, does not fit its schema.
            500 if text.contains(UNTYPED) || MISFIT.iter().any(|said| text.contains(said)) => Reason::Rejected,
            _ => Reason::Unreachable,
        };
        let user = self.who.user();
        let cure = match (code, self.who) {
            (400, _) if text.contains(STRICT) => {
                "; correct the field, or let it be dropped with `fieldValidation: warn`".to_owned()
            }
            (403, _) if text.contains(GRANTING) => {
                "; who writes it has to hold the rights that it gives, or `bind` on the role that it binds: `capstan rbac` says how to give that".to_owned()
            }
            (403, Identity::Operator(_)) if text.contains("cannot impersonate") => {
                format!("; the daemon's own service account lacks the right to impersonate {user}")
            }
            (403, Identity::Operator(_)) => format!("; the operator acts as {user}, which lacks that right"),
            _ => String::new(),
        };
        let fields = said_within(&fields.join(", "), LONGEST / 4).into_owned();
        // What was asked, the status and the cure have room beside it.
        let said = if self.quotes_secret && !quotes_nothing(code, &text) {
            kept_back(code, &fields)
        } else {
            format!("{} (HTTP {code})", said_to_its_end(&text, LONGEST / 2))
        };
        let mut refusal = self.error(reason, code, &format_args!("{said}{cure}"));
        refusal.fields = fields;
        refusal.says = Says::of(&text);
        refusal
    }

    /// Returns what a write has come to: the object as it is then, or `None` after a deletion.
    pub(super) fn written(
        &self,
        verb: &Verb,
        answer: Result<Bytes, Error>,
        managers: &Managers,
    ) -> Result<Option<Object>, Error> {
        let deletes = matches!(verb, Verb::Delete(_));
        match answer {
            // The object while finalizers hold it back; it may be a bare status, too.
            Ok(bytes) if deletes => {
                let left = self.object(&bytes, managers).ok();
                Ok(left.filter(|object| object.header().deleting && Some(object.key()) == self.key))
            }
            // What is answered is handed on: it must be what was asked for.
            Ok(bytes) => match self.object(&bytes, managers)? {
                object if Some(object.key()) == self.key => Ok(Some(object)),
                object => Err(self.broken(&format_args!("it is about {}", object.key()))),
            },
            // KD-9; but what is of a kind that is not served may still be there, under another version of it.
            Err(error) if deletes && error.reason == Reason::Missing => Ok(None),
            // FI-4. What is invalid is refused with 422, too, and names a field.
            Err(mut error) if error.code == 422 && verb.tests() && error.fields.is_empty() => {
                error.reason = Reason::Conflict;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn object(&self, bytes: &[u8], managers: &Managers) -> Result<Object, Error> {
        let text = std::str::from_utf8(bytes).map_err(|e| self.broken(&e))?;
        Object::parse(text, self.gvk, managers).map_err(|e| self.broken(&e))
    }

    /// Returns the first object of a list, with the shares of all field managers.
    pub(super) fn first(&self, bytes: &[u8]) -> Result<Option<Object>, Error> {
        let List { first } = serde_json::from_slice(bytes).map_err(|e| self.broken(&e))?;
        let object = first.map(|item| Object::parse(item.get(), self.gvk, &Managers::all()));
        object.transpose().map_err(|e| self.broken(&e))
    }

    /// Returns the kinds of a group and version.
    pub(super) fn kinds(&self, answer: Result<Bytes, Error>) -> Result<Vec<Kind>, Error> {
        let bytes = answer.map_err(|error| if is_absent(&error) { self.unknown() } else { error })?;
        let list: Served = serde_json::from_slice(&bytes).map_err(|e| self.broken(&e))?;
        let kinds = list.resources.into_iter().filter(|resource| !resource.name.contains('/')).map(|resource| Kind {
            gvk: Gvk { kind: resource.kind.into(), ..self.gvk.clone() },
            plural: resource.name.into(),
            scope: if resource.namespaced { Scope::Namespaced } else { Scope::Cluster },
        });
        Ok(kinds.collect())
    }

    /// Says that the API server does not serve the kind.
    pub(super) fn unknown(&self) -> Error {
        let message = format!(
            "the API server does not serve {}: install its CustomResourceDefinition, or correct the manifest",
            self.gvk
        );
        Error::new(Reason::UnknownKind, 404, message)
    }

    /// Says whether a review permits what it asks about.
    pub(super) fn permits(&self, bytes: &[u8]) -> Result<bool, Error> {
        let review: SelfSubjectAccessReview = serde_json::from_slice(bytes).map_err(|e| self.broken(&e))?;
        let status = review.status.unwrap_or_default();
        Ok(status.allowed && status.denied != Some(true))
    }
}

/// Returns the fields that a refusal calls unknown or doubled, where it names them in its text alone (`FV-1`).
fn unknown_fields(text: &str) -> Vec<String> {
    // What else stands there may be a value.
    let is_path = |path: &&str| path.chars().all(|c| c.is_ascii_alphanumeric() || ".-_/[]".contains(c));
    let named: Vec<&str> = if let Some((_, untyped)) = text.split_once(UNTYPED) {
        // `failed to create typed patch object (…): .spec.a: field not declared in schema`
        let words = untyped.split(": ").zip(untyped.split(": ").skip(1));
        let unknown = words.filter(|(_, what)| what.starts_with("field not declared in schema"));
        unknown.filter_map(|(path, _)| path.rsplit(char::is_whitespace).next()?.strip_prefix('.')).collect()
    } else if let Some((_, listed)) = text.split_once(STRICT) {
        // `strict decoding error: unknown field "spec.a", duplicate field "b"`
        let quoted = ["unknown field \"", "duplicate field \""].map(|what| listed.split(what).skip(1));
        quoted.into_iter().flatten().filter_map(|rest| Some(rest.split_once('"')?.0)).collect()
    } else {
        Vec::new()
    };
    named.into_iter().filter(is_path).take(NAMED).map(str::to_owned).collect()
}

/// Whether neither the object nor, perhaps, its kind exists.
fn is_absent(error: &Error) -> bool {
    matches!(error.reason, Reason::Missing | Reason::UnknownKind)
}

#[cfg(test)]
mod tests {
    use capstan_core::budget::Budget;
    use capstan_core::patch::Patch;
    use http::HeaderValue;

    use super::*;
    use crate::client::tests::config_maps;

    const MISSING: &str =
        r#"{"kind":"Status","reason":"NotFound","message":"configmaps \"a\" not found","details":{}}"#;
    const GENERIC: &str =
        r#"{"message":"the server rejected our request due to an error in our request","details":{}}"#;
    const INVALID: &str = r#"{"message":"metadata.labels: Invalid value: \"a b\"","details":{"causes":[{"field":"metadata.labels"},{"reason":"FieldValueInvalid"},{"field":"data"}]}}"#;

    fn about<T>(who: &Identity, verb: &str, then: impl FnOnce(&About<'_>) -> T) -> T {
        let (gvk, key) = (config_maps().gvk, ObjectRef::namespaced("n", "a"));
        then(&About::new(who, verb, &gvk, Some(&key)))
    }

    fn refused(who: &Identity, code: u16, body: Result<Bytes, Broken>) -> Error {
        let status = StatusCode::from_u16(code).unwrap();
        about(who, "get", |about| about.refused(status, body))
    }

    #[test]
    fn of_a_secret_nothing_is_said_that_may_quote_it() {
        // SSA-7
        let key = ObjectRef::namespaced("n", "a");
        let kept = "what it says may quote a Secret, and is kept back";
        let rights = r#"{"message":"secrets \"a\" is forbidden: User \"u\" cannot patch resource \"secrets\" in API group \"\""}"#;
        for (code, body, expected) in [
            (422, INVALID, format!("the API server refuses it for metadata.labels, data (HTTP 422); {kept}")),
            (
                422,
                r#"{"message":"s3cr3t","details":{"causes":[{"field":"data[s3cr3t]"},{"field":"a[b[0]].c"},{"field":"d[s3"}]}}"#,
                format!("the API server refuses it for data, a.c, d (HTTP 422); {kept}"),
            ),
            (400, r#"{"message":"s3cr3t"}"#, format!("the API server refuses it (HTTP 400); {kept}")),
            (
                500,
                r#"{"message":"expected string, got s3cr3t"}"#,
                format!("the API server refuses it (HTTP 500); {kept}"),
            ),
            (
                403,
                r#"{"message":"admission webhook: s3cr3t"}"#,
                format!("the API server refuses it (HTTP 403); {kept}"),
            ),
            (
                403,
                rights,
                "secrets \"a\" is forbidden: User \"u\" cannot patch resource \"secrets\" in API group \"\" (HTTP 403)"
                    .to_owned(),
            ),
            (404, MISSING, "configmaps \"a\" not found (HTTP 404)".to_owned()),
            (
                409,
                r#"{"message":"conflict with \"b\": .data.c"}"#,
                "conflict with \"b\": .data.c (HTTP 409)".to_owned(),
            ),
        ] {
            let gvk = Gvk::parse("v1", "Secret").unwrap();
            let about = About::new(&Identity::Daemon, "apply", &gvk, Some(&key));
            let refused = about.refused(StatusCode::from_u16(code).unwrap(), Ok(body.into()));
            assert_eq!(refused.message, format!("apply v1 Secret n/a: {expected}"));
        }
    }

    #[test]
    fn a_refusal_names_the_fields_that_a_kind_does_not_have() {
        // FV-1
        let strict = r#"{"message":"ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"dataa\", duplicate field \"spec.a[0].b\"","reason":"BadRequest"}"#;
        let untyped = r#"{"message":"failed to create typed patch object (n/a; /v1, Kind=ConfigMap): .dataa: field not declared in schema"}"#;
        let two = r#"{"message":"failed to create typed patch object (n/a; /v1, Kind=ConfigMap): errors:\n  .a.b: field not declared in schema\n  .c: field not declared in schema"}"#;
        let value = r#"{"message":"strict decoding error: unknown field \"no path\""}"#;
        for (code, body, fields, cure) in [
            (400, strict, "dataa, spec.a[0].b", true),
            (500, untyped, "dataa", false),
            (500, two, "a.b, c", false),
            (400, value, "", true),
            (400, GENERIC, "", false),
        ] {
            let refused = refused(&Identity::Daemon, code, Ok(body.into()));
            assert_eq!((refused.reason, &*refused.fields), (Reason::Rejected, fields), "{body}");
            assert_eq!(refused.message.ends_with("`fieldValidation: warn`"), cure, "{}", refused.message);
        }
    }

    #[test]
    fn a_status_and_its_explanation_say_what_failed() {
        let off = || Err(Broken::Off("cut".to_owned()));
        let says = |text: &str| Ok(text.to_owned().into());
        for (code, body, reason, expected) in [
            (404, says(MISSING), Reason::Missing, "configmaps \"a\" not found (HTTP 404)"),
            (404, says("404 page not found\n"), Reason::UnknownKind, "404 page not found (HTTP 404)"),
            (
                404,
                says("<html>no backend</html>"),
                Reason::Unreachable,
                "the answer is a web page: this is no API server, or something stands before it (HTTP 404)",
            ),
            (404, says(""), Reason::Unreachable, " (HTTP 404)"),
            (404, off(), Reason::Unreachable, "the API server can't be reached: its answer (HTTP 404) broke off: cut"),
            (401, says("who?"), Reason::Forbidden, "who? (HTTP 401)"),
            (403, says("no"), Reason::Forbidden, "no (HTTP 403)"),
            (409, says(r#"{"message":"in between"}"#), Reason::Conflict, "in between (HTTP 409)"),
            (418, says("tea"), Reason::Rejected, "tea (HTTP 418)"),
            (
                422,
                says(GENERIC),
                Reason::Rejected,
                "the server rejected our request due to an error in our request (HTTP 422)",
            ),
            (429, says("later"), Reason::Busy, "later (HTTP 429)"),
            (
                500,
                says(r#"{"message":null,"details":{"causes":null}}"#),
                Reason::Unreachable,
                r#"{"message":null,"details":{"causes":null}} (HTTP 500)"#,
            ),
            (500, Err(Broken::Long), Reason::Unreachable, "an explanation of more than 65536 bytes (HTTP 500)"),
        ] {
            let error = refused(&Identity::Daemon, code, body);
            assert_eq!((error.reason, &*error.message), (reason, &*format!("get v1 ConfigMap n/a: {expected}")));
        }
        let long = refused(&Identity::Daemon, 500, says(&"x".repeat(LONGEST * 10)));
        // Its end says what is wrong.
        let is_whole = long.message.contains(" bytes left out) …x") && long.message.ends_with("x (HTTP 500)");
        assert!(is_whole, "{long}");
        assert!(long.message.len() <= LONGEST, "{}", long.message.len());
        assert_eq!(refused(&Identity::Daemon, 422, says(INVALID)).fields, "metadata.labels, data");
    }

    #[test]
    fn what_does_not_fit_its_kind_is_refused_although_the_api_server_says_that_it_has_failed() {
        // EP-34
        let page = "(n/a; x/v1, Kind=Page)";
        for (text, reason) in [
            (
                format!("failed to create typed patch object {page}: .spec.a: field not declared in schema"),
                Reason::Rejected,
            ),
            (
                format!(
                    "failed to create manager for existing fields: failed to convert new object {page} to smd typed: .status.a: expected string, got 3"
                ),
                Reason::Rejected,
            ),
            (format!("failed to create typed live object {page}: .status.a: expected string, got 3"), Reason::Rejected),
            (
                format!(
                    "failed to convert new object {page} to proper version: unable to convert unstructured object to x/v1, Kind=Page: quantities must match the regular expression"
                ),
                Reason::Rejected,
            ),
            (
                format!(
                    "failed to convert new object {page} to proper version: conversion webhook for x/v1, Kind=Page failed: connection refused"
                ),
                Reason::Unreachable,
            ),
        ] {
            let error = refused(&Identity::Daemon, 500, Ok(text.clone().into()));
            assert_eq!((error.reason, &*error.message), (reason, &*format!("get v1 ConfigMap n/a: {text} (HTTP 500)")));
        }
    }

    #[test]
    fn a_missing_right_is_reported_with_who_has_to_get_it() {
        let operator = Identity::Operator(HeaderValue::from_static("web"));
        for (who, text, expected) in [
            (&Identity::Daemon, "no", "no (HTTP 403)"),
            (&operator, "no", "no (HTTP 403); the operator acts as web, which lacks that right"),
            (
                &operator,
                "cannot impersonate it",
                "cannot impersonate it (HTTP 403); the daemon's own service account lacks the right to impersonate web",
            ),
        ] {
            let error = refused(who, 403, Ok(text.into()));
            assert_eq!(error.message, format!("get v1 ConfigMap n/a: {expected}"));
        }
    }

    fn verb(text: &str) -> Verb {
        let (sort, text) = text.split_once(' ').unwrap();
        let (body, manager) = (text.to_owned(), "web".into());
        match sort {
            "apply" => Verb::Apply { body, manager, force: false },
            "update" => Verb::Replace { body, manager },
            "merge" => Verb::MergePatch { body, manager },
            "patch" => Verb::JsonPatch { patch: Patch::read(text, &mut Budget::of_run()).unwrap(), manager },
            _ => Verb::Delete(capstan_core::cluster::Deletion::default()),
        }
    }

    #[test]
    fn only_a_json_patch_that_tests_something_conflicts_by_422_and_only_a_deletion_needs_no_object() {
        // FI-4, KD-9
        let test = r#"patch [{"op":"test","path":"/metadata/uid","value":"u"}]"#;
        for (asked, code, answer, expected) in [
            (r#"apply {"metadata":{"resourceVersion":"1"}}"#, 422, INVALID, Some(Reason::Rejected)),
            (r#"update {"metadata":{"resourceVersion":"7"}}"#, 422, INVALID, Some(Reason::Rejected)),
            (r#"merge {"metadata":{"resourceVersion":"7"}}"#, 422, GENERIC, Some(Reason::Rejected)),
            (test, 422, GENERIC, Some(Reason::Conflict)),
            (test, 422, INVALID, Some(Reason::Rejected)),
            (r#"patch [{"op":"add","path":"/spec","value":{"op":"test"}}]"#, 422, GENERIC, Some(Reason::Rejected)),
            (test, 404, MISSING, Some(Reason::Missing)),
            ("delete it", 404, MISSING, None),
            ("delete it", 404, "404 page not found", Some(Reason::UnknownKind)),
            ("delete it", 404, "no backend", Some(Reason::Unreachable)),
            ("delete it", 422, GENERIC, Some(Reason::Rejected)),
        ] {
            let answered = Err(refused(&Identity::Daemon, code, Ok(answer.into())));
            let written =
                about(&Identity::Daemon, "write", |about| about.written(&verb(asked), answered, &Managers::default()));
            assert_eq!(written.map_err(|error| error.reason).err(), expected, "{asked}: {answer}");
        }
    }

    #[test]
    fn what_a_write_has_made_is_returned_and_of_a_deletion_what_finalizers_hold_back() {
        let object = |name: &str, more: &str| {
            format!(
                r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"namespace":"n","name":"{name}","uid":"u","resourceVersion":"1"{more}}}}}"#
            )
        };
        let (here, leaving) = (object("a", ""), object("a", r#","deletionTimestamp":"2026-01-01T00:00:00Z""#));
        let other = "write v1 ConfigMap n/a: the API server's answer can't be read: it is about n/b";
        for (asked, answer, expected) in [
            ("update {}", &*here, Ok(true)),
            ("update {}", &*object("b", ""), Err(other)),
            ("delete it", &*leaving, Ok(true)),
            ("delete it", &*here, Ok(false)),
            ("delete it", r#"{"kind":"Status","status":"Success"}"#, Ok(false)),
        ] {
            let answered = Ok(answer.to_owned().into());
            let written =
                about(&Identity::Daemon, "write", |about| about.written(&verb(asked), answered, &Managers::default()));
            let written = written.map(|object| object.is_some()).map_err(|error| error.message);
            assert_eq!(written, expected.map_err(str::to_owned), "{asked}: {answer}");
        }
    }

    #[test]
    fn discovery_says_the_kinds_of_a_group_without_their_subresources() {
        let list = r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[
            {"name":"configmaps","singularName":"","namespaced":true,"kind":"ConfigMap","verbs":["get"]},
            {"name":"namespaces","kind":"Namespace","namespaced":false},
            {"name":"namespaces/status","kind":"Namespace","namespaced":false}]}"#;
        let kinds = about(&Identity::Daemon, "discover", |about| about.kinds(Ok(list.into()))).unwrap();
        let found: Vec<_> = kinds.iter().map(|kind| (&*kind.gvk.kind, &*kind.plural, kind.scope)).collect();
        let expected = [("ConfigMap", "configmaps", Scope::Namespaced), ("Namespace", "namespaces", Scope::Cluster)];
        assert_eq!(found, expected);
        let missing = Err(refused(&Identity::Daemon, 404, Ok("404 page not found".into())));
        let unknown = about(&Identity::Daemon, "discover", |about| about.kinds(missing)).unwrap_err();
        assert_eq!(unknown.reason, Reason::UnknownKind);
        assert!(unknown.message.starts_with("the API server does not serve v1 ConfigMap: install"), "{unknown}");
    }
}
