//! Logs: to people on a terminal, to the journal under systemd, and never with a secret in them.
//!
//! Everything goes through one writer that knows the secrets. That is why the journal is reached through stderr with
//! its priority prefixes (sd-daemon(3)) and not through its socket: a line is masked where it is written, whichever
//! library logged it. Panics are log lines too.

use std::{
    fmt, fs,
    io::{self, IsTerminal},
    os::unix::fs::MetadataExt,
    sync::Arc,
};

use anyhow::anyhow;
use tracing::{Event, Level, Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    EnvFilter,
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{Format, Full, Writer},
    },
    registry::LookupSpan,
};

use super::{panics::log_panics, secret_list::SecretList};
use spotter_control::LogLevel;

/// In more detail, the HTTP client logs URLs and, in hexadecimal, requests: no mask finds a secret there.
const WITHOUT_REQUESTS: &str = "ureq=warn,ureq_proto=warn";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sink {
    /// Colours, time of day.
    Terminal,
    /// The journal adds time and unit; lines begin with their priority.
    Journal,
    /// A file or pipe: time, no colours.
    Plain,
}

impl Sink {
    /// Looks at stderr and at `$JOURNAL_STREAM`, which systemd sets to the device and inode of the journal's socket.
    pub fn of_stderr() -> Self {
        if io::stderr().is_terminal() {
            return Self::Terminal;
        }
        let stderr = fs::metadata("/proc/self/fd/2").ok();
        let journal = std::env::var("JOURNAL_STREAM").ok();
        match (stderr, journal) {
            (Some(stderr), Some(journal))
                if journal == format!("{}:{}", stderr.dev(), stderr.ino()) =>
            {
                Self::Journal
            }
            _ => Self::Plain,
        }
    }
}

/// The log filter; can be changed while the process runs. Clones share it.
#[derive(Clone)]
pub struct Levels {
    /// From the command line or `RUST_LOG`.
    usual: Arc<str>,
    set: Arc<dyn Fn(EnvFilter) -> bool + Send + Sync>,
}

impl Levels {
    /// Sets the level of Spotter's lines; `None` restores the level of the start. False when the filter cannot be set.
    pub fn show(&self, level: Option<LogLevel>) -> bool {
        let filter = match level {
            Some(level) => directives(level),
            None => &self.usual,
        };
        EnvFilter::try_new(filter).is_ok_and(|filter| (self.set)(filter))
    }
}

/// The MQTT library warns of each message that a broker refuses, which Spotter logs once a minute: only a more detailed log has that.
fn directives(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn,rumqttc=error,async_nats=warn",
        LogLevel::Info => "info,rumqttc=error,async_nats=warn",
        LogLevel::Debug => "info,spotter=debug",
        LogLevel::Trace => "info,spotter=trace",
    }
}

impl fmt::Debug for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Levels").field(&self.usual).finish()
    }
}

/// Sets up logging for the process, once; panics go there too. `RUST_LOG` sets the filter; else `verbose` 0 is info, 1 debug, 2 trace.
/// Secrets added to `secrets` later are masked from then on.
pub fn init(sink: Sink, verbose: u8, secrets: SecretList) -> anyhow::Result<Levels> {
    let level = match verbose {
        0 => LogLevel::Info,
        1 => LogLevel::Debug,
        _ => LogLevel::Trace,
    };
    let usual = match std::env::var("RUST_LOG") {
        Ok(filter) if !filter.is_empty() => format!("{filter},{WITHOUT_REQUESTS}"),
        _ => directives(level).to_owned(),
    };
    let filter = EnvFilter::try_new(&usual);
    let filter =
        filter.map_err(|error| anyhow!("RUST_LOG: {error}; for example RUST_LOG=spotter=debug"))?;
    let builder = tracing_subscriber::fmt()
        .with_ansi(sink == Sink::Terminal)
        .with_writer(masked(secrets.clone(), io::stderr))
        .event_format(LineFormat::of(sink))
        .with_env_filter(filter)
        .with_filter_reloading();
    let handle = builder.reload_handle();
    let set = builder.try_init();
    set.map_err(|_| anyhow!("logging is already set up"))?;
    log_panics(secrets);
    Ok(Levels {
        usual: usual.into(),
        set: Arc::new(move |filter| handle.reload(filter).is_ok()),
    })
}

