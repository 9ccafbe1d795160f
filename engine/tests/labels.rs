//! What a reviewer relies on when reading the sources: each ordering says what it is for and who its partner is, each
//! `unsafe` says why it is sound, and threads and clocks come in through `sync` alone.
//!
//! The sources are read as text, without their tests. A faulty line is named in the failure.

use std::fs;
use std::path::{Path, PathBuf};

/// A file of `engine/src` without its tests.
struct Source {
    /// Below `engine/src`.
    name: String,
    lines: Vec<String>,
}

fn sources() -> Vec<Source> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    walk(&root, &mut paths);
    paths.sort();
    let source = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(&root).unwrap().to_string_lossy().replace('\\', "/");
        Source { name, lines: without_tests(&text) }
    };
    paths.into_iter().map(source).collect()
}

/// Test modules come last in every file.
fn without_tests(text: &str) -> Vec<String> {
    let mut lines: Vec<_> = text.lines().map(String::from).collect();
    let is_tests = |pair: &[String]| {
        pair[0].starts_with("#[cfg(") && pair[0].contains("test") && pair[1].starts_with("mod tests")
    };
    if let Some(at) = lines.windows(2).position(is_tests) {
        lines.truncate(at);
    }
    lines
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// The comments above line `at` that belong to it: of the lines just above, up to a blank one.
fn comments_above(lines: &[String], at: usize) -> String {
    let above = lines[..at].iter().rev().take(8).take_while(|line| !line.trim().is_empty());
    let mut comments: Vec<_> = above.filter(|line| is_comment(line)).map(|line| line.trim()).collect();
    comments.reverse();
    comments.join(" ")
}

/// The labels that an ordering needs, and whether it has a partner; nothing if the word is no ordering.
fn labels(word: &str) -> Option<(&'static [&'static str], bool)> {
    match word {
        "Acquire" => Some((&["Acquire:"], true)),
        "Release" => Some((&["Release:"], true)),
        "AcqRel" => Some((&["Acquire:", "Release:"], true)),
        "SeqCst" => Some((&["SeqCst:"], true)),
        "Relaxed" => Some((&["Relaxed:"], false)),
        // Of values, not of memory.
        "Less" | "Equal" | "Greater" => Some((&[], false)),
        _ => None,
    }
}

/// Strong orderings without a label or a partner, relaxed ones without a reason, and words that hide an ordering.
fn unlabelled(source: &Source, functions: &[String]) -> Vec<String> {
    let mut faults = Vec::new();
    for (at, line) in source.lines.iter().enumerate() {
        if is_comment(line) || at > 0 && source.lines[at - 1].trim() == "#[cfg(test)]" {
            continue;
        }
        // The first of a line: what a failed exchange sees is weaker than what a successful one does.
        let Some((_, rest)) = line.split_once("Ordering::") else { continue };
        let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
        let comments = comments_above(&source.lines, at);
        let is_labelled = labels(&rest[..end]).is_some_and(|(labels, has_partner)| {
            let names_partner = || functions.iter().any(|name| comments.contains(&format!("`{name}`")));
            labels.iter().all(|label| comments.contains(label)) && (!has_partner || names_partner())
        });
        if !is_labelled {
            faults.push(format!("{}:{}: {}", source.name, at + 1, line.trim()));
        }
    }
    faults
}

/// The names of all functions.
fn functions(sources: &[Source]) -> Vec<String> {
    let names = sources.iter().flat_map(|source| &source.lines).filter_map(|line| {
        let (_, rest) = line.split_once("fn ")?;
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
        (!is_comment(line)).then(|| rest[..end].to_string())
    });
    names.collect()
}

#[test]
fn every_ordering_is_labelled_and_names_its_partner() {
    let sources = sources();
    let functions = functions(&sources);
    let faults: Vec<_> = sources.iter().flat_map(|source| unlabelled(source, &functions)).collect();
    assert!(
        faults.is_empty(),
        "{} orderings without a label or a partner:\n{}",
        faults.len(),
        faults.join("\n")
    );
}

#[test]
fn the_look_for_labels_finds_what_is_missing() {
    let functions = ["push".to_string()];
    let faults = |code: &str| {
        unlabelled(
            &Source { name: "f.rs".into(), lines: code.lines().map(String::from).collect() },
            &functions,
        )
    };
    for good in [
        "// Acquire: what `push` released.\nx.load(Ordering::Acquire);",
        "// SeqCst: a before b; partner: the fence in `push`.\nfence(Ordering::SeqCst);",
        "// Release: for `push`. Acquire: from `push`.\nx.swap(1, Ordering::AcqRel);",
        "// Relaxed: a count.\nx.load(Ordering::Relaxed);",
        "// Release: for `push`.\nx.compare_exchange(0, 1, Ordering::Release, Ordering::Relaxed);",
    ] {
        assert!(faults(good).is_empty(), "{good}");
    }
    for bad in [
        "x.load(Ordering::Acquire);",
        "x.load(Ordering::Relaxed);",
        "// Acquire: of nobody's.\nx.load(Ordering::Acquire);",
        "// Acquire: what `pull` released.\nx.load(Ordering::Acquire);",
        "// Release: for `push`.\nx.load(Ordering::Acquire);",
        "// Release: for `push`.\nx.swap(1, Ordering::AcqRel);",
        "// Acquire: what `push` released.\n\nx.load(Ordering::Acquire);",
        "use std::sync::atomic::Ordering::{Acquire, Release};",
    ] {
        assert_eq!(faults(bad).len(), 1, "{bad}");
    }
}

#[test]
fn every_unsafe_says_why_and_all_of_it_is_in_sync() {
    let mut faults = Vec::new();
    for source in sources() {
        for (at, line) in source.lines.iter().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if !code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe") {
                continue;
            }
            let above = source.lines[..at].iter().rev();
            let comments: Vec<_> =
                above.take_while(|line| is_comment(line)).map(|line| line.trim()).collect();
            let promise = if code.contains("unsafe fn") { "# Safety" } else { "SAFETY: " };
            if !source.name.starts_with("sync/") || !comments.iter().any(|line| line.contains(promise)) {
                faults.push(format!("{}:{}: {}", source.name, at + 1, line.trim()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn threads_atomics_and_clocks_come_in_through_sync_alone() {
    const ELSEWHERE: [&str; 8] = [
        "std::sync",
        "core::sync",
        "std::thread",
        "Instant",
        "SystemTime",
        "parking_lot",
        "arc_swap",
        "static mut",
    ];
    let mut faults = Vec::new();
    for source in sources().into_iter().filter(|source| !source.name.starts_with("sync/")) {
        for (at, line) in source.lines.iter().enumerate() {
            if !is_comment(line) && ELSEWHERE.iter().any(|name| line.contains(name)) {
                faults.push(format!("{}:{}: {}", source.name, at + 1, line.trim()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
