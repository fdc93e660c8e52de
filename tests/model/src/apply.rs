//! Decides what an apply does: which fields are merged, who owns them then, and who is in conflict.

use std::sync::Arc;

use serde_json::Value;

use crate::decode::{Validation, decode, misfits};
use crate::defaults;
use crate::kinds::Kind;
use crate::managed::{self, Rules};
use crate::meta;
use crate::owner::Operation;
use crate::request::Options;
use crate::rules::Part;
use crate::status::Refusal;
use crate::store::Id;
use crate::world::{At, Whole, World};
use crate::write::{body, fits_name, fits_namespace, manager};

impl World {
    /// PATCH by applying.
    pub(crate) fn apply(
        &mut self,
        at: &At<'_>,
        options: &Options,
        id: &Id,
        old: Option<&Arc<Value>>,
    ) -> Result<Whole, Refusal> {
        let config = config(at)?;
        if old.is_none() && at.part == Part::Status && !at.kind.quirks.put_creates {
            return Err(Refusal::not_found(&at.kind, id.name()));
        }
        fits(&at.kind, &config)?;
        let empty = Arc::new(at.kind.nothing());
        let live = old.unwrap_or(&empty);
        let manager = manager(at, options, Operation::Apply);
        let now = self.written(at.now);
        let rules = Rules { kind: &at.kind, reset: at.part.reset(&at.kind), now: &now };
        let object = managed::applied(live, &config, &manager, options.force, &rules)?;
        // Removed fields leave null behind, which objects of the API server's own kinds don't keep.
        let mut object = decode(&at.kind, &object, Validation::Ignore)?.object;
        fits_namespace(at, &mut object)?;
        fits_name(&mut object, id.name())?;
        defaults::fill(&at.kind, &mut object);
        if let Some(old) = old {
            return self.update(at, options, (old, object));
        }
        let uid = meta::text(&object, "uid");
        if !uid.is_empty() {
            let why =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(Refusal::conflict(&at.kind, id.name(), &why));
        }
        self.fits_life(at, id.name())?;
        self.insert(at, options, object)
    }
}

/// Returns the applied configuration, if it is of the kind.
fn config(at: &At<'_>) -> Result<Value, Refusal> {
    let config = body(at)?;
    let text = |field: &str| config.get(field).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if !at.kind.is(version, kind) {
        let group = if version.contains('/') { "" } else { "/" };
        return Err(Refusal::bad(format!("invalid object type: {group}{version}, Kind={kind}")));
    }
    if meta::get(&config, "managedFields").is_some_and(|said| !said.is_null()) {
        return Err(Refusal::bad("metadata.managedFields must be nil"));
    }
    Ok(config)
}

/// Refuses a configuration that does not fit the kind's schema.
fn fits(kind: &Kind, config: &Value) -> Result<(), Refusal> {
    let misfits = misfits(config, &kind.schema);
    let Some(first) = misfits.first() else {
        return Ok(());
    };
    let (namespace, object) = (meta::text(config, "namespace"), meta::text(config, "name"));
    let Kind { group, version, name, .. } = kind;
    let about = format!("{namespace}/{object}; {group}/{version}, Kind={name}");
    Err(Refusal::unknown(&format!("failed to create typed patch object ({about}): {first}")))
}
