//! `spotter discover`: the ONVIF cameras of the network, their streams, and a first configuration.
//!
//! ```text
//!   WS-Discovery ─or─ --address ──▶ DiscoveredCamera ──login──▶ streams ──▶ table, JSON
//!                                                                      └──▶ site: pure, text of a configuration
//! ```

mod site;

use std::{fs::OpenOptions, io::Write as _, path::Path, sync::Arc, thread, time::Duration};

use anyhow::{Context as _, anyhow, bail};
use serde_json::json;

use self::site::configuration;
use super::{
    args::DiscoverArgs,
    out::{counted, remark, removed, say},
    table::{TableRow, TextTable, known},
};
use spotter_config::{self as config, Environment, Secret};
use spotter_core::SystemClock;
use spotter_onvif::{
    DISCOVERY_GROUP, DiscoveredCamera, OnvifCamera, OnvifLogin, OnvifStream, describe_camera,
    interfaces,
};
use url::Url;

/// The password of `--user`: not an argument, which other users of the machine can read.
const PASSWORD_VARIABLE: &str = "ONVIF_PASSWORD";
/// For each answer of a camera.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

pub fn discover(args: &DiscoverArgs) -> anyhow::Result<()> {
    if let Some(path) = &args.write
        && path.exists()
    {
        bail!(
            "{} exists and is not overwritten; name a new file",
            path.display()
        );
    }
    if !args.interface.is_empty() {
        removed("--interface", "the search uses all interfaces");
    }
    if let Some(address) = &args.ask {
        removed("--ask", &format!("use --address {address}"));
    }
    let login = args.user.as_deref().map(|user| login(args, user));
    let login = login.transpose()?;
    let addresses: Vec<Url> = args.address.iter().chain(&args.ask).cloned().collect();
    let has_addresses = !addresses.is_empty();
    let mut cameras: Vec<DiscoveredCamera> = match has_addresses {
        true => addresses.into_iter().map(DiscoveredCamera::at).collect(),
        false => search(args.wait)?,
    };
    if login.is_some() || args.write.is_some() || has_addresses {
        ask_all(&mut cameras, login.as_ref(), args.insecure);
    }
    match args.json {
        true => say(json!({ "cameras": cameras }))?,
        false => show(&cameras)?,
    }
    if let Some(path) = &args.write {
        return write(args, path, &cameras);
    }
    if cameras.iter().all(|camera| camera.error.is_some()) {
        bail!("no camera listed its streams; the reasons are above");
    }
    Ok(())
}

fn login(args: &DiscoverArgs, user: &str) -> anyhow::Result<OnvifLogin> {
    let password = match &args.password_file {
        Some(path) => {
            removed("--password-file", &format!("set {PASSWORD_VARIABLE}"));
            let name = || format!("cannot read {}", path.display());
            let text = std::fs::read_to_string(path).with_context(name)?;
            text.trim_end().to_owned()
        }
        None => std::env::var(PASSWORD_VARIABLE).map_err(|_| {
            anyhow!(
                "--user {user}: the password is read from {PASSWORD_VARIABLE}, which is not set"
            )
        })?,
    };
    Ok(OnvifLogin {
        user: user.to_owned(),
        password: Secret::new(password),
    })
}

fn search(wait: Duration) -> anyhow::Result<Vec<DiscoveredCamera>> {
    let interfaces = interfaces().context("cannot list the interfaces of this machine")?;
    if interfaces.is_empty() {
        bail!(
            "this machine has no IPv4 interface that is up; connect it to the network of the cameras"
        );
    }
    let listed: Vec<String> = interfaces.iter().map(ToString::to_string).collect();
    remark(format_args!(
        "searching for {wait:?} on {}",
        listed.join(", ")
    ));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let found = runtime.block_on(spotter_onvif::discover(&interfaces, wait, DISCOVERY_GROUP));
    for (interface, error) in &found.failures {
        remark(format_args!(
            "cannot ask on {interface}: {error}; check that its network passes multicast"
        ));
    }
    if found.cameras.is_empty() {
        bail!(
            "no ONVIF camera answered within {wait:?}. Check that\n  \
             - ONVIF is switched on in the camera (often under Network, Integration or Platform access)\n  \
             - the camera is in the same network or VLAN: routers do not pass the search; try --address http://IP\n  \
             - multicast and UDP reach this machine: not in a container without the host's network, and no firewall drops answers from port 3702"
        );
    }
    Ok(found.cameras)
}

