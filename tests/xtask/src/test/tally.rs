//! Reads the results of tests from what `cargo test` and `cargo nextest` write.

use std::fmt::{self, Display, Formatter};

/// What the lines so far add up to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Tests that passed.
    pub(crate) passed: u64,
    /// Tests that failed, and test binaries that ended without a result.
    pub(crate) failed: u64,
    /// Tests that were not run.
    pub(crate) ignored: u64,
    /// What failed, by name.
    pub(crate) failures: Vec<String>,
    /// The test binary that was started last, if it has no result yet.
    open: Option<String>,
}

impl Tally {
    /// Returns a sum that was made elsewhere.
    pub(crate) fn of(passed: u64, failed: u64, ignored: u64, failures: Vec<String>) -> Self {
        Self { passed, failed, ignored, failures, open: None }
    }

    /// Takes in a line without colours.
    pub(crate) fn read(&mut self, line: &str) {
        let line = line.trim();
        if let Some(name) = binary(line) {
            self.close();
            self.open = Some(name.to_owned());
        } else if let Some(counts) = line.strip_prefix("test result: ") {
            self.open = None;
            self.count(counts.split_once(". ").map_or(counts, |(_, counts)| counts));
        } else if let Some(summary) = line.strip_prefix("Summary [") {
            self.open = None;
            let counts = summary.split_once("run: ").map(|(_, counts)| counts);
            self.count(counts.unwrap_or_default());
        } else if let Some(name) = failure(line)
            && !self.failures.iter().any(|known| known == name)
        {
            self.failures.push(name.to_owned());
        }
    }

    /// Returns the sum once a run has failed: a binary without a result has crashed.
    pub(crate) fn after_failure(mut self) -> Self {
        self.close();
        self
    }

    /// Adds the sum of another run.
    pub(crate) fn add(&mut self, other: Self) {
        let Self { passed, failed, ignored, failures, open: _ } = other;
        self.passed += passed;
        self.failed += failed;
        self.ignored += ignored;
        self.failures.extend(failures);
    }

    fn close(&mut self) {
        if let Some(name) = self.open.take() {
            self.failed += 1;
            self.failures.push(format!("{name} (ended without a result)"));
        }
    }

    /// Reads `3 passed; 1 failed; 0 ignored; …` and `3 passed (1 slow), 1 failed, 1 timed out, 2 skipped`.
    fn count(&mut self, counts: &str) {
        for part in counts.split([';', ',']) {
            let Some((number, word)) = part.trim().split_once(' ') else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            match word.split(" (").next().unwrap_or(word) {
                "passed" => self.passed += number,
                "failed" | "timed out" | "exec failed" => self.failed += number,
                "ignored" | "skipped" => self.ignored += number,
                _ => {}
            }
        }
    }
}

impl Display for Tally {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let parts = [(self.passed, "passed"), (self.failed, "failed"), (self.ignored, "ignored")];
        let said = parts.iter().filter(|(number, _)| *number > 0);
        let said: Vec<_> = said.map(|(number, word)| format!("{number} {word}")).collect();
        formatter.write_str(&said.join(", "))
    }
}

/// Returns the test binary that a line of `cargo test` starts.
fn binary(line: &str) -> Option<&str> {
    line.strip_prefix("Running ")
        .filter(|rest| rest.contains(" (") && rest.ends_with(')'))
        .or_else(|| line.strip_prefix("Doc-tests "))
}

/// Returns the test that a line says to have failed.
fn failure(line: &str) -> Option<&str> {
    if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
        return Some(name);
    }
    // nextest: `FAIL [   0.004s] ( 3/21) package::binary a::test`
    let rest = ["FAIL [", "TIMEOUT [", "SIGABRT [", "SIGSEGV ["].iter().find_map(|start| line.strip_prefix(start))?;
    let (_, name) = rest.split_once("] ")?;
    let name = name.trim();
    let name = if name.starts_with('(') { name.split_once(") ").map_or(name, |(_, name)| name) } else { name };
    Some(name.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Tally {
        let mut tally = Tally::default();
        text.lines().for_each(|line| tally.read(line));
        tally
    }

    fn expected(passed: u64, failed: u64, ignored: u64, failures: &[&str]) -> Tally {
        Tally { passed, failed, ignored, failures: failures.iter().map(|&name| name.to_owned()).collect(), open: None }
    }

    #[test]
    fn the_results_of_all_test_binaries_add_up() {
        let text = "
     Running unittests src/lib.rs (target/debug/deps/a-1)
running 3 tests
test x::a_test ... ok
test x::another ... FAILED
test x::third - should panic ... FAILED
test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
     Running tests/b.rs (target/debug/deps/b-2)
test result: ok. 4 passed; 0 failed; 3 ignored; 0 measured; 12 filtered out; finished in 0.00s
   Doc-tests a
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.20s
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.20s

all doctests ran in 0.80s; merged doctests compilation took 0.50s";
        assert_eq!(read(text), expected(8, 2, 3, &["x::another", "x::third - should panic"]));
    }

    #[test]
    fn a_binary_that_ends_without_a_result_counts_as_failed() {
        let text = "
     Running unittests src/lib.rs (target/debug/deps/a-1)
running 3 tests
test x::a_test ... ok
     Running tests/b.rs (target/debug/deps/b-2)
test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
     Running tests/c.rs (target/debug/deps/c-3)";
        let crashed = |name: &str| format!("{name} (ended without a result)");
        let first = crashed("unittests src/lib.rs (target/debug/deps/a-1)");
        let last = crashed("tests/c.rs (target/debug/deps/c-3)");
        assert_eq!(read(text).after_failure(), expected(4, 2, 0, &[&first, &last]));
    }

    #[test]
    fn what_a_test_writes_is_no_result() {
        let text = "
     Running tests/c.rs (target/debug/deps/c-3)
Running fast
Summary: 3 passed
test result of mine: 3 passed
test a ... ok
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(read(text), expected(1, 0, 0, &[]));
    }

    #[test]
    fn the_summary_of_nextest_is_read() {
        let text = "
        PASS [   0.004s] (1/9) capstan-core queue::tests::one
        FAIL [   0.004s] (2/9) capstan-core queue::tests::two
     TIMEOUT [  60.004s] capstan-core::layers three
     Summary [  61.012s] 9 tests run: 7 passed (1 slow), 1 failed, 1 timed out, 4 skipped
        FAIL [   0.004s] (2/9) capstan-core queue::tests::two";
        let failures = ["capstan-core queue::tests::two", "capstan-core::layers three"];
        assert_eq!(read(text), expected(7, 2, 4, &failures));
    }

    #[test]
    fn a_sum_says_only_what_there_is() {
        let table = [
            (expected(0, 0, 0, &[]), ""),
            (expected(7, 0, 0, &[]), "7 passed"),
            (expected(7, 2, 1, &[]), "7 passed, 2 failed, 1 ignored"),
        ];
        for (tally, text) in table {
            assert_eq!(tally.to_string(), text);
        }
    }
}
