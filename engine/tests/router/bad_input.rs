//! Clients and workers that do not keep to the rules: the client gets the right error, and nothing stays booked.

use std::time::Duration;

use http_body_util::Full;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{OK, Worker, http, ids, raw, run, start};

const ONE: [&str; 2] = ["--mock-workers", "1"];

#[test]
fn a_body_that_is_no_request_is_refused_with_the_place() {
    run(async {
        let served = start(&ONE).await;
        let completions = "/v1/completions";
        let chat = "/v1/chat/completions";
        let cases: &[(&str, &[u8], &str)] = &[
            (completions, b"", ""),
            (completions, b"{\"model\": \"m\", \"prompt\": ", ""),
            (completions, b"null", ""),
            (completions, b"[]", ""),
            (completions, b"{\"model\": \"m\", \"prompt\": \"\xff\xfe\"}", ""),
            (completions, b"{\"model\": \"m\", \"prompt\": \"x\"} more", ""),
            (completions, b"{\"prompt\": \"x\"}", "model"),
            (completions, b"{\"model\": \"\", \"prompt\": \"x\"}", "model"),
            (completions, b"{\"model\": 5, \"prompt\": \"x\"}", "model"),
            (completions, b"{\"model\": \"m\"}", "prompt"),
            (completions, b"{\"model\": \"m\", \"prompt\": null}", "prompt"),
            (completions, b"{\"model\": \"m\", \"prompt\": \"\"}", "prompt"),
            (completions, b"{\"model\": \"m\", \"prompt\": []}", "prompt"),
            (completions, b"{\"model\": \"m\", \"prompt\": {}}", "prompt"),
            (completions, b"{\"model\": \"m\", \"prompt\": [1, \"x\"]}", "prompt[1]"),
            (completions, b"{\"model\": \"m\", \"prompt\": [-1]}", "prompt[0]"),
            (completions, b"{\"model\": \"m\", \"prompt\": [4294967296]}", "prompt[0]"),
            (completions, b"{\"model\": \"m\", \"prompt\": [1.5]}", "prompt[0]"),
            (completions, b"{\"model\": \"m\", \"prompt\": \"x\", \"stream\": \"yes\"}", "stream"),
            (completions, b"{\"model\": \"m\", \"prompt\": \"x\", \"max_tokens\": -1}", "max_tokens"),
            (chat, b"{\"model\": \"m\", \"prompt\": \"x\"}", "messages"),
            (chat, b"{\"model\": \"m\", \"messages\": []}", "messages"),
            (chat, b"{\"model\": \"m\", \"messages\": [{\"content\": \"x\"}]}", "messages[0]"),
            (
                chat,
                b"{\"model\": \"m\", \"messages\": [{\"role\": \"user\", \"content\": 5}]}",
                "messages[0].content",
            ),
            ("/v1/embeddings", b"{\"model\": \"m\"}", "input"),
        ];
        for (path, body, param) in cases {
            let answer = served.post(path, body.to_vec()).await;
            let shown = String::from_utf8_lossy(body);
            assert_eq!(answer.error(), (400, "invalid_request".into()), "{shown}");
            let named = answer.json()["error"]["param"].as_str().unwrap_or("").to_owned();
            assert_eq!(named, *param, "{shown}: {answer:?}");
        }
        let deep = format!("{{\"model\": \"m\", \"prompt\": {}", "[".repeat(100_000));
        assert_eq!(served.post(completions, deep).await.status, 400);
        let unknown = served.complete(json!({"model": "other", "prompt": "x"})).await;
        assert_eq!(unknown.error(), (404, "model_not_found".into()));
        served.settles().await;
        assert_eq!(served.complete(ids(1, 8)).await.status, OK);
    });
}

#[test]
fn priorities_out_of_range_are_refused_by_name_and_the_others_are_taken() {
    run(async {
        let served = start(&ONE).await;
        let hinted = |hints: &str| {
            format!("{{\"model\": \"m\", \"prompt\": \"x\", \"max_tokens\": 1, \"nvext\": {hints}}}")
        };
        let field =
            |name: &str, value: &str| hinted(&format!("{{\"agent_hints\": {{\"{name}\": {value}}}}}"));
        for (name, value) in [
            ("strict_priority", "-1"),
            ("strict_priority", "4294967296"),
            ("strict_priority", "1.5"),
            ("strict_priority", "\"1\""),
            ("strict_priority", "99999999999999999999999"),
            ("priority", "\"high\""),
            ("priority", "[]"),
        ] {
            let answer = served.post("/v1/completions", field(name, value)).await;
            assert_eq!(answer.error(), (400, "invalid_request".into()), "{name}: {value}");
            assert_eq!(answer.json()["error"]["param"], format!("nvext.agent_hints.{name}"));
        }
        for (hints, param) in [("5", "nvext"), ("{\"agent_hints\": []}", "nvext.agent_hints")] {
            let answer = served.post("/v1/completions", hinted(hints)).await;
            assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!(param)));
        }
        // Larger than any number that there is.
        assert_eq!(served.post("/v1/completions", field("priority", "1e999")).await.status, 400);
        for (name, value) in [
            ("priority", "-2147483648"),
            ("priority", "1e300"),
            ("priority", "-1e300"),
            ("priority", "0.25"),
            ("priority", "null"),
            ("strict_priority", "4294967295"),
            ("osl", "\"anything\""),
        ] {
            let answer = served.post("/v1/completions", field(name, value)).await;
            assert_eq!(answer.status, OK, "{name}: {value}: {answer:?}");
        }
        for hints in ["null", "{}", "{\"agent_hints\": null}", "{\"other\": [1]}"] {
            assert_eq!(served.post("/v1/completions", hinted(hints)).await.status, OK, "{hints}");
        }
        served.settles().await;
    });
}

