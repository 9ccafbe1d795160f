//! The two routers on tokio: the peer's `LocalScheduler`, which is its `SchedulerQueue` with selection, booking and
//! release, and [`Engine`].
//!
//! The peer's `SchedulerQueue` refuses admissions that are booked unless they come through `LocalScheduler`, and only
//! that one can give a booking back; so this is its whole path, as its own service uses it.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dynamo_kv_router::protocols::{WorkerConfigLike, WorkerWithDpRank};
use dynamo_kv_router::scheduling::{OverlapSignals, ScheduleMode, ScheduleRequest};
use dynamo_kv_router::{
    ActiveSequencesMultiWorker, DefaultWorkerSelector, LocalScheduler, NoopSequencePublisher,
};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tollgate::policy::QueuePolicy;
use tollgate::{Engine, Permit, Pin, Request, Worker, WorkerId, WorkerSnapshot};

use super::measure::{Effort, Measured, Spread, per};
use super::queue::{QUANTUM, mix, our_profile, peer_profile, yaml};
use crate::idle::Idle;

/// Tokens of each request: the quantum, so that a dispatch leaves no credit, and nothing hangs on the carry that the
/// peer loses in a fruitless call.
const COST: u64 = QUANTUM;
/// Requests in flight on the whole path.
const IN_FLIGHT: u32 = 16;
/// Patience with either side.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Way {
    /// Admit → permit → release with nobody busy, [`IN_FLIGHT`] tasks.
    Whole,
    /// Every worker is busy; one is freed → the next waiting request is answered.
    HandOff,
    /// Every worker is busy, and a request waits for each of them in each class; a burst of them is freed.
    Lanes,
}

/// A comparison of the routers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) name: &'static str,
    pub(super) note: &'static str,
    pub(super) bar: f64,
    pub(super) classes: u32,
    pub(super) workers: u32,
    pub(super) way: Way,
    /// What our arbiter does when there is nothing to do.
    pub(super) idle: Idle,
}

impl Path {
    /// A worker with anything on it is busy, or none ever is.
    fn yaml(&self) -> String {
        let threshold = if self.way == Way::Whole { 1 << 40 } else { 0 };
        yaml(self.classes, QueuePolicy::Fcfs, Some(threshold), |_| QUANTUM)
    }
}

/// One of the two routers. Clones share it.
trait Router: Clone + Send + Sync + 'static {
    type Held: Send + 'static;

    /// Must be called inside of a tokio runtime.
    fn start(path: &Path) -> Self;
    /// Puts a request on its way, and returns what gives its permit; `None` from a router that ends.
    fn admit(
        &self,
        class: u32,
        worker: Option<u32>,
    ) -> impl Future<Output = Option<Self::Held>> + Send + 'static;
    fn release(&self, held: Self::Held) -> impl Future<Output = ()> + Send;
    fn worker(held: &Self::Held) -> u32;
    /// Requests that wait, if that costs nothing to ask.
    fn waiting(&self) -> Option<usize>;
}

#[derive(Clone)]
struct Peer {
    scheduler: Arc<LocalScheduler<NoopSequencePublisher, PeerWorker, DefaultWorkerSelector>>,
    /// The names that it wants of classes.
    names: Arc<Vec<String>>,
    next: Arc<AtomicU64>,
    _workers: Arc<watch::Sender<HashMap<u64, PeerWorker>>>,
    _stop: Arc<StopOnDrop>,
}

struct StopOnDrop(CancellationToken);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// A worker as the peer sees it.
#[derive(Clone, PartialEq)]
struct PeerWorker;

impl WorkerConfigLike for PeerWorker {
    fn data_parallel_start_rank(&self) -> u32 {
        0
    }

    fn data_parallel_size(&self) -> u32 {
        1
    }

    fn max_num_batched_tokens(&self) -> Option<u64> {
        None
    }

    fn total_kv_blocks(&self) -> Option<u64> {
        None
    }
}

impl Router for Peer {
    type Held = (String, u32);

    fn start(path: &Path) -> Self {
        let ids = 0..u64::from(path.workers);
        let ranks = ids.clone().map(|id| (id, (0, 1))).collect();
        let slots = ActiveSequencesMultiWorker::new(NoopSequencePublisher, 64, ranks, false, 0, "compare");
        let (sender, workers) = watch::channel(ids.map(|id| (id, PeerWorker)).collect());
        let stop = CancellationToken::new();
        let scheduler = LocalScheduler::new(
            Arc::new(slots),
            workers,
            peer_profile(&path.yaml()),
            64,
            DefaultWorkerSelector::new(None, "compare"),
            None,
            None,
            None,
            None,
            // Releases are announced; the periodic look at everything would only disturb.
            Duration::from_secs(3_600),
            true,
            stop.clone(),
            "compare",
            false,
        );
        Self {
            scheduler: Arc::new(scheduler),
            names: Arc::new((0..path.classes).map(|class| format!("f{class}")).collect()),
            next: Arc::default(),
            _workers: Arc::new(sender),
            _stop: Arc::new(StopOnDrop(stop)),
        }
    }

