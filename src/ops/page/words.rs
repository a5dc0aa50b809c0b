//! Numbers, times and states as the page writes them.

use spotter_core::Phase;

/// `12:03:41`, UTC.
pub fn clock_time(unix_ms: i64) -> String {
    let s = unix_ms.div_euclid(1000).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
}

/// For `<time datetime>`: `2026-08-22T10:15:30Z`; empty outside of the calendar.
pub fn machine_time(unix_ms: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(unix_ms);
    time.map(|time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
        .unwrap_or_default()
}

/// The two largest units: `41 s`, `3 min 7 s`, `2 h 5 min`, `9 d 3 h`.
pub fn duration(seconds: u64) -> String {
    let (large, small) = match seconds {
        0..60 => return format!("{seconds} s"),
        60..3600 => ((seconds / 60, "min"), (seconds % 60, "s")),
        3600..86_400 => ((seconds / 3600, "h"), (seconds / 60 % 60, "min")),
        _ => ((seconds / 86_400, "d"), (seconds / 3600 % 24, "h")),
    };
    match small.0 {
        0 => format!("{} {}", large.0, large.1),
        _ => format!("{} {} {} {}", large.0, large.1, small.0, small.1),
    }
}

/// `0.4 s ago`, `41 s ago`.
pub fn ago(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{:.1} s ago", ms as f64 / 1e3),
        _ => format!("{} ago", duration(ms / 1000)),
    }
}

/// `0.82 ms`, `8.2 ms`, `82 ms`, `1.2 s`: two or three digits.
pub fn millis(ms: f64) -> String {
    match ms {
        ms if ms < 0.995 => format!("{ms:.2} ms"),
        ms if ms < 9.95 => format!("{ms:.1} ms"),
        ms if ms < 999.5 => format!("{ms:.0} ms"),
        ms if ms < 9950.0 => format!("{:.1} s", ms / 1e3),
        ms => format!("{:.0} s", ms / 1e3),
    }
}

/// `48 211`: digits in groups, with a narrow space that does not break.
pub fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push('\u{202f}');
        }
        grouped.push(digit);
    }
    grouped
}

/// `1 camera`, `2 cameras`.
pub fn counted(n: usize, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {what}{plural}")
}

/// `waiting_keyframe` in words: `waiting for a key frame`.
pub fn state(phase: Phase) -> &'static str {
    match phase {
        Phase::WaitingKeyframe => "waiting for a key frame",
        Phase::AuthFailed => "login refused",
        Phase::Unsupported => "not supported",
        phase => phase.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_two_units_and_three_digits() {
        let of = |s| duration(s);
        assert_eq!(
            (of(59), of(60), of(187)),
            ("59 s".into(), "1 min".into(), "3 min 7 s".into())
        );
        assert_eq!(
            (of(7500), of(788_400)),
            ("2 h 5 min".into(), "9 d 3 h".into())
        );
        assert_eq!(
            (ago(420), ago(41_000)),
            ("0.4 s ago".into(), "41 s ago".into())
        );
        let ms = [0.004, 0.9951, 9.94, 9.96, 999.4, 999.6, 20_000.0].map(millis);
        assert_eq!(
            ms,
            [
                "0.00 ms", "1.0 ms", "9.9 ms", "10 ms", "999 ms", "1.0 s", "20 s"
            ]
        );
        assert_eq!(
            [number(7), number(48_211), number(1_000_000)],
            ["7", "48\u{202f}211", "1\u{202f}000\u{202f}000"]
        );
        assert_eq!(clock_time(1_787_393_730_123), "10:15:30");
        assert_eq!(machine_time(1_787_393_730_123), "2026-08-22T10:15:30Z");
        assert_eq!(
            [counted(1, "camera"), counted(0, "camera")],
            ["1 camera", "0 cameras"]
        );
    }
}
