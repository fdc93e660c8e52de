//! Decides what creates, updates and patches do: if they are allowed, what they store, and if that is a change.

use std::sync::Arc;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, ReplaceOperation};
use serde_json::Value;

use crate::decode::{Decoded, decode};
use crate::defaults;
use crate::fields::Fields;
use crate::managed::{self, Rules};
use crate::meta::{self, finalizers, is_deleting};
use crate::owner::{self, Manager, Operation};
use crate::request::Options;
use crate::rules::{Part, prepare, prepare_new, validate, validate_change};
use crate::service_ip;
use crate::status::Refusal;
use crate::store::Id;
use crate::world::{At, Whole, World};

impl World {
    /// POST.
    pub(crate) fn create(&mut self, at: &At<'_>) -> Result<Whole, Refusal> {
        let options = at.asked.options("create")?;
        let Decoded { object, warnings } = decode(&at.kind, &body(at)?, options.validation)?;
        warned(&warnings, self.create_decoded(at, &options, object))
    }

    fn create_decoded(&mut self, at: &At<'_>, options: &Options, mut object: Value) -> Result<Whole, Refusal> {
        fits_namespace(at, &mut object)?;
        defaults::fill(&at.kind, &mut object);
        self.fits_life(at, meta::text(&object, "name"))?;
        // Only a POST is checked: a PUT or an apply that creates may have a version.
        if !meta::text(&object, "resourceVersion").is_empty() {
            return Err(Refusal::unknown("resourceVersion should not be set on objects to be created"));
        }
        let object = self.managed_update(at, options, &at.kind.nothing(), &object);
        self.insert(at, options, object)
    }

    /// PUT.
    pub(crate) fn replace(&mut self, at: &At<'_>, name: &str) -> Result<Whole, Refusal> {
        let options = at.asked.options("update")?;
        let Decoded { object, warnings } = decode(&at.kind, &body(at)?, options.validation)?;
        warned(&warnings, self.replace_decoded(at, &options, name, object))
    }

    fn replace_decoded(
        &mut self,
        at: &At<'_>,
        options: &Options,
        name: &str,
        mut object: Value,
    ) -> Result<Whole, Refusal> {
        fits_namespace(at, &mut object)?;
        fits_name(&mut object, name)?;
        defaults::fill(&at.kind, &mut object);
        let id = at.id(name);
        let uid = meta::text(&object, "uid");
        let Some(old) = self.store.get(&id).cloned() else {
            if !at.kind.quirks.put_creates {
                return Err(Refusal::not_found(&at.kind, name));
            }
            if !uid.is_empty() {
                let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: ");
                return Err(Refusal::conflict(&at.kind, name, &why));
            }
            self.fits_life(at, name)?;
            let object = self.managed_update(at, options, &at.kind.nothing(), &object);
            return self.insert(at, options, object);
        };
        let found = meta::text(&old, "uid");
        if !uid.is_empty() && uid != found {
            let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {found}");
            return Err(Refusal::conflict(&at.kind, name, &why));
        }
        let object = self.managed_update(at, options, &old, &object);
        self.update(at, options, (&old, object))
    }

    /// PATCH.
    pub(crate) fn patch(&mut self, at: &At<'_>, name: &str) -> Result<Whole, Refusal> {
        let options = at.asked.options("patch")?;
        let id = at.id(name);
        let old = self.store.get(&id).cloned();
        match (at.asked.content.as_str(), old) {
            ("application/apply-patch+yaml", old) => self.apply(at, &options, &id, old.as_ref()),
            ("application/json-patch+json" | "application/merge-patch+json", None) => {
                Err(Refusal::not_found(&at.kind, name))
            }
            ("application/json-patch+json", Some(old)) => {
                let patch: Patch = serde_json::from_slice(&at.asked.body)
                    .map_err(|error| Refusal::bad(format!("error decoding patch: {error}")))?;
                let new = patched(&old, patch).ok_or_else(Refusal::unfit)?;
                self.patched(at, &options, (&old, &new))
            }
            ("application/merge-patch+json", Some(old)) => {
                let patch = body(at)?;
                let mut new = old.as_ref().clone();
                json_patch::merge(&mut new, &patch);
                self.patched(at, &options, (&old, &new))
            }
            (_, _) => Err(Refusal::media()),
        }
    }

