//! How many wrong tokens may come from one address before it is not heard for a while.
//!
//! A token that was right from an address before stays welcome there, so that nobody's locks are
//! lost because a neighbour behind the same address has a wrong one. Elsewhere nobody notices.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::sync::lock;

/// So many wrong tokens are forgiven at once.
const BURST: u32 = 10;

/// After that one more each time this has passed.
const FORGIVEN_EVERY: Duration = Duration::from_secs(6);

/// How many addresses are remembered, twice at most: the young and the old.
const REMEMBERED_MAX: usize = 8_192;

/// How long a right token is remembered at least.
const REMEMBERED_FOR: Duration = Duration::from_secs(60 * 60);

/// What is known of those who presented tokens.
#[derive(Debug, Default)]
pub(crate) struct Guesses(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    /// The moment at which everything that an address got wrong is forgiven.
    wrong: Recent<IpAddr, Instant>,
    /// Which tokens were right, by address and number.
    right: Recent<(IpAddr, usize), ()>,
}

/// What becomes of somebody who presented a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is one of ours.
    Welcome,
    /// It is not.
    Wrong,
    /// Too many wrong ones came from there: come back after this time.
    Wait(Duration),
}

impl Guesses {
    /// Judges a token from an address by its number, which is zero if it is none of ours.
    pub(crate) fn judge(&self, from: IpAddr, number: usize, now: Instant) -> Verdict {
        let from = neighbourhood(from);
        let mut book = lock(&self.0);
        let forgiven = book.wrong.get(&from).unwrap_or(now);
        let debt = forgiven.saturating_duration_since(now);
        let wait = debt.saturating_sub(FORGIVEN_EVERY * (BURST - 1));
        let known = number > 0 && book.right.get(&(from, number)).is_some();
        if !wait.is_zero() && !known {
            return Verdict::Wait(wait);
        }
        if number > 0 {
            book.right.put((from, number), (), now);
            return Verdict::Welcome;
        }
        book.wrong.put(from, now + debt + FORGIVEN_EVERY, now);
        Verdict::Wrong
    }
}

/// What counts as one address: whoever has one of IPv6 has all that share its first half.
fn neighbourhood(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        plain => plain,
    }
}

/// What came up lately, within bounds: the old is forgotten as a whole when the young is full.
#[derive(Debug)]
struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    since: Option<Instant>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), since: None }
    }
}

impl<K: Hash + Eq, V: Copy> Recent<K, V> {
    fn get(&self, key: &K) -> Option<V> {
        self.young.get(key).or_else(|| self.old.get(key)).copied()
    }

    fn put(&mut self, key: K, value: V, now: Instant) {
        let since = *self.since.get_or_insert(now);
        let full = self.young.len() >= REMEMBERED_MAX && !self.young.contains_key(&key);
        if full || now.saturating_duration_since(since) > REMEMBERED_FOR {
            self.old = std::mem::take(&mut self.young);
            self.since = Some(now);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    #[test]
    fn wrong_tokens_are_forgiven_one_by_one() {
        let (guesses, start) = (Guesses::default(), Instant::now());
        for _ in 0..BURST {
            assert_eq!(guesses.judge(address(1), 0, start), Verdict::Wrong);
        }
        assert_eq!(guesses.judge(address(1), 0, start), Verdict::Wait(FORGIVEN_EVERY));
        assert_eq!(guesses.judge(address(1), 7, start), Verdict::Wait(FORGIVEN_EVERY));
        assert_eq!(guesses.judge(address(2), 7, start), Verdict::Welcome, "from elsewhere");
        let later = start + FORGIVEN_EVERY;
        assert_eq!(guesses.judge(address(1), 0, later), Verdict::Wrong);
        assert_eq!(guesses.judge(address(1), 0, later), Verdict::Wait(FORGIVEN_EVERY));
        let rested = later + FORGIVEN_EVERY * BURST;
        assert_eq!(guesses.judge(address(1), 7, rested), Verdict::Welcome);
    }

    #[test]
    fn a_neighbour_with_a_wrong_token_locks_nobody_out() {
        let (guesses, start) = (Guesses::default(), Instant::now());
        assert_eq!(guesses.judge(address(1), 7, start), Verdict::Welcome);
        for _ in 0..=BURST {
            guesses.judge(address(1), 0, start);
        }
        assert_eq!(guesses.judge(address(1), 7, start), Verdict::Welcome);
        assert!(matches!(guesses.judge(address(1), 8, start), Verdict::Wait(_)));
    }

    #[test]
    fn what_is_remembered_has_bounds() {
        let (guesses, start) = (Guesses::default(), Instant::now());
        for n in 0..100_000_u32 {
            let from = IpAddr::from(n.to_be_bytes());
            guesses.judge(from, 1, start);
            guesses.judge(from, 0, start);
        }
        let book = lock(&guesses.0);
        for (young, old) in [
            (book.wrong.young.len(), book.wrong.old.len()),
            (book.right.young.len(), book.right.old.len()),
        ] {
            assert!(young <= REMEMBERED_MAX && old <= REMEMBERED_MAX, "{young} and {old}");
        }
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let of = |text: &str| neighbourhood(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::7"), of("2001:db8:1:2:ffff::1"));
        assert_ne!(of("2001:db8:1:2::7"), of("2001:db8:1:3::7"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
