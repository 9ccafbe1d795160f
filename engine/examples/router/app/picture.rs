//! The state of the whole router as JSON.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tollgate::policy::ClassId;
use tollgate::{ClassStatus, EndpointStatus, EngineSnapshot};

use super::Shared;
use super::pool::Pool;
use super::workers::Worker;

/// The state of everything; asks each engine, and waits for its answer.
pub(crate) fn of(shared: &Shared) -> Value {
    let models = shared.pools().into_iter().map(|pool| (pool.model.to_string(), model(&pool)));
    json!({
        "draining": shared.is_draining(),
        "in_flight": shared.metrics.in_flight.get(),
        "connections": shared.metrics.connections.get(),
        "models": models.collect::<Map<_, _>>(),
        "workers": shared.workers().iter().map(worker).collect::<Vec<_>>(),
    })
}

fn worker(worker: &Arc<Worker>) -> Value {
    let state = worker.state.lock();
    json!({
        "id": worker.id.0,
        "url": worker.url.to_string(),
        "up": state.up,
        "overloaded": state.overloaded,
        "models": state.models,
        "incarnation": state.incarnation,
        "fault": state.fault,
    })
}

fn model(pool: &Pool) -> Value {
    let picture = pool.engine.snapshot();
    let name = |id: &ClassId| {
        let class = picture.classes.iter().find(|class| class.id == *id);
        class.map_or_else(|| id.0.to_string(), |class| class.name.to_string())
    };
    let EngineSnapshot { arbiter, .. } = &picture;
    json!({
        "uptime_s": picture.uptime.as_secs_f64(),
        "sessions": pool.sessions.len(),
        "classes": picture.classes.iter().map(class).collect::<Vec<_>>(),
        "endpoints": picture.endpoints.iter().map(|it| endpoint(it, name)).collect::<Vec<_>>(),
        "arbiter": {
            "turns": arbiter.turns,
            "decisions": arbiter.decisions,
            "sleeps": arbiter.sleeps,
            "longest_turn_us": arbiter.longest_turn.as_micros() as u64,
        },
        "invalid": picture.invalid,
        "turned_away": picture.turned_away,
        "stale_releases": picture.stale_releases,
    })
}

fn class(class: &ClassStatus) -> Value {
    let waited = |quantile| class.waits.value_at_quantile(quantile) as f64 / 1e6;
    json!({
        "name": &*class.name,
        "quantum": class.quantum,
        "deficit": class.deficit,
        "waiting": {
            "requests": class.waiting.requests,
            "raw_isl_tokens": class.waiting.raw_isl_tokens,
            "cached_tokens": class.waiting.cached_tokens,
            "oldest_ms": class.oldest.map(milliseconds),
        },
        "submitted": class.submitted,
        "dispatched": class.dispatched,
        "dispatched_tokens": class.dispatched_tokens,
        "refused": {
            "requests": class.refused.requests,
            "raw_isl_tokens": class.refused.raw_isl_tokens,
            "cached_tokens": class.refused.cached_tokens,
            "ingress_full": class.refused.ingress_full,
        },
        "expired": class.expired,
        "cancelled": class.cancelled,
        "failed": class.failed,
        "closed": class.closed,
        "waited_ms": { "p50": waited(0.5), "p99": waited(0.99), "max": class.waits.max() as f64 / 1e6 },
    })
}

fn endpoint(endpoint: &EndpointStatus, name: impl Fn(&ClassId) -> String) -> Value {
    json!({
        "worker": endpoint.endpoint.worker.0,
        "rank": endpoint.endpoint.rank,
        "active_tokens": endpoint.active,
        "booked_tokens": endpoint.booked.tokens,
        "permits": endpoint.booked.permits,
        "busy_for": endpoint.busy_for.iter().map(name).collect::<Vec<_>>(),
        "waiting": endpoint.waiting,
    })
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
