//! The real law at one node of a quorum, beside what the model makes of it.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use distlock_core::law::{Now, Record};
use distlock_core::{Answer, Ask, Claim, ClaimId, ClientId, Key, Label, Moment, Renewal, Standing};

/// The record of the one key at one node. It takes no part in telling states apart.
#[derive(Clone, Debug)]
pub(super) struct Lawful {
    record: Arc<Record>,
    at: u64,
}

impl PartialEq for Lawful {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Hash for Lawful {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

const MODEL_TTL: Duration = Duration::from_secs(1);

impl Lawful {
    pub(super) fn new() -> Self {
        Self { record: Arc::new(Record::new(0)), at: 0 }
    }

    /// The node has forgotten everything, or was told what the others know.
    pub(super) fn restart(&mut self, counter: u8) {
        self.record = Arc::new(Record::new(u64::from(counter)));
    }

    /// Every lease ends.
    pub(super) fn expire(&mut self) {
        self.at += 1;
    }

    /// The fence that was granted, if one was.
    pub(super) fn acquire(&mut self, who: usize, floor: u8) -> Option<u8> {
        let mut ask = Ask::new(claim(who)?, Label::new("owner", "model").ok()?, MODEL_TTL);
        ask.fence_floor = Some(u64::from(floor));
        let (client, now) = (ClientId::from_bytes([0; 16]), self.now());
        match Arc::make_mut(&mut self.record).acquire(&ask, client, now).0 {
            Answer::Granted { fence } => u8::try_from(fence).ok(),
            _ => None,
        }
    }

    /// True if the fence was stored, which takes an owner.
    pub(super) fn write_back(&mut self, who: usize, fence: u8) -> bool {
        let Some(claim) = claim(who) else { return false };
        let mut renewal = Renewal::hold(claim, MODEL_TTL);
        renewal.fence_floor = Some(u64::from(fence));
        let (client, now) = (ClientId::from_bytes([0; 16]), self.now());
        let (standing, _) = Arc::make_mut(&mut self.record).renew(&renewal, client, now);
        matches!(standing, Standing::Held { .. })
    }

    pub(super) fn counter(&self) -> u8 {
        u8::try_from(self.record.counter()).unwrap_or(u8::MAX)
    }

    fn now(&self) -> Now {
        Now { at: Moment::ORIGIN.after(Duration::from_secs(self.at)), seed: 0 }
    }
}

fn claim(who: usize) -> Option<Claim> {
    let id = ClaimId::from_bytes([u8::try_from(who).ok()?; 16]);
    Some(Claim::new(Key::new("k").ok()?, id))
}
