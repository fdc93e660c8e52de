//! Components from a real registry, with TLS and a user: pushed, pulled, swapped, and kept when the registry is gone.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use capstan_core::registry::Digest;
use cluster::{Tool, wait};
use scenarios::registry::Registry;
use scenarios::{LATER, Place, Start, capstan, component, replace};
use serde_json::{Value, json};

const OLD: &str = "nginx:1.29";
const NEW: &str = "nginx:1.30";

/// Where the daemon is.
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// A registry, and a place whose operator has its component there.
struct Shop {
    place: Place,
    registry: Registry,
    folder: tempfile::TempDir,
    /// By whom its component has to be signed.
    key: Option<String>,
}

impl Shop {
    fn new(prefix: &str) -> Self {
        Self::at(prefix, Registry::start())
    }

    fn at(prefix: &str, registry: Registry) -> Self {
        let place = Place::new(prefix);
        let shop = Self { place, registry, folder: tempfile::tempdir().unwrap(), key: None };
        shop.permit(&shop.registry.login());
        shop
    }

    /// Makes the pull secret, with what `docker login` writes.
    fn permit(&self, login: &str) {
        let secret = json!({
            "type": "kubernetes.io/dockerconfigjson",
            "metadata": { "labels": { "capstan.dev/config-for": "webpage" } },
            "stringData": { ".dockerconfigjson": login },
        });
        self.place.create("v1", "Secret", SECRETS, self.place.namespace.name(), secret);
    }

    fn reference(&self) -> String {
        format!("{}/team/webpage:1", self.registry.address())
    }

    /// Runs a command of `capstan` as who is logged in, and returns its exit code and all that it says.
    fn capstan(&self, arguments: &[&str]) -> (i32, String) {
        capstan_at(&self.registry, arguments)
    }

    fn ca(&self) -> String {
        self.registry.certificate().display().to_string()
    }

    /// Pushes the sample's component in a version whose deployments have this image, and returns its digest.
    fn push(&self, image: &str) -> String {
        let bytes = fs::read(component("webpage")).unwrap();
        let file = self.folder.path().join("webpage.wasm");
        fs::write(&file, replace(&bytes, OLD.as_bytes(), image.as_bytes())).unwrap();
        let pushed = self.capstan(&["push", &file.display().to_string(), &self.reference(), "--ca", &self.ca()]);
        let said = pushed.1.trim().to_owned();
        let digest = said.strip_prefix(&format!("{}@", self.reference()));
        digest.unwrap_or_else(|| panic!("{pushed:?}")).to_owned()
    }

    /// Returns the sample's manifest, whose component is in the registry.
    fn manifest(&self) -> String {
        let path = format!("{{ path: {} }}", component("webpage").display());
        let manifest = self.place.sample_manifest("webpage");
        assert!(manifest.contains(&path), "{manifest}");
        let oci = format!(
            "{{ oci: \"{}\", pullSecret: {}, interval: 1s, ca: {{ file: {} }}{} }}",
            self.reference(),
            self.place.namespace.name(),
            self.ca(),
            self.key.as_ref().map(|key| format!(", verify: {{ keys: [{key:?}] }}")).unwrap_or_default()
        );
        manifest.replace(&path, &oci)
    }

    /// Writes a new key, and returns the files of both halves.
    fn new_key(&self, name: &str) -> [String; 2] {
        let pair = rcgen::KeyPair::generate().unwrap();
        let halves = [("pem", pair.serialize_pem()), ("pub", pair.public_key_pem())];
        halves.map(|(kind, text)| {
            let file = self.folder.path().join(format!("{name}.{kind}"));
            fs::write(&file, text).unwrap();
            file.display().to_string()
        })
    }

    /// Signs what the reference names by the key of a file.
    fn sign(&self, key: &str) {
        let (code, said) = self.capstan(&["sign", "--key", key, &self.reference(), "--ca", &self.ca()]);
        assert_eq!(code, 0, "{said}");
    }