#[test]
fn header_values_that_make_no_sense_are_refused_by_name() {
    run(async {
        let served = start(&ONE).await;
        for (name, value) in [
            ("x-dynamo-request-priority", "high"),
            ("x-dynamo-request-priority", "NaN"),
            ("x-dynamo-request-strict-priority", "-1"),
            ("x-dynamo-request-strict-priority", "4294967296"),
            ("x-tollgate-max-wait-ms", "soon"),
            ("x-tollgate-max-wait-ms", "-5"),
            ("x-tollgate-max-wait-ms", "1.5"),
            ("x-dynamo-meta-policy-class", "caf\u{e9}"),
            ("x-dynamo-session-id", "\u{ff}"),
        ] {
            // Latin-1, as some clients do it.
            let value: Vec<u8> = value.chars().map(|c| c as u8).collect();
            let request = served.request("/v1/completions").header(name, value);
            let answer = served.send(request.body(Full::new(ids(1, 8).to_string().into())).unwrap()).await;
            assert_eq!(answer.error(), (400, "invalid_request".into()), "{name}");
            assert_eq!(answer.json()["error"]["param"], name);
        }
        served.settles().await;
    });
}

#[test]
fn sizes_are_bounded() {
    run(async {
        let served = start(&[&ONE[..], &["--max-body-bytes", "1000", "--max-headers", "20"]].concat()).await;
        let large = served.complete(json!({"model": "m", "prompt": "x".repeat(1000)})).await;
        assert_eq!(large.error(), (413, "body_too_large".into()));
        // Without a length it is noticed on the way.
        let chunk = format!("190\r\n{}\r\n", "x".repeat(400));
        let head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
        let answer = raw(&served, format!("{head}{}0\r\n\r\n", chunk.repeat(3)).as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
        let headers = |n: usize| (0..n).map(|i| format!("x-{i}: 1\r\n")).collect::<String>();
        let many = |n| format!("GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{}\r\n", headers(n));
        assert!(raw(&served, many(18).as_bytes()).await.starts_with("HTTP/1.1 200"));
        let answer = raw(&served, many(19).as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 431") && answer.contains("too_many_headers"), "{answer}");
        for n in [100, 1000] {
            assert!(raw(&served, many(n).as_bytes()).await.starts_with("HTTP/1.1 431"));
        }
        let long = format!("GET /healthz HTTP/1.1\r\nhost: x\r\nx-long: {}\r\n\r\n", "x".repeat(1 << 20));
        let answer = raw(&served, long.as_bytes()).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
        assert!(raw(&served, b"\x16\x03\x01 this is TLS").await.starts_with("HTTP/1.1 400"));
        served.settles().await;
    });
}

#[test]
fn a_client_that_sends_slowly_holds_nothing_and_is_ended() {
    run(async {
        let args = ["--header-timeout", "0.2", "--body-timeout", "0.2", "--prefill-busy-threshold", "0"];
        let served = start(&[&ONE[..], &args].concat()).await;
        let half = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{\"model\"";
        let mut slow = TcpStream::connect(served.router.addr()).await.unwrap();
        slow.write_all(half).await.unwrap();
        // It is in nobody's way.
        assert_eq!(served.complete(ids(1, 8)).await.status, OK);
        let mut answer = String::new();
        slow.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("body_timeout"), "{answer}");
        // The head alone, or nothing: the connection is closed.
        raw(&served, b"POST /v1/completions HTTP/1.1\r\nhost:").await;
        raw(&served, b"").await;
        served.settles().await;
    });
}

#[test]
fn a_client_that_does_not_read_gives_its_permit_back() {
    run(async {
        let endless = Worker::start(|mut stream, _| async move {
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
            let chunk = format!("10000\r\n{}\r\n", "x".repeat(1 << 16));
            drop(stream.write_all(head.as_bytes()).await);
            while stream.write_all(chunk.as_bytes()).await.is_ok() {}
        })
        .await;
        let served = start(&["--worker", &endless.url(), "--stall-timeout", "0.2"]).await;
        let body = json!({"model": "m", "prompt": "x", "stream": true}).to_string();
        let head =
            format!("POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
        let mut deaf = TcpStream::connect(served.router.addr()).await.unwrap();
        deaf.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        served.when("answered", |p| p["models"]["m"]["classes"][0]["dispatched"] == 1).await;
        served.settles().await;
        drop(deaf);
    });
}

#[test]
fn a_worker_that_breaks_the_rules_is_named_and_gives_its_permit_back() {
    run(async {
        let limits = ["--response-timeout", "0.3", "--idle-timeout", "0.3"];
        let cases = [
            ("garbage", "\u{0}\u{1}garbage\r\n\r\n".to_owned(), 502, "worker_failed"),
            ("nothing", String::new(), 502, "worker_failed"),
            ("half a head", "HTTP/1.1 200 OK\r\ncontent-le".into(), 502, "worker_failed"),
            ("half a body", "HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhalf".into(), 502, "worker_failed"),
        ];
        for (what, answer, status, code) in cases {
            let worker = Worker::says(answer).await;
            let served = start(&[&["--worker", &worker.url()][..], &limits].concat()).await;
            let answer = served.complete(ids(1, 8)).await;
            assert_eq!(answer.error(), (status, code.into()), "{what}");
            served.settles().await;
        }
        for head in ["", "HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n"] {
            let silent = Worker::start(move |mut stream, _| async move {
                drop(stream.write_all(head.as_bytes()).await);
                // Until the router hangs up.
                drop(stream.read(&mut [0; 1]).await);
            })
            .await;
            let served = start(&[&["--worker", &silent.url()][..], &limits].concat()).await;
            assert_eq!(served.complete(ids(1, 8)).await.error(), (504, "worker_timeout".into()), "{head:?}");
            served.settles().await;
        }
        let own = r#"{"error": "out of memory"}"#;
        let failing = Worker::says(http("500 Internal Server Error", "x-own: 1\r\n", own)).await;
        let served = start(&["--worker", &failing.url()]).await;
        let answer = served.complete(ids(1, 8)).await;
        assert_eq!((answer.status, answer.header("x-own"), &answer.body[..]), (500, "1", own.as_bytes()));
        served.settles().await;
    });
}

#[test]
fn a_stream_that_breaks_off_ends_with_an_error_event() {
    run(async {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        let event = "9\r\ndata: 1\n\n\r\n";
        let dying = Worker::says(format!("{head}{event}")).await;
        let silent = Worker::start(move |mut stream, _| async move {
            drop(stream.write_all(format!("{head}{event}").as_bytes()).await);
            drop(stream.read(&mut [0; 1]).await);
        })
        .await;
        for (worker, code) in [(dying, "worker_failed"), (silent, "worker_timeout")] {
            let served = start(&["--worker", &worker.url(), "--idle-timeout", "0.3"]).await;
            let answer = served.complete(json!({"model": "m", "prompt": "x", "stream": true})).await;
            let text = String::from_utf8(answer.body.to_vec()).unwrap();
            let (first, last) = text.split_once("\n\n").unwrap();
            assert_eq!((answer.status, first), (OK, "data: 1"));
            let error: serde_json::Value =
                serde_json::from_str(last.trim().trim_start_matches("data: ")).unwrap();
            assert_eq!(error["error"]["code"], code);
            served.settles().await;
        }
        // A reader of anything else sees that its answer is not whole.
        let plain = head.replace("text/event-stream", "text/plain");
        let dying = Worker::says(format!("{plain}{event}")).await;
        let served = start(&["--worker", &dying.url()]).await;
        let request =
            served.request("/v1/completions").body(Full::new(ids(1, 8).to_string().into())).unwrap();
        let answer = served.client.request(request).await.unwrap();
        assert!(http_body_util::BodyExt::collect(answer.into_body()).await.is_err());
        served.settles().await;
    });
}

#[test]
fn a_worker_where_nobody_listens_is_named() {
    run(async {
        let worker = Worker::says("").await;
        let url = worker.url();
        let args = ["--worker", &url, "--health-interval", "30"];
        let served = start(&args).await;
        drop(worker);
        let answer = loop {
            let answer = served.complete(ids(1, 8)).await;
            // As long as the worker's listener is not gone, the connection breaks.
            if answer.error().1 != "worker_failed" {
                break answer;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        let (status, code) = answer.error();
        assert!(
            [(502, "worker_unreachable"), (503, "no_endpoint")].contains(&(status, code.as_str())),
            "{answer:?}"
        );
        assert_eq!(answer.header("retry-after"), "1");
        served.settles().await;
    });
}
