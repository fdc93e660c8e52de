//! Plays the first hour of an author, in each language: the commands of docs/first-hour.md, from an empty folder outside of this repository to an
//! operator that runs on a real API server, and to the one that a daemon takes out of a registry. The README of the new folder has to say the same
//! commands, up to there.

mod shipping;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use bench::clock::Stopwatch;
use cluster::Cluster;

use crate::process::{self, Finished};
use crate::ui::{Task, said};
use crate::workspace::{self, Workspace};
use crate::{files, packages, plugins};

const PAGE: &str = "docs/first-hour.md";
/// The languages, as `capstan init` calls them, with their sections of the page, the file that an author changes, and how sed adds a field to its types.
const LANGUAGES: [(&str, &str, &str, &str); 5] = [
    (
        "rust",
        "In Rust",
        "src/lib.rs",
        r"s|^    /// Who is greeted.|    /// Whether it is said loudly.\n    pub loud: Option<bool>,\n&|",
    ),
    (
        "python",
        "In Python",
        "app.py",
        r#"s|^    def text.*|    loud: bool = False\n    """Whether it is said loudly."""\n\n&|"#,
    ),
    ("javascript", "In JavaScript", "src/operator.js", ""),
    (
        "typescript",
        "In TypeScript",
        "src/operator.ts",
        r"s|^interface Spec {|&\n  /** Whether it is said loudly. */\n  loud?: boolean;|",
    ),
    (
        "go",
        "In Go",
        "main.go",
        r#"s|^type Spec struct {|&\n\t// Whether it is said loudly.\n\tLoud bool `json:"loud,omitempty"`|"#,
    ),
];
/// The section that follows each of them.
const RUN: &str = "Run it";
/// The folder that they all make.
const PROJECT: &str = "greeting";
/// What they all define in the cluster.
const KIND: &str = "greetings.example.com";
/// What `capstan crd` says of a definition that is what the types say.
const TYPED: &str = "crd.yaml: says already what the types say";
/// The command that goes on until it is told to end.
const DAEMON: &str = "capstan dev";

/// Ends the daemon with the script, and shows its log if something has failed. `told` waits until the daemon has said something since the last `mark`,
/// `until_ok` until a command succeeds.
const PROLOGUE: &str = r#"set -eo pipefail
daemon= registry= seen=0
ended() { code=$?; for one in $daemon $registry; do kill "$one"; wait "$one" || true; done; [ $code = 0 ] || cat "$HOUR/daemon.log" 2>/dev/null; exit $code; }
trap ended EXIT
until_ok() { for _ in $(seq 1200); do if "$@" >/dev/null 2>&1; then return 0; fi; [ -z "$daemon" ] || kill -0 "$daemon" || return 1; sleep 0.5; done; echo "never: $*"; return 1; }
mark() { seen=$(wc -c < "$HOUR/daemon.log"); }
gained() { grep -q -- "$1" <(tail -c +$((seen + 1)) "$HOUR/daemon.log"); }
told() { until_ok gained "$1"; }
component() { sed -n 's/.*component: { path: \(.*\) }.*/\1/p' operator.yaml; }
"#;

/// What the page says under "Change it": a change is swapped in, a broken one is shown with its place while the last good version goes on, and the
/// daemon ends at once.
const CHANGES: &str = r#"if [ -n "$FIELD" ]; then
  echo '- the definition says something else than the types'
  mark
  sed -i 's/maxLength: 63/maxLength: 64/' crd.yaml
  told 'v1alpha1: spec.name: found maxLength 64; the types say 63'
  until_ok capstan crd --check
  echo '- a type has one more field'
  cp "$SOURCE" "$HOUR/good"
  mark
  sed -i "$FIELD" "$SOURCE"
  told 'crd.yaml is written anew, as the types have it'
  until_ok sh -c 'kubectl explain greeting.spec.loud | grep -q "Whether it is said loudly"'
  cp "$HOUR/good" "$SOURCE"
  until_ok capstan crd --check
