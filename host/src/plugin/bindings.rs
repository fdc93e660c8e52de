//! The contract of `wit/` as Rust types, and the one place that trusts compiled code on disk.
#![allow(
    unsafe_code,
    missing_docs,
    reason = "generated code, whose documentation is in wit/; and the two functions at the end"
)]
#![allow(clippy::pedantic, unreachable_pub, dead_code, reason = "generated code")]

use std::fs::File;
use std::os::fd::AsRawFd;

use wasmtime::Engine;
use wasmtime::component::Component;

/// The version of `capstan:operator` that this daemon offers: that of the world below, which has to be that of `wit/`.
pub const CONTRACT: &str = "0.1.0";

wasmtime::component::bindgen!({
    path: "../wit",
    inline: "
        package capstan:daemon;

        /// What this daemon offers; and for their types, interfaces of which it calls functions (`instance.rs`).
        world daemon {
            include capstan:operator/imports@0.1.0;
            export capstan:operator/reconciler@0.1.0;
            export capstan:operator/cleaner@0.1.0;
            export capstan:operator/error-handler@0.1.0;
            export capstan:operator/retry-policy@0.1.0;
            export capstan:operator/validator@0.1.0;
            export capstan:operator/external@0.1.0;
            export capstan:operator/condition@0.1.0;
            export capstan:operator/poller@0.1.0;
            export capstan:operator/resource-poller@0.1.0;
            export capstan:operator/inbound@0.1.0;
            export capstan:operator/filter@0.1.0;
            export capstan:operator/description@0.1.0;
        }
    ",
    imports: {
        "capstan:operator/cache": async,
        "capstan:operator/operations": async,
        "capstan:operator/workflow": async,
        "capstan:operator/sources.register": async,
    },
    exports: { default: async },
});

/// Returns a path that leads to what is open, whatever has become of its name.
pub(super) fn path_to(file: &File) -> String {
    let open = if cfg!(target_os = "linux") { "/proc/self/fd" } else { "/dev/fd" };
    format!("{open}/{}", file.as_raw_fd())
}

/// Maps compiled code into memory. The file must have been written by [`Engine::precompile_component`], whole; what stands
/// behind that does not matter.
///
/// # Errors
/// If it was written by another version of wasmtime, or for another engine or processor.
pub(super) fn map_compiled(engine: &Engine, file: &File) -> wasmtime::Result<Component> {
    // wasmtime opens by path only.
    let path = path_to(file);
    // SAFETY: the file is native code that nobody checks any more. The caller has just had it written, or has found the
    // seal of this daemon's key under it, and only this user can write it (`code/folder.rs`).
    unsafe { Component::deserialize_file(engine, path) }
}

/// The same with code in memory, of which it takes a copy.
///
/// # Errors
/// As for [`map_compiled`].
pub(super) fn load_compiled(engine: &Engine, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: as above.
    unsafe { Component::deserialize(engine, code) }
}
