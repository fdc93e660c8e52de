//! The arguments of `capstan save` and `load`.

use std::path::PathBuf;

use capstan_core::registry::Reference;
use capstan_core::registry::layout::Prefix;
use clap::Args;

use super::Registry;
use super::registry::{MirrorsOf, reference};

/// `capstan save`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  capstan save ghcr.io/org/webpage:1.2 -o webpage.tar
  capstan save ghcr.io/org/webpage:1.2 ghcr.io/org/database@sha256:0123… -o operators.tar

Writes an OCI image layout as a tar: components with all signatures that `capstan verify` would look at. The same components are the
same file. Prints each reference with its digest.
Exit status: 0 the file is written, 1 it is not (the message says why), 2 wrong usage.")]
pub struct Save {
    /// What is saved: REGISTRY/REPOSITORY:TAG, or with @sha256:… or both.
    #[arg(value_parser = reference, required = true, value_name = "REFERENCE")]
    pub references: Vec<Reference>,
    /// The file to write.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// How the registries are reached.
    #[command(flatten)]
    pub registry: Registry,
    /// Where the registry is mirrored.
    #[command(flatten)]
    pub mirrors: MirrorsOf,
}

/// `capstan load`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  capstan load operators.tar registry.internal:5000/mirror     ghcr.io/org/webpage:1.2 becomes registry.internal:5000/mirror/org/webpage:1.2
  capstan load webpage.tar --to registry.internal:5000/webpage:1.2

Takes an OCI image layout as a tar, as `capstan save` writes it, checks all digests, and then puts components and signatures into the registry
as they are. A signature is for the name under which it was made: component.verify.signedAs, or `capstan verify --signed-as`, permits it.
Exit status: 0 all is there, 1 it is not (the message says why), 2 wrong usage.")]
pub struct Load {
    /// The file.
    pub file: PathBuf,
    /// Where to: what stands in place of the host of each registry, REGISTRY or REGISTRY/PATH.
    #[arg(value_parser = Prefix::parse, required_unless_present = "to", conflicts_with = "to")]
    pub prefix: Option<Prefix>,
    /// Where the only component goes to: REGISTRY/REPOSITORY:TAG.
    #[arg(long, value_name = "REFERENCE", value_parser = reference)]
    pub to: Option<Reference>,
    /// How the registry is reached.
    #[command(flatten)]
    pub registry: Registry,
}
