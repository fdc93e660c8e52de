//! Decides what a kubeconfig in a Secret may do: to whom the Secret permits it, and that it says nothing but where one API server is, whom to trust
//! there, and by which token or certificate (CU rules).
//!
//! Whoever writes a kubeconfig is not who runs the daemon: what in it would run a program, read a file, or take another way to the
//! server is refused by name. No message has anything of its values.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::budget::Budget;
use crate::granted::{self, KUBECONFIG_FOR};
use crate::network::{Closed, Destination, Host};
use crate::text::said_within;
use crate::yaml::{Tree, Value, documents, join};

/// The annotation of a Secret that names the host of its kubeconfig, if that may have an address of a private network, or be one of this machine.
pub const REACHES: &str = "capstan.dev/kubeconfig-reaches";

/// The most bytes of a kubeconfig: a few certificates take no more.
const LONGEST: usize = 64 << 10;

/// How a certificate begins.
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";

/// A cluster as a kubeconfig leads to it.
#[derive(Clone, PartialEq, Eq)]
pub struct Kubeconfig {
    /// Where the API server is: `https://host:port/path`.
    pub server: String,
    /// The same, as addresses are checked against it.
    pub destination: Destination,
    /// The name in the server's certificate, if that is not its host.
    pub server_name: Option<String>,
    /// The certificates to trust, as PEM.
    pub authority: String,
    /// Who it is that asks.
    pub credentials: Credentials,
}

/// Who asks.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// Whom this token stands for.
    Token(String),
    /// Whom this certificate names; both as PEM in base64.
    Certificate {
        /// The certificate.
        certificate: String,
        /// Its key.
        key: String,
    },
}

/// Fields that are refused, each with what there is instead.
const REFUSED: [(&str, &str); 16] = [
    ("exec", "it would run a program; expected a `token`, or a certificate"),
    ("auth-provider", "it would run a program; expected a `token`, or a certificate"),
    ("tokenFile", "it would read a file of the daemon; expected a `token`"),
    ("client-certificate", "it would read a file of the daemon; expected `client-certificate-data`"),
    ("client-key", "it would read a file of the daemon; expected `client-key-data`"),
    ("certificate-authority", "it would read a file of the daemon; expected `certificate-authority-data`"),
    ("proxy-url", "the daemon connects to the server itself"),
    ("username", "no API server takes passwords any more; expected a `token`, or a certificate"),
    ("password", "no API server takes passwords any more; expected a `token`, or a certificate"),
    ("as", "nobody is impersonated; expected credentials of whom it is meant for"),
    ("as-uid", "nobody is impersonated; expected credentials of whom it is meant for"),
    ("as-groups", "nobody is impersonated; expected credentials of whom it is meant for"),
    ("as-user-extra", "nobody is impersonated; expected credentials of whom it is meant for"),
    ("act-as", "nobody is impersonated; expected credentials of whom it is meant for"),
    ("impersonate", "nobody is impersonated; expected credentials of whom it is meant for"),
    ("insecure-skip-tls-verify", "the server has to show its certificate; expected `certificate-authority-data`"),
];

impl Kubeconfig {
    /// Reads the kubeconfig under a key of a Secret, given as JSON, for an operator.
    ///
    /// # Errors
    /// Why it is not used: the Secret does not permit it to the operator, or it says what no kubeconfig may say here.
    pub fn of_secret(json: &str, key: &str, operator: &str, budget: &mut Budget) -> Result<Self, String> {
        let (text, secret) = granted::secret(json, (KUBECONFIG_FOR, operator), (key, LONGEST), budget)?;
        let reaches = secret.get("metadata").and_then(|metadata| metadata.get("annotations")?.get(REACHES)?.as_str());
        Self::read(&text, reaches).map_err(|why| format!("its {key:?} is refused: {why}"))
    }

