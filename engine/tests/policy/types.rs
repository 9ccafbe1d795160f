//! Values of wrong types, unknown fields, and many faults at once.

use tollgate::policy::{Place, PolicyFaultKind as Kind};

use super::{HEAD, assert_fault, errors, fault, with_class};

fn quantum(value: &str) -> String {
    with_class(&format!("name: a, quantum: {value}"))
}

#[test]
fn not_an_integer() {
    for (value, shown) in [
        ("many", "the string \"many\""),
        ("\"512\"", "the string \"512\""),
        ("512.0", "512.0"),
        ("1e3", "1e3"),
        (".nan", ".nan"),
        (".inf", ".inf"),
        ("true", "true"),
        ("[1]", "a list"),
        ("{a: 1}", "a mapping"),
        ("1_000", "the string \"1_000\""),
        ("0755", "the string \"0755\""),
    ] {
        assert_fault!(
            fault(&quantum(value)),
            Place::Root,
            Some("a"),
            Some("quantum"),
            (8, 24),
            Kind::WrongType { expected: "an integer", found } if found == shown,
        );
    }
}

#[test]
fn negative_integer() {
    for value in ["-1", "-9223372036854775808", "-99999999999999999999"] {
        assert_fault!(
            fault(&quantum(value)),
            Place::Root,
            Some("a"),
            Some("quantum"),
            (8, 24),
            Kind::Negative { value: found } if found == value,
        );
    }
}

#[test]
fn integer_above_u64() {
    for value in ["18446744073709551616", "99999999999999999999999999"] {
        assert_fault!(
            fault(&quantum(value)),
            Place::Root,
            Some("a"),
            Some("quantum"),
            (8, 24),
            Kind::TooLarge { value: found } if found == value,
        );
    }
}

#[test]
fn every_integer_field_is_checked() {
    for field in [
        "prefill_busy_threshold",
        "request_queue_limit_per_worker",
        "raw_isl_token_queue_limit_per_worker",
        "cached_token_queue_limit_per_worker",
    ] {
        let fault = fault(&with_class(&format!("name: a, quantum: 1, {field}: x")));
        let column = 29 + u32::try_from(field.len()).unwrap();
        assert_fault!(fault, Place::Root, Some("a"), Some(field), (8, _), Kind::WrongType { .. });
        assert_eq!(fault.location.unwrap().column, column);
    }
    let fault = fault(&HEAD.replace("min_tokens: 100", "min_tokens: -100"));
    let field = Some("uncached_isl_buckets[1].min_tokens");
    assert_fault!(fault, Place::Root, None, field, (4, 18), Kind::Negative { .. });
}

#[test]
fn not_a_number() {
    for field in ["prefill_busy_threshold_frac", "busy_worker_ratio"] {
        let text = with_class(&format!("name: a, quantum: 1, prefill_busy_threshold: 1, {field}: \"0.5\""));
        assert_fault!(
            fault(&text),
            Place::Root,
            Some("a"),
            Some(field),
            (8, 83 | 73),
            Kind::WrongType { expected: "a number", found } if found == "the string \"0.5\"",
        );
    }
}

#[test]
fn not_a_string() {
    assert_fault!(
        fault(&with_class("name: 5, quantum: 1")),
        Place::Root,
        None,
        Some("policy_classes[2].name"),
        (8, 12),
        Kind::WrongType { expected: "a string", found } if found == "5",
    );
}

#[test]
fn unknown_queue_policy() {
    for policy in ["lcfs", "FCFS"] {
        assert_fault!(
            fault(&with_class(&format!("name: a, quantum: 1, queue_policy: {policy}"))),
            Place::Root,
            Some("a"),
            Some("queue_policy"),
            (8, 41),
            Kind::UnknownQueuePolicy { value } if value == policy,
        );
    }
}

#[test]
fn unknown_fields() {
    let root = fault(&format!("{HEAD}police_classes: 1\n"));
    assert_fault!(root, Place::Root, None, Some("police_classes"), (8, 1), Kind::UnknownField);
    let class = fault(&with_class("name: a, quantum: 1, weight: 2"));
    assert_fault!(class, Place::Root, Some("a"), Some("weight"), (8, 27), Kind::UnknownField);
    let bucket = fault(&HEAD.replace("bucket: long}", "bucket: long, max: 1}"));
    let field = Some("uncached_isl_buckets[1].max");
    assert_fault!(bucket, Place::Root, None, field, (4, 37), Kind::UnknownField);
    // What the root may have and be ignored, a model may not.
    let model = fault("models:\n  m:\n    router: {}\n    policy_classes: [{name: a, quantum: 1}]\n");
    assert_fault!(model, Place::Model("m".into()), None, Some("router"), (3, 5), Kind::UnknownField);
}