fi
echo '- the source changes'
mark
sed -i 's/{name} is missing/{name} is awaited/' "$SOURCE"
told 'run ok .*there is a new version'
mark
sed -i 's/Hello, {name}!/Hello!/' example.yaml
told 'spec.greeting: {name} is awaited'
cp "$(component)" "$HOUR/second.wasm"
sed -i 's/Hello!/Hello, {name}!/' example.yaml
until_ok kubectl wait --for=condition=Ready -f example.yaml --timeout=1s
echo '- the source is broken'
cp "$SOURCE" "$HOUR/good"
mark
printf '\n) this is no program (\n' >> "$SOURCE"
told 'the last good version goes on'
echo '- and its file and line are told'
gained "$(basename "$SOURCE")[^0-9]\{1,9\}$(wc -l < "$SOURCE")\([^0-9]\|\$\)"
kubectl delete configmap hello
until_ok kubectl get configmap hello
echo '- the manifest names what the component does not have'
cp "$HOUR/good" "$SOURCE"
mark
sed -i 's/          configmap:/          configmaps:/' operator.yaml
told 'configmaps'
told 'the last good version goes on'
kubectl delete configmap hello
until_ok kubectl get configmap hello
sed -i 's/          configmaps:/          configmap:/' operator.yaml
kill -INT "$daemon"
wait "$daemon"
daemon=
if [ -n "$FIELD" ]; then
  echo '- nobody writes the definition anew'
  sed -i 's/maxLength: 63/maxLength: 64/' crd.yaml
  if capstan crd --check > "$HOUR/drift"; then echo 'nothing was found'; exit 1; fi
  grep -q 'v1alpha1: spec.name: found maxLength 64; the types say 63' "$HOUR/drift"
  capstan crd
fi
"#;

/// What the hours of all languages share.
struct Hour<'a> {
    workspace: &'a Workspace,
    cluster: &'a Cluster,
    page: &'a str,
    /// The programs that an author has in the path: `capstan` and `kubectl`.
    programs: &'a Path,
    /// The packages of the SDKs.
    sdk: &'a Path,
    /// The program of the registry.
    registry: &'a Path,
}

/// Plays it in the languages whose name contains the filter; returns what each has written and how it ended.
pub(crate) fn run(
    task: &mut Task,
    workspace: &Workspace,
    (cluster, registry): (&Cluster, &Path),
    filter: &str,
) -> Result<Vec<(&'static str, Finished)>> {
    let languages: Vec<_> = LANGUAGES.into_iter().filter(|(language, ..)| language.contains(filter)).collect();
    if languages.is_empty() {
        return Ok(Vec::new());
    }
    let folder = tempfile::Builder::new().prefix("capstan-first-hour-").tempdir()?;
    let [programs, sdk] = ["bin", "sdk"].map(|name| folder.path().join(name));
    packages::lay_out(task, workspace, &sdk)?;
    files::folder(&programs)?;
    symlink(workspace.daemon(), programs.join("capstan"))?;
    symlink(cluster.kubectl_path(), programs.join("kubectl"))?;
    let before = files::fingerprint(&sdk, &[&sdk])?;
    let _read_only = ReadOnly::new(&sdk)?;
    let page = files::text(&workspace.root.join(PAGE))?;
    let hour = Hour { workspace, cluster, page: &page, programs: &programs, sdk: &sdk, registry };
    let mut hours = Vec::new();
    for (language, title, source, field) in languages {
        let watch = Stopwatch::start();
        let finished = hour.play(task, (title, source, field), &folder.path().join(language))?;
        let shipped = finished.output.iter().find_map(|line| line.strip_prefix(shipping::TOOK)).unwrap_or("?");
        task.announce(&format!("{language}: {}, of which {shipped} s to ship it", said(watch.spent())));
        hours.push((language, finished));
    }
    ensure!(files::fingerprint(&sdk, &[&sdk])? == before, "building has changed the packages of the SDKs");
    Ok(hours)
}