    fn daemon(&self) -> scenarios::Daemon {
        let cache = self.folder.path().join("components").display().to_string();
        Start::new(&self.manifest()).arguments(&["--component-cache", &cache]).run(&self.place).until_ready()
    }

    fn await_image(&self, wanted: &str) {
        let deployments = self.place.namespace.path("apps/v1", "deployments");
        let is = |found: &Value| found["spec"]["template"]["spec"]["containers"][0]["image"] == wanted;
        self.place.await_within(LATER, &deployments, "page", wanted, is);
    }
}

/// Runs a command of `capstan` as who is logged in at a registry, and returns its exit code and all that it says.
fn capstan_at(registry: &Registry, arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(capstan());
    command.args(arguments).env_remove("RUST_LOG").env("DOCKER_CONFIG", registry.docker_config());
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

#[test]
fn an_operator_from_a_registry_is_swapped_by_a_push_and_starts_without_the_registry() {
    // OC-2, OC-3, OC-6, OC-7
    let mut shop = Shop::new("registry");
    let first = shop.push(OLD);
    let page = json!({ "spec": { "html": "<html>1</html>" } });
    shop.place.create("sample.capstan.dev/v1", "WebPage", &shop.place.pages(), "page", page);
    let daemon = shop.daemon();
    shop.await_image(OLD);
    let plugin = daemon.await_plugin("webpage", "active", 1);
    assert_eq!((&plugin["registry"]["digest"], &plugin["component"]), (&json!(first), &json!(shop.reference())));
    let second = shop.push(NEW);
    let plugin = daemon.await_plugin("webpage", "active", 2);
    assert_eq!(plugin["registry"]["digest"], second);
    shop.await_image(NEW);
    // Nobody has been told the password.
    assert!(!daemon.log().contains("pass\"") && !daemon.log().contains("dXNlcjpwYXNz"));
    shop.registry.stop();
    wait::until_ok(LATER, "the registry to be missed", || {
        let plugin = daemon.plugin("webpage").unwrap();
        if plugin["registry"]["problem"].is_string() { Ok(()) } else { Err(plugin.to_string()) }
    })
    .unwrap();
    assert_eq!(daemon.plugin("webpage").unwrap()["state"], "active");
    assert_eq!(daemon.count("capstan_plugin_registry_problem", "plugin=\"webpage\""), 1);
    daemon.kill();
    let daemon = shop.daemon();
    let plugin = daemon.await_plugin("webpage", "active", 1);
    assert_eq!(plugin["registry"]["digest"], second);
    shop.place.merge(&shop.place.pages(), "page", &json!({ "spec": { "html": "<html>2</html>" } }));
    let is_new = |map: &Value| map["data"]["index.html"].as_str().is_some_and(|html| html.contains('2'));
    shop.place.await_object(&shop.place.config_maps(), "page-html", "the new page", is_new);
    // Once it is back, all goes on as before.
    shop.registry.resume();
    shop.push(OLD);
    daemon.await_plugin("webpage", "active", 2);
    shop.await_image(OLD);
}

#[test]
fn a_pull_secret_that_is_deleted_and_made_anew_at_once_is_read_and_what_is_in_force_goes_on() {
    // OC-3, OC-7
    let shop = Shop::new("registry-anew");
    let first = shop.push(OLD);
    let daemon = shop.daemon();
    daemon.await_plugin("webpage", "active", 1);
    let anew = |login: &str| {
        shop.place.delete(SECRETS, shop.place.namespace.name());
        shop.permit(login);
    };
    let until = |what: &str, is: &dyn Fn(&Value) -> bool| {
        wait::until_ok(LATER, what, || {
            let plugin = daemon.plugin("webpage").unwrap();
            assert_eq!((&plugin["state"], &plugin["version"]), (&json!("active"), &json!(1)), "{plugin}");
            if is(&plugin["registry"]["problem"]) { Ok(plugin) } else { Err(plugin.to_string()) }
        })
        .unwrap()
    };
    anew(&shop.registry.login().replace("dXNlcjpwYXNz", "dXNlcjp3cm9uZw=="));
    until("a wrong password to be refused", &|problem| problem.as_str().is_some_and(|told| told.contains("(401)")));
    anew(&shop.registry.login());
    let plugin = until("the right one to be taken", &Value::is_null);
    assert_eq!(plugin["registry"]["digest"], first);
    shop.push(NEW);
    daemon.await_plugin("webpage", "active", 2);
}

#[test]
fn what_is_pushed_is_shown_pulled_and_checked_by_who_may_and_by_nobody_else() {
    // OC-2, OC-3, OC-5
    let shop = Shop::new("registry");
    let digest = shop.push(OLD);
    let (reference, ca) = (shop.reference(), shop.ca());
    let (code, said) = shop.capstan(&["inspect", &reference, "--ca", &ca, "-o", "json"]);
    let facts: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &facts["reference"]), (0, &json!(format!("{reference}@{digest}"))));
    let is_ours = |name: &Value| name.as_str().unwrap().starts_with("capstan:operator/");
    assert!(facts["exports"].as_array().unwrap().iter().any(is_ours), "{facts}");
    let file = shop.folder.path().join("pulled.wasm").display().to_string();
    let (code, _) = shop.capstan(&["pull", &format!("{reference}@{digest}"), "-o", &file, "--ca", &ca]);
    assert_eq!((code, fs::read(&file).unwrap()), (0, fs::read(component("webpage")).unwrap()));
    // SG-8
    let told = shop.capstan(&["inspect", &file, "--against", &reference, "--ca", &ca]);
    assert_eq!(told, (0, "no difference\n".to_owned()));
    let manifest = shop.folder.path().join("operator.yaml");
    fs::write(&manifest, shop.manifest()).unwrap();
    let manifest = manifest.display().to_string();
    let (code, said) = shop.capstan(&["check", "-m", &manifest]);
    assert!(code == 0 && said.contains("which was not looked at: --pull has it pulled"), "{said}");
    let (code, said) = shop.capstan(&["check", "-m", &manifest, "--pull"]);
    assert!(code == 0 && !said.contains("--pull"), "{said}");
    // Whoever is not logged in, or does not trust the certificate, has nothing.
    fs::remove_file(shop.registry.docker_config().join("config.json")).unwrap();
    let (code, said) = shop.capstan(&["check", "-m", &manifest, "--pull"]);
    assert!(code == 1 && said.contains("it wants to know who asks (401)"), "{said}");
    let (code, said) = shop.capstan(&["pull", &reference, "-o", &file]);
    assert!(code == 1 && said.contains("TLS with https://127.0.0.1"), "{said}");
}

