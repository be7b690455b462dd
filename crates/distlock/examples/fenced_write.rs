//! A write that a paused holder cannot spoil: the fence goes along and the store checks it.
//!
//! `cargo run --example fenced_write [URL]`. The "database" is a map with the rule of the SQL
//! statement in the guarantees: take a write only if its fence is not smaller than the last.

use std::collections::HashMap;

use distlock::{Error, Locks};

/// A table whose rows remember the largest fence they have seen.
#[derive(Default)]
struct Accounts(HashMap<&'static str, (i64, u64)>);

impl Accounts {
    /// `UPDATE account SET balance = …, fence = … WHERE id = … AND fence <= …`
    fn update(&mut self, id: &'static str, balance: i64, fence: u64) -> bool {
        let row = self.0.entry(id).or_insert((0, 0));
        if fence < row.1 {
            return false;
        }
        *row = (balance, fence);
        true
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let locks = Locks::connect(&url)?;
    let mutex = locks.mutex("account/17")?;
    let mut accounts = Accounts::default();

    // The first holder reads, and is then paused for longer than its lease: here an operator
    // breaks its hold, which comes to the same.
    let paused = mutex.lock().await?;
    locks.break_hold("account/17", paused.fence()).await?;

    let next = mutex.lock().await?;
    println!("fence {} writes 250: {}", next.fence(), accounts.update("17", 250, next.fence()));
    println!("fence {} writes 100: {}", paused.fence(), accounts.update("17", 100, paused.fence()));
    println!("the balance is {}", accounts.0["17"].0);

    next.release().await?;
    locks.close().await
}
