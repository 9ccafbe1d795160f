//! What comes back is what was frozen, whichever way it comes, and nothing of it stays.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::policy::{ClassSpec, PolicySpec, QueuePolicy};
use crate::request::{CachedList, CachedOn, Constraints, Request};
use crate::time::Timestamp;
use crate::worker::{Worker, WorkerId};

/// Of each request the class by its place in the profile, and its constraints and its list by their number.
#[derive(Clone, Debug)]
enum Op {
    Enqueue { class: usize, request: Request, shares: [Option<usize>; 2], arrival: u64 },
    Submit { class: usize, request: Request, shares: [Option<usize>; 2], arrival: u64 },
    Next,
    Dispatch,
    GiveBack,
    Cancel(usize),
    Expire(u64),
    Reload(Vec<ClassSpec>),
    Workers(Vec<Worker>),
}

const SHARED: usize = 3;

fn request() -> impl Strategy<Value = Request> {
    // Half of the requests are usual but for one thing at most.
    let some = |percent: u32| proptest::bool::weighted(f64::from(percent) / 100.0);
    let tokens = || prop_oneof![6 => 0..5u64, 1 => Just(u64::MAX), 1 => any::<u64>()];
    let tier = select(vec![1, 2, u32::MAX]);
    let jump = select(vec![-1.0, -0.0, 1e-9, 2e-9, 1.0, f64::MAX]);
    let deadline = select(vec![0, 1, 5, 1_000, u64::MAX]).prop_map(Duration::from_nanos);
    let pin = (0..3u64, prop::option::of(0..3u32)).prop_map(|(id, rank)| Pin { worker: WorkerId(id), rank });
    let rare = (some(20), some(20), some(20), some(40));
    (tokens(), tokens(), tier, jump, deadline, pin, rare).prop_map(
        |(raw_isl_tokens, cached_tokens, tier, jump, deadline, pin, rare)| Request {
            strict_priority: if rare.0 { tier } else { 0 },
            priority_jump: if rare.1 { jump } else { 0.0 },
            deadline: rare.2.then_some(deadline),
            pin: rare.3.then_some(pin),
            ..Request::new(raw_isl_tokens, cached_tokens)
        },
    )
}

fn classes() -> impl Strategy<Value = Vec<ClassSpec>> {
    let order = select(vec![QueuePolicy::Fcfs, QueuePolicy::Wspt, QueuePolicy::AgedWspt]);
    let class = (order, prop::bool::weighted(0.3), prop::bool::weighted(0.2), prop::option::of(0..3u64));
    let class = class.prop_map(|(order, expires, limited, threshold)| {
        let mut class = ClassSpec::explicit("", 2);
        class.aging_tokens_per_second = (order == QueuePolicy::AgedWspt).then_some(1e9);
        class.order = order;
        class.max_queue_time = expires.then_some(Duration::from_nanos(9));
        class.limits.requests = limited.then_some(2);
        class.busy.threshold_tokens = threshold;
        class
    });
    let names = prop::sample::subsequence(vec!["a", "b", "c"], 1..=3);
    (names, prop::array::uniform3(class)).prop_map(|(names, classes)| {
        names.into_iter().zip(classes).map(|(name, class)| ClassSpec { name: name.into(), ..class }).collect()
    })
}

fn workers() -> impl Strategy<Value = Vec<Worker>> {
    prop::sample::subsequence(vec![0, 1, 2], 0..=3).prop_map(|ids| {
        ids.into_iter().map(|id| Worker { ranks: id as u32 + 1, ..Worker::new(id) }).collect()
    })
}

fn op() -> impl Strategy<Value = Op> {
    let shared = || prop::option::weighted(0.2, 0..SHARED);
    let comes = || (0..3usize, request(), [shared(), shared()], 0..20u64);
    prop_oneof![
        8 => comes().prop_map(|(class, request, shares, arrival)| Op::Enqueue { class, request, shares, arrival }),
        2 => comes().prop_map(|(class, request, shares, arrival)| Op::Submit { class, request, shares, arrival }),
        3 => Just(Op::Next),
        2 => Just(Op::Dispatch),
        2 => Just(Op::GiveBack),
        2 => any::<usize>().prop_map(Op::Cancel),
        1 => (0..40u64).prop_map(Op::Expire),
        1 => classes().prop_map(Op::Reload),
        1 => workers().prop_map(Op::Workers),
    ]
}

/// The scheduler, and what it was given and has not given back.
struct Case {
    scheduler: Scheduler<u64>,
    open: Vec<ClassId>,
    waiting: BTreeMap<u64, (RequestKey, ClassId, Snapshot)>,
    gone: Vec<RequestKey>,
    bookings: Vec<Booking>,
    constraints: [DataArc<Constraints>; SHARED],
    lists: [CachedList; SHARED],
    ids: u64,
    version: u64,
}

impl Case {
    fn new(classes: Vec<ClassSpec>) -> Self {
        let profile = Profile::new(PolicySpec { classes, ..PolicySpec::default() }).unwrap();
        let tokens = |n| [CachedOn { worker: WorkerId(1), tokens: n as u64 }].into();
        Self {
            scheduler: Scheduler::new(&profile),
            open: (0..profile.classes().len() as u32).map(ClassId).collect(),
            waiting: BTreeMap::new(),
            gone: Vec::new(),
            bookings: Vec::new(),
            constraints: std::array::from_fn(|n| {
                Constraints::new(Some(vec![WorkerId(n as u64)]), vec![]).into()
            }),
            lists: std::array::from_fn(tokens),
            ids: 0,
            version: 0,
        }
    }

