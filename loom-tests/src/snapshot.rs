//! Models of `sync::snapshot`: publishers against each other and against a reader.
//!
//! Modelled: the loop around the cell that lets only newer versions in, and the reader that compares with what it has
//! seen.
//! Trusted: arc-swap, which loom cannot look into; a stand-in with a mutex takes its place.

use crate::checker::thread;
use tollgate::sync::DataArc;
use tollgate::sync::snapshot::SnapshotCell;

use crate::model::{bound, check};

#[test]
fn two_publishers_against_a_reader() {
    check("snapshot: two publishers against a reader", bound::NONE, || {
        let versions = [1, 2, 3].map(DataArc::new);
        let cell = SnapshotCell::new(versions[0].clone());
        let mut reader = cell.reader();
        let [second, third] = [1, 2].map(|i: usize| {
            let (cell, new) = (cell.clone(), versions[i].clone());
            thread::spawn(move || {
                let version = *new;
                cell.replace_if(new, |now| *now < version).map_err(|now| *now)
            })
        });
        let mut seen = vec![1];
        seen.extend(reader.newer().map(|now| *now));
        seen.extend(reader.newer().map(|now| *now));
        assert!(matches!(second.join().unwrap(), Ok(()) | Err(3)));
        assert_eq!(third.join().unwrap(), Ok(()));
        if reader.has_newer() {
            seen.extend(reader.newer().map(|now| *now));
        }
        assert!(reader.newer().is_none());
        assert!(seen.is_sorted_by(|older, newer| older < newer), "{seen:?}");
        assert_eq!((seen.last(), *cell.load()), (Some(&3), 3));
        // What was replaced is held by nobody else any more.
        assert_eq!([0, 1].map(|i: usize| DataArc::strong_count(&versions[i])), [1, 1]);
        drop((cell, reader));
        assert_eq!(DataArc::strong_count(&versions[2]), 1);
    });
}
