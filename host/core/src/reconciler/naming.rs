//! Decides which Kubernetes Events count as one, and what they are called, where the manifest says it (ER-7).

use parking_lot::Mutex;
use serde_json::{Map, Value};

use super::run::Run;
use crate::budget::Budget;
use crate::cel::Expression;
use crate::guest::Event;
use crate::manifest::events::{EVENT, EventKey, Events, PRIMARY};
use crate::object::Object;
use crate::object::labels::is_domain;

/// Returns an Event with the key that the manifest gives it, and its name; `None` if that follows from the key.
pub(super) fn named(run: &Run, event: Event) -> (Event, Option<String>) {
    let events = &run.controller.spec.events;
    let primary = asks_primary(events).then(|| run.primary_tree().ok()).flatten();
    settled(events, event, primary.as_deref(), &run.budget)
}

/// Returns the same of an Event that no run records.
pub(super) fn of(events: &Events, primary: &Object, event: Event, budget: Budget) -> (Event, Option<String>) {
    let budget = Mutex::new(budget);
    let tree = asks_primary(events).then(|| primary.tree(&mut budget.lock()).ok()).flatten();
    settled(events, event, tree.as_ref(), &budget)
}

fn asks_primary(events: &Events) -> bool {
    events.expressions().any(|cel| cel.reads(PRIMARY))
}

fn settled(
    events: &Events,
    mut event: Event,
    primary: Option<&Value>,
    budget: &Mutex<Budget>,
) -> (Event, Option<String>) {
    let shown = events.expressions().next().map(|_| document(&event));
    let text = |cel: &Expression| {
        let variables = [(PRIMARY, primary.unwrap_or(&Value::Null)), (EVENT, shown.as_ref().unwrap_or(&Value::Null))];
        let text = cel.text(&variables, &mut budget.lock());
        if let Err(error) = &text {
            tracing::debug!(%error, expression = cel.as_str(), "an expression about a kubernetes event failed");
        }
        text.ok().filter(|text| !text.is_empty())
    };
    let key = match &events.key {
        EventKey::Message => None,
        EventKey::TypeAndReason => Some(String::new()),
        EventKey::Cel(cel) => text(cel),
    };
    let name = events.name.as_ref().and_then(text).filter(|name| is_domain(name));
    event.key = event.key.or(key);
    (event, name)
}

/// Returns an Event as expressions see it.
fn document(event: &Event) -> Value {
    let Event { warning, reason, message, key, action, component, labels: _, annotations: _ } = event;
    let kind = if *warning { "Warning" } else { "Normal" };
    let always = [("type", Some(kind)), ("reason", Some(&**reason)), ("message", Some(&**message))];
    let texts = [("key", key.as_deref()), ("action", action.as_deref()), ("component", component.as_deref())];
    let fields = always.into_iter().chain(texts).filter_map(|(name, text)| Some((name.to_owned(), text?.into())));
    Value::Object(fields.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn event(key: Option<&str>) -> Event {
        Event {
            warning: true,
            reason: "DiskFull".to_owned(),
            message: "no room left".to_owned(),
            key: key.map(str::to_owned),
            action: None,
            component: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        }
    }

    fn cel(text: &str) -> Expression {
        Expression::parse(text, &[PRIMARY, EVENT]).unwrap()
    }

    fn primary() -> Value {
        json!({ "metadata": { "name": "a" }, "spec": { "disk": "sda" } })
    }

    #[test]
    fn what_counts_as_one_says_the_component_and_else_the_manifest() {
        // ER-7
        let table = [
            (EventKey::Message, None, None),
            (EventKey::TypeAndReason, None, Some("")),
            (EventKey::Cel(cel("primary.spec.disk + event.type")), None, Some("sdaWarning")),
            // What can't be said is as without it.
            (EventKey::Cel(cel("primary.spec.none")), None, None),
            (EventKey::Cel(cel("event.key")), None, None),
            (EventKey::Cel(cel("''")), None, None),
            (EventKey::TypeAndReason, Some("own"), Some("own")),
            (EventKey::Cel(cel("event.key + '!'")), Some("own"), Some("own")),
        ];
        for (key, said, expected) in table {
            let events = Events { key, ..Events::default() };
            let budget = Mutex::new(Budget::of_run());
            let (found, name) = settled(&events, event(said), Some(&primary()), &budget);
            assert_eq!((found.key.as_deref(), name), (expected, None), "{:?}", events.key);
        }
    }

    #[test]
    fn a_name_is_one_or_that_of_the_key() {
        // ER-7
        let long = format!("'{}'", "a".repeat(254));
        let table = [
            ("primary.metadata.name + '.disk-full'", Some("a.disk-full")),
            ("event.reason", None),
            ("''", None),
            (&*long, None),
            ("primary.metadata.uid", None),
            ("1 == 1 ? 'x/y' : ''", None),
        ];
        for (text, expected) in table {
            let events = Events { name: Some(cel(text)), ..Events::default() };
            let budget = Mutex::new(Budget::of_run());
            let (_, name) = settled(&events, event(None), Some(&primary()), &budget);
            assert_eq!(name.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn what_costs_too_much_is_as_if_it_said_nothing() {
        let events = Events { key: EventKey::Cel(cel("event.reason")), ..Events::default() };
        let budget = Mutex::new(Budget::of(1));
        assert_eq!(settled(&events, event(None), None, &budget).0.key, None);
    }
}
