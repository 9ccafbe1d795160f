//! The binary from outside: what it prints, where, and with which exit code. Counts are exact or bounded by what deficit
//! round robin promises; nothing here depends on how fast the machine is.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Runs the binary in a directory of its own.
fn run(test: &str, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tollgate-bench")).args(args).current_dir(dir(test)).output().unwrap()
}

fn dir(test: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Writes a file into the directory of the test.
fn file(test: &str, name: &str, text: &str) -> PathBuf {
    let path = dir(test).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// The document of a run that went well.
fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).expect("one JSON document and nothing else")
}

/// Keys of an object, in order.
fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn uint(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

/// A usage error: exit code 2, nothing on standard output, all of `needles` on standard error.
#[track_caller]
fn assert_refused(output: &Output, needles: &[&str]) {
    assert_eq!(output.status.code(), Some(2), "{}", stderr(output));
    assert_eq!(stdout(output), "");
    for needle in needles {
        assert!(stderr(output).contains(needle), "{needle:?} is missing in:\n{}", stderr(output));
    }
}

const SMALL: [&str; 7] = ["--requests", "40", "--runs", "1", "--service-ms", "1", "--json"];

#[test]
fn json_has_the_three_arms_and_their_shares() {
    let document = json(&run("three_arms", &SMALL));
    let arms = document["arms"].as_array().unwrap();
    let names: Vec<_> = arms.iter().map(|arm| arm["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["equal", "weighted", "burst"]);
    let quanta = [(512, 512), (512, 128), (4096, 1024)];
    for (arm, (premium, regular)) in arms.iter().zip(quanta) {
        assert_eq!(keys(&arm["quanta"]), ["premium", "regular"]);
        assert_eq!((uint(&arm["quanta"]["premium"]), uint(&arm["quanta"]["regular"])), (premium, regular));
        let runs = arm["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 1);
        assert_eq!(keys(&runs[0])[..2], ["first_40", "regular_left"]);
        assert_eq!(keys(&runs[0]["first_40"]), ["premium", "regular"]);
        let first = |class| uint(&runs[0]["first_40"][class]);
        assert_eq!(first("premium") + first("regular"), 40);
        // Nothing is known of 40 requests.
        assert!(runs[0]["inside"].is_null() && arm["expected"].is_null());
    }
    let run = |arm: usize| &arms[arm]["runs"][0];
    // Of the first four completions two are premium, whatever the quanta; the rest is shared by them. The bounds
    // leave room for first arrivals that come late, and are far from each other.
    let premium = |arm| uint(&run(arm)["first_40"]["premium"]);
    assert!((18..=22).contains(&premium(0)), "equal: {}", premium(0));
    assert!((28..=34).contains(&premium(1)), "weighted: {}", premium(1));
    assert!((26..=36).contains(&premium(2)), "burst: {}", premium(2));
    let left = |arm| uint(&run(arm)["regular_left"]);
    assert!(left(0) <= 4, "equal: {}", left(0));
    assert!((25..=33).contains(&left(1)), "weighted: {}", left(1));
    assert!((22..=36).contains(&left(2)), "burst: {}", left(2));
}

#[test]
fn the_subcommand_and_nothing_mean_the_same() {
    let names = |output: &Output| json(output)["arms"].as_array().unwrap().len();
    let with: Vec<_> = ["share"].into_iter().chain(SMALL).collect();
    assert_eq!(names(&run("subcommand", &with)), names(&run("subcommand", &SMALL)));
}

#[test]
fn the_plot_is_where_the_results_say() {
    let document = json(&run("plot_default", &SMALL));
    assert_eq!(document["plot"], "target/share.svg");
    let svg = std::fs::read_to_string(dir("plot_default").join("target/share.svg")).unwrap();
    for needle in ["<svg", "premium", "regular", "equal", "weighted", "burst", "first 40"] {
        assert!(svg.contains(needle), "{needle:?} is missing");
    }

    let plot = dir("plot_given").join("other.svg");
    std::fs::remove_file(&plot).ok();
    let text = run("plot_given", &["--requests", "4", "--runs", "1", "--plot", plot.to_str().unwrap()]);
    assert_eq!(text.status.code(), Some(0));
    assert!(stdout(&text).ends_with(&format!("plot: {}\n", plot.display())), "{}", stdout(&text));
    assert!(std::fs::read_to_string(&plot).unwrap().ends_with("</svg>\n"));
}

#[test]
fn the_table_has_a_line_for_each_run_and_fits() {
    let output = run("table", &["--requests", "20", "--runs", "2", "--service-ms", "0.5"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert_eq!(text.lines().filter(|line| line.starts_with("  run ")).count(), 6);
    for needle in ["first 20", "equal  512 : 512", "weighted  512 : 128", "burst  4096 : 1024", "p50 / p99"] {
        assert!(text.contains(needle), "{needle:?} is missing in:\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert_eq!(stderr(&output), "", "no progress bar without a terminal");
}

#[test]
fn other_classes_have_their_own_keys_and_the_policy_its_own_arm() {
    let test = "other_classes";
    let class = |name: &str, quantum: u64| {
        format!("  - {{name: {name}, quantum: {quantum}, prefill_busy_threshold: 10}}\n")
    };
    let text = format!("policy_classes:\n{}{}{}", class("gold", 100), class("silver", 100), class("tin", 10));
    let policy = file(test, "metals.yaml", &text);
    let policy = policy.to_str().unwrap();
    let args = ["--policy", policy, "--policy", policy, "--classes", "gold,silver,tin", "--cost", "100"];
    let document = json(&run(test, &[&args[..], &SMALL].concat()));
    let arms = document["arms"].as_array().unwrap();
    assert_eq!(arms.len(), 2);
    for arm in arms {
        assert_eq!(arm["name"], "metals");
        assert_eq!(arm["quanta"], serde_json::json!({"gold": 100, "silver": 100, "tin": 10}));
        let run = &arm["runs"][0];
        assert_eq!(keys(run)[..3], ["first_40", "silver_left", "tin_left"]);
        let first = |class| uint(&run["first_40"][class]);
        assert_eq!(first("gold") + first("silver") + first("tin"), 40);
        assert!(first("gold") >= 16 && first("silver") >= 16, "{run}");
        assert!(uint(&run["tin_left"]) >= 28 && uint(&run["silver_left"]) <= 3, "{run}");
    }
}

#[test]
fn the_sample_policy_is_recognised_and_its_range_decides_the_exit_code() {
    let policy = concat!(env!("CARGO_MANIFEST_DIR"), "/policies/premium_4x.yaml");
    let output = run("recognised", &["--policy", policy, "--runs", "1", "--service-ms", "1", "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let arm = &document["arms"][0];
    assert_eq!(arm["name"], "premium_4x");
    assert_eq!(arm["expected"]["first_320"]["premium"], serde_json::json!([254, 257]));
    assert_eq!(arm["expected"]["regular_left"], serde_json::json!([237, 240]));
    let inside = arm["runs"][0]["inside"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(if inside { 0 } else { 1 }));
}

#[test]
fn refused_requests_are_counted_and_do_not_hang_the_run() {
    let test = "refused";
    let text = "policy_classes:\n\
                \x20 - {name: premium, quantum: 512, prefill_busy_threshold: 0}\n\
                \x20 - {name: regular, quantum: 512, prefill_busy_threshold: 0, request_queue_limit_per_worker: 0}\n";
    let policy = file(test, "limit.yaml", text);
    let document = json(&run(test, &[&["--policy", policy.to_str().unwrap()][..], &SMALL].concat()));
    let refused = &document["arms"][0]["runs"][0]["refused"];
    assert_eq!(uint(&refused["premium"]), 0);
    assert!(uint(&refused["regular"]) > 0, "{refused}");
}

#[test]
fn a_wrong_policy_gives_all_its_faults() {
    let test = "wrong_policy";
    let wrong = "policy_classes:\n  - {name: premium, quantum: 0}\n  - {name: premium, quantum: 5}\n  - {quantum: x}\n";
    let policy = file(test, "wrong.yaml", wrong);
    let other = file(test, "other.yaml", "policy_classes: []\n");
    let output = run(test, &["--policy", policy.to_str().unwrap(), "--policy", other.to_str().unwrap()]);
    assert_refused(&output, &[]);
    let lines: Vec<_> = stderr(&output).lines().collect();
    // The library says which faults there are; here it counts that each has its line and its file.
    let faults = |text| tollgate::policy::PolicyFile::parse(text).unwrap_err().faults().len();
    let of = |path: &Path| lines.iter().filter(|l| l.starts_with(path.to_str().unwrap())).count();
    assert!(faults(wrong) >= 4);
    assert_eq!((of(&policy), of(&other)), (faults(wrong), 1));
    assert_eq!(lines.len(), faults(wrong) + 1, "{lines:#?}");
}

#[test]
fn a_file_or_class_that_is_not_there_is_an_error() {
    assert_refused(&run("missing", &["--policy", "nowhere.yaml"]), &["nowhere.yaml: "]);
    assert_refused(&run("missing", &["--plot", "no/such/place.svg"]), &["no/such/place.svg: "]);
    let output = run("missing", &["--classes", "premium,gold"]);
    assert_refused(&output, &["\"gold\"", "\"premium\", \"regular\""]);
    let models = file(
        "missing",
        "models.yaml",
        "models:\n  m:\n    policy_classes:\n      - {name: premium, quantum: 1}\n      - {name: regular, quantum: 1}\n",
    );
    let models = models.to_str().unwrap();
    assert_refused(&run("missing", &["--policy", models]), &["models.yaml: ", "\"m\"", "--model"]);
    let with_model = [&["--policy", models, "--model", "m"][..], &SMALL].concat();
    assert_eq!(json(&run("missing", &with_model))["arms"][0]["name"], "models");
}

#[test]
fn impossible_values_are_errors_of_the_command_line() {
    let impossible = [
        ["--slots", "0"],
        ["--requests", "0"],
        ["--requests", "-1"],
        ["--threads", "0"],
        ["--runs", "0"],
        ["--cost", "0"],
        ["--service-ms", "NaN"],
        ["--service-ms", "inf"],
        ["--service-ms=-1", "--json"],
        ["--classes", "premium,premium"],
        ["--classes", ""],
        ["--model", "without-a-policy"],
    ];
    for args in impossible {
        let output = run("impossible", &args);
        assert_refused(&output, &["error: "]);
    }
    assert_refused(&run("impossible", &["--no-such-option"]), &["--no-such-option", "Usage"]);
    assert_refused(&run("impossible", &["nothing"]), &["nothing"]);
}

#[test]
fn help_and_version_go_to_standard_output() {
    for args in [&["--help"][..], &["share", "--help"]] {
        let output = run("help", args);
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
        for option in [
            "--policy",
            "--requests",
            "--cost",
            "--slots",
            "--service-ms",
            "--threads",
            "--runs",
            "--json",
            "--plot",
        ] {
            assert!(stdout(&output).contains(option), "{option} is missing");
        }
        assert!(stdout(&output).contains("Exit code"));
    }
    let output = run("help", &["--version"]);
    assert_eq!(stdout(&output), format!("tollgate-bench {}\n", env!("CARGO_PKG_VERSION")));
}
