//! The ring against deficit round robin as it is written down: grant by grant, with costs and quanta of any size.

use proptest::prelude::*;

use super::*;

/// Numbers that look random, from a seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let x = (self.0 ^ (self.0 >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x ^ (x >> 32)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// At least 1; small, of any number of bits, or at an end of what can be counted.
    fn tokens(&mut self, small: bool) -> u64 {
        match self.below(if small { 2 } else { 5 }) {
            0 => 1 + self.below(4),
            1 => 1 + self.below(20),
            2 => (self.next() >> self.below(64)).max(1),
            3 => (1 << 62) - 2 + self.below(5),
            _ => u64::MAX - self.below(3),
        }
    }
}

#[derive(Clone)]
struct NaiveClass {
    deficit: u64,
    quantum: u64,
    gate: usize,
    offers: [Offer; 2],
}

struct Naive {
    classes: Vec<NaiveClass>,
    open: Vec<bool>,
    cursor: usize,
    carry: Option<usize>,
}

impl Naive {
    fn side(&self, k: usize) -> usize {
        usize::from(!self.open[self.classes[k].gate])
    }

    /// The cost of its candidate.
    fn cost(&self, k: usize) -> Option<u64> {
        Some(self.classes[k].offers[self.side(k)].cost).filter(|cost| *cost != NONE)
    }

    fn can_pay(&self, k: usize) -> bool {
        self.cost(k).is_some_and(|cost| cost <= self.classes[k].deficit)
    }

    fn grant(&mut self, k: usize, times: u64) {
        let class = &mut self.classes[k];
        class.deficit = class.deficit.saturating_add(class.quantum.saturating_mul(times));
    }

    /// Where the sweep would stop in the rest of this round, and where in the next one; the ends of these ways if nowhere.
    fn stops(&self) -> [usize; 2] {
        let goes = |k: &usize| {
            let NaiveClass { deficit, quantum, .. } = self.classes[*k];
            self.cost(*k).is_some_and(|cost| cost <= deficit.saturating_add(quantum))
        };
        let end = self.classes.len();
        [(self.cursor..end).find(goes).unwrap_or(end), (0..self.cursor).find(goes).unwrap_or(self.cursor)]
    }

    fn pick(&mut self) -> Option<(usize, u32)> {
        let k = self.winner()?;
        Some((k, self.classes[k].offers[self.side(k)].slot))
    }

    fn winner(&mut self) -> Option<usize> {
        let n = self.classes.len();
        if let Some(k) = self.carry.filter(|&k| self.can_pay(k)) {
            return Some(k);
        }
        let around: Vec<_> =
            (self.cursor..self.cursor + n).map(|k| k % n).filter(|&k| self.cost(k).is_some()).collect();
        for &k in &around {
            let granted = !self.can_pay(k);
            if granted {
                self.grant(k, 1);
            }
            if self.can_pay(k) {
                self.cursor = if granted { (k + 1) % n } else { k };
                return Some(k);
            }
        }
        let lacks = |k: &usize| {
            let class = &self.classes[*k];
            self.cost(*k).map(|cost| (cost - class.deficit).div_ceil(class.quantum))
        };
        let rounds = around.iter().filter_map(lacks).min()?;
        around.iter().for_each(|&k| self.grant(k, rounds));
        around.into_iter().find(|&k| self.can_pay(k))
    }
}

