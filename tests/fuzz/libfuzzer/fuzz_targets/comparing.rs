//! Looks for inputs that break `fuzz::comparing`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::comparing(data));
