//! Listens to whether the API server does its work, asks it when nothing is heard, and tells those that wait when it is back.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use capstan_core::cluster::Error;
use capstan_core::health::{Health, Sender, Sign, Trouble};
use http::{Method, StatusCode};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::{ApiServer, Identity, Link, REFUSAL, chain, collect};

/// An API server that has not even told its version after this time does not answer.
const ASKED: Duration = Duration::from_secs(2);

/// What is asked for a sign of life: anybody may, and it costs the API server next to nothing.
const SIGN: &str = "/version";

/// A request that began this shortly before the API server came back is waited for all the same.
const YOUNG: Duration = Duration::from_secs(2);

/// What is heard of the API server.
pub struct Pulse {
    health: Mutex<Health>,
    /// Told when it is back after it did not answer.
    back: watch::Sender<()>,
    /// The cluster; none: that of the daemon.
    cluster: Option<Arc<str>>,
}

/// What an answer to a request says of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    /// A write that is not carried out: that it is answered does not say that others are.
    DryRun,
}

/// A request that is under way, and is given up if it is dropped.
struct Waiting<'a> {
    pulse: &'a Pulse,
    /// None if it is no write, or over.
    write: Option<u64>,
}

impl Default for Pulse {
    fn default() -> Self {
        Self::of(None)
    }
}

impl Pulse {
    /// Returns what is heard of the API server of a cluster.
    pub(super) fn of(cluster: Option<Arc<str>>) -> Self {
        Self { health: Mutex::new(Health::new(Instant::now())), back: watch::Sender::new(()), cluster }
    }

    /// Tells whoever waits for the API server to ask it again.
    pub(super) fn returned(&self) {
        self.back.send_replace(());
    }

    /// Takes in a sign of life.
    pub(crate) fn heard(&self) {
        let sign = self.health.lock().heard(Instant::now());
        if sign == Sign::Back {
            tracing::info!(cluster = self.cluster.as_deref(), "the API server is back");
            self.returned();
        }
    }

    /// Says what is wrong for so long that somebody should know: with the API server, or with the writes of some.
    pub fn troubles(&self) -> Vec<Trouble> {
        self.health.lock().troubles(Instant::now())
    }

    /// Says whether the last that was heard of the API server is a failure.
    pub(super) fn falters(&self) -> bool {
        self.health.lock().falters()
    }

    /// Returns what is told when the API server is back.
    pub(crate) fn returns(&self) -> watch::Receiver<()> {
        self.back.subscribe()
    }

    /// Waits for what a request leads to, unless the API server was away meanwhile: then nobody may be left who would answer.
    pub(super) async fn follow<T>(
        &self,
        (kind, sender): (Kind, Sender),
        exchange: impl Future<Output = Result<T, Error>>,
        lost: impl FnOnce() -> Error,
    ) -> Result<T, Error> {
        let began = Instant::now();
        let writes = kind != Kind::Read;
        let write = writes.then(|| self.health.lock().begin_write(sender.clone(), began));
        let mut waiting = Waiting { pulse: self, write };
        let mut returns = self.returns();
        let returned = async { while returns.changed().await.is_ok() && began.elapsed() < YOUNG {} };
        let answer = tokio::select! {
            // An answer that is there is not lost.
            biased;
            answer = exchange => answer,
            () = returned => Err(lost()),
        };
        // Without credentials that it takes, nothing can be done either; those of another cluster are read again.
        let nobody = |error: &Error| self.cluster.is_none() && error.code == 401;
        let trouble = answer.as_ref().err().filter(|error| error.is_outage() || nobody(error));
        let (why, now) = (trouble.map(|error| error.message.as_str()), Instant::now());
        match waiting.write.take() {
            Some(number) => {
                let answered = (kind == Kind::Write).then_some(Ok(()));
                self.health.lock().end_write(number, why.map(Err).or(answered), now);
            }
            None => self.health.lock().end_read(&sender, why.is_none(), now),
        }
        match trouble {
            Some(error) => self.health.lock().failed(&error.message),
            None => self.heard(),
        }
        answer
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.write {
            let mut health = self.pulse.health.lock();
            health.end_write(number, None, Instant::now());
        }
    }
}

impl ApiServer {
    /// Asks the API server for a sign of life whenever nothing is heard of it, until it is dropped. Calls `back` when it is
    /// there again.
    pub async fn listen(&self, back: impl Fn()) {
        let mut returns = self.pulse.returns();
        loop {
            let asks_at = self.pulse.health.lock().asks_at();
            tokio::select! {
                // Those that wait are told first.
                biased;
                Ok(()) = returns.changed() => back(),
                () = sleep_until(asks_at) => {
                    if self.pulse.health.lock().asks_at() <= Instant::now() {
                        self.ask().await;
                    }
                }
            }
        }
    }

    async fn ask(&self) {
        self.pulse.health.lock().asking(Instant::now());
        let trouble = match timeout(ASKED, self.version()).await {
            Ok(Ok(())) => return self.pulse.heard(),
            Ok(Err(why)) => why,
            Err(_) => format!("no answer to GET {SIGN} within {ASKED:?}"),
        };
        if self.pulse.health.lock().silent(&trouble) {
            tracing::warn!(cluster = self.pulse.cluster.as_deref(), error = %trouble, "the API server gives no sign of life");
        }
    }

    async fn version(&self) -> Result<(), String> {
        let request = Identity::Daemon.asks(Method::GET, SIGN, None);
        let request = request.map_err(|error| error.to_string())?;
        let client = match &*self.way.link.borrow() {
            Link::Open(client) => client.clone(),
            Link::Closed(why) => return Err(why.to_string()),
            Link::Unread => return Err("it is not known yet what leads to it".to_owned()),
        };
        let response = client.send(request.map(Body::from)).await;
        let response = response.map_err(|error| chain(&error))?;
        let status = response.status();
        drop(collect(response.into_body(), REFUSAL).await);
        if status.is_server_error() || status == StatusCode::UNAUTHORIZED || self.way.is_refusal(status) {
            return Err(format!("GET {SIGN}: HTTP {}", status.as_u16()));
        }
        Ok(())
    }
}
