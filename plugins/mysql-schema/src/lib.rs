//! Decides what a `MySQLSchema` needs: a schema in a database server, an account that may use it, and a Secret with its password.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use capstan_guest::{
    Created, External, Json, Metadata, Reconciler, Result, Things, Update, cache, config, resource_pollers,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub mod client;

use client::{Connection, Name, Password, Pattern, Text};

/// The longest name of a schema that servers take, in characters.
const LONGEST: usize = 64;

/// The custom resource, as far as it is read here.
#[derive(Deserialize)]
struct MySqlSchema {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    encoding: String,
}

/// The server, and as whom to log in: `config` of the plugin.
#[derive(Deserialize)]
struct Server {
    address: String,
    user: String,
    password: String,
}

/// What there is in the server for a `MySQLSchema`.
#[derive(Deserialize, Serialize)]
struct Thing {
    /// The name of the schema.
    name: String,
    /// Its character set; `None` if there is an account and no schema.
    encoding: Option<String>,
    /// Whether the account has the password that the Secret says.
    login: bool,
}

struct MySqlSchemaOperator;

impl Reconciler for MySqlSchemaOperator {
    type Primary = MySqlSchema;

    /// Called once the workflow is done: without its failures there is a schema.
    fn reconcile(schema: &MySqlSchema) -> Result<Update> {
        let server: Server = config::get()?;
        Ok(Update::status(json!({
            "status": "CREATED",
            "url": format!("mysql://{}/{}", server.address, schema.name()?),
            "userName": schema.user()?,
            "secretName": schema.secret_name(),
        })))
    }
}

#[capstan_guest::dependents]
impl MySqlSchemaOperator {
    /// It is created once, and never changed: so its password stays.
    fn secret(schema: &MySqlSchema) -> Result<Value> {
        let encoded = |text: &str| BASE64_STANDARD.encode(text);
        let data = json!({
            "MYSQL_DATABASE": encoded(&schema.name()?),
            "MYSQL_USERNAME": encoded(&schema.user()?),
            "MYSQL_PASSWORD": encoded(generated()?.as_str()),
        });
        Ok(json!({ "metadata": { "name": schema.secret_name() }, "type": "Opaque", "data": data }))
    }

    fn schema(schema: &MySqlSchema) -> Result<Value> {
        Ok(json!({ "name": schema.name()?, "encoding": schema.spec.encoding, "login": true }))
    }
}

impl External for MySqlSchemaOperator {
    type Primary = MySqlSchema;

    fn create_external(_name: &str, desired: &Json, schema: &MySqlSchema) -> Result<Created> {
        let mut connection = connected()?;
        // Whoever has no account yet has no schema either: that is somebody else's.
        if schema.login(&mut connection)?.is_none() && schema.encoding(&mut connection)?.is_some() {
            let name = schema.name()?;
            return Err(format!(
                "the server has a schema {name} that is not of this MySQLSchema; nothing of it is touched"
            )
            .into());
        }
        schema.put(&mut connection)?;
        Created::new(desired.parse::<Thing>()?)
    }

    fn update_external(_name: &str, _actual: &Json, desired: &Json, schema: &MySqlSchema) -> Result<Json> {
        schema.put(&mut connected()?)?;
        Json::of(&desired.parse::<Thing>()?)
    }

    fn remove_external(_name: &str, _actual: &Json, schema: &MySqlSchema) -> Result<()> {
        let mut connection = connected()?;
        connection.query(&format!("DROP SCHEMA IF EXISTS {}", Name(&schema.name()?)))?;
        // Last, as it says whose the schema is.
        connection.query(&format!("DROP USER IF EXISTS {}", schema.account()?))?;
        Ok(())
    }
}

#[resource_pollers]
impl MySqlSchemaOperator {
    fn schemas(schema: &MySqlSchema) -> Result<Things> {
        let mut connection = connected()?;
        let Some(login) = schema.login(&mut connection)? else {
            return Ok(Things::none());
        };
        let wanted = password()?.map(|password| password.kept());
        let (encoding, login) = (schema.encoding(&mut connection)?, Some(login) == wanted);
        Ok(Things::of([Thing { name: schema.name()?, encoding, login }]))
    }
}

