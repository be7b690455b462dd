//! Whoever lets go of a key takes somebody along who asks for it at that moment: one call for both.
//!
//! Where many want one key, a hand-over is a release and the next ask of whoever held it before.
//! Mostly the two come at the same moment, because the answer to that one and the grant to this one
//! arrive together. So whoever asks for such a key lets all others go first and is on offer
//! meanwhile.
//!
//! Whoever is let in goes first, if he can let go again without the one who let him in. That one
//! asks while the next call is on its way, and stays on offer for the call after it.
//!
//! Only the usual case goes this way, see relay.lua. Otherwise both go by themselves.
//!
//! Of those two answers one is urgent: somebody has been let in, and all others wait for that one.
//! Whoever went along and has to wait is told when the next call is under way and there is nothing
//! else to do. To wake both at once would also make the runtime wake another of its threads, which
//! takes longer than what that thread would do.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Mutex;
use std::time::Duration;

use distlock_core::{Answer, Ask, Busy, Claim, Fault, Holder, Key, Label, Outcome, Push};
use foldhash::fast::RandomState;
use redis::{Cmd, Value};
use tokio::sync::oneshot;

use super::faults::for_all;
use super::leave::Hearing;
use super::script::RELAY;
use super::{Inner, wire};
use crate::sync::lock;

/// After so long, whoever went along and has not heard anything sees to it himself; then after
/// twice as long, and so on. Whoever stays on offer for as long goes by himself: the call that he
/// waits for may be one of a runtime that does not turn, or of a server that is far away.
const UNTOLD_MAX: Duration = Duration::from_millis(2);

/// Those who would go along, by key, and those who did and have yet to be told.
#[derive(Debug, Default)]
pub(super) struct Riders {
    stops: Mutex<HashMap<Key, Stop, RandomState>>,
    untold: Mutex<Vec<(Reply, Reached)>>,
}

/// A key that somebody asks for or lets go of.
#[derive(Debug, Default)]
struct Stop {
    on_offer: Vec<Rider>,
    /// Calls under way that let go.
    leaving: usize,
}

/// What came of going along; none if he has to go by himself.
type Reached = Result<Option<Answer>, Fault>;
type Reply = oneshot::Sender<Reached>;

/// Somebody who asks, and where he hears the answer.
#[derive(Debug)]
struct Rider {
    ask: Ask,
    reply: Reply,
}

impl Riders {
    /// Somebody is on offer from now on. True if a call is under way that lets go of the key.
    fn offer(&self, rider: Rider) -> bool {
        let mut stops = lock(&self.stops);
        let stop = stops.entry(rider.ask.claim.key.clone()).or_default();
        stop.on_offer.push(rider);
        stop.leaving > 0
    }

    fn is_anybody_on_offer(&self, key: &Key) -> bool {
        lock(&self.stops).get(key).is_some_and(|stop| !stop.on_offer.is_empty())
    }

    /// A call lets go of a key until this is dropped.
    pub(super) fn leave<'a>(&'a self, key: &'a Key) -> Leaving<'a> {
        lock(&self.stops).entry(key.clone()).or_default().leaving += 1;
        Leaving { riders: self, key }
    }

    /// The first who would go along, if he still wants to.
    fn take(&self, key: &Key) -> Option<Rider> {
        self.remove(key, |_| true).filter(|rider| !rider.reply.is_closed())
    }

    /// Nobody takes this one along from now on. False if somebody has, or he was sent off.
    fn withdraw(&self, claim: &Claim) -> bool {
        self.remove(&claim.key, |rider| rider.ask.claim.id == claim.id).is_some()
    }

    /// Tells those who have to wait.
    pub(super) fn tell_all(&self) {
        let untold = std::mem::take(&mut *lock(&self.untold));
        for (reply, reached) in untold {
            let _ = reply.send(reached);
        }
    }

    fn remove(&self, key: &Key, which: impl Fn(&Rider) -> bool) -> Option<Rider> {
        let mut stops = lock(&self.stops);
        let stop = stops.get_mut(key)?;
        let removed = stop.on_offer.iter().position(which).map(|at| stop.on_offer.remove(at));
        if stop.on_offer.is_empty() && stop.leaving == 0 {
            stops.remove(key);
        }
        removed
    }
}

