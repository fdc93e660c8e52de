//! Defines what a cache keeps of one object, and says how much memory that takes.

use std::borrow::Borrow;
use std::cmp::Ordering;

use crate::object::packed::Packed;
use crate::object::{Header, Object, ObjectRef};

/// The approximate size of a header, in bytes.
pub(super) const HEADER: usize = 512;

/// An object and the list that mentioned it last; equal and ordered by its key alone.
#[derive(Clone)]
pub(super) struct Slot {
    pub(super) stored: Stored,
    pub(super) list: u32,
    /// True if a newer version has found no room.
    pub(super) outgrown: bool,
}

/// An object as it is kept.
#[derive(Clone)]
pub(super) enum Stored {
    /// As text.
    Plain(Object),
    /// Packed: each read unpacks it for itself.
    Packed(Packed),
}

impl Stored {
    pub(super) fn header(&self) -> &Header {
        match self {
            Self::Plain(object) => object.header(),
            Self::Packed(packed) => packed.header(),
        }
    }

    /// Returns the object, as a reader gets it.
    pub(super) fn object(&self) -> Object {
        match self {
            Self::Plain(object) => object.clone(),
            Self::Packed(packed) => packed.object(),
        }
    }
}

impl Slot {
    pub(super) fn key(&self) -> &ObjectRef {
        &self.stored.header().key
    }

    /// Returns its approximate size in bytes: the text, and the header, whose names are copies.
    pub(super) fn size(&self) -> usize {
        let text = match &self.stored {
            Stored::Plain(object) => object.size(),
            Stored::Packed(packed) => packed.size(),
        };
        HEADER + self.stored.header().size() + text
    }
}

impl Borrow<ObjectRef> for Slot {
    fn borrow(&self) -> &ObjectRef {
        self.key()
    }
}

impl Ord for Slot {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(other.key())
    }
}

impl PartialOrd for Slot {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Slot {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Slot {}
