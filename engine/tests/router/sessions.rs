//! Sessions stay on their worker.

use crate::app::Mock;
use crate::support::{Served, ids, options, run, start};

const HEADER: &str = "x-dynamo-session-id";

async fn worker(served: &Served, session: &str, first: u32) -> String {
    served.complete_with(&[(HEADER, session)], ids(first, 8)).await.header("x-tollgate-worker").to_owned()
}

const THREE: [&str; 4] = ["--mock-workers", "3", "--mock-prefill", "1000000"];

#[test]
fn a_session_stays_where_it_was_although_others_have_less_to_do() {
    run(async {
        let served = start(&THREE).await;
        let client = served.client.clone();
        // Workers 2 and 3 get a session while worker 1 has load.
        let slow = ids(1, 1_000_000).to_string();
        let request = |headers: &[(&str, &str)], body: &str| {
            let request = served.request("/v1/completions");
            let request = headers.iter().fold(request, |r, (name, value)| r.header(*name, *value));
            request.body(http_body_util::Full::new(body.to_owned().into())).unwrap()
        };
        let first = tokio::spawn({
            let request = request(&[], &slow);
            async move { client.request(request).await }
        });
        served.permits(1).await;
        assert_eq!(worker(&served, "a", 1).await, "2");
        first.abort();
        served.settles().await;
        // Without a session the first worker is as good as any.
        for i in 0..3 {
            assert_eq!(worker(&served, "", 100 * i + 1_000).await, "1");
            assert_eq!(worker(&served, "a", 100 * i + 5_000).await, "2");
        }
        assert_eq!(served.picture().await["models"]["m"]["sessions"], 1);
    });
}

#[test]
fn without_time_to_live_there_are_no_sessions_and_a_long_name_is_refused() {
    run(async {
        let served = start(&[&THREE[..], &["--session-ttl", "0"]].concat()).await;
        worker(&served, "a", 1).await;
        assert_eq!(served.picture().await["models"]["m"]["sessions"], 0);
        let served = start(&THREE).await;
        let long = "s".repeat(257);
        let refused = served.complete_with(&[(HEADER, &long)], ids(1, 8)).await;
        assert_eq!(refused.error(), (400, "invalid_request".into()));
        assert_eq!(refused.json()["error"]["param"], HEADER);
    });
}

#[test]
fn a_session_whose_worker_is_gone_finds_another_one_and_stays_there() {
    run(async {
        let defaults = options(&[]);
        let mut mocks = Vec::new();
        for _ in 0..2 {
            mocks.push(Mock::start(&defaults.mock, &defaults.requests).await.unwrap());
        }
        let urls: Vec<_> = mocks.iter().map(|mock| mock.url().to_string()).collect();
        let served = start(&["--worker", &urls[0], "--worker", &urls[1], "--health-interval", "30"]).await;
        assert_eq!(worker(&served, "a", 1).await, "1");
        let first = served.picture().await["workers"][0]["url"].as_str().unwrap().to_owned();
        mocks.retain(|mock| mock.url().to_string() != first);
        let answer = served.insist_with(&[(HEADER, "a")], ids(1_000, 8)).await;
        assert_eq!(answer.header("x-tollgate-worker"), "2");
        for i in 1..3 {
            assert_eq!(worker(&served, "a", 100 * i + 1_000).await, "2");
        }
    });
}
