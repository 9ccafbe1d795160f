#![no_main]
// The test of the same name has more in it.
#![allow(dead_code, unused_imports)]

#[path = "../../tests/against_oracle.rs"]
mod against_oracle;

libfuzzer_sys::fuzz_target!(|data: &[u8]| against_oracle::run(data));
