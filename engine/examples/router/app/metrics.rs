//! What the router counts of itself; the engines count for themselves.

use std::sync::atomic::AtomicI64;

use axum::http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::ask::Endpoint;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    endpoint: &'static str,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    end: &'static str,
}

/// Counters and gauges.
pub(crate) struct Metrics {
    /// The engines, one pool for each model.
    pub(crate) engines: tollgate::metrics::Metrics,
    answered: Family<Answered, Counter>,
    ended: Family<Ended, Counter>,
    pub(crate) in_flight: Gauge<i64, AtomicI64>,
    pub(crate) connections: Gauge<i64, AtomicI64>,
    pub(crate) first_byte: Histogram,
    pub(crate) workers_up: Gauge,
    pub(crate) workers: Gauge,
}

impl Metrics {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let seconds =
            [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
        let metrics = Self {
            engines: tollgate::metrics::Metrics::new(),
            answered: Family::default(),
            ended: Family::default(),
            in_flight: Gauge::default(),
            connections: Gauge::default(),
            first_byte: Histogram::new(seconds),
            workers_up: Gauge::default(),
            workers: Gauge::default(),
        };
        let name = |name: &str| format!("tollgate_router_{name}");
        registry.register(
            name("requests"),
            "Answered requests by endpoint and status",
            metrics.answered.clone(),
        );
        registry.register(name("answers"), "Answers of workers by how they ended", metrics.ended.clone());
        registry.register(name("in_flight"), "Requests that are being served", metrics.in_flight.clone());
        registry.register(name("connections"), "Connections of clients", metrics.connections.clone());
        registry.register(
            name("first_byte_seconds"),
            "From dispatch to the head of the worker's answer",
            metrics.first_byte.clone(),
        );
        registry.register(name("workers_up"), "Workers that are well", metrics.workers_up.clone());
        registry.register(name("workers"), "Workers on the list", metrics.workers.clone());
        registry.register_collector(Box::new(metrics.engines.clone()));
        metrics
    }

    pub(crate) fn answered(&self, endpoint: Endpoint, status: StatusCode) {
        let labels = Answered { endpoint: endpoint.path(), status: status.as_u16() };
        self.answered.get_or_create(&labels).inc();
    }

    /// `end` is one of a few words.
    pub(crate) fn ended(&self, end: &'static str) {
        self.ended.get_or_create(&Ended { end }).inc();
    }

    /// Counts a request as being served for as long as what comes back lives.
    pub(crate) fn enter(&self) -> InFlight {
        self.in_flight.inc();
        InFlight(self.in_flight.clone())
    }
}

/// A request that is being served.
pub(crate) struct InFlight(Gauge<i64, AtomicI64>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}
