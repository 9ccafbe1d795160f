//! What is exported is what the engine counts, and nothing else.

mod threaded;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use threaded::{answer, class, exclusive, one_slot, permit, profile, settled, until, worker};
use tollgate::metrics::Metrics;
use tollgate::policy::{ClassSpec, Profile};
use tollgate::{
    ClassChoice, Endpoint, Engine, EngineBuilder, EngineSnapshot, Observed, Observer, Pin, Request, Worker,
    WorkerId, WorkerSnapshot,
};

type Series = BTreeMap<String, f64>;

fn registry(metrics: &Metrics) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(metrics.clone()));
    registry
}

fn text(registry: &Registry) -> String {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    text
}

/// Every line of an exposition: the types by family, and the value of each series, `le` left in its place.
fn parsed(text: &str) -> (BTreeMap<String, String>, Series) {
    let (mut types, mut units) = (BTreeMap::<String, String>::new(), BTreeMap::<String, String>::new());
    let mut series = Series::new();
    let mut helped = None;
    assert_eq!(text.lines().last(), Some("# EOF"));
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            assert!(help.ends_with('.'), "{line}");
            helped = Some(name.to_owned());
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert_eq!(helped.as_deref(), Some(name));
            assert_eq!(types.insert(name.into(), kind.to_owned()), None, "{name} comes twice");
        } else if let Some(unit) = line.strip_prefix("# UNIT ") {
            let (name, unit) = unit.split_once(' ').unwrap();
            assert!(name.ends_with(&format!("_{unit}")), "{line}");
            units.insert(name.to_owned(), unit.to_owned());
        } else if line != "# EOF" {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let family = helped.as_deref().unwrap();
            assert!(name.starts_with(family), "{line} stands under {family}");
            let value = value.parse().unwrap();
            assert_eq!(series.insert(name.to_owned(), value), None, "{name} comes twice");
        }
    }
    for (name, unit) in &units {
        assert!(["tokens", "seconds"].contains(&unit.as_str()), "{name} in {unit}");
    }
    for name in types.keys() {
        let unit = ["_tokens", "_seconds"].into_iter().find(|unit| name.ends_with(unit));
        assert_eq!(units.get(name).map(|unit| format!("_{unit}")).as_deref(), unit, "the unit of {name}");
    }
    (types, series)
}

