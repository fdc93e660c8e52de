//! Tests of what is told of versions, row by row.

use std::path::Path;

use super::*;
use crate::guest::{Description, KnownNames, Names};
use crate::manifest;
use crate::operator::wants::About;
use crate::registry::artifact::Interfaces;
use crate::rollout::plan::{Attempt, Content, attempts};
use crate::rollout::values::{Given, Values};

fn about(imports: &[&str], exports: &[&str], size: u64) -> About {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    About { interfaces: Interfaces { imports: owned(imports), exports: owned(exports) }, size }
}

fn told(before: &About, after: &About) -> Vec<String> {
    difference(&Wants::of_component(before), &Wants::of_component(after)).all()
}

#[test]
fn what_a_version_asks_for_and_offers_otherwise_is_told_line_by_line() {
    // SG-8, AP-1
    let before =
        about(&["wasi:http/handler@0.2.0", "capstan:operator/log@0.1.0", "gone"], &["a:b/reconciler@1.0.0"], 10);
    let after = about(
        &["wasi:http/handler@0.2.0", "capstan:operator/log@0.2.0", "wasi:io/poll@0.2.0", "new:x/y@2.0.0"],
        &["a:b/reconciler@1.0.0"],
        12,
    );
    let expected = [
        "import + new:x/y@2.0.0 (more)",
        "import capstan:operator/log@0.1.0 → 0.2.0",
        "import + wasi:io/poll@0.2.0",
        "import - gone",
        "contract 0.1.0 → 0.2.0",
        "size 10 → 12 bytes",
    ];
    assert_eq!(told(&before, &after), expected);
    let other = told(&after, &about(&[], &["e\n"], 12));
    assert!(other.contains(&r"export + e\n".to_owned()), "{other:?}");
    assert_eq!(other.last().map(String::as_str), Some("export - a:b/reconciler@1.0.0"));
    assert_eq!(told(&after, &after), [""; 0]);
    let many: Vec<String> = (0..99).map(|n| n.to_string()).collect();
    let many = About { interfaces: Interfaces { imports: many, exports: Vec::new() }, size: 12 };
    let told = told(&about(&[], &[], 12), &many);
    assert_eq!((told.len(), told.last().map(String::as_str)), (51, Some("and 49 more")));
}

const PLUGIN: &str = "component: { oci: ghcr.io/org/web:1 }";
const CONTROLLER: &str = "plugin: web, primary: { apiVersion: a.dev/v1, kind: Page }, namespaces: [a]";

fn wants((plugin, controller, operator): (&str, &str, &str)) -> Wants {
    let text = format!(
        "{{ apiVersion: capstan.dev/v1alpha1, kind: Operator, metadata: {{ name: o }}, spec: {{ plugins: {{ web: {{ {plugin} }} }}, controllers: {{ pages: {{ {controller} }} }}, {operator} }} }}"
    );
    let operators = manifest::parse(&text, Path::new("o.yaml")).unwrap_or_else(|errors| panic!("{errors}"));
    let of_manifest = Wants::of_manifest(&operators[0]);
    // Attempts say the same as the manifest that they are of.
    let given = |_: &manifest::Plugin| Given::All(Values::default());
    let all = attempts(&operators[0], |_| Content::Missing, given, |_| None);
    let none = || (None::<&About>, None::<&Description>);
    let add = |wants: Wants, (unit, attempt): (_, &Attempt)| wants.and(unit, attempt, none());
    let of_attempts = all.iter().map(|(unit, attempt)| (&*unit.plugin, attempt)).fold(Wants::default(), add);
    assert_eq!(of_attempts, of_manifest);
    of_manifest
}

