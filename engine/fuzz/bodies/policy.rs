//! Any bytes as a policy file: a policy that works, or faults that say something, and neither is large.

use std::fs;

use tollgate::Scheduler;
use tollgate::policy::{PolicyFile, Profile, QueuePolicy};

/// Longest text of all faults of a file \[bytes\]: what somebody would scroll through.
const MOST_TEXT: usize = 2_000_000;

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return not_a_text(data);
    };
    match PolicyFile::parse(text) {
        Ok(file) => {
            let works = |profile: &Profile| {
                for family in [None, Some("regular"), Some("no such family"), Some("")] {
                    for uncached in [0, 1, 511, 512, u64::MAX] {
                        assert!(profile.classify(family, uncached).index() < profile.classes().len());
                    }
                }
                assert_eq!(Scheduler::<()>::new(profile).waiting(), 0);
            };
            file.root().into_iter().for_each(|profile| works(profile));
            works(&file.profile(Some("model"), || Profile::synthetic(Some(8_192), QueuePolicy::Fcfs)));
            assert!(file.warnings().iter().map(String::len).sum::<usize>() < MOST_TEXT);
        }
        Err(errors) => {
            let message = errors.to_string();
            assert!(!message.is_empty() && message.len() < MOST_TEXT, "{} bytes of faults", message.len());
            assert!(!errors.faults().is_empty());
        }
    }
}

/// Only a file can hold what is not a text.
fn not_a_text(data: &[u8]) {
    let path = std::env::temp_dir().join(format!("tollgate-fuzz-{}.yaml", std::process::id()));
    fs::write(&path, data).expect("the temporary folder can be written");
    let error = PolicyFile::read(&path).expect_err("not UTF-8");
    assert!(error.to_string().contains("tollgate-fuzz"), "{error}");
    fs::remove_file(&path).expect("it was just written");
}