#[test]
fn a_registry_that_wants_tokens_is_shown_those_that_its_service_issues_for_what_is_to_be_done() {
    // OC-4
    let mut shop = Shop::at("tokens", Registry::start_with_tokens());
    let digest = shop.push(OLD);
    let [key, public] = shop.new_key("key");
    shop.sign(&key);
    shop.key = Some(fs::read_to_string(&public).unwrap());
    let both = "user repository:team/webpage:pull,push";
    let asked = shop.registry.asked();
    assert!(!asked.is_empty() && asked.iter().all(|asked| asked == both), "{asked:?}");
    let daemon = shop.daemon();
    daemon.await_plugin("webpage", "active", 1);
    // Who only reads asks for no more than that.
    let asked = shop.registry.asked().split_off(asked.len());
    assert!(asked.contains(&"user repository:team/webpage:pull".to_owned()) && !asked.contains(&both.to_owned()));
    let page = json!({ "spec": { "html": "<html>1</html>" } });
    shop.place.create("sample.capstan.dev/v1", "WebPage", &shop.place.pages(), "page", page);
    shop.await_image(OLD);
    let moved = shop.push(NEW);
    assert_ne!(moved, digest);
    shop.sign(&key);
    shop.await_image(NEW);
    // Its service decides what is accessible, and to whom.
    let (file, ca) = (component("webpage").display().to_string(), shop.ca());
    let elsewhere = format!("{}/other/webpage:1", shop.registry.address());
    let (code, said) = shop.capstan(&["push", &file, &elsewhere, "--ca", &ca]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("other/webpage") && said.contains("(401)"), "{said}");
    let wrong = shop.registry.login().replace(&BASE64_STANDARD.encode("user:pass"), &BASE64_STANDARD.encode("user:no"));
    fs::write(shop.registry.docker_config().join("config.json"), wrong).unwrap();
    let (code, said) = shop.capstan(&["inspect", &shop.reference(), "--ca", &ca]);
    assert!(code == 1 && said.contains("where it sends those who ask: ") && said.contains("(401)"), "{said}");
}

