//! Options that `replay` and `sweep` share: the traffic and the fleet.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tollgate::policy::{PolicyFile, Profile};

use super::calibrate::calibrate;
use super::classify::{Rule, Rules};
use super::sim::{Fleet, Setup};
use super::trace::{Cut, Format, Merged, Source, TraceError};
use super::worker::{StepTime, WorkerModel};

/// Where the requests come from.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Traffic")]
pub struct TrafficArgs {
    /// Trace to replay: a file, or poisson:requests=N,rate=R,input=T,output=T,classes=N; several are laid over each other
    #[arg(long, value_name = "FILE", required = true, value_parser = Source::parse)]
    trace: Vec<Source>,
    /// Format of the files, where their beginning does not tell
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Rule that gives requests a class, as premium:share=0.2 or long:tokens>=8192,source=code; the first that applies
    /// counts
    #[arg(long, value_name = "CLASS:CONDITION,…")]
    assign: Vec<Rule>,
    /// File with such rules, one per line; they come after those of --assign
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Rule for a group of requests with rows of its own in the report, whatever their class
    #[arg(long, value_name = "GROUP:CONDITION,…")]
    group: Vec<Rule>,
    /// Times faster than recorded
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = positive)]
    speed: f64,
    /// Where in the trace to begin, in seconds
    #[arg(long, value_name = "S", default_value_t = 0.0, value_parser = not_negative)]
    from: f64,
    /// How much of the trace to replay, in seconds
    #[arg(long = "for", value_name = "S", value_parser = positive)]
    length: Option<f64>,
    /// Requests at most
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
    /// Seed of everything that is random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
}

/// The workers.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Workers")]
pub struct FleetArgs {
    /// Workers
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    workers: u32,
    /// Requests that a worker serves at the same time
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    slots: u32,
    /// Permits that the scheduler gives out for a worker at a time, as max_active_requests; none is no bound
    #[arg(long, value_name = "N|none", default_value = "none", value_parser = permits)]
    permits: Permits,
    /// Tokens of a step, prompts and answers together; also what prefill_busy_threshold_frac is a fraction of
    #[arg(long, value_name = "TOKENS", default_value_t = 8_192)]
    step_tokens: u64,
    /// Prompt tokens per second
    #[arg(long, value_name = "TOKENS", default_value_t = 20_000.0, value_parser = positive)]
    prefill_rate: f64,
    /// Time of a step before any token, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 8.0, value_parser = not_negative)]
    step_ms: f64,
    /// Time per request that decodes and step, in microseconds
    #[arg(long, value_name = "µS", default_value_t = 100.0, value_parser = not_negative)]
    decode_us: f64,
    /// Take these three from measured steps: a CSV file with prefill_tokens, decoding, step_ms
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prefill_rate", "step_ms", "decode_us"])]
    calibrate: Option<PathBuf>,
    /// Tokens that a worker's prefix cache holds
    #[arg(long, value_name = "TOKENS", default_value_t = 1_000_000)]
    cache_tokens: u64,
    /// Tokens of a block of the prefix cache: of one of the trace's blocks
    #[arg(long, value_name = "TOKENS", default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..))]
    block_tokens: u64,
}

/// A bound on permits, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permits(Option<u32>);

fn permits(text: &str) -> Result<Permits, String> {
    match text {
        "none" => Ok(Permits(None)),
        _ => match text.parse() {
            Ok(0) | Err(_) => Err("neither none nor a number above 0".into()),
            Ok(n) => Ok(Permits(Some(n))),
        },
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let value = not_negative(text)?;
    if value > 0.0 { Ok(value) } else { Err("not above 0".into()) }
}

fn not_negative(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=1e12).contains(&value) { Ok(value) } else { Err("not in 0..=1e12".into()) }
}

/// The traffic, ready to be read any number of times.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// The traces.
    pub sources: Vec<Source>,
    /// Which part, and how fast.
    pub cut: Cut,
    /// Of made-up loads and of shares.
    pub seed: u64,
    classes: Rules,
    groups: Rules,
}

