//! `spotter fleet status`: the nodes and fleets below the base of a broker, from what they retain there.
//!
//! ```text
//!   broker ──retained messages──▶ FleetView ──▶ FleetReport ─▶ table, JSON, exit code
//!           a client that only    pure          pure: nodes and fleets with their problems
//!           reads
//! ```

use std::{fmt, time::Duration};

use anyhow::{Context as _, anyhow};
use tokio::time::timeout;

use super::view::FleetView;
use crate::cli::{
    args::FleetStatusArgs,
    out::{remark, say},
};
use spotter_config::{BrokerAccess, BrokerOptions, Environment};
use spotter_core::{Clock as _, SystemClock};
use spotter_mqtt::{NodeTopic, ReadError, TopicReader};

/// The retained messages have arrived when none came for this time.
const QUIET: Duration = Duration::from_millis(500);

/// Something is wrong with a node; the report was printed.
#[derive(Debug)]
pub struct FleetTrouble;

impl fmt::Display for FleetTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("something is wrong with a node")
    }
}

pub async fn status(args: &FleetStatusArgs) -> anyhow::Result<()> {
    for (option, replacement) in args.removed() {
        remark(format_args!(
            "warning: {option} was removed and will be an error; {replacement}"
        ));
    }
    let mqtt = args.mqtt.clone().context(
        "fleet status: no broker; --mqtt with the broker of the boxes shows their fleet, and the status page of each box shows loads",
    )?;
    let options = BrokerOptions {
        url: mqtt,
        user: args.user.clone(),
        password_file: args.password_file.clone(),
        ca: args.ca.clone(),
    };
    let broker = BrokerAccess::of_options(&options, &Environment::process())
        .map_err(|wrong| anyhow!("fleet status: {wrong}"))?;
    let context = || format!("reading the broker {}:{}", broker.host, broker.port);
    let view = read(args, &broker).await.with_context(context)?;
    let report = view.report(!args.wait.is_zero());
    match args.json {
        true => say(serde_json::to_string(&report)?)?,
        false => say(&report)?,
    }
    match report.has_problems() {
        true => Err(anyhow::Error::msg(FleetTrouble)),
        false => Ok(()),
    }
}

/// The retained messages, and what is published within `--wait`.
async fn read(args: &FleetStatusArgs, broker: &BrokerAccess) -> Result<FleetView, ReadError> {
    let clock = SystemClock::new();
    let mut reader = TopicReader::open(broker, &NodeTopic::filters(&args.base)).await?;
    let mut view = FleetView::new(&args.base);
    let listened_at = clock.now().after(args.wait);
    let mut quiet_at = clock.now().after(QUIET);
    loop {
        let left = quiet_at.max(listened_at).since(clock.now());
        let Ok(message) = timeout(left, reader.next()).await else {
            return Ok(view);
        };
        let message = message?;
        if message.retained {
            quiet_at = clock.now().after(QUIET);
        }
        view.receive(&message);
    }
}
