//! Decides which RBAC rules manifests need: for all requests that they can lead to, and no verb more.
//!
//! A table, which the Helm chart reads as well, maps declarations to verbs; [`rights`] decides which declarations
//! count, and where. Only the names of kinds are known here: their plurals are guessed, unless
//! [`Kinds`] has them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use serde::Deserialize;

pub use crate::kinds::Verb;
use crate::kinds::{self, kind_name};
use crate::manifest::{
    Ceilings, Controller, Dependent, Grant, Holder, Namespaces, OnImmutable, OnRename, Operator, Permission, Plugin,
    Workflow,
};
use crate::object::{Gvk, Scope};

pub mod people;

/// The namespace or cluster in which a rule holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// In the whole cluster.
    Cluster,
    /// In this namespace.
    Namespace(Arc<str>),
}

/// The verbs that are allowed on one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The API group; empty for the core group.
    pub group: Arc<str>,
    /// The plural name, with the subresource if there is one: `pods`, `pods/status`.
    pub resource: String,
    /// The verbs, in the usual order; never empty.
    pub verbs: Vec<Verb>,
}

/// Facts about kinds that discovery has and manifests don't. A kind is named `Kind.group`, or `Kind` in the core
/// group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kinds {
    /// Plural names that are known, and not guessed.
    pub plurals: BTreeMap<String, String>,
    /// Kinds that live in no namespace, beside those of Kubernetes itself.
    pub cluster_scoped: BTreeSet<String>,
    /// Subresources that are written with the verbs that `capabilities.kubernetes` permits on the kind.
    pub subresources: BTreeMap<String, BTreeSet<String>>,
}

/// The table that maps declarations to verbs.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Table {
    /// The order of verbs in the templates of the chart.
    #[cfg_attr(not(test), expect(dead_code, reason = "verbs sort themselves here"))]
    order: Vec<Verb>,
    watched: Vec<Verb>,
    primary: Primary,
    events: Vec<Verb>,
    dependent: Manners,
    /// The kinds that are not applied (`KD-5`), for the templates of the chart.
    #[cfg_attr(not(test), expect(dead_code, reason = "a dependent knows itself here"))]
    written: BTreeSet<String>,
    capabilities: Capabilities,
    plurals: BTreeMap<String, String>,
    /// Read by [`kinds`].
    #[expect(dead_code, reason = "this says that the field is known")]
    cluster_scoped: BTreeSet<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Primary {
    object: Vec<Verb>,
    status: Vec<Verb>,
}

/// The two ways to write a dependent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manners {
    applied: Traits,
    written: Traits,
}

/// The verbs that each word of `manage` needs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Traits {
    create: Vec<Verb>,
    update: Vec<Verb>,
    delete: Vec<Verb>,
}

/// The verbs that each word of `capabilities.kubernetes` needs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Capabilities {
    get: Vec<Verb>,
    watch: Vec<Verb>,
    create: Vec<Verb>,
    apply: Vec<Verb>,
    update: Vec<Verb>,
    patch: Vec<Verb>,
    delete: Vec<Verb>,
}

static TABLE: LazyLock<Table> = LazyLock::new(kinds::of_chart);

/// The namespace of Events about cluster-scoped primaries (`ER-3`).
const DEFAULT: &str = "default";

/// Rules by their reach, sorted and without duplicates.
pub type Rules = BTreeMap<Reach, Vec<Rule>>;

/// The service account of an operator: its namespace and name.
pub type Account = (Arc<str>, Arc<str>);

/// The rules that manifests need, by account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// The rules of the daemon. For an operator with its own account, the daemon only watches the kinds to be cached.
    pub daemon: Rules,
    /// The rules of operators' accounts, in whose names the daemon acts.
    pub accounts: BTreeMap<Account, Rules>,
    /// The objects of its own namespace that the daemon reads, by resource, `secrets` or `configmaps`: the kubeconfigs of other clusters (`CU-2`),
    /// what has values of `config` (`CV-2`), and the tokens of inbound sources (`IB-3`).
    pub granted: BTreeMap<&'static str, BTreeSet<Arc<str>>>,
}

