//! The stress test from outside: its books, its results, its errors. Nothing here depends on how fast the machine is.

use std::process::{Command, Output};

use serde_json::Value;

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tollgate-bench")).arg("stress").args(args).output().unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// The document of a short run, of which every invariant holds.
#[track_caller]
fn short(args: &[&str]) -> Value {
    let warm_up: &[&str] = if args.contains(&"--warm-up") { &[] } else { &["--warm-up", "0.05"] };
    let output = run(&[&["--json", "--duration", "0.2"], warm_up, args].concat());
    let document: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    assert_eq!((output.status.code(), &document["holds"]), (Some(0), &Value::Bool(true)), "{document:#}");
    document
}

fn uint(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

/// Requests by what became of them; they are as many as were sent.
#[track_caller]
fn ended(document: &Value) -> impl Fn(&str) -> u64 {
    let ended = document["requests"]["ended"].as_object().unwrap().clone();
    assert_eq!(ended.values().map(uint).sum::<u64>(), uint(&document["requests"]["sent"]), "{document:#}");
    move |name: &str| uint(&ended[name])
}

#[track_caller]
fn assert_ascending(percentiles: &Value) {
    let names = ["p50", "p90", "p99", "p99.9", "p99.99", "max"];
    let values: Vec<_> = names.iter().map(|name| uint(&percentiles[name])).collect();
    assert!(values.is_sorted() && values[0] > 0 && uint(&percentiles["count"]) > 0, "{percentiles}");
}

#[test]
fn a_saturated_engine_keeps_its_books_and_the_bound_on_service() {
    let document = short(&["--threads", "3", "--classes", "5", "--quanta", "400,100", "--workers", "3"]);
    let ended = ended(&document);
    assert!(ended("dispatched") > 0);
    for other in ["refused", "expired", "cancelled", "failed", "closed"] {
        assert_eq!(ended(other), 0, "{other}");
    }
    assert_ascending(&document["latency_ns"]);
    let classes = document["classes"].as_array().unwrap();
    let quanta: Vec<_> = classes.iter().map(|class| uint(&class["quantum"])).collect();
    assert_eq!(quanta, [400, 100, 400, 100, 400]);
    let promised: f64 = classes.iter().map(|class| class["promised"].as_f64().unwrap()).sum();
    assert!((promised - 1.0).abs() < 1e-4);
    assert_eq!(document["always_backlogged"], true);
    let invariants = document["invariants"].as_array().unwrap();
    assert!(invariants.len() >= 6, "{invariants:#?}");
}

#[test]
fn a_request_costs_one_allocation_at_ingress_and_none_in_the_arbiter() {
    let document = short(&["--publish", "0", "--warm-up", "0.3"]);
    let allocations = &document["allocations"];
    assert!(uint(&allocations["requests"]) > 0);
    assert_eq!(allocations["requests"], allocations["ingress"], "{allocations}");
    // How much waits at once, and so how large a structure grows, depends on timing: some may still grow.
    assert!(uint(&allocations["arbiter"]) <= 64, "{allocations}");
}

#[test]
fn cancelled_and_expired_requests_are_accounted_for() {
    let run = || {
        short(&[
            "--cancel",
            "0.3",
            "--deadline",
            "0.3",
            "--deadline-ms",
            "0.2",
            "--publish",
            "500",
            "--in-flight",
            "2000",
            "--service-us",
            "300",
        ])
    };
    let mut document = run();
    // On a starved machine the publisher may not have its turn in so short a time.
    while uint(&document["published"]) == 0 {
        document = run();
    }
    let ended = ended(&document);
    assert!(ended("dispatched") > 0 && ended("cancelled") > 0 && ended("expired") > 0, "{document:#}");
    assert_eq!(document["requests"]["reasons"]["deadline_exceeded"], ended("expired"));
    assert_eq!(document["always_backlogged"], false);
}

#[test]
fn an_open_loop_has_its_own_schedule() {
    for arrivals in ["even", "poisson"] {
        let document = short(&["--rate", "2000", "--arrivals", arrivals, "--cost", "lognormal:500,1"]);
        assert_eq!(
            (&document["options"]["loop"], &document["options"]["arrivals"]),
            (&"open".into(), &arrivals.into())
        );
        assert_ascending(&document["latency_ns"]);
        // Every request that was meant for the window counts, however late it was sent: 400, or about that.
        let counted = uint(&document["latency_ns"]["count"]);
        assert!(if arrivals == "even" { counted == 400 } else { (280..520).contains(&counted) }, "{counted}");
        assert_eq!(document["sent_late_ns"]["count"], counted);
    }
}

#[test]
fn a_schedule_that_is_too_fast_shows_in_the_latency() {
    // One worker with one slot and 10 ms each: of 200 requests in 0.2 s most wait for longer than the window.
    let document = short(&[
        "--rate",
        "1000",
        "--arrivals",
        "even",
        "--workers",
        "1",
        "--slots",
        "1",
        "--service-us",
        "10000",
        "--warm-up",
        "0",
    ]);
    assert_eq!(uint(&document["latency_ns"]["count"]), 200);
    assert!(uint(&document["latency_ns"]["p90"]) > 1_000_000_000, "{}", document["latency_ns"]);
    assert_eq!(ended(&document)("dispatched"), 200);
}

#[test]
fn with_fewer_callers_than_arrivals_the_rest_is_late() {
    let document = short(&[
        "--rate",
        "1000",
        "--arrivals",
        "even",
        "--workers",
        "1",
        "--slots",
        "1",
        "--service-us",
        "5000",
        "--warm-up",
        "0",
        "--threads",
        "1",
        "--in-flight",
        "1",
    ]);
    // At most 0.2 s / 5 ms were sent; each of those was sent when the one before was done.
    let sent = uint(&document["requests"]["sent"]);
    assert!((1..=40).contains(&sent), "{sent}");
    assert!(uint(&document["requests"]["unsent"]) >= 160, "{document:#}");
    assert_eq!(uint(&document["latency_ns"]["count"]), 200);
    assert!(sent < 5 || uint(&document["sent_late_ns"]["max"]) > 5_000_000, "{document:#}");
}

#[test]
fn every_order_and_a_wide_pool_keep_the_books() {
    for order in ["fcfs", "wspt", "aged"] {
        short(&[
            "--order",
            order,
            "--classes",
            "100",
            "--workers",
            "500",
            "--slots",
            "2",
            "--cost",
            "fixed:512",
        ]);
    }
}

#[test]
fn the_text_has_all_parts_and_no_more_on_standard_error() {
    let output = run(&["--warm-up", "0", "--duration", "0.1", "--classes", "20", "--cancel", "0.1"]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    let text = std::str::from_utf8(&output.stdout).unwrap();
    for needle in [
        "throughput",
        "p99.99",
        "class0",
        "class15",
        "… ",
        "allocations",
        "context switches",
        "resident memory",
        "cancelled",
        "holds",
        "admitted = dispatched + refused + expired + cancelled + failed + closed",
    ] {
        assert!(text.contains(needle), "{needle:?} is missing in:\n{text}");
    }
    assert!(!text.contains("BROKEN") && !text.contains("class16"), "{text}");
}

#[test]
fn impossible_values_are_errors_of_the_command_line() {
    let impossible = [
        ["--duration", "0"],
        ["--duration", "forever"],
        ["--threads", "0"],
        ["--classes", "0"],
        ["--classes", "10001"],
        ["--quanta", "0"],
        ["--quanta", "5,,6"],
        ["--workers", "0"],
        ["--slots", "0"],
        ["--cost", "512"],
        ["--cost", "uniform:9-1"],
        ["--cost", "lognormal:5,x"],
        ["--cancel", "1.5"],
        ["--deadline", "NaN"],
        ["--publish", "inf"],
        ["--rate", "0"],
        ["--in-flight", "1"],
        ["--order", "lifo"],
        ["--seed", "x"],
    ];
    for args in impossible {
        let output = run(&args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty() && stderr(&output).starts_with("error: "), "{args:?}");
        assert!(stderr(&output).contains(args[0]), "{args:?}: {}", stderr(&output));
    }
    let alone = run(&["--arrivals", "even"]);
    assert!(stderr(&alone).contains("--rate"), "{}", stderr(&alone));
    let together = run(&["--classes", "5", "--in-flight", "4"]);
    assert!(stderr(&together).contains("5 classes"), "{}", stderr(&together));
    let quanta = run(&["--classes", "1", "--quanta", "5,6"]);
    assert!(stderr(&quanta).contains("--quanta"), "{}", stderr(&quanta));
}
