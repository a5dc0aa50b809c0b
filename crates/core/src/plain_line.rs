//! Text of another machine, made safe to show.

/// Longer text is cut: a device could fill a log or a page with one name.
pub const PLAIN_LINE_MAX_CHARS: usize = 200;

/// Text from outside as one line of at most [`PLAIN_LINE_MAX_CHARS`] characters. Each character that would break a line, change the
/// direction of the text after it, or control a terminal becomes U+FFFD.
///
/// For every text of a device, broker or server that people will read, where the text enters. A text that is sent back to its
/// sender stays as it is.
pub fn plain_line(text: &str) -> String {
    let mut chars = text.trim().chars();
    let line = chars.by_ref().take(PLAIN_LINE_MAX_CHARS);
    let mut line: String = line.map(plain_char).collect();
    if chars.next().is_some() {
        line.pop();
        line.push('…');
    }
    line
}

/// As [`plain_line`], for a line of several texts, which may be longer.
pub fn plain_text(text: &str) -> String {
    text.chars().map(plain_char).collect()
}

fn plain_char(c: char) -> char {
    let is_separator = matches!(c, '\u{2028}' | '\u{2029}');
    // Marks, embeddings, overrides and isolates of the bidirectional algorithm.
    let is_bidirectional = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    match c.is_control() || is_separator || is_bidirectional {
        true => '\u{fffd}',
        false => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Faults: O6.
    #[test]
    fn text_from_outside_becomes_one_bounded_line() {
        for (text, expected) in [
            (" Front door ", "Front door"),
            ("a\nok\r\tb", "a\u{fffd}ok\u{fffd}\u{fffd}b"),
            ("\u{1b}[2J\u{9b}x\u{7f}", "\u{fffd}[2J\u{fffd}x\u{fffd}"),
            ("gpj.\u{202e}cod\u{2066}", "gpj.\u{fffd}cod\u{fffd}"),
            ("a\u{2028}b\u{2029}c", "a\u{fffd}b\u{fffd}c"),
            ("Tür 門 👨‍👩‍👧", "Tür 門 👨‍👩‍👧"),
        ] {
            assert_eq!(plain_line(text), expected);
        }
        let long = "ü".repeat(PLAIN_LINE_MAX_CHARS);
        assert_eq!(plain_line(&long), long);
        let cut = plain_line(&format!("{long}x"));
        assert_eq!(cut.chars().count(), PLAIN_LINE_MAX_CHARS);
        assert!(cut.ends_with('…'));
    }
}
