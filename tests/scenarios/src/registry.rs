//! Runs a registry of OCI artifacts as a process of its own, on loopback, with TLS, and a user who alone may pull and push.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cluster::wait;
use serde_json::json;

use crate::SOON;

mod tokens;

use tokens::Tokens;

/// Names the folder below which `usr/bin/docker-registry` is.
const SERVER: &str = "CAPSTAN_REGISTRY";
/// The user `user` with the password `pass`, as bcrypt has it.
const USERS: &str = "user:$2b$04$NtQXluYUNKnQzoZdpVArZu4QB40pkcbHxD4oxCWE5x3QPMozrb6ay\n";

/// A registry under test. Dropping it ends it.
pub struct Registry {
    child: Option<Child>,
    port: u16,
    folder: tempfile::TempDir,
    tokens: Option<Tokens>,
}

impl Registry {
    /// Starts an empty registry, and waits until it answers.
    pub fn start() -> Self {
        Self::start_with(|_| None)
    }

    /// Starts an empty registry that wants to see tokens of a service beside it, which issues them to the same user, for repositories below `team/`.
    pub fn start_with_tokens() -> Self {
        Self::start_with(|own| Some(Tokens::start(own)))
    }

    fn start_with(tokens: impl FnOnce(&rcgen::CertifiedKey<rcgen::KeyPair>) -> Option<Tokens>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Nobody else is given this one soon.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let tokens = tokens(&own);
        let at = |name: &str| folder.path().join(name);
        fs::write(at("cert.pem"), own.cert.pem()).unwrap();
        fs::write(at("key.pem"), own.signing_key.serialize_pem()).unwrap();
        fs::write(at("users"), USERS).unwrap();
        let auth = match &tokens {
            Some(tokens) => json!({ "token": tokens.settings(&at("cert.pem")) }),
            None => json!({ "htpasswd": { "realm": "test", "path": at("users") } }),
        };
        let settings = json!({
            "version": 0.1,
            "storage": { "filesystem": { "rootdirectory": at("data") } },
            "http": { "addr": format!("127.0.0.1:{port}"), "tls": { "certificate": at("cert.pem"), "key": at("key.pem") } },
            "auth": auth,
        });
        fs::write(at("settings.yaml"), settings.to_string()).unwrap();
        // What `docker login` leaves.
        fs::create_dir(at("docker")).unwrap();
        let mut registry = Self { child: None, port, folder, tokens };
        fs::write(registry.docker_config().join("config.json"), registry.login()).unwrap();
        registry.resume();
        registry
    }

    /// Starts it again, with what it had.
    pub fn resume(&mut self) {
        let log = File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let mut command = Command::new(program());
        command.arg("serve").arg(self.folder.path().join("settings.yaml")).stdin(Stdio::null());
        self.child = Some(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
        let answers = || TcpStream::connect(("127.0.0.1", self.port)).map(drop).map_err(|error| error.to_string());
        let log = || fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        wait::until_ok(SOON, "the registry", answers).unwrap_or_else(|error| panic!("{error}: {}", log()));
    }

    /// Ends it.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }

    /// Returns its address.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the file with its certificate.
    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }

    /// Returns the folder with what `docker login` leaves.
    pub fn docker_config(&self) -> PathBuf {
        self.folder.path().join("docker")
    }

    /// Returns which tokens were asked for until now: by whom, and for what. None if it wants none.
    pub fn asked(&self) -> Vec<String> {
        self.tokens.as_ref().map(Tokens::asked).unwrap_or_default()
    }

    /// Returns what `docker login` leaves, and a Secret has.
    pub fn login(&self) -> String {
        let auth = BASE64_STANDARD.encode("user:pass");
        json!({ "auths": { self.address(): { "auth": auth } } }).to_string()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Returns the registry's program: as `cargo xtask test` says, or that of this machine.
fn program() -> PathBuf {
    let folder = PathBuf::from(std::env::var_os(SERVER).unwrap_or_else(|| "/".into()));
    let program = folder.join("usr/bin/docker-registry");
    assert!(
        program.is_file(),
        "{} is missing: run `cargo xtask test --only scenarios`, which gets a registry, or set {SERVER}",
        program.display()
    );
    program
}