proptest! {
    #[test]
    fn the_ring_decides_as_it_is_written_down(seed in any::<u64>()) {
        let numbers = &mut Numbers(seed);
        let n = [1, 2, 3, 5, 8, 70, 300][numbers.below(7) as usize];
        let gates = 1 + numbers.below(3) as usize;
        let small = numbers.below(2) == 0;
        let few = numbers.below(3) == 0;
        let mut naive = Naive { classes: Vec::new(), open: vec![true; gates], cursor: 0, carry: None };
        let mut members = Vec::new();
        for class in 0..n {
            let gate = numbers.below(gates as u64) as usize;
            let quantum = numbers.tokens(small);
            members.push(Member { class: ClassId(class), quantum, gate: GateId(gate as u32), most: 0 });
            naive.classes.push(NaiveClass { deficit: 0, quantum, gate, offers: [Offer::NONE; 2] });
        }
        let mut ring = Ring::default().rebuilt(&members, gates);
        let mut slot = 0;
        for step in 0..200 {
            let k = numbers.below(n.into()) as usize;
            if numbers.below(2) == 0 {
                let [this_round, next_round] = ring.ways();
                prop_assert_eq!(this_round.start, naive.cursor);
                let stops = [ring.stop(false, this_round), ring.stop(true, next_round)];
                prop_assert_eq!(stops, naive.stops(), "step {}", step);
            }
            match numbers.below(10) {
                0 => {
                    let (gate, open) = (numbers.below(gates as u64) as usize, numbers.below(2) == 0);
                    ring.set_gate(GateId(gate as u32), open);
                    naive.open[gate] = open;
                }
                1 => {
                    let best = Some(numbers.tokens(small)).filter(|_| numbers.below(2) == 0);
                    ring.cut(ClassId(k as u32), best);
                    let class = &mut naive.classes[k];
                    class.deficit = class.deficit.min(most_credit(class.quantum, best));
                }
                2..5 if !few || step < 3 => candidate(&mut ring, &mut naive, k, &mut slot, numbers, small),
                _ => {
                    let before = (naive.cursor, naive.classes.clone());
                    let expected = naive.pick();
                    let winner = ring.pick();
                    prop_assert_eq!(winner.map(|w| (w.place as usize, w.slot)), expected, "step {}", step);
                    let (Some((k, _)), Some(winner)) = (expected, winner) else {
                        (naive.cursor, naive.classes) = before;
                        continue;
                    };
                    let cost = naive.cost(k).expect("it was picked");
                    let still_waiting = numbers.below(4) > 0;
                    let class = &mut naive.classes[k];
                    class.deficit = if still_waiting { class.deficit - cost } else { 0 };
                    naive.carry = (class.deficit > 0).then_some(k);
                    if numbers.below(4) > 0 {
                        let next = match still_waiting {
                            true => Head { slot, cost: numbers.tokens(small), ..Head::NONE },
                            false => Head::NONE,
                        };
                        slot += 1;
                        if still_waiting && numbers.below(4) > 0 {
                            ring.serve(winner, cost, next);
                        } else {
                            ring.charge(winner, cost, still_waiting);
                            ring.replace(winner, next);
                        }
                        class.offers = [Offer { slot: next.slot, cost: next.cost }, Offer::NONE];
                    } else {
                        ring.charge(winner, cost, still_waiting);
                        candidate(&mut ring, &mut naive, k, &mut slot, numbers, small);
                    }
                }
            }
            for (k, class) in naive.classes.iter().enumerate() {
                prop_assert_eq!(ring.deficit(ClassId(k as u32)), class.deficit, "class {} at step {}", k, step);
            }
        }
    }
}

/// Sets other candidates of a class: none, one for an open gate, the same for both, or one for each.
fn candidate(
    ring: &mut Ring,
    naive: &mut Naive,
    k: usize,
    slot: &mut u32,
    numbers: &mut Numbers,
    small: bool,
) {
    *slot += 2;
    let (cost, other) = (numbers.tokens(small), numbers.tokens(small));
    let offer = Offer { slot: *slot, cost };
    let [open, closed] = match numbers.below(8) {
        0 => [Offer::NONE; 2],
        1 => [offer; 2],
        2 => [offer, Offer { slot: *slot + 1, cost }],
        3 => [offer, Offer { slot: *slot + 1, cost: other }],
        _ => [offer, Offer::NONE],
    };
    ring.set_candidates(ClassId(k as u32), open, closed);
    naive.classes[k].offers = [open, closed];
}
