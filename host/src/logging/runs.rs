//! Tells of each run in one line: why it began, what it has written, how it ended. `capstan dev` shows these lines.
//!
//! The daemon tells of all that as events of the target [`RUNS`], which nobody else hears.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::{self, Write as _};
use std::time::Duration;

use capstan_core::cluster::{Error, Target, Verb};
use capstan_core::guest::RetryInfo;
use capstan_core::manifest::Rounded;
use capstan_core::queue::Urgency;
use capstan_core::source::{Trigger, TriggerKind};
use capstan_core::text;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// The target of events about runs.
pub const RUNS: &str = "capstan::runs";

/// The most causes of a run that are named, and the most of its writes.
const NAMED: usize = 4;

/// The most primaries whose causes are remembered until they run.
const MOST: usize = 1000;

/// Why a primary would run: it has changed, or has come.
const CHANGED: &str = "it has changed";

/// The same of one that has gone; runs about that are rare.
const GONE: &str = "it is gone";

/// So long after a swap, what runs without another cause runs for the new version.
const SWAP: Duration = Duration::from_secs(10);

/// Tells why primaries will run.
pub fn caused(controller: &str, triggers: &[Trigger]) {
    if !tracing::enabled!(target: RUNS, Level::DEBUG) {
        return;
    }
    for Trigger { primary, what, urgency } in triggers {
        let cause = match (what, urgency) {
            (TriggerKind::Changed { deleting: true }, _) => "it is to be deleted".to_owned(),
            (TriggerKind::Changed { .. }, Urgency::Replayed) => "it was there at the start".to_owned(),
            (TriggerKind::Changed { .. }, Urgency::Fresh) => CHANGED.to_owned(),
            (TriggerKind::Deleted { .. }, _) => GONE.to_owned(),
            (TriggerKind::Related { source, object, gone: _ }, _) if object.name.is_empty() => {
                format!("something of {source} is gone")
            }
            (TriggerKind::Related { source, object, gone: true }, _) => format!("{source} {object} is gone"),
            (TriggerKind::Related { source, object, gone: false }, _) => format!("{source} {object} has changed"),
        };
        tracing::debug!(target: RUNS, of = controller, key = %primary, %cause);
    }
}

/// Tells that a controller has a new version.
pub fn swapped(controller: &str) {
    tracing::debug!(target: RUNS, swapped = controller);
}

/// Tells that a run is a retry. One that an event has brought after a failure is none.
pub fn retried(retry: Option<RetryInfo>) {
    if let Some(RetryInfo { attempt: attempt @ 1.., .. }) = retry {
        tracing::debug!(target: RUNS, attempt);
    }
}

/// Tells of a write of a run, and how it was answered.
pub fn wrote(target: &Target, verb: &Verb, answer: Result<(), &Error>) {
    let Target { gvk, key, subresource } = target;
    let part = subresource.as_ref().map(|name| format!("/{name}")).unwrap_or_default();
    let refused = if answer.is_err() { " (refused)" } else { "" };
    tracing::debug!(target: RUNS, written = %format_args!("{} {} {key}{part}{refused}", verb.name(), gvk.kind));
}

/// Tells how a run ended.
pub fn ended(error: Option<&str>, next: &str, took: Duration) {
    let took = Rounded(took).to_string();
    match error {
        None => tracing::debug!(target: RUNS, took, next),
        Some(error) => tracing::debug!(target: RUNS, took, next, error),
    }
}

/// The tracing layer that writes the lines.
pub struct Layer {
    say: Say,
    /// Whether lines are in colour.
    colour: bool,
    known: Mutex<Known>,
}

/// Writes a line.
pub type Say = Box<dyn Fn(&str) + Send + Sync>;

/// What is known of runs that have not begun.
#[derive(Default)]
struct Known {
    causes: HashMap<(String, String), VecDeque<String>>,
    swapped: HashMap<String, Swap>,
}

/// The last swap of a controller.
struct Swap {
    at: Instant,
    /// The primaries that have run since: what they run for after that is not the new version.
    since: HashSet<String>,
}

/// The controller that a span is about.
struct Of(String);

/// A run under way.
#[derive(Default)]
struct Story {
    key: String,
    causes: Vec<String>,
    writes: Vec<String>,
}

