//! What a quorum writes on its nodes: who belongs to it, since when, and who has to abstain.
//!
//! All of it are leases at reserved keys, so that any store that carries locks can carry them.
//! Their claim ids are no secrets: every client of the quorum makes the same.

use std::fmt::Display;
use std::time::Duration;

use distlock_core::{
    Answer, Ask, Backend, Claim, ClaimId, Fault, Health, Holder, Key, Label, ReleaseOptions,
    Renewal, Standing, TTL_MAX, Target,
};
use futures_util::StreamExt;

use super::QuorumOptions;

/// The node belongs to a quorum.
const MEMBER: &str = ".distlock/quorum/member";

/// The quorum is being founded.
const FOUNDING: &str = ".distlock/quorum/founding";

/// The node abstains.
const QUARANTINE: &str = ".distlock/quorum/quarantine";

/// The node has forgotten what was before.
const FORGOT: &str = ".distlock/quorum/forgot";

/// Taken for a moment to see how far the counter of a node is.
const COUNTER: &str = ".distlock/quorum/counter";
const COUNTER_MAX: Duration = Duration::from_secs(1);

/// How long founding may take. Longer and it begins anew.
const FOUNDING_MAX: Duration = Duration::from_secs(600);

/// What all clients of a quorum have to agree on: the nodes, in any sequence, and the options that
/// safety depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Charter {
    /// A digest of the names.
    names: String,
    nodes: usize,
    max_ttl_ms: u128,
    persistent: bool,
}

/// The mark of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    charter: Charter,
    /// A digest of the store's incarnation when it became a member.
    incarnation: String,
    pub(super) seed: u64,
}

/// A node as it looks.
#[derive(Clone, Debug)]
pub(super) struct NodeLook {
    pub(super) epoch: u64,
    pub(super) health: Health,
    /// The mark, and the fence it has, which tells how large those are that were given out.
    pub(super) mark: Option<(Mark, u64)>,
    pub(super) founding: bool,
    /// This incarnation is known to have forgotten what was before.
    pub(super) forgot: bool,
    pub(super) quarantine: Option<Duration>,
}

impl Charter {
    pub(super) fn new(names: &[String], options: &QuorumOptions) -> Self {
        let mut sorted: Vec<_> = names.iter().map(String::as_str).collect();
        sorted.sort_unstable();
        Self {
            names: digest(&sorted),
            nodes: names.len(),
            max_ttl_ms: options.max_ttl.as_millis(),
            persistent: options.persistent,
        }
    }

    /// Differs as soon as anything in the charter does, so that clients with different options
    /// cannot both believe that a mark is theirs.
    pub(super) fn digest(&self) -> String {
        let Self { names, nodes, max_ttl_ms, persistent } = self;
        digest(&[names, &nodes.to_string(), &max_ttl_ms.to_string(), &persistent.to_string()])
    }

    pub(super) fn mark(&self, health: &Health, seed: u64) -> Mark {
        Mark { charter: self.clone(), incarnation: digest(&[&health.incarnation]), seed }
    }

    /// Refuses a node whose mark is of another charter, and says what differs.
    pub(super) fn check(&self, mark: &Mark) -> Result<(), Fault> {
        let (ours, theirs) = (self, &mark.charter);
        let differs = |option: &str, ours: &dyn Display, theirs: &dyn Display| {
            format!(
                "this client has {option}={ours} and the quorum was founded with {theirs}: all \
                 clients must agree on it"
            )
        };
        let why = if (&ours.names, ours.nodes) != (&theirs.names, theirs.nodes) {
            "a node belongs to a quorum of other nodes: all clients must list the same ones, under \
             the same names"
                .to_owned()
        } else if ours.max_ttl_ms != theirs.max_ttl_ms {
            differs("max_ttl_ms", &ours.max_ttl_ms, &theirs.max_ttl_ms)
        } else if ours.persistent != theirs.persistent {
            differs("persistent", &ours.persistent, &theirs.persistent)
        } else {
            return Ok(());
        };
        Err(Fault::permanent("make a quorum", why))
    }
}

impl Mark {
    /// True if the store has not restarted since it was marked.
    pub(super) fn is_of(&self, health: &Health) -> bool {
        self.incarnation == digest(&[&health.incarnation])
    }

    /// The claim that the mark is.
    pub(super) fn claim(&self) -> Result<Claim, Fault> {
        claim(MEMBER, &[&self.charter.digest(), &self.incarnation])
    }

