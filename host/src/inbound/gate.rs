//! Decides whether a request from outside is let in: to which source it goes, whether it has the token, and whether there are too many. None
//! of it costs the component anything.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, header};
use capstan_core::bucket::{Bucket, Rate};
use capstan_core::rollout::values::Known;
use parking_lot::Mutex;
use subtle::ConstantTimeEq as _;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Requests to one source at once, with those whose body is still coming and those that wait for the component.
const AT_ONCE: usize = 32;

/// Sources of which something is remembered; beyond them, those that nobody asks just now are forgotten.
const SOURCES: usize = 4096;

/// The lengths that a token may have, in bytes.
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=512;

/// The time for which it is not told again that a source has no token.
const QUIET: Duration = Duration::from_mins(1);

/// The address of a source, and what follows it in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address<'a> {
    pub(super) operator: &'a str,
    pub(super) controller: &'a str,
    pub(super) source: &'a str,
    pub(super) rest: &'a str,
}

/// Why a request is not let in: what it is answered with.
pub(super) type Refusal = (StatusCode, String);

/// The sources that have been asked, and the plugins behind them.
#[derive(Default)]
pub(super) struct Gates {
    sources: Mutex<HashMap<Name, Gate>>,
    plugins: Mutex<HashMap<Unit, Permits>>,
}

/// Operator and plugin.
type Unit = (Arc<str>, Arc<str>);

/// How many permits there are, and they.
type Permits = (usize, Arc<Semaphore>);

/// Operator, controller and source.
type Name = (String, String, String);

#[derive(Default)]
struct Gate {
    rate: Bucket,
    under_way: usize,
    /// When it was told that there is no token.
    told: Option<Instant>,
}

/// A place among the requests to a source, until it is dropped.
pub(super) struct Place<'a> {
    gates: &'a Gates,
    name: Name,
}

/// Returns the source to which a path leads, `/OPERATOR/CONTROLLER/SOURCE/…`; `None` if it leads to none.
pub(super) fn address(path: &str) -> Option<Address<'_>> {
    let mut parts = path.strip_prefix('/')?.splitn(3, '/');
    let (operator, controller, last) = (parts.next()?, parts.next()?, parts.next()?);
    let (source, rest) = last.split_at(last.find('/').unwrap_or(last.len()));
    let named = ![operator, controller, source].contains(&"");
    named.then_some(Address { operator, controller, source, rest })
}

/// Checks that a request has the token; `known` is what is known of that, if it has been read.
///
/// # Errors
/// What to answer, and why there is no token to compare with.
pub(super) fn check(headers: &HeaderMap, known: Option<&Known>) -> Result<(), (Refusal, Option<String>)> {
    let unknown = |why: String| {
        let text = "the token of this source is not known to the daemon\n".to_owned();
        ((StatusCode::SERVICE_UNAVAILABLE, text), Some(why))
    };
    let token = match known {
        None => return Err(unknown("it has not been read yet".to_owned())),
        Some(Err(why)) => return Err(unknown(why.to_string())),
        Some(Ok(token)) => usable(token).map_err(unknown)?,
    };
    let given = headers.get(header::AUTHORIZATION).and_then(|value| bearer(value.to_str().ok()?));
    let refused = |text: &str| Err(((StatusCode::UNAUTHORIZED, text.to_owned()), None));
    match given {
        None => refused("a token is needed: Authorization: Bearer TOKEN\n"),
        Some(given) if fits(given, token) => Ok(()),
        Some(_) => refused("this is not the token of this source\n"),
    }
}

