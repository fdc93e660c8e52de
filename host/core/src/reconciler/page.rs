//! Decides where a page of objects ends: by their number and bytes, before anything is copied.

use crate::guest::{CallError, CallReason};
use crate::object::Object;

/// The most bytes of a page, however much memory its reader may have.
const MOST: usize = 8 << 20;

/// The bounds of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The most objects.
    pub(super) objects: usize,
    /// The most bytes of their text, before fields are picked out of it.
    pub(super) bytes: usize,
}

// === impl Bounds ===

impl Bounds {
    /// Returns the bounds for a reader that may have `memory` bytes: a quarter of them, so that there is room to
    /// parse the page.
    pub(super) fn within(memory: u64, objects: usize) -> Self {
        let quarter = usize::try_from(memory / 4).unwrap_or(usize::MAX);
        Self { objects: objects.max(1), bytes: quarter.min(MOST) }
    }

    /// Returns the number of these objects, ordered by key, that are in the page. Versions of one object stay
    /// together.
    ///
    /// # Errors
    /// If the first object is too large for any page, unless fields are `picked` out of it: these may be small.
    pub(super) fn end(self, objects: &[Object], picked: bool) -> Result<usize, CallError> {
        let (mut end, mut bytes) = (0, 0);
        for same in objects.chunk_by(|a, b| a.key() == b.key()) {
            let size: usize = same.iter().map(Object::length).sum();
            bytes += size;
            if end == 0 && size > self.bytes && !picked {
                return Err(self.too_large(same, size));
            }
            if end > 0 && (end >= self.objects || bytes > self.bytes) {
                break;
            }
            end += same.len();
        }
        Ok(end)
    }

    /// Returns the number of texts of these sizes that are in the page: one at least, if there is one.
    pub(super) fn end_of(self, sizes: impl IntoIterator<Item = usize>) -> usize {
        let (mut end, mut bytes) = (0, 0_usize);
        for size in sizes {
            bytes = bytes.saturating_add(size);
            if end > 0 && (end >= self.objects || bytes > self.bytes) {
                break;
            }
            end += 1;
        }
        end
    }

    fn too_large(self, same: &[Object], size: usize) -> CallError {
        let key = same.first().map(|object| object.key().to_string());
        let message = format!(
            "object {} has {size} bytes, and an answer of the cache may have {}, a quarter of `limits.memory` and at most 8Mi: ask for `fields` of it, or raise `limits.memory`",
            key.unwrap_or_default(),
            self.bytes
        );
        CallError::new(CallReason::Exhausted, message)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::{Gvk, Managers};

    fn object(name: &str, size: usize) -> Object {
        let json = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": "" });
        let rest = size - json.to_string().len();
        let mut json = json;
        json["data"] = "x".repeat(rest).into();
        let gvk = Gvk::parse("v1", "ConfigMap").unwrap();
        Object::parse(&json.to_string(), &gvk, &Managers::default()).unwrap()
    }

    #[test]
    fn a_page_ends_at_so_many_objects_or_bytes_and_between_objects() {
        let bounds = Bounds { objects: 3, bytes: 1000 };
        for (objects, end) in [
            (&[][..], 0),
            (&[("a", 100), ("b", 100), ("c", 100), ("d", 100)], 3),
            (&[("a", 500), ("b", 500), ("c", 100)], 2),
            (&[("a", 1000), ("b", 100)], 1),
            (&[("a", 100), ("b", 2000)], 1),
            (&[("a", 100), ("b", 100), ("b", 100), ("b", 100), ("c", 100)], 4),
            (&[("a", 600), ("b", 300), ("b", 300)], 1),
        ] {
            let objects: Vec<_> = objects.iter().map(|(name, size)| object(name, *size)).collect();
            assert_eq!(bounds.end(&objects, false), Ok(end), "{objects:?}");
        }
    }

    #[test]
    fn an_object_that_fits_no_page_is_named_unless_fields_are_picked() {
        let bounds = Bounds { objects: 3, bytes: 1000 };
        let objects = [object("large", 1001), object("small", 100)];
        let refused = bounds.end(&objects, false).unwrap_err();
        assert_eq!(refused.reason, CallReason::Exhausted);
        assert!(
            refused.message.starts_with("object large has 1001 bytes, and an answer of the cache may have 1000,"),
            "{}",
            refused.message
        );
        assert_eq!(bounds.end(&objects, true), Ok(1));
    }

    #[test]
    fn a_page_takes_a_quarter_of_the_memory_and_never_more_than_8_mib() {
        for (memory, bytes) in [(64 << 10, 16 << 10), (16 << 20, 4 << 20), (64 << 20, 8 << 20), (4 << 30, 8 << 20)] {
            assert_eq!(Bounds::within(memory, 0), Bounds { objects: 1, bytes });
        }
    }
}