    /// Stores the result of a patch.
    fn patched(&mut self, at: &At<'_>, options: &Options, (old, new): (&Arc<Value>, &Value)) -> Result<Whole, Refusal> {
        let decoded = decode(&at.kind, new, options.validation);
        let Decoded { mut object, warnings } = decoded.map_err(|refusal| refusal.of_patch(&at.kind))?;
        defaults::fill(&at.kind, &mut object);
        let mut object = self.managed_update(at, options, old, &object);
        let fits = fits_namespace(at, &mut object).and_then(|()| fits_name(&mut object, meta::text(old, "name")));
        warned(&warnings, fits.and_then(|()| self.update(at, options, (old, object))))
    }

    /// Stores an object that is new.
    pub(crate) fn insert(&mut self, at: &At<'_>, options: &Options, mut object: Value) -> Result<Whole, Refusal> {
        let before = self.chance.clone();
        self.found(&mut object, at.now);
        if at.kind.name == "Service" && at.part == Part::Main {
            self.address += 1;
            service_ip::allocate(&mut object, self.address);
        }
        prepare_new(&at.kind, &mut object);
        let name = meta::text(&object, "name").to_owned();
        let wrong = validate(&at.kind, &object);
        let refusal = if wrong.is_empty() {
            let taken = self.store.get(&at.id(&name)).is_some();
            taken.then(|| Refusal::exists(&at.kind, &name))
        } else {
            Some(Refusal::invalid(&at.kind, &name, &wrong))
        };
        if let Some(refusal) = refusal {
            self.chance = before;
            return Err(refusal);
        }
        if options.dry_run {
            return Ok(Whole { code: 201, ..Whole::ok(object) });
        }
        let stored = self.commit(&at.id(&name), Some(object), &Value::Null, at.now);
        Ok(Whole { code: 201, ..Whole::ok(stored.as_ref().clone()) })
    }

    /// Stores an object in the place of `old`, unless it is the same.
    pub(crate) fn update(
        &mut self,
        at: &At<'_>,
        options: &Options,
        (old, mut new): (&Arc<Value>, Value),
    ) -> Result<Whole, Refusal> {
        let id = &at.id(meta::text(old, "name"));
        let (given, version) = (meta::text(&new, "resourceVersion"), meta::text(old, "resourceVersion"));
        if given.is_empty() || given == "0" {
            if at.kind.custom {
                return Err(Refusal::unversioned(&at.kind, id.name()));
            }
        } else if given.parse::<u64>().is_err() {
            return Err(Refusal::unknown(&format!("unable to parse resourceVersion: {given}")));
        } else if given != version {
            return Err(Refusal::outdated(&at.kind, id.name()));
        }
        meta::set(&mut new, "resourceVersion", Some(version.into()));
        if at.kind.name == "Service" {
            service_ip::keep(old, &mut new);
        }
        prepare(&at.kind, at.part, old, &mut new);
        let wrong = validate_change(&at.kind, old, &new);
        if !wrong.is_empty() {
            return Err(Refusal::invalid(&at.kind, id.name(), &wrong));
        }
        if is_same(old, &new) {
            return Ok(Whole::ok(old.as_ref().clone()));
        }
        if options.dry_run {
            return Ok(Whole::ok(new));
        }
        let ends = is_deleting(&new) && finalizers(&new).is_empty() && at.kind.name != "Namespace";
        if ends {
            // The object is not written once more before it is removed: watches show it with its last finalizer, and
            // the answer has the version that it had.
            self.commit(id, None, old, at.now);
            return Ok(Whole::ok(new));
        }
        let stored = self.commit(id, Some(new), &Value::Null, at.now);
        Ok(Whole::ok(stored.as_ref().clone()))
    }

    /// Returns the result of a write to `live` other than an apply, with its managers.
    fn managed_update(&self, at: &At<'_>, options: &Options, live: &Value, new: &Value) -> Value {
        let manager = manager(at, options, Operation::Update);
        let now = self.written(at.now);
        let rules = Rules { kind: &at.kind, reset: at.part.reset(&at.kind), now: &now };
        managed::updated(live, new, &manager, &rules)
    }

