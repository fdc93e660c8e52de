//! Makes the packages of the SDKs as their registries get them, decides whether they are whole, and lays them out for `capstan init --sdk`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Result, bail, ensure};

use crate::ui::{self, Task, Ui};
use crate::workspace::Workspace;
use crate::{files, plugins, process};

/// How many there are: two crates, two files for Python, and one each for JavaScript and Go.
const COUNT: usize = 6;
/// What is called so has no contract.
const MACROS: &str = "macros";

/// `cargo xtask packages`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask packages sdk
  capstan init --lang python --sdk sdk greeting")]
pub(crate) struct Args {
    /// The folder to make, which may be there if it is empty.
    folder: PathBuf,
}

pub(crate) fn run(ui: &Ui, workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    ui.doing("packages", |task| lay_out(task, workspace, &args.folder))?;
    ui::uncut(format!("    {}", args.folder.display()));
    Ok(ExitCode::SUCCESS)
}

/// Puts the packages of each language into a folder of its own, those of Rust and Go unpacked, as `sdk-guest` has the sources; returns a
/// sentence on it.
pub(crate) fn lay_out(task: &mut Task, workspace: &Workspace, folder: &Path) -> Result<String> {
    files::folder(folder)?;
    ensure!(files::entries(folder)?.is_empty(), "{} is not empty; name a folder that is", folder.display());
    let out = tempfile::tempdir()?;
    for (archive, name) in make(task, workspace, out.path())? {
        match archive.extension().unwrap_or_default().to_string_lossy().as_ref() {
            "crate" if name.contains(MACROS) => drop(unpack(task, &archive, &folder.join("rust/macros"))?),
            "crate" => drop(unpack(task, &archive, &folder.join("rust"))?),
            "tgz" => drop(files::put(&folder.join("javascript").join(name), &files::bytes(&archive)?)?),
            "whl" | "gz" => drop(files::put(&folder.join("python").join(name), &files::bytes(&archive)?)?),
            _ => files::copy(&archive, &folder.join("go"))?,
        }
    }
    Ok("for Rust, Python, JavaScript and Go".to_owned())
}

/// Looks into all packages; returns the name of each, and what is wrong with it.
pub(crate) fn check(task: &mut Task, workspace: &Workspace) -> Result<Vec<(String, Vec<String>)>> {
    let out = tempfile::tempdir()?;
    let mut checked = Vec::new();
    for (archive, name) in make(task, workspace, out.path())? {
        let package = unpack(task, &archive, &out.path().join("unpacked").join(&name))?;
        let top = top(&name).unwrap_or_default();
        let wrong = problems(&workspace.root, &package, top, !name.contains(MACROS))?;
        checked.push((name, wrong));
    }
    Ok(checked)
}

/// Makes all packages below a folder; returns their archives with their names.
fn make(task: &mut Task, workspace: &Workspace, out: &Path) -> Result<Vec<(PathBuf, String)>> {
    let words = "package -p capstan-guest-macros -p capstan-guest --no-verify --allow-dirty --offline";
    let mut cargo = workspace.cargo();
    cargo.args(words.split(' ')).arg("--target-dir").arg(out);
    process::must(task, cargo, "cargo package")?;
    for language in plugins::LANGUAGES {
        (language.pack)(task, workspace, &out.join("package"))?;
    }
    let named = files::entries(&out.join("package"))?.into_iter().map(|archive| {
        let name = archive.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (archive, name)
    });
    let made: Vec<_> = named.filter(|(_, name)| top(name).is_some()).collect();
    if made.len() != COUNT {
        bail!("there should be {COUNT} packages: {made:?}");
    }
    Ok(made)
}

/// Returns what a package has at its top but for hidden files, by its archive's name; none if that is no package.
fn top(name: &str) -> Option<&'static str> {
    Some(match name.rsplit('.').next()? {
        "crate" if name.contains(MACROS) => "Cargo.lock Cargo.toml Cargo.toml.orig LICENSE README.md src",
        "crate" => "Cargo.lock Cargo.toml Cargo.toml.orig LICENSE README.md src wit",
        "whl" => "capstan dist-info",
        "gz" => "LICENSE PKG-INFO README.md pyproject.toml src",
        "tgz" => "LICENSE README.md bin build package.json src",
        "go" => "LICENSE README.md adapter capstan capstantest cmd go.mod internal",
        _ => return None,
    })
}

/// Returns the folder with the files of an archive. Go's package is one already.
fn unpack(task: &mut Task, archive: &Path, to: &Path) -> Result<PathBuf> {
    if archive.is_dir() {
        return Ok(archive.to_owned());
    }
    files::folder(to)?;
    let is_wheel = archive.extension().is_some_and(|end| end == "whl");
    let (mut zip, mut tar) = (Command::new("python3"), Command::new("tar"));
    zip.args(["-m", "zipfile", "-e"]).arg(archive).arg(to);
    tar.args(["--strip-components=1", "-C"]).arg(to).arg("-xf").arg(archive);
    process::must(task, if is_wheel { zip } else { tar }, &format!("unpacking {}", archive.display()))?;
    Ok(to.to_owned())
}

/// Returns what is wrong with a package: what is at its top, its licence, and the contract.
fn problems(root: &Path, package: &Path, top: &str, has_contract: bool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let names = files::entries(package)?;
    let names = names.iter().filter_map(|path| path.file_name()?.to_str());
    let names: Vec<&str> = names
        .filter(|name| !name.starts_with('.'))
        // That of a wheel has its name and version before this.
        .map(|name| name.find("dist-info").map_or(name, |at| name.split_at(at).1))
        .collect();
    if names.join(" ") != top {
        wrong.push(format!("has {}, and not {top}", names.join(" ")));
    }
    let licence = files::text(&root.join("LICENSE"))?;
    if !texts(package, "LICENSE")?.contains(&licence) {
        wrong.push("has no copy of LICENSE".to_owned());
    }
    let found = texts(package, ".wit")?.concat();
    let contract = texts(&root.join("wit"), ".wit")?;
    if has_contract && !contract.iter().all(|text| found.contains(text)) {
        wrong.push("does not have all of wit/".to_owned());
    }
    Ok(wrong)
}

/// Returns the texts of the files whose names end with `end`. No link counts: registries take none.
fn texts(folder: &Path, end: &str) -> Result<Vec<String>> {
    let files = files::below(folder)?.into_iter();
    let those = files.filter(|path| !path.is_symlink() && path.to_string_lossy().ends_with(end));
    those.map(|path| files::text(&path)).collect()
}
