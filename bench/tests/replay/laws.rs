//! What holds for every traffic: nobody is lost, nobody waits who could go, equal seeds give equal results.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::Duration;
use tollgate::policy::{ClassSpec, PolicySpec, Profile, QueuePolicy};
use tollgate_bench::replay::{Arrival, Event, Fleet, StepTime, WorkerModel, simulate};

use super::setup;

/// Classes with every kind of rule, at random.
fn profile(rng: &mut ChaCha8Rng) -> Profile {
    let classes = (0..rng.random_range(1..5)).map(|i| {
        let mut class = ClassSpec::explicit(format!("c{i}"), rng.random_range(1..5_000));
        class.order = [QueuePolicy::Fcfs, QueuePolicy::Wspt, QueuePolicy::AgedWspt][rng.random_range(0..3)];
        if class.order == QueuePolicy::AgedWspt {
            class.aging_tokens_per_second = Some(1_000.0);
        }
        if rng.random() {
            class.busy.threshold_tokens = Some(rng.random_range(0..3_000));
            if rng.random() {
                class.busy.worker_ratio = Some(rng.random_range(0.05..1.0));
            }
        }
        if rng.random() {
            class.limits.requests = Some(rng.random_range(0..6));
        }
        if rng.random_range(0..3) == 0 {
            class.max_queue_time = Some(Duration::from_millis(rng.random_range(1..2_000)));
        }
        class
    });
    Profile::new(PolicySpec { classes: classes.collect(), ..PolicySpec::default() }).unwrap()
}

fn arrivals(rng: &mut ChaCha8Rng) -> Vec<Arrival> {
    let (mut at, pace) = (0, rng.random_range(1_000..30_000_000u64));
    (0..400)
        .map(|_| {
            at += rng.random_range(0..pace);
            let input = rng.random_range(0..4_000);
            let start = rng.random_range(0..6u64) * 100;
            Arrival {
                at,
                input,
                output: rng.random_range(0..20),
                cached: rng.random_range(0..100),
                blocks: if rng.random() {
                    (start..start + input / 512 + 1).collect()
                } else {
                    Box::default()
                },
                class: Some(format!("c{}", rng.random_range(0..5)).into()),
                priority: rng.random_range(0..2),
                jump: rng.random_range(-1.0..2.0),
                // One of them is nobody's.
                pin: (rng.random_range(0..6) == 0).then(|| rng.random_range(0..5)),
                deadline: (rng.random_range(0..8) == 0)
                    .then(|| Duration::from_millis(rng.random_range(0..500))),
                ..Arrival::default()
            }
        })
        .collect()
}

#[test]
fn everybody_ends_once_and_nobody_waits_who_could_go() {
    let (mut refused, mut missed, mut failed, mut cached) = (0, 0, 0, 0.0);
    for seed in 0..200 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let fleet = Fleet {
            workers: 4,
            model: WorkerModel {
                slots: rng.random_range(1..5),
                step_tokens: rng.random_range(5..2_000),
                time: StepTime { base: 1e6, prefill: 20_000.0, decode: 10_000.0 },
            },
            permits: rng.random::<bool>().then(|| rng.random_range(1..8)),
            cache_blocks: rng.random_range(0..20),
            block_tokens: 512,
        };
        let setup = setup(profile(&mut rng), fleet);
        let arrivals = arrivals(&mut rng);
        let mut ended = vec![0; arrivals.len()];
        let run = |observe: &mut dyn FnMut(u64, Event)| {
            simulate(&setup, arrivals.iter().cloned().map(Ok), observe).unwrap()
        };
        let outcome = run(&mut |_, event| {
            if let Event::Done(place) | Event::Lost(place) = event {
                ended[place as usize] += 1;
            }
        });
        assert!(ended.iter().all(|n| *n == 1), "seed {seed}: {ended:?}");
        let all = &outcome.all;
        assert_eq!(
            (all.arrived, all.ended(), all.stuck),
            (arrivals.len() as u64, all.arrived, 0),
            "seed {seed}"
        );
        assert_eq!(outcome.unconserved, 0, "seed {seed}");
        let classes = outcome.classes.iter().map(|class| &class.counts);
        assert_eq!(classes.clone().map(|c| c.arrived).sum::<u64>(), all.arrived);
        assert_eq!(classes.map(|c| c.served).sum::<u64>(), all.served);
        let finished: u64 = outcome.workers.iter().map(|w| w.work.finished).sum();
        assert_eq!(finished, all.completed);
        // Bit by bit the same.
        assert_eq!(format!("{:?}", run(&mut |_, _| {})), format!("{outcome:?}"), "seed {seed}");
        (refused, missed, failed) = (refused + all.refused(), missed + all.missed(), failed + all.failed);
        cached += outcome.hit_rate();
    }
    assert!(refused > 1_000 && missed > 1_000 && failed > 1_000, "{refused} {missed} {failed}");
    assert!(cached > 5.0, "{cached}");
}