/// Returns the rules that these operators need, if the daemon runs in the namespace `own`.
pub fn rights(operators: &[Operator], own: &str, kinds: &Kinds) -> Rights {
    let own: Arc<str> = own.into();
    let tally = || Tally { kinds, own: Arc::clone(&own), found: BTreeMap::new() };
    let (mut daemon, mut shared) = (tally(), tally());
    let (mut accounts, mut granted) = (BTreeMap::new(), BTreeMap::<_, BTreeSet<_>>::new());
    for operator in operators {
        for value in operator.plugins.values().flat_map(Plugin::values) {
            granted.entry(value.holder.resource()).or_default().insert(Arc::clone(&value.name));
        }
        for controller in operator.controllers.values() {
            for token in controller.inbound.values().filter_map(|inbound| inbound.senders.token()) {
                granted.entry(token.holder.resource()).or_default().insert(Arc::clone(&token.name));
            }
            for remote in controller.remotes.values() {
                granted.entry(Holder::Secret.resource()).or_default().insert(Arc::clone(&remote.secret));
            }
            let account = controller.service_account.as_ref().map(|account| {
                let namespace = account.namespace.as_ref().unwrap_or(&own);
                (Arc::clone(namespace), Arc::clone(&account.name))
            });
            if controller.cluster.is_some() {
                // What it needs there, the account of its kubeconfig has.
                account.map(|account| accounts.entry(account).or_insert_with(tally));
                continue;
            }
            if matches!(controller.namespaces, Namespaces::Selected(_)) {
                // NS-5: the daemon finds out which they are, in its own name.
                let namespace = Gvk { group: "".into(), version: "v1".into(), kind: "Namespace".into() };
                daemon.permit(&namespace, None, &Namespaces::All, &TABLE.watched);
            }
            let plugin = operator.plugins.get(&controller.plugin);
            let grants = || plugin.iter().flat_map(|p| &p.capabilities.kubernetes);
            let tally = match account {
                Some(account) => {
                    shared.controller(controller);
                    grants().for_each(|grant| shared.capability(grant, controller));
                    accounts.entry(account).or_insert_with(tally)
                }
                None => &mut daemon,
            };
            tally.controller(controller);
            grants().for_each(|grant| tally.capability(grant, controller));
        }
    }
    daemon.watch_with(shared);
    let accounts = accounts.into_iter();
    Rights {
        daemon: daemon.rules(),
        accounts: accounts.map(|(account, tally)| (account, tally.rules())).collect(),
        granted,
    }
}

/// Returns the rules that ceilings come to: for the daemon, which lives in the namespace `own`, the operators there and in their namespaces, and what
/// these may watch; for their accounts, all that a ceiling permits.
pub fn of_ceilings(ceilings: &Ceilings, own: &str) -> Rights {
    let status = (("capstan.dev".into(), "operators/status".to_owned()), BTreeSet::from([Verb::Patch]));
    let operators = || {
        Resources::from([
            (("capstan.dev".into(), "operators".to_owned()), BTreeSet::from([Verb::Get, Verb::List, Verb::Watch])),
            (("".into(), "events".to_owned()), TABLE.events.iter().copied().collect()),
        ])
    };
    let mut here = operators();
    here.extend([status.clone()]);
    let read = BTreeSet::from([Verb::Get, Verb::List, Verb::Watch]);
    // AP-3: wherever operators are, their approvals are with the daemon.
    here.insert(("capstan.dev".into(), "operatorapprovals".to_owned()), read);
    // CE-7: it is said of those, too, that have no ceiling any more, when the rights in their namespace are gone.
    let everywhere = (Reach::Cluster, rules(Resources::from([status])));
    let daemon = Rules::from([everywhere, (Reach::Namespace(own.into()), rules(here))]);
    let mut rights = Rights { daemon, accounts: BTreeMap::new(), granted: BTreeMap::new() };
    for (namespace, ceiling) in ceilings.namespaces().filter_map(|namespace| Some((namespace, ceilings.of(namespace)?)))
    {
        let mut watched = operators();
        let mut all = Resources::new();
        for ((group, resource), verbs) in &ceiling.rules {
            let key = (Arc::clone(group), resource.to_string());
            let of_watch = verbs.iter().filter(|verb| TABLE.watched.contains(verb));
            watched.entry(key.clone()).or_default().extend(of_watch);
            all.insert(key, verbs.clone());
        }
        let reach = || Reach::Namespace(Arc::clone(namespace));
        rights.daemon.insert(reach(), rules(watched));
        for account in &ceiling.service_accounts {
            let account = (Arc::clone(namespace), Arc::clone(account));
            rights.accounts.insert(account, Rules::from([(reach(), rules(all.clone()))]));
        }
    }
    rights
}

