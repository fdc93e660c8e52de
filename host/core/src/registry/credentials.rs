//! Decides who it is that asks a registry, by a `config.json` as `docker login` writes it, and Secrets of type
//! `kubernetes.io/dockerconfigjson` have it.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::Reference;
use crate::granted::text_in;
use crate::text::said;

/// The names under which Docker Hub stands in a `config.json`.
const HUB: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];

/// Who asks.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Credentials {
    /// Anybody.
    #[default]
    Anonymous,
    /// A user.
    User {
        /// The name.
        name: String,
        /// What proves it.
        password: String,
    },
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
    #[serde(default, rename = "credHelpers")]
    helpers: BTreeMap<String, String>,
    #[serde(rename = "credsStore")]
    store: Option<String>,
}

#[derive(Deserialize)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
}

impl Credentials {
    /// Returns who asks for a reference: the entry of the registry, or of the longest part of its path that has one; anybody, if there is none.
    ///
    /// # Errors
    /// Why what stands there can't be used; nothing of what is secret.
    pub fn of_config(text: &str, reference: &Reference) -> Result<Self, String> {
        let config: Config = serde_json::from_str(text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            format!("it is no config.json of docker, from line {line}, column {column}")
        })?;
        if let Some(program) = config.helpers.get(reference.registry()) {
            return Err(helper(program, reference.registry()));
        }
        let entries = config.auths.iter().filter(|(key, _)| covers(key, reference));
        let Some((key, auth)) = entries.max_by_key(|(key, _)| parts(key).1.len()) else {
            return Ok(Self::Anonymous);
        };
        match auth.user() {
            Ok(Some((name, password))) => Ok(Self::User { name, password }),
            Ok(None) => match &config.store {
                Some(program) => Err(helper(program, key)),
                None => Err(format!("its entry `{}` has neither `auth` nor `username` and `password`", said(key))),
            },
            Err(why) => Err(format!("its entry `{}` {why}", said(key))),
        }
    }

    /// Returns the value of a header `Authorization` that proves it by itself; `None` for anybody.
    pub fn basic(&self) -> Option<String> {
        match self {
            Self::Anonymous => None,
            Self::User { name, password } => Some(format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))),
        }
    }
}

impl fmt::Debug for Credentials {
    /// Writes nothing that is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Anonymous => "Anonymous",
            Self::User { .. } => "User",
        })
    }
}

impl Entry {
    fn user(&self) -> Result<Option<(String, String)>, &'static str> {
        if self.identitytoken.as_ref().is_some_and(|token| !token.is_empty()) {
            return Err(
                "has an `identitytoken`, which is not supported; expected a user's name and a password, such as an access token",
            );
        }
        match (&self.auth, &self.username, &self.password) {
            (_, Some(name), Some(password)) => Ok(Some((name.clone(), password.clone()))),
            (Some(auth), _, _) if !auth.is_empty() => {
                let text = text_in(auth.trim()).ok_or("has an `auth` that is not base64 of a text")?;
                let (name, password) =
                    text.split_once(':').ok_or("has an `auth` without `:` between name and password")?;
                Ok(Some((name.to_owned(), password.trim_end_matches('\0').to_owned())))
            }
            _ => Ok(None),
        }
    }
}

fn helper(program: &str, of: &str) -> String {
    let (program, of) = (said(program), said(of));
    format!(
        "for `{of}` it names the program docker-credential-{program}, and no program is run; expected an entry of `auths` with the password"
    )
}

/// Returns host and path of the key of an entry, without what tools write around the host.
fn parts(key: &str) -> (&str, &str) {
    let key = key.split_once("://").map_or(key, |(_, rest)| rest).trim_end_matches('/');
    let (host, path) = key.split_once('/').unwrap_or((key, ""));
    (host, if matches!(path, "v1" | "v2") { "" } else { path })
}

/// Whether an entry is for the registry of a reference, and for its repository if it has a path.
fn covers(key: &str, reference: &Reference) -> bool {
    let (host, path) = parts(key);
    let hub = |host: &str| HUB.contains(&host);
    let same = host == reference.registry() || (hub(host) && hub(reference.registry()));
    let within = reference.repository().strip_prefix(path);
    same && (path.is_empty() || within.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(config: &str, reference: &str) -> String {
        match Credentials::of_config(config, &Reference::parse(reference).unwrap()) {
            Ok(Credentials::Anonymous) => "anybody".to_owned(),
            Ok(Credentials::User { name, password }) => format!("{name}/{password}"),
            Err(why) => why,
        }
    }

    #[test]
    fn who_asks_is_the_entry_that_fits_best() {
        // OC-3
        let auths = r#"{"auths":{
            "r.io": {"auth":"YTpi"},
            "r.io/org": {"username":"c","password":"d"},
            "https://index.docker.io/v1/": {"auth":"aDpp"}, "docker.io/org": {"username":"j","password":"k"},
            "r.io/old/v1": {"username":"l","password":"m"},
            "http://localhost:5000": {"auth":"dXNlcjpwOmFzcw=="},
            "bad.io": {"auth":"?"}, "none.io": {}, "colon.io": {"auth":"YQ=="},
            "token.io": {"auth":"YTpi","identitytoken":"x"}
        }}"#;
        for (reference, expected) in [
            ("r.io/a:1", "a/b"),
            ("r.io/org/a:1", "c/d"),
            ("r.io/organ/a:1", "a/b"),
            ("docker.io/webpage:1", "h/i"),
            ("docker.io/org/a:1", "j/k"),
            ("r.io/old/a:1", "a/b"),
            ("r.io/old/v1/a:1", "l/m"),
            ("localhost:5000/a:1", "user/p:ass"),
            ("other.io/a:1", "anybody"),
            ("xr.io/a:1", "anybody"),
            ("bad.io/a:1", "its entry `bad.io` has an `auth` that is not base64 of a text"),
            ("none.io/a:1", "its entry `none.io` has neither `auth` nor `username` and `password`"),
            ("colon.io/a:1", "its entry `colon.io` has an `auth` without `:` between name and password"),
            (
                "token.io/a:1",
                "its entry `token.io` has an `identitytoken`, which is not supported; expected a user's name and a password, such as an access token",
            ),
        ] {
            assert_eq!(found(auths, reference), expected, "{reference}");
        }
    }

    #[test]
    fn no_program_is_run_for_credentials_and_a_store_without_an_entry_means_anybody() {
        let helpers = r#"{"credHelpers":{"r.io":"gcr"},"credsStore":"desktop","auths":{"hub.io":{}}}"#;
        assert!(found(helpers, "r.io/a:1").starts_with("for `r.io` it names the program docker-credential-gcr"));
        assert!(
            found(helpers, "hub.io/a:1").starts_with("for `hub.io` it names the program docker-credential-desktop")
        );
        assert_eq!(found(helpers, "other.io/a:1"), "anybody");
        assert_eq!(found("{}", "r.io/a:1"), "anybody");
        assert_eq!(found("[", "r.io/a:1"), "it is no config.json of docker, from line 1, column 1");
    }

    #[test]
    fn what_is_secret_is_never_printed() {
        let user = Credentials::User { name: "a".to_owned(), password: "hush".to_owned() };
        assert_eq!((format!("{user:?}"), user.basic().unwrap().as_str()), ("User".to_owned(), "Basic YTpodXNo"));
    }
}
