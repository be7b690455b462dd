//! The law: who may hold what.
//!
//! A [`Record`] is all that a store knows of one key. Three verbs change it, [`Record::acquire`],
//! [`Record::renew`] and [`Record::release`]; each takes the present as an argument and answers
//! with the outcome and the [`AddressedPush`]s to push. A backend stores records and carries
//! messages; it decides nothing.
//!
//! # The rules
//!
//! 1. **Admission.** A claim of weight w out of capacity c is admitted if no client is ahead of it
//!    and the weights held plus w are at most c. A claim for the whole of its capacity is
//!    exclusive: it needs the key for itself and no client enters while it holds, whatever capacity
//!    they believe in.
//! 2. **Ahead** is what the [`Order`](crate::Order) says. It binds everybody, also one-shot asks
//!    and asks with a larger capacity: no claim overtakes another.
//! 3. **Expiry.** Every holder has its own lease and every client its own heartbeat. A claim that
//!    is past it does not count, from that very moment on. No lease shortens another.
//! 4. **The release grants.** Whatever frees capacity (a release, an expiry noticed by anyone, a
//!    waiter that leaves) admits the next in line in the same step.
//! 5. **A grant to a waiter inherits the remaining life of its place**, so a waiter that died costs
//!    one place and not a whole lease.
//! 6. **Fences grow.** A new grant mints `max(last + 1, seed)`, where the seed is wall-clock time,
//!    or `max(last + 1, floor)`. Repeats, renewals and reentries keep the fence they have. Tickets
//!    come from the same counter and so never restart.
//! 7. **A claim id serves once.** What was buried or broken cannot hold while its grave lasts,
//!    which is longer than any message for it can be on its way.
//! 8. **A clean-up gives up its own attempt.** A claim whose id the caller chose keeps the attempts
//!    that asked for it, and is given up with the last of them. Only the attempt is dead then.
//!
//! # Invariants
//!
//! After every verb: no expired holder and no dead place is in the record, the first in line does
//! not fit, every waiting client has a heartbeat, and every index agrees with what it indexes.
//! Only the renewal of an exclusive hold touches nothing but itself. [`Record::verify`] checks
//! them.

mod admission;
mod attempts;
mod holders;
mod many;
mod parts;
mod queue;
mod ranked_queue;
mod record;

pub use attempts::Attempts;
pub use holders::HeldClaim;
pub use many::{Step, acquire_all};
pub use parts::{Changes, OmittedRows, OmittedSharers, Parts};
pub use queue::WaitingClaim;
pub use record::{AddressedPush, Now, Record, TOMBSTONES_MAX};
