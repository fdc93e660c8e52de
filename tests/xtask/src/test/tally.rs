//! Reads the results of tests from what `cargo test` and `cargo nextest` write.

use std::fmt::{self, Display, Formatter};

use crate::process::found;

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
        } else if let Some([counts]) = found(r"^(?:test result: .*?\. |Summary \[.*run: )(.*)$", line) {
            self.open = None;
            // `3 passed; 1 failed; 0 ignored; …` or `3 passed (1 slow), 1 failed, 1 timed out, 2 skipped`
            for part in counts.split([';', ',']) {
                if let Some([number, word]) = found(r"^ *(\d+) ([^(]*\w)", part) {
                    self.count(number, word);
                }
            }
        } else if let Some(name) = failure(line) {
            self.fail(name);
        }
    }

    /// Counts tests that a runner calls so.
    pub(crate) fn count(&mut self, number: &str, word: &str) {
        let number = number.parse::<u64>().unwrap_or(0);
        match word {
            "passed" | "pass" => self.passed += number,
            "failed" | "timed out" | "exec failed" | "fail" | "cancelled" => self.failed += number,
            "ignored" | "skipped" | "todo" => self.ignored += number,
            _ => {}
        }
    }

    /// Notes the name of a test that failed; a runner may say it twice.
    pub(crate) fn fail(&mut self, name: &str) {
        if !self.failures.iter().any(|known| known == name) {
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
    found(r"^(?:Running (.* \(.*\)))$", line).or_else(|| found("^Doc-tests (.*)$", line)).map(|[name]| name)
}

/// Returns the test that a line says to have failed: of cargo's, or as nextest's `FAIL [   0.004s] ( 3/21) package::binary a::test`.
fn failure(line: &str) -> Option<&str> {
    let nextest = r"^(?:FAIL|TIMEOUT|SIGABRT|SIGSEGV) \[.*?\] +(?:\([^)]*\) )?(.*)$";
    found(r"^test (.*) \.\.\. FAILED$", line).or_else(|| found(nextest, line)).map(|[name]| name)
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
