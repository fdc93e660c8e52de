//! Builds the container image: the daemon as one static binary, and around it, by buildah, an OCI archive.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf, absolute};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use object::Endianness;
use object::read::elf::{ElfFile64, ProgramHeader};
use rustix::process::geteuid;
use tempfile::TempDir;

use crate::process::Process;
use crate::ui::{self, Task, Ui, cyan, size};
use crate::workspace::{Workspace, untold};
use crate::{files, plugins, process};

/// The oldest buildah that is known to do, and the one that is installed: major and minor.
const BUILDAH: (u32, u32) = (1, 28);

/// `cargo xtask image`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask image                                        what ships
  cargo xtask image --tag registry.example/capstan:0.1.0 --output capstan.tar
  cargo xtask image --binary-only                          the binary alone, for `docker build .`

An OCI archive can be given to skopeo copy oci-archive:FILE docker://…, podman load, ctr images import.
buildah writes it, without a daemon; on a Debian where you are root and it is missing, it is installed.")]
pub(crate) struct Args {
    /// Cargo's profile for the daemon.
    #[arg(long, value_enum, default_value_t = Profile::Release)]
    profile: Profile,
    /// The name of the image; without it capstan:VERSION.
    #[arg(long, value_name = "NAME:TAG", conflicts_with = "binary_only")]
    tag: Option<String>,
    /// Where the archive is written; without it <target>/image/capstan-PROFILE.tar.
    #[arg(long, value_name = "FILE", conflicts_with = "binary_only")]
    output: Option<PathBuf>,
    /// Build no image, only the binary that the Dockerfile copies.
    #[arg(long)]
    binary_only: bool,
}

/// How the daemon is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    /// Quickly, as for tests.
    Dev,
    /// As for benchmarks.
    Perf,
    /// As it ships.
    Release,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) archive: PathBuf,
    /// The name that it has in the archive.
    pub(crate) tag: String,
    /// The digest of its manifest, by which it is pulled.
    pub(crate) digest: String,
    pub(crate) size: u64,
}

/// The binary, where the Dockerfile expects it. Nobody else puts another one there until this is dropped.
struct Staged {
    path: PathBuf,
    /// What it is compiled for, as Rust and as images call it.
    target: &'static str,
    machine: &'static str,
    _lock: File,
}

pub(crate) fn run(ui: &Ui, workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    let staged = ui.making("binary", |task| {
        let staged = stage(task, workspace, args.profile)?;
        let detail = format!("{}, static, {}", staged.target, size(staged.path.metadata()?.len()));
        Ok((staged, detail))
    })?;
    if args.binary_only {
        ui::uncut(format!("    {}", staged.path.display()));
        let command = format!("docker build --build-arg VERSION={VERSION} --tag capstan:{VERSION} .");
        ui::uncut(format!("    {}", cyan(&command)));
        return Ok(ExitCode::SUCCESS);
    }
    let image = ui.making("image", |task| {
        let output = args.output.clone().unwrap_or_else(|| archive(workspace, args.profile));
        let image = write(task, workspace, &staged, args.tag.as_deref(), &output)?;
        let detail = format!("{}, {}", image.tag, size(image.size));
        Ok((image, detail))
    })?;
    ui::uncut(format!("    {}\n    {}", image.archive.display(), image.digest));
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn for_tests(task: &mut Task, workspace: &Workspace) -> Result<Image> {
    let staged = stage(task, workspace, Profile::Dev)?;
    let output = archive(workspace, Profile::Dev);
    write(task, workspace, &staged, None, &output)
}

/// Starts to build what [`for_tests`] needs, with what processor time others leave. If that fails, `for_tests` says why.
pub(crate) fn ahead(task: &mut Task, workspace: &Workspace) -> Result<Process> {
    let [target, _] = machine()?;
    plugins::ensure_target(task, workspace, target)?;
    let build = build(workspace, Profile::Dev, target)?;
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(build.get_program()).args(build.get_args());
    untold(&mut command);
    command.current_dir(&workspace.root).stdout(Stdio::null()).stderr(Stdio::null());
    Process::start(command)
}

fn archive(workspace: &Workspace, profile: Profile) -> PathBuf {
    let name = format!("image/capstan-{}.tar", profile.name());
    workspace.target.join(name)
}

// === the binary ===

/// The version of all packages of the workspace, and so of the image.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Builds the daemon and puts it where the Dockerfile expects it: below the root, which is what builders are given, also
/// where cargo builds elsewhere.
fn stage(task: &mut Task, workspace: &Workspace, profile: Profile) -> Result<Staged> {
    let [target, machine] = machine()?;
    let built = compile(task, workspace, profile, target)?;
    let folder = workspace.root.join("target/image").join(machine);
    let lock = files::lock(task, &folder.join("lock"), "waiting for another process to build an image")?;
    let path = folder.join("capstan");
    files::put(&path, &files::bytes(&built)?)?;
    // Whatever the umask is: another user runs it, and the image's digest has it in it.
    fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    Ok(Staged { path, target, machine, _lock: lock })
}

/// Builds the daemon against musl, which leaves one file that needs nothing of the system but its kernel.
fn compile(task: &mut Task, workspace: &Workspace, profile: Profile, target: &str) -> Result<PathBuf> {
    plugins::ensure_target(task, workspace, target)?;
    process::must(task, build(workspace, profile, target)?, "the build of the daemon")?;
    // Cargo's folder for `dev` has another name.
    let profile = if profile == Profile::Dev { "debug".to_owned() } else { profile.name() };
    let binary = folder(workspace).join(target).join(profile).join("capstan");
    if let Some(interpreter) = interpreter(&files::bytes(&binary)?)? {
        bail!("{} is not static: it needs {interpreter}, which the image does not have", binary.display());
    }
    Ok(binary)
}

fn build(workspace: &Workspace, profile: Profile, target: &str) -> Result<Command> {
    let mut command = workspace.cargo();
    // Alone, not with the whole workspace: nothing else is built for this target, so there is nothing to share.
    command.args(["build", "-p", "capstan", "--bin", "capstan"]);
    command.args(["--target", target, "--profile", &profile.name()]);
    command.args(["--config", &without_places(workspace, target)?]);
    command.arg("--target-dir").arg(folder(workspace));
    Ok(command)
}

/// Returns cargo's folder for it: a build there waits for no other one.
fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("static")
}

