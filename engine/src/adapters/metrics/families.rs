//! The metric families: names, units, and where each number comes from.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry;
use rustc_hash::FxHashMap;

use super::waits::WaitCounts;
use crate::engine::{ClassStatus, EndpointStatus, EngineSnapshot};
use crate::policy::ClassId;
use crate::sync::DataArc;

/// One pool at the moment of a scrape.
pub(super) struct Pool {
    name: DataArc<str>,
    picture: EngineSnapshot,
    /// Endpoints that are busy for a class.
    busy: FxHashMap<ClassId, u64>,
    waits: FxHashMap<ClassId, WaitCounts>,
    /// Of all endpoints, or of none.
    endpoints: Vec<EndpointLabels>,
}

/// An endpoint as label values.
struct EndpointLabels {
    worker: String,
    rank: String,
}

impl Pool {
    pub(super) fn new(
        name: DataArc<str>,
        picture: EngineSnapshot,
        waits: Vec<WaitCounts>,
        max_endpoints: usize,
    ) -> Self {
        let mut busy = FxHashMap::default();
        for class in picture.endpoints.iter().flat_map(|e| &e.busy_for) {
            *busy.entry(*class).or_insert(0) += 1;
        }
        let shown = if picture.endpoints.len() > max_endpoints { &[][..] } else { &picture.endpoints };
        let labels = |EndpointStatus { endpoint, .. }: &EndpointStatus| EndpointLabels {
            worker: endpoint.worker.to_string(),
            rank: endpoint.rank.to_string(),
        };
        let endpoints = shown.iter().map(labels).collect();
        let waits = waits.into_iter().map(|waits| (waits.class, waits)).collect();
        Self { name, busy, waits, endpoints, picture }
    }

    fn sum(&self, of: fn(&EndpointStatus) -> u64) -> Number {
        Count(self.picture.endpoints.iter().map(of).fold(0, u64::saturating_add))
    }
}

#[derive(Clone, Copy)]
enum Number {
    Count(u64),
    Time(Duration),
}
use Number::{Count, Time};

#[derive(Clone, Copy)]
enum Unit {
    /// Of what the name says.
    Plain,
    Tokens,
    Seconds,
}
use Unit::{Plain, Seconds, Tokens};

impl Unit {
    fn registered(self) -> Option<registry::Unit> {
        match self {
            Plain => None,
            Tokens => Some(registry::Unit::Other("tokens".into())),
            Seconds => Some(registry::Unit::Seconds),
        }
    }
}

/// A family: its kind, its name without unit and suffix, its unit, what it means, and its value of one `T`.
struct Family<T>(MetricType, &'static str, Unit, &'static str, fn(&Pool, &T) -> Number);

impl<T> Family<T> {
    fn value(&self, pool: &Pool, of: &T) -> Number {
        self.4(pool, of)
    }
}

const GAUGE: MetricType = MetricType::Gauge;
const COUNTER: MetricType = MetricType::Counter;

/// By pool.
#[rustfmt::skip]
const POOL: &[Family<EngineSnapshot>] = &[
    Family(GAUGE, "tollgate_uptime", Seconds, "Time since the engine started.", |_, s| Time(s.uptime)),
    Family(COUNTER, "tollgate_invalid_requests", Plain, "Requests turned away because they made no sense.", |_, s| Count(s.invalid)),
    Family(COUNTER, "tollgate_turned_away_requests", Plain, "Requests turned away because the engine was closed or draining.", |_, s| Count(s.turned_away)),
    Family(COUNTER, "tollgate_clamped_requests", Plain, "Requests that were not given the class they asked for.", |_, s| Count(s.clamped)),
    Family(COUNTER, "tollgate_stale_releases", Plain, "Permits released after their worker's incarnation had changed.", |_, s| Count(s.stale_releases)),
    Family(GAUGE, "tollgate_endpoints", Plain, "Endpoints in the worker snapshot.", |_, s| Count(s.endpoints.len() as u64)),
    Family(GAUGE, "tollgate_active", Tokens, "Active prefill tokens of all endpoints, booked here and by others.", |p, _| p.sum(|e| e.active)),
    Family(GAUGE, "tollgate_booked", Tokens, "Prefill tokens that this engine has booked on all endpoints.", |p, _| p.sum(|e| e.booked.tokens)),
    Family(GAUGE, "tollgate_booked_permits", Plain, "Permits that are out on all endpoints.", |p, _| p.sum(|e| u64::from(e.booked.permits))),
    Family(COUNTER, "tollgate_arbiter_turns", Plain, "Turns of the arbiter in which there was something to do.", |_, s| Count(s.arbiter.turns)),
    Family(COUNTER, "tollgate_arbiter_decisions", Plain, "Requests that arbitration has picked.", |_, s| Count(s.arbiter.decisions)),
    Family(COUNTER, "tollgate_arbiter_sleeps", Plain, "Times that the arbiter slept.", |_, s| Count(s.arbiter.sleeps)),
    Family(COUNTER, "tollgate_arbiter_hook_panics", Plain, "Panics of observers, each contained.", |_, s| Count(s.arbiter.hook_panics)),
    Family(GAUGE, "tollgate_arbiter_longest_turn", Seconds, "The longest turn of the arbiter since it started.", |_, s| Time(s.arbiter.longest_turn)),
];

