//! Decides where a component may connect to: which destinations a manifest names, and which of their addresses are closed.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use crate::object::labels::is_domain;
use crate::text::said_within;

mod address;

pub use address::{Closed, plain};

/// Bytes of the name of a host.
const LONGEST: usize = 253;

/// Where components may connect to, as one entry of a manifest says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Destination {
    /// By what; `None`: by what the entry's list is for.
    pub scheme: Option<Scheme>,
    /// To whom.
    pub host: Host,
    /// At which port; `None`: that of the scheme.
    pub port: Option<u16>,
    /// Whether the host may have addresses of private networks, as those of the cluster are.
    pub internal: bool,
}

/// How HTTP is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scheme {
    /// Without TLS.
    Http,
    /// By TLS.
    Https,
}

/// Hosts that an entry names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    /// An address.
    Address(IpAddr),
    /// The host of this name.
    Name(Arc<str>),
    /// All hosts below this domain, not itself: `*.example.com`.
    Below(Arc<str>),
}

/// A connection that a component asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// By what; `None`: TCP.
    pub scheme: Option<Scheme>,
    /// To whom, as a component has written it, in lower case.
    pub host: String,
    /// At which port; 0 where that is not known yet.
    pub port: u16,
}

// === impl Scheme ===

impl Scheme {
    /// Returns the port of who names none.
    pub fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

// === impl Destination ===

impl Destination {
    /// Reads an entry for HTTP: `example.com`, `https://*.example.com:8443`.
    ///
    /// # Errors
    /// What would be right.
    pub fn http(text: &str) -> Result<Self, String> {
        let (scheme, rest) = match text.split_once("://") {
            None => (None, text),
            Some(("http", rest)) => (Some(Scheme::Http), rest),
            Some(("https", rest)) => (Some(Scheme::Https), rest),
            Some((other, _)) => return Err(format!("`{other}` is neither `http` nor `https`")),
        };
        if rest.contains(['/', '?', '#']) {
            return Err("expected a host without a path: all paths of a host are permitted, or none".to_owned());
        }
        let (host, port) = divided(rest)?;
        Ok(Self { scheme, host: Host::read(host)?, port, internal: false })
    }

    /// Reads an entry for TCP: `db.example.com:5432`.
    ///
    /// # Errors
    /// What would be right.
    pub fn tcp(text: &str) -> Result<Self, String> {
        if text.contains('/') {
            return Err("expected a host and a port, such as `db.example.com:5432`, without a scheme".to_owned());
        }
        let (host, port) = divided(text)?;
        if port.is_none() {
            return Err(format!("the port is missing; expected such as `{text}:5432`"));
        }
        Ok(Self { scheme: None, host: Host::read(host)?, port, internal: false })
    }

    /// Whether it names what a component asks for.
    pub fn names(&self, target: &Target) -> bool {
        let scheme = self.scheme.is_none_or(|scheme| Some(scheme) == target.scheme);
        let port = self.port.or(target.scheme.map(Scheme::port));
        scheme && port == Some(target.port) && self.host.names(&target.host)
    }

    /// Whether it permits all that another entry does.
    pub fn covers(&self, other: &Self) -> bool {
        let scheme = self.scheme.is_none() || self.scheme == other.scheme;
        let internal = self.internal || !other.internal;
        scheme && internal && self.port == other.port && self.host.covers(&other.host)
    }

    /// Returns the first entry that names what a component asks for; those with a host in full go before patterns.
    pub fn find<'a>(entries: &'a [Self], target: &Target) -> Option<&'a Self> {
        let mut fits = entries.iter().filter(|entry| entry.names(target));
        let first = fits.clone().find(|entry| !matches!(entry.host, Host::Below(_)));
        first.or_else(|| fits.next())
    }

    /// Whether a host that this entry names may be reached at an address. The `closed` ones are reached only where they are
    /// written as an address themselves.
    ///
    /// # Errors
    /// Why not.
    pub fn reaches(&self, address: IpAddr, closed: &BTreeSet<IpAddr>) -> Result<(), Closed> {
        let named = match self.host {
            Host::Address(named) => plain(named) == plain(address),
            Host::Name(_) | Host::Below(_) => false,
        };
        address::check(address, closed, named, self.internal)
    }
}

impl fmt::Display for Destination {
    /// Writes it as the manifest does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(scheme) = self.scheme {
            write!(f, "{}://", scheme.name())?;
        }
        write!(f, "{}", self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// Splits `host:port`, `[::1]:port`, `host`.
fn divided(text: &str) -> Result<(&str, Option<u16>), String> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, rest)) => (host, Some(rest.strip_prefix(':').unwrap_or(rest))),
        None if text.matches(':').count() > 1 => {
            return Err("expected an address of IPv6 in brackets, such as `[2001:db8::1]:8443`".to_owned());
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map(|port| match port.parse::<u16>() {
        Ok(number) if number > 0 && number.to_string() == port => Ok(number),
        Ok(_) | Err(_) => Err(format!("`{port}` is no port; expected a number from 1 to 65535")),
    });
    Ok((host, port.transpose()?))
}

