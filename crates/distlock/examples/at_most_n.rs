//! At most three uploads at once, over the whole fleet.
//!
//! `cargo run --example at_most_n [URL]`, in several shells against one `redis://`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock::{Error, Locks};

static RUNNING: AtomicUsize = AtomicUsize::new(0);

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let locks = Locks::connect(&url)?;
    let uploads = locks.semaphore("uploads", 3)?;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 1..=8 {
        let uploads = uploads.clone();
        tasks.spawn(async move { uploads.with(async |_| upload(number).await).await });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no upload panics")?;
    }
    locks.close().await
}

async fn upload(number: u32) {
    let running = RUNNING.fetch_add(1, Ordering::SeqCst) + 1;
    println!("upload {number} starts, {running} at once here");
    tokio::time::sleep(Duration::from_millis(150)).await;
    RUNNING.fetch_sub(1, Ordering::SeqCst);
}
