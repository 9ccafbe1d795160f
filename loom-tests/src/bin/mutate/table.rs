//! The table of mutations, and what can be wrong with it before anything runs.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use serde::Deserialize;

/// Orderings that publish something, each of which some mutation has to take away.
const STRONG: [&str; 4] = ["Ordering::Acquire", "Ordering::Release", "Ordering::AcqRel", "Ordering::SeqCst"];

/// One thing to break. The fields are explained at the top of `mutations.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mutation {
    pub(crate) what: String,
    pub(crate) file: String,
    find: String,
    with: String,
    #[serde(default)]
    pub(crate) red: Vec<String>,
    #[serde(default)]
    pub(crate) green: Vec<String>,
    because: Option<String>,
    #[serde(default)]
    pub(crate) quick: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    mutation: Vec<Mutation>,
}

impl Mutation {
    /// The file with this mutation in it.
    ///
    /// # Errors
    /// The text to find is not in `source`, or more than once.
    pub(crate) fn applied(&self, source: &str) -> Result<String, String> {
        match source.matches(&self.find).count() {
            1 => Ok(source.replacen(&self.find, &self.with, 1)),
            count => {
                let (what, file) = (&self.what, &self.file);
                Err(format!("{what}: its text is in {file} {count} times instead of once:\n{}", self.find))
            }
        }
    }

    fn models(&self) -> impl Iterator<Item = &String> {
        self.red.iter().chain(&self.green)
    }

    /// What this leaves of the strong ordering at `at`, if it touches it.
    fn left_of(&self, source: &str, at: usize) -> Option<&str> {
        let start = source.find(&self.find)?;
        let inside = start <= at && at < start + self.find.len();
        let count = |text: &str| STRONG.map(|ordering| text.matches(ordering).count());
        (inside && count(&self.find) != count(&self.with)).then_some(self.with.as_str())
    }
}

/// Reads the table and checks it against the sources: every text is there once, every model exists, every green one
/// says why, and no strong ordering in `sync` or `engine` is left out.
///
/// # Errors
/// All that is wrong, a paragraph each.
pub(crate) fn read(workspace: &Path) -> Result<Vec<Mutation>, String> {
    let text = |path: &Path| {
        std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
    };
    let table: Table = toml::from_str(&text(&workspace.join("loom-tests/mutations.toml"))?)
        .map_err(|error| format!("mutations.toml: {error}"))?;
    let mut faults = String::new();
    let mut fault = |fault: String| writeln!(faults, "{fault}").expect("a string takes a line");
    let mut names = BTreeSet::new();
    for mutation in &table.mutation {
        let Mutation { what, file, .. } = mutation;
        if !names.insert(what) {
            fault(format!("{what}: there are two of this name"));
        }
        if let Err(error) = text(&workspace.join("engine/src").join(file)).and_then(|s| mutation.applied(&s))
        {
            fault(error);
        }
        if mutation.models().next().is_none() {
            fault(format!("{what}: names no model"));
        }
        if mutation.green.is_empty() != mutation.because.is_none() {
            fault(format!("{what}: what stays green has a reason, and only that"));
        }
        for model in mutation.models() {
            let exists = model.split_once("::").is_some_and(|(module, test)| {
                text(&workspace.join("loom-tests/src").join(module).with_extension("rs"))
                    .is_ok_and(|source| source.contains(&format!("fn {test}()")))
            });
            if !exists {
                fault(format!("{what}: there is no model {model}"));
            }
        }
    }
    for folder in ["sync", "engine"] {
        let entries = std::fs::read_dir(workspace.join("engine/src").join(folder));
        for entry in entries.map_err(|error| format!("cannot list engine/src/{folder}: {error}"))? {
            let path = entry.map_err(|error| error.to_string())?.path();
            if path.is_dir() {
                // Stand-ins for models.
                continue;
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let file = format!("{folder}/{name}");
            let source = text(&path)?;
            let rows: Vec<_> = table.mutation.iter().filter(|mutation| mutation.file == file).collect();
            uncovered(&file, &source, &rows).into_iter().for_each(&mut fault);
        }
    }
    if faults.is_empty() { Ok(table.mutation) } else { Err(faults) }
}

/// Strong orderings of `source`, but for its tests, that no row takes away.
fn uncovered(file: &str, source: &str, rows: &[&Mutation]) -> Vec<String> {
    let source_end = source.find("#[cfg(all(test").unwrap_or(source.len());
    let mut faults = Vec::new();
    for ordering in STRONG {
        for (at, _) in source[..source_end].match_indices(ordering) {
            let left: Vec<_> = rows.iter().filter_map(|row| row.left_of(source, at)).collect();
            let line = 1 + source[..at].matches('\n').count();
            // Each half of an AcqRel has to be missed.
            let needed: &[&str] = if ordering == "Ordering::AcqRel" {
                &["Ordering::Acquire", "Ordering::Release"]
            } else {
                &[""]
            };
            for half in needed {
                if !left.iter().any(|with| with.contains(half)) {
                    let half = half.strip_prefix("Ordering::").unwrap_or_default();
                    let to = if half.is_empty() { String::new() } else { format!(" to {half}") };
                    faults.push(format!("{file}:{line}: no mutation weakens this {ordering}{to}"));
                }
            }
        }
    }
    faults
}
