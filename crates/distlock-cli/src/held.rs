//! What a surrounding `distlock run` holds, passed down by environment: asking for it again would
//! wait for ever, so it is refused, or entered again if that is asked for.

use std::env;

use distlock::ReentryId;

use crate::exit::{Failure, USAGE};
use crate::plan::RunPlan;

/// The keys that are held around this command, as words.
pub(crate) const HELD_VAR: &str = "DISTLOCK_HELD";

/// The secrets to enter them again, one word for each; `-` where that is not possible.
pub(crate) const REENTRY_VAR: &str = "DISTLOCK_REENTRY";

/// Refuses to wait for oneself.
pub(crate) fn check(plan: &RunPlan) -> Result<(), Failure> {
    let holds = Holds::around();
    for key in plan.spec.keys().filter(|key| holds.keys.contains(&word(key.as_str()))) {
        let why = match (plan.reentrant, holds.secret(key.as_str())) {
            (true, Some(_)) => continue,
            (true, None) => "and cannot be entered again: it is shared, or held with other keys",
            (false, _) => "by this command: --reentrant enters it again",
        };
        return Err(Failure::new(USAGE, format!("{key:?} is already held {why}")));
    }
    Ok(())
}

/// What is held around this command, outermost first.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    keys: Vec<String>,
    secrets: Vec<String>,
}

impl Holds {
    /// As the environment says.
    pub(crate) fn around() -> Self {
        let words = |name| {
            let list = env::var(name).unwrap_or_default();
            list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        Self { keys: words(HELD_VAR), secrets: words(REENTRY_VAR) }
    }

    /// The secret to enter a key again, if it is held around this command.
    pub(crate) fn secret(&self, key: &str) -> Option<ReentryId> {
        let place = self.keys.iter().rposition(|held| *held == word(key))?;
        self.secrets.get(place)?.parse().ok()
    }

    /// With more of them; as the values of the two variables.
    pub(crate) fn and<'a>(
        mut self,
        keys: impl Iterator<Item = &'a str>,
        secret: Option<ReentryId>,
    ) -> (String, String) {
        self.secrets.resize(self.keys.len(), "-".into());
        for key in keys {
            self.keys.push(word(key));
            self.secrets.push(secret.map_or_else(|| "-".into(), |id| id.reveal()));
        }
        (self.keys.join(" "), self.secrets.join(" "))
    }
}

/// A key as one word: what would end the word is percent-escaped.
pub(crate) fn word(key: &str) -> String {
    let mut word = String::with_capacity(key.len());
    for c in key.chars() {
        if c.is_whitespace() || c.is_control() || c == '%' {
            for byte in c.to_string().bytes() {
                word.push_str(&format!("%{byte:02X}"));
            }
        } else {
            word.push(c);
        }
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_are_words_and_keep_their_secrets() {
        let id: ReentryId = "0123456789abcdef0123456789abcdef".parse().unwrap();
        let (keys, secrets) = Holds::default().and(["a b%"].into_iter(), None);
        assert_eq!((keys.as_str(), secrets.as_str()), ("a%20b%25", "-"));
        let holds = Holds { keys: vec![keys], secrets: vec![secrets] };
        let (keys, secrets) = holds.and(["deploy"].into_iter(), Some(id));
        assert_eq!(keys, "a%20b%25 deploy");
        let holds = Holds {
            keys: keys.split(' ').map(str::to_owned).collect(),
            secrets: secrets.split(' ').map(str::to_owned).collect(),
        };
        assert_eq!(holds.secret("deploy"), Some(id));
        assert_eq!(holds.secret("a b%"), None);
        assert_eq!(holds.secret("other"), None);
    }
}
