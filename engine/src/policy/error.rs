//! All that is wrong with a policy.

use std::fmt;

use super::PolicyFault;

/// Faults kept per policy: enough to mend any real file in one go, few enough that a hostile one cannot turn
/// its errors into a memory problem. Guessed.
const MAX_FAULTS: usize = 1_000;

/// Every fault of a policy: at least one, sorted by location.
///
/// Displays as one line per fault. Only the first thousand faults are kept; the others are counted.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyErrors {
    faults: Vec<PolicyFault>,
    omitted: usize,
}

impl PolicyErrors {
    /// The faults in the order of the file; those of a spec built in code in the order of the checks.
    pub fn faults(&self) -> &[PolicyFault] {
        &self.faults
    }

    /// How many more faults were found than [`faults`](Self::faults) holds.
    pub fn omitted(&self) -> usize {
        self.omitted
    }
}

impl fmt::Display for PolicyErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.faults.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        if self.omitted > 0 {
            write!(f, "\nand {} more", self.omitted)?;
        }
        Ok(())
    }
}

impl std::error::Error for PolicyErrors {}

impl IntoIterator for PolicyErrors {
    type Item = PolicyFault;
    type IntoIter = std::vec::IntoIter<PolicyFault>;

    fn into_iter(self) -> Self::IntoIter {
        self.faults.into_iter()
    }
}

impl<'a> IntoIterator for &'a PolicyErrors {
    type Item = &'a PolicyFault;
    type IntoIter = std::slice::Iter<'a, PolicyFault>;

    fn into_iter(self) -> Self::IntoIter {
        self.faults.iter()
    }
}

/// Faults while they are collected.
#[derive(Debug, Default)]
pub(super) struct Faults {
    found: Vec<PolicyFault>,
    omitted: usize,
}

impl Faults {
    /// Notes a fault.
    pub(super) fn push(&mut self, fault: PolicyFault) {
        if self.found.len() < MAX_FAULTS {
            self.found.push(fault);
        } else {
            self.omit(1);
        }
    }

    #[cfg(feature = "yaml")]
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Whether more faults are only counted.
    pub(super) fn is_full(&self) -> bool {
        self.found.len() >= MAX_FAULTS
    }

    /// Counts `n` faults without keeping them.
    pub(super) fn omit(&mut self, n: usize) {
        self.omitted = self.omitted.saturating_add(n);
    }

    /// `Ok` if nothing was found.
    pub(super) fn into_result(mut self) -> Result<(), PolicyErrors> {
        if self.found.is_empty() {
            return Ok(());
        }
        // Stable, so that faults at one place, or nowhere, keep the order of the checks.
        self.found.sort_by_key(|fault| (fault.location.is_none(), fault.location));
        Err(PolicyErrors { faults: self.found, omitted: self.omitted })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Location, Place, PolicyFaultKind};
    use super::*;

    fn fault(location: Option<(u32, u32)>, kind: PolicyFaultKind) -> PolicyFault {
        PolicyFault {
            place: Place::Root,
            class: None,
            field: None,
            location: location.map(|(line, column)| Location { line, column }),
            kind,
        }
    }

    #[test]
    fn faults_are_sorted_by_location_and_those_without_one_come_last() {
        let mut faults = Faults::default();
        faults.push(fault(None, PolicyFaultKind::ZeroQuantum));
        faults.push(fault(Some((10, 1)), PolicyFaultKind::Missing));
        faults.push(fault(Some((9, 30)), PolicyFaultKind::NoClasses));
        let errors = faults.into_result().unwrap_err();
        let kinds: Vec<_> = errors.into_iter().map(|fault| fault.kind).collect();
        assert_eq!(
            kinds,
            [PolicyFaultKind::NoClasses, PolicyFaultKind::Missing, PolicyFaultKind::ZeroQuantum]
        );
    }

    #[test]
    fn too_many_faults_are_counted_and_not_kept() {
        let mut faults = Faults::default();
        for _ in 0..MAX_FAULTS + 5 {
            faults.push(fault(None, PolicyFaultKind::Missing));
        }
        let errors = faults.into_result().unwrap_err();
        assert_eq!((errors.faults().len(), errors.omitted()), (MAX_FAULTS, 5));
        assert!(errors.to_string().ends_with("root: is missing\nand 5 more"));
    }
}
