//! What the pages show is true: policies are valid, names exist.

use std::collections::BTreeSet;

const TUNING: &str = include_str!("../../docs/tuning.md");
const EMBEDDING: &str = include_str!("../../docs/embedding.md");
const METRICS: &str = include_str!("../../docs/metrics.md");

/// The fenced blocks of a language.
#[cfg(feature = "yaml")]
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    page.split(fence.as_str()).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// Every name on a page that stands in code.
fn names(page: &str) -> impl Iterator<Item = &str> {
    let is_name = |code: &&str| code.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    page.split('`').skip(1).step_by(2).filter(is_name)
}

fn metrics(page: &str) -> BTreeSet<&str> {
    names(page).filter(|name| name.starts_with("tollgate_")).collect()
}

#[cfg(feature = "yaml")]
#[test]
fn policies_are_valid() {
    use tollgate::policy::PolicyFile;

    let policies: Vec<_> = [TUNING, EMBEDDING].iter().flat_map(|page| blocks(page, "yaml")).collect();
    assert!(!policies.is_empty());
    for policy in policies {
        let file = PolicyFile::parse(policy).unwrap_or_else(|errors| panic!("{errors}\n{policy}"));
        assert!(file.warnings().is_empty());
    }
}

#[test]
fn metrics_exist() {
    let (named, listed) = (metrics(TUNING), metrics(METRICS));
    assert!(named.len() > 15, "{named:?}");
    assert!(named.is_subset(&listed), "{:?}", named.difference(&listed));
}

#[test]
fn tests_exist() {
    let sources = ["examples", "metrics", "observe", "tower", "tracing"];
    let sources = sources.map(|name| {
        std::fs::read_to_string(format!("{}/tests/{name}.rs", env!("CARGO_MANIFEST_DIR"))).unwrap()
    });
    // A test's name has more words than any other name on these pages, but for metrics.
    let is_test = |name: &&str| name.matches('_').count() >= 5 && !name.starts_with("tollgate_");
    let named: BTreeSet<_> = [EMBEDDING, METRICS].into_iter().flat_map(names).filter(is_test).collect();
    assert!(named.len() > 15, "{named:?}");
    for test in named {
        let defined = format!("fn {test}(");
        assert!(sources.iter().any(|source| source.contains(&defined)), "{test}");
    }
}
