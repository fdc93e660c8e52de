//! `capstan rbac`: prints the roles that the daemon needs for manifests, bound to its service account.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use capstan_core::manifest::Operator;
use capstan_core::rbac::{self, Kinds, Reach, Rule};
use serde_json::{Value, json};

use crate::args::{Documents, Rbac, Source};
use crate::operators::{self, Read};

/// The API group of roles.
const GROUP: &str = "rbac.authorization.k8s.io";

/// Prints roles and bindings.
///
/// # Errors
/// If a manifest can't be read or is wrong, or a flag names a kind that no manifest names.
pub fn run(args: &Rbac) -> anyhow::Result<ExitCode> {
    let operators = read(args)?;
    let kinds = kinds(args, &rbac::kind_names(&operators))?;
    let rules = rbac::rules(&operators, &args.namespace, &kinds);
    let objects: Vec<Value> = rules
        .iter()
        .flat_map(|(reach, rules)| [role(args, reach, rules), binding(args, reach)])
        .collect();
    crate::print(&text(args.output, &objects)?)
}

fn read(args: &Rbac) -> anyhow::Result<Vec<Operator>> {
    let source = Source {
        manifests: args.manifests.clone(),
        code_cache: None,
    };
    let Read {
        operators,
        problems,
    } = operators::read(&source)?;
    if !problems.is_empty() {
        let texts: Vec<_> = problems.into_iter().map(|(_, text)| text).collect();
        bail!("not all manifests are valid:\n{}", texts.join("\n"));
    }
    Ok(operators)
}

/// Reads what the flags say of kinds; one that no manifest names is misspelt.
fn kinds(args: &Rbac, known: &BTreeSet<String>) -> anyhow::Result<Kinds> {
    let check = |flag: &str, kind: &str| {
        let names: Vec<_> = known.iter().map(String::as_str).collect();
        let names = names.join(", ");
        ensure!(
            known.contains(kind),
            "{flag} {kind}: no manifest names that kind; there are: {names}"
        );
        Ok(())
    };
    let mut kinds = Kinds::default();
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

fn role(args: &Rbac, reach: &Reach, rules: &[Rule]) -> Value {
    let rules = rules.iter().map(|rule| {
        let verbs: Vec<_> = rule.verbs.iter().map(|verb| verb.name()).collect();
        json!({ "apiGroups": [&*rule.group], "resources": [rule.resource], "verbs": verbs })
    });
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": role_kind(reach),
        "metadata": metadata(args, reach),
        "rules": rules.collect::<Vec<_>>(),
    })
}

fn binding(args: &Rbac, reach: &Reach) -> Value {
    let account = json!({ "kind": "ServiceAccount", "name": args.service_account, "namespace": args.namespace });
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": format!("{}Binding", role_kind(reach)),
        "metadata": metadata(args, reach),
        "roleRef": { "apiGroup": GROUP, "kind": role_kind(reach), "name": args.name },
        "subjects": [account],
    })
}

fn role_kind(reach: &Reach) -> &'static str {
    match reach {
        Reach::Cluster => "ClusterRole",
        Reach::Namespace(_) => "Role",
    }
}

fn metadata(args: &Rbac, reach: &Reach) -> Value {
    match reach {
        Reach::Cluster => json!({ "name": args.name }),
        Reach::Namespace(namespace) => json!({ "name": args.name, "namespace": &**namespace }),
    }
}

fn text(output: Documents, objects: &[Value]) -> anyhow::Result<String> {
    match output {
        Documents::Json => {
            let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
            Ok(format!("{list:#}\n"))
        }
        Documents::Yaml => {
            let texts = objects.iter().map(serde_yaml::to_string);
            let texts = texts.collect::<Result<Vec<_>, _>>().context("write YAML")?;
            Ok(texts.join("---\n"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn args(manifest: &Path) -> Rbac {
        Rbac {
            manifests: vec![manifest.to_owned()],
            output: Documents::Yaml,
            namespace: "home".to_owned(),
            service_account: "account".to_owned(),
            name: "operator".to_owned(),
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
    fn a_binding_joins_the_account_to_the_role_where_the_role_is() {
        let args = args(Path::new("o.yaml"));
        let reach = Reach::Namespace("away".into());
        let expected = "\
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: operator
  namespace: away
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: operator
subjects:
- kind: ServiceAccount
  name: account
  namespace: home
";
        let text = text(Documents::Yaml, &[binding(&args, &reach)]).unwrap();
        assert_eq!(text, expected);
    }
}
