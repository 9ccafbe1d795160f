//! Whole files: samples, models, ignored sections, what requests become, and reading from disk.

use std::time::Duration;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tollgate::policy::{
    BucketSpec, ClassSpec, Place, PolicyFaultKind as Kind, PolicyFile, PolicyFileError, PolicySpec, Profile,
    QueuePolicy,
};

use super::{HEAD, assert_fault, errors, fault};

fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/policies")
}

fn synthetic() -> Profile {
    Profile::synthetic(Some(7), QueuePolicy::Wspt)
}

fn never() -> Profile {
    panic!("a profile is configured")
}

fn name_of<'p>(profile: &'p Profile, requested: Option<&str>, uncached: u64) -> &'p str {
    &profile.classes()[profile.classify(requested, uncached).index()].name
}

/// `HEAD` with a premium family and an explicit class.
fn profile() -> Arc<Profile> {
    let text = format!(
        "{HEAD}  - {{name: premium_long, policy_family: premium, cache_bucket: long, quantum: 4}}
  - {{name: health, quantum: 1}}
  - {{name: premium_short, policy_family: premium, cache_bucket: short, quantum: 4}}
"
    );
    PolicyFile::parse(&text).unwrap().profile(None, never)
}

#[test]
fn every_sample_parses_without_warning() {
    let mut count = 0;
    for entry in std::fs::read_dir(samples()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let file = PolicyFile::read(&path).unwrap_or_else(|error| panic!("{error}"));
            assert!(file.warnings().is_empty(), "{path:?}");
            assert!(!file.root().unwrap().classes().is_empty(), "{path:?}");
            count += 1;
        }
    }
    assert!(count >= 4, "{count}");
}

#[test]
fn samples_have_the_shares_they_are_named_after() {
    for (name, premium, regular) in
        [("equal_share", 512, 512), ("premium_4x", 512, 128), ("premium_burst", 4096, 1024)]
    {
        let file = PolicyFile::read(samples().join(name).with_extension("yaml")).unwrap();
        let profile = file.profile(None, never);
        let quantum = |requested| profile.classes()[profile.classify(requested, 9).index()].quantum;
        assert_eq!((quantum(Some("premium")), quantum(Some("regular"))), (premium, regular), "{name}");
        assert_eq!(name_of(&profile, None, 9), "regular_any", "{name}");
        assert!(profile.classes().iter().all(|class| class.busy.threshold_tokens == Some(1536)), "{name}");
    }
}

#[test]
fn the_full_sample_sets_every_field() {
    let file = PolicyFile::read(samples().join("everything.yaml")).unwrap();
    let root = file.root().unwrap();
    let first = &root.classes()[0];
    assert_eq!((first.name.as_str(), first.order, first.quantum), ("premium_short", QueuePolicy::Fcfs, 4096));
    assert_eq!(first.busy.threshold_tokens, Some(8192));
    assert_eq!(first.busy.threshold_frac, Some(0.75));
    assert_eq!(first.busy.worker_ratio, Some(0.5));
    assert_eq!(first.limits.requests, Some(64));
    assert_eq!(first.limits.raw_isl_tokens, Some(1_000_000));
    assert_eq!(first.limits.cached_tokens, Some(800_000));
    assert_eq!(name_of(root, Some("premium"), 16_384), "premium_long");
    assert_eq!(root.classes()[1].order, QueuePolicy::Wspt);
    let aged = &root.classes()[5];
    assert_eq!((aged.order, aged.aging_tokens_per_second), (QueuePolicy::AgedWspt, Some(2000.0)));
    assert_eq!(root.classes()[6].max_queue_time, Some(Duration::from_millis(500)));
    assert_eq!(root.spec().buckets.len(), 3);
    let models: Vec<_> = file.models().map(|(name, _)| name).collect();
    assert_eq!(models, ["example/embedding-model", "example/small-model"]);
}

#[test]
fn a_dynamo_file_is_read_and_its_other_sections_named_once() {
    let text = "\
router:
  host_cache_hit_weight: 0.5
  use_kv_events: true
default_policy_family: standard
uncached_isl_buckets:
  - min_tokens: 0
    bucket: cached
  - min_tokens: 3072
    bucket: uncached
policy_classes:
  - name: cached
    policy_family: standard
    cache_bucket: cached
    queue_policy: wspt
    quantum: 4000
    prefill_busy_threshold_frac: 16.0
  - name: uncached
    policy_family: standard
    cache_bucket: uncached
    quantum: 1000
    request_queue_limit_per_worker: 32
  - name: custom_priority
    quantum: 2000
worker_selection:
  aggregated: example
  instances:
    - name: example
      type: example-policy
      parameters: {score_weight: 1.0}
request_classifier:
  type: thunderagent
  parameters:
    pause_threshold: 0.9
";
    let file = PolicyFile::parse(text).unwrap();
    let [warning] = file.warnings() else { panic!("{:?}", file.warnings()) };
    for section in ["router", "worker_selection", "request_classifier"] {
        assert!(warning.contains(section), "{warning}");
    }
    let profile = file.profile(Some("any"), never);
    assert_eq!(name_of(&profile, Some("cached"), 3072), "uncached");
    assert_eq!(name_of(&profile, Some("custom_priority"), 0), "custom_priority");
}

