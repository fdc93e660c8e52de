//! What the commands that talk to a registry have in common: how it is reached, who asks, and how what was found is shown.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use capstan_core::manifest::{Authority, Image};
use capstan_core::registry::artifact::Interfaces;
use capstan_core::registry::challenge::Access;
use capstan_core::registry::mirror::{self, Entry};
use capstan_core::registry::{Credentials, Digest, Failure, Reference};
use capstan_core::text;
use serde::Serialize;

use crate::cli::args::{Output, Registry};
use crate::names::Names;
use crate::plugin::loader::Wasm;
use crate::registry::{Patience, Proxies, Resolved, Session, Way};
use crate::{operators, read, tls};

/// The most bytes of a password on standard input.
const PASSWORD: u64 = 64 << 10;

/// What is known of a component.
#[derive(Debug, Serialize)]
pub(super) struct Facts {
    /// The reference, with the digest of its manifest; none of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reference: Option<String>,
    /// The component's own digest.
    pub(super) component: Digest,
    /// Its bytes.
    pub(super) size: u64,
    #[serde(flatten)]
    pub(super) interfaces: Interfaces,
    pub(super) annotations: BTreeMap<String, String>,
}

/// Returns a session with the registry of a reference.
///
/// # Errors
/// If the credentials or certificates can't be read.
pub(super) fn session(args: &Registry, reference: &Reference, access: Access) -> anyhow::Result<Session> {
    with(args, reference, (credentials(args, reference)?, access))
}

/// Finds out what a reference names, of its mirrors and then of the registry itself, and returns what is made of that with the session that says it. Where
/// one fails at either, the next one is asked (`MR-2`).
///
/// # Errors
/// If the credentials or certificates can't be read, or nobody has it.
pub(super) async fn resolved<T>(
    (args, mirrors): (&Registry, &[Entry]),
    reference: &Reference,
    (what, most): (&str, u64),
    make: impl AsyncFn(Session, Resolved) -> Result<T, Failure>,
) -> anyhow::Result<T> {
    let mut failures = Vec::new();
    for place in operators::mirrors(mirrors)?.places(reference) {
        // Who is named on the command line is who asks the registry itself.
        let credentials = if place == *reference { credentials(args, &place)? } else { known(&place)? };
        let mut session = with(args, &place, (credentials, Access::Pull))?.in_place_of(reference);
        let made = async {
            let resolved = session.resolve(most).await?;
            make(session, resolved).await
        };
        match Box::pin(made).await {
            Ok(made) => return Ok(made),
            Err(failure) => failures.push((place, failure)),
        }
    }
    let failure = mirror::failed(failures, reference).unwrap_or_else(|| Failure::wrong("nobody is asked"));
    Err(failed(what, reference)(failure))
}

/// Returns a session for each reference.
///
/// # Errors
/// If the credentials or certificates can't be read.
pub(super) fn sessions(args: &Registry, references: &[Reference], access: Access) -> anyhow::Result<Vec<Session>> {
    if args.username.is_none() {
        return references.iter().map(|reference| session(args, reference, access)).collect();
    }
    let Some(first) = references.first() else {
        return Ok(Vec::new());
    };
    // The password is read once.
    let credentials = credentials(args, first)?;
    references.iter().map(|reference| with(args, reference, (credentials.clone(), access))).collect()
}

/// Finds that one user is for one reference: the password is read once, and no other registry is told it.
///
/// # Errors
/// If there are several.
pub(super) fn one_user(args: &Registry, references: &[Reference]) -> anyhow::Result<()> {
    anyhow::ensure!(
        args.username.is_none() || references.len() < 2,
        "--username is for one reference; found {}, for which `docker login` leaves who asks",
        references.len()
    );
    Ok(())
}

fn with(args: &Registry, reference: &Reference, who: (Credentials, Access)) -> anyhow::Result<Session> {
    let reach = Arc::new(|_: &_, _| Ok(()));
    let mut way = Way {
        roots: Arc::new(tls::roots()),
        reach,
        names: Names::default(),
        proxies: Proxies::of_environment(),
        patience: Patience::default(),
    };
    if let Some(file) = &args.ca {
        let what = || format!("read certificates {}", file.display());
        let pem = read::text(file, read::TEXT).with_context(what)?;
        way = way.trusting(&pem).map_err(anyhow::Error::msg).with_context(what)?;
    }
    Ok(Session::new(way, reference, who, args.insecure))
}

/// Returns a component of a registry, as a manifest names it.
///
/// # Errors
/// If the credentials or certificates can't be read, or the registry does not give it.
pub(super) async fn pulled(image: &Image, (mirrors, ca): (&[Entry], Option<&Path>)) -> anyhow::Result<Wasm> {
    let ca = match &image.authority {
        Some(Authority::File(file)) => Some(file.clone()),
        Some(Authority::Held(_)) | None => ca.map(Path::to_owned),
    };
    let args = Registry { username: None, password_stdin: false, ca, insecure: image.insecure };
    let reference = &image.reference;
    let demands = image.demands(None);
    let pull = async |mut session: Session, resolved: Resolved| {
        session.signed(&resolved, &demands).await?;
        let mut component = Vec::new();
        session.blob(&resolved.artifact.layer, &mut component).await?;
        Ok(component)
    };
    let component = resolved((&args, mirrors), reference, ("pull", read::COMPONENT), pull).await?;
    Ok(Wasm::new(&reference.to_string(), move || Ok(component.clone())))
}

