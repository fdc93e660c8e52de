//! Looks for inputs that break `fuzz::cel`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::cel(data));
