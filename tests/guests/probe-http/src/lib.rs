//! Sends the HTTP requests that its primary says: the test guest of scenarios about the network. Its spec is in `README.md`.
#![cfg(target_arch = "wasm32")]

use capstan_guest::{Cleaner, Deletion, Reconciler, ResourcePollers, Result, Things, Update, secondary};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use wasip2::http::types::{IncomingResponse, Method};

mod http;

struct Prober;

/// A primary.
#[derive(Deserialize)]
struct Probe {
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
struct Status {
    /// That of what was made.
    id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spec {
    #[serde(default)]
    requests: Vec<Ask>,
    #[serde(default)]
    trap: bool,
    keep: Option<Keep>,
}

/// A thing that is to be on a server.
#[derive(Deserialize)]
struct Keep {
    url: String,
    data: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Ask {
    url: String,
    /// POST if there is something to send, else GET.
    #[serde(skip)]
    method: Option<Method>,
    #[serde(default = "once")]
    times: u32,
    #[serde(default)]
    post: String,
    #[serde(default)]
    size: usize,
    #[serde(default)]
    hold: bool,
    #[serde(default)]
    follow: bool,
}

fn once() -> u32 {
    1
}

/// What came of a request.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u16>,
    length: usize,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip)]
    location: Option<String>,
}

impl Reconciler for Prober {
    type Primary = Probe;

    fn reconcile(probe: &Probe) -> Result<Update> {
        if let Some(keep) = &probe.spec.keep {
            return kept(keep, probe.status.id.as_deref());
        }
        let mut held = Vec::new();
        let mut answers = Vec::new();
        for ask in &probe.spec.requests {
            let mut told = Told::default();
            for _ in 0..ask.times {
                told = asked(ask, &ask.url, &mut held);
                if ask.follow
                    && let Some(next) = told.location.take()
                {
                    told = asked(ask, &next, &mut held);
                }
            }
            answers.push(told);
        }
        // Left open on purpose, for as long as this instance is there.
        std::mem::forget(held);
        #[expect(clippy::panic, reason = "asked for")]
        if probe.spec.trap {
            panic!("as the spec wants");
        }
        Ok(Update::status(json!({ "answers": answers })))
    }
}

impl Cleaner for Prober {
    type Primary = Probe;

    fn cleanup(probe: &Probe) -> Result<Deletion> {
        if let (Some(keep), Some(id)) = (&probe.spec.keep, &probe.status.id) {
            done(keep, Some(id), Method::Delete, "")?;
        }
        Ok(Deletion::remove_finalizer())
    }
}

impl ResourcePollers for Prober {
    type Primary = Probe;

    fn poll_one(_: &str, probe: &Probe) -> Result<Things> {
        let (Some(keep), Some(id)) = (&probe.spec.keep, &probe.status.id) else {
            return Err("nothing was made that could be polled".into());
        };
        let told = done(keep, Some(id), Method::Get, "")?;
        Ok(if told.code == Some(404) {
            Things::none()
        } else {
            Things::of([serde_json::from_str::<Value>(&told.text)?])
        })
    }
}

capstan_guest::export!(Prober: Reconciler, Cleaner, ResourcePollers);

/// Makes a thing, whose id is kept in the status, or changes it if it is another than it should be.
fn kept(keep: &Keep, id: Option<&str>) -> Result<Update> {
    let Some(id) = id else {
        let made = done(keep, None, Method::Post, &keep.data)?;
        return Ok(Update::status(json!({ "id": made.text })));
    };
    match secondary("things")? {
        Some(thing) if thing["data"] == keep.data.as_str() => {}
        Some(_) | None => drop(done(keep, Some(id), Method::Put, &keep.data)?),
    }
    Ok(Update::status(json!({ "id": id })))
}

/// Sends one request about a thing.
fn done(keep: &Keep, id: Option<&str>, method: Method, text: &str) -> Result<Told> {
    let url = id.map_or_else(|| keep.url.clone(), |id| format!("{}/{id}", keep.url));
    let ask = Ask { url: url.clone(), method: Some(method), post: text.to_owned(), ..Ask::default() };
    let told = asked(&ask, &url, &mut Vec::new());
    match told.error {
        Some(error) => Err(error.into()),
        None => Ok(told),
    }
}

fn asked(ask: &Ask, url: &str, held: &mut Vec<IncomingResponse>) -> Told {
    let some = ask.size > 0 || !ask.post.is_empty();
    let method = ask.method.clone().unwrap_or(if some { Method::Post } else { Method::Get });
    let large = (0..ask.size / http::PART).map(|_| vec![b'x'; http::PART]);
    let parts = ask.post.as_bytes().chunks(http::PART).map(<[u8]>::to_vec).chain(large);
    let response = match http::sent(&method, url, parts) {
        Ok(response) => response,
        Err(error) => return Told { error: Some(error), ..Told::default() },
    };
    let location = response.headers().get("location").into_iter().next();
    let location = location.and_then(|bytes| String::from_utf8(bytes).ok());
    let mut told = Told { code: Some(response.status()), location, ..Told::default() };
    if ask.hold {
        held.push(response);
        return told;
    }
    let http::Body { text, length, error } = http::read(&response, 100);
    told.text = text;
    told.length = length;
    told.error = error;
    told
}
