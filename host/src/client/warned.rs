//! Decides which warnings of an API server are logged: of each operator, each cause once in a while (`FV-2`).

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use capstan_core::lately::Lately;
use capstan_core::object::Gvk;
use capstan_core::text::said;
use http::HeaderMap;
use http::header::WARNING;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;

use super::answer::About;

/// So long a cause that was logged is not logged again.
const QUIET: Duration = Duration::from_hours(1);

/// The most causes that are remembered of one operator, or of the daemon itself: what is beyond is counted alone.
const CAUSES: usize = 128;

/// The most warnings of one answer that are looked at. The API server itself sends a few KiB.
const MOST: usize = 16;

/// What is said of a warning that may quote a Secret (`SSA-7`, `DT-4`).
const KEPT_BACK: &str = "what it says may quote a Secret, and is kept back";

/// The warnings of an API server.
#[derive(Default)]
pub(crate) struct Warned {
    /// The causes that were logged, by account: one that causes many keeps nobody else's from the log.
    logged: Mutex<HashMap<Arc<str>, Causes>>,
    hashes: RandomState,
    /// All there were.
    pub count: Counter,
}

/// Causes, by the hash of kind and text.
type Causes = Lately<u64, ()>;

impl Warned {
    /// Takes in the headers of an answer.
    pub(super) fn heed(&self, about: &About<'_>, headers: &HeaderMap) {
        if !headers.contains_key(WARNING) {
            return;
        }
        let account = about.sender().account;
        for warning in self.due(&account, (about.gvk, about.quotes_secret), headers, Instant::now()) {
            let request = about.to_string();
            tracing::warn!(sender = &*account, request, warning, "the API server warns");
        }
    }

    /// Counts the warnings of an answer about a kind, which may quote a Secret, and returns those that are logged.
    fn due(
        &self,
        account: &Arc<str>,
        (gvk, quotes_secret): (&Gvk, bool),
        headers: &HeaderMap,
        now: Instant,
    ) -> Vec<String> {
        let mut due = Vec::new();
        for header in headers.get_all(WARNING).iter().take(MOST) {
            self.count.inc();
            let text = String::from_utf8_lossy(header.as_bytes());
            let text = if quotes_secret { KEPT_BACK.to_owned() } else { said(&worded(&text)).into_owned() };
            let mut all = self.logged.lock();
            if !all.contains_key(account) && all.len().is_power_of_two() {
                // Operators come and go; whenever they have doubled, those that are gone are looked for.
                all.retain(|_, logged| !logged.is_over(now));
            }
            let logged = all.entry(Arc::clone(account)).or_insert_with(|| Lately::new(CAUSES, QUIET));
            let cause = self.hashes.hash_one((gvk, &text));
            if logged.get(&cause, now).is_none() && logged.put(cause, (), now) {
                due.push(text);
            }
        }
        due
    }
}

/// Returns the words of a warning: `299 - "these"`.
fn worded(header: &str) -> String {
    let Some((_, quoted)) = header.split_once('"') else {
        return header.to_owned();
    };
    let mut words = String::new();
    let mut characters = quoted.chars();
    while let Some(c) = characters.next() {
        match c {
            '"' => break,
            '\\' => words.extend(characters.next()),
            c => words.push(c),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn each_cause_is_logged_once_in_a_while_and_what_may_quote_a_secret_is_not() {
        // FV-2, SSA-7, DT-4
        let headers = |texts: &[&str]| -> HeaderMap {
            texts.iter().map(|text| (WARNING, HeaderValue::from_str(text).unwrap())).collect()
        };
        let [maps, secrets] = ["ConfigMap", "Secret"].map(|kind| Gvk::parse("v1", kind).unwrap());
        let (warned, start, web) = (Warned::default(), Instant::now(), "operator web".into());
        let unknown = r#"299 - "unknown field \"dataa\"""#;
        for (about, texts, after, expected) in [
            ((&maps, false), &[unknown, unknown, "299 - \"old\""][..], 0, &["unknown field \"dataa\"", "old"][..]),
            ((&maps, false), &[unknown], 3599, &[]),
            ((&maps, false), &[unknown], 3600, &["unknown field \"dataa\""]),
            ((&secrets, true), &[unknown, "299 - \"s3cr3t\""], 0, &[KEPT_BACK]),
            ((&maps, true), &["299 - \"s3cr3t\""], 0, &[KEPT_BACK]),
            ((&maps, false), &["odd"], 0, &["odd"]),
            ((&maps, false), &[], 0, &[]),
        ] {
            assert_eq!(warned.due(&web, about, &headers(texts), start + Duration::from_secs(after)), expected);
        }
        assert_eq!(warned.count.get(), 9);
        let many: Vec<String> = (0..2 * CAUSES).map(|n| format!("299 - \"{n}\"")).collect();
        let logged: usize =
            many.iter().map(|text| warned.due(&web, (&maps, false), &headers(&[text]), start + QUIET * 3).len()).sum();
        assert_eq!(logged, CAUSES, "there is room for no more");
        let due =
            |account: &str, after| warned.due(&account.into(), (&maps, false), &headers(&[unknown]), start + after);
        assert_eq!(due("operator web", QUIET * 3), [""; 0]);
        assert_eq!(due("operator shop", QUIET * 3), ["unknown field \"dataa\""], "there is room for those of others");
        due("operator third", QUIET * 4);
        assert_eq!(warned.logged.lock().len(), 1, "those of whom nothing is remembered are forgotten");
    }
}
