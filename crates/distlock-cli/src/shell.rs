//! Text that a shell reads back as it was, whatever is in it.

use crate::exit::NOT_ACQUIRED;

/// Assignments for `eval`, one line each.
pub(crate) fn exports(variables: &[(&str, String)]) -> String {
    let lines = variables.iter().map(|(name, value)| format!("export {name}={}", quoted(value)));
    lines.collect::<Vec<_>>().join("\n")
}

/// Fails when it is evaluated, with this code; a code of 0 is replaced, since nothing was acquired.
pub(crate) fn failing(code: u8) -> String {
    format!("(exit {})", if code == 0 { NOT_ACQUIRED } else { code })
}

/// In single quotes, in which nothing has a meaning but the quote itself.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        let hostile = ["plain", "", "it's", "$(id)`id`;rm -rf /", "a\nb", "\\'\"!*?~ #", "-n é"];
        for value in hostile {
            let script = format!("{}\nprintf %s \"$V\"", exports(&[("V", value.to_owned())]));
            let output = Command::new("sh").arg("-c").arg(script).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), value);
        }
    }
}
