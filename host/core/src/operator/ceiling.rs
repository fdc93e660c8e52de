//! Decides whether an operator of another namespace than the daemon's own stays within its ceiling, and says what is too much (CE rules).

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;

use crate::manifest::{
    Authority, Bytes, Ceiling, Component, Controller, External, Image, Limits, Namespaces, Operator, Plugin, Time,
};
use crate::network::Destination;

pub mod kinds;

/// Returns what of an operator is more than its ceiling has, or reaches beyond its namespace: each with its field, and what would be right. `told` is what
/// the API server calls its kinds.
pub fn excess(operator: &Operator, namespace: &Arc<str>, ceiling: &Ceiling, told: &kinds::Told) -> Vec<String> {
    let mut excess = Excess { namespace, ceiling, found: BTreeSet::new() };
    for (name, plugin) in &operator.plugins {
        excess.plugin(&format!("spec.plugins.{name}"), plugin);
    }
    for controller in operator.controllers.values() {
        excess.account(controller);
        excess.controller(&format!("spec.controllers.{}", controller.own_name), controller);
    }
    if excess.found.is_empty() {
        // It is in its namespace already.
        excess.found = kinds::excess(operator, namespace, ceiling, told);
    }
    excess.found.into_iter().collect()
}

/// What is found to be too much.
struct Excess<'c> {
    namespace: &'c Arc<str>,
    ceiling: &'c Ceiling,
    found: BTreeSet<String>,
}

// === impl Excess ===

