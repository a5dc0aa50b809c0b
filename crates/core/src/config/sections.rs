//! The tables that there is one of: `[node]`, `[http]`, `[mqtt]`, `[model]`.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use super::{
    BrokerAccess, DEFAULT_BASE, DevicePreference, FramePlace, HomeAssistantConfig, HttpConfig,
    ModelSettings, ModelSource, MqttConfig, MqttTls, NodeConfig, ReuseMode, SpoolConfig, adapter,
    address, defaults as d,
    keys::{self, CustomForm, Key},
    load::Scope,
    parse,
    reader::{ConfigValue, Reader},
    secret::{SecretKind, secret},
};
use crate::NodeId;

/// Reads `[node]`: name and state_dir.
pub(super) fn node(scope: &Scope<'_>, mut table: Reader<'_>) -> NodeConfig {
    let environment = scope.environment;
    let id = |text: &str| NodeId::new(text).map_err(|error| error.to_string());
    let name = table.parsed(&keys::node::NAME, id);
    let state_dir = table.parsed(&keys::node::STATE_DIR, not_empty);
    table.finish();
    NodeConfig {
        name: name.unwrap_or_else(|| NodeId::from_host_name(environment.host_name())),
        state_dir: match state_dir.as_deref() {
            None | Some("auto") => environment.state_dir(),
            Some(dir) => scope.path(dir),
        },
    }
}

/// `[http]`: listen, an address with a port or `off`; names.
pub(super) fn http(mut table: Reader<'_>) -> HttpConfig {
    let listen = table.parsed(&keys::http::LISTEN, socket);
    let names = table.get(&keys::http::NAMES);
    let names = names.and_then(|value| value.list()).unwrap_or_default();
    table.finish();
    let default = SocketAddr::from((Ipv4Addr::LOCALHOST, 9464));
    HttpConfig {
        listen: listen.unwrap_or(Some(default)),
        names: names
            .iter()
            .filter_map(|name| name.parsed(host_name))
            .collect(),
    }
}

/// A name as browsers send it, without scheme and port.
fn host_name(text: &str) -> Result<String, String> {
    let is_label = |label: &str| {
        let of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !label.is_empty() && label.len() <= 63 && label.bytes().all(of_name)
    };
    match text.split('.').all(is_label) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "{text:?} is not a host name; write \"spotter.example.net\", without http:// and port"
        )),
    }
}

/// `[mqtt]`, the one table that must be there beside a camera.
pub(super) fn mqtt(scope: &Scope<'_>, root: &mut Reader<'_>) -> Option<MqttConfig> {
    let Some(value) = root.get(&keys::root::MQTT) else {
        root.missing(
            &["mqtt"],
            "no broker; add [mqtt] with url = \"mqtt://HOST\"",
        );
        return None;
    };
    let mut table = value.table()?;
    let url = table.get(&keys::mqtt::URL);
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
    let base = table.parsed(&keys::mqtt::BASE, parse::topic_level);
    let (user, password) = login(scope, &mut table, &keys::mqtt::USER, &keys::mqtt::PASSWORD);
    if let (Some(url), Some(broker)) = (&url, &broker)
        && table.get(&keys::mqtt::PASSWORD).is_some()
        && !broker.secure
        && !address::is_loopback(&broker.host)
    {
        url.warning(CLEAR_TEXT);
    }
    let version = table.read_or_default(&keys::mqtt::VERSION);
    let max_qos = table.read_or_default(&keys::mqtt::MAX_QOS);
    let commands = table.read_or_default(&keys::mqtt::COMMANDS);
    let reply_topics = table.get(&keys::mqtt::REPLY_TOPICS);
    let reply_topics = reply_topics.and_then(|value| value.list());
    let reply_topics = reply_topics.unwrap_or_default();
    let reply_topics = reply_topics.iter();
    let reply_topics = reply_topics.filter_map(|value| value.parsed(parse::topic));
    let overrides = table.read_or_default(&keys::mqtt::OVERRIDES);
    let retain_snapshots = table.read_or_default(&keys::mqtt::RETAIN_SNAPSHOTS);
    let spool = spool(table.table(&keys::mqtt::SPOOL));
    let ha = home_assistant(table.table(&keys::mqtt::HA));
    table.finish();

    let broker = broker?;
    Some(MqttConfig {
        broker: BrokerAccess {
            tls: broker
                .secure
                .then(|| tls.map(|(_, tls)| tls).unwrap_or_default()),
            host: broker.host,
            port: broker.port,
            user,
            password,
            version,
            max_qos: max_qos as u8,
        },
        base: base.unwrap_or_else(|| DEFAULT_BASE.to_owned()),
        commands,
        reply_topics: reply_topics.collect(),
        overrides,
        retain_snapshots,
        spool,
        ha,
    })
}