/// Cameras that are asked at the same time.
const ASKED_AT_ONCE: usize = 32;

/// Asks many cameras at the same time, because each may be slow.
fn ask_all(cameras: &mut [DiscoveredCamera], login: Option<&OnvifLogin>, is_insecure: bool) {
    let clock = Arc::new(SystemClock::new());
    for some in cameras.chunks_mut(ASKED_AT_ONCE) {
        ask_at_once(some, login, is_insecure, &clock);
    }
}

fn ask_at_once(
    cameras: &mut [DiscoveredCamera],
    login: Option<&OnvifLogin>,
    is_insecure: bool,
    clock: &Arc<SystemClock>,
) {
    thread::scope(|scope| {
        for found in cameras {
            let camera = OnvifCamera {
                address: found.address.clone(),
                login: login.cloned(),
                is_insecure,
            };
            let clock = Arc::clone(clock);
            scope.spawn(move || {
                let described = describe_camera(found, &camera, clock, ANSWER_WITHIN);
                found.error = described.err().map(|error| error.to_string());
            });
        }
    });
}

/// Writes a configuration that `spotter check` accepts.
fn write(args: &DiscoverArgs, path: &Path, cameras: &[DiscoveredCamera]) -> anyhow::Result<()> {
    let usable = cameras.iter().filter(|camera| !streams(camera).is_empty());
    let usable = usable.count();
    if usable == 0 {
        bail!(
            "{} was not written: no camera listed its streams; give --user with an ONVIF user of the cameras",
            path.display()
        );
    }
    let text = configuration(cameras, args.user.as_deref(), args.insecure);
    let name = path.display().to_string();
    config::of_text(&name, &text, &Environment::process())
        .map_err(anyhow::Error::new)
        .context("the configuration of these cameras would not be valid; nothing was written")?;
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {name}"))?;
    remark(format_args!(
        "{name}: {}; edit the broker and the prompts in it, then run: spotter check {name} --probe",
        counted(usable, "camera")
    ));
    Ok(())
}

fn streams(camera: &DiscoveredCamera) -> &[OnvifStream] {
    camera.streams.as_deref().unwrap_or_default()
}

/// Its maker and its model, as far as known.
fn model(camera: &DiscoveredCamera) -> Option<String> {
    match (&camera.manufacturer, &camera.model) {
        (Some(maker), Some(model)) if !model.starts_with(maker) => Some(format!("{maker} {model}")),
        (maker, model) => model.as_ref().or(maker.as_ref()).cloned(),
    }
}

fn show(cameras: &[DiscoveredCamera]) -> anyhow::Result<()> {
    let rows = cameras.iter().map(|camera| {
        vec![
            ("address", camera.address.to_string()),
            ("name", or_dash(camera.name.clone())),
            ("model", or_dash(model(camera))),
            ("location", or_dash(camera.location.clone())),
        ]
    });
    say(TextTable::new(rows).to_string().trim_end())?;
    for camera in cameras {
        let address = &camera.address;
        if let Some(reason) = &camera.error {
            say(format_args!("\n{address}: {reason}"))?;
        }
        if let (Some(streams), Some(has_events)) = (&camera.streams, camera.events) {
            let events = if has_events { "events" } else { "no events" };
            let number = counted(streams.len(), "stream");
            say(format_args!("\n{address}: {number}, {events}"))?;
            say(TextTable::new(streams.iter().map(row))
                .to_string()
                .trim_end())?;
        }
    }
    if cameras
        .iter()
        .all(|camera| camera.error.is_none() && camera.streams.is_none())
    {
        remark(format_args!(
            "{}; --user NAME lists their streams, --write FILE writes a configuration",
            counted(cameras.len(), "camera")
        ));
    }
    Ok(())
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

fn row(OnvifStream { profile, url }: &OnvifStream) -> TableRow {
    vec![
        ("profile", profile.name.clone()),
        ("encoding", or_dash(profile.encoding.clone())),
        ("size", or_dash(profile.size())),
        ("fps", known(profile.rate_hz, 0)),
        ("stream", url.to_string()),
    ]
}
