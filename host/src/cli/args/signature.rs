//! The arguments of `capstan sign` and `verify`.

use std::path::PathBuf;

use capstan_core::registry::Reference;
use clap::Args;

use super::Registry;
use super::registry::{MirrorsOf, reference};

/// `capstan sign`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  openssl genpkey -algorithm ed25519 -out key.pem
  openssl pkey -in key.pem -pubout -out key.pub
  capstan sign --key key.pem ghcr.io/org/webpage:1.2

Puts a signature beside the component, as `cosign sign --key` does (a bundle of Sigstore that refers to it), and prints the reference with
the digest that is signed. No log is told of it.
Exit status: 0 it is signed, 1 it is not (the message says why), 2 wrong usage.")]
pub struct Sign {
    /// What is signed: REGISTRY/REPOSITORY:TAG, or with @sha256:… or both.
    #[arg(value_parser = reference)]
    pub reference: Reference,
    /// The private key in PEM: PKCS#8 without a password, ECDSA P-256 or Ed25519.
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// How the registry is reached.
    #[command(flatten)]
    pub registry: Registry,
}

/// `capstan verify`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  capstan verify --key key.pub ghcr.io/org/webpage:1.2
  capstan verify --key old.pub --key new.pub registry.internal:5000/webpage:1.2 --signed-as ghcr.io/org/webpage

Takes what `capstan sign` and `cosign sign --key` write, those before cosign 3 too. No log is asked.
Exit status: 0 it is signed by one of the keys, 1 it is not (the message says what was found), 2 wrong usage.")]
pub struct Verify {
    /// What should be signed: REGISTRY/REPOSITORY:TAG, or with @sha256:… or both.
    #[arg(value_parser = reference)]
    pub reference: Reference,
    /// A public key in PEM; may be given several times, then one of them has to have signed.
    #[arg(long = "key", value_name = "FILE", required = true)]
    pub keys: Vec<PathBuf>,
    /// Another name of the repository, for which it may have been signed; may be given several times.
    #[arg(long = "signed-as", value_name = "REGISTRY/REPOSITORY")]
    pub signed_as: Vec<String>,
    /// How the registry is reached.
    #[command(flatten)]
    pub registry: Registry,
    /// Where the registry is mirrored.
    #[command(flatten)]
    pub mirrors: MirrorsOf,
}
