//! Carries the daemon's requests to the model, and writes down how each was answered, and what was written.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Frame;
use kube::client::Body;
use model::{ConnectionBroken, ModelBody, ModelService};
use tower::Service;

use crate::stage::Stage;

/// The model as the daemon reaches it.
#[derive(Clone)]
pub(crate) struct Line {
    service: ModelService,
    stage: Arc<Stage>,
}

/// A request without an answer.
struct Waiting {
    stage: Arc<Stage>,
    what: String,
    path: String,
    method: Method,
    code: Option<u16>,
}

/// The body of an answer, as the daemon reads it.
pub(crate) struct Told {
    body: ModelBody,
    /// What of an object as it is after a write has come.
    write: Option<(Arc<Stage>, Vec<u8>)>,
}

impl Line {
    pub(crate) fn new(stage: &Arc<Stage>) -> Self {
        Self { service: stage.model.service(), stage: Arc::clone(stage) }
    }
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<Told>, ConnectionBroken>> + Send>>;

impl Service<Request<Body>> for Line {
    type Response = Response<Told>;
    type Error = ConnectionBroken;
    type Future = Answering;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectionBroken>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Answering {
        let (method, uri) = (request.method(), request.uri());
        let path = uri.path().to_owned();
        let watch = if uri.query().is_some_and(|query| query.contains("watch=true")) { " (watch)" } else { "" };
        let waiting = Waiting {
            stage: Arc::clone(&self.stage),
            what: format!("{method} {path}{watch}"),
            method: method.clone(),
            path,
            code: None,
        };
        if *method == Method::DELETE {
            self.stage.deletes(&waiting.path);
        }
        let answer = self.service.call(request);
        Box::pin(async move {
            // Moved in as a whole, so that it is dropped, and noted, if the caller does not wait any more.
            let mut waiting = waiting;
            let answer = answer.await;
            waiting.code = answer.as_ref().ok().map(|answer| answer.status().as_u16());
            let is_write = ![Method::GET, Method::DELETE].contains(&waiting.method);
            let stage = Arc::clone(&waiting.stage);
            answer.map(|answer| {
                let write = (is_write && answer.status().is_success()).then_some((stage, Vec::new()));
                answer.map(|body| Told { body, write })
            })
        })
    }
}

impl http_body::Body for Told {
    type Data = Bytes;
    type Error = ConnectionBroken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ConnectionBroken>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        match (&frame, &mut self.write) {
            (Poll::Ready(Some(Ok(frame))), Some((_, read))) => {
                read.extend_from_slice(frame.data_ref().map_or(&[][..], Bytes::as_ref));
            }
            // Only now the daemon knows what it has written.
            (Poll::Ready(None), write) => {
                if let Some((stage, read)) = write.take() {
                    stage.wrote(&serde_json::from_slice(&read).unwrap_or_default());
                }
            }
            (Poll::Pending | Poll::Ready(Some(_)), _) => {}
        }
        frame
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let dull = self.path == "/version" || self.path.ends_with("accessreviews");
        if !dull {
            self.stage.answered(&self.method, (&self.what, &self.path), self.code);
        }
    }
}
