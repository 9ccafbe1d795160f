//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use axum::http::HeaderName;
use clap::{Args, Parser};

use super::workers::WorkerUrl;

/// An OpenAI-compatible HTTP router: policy classes share the workers by deficit round robin over uncached prompt tokens.
#[derive(Clone, Debug, Parser)]
#[command(name = "router", version)]
pub(crate) struct Options {
    /// Address to listen on
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8000")]
    pub(crate) listen: SocketAddr,
    /// Policy file; without one all requests are one class. Read again on SIGHUP and `POST /admin/reload`
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Without a policy file: active prefill tokens above which a worker gets nothing more
    #[arg(long, value_name = "TOKENS", conflicts_with = "policy")]
    pub(crate) prefill_busy_threshold: Option<u64>,
    /// Threads that serve connections [default: one per core]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) threads: Option<usize>,

    #[command(flatten)]
    pub(crate) workers: WorkerOptions,
    #[command(flatten)]
    pub(crate) mock: MockOptions,
    #[command(flatten)]
    pub(crate) requests: RequestOptions,
    #[command(flatten)]
    pub(crate) limits: Limits,
}

/// Where requests go.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Workers")]
pub(crate) struct WorkerOptions {
    /// An OpenAI-compatible worker, as http://HOST:PORT; may be repeated
    #[arg(long, value_name = "URL")]
    pub(crate) worker: Vec<WorkerUrl>,
    /// YAML list of workers, read again whenever it changes
    #[arg(long, value_name = "FILE")]
    pub(crate) workers_file: Option<PathBuf>,
    /// Path that a worker answers with 200 as long as it is well
    #[arg(long, value_name = "PATH", default_value = "/health")]
    pub(crate) health_path: String,
    /// Time between two health checks of a worker, in seconds
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    pub(crate) health_interval: Duration,
    /// Failed health checks in a row after which a worker gets nothing more
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) health_failures: u32,
    /// Time to connect to a worker, in seconds
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    pub(crate) connect_timeout: Duration,
    /// Longest wait for the head of a worker's answer, in seconds
    #[arg(long, value_name = "S", default_value = "600", value_parser = seconds)]
    pub(crate) response_timeout: Duration,
    /// Longest silence of a worker inside an answer, in seconds
    #[arg(long, value_name = "S", default_value = "120", value_parser = seconds)]
    pub(crate) idle_timeout: Duration,
    /// Prompt tokens that a worker is taken to have cached at most; 0: the router keeps no prefix index
    #[arg(long, value_name = "TOKENS", default_value_t = 1 << 20)]
    pub(crate) prefix_tokens: usize,
}

/// Built-in workers.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Built-in workers")]
pub(crate) struct MockOptions {
    /// Starts this many workers that compute nothing, on loopback sockets
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1024))]
    pub(crate) mock_workers: u64,
    /// Name of their model
    #[arg(long, value_name = "NAME", default_value = "m")]
    pub(crate) mock_model: String,
    /// Requests that one serves at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) mock_slots: u32,
    /// Prompt tokens that a slot takes in per second
    #[arg(long, value_name = "TOKENS", default_value_t = 20_000.0, value_parser = rate)]
    pub(crate) mock_prefill: f64,
    /// Tokens that a slot puts out per second
    #[arg(long, value_name = "TOKENS", default_value_t = 100.0, value_parser = rate)]
    pub(crate) mock_decode: f64,
    /// Prompt tokens that one keeps in its prefix cache; 0: it has none, and the same prompt costs the same again
    #[arg(long, value_name = "TOKENS", default_value_t = 0)]
    pub(crate) mock_cache: usize,
}

/// How requests are read.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Requests")]
pub(crate) struct RequestOptions {
    /// Header that names the policy class or family
    #[arg(long, value_name = "NAME", default_value = "x-dynamo-meta-policy-class")]
    pub(crate) class_header: HeaderName,
    /// Header that names the session; its requests go to one worker
    #[arg(long, value_name = "NAME", default_value = "x-dynamo-session-id")]
    pub(crate) session_header: HeaderName,
    /// Time without requests after which a session may go to another worker, in seconds; 0: no sessions
    #[arg(long, value_name = "S", default_value = "300", value_parser = seconds)]
    pub(crate) session_ttl: Duration,
    /// Bytes of text that count as one token
    #[arg(long, value_name = "BYTES", default_value_t = 4.0, value_parser = rate)]
    pub(crate) bytes_per_token: f64,
    /// Tokens in a block of a prefix cache
    #[arg(long, value_name = "TOKENS", default_value_t = 16, value_parser = positive)]
    pub(crate) block_tokens: usize,
}

/// What clients may do.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct Limits {
    /// Largest request body, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 20)]
    pub(crate) max_body_bytes: usize,
    /// Most headers of a request
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = positive)]
    pub(crate) max_headers: usize,
    /// Most connections at the same time
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = positive)]
    pub(crate) max_connections: usize,
    /// Longest wait for the head of a request, in seconds; a connection that is silent for so long is closed
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds)]
    pub(crate) header_timeout: Duration,
    /// Longest time for the body of a request, in seconds
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds)]
    pub(crate) body_timeout: Duration,
    /// Longest time that a client may leave an answer unread, in seconds
    #[arg(long, value_name = "S", default_value = "30", value_parser = seconds)]
    pub(crate) stall_timeout: Duration,
    /// Time that requests have to finish after SIGTERM, in seconds
    #[arg(long, value_name = "S", default_value = "30", value_parser = seconds)]
    pub(crate) drain_timeout: Duration,
}

/// Up to a year.
fn seconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=31_536_000.0).contains(&value) {
        Ok(Duration::from_secs_f64(value))
    } else {
        Err("not in 0..=31536000".into())
    }
}

fn positive(text: &str) -> Result<usize, String> {
    let value: u32 = text.parse().map_err(|_| "not a whole number".to_owned())?;
    if value > 0 { Ok(value as usize) } else { Err("must be above 0".into()) }
}

fn rate(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if value > 0.0 && value.is_finite() { Ok(value) } else { Err("must be above 0".into()) }
}
