//! A call that is alive and not polled delays no other call of its client.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use distlock::backends::Quorum;
use distlock::{Backend, Key, Label};
use distlock_core::{Answer, Ask, Claim, ClaimId, ReleaseOptions, Renewal, Target};
use distlock_testkit::sweep::sweep_unpolled;
use distlock_testkit::{Faults, Faulty};
use futures_util::StreamExt;

use crate::support::{Mortal, mortals, named, quorum_of};

const TTL: Duration = Duration::from_secs(30);

/// A call on healthy nodes takes a few round trips of 20 ms; half a second is not one of them.
const BOUND: Duration = Duration::from_millis(500);

type Running = Pin<Box<dyn Future<Output = ()>>>;
type Call = fn(Quorum, Ask) -> Running;

fn ask(key: &str) -> Ask {
    let claim = Claim::new(Key::new(key).unwrap(), ClaimId::random().unwrap());
    Ask::new(claim, Label::new("owner", "me").unwrap(), TTL)
}

async fn renew(quorum: &Quorum, claim: Claim) {
    let batch = [Renewal::hold(claim, TTL)];
    let _ = quorum.renew(&batch).next().await;
}

/// Every call of a quorum, on a claim that it holds if it was held before.
const CALLS: [(&str, Call); 9] = [
    ("acquire", |q, ask| Box::pin(async move { drop(q.acquire(&ask).await) })),
    ("renew", |q, ask| Box::pin(async move { renew(&q, ask.claim).await })),
    ("release", |q, ask| {
        let target = Target::Claim(ask.claim);
        Box::pin(async move { drop(q.release(&target, ReleaseOptions::default()).await) })
    }),
    ("release_everywhere", |q, ask| {
        Box::pin(async move { drop(q.release_everywhere(&ask.claim.key, ask.claim.id).await) })
    }),
    ("inspect", |q, ask| Box::pin(async move { drop(q.inspect(&ask.claim.key).await) })),
    ("list", |q, _| Box::pin(async move { drop(q.list("", None).await) })),
    ("probe", |q, _| Box::pin(async move { drop(q.probe().await) })),
    ("confirm", |q, ask| {
        let renewal = Renewal::hold(ask.claim, TTL);
        Box::pin(async move { drop(q.extensions().confirm(&renewal, 1).await) })
    }),
    ("drain", |q, _| Box::pin(async move { drop(q.extensions().drain().await) })),
];

/// When a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Situation {
    /// No client has used the nodes before: the quorum is founded.
    Founding,
    /// It is the first call of this client.
    First,
    /// The client holds the claim.
    Held,
    /// The nodes have restarted and forgotten everything, and are looked at again.
    Forgot,
    /// Two nodes of five do not answer.
    Hung,
}

const SITUATIONS: [Situation; 5] =
    [Situation::Founding, Situation::First, Situation::Held, Situation::Forgot, Situation::Hung];

struct Stage {
    quorum: Quorum,
    held: Ask,
}

/// A client of these nodes to which every answer takes 20 ms.
fn client(nodes: &[Arc<Mortal>]) -> Quorum {
    let far = Faults { delay: (1.0, Duration::from_millis(20)), ..Faults::NONE };
    let distant = |(at, node): (u64, &Arc<Mortal>)| {
        Arc::new(Faulty::new(Arc::clone(node) as Arc<dyn Backend>, at, far)) as Arc<dyn Backend>
    };
    Quorum::new(named((0..).zip(nodes).map(distant))).unwrap()
}

async fn granted(quorum: &Quorum, ask: &Ask) {
    let answer = quorum.acquire(ask).await.unwrap();
    assert!(matches!(answer, Answer::Granted { .. }), "{answer:?}");
}

async fn prepare(situation: Situation) -> Stage {
    let nodes = mortals(5);
    let (quorum, held) = (client(&nodes), ask("held"));
    if situation != Situation::Founding {
        granted(&quorum_of(&nodes), &ask("another")).await;
    }
    if !matches!(situation, Situation::Founding | Situation::First) {
        granted(&quorum, &held).await;
    }
    match situation {
        // A minority, so that the others can still decide.
        Situation::Forgot => nodes[..2].iter().for_each(|node| node.forget()),
        Situation::Hung => {
            nodes[..2].iter().for_each(|node| node.set_hanging(true));
            granted(&quorum, &ask("silence is noticed")).await;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        _ => {}
    }
    Stage { quorum, held }
}

/// Other callers of the same client take, renew and give back a key of their own.
async fn others(quorum: &Quorum) {
    let own = ask("others");
    granted(quorum, &own).await;
    renew(quorum, own.claim.clone()).await;
    quorum.release(&Target::Claim(own.claim), ReleaseOptions::default()).await.unwrap();
    quorum.inspect(&Key::new("others").unwrap()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_polled_delays_no_other_call_of_its_client() {
    let mut left_alone = 0;
    for situation in SITUATIONS {
        // Inspecting waits for every node, as long as a node is given.
        let bound = if situation == Situation::Hung { BOUND * 3 } else { BOUND };
        for (name, call) in CALLS {
            println!("{name} {situation:?}");
            let slot = std::cell::RefCell::new(None);
            #[expect(clippy::async_yields_async, reason = "the sweep polls the call, step by step")]
            let make = async || {
                let Stage { quorum, held } = prepare(situation).await;
                slot.replace(Some(quorum.clone()));
                call(quorum, held)
            };
            let check = async |_| {
                let quorum = slot.take().unwrap();
                others(&quorum).await;
            };
            left_alone += sweep_unpolled(make, bound, check).await;
        }
    }
    println!("{left_alone} calls left alone");
    assert!(left_alone > 100, "only {left_alone}");
}
