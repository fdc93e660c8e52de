//! Bounds the cost of work on documents: code that reads, walks, compares or changes a document takes a [`Budget`]
//! and pays from it.
//!
//! The cost depends on the documents alone, never on the clock, so a busy machine does not change a verdict. Trees
//! are made in one place, [`Budget::read`], and are never deeper than [`LEVELS`] nor heavier than [`WEIGHT`]. So
//! cloning, dropping, printing and comparing a tree, which recurse, are safe and cost no more than was paid when it
//! was read.

use std::fmt;

use serde_json::Value;

/// The most levels of a document: the limit of `serde_json`. All code that makes documents keeps to it.
pub const LEVELS: usize = 127;

/// The most memory that one document may take as a tree, in bytes, as [`weight`] estimates it.
pub const WEIGHT: usize = 64 << 20;

/// Steps that one run may take: some hundred milliseconds. An object of 1.5 MiB, the largest possible, has at most
/// 750,000 nodes.
pub const RUN: u64 = 20_000_000;

/// Steps that one operation on documents may take, such as one comparison.
pub const OPERATION: u64 = 5_000_000;

/// The memory in bytes that the documents of a run may take before more has to be borrowed from a [`Lender`]. Most
/// runs need no more.
pub const FREE: usize = 1 << 20;

/// The memory in bytes that the values may take which one operation makes for itself, such as an expression: as many may be at work as there are
/// processors.
pub const MADE: usize = 16 << 20;

/// Bytes of text that count as one step, for code that goes through a text from its beginning to its end.
const BYTES: u64 = 16;

/// The remaining budget for work on documents. A step is about the visit of one node.
///
/// ```
/// # use capstan_core::budget::{Budget, Exceeded};
/// let mut budget = Budget::of(100);
/// assert_eq!(budget.step(99), Ok(()));
/// assert_eq!(budget.step(2), Err(Exceeded::Steps(100)));
/// assert_eq!(budget.step(1), Err(Exceeded::Steps(100)), "what is spent stays spent");
/// ```
pub struct Budget {
    left: u64,
    limit: u64,
    /// Bytes of all documents made so far. Dropped documents count, too: a run does not know how long others hold
    /// them.
    held: usize,
    /// Bytes of the values that the operation under way has made.
    made: usize,
    lender: Option<Box<dyn Lender>>,
    /// The last refusal.
    refused: Option<Exceeded>,
}

/// A source of more memory, lent until the budget is dropped. Never waits.
pub trait Lender: Send {
    /// Lends `bytes` more; returns false if they are not available.
    fn lend(&mut self, bytes: usize) -> bool;
}

/// Work on documents would cost more than it may. Trying again does not help until the documents are smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exceeded {
    /// The steps that were allowed.
    #[error("it takes more than {0} steps")]
    Steps(u64),
    /// The levels that are allowed.
    #[error("it is more than {0} levels deep")]
    Levels(usize),
    /// The bytes of memory that a document may take.
    #[error("it takes more than {0} bytes of memory")]
    Weight(usize),
    /// The bytes that could not be borrowed, because others have the memory.
    #[error("there is no memory for {0} bytes more (--plugin-memory)")]
    Memory(usize),
}

/// The errors of reading a text as a document.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The document costs too much.
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
}

impl Budget {
    /// Returns a budget of `steps` steps.
    pub fn of(steps: u64) -> Self {
        Self { left: steps, limit: steps, held: 0, made: 0, lender: None, refused: None }
    }

    /// Returns the budget of a run.
    pub fn of_run() -> Self {
        Self::of(RUN)
    }

    /// Returns the budget of a run that has to borrow memory beyond [`FREE`].
    pub fn borrowing(lender: Box<dyn Lender>) -> Self {
        Self { lender: Some(lender), ..Self::of_run() }
    }

    /// Accounts for `bytes` of memory that are kept until the budget is dropped, at the longest.
    ///
    /// # Errors
    /// [`Exceeded::Memory`] if the lender does not lend them.
    pub fn hold(&mut self, bytes: usize) -> Result<(), Exceeded> {
        let before = self.held.max(FREE);
        let held = self.held.saturating_add(bytes);
        let more = held.saturating_sub(before);
        let lent = match &mut self.lender {
            Some(lender) if more > 0 => lender.lend(more),
            Some(_) | None => true,
        };
        if !lent {
            return Err(self.refuse(Exceeded::Memory(more)));
        }
        self.held = held;
        Ok(())
    }

    /// Pays for `steps` steps.
    ///
    /// # Errors
    /// [`Exceeded::Steps`] if fewer are left; then the rest is spent, too.
    #[inline]
    pub fn step(&mut self, steps: u64) -> Result<(), Exceeded> {
        if let Some(left) = self.left.checked_sub(steps) {
            self.left = left;
            return Ok(());
        }
        self.left = 0;
        Err(self.refuse(Exceeded::Steps(self.limit)))
    }

    /// Pays for going through `bytes` of text.
    ///
    /// # Errors
    /// As [`Budget::step`].
    pub fn text(&mut self, bytes: usize) -> Result<(), Exceeded> {
        self.step(1 + u64::try_from(bytes).unwrap_or(u64::MAX) / BYTES)
    }