    fn admit(
        &self,
        class: u32,
        worker: Option<u32>,
    ) -> impl Future<Output = Option<Self::Held>> + Send + 'static {
        // Relaxed: only the numbers have to differ.
        let id = self.next.fetch_add(1, Ordering::Relaxed).to_string();
        let request = ScheduleRequest {
            mode: ScheduleMode::Tracked { request_id: id.clone() },
            token_seq: None,
            block_hashes: None,
            isl_tokens: COST as usize,
            lora_name: None,
            expected_output_tokens: None,
            affinity_target: None,
            pinned_worker: worker.map(|worker| WorkerWithDpRank::new(worker.into(), 0)),
            allowed_worker_ids: None,
            routing_constraints: Default::default(),
            router_config_override: None,
            priority_jump: 0.0,
            strict_priority: 0,
            policy_class: Some(self.names[class as usize].clone()),
            session_context: None,
            overlap: OverlapSignals::default(),
            kv_transfer_candidates: None,
            retain_kv_transfer_chain: false,
            shared_cache_hits: None,
        };
        let scheduler = self.scheduler.clone();
        async move {
            let response = scheduler.schedule_request(request).await.ok()?;
            Some((id, response.best_worker.worker_id as u32))
        }
    }

    async fn release(&self, (id, _): Self::Held) {
        self.scheduler.free(&id).await.expect("the request is booked");
    }

    fn worker(held: &Self::Held) -> u32 {
        held.1
    }

    fn waiting(&self) -> Option<usize> {
        Some(self.scheduler.pending_count())
    }
}

#[derive(Clone)]
struct Ours {
    engine: Engine,
    names: Arc<Vec<Arc<str>>>,
}

impl Router for Ours {
    type Held = Permit;

    fn start(path: &Path) -> Self {
        let workers = (0..path.workers).map(|id| Worker::new(id.into())).collect();
        let engine = Engine::builder(our_profile(&path.yaml()))
            .workers(WorkerSnapshot::new(1, workers).expect("valid workers"))
            .idle(path.idle.into())
            .ingress_capacity(if path.classes > 64 { 64 } else { 16_384 })
            .start()
            .expect("there is a thread to be had");
        Self { engine, names: Arc::new((0..path.classes).map(|class| format!("f{class}").into()).collect()) }
    }

    fn admit(
        &self,
        class: u32,
        worker: Option<u32>,
    ) -> impl Future<Output = Option<Self::Held>> + Send + 'static {
        let mut request = Request::new(COST, 0).with_class(self.names[class as usize].clone());
        request.pin = worker.map(|worker| Pin { worker: WorkerId(worker.into()), rank: Some(0) });
        let admission = self.engine.admit(request).expect("there is room in the ingress queue");
        async move { admission.await.ok() }
    }

    async fn release(&self, held: Self::Held) {
        drop(held);
    }

    fn worker(held: &Self::Held) -> u32 {
        held.endpoint().worker.0 as u32
    }

    fn waiting(&self) -> Option<usize> {
        None
    }
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_time().build().expect("there are threads to be had")
}

/// Checks the decisions of a path, then times it.
pub(super) fn measure(path: &Path, effort: Effort) -> Result<Measured, String> {
    let runtime = runtime();
    let (decisions, samples) = match path.way {
        Way::Whole => (0, whole(path, effort, &runtime)),
        Way::HandOff => hand_off(path, effort, &runtime)?,
        Way::Lanes => lanes(path, effort, &runtime)?,
    };
    runtime.shutdown_timeout(PATIENCE);
    Ok(Measured { name: path.name, note: path.note, bar: path.bar, decisions, samples })
}

// --- the whole path ------------------------------------------------------------------------------------------------

