//! `distlock doctor`: is the store fit to carry locks, and which fixes it needs.

use std::time::{Duration, Instant, SystemTime};

use distlock::{Error, Health, Locks};
use serde_json::json;

use crate::args::BACKEND_DEFAULT;
use crate::exit::{self, Failure};
use crate::{cmd, help, out};

/// Check a store and suggest fixes
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = help::DOCTOR)]
pub(crate) struct DoctorArgs {
    /// Print JSON, one object per finding and line
    #[arg(long)]
    pub(crate) json: bool,

    /// The store to look at
    #[arg(value_name = "URL", env = "DISTLOCK_URL", hide_env_values = true)]
    #[arg(default_value = BACKEND_DEFAULT, hide_default_value = true)]
    pub(crate) url: String,
}

/// How many times the way to the store and back is measured.
const ROUNDS: usize = 9;

/// A round trip above this makes short leases risky.
const SLOW: Duration = Duration::from_millis(100);

/// Clocks further apart than this deserve a remark.
const CLOCK_OFF: Duration = Duration::from_secs(1);

/// How long each examination may take.
const EXAMINE_MAX: Duration = Duration::from_secs(10);

/// How long a free lock may be waited for, so that a store that refuses is heard before the
/// examination ends.
const LOCK_MAX: Duration = Duration::from_secs(4);

/// How a finding is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grade {
    Ok,
    Warn,
    /// Locks do not work; the exit code says why.
    Fail(u8),
}

/// One thing that was looked at.
#[derive(Debug)]
struct Finding {
    grade: Grade,
    what: &'static str,
    says: String,
}

impl Finding {
    fn ok(what: &'static str, says: impl Into<String>) -> Self {
        Self { grade: Grade::Ok, what, says: says.into() }
    }

    fn warn(what: &'static str, says: impl Into<String>) -> Self {
        Self { grade: Grade::Warn, what, says: says.into() }
    }

    fn fail(what: &'static str, error: &Error, cure: &str) -> Self {
        let says = format!("could not {error}; {cure}").replace("could not could not", "could not");
        Self { grade: Grade::Fail(exit::code_of(error)), what, says }
    }

    fn show(&self, json: bool) {
        let grade = match self.grade {
            Grade::Ok => "ok",
            Grade::Warn => "warn",
            Grade::Fail(_) => "fail",
        };
        if json {
            out::print(json!({ "grade": grade, "check": self.what, "finding": self.says }));
        } else {
            out::print(format_args!("{grade:<4}  {:<11}  {}", self.what, self.says));
        }
    }
}

/// Examines a store and prints every finding. The exit code is that of the first failure.
pub(crate) fn run(args: &DoctorArgs) -> Result<u8, Failure> {
    let locks = Locks::connect(&args.url)?;
    let findings = cmd::block_on(async { Ok(examine(&locks, &args.url).await) })?;
    let mut code = 0;
    for finding in &findings {
        finding.show(args.json);
        if let Grade::Fail(failed) = finding.grade
            && code == 0
        {
            code = failed;
        }
    }
    Ok(code)
}

async fn examine(locks: &Locks, url: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    match tokio::time::timeout(EXAMINE_MAX, reach(locks)).await {
        Ok(Ok((health, asked, answered))) => {
            findings.extend(latency(locks).await);
            findings.extend(about(&health, url));
            findings.extend(clock(&health, asked, answered));
        }
        Ok(Err(error)) => {
            findings.push(Finding::fail("reach", &error, cure(&error, url)));
            return findings;
        }
        Err(_) => {
            let says = "the store does not answer within 10s: see whether it is paused or behind \
                        a firewall";
            let grade = Grade::Fail(exit::UNREACHABLE);
            findings.push(Finding { grade, what: "reach", says: says.into() });
            return findings;
        }
    }
    findings.push(locking(locks, url).await);
    findings
}

/// What to do about grants that are not pushed.
fn push_cure(url: &str) -> &'static str {
    if url.starts_with("postgres") {
        return "a pooler has no sessions to listen in; name the server itself with listen=URL";
    }
    "allow the user to subscribe and publish, +subscribe +publish +ssubscribe +spublish and the \
     channels"
}

/// What to do about an error on the way to the store.
fn cure(error: &Error, url: &str) -> &'static str {
    let scheme = url.split_once(':').map_or(url, |(scheme, _)| scheme);
    match (exit::code_of(error), scheme) {
        (exit::NOT_AUTHORISED, "sqlite") => "let this user read and write the file and its folder",
        (exit::NOT_AUTHORISED, "postgres" | "postgresql") => {
            "check the user, the password and pg_hba.conf; `distlock schema postgres` prints the \
             tables and the rights that a role needs"
        }
        (exit::NOT_AUTHORISED, _) => "check the user, the password and what the user may do",
        (exit::UNREACHABLE, "sqlite") => "find out who keeps the file locked, with fuser or lsof",
        (exit::UNREACHABLE, "quorum") => "start the nodes that are down: most must answer",
        (exit::UNREACHABLE, "redis-sentinel") => {
            "check that a Sentinel of the URL runs and knows the primary by that name, and that \
             the address it gives can be reached from here"
        }
        (exit::UNREACHABLE, "redis-cluster") => {
            "check that a node of the URL runs, and that all nodes can be reached from here under \
             the addresses they announce: redis-cli --cluster check"
        }
        (exit::UNREACHABLE, _) => "check that the server runs, and that host and port are right",
        _ => "check the URL and the settings of the store",
    }
}

