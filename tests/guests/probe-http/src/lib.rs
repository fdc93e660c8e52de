//! Sends the HTTP requests that its primary says: the test guest of scenarios about the network. Its spec is in `README.md`.
#![cfg(target_arch = "wasm32")]

use capstan_guest::{Cleaner, Delete, Reconciler, ResourcePollers, Result, Things, Update, secondary};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use wasip2::http::outgoing_handler;
use wasip2::http::types::{
    ErrorCode, Fields, IncomingBody, IncomingResponse, Method, OutgoingBody, OutgoingRequest, Scheme,
};
use wasip2::io::streams::StreamError;

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

    fn cleanup(probe: &Probe) -> Result<Delete> {
        if let (Some(keep), Some(id)) = (&probe.spec.keep, &probe.status.id) {
            done(keep, Some(id), Method::Delete, "")?;
        }
        Ok(Delete::remove_finalizer())
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
    match sent(ask, url) {
        Ok(response) => {
            let location = response.headers().get("location").into_iter().next();
            let location = location.and_then(|bytes| String::from_utf8(bytes).ok());
            let mut told = Told { code: Some(response.status()), location, ..Told::default() };
            if ask.hold {
                held.push(response);
            } else {
                read(&response, &mut told);
            }
            told
        }
        Err(error) => Told { error: Some(error), ..Told::default() },
    }
}

/// Sends a request, and waits for the head of the answer.
fn sent(ask: &Ask, url: &str) -> Result<IncomingResponse, String> {
    let said = |error: ErrorCode| format!("{error:?}");
    let (scheme, rest) = url.split_once("://").ok_or("no URL")?;
    let (host, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let request = OutgoingRequest::new(Fields::new());
    let scheme = if scheme == "https" { Scheme::Https } else { Scheme::Http };
    request.set_scheme(Some(&scheme)).map_err(|()| "scheme")?;
    request.set_authority(Some(host)).map_err(|()| "authority")?;
    request.set_path_with_query(Some(path)).map_err(|()| "path")?;
    if let Some(method) = &ask.method {
        request.set_method(method).map_err(|()| "method")?;
    } else if ask.size > 0 || !ask.post.is_empty() {
        request.set_method(&Method::Post).map_err(|()| "method")?;
    }
    let body = request.body().map_err(|()| "body")?;
    let answer = outgoing_handler::handle(request, None).map_err(said)?;
    // An error here is one of the answer, too, which says more.
    drop(write(body, ask));
    answer.subscribe().block();
    answer.get().ok_or("nothing")?.map_err(|()| "taken")?.map_err(said)
}

fn write(body: OutgoingBody, ask: &Ask) -> Result<(), StreamError> {
    let stream = body.write().map_err(|()| StreamError::Closed)?;
    for part in ask.post.as_bytes().chunks(4096) {
        stream.blocking_write_and_flush(part)?;
    }
    for _ in 0..ask.size / 4096 {
        stream.blocking_write_and_flush(&[b'x'; 4096])?;
    }
    drop(stream);
    drop(OutgoingBody::finish(body, None));
    Ok(())
}

/// Reads an answer to its end.
fn read(response: &IncomingResponse, told: &mut Told) {
    let Ok(body) = response.consume() else {
        return;
    };
    let Ok(stream) = body.stream() else {
        return;
    };
    let mut text = Vec::new();
    loop {
        match stream.blocking_read(64 << 10) {
            Ok(part) => {
                told.length += part.len();
                text.extend(part.into_iter().take(100_usize.saturating_sub(text.len())));
            }
            Err(StreamError::Closed) => break,
            Err(StreamError::LastOperationFailed(error)) => {
                let code = wasip2::http::types::http_error_code(&error);
                told.error = Some(code.map_or_else(|| error.to_debug_string(), |code| format!("{code:?}")));
                break;
            }
        }
    }
    told.text = String::from_utf8_lossy(&text).into_owned();
    drop(stream);
    drop(IncomingBody::finish(body));
}
