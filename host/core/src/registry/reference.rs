//! Reads references to what is in a registry: `ghcr.io/org/webpage:1.2@sha256:…`.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::network::{Destination, Host, Scheme};
use crate::text::said;

/// The most bytes of the name of a repository, and of a tag.
const LONGEST: [usize; 2] = [255, 128];

/// What a reference looks like.
pub const WHAT: &str = "a reference such as `ghcr.io/org/webpage:1.2`, `ghcr.io/org/webpage@sha256:…`, or both";

/// The name of Docker Hub in references, by other names that it has, and what answers for it.
const HUB: &str = "docker.io";
const HUB_TOO: [&str; 2] = ["index.docker.io", "registry-1.docker.io"];
const HUB_SERVER: &str = "registry-1.docker.io";

/// A SHA-256, written as `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(Arc<str>);

/// An artifact of a registry, by tag or digest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// The registry's host, with a port if it has one.
    registry: Arc<str>,
    repository: Arc<str>,
    tag: Option<Arc<str>>,
    digest: Option<Digest>,
}

// === impl Digest ===

impl Digest {
    /// Returns the digest of 32 bytes.
    pub fn of(sha256: &[u8]) -> Self {
        let mut text = "sha256:".to_owned();
        for byte in sha256 {
            // Writing to a string cannot fail.
            let _infallible = write!(text, "{byte:02x}");
        }
        Self(text.into())
    }

    /// Returns the digest of some bytes.
    pub fn sha256(bytes: &[u8]) -> Self {
        Self::of(digest(&SHA256, bytes).as_ref())
    }

    /// Reads a digest.
    ///
    /// # Errors
    /// What was found, and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let hex = text.strip_prefix("sha256:");
        let right =
            |hex: &str| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        match hex {
            Some(hex) if right(hex) => Ok(Self(text.into())),
            Some(_) | None => {
                Err(format!("`{}` is no digest; expected `sha256:` and 64 hexadecimal digits", said(text)))
            }
        }
    }

    /// Returns the 32 bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let digits: Vec<_> = self.hex().chars().filter_map(|digit| u8::try_from(digit.to_digit(16)?).ok()).collect();
        digits.chunks_exact(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect()
    }

    /// Returns the 64 hexadecimal digits.
    pub fn hex(&self) -> &str {
        self.0.strip_prefix("sha256:").unwrap_or(&self.0)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

// === impl Reference ===

impl Reference {
    /// Reads a reference, which has the host of its registry, and a tag, a digest, or both.
    ///
    /// # Errors
    /// What is wrong, and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some((scheme, rest)) = text.split_once("://") {
            return Err(format!("expected no `{}://` before `{}`", said(scheme), said(rest)));
        }
        let (named, digest) = match text.split_once('@') {
            Some((named, digest)) => (named, Some(Digest::parse(digest)?)),
            None => (text, None),
        };
        let (registry, rest) = named.split_once('/').unwrap_or(("", named));
        if !is_registry(registry) {
            return Err(format!("the host of the registry is missing; expected {WHAT}"));
        }
        let destination = Destination::http(registry).map_err(|why| format!("the registry: {why}"))?;
        if matches!(destination.host, Host::Below(_)) {
            return Err(format!("the registry is one host; expected {WHAT}"));
        }
        let (repository, tag) = match rest.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (rest, None),
        };
        if !is_repository(repository) {
            return Err(format!(
                "`{}` is no repository; expected lower-case letters and digits, with `.`, `_`, `-` and `/` between them",
                said(repository)
            ));
        }
        if let Some(tag) = tag.filter(|tag| !is_tag(tag)) {
            return Err(format!(
                "`{}` is no tag; expected letters, digits, `_`, `.` and `-`, at most 128, and no `.` or `-` first",
                said(tag)
            ));
        }
        if tag.is_none() && digest.is_none() {
            return Err(format!("it has no tag and no digest; expected such as `{}:1.2`", said(named)));
        }
        let hub = registry == HUB || HUB_TOO.contains(&registry);
        let repository =
            if hub && !repository.contains('/') { format!("library/{repository}") } else { repository.to_owned() };
        let registry = if hub { HUB } else { registry };
        Ok(Self { registry: registry.into(), repository: repository.into(), tag: tag.map(Into::into), digest })
    }

    /// Returns the host of the registry as it is written, with its port.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Returns the host that answers for the registry, with its port.
    pub fn server(&self) -> &str {
        if &*self.registry == HUB { HUB_SERVER } else { &self.registry }
    }

    /// Returns the name of the repository.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Returns the repository with its registry: the name under which components are signed.
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// Returns the tag; `None` if there is none.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// Returns the digest of its manifest; `None` if it is whatever the tag names at the time.
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// Returns what the registry is asked for: the digest if there is one, else the tag.
    pub fn asked(&self) -> &str {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => &digest.0,
            (None, Some(tag)) => tag,
            (None, None) => "latest",
        }
    }

    /// Returns the same with this digest, so that it never is anything else.
    #[must_use]
    pub fn at(&self, digest: &Digest) -> Self {
        Self { digest: Some(digest.clone()), ..self.clone() }
    }

    /// Returns the registry as addresses are checked against it. One that is written as an address is reached there; a name, also at
    /// addresses of private networks, as registries of the cluster have.
    pub fn destination(&self, scheme: Scheme) -> Option<Destination> {
        let mut destination = Destination::http(self.server()).ok()?;
        destination.scheme = Some(scheme);
        destination.internal = true;
        Some(destination)
    }

    /// Whether the registry is written as an address of this machine.
    pub fn is_here(&self) -> bool {
        let destination = Destination::http(&self.registry).ok();
        destination.is_some_and(|to| matches!(to.host, Host::Address(address) if address.is_loopback()))
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        self.digest.as_ref().map_or(Ok(()), |digest| write!(f, "@{digest}"))
    }
}

