//! Defines what a component finds wrong with a primary.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::wire;

/// The answer of `validate`: all that is wrong with a primary (`VA-1`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Nothing, if it is empty.
    #[serde(deserialize_with = "wire::at_most::<{ Found::MOST }, _, _>")]
    pub problems: Vec<Invalid>,
}

impl Found {
    /// The most problems that count: nobody reads as many.
    pub const MOST: usize = 1024;
}

/// Something that is wrong with a primary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invalid {
    /// The field, as people write it; `None` for the primary as a whole.
    pub field: Option<String>,
    /// What was found, and what would be right.
    pub message: String,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "{field}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}