/// Sends a request as any client of registries does, and returns the answer with its head.
fn curl(registry: &Registry, path: &str, arguments: &[&str]) -> (String, Vec<u8>) {
    let url = if path.starts_with('/') { format!("https://{}{path}", registry.address()) } else { path.to_owned() };
    let mut command = Command::new("curl");
    command.args(["-sS", "--fail", "-i", "--noproxy", "*", "-u", "user:pass", "--cacert"]);
    command.arg(registry.certificate()).args(arguments).arg(url);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stderr));
    let answer = output.stdout;
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    (String::from_utf8_lossy(&answer[..end]).into_owned(), answer[end + 4..].to_vec())
}

#[test]
fn another_client_reads_what_was_pushed_and_what_it_pushes_is_pulled() {
    // OC-2, OC-3
    const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
    let shop = Shop::new("registry");
    let (registry, ca) = (&shop.registry, shop.ca());
    let pushed = shop.push(OLD);
    let accept = format!("accept: {MANIFEST}");
    let (_, manifest) = curl(registry, "/v2/team/webpage/manifests/1", &["-H", &accept]);
    assert_eq!(Digest::sha256(&manifest).to_string(), pushed);
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let layer = &manifest["layers"][0];
    assert_eq!((&layer["mediaType"], &manifest["layers"][1]), (&json!("application/wasm"), &Value::Null));
    let blob = format!("/v2/team/webpage/blobs/{}", layer["digest"].as_str().unwrap());
    assert!(curl(registry, &blob, &[]).1 == fs::read(component("webpage")).unwrap());

    // As others push: without Capstan's annotations, and with a config of their own.
    let put = |bytes: &[u8]| {
        let file = shop.folder.path().join("part");
        fs::write(&file, bytes).unwrap();
        let (head, _) = curl(registry, "/v2/others/webpage/blobs/uploads/", &["-X", "POST", "-d", ""]);
        let place = head
            .lines()
            .find_map(|line| Some(line.split_once(": ")?.1).filter(|_| line.to_lowercase().starts_with("location")));
        let digest = Digest::sha256(bytes).to_string();
        let url = format!("{}&digest={digest}", place.unwrap());
        let data = format!("@{}", file.display());
        curl(registry, &url, &["-X", "PUT", "-H", "content-type: application/octet-stream", "--data-binary", &data]);
        json!({ "digest": digest, "size": bytes.len() })
    };
    let part = |media_type: &str, bytes: &[u8]| {
        let mut part = put(bytes);
        part["mediaType"] = json!(media_type);
        part
    };
    let component = fs::read(component("webpage")).unwrap();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": part("application/vnd.wasm.config.v0+json", br#"{"architecture":"wasm","os":"wasip2"}"#),
        "layers": [part("application/wasm", &component)],
    });
    let kind = format!("content-type: {MANIFEST}");
    curl(
        registry,
        "/v2/others/webpage/manifests/2",
        &["-X", "PUT", "-H", &kind, "--data-binary", &manifest.to_string()],
    );
    let (reference, file) =
        (format!("{}/others/webpage:2", registry.address()), shop.folder.path().join("theirs.wasm"));
    let (code, said) = shop.capstan(&["pull", &reference, "-o", &file.display().to_string(), "--ca", &ca]);
    assert_eq!(code, 0, "{said}");
    assert!(fs::read(&file).unwrap() == component);
}

