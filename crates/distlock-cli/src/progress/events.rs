//! Events for machines: one JSON object per line on stderr.

use std::io::{Write, stderr};

use serde_json::{Value, json};

use super::Voice;
use crate::want::Want;

/// Writes an event with its members.
pub(crate) fn event(name: &str, members: &Value) {
    let mut whole = json!({ "event": name });
    if let (Some(whole), Some(members)) = (whole.as_object_mut(), members.as_object()) {
        for (member, value) in members {
            whole.insert(member.clone(), value.clone());
        }
    }
    let _ = stderr().write_all(format!("{whole}\n").as_bytes());
}

/// What happens to a lock, told in the voice that was chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told<'a> {
    pub(crate) want: &'a Want,
    pub(crate) voice: Voice,
}

impl Told<'_> {
    /// Tells of something that only the curious want to know.
    pub(crate) fn note(&self, name: &str, words: &str, mut members: Value) {
        if self.voice == Voice::Json {
            members["key"] = json!(self.want.key.as_str());
            event(name, &members);
        } else if self.want.talking.verbose {
            crate::out::say(words);
        }
    }

    /// Tells of something that everybody must know.
    pub(crate) fn banner(&self, name: &str, words: &str, mut members: Value) {
        if self.voice == Voice::Json {
            members["key"] = json!(self.want.key.as_str());
            members["message"] = json!(words);
            event(name, &members);
        } else {
            crate::out::alarm(words);
        }
    }
}
