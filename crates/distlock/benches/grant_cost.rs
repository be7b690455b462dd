//! What a release and the grant that follows it cost, by the number of waiters behind.
//!
//! Rounds over all sizes are interleaved, so that whatever else the machine does falls on all of
//! them alike; the medians and their ratio to the smallest size are printed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use distlock_core::law::{Now, Record};
use distlock_core::{
    Answer, Ask, Claim, ClaimId, ClientId, Key, Label, Moment, Order, ReleaseOptions,
    ReleaseOutcome, Target, Wait,
};

const SIZES: [usize; 5] = [10, 100, 1_000, 10_000, 100_000];
const ROUNDS: usize = 31;
const GRANTS_A_ROUND: u32 = 2_000;
const CLIENTS: u128 = 10;

fn main() {
    let mut lines: Vec<_> = SIZES.map(Line::new).into_iter().collect();
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); SIZES.len()];
    for _ in 0..ROUNDS {
        for (line, times) in lines.iter_mut().zip(&mut times) {
            times.push(line.round());
        }
    }
    println!("| waiters | release + grant, median ns | ratio |\n|---|---|---|");
    let medians: Vec<_> = times.iter_mut().map(|times| median(times)).collect();
    for (size, ns) in SIZES.iter().zip(&medians) {
        println!("| {size} | {ns:.0} | {:.2} |", ns / medians[0]);
    }
    let last = medians.len() - 1;
    println!("\ngrant_cost_100k_vs_10 = {:.2}", medians[last] / medians[0]);
}

/// One key with a holder and a constant number of waiters.
struct Line {
    record: Record,
    claims: VecDeque<Claim>,
    made: u128,
}

impl Line {
    fn new(waiters: usize) -> Self {
        let mut line = Self { record: Record::new(0), claims: VecDeque::new(), made: 0 };
        for _ in 0..=waiters {
            line.queue_one();
        }
        line
    }

    fn queue_one(&mut self) {
        self.made += 1;
        let key = Key::new("bench").expect("valid");
        let claim = Claim::new(key, ClaimId::from_bytes(self.made.to_be_bytes()));
        let ask = Ask {
            wait: Some(Wait { place: Duration::from_secs(3600), waiters_max: u32::MAX }),
            order: Order::Fifo,
            ..Ask::new(claim.clone(), Label::new("owner", "b").expect("valid"), LEASE)
        };
        let client = ClientId::from_bytes((self.made % CLIENTS).to_be_bytes());
        let (answer, _) = self.record.acquire(&ask, client, NOW);
        assert!(matches!(answer, Answer::Granted { .. } | Answer::Busy(_)), "{answer:?}");
        self.claims.push_back(claim);
    }

    /// Nanoseconds per release and grant; queueing the next waiter is not counted.
    fn round(&mut self) -> f64 {
        let mut spent = Duration::ZERO;
        for _ in 0..GRANTS_A_ROUND {
            self.queue_one();
            let holder = Target::Claim(self.claims.pop_front().expect("a client holds"));
            let start = Instant::now();
            let (outcome, notices) = self.record.release(&holder, ReleaseOptions::default(), NOW);
            spent += start.elapsed();
            assert_eq!(
                (outcome, notices.len()),
                (ReleaseOutcome::WasHeld, 1),
                "exactly one is admitted"
            );
        }
        spent.as_secs_f64() * 1e9 / f64::from(GRANTS_A_ROUND)
    }
}

const LEASE: Duration = Duration::from_secs(3600);
const NOW: Now = Now { at: Moment::ORIGIN, seed: 1 };

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
