//! Puts faults into a copy of the workspace, one at a time, and has simulations find them there.

use std::process::{Command, ExitCode};

use anyhow::{Result, bail};

use super::fault::Fault;
use crate::ui::{Ui, whole};
use crate::workspace::Workspace;
use crate::{copies, process, table, ui};

/// Looks for faults, and says what showed them. `command` plays the simulations.
pub(super) fn hunt(
    ui: &Ui,
    workspace: &Workspace,
    faults: &[&Fault],
    command: impl Fn() -> Command,
) -> Result<ExitCode> {
    let mut rows = vec![["fault", "seed", "what was wrong"].map(ui::bold).to_vec()];
    let mut code = ExitCode::SUCCESS;
    for fault in faults {
        let Fault { name, what, .. } = fault;
        let mut command = command();
        command.current_dir(copies::make(workspace, "faults", &[fault.edit()])?);
        command.env("CARGO_TARGET_DIR", &workspace.target);
        let mut task = ui.task(name);
        let finished = process::run(command, &mut |line| task.at(line))?;
        let seen = finished.output.iter().find_map(|line| failure(line));
        match seen {
            Some(_) => task.done(what),
            None => task.failed(what),
        };
        if seen.is_none() {
            if !finished.status.success() {
                whole(&finished.output);
                bail!("with {name} nothing can be played");
            }
            code = ExitCode::FAILURE;
        }
        let (seed, wrong) = seen.unwrap_or(("none", what));
        rows.push([*name, seed, wrong].map(str::to_owned).to_vec());
    }
    whole(&[table::render(&rows)]);
    Ok(code)
}

/// Returns the seed that failed, and what was wrong, if a line says that.
fn failure(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("seed ")?.split_once(": ")
}