#[test]
fn a_file_with_ignored_sections_only_falls_back_to_the_synthetic_profile() {
    let file = PolicyFile::parse("router:\n  use_kv_events: true\n").unwrap();
    assert_eq!(file.warnings().len(), 1);
    assert!(file.root().is_none());
    let profile = file.profile(None, synthetic);
    let [class] = profile.classes() else { panic!() };
    assert_eq!((class.name.as_str(), class.quantum, class.order), ("default", 1, QueuePolicy::Wspt));
    assert_eq!(class.busy.threshold_tokens, Some(7));
}

#[test]
fn a_model_replaces_the_root_whole() {
    let text = format!("{HEAD}models:\n  org/m:\n    policy_classes: [{{name: only, quantum: 3}}]\n");
    let file = PolicyFile::parse(&text).unwrap();
    assert_eq!(file.profile(Some("org/m"), never).classes(), [ClassSpec::explicit("only", 3)]);
    for model in [None, Some("m"), Some("ORG/M"), Some("")] {
        assert_eq!(file.profile(model, never).classes().len(), 2);
    }
    assert!(Arc::ptr_eq(&file.profile(None, never), file.root().unwrap()), "shared, not copied");
}

#[test]
fn without_a_root_other_models_get_the_synthetic_profile() {
    let file = PolicyFile::parse("models:\n  m: {policy_classes: [{name: only, quantum: 3}]}\n").unwrap();
    assert_eq!(file.profile(Some("other"), synthetic).classes()[0].name, "default");
    assert_eq!(file.profile(None, synthetic).classes()[0].name, "default");
}

#[test]
fn anchors_and_merge_keys_spare_repetition() {
    let text = "\
policy_classes:
  - &base {name: a, quantum: &q 5, prefill_busy_threshold: 9}
  - {<<: *base, name: b}
  - {name: c, quantum: *q}
";
    let profile = PolicyFile::parse(text).unwrap().profile(None, never);
    let quanta: Vec<_> = profile.classes().iter().map(|c| (c.quantum, c.busy.threshold_tokens)).collect();
    assert_eq!(quanta, [(5, Some(9)), (5, Some(9)), (5, None)]);
}

#[test]
fn nothing_in_the_document() {
    for text in
        ["", "\n", "# only a comment\n", "---\n", "~\n", "{}\n", "models: {}\n", "router: ~\n", "\u{feff}"]
    {
        let fault = fault(text);
        assert_fault!(fault, Place::File, None, None, (_, _), Kind::EmptyDocument);
    }
}

#[test]
fn wrong_top_level() {
    for (text, shown) in [("- a\n", "a list"), ("text\n", "the string \"text\""), ("5\n", "5")] {
        assert_fault!(
            fault(text),
            Place::Root,
            None,
            None,
            (1, 1),
            Kind::WrongType { expected: "a mapping", found } if found == shown,
        );
    }
}

#[test]
fn words_of_older_yaml_are_names() {
    for name in ["on", "off", "yes", "no", "y", "n"] {
        let file = PolicyFile::parse(&format!("policy_classes: [{{name: {name}, quantum: 1}}]")).unwrap();
        assert_eq!(file.root().unwrap().classes()[0].name, name);
    }
}

#[test]
fn a_byte_order_mark_moves_nothing() {
    let fault = fault("\u{feff}policy_classes: [{name: a, quantum: -1}]");
    let field = Some("quantum");
    assert_fault!(fault, Place::Root, Some("a"), field, (1, 37), Kind::Negative { value } if value == "-1");
}

#[test]
fn several_documents() {
    let fault = fault(&format!("{HEAD}---\n{HEAD}"));
    assert_fault!(fault, Place::File, None, None, (_, _), Kind::MultipleDocuments);
}

#[test]
fn syntax_errors_have_a_place() {
    for (text, line) in [
        ("policy_classes: [a\nb: c\n", 2),
        ("a: b: c\n", 1),
        ("policy_classes:\n\t- a\n", 2),
        ("a: *nowhere\n", 1),
        ("a: \"x\nb: c\n", 1),
    ] {
        let fault = fault(text);
        assert!(matches!(fault.kind, Kind::Syntax { .. }), "{text:?}: {fault:?}");
        assert_eq!(fault.place, Place::File);
        assert_eq!(fault.location.expect(text).line, line, "{text:?}: {fault}");
        assert_eq!(fault.to_string().lines().count(), 1);
    }
}

