//! Classes, priorities, limits and reloads.

use std::sync::Arc;

use axum::body::Bytes;
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::sync::{Semaphore, mpsc};

use crate::support::{Answer, Served, Worker, class, file, http, ids, run, start};

/// A worker that answers one request for each permit of the semaphore, and what it was sent.
async fn held() -> (Worker, Arc<Semaphore>, mpsc::UnboundedReceiver<Value>) {
    let go = Arc::new(Semaphore::new(0));
    let (send, heard) = mpsc::unbounded_channel();
    let hold = go.clone();
    let worker = Worker::start(move |mut stream, heard| {
        send.send(heard.json()).unwrap();
        let hold = hold.clone();
        async move {
            hold.acquire().await.unwrap().forget();
            drop(stream.write_all(http("200 OK", "", "{}").as_bytes()).await);
        }
    })
    .await;
    (worker, go, heard)
}

/// Sends a request, and leaves it to itself.
fn send(served: &Served, headers: &[(&str, &str)], body: &Value) -> tokio::task::JoinHandle<Answer> {
    let request =
        headers.iter().fold(served.request("/v1/completions"), |r, (name, value)| r.header(*name, *value));
    let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
    let client = served.client.clone();
    tokio::spawn(async move { Answer::of(client.request(request).await.unwrap()).await })
}

#[test]
fn the_class_is_in_a_header_whose_name_can_be_chosen() {
    run(async {
        let policy = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/policies/premium_4x.yaml");
        let args = ["--mock-workers", "1", "--policy", policy];
        let served = start(&args).await;
        let class = async |served: &Served, headers: &[(&str, &str)]| {
            served.complete_with(headers, ids(1, 8)).await.header("x-tollgate-class").to_owned()
        };
        let header = "x-dynamo-meta-policy-class";
        assert_eq!(class(&served, &[(header, "premium")]).await, "premium_any");
        assert_eq!(class(&served, &[(header, "  premium ")]).await, "premium_any");
        assert_eq!(class(&served, &[(header, "regular"), (header, "premium")]).await, "regular_any");
        for default in [&[][..], &[(header, "")], &[(header, "unheard-of")], &[("x-class", "premium")]] {
            assert_eq!(class(&served, default).await, "regular_any");
        }
        let served = start(&[&args[..], &["--class-header", "x-class"]].concat()).await;
        assert_eq!(class(&served, &[("x-class", "premium")]).await, "premium_any");
        assert_eq!(class(&served, &[(header, "premium")]).await, "regular_any");
    });
}

#[test]
fn strict_tiers_go_first_and_the_head_start_decides_inside_a_tier() {
    run(async {
        let (worker, go, mut heard) = held().await;
        let served = start(&["--worker", &worker.url(), "--prefill-busy-threshold", "0"]).await;
        let mut answers = vec![send(&served, &[], &ids(1, 8))];
        assert!(heard.recv().await.is_some());
        let hinted = |name: &str, hints: Value| json!({"model": "m", "prompt": "x", "user": name, "nvext": {"agent_hints": hints}});
        let requests = [
            ("plain", json!(null), vec![]),
            ("ahead", json!({"priority": 1000}), vec![]),
            ("behind", json!({"priority": -1000}), vec![]),
            ("tier", json!({"strict_priority": 1}), vec![]),
            ("tier, ahead", json!({"strict_priority": 1, "priority": 5000.5}), vec![]),
            ("by header", json!({"strict_priority": 1}), vec![("x-dynamo-request-strict-priority", "7")]),
            (
                "headers count more",
                json!({"strict_priority": 9, "priority": 0}),
                vec![("x-dynamo-request-strict-priority", "0"), ("x-dynamo-request-priority", "2000")],
            ),
        ];
        for (waiting, (name, hints, headers)) in requests.into_iter().enumerate() {
            answers.push(send(&served, &headers, &hinted(name, hints)));
            served.waiting(waiting as u64 + 1).await;
        }
        let mut order = Vec::new();
        for _ in 0..7 {
            go.add_permits(1);
            order.push(heard.recv().await.unwrap()["user"].as_str().unwrap().to_owned());
        }
        go.add_permits(1);
        assert_eq!(
            order,
            ["by header", "tier, ahead", "tier", "headers count more", "ahead", "plain", "behind"]
        );
        for answer in answers {
            assert_eq!(answer.await.unwrap().status, 200);
        }
        served.settles().await;
    });
}

