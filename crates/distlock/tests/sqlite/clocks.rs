//! Restarts, namespaces and jumps: what becomes of leases and fences.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use distlock::backends::Sqlite;
use distlock_core::{Answer, Backend, ManualClock, Renewal, Standing};
use futures_util::StreamExt;

use crate::other_process::Peer;
use crate::support::{LONG, Place, ask, granted, queued, release, waits};

#[tokio::test]
async fn a_restart_of_the_machine_clears_everything_and_fences_go_on() {
    let (place, clock) = (Place::new(), ManualClock::new());
    let boot = |name| Sqlite::with_clock(&place.file, name, Arc::new(clock.clone())).unwrap();
    let before = boot("one");
    let (holder, waiter) = (ask("k"), queued("k"));
    let fence = granted(&before, &holder).await;
    let ticket = waits(&before, &waiter).await;
    let incarnation = before.probe().await.unwrap().incarnation;

    let after = boot("two");
    let later = granted(&after, &ask("k")).await;
    assert!(later > fence && later > ticket);
    assert_ne!(after.probe().await.unwrap().incarnation, incarnation);
    let rows: u64 = place.number("SELECT count(*) FROM waiters");
    assert_eq!(rows, 0);

    // Who still runs on the clock of before is told instead of being mixed up.
    let fault = before.acquire(&holder).await.unwrap_err();
    assert!(!fault.is_transient() && fault.to_string().contains("another machine"), "{fault}");
}

#[tokio::test]
async fn fences_grow_after_a_loss_of_power_even_if_the_last_commits_are_lost() {
    let (place, clock) = (Place::new(), ManualClock::new());
    let boot = |name| Sqlite::with_clock(&place.file, name, Arc::new(clock.clone())).unwrap();
    let before = boot("one");
    let (first, second) = (ask("k"), ask("k"));
    granted(&before, &first).await;
    release(&before, &first).await;
    let fence = granted(&before, &second).await;
    drop(before);
    // All that is certain to be on the disk is the ceiling, and the wall clock may be wrong, too.
    place.shell().execute("UPDATE store SET counter = 1", []).unwrap();
    assert!(granted(&boot("two"), &ask("k")).await > fence);
}

#[tokio::test]
async fn the_ceiling_is_raised_before_a_fence_above_it_is_given_out() {
    let place = Place::new();
    let here = place.client();
    let fence = granted(&here, &ask("a")).await;
    place.shell().execute("UPDATE store SET ceiling = counter", []).unwrap();
    let next = granted(&here, &ask("b")).await;
    let ceiling: u64 = place.number("SELECT ceiling FROM store");
    assert!(next > fence && ceiling > next, "{fence} {next} {ceiling}");
}

#[tokio::test]
async fn a_wall_clock_that_goes_back_changes_nothing() {
    let place = Place::new();
    let here = place.client();
    let holder = ask("k");
    granted(&here, &holder).await;
    // As if all before had happened a year ahead of the present wall clock.
    let year =
        "UPDATE store SET counter = counter + 31536000000000, ceiling = ceiling + 31536000000000";
    place.shell().execute(year, []).unwrap();
    let ahead: u64 = place.number("SELECT counter FROM store");
    assert!(matches!(here.acquire(&ask("k")).await.unwrap(), Answer::Busy(_)));
    release(&here, &holder).await;
    assert_eq!(granted(&here, &ask("k")).await, ahead + 1);
}

#[tokio::test]
async fn a_lease_ends_at_the_same_moment_in_every_time_namespace() {
    let place = Place::new();
    let mut shifted = Command::new("unshare");
    shifted.args(["--time", "--boottime", "864000", "--"]);
    let mut permitted = Command::new("unshare");
    permitted.args(["--time", "--boottime", "864000", "--", "true"]);
    if !permitted.output().is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: this user may not make time namespaces");
        return;
    }
    shifted.arg(std::env::current_exe().unwrap());
    let (here, peer) = (place.client(), Peer::start_as(shifted, &place.file, None));
    let there = peer.client();
    let (ours, theirs) = (ask("ours"), ask("theirs"));
    granted(&here, &ours).await;
    granted(&*there, &theirs).await;
    for (client, key) in [(&here as &dyn Backend, &theirs), (&*there, &ours)] {
        let seen = client.inspect(&key.claim.key).await.unwrap();
        let left = seen.holders[0].expires_in.unwrap();
        assert!(left <= LONG && left > Duration::ZERO, "{left:?} left");
        assert!(matches!(client.acquire(&ask(key.claim.key.as_str())).await, Ok(Answer::Busy(_))));
    }
    let renewal = [Renewal::hold(ours.claim.clone(), LONG)];
    let standing = here.renew(&renewal).next().await.unwrap().1.unwrap();
    assert!(matches!(standing, Standing::Held { .. }));
}
