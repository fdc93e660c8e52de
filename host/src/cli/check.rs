//! `capstan check`: finds what is wrong with manifests and components, without a cluster.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use capstan_core::budget::Budget;
use capstan_core::guest::Description;
use capstan_core::manifest::{self, Ceiling, Component as Source, Controller, Operator, Workflow, described, fit};
use capstan_core::operator::tenant;
use capstan_core::permission::risk;
use capstan_core::schema::{Definition, definitions};
use capstan_core::text;
use serde::Serialize;

use crate::cli::args::{Check, Output};
use crate::cli::registry;
use crate::operators::{self, Manifests, Read};
use crate::plugin::loader::{UNCHECKED, Wasm};
use crate::plugin::{Component as _, Plugin};
use crate::read;

/// The result for one manifest, plugin or controller.
#[derive(Debug, Serialize)]
pub struct Finding {
    /// `manifest`, `ceiling`, `crd`, `plugin`, `controller`, or `warning`.
    pub kind: &'static str,
    /// Its name, or the file.
    pub name: String,
    /// True if it can be used.
    pub ok: bool,
    /// The problem, or a short description if there is none.
    pub detail: String,
}

/// Checks, prints the findings, and exits with 1 if something is wrong.
///
/// # Errors
/// If a path can't be read, or standard output can't be written.
pub async fn run(args: &Check) -> anyhow::Result<ExitCode> {
    let findings = match args.output {
        // As they are found: compiling takes a while.
        Output::Table => {
            findings(args, &mut |finding| writeln!(std::io::stdout().lock(), "{}", finding.said())).await?
        }
        Output::Json | Output::Yaml => findings(args, &mut |_| Ok(())).await?,
    };
    print(args.output, &findings).context("write to standard output")?;
    Ok(if findings.iter().all(|finding| finding.ok) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says whether the ceilings are right, if that is all that is asked of them.
fn ceilings(args: &Check) -> Option<Finding> {
    let file = args.ceilings.as_ref().filter(|_| args.namespace.is_none())?;
    let (ok, detail) = match operators::ceilings(file) {
        Ok(ceilings) => {
            let namespaces: Vec<_> = ceilings.namespaces().map(|namespace| &**namespace).collect();
            (true, format!("for {}", namespaces.join(", ")))
        }
        Err(error) => (false, format!("{error:#}")),
    };
    Some(Finding { kind: "ceiling", name: file.display().to_string(), ok, detail })
}

/// The ceiling of a namespace, and that.
type Above = (Arc<str>, Arc<Ceiling>);

/// Returns the ceiling that the operators have to stay within, if it is asked for.
fn above(args: &Check) -> anyhow::Result<Option<Above>> {
    let (Some(file), Some(namespace)) = (&args.ceilings, &args.namespace) else {
        return Ok(None);
    };
    let (namespace, ceilings) = (Arc::from(namespace.as_str()), operators::ceilings(file)?);
    let Some(ceiling) = ceilings.of(&namespace).cloned() else {
        anyhow::bail!("{} has no ceiling for the namespace {namespace}: its operators are not run", file.display());
    };
    Ok(Some((namespace, ceiling)))
}

/// Finds operators that are more than the ceiling of their namespace has.
fn excesses((namespace, ceiling): &Above, operators: &[Operator]) -> Vec<Finding> {
    let mut room = tenant::Room::new(ceiling, []);
    let mut finding = |operator: &Operator| {
        let counted = room.exchange(None, tenant::Count::of(operator)).map_err(|why| format!("spec: {why}"));
        let housed = tenant::housed(operator.clone(), namespace, ceiling);
        let (ok, detail) = match housed.and(counted) {
            Ok(()) => (true, format!("within the ceiling {}", ceiling.name)),
            Err(why) => (false, why),
        };
        Finding { kind: "ceiling", name: operator.name.to_string(), ok, detail }
    };
    operators.iter().map(&mut finding).collect()
}

/// Reads the manifests. Of a daemon with ceilings, all operators may be objects of the cluster.
fn read_manifests(args: &Check, above: Option<&Above>) -> anyhow::Result<Read> {
    let mut manifests = Manifests::new(&args.source.manifests, args.source.defaults.as_deref())?;
    if let Some((_, ceiling)) = above {
        manifests = manifests.below(ceiling);
    }
    let is_of_ceilings = args.ceilings.is_some() && args.namespace.is_none();
    if is_of_ceilings { operators::read_some(&manifests) } else { operators::read(&manifests) }
}

/// Is told of each finding, as soon as it is there.
pub type Tell<'t> = dyn FnMut(&Finding) -> std::io::Result<()> + 't;

/// What was found so far.
struct Found<'t> {
    all: Vec<Finding>,
    tell: &'t mut Tell<'t>,
}

impl Found<'_> {
    fn extend(&mut self, more: impl IntoIterator<Item = Finding>) -> anyhow::Result<()> {
        for finding in more {
            (self.tell)(&finding).context("tell what was found")?;
            self.all.push(finding);
        }
        Ok(())
    }
}

