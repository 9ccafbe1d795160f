//! The order inside a lane, packed so that one comparison of two numbers decides it.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use super::heap::HeapKey;
use crate::policy::{ClassSpec, QueuePolicy};
use crate::request::{Rare, Usual};
use crate::time::Timestamp;

/// Strict priority, deadline, policy key and enqueue sequence, from the most to the least significant bit. Sequences are
/// unique, and so are keys.
///
/// | bits of `hi` | what | bits of `lo` | what |
/// |---|---|---|---|
/// | 95…64 | `!strict_priority` | 127…64 | policy key |
/// | 63…0 | deadline \[ns\], all ones without one | 63…0 | sequence |
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OrderKey {
    hi: u128,
    lo: u128,
}

/// See [`OrderKey::rank`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rank {
    policy: u64,
    deadline: u64,
    tier: u32,
}

impl Hash for Rank {
    /// In two words: a hasher takes one at a time.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.policy);
        state.write_u64(self.deadline ^ u64::from(self.tier) << 32);
    }
}

/// How requests of one class are ordered after strict priority and deadline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Order {
    Fcfs,
    Wspt,
    AgedWspt { tokens_per_second: f64 },
}

impl Order {
    pub(super) fn of(class: &ClassSpec) -> Self {
        match class.order {
            QueuePolicy::Fcfs => Self::Fcfs,
            QueuePolicy::Wspt => Self::Wspt,
            QueuePolicy::AgedWspt => Self::AgedWspt {
                tokens_per_second: class.aging_tokens_per_second.expect("a valid class that ages has a rate"),
            },
        }
    }

    /// Whether requests that come out of order are often of equal rank: costs repeat, times do not.
    pub(super) fn repeats(self) -> bool {
        self == Self::Wspt
    }

    /// Smaller goes first.
    #[inline(always)]
    pub(super) fn key(self, usual: &Usual, jump: f64) -> u64 {
        match self {
            // Flipping the sign bit maps the order of i64 to that of u64.
            Self::Fcfs => virtual_arrival(usual.arrival, jump) as u64 ^ (1 << 63),
            // A float that is finite and not negative has the order of its bits; larger goes first.
            Self::Wspt => !((1.0 + jump) / usual.cost() as f64).to_bits(),
            Self::AgedWspt { tokens_per_second } => {
                let age = tokens_per_second * (virtual_arrival(usual.arrival, jump) as f64 / 1e9);
                ordered_bits(usual.cost() as f64 + age)
            }
        }
    }
}

/// Arrival less the priority jump \[s\], in whole nanoseconds so that equal is equal.
fn virtual_arrival(arrival: Timestamp, jump: f64) -> i64 {
    let arrival = i64::try_from(arrival.as_nanos()).unwrap_or(i64::MAX);
    if jump == 0.0 {
        return arrival;
    }
    // `as` saturates: a jump of 292 years or more is as early as can be.
    arrival.saturating_sub((jump * 1e9).round() as i64)
}

/// Maps the order of floats that are no NaN to that of integers.
fn ordered_bits(value: f64) -> u64 {
    // Adding 0 turns the negative zero into the positive one.
    let bits = (value + 0.0).to_bits();
    if value < 0.0 { !bits } else { bits | 1 << 63 }
}

impl OrderKey {
    /// `hi` without strict priority and deadline.
    const USUAL: u128 = u128::MAX >> 32;

    /// Behind all others.
    pub(super) const LAST: Self = Self { hi: u128::MAX, lo: u128::MAX };

    /// Of a request with this policy key, without strict priority and deadline.
    #[inline(always)]
    pub(super) fn usual(policy: u64, sequence: u64) -> Self {
        Self { hi: Self::USUAL, lo: u128::from(policy) << 64 | u128::from(sequence) }
    }

    /// Of any request.
    pub(super) fn new(rare: &Rare, policy: u64, sequence: u64) -> Self {
        let (tier, deadline) = (!rare.strict_priority(), rare.deadline_nanos());
        Self { hi: u128::from(tier) << 64 | u128::from(deadline), ..Self::usual(policy, sequence) }
    }

    fn policy(self) -> u64 {
        (self.lo >> 64) as u64
    }

