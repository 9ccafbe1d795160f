//! Random policies: the first one, and others that come while requests wait.

use std::time::Duration;

use tollgate::policy::{BusyRule, ClassSpec, LimitsPerWorker, PolicySpec, Profile, QueuePolicy};

use super::World;

/// Names that a class may have: few, so that those that are gone come back.
const NAMES: u64 = 15;
const MOST_CLASSES: u64 = 12;

/// What the policies of a case have in common, and the classes of the current one.
#[derive(Debug, Default)]
pub(super) struct Policies {
    /// Classes that share a rule share more than their thresholds.
    thresholds: Vec<BusyRule>,
    quanta: u64,
    /// Percent of classes that have limits.
    limited: u64,
    /// Percent of classes that let nothing wait for ever.
    impatient: u64,
    classes: Vec<ClassSpec>,
}

impl World {
    pub(crate) fn profile(&mut self) -> Profile {
        self.policies.thresholds = (0..self.rng.within(1..=3)).map(|_| self.busy_rule()).collect();
        self.policies.quanta = self.rng.below(4);
        self.policies.limited = self.rng.pick(&[0, 0, 30, 100]);
        self.policies.impatient = self.rng.pick(&[0, 20, 60]);
        self.all_classes()
    }

    /// The policy with some changes, none at all, or one that has nothing to do with it.
    pub(crate) fn next_profile(&mut self) -> Profile {
        if self.rng.percent(5) {
            return self.all_classes();
        }
        for _ in 0..self.rng.pick(&[0, 1, 1, 2, 3, 5]) {
            self.change_policy();
        }
        self.current_profile()
    }

    fn all_classes(&mut self) -> Profile {
        let classes = match self.rng.below(4) {
            0 => self.rng.within(1..=MOST_CLASSES),
            _ => self.rng.within(1..=4),
        };
        self.policies.classes.clear();
        (0..classes).for_each(|_| self.add_class());
        self.current_profile()
    }

    fn current_profile(&self) -> Profile {
        let classes = self.policies.classes.clone();
        Profile::new(PolicySpec { classes, ..PolicySpec::default() }).expect("a valid policy")
    }

    fn change_policy(&mut self) {
        let classes = self.policies.classes.len() as u64;
        let at = self.rng.below(classes) as usize;
        let mut class = self.policies.classes[at].clone();
        match self.rng.below(13) {
            0..=2 if classes > 1 => return drop(self.policies.classes.remove(at)),
            3 | 4 if classes < MOST_CLASSES => return self.add_class(),
            5 => return self.policies.classes.swap(at, self.rng.below(classes) as usize),
            6 => class.name = self.free_name(),
            7 | 8 => class.quantum = self.quantum(),
            9 | 10 => self.set_order(&mut class),
            11 => class.busy = self.class_rule(),
            _ => {
                class.limits = self.class_limits();
                class.max_queue_time = self.queue_time();
            }
        }
        self.policies.classes[at] = class;
    }

    /// Anywhere in the ring.
    fn add_class(&mut self) {
        let mut class = ClassSpec::explicit(self.free_name(), self.quantum());
        class.order = QueuePolicy::AgedWspt;
        self.set_order(&mut class);
        class.busy = self.class_rule();
        class.limits = self.class_limits();
        class.max_queue_time = self.queue_time();
        let at = self.rng.within(0..=self.policies.classes.len() as u64);
        self.policies.classes.insert(at as usize, class);
    }

    fn free_name(&mut self) -> String {
        loop {
            let name = format!("class{}", self.rng.below(NAMES));
            if self.policies.classes.iter().all(|class| class.name != name) {
                return name;
            }
        }
    }

    fn quantum(&mut self) -> u64 {
        let Self { unit, rng, policies, .. } = self;
        let quantum = match policies.quanta {
            // Far below the costs: bulk credit.
            0 => rng.pick(&[1, 2, 3, *unit / 10]),
            // About the costs.
            1 => rng.pick(&[*unit / 4, *unit / 2, *unit, *unit, 2 * *unit]),
            // Far above them: carry.
            2 => rng.pick(&[*unit, unit.saturating_mul(4), unit.saturating_mul(128), 65_536]),
            _ => rng.pick(&[1, 512, *unit, u64::MAX / 2, u64::MAX]),
        };
        quantum.max(1)
    }

    fn set_order(&mut self, class: &mut ClassSpec) {
        // As before more often than not: then it is the rate that changes.
        let orders = [QueuePolicy::Fcfs, QueuePolicy::Wspt, QueuePolicy::AgedWspt, class.order, class.order];
        class.order = self.rng.pick(&orders);
        let unit = self.unit as f64;
        class.aging_tokens_per_second = (class.order == QueuePolicy::AgedWspt)
            .then(|| self.rng.pick(&[unit / 10.0, unit, unit, 7.3 * unit, 1e-300, 1e9, f64::MAX]));
    }

    fn queue_time(&mut self) -> Option<Duration> {
        const TIMES: [Duration; 5] = [
            Duration::from_nanos(1),
            Duration::from_secs(1),
            Duration::from_secs(2),
            Duration::from_secs(7),
            Duration::MAX,
        ];
        self.rng.percent(self.policies.impatient).then(|| self.rng.pick(&TIMES))
    }

    fn class_rule(&mut self) -> BusyRule {
        if self.rng.percent(80) { self.rng.pick(&self.policies.thresholds) } else { self.busy_rule() }
    }

    fn busy_rule(&mut self) -> BusyRule {
        let mut rule = BusyRule::default();
        if self.rng.percent(70) {
            let times = self.rng.pick(&[0, 1, 2, 4, 16]);
            rule.threshold_tokens = Some(self.unit.saturating_mul(times));
        }
        if self.rng.percent(30) {
            rule.threshold_frac = Some(self.rng.pick(&[0.0, 0.1, 0.25, 0.5, 1.0, 1.5, 3.0, 1e300]));
        }
        if (rule.threshold_tokens.is_some() || rule.threshold_frac.is_some()) && self.rng.percent(35) {
            rule.worker_ratio = Some(self.rng.pick(&[1e-9, 0.1, 0.25, 1.0 / 3.0, 0.5, 2.0 / 3.0, 0.9, 1.0]));
        }
        rule
    }

    fn class_limits(&mut self) -> LimitsPerWorker {
        if self.rng.percent(self.policies.limited) { self.limits() } else { LimitsPerWorker::default() }
    }

    fn limits(&mut self) -> LimitsPerWorker {
        let mut limit = |unit: u64| match self.rng.below(8) {
            0 => Some(0),
            1 => Some(unit),
            2 | 3 => Some(unit.saturating_mul(self.rng.within(1..=4))),
            4 => Some(u64::MAX),
            _ => None,
        };
        let (requests, raw_isl_tokens, cached_tokens) = (limit(1), limit(self.unit), limit(self.unit / 2));
        LimitsPerWorker { requests, raw_isl_tokens, cached_tokens }
    }
}