/// Checks, and returns what was found, in the order in which it is told.
///
/// # Errors
/// If a path can't be read.
pub async fn findings<'t>(args: &Check, tell: &'t mut Tell<'t>) -> anyhow::Result<Vec<Finding>> {
    let above = above(args)?;
    let Read { operators, problems } = read_manifests(args, above.as_ref())?;
    let mut findings = Found { all: Vec::new(), tell };
    findings.extend(ceilings(args))?;
    let wrong = |(file, detail): (PathBuf, String)| Finding {
        kind: "manifest",
        name: file.display().to_string(),
        ok: false,
        detail,
    };
    findings.extend(problems.into_iter().map(wrong))?;
    findings.extend(above.iter().flat_map(|above| excesses(above, &operators)))?;
    let mut defined = Vec::new();
    for file in &args.definitions {
        findings.extend([read_definitions(file, &mut defined)?])?;
    }
    for operator in &operators {
        findings.extend(misfits(operator, &defined)?)?;
    }
    components(args, &operators, &mut findings).await?;
    Ok(findings.all)
}

/// Checks the components, and the controllers that need them.
async fn components(args: &Check, operators: &[Operator], findings: &mut Found<'_>) -> anyhow::Result<()> {
    let engine = operators::engine(operators)?.without_network();
    let cache = operators::code_cache(&args.source);
    let mut plugins = Vec::new();
    for operator in operators {
        findings.extend(warnings(operator))?;
        let (pulled, unpulled) = pull(args, operator).await;
        let (loaded, mut failed) = operators::plugins(&engine, &cache, operator, &pulled).await;
        for (name, why) in &mut failed {
            unpulled.get(name).inspect(|unpulled| why.clone_from(unpulled));
        }
        let is_unseen = |plugin: &manifest::Plugin| !args.pull && matches!(plugin.component, Some(Source::Registry(_)));
        for (name, plugin) in &operator.plugins {
            let Some(component) = &plugin.component else {
                continue;
            };
            let broken = failed.iter().find(|(broken, _)| broken == name && !is_unseen(plugin));
            let detail = match broken {
                Some((_, why)) => format!("{}: {why}", operator.origin.component(name)),
                None if is_unseen(plugin) => format!("{component}, which was not looked at: --pull has it pulled"),
                None => component.to_string(),
            };
            findings.extend([Finding { kind: "plugin", name: name.to_string(), ok: broken.is_none(), detail }])?;
            plugins.extend(loaded.get(name).map(|plugin| Named::of(operator, name, plugin)));
        }
        for (name, controller) in &operator.controllers {
            let unseen = operator.plugins.get(&controller.plugin).is_some_and(is_unseen);
            let ok = !controller.has_component() || unseen || loaded.contains_key(&controller.plugin);
            let detail =
                if ok { summed(controller) } else { format!("its plugin {} can't be used", controller.plugin) };
            findings.extend([Finding { kind: "controller", name: name.to_string(), ok, detail }])?;
        }
    }
    findings.extend(plugins.iter().filter_map(|plugin| plugin.warning(&plugins)))
}

/// Says of a controller what kind its primaries have, and how many dependents, those outside of the cluster too.
fn summed(controller: &Controller) -> String {
    format!("{}, {} dependents", controller.primary, controller.workflows().flat_map(Workflow::nodes).count())
}

/// Pulls the components of an operator that are in registries, if that is asked for, with whom `docker login` has logged in; of those that can't be, returns why.
async fn pull(args: &Check, operator: &Operator) -> (BTreeMap<Arc<str>, Wasm>, BTreeMap<Arc<str>, String>) {
    let (mut pulled, mut unpulled) = (BTreeMap::new(), BTreeMap::new());
    let from = (&*args.source.mirrors.registry_mirrors, args.ca.as_deref());
    for (name, plugin) in operator.plugins.iter().filter(|_| args.pull) {
        let Some(Source::Registry(image)) = &plugin.component else {
            continue;
        };
        match registry::pulled(image, from).await {
            Ok(wasm) => drop(pulled.insert(Arc::clone(name), wasm)),
            Err(error) => drop(unpulled.insert(Arc::clone(name), text::block(&format!("{error:#}")))),
        }
    }
    (pulled, unpulled)
}

/// A plugin that can be used, and the names that it answers to.
struct Named<'o> {
    operator: &'o Operator,
    name: &'o str,
    digest: String,
    description: Option<Description>,
}

impl<'o> Named<'o> {
    fn of(operator: &'o Operator, name: &'o str, plugin: &Plugin) -> Self {
        Self { operator, name, digest: plugin.digest().to_owned(), description: plugin.description().cloned() }
    }

