//! Runs a pod's container as a local process, with just what the pod says: arguments, environment, volumes, user, service account.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cluster::Cluster;
use scenarios::{Daemon, capstan};
use serde_json::{Value, json};

use crate::image::ENVIRONMENT;

/// Where a pod's service account is found.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The entry point of the image.
const PROGRAM: &str = "/capstan";

/// How a container is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// In a root of its own: everything is where the pod says, and the cluster is found as in a pod.
    Root,
    /// Where namespaces of users are forbidden: with paths below a folder, and the service account in a kubeconfig.
    Folder,
}

/// A pod: its specification, on a control plane.
pub(super) struct Pod<'a> {
    cluster: &'a Cluster,
    namespace: &'a str,
    spec: Value,
}

impl Way {
    /// Returns the most honest way that this machine permits.
    pub(super) fn best() -> Self {
        static BEST: OnceLock<Way> = OnceLock::new();
        *BEST.get_or_init(|| {
            let mut command = Command::new("unshare");
            command.args(["--user", "--map-root-user", "--mount", "true"]);
            let permitted = command.output().is_ok_and(|output| output.status.success());
            if permitted { Self::Root } else { Self::Folder }
        })
    }
}

impl<'a> Pod<'a> {
    /// Returns the pod with this specification.
    pub(super) fn new(cluster: &'a Cluster, namespace: &'a str, spec: &Value) -> Self {
        Self { cluster, namespace, spec: spec.clone() }
    }

    /// Starts the container as a daemon and waits until it serves its probes. One argument is another: it listens at a free
    /// port of this machine alone.
    pub(super) fn daemon(&self, way: Way) -> Daemon {
        let folder = tempfile::tempdir().unwrap();
        let command = self.command(way, folder.path());
        Daemon::spawn(command, folder)
    }

