//! Messages as lines of JSON on standard output, for programs such as Vector and Fluent Bit (`docs/mqtt.md`).
//!
//! A pipe blocks when its reader is slow, so a thread of its own writes and nothing else blocks. The channel to it keeps the
//! newest lines and counts the dropped ones; a line `{"lost":n}` replaces them.

use std::{
    convert::Infallible,
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use tokio::sync::broadcast::{Receiver, error::RecvError};

use spotter_mqtt::JsonLine;

/// Prints published messages. Clones share the count of lost lines.
#[derive(Clone, Debug)]
pub struct Lines {
    lost: Arc<AtomicU64>,
    /// [`PrintingEnd`] waits until the last clone drops it.
    _printing: mpsc::Sender<Infallible>,
}

/// Waits for the end of all printing.
pub struct PrintingEnd(mpsc::Receiver<Infallible>);

impl Lines {
    pub fn new() -> (Self, PrintingEnd) {
        let (printing, printed) = mpsc::channel();
        let lines = Self {
            lost: Arc::default(),
            _printing: printing,
        };
        (lines, PrintingEnd(printed))
    }

    /// Prints on a thread until the sender is dropped or standard output is closed. Does not block.
    pub fn print(&self, lines: Receiver<JsonLine>) {
        self.print_to(lines, io::stdout());
    }

    fn print_to(&self, lines: Receiver<JsonLine>, out: impl Write + Send + 'static) {
        let own = self.clone();
        let print = move || {
            // All of it: the sender that is dropped says that printing has ended.
            let own = own;
            // The cameras are watched on.
            if let Err(error) = write(lines, out, &own.lost) {
                tracing::warn!(
                    "cannot write to standard output; messages are no longer printed: {error}"
                );
            }
        };
        if let Err(error) = thread::Builder::new().name("lines".into()).spawn(print) {
            tracing::error!(
                "cannot start the thread that prints messages; none are printed: {error}"
            );
        }
    }

    /// Lines that were not printed, because the reader was too slow.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl PrintingEnd {
    /// Waits until the last line is printed: every publisher and every [`Lines`] must be dropped before. Blocks for
    /// `limit` at most.
    pub fn wait(self, limit: Duration) {
        if let Err(RecvTimeoutError::Timeout) = self.0.recv_timeout(limit) {
            tracing::warn!(
                "standard output was not read in time; the last messages were not printed"
            );
        }
    }
}

/// Blocks until the sender is dropped or writing fails.
fn write(mut lines: Receiver<JsonLine>, mut out: impl Write, lost: &AtomicU64) -> io::Result<()> {
    loop {
        match lines.blocking_recv() {
            Ok(line) => writeln!(out, "{line}")?,
            Err(RecvError::Lagged(more)) => {
                if lost.fetch_add(more, Ordering::Relaxed) == 0 {
                    tracing::warn!(
                        "standard output is read too slowly; messages are dropped there and counted"
                    );
                }
                writeln!(out, "{{\"lost\":{more}}}")?;
            }
            Err(RecvError::Closed) => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::broadcast;

    use super::*;

    fn line(n: usize) -> JsonLine {
        JsonLine::new("spotter/edge1/stats", format!("{{\"n\":{n}}}").as_bytes())
    }

    #[test]
    fn slow_reader_loses_the_oldest_lines_and_gets_their_count() {
        let (sender, receiver) = broadcast::channel(4);
        for n in 0..10 {
            sender.send(line(n)).unwrap();
        }
        drop(sender);
        let (mut out, lost) = (Vec::new(), AtomicU64::new(0));
        write(receiver, &mut out, &lost).unwrap();
        let text = String::from_utf8(out).unwrap();
        let printed: Vec<&str> = text.lines().collect();
        assert_eq!(printed[0], "{\"lost\":6}");
        let kept: Vec<String> = (6..10).map(|n| line(n).to_string()).collect();
        assert_eq!(printed[1..], kept);
        assert_eq!(lost.load(Ordering::Relaxed), 6);
    }

    #[test]
    fn closed_reader_ends_printing() {
        let (sender, receiver) = broadcast::channel(4);
        sender.send(line(0)).unwrap();
        // Memory without room accepts nothing.
        let ended = write(receiver, &mut [][..], &AtomicU64::new(0));
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::WriteZero);
        assert_eq!(sender.receiver_count(), 0, "the receiver is dropped");
    }

    /// A full pipe that blocks until a piece is read.
    struct Full(mpsc::SyncSender<Vec<u8>>);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).unwrap();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn end_waits_for_the_last_line_up_to_its_limit() {
        let (sender, receiver) = broadcast::channel(4);
        let (pipe, reader) = mpsc::sync_channel(0);
        let (lines, PrintingEnd(printed)) = Lines::new();
        lines.print_to(receiver, Full(pipe));
        sender.send(line(7)).unwrap();
        drop((lines, sender));
        let moment = Duration::from_millis(50);
        assert_eq!(printed.recv_timeout(moment), Err(RecvTimeoutError::Timeout));
        let read: Vec<u8> = reader.iter().flatten().collect();
        assert_eq!(read, format!("{}\n", line(7)).into_bytes());
        let ended = printed.recv_timeout(Duration::from_secs(60));
        assert_eq!(ended, Err(RecvTimeoutError::Disconnected));
    }
}
