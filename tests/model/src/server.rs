//! Decides how a request gets to the model and its answer back, with everything that can go wrong on the way.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tower::Service;

use crate::body::ModelBody;
use crate::fault::{ConnectionBroken, Fault, Loss};
use crate::request::Asked;
use crate::status::Refusal;
use crate::world::{Answer, World};

/// Decides what goes wrong with each request.
pub(crate) type Hook = Box<dyn FnMut(&Asked) -> Fault + Send>;

/// The state that services and bodies share.
pub(crate) struct Server {
    pub(crate) world: Mutex<World>,
    /// Notified when something has changed that a watch may show.
    pub(crate) changed: Arc<Notify>,
    pub(crate) hook: Mutex<Option<Hook>>,
    /// The number of requests so far.
    pub(crate) requests: Mutex<u64>,
}

/// The model as a tower service, for [`kube::Client::new`].
#[derive(Clone)]
pub struct ModelService(pub(crate) Arc<Server>);

type Answering = Pin<Box<dyn Future<Output = Result<Response<ModelBody>, ConnectionBroken>> + Send>>;

impl Service<Request<Body>> for ModelService {
    type Response = Response<ModelBody>;
    type Error = ConnectionBroken;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectionBroken>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answering {
        let server = Arc::clone(&self.0);
        Box::pin(async move { server.exchange(request).await })
    }
}

impl Server {
    async fn exchange(self: Arc<Self>, request: Request<Body>) -> Result<Response<ModelBody>, ConnectionBroken> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| ConnectionBroken)?.to_bytes();
        let number = {
            let mut requests = self.requests.lock();
            *requests += 1;
            *requests
        };
        let asked = Asked::read(number, &head, body);
        let fault = self.hook.lock().as_mut().map(|hook| hook(&asked)).unwrap_or_default();
        match fault {
            Fault::None => Ok(self.answer(&asked)),
            Fault::Answer { code, retry_after } => {
                let mut response = refused(&Refusal::asked(code, retry_after));
                if let Some(seconds) = retry_after {
                    response.headers_mut().insert("retry-after", seconds.into());
                }
                Ok(response)
            }
            Fault::LoseRequest(loss) => lost(loss).await,
            Fault::LoseAnswer(loss) => {
                drop(self.answer(&asked));
                lost(loss).await
            }
            Fault::Cut { after } => Ok(self.answer(&asked).map(|body| body.cut(after))),
            Fault::Delay { before, after } => {
                wait(before).await;
                let response = self.answer(&asked);
                wait(after).await;
                Ok(response)
            }
        }
    }

    fn answer(self: &Arc<Self>, asked: &Asked) -> Response<ModelBody> {
        let answer = {
            let mut world = self.world.lock();
            let before = world.store.revision();
            let answer = world.answer(asked, Instant::now());
            if world.store.revision() != before {
                self.changed.notify_waiters();
            }
            answer
        };
        match answer {
            Ok(Answer::Whole(whole)) => {
                let response = json(whole.code, whole.body.to_string().into());
                warning(response, &whole.warnings)
            }
            Ok(Answer::Watch(watch)) => json(200, Bytes::new()).map(|_| ModelBody::watch(Arc::clone(self), watch)),
            Err(refusal) => warning(refused(&refusal), &refusal.warnings),
        }
    }
}

fn warning(mut response: Response<ModelBody>, warnings: &[String]) -> Response<ModelBody> {
    for warning in warnings {
        let warning = HeaderValue::try_from(format!("299 - {warning:?}"));
        let warning = warning.ok().map(|warning| (http::header::WARNING, warning));
        response.headers_mut().extend(warning);
    }
    response
}

async fn lost(loss: Loss) -> Result<Response<ModelBody>, ConnectionBroken> {
    match loss {
        Loss::Broken => Err(ConnectionBroken),
        Loss::Silent => std::future::pending().await,
    }
}

async fn wait(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}

fn refused(refusal: &Refusal) -> Response<ModelBody> {
    match refusal.body() {
        Ok(body) => json(refusal.code, body.to_string().into()),
        Err(text) => {
            let mut response = json(refusal.code, text.to_owned().into());
            response.headers_mut().insert("content-type", HeaderValue::from_static("text/plain; charset=utf-8"));
            response
        }
    }
}

fn json(code: u16, body: Bytes) -> Response<ModelBody> {
    let mut response = Response::new(ModelBody::whole(body));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    response
}
