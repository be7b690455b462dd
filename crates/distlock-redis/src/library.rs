//! The Lua library that restates the law: its text, and how a server is made to run it.
//!
//! Its verbs are functions of a library on the server. Where functions are missing or denied, the
//! same text runs as scripts. The library and its functions are named after a hash of the text, so
//! that clients of different versions share a server.

use std::fmt::{Display, Write};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::{Cmd, Pipeline, RedisError, ServerErrorKind, Value};
use sha1_smol::Sha1;

use super::connection::Connection;
use super::faults::is_denied;

/// What the name of every version of the library begins with.
pub(super) const PREFIX: &str = "distlock_";

/// How many digits of the hash are in the name.
const HASH_DIGITS: usize = 16;

const BODY: &str = concat!(
    include_str!("../lua/keys.lua"),
    include_str!("../lua/codec.lua"),
    include_str!("../lua/law.lua"),
    include_str!("../lua/queue.lua"),
    include_str!("../lua/verbs.lua"),
    include_str!("../lua/heartbeat.lua"),
    include_str!("../lua/inspect.lua"),
    include_str!("../lua/batch.lua"),
    include_str!("../lua/journal.lua"),
);

/// The library as functions, and as scripts.
static TEXTS: LazyLock<Texts> = LazyLock::new(Texts::new);

struct Texts {
    name: String,
    functions: String,
    scripts: [Script; 3],
}

struct Script {
    text: String,
    hash: String,
}

/// What the library does, by the name of a verb. See `lua/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LibraryVerb {
    Acquire,
    Append,
    Confirm,
    Digest,
    Heartbeat,
    History,
    Inspect,
    Many,
    Raise,
    Release,
    Renew,
    RenewOne,
}

impl LibraryVerb {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Append => "append",
            Self::Confirm => "confirm",
            Self::Digest => "digest",
            Self::Heartbeat => "heartbeat",
            Self::History => "history",
            Self::Inspect => "inspect",
            Self::Many => "many",
            Self::Raise => "raise",
            Self::Release => "release",
            Self::Renew => "renew",
            Self::RenewOne => "renew_one",
        }
    }

    /// The script that has the flags of the verb, the same as in functions.lua.
    fn script(self) -> &'static Script {
        let [writes, even_if_full, reads] = &TEXTS.scripts;
        match self {
            Self::Acquire | Self::Many | Self::Append => writes,
            Self::Inspect | Self::History => reads,
            _ => even_if_full,
        }
    }
}

impl Texts {
    fn new() -> Self {
        let name = format!("{PREFIX}{}", &Sha1::from(BODY).digest().to_string()[..HASH_DIGITS]);
        let register = include_str!("../lua/functions.lua").replace("LIBRARY", &name);
        let scripts = ["", " flags=allow-oom", " flags=no-writes"].map(|flags| {
            let text = format!("#!lua{flags}\n{BODY}{}", include_str!("../lua/script.lua"));
            Script { hash: Sha1::from(&text).digest().to_string(), text }
        });
        Self { functions: format!("#!lua name={name}\n{BODY}{register}"), name, scripts }
    }
}

/// Several texts in a row, such as the arguments of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Words {
    text: String,
    ends: Vec<usize>,
}

impl Words {
    pub(super) fn push(&mut self, word: impl Display) -> &mut Self {
        // Writing into memory does not fail.
        let _ = write!(self.text, "{word}");
        self.ends.push(self.text.len());
        self
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.text[start..*end])
    }

    /// Removes the empty words at the end, which mean the same as none.
    pub(super) fn trim(&mut self) {
        while let [.., before, last] = self.ends[..]
            && before == last
        {
            self.ends.pop();
        }
    }
}

impl<T: Display> Extend<T> for Words {
    fn extend<I: IntoIterator<Item = T>>(&mut self, words: I) {
        words.into_iter().for_each(|word| {
            self.push(word);
        });
    }
}

/// One call of a verb.
#[derive(Clone, Debug)]
pub(super) struct LibraryCall {
    pub(super) verb: LibraryVerb,
    pub(super) keys: Words,
    pub(super) args: Words,
}

/// How a call names its verb.
#[derive(Clone, Copy, Debug)]
enum By {
    Function,
    Hash,
    Text,
}

impl LibraryCall {
    fn command(&self, by: By) -> Cmd {
        let bytes = self.keys.text.len() + self.args.text.len() + 128;
        let mut cmd = Cmd::with_capacity(self.keys.len() + self.args.len() + 4, bytes);
        match by {
            By::Function => cmd.arg("FCALL").arg(format!("{}_{}", TEXTS.name, self.verb.name())),
            By::Hash => cmd.arg("EVALSHA").arg(&self.verb.script().hash),
            By::Text => cmd.arg("EVAL").arg(&self.verb.script().text),
        };
        cmd.arg(self.keys.len());
        for word in self.keys.iter().chain(self.args.iter()) {
            cmd.arg(word);
        }
        if !matches!(by, By::Function) {
            cmd.arg(self.verb.name());
        }
        cmd
    }
}

/// Makes the library known to a server, or to all primaries of a cluster.
pub(super) fn load() -> Cmd {
    let mut cmd = redis::cmd("FUNCTION");
    cmd.arg("LOAD").arg(&TEXTS.functions);
    cmd
}

