//! Decides whether a kind can have the standard conditions: their place in its status, as a map list by type (SC-5).

use super::super::Controller;
use super::{Ask, At, Search};
use crate::budget::{Budget, Exceeded};
use crate::conditions::FIELDS;
use crate::schema::{Known, Schema};

/// Where they are.
const PATH: [&str; 2] = ["status", "conditions"];

/// Returns whether the kind of a controller's primaries can have the standard conditions; `None` if that is not known.
///
/// # Errors
/// [`Exceeded`] if that costs too much.
pub fn can_have(controller: &Controller, known: &Ask<'_>, budget: &mut Budget) -> Result<Option<bool>, Exceeded> {
    let Known::Served(kind) = known(&controller.primary, controller.cluster.as_ref()) else {
        return Ok(None);
    };
    match &kind.schema {
        Some(schema) => Ok(Some(kind.status != Some(false) && lack(schema, budget)?.is_none())),
        None => Ok((kind.status == Some(false)).then_some(false)),
    }
}

/// Returns what a schema lacks of what they need.
fn lack(schema: &Schema<'_>, budget: &mut Budget) -> Result<Option<String>, Exceeded> {
    if schema.lack(&PATH, budget)?.is_some() {
        return Ok(Some("has no field `conditions` in `/status`".to_owned()));
    }
    if !schema.is_map_by("type", &PATH, budget)? {
        let text = "has `/status/conditions` not as a map by `type`, so that what others write there would be lost; expected `x-kubernetes-list-type: map` and `x-kubernetes-list-map-keys: [type]`";
        return Ok(Some(text.to_owned()));
    }
    for field in FIELDS {
        let [status, conditions] = PATH;
        if schema.lack(&[status, conditions, "0", field], budget)?.is_some() {
            return Ok(Some(format!("has no field `{field}` in the entries of `/status/conditions`")));
        }
    }
    Ok(None)
}

impl Search<'_, '_> {
    /// Finds conditions that the kind of primaries can't have.
    pub(super) fn conditions(&mut self, base: &str, primary: At<'_>, controller: &Controller) -> Result<(), Exceeded> {
        if !controller.keeps_conditions() {
            return Ok(());
        }
        self.looked.insert((primary.gvk.clone(), primary.cluster.cloned()));
        let Some(kind) = self.kind(primary) else {
            return Ok(());
        };
        let schema = kind.schema.as_ref();
        let lack = schema.map(|schema| lack(schema, self.budget)).transpose()?.flatten();
        let whole = (kind.status == Some(false)).then(|| "has no subresource `status`".to_owned());
        let lacks: Vec<_> = whole.into_iter().chain(lack).collect();
        if !lacks.is_empty() {
            let lacks = lacks.join(", and ");
            self.tell(format!("{base}.statusConditions"), format!("found `standard`; {} {lacks}", primary.gvk));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::misfits;
    use super::*;
    use crate::manifest::parse;
    use crate::schema::{Definition, definitions};

    const ENTRY: &str = "type: { type: string }, status: { type: string }, observedGeneration: { type: integer }, lastTransitionTime: { type: string }, reason: { type: string }, message: { type: string }";

    fn definition(status: &str, subresource: &str) -> Vec<Definition> {
        let text = format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec:\n  group: sample.dev\n  names: {{ kind: Page }}\n  scope: Namespaced\n  versions:\n    - name: v1\n      served: true\n      subresources: {{ {subresource} }}\n      schema: {{ openAPIV3Schema: {{ type: object, properties: {{ status: {status} }} }} }}\n"
        );
        definitions(&text, Path::new("crd.yaml")).unwrap_or_else(|errors| panic!("{errors}"))
    }

    fn conditions(list: &str, entry: &str) -> String {
        format!(
            "{{ type: object, properties: {{ conditions: {{ type: array, {list} items: {{ type: object, properties: {{ {entry} }} }} }} }} }}"
        )
    }

    #[test]
    fn a_kind_without_a_place_for_conditions_is_found() {
        // SC-5, LC-14
        const MAP: &str = "x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [type],";
        let no_map = "has `/status/conditions` not as a map by `type`";
        let with = |status: &str, asks: &str, subresource: &str| {
            let text = format!(
                "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: a }}\nspec:\n  plugins: {{ p: {{ component: {{ path: p.wasm }} }} }}\n  controllers:\n    pages: {{ plugin: p, primary: {{ apiVersion: sample.dev/v1, kind: Page }}{asks} }}\n"
            );
            let operator = parse(&text, Path::new("a.yaml")).unwrap().remove(0);
            let (controller, all) = (&operator.controllers["pages"], definition(status, subresource));
            let known = |gvk: &_, _: Option<&_>| Definition::known(&all, gvk);
            let found = misfits(controller, &known, &mut Budget::of_run()).unwrap();
            let can = can_have(controller, &known, &mut Budget::of_run()).unwrap();
            assert!(can_have(controller, &|_, _| Known::Nothing, &mut Budget::of_run()).unwrap().is_none());
            (found.into_iter().map(|misfit| (misfit.field, misfit.message)).collect::<Vec<_>>(), can)
        };
        let (asks, own) = (", statusConditions: standard", "status: {}");
        for (status, subresource, lack) in [
            (conditions(MAP, ENTRY), own, None),
            (conditions(MAP, ENTRY), "", Some("has no subresource `status`")),
            (conditions("", ENTRY), own, Some(no_map)),
            (conditions("x-kubernetes-list-type: atomic,", ENTRY), own, Some(no_map)),
            (conditions(MAP, &ENTRY.replace("reason", "cause")), own, Some("has no field `reason` in the entries")),
            (
                "{ type: object, properties: { phase: { type: string } } }".to_owned(),
                own,
                Some("has no field `conditions` in `/status`"),
            ),
            // Nobody knows what a list is that no schema has.
            ("{ type: object, x-kubernetes-preserve-unknown-fields: true }".to_owned(), own, Some(no_map)),
        ] {
            let (found, can) = with(&status, asks, subresource);
            assert_eq!(can, Some(lack.is_none()), "{status}");
            assert_eq!(found.len(), usize::from(lack.is_some()), "{status}: {found:?}");
            for (field, message) in found {
                assert_eq!(field, "spec.controllers.pages.statusConditions");
                assert!(
                    message.starts_with(&format!("found `standard`; sample.dev/v1 Page {}", lack.unwrap())),
                    "{message}"
                );
            }
            assert!(with(&status, "", subresource).0.is_empty(), "it does not ask for any");
        }
    }
}
