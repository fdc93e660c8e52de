//! Finds out what an image is, and pulls that if who asks for it has nothing of it yet.

use std::io;

use capstan_core::registry::Failure;
use capstan_core::registry::signature::Demands;

use super::super::Session;
use super::super::kept::{Kept, Known};
use super::remembered::{By, Remembered};
use super::unkept;
use crate::read;

/// Returns what an image is, pulled if it is not here. What is here was pulled for somebody, perhaps for others: these have it once the registry has
/// sent it to them, too (`OC-8`). An operator that has it already, and asks with other credentials than before, is sent nothing again.
pub(super) async fn pull(
    mut session: Session,
    kept: &Kept,
    (remembered, demands): (Option<&Remembered>, &Demands),
) -> Result<Remembered, Failure> {
    if let Some(Remembered { known, by }) = remembered {
        match session.still_names(&known.digest).await {
            Ok(true) => return Ok(Remembered { known: known.clone(), by: by.named() }),
            Err(failure) if failure.after.is_some() => return Err(failure),
            Ok(false) | Err(_) => {}
        }
    }
    let resolved = session.resolve(read::COMPONENT).await?;
    let signed = session.signed(&resolved, demands).await?;
    let layer = &resolved.artifact.layer;
    let is_here = kept.has(&layer.digest);
    let by = match remembered.filter(|found| found.known.component == layer.digest) {
        Some(found) if is_here => found.by.named(),
        Some(_) | None if is_here => {
            session.blob(layer, &mut io::sink()).await?;
            By::Credentials
        }
        Some(_) | None => {
            let draft = kept.draft().map_err(unkept)?;
            session.blob(layer, &mut draft.file()).await?;
            Kept::keep(draft, &layer.digest).map_err(unkept)?;
            By::Credentials
        }
    };
    let known = Known { digest: resolved.digest, component: resolved.artifact.layer.digest, signed };
    Ok(Remembered { known, by })
}
