//! Text of other people, made safe for a terminal or a log.

use std::fmt;

/// Shows a text with its invisible characters escaped, so that it stays on its line, moves no
/// cursor and reads in the order in which it is stored.
///
/// Escaped are control characters, line and paragraph separators, characters that change the
/// direction of text, and characters without a width, each as in a Rust string: `\n`, `\u{1b}`.
/// Everything else is shown as it is, a backslash as well: this is for people to read, and it
/// cannot be read back.
///
/// ```
/// use distlock_core::Printable;
///
/// assert_eq!(Printable("deploy/prod").to_string(), "deploy/prod");
/// assert_eq!(Printable("a\nb\u{1b}[2J").to_string(), r"a\nb\u{1b}[2J");
/// assert_eq!(format!("{:<6}|", Printable("a\tb")), r"a\tb  |");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Printable<'a>(pub &'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.contains(is_invisible) {
            return f.pad(self.0);
        }
        let mut shown = String::with_capacity(self.0.len() + 16);
        for c in self.0.chars() {
            if is_invisible(c) {
                shown.extend(c.escape_default());
            } else {
                shown.push(c);
            }
        }
        f.pad(&shown)
    }
}

/// True for characters that are not seen, or change how others are seen.
fn is_invisible(c: char) -> bool {
    match c {
        ' '..='~' => false,
        // Marks without a width: soft hyphen, joiners, fillers, variation selectors, tags.
        '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' => true,
        '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200d}' | '\u{3164}' | '\u{feff}' => true,
        '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' => true,
        '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}' => true,
        // Marks, embeddings, overrides and isolates of direction.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' => true,
        // Line and paragraph separators; invisible operators, isolates and retired controls.
        '\u{2028}' | '\u{2029}' | '\u{2060}'..='\u{206f}' => true,
        c => c.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_of_any_language_is_left_alone() {
        for text in ["", "deploy/prod", "DOMAIN\\user", "Zoë 東京 عربى עברית", "🚀 ~"]
        {
            assert_eq!(Printable(text).to_string(), text);
        }
    }

    #[test]
    fn what_is_not_seen_is_escaped() {
        for (text, shown) in [
            ("a\r\nb\tc", r"a\r\nb\tc"),
            ("\0\u{7}\u{8}\u{1b}\u{7f}\u{85}\u{9b}", r"\u{0}\u{7}\u{8}\u{1b}\u{7f}\u{85}\u{9b}"),
            ("\u{202e}x\u{202c}\u{2066}\u{2069}", r"\u{202e}x\u{202c}\u{2066}\u{2069}"),
            ("\u{200b}\u{200d}\u{feff}\u{ad}", r"\u{200b}\u{200d}\u{feff}\u{ad}"),
            ("\u{2028}\u{2029}\u{e0041}", r"\u{2028}\u{2029}\u{e0041}"),
        ] {
            assert_eq!(Printable(text).to_string(), shown);
        }
    }

    #[test]
    fn a_width_counts_what_is_shown() {
        assert_eq!(format!("{:>4}", Printable("ab")), "  ab");
        assert_eq!(format!("{:5}|", Printable("a\nb")), r"a\nb |");
    }
}
