//! One test for each rule of a profile.

use tollgate::policy::{Place, PolicyFaultKind as Kind};

use super::{HEAD, assert_fault, errors, fault, with_class};

#[test]
fn the_sound_profile_is_accepted() {
    tollgate::policy::PolicyFile::parse(HEAD).unwrap();
    tollgate::policy::PolicyFile::parse(&with_class("name: a, quantum: 1")).unwrap();
}

#[test]
fn empty_class_list() {
    let fault = fault("policy_classes: []\n");
    assert_fault!(fault, Place::Root, None, Some("policy_classes"), (1, 17), Kind::NoClasses);
}

#[test]
fn absent_class_list() {
    let text = "uncached_isl_buckets:\n  - {min_tokens: 0, bucket: any}\n";
    let fault = fault(text);
    assert_fault!(fault, Place::Root, None, Some("policy_classes"), (1, 1), Kind::Missing);
}

#[test]
fn null_class_list_is_absent() {
    let fault = fault(
        "default_policy_family: a\npolicy_classes: ~\nmodels: {}\n"
            .replace("default_policy_family: a\n", "uncached_isl_buckets: []\n")
            .as_str(),
    );
    assert_fault!(fault, Place::Root, None, Some("policy_classes"), (1, 1), Kind::Missing);
}

#[test]
fn zero_quantum() {
    let fault = fault(&with_class("name: a, quantum: 0"));
    assert_fault!(fault, Place::Root, Some("a"), Some("quantum"), (8, 24), Kind::ZeroQuantum);
}

#[test]
fn absent_quantum() {
    let fault = fault(&with_class("name: a"));
    assert_fault!(fault, Place::Root, Some("a"), Some("quantum"), (8, 5), Kind::Missing);
}

#[test]
fn null_quantum() {
    let fault = fault(&with_class("name: a, quantum: ~"));
    assert_fault!(fault, Place::Root, Some("a"), Some("quantum"), (8, 5), Kind::Missing);
}

#[test]
fn absent_class_name() {
    let fault = fault(&with_class("quantum: 1"));
    assert_fault!(fault, Place::Root, None, Some("policy_classes[2].name"), (8, 5), Kind::Missing);
}

#[test]
fn duplicate_class_name() {
    let fault = fault(&with_class("name: regular_long, quantum: 1"));
    assert_fault!(
        fault,
        Place::Root,
        Some("regular_long"),
        Some("name"),
        (8, 12),
        Kind::DuplicateName { name, first: Some(first) } if name == "regular_long" && first.line == 7,
    );
}

#[test]
fn invalid_class_name() {
    for name in ["9lives", "a b", "a/b", "é", ""] {
        let fault = fault(&with_class(&format!("name: \"{name}\", quantum: 1")));
        assert_fault!(
            fault,
            Place::Root,
            Some(name),
            Some("name"),
            (8, 12),
            Kind::InvalidName { name: found } if found == name,
        );
    }
}

#[test]
fn invalid_family_name() {
    let errors = errors(&with_class("name: a, policy_family: b/c, cache_bucket: short, quantum: 1"));
    let [first, missing] = errors.faults() else { panic!("{errors}") };
    let root = Place::Root;
    assert_fault!(first, root, Some("a"), Some("policy_family"), (8, 30), Kind::InvalidName { .. });
    assert_fault!(missing, root, None, Some("policy_classes"), (8, 30), Kind::MissingClass { .. });
}

#[test]
fn invalid_bucket_name() {
    let text = HEAD.replace("short", "9short");
    assert_fault!(
        fault(&text),
        Place::Root,
        None,
        Some("uncached_isl_buckets[0].bucket"),
        (3, 29),
        Kind::InvalidName { name } if name == "9short",
    );
}

#[test]
fn invalid_default_family_name() {
    let errors = errors(&HEAD.replace("default_policy_family: regular", "default_policy_family: a b"));
    let [invalid, unknown] = errors.faults() else { panic!("{errors}") };
    let field = Some("default_policy_family");
    assert_fault!(invalid, Place::Root, None, field, (1, 24), Kind::InvalidName { .. });
    assert_fault!(unknown, Place::Root, None, field, (1, 24), Kind::UnknownFamily { .. });
}

#[test]
fn family_without_bucket() {
    let text = with_class("name: a, policy_family: regular, quantum: 1");
    assert_fault!(
        fault(&text),
        Place::Root,
        Some("a"),
        Some("policy_family"),
        (8, 30),
        Kind::HalfMatrix { given: "policy_family", absent: "cache_bucket" },
    );
}

#[test]
fn bucket_without_family() {
    let text = with_class("name: a, cache_bucket: short, quantum: 1");
    assert_fault!(
        fault(&text),
        Place::Root,
        Some("a"),
        Some("cache_bucket"),
        (8, 29),
        Kind::HalfMatrix { given: "cache_bucket", absent: "policy_family" },
    );
}