    fn label(&self) -> String {
        let Self { charter, incarnation, seed } = self;
        let Charter { names, nodes, max_ttl_ms, persistent } = charter;
        format!(
            "quorum={names} nodes={nodes} max_ttl_ms={max_ttl_ms} persistent={persistent} \
             incarnation={incarnation} seed={seed}"
        )
    }

    fn read(holder: &Holder) -> Option<Self> {
        let mut fields = holder.owner.as_str().split(' ').map(|word| word.split_once('='));
        let mut field = |name: &str| match fields.next().flatten() {
            Some((found, value)) if found == name => Some(value.to_owned()),
            _ => None,
        };
        let charter = Charter {
            names: field("quorum")?,
            nodes: field("nodes")?.parse().ok()?,
            max_ttl_ms: field("max_ttl_ms")?.parse().ok()?,
            persistent: field("persistent")?.parse().ok()?,
        };
        Some(Self {
            charter,
            incarnation: field("incarnation")?,
            seed: field("seed")?.parse().ok()?,
        })
    }

    /// Writes the mark, with a fence of at least `floor`.
    pub(super) async fn write(&self, node: &dyn Backend, floor: u64) -> Result<(), Fault> {
        let ask = ask(self.claim()?, &self.label(), TTL_MAX, Some(floor))?;
        taken(node.acquire(&ask).await?)
    }

    /// Removes the mark.
    pub(super) async fn erase(&self, node: &dyn Backend) -> Result<(), Fault> {
        let target = Target::Claim(self.claim()?);
        node.release(&target, ReleaseOptions::default()).await.map(drop)
    }

    /// Raises the fence of the mark, and says what it is then.
    pub(super) async fn raise(&self, node: &dyn Backend, floor: u64) -> Result<u64, Fault> {
        let mut renewal = Renewal::hold(self.claim()?, TTL_MAX);
        renewal.fence_floor = Some(floor);
        let batch = [renewal];
        match node.renew(&batch).next().await {
            Some((_, Ok(Standing::Held { fence }))) => Ok(fence),
            Some((_, Err(fault))) => Err(fault),
            _ => Err(Fault::transient("raise the fences", "the node has lost its mark")),
        }
    }
}

/// Looks at a node.
pub(super) async fn look(node: &dyn Backend) -> Result<NodeLook, Fault> {
    let health = node.probe().await?;
    let epoch = node.extensions().epoch();
    let keys = [key(MEMBER)?, key(FOUNDING)?, key(FORGOT)?, key(QUARANTINE)?];
    let [member, founding, forgot, quarantine] = keys.each_ref().map(|key| node.inspect(key));
    let (member, founding, forgot, quarantine) =
        tokio::try_join!(member, founding, forgot, quarantine)?;
    if node.extensions().epoch() != epoch {
        return Err(Fault::transient("look at the node", "it was reached anew meanwhile"));
    }
    let mark = member.holders.first().and_then(|held| Some((Mark::read(held)?, held.fence)));
    if mark.is_none() && !member.is_free() {
        let why = format!("the key {MEMBER:?} is held by a client that is not a quorum");
        return Err(Fault::permanent("look at the node", why));
    }
    let abstains = |holder: &Holder| holder.expires_in.unwrap_or(TTL_MAX);
    let quarantine = quarantine.holders.first().map(abstains);
    let incarnation = digest(&[&health.incarnation]);
    let forgot = forgot.holders.first().is_some_and(|held| held.owner.as_str() == incarnation);
    Ok(NodeLook { epoch, health, mark, founding: !founding.is_free(), forgot, quarantine })
}

/// Writes on a node that the quorum is being founded.
pub(super) async fn found(node: &dyn Backend, charter: &Charter) -> Result<(), Fault> {
    let digest = charter.digest();
    let claim = claim(FOUNDING, &[&digest])?;
    let ask = ask(claim, &format!("quorum={digest}"), FOUNDING_MAX, None)?;
    taken(node.acquire(&ask).await?)
}

