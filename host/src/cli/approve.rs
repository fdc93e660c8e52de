//! `capstan approve`: approves the version of an operator that waits, once whoever asks has seen what it wants.

use std::io::{BufRead, IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use capstan_core::operator::approval::{Identity, approval};
use capstan_core::text;
use kube::api::{Api, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Value;

use crate::cli::args::{Approve, Documents, Pin};
use crate::kubeconfig;

/// Who has written it.
const MANAGER: &str = "capstan-approve";

/// A version that waits, as the status of its operator says.
#[derive(Debug, PartialEq, Eq)]
struct Waiting {
    version: Identity,
    difference: Vec<String>,
    /// Where its approval is read, if the status says that: a namespace, and a name.
    place: Option<(String, String)>,
}

/// Approves what waits, and exits with 0 if that is written.
///
/// # Errors
/// If nothing waits, or something else than is meant, or the API server does not answer or take it.
pub async fn run(args: &Approve) -> anyhow::Result<ExitCode> {
    let config = kubeconfig::find(args.kubeconfig.clone(), args.context.clone()).await?;
    let namespace = args.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    let client = kube::Client::try_from(config).context("make a client for the API server")?;
    let (home, own) = home(&namespace, &args.operator);
    let what = || format!("read the operator {own} in namespace {home}");
    let operators = api(&client, home, ("Operator", "operators"));
    let (version, place) = if let Some(version) = named(args)? {
        // That of a team is approved elsewhere than it is. Who may not read it, or has it in a file, says where.
        let found = match operators.get_opt(own).await {
            Err(kube::Error::Api(status)) if status.code == 403 => None,
            found => found.with_context(what)?,
        };
        (version, found.and_then(|operator| place(operator.data.pointer("/status/waiting"))))
    } else {
        let operator = operators.get(own).await.with_context(what)?;
        let Waiting { version, difference, place } = waiting(&args.operator, &operator.data)?;
        meant(&args.digests, &version)?;
        show(&args.operator, &version, &difference, &|plugin| reference(&operator.data, plugin))?;
        (version, place)
    };
    // Whoever may write that status can't have another operator approved.
    let is_its = |name: &str| name == own || name == format!("{home}.{own}");
    anyhow::ensure!(
        place.as_ref().is_none_or(|(_, name)| is_its(name)),
        "the status of the operator {own} in namespace {home} names the approval of another one"
    );
    let (namespace, name) = place.unwrap_or_else(|| (namespace.clone(), args.operator.clone()));
    let object = approval((&namespace, &name), &version, (args.by.as_deref(), args.reason.as_deref()));
    if let Some(format) = args.output.or(args.dry_run.then_some(Documents::Yaml)) {
        let printed = match format {
            Documents::Yaml => serde_yaml::to_string(&object)?,
            Documents::Json => format!("{object:#}\n"),
        };
        std::io::stdout().write_all(printed.as_bytes()).context("write to standard output")?;
        return Ok(ExitCode::SUCCESS);
    }
    if !args.yes && !confirmed(&args.operator)? {
        return Ok(ExitCode::FAILURE);
    }
    let approvals = api(&client, &namespace, ("OperatorApproval", "operatorapprovals"));
    let params = PatchParams { force: true, field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let written = approvals.patch(&name, &params, &Patch::Apply(&object)).await;
    written.with_context(|| format!("approve the operator {name} in namespace {namespace}"))?;
    writeln!(std::io::stdout(), "operatorapproval.capstan.dev/{name} is written in namespace {namespace}")?;
    Ok(ExitCode::SUCCESS)
}

/// Returns in which namespace an operator is, and its name there: the daemon calls that of a team `NAMESPACE.NAME`.
fn home<'a>(namespace: &'a str, operator: &'a str) -> (&'a str, &'a str) {
    operator.split_once('.').unwrap_or((namespace, operator))
}

/// Returns where the approval of what waits is read.
fn place(waiting: Option<&Value>) -> Option<(String, String)> {
    let (namespace, name) = waiting?.get("approval")?.as_str()?.split_once('/')?;
    Some((namespace.to_owned(), name.to_owned()))
}

fn api(client: &kube::Client, namespace: &str, (kind, plural): (&str, &str)) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("capstan.dev", "v1alpha1", kind);
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk_with_plural(&gvk, plural))
}

/// Returns the version that the command line names in full; `None` if it names none.
fn named(args: &Approve) -> anyhow::Result<Option<Identity>> {
    let Some(given) = &args.given else {
        return Ok(None);
    };
    let components = args.digests.iter().map(|Pin { plugin, digest }| {
        let plugin = plugin.as_deref().context("--digest beside --given needs its plugin: PLUGIN=sha256:…")?;
        anyhow::Ok((plugin.into(), digest.clone()))
    });
    Ok(Some(Identity { components: components.collect::<anyhow::Result<_>>()?, given: given.clone() }))
}

