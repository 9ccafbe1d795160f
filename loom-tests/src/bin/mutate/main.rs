//! Breaks the engine in every way of `mutations.toml`, one at a time, in a copy of the sources, and asserts that the
//! models named there go red. What does not compile, hangs, or runs no model is not red.
//!
//! ```text
//! cargo run -p tollgate-loom --bin mutate              # all
//! cargo run -p tollgate-loom --bin mutate -- --quick   # each ordering once
//! cargo run -p tollgate-loom --bin mutate -- --only "notify: no fence"
//! cargo run -p tollgate-loom --bin mutate -- --check   # only the table itself
//! ```
//!
//! Before that, each of these models must be green in the unbroken copy.

#[cfg(not(any(loom, shuttle)))]
mod copy;
#[cfg(not(any(loom, shuttle)))]
mod table;

/// The program is for builds without loom; it makes those with loom itself.
#[cfg(any(loom, shuttle))]
fn main() {}

#[cfg(not(any(loom, shuttle)))]
fn main() -> std::process::ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(summary) => {
            println!("{summary}");
            std::process::ExitCode::SUCCESS
        }
        Err(faults) => {
            eprintln!("{faults}");
            std::process::ExitCode::FAILURE
        }
    }
}

#[cfg(not(any(loom, shuttle)))]
fn run(arguments: &[String]) -> Result<String, String> {
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::time::Instant;

    use copy::{Copy, Outcome};

    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in the workspace");
    let mut chosen = table::read(workspace)?;
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] | ["--all"] => {}
        ["--quick"] => chosen.retain(|mutation| mutation.quick),
        ["--only", part] => chosen.retain(|mutation| mutation.what.contains(part)),
        ["--check"] => return Ok(format!("{} mutations fit the sources", chosen.len())),
        _ => return Err("usage: mutate [--all | --quick | --only PART-OF-A-NAME | --check]".into()),
    }
    if chosen.is_empty() {
        return Err("there is no such mutation".into());
    }
    let start = Instant::now();
    let copy = Copy::make(workspace)?;
    let unbroken = copy.build().map_err(|errors| format!("the models do not build:\n{errors}"))?;
    let models: BTreeSet<_> = chosen.iter().flat_map(|m| m.red.iter().chain(&m.green)).collect();
    for model in &models {
        match unbroken.run(model)? {
            Outcome::Green => println!("  green  {model}, unbroken"),
            other => return Err(format!("{model} is {other:?} before anything is broken")),
        }
    }
    let mut faults = Vec::new();
    let (mut red, mut green) = (0, 0);
    for mutation in &chosen {
        let began = Instant::now();
        let broken = copy.broken(mutation)?;
        let built = match broken.build() {
            Ok(built) => built,
            Err(errors) => {
                faults.push(format!("{}: does not compile\n{errors}", mutation.what));
                continue;
            }
        };
        let expected = |models, outcome| std::iter::zip(models, std::iter::repeat(outcome));
        for (model, expected) in
            expected(&mutation.red, Outcome::Red).chain(expected(&mutation.green, Outcome::Green))
        {
            let outcome = built.run(model)?;
            let name = format!("{outcome:?}").to_lowercase();
            println!("{name:>7}  {}: {} ({model}, {:.1?})", mutation.file, mutation.what, began.elapsed());
            if outcome != expected {
                faults.push(format!("{}: {model} is {outcome:?}, not {expected:?}", mutation.what));
            } else if outcome == Outcome::Red {
                red += 1;
            } else {
                green += 1;
            }
        }
    }
    if !faults.is_empty() {
        return Err(faults.join("\n"));
    }
    Ok(format!(
        "{} mutations: {red} models red as they must be, {green} green with a reason ({:.0?})",
        chosen.len(),
        start.elapsed()
    ))
}
