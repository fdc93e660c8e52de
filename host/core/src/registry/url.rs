//! Decides where a redirect leads, whether it is followed, and whether it may know who asks (`OC-4`).

use std::fmt::{self, Write as _};

use crate::network::{Destination, Host, Scheme};
use crate::text::said;

use super::Reference;

/// The most bytes of a URL: those of object stores have long signatures.
const LONGEST: usize = 8 << 10;

/// Where something is, or is sent to.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    /// How.
    pub scheme: Scheme,
    /// The host and port as they are checked and connected to.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The path and, behind a `?`, the query.
    pub path: String,
}

impl Url {
    /// Returns a path below `/v2/` and the repository of a reference.
    pub fn of(reference: &Reference, scheme: Scheme, below: &str) -> Result<Self, String> {
        let at = format!("{}://{}/v2/{}/{below}", name(scheme), reference.server(), reference.repository());
        Self::parse(&at)
    }

    /// Reads a URL of `http` or `https`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("`{}` is no address: {why}", said(text));
        let (scheme, rest) = match text.split_once("://") {
            Some(("https", rest)) => (Scheme::Https, rest),
            Some(("http", rest)) => (Scheme::Http, rest),
            Some(_) | None => return Err(wrong("expected `https://`")),
        };
        if text.len() > LONGEST || !text.bytes().all(|b| b.is_ascii_graphic() && b != b'#') {
            return Err(wrong("it is too long, or has characters that none has"));
        }
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let to = Destination::http(&authority.to_ascii_lowercase()).map_err(|why| wrong(&why))?;
        let host = match to.host {
            Host::Address(address) => address.to_string(),
            Host::Name(name) => name.to_string(),
            Host::Below(_) => return Err(wrong("expected one host")),
        };
        Ok(Self { scheme, host, port: to.port.unwrap_or(scheme.port()), path })
    }

    /// Returns where the answer of this one leads: another URL, or a path of the same server.
    ///
    /// # Errors
    /// Why it is not followed: it is no address, or what was asked by TLS would go on without.
    pub fn follow(&self, location: &str) -> Result<Self, String> {
        let next = if location.starts_with('/') && !location.starts_with("//") {
            Self::parse(&format!("{}{location}", self.server()))?
        } else {
            Self::parse(location)?
        };
        if (self.scheme, next.scheme) == (Scheme::Https, Scheme::Http) {
            return Err(format!("it leads from https to {}", next.server()));
        }
        Ok(next)
    }

    /// Returns where a list goes on that this has begun, which is on the same server.
    ///
    /// # Errors
    /// Why it is not followed.
    pub fn next(&self, link: &str) -> Result<Self, String> {
        let path = self.path.split('?').next().unwrap_or_default();
        let next = match link {
            query if query.starts_with('?') => Self::parse(&format!("{}{path}{query}", self.server()))?,
            link => self.follow(link)?,
        };
        if next.same_server(self) { Ok(next) } else { Err(format!("it goes on at another server, {}", next.server())) }
    }

    /// Whether both are of the same server: only that may know who asks.
    pub fn same_server(&self, other: &Self) -> bool {
        (self.scheme, &self.host, self.port) == (other.scheme, &other.host, other.port)
    }

    /// Returns the same with more in its query.
    #[must_use]
    pub fn with(&self, query: &str) -> Self {
        let sign = if self.path.contains('?') { '&' } else { '?' };
        Self { path: format!("{}{sign}{query}", self.path), ..self.clone() }
    }

    /// Returns the server alone: `https://ghcr.io`.
    pub fn server(&self) -> String {
        format!("{}://{}", name(self.scheme), self.authority())
    }

    /// Returns the host with its port, unless that is the usual one, as the header `Host` has it.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == self.scheme.port() { host } else { format!("{host}:{}", self.port) }
    }

    /// Returns the host as addresses are checked against it, where `reference` is what the user has written: only its registry may be an
    /// address of this machine, and only where it is written so.
    pub fn destination(&self, reference: &Reference) -> Option<Destination> {
        let written = reference.destination(self.scheme)?;
        if written.host.names(&self.host) {
            return Some(written);
        }
        let host = Host::Name(self.host.as_str().into());
        Some(Destination { scheme: Some(self.scheme), host, port: Some(self.port), internal: true })
    }
}

