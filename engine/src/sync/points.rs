//! Places between two steps of a protocol, where tests hold threads up. Without the feature `points`, which only tests
//! turn on, a place is an empty function that is always inlined.

/// A place: the step that was made last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// `ingress::push`: counted, not yet looked at the head.
    PushCounted,
    /// `ingress::push`: linked to what was seen, not yet exchanged.
    PushLinked,
    /// `ingress::push`: in the queue.
    Pushed,
    /// `ingress::take`: the stack is swapped out, not yet reversed.
    Taken,
    /// `ingress::drain`: handed out, the places not yet given back.
    Drained,
    /// `dirty::mark`: found set, past the fence, not yet looked at again.
    MarkFenced,
    /// `dirty::mark`: found clear, not yet set.
    MarkClear,
    /// `dirty::sweep`: cleared, the news not yet looked at.
    Swept,
    /// `load::release`: tokens given back, permits not yet.
    ReleasedTokens,
    /// `load::release`: all given back, not yet marked.
    Released,
    /// `sleep::notify`: past the fence, the announcement not yet looked at.
    NotifyFenced,
    /// `sleep::notify`: the sleeper was seen, not yet woken.
    NotifySeen,
    /// `sleep::sleep`, `lend::leave`: announced, not yet looked again.
    Announced,
    /// `sleep::sleep`, `lend::leave`: looked again, not yet parked or given up.
    Rechecked,
    /// `sleep::sleep`, `lend::lend`: woken, the announcement not yet taken back.
    Woken,
    /// `lend::borrow`: the desk is the notifier's.
    Borrowed,
    /// `lend::assist`: the desk is the sleeper's, which is not yet woken.
    HandedOver,
    /// `ticket::poll`: the waker is written, not yet announced.
    WakerWritten,
    /// `ticket::write`: the answer is written, not yet announced.
    AnswerWritten,
    /// `ticket::give`: announced, the asker not yet woken.
    Answered,
    /// `ticket::leave`: gone, what was there not yet taken.
    Gone,
    /// `snapshot::replace_if`: the current value accepts the new one, not yet exchanged.
    ReplaceAccepted,
    /// `snapshot::replace_if`: exchanged.
    Replaced,
    /// The arbiter begins a turn.
    Turn,
}

/// What a test does at the places.
#[cfg(feature = "points")]
static HOOK: std::sync::OnceLock<fn(Step)> = std::sync::OnceLock::new();

/// Calls `hook` at every place of every thread from now on.
///
/// # Panics
/// The second time in a process.
#[cfg(feature = "points")]
pub fn install(hook: fn(Step)) {
    assert!(HOOK.set(hook).is_ok(), "one hook per process");
}

/// A place.
#[cfg(feature = "points")]
pub(crate) fn point(step: Step) {
    if let Some(hook) = HOOK.get() {
        hook(step);
    }
}

/// A place.
#[cfg(not(feature = "points"))]
#[inline(always)]
pub(crate) fn point(_: Step) {}
