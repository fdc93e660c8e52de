//! Decides what is told of a version of a component beside another one: what it asks for, what it offers, and how large it is.

use std::collections::BTreeMap;

use super::artifact::Interfaces;
use crate::text::said_within;

/// The most lines that are told, and the most characters of a name.
const LINES: usize = 50;
const NAME: usize = 200;

/// A version of a component.
#[derive(Clone, Copy, Debug)]
pub struct Version<'a> {
    /// The names of its imports and exports.
    pub interfaces: &'a Interfaces,
    /// Its bytes.
    pub size: u64,
}

/// Returns what is otherwise in a version than in the one before, line by line: `import + NAME`, `import - NAME`, `import NAME 1.0 → 1.1`, the same
/// of exports, and the size. Nothing, if that is the same.
pub fn lines(before: Version<'_>, after: Version<'_>) -> Vec<String> {
    let of = |kind, before: &[String], after: &[String]| names(kind, &versions(before), &versions(after));
    let mut lines = of("import", &before.interfaces.imports, &after.interfaces.imports);
    lines.extend(of("export", &before.interfaces.exports, &after.interfaces.exports));
    if before.size != after.size {
        lines.push(format!("size {} → {} bytes", before.size, after.size));
    }
    let more = lines.len().saturating_sub(LINES);
    if more > 0 {
        lines.truncate(LINES);
        lines.push(format!("and {more} more"));
    }
    lines
}

/// Returns names without their versions, and which those are.
fn versions(names: &[String]) -> BTreeMap<&str, &str> {
    names.iter().map(|name| name.split_once('@').unwrap_or((name, ""))).collect()
}

fn names(kind: &str, before: &BTreeMap<&str, &str>, after: &BTreeMap<&str, &str>) -> Vec<String> {
    let whole = |name: &str, version: &str| {
        let sign = if version.is_empty() { "" } else { "@" };
        said_within(&format!("{name}{sign}{version}"), NAME).into_owned()
    };
    let gone = before.iter().filter(|(name, _)| !after.contains_key(*name));
    let gone = gone.map(|(name, version)| format!("{kind} - {}", whole(name, version)));
    let come = after.iter().filter_map(|(name, version)| match before.get(name) {
        None => Some(format!("{kind} + {}", whole(name, version))),
        Some(before) if before == version => None,
        Some(before) => Some(format!("{kind} {} → {}", whole(name, before), said_within(version, NAME))),
    });
    come.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(imports: &[&str], exports: &[&str]) -> Interfaces {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Interfaces { imports: owned(imports), exports: owned(exports) }
    }

    #[test]
    fn what_a_version_asks_for_and_offers_otherwise_is_told_line_by_line() {
        // SG-8
        let before = names(&["wasi:http/handler@0.2.0", "a:b/objects@1.0.0", "gone"], &["a:b/reconciler@1.0.0"]);
        let after =
            names(&["wasi:http/handler@0.2.0", "a:b/objects@1.1.0", "new:x/y@2.0.0"], &["a:b/reconciler@1.0.0"]);
        let told = lines(Version { interfaces: &before, size: 10 }, Version { interfaces: &after, size: 12 });
        let expected =
            ["import a:b/objects@1.0.0 → 1.1.0", "import + new:x/y@2.0.0", "import - gone", "size 10 → 12 bytes"];
        assert_eq!(told, expected);
        let told =
            lines(Version { interfaces: &after, size: 1 }, Version { interfaces: &names(&[], &["e\n"]), size: 1 });
        assert_eq!(told.last().map(String::as_str), Some("export - a:b/reconciler@1.0.0"));
        assert!(told.contains(&r"export + e\n".to_owned()), "{told:?}");
        let same = Version { interfaces: &after, size: 1 };
        assert_eq!(lines(same, same), [""; 0]);
        let many = Interfaces { imports: (0..99).map(|n| n.to_string()).collect(), exports: Vec::new() };
        let told = lines(Version { interfaces: &names(&[], &[]), size: 1 }, Version { interfaces: &many, size: 1 });
        assert_eq!((told.len(), told.last().map(String::as_str)), (51, Some("and 49 more")));
    }
}