/// Returns what is told of a change of a manifest, and of the change back.
fn both(before: (&str, &str, &str), after: (&str, &str, &str)) -> (String, String) {
    let (before, after) = (wants(before), wants(after));
    let told = |difference: Difference| difference.all().join("; ");
    assert_eq!(before.given() == after.given(), before == after);
    (told(difference(&before, &after)), told(difference(&after, &before)))
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn what_a_plugin_is_given_otherwise_is_told_and_which_of_it_is_more() {
    // AP-1
    const SIGNED: &str = "-----BEGIN PUBLIC KEY-----\\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\\n-----END PUBLIC KEY-----\\n";
    let plugin = |more: &str| format!("{PLUGIN}, {more}");
    let component = |more: &str| format!("component: {{ oci: ghcr.io/org/web:1, {more} }}");
    let grant =
        |more: &str| plugin(&format!("capabilities: {{ kubernetes: [{{ apiVersion: v1, kind: Secret, {more} }}] }}"));
    let hosts = |more: &str| plugin(&format!("capabilities: {{ {more} }}"));
    let base = || PLUGIN.to_owned();
    let signed = || component(&format!("verify: {{ keys: [\"{SIGNED}\"] }}"));
    // Of plugins: before, after, what is told, and what is told of the way back.
    let rows: Vec<(String, String, &str, &str)> = vec![
        (base(), plugin("onSwap: nothing"), "", ""),
        (base(), "component: { oci: 'ghcr.io/org/web:2' }".to_owned(), "", ""),
        (
            base(),
            "component: { oci: 'evil.io/web:1' }".to_owned(),
            "plugin web: component from + evil.io/web (more); plugin web: component from - ghcr.io/org/web",
            "plugin web: component from + ghcr.io/org/web (more); plugin web: component from - evil.io/web",
        ),
        (base(), grant("verbs: [get]"), "plugin web: get v1 Secret in + a (more)", "plugin web: get v1 Secret in - a"),
        (
            grant("verbs: [get]"),
            grant("verbs: [get], namespaces: all"),
            "plugin web: get v1 Secret in + all namespaces (more); plugin web: get v1 Secret in - a",
            "plugin web: get v1 Secret in + a; plugin web: get v1 Secret in - all namespaces",
        ),
        (
            hosts("http: ['*.example.com']"),
            hosts("http: ['a.example.com']"),
            "plugin web: HTTP to + a.example.com; plugin web: HTTP to - *.example.com",
            "plugin web: HTTP to + *.example.com (more); plugin web: HTTP to - a.example.com",
        ),
        (
            hosts("http: [a.example.com]"),
            hosts("http: [a.example.com], internal: [a.example.com]"),
            "plugin web: HTTP to + a.example.com, also in private networks (more); plugin web: HTTP to - a.example.com",
            "plugin web: HTTP to + a.example.com; plugin web: HTTP to - a.example.com, also in private networks",
        ),
        (
            base(),
            plugin("limits: { memory: 128Mi, timeout: 1s }"),
            "plugin web: limits.memory 67108864 → 134217728 bytes (more); plugin web: limits.timeout 5000 → 1000 ms",
            "plugin web: limits.timeout 1000 → 5000 ms (more); plugin web: limits.memory 134217728 → 67108864 bytes",
        ),
        (
            base(),
            plugin("limits: { cpu: 500ms }"),
            "plugin web: limits.cpu unlimited → 500 ms in each second",
            "plugin web: limits.cpu 500 → unlimited ms in each second (more)",
        ),
        (
            plugin("isolation: process"),
            base(),
            "plugin web: run in + the daemon's process (more)",
            "plugin web: run in - the daemon's process",
        ),
        (
            signed(),
            base(),
            "plugin web: component signed by + anybody, as far as the manifest is concerned (more); plugin web: component signed by - sha256:",
            "plugin web: component signed by + sha256:",
        ),
        (
            base(),
            component("insecure: true"),
            "plugin web: component by + HTTP without TLS (more)",
            "plugin web: component by - HTTP without TLS",
        ),
        (
            base(),
            plugin("configFrom: { password: { secret: { name: db } } }"),
            "plugin web: read + Secret db, key password (more)",
            "plugin web: read - Secret db, key password",
        ),
    ];
    for (before, after, expected, back) in rows {
        let found = both((&before, CONTROLLER, ""), (&after, CONTROLLER, ""));
        assert!(found.0.starts_with(expected) && found.0.is_empty() == expected.is_empty(), "{after}: {}", found.0);
        assert!(found.1.starts_with(back) && found.1.is_empty() == back.is_empty(), "{after}: {}", found.1);
    }
}

#[test]
fn what_controllers_and_operators_are_given_otherwise_is_told_too() {
    // AP-1
    let controller = |more: &str| format!("{CONTROLLER}, {more}");
    let elsewhere = "plugin: web, primary: { apiVersion: a.dev/v1, kind: Page }, namespaces: [a], labelSelector: x";
    let rows: Vec<(String, &str, &str)> = vec![
        (controller("retry: none"), "", ""),
        (
            elsewhere.to_owned(),
            "controller pages: work on a.dev/v1 Page in + a, labels x; controller pages: work on a.dev/v1 Page in - a",
            "controller pages: work on a.dev/v1 Page in + a (more)",
        ),
        (
            controller("concurrency: 9"),
            "controller pages: concurrency 8 → 9 (more)",
            "controller pages: concurrency 9 → 8",
        ),
        (
            controller(
                "workflow: { dependents: { map: { apiVersion: v1, kind: ConfigMap, manage: [create, update] } } }",
            ),
            "controller pages: create v1 ConfigMap in + a (more); controller pages: update v1 ConfigMap in + a (more); controller pages: watch v1 ConfigMap in + a (more)",
            "controller pages: create v1 ConfigMap in - a",
        ),
        (
            controller(
                "sources: { maps: { informer: { apiVersion: v1, kind: ConfigMap, namespaces: all, mapper: ownerReference } } }",
            ),
            "controller pages: watch v1 ConfigMap in + all namespaces (more)",
            "controller pages: watch v1 ConfigMap in - all namespaces",
        ),
        (
            controller("sources: { hook: { inbound: { token: none } } }"),
            "controller pages: requests to hook by + anybody (more)",
            "controller pages: requests to hook by - anybody",
        ),
    ];
    for (after, expected, back) in rows {
        let found = both((PLUGIN, CONTROLLER, ""), (PLUGIN, &after, ""));
        let fits = |found: &str, expected: &str| found.contains(expected) && found.is_empty() == expected.is_empty();
        assert!(fits(&found.0, expected) && fits(&found.1, back), "{after}: {found:?}");
    }
    for (before, after, expected) in [
        ("onNewVersion: ask", "onNewVersion: apply", "operator: new versions + without an approval (more)"),
        ("onNewVersion: apply", "", ""),
        (
            "serviceAccount: { name: pages }",
            "",
            "operator: act as + the daemon (more); operator: act as - ServiceAccount pages",
        ),
    ] {
        assert_eq!(both((PLUGIN, CONTROLLER, before), (PLUGIN, CONTROLLER, after)).0, expected);
    }
}

#[test]
fn a_first_version_wants_all_that_it_is_given_and_a_new_name_is_nothing_more() {
    // AP-1, AP-2
    let first = wants((PLUGIN, CONTROLLER, "onNewVersion: ask"));
    let found = difference(&Wants::default(), &first);
    let expected = [
        "controller pages: work on a.dev/v1 Page in + a (more)",
        "operator: act as + the daemon (more)",
        "plugin web: component from + ghcr.io/org/web (more)",
        "plugin web: component signed by + anybody, as far as the manifest is concerned (more)",
        "plugin web: run in + the daemon's process (more)",
    ];
    assert_eq!(found.all(), expected);
    let names = |names: &[&str]| Description {
        entries: vec![KnownNames {
            exported: "condition".to_owned(),
            controller: Some("pages".to_owned()),
            names: Names::These(names.iter().map(|name| (*name).to_owned()).collect()),
        }],
    };
    let text = format!(
        "{{ apiVersion: capstan.dev/v1alpha1, kind: Operator, metadata: {{ name: o }}, spec: {{ plugins: {{ web: {{ {PLUGIN} }} }}, controllers: {{ pages: {{ {CONTROLLER} }} }} }} }}"
    );
    let operator = manifest::parse(&text, Path::new("o.yaml")).unwrap().remove(0);
    let given = |_: &manifest::Plugin| Given::All(Values::default());
    let (_, attempt) = attempts(&operator, |_| Content::Missing, given, |_| None).pop_first().unwrap();
    let with = |known: &[&str], imports: &[&str]| {
        Wants::default().and("web", &attempt, (Some(&about(imports, &[], 1)), Some(&names(known))))
    };
    let found = difference(&with(&["ready"], &[]), &with(&["ready", "done"], &["wasi:sockets/tcp@0.2.0"]));
    let expected = [
        "plugin web: import + wasi:sockets/tcp@0.2.0 (more)",
        "plugin web: name + condition done of the controller pages",
    ];
    assert_eq!((found.wants_more, found.all()), (true, expected.map(str::to_owned).to_vec()));
    assert!(!difference(&with(&["ready"], &[]), &with(&["done"], &["wasi:io/poll@0.2.0"])).wants_more);
    // It is no part of what the manifest gives.
    assert_eq!(with(&["ready"], &[]).given(), with(&[], &["wasi:sockets/tcp@0.2.0"]).given());
    let json = serde_json::to_value(&difference(&with(&["a"], &[]), &with(&[], &["x"])).lines[0]).unwrap();
    assert_eq!(json, serde_json::json!({ "of": "plugin web", "what": "import", "after": "x", "more": true }));
}