// === impl Host ===

impl Host {
    fn read(text: &str) -> Result<Self, String> {
        const RIGHT: &str = "a host such as `example.com`, `*.example.com` or `192.0.2.1`";
        if let Ok(address) = text.parse::<IpAddr>() {
            let address = plain(address);
            match address::never(address) {
                None => {}
                Some(Closed::Nobody) => return Err(format!("nobody is at {address}; expected {RIGHT}")),
                Some(why) => return Err(format!("{address} can't be permitted: {why}")),
            }
            return Ok(Self::Address(address));
        }
        if let Some(domain) = text.strip_prefix("*.") {
            let right = is_host(domain) && domain.contains('.');
            let why = "expected a domain of two parts or more after `*.`, such as `*.example.com`";
            return right.then(|| Self::Below(domain.into())).ok_or_else(|| why.to_owned());
        }
        if is_host(text) { Ok(Self::Name(text.into())) } else { Err(format!("expected {RIGHT}, in lower case")) }
    }

    /// Whether it names all that another entry does.
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Below(domain), Self::Name(name) | Self::Below(name)) => {
                self == other || name.strip_suffix(&**domain).is_some_and(|rest| rest.ends_with('.'))
            }
            (own, other) => own == other,
        }
    }

    /// Whether it names a host, written as a [`Target`] has it.
    pub fn names(&self, host: &str) -> bool {
        match self {
            Self::Address(address) => host.parse::<IpAddr>().is_ok_and(|host| plain(host) == *address),
            Self::Name(name) => **name == *host,
            Self::Below(domain) => {
                let below = host.strip_suffix(&**domain).and_then(|rest| rest.strip_suffix('.'));
                below.is_some_and(|below| !below.is_empty())
            }
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Name(name) => f.write_str(name),
            Self::Below(domain) => write!(f, "*.{domain}"),
        }
    }
}

/// Whether a text is the name of a host, and nothing that a resolver would take for a number.
fn is_host(text: &str) -> bool {
    let last = text.rsplit('.').next().unwrap_or_default();
    is_domain(text) && last.starts_with(|c: char| c.is_ascii_alphabetic())
}

// === impl Target ===

impl Target {
    /// Returns what a component asks for. A host may have the brackets of an address, capitals, or the dot of the root.
    pub fn new(scheme: Option<Scheme>, host: &str, port: u16) -> Self {
        let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        Self { scheme, host, port }
    }
}

impl Target {
    /// Returns the names to look up, one after the other until one is known. With the dot of the root, a name is not sought within the
    /// domains of the machine: there, anybody who may name a namespace or a service could answer for a host such as `example.com`. One that is
    /// among the `internal` may be meant so, such as `db.prod.svc`, if there is none in full.
    pub fn names(&self, internal: bool) -> Vec<String> {
        let host = &self.host;
        let whole = host.contains('.').then(|| format!("{host}."));
        let within = (internal || whole.is_none()).then(|| host.clone());
        whole.into_iter().chain(within).collect()
    }
}

