//! One line of a token file: the token, its scopes, and `name=`, `expires=`, `ttl-max=`.

use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

use crate::scope::Scope;
use crate::tokens::Token;

/// The shortest token, in bytes: a shorter one can be guessed.
const TOKEN_LEN_MIN: usize = 16;

/// A token with fewer different characters can be guessed whatever its length.
const DIFFERENT_MIN: usize = 8;

/// The longest name of a token, in bytes.
const NAME_LEN_MAX: usize = 64;

/// Words that stand in tokens that were meant to be replaced.
const PLACEHOLDERS: [&str; 5] = ["password", "changeme", "change-me", "change_me", "qwerty"];

/// Reads a line that is neither empty nor a comment. A token without a name has that of its line.
pub(crate) fn parse(line: &str, number: usize) -> Result<Token, &'static str> {
    let mut words = line.split_whitespace();
    let secret = words.next().unwrap_or_default();
    let digest = match secret.strip_prefix("sha256:") {
        Some(hex) => unhex(hex).ok_or("sha256: wants 64 hexadecimal digits")?,
        None => {
            check_strength(secret)?;
            Sha256::digest(secret).into()
        }
    };
    let (mut name, mut expires, mut ttl_max, mut scopes) = (None, None, None, Vec::new());
    for word in words {
        match word.split_once('=') {
            Some(("name", text)) => put(&mut name, self::name(text)?)?,
            Some(("expires", text)) => put(&mut expires, moment(text)?)?,
            Some(("ttl-max", text)) => put(&mut ttl_max, span(text)?)?,
            _ => scopes.push(Scope::parse(word)?),
        }
    }
    if scopes.is_empty() {
        return Err("a token needs a scope: read, metrics, lock:<prefix>, state:<prefix> or admin");
    }
    let name = name.unwrap_or_else(|| format!("token-{number}"));
    Ok(Token { digest, name, scopes, expires, ttl_max })
}

fn put<T>(place: &mut Option<T>, value: T) -> Result<(), &'static str> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err("name=, expires= and ttl-max= may each stand there once"),
    }
}

/// Refuses what can be guessed: short, few different characters, a repetition, a sequence, or a
/// placeholder that was left in.
fn check_strength(secret: &str) -> Result<(), &'static str> {
    let bytes = secret.as_bytes();
    if bytes.len() < TOKEN_LEN_MIN {
        return Err("a token needs 16 bytes or more: openssl rand -base64 24");
    }
    let mut different = bytes.to_vec();
    different.sort_unstable();
    different.dedup();
    let repeats = (1..=bytes.len() / 2).any(|unit| bytes[unit..] == bytes[..bytes.len() - unit]);
    let steps = bytes.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) <= 1).count();
    let lower = secret.to_ascii_lowercase();
    let placeholder = PLACEHOLDERS.iter().any(|word| lower.contains(word));
    if different.len() < DIFFERENT_MIN || repeats || steps * 4 >= bytes.len() * 3 || placeholder {
        return Err("the token is easy to guess: draw one with openssl rand -base64 24");
    }
    Ok(())
}

fn name(text: &str) -> Result<String, &'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-@/+".contains(c);
    if text.is_empty() || text.len() > NAME_LEN_MAX || !text.chars().all(plain) {
        return Err("name= wants 1 to 64 letters, digits or ._-@/+");
    }
    Ok(text.to_owned())
}

/// `30s`, `10m`, `2h`, `1d`.
fn span(text: &str) -> Result<Duration, &'static str> {
    const WANTED: &str = "ttl-max= wants a number with s, m, h or d, such as 10m";
    let unit = text.chars().next_back().ok_or(WANTED)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        _ => return Err(WANTED),
    };
    let number: u32 = text[..text.len() - 1].parse().map_err(|_| WANTED)?;
    match u64::from(number) * seconds {
        0 => Err("ttl-max= must be one second or more"),
        all => Ok(Duration::from_secs(all)),
    }
}