/// True for the name of a library of any version, and not of one of its functions.
pub(super) fn is_name(text: &str) -> bool {
    let hash = text.strip_prefix(PREFIX).unwrap_or_default();
    hash.len() == HASH_DIGITS && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// True for the name of a library of another version.
pub(super) fn is_other_version(name: &str) -> bool {
    is_name(name) && name != TEXTS.name
}

/// How the server of a client runs the library.
#[derive(Debug, Default)]
pub(super) struct Library {
    as_scripts: AtomicBool,
}

impl Library {
    /// The call as the server is known to take it.
    pub(super) fn command(&self, call: &LibraryCall) -> Cmd {
        call.command(if self.runs_as_scripts() { By::Hash } else { By::Function })
    }

    /// The same for the first call over a connection: a script is sent as its text, so that later
    /// calls find it.
    pub(super) fn first_command(&self, call: &LibraryCall) -> Cmd {
        call.command(if self.runs_as_scripts() { By::Text } else { By::Function })
    }

    pub(super) fn runs_as_scripts(&self) -> bool {
        self.as_scripts.load(Ordering::Relaxed)
    }

    /// Calls once more what the server did not know, in one message with the library. Where that
    /// may not be loaded, the calls go out as scripts.
    pub(super) async fn call_again(
        &self,
        connection: &mut Connection,
        calls: &[&LibraryCall],
    ) -> Result<Vec<Result<Value, RedisError>>, RedisError> {
        let beside = calls.first().and_then(|call| call.keys.iter().next()).unwrap_or_default();
        if !self.runs_as_scripts() {
            let mut cmds = Pipeline::with_capacity(calls.len() + 1);
            cmds.add_command(load());
            for call in calls {
                cmds.add_command(call.command(By::Function));
            }
            let mut answers = connection.send_all_beside(beside, &cmds).await?;
            let loaded = if answers.is_empty() { Ok(Value::Nil) } else { answers.remove(0) };
            if answers.iter().all(|answer| !is_missing(answer)) {
                return Ok(answers);
            }
            if loaded.as_ref().is_err_and(has_no_functions)
                || answers.iter().any(is_denied_function)
            {
                self.as_scripts.store(true, Ordering::Relaxed);
            } else if connection.is_cluster() {
                // The slot is on its way to a node that does not know the library either.
                let _ = connection.send(&load()).await;
            }
        }
        let mut cmds = Pipeline::with_capacity(calls.len());
        for (at, call) in calls.iter().enumerate() {
            // The first brings the text: the server knows the script when the others come.
            let first = calls[..at].iter().all(|other| other.verb != call.verb);
            cmds.add_command(call.command(if first { By::Text } else { By::Hash }));
        }
        connection.send_all_beside(beside, &cmds).await
    }
}

/// True if the server could not run the verb at all: it has forgotten the library or never knew it,
/// has no functions, or does not let this user call them.
pub(super) fn is_missing(answer: &Result<Value, RedisError>) -> bool {
    let Err(error) = answer else { return false };
    error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript)
        || error.detail().is_some_and(|detail| detail.starts_with("Function not found"))
        || has_no_functions(error)
}

fn is_denied_function(answer: &Result<Value, RedisError>) -> bool {
    answer.as_ref().is_err_and(has_no_functions)
}

/// True if the server does not know functions, or does not let this user load or call them.
fn has_no_functions(error: &RedisError) -> bool {
    let detail = error.detail().unwrap_or_default().to_lowercase();
    let named = ["'fcall", "'function"].iter().any(|command| detail.contains(command));
    named && (is_denied(error) || detail.starts_with("unknown command"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::faults::NEEDED;
    use super::*;

    const ALL: [LibraryVerb; 12] = [
        LibraryVerb::Acquire,
        LibraryVerb::Append,
        LibraryVerb::Confirm,
        LibraryVerb::Digest,
        LibraryVerb::Heartbeat,
        LibraryVerb::History,
        LibraryVerb::Inspect,
        LibraryVerb::Many,
        LibraryVerb::Raise,
        LibraryVerb::Release,
        LibraryVerb::Renew,
        LibraryVerb::RenewOne,
    ];

    /// The commands that the library calls by name: all but the two that publish.
    fn called() -> impl Iterator<Item = String> {
        let names = BODY.split("call('").skip(1).filter_map(|call| call.split_once('\''));
        names.map(|(name, _)| format!("+{}", name.to_lowercase()))
    }

    #[test]
    fn the_access_list_names_all_commands_and_no_others() {
        let outside =
            ["+fcall", "+function|load", "+eval", "+evalsha", "+subscribe", "+ssubscribe"];
        let others = ["+publish", "+spublish", "+wait"];
        let all: BTreeSet<_> =
            called().chain(outside.into_iter().chain(others).map(str::to_owned)).collect();
        let told = NEEDED.split([' ', ',', '(', ')']).filter(|word| word.starts_with('+'));
        assert_eq!(told.map(str::to_owned).collect::<BTreeSet<_>>(), all);
    }

    #[test]
    fn every_verb_is_a_function_with_the_flags_of_its_script() {
        for verb in ALL {
            let flags = verb.script().text.lines().next().unwrap();
            let flags = flags.split_once("flags=").map(|(_, flags)| format!(", '{flags}'"));
            let line = format!("register('{}'{})", verb.name(), flags.unwrap_or_default());
            assert!(TEXTS.functions.lines().any(|known| known == line), "{line}");
        }
        assert_eq!(TEXTS.functions.matches("\nregister('").count(), ALL.len());
    }

    #[test]
    fn empty_words_at_the_end_are_none() {
        let mut words = Words::default();
        words.push("a").push("").push("b").push("").push("").trim();
        assert_eq!(words.iter().collect::<Vec<_>>(), ["a", "", "b"]);
    }
}