/// A call that lets go is under way.
pub(super) struct Leaving<'a> {
    riders: &'a Riders,
    key: &'a Key,
}

impl Drop for Leaving<'_> {
    /// If it was the last, those who stayed on offer for it go by themselves.
    fn drop(&mut self) {
        let mut stops = lock(&self.riders.stops);
        let Some(stop) = stops.get_mut(self.key) else { return };
        stop.leaving -= 1;
        if stop.leaving > 0 {
            return;
        }
        for rider in stops.remove(self.key).unwrap_or_default().on_offer {
            let _ = rider.reply.send(Ok(None));
        }
    }
}

/// Somebody is on offer until this ends or is dropped.
struct Offer<'a> {
    riders: &'a Riders,
    /// None once it has ended.
    claim: Option<&'a Claim>,
}

impl Offer<'_> {
    /// False if somebody has taken him along, or sent him off.
    fn end(&mut self) -> bool {
        self.claim.take().is_some_and(|claim| self.riders.withdraw(claim))
    }
}

impl Drop for Offer<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

impl Inner {
    /// Lets all others go first, and goes along if one of them lets go of the key. None if nobody
    /// did, or it came to nothing: then the ask goes by itself.
    ///
    /// Where holds are quick, he stays on offer until a call that lets go is back.
    pub(super) async fn ride(&self, ask: &Ask, quick: bool) -> Result<Option<Answer>, Fault> {
        let may_ride = ask.wait.is_some() && ask.reentry.is_none();
        if !may_ride || self.namespace.fence_of_all().is_none() {
            tokio::task::yield_now().await;
            return Ok(None);
        }
        let (reply, mut answer) = oneshot::channel();
        let somebody_leaves = self.riders.offer(Rider { ask: ask.clone(), reply });
        let mut offer = Offer { riders: &self.riders, claim: Some(&ask.claim) };
        if !(quick && somebody_leaves) {
            tokio::task::yield_now().await;
            self.riders.tell_all();
            if offer.end() {
                return Ok(None);
            }
        }
        let told = async {
            let mut untold_max = UNTOLD_MAX;
            loop {
                if let Ok(answer) = tokio::time::timeout(untold_max, &mut answer).await {
                    return answer;
                }
                self.riders.tell_all();
                if offer.end() {
                    return Ok(Ok(None));
                }
                untold_max *= 2;
            }
        };
        let answer = tokio::time::timeout(self.link.patience(), told).await;
        let answer = answer.map_err(|elapsed| Fault::transient("acquire", elapsed))?;
        answer
            .map_err(|_| Fault::transient("acquire", "the call that it went with was given up"))?
    }

    /// Lets go and takes somebody along. None if nobody is on offer, or it came to nothing: then
    /// the release goes by itself.
    pub(super) async fn relay(&self, released: &Claim) -> Result<Option<Outcome>, Fault> {
        let Some(Rider { ask, reply }) = self.riders.take(&released.key) else { return Ok(None) };
        let hearing = Hearing::new(&self.link);
        let (outcome, answer, news) = match self.call_for_both(released, &ask).await {
            Ok(Some(Relayed { answer, news })) => {
                (Ok(Some(Outcome::WasHeld)), Ok(Some(answer)), news)
            }
            Ok(None) => (Ok(None), Ok(None), None),
            Err(fault) => (Err(fault.clone()), Err(fault), None),
        };
        // Whoever is let in now may not even know that he had to wait.
        self.riders.tell_all();
        let others_wait = matches!(&answer, Ok(Some(Answer::Busy(busy))) if busy.ahead > 0);
        if news.is_some() {
            lock(&self.riders.untold).push((reply, answer));
        } else {
            // Whoever has left meanwhile is cleaned up after as usual.
            let _ = reply.send(answer);
        }
        self.let_in(hearing, news, &released.key, others_wait).await;
        outcome
    }

