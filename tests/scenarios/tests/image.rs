//! The container image, run as a container runtime runs it for a pod: its user, its root file system and nothing else of the
//! machine, read-only.
//!
//! There is no container runtime here, only what one does: a mount namespace, a root of its own, another user. Whoever is not
//! root gets both by a user namespace.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use cluster::wait;
use scenarios::{Place, SOON, component};
use serde_json::{Value, json};

/// Names the archive of the image.
const IMAGE: &str = "CAPSTAN_IMAGE";
/// What running the image takes.
const POWERS: &str =
    "running the image takes a mount namespace, so root or a kernel that lets others have user namespaces";
/// The user of the image and of the chart.
const USER: u32 = 65532;
/// Where the daemon finds manifests, its folder for compiled code, and who it is.
const KEY: &str = "etc/capstan/key";
const OPERATORS: &str = "etc/capstan/operators";
const CACHE: &str = "var/cache/capstan";
const ACCOUNT: &str = "var/run/secrets/kubernetes.io/serviceaccount";
/// The variables of the image, which its containers have unless they say otherwise.
pub(super) const ENVIRONMENT: [(&str, &str); 6] = [
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("CAPSTAN_MANIFESTS", "/etc/capstan/operators"),
    ("CAPSTAN_CODE_CACHE", "/var/cache/capstan/code"),
    ("CAPSTAN_LISTEN", "[::]:8080"),
    ("CAPSTAN_ADDRESS", "127.0.0.1:8081"),
    ("MIMALLOC_ALLOW_THP", "0"),
];
/// The devices that a container gets, as far as a program needs them.
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// In a mount namespace: makes the folder `$1` a root file system that nothing can be written to but the folder `$2`, and
/// runs the rest of the line there. The user is another one from then on: by the kernel where we are root, else by a user
/// namespace below that of the mounts, so that it has no power over them.
const CONTAIN: &str = r#"
set -eu
root=$1 cache=$2 user=$3 outside=$4; shift 4
mount --bind "$root" "$root"
mount --rbind /proc "$root/proc"
for device in null zero full random urandom; do mount --bind "/dev/$device" "$root/dev/$device"; done
mount --bind "$cache" "$root/var/cache/capstan"
mount -o remount,bind,ro "$root"
if [ "$outside" = 0 ]; then exec chroot --userspec="$user:$user" --groups= "$root" "$@"; fi
exec unshare --user --map-user="$user" --map-group="$user" --keep-caps \
	setpriv --inh-caps=-all,+sys_chroot --ambient-caps=-all,+sys_chroot chroot "$root" "$@"
"#;

/// An image, unpacked.
struct Image {
    /// What it says about itself: `User`, `Env`, `Entrypoint` and so on.
    config: Value,
    folder: tempfile::TempDir,
}

/// A daemon out of the image. Dropping it ends it.
struct Container {
    child: Child,
    log: PathBuf,
}

// === impl Image ===

