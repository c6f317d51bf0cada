//! See `crates/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    chiton_fuzz::try_one("certificate", bytes);
});
