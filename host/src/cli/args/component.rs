//! The arguments of `capstan component`.

use std::path::PathBuf;

use clap::Args;

/// `capstan component`.
#[derive(Args, Debug)]
pub struct Component {
    /// The folder of the parts: core.wasm, adapter.wat, and the folder wit with the worlds `component` and `adapter`.
    pub parts: PathBuf,
    /// The component to write.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}