#[test]
fn a_ratio_keeps_workers_idle_while_requests_wait() {
    // With 64 workers and a ratio of 0.1 the pool is busy as soon as seven are: 7 of 64 are 11 %.
    let mut class = ClassSpec::explicit("all", 1_000);
    class.busy.threshold_tokens = Some(0);
    class.busy.worker_ratio = Some(0.1);
    let profile = Profile::new(PolicySpec { classes: vec![class], ..PolicySpec::default() }).unwrap();
    let setup = setup(profile, super::one_by_one(64));
    let arrivals = (0..6_400).map(|_| Ok(Arrival { input: 1_000, output: 1, ..Arrival::default() }));
    let outcome = simulate(&setup, arrivals, |_, _| {}).unwrap();
    assert_eq!(outcome.unconserved, 0, "as the policy wants it");
    assert!((outcome.busy_while_waiting() - 7.0 / 64.0).abs() < 1e-3, "{}", outcome.busy_while_waiting());
    assert!((outcome.utilisation() - 7.0 / 64.0).abs() < 1e-3, "{}", outcome.utilisation());
}

#[test]
fn classes_with_a_backlog_get_what_their_quanta_promise() {
    let classes = vec![ClassSpec::explicit("premium", 4_000), ClassSpec::explicit("regular", 1_000)];
    let profile = Profile::new(PolicySpec { classes, ..PolicySpec::default() }).unwrap();
    let setup = setup(profile, super::one_by_one(2));
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let arrivals = (0..4_000).map(|i| {
        let class = if i % 2 == 0 { "premium" } else { "regular" };
        Ok(Arrival {
            input: rng.random_range(1..1_000),
            output: 1,
            class: Some(class.into()),
            ..Arrival::default()
        })
    });
    let outcome = simulate(&setup, arrivals, |_, _| {}).unwrap();
    for class in &outcome.classes {
        let share = class.share().unwrap();
        assert!((share - 1.0).abs() < 0.01, "{}: {share}", class.name);
    }
    // Premium is through when a quarter of the service of regular is done.
    let premium = outcome.classes[0].backlogged as f64 / outcome.classes[1].backlogged as f64;
    assert!((premium - 0.625).abs() < 0.02, "{premium}");
}

#[test]
fn the_share_experiment_ends_as_with_real_threads() {
    // 320 + 320 requests of 512 tokens, four slots; the first four find the worker idle.
    let policy = concat!(env!("CARGO_MANIFEST_DIR"), "/policies/premium_4x.yaml");
    let profile = (**tollgate::policy::PolicyFile::read(policy).unwrap().root().unwrap()).clone();
    let time = StepTime { base: 3e6, prefill: 0.0, decode: 0.0 };
    let model = WorkerModel { slots: 4, step_tokens: 2_048, time };
    let setup = setup(profile, Fleet { model, permits: None, ..super::one_by_one(1) });
    let arrivals = (0..640).map(|i| {
        let class = if i % 2 == 0 { "premium" } else { "regular" };
        let at = i.min(4) * 100_000;
        Ok(Arrival { at, input: 512, output: 1, class: Some(class.into()), ..Arrival::default() })
    });
    let mut done = Vec::new();
    let outcome = simulate(&setup, arrivals, |_, event| {
        if let Event::Done(place) = event {
            done.push(place % 2 == 0);
        }
    });
    assert_eq!(outcome.unwrap().all.completed, 640);
    let premium = done[..320].iter().filter(|premium| **premium).count();
    let last = done.iter().rposition(|premium| *premium).unwrap();
    assert_eq!((premium, 639 - last), (255, 239));
}

#[test]
fn a_prompt_that_a_worker_has_seen_goes_there_and_is_not_computed_again() {
    let profile = Profile::synthetic(None, QueuePolicy::Fcfs);
    let fleet = Fleet { cache_blocks: 4, block_tokens: 512, ..super::one_by_one(3) };
    let setup = setup(profile, fleet);
    let prompt = |at, blocks: &[u64]| {
        let input = blocks.len() as u64 * 512;
        Ok(Arrival { at, input, output: 1, blocks: blocks.into(), ..Arrival::default() })
    };
    let second = 1_000_000_000;
    let arrivals = vec![
        prompt(0, &[1, 2, 3]),
        // Another beginning, at the same time: another worker.
        prompt(0, &[7, 2, 3, 4]),
        // The first two blocks are those of the first request.
        prompt(second, &[1, 2, 9]),
        prompt(2 * second, &[7, 2, 3, 4]),
    ];
    let (mut sent, mut first_token) = (vec![u32::MAX; 4], vec![0; 4]);
    let outcome = simulate(&setup, arrivals, |now, event| match event {
        Event::Dispatched(place, worker) => sent[place as usize] = worker,
        Event::FirstToken(place) => first_token[place as usize] = now,
        _ => {}
    });
    assert_eq!(sent, [0, 1, 0, 1]);
    // A microsecond per token; of a prompt that is cached whole, one token is computed.
    let micros = 1_000;
    assert_eq!(first_token, [1_536 * micros, 2_048 * micros, second + 512 * micros, 2 * second + micros]);
    let hits: Vec<_> = outcome.unwrap().workers.iter().map(|w| (w.prompts, w.hits)).collect();
    assert_eq!(hits, [(3_072, 1_024), (4_096, 2_048), (0, 0)]);
}
