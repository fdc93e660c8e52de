//! Decides which log lines are left out: those above a rate, from one place in the code about one controller.
//!
//! Components, and clients that write objects, decide how often runs fail, and so how much is logged. Lines that are
//! left out are counted, and the count is logged in one line. Lines that the user asked for (debug, trace) pass.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use capstan_core::bucket::{Bucket, Rate};
use capstan_core::text;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// The rate of similar lines that pass: 100 at once, and 10 a second from then on.
const RATE: Rate = Rate { interval: Duration::from_millis(100), burst: 100 };

/// The fields that name the owner of a line, the more important first. A component's output is limited by its bytes.
const OWNERS: [&str; 4] = ["controller", "plugin", "kind", "manifest"];

/// The target of lines that components print, which `limits.log` bounds.
pub(crate) const GUEST: &str = "guest";

/// The most pairs of place and owner that are kept apart; beyond that, pairs that are quiet are forgotten.
const KEPT: usize = 4096;

/// Counts the lines of each place and owner.
#[derive(Debug, Default)]
pub struct Meter {
    lines: Mutex<HashMap<Key, Line>>,
    left_out: AtomicU64,
}

/// A place in the code, and the owner that the line is about.
type Key = (Identifier, Arc<str>);

#[derive(Debug)]
struct Line {
    bucket: Bucket,
    /// The message of the first line that was left out; `None` if none was.
    like: Option<String>,
    left_out: u64,
}

/// The tracing layer that asks a [`Meter`] about each line.
pub struct Layer(pub Arc<Meter>);

/// The owner that a span is about.
struct Owner(Arc<str>);

/// Finds the owner and the message among fields.
#[derive(Default)]
struct Look {
    owner: Option<(usize, String)>,
    message: Option<String>,
}

// === impl Meter ===

impl Meter {
    /// Returns true if a line passes; else it is counted as left out.
    fn pass(&self, key: Key, message: impl FnOnce() -> String, now: Instant) -> bool {
        let mut lines = self.lines.lock();
        if lines.len() >= KEPT {
            lines.retain(|_, line| line.left_out > 0 || !line.bucket.is_full(now));
        }
        let line = lines.entry(key).or_insert_with(|| Line { bucket: Bucket::default(), like: None, left_out: 0 });
        if line.bucket.take_now(1, RATE, now) {
            return true;
        }
        line.left_out += 1;
        line.like.get_or_insert_with(message);
        self.left_out.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// Logs which lines were left out since the last call, and how many.
    pub fn tell(&self) {
        for (owner, like, count) in self.take() {
            tracing::warn!(about = %owner, %like, count, "lines like others were left out");
        }
    }

    fn take(&self) -> Vec<(Arc<str>, String, u64)> {
        let mut lines = self.lines.lock();
        let told = lines.iter_mut().filter_map(|((_, owner), line)| {
            let like = line.like.take()?;
            Some((Arc::clone(owner), like, std::mem::take(&mut line.left_out)))
        });
        told.collect()
    }

    /// Returns how many lines were left out.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }
}

// === impl Layer ===

impl<S: Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Layer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut look = Look::default();
        attributes.record(&mut look);
        if let (Some((_, owner)), Some(span)) = (look.owner, context.span(id)) {
            span.extensions_mut().insert(Owner(owner.into()));
        }
    }

    fn event_enabled(&self, event: &Event<'_>, context: Context<'_, S>) -> bool {
        let about = event.metadata();
        if *about.level() > Level::INFO || about.target() == GUEST {
            return true;
        }
        let mut look = Look::default();
        event.record(&mut look);
        let owner = context
            .event_scope(event)
            .and_then(|mut scope| scope.find_map(|span| span.extensions().get().map(|Owner(owner)| Arc::clone(owner))));
        let own = || look.owner.take().map(|(_, owner)| owner.into());
        let owner = owner.or_else(own).unwrap_or_default();
        let message = || look.message.take().unwrap_or_default();
        self.0.pass((about.callsite(), owner), message, Instant::now())
    }
}

impl Visit for Look {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = Some(text::said(&format!("{value:?}")).into_owned());
        }
        let rank = OWNERS.iter().position(|name| *name == field.name());
        let better = |rank: &usize| self.owner.as_ref().is_none_or(|(before, _)| rank < before);
        if let Some(rank) = rank.filter(better) {
            self.owner = Some((rank, format!("{value:?}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    /// Collects the messages of the lines that pass.
    struct Count(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> tracing_subscriber::Layer<S> for Count {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let mut look = Look::default();
            event.record(&mut look);
            self.0.lock().push(look.message.unwrap());
        }
    }

    #[test]
    fn a_controller_that_fails_all_the_time_fills_no_log_and_hides_no_other() {
        let (meter, lines) = (Arc::<Meter>::default(), Arc::<Mutex<Vec<_>>>::default());
        let subscriber = tracing_subscriber::registry().with(Layer(Arc::clone(&meter)));
        let subscriber = subscriber.with(Count(Arc::clone(&lines)));
        tracing::subscriber::with_default(subscriber, || {
            let log = |controller: &str, times| {
                let _in = tracing::info_span!("controller", controller).entered();
                let _deeper = tracing::info_span!("execution", key = "a/b").entered();
                for n in 0..times {
                    tracing::warn!(n, "the run failed");
                }
            };
            log("noisy", 100_000);
            let noisy = lines.lock().len();
            // A few more lines pass while this loop runs.
            assert!((RATE.burst as usize..1_000).contains(&noisy), "{noisy}");
            log("quiet", 20);
            assert_eq!(lines.lock().len(), noisy + 20, "another controller");
            for _ in 0..1_000 {
                tracing::debug!("asked for");
            }
            assert_eq!(lines.lock().len(), noisy + 1_020, "debug");
            lines.lock().clear();
            let left_out = meter.left_out();
            assert_eq!(left_out, 100_000 - noisy as u64);
            let told = meter.take();
            assert_eq!(told, [("noisy".into(), "the run failed".to_owned(), left_out)]);
            assert_eq!(meter.take(), []);
        });
    }
}
