//! Looks for inputs that break `fuzz::masks`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::masks(data));
