#![no_main]

#[path = "../bodies/policy.rs"]
mod policy;

libfuzzer_sys::fuzz_target!(|data: &[u8]| policy::run(data));
