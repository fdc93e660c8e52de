//! `capstan save`: writes components of registries with their signatures into a file.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use capstan_core::registry::artifact::{self, Descriptor, Found};
use capstan_core::registry::layout::{self, Listed, Signatures};
use capstan_core::registry::{Digest, Failure, Kind, Reference};
use capstan_core::text;

use super::beside::Beside;
use super::registry::{failed, one_user, resolved, with_signatures};
use crate::cli::args::Save;
use crate::read;
use crate::registry::archive::Writer;
use crate::registry::{Resolved, Session};

/// A component, with all that is written of it but its bytes.
struct Component<'a> {
    reference: &'a Reference,
    session: Session,
    resolved: Resolved,
    config: Vec<u8>,
    signatures: Vec<Signatures>,
    left_out: Vec<String>,
}

/// Writes the file, and prints each reference with its digest.
///
/// # Errors
/// If a registry does not give a component, or the file can't be written.
pub async fn run(args: &Save) -> anyhow::Result<ExitCode> {
    let Save { references, output, registry, mirrors } = args;
    one_user(registry, references)?;
    let mut components = Vec::new();
    for reference in references {
        let find = async |session, resolved| Component::find(reference, (session, resolved)).await;
        let asked = (registry, &*mirrors.registry_mirrors);
        components.push(Box::pin(resolved(asked, reference, ("save", read::COMPONENT), find)).await?);
    }
    // Written in one go: nobody takes half of it for the whole.
    let (beside, file) = Beside::begin(output)?;
    Box::pin(write(output, file, &mut components)).await?;
    beside.done()?;
    let said: String = components.iter().map(Component::shown).collect();
    std::io::stdout().write_all(text::lines(&said).as_bytes()).context("write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

async fn write(output: &Path, file: File, components: &mut [Component<'_>]) -> anyhow::Result<()> {
    let writing = || format!("write {}", output.display());
    let listed: Vec<_> = components.iter().flat_map(Component::listed).collect();
    let mut seen = BTreeSet::new();
    let listed: Vec<_> = listed
        .into_iter()
        .filter(|listed| seen.insert((listed.name.clone(), listed.descriptor.digest.clone())))
        .collect();
    let out = BufWriter::new(file);
    let mut writer = Writer::begin(out, &listed).with_context(writing)?;
    // What several have is there once.
    let mut there = BTreeSet::new();
    for component in components {
        component.write(&mut writer, &mut there).await?;
    }
    writer.end().with_context(writing)?;
    Ok(())
}

impl<'a> Component<'a> {
    /// Finds out what is signed of what a reference names.
    async fn find(reference: &'a Reference, (mut session, resolved): (Session, Resolved)) -> Result<Self, Failure> {
        let is_index = artifact::read(&resolved.manifest, Some(&resolved.media_type), u64::MAX);
        if let Ok(Found::Manifest(manifest)) = is_index {
            let right = reference.at(&manifest.digest);
            return Err(Failure::wrong(format!("it names an index; expected the component in it, {right}")));
        }
        let config = session.config(&resolved.artifact.config).await?;
        let (signatures, left_out) = session.signatures(&resolved).await?;
        let layer = &resolved.artifact.layer;
        if !session.says_to_have(layer).await {
            return Err(Failure::new(
                Kind::Missing,
                format!("it does not say that it has the component, {}", layer.digest),
            ));
        }
        Ok(Self { reference, session, resolved, config, signatures, left_out })
    }

    /// Returns how its manifests are listed.
    fn listed(&self) -> Vec<Listed> {
        let Resolved { digest, manifest, media_type, .. } = &self.resolved;
        let descriptor =
            Descriptor { media_type: media_type.clone(), digest: digest.clone(), size: manifest.len() as u64 };
        let component = Listed { descriptor, name: Some(layout::name(self.reference)), artifact_type: None };
        let signatures = self.signatures.iter().map(|Signatures { carried, tag }| Listed {
            descriptor: carried.descriptor.clone(),
            name: tag.as_ref().map(|tag| format!("{}:{tag}", self.reference.name())),
            artifact_type: tag.is_none().then(|| carried.artifact_type.clone()),
        });
        std::iter::once(component).chain(signatures).collect()
    }

    async fn write(
        &mut self,
        writer: &mut Writer<BufWriter<File>>,
        there: &mut BTreeSet<Digest>,
    ) -> anyhow::Result<()> {
        let Self { reference, session, resolved, config, signatures, .. } = self;
        let manifests =
            signatures.iter().map(|Signatures { carried, .. }| (&carried.descriptor.digest, &carried.manifest));
        let held = [(&resolved.digest, &resolved.manifest), (&resolved.artifact.config.digest, &*config)];
        for (digest, bytes) in held.into_iter().chain(manifests) {
            if there.insert(digest.clone()) {
                writer.blob(digest, bytes)?;
            }
        }
        let parts = signatures.iter().flat_map(|Signatures { carried, .. }| &carried.parts);
        for part in std::iter::once(&resolved.artifact.layer).chain(parts) {
            if there.insert(part.digest.clone()) {
                let out = writer.part(part)?;
                session.blob(part, out).await.map_err(failed("save", reference))?;
                writer.pad(part)?;
            }
        }
        Ok(())
    }

    fn shown(&self) -> String {
        let reference = self.reference.at(&self.resolved.digest);
        let mut said = format!("{reference}\n{}", with_signatures(self.signatures.len()));
        for why in &self.left_out {
            // Writing to a string cannot fail.
            let _infallible = writeln!(said, "  left out: {why}");
        }
        said
    }
}
