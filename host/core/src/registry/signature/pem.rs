//! Reads PEM: the label and bytes of its first block.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::text::said_within;

/// The most characters of a label that are shown.
const LABEL: usize = 40;

/// Returns the label and the bytes of the one block of a text, around which there may be comments.
///
/// # Errors
/// What was found in its place.
pub fn read(text: &str) -> Result<(&str, Vec<u8>), String> {
    let mut lines = text.lines().map(str::trim);
    let begin = lines.by_ref().find_map(|line| line.strip_prefix("-----BEGIN ")?.strip_suffix("-----"));
    let Some(label) = begin else {
        return Err("found no PEM".to_owned());
    };
    let mut body = String::new();
    let end = lines.by_ref().find_map(|line| {
        let end = line.strip_prefix("-----END ").and_then(|line| line.strip_suffix("-----"));
        if end.is_none() {
            body.push_str(line);
        }
        end
    });
    let shown = said_within(label, LABEL);
    if end != Some(label) {
        return Err(format!("found PEM of which the end of {shown} is missing"));
    }
    if lines.any(|line| line.starts_with("-----BEGIN ")) {
        return Err("found more than one block of PEM".to_owned());
    }
    let bytes = STANDARD.decode(&body).map_err(|_| format!("found {shown} that is damaged"))?;
    Ok((label, bytes))
}