    /// Tells the one who was let in, if anybody was. He goes first if he can let go again without
    /// the one who let him in: somebody else is on offer, or others wait in line. Then a hand-over
    /// does not take as long as it takes that one to ask again. That one cannot go on before this
    /// thread is free, so it is done only where holds were quick of late.
    pub(super) async fn let_in(
        &self,
        hearing: Hearing<'_>,
        news: Option<Push>,
        key: &Key,
        others_wait: bool,
    ) {
        let goes_first = news.is_some()
            && self.together.memory(key).lets_in()
            && (others_wait || self.riders.is_anybody_on_offer(key));
        hearing.heard(news);
        if goes_first {
            tokio::task::yield_now().await;
            self.riders.tell_all();
        }
    }

    async fn call_for_both(&self, released: &Claim, ask: &Ask) -> Result<Option<Relayed>, Fault> {
        let (id, asker) = (wire::hex(released.id), wire::hex(ask.claim.id));
        let caller = self.unusual_caller(ask);
        let fill = |cmd: &mut Cmd| {
            self.namespace.add_keys(cmd, &released.key);
            cmd.arg(&id).arg(&asker);
            wire::add_ask(cmd, ask, &self.client, caller.as_deref(), None);
        };
        let answer = self.lookout.wait(pin!(self.link.try_eval("relay", &RELAY, &fill))).await;
        match for_all("relay", answer)? {
            Some(value) => self.read(relayed(&id, &asker, &value)),
            None => Ok(None),
        }
    }
}

/// What came of a call for both.
#[derive(Debug, PartialEq)]
struct Relayed {
    /// To the one who asked. The other one held until then.
    answer: Answer,
    /// What somebody who waited is to be told.
    news: Option<Push>,
}

/// What relay.lua answers; none if it left everything alone.
fn relayed(released: &str, asker: &str, value: &Value) -> Result<Option<Relayed>, Fault> {
    let text = wire::as_str(value)?;
    let read = match text.strip_prefix(released) {
        Some("") => Some(None),
        Some(rest) => read(asker, &mut rest.split('\n').skip(1)).map(Some),
        None => None,
    };
    read.ok_or_else(|| wire::garbled(value))
}

fn read<'a>(asker: &str, lines: &mut impl Iterator<Item = &'a str>) -> Option<Relayed> {
    if lines.next()? != asker {
        return None;
    }
    match lines.next()? {
        "granted" => {
            let fence = lines.next()?.parse().ok()?;
            Some(Relayed { answer: Answer::Granted { fence }, news: None })
        }
        "busy" => {
            let ticket = Some(lines.next()?.parse().ok()?);
            let ahead = lines.next()?.parse().ok()?;
            let (now, ends): (u64, u64) =
                (lines.next()?.parse().ok()?, lines.next()?.parse().ok()?);
            let left = Some(Duration::from_millis(ends.saturating_sub(now)));
            let holder = Some(entered(lines, left)?);
            let answer = Answer::Busy(Busy { ticket, ahead, retry_after: left, holder });
            Some(Relayed { answer, news: wire::push(lines.next()?) })
        }
        _ => None,
    }
}

/// Somebody who holds from this moment on: a fence, and the lines of [`wire::ask_text`].
fn entered<'a>(
    lines: &mut impl Iterator<Item = &'a str>,
    expires_in: Option<Duration>,
) -> Option<Holder> {
    let fence = lines.next()?.parse().ok()?;
    let (owner, reason, _order, _client) =
        (lines.next()?, lines.next()?, lines.next()?, lines.next()?);
    let (group, _reentry, capacity) = (lines.next()?, lines.next()?, lines.next()?);
    Some(Holder {
        owner: Label::new("owner", owner).ok()?,
        reason: Label::new("reason", reason).ok(),
        fence,
        weight: capacity.parse().ok()?,
        exclusive: true,
        group: Label::new("group", group).ok(),
        held_for: Duration::ZERO,
        expires_in,
    })
}

#[cfg(test)]
mod tests {
    use distlock_core::ClaimId;

    use super::*;

    const RELEASED: &str = "0123456789abcdef0123456789abcdef";
    const ASKER: &str = "123456789abcdef0123456789abcdef0";
    const NEXT: &str = "23456789abcdef0123456789abcdef01";

