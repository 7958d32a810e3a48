#![no_main]
#![allow(dead_code, clippy::unwrap_used)]

#[path = "../../tests/fuzz/properties/mod.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    properties::expressions(bytes);
});