#[test]
fn unknown_bucket() {
    let text = with_class("name: a, policy_family: regular, cache_bucket: huge, quantum: 1");
    assert_fault!(
        fault(&text),
        Place::Root,
        Some("a"),
        Some("cache_bucket"),
        (8, 53),
        Kind::UnknownBucket { bucket } if bucket == "huge",
    );
}

#[test]
fn family_without_a_class_for_a_bucket() {
    let text = with_class("name: a, policy_family: premium, cache_bucket: long, quantum: 1");
    assert_fault!(
        fault(&text),
        Place::Root,
        None,
        Some("policy_classes"),
        (8, 30),
        Kind::MissingClass { family, bucket } if family == "premium" && bucket == "short",
    );
}

#[test]
fn family_with_two_classes_for_a_bucket() {
    let text = with_class("name: a, policy_family: regular, cache_bucket: long, quantum: 1");
    assert_fault!(
        fault(&text),
        Place::Root,
        Some("a"),
        Some("cache_bucket"),
        (8, 53),
        Kind::DuplicateClass { family, bucket } if family == "regular" && bucket == "long",
    );
}

#[test]
fn matrix_classes_without_buckets() {
    let class = "policy_classes:\n  - {name: a, policy_family: f, cache_bucket: b, quantum: 1}\n";
    let field = Some("uncached_isl_buckets");
    let absent = fault(&format!("default_policy_family: f\n{class}"));
    assert_fault!(absent, Place::Root, None, field, (1, 1), Kind::NoBuckets);
    let empty = fault(&format!("default_policy_family: f\nuncached_isl_buckets: []\n{class}"));
    assert_fault!(empty, Place::Root, None, field, (2, 23), Kind::NoBuckets);
}

#[test]
fn first_floor_not_zero() {
    let text = HEAD.replace("min_tokens: 0", "min_tokens: 1");
    assert_fault!(
        fault(&text),
        Place::Root,
        None,
        Some("uncached_isl_buckets[0].min_tokens"),
        (3, 18),
        Kind::FirstFloorNotZero { min_tokens: 1 },
    );
}

#[test]
fn floor_not_rising() {
    let text = HEAD.replace("min_tokens: 100", "min_tokens: 0");
    assert_fault!(
        fault(&text),
        Place::Root,
        None,
        Some("uncached_isl_buckets[1].min_tokens"),
        (4, 18),
        Kind::FloorNotRising { min_tokens: 0, previous: 0 },
    );
}

#[test]
fn duplicate_bucket_name() {
    let text =
        HEAD.replace("  - {min_tokens: 100", "  - {min_tokens: 50, bucket: short}\n  - {min_tokens: 100");
    assert_fault!(
        fault(&text),
        Place::Root,
        None,
        Some("uncached_isl_buckets[1].bucket"),
        (4, 30),
        Kind::DuplicateName { name, first: Some(first) } if name == "short" && first.line == 3,
    );
}

#[test]
fn absent_bucket_fields() {
    let errors = errors(&HEAD.replace("  - {min_tokens: 100, bucket: long}", "  - {}"));
    let fields: Vec<_> = errors.faults().iter().map(|f| (f.field.as_deref().unwrap(), &f.kind)).collect();
    assert_eq!(
        fields,
        [
            ("uncached_isl_buckets[1].min_tokens", &Kind::Missing),
            ("uncached_isl_buckets[1].bucket", &Kind::Missing)
        ]
    );
}

#[test]
fn unknown_default_family() {
    let text = HEAD.replace("default_policy_family: regular", "default_policy_family: gold");
    assert_fault!(
        fault(&text),
        Place::Root,
        None,
        Some("default_policy_family"),
        (1, 24),
        Kind::UnknownFamily { family } if family == "gold",
    );
}

#[test]
fn matrix_classes_without_default_family() {
    let fault = fault(&HEAD.replace("default_policy_family: regular\n", ""));
    assert_fault!(fault, Place::Root, None, Some("default_policy_family"), (1, 1), Kind::NoDefaultFamily);
}

#[test]
fn a_default_family_must_not_be_a_class() {
    let text = "default_policy_family: a\npolicy_classes:\n  - {name: a, quantum: 1}\n";
    let field = Some("default_policy_family");
    assert_fault!(fault(text), Place::Root, None, field, (1, 24), Kind::UnknownFamily { .. });
}

#[test]
fn explicit_class_named_like_a_family() {
    let text = with_class("name: regular, quantum: 1");
    assert_fault!(
        fault(&text),
        Place::Root,
        Some("regular"),
        Some("name"),
        (8, 12),
        Kind::NameIsFamily { name } if name == "regular",
    );
}

#[test]
fn a_matrix_class_may_be_named_like_a_family() {
    tollgate::policy::PolicyFile::parse(&HEAD.replace("regular_short", "regular")).unwrap();
}

#[test]
fn negative_fraction() {
    let text = with_class("name: a, quantum: 1, prefill_busy_threshold_frac: -0.5");
    assert_fault!(
        fault(&text),
        Place::Root,
        Some("a"),
        Some("prefill_busy_threshold_frac"),
        (8, 56),
        Kind::Negative { value } if value == "-0.5",
    );
}

