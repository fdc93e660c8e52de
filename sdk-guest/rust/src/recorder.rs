//! Records Kubernetes Events about the primary, which `kubectl describe` shows. Best effort.
//!
//! ```
//! # use capstan_guest::recorder::{self, Event};
//! # capstan_guest::test::with(capstan_guest::test::Run::new(), || {
//! recorder::normal("Published", "the page is online");
//! Event::warning("NoTheme", "the theme is not there yet").key("theme").publish();
//! # });
//! ```

use crate::bindings::imports::capstan::operator as contract;
use crate::bindings::imports::capstan::operator::recorder::Severity;
use crate::bindings::imports::capstan::operator::types::Pair;
use crate::daemon;

/// Records that all is as it should be. The reason is one word in `CamelCase`, the message a sentence.
pub fn normal(reason: &str, message: &str) {
    Event::normal(reason, message).publish();
}

/// Records that somebody should look.
pub fn warning(reason: &str, message: &str) {
    Event::warning(reason, message).publish();
}

/// A Kubernetes Event about the primary.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "publish it"]
pub struct Event(contract::recorder::Event);

impl Event {
    /// All is as it should be. The reason is one word in `CamelCase`, the message a sentence.
    pub fn normal(reason: &str, message: &str) -> Self {
        Self::new(Severity::Normal, reason, message)
    }

    /// Somebody should look.
    pub fn warning(reason: &str, message: &str) -> Self {
        Self::new(Severity::Warning, reason, message)
    }

    /// Events with the same key are counted as one; else those with the same message.
    pub fn key(mut self, key: &str) -> Self {
        self.0.key = Some(key.to_owned());
        self
    }

    /// Says what was being done.
    pub fn action(mut self, action: &str) -> Self {
        self.0.action = Some(action.to_owned());
        self
    }

    /// Says who reports it, kept as the annotation `capstan.dev/component`.
    pub fn component(mut self, component: &str) -> Self {
        self.0.component = Some(component.to_owned());
        self
    }

    /// Adds a label to the Event.
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.0.labels.push(Pair { name: name.to_owned(), value: value.to_owned() });
        self
    }

    /// Adds an annotation to the Event.
    pub fn annotation(mut self, name: &str, value: &str) -> Self {
        self.0.annotations.push(Pair { name: name.to_owned(), value: value.to_owned() });
        self
    }

    /// Records it.
    pub fn publish(self) {
        daemon::recorder::publish(&self.0);
    }

    fn new(severity: Severity, reason: &str, message: &str) -> Self {
        Self(contract::recorder::Event {
            severity,
            reason: reason.to_owned(),
            message: message.to_owned(),
            key: None,
            action: None,
            component: None,
            labels: Vec::new(),
            annotations: Vec::new(),
        })
    }
}
