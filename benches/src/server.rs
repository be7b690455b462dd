//! What a server says about itself.

use std::collections::BTreeMap;

use distlock_testkit::servers::RedisServer;

use crate::place;

/// What clients send to work with locks; whatever else is counted was called by scripts.
const SENT: [&str; 8] =
    ["evalsha", "eval", "fcall", "ping", "script|load", "hello", "subscribe", "spublish"];

/// Calls and microseconds by command, as counted by the server since it started.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommandStats(BTreeMap<String, (u64, u64)>);

impl CommandStats {
    pub(crate) fn read(server: &RedisServer) -> Self {
        let info = server.command(&["INFO", "commandstats"]);
        Self(info.lines().filter_map(line).collect())
    }

    /// Commands that clients sent since an earlier reading.
    pub(crate) fn sent_since(&self, earlier: &Self) -> u64 {
        SENT.iter().map(|name| self.since(earlier, name).0).sum()
    }

    /// Calls and microseconds of scripts since an earlier reading.
    pub(crate) fn scripts_since(&self, earlier: &Self) -> (u64, u64) {
        let (some, others) = (self.since(earlier, "evalsha"), self.since(earlier, "fcall"));
        (some.0 + others.0, some.1 + others.1)
    }

    fn since(&self, earlier: &Self, name: &str) -> (u64, u64) {
        let now = self.0.get(name).copied().unwrap_or_default();
        let then = earlier.0.get(name).copied().unwrap_or_default();
        (now.0 - then.0, now.1 - then.1)
    }
}

/// `cmdstat_evalsha:calls=7,usec=42,...`
fn line(line: &str) -> Option<(String, (u64, u64))> {
    let (name, rest) = line.trim().strip_prefix("cmdstat_")?.split_once(':')?;
    let field = |wanted: &str| {
        let fields = rest.split(',').filter_map(|field| field.split_once('='));
        fields.into_iter().find(|(name, _)| *name == wanted)?.1.parse().ok()
    };
    Some((name.to_owned(), (field("calls")?, field("usec")?)))
}

/// Tells how many seconds of CPU the server's one thread that answers has used, as the kernel
/// counts it: nothing is asked of the server meanwhile.
pub(crate) fn cpu_clock(server: &RedisServer) -> impl Fn() -> f64 + use<> {
    let path = format!("/proc/{}/schedstat", place::pid(server));
    move || {
        let text = std::fs::read_to_string(&path).expect("the server lives");
        let nanos = text.split(' ').next().and_then(|word| word.parse::<f64>().ok());
        nanos.expect("the kernel counts in nanoseconds") / 1e9
    }
}

/// Makes the server write down every call and how long it took.
pub(crate) fn log_every_call(server: &RedisServer) {
    server.command(&["CONFIG", "SET", "slowlog-max-len", "100000"]);
    server.command(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    server.command(&["SLOWLOG", "RESET"]);
}

/// Milliseconds of every script call that was written down.
pub(crate) async fn script_calls_ms(url: &str) -> Vec<f64> {
    let mut connection = crate::round::plain_connection(url).await;
    connection.set_response_timeout(std::time::Duration::from_secs(30));
    let mut cmd = redis::cmd("SLOWLOG");
    cmd.arg("GET").arg(-1);
    let log: Vec<redis::Value> = cmd.query_async(&mut connection).await.expect("a log is kept");
    log.iter().filter_map(script_call_ms).collect()
}

/// An entry is: number, time, microseconds, command, ..
fn script_call_ms(entry: &redis::Value) -> Option<f64> {
    let redis::Value::Array(fields) = entry else { return None };
    let (Some(redis::Value::Int(micros)), Some(redis::Value::Array(words))) =
        (fields.get(2), fields.get(3))
    else {
        return None;
    };
    match words.first()? {
        redis::Value::BulkString(verb) if is_script_call(verb) => Some(*micros as f64 / 1000.0),
        _ => None,
    }
}

fn is_script_call(verb: &[u8]) -> bool {
    [&b"evalsha"[..], b"fcall"].iter().any(|name| verb.eq_ignore_ascii_case(name))
}
