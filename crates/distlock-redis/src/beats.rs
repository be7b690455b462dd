//! Heartbeats: one look at the server for all that a client has in the queue of a key.
//!
//! Places live as long as their client is heard of at their key, so what a heartbeat has to find
//! out is whether the places are still those that the client believes in. The server keeps sums
//! over them, next to the queue and changed in the same step; a client that comes up with the same
//! sums believes in the same places. Only where they differ is each looked at.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use distlock_core::{Fault, Key, QueuePosition, Renewal, Standing, Ticket};
use futures_core::Stream;
use futures_util::future::join_all;
use futures_util::stream::{self, FuturesUnordered};
use futures_util::{FutureExt, StreamExt};
use redis::{Cmd, Value};

use super::faults::fault;
use super::script::{BEAT, GLANCE};
use super::wire::{Reader, garbled, hex, millis};
use super::{Inner, PushBy};

/// So few are each looked at, and told how many are ahead. See beat.lua.
const COUNTED_MAX: usize = 16;

/// How many one script looks at. The server does nothing else meanwhile.
const LOOKED_AT_MAX: usize = 200;

/// How many keys with few places one message asks about.
const KEYS_MAX: usize = 64;

/// How many groups of places one script looks at.
const GROUPS_MAX: usize = 200;

/// How many scripts are under way for one key at once.
const CALLS_MAX: usize = 8;

type Beat<'a> = (usize, &'a Renewal);
type Told = (usize, Result<Standing, Fault>);

/// True for a heartbeat and nothing more.
pub(super) fn is_beat(renewal: &Renewal) -> bool {
    renewal.ticket.is_some() && renewal.weight.is_none() && renewal.fence_floor.is_none()
}

impl Inner {
    /// One heartbeat for each key that this client waits for. Those of many keys of one server
    /// leave in one message.
    pub(super) fn beat<'a>(&'a self, beats: Vec<Beat<'a>>) -> impl Stream<Item = Told> + 'a {
        let mut by_key: HashMap<&Key, Vec<_>> = HashMap::new();
        for beat in beats {
            by_key.entry(&beat.1.claim.key).or_default().push(beat);
        }
        // On a cluster every key has a slot of its own.
        let together = by_key.len() > 1 && self.push != PushBy::Key;
        let (mut few, many): (Vec<_>, Vec<_>) =
            by_key.into_iter().partition(|(_, beats)| together && beats.len() <= COUNTED_MAX);
        let messages = FuturesUnordered::new();
        while !few.is_empty() {
            let rest = few.split_off(few.len().min(KEYS_MAX));
            messages.push(self.beat_at_each(std::mem::replace(&mut few, rest)));
        }
        let keys: FuturesUnordered<_> =
            many.into_iter().map(|(key, beats)| self.beat_at(key, beats)).collect();
        let few = messages.flat_map_unordered(None, stream::iter);
        stream::select(few, keys.flat_map_unordered(None, |told| told))
    }

