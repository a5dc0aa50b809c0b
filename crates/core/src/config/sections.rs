//! The tables that there is one of: `[node]`, `[http]`, `[mqtt]`, `[model]`.

use std::{net::SocketAddr, path::PathBuf};

use super::{
    Commands, DevicePreference, Discovery, FramePlace, GpuPrecision, HomeAssistantConfig,
    HttpConfig, ModelSettings, ModelSource, MqttConfig, MqttTls, NodeConfig, OverridePersistence,
    SpoolConfig, address, defaults as d,
    load::Scope,
    parse,
    reader::{ConfigValue, Reader},
    secret::{SecretKind, secret},
};
use crate::NodeId;

/// `[node]`: name, state_dir.
pub(super) fn node(scope: &Scope<'_>, table: Option<Reader<'_>>) -> NodeConfig {
    let environment = scope.environment;
    let mut node = NodeConfig {
        name: NodeId::from_host_name(environment.host_name()),
        state_dir: environment.state_dir().unwrap_or(d::STATE_DIR.into()),
    };
    let Some(mut table) = table else {
        return node;
    };
    let id = |text: &str| NodeId::new(text).map_err(|error| error.to_string());
    if let Some(name) = table.get("name").and_then(|value| value.parsed(id)) {
        node.name = name;
    }
    let state_dir = table
        .get("state_dir")
        .and_then(|value| value.parsed(not_empty));
    if let Some(dir) = state_dir.filter(|dir| dir != "auto") {
        node.state_dir = scope.path(&dir);
    }
    table.finish();
    node
}

/// `[http]`: listen, an address with a port or `off`.
pub(super) fn http(table: Option<Reader<'_>>) -> HttpConfig {
    let mut listen = Some(d::HTTP_LISTEN);
    if let Some(mut table) = table {
        if let Some(given) = table.get("listen").and_then(|value| value.parsed(socket)) {
            listen = given;
        }
        table.finish();
    }
    HttpConfig { listen }
}

/// `[mqtt]`, the one table that must be there beside a camera.
pub(super) fn mqtt(scope: &Scope<'_>, root: &mut Reader<'_>) -> Option<MqttConfig> {
    let Some(value) = root.get("mqtt") else {
        root.missing(
            &["mqtt"],
            "no broker; add [mqtt] with url = \"mqtt://HOST\"",
        );
        return None;
    };
    let mut table = value.table()?;
    let url = table.get("url");
    if url.is_none() {
        table.missing(&["url"], "no broker; add url = \"mqtt://HOST\"");
    }
    let broker = url.as_ref().and_then(|url| url.parsed(address::broker));
    let tls = mqtt_tls(scope, &mut table);
    let secure = broker.as_ref().is_none_or(|broker| broker.secure);
    if let (false, Some((key, _)), Some(url)) = (secure, &tls, &url) {
        url.error(format!(
            "mqtt:// together with {key}; did you mean mqtts://?"
        ));
    }
    let base = table
        .get("base")
        .and_then(|value| value.parsed(parse::topic_level));
    let (user, password) = login(scope, &mut table);
    let commands = [
        ("off", Commands::Off),
        ("basic", Commands::Basic),
        ("all", Commands::All),
    ];
    let commands = table
        .get("commands")
        .and_then(|value| value.choice(&commands));
    let overrides = [
        ("keep", OverridePersistence::Keep),
        ("forget", OverridePersistence::Forget),
    ];
    let overrides = table
        .get("overrides")
        .and_then(|value| value.choice(&overrides));
    let retain_snapshots = table.get("retain_snapshots").and_then(|v| v.flag());
    let spool = spool(table.table("spool"));
    let ha = home_assistant(table.table("ha"));
    table.finish();

    let broker = broker?;
    let default_tls = MqttTls {
        ca: None,
        client_cert: None,
        client_key: None,
        insecure: false,
    };
    Some(MqttConfig {
        tls: broker
            .secure
            .then(|| tls.map_or(default_tls, |(_, tls)| tls)),
        host: broker.host,
        port: broker.port,
        base: base.unwrap_or_else(|| d::MQTT_BASE.to_owned()),
        user,
        password,
        commands: commands.unwrap_or(Commands::Basic),
        overrides: overrides.unwrap_or(OverridePersistence::Keep),
        retain_snapshots: retain_snapshots.unwrap_or(false),
        spool,
        ha,
    })
}

