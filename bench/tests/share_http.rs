//! `share --http` from outside: the router example with its built-in worker, real sockets.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Once;

use serde_json::Value;

/// The router beside the binary under test. `cargo test --workspace` has built it; else it is built here.
fn built() -> PathBuf {
    static BUILT: Once = Once::new();
    let bin = Path::new(env!("CARGO_BIN_EXE_tollgate-bench"));
    let router =
        bin.with_file_name("examples").join("router").with_extension(std::env::consts::EXE_EXTENSION);
    BUILT.call_once(|| {
        if router.exists() {
            return;
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "tollgate", "--example", "router"]).current_dir(root);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success(), "the router does not build");
    });
    assert!(router.exists(), "{} was built elsewhere", router.display());
    router
}

fn run(args: &[&str]) -> Output {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("share_http");
    std::fs::create_dir_all(&dir).unwrap();
    Command::new(env!("CARGO_BIN_EXE_tollgate-bench")).args(args).current_dir(dir).output().unwrap()
}

fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn uint(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

/// Of the first four completions two are premium, whatever the quanta; the rest is shared by them. The bounds leave
/// room for answers that are read out of order, and are far from each other.
fn check(arm: &Value, premium: std::ops::RangeInclusive<u64>, left: std::ops::RangeInclusive<u64>) {
    let run = &arm["runs"][0];
    let (p, r) = (uint(&run["first_80"]["premium"]), uint(&run["first_80"]["regular"]));
    assert_eq!(p + r, 80, "{arm:#}");
    assert!(premium.contains(&p), "{arm:#}");
    assert!(left.contains(&uint(&run["regular_left"])), "{arm:#}");
    assert_eq!((uint(&run["refused"]["premium"]), uint(&run["refused"]["regular"])), (0, 0));
}

#[test]
fn the_shares_over_http_are_those_in_one_process() {
    built();
    let output =
        run(&["share", "--http", "spawn", "--requests", "80", "--runs", "1", "--service-ms", "10", "--json"]);
    let document = json(&output);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!((&document["http"], &document["threads"]), (&Value::Bool(true), &Value::Null));
    let arms = document["arms"].as_array().unwrap();
    assert_eq!(arms.len(), 3);
    // Exact: 80 of 160 are premium's with equal quanta; with 4 : 1 it has 63 of the first 80, and 59 are left.
    check(&arms[0], 36..=44, 0..=8);
    check(&arms[1], 58..=68, 52..=66);
    check(&arms[2], 54..=74, 46..=72);
}

#[test]
fn a_router_that_runs_is_asked_and_needs_its_policy_to_be_named() {
    let router = built();
    let policy = concat!(env!("CARGO_MANIFEST_DIR"), "/policies/premium_4x.yaml");
    let mut child = Command::new(router)
        .args([
            "--listen",
            "127.0.0.1:0",
            "--mock-workers",
            "1",
            "--mock-cache",
            "0",
            "--mock-prefill",
            "51200",
        ])
        .args(["--policy", policy])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let url = lines.find_map(|line| line.unwrap().strip_prefix("listening on ").map(str::to_owned)).unwrap();
    let without = run(&["--http", &url]);
    let output = run(&["--http", &url, "--policy", policy, "--requests", "80", "--runs", "1", "--json"]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(without.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&without.stderr).contains("--policy"));
    check(&json(&output)["arms"][0], 58..=68, 52..=66);
    // Nobody listens any more.
    let gone = run(&["--http", &url, "--policy", policy, "--requests", "1", "--runs", "1"]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(!gone.stderr.is_empty());
}