#[test]
fn duplicate_fields() {
    let root = fault(&format!("{HEAD}default_policy_family: regular\n"));
    assert_fault!(
        root,
        Place::Root,
        None,
        Some("default_policy_family"),
        (8, 1),
        Kind::DuplicateField { first: Some(first) } if first.line == 1,
    );
    let class = fault(&with_class("name: a, quantum: 1, quantum: 2"));
    assert_fault!(class, Place::Root, Some("a"), Some("quantum"), (8, 27), Kind::DuplicateField { .. });
    let class = "{policy_classes: [{name: a, quantum: 1}]}";
    let model = fault(&format!("models:\n  m: {class}\n  m: {class}\n"));
    assert_fault!(model, Place::Model("m".into()), None, None, (3, 3), Kind::DuplicateField { .. });
    let ignored = fault("router:\n  a: [{b: 1, b: 2}]\n");
    assert_fault!(ignored, Place::Root, None, Some("router.a.b"), (2, 14), Kind::DuplicateField { .. });
}

#[test]
fn wrong_sections() {
    for section in ["policy_classes", "uncached_isl_buckets"] {
        let others =
            if section == "policy_classes" { "" } else { "policy_classes: [{name: a, quantum: 1}]\n" };
        for value in ["5", "text", "{}"] {
            let fault = fault(&format!("{section}: {value}\n{others}"));
            let field = Some(section);
            let kind_is_list = matches!(fault.kind, Kind::WrongType { expected: "a list", .. });
            assert!(kind_is_list, "{fault}");
            assert_fault!(fault, Place::Root, None, field, (1, 17 | 23), Kind::WrongType { .. });
        }
    }
    let models = fault("models: [a]\n");
    assert_fault!(models, Place::Root, None, Some("models"), (1, 9), Kind::WrongType { .. });
    let class = fault(&format!("{HEAD}  - text\n"));
    assert_fault!(class, Place::Root, None, Some("policy_classes[2]"), (8, 5), Kind::WrongType { .. });
    let class = fault(&format!("{HEAD}  -\n"));
    assert_fault!(
        class,
        Place::Root,
        None,
        Some("policy_classes[2]"),
        (_, _),
        Kind::WrongType { found, .. } if found == "null",
    );
}

#[test]
fn wrong_models() {
    let place = || Place::Model("m".into());
    assert_fault!(fault("models:\n  m:\n"), place(), None, None, (2, 3), Kind::Missing);
    assert_fault!(fault("models:\n  m: 5\n"), place(), None, None, (2, 6), Kind::WrongType { .. });
    let field = Some("policy_classes");
    assert_fault!(fault("models:\n  m: {}\n"), place(), None, field, (2, 6), Kind::Missing);
    let unnamed = fault("models:\n  \"\": {policy_classes: [{name: a, quantum: 1}]}\n");
    assert_fault!(unnamed, Place::Root, None, Some("models"), (2, 3), Kind::EmptyModelName);
    let number = fault("models:\n  7: {policy_classes: [{name: a, quantum: 1}]}\n");
    assert_fault!(number, Place::Root, None, Some("models"), (2, 3), Kind::WrongType { .. });
}

#[test]
fn null_in_an_optional_field_is_absence() {
    let text = with_class(
        "name: a, quantum: 1, policy_family: ~, cache_bucket: null, queue_policy: ~, prefill_busy_threshold: , \
         busy_worker_ratio: ~, request_queue_limit_per_worker: ~",
    );
    let file = tollgate::policy::PolicyFile::parse(&format!("{text}models: ~\nrouter: ~\n")).unwrap();
    let class = &file.root().unwrap().classes()[2];
    assert_eq!(*class, tollgate::policy::ClassSpec::explicit("a", 1));
    assert!(file.warnings().is_empty());
}

#[test]
fn many_faults_at_once() {
    let text = "\
default_policy_family: gold
uncached_isl_buckets:
  - min_tokens: 8
    bucket: short
  - min_tokens: 8
    bucket: long
policy_classes:
  - name: a_short
    policy_family: a
    cache_bucket: short
    quantum: 0
  - name: a_long
    policy_family: a
    cache_bucket: long
    quantum: lots
  - name: b
    quantum: 1
    weight: 3
  - name: c
    quantum: -1
    busy_worker_ratio: 2
    prefill_busy_threshold_frac: .inf
    queue_policy: lifo
models:
  m:
    policy_classes:
      - name: 9
        quantum: 1.5
      - text
unknown: 1
";
    let expected = "\
1:24: root: default_policy_family: \"gold\" is not the policy_family of any class
3:17: root: uncached_isl_buckets[0].min_tokens: must be 0 in the first bucket, is 8
5:17: root: uncached_isl_buckets[1].min_tokens: must be greater than 8 of the bucket before, is 8
11:14: root: class \"a_short\": quantum: must be greater than 0
15:14: root: class \"a_long\": quantum: must be an integer, found the string \"lots\"
18:5: root: class \"b\": weight: is not a known field
20:14: root: class \"c\": quantum: must not be negative, is -1
21:24: root: class \"c\": busy_worker_ratio: must be greater than 0 and at most 1, is 2
22:34: root: class \"c\": prefill_busy_threshold_frac: must be finite, is inf
23:19: root: class \"c\": queue_policy: must be fcfs, wspt or aged_wspt, is \"lifo\"
27:15: model \"m\": policy_classes[0].name: must be a string, found 9
28:18: model \"m\": policy_classes[0].quantum: must be an integer, found 1.5
29:9: model \"m\": policy_classes[1]: must be a mapping, found the string \"text\"
30:1: root: unknown: is not a known field";
    assert_eq!(errors(text).to_string(), expected);
}
