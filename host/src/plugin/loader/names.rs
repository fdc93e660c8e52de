//! Whether a component answers to the names that the manifest uses.

use std::path::Path;

use capstan_core::budget::Budget;
use capstan_core::guest::Description;
use capstan_core::manifest::{Operator, described, fit};
use tracing::warn;

use super::error::Error;
use crate::read;

/// What `capstan check` and the log say of a component that does not describe itself.
pub const UNCHECKED: &str = "it does not export `description`, so the names that the manifest uses can't be compared with its own: a name that is wrong fails in the first run that needs it; build it with an SDK of this version";

/// Compares the names that the plugin `name` answers to with those that the manifest uses (`LC-15`).
///
/// # Errors
/// [`Error::Names`] with each name that the component does not have, at its place in the manifest.
pub(super) fn check(
    operator: &Operator,
    name: &str,
    (path, description): (&Path, Option<&Description>),
) -> Result<(), Error> {
    let Some(description) = description else {
        if described::asks_by_name(operator, name) {
            warn!(plugin = name, component = %path.display(), "{UNCHECKED}");
        }
        return Ok(());
    };
    let lacking = described::lacking(operator, name, description, &mut Budget::of_run());
    let lacking =
        lacking.map_err(|error| Error::Prepare(format!("compare the names of {}: {error}", path.display())))?;
    if lacking.is_empty() {
        return Ok(());
    }
    // Without the text they are told with their fields.
    let file = operator.origin.file();
    let text = read::text(file, read::TEXT).unwrap_or_default();
    Err(Error::Names { path: path.to_owned(), lacking: fit::placed(&text, file, &operator.name, lacking) })
}