impl fmt::Display for Target {
    /// Writes it as a manifest names it, and no more than what it may be in length.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheme, host, port } = self;
        if let Some(scheme) = scheme {
            write!(f, "{}://", scheme.name())?;
        }
        let host = said_within(host, LONGEST);
        if host.contains(':') {
            write!(f, "[{host}]")?;
        } else {
            f.write_str(&host)?;
        }
        if *port == 0 { Ok(()) } else { write!(f, ":{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Target {
        let (scheme, rest) = match text.split_once("://") {
            Some(("http", rest)) => (Some(Scheme::Http), rest),
            Some((_, rest)) => (Some(Scheme::Https), rest),
            None => (None, text),
        };
        let (host, port) = rest.rsplit_once(':').unwrap();
        Target::new(scheme, host, port.parse().unwrap())
    }

    #[test]
    fn an_entry_for_http_names_hosts_by_scheme_and_port() {
        for (entry, asked, named) in [
            ("example.com", "https://example.com:443", true),
            ("example.com", "http://example.com:80", true),
            ("example.com", "http://EXAMPLE.com.:80", true),
            ("example.com", "http://example.com:443", false),
            ("example.com", "https://a.example.com:443", false),
            ("example.com", "https://badexample.com:443", false),
            ("example.com:8080", "http://example.com:8080", true),
            ("example.com:8080", "http://example.com:80", false),
            ("https://example.com", "https://example.com:443", true),
            ("https://example.com", "http://example.com:80", false),
            ("http://example.com:8080", "https://example.com:8080", false),
            ("*.example.com", "https://a.example.com:443", true),
            ("*.example.com", "https://a.b.example.com:443", true),
            ("*.example.com", "https://example.com:443", false),
            ("*.example.com", "https://.example.com:443", false),
            ("*.example.com", "https://aexample.com:443", false),
            ("*.example.com", "https://example.com.evil.org:443", false),
            ("127.0.0.1", "http://127.0.0.1:80", true),
            ("127.0.0.1", "http://[::ffff:127.0.0.1]:80", true),
            ("127.0.0.1", "http://127.1:80", false),
            ("http://[::1]:8080", "http://[::1]:8080", true),
            ("http://[::1]:8080", "http://[0:0::1]:8080", true),
        ] {
            assert_eq!(Destination::http(entry).unwrap().names(&target(asked)), named, "{entry} {asked}");
        }
    }

    #[test]
    fn an_entry_for_tcp_names_a_host_and_a_port() {
        for (entry, asked, named) in [
            ("db.prod.svc:5432", "db.prod.svc:5432", true),
            ("db.prod.svc:5432", "db.prod.svc:5433", false),
            ("*.db.example.com:5432", "a.db.example.com:5432", true),
            ("10.0.0.1:5432", "10.0.0.1:5432", true),
        ] {
            assert_eq!(Destination::tcp(entry).unwrap().names(&target(asked)), named, "{entry} {asked}");
        }
    }

    #[test]
    fn entries_are_shown_as_they_are_written() {
        for text in ["example.com", "https://*.example.com:8443", "http://[::1]:8080", "10.0.0.1:80"] {
            assert_eq!(Destination::http(text).unwrap().to_string(), text);
        }
        assert_eq!(target("https://[::1]:8443").to_string(), "https://[::1]:8443");
        assert_eq!(target("db.svc:5432").to_string(), "db.svc:5432");
        assert_eq!(target("db.svc:0").to_string(), "db.svc");
    }

    #[test]
    fn what_is_no_destination_is_told() {
        for (text, why) in [
            ("", "expected a host such as"),
            ("*", "expected a host such as"),
            ("*.com", "two parts or more after `*.`"),
            ("a.*.com", "expected a host such as"),
            ("Example.com", "in lower case"),
            ("ftp://example.com", "`ftp` is neither `http` nor `https`"),
            ("https://example.com/", "without a path"),
            ("https://example.com/v1", "without a path"),
            ("example.com:0", "`0` is no port"),
            ("example.com:080", "`080` is no port"),
            ("example.com:99999", "`99999` is no port"),
            ("example.com:", "`` is no port"),
            ("::1", "in brackets"),
            ("[::1", "in brackets"),
            ("0.0.0.0", "nobody is at 0.0.0.0"),
            ("[::]", "nobody is at ::"),
            ("224.0.0.1", "nobody is at 224.0.0.1"),
            ("169.254.169.254", "169.254.169.254 can't be permitted: it is an address of the machine's link"),
            ("[fd00:ec2::254]", "fd00:ec2::254 can't be permitted"),
            ("[64:ff9b::a9fe:a9fe]", "169.254.169.254 can't be permitted"),
            ("127.1", "expected a host such as"),
            ("2130706433", "expected a host such as"),
            ("0x7f000001", "expected a host such as"),
            ("user@example.com", "expected a host such as"),
        ] {
            let error = Destination::http(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        for (text, why) in [("db.example.com", "the port is missing"), ("tcp://db.example.com:1", "without a scheme")] {
            let error = Destination::tcp(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_name_is_not_sought_within_the_domains_of_the_machine_unless_it_is_an_internal_one_that_there_is_not_in_full() {
        for (host, internal, names) in [
            ("example.com", false, vec!["example.com."]),
            ("example.com.", false, vec!["example.com."]),
            ("db.prod.svc", true, vec!["db.prod.svc.", "db.prod.svc"]),
            ("localhost", false, vec!["localhost"]),
            ("db", true, vec!["db"]),
        ] {
            assert_eq!(Target::new(None, host, 80).names(internal), names, "{host}");
        }
    }

    #[test]
    fn a_host_in_full_goes_before_a_pattern() {
        let entries = ["*.example.com", "a.example.com"].map(|text| Destination::http(text).unwrap());
        let found = |asked| Destination::find(&entries, &target(asked)).map(ToString::to_string);
        assert_eq!(found("https://a.example.com:443").as_deref(), Some("a.example.com"));
        assert_eq!(found("https://b.example.com:443").as_deref(), Some("*.example.com"));
        assert_eq!(found("https://example.org:443"), None);
    }
}
