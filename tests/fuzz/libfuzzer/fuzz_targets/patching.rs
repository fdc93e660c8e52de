//! Looks for inputs that break `fuzz::patching`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::patching(data));
