//! Decides how many objects a page of a list has, and how one is read.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The longest page of a list.
pub(super) const PAGE_BYTES: usize = 64 << 20;

/// How many objects a page of a list has. It does not change what is watched: scopes that differ in nothing else are equal, and of those who
/// share an informer the largest holds (`PO-1`), so that nobody makes the lists of others longer.
#[derive(Clone, Copy, Debug)]
pub struct PageSize(pub u32);

/// A page of a list.
#[derive(Deserialize)]
pub(super) struct Page<'a> {
    pub(super) metadata: PageMeta,
    #[serde(borrow, default, deserialize_with = "items")]
    pub(super) items: Vec<&'a RawValue>,
}

/// A page has no more objects than this: each takes some hundred bytes at least.
const MOST_ITEMS: usize = PAGE_BYTES / 256;

/// Reads the objects of a page, unless there are too many; some servers write no list for none.
fn items<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<&'a RawValue>, D::Error> {
    struct Items<'a>(PhantomData<&'a ()>);
    impl<'de: 'a, 'a> Visitor<'de> for Items<'a> {
        type Value = Vec<&'a RawValue>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MOST_ITEMS} objects")
        }

        fn visit_seq<S: SeqAccess<'de>>(self, mut items: S) -> Result<Self::Value, S::Error> {
            let mut found = Vec::new();
            while let Some(item) = items.next_element()? {
                if found.len() == MOST_ITEMS {
                    return Err(S::Error::invalid_length(MOST_ITEMS + 1, &self));
                }
                found.push(item);
            }
            Ok(found)
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }
    }
    deserializer.deserialize_any(Items(PhantomData))
}

/// What stands beside its objects.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageMeta {
    pub(super) resource_version: Option<String>,
    #[serde(rename = "continue")]
    pub(super) next: Option<String>,
}

// === impl PageSize ===

impl Default for PageSize {
    fn default() -> Self {
        Self(500)
    }
}

impl PartialEq for PageSize {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for PageSize {}

impl Hash for PageSize {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl PartialOrd for PageSize {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PageSize {
    fn cmp(&self, _: &Self) -> Ordering {
        Ordering::Equal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_no_more_objects_than_could_be_real() {
        let page = |items: usize| format!(r#"{{"metadata":{{}},"items":[{}1]}}"#, "1,".repeat(items - 1));
        let (whole, beyond) = (page(MOST_ITEMS), page(MOST_ITEMS + 1));
        assert_eq!(serde_json::from_str::<Page<'_>>(&whole).unwrap().items.len(), MOST_ITEMS);
        let error = serde_json::from_str::<Page<'_>>(&beyond).map(drop).unwrap_err().to_string();
        assert!(error.contains("expected a list of at most 262144 objects"), "{error}");
    }

    #[test]
    fn a_page_without_a_list_is_empty() {
        for items in ["", r#","items":null"#, r#","items":[]"#] {
            let page = format!(r#"{{"metadata":{{"resourceVersion":"1"}}{items}}}"#);
            assert_eq!(serde_json::from_str::<Page<'_>>(&page).unwrap().items.len(), 0, "{page}");
        }
        assert!(serde_json::from_str::<Page<'_>>(r#"{"metadata":{},"items":{}}"#).is_err());
    }
}
