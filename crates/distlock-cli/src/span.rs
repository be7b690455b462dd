//! Durations as people write and read them: `90s`, `5m`, `1h30m`.

use std::time::Duration;

/// The longest duration that can be written: ten years, so that no sum of two overflows.
const SPAN_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Reads a duration: numbers with units, one after the other: `90s`, `5min`, `1h30m`. A bare number
/// is of seconds, as with flock(1), sleep(1) and timeout(1).
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("is empty: write a number and a unit, such as 90s or 5m".into());
    }
    let (mut rest, mut sum) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let number_len = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(number_len);
        let unit_len = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_len);
        let number: f64 =
            number.parse().map_err(|_| "must be a number and a unit, such as 90s or 1h30m")?;
        let is_bare = unit.is_empty() && rest.len() == text.len();
        let unit = if is_bare { "s" } else { unit };
        let part = Duration::try_from_secs_f64(number * seconds(unit)?)
            .map_err(|_| "is longer than anybody waits")?;
        sum = sum
            .checked_add(part)
            .filter(|sum| *sum <= SPAN_MAX)
            .ok_or("is longer than ten years")?;
        rest = after;
    }
    Ok(sum)
}

fn seconds(unit: &str) -> Result<f64, String> {
    match unit {
        "ms" => Ok(0.001),
        "s" | "sec" | "secs" => Ok(1.0),
        "m" | "min" | "mins" => Ok(60.0),
        "h" | "hr" | "hrs" => Ok(3600.0),
        "d" | "day" | "days" => Ok(86_400.0),
        "" => Err("needs a unit: ms, s, m, h or d, such as 90s".into()),
        _ => Err(format!("has the unknown unit {unit:?}: use ms, s, m, h or d")),
    }
}

/// Writes a duration for people, with at most two units and nothing below a second unless it is
/// all there is: `3m12s`, `1h`, `850ms`.
pub(crate) fn show(span: Duration) -> String {
    let seconds = span.as_secs();
    if seconds == 0 {
        let millis = span.as_millis();
        return if millis == 0 { "0s".into() } else { format!("{millis}ms") };
    }
    let units = [(86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let first = units.iter().position(|(size, _)| seconds >= *size).unwrap_or(3);
    let (size, unit) = units[first];
    let mut shown = format!("{}{unit}", seconds / size);
    if let Some((next, unit)) = units.get(first + 1) {
        let rest = seconds % size / next;
        if rest > 0 {
            shown.push_str(&format!("{rest}{unit}"));
        }
    }
    shown
}

/// Writes a duration for people who do not care for less than a second.
pub(crate) fn show_seconds(span: Duration) -> String {
    show(Duration::from_secs(span.as_secs()))
}

/// Writes a duration as a clock does: `0:37`, `1:02:05`.
pub(crate) fn clock(span: Duration) -> String {
    let seconds = span.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_they_are_spoken() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("5", 5_000),
            ("0.5", 500),
            ("5min", 300_000),
            ("30sec", 30_000),
            ("1hr30min", 5_400_000),
            ("2days", 172_800_000),
            ("90s", 90_000),
            ("250ms", 250),
            ("1.5s", 1_500),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            (" 7s ", 7_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_an_example() {
        for text in
            ["", "1m30", "s", "5 m", "-1s", "1w", "1e9d", "1s5", "999999999d", "1..5s", "NaNs"]
        {
            assert!(parse(text).is_err(), "{text:?} was accepted");
        }
        assert!(parse("1m30").unwrap_err().contains("unit"));
    }

    #[test]
    fn durations_are_shown_short() {
        for (millis, shown, clocked) in [
            (0, "0s", "0:00"),
            (850, "850ms", "0:00"),
            (1_999, "1s", "0:01"),
            (192_000, "3m12s", "3:12"),
            (3_600_000, "1h", "1:00:00"),
            (3_725_000, "1h2m", "1:02:05"),
            (90_000_000, "1d1h", "25:00:00"),
        ] {
            let span = Duration::from_millis(millis);
            assert_eq!((show(span).as_str(), clock(span).as_str()), (shown, clocked));
        }
    }
}
