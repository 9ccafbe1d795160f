//! Whether anybody waits who could go: kept apart from the scheduler, from what it was told alone.
//!
//! A request may go as soon as an endpoint is not busy for its class (its own, if it is pinned); with a ratio, as soon as
//! fewer than that share of all are busy. This keeps its own loads and its own counts of who waits, and so notices if the
//! scheduler left anybody behind.

use rustc_hash::FxHashMap;
use tollgate::policy::{BusyRule, Profile};

/// A busy rule and who waits under it.
#[derive(Debug)]
struct Rule {
    rule: BusyRule,
    /// Workers that are not busy, and how many.
    free: Vec<bool>,
    free_count: u32,
    /// Requests without a pin that wait.
    waiting: u64,
    /// Whether one of them could go.
    open: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Load {
    tokens: u64,
    permits: u32,
}

/// Loads, and who waits.
#[derive(Debug)]
pub(super) struct Conservation {
    rules: Vec<Rule>,
    rule_of: Vec<u32>,
    loads: Vec<Load>,
    /// Waiting requests with a pin, by rule and worker.
    pinned: FxHashMap<(u32, u32), u64>,
    /// Those whose worker is free.
    pinned_open: u64,
    /// Rules that are open.
    open: u32,
    max_tokens: u64,
    max_permits: u32,
}

impl Conservation {
    pub(super) fn new(profile: &Profile, workers: u32, max_tokens: u64, max_permits: u32) -> Self {
        let mut rules: Vec<Rule> = Vec::new();
        let rule_of = profile.classes().iter().map(|class| {
            let found = rules.iter().position(|known| known.rule == class.busy);
            found.unwrap_or_else(|| {
                let free = vec![false; workers as usize];
                rules.push(Rule { rule: class.busy, free, free_count: 0, waiting: 0, open: false });
                rules.len() - 1
            }) as u32
        });
        let rule_of = rule_of.collect();
        let loads = vec![Load::default(); workers as usize];
        let pinned = FxHashMap::default();
        let mut all =
            Self { rules, rule_of, loads, pinned, pinned_open: 0, open: 0, max_tokens, max_permits };
        (0..workers).for_each(|worker| all.load(worker, 0, 0));
        all
    }

    /// A change of what is booked on a worker.
    pub(super) fn load(&mut self, worker: u32, tokens: i64, permits: i32) {
        let load = &mut self.loads[worker as usize];
        load.tokens = load.tokens.checked_add_signed(tokens).expect("as much is given back as was booked");
        load.permits = load.permits.checked_add_signed(permits).expect("as many permits as were taken");
        let Load { tokens, permits } = *load;
        for (rule, id) in self.rules.iter_mut().zip(0..) {
            let BusyRule { threshold_tokens, threshold_frac, .. } = rule.rule;
            let busy = permits >= self.max_permits
                || threshold_tokens.is_some_and(|threshold| tokens > threshold)
                || threshold_frac.is_some_and(|frac| tokens as f64 > frac * self.max_tokens as f64);
            let free = &mut rule.free[worker as usize];
            if *free != busy {
                continue;
            }
            *free = !busy;
            let pinned = self.pinned.get(&(id, worker)).copied().unwrap_or(0);
            if busy {
                rule.free_count -= 1;
                self.pinned_open -= pinned;
            } else {
                rule.free_count += 1;
                self.pinned_open += pinned;
            }
            rule.update(&mut self.open);
        }
    }

    /// A request of a class that waits (`true`), or waits no more.
    pub(super) fn waiting(&mut self, class: usize, pin: Option<u64>, waits: bool) {
        let id = self.rule_of[class];
        let rule = &mut self.rules[id as usize];
        match pin.map(u32::try_from) {
            None => {
                rule.waiting = rule.waiting.checked_add_signed(if waits { 1 } else { -1 }).expect("counted");
                rule.update(&mut self.open);
            }
            Some(Ok(worker)) if (worker as usize) < rule.free.len() => {
                let count = self.pinned.entry((id, worker)).or_default();
                let open = u64::from(rule.free[worker as usize]);
                if waits {
                    *count += 1;
                    self.pinned_open += open;
                } else {
                    *count -= 1;
                    self.pinned_open -= open;
                    if *count == 0 {
                        self.pinned.remove(&(id, worker));
                    }
                }
            }
            // Pinned to nobody: it goes at once, to its error.
            Some(_) => {}
        }
    }

    /// Whether somebody waits who could go.
    pub(super) fn violated(&self) -> bool {
        self.open > 0 || self.pinned_open > 0
    }
}

impl Rule {
    fn update(&mut self, open: &mut u32) {
        let workers = self.free.len() as u32;
        let busy = workers - self.free_count;
        let free = match self.rule.worker_ratio {
            None => busy < workers,
            Some(ratio) => f64::from(busy) < ratio * f64::from(workers),
        };
        let now = self.waiting > 0 && free;
        match (self.open, now) {
            (false, true) => *open += 1,
            (true, false) => *open -= 1,
            _ => {}
        }
        self.open = now;
    }
}

#[cfg(test)]
mod tests {
    use tollgate::policy::{ClassSpec, PolicySpec};

    use super::*;

    fn conservation(edit: impl Fn(&mut ClassSpec)) -> Conservation {
        let mut class = ClassSpec::explicit("only", 1);
        class.busy.threshold_tokens = Some(10);
        edit(&mut class);
        let profile = Profile::new(PolicySpec { classes: vec![class], ..PolicySpec::default() }).unwrap();
        Conservation::new(&profile, 4, 100, 3)
    }

    #[test]
    fn somebody_left_behind_is_noticed() {
        let mut all = conservation(|_| {});
        all.waiting(0, None, true);
        assert!(all.violated(), "everybody is free");
        (0..4).for_each(|worker| all.load(worker, 11, 1));
        assert!(!all.violated(), "everybody is busy");
        all.load(2, -1, 0);
        assert!(all.violated(), "10 is not above 10");
        all.load(2, 0, 2);
        assert!(!all.violated(), "no permit is left");
        all.load(2, 0, -1);
        all.waiting(0, None, false);
        assert!(!all.violated(), "nobody waits");
    }

    #[test]
    fn a_pin_waits_for_its_own_worker_only() {
        let mut all = conservation(|_| {});
        all.load(1, 11, 1);
        all.waiting(0, Some(1), true);
        all.waiting(0, Some(77), true);
        assert!(!all.violated());
        all.load(1, -11, -1);
        assert!(all.violated());
        all.waiting(0, Some(1), false);
        assert!(!all.violated());
    }

    #[test]
    fn a_ratio_closes_the_pool_before_all_are_busy() {
        let mut all = conservation(|class| class.busy.worker_ratio = Some(0.5));
        all.waiting(0, None, true);
        all.load(0, 11, 1);
        assert!(all.violated(), "one of four");
        all.load(1, 11, 1);
        assert!(!all.violated(), "two of four");
    }
}
