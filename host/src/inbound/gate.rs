//! Decides whether a request from outside is let in: to which source it goes, whether it has the token, and whether there are too many. None
//! of it costs the component anything.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, StatusCode};
use capstan_core::bucket::{Bucket, Rate};
use capstan_core::rollout::values::Known;
use parking_lot::Mutex;
use subtle::ConstantTimeEq as _;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::http::bearer;

/// Requests to one source at once, with those whose body is still coming and those that wait for the component.
const AT_ONCE: usize = 32;

/// The same to all sources of an operator: so that one leaves most connections to the others.
const OF_OPERATOR: usize = 64;

/// Of these, so many at most to sources that anybody may send to, so that those with a token have the others.
const OPEN: usize = 32;

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
    asked: Mutex<Asked>,
    plugins: Mutex<HashMap<(Unit, usize), Permits>>,
}

#[derive(Default)]
struct Asked {
    sources: HashMap<Name, Gate>,
    /// The operators of which requests are under way.
    operators: HashMap<String, Crowd>,
}

/// The requests of an operator that are under way.
#[derive(Default)]
struct Crowd {
    all: usize,
    /// Those to sources that anybody may send to.
    open: usize,
}

/// Operator and plugin.
type Unit = (Arc<str>, Arc<str>);

/// The calls of a plugin that may be about requests.
#[derive(Clone)]
pub(super) struct Permits {
    all: Arc<Semaphore>,
    /// Those about requests that anybody may send: half of them.
    open: Arc<Semaphore>,
}

/// Permits for one call, until they are dropped.
pub(super) struct Permit {
    _all: OwnedSemaphorePermit,
    _open: Option<OwnedSemaphorePermit>,
}

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
    open: bool,
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
    let refused = |text: &str| Err(((StatusCode::UNAUTHORIZED, text.to_owned()), None));
    match bearer(headers) {
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

/// Whether two tokens are the same, in a time that says nothing of either.
fn fits(given: &str, token: &str) -> bool {
    let [given, token] = [given, token].map(|text| ring::digest::digest(&ring::digest::SHA256, text.as_bytes()));
    given.as_ref().ct_eq(token.as_ref()).into()
}

// === impl Gates ===

impl Gates {
    /// Takes a place for a request to a source that may have so many a second; anybody may send to an `open` one.
    ///
    /// # Errors
    /// What to answer if there are too many.
    pub(super) fn enter(
        &self,
        to: &Address<'_>,
        (per_second, open): (u32, bool),
        now: Instant,
    ) -> Result<Place<'_>, Refusal> {
        let Asked { sources, operators } = &mut *self.asked.lock();
        if sources.len() >= SOURCES {
            sources.retain(|_, gate| gate.under_way > 0);
        }
        let name = name(to);
        let gate = sources.entry(name.clone()).or_default();
        let of_operator = operators.get(to.operator);
        let of_operator = |count: fn(&Crowd) -> usize| of_operator.map_or(0, count);
        let busy = |most: usize, whose: &str| {
            Err((StatusCode::SERVICE_UNAVAILABLE, format!("{most} requests to {whose} are under way\n")))
        };
        if gate.under_way >= AT_ONCE {
            return busy(AT_ONCE, "this source");
        }
        if of_operator(|crowd| crowd.all) >= OF_OPERATOR {
            return busy(OF_OPERATOR, "this operator");
        }
        if open && of_operator(|crowd| crowd.open) >= OPEN {
            return busy(OPEN, "sources without a token of this operator");
        }
        if !gate.rate.take_now(1, Rate::per_second(per_second), now) {
            let text = format!("more than {per_second} requests a second (requestsPerSecond)\n");
            return Err((StatusCode::TOO_MANY_REQUESTS, text));
        }
        gate.under_way += 1;
        let crowd = operators.entry(to.operator.to_owned()).or_default();
        crowd.all += 1;
        crowd.open += usize::from(open);
        Ok(Place { gates: self, name, open })
    }

    /// Returns the permits for calls of a plugin about requests: half of those that it has, so that runs have the others, and at least one.
    pub(super) fn permits(&self, (operator, plugin): (&Arc<str>, &Arc<str>), concurrency: usize) -> Permits {
        let calls = (concurrency / 2).max(1);
        let mut plugins = self.plugins.lock();
        if plugins.len() >= SOURCES {
            plugins.retain(|_, permits| Arc::strong_count(&permits.all) > 1);
        }
        // Versions that may have different numbers of calls may run beside each other.
        let of = ((Arc::clone(operator), Arc::clone(plugin)), calls);
        plugins.entry(of).or_insert_with(|| Permits::new(calls)).clone()
    }

    /// Returns true if it is to be told now that a source has no token.
    pub(super) fn is_news(&self, to: &Address<'_>, now: Instant) -> bool {
        let mut asked = self.asked.lock();
        let told = &mut asked.sources.entry(name(to)).or_default().told;
        let due = told.is_none_or(|told| now.saturating_duration_since(told) >= QUIET);
        if due {
            *told = Some(now);
        }
        due
    }
}

