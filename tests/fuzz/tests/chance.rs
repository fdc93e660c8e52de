//! All targets hold for what chance makes.

use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, TestRunner};

/// Inputs that each target is given.
const INPUTS: u32 = 500;

/// Bytes of an input at most.
const LENGTH: usize = 2_048;

/// One test, because the targets count the memory of the whole process.
#[test]
fn whatever_documents_say_the_work_on_them_is_bounded_and_right() {
    for (name, target) in fuzz::TARGETS {
        let config = Config { cases: INPUTS, failure_persistence: None, max_shrink_iters: 500, ..Config::default() };
        let mut runner = TestRunner::new(config);
        let tried = runner.run(&vec(any::<u8>(), 0..LENGTH), |data| {
            target(&data);
            Ok(())
        });
        assert!(tried.is_ok(), "{name}: {tried:?}");
    }
}