    /// All that decides but the sequence. Requests of equal rank go in the order of their enqueueing.
    pub(super) fn rank(self) -> Rank {
        Rank { policy: self.policy(), deadline: self.hi as u64, tier: (self.hi >> 64) as u32 }
    }

    /// Whether this key goes first, without a branch: it cannot be predicted. As one subtraction with borrow, which takes
    /// half as many instructions as comparing the halves.
    #[inline]
    pub(super) fn is_before(&self, other: &Self) -> bool {
        let (_, borrow) = self.lo.overflowing_sub(other.lo);
        let (hi, below) = self.hi.overflowing_sub(other.hi);
        below | hi.overflowing_sub(borrow.into()).1
    }
}

/// A key shortened to what a heap can compare in one step, with the item that it belongs to. Of two that differ the smaller
/// goes first; of two that are equal, the [`OrderKey`]s decide. Those of usual requests, without strict priority and
/// deadline, are equal if their policy keys are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShortKey {
    bits: u64,
    /// The next bits of the key, which decide where those tie: deadlines, in nanoseconds, have most of their bits here.
    more: u32,
    item: u32,
}

impl ShortKey {
    #[inline]
    pub(super) fn new(key: OrderKey, item: u32) -> Self {
        let policy = key.policy();
        let usual = key.hi == OrderKey::USUAL;
        let (bits, more) = if usual && policy >> 63 == 1 {
            (policy, 0)
        } else if usual {
            // A negative time or float.
            (1 << 62 | policy >> 2, policy as u32 & 0b11)
        } else {
            ((key.hi >> 34) as u64, (key.hi >> 2) as u32)
        };
        Self { bits, more, item }
    }
}

impl HeapKey for ShortKey {
    #[inline]
    fn item(self) -> u32 {
        self.item
    }

    #[inline]
    fn is_before(&self, other: &Self) -> bool {
        self.bits < other.bits
    }

    #[inline]
    fn ties(&self, other: &Self) -> bool {
        self.bits == other.bits
    }

