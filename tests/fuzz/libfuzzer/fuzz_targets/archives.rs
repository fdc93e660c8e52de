//! Looks for inputs that break `fuzz::archives`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::archives(data));
