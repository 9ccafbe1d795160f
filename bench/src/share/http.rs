//! The same experiment over HTTP: real sockets, to a router with one built-in worker that is started here, or to one that
//! runs already.
//!
//! Every request has a connection of its own, opened before anything is released. As in one process, the first
//! requests, as many as there are slots, find the worker idle one after the other: an answer's head says that its
//! request is at the worker.

use std::ffi::OsStr;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::Arm;
use super::error::RunError;
use super::run::{PATIENCE, Run, Workload};

/// Header that names the class.
const CLASS: &str = "x-dynamo-meta-policy-class";
/// Model that requests ask for when nobody says.
pub(super) const MODEL: &str = "m";
/// Token ids are taken from 1000 up to this many more.
const VOCABULARY: u32 = 29_000;

/// The router that takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The example `router` of this workspace, started for each arm.
    Spawn,
    /// One that runs: its host and port.
    Running(String),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "spawn" {
            return Ok(Self::Spawn);
        }
        let wrong = || "neither `spawn` nor http://HOST:PORT".to_owned();
        let host = text.strip_prefix("http://").ok_or_else(wrong)?.trim_end_matches('/');
        let (name, port) = host.rsplit_once(':').ok_or_else(wrong)?;
        if name.is_empty() || name.contains('/') || port.parse::<u16>().is_err() {
            return Err(wrong());
        }
        Ok(Self::Running(host.to_owned()))
    }
}

/// A router to run against.
pub(super) struct Router {
    host: String,
    model: String,
    /// If it was started here.
    child: Option<Child>,
    policy: Option<PathBuf>,
}

impl Drop for Router {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(policy) = &self.policy {
            let _ = std::fs::remove_file(policy);
        }
    }
}

/// Where `cargo build --example router` puts it: beside this program.
fn program() -> Result<PathBuf, RunError> {
    let own = std::env::current_exe()?;
    let dir = own.parent().unwrap_or(&own);
    let program = dir.join("examples").join("router").with_extension(std::env::consts::EXE_EXTENSION);
    if program.exists() { Ok(program) } else { Err(RunError::NoRouter { program }) }
}