#[test]
fn fraction_not_finite() {
    for value in [".nan", ".inf", "-.inf", "1e999"] {
        let text = with_class(&format!("name: a, quantum: 1, prefill_busy_threshold_frac: {value}"));
        let field = Some("prefill_busy_threshold_frac");
        assert_fault!(fault(&text), Place::Root, Some("a"), field, (8, 56), Kind::NotFinite { .. });
    }
}

#[test]
fn ratio_out_of_range() {
    for value in ["0", "-0.1", "1.1", ".nan", ".inf", "2"] {
        let fields = format!("name: a, quantum: 1, prefill_busy_threshold: 1, busy_worker_ratio: {value}");
        let field = Some("busy_worker_ratio");
        let fault = fault(&with_class(&fields));
        assert_fault!(fault, Place::Root, Some("a"), field, (8, 73), Kind::RatioOutOfRange { .. });
    }
}

#[test]
fn ratio_without_threshold() {
    let text = with_class("name: a, quantum: 1, busy_worker_ratio: 1");
    let field = Some("busy_worker_ratio");
    assert_fault!(fault(&text), Place::Root, Some("a"), field, (8, 46), Kind::RatioWithoutThreshold);
}

#[test]
fn ageing_has_a_rate_and_only_ageing_has_one() {
    let aging = |fields: &str| fault(&with_class(&format!("name: a, quantum: 1, {fields}")));
    let field = Some("aging_tokens_per_second");
    let missing = aging("queue_policy: aged_wspt");
    assert_fault!(missing, Place::Root, Some("a"), field, (8, 41), Kind::AgingWithoutRate);
    let needless = aging("aging_tokens_per_second: 5");
    assert_fault!(needless, Place::Root, Some("a"), field, (8, 52), Kind::RateWithoutAging);
    for value in ["0", "-1", "-0.5"] {
        let fault = aging(&format!("queue_policy: aged_wspt, aging_tokens_per_second: {value}"));
        assert_fault!(fault, Place::Root, Some("a"), field, (8, 77), Kind::NotPositive { .. });
    }
    for value in [".nan", ".inf"] {
        let fault = aging(&format!("queue_policy: aged_wspt, aging_tokens_per_second: {value}"));
        assert_fault!(fault, Place::Root, Some("a"), field, (8, 77), Kind::NotFinite { .. });
    }
}

#[test]
fn zero_queue_time() {
    let text = with_class("name: a, quantum: 1, max_queue_time_ms: 0");
    let field = Some("max_queue_time_ms");
    assert_fault!(fault(&text), Place::Root, Some("a"), field, (8, 46), Kind::ZeroTime);
}

#[test]
fn bounds_themselves_are_accepted() {
    for fields in [
        "queue_policy: aged_wspt, aging_tokens_per_second: 1.0e-9",
        "max_queue_time_ms: 1",
        "prefill_busy_threshold_frac: 0",
        "prefill_busy_threshold_frac: -0.0",
        "prefill_busy_threshold_frac: 16",
        "prefill_busy_threshold: 0, busy_worker_ratio: 1",
        "prefill_busy_threshold_frac: 0.5, busy_worker_ratio: 1.0e-9",
        "request_queue_limit_per_worker: 0",
        "request_queue_limit_per_worker: 18446744073709551615",
    ] {
        let text = with_class(&format!("name: a, quantum: 18446744073709551615, {fields}"));
        if let Err(errors) = tollgate::policy::PolicyFile::parse(&text) {
            panic!("{fields}: {errors}");
        }
    }
}

#[test]
fn faults_of_a_model_name_the_model() {
    let text = "models:\n  org/m:\n    policy_classes:\n      - {name: a, quantum: 0}\n";
    let fault = fault(text);
    let place = Place::Model("org/m".into());
    assert_fault!(fault, place, Some("a"), Some("quantum"), (4, 28), Kind::ZeroQuantum);
    assert_eq!(fault.to_string(), "4:28: model \"org/m\": class \"a\": quantum: must be greater than 0");
}

#[test]
fn what_could_not_be_read_has_no_further_faults() {
    // Each of these could mend what would otherwise be a second fault.
    for (from, to) in [
        ("default_policy_family: regular", "default_policy_family: [regular]"),
        ("bucket: long}", "bucket: 7}"),
        ("cache_bucket: long", "cache_bucket: 7"),
        ("policy_family: regular, cache_bucket: long", "policy_family: 7, cache_bucket: long"),
        ("  - {min_tokens: 100, bucket: long}", "  - long"),
    ] {
        let text = HEAD.replace(from, to);
        assert_ne!(text, HEAD);
        assert!(matches!(fault(&text).kind, Kind::WrongType { .. }), "{text}");
    }
    let text = "default_policy_family: a\npolicy_classes: 5\n";
    assert!(matches!(fault(text).kind, Kind::WrongType { .. }));
}
