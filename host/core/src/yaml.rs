//! Reads YAML into serde types, with all that is wrong in it at its place in the text; knows no operator.
//!
//! `tree.rs` reads the text, `de.rs` takes types out of the tree, `slot.rs` has those of fields that may be wrong, and `diagnostic.rs` shows what is wrong at its place in the text.

mod any;
mod de;
mod diagnostic;
mod schema;
mod slot;
mod stack;
mod tree;

pub(crate) use any::Any;
pub(crate) use de::Reader;
pub(crate) use diagnostic::{At, Fault, Faults, Mark, Place, either, listed};
pub use diagnostic::{Broken, Errors, Problem, similar};
pub(crate) use schema::words;
pub(crate) use slot::{Entries, Form, Leaf, ListOr, Located, OrWord, Scalar, Slot, Word};
pub(crate) use stack::with_room;
pub(crate) use tree::join;
pub(crate) use tree::{Node, Quoted, Tree, Value, documents, documents_within, of_json};
pub use tree::{line_of, written_at};