impl Excess<'_> {
    /// Adds what is found in a field, and what would be right there.
    fn add(&mut self, field: &str, found: impl Display, right: impl Display) {
        self.found.insert(format!("{field}: found {found}; the ceiling `{}` permits {right}", self.ceiling.name));
    }

    fn plugin(&mut self, field: &str, plugin: &Plugin) {
        match &plugin.component {
            Some(Component::Registry(image)) => self.image(field, image),
            Some(Component::File(_)) => self.add(&format!("{field}.component"), "a file", "components of registries"),
            None => {}
        }
        self.limits(field, &plugin.limits);
        let (ceiling, capabilities) = (self.ceiling, &plugin.capabilities);
        self.hosts(&format!("{field}.capabilities.http"), &capabilities.http, &ceiling.http);
        self.hosts(&format!("{field}.capabilities.tcp"), &capabilities.tcp, &ceiling.tcp);
        for (at, grant) in capabilities.kubernetes.iter().enumerate() {
            let field = format!("{field}.capabilities.kubernetes[{at}].namespaces");
            self.namespaces(&field, grant.namespaces.as_ref());
        }
    }

    fn image(&mut self, field: &str, Image { reference, authority, .. }: &Image) {
        if let Some(Authority::File(_)) = authority {
            self.add(&format!("{field}.component.ca"), "a file", "`secret` or `configMap`");
        }
        let name = reference.name();
        let is_below =
            |path: &Arc<str>| name.strip_prefix(&**path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if !self.ceiling.registries.iter().any(is_below) {
            let right = listed(&self.ceiling.registries, "no registry");
            self.add(&format!("{field}.component.oci"), format_args!("`{name}`"), right);
        }
    }

    fn limits(&mut self, field: &str, found: &Limits) {
        let sizes = |limits: &Limits| {
            let Limits { memory, timeout, concurrency, memo_run, memo_primary, memo_plugin, .. } = *limits;
            let Limits { requests, requests_per_second, connections, page, sources, log, .. } = *limits;
            let bytes = |bytes: usize| Bytes(bytes as u64).to_string();
            [
                ("memory", u128::from(memory), Bytes(memory).to_string()),
                ("timeout", timeout.as_millis(), Time(timeout).to_string()),
                ("concurrency", concurrency as u128, concurrency.to_string()),
                ("memo.run", memo_run as u128, bytes(memo_run)),
                ("memo.primary", memo_primary as u128, bytes(memo_primary)),
                ("memo.plugin", memo_plugin as u128, bytes(memo_plugin)),
                ("requests", requests.into(), requests.to_string()),
                ("requestsPerSecond", requests_per_second.into(), requests_per_second.to_string()),
                ("connections", connections as u128, connections.to_string()),
                ("page", page.into(), page.to_string()),
                ("sources", sources as u128, sources.to_string()),
                ("log", log as u128, bytes(log)),
            ]
        };
        let most = &self.ceiling.limits;
        for ((name, size, shown), (_, most, right)) in sizes(found).into_iter().zip(sizes(most)) {
            if size > most {
                self.add(&format!("{field}.limits.{name}"), shown, format_args!("{right} at most"));
            }
        }
        if let Some(most) = most.cpu.filter(|most| found.cpu.is_none_or(|cpu| cpu > *most)) {
            let shown = found.cpu.map_or_else(|| "none".to_owned(), |cpu| Time(cpu).to_string());
            self.add(&format!("{field}.limits.cpu"), shown, format_args!("{} at most", Time(most)));
        }
    }

    fn hosts(&mut self, field: &str, found: &[Destination], permitted: &[Destination]) {
        for destination in found {
            if !permitted.iter().any(|entry| entry.covers(destination)) {
                let internal = if destination.internal { ", among `internal`" } else { "" };
                let right = listed(permitted, "none");
                self.add(field, format_args!("`{destination}`{internal}"), right);
            }
        }
    }

    /// Finds namespaces other than the operator's own.
    fn namespaces(&mut self, field: &str, found: Option<&Namespaces>) {
        let shown = match found {
            None | Some(Namespaces::Own) => return,
            Some(Namespaces::Listed(names)) if names.iter().eq([self.namespace]) => return,
            Some(Namespaces::Listed(names)) => listed(names, ""),
            Some(Namespaces::All) => "all namespaces".to_owned(),
            Some(Namespaces::Selected(_)) => "a selector".to_owned(),
        };
        let right = format!("the namespace of the operator alone: `own`, which is {}", self.namespace);
        self.add(field, shown, right);
    }

    fn account(&mut self, controller: &Controller) {
        let accounts = &self.ceiling.service_accounts;
        match &controller.service_account {
            None => {
                self.add("spec.serviceAccount", "none", format_args!("{}, and one is needed", listed(accounts, "")));
            }
            Some(account) if account.namespace.as_ref().is_some_and(|namespace| namespace != self.namespace) => {
                let right = format!("accounts of the operator's namespace alone, {}", self.namespace);
                self.add("spec.serviceAccount.namespace", account.namespace.as_deref().unwrap_or_default(), right);
            }
            Some(account) if !accounts.contains(&account.name) => {
                self.add("spec.serviceAccount.name", format_args!("`{}`", account.name), listed(accounts, ""));
            }
            Some(_) => {}
        }
    }

    fn controller(&mut self, field: &str, controller: &Controller) {
        self.namespaces(&format!("{field}.namespaces"), Some(&controller.namespaces));
        for (name, source) in &controller.sources {
            self.namespaces(&format!("{field}.sources.{name}.informer.namespaces"), source.namespaces.as_ref());
        }
        if !controller.remotes.is_empty() {
            self.add(field, "other clusters", "this one alone");
        }
        if !controller.inbound.is_empty() && !self.ceiling.inbound {
            let names: BTreeSet<_> = controller.inbound.keys().collect();
            self.add(&format!("{field}.sources"), format_args!("`inbound` of {}", listed(names, "")), "none");
        }
        self.finalizers(field, controller);
        for (name, external) in &controller.externals {
            self.external(&format!("{field}.sources.{name}"), external);
        }
        let most = self.ceiling.limits.concurrency;
        if controller.concurrency > most {
            self.add(&format!("{field}.concurrency"), controller.concurrency, format_args!("{most} at most"));
        }
    }

    /// Finds finalizers that are named: others may use them, or wait for them. Former ones may be those of controllers of the namespace.
    fn finalizers(&mut self, field: &str, controller: &Controller) {
        let own = finalizer(self.namespace, &controller.own_name);
        if let Some(finalizer) = controller.finalizer.as_ref().filter(|finalizer| **finalizer != own) {
            let right = format!("the one that it has by itself, `{own}`");
            self.add(&format!("{field}.finalizer"), format_args!("`{finalizer}`"), right);
        }
        let prefix = finalizer(self.namespace, "");
        for former in controller.former_finalizers.iter().filter(|former| !former.starts_with(&*prefix)) {
            let right = format!("those of controllers of its namespace: `{prefix}CONTROLLER`");
            self.add(&format!("{field}.finalizers.formerly"), format_args!("`{former}`"), right);
        }
    }

    /// Finds things outside of the cluster that are more than manifests have by default.
    fn external(&mut self, field: &str, external: &External) {
        if external.things > External::THINGS {
            self.add(field, format_args!("{} things", external.things), format_args!("{} at most", External::THINGS));
        }
        if external.memory > External::MEMORY {
            let (found, most) = (Bytes(external.memory), Bytes(External::MEMORY));
            self.add(field, format_args!("{found} of things"), format_args!("{most} at most"));
        }
        let most = self.ceiling.limits.concurrency;
        if let Some(each) = external.each().filter(|each| each.concurrency > most) {
            let found = format!("{} polls at once", each.concurrency);
            self.add(field, found, format_args!("{most} at most"));
        }
    }
}

