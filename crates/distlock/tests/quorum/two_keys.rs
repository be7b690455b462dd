//! One id of a caller's for two keys is two claims: what happens to one changes nothing for the
//! other, also on nodes that fail.

use std::sync::Arc;
use std::time::Duration;

use distlock::backends::Quorum;
use distlock::{Backend, Key, Label};
use distlock_core::{
    Answer, Ask, Claim, ClaimId, ReleaseOptions, ReleaseOutcome, Renewal, Standing, Target,
};
use futures_util::StreamExt;
use tokio::time::sleep;

use crate::support::{Mortal, mortals, quorum_of};

const TTL: Duration = Duration::from_secs(30);

fn asks() -> [Ask; 2] {
    let id = ClaimId::random().unwrap();
    ["a", "b"].map(|key| {
        let claim = Claim::new(Key::new(key).unwrap(), id);
        Ask::new(claim, Label::new("owner", "me").unwrap(), TTL)
    })
}

async fn granted(quorum: &Quorum, ask: &Ask) {
    let answer = quorum.acquire(ask).await.unwrap();
    assert!(matches!(answer, Answer::Granted { .. }), "{answer:?}");
    // Let every node answer, so that nothing is late.
    sleep(Duration::from_millis(50)).await;
}

async fn released(quorum: &Quorum, ask: &Ask) {
    let target = Target::Claim(ask.claim.clone());
    let outcome = quorum.release(&target, ReleaseOptions::default()).await.unwrap();
    assert_eq!(outcome, ReleaseOutcome::WasHeld);
}

async fn renewed(quorum: &Quorum, ask: &Ask) {
    let batch = [Renewal::hold(ask.claim.clone(), TTL)];
    let standings: Vec<_> = quorum.renew(&batch).collect().await;
    assert!(matches!(standings[..], [(0, Ok(Standing::Held { .. }))]), "{standings:?}");
    sleep(Duration::from_millis(50)).await;
}

async fn has(node: &Arc<Mortal>, ask: &Ask) -> bool {
    !node.inspect(&ask.claim.key).await.unwrap().is_free()
}

/// Takes the key away from one node, as a server that lost one write.
async fn loses(node: &Arc<Mortal>, ask: &Ask) {
    node.release(&Target::Claim(ask.claim.clone()), ReleaseOptions::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_lost_one_of_two_keys_is_given_that_one_back() {
    let nodes = mortals(3);
    let (quorum, [a, b]) = (quorum_of(&nodes), asks());
    for ask in [&a, &b] {
        granted(&quorum, ask).await;
    }
    loses(&nodes[2], &a).await;
    renewed(&quorum, &a).await;
    assert!(has(&nodes[2], &a).await, "the renewal gave back the other key");
    // The end of the other claim does not make the quorum forget this one.
    released(&quorum, &b).await;
    loses(&nodes[2], &a).await;
    renewed(&quorum, &a).await;
    assert!(has(&nodes[2], &a).await && !has(&nodes[2], &b).await);
}

#[tokio::test(start_paused = true)]
async fn asking_for_another_key_does_not_end_a_release_that_a_node_has_not_heard() {
    let nodes = mortals(3);
    let (quorum, [a, b]) = (quorum_of(&nodes), asks());
    granted(&quorum, &a).await;
    nodes[2].set_down(true);
    released(&quorum, &a).await;
    granted(&quorum, &b).await;
    nodes[2].set_down(false);
    sleep(Duration::from_secs(3)).await;
    assert!(!has(&nodes[2], &a).await, "its lease would last for 25 s more");
    assert!(has(&nodes[0], &b).await);
}

#[tokio::test(start_paused = true)]
async fn an_ask_that_is_late_at_a_node_stays_known_when_the_other_key_is_released() {
    let nodes = mortals(3);
    let (quorum, [a, b]) = (quorum_of(&nodes), asks());
    granted(&quorum, &a).await;
    nodes[2].set_hanging(true);
    granted(&quorum, &b).await;
    released(&quorum, &a).await;
    released(&quorum, &b).await;
    nodes[2].set_hanging(false);
    sleep(Duration::from_secs(3)).await;
    assert!(!has(&nodes[2], &b).await, "the ask arrived after its release");
}
