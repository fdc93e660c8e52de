//! Why a component can't be used, by the step that found it out.

use std::io;
use std::path::{Path, PathBuf};

use capstan_core::guest::{Failure, Interface};
use capstan_core::manifest::Errors;
use capstan_core::manifest::needs::Need;
use capstan_core::text;

use crate::client::chain;
use crate::plugin::bindings::CONTRACT;
use crate::plugin::bounds::Excess;
use crate::plugin::code;

/// The contract's package.
pub(super) const PACKAGE: &str = "capstan:operator";

/// Why a component cannot be used. Each text begins with [`Error::step`]. Not worth retrying with the same file, but for
/// [`Error::Read`], [`Error::Empty`] and [`Error::Truncated`], which a file that is being copied gives too, and
/// [`Error::Prepare`], which is the daemon's own.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The manifest has no such plugin.
    #[error("find plugin {0:?}: the manifest has none of that name under spec.plugins")]
    Unknown(String),
    /// The file.
    #[error("read component {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// There is nothing in it.
    #[error("verify {}: it is empty; it should be a WebAssembly component", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// It does not begin as WebAssembly does.
    #[error(
        "verify {}: it is not WebAssembly, because it begins with \"{}\"; it should be a component, which begins with \"\\0asm\"",
        path.display(), begin.escape_ascii()
    )]
    NotWasm {
        /// The file.
        path: PathBuf,
        /// Its first bytes; not more of them, for it may be a secret.
        begin: Vec<u8>,
    },
    /// A core module.
    #[error(
        "verify {}: it is a core module, not a component: build it for wasm32-wasip2, or wrap it with `wasm-tools component new`",
        path.display()
    )]
    CoreModule {
        /// The file.
        path: PathBuf,
    },
    /// The end is missing.
    #[error(
        "verify {}: it is cut off: it ends within a section, after {length} bytes; copy it again, whole",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its length.
        length: usize,
    },
    /// No valid component, or one that uses what the daemon does not switch on.
    #[error("compile {}: it is not a valid component: {reason}", path.display())]
    Compile {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// It is made of more than anything that is meant.
    #[error("verify {}: {excess}; build it with optimization, or of less", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// What is too large, and where.
        excess: Excess,
    },
    /// To compile it takes more than it may.
    #[error(
        "compile {}: {reason}; build it smaller, or allow more (--compile-memory, --compile-timeout)",
        path.display()
    )]
    Costly {
        /// The file.
        path: PathBuf,
        /// Of what, and how much.
        reason: String,
    },
    /// It was built for another contract.
    #[error(
        "check {}: it was built for {PACKAGE} {found}, this daemon offers {CONTRACT}; build it with an SDK for {CONTRACT}",
        path.display()
    )]
    Contract {
        /// The file.
        path: PathBuf,
        /// The version that it was built for.
        found: String,
    },
    /// It imports what is not there.
    #[error("check {}: it imports what this daemon does not offer: {}", path.display(), missing.join("; "))]
    Imports {
        /// The file.
        path: PathBuf,
        /// Each import, and what can be done about it.
        missing: Vec<String>,
    },
    /// What it imports is there, but not with that signature.
    #[error("link {}: it does not fit this daemon: {reason}", path.display())]
    Link {
        /// The file.
        path: PathBuf,
        /// Interface, function and difference.
        reason: String,
    },
    /// It lacks what the manifest needs.
    #[error(
        "check {}: it lacks exports that the manifest needs: {}; it exports {}",
        path.display(), listed(missing), names(found)
    )]
    Exports {
        /// The file.
        path: PathBuf,
        /// All of them.
        missing: Vec<Need>,
        /// The interfaces of the contract that it has instead.
        found: Vec<Interface>,
    },
    /// It exports what the manifest leaves no place for (`LC-5`).
    #[error(
        "check {}: it exports what the manifest leaves no place for: {}; build it without, or take that out of the manifest: with `triggerOnAllEvents` nothing is cleaned up but by `reconcile`",
        path.display(), listed(unwanted)
    )]
    Unwanted {
        /// The file.
        path: PathBuf,
        /// All of them, with the fields that leave no place.
        unwanted: Vec<Need>,
    },
    /// An export is not as the contract says.
    #[error(
        "check {}: it exports `{interface}` otherwise than {PACKAGE} {CONTRACT} says: {reason}",
        path.display()
    )]
    Signature {
        /// The file.
        path: PathBuf,
        /// The interface.
        interface: String,
        /// The function, and the difference.
        reason: String,
    },
    /// It answers to other names than the manifest uses (`LC-15`).
    #[error("check {}: it does not answer to all names that the manifest uses:\n\n{lacking}", path.display())]
    Names {
        /// The file.
        path: PathBuf,
        /// Each of them, with its place in the manifest, and what the component has.
        lacking: Errors,
    },
    /// It does not say which names it answers to, although it exports `description`.
    #[error("describe {}", path.display())]
    Describe {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Failure,
    },
    /// It does not start.
    #[error("start {}", path.display())]
    Start {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Failure,
    },
    /// The daemon's own side.
    #[error("prepare to load components: {0}")]
    Prepare(String),
}

impl Error {
    /// Returns the step that failed: `find` in the manifest, `read`, `verify` that it is a whole component, `compile`,
    /// `check` against the contract and the manifest, `link` with what the daemon offers, `start`, `describe` its names;
    /// `prepare` is the daemon's own.
    pub fn step(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "find",
            Self::Read { .. } => "read",
            Self::Empty { .. }
            | Self::NotWasm { .. }
            | Self::CoreModule { .. }
            | Self::Truncated { .. }
            | Self::TooLarge { .. } => "verify",
            Self::Compile { .. } | Self::Costly { .. } => "compile",
            Self::Contract { .. }
            | Self::Imports { .. }
            | Self::Exports { .. }
            | Self::Unwanted { .. }
            | Self::Signature { .. }
            | Self::Names { .. } => "check",
            Self::Link { .. } => "link",
            Self::Start { .. } => "start",
            Self::Describe { .. } => "describe",
            Self::Prepare(_) => "prepare",
        }
    }
}

impl Error {
    /// Returns it with its causes: in one line, but for an error that is told with lines of the manifest.
    pub fn told(&self) -> String {
        if let Self::Names { .. } = self { text::block(&self.to_string()) } else { chain(self) }
    }

    pub(super) fn of(path: &Path, error: code::Error) -> Self {
        let path = path.to_owned();
        match error {
            code::Error::Invalid(reason) => Self::Compile { path, reason },
            code::Error::Costly(reason) => Self::Costly { path, reason },
            code::Error::TooLarge(excess) => Self::TooLarge { path, excess },
            code::Error::Prepare(why) | code::Error::Unusable(why) => Self::Prepare(why),
        }
    }
}

fn listed(missing: &[Need]) -> String {
    let lines: Vec<_> = missing.iter().map(|need| format!("`{}` ({})", need.interface.name(), need.field)).collect();
    lines.join(", ")
}

fn names(found: &[Interface]) -> String {
    match found {
        [] => format!("nothing of {PACKAGE}"),
        found => {
            let names: Vec<_> = found.iter().map(|interface| interface.name()).collect();
            format!("`{}`", names.join("`, `"))
        }
    }
}
