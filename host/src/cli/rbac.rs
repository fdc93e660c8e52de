//! `capstan rbac`: prints the roles that the daemon needs for manifests, bound to its service account.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use capstan_core::manifest::Operator;
use capstan_core::object::Scope;
use capstan_core::rbac::people::{self, Collector};
use capstan_core::rbac::{self, Kinds, Reach, Rights, Rule, Rules};
use serde_json::{Value, json};

use crate::cli::args::{Documents, Rbac};
use crate::cli::dev::project;
use crate::operators::{self, Manifests};

/// What stands above a rule for bindings.
const BIND: &str = "\
# The API server lets only those write bindings who hold all rights of the role that is bound, or have `bind` on it. That is yours to give, for
# the roles that the operator is to bind and no others, in a role of the same account:
# - apiGroups: [rbac.authorization.k8s.io]
#   resources: [clusterroles]      # or roles
#   verbs: [bind]
#   resourceNames: [NAME]
";

/// What stands above a rule for roles.
const ESCALATE: &str = "\
# The API server lets only those write roles who hold all rights that these give. Give the same account those rights.
";

/// The API group of roles.
const GROUP: &str = "rbac.authorization.k8s.io";

/// Prints roles and bindings.
///
/// # Errors
/// If a manifest can't be read or is wrong, or a flag names a kind that no manifest names.
pub fn run(args: &Rbac) -> anyhow::Result<ExitCode> {
    let mut printed = Vec::new();
    if !args.manifests.is_empty() {
        let operators = operators::valid_with(&Manifests::new(&args.manifests, args.defaults.as_deref())?)?;
        let (kinds, name) = (kinds(args, &operators)?, name(args.name.as_deref(), &operators));
        printed.extend(objects(args, &name, &rbac::rights(&operators, &args.namespace, &kinds)));
        printed.extend(collected(args, &name, |by| people::of_primaries(&operators, &kinds, by)));
    }
    if let Some(file) = &args.ceilings {
        let name = format!("{}:operators", name(args.name.as_deref(), &[]));
        let ceilings = operators::ceilings_of_others(file, &args.namespace)?;
        printed.extend(objects(args, &name, &rbac::of_ceilings(&ceilings, &args.namespace)));
        printed.extend(collected(args, &name, people::of_operators));
    }
    crate::print(&text(args.output, &printed)?)
}

/// Returns the name of roles: those of one operator are not those of another, so that each can be applied by itself.
fn name(given: Option<&str>, operators: &[Operator]) -> String {
    match (given, operators) {
        (Some(given), _) => given.to_owned(),
        (None, [only]) => format!("capstan-{}", only.name),
        (None, _) => "capstan".to_owned(),
    }
}

/// The service account that holds a role.
struct Holder<'a> {
    /// The name of the role and its binding in the daemon's namespace.
    role: String,
    /// The namespace of the daemon.
    own: &'a str,
    account: &'a str,
    namespace: &'a str,
}

impl Holder<'_> {
    /// Returns the name of the role that holds there. Elsewhere than in the daemon's namespace there may be those of a daemon in another one.
    fn role_name(&self, reach: &Reach) -> String {
        let Self { role, own, .. } = self;
        match reach {
            Reach::Namespace(namespace) if **namespace == **own => role.clone(),
            Reach::Namespace(_) | Reach::Cluster => format!("{own}:{role}"),
        }
    }
}

