//! `spotter fleet status --mqtt`: one view over the nodes of a broker. With `--nats` it is in [`room`]; `spotter fleet apply` and `get` are in
//! [`camera_list`].
//!
//! ```text
//!   broker ──retained messages──▶ FleetView ──now──▶ FleetReport ─▶ table, JSON, exit code
//!           a client that only    pure               pure: nodes with their problems
//!           reads
//! ```

mod camera_list;
mod report;
mod room;
mod shared;
mod view;

use std::{
    fmt,
    io::{self, IsTerminal as _},
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use serde::Serialize;
use tokio::time::{sleep, timeout};

use self::{report::FleetReport, view::FleetView};
use super::{
    args::{FleetCommand, FleetStatusArgs},
    out::{remark, say},
};
use spotter_core::{
    Clock as _, Mono, SystemClock,
    config::{BrokerAccess, BrokerOptions, Environment},
};
use spotter_mqtt::{NodeTopic, ReadError, TopicReader};

/// The retained messages have arrived when none came for this time.
const QUIET: Duration = Duration::from_millis(500);
/// Between two comparisons with what is shown.
const WATCH_EVERY: Duration = Duration::from_secs(2);
/// Pause before the next connection of `--watch`.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Clears a terminal.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Something is wrong with a node; the report was printed.
#[derive(Debug)]
pub struct FleetTrouble;

impl fmt::Display for FleetTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("something is wrong with a node")
    }
}

pub fn fleet(command: &FleetCommand) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match command {
        FleetCommand::Status(args) => match (&args.mqtt, args.store()) {
            (_, Some(store)) => runtime.block_on(room::status(args, &store)),
            (mqtt, None) => runtime.block_on(status(args, mqtt.as_deref().unwrap_or_default())),
        },
        FleetCommand::Apply(args) => runtime.block_on(camera_list::apply(args)),
        FleetCommand::Get(args) => runtime.block_on(camera_list::get(args)),
    }
}

async fn status(args: &FleetStatusArgs, mqtt: &str) -> anyhow::Result<()> {
    let options = BrokerOptions {
        url: mqtt.to_owned(),
        user: args.user.clone(),
        password_file: args.password_file.clone(),
        ca: args.ca.clone(),
    };
    let broker = BrokerAccess::of_options(&options, &Environment::process())
        .map_err(|wrong| anyhow!("fleet status: {wrong}"))?;
    let fleet = SitesStatus {
        args,
        broker,
        clock: SystemClock::new(),
    };
    match args.watch {
        true => fleet.watch().await,
        false => fleet.once().await,
    }
}

/// As text, or one line of JSON.
fn print<R: fmt::Display + Serialize>(args: &FleetStatusArgs, report: &R) -> anyhow::Result<()> {
    if args.json {
        return say(serde_json::to_string(report)?);
    }
    let is_redrawn = args.watch && io::stdout().is_terminal();
    say(format_args!(
        "{}{report}",
        if is_redrawn { CLEAR } else { "" }
    ))
}

/// One run of the command.
struct SitesStatus<'a> {
    args: &'a FleetStatusArgs,
    broker: BrokerAccess,
    clock: SystemClock,
}

impl SitesStatus<'_> {
    async fn once(&self) -> anyhow::Result<()> {
        let mut connection = self.connect().await?;
        connection
            .receive_until(connection.view.since().after(self.args.wait))
            .await?;
        let report = connection.report();
        print(self.args, &report)?;
        match report.has_problems() {
            true => Err(anyhow::Error::msg(FleetTrouble)),
            false => Ok(()),
        }
    }

    /// Connects again when the connection ends; only a first connection that fails is an error.
    async fn watch(&self) -> anyhow::Result<()> {
        let mut connection = self.connect().await?;
        loop {
            match self.watch_on(&mut connection).await {
                Err(error) if error.is::<ReadError>() => {
                    remark(format_args!("spotter: {error:#}; connecting again"));
                }
                ended => return ended,
            }
            connection = loop {
                sleep(AGAIN_AFTER).await;
                if let Ok(connection) = self.connect().await {
                    break connection;
                }
            };
        }
    }

    async fn watch_on(&self, connection: &mut FleetConnection<'_>) -> anyhow::Result<()> {
        let mut shown: Option<FleetReport> = None;
        loop {
            let report = connection.report();
            if shown.as_ref() != Some(&report) {
                print(self.args, &report)?;
                shown = Some(report);
            }
            let next = self.clock.now().after(WATCH_EVERY);
            connection.receive_until(next).await?;
        }
    }

    /// Connects and reads the retained messages.
    async fn connect(&self) -> anyhow::Result<FleetConnection<'_>> {
        let filters = NodeTopic::filters(&self.args.base);
        let (host, port) = (&self.broker.host, self.broker.port);
        let context = || format!("reading the broker {host}:{port}");
        let reader = TopicReader::open(&self.broker, &filters).await;
        let mut connection = FleetConnection {
            reader: reader.with_context(context)?,
            view: FleetView::new(&self.args.base, self.clock.now()),
            fleet: self,
        };
        connection.receive_retained().await.with_context(context)?;
        Ok(connection)
    }
}

/// A connection to the broker, and what it has received.
struct FleetConnection<'a> {
    reader: TopicReader,
    view: FleetView,
    fleet: &'a SitesStatus<'a>,
}

impl FleetConnection<'_> {
    fn report(&self) -> FleetReport {
        let wait = self.fleet.args.wait;
        let silent_after = (!wait.is_zero()).then_some(wait);
        self.view.report(self.fleet.clock.now(), silent_after)
    }

    async fn receive_retained(&mut self) -> Result<(), ReadError> {
        let mut quiet_at = self.fleet.clock.now().after(QUIET);
        while let Some(was_retained) = self.receive(quiet_at).await? {
            if was_retained {
                quiet_at = self.fleet.clock.now().after(QUIET);
            }
        }
        Ok(())
    }

    async fn receive_until(&mut self, end: Mono) -> Result<(), ReadError> {
        while self.receive(end).await?.is_some() {}
        Ok(())
    }

    /// Waits for a message until `end`; whether it was retained.
    async fn receive(&mut self, end: Mono) -> Result<Option<bool>, ReadError> {
        let left = end.since(self.fleet.clock.now());
        let Ok(message) = timeout(left, self.reader.next()).await else {
            return Ok(None);
        };
        let message = message?;
        self.view.receive(&message, self.fleet.clock.now());
        Ok(Some(message.retained))
    }
}
