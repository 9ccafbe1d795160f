//! What the operating system says of this process. Linux tells it in `/proc`; elsewhere there is no answer.

use std::fs;

/// Context switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Switches {
    /// The thread had nothing to do.
    pub(super) voluntary: u64,
    /// The system wanted the core for another thread.
    pub(super) involuntary: u64,
}

impl Switches {
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            voluntary: self.voluntary.saturating_sub(earlier.voluntary),
            involuntary: self.involuntary.saturating_sub(earlier.involuntary),
        }
    }
}

/// Context switches of the threads that live now whose names start with `name`; `None` where the system does not say.
pub(super) fn switches(name: &str) -> Option<Switches> {
    let mut sum = None;
    for task in fs::read_dir("/proc/self/task").ok()?.flatten() {
        // A thread may end meanwhile.
        let Ok(status) = fs::read_to_string(task.path().join("status")) else { continue };
        if let Some((_, switches)) = parse(&status).filter(|(of, _)| of.starts_with(name)) {
            let Switches { voluntary, involuntary } = sum.get_or_insert_default();
            *voluntary += switches.voluntary;
            *involuntary += switches.involuntary;
        }
    }
    sum
}

/// Name and context switches of a thread, of which the system keeps 15 bytes of the name.
fn parse(status: &str) -> Option<(&str, Switches)> {
    let field = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let count = |key| field(key)?.parse().ok();
    let voluntary = count("voluntary_ctxt_switches:")?;
    Some((field("Name:")?, Switches { voluntary, involuntary: count("nonvoluntary_ctxt_switches:")? }))
}

/// Resident memory of the process \[bytes\]; `None` where the system does not say.
pub(super) fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switches_of_a_thread_are_read_off_its_status() {
        let status = "Name:\tingress-3\nVmRSS:\t 12 kB\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t41\n";
        assert_eq!(parse(status), Some(("ingress-3", Switches { voluntary: 7, involuntary: 41 })));
        assert_eq!(parse("Name:\tx\nvoluntary_ctxt_switches:\t7\n"), None);
    }
}