#[test]
fn a_version_that_is_not_signed_is_not_put_in_place_until_it_is() {
    // SG-1, SG-4, SG-5, SG-7
    let mut shop = Shop::new("signed");
    let ([own, public], [other, other_public]) = (shop.new_key("own"), shop.new_key("other"));
    shop.key = Some(fs::read_to_string(&public).unwrap());
    let first = shop.push(OLD);
    shop.sign(&own);
    let page = json!({ "spec": { "html": "<html>1</html>" } });
    shop.place.create("sample.capstan.dev/v1", "WebPage", &shop.place.pages(), "page", page);
    let daemon = shop.daemon();
    shop.await_image(OLD);
    let plugin = daemon.await_plugin("webpage", "active", 1);
    assert_eq!(plugin["registry"]["signed_by"].as_array().unwrap().len(), 1, "{plugin}");
    // One that nobody has signed, and then somebody else.
    shop.push(NEW);
    shop.sign(&other);
    wait::until_ok(LATER, "the signature to be missed", || {
        let plugin = daemon.plugin("webpage").unwrap();
        let problem = plugin["registry"]["problem"].as_str().unwrap_or_default();
        if problem.contains("found one by another key") { Ok(()) } else { Err(plugin.to_string()) }
    })
    .unwrap();
    let plugin = daemon.plugin("webpage").unwrap();
    assert_eq!((&plugin["state"], &plugin["registry"]["digest"]), (&json!("outdated"), &json!(first)));
    assert_eq!(daemon.count("capstan_plugin_unsigned", "plugin=\"webpage\""), 1);
    let (reference, ca) = (shop.reference(), shop.ca());
    let verify = |key: &str| shop.capstan(&["verify", "--key", key, &reference, "--ca", &ca]);
    let (code, said) = verify(&public);
    assert!(code == 1 && said.contains("it is not signed: expected a signature by the key of --key"), "{said}");
    assert_eq!(verify(&other_public).0, 0);
    let manifest = shop.folder.path().join("operator.yaml");
    fs::write(&manifest, shop.manifest()).unwrap();
    let (code, said) = shop.capstan(&["check", "-m", &manifest.display().to_string(), "--pull"]);
    assert!(code == 1 && said.contains("it is not signed"), "{said}");
    shop.sign(&own);
    daemon.await_plugin("webpage", "active", 2);
    shop.await_image(NEW);
    assert!(verify(&public).1.contains(&format!(" as {}/team/webpage", shop.registry.address())));
    // What was signed starts without the registry.
    shop.registry.stop();
    daemon.kill();
    shop.daemon().await_plugin("webpage", "active", 1);
}