/// `[model]`: path, device, gpus, precision, budget, max_objects, frames, tile_difference.
pub(super) fn model(scope: &Scope<'_>, table: Option<Reader<'_>>) -> ModelSettings {
    let mut model = ModelSettings::of(ModelSource::Embedded);
    let Some(mut table) = table else {
        return model;
    };
    if let Some(value) = table.get("path")
        && let Some(text) = value.parsed(not_empty)
        && text != "embedded"
    {
        let dir = scope.path(&text);
        if !dir.is_dir() {
            scope.absent(&value, format!("directory not found: {}", dir.display()));
        }
        model = ModelSettings::of(ModelSource::Directory(dir));
    }
    let devices = [
        ("auto", DevicePreference::Auto),
        ("cpu", DevicePreference::Cpu),
        ("cuda", DevicePreference::Cuda),
    ];
    let device = table.get("device").and_then(|value| value.choice(&devices));
    model.device = device.unwrap_or(model.device);
    if let Some(value) = table.get("gpus") {
        if model.device == DevicePreference::Cpu {
            value.warning("has no effect with device = \"cpu\"");
        }
        model.gpus = gpus(&value).unwrap_or(model.gpus);
    }
    let precisions = [("bf16", GpuPrecision::Bf16), ("fp8", GpuPrecision::Fp8)];
    let precision = table
        .get("precision")
        .and_then(|value| value.choice(&precisions));
    model.precision = precision.unwrap_or(model.precision);
    let budget = table.get("budget").and_then(|value| value.duration());
    model.budget = budget.unwrap_or(model.budget);
    if let Some(limit) = table.get("max_objects").and_then(|value| value.whole()) {
        model.max_objects = limit as u32;
    }
    let places = [("host", FramePlace::Host), ("gpu", FramePlace::Gpu)];
    if let Some(value) = table.get("frames") {
        if model.device == DevicePreference::Cpu {
            value.warning("has no effect with device = \"cpu\"");
        }
        model.frames = value.choice(&places).unwrap_or(model.frames);
    }
    if let Some(value) = table.get("tile_difference")
        && let Some(difference) = value.number()
    {
        match (difference > 0.0, model.frames) {
            (true, FramePlace::Host) => value.warning(INEXACT),
            (true, FramePlace::Gpu) => value.warning(NOT_COMPARED),
            (false, _) => {}
        }
        model.tile_difference = difference;
    }
    table.finish();
    model
}

/// What is said at each start about tiles that are only similar.
const INEXACT: &str =
    "a tile that changed by less is not encoded again, which can change answers; 0 is exact";

/// What is said about similar tiles of frames that nobody compares.
const NOT_COMPARED: &str = "has no effect with model.frames = \"gpu\", which encodes every tile";

/// `user` and `password` of a table; a password without a user is an error.
pub(super) fn login(
    scope: &Scope<'_>,
    table: &mut Reader<'_>,
) -> (Option<String>, Option<super::Secret>) {
    let user = table.get("user");
    let password = table.get("password");
    if let (None, Some(password)) = (&user, &password) {
        password.error("requires \"user\"");
    }
    (
        user.and_then(|value| value.parsed(not_empty)),
        password.and_then(|value| secret(scope, &value, SecretKind::Password)),
    )
}

