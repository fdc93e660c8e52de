//! Looks up the addresses of hosts so that nobody who may name a namespace or a service answers for another host.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use capstan_core::network::Target;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::net::lookup_host;

/// Looks up one name, for a port.
type Look = dyn Fn(String, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync;

/// What has the addresses of names. Cheap to clone.
#[derive(Clone)]
pub struct Names(Arc<Look>);

impl Names {
    /// Returns the addresses of a host, each with the port. One with a dot is looked up as a whole first, and within the domains of the machine
    /// only if it is among the `internal` and there is none ([`Target::names`]).
    ///
    /// # Errors
    /// That of the last name that was looked up.
    pub async fn find(&self, host: &str, port: u16, internal: bool) -> io::Result<Vec<SocketAddr>> {
        let target = Target::new(None, host, port);
        if let Ok(address) = target.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let mut found = Err(io::Error::other("it has no name"));
        for name in target.names(internal) {
            found = (self.0)(name, port).await;
            if found.is_ok() {
                break;
            }
        }
        found
    }

    /// Returns the addresses of a host as it is written, wherever it is found.
    ///
    /// # Errors
    /// That of the machine.
    pub async fn find_as_written(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let found = (self.0)(host.to_owned(), 0).await?;
        Ok(found.into_iter().map(|address| address.ip()).collect())
    }
}

impl Default for Names {
    /// Returns the names that the machine knows.
    fn default() -> Self {
        Self(Arc::new(|name, port| async move { Ok(lookup_host((name, port)).await?.collect()) }.boxed()))
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Names")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use parking_lot::Mutex;

    use super::*;

    /// Returns names of which these have this address, and those that were looked up.
    pub(crate) fn known(names: &[&str], address: &str) -> (Names, Arc<Mutex<Vec<String>>>) {
        let known: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let (asked, address) = (Arc::<Mutex<Vec<String>>>::default(), address.parse::<IpAddr>().unwrap());
        let notes = Arc::clone(&asked);
        let look = move |name: String, port: u16| {
            let found = if known.contains(&name) { Ok(vec![SocketAddr::new(address, port)]) } else { Err(unknown()) };
            notes.lock().push(name);
            std::future::ready(found).boxed()
        };
        (Names(Arc::new(look)), asked)
    }

    /// Returns names that all have this address, as it is at the time.
    pub(crate) fn changing(address: &Arc<Mutex<Option<IpAddr>>>) -> Names {
        let address = Arc::clone(address);
        let look = move |_: String, port: u16| {
            let found = address.lock().map(|address| vec![SocketAddr::new(address, port)]);
            std::future::ready(found.ok_or_else(unknown)).boxed()
        };
        Names(Arc::new(look))
    }

    fn unknown() -> io::Error {
        io::Error::other("no such name")
    }

    #[tokio::test]
    async fn a_host_with_a_dot_is_not_sought_within_the_domains_of_the_machine_unless_that_may_be_meant() {
        for (host, internal, names, expected, asked) in [
            // In a namespace `com` there is a service `example`, and somebody else has the name in full, too.
            ("api.example.com", false, &["api.example.com", "api.example.com."][..], true, &["api.example.com."][..]),
            ("api.example.com", true, &["api.example.com", "api.example.com."], true, &["api.example.com."]),
            ("api.example.com", false, &["api.example.com"], false, &["api.example.com."]),
            ("db.prod.svc", true, &["db.prod.svc"], true, &["db.prod.svc.", "db.prod.svc"]),
            ("registry", false, &["registry"], true, &["registry"]),
            ("10.0.0.7", false, &[], true, &[]),
            ("[::1]", false, &[], true, &[]),
        ] {
            let (known, looked) = known(names, "10.0.0.7");
            let found = known.find(host, 443, internal).await;
            assert_eq!((found.is_ok(), looked.lock().join(" ")), (expected, asked.join(" ")), "{host} {internal}");
        }
    }
}
