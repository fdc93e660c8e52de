//! What a manifest declares of Kubernetes Events: which count as one, what they are called, and whether they go with their primary.

use crate::cel::Expression;

/// How Kubernetes Events about primaries are written (`ER-7`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Events {
    /// Which of them are counted as one, if the component says no key; default those with the same message.
    pub key: EventKey,
    /// What they are called, over [`PRIMARY`] and [`EVENT`]; `None`: by what is counted as one.
    pub name: Option<Expression>,
    /// Whether the primary owns them; default false.
    pub owner_reference: bool,
    /// Whether the daemon records one when a run fails (`ER-8`); default true.
    pub of_failures: bool,
}

/// Which Events of one type and reason are counted as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EventKey {
    /// Those with the same message.
    #[default]
    Message,
    /// All.
    TypeAndReason,
    /// Those with the same text, over [`PRIMARY`] and [`EVENT`].
    Cel(Expression),
}

/// The variable that holds the primary.
pub const PRIMARY: &str = "primary";
/// The variable that holds the Event as the component records it.
pub const EVENT: &str = "event";

impl Default for Events {
    fn default() -> Self {
        Self { key: EventKey::Message, name: None, owner_reference: false, of_failures: true }
    }
}

impl Events {
    /// Returns the expressions that are asked about each Event.
    pub fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let key = match &self.key {
            EventKey::Message | EventKey::TypeAndReason => None,
            EventKey::Cel(cel) => Some(cel),
        };
        key.into_iter().chain(&self.name)
    }
}