/// The TLS settings, with the first key that asks for TLS; `None` when there is no such key.
fn mqtt_tls(scope: &Scope<'_>, table: &mut Reader<'_>) -> Option<(&'static str, MqttTls)> {
    let keys = ["ca", "client_cert", "client_key", "tls"];
    let values = keys.map(|key| table.get(key));
    let first = keys
        .into_iter()
        .zip(&values)
        .find(|(_, value)| value.is_some());
    let (first, _) = first?;
    let [ca, cert, key, tls] = &values;
    match (cert, key) {
        (Some(cert), None) => cert.error("requires \"client_key\""),
        (None, Some(key)) => key.error("requires \"client_cert\""),
        _ => {}
    }
    let settings = MqttTls {
        ca: ca.as_ref().and_then(|value| file(scope, value)),
        client_cert: cert.as_ref().and_then(|value| file(scope, value)),
        client_key: key
            .as_ref()
            .and_then(|value| secret(scope, value, SecretKind::Key)),
        insecure: tls.as_ref().is_some_and(insecure),
    };
    Some((first, settings))
}

/// `{ insecure = true }` and nothing else.
fn insecure(value: &ConfigValue<'_>) -> bool {
    let Some(mut table) = value.table() else {
        return false;
    };
    let on = table.get("insecure").and_then(|value| value.flag()) == Some(true);
    table.finish();
    if on {
        value.warning(INSECURE);
    }
    on
}

/// What is said at each start about a certificate that is not checked.
pub(super) const INSECURE: &str =
    "the certificate is not checked; an attacker on the network can read and change everything";

fn spool(table: Option<Reader<'_>>) -> SpoolConfig {
    let mut spool = SpoolConfig {
        events: d::SPOOL_EVENTS as usize,
        max_age: d::SPOOL_MAX_AGE,
        max_mb: d::SPOOL_MAX_MB,
    };
    let Some(mut table) = table else {
        return spool;
    };
    if let Some(events) = table.get("events").and_then(|v| v.whole()) {
        spool.events = events as usize;
    }
    if let Some(max_age) = table.get("max_age").and_then(|v| v.duration()) {
        spool.max_age = max_age;
    }
    if let Some(max_mb) = table.get("max_mb").and_then(|v| v.whole()) {
        spool.max_mb = max_mb;
    }
    table.finish();
    spool
}

fn home_assistant(table: Option<Reader<'_>>) -> HomeAssistantConfig {
    let mut ha = HomeAssistantConfig {
        discovery: Discovery::Device,
        prefix: d::HA_PREFIX.to_owned(),
    };
    let Some(mut table) = table else {
        return ha;
    };
    let kinds = [
        ("device", Discovery::Device),
        ("single", Discovery::Single),
        ("off", Discovery::Off),
    ];
    if let Some(discovery) = table
        .get("discovery")
        .and_then(|value| value.choice(&kinds))
    {
        ha.discovery = discovery;
    }
    if let Some(prefix) = table
        .get("prefix")
        .and_then(|value| value.parsed(parse::topic_level))
    {
        ha.prefix = prefix;
    }
    table.finish();
    ha
}

/// A file that must be on the machine that runs.
fn file(scope: &Scope<'_>, value: &ConfigValue<'_>) -> Option<PathBuf> {
    let path = scope.path(&value.parsed(not_empty)?);
    if !path.is_file() {
        scope.absent(value, format!("file not found: {}", path.display()));
    }
    Some(path)
}

fn gpus(value: &ConfigValue<'_>) -> Option<Vec<u32>> {
    let mut gpus = Vec::new();
    for element in value.list()? {
        let gpu = element.whole_in(d::GPU_RANGE)? as u32;
        if gpus.contains(&gpu) {
            element.error(format!(
                "GPU {gpu} is listed twice; each GPU runs one engine"
            ));
        }
        gpus.push(gpu);
    }
    if gpus.is_empty() {
        value.error("empty; name at least one GPU, as in [0], or write device = \"cpu\"");
    }
    Some(gpus)
}

fn socket(text: &str) -> Result<Option<SocketAddr>, String> {
    if text == "off" {
        return Ok(None);
    }
    let wrong =
        |_| format!("{text:?} is not an address with a port; write \"127.0.0.1:9464\" or \"off\"");
    text.parse().map(Some).map_err(wrong)
}

fn not_empty(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("empty".to_owned());
    }
    Ok(text.to_owned())
}
