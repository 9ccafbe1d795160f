//! The worker: continuous batching with chunked prefill, step by step in virtual time.
//!
//! A worker serves up to `slots` requests at a time and works in steps. A step takes one token of every request that
//! decodes and fills the rest of its token budget with prompts, in the order in which they came; a prompt that does not fit
//! is continued in the next step. With the end of the step that finishes its prompt a request has its first token, and one
//! more with each later step. (Agrawal et al., "Taming Throughput-Latency Tradeoff in LLM Inference with Sarathi-Serve",
//! OSDI 2024.)
//!
//! Steps that are alike are one event: while a worker only decodes, or works on a prompt of many chunks, nothing changes
//! until the last of them, or until somebody new comes. The times are those of single steps.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;

/// Number of a request in flight.
pub type Flight = u32;

/// How long a step takes: `base + prefill × prompt tokens + decode × decoding requests`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepTime {
    /// Whatever is in the step \[ns\].
    pub base: f64,
    /// Per prompt token \[ns\].
    pub prefill: f64,
    /// Per request that decodes \[ns\].
    pub decode: f64,
}

impl StepTime {
    /// Time of a step \[ns\], at least 1.
    fn of(&self, prompt: u64, decoding: usize) -> u64 {
        let ns = self.base + self.prefill * prompt as f64 + self.decode * decoding as f64;
        (ns.round() as u64).max(1)
    }
}

/// What all workers are like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkerModel {
    /// Requests that are served at the same time.
    pub slots: u32,
    /// Tokens of a step, above `slots`.
    pub step_tokens: u64,
    /// Time of a step.
    pub time: StepTime,
}

/// A request that reached a mark at the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Its prompt is computed: first token.
    FirstToken(Flight),
    /// Last token.
    Done(Flight),
}

/// What a worker has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Time with a step running \[ns\].
    pub busy: u64,
    /// Time of its slots with a request in them \[ns\].
    pub slots: u128,
    /// Prompt tokens computed.
    pub prefill: u64,
    /// Steps.
    pub steps: u64,
    /// Requests finished.
    pub finished: u64,
}

/// Steps that are alike, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: u64,
    /// Time of one step \[ns\].
    step: u64,
    steps: u64,
    /// Prompt tokens of one step.
    prompt: u64,
}

impl Run {
    /// When the last of the steps ends \[ns\].
    fn end(&self) -> u64 {
        self.start.saturating_add(self.step.saturating_mul(self.steps))
    }
}

/// One worker.
pub struct Worker {
    /// Sent here, without a slot: with the answer's tokens.
    queue: VecDeque<(Flight, u64)>,
    /// With a slot, prompt not finished: prompt tokens left, answer.
    prefill: VecDeque<(Flight, u64, u64)>,
    /// With their first token: the step that gives the last one.
    decode: BinaryHeap<Reverse<(u64, Flight)>>,
    /// Steps done.
    steps: u64,
    run: Option<Run>,
    /// Counts the changes of `run`, to tell which announced end is still true.
    pub(super) epoch: u32,
    /// What was done.
    pub work: Work,
}

impl Worker {
    /// An idle worker.
    pub fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            prefill: VecDeque::new(),
            decode: BinaryHeap::new(),
            steps: 0,
            run: None,
            epoch: 0,
            work: Work::default(),
        }
    }

    /// Requests here, with or without a slot.
    pub fn requests(&self) -> usize {
        self.queue.len() + self.in_slots()
    }

    fn in_slots(&self) -> usize {
        self.prefill.len() + self.decode.len()
    }

    /// Whether no step is running.
    pub fn is_idle(&self) -> bool {
        self.run.is_none()
    }

    /// Sends a request here, with an answer of `output` tokens. Call [`plan`](Self::plan) afterwards, with the same time.
    pub fn send(&mut self, flight: Flight, output: u64) {
        self.queue.push_back((flight, output.max(1)));
    }

    /// Decides what is done next, at time `now` \[ns\], and returns when it ends; `None` if nothing changes from what was
    /// announced before, or if there is nothing to do. `prompt` says how many prompt tokens a request that gets a slot has
    /// to compute.
    pub fn plan(
        &mut self,
        now: u64,
        model: &WorkerModel,
        mut prompt: impl FnMut(Flight) -> u64,
    ) -> Option<u64> {
        if let Some(run) = &mut self.run {
            // Somebody came while steps are running: only the end of a step lets anybody in, and only if there is room in
            // the next one.
            let full = run.prompt + self.decode.len() as u64 >= model.step_tokens;
            let welcome = self.prefill.len() + self.decode.len() < model.slots as usize && !full;
            if self.queue.is_empty() || !welcome {
                return None;
            }
            let steps = (now - run.start).div_ceil(run.step).max(1);
            if steps >= run.steps {
                return None;
            }
            run.steps = steps;
            self.epoch = self.epoch.wrapping_add(1);
            return Some(run.end());
        }
        while self.in_slots() < model.slots as usize
            && let Some((flight, output)) = self.queue.pop_front()
        {
            self.prefill.push_back((flight, prompt(flight).max(1), output));
        }
        let decoding = self.decode.len();
        let until_done = self.decode.peek().map_or(u64::MAX, |Reverse((end, _))| end - self.steps);
        let budget = model.step_tokens.saturating_sub(decoding as u64).max(1);
        let (steps, prompt) = match self.prefill.front() {
            None if decoding == 0 => return None,
            None => (until_done, 0),
            // Whole steps that do not finish the first prompt.
            Some((_, left, _)) if *left > budget => (((left - 1) / budget).min(until_done), budget),
            Some(_) => {
                let mut sum = 0u64;
                for (_, left, _) in &self.prefill {
                    sum = sum.saturating_add(*left);
                    if sum >= budget {
                        break;
                    }
                }
                (1, sum.min(budget))
            }
        };
        let run = Run { start: now, step: model.time.of(prompt, decoding), steps, prompt };
        self.run = Some(run);
        self.epoch = self.epoch.wrapping_add(1);
        Some(run.end())
    }

    /// Ends the steps whose end was announced, and says who got how far. Call [`plan`](Self::plan) afterwards.
    ///
    /// # Panics
    /// If no step is running.
    pub fn finish(&mut self, mut progress: impl FnMut(Progress)) {
        let run = self.run.take().expect("a worker whose step ends runs one");
        let slots = self.in_slots() as u64;
        let time = run.step.saturating_mul(run.steps);
        let work = &mut self.work;
        work.busy = work.busy.saturating_add(time);
        work.slots += u128::from(slots) * u128::from(time);
        work.prefill += run.prompt * run.steps;
        work.steps += run.steps;
        self.steps += run.steps;

        let mut prompt = run.prompt * run.steps;
        while prompt > 0 {
            let (flight, left, output) = self.prefill.front_mut().expect("a prompt was computed");
            let part = prompt.min(*left);
            prompt -= part;
            *left -= part;
            if *left == 0 {
                let (flight, output) = (*flight, *output);
                self.prefill.pop_front();
                progress(Progress::FirstToken(flight));
                match output {
                    0 | 1 => {
                        self.work.finished += 1;
                        progress(Progress::Done(flight));
                    }
                    _ => self.decode.push(Reverse((self.steps + output - 1, flight))),
                }
            }
        }
        while let Some(Reverse((end, flight))) = self.decode.peek().copied()
            && end <= self.steps
        {
            self.decode.pop();
            self.work.finished += 1;
            progress(Progress::Done(flight));
        }
    }
}

