//! The sample `mysql-schema` on a real database server: a schema with an account, which follows its `MySQLSchema`.

use std::fs;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cluster::wait;
use scenarios::mariadb::{MariaDb, PASSWORD};
use scenarios::{Daemon, LATER, Place, Start, component, repository, run};
use serde_json::{Value, json};

/// The permitted place in which the sample is: a namespace, and a server.
struct Town {
    place: Place,
    server: MariaDb,
    /// The operator's name, which the Secret with the server's password permits.
    operator: String,
}

impl Town {
    fn new(prefix: &str) -> Self {
        let (place, server) = (Place::new(prefix), MariaDb::start());
        let operator = place.namespace.name().to_owned();
        let secret = json!({
            "metadata": { "labels": { "capstan.dev/config-for": operator } },
            "stringData": { "password": PASSWORD },
        });
        // The daemon is in this namespace.
        place.create("v1", "Secret", "/api/v1/namespaces/default/secrets", &operator, secret);
        Self { place, server, operator }
    }

    /// Starts a daemon with the sample's manifest, for this namespace and server.
    fn daemon(&self) -> Daemon {
        let file = repository().join("plugins/mysql-schema/mysql-schema.yaml");
        let mut manifest = fs::read_to_string(file).unwrap();
        let primary = "primary: { apiVersion: sample.capstan.dev/v1, kind: MySQLSchema }";
        for (from, to) in [
            ("127.0.0.1:3306", self.server.address()),
            ("path: mysql-schema.wasm", format!("path: {}", component("mysql-schema").display())),
            ("secret: { name: mysql-schema }", format!("secret: {{ name: {} }}", self.operator)),
            ("metadata:\n  name: mysql-schema", format!("metadata:\n  name: {}", self.operator)),
            (primary, format!("{primary}\n      namespaces: [{}]", self.place.namespace.name())),
            ("every: 5s", "every: 300ms".to_owned()),
        ] {
            assert!(manifest.contains(from), "{from}: {manifest}");
            manifest = manifest.replace(from, &to);
        }
        Start::new(&manifest).run(&self.place).until_ready()
    }

    fn schemas(&self) -> String {
        self.place.namespace.path("sample.capstan.dev/v1", "mysqlschemas")
    }

    fn create(&self, name: &str, spec: Value) -> Value {
        self.place.create("sample.capstan.dev/v1", "MySQLSchema", &self.schemas(), name, json!({ "spec": spec }))
    }

    fn secrets(&self) -> String {
        self.place.namespace.path("v1", "secrets")
    }

    /// Returns what the Secret of a schema says, by its key.
    fn credential(&self, schema: &str, key: &str) -> String {
        let secret = self.place.find(&self.secrets(), &format!("{schema}-secret")).unwrap();
        String::from_utf8(BASE64_STANDARD.decode(secret["data"][key].as_str().unwrap()).unwrap()).unwrap()
    }

    /// Returns the name of a schema in the server.
    fn name(&self, schema: &str) -> String {
        format!("{}_{schema}", self.place.namespace.name())
    }

    /// Returns the character set of a schema; none if there is no such schema.
    fn encoding(&self, schema: &str) -> Option<String> {
        let name = self.name(schema);
        let rows = self.server.query(&format!(
            "SELECT DEFAULT_CHARACTER_SET_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = '{name}'"
        ));
        rows.into_iter().next()?.into_iter().next()?
    }

    fn await_encoding(&self, schema: &str, encoding: Option<&str>) {
        let is = || match self.encoding(schema) {
            found if found.as_deref() == encoding => Ok(()),
            found => Err(format!("{found:?}")),
        };
        wait::until_ok(LATER, "the schema", is).unwrap();
    }

    fn accounts(&self) -> usize {
        self.server.query("SELECT User FROM mysql.user WHERE Host = '%'").len()
    }

    /// Waits until the account of a schema can use it, as its Secret says.
    fn await_use(&self, schema: &str) {
        let [user, password, name] =
            ["MYSQL_USERNAME", "MYSQL_PASSWORD", "MYSQL_DATABASE"].map(|key| self.credential(schema, key));
        let uses = || {
            let mut connection = self.server.connect(&user, &password).map_err(|error| error.to_string())?;
            let made = connection.query(&format!("CREATE TABLE IF NOT EXISTS `{name}`.t (a INT)"));
            made.map(drop).map_err(|error| error.to_string())
        };
        wait::until_ok(LATER, "the account", uses).unwrap();
    }
}

