//! Decides which kubeconfig leads to the daemon's own cluster, or whether its pod's service account does, and says what is wrong with it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::read;

/// Where a cluster is said.
#[derive(Debug, PartialEq, Eq)]
enum Origin {
    /// In these files, the first of which counts where two say something; those that are missing are left out.
    Files(Vec<PathBuf>),
    /// In the pod.
    Pod,
    /// Nowhere.
    Nowhere,
}

/// Returns how the API server is reached: as the command line says, or else the environment.
///
/// # Errors
/// What is wrong with the kubeconfig, or that there is none.
pub(crate) async fn find(file: Option<PathBuf>, context: Option<String>) -> anyhow::Result<kube::Config> {
    Ok(find_named(file, context).await?.0)
}

/// Returns the same, and the context; `None` in a pod.
///
/// # Errors
/// As for [`find`].
pub(crate) async fn find_named(
    file: Option<PathBuf>,
    context: Option<String>,
) -> anyhow::Result<(kube::Config, Option<String>)> {
    let named = std::env::var_os("KUBECONFIG");
    let usual = std::env::home_dir().map(|home| home.join(".kube/config")).filter(|file| file.exists());
    let in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let files = match origin(file, named.as_deref(), usual, in_pod) {
        Origin::Files(files) => files,
        Origin::Pod if context.is_none() => {
            let config = kube::Config::incluster();
            return Ok((config.map_err(|error| anyhow!("use the service account of the pod: {error}"))?, None));
        }
        Origin::Pod | Origin::Nowhere => bail!(
            "no kubeconfig found; give --kubeconfig, set KUBECONFIG, have ~/.kube/config, or, without --context, run in a pod with a service account"
        ),
    };
    let said = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
    let kubeconfig = read_all(&files)?;
    has_context(&kubeconfig, context.as_deref()).with_context(|| format!("kubeconfig {said}"))?;
    let name = context.clone().or_else(|| kubeconfig.current_context.clone());
    let proxy = proxy_of(&kubeconfig, name.as_deref());
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let mut config = config.map_err(|error| anyhow!("kubeconfig {said}: {error}"))?;
    // That of the environment is for registries (`PX-3`).
    config.proxy_url = config.proxy_url.filter(|_| proxy.is_some());
    Ok((config, name))
}