/// What a snapshot comes to, but for waiting times.
fn expected(pool: &str, picture: &EngineSnapshot) -> Series {
    let mut series = Series::new();
    let mut put = |name: &str, labels: &str, value: f64| {
        let name = format!("tollgate_{name}{{pool=\"{pool}\"{labels}}}");
        assert_eq!(series.insert(name, value), None);
    };
    put("uptime_seconds", "", picture.uptime.as_secs_f64());
    put("invalid_requests_total", "", picture.invalid as f64);
    put("turned_away_requests_total", "", picture.turned_away as f64);
    put("clamped_requests_total", "", picture.clamped as f64);
    put("stale_releases_total", "", picture.stale_releases as f64);
    put("endpoints", "", picture.endpoints.len() as f64);
    put("active_tokens", "", picture.endpoints.iter().map(|e| e.active).sum::<u64>() as f64);
    put("booked_tokens", "", picture.endpoints.iter().map(|e| e.booked.tokens).sum::<u64>() as f64);
    put("booked_permits", "", picture.endpoints.iter().map(|e| e.booked.permits).sum::<u32>().into());
    let arbiter = &picture.arbiter;
    put("arbiter_turns_total", "", arbiter.turns as f64);
    put("arbiter_decisions_total", "", arbiter.decisions as f64);
    put("arbiter_sleeps_total", "", arbiter.sleeps as f64);
    put("arbiter_hook_panics_total", "", arbiter.hook_panics as f64);
    put("arbiter_longest_turn_seconds", "", arbiter.longest_turn.as_secs_f64());
    for (name, histogram) in [("intake", &arbiter.intake), ("dispatched", &arbiter.dispatches)] {
        put(&format!("arbiter_{name}_requests_count"), "", histogram.len() as f64);
        put(&format!("arbiter_{name}_requests_sum"), "", histogram.mean() * histogram.len() as f64);
        let bucket = format!("arbiter_{name}_requests_bucket");
        for bound in (1..=14).map(|bits| (1u64 << bits) - 1) {
            put(&bucket, &format!(",le=\"{bound}.0\""), histogram.count_between(0, bound) as f64);
        }
        put(&bucket, ",le=\"+Inf\"", histogram.len() as f64);
    }
    for c in &picture.classes {
        let labels = format!(",class=\"{}\"", c.name);
        put("class_waiting_requests", &labels, c.waiting.requests as f64);
        put("class_waiting_raw_isl_tokens", &labels, c.waiting.raw_isl_tokens as f64);
        put("class_waiting_cached_tokens", &labels, c.waiting.cached_tokens as f64);
        put("class_oldest_wait_seconds", &labels, c.oldest.unwrap_or_default().as_secs_f64());
        put("class_deficit_tokens", &labels, c.deficit as f64);
        put("class_quantum_tokens", &labels, c.quantum as f64);
        let busy = picture.endpoints.iter().filter(|e| e.busy_for.contains(&c.id)).count();
        put("class_busy_endpoints", &labels, busy as f64);
        put("class_submitted_requests_total", &labels, c.submitted as f64);
        put("class_dispatched_tokens_total", &labels, c.dispatched_tokens as f64);
        let mut ended = 0;
        for (outcome, n) in [
            ("dispatched", c.dispatched),
            ("queue_limit_requests", c.refused.requests),
            ("queue_limit_raw_isl_tokens", c.refused.raw_isl_tokens),
            ("queue_limit_cached_tokens", c.refused.cached_tokens),
            ("ingress_full", c.refused.ingress_full),
            ("deadline_exceeded", c.expired),
            ("cancelled", c.cancelled),
            ("failed", c.failed),
            ("closed", c.closed),
        ] {
            ended += n;
            put("class_ended_requests_total", &format!("{labels},outcome=\"{outcome}\""), n as f64);
        }
        assert_eq!(ended, c.ended());
    }
    for e in &picture.endpoints {
        let labels = format!(",worker=\"{}\",rank=\"{}\"", e.endpoint.worker, e.endpoint.rank);
        put("endpoint_active_tokens", &labels, e.active as f64);
        put("endpoint_booked_tokens", &labels, e.booked.tokens as f64);
        put("endpoint_booked_permits", &labels, e.booked.permits.into());
        put("endpoint_busy_classes", &labels, e.busy_for.len() as f64);
        put("endpoint_waiting_requests", &labels, e.waiting as f64);
    }
    series
}

/// Takes the series of waiting times out: count, sum and buckets by class.
fn waits(pool: &str, class: &str, series: &mut Series) -> (f64, f64, BTreeMap<String, f64>) {
    // Loose on the order of labels: `le` comes before them.
    let of_class = format!("pool=\"{pool}\",class=\"{class}\"}}");
    let mut taken = BTreeMap::new();
    series.retain(|name, value| {
        let ours = name.starts_with("tollgate_class_wait_seconds_") && name.ends_with(&of_class);
        if ours {
            taken.insert(name["tollgate_class_wait_seconds_".len()..].to_owned(), *value);
        }
        !ours
    });
    let mut of = |kind: &str| taken.remove(&format!("{kind}{{{of_class}")).unwrap();
    let (count, sum) = (of("count"), of("sum"));
    let bound = |name: String| name.split('"').nth(1).unwrap().to_owned();
    (count, sum, taken.into_iter().map(|(name, value)| (bound(name), value)).collect())
}

fn by_le_last(series: Series) -> Series {
    // The encoder writes `le` first; so that both sides agree, it goes to the end.
    let moved = |name: String| match name.split_once("{le=") {
        Some((family, labels)) => {
            let (le, rest) = labels.split_once(',').unwrap();
            format!("{family}{{{},le={le}}}", rest.trim_end_matches('}'))
        }
        None => name,
    };
    series.into_iter().map(|(name, value)| (moved(name), value)).collect()
}