/// The fields of an event or span.
#[derive(Default)]
struct Fields(HashMap<&'static str, String>);

// === impl Layer ===

impl Layer {
    /// Returns a layer that writes its lines by this function.
    pub fn new(say: Say, colour: bool) -> Self {
        Self { say, colour, known: Mutex::default() }
    }

    fn begin(&self, controller: &str, key: String) -> Story {
        let mut known = self.known.lock();
        let causes = known.causes.remove(&(controller.to_owned(), key.clone())).unwrap_or_default();
        let mut causes: Vec<_> = causes.into();
        if let Some(swap) = known.swapped.get_mut(controller)
            && swap.at.elapsed() < SWAP
            && !swap.since.contains(&key)
        {
            if swap.since.len() < MOST {
                swap.since.insert(key.clone());
            }
            if causes.is_empty() {
                causes.push("there is a new version".to_owned());
            }
        }
        Story { key, causes, writes: Vec::new() }
    }

    fn cause(&self, controller: String, key: String, cause: String) {
        let causes = &mut self.known.lock().causes;
        let is_gone = |causes: &VecDeque<String>| causes.front().is_some_and(|first| first == GONE);
        if causes.len() >= MOST && !causes.contains_key(&(controller.clone(), key.clone())) {
            // Mostly nobody runs for those who are gone.
            causes.retain(|_, causes| !is_gone(causes));
            if causes.len() >= MOST {
                return;
            }
        }
        let causes = causes.entry((controller, key)).or_default();
        let is_again = cause == CHANGED && is_gone(causes);
        if cause == GONE || is_again {
            // What was before is the former one's.
            causes.clear();
        }
        let cause = if is_again { "it was made again".to_owned() } else { cause };
        if !causes.contains(&cause) {
            causes.push_back(cause);
            // The first ones have led to the run.
            causes.truncate(NAMED);
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Layer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else {
            return;
        };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(controller) = fields.take("controller") {
            span.extensions_mut().insert(Of(controller));
        } else if attributes.metadata().name() == "execution" {
            let of = |span: tracing_subscriber::registry::SpanRef<'_, S>| {
                span.extensions().get::<Of>().map(|Of(controller)| controller.clone())
            };
            let controller = span.scope().find_map(of).unwrap_or_default();
            let story = self.begin(&controller, fields.take("key").unwrap_or_default());
            span.extensions_mut().insert(story);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if event.metadata().target() != RUNS {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        if let (Some(controller), Some(key), Some(cause)) =
            (fields.take("of"), fields.take("key"), fields.take("cause"))
        {
            return self.cause(controller, key, cause);
        }
        if let Some(controller) = fields.take("swapped") {
            self.known.lock().swapped.insert(controller, Swap { at: Instant::now(), since: HashSet::new() });
            return;
        }
        let Some(scope) = context.event_scope(event) else {
            return;
        };
        for span in scope {
            if let Some(story) = span.extensions_mut().get_mut::<Story>() {
                if let Some(line) = story.hear(fields, self.colour) {
                    (self.say)(&line);
                }
                return;
            }
        }
    }
}

impl Story {
    /// Takes in what is told of the run; returns its line at its end.
    fn hear(&mut self, mut fields: Fields, colour: bool) -> Option<String> {
        if let Some(written) = fields.take("written") {
            self.writes.push(written);
        } else if let Some(attempt) = fields.take("attempt") {
            self.causes.push(format!("retry {attempt}"));
        }
        let took = fields.take("took")?;
        Some(self.line(&took, &fields.take("next").unwrap_or_default(), fields.take("error").as_deref(), colour))
    }

    fn line(&self, took: &str, next: &str, error: Option<&str>, colour: bool) -> String {
        let mark = match (error.is_none(), colour) {
            (true, false) => "run ok    ",
            (true, true) => "\u{1b}[32mrun ok\u{1b}[0m    ",
            (false, false) => "run failed",
            (false, true) => "\u{1b}[31mrun failed\u{1b}[0m",
        };
        let causes = if self.causes.is_empty() { "its time had come".to_owned() } else { self.causes.join(", ") };
        let mut line = format!("{mark} {}: {causes}; {}; {took}", self.key, named(&self.writes));
        if let Some(error) = error {
            let _infallible = write!(line, "; {next}\n  {}", text::lines(error));
        }
        line
    }
}

/// Names the first of a run's writes.
fn named(writes: &[String]) -> String {
    match writes {
        [] => "nothing to write".to_owned(),
        all if all.len() <= NAMED => all.join(", "),
        all => format!("{} and {} more", all.get(..NAMED).unwrap_or(all).join(", "), all.len().saturating_sub(NAMED)),
    }
}

impl Fields {
    fn take(&mut self, name: &'static str) -> Option<String> {
        self.0.remove(name)
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use capstan_core::cluster::Deletion;
    use capstan_core::object::{Gvk, Managers, Object, ObjectRef};
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    /// Returns the lines about what is told by this function.
    fn told(tell: impl FnOnce()) -> Vec<String> {
        let said = Arc::<Mutex<Vec<String>>>::default();
        let say = {
            let said = Arc::clone(&said);
            move |line: &str| said.lock().extend(line.lines().map(str::to_owned))
        };
        let subscriber = tracing_subscriber::registry().with(Layer::new(Box::new(say), false));
        tracing::subscriber::with_default(subscriber, tell);
        said.lock().clone()
    }

    fn trigger(key: &str, what: TriggerKind) -> Trigger {
        Trigger { primary: ObjectRef::cluster(key), what, urgency: Urgency::Fresh }
    }

    fn run(controller: &str, key: &str, does: impl FnOnce()) {
        let _controller = tracing::info_span!("controller", controller).entered();
        let _execution = tracing::info_span!("execution", key = %key).entered();
        does();
    }

    const TOOK: Duration = Duration::from_millis(12);

    #[test]
    fn a_run_is_told_with_its_causes_its_writes_and_its_end() {
        let lines = told(|| {
            let object = ObjectRef::cluster("hello");
            let related = TriggerKind::Related { source: "configmap".into(), object: object.clone(), gone: false };
            let gone = TriggerKind::Related { source: "configmap".into(), object: object.clone(), gone: true };
            caused("page", &[trigger("a", TriggerKind::Changed { deleting: false }), trigger("a", related.clone())]);
            caused("other", &[trigger("a", TriggerKind::Changed { deleting: true })]);
            run("page", "a", || {
                // Told while it runs: the next run's cause.
                caused("page", &[trigger("a", related)]);
                let target = Target::object(Gvk::parse("v1", "ConfigMap").unwrap(), object);
                wrote(&target, &Verb::Delete(Deletion::default()), Ok(()));
                ended(None, "again at the next event", TOOK);
            });
            run("page", "a", || ended(Some("no html"), "retried in 2s", TOOK));
            swapped("page");
            run("page", "a", || ended(None, "", TOOK));
            caused("page", &[trigger("b", TriggerKind::Changed { deleting: false }), trigger("b", gone)]);
            run("page", "b", || {
                retried(Some(RetryInfo { attempt: 0, last: false }));
                ended(Some("no html"), "retried in 2s", TOOK);
            });
            run("page", "b", || {
                retried(Some(RetryInfo { attempt: 1, last: false }));
                ended(None, "", TOOK);
            });
            run("other", "b", || ended(None, "", TOOK));
        });
        let expected = [
            "run ok     a: it has changed, configmap hello has changed; delete ConfigMap hello; 12ms",
            "run failed a: configmap hello has changed; nothing to write; 12ms; retried in 2s",
            "  no html",
            "run ok     a: there is a new version; nothing to write; 12ms",
            "run failed b: it has changed, configmap hello is gone; nothing to write; 12ms; retried in 2s",
            "  no html",
            "run ok     b: retry 1; nothing to write; 12ms",
            "run ok     b: its time had come; nothing to write; 12ms",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_primary_that_is_made_again_does_not_run_for_what_was_before() {
        let lines = told(|| {
            let object = |name: &str| ObjectRef::cluster(name);
            let gone = |name| TriggerKind::Related { source: "maps".into(), object: object(name), gone: true };
            let changed = || trigger("a", TriggerKind::Changed { deleting: false });
            let page = Gvk::parse("sample.dev/v1", "Page").unwrap();
            let last = Object::parse(r#"{"metadata":{"name":"a"}}"#, &page, &Managers::default()).unwrap();
            let deleted = || TriggerKind::Deleted { last: last.clone(), unknown: false };
            caused("page", &["1", "2", "3", "4"].map(|name| trigger("a", gone(name))));
            caused("page", &[trigger("a", deleted()), trigger("a", gone("5"))]);
            caused("page", &[changed(), trigger("a", gone("6"))]);
            run("page", "a", || ended(None, "", TOOK));
            // As many as are remembered are gone, and nobody has run for them.
            for n in 0..=MOST {
                caused("page", &[trigger(&n.to_string(), deleted())]);
            }
            caused("page", &[changed()]);
            run("page", "a", || ended(None, "", TOOK));
        });
        let expected = [
            "run ok     a: it was made again, maps 6 is gone; nothing to write; 12ms",
            "run ok     a: it has changed; nothing to write; 12ms",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn what_a_run_writes_is_named_until_it_is_too_much() {
        let writes: Vec<_> = (0..7).map(|n| n.to_string()).collect();
        assert_eq!(named(&writes[..2]), "0, 1");
        assert_eq!(named(&writes), "0, 1, 2, 3 and 3 more");
    }
}
