//! `[mqtt]`: the broker, and what is published there.

use std::{path::PathBuf, time::Duration};

use crate::{
    forms::{
        address::{broker, is_loopback},
        prelude::*,
        text::topic,
    },
    read::prelude::*,
};

/// The first level of all topics when `mqtt.base` is not set.
pub const DEFAULT_BASE: &str = "spotter";

/// The broker, and what is published there.
#[derive(Clone, Debug, PartialEq)]
pub struct MqttConfig {
    pub broker: BrokerAccess,
    /// First level of all topics; default `spotter`.
    pub base: String,
    /// Which commands are obeyed; default basic.
    pub commands: Commands,
    /// Besides topics below `base`, replies go to these topics and those below them.
    pub reply_topics: Vec<String>,
    /// Whether run-time changes survive a restart; default keep.
    pub overrides: OverridePersistence,
    /// The broker keeps the last picture of each prompt's events for later subscribers; default false.
    pub retain_snapshots: bool,
    /// What is kept while the broker is away.
    pub spool: SpoolConfig,
    pub ha: HomeAssistantConfig,
}

/// How a client reaches a broker and logs in.
#[derive(Clone, Debug, PartialEq)]
pub struct BrokerAccess {
    pub host: String,
    /// Port; 1883, with TLS 8883.
    pub port: u16,
    /// `None` = plain TCP.
    pub tls: Option<MqttTls>,
    pub user: Option<String>,
    pub password: Option<Secret>,
    pub version: MqttVersion,
    /// 0 or 1. With 0 nothing is acknowledged.
    pub max_qos: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MqttVersion {
    /// 5, or 3.1.1 where the broker does not accept 5.
    Auto,
    V5,
    V311,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct MqttTls {
    /// PEM file of the authority; `None` = the machine's own list.
    pub ca: Option<PathBuf>,
    /// PEM file with our certificate, for mutual TLS.
    pub client_cert: Option<PathBuf>,
    /// PEM text of our key.
    pub client_key: Option<Secret>,
    /// The certificate is not checked. Warned at each start.
    pub insecure: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commands {
    Off,
    /// Only commands on the `/set` topics.
    Basic,
    /// Commands on the `/set` topics and on `cmd`.
    All,
}

/// Whether run-time changes survive a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverridePersistence {
    Keep,
    Forget,
}

/// Bounds of what is kept for the broker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpoolConfig {
    pub events: usize,
    pub max_age: Duration,
    /// Limit of the files on disk, in megabytes.
    pub max_mb: u64,
}

/// How Home Assistant learns of us.
#[derive(Clone, Debug, PartialEq)]
pub struct HomeAssistantConfig {
    /// Which kind of discovery message.
    pub discovery: Discovery,
    /// Its first topic level; default `homeassistant`.
    pub prefix: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// One message a device (Home Assistant 2024.11 and later).
    Device,
    Off,
}

/// Reads `[mqtt]`; `None` without a broker.
pub(crate) fn mqtt(scope: &Scope<'_>, mut table: Reader<'_>) -> Option<MqttConfig> {
    keys! { table in "`[mqtt]`", "The MQTT broker. This table is required.",
            "[mqtt]\nurl = \"mqtts://broker.example.net\"\nuser = \"edge1\"\npassword = { cred = \"mqtt_password\" }";
        /// The broker. `mqtts` uses TLS. Without a port, `mqtt` uses 1883 and `mqtts` 8883. The URL has no user name and no password.
        url = text("`mqtt://HOST` or `mqtts://HOST`, with an optional `:PORT`", broker).required("no broker; add url = \"mqtt://HOST\""), r#"url = "mqtts://broker.example.net""#;
        /// User name for the broker.
        user = text("text", not_empty).optional("no login"), r#"user = "edge1""#;
        /// Password for the broker; requires `user`. See [Secrets](#secrets).
        password = password(scope).optional("none"), r#"password = { cred = "mqtt_password" }"#;
        /// First level of all topics.
        base = level().or(DEFAULT_BASE.to_owned()), r#"base = "spotter""#;
        /// Certificate authority that signed the broker's certificate. Only with `mqtts`.
        ca = file(scope, "path of a PEM file").optional(AUTHORITIES), r#"ca = "/etc/site/ca.pem""#;
        /// Certificate of this client, for mutual TLS; requires `client_key`.
        client_cert = file(scope, "path of a PEM file").optional("none"), r#"client_cert = "/etc/site/edge1.pem""#;
        /// Private key in PEM format that belongs to `client_cert`.
        client_key = private_key(scope).optional("none"), r#"client_key = { cred_file = "mqtt_key" }"#;
        /// How the broker's certificate is checked. Only with `mqtts`.
        tls = optional_table("table with `insecure`", "the certificate is checked"), "tls = { insecure = true }";
        /// Version of MQTT. `auto` tries 5 first, at each connection, and 3.1.1 where the broker rejects 5 or does not answer.
        version = words(&[("auto", MqttVersion::Auto), ("5", MqttVersion::V5), ("3.1.1", MqttVersion::V311)]).or(MqttVersion::Auto), r#"version = "3.1.1""#;
        /// Highest quality of service. 0 is for brokers that accept no other: then no message is acknowledged, and what a broken connection loses is lost.
        max_qos = whole(0..=1, "").or(1), "max_qos = 0";
        /// Commands accepted over MQTT: none; the `/set` topics; or also the topic `cmd` (snapshot, look, ask, reload and others).
        commands = words(&[("off", Commands::Off), ("basic", Commands::Basic), ("all", Commands::All)]).or(Commands::Basic), r#"commands = "all""#;
        /// A command's response topic (MQTT 5) may be one of these topics or below one of them. Topics below `base` that are not Spotter's own are always allowed. The reply to a command with any other response topic goes to the topic `reply`.
        reply_topics = list(text("topics, without wildcards", topic)).or_as("none", Vec::new()), r#"reply_topics = ["desk/answers"]"#;
        /// Whether values that were changed over MQTT or by the page survive a restart.
        overrides = words(&[("keep", OverridePersistence::Keep), ("forget", OverridePersistence::Forget)]).or(OverridePersistence::Keep), r#"overrides = "forget""#;
        /// Publishes snapshots of events as retained messages, so that a client that subscribes later receives the last one.
        retain_snapshots = flag().or(false), "retain_snapshots = true";
        /// Limits of the events kept on disk while the broker cannot be reached.
        spool = sub_table("see `spool`"), r#"spool = { max_age = "24h" }"#;
        /// Home Assistant discovery.
        ha = sub_table("see `ha`"), r#"ha = { discovery = "off" }"#;
    }
    let tls = MqttTls {
        ca,
        client_cert,
        client_key,
        insecure: tls.is_some_and(insecure),
    };
    let spool = self::spool(spool);
    let ha = home_assistant(ha);
    table.requires("password", "user");
    table.requires("client_cert", "client_key");
    table.requires("client_key", "client_cert");
    if let (Some(broker), Some(value)) = (&url, table.given("url"))
        && !broker.secure
    {
        let of_tls = ["ca", "client_cert", "client_key", "tls"];
        if let Some(key) = of_tls.into_iter().find(|key| table.given(key).is_some()) {
            value.error(format!(
                "mqtt:// together with {key}; did you mean mqtts://?"
            ));
        }
        if table.given("password").is_some() && !is_loopback(&broker.host) {
            value.warning(CLEAR_TEXT);
        }
    }
    table.finish();
    let broker = url?;
    Some(MqttConfig {
        broker: BrokerAccess {
            tls: broker.secure.then_some(tls),
            host: broker.host,
            port: broker.port,
            user,
            password,
            version,
            max_qos,
        },
        base,
        commands,
        reply_topics,
        overrides,
        retain_snapshots,
        spool,
        ha,
    })
}

fn insecure(mut table: Reader<'_>) -> bool {
    keys! { table in "`tls` in `[mqtt]`", "Checks of the broker's certificate.", "tls = { insecure = true }";
        /// Accepts any certificate, with a warning at each start. An attacker on the network can then read and change every message.
        insecure = flag().or(false), "tls = { insecure = true }";
    }
    if insecure {
        table.warning(INSECURE);
    }
    table.finish();
    insecure
}

fn spool(mut table: Reader<'_>) -> SpoolConfig {
    keys! { table in "`spool` in `[mqtt]`", "Events on disk while the broker cannot be reached. When a limit is reached, the oldest events are dropped and counted.",
            "spool = { events = 5000, max_age = \"24h\", max_mb = 20 }";
        /// The most events kept.
        events = whole(0..=1_000_000, "events").or(5000), "spool = { events = 5000 }";
        /// Older events are dropped.
        max_age = time(Duration::from_secs(1)..=Duration::from_hours(24 * 30)).or(Duration::from_hours(24)), r#"spool = { max_age = "24h" }"#;
        /// The most space on disk.
        max_mb = whole(1..=10_000, "megabytes").or(20), "spool = { max_mb = 20 }";
    }
    table.finish();
    SpoolConfig {
        events,
        max_age,
        max_mb,
    }
}

/// The word of an earlier version is accepted for one release.
fn discovery() -> Form<'static, Discovery> {
    let words = words(&[("device", Discovery::Device), ("off", Discovery::Off)]);
    Form::new(words.text.clone(), move |value| {
        if value.as_text() != Some("single") {
            return words.read(value);
        }
        value.warning("\"single\" was removed and will be an error; write discovery = \"device\", for Home Assistant 2024.11 and later");
        Some(Discovery::Device)
    })
}

fn home_assistant(mut table: Reader<'_>) -> HomeAssistantConfig {
    keys! { table in "`ha` in `[mqtt]`", "Home Assistant discovery.", "ha = { discovery = \"device\", prefix = \"homeassistant\" }";
        /// One discovery message per device (Home Assistant 2024.11 and later), or none.
        discovery = discovery().or_as("`\"device\"`", Discovery::Device), r#"ha = { discovery = "off" }"#;
        /// First topic level of discovery messages, as configured in Home Assistant.
        prefix = level().or("homeassistant".to_owned()), r#"ha = { prefix = "homeassistant" }"#;
    }
    table.finish();
    HomeAssistantConfig { discovery, prefix }
}
