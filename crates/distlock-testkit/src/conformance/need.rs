//! What a promise needs of a backend, and how a backend without it has to answer.

use distlock_core::{Answer, Capabilities, Fault, FaultKind, Order, ReleaseOutcome, Renewal};

use super::Subject;
use super::support::{AskExt, KitClient, KitStage, LONG, fresh_reentry, gone, granted, held};

/// Something that a backend may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Need {
    /// Fences that grow.
    Fencing,
    /// A queue at the store.
    Queue,
    /// Pushed grants.
    Push,
    /// Pushed breaks.
    PushBreaks,
    /// Claims for n of N.
    Counting,
    /// Readers and writers, in any order.
    Sharing,
    /// Readers and writers in this order.
    Order(Order),
    /// Groups of readers.
    Groups,
    /// Claims that enter again.
    Reentry,
    /// Writers that turn into readers.
    Downgrade,
    /// A list of keys.
    Listing,
    /// Holds confirmed by replicas.
    Durability,
    /// Asks that depend on another claim.
    Witness,
}

impl Need {
    pub(super) fn is_met_by(self, offered: &Capabilities) -> bool {
        match self {
            Self::Fencing => offered.fencing,
            Self::Queue => offered.queue,
            Self::Push => offered.push,
            Self::PushBreaks => offered.push_breaks,
            Self::Counting => offered.counting,
            Self::Sharing => offered.sharing,
            Self::Order(order) => offered.sharing && offered.orders.contains(&order),
            Self::Groups => offered.groups,
            Self::Reentry => offered.reentry,
            Self::Downgrade => offered.downgrade,
            Self::Listing => offered.listing,
            Self::Durability => offered.durability,
            Self::Witness => offered.witness,
        }
    }

    /// Checks that a backend without it says so instead of doing something similar.
    pub(super) async fn is_refused(self, subject: &dyn Subject) {
        let stage = KitStage::new(subject);
        let a = stage.client().await;
        let order = a.backend.capabilities().orders.first().copied().unwrap_or_default();
        let ask = match self {
            Self::Fencing => distlock_core::Ask { fence_floor: Some(1), ..stage.mutex() },
            Self::Queue => stage.mutex().queued(LONG),
            Self::Counting => stage.permits(1, 2),
            Self::Sharing => stage.reader(order),
            Self::Order(order) => stage.reader(order),
            Self::Groups => stage.reader(order).grouped("blue"),
            Self::Reentry => stage.mutex().reentering(fresh_reentry()),
            Self::Witness => {
                distlock_core::Ask { witness: Some(stage.mutex().claim), ..stage.mutex() }
            }
            Self::Push => return grant_is_told_by_heartbeat(&stage, &a).await,
            Self::PushBreaks => return break_is_told_by_renewal(&stage, &a).await,
            Self::Downgrade => return downgrade_is_refused(&stage, &a).await,
            Self::Listing => {
                let listed = a.backend.list(stage.prefix(), None).await;
                return assert_unsupported(self, &listed.map(drop));
            }
            Self::Durability => {
                let renewal = Renewal::hold(stage.mutex().claim, LONG);
                let confirmed = a.backend.extensions().confirm(&renewal, 1).await;
                return assert_unsupported(self, &confirmed.map(drop));
            }
        };
        let answer: Result<Answer, Fault> = a.backend.acquire(&ask).await;
        assert_unsupported(self, &answer.map(drop));
    }
}

#[track_caller]
fn assert_unsupported(need: Need, answer: &Result<(), Fault>) {
    let kind = answer.as_ref().map_err(Fault::kind).err();
    assert_eq!(
        kind,
        Some(FaultKind::Unsupported),
        "{need:?} is not declared and must be refused as unsupported, got {answer:?}"
    );
}

async fn downgrade_is_refused(stage: &KitStage<'_>, a: &KitClient) {
    let x = stage.mutex();
    granted(a.ask(&x).await);
    let lower = Renewal { weight: Some(1), ..Renewal::hold(x.claim.clone(), LONG) };
    let mut answers = a.renewals(&[lower]).await;
    let (_, answer) = answers.pop().expect("a renewal is answered, be it by a fault");
    assert_unsupported(Need::Downgrade, &answer.map(drop));
}

/// Silence is allowed, since a push is a shortcut only; so there is nothing to refuse, but a
/// waiter must learn of its grant all the same.
async fn grant_is_told_by_heartbeat(stage: &KitStage<'_>, a: &KitClient) {
    if !a.backend.capabilities().queue {
        return;
    }
    let (x, y) = (stage.mutex(), stage.mutex().queued(LONG));
    granted(a.ask(&x).await);
    let ticket = a.queue(&y).await;
    assert_eq!(a.release(&x).await, ReleaseOutcome::WasHeld);
    held(a.beat(&y, ticket).await);
}

/// The same for a holder and a break.
async fn break_is_told_by_renewal(stage: &KitStage<'_>, a: &KitClient) {
    let x = stage.mutex();
    let fence = granted(a.ask(&x).await);
    assert_eq!(a.break_hold(&stage.key(), fence).await, ReleaseOutcome::WasHeld);
    gone(a.renew(&x, LONG).await);
}