/// Returns the roles and bindings of the daemon; the accounts of operators, their roles and bindings; and the roles
/// that let the daemon impersonate these accounts, and read the kubeconfigs of other clusters and what has values of `config`, and no other.
fn objects(args: &Rbac, name: &str, rights: &Rights) -> Vec<Value> {
    let own = args.namespace.as_str();
    let daemon = Holder { role: name.to_owned(), own, account: &args.service_account, namespace: own };
    let bound = |holder: &Holder<'_>, rules: &Rules| -> Vec<Value> {
        let each = rules.iter();
        each.flat_map(|(reach, rules)| [role(holder, reach, rules), binding(holder, reach)]).collect()
    };
    let mut objects = bound(&daemon, &rights.daemon);
    let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for ((namespace, account), rules) in &rights.accounts {
        names.entry(namespace).or_default().push(account);
        objects.push(json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": &**account, "namespace": &**namespace },
        }));
        let holder = Holder { role: format!("{name}:{namespace}:{account}"), own, account, namespace };
        objects.extend(bound(&holder, rules));
    }
    let acting = Holder { role: format!("{name}:impersonate"), ..daemon };
    for (namespace, names) in names {
        let reach = Reach::Namespace(namespace.into());
        let rule = json!({
            "apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"],
            "resourceNames": names,
        });
        objects.push(role_of(&acting, &reach, &[rule]));
        objects.push(binding(&acting, &reach));
    }
    for (resource, names) in &rights.granted {
        let reading = Holder { role: format!("{name}:{resource}"), ..acting };
        let reach = Reach::Namespace(own.into());
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        let rule = json!({ "apiGroups": [""], "resources": [resource], "verbs": ["get"], "resourceNames": names });
        objects.push(role_of(&reading, &reach, &[rule]));
        objects.push(binding(&reading, &reach));
    }
    objects
}

/// Returns the roles for people that roles of Kubernetes collect, as far as there is anything that they permit.
fn collected(args: &Rbac, name: &str, rules: impl Fn(Collector) -> Vec<Rule>) -> Vec<Value> {
    let own = args.namespace.as_str();
    let collectors: BTreeSet<_> = args.aggregate_to.iter().copied().collect();
    let labelled = |by: Collector| {
        let rules = Some(rules(by)).filter(|rules| !rules.is_empty())?;
        let label = format!("aggregate-to-{}", by.name());
        let labels = json!({ (format!("{GROUP}/{label}")): "true" });
        let holder = Holder { role: format!("{name}:{label}"), own, account: &args.service_account, namespace: own };
        let mut object = role(&holder, &Reach::Cluster, &rules);
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("labels".to_owned(), labels);
        }
        Some(object)
    };
    collectors.into_iter().filter_map(labelled).collect()
}

/// Returns what is known of kinds, by the definitions beside the manifests and the flags, which count for more. A kind in a flag that no manifest names is
/// an error, as it must be misspelt.
fn kinds(args: &Rbac, operators: &[Operator]) -> anyhow::Result<Kinds> {
    let known = rbac::kind_names(operators);
    let check = |flag: &str, kind: &str| {
        let names: Vec<_> = known.iter().map(String::as_str).collect();
        let names = names.join(", ");
        ensure!(known.contains(kind), "{flag} {kind}: no manifest names that kind; there are: {names}");
        Ok(())
    };
    let mut kinds = defined(operators)?;
    for (kind, plural) in &args.plurals {
        check("--plural", kind)?;
        kinds.plurals.insert(kind.clone(), plural.clone());
    }
    for kind in &args.cluster_scoped {
        check("--cluster-scoped", kind)?;
        kinds.cluster_scoped.insert(kind.clone());
    }
    for (kind, subresource) in &args.subresources {
        check("--subresource", kind)?;
        let names = kinds.subresources.entry(kind.clone()).or_default();
        names.insert(subresource.clone());
    }
    Ok(kinds)
}

/// Returns what the definitions beside manifests say.
fn defined(operators: &[Operator]) -> anyhow::Result<Kinds> {
    let mut kinds = Kinds::default();
    let folders: BTreeSet<_> = operators.iter().map(|operator| project::folder_of(operator.origin.file())).collect();
    for folder in folders {
        for definition in project::definitions_in(folder)? {
            let (kind, plural, scope) = definition.names();
            if let Some(plural) = plural {
                kinds.plurals.insert(kind.clone(), plural.to_owned());
            }
            if scope == Scope::Cluster {
                kinds.cluster_scoped.insert(kind);
            }
        }
    }
    Ok(kinds)
}

