//! Where components may connect to, as a manifest writes it.

use std::sync::Arc;

use schemars::{Schema, json_schema};

use crate::network::{Destination, Host};
use crate::yaml::Form;

/// A host for HTTP.
pub(super) struct ToHttp(pub(super) Destination);

/// A host and port for TCP.
pub(super) struct ToTcp(pub(super) Destination);

/// The name of a host.
pub(super) struct HostName(pub(super) Arc<str>);

/// A name, a pattern, or an address, where that of IPv6 has brackets.
const HOST: &str = r"((\*\.)?[-.a-z0-9]+|\[[.:0-9A-Fa-f]+\])";

const PORT: &str = ":[1-9][0-9]{0,4}";

impl Form for ToHttp {
    const WHAT: &'static str = "a host such as `example.com`, `*.example.com` or `http://10.0.0.1:8080`";

    fn text(text: &str) -> Result<Self, String> {
        Destination::http(text).map(Self)
    }

    fn schema() -> Schema {
        json_schema!({ "title": "host", "type": "string", "pattern": format!("^(https?://)?{HOST}({PORT})?$") })
    }
}

impl Form for ToTcp {
    const WHAT: &'static str = "a host and a port such as `db.example.com:5432`";

    fn text(text: &str) -> Result<Self, String> {
        Destination::tcp(text).map(Self)
    }

    fn schema() -> Schema {
        json_schema!({ "title": "host and port", "type": "string", "pattern": format!("^{HOST}{PORT}$") })
    }
}

impl Form for HostName {
    const WHAT: &'static str = "the name of a host such as `keycloak.auth.svc`";

    fn text(text: &str) -> Result<Self, String> {
        match Destination::http(text) {
            Ok(Destination { scheme: None, host: Host::Name(name), port: None, internal: _ }) => Ok(Self(name)),
            Ok(Destination { scheme: None, host: Host::Address(_), port: None, internal: _ }) => {
                Err(format!("an address that is written is permitted by that; expected {}", Self::WHAT))
            }
            Ok(_) | Err(_) => Err(format!("expected {}, without scheme, pattern and port", Self::WHAT)),
        }
    }

    fn schema() -> Schema {
        json_schema!({ "title": "name of a host", "type": "string", "pattern": "^[-.a-z0-9]+$" })
    }
}
