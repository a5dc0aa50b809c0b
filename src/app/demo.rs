//! `spotter demo`: a drawn street as RTSP camera, mosquitto as broker, the daemon and a console, all on this machine.

use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};

use super::{
    console::{self, say},
    daemon,
    logging::start_logging,
    run::{load, runtime},
    stages::ProcessContext,
};
use spotter_config::{Config, SourceConfig};
use spotter_core::{Clock, SystemClock, WallTime};
use spotter_street::{
    Street,
    broker::{self, Mosquitto},
    draw_i420, rtsp, timecode,
};

/// Frames a second of the drawn street.
const STREET_FPS: u32 = 15;
/// Pixels of the drawn street.
const STREET_SIZE: (u32, u32) = (640, 360);
const BROKER_CHECKED_EVERY: Duration = Duration::from_secs(1);
/// Bit rate of the drawn street.
const STREET_KBIT_PER_S: u32 = 1000;

/// `spotter demo`
#[derive(Debug, clap::Args)]
pub struct DemoOptions {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = "configs/demo.toml")]
    pub config: PathBuf,
    /// Stop after this many seconds (0 = run until Ctrl-C)
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seconds: u64,
    /// Seed of the drawn street
    #[arg(long, value_name = "N", default_value_t = 7)]
    pub seed: u64,
    /// Draw the street this many seconds ahead of now (negative: in the past). Traffic, light and weather depend on
    /// seed and time alone, so this repeats a moment
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    pub ahead: i64,
    /// Log more (twice: everything); RUST_LOG overrides
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// Runs the demo until Ctrl-C. Blocks.
pub fn demo(options: &DemoOptions) -> anyhow::Result<()> {
    let loaded = load(&options.config)?;
    let logging = start_logging(options.verbose, &loaded.config)?;
    let config = &loaded.config;
    let mut broker = broker::ensure(&config.mqtt.broker.host, config.mqtt.broker.port)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let street = start_street(config, options, clock)?;
    say(format_args!(
        "camera   {} (drawn street {}, {STREET_FPS} frames/s)",
        street.url(),
        options.seed
    ));
    let origin = match broker {
        Some(_) => "started for this demo",
        None => "already running",
    };
    let (host, port) = (&config.mqtt.broker.host, config.mqtt.broker.port);
    say(format_args!("broker   {host}:{port} ({origin})"));
    let base = &config.mqtt.base;
    say(format_args!(
        "watch    mosquitto_sub -h {host} -p {port} -v -t '{base}/#'"
    ));
    if let Some(listen) = config.http.listen {
        say(format_args!("page     http://{listen}/"));
    }
    say("stop     Ctrl-C\n");
    console::title();
    let context = ProcessContext {
        console: true,
        ..ProcessContext::new(&options.config, logging)
    };
    let seconds = (options.seconds > 0).then_some(options.seconds);
    let report = runtime()?.block_on(async {
        tokio::select! {
            report = daemon::run(context, loaded, seconds) => report,
            never = report_end(broker.as_mut()) => match never {},
        }
    })?;
    say(format_args!("\n{report}"));
    if let Some(broker) = broker.filter(|_| report.messages.states_acked == 0) {
        say(format_args!(
            "the broker confirmed nothing; its output:\n{}",
            broker.output()
        ));
    }
    Ok(())
}

/// Prints the output of the demo's own broker when it ends; then it waits for ever.
async fn report_end(broker: Option<&mut Mosquitto>) -> Infallible {
    if let Some(broker) = broker {
        while broker.end().is_none() {
            tokio::time::sleep(BROKER_CHECKED_EVERY).await;
        }
        say(format_args!(
            "the demo's broker failed: {}; start the demo again. Its output:\n{}",
            broker.end().unwrap_or_default(),
            broker.output()
        ));
    }
    std::future::pending().await
}

/// Serves the drawn street at the URL of the first RTSP camera of the configuration.
fn start_street(
    config: &Config,
    demo: &DemoOptions,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<rtsp::RtspStreet> {
    let url = config
        .cameras
        .iter()
        .find_map(|camera| match &camera.source {
            SourceConfig::Rtsp(rtsp) => Some(&rtsp.url),
            _ => None,
        });
    let url = url.context("the configuration has no RTSP camera; add one with a URL like rtsp://127.0.0.1:8554/street")?;
    let url = url::Url::parse(url).with_context(|| format!("camera URL {url}"))?;
    let host = url.host_str().unwrap_or_default();
    if !matches!(host, "127.0.0.1" | "localhost") {
        bail!(
            "the demo serves its camera on 127.0.0.1, but the configuration has {host}; set the host of the camera URL to 127.0.0.1"
        );
    }
    let street = Street::new(demo.seed);
    let ahead_ns = demo.ahead.saturating_mul(1_000_000_000);
    let (width, height) = STREET_SIZE;
    let options = rtsp::StreetOptions {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, url.port().unwrap_or(554))),
        mount: url.path().to_owned(),
        size: STREET_SIZE,
        fps: STREET_FPS,
        content: rtsp::RtspContent::Pictures {
            kbit_per_s: STREET_KBIT_PER_S,
        },
    };
    let draw = move |wall: WallTime| {
        let shown = WallTime::from_unix_nanos(wall.unix_nanos().saturating_add(ahead_ns));
        let mut picture = draw_i420(&street.at(shown), width, height);
        timecode::burn(wall, &mut picture, width, height);
        picture
    };
    Ok(rtsp::RtspStreet::start(options, clock, draw)?)
}