capstan_guest::export!(MySqlSchemaOperator: Reconciler, Dependents, External, ResourcePollers);

fn connected() -> Result<Connection> {
    let server: Server = config::get()?;
    Ok(Connection::open(&server.address, &server.user, &Password::new(server.password))?)
}

/// Returns the password in the Secret; `None` without a Secret.
fn password() -> Result<Option<Password>> {
    let secret: Option<Value> = cache::source("secret").one()?;
    let Some(encoded) = secret.as_ref().and_then(|secret| secret.pointer("/data/MYSQL_PASSWORD")?.as_str()) else {
        return Ok(None);
    };
    // What is wrong with it would quote it.
    let text = BASE64_STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    Ok(Some(Password::new(text.ok_or("MYSQL_PASSWORD in the Secret is no text")?)))
}

/// Returns a new password.
fn generated() -> Result<Password> {
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes)?;
    Ok(Password::new(bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))))
}

impl MySqlSchema {
    /// Returns the name of the schema. Neither part has a `_`, so no two are the same.
    fn name(&self) -> Result<String> {
        let Metadata { namespace, name, .. } = &self.metadata;
        let name = format!("{}_{name}", namespace.as_deref().unwrap_or_default());
        if name.len() > LONGEST {
            return Err(
                format!("the schema would be called {name}, and a server takes at most {LONGEST} characters").into()
            );
        }
        Ok(name)
    }

    fn secret_name(&self) -> String {
        format!("{}-secret", self.metadata.name)
    }

    /// Returns the name of the account, which no other object has, nor one that is made anew under the same name.
    fn user(&self) -> Result<String> {
        let uid = self.metadata.uid.as_deref().ok_or("no uid")?;
        Ok(uid.replace('-', ""))
    }

    fn account(&self) -> Result<String> {
        Ok(format!("{}@'%'", Text(&self.user()?)))
    }

    /// Returns what the server keeps of the account's password; `None` if there is no account.
    fn login(&self, connection: &mut Connection) -> Result<Option<String>> {
        let user = self.user()?;
        let found = format!("SELECT authentication_string FROM mysql.user WHERE User = {} AND Host = '%'", Text(&user));
        Ok(first(connection.query(&found)?))
    }

    /// Returns the character set of the schema; `None` if there is none.
    fn encoding(&self, connection: &mut Connection) -> Result<Option<String>> {
        let name = self.name()?;
        let columns = "DEFAULT_CHARACTER_SET_NAME FROM information_schema.SCHEMATA";
        let found = format!("SELECT {columns} WHERE SCHEMA_NAME = {}", Text(&name));
        Ok(first(connection.query(&found)?))
    }

    /// Has the account and the schema as they should be, whatever there is of them. No password is sent, but what the server keeps of it.
    fn put(&self, connection: &mut Connection) -> Result<()> {
        let (name, account) = (self.name()?, self.account()?);
        let password = password()?.ok_or("no Secret with MYSQL_PASSWORD")?;
        let identified = format!("IDENTIFIED WITH mysql_native_password AS {}", Text(&password.kept()));
        let encoding = Text(&self.spec.encoding);
        for statement in [
            format!("CREATE USER IF NOT EXISTS {account} {identified}"),
            format!("ALTER USER {account} {identified}"),
            format!("GRANT ALL ON {}.* TO {account}", Pattern(&name)),
            format!("CREATE SCHEMA IF NOT EXISTS {} CHARACTER SET {encoding}", Name(&name)),
            format!("ALTER SCHEMA {} CHARACTER SET {encoding}", Name(&name)),
        ] {
            connection.query(&statement)?;
        }
        Ok(())
    }
}

/// Returns the first value of an answer.
fn first(rows: Vec<client::Row>) -> Option<String> {
    rows.into_iter().next()?.into_iter().next()?
}

#[cfg(test)]
mod tests;