    /// Refuses to create an object in a namespace that does not exist or is being deleted.
    pub(crate) fn fits_life(&self, at: &At<'_>, name: &str) -> Result<(), Refusal> {
        let Some(namespace) = at.namespace else {
            return Ok(());
        };
        let Some(namespaces) = self.number("v1", "Namespace") else {
            return Ok(());
        };
        match (self.store.get(&Id::new(namespaces, None, namespace)), self.kind(namespaces)) {
            (None, Some(kind)) => Err(Refusal::not_found(kind, namespace)),
            (Some(object), _) if is_deleting(object) => Err(Refusal::terminating(&at.kind, name, namespace)),
            (Some(_) | None, _) => Ok(()),
        }
    }
}

/// Returns the manager of a write.
pub(crate) fn manager(at: &At<'_>, options: &Options, operation: Operation) -> Manager {
    Manager {
        name: options.manager.clone(),
        operation,
        api_version: at.kind.api_version(),
        subresource: at.part.name().to_owned(),
    }
}

/// Returns an answer, of success or not, with its warnings.
fn warned(warnings: &[String], answer: Result<Whole, Refusal>) -> Result<Whole, Refusal> {
    match answer {
        Ok(whole) => Ok(Whole { warnings: warnings.to_vec(), ..whole }),
        Err(refusal) => Err(refusal.warning(warnings)),
    }
}

pub(crate) fn body(at: &At<'_>) -> Result<Value, Refusal> {
    serde_json::from_slice(&at.asked.body).map_err(|error| Refusal::bad(format!("error decoding body: {error}")))
}

pub(crate) fn fits_namespace(at: &At<'_>, object: &mut Value) -> Result<(), Refusal> {
    let given = meta::text(object, "namespace");
    match at.namespace {
        Some(namespace) if given.is_empty() => {
            meta::set(object, "namespace", Some(namespace.into()));
            Ok(())
        }
        Some(namespace) if given != namespace => {
            Err(Refusal::bad("the namespace of the provided object does not match the namespace sent on the request"))
        }
        None if !given.is_empty() => Err(Refusal::bad("namespace may not be set on a cluster-scoped object")),
        Some(_) | None => Ok(()),
    }
}

pub(crate) fn fits_name(object: &mut Value, name: &str) -> Result<(), Refusal> {
    let given = meta::text(object, "name");
    if given.is_empty() {
        meta::set(object, "name", Some(name.into()));
        return Ok(());
    }
    if given != name {
        return Err(Refusal::bad(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    Ok(())
}

/// Returns the result of a JSON patch; `None` if the patch does not fit. A `replace` in a map need not find the
/// field.
fn patched(old: &Value, patch: Patch) -> Option<Value> {
    let mut new = old.clone();
    for operation in patch.0 {
        let in_map = |path: &PointerBuf| {
            let parent = path.parent().and_then(|parent| new.pointer(parent.as_str()));
            parent.is_some_and(Value::is_object)
        };
        let operation = match operation {
            PatchOperation::Replace(ReplaceOperation { path, value }) if in_map(&path) => {
                PatchOperation::Add(AddOperation { path, value })
            }
            operation @ (PatchOperation::Add(_)
            | PatchOperation::Remove(_)
            | PatchOperation::Replace(_)
            | PatchOperation::Move(_)
            | PatchOperation::Copy(_)
            | PatchOperation::Test(_)) => operation,
        };
        json_patch::patch(&mut new, &[operation]).ok()?;
    }
    Some(new)
}

/// True if a write changes nothing: the time of the last write does not count.
fn is_same(old: &Value, new: &Value) -> bool {
    let timeless = |object: &Value| {
        let entries = owner::read(object)
            .into_iter()
            .map(|entry| (entry.manager.name, entry.manager.operation, entry.manager.subresource, entry.fields));
        let mut entries: Vec<(String, Operation, String, Fields)> = entries.collect();
        entries.sort_by(|a, b| (&a.0, a.1, &a.2).cmp(&(&b.0, b.1, &b.2)));
        entries
    };
    owner::bare(old) == owner::bare(new) && timeless(old) == timeless(new)
}