    #[inline]
    fn by_more(&self, other: &Self) -> Ordering {
        self.more.cmp(&other.more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use crate::request::Request;
    use std::time::Duration;

    fn key(request: Request, arrival: u64, order: Order, sequence: u64) -> OrderKey {
        let snapshot = request.snapshot(Timestamp::from_nanos(arrival)).unwrap();
        OrderKey::new(&snapshot.rare, order.key(&snapshot.usual, snapshot.jump()), sequence)
    }

    #[test]
    fn priority_then_deadline_then_policy_then_sequence() {
        let deadline = |ms| Some(Duration::from_millis(ms));
        let base = Request::new(100, 0);
        let in_order = [
            key(Request { strict_priority: u32::MAX, ..base.clone() }, 9, Order::Fcfs, 9),
            key(Request { strict_priority: 1, deadline: deadline(5), ..base.clone() }, 9, Order::Fcfs, 8),
            key(Request { deadline: deadline(5), ..base.clone() }, 9, Order::Fcfs, 7),
            key(Request { deadline: deadline(6), ..base.clone() }, 0, Order::Fcfs, 6),
            key(base.clone(), 3, Order::Fcfs, 4),
            key(base.clone(), 3, Order::Fcfs, 5),
            key(base.clone(), 4, Order::Fcfs, 3),
        ];
        assert!(in_order.is_sorted());
    }

    #[test]
    fn a_jump_counts_as_an_earlier_arrival_in_whole_nanoseconds() {
        let jump = |s| Request { priority_jump: s, ..Request::new(1, 0) };
        let at = |s, arrival| key(jump(s), arrival, Order::Fcfs, 0);
        assert_eq!(at(0.5, 500_000_007), at(0.0, 7));
        assert!(at(1.0, 0) < at(0.0, 0));
        assert_eq!(at(1e300, 0), at(f64::MAX, 0));
        assert_eq!(at(-3.0, 5), at(0.0, 5));
    }

    #[test]
    fn wspt_prefers_cheap_and_jumping_requests() {
        let cost = |c, jump| key(Request { priority_jump: jump, ..Request::new(c, 0) }, 0, Order::Wspt, 0);
        assert!(cost(1, 0.0) < cost(2, 0.0));
        assert!(cost(u64::MAX - 4096, 0.0) < cost(u64::MAX, 0.0));
        assert_eq!(cost(4, 1.0), cost(2, 0.0));
        assert!(cost(10, 1e308) < cost(1, 0.0));
    }

    #[test]
    fn ageing_trades_tokens_for_seconds_and_a_jump_is_an_earlier_arrival() {
        let order = Order::AgedWspt { tokens_per_second: 100.0 };
        let at = |cost, seconds: u64, jump| {
            let request = Request { priority_jump: jump, ..Request::new(cost, 0) };
            key(request, seconds * 1_000_000_000, order, 0)
        };
        assert!(at(100, 0, 0.0) < at(101, 0, 0.0));
        // One second is worth 100 tokens.
        assert_eq!(at(300, 5, 0.0), at(100, 7, 0.0));
        assert_eq!(at(300, 5, 2.0), at(100, 5, 0.0));
        // Below zero, zero and above.
        let in_order = [at(1, 0, 9.0), at(1, 0, 5.0), at(200, 0, 2.0), at(1, 0, 0.0), at(2, 0, 0.0)];
        assert!(in_order.is_sorted_by(|a, b| a < b));
        assert_eq!(ordered_bits(-0.0), ordered_bits(0.0));
    }

    proptest! {
        /// Priorities, deadlines and jumps of all sizes, and many equal ones.
        #[test]
        fn what_a_short_key_decides_the_key_decides_alike(
            requests in prop::collection::vec((tiers(), deadlines(), jumps(), 1..4u64, arrivals()), 2..60),
            order in prop::sample::select(vec![
                Order::Fcfs,
                Order::Wspt,
                Order::AgedWspt { tokens_per_second: 1.0 },
            ]),
        ) {
            let keys: Vec<_> = requests
                .into_iter()
                .zip(0..)
                .map(|((strict_priority, deadline, priority_jump, cost, arrival), sequence)| {
                    let deadline = deadline.map(Duration::from_nanos);
                    let request = Request { strict_priority, deadline, priority_jump, ..Request::new(cost, 0) };
                    key(request, arrival, order, sequence)
                })
                .collect();
            for (a, b) in keys.iter().flat_map(|a| keys.iter().map(move |b| (a, b))) {
                let (short_a, short_b) = (ShortKey::new(*a, 1), ShortKey::new(*b, 2));
                prop_assert_eq!(short_a.ties(&short_b), short_a.bits == short_b.bits);
                prop_assert!(short_a.ties(&short_b) || short_a.is_before(&short_b) == a.is_before(b), "{a:?} {b:?}");
                let more = short_a.by_more(&short_b);
                prop_assert!(a.rank() != b.rank() || short_a.ties(&short_b) && more.is_eq());
                prop_assert!(!short_a.ties(&short_b) || more.is_eq() || more.is_lt() == a.is_before(b), "{a:?} {b:?}");
                prop_assert_eq!(b.is_before(a), b < a);
            }
        }
    }

    fn tiers() -> impl Strategy<Value = u32> {
        prop_oneof![4 => Just(0), 1 => 1..3u32, 1 => any::<u32>(), 1 => Just(u32::MAX)]
    }

    fn deadlines() -> impl Strategy<Value = Option<u64>> {
        prop_oneof![4 => Just(None), 1 => (0..3u64).prop_map(Some), 1 => any::<u64>().prop_map(Some)]
    }

    fn jumps() -> impl Strategy<Value = f64> {
        prop_oneof![4 => Just(0.0), 1 => 0.0..20.0, 1 => Just(1e-9), 1 => Just(f64::MAX)]
    }

    fn arrivals() -> impl Strategy<Value = u64> {
        prop_oneof![2 => 0..4u64, 1 => any::<u64>(), 1 => Just(u64::MAX)]
    }

    /// What an exact lane costs most: its head and the next one differ by nothing but the nanosecond.
    #[test]
    fn short_keys_tell_usual_requests_one_nanosecond_apart() {
        let at = |nanos| ShortKey::new(key(Request::new(1, 0), nanos, Order::Fcfs, 0), 0);
        for arrival in [0, 1, 1_000_000_007, i64::MAX as u64 - 1] {
            assert!(at(arrival).is_before(&at(arrival + 1)));
        }
    }
}