/// By pool and class.
#[rustfmt::skip]
const CLASS: &[Family<ClassStatus>] = &[
    Family(GAUGE, "tollgate_class_waiting_requests", Plain, "Requests that wait.", |_, c| Count(c.waiting.requests)),
    Family(GAUGE, "tollgate_class_waiting_raw_isl", Tokens, "Prompt tokens of waiting requests.", |_, c| Count(c.waiting.raw_isl_tokens)),
    Family(GAUGE, "tollgate_class_waiting_cached", Tokens, "Cached prompt tokens of waiting requests.", |_, c| Count(c.waiting.cached_tokens)),
    Family(GAUGE, "tollgate_class_oldest_wait", Seconds, "Time since the arrival of the waiting request that was enqueued first, 0 if nothing waits.", |_, c| Time(c.oldest.unwrap_or_default())),
    Family(GAUGE, "tollgate_class_deficit", Tokens, "Credit.", |_, c| Count(c.deficit)),
    Family(GAUGE, "tollgate_class_quantum", Tokens, "Credit per round.", |_, c| Count(c.quantum)),
    Family(GAUGE, "tollgate_class_busy_endpoints", Plain, "Endpoints that are busy for the class.", |p, c| Count(p.busy.get(&c.id).copied().unwrap_or(0))),
    Family(COUNTER, "tollgate_class_submitted_requests", Plain, "Requests taken in, or turned away at a full ingress or with a deadline over.", |_, c| Count(c.submitted)),
    Family(COUNTER, "tollgate_class_dispatched", Tokens, "Cost of the requests that got a permit.", |_, c| Count(c.dispatched_tokens)),
];

/// By pool, worker and rank.
#[rustfmt::skip]
const ENDPOINT: &[Family<EndpointStatus>] = &[
    Family(GAUGE, "tollgate_endpoint_active", Tokens, "Active prefill tokens, booked here and by others.", |_, e| Count(e.active)),
    Family(GAUGE, "tollgate_endpoint_booked", Tokens, "Prefill tokens that this engine has booked.", |_, e| Count(e.booked.tokens)),
    Family(GAUGE, "tollgate_endpoint_booked_permits", Plain, "Permits that are out.", |_, e| Count(u64::from(e.booked.permits))),
    Family(GAUGE, "tollgate_endpoint_busy_classes", Plain, "Classes for which the endpoint is busy.", |_, e| Count(e.busy_for.len() as u64)),
    Family(GAUGE, "tollgate_endpoint_waiting_requests", Plain, "Requests that are pinned to the endpoint and wait.", |_, e| Count(e.waiting)),
];

