//! What leads to an API server: a client for good or, where that is of another cluster, for as long as a kubeconfig does.

use std::sync::Arc;

use capstan_core::cluster::{Error, Reason};
use capstan_core::object::Managers;
use capstan_core::text;
use tokio::sync::{Notify, watch};

use super::ApiServer;
use super::answer::About;
use super::pulse::Pulse;
use crate::backoff::Chance;

/// What leads to an API server.
#[derive(Clone)]
pub enum Link {
    /// That is not known yet.
    Unread,
    /// This client.
    Open(kube::Client),
    /// Nothing, for this reason.
    Closed(Arc<str>),
}

/// What leads to an API server now, and who it is to messages.
pub(super) struct Way {
    pub(super) link: watch::Sender<Link>,
    /// The cluster, as `operator/name`; none for that of the daemon.
    pub(super) name: Option<Arc<str>>,
    /// Is told when the credentials are refused.
    pub(super) refused: Notify,
}

impl Way {
    /// Returns the way that a client is, for good.
    pub(super) fn own(client: kube::Client) -> Self {
        Self { link: watch::Sender::new(Link::Open(client)), name: None, refused: Notify::new() }
    }

    /// Waits until it is known what leads to the API server, and returns the client.
    pub(super) async fn client(&self, about: &About<'_>) -> Result<kube::Client, Error> {
        let mut link = self.link.subscribe();
        loop {
            match &*link.borrow_and_update() {
                Link::Open(client) => return Ok(client.clone()),
                Link::Closed(why) => return Err(about.unreachable(why)),
                Link::Unread => {}
            }
            // Never happens: this has the sender.
            link.changed().await.map_err(|error| about.unreachable(&error))?;
        }
    }

    /// Takes in that an answer has this status. Says whether only the credentials are at fault, which others may replace.
    pub(super) fn is_refusal(&self, status: http::StatusCode) -> bool {
        let refused = self.name.is_some() && status == http::StatusCode::UNAUTHORIZED;
        if refused {
            self.refused.notify_one();
        }
        refused
    }

    /// Says in an error of which cluster it is.
    pub(super) fn named(&self, mut error: Error) -> Error {
        let begin = self.name.as_ref().map(|name| format!("cluster {name}: "));
        if let Some(begin) = begin.filter(|begin| !error.message.starts_with(begin)) {
            error.message = text::said(&(begin + &error.message)).into_owned();
        }
        error
    }
}

impl ApiServer {
    /// Returns a client of the cluster of this name, to which nothing leads yet. Its pauses are those of `chance`.
    pub fn of_other(name: Arc<str>, managers: Managers, chance: &Chance) -> Self {
        let way = Way { link: watch::Sender::new(Link::Unread), name: Some(Arc::clone(&name)), refused: Notify::new() };
        Self { chance: chance.of(&name), pulse: Pulse::of(Some(name)), ..Self::by(way, managers) }
    }

    /// Has this lead to the API server from now on. Whoever waits for it asks at once.
    pub fn lead(&self, link: Link) {
        self.way.link.send_replace(link);
        self.pulse.returned();
    }

    /// Returns why nothing leads to the API server; none if something does, or if that is not known yet.
    pub fn closed(&self) -> Option<Arc<str>> {
        match &*self.way.link.borrow() {
            Link::Closed(why) => Some(Arc::clone(why)),
            Link::Unread | Link::Open(_) => None,
        }
    }

    /// Waits until nothing leads to the API server any more, and returns why.
    pub async fn shut(&self) -> Arc<str> {
        let mut link = self.way.link.subscribe();
        loop {
            let closed = self.closed();
            link.mark_unchanged();
            match closed.or_else(|| self.closed()) {
                Some(why) => return why,
                // An error says that the API server is not in use any more.
                None if link.changed().await.is_err() => return "it is not in use any more".into(),
                None => {}
            }
        }
    }

    /// Returns what is told when something else leads to the API server.
    pub(crate) fn relinked(&self) -> watch::Receiver<Link> {
        self.way.link.subscribe()
    }

    /// Waits until the API server refuses the credentials.
    pub async fn refused(&self) {
        self.way.refused.notified().await;
    }

    /// Says whether the API server is away now, although something leads to it.
    pub fn is_away(&self) -> bool {
        self.closed().is_none() && self.pulse.falters()
    }

    /// Says what is wrong with the API server for so long that somebody should know.
    pub fn trouble(&self) -> Option<String> {
        let closed = self.closed().map(|why| why.to_string());
        closed.or_else(|| self.pulse.troubles().into_iter().next().map(|trouble| trouble.why))
    }

    /// Refuses what nothing leads to, although something may be known of it.
    pub(super) fn still_leads(&self) -> Result<(), Error> {
        match self.closed() {
            Some(why) => Err(self.way.named(Error::new(Reason::Unreachable, 0, &*why))),
            None => Ok(()),
        }
    }
}
