//! Decides which sources a run may register and deregister: by their names, by what they are declared to be, by what the component answers to,
//! and by its permissions (`ES-4`).

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::time::Instant;

use super::controller::Controller;
use super::run::Run;
use crate::guest::{CallError, CallReason};
use crate::manifest::{Namespaces, Registration, described};
use crate::source::registered::Refused;

/// The longest declaration, in bytes.
const LONGEST: usize = 16 << 10;

/// Registers a source. Returns false if there is one of that name, which is kept.
pub(super) async fn register(run: &Run, name: String, declaration: String, by: Instant) -> Result<bool, CallError> {
    let controller = &run.controller;
    if is_declared(controller, &name) {
        return Ok(false);
    }
    let registration = match controller.registered.known(&name, &declaration) {
        Some(known) => known,
        None => read(run, &name, &declaration)?,
    };
    controller.permissions.permit_source(&registration.source.gvk)?;
    if !controller.registered.has(&name) {
        run.count_request()?;
    }
    let registered = controller.registered.register(&name, registration, by).await;
    registered.map_err(|Refused { error, outage }| {
        if outage {
            run.missed_server();
        }
        error
    })
}

/// Deregisters a source. It is a success if there is none.
pub(super) fn deregister(controller: &Controller, name: &str) -> Result<(), CallError> {
    if is_declared(controller, name) {
        let message = format!("source {name:?} is declared by the manifest: it stays as long as that declares it");
        return Err(CallError::new(CallReason::Denied, message));
    }
    controller.registered.deregister(name);
    Ok(())
}

/// True if the manifest has a source or a dependent of this name.
fn is_declared(controller: &Controller, name: &str) -> bool {
    controller.secondaries.contains_key(name) || controller.external(name).is_some()
}

/// Reads a declaration, on the run's budget.
fn read(run: &Run, name: &str, declaration: &str) -> Result<Registration, CallError> {
    let invalid = |why: String| CallError::new(CallReason::Invalid, format!("source {name:?}: {why}"));
    let size = declaration.len();
    if size > LONGEST {
        return Err(invalid(format!("found {size} bytes; a declaration has at most {LONGEST}")));
    }
    run.budget.lock().read(declaration).map_err(|error| invalid(error.to_string()))?;
    let Controller { spec, guest, .. } = &*run.controller;
    let mut registration = Registration::parse(name, declaration, &spec.indexes).map_err(invalid)?;
    if let (Some(home), Some(Namespaces::Own)) = (&spec.home, &registration.source.namespaces) {
        registration.source.namespaces = Some(Namespaces::Listed(BTreeSet::from([Arc::clone(home)])));
    }
    if spec.bounded.is_some() && registration.source.secondaries.is_some() {
        return Err(invalid("informer.secondaries: primaries are `bounded`, so that only the manifest says what leads from one that is forgotten: declare the source there".into()));
    }
    let asked = (&spec.own_name, &registration.source);
    let exports = |interface| guest.exports(interface);
    let unanswered = described::unanswered(asked, exports, guest.description(), &mut run.budget.lock());
    match unanswered.map_err(|error| invalid(error.to_string()))? {
        None => Ok(registration),
        Some(why) => Err(invalid(why)),
    }
}