/// Writes on a node that it has forgotten and abstains for so long.
pub(super) async fn quarantine(
    node: &dyn Backend,
    charter: &Charter,
    health: &Health,
    while_: Duration,
) -> Result<(), Fault> {
    let claim = claim(QUARANTINE, &[&charter.digest(), &health.incarnation])?;
    let abstains = ask(claim, "the store lost its memory", while_, None)?;
    let incarnation = digest(&[&health.incarnation]);
    let claim = self::claim(FORGOT, &[&charter.digest(), &health.incarnation])?;
    let forgot = ask(claim, &incarnation, TTL_MAX, None)?;
    // In this sequence: the client that sees that it forgot sees also that it abstains.
    taken(node.acquire(&abstains).await?)?;
    taken(node.acquire(&forgot).await?)
}

/// A fence larger than any that a node has given out, where all keys share a counter.
pub(super) async fn counter(node: &dyn Backend) -> Result<u64, Fault> {
    let claim = Claim::new(key(COUNTER)?, ClaimId::random()?);
    let ask = ask(claim, "the counter is read", COUNTER_MAX, None)?;
    let answer = node.acquire(&ask).await?;
    node.release(&Target::Claim(ask.claim.clone()), ReleaseOptions::default()).await?;
    match answer {
        Answer::Granted { fence } => Ok(fence),
        other => Err(Fault::transient("read the counter", format!("it answered {other:?}"))),
    }
}

fn taken(answer: Answer) -> Result<(), Fault> {
    match answer {
        Answer::Granted { .. } => Ok(()),
        other => Err(Fault::transient("mark the node", format!("it answered {other:?}"))),
    }
}

fn ask(claim: Claim, label: &str, ttl: Duration, floor: Option<u64>) -> Result<Ask, Fault> {
    let label = Label::new("mark", label).map_err(|e| Fault::permanent("mark the node", e))?;
    let mut ask = Ask::new(claim, label, ttl);
    ask.fence_floor = floor;
    Ok(ask)
}

fn key(name: &str) -> Result<Key, Fault> {
    Key::new(name).map_err(|error| Fault::permanent("mark the node", error))
}

fn claim(name: &str, parts: &[&str]) -> Result<Claim, Fault> {
    let id = ClaimId::from_bytes(fnv(&[&[name], parts].concat()).to_be_bytes());
    Ok(Claim::new(key(name)?, id))
}

fn digest(parts: &[&str]) -> String {
    format!("{:032x}", fnv(parts))
}

/// FNV-1a of 128 bits: it has to tell lists apart, not to hide them.
fn fnv(parts: &[&str]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(OFFSET, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use distlock::backends::Memory;

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn of(list: &[&str]) -> Charter {
        Charter::new(&names(list), &QuorumOptions::default())
    }

    #[test]
    fn a_charter_is_the_list_in_any_sequence() {
        let charter = of(&["a", "b", "c"]);
        assert_eq!(charter, of(&["c", "a", "b"]));
        for other in [&["a", "b"][..], &["a", "b", "d"], &["a", "b", "c", "d"], &["ab", "c", ""]] {
            assert_ne!(charter.digest(), of(other).digest(), "{other:?}");
        }
    }

    #[test]
    fn a_charter_covers_every_option_that_safety_depends_on() {
        let (list, options) = (names(&["a", "b", "c"]), QuorumOptions::default());
        let charter = Charter::new(&list, &options);
        let patient = options.node_timeout(Duration::from_secs(9));
        assert_eq!(charter, Charter::new(&list, &patient), "a matter of each client");
        for other in [options.max_ttl(Duration::from_secs(2)), options.persistent(true)] {
            let other = Charter::new(&list, &other);
            assert_ne!(charter.digest(), other.digest(), "{other:?}");
        }
    }

    #[tokio::test]
    async fn what_is_written_can_be_read() {
        let (node, charter) = (Memory::new(), of(&["a", "b", "c"]));
        let health = node.probe().await.unwrap();
        let mark = charter.mark(&health, 9);
        mark.write(&node, 100).await.unwrap();
        found(&node, &charter).await.unwrap();
        quarantine(&node, &charter, &health, Duration::from_secs(60)).await.unwrap();
        assert_eq!(mark.raise(&node, 200).await.unwrap(), 200);
        let look = look(&node).await.unwrap();
        assert_eq!(look.mark, Some((mark.clone(), 200)));
        assert!(look.founding && look.forgot);
        assert!(look.quarantine.unwrap() > Duration::from_secs(50));
        assert!(charter.check(&mark).is_ok() && mark.is_of(&health));
        mark.erase(&node).await.unwrap();
        assert_eq!(super::look(&node).await.unwrap().mark, None);
    }
}
