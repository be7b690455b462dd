//! The clocks that leases are measured by.

use std::time::Duration;

use distlock_core::{Clock, Moment};

/// The machine's clock that keeps counting while the machine sleeps.
///
/// A holder on a laptop that was closed for an hour must know that its lease has ended, so the
/// clock of ordinary timers, which stands still meanwhile, will not do.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn now(&self) -> Moment {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let (seconds, nanos) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
        Moment::from_micros(seconds * 1_000_000 + nanos / 1_000)
    }

    /// Elsewhere the monotonic clock; on macOS and Windows it counts sleep, too.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn now(&self) -> Moment {
        static ORIGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        Moment::ORIGIN.after(ORIGIN.get_or_init(std::time::Instant::now).elapsed())
    }

    fn nap(&self) -> Duration {
        Duration::from_millis(250)
    }
}

/// The runtime's clock: under `tokio::time::pause` it moves with the test.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    origin: tokio::time::Instant,
}

impl TokioClock {
    /// A clock whose origin is now.
    pub fn new() -> Self {
        Self { origin: tokio::time::Instant::now() }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Moment {
        Moment::ORIGIN.after(self.origin.elapsed())
    }

    fn nap(&self) -> Duration {
        Duration::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_never_goes_back() {
        let mut last = BootClock.now();
        for _ in 0..10_000 {
            let now = BootClock.now();
            assert!(now >= last);
            last = now;
        }
    }
}