/// Returns the setting that keeps the places of this machine out of the binary, so that another machine builds the same.
fn without_places(workspace: &Workspace, target: &str) -> Result<String> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")));
    // Of several that fit, rustc takes the last.
    let places = [(Some(&workspace.root), "/capstan"), (Some(&workspace.target), "/target"), (home.as_ref(), "/cargo")];
    let flags = places
        .into_iter()
        .filter_map(|(from, to)| Some(format!("--remap-path-prefix={}={to}", from?.to_str()?.trim_end_matches('/'))));
    // JSON's lists of strings are TOML's.
    let flags = serde_json::to_string(&flags.collect::<Vec<_>>())?;
    Ok(format!("target.{target}.rustflags={flags}"))
}

/// Returns the program that a binary asks to be loaded by; none if it is static.
fn interpreter(binary: &[u8]) -> Result<Option<String>> {
    let file = ElfFile64::<Endianness>::parse(binary).context("read the binary that was built")?;
    let endian = file.endian();
    for header in file.elf_program_headers() {
        if let Some(name) = header.interpreter(endian, binary)? {
            return Ok(Some(String::from_utf8_lossy(name).into_owned()));
        }
    }
    Ok(None)
}

// === the archive ===

/// Builds the image out of the Dockerfile and writes it to an OCI archive. The same binary gives the same digest.
fn write(task: &mut Task, workspace: &Workspace, staged: &Staged, tag: Option<&str>, output: &Path) -> Result<Image> {
    ensure_buildah(task)?;
    let archive = absolute(output)?;
    let folder = archive.parent().context("a file is in a folder")?;
    files::folder(folder)?;
    // There, so that the archive needs only be renamed: a build that is stopped would leave half of one.
    let scratch = tempfile::Builder::new().prefix(".image-").tempdir_in(folder)?;
    let note = |name: &str| scratch.path().join(name);
    let image = note("image");
    process::must(task, bud(&scratch, workspace, staged.machine, &image), "buildah bud")?;

    let tag = tag.map_or_else(|| format!("capstan:{VERSION}"), str::to_owned);
    let part = note("archive");
    let mut push = buildah(&scratch);
    push.arg("push").arg("--digestfile").arg(note("digest"));
    push.arg(fs::read_to_string(&image)?.trim());
    push.arg(format!("oci-archive:{}:{tag}", part.display()));
    process::must(task, push, "buildah push")?;
    fs::rename(&part, &archive).with_context(|| format!("write {}", archive.display()))?;
    Ok(Image {
        size: archive.metadata()?.len(),
        digest: fs::read_to_string(note("digest"))?.trim().to_owned(),
        archive,
        tag,
    })
}

fn bud(scratch: &TempDir, workspace: &Workspace, machine: &str, image: &Path) -> Command {
    // The usual variable for the time that reproducible builds are given.
    let time = env::var_os("SOURCE_DATE_EPOCH").unwrap_or_else(|| OsString::from("0"));
    let mut command = buildah(scratch);
    command.current_dir(&workspace.root).arg("bud");
    command.args(["--isolation", "chroot", "--format", "oci"]);
    command.args(["--platform", &format!("linux/{machine}")]);
    command.args(["--build-arg", &format!("TARGETARCH={machine}")]);
    command.args(["--build-arg", &format!("VERSION={VERSION}")]);
    // Neither says which buildah it was, or when the binary was put there.
    command.args(["--identity-label=false", "--omit-history", "--layers=false"]);
    command.arg("--timestamp").arg(time);
    command.arg("--iidfile").arg(image).arg(".");
    command
}

