//! The results as one JSON document: the same bytes for the same seed.

use serde_json::{Map, Value, json};

use super::super::stats::{Counts, Outcome, REFUSALS, Row, Times, ratio};
use super::{Context, Measured};

/// The document.
pub fn json(context: &Context, results: &[Measured]) -> Value {
    let Context { traffic, fleet } = context;
    let time = fleet.model.time;
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "traces": traffic.sources.iter().map(ToString::to_string).collect::<Value>(),
        "speed": traffic.cut.speed,
        "seed": traffic.seed,
        "workers": fleet.workers,
        "slots": fleet.model.slots,
        "permits": fleet.permits,
        "step_tokens": fleet.model.step_tokens,
        "step_ns": { "base": time.base, "per_prompt_token": time.prefill, "per_decoding_request": time.decode },
        "cache_blocks": fleet.cache_blocks,
        "block_tokens": fleet.block_tokens,
        "runs": results.iter().map(|measured| run(context, measured)).collect::<Value>(),
    })
}

fn run(context: &Context, Measured { name, outcome }: &Measured) -> Value {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let classes = outcome.classes.iter().map(|class| {
        let mut value = Map::from_iter([("name".into(), class.name.to_string().into())]);
        value.insert("quantum".into(), class.quantum.into());
        value.insert("of_its_due".into(), class.share().into());
        value.insert("backlogged_s".into(), seconds(class.backlogged).into());
        let mean = ratio(class.queue_sum as f64, outcome.duration as f64);
        value.insert("queue".into(), json!({ "mean": mean, "most": class.queue_most }));
        value.extend(counts(&class.counts));
        Value::Object(value)
    });
    let groups = outcome.groups.iter().map(|group| {
        let mut value = Map::from_iter([("name".into(), group.name.to_string().into())]);
        value.extend(counts(&group.counts));
        Value::Object(value)
    });
    let workers = outcome.workers.iter().map(|worker| {
        json!({
            "busy": ratio(worker.work.busy as f64, outcome.duration as f64),
            "finished": worker.work.finished,
            "steps": worker.work.steps,
            "prefill_tokens": worker.work.prefill,
            "prompt_tokens": worker.prompts,
            "cached_tokens": worker.hits,
        })
    });
    json!({
        "policy": name,
        "arrivals_s": seconds(outcome.arrivals_span),
        "duration_s": seconds(outcome.duration),
        "all": counts(&outcome.all),
        "classes": classes.collect::<Value>(),
        "groups": groups.collect::<Value>(),
        "failures": outcome.failures.iter().map(|(code, n)| ((*code).to_owned(), json!(n))).collect::<Map<_, _>>(),
        "busy": outcome.utilisation(),
        "busy_while_waiting": outcome.busy_while_waiting(),
        "slots_used": outcome.slots_used(context.fleet.model.slots),
        "prefill_tokens_per_s": outcome.prefill_rate(),
        "cached": outcome.hit_rate(),
        "unconserved_s": seconds(outcome.unconserved),
        "backlogged_s": seconds(outcome.backlogged),
        "decisions": outcome.decisions,
        "per_worker": workers.collect::<Value>(),
        "timeline": timeline(outcome),
    })
}

fn counts(counts: &Counts) -> Map<String, Value> {
    let refused = REFUSALS.iter().zip(counts.refused).map(|(kind, n)| (kind.to_string(), json!(n)));
    let value = json!({
        "arrived": counts.arrived,
        "dispatched": counts.dispatched,
        "completed": counts.completed,
        "served_tokens": counts.served,
        "refused": refused.collect::<Map<_, _>>(),
        "late": counts.late,
        "expired": counts.expired,
        "failed": counts.failed,
        "stuck": counts.stuck,
        "waited_ms": times(&counts.waited),
        "first_token_ms": times(&counts.first_token),
        "last_token_ms": times(&counts.last_token),
        "longest_wait_ms": counts.longest_wait as f64 / 1e6,
    });
    match value {
        Value::Object(map) => map,
        _ => unreachable!("an object was made"),
    }
}

fn times(times: &Times) -> Value {
    json!({
        "mean": times.mean(),
        "p50": times.quantile(0.5),
        "p90": times.quantile(0.9),
        "p99": times.quantile(0.99),
        "p99.9": times.quantile(0.999),
        "longest": times.longest(),
    })
}

fn timeline(outcome: &Outcome) -> Value {
    let line = &outcome.timeline;
    let row = |row: Row, scale: &dyn Fn(usize) -> f64| {
        let place = row.place()?;
        let values = (0..line.len()).map(|bin| (line.get(place, bin) * scale(bin) * 1e6).round() / 1e6);
        Some(values.collect::<Value>())
    };
    let per_time = |bin| 1.0 / line.time_in(bin).max(1) as f64;
    let classes = outcome.classes.iter().enumerate().map_while(|(i, class)| {
        Some(json!({
            "name": &*class.name,
            "served_tokens": row(Row::Served(i), &|_| 1.0)?,
            "dispatched": row(Row::Dispatched(i), &|_| 1.0)?,
            "waiting": row(Row::Queue(i), &per_time)?,
            "waited_s": row(Row::Waited(i), &|_| 1e-9)?,
            "received_tokens": row(Row::Received(i), &|_| 1.0)?,
            "due_tokens": row(Row::Due(i), &|_| 1.0)?,
        }))
    });
    json!({
        "bin_s": line.width() as f64 / 1e9,
        "busy_workers": row(Row::Busy, &per_time),
        "lost": row(Row::Lost, &|_| 1.0),
        "classes": classes.collect::<Value>(),
    })
}
