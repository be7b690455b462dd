//! What clients of the law see through a bad network is a good history.

mod support;

use std::sync::Arc;
use std::time::Duration;

use distlock_core::{
    Answer, Ask, Backend, Busy, Moment, Order, ReleaseOptions, Renewal, Standing, Target, Wait,
};
use distlock_testkit::history::{AcquireSpec, History, HistoryEntry, Rule, ValidityEnd};
use distlock_testkit::{Faults, Faulty, Rng};
use futures_util::StreamExt;
use support::{Bug, Store, ask};
use tokio::time::{Instant, sleep};

/// One client that wants the key again and again through a bad network, and writes down what it
/// sees. It heartbeats by itself, trusts answers only, and stops believing in its lease in time.
struct Player {
    faulty: Faulty,
    history: History,
    began: Instant,
    rng: Rng,
    number: u128,
}

const PLACE: Duration = Duration::from_secs(4);
const TTL: Duration = Duration::from_secs(5);

impl Player {
    fn now(&self) -> Moment {
        Moment::ORIGIN.after(self.began.elapsed())
    }

    fn wish(&mut self, order: Order) -> (Ask, AcquireSpec) {
        self.number += 1;
        let mut ask = ask("k", self.number, TTL);
        ask.order = order;
        let wish = match (order, self.rng.below(3)) {
            (Order::Fifo, 0) => AcquireSpec::mutex("k"),
            (Order::Fifo, _) => {
                AcquireSpec::permits("k", 1 + u32::try_from(self.rng.below(3)).unwrap_or(0), 4)
            }
            (_, 0) => AcquireSpec::write("k", order),
            (_, _) => AcquireSpec::read("k", order),
        };
        (ask.weight, ask.capacity) = (wish.weight, wish.capacity);
        let waits = self.rng.chance(0.8);
        ask.wait = waits.then_some(Wait { place: PLACE, waiters_max: 100 });
        (ask, wish)
    }

    async fn play(mut self, order: Order, rounds: usize) {
        for _ in 0..rounds {
            let (ask, wish) = self.wish(order);
            let entry = self.history.asks(wish, self.now());
            self.acquire(&ask, &entry).await;
            let how = ReleaseOptions { bury: Duration::from_secs(60), ..ReleaseOptions::default() };
            let target = Target::Claim(ask.claim.clone());
            while self.faulty.release(&target, how).await.is_err() {}
            sleep(Duration::from_millis(self.rng.below(500))).await;
        }
    }

    /// Asks until it holds, then holds until it has had enough or is lost.
    async fn acquire(&mut self, ask: &Ask, entry: &HistoryEntry) {
        let sent = self.now();
        match self.faulty.acquire(ask).await {
            Ok(Answer::Granted { fence }) => {
                self.hold(entry, fence, sent.after(TTL * 9 / 10)).await;
            }
            Ok(Answer::Busy(Busy { ticket: Some(ticket), .. })) => {
                entry.waits(ticket, self.now());
                self.wait(ask, entry).await;
            }
            _ => {}
        }
    }

    async fn wait(&mut self, ask: &Ask, entry: &HistoryEntry) {
        for _ in 0..40 {
            sleep(Duration::from_millis(300)).await;
            let sent = self.now();
            let batch = [Renewal::hold(ask.claim.clone(), PLACE)];
            let standing = self.faulty.renew(&batch).next().await;
            match standing {
                Some((_, Ok(Standing::Waiting(waiting)))) => {
                    entry.waits(waiting.ticket, self.now());
                }
                Some((_, Ok(Standing::Held { fence }))) => {
                    return self.hold(entry, fence, sent.after(PLACE * 9 / 10)).await;
                }
                Some((_, Ok(_))) => return,
                _ => {}
            }
        }
    }

    async fn hold(&mut self, entry: &HistoryEntry, fence: u64, valid_until: Moment) {
        let now = self.now();
        if now >= valid_until {
            return;
        }
        entry.granted(fence, now);
        entry.valid_until(valid_until);
        sleep(Duration::from_millis(self.rng.below(2_000)).min(valid_until.since(now))).await;
        let end = if self.now() < valid_until { ValidityEnd::Released } else { ValidityEnd::Lost };
        entry.ended(end, self.now());
    }
}

async fn game(seed: u64, order: Order, bug: Bug) -> History {
    let history = History::new(seed);
    let began = Instant::now();
    let clients = Store::clients(6, bug).into_iter().enumerate();
    let players = clients.map(|(index, store): (usize, Arc<dyn Backend>)| {
        let seed = seed * 100 + index as u64;
        let faulty = Faulty::new(store, seed, Faults::all(0.1, Duration::from_millis(300)));
        let number = (index as u128) << 64;
        let player =
            Player { faulty, history: history.clone(), began, rng: Rng::new(seed), number };
        tokio::spawn(player.play(order, 20))
    });
    for player in players.collect::<Vec<_>>() {
        player.await.expect("no panic");
    }
    history
}

#[tokio::test(start_paused = true)]
async fn clients_of_the_law_behind_a_bad_network_break_no_rule() {
    for order in [Order::Fifo, Order::PreferWriters, Order::PreferReaders] {
        for seed in 1..=15 {
            let history = game(seed, order, Bug::None).await;
            history.assert_ok();
            assert!(history.tally().granted > 20, "{order}: {:?}", history.tally());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_excludes_nobody_is_found_out() {
    let history = game(1, Order::Fifo, Bug::GrantsEverything).await;
    assert!(history.check().iter().any(|violation| violation.rule == Rule::Exclusion));
}