fn role(holder: &Holder<'_>, reach: &Reach, rules: &[Rule]) -> Value {
    let rules = rules.iter().map(|rule| {
        let verbs: Vec<_> = rule.verbs.iter().map(|verb| verb.name()).collect();
        json!({ "apiGroups": [&*rule.group], "resources": [rule.resource], "verbs": verbs })
    });
    role_of(holder, reach, &rules.collect::<Vec<_>>())
}

fn role_of(holder: &Holder<'_>, reach: &Reach, rules: &[Value]) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": role_kind(reach),
        "metadata": metadata(holder, reach),
        "rules": rules,
    })
}

fn binding(holder: &Holder<'_>, reach: &Reach) -> Value {
    let account = json!({ "kind": "ServiceAccount", "name": holder.account, "namespace": holder.namespace });
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": format!("{}Binding", role_kind(reach)),
        "metadata": metadata(holder, reach),
        "roleRef": { "apiGroup": GROUP, "kind": role_kind(reach), "name": holder.role_name(reach) },
        "subjects": [account],
    })
}

fn role_kind(reach: &Reach) -> &'static str {
    match reach {
        Reach::Cluster => "ClusterRole",
        Reach::Namespace(_) => "Role",
    }
}

fn metadata(holder: &Holder<'_>, reach: &Reach) -> Value {
    let name = holder.role_name(reach);
    match reach {
        Reach::Cluster => json!({ "name": name }),
        Reach::Namespace(namespace) => json!({ "name": name, "namespace": &**namespace }),
    }
}

fn text(output: Documents, objects: &[Value]) -> anyhow::Result<String> {
    match output {
        Documents::Json => {
            let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
            Ok(format!("{list:#}\n"))
        }
        Documents::Yaml => {
            let texts = objects.iter().map(|object| anyhow::Ok(commented(object, serde_yaml::to_string(object)?)));
            let texts = texts.collect::<anyhow::Result<Vec<_>>>().context("write YAML")?;
            Ok(texts.join("---\n"))
        }
    }
}