/// Returns buildah, which keeps what it does in `scratch`: without a daemon, and without overlay file systems, which not
/// every container that builds may mount.
fn buildah(scratch: &TempDir) -> Command {
    let mut command = Command::new("buildah");
    command.args(["--storage-driver", "vfs"]);
    command.arg("--root").arg(scratch.path().join("root"));
    command.arg("--runroot").arg(scratch.path().join("run"));
    command
}

// === buildah ===

fn ensure_buildah(task: &mut Task) -> Result<()> {
    let (major, minor) = BUILDAH;
    let mut command = Command::new("buildah");
    command.arg("--version");
    let Some(output) = process::output(command)? else {
        return install(task).with_context(|| {
            format!(
                "the image is written by buildah, which is missing: install buildah {major}.{minor} or newer \
                 (apt-get install buildah, dnf install buildah, …), or build the binary alone with --binary-only, \
                 and the image by docker"
            )
        });
    };
    let said = String::from_utf8_lossy(&output.stdout);
    if version(said.trim()).is_none_or(|version| version < BUILDAH) {
        bail!("buildah {major}.{minor} or newer is needed, and this is {:?}", said.trim());
    }
    Ok(())
}

/// Installs it where that is possible without asking anybody.
fn install(task: &mut Task) -> Result<()> {
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        // Another apt-get may be at work.
        command.args(["-q", "-o", "DPkg::Lock::Timeout=300"]);
        command.args(words).env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    if apt(&["--version"]).output().is_err() {
        bail!("there is no apt-get to install it by");
    }
    if !geteuid().is_root() {
        bail!("apt-get installs it for root only");
    }
    let (major, minor) = BUILDAH;
    let package = format!("buildah={major}.{minor}.*");
    task.announce(&format!("buildah is missing: apt-get installs {package}"));
    process::must(task, apt(&["update"]), "apt-get update")?;
    let words = ["install", "-y", "--no-install-recommends", &package];
    process::must(task, apt(&words), &format!("apt-get install {package}"))
}

/// Returns major and minor out of `buildah version 1.28.2 (image-spec …)`.
fn version(said: &str) -> Option<(u32, u32)> {
    let [major, minor] = process::found(r"^buildah version (\d+)\.(\d+)\.", said)?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

impl Profile {
    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// Returns what this machine is called among Rust's targets, and among images.
fn machine() -> Result<[&'static str; 2]> {
    match (env::consts::OS, env::consts::ARCH) {
        ("linux", "x86_64") => Ok(["x86_64-unknown-linux-musl", "amd64"]),
        ("linux", "aarch64") => Ok(["aarch64-unknown-linux-musl", "arm64"]),
        (system, machine) => {
            bail!("images are built on Linux on x86_64 or aarch64, for the same machine; this is {system} on {machine}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_buildah_says_has_its_version() {
        let table = [
            ("buildah version 1.28.2 (image-spec 1.1.0-rc2, runtime-spec 1.0.2-dev)", Some((1, 28))),
            ("buildah version 2.0.0", Some((2, 0))),
            ("buildah version 1.40-dev", None),
            ("podman version 4.3.1", None),
        ];
        for (said, expected) in table {
            assert_eq!(version(said), expected, "{said}");
        }
    }

    #[test]
    fn a_binary_that_needs_a_loader_is_told_from_a_static_one() {
        // A file with one program header of 56 bytes, that may name a loader: the 8 bytes behind it.
        let elf = |kind: u32| {
            let mut bytes = vec![0; 120];
            for (at, value) in [
                (0, &b"\x7fELF\x02\x01\x01"[..]),
                (16, &[3, 0, 62, 0, 1]),
                (32, &64_u64.to_le_bytes()),
                (52, &[64, 0, 56, 0, 1, 0, 64]),
                (64, &kind.to_le_bytes()),
                (72, &120_u64.to_le_bytes()),
                (96, &8_u64.to_le_bytes()),
            ] {
                bytes[at..at + value.len()].copy_from_slice(value);
            }
            bytes.extend(b"/lib/ld\0");
            bytes
        };
        let (load, interpret) = (1, 3);
        assert_eq!(interpreter(&elf(load)).unwrap(), None);
        let found = interpreter(&elf(interpret)).unwrap();
        assert_eq!(found.as_deref(), Some("/lib/ld"));
        assert!(interpreter(b"#!/bin/sh").is_err());
    }

    #[test]
    fn places_of_this_machine_are_mapped_for_the_one_target() {
        let workspace = Workspace { root: "/w".into(), target: "/w/\"t\"".into(), benches: Vec::new() };
        let setting = without_places(&workspace, "x").unwrap();
        let start = r#"target.x.rustflags=["--remap-path-prefix=/w=/capstan","--remap-path-prefix=/w/\"t\"=/target","--remap-path-prefix="#;
        assert!(setting.starts_with(start) && setting.ends_with("=/cargo\"]"), "{setting}");
    }
}
