//! Workers that come, go, and have too much to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::AsyncWriteExt;

use crate::app::Mock;
use crate::support::{OK, Port, Worker, file, http, ids, options, run, start, try_start};

#[test]
fn the_file_of_workers_is_watched_and_a_fault_in_it_changes_nothing() {
    run(async {
        let (one, two) =
            (Worker::says(http("200 OK", "", "one")).await, Worker::says(http("200 OK", "", "two")).await);
        let list = |workers: &[&Worker]| {
            let lines = workers.iter().map(|worker| format!("  - url: {}\n", worker.url()));
            format!("workers:\n{}", lines.collect::<String>())
        };
        let path = file("watched", "workers.yaml", &list(&[&one]));
        let served = start(&["--workers-file", path.to_str().unwrap()]).await;
        assert_eq!(served.complete(ids(1, 8)).await.body, "one");
        file("watched", "workers.yaml", "workers: nonsense");
        file("watched", "workers.yaml", &list(&[&one, &two]));
        let up = |n| {
            move |p: &serde_json::Value| {
                p["workers"].as_array().unwrap().iter().filter(|w| w["up"] == true).count() == n
            }
        };
        served.when("two", up(2)).await;
        file("watched", "workers.yaml", &list(&[&two]));
        served.when("one", up(1)).await;
        assert_eq!(served.complete(ids(1, 8)).await.body, "two");
        file("watched", "workers.yaml", "workers: []\n");
        served.when("none", up(0)).await;
        assert_eq!(served.complete(ids(1, 8)).await.error(), (503, "no_endpoint".into()));
        assert_eq!(served.get("/healthz").await.status, 503);
    });
}

#[test]
fn what_makes_no_list_of_workers_is_named() {
    run(async {
        let said = async |args: &[&str]| try_start(args).await.err().unwrap().to_string();
        assert!(said(&[]).await.contains("--worker"));
        let url = "http://127.0.0.1:9";
        assert!(said(&["--worker", url, "--worker", url]).await.contains("given twice"));
        for (wrong, needle) in [
            ("workers:\n  - url: http://a:1\n  - url: ftp://b\n", "workers[1].url"),
            ("workers:\n  - url: http://a:1\n  - url: http://a:1/\n", "listed twice"),
            ("workers:\n  - {url: http://a:1, colour: red}\n", "colour"),
            ("workers:\n  - {url: https://a:1}\n", "https"),
        ] {
            let path = file("wrong_list", "workers.yaml", wrong);
            let said = said(&["--workers-file", path.to_str().unwrap()]).await;
            assert!(said.contains("workers.yaml: ") && said.contains(needle), "{said}");
        }
        let wrong = file("wrong_list", "policy.yaml", "policy_classes: []\n");
        assert!(
            said(&["--mock-workers", "1", "--policy", wrong.to_str().unwrap()]).await.contains("policy.yaml")
        );
    });
}

#[test]
fn a_worker_that_is_gone_is_left_out_at_once_and_found_again() {
    run(async {
        let defaults = options(&[]);
        let mut args = vec!["--health-interval".to_owned(), "30".into()];
        let mut mocks = Vec::new();
        for _ in 0..2 {
            let mock = Mock::start(&defaults.mock, &defaults.requests).await.unwrap();
            args.extend(["--worker".into(), mock.url().to_string()]);
            mocks.push(mock);
        }
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        let served = start(&args).await;
        let url = served.picture().await["workers"][0]["url"].as_str().unwrap().to_owned();
        mocks.retain(|mock| mock.url().to_string() != url);
        // The health checks are far away: requests find out, and nobody hears of it.
        let mut mine = Vec::new();
        for i in 0..4 {
            let answer = served.insist_with(&[], ids(i * 100, 8)).await;
            assert_eq!(answer.status, OK, "{answer:?}");
            mine.push(answer.header("x-tollgate-worker").to_owned());
        }
        assert_eq!(mine, ["2"; 4]);
        assert_eq!(served.picture().await["workers"][0]["up"], false);
        served.settles().await;
    });
}

#[test]
fn a_worker_that_comes_back_is_a_new_process_with_an_empty_cache() {
    run(async {
        let mut defaults = options(&["--mock-prefill", "1000000", "--mock-cache", "16384"]);
        defaults.mock.mock_decode = 1e6;
        let port = Port::any();
        let mock = Mock::on(port.listen().await.unwrap(), &defaults.mock, &defaults.requests).unwrap();
        let served = start(&["--worker", &mock.url().to_string()]).await;
        let paid = async || {
            let before =
                served.picture().await["models"]["m"]["classes"][0]["dispatched_tokens"].as_u64().unwrap();
            assert_eq!(served.complete(ids(1, 1600)).await.status, OK);
            served.picture().await["models"]["m"]["classes"][0]["dispatched_tokens"].as_u64().unwrap()
                - before
        };
        assert_eq!((paid().await, paid().await), (1600, 1));
        drop(mock);
        served.when("down", |p| p["workers"][0]["up"] == false).await;
        assert_eq!(served.complete(ids(1, 8)).await.error(), (503, "no_endpoint".into()));
        let again = Mock::on(port.listen_again().await, &defaults.mock, &defaults.requests).unwrap();
        let picture = served.when("up", |p| p["workers"][0]["up"] == true).await;
        assert_eq!(picture["workers"][0]["incarnation"], 1);
        assert_eq!(paid().await, 1600);
        drop(again);
    });
}

#[test]
fn a_worker_that_is_overloaded_gets_a_pause_and_the_client_its_answer() {
    run(async {
        let relieved = Arc::new(AtomicBool::new(false));
        let well = relieved.clone();
        let worker = Worker::start(move |mut stream, _| {
            let answer = match well.load(Ordering::Relaxed) {
                true => http("200 OK", "", "served"),
                false => http("503 Service Unavailable", "retry-after: 1\r\n", "too much"),
            };
            async move { drop(stream.write_all(answer.as_bytes()).await) }
        })
        .await;
        let served = start(&["--worker", &worker.url()]).await;
        let answer = served.complete(ids(1, 8)).await;
        assert_eq!((answer.status, &answer.body[..]), (503, &b"too much"[..]));
        served.when("overloaded", |p| p["workers"][0]["overloaded"] == true).await;
        let refused = served.complete(ids(1, 8)).await;
        assert_eq!(refused.error(), (503, "all_workers_overloaded".into()));
        assert_eq!(refused.header("retry-after"), "1");
        relieved.store(true, Ordering::Relaxed);
        served.when("relieved", |p| p["workers"][0]["overloaded"] == false).await;
        assert_eq!(served.complete(ids(1, 8)).await.body, "served");
        served.settles().await;
    });
}
