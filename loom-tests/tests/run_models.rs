//! Runs the models under loom and under shuttle, which need builds of their own, as part of every `cargo test`.
#![cfg(not(any(loom, shuttle)))]

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// What the models print, between the number and the name.
const EXECUTIONS: &str = " executions of ";

#[test]
fn every_model_is_green_under_loom() {
    run_under("loom");
}

#[test]
fn every_model_is_green_under_shuttle() {
    run_under("shuttle");
}

fn run_under(checker: &str) {
    // Both use all cores.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut rustflags = std::env::var("RUSTFLAGS").unwrap_or_default();
    rustflags.push_str(&format!(" --cfg {checker}"));
    let output = Command::new(cargo)
        .args(["test", "--release", "--package", "tollgate-loom", "--lib", "--no-fail-fast"])
        .arg("--manifest-path")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        // Its own folder: with other flags it would rebuild the caller's, whose lock may be held.
        .arg("--target-dir")
        .arg(target.parent().expect("the tmp folder is in the target folder").join(checker))
        .env("RUSTFLAGS", rustflags.trim_start())
        // Would take precedence over RUSTFLAGS.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .output()
        .expect("cargo starts");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let explored: Vec<(u64, &str)> = stdout.lines().filter_map(explored).collect();
    for (executions, model) in &explored {
        println!("{executions:>8} {model}");
    }
    if !output.status.success() {
        println!("{}\n{}", without_waits(&stdout), String::from_utf8_lossy(&output.stderr));
    }
    assert!(output.status.success(), "a model is red, or does not build");
    let passed: usize = stdout.lines().filter_map(passed).sum();
    assert_ne!(passed, 0, "no model ran");
    assert_eq!(explored.len(), passed, "every test is a model and says what it has explored");
    assert!(explored.iter().all(|(executions, _)| *executions > 1), "a model without a race");
}

/// The executions and the model, from a model's line, which may stand behind something of the harness.
fn explored(line: &str) -> Option<(u64, &str)> {
    let (before, model) = line.split_once(EXECUTIONS)?;
    Some((before.rsplit(' ').next()?.parse().ok()?, model))
}

/// The output without loom's own debugging line for every thread that waits for another, in every execution.
fn without_waits(stdout: &str) -> String {
    let mut lines = stdout.lines();
    let mut left = String::new();
    while let Some(line) = lines.next() {
        if line.contains("(state.notified, spurious) = (") {
            lines.by_ref().find(|line| *line == ")");
        } else {
            left.extend([line, "\n"]);
        }
    }
    left
}

/// How many tests passed, from a harness's last line.
fn passed(line: &str) -> Option<usize> {
    line.strip_prefix("test result: ok. ")?.split(' ').next()?.parse().ok()
}
