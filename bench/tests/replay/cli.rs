//! The binary from outside: what it prints, where, and with which exit code.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const TRACE: &str = "traffic.jsonl";
const POLICY: &str = "two.yaml";

/// A directory with a small trace and a policy.
fn dir(test: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("replay_{test}"));
    std::fs::create_dir_all(&dir).unwrap();
    let line = |i: u32| {
        format!("{{\"at\": {}, \"tokens\": {}, \"output\": 5}}\n", f64::from(i) * 0.01, 300 + i % 7 * 200)
    };
    std::fs::write(dir.join(TRACE), (0..500).map(line).collect::<String>()).unwrap();
    let class = |name: &str, quantum| {
        format!("  - {{name: {name}, quantum: {quantum}, prefill_busy_threshold: 1000}}\n")
    };
    std::fs::write(
        dir.join(POLICY),
        format!("policy_classes:\n{}{}", class("regular", 1), class("premium", 4)),
    )
    .unwrap();
    dir
}

fn run(test: &str, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tollgate-bench")).args(args).current_dir(dir(test)).output().unwrap()
}

fn replay(test: &str, args: &[&str]) -> Output {
    let all =
        ["replay", "--policy", POLICY, "--trace", TRACE, "--workers", "2", "--assign", "premium:share=0.3"];
    run(test, &[&all[..], args].concat())
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

#[track_caller]
fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).expect("one JSON document and nothing else")
}