impl Default for Worker {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("requests", &self.requests()).field("run", &self.run).finish()
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    const MODEL: WorkerModel = WorkerModel {
        slots: 4,
        step_tokens: 100,
        time: StepTime { base: 1_000.0, prefill: 10.0, decode: 1.0 },
    };

    /// Runs requests (arrival, prompt, answer) and returns when each got its first and its last token. With `single`, every
    /// run is cut to one step.
    fn run(model: &WorkerModel, requests: &[(u64, u64, u64)], single: bool) -> Vec<(u64, u64)> {
        let mut worker = Worker::new();
        let mut times = vec![(0, 0); requests.len()];
        let (mut next, mut end) = (0, None);
        loop {
            let arrival = requests.get(next).map(|r| r.0);
            let Some(now) = end.into_iter().chain(arrival).min() else { return times };
            if end == Some(now) {
                end = None;
                worker.finish(|progress| match progress {
                    Progress::FirstToken(flight) => times[flight as usize].0 = now,
                    Progress::Done(flight) => times[flight as usize].1 = now,
                });
            }
            while next < requests.len() && requests[next].0 == now {
                worker.send(next as Flight, requests[next].2);
                next += 1;
            }
            let planned = worker.plan(now, model, |flight| requests[flight as usize].1);
            end = planned.or(end);
            if single && let Some(run) = &mut worker.run {
                run.steps = run.steps.min(1 + (now - run.start) / run.step.max(1));
                end = Some(run.start + run.steps * run.step);
            }
        }
    }

    #[test]
    fn a_prompt_is_computed_in_chunks_and_each_step_gives_a_token() {
        // Three chunks of 100, 100 and 50; then two steps with one decoder.
        assert_eq!(run(&MODEL, &[(5, 250, 3)], false), [(5 + 2_000 + 2_000 + 1_500, 5 + 5_500 + 2 * 1_001)]);
    }

    #[test]
    fn prompts_share_a_step_and_decoding_takes_from_its_budget() {
        // Both fit into the first step. In the second one a third comes; one token of each decoder goes first.
        let times = run(&MODEL, &[(0, 40, 3), (0, 60, 2), (2_000, 99, 1)], false);
        assert_eq!(times[0].0, 2_000);
        assert_eq!(times[1].0, 2_000);
        // 98 prompt tokens and 2 decoders, then the last prompt token with one.
        assert_eq!(times[1].1, 2_000 + 1_000 + 980 + 2);
        assert_eq!(times[2], (3_982 + 1_011, 3_982 + 1_011));
        assert_eq!(times[0].1, 3_982 + 1_011);
    }

    #[test]
    fn who_comes_during_a_step_waits_for_its_end_and_for_a_slot() {
        let model = WorkerModel { slots: 1, ..MODEL };
        let times = run(&model, &[(0, 10, 2), (1, 10, 1)], false);
        assert_eq!(times, [(1_100, 2_101), (3_201, 3_201)]);
        let times = run(&MODEL, &[(0, 10, 100), (1_101 + 500, 10, 1)], false);
        assert_eq!(times[1].0, 2_101 + 1_101);
    }

    #[test]
    fn runs_of_steps_give_the_times_of_single_steps() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        for _ in 0..300 {
            let model = WorkerModel { slots: rng.random_range(1..6), ..MODEL };
            let mut at = 0;
            let requests: Vec<_> = (0..40)
                .map(|_| {
                    at += rng.random_range(0..6_000);
                    (at, rng.random_range(0..700), rng.random_range(0..30))
                })
                .collect();
            assert_eq!(run(&model, &requests, false), run(&model, &requests, true));
        }
    }
}
