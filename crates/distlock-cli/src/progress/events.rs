//! Events for machines: one JSON object per line on stderr.

use std::io::{Write, stderr};

use serde_json::{Value, json};

use super::ProgressStyle;
use crate::lock_spec::LockSpec;

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
pub(crate) struct ProgressEvents<'a> {
    pub(crate) spec: &'a LockSpec,
    pub(crate) style: ProgressStyle,
}

impl ProgressEvents<'_> {
    /// Tells of something that only the curious want to know.
    pub(crate) fn note(&self, name: &str, words: &str, mut members: Value) {
        if self.style == ProgressStyle::Json {
            members["key"] = json!(self.spec.key.as_str());
            event(name, &members);
        } else if self.spec.talking.verbose {
            crate::out::say(words);
        }
    }

    /// Tells of something that everybody must know.
    pub(crate) fn banner(&self, name: &str, words: &str, mut members: Value) {
        if self.style == ProgressStyle::Json {
            members["key"] = json!(self.spec.key.as_str());
            members["message"] = json!(words);
            event(name, &members);
        } else {
            crate::out::alarm(words);
        }
    }
}