    /// A request that comes, with its class.
    fn comes(
        &mut self,
        class: usize,
        request: Request,
        [constraints, list]: [Option<usize>; 2],
        arrival: u64,
    ) -> (ClassId, Snapshot, u64) {
        self.ids += 1;
        let request = Request {
            constraints: constraints.map(|n| self.constraints[n].clone()),
            cached_on: list.map(|n| self.lists[n].clone()),
            ..request
        };
        let snapshot = request.snapshot(Timestamp::from_nanos(arrival)).unwrap();
        (self.open[class % self.open.len()], snapshot, self.ids)
    }

    fn goes(&mut self, request: Picked<u64>) {
        let (key, class, snapshot) = self.waiting.remove(&request.payload).expect("it was waiting");
        assert_eq!((request.class, request.snapshot), (class, snapshot));
        self.gone.push(key);
    }

    fn came(&mut self, class: ClassId, snapshot: Snapshot, id: u64, key: Result<RequestKey, Refused<u64>>) {
        match key {
            Ok(key) => _ = self.waiting.insert(id, (key, class, snapshot)),
            Err(refused) => assert_eq!((refused.snapshot, refused.payload), (snapshot, id)),
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Enqueue { class, request, shares, arrival } => {
                let (class, snapshot, id) = self.comes(class, request, shares, arrival);
                let key = self.scheduler.enqueue(class, snapshot.clone(), id);
                self.came(class, snapshot, id, key);
            }
            Op::Submit { class, request, shares, arrival } => {
                let (class, snapshot, id) = self.comes(class, request, shares, arrival);
                let mut went = Vec::new();
                let key = self.scheduler.submit(class, snapshot.clone(), id, &mut |_, dispatch| {
                    went.push(dispatch);
                });
                self.came(class, snapshot, id, key);
                for Dispatch { request, outcome } in went {
                    self.goes(request);
                    self.bookings.extend(outcome);
                }
            }
            Op::Next => {
                if let Some(request) = self.scheduler.next_request() {
                    self.goes(request);
                }
            }
            Op::Dispatch => {
                if let Some(Dispatch { request, outcome }) = self.scheduler.dispatch() {
                    self.goes(request);
                    self.bookings.extend(outcome);
                }
            }
            Op::GiveBack => {
                if let Some(booking) = self.bookings.pop() {
                    self.scheduler.release(booking);
                }
            }
            Op::Cancel(which) => {
                let key = self.waiting.values().nth(which % (self.waiting.len() + 1)).map(|(key, ..)| *key);
                if let Some(key) = key {
                    let request = self.scheduler.cancel(key).expect("it is waiting");
                    self.goes(request);
                }
            }
            Op::Expire(now) => {
                while let Some(expired) = self.scheduler.expire(Timestamp::from_nanos(now)) {
                    self.goes(expired.request);
                }
            }
            Op::Reload(classes) => {
                let profile = Profile::new(PolicySpec { classes, ..PolicySpec::default() }).unwrap();
                self.open = self.scheduler.reload(&profile);
            }
            Op::Workers(workers) => {
                self.version += 1;
                self.scheduler.set_workers(WorkerSnapshot::new(self.version, workers).unwrap().into());
            }
        }
    }

    /// The scheduler shows what waits, and has one share in what that shares, besides those of its constraint sets.
    fn check(&self) {
        let mut shown: Vec<_> =
            self.scheduler.iter().map(|(key, snapshot, id)| (*id, key, snapshot)).collect();
        shown.sort_unstable_by_key(|(id, ..)| *id);
        let given: Vec<_> = self.waiting.iter().map(|(id, (key, _, s))| (*id, *key, s.clone())).collect();
        assert_eq!(shown, given);
        drop((shown, given));
        for (id, (key, ..)) in &self.waiting {
            assert_eq!(self.scheduler.get(*key), Some(id));
        }
        for key in &self.gone {
            assert_eq!(self.scheduler.get(*key), None);
        }
        let snapshots = || self.waiting.values().map(|(_, _, snapshot)| snapshot);
        for constraints in &self.constraints {
            let with = snapshots().filter(|s| s.constraints() == Some(constraints)).count();
            let interned = DataArc::strong_count(constraints) - 1 - 2 * with;
            assert!(interned == 0 || interned == 2, "{interned} shares in {constraints:?}");
        }
        for list in &self.lists {
            let with = snapshots().filter(|s| s.cached_list() == Some(list)).count();
            assert_eq!(list.shares() - 1, 2 * with, "shares in {list:?}");
        }
    }
}

proptest! {
    #[test]
    fn what_comes_back_is_what_was_frozen_and_nothing_of_it_stays(
        first in classes(),
        ops in prop::collection::vec(op(), 1..120),
        by_keys in any::<bool>(),
    ) {
        let mut case = Case::new(first);
        case.apply(Op::Workers(vec![Worker::new(0), Worker { ranks: 2, ..Worker::new(1) }]));
        for op in ops {
            case.apply(op);
            case.check();
        }
        if by_keys {
            while !case.waiting.is_empty() {
                case.apply(Op::Cancel(0));
            }
        } else {
            for request in case.scheduler.take_all() {
                case.goes(request);
            }
            prop_assert!(case.waiting.is_empty());
        }
        case.check();
        drop(case.scheduler);
        for constraints in &case.constraints {
            prop_assert_eq!(DataArc::strong_count(constraints), 1);
        }
    }
}
