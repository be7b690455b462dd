//! How many wrong tokens are answered, per address range and in total.
//!
//! A valid token is never throttled: it is compared before the limits are asked, so that wrong
//! tokens of others cost no holder its lease. What keeps tokens from being guessed is their length;
//! the limits bound what guesses cost the service and its log.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::sync::lock;

/// The wrong tokens of one range: ten at once, then one every six seconds.
const RANGE: Rate = Rate { burst: 10, every: Duration::from_secs(6) };

/// All wrong tokens: three hundred at once, then five a second.
const TOTAL: Rate = Rate { burst: 300, every: Duration::from_millis(200) };

/// How many ranges are remembered in one generation. There are two generations.
const RANGES_MAX: usize = 8_192;

/// How many failures are answered at once, and how often one more is.
#[derive(Clone, Copy, Debug)]
struct Rate {
    burst: u32,
    every: Duration,
}

/// The addresses that one party is taken to have: a /24 of IPv4, all of loopback, a /48 of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Range(IpAddr);

impl Range {
    pub(crate) fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            local if local.is_loopback() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V4(address) => {
                let [a, b, c, _] = address.octets();
                Ipv4Addr::new(a, b, c, 0).into()
            }
            IpAddr::V6(address) => {
                let [a, b, c, ..] = address.segments();
                Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0).into()
            }
        })
    }
}

/// Counts the tokens that were wrong.
#[derive(Debug, Default)]
pub(crate) struct AuthThrottle(Mutex<Failures>);

#[derive(Debug, Default)]
struct Failures {
    total: Debt,
    ranges: HashMap<Range, Debt>,
    /// The generation before: forgotten as a whole when the present one is full.
    older: HashMap<Range, Debt>,
}

/// The moment at which all counted failures are forgiven; none if there was no failure.
#[derive(Clone, Copy, Debug, Default)]
struct Debt(Option<Instant>);

impl Debt {
    /// How long until one more failure is answered.
    fn wait(self, rate: Rate, now: Instant) -> Duration {
        self.left(now).saturating_sub(rate.every * (rate.burst - 1))
    }

    fn one_more(self, rate: Rate, now: Instant) -> Self {
        Self(Some(now + self.left(now) + rate.every))
    }

    fn left(self, now: Instant) -> Duration {
        self.0.map_or(Duration::ZERO, |forgiven| forgiven.saturating_duration_since(now))
    }
}

/// How a wrong token is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// As wrong.
    Wrong,
    /// As one too many, with the time after which another is answered.
    Throttled(Duration),
}

impl AuthThrottle {
    /// Counts a wrong token. One that is throttled does not count: it adds no time to the wait.
    pub(crate) fn failed(&self, from: IpAddr, now: Instant) -> Refusal {
        let range = Range::of(from);
        let mut failures = lock(&self.0);
        let (of_range, total) = (failures.of(range), failures.total);
        let wait = of_range.wait(RANGE, now).max(total.wait(TOTAL, now));
        if !wait.is_zero() {
            return Refusal::Throttled(wait);
        }
        failures.total = total.one_more(TOTAL, now);
        failures.put(range, of_range.one_more(RANGE, now));
        Refusal::Wrong
    }
}

impl Failures {
    fn of(&self, range: Range) -> Debt {
        let found = self.ranges.get(&range).or_else(|| self.older.get(&range));
        found.copied().unwrap_or_default()
    }

    fn put(&mut self, range: Range, debt: Debt) {
        if self.ranges.len() >= RANGES_MAX && !self.ranges.contains_key(&range) {
            self.older = std::mem::take(&mut self.ranges);
        }
        self.ranges.insert(range, debt);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u8) -> IpAddr {
        IpAddr::from([10, 0, n, 1])
    }

    #[test]
    fn failures_of_a_range_are_forgiven_one_by_one() {
        let (throttle, start) = (AuthThrottle::default(), Instant::now());
        for _ in 0..RANGE.burst {
            assert_eq!(throttle.failed(address(1), start), Refusal::Wrong);
        }
        let throttled = Refusal::Throttled(RANGE.every);
        assert_eq!(throttle.failed(address(1), start), throttled);
        assert_eq!(throttle.failed(IpAddr::from([10, 0, 1, 99]), start), throttled, "one range");
        assert_eq!(throttle.failed(address(2), start), Refusal::Wrong, "another range");
        let later = start + RANGE.every;
        assert_eq!(throttle.failed(address(1), later), Refusal::Wrong);
        assert_eq!(throttle.failed(address(1), later), throttled);
    }

    #[test]
    fn failures_of_all_ranges_count_together_and_use_bounded_memory() {
        let (throttle, start) = (AuthThrottle::default(), Instant::now());
        let mut wrong = 0;
        for n in 0..100_000_u32 {
            let [_, a, b, c] = n.to_be_bytes();
            let refused = throttle.failed(IpAddr::from([a, b, c, 7]), start);
            wrong += u32::from(refused == Refusal::Wrong);
        }
        assert_eq!(wrong, TOTAL.burst);
        let rested = start + TOTAL.every;
        assert_eq!(throttle.failed(IpAddr::from([99, 9, 9, 9]), rested), Refusal::Wrong);
        let mut now = rested;
        for n in 0..20_000_u32 {
            now += TOTAL.every;
            let [_, a, b, c] = n.to_be_bytes();
            throttle.failed(IpAddr::from([a, b, c, 7]), now);
        }
        let failures = lock(&throttle.0);
        assert!(failures.ranges.len() <= RANGES_MAX && failures.older.len() <= RANGES_MAX);
    }

    #[test]
    fn a_range_is_what_one_party_has() {
        let of = |text: &str| Range::of(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::7"), of("2001:db8:1:3:ffff::1"));
        assert_ne!(of("2001:db8:1::7"), of("2001:db8:2::7"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.200"));
        assert_ne!(of("10.0.0.1"), of("10.0.1.1"));
        assert_eq!(of("127.0.0.1"), of("127.255.3.4"));
        assert_eq!(of("127.0.0.1"), of("::1"));
    }
}
