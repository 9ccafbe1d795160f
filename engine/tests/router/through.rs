//! What goes through, and comes back.

use std::sync::Arc;

use axum::body::Bytes;
use http_body_util::{BodyExt, Full};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::sync::{Mutex, Notify, mpsc};

use crate::support::{Heard, OK, Worker, http, ids, raw, run, start};

#[test]
fn every_endpoint_answers_and_an_unknown_path_or_method_says_so() {
    run(async {
        let served = start(&["--mock-workers", "1", "--mock-decode", "10000"]).await;
        let completion =
            served.complete(json!({"model": "m", "prompt": "hello", "max_tokens": 3})).await.json();
        assert_eq!(completion["choices"][0]["text"], " token token token");
        assert_eq!(completion["usage"]["prompt_tokens"], 2);
        let chat = json!({"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1});
        let chat = served.post("/v1/chat/completions", chat.to_string()).await.json();
        assert_eq!(chat["choices"][0]["message"]["content"], " token");
        let embedded = served.post("/v1/embeddings", r#"{"model": "m", "input": ["a", "b"]}"#).await.json();
        assert_eq!(embedded["data"].as_array().unwrap().len(), 2);
        let models = served.get("/v1/models").await.json();
        assert_eq!(models["data"][0]["id"], "m");
        assert_eq!(served.get("/v1/models/m").await.json()["id"], "m");
        assert_eq!(served.get("/v1/models/other/one").await.error(), (404, "model_not_found".into()));
        assert_eq!(served.get("/healthz").await.json()["status"], "ok");
        assert!(served.get("/").await.body.starts_with(b"<!doctype html>"));
        assert_eq!(served.get("/v2/nothing").await.error(), (404, "not_found".into()));
        assert_eq!(served.get("/v1/completions").await.error(), (405, "method_not_allowed".into()));
        let metrics = served.get("/metrics").await;
        let metrics = std::str::from_utf8(&metrics.body).unwrap();
        let counted = r#"tollgate_router_requests_total{endpoint="/v1/completions",status="200"} 1"#;
        let dispatched = r#"tollgate_class_dispatched_tokens_total{pool="m",class="default"} 15"#;
        for line in [counted, dispatched, "tollgate_router_workers_up 1", "# EOF"] {
            assert!(metrics.lines().any(|l| l == line), "{line} is missing:\n{metrics}");
        }
        served.settles().await;
    });
}

#[test]
fn bodies_and_headers_go_through_unchanged_but_for_those_of_the_connection() {
    run(async {
        let (send, mut heard) = mpsc::unbounded_channel();
        let answer = http(
            "207 Multi-Status",
            "x-of-worker: a\r\nx-of-worker: b\r\nset-cookie: c=d\r\nkeep-alive: timeout=5\r\nconnection: x-hop\r\nx-hop: 1\r\n",
            "not even JSON \u{1F600}",
        );
        let worker = Worker::start(move |mut stream, heard| {
            send.send(heard).unwrap();
            let answer = answer.clone();
            async move { drop(stream.write_all(answer.as_bytes()).await) }
        })
        .await;
        let served = start(&["--worker", &worker.url()]).await;
        // Spaces, order, unknown fields and escapes are the client's business.
        let body = "{ \"prompt\" : \"h\\u00e9\",\n \"model\":\"m\", \"z\": 1.50, \"a\": [null] }";
        let request = served.request("/v1/completions?beta=1&q=%20");
        let request = request
            .header("authorization", "Bearer secret")
            .header("x-own", "1")
            .header("x-own", "2")
            .header("connection", "x-private, close")
            .header("x-private", "for the router")
            .header("te", "trailers")
            .header("x-dynamo-meta-policy-class", "premium")
            .header("content-type", "application/json; charset=utf-8");
        let answer = served.send(request.body(Full::new(body.into())).unwrap()).await;
        let heard: Heard = heard.recv().await.unwrap();
        assert_eq!(heard.head.lines().next().unwrap(), "POST /v1/completions?beta=1&q=%20 HTTP/1.1");
        assert_eq!(std::str::from_utf8(&heard.body).unwrap(), body);
        assert_eq!(heard.header("authorization"), ["Bearer secret"]);
        assert_eq!(heard.header("x-own"), ["1", "2"]);
        assert_eq!(heard.header("x-dynamo-meta-policy-class"), ["premium"]);
        assert_eq!(heard.header("content-type"), ["application/json; charset=utf-8"]);
        assert_eq!(heard.header("host"), [worker.url().trim_start_matches("http://")]);
        for gone in ["connection", "x-private", "te", "transfer-encoding"] {
            assert!(heard.header(gone).is_empty(), "{gone}: {heard:?}");
        }

        assert_eq!(answer.status, 207);
        assert_eq!(answer.body, "not even JSON \u{1F600}");
        let own: Vec<_> = answer.headers.get_all("x-of-worker").iter().collect();
        assert_eq!(own, ["a", "b"]);
        assert_eq!(answer.header("set-cookie"), "c=d");
        for gone in ["keep-alive", "x-hop"] {
            assert_eq!(answer.header(gone), "", "{answer:?}");
        }
        assert_eq!((answer.header("x-tollgate-worker"), answer.header("x-tollgate-class")), ("1", "default"));
        served.settles().await;
    });
}

#[test]
fn an_event_reaches_the_client_before_the_worker_says_the_next() {
    run(async {
        let next = Arc::new(Notify::new());
        let go = next.clone();
        let worker = Worker::start(move |mut stream, _| {
            let go = go.clone();
            async move {
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
                stream.write_all(head.as_bytes()).await.unwrap();
                for event in ["data: 1\n\n", "data: 2\n\n", "data: [DONE]\n\n"] {
                    go.notified().await;
                    stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).await.unwrap();
                }
                stream.write_all(b"0\r\n\r\n").await.unwrap();
            }
        })
        .await;
        let served = start(&["--worker", &worker.url()]).await;
        let body = json!({"model": "m", "prompt": "x", "stream": true}).to_string();
        let request = served.request("/v1/completions").body(Full::new(Bytes::from(body))).unwrap();
        let mut response = served.client.request(request).await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        // The head is here, and the prompt still counts as load.
        assert!(crate::support::sum(&served.picture().await, "endpoints", "/booked_tokens") > 0);
        for event in ["data: 1\n\n", "data: 2\n\n", "data: [DONE]\n\n"] {
            next.notify_one();
            let frame = response.body_mut().frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), event);
            served.when("prefilled", |p| crate::support::sum(p, "endpoints", "/booked_tokens") == 0).await;
        }
        assert!(response.body_mut().frame().await.is_none());
        served.settles().await;
    });
}

