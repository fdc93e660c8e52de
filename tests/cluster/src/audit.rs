//! Decides which requests the API server has seen, from its audit log.
//!
//! The log is exact: the API server writes a request's line, unbuffered, before it ends the answer. So once a request
//! of our own is in the log, all requests are in it whose answers had been read to the end before.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::Api;
use crate::identity::chance;
use crate::wait;

/// The user whose requests mark how far the log has come. No query counts them.
pub(crate) const MARKER: &str = "capstan:audit-marker";
/// How long the log may take to show a request that has been answered.
const LIMIT: Duration = Duration::from_secs(10);
const WRITES: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

/// The users whose requests the API server logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AuditScope {
    /// All users.
    #[default]
    All,
    /// Only these users, which keeps the log of a benchmark small.
    Users(BTreeSet<String>),
    /// No user; there is no log.
    Off,
}

/// The audit log of one API server.
#[derive(Clone, Debug)]
pub struct Audit {
    log: PathBuf,
    marker: Api,
}

/// A place in the log: after all that was answered before it was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

/// Selects requests. The default is all since the start of the API server.
#[derive(Clone, Debug, Default)]
pub struct Query {
    since: Mark,
    user_agent_prefix: Option<String>,
    user: Option<String>,
    namespace: Option<String>,
    resource: Option<String>,
    verbs: BTreeSet<String>,
}

/// One request, as the API server saw it. A watch is one request, from when it was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Such as `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`.
    pub verb: String,
    /// The API group; empty for the core group and for a path that is no resource.
    pub group: String,
    /// The plural name of the kind; empty for a path that is no resource.
    pub resource: String,
    /// Such as `status`; empty if none.
    pub subresource: String,
    /// Empty if none.
    pub namespace: String,
    /// Empty for a list, a watch and most creates.
    pub name: String,
    /// Path and query.
    pub uri: String,
    /// The user who sent it.
    pub user: String,
    /// The user who is impersonated; empty if none.
    pub impersonated: String,
    /// The user agent.
    pub user_agent: String,
    /// The HTTP code of the answer.
    pub code: u16,
    /// The time at which it arrived, in RFC 3339 with microseconds, UTC; as text it sorts by time.
    pub time: String,
}

