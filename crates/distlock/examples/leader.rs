//! Stand by, lead while you hold the lock, stand by again.
//!
//! `cargo run --example leader [URL] [ROUNDS]`, in several shells against one `redis://`.

use std::time::Duration;

use distlock::{Error, Guard, HoldEnd, Locks};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or_else(|| "memory:".into());
    let rounds: u32 = args.next().and_then(|rounds| rounds.parse().ok()).unwrap_or(2);

    let short = Duration::from_secs(5); // how long no client leads after a crash
    let locks = Locks::connect(&url)?.configure(|o| o.ttl(short))?;
    for _ in 0..rounds {
        let guard = locks.mutex("leader")?.lock().await?;
        println!("leading in term {}, waited {:?}", guard.fence(), guard.waited());
        match guard.run(lead(&guard)).await {
            Ok(()) => assert_eq!(guard.release().await?, HoldEnd::Released),
            Err(Error::Lost { reason, .. }) => println!("no longer leading: {reason}"),
            Err(error) => return Err(error),
        }
    }
    locks.close().await
}

/// What a leader does. It is dropped where it stands if the lock is lost.
async fn lead(guard: &Guard) {
    for task in 1..=3 {
        println!("  term {}: task {task}", guard.fence());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