/// Returns the rules for resources, without those that have no verb.
fn rules(resources: Resources) -> Vec<Rule> {
    let rule = |((group, resource), verbs): ((Arc<str>, String), BTreeSet<Verb>)| Rule {
        group,
        resource,
        verbs: verbs.into_iter().collect(),
    };
    resources.into_iter().map(rule).filter(|rule| !rule.verbs.is_empty()).collect()
}

/// Returns the names of all kinds in the manifests of operators, as by [`kind_name`].
pub fn kind_names(operators: &[Operator]) -> BTreeSet<String> {
    let controllers = operators.iter().flat_map(|o| o.controllers.values());
    let declared = controllers.flat_map(|controller| {
        let sources = controller.sources.values().map(|source| &source.gvk);
        let dependents = controller.dependents().map(|(_, dependent)| &dependent.gvk);
        std::iter::once(&controller.primary).chain(sources).chain(dependents)
    });
    let plugins = operators.iter().flat_map(|o| o.plugins.values());
    let grants = plugins.flat_map(|plugin| &plugin.capabilities.kubernetes);
    let permitted = grants.map(|grant| &grant.gvk);
    declared.chain(permitted).map(kind_name).collect()
}

/// The verbs on each resource, by its group and name.
type Resources = BTreeMap<(Arc<str>, String), BTreeSet<Verb>>;

/// The verbs that have been found so far.
struct Tally<'a> {
    kinds: &'a Kinds,
    own: Arc<str>,
    found: BTreeMap<Reach, Resources>,
}

// === impl Tally ===

