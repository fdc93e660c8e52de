//! A stack for readers that call themselves for each level of their input, so that no text can end the daemon.

use std::thread;

/// Readers stop by themselves at about 100 levels, and in a debug build use up to 150 KB of stack for each: more than the
/// 2 MB that a task has. Pages that are not touched cost nothing.
const SIZE: usize = 64 << 20;

/// Returns what `read` returns; `None` if it panics, or the system has no thread to give.
pub(crate) fn with_room<T: Send>(read: impl FnOnce() -> T + Send) -> Option<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("manifest".to_owned()).stack_size(SIZE);
        thread.spawn_scoped(scope, read).ok()?.join().ok()
    })
}
