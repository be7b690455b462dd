//! The final word of a run, for machines: one JSON object in a file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::exit::{CONFIGURATION, Failure};
use crate::out;
use crate::plan::RunPlan;

/// Where the report goes, opened before anything else happens: a file that cannot be written is
/// found out before the command runs.
#[derive(Debug)]
pub(crate) struct RunReport(Option<File>);

/// How it went.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunSummary<'a> {
    pub(crate) key: &'a str,
    /// All keys, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) keys: Vec<&'a str>,
    pub(crate) owner: &'a str,
    pub(crate) outcome: RunOutcome,
    pub(crate) exit_code: u8,
    /// The signal that ended the command.
    pub(crate) signal: Option<i32>,
    pub(crate) waited_ms: u64,
    pub(crate) held_ms: u64,
    pub(crate) fence: Option<u64>,
    /// The fence of each key, if there are several.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) fences: BTreeMap<String, u64>,
    pub(crate) renewals: u64,
}

/// How it ended, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum RunOutcome {
    /// The command ended by itself, whatever its code.
    Exited,
    /// The command was ended by a signal that was not ours.
    Signalled,
    /// The command ran without the lock, since the backend was out of reach.
    Unlocked,
    /// The lease was lost.
    Lost,
    /// The command ran for as long as it may.
    MaxHold,
    /// Another client has the lock.
    NotAcquired,
    /// A signal came while it waited.
    Interrupted,
    /// Anything else that kept the command from running.
    Failed,
}

impl<'a> RunSummary<'a> {
    /// Of a run that has not begun.
    pub(crate) fn new(plan: &'a RunPlan) -> Self {
        let several = !plan.spec.more_keys.is_empty();
        let keys = plan.spec.keys().filter(|_| several).map(distlock::Key::as_str).collect();
        Self {
            key: plan.spec.key.as_str(),
            keys,
            owner: &plan.spec.owner,
            outcome: RunOutcome::Failed,
            exit_code: 0,
            signal: None,
            waited_ms: 0,
            held_ms: 0,
            fence: None,
            fences: BTreeMap::new(),
            renewals: 0,
        }
    }
}

impl RunReport {
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self(None)) };
        let file = File::create(path).map_err(|error| {
            let message = format!("could not write the report {}: {error}", path.display());
            Failure::new(CONFIGURATION, message)
        })?;
        Ok(Self(Some(file)))
    }

    pub(crate) fn write(&mut self, summary: &RunSummary<'_>) {
        let Some(file) = &mut self.0 else { return };
        let written = serde_json::to_vec(summary)
            .map_err(std::io::Error::from)
            .and_then(|json| file.write_all(&[json.as_slice(), b"\n"].concat()));
        if let Err(error) = written {
            // The command has run; that its report is lost does not change how it ended.
            out::say(format_args!("could not write the report: {error}"));
        }
    }
}

/// Whole milliseconds.
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