/// A folder that nobody may write to meanwhile, as packages may be installed.
struct ReadOnly<'a>(&'a Path);

impl<'a> ReadOnly<'a> {
    fn new(folder: &'a Path) -> Result<Self> {
        let this = Self(folder);
        this.mode("a-w")?;
        Ok(this)
    }

    fn mode(&self, mode: &str) -> Result<()> {
        let status = Command::new("chmod").args(["-R", mode]).arg(self.0).status().context("run chmod")?;
        ensure!(status.success(), "chmod -R {mode} {} has failed", self.0.display());
        Ok(())
    }
}

impl Drop for ReadOnly<'_> {
    fn drop(&mut self) {
        // Else the folder can't be removed, which is all that is lost.
        drop(self.mode("u+w"));
    }
}

impl Hour<'_> {
    fn play(&self, task: &mut Task, (title, source, field): (&str, &str, &str), home: &Path) -> Result<Finished> {
        files::folder(home)?;
        let told: Vec<&str> = commands(section(self.page, title)?).chain(commands(section(self.page, RUN)?)).collect();
        let namespace = self.cluster.namespace("first-hour")?;
        let shop = shipping::Shop::new(self.registry, home)?;
        let script = script(&told) + &shop.script(section(self.page, shipping::TITLE)?)?;
        let mut shell = self.command("bash", home);
        shell.arg("-c").arg(script).env("KUBECONFIG", self.kubeconfig(task, home, namespace.name())?);
        shell.env("HOUR", home).env("SOURCE", source).env("FIELD", field).env("CAPSTAN_SDK", self.sdk);
        shell.env("CAPSTAN_CODE_CACHE", home.join("code")).env("CAPSTAN_LISTEN", "127.0.0.1:0");
        shell.env("CAPSTAN_COMPONENT_CACHE", home.join("components")).env("DOCKER_CONFIG", home.join("docker"));
        // However busy the machine is, as with a component in Python.
        shell.env("CAPSTAN_COMPILE_TIMEOUT", "10m");
        // The toolchain that is there already.
        shell.env("GOTOOLCHAIN", plugins::go_toolchain(self.workspace)?);
        let finished = process::run(shell, &mut |line| task.at(line.trim()))?;
        self.cluster.kubectl(&["delete", "namespace", "--ignore-not-found", shipping::NAMESPACE])?;
        self.cluster.kubectl(&["delete", "crd", "--ignore-not-found", KIND])?;
        let readme = files::text(&home.join(PROJECT).join("README.md"))?;
        let begun = told.iter().position(|command| command.starts_with("cd ")).map_or(0, |at| at + 1);
        let (_, after) = told.split_at(begun);
        ensure!(
            commands(&readme).eq(after.iter().copied()),
            "{PAGE} and README.md of the new folder differ {}: {after:?}",
            title.to_lowercase()
        );
        ensure!(
            field.is_empty() || !finished.status.success() || finished.output.iter().any(|line| line.contains(TYPED)),
            "crd.yaml of the new folder is not what its types say: `capstan crd` has written another one"
        );
        if finished.status.success() {
            shipping::said(&finished.output)?;
        }
        Ok(finished)
    }

    /// Returns a kubeconfig whose namespace is this one.
    fn kubeconfig(&self, task: &mut Task, home: &Path, namespace: &str) -> Result<PathBuf> {
        let kubeconfig = home.join("kubeconfig");
        fs::copy(self.cluster.admin_kubeconfig(), &kubeconfig).context("copy the kubeconfig")?;
        let mut select = self.command("kubectl", home);
        select.args(["config", "set-context", "--current", "--namespace", namespace]).env("KUBECONFIG", &kubeconfig);
        process::must(task, select, "kubectl config set-context")?;
        Ok(kubeconfig)
    }

    /// Returns a program as it runs for an author: outside of this repository, with what the page asks for in the path.
    fn command(&self, program: &str, folder: &Path) -> Command {
        let own = self.programs.join(program);
        let mut command = Command::new(if own.exists() { own.as_os_str() } else { program.as_ref() });
        workspace::untold(&mut command);
        let path = std::env::var("PATH").unwrap_or_default();
        command.current_dir(folder).env("PATH", format!("{}:{path}", self.programs.display()));
        command.env_remove("CARGO_TARGET_DIR");
        command
    }
}