/// The fields of a line of the log that we read.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Line {
    stage: String,
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    user: LineUser,
    impersonated_user: LineUser,
    user_agent: String,
    object_ref: LineObject,
    response_status: LineStatus,
    request_received_timestamp: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LineUser {
    username: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LineObject {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LineStatus {
    code: u16,
}

// === impl AuditScope ===

impl AuditScope {
    /// Returns the API server's audit policy; `None` for no log.
    ///
    /// Each request has one line that counts: a watch has it when it is answered, since it may last as long as the
    /// API server; all others have it when they are done, except a request with a refused token, which is never
    /// logged as done.
    pub(crate) fn policy(&self) -> Option<Value> {
        let users = match self {
            Self::Off => return None,
            Self::All => None,
            Self::Users(users) => Some(users.iter().map(String::as_str).chain([MARKER]).collect::<Vec<_>>()),
        };
        let mut watch =
            json!({ "level": "Metadata", "verbs": ["watch"], "omitStages": ["RequestReceived", "ResponseComplete"] });
        let mut rest = json!({ "level": "Metadata", "omitStages": ["RequestReceived"] });
        let mut rules = Vec::new();
        for rule in [&mut watch, &mut rest] {
            if let (Some(users), Some(rule)) = (&users, rule.as_object_mut()) {
                rule.insert("users".to_owned(), json!(users));
            }
            rules.push(rule.clone());
        }
        if users.is_some() {
            rules.push(json!({ "level": "None" }));
        }
        Some(json!({ "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules }))
    }
}

// === impl Audit ===

impl Audit {
    pub(crate) fn new(log: PathBuf, marker: Api) -> Self {
        Self { log, marker }
    }

    /// Returns the path of the log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Returns the place in the log after all requests that have been answered to their end.
    ///
    /// # Errors
    /// If the API server is gone or the log can't be read.
    pub fn mark(&self) -> Result<Mark> {
        let from = File::open(&self.log).and_then(|file| file.metadata()).context("read the audit log")?.len();
        let sign = format!("capstan-audit-mark/{}", chance(8)?);
        self.marker.with_user_agent(&sign).get("/version")?;
        let end = wait::until_ok(LIMIT, "a mark in the audit log", || {
            let bytes = read(&self.log, from, None)?;
            end_of_line_with(&bytes, sign.as_bytes()).context("it is not there yet")
        })?;
        Ok(Mark(from + end))
    }

    /// Returns the requests that `query` selects and that have been answered to their end, in the order of the log.
    ///
    /// # Errors
    /// If the API server is gone, or the log can't be read or parsed.
    pub fn requests(&self, query: &Query) -> Result<Vec<Request>> {
        let Mark(end) = self.mark()?;
        let Mark(start) = query.since;
        let bytes = read(&self.log, start, Some(end))?;
        let mut requests = Vec::new();
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let line: Line = serde_json::from_slice(line).context("a line of the audit log")?;
            if let Some(request) = line.request().filter(|request| query.means(request)) {
                requests.push(request);
            }
        }
        Ok(requests)
    }

    /// Returns the number of requests that `query` selects.
    ///
    /// # Errors
    /// As [`Audit::requests`].
    pub fn count(&self, query: &Query) -> Result<usize> {
        Ok(self.requests(query)?.len())
    }
}

/// Returns the bytes of the log from `start` to `end`; `None` = to the end of the file.
fn read(log: &Path, start: u64, end: Option<u64>) -> Result<Vec<u8>> {
    let mut file = File::open(log).with_context(|| format!("read {}", log.display()))?;
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(end.map_or(u64::MAX, |end| end.saturating_sub(start))).read_to_end(&mut bytes)?;
    if let Some(end) = end
        && bytes.len() as u64 != end.saturating_sub(start)
    {
        bail!("{} has become shorter", log.display());
    }
    Ok(bytes)
}

/// Returns the offset at which the line with `sign` in it ends; `None` if it has not ended yet.
fn end_of_line_with(bytes: &[u8], sign: &[u8]) -> Option<u64> {
    let at = bytes.windows(sign.len()).position(|window| window == sign)?;
    let rest = bytes.get(at..)?.iter().position(|byte| *byte == b'\n')?;
    Some((at + rest + 1) as u64)
}

// === impl Query ===

impl Query {
    /// Returns a query for all requests since `mark`.
    pub fn since(mark: Mark) -> Self {
        Self { since: mark, ..Self::default() }
    }

    /// Returns the query narrowed to programs whose user agent starts like this.
    pub fn user_agent(self, prefix: impl Into<String>) -> Self {
        Self { user_agent_prefix: Some(prefix.into()), ..self }
    }

    /// Returns the query narrowed to one user.
    pub fn user(self, name: impl Into<String>) -> Self {
        Self { user: Some(name.into()), ..self }
    }

    /// Returns the query narrowed to one namespace.
    pub fn namespace(self, name: impl Into<String>) -> Self {
        Self { namespace: Some(name.into()), ..self }
    }

    /// Returns the query narrowed to one kind, by its plural name.
    pub fn resource(self, plural: impl Into<String>) -> Self {
        Self { resource: Some(plural.into()), ..self }
    }

    /// Returns the query narrowed to these verbs.
    pub fn verbs<'a>(self, verbs: impl IntoIterator<Item = &'a str>) -> Self {
        Self { verbs: verbs.into_iter().map(str::to_owned).collect(), ..self }
    }

    /// Returns the query narrowed to the verbs that write.
    pub fn writes(self) -> Self {
        self.verbs(WRITES)
    }

    fn means(&self, request: &Request) -> bool {
        let is = |wanted: &Option<String>, actual: &str| wanted.as_deref().is_none_or(|wanted| wanted == actual);
        request.user != MARKER
            && is(&self.user, &request.user)
            && is(&self.namespace, &request.namespace)
            && is(&self.resource, &request.resource)
            && self.user_agent_prefix.as_deref().is_none_or(|prefix| request.user_agent.starts_with(prefix))
            && (self.verbs.is_empty() || self.verbs.contains(&request.verb))
    }
}

// === impl Line ===

impl Line {
    /// Returns the request if this is the line by which it is counted.
    fn request(self) -> Option<Request> {
        let code = self.response_status.code;
        let counts = match self.stage.as_str() {
            "ResponseStarted" => self.verb == "watch" || code == 401,
            "ResponseComplete" => true,
            "Panic" => self.verb != "watch",
            _ => false,
        };
        counts.then_some(Request {
            verb: self.verb,
            group: self.object_ref.api_group,
            resource: self.object_ref.resource,
            subresource: self.object_ref.subresource,
            namespace: self.object_ref.namespace,
            name: self.object_ref.name,
            uri: self.request_uri,
            user: self.user.username,
            impersonated: self.impersonated_user.username,
            user_agent: self.user_agent,
            code,
            time: self.request_received_timestamp,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(stage: &str, verb: &str, code: u16) -> Line {
        Line { stage: stage.to_owned(), verb: verb.to_owned(), response_status: LineStatus { code }, ..Line::default() }
    }

    #[test]
    fn each_request_is_counted_by_one_line() {
        let lines = [
            ("ResponseStarted", "watch", 200, true),
            ("ResponseStarted", "watch", 401, true),
            ("Panic", "watch", 500, false),
            ("ResponseStarted", "get", 200, false),
            ("ResponseComplete", "get", 200, true),
            ("ResponseStarted", "get", 401, true),
            ("Panic", "get", 500, true),
            ("RequestReceived", "get", 0, false),
        ];
        for (stage, verb, code, counts) in lines {
            assert_eq!(line(stage, verb, code).request().is_some(), counts, "{stage} {verb} {code}");
        }
    }

    #[test]
    fn a_line_is_read_with_all_that_a_test_may_ask_for() {
        let text = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"x","stage":"ResponseComplete",
            "requestURI":"/apis/apps/v1/namespaces/a/deployments/web/status?fieldManager=m","verb":"patch",
            "user":{"username":"ann","groups":["g"]},"impersonatedUser":{"username":"system:serviceaccount:a:b"},"sourceIPs":["127.0.0.1"],"userAgent":"capstan/0.1.0",
            "objectRef":{"resource":"deployments","namespace":"a","name":"web","apiGroup":"apps","apiVersion":"v1","subresource":"status"},
            "responseStatus":{"metadata":{},"code":200},"requestReceivedTimestamp":"2026-01-02T03:04:05.000006Z"}"#;
        let expected = Request {
            verb: "patch".to_owned(),
            group: "apps".to_owned(),
            resource: "deployments".to_owned(),
            subresource: "status".to_owned(),
            namespace: "a".to_owned(),
            name: "web".to_owned(),
            uri: "/apis/apps/v1/namespaces/a/deployments/web/status?fieldManager=m".to_owned(),
            user: "ann".to_owned(),
            impersonated: "system:serviceaccount:a:b".to_owned(),
            user_agent: "capstan/0.1.0".to_owned(),
            code: 200,
            time: "2026-01-02T03:04:05.000006Z".to_owned(),
        };
        assert_eq!(serde_json::from_str::<Line>(text).unwrap().request(), Some(expected.clone()));

        let meant = |query: Query| query.means(&expected);
        assert!(meant(
            Query::default().writes().user("ann").namespace("a").resource("deployments").user_agent("capstan/")
        ));
        let others = [
            Query::default().user("ben"),
            Query::default().namespace("b"),
            Query::default().resource("pods"),
            Query::default().user_agent("kubectl/"),
            Query::default().verbs(["get", "list"]),
        ];
        assert_eq!(others.map(meant), [false; 5]);
    }

    #[test]
    fn a_mark_is_found_only_when_its_line_is_whole() {
        let cases = [(&b"one\ntwo sign x"[..], None), (b"one\ntwo sign x\nthree", Some(15)), (b"one\n", None)];
        for (bytes, end) in cases {
            assert_eq!(end_of_line_with(bytes, b"sign"), end);
        }
    }

    #[test]
    fn a_log_of_some_users_leaves_out_everybody_else() {
        let users = AuditScope::Users(BTreeSet::from(["ann".to_owned()])).policy().unwrap();
        let rules = users["rules"].as_array().unwrap();
        let last = rules.last().unwrap();
        assert_eq!((rules.len(), &rules[1]["users"], &last["level"]), (3, &json!(["ann", MARKER]), &json!("None")));
        assert_eq!(AuditScope::Off.policy(), None);
    }
}
