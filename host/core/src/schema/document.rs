//! Finds schemas in a document that the API server publishes (`OpenAPI` v3), and makes nothing else of it.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::budget::{self, Budget};
use crate::object::Gvk;

/// Returns the schema of a kind; `None` if there is none.
pub(super) fn of_kind(document: &str, gvk: &Gvk, budget: &mut Budget) -> Result<Option<Value>, budget::Error> {
    find(document, budget, |_, schema| {
        let kinds = serde_json::from_str::<OfKinds<'_>>(schema.get()).map(|of| of.kinds).unwrap_or_default();
        kinds.iter().any(|kind| kind.is(gvk))
    })
}

/// Returns the schema of a name; `None` if there is none.
pub(super) fn named(document: &str, wanted: &str, budget: &mut Budget) -> Result<Option<Value>, budget::Error> {
    find(document, budget, |name, _| name == wanted)
}

/// A document, as far as it counts.
#[derive(Deserialize)]
struct Document<'d> {
    #[serde(borrow)]
    components: &'d RawValue,
}

#[derive(Deserialize)]
struct Components<'d> {
    #[serde(borrow)]
    schemas: &'d RawValue,
}

/// The kinds of which something is the schema.
#[derive(Deserialize)]
struct OfKinds<'d> {
    #[serde(borrow, rename = "x-kubernetes-group-version-kind")]
    kinds: Vec<OfKind<'d>>,
}

/// A kind. All has to be there: a list of nothing would take many times its length in memory.
#[derive(Deserialize)]
struct OfKind<'d> {
    group: &'d str,
    version: &'d str,
    kind: &'d str,
}

impl OfKind<'_> {
    fn is(&self, gvk: &Gvk) -> bool {
        (self.group, self.version, self.kind) == (&*gvk.group, &*gvk.version, &*gvk.kind)
    }
}

/// How often [`find`] goes through the text.
const PASSES: usize = 4;

/// Returns the last schema that `is` the one that is looked for.
fn find(
    document: &str,
    budget: &mut Budget,
    mut is: impl FnMut(&str, &RawValue) -> bool,
) -> Result<Option<Value>, budget::Error> {
    budget.text(document.len().saturating_mul(PASSES))?;
    let mut found = None;
    let Document { components } = serde_json::from_str(document)?;
    let Components { schemas } = serde_json::from_str(components.get())?;
    let show = |name: &str, schema| {
        if is(name, schema) {
            found = Some(schema);
        }
    };
    Schemas(show).deserialize(&mut serde_json::Deserializer::from_str(schemas.get()))?;
    found.map(|schema| budget.read(schema.get())).transpose()
}

/// Shows the entries of a mapping.
struct Schemas<F>(F);

impl<'d, F: FnMut(&str, &'d RawValue)> DeserializeSeed<'d> for Schemas<F> {
    type Value = ();

    fn deserialize<D: Deserializer<'d>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'d, F: FnMut(&str, &'d RawValue)> Visitor<'d> for Schemas<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("schemas by name")
    }

    fn visit_map<A: MapAccess<'d>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some((name, schema)) = map.next_entry::<String, &'d RawValue>()? {
            (self.0)(&name, schema);
        }
        Ok(())
    }
}
