//! Load changes of endpoints that exact lanes wait for: when the classes are told makes no difference to what is decided.

mod common;
#[path = "oracle/rng.rs"]
mod rng;

use std::time::Duration;

use common::*;
use rng::Rng;
use tollgate::policy::{ClassId, ClassSpec, Profile, QueuePolicy};
use tollgate::{Booking, Request, RequestKey, Scheduler, Seen, Timestamp, Worker};

/// Two schedulers: one tells every class of every change at once, the other one when the ring is about to look at it.
struct Twins {
    eager: Scheduler<u64>,
    lazy: Scheduler<u64>,
    bookings: Vec<[Booking; 2]>,
    keys: Vec<RequestKey>,
    requests: u64,
}

impl Twins {
    fn new(profile: &Profile, most: usize, few: usize) -> Self {
        let [mut eager, mut lazy] = [0; 2].map(|_| Scheduler::new(profile));
        eager.set_untold(0, usize::MAX);
        lazy.set_untold(most, few);
        Self { eager, lazy, bookings: Vec::new(), keys: Vec::new(), requests: 0 }
    }

    fn both(&mut self) -> [&mut Scheduler<u64>; 2] {
        [&mut self.eager, &mut self.lazy]
    }

    fn each(&mut self, f: impl FnMut(&mut Scheduler<u64>)) {
        self.both().into_iter().for_each(f);
    }

    fn dispatch(&mut self) -> bool {
        let [eager, lazy] = self.both().map(|s| s.dispatch());
        assert_eq!(
            eager.as_ref().map(|d| (d.request.class, d.request.payload)),
            lazy.as_ref().map(|d| (d.request.class, d.request.payload))
        );
        let (Some(eager), Some(lazy)) = (eager, lazy) else { return false };
        match (eager.outcome, lazy.outcome) {
            (Ok(a), Ok(b)) => {
                assert_eq!(a.endpoint(), b.endpoint());
                self.bookings.push([a, b]);
            }
            (a, b) => assert_eq!(a.err(), b.err()),
        }
        true
    }

    fn step(&mut self, world: &mut World) {
        let (rng, now) = (&mut world.rng, self.requests);
        match rng.below(100) {
            0..30 => {
                let request = world.request();
                let class = ClassId(world.rng.below(world.classes) as u32);
                let keys = self.both().map(|s| put(s, class, at(now, request.clone()), now));
                assert_eq!(keys[0], keys[1]);
                self.keys.push(keys[0]);
                self.requests += 1;
            }
            // Several change before anybody is asked, and some change back.
            30..65 => {
                for _ in 0..rng.pick(&[1, 2, 5, 100]) {
                    let endpoint = rng.below(self.eager.endpoints().count() as u64) as usize;
                    let tokens = rng.pick(&[0, 0, 60, 1_000]);
                    for s in self.both() {
                        let (index, _) = s.endpoints().nth(endpoint).expect("there are so many");
                        s.set_external(index, tokens);
                    }
                }
            }
            65..72 if !self.bookings.is_empty() => {
                let at = rng.below(self.bookings.len() as u64) as usize;
                let [a, b] = self.bookings.swap_remove(at);
                self.eager.release(a);
                self.lazy.release(b);
            }
            72..76 if !self.keys.is_empty() => {
                let key = self.keys.swap_remove(rng.below(self.keys.len() as u64) as usize);
                let [a, b] = self.both().map(|s| s.cancel(key).map(|picked| picked.payload));
                assert_eq!(a, b);
            }
            76..78 => {
                let now = Timestamp::from_nanos(now);
                let [a, b] = self.both().map(|s| s.expire(now).map(|e| (e.request.payload, e.cause)));
                assert_eq!(a, b);
            }
            78 if rng.percent(30) => {
                let workers = snapshot(now, world.workers());
                self.each(|s| s.set_workers(workers.clone()));
            }
            79 if rng.percent(30) => {
                let profile = world.profile();
                let [a, b] = self.both().map(|s| s.reload(&profile));
                assert_eq!(a, b);
            }
            _ => {
                let most = rng.pick(&[1, 1, 3, 1_000]);
                (0..most).take_while(|_| self.dispatch()).count();
            }
        }
        for class in (0..world.classes as u32).map(ClassId) {
            assert_eq!(self.eager.deficit(class), self.lazy.deficit(class), "{class:?}");
        }
    }
}

