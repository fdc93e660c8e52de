//! All targets hold for what chance makes.

use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, TestRunner};

/// Inputs that each target is given.
const INPUTS: u32 = 500;

/// Bytes of an input at most.
const LENGTH: usize = 2_048;

/// What libFuzzer's programs call is there, and nothing is left out. They are built by nobody else: that takes a minute.
#[cfg(feature = "daemon")]
#[test]
fn programs_find_all_targets() {
    let programs: [fuzz::Target; 12] = [
        ("comparing", fuzz::comparing),
        ("patching", fuzz::patching),
        ("cel", fuzz::cel),
        ("manifest", fuzz::manifest),
        ("masks", fuzz::masks),
        ("fields", fuzz::fields),
        ("signatures", fuzz::signatures),
        ("templates", fuzz::templates),
        ("schemas", fuzz::schemas),
        ("kubeconfigs", fuzz::kubeconfigs),
        ("components", fuzz::components),
        ("archives", fuzz::archives),
    ];
    let names = |all: &[fuzz::Target]| all.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    assert_eq!(names(&programs), names(fuzz::TARGETS));
}

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
