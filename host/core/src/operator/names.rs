//! Decides which objects may have the names that they claim, where files claim some, too (`OP-4`).

use std::collections::BTreeMap;
use std::path::Path;

use crate::manifest::Operator;
use crate::rollout::File;

/// Returns the objects whose names are in files, with why they have no place: files go before objects. `before` is what was wanted until now, of
/// which a file that can't be read keeps what it has said.
pub fn taken<'a>(files: &[File], before: &[Operator], objects: &'a [File]) -> Vec<(&'a Path, String)> {
    let said = |file: &File| match &file.content {
        Ok(operators) => operators.clone(),
        Err(_) => before.iter().filter(|operator| operator.origin.file() == file.path).cloned().collect(),
    };
    let (mut operators, mut controllers) = (BTreeMap::new(), BTreeMap::new());
    for file in files {
        for operator in said(file) {
            controllers.extend(operator.controllers.into_keys().map(|name| (name, &file.path)));
            operators.insert(operator.name, &file.path);
        }
    }
    let claims = |operator: &Operator| {
        let own = operators.get(&operator.name).map(|file| ("operator", &operator.name, file));
        let controllers = || {
            let mut names = operator.controllers.keys();
            names.find_map(|name| Some(("controller", name, controllers.get(name)?)))
        };
        let (what, name, file) = own.or_else(controllers)?;
        Some(format!(
            "the {what} `{name}` is in the file {}, and files go before objects of the cluster; take another name, or remove it there",
            file.display()
        ))
    };
    let claimed = objects.iter().filter_map(|object| {
        let operators = said(object);
        Some((&*object.path, operators.iter().find_map(claims)?))
    });
    claimed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest;

    fn operator(path: &str, name: &str, controller: &str) -> Operator {
        let text = format!(
            "apiVersion: capstan.dev/v1alpha1\nkind: Operator\nmetadata: {{ name: {name} }}\nspec:\n  plugins: {{ p: {{ component: {{ path: p.wasm }} }} }}\n  \
             controllers:\n    {controller}: {{ plugin: p, primary: {{ apiVersion: v1, kind: ConfigMap }} }}\n"
        );
        manifest::parse(&text, Path::new(path)).unwrap().remove(0)
    }

    fn file(path: &str, name: &str, controller: &str) -> File {
        File { path: path.into(), content: Ok(vec![operator(path, name, controller)]) }
    }

    fn broken(path: &str) -> File {
        File { path: path.into(), content: Err("it is broken".to_owned()) }
    }

    #[test]
    fn a_name_in_a_file_is_no_objects() {
        // OP-4
        let before = [operator("a.yaml", "one", "web"), operator("o", "one", "web")];
        for (files, object, expected) in [
            (vec![file("a.yaml", "one", "web")], file("o", "two", "db"), ""),
            (vec![file("a.yaml", "one", "web")], file("o", "one", "db"), "the operator `one` is in the file a.yaml"),
            (vec![file("a.yaml", "one", "web")], file("o", "two", "web"), "the controller `web` is in the file a.yaml"),
            // What a broken one said last counts, of both.
            (vec![broken("a.yaml")], file("o", "one", "db"), "the operator `one` is in the file a.yaml"),
            (vec![file("a.yaml", "one", "db")], broken("o"), "the operator `one` is in the file a.yaml"),
            (vec![broken("b.yaml")], file("o", "one", "db"), ""),
            (vec![], file("o", "one", "web"), ""),
        ] {
            let objects = [object];
            let found = taken(&files, &before, &objects);
            let found = found.first().map_or("", |(_, why)| why.split(',').next().unwrap_or_default());
            assert_eq!(found, expected);
        }
    }
}
