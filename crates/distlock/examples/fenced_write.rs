//! Read, change, write under a lock, such that a paused holder loses no update.
//!
//! `cargo run --example fenced_write [URL]`. The "database" is a map that follows the SQL of the
//! guarantees: raise the fence, then read, then write under the same fence. The program pauses a
//! holder between its read and its write, lets it write at every point of the next holder's work,
//! and checks that every deposit that was confirmed is in the balance.

use std::collections::HashMap;

use distlock::{Error, Locks};

/// A table whose rows keep the largest fence that they were given.
#[derive(Default)]
struct Accounts(HashMap<&'static str, Row>);

#[derive(Clone, Copy, Default)]
struct Row {
    balance: i64,
    fence: u64,
}

impl Accounts {
    /// `UPDATE account SET fence = :fence WHERE id = :id AND fence <= :fence`
    fn raise(&mut self, id: &'static str, fence: u64) -> bool {
        let row = self.0.entry(id).or_default();
        let current = row.fence <= fence;
        row.fence = row.fence.max(fence);
        current
    }

    /// `SELECT balance FROM account WHERE id = :id`
    fn read(&self, id: &'static str) -> i64 {
        self.0.get(id).copied().unwrap_or_default().balance
    }

    /// `UPDATE account SET balance = :balance WHERE id = :id AND fence = :fence`
    fn write(&mut self, id: &'static str, balance: i64, fence: u64) -> bool {
        match self.0.get_mut(id) {
            Some(row) if row.fence == fence => {
                row.balance = balance;
                true
            }
            _ => false,
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    demonstrate(&url).await
}

/// One run for each number of steps that the next holder takes before the paused one wakes up.
pub(crate) async fn demonstrate(url: &str) -> Result<(), Error> {
    let locks = Locks::connect(url)?;
    let mutex = locks.mutex("account/17")?;
    for steps_before in 0..=3 {
        let mut accounts = Accounts::default();

        // The first holder raises the fence and reads. Then it is paused for longer than its
        // lease. An operator's break stands for that pause: the holder does not notice it either.
        let paused = mutex.lock().await?;
        assert!(accounts.raise("17", paused.fence()));
        let old = accounts.read("17");
        locks.break_hold("account/17", paused.fence()).await?;

        let next = mutex.lock().await?;
        let fence = next.fence();
        let (mut late, mut seen) = (false, 0);
        for step in 0..=3 {
            if step == steps_before {
                late = accounts.write("17", old + 10, paused.fence());
            }
            match step {
                0 => assert!(accounts.raise("17", fence)),
                1 => seen = accounts.read("17"),
                2 => assert!(accounts.write("17", seen + 5, fence)),
                _ => (),
            }
        }
        let (balance, confirmed) = (accounts.read("17"), 5 + if late { 10 } else { 0 });
        println!(
            "paused write after {steps_before} steps of the next holder: {}, balance {balance}",
            if late { "confirmed" } else { "refused" },
        );
        assert_eq!(balance, confirmed, "a confirmed deposit is lost");
        next.release().await?;
    }
    locks.close().await
}
