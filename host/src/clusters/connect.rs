//! Makes a client of a kubeconfig, which connects to no address that is closed to it, whatever a name resolves to.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use capstan_core::kubeconfig::{Credentials, Kubeconfig};
use capstan_core::network::{Closed, Destination, Host, Scheme};
use http::header::AUTHORIZATION;
use http::{HeaderValue, Uri};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tower::Service;

use crate::names::Names;

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(10);

/// How long it may take with all that it takes until requests can be sent.
const WHOLE: Duration = Duration::from_secs(15);

/// The most addresses of a name that are tried.
const TRIED: usize = 8;

/// Says whether an address of a destination may be reached.
pub type Reach = Arc<dyn Fn(&Destination, SocketAddr) -> Result<(), Closed> + Send + Sync>;

/// Looks names up, and passes on those addresses that may be reached.
#[derive(Clone)]
struct Checked {
    kubeconfig: Arc<Kubeconfig>,
    port: u16,
    reach: Reach,
    names: Names,
}

/// Why an address of a server is not connected to.
#[derive(Debug)]
struct Barred(String);

impl fmt::Display for Barred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Barred {}

/// Returns a client that goes where a kubeconfig leads to.
///
/// # Errors
/// Why there is none: nothing of the values.
pub(super) fn connect(kubeconfig: &Kubeconfig, reach: &Reach) -> Result<kube::Client, String> {
    connect_by(kubeconfig, reach, Names::default())
}

/// The same, with names that are looked up there.
fn connect_by(kubeconfig: &Kubeconfig, reach: &Reach, names: Names) -> Result<kube::Client, String> {
    let kubeconfig = Arc::new(kubeconfig.clone());
    let port = kubeconfig.destination.port.unwrap_or(Scheme::Https.port());
    let checked = Checked { port, reach: Arc::clone(reach), names, kubeconfig: Arc::clone(&kubeconfig) };
    let uri: Uri = kubeconfig.server.parse().map_err(|_| "its server is no address".to_owned())?;
    // An address is not looked up.
    if let Some(address) = uri.host().and_then(|host| host.trim_matches(['[', ']']).parse::<IpAddr>().ok()) {
        checked.check(address).map_err(|barred| barred.to_string())?;
    }
    let config = config(&kubeconfig, uri)?;
    let mut connector = HttpConnector::new_with_resolver(checked);
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_nodelay(true);
    let unusable = |_| "its certificates, or the key, can't be used".to_owned();
    let mut connector =
        TimeoutConnector::new(config.rustls_https_connector_with_connector(connector).map_err(unusable)?);
    // Names that are looked up, and TLS, take their time, too.
    connector.set_connect_timeout(Some(WHOLE));
    let client: Client<_, Body> = Client::builder(TokioExecutor::new()).build(connector);
    let headers = config.extra_headers_layer().map_err(|_| "its token can't be used".to_owned())?;
    let builder = ClientBuilder::new(client, &config.default_namespace);
    Ok(builder.with_layer(&headers).with_layer(&config.base_uri_layer()).build())
}

/// Returns what the kubeconfig says, in the words of the client, and nothing of what is around the daemon, such as a proxy.
fn config(kubeconfig: &Kubeconfig, uri: Uri) -> Result<kube::Config, String> {
    let mut config = kube::Config::new(uri);
    config.default_retry = false;
    config.tls_server_name.clone_from(&kubeconfig.server_name);
    let certificates = CertificateDer::pem_slice_iter(kubeconfig.authority.as_bytes());
    let certificates: Result<Vec<_>, _> = certificates.map(|found| found.map(|found| found.to_vec())).collect();
    let certificates = certificates.ok().filter(|found| !found.is_empty());
    config.root_cert = Some(certificates.ok_or("its certificate to trust can't be read")?);
    match &kubeconfig.credentials {
        Credentials::Token(token) => {
            let mut value =
                HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| "its token can't be used".to_owned())?;
            value.set_sensitive(true);
            config.headers.push((AUTHORIZATION, value));
        }
        Credentials::Certificate { certificate, key } => {
            config.auth_info.client_certificate_data = Some(certificate.clone());
            config.auth_info.client_key_data = Some(key.clone().into());
        }
    }
    Ok(config)
}

impl Checked {
    fn check(&self, address: IpAddr) -> Result<(), Barred> {
        let Self { kubeconfig, port, reach, .. } = self;
        let barred = |why| {
            let host = match &kubeconfig.destination.host {
                Host::Address(host) => host.to_string(),
                Host::Name(host) | Host::Below(host) => host.to_string(),
            };
            Barred(format!("its server {host} has the address {address}: {}", kubeconfig.closed(why)))
        };
        reach(&kubeconfig.destination, SocketAddr::new(address, *port)).map_err(barred)
    }

