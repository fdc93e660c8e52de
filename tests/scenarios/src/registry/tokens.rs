//! Issues the tokens that a registry asks for, as the service does that its realm names: over TLS, to one user, for one team's repositories.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use jiff::Timestamp;
use parking_lot::Mutex;
use rcgen::{CertifiedKey, KeyPair, SigningKey as _};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

/// For how long a token is good, in seconds.
const LIFETIME: i64 = 60;

/// The service, and what it was asked for. It ends with the process.
pub(super) struct Tokens {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Tokens {
    /// Starts it. Its certificate signs the tokens, too.
    pub(super) fn start(own: &CertifiedKey<KeyPair>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default());
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config =
            Arc::new(config.with_no_client_auth().with_single_cert(vec![own.cert.der().clone()], key).unwrap());
        let (told, certificate) = (Arc::clone(&asked), BASE64_STANDARD.encode(own.cert.der()));
        let pair = KeyPair::try_from(own.signing_key.serialize_der()).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // Whoever does not speak TLS is not answered.
                drop(answer(stream, &config, &told, |scope| token(&pair, &certificate, scope)));
            }
        });
        Self { address, asked }
    }

    /// Returns what a registry has to be told of it.
    pub(super) fn settings(&self, certificate: &std::path::Path) -> Value {
        json!({
            "realm": format!("https://{}/token", self.address),
            "service": "the registry", "issuer": "the issuer", "rootcertbundle": certificate,
        })
    }

    /// Returns which scopes were asked for until now, each by whom.
    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

/// Reads a request, and answers with the token of its scope if it is of the one user.
fn answer(
    stream: TcpStream,
    config: &Arc<ServerConfig>,
    asked: &Mutex<Vec<String>>,
    token: impl Fn(&str) -> String,
) -> std::io::Result<()> {
    let connection = ServerConnection::new(Arc::clone(config)).map_err(std::io::Error::other)?;
    let mut stream = BufReader::new(StreamOwned::new(connection, stream));
    let (mut first, mut line, mut user) = (String::new(), String::new(), "nobody");
    stream.read_line(&mut first)?;
    while stream.read_line(&mut line)? > 2 {
        let (name, value) = line.split_once(':').unwrap_or_default();
        if name.eq_ignore_ascii_case("authorization") {
            let good = format!("Basic {}", BASE64_STANDARD.encode("user:pass"));
            user = if value.trim() == good { "user" } else { "somebody" };
        }
        line.clear();
    }
    let path = first.split(' ').nth(1).unwrap_or_default().replace("%3A", ":").replace("%2C", ",").replace("%2F", "/");
    let scope = path.split(['?', '&']).find_map(|word| word.strip_prefix("scope=")).unwrap_or_default();
    asked.lock().push(format!("{user} {scope}"));
    let (status, body) = match user {
        "user" => ("200 OK", json!({ "token": token(scope), "expires_in": LIFETIME })),
        _ => ("401 Unauthorized", json!({ "details": "incorrect username or password" })),
    };
    let body = body.to_string();
    write!(
        stream.get_mut(),
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// Returns a token for a scope, by which the repositories below `team/` are accessible, and no others.
fn token(pair: &KeyPair, certificate: &str, scope: &str) -> String {
    let now = Timestamp::now().as_second();
    let access = match scope.split(':').collect::<Vec<_>>()[..] {
        [kind, name, actions] if name.starts_with("team/") => {
            vec![json!({ "type": kind, "name": name, "actions": actions.split(',').collect::<Vec<_>>() })]
        }
        _ => vec![],
    };
    let head = json!({ "typ": "JWT", "alg": "ES256", "x5c": [certificate] });
    let claims = json!({
        "iss": "the issuer", "sub": "user", "aud": "the registry", "jti": format!("{now}"),
        "iat": now, "nbf": now - 5, "exp": now + LIFETIME, "access": access,
    });
    let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(&head), part(&claims));
    let signature = flat(&pair.sign(signed.as_bytes()).unwrap());
    format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
}

/// Returns the two numbers of a signature by P-256 as tokens have them: 32 bytes each, without the DER around.
fn flat(der: &[u8]) -> Vec<u8> {
    let mut rest = &der[2..];
    let mut number = || {
        let (all, after) = rest[2..].split_at(usize::from(rest[1]));
        rest = after;
        let bytes = all.strip_prefix(&[0]).unwrap_or(all);
        [vec![0; 32 - bytes.len()], bytes.to_vec()].concat()
    };
    [number(), number()].concat()
}
