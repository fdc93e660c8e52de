//! Looks for inputs that break `fuzz::templates`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::templates(data));