#[test]
fn messages_are_lower_case_lines_without_full_stop() {
    for text in ["a: b: c", "", "policy_classes: []", "x: 1", "- a", "a: *b", "a: {", "---\na: 1\n---\nb: 2"]
    {
        for line in errors(text).to_string().lines() {
            let start = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ':' || c == ' ');
            assert!(start.starts_with(char::is_lowercase) && !line.ends_with('.'), "{line}");
        }
    }
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let missing = PolicyFile::read("/nonexistent/policy.yaml").unwrap_err();
    assert!(matches!(missing, PolicyFileError::Read { .. }));
    assert!(missing.to_string().starts_with("/nonexistent/policy.yaml: "), "{missing}");

    let path = std::env::temp_dir().join(format!("tollgate-policy-{}.yaml", std::process::id()));
    std::fs::write(&path, "policy_classes:\n  - {name: a, quantum: 0}\n  - {name: b, quantum: 0}\n").unwrap();
    let invalid = PolicyFile::read(&path).unwrap_err();
    std::fs::write(&path, b"policy_classes: [\xff]").unwrap();
    let binary = PolicyFile::read(&path).unwrap_err();
    std::fs::remove_file(&path).unwrap();
    let prefix = path.display();
    assert_eq!(
        invalid.to_string(),
        format!(
            "{prefix}:2:24: root: class \"a\": quantum: must be greater than 0\n\
             {prefix}:3:24: root: class \"b\": quantum: must be greater than 0"
        )
    );
    assert_eq!(invalid.path(), path);
    assert!(matches!(binary, PolicyFileError::Read { .. }), "{binary}");
}

#[test]
fn an_explicit_name_is_its_class_whatever_the_bucket() {
    for uncached in [0, 99, 100, u64::MAX] {
        assert_eq!(name_of(&profile(), Some("health"), uncached), "health");
    }
}

#[test]
fn a_family_is_served_by_its_class_for_the_bucket() {
    let profile = profile();
    for (uncached, bucket) in [(0, "short"), (99, "short"), (100, "long"), (u64::MAX, "long")] {
        for family in ["premium", "regular"] {
            assert_eq!(name_of(&profile, Some(family), uncached), format!("{family}_{bucket}"));
        }
    }
}

#[test]
fn absent_empty_and_unknown_names_are_the_default_family() {
    for requested in [None, Some(""), Some("gold"), Some("Premium"), Some(" premium"), Some("short")] {
        assert_eq!(name_of(&profile(), requested, 99), "regular_short");
        assert_eq!(name_of(&profile(), requested, 100), "regular_long");
    }
}

#[test]
fn the_name_of_a_matrix_class_is_the_default_family() {
    assert_eq!(name_of(&profile(), Some("premium_long"), 0), "regular_short");
    assert_eq!(name_of(&profile(), Some("premium_long"), 100), "regular_long");
}

#[test]
fn the_synthetic_profile_takes_everything() {
    for requested in [None, Some(""), Some("default"), Some("x")] {
        assert_eq!(name_of(&synthetic(), requested, 5), "default");
    }
}

#[test]
fn with_explicit_classes_only_the_first_one_takes_the_rest() {
    let classes = vec![ClassSpec::explicit("first", 1), ClassSpec::explicit("second", 1)];
    let profile = Profile::new(PolicySpec { classes, ..PolicySpec::default() }).unwrap();
    assert_eq!(name_of(&profile, Some("second"), 5), "second");
    for requested in [None, Some(""), Some("third")] {
        assert_eq!(name_of(&profile, requested, 5), "first");
    }
}

#[test]
fn class_ids_are_positions() {
    let profile = profile();
    for (i, class) in profile.classes().iter().enumerate() {
        assert_eq!(profile.class_id(&class.name).unwrap().index(), i);
    }
    assert_eq!(profile.class_id("premium"), None, "a family is no class");
}

#[test]
fn a_spec_built_in_code_follows_the_same_rules() {
    let mut broken = ClassSpec::matrix("a", "f", "nowhere", 0);
    broken.busy.worker_ratio = Some(f64::NAN);
    broken.busy.threshold_frac = Some(-1.0);
    let spec = PolicySpec {
        default_family: None,
        buckets: vec![BucketSpec { min_tokens: 3, name: "b".into() }],
        classes: vec![broken, ClassSpec::explicit("f", 1)],
    };
    let errors = Profile::new(spec).unwrap_err();
    let expected = "\
root: uncached_isl_buckets[0].min_tokens: must be 0 in the first bucket, is 3
root: class \"a\": quantum: must be greater than 0
root: class \"a\": prefill_busy_threshold_frac: must not be negative, is -1
root: class \"a\": busy_worker_ratio: must be greater than 0 and at most 1, is NaN
root: class \"f\": name: \"f\" is also a policy_family, which an explicit class must not be
root: class \"a\": cache_bucket: \"nowhere\" is not in uncached_isl_buckets
root: policy_classes: no class for policy_family \"f\" and cache_bucket \"b\"
root: default_policy_family: is missing, and needed because there are classes with a policy_family";
    assert_eq!(errors.to_string(), expected);
    assert!(errors.faults().iter().all(|fault| fault.location.is_none()));
    let empty = Profile::new(PolicySpec::default()).unwrap_err();
    assert_eq!(empty.faults()[0].kind, Kind::NoClasses);
}