/// Returns what waits of an operator.
fn waiting(name: &str, operator: &Value) -> anyhow::Result<Waiting> {
    let status = operator.get("status").unwrap_or(&Value::Null);
    let waiting = status.get("waiting");
    let version = waiting.and_then(Identity::read).with_context(|| {
        let state = status.get("state").and_then(Value::as_str).unwrap_or("not known yet");
        format!("nothing waits for an approval: the state of the operator {name} is {}", text::said(state))
    })?;
    let lines = waiting.and_then(|waiting| waiting.get("difference")?.as_array()).into_iter().flatten();
    let difference = lines.filter_map(Value::as_str).map(|line| text::said(line).into_owned()).collect();
    Ok(Waiting { version, difference, place: place(waiting) })
}

/// Makes sure that what waits has the components that are meant.
fn meant(pins: &[Pin], version: &Identity) -> anyhow::Result<()> {
    for Pin { plugin, digest } in pins {
        let is_it = |name: &str| plugin.as_deref().is_none_or(|plugin| plugin == name);
        if !version.components.iter().any(|(name, found)| is_it(name) && found == digest) {
            let found: Vec<_> = version.components.iter().map(|(name, digest)| format!("{name}={digest}")).collect();
            let found = if found.is_empty() { "no component at all".to_owned() } else { found.join(", ") };
            anyhow::bail!("{digest} does not wait for an approval; what waits has {found}");
        }
    }
    Ok(())
}

/// Returns what an operator says of where the component of a plugin comes from: that has a digest of its own, of the manifest in the registry.
fn reference(operator: &Value, plugin: &str) -> Option<String> {
    let image = operator.pointer("/spec/plugins")?.get(plugin)?.pointer("/component/oci")?.as_str()?;
    Some(text::said(image).into_owned())
}

/// Shows what waits, where it does not get into what is printed for others.
fn show(
    operator: &str,
    version: &Identity,
    difference: &[String],
    reference: &dyn Fn(&str) -> Option<String>,
) -> anyhow::Result<()> {
    let mut shown = format!("operator {operator} waits with:\n");
    shown.extend(difference.iter().map(|line| format!("  {line}\n")));
    shown.extend(version.components.iter().map(|(plugin, digest)| {
        let from = reference(plugin).map(|image| format!(", out of {image}")).unwrap_or_default();
        format!("component of plugin {plugin}: {digest}{from}\n")
    }));
    shown.extend([format!("given: {}\n", version.given)]);
    std::io::stderr().write_all(shown.as_bytes()).context("write to standard error")
}

/// Asks on the terminal; without one, nobody has said yes.
fn confirmed(operator: &str) -> anyhow::Result<bool> {
    let mut terminal = std::io::stderr();
    if !std::io::stdin().is_terminal() || !terminal.is_terminal() {
        writeln!(terminal, "error: there is no terminal to ask on; say --yes to approve it")?;
        return Ok(false);
    }
    write!(terminal, "Approve this version of {operator}? [y/N] ")?;
    terminal.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).context("read the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use capstan_core::registry::Digest;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_operator_of_a_team_is_found_where_it_is() {
        // CE-2
        assert_eq!(home("capstan", "pages"), ("capstan", "pages"));
        assert_eq!(home("capstan", "team-a.pages"), ("team-a", "pages"));
        assert_eq!(home("team-a", "pages"), ("team-a", "pages"));
    }

    #[test]
    fn only_what_waits_is_approved_and_only_with_the_components_that_are_meant() {
        // AP-3
        let [web, other] = [b"web", b"abc"].map(|text| Digest::sha256(text));
        let waiting_now = json!({ "components": { "web": web.to_string() }, "given": other.to_string(), "difference": ["a (more)", "b\u{1b}"], "approval": "capstan/team-a.pages" });
        let operator = json!({ "status": { "state": "WaitingForApproval", "waiting": waiting_now } });
        let Waiting { version, difference, place } = waiting("pages", &operator).unwrap();
        let from = json!({ "spec": { "plugins": { "web": { "component": { "oci": "ghcr.io/org/web:1\u{1b}" } }, "db": {} } } });
        assert_eq!(reference(&from, "web").as_deref(), Some(r"ghcr.io/org/web:1\u{1b}"));
        assert_eq!(["db", "x"].map(|plugin| reference(&from, plugin)), [None, None]);
        // CE-2: whoever asks for that of a team writes where the daemon reads.
        assert_eq!(place, Some(("capstan".to_owned(), "team-a.pages".to_owned())));
        assert_eq!(difference, ["a (more)", r"b\u{1b}"]);
        let pin =
            |plugin: Option<&str>, digest: &Digest| Pin { plugin: plugin.map(str::to_owned), digest: digest.clone() };
        for (pins, expected) in [
            (vec![], ""),
            (vec![pin(None, &web)], ""),
            (vec![pin(Some("web"), &web)], ""),
            (vec![pin(Some("db"), &web)], "does not wait for an approval; what waits has web=sha256:"),
            (vec![pin(None, &web), pin(None, &other)], "does not wait for an approval; what waits has web=sha256:"),
        ] {
            let found = meant(&pins, &version).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{pins:?}: {found}");
        }
        for (operator, state) in [(json!({ "status": { "state": "Active" } }), "Active"), (json!({}), "not known yet")]
        {
            let error = waiting("pages", &operator).unwrap_err().to_string();
            assert_eq!(error, format!("nothing waits for an approval: the state of the operator pages is {state}"));
        }
    }
}