    /// One heartbeat for all that wait at each of these keys.
    async fn beat_at_each<'a>(&self, keys: Vec<(&'a Key, Vec<Beat<'a>>)>) -> Vec<Told> {
        let fill = |(key, beats): &(&Key, Vec<Beat<'_>>), cmd: &mut Cmd| {
            self.fill_beat(cmd, key, beats);
        };
        let answers = match self.link.eval_each("renew", &BEAT, &keys, &fill).await {
            Ok(answers) => answers,
            Err(fault) => {
                let all = keys.iter().flat_map(|(_, beats)| beats);
                return all.map(|(index, _)| (*index, Err(fault.clone()))).collect();
            }
        };
        let tell = keys.into_iter().zip(answers).map(|((_, beats), answer)| {
            let value = answer.map_err(|error| fault("renew", error));
            let standings = value.and_then(|value| self.read_each(&beats, &value));
            self.tell_each(beats, standings)
        });
        join_all(tell).await.concat()
    }

    /// One heartbeat for all that wait at one key.
    async fn beat_at<'a>(
        &'a self,
        key: &'a Key,
        beats: Vec<Beat<'a>>,
    ) -> stream::BoxStream<'a, Told> {
        if let [(index, one)] = beats[..] {
            return async move { (index, self.stand(one).await) }.into_stream().boxed();
        }
        if beats.len() <= COUNTED_MAX {
            return stream::iter(self.look_at_each(key, beats).await).boxed();
        }
        let mut groups: BTreeMap<u64, Vec<Beat<'a>>> = BTreeMap::new();
        for beat in beats {
            groups.entry(group(beat.1)).or_default().push(beat);
        }
        let groups: Vec<_> = groups.into_iter().collect();
        let glances = groups.chunks(GROUPS_MAX).map(|chunk| self.glance_at(key, chunk.to_vec()));
        let glances = stream::iter(glances.collect::<Vec<_>>()).buffer_unordered(CALLS_MAX);
        let glances: Vec<_> = glances.collect().await;
        let (told, left): (Vec<_>, Vec<_>) = glances.into_iter().unzip();
        let left: Vec<_> = left.into_iter().flatten().collect();
        let looks = left.chunks(LOOKED_AT_MAX).map(|chunk| self.look_at_each(key, chunk.to_vec()));
        let looks = stream::iter(looks.collect::<Vec<_>>()).buffer_unordered(CALLS_MAX);
        let looks = looks.flat_map(stream::iter);
        stream::iter(told.into_iter().flatten()).chain(looks).boxed()
    }

    /// One heartbeat for groups of places. Those that are not as believed are left.
    async fn glance_at<'a>(
        &self,
        key: &Key,
        groups: Vec<(u64, Vec<Beat<'a>>)>,
    ) -> (Vec<Told>, Vec<Beat<'a>>) {
        let (mut told, mut left) = (Vec::new(), Vec::new());
        match self.glance(key, &groups).await {
            Ok(glance) => {
                for ((_, beats), same) in groups.into_iter().zip(&glance.same) {
                    if *same {
                        told.extend(beats.iter().map(|(at, beat)| (*at, Ok(glance.of(beat)))));
                    } else {
                        left.extend(beats);
                    }
                }
            }
            Err(fault) => {
                let all = groups.iter().flat_map(|(_, beats)| beats);
                told.extend(all.map(|(at, _)| (*at, Err(fault.clone()))));
            }
        }
        (told, left)
    }

    async fn glance(&self, key: &Key, groups: &[(u64, Vec<Beat<'_>>)]) -> Result<Glance, Fault> {
        self.listen_to(key).await?;
        let all = || groups.iter().flat_map(|(_, beats)| beats);
        let id = all().next().map(|(_, first)| first.claim.id.reveal()).unwrap_or_default();
        let span = longest(all());
        let rest = |cmd: &mut Cmd| {
            cmd.arg(millis(span));
            for (number, beats) in groups {
                let sum: i128 = beats.iter().map(|(_, beat)| i128::from(worth(beat))).sum();
                cmd.arg(*number).arg(beats.len()).arg(sum.to_string());
            }
        };
        let value = self.law("renew", &GLANCE, (key, &id), span, &rest).await?;
        self.read(Glance::read(&id, groups.len(), &value))
    }

    /// One heartbeat for all, which tells of each; whoever does not wait is asked for by itself.
    async fn look_at_each(&self, key: &Key, beats: Vec<Beat<'_>>) -> Vec<Told> {
        let standings = self.look_at(key, &beats).await;
        self.tell_each(beats, standings).await
    }

    async fn tell_each(
        &self,
        beats: Vec<Beat<'_>>,
        standings: Result<Vec<Option<QueuePosition>>, Fault>,
    ) -> Vec<Told> {
        let (mut told, asking) = (Vec::with_capacity(beats.len()), FuturesUnordered::new());
        for (at, (index, renewal)) in beats.into_iter().enumerate() {
            match &standings {
                Err(fault) => told.push((index, Err(fault.clone()))),
                Ok(standings) => match standings.get(at).copied().flatten() {
                    Some(waiting) => told.push((index, Ok(Standing::Waiting(waiting)))),
                    None => asking.push(async move { (index, self.stand(renewal).await) }),
                },
            }
        }
        told.extend(asking.collect::<Vec<_>>().await);
        told
    }

    async fn look_at(
        &self,
        key: &Key,
        beats: &[Beat<'_>],
    ) -> Result<Vec<Option<QueuePosition>>, Fault> {
        self.listen_to(key).await?;
        let fill = |cmd: &mut Cmd| self.fill_beat(cmd, key, beats);
        let value = self.link.eval("renew", &BEAT, &fill).await?;
        self.read_each(beats, &value)
    }

    /// Adds `KEYS` and `ARGV` of beat.lua.
    fn fill_beat(&self, cmd: &mut Cmd, key: &Key, beats: &[Beat<'_>]) {
        let span = longest(beats);
        self.namespace.add_keys(cmd, key);
        cmd.arg(first_id(beats)).arg(&*self.caller(key, span)).arg(millis(span));
        for (_, beat) in beats {
            cmd.arg(hex(beat.claim.id));
        }
    }

    fn read_each(
        &self,
        beats: &[Beat<'_>],
        value: &Value,
    ) -> Result<Vec<Option<QueuePosition>>, Fault> {
        self.read(each(&first_id(beats), beats.len(), value))
    }
}

/// The claim that the answer begins with.
fn first_id(beats: &[Beat<'_>]) -> String {
    beats.first().map(|(_, first)| first.claim.id.reveal()).unwrap_or_default()
}

fn longest<'a>(beats: impl IntoIterator<Item = &'a Beat<'a>>) -> Duration {
    beats.into_iter().map(|(_, beat)| beat.span).max().unwrap_or_default()
}

/// The number of the group that a place is summed up in. The same as in texts.lua.
fn group(beat: &Renewal) -> u64 {
    beat.ticket.unwrap_or_default() / 1_000_000
}

/// What a place adds to its sum. The same as in texts.lua.
fn worth(beat: &Renewal) -> i64 {
    const DIGITS_13: u128 = (1 << 52) - 1;
    let random = u128::from_be_bytes(*beat.claim.id.as_bytes()) & DIGITS_13;
    let ticket = beat.ticket.unwrap_or_default() % 1_000_000_000_000;
    i64::try_from(random).unwrap_or(0) - (1 << 51) + i64::try_from(ticket).unwrap_or(0)
}

/// What glance.lua tells: which groups are as believed, and who is first.
struct Glance {
    retry_after: Option<Duration>,
    head: Option<Ticket>,
    same: Vec<bool>,
}

impl Glance {
    fn read(id: &str, groups: usize, value: &Value) -> Result<Self, Fault> {
        let mut reader = Reader::answer_for(id, value)?;
        let (retry_after, head, same) = (reader.span()?, reader.str()?, reader.str()?);
        let same: Vec<_> = same.bytes().map(|digit| digit == b'1').collect();
        if same.len() != groups {
            return Err(garbled(value));
        }
        Ok(Self { retry_after, head: head.parse().ok(), same })
    }

    fn of(&self, beat: &Renewal) -> Standing {
        let ticket = beat.ticket.unwrap_or_default();
        // Not counted: all that matters is whether anybody is ahead.
        let ahead = u64::from(self.head != Some(ticket));
        Standing::Waiting(QueuePosition { ticket, ahead, retry_after: self.retry_after })
    }
}

/// Where beat.lua says that so many claims stand: none where this client does not wait.
fn each(id: &str, claims: usize, value: &Value) -> Result<Vec<Option<QueuePosition>>, Fault> {
    let mut reader = Reader::answer_for(id, value)?;
    let (retry_after, head) = (reader.span()?, reader.str()?);
    let mut stand = || {
        let (ticket, ahead) = (reader.str()?, reader.str()?);
        let ahead = ahead.parse().unwrap_or(u64::from(ticket != head));
        Ok(ticket.parse().ok().map(|ticket| QueuePosition { ticket, ahead, retry_after }))
    };
    (0..claims).map(|_| stand()).collect()
}
