//! The scripts that restate the law, run by the hash of their text.

use std::sync::OnceLock;

use redis::{Cmd, RedisError, ServerErrorKind, Value};
use sha1_smol::Sha1;

use super::keys::Namespace;
use super::wire::{self, USUAL_TTL, USUAL_WAIT};

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

/// Replicas and servers that are full may run it, too.
const NO_WRITES: &str = "#!lua flags=no-writes\n";

macro_rules! scripts {
    ($($name:ident: $flags:ident, [$($file:literal),+], $args:literal args, $bytes:literal bytes;)+)
    => {
        /// All scripts, as they are run for one namespace. Each is put together when it is needed.
        #[derive(Debug)]
        pub(super) struct Scripts {
            above: String,
            $($name: OnceLock<Script>,)+
        }

        impl Scripts {
            /// The scripts with these lines at the top.
            fn with_lines_above(above: String) -> Self {
                Self { above, $($name: OnceLock::new(),)+ }
            }

            $(pub(super) fn $name(&self) -> &Script {
                let parts = [$(include_str!(concat!("lua/", $file))),+];
                let room = ($args, $bytes);
                self.$name.get_or_init(|| Script::new($flags, &self.above, &parts, room))
            })+

            #[cfg(test)]
            fn all(&self) -> Vec<&Script> {
                vec![$(self.$name()),+]
            }
        }
    };
}

// The usual cases come first and end the script there, before the whole law is set up.
scripts! {
    acquire: UNLESS_FULL, [
        "names.lua", "clock.lua", "acquire_free.lua", "number.lua", "acquire_grant.lua",
        "texts.lua", "acquire_behind.lua", "number.lua", "join.lua", "acquire_wait.lua",
        "law.lua", "acquire.lua"
    ], 8 args, 256 bytes;
    release: EVEN_IF_FULL, [
        "names.lua", "release_free.lua", "clock.lua", "texts.lua", "next.lua", "release_next.lua",
        "number.lua", "enter.lua", "release_told.lua", "law.lua", "release.lua"
    ], 8 args, 256 bytes;
    relay: UNLESS_FULL, [
        "names.lua", "clock.lua", "relay.lua", "texts.lua", "next.lua", "relay_join.lua",
        "number.lua", "join.lua", "enter.lua", "relay_told.lua"
    ], 8 args, 256 bytes;
    many: UNLESS_FULL, [
        "many_names.lua", "many_release.lua", "clock.lua", "number.lua", "many_acquire.lua"
    ], 80 args, 4096 bytes;
    renew: EVEN_IF_FULL, ["renew.lua"], 48 args, 2048 bytes;
    journal: UNLESS_FULL, ["journal.lua"], 16 args, 512 bytes;
    stand: EVEN_IF_FULL, ["names.lua", "clock.lua", "texts.lua", "law.lua", "stand.lua"],
        16 args, 512 bytes;
    beat: EVEN_IF_FULL, ["names.lua", "clock.lua", "texts.lua", "law.lua", "beat.lua"],
        16 args, 512 bytes;
    glance: EVEN_IF_FULL, ["names.lua", "clock.lua", "texts.lua", "law.lua", "glance.lua"],
        16 args, 512 bytes;
    inspect: NO_WRITES, ["names.lua", "clock.lua", "texts.lua", "law.lua", "inspect.lua"],
        16 args, 512 bytes;
}

impl Scripts {
    /// The scripts of a namespace. What its calls have in common stands in them, because every
    /// argument of a call costs the server as much as several lines do.
    pub(super) fn of(namespace: &Namespace, counter_life_ms: u64) -> Self {
        let shared = namespace.fence_of_all().map_or_else(
            || "local FENCE, LIFE, CHANNEL\n".to_owned(),
            |fence| {
                let (fence, channel) = (literal(fence), literal(&namespace.channel()));
                format!("local FENCE, LIFE, CHANNEL = {fence}, '{counter_life_ms}', {channel}\n")
            },
        );
        let (ttl, wait) = (wire::millis(USUAL_TTL), wire::wait_text(USUAL_WAIT));
        Self::with_lines_above(format!("{shared}local TTL, WAIT = '{ttl}', '{wait}'\n"))
    }
}

/// A text as Lua writes it, whatever is in it.
fn literal(text: &str) -> String {
    let digits = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b':' | b'-' | b'_' => {
            char::from(byte).to_string()
        }
        _ => format!("\\{byte:03}"),
    };
    format!("'{}'", text.bytes().map(digits).collect::<String>())
}

impl Script {
    fn new(flags: &str, above: &str, parts: &[&str], room: (usize, usize)) -> Self {
        let text = format!("{flags}{above}{}", parts.concat());
        let hash = Sha1::from(&text).digest().to_string();
        Self { text, hash, room }
    }

    /// The call by hash.
    pub(super) fn by_hash(&self, fill: Fill<'_>) -> Cmd {
        let mut cmd = Cmd::with_capacity(self.room.0, self.room.1);
        cmd.arg("EVALSHA").arg(&self.hash);
        fill(&mut cmd);
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

    use super::super::faults::NEEDED;
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
        let scripts = Scripts::of(&Namespace::on_server("ns"), 1);
        let called: BTreeSet<_> = scripts.all().into_iter().flat_map(commands).collect();
        let told: BTreeSet<_> =
            NEEDED.split([' ', ',']).filter(|word| word.starts_with('+')).collect();
        let outside = ["+eval", "+evalsha", "+subscribe", "+ssubscribe", "+publish", "+spublish"];
        let journal = ["+xrange", "+xrevrange"];
        let others = outside.into_iter().chain(journal).map(str::to_owned);
        let all: BTreeSet<_> = called.into_iter().chain(others).collect();
        assert_eq!(told.into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), all);
    }
    #[test]
    fn a_script_says_what_its_namespace_is_called_whatever_that_is() {
        let above = |name: &str| Scripts::of(&Namespace::on_server(name), 7).above;
        let usual = "local TTL, WAIT = '30000', '4000 1000000'\n";
        let plain = "local FENCE, LIFE, CHANNEL = 'ns-1:fence', '7', 'ns-1:push:'\n";
        assert_eq!(above("ns-1"), format!("{plain}{usual}"));
        let odd = r"local FENCE, LIFE, CHANNEL = '\039\092\010\195\164:fence', '7', '\039\092\010\195\164:push:'";
        assert_eq!(above("'\\\nä"), format!("{odd}\n{usual}"));
        assert_eq!(above(""), format!("local FENCE, LIFE, CHANNEL\n{usual}"));
    }
}
