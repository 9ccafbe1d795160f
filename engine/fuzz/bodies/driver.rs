//! A fuzzer without feedback, for every day and every toolchain: the corpus, then random changes of it, the same ones
//! every time. `TOLLGATE_FUZZ_SECONDS` makes it go on for so long, from a seed of its own (`TOLLGATE_FUZZ_SEED`).

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Longest input \[bytes\].
const LONGEST: usize = 1 << 16;

/// Runs `body` on the files of `corpus` below `engine/fuzz/corpus` and on `usual` changes of them. An input that
/// panics is printed before the panic goes on.
pub(crate) fn pass(corpus: &str, dictionary: &[&str], usual: u64, mut body: impl FnMut(&[u8])) {
    let number = |name: &str| std::env::var(name).ok().map(|n| n.parse::<u64>().expect("a number"));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(corpus);
    let mut paths: Vec<_> =
        fs::read_dir(folder).expect("a corpus").map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let seeds: Vec<_> = paths.iter().map(|path| fs::read(path).expect("a file")).collect();
    assert!(!seeds.is_empty(), "the corpus is empty");
    let mut run = |input: &[u8]| {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(input))) {
            eprintln!("input: {:?}\nescaped: {}", String::from_utf8_lossy(input), input.escape_ascii());
            resume_unwind(panic);
        }
    };
    seeds.iter().for_each(|seed| run(seed));
    let long = number("TOLLGATE_FUZZ_SECONDS").map(Duration::from_secs);
    let mut random = Random(number("TOLLGATE_FUZZ_SEED").unwrap_or(1));
    let (start, mut runs) = (Instant::now(), 0);
    while long.map_or(runs < usual, |long| start.elapsed() < long) {
        let mut input = seeds[random.below(seeds.len())].clone();
        for _ in 0..1 + random.below(6) {
            change(&mut input, &seeds, dictionary, &mut random);
        }
        input.truncate(LONGEST);
        run(&input);
        runs += 1;
    }
    println!("{runs} runs of {corpus} in {:.1?}", start.elapsed());
}

fn change(input: &mut Vec<u8>, seeds: &[Vec<u8>], dictionary: &[&str], random: &mut Random) {
    let at = random.below(input.len() + 1);
    let to = (at + random.below(40)).min(input.len());
    match random.below(8) {
        0 if at < input.len() => input[at] ^= 1 << random.below(8),
        1 if at < input.len() => input[at] = random.next() as u8,
        2 => drop(input.drain(at..to)),
        3 => {
            // The same again, some times.
            let piece = input[at..to].repeat(1 + random.below(20));
            input.splice(at..at, piece);
        }
        4 => {
            let other = &seeds[random.below(seeds.len())];
            let from = random.below(other.len() + 1);
            let end = (from + random.below(200)).min(other.len());
            input.splice(at..to, other[from..end].iter().copied());
        }
        5 if dictionary.is_empty() => {
            let bytes = random.next().to_le_bytes();
            input.splice(at..at, bytes);
        }
        5 | 6 if !dictionary.is_empty() => {
            let word = dictionary[random.below(dictionary.len())];
            input.splice(at..at, word.bytes());
        }
        _ => input.truncate(at.max(input.len() / 2)),
    }
}
