//! How a waiting request is kept, and what is unusual about it.

use crate::request::Rare;

/// How a request is kept in its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the run.
    Run = 0,
    /// In front of the run, in the same list.
    Front,
    /// In the heap, perhaps with members behind it.
    Leader,
    /// Behind a leader.
    Member,
}

/// What is unusual about a request, in one number so that one look tells that nothing is: its mask, whether it expires,
/// whether it has something [rare](Rare), and its [`Place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind(u32);

impl Kind {
    /// In the run of its lane, with nothing rare, without constraints, never expiring.
    pub(super) const USUAL: Self = Self(0);
    const PLACE: u32 = 0b11;
    const EXPIRES: u32 = 1 << 2;
    const RARE: u32 = 1 << 3;
    const RANKED: u32 = 1 << 4;
    const MASK: u32 = Self::RANKED.trailing_zeros() + 1;

    /// A request in the run.
    ///
    /// # Panics
    /// With 2²⁷ constraint sets or more.
    #[inline(always)]
    pub(super) fn new(mask: u32, expires: bool, rare: &Rare) -> Self {
        assert!(mask >> (u32::BITS - Self::MASK) == 0, "more constraint sets than a request can name");
        let bit = |is: bool, bit| if is { bit } else { 0 };
        Self(
            mask << Self::MASK
                | bit(expires, Self::EXPIRES)
                | bit(!rare.is_none(), Self::RARE)
                | bit(rare.is_ranked(), Self::RANKED),
        )
    }

    /// Whether the request is in the run of its lane, without constraints, and never expires: whatever else is rare about it.
    #[inline(always)]
    pub(super) fn is_plain(self) -> bool {
        self.0 & !(Self::RARE | Self::RANKED) == 0
    }

    /// Whether something is rare about the request.
    #[inline(always)]
    pub(super) fn is_rare(self) -> bool {
        self.0 & Self::RARE != 0
    }

    /// Whether one of two requests has a strict tier or a deadline.
    #[inline(always)]
    pub(super) fn are_ranked(self, other: Self) -> bool {
        (self.0 | other.0) & Self::RANKED != 0
    }

    /// The same in another place.
    pub(super) fn at(self, place: Place) -> Self {
        Self(self.0 & !Self::PLACE | place as u32)
    }

    pub(super) fn place(self) -> Place {
        match self.0 & Self::PLACE {
            0 => Place::Run,
            1 => Place::Front,
            2 => Place::Leader,
            _ => Place::Member,
        }
    }

    /// Whether the request is in the run of its lane.
    #[inline(always)]
    pub(super) fn in_run(self) -> bool {
        self.0 & Self::PLACE == Place::Run as u32
    }

    /// Whether the request is in the heap of expiries.
    pub(super) fn expires(self) -> bool {
        self.0 & Self::EXPIRES != 0
    }

    /// Interned constraints, [`NO_MASK`](super::masks::NO_MASK) without any.
    pub(super) fn mask(self) -> u32 {
        self.0 >> Self::MASK
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Constraints, Pin, Request};
    use crate::scheduler::masks;
    use crate::time::Timestamp;
    use crate::worker::WorkerId;
    use std::time::Duration;

    /// What is rare about requests, whether it is anything, and whether it is a tier or a deadline.
    fn rare() -> Vec<(Rare, bool, bool)> {
        let of = |request: Request| request.snapshot(Timestamp::ZERO).unwrap().rare;
        let base = || Request::new(9, 3);
        vec![
            (of(base()), false, false),
            (of(Request { priority_jump: -1.0, ..base() }), false, false),
            (of(Request { priority_jump: 1e-9, ..base() }), true, false),
            // A pin is that of the lane.
            (of(Request { pin: Some(Pin { worker: WorkerId(0), rank: Some(0) }), ..base() }), false, false),
            (of(Request { constraints: Some(Constraints::default().into()), ..base() }), true, false),
            (of(Request { cached_on: Some([].into()), ..base() }), true, false),
            (of(Request { strict_priority: 1, ..base() }), true, true),
            (of(Request { deadline: Some(Duration::MAX), ..base() }), true, true),
        ]
    }

    #[test]
    fn a_kind_is_usual_unless_something_is_unusual_and_tells_what_it_was_made_of() {
        let most = (1 << (u32::BITS - Kind::MASK)) - 1;
        for mask in [masks::NO_MASK, 1, 2, most] {
            for expires in [false, true] {
                for (rare, is_rare, is_ranked) in rare() {
                    let kind = Kind::new(mask, expires, &rare);
                    assert_eq!(kind == Kind::USUAL, mask == masks::NO_MASK && !expires && !is_rare);
                    for place in [Place::Front, Place::Leader, Place::Member, Place::Run] {
                        let kind = kind.at(Place::Member).at(place);
                        assert_eq!((kind.mask(), kind.expires(), kind.place()), (mask, expires, place));
                        assert_eq!((kind.is_rare(), kind.are_ranked(Kind::USUAL)), (is_rare, is_ranked));
                        assert_eq!(Kind::USUAL.are_ranked(kind), is_ranked);
                        assert_eq!(kind.in_run(), place == Place::Run);
                        assert_eq!(kind.is_plain(), kind.in_run() && mask == masks::NO_MASK && !expires);
                    }
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "more constraint sets")]
    fn a_mask_that_a_kind_cannot_name_is_refused() {
        Kind::new(1 << (u32::BITS - Kind::MASK), false, &Rare::NONE);
    }
}