#[test]
fn a_full_class_is_answered_with_529_and_the_limit() {
    run(async {
        let (worker, go, mut heard) = held().await;
        let policy = "policy_classes:\n  - {name: all, quantum: 1, prefill_busy_threshold: 0, request_queue_limit_per_worker: 2}\n";
        let policy = file("full", "policy.yaml", policy);
        let served = start(&["--worker", &worker.url(), "--policy", policy.to_str().unwrap()]).await;
        let mut answers = vec![send(&served, &[], &ids(1, 8))];
        assert!(heard.recv().await.is_some());
        for waiting in 1..=2 {
            answers.push(send(&served, &[], &ids(1, 8)));
            served.waiting(waiting).await;
        }
        let refused = served.complete(ids(1, 8)).await;
        assert_eq!(refused.error(), (529, "queue_limit_requests".into()));
        assert_eq!(
            refused.json()["error"]["details"],
            json!({"class": "all", "kind": "requests", "current": 2, "limit": 2})
        );
        assert_eq!(refused.header("retry-after"), "1");
        go.add_permits(3);
        for answer in answers {
            assert_eq!(answer.await.unwrap().status, 200);
        }
        served.settles().await;
    });
}

#[test]
fn who_waits_too_long_hears_504_and_who_hangs_up_waits_no_longer() {
    run(async {
        let (worker, go, mut heard) = held().await;
        let served = start(&["--worker", &worker.url(), "--prefill-busy-threshold", "0"]).await;
        let first = send(&served, &[], &ids(1, 8));
        assert!(heard.recv().await.is_some());
        let late = served.complete_with(&[("x-tollgate-max-wait-ms", "20")], ids(1, 8)).await;
        assert_eq!(late.error(), (504, "deadline_exceeded".into()));
        assert!(late.json()["error"]["details"]["waited_ms"].as_u64().unwrap() >= 20);
        let gone = send(&served, &[], &ids(1, 8));
        served.waiting(1).await;
        gone.abort();
        served.waiting(0).await;
        assert_eq!(class(&served.picture().await, "default")["cancelled"], 1);
        // One that is at the worker is broken off there as well.
        first.abort();
        served.settles().await;
        go.add_permits(1);
    });
}

#[test]
fn the_policy_is_read_again_and_one_with_faults_changes_nothing() {
    run(async {
        let text = |quantum: &str| format!("policy_classes:\n  - {{name: all, quantum: {quantum}}}\n");
        let policy = file("reload", "policy.yaml", &text("5"));
        let served = start(&["--mock-workers", "1", "--policy", policy.to_str().unwrap()]).await;
        let quantum = async || class(&served.picture().await, "all")["quantum"].as_u64().unwrap();
        assert_eq!(quantum().await, 5);
        file("reload", "policy.yaml", &text("6"));
        assert_eq!(served.post("/admin/reload", "").await.json(), json!({"models": 1, "warnings": []}));
        assert_eq!(quantum().await, 6);
        file("reload", "policy.yaml", &text("0"));
        let refused = served.post("/admin/reload", "").await;
        assert_eq!(refused.error(), (400, "policy_file".into()));
        let faults = refused.json()["error"]["details"]["faults"].as_array().unwrap().len();
        assert_eq!((faults, quantum().await), (1, 6));
        // What a signal does.
        assert!(served.router.reload().is_err());
        file("reload", "policy.yaml", &text("7"));
        assert_eq!(served.router.reload().unwrap().to_string(), "1 models");
        assert_eq!(quantum().await, 7);
        let without = start(&["--mock-workers", "1"]).await;
        assert_eq!(without.post("/admin/reload", "").await.error(), (400, "no_policy_file".into()));
    });
}