/// The `verbose` for [`init`] in a child process that logs as much as this one.
pub fn verbosity() -> u8 {
    match LevelFilter::current().into_level() {
        Some(Level::TRACE) => 2,
        Some(Level::DEBUG) => 1,
        Some(Level::INFO | Level::WARN | Level::ERROR) | None => 0,
    }
}

enum LineFormat {
    Timed(Format),
    /// With the priority that the journal reads from `<n>` at the start of a line.
    Journal(Format<Full, ()>),
}

impl LineFormat {
    fn of(sink: Sink) -> Self {
        let format = Format::default().with_target(false);
        match sink {
            Sink::Journal => Self::Journal(format.without_time().with_level(false)),
            Sink::Terminal | Sink::Plain => Self::Timed(format),
        }
    }
}

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let format = match self {
            Self::Timed(format) => return format.format_event(context, writer, event),
            Self::Journal(format) => format,
        };
        let priority = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        write!(writer, "<{priority}>")?;
        format.format_event(context, writer, event)
    }
}

/// Makes writers that mask. The formatter writes a whole line at once, so a secret is never cut in two.
fn masked<W>(secrets: SecretList, out: impl Fn() -> W) -> impl Fn() -> MaskedLine<W> {
    move || MaskedLine {
        secrets: secrets.clone(),
        out: out(),
    }
}

struct MaskedLine<W> {
    secrets: SecretList,
    out: W,
}

impl<W: io::Write> io::Write for MaskedLine<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.out.write_all(self.secrets.mask(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::ops::secret_list::MASK;
    use spotter_config::Secret;

    #[derive(Clone, Default)]
    struct WrittenLog(Arc<Mutex<Vec<u8>>>);

    impl WrittenLog {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl io::Write for WrittenLog {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn no_form_of_a_secret_is_logged() {
        let secrets = SecretList::default();
        secrets.add(Some("edge"), &Secret::new("p@ss w/ü".to_owned()));
        for form in [
            "p@ss w/ü",
            "p%40ss%20w%2F%C3%BC",
            "cEBzcyB3L8O8",
            "ZWRnZTpwQHNzIHcvw7w=",
        ] {
            assert_eq!(secrets.mask(form), MASK, "{form}");
        }
        secrets.add(Some("admin"), &Secret::new("k@nary/7".into()));
        secrets.add(None, &Secret::new(String::new()));
        secrets.add(None, &Secret::new("quo\"nary".into()));
        let out = WrittenLog::default();
        let kept = out.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(masked(secrets.clone(), move || out.clone()))
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(url = "rtsp://admin:k%40nary%2F7@gate/main", "k@nary/7");
            tracing::warn!(login = "quo\"nary", "escaped");
            tracing::error!("Authorization: Basic YWRtaW46a0BuYXJ5Lzc= or a0BuYXJ5Lzc= alone");
        });
        let written = kept.text();
        assert!(
            !written.contains("nary") && !written.contains("a0Bu") && !written.contains("YWRtaW46"),
            "{written}"
        );
        assert_eq!(written.matches(MASK).count(), 5, "{written}");
        assert!(!format!("{secrets:?}").contains("nary"));
    }

    #[test]
    fn journal_lines_begin_with_their_priority() {
        let out = WrittenLog::default();
        let kept = out.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || out.clone())
            .event_format(LineFormat::of(Sink::Journal))
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::error!(camera = "gate", "no frame");
            tracing::info!("back");
        });
        let written = kept.text();
        assert_eq!(written, "<3>no frame camera=\"gate\"\n<6>back\n");
    }
}
