//! The cameras of the benchmark, in a process of their own, so that what they cost is not counted.
//!
//! It writes the cameras' URLs to standard output, a line each, and ends when its standard input ends.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    net::{Ipv4Addr, SocketAddr},
    process::{Child, ChildStdin, Command, Stdio},
    sync::Arc,
};

use anyhow::Context as _;

use super::{STREAM, record_tape};
use spotter_core::{Clock, SystemClock};
use spotter_street::rtsp::{RtspContent, RtspStreet, StreetOptions};

/// The process; it ends when this is dropped.
pub struct CameraServer {
    child: Child,
    /// Closing it ends the process.
    input: Option<ChildStdin>,
    pub urls: Vec<String>,
}

impl CameraServer {
    /// Starts the process and waits until its cameras listen.
    pub fn start(cameras: usize) -> anyhow::Result<Self> {
        let mut child = Command::new("/proc/self/exe")
            .args(["serve-cameras", &cameras.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the process that serves the cameras")?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let mut server = Self {
            child,
            input,
            urls: Vec::new(),
        };
        let lines = output
            .into_iter()
            .flat_map(|out| BufReader::new(out).lines());
        server.urls = lines.take(cameras).collect::<io::Result<_>>()?;
        let listening = server.urls.len();
        anyhow::ensure!(
            listening == cameras,
            "the process that serves the cameras ended after {listening} of {cameras}"
        );
        Ok(server)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for CameraServer {
    fn drop(&mut self) {
        drop(self.input.take());
        // If it does not end now that its input is closed, there is nothing else to do.
        let _ = self.child.wait();
    }
}

/// `spotter-lab serve-cameras`: serves the tape until standard input is closed. Blocks.
pub fn serve_cameras(cameras: usize) -> anyhow::Result<()> {
    let tape = record_tape()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let mut streets = Vec::with_capacity(cameras);
    for number in 0..cameras {
        let options = StreetOptions {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            mount: format!("/{number}"),
            size: (STREAM.width as u32, STREAM.height as u32),
            fps: STREAM.fps,
            content: RtspContent::Units,
        };
        let mut next = tape.player(number);
        let street = RtspStreet::start(options, Arc::clone(&clock), move |_| next())?;
        writeln!(io::stdout(), "{}", street.url())?;
        streets.push(street);
    }
    io::stdout().flush()?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}
