//! The lock-free parts of the engine, each against what else there is for the job.
//!
//! * The ingress queue against crossbeam's `SegQueue` and channel and the channels of std and tokio: so many producers,
//!   one consumer, a message of one word. All are unbounded here, and all consumers poll, so that the queues are
//!   compared and not the ways to sleep. Ours allocates for each message, which the engine does anyway: the queue's link
//!   is inside the request's ticket.
//! * The ticket against tokio's oneshot.
//! * A look at the worker snapshot against a mutex and a read-write lock around an `Arc`.

mod common;

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::{Arc, Barrier, Mutex, RwLock, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use common::{group, sizes, workers};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use crossbeam_queue::SegQueue;
use tokio::sync::{mpsc as tokio_mpsc, oneshot};
use tollgate::sync::ingress::{self, Queued};
use tollgate::sync::snapshot::SnapshotCell;
use tollgate::sync::ticket::{Answerer, ticket};

/// Number of the producer in a message, above the number of the message.
const PRODUCER: u32 = 48;

/// Lets so many producers send `each` messages, and calls `receive` on this thread until all are there. `receive` hands
/// over what there is, and may find nothing. Returns the time from the start to the last message.
fn transfer<P: Send>(
    producers: usize,
    each: u64,
    producer: impl Fn() -> P,
    send: impl Fn(&P, u64) + Sync,
    mut receive: impl FnMut(&mut dyn FnMut(u64)),
) -> Duration {
    let gate = Barrier::new(producers + 1);
    let (mut received, mut last) = (0, vec![None; producers]);
    thread::scope(|scope| {
        for number in 0..producers as u64 {
            let (gate, send, producer) = (&gate, &send, producer());
            scope.spawn(move || {
                gate.wait();
                (0..each).for_each(|i| send(&producer, number << PRODUCER | i));
            });
        }
        gate.wait();
        let start = Instant::now();
        while received < each * producers as u64 {
            let before = received;
            receive(&mut |message| {
                received += 1;
                let (number, i) = ((message >> PRODUCER) as usize, message & ((1 << PRODUCER) - 1));
                // First in, first out per producer, nothing twice: with the count, nothing lost.
                assert!(
                    last[number].replace(i) < Some(i),
                    "message {i} of producer {number} is out of order"
                );
            });
            if received == before {
                thread::yield_now();
            }
        }
        start.elapsed()
    })
}

fn bench_queue(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    producers: usize,
    mut transfer: impl FnMut(u64) -> Duration,
) {
    group.bench_function(BenchmarkId::new(name, producers), |b| {
        b.iter_custom(|messages| {
            let each = messages.div_ceil(producers as u64);
            // As many as asked for, or a few more.
            transfer(each).mul_f64(messages as f64 / (each * producers as u64) as f64)
        });
    });
}

fn ingress_queue(c: &mut Criterion) {
    let mut group = group(c, "ingress queue/producers");
    group.throughput(Throughput::Elements(1));
    for producers in [1, 2, 4, 16] {
        bench_queue(&mut group, "tollgate", producers, |each| {
            let (producer, mut consumer) = ingress::queue(usize::MAX);
            transfer(
                producers,
                each,
                || producer.clone(),
                |producer, message| producer.push(Queued::new(message)).expect("it is open and has room"),
                |take| _ = consumer.drain(256, |message| take(*message)),
            )
        });
        bench_queue(&mut group, "crossbeam SegQueue", producers, |each| {
            let queue = SegQueue::new();
            let pop = |take: &mut dyn FnMut(u64)| std::iter::from_fn(|| queue.pop()).take(256).for_each(take);
            transfer(producers, each, || &queue, |queue, message| queue.push(message), pop)
        });
        bench_queue(&mut group, "crossbeam channel", producers, |each| {
            let (sender, receiver) = crossbeam_channel::unbounded();
            transfer(
                producers,
                each,
                || sender.clone(),
                |sender, message| sender.send(message).expect("it is open"),
                |take| receiver.try_iter().take(256).for_each(take),
            )
        });
        bench_queue(&mut group, "std mpsc", producers, |each| {
            let (sender, receiver) = mpsc::channel();
            transfer(
                producers,
                each,
                || sender.clone(),
                |sender, message| sender.send(message).expect("it is open"),
                |take| receiver.try_iter().take(256).for_each(take),
            )
        });
        bench_queue(&mut group, "tokio mpsc", producers, |each| {
            let (sender, mut receiver) = tokio_mpsc::unbounded_channel();
            transfer(
                producers,
                each,
                || sender.clone(),
                |sender, message| sender.send(message).expect("it is open"),
                |take| std::iter::from_fn(|| receiver.try_recv().ok()).take(256).for_each(take),
            )
        });
    }
    group.finish();
}

/// As large as a permit.
type Answer = [u64; 9];

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// One request's answer, both sides on one thread: what it costs without what a second core adds.
fn one_answer(c: &mut Criterion) {
    let mut group = group(c, "answer");
    let mut number = 0;
    group.bench_function("before the first poll/tollgate ticket", |b| {
        b.iter(|| {
            number += 1;
            let (mut asker, queued) = ticket::<(), Answer>(());
            Answerer::new(queued).answer([number; 9]).expect("the asker is there");
            let (answer, ()) = asker.try_take().expect("it has its answer");
            assert_eq!(answer[8], number);
        });
    });
    group.bench_function("before the first poll/tokio oneshot", |b| {
        b.iter(|| {
            number += 1;
            let (sender, mut receiver) = oneshot::channel::<Answer>();
            sender.send([number; 9]).expect("the receiver is there");
            let answer = receiver.try_recv().expect("it has its answer");
            assert_eq!(answer[8], number);
        });
    });
    group.bench_function("after it/tollgate ticket", |b| {
        let mut cx = Context::from_waker(Waker::noop());
        b.iter(|| {
            number += 1;
            let (mut asker, queued) = ticket::<(), Answer>(());
            assert!(asker.poll(&mut cx).is_pending());
            Answerer::new(queued).answer([number; 9]).expect("the asker is there");
            let Poll::Ready((answer, ())) = asker.poll(&mut cx) else { panic!("it has its answer") };
            assert_eq!(answer[8], number);
        });
    });
    group.bench_function("after it/tokio oneshot", |b| {
        b.iter(|| {
            number += 1;
            let (sender, mut receiver) = oneshot::channel::<Answer>();
            assert!(poll(&mut receiver).is_pending());
            sender.send([number; 9]).expect("the receiver is there");
            let Poll::Ready(Ok(answer)) = poll(&mut receiver) else { panic!("it has its answer") };
            assert_eq!(answer[8], number);
        });
    });
    group.finish();
}

fn worker_snapshot(c: &mut Criterion) {
    let mut group = group(c, "worker snapshot");
    for count in sizes([8, 10_000], 8) {
        let snapshot = Arc::new(workers(1, count));
        let cell = SnapshotCell::new(snapshot.clone());
        let mut reader = cell.reader();
        group.bench_function(BenchmarkId::new("is there a newer one/tollgate", count), |b| {
            b.iter(|| assert!(!black_box(&mut reader).has_newer()));
        });
        group.bench_function(BenchmarkId::new("look/tollgate", count), |b| {
            b.iter(|| assert_eq!(cell.with(|snapshot| snapshot.version()), 1));
        });
        let (mutex, lock) = (Mutex::new(snapshot.clone()), RwLock::new(snapshot.clone()));
        group.bench_function(BenchmarkId::new("look/std mutex", count), |b| {
            b.iter(|| assert_eq!(mutex.lock().expect("not poisoned").version(), 1));
        });
        group.bench_function(BenchmarkId::new("look/std read-write lock", count), |b| {
            b.iter(|| assert_eq!(lock.read().expect("not poisoned").version(), 1));
        });
        let mut next = workers(1, count).workers().to_vec();
        group.bench_function(BenchmarkId::new("publish and take/tollgate", count), |b| {
            let mut version = cell.load().version();
            b.iter(|| {
                version += 1;
                next[0].incarnation = version;
                let snapshot = tollgate::WorkerSnapshot::new(version, next.clone()).expect("valid workers");
                cell.replace_if(snapshot.into(), |now| now.version() < version).expect("it is newer");
                assert_eq!(reader.newer().expect("there is a newer one").version(), version);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, ingress_queue, one_answer, worker_snapshot);
criterion_main!(benches);
