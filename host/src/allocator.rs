//! Decides when a thread gives back memory that it has freed: mimalloc keeps it for that thread, which may need it again soon, or never.

// What is called below is in it.
use mimalloc as _;

/// Gives back what this thread has freed, unless it did so a moment ago. To be called before a thread waits.
#[allow(unsafe_code, reason = "nothing else leads to it; it takes no pointer, and any thread may call it")]
pub(crate) fn give_back() {
    use std::cell::Cell;
    use std::time::Duration;

    use tokio::time::Instant;

    /// Under load a thread waits thousands of times a second, and needs what it has freed again.
    const MOMENT: Duration = Duration::from_millis(250);

    unsafe extern "C" {
        /// Gives pages without blocks of this thread back to the system, and those that threads which have ended left.
        fn mi_collect(force: bool);
    }

    thread_local! {
        static LAST: Cell<Option<Instant>> = const { Cell::new(None) };
    }

    let now = Instant::now();
    if LAST.get().is_none_or(|last| now.duration_since(last) > MOMENT) {
        LAST.set(Some(now));
        unsafe {
            mi_collect(true);
        }
    }
}
