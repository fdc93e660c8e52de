//! Decides which bulks share what they are looked at by with another dependent, which is right, and seldom meant.

use std::fmt::Write as _;

use super::{Controller, TEMPLATES};

/// Returns what is to be said of a controller's bulks: a component that reads the source of one gets the objects of other dependents of the kind,
/// too, unless a selector keeps them apart (`KD-10`).
pub fn crowded(controller: &Controller) -> Vec<String> {
    let mut said = Vec::new();
    if *controller.plugin == *TEMPLATES {
        return said;
    }
    let all = || controller.dependents();
    for (name, bulk) in all().filter(|(_, dependent)| dependent.bulk) {
        let declared = bulk.source.as_ref().and_then(|source| controller.sources.get(source));
        let is_apart = declared.is_some_and(|source| source.label_selector.is_some());
        let others: Vec<_> = all().filter(|(other, one)| *other != name && one.gvk == bulk.gvk).collect();
        if is_apart || others.is_empty() {
            continue;
        }
        let mut text =
            format!("`{name}` of controller {} is a bulk of {}, as are objects of ", controller.name, bulk.gvk);
        for (number, (other, _)) in others.iter().enumerate() {
            // Writing to a string cannot fail.
            let _infallible = write!(text, "{}`{other}`", if number == 0 { "" } else { ", " });
        }
        let source = bulk.source.as_ref().unwrap_or(name);
        let _infallible = write!(
            text,
            ": the source `{source}` shows the component all of them; give the bulk a `source` of its own with a `labelSelector`"
        );
        said.push(text);
    }
    said
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::parse;
    use super::*;

    #[test]
    fn a_bulk_that_shares_its_kind_with_another_dependent_is_named_unless_a_selector_keeps_them_apart() {
        // KD-10
        let said = |fields: &str| {
            let text = format!(
                "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: a }}\nspec:\n  plugins: {{ p: {{ component: {{ path: p.wasm }} }} }}\n  controllers:\n    c:\n      plugin: p\n      primary: {{ apiVersion: sample.dev/v1, kind: Page }}\n{fields}"
            );
            let operators = parse(&text, Path::new("m.yaml")).unwrap();
            crowded(operators.first().unwrap().controllers.values().next().unwrap())
        };
        let workflow = |bulk: &str, other: &str| {
            format!(
                "      workflow: {{ dependents: {{ maps: {{ apiVersion: v1, kind: ConfigMap, bulk: true{bulk} }}, index: {{ apiVersion: v1, kind: {other} }} }} }}\n"
            )
        };
        let source = "      sources: { own: { informer: { apiVersion: v1, kind: ConfigMap, mapper: ownerReference, labelSelector: a=b } } }\n";
        assert_eq!(said(&workflow("", "Secret")), [""; 0]);
        assert_eq!(
            said(&workflow("", "ConfigMap")),
            [
                "`maps` of controller c is a bulk of v1 ConfigMap, as are objects of `index`: the source `maps` shows the component all of them; give the bulk a `source` of its own with a `labelSelector`"
            ]
        );
        assert_eq!(said(&format!("{source}{}", workflow(", source: own", "ConfigMap"))), [""; 0]);
    }
}
