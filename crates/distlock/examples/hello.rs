//! Two tasks that must not work at once.

use std::time::Duration;

use distlock::{Error, Locks};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let locks = Locks::memory();
    let ann = tokio::spawn(deploy(locks.clone(), "ann"));
    let bob = tokio::spawn(deploy(locks.clone(), "bob"));
    for task in [ann, bob] {
        task.await.expect("no task panics")?;
    }
    locks.close().await
}

async fn deploy(locks: Locks, name: &str) -> Result<(), Error> {
    let mutex = locks.configure(|o| o.owner(name))?.mutex("deploy/prod")?;
    let guard = mutex.lock().await?;
    println!("{name} deploys with fence {}, waited {:?}", guard.fence(), guard.waited());
    guard.run(tokio::time::sleep(Duration::from_millis(300))).await?;
    println!("{name} is done: {:?}", guard.release().await?);
    Ok(())
}
