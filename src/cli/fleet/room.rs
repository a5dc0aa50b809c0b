//! `spotter fleet status --nats`: the boxes and cameras of one fleet, from its store.
//!
//! ```text
//!   store ──StoreEvent──▶ RoomView ──now──▶ RoomReport ─▶ table, JSON, exit code
//!          a watch that   pure              pure: nodes and cameras with their problems
//!          only reads
//! ```

mod report;
mod view;

use std::time::Duration;

use anyhow::{anyhow, bail};
use spotter_core::{Clock as _, Mono, SystemClock, config::Environment};
use spotter_engine::model::ModelConfig;
use spotter_fleet::{
    entries::{HEARTBEAT_PERIOD, StoreEvent},
    store::StoreAccess,
};
use tokio::{sync::mpsc, time::timeout};

use self::{
    report::RoomReport,
    view::{RoomView, ShownCameras},
};
use super::{FleetTrouble, WATCH_EVERY, camera_list, print};
use crate::{
    app::costs::CostBasis,
    cli::{
        args::{FleetStatusArgs, FleetStoreArgs},
        out::remark,
    },
};

const EVENTS: usize = 1024;
/// The longest time until the store has sent all owners.
const READING_LIMIT: Duration = Duration::from_secs(10);
/// Then the list and all heartbeats have arrived, too: the server sent them at the same time.
const SETTLING: Duration = Duration::from_secs(1);
/// Between two looks whether problems are over, such as a camera that changes hands or a list that was just written.
const CHECK_EVERY: Duration = Duration::from_millis(500);

pub async fn status(args: &FleetStatusArgs, store: &FleetStoreArgs) -> anyhow::Result<()> {
    let mut reader = RoomReader::open(args, store).await?;
    reader.read_all().await?;
    match args.watch {
        true => reader.watch().await,
        false => reader.once().await,
    }
}

/// One run of the command.
struct RoomReader<'a> {
    args: &'a FleetStatusArgs,
    events: mpsc::Receiver<StoreEvent>,
    view: RoomView,
    clock: SystemClock,
}

impl<'a> RoomReader<'a> {
    async fn open(args: &'a FleetStatusArgs, of: &FleetStoreArgs) -> anyhow::Result<Self> {
        let store = camera_list::connect(of).await?;
        let (sender, events) = mpsc::channel(EVENTS);
        tokio::spawn(async move { store.watch(StoreAccess::Reader, sender).await });
        // The nodes' model is not on this machine.
        let costs = CostBasis::new(ModelConfig::default(), None, 0, 0);
        Ok(Self {
            args,
            events,
            view: RoomView::new(of.fleet.clone(), costs, Environment::process()),
            clock: SystemClock::new(),
        })
    }

    async fn read_all(&mut self) -> anyhow::Result<()> {
        let limit = self.clock.now().after(READING_LIMIT);
        while !self.view.is_current() {
            if !self.receive(limit).await? {
                let seconds = READING_LIMIT.as_secs();
                bail!(
                    "the NATS server did not send all owners of cameras within {seconds} s; try again"
                );
            }
        }
        self.receive_for(SETTLING).await
    }

    /// Problems that last shorter than the time in which each node renews its heartbeat are not reported.
    async fn once(&mut self) -> anyhow::Result<()> {
        let end = self.clock.now().after(HEARTBEAT_PERIOD);
        let mut report = self.report();
        while report.has_problems() && self.clock.now() < end {
            self.receive_for(CHECK_EVERY).await?;
            report = self.report();
        }
        print(self.args, &report)?;
        match report.has_problems() {
            true => Err(anyhow::Error::msg(FleetTrouble)),
            false => Ok(()),
        }
    }

    /// The store reconnects by itself.
    async fn watch(&mut self) -> anyhow::Result<()> {
        let mut shown: Option<RoomReport> = None;
        loop {
            let report = self.report();
            if self.view.is_current() && shown.as_ref() != Some(&report) {
                print(self.args, &report)?;
                shown = Some(report);
            }
            if let Err(error) = self.receive_for(WATCH_EVERY).await {
                if self.events.is_closed() {
                    return Err(error);
                }
                remark(format_args!("spotter: {error:#}; connecting again"));
            }
        }
    }

    fn report(&self) -> RoomReport {
        let cameras = match self.args.cameras {
            true => ShownCameras::Each,
            false => ShownCameras::None,
        };
        self.view.report(self.clock.now(), cameras)
    }

    async fn receive_for(&mut self, time: Duration) -> anyhow::Result<()> {
        let end = self.clock.now().after(time);
        while self.receive(end).await? {}
        Ok(())
    }

    /// Waits for what the store reports until `end`; false when that was reached.
    async fn receive(&mut self, end: Mono) -> anyhow::Result<bool> {
        let left = end.since(self.clock.now());
        let Ok(event) = timeout(left, self.events.recv()).await else {
            return Ok(false);
        };
        let event = event.ok_or_else(|| anyhow!("the watch of the store ended"))?;
        let reason = match &event {
            StoreEvent::Disconnected { reason } => Some(reason.clone()),
            _ => None,
        };
        self.view.see(event, self.clock.now());
        match reason {
            Some(reason) => bail!("reading the fleet: {reason}"),
            None => Ok(true),
        }
    }
}
