//! Plays how an operator gets into a cluster for good: the section "Ship it" of docs/first-hour.md, beside a registry that is there for it alone.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::{fences, quoted};

/// The section.
pub(super) const TITLE: &str = "Ship it";
/// Where the daemon lives.
pub(super) const NAMESPACE: &str = "capstan";

/// What the script says of how many seconds it has taken.
pub(super) const TOOK: &str = "- shipped, in seconds: ";

/// What the page has for what is different elsewhere: the registry's address, and the component.
const ADDRESS: &str = "REGISTRY=127.0.0.1:5000";
const COMPONENT: &str = "COMPONENT=operator.wasm";
/// The command that goes on until it is told to end.
const DAEMON: &str = "capstan run ";

/// Why versions are refused, as their conditions say.
const REFUSALS: [&str; 2] =
    ["it is not signed: expected a signature by", "it lacks exports that the manifest needs: `reconciler`"];

/// The registry in place of that in a container. What the page says in words beside `docker stop` is done there, too. The first version is the one
/// that the page has built before; what `capstan dev` has built later is the next one.
const PROLOGUE: &str = r#"begun=$SECONDS
says() { kubectl get greeting hello -o yaml | grep -- "$1" >/dev/null; }
goes_on() { kubectl delete configmap hello; until_ok kubectl get configmap hello; }
end_daemon() { kill -INT "$daemon"; wait "$daemon"; daemon=; }
docker() {
  case $1 in
    run) "$SERVER" serve "$HOUR/registry.yaml" >"$HOUR/registry.log" 2>&1 & registry=$!; until_ok bash -c ": <>/dev/tcp/$PLACE" ;;
    stop) kill "$registry"; wait "$registry" || true; registry=; end_daemon ;;
  esac
}
cp "$HOUR/first.wasm" "$(component)"
"#;

/// What has to hold after the block that has these words.
const CHECKS: [(&str, &str); 4] = [
    (
        "-f shipped.yaml\nkubectl wait",
        r#"echo '- it makes what is missing, and answers as the first version does'
goes_on
kubectl patch greeting hello --type merge -p 'spec: { greeting: Hello! }'
until_ok says '{name} is missing'
cp "$HOUR/second.wasm" "$COMPONENT"
"#,
    ),
    (
        "/greeting:2)",
        r#"echo '- the primary has heard of the next version'
until_ok says '{name} is awaited'
kubectl patch greeting hello --type merge -p "spec: { greeting: 'Hello, {name}!' }"
kubectl wait --for=condition=Ready --timeout=60s -f example.yaml
"#,
    ),
    ("/greeting:3)", "echo\ngoes_on\n"),
    ("/greeting:4)", "echo\ngoes_on\n"),
];

/// A registry of its own.
pub(super) struct Shop {
    server: String,
    address: String,
}

impl Shop {
    /// Returns one whose settings and components are in a folder, and that does not run yet.
    pub(super) fn new(server: &Path, folder: &Path) -> Result<Self> {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.context("find a free port")?.to_string();
        let data = folder.join("registry");
        let settings = format!(
            "version: 0.1\nstorage: {{ filesystem: {{ rootdirectory: {} }} }}\nhttp: {{ addr: \"{address}\" }}\n",
            data.display()
        );
        fs::write(folder.join("registry.yaml"), settings).context("write the settings of the registry")?;
        Ok(Self { server: server.display().to_string(), address })
    }

    /// Returns a script that says and runs each block of the section, and checks what it has come to.
    pub(super) fn script(&self, section: &str) -> Result<String> {
        let Self { server, address } = self;
        for part in [ADDRESS, COMPONENT] {
            ensure!(section.contains(part), "the section {TITLE} does not say {part}");
        }
        let section = section.replace(ADDRESS, &format!("REGISTRY={address}"));
        let section = section.replace(COMPONENT, "COMPONENT=$(component)");
        let blocks = fences(&section).map(|block| {
            let run = if block.starts_with(DAEMON) {
                format!("{} >>\"$HOUR/daemon.log\" 2>&1 & daemon=$!\n", block.trim_end())
            } else {
                block.to_owned()
            };
            let checks = CHECKS.iter().filter(|(words, _)| block.contains(words)).map(|(_, check)| *check);
            format!("echo '$ {}'\n{run}{}", quoted(block.trim_end()), checks.collect::<String>())
        });
        let place = address.replace(':', "/");
        let first = format!("SERVER='{server}' PLACE={place}\n{PROLOGUE}");
        let last = format!("end_daemon\necho \"{TOOK}$((SECONDS - begun))\"\n");
        Ok(std::iter::once(first).chain(blocks).chain([last]).collect())
    }
}

/// Finds that the conditions said why versions were refused.
pub(super) fn said(output: &[String]) -> Result<()> {
    for refusal in REFUSALS {
        ensure!(output.iter().any(|line| line.contains(refusal)), "no condition has said {refusal:?}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files;
    use crate::workspace::Workspace;

    #[test]
    fn each_check_follows_one_block_of_the_page() {
        let page = files::text(&Workspace::load().unwrap().root.join(super::super::PAGE)).unwrap();
        let section = super::super::section(&page, TITLE).unwrap();
        for (words, _) in CHECKS {
            assert_eq!(fences(section).filter(|block| block.contains(words)).count(), 1, "{words}");
        }
        let folder = tempfile::tempdir().unwrap();
        let shop = Shop::new(Path::new("/usr/bin/registry"), folder.path()).unwrap();
        let script = shop.script(section).unwrap();
        assert_eq!(script.matches("& daemon=$!").count(), 2);
        assert!(!script.contains("127.0.0.1:5000\nexport"), "{script}");
    }
}
