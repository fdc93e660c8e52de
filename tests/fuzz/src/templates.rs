//! Templates of a manifest, over primaries and dependents that may be anything.

use std::path::Path;

use capstan_core::budget::{Budget, Error};
use capstan_core::cel::DEPENDENTS;
use capstan_core::manifest;
use serde_json::{Value, json};

use crate::bounded::within_bounds;
use crate::{STEPS, with};

/// A template that a manifest may have makes JSON or fails, whatever primaries and dependents say.
pub fn templates(data: &[u8]) {
    with(data, |documents| {
        let manifest = manifest(&documents.template()?);
        let (primary, dependent) = documents.two()?;
        let primary = json!({ "metadata": { "name": "p", "namespace": "n" }, "spec": primary });
        let others = json!({ "b": dependent });
        within_bounds(|| {
            let Ok(operators) = manifest::parse(&manifest, Path::new("operator.yaml")) else {
                return;
            };
            let controllers = operators.iter().flat_map(|operator| operator.controllers.values());
            let dependents = controllers.flat_map(|controller| controller.workflow.dependents.values());
            let variables = [("primary", &primary), (DEPENDENTS, &others)];
            for template in dependents.filter_map(|dependent| dependent.template.as_ref()) {
                for made in [template.make(&variables, &mut budget()), template.make_name(&variables, &mut budget())] {
                    // What gets too deep within the template is refused when it is read.
                    let read = made.map(|made| (Budget::of(u64::MAX).read(&made), made));
                    assert!(!matches!(&read, Ok((Err(Error::Json(_)), _))), "{read:?}");
                }
            }
        });
        Ok(())
    });
}

fn budget() -> Budget {
    Budget::of(STEPS)
}

/// Returns a manifest with a template of one dependent, which may look at another one.
fn manifest(template: &Value) -> String {
    let map = |more: &Value| {
        let mut map = json!({ "apiVersion": "v1", "kind": "ConfigMap" });
        map.as_object_mut().expect("a mapping").extend(more.as_object().expect("a mapping").clone());
        map
    };
    let named = json!({ "metadata": { "name": "b" } });
    let dependents = json!({
        "a": map(&json!({ "dependsOn": ["b"], "desired": { "template": template } })),
        "b": map(&json!({ "desired": { "template": named } })),
    });
    json!({
        "apiVersion": "capstan.dev/v1alpha1", "kind": "Operator", "metadata": { "name": "a" },
        "spec": { "controllers": { "a": {
            "primary": { "apiVersion": "sample.dev/v1", "kind": "Page" }, "workflow": { "dependents": dependents },
        } } },
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_with_a_template_is_read() {
        let text = "${primary.metadata.name}-${dependents.b.metadata.name}";
        let manifest = manifest(&json!({ "metadata": { "name": text } }));
        let read = manifest::parse(&manifest, Path::new("operator.yaml"));
        assert!(read.is_ok(), "{read:?}");
    }
}
