//! A panic is told by the log, where secrets are masked: the standard library would write it past the mask.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    io::{self, Write as _},
    panic::{self, PanicHookInfo},
    thread,
};

use tracing::Level;

use super::telemetry::SecretList;

/// From now on every panic of the process goes to the log.
pub(super) fn log_panics(secrets: SecretList) {
    panic::set_hook(Box::new(move |panic| tell(panic, &secrets)));
}

/// Masked here already: an error's words may be cut into lines, and a key that is masked as a whole has several.
fn tell(panic: &PanicHookInfo<'_>, secrets: &SecretList) {
    let thread = thread::current();
    let thread = thread.name().unwrap_or("without a name");
    let at = panic
        .location()
        .map_or_else(|| "?".to_owned(), ToString::to_string);
    let words = panic.payload_as_str().unwrap_or("without words");
    let words = in_one_line(&secrets.mask(words));
    // `RUST_LOG` may leave errors out, and a panic within the log cannot be told by it. It is never lost.
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

/// As `assert_eq!` panics in three.
fn in_one_line(words: &str) -> String {
    let lines: Vec<&str> = words.lines().map(str::trim).collect();
    lines.join(" | ")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::ops::telemetry::{self, Sink};
    use spotter_core::config::Secret;

    /// Set for the child process: a panic hook is the whole process's.
    const ALONE: &str = "SPOTTER_TEST_PANIC";
    const CANARY: &str = "k@nary/7";
    /// As a PEM key has.
    const TWO_LINES: &str = "first canary\nsecond canary";

    #[test]
    fn a_panic_is_a_line_of_the_log_without_a_secret() {
        if std::env::var_os(ALONE).is_some() {
            return panic_with_secrets();
        }
        let test = "ops::panics::tests::a_panic_is_a_line_of_the_log_without_a_secret";
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
