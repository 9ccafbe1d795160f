//! Which core the arbiter runs on.

/// Which core to pin the arbiter thread to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CorePinning {
    /// The highest core that the process may use, if it may use more than one.
    #[default]
    Highest,
    /// This core.
    Core(usize),
    /// None.
    Off,
}

/// A core that the process may not use, with those it may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Impossible {
    pub(super) core: usize,
    pub(super) allowed: Vec<usize>,
}

/// Pins the calling thread.
#[cfg(not(any(loom, shuttle)))]
pub(super) fn pin(pinning: CorePinning) -> Result<(), Impossible> {
    let allowed = core_affinity::get_core_ids().unwrap_or_default();
    let (core, wanted) = match pinning {
        CorePinning::Off => return Ok(()),
        CorePinning::Highest if allowed.len() < 2 => return Ok(()),
        CorePinning::Highest => (allowed.iter().max_by_key(|c| c.id).copied(), None),
        CorePinning::Core(id) => (allowed.iter().find(|c| c.id == id).copied(), Some(id)),
    };
    match (core, wanted) {
        (Some(core), _) if core_affinity::set_for_current(core) => Ok(()),
        // Where the system offers no pinning, the default does without.
        (_, None) => Ok(()),
        (_, Some(core)) => Err(Impossible { core, allowed: allowed.iter().map(|c| c.id).collect() }),
    }
}

/// A model has no cores.
#[cfg(any(loom, shuttle))]
pub(super) fn pin(_: CorePinning) -> Result<(), Impossible> {
    Ok(())
}