/// Returns the text of an object, with what has to be given by hand above a rule by which rights are given: this command does not, or whoever
/// adds manifests would get any right.
fn commented(object: &Value, text: String) -> String {
    let rules = object.get("rules").and_then(Value::as_array).into_iter().flatten();
    let has = |rule: &Value, field: &str, wanted: &[&str]| {
        let found = rule.get(field).and_then(Value::as_array).into_iter().flatten();
        found.filter_map(Value::as_str).any(|found| wanted.contains(&found))
    };
    let gives = |rule: &&Value| has(rule, "apiGroups", &[GROUP]) && has(rule, "verbs", &["create", "update", "patch"]);
    rules.filter(gives).fold(text, |text, rule| {
        let binds = has(rule, "resources", &["rolebindings", "clusterrolebindings"]);
        let comment = if binds { BIND } else { ESCALATE };
        // As it stands in the role: a list there has no more indentation than one alone.
        let Ok(said) = serde_yaml::to_string(&[rule]) else { return text };
        text.replacen(&said, &format!("{comment}{said}"), 1)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn args(manifest: &Path) -> Rbac {
        Rbac {
            manifests: vec![manifest.to_owned()],
            ceilings: None,
            defaults: None,
            output: Documents::Yaml,
            namespace: "home".to_owned(),
            service_account: "account".to_owned(),
            name: Some("operator".to_owned()),
            aggregate_to: Vec::new(),
            plurals: Vec::new(),
            cluster_scoped: Vec::new(),
            subresources: Vec::new(),
        }
    }

    #[test]
    fn a_kind_that_no_manifest_names_is_refused_with_those_that_there_are() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("o.yaml");
        let text = "{ apiVersion: capstan.dev/v1alpha1, kind: Operator, metadata: { name: o }, spec: { \
            plugins: { p: { component: { path: p.wasm } } }, \
            controllers: { c: { plugin: p, primary: { apiVersion: a.dev/v1, kind: Page } } } } }";
        fs::write(&file, text).unwrap();
        let mut args = args(&file);
        args.plurals = vec![("Pgae.a.dev".to_owned(), "pages".to_owned())];
        assert_eq!(
            run(&args).unwrap_err().to_string(),
            "--plural Pgae.a.dev: no manifest names that kind; there are: Page.a.dev"
        );
    }

    #[test]
    fn what_definitions_beside_the_manifest_say_is_not_guessed_and_flags_count_for_more() {
        let text = "{ apiVersion: capstan.dev/v1alpha1, kind: Operator, metadata: { name: o }, spec: { \
            plugins: { p: { component: { path: p.wasm } } }, \
            controllers: { c: { plugin: p, primary: { apiVersion: a.dev/v1, kind: Person }, namespaces: own } } } }";
        let crd = "{ apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: { group: a.dev, scope: Cluster, \
            names: { kind: Person, plural: people }, versions: [{ name: v1, served: true }] } }";
        for (file, flag, expected) in [
            (None, None, ("persons", "home")),
            (Some("crd.yaml"), None, ("people", "*")),
            (Some("people.yaml"), None, ("people", "*")),
            (Some("crd.yaml"), Some("folk"), ("folk", "*")),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let manifest = folder.path().join("o.yaml");
            fs::write(&manifest, text).unwrap();
            if let Some(file) = file {
                fs::write(folder.path().join(file), crd).unwrap();
                fs::write(folder.path().join("dev.yaml"), format!("crds: [{file}]\n")).unwrap();
            }
            let mut args = args(&manifest);
            args.plurals.extend(flag.map(|plural| ("Person.a.dev".to_owned(), plural.to_owned())));
            let operators = operators::valid(&args.manifests).unwrap();
            let rights = rbac::rights(&operators, "home", &kinds(&args, &operators).unwrap());
            let all = rights.daemon.iter().flat_map(|(reach, rules)| rules.iter().map(move |rule| (reach, rule)));
            let found: Vec<_> =
                all.filter(|(_, rule)| &*rule.group == "a.dev" && !rule.resource.contains('/')).collect();
            let place = match found.as_slice() {
                [(Reach::Cluster, rule)] => (&*rule.resource, "*"),
                [(Reach::Namespace(namespace), rule)] => (&*rule.resource, &**namespace),
                others => panic!("{others:?}"),
            };
            assert_eq!(place, expected, "{file:?}");
        }
    }

    #[test]
    fn above_a_rule_by_which_rights_are_given_stands_what_is_to_be_given_by_hand() {
        let rule = |group: &str, resource: &str, verb: &str| json!({ "apiGroups": [group], "resources": [resource], "verbs": [verb] });
        let role = |rules: &[Value]| json!({ "kind": "ClusterRole", "rules": rules });
        for (rules, comment) in [
            (vec![rule("", "configmaps", "create"), rule(GROUP, "rolebindings", "create")], Some(BIND)),
            (vec![rule(GROUP, "clusterroles", "patch")], Some(ESCALATE)),
            (vec![rule(GROUP, "rolebindings", "list")], None),
            (vec![rule("apps", "deployments", "create")], None),
        ] {
            let said = text(Documents::Yaml, &[role(&rules)]).unwrap();
            let comment = comment.map(|comment| format!("{comment}- apiGroups:\n  - {GROUP}\n"));
            assert_eq!(said.contains('#'), comment.is_some(), "{said}");
            assert!(comment.is_none_or(|comment| said.contains(&comment)), "{said}");
            let read: Value = serde_yaml::from_str(&said).unwrap();
            assert_eq!(read, role(&rules));
        }
    }

    #[test]
    fn a_binding_joins_the_account_to_the_role_where_the_role_is() {
        let holder = Holder { role: "operator".to_owned(), own: "home", account: "account", namespace: "home" };
        let reach = Reach::Namespace("away".into());
        let expected = "\
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: home:operator
  namespace: away
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: home:operator
subjects:
- kind: ServiceAccount
  name: account
  namespace: home
";
        let text = text(Documents::Yaml, &[binding(&holder, &reach)]).unwrap();
        assert_eq!(text, expected);
    }
}
