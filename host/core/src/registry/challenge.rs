//! Decides what a registry wants to see before it answers: nothing, a password, or a token that another server gives for one.

use serde::Deserialize;

use super::url::{Url, escaped};
use crate::network::Scheme;

/// The most bytes of a token.
const LONGEST: usize = 16 << 10;

/// What `WWW-Authenticate` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// The user's name and password.
    Basic,
    /// A token, from this address.
    Bearer {
        /// Where tokens are given, without what one is asked for.
        realm: String,
        /// Who is to take it.
        service: Option<String>,
    },
}

/// What is done with the repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It is read.
    Pull,
    /// It is written, too.
    Push,
}

/// What a server of tokens answers.
#[derive(Deserialize)]
struct Given {
    token: Option<String>,
    access_token: Option<String>,
}

impl Challenge {
    /// Returns what headers of this kind ask for; a token rather than a password, as that goes to fewer. `None`: what is not known here.
    pub fn of<'a>(headers: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut found = None;
        for header in headers {
            let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
            if scheme.eq_ignore_ascii_case("bearer") {
                let all = parameters(rest);
                let get = |name: &str| {
                    all.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone())
                };
                if let Some(realm) = get("realm") {
                    return Some(Self::Bearer { realm, service: get("service") });
                }
            }
            if scheme.eq_ignore_ascii_case("basic") {
                found = Some(Self::Basic);
            }
        }
        found
    }
}

impl Access {
    fn words(self) -> &'static str {
        match self {
            Self::Pull => "pull",
            Self::Push => "pull,push",
        }
    }
}

/// Returns where a token for a repository is asked for.
///
/// # Errors
/// Why the realm is not asked: it is no address, or a registry with TLS names one without.
pub fn realm(
    (realm, service): (&str, Option<&str>),
    (repository, access): (&str, Access),
    registry: Scheme,
) -> Result<Url, String> {
    let url = Url::parse(realm)?;
    if (registry, url.scheme) == (Scheme::Https, Scheme::Http) {
        return Err(format!("it sends those who ask to {}, without TLS", url.server()));
    }
    let scope = escaped(&format!("repository:{repository}:{}", access.words()));
    let service = service.map(|service| format!("service={}&", escaped(service))).unwrap_or_default();
    Ok(url.with(&format!("{service}scope={scope}")))
}

/// Reads the token in an answer.
///
/// # Errors
/// What is wrong; nothing of what is in it.
pub fn token(answer: &[u8]) -> Result<String, String> {
    let Given { token, access_token } =
        serde_json::from_slice(answer).map_err(|_| "its answer is not JSON of a token".to_owned())?;
    let token = token.filter(|token| !token.is_empty()).or(access_token).ok_or("its answer has no token")?;
    if token.len() > LONGEST || !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("its token is too long, or no header can have it".to_owned());
    }
    Ok(token)
}

/// Reads `name="value",other=word`; in quotes, `\` takes the next character as it is.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((name, value)) = rest.split_once('=') {
        let name = name.trim().trim_start_matches(',').trim();
        let mut taken = String::new();
        let mut end = value.len();
        if let Some(quoted) = value.strip_prefix('"') {
            let mut chars = quoted.char_indices();
            while let Some((at, c)) = chars.next() {
                match c {
                    '"' => {
                        end = at + 2;
                        break;
                    }
                    '\\' => taken.extend(chars.next().map(|(_, c)| c)),
                    c => taken.push(c),
                }
            }
        } else {
            end = value.find(',').unwrap_or(value.len());
            value.get(..end).unwrap_or_default().trim().clone_into(&mut taken);
        }
        found.push((name.to_owned(), taken));
        rest = value.get(end..).unwrap_or_default();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_says_what_the_registry_wants_to_see() {
        let bearer = |realm: &str, service: Option<&str>| {
            Some(Challenge::Bearer { realm: realm.to_owned(), service: service.map(str::to_owned) })
        };
        for (headers, expected) in [
            (&["Basic realm=\"x\""][..], Some(Challenge::Basic)),
            (&["basic"], Some(Challenge::Basic)),
            (
                &["Bearer realm=\"https://a.io/t\",service=\"r.io\",scope=\"repository:x:pull\""],
                bearer("https://a.io/t", Some("r.io")),
            ),
            (&["BEARER Realm=https://a.io/t , service=\"a, \\\"b\\\"\""], bearer("https://a.io/t", Some("a, \"b\""))),
            (&["Basic realm=\"x\"", "Bearer realm=\"https://a.io\""], bearer("https://a.io", None)),
            (&["Bearer service=\"r.io\""], None),
            (&["Bearer realm=\"open"], bearer("open", None)),
            (&["Negotiate"], None),
            (&[""], None),
            (&[], None),
        ] {
            assert_eq!(Challenge::of(headers.iter().copied()), expected, "{headers:?}");
        }
    }

    #[test]
    fn a_token_is_asked_for_by_tls_alone_if_the_registry_has_it() {
        // OC-4
        let asked = |at, access, scheme| realm((at, Some("r io")), ("org/a", access), scheme);
        let (http, https) = (Scheme::Http, Scheme::Https);
        let url = asked("https://a.io/token?x=1", Access::Pull, https).unwrap();
        assert_eq!(url.path, "/token?x=1&service=r%20io&scope=repository%3Aorg%2Fa%3Apull");
        assert!(asked("https://a.io/t", Access::Push, http).unwrap().path.ends_with("pull%2Cpush"));
        assert!(asked("http://a.io/t", Access::Pull, http).is_ok());
        let said = asked("http://a.io/t", Access::Pull, https).unwrap_err();
        assert_eq!(said, "it sends those who ask to http://a.io, without TLS");
    }

    #[test]
    fn a_token_is_taken_if_a_header_can_have_it() {
        let long = format!("{{\"token\":\"{}\"}}", "a".repeat(LONGEST + 1));
        for (answer, expected) in [
            (r#"{"token":"a.b","expires_in":60}"#, "a.b"),
            (r#"{"token":"","access_token":"c"}"#, "c"),
            (r#"{"expires_in":60}"#, "its answer has no token"),
            (r#"{"token":"a\r\nb"}"#, "its token is too long, or no header can have it"),
            (&long, "its token is too long, or no header can have it"),
            ("<html>", "its answer is not JSON of a token"),
        ] {
            assert_eq!(token(answer.as_bytes()).unwrap_or_else(|why| why), expected, "{answer:.60}");
        }
    }
}
