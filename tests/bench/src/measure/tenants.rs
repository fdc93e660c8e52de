//! Measures operators that are objects in the namespaces of teams, within a ceiling: what an idle one takes, and how long one more takes to be ready.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::spread::{MEDIAN, MOST, Spread};
use super::{Measure, Rounds, Span, number};
use crate::clock::{Patience, pass, wall};
use crate::daemon::Daemon;
use crate::registry::{Registry, numbered};
use crate::stage::{Stage, WRONG};
use crate::usage;

const NAMESPACES: usize = 50;
const OPERATORS: usize = 200;
const COMPONENTS: usize = 5;
/// How many are added one by one.
const ADDED: usize = 20;
/// The daemon's own namespace.
const OWN: &str = "platform";
/// How long a daemon is left alone before its memory is read.
const REST: Duration = Duration::from_secs(10);
/// How long all of them may take to be ready.
const ALL: Patience = Patience::new(500, 1800);
/// How often one is looked at, and for how long.
const ONE: Patience = Patience::new(3, 60);

pub(super) fn measure(rounds: &mut Rounds<'_>, stage: &Stage) -> Result<()> {
    rounds.tell("tenants: pushing components");
    let registry = Registry::start(stage, "tenants-registry")?;
    let probe = fs::read(&rounds.subject.probe)?;
    for component in 0..COMPONENTS {
        registry.push(&repository(component), &numbered(&probe, component))?;
    }
    for namespace in (0..NAMESPACES).map(namespace).chain([OWN.to_owned()]) {
        stage.namespace(&namespace)?;
    }
    stage.cluster.api().create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &rights())?;
    let ceilings = stage.manifest("ceilings", &ceilings(&registry.address).to_string())?.display().to_string();
    let more = ["--ceilings", &ceilings, "--namespace", OWN];
    let mut daemon = stage.objects("tenants", &more, WRONG)?;
    daemon.until_ready()?;
    pass(REST);
    let [before, _] = daemon.memory()?;
    let anonymous = usage::anonymous(daemon.pid())?;

    rounds.tell("tenants: creating operators");
    let span = Span::begin(stage, Some(&daemon))?;
    let begun = wall();
    for at in 0..OPERATORS {
        create(stage, &registry, at)?;
    }
    ALL.until("all operators to be ready", || {
        daemon.check()?;
        let operators = stage.list("/apis/capstan.dev/v1alpha1/operators")?;
        Ok((operators.iter().filter(|operator| is_ready(operator)).count() == OPERATORS).then_some(()))
    })?;
    let all = wall() - begun;
    pass(REST);
    let [pss, peak] = daemon.memory()?;
    let anonymous = usage::anonymous(daemon.pid())? - anonymous;
    let writes = span.writes()?;
    let mut note = |what: &str, unit, value| rounds.note(Measure::Tenants, what, unit, value);
    note("first created to all ready, cold", "s", Spread::of_micros([all]).at(MOST) / 1e3);
    note("Pss without any", "MiB", before);
    note("Pss", "MiB", pss);
    note("Pss of an idle one", "MiB", (pss - before) / number(OPERATORS));
    note("of which no file has", "MiB", anonymous / number(OPERATORS));
    note("peak RSS", "MiB", peak);
    note("writes for each", "", writes / number(OPERATORS));
    span.used(rounds, Measure::Tenants, &daemon)?;

    one_more(rounds, stage, (&registry, &mut daemon))?;
    daemon.stop()
}

/// Measures how long one more takes to be ready, again and again.
fn one_more(rounds: &mut Rounds<'_>, stage: &Stage, (registry, daemon): (&Registry<'_>, &mut Daemon)) -> Result<()> {
    rounds.tell("tenants: one more");
    let span = Span::begin(stage, Some(daemon))?;
    let added = (OPERATORS..OPERATORS + ADDED).map(|at| {
        pass(Duration::from_millis(1500));
        let begun = wall();
        create(stage, registry, at)?;
        ONE.until("one more to be ready", || {
            daemon.check()?;
            let found = stage.cluster.api().get(&format!("{}/{}", path(at), name(at)))?;
            Ok(is_ready(&found).then_some(()))
        })?;
        Ok(wall() - begun)
    });
    let added = added.collect::<Result<Vec<i64>>>()?;
    rounds.spread(Measure::Tenants, "one more, created to Ready", &Spread::of_micros(added), &[MEDIAN, MOST]);
    span.requests(rounds, Measure::Tenants)?;
    let [_, _, others] = span.cpu(daemon)?;
    rounds.note(Measure::Tenants, "CPU of others meanwhile", "s", others);
    Ok(())
}

fn create(stage: &Stage, registry: &Registry<'_>, at: usize) -> Result<()> {
    let created = stage.cluster.api().create(&path(at), &operator(at, registry));
    created.map(drop).with_context(|| format!("create the operator {}", name(at)))
}

fn namespace(at: usize) -> String {
    format!("team-{:02}", at % NAMESPACES)
}

fn name(at: usize) -> String {
    format!("tenant-{at:03}")
}

fn path(at: usize) -> String {
    format!("/apis/capstan.dev/v1alpha1/namespaces/{}/operators", namespace(at))
}

fn repository(component: usize) -> String {
    format!("tenants/{component:02}")
}

/// Whether the condition `Ready` says so of what the object is now.
fn is_ready(operator: &Value) -> bool {
    let conditions = operator.pointer("/status/conditions").and_then(Value::as_array);
    let is_it = |condition: &Value| condition.get("type").is_some_and(|kind| kind == "Ready");
    let ready = conditions.and_then(|conditions| conditions.iter().find(|one| is_it(one)));
    ready.and_then(|ready| ready.get("status")).is_some_and(|status| status == "True")
}

fn operator(at: usize, registry: &Registry<'_>) -> Value {
    let component = json!({ "oci": registry.reference(&repository(at % COMPONENTS)), "insecure": true });
    let controller = json!({
        "plugin": "probe",
        "primary": { "apiVersion": "test.capstan.dev/v1", "kind": "Probe" },
        "namespaces": "own",
        "labelSelector": format!("crowd={}", name(at)),
    });
    json!({
        "apiVersion": "capstan.dev/v1alpha1",
        "kind": "Operator",
        "metadata": { "name": name(at) },
        "spec": {
            "serviceAccount": { "name": "pages" },
            "plugins": { "probe": { "component": component } },
            "controllers": { name(at): controller },
        },
    })
}

/// Returns what all teams may have.
fn ceilings(registry: &str) -> Value {
    let all = ["get", "list", "watch", "create", "update", "patch"];
    let ceiling = json!({
        "namespaces": (0..NAMESPACES).map(namespace).collect::<Vec<_>>(),
        "serviceAccounts": ["pages"],
        "registries": [registry],
        "rules": [
            { "apiGroups": ["test.capstan.dev"], "resources": ["probes", "probes/status"], "verbs": all },
            { "apiGroups": [""], "resources": ["events"], "verbs": all },
        ],
    });
    json!({ "apiVersion": "capstan.dev/v1alpha1", "kind": "Ceilings", "spec": { "ceilings": { "teams": ceiling } } })
}

/// Returns what gives all accounts all rights.
fn rights() -> Value {
    json!({
        "metadata": { "name": "tenants" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts" }],
    })
}
