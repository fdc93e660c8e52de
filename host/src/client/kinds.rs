//! Remembers what the API server calls kinds and where they live, and decides when it is asked again.

use std::collections::HashMap;
use std::time::Duration;

use capstan_core::cluster::{Error, Reason};
use capstan_core::object::Gvk;
use tokio::time::Instant;

use super::answer::About;
use super::presence::{MOST_KINDS, Presence};
use super::{ApiServer, Identity, Kind, pulse, request};

impl ApiServer {
    /// Returns what discovery has said of a kind; none if nobody has asked.
    pub fn known(&self, gvk: &Gvk) -> Option<Kind> {
        self.kinds.read().get(gvk).cloned()
    }

    /// Returns what discovery says of a kind, asking the API server the first time, and where a request was answered since as if that
    /// were otherwise.
    ///
    /// # Errors
    /// [`Reason::UnknownKind`] if the API server does not serve it; otherwise as the request failed.
    pub async fn resolve(&self, gvk: &Gvk) -> Result<Kind, Error> {
        self.still_leads()?;
        let doubtful = self.presence.is_older(gvk, Duration::MAX, Instant::now()) == Some(true);
        match self.known(gvk) {
            Some(kind) if !doubtful => Ok(kind),
            Some(_) | None => self.discover(gvk).await,
        }
    }

    /// Asks what a kind is called and where it lives, unless somebody has asked so short a time ago and nothing contradicts it.
    ///
    /// # Errors
    /// As the request failed: then what is remembered holds.
    pub async fn renew(&self, gvk: &Gvk, age: Duration) -> Result<(), Error> {
        let is_older = || self.presence.is_older(gvk, age, Instant::now()) != Some(false);
        if !is_older() {
            return Ok(());
        }
        // Many ask at once, and one answer is enough.
        let _turn = self.renewing.lock().await;
        if is_older() { self.look_again(gvk).await.map(drop) } else { Ok(()) }
    }

    /// Takes in that what has come of a kind contradicts what is known of that.
    pub(crate) fn doubt(&self, gvk: &Gvk) {
        if self.known(gvk).is_some() {
            // It may be known because another one of its group was asked about.
            if self.presence.of(gvk) != Some(true) {
                self.presence.learn(gvk, true, Instant::now());
            }
            self.presence.doubt(gvk);
        }
    }

    /// Returns true if the API server serves a kind, as far as is remembered; it is asked if nothing is.
    ///
    /// # Errors
    /// As the request failed: then nothing is known.
    pub async fn serves(&self, gvk: &Gvk) -> Result<bool, Error> {
        match self.presence.of(gvk) {
            Some(served) => Ok(served),
            None => self.look_again(gvk).await,
        }
    }

    /// Asks whether the API server serves a kind, whatever is remembered.
    ///
    /// # Errors
    /// As the request failed: then what is remembered holds.
    pub async fn look_again(&self, gvk: &Gvk) -> Result<bool, Error> {
        self.still_leads()?;
        match self.discover(gvk).await {
            Ok(_) => Ok(true),
            Err(error) if error.reason == Reason::UnknownKind => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns what is remembered of which kinds are served.
    pub fn presence(&self) -> &Presence {
        &self.presence
    }

    /// Asks which kinds of a group and version there are, and returns one of them.
    async fn discover(&self, gvk: &Gvk) -> Result<Kind, Error> {
        let about = About::new(&Identity::Daemon, "discover", gvk, None).reading().of_kind();
        let (mut load, asked) = (self.transit.load(), Instant::now());
        let answer = self.request(&about, pulse::Kind::Read, request::discover(gvk), &mut load).await;
        let found: HashMap<_, _> = match about.kinds(answer) {
            Ok(kinds) => kinds.into_iter().take(MOST_KINDS).map(|kind| (kind.gvk.clone(), kind)).collect(),
            Err(error) if error.reason == Reason::UnknownKind => HashMap::new(),
            Err(error) => return Err(self.way.named(error)),
        };
        let kind = found.get(gvk).cloned();
        {
            let mut kinds = self.kinds.write();
            // Others may have been there before.
            kinds.retain(|known, _| (&known.group, &known.version) != (&gvk.group, &gvk.version));
            // No cluster has as many, unless it names others each time: then they are asked for again.
            if kinds.len() > MOST_KINDS {
                kinds.clear();
            }
            kinds.extend(found);
        }
        self.presence.learn(gvk, kind.is_some(), asked);
        self.presence.learn_all(gvk, |kind| self.known(kind).is_some(), asked);
        kind.ok_or_else(|| self.way.named(about.unknown()))
    }
}
