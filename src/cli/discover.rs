//! `spotter discover`: the ONVIF cameras of the network, their streams, and a first configuration.
//!
//! ```text
//!   WS-Discovery ─or─ --address ──▶ FoundCamera ──login──▶ streams ──▶ table, JSON
//!                                                                 └──▶ site: pure, text of a configuration
//! ```

mod site;

use std::{
    fs::OpenOptions, io::Write as _, net::Ipv4Addr, path::Path, sync::Arc, thread, time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use serde_json::{Value, json};

use self::site::{CameraEntry, NamedLogin, PasswordSource, configuration};
use super::{
    args::DiscoverArgs,
    out::{counted, remark, say},
    table::TextTable,
};
use spotter_config::{self as config, Environment, Secret};
use spotter_core::{SystemClock, read_short_file};
use spotter_onvif::{
    CameraDescription, DISCOVERY_GROUP, DiscoveredCamera, DiscoveryOptions, OnvifCamera,
    OnvifLogin, OnvifStream, describe_camera, interfaces,
};

/// The password of `--user`.
const PASSWORD_VARIABLE: &str = "ONVIF_PASSWORD";
/// No password is longer, in bytes.
const PASSWORD_MAX_BYTES: u64 = 64 * 1024;
/// For each answer of a camera.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// A camera with what it answered.
struct FoundCamera {
    camera: DiscoveredCamera,
    /// `None`: it was not asked.
    answer: Option<Result<CameraDescription, String>>,
}

pub fn discover(args: &DiscoverArgs) -> anyhow::Result<()> {
    if let Some(path) = &args.write
        && path.exists()
    {
        bail!(
            "{} exists and is not overwritten; name a new file",
            path.display()
        );
    }
    let login = login(args)?;
    let cameras = match args.address.is_empty() {
        true => search(args)?,
        false => args.address.iter().map(named).collect(),
    };
    let asks = login.is_some() || args.write.is_some() || !args.address.is_empty();
    let cameras = match asks {
        true => ask_all(cameras, login.as_ref(), args.insecure),
        false => cameras
            .into_iter()
            .map(|camera| FoundCamera {
                camera,
                answer: None,
            })
            .collect(),
    };
    match args.json {
        true => say(report(&cameras))?,
        false => show(&cameras)?,
    }
    if let Some(path) = &args.write {
        return write(args, path, &cameras);
    }
    let is_failed = |found: &FoundCamera| matches!(found.answer, Some(Err(_)));
    if cameras.iter().all(is_failed) {
        bail!("no camera listed its streams; the reasons are above");
    }
    Ok(())
}

/// The password is never an argument, which other users of the machine can read.
fn login(args: &DiscoverArgs) -> anyhow::Result<Option<OnvifLogin>> {
    let Some(user) = &args.user else {
        return Ok(None);
    };
    let password = match &args.password_file {
        Some(path) => {
            let text = read_short_file(path, PASSWORD_MAX_BYTES)
                .with_context(|| format!("cannot read the password from {}", path.display()))?;
            let text = text.with_context(|| format!("there is no file {}", path.display()))?;
            text.trim_end_matches(['\n', '\r']).to_owned()
        }
        None => std::env::var(PASSWORD_VARIABLE).map_err(|_| {
            anyhow!(
                "--user {user}: the password is read from {PASSWORD_VARIABLE}, which is not set; set it or use --password-file"
            )
        })?,
    };
    Ok(Some(OnvifLogin {
        user: user.clone(),
        password: Secret::new(password),
    }))
}

/// A camera that was named and not searched.
fn named(address: &url::Url) -> DiscoveredCamera {
    DiscoveredCamera {
        endpoint: address.to_string(),
        address: address.clone(),
        name: None,
        model: None,
        location: None,
    }
}

fn search(args: &DiscoverArgs) -> anyhow::Result<Vec<DiscoveredCamera>> {
    let to = args.ask.unwrap_or(DISCOVERY_GROUP);
    let interfaces = match (&args.interface[..], args.ask) {
        ([], None) => interfaces().context("cannot list the interfaces of this machine")?,
        // The system knows the way to one address.
        ([], Some(_)) => vec![Ipv4Addr::UNSPECIFIED],
        (named, _) => named.to_vec(),
    };
    if interfaces.is_empty() {
        bail!(
            "this machine has no IPv4 interface that is up; connect it to the network of the cameras"
        );
    }
    let wait = args.wait;
    let listed: Vec<String> = interfaces.iter().map(ToString::to_string).collect();
    remark(format_args!(
        "searching for {wait:?} on {}",
        listed.join(", ")
    ));
    let options = DiscoveryOptions {
        interfaces: interfaces.clone(),
        wait,
        to,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let found = runtime.block_on(spotter_onvif::discover(&options));
    for (interface, error) in &found.failures {
        remark(format_args!(
            "cannot ask on {interface}: {error}; check that it is an address of this machine and that its network passes multicast"
        ));
    }
    if found.cameras.is_empty() {
        bail!(
            "no ONVIF camera answered at {to} within {wait:?}. Check that\n  \
             - ONVIF is switched on in the camera (often under Network, Integration or Platform access)\n  \
             - the camera is in the same network or VLAN: routers do not pass the search; try --ask IP or --address http://IP\n  \
             - multicast and UDP reach this machine: not in a container without the host's network, and no firewall drops answers from port 3702"
        );
    }
    Ok(found.cameras)
}

/// Asks all cameras at the same time, because each may be slow.
fn ask_all(
    cameras: Vec<DiscoveredCamera>,
    login: Option<&OnvifLogin>,
    is_insecure: bool,
) -> Vec<FoundCamera> {
    let clock = Arc::new(SystemClock::new());
    let ask = |address: &url::Url| {
        let camera = OnvifCamera {
            address: address.clone(),
            login: login.cloned(),
            is_insecure,
        };
        let described = describe_camera(&camera, Arc::clone(&clock) as _, ANSWER_WITHIN);
        described.map_err(|error| error.to_string())
    };
    thread::scope(|scope| {
        let start = |camera: DiscoveredCamera| {
            let address = camera.address.clone();
            let thread = thread::Builder::new().name("onvif".to_owned());
            (camera, thread.spawn_scoped(scope, || ask(&{ address })))
        };
        let started: Vec<_> = cameras.into_iter().map(start).collect();
        let finished = started.into_iter().map(|(camera, thread)| {
            let answer = match thread.map(|thread| thread.join()) {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err("the thread of the request panicked".to_owned()),
                Err(error) => Err(format!("cannot start a thread: {error}")),
            };
            FoundCamera {
                camera,
                answer: Some(answer),
            }
        });
        finished.collect()
    })
}

/// Writes a configuration that `spotter check` accepts.
fn write(args: &DiscoverArgs, path: &Path, cameras: &[FoundCamera]) -> anyhow::Result<()> {
    let entries: Vec<CameraEntry<'_>> = cameras.iter().map(entry).collect();
    if entries.iter().all(|entry| entry.streams.is_empty()) {
        bail!(
            "{} was not written: no camera listed its streams; give --user with an ONVIF user of the cameras",
            path.display()
        );
    }
    let password = match &args.password_file {
        Some(file) => {
            let file = file.canonicalize();
            let file = file.context("cannot find the file of the password")?;
            PasswordSource::File(file.display().to_string())
        }
        None => PasswordSource::Variable(PASSWORD_VARIABLE),
    };
    let user = args.user.as_deref();
    let password = &password;
    let login = user.map(|user| NamedLogin { user, password });
    let text = configuration(&entries, login, args.insecure);
    let name = path.display().to_string();
    config::of_text(&name, &text, &Environment::process())
        .map_err(anyhow::Error::new)
        .context("the configuration of these cameras would not be valid; nothing was written")?;
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = file.with_context(|| format!("cannot create {name}"))?;
    file.write_all(text.as_bytes())
        .with_context(|| format!("cannot write {name}"))?;
    let usable = entries.iter().filter(|entry| !entry.streams.is_empty());
    remark(format_args!(
        "{name}: {}; edit the broker and the prompts in it, then run: spotter check {name} --probe",
        counted(usable.count(), "camera")
    ));
    Ok(())
}

fn entry(found: &FoundCamera) -> CameraEntry<'_> {
    let (streams, trouble) = match &found.answer {
        Some(Ok(description)) => (&description.streams[..], None),
        Some(Err(reason)) => (&[][..], Some(reason.as_str())),
        None => (&[][..], None),
    };
    CameraEntry {
        name: found.name(),
        model: found.model(),
        address: &found.camera.address,
        streams,
        trouble,
    }
}

impl FoundCamera {
    fn description(&self) -> Option<&CameraDescription> {
        self.answer.as_ref()?.as_ref().ok()
    }

    fn name(&self) -> Option<&str> {
        self.camera.name.as_deref()
    }

    fn model(&self) -> Option<String> {
        let device = self.description().map(|description| &description.device);
        let model = device.and_then(|device| device.model.clone());
        let model = model.or_else(|| self.camera.model.clone());
        let maker = device.and_then(|device| device.manufacturer.clone());
        match (maker, model) {
            (Some(maker), Some(model)) if !model.starts_with(&maker) => {
                Some(format!("{maker} {model}"))
            }
            (_, Some(model)) => Some(model),
            (maker, None) => maker,
        }
    }
}

fn show(cameras: &[FoundCamera]) -> anyhow::Result<()> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let rows = cameras.iter().map(|found| {
        vec![
            ("address", found.camera.address.to_string()),
            ("name", or_dash(found.name().map(str::to_owned))),
            ("model", or_dash(found.model())),
            ("location", or_dash(found.camera.location.clone())),
        ]
    });
    say(TextTable::new(rows).to_string().trim_end())?;
    for found in cameras {
        let address = &found.camera.address;
        match &found.answer {
            Some(Ok(description)) => {
                let events = match description.has_events {
                    true => "events",
                    false => "no events",
                };
                say(format_args!(
                    "\n{address}: {}, {events}",
                    counted(description.streams.len(), "stream")
                ))?;
                let rows = description.streams.iter().map(row);
                say(TextTable::new(rows).to_string().trim_end())?;
            }
            Some(Err(reason)) => say(format_args!("\n{address}: {reason}"))?,
            None => {}
        }
    }
    if cameras.iter().all(|found| found.answer.is_none()) {
        remark(format_args!(
            "{}; --user NAME lists their streams, --write FILE writes a configuration",
            counted(cameras.len(), "camera")
        ));
    }
    Ok(())
}