/// Returns the error of a command: what was to be done with which reference, and why it was not.
pub(super) fn failed(what: &str, reference: &Reference) -> impl Fn(Failure) -> anyhow::Error {
    move |failure| anyhow::anyhow!("{what} {reference}: {failure}")
}

/// Returns the line that says how many manifests with signatures go with a component; none, if there are none.
pub(super) fn with_signatures(manifests: usize) -> String {
    match manifests {
        0 => String::new(),
        1 => "  with its signatures: 1 manifest\n".to_owned(),
        many => format!("  with its signatures: {many} manifests\n"),
    }
}

/// Returns who asks: as the command line says, else as `docker login` has left it.
fn credentials(args: &Registry, reference: &Reference) -> anyhow::Result<Credentials> {
    if let Some(name) = &args.username {
        let mut password = String::new();
        std::io::stdin()
            .take(PASSWORD)
            .read_to_string(&mut password)
            .context("read the password from standard input")?;
        let password = password.trim_end_matches(['\r', '\n']).to_owned();
        anyhow::ensure!(!password.is_empty(), "standard input has no password");
        return Ok(Credentials::User { name: name.clone(), password });
    }
    known(reference)
}

/// Returns whom `docker login` has logged in there.
fn known(reference: &Reference) -> anyhow::Result<Credentials> {
    let folder = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    let folder = folder.or_else(|| std::env::home_dir().map(|home| home.join(".docker")));
    let Some(file) = folder.map(|folder| folder.join("config.json")).filter(|file| file.exists()) else {
        return Ok(Credentials::Anonymous);
    };
    let what = || format!("read credentials {}", file.display());
    let config = read::text(&file, read::TEXT).with_context(what)?;
    Credentials::of_config(&config, reference).map_err(anyhow::Error::msg).with_context(what)
}

impl Facts {
    /// Returns it in a format.
    ///
    /// # Errors
    /// If it can't be written so.
    pub(super) fn shown(&self, output: Output) -> anyhow::Result<String> {
        Ok(match output {
            Output::Json => format!("{}\n", serde_json::to_string_pretty(self)?),
            Output::Yaml => serde_yaml::to_string(self)?,
            Output::Table => text::lines(&self.table()),
        })
    }

    fn table(&self) -> String {
        let Self { reference, component, size, interfaces: Interfaces { imports, exports }, annotations } = self;
        let mut table = String::new();
        let mut line = |name: &str, value: &str| {
            // Writing to a string cannot fail.
            let _infallible = writeln!(table, "{name:<12}{}", text::one_line(value));
        };
        if let Some(reference) = reference {
            line("reference", reference);
        }
        line("component", &component.to_string());
        line("size", &format!("{size} bytes"));
        for (name, values) in [("imports", imports), ("exports", exports)] {
            let first = std::iter::once(name).chain(std::iter::repeat(""));
            first.zip(values).for_each(|(name, value)| line(name, value));
        }
        for (key, value) in annotations {
            line("annotation", &format!("{key}={value}"));
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::tests::fake::{Door, Fake, text};
    use crate::registry::tests::push;

    #[tokio::test]
    async fn a_mirror_that_lacks_a_part_leaves_all_of_it_to_the_next_one() {
        // MR-2
        let (origin, mirror) = (Fake::start(Door::Open).await, Fake::start(Door::Open).await);
        let at = |fake: &Fake| format!("{}/org/a:1", fake.address);
        push(&origin, "org/a:1", b"of the registry").await;
        push(&mirror, "org/a:1", b"of the mirror").await;
        let entries = [Entry::parse(&format!("{}={}", origin.address, mirror.address)).unwrap()];
        let args = Registry { username: None, password_stdin: false, ca: None, insecure: true };
        let reference = Reference::parse(&at(&origin)).unwrap();
        let pull = async |mut session: Session, resolved: Resolved| {
            let mut component = Vec::new();
            session.blob(&resolved.artifact.layer, &mut component).await?;
            Ok(component)
        };
        let pulled = || resolved((&args, &entries), &reference, ("pull", 1 << 20), pull);
        assert_eq!(pulled().await.unwrap(), b"of the mirror");
        mirror.fails(|asked| asked.line.contains("/blobs/").then(|| text(404, "")));
        assert_eq!(pulled().await.unwrap(), b"of the registry");
        origin.fails(|_| Some(text(500, "")));
        let error = pulled().await.unwrap_err().to_string();
        assert!(error.contains("it fails (500)") && error.contains(&*mirror.address), "{error}");
    }

    #[test]
    fn a_component_is_shown_line_by_line() {
        let facts = Facts {
            reference: Some("r.io/a:1@sha256:…".to_owned()),
            component: Digest::of(&[0xab; 32]),
            size: 9,
            interfaces: Interfaces { imports: vec!["a:b/c".to_owned(), "d".to_owned()], exports: vec!["e".to_owned()] },
            annotations: BTreeMap::from([("k".to_owned(), "v\u{1b}".to_owned())]),
        };
        let expected = format!(
            "reference   r.io/a:1@sha256:…\ncomponent   sha256:{}\nsize        9 bytes\nimports     a:b/c\n            d\nexports     e\nannotation  k=v\\u{{1b}}\n",
            "ab".repeat(32)
        );
        assert_eq!(facts.shown(Output::Table).unwrap(), expected);
        assert!(facts.shown(Output::Json).unwrap().contains("\"imports\": ["));
        assert!(facts.shown(Output::Yaml).unwrap().contains("size: 9\n"));
    }
}