impl Tally<'_> {
    fn controller(&mut self, controller: &Controller) {
        let Controller { primary, namespaces, .. } = controller;
        self.permit(primary, None, namespaces, &TABLE.watched);
        self.permit(primary, None, namespaces, &TABLE.primary.object);
        self.permit(primary, Some("status"), namespaces, &TABLE.primary.status);
        self.events(controller);
        for source in controller.sources.values().filter(|source| source.cluster.is_none()) {
            let namespaces = source.namespaces.as_ref().unwrap_or(namespaces);
            self.permit(&source.gvk, None, namespaces, &TABLE.watched);
        }
        self.workflow(controller, &controller.workflow, Called::ByDaemon);
        for workflow in controller.standalone.values() {
            self.workflow(controller, workflow, Called::ByName);
        }
    }

    fn events(&mut self, controller: &Controller) {
        let event = Gvk { group: "".into(), version: "v1".into(), kind: "Event".into() };
        let aside = Namespaces::Listed(BTreeSet::from([DEFAULT.into()]));
        let namespaces = if self.is_cluster_scoped(&controller.primary) { &aside } else { &controller.namespaces };
        self.permit(&event, None, namespaces, &TABLE.events);
    }

    fn workflow(&mut self, controller: &Controller, workflow: &Workflow, called: Called) {
        let unwanted = unwanted(workflow);
        for (name, dependent) in workflow.dependents.iter().chain(workflow.states()) {
            let Dependent { gvk, manage, .. } = dependent;
            let source = dependent.source.as_ref().and_then(|source| controller.sources.get(source));
            // The namespaces of a dependent's own source are those where the dependent may be.
            let namespaces = source.and_then(|source| source.namespaces.as_ref()).unwrap_or(&controller.namespaces);
            self.permit(gvk, None, namespaces, &TABLE.watched);
            let needs = if dependent.server_side_apply { &TABLE.dependent.applied } else { &TABLE.dependent.written };
            let deleted = match called {
                Called::ByName => true,
                Called::ByDaemon => {
                    let anew = dependent.on_immutable == OnImmutable::Recreate;
                    let replaced = dependent.on_rename == OnRename::Delete || dependent.bulk || anew;
                    !dependent.garbage_collected || unwanted.contains(name) || replaced
                }
            };
            for (wanted, verbs) in [
                (manage.create, &needs.create),
                (manage.update || dependent.adopt, &needs.update),
                (manage.delete && deleted, &needs.delete),
            ] {
                if wanted {
                    self.permit(gvk, None, namespaces, verbs);
                }
            }
        }
    }

    /// Adds the verbs of a grant where it holds. For a cluster-scoped kind, a grant holds only if it says `all`, or
    /// if the controller writes that kind anyway.
    fn capability(&mut self, grant: &Grant, controller: &Controller) {
        let Grant { gvk, verbs, .. } = grant;
        let said = grant.namespaces.as_ref();
        if self.is_cluster_scoped(gvk) && said != Some(&Namespaces::All) && !controller.writes(gvk) {
            return;
        }
        let namespaces = said.unwrap_or(&controller.namespaces);
        let kinds = self.kinds;
        let subresources = kinds.subresources.get(&kind_name(gvk));
        for permission in verbs {
            let needs = &TABLE.capabilities;
            let verbs = match permission {
                Permission::Get => &needs.get,
                Permission::Watch => &needs.watch,
                Permission::Create => &needs.create,
                Permission::Apply => &needs.apply,
                Permission::Update => &needs.update,
                Permission::Patch => &needs.patch,
                Permission::Delete => &needs.delete,
            };
            self.permit(gvk, None, namespaces, verbs);
            // Nobody watches a subresource.
            let written = subresources.filter(|_| *permission != Permission::Watch);
            for subresource in written.into_iter().flatten() {
                self.permit(gvk, Some(subresource), namespaces, verbs);
            }
        }
    }

    fn permit(&mut self, gvk: &Gvk, subresource: Option<&str>, namespaces: &Namespaces, verbs: &[Verb]) {
        let plural = plural_by(self.kinds, gvk);
        let resource = match subresource {
            Some(subresource) => format!("{plural}/{subresource}"),
            None => plural,
        };
        let space = |namespace: &Arc<str>| Reach::Namespace(Arc::clone(namespace));
        let reaches = match namespaces {
            _ if self.is_cluster_scoped(gvk) => vec![Reach::Cluster],
            // Any namespace may come to be selected.
            Namespaces::All | Namespaces::Selected(_) => vec![Reach::Cluster],
            Namespaces::Own => vec![space(&self.own)],
            Namespaces::Listed(names) => names.iter().map(space).collect(),
        };
        for reach in reaches {
            let resources = self.found.entry(reach).or_default();
            let key = (Arc::clone(&gvk.group), resource.clone());
            resources.entry(key).or_default().extend(verbs);
        }
    }

    /// Adds the verbs for watching from another tally.
    fn watch_with(&mut self, other: Self) {
        for (reach, resources) in other.found {
            let here = self.found.entry(reach).or_default();
            for (key, mut verbs) in resources {
                verbs.retain(|verb| TABLE.watched.contains(verb));
                here.entry(key).or_default().extend(verbs);
            }
        }
    }

    fn is_cluster_scoped(&self, gvk: &Gvk) -> bool {
        self.kinds.cluster_scoped.contains(&kind_name(gvk)) || kinds::scope(gvk) == Some(Scope::Cluster)
    }

    /// Returns the rules, without verbs in namespaces that are allowed in the whole cluster already.
    fn rules(mut self) -> BTreeMap<Reach, Vec<Rule>> {
        let everywhere = self.found.get(&Reach::Cluster).cloned().unwrap_or_default();
        for (reach, resources) in &mut self.found {
            if *reach != Reach::Cluster {
                for (key, verbs) in resources {
                    verbs.retain(|verb| !everywhere.get(key).is_some_and(|all| all.contains(verb)));
                }
            }
        }
        let found = self.found.into_iter().map(|(reach, resources)| (reach, rules(resources)));
        found.filter(|(_, rules)| !rules.is_empty()).collect()
    }
}

