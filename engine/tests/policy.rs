//! Policy files as an operator sees them: what is read, what is refused and how it is said.
#![cfg(feature = "yaml")]

use tollgate::policy::{PolicyErrors, PolicyFault, PolicyFile};

#[path = "policy/files.rs"]
mod files;
#[path = "policy/hostile.rs"]
mod hostile;
#[path = "policy/rules.rs"]
mod rules;
#[path = "policy/types.rs"]
mod types;

/// A sound profile, to be broken: lines 1 to 7.
const HEAD: &str = "\
default_policy_family: regular
uncached_isl_buckets:
  - {min_tokens: 0, bucket: short}
  - {min_tokens: 100, bucket: long}
policy_classes:
  - {name: regular_short, policy_family: regular, cache_bucket: short, quantum: 1}
  - {name: regular_long, policy_family: regular, cache_bucket: long, quantum: 1}
";

/// `HEAD` with one more class on line 8; its fields start at column 6.
fn with_class(fields: &str) -> String {
    format!("{HEAD}  - {{{fields}}}\n")
}

fn errors(text: &str) -> PolicyErrors {
    match PolicyFile::parse(text) {
        Ok(file) => panic!("accepted:\n{text}\n{file:?}"),
        Err(errors) => errors,
    }
}

/// The only fault of `text`.
fn fault(text: &str) -> PolicyFault {
    let errors = errors(text);
    assert_eq!(errors.faults().len(), 1, "{errors}\n{text}");
    errors.into_iter().next().unwrap()
}

/// Line and column of a fault; 0:0 if it has none.
fn at(fault: &PolicyFault) -> (u32, u32) {
    fault.location.map_or((0, 0), |location| (location.line, location.column))
}

/// Asserts place, class, field, position and kind of a fault.
macro_rules! assert_fault {
    ($fault:expr, $place:expr, $class:expr, $field:expr, $at:pat, $kind:pat $(if $guard:expr)? $(,)?) => {{
        let fault: &tollgate::policy::PolicyFault = &$fault;
        let class: Option<&str> = $class;
        let field: Option<&str> = $field;
        assert_eq!(fault.place, $place, "{fault}");
        assert_eq!(fault.class.as_deref(), class, "{fault}");
        assert_eq!(fault.field.as_deref(), field, "{fault}");
        assert!(matches!(crate::at(fault), $at), "{fault}: not at {}", stringify!($at));
        assert!(matches!(&fault.kind, $kind $(if $guard)?), "{:?}", fault.kind);
    }};
}
use assert_fault;
