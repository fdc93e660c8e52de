//! Keeps the addresses of the API server from components: looks them up until they are known, and then now and then.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use capstan_core::network::plain;
use http::Uri;
use tokio::time::{sleep, timeout};

use crate::names::Names;
use crate::plugin::Outside;

/// How long the addresses of a host are waited for.
const LOOKUP: Duration = Duration::from_secs(5);

/// From one look to the next as long as a host has not been found.
const SOON: Duration = Duration::from_secs(2);

/// The same once all have been.
const AGAIN: Duration = Duration::from_mins(1);

/// The hosts of the API server, and their addresses as they were found last.
pub(crate) struct Guard {
    outside: Outside,
    names: Names,
    hosts: BTreeMap<String, BTreeSet<IpAddr>>,
}

impl Guard {
    /// Returns the guard of a server, and of that which the pod knows, if this is one. Nothing is guarded until [`Guard::look`].
    pub(crate) fn new(outside: &Outside, server: &Uri) -> Self {
        let of_pod = std::env::var("KUBERNETES_SERVICE_HOST").ok();
        let of_config = server.host().map(|host| host.trim_matches(['[', ']']).to_owned());
        Self::of(outside, of_pod.into_iter().chain(of_config), Names::default())
    }

    fn of(outside: &Outside, hosts: impl IntoIterator<Item = String>, names: Names) -> Self {
        let hosts = hosts.into_iter().map(|host| (host, BTreeSet::new())).collect();
        Self { outside: outside.clone(), names, hosts }
    }

    /// Looks for the addresses of all hosts; of one that is not found, those that were known stay. Returns when to look again.
    pub(crate) async fn look(&mut self) -> Duration {
        let mut after = AGAIN;
        for (host, known) in &mut self.hosts {
            // The client of the API server asks for it so, too.
            let found = timeout(LOOKUP, self.names.find_as_written(host)).await;
            match found {
                Ok(Ok(found)) if !found.is_empty() => *known = found.into_iter().map(plain).collect(),
                Ok(Ok(_) | Err(_)) | Err(_) => after = SOON,
            }
        }
        self.outside.guard(self.hosts.values().flatten().copied().collect());
        after
    }

    /// Looks again and again, first after so long.
    pub(crate) async fn keep(mut self, mut after: Duration) {
        loop {
            sleep(after).await;
            after = self.look().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use capstan_core::network::Destination;
    use parking_lot::Mutex;
    use tokio::time::Instant;
    use tokio_util::task::AbortOnDropHandle;

    use super::*;
    use crate::names::tests::changing;

    #[tokio::test(start_paused = true)]
    async fn the_api_server_is_guarded_as_soon_as_its_name_is_known_and_where_it_moves_to() {
        let address = Arc::new(Mutex::new(None::<IpAddr>));
        let outside = Outside::default();
        let mut guard = Guard::of(&outside, ["api.example.com".to_owned()], changing(&address));
        let entry = Destination { internal: true, ..Destination::http("https://elsewhere.example.com").unwrap() };
        let guarded = |text: &str| outside.check(&entry, SocketAddr::new(text.parse().unwrap(), 443)).is_err();
        let begun = Instant::now();
        let after = guard.look().await;
        assert!(!guarded("10.0.0.1"), "nobody knows it");
        let _kept = AbortOnDropHandle::new(tokio::spawn(guard.keep(after)));
        for (now, within, expected) in [
            (Some("10.0.0.1"), SOON, [true, false]),
            (Some("10.0.0.2"), AGAIN, [false, true]),
            // What was known stays while nobody can be asked.
            (None, AGAIN, [false, true]),
            (Some("10.0.0.1"), SOON, [true, false]),
        ] {
            *address.lock() = now.map(|text| text.parse().unwrap());
            sleep(within * 2).await;
            assert_eq!(["10.0.0.1", "10.0.0.2"].map(guarded), expected, "{now:?} after {:?}", begun.elapsed());
        }
    }
}
