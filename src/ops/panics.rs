//! Panics go to the log, which masks secrets; the standard library would write them to stderr without masking.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    io::{self, Write as _},
    panic::{self, PanicHookInfo},
    thread,
};

use tracing::Level;

use super::secret_list::SecretList;

/// Sends every panic of the process to the log.
pub(super) fn log_panics(secrets: SecretList) {
    panic::set_hook(Box::new(move |panic| log_panic(panic, &secrets)));
}

/// Masks before the log does: the message is joined into one line, and a key of several lines is masked as a whole only.
fn log_panic(panic: &PanicHookInfo<'_>, secrets: &SecretList) {
    let thread = thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let at = panic
        .location()
        .map_or_else(|| "?".to_owned(), ToString::to_string);
    let words = panic.payload_as_str().unwrap_or("no message");
    let words = in_one_line(&secrets.mask(words));
    // `RUST_LOG` may leave errors out, and a panic within the log cannot be logged: write it to stderr.
    if !tracing::enabled!(Level::ERROR) {
        let line = format!("thread {thread:?} panicked at {at}: {words}\n");
        let _ = io::stderr().write_all(secrets.mask(&line).as_bytes());
        return;
    }
    tracing::error!(thread, at, "panicked: {words}");
    // With RUST_BACKTRACE only, as usual. The journal would give later lines of one event neither priority nor name.
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        for line in backtrace.to_string().lines() {
            tracing::error!("{line}");
        }
    }
}

/// `assert_eq!` panics with three lines.
fn in_one_line(words: &str) -> String {
    let lines: Vec<&str> = words.lines().map(str::trim).collect();
    lines.join(" | ")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::ops::telemetry::{self, Sink};
    use spotter_config::Secret;

    /// Set for the child process: a panic hook is the whole process's.
    const ALONE: &str = "SPOTTER_TEST_PANIC";
    const CANARY: &str = "k@nary/7";
    /// As a PEM key has.
    const TWO_LINES: &str = "first canary\nsecond canary";

    #[test]
    fn panic_is_one_log_line_without_secrets() {
        if std::env::var_os(ALONE).is_some() {
            return panic_with_secrets();
        }
        let test = "ops::panics::tests::panic_is_one_log_line_without_secrets";
        // Also when the log leaves errors out.
        for filter in ["", "off"] {
            let output = Command::new(std::env::current_exe().unwrap())
                .args([test, "--exact", "--nocapture"])
                .env(ALONE, "1")
                .env("RUST_LOG", filter)
                .env_remove("RUST_BACKTRACE")
                .output()
                .unwrap();
            let text =
                String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            assert!(output.status.success(), "{text}");
            assert!(!text.contains("canary") && !text.contains("nary"), "{text}");
            let lines: Vec<&str> = text.lines().filter(|l| l.contains("panicked")).collect();
            let [line] = lines[..] else {
                panic!("{filter}: {text}")
            };
            for part in ["camera-gate", file!(), "login *** at *** refused | twice"] {
                assert!(line.contains(part), "{part}: {line}");
            }
        }
    }

    fn panic_with_secrets() {
        let secrets = SecretList::default();
        secrets.add(None, &Secret::new(CANARY.into()));
        secrets.add(None, &Secret::new(TWO_LINES.into()));
        telemetry::init(Sink::Plain, 0, secrets).unwrap();
        let thread = thread::Builder::new().name("camera-gate".into());
        assert!(thread.spawn(panics).unwrap().join().is_err());
    }

    fn panics() {
        panic!("login k%40nary%2F7 at {TWO_LINES} refused\n  twice")
    }
}