/// Time for so many requests of each task, all tasks at the same time.
async fn rounds<R: Router>(router: &R, classes: u32, each: u32) -> Duration {
    let start = Instant::now();
    let tasks: Vec<_> = (0..IN_FLIGHT)
        .map(|task| {
            let router = router.clone();
            tokio::spawn(async move {
                for i in 0..each {
                    let class = (mix(task * each + i) % u64::from(classes)) as u32;
                    let held = router.admit(class, None).await.expect("workers are there");
                    router.release(held).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no task panics");
    }
    start.elapsed()
}

fn whole(path: &Path, effort: Effort, runtime: &Runtime) -> Vec<(f64, f64)> {
    let (peer, ours) = runtime.block_on(async { (Peer::start(path), Ours::start(path)) });
    let calibrated = |time: &dyn Fn(u32) -> Duration| {
        let (mut each, mut took) = (2, Duration::ZERO);
        while took < effort.sample / 4 {
            each *= 2;
            took = time(each);
        }
        ((f64::from(each) * effort.sample.as_secs_f64() / took.as_secs_f64()) as u32).max(1)
    };
    let time_peer = |each| runtime.block_on(rounds(&peer, path.classes, each));
    let time_ours = |each| runtime.block_on(rounds(&ours, path.classes, each));
    let (of_peer, of_ours) = (calibrated(&time_peer), calibrated(&time_ours));
    let one = |took, each| per(took, u64::from(each) * u64::from(IN_FLIGHT));
    (0..effort.samples)
        .map(|_| (one(time_peer(of_peer), of_peer), one(time_ours(of_ours), of_ours)))
        .collect()
}

// --- with every worker busy ----------------------------------------------------------------------------------------

/// An answer, as the task that waited for it reports it.
struct Answer<H> {
    class: u32,
    held: H,
    at: Instant,
}

/// A router with every worker busy, and requests that wait.
struct Saturated<R: Router> {
    router: R,
    /// What each worker works on.
    held: Vec<Option<R::Held>>,
    answers: UnboundedReceiver<Answer<R::Held>>,
    report: UnboundedSender<Answer<R::Held>>,
    waiting: usize,
    /// Requests that were ever put.
    put: u64,
    /// Of these, whose tasks have looked for their answer at least once.
    polled: Arc<AtomicU64>,
}

impl<R: Router> Saturated<R> {
    /// With all workers busy and nothing waiting.
    async fn new(path: &Path) -> Self {
        let router = R::start(path);
        let mut held: Vec<_> = (0..path.workers).map(|_| None).collect();
        for worker in 0..path.workers {
            held[worker as usize] = router.admit(0, Some(worker)).await;
        }
        let (report, answers) = unbounded_channel();
        Self { router, held, answers, report, waiting: 0, put: 0, polled: Arc::default() }
    }

    /// Puts a request into the queue behind those that wait, and returns when it is there and its task waits for the
    /// answer: what is timed next shall not wait for the runtime to start that task.
    async fn put(&mut self, class: u32, worker: Option<u32>) {
        let admission = self.router.admit(class, worker);
        let (report, polled) = (self.report.clone(), self.polled.clone());
        tokio::spawn(async move {
            let mut admission = pin!(admission);
            let mut is_first = true;
            let held = poll_fn(|cx| {
                let ready = admission.as_mut().poll(cx);
                if std::mem::take(&mut is_first) {
                    // Relaxed: a count, which publishes nothing.
                    polled.fetch_add(1, Ordering::Relaxed);
                }
                ready
            })
            .await;
            let at = Instant::now();
            if let Some(held) = held {
                drop(report.send(Answer { class, held, at }));
            }
        });
        self.waiting += 1;
        self.put += 1;
        let patience = Instant::now() + PATIENCE;
        while self.polled.load(Ordering::Relaxed) < self.put
            || self.router.waiting().is_some_and(|waiting| waiting != self.waiting)
        {
            assert!(Instant::now() < patience, "a request does not get into the queue");
            tokio::task::yield_now().await;
        }
    }

    /// Waits for the next answer and keeps its permit; `held` of what it returns is the worker.
    async fn answer(&mut self) -> Answer<u32> {
        let answer = tokio::time::timeout(PATIENCE, self.answers.recv()).await.expect("an answer in time");
        let Answer { class, held, at } = answer.expect("the channel is open");
        self.waiting -= 1;
        let worker = R::worker(&held);
        let before = self.held[worker as usize].replace(held);
        assert!(before.is_none(), "worker {worker} was not free");
        Answer { class, held: worker, at }
    }

    /// Frees a worker, waits for the answer that this gives, and lets another request wait in the place of that one.
    /// Returns the class that was answered and how long it took.
    async fn free(&mut self, worker: u32, pinned: bool) -> (u32, Duration) {
        let held = self.held[worker as usize].take().expect("every worker is busy");
        let start = Instant::now();
        self.router.release(held).await;
        let Answer { class, at, .. } = self.answer().await;
        self.put(class, pinned.then_some(worker)).await;
        (class, at.saturating_duration_since(start))
    }
}

/// Runs as a task of the runtime: who frees a worker is one in a router, too, and whom that wakes need not be waited for
/// by a thread outside.
fn inside<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    runtime: &Runtime,
    path: Path,
    task: impl FnOnce(Path) -> F,
) -> T {
    runtime.block_on(runtime.spawn(task(path))).expect("the task does not panic")
}

fn hand_off(path: &Path, effort: Effort, runtime: &Runtime) -> Result<(u64, Vec<(f64, f64)>), String> {
    inside(runtime, *path, move |path| async move {
        let mut peer = Saturated::<Peer>::new(&path).await;
        let mut ours = Saturated::<Ours>::new(&path).await;
        let backlog = path.classes.max(64);
        for request in 0..backlog {
            peer.put(request % path.classes, None).await;
            ours.put(request % path.classes, None).await;
        }
        let (mut took, mut events) = (Duration::ZERO, 0);
        while took < effort.sample / 4 || events < 8 {
            let worker = (mix(events) % u64::from(path.workers)) as u32;
            let (of_peer, time) = peer.free(worker, false).await;
            let (of_ours, _) = ours.free(worker, false).await;
            if of_peer != of_ours {
                return Err(format!("decision {events} differs: class {of_peer} there, {of_ours} here"));
            }
            took += time;
            events += 1;
        }
        let decisions = u64::from(events);
        let each =
            ((f64::from(events) * effort.sample.as_secs_f64() / took.as_secs_f64()) as u32).clamp(15, 400);
        let mut samples = Vec::new();
        for _ in 0..effort.samples {
            let (mut of_peer, mut of_ours) = (Vec::new(), Vec::new());
            for _ in 0..each {
                let worker = (mix(events) % u64::from(path.workers)) as u32;
                of_peer.push(peer.free(worker, false).await.1.as_nanos() as f64);
                events += 1;
            }
            for i in 0..each {
                let worker = (mix(events - each + i) % u64::from(path.workers)) as u32;
                of_ours.push(ours.free(worker, false).await.1.as_nanos() as f64);
            }
            let median = |times: Vec<f64>| Spread::of(times.into_iter()).median;
            samples.push((median(of_peer), median(of_ours)));
        }
        Ok((decisions, samples))
    })
}

/// Frees so many workers, one after the other, and waits for all answers; the places are taken again afterwards.
async fn burst<R: Router>(side: &mut Saturated<R>, workers: impl Iterator<Item = u32> + Clone) -> Duration {
    let start = Instant::now();
    for worker in workers.clone() {
        let held = side.held[worker as usize].take().expect("every worker is busy");
        side.router.release(held).await;
    }
    let mut answers = Vec::new();
    for _ in workers {
        answers.push(side.answer().await);
    }
    let took = start.elapsed();
    for Answer { class, held: worker, .. } in answers {
        side.put(class, Some(worker)).await;
    }
    took
}

fn lanes(path: &Path, effort: Effort, runtime: &Runtime) -> Result<(u64, Vec<(f64, f64)>), String> {
    const BURST: u32 = 64;
    inside(runtime, *path, move |path| async move {
        let mut peer = Saturated::<Peer>::new(&path).await;
        let mut ours = Saturated::<Ours>::new(&path).await;
        for class in 0..path.classes {
            for worker in 0..path.workers {
                peer.put(class, Some(worker)).await;
                ours.put(class, Some(worker)).await;
            }
        }
        let checked = effort.decisions / 40;
        for event in 0..checked {
            let worker = (mix(event) % u64::from(path.workers)) as u32;
            let ((of_peer, _), (of_ours, _)) = (peer.free(worker, true).await, ours.free(worker, true).await);
            if of_peer != of_ours {
                return Err(format!("decision {event} differs: class {of_peer} there, {of_ours} here"));
            }
        }
        let burst_of = |number: u32| (0..BURST).map(move |i| (number * BURST + i) % path.workers);
        let mut samples = Vec::new();
        for sample in 0..=effort.samples {
            let (mut of_peer, mut of_ours) = (Duration::ZERO, Duration::ZERO);
            let bursts = if effort.quick { 2 } else { 10 };
            for i in 0..bursts {
                of_peer += burst(&mut peer, burst_of(sample * bursts + i)).await;
                of_ours += burst(&mut ours, burst_of(sample * bursts + i)).await;
            }
            let changes = u64::from(bursts * BURST);
            // The first one warms both up.
            if sample > 0 {
                samples.push((per(of_peer, changes), per(of_ours, changes)));
            }
        }
        Ok((u64::from(checked), samples))
    })
}
