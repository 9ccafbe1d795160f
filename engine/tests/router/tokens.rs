//! What a prompt costs.

use serde_json::{Value, json};

use crate::app::{CountTokens, Router};
use crate::support::{Served, class, file, ids, options, run, start};

/// What the only class has paid.
async fn paid(served: &Served) -> u64 {
    class(&served.picture().await, "default")["dispatched_tokens"].as_u64().unwrap()
}

/// What one request of this body costs.
async fn cost(served: &Served, path: &str, body: Value) -> u64 {
    let before = paid(served).await;
    let answer = served.post(path, body.to_string()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    paid(served).await - before
}

const FAST: [&str; 6] = ["--mock-workers", "1", "--mock-prefill", "1000000000", "--mock-decode", "1000000"];
const CACHE: [&str; 2] = ["--mock-cache", "16384"];

#[test]
fn ids_are_counted_and_text_is_estimated_by_its_bytes() {
    run(async {
        let served = start(&FAST).await;
        let of = |prompt: Value| json!({"model": "m", "prompt": prompt, "max_tokens": 1});
        let path = "/v1/completions";
        assert_eq!(cost(&served, path, ids(1, 777)).await, 777);
        assert_eq!(cost(&served, path, of(json!([[1, 2, 3], [4, 5]]))).await, 5);
        assert_eq!(cost(&served, path, of(json!("x".repeat(400)))).await, 100);
        assert_eq!(cost(&served, path, of(json!("x".repeat(401)))).await, 101);
        // Bytes, not characters: a character of three bytes is most of a token.
        assert_eq!(cost(&served, path, of(json!("界".repeat(4)))).await, 3);
        assert_eq!(cost(&served, path, of(json!(["x".repeat(8), "y".repeat(9)]))).await, 5);
        let input = json!({"model": "m", "input": [1, 2, 3]});
        assert_eq!(cost(&served, "/v1/embeddings", input).await, 3);
        let chat = |messages: Value| json!({"model": "m", "messages": messages, "max_tokens": 1});
        let path = "/v1/chat/completions";
        // 8 bytes, 4 tokens around the message and 4 around the whole.
        let message = json!([{"role": "user", "content": "abcd"}]);
        assert_eq!(cost(&served, path, chat(message)).await, 2 + 4 + 4);
        let parts = json!([{"role": "user", "content": [
            {"type": "text", "text": "abcd"},
            {"type": "image_url", "image_url": {"url": "data:,"}}
        ]}]);
        // "userabcd" and the kind of the picture, which stands for 576 tokens.
        assert_eq!(cost(&served, path, chat(parts)).await, 5 + 4 + 4 + 576);
    });
}

struct Words;

impl CountTokens for Words {
    fn tokens(&self, text: &str) -> u64 {
        text.split_whitespace().count() as u64
    }
}

#[test]
fn another_counter_takes_the_place_of_the_rule() {
    run(async {
        let served = start(&FAST).await;
        let router = Router::with_counter(options(&FAST), Box::new(Words)).await.unwrap();
        let served = Served { router, client: served.client.clone() };
        let body = json!({"model": "m", "prompt": "one two three", "max_tokens": 1});
        assert_eq!(cost(&served, "/v1/completions", body).await, 3);
    });
}

#[test]
fn what_a_worker_has_cached_is_not_paid_again() {
    run(async {
        let served = start(&[&FAST[..], &CACHE].concat()).await;
        let path = "/v1/completions";
        assert_eq!(cost(&served, path, ids(1, 1000)).await, 1000);
        // 62 whole blocks of 16 tokens.
        assert_eq!(cost(&served, path, ids(1, 1000)).await, 1000 - 992);
        assert_eq!(cost(&served, path, ids(1, 1600)).await, 1600 - 992);
        assert_eq!(cost(&served, path, ids(2, 1000)).await, 1000, "another first token, another prefix");
        let long = |tail: &str| json!({"model": "m", "prompt": "p".repeat(640) + tail, "max_tokens": 1});
        assert_eq!(cost(&served, path, long("first")).await, 162);
        assert_eq!(cost(&served, path, long("other")).await, 2);
        let whole = served.complete(ids(1, 1600)).await.json();
        assert_eq!(whole["usage"]["prompt_tokens_details"]["cached_tokens"], 1600);
    });
}

#[test]
fn the_index_is_bounded_and_forgets_the_oldest_prefix_first() {
    run(async {
        let served = start(&[&FAST[..], &["--mock-cache", "320"]].concat()).await;
        let path = "/v1/completions";
        for first in [1, 1001, 2001] {
            assert_eq!(cost(&served, path, ids(first, 160)).await, 160);
        }
        // The last two fill it.
        assert_eq!(cost(&served, path, ids(2001, 160)).await, 1);
        assert_eq!(cost(&served, path, ids(1001, 160)).await, 1);
        assert_eq!(cost(&served, path, ids(1, 160)).await, 160);
        // Of a prompt that is longer than the whole index its beginning stays.
        assert_eq!(cost(&served, path, ids(5000, 1600)).await, 1600);
        assert_eq!(cost(&served, path, ids(5000, 1600)).await, 1600 - 320);
    });
}

#[test]
fn the_cache_bucket_is_that_of_the_tokens_to_prefill() {
    run(async {
        let policy = "default_policy_family: f\nuncached_isl_buckets:\n  - {min_tokens: 0, bucket: warm}\n  \
                      - {min_tokens: 100, bucket: cold}\npolicy_classes:\n  \
                      - {name: f_warm, policy_family: f, cache_bucket: warm, quantum: 100}\n  \
                      - {name: f_cold, policy_family: f, cache_bucket: cold, quantum: 100}\n";
        let policy = file("buckets", "policy.yaml", policy);
        let served = start(&[&FAST[..], &CACHE, &["--policy", policy.to_str().unwrap()]].concat()).await;
        assert_eq!(served.complete(ids(1, 800)).await.header("x-tollgate-class"), "f_cold");
        assert_eq!(served.complete(ids(1, 800)).await.header("x-tollgate-class"), "f_warm");
        assert_eq!(served.complete(ids(1, 1600)).await.header("x-tollgate-class"), "f_cold");
    });
}

#[test]
fn each_worker_has_its_own_cache_and_the_one_that_has_the_prompt_is_preferred() {
    run(async {
        let mut fast = FAST;
        fast[1] = "3";
        let served = start(&[&fast[..], &CACHE].concat()).await;
        let first = served.complete(ids(1, 1600)).await;
        let home = first.header("x-tollgate-worker");
        for _ in 0..5 {
            assert_eq!(served.complete(ids(1, 1600)).await.header("x-tollgate-worker"), home);
        }
    });
}
