//! Looks for inputs that break `fuzz::signatures`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::signatures(data));
