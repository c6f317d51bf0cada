//! Policy files and compositions as administrators type them.
#![no_main]

use chiton_policy::{Place, PolicyFile, parse_composition};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = PolicyFile::parse(text);
    let _ = parse_composition(text, Place::START);
});
