//! Keeps all processors busy while tests run, so that what rests on luck with times fails.

use std::hint;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Threads that compute. Dropping it ends them.
#[derive(Debug, Default)]
pub(crate) struct Stress {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Stress {
    /// Loads each processor that there is with a thread.
    pub(crate) fn start() -> Self {
        let mut stress = Self::default();
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            let stop = Arc::clone(&stress.stop);
            stress.threads.push(thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    hint::spin_loop();
                }
            }));
        }
        stress
    }
}

impl Drop for Stress {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // They do nothing that can panic.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_processor_is_busy_until_the_end() {
        let stress = Stress::start();
        let stop = Arc::clone(&stress.stop);
        assert_eq!(stress.threads.len(), thread::available_parallelism().unwrap().get());
        assert!(stress.threads.iter().all(|thread| !thread.is_finished()));
        drop(stress);
        assert_eq!(Arc::strong_count(&stop), 1, "all have ended");
    }
}