#[test]
fn cosign_verifies_what_capstan_has_signed_and_capstan_what_cosign_has_in_both_formats() {
    // SG-1, SG-2, SG-3
    let shop = Shop::new("cosign");
    let ([own, public], [other, other_public]) = (shop.new_key("own"), shop.new_key("other"));
    let digest = shop.push(OLD);
    shop.sign(&own);
    let exact = format!("{}@{digest}", shop.reference().strip_suffix(":1").unwrap());
    let tools = cluster::prepare(&BTreeSet::from([Tool::Cosign]), &cluster::tools::to_stderr).unwrap();
    let cosign = |arguments: &[&str]| {
        let mut command = Command::new(tools.path(Tool::Cosign).unwrap());
        command.args(arguments).env("DOCKER_CONFIG", shop.registry.docker_config()).env("COSIGN_PASSWORD", "");
        let output = command.env("HOME", shop.folder.path()).current_dir(shop.folder.path()).output().unwrap();
        (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let ca = shop.ca();
    let verify = |key: &str| {
        let known = ["--insecure-ignore-tlog=true", "--registry-cacert", &ca, &exact];
        cosign(&[&["verify", "--key", key][..], &known].concat())
    };
    let (good, said) = verify(&public);
    assert!(good && said.contains(&digest), "{said}");
    let (good, said) = verify(&other_public);
    assert!(!good, "{said}");
    let (good, said) = cosign(&["import-key-pair", "--key", &other, "--output-key-prefix", "theirs"]);
    assert!(good, "{said}");
    for (tag, format) in [("1", &[][..]), ("2", &["--new-bundle-format=false"])] {
        // Another digest each time, which nobody has signed yet.
        let digest = shop.push(if tag == "1" { NEW } else { "nginx:1.31" });
        let exact = format!("{}@{digest}", shop.reference().strip_suffix(":1").unwrap());
        let found = || shop.capstan(&["verify", "--key", &other_public, &exact, "--ca", &ca]);
        let (code, said) = found();
        assert!(code == 1 && said.contains("it is not signed"), "{said}");
        let keys = ["sign", "-y", "--key", "theirs.key", "--use-signing-config=false", "--tlog-upload=false"];
        let (good, said) = cosign(&[&keys[..], format, &["--registry-cacert", &ca, &exact]].concat());
        assert!(good, "{said}");
        let (code, said) = found();
        assert!(code == 0 && said.contains("signed by sha256:"), "{format:?}: {said}");
    }
}

#[test]
fn what_was_signed_is_carried_in_a_file_to_a_registry_that_is_closed_and_verifies_there() {
    // LY-1, LY-2, LY-3, LY-4
    let (mut shop, closed) = (Shop::new("carried"), Registry::start());
    let ([own, public], [other, _]) = (shop.new_key("own"), shop.new_key("other"));
    let digest = shop.push(OLD);
    shop.sign(&own);
    shop.sign(&other);
    let (reference, ca) = (shop.reference(), shop.ca());
    let file = shop.folder.path().join("webpage.tar").display().to_string();
    let (code, said) = shop.capstan(&["save", &reference, "-o", &file, "--ca", &ca]);
    let first = format!("{reference}@{digest}\n  with its signatures: 2 manifests\n");
    assert_eq!((code, said), (0, first));
    let again = shop.folder.path().join("again.tar").display().to_string();
    assert_eq!(shop.capstan(&["save", &reference, "-o", &again, "--ca", &ca]).0, 0);
    assert_eq!(fs::read(&file).unwrap(), fs::read(&again).unwrap());
    // From here on, nobody reaches where it comes from.
    shop.registry.stop();
    let ca = closed.certificate().display().to_string();
    let prefix = format!("{}/mirror", closed.address());
    let there = format!("{prefix}/team/webpage:1");
    let at = |arguments: &[&str]| capstan_at(&closed, &[arguments, &["--ca", &ca]].concat());
    let broken = shop.folder.path().join("broken.tar").display().to_string();
    let mut bytes = fs::read(&file).unwrap();
    let at_module = bytes.windows(4).position(|bytes| bytes == b"\0asm").unwrap();
    bytes[at_module + 1000] ^= 1;
    fs::write(&broken, bytes).unwrap();
    let (code, said) = at(&["load", &broken, &prefix]);
    assert!(code == 1 && said.contains("what is in it as sha256:"), "{said}");
    assert!(at(&["inspect", &there]).1.contains("it does not have the manifest (404)"));
    let (code, said) = at(&["load", &file, &prefix]);
    assert!(code == 0 && said.starts_with(&format!("{there}@{digest}\n")), "{said}");
    let name = reference.strip_suffix(":1").unwrap();
    assert!(said.contains(&format!("signedAs: [{name}] permits")), "{said}");
    // The signature says the name that it had.
    let (code, said) = at(&["verify", "--key", &public, &there]);
    assert!(code == 1 && said.contains(&format!("found one for the name {name}")), "{said}");
    let (code, said) = at(&["verify", "--key", &public, &there, "--signed-as", name]);
    assert!(code == 0 && said.contains("signed by sha256:"), "{said}");
    let to = format!("{}/other:2", closed.address());
    let (code, said) = at(&["load", &file, "--to", &to]);
    assert!(code == 0 && said.starts_with(&format!("{to}@{digest}\n")), "{said}");
    let pulled = shop.folder.path().join("pulled.wasm").display().to_string();
    assert_eq!(at(&["pull", &to, "-o", &pulled]).0, 0);
    assert_eq!(fs::read(&pulled).unwrap(), fs::read(component("webpage")).unwrap());
}
