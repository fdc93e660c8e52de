//! Finds where a document is made, or worked on, without a budget that pays for it.

use std::fs;
use std::path::Path;

use super::sources::files;

/// What makes a tree of a text, or works on trees without a bound, beside where it may stand and why.
pub(crate) type Calls<'a> = &'a [(&'a str, &'a [(&'a str, &'a str)])];

/// Returns what is wrong in a folder, but for the tests in it.
pub(crate) fn unbounded(src: &Path, calls: Calls<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    for file in files(src) {
        let name = file.strip_prefix(src).expect("a file below src");
        if name.iter().any(|part| part == "tests" || part == "tests.rs") {
            continue;
        }
        let text = fs::read_to_string(&file).expect("a source file");
        problems.extend(check(&name.to_string_lossy(), &text, calls));
    }
    problems
}

/// Returns what is wrong with a file, but for its tests.
pub(crate) fn check(name: &str, text: &str, calls: Calls<'_>) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    let mut problems = Vec::new();
    for (line, number) in code.lines().zip(1..) {
        let line = line.split("//").next().unwrap_or(line);
        for (call, allowed) in calls {
            // A folder is allowed as a whole.
            let is_allowed =
                |(place, _): &(&str, &str)| if place.ends_with('/') { name.starts_with(place) } else { *place == name };
            if line.contains(call) && !allowed.iter().any(is_allowed) {
                problems.push(format!("{name}:{number}: {call}: take a budget (`budget.read`)"));
            }
        }
    }
    problems
}