impl Router {
    /// The router for an arm.
    pub(super) fn of(
        target: &Target,
        arm: &Arm,
        model: Option<&str>,
        load: &Workload,
    ) -> Result<Self, RunError> {
        let model = model.unwrap_or(MODEL).to_owned();
        let program = match target {
            Target::Running(host) => {
                return Ok(Self { host: host.clone(), model, child: None, policy: None });
            }
            Target::Spawn => program()?,
        };
        let policy =
            std::env::temp_dir().join(format!("tollgate-share-{}-{}.yaml", std::process::id(), arm.name));
        std::fs::write(&policy, &arm.policy)?;
        let slots = load.worker.slots.to_string();
        let prefill = (load.cost as f64 / load.worker.service.as_secs_f64().max(1e-9)).to_string();
        let mut command = Command::new(program);
        command.args(["--listen", "127.0.0.1:0", "--mock-workers", "1", "--mock-cache", "0"]);
        command.args(["--mock-slots", &slots, "--mock-prefill", &prefill, "--mock-model", &model]);
        command.args([OsStr::new("--policy"), policy.as_os_str()]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut router = Self { host: String::new(), model, child: Some(child), policy: Some(policy) };
        let said = router.child.as_mut().and_then(|child| child.stderr.take()).expect("it is piped");
        let mut lines = BufReader::new(said).lines();
        let mut before = Vec::new();
        loop {
            let Some(line) = lines.next().transpose()? else {
                return Err(RunError::Router { message: before.join("\n") });
            };
            if let Some(host) = line.strip_prefix("listening on http://") {
                router.host = host.to_owned();
                break;
            }
            before.push(line);
        }
        // Whoever does not read on blocks it.
        thread::spawn(move || lines.for_each(drop));
        Ok(router)
    }

    /// Runs the workload once.
    pub(super) fn measure(
        &self,
        arm: &Arm,
        load: &Workload,
        completed: impl FnMut(),
    ) -> Result<Run, RunError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.run(arm, load, completed))
    }

    async fn run(&self, arm: &Arm, load: &Workload, mut completed: impl FnMut()) -> Result<Run, RunError> {
        let addr = lookup_host(&self.host).await?.find(SocketAddr::is_ipv4);
        let addr =
            addr.ok_or_else(|| RunError::Router { message: format!("{} has no address", self.host) })?;
        let order = super::run::order(load);
        let first = super::run::at_once(&arm.profile, load, &order)?;
        let mut clients = Vec::with_capacity(order.len());
        for class in order {
            clients.push(Client { class, request: self.request(load, class)?, to: connect(addr).await? });
        }
        let (send, mut outcomes) = mpsc::unbounded_channel();
        let start = Instant::now();
        for (i, client) in clients.into_iter().enumerate() {
            let (at_worker, is_at_worker) = oneshot::channel();
            tokio::spawn(client.ask(at_worker, send.clone()));
            if i < first {
                // An answer that is none ends the run below.
                let _ = timeout(PATIENCE, is_at_worker).await;
            }
        }
        let mut run = Run::new(load);
        let patience = PATIENCE + load.worker.service * 2;
        for over in 0..load.total() {
            let Ok(Some(outcome)) = timeout(patience, outcomes.recv()).await else {
                return Err(RunError::Stalled { missing: load.total() - over, after: patience });
            };
            match outcome.result? {
                Some(waited) => run.completed(outcome.class, waited),
                None => run.refused[outcome.class] += 1,
            }
            run.elapsed = start.elapsed();
            completed();
        }
        Ok(run)
    }

    /// A request of its own prompt, so that no cache knows it.
    fn request(&self, load: &Workload, class: usize) -> Result<Request<Full<Bytes>>, RunError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Relaxed: a number of its own is all that is asked for.
        let id = 1_000 + NEXT.fetch_add(1, Ordering::Relaxed) % VOCABULARY;
        let prompt = vec![id; load.cost as usize];
        let body = json!({ "model": self.model, "prompt": prompt, "max_tokens": 1, "stream": true, "temperature": 0 });
        Request::post("/v1/completions")
            .header("host", &self.host)
            .header("content-type", "application/json")
            .header(CLASS, &*load.classes[class])
            .body(Full::new(body.to_string().into()))
            .map_err(|error| RunError::Router { message: error.to_string() })
    }
}

async fn connect(addr: SocketAddr) -> Result<SendRequest<Full<Bytes>>, RunError> {
    let stream = TcpStream::connect(addr).await?;
    stream.set_nodelay(true)?;
    let (to, connection) = handshake(TokioIo::new(stream)).await?;
    // What goes wrong on it, the request hears.
    tokio::spawn(async move { drop(connection.await) });
    Ok(to)
}

/// A request on its connection.
struct Client {
    class: usize,
    request: Request<Full<Bytes>>,
    to: SendRequest<Full<Bytes>>,
}

/// What became of it: how long its answer was waited for, or that it was refused.
struct Outcome {
    class: usize,
    result: Result<Option<Duration>, hyper::Error>,
}

impl Client {
    async fn ask(self, at_worker: oneshot::Sender<()>, outcomes: mpsc::UnboundedSender<Outcome>) {
        let Self { class, request, mut to } = self;
        let result = async {
            let sent = Instant::now();
            let answer = to.send_request(request).await?;
            let waited = sent.elapsed();
            let _ = at_worker.send(());
            let status = answer.status();
            answer.into_body().collect().await?;
            Ok(status.is_success().then_some(waited))
        };
        // The run may be given up.
        let _ = outcomes.send(Outcome { class, result: result.await });
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").field("host", &self.host).field("model", &self.model).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_spawn_or_a_url() {
        assert_eq!("spawn".parse(), Ok(Target::Spawn));
        assert_eq!("http://localhost:8000/".parse(), Ok(Target::Running("localhost:8000".into())));
        for wrong in
            ["", "localhost:8000", "https://a:1", "http://a", "http://:1", "http://a:1/v1", "http://a:x"]
        {
            assert!(wrong.parse::<Target>().is_err(), "{wrong:?}");
        }
    }
}