/// Writes down how long each dispatched request of a class has waited.
#[derive(Clone, Default)]
struct Stopwatch(Arc<Mutex<BTreeMap<String, Vec<Duration>>>>);

impl Observer for Stopwatch {
    fn dispatched(&mut self, request: &Observed<'_>, _: Endpoint) {
        self.0.lock().unwrap().entry(request.name.to_string()).or_default().push(request.waited);
    }
}

/// Two classes with every kind of bound, two workers with two ranks.
fn builder() -> EngineBuilder {
    let mut a = ClassSpec { quantum: 512, ..exclusive("a", 1) };
    a.limits.requests = Some(1);
    let mut b = exclusive("b", 128);
    b.limits.raw_isl_tokens = Some(50);
    let workers = (1..=2).map(|id| Worker { ranks: 2, external_load: vec![7 * id], ..worker(id) }).collect();
    Engine::builder(profile(vec![a, b])).workers(WorkerSnapshot::new(1, workers).unwrap()).class_guard(
        |request: &Request| match request.class.as_deref() {
            Some("forbidden") => ClassChoice::Default,
            _ => ClassChoice::AsAsked,
        },
    )
}

/// Makes every number of an engine another one. Returns what still runs and waits.
fn everything_happens(engine: &Engine) -> impl Drop + use<> {
    struct Kept<T>(T);
    impl<T> Drop for Kept<T> {
        fn drop(&mut self) {}
    }
    let request = |raw, cached, class: &str| Request::new(raw, cached).with_class(class);
    let pinned =
        |rank, request| Request { pin: Some(Pin { worker: WorkerId(1), rank: Some(rank) }), ..request };
    let mut running: Vec<_> = (0..2).map(|_| permit(engine.admit(request(900, 100, "a")).unwrap())).collect();
    running[0].prefill_complete();
    running.push(permit(engine.admit(request(300, 0, "b")).unwrap()));
    let waiting: Vec<_> = [pinned(0, request(40, 10, "a")), pinned(0, request(70, 20, "b"))]
        .map(|request| engine.admit(request).unwrap())
        .into();
    until(engine, |picture| picture.classes.iter().all(|c| c.waiting.requests == 1));
    let ends = |request, code: &str| {
        let rejected = engine.admit(request).and_then(answer).unwrap_err();
        assert_eq!(rejected.reason.code(), code);
    };
    ends(pinned(9, request(1, 0, "b")), "pinned_rank_out_of_range");
    ends(Request { deadline: Some(Duration::ZERO), ..request(1, 0, "b") }, "deadline_exceeded");
    ends(Request { priority_jump: f64::NAN, ..request(1, 0, "b") }, "invalid_request");
    let leaves = engine.admit(pinned(0, request(5, 0, "b"))).unwrap();
    until(engine, |picture| picture.classes[1].waiting.requests == 2);
    drop(leaves);
    until(engine, |picture| picture.classes[1].cancelled == 1);
    let clamped = engine.admit(pinned(0, request(30, 0, "forbidden"))).unwrap();
    until(engine, |picture| picture.classes[0].waiting.requests == 2);
    ends(pinned(0, request(1, 0, "a")), "queue_limit_requests");
    Kept((running, waiting, clamped))
}

