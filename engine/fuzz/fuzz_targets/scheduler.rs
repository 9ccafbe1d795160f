#![no_main]
#![allow(dead_code)]

#[path = "../../tests/against_oracle.rs"]
mod against_oracle;

libfuzzer_sys::fuzz_target!(|data: &[u8]| against_oracle::run(data));
