//! Which file the locks are in, from a URL.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use distlock_core::Invalid;

/// How long a call may take, unless the URL says otherwise.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Which file, and how long to wait for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SqliteConfig {
    pub(super) file: PathBuf,
    /// The file is the user's own default, so its folder is ours to make.
    pub(super) is_default: bool,
    pub(super) response_timeout: Duration,
    /// The file as a text.
    pub(super) location: String,
}

impl SqliteConfig {
    /// Reads `sqlite:PATH`, or `sqlite:` for the user's own file, with the option
    /// `response_timeout_ms`. The path is taken as it is, up to the first question mark.
    pub(super) fn parse(url: &str) -> Result<Self, Invalid> {
        let rest = url.strip_prefix("sqlite:").unwrap_or(url);
        let (path, options) = rest.split_once('?').unwrap_or((rest, ""));
        let path = match path.strip_prefix("//") {
            None => path,
            Some(absolute) if absolute.starts_with('/') || absolute.is_empty() => absolute,
            Some(_) => {
                let why = "names a host: write sqlite:PATH, or sqlite:///PATH from the root on";
                return Err(Invalid::new("URL", "sqlite://…", why));
            }
        };
        if path == ":memory:" {
            return Err(Invalid::new("URL", path, "is not a file: write memory: instead"));
        }
        let mut config = if path.is_empty() {
            Self::of(default_file(|name| std::env::var_os(name))?)
        } else {
            let absolute = std::path::absolute(path);
            Self::of(absolute.map_err(|_| Invalid::new("URL", path, "does not name a file"))?)
        };
        config.is_default = path.is_empty();
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            match name {
                "response_timeout_ms" => config.response_timeout = millis(value)?,
                _ => {
                    let why = "is not an option of this URL; known is response_timeout_ms";
                    return Err(Invalid::new("URL option", name, why));
                }
            }
        }
        Ok(config)
    }

    /// A file and nothing special about it.
    pub(super) fn of(file: impl AsRef<Path>) -> Self {
        let file = file.as_ref().to_owned();
        let location = file.to_string_lossy().into_owned();
        Self { file, is_default: false, response_timeout: RESPONSE_TIMEOUT, location }
    }

    /// Where the store is, for errors.
    pub(super) fn location(&self) -> &str {
        &self.location
    }
}

fn millis(value: &str) -> Result<Duration, Invalid> {
    match value.parse() {
        Ok(ms @ 1..=60_000) => Ok(Duration::from_millis(ms)),
        _ => Err(Invalid::new("response_timeout_ms", value, "must be between 1 and 60000")),
    }
}

/// The user's own file: where programs keep what should survive but is not worth a backup.
fn default_file(env: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, Invalid> {
    // A relative path in this variable is to be ignored, says its specification.
    let state = env("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || env("HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = state.or_else(|| home().map(|home| home.join(".local/state")));
    match state {
        Some(state) => Ok(state.join("distlock/locks.db")),
        None => Err(Invalid::new(
            "URL",
            "sqlite:",
            "needs HOME or XDG_STATE_HOME to find the user's own file: write sqlite:PATH",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_file_and_known_options_only() {
        let config = SqliteConfig::parse("sqlite:/run/x y.db?response_timeout_ms=250").unwrap();
        assert_eq!(config.file, Path::new("/run/x y.db"));
        assert_eq!(config.response_timeout, Duration::from_millis(250));
        assert_eq!(SqliteConfig::parse("sqlite:///run/a.db").unwrap().file, Path::new("/run/a.db"));
        assert!(SqliteConfig::parse("sqlite:a.db").unwrap().file.is_absolute());
        for (url, what) in [
            ("sqlite:a.db?ttl=5", "URL option"),
            ("sqlite:a.db?response_timeout_ms=0", "response_timeout_ms"),
            ("sqlite:a.db?response_timeout_ms", "response_timeout_ms"),
            ("sqlite://host/a.db", "URL"),
            ("sqlite::memory:", "URL"),
        ] {
            assert_eq!(SqliteConfig::parse(url).unwrap_err().what, what, "{url}");
        }
    }

    #[test]
    fn the_users_own_file_is_in_the_state_directory() {
        let env = |pairs: &'static [(&str, &str)]| {
            move |name: &str| {
                let found = pairs.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| OsString::from(value))
            }
        };
        for (pairs, file) in [
            (&[("HOME", "/home/u")][..], "/home/u/.local/state/distlock/locks.db"),
            (&[("HOME", "/home/u"), ("XDG_STATE_HOME", "/s")], "/s/distlock/locks.db"),
            (&[("HOME", "/h"), ("XDG_STATE_HOME", "rel")], "/h/.local/state/distlock/locks.db"),
        ] {
            assert_eq!(default_file(env(pairs)).unwrap(), Path::new(file));
        }
        assert!(default_file(env(&[])).unwrap_err().to_string().contains("sqlite:PATH"));
    }
}