#[test]
fn a_long_answer_comes_whole_and_its_permit_goes_when_the_worker_is_done() {
    run(async {
        let long = "x".repeat(3 << 20);
        let worker = Worker::says(http("200 OK", "", &long)).await;
        let served = start(&["--worker", &worker.url()]).await;
        let answer = served.complete(ids(1, 10)).await;
        assert_eq!((answer.status, answer.body.len()), (OK, long.len()));
        served.settles().await;
    });
}

#[test]
fn draining_finishes_what_is_there_and_takes_nothing_new() {
    run(async {
        let go = Arc::new(Notify::new());
        let hold = go.clone();
        let worker = Worker::start(move |mut stream, _| {
            let hold = hold.clone();
            async move {
                hold.notified().await;
                drop(stream.write_all(http("200 OK", "", "{}").as_bytes()).await);
            }
        })
        .await;
        let served = start(&["--worker", &worker.url()]).await;
        let addr = served.router.addr();
        let client = served.client.clone();
        let request =
            served.request("/v1/completions").body(Full::new(ids(1, 10).to_string().into())).unwrap();
        let answer = tokio::spawn(async move { client.request(request).await.unwrap() });
        served.permits(1).await;
        let draining = tokio::spawn(served.router.drain());
        // Nobody listens any more.
        while tokio::net::TcpStream::connect(addr).await.is_ok() {
            tokio::task::yield_now().await;
        }
        assert!(!draining.is_finished());
        go.notify_one();
        let answer = answer.await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["connection"]),
            (OK, &"close".parse().unwrap())
        );
        draining.await.unwrap();
    });
}

#[test]
fn above_the_limit_connections_are_told_so_and_below_it_they_are_served_again() {
    run(async {
        let served = start(&["--mock-workers", "1", "--max-connections", "2"]).await;
        let held = Arc::new(Mutex::new(Vec::new()));
        for _ in 0..2 {
            let mut stream = tokio::net::TcpStream::connect(served.router.addr()).await.unwrap();
            // One that has been answered is certainly counted.
            stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
            stream.readable().await.unwrap();
            held.lock().await.push(stream);
        }
        let told = raw(&served, b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert!(told.starts_with("HTTP/1.1 503") && told.contains("too_many_connections"), "{told}");
        held.lock().await.clear();
        let again = async {
            while !raw(&served, b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
                .await
                .starts_with("HTTP/1.1 200")
            {
                tokio::task::yield_now().await;
            }
        };
        crate::support::within(crate::support::PATIENCE, again).await.unwrap();
    });
}
