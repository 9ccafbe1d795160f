//! The two queues: the peer's `PolicyQueue` and [`Scheduler`].

use std::hint::black_box;
use std::time::{Duration, Instant};

use dynamo_kv_router::RouterQueuePolicy;
use dynamo_kv_router::protocols::WorkerWithDpRank;
use dynamo_kv_router::scheduling::{
    PolicyProfile, PolicyQueue, QueueSnapshot, RouterPolicyConfig, WorkerPlacement,
};
use tollgate::policy::{ClassId, PolicyFile, Profile, QueuePolicy};
use tollgate::{Pin, Request, RequestKey, Scheduler, Timestamp, Worker, WorkerId, WorkerSnapshot};

use super::measure::{Effort, Measured, per};

/// Quantum of the classes whose requests cost at most that.
pub(super) const QUANTUM: u64 = 2_048;
/// Least time that a sample of ours takes.
const OURS: Duration = Duration::from_millis(20);

/// What requests cost, and what their classes earn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Costs {
    /// 1 to [`QUANTUM`], spread evenly.
    Spread,
    /// [`QUANTUM`] each, so that no credit is left behind a dispatch.
    Whole,
    /// 10⁶ to 10⁹ on quanta of 1 to 64.
    Oversized,
}

/// Where requests wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Place {
    /// In all classes by turns.
    AllClasses,
    /// In this class only.
    OneClass(u32),
    /// In class 0, pinned to so many workers by turns.
    Lanes(u32),
}

/// What is compared: a backlog stands, requests come and go one by one, each into the place that the last one left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) note: &'static str,
    pub(super) bar: f64,
    pub(super) classes: u32,
    pub(super) order: QueuePolicy,
    pub(super) costs: Costs,
    pub(super) place: Place,
    /// Requests that wait.
    pub(super) backlog: u32,
}

/// What both queues carry for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Payload {
    number: u32,
    /// Class, or worker in [`Place::Lanes`].
    place: u32,
}

/// A request as either queue gets it.
#[derive(Clone, Copy, Debug)]
struct Input {
    class: u32,
    worker: Option<u32>,
    cost: u64,
    /// Whole seconds.
    arrival: u32,
    payload: Payload,
}

/// A well mixed number for each number.
pub(super) fn mix(number: u32) -> u64 {
    let x = (u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}

impl Case {
    fn cost(&self, number: u32) -> u64 {
        match self.costs {
            Costs::Spread => mix(number) % QUANTUM + 1,
            Costs::Whole => QUANTUM,
            Costs::Oversized => {
                let unit = (mix(number) >> 11) as f64 / (1u64 << 53) as f64;
                10f64.powf(6.0 + 3.0 * unit) as u64
            }
        }
    }

    fn quantum(&self, class: u32) -> u64 {
        match self.costs {
            Costs::Oversized => mix(class) % 64 + 1,
            _ => QUANTUM,
        }
    }

    /// The first place of request `number`.
    fn first_place(&self, number: u32) -> u32 {
        match self.place {
            Place::AllClasses => number % self.classes,
            Place::OneClass(class) => class,
            Place::Lanes(workers) => number % workers,
        }
    }

    fn input(&self, number: u32, place: u32) -> Input {
        self.input_of(number, place, self.cost(number))
    }

    fn input_of(&self, number: u32, place: u32, cost: u64) -> Input {
        let (class, worker) = match self.place {
            Place::Lanes(_) => (0, Some(place)),
            _ => (place, None),
        };
        Input { class, worker, cost, arrival: number, payload: Payload { number, place } }
    }

    /// The policy, for both parsers.
    fn yaml(&self) -> String {
        yaml(self.classes, self.order, None, |class| self.quantum(class))
    }

    fn workers(&self) -> u32 {
        match self.place {
            Place::Lanes(workers) => workers,
            _ => 1,
        }
    }
}

/// A policy with so many classes, each a family of its own.
pub(super) fn yaml(
    classes: u32,
    order: QueuePolicy,
    threshold: Option<u64>,
    quantum: impl Fn(u32) -> u64,
) -> String {
    use std::fmt::Write;
    let order = if order == QueuePolicy::Wspt { "wspt" } else { "fcfs" };
    let mut text =
        "default_policy_family: f0\nuncached_isl_buckets:\n  - {min_tokens: 0, bucket: all}\n".to_owned();
    text += "policy_classes:\n";
    let threshold = threshold.map_or(String::new(), |t| format!(", prefill_busy_threshold: {t}"));
    for class in 0..classes {
        writeln!(
            text,
            "  - {{name: c{class}, policy_family: f{class}, cache_bucket: all, queue_policy: {order}, quantum: {}{threshold}}}",
            quantum(class),
        )
        .expect("a string takes everything");
    }
    text
}

/// The policy as the peer reads it.
pub(super) fn peer_profile(yaml: &str) -> PolicyProfile {
    let config = RouterPolicyConfig::from_yaml(yaml).expect("a valid policy");
    config.resolve_profile(None, None, RouterQueuePolicy::Fcfs)
}

/// The policy as we read it.
pub(super) fn our_profile(yaml: &str) -> Profile {
    let file = PolicyFile::parse(yaml).expect("a valid policy");
    Profile::clone(file.root().expect("the policy is at the root"))
}

/// One of the two queues.
trait Queue {
    fn new(case: &Case) -> Self;
    fn enqueue(&mut self, input: Input);
    fn next(&mut self) -> Option<Payload>;
}

struct Peer {
    queue: PolicyQueue<Payload>,
    workers: usize,
}

impl Queue for Peer {
    fn new(case: &Case) -> Self {
        let queue = PolicyQueue::new(peer_profile(&case.yaml()));
        Self { queue, workers: case.workers() as usize }
    }

    fn enqueue(&mut self, input: Input) {
        let placement = match input.worker {
            None => WorkerPlacement::Any,
            Some(worker) => WorkerPlacement::Exact(WorkerWithDpRank::new(worker.into(), 0)),
        };
        let snapshot = QueueSnapshot::new(input.cost as usize, 0);
        let arrival = f64::from(input.arrival);
        let class = input.class as usize;
        let queued =
            self.queue.enqueue(class, self.workers, snapshot, arrival, 0.0, 0, placement, input.payload);
        queued.expect("no limits");
    }

    fn next(&mut self) -> Option<Payload> {
        Some(self.queue.pop_next(|_, _, _| true)?.into_payload())
    }
}

struct Ours {
    scheduler: Scheduler<Payload>,
}

impl Ours {
    fn put(&mut self, input: Input) -> RequestKey {
        let arrival = Timestamp::from_nanos(u64::from(input.arrival) * 1_000_000_000);
        // The request itself stays with its caller.
        let snapshot = {
            let mut request = Request::new(input.cost, 0);
            request.pin = input.worker.map(|worker| Pin { worker: WorkerId(worker.into()), rank: Some(0) });
            request.snapshot(arrival).expect("a valid request")
        };
        self.scheduler.enqueue(ClassId(input.class), snapshot, input.payload).expect("no limits")
    }
}

impl Queue for Ours {
    fn new(case: &Case) -> Self {
        let mut scheduler = Scheduler::new(&our_profile(&case.yaml()));
        let workers = (0..case.workers()).map(|id| Worker::new(id.into())).collect();
        scheduler.set_workers(WorkerSnapshot::new(1, workers).expect("valid workers").into());
        Self { scheduler }
    }

    fn enqueue(&mut self, input: Input) {
        self.put(input);
    }

    fn next(&mut self) -> Option<Payload> {
        Some(self.scheduler.next_request()?.payload)
    }
}

/// A queue with its standing backlog.
struct Standing<'a, Q> {
    case: &'a Case,
    queue: Q,
    next: u32,
    /// Where there is one less than at the start.
    place: u32,
}

