//! Sends a primary's things to an HTTP server, and reads them there.
#![allow(dead_code, reason = "two guests share it, and each uses a part")]

use std::collections::BTreeMap;

use capstan_guest::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wasip2::http::types::Method;

#[path = "../../probe-http/src/http.rs"]
mod http;

/// The longest answer, in bytes.
const LONGEST: usize = 1 << 20;

/// A primary.
#[derive(Deserialize)]
pub(crate) struct Probe {
    pub(crate) metadata: Metadata,
    pub(crate) spec: Spec,
    #[serde(default)]
    pub(crate) status: Status,
}

#[derive(Deserialize)]
pub(crate) struct Metadata {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) uid: String,
}

#[derive(Deserialize)]
pub(crate) struct Spec {
    pub(crate) url: String,
    pub(crate) data: BTreeMap<String, Value>,
}

#[derive(Default, Deserialize)]
pub(crate) struct Status {
    pub(crate) id: Option<String>,
}

/// A thing on the server.
#[derive(Deserialize, Serialize)]
pub(crate) struct Thing {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    pub(crate) owner: String,
    pub(crate) name: String,
    pub(crate) data: Value,
}

impl Probe {
    /// Returns what a dependent should be.
    pub(crate) fn thing(&self, name: &str, data: &Value) -> Thing {
        Thing { id: None, owner: self.metadata.uid.clone(), name: name.to_owned(), data: data.clone() }
    }

    /// Reads the things with these ids.
    pub(crate) fn those(&self, ids: impl Iterator<Item = String>) -> Result<Vec<Thing>> {
        let mut things = Vec::new();
        for id in ids {
            if let Some(thing) = self.send(&Method::Get, &format!("/things/{id}"), "")? {
                things.push(serde_json::from_str(&thing)?);
            }
        }
        Ok(things)
    }

    /// Sends a request, and returns what is answered; nothing if there is nothing at the path.
    pub(crate) fn send(&self, method: &Method, path: &str, body: &str) -> Result<Option<String>> {
        let parts = body.as_bytes().chunks(http::PART).map(<[u8]>::to_vec);
        let response = http::sent(method, &format!("{}{path}", self.spec.url), parts)?;
        let http::Body { text, error, .. } = http::read(&response, LONGEST);
        match (response.status(), error) {
            (404, _) => Ok(None),
            (200, None) => Ok(Some(text)),
            (code, error) => Err(format!("the server says {code}: {}", error.unwrap_or(text)).into()),
        }
    }
}