#[test]
fn every_number_of_a_running_engine_is_that_of_its_snapshot() {
    let metrics = Metrics::new();
    let registry = registry(&metrics);
    let engine = metrics.start("p", builder()).unwrap();
    let _kept = everything_happens(&engine);
    settled(&engine);
    let before = expected("p", &engine.snapshot());
    let (_, mut series) = parsed(&text(&registry));
    let picture = engine.snapshot();
    let after = expected("p", &picture);
    for class in &picture.classes {
        let (count, ..) = waits("p", &class.name, &mut series);
        assert_eq!(count, class.dispatched as f64);
    }
    let series = by_le_last(series);
    assert_eq!(series.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    for (name, value) in &series {
        assert!(
            (before[name]..=after[name]).contains(value),
            "{name}: {} {value} {}",
            before[name],
            after[name]
        );
    }
    // Most numbers are not 0, so that they could not stand for each other.
    let zero = series.values().filter(|value| **value == 0.0).count();
    assert!(zero * 2 < series.len(), "{zero} of {}: {series:#?}", series.len());
}

#[test]
fn an_engine_that_has_ended_shows_how_it_ended() {
    let metrics = Metrics::new();
    let registry = registry(&metrics);
    let stopwatch = Stopwatch::default();
    let engine = metrics.start("a \"pool\"\n", builder().observer(stopwatch.clone())).unwrap();
    drop(everything_happens(&engine));
    engine.close();
    engine.join();
    assert!(engine.admit(Request::new(1, 0)).is_err());
    let picture = engine.snapshot();
    // Collecting keeps no engine open, and needs none.
    drop(engine);
    let pool = "a \\\"pool\\\"\\n";
    let (_, mut series) = parsed(&text(&registry));
    for class in &picture.classes {
        let waited = &stopwatch.0.lock().unwrap()[&*class.name];
        let (count, sum, _) = waits(pool, &class.name, &mut series);
        assert_eq!(count, waited.len() as f64);
        let exact = waited.iter().sum::<Duration>().as_secs_f64();
        assert!((sum - exact).abs() <= 1e-9 * exact, "{sum} {exact}");
    }
    assert_eq!(by_le_last(series), expected(pool, &picture));
    assert!(metrics.remove("a \"pool\"\n"));
    assert!(!metrics.remove("a \"pool\"\n"));
    assert_eq!(parsed(&text(&registry)).1, Series::new());
}

#[test]
fn waiting_times_fall_into_their_buckets() {
    let bounds =
        [Duration::from_secs(3600), Duration::from_micros(1), Duration::from_millis(2), Duration::ZERO];
    let metrics = Metrics::new().wait_buckets(bounds.into_iter().chain(bounds));
    let registry = registry(&metrics);
    let stopwatch = Stopwatch::default();
    let workers = WorkerSnapshot::new(1, vec![one_slot(1)]).unwrap();
    let builder = Engine::builder(profile(vec![class("only", 1)])).workers(workers);
    let engine = metrics.start("p", builder.observer(stopwatch.clone())).unwrap();
    for _ in 0..20 {
        let first = permit(engine.admit(Request::new(1, 0)).unwrap());
        let second = engine.admit(Request::new(1, 0)).unwrap();
        std::thread::sleep(Duration::from_millis(2));
        drop(first);
        drop(permit(second));
    }
    settled(&engine);
    let (_, mut series) = parsed(&text(&registry));
    let waited = &stopwatch.0.lock().unwrap()["only"];
    let (count, _, buckets) = waits("p", "only", &mut series);
    assert_eq!((count, waited.len()), (40.0, 40));
    let up_to = |bound| waited.iter().filter(|time| **time <= bound).count() as f64;
    let counted: BTreeMap<_, _> = bounds
        .into_iter()
        .map(|bound| (format!("{:?}", bound.as_secs_f64()), up_to(bound)))
        .chain([("+Inf".to_owned(), 40.0)])
        .collect();
    let numeric = |buckets: BTreeMap<String, f64>| -> Vec<(f64, f64)> {
        let mut sorted: Vec<_> = buckets
            .into_iter()
            .map(|(bound, n)| (bound.trim_start_matches('+').to_lowercase().parse().unwrap(), n))
            .collect();
        sorted.sort_by(|a, b| f64::total_cmp(&a.0, &b.0));
        sorted
    };
    let (buckets, counted) = (numeric(buckets), numeric(counted));
    assert_eq!(buckets, counted);
    // Those that had to wait are not in the buckets of those that had not.
    assert!(buckets.iter().any(|(_, n)| *n <= 20.0) && buckets[3].1 == 40.0);
}

#[test]
fn the_number_of_series_is_bounded() {
    let series = |classes: u64, workers: u64, max: usize| {
        let metrics = Metrics::new().max_endpoints(max).wait_buckets([Duration::from_secs(1)]);
        let registry = registry(&metrics);
        let classes = (0..classes).map(|i| class(&format!("c{i}"), 1)).collect();
        let snapshot = WorkerSnapshot::new(1, (0..workers).map(worker).collect()).unwrap();
        let builder = Engine::builder(profile(classes)).workers(snapshot);
        let engine = metrics.start("p", builder).unwrap();
        // What a request brings is no label.
        for i in 0..50 {
            let asked = Request {
                tenant: Some(format!("tenant{i}").into()),
                ..Request::new(i, 0).with_class(format!("class{i}"))
            };
            drop(engine.admit(asked).and_then(answer));
        }
        let (_, series) = parsed(&text(&registry));
        assert_eq!(series[r#"tollgate_endpoints{pool="p"}"#], workers as f64);
        series.len() as u64
    };
    assert_eq!(series(1, 0, 10), 48 + 22);
    assert_eq!(series(3, 10, 10), 48 + 3 * 22 + 5 * 10);
    assert_eq!(series(3, 11, 10), 48 + 3 * 22);
}

#[test]
fn pools_share_families_and_a_new_engine_takes_the_place_of_an_old_one() {
    let metrics = Metrics::new();
    let registry = registry(&metrics);
    let start = |pool: &str, quantum| {
        let workers = WorkerSnapshot::new(1, vec![worker(1)]).unwrap();
        metrics.start(pool, Engine::builder(profile(vec![class("only", quantum)])).workers(workers)).unwrap()
    };
    let _engines = [start("a", 1), start("b", 2), start("a", 3)];
    // `parsed` sees to it that no family comes twice.
    let (_, series) = parsed(&text(&registry));
    let quantum = |pool| series[&format!(r#"tollgate_class_quantum_tokens{{pool="{pool}",class="only"}}"#)];
    assert_eq!((quantum("a"), quantum("b")), (3.0, 2.0));
}

#[test]
fn waiting_times_follow_a_reload() {
    let metrics = Metrics::new();
    let registry = registry(&metrics);
    let workers = WorkerSnapshot::new(1, vec![worker(1)]).unwrap();
    let two = |names: [&str; 2]| -> Profile { profile(names.map(|name| class(name, 1)).into()) };
    let engine = metrics.start("p", Engine::builder(two(["a", "b"])).workers(workers)).unwrap();
    let serve = |class: &str| drop(permit(engine.admit(Request::new(1, 0).with_class(class)).unwrap()));
    let counts = || {
        settled(&engine);
        let (_, series) = parsed(&text(&registry));
        let prefix = "tollgate_class_wait_seconds_count{pool=\"p\",class=";
        let ours = series.iter().filter_map(|(name, n)| Some((name.strip_prefix(prefix)?.to_owned(), *n)));
        ours.map(|(name, n)| (name.trim_matches(['"', '}']).to_owned(), n)).collect::<Vec<_>>()
    };
    let named = |counts: &[(&str, f64)]| -> Vec<_> {
        counts.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect()
    };
    ["a", "a", "b"].into_iter().for_each(serve);
    assert_eq!(counts(), named(&[("a", 2.0), ("b", 1.0)]));
    engine.reload(two(["c", "b"]));
    settled(&engine);
    ["b", "c"].into_iter().for_each(serve);
    assert_eq!(counts(), named(&[("b", 2.0), ("c", 1.0)]));
    // Back in the policy, it starts anew, as its other counters do.
    engine.reload(two(["a", "b"]));
    settled(&engine);
    serve("a");
    assert_eq!(counts(), named(&[("a", 1.0), ("b", 2.0)]));
}

#[test]
fn the_table_in_the_docs_lists_every_family() {
    let page = include_str!("../../docs/metrics.md");
    let rows = page.lines().filter(|line| line.starts_with("| `tollgate_"));
    let listed: BTreeMap<_, _> = rows
        .map(|row| {
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            let name = cells[1].trim_matches('`');
            let name = if cells[2] == "counter" { name.strip_suffix("_total").unwrap() } else { name };
            (name.to_owned(), cells[2].to_owned())
        })
        .collect();
    let metrics = Metrics::new();
    let _engine = metrics.start("p", builder()).unwrap();
    assert_eq!(parsed(&text(&registry(&metrics))).0, listed);
}
