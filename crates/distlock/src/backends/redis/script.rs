//! The scripts that restate the law, run by the hash of their text.

use std::sync::LazyLock;

use redis::{Cmd, RedisError, ServerErrorKind, Value};
use sha1_smol::Sha1;

/// A script and its hash.
#[derive(Debug)]
pub(super) struct Script {
    text: String,
    hash: String,
}

/// Memory that is full must not keep anybody from letting go or holding on.
const EVEN_IF_FULL: &str = "#!lua flags=allow-oom\n";

/// Refused as a whole when memory is full, so that nothing is left half done.
const UNLESS_FULL: &str = "#!lua\n";

macro_rules! script {
    ($name:ident, $flags:expr, $($file:literal),+) => {
        pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new($flags, &[$(include_str!(concat!("lua/", $file))),+]));
    };
}

script!(ACQUIRE, UNLESS_FULL, "head.lua", "acquire_free.lua", "law.lua", "acquire.lua");
script!(RENEW, EVEN_IF_FULL, "renew.lua");
script!(STAND, EVEN_IF_FULL, "head.lua", "law.lua", "stand.lua");
script!(BEAT, EVEN_IF_FULL, "head.lua", "law.lua", "beat.lua");
script!(RELEASE, EVEN_IF_FULL, "head.lua", "release_free.lua", "law.lua", "release.lua");
script!(JOURNAL, UNLESS_FULL, "journal.lua");
script!(INSPECT, "#!lua flags=no-writes\n", "head.lua", "law.lua", "inspect.lua");

impl Script {
    fn new(flags: &str, parts: &[&str]) -> Self {
        let text = format!("{flags}{}", parts.concat());
        let hash = Sha1::from(&text).digest().to_string();
        Self { text, hash }
    }

    /// The call by hash.
    pub(super) fn by_hash(&self, keys: &[String], args: &[Vec<u8>]) -> Cmd {
        Self::call("EVALSHA", &self.hash, keys, args)
    }

    /// The call with the whole text, for a server that does not know the hash.
    pub(super) fn by_text(&self, keys: &[String], args: &[Vec<u8>]) -> Cmd {
        Self::call("EVAL", &self.text, keys, args)
    }

    fn call(verb: &str, script: &str, keys: &[String], args: &[Vec<u8>]) -> Cmd {
        let mut cmd = redis::cmd(verb);
        cmd.arg(script).arg(keys.len());
        for key in keys {
            cmd.arg(key);
        }
        for arg in args {
            cmd.arg(&arg[..]);
        }
        cmd
    }
}

/// True if the server has never seen the script, or has forgotten it.
pub(super) fn is_unknown(answer: &Result<Value, RedisError>) -> bool {
    let unknown = redis::ErrorKind::Server(ServerErrorKind::NoScript);
    answer.as_ref().is_err_and(|error| error.kind() == unknown)
}
