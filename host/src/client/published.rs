//! Asks the API server for the document that it publishes of the kinds of a group and version, one at a time.

use bytes::Bytes;
use capstan_core::budget::Budget;
use capstan_core::cluster::Error;
use capstan_core::object::Gvk;
use tokio::sync::OwnedMutexGuard;

use super::answer::About;
use super::transit::{Load, Unread};
use super::{ApiServer, Broken, Identity, pulse, request};

/// The longest document. Those of custom kinds have some hundred KB, of which most is the same in all of them.
const LONGEST: usize = 4 << 20;

/// A published document (`OpenAPI` v3). No other one is asked for while there is one.
pub(crate) struct Published {
    /// Its text.
    pub(crate) text: Bytes,
    /// What may be done with it, in the memory that answers have.
    pub(crate) budget: Budget,
    _load: Load,
    _turn: OwnedMutexGuard<()>,
}

impl ApiServer {
    /// Returns the document that has the schema of a kind.
    ///
    /// # Errors
    /// As the request failed; [`UnknownKind`](capstan_core::cluster::Reason::UnknownKind) if there is none.
    pub(crate) async fn published(&self, gvk: &Gvk) -> Result<Published, Error> {
        let turn = self.publishing.clone().lock_owned().await;
        let about = About::new(&Identity::Daemon, "read the schema of", gvk, None).reading().of_kind();
        let mut load = self.transit.load();
        let exchange = async {
            let answer = self.send(&about, request::published(gvk)).await?;
            load.collect(answer.into_body(), LONGEST).await.map_err(|unread| match unread {
                Unread::Broken(Broken::Long) => about.broken(&format_args!("it is longer than {LONGEST} bytes")),
                Unread::Broken(Broken::Off(_)) | Unread::NoRoom(_) => about.unread(&unread),
            })
        };
        let text = self.in_time(&about, pulse::Kind::Read, exchange).await?;
        Ok(Published { text, budget: self.transit.budget(), _load: load, _turn: turn })
    }
}
