//! Starts a control plane, prints where it is, and keeps it running until standard input ends.

use std::io::{Read, Write};

use cluster::{Cluster, Options};

fn main() -> anyhow::Result<()> {
    let cluster = Cluster::start(&Options::default())?;
    writeln!(std::io::stdout(), "{}", cluster.dir().display())?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    cluster.stop();
    Ok(())
}
