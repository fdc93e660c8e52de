//! Runs a registry of components as a process of its own, on loopback and without TLS, and counts what is pulled from it.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::clock::Patience;
use crate::stage::Stage;

/// Names the folder below which the program is; `cargo xtask bench` gets one.
const FOLDER: &str = "CAPSTAN_REGISTRY";
const PROGRAM: &str = "usr/bin/docker-registry";
/// How long it may take to answer.
const ANSWERS: Patience = Patience::new(10, 30);
/// Runs a program until its own standard input ends, which it does however we end.
const GUARD: &str = "trap '' INT TERM HUP; \"$@\" </dev/null & read -r _; kill -KILL $!";

/// A registry. Dropping it ends it.
pub(crate) struct Registry<'a> {
    stage: &'a Stage,
    child: Child,
    pub(crate) address: String,
    log: PathBuf,
}

impl<'a> Registry<'a> {
    /// Starts an empty one, and waits until it answers.
    pub(crate) fn start(stage: &'a Stage, name: &str) -> Result<Self> {
        let program = PathBuf::from(env::var_os(FOLDER).unwrap_or_else(|| "/".into())).join(PROGRAM);
        ensure!(program.is_file(), "{} is missing: use `cargo xtask bench`, or set {FOLDER}", program.display());
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.context("find a free port")?.to_string();
        let (data, log) = (stage.file(name), stage.file(&format!("{name}.log")));
        let settings = format!(
            "version: 0.1\nstorage: {{ filesystem: {{ rootdirectory: {} }} }}\nhttp: {{ addr: \"{address}\" }}\n",
            data.display()
        );
        let file = stage.file(&format!("{name}-settings"));
        fs::write(&file, settings).context("write the settings of the registry")?;
        let output = File::create(&log).context("write the log of the registry")?;
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, "guard"]).arg(program).arg("serve").arg(file);
        command.stdin(Stdio::piped()).stdout(output.try_clone()?).stderr(output);
        let registry = Self { stage, child: command.spawn().context("start sh")?, address, log };
        ANSWERS.until("the registry", || Ok(TcpStream::connect(&registry.address).ok()))?;
        Ok(registry)
    }

    /// Returns a reference to what is in this repository, under its one tag.
    pub(crate) fn reference(&self, repository: &str) -> String {
        format!("{}/{repository}:1", self.address)
    }

    /// Pushes a component by `capstan push`.
    pub(crate) fn push(&self, repository: &str, component: &[u8]) -> Result<()> {
        let file = self.stage.file("pushed.wasm");
        fs::write(&file, component).context("write a component")?;
        let mut push = self.stage.program();
        push.args(["push", "--insecure"]).arg(&file).arg(self.reference(repository));
        let output = push.stdin(Stdio::null()).output().context("run capstan push")?;
        ensure!(output.status.success(), "capstan push: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Returns how often each blob was pulled.
    pub(crate) fn pulls(&self) -> Result<BTreeMap<String, usize>> {
        let log = fs::read_to_string(&self.log).context("read the log of the registry")?;
        let mut pulls = BTreeMap::new();
        for digest in log.lines().filter_map(pulled) {
            *pulls.entry(digest.to_owned()).or_default() += 1;
        }
        Ok(pulls)
    }
}

impl Drop for Registry<'_> {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

/// Returns the digest of the blob that a line of the log says was sent.
fn pulled(line: &str) -> Option<&str> {
    let (_, request) = line.split_once("\"GET /v2/")?;
    let (path, answer) = request.split_once(" HTTP/1.1\" ")?;
    let (_, digest) = path.split_once("/blobs/")?;
    answer.starts_with("200 ").then_some(digest)
}

/// Returns a component that is another one with this number, and does the same.
pub(crate) fn numbered(component: &[u8], number: usize) -> Vec<u8> {
    // A section that nobody reads: its kind, its size, its name and what is in it.
    let text = format!("\u{1}n{number:08}");
    let size = u8::try_from(text.len()).unwrap_or_default();
    [component, &[0, size], text.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_is_a_blob_that_was_sent() {
        let line = |request: &str| format!("127.0.0.1 - - [26/Nov/2026:18:28:27 +0000] \"{request}");
        for (request, expected) in [
            ("GET /v2/a/b/blobs/sha256:24ea HTTP/1.1\" 200 8 \"\" \"capstan/0.1.0\"", Some("sha256:24ea")),
            ("GET /v2/a/b/blobs/sha256:24ea HTTP/1.1\" 404 8 \"\" \"capstan/0.1.0\"", None),
            ("HEAD /v2/a/b/blobs/sha256:24ea HTTP/1.1\" 200 8 \"\" \"capstan/0.1.0\"", None),
            ("GET /v2/a/b/manifests/1 HTTP/1.1\" 200 367 \"\" \"capstan/0.1.0\"", None),
        ] {
            assert_eq!(pulled(&line(request)), expected, "{request}");
        }
    }

    #[test]
    fn numbered_components_are_as_long_as_one_another_and_differ() {
        let [first, second] = [7, 12].map(|number| numbered(b"\0asm", number));
        assert_eq!(first, b"\0asm\0\x0a\x01n00000007");
        assert!(first.len() == second.len() && first != second);
    }
}
