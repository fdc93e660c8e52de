//! Runs a database server as a process of its own, on loopback, with a folder for its data that goes with it.

use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use cluster::wait;
use mysql_schema::client::{Connection, Error, Password, Row};

use crate::LATER;

/// Names the folder below which `usr/sbin/mariadbd` is.
const SERVER: &str = "CAPSTAN_MARIADB";
/// Its administrator.
pub const USER: &str = "capstan";
/// The administrator's password.
pub const PASSWORD: &str = "of-the-administrator";

/// A server under test. Dropping it ends it.
pub struct MariaDb {
    child: Child,
    port: u16,
    data: tempfile::TempDir,
}

impl MariaDb {
    /// Starts a server with an empty folder, and waits until it answers.
    pub fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut bootstrap = program(&data);
        let mut child = bootstrap.arg("--bootstrap").stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(tables().as_bytes()).unwrap();
        let log = || fs::read_to_string(data.path().join("log")).unwrap_or_default();
        assert!(child.wait().unwrap().success(), "{}", log());
        // Nobody else is given this one soon.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = program(&data);
        command.args(["--bind-address=127.0.0.1", "--socket=socket", &format!("--port={port}")]);
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        let server = Self { child, port, data };
        let answers = || server.connect(USER, PASSWORD).map(drop).map_err(|error| format!("{error}: {}", server.log()));
        wait::until_ok(LATER, "the database server", answers).unwrap();
        server
    }

    /// Returns its address.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Logs in.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn connect(&self, user: &str, password: &str) -> Result<Connection, Error> {
        Connection::open(&self.address(), user, &Password::new(password))
    }

    /// Has its administrator send a statement.
    pub fn query(&self, statement: &str) -> Vec<Row> {
        self.connect(USER, PASSWORD).unwrap().query(statement).unwrap()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.data.path().join("log")).unwrap_or_default()
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns the folder below which the server is: as `cargo xtask test` says, or that of this machine.
fn folder() -> PathBuf {
    let folder = PathBuf::from(std::env::var_os(SERVER).unwrap_or_else(|| "/".into()));
    let server = folder.join("usr/sbin/mariadbd");
    assert!(
        server.is_file(),
        "{} is missing: run `cargo xtask test --only scenarios`, which gets MariaDB's server, or set {SERVER}",
        server.display()
    );
    folder
}

/// Returns the server's program with what it always needs: nothing of this machine's settings, and little memory.
fn program(data: &tempfile::TempDir) -> Command {
    let usr = folder().join("usr");
    let libraries = ["x86_64", "aarch64"].map(|arch| usr.join(format!("lib/{arch}-linux-gnu")).display().to_string());
    let log = File::options().create(true).append(true).open(data.path().join("log")).unwrap();
    let mut command = Command::new(usr.join("sbin/mariadbd"));
    // Without being told, it does not run as root.
    command.args(["--no-defaults", "--user=root", "--performance-schema=OFF", "--innodb-log-file-size=4M"]);
    command.arg(format!("--basedir={}", usr.display()));
    command.arg(format!("--lc-messages-dir={}", usr.join("share/mysql").display()));
    command.arg(format!("--datadir={}", data.path().join("data").display()));
    // A server that starts removes what another one has there.
    command.arg(format!("--tmpdir={}", data.path().join("tmp").display()));
    command.env("LD_LIBRARY_PATH", libraries.join(":"));
    for folder in ["data", "tmp"] {
        fs::create_dir_all(data.path().join(folder)).unwrap();
    }
    command.stdout(log.try_clone().unwrap()).stderr(log);
    command
}

/// Returns the statements that make the server's own tables, and its administrator, one in a line where they are ours.
fn tables() -> String {
    let read = |name: &str| fs::read_to_string(folder().join("usr/share/mysql").join(name)).unwrap();
    let files = ["mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql"].map(read);
    let administrator = format!("{USER}@'127.0.0.1'");
    let lines = [
        "create database mysql;\nuse mysql;\nset @auth_root_socket = NULL, @skip_auth_anonymous = 1;\n",
        &files.concat(),
        "flush privileges;\n",
        &format!("create user {administrator} identified by '{PASSWORD}';\n"),
        &format!("grant all on *.* to {administrator} with grant option;\n"),
    ];
    lines.concat()
}
