//! Releases beside each other in a cluster: none takes what another one has, be it a name or the definition of operators.

use super::*;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A cluster that has none of our kinds, and releases of the same name in two namespaces.
struct Two {
    cluster: Cluster,
    homes: [cluster::Namespace; 2],
    team: cluster::Namespace,
}

impl Two {
    fn new() -> Self {
        let cluster = Cluster::start(&Options::default()).unwrap();
        let homes = ["first", "second"].map(|name| cluster.namespace(name).unwrap());
        let team = cluster.namespace("team").unwrap();
        Self { cluster, homes, team }
    }

    /// Installs a release, or upgrades it, with what gives it names in the whole cluster and in a namespace that both work in.
    fn release(&self, home: usize, chart: &str, more: &str) -> Result<String, String> {
        let operator = rights::manifest(json!({}), json!({ "namespaces": [self.team.name()] }));
        let values = json!({
            "metrics": { "enabled": true, "readers": [{ "kind": "ServiceAccount", "name": "p", "namespace": "monitoring" }] },
            "operatorObjects": { "enabled": true },
            "operators": { "o": { "manifest": operator, "components": {} } },
            "rbac": { "extraRules": [{ "verbs": ["get"], "nonResourceURLs": ["/version"] }] },
        });
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(&file, values.to_string()).unwrap();
        let (home, file) = (self.homes[home].name(), file.path().to_str().unwrap());
        let install = ["upgrade", "--install", "capstan", chart, "--namespace", home, "--values", file];
        helm(&self.cluster, &[&install[..], &["--set", more]].concat())
    }

    fn definition(&self) -> Value {
        let definition = self.cluster.api().find(&format!("{DEFINITIONS}/operators.capstan.dev")).unwrap();
        definition.expect("the definition")
    }

    /// Returns who is bound to the daemon's roles in the whole cluster, and in the namespace that both work in.
    fn accounts(&self) -> BTreeSet<String> {
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let roles = format!("{rbac}/namespaces/{}/rolebindings", self.team.name());
        let mut accounts = BTreeSet::new();
        for path in [format!("{rbac}/clusterrolebindings"), roles] {
            let bindings = self.cluster.api().get(&path).unwrap();
            for binding in bindings["items"].as_array().unwrap() {
                let name = binding["metadata"]["name"].as_str().unwrap();
                let subjects = binding["subjects"].as_array().into_iter().flatten();
                let ours = subjects.filter(|subject| subject["name"] == "capstan");
                let kind = name.rsplit_once("capstan").map_or("", |(_, kind)| kind);
                accounts.extend(ours.map(|subject| format!("{} {kind}", subject["namespace"].as_str().unwrap())));
            }
        }
        accounts
    }
}

/// Returns a copy of the chart of this version, whose definition of operators is in this category.
fn chart_of(version: &str, category: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let copy = std::process::Command::new("cp").arg("-r").arg(chart()).arg(folder.path()).status().unwrap();
    assert!(copy.success());
    let edit = |file: &str, from: &str, to: &str| {
        let path = folder.path().join("capstan").join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{from} in {text}");
        fs::write(path, text.replacen(from, to, 1)).unwrap();
    };
    edit("Chart.yaml", "\nversion: ", &format!("\nversion: {version} # "));
    edit("files/operators.yaml", "    - capstan\n", &format!("    - {category}\n"));
    folder
}

#[test]
fn releases_of_one_name_in_two_namespaces_have_names_of_their_own_and_the_first_keeps_the_definitions() {
    let two = Two::new();
    let [old, new] = [("0.1.0", "old"), ("0.2.0-rc.1", "new")].map(|(version, category)| chart_of(version, category));
    let [old, new] = [&old, &new].map(|folder| folder.path().join("capstan").display().to_string());
    let category = || two.definition()["spec"]["names"]["categories"][0].clone();
    two.release(0, &old, "").unwrap();
    assert_eq!(category(), "old");
    let said = two.release(1, &new, "").unwrap();
    let first = two.homes[0].name();
    assert!(
        said.contains(&format!("operators.capstan.dev is that of the release capstan in namespace {first}")),
        "{said}"
    );
    assert_eq!(category(), "old", "it is not the second one's");
    let homes = two.homes.each_ref().map(cluster::Namespace::name);
    let each = |kind: &str| homes.map(|home| format!("{home} {kind}"));
    let expected: BTreeSet<_> = ["", "-extra", "-metrics-auth"].iter().flat_map(|kind| each(kind)).collect();
    assert_eq!(two.accounts(), expected);

    // The first one is upgraded, and goes back.
    two.release(0, &new, "").unwrap();
    assert_eq!(category(), "new");
    let said = two.release(0, &old, "").unwrap();
    assert!(said.contains("operators.capstan.dev is that of version 0.2.0-rc.1 of the chart"), "{said}");
    assert_eq!(category(), "new", "operators may have fields by then that the old one does not know");
    two.release(0, &new, "drain=1m").unwrap();
    assert_eq!(category(), "new");
    // Helm itself puts back what it once rendered, which no chart can keep it from.
    helm(&two.cluster, &["rollback", "capstan", "1", "--namespace", first]).unwrap();
    assert_eq!(category(), "old");
    two.release(0, &new, "").unwrap();
    assert_eq!(category(), "new");
    // The first one goes, and the second takes over by the command that it prints.
    helm(&two.cluster, &["uninstall", "capstan", "--namespace", first]).unwrap();
    let said = two.release(1, &old, "").unwrap();
    for line in said.lines().filter_map(|line| line.trim().strip_prefix("kubectl annotate ")) {
        two.cluster.kubectl(&[&["annotate"][..], &line.split(' ').collect::<Vec<_>>()].concat()).unwrap();
    }
    two.release(1, &old, "drain=1m").unwrap();
    assert_eq!(category(), "old");
}