/// `[model]`: path, device, gpus, precision, memory, budget, max_objects, frames, reuse, reuse_max_age.
pub(super) fn model(scope: &Scope<'_>, root: &mut Reader<'_>) -> ModelSettings {
    let mut table = root.table(&keys::root::MODEL);
    let mut model = match table.get(&keys::model::PATH) {
        Some(value) => ModelSettings::of(model_source(scope, &value)),
        None => ModelSettings::of_default(scope.environment),
    };
    model.device = table.read_or_default(&keys::model::DEVICE);
    if let Some(value) = table.get(&keys::model::GPUS) {
        if model.device == DevicePreference::Cpu {
            value.warning("has no effect with device = \"cpu\"");
        }
        model.gpus = gpus(&value).unwrap_or(model.gpus);
    }
    model.precision = table.read_or_default(&keys::model::PRECISION);
    if let Some(value) = table.get(&keys::model::MEMORY) {
        if model.device == DevicePreference::Cpu {
            value.warning("has no effect with device = \"cpu\"");
        }
        model.memory = memory(&value);
    }
    let budget = table.get(&keys::model::BUDGET);
    let budget = budget.and_then(|value| value.duration(d::BUDGET_RANGE));
    model.budget = budget.unwrap_or(model.budget);
    model.max_objects = table.read_or_default(&keys::model::MAX_OBJECTS) as u32;
    if let Some(value) = table.get(&keys::model::FRAMES)
        && model.device == DevicePreference::Cpu
    {
        value.warning("has no effect with device = \"cpu\"");
    }
    model.frames = table.read_or_default(&keys::model::FRAMES);
    model.reuse = table.read_or_default(&keys::model::REUSE);
    if let Some(value) = table.get(&keys::model::REUSE)
        && model.frames == FramePlace::Gpu
        && model.reuse != ReuseMode::Off
    {
        value.warning(NOT_COMPARED);
    }
    model.reuse_max_age = table.read_or_default(&keys::model::REUSE_MAX_AGE);
    if let Some(value) = table.get(&keys::model::REUSE_MAX_AGE)
        && model.reuse == ReuseMode::Off
    {
        value.warning("has no effect with reuse = \"off\"");
    }
    table.removed("tile_difference", TILE_DIFFERENCE_REMOVED);
    let most = table.read_or_default(&keys::model::ADAPTERS) as usize;
    table.finish();
    model.adapters = adapter::adapters(scope, root, most);
    model
}

fn memory(value: &ConfigValue<'_>) -> Option<u64> {
    value.parsed(parse::memory_size)
}

/// The model that `model.path` names.
fn model_source(scope: &Scope<'_>, value: &ConfigValue<'_>) -> ModelSource {
    let text = value.parsed(not_empty);
    let Some(text) = text.filter(|text| text != "embedded") else {
        return ModelSource::Embedded;
    };
    let dir = scope.path(&text);
    if !dir.is_dir() {
        let remedy = "`spotter model get` fetches a model";
        scope.absent(
            value,
            format!("directory not found: {}; {remedy}", dir.display()),
        );
    }
    ModelSource::Directory(dir)
}

/// The warning about frames that are not compared.
const NOT_COMPARED: &str = "has no effect with model.frames = \"gpu\", which encodes every tile";

const TILE_DIFFERENCE_REMOVED: &str = "removed; write reuse = \"auto\" (the default), or reuse = \"exact\" for what tile_difference = 0 did";

/// `user` and `password` of a table; a password without a user is an error.
pub(super) fn login(
    scope: &Scope<'_>,
    table: &mut Reader<'_>,
    user: &'static Key<CustomForm>,
    password: &'static Key<CustomForm>,
) -> (Option<String>, Option<super::Secret>) {
    let user = table.get(user);
    let password = table.get(password);
    if let (None, Some(password)) = (&user, &password) {
        password.error("requires \"user\"");
    }
    (
        user.and_then(|value| value.parsed(not_empty)),
        password.and_then(|value| secret(scope, &value, SecretKind::Password)),
    )
}

/// The TLS settings, with the first key that requires TLS; `None` when there is no such key.
fn mqtt_tls(scope: &Scope<'_>, table: &mut Reader<'_>) -> Option<(&'static str, MqttTls)> {
    let keys = [
        &keys::mqtt::CA,
        &keys::mqtt::CLIENT_CERT,
        &keys::mqtt::CLIENT_KEY,
        &keys::mqtt::TLS,
    ];
    let values = keys.map(|key| table.get(key));
    let first = keys
        .into_iter()
        .zip(&values)
        .find(|(_, value)| value.is_some());
    let first = first?.0.name;
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
    let on = table.read_or_default(&keys::mqtt_tls::INSECURE);
    table.finish();
    if on {
        value.warning(INSECURE);
    }
    on
}

/// The warning at each start about a password without TLS.
pub(super) const CLEAR_TEXT: &str = "not encrypted: everyone on the network between can read the password; use mqtts:// (MQTT) or tls:// (NATS)";

/// The warning at each start about a certificate that is not checked.
pub(super) const INSECURE: &str =
    "the certificate is not checked; an attacker on the network can read and change everything";

fn spool(mut table: Reader<'_>) -> SpoolConfig {
    let spool = SpoolConfig {
        events: table.read_or_default(&keys::spool::EVENTS) as usize,
        max_age: table.read_or_default(&keys::spool::MAX_AGE),
        max_mb: table.read_or_default(&keys::spool::MAX_MB),
    };
    table.finish();
    spool
}

fn home_assistant(mut table: Reader<'_>) -> HomeAssistantConfig {
    let discovery = table.read_or_default(&keys::home_assistant::DISCOVERY);
    let prefix = table.parsed(&keys::home_assistant::PREFIX, parse::topic_level);
    table.finish();
    HomeAssistantConfig {
        discovery,
        prefix: prefix.unwrap_or_else(|| "homeassistant".to_owned()),
    }
}

/// A file that must be on the machine that runs.
pub(super) fn file(scope: &Scope<'_>, value: &ConfigValue<'_>) -> Option<PathBuf> {
    let path = scope.path(&value.parsed(not_empty)?);
    if !path.is_file() {
        scope.absent(value, format!("file not found: {}", path.display()));
    }
    Some(path)
}

fn gpus(value: &ConfigValue<'_>) -> Option<Vec<u32>> {
    let mut gpus = Vec::new();
    for element in value.list()? {
        let gpu = element.whole(d::GPU_RANGE)? as u32;
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
