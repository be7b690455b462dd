//! A nightly job that every machine of a fleet starts and only one runs.
//!
//! `cargo run --example cron_singleton [URL]`, on several machines at once.

use std::time::Duration;

use distlock::{Error, Locks};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let locks = Locks::connect(&url)?.configure(|o| {
        // Clocks of a fleet differ by seconds: the client that starts late must still find it
        // taken.
        o.reason("nightly report").hold_at_least(Duration::from_secs(30))
    })?;
    let outcome = match locks.mutex("cron/nightly-report")?.try_lock().await {
        Ok(guard) => {
            println!("running the report, fence {}", guard.fence());
            guard.run(report()).await?;
            guard.release().await.map(|end| println!("done: {end:?}"))
        }
        Err(Error::Held { holder: Some(holder), .. }) => {
            println!("{} is on it since {:?}", holder.owner, holder.held_for);
            Ok(())
        }
        Err(error) => Err(error),
    };
    locks.close().await?;
    outcome
}

async fn report() {
    tokio::time::sleep(Duration::from_millis(200)).await;
}