/// Returns a finalizer that no controller of another namespace uses (`CE-2`).
pub(super) fn finalizer(namespace: &str, controller: &str) -> Arc<str> {
    format!("{namespace}.operators.capstan.dev/{controller}").into()
}

/// Returns names with commas between them, or what stands for none.
fn listed<T: Display>(names: impl IntoIterator<Item = T>, none: &str) -> String {
    let names: Vec<_> = names.into_iter().map(|name| name.to_string()).collect();
    if names.is_empty() { none.to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use std::time::Duration;

    use crate::manifest::{Ceilings, Defaults, Instances, TEMPLATES, Warm, parse_object, parse_with};

    const CEILING: &str = "
apiVersion: capstan.dev/v1alpha1
kind: Ceilings
spec:
  ceilings:
    teams:
      namespaces: [team-a, team-b]
      serviceAccounts: [pages, shops]
      rules:
        - { apiGroups: [example.com], resources: [pages, pages/status], verbs: [get, list, watch, patch] }
        - { apiGroups: [\"\"], resources: [configmaps], verbs: [list, watch, create, patch, update] }
        - { apiGroups: [\"\"], resources: [events], verbs: [get, create, patch] }
      limits: { memory: 32Mi, cpu: 500ms, requestsPerSecond: 50 }
      http: ['*.example.com']
      registries: [ghcr.io/team-a]
";

    fn operator(changes: &[(&str, serde_json::Value)]) -> Operator {
        let mut object = serde_json::json!({
            "metadata": { "name": "web" },
            "spec": {
                "serviceAccount": { "name": "pages" },
                "plugins": { "web": {
                    "component": { "oci": "ghcr.io/team-a/web:1" },
                    "limits": { "memory": "16Mi", "cpu": "100ms", "requestsPerSecond": 10 },
                    "capabilities": { "http": ["api.example.com"] },
                } },
                "controllers": { "web": {
                    "plugin": "web",
                    "namespaces": "own",
                    "primary": { "apiVersion": "example.com/v1", "kind": "Page" },
                    "workflow": { "dependents": { "map": { "apiVersion": "v1", "kind": "ConfigMap" } } },
                } },
            },
        });
        for (pointer, value) in changes {
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            let parent = object.pointer_mut(&format!("/spec{parent}")).unwrap();
            parent.as_object_mut().unwrap().insert(name.to_owned(), value.clone());
        }
        parse_object(&object, Path::new("o"), &Defaults::default().below(&ceiling())).unwrap()
    }

    fn ceiling() -> Arc<Ceiling> {
        Arc::clone(Ceilings::parse(CEILING, Path::new("c")).unwrap().of("team-a").unwrap())
    }

    fn found(changes: &[(&str, serde_json::Value)]) -> Vec<String> {
        excess(&operator(changes), &"team-a".into(), &ceiling(), &kinds::Told::new())
    }

    #[test]
    fn what_nobody_has_written_is_as_much_as_a_ceiling_permits() {
        // CE-4
        use serde_json::json;
        let usual = Limits {
            memory: 32 << 20,
            cpu: Some(Duration::from_millis(500)),
            requests_per_second: 50,
            ..Limits::default()
        };
        let desired = json!({ "template": { "metadata": { "name": "a" } } });
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "desired": desired });
        let controller = json!({
            "namespaces": "own",
            "primary": { "apiVersion": "example.com/v1", "kind": "Page" },
            "workflow": { "dependents": { "map": map } },
        });
        for (changes, plugin) in [
            // A component, without a word, and with others.
            (vec![("/plugins/web/limits", json!(null))], "web"),
            (vec![("/plugins/web/limits", json!({ "page": 500 }))], "web"),
            // Templates, which can't say any (DT-5).
            (vec![("/plugins", json!(null)), ("/controllers", json!({ "web": controller }))], TEMPLATES),
        ] {
            assert_eq!(found(&changes), Vec::<String>::new());
            assert_eq!(operator(&changes).plugins[plugin].limits, usual);
        }
        // Warm instances are replaced in time, too.
        let warm = operator(&[("/plugins/web/limits", json!(null)), ("/plugins/web/instances", json!("warm"))]);
        assert_eq!(warm.plugins["web"].instances, Instances::Warm(Warm::within(32 << 20)));
    }

    #[test]
    fn as_many_runs_as_nobody_has_written_are_within_a_ceiling() {
        // CE-4
        let few = CEILING.replace("memory: 32Mi", "concurrency: 4, memory: 32Mi");
        let ceilings = Ceilings::parse(&few, Path::new("c")).unwrap();
        let ceiling = ceilings.of("team-a").unwrap();
        let usual = "apiVersion: capstan.dev/v1alpha1\nkind: Defaults\nspec: { controllers: { concurrency: 16 } }";
        let usual = Defaults::parse(usual, Path::new("d")).unwrap();
        let text = "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: { name: web }\nspec:\n  plugins: { p: { component: { path: p.wasm } } }\n  \
             controllers: { web: { plugin: p, primary: { apiVersion: v1, kind: ConfigMap } } }";
        let runs = |defaults: &Defaults| {
            let operator = parse_with(text, Path::new("o"), defaults).unwrap().remove(0);
            (operator.controllers["web"].concurrency, operator.plugins["p"].limits.concurrency)
        };
        assert_eq!(runs(&usual), (16, 8));
        assert_eq!(runs(&usual.below(ceiling)), (4, 4));
    }

    #[test]
    fn what_stays_below_a_ceiling_is_taken() {
        // CE-1
        assert_eq!(found(&[]), Vec::<String>::new());
        assert_eq!(found(&[("/controllers/web/namespaces", serde_json::json!(["team-a"]))]), Vec::<String>::new());
        // CE-2: what a controller had, too, that has another name by now.
        let former =
            serde_json::json!({ "formerly": ["team-a.operators.capstan.dev/web", "team-a.operators.capstan.dev/old"] });
        assert_eq!(found(&[("/controllers/web/finalizers", former)]), Vec::<String>::new());
    }

    #[test]
    fn an_authority_in_a_file_is_beyond_a_ceiling() {
        // CE-1: what a file says is checked before it is applied.
        let text = "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: { name: web }\nspec:\n  serviceAccount: { name: pages }\n  \
             plugins: { web: { component: { oci: 'ghcr.io/team-a/web:1', ca: { file: /etc/ca.crt } } } }\n  \
             controllers: { web: { plugin: web, namespaces: own, primary: { apiVersion: example.com/v1, kind: Page } } }";
        let operator = parse_with(text, Path::new("o"), &Defaults::default().below(&ceiling())).unwrap().remove(0);
        let found = excess(&operator, &"team-a".into(), &ceiling(), &kinds::Told::new());
        let expected =
            "spec.plugins.web.component.ca: found a file; the ceiling `teams` permits `secret` or `configMap`";
        assert_eq!(found, [expected]);
    }

    #[test]
    fn kinds_that_live_in_no_namespace_are_beyond_a_ceiling() {
        // CE-2
        let namespaces = serde_json::json!({ "apiVersion": "v1", "kind": "Namespace" });
        let found = found(&[("/controllers/web/primary", namespaces)]);
        let expected = "spec.controllers.web.primary: found v1 Namespace, which lives in no namespace; the ceiling `teams` permits what lives in team-a alone";
        assert_eq!(found, [expected]);
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn what_is_too_much_is_said_with_the_field() {
        // CE-2, CE-3, CE-4
        use serde_json::json;
        let teams = "the ceiling `teams` permits";
        for (field, value, expected) in [
            (
                "/controllers/web/namespaces",
                json!("all"),
                "spec.controllers.web.namespaces: found all namespaces; {} the namespace of the operator alone: `own`, which is team-a",
            ),
            (
                "/controllers/web/namespaces",
                json!(["team-b"]),
                "spec.controllers.web.namespaces: found team-b; {} the namespace of the operator alone: `own`, which is team-a",
            ),
            (
                "/controllers/web/namespaces",
                json!({ "selector": "a=b" }),
                "spec.controllers.web.namespaces: found a selector; {} the namespace of the operator alone: `own`, which is team-a",
            ),
            ("/controllers/web/concurrency", json!(9), "spec.controllers.web.concurrency: found 9; {} 8 at most"),
            (
                "/controllers/web/primary",
                json!({ "apiVersion": "v1", "kind": "Secret" }),
                "spec.controllers.web.primary: found a need for get, list, watch, patch of secrets; {} nothing of it",
            ),
            (
                "/controllers/web/workflow/dependents/map/onRename",
                json!("delete"),
                "spec.controllers.web.workflow.dependents.map: found a need for delete of configmaps; {} list, watch, create, update, patch",
            ),
            (
                "/controllers/web/sources",
                json!({ "s": { "informer": { "apiVersion": "v1", "kind": "ConfigMap", "namespaces": "all" } } }),
                "spec.controllers.web.sources.s.informer.namespaces: found all namespaces; {} the namespace of the operator alone: `own`, which is team-a",
            ),
            ("/serviceAccount", json!({ "name": "admin" }), "spec.serviceAccount.name: found `admin`; {} pages, shops"),
            (
                "/serviceAccount",
                json!({ "name": "pages", "namespace": "team-b" }),
                "spec.serviceAccount.namespace: found team-b; {} accounts of the operator's namespace alone, team-a",
            ),
            ("/serviceAccount", json!(null), "spec.serviceAccount: found none; {} pages, shops, and one is needed"),
            (
                "/plugins/web/component",
                json!({ "oci": "ghcr.io/team-ab/web:1" }),
                "spec.plugins.web.component.oci: found `ghcr.io/team-ab/web`; {} ghcr.io/team-a",
            ),
            (
                "/plugins/web/limits/memory",
                json!("64Mi"),
                "spec.plugins.web.limits.memory: found 64Mi; {} 32Mi at most",
            ),
            ("/plugins/web/limits/timeout", json!("10s"), "spec.plugins.web.limits.timeout: found 10s; {} 5s at most"),
            ("/plugins/web/limits/cpu", json!("600ms"), "spec.plugins.web.limits.cpu: found 600ms; {} 500ms at most"),
            ("/plugins/web/limits/log", json!("1Mi"), "spec.plugins.web.limits.log: found 1Mi; {} 64Ki at most"),
            (
                "/plugins/web/limits/memo",
                json!({ "plugin": "1Mi" }),
                "spec.plugins.web.limits.memo.plugin: found 1Mi; {} 64Ki at most",
            ),
            ("/plugins/web/limits/page", json!(501), "spec.plugins.web.limits.page: found 501; {} 500 at most"),
            (
                "/controllers/web/finalizer",
                json!("a.dev/f"),
                "spec.controllers.web.finalizer: found `a.dev/f`; {} the one that it has by itself, `team-a.operators.capstan.dev/web`",
            ),
            (
                "/controllers/web/finalizers",
                json!({ "formerly": ["a.dev/f"] }),
                "spec.controllers.web.finalizers.formerly: found `a.dev/f`; {} those of controllers of its namespace: `team-a.operators.capstan.dev/CONTROLLER`",
            ),
            (
                "/controllers/web/finalizers",
                json!({ "formerly": ["team-a.operators.capstan.dev/old", "team-b.operators.capstan.dev/web"] }),
                "spec.controllers.web.finalizers.formerly: found `team-b.operators.capstan.dev/web`; {} those of controllers of its namespace: `team-a.operators.capstan.dev/CONTROLLER`",
            ),
            (
                "/plugins/web/limits/requestsPerSecond",
                json!(51),
                "spec.plugins.web.limits.requestsPerSecond: found 51; {} 50 at most",
            ),
            (
                "/plugins/web/capabilities/http",
                json!(["example.com"]),
                "spec.plugins.web.capabilities.http: found `example.com`; {} *.example.com",
            ),
            (
                "/plugins/web/capabilities/tcp",
                json!(["db.example.com:1"]),
                "spec.plugins.web.capabilities.tcp: found `db.example.com:1`; {} none",
            ),
            (
                "/plugins/web/capabilities/kubernetes",
                json!([{ "apiVersion": "v1", "kind": "ConfigMap", "verbs": ["get"], "namespaces": "all" }]),
                "spec.plugins.web.capabilities.kubernetes[0].namespaces: found all namespaces; {} the namespace of the operator alone: `own`, which is team-a",
            ),
            (
                "/plugins/web/capabilities/kubernetes",
                json!([{ "apiVersion": "v1", "kind": "ConfigMap", "verbs": ["delete"] }]),
                "spec.controllers.web.workflow.dependents.map, spec.plugins.web.capabilities.kubernetes[0]: found a need for delete of configmaps; {} list, watch, create, update, patch",
            ),
            (
                "/plugins/web/configFrom",
                json!({ "a": { "secret": { "name": "s" } } }),
                "spec.plugins.web.configFrom.a: found a need for get of secrets; {} nothing of it",
            ),
            (
                "/plugins/web/component",
                json!({ "oci": "ghcr.io/team-a/web:1", "pullSecret": "pull", "ca": { "secret": { "name": "ca" } } }),
                "spec.plugins.web.component.pullSecret, spec.plugins.web.component.ca: found a need for get of secrets; {} nothing of it",
            ),
        ] {
            let found = found(&[(field, value)]);
            assert_eq!(found.first(), Some(&expected.replace("{}", teams)), "{field}");
        }
    }
}