// === impl Permits ===

impl Permits {
    fn new(calls: usize) -> Self {
        let open = Arc::new(Semaphore::new((calls / 2).max(1)));
        Self { all: Arc::new(Semaphore::new(calls)), open }
    }

    /// Waits for the turn of a request to a source, which is `open` to anybody or not. Those to open sources wait among themselves first.
    ///
    /// # Errors
    /// Never while the daemon runs.
    pub(super) async fn turn(self, open: bool) -> Result<Permit, AcquireError> {
        let open = if open { Some(self.open.acquire_owned().await?) } else { None };
        Ok(Permit { _open: open, _all: self.all.acquire_owned().await? })
    }
}

fn name(to: &Address<'_>) -> Name {
    let Address { operator, controller, source, .. } = to;
    ((*operator).to_owned(), (*controller).to_owned(), (*source).to_owned())
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Asked { sources, operators } = &mut *self.gates.asked.lock();
        if let Some(gate) = sources.get_mut(&self.name) {
            gate.under_way = gate.under_way.saturating_sub(1);
        }
        let (operator, _, _) = &self.name;
        if let Some(crowd) = operators.get_mut(operator) {
            crowd.all = crowd.all.saturating_sub(1);
            crowd.open = crowd.open.saturating_sub(usize::from(self.open));
            if crowd.all == 0 {
                operators.remove(operator);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::header;
    use futures::FutureExt as _;

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
        let places: Vec<_> = (0..12).map(|_| gates.enter(&one, (2, false), now)).collect();
        let statuses: Vec<_> = places.iter().map(status).collect();
        assert_eq!(statuses, [vec![200; 10], vec![429; 2]].concat());
        assert_eq!(status(&gates.enter(&other, (2, false), now)), 200);
        assert_eq!(status(&gates.enter(&one, (2, false), now + Duration::from_secs(1))), 200);
        let busy = address("/o/c/busy").unwrap();
        let places: Vec<_> = (0..40).map(|_| gates.enter(&busy, (1000, false), now)).collect();
        let entered = places.iter().filter(|place| place.is_ok()).count();
        assert_eq!((entered, status(&gates.enter(&busy, (1000, false), now))), (AT_ONCE, 503));
        drop(places);
        assert_eq!(status(&gates.enter(&busy, (1000, false), now)), 200);
    }

    #[test]
    fn an_operator_leaves_connections_to_others_and_its_open_sources_leave_some_to_those_with_a_token() {
        // IB-4
        let (gates, now) = (Gates::default(), Instant::now());
        let mut places = Vec::new();
        for (operator, open, entered) in
            [("a", true, OPEN), ("a", false, OF_OPERATOR - OPEN), ("b", false, OF_OPERATOR)]
        {
            let mut within = 0;
            for (source, _) in (0..8).flat_map(|source| (0..AT_ONCE).map(move |n| (source, n))) {
                let path = format!("/{operator}/c/{source}-{open}");
                let place = gates.enter(&address(&path).unwrap(), (1000, open), now);
                within += usize::from(place.is_ok());
                places.extend(place);
            }
            assert_eq!(within, entered, "{operator} {open}");
        }
        drop(places);
        assert!(gates.asked.lock().operators.is_empty());
    }

    #[tokio::test]
    async fn calls_about_requests_have_half_of_what_a_plugin_has_and_those_that_anybody_sends_half_of_these() {
        // IB-4
        let gates = Gates::default();
        let unit = (&Arc::from("o"), &Arc::from("p"));
        for (concurrency, calls, of_open) in [(1, 1, 1), (2, 1, 1), (8, 4, 2), (9, 4, 2), (10, 5, 2)] {
            let permits = gates.permits(unit, concurrency);
            assert_eq!((permits.all.available_permits(), permits.open.available_permits()), (calls, of_open));
        }
        assert!(Arc::ptr_eq(&gates.permits(unit, 9).all, &gates.permits(unit, 9).all));
        let turn = |open: bool| gates.permits(unit, 9).turn(open).now_or_never();
        let held: Vec<_> = [true, true].map(turn).into_iter().flatten().collect();
        assert_eq!(held.len(), 2);
        assert!(turn(true).is_none() && turn(false).is_some());
        // A version with another number of calls, beside this one.
        assert_eq!(gates.permits(unit, 4).all.available_permits(), 2);
        assert!(turn(true).is_none());
        drop(held);
        assert!(turn(true).is_some());
    }
}
