//! The arguments of `capstan push`, `pull` and `inspect`.

use std::path::PathBuf;

use capstan_core::registry::Reference;
use capstan_core::registry::mirror::Entry;
use clap::Args;

use super::Output;

/// `capstan push`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  capstan push webpage.wasm ghcr.io/org/webpage:1.2
  capstan push webpage.wasm ghcr.io/org/webpage:1.2 --annotation org.opencontainers.image.source=https://github.com/org/webpage
  echo $TOKEN | capstan push webpage.wasm ghcr.io/org/webpage:1.2 --username me --password-stdin

Prints the reference with its digest, as a manifest can have it. The same component is the same digest whenever it is pushed, unless
SOURCE_DATE_EPOCH says when it was made.
Exit status: 0 it is there, 1 it is not (the message says why), 2 wrong usage.")]
pub struct Push {
    /// The component.
    pub file: PathBuf,
    /// Where to: REGISTRY/REPOSITORY:TAG.
    #[arg(value_parser = reference)]
    pub reference: Reference,
    /// What is said of it, such as org.opencontainers.image.version=1.2; may be given several times.
    #[arg(long = "annotation", value_name = "KEY=VALUE", value_parser = annotation)]
    pub annotations: Vec<(String, String)>,
    /// How the registry is reached.
    #[command(flatten)]
    pub registry: Registry,
}

/// `capstan pull`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  capstan pull ghcr.io/org/webpage:1.2 -o webpage.wasm
  capstan pull ghcr.io/org/webpage@sha256:0123… -o webpage.wasm

Prints the reference with its digest.
Exit status: 0 the file is written, 1 it is not (the message says why), 2 wrong usage.")]
pub struct Pull {
    /// What is pulled: REGISTRY/REPOSITORY:TAG, or with @sha256:… or both.
    #[arg(value_parser = reference)]
    pub reference: Reference,
    /// The file to write.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// How the registry is reached.
    #[command(flatten)]
    pub registry: Registry,
    /// Where the registry is mirrored.
    #[command(flatten)]
    pub mirrors: MirrorsOf,
}

/// `capstan inspect`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  capstan inspect ghcr.io/org/webpage:1.2
  capstan inspect webpage.wasm -o json
  capstan inspect webpage.wasm --against ghcr.io/org/webpage:1.2     what is new in it: imports, exports, contract, size
  capstan inspect new.yaml --against webpage.yaml     what a manifest gives its operator beside another one: rights, hosts, limits

What wants more than there was comes first, and says so. Without --against, what a reference names is not pulled: its imports and exports are
those that its config says, so who has pushed it; with --against, those of the component itself.
Exit status: 0 success, 1 there is no component (the message says why), 2 wrong usage.")]
pub struct Inspect {
    /// A component's file, or a reference; with --against also a manifest (*.yaml, *.yml) of one operator.
    #[arg(value_name = "FILE|REFERENCE")]
    pub subject: String,
    /// Another one, a file or a reference: says only what is otherwise than there, line by line.
    #[arg(long, value_name = "FILE|REFERENCE")]
    pub against: Option<String>,
    /// The format of the answer.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// How the registry is reached.
    #[command(flatten)]
    pub registry: Registry,
    /// Where the registry is mirrored.
    #[command(flatten)]
    pub mirrors: MirrorsOf,
}

/// Where registries are mirrored.
#[derive(Args, Clone, Debug)]
pub struct MirrorsOf {
    /// A mirror of a registry, which is asked before it, in this order; may be given several times. `*` is every registry without mirrors of its
    /// own, and REGISTRY=only has the registry itself never asked.
    #[arg(
        long = "registry-mirror",
        value_name = "REGISTRY=MIRROR",
        value_parser = Entry::parse,
        env = "CAPSTAN_REGISTRY_MIRRORS",
        value_delimiter = ','
    )]
    pub registry_mirrors: Vec<Entry>,
}

/// How a registry is reached, and who asks.
#[derive(Args, Debug)]
pub struct Registry {
    /// The user's name; without it what `docker login` has written to `config.json` in `$DOCKER_CONFIG` or `~/.docker`, if there
    /// is an entry for the registry.
    #[arg(long, value_name = "NAME", requires = "password_stdin")]
    pub username: Option<String>,
    /// Read the password from standard input.
    #[arg(long, requires = "username")]
    pub password_stdin: bool,
    /// A file with certificates in PEM that are trusted beside those of the system.
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Speak HTTP without TLS: everybody on the way can read the password, and put another component in its place.
    #[arg(long)]
    pub insecure: bool,
}

pub(super) fn reference(text: &str) -> Result<Reference, String> {
    Reference::parse(text)
}

fn annotation(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        Some(_) | None => Err("expected KEY=VALUE, such as org.opencontainers.image.version=1.2".to_owned()),
    }
}
