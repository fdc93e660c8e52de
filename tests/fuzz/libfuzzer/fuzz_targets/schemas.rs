//! Looks for inputs that break `fuzz::schemas`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::schemas(data));
