//! A copy of the workspace, with a build of its own, in which things may be broken.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::table::Mutation;

/// How long a model may take: several times what the longest one takes unbroken. A broken one that loops is not red.
const PATIENCE: Duration = Duration::from_secs(300);

/// What became of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It failed.
    Red,
    /// It passed.
    Green,
    /// It did not end.
    Hung,
}

/// The copy.
#[derive(Debug)]
pub(crate) struct Copy {
    sources: PathBuf,
    builds: PathBuf,
}

/// The models of one build.
#[derive(Debug)]
pub(crate) struct Models {
    program: PathBuf,
}

/// The copy with something broken in it, until this is dropped.
#[derive(Debug)]
pub(crate) struct Broken<'a> {
    copy: &'a Copy,
    file: PathBuf,
    whole: String,
}

impl Copy {
    /// Copies the members and the lock of `workspace` to the folder of builds that this program was built in.
    pub(crate) fn make(workspace: &Path) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| format!("where is this program? {error}"))?;
        let target = program.ancestors().nth(2).ok_or("this program was not built by cargo")?;
        let root = target.join("mutate");
        let copy = Self { sources: root.join("sources"), builds: root.join("builds") };
        if copy.sources.exists() {
            fs::remove_dir_all(&copy.sources).map_err(|error| format!("cannot clear the copy: {error}"))?;
        }
        for name in ["Cargo.toml", "Cargo.lock", "engine", "bench", "loom-tests"] {
            copy_all(&workspace.join(name), &copy.sources.join(name))
                .map_err(|error| format!("cannot copy {name}: {error}"))?;
        }
        Ok(copy)
    }

    /// Breaks one thing.
    pub(crate) fn broken(&self, mutation: &Mutation) -> Result<Broken<'_>, String> {
        let file = self.sources.join("engine/src").join(&mutation.file);
        let whole = fs::read_to_string(&file).map_err(|error| error.to_string())?;
        fs::write(&file, mutation.applied(&whole)?).map_err(|error| error.to_string())?;
        Ok(Broken { copy: self, file, whole })
    }

    fn cargo(&self) -> Command {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .args(["test", "--release", "--package", "tollgate-loom", "--lib"])
            .arg("--manifest-path")
            .arg(self.sources.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(&self.builds)
            .env("RUSTFLAGS", "--cfg loom")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            // Building it anew takes longer than running it.
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            .env("CARGO_PROFILE_RELEASE_INCREMENTAL", "true");
        cargo
    }

    /// Builds the models; what the compiler says if it cannot.
    pub(crate) fn build(&self) -> Result<Models, String> {
        let output = self
            .cargo()
            .args(["--no-run", "--message-format", "json-render-diagnostics"])
            .output()
            .map_err(|error| format!("cargo: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        let messages = String::from_utf8_lossy(&output.stdout);
        let built = messages.split_once("\"executable\":\"").and_then(|(_, rest)| rest.split_once('"'));
        let (program, _) = built.ok_or("cargo does not say what it has built")?;
        Ok(Models { program: program.into() })
    }
}

impl Models {
    /// Runs one model.
    pub(crate) fn run(&self, name: &str) -> Result<Outcome, String> {
        let mut child = Command::new(&self.program)
            .args(["--exact", name])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", self.program.display()))?;
        let mut pipe = child.stdout.take().ok_or("the models have no output")?;
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.read_to_end(&mut bytes).map(|_| String::from_utf8_lossy(&bytes).into_owned())
        });
        let Some(success) = ended(&mut child)? else { return Ok(Outcome::Hung) };
        let output = reader.join().expect("the reader does not panic").map_err(|error| error.to_string())?;
        // Aborted models print no result.
        if !output.contains("running 1 test\n") {
            return Err(format!("{name}: there is no such model"));
        }
        Ok(if success { Outcome::Green } else { Outcome::Red })
    }
}

/// Whether `child` succeeded; nothing if it had to be stopped.
fn ended(child: &mut Child) -> Result<Option<bool>, String> {
    let patience = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Ok(Some(status.success()));
        }
        if Instant::now() > patience {
            child.kill().and_then(|()| child.wait()).map_err(|error| error.to_string())?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn copy_all(from: &Path, to: &Path) -> std::io::Result<()> {
    if from.is_file() {
        fs::create_dir_all(to.parent().expect("a file is in a folder"))?;
        return fs::copy(from, to).map(drop);
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_name() != "target" {
            copy_all(&entry.path(), &to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

impl std::ops::Deref for Broken<'_> {
    type Target = Copy;

    fn deref(&self) -> &Copy {
        self.copy
    }
}

impl Drop for Broken<'_> {
    fn drop(&mut self) {
        fs::write(&self.file, &self.whole).expect("the copy can be written");
    }
}