struct World {
    rng: Rng,
    classes: u64,
    workers: u64,
    ranks: u32,
    /// Distinct busy rules.
    rules: u64,
    quantum: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        Self {
            classes: rng.pick(&[2, 10, 64, 65, 130]),
            workers: rng.pick(&[3, 20, 80]),
            ranks: rng.pick(&[1, 1, 3]),
            rules: rng.within(1..=3),
            quantum: rng.pick(&[1, 100, 1_000]),
            rng,
        }
    }

    /// The same names, so that numbers stay, in one of several orders.
    fn profile(&mut self) -> Profile {
        let first = self.rng.below(self.classes);
        let class = |i| {
            let i = (first + i) % self.classes;
            let spec = gated(self.quantum + i % 3 * self.quantum, 50 * (i % self.rules));
            ClassSpec {
                order: [QueuePolicy::Fcfs, QueuePolicy::Wspt][(i % 2) as usize],
                ..named(&format!("c{i}"), spec)
            }
        };
        profile((0..self.classes).map(class).collect())
    }

    fn workers(&mut self) -> Vec<Worker> {
        let present = self.rng.within(self.workers.div_ceil(2)..=self.workers);
        let worker = |id| Worker { ranks: self.ranks, overloaded: self.rng.percent(5), ..Worker::new(id) };
        (0..present).map(worker).collect()
    }

    fn request(&mut self) -> Request {
        let rng = &mut self.rng;
        let deadline = rng.pick(&[None, None, Some(5), Some(100)]).map(Duration::from_nanos);
        let request = Request { deadline, ..tokens(rng.pick(&[40, 100, 100, 900])) };
        match rng.below(10) {
            0 => request,
            1 => constrained(Some(&[0, rng.below(self.workers)]), &[], request),
            n => {
                let rank = (n > 3).then(|| rng.below(self.ranks.into()) as u32);
                pinned(rng.below(self.workers), rank, request)
            }
        }
    }
}

#[test]
fn when_a_class_is_told_of_a_load_change_makes_no_difference() {
    let mut total = Seen::default();
    let (mut eager, mut lazy) = (0, 0);
    for seed in 0..300 {
        let mut world = World::new(seed);
        let (most, few) = world.rng.pick(&[(1, 0), (2, 0), (8, 0), (64, 0), (1, 2), (64, 2), (64, 5)]);
        // In the order of their names, so that the numbers are known.
        let class = |i| named(&format!("c{i}"), gated(100, 0));
        let profile = profile((0..world.classes).map(class).collect());
        let mut twins = Twins::new(&profile, most, few);
        let workers = snapshot(1, world.workers());
        twins.each(|s| s.set_workers(workers.clone()));
        let policy = world.profile();
        twins.each(|s| drop(s.reload(&policy)));
        for _ in 0..600 {
            twins.step(&mut world);
        }
        let seen = twins.lazy.seen();
        (eager, lazy) = (eager + twins.eager.seen().lanes, lazy + seen.lanes);
        total.at_carry += seen.at_carry;
        (0..2).for_each(|i| total.ahead[i] += seen.ahead[i]);
        total.taken_back += seen.taken_back;
        total.at_once += seen.at_once;
    }
    println!("{total:?}; {eager} lanes were told at once, {lazy} when asked");
    let often = [total.at_carry, total.ahead[0], total.ahead[1], total.taken_back, total.at_once];
    assert!(often.iter().all(|&times| times > 1_000), "the comparison has become weak: {total:?}");
    assert!(lazy < eager);
}

/// So few lanes that they would have been told at once, of a worker whose change was noted while there were more.
#[test]
fn lanes_of_a_worker_may_become_few_and_many_again_between_its_changes() {
    let mut s = scheduler(vec![gated(100, 0); 3], workers(1));
    load(&mut s, 0, 1);
    let request = || now(pinned(0, None, tokens(100)));
    let keys = [0, 1, 2].map(|class| put(&mut s, ClassId(class), request(), class));
    load(&mut s, 0, 0);
    assert!(s.cancel(keys[2]).is_some());
    load(&mut s, 0, 1);
    put(&mut s, ClassId(2), request(), 2);
    load(&mut s, 0, 0);
    assert_eq!(order(&mut s), [0, 1, 2]);
}