impl Image {
    /// Unpacks the archive as a container runtime does.
    fn unpacked() -> Self {
        let Some(archive) = std::env::var_os(IMAGE).map(PathBuf::from) else {
            panic!(
                "{IMAGE} is not set: run `cargo xtask test --only image`, or set it to what `cargo xtask image` has written"
            )
        };
        let folder = tempfile::tempdir().unwrap();
        let oci = folder.path().join("oci");
        unpack(&archive, &oci);
        let read = |path: &Path| -> Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() };
        let blob = |of: &Value| oci.join("blobs").join(of["digest"].as_str().unwrap().replace(':', "/"));
        let index = read(&oci.join("index.json"));
        let manifest = read(&blob(&index["manifests"][0]));
        let config = read(&blob(&manifest["config"]))["config"].take();
        for layer in manifest["layers"].as_array().unwrap() {
            unpack(&blob(layer), &folder.path().join("root"));
        }
        Self { config, folder }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// Returns the folder that outlives the container.
    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    /// Writes a file of a volume.
    fn write(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let file = self.root().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, bytes).unwrap();
    }

    /// Lets the daemon read a file of a volume, and nobody else, as the kubelet does.
    fn share(&self, path: &str) {
        let file = self.root().join(path);
        fs::set_permissions(&file, Permissions::from_mode(0o440)).unwrap();
        if me() == 0 {
            std::os::unix::fs::chown(&file, None, Some(USER)).unwrap();
        }
    }

    /// Makes what a runtime mounts upon.
    fn prepare(&self) {
        let (root, cache) = (self.root(), self.cache());
        for folder in ["proc", "dev", CACHE] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for device in DEVICES {
            File::create(root.join("dev").join(device)).unwrap();
        }
        // As the kubelet makes an empty folder for a pod.
        fs::create_dir_all(&cache).unwrap();
        fs::set_permissions(&cache, Permissions::from_mode(0o777)).unwrap();
    }

    /// Returns the image's command with these arguments, or with its own if there are none, and these variables.
    fn command(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
        self.prepare();
        let words = |field: &str| {
            let words = self.config[field].as_array().unwrap();
            words.iter().map(|word| word.as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let me = me();
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private"]);
        if me != 0 {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["sh", "-c", CONTAIN, "contain"]);
        command.arg(self.root()).arg(self.cache());
        command.args([self.user(), &me.to_string()]);
        command.args(words("Entrypoint"));
        match arguments {
            [] => command.args(words("Cmd")),
            given => command.args(given),
        };
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.envs(words("Env").iter().filter_map(|word| word.split_once('=')));
        command.envs(variables.iter().copied()).current_dir("/");
        command.stdin(Stdio::null());
        command
    }

    fn user(&self) -> &str {
        let user = self.config["User"].as_str().unwrap();
        user.split(':').next().unwrap()
    }

    /// Starts the daemon.
    fn run(&self, variables: &[(&str, &str)]) -> Container {
        let log = self.folder.path().join("log");
        let mut command = self.command(&[], variables);
        let output = File::create(&log).unwrap();
        command.stdout(Stdio::null()).stderr(output);
        let child = command.spawn().unwrap();
        Container { child, log }
    }
}

/// Unpacks a tar file, compressed or not, into a new folder.
fn unpack(archive: &Path, folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(archive).arg("-C").arg(folder);
    let output = tar.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "unpack {}: {said}", archive.display());
}

/// Returns the paths of all files below a folder, and of links and folders.
fn tree(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let below = |entry: fs::DirEntry| {
        let path = entry.path();
        let inner = if entry.file_type().unwrap().is_dir() { tree(&path) } else { BTreeSet::new() };
        inner.into_iter().chain([path])
    };
    entries.flat_map(below).collect()
}

// === impl Container ===

