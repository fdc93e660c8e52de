//! Carries the daemon's requests to the model, and writes down how each was answered.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Method, Request, Response};
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

impl Line {
    pub(crate) fn new(stage: &Arc<Stage>) -> Self {
        Self { service: stage.model.service(), stage: Arc::clone(stage) }
    }
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<ModelBody>, ConnectionBroken>> + Send>>;

impl Service<Request<Body>> for Line {
    type Response = Response<ModelBody>;
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
        let answer = self.service.call(request);
        Box::pin(async move {
            // Moved in as a whole, so that it is dropped, and noted, if the caller does not wait any more.
            let mut waiting = waiting;
            let answer = answer.await;
            waiting.code = answer.as_ref().ok().map(|answer| answer.status().as_u16());
            answer
        })
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