    fn answered(lines: &[&str]) -> Result<Option<Relayed>, Fault> {
        relayed(RELEASED, ASKER, &Value::BulkString(lines.join("\n").into()))
    }

    type Heard = oneshot::Receiver<Reached>;

    fn key() -> Key {
        Key::new("k").unwrap()
    }

    /// Somebody who asks for the key, and where he hears.
    fn rider() -> (Rider, Heard) {
        let claim = Claim::new(key(), ClaimId::random().unwrap());
        let ask = Ask::new(claim, Label::new("owner", "me").unwrap(), Duration::from_secs(1));
        let (reply, heard) = oneshot::channel();
        (Rider { ask, reply }, heard)
    }

    fn goes_by_himself(heard: &mut Heard) -> bool {
        matches!(heard.try_recv(), Ok(Ok(None)))
    }

    #[test]
    fn the_first_on_offer_is_the_first_to_be_taken_along() {
        let (riders, key) = (Riders::default(), key());
        let leaving = riders.leave(&key);
        let ((first, mut first_heard), (second, mut second_heard)) = (rider(), rider());
        let first_id = first.ask.claim.id;
        assert!(riders.offer(first));
        assert!(riders.offer(second));
        assert_eq!(riders.take(&key).map(|rider| rider.ask.claim.id), Some(first_id));
        drop(leaving);
        assert!(!goes_by_himself(&mut first_heard), "he was taken along");
        assert!(goes_by_himself(&mut second_heard));
        assert!(lock(&riders.stops).is_empty());
    }

    #[test]
    fn nobody_stays_on_offer_when_the_last_call_that_lets_go_is_over() {
        let (riders, key) = (Riders::default(), key());
        let (one, other) = (riders.leave(&key), riders.leave(&key));
        let (stays, mut heard) = rider();
        assert!(riders.offer(stays));
        drop(one);
        assert!(!goes_by_himself(&mut heard), "the other one may take him along");
        drop(other);
        assert!(goes_by_himself(&mut heard));
        assert!(lock(&riders.stops).is_empty());
        let (late, _heard) = rider();
        let claim = late.ask.claim.clone();
        assert!(!riders.offer(late), "nobody lets go");
        assert!(riders.withdraw(&claim));
        assert!(lock(&riders.stops).is_empty());
    }

    #[test]
    fn both_hear_what_came_of_it() {
        assert_eq!(answered(&[RELEASED]).unwrap(), None);
        let granted = answered(&[RELEASED, ASKER, "granted", "7"]).unwrap().unwrap();
        assert_eq!(granted, Relayed { answer: Answer::Granted { fence: 7 }, news: None });
        let news = format!("granted {NEXT} 8 9");
        let head = [RELEASED, ASKER, "busy", "10", "3", "1000", "6000", "9"];
        let ask = ["me", "why", "0", "client", "", "", "1"];
        let busy = answered(&[&head[..], &ask[..], &[&news]].concat()).unwrap().unwrap();
        let Answer::Busy(Busy { ticket: Some(10), ahead: 3, holder: Some(holder), .. }) =
            busy.answer
        else {
            panic!("{busy:?}")
        };
        assert_eq!((holder.owner.as_str(), holder.fence, holder.weight), ("me", 9, 1));
        assert_eq!(holder.expires_in, Some(Duration::from_secs(5)));
        assert!(matches!(busy.news, Some(Push::Granted { ticket: 8, fence: 9, .. })));
        let elsewhere = answered(&[&head[..], &ask[..], &[""]].concat()).unwrap().unwrap();
        assert_eq!(elsewhere.news, None, "another client was told by the server");
    }

    #[test]
    fn an_answer_to_somebody_else_is_a_fault() {
        for lines in [
            &[ASKER][..],
            &[RELEASED, NEXT, "granted", "7"],
            &[RELEASED, ASKER],
            &[RELEASED, ASKER, "granted"],
            &[RELEASED, ASKER, "busy", "10", "3", "1000", "6000", "9", "me"],
        ] {
            assert!(answered(lines).is_err(), "{lines:?}");
        }
    }
}