/// Returns the plural of a kind, guessed unless it is known.
fn plural_by(kinds: &Kinds, gvk: &Gvk) -> String {
    kinds.plurals.get(&kind_name(gvk)).cloned().unwrap_or_else(|| plural_of(gvk))
}

/// The caller of a workflow.
#[derive(Clone, Copy)]
enum Called {
    /// The daemon, with each run.
    ByDaemon,
    /// The component, by name; it may remove single dependents.
    ByName,
}

/// Returns the dependents that conditions may turn off: their own, or those of dependents that they depend on
/// (`WF-5`).
fn unwanted(workflow: &Workflow) -> BTreeSet<&Arc<str>> {
    let mut found = BTreeSet::new();
    // Repeated as often as the longest possible chain is long.
    for _ in &workflow.dependents {
        for (name, dependent) in &workflow.dependents {
            let conditions = &dependent.conditions;
            let conditional = conditions.activation.is_some() || conditions.reconcile_precondition.is_some();
            if conditional || dependent.depends_on.iter().any(|on| found.contains(on)) {
                found.insert(name);
            }
        }
    }
    found
}

/// Returns the plural of a kind without an API server: as the table has it, or else a guess.
pub fn plural_of(gvk: &Gvk) -> String {
    TABLE.plurals.get(&kind_name(gvk)).cloned().unwrap_or_else(|| plural(&gvk.kind))
}

