//! The scripts that restate the law, run by the hash of their text.

use std::sync::LazyLock;

use redis::{Cmd, RedisError, ServerErrorKind, Value};
use sha1_smol::Sha1;

/// A script and its hash.
#[derive(Debug)]
pub(super) struct Script {
    text: String,
    hash: String,
    /// How many arguments and bytes a call is likely to have.
    room: (usize, usize),
}

/// Adds the number of keys, the keys and the arguments to a call.
pub(super) type Fill<'a> = &'a (dyn Fn(&mut Cmd) + Send + Sync);

/// Memory that is full must not keep anybody from letting go or holding on.
const EVEN_IF_FULL: &str = "#!lua flags=allow-oom\n";

/// Refused as a whole when memory is full, so that nothing is left half done.
const UNLESS_FULL: &str = "#!lua\n";

macro_rules! script {
    ($name:ident, $flags:expr, $($file:literal),+ $(; $args:literal args, $bytes:literal bytes)?)
    => {
        pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new($flags, &[$(include_str!(concat!("../lua/", $file))),+])
                $(.with_room($args, $bytes))?
        });
    };
}

// The usual cases come first and end the script there, before the whole law is set up.
script!(
    ACQUIRE,
    UNLESS_FULL,
    "names.lua",
    "clock.lua",
    "acquire_free.lua",
    "number.lua",
    "acquire_grant.lua",
    "texts.lua",
    "acquire_behind.lua",
    "number.lua",
    "join.lua",
    "acquire_wait.lua",
    "law.lua",
    "acquire.lua"
);
script!(
    RELEASE,
    EVEN_IF_FULL,
    "names.lua",
    "release_free.lua",
    "clock.lua",
    "texts.lua",
    "next.lua",
    "release_next.lua",
    "number.lua",
    "enter.lua",
    "law.lua",
    "release.lua"
);
script!(
    MANY,
    UNLESS_FULL,
    "many_names.lua",
    "many_release.lua",
    "clock.lua",
    "number.lua",
    "many_acquire.lua";
    80 args, 4096 bytes
);
script!(RENEW, EVEN_IF_FULL, "renew.lua"; 48 args, 2048 bytes);
script!(RAISE, EVEN_IF_FULL, "raise.lua");
script!(JOURNAL, UNLESS_FULL, "journal.lua");
script!(PAST, EVEN_IF_FULL, "past.lua");
script!(STAND, EVEN_IF_FULL, "names.lua", "clock.lua", "texts.lua", "law.lua", "stand.lua");
script!(CONFIRM, EVEN_IF_FULL, "names.lua", "clock.lua", "texts.lua", "law.lua", "confirm.lua");
script!(BEAT, EVEN_IF_FULL, "names.lua", "clock.lua", "texts.lua", "law.lua", "beat.lua");
script!(GLANCE, EVEN_IF_FULL, "names.lua", "clock.lua", "texts.lua", "law.lua", "glance.lua");
script!(
    INSPECT,
    "#!lua flags=no-writes\n",
    "names.lua",
    "clock.lua",
    "texts.lua",
    "law.lua",
    "inspect.lua"
);

impl Script {
    fn new(flags: &str, parts: &[&str]) -> Self {
        let text = format!("{flags}{}", parts.concat());
        let hash = Sha1::from(&text).digest().to_string();
        Self { text, hash, room: (12, 320) }
    }

    /// For calls that are larger than others.
    fn with_room(self, args: usize, bytes: usize) -> Self {
        Self { room: (args, bytes), ..self }
    }

    /// The call by hash.
    pub(super) fn by_hash(&self, fill: Fill<'_>) -> Cmd {
        let mut cmd = Cmd::with_capacity(self.room.0, self.room.1);
        cmd.arg("EVALSHA").arg(&self.hash);
        fill(&mut cmd);
        cmd
    }

    /// Makes the script known to a server.
    pub(super) fn load(&self) -> Cmd {
        let mut cmd = redis::cmd("SCRIPT");
        cmd.arg("LOAD").arg(&self.text);
        cmd
    }

    /// The call with the whole text, for a server that does not know the hash.
    pub(super) fn by_text(&self, fill: Fill<'_>) -> Cmd {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(&self.text);
        fill(&mut cmd);
        cmd
    }
}

/// True if the server has never seen the script, or has forgotten it.
pub(super) fn is_unknown(answer: &Result<Value, RedisError>) -> bool {
    let unknown = redis::ErrorKind::Server(ServerErrorKind::NoScript);
    answer.as_ref().is_err_and(|error| error.kind() == unknown)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use distlock_core::Wait;

    use super::super::faults::NEEDED;
    use super::super::{FENCE_LIFE_MS, wire};
    use super::*;

    /// The commands that a script calls by name: all but the two by which clients are told.
    fn commands(script: &Script) -> impl Iterator<Item = String> {
        let calls = script.text.split("call('").chain(script.text.split("get_main('")).skip(1);
        let names = calls.filter_map(|call| call.split_once('\'').map(|(name, _)| name));
        let is_name =
            |name: &&str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase());
        names.filter(is_name).map(|name| format!("+{}", name.to_lowercase()))
    }

    #[test]
    fn whoever_writes_an_access_list_is_told_all_commands_and_no_others() {
        let scripts = [
            &ACQUIRE, &RELEASE, &MANY, &RENEW, &JOURNAL, &PAST, &STAND, &CONFIRM, &BEAT, &GLANCE,
            &INSPECT, &RAISE,
        ];
        let called: BTreeSet<_> = scripts.into_iter().flat_map(|script| commands(script)).collect();
        let told: BTreeSet<_> =
            NEEDED.split([' ', ',']).filter(|word| word.starts_with('+')).collect();
        let outside = ["+eval", "+evalsha", "+subscribe", "+ssubscribe", "+publish", "+spublish"];
        let (journal, replicas) = (["+xrange", "+xrevrange"], ["+wait"]);
        let others = outside.into_iter().chain(journal).chain(replicas).map(str::to_owned);
        let all: BTreeSet<_> = called.into_iter().chain(others).collect();
        assert_eq!(told.into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), all);
    }

    #[test]
    fn the_scripts_know_what_is_usual() {
        let (ttl, Wait { place, waiters_max }) = (wire::USUAL_TTL, wire::USUAL_WAIT);
        let (ttl, place) = (wire::millis(ttl), wire::millis(place));
        let usual = format!(
            "local LIFE, TTL, PLACE, MOST = '{FENCE_LIFE_MS}', '{ttl}', '{place}', {waiters_max}\n"
        );
        for script in [&ACQUIRE, &RELEASE, &STAND, &BEAT, &GLANCE, &INSPECT] {
            assert!(script.text.contains(&usual), "{usual}");
        }
        let life = format!("local LIFE, fence_key, one_counter = '{FENCE_LIFE_MS}',");
        assert!(MANY.text.contains(&life), "{life}");
    }
}