/// Returns the proxy that a kubeconfig itself names for the cluster of a context.
fn proxy_of(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<String> {
    let context = kubeconfig.contexts.iter().find(|found| Some(found.name.as_str()) == context)?;
    let cluster = &context.context.as_ref()?.cluster;
    let cluster = kubeconfig.clusters.iter().find(|found| found.name == *cluster)?;
    cluster.cluster.as_ref()?.proxy_url.clone().filter(|proxy| !proxy.is_empty())
}

/// Decides where the cluster is said, given the file of the command line, that of the environment, and one at the usual place.
fn origin(given: Option<PathBuf>, named: Option<&OsStr>, usual: Option<PathBuf>, in_pod: bool) -> Origin {
    let named = named.map(|named| std::env::split_paths(named).filter(|path| !path.as_os_str().is_empty()).collect());
    let named: Option<Vec<PathBuf>> = named.filter(|files: &Vec<_>| !files.is_empty());
    match given.map(|file| vec![file]).or(named).or(usual.map(|file| vec![file])) {
        Some(files) => Origin::Files(files),
        None if in_pod => Origin::Pod,
        None => Origin::Nowhere,
    }
}

fn read_all(files: &[PathBuf]) -> anyhow::Result<Kubeconfig> {
    let there: Vec<_> = files.iter().filter(|file| file.exists()).collect();
    let mut all: Option<Kubeconfig> = None;
    // Of several, those that are there count; the error is about the first if none is.
    for file in if there.is_empty() { files.iter().take(1).collect() } else { there } {
        let one = read_one(file).with_context(|| format!("kubeconfig {}", file.display()))?;
        all = Some(match all {
            None => one,
            Some(before) => before.merge(one).map_err(|error| anyhow!("kubeconfig {}: {error}", file.display()))?,
        });
    }
    Ok(all.unwrap_or_default())
}

fn read_one(file: &Path) -> anyhow::Result<Kubeconfig> {
    read::bytes(file, read::TEXT)?;
    Kubeconfig::read_from(file).map_err(|error| anyhow!("{error}"))
}

/// Checks that a kubeconfig has this context, or else the one that it calls the current one.
fn has_context(kubeconfig: &Kubeconfig, context: Option<&str>) -> anyhow::Result<()> {
    let names: Vec<_> = kubeconfig.contexts.iter().map(|known| &*known.name).collect();
    let has = if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
    match context.or(kubeconfig.current_context.as_deref()).filter(|name| !name.is_empty()) {
        Some(name) if names.contains(&name) => Ok(()),
        Some(name) => bail!("found no context `{name}`; {has}"),
        None => bail!("found no `current-context`; give --context ({has})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "
apiVersion: v1
kind: Config
contexts: [{ name: here, context: { cluster: here, user: me } }, { name: there, context: { cluster: here, user: me } }]
clusters: [{ name: here, cluster: { server: \"http://127.0.0.1:1\" } }]
users: [{ name: me, user: {} }]
";

    #[test]
    fn a_proxy_is_that_of_the_kubeconfig_and_none_of_the_environment() {
        // PX-3
        let proxied = CONFIG.replace("1:1\"", "1:1\", proxy-url: \"http://p:1\"");
        for (text, context, expected) in [
            (CONFIG, Some("here"), None),
            (proxied.as_str(), Some("there"), Some("http://p:1")),
            (proxied.as_str(), Some("elsewhere"), None),
            (proxied.as_str(), None, None),
        ] {
            let kubeconfig = Kubeconfig::from_yaml(text).unwrap();
            assert_eq!(proxy_of(&kubeconfig, context).as_deref(), expected);
        }
    }

    #[test]
    fn the_command_line_counts_before_the_environment_the_home_and_the_pod() {
        let files = |names: &[&str]| Origin::Files(names.iter().map(PathBuf::from).collect());
        for (given, named, usual, in_pod, expected) in [
            (Some("a"), Some("b"), Some("c"), true, files(&["a"])),
            (None, Some("b:d"), Some("c"), true, files(&["b", "d"])),
            (None, Some(""), Some("c"), true, files(&["c"])),
            (None, None, Some("c"), true, files(&["c"])),
            (None, Some(":"), None, true, Origin::Pod),
            (None, None, None, false, Origin::Nowhere),
        ] {
            let path = |text: Option<&str>| text.map(PathBuf::from);
            assert_eq!(origin(path(given), named.map(OsStr::new), path(usual), in_pod), expected);
        }
    }

    #[tokio::test]
    async fn what_is_wrong_with_a_kubeconfig_is_said_once_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let file = folder.path().join(name);
            std::fs::write(&file, text).unwrap();
            file
        };
        let (right, wrong) = (write("right", CONFIG), write("wrong", "contexts: 1"));
        let missing = folder.path().join("missing");
        for (file, context, expected) in [
            (&missing, None, "No such file or directory (os error 2)"),
            (&right, Some("nowhere"), "found no context `nowhere`; it has here, there"),
            (&right, None, "found no `current-context`; give --context (it has here, there)"),
            (&wrong, None, "failed to parse kubeconfig YAML"),
        ] {
            let said = find(Some(file.clone()), context.map(str::to_owned)).await.unwrap_err();
            let said = format!("{said:#}");
            let expected = format!("kubeconfig {}: {expected}", file.display());
            assert!(said.starts_with(&expected) && said.matches("os error").count() < 2, "{said}");
        }
        assert!(find(Some(right), Some("there".to_owned())).await.is_ok());
    }

    #[test]
    fn of_several_files_those_that_are_there_count() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (folder.path().join("first"), folder.path().join("second"));
        std::fs::write(&second, CONFIG).unwrap();
        assert_eq!(read_all(&[first.clone(), second]).unwrap().contexts.len(), 2);
        let said = format!("{:#}", read_all(&[first.clone(), first]).unwrap_err());
        assert!(said.contains("first: No such file"), "{said}");
    }
}