/// What a request can come to, by the code that its caller gets; [`ClassStatus::ended`] is the sum of these.
fn outcomes(class: &ClassStatus) -> [(&'static str, u64); 9] {
    [
        ("dispatched", class.dispatched),
        ("queue_limit_requests", class.refused.requests),
        ("queue_limit_raw_isl_tokens", class.refused.raw_isl_tokens),
        ("queue_limit_cached_tokens", class.refused.cached_tokens),
        ("ingress_full", class.refused.ingress_full),
        ("deadline_exceeded", class.expired),
        ("cancelled", class.cancelled),
        ("failed", class.failed),
        ("closed", class.closed),
    ]
}

/// Writes every family, each once, with the series of all pools.
pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, pools: &[Pool]) -> fmt::Result {
    for family in POOL {
        let values = pools.iter().map(|pool| ([pool_label(pool)], family.value(pool, &pool.picture)));
        series(encoder, family, values)?;
    }
    for family in CLASS {
        let values =
            classes(pools).map(|(pool, class)| (class_labels(pool, class), family.value(pool, class)));
        series(encoder, family, values)?;
    }
    let ended = "Requests whose fate is known, by what it was.";
    let ended = Family(COUNTER, "tollgate_class_ended_requests", Plain, ended, |_, _: &()| Count(0));
    let values = classes(pools).flat_map(|(pool, class)| {
        let [of_pool, of_class] = class_labels(pool, class);
        outcomes(class).map(|(outcome, n)| ([of_pool, of_class, ("outcome", outcome)], Count(n)))
    });
    series(encoder, &ended, values)?;
    for family in ENDPOINT {
        let values = pools.iter().flat_map(|pool| {
            let shown = pool.endpoints.iter().zip(&pool.picture.endpoints);
            shown.map(|(EndpointLabels { worker, rank }, endpoint)| {
                ([pool_label(pool), ("worker", worker), ("rank", rank)], family.value(pool, endpoint))
            })
        });
        series(encoder, family, values)?;
    }
    waits(encoder, pools)?;
    let intake = "Requests taken in per turn that took any in.";
    per_turn(encoder, "tollgate_arbiter_intake_requests", intake, pools, |s| &s.arbiter.intake)?;
    let dispatches = "Requests dispatched per turn that dispatched any.";
    per_turn(encoder, "tollgate_arbiter_dispatched_requests", dispatches, pools, |s| &s.arbiter.dispatches)
}

type Label<'a> = (&'static str, &'a str);

fn pool_label(pool: &Pool) -> Label<'_> {
    ("pool", &pool.name)
}

fn class_labels<'a>(pool: &'a Pool, class: &'a ClassStatus) -> [Label<'a>; 2] {
    [pool_label(pool), ("class", &class.name)]
}

fn classes(pools: &[Pool]) -> impl Iterator<Item = (&Pool, &ClassStatus)> {
    pools.iter().flat_map(|pool| pool.picture.classes.iter().map(move |class| (pool, class)))
}

/// Writes one family of gauges or counters.
fn series<T, L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    &Family(kind, name, unit, help, _): &Family<T>,
    values: impl Iterator<Item = (L, Number)>,
) -> fmt::Result {
    let unit = unit.registered();
    let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
    for (labels, number) in values {
        let mut metric = family.encode_family(&labels)?;
        match (kind, number) {
            (MetricType::Counter, Count(n)) => metric.encode_counter::<NoLabelSet, _, u64>(&n, None)?,
            (_, Count(n)) => metric.encode_gauge(&n)?,
            (_, Time(time)) => metric.encode_gauge(&time.as_secs_f64())?,
        }
    }
    Ok(())
}

fn waits(encoder: &mut DescriptorEncoder<'_>, pools: &[Pool]) -> fmt::Result {
    let help = "Time from arrival to dispatch.";
    let unit = Seconds.registered();
    let mut family =
        encoder.encode_descriptor("tollgate_class_wait", help, unit.as_ref(), MetricType::Histogram)?;
    for (pool, class) in classes(pools) {
        // A class that came between the picture and the look at its counters is in the next scrape.
        let Some(WaitCounts { buckets, sum, .. }) = pool.waits.get(&class.id) else { continue };
        let labels = class_labels(pool, class);
        let count = buckets.iter().map(|(_, n)| n).sum();
        family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)?;
    }
    Ok(())
}

/// Writes one family of counts per turn. Its bounds are below powers of two, where the buckets of the engine's own
/// histograms end: so the counts are exact. The sums are as exact as those buckets, 6 %.
fn per_turn(
    encoder: &mut DescriptorEncoder<'_>,
    name: &'static str,
    help: &str,
    pools: &[Pool],
    of: fn(&EngineSnapshot) -> &Histogram<u64>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for pool in pools {
        let histogram = of(&pool.picture);
        let mut buckets: Vec<_> = (1..=14).map(|bits| (((1u64 << bits) - 1) as f64, 0)).collect();
        buckets.push((f64::INFINITY, 0));
        for recorded in histogram.iter_recorded() {
            let value = recorded.value_iterated_to() as f64;
            let bucket = buckets.partition_point(|(bound, _)| *bound < value);
            buckets[bucket].1 += recorded.count_at_value();
        }
        let sum = histogram.mean() * histogram.len() as f64;
        let labels = [pool_label(pool)];
        let mut metric = family.encode_family(&labels)?;
        metric.encode_histogram::<NoLabelSet>(sum, histogram.len(), &buckets, None)?;
    }
    Ok(())
}
