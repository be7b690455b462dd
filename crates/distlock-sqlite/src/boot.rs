//! The clock of a store: time since the machine was started, the same for all its processes.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use distlock_core::law::Now;
use distlock_core::{Clock, Fault, Moment};
use rustix::time::{ClockId, clock_gettime};

/// Changes whenever the machine is started.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Which time namespace this process is in, and which its children will be in.
const TIME_NAMESPACE: &str = "/proc/self/ns/time";
const CHILDREN_TIME_NAMESPACE: &str = "/proc/self/ns/time_for_children";

/// By how much the clocks of that second one differ from those of the machine.
const CLOCK_OFFSETS: &str = "/proc/self/timens_offsets";

/// The namespace that the machine starts with. The kernel has given it this number ever since.
const FIRST_NAMESPACE: &str = "time:[4026531834]";

/// The clock of the kernel that all processes share and that counts while the machine sleeps.
#[derive(Clone, Copy, Debug)]
struct KernelClock;

impl Clock for KernelClock {
    fn now(&self) -> Moment {
        let time = clock_gettime(ClockId::Boottime);
        let (seconds, nanos) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
        Moment::from_micros(seconds * 1_000_000 + nanos / 1_000)
    }

    /// No timer depends on this clock.
    fn nap(&self) -> Duration {
        Duration::MAX
    }
}

/// The time since one start of the machine. It never jumps, whatever becomes of the wall clock.
#[derive(Clone, Debug)]
pub(super) struct Boot {
    /// Which start.
    pub(super) id: String,
    clock: Arc<dyn Clock>,
    /// What the time namespace of this process adds to the clock. It is taken off again: processes
    /// in different namespaces share the file, so they have to share the time.
    offset_us: i64,
}

impl Boot {
    /// The present start of this machine.
    pub(super) fn of_machine() -> Result<Self, Fault> {
        let id = fs::read_to_string(BOOT_ID).map_err(|error| {
            let text = format!("{BOOT_ID}: {error}; without it a restart cannot be noticed");
            Fault::permanent("tell when this machine was started", text)
        })?;
        Ok(Self {
            id: id.trim().to_owned(),
            clock: Arc::new(KernelClock),
            offset_us: namespace_offset_us()?,
        })
    }

    /// A start and a clock of one's own.
    pub(super) fn new(id: String, clock: Arc<dyn Clock>) -> Self {
        Self { id, clock, offset_us: 0 }
    }

    pub(super) fn now(&self) -> Now {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seed = u64::try_from(since.as_micros()).unwrap_or(0);
        let micros = self.clock.now().as_micros().saturating_add_signed(-self.offset_us);
        Now { at: Moment::from_micros(micros), seed }
    }
}

/// What the time namespace of this process adds to the clock.
fn namespace_offset_us() -> Result<i64, Fault> {
    let link = |path| fs::read_link(path).map(|link| link.to_string_lossy().into_owned());
    let Ok(own) = link(TIME_NAMESPACE) else {
        // A kernel without time namespaces.
        return Ok(0);
    };
    if own == FIRST_NAMESPACE {
        return Ok(0);
    }
    let refuse = |why: &str| {
        Fault::permanent("tell the time", format!("this process is in a time namespace and {why}"))
    };
    if link(CHILDREN_TIME_NAMESPACE).ok().as_ref() != Some(&own) {
        return Err(refuse("its children will be in another: the kernel tells only their offset"));
    }
    let text =
        fs::read_to_string(CLOCK_OFFSETS).map_err(|e| refuse(&format!("{CLOCK_OFFSETS}: {e}")))?;
    boottime_offset_us(&text)
        .ok_or_else(|| refuse(&format!("{CLOCK_OFFSETS} cannot be understood")))
}

/// Reads the line `boottime <seconds> <nanoseconds>`.
fn boottime_offset_us(offsets: &str) -> Option<i64> {
    let line = offsets.lines().find_map(|line| line.trim().strip_prefix("boottime"))?;
    let mut numbers = line.split_whitespace().map(str::parse::<i64>);
    let (seconds, nanos) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    seconds.checked_mul(1_000_000)?.checked_add(nanos / 1_000)
}

#[cfg(test)]
mod tests {
    use distlock_core::ManualClock;

    use super::*;

    #[test]
    fn the_offset_of_a_namespace_is_taken_off() {
        let offsets = "monotonic           0         0\nboottime        86400     2000000\n";
        assert_eq!(boottime_offset_us(offsets), Some(86_400_002_000));
        assert_eq!(boottime_offset_us("boottime -5 0"), Some(-5_000_000));
        assert_eq!(boottime_offset_us("monotonic 1 1"), None);
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(90_000));
        let mut boot = Boot::new("b".to_owned(), Arc::new(clock));
        boot.offset_us = 86_400_000_000;
        assert_eq!(boot.now().at, Moment::from_micros(3_600_000_000));
    }

    #[test]
    fn the_machine_has_a_boot_and_a_clock() {
        let boot = Boot::of_machine().unwrap();
        assert_eq!(boot.id.len(), 36);
        assert!(boot.now().at > Moment::ORIGIN);
    }
}