/// `2030-01-31` (its first moment, UTC) or `2030-01-31T18:00:00Z`.
fn moment(text: &str) -> Result<SystemTime, &'static str> {
    const WANTED: &str = "expires= wants a moment in UTC: 2030-01-31 or 2030-01-31T18:00:00Z";
    let (date, time) = text.split_once('T').unwrap_or((text, "00:00:00Z"));
    let [year, month, day] = numbers(date, '-', [4, 2, 2]).ok_or(WANTED)?;
    let time = time.strip_suffix('Z').ok_or(WANTED)?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2]).ok_or(WANTED)?;
    let real = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_of(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !real {
        return Err(WANTED);
    }
    let days = (1970..year).map(|year| if is_leap(year) { 366 } else { 365 }).sum::<u64>()
        + (1..month).map(|month| days_of(year, month)).sum::<u64>()
        + (day - 1);
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

/// Three numbers of so many digits each.
fn numbers(text: &str, between: char, digits: [usize; 3]) -> Option<[u64; 3]> {
    let mut parts = text.split(between);
    let mut found = [0; 3];
    for (place, digits) in found.iter_mut().zip(digits) {
        let part = parts.next()?;
        if part.len() != digits || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *place = part.parse().ok()?;
    }
    parts.next().is_none().then_some(found)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRONG: &str = "8Tq0cF2kXv7hYw3Zr5Nd";

    #[test]
    fn a_line_says_what_a_token_may_do_and_until_when() {
        let line = format!("{STRONG} name=ci/7 lock:jobs/ state: ttl-max=10m expires=2030-01-31");
        let token = parse(&line, 4).unwrap();
        assert_eq!(token.name, "ci/7");
        assert_eq!(token.scopes, [Scope::Lock("jobs/".into()), Scope::State(String::new())]);
        assert_eq!(token.ttl_max, Some(Duration::from_secs(600)));
        let expires = SystemTime::UNIX_EPOCH + Duration::from_secs(1_896_048_000);
        assert_eq!(token.expires, Some(expires));
        assert!(token.has_expired(expires) && !token.has_expired(SystemTime::UNIX_EPOCH));
        assert_eq!(parse(&format!("{STRONG} metrics"), 4).unwrap().name, "token-4");
    }

    #[test]
    fn tokens_that_can_be_guessed_are_refused() {
        for weak in [
            "short",
            "aaaaaaaaaaaaaaaaaaaaaaaa",
            "abababababababababababab",
            "0123456789abcdef",
            "abcdefghijklmnopqrstuvwxyz",
            "Tr0ub4do&3!Tr0ub4do&3!",
            "MyPassword-2026-x9",
            "changeme-8Tq0cF2kXv7h",
        ] {
            assert!(check_strength(weak).is_err(), "{weak}");
        }
        for strong in [STRONG, "reader-0123456789abcdef", "f3b1c09d5e7a48266bd0417c9ae85f32"] {
            assert_eq!(check_strength(strong), Ok(()), "{strong}");
        }
    }

    #[test]
    fn words_that_mean_nothing_are_refused() {
        for bad in [
            "name=",
            "name=a,b",
            "name=é",
            "name=a name=b read",
            "ttl-max=0s",
            "ttl-max=5",
            "ttl-max=é",
            "expires=2030-02-30",
            "expires=2030-1-1",
            "expires=2030-01-31T18:00:00",
            "expires=2030-01-31T24:00:00Z",
            "expires=tomorrow",
            "lock",
            "root",
            "color=red",
        ] {
            assert!(parse(&format!("{STRONG} read {bad}"), 1).is_err(), "{bad}");
        }
    }

    #[test]
    fn moments_are_counted_by_the_calendar() {
        for (text, seconds) in [
            ("1970-01-01", 0),
            ("2000-02-29T00:00:01Z", 951_782_401),
            ("2000-03-01", 951_868_800),
            ("2026-11-18T13:30:04Z", 1_795_008_604),
        ] {
            let expected = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(moment(text), Ok(expected), "{text}");
        }
    }
}
