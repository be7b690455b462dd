//! The past of the locks: commands write it where the store keeps one, so that `history` has
//! something to tell.

use std::time::Duration;

use distlock::{Error, Locks, Options};

/// How long a command that is done waits until its last words are written.
const LAST_WORDS_MAX: Duration = Duration::from_millis(500);

/// Opens the store, with a journal if it keeps one and the URL does not say `journal=off`.
pub(crate) fn connect(url: &str) -> Result<Locks, Error> {
    let locks = Locks::connect(url)?;
    let query = url.split_once('?').map_or("", |(_, query)| query);
    if query.split('&').any(|option| option == "journal=off") {
        return Ok(locks);
    }
    let on = |options: Options| {
        let retention = options.retention().unwrap_or_default();
        options.journal(retention)
    };
    match locks.configure(on) {
        Err(Error::Unsupported { .. }) => Ok(locks),
        other => other,
    }
}

/// The same options as `given`, as far as the journal is concerned.
pub(crate) fn keep(options: Options, given: &Options) -> Options {
    options.journal(given.retention())
}

/// Lets the last words be written, but does not wait long for it.
pub(crate) async fn settle(locks: &Locks) {
    let _ = tokio::time::timeout(LAST_WORDS_MAX, locks.flush_journal()).await;
}

#[cfg(test)]
mod tests {
    use distlock::Retention;

    use super::*;

    #[test]
    fn commands_write_the_journal_unless_the_url_says_otherwise() {
        let retention = |url| {
            let (mut seen, locks) = (None, connect(url).unwrap());
            let _ = locks.configure(|options| {
                seen = options.retention();
                options
            });
            seen
        };
        assert_eq!(retention("memory:"), Some(Retention::default()));
        assert_eq!(retention("memory:?journal=off"), None);
        let few = retention("memory:?journal=on&journal_entries=7").unwrap();
        assert_eq!(few.entries, 7);
    }
}
