//! Sends HTTP requests, and reads what is answered.

use wasip2::http::outgoing_handler;
use wasip2::http::types::{
    ErrorCode, Fields, IncomingBody, IncomingResponse, Method, OutgoingBody, OutgoingRequest, Scheme,
};
use wasip2::io::streams::StreamError;

/// The most bytes that are sent at once.
pub(crate) const PART: usize = 4096;

/// The body of an answer.
#[derive(Default)]
pub(crate) struct Body {
    /// Its first bytes, as text.
    pub(crate) text: String,
    /// All bytes that came.
    pub(crate) length: usize,
    /// Why there are no more.
    pub(crate) error: Option<String>,
}

/// Sends a request, and waits for the head of the answer.
pub(crate) fn sent(
    method: &Method,
    url: &str,
    parts: impl Iterator<Item = Vec<u8>>,
) -> Result<IncomingResponse, String> {
    let said = |error: ErrorCode| format!("{error:?}");
    let (scheme, rest) = url.split_once("://").ok_or("no URL")?;
    let (host, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let request = OutgoingRequest::new(Fields::new());
    let scheme = if scheme == "https" { Scheme::Https } else { Scheme::Http };
    request.set_scheme(Some(&scheme)).map_err(|()| "scheme")?;
    request.set_authority(Some(host)).map_err(|()| "authority")?;
    request.set_path_with_query(Some(path)).map_err(|()| "path")?;
    request.set_method(method).map_err(|()| "method")?;
    let body = request.body().map_err(|()| "body")?;
    let answer = outgoing_handler::handle(request, None).map_err(said)?;
    // An error here is one of the answer, too, which says more.
    drop(write(body, parts));
    answer.subscribe().block();
    answer.get().ok_or("nothing")?.map_err(|()| "taken")?.map_err(said)
}

fn write(body: OutgoingBody, parts: impl Iterator<Item = Vec<u8>>) -> Result<(), StreamError> {
    let stream = body.write().map_err(|()| StreamError::Closed)?;
    for part in parts {
        stream.blocking_write_and_flush(&part)?;
    }
    drop(stream);
    drop(OutgoingBody::finish(body, None));
    Ok(())
}

/// Reads an answer to its end, and keeps so many bytes of it.
pub(crate) fn read(response: &IncomingResponse, most: usize) -> Body {
    let mut found = Body::default();
    let Ok(body) = response.consume() else {
        return found;
    };
    let Ok(stream) = body.stream() else {
        return found;
    };
    let mut text = Vec::new();
    loop {
        match stream.blocking_read(64 << 10) {
            Ok(part) => {
                found.length += part.len();
                text.extend(part.into_iter().take(most.saturating_sub(text.len())));
            }
            Err(StreamError::Closed) => break,
            Err(StreamError::LastOperationFailed(error)) => {
                let code = wasip2::http::types::http_error_code(&error);
                found.error = Some(code.map_or_else(|| error.to_debug_string(), |code| format!("{code:?}")));
                break;
            }
        }
    }
    found.text = String::from_utf8_lossy(&text).into_owned();
    drop(stream);
    drop(IncomingBody::finish(body));
    found
}