    /// Pays for `bytes` of memory that a value takes which the operation under way makes, before it is made. What it has dropped since counts, too.
    ///
    /// # Errors
    /// [`Exceeded::Weight`] if it would be more than [`MADE`] of them all.
    pub fn make(&mut self, bytes: usize) -> Result<(), Exceeded> {
        self.made = self.made.saturating_add(bytes);
        if self.made > MADE { Err(self.refuse(Exceeded::Weight(MADE))) } else { Ok(()) }
    }

    /// Runs `act`, an operation, with at most `steps` of the budget, so that some is left for others.
    pub fn within<T>(&mut self, steps: u64, act: impl FnOnce(&mut Self) -> T) -> T {
        let Self { left, limit, made, .. } = *self;
        self.made = 0;
        if steps <= left {
            (self.left, self.limit) = (steps, steps);
        }
        let before = self.left;
        let done = act(self);
        let spent = before - self.left;
        (self.left, self.limit, self.made) = (left - spent, limit, made);
        done
    }

    /// Returns the last refusal, for callers that do not see the error itself.
    pub fn refused(&self) -> Option<Exceeded> {
        self.refused
    }

    /// Returns the number of steps left.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Reads a document. This is the only place where a text becomes a tree.
    ///
    /// # Errors
    /// [`Error`]; a document that is too deep is [`Error::Exceeded`].
    pub fn read(&mut self, text: &str) -> Result<Value, Error> {
        self.text(text.len())?;
        let weight = weight(text);
        if weight > WEIGHT {
            return Err(self.refuse(Exceeded::Weight(WEIGHT)).into());
        }
        self.hold(weight)?;
        serde_json::from_str(text).map_err(|error| {
            if error.to_string().starts_with("recursion limit exceeded") {
                Error::Exceeded(self.refuse(Exceeded::Levels(LEVELS)))
            } else {
                Error::Json(error)
            }
        })
    }

    /// Remembers a refusal, also one by a bound beside the budget, so that the run is counted and named for it.
    #[cold]
    pub fn refuse(&mut self, what: Exceeded) -> Exceeded {
        self.refused = Some(what);
        what
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Budget({} of {})", self.left, self.limit)
    }
}

/// Estimates how many bytes of memory a JSON text takes as a tree, without making the tree. A map takes some 640
/// bytes even if it is small, a list 128, an element 32.
///
/// ```
/// # use capstan_core::budget::weight;
/// assert_eq!(weight(r#"{"a":"[,{","b":[]}"#), 18 + 640 + 32 + 128);
/// ```
pub fn weight(json: &str) -> usize {
    let (mut weight, mut quoted, mut escaped) = (json.len(), false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' if !quoted => weight += 640,
            b'[' if !quoted => weight += 128,
            b',' if !quoted => weight += 32,
            _ => {}
        }
    }
    weight
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_neither_too_deep_nor_too_heavy_nor_read_for_nothing() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let said = |steps: u64, text: &str| {
            let read = Budget::of(steps).read(text);
            read.map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(said(1000, &nested(LEVELS)), Ok(()));
        for levels in [LEVELS + 1, 10_000] {
            let text = "it is more than 127 levels deep";
            assert_eq!(said(10_000, &nested(levels)), Err(text.to_owned()));
        }
        let heavy = format!("[{}{{}}]", "{},".repeat(100_000));
        let text = "it takes more than 67108864 bytes of memory";
        assert_eq!(said(RUN, &heavy), Err(text.to_owned()));
        let long = format!("{:?}", "x".repeat(1000));
        assert_eq!(said(10, &long), Err("it takes more than 10 steps".to_owned()));
        assert_eq!(said(1000, "{"), Err("EOF while parsing an object at line 1 column 1".to_owned()));
    }

    #[test]
    fn what_is_made_beyond_a_little_has_to_be_lent() {
        struct Purse(usize);
        impl Lender for Purse {
            fn lend(&mut self, bytes: usize) -> bool {
                let left = self.0.checked_sub(bytes);
                self.0 = left.unwrap_or(self.0);
                left.is_some()
            }
        }
        let mut budget = Budget::borrowing(Box::new(Purse(100)));
        assert_eq!(budget.hold(FREE), Ok(()));
        assert_eq!(budget.hold(60), Ok(()));
        assert_eq!(budget.hold(60), Err(Exceeded::Memory(60)));
        assert_eq!(budget.refused(), Some(Exceeded::Memory(60)));
        assert_eq!(budget.hold(40), Ok(()), "what is refused is not held");
        let heavy = format!("[{}]", "{},".repeat(2_000));
        let read = budget.read(&heavy).map_err(|error| error.to_string());
        let text = "there is no memory for";
        assert!(read.is_err_and(|error| error.starts_with(text)));
    }

    #[test]
    fn a_part_that_is_spent_leaves_the_rest() {
        let mut budget = Budget::of(100);
        let spent = budget.within(30, |part| part.step(40));
        assert_eq!((spent, budget.left()), (Err(Exceeded::Steps(30)), 70), "what fails costs all of the part");
        assert_eq!(budget.refused(), Some(Exceeded::Steps(30)));
        assert_eq!(budget.within(30, |part| part.step(10)), Ok(()));
        assert_eq!(budget.left(), 60);
        assert_eq!(budget.within(100, |part| part.step(61)), Err(Exceeded::Steps(100)), "the whole is not enough");
    }
}