async fn reach(locks: &Locks) -> Result<(Health, SystemTime, SystemTime), Error> {
    // The first answer includes the dialling.
    locks.probe().await?;
    let asked = SystemTime::now();
    let health = locks.probe().await?;
    Ok((health, asked, SystemTime::now()))
}

async fn latency(locks: &Locks) -> Option<Finding> {
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let started = Instant::now();
        locks.inspect("distlock/doctor").await.ok()?;
        rounds.push(started.elapsed());
    }
    rounds.sort_unstable();
    let (median, worst) = (rounds[ROUNDS / 2], rounds[ROUNDS - 1]);
    let says = format!("answers in {}, at worst {}", fine(median), fine(worst));
    Some(if median > SLOW {
        Finding::warn("reach", format!("{says}: use a store that is nearer, or a longer --ttl"))
    } else {
        Finding::ok("reach", says)
    })
}

/// What the store says about itself.
fn about(health: &Health, url: &str) -> Vec<Finding> {
    let mut findings: Vec<_> =
        health.facts.iter().map(|(name, value)| Finding::ok(name, value)).collect();
    if url.starts_with("memory:") {
        let says = "holds inside one process only: use sqlite: for one machine, redis:// for more";
        findings.push(Finding::warn("scope", says));
    } else if !health.persistent && url.starts_with("quorum:") {
        let says = "a node that restarts abstains for a minute: fine, unless most restart at once";
        findings.push(Finding::ok("persistence", says));
    } else if !health.persistent {
        findings.push(Finding::warn(
            "persistence",
            "after a crash of the store two may hold: set appendonly yes and appendfsync always, \
             use a quorum, or let the resource check the fence",
        ));
    }
    let scheme = url.split(':').next().unwrap_or_default();
    if scheme.ends_with("-sentinel") || scheme.ends_with("-cluster") {
        let says = "a replica that takes over may not know the last grants: let the resource check \
                    the fence, or use a quorum";
        findings.push(Finding::ok("failover", says));
    }
    findings.extend(health.warnings.iter().map(|warning| Finding::warn("store", warning)));
    findings
}

fn clock(health: &Health, asked: SystemTime, answered: SystemTime) -> Option<Finding> {
    let since_1970 = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).ok();
    let (asked, answered) = (since_1970(asked)?, since_1970(answered)?);
    let theirs = Duration::from_micros(health.clock_us?);
    // It was read at some time between the two, so only what lies outside of them is an offset.
    let (offset, way) = if theirs > answered {
        (theirs - answered, "ahead of ours")
    } else {
        (asked.saturating_sub(theirs), "behind ours")
    };
    if offset < Duration::from_millis(1) {
        return Some(Finding::ok("clock", "agrees with ours"));
    }
    let says = format!("{} {way}", fine(offset));
    Some(if offset > CLOCK_OFF {
        let cure =
            "leases do not mind, but fences may repeat after a loss of data: run NTP on both";
        Finding::warn("clock", format!("{says}; {cure}"))
    } else {
        Finding::ok("clock", says)
    })
}

/// Takes a lock, waits for it a second time, hands it over, releases it: all that locks need.
async fn locking(locks: &Locks, url: &str) -> Finding {
    let examined = tokio::time::timeout(EXAMINE_MAX, hand_over(locks)).await;
    match examined {
        Ok(Ok(took)) if !locks.capabilities().push && locks.capabilities().queue => Finding::warn(
            "lock",
            format!(
                "works, but grants are not pushed (hand-over in {}): {}",
                fine(took),
                push_cure(url)
            ),
        ),
        Ok(Ok(took)) => Finding::ok("lock", format!("acquired, handed over in {}", fine(took))),
        Ok(Err(error)) => Finding::fail("lock", &error, cure(&error, url)),
        Err(_) => {
            let says = "a lock that was released did not reach the next in line within 10s: look \
                        for what slows the store down";
            Finding { grade: Grade::Fail(exit::UNREACHABLE), what: "lock", says: says.into() }
        }
    }
}

async fn hand_over(locks: &Locks) -> Result<Duration, Error> {
    let key = format!("distlock/doctor/{}", std::process::id());
    let patient = locks.configure(|options| options.max_wait(LOCK_MAX))?;
    let mutex = patient.mutex(&key)?;
    let first = mutex.lock().await?;
    let waiting = async {
        let second = mutex.lock().await?;
        Ok::<_, Error>((second, Instant::now()))
    };
    let releasing = async {
        // Long enough for the second to have queued.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let released = Instant::now();
        first.release().await?;
        Ok::<_, Error>(released)
    };
    let (second, released) = tokio::join!(waiting, releasing);
    let ((second, granted), released) = (second?, released?);
    second.release().await?;
    Ok(granted.saturating_duration_since(released))
}

/// A duration with as many digits as an engineer wants.
fn fine(span: Duration) -> String {
    if span < Duration::from_secs(1) {
        format!("{:.2} ms", span.as_secs_f64() * 1e3)
    } else {
        format!("{:.1} s", span.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_store_that_fails_over_says_what_that_can_lose() {
        let health = Health::new("id", "incarnation");
        let names_failover =
            |url: &str| about(&health, url).iter().any(|finding| finding.what == "failover");
        for kind in ["sentinel", "cluster"] {
            assert!(names_failover(&format!("redis-{kind}://h/x")), "{kind}");
            assert!(names_failover(&format!("rediss-{kind}://h/x")), "{kind} with TLS");
        }
        assert!(!names_failover("rediss://h/"));
    }
}
