//! The models must be able to fail: each ordering of the protocols is weakened in turn, in a copy, and its model goes red.
#![cfg(not(any(loom, shuttle)))]

use std::process::Command;

fn mutate(argument: &str) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_mutate")).arg(argument).output().expect("it is built with the test");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    stdout
}

#[test]
fn the_table_fits_the_sources_and_leaves_out_no_ordering() {
    mutate("--check");
}

/// The quick ones; `cargo run -p tollgate-loom --bin mutate` does them all.
#[test]
fn every_ordering_that_is_weakened_turns_its_model_red() {
    println!("{}", mutate("--quick"));
}