    /// Reads a kubeconfig; `reaches` is the host that may have an address of a private network, or of this machine.
    ///
    /// # Errors
    /// What is found that may not be there, or is missing; nothing of its values.
    fn read(text: &str, reaches: Option<&str>) -> Result<Self, String> {
        let trees = documents(text).map_err(|syntax| {
            let (line, column) = (syntax.mark.line, syntax.mark.column);
            format!("it is not YAML, from line {line}, column {column}")
        })?;
        let [tree] = trees.as_slice() else {
            return Err(format!("it has {} documents; expected one", trees.len()));
        };
        let root = Fields::of(tree)?;
        root.only(&[
            "apiVersion",
            "kind",
            "clusters",
            "users",
            "contexts",
            "current-context",
            "preferences",
            "extensions",
        ])?;
        let (cluster_name, cluster) = root.one("clusters", "cluster")?;
        let (user_name, user) = root.one("users", "user")?;
        let (context_name, context) = root.one("contexts", "context")?;
        context.only(&["cluster", "user", "namespace", "extensions"])?;
        for (field, name) in [("cluster", &cluster_name), ("user", &user_name)] {
            if context.text(field)? != Some(name) {
                return Err(format!("{} is not the one {field} that there is", context.path(field)));
            }
        }
        if root.text("current-context")?.is_some_and(|current| !current.is_empty() && current != context_name) {
            return Err("current-context is not the one context that there is".to_owned());
        }
        cluster.only(&[
            "server",
            "certificate-authority-data",
            "tls-server-name",
            "insecure-skip-tls-verify",
            "disable-compression",
            "extensions",
        ])?;
        if cluster.is_true("insecure-skip-tls-verify") {
            return Err(refusal(&cluster.path("insecure-skip-tls-verify"), "insecure-skip-tls-verify"));
        }
        let (server, destination) =
            server(cluster.needed("server")?, reaches).map_err(|why| format!("{}: {why}", cluster.path("server")))?;
        Ok(Self {
            server,
            destination,
            server_name: cluster.text("tls-server-name")?.map(str::to_owned),
            authority: authority(&cluster)?,
            credentials: credentials(&user)?,
        })
    }

    /// Says why an address of the server is not connected to.
    pub fn closed(&self, why: Closed) -> String {
        let host = &self.destination.host;
        match why {
            Closed::Nobody => "it is nobody's address".to_owned(),
            Closed::Own => "the daemon itself listens there".to_owned(),
            Closed::Link => "it is an address of the machine's link, or of a metadata service".to_owned(),
            Closed::Local | Closed::Guarded => format!(
                "it is an address of the machine, or of the daemon's own API server; it is reached only if the kubeconfig has the address in place of a name, and the annotation {REACHES} of the Secret as well"
            ),
            Closed::Internal => format!(
                "it is an address of a private network; it is reached only if the annotation {REACHES} of the Secret names {host}"
            ),
        }
    }
}

impl fmt::Debug for Kubeconfig {
    /// Writes the server, and nothing that is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kubeconfig({})", self.server)
    }
}

fn refusal(path: &str, field: &str) -> String {
    let why = REFUSED.iter().find(|(refused, _)| *refused == field).map(|(_, why)| *why);
    match why {
        Some(why) => format!("found {path}: {why}"),
        None => format!("found {path}, which is not known here"),
    }
}

/// Reads the address of the server, and what is checked of it.
fn server(text: &str, reaches: Option<&str>) -> Result<(String, Destination), String> {
    let rest = text.strip_prefix("https://").ok_or("expected `https://`: the server has to show its certificate")?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if !path.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~/:".contains(&b)) {
        return Err("expected a path of letters, digits and `-._~:/`".to_owned());
    }
    let wrong = |_| "expected `https://`, a host, and perhaps a port and a path".to_owned();
    let mut destination = Destination::http(&format!("https://{authority}")).map_err(wrong)?;
    let host = match &destination.host {
        Host::Address(address) => address.to_string(),
        Host::Name(name) => name.to_string(),
        Host::Below(_) => return Err("expected one host".to_owned()),
    };
    let named = reaches.is_some_and(|reaches| *reaches.trim() == *host);
    match destination.host {
        Host::Address(_) if named => {}
        // Who has written the kubeconfig must not decide by that what is reached.
        Host::Address(_) => destination.host = Host::Name(host.into()),
        Host::Name(_) | Host::Below(_) => destination.internal = named,
    }
    Ok((format!("https://{authority}/{path}").trim_end_matches('/').to_owned(), destination))
}

fn authority(cluster: &Fields<'_>) -> Result<String, String> {
    let path = cluster.path("certificate-authority-data");
    let text = cluster.needed("certificate-authority-data")?;
    granted::text_in(text)
        .filter(|text| text.contains(BEGIN))
        .ok_or_else(|| format!("{path} is no certificate as PEM in base64"))
}