    /// Returns those addresses that may be reached.
    ///
    /// # Errors
    /// Why none may be.
    fn open(&self, found: impl Iterator<Item = SocketAddr>) -> Result<Vec<SocketAddr>, Barred> {
        let (mut open, mut barred) = (Vec::new(), None);
        for address in found.take(TRIED) {
            match self.check(address.ip()) {
                Ok(()) => open.push(address),
                Err(why) => barred = Some(why),
            }
        }
        match barred {
            Some(barred) if open.is_empty() => Err(barred),
            Some(_) | None => Ok(open),
        }
    }
}

impl Service<Name> for Checked {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let checked = self.clone();
        Box::pin(async move {
            let Checked { names, port, kubeconfig, .. } = &checked;
            let found = names.find(name.as_str(), *port, kubeconfig.destination.internal).await?;
            Ok(checked.open(found.into_iter())?.into_iter())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use capstan_core::budget::Budget;
    use serde_json::json;

    use super::*;
    use crate::client::chain;
    use crate::names::tests::known;

    fn kubeconfig(server: &str, reaches: &str) -> Kubeconfig {
        let authority = rcgen::generate_simple_self_signed(vec!["edge".to_owned()]).unwrap().cert.pem();
        let text = json!({
            "clusters": [{ "name": "c", "cluster": { "server": server, "certificate-authority-data": encoded(&authority) } }],
            "users": [{ "name": "u", "user": { "token": "hunter2" } }],
            "contexts": [{ "name": "x", "context": { "cluster": "c", "user": "u" } }],
        });
        let secret = json!({
            "metadata": { "labels": { "capstan.dev/kubeconfig-for": "pages" }, "annotations": { "capstan.dev/kubeconfig-reaches": reaches } },
            "data": { "kubeconfig": encoded(&text.to_string()) },
        });
        Kubeconfig::of_secret(&secret.to_string(), "kubeconfig", "pages", &mut Budget::of_run()).unwrap()
    }

    fn encoded(text: &str) -> String {
        serde_json::to_value(k8s_openapi::ByteString(text.into())).unwrap().as_str().unwrap().to_owned()
    }

    fn reach() -> Reach {
        Arc::new(|entry, address| entry.reaches(address.ip(), &BTreeSet::new()))
    }

    #[tokio::test]
    async fn a_server_is_reached_at_no_address_that_is_closed_to_its_kubeconfig() {
        // CU-3
        let address = connect(&kubeconfig("https://127.0.0.1:1", ""), &reach()).err().unwrap();
        assert!(
            address.starts_with("its server 127.0.0.1 has the address 127.0.0.1: it is an address of the machine"),
            "{address}"
        );
        assert!(connect(&kubeconfig("https://127.0.0.1:1", "127.0.0.1"), &reach()).is_ok());
        // What a name resolves to is looked at, too.
        let client = connect(&kubeconfig("https://localhost:1", "localhost"), &reach()).unwrap();
        let request = http::Request::get("/version").body(Body::empty()).unwrap();
        let error = client.send(request).await.unwrap_err();
        let error = chain(&error);
        assert!(error.contains("its server localhost has the address"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[tokio::test]
    async fn the_name_of_a_server_is_looked_up_in_full() {
        // CU-3: else a service `example` in a namespace `com` of this cluster would be asked.
        for (reaches, asked) in
            [("", &["api.example.com."][..]), ("api.example.com", &["api.example.com.", "api.example.com"])]
        {
            let (names, looked) = known(&[], "10.0.0.7");
            let kubeconfig = kubeconfig("https://api.example.com", reaches);
            let client = connect_by(&kubeconfig, &reach(), names).unwrap();
            let request = http::Request::get("/version").body(Body::empty()).unwrap();
            let error = chain(&client.send(request).await.unwrap_err());
            assert!(error.contains("no such name"), "{error}");
            assert_eq!(looked.lock().join(" "), asked.join(" "));
        }
    }

    #[tokio::test]
    async fn a_server_that_says_nothing_is_given_up() {
        // CU-7
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = silent.local_addr().unwrap().port();
        let client = connect(&kubeconfig(&format!("https://127.0.0.1:{port}"), "127.0.0.1"), &reach()).unwrap();
        let request = http::Request::get("/version").body(Body::empty()).unwrap();
        let asking = tokio::spawn(async move { client.send(request).await.map(drop) });
        let (_connection, _) = silent.accept().await.unwrap();
        tokio::time::pause();
        let ended = tokio::time::timeout(2 * WHOLE, asking).await;
        let error = ended.expect("it ends").unwrap().unwrap_err();
        assert!(chain(&error).contains("timed out") || chain(&error).contains("elapsed"), "{}", chain(&error));
    }
}