impl<'a, Q: Queue> Standing<'a, Q> {
    fn new(case: &'a Case) -> Self {
        let mut queue = Q::new(case);
        (0..case.backlog).for_each(|number| queue.enqueue(case.input(number, case.first_place(number))));
        Self { case, queue, next: case.backlog, place: case.first_place(0) }
    }

    fn step(&mut self) -> Payload {
        self.step_with(self.case.cost(self.next))
    }

    /// The same, what the request costs being known.
    #[inline(always)]
    fn step_with(&mut self, cost: u64) -> Payload {
        self.queue.enqueue(self.case.input_of(self.next, self.place, cost));
        self.next += 1;
        let payload = self.queue.next().expect("something waits");
        self.place = payload.place;
        payload
    }

    fn time(&mut self, steps: u64) -> Duration {
        if self.case.costs == Costs::Oversized {
            return self.time_of_known(steps);
        }
        let start = Instant::now();
        for _ in 0..steps {
            black_box(self.step());
        }
        start.elapsed()
    }

    /// The same with what requests cost worked out beforehand: it needs a power, which takes as long as a decision.
    fn time_of_known(&mut self, steps: u64) -> Duration {
        let (mut left, mut took, mut costs) = (steps as usize, Duration::ZERO, [0; 512]);
        while left > 0 {
            let costs = &mut costs[..left.min(512)];
            costs.iter_mut().zip(self.next..).for_each(|(cost, number)| *cost = self.case.cost(number));
            let start = Instant::now();
            for cost in &*costs {
                black_box(self.step_with(*cost));
            }
            took += start.elapsed();
            left -= costs.len();
        }
        took
    }
}