    /// Says which of its names none of these plugins uses, or that its names can't be checked (`LC-15`).
    fn warning(&self, plugins: &[Self]) -> Option<Finding> {
        let Self { operator, name, digest, description } = self;
        let same: Vec<_> = plugins.iter().filter(|plugin| plugin.digest == *digest).collect();
        let detail = match description {
            None if described::asks_by_name(operator, name) => UNCHECKED.to_owned(),
            // What several plugins have in common is told once.
            Some(description) if same.first().is_some_and(|first| std::ptr::eq(*first, self)) => {
                let users: Vec<_> = same.iter().map(|plugin| (plugin.operator, plugin.name)).collect();
                let unused = described::unused(description, &users);
                let all: Vec<_> = unused.iter().map(ToString::to_string).collect();
                (!all.is_empty()).then(|| format!("no manifest here uses what it has: {}", all.join(", ")))?
            }
            None | Some(_) => return None,
        };
        Some(Finding { kind: "warning", name: (*name).to_owned(), ok: true, detail })
    }
}

/// Returns what of an operator is right, and perhaps not meant.
fn warnings(operator: &Operator) -> impl Iterator<Item = Finding> {
    let risks = risk::of(operator).into_iter().map(|risk| risk.to_string());
    let all = risks.chain(operator.controllers.values().flat_map(manifest::crowded));
    all.map(|detail| Finding { kind: "warning", name: operator.name.to_string(), ok: true, detail })
}

/// Adds the definitions of a file to those of others.
fn read_definitions(file: &Path, defined: &mut Vec<Definition>) -> anyhow::Result<Finding> {
    let content = read::text(file, read::DEFINITIONS).with_context(|| format!("read {}", file.display()))?;
    let finding = |ok, detail| Finding { kind: "crd", name: file.display().to_string(), ok, detail };
    Ok(match definitions(&content, file) {
        Ok(found) => {
            let names: Vec<_> = found.iter().map(Definition::name).collect();
            defined.extend(found);
            finding(true, names.join(", "))
        }
        Err(errors) => finding(false, errors.to_string()),
    })
}

/// Returns what an operator names that is not in the kinds as they are defined, if there is any.
fn misfits(operator: &Operator, defined: &[Definition]) -> anyhow::Result<Option<Finding>> {
    let mut budget = Budget::of_run();
    let mut found = Vec::new();
    for controller in operator.controllers.values() {
        let misfits = fit::misfits(controller, &|gvk, _| Definition::known(defined, gvk), &mut budget);
        found.extend(misfits.with_context(|| format!("compare controller {} with its kinds", controller.name))?);
    }
    if found.is_empty() {
        return Ok(None);
    }
    let file = operator.origin.file();
    let content = read::text(file, read::TEXT).with_context(|| format!("read manifest {}", file.display()))?;
    let detail = fit::placed(&content, file, &operator.name, found).to_string();
    Ok(Some(Finding { kind: "manifest", name: file.display().to_string(), ok: false, detail }))
}

impl Finding {
    /// Returns it as people read it, in one or several lines.
    pub fn said(&self) -> String {
        let Self { kind, name, ok, detail } = self;
        let (name, detail) = (text::one_line(name), text::lines(detail));
        let mark = match (*ok, *kind) {
            (false, _) => "wrong",
            (true, "warning") => "risk",
            (true, _) => "ok",
        };
        if detail.contains('\n') || !ok {
            format!("{mark:<6} {kind:<11} {name}\n{detail}")
        } else {
            format!("{mark:<6} {kind:<11} {name:<20} {detail}")
        }
    }
}

fn print(output: Output, findings: &[Finding]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match output {
        Output::Json => writeln!(out, "{}", serde_json::to_string_pretty(findings)?)?,
        Output::Yaml => write!(out, "{}", serde_yaml::to_string(&findings)?)?,
        // It has been told already.
        Output::Table => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependents_outside_of_the_cluster_count_as_such() {
        let text = r"{ apiVersion: capstan.dev/v1alpha1, kind: Operator, metadata: { name: o }, spec: {
            plugins: { p: { component: { path: p.wasm } } },
            controllers: { c: {
                plugin: p, primary: { apiVersion: a.dev/v1, kind: A },
                sources: { shop: { pollEach: { every: 30s, id: /id } } },
                workflow: { dependents: {
                    map: { apiVersion: v1, kind: ConfigMap },
                    goods: { external: { source: shop } } } } } } } }";
        let operators = manifest::parse(text, Path::new("m.yaml")).unwrap();
        let controller = operators.first().and_then(|operator| operator.controllers.values().next()).unwrap();
        assert_eq!(summed(controller), "a.dev/v1 A, 2 dependents");
    }
}
