//! What the machine itself takes for the steps that everything else is made of, to judge how near to it the engine is:
//! docs/performance.md does.

mod common;

use std::hint::{black_box, spin_loop};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use common::{group, mix, sizes};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use crossbeam_utils::CachePadded;

/// Lets two threads answer each other `rounds` times, this one first; returns the time of one way.
fn one_way(rounds: u64, say: impl Fn(u64, &[Thread; 2]) + Sync, hear: impl Fn(u64) + Sync) -> Duration {
    let (gate, threads) = (Barrier::new(2), std::sync::OnceLock::new());
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            gate.wait();
            let threads = threads.wait();
            for round in 0..rounds {
                hear(2 * round + 1);
                say(2 * round + 2, threads);
            }
        });
        let both = [other.thread().clone(), thread::current()];
        let threads = threads.get_or_init(|| both);
        gate.wait();
        let start = Instant::now();
        for round in 0..rounds {
            say(2 * round + 1, threads);
            hear(2 * round + 2);
        }
        start.elapsed() / 2
    })
}

fn between_threads(c: &mut Criterion) {
    let mut group = group(c, "from one thread to another");
    let word = CachePadded::new(AtomicU64::new(0));
    group.bench_function("a cache line, both spin", |b| {
        b.iter_custom(|rounds| {
            word.store(0, Ordering::Relaxed);
            let hear = |number| {
                while word.load(Ordering::Acquire) != number {
                    spin_loop();
                }
            };
            one_way(rounds, |number, _| word.store(number, Ordering::Release), hear)
        });
    });
    group.bench_function("unpark, the other is parked", |b| {
        b.iter_custom(|rounds| {
            word.store(0, Ordering::Relaxed);
            let say = |number: u64, threads: &[Thread; 2]| {
                word.store(number, Ordering::Release);
                threads[(number + 1) as usize % 2].unpark();
            };
            let hear = |number| {
                while word.load(Ordering::Acquire) != number {
                    thread::park();
                }
            };
            one_way(rounds, say, hear)
        });
    });
    group.finish();
}

fn atomics(c: &mut Criterion) {
    let mut group = group(c, "one operation");
    let word = CachePadded::new(AtomicU64::new(0));
    group.bench_function("add", |b| b.iter(|| word.fetch_add(1, Ordering::Relaxed)));
    group.bench_function("compare and exchange", |b| {
        let mut now = word.load(Ordering::Relaxed);
        b.iter(|| {
            let next = now.wrapping_add(1);
            word.compare_exchange(now, next, Ordering::AcqRel, Ordering::Relaxed)
                .expect("nobody else writes");
            now = next;
        });
    });
    group.bench_function("store and full fence", |b| {
        b.iter(|| {
            word.store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        });
    });
    group.bench_function("add, while another thread does the same", |b| {
        b.iter_custom(|adds| {
            let (gate, over) = (Barrier::new(2), AtomicBool::new(false));
            thread::scope(|scope| {
                scope.spawn(|| {
                    gate.wait();
                    while !over.load(Ordering::Relaxed) {
                        word.fetch_add(1, Ordering::Relaxed);
                    }
                });
                gate.wait();
                let start = Instant::now();
                (0..adds).for_each(|_| _ = word.fetch_add(1, Ordering::Relaxed));
                let took = start.elapsed();
                over.store(true, Ordering::Relaxed);
                took
            })
        });
    });
    group.bench_function("reading the clock", |b| b.iter(Instant::now));
    group.bench_function("allocating and freeing 256 bytes", |b| b.iter(|| black_box(Box::new([0u64; 32]))));
    group.finish();
}

/// Reads that each depend on the one before, so that they cannot overlap.
fn memory(c: &mut Criterion) {
    let mut group = group(c, "one read of memory/KiB");
    for kib in sizes([16, 512, 4_096, 16_384, 262_144], 16) {
        // One word of each cache line; a cycle through all of them in a random order.
        let mut lines = vec![[0u64; 8]; kib * 16];
        let mut order: Vec<_> = (0..lines.len()).collect();
        order.sort_unstable_by_key(|&line| mix(line));
        for (at, &line) in order.iter().enumerate() {
            lines[line][0] = order[(at + 1) % order.len()] as u64;
        }
        group.bench_function(BenchmarkId::from_parameter(kib), |b| {
            let mut at = 0;
            b.iter(|| at = lines[at as usize][0]);
            black_box(at);
        });
    }
    group.finish();
}

criterion_group!(benches, between_threads, atomics, memory);
criterion_main!(benches);