fn credentials(user: &Fields<'_>) -> Result<Credentials, String> {
    user.only(&["token", "client-certificate-data", "client-key-data", "extensions"])?;
    let given = |field| user.text(field).map(|text| text.filter(|text| !text.is_empty()));
    match (given("token")?, given("client-certificate-data")?, given("client-key-data")?) {
        (Some(token), None, None) => {
            let token = token.trim_end();
            if token.bytes().all(|b| b.is_ascii_graphic()) {
                return Ok(Credentials::Token(token.to_owned()));
            }
            Err(format!("{} is no token: it has characters that no header can have", user.path("token")))
        }
        (None, Some(certificate), Some(key)) => {
            for (field, text) in [("client-certificate-data", certificate), ("client-key-data", key)] {
                if STANDARD.decode(text).is_err() {
                    return Err(format!("{} is no base64", user.path(field)));
                }
            }
            Ok(Credentials::Certificate { certificate: certificate.to_owned(), key: key.to_owned() })
        }
        _ => Err(format!(
            "{} says not who asks in one way; expected `token`, or `client-certificate-data` and `client-key-data`",
            user.path
        )),
    }
}

/// The fields of a mapping.
struct Fields<'a> {
    path: String,
    all: BTreeMap<&'a str, &'a Value>,
}

impl<'a> Fields<'a> {
    fn of(tree: &'a Tree) -> Result<Self, String> {
        Self::read(String::new(), &tree.root.value).ok_or_else(|| "it is not a mapping".to_owned())
    }

    fn read(path: String, value: &'a Value) -> Option<Self> {
        let Value::Map(entries) = value else {
            return None;
        };
        let all = entries.iter().filter_map(|(key, node)| Some((key.text()?, &node.value)));
        // `nothing` is as good as left out.
        Some(Self { path, all: all.filter(|(_, value)| !matches!(value, Value::Null)).collect() })
    }

    fn path(&self, field: &str) -> String {
        join(&self.path, &said_within(field, 60))
    }

    /// Refuses all fields but these.
    fn only(&self, known: &[&str]) -> Result<(), String> {
        let unknown = self.all.keys().find(|field| !known.contains(field));
        unknown.map_or(Ok(()), |field| Err(refusal(&self.path(field), field)))
    }

    /// Returns the name and the fields of the one entry of a list.
    fn one(&self, list: &str, field: &str) -> Result<(&'a str, Self), String> {
        let Some(Value::List(entries)) = self.all.get(list) else {
            return Err(format!("it has no list {list}"));
        };
        let [entry] = entries.as_slice() else {
            return Err(format!("it has {} {list}; expected one", entries.len()));
        };
        let path = format!("{list}[0]");
        let broken = || format!("{path} is not a mapping with `name` and `{field}`");
        let entry = Self::read(path.clone(), &entry.value).ok_or_else(broken)?;
        entry.only(&["name", field])?;
        let name = entry.text("name")?.ok_or_else(broken)?;
        let below = entry.all.get(field).and_then(|value| Self::read(entry.path(field), value));
        Ok((name, below.ok_or_else(broken)?))
    }

