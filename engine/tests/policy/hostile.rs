//! Files that are meant to do harm: an error soon, no panic.

use std::fmt::Write as _;

use proptest::prelude::*;
use tollgate::policy::{PolicyErrors, PolicyFaultKind as Kind, PolicyFile};

use super::HEAD;

/// Fails with a bounded message. What is not refused soon takes minutes, or all memory: such a test does not end.
fn refused(text: &str) -> PolicyErrors {
    let errors = super::errors(text);
    let message = errors.to_string();
    assert!(message.len() < 2_000_000, "{} bytes", message.len());
    errors
}

fn is_too_complex(errors: &PolicyErrors) -> bool {
    errors.faults().iter().all(|fault| matches!(fault.kind, Kind::TooComplex { .. } | Kind::Syntax { .. }))
}

#[test]
fn deep_nesting() {
    for n in [33, 1_000, 100_000] {
        let flow = format!("router: {}{}", "[".repeat(n), "]".repeat(n));
        assert!(is_too_complex(&refused(&flow)));
        let maps = format!("router: {}", "{a: ".repeat(n));
        assert!(is_too_complex(&refused(&maps)));
        let dashes = format!("router:\n {}x", "- ".repeat(n));
        assert!(is_too_complex(&refused(&dashes)));
    }
    let mut block = String::new();
    for depth in 0..1_000 {
        writeln!(block, "{}a:", " ".repeat(depth)).unwrap();
    }
    assert!(is_too_complex(&refused(&block)));
}

#[test]
fn unclosed_brackets() {
    refused(&"[".repeat(1_000_000));
    refused(&"{".repeat(1_000_000));
    refused(&"? ".repeat(100_000));
    refused(&"&a ".repeat(100_000));
}

#[test]
fn alias_bomb() {
    let mut text = "router:\n  - &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..20 {
        let aliases = vec![format!("*a{}", i - 1); 9].join(", ");
        writeln!(text, "  - &a{i} [{aliases}]").unwrap();
    }
    assert!(is_too_complex(&refused(&text)));
}

#[test]
fn wide_list_repeated_by_aliases() {
    let items = vec!["x"; 20].join(", ");
    let text = format!("router: [&a [{items}]{}]", ", *a".repeat(2_000));
    assert!(is_too_complex(&refused(&text)));
}

#[test]
fn merge_bomb() {
    let mut text = "router:\n  a0: &a0 {x: 1}\n".to_owned();
    for i in 1..40 {
        let alias = format!("*a{}", i - 1);
        writeln!(text, "  a{i}: &a{i} {{<<: [{alias}, {alias}, {alias}]}}").unwrap();
    }
    assert!(is_too_complex(&refused(&text)));
}

#[test]
fn long_scalar_repeated_by_aliases() {
    for quote in ["", "\"", "'"] {
        let long = "1".repeat(1_000_000);
        let text = format!("router: [&a {quote}{long}{quote}{}]", ", *a".repeat(9_000));
        assert!(is_too_complex(&refused(&text)));
        let long = "1".repeat(16_000);
        let text = format!("router: [&a {quote}{long}{quote}{}]", ", *a".repeat(4_000));
        let _ = PolicyFile::parse(&text);
    }
}

#[test]
fn recursive_alias() {
    refused("router: &a [*a]\n");
    refused("models: &a {m: *a}\n");
}

#[test]
fn huge_scalar() {
    let long = "9".repeat(1_000_000);
    let errors = refused(&format!("policy_classes: [{{name: a, quantum: {long}}}]"));
    assert!(matches!(errors.faults()[0].kind, Kind::TooComplex { .. }), "{errors}");
    refused(&format!("policy_classes: [{{name: {long}a, quantum: 1}}]"));
    refused(&format!("? {long}\n: 1\n"));
    refused(&format!("policy_classes: |\n  {long}\n"));
}

#[test]
fn huge_text() {
    let errors = refused(&format!("#{}\n{HEAD}", "x".repeat(5 << 20)));
    assert!(matches!(errors.faults()[0].kind, Kind::TooLong { .. }), "{errors}");
}

#[test]
fn more_faults_than_anybody_reads() {
    let mut text = "uncached_isl_buckets:\n".to_owned();
    for i in 0..5_000 {
        writeln!(text, "  - {{min_tokens: {i}, bucket: b{i}}}").unwrap();
    }
    text.push_str("policy_classes:\n");
    for i in 0..5_000 {
        writeln!(text, "  - {{name: c{i}, policy_family: f{i}, cache_bucket: b0, quantum: 1}}").unwrap();
    }
    let errors = refused(&text);
    // A class for each family and bucket but one, and the default family.
    assert_eq!(errors.faults().len() + errors.omitted(), 5_000 * 4_999 + 1);
}

#[test]
fn strange_keys() {
    for text in [
        "? [a]\n: b\n",
        "? {a: b}\n: c\n",
        "~: a\n",
        "1: a\n",
        "true: a\n",
        "!x a: b\n",
        "<<: a\n",
        "!!binary a: b",
    ] {
        refused(text);
    }
    refused("policy_classes: !!binary AAAA\n");
    refused("policy_classes: !!int x\n");
    refused("policy_classes: !include /etc/passwd\n");
}

#[test]
fn a_policy_of_a_thousand_classes_is_fine() {
    let mut text = "policy_classes:\n".to_owned();
    for i in 0..1_000 {
        writeln!(text, "  - {{name: class_{i}, quantum: {}, prefill_busy_threshold: 10}}", i + 1).unwrap();
    }
    assert_eq!(PolicyFile::parse(&text).unwrap().root().unwrap().classes().len(), 1_000);
}

#[test]
fn long_comments_are_fine() {
    let comment = "# nothing to see here\n".repeat(2_000);
    PolicyFile::parse(&HEAD.replace('\n', &format!("\n{comment}"))).unwrap();
}

/// Pieces of policy files, so that random texts get further than the first line.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(vec![
            "default_policy_family", "uncached_isl_buckets", "policy_classes", "models", "name", "quantum",
            "min_tokens", "bucket", "policy_family", "cache_bucket", "busy_worker_ratio", "router", "<<",
            ": ", ":\n", "\n", "\n  ", "\n  - ", "\n    ", "- ", "{", "}", "[", "]", ", ", "? ", "~", "0",
            "-1", "1.5", ".nan", "18446744073709551616", "\"", "'", "|", ">", "&a ", "*a", "!!int ", "!x ",
            "#", "---\n", "...\n", "%YAML 1.2\n", "\t", "\r\n", "\u{feff}", "a", "regular", "short",
        ]).prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        let _ = PolicyFile::parse(&text).map_err(|errors| errors.to_string());
    }

    #[test]
    fn arbitrary_pieces_never_panic(pieces in prop::collection::vec(piece(), 0..60)) {
        let _ = PolicyFile::parse(&pieces.concat()).map_err(|errors| errors.to_string());
    }

    /// One changed character in a sound file gives faults that all have a place, or a file that works.
    #[test]
    fn a_slip_of_the_pen_never_panics(at in 0..HEAD.len(), with in any::<char>()) {
        let mut text = HEAD.to_owned();
        text.replace_range(at..=at, with.encode_utf8(&mut [0; 4]));
        match PolicyFile::parse(&text) {
            Ok(file) => {
                let profile = file.profile(None, || unreachable!());
                for uncached in [0, 99, 100, u64::MAX] {
                    prop_assert!(profile.classify(None, uncached).index() < profile.classes().len());
                }
            }
            Err(errors) => prop_assert!(errors.faults().iter().all(|fault| fault.location.is_some())),
        }
    }
}
