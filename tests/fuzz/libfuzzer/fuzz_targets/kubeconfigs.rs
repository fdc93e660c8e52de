//! Looks for inputs that break `fuzz::kubeconfigs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::kubeconfigs(data));
