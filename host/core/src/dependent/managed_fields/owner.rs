//! Decides who has written a field last, by the fields that the API server has recorded for each field manager.

use std::collections::BTreeSet;

use super::{Name, Set};
use crate::budget::{Budget, Exceeded};
use crate::object::Object;

/// Returns the field managers that own the field of an object to which a JSON pointer leads, without one: whoever changes a field owns
/// it from then on. `object` has the shares of all. Within a list, the owners of any part of it count.
///
/// # Errors
/// [`Exceeded`] if that costs too much.
pub fn owners<'o>(
    object: &'o Object,
    pointer: &str,
    without: &str,
    budget: &mut Budget,
) -> Result<BTreeSet<&'o str>, Exceeded> {
    let path: Vec<String> = pointer.split('/').skip(1).map(|name| name.replace("~1", "/").replace("~0", "~")).collect();
    let mut found = BTreeSet::new();
    for share in object.header().shares.iter().filter(|share| *share.manager != *without) {
        budget.text(share.fields.len() + pointer.len())?;
        // What can't be read names nobody.
        if Set::read(&share.fields).is_ok_and(|set| owns(&set, &path)) {
            found.insert(&*share.manager);
        }
    }
    Ok(found)
}

fn owns(set: &Set<'_>, path: &[String]) -> bool {
    let Some((name, rest)) = path.split_first() else {
        return true;
    };
    if set.is_whole() {
        return true;
    }
    let is_list = set.parts.iter().any(|(name, _)| matches!(name, Name::Keyed(_) | Name::Member(_)));
    is_list || set.field(name).is_some_and(|set| owns(set, rest))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::{Gvk, Managers};

    #[test]
    fn who_changed_a_field_last_owns_it() {
        // LG-3
        let share = |manager: &str, fields: serde_json::Value| json!({ "manager": manager, "operation": "Update", "fieldsV1": fields });
        let ports = json!({ "k:{\"port\":80}": { ".": {}, "f:name": {} } });
        let shares = json!([
            share("us", json!({ "f:data": { "f:v": {}, "f:ours": {} }, "f:spec": { "f:ports": ports } })),
            share("kubectl-edit", json!({ "f:data": { "f:v": {} } })),
            share("cat", json!({ "f:metadata": { "f:labels": { "f:a/b": {} } }, "f:data": { "f:whole": {} } })),
            share("dog", json!({ "f:spec": { "f:ports": { "k:{\"port\":81}": { "f:name": {} } } } })),
        ]);
        let text = json!({ "metadata": { "name": "a", "managedFields": shares } }).to_string();
        let object = Object::parse(&text, &Gvk::parse("v1", "ConfigMap").unwrap(), &Managers::all()).unwrap();
        for (pointer, expected) in [
            ("/data/v", &["kubectl-edit"][..]),
            ("/data/ours", &[]),
            ("/data/whole/x", &["cat"]),
            ("/data", &["cat", "kubectl-edit"]),
            ("/metadata/labels/a~1b", &["cat"]),
            ("/spec/ports/0/name", &["dog"]),
            ("/none", &[]),
        ] {
            let found = owners(&object, pointer, "us", &mut Budget::of(1000)).unwrap();
            assert_eq!(found.into_iter().collect::<Vec<_>>(), expected, "{pointer}");
        }
        assert_eq!(owners(&object, "/data/v", "us", &mut Budget::of(2)), Err(Exceeded::Steps(2)));
    }
}