/// Checks the decisions of a case, then times it.
pub(super) fn measure(case: &Case, effort: Effort) -> Result<Measured, String> {
    let mut peer = Standing::<Peer>::new(case);
    let mut ours = Standing::<Ours>::new(case);
    let decisions = match case.costs {
        Costs::Oversized => {
            same(0, peer.step(), ours.step())?;
            check_oversized(case, effort)?;
            1
        }
        _ => {
            (0..effort.decisions).try_for_each(|step| same(step, peer.step(), ours.step()))?;
            u64::from(effort.decisions)
        }
    };
    // How many steps make a sample.
    let (mut steps, mut took) = (4, Duration::ZERO);
    while took < effort.sample / 4 {
        steps *= 2;
        took = peer.time(steps);
        ours.time(steps);
    }
    let steps = ((steps as f64 * effort.sample.as_secs_f64() / took.as_secs_f64()) as u64).max(1);
    let samples = (0..effort.samples)
        .map(|_| {
            // The other side has just run and the caches are its: so each runs as long before it is timed, unless the queue
            // gets another shape by it.
            let settles = case.order == QueuePolicy::Fcfs;
            if settles {
                peer.time(steps);
            }
            let peer = per(peer.time(steps), steps);
            if settles {
                ours.time(steps);
            }
            // Long enough to be measured, unless the queue would get another shape by it than the peer's.
            let (mut done, mut took) = (0, Duration::ZERO);
            while done == 0 || (took < OURS && settles) {
                took += ours.time(steps);
                done += steps;
            }
            (peer, per(took, done))
        })
        .collect();
    Ok(Measured { name: case.name, note: case.note, bar: case.bar, decisions, samples })
}

fn same(step: u32, peer: Payload, ours: Payload) -> Result<(), String> {
    match peer == ours {
        true => Ok(()),
        false => Err(format!("decision {step} differs: the peer takes {peer:?}, we take {ours:?}")),
    }
}

/// What must be equal of oversized heads: both serve everything, each class in the same order. Which class is next
/// after bulk credit is not: the peer's cursor moves otherwise.
fn check_oversized(case: &Case, effort: Effort) -> Result<(), String> {
    let classes = if effort.quick { 100 } else { 1_000 };
    let small = Case { classes, backlog: classes * 10, ..*case };
    fn drain<Q: Queue>(case: &Case) -> Vec<Vec<u32>> {
        let mut queue = Standing::<Q>::new(case).queue;
        let mut served = vec![Vec::new(); case.classes as usize];
        while let Some(payload) = queue.next() {
            served[payload.place as usize].push(payload.number);
        }
        served
    }
    let (peer, ours) = (drain::<Peer>(&small), drain::<Ours>(&small));
    if peer.iter().flatten().count() != small.backlog as usize {
        return Err("the peer lost or repeated requests".into());
    }
    match peer.iter().zip(&ours).position(|(peer, ours)| peer != ours) {
        None => Ok(()),
        Some(class) => Err(format!("class {class} is served in another order")),
    }
}

/// Cancels one request of many. The peer takes it out with `retain`.
pub(super) fn cancel(case: &Case, effort: Effort) -> Result<Measured, String> {
    let decisions = check_cancel(&Case { backlog: case.backlog.min(100_000), ..*case })?;
    let mut peer = Standing::<Peer>::new(case);
    let mut ours = Ours::new(case);
    let mut keys: Vec<_> = (0..case.backlog).map(|number| ours.put(case.input(number, 0))).collect();
    // A stride through all numbers that comes back to none of them.
    let victim = |i: u32| (u64::from(i) * 381_683 % u64::from(case.backlog)) as u32;
    let (mut of_peer, mut of_ours, mut next) = (0, 0, case.backlog);
    let mut sample = || {
        const PEER: u32 = 3;
        const OURS: u32 = 5_000;
        let start = Instant::now();
        for i in of_peer..of_peer + PEER {
            // What it enqueues again below has numbers above these.
            peer.queue.queue.retain(|payload| payload.number != victim(i));
        }
        let of_one = per(start.elapsed(), PEER.into());
        of_peer += PEER;
        let start = Instant::now();
        for i in of_ours..of_ours + OURS {
            black_box(ours.scheduler.cancel(keys[victim(i) as usize]));
        }
        let of_another = per(start.elapsed(), OURS.into());
        for i in 0..OURS {
            let key = ours.put(case.input(next, 0));
            keys[victim(of_ours + i) as usize] = key;
            if i < PEER {
                peer.queue.enqueue(case.input(next, 0));
            }
            next += 1;
        }
        of_ours += OURS;
        (of_one, of_another)
    };
    sample();
    let samples = (0..effort.samples).map(|_| sample()).collect();
    if (peer.queue.queue.pending_count(), ours.scheduler.waiting() as usize)
        != (case.backlog as usize, case.backlog as usize)
    {
        return Err("something was cancelled twice or not at all".into());
    }
    Ok(Measured { name: case.name, note: case.note, bar: case.bar, decisions, samples })
}

/// After the same cancels both serve the rest in the same order.
fn check_cancel(case: &Case) -> Result<u64, String> {
    let mut peer = Standing::<Peer>::new(case).queue;
    let mut ours = Ours::new(case);
    let keys: Vec<_> = (0..case.backlog).map(|number| ours.put(case.input(number, 0))).collect();
    for victim in (0..case.backlog).step_by(997) {
        peer.queue.retain(|payload| payload.number != victim);
        ours.scheduler.cancel(keys[victim as usize]).ok_or("a waiting request was not there")?;
    }
    for decisions in 0.. {
        match (peer.next(), ours.next()) {
            (Some(peer), Some(ours)) => same(decisions, peer, ours)?,
            (None, None) => return Ok(decisions.into()),
            _ => return Err(format!("one of both is empty after {decisions} decisions")),
        }
    }
    unreachable!("a queue ends")
}
