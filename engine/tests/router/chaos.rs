//! Clients and workers that die at random under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use http_body_util::{BodyExt, Full};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::app::Mock;
use crate::support::{OK, PATIENCE, Port, Served, ids, options, run_for, start, within};

/// How long it goes on: `TOLLGATE_CHAOS_SECONDS=60 cargo test -p tollgate --test router chaos` is a minute.
fn seconds() -> Duration {
    let asked = std::env::var("TOLLGATE_CHAOS_SECONDS").ok();
    Duration::from_secs_f64(asked.map_or(2.0, |text| text.parse().expect("a number of seconds")))
}

/// Numbers that are the same in every run (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// What became of requests so far: answered whole, refused or broken off, left by their client.
#[derive(Default)]
struct Fates([AtomicU64; 3]);

impl Fates {
    fn now(&self) -> [u64; 3] {
        self.0.each_ref().map(|count| count.load(Relaxed))
    }

    /// Whether the test goes on: until its time is over, and then, on a starved machine, until there was something of
    /// what it is about.
    fn go_on(&self, end: Instant) -> bool {
        let [whole, _, left] = self.now();
        Instant::now() < end || whole == 0 || left == 0
    }
}

/// One client after the other; most of them hang up early.
async fn clients(served: &Served, seed: u64, end: Instant, fates: &Fates) {
    let mut dice = Dice(seed);
    while fates.go_on(end) {
        let mut request = served.request("/v1/completions");
        if dice.below(2) == 0 {
            request = request.header("x-dynamo-meta-policy-class", "premium");
        }
        if dice.below(3) == 0 {
            request = request.header("x-dynamo-session-id", format!("s{}", dice.below(20)));
        }
        let first = dice.below(50) as u32 * 1000;
        let mut body = ids(first, 1 + dice.below(600) as u32);
        body["stream"] = json!(dice.below(2) == 0);
        body["max_tokens"] = json!(1 + dice.below(20));
        let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
        let patience = match Instant::now() < end {
            true => Duration::from_millis(1 + dice.below(60)),
            false => [Duration::from_millis(1), PATIENCE][dice.below(2) as usize],
        };
        let answer = async {
            let answer = served.client.request(request).await.ok()?;
            let status = answer.status().as_u16();
            answer.into_body().collect().await.ok().map(|_| status)
        };
        let fate = match timeout(patience, answer).await {
            Ok(Some(OK)) => 0,
            Ok(_) => 1,
            Err(_) => 2,
        };
        fates.0[fate].fetch_add(1, Relaxed);
    }
}

#[test]
fn after_clients_and_workers_have_died_at_random_every_gauge_is_zero() {
    let end = Instant::now() + seconds();
    let test = async {
        let defaults = options(&["--mock-prefill", "100000", "--mock-decode", "1000"]);
        let mut mocks = Vec::new();
        let policy = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/policies/premium_4x.yaml");
        let mut args =
            vec!["--policy".to_owned(), policy.to_owned(), "--health-interval".into(), "0.02".into()];
        for _ in 0..3 {
            let port = Port::any();
            let mock = Mock::on(port.listen().await.unwrap(), &defaults.mock, &defaults.requests).unwrap();
            args.extend(["--worker".into(), mock.url().to_string()]);
            mocks.push((port, Some(mock)));
        }
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        let served = Arc::new(start(&args).await);
        let fates = Arc::new(Fates::default());
        let mut all = JoinSet::new();
        for seed in 1..=24 {
            let (served, fates) = (served.clone(), fates.clone());
            all.spawn(async move { clients(&served, seed, end, &fates).await });
        }
        let mut dice = Dice(99);
        while fates.go_on(end) {
            sleep(Duration::from_millis(5 + dice.below(60))).await;
            let (port, mock) = &mut mocks[dice.below(3) as usize];
            *mock = match mock.take() {
                // Once the time is over they only come back.
                Some(mock) => Some(mock).filter(|_| Instant::now() >= end),
                // Connections of the old one may be in the way for a moment.
                None => {
                    let listener = port.listen().await.ok();
                    listener.map(|it| Mock::on(it, &defaults.mock, &defaults.requests).unwrap())
                }
            };
        }
        while let Some(ended) = all.join_next().await {
            ended.unwrap();
        }
        let picture = served.settles().await;
        for class in picture["models"]["m"]["classes"].as_array().unwrap() {
            let count = |name: &str| class[name].as_u64().unwrap();
            let refused: u64 =
                class["refused"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
            let ended =
                count("dispatched") + count("expired") + count("cancelled") + count("failed") + refused;
            assert_eq!(count("submitted"), ended, "{class:#}");
        }
        // And it goes on: when a worker is back, requests are served.
        let (port, mock) = &mut mocks[0];
        if mock.is_none() {
            let listener = port.listen_again().await;
            *mock = Some(Mock::on(listener, &defaults.mock, &defaults.requests).unwrap());
        }
        // Until the router has seen which ones are gone, it may still take a request to one of those.
        let again = async {
            loop {
                let answer = served.complete(ids(1, 8)).await;
                if answer.status == OK {
                    break;
                }
                assert!(matches!(answer.status, 502 | 503), "{answer:?}");
                sleep(Duration::from_millis(5)).await;
            }
        };
        within(PATIENCE, again).await.expect("requests are served again");
        eprintln!("whole, refused or broken, left: {:?}", fates.now());
    };
    run_for(seconds() + 3 * PATIENCE, test);
}