    /// Runs the container to its end.
    pub(super) fn run(&self, way: Way) -> Output {
        let folder = tempfile::tempdir().unwrap();
        let mut command = self.command(way, folder.path());
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn command(&self, way: Way, folder: &Path) -> Command {
        let root = folder.join("root");
        let writable = self.volumes(&root);
        let account = self.account(&root);
        let mut command = match way {
            Way::Root => self.contained(&root, &writable),
            Way::Folder => Command::new(capstan()),
        };
        let below = |text: &str| match way {
            Way::Root => text.to_owned(),
            Way::Folder => self.below(&root, text),
        };
        let container = self.container();
        for argument in list(&container["args"]) {
            let argument = argument.as_str().unwrap();
            // At a free port, too: where it listens.
            if argument.starts_with("--admin-listen=") {
                continue;
            }
            command.arg(if argument.starts_with("--listen=") {
                "--listen=127.0.0.1:0".to_owned()
            } else {
                below(argument)
            });
        }
        command.env_clear();
        command.envs(ENVIRONMENT.map(|(name, value)| (name, below(value))));
        // What a container runtime and the kubelet add.
        command.env("HOSTNAME", "capstan-0");
        let server = self.cluster.url().trim_start_matches("https://");
        let (host, port) = server.rsplit_once(':').unwrap();
        command.env("KUBERNETES_SERVICE_HOST", host);
        command.env("KUBERNETES_SERVICE_PORT", port);
        for variable in list(&container["env"]) {
            let text = |field: &str| variable[field].as_str().unwrap();
            command.env(text("name"), below(text("value")));
        }
        if way == Way::Folder {
            self.rewrite_manifests(&root);
            if account {
                command.env("KUBECONFIG", self.kubeconfig(&root, folder));
            }
        }
        command
    }

    /// Returns the command that runs the program in a root of its own.
    fn contained(&self, root: &Path, writable: &[String]) -> Command {
        let security = &self.spec["securityContext"];
        assert_eq!(self.container()["securityContext"]["readOnlyRootFilesystem"], true);
        let id = |field: &str| security[field].as_u64().unwrap().to_string();
        fs::copy(capstan(), root.join(PROGRAM.trim_start_matches('/'))).unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chart/pod.sh");
        let mut command = Command::new("unshare");
        command
            .args(["--user", "--map-root-user", "--mount", "sh", script])
            .arg(root)
            .args([id("runAsUser"), id("runAsGroup")])
            .args(writable)
            .args(["--", PROGRAM]);
        command
    }

    fn container(&self) -> &Value {
        &self.spec["containers"][0]
    }

    /// Writes the volumes where they are mounted, and returns the paths that may be written to.
    fn volumes(&self, root: &Path) -> Vec<String> {
        let mut writable = Vec::new();
        for mount in list(&self.container()["volumeMounts"]) {
            let path = mount["mountPath"].as_str().unwrap();
            let volumes = list(&self.spec["volumes"]);
            let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]);
            let volume = volume.unwrap_or_else(|| panic!("no volume for {mount}"));
            assert!(mount["subPath"].is_null(), "what is mounted by subPath never changes: {mount}");
            let folder = below(root, path);
            fs::create_dir_all(&folder).unwrap();
            if volume["emptyDir"].is_object() {
                writable.push(path.to_owned());
            } else {
                project(&folder, &self.files(volume));
                if let Some(mode) = volume["secret"]["defaultMode"].as_u64() {
                    let mode = Permissions::from_mode(u32::try_from(mode).unwrap());
                    for entry in fs::read_dir(folder.join("..data")).unwrap() {
                        fs::set_permissions(entry.unwrap().path(), mode.clone()).unwrap();
                    }
                }
            }
        }
        writable
    }

    /// Returns the files of a volume, by name.
    fn files(&self, volume: &Value) -> Vec<(String, Vec<u8>)> {
        let (plural, source, name) = if volume["configMap"].is_object() {
            ("configmaps", &volume["configMap"], &volume["configMap"]["name"])
        } else {
            assert!(volume["secret"].is_object(), "a volume that can't be played here: {volume}");
            ("secrets", &volume["secret"], &volume["secret"]["secretName"])
        };
        let name = name.as_str().unwrap();
        let path = format!("/api/v1/namespaces/{}/{plural}/{name}", self.namespace);
        let object = match self.cluster.api().find(&path).unwrap() {
            Some(object) => object,
            None if source["optional"] == true => json!({}),
            None => panic!("{name}, which the pod mounts, is missing"),
        };
        let mut files = Vec::new();
        for (key, text) in object["data"].as_object().into_iter().flatten() {
            let text = text.as_str().unwrap();
            let bytes = match plural {
                "secrets" => STANDARD.decode(text).unwrap(),
                _ => text.as_bytes().to_vec(),
            };
            files.push((key.clone(), bytes));
        }
        for (key, text) in object["binaryData"].as_object().into_iter().flatten() {
            files.push((key.clone(), STANDARD.decode(text.as_str().unwrap()).unwrap()));
        }
        if let Some(items) = source["items"].as_array() {
            let place = |key: &str| items.iter().find(|item| item["key"] == key);
            files.retain(|(key, _)| place(key).is_some());
            for (key, _) in &mut files {
                *key = place(key).unwrap()["path"].as_str().unwrap().to_owned();
            }
        }
        files
    }

    /// Writes what the service account is known by, if the pod asks for it.
    fn account(&self, root: &Path) -> bool {
        if self.spec["automountServiceAccountToken"] == false {
            return false;
        }
        let name = self.spec["serviceAccountName"].as_str().unwrap();
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/{name}/token", self.namespace);
        let reply = self.cluster.api().create(&path, &json!({ "spec": {} })).unwrap();
        let token = reply["status"]["token"].as_str().unwrap();
        let folder = below(root, ACCOUNT);
        fs::create_dir_all(&folder).unwrap();
        let files = [("token", token), ("ca.crt", self.cluster.ca_pem()), ("namespace", self.namespace)];
        project(&folder, &files.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())));
        true
    }

    // === Way::Folder ===

    /// Puts the paths of mounts in a text below the root.
    fn below(&self, root: &Path, text: &str) -> String {
        let mut text = text.to_owned();
        for mount in list(&self.container()["volumeMounts"]) {
            let path = mount["mountPath"].as_str().unwrap();
            text = text.replace(path, below(root, path).to_str().unwrap());
        }
        text
    }

    fn rewrite_manifests(&self, root: &Path) {
        for entry in fs::read_dir(below(root, "/etc/capstan/operators")).unwrap() {
            let file = entry.unwrap().path();
            if file.extension().is_some_and(|extension| extension == "yaml") {
                let text = self.below(root, &fs::read_to_string(&file).unwrap());
                fs::write(&file, text).unwrap();
            }
        }
    }

    fn kubeconfig(&self, root: &Path, folder: &Path) -> std::path::PathBuf {
        let account = below(root, ACCOUNT);
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "pod",
            "clusters": [{ "name": "pod", "cluster": { "server": self.cluster.url(), "certificate-authority": account.join("ca.crt") } }],
            "users": [{ "name": "pod", "user": { "tokenFile": account.join("token") } }],
            "contexts": [{ "name": "pod", "context": { "cluster": "pod", "user": "pod", "namespace": self.namespace } }],
        });
        let file = folder.join("kubeconfig");
        fs::write(&file, config.to_string()).unwrap();
        file
    }
}

/// Writes files as the kubelet does: behind a link, which a change would turn to another folder.
fn project(folder: &Path, files: &[(String, Vec<u8>)]) {
    let data = folder.join("..2026_01_02");
    fs::create_dir(&data).unwrap();
    symlink("..2026_01_02", folder.join("..data")).unwrap();
    for (name, bytes) in files {
        fs::write(data.join(name), bytes).unwrap();
        symlink(Path::new("..data").join(name), folder.join(name)).unwrap();
    }
}

fn below(root: &Path, path: &str) -> std::path::PathBuf {
    root.join(path.trim_start_matches('/'))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
