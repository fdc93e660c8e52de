//! What a manifest declares of things outside of the cluster: how they become known, for whom, and how much of them is kept.

use std::time::Duration;

use super::Filters;
use crate::cel::Expression;
use crate::object::pointer::Pointer;

/// A source of things outside of the cluster (PP, XC rules).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct External {
    /// Where the id of a thing is (`XC-3`).
    pub id: Pointer,
    /// The most things.
    pub things: usize,
    /// The most bytes that they take.
    pub memory: u64,
    /// Which changes of them make their primaries run (`XC-7`).
    pub filters: Filters,
    /// How they become known.
    pub polled: Polled,
}

/// How things become known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Polled {
    /// They are read for all primaries at once (`PP-1`).
    Together {
        /// The time from one poll to the next.
        every: Duration,
    },
    /// They are read for each primary by itself (`PP-2`).
    Each(Each),
    /// Requests from outside tell of them (IB rules). If they only tell that something has changed, it is read like this (`IB-6`); `None`: only
    /// what requests say is known.
    Inbound(Option<Each>),
}

/// How primaries are polled, each by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Each {
    /// The time from one poll of a primary to the next; `None`: only who is asked for is polled.
    pub every: Option<Duration>,
    /// The time from when a primary appears to its first poll, if there is a time from one to the next.
    pub first_after: Duration,
    /// Which primaries are polled, over [`PRIMARY`]; `None`: all.
    pub when: Option<Expression>,
    /// How many are polled at once.
    pub concurrency: usize,
}

/// The variable that holds the primary.
pub const PRIMARY: &str = "primary";

/// The shortest time from one poll to the next: each is a call of the component.
pub const SHORTEST: Duration = Duration::from_millis(100);

impl External {
    /// The most things, where the manifest does not say.
    pub const THINGS: usize = 10_000;

    /// The most bytes of them, where the manifest does not say.
    pub const MEMORY: u64 = 16 << 20;

    /// Returns how primaries are polled by themselves; `None` if they are not.
    pub fn each(&self) -> Option<&Each> {
        match &self.polled {
            Polled::Together { .. } | Polled::Inbound(None) => None,
            Polled::Each(each) | Polled::Inbound(Some(each)) => Some(each),
        }
    }

    /// Returns it without filters: those change nothing about what is known.
    pub fn unfiltered(&self) -> Self {
        Self { filters: Filters::default(), ..self.clone() }
    }

    /// Whether nothing is known but what requests tell.
    pub fn is_only_told(&self) -> bool {
        self.polled == Polled::Inbound(None)
    }

    /// Whether requests say that things are to be read (`IB-6`).
    pub fn is_fetched(&self) -> bool {
        matches!(self.polled, Polled::Inbound(_)) && self.each().is_some()
    }

    /// Whether nobody is polled who is not asked for (`IB-6`).
    pub fn waits_for_asks(&self) -> bool {
        self.each().is_some_and(|each| each.every.is_none())
    }

    /// Whether something is known of each primary by itself, and not of all at once.
    pub fn is_by_primary(&self) -> bool {
        match &self.polled {
            Polled::Together { .. } => false,
            Polled::Each(_) | Polled::Inbound(_) => true,
        }
    }
}