impl TrafficArgs {
    /// Checks what can be checked before anything is read.
    ///
    /// # Errors
    /// What is wrong with the rules or their file.
    pub fn traffic(&self) -> Result<Traffic, String> {
        let mut rules = self.assign.clone();
        if let Some(path) = &self.rules {
            let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
            rules.extend(Rules::parse(path, &text).map_err(|e| e.to_string())?);
        }
        let nanos = |seconds: f64| (seconds * 1e9).round() as u64;
        let from = nanos(self.from);
        let sources = self.trace.iter().map(|source| match source {
            Source::File { path, .. } => Source::File { path: path.clone(), format: self.format },
            Source::Poisson(_) => source.clone(),
        });
        Ok(Traffic {
            sources: sources.collect(),
            cut: Cut {
                from,
                to: self.length.map_or(u64::MAX, |length| from.saturating_add(nanos(length))),
                speed: self.speed,
                requests: self.requests.unwrap_or(u64::MAX),
            },
            seed: self.seed,
            classes: Rules::new(rules).map_err(|e| format!("--assign: {e}"))?,
            groups: Rules::new(self.group.clone()).map_err(|e| format!("--group: {e}"))?,
        })
    }
}

impl Traffic {
    /// Starts reading from the beginning.
    ///
    /// # Errors
    /// A trace cannot be read, or its format is not known.
    pub fn open(&self, progress: &Arc<AtomicU64>) -> Result<Merged, TraceError> {
        let open = |(source, number): (&Source, u32)| source.open(number, self.seed, progress.clone());
        let streams = self.sources.iter().zip(0..).map(open).collect::<Result<_, _>>()?;
        Ok(Merged::new(streams, self.cut))
    }

    /// Everything that a run with this policy and these workers depends on.
    pub fn setup(&self, profile: Arc<Profile>, fleet: Fleet) -> Setup {
        Setup {
            profile,
            fleet,
            classes: self.classes.clone(),
            groups: self.groups.clone(),
            sources: self.sources.iter().map(Source::name).collect(),
            seed: self.seed,
        }
    }

    /// Names that rules give to requests, but that are neither family nor explicit class of the profile.
    pub fn unknown(&self, profile: &Profile) -> Vec<String> {
        let known = |name: &str| {
            profile.classes().iter().any(|class| match &class.kind {
                tollgate::policy::ClassKind::Explicit => class.name == name,
                tollgate::policy::ClassKind::Matrix { family, .. } => family == name,
            })
        };
        let names = self.classes.rules().iter().map(|rule| &*rule.name);
        names.filter(|name| !known(name)).map(str::to_owned).collect()
    }
}

impl FleetArgs {
    /// The workers.
    ///
    /// # Errors
    /// Numbers that do not fit each other, or measurements that cannot be used.
    pub fn fleet(&self) -> Result<Fleet, String> {
        let time = match &self.calibrate {
            Some(path) => calibrate(path).map_err(|e| e.to_string())?,
            None => StepTime {
                base: self.step_ms * 1e6,
                prefill: 1e9 / self.prefill_rate,
                decode: self.decode_us * 1e3,
            },
        };
        let fleet = Fleet {
            workers: self.workers,
            model: WorkerModel { slots: self.slots, step_tokens: self.step_tokens, time },
            permits: self.permits.0,
            cache_blocks: usize::try_from(self.cache_tokens / self.block_tokens).unwrap_or(usize::MAX),
            block_tokens: self.block_tokens,
        };
        check(&fleet)?;
        Ok(fleet)
    }
}

/// Whether the numbers of a fleet fit each other.
pub(super) fn check(fleet: &Fleet) -> Result<(), String> {
    let WorkerModel { slots, step_tokens, .. } = fleet.model;
    if step_tokens < u64::from(slots) {
        return Err(format!("--step-tokens {step_tokens}: a step needs a token for each of {slots} slots"));
    }
    Ok(())
}

/// A policy by name.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Of its file, without directory and extension.
    pub name: String,
    /// The classes.
    pub profile: Arc<Profile>,
}

impl Policy {
    /// The policy in a file, with the profile for `model` where the file has one, and what an operator should know.
    ///
    /// # Errors
    /// Everything that is wrong with the file.
    pub fn read(path: &std::path::Path, model: Option<&str>) -> Result<(Self, Vec<String>), String> {
        let file = PolicyFile::read(path).map_err(|error| error.to_string())?;
        let own = model.and_then(|model| file.models().find(|(name, _)| *name == model).map(|(_, p)| p));
        let Some(profile) = own.or(file.root()) else {
            let models: Vec<_> = file.models().map(|(name, _)| name).collect();
            let path = path.display();
            return Err(format!("{path}: no profile but for the models {models:?}: choose with --model"));
        };
        let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let warnings = file.warnings().iter().map(|warning| format!("{}: {warning}", path.display()));
        Ok((Self { name, profile: profile.clone() }, warnings.collect()))
    }
}
