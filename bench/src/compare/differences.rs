//! The three known differences, shown on the smallest inputs that have them (docs/algorithm.md).

use dynamo_kv_router::scheduling::{PolicyQueue, QueueSnapshot, WorkerPlacement};
use tollgate::policy::{ClassId, QueuePolicy};
use tollgate::{Request, Scheduler, Timestamp, Worker, WorkerSnapshot};

use super::queue::{our_profile, peer_profile, yaml};

/// The same two classes in both queues. The payload is the class, or the request.
struct Both {
    peer: PolicyQueue<usize>,
    ours: Scheduler<usize>,
}

impl Both {
    fn new(quanta: [u64; 2]) -> Self {
        let yaml = yaml(2, QueuePolicy::Fcfs, None, |class| quanta[class as usize]);
        let mut ours = Scheduler::new(&our_profile(&yaml));
        let workers = WorkerSnapshot::new(1, vec![Worker::new(1)]).expect("a valid worker");
        ours.set_workers(workers.into());
        Self { peer: PolicyQueue::new(peer_profile(&yaml)), ours }
    }

    fn put(&mut self, class: usize, cost: u64, arrival_ms: u64, jump: f64, payload: usize) {
        let snapshot = QueueSnapshot::new(cost as usize, 0);
        let arrival = arrival_ms as f64 / 1e3;
        let queued = self.peer.enqueue(class, 1, snapshot, arrival, jump, 0, WorkerPlacement::Any, payload);
        queued.expect("no limits");
        let request = Request { priority_jump: jump, ..Request::new(cost, 0) };
        let snapshot = request.snapshot(Timestamp::from_nanos(arrival_ms * 1_000_000));
        self.ours
            .enqueue(ClassId(class as u32), snapshot.expect("a valid request"), payload)
            .expect("no limits");
    }

    /// Dispatches of both classes among the next `n`, the peer's and ours.
    fn serve(&mut self, n: usize, mut between: impl FnMut(&mut Self)) -> [[usize; 2]; 2] {
        let mut served = [[0; 2]; 2];
        for _ in 0..n {
            let peer = self.peer.pop_next(|_, _, _| true).expect("something waits").into_payload();
            let ours = self.ours.next_request().expect("something waits").payload;
            served[0][peer] += 1;
            served[1][ours] += 1;
            between(self);
        }
        served
    }
}

/// What each difference looks like.
pub(super) fn text() -> String {
    let ratio = |[a, b]: [usize; 2]| format!("{a} : {b}");

    let mut both = Both::new([65_536, 512]);
    (0..2_000).for_each(|i| both.put(i % 2, 512, i as u64, 0.0, i % 2));
    let [peer, ours] = both.serve(645, |both| {
        assert!(both.peer.pop_next(|_, _, _| false).is_none(), "nobody may go");
        // Our queue asks its workers.
        both.ours.set_workers(WorkerSnapshot::default().into());
        both.ours.set_workers(WorkerSnapshot::new(2, vec![Worker::new(1)]).expect("valid").into());
    });
    let carry = format!("{}; ours {}", ratio(peer), ratio(ours));

    let mut both = Both::new([1, 1]);
    both.put(0, 1, 1_100, 1.0, 0);
    both.put(0, 1, 100, 0.0, 1);
    let peer = both.peer.pop_next(|_, _, _| true).expect("something waits").into_payload();
    let ours = both.ours.next_request().expect("something waits").payload;
    let name = |first| if first == 0 { "the one that was enqueued first" } else { "the other" };
    let ties = format!("{}; ours {}", name(peer), name(ours));

    let mut both = Both::new([1, 1]);
    (0..4_000).for_each(|i| both.put(i % 2, 2 + (i % 2) as u64, i as u64, 0.0, i % 2));
    let [peer, ours] = both.serve(1_000, |_| ());
    let tokens = |[a, b]: [usize; 2]| ratio([2 * a, 3 * b]);
    let cursor = format!("{}; ours {}", tokens(peer), tokens(ours));

    format!(
        "\nknown differences, not in the rows:\n\
         1. a fruitless call loses the carry; quanta 65,536 : 512, costs 512, a fruitless call after each of 645\n   \
         dispatches: the peer serves {carry}\n\
         2. FCFS ties are broken by rounding; arrival 1.1 s with a jump of 1 s, then arrival 0.1 s: first goes, at the\n   \
         peer, {ties}\n\
         3. the cursor moves behind a class that went without a grant; quanta 1 : 1, costs 2 and 3, 1000 dispatches:\n   \
         tokens of the peer {cursor}\n"
    )
}