impl Container {
    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn lines(&self) -> Vec<Value> {
        self.log().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits until the daemon is ready.
    fn until_ready(&mut self) {
        let ready = wait::until_done(SOON, "the daemon to be ready", || {
            if let Some(status) = self.child.try_wait().unwrap() {
                let why = anyhow::anyhow!("it ended with {status} ({POWERS}):\n{}", self.log());
                return wait::Look::Never(why);
            }
            match self.probe() {
                Some(answer) if answer.starts_with("HTTP/1.0 200 ") || answer.starts_with("HTTP/1.1 200 ") => {
                    wait::Look::Done(())
                }
                Some(answer) => wait::Look::NotYet(answer),
                None => wait::Look::NotYet(self.log()),
            }
        });
        ready.unwrap();
    }

    /// Returns what `/readyz` answers, once it is served.
    fn probe(&self) -> Option<String> {
        let lines = self.lines();
        let serving = lines.iter().find(|line| line["message"] == "serving probes and metrics")?;
        let mut stream = TcpStream::connect(serving["address"].as_str()?).ok()?;
        write!(stream, "GET /readyz HTTP/1.0\r\nhost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        Some(answer)
    }

    /// Returns the values of a field of `/proc/PID/status`.
    fn status(&self, field: &str) -> Vec<String> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.split_whitespace().skip(1).map(str::to_owned).collect()
    }

    /// Sends SIGTERM and waits for the end.
    fn stop(mut self) -> ExitStatus {
        let kill = Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        assert!(kill.success());
        let ended = wait::until(SOON, "the daemon's end", || self.child.try_wait().unwrap());
        ended.unwrap()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = format!("--- log of the daemon\n{}---\n", self.log());
            drop(std::io::stderr().write_all(log.as_bytes()));
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn me() -> u32 {
    fs::metadata("/proc/self").unwrap().uid()
}

#[test]
fn the_image_is_the_daemon_and_nothing_else() {
    let image = Image::unpacked();
    assert_eq!(tree(&image.root()), BTreeSet::from([image.root().join("capstan")]));
    assert_eq!(image.root().join("capstan").metadata().unwrap().mode() & 0o7777, 0o755);
    let version = env!("CARGO_PKG_VERSION");
    let expected = json!({
        "User": "65532:65532",
        "ExposedPorts": { "8080/tcp": {} },
        "Env": ENVIRONMENT.map(|(name, value)| format!("{name}={value}")),
        "Entrypoint": ["/capstan"],
        "Cmd": ["run"],
        "Labels": {
            "org.opencontainers.image.title": "Capstan",
            "org.opencontainers.image.description": "A Kubernetes operator daemon that runs reconcilers as sandboxed WebAssembly components",
            "org.opencontainers.image.licenses": "Apache-2.0",
            "org.opencontainers.image.source": "https://github.com/capstan-dev/capstan",
            "org.opencontainers.image.version": version,
        },
    });
    assert_eq!(image.config, expected);
    let output = image.command(&["version"], &[]).output().unwrap();
    let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert_eq!(said[0].lines().next(), Some(&*format!("capstan {version}")), "{} ({POWERS})", said[1]);
}

#[test]
fn a_daemon_out_of_the_image_reconciles_and_writes_nothing_but_compiled_code() {
    let place = Place::new("image");
    let image = Image::unpacked();
    let manifest = place.sample_manifest("webpage");
    let wasm = component("webpage");
    image.write(&format!("{OPERATORS}/webpage.yaml"), manifest.replace(wasm.to_str().unwrap(), "webpage.wasm"));
    image.write(&format!("{OPERATORS}/webpage.wasm"), fs::read(wasm).unwrap());
    // As a pod's service account, and its secret of the code cache. Components can't reach the pod's own namespace.
    let own = place.cluster.namespace("image-own").unwrap();
    let account = own.service_account("capstan").unwrap();
    let namespace = own.name();
    image.write(KEY, [7; 32]);
    image.share(KEY);
    place.create(
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        &place.namespace.path("rbac.authorization.k8s.io/v1", "rolebindings"),
        "capstan",
        json!({
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "kind": "ServiceAccount", "name": "capstan", "namespace": namespace }],
        }),
    );
    image.write(&format!("{ACCOUNT}/token"), account.token);
    image.write(&format!("{ACCOUNT}/ca.crt"), place.cluster.ca_pem());
    image.write(&format!("{ACCOUNT}/namespace"), namespace);
    let server = place.cluster.url().trim_start_matches("https://").to_owned();
    let (host, port) = server.rsplit_once(':').unwrap();
    image.prepare();
    let before = tree(&image.root());

    let mut daemon = image.run(&[
        ("KUBERNETES_SERVICE_HOST", host),
        ("KUBERNETES_SERVICE_PORT", port),
        ("CAPSTAN_LISTEN", "127.0.0.1:0"),
        ("CAPSTAN_LOG_FORMAT", "json"),
        ("CAPSTAN_CODE_CACHE_KEY_FILE", &format!("/{KEY}")),
    ]);
    daemon.until_ready();
    let me = me();
    let user = if me == 0 { USER } else { me };
    assert_eq!(daemon.status("Uid"), vec![user.to_string(); 4]);
    // In a user namespace `chroot` takes a capability, which is one over that namespace alone.
    let powers = if me == 0 { "0000000000000000" } else { "0000000000040000" };
    assert_eq!(daemon.status("CapEff"), [powers]);
    let html = "<html><head><title>Hello</title></head><body>x</body></html>";
    place.create("sample.capstan.dev/v1", "WebPage", &place.pages(), "site", json!({ "spec": { "html": html } }));
    place.await_object(&place.pages(), "site", "a good status", |page| page["status"]["areWeGood"] == true);
    let map = place.find(&place.config_maps(), "site-html").unwrap();
    assert_eq!(map["data"]["index.html"], html);

    let warnings: Vec<_> = daemon.lines().into_iter().filter(|line| line["level"] != "INFO").collect();
    assert_eq!(warnings, Vec::<Value>::new());
    assert!(daemon.stop().success());
    assert_eq!(tree(&image.root()), before);
    let code: Vec<_> = tree(&image.cache()).into_iter().collect();
    let [folder, compiled] = code.as_slice() else { panic!("{code:?}") };
    assert_eq!((folder, compiled.extension()), (&image.cache().join("code"), Some("cwasm".as_ref())));
}
