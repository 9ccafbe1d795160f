//! Runs the tests that use many threads under ThreadSanitizer, and under AddressSanitizer with its search for leaks.
//!
//! ```text
//! cargo run -p tollgate-loom --bin sanitize
//! ```
//!
//! Sanitizers need a nightly toolchain; where there is none this says so and succeeds. With its sources
//! (`rustup component add rust-src --toolchain nightly`) the standard library is instrumented too, without them
//! `tsan.supp` names what it cannot know. `TOLLGATE_STRESS` is the number of requests, 200,000 by default.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The sanitizers, each with the tests of `engine/tests` that run under it. Not `lock_free` under the first: its
/// threads talk by channels of a standard library that may not be instrumented. Not `containment` under the second:
/// what a waker panics with is forgotten on purpose, and leaks.
const SANITIZERS: [(&str, &[&str]); 2] = [("thread", &["stress"]), ("address", &["stress", "lock_free"])];

fn main() -> ExitCode {
    let Some(nightly) = Nightly::find() else {
        println!("no nightly toolchain is installed: nothing is sanitized");
        return ExitCode::SUCCESS;
    };
    println!(
        "{}, the standard library {}",
        nightly.version,
        if nightly.sources { "built anew" } else { "as it is" }
    );
    let failed: Vec<_> =
        SANITIZERS.into_iter().filter(|(sanitizer, tests)| !nightly.run(sanitizer, tests)).collect();
    if failed.is_empty() {
        println!("nothing found");
        return ExitCode::SUCCESS;
    }
    eprintln!("found under: {failed:?}");
    ExitCode::FAILURE
}

struct Nightly {
    version: String,
    host: String,
    /// Whether it has the sources of the standard library.
    sources: bool,
}

impl Nightly {
    fn find() -> Option<Self> {
        let rustc = |arguments: &[&str]| {
            // By rustup, whatever toolchain runs this.
            let output =
                Command::new("rustup").args(["run", "nightly", "rustc"]).args(arguments).output().ok()?;
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
        };
        let about = rustc(&["-vV"])?;
        let host = about.lines().find_map(|line| line.strip_prefix("host: "))?.to_string();
        let version = about.lines().next()?.to_string();
        let sources =
            PathBuf::from(rustc(&["--print", "sysroot"])?).join("lib/rustlib/src/rust/library").exists();
        Some(Self { version, host, sources })
    }

    fn run(&self, sanitizer: &str, tests: &[&str]) -> bool {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let program = std::env::current_exe().expect("this program is a file");
        let target = program.ancestors().nth(2).expect("it was built by cargo").join("sanitize");
        let mut flags = format!("-Zsanitizer={sanitizer}");
        let mut cargo = Command::new("rustup");
        cargo.args([
            "run",
            "nightly",
            "cargo",
            "test",
            "--release",
            "--package",
            "tollgate",
            "--no-fail-fast",
        ]);
        cargo.args(tests.iter().flat_map(|test| ["--test", test])).args(["--target", &self.host]);
        if self.sources {
            cargo.arg("-Zbuild-std");
        } else {
            flags.push_str(" -Cunsafe-allow-abi-mismatch=sanitizer");
        }
        let suppressions = here.join("tsan.supp");
        let suppressions =
            if self.sources { String::new() } else { format!(" suppressions={}", suppressions.display()) };
        let status = cargo
            .arg("--manifest-path")
            .arg(here.join("../engine/Cargo.toml"))
            .arg("--target-dir")
            .arg(target)
            .env("RUSTFLAGS", flags)
            .env("TSAN_OPTIONS", format!("history_size=7{suppressions}"))
            .env("ASAN_OPTIONS", "detect_leaks=1")
            .env("TOLLGATE_STRESS", std::env::var("TOLLGATE_STRESS").unwrap_or_else(|_| "200000".into()))
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            // The toolchain of whoever started this.
            .env_remove("RUSTUP_TOOLCHAIN")
            .env_remove("CARGO")
            .env_remove("RUSTC")
            .status();
        status.is_ok_and(|status| status.success())
    }
}
