//! How often each interesting thing happened, so that the comparison cannot silently become weak.

use tollgate::{LimitKind, Reason, Request, Seen};

macro_rules! events {
    ($($name:ident,)*) => {
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Event { $($name,)* }
        const EVENTS: &[Event] = &[$(Event::$name,)*];
    };
}

events! {
    AffordableWithoutGrant,
    Bypass,
    BypassRefused,
    BulkCredit,
    Carry,
    CarryAfterFruitless,
    FruitlessCall,
    CreditSaturates,
    BlockedExactLane,
    BlockedSharedLane,
    ClosedByRatio,
    CancelHead,
    CancelCutsCredit,
    CancelClearsCredit,
    RefusedRequests,
    RefusedRawIslTokens,
    RefusedCachedTokens,
    LimitLetsThrough,
    SubmitRefused,
    SubmitMakesRoom,
    SubmitLetsThrough,
    NoEndpoint,
    AllOverloaded,
    TaintsUnsatisfiable,
    PinTaintsUnsatisfiable,
    PinNotAllowed,
    PinUnavailable,
    PinRankOutOfRange,
    PinOverloaded,
    SelectorTie,
    SelectAmongBusy,
    BookingCapped,
    BookingsComeBack,
    DepartedRelease,
    StaleRelease,
    AgedPassesCheaper,
    AgedPassesOlder,
    AgedPassesByJump,
    ExpireHead,
    ExpireBehind,
    ExpireByDeadline,
    ExpireByQueueTime,
    ExpireTie,
    ExpireCutsCredit,
    ExpireClearsCredit,
    WaitedForWorker,
    WaitedForPool,
    WaitedForPin,
    WaitedForOthers,
    ReloadKeepsCredit,
    ReloadCutsCredit,
    ReloadSortsAnew,
    ReloadSortsByNewRate,
    ReloadLeavesDraining,
    ReloadLeavesSeveral,
    ReloadDrainsAhead,
    ReloadKeepsQueueTime,
    ReloadDrops,
    ReloadRevives,
    ReloadRevivesDrained,
    ReloadMovesCursor,
    ReloadCursorToFirst,
    ReloadKeepsCarry,
    ToldAtCarry,
    ToldOnTheWay,
    ToldInTheNextRound,
    ToldBeforeBulkCredit,
    ToldInVain,
    ToldAtOnce,
    TakenBackUntold,
}

impl Event {
    pub(super) fn refused(kind: LimitKind) -> Self {
        match kind {
            LimitKind::Requests => Self::RefusedRequests,
            LimitKind::RawIslTokens => Self::RefusedRawIslTokens,
            LimitKind::CachedTokens => Self::RefusedCachedTokens,
            _ => unreachable!("no other limit"),
        }
    }

    pub(super) fn of(reason: &Reason, request: &Request) -> Self {
        match reason {
            Reason::NoEndpoint { .. } => Self::NoEndpoint,
            Reason::AllOverloaded { .. } => Self::AllOverloaded,
            Reason::TaintsUnsatisfiable { .. } if request.pin.is_some() => Self::PinTaintsUnsatisfiable,
            Reason::TaintsUnsatisfiable { .. } => Self::TaintsUnsatisfiable,
            Reason::PinNotAllowed { .. } => Self::PinNotAllowed,
            Reason::PinUnavailable { .. } => Self::PinUnavailable,
            Reason::PinRankOutOfRange { .. } => Self::PinRankOutOfRange,
            Reason::PinOverloaded { .. } => Self::PinOverloaded,
            _ => unreachable!("selection has no other reason"),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Coverage([u64; EVENTS.len()]);

impl Default for Coverage {
    fn default() -> Self {
        Self([0; EVENTS.len()])
    }
}

impl Coverage {
    pub(super) fn saw(&mut self, event: Event) {
        self.0[event as usize] += 1;
    }

    pub(crate) fn times(&self, event: Event) -> u64 {
        self.0[event as usize]
    }

    /// What the real scheduler did between two looks at its exact lanes, while the naive one saw `before`.
    pub(crate) fn told(&mut self, [from, to]: [Seen; 2], before: &Self) {
        let [on_the_way, in_the_next_round] = [0, 1].map(|i| to.ahead[i] - from.ahead[i]);
        let ahead = on_the_way + in_the_next_round;
        let happened = |event| u64::from(ahead > 0 && self.times(event) > before.times(event));
        let (bulk, vain) = (happened(Event::BulkCredit), happened(Event::FruitlessCall));
        let seen = [
            (Event::ToldAtCarry, to.at_carry - from.at_carry),
            (Event::ToldOnTheWay, on_the_way),
            (Event::ToldInTheNextRound, in_the_next_round),
            (Event::ToldBeforeBulkCredit, bulk),
            (Event::ToldInVain, vain),
            (Event::ToldAtOnce, to.at_once - from.at_once),
            (Event::TakenBackUntold, to.taken_back - from.taken_back),
        ];
        seen.into_iter().for_each(|(event, times)| self.0[event as usize] += times);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, other)| *mine += other);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Event, u64)> + '_ {
        EVENTS.iter().map(|e| (*e, self.0[*e as usize]))
    }
}
