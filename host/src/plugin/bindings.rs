//! The contract of `wit/` as Rust types, and the one place that trusts compiled code on disk.
#![allow(
    unsafe_code,
    missing_docs,
    reason = "generated code, whose documentation is in wit/; and `map_compiled`"
)]
#![allow(
    clippy::pedantic,
    unreachable_pub,
    dead_code,
    reason = "generated code"
)]

use std::path::Path;

use wasmtime::Engine;
use wasmtime::component::Component;

/// The version of `capstan:operator` that this daemon offers: that of the world below, which has to be that of `wit/`.
pub const CONTRACT: &str = "0.1.0";

wasmtime::component::bindgen!({
    path: "../wit",
    inline: "
        package capstan:daemon;

        /// What this daemon offers, and what it calls. Without `matcher`: `match` as an export does not compile here, so
        /// it is bound by hand in `instance.rs`.
        world daemon {
            include capstan:operator/imports@0.1.0;
            export capstan:operator/reconciler@0.1.0;
            export capstan:operator/cleaner@0.1.0;
            export capstan:operator/error-handler@0.1.0;
            export capstan:operator/dependent@0.1.0;
            export capstan:operator/condition@0.1.0;
        }
    ",
    imports: {
        "capstan:operator/operations": async,
        "capstan:operator/workflow": async,
    },
    exports: { default: async },
});

/// Maps compiled code into memory. The file must have been written by [`Engine::precompile_component`], whole.
///
/// # Errors
/// If it was written by another version of wasmtime, or for another engine or processor.
pub(super) fn map_compiled(engine: &Engine, file: &Path) -> wasmtime::Result<Component> {
    // SAFETY: the file is native code that nobody checks any more. The caller keeps it in a folder that only this user
    // can write, has written it itself, and has compared its digest with what was written (`loader::CodeCache`).
    unsafe { Component::deserialize_file(engine, file) }
}