/// Whether the first part of a reference is a host, and not the first part of a repository of who knows which registry.
fn is_registry(text: &str) -> bool {
    text.contains(['.', ':']) || text == "localhost"
}

fn is_repository(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let part = |part: &str| {
        let mut gaps = part.split(is_word);
        let ends = part.starts_with(is_word) && part.ends_with(is_word);
        ends && gaps.all(|gap| matches!(gap, "" | "." | "_" | "__") || gap.bytes().all(|b| b == b'-'))
    };
    text.len() <= LONGEST[0] && text.split('/').all(part)
}

fn is_tag(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (1..=LONGEST[1]).contains(&text.len())
        && text.starts_with(is_word)
        && text.chars().all(|c| is_word(c) || matches!(c, '.' | '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn a_reference_has_a_registry_and_a_tag_or_a_digest() {
        // OC-1
        let long = format!("r.io/{}:1", "a".repeat(256));
        for (text, expected) in [
            ("ghcr.io/org/webpage:1.2", "ghcr.io org/webpage 1.2"),
            ("ghcr.io/org/webpage@sha256:HEX", "ghcr.io org/webpage sha256:HEX"),
            ("ghcr.io/org/webpage:1.2@sha256:HEX", "ghcr.io org/webpage sha256:HEX"),
            ("localhost:5000/a:b", "localhost:5000 a b"),
            ("127.0.0.1:5000/a/b__c.d--e:v1.0-rc_2", "127.0.0.1:5000 a/b__c.d--e v1.0-rc_2"),
            ("[::1]:5000/a:1", "[::1]:5000 a 1"),
            ("docker.io/webpage:1", "registry-1.docker.io library/webpage 1"),
            ("index.docker.io/org/webpage:1", "registry-1.docker.io org/webpage 1"),
            ("", "the host of the registry is missing"),
            ("webpage:1", "the host of the registry is missing"),
            ("org/webpage:1", "the host of the registry is missing"),
            ("oci://ghcr.io/org/webpage:1", "expected no `oci://` before `ghcr.io/org/webpage:1`"),
            ("ghcr.io/org/webpage", "it has no tag and no digest; expected such as `ghcr.io/org/webpage:1.2`"),
            ("ghcr.io/org/webpage:", "`` is no tag"),
            ("ghcr.io/org/webpage:.1", "`.1` is no tag"),
            ("ghcr.io/org/webpage:a/b", "`a/b` is no tag"),
            ("ghcr.io/Org/webpage:1", "`Org/webpage` is no repository"),
            ("ghcr.io/org//webpage:1", "`org//webpage` is no repository"),
            ("ghcr.io/org/a..b:1", "`org/a..b` is no repository"),
            ("ghcr.io/../x:1", "`../x` is no repository"),
            ("ghcr.io/a?b:1", "`a?b` is no repository"),
            ("ghcr.io/:1", "`` is no repository"),
            (long.as_str(), "is no repository"),
            ("GHCR.io/a:1", "the registry: expected a host"),
            ("ghcr.io:0/a:1", "the registry: `0` is no port"),
            ("user:x@ghcr.io/a:1", "`ghcr.io/a:1` is no digest"),
            ("*.ghcr.io/a:1", "the registry is one host"),
            ("169.254.169.254/a:1", "the registry: 169.254.169.254 can't be permitted"),
            ("ghcr.io/a@sha256:12", "`sha256:12` is no digest"),
            ("ghcr.io/a@sha512:HEX", "is no digest"),
        ] {
            let found = match Reference::parse(&text.replace("HEX", HEX)) {
                Ok(found) => format!("{} {} {}", found.server(), found.repository(), found.asked()),
                Err(why) => why,
            };
            assert!(found.contains(&expected.replace("HEX", HEX)), "{text}: {found}");
        }
    }

    #[test]
    fn a_reference_is_written_as_it_was_read() {
        for text in ["ghcr.io/a/b:1", "ghcr.io/a/b:1@sha256:HEX", "[::1]:5000/a@sha256:HEX"] {
            let text = text.replace("HEX", HEX);
            assert_eq!(Reference::parse(&text).unwrap().to_string(), text);
        }
    }
}