fn row(stream: &OnvifStream) -> super::table::TableRow {
    let dash = || "-".to_owned();
    let size = stream
        .size
        .map(|(width, height)| format!("{width}x{height}"));
    vec![
        ("profile", stream.profile.clone()),
        ("encoding", stream.encoding.clone().unwrap_or_else(dash)),
        ("size", size.unwrap_or_else(dash)),
        ("fps", super::table::known(stream.rate_hz, 0)),
        ("stream", stream.url.to_string()),
    ]
}

/// One line of JSON.
fn report(cameras: &[FoundCamera]) -> Value {
    let camera = |found: &FoundCamera| {
        let camera = &found.camera;
        let description = found.description();
        let device = description.map(|description| description.device.clone());
        let device = device.unwrap_or_default();
        let streams = description.map(|description| {
            let streams = description.streams.iter().map(|stream| {
                json!({
                    "profile": stream.profile,
                    "encoding": stream.encoding,
                    "width": stream.size.map(|(width, _)| width),
                    "height": stream.size.map(|(_, height)| height),
                    "fps": stream.rate_hz,
                    "url": stream.url.as_str(),
                })
            });
            streams.collect::<Vec<Value>>()
        });
        let reason = found
            .answer
            .as_ref()
            .and_then(|answer| answer.as_ref().err());
        json!({
            "address": camera.address.as_str(),
            "endpoint": camera.endpoint,
            "name": camera.name,
            "location": camera.location,
            "manufacturer": device.manufacturer,
            "model": device.model.or_else(|| camera.model.clone()),
            "firmware": device.firmware,
            "events": description.map(|description| description.has_events),
            "streams": streams,
            "error": reason,
        })
    };
    json!({"cameras": cameras.iter().map(camera).collect::<Vec<Value>>()})
}