/// Returns a token without the line break that a file ends with.
fn usable(token: &str) -> Result<&str, String> {
    let token = token.trim_end_matches(['\r', '\n']);
    if !LENGTHS.contains(&token.len()) {
        return Err(format!("its token has {} bytes; expected 16 to 512", token.len()));
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("its token has spaces or other characters that a header can't have".to_owned());
    }
    Ok(token)
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Whether two tokens are the same, in a time that says nothing of either.
fn fits(given: &str, token: &str) -> bool {
    let [given, token] = [given, token].map(|text| ring::digest::digest(&ring::digest::SHA256, text.as_bytes()));
    given.as_ref().ct_eq(token.as_ref()).into()
}

// === impl Gates ===

impl Gates {
    /// Takes a place for a request to a source that may have so many a second.
    ///
    /// # Errors
    /// What to answer if there are too many.
    pub(super) fn enter(&self, to: &Address<'_>, per_second: u32, now: Instant) -> Result<Place<'_>, Refusal> {
        let mut sources = self.sources.lock();
        if sources.len() >= SOURCES {
            sources.retain(|_, gate| gate.under_way > 0);
        }
        let name = name(to);
        let gate = sources.entry(name.clone()).or_default();
        if gate.under_way >= AT_ONCE {
            let text = format!("{AT_ONCE} requests to this source are under way\n");
            return Err((StatusCode::SERVICE_UNAVAILABLE, text));
        }
        if !gate.rate.take_now(1, Rate::per_second(per_second), now) {
            let text = format!("more than {per_second} requests a second (requestsPerSecond)\n");
            return Err((StatusCode::TOO_MANY_REQUESTS, text));
        }
        gate.under_way += 1;
        Ok(Place { gates: self, name })
    }

    /// Returns the permits for calls of a plugin about requests: half of those that it has, so that runs have the others.
    pub(super) fn permits(&self, (operator, plugin): (&Arc<str>, &Arc<str>), concurrency: usize) -> Arc<Semaphore> {
        let permits = concurrency.div_ceil(2).max(1);
        let mut plugins = self.plugins.lock();
        if plugins.len() >= SOURCES {
            plugins.retain(|_, (_, semaphore)| Arc::strong_count(semaphore) > 1);
        }
        let new = || (permits, Arc::new(Semaphore::new(permits)));
        let known = plugins.entry((Arc::clone(operator), Arc::clone(plugin))).or_insert_with(new);
        if known.0 != permits {
            *known = new();
        }
        Arc::clone(&known.1)
    }

    /// Returns true if it is to be told now that a source has no token.
    pub(super) fn is_news(&self, to: &Address<'_>, now: Instant) -> bool {
        let mut sources = self.sources.lock();
        let told = &mut sources.entry(name(to)).or_default().told;
        let due = told.is_none_or(|told| now.saturating_duration_since(told) >= QUIET);
        if due {
            *told = Some(now);
        }
        due
    }
}

fn name(to: &Address<'_>) -> Name {
    let Address { operator, controller, source, .. } = to;
    ((*operator).to_owned(), (*controller).to_owned(), (*source).to_owned())
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(gate) = self.gates.sources.lock().get_mut(&self.name) {
            gate.under_way = gate.under_way.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_the_source_of_a_controller_of_an_operator() {
        // IB-3
        let found = |operator, controller, source, rest| Some(Address { operator, controller, source, rest });
        for (path, expected) in [
            ("/o/c/s", found("o", "c", "s", "")),
            ("/o/c/s/", found("o", "c", "s", "/")),
            ("/o/c/s/x/../y", found("o", "c", "s", "/x/../y")),
            ("/o/c", None),
            ("/o/c/", None),
            ("//c/s", None),
            ("/o//s", None),
            ("o/c/s", None),
            ("/", None),
            ("*", None),
        ] {
            assert_eq!(address(path), expected, "{path}");
        }
    }

    #[test]
    fn only_the_whole_token_of_the_source_lets_a_request_in() {
        // IB-3
        const TOKEN: &str = "0123456789abcdef";
        let known = |text: &str| Some(Ok(text.into()));
        let long = "x".repeat(513);
        for (given, known, expected) in [
            (Some("Bearer 0123456789abcdef"), known(TOKEN), 200),
            (Some("bearer  0123456789abcdef"), known("0123456789abcdef\n"), 200),
            (Some("Bearer 0123456789abcdeF"), known(TOKEN), 401),
            (Some("Bearer 0123456789abcde"), known(TOKEN), 401),
            (Some("Bearer 0123456789abcdef0"), known(TOKEN), 401),
            (Some("Bearer "), known(TOKEN), 401),
            (Some("Basic 0123456789abcdef"), known(TOKEN), 401),
            (Some(TOKEN), known(TOKEN), 401),
            (None, known(TOKEN), 401),
            // What is no token lets nobody in, also who knows it.
            (Some("Bearer "), known(""), 503),
            (Some("Bearer \n"), known("\n"), 503),
            (Some("Bearer short"), known("short"), 503),
            (Some("Bearer 0123456789 abcdef"), known("0123456789 abcdef"), 503),
            (Some(&long), known(&long), 503),
            (Some("Bearer 0123456789abcdef"), None, 503),
            (Some("Bearer 0123456789abcdef"), Some(Err("there is none".into())), 503),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(value) = given.and_then(|given| given.parse().ok()) {
                headers.insert(header::AUTHORIZATION, value);
            }
            let told = format!("{given:?} {known:?}");
            let status = check(&headers, known.as_ref()).map_or_else(|((status, _), _)| status.as_u16(), |()| 200);
            assert_eq!(status, expected, "{told}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_takes_so_many_a_second_and_so_many_at_once_and_another_one_its_own() {
        // IB-4
        let (gates, now) = (Gates::default(), Instant::now());
        let (one, other) = (address("/o/c/one").unwrap(), address("/o/c/other").unwrap());
        let status = |entered: &Result<Place<'_>, Refusal>| entered.as_ref().map_or_else(|e| e.0.as_u16(), |_| 200);
        let places: Vec<_> = (0..12).map(|_| gates.enter(&one, 2, now)).collect();
        let statuses: Vec<_> = places.iter().map(status).collect();
        assert_eq!(statuses, [vec![200; 10], vec![429; 2]].concat());
        assert_eq!(status(&gates.enter(&other, 2, now)), 200);
        assert_eq!(status(&gates.enter(&one, 2, now + Duration::from_secs(1))), 200);
        let busy = address("/o/c/busy").unwrap();
        let places: Vec<_> = (0..40).map(|_| gates.enter(&busy, 1000, now)).collect();
        let entered = places.iter().filter(|place| place.is_ok()).count();
        assert_eq!((entered, status(&gates.enter(&busy, 1000, now))), (AT_ONCE, 503));
        drop(places);
        assert_eq!(status(&gates.enter(&busy, 1000, now)), 200);
    }

    #[test]
    fn calls_about_requests_have_half_of_what_a_plugin_has() {
        // IB-4
        let gates = Gates::default();
        let unit = (&Arc::from("o"), &Arc::from("p"));
        for (concurrency, permits) in [(1, 1), (2, 1), (8, 4), (9, 5)] {
            assert_eq!(gates.permits(unit, concurrency).available_permits(), permits);
        }
        assert!(Arc::ptr_eq(&gates.permits(unit, 9), &gates.permits(unit, 9)));
    }
}