/// Returns a section of a document, without those below it.
fn section<'a>(document: &'a str, title: &str) -> Result<&'a str> {
    let mut sections = document.split("\n## ").filter_map(|section| section.split_once('\n'));
    let found = sections.find(|(head, _)| *head == title);
    Ok(found.with_context(|| format!("{PAGE} has no section {title}"))?.1)
}

/// Returns the fences of a document that have commands.
fn fences(document: &str) -> impl Iterator<Item = &str> {
    document.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next())
}

/// Returns the commands in the fences of a document, without what it says of them.
fn commands(document: &str) -> impl Iterator<Item = &str> {
    fences(document).flat_map(str::lines).map(|line| line.split(" #").next().unwrap_or(line).trim_end())
}

/// Returns a command as a text of the shell.
fn quoted(command: &str) -> String {
    command.replace('\'', r"'\''")
}

/// Returns a script that says and runs each command until one fails; the daemon goes on beside the others.
fn script(commands: &[&str]) -> String {
    let lines = commands.iter().map(|command| {
        let run = if command.starts_with(DAEMON) {
            let daemon = format!("{command} >\"$HOUR/daemon.log\" 2>&1 & daemon=$!");
            format!("cp \"$(component)\" \"$HOUR/first.wasm\"\n{daemon}\ntold 'run ok '")
        } else {
            (*command).to_owned()
        };
        format!("echo '$ {}'\n{run}\n", quoted(command))
    });
    std::iter::once(PROLOGUE.to_owned()).chain(lines).chain([CHANGES.to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_of_a_document_are_those_in_its_fences() {
        let document = "# A\n\n```sh\nnpm install                  # once\nnpm test\n```\n\nand `x`:\n\n```yaml\na: b\n```\n\n```sh\nls\n```\n";
        assert_eq!(commands(document).collect::<Vec<_>>(), ["npm install", "npm test", "ls"]);
    }

    #[test]
    fn a_section_ends_where_the_next_begins() {
        let document = "# A\n\nx\n\n## B\n\ny\n\n## C\nz\n";
        assert_eq!(section(document, "B").unwrap(), "\ny\n");
        assert!(section(document, "D").is_err());
    }

    #[test]
    fn what_comes_before_is_what_the_test_does_itself() {
        let workspace = Workspace::load().unwrap();
        let page = files::text(&workspace.root.join(PAGE)).unwrap();
        let build = format!("cargo {}", process::typed(workspace.build_daemon().get_args()));
        let before: Vec<&str> = commands(section(&page, "Before").unwrap()).collect();
        assert_eq!(
            before,
            [
                &*build,
                "cargo xtask packages target/sdk",
                "cargo xtask cluster",
                "export PATH=$PWD/target/debug:$PATH",
                "export CAPSTAN_SDK=$PWD/target/sdk"
            ]
        );
    }

    #[test]
    fn the_daemon_runs_beside_what_follows_it() {
        let said = script(&["it's", "capstan dev", "ls"]);
        let expected = "echo '$ it'\\''s'\nit's\necho '$ capstan dev'\ncp \"$(component)\" \"$HOUR/first.wasm\"\ncapstan dev >\"$HOUR/daemon.log\" 2>&1 & daemon=$!\ntold 'run ok '\necho '$ ls'\nls\n";
        let said = said.strip_prefix(PROLOGUE).and_then(|said| said.strip_suffix(CHANGES));
        assert_eq!(said, Some(expected));
    }
}
