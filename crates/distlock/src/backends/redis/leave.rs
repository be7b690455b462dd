//! Letting go, which may let somebody else in.
//!
//! Another client hears of its grant by a push, this one by the answer to the release: a message
//! less, and whoever let go and whoever is next go on side by side.

use std::pin::pin;

use distlock_core::{Claim, Fault, How, Outcome, Push, Target};
use redis::Cmd;

use super::link::Link;
use super::script::RELEASE;
use super::{Inner, wire};

/// A call whose answer may be news to somebody who waits. If it is dropped before, whoever waits
/// asks. If it fails, so does its connection, after which they ask anyway.
pub(super) struct Hearing<'a>(Option<&'a Link>);

impl<'a> Hearing<'a> {
    pub(super) fn new(link: &'a Link) -> Self {
        Self(Some(link))
    }

    pub(super) fn heard(mut self, news: Option<Push>) {
        if let (Some(link), Some(news)) = (self.0.take(), news) {
            link.whisper(news);
        }
    }
}

impl Drop for Hearing<'_> {
    fn drop(&mut self) {
        if let Some(link) = self.0 {
            link.tell(Push::Interrupted);
        }
    }
}

impl Inner {
    /// Gives up by a call of its own.
    pub(super) async fn give_up(&self, target: &Target, how: How) -> Result<Outcome, Fault> {
        let (key, id) = (target.key(), wire::released_id(target));
        let rest = |cmd: &mut Cmd| wire::add_release(cmd, target, how);
        let hearing = Hearing::new(&self.link);
        let call = self.law("release", &RELEASE, (key, &id), how.keep, &rest);
        let answer = self.lookout.wait(pin!(call)).await;
        let answer = answer.and_then(|value| self.read(wire::outcome(&id, &value)));
        let (outcome, news) = answer.map_or_else(|fault| (Err(fault), None), |(o, n)| (Ok(o), n));
        self.riders.tell_all();
        self.let_in(hearing, news, key, false).await;
        outcome
    }

    /// The same for a claim on a key that nobody else of this client is known to want. The call is
    /// as short as can be; should somebody wait all the same, he hears of it by a push.
    pub(super) async fn give_up_alone(&self, claim: &Claim) -> Result<Outcome, Fault> {
        let id = wire::hex(claim.id);
        let fill = |cmd: &mut Cmd| {
            self.namespace.add_main_alone(cmd, &claim.key);
            cmd.arg(&id);
        };
        let value = self.lookout.wait(pin!(self.link.eval("release", &RELEASE, &fill))).await?;
        self.read(wire::outcome(&id, &value)).map(|(outcome, _)| outcome)
    }
}
