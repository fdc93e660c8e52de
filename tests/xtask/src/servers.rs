//! Gets the servers that scenarios talk to: packages of Debian, unpacked into the cache, so that nothing is installed.

use std::env::consts::{ARCH, OS};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Result, bail, ensure};

use crate::ui::Task;
use crate::{files, process};

/// A server.
pub(crate) struct Server {
    /// What it is called.
    name: &'static str,
    /// The variable that names the folder below which its program is, in place of what is got here.
    pub(crate) variable: &'static str,
    program: &'static str,
    /// The package, of the version that Debian 12 and Ubuntu 24.04 have.
    package: &'static str,
}

/// The database of the sample `mysql-schema`.
const MARIADB: Server = Server {
    name: "MariaDB",
    variable: "CAPSTAN_MARIADB",
    program: "usr/sbin/mariadbd",
    package: "mariadb-server-core=1:10.11.*",
};

/// The registry of components.
pub(crate) const REGISTRY: Server = Server {
    name: "docker-registry",
    variable: "CAPSTAN_REGISTRY",
    program: "usr/bin/docker-registry",
    package: "docker-registry=2.8.*",
};

pub(crate) const ALL: [Server; 2] = [MARIADB, REGISTRY];

impl Server {
    /// Returns its program below the folder that was prepared.
    pub(crate) fn program(&self, folder: &Path) -> PathBuf {
        folder.join(self.program)
    }

    /// Returns the folder below which the server is.
    ///
    /// # Errors
    /// If apt can't get it: the text says what to do.
    pub(crate) fn prepare(&self, task: &mut Task) -> Result<PathBuf> {
        let Self { name, variable, package, .. } = self;
        if let Some(given) = std::env::var_os(variable).filter(|folder| !folder.is_empty()) {
            let folder = PathBuf::from(given);
            let program = self.program(&folder);
            ensure!(program.is_file(), "{} is missing, and {variable} names its folder", program.display());
            return Ok(folder);
        }
        files::tools(task, name, &(package, OS, ARCH), |task, to| self.install(task, to))
    }

    fn install(&self, task: &mut Task, to: &Path) -> Result<()> {
        let Self { name, variable, package, .. } = self;
        let mut packages = packages(package)?;
        if packages.is_empty() {
            // What apt knows may be missing or old; only root may renew it.
            task.at("apt-get update");
            apt(&["update"])?;
            packages = self::packages(package)?;
        }
        let without = format!(
            "scenarios need {name}, and apt-get has no {package} here: run `apt-get update` as root on Debian 12 or Ubuntu 24.04, or install {name} and set {variable}=/"
        );
        ensure!(!packages.is_empty(), without);
        task.at(&format!("downloading {}", packages.join(", ")));
        let archives = tempfile::tempdir()?;
        let mut command = Command::new("apt-get");
        // Else root's files are got by another user, who may not write here.
        command.args(["-o", "APT::Sandbox::User=root", "download"]).args(&packages).current_dir(&archives);
        must(command, "apt-get download")?;
        for archive in files::entries(archives.path())? {
            let mut command = Command::new("dpkg-deb");
            command.arg("--extract").arg(&archive).arg(to);
            must(command, "dpkg-deb")?;
        }
        Ok(())
    }
}

/// Returns a package and those that it needs and that are not installed, as `name=version`; none if apt does not know them.
fn packages(package: &str) -> Result<Vec<String>> {
    let arguments = ["install", "--simulate", "--reinstall", "--no-install-recommends", package];
    let Some(output) = apt(&arguments)?.filter(|output| output.status.success()) else {
        return Ok(Vec::new());
    };
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(planned).collect())
}

/// Returns the package that a line of apt's plan installs, as `name=version`.
fn planned(line: &str) -> Option<String> {
    let [name, version] = process::found(r"^Inst (\S+) .*?\((\S+) ", line)?;
    Some(format!("{name}={version}"))
}

/// Returns what apt says; none if there is no apt.
fn apt(arguments: &[&str]) -> Result<Option<Output>> {
    let mut command = Command::new("apt-get");
    command.args(arguments).env("LC_ALL", "C");
    process::output(command)
}

fn must(command: Command, what: &str) -> Result<()> {
    let finished = process::run(command, &mut |_| {})?;
    if !finished.status.success() {
        bail!("{what} failed: {}", finished.output.join("; "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packages_are_those_of_apts_plan() {
        for (line, expected) in [
            ("Inst libaio1 (0.3.113-4 Debian:12.15/oldstable [amd64])", Some("libaio1=0.3.113-4")),
            ("Inst a [1:10.11.1] (1:10.11.19 Debian-Security:12 [amd64])", Some("a=1:10.11.19")),
            ("Conf libaio1 (0.3.113-4 Debian:12.15/oldstable [amd64])", None),
            ("Reading package lists...", None),
        ] {
            assert_eq!(planned(line).as_deref(), expected);
        }
    }
}
