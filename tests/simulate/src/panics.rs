//! Remembers the first panic of a simulation: the daemon catches those of a run, and goes on.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;

thread_local! {
    /// A simulation has a thread of its own.
    static FIRST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Begins to remember: what there was before on this thread is forgotten.
pub(crate) fn watch() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            FIRST.with_borrow_mut(|first| {
                first.get_or_insert_with(|| panic.to_string());
            });
            usual(panic);
        }));
    });
    take();
}

/// Returns the first panic since [`watch`], whoever has caught it.
pub(crate) fn take() -> Option<String> {
    FIRST.take()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "that is what is tested")]

    use super::*;

    #[test]
    fn a_panic_that_was_caught_is_remembered_once() {
        watch();
        assert_eq!(take(), None);
        for number in 1..=2 {
            assert!(panic::catch_unwind(|| panic!("number {number}")).is_err());
        }
        assert!(take().is_some_and(|first| first.ends_with("number 1")));
        assert_eq!(take(), None);
    }
}