/// Exit code 2, nothing on standard output, all of `needles` on standard error.
#[track_caller]
fn assert_refused(output: &Output, needles: &[&str]) {
    assert_eq!((output.status.code(), stdout(output)), (Some(2), ""), "{}", stderr(output));
    for needle in needles {
        assert!(stderr(output).contains(needle), "{needle:?} is missing in:\n{}", stderr(output));
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_one_others() {
    let bytes = |seed: &str| replay("seed", &["--json", "--seed", seed]).stdout;
    assert!(!bytes("1").is_empty());
    assert_eq!(bytes("1"), bytes("1"));
    assert_ne!(bytes("1"), bytes("2"));
}

#[test]
fn the_document_counts_every_request_once() {
    let document = json(&replay("json", &["--json", "--group", "long:tokens>=1000"]));
    let run = &document["runs"][0];
    assert_eq!((run["policy"].as_str(), run["unconserved_s"].as_f64()), (Some("two"), Some(0.0)));
    let count = |value: &Value| value["arrived"].as_u64().unwrap();
    assert_eq!((count(&run["all"]), run["all"]["completed"].as_u64()), (500, Some(500)));
    let classes = run["classes"].as_array().unwrap();
    assert_eq!(
        classes.iter().map(|class| class["name"].as_str().unwrap()).collect::<Vec<_>>(),
        ["regular", "premium"]
    );
    let premium = count(&classes[1]);
    // Binomial, 500 × 0.3: within four standard deviations.
    assert!((109..=191).contains(&premium) && premium + count(&classes[0]) == 500, "{premium}");
    // Of i % 7 the ones from 4 on.
    assert_eq!((run["groups"][0]["name"].as_str(), count(&run["groups"][0])), (Some("long"), 213));
    let line = &run["timeline"];
    let served: f64 =
        line["classes"][0]["served_tokens"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).sum();
    assert_eq!(served as u64, classes[0]["served_tokens"].as_u64().unwrap());
    assert_eq!(run["per_worker"].as_array().unwrap().len(), 2);
}

#[test]
fn the_page_and_the_chart_need_nothing_else_and_know_the_dark() {
    let test = "page";
    let output = replay(test, &["--policy", POLICY, "--html", "page.html", "--svg", "chart.svg"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).ends_with("no difference\n"), "{}", stdout(&output));
    let read = |name| std::fs::read_to_string(dir(test).join(name)).unwrap();
    for text in [read("page.html"), read("chart.svg")] {
        assert!(text.contains("prefers-color-scheme: dark") && text.contains("premium"));
        let outside = text.matches("http").count() - text.matches("http://www.w3.org/2000/svg").count();
        assert_eq!(outside, 0, "nothing is loaded");
    }
    assert_eq!(read("page.html").matches("<svg").count(), 5);
}

#[test]
fn the_tables_have_a_row_for_each_class() {
    let output = replay("table", &["--group", "long:tokens>=1000"]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    for needle in
        ["\nregular ", "\npremium ", "\ngroup long ", "\nall ", "of its due", "no request waited at any time"]
    {
        assert!(stdout(&output).contains(needle), "{needle:?} is missing in:\n{}", stdout(&output));
    }
}

#[test]
fn a_wrong_trace_names_file_line_and_field() {
    let test = "wrong_trace";
    let write = |name: &str, text: &str| std::fs::write(dir(test).join(name), text).unwrap();
    write("wrong.jsonl", "{\"at\": 0, \"tokens\": 5}\n{\"at\": 1, \"tokens\": -5}\n");
    let with = |trace: &str| run(test, &["replay", "--policy", POLICY, "--trace", trace]);
    assert_refused(&with("wrong.jsonl"), &["wrong.jsonl:2: invalid value: integer `-5`"]);
    assert_refused(&with("nowhere.csv"), &["nowhere.csv: "]);
    assert_refused(&with("poisson:rate=5"), &["requests"]);
    write("other.csv", "a,b\n1,2\n");
    assert_refused(&with("other.csv"), &["other.csv:1: no known format", "--format"]);
}

#[test]
fn a_wrong_policy_or_command_line_says_so() {
    let test = "wrong_policy";
    std::fs::write(
        dir(test).join("bad.yaml"),
        "policy_classes:\n  - {name: a, quantum: 0}\n  - {name: a, quantum: 1}\n",
    )
    .unwrap();
    assert_refused(&replay(test, &["--policy", "bad.yaml"]), &["bad.yaml:2:", "quantum", "bad.yaml:3:"]);
    assert_refused(&replay(test, &["--policy", "none.yaml"]), &["none.yaml: "]);
    for (args, needle) in [
        (["--workers", "0"], "--workers"),
        (["--speed", "0"], "--speed"),
        (["--speed", "NaN"], "--speed"),
        (["--permits", "0"], "--permits"),
        (["--step-tokens", "3"], "--step-tokens 3"),
        (["--assign", "a"], "NAME:CONDITION"),
        (["--assign", "a:share=0.9"], "--assign"),
        (["--rules", "none.txt"], "none.txt"),
        (["--calibrate", "none.csv"], "none.csv"),
        (["--html", "no/such/page.html"], "no/such/page.html"),
    ] {
        assert_refused(&replay(test, &args), &[needle]);
    }
    let unknown = replay(test, &["--assign", "gold:tokens>0"]);
    assert_eq!(unknown.status.code(), Some(0));
    assert!(stderr(&unknown).contains("no family or explicit class \"gold\""), "{}", stderr(&unknown));
}

#[test]
fn a_sweep_runs_every_combination_and_marks_the_best() {
    let test = "sweep";
    let all =
        ["sweep", "--policy", POLICY, "--trace", TRACE, "--workers", "2", "--assign", "premium:share=0.3"];
    let sets = ["--set", "premium.quantum=1,4,16", "--set", "*.prefill_busy_threshold=0,4000"];
    let numbers = ["--x", "waited_p99:premium", "--y", "waited_p99:regular"];
    let args = [&all[..], &sets, &numbers].concat();
    let document =
        json(&run(test, &[&args[..], &["--json", "--svg", "sweep.svg", "--threads", "3"]].concat()));
    let runs = document["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 6);
    let number = |run: &Value, name: &str| run["metrics"][name].as_f64().unwrap();
    let (x, y) = ("waited_p99 of premium [ms]", "waited_p99 of regular [ms]");
    for run in runs {
        let beaten = runs.iter().any(|other| {
            let (a, b) = ((number(other, x), number(other, y)), (number(run, x), number(run, y)));
            a.0 <= b.0 && a.1 <= b.1 && a != b
        });
        assert_eq!(run["best"].as_bool(), Some(!beaten), "{run}");
    }
    let alone = json(&run(test, &[&args[..], &["--json", "--threads", "1"]].concat()));
    assert_eq!(alone, document, "however many threads there are");
    let text = run(test, &args);
    assert_eq!(
        stdout(&text).lines().filter(|line| line.ends_with("best")).count(),
        runs.iter().filter(|r| r["best"] == true).count()
    );
    let chart = std::fs::read_to_string(dir(test).join("sweep.svg")).unwrap();
    assert!(chart.contains("<circle"));
    assert_refused(&run(test, &[&all[..], &["--set", "gold.quantum=5"]].concat()), &["gold", "premium"]);
    assert_refused(&run(test, &[&all[..], &["--set", "premium.colour=5"]].concat()), &["colour", "quantum"]);
    assert_refused(&run(test, &[&args[..], &["--also", "speed"]].concat()), &["speed", "waited_p99"]);
}

#[test]
fn measured_steps_replace_the_defaults() {
    let test = "calibrate";
    let steps = "prefill_tokens,decoding,step_ms\r\n0,1,5.1\r\n1000,0,15\r\n4000,8,45.8\r\n0,32,8.2";
    std::fs::write(dir(test).join("steps.csv"), steps).unwrap();
    let document = json(&replay(test, &["--json", "--calibrate", "steps.csv"]));
    let near = |name: &str, ns: f64| {
        let fitted = document["step_ns"][name].as_f64().unwrap();
        assert!((fitted / ns - 1.0).abs() < 1e-6, "{name}: {fitted}");
    };
    near("base", 5e6);
    near("per_prompt_token", 1e4);
    near("per_decoding_request", 1e5);
}

#[test]
fn traces_lie_over_each_other_and_rules_tell_them_apart() {
    let test = "sources";
    let azure = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.5,700,3\r\n2023-11-16 18:17:04.5,800,3";
    std::fs::write(dir(test).join("code.csv"), azure).unwrap();
    std::fs::write(dir(test).join("rules.txt"), "# by source\npremium:source=code\nregular: # the rest\n")
        .unwrap();
    let all = [
        "replay",
        "--policy",
        POLICY,
        "--trace",
        TRACE,
        "--trace",
        "code.csv",
        "--rules",
        "rules.txt",
        "--json",
    ];
    let document = json(&run(test, &all));
    let arrived =
        |document: &Value, class: usize| document["runs"][0]["classes"][class]["arrived"].as_u64().unwrap();
    assert_eq!((arrived(&document, 0), arrived(&document, 1)), (500, 2));
    let part = json(&run(test, &[&all[..], &["--from", "1", "--for", "2", "--speed", "4"]].concat()));
    assert_eq!((arrived(&part, 0), arrived(&part, 1)), (200, 1));
    assert!(part["runs"][0]["arrivals_s"].as_f64().unwrap() < 0.5);
    assert_refused(&run(test, &[&all[..], &["--from", "99"]].concat()), &["no request to replay"]);
}