/// Returns the plural of a kind as English mostly has it, which is how tools that write definitions call several of it.
pub fn plural(kind: &str) -> String {
    let lower = kind.to_lowercase();
    if lower.ends_with("endpoints") {
        return lower;
    }
    match lower.strip_suffix('y') {
        Some(stem) if !stem.is_empty() && !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies"),
        Some(_) | None if ["ch", "sh", "s", "x", "z"].iter().any(|end| lower.ends_with(end)) => format!("{lower}es"),
        Some(_) | None => format!("{lower}s"),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::path::Path;

    use super::*;

    /// Returns the rules of a daemon in the namespace `own`.
    fn rules(operators: &[Operator], own: &str, kinds: &Kinds) -> Rules {
        rights(operators, own, kinds).daemon
    }
    use crate::manifest::parse;

    /// Reads an operator whose controller has these fields, and its plugin those, in YAML flow style.
    fn operators(plugin: &str, controller: &str) -> Vec<Operator> {
        let text = format!(
            "{{ apiVersion: capstan.dev/v1alpha1, kind: Operator, metadata: {{ name: o }}, spec: {{ \
             plugins: {{ p: {{ component: {{ path: p.wasm }}, {plugin} }} }}, \
             controllers: {{ c: {{ plugin: p, primary: {{ apiVersion: a.dev/v1, kind: Page }}, {controller} }} }} }} }}"
        );
        parse(&text, Path::new("o.yaml")).unwrap_or_else(|errors| panic!("{errors}"))
    }

    /// Writes rules, one per line: `*` or the namespace, the resource, the verbs.
    fn shown(rules: &BTreeMap<Reach, Vec<Rule>>) -> String {
        let mut text = String::new();
        for (reach, rules) in rules {
            let place = match reach {
                Reach::Cluster => "*",
                Reach::Namespace(name) => name,
            };
            for Rule { group, resource, verbs } in rules {
                let verbs: Vec<_> = verbs.iter().map(|verb| verb.name()).collect();
                let group = if group.is_empty() { String::new() } else { format!(".{group}") };
                writeln!(text, "{place} {resource}{group}: {}", verbs.join(" ")).unwrap();
            }
        }
        text
    }

    /// Returns the rules without those that every controller of pages has.
    fn beside(plugin: &str, controller: &str) -> String {
        let rules = rules(&operators(plugin, controller), "home", &Kinds::default());
        let lines = shown(&rules);
        let common = ["pages", "events"];
        let other = |line: &&str| !common.iter().any(|word| line.contains(word));
        lines.lines().filter(other).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_controller_watches_its_primaries_and_writes_them_their_status_and_events() {
        let rules = rules(&operators("", ""), "home", &Kinds::default());
        let expected = "\
* events: get create patch
* pages.a.dev: get list watch patch
* pages/status.a.dev: patch
";
        assert_eq!(shown(&rules), expected);
    }

    #[test]
    fn rules_hold_where_the_controller_watches() {
        let shown = |namespaces: &str| {
            let fields = format!("namespaces: {namespaces}");
            shown(&rules(&operators("", &fields), "home", &Kinds::default()))
        };
        let places = |namespaces: &str| -> BTreeSet<String> {
            let lines = shown(namespaces);
            lines.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
        };
        assert_eq!(places("all"), ["*".to_owned()].into());
        assert_eq!(places("own"), ["home".to_owned()].into());
        assert_eq!(places("[a, b]"), ["a".to_owned(), "b".to_owned()].into());
    }

    #[test]
    fn where_namespaces_are_selected_the_rights_are_for_all_and_for_finding_them() {
        // NS-5
        let fields = "namespaces: { selector: team=web }, sources: { s: { informer: { apiVersion: v1, kind: Pod, namespaces: [x] } } }";
        assert_eq!(beside("", fields), "* namespaces: list watch\nx pods: list watch");
    }

    #[test]
    fn what_is_allowed_everywhere_is_not_repeated_for_a_namespace() {
        let source = "sources: { maps: { informer: { apiVersion: v1, kind: ConfigMap, namespaces: [x] } } }, \
             workflow: { dependents: { m: { apiVersion: v1, kind: ConfigMap, manage: [create] } } }";
        assert_eq!(beside("", source), "* configmaps: list watch create");
    }

    #[test]
    fn the_words_of_manage_become_verbs() {
        // KD-5, DR-1, KD-6
        for (fields, expected) in [
            ("kind: Pod", "* pods: list watch create patch"),
            ("kind: Pod, manage: [create]", "* pods: list watch create patch"),
            ("kind: Pod, manage: [update]", "* pods: list watch patch"),
            ("kind: Pod, manage: [create], createOnly: true", "* pods: list watch create patch"),
            ("kind: Pod, serverSideApply: false, manage: [create], adopt: true", "* pods: list watch create update"),
            ("kind: Pod, serverSideApply: false", "* pods: list watch create update"),
            ("kind: Pod, serverSideApply: false, createOnly: true", "* pods: list watch create update"),
            ("kind: Secret", "* secrets: list watch create update"),
            ("kind: ConfigMap, serverSideApply: true", "* configmaps: list watch create patch"),
            ("kind: ConfigMap, readOnly: true", "* configmaps: list watch"),
            (
                "kind: ConfigMap, manage: [delete], garbageCollected: false, source: s",
                "* configmaps: list watch delete",
            ),
        ] {
            let fields = format!(
                "sources: {{ s: {{ informer: {{ apiVersion: v1, kind: ConfigMap }} }} }}, \
                 workflow: {{ dependents: {{ d: {{ apiVersion: v1, {fields} }} }} }}"
            );
            let lines = beside("", &fields);
            let line = expected.split(':').next().unwrap();
            let found: Vec<_> = lines.lines().filter(|l| l.starts_with(line)).collect();
            assert_eq!(found, [expected], "{fields}");
        }
    }

    #[test]
    fn delete_is_granted_where_the_daemon_may_come_to_it() {
        // WF-5, DR-5
        let chain = "a: { apiVersion: v1, kind: Pod }, \
             b: { apiVersion: v1, kind: Service, dependsOn: [a], reconcilePrecondition: { cel: primary.spec.x } }, \
             c: { apiVersion: v1, kind: Node, dependsOn: [b] }, \
             d: { apiVersion: apps/v1, kind: Deployment, dependsOn: [c], manage: [create, update] }, \
             e: { apiVersion: batch/v1, kind: Job, garbageCollected: false }, \
             f: { apiVersion: v1, kind: Secret, activation: { export: x } }, \
             g: { apiVersion: batch/v1, kind: CronJob, onRename: delete }, \
             h: { apiVersion: v1, kind: ServiceAccount, bulk: true }, \
             i: { apiVersion: apps/v1, kind: StatefulSet, onImmutable: recreate }";
        let expected = "\
* nodes: list watch create patch delete
* pods: list watch create patch
* secrets: list watch create update delete
* serviceaccounts: list watch create patch delete
* services: list watch create patch delete
* deployments.apps: list watch create patch
* statefulsets.apps: list watch create patch delete
* cronjobs.batch: list watch create patch delete
* jobs.batch: list watch create patch delete";
        assert_eq!(beside("", &format!("workflow: {{ dependents: {{ {chain} }} }}")), expected);
    }

    #[test]
    fn a_standalone_dependent_may_be_removed_by_name() {
        let fields = "standalone: { s: { dependents: { a: { apiVersion: v1, kind: Pod }, b: { apiVersion: v1, kind: Service, manage: [create] } } } }";
        assert_eq!(beside("", fields), "* pods: list watch create patch delete\n* services: list watch create patch");
    }

    #[test]
    fn a_dependent_is_written_where_its_source_watches() {
        let fields = "namespaces: [a], \
             sources: { s: { informer: { apiVersion: v1, kind: Pod, namespaces: [b] } } }, \
             workflow: { dependents: { d: { apiVersion: v1, kind: Pod, source: s } } }";
        assert_eq!(beside("", fields), "b pods: list watch create patch");
    }

    #[test]
    fn each_permitted_verb_is_what_the_daemon_sends_for_it() {
        for (verb, expected) in [
            ("get", ""),
            ("watch", "own pods: list watch"),
            ("create", "own pods: create"),
            ("apply", "own pods: create patch"),
            ("update", "own pods: update"),
            ("patch", "own pods: patch"),
            ("delete", "own pods: delete"),
        ] {
            let plugin = format!("capabilities: {{ kubernetes: [{{ apiVersion: v1, kind: Pod, verbs: [{verb}] }}] }}");
            assert_eq!(beside(&plugin, "namespaces: own").replace("home", "own"), expected);
        }
    }

    #[test]
    fn kinds_without_a_namespace_are_for_the_whole_cluster_and_their_events_in_default() {
        // ER-3
        let operators = operators("", "namespaces: [a], sources: { n: { informer: { apiVersion: v1, kind: Node } } }");
        let kinds = Kinds { cluster_scoped: ["Page.a.dev".to_owned()].into(), ..Kinds::default() };
        let expected = "\
* nodes: list watch
* pages.a.dev: get list watch patch
* pages/status.a.dev: patch
default events: get create patch
";
        assert_eq!(shown(&rules(&operators, "home", &kinds)), expected);
    }

    #[test]
    fn plurals_and_subresources_are_as_the_user_says() {
        let operators =
            operators("capabilities: { kubernetes: [{ apiVersion: apps/v1, kind: Deployment, verbs: [patch] }] }", "");
        let kinds = Kinds {
            plurals: [("Page.a.dev".to_owned(), "paginae".to_owned())].into(),
            subresources: [("Deployment.apps".to_owned(), ["scale".to_owned()].into())].into(),
            ..Kinds::default()
        };
        let expected = "\
* events: get create patch
* paginae.a.dev: get list watch patch
* paginae/status.a.dev: patch
* deployments.apps: patch
* deployments/scale.apps: patch
";
        assert_eq!(shown(&rules(&operators, "home", &kinds)), expected);
        assert_eq!(kind_names(&operators), ["Deployment.apps".to_owned(), "Page.a.dev".to_owned()].into());
    }

    #[test]
    fn plurals_are_guessed_as_english_has_them() {
        for (kind, expected) in [
            ("Pod", "pods"),
            ("Ingress", "ingresses"),
            ("NetworkPolicy", "networkpolicies"),
            ("Endpoints", "endpoints"),
            ("Gateway", "gateways"),
            ("Batch", "batches"),
            ("Mesh", "meshes"),
            ("Proxy", "proxies"),
            ("Sandbox", "sandboxes"),
            ("Waltz", "waltzes"),
            ("Hash", "hashes"),
            ("Path", "paths"),
            ("Y", "ys"),
        ] {
            assert_eq!(plural(kind), expected);
        }
    }

    #[test]
    fn the_table_agrees_with_what_is_known_here_without_it() {
        let mut sorted = TABLE.order.clone();
        sorted.sort();
        assert_eq!((&TABLE.order, TABLE.order.len()), (&sorted, 7));
        for kind in ["ConfigMap", "Secret", "Pod", "Service"] {
            let fields = format!("workflow: {{ dependents: {{ d: {{ apiVersion: v1, kind: {kind} }} }} }}");
            let operators = operators("", &fields);
            let controller = operators[0].controllers.values().next().unwrap();
            let (_, dependent) = controller.dependents().next().unwrap();
            assert_eq!(TABLE.written.contains(kind), !dependent.server_side_apply, "{kind}");
        }
    }

    #[test]
    fn an_operator_with_an_account_of_its_own_leaves_the_daemon_what_it_watches() {
        let operator = |name: &str, account: &str| {
            let text = format!(
                "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: {name} }}\nspec:\n  {account}\n  \
                 plugins: {{ p: {{ component: {{ path: p.wasm }}, capabilities: {{ kubernetes: [{{ apiVersion: v1, kind: Secret, verbs: [apply, watch] }}] }} }} }}\n  \
                 controllers: {{ {name}: {{ plugin: p, primary: {{ apiVersion: a.dev/v1, kind: Page }}, namespaces: [{name}] }} }}"
            );
            parse(&text, Path::new("o.yaml")).unwrap().remove(0)
        };
        let alone = |account: &str| rights(&[operator("a", account)], "home", &Kinds::default());
        let all = alone("").daemon;
        let Rights { daemon, accounts, .. } = alone("serviceAccount: { name: pages }");
        let account = ("home".into(), "pages".into());
        assert_eq!(accounts, BTreeMap::from([(account, all.clone())]));
        assert_eq!(shown(&daemon), "a secrets: list watch\na pages.a.dev: list watch\n");

        // Another operator's rights stay its own.
        let far = operator("a", "serviceAccount: { name: pages, namespace: far }");
        let both = rights(&[far, operator("b", "")], "home", &Kinds::default());
        let far = ("far".into(), "pages".into());
        assert_eq!(both.accounts, BTreeMap::from([(far, all)]));
        let lines = shown(&both.daemon);
        let here = lines.lines().filter(|line| line.starts_with("a "));
        assert_eq!(here.collect::<Vec<_>>(), ["a secrets: list watch", "a pages.a.dev: list watch"]);
        assert!(lines.contains("b secrets: list watch create patch"), "{lines}");
    }
}
