//! Finds texts in an object: the keys of an index, and the names of other objects (IX, IM).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::callback::{Asked, Callback, Problem, cost, read};
use crate::manifest::Keys;
use crate::object::pointer::most;
use crate::object::{Object, ObjectRef, Scope};

/// The longest key that an expression may make: no name is as long.
const LONGEST: usize = 512;

/// Returns the texts that an object has, where expressions call it `variable`; none if there are no such fields. There
/// are at most as many as an object may have keys. What an expression makes beyond that is left out: longer keys, and all
/// of which the object itself could not have the bytes.
pub(super) fn texts(keys: &Keys, variable: &str, object: &Object) -> Result<BTreeSet<Box<str>>, Problem> {
    match keys {
        Keys::Pointer(pointer) => Ok(pointer.keys(object)),
        Keys::Cel(expression) => {
            let document = read(object)?;
            let found = expression.texts(&[(variable, &document)], &mut cost())?;
            let mut left = LONGEST + object.json().len();
            let mut fits = |key: &String| {
                let fits = key.len() <= LONGEST && key.len() <= left;
                left -= if fits { key.len() } else { 0 };
                fits
            };
            let found = found.into_iter().filter(|key| fits(key));
            Ok(found.map(String::into_boxed_str).take(most(object)).collect())
        }
    }
}

impl Asked<'_> {
    /// Returns the texts that an object has for a field of the manifest; none if that fails, which is told.
    pub(super) fn texts(
        self,
        keys: &Keys,
        variable: &str,
        object: &Object,
        (callback, field): (Callback, &str),
    ) -> BTreeSet<Box<str>> {
        texts(keys, variable, object).unwrap_or_else(|problem| {
            self.tell(callback, field, object.key(), &problem);
            BTreeSet::new()
        })
    }
}

/// Returns the object that a text names, as `name` or `namespace/name`. Without a namespace it is in `home`; `None` if
/// it would be in no namespace, or if the name is empty.
pub(super) fn named(text: &str, scope: Scope, home: Option<&Arc<str>>) -> Option<ObjectRef> {
    let (namespace, name) = text.split_once('/').map_or((None, text), |(namespace, name)| (Some(namespace), name));
    placed(name, namespace, scope, home)
}

/// Returns the object of this name and namespace. Without a namespace it is in `home`; `None` if it would be in no
/// namespace, or if the name is empty.
pub(super) fn placed(name: &str, namespace: Option<&str>, scope: Scope, home: Option<&Arc<str>>) -> Option<ObjectRef> {
    // Nothing has a longer name.
    if name.is_empty() || name.len() > LONGEST || namespace.is_some_and(|namespace| namespace.len() > LONGEST) {
        return None;
    }
    let namespace = match scope {
        Scope::Cluster => None,
        Scope::Namespaced => {
            let given = namespace.filter(|namespace| !namespace.is_empty()).map(Arc::from);
            Some(given.or_else(|| home.cloned())?)
        }
    };
    Some(ObjectRef { namespace, name: name.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cel::Expression;
    use crate::object::pointer::Pointer;
    use crate::object::{Gvk, Managers};

    #[test]
    fn texts_are_found_by_pointers_and_expressions_and_what_is_missing_is_none() {
        // IX-1
        let json = r#"{"metadata":{"name":"a","namespace":"n"},"spec":{"one":"x","many":["x","y"],"number":7}}"#;
        let object = Object::parse(json, &Gvk::parse("x.dev/v1", "X").unwrap(), &Managers::default()).unwrap();
        let pointer = |text: &str| Keys::Pointer(Pointer::parse(text).unwrap());
        let cel = |text: &str| Keys::Cel(Expression::parse(text, &["object"]).unwrap());
        for (keys, expected) in [
            (pointer("/spec/many"), Ok(vec!["x", "y"])),
            (cel("object.spec.one"), Ok(vec!["x"])),
            (cel("object.spec.many + ['z']"), Ok(vec!["x", "y", "z"])),
            (cel("object.metadata.namespace + '/' + object.spec.one"), Ok(vec!["n/x"])),
            (cel("object.spec.none"), Ok(vec![])),
            (cel("object.spec.none.deeper"), Ok(vec![])),
            (cel("null"), Ok(vec![])),
            (cel("[]"), Ok(vec![])),
            (cel("object.spec.number"), Err("is of type int; a string, or a list of strings, is needed")),
            (cel("[object.spec.number]"), Err("is of type list; a string, or a list of strings, is needed")),
            (cel("object.spec.one + 1"), Err("+ can't be applied to string and int")),
        ] {
            let found = texts(&keys, "object", &object).map_err(|problem| problem.to_string());
            match (&found, &expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found.iter().map(|key| &**key).collect::<Vec<_>>(), *expected),
                (Err(found), Err(expected)) => assert!(found.ends_with(expected), "{found}"),
                _ => panic!("{keys:?}: {found:?}"),
            }
        }
    }

    #[test]
    fn an_object_has_no_more_keys_by_an_expression_than_by_a_pointer() {
        // IX-1
        let many: Vec<String> = (0..1000).map(|n| format!("\"k{n}\"")).collect();
        let json = format!(r#"{{"metadata":{{"name":"a"}},"many":[{}]}}"#, many.join(","));
        let object = Object::parse(&json, &Gvk::parse("v1", "X").unwrap(), &Managers::default()).unwrap();
        let cel = Keys::Cel(Expression::parse("object.many", &["object"]).unwrap());
        for keys in [cel, Keys::Pointer(Pointer::parse("/many").unwrap())] {
            assert_eq!(texts(&keys, "object", &object).unwrap().len(), most(&object), "{keys:?}");
        }
        assert!(most(&object) < 200);
    }

    #[test]
    fn an_expression_makes_no_more_bytes_of_keys_than_an_object_could_have() {
        // IX-1
        let object = Object::parse(
            r#"{"metadata":{"name":"a"},"long":"0123456789012345678901234567890123456789"}"#,
            &Gvk::parse("v1", "X").unwrap(),
            &Managers::default(),
        );
        let object = object.unwrap();
        let cel = |text: &str| Keys::Cel(Expression::parse(text, &["object"]).unwrap());
        let bytes =
            |text: &str| texts(&cel(text), "object", &object).unwrap().iter().map(|key| key.len()).sum::<usize>();
        let long = "[object.long].map(a, a + a + a + a)";
        assert_eq!(bytes(&format!("{long}[0]")), 160);
        assert_eq!(bytes(&format!("{long}.map(a, a + a + a + a)")), 0, "one key that is too long");
        let many = format!("[0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map(i, {long}[0] + string(i))");
        assert_eq!(bytes(&many), 3 * 161);
    }

    #[test]
    fn a_text_names_an_object_in_its_own_namespace_or_another() {
        // IM-2
        use Scope::{Cluster, Namespaced};
        for (text, scope, home, expected) in [
            ("a", Namespaced, Some("n"), Some("n/a")),
            ("m/a", Namespaced, Some("n"), Some("m/a")),
            ("/a", Namespaced, Some("n"), Some("n/a")),
            ("a", Namespaced, None, None),
            ("m/a", Namespaced, None, Some("m/a")),
            ("a", Cluster, Some("n"), Some("a")),
            ("m/a", Cluster, Some("n"), Some("a")),
            ("", Namespaced, Some("n"), None),
            ("m/", Namespaced, Some("n"), None),
        ] {
            let home = home.map(Arc::from);
            let found = named(text, scope, home.as_ref()).map(|key| key.to_string());
            assert_eq!(found.as_deref(), expected, "{text:?}");
        }
    }
}