impl fmt::Debug for Url {
    /// Writes the server alone: a query may have a signature that is a right.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.server())
    }
}

fn name(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Http => "http",
        Scheme::Https => "https",
    }
}

/// Writes a value of a query.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => escaped.push(char::from(byte)),
            _ => {
                // Writing to a string cannot fail.
                let _infallible = write!(escaped, "%{byte:02X}");
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_goes_on_at_the_same_server_or_not_at_all() {
        // SG-3
        let from = Url::parse("https://r.io/v2/a/referrers/d?n=1").unwrap();
        for (link, expected) in [
            ("/v2/a/referrers/d?last=b", Ok("/v2/a/referrers/d?last=b")),
            ("?last=b", Ok("/v2/a/referrers/d?last=b")),
            ("https://r.io:443/x", Ok("/x")),
            ("https://s.io/x", Err("it goes on at another server, https://s.io")),
            ("https://r.io:5000/x", Err("it goes on at another server, https://r.io:5000")),
            ("http://r.io/x", Err("it leads from https to http://r.io")),
        ] {
            let found = from.next(link);
            assert_eq!(found.as_ref().map(|url| &*url.path).map_err(String::as_str), expected, "{link}");
        }
        assert!(from.next("//s.io/x").is_err());
    }

    #[test]
    fn a_redirect_is_followed_but_never_from_tls_to_none() {
        // OC-4
        let at = Url::parse("https://r.io/v2/a/blobs/x").unwrap();
        for (location, expected) in [
            ("/other?x=1", "https://r.io /other?x=1 true"),
            ("https://R.io:443/z", "https://r.io /z true"),
            ("https://r.io:8443/z", "https://r.io:8443 /z false"),
            ("https://cdn.example.com?sig=a%2Fb", "https://cdn.example.com /?sig=a%2Fb false"),
            ("https://[2001:db8::1]:5000/z", "https://[2001:db8::1]:5000 /z false"),
            ("http://r.io/z", "it leads from https to http://r.io"),
            ("//cdn.example.com/z", "expected `https://`"),
            ("ftp://r.io/z", "expected `https://`"),
            ("z", "expected `https://`"),
            ("https://user:pass@r.io/z", "is no address"),
            ("https://r.io/a b", "characters that none has"),
            ("https://r.io/a#b", "characters that none has"),
            ("https://169.254.169.254/z", "can't be permitted"),
        ] {
            let found = match at.follow(location) {
                Ok(url) => format!("{} {} {}", url.server(), url.path, url.same_server(&at)),
                Err(why) => why,
            };
            assert!(found.contains(expected), "{location}: {found}");
        }
        let plain = Url::parse("http://127.0.0.1:5000/v2/").unwrap();
        assert!(plain.follow("https://r.io/z").is_ok());
    }

    #[test]
    fn only_the_registry_that_is_written_may_be_an_address_of_this_machine() {
        // OC-4
        let none = std::collections::BTreeSet::new();
        for (reference, url, address, open) in [
            ("127.0.0.1:5000/a:1", "http://127.0.0.1:5000/", "127.0.0.1", true),
            ("127.0.0.1:5000/a:1", "http://127.0.0.1:6000/", "127.0.0.1", true),
            ("r.io/a:1", "https://127.0.0.1/", "127.0.0.1", false),
            ("r.io/a:1", "https://r.io/", "127.0.0.1", false),
            ("r.io/a:1", "https://r.io/", "10.0.0.1", true),
            ("r.io/a:1", "https://cdn.io/", "10.0.0.1", true),
            ("r.io/a:1", "https://cdn.io/", "169.254.169.254", false),
            ("r.io/a:1", "https://cdn.io/", "8.8.8.8", true),
        ] {
            let to = Url::parse(url).unwrap().destination(&Reference::parse(reference).unwrap()).unwrap();
            assert_eq!(to.reaches(address.parse().unwrap(), &none).is_ok(), open, "{reference} {url} {address}");
        }
    }
}