    fn text(&self, field: &str) -> Result<Option<&'a str>, String> {
        match self.all.get(field) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(_) => Err(format!("{} is not a text", self.path(field))),
        }
    }

    fn needed(&self, field: &str) -> Result<&'a str, String> {
        let missing = || format!("{} is missing", self.path(field));
        self.text(field)?.filter(|text| !text.is_empty()).ok_or_else(missing)
    }

    /// Whether a field is there, and does not say `false`.
    fn is_true(&self, field: &str) -> bool {
        self.all.get(field).is_some_and(|value| !matches!(value, Value::Bool(false)))
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use serde_json::json;

    use super::*;

    const PEM: &str = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";

    /// Returns a kubeconfig with these fields of its cluster and its user, and more at its end.
    fn text(cluster: &str, user: &str, more: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\nclusters: [{{ name: c, cluster: {{ certificate-authority-data: {}, {cluster} }} }}]\nusers: [{{ name: u, user: {{ {user} }} }}]\n{more}",
            STANDARD.encode(PEM)
        )
    }

    const SERVER: &str = "server: 'https://edge.example.com:6443'";
    const CONTEXT: &str = "contexts: [{ name: x, context: { cluster: c, user: u } }]\ncurrent-context: x\n";

    fn read(text: &str) -> Result<Kubeconfig, String> {
        Kubeconfig::read(text, None)
    }

    #[test]
    fn a_kubeconfig_has_a_server_a_certificate_and_a_token_or_a_certificate_of_its_own() {
        // CU-3
        let found = read(&text(SERVER, "token: abc", CONTEXT)).unwrap();
        assert_eq!((&*found.server, &*found.authority), ("https://edge.example.com:6443", PEM));
        assert!(found.credentials == Credentials::Token("abc".to_owned()));
        assert_eq!(format!("{found:?}"), "Kubeconfig(https://edge.example.com:6443)");
        let by_certificate = text(SERVER, "client-certificate-data: YQ==, client-key-data: Yg==", CONTEXT);
        let Credentials::Certificate { certificate, key } = read(&by_certificate).unwrap().credentials else {
            panic!("a certificate")
        };
        assert_eq!((&*certificate, &*key), ("YQ==", "Yg=="));
        let below =
            text("server: 'https://rancher.example.com/k8s/clusters/c-1/', tls-server-name: edge", "token: a", CONTEXT);
        let found = read(&below).unwrap();
        assert_eq!(found.server, "https://rancher.example.com/k8s/clusters/c-1");
        assert_eq!(found.server_name.as_deref(), Some("edge"));
        let written =
            text(&format!("{SERVER}, insecure-skip-tls-verify: false"), "token: a, extensions: null", CONTEXT);
        assert!(read(&written).is_ok());
    }

    #[test]
    fn what_would_run_a_program_read_a_file_or_take_another_way_is_refused_by_name_and_without_values() {
        // CU-3
        let cluster = |more: &str| text(&format!("{SERVER}, {more}"), "token: hunter2", CONTEXT);
        let user = |user: &str| text(SERVER, user, CONTEXT);
        let more = |more: &str| text(SERVER, "token: hunter2", more);
        let program = "it would run a program; expected a `token`, or a certificate";
        for (text, expected) in [
            (user("exec: { command: hunter2 }"), format!("found users[0].user.exec: {program}")),
            (user("auth-provider: { name: hunter2 }"), format!("found users[0].user.auth-provider: {program}")),
            (user("tokenFile: /hunter2"), "found users[0].user.tokenFile: it would read a file of the daemon; expected a `token`".to_owned()),
            (user("client-key: /hunter2, client-certificate: /hunter2"), "found users[0].user.client-certificate: it would read a file of the daemon; expected `client-certificate-data`".to_owned()),
            (user("token: a, as: hunter2"), "found users[0].user.as: nobody is impersonated; expected credentials of whom it is meant for".to_owned()),
            (user("token: a, hunter3: hunter2"), "found users[0].user.hunter3, which is not known here".to_owned()),
            (user("token: 7"), "users[0].user.token is not a text".to_owned()),
            (user("token: \"hunter2\\nx\""), "users[0].user.token is no token: it has characters that no header can have".to_owned()),
            (user("client-key-data: '%', client-certificate-data: YQ=="), "users[0].user.client-key-data is no base64".to_owned()),
            (user("client-key-data: YQ=="), "users[0].user says not who asks in one way; expected `token`, or `client-certificate-data` and `client-key-data`".to_owned()),
            (cluster("certificate-authority: /hunter2"), "found clusters[0].cluster.certificate-authority: it would read a file of the daemon; expected `certificate-authority-data`".to_owned()),
            (cluster("proxy-url: 'http://hunter2'"), "found clusters[0].cluster.proxy-url: the daemon connects to the server itself".to_owned()),
            (cluster("insecure-skip-tls-verify: true"), "found clusters[0].cluster.insecure-skip-tls-verify: the server has to show its certificate; expected `certificate-authority-data`".to_owned()),
            (more(""), "it has no list contexts".to_owned()),
            (more("contexts: [{ name: x, context: { cluster: c, user: u } }, { name: y, context: { cluster: c, user: u } }]"), "it has 2 contexts; expected one".to_owned()),
            (more("contexts: [{ name: x, context: { cluster: d, user: u } }]"), "contexts[0].context.cluster is not the one cluster that there is".to_owned()),
            (more(&format!("{CONTEXT}---\n{{}}")), "it has 2 documents; expected one".to_owned()),
            (more(&CONTEXT.replace("current-context: x", "current-context: y")), "current-context is not the one context that there is".to_owned()),
            (text("server: 'http://edge.example.com'", "token: a", CONTEXT), "clusters[0].cluster.server: expected `https://`: the server has to show its certificate".to_owned()),
            (text("server: 'https://u:hunter2@edge'", "token: a", CONTEXT), "clusters[0].cluster.server: expected `https://`, a host, and perhaps a port and a path".to_owned()),
            (text("server: 'https://edge/?hunter2'", "token: a", CONTEXT), "clusters[0].cluster.server: expected a path of letters, digits and `-._~:/`".to_owned()),
            (text("tls-server-name: a", "token: a", CONTEXT), "clusters[0].cluster.server is missing".to_owned()),
            (more(CONTEXT).replace(&STANDARD.encode(PEM), "YQ=="), "clusters[0].cluster.certificate-authority-data is no certificate as PEM in base64".to_owned()),
            ("[hunter2]".to_owned(), "it is not a mapping".to_owned()),
        ] {
            let why = read(&text).unwrap_err();
            assert_eq!(why, expected, "{text}");
            assert!(!why.contains("hunter2"), "{why}");
        }
        let why = read("a: [hunter2").unwrap_err();
        assert!(why.starts_with("it is not YAML, from line") && !why.contains("hunter2"), "{why}");
    }

    #[test]
    fn which_operator_uses_it_and_how_long_it_may_be_the_secret_says() {
        // CU-2
        let good = STANDARD.encode(text(SERVER, "token: hunter2", CONTEXT));
        let secret = |names: Option<&str>, data: serde_json::Value| {
            let labels = names.map(|names| json!({ KUBECONFIG_FOR: names }));
            json!({ "metadata": { "name": "s", "labels": labels }, "data": data }).to_string()
        };
        let long = STANDARD.encode("a".repeat(LONGEST + 100));
        for (names, data, expected) in [
            (Some("pages"), json!({ "kubeconfig": good }), ""),
            (Some("shop_pages"), json!({ "kubeconfig": good }), ""),
            (
                Some("pages-2"),
                json!({ "kubeconfig": good }),
                "its label capstan.dev/kubeconfig-for does not name the operator pages",
            ),
            (
                None,
                json!({ "kubeconfig": good }),
                "its label capstan.dev/kubeconfig-for does not name the operator pages",
            ),
            (Some("pages"), json!({ "value": good }), "it has no \"kubeconfig\"; there is: value"),
            (Some("pages"), json!(null), "it has no \"kubeconfig\"; it is empty"),
            (Some("pages"), json!({ "kubeconfig": "%" }), "its \"kubeconfig\" is no text"),
            (Some("pages"), json!({ "kubeconfig": long }), "its \"kubeconfig\" is longer than 65536 bytes"),
            (Some("pages"), json!({ "kubeconfig": "e30=" }), "its \"kubeconfig\" is refused: it has no list clusters"),
        ] {
            let found = Kubeconfig::of_secret(&secret(names, data), "kubeconfig", "pages", &mut Budget::of_run());
            assert_eq!(found.err().unwrap_or_default(), expected, "{names:?}");
        }
        let found = Kubeconfig::of_secret("[", "kubeconfig", "pages", &mut Budget::of_run());
        assert_eq!(found.unwrap_err(), "it is too large, or can't be read");
    }

    #[test]
    fn private_and_local_addresses_are_reached_only_if_the_secret_names_the_host() {
        // CU-3
        for (server, reaches, address, expected) in [
            ("edge.example.com", None, "8.8.8.8", Ok(())),
            ("edge.example.com", None, "10.0.0.1", Err(Closed::Internal)),
            ("edge.example.com", Some("edge.example.com"), "10.0.0.1", Ok(())),
            ("edge.example.com", Some("other.example.com"), "10.0.0.1", Err(Closed::Internal)),
            ("edge.example.com", Some("edge.example.com"), "127.0.0.1", Err(Closed::Local)),
            ("edge.example.com", Some("edge.example.com"), "169.254.169.254", Err(Closed::Link)),
            ("127.0.0.1:6443", None, "127.0.0.1", Err(Closed::Local)),
            ("127.0.0.1:6443", Some("127.0.0.1"), "127.0.0.1", Ok(())),
            ("10.0.0.1", None, "10.0.0.1", Err(Closed::Internal)),
            ("10.0.0.1", Some("10.0.0.1"), "10.0.0.1", Ok(())),
        ] {
            let text = text(&format!("server: 'https://{server}'"), "token: a", CONTEXT);
            let found = Kubeconfig::read(&text, reaches).unwrap();
            let address: IpAddr = address.parse().unwrap();
            let reached = found.destination.reaches(address, &std::collections::BTreeSet::new());
            assert_eq!(reached, expected, "{server} {reaches:?} {address}");
            if let Err(why) = reached {
                assert_eq!(found.closed(why).contains(REACHES), why != Closed::Link, "{why}");
            }
        }
    }
}