impl Drop for Town {
    fn drop(&mut self) {
        drop(self.place.cluster.api().delete(&format!("/api/v1/namespaces/default/secrets/{}", self.operator)));
    }
}

#[test]
fn s143_a_schema_in_a_database_follows_its_custom_resource() {
    // XD-1, CV-1
    let town = Town::new("s143");
    let daemon = town.daemon();
    let created = town.create("orders", json!({ "encoding": "latin1" }));
    let user = created["metadata"]["uid"].as_str().unwrap().replace('-', "");
    let created = |schema: &Value| schema["status"]["status"] == "CREATED";
    let schema = town.place.await_within(LATER, &town.schemas(), "orders", "its status", created);
    let expected = json!({
        "status": "CREATED",
        "url": format!("mysql://{}/{}", town.server.address(), town.name("orders")),
        "secretName": "orders-secret",
        "userName": user,
    });
    assert_eq!(schema["status"], expected);
    assert_eq!(town.encoding("orders").as_deref(), Some("latin1"));
    town.await_use("orders");
    let password = town.credential("orders", "MYSQL_PASSWORD");
    // Another one may not use it.
    town.create("bills", json!({}));
    town.place.await_within(LATER, &town.schemas(), "bills", "its status", created);
    assert_eq!(town.encoding("bills").as_deref(), Some("utf8mb4"));
    let [other, others] = ["MYSQL_USERNAME", "MYSQL_PASSWORD"].map(|key| town.credential("bills", key));
    let mut connection = town.server.connect(&other, &others).unwrap();
    let refused = connection.query(&format!("SELECT * FROM `{}`.t", town.name("orders"))).unwrap_err().to_string();
    assert!(refused.contains("denied"), "{refused}");
    // The spec changes.
    town.place.merge(&town.schemas(), "orders", &json!({ "spec": { "encoding": "ascii" } }));
    town.await_encoding("orders", Some("ascii"));
    // Somebody drops it, or changes the password: the poll notices.
    town.server.query(&format!("DROP SCHEMA `{}`", town.name("orders")));
    town.await_encoding("orders", Some("ascii"));
    town.server.query(&format!("ALTER USER '{user}'@'%' IDENTIFIED BY 'other'"));
    town.await_use("orders");
    town.server.query(&format!("DROP USER '{user}'@'%'"));
    town.server.query(&format!("DROP SCHEMA `{}`", town.name("orders")));
    town.await_use("orders");
    // A Secret that is lost is made anew, with another password, which the account gets.
    town.place.delete(&town.secrets(), "orders-secret");
    town.place.await_within(LATER, &town.secrets(), "orders-secret", "the Secret", |_| true);
    town.await_use("orders");
    assert_ne!(town.credential("orders", "MYSQL_PASSWORD"), password);
    daemon.await_quiet();
    town.place.delete(&town.schemas(), "orders");
    town.place.await_gone(&town.schemas(), "orders");
    assert_eq!((town.encoding("orders"), town.accounts()), (None, 1));
    town.place.await_gone(&town.secrets(), "orders-secret");
    assert_eq!(town.encoding("bills").as_deref(), Some("utf8mb4"));
    let log = daemon.log();
    assert!(![&password, &others, PASSWORD].into_iter().any(|secret| log.contains(secret)), "no password is logged");
}

#[test]
fn a_schema_that_others_have_made_is_neither_taken_nor_dropped() {
    // XD-1
    let town = Town::new("schema-of-others");
    town.server.query(&format!("CREATE SCHEMA `{}`", town.name("orders")));
    let daemon = town.daemon();
    town.create("orders", json!({}));
    let line = daemon.await_line("that is not of this MySQLSchema; nothing of it is touched");
    assert!(line.contains(&town.name("orders")), "{line}");
    town.place.delete(&town.schemas(), "orders");
    town.place.await_gone(&town.schemas(), "orders");
    assert!(town.encoding("orders").is_some());
    assert_eq!(town.accounts(), 0);
}

#[test]
fn the_sample_of_a_database_is_right() {
    let folder = repository().join("plugins/mysql-schema");
    let at = |file: &str| folder.join(file).display().to_string();
    let built = component("mysql-schema").with_extension("yaml").display().to_string();
    let (code, output, errors) = run(&["check", "-m", &built, "--crd", &at("crd.yaml")]);
    assert_eq!(code, 0, "{output}{errors}");
}
