//! Every key of the configuration file, declared once: name, form, default, example and explanation. A [`Key`] can only be made by
//! the macro below, which also lists it in its section, and a reader gets values by [`Key`] alone. So no key exists without its
//! documentation, and [`super::reference()`] shows the same ranges and defaults that the parser uses.

use std::{ops::RangeInclusive, time::Duration};

use super::{
    Commands, Decode, DevicePreference, Discovery, FramePlace, GpuPrecision, MqttVersion,
    OverridePersistence, PrecisionSetting, ReuseMode, Transport, ZonePoint, defaults as d, parse,
    reader::ConfigValue, source::URL_FORMS,
};

use crate::{LookRate, Share};

/// How a key's value is written and read, and its default.
pub(super) trait KeyForm {
    type Output;

    /// The value, or `None` after noting what is wrong.
    fn read(&self, value: &ConfigValue<'_>) -> Option<Self::Output>;

    /// What the parser uses when the file does not have the key.
    fn default(&self) -> Self::Output;

    /// The form with its range and unit, and the default as the file writes it, for the reference.
    fn describe(&self) -> (String, String);
}

/// A number in a range.
pub(super) struct NumberForm {
    range: RangeInclusive<f64>,
    unit: &'static str,
    default: f64,
}

impl KeyForm for NumberForm {
    type Output = f64;

    fn read(&self, value: &ConfigValue<'_>) -> Option<f64> {
        value.number(self.range.clone())
    }

    fn default(&self) -> f64 {
        self.default
    }

    fn describe(&self) -> (String, String) {
        let (low, high) = (self.range.start(), self.range.end());
        let form = format!("number, {low} to {high}{}", unit(self.unit));
        (form, format!("`{}`", self.default))
    }
}

/// A number whose range is that of a type.
pub(super) struct CheckedForm<T> {
    number: NumberForm,
    checked: fn(f64) -> T,
}

impl<T> KeyForm for CheckedForm<T> {
    type Output = T;

    fn read(&self, value: &ConfigValue<'_>) -> Option<T> {
        self.number.read(value).map(self.checked)
    }

    fn default(&self) -> T {
        (self.checked)(self.number.default)
    }

    fn describe(&self) -> (String, String) {
        self.number.describe()
    }
}

/// A whole number in a range.
pub(super) struct WholeForm {
    range: RangeInclusive<u64>,
    unit: &'static str,
    default: u64,
}

impl KeyForm for WholeForm {
    type Output = u64;

    fn read(&self, value: &ConfigValue<'_>) -> Option<u64> {
        value.whole(self.range.clone())
    }

    fn default(&self) -> u64 {
        self.default
    }

    fn describe(&self) -> (String, String) {
        let (low, high) = (self.range.start(), self.range.end());
        let form = format!("whole number, {low} to {high}{}", unit(self.unit));
        (form, format!("`{}`", self.default))
    }
}

fn unit(unit: &str) -> String {
    match unit {
        "" => String::new(),
        unit => format!(" ({unit})"),
    }
}

/// A time with its unit, in a range, with its default.
pub(super) struct TimeForm(RangeInclusive<Duration>, Duration);

impl KeyForm for TimeForm {
    type Output = Duration;

    fn read(&self, value: &ConfigValue<'_>) -> Option<Duration> {
        value.duration(self.0.clone())
    }

    fn default(&self) -> Duration {
        self.1
    }

    fn describe(&self) -> (String, String) {
        let times = [*self.0.start(), *self.0.end(), self.1];
        let [low, high, default] = times.map(parse::duration_text);
        let form = format!("time with unit, {low} to {high}");
        (form, format!("`\"{default}\"`"))
    }
}

/// A key with the value `true` or, by default, `false`.
pub(super) struct FlagForm;

impl KeyForm for FlagForm {
    type Output = bool;

    fn read(&self, value: &ConfigValue<'_>) -> Option<bool> {
        value.flag()
    }

    fn default(&self) -> bool {
        false
    }

    fn describe(&self) -> (String, String) {
        ("true or false".to_owned(), "`false`".to_owned())
    }
}

/// One of a few words, with the default.
pub(super) struct WordForm<T: 'static>(&'static [(&'static str, T)], T);

impl<T: Copy + PartialEq> KeyForm for WordForm<T> {
    type Output = T;

    fn read(&self, value: &ConfigValue<'_>) -> Option<T> {
        value.choice(self.0)
    }

    fn default(&self) -> T {
        self.1
    }

    fn describe(&self) -> (String, String) {
        let words = self.0.iter().map(|(word, _)| format!("`\"{word}\"`"));
        let words: Vec<_> = words.collect();
        let default = self.0.iter().position(|(_, value)| *value == self.1);
        (words.join(", "), words[default.unwrap_or(0)].clone())
    }
}

/// A word that earlier versions had.
pub(super) struct RemovedWord<T: 'static> {
    word: &'static str,
    /// What it means in this release.
    value: T,
    /// What to write instead.
    replacement: &'static str,
}

/// Words of which some were removed: for one release, the file is accepted with a warning.
pub(super) struct RetiringForm<T: 'static>(WordForm<T>, &'static [RemovedWord<T>]);

impl<T: Copy + PartialEq> KeyForm for RetiringForm<T> {
    type Output = T;

    fn read(&self, value: &ConfigValue<'_>) -> Option<T> {
        let removed = self.1.iter().find(|removed| value.is_word(removed.word));
        let Some(removed) = removed else {
            return self.0.read(value);
        };
        let RemovedWord {
            word, replacement, ..
        } = removed;
        value.warning(format!(
            "{word:?} was removed and will be an error; {replacement}"
        ));
        Some(removed.value)
    }

    fn default(&self) -> T {
        self.0.default()
    }

    fn describe(&self) -> (String, String) {
        self.0.describe()
    }
}

/// A text, list or table whose parts the section's own code reads and checks; with the default or, if that is not a value, a
/// rule in words.
pub(super) struct CustomForm(&'static str, &'static str);

/// One key of one section. Made by `sections!` alone.
pub(super) struct Key<F> {
    pub(super) name: &'static str,
    pub(super) form: F,
    example: &'static str,
    doc: &'static str,
}

/// What the reference shows of a key.
pub(super) struct KeyReference {
    pub(super) name: &'static str,
    pub(super) form: String,
    pub(super) default: String,
    pub(super) example: &'static str,
    pub(super) doc: &'static str,
}

trait DocumentedKey: Sync {
    fn reference(&self) -> KeyReference;
}

impl<F: KeyForm + Sync> DocumentedKey for Key<F> {
    fn reference(&self) -> KeyReference {
        key_reference(self, self.form.describe())
    }
}

impl DocumentedKey for Key<CustomForm> {
    fn reference(&self) -> KeyReference {
        let CustomForm(form, default) = self.form;
        key_reference(self, (form.to_owned(), default.to_owned()))
    }
}

fn key_reference<F>(key: &Key<F>, described: (String, String)) -> KeyReference {
    let (form, default) = described;
    KeyReference {
        name: key.name,
        form,
        default,
        example: key.example,
        doc: key.doc,
    }
}

/// One table of the file.
pub(super) struct SectionReference {
    pub(super) title: &'static str,
    pub(super) doc: &'static str,
    pub(super) example: &'static str,
    keys: &'static [&'static dyn DocumentedKey],
}

impl SectionReference {
    pub(super) fn keys(&self) -> impl Iterator<Item = KeyReference> {
        self.keys.iter().map(|key| key.reference())
    }
}

macro_rules! sections {
    ($($module:ident $title:literal $doc:literal $section_example:literal {
        $($key:ident: $form:ty = $name:literal, $value:expr, $example:literal, $key_doc:literal;)*
    })*) => {
        $(pub(super) mod $module {
            use super::*;
            $(pub(in super::super) static $key: Key<$form> = Key {
                name: $name, form: $value, example: $example, doc: $key_doc,
            };)*
            pub(super) static SECTION: SectionReference = SectionReference {
                title: $title, doc: $doc, example: $section_example, keys: &[$(&$key),*],
            };
        })*

        /// All sections in the order of the reference.
        pub(super) static SECTIONS: &[&SectionReference] = &[$(&$module::SECTION),*];
    };
}

sections! {
    root "The top of the file" "Keys above the first table." "schema = 1" {
        SCHEMA: CustomForm = "schema", CustomForm("`1`", "`1`"), "schema = 1",
            "Version of the file format. This version of Spotter reads schema 1 only.";
        ALLOW_PLAIN_SECRETS: FlagForm = "allow_plain_secrets", FlagForm, "allow_plain_secrets = true",
            "Accepts passwords and keys as plain text in this file, with a warning at each start.";
        NODE: CustomForm = "node", CustomForm("table", "see `[node]`"), "[node]", "This machine.";
        HTTP: CustomForm = "http", CustomForm("table", "see `[http]`"), "[http]", "Status page, metrics and health.";
        API: CustomForm = "api", CustomForm("table", "off"), "[api]", "HTTP API for pictures of other programs.";
        MQTT: CustomForm = "mqtt", CustomForm("table", "required"), "[mqtt]", "The broker.";
        MODEL: CustomForm = "model", CustomForm("table", "see `[model]`"), "[model]", "The model and its device.";
        ADAPTER: CustomForm = "adapter", CustomForm("one table per adapter", "none"), "[adapter.plates]",
            "Adapters of the model, which requests of the API name. Names as those of cameras.";
        FLEET: CustomForm = "fleet", CustomForm("table", "see `[fleet]`"), "[fleet]", "Boxes that share cameras; then the file has no cameras.";
        DEFAULTS: CustomForm = "defaults", CustomForm("table", "see `[defaults]`"), "[defaults]",
            "Settings of all cameras that do not have their own.";
        WEBHOOK: CustomForm = "webhook", CustomForm("one table per webhook", "none"), "[webhook.door]",
            "Receivers of events over HTTP. The name in the header is the webhook's id: 1 to 32 characters of a-z 0-9 _ -.";
        CAMERA: CustomForm = "camera", CustomForm("one table per camera", "required"), "[camera.gate]",
            "The cameras. The name in the header is the camera's id in MQTT topics: 1 to 32 characters of a-z 0-9 _ -.";
        MODE: CustomForm = "mode", CustomForm("one table per mode", "none"), "[mode.night]",
            "Named sets of values for cameras and prompts, of which one or none is active. Names as those of cameras.";
    }
    node "`[node]`" "This machine." "[node]\nname = \"edge1\"" {
        NAME: CustomForm = "name", CustomForm("text of a-z 0-9 _ -, at most 32 characters", "the host name"), "name = \"edge1\"",
            "Name of this machine. It is one level of all MQTT topics.";
        STATE_DIR: CustomForm = "state_dir", CustomForm("path, or `\"auto\"`", "`\"auto\"`"), "state_dir = \"/var/lib/spotter\"",
            "Directory for state that survives a restart. `auto` uses systemd's `STATE_DIRECTORY`, then `$XDG_STATE_HOME/spotter`, then `~/.local/state/spotter`, then `/var/lib/spotter`.";
    }
    http "`[http]`" "Status page, metrics and health checks." "[http]\nlisten = \"0.0.0.0:9464\"" {
        LISTEN: CustomForm = "listen", CustomForm("`\"ADDRESS:PORT\"`, or `\"off\"`", "`\"127.0.0.1:9464\"`"),
            "listen = \"0.0.0.0:9464\"",
            "Address and port of the HTTP server. The default accepts connections from this machine only.";
        NAMES: CustomForm = "names", CustomForm("list of host names, without port", "none"), "names = [\"spotter.example.net\"]",
            "Host names under which browsers and proxies call the page and an API without tokens. Addresses, `localhost` and the name of this machine, also with `.local`, are always answered; another name gets 421, so that no foreign web page reads the answers (DNS rebinding).";
    }
    api "`[api]`" "An HTTP API for programs that ask about pictures of their own: see [api.md](api.md). Without this table it is off. The cameras go first."
        "[api]\nlisten = \"0.0.0.0:2020\"\ntokens = [{ cred = \"api_token\" }]" {
        LISTEN: CustomForm = "listen", CustomForm("`\"ADDRESS:PORT\"`", "`\"127.0.0.1:2020\"`"), "listen = \"0.0.0.0:2020\"",
            "Address and port of the API. The default accepts connections from this machine only; any other address requires `tokens`.";
        TOKENS: CustomForm = "tokens", CustomForm("list of secrets, each at least 16 characters", "none"), "tokens = [{ cred = \"api_token\" }]",
            "A request must send one of these tokens, as `Authorization: Bearer …`. `openssl rand -hex 32` makes one. See [Secrets](#secrets).";
        RATE: NumberForm = "rate", NumberForm { range: 0.1..=1000.0, unit: "requests per second", default: 10.0 }, "rate = 2",
            "The most requests of each token; without tokens, of each client's address.";
        MAX_BODY_MB: WholeForm = "max_body_mb", WholeForm { range: 1..=100, unit: "megabytes", default: 10 }, "max_body_mb = 20",
            "The longest body of a request. A picture in base64 takes four thirds of its file.";
        REQUESTS: WholeForm = "requests", WholeForm { range: 1..=64, unit: "requests", default: 8 }, "requests = 16",
            "The most requests at the same time, those that wait included; each may have a picture in memory.";
        WAIT: TimeForm = "wait", TimeForm(Duration::from_millis(100)..=Duration::from_mins(1), Duration::from_secs(2)), "wait = \"5s\"",
            "A request that no engine has begun after this time, because the cameras need it, is refused.";
    }
    mqtt "`[mqtt]`" "The MQTT broker. This table is required." "[mqtt]\nurl = \"mqtts://broker.example.net\"\nuser = \"edge1\"\npassword = { cred = \"mqtt_password\" }" {
        URL: CustomForm = "url", CustomForm("`mqtt://HOST` or `mqtts://HOST`, with an optional `:PORT`", "required"),
            "url = \"mqtts://broker.example.net\"",
            "The broker. `mqtts` uses TLS. Without a port, `mqtt` uses 1883 and `mqtts` 8883. The URL has no user name and no password.";
        USER: CustomForm = "user", CustomForm("text", "no login"), "user = \"edge1\"", "User name for the broker.";
        PASSWORD: CustomForm = "password", CustomForm("secret", "none"), "password = { cred = \"mqtt_password\" }",
            "Password for the broker; requires `user`. See [Secrets](#secrets).";
        BASE: CustomForm = "base", CustomForm("one topic level: letters, digits, _ and -", "`\"spotter\"`"), "base = \"spotter\"",
            "First level of all topics.";
        CA: CustomForm = "ca", CustomForm("path of a PEM file", "the certificate authorities that this machine trusts"),
            "ca = \"/etc/site/ca.pem\"", "Certificate authority that signed the broker's certificate. Only with `mqtts`.";
        CLIENT_CERT: CustomForm = "client_cert", CustomForm("path of a PEM file", "none"), "client_cert = \"/etc/site/edge1.pem\"",
            "Certificate of this client, for mutual TLS; requires `client_key`.";
        CLIENT_KEY: CustomForm = "client_key", CustomForm("secret with `env`, `cred_file` or `file`", "none"),
            "client_key = { cred_file = \"mqtt_key\" }", "Private key in PEM format that belongs to `client_cert`.";
        TLS: CustomForm = "tls", CustomForm("table with `insecure`", "the certificate is checked"), "tls = { insecure = true }",
            "How the broker's certificate is checked. Only with `mqtts`.";
        VERSION: WordForm<MqttVersion> = "version",
            WordForm(&[("auto", MqttVersion::Auto), ("5", MqttVersion::V5), ("3.1.1", MqttVersion::V311)], MqttVersion::Auto),
            "version = \"3.1.1\"",
            "Version of MQTT. `auto` tries 5 first, at each connection, and 3.1.1 where the broker rejects 5 or does not answer.";
        MAX_QOS: WholeForm = "max_qos", WholeForm { range: 0..=1, unit: "", default: 1 }, "max_qos = 0",
            "Highest quality of service. 0 is for brokers that accept no other: then no message is acknowledged, and what a broken connection loses is lost.";
        COMMANDS: WordForm<Commands> = "commands",
            WordForm(&[("off", Commands::Off), ("basic", Commands::Basic), ("all", Commands::All)], Commands::Basic),
            "commands = \"all\"",
            "Commands accepted over MQTT: none; the `/set` topics; or also the topic `cmd` (snapshot, look, ask, reload and others).";
        REPLY_TOPICS: CustomForm = "reply_topics", CustomForm("list of topics, without wildcards", "none"), "reply_topics = [\"desk/answers\"]",
            "A command's response topic (MQTT 5) may be one of these topics or below one of them. Topics below `base` that are not Spotter's own are always allowed. The reply to a command with any other response topic goes to the topic `reply`.";
        OVERRIDES: WordForm<OverridePersistence> = "overrides",
            WordForm(&[("keep", OverridePersistence::Keep), ("forget", OverridePersistence::Forget)], OverridePersistence::Keep),
            "overrides = \"forget\"", "Whether values that were changed over MQTT survive a restart.";
        RETAIN_SNAPSHOTS: FlagForm = "retain_snapshots", FlagForm, "retain_snapshots = true",
            "Publishes snapshots of events as retained messages, so that a client that subscribes later receives the last one.";
        SPOOL: CustomForm = "spool", CustomForm("table", "see `spool`"), "spool = { max_age = \"24h\" }",
            "Limits of the events kept on disk while the broker cannot be reached.";
        HA: CustomForm = "ha", CustomForm("table", "see `ha`"), "ha = { discovery = \"off\" }", "Home Assistant discovery.";
    }
    mqtt_tls "`tls` in `[mqtt]`" "Checks of the broker's certificate." "tls = { insecure = true }" {
        INSECURE: FlagForm = "insecure", FlagForm, "tls = { insecure = true }",
            "Accepts any certificate, with a warning at each start. An attacker on the network can then read and change every message.";
    }
    spool "`spool` in `[mqtt]`" "Events on disk while the broker cannot be reached. When a limit is reached, the oldest events are dropped and counted."
        "spool = { events = 5000, max_age = \"24h\", max_mb = 20 }" {
        EVENTS: WholeForm = "events", WholeForm { range: 0..=1_000_000, unit: "events", default: 5000 },
            "spool = { events = 5000 }", "The most events kept.";
        MAX_AGE: TimeForm = "max_age", TimeForm(Duration::from_secs(1)..=Duration::from_hours(24 * 30), Duration::from_hours(24)),
            "spool = { max_age = \"24h\" }", "Older events are dropped.";
        MAX_MB: WholeForm = "max_mb", WholeForm { range: 1..=10_000, unit: "megabytes", default: 20 }, "spool = { max_mb = 20 }",
            "The most space on disk.";
    }
    home_assistant "`ha` in `[mqtt]`" "Home Assistant discovery." "ha = { discovery = \"device\", prefix = \"homeassistant\" }" {
        DISCOVERY: RetiringForm<Discovery> = "discovery",
            RetiringForm(WordForm(&[("device", Discovery::Device), ("off", Discovery::Off)], Discovery::Device),
                &[RemovedWord { word: "single", value: Discovery::Device, replacement: "write discovery = \"device\", for Home Assistant 2024.11 and later" }]),
            "ha = { discovery = \"off\" }",
            "One discovery message per device (Home Assistant 2024.11 and later), or none.";
        PREFIX: CustomForm = "prefix", CustomForm("one topic level: letters, digits, _ and -", "`\"homeassistant\"`"),
            "ha = { prefix = \"homeassistant\" }", "First topic level of discovery messages, as configured in Home Assistant.";
    }
    webhook "`[webhook.NAME]`" "A receiver to which events are posted as JSON: see [webhooks.md](webhooks.md)."
        "[webhook.door]\nurl = \"https://flows.example.net/webhook/door\"\nsecret = { cred = \"door_secret\" }\ncameras = [\"gate\"]\nsteps = [\"new\", \"end\"]\nsnapshot = true" {
        URL: CustomForm = "url", CustomForm("`http://HOST…` or `https://HOST…`; or a secret with such a text", "required"),
            "url = \"https://flows.example.net/webhook/door\"",
            "Where events are posted. The URL has no user name and no password. Redirects are not followed. Where the URL itself is a secret, name it as one: `url = { cred = \"door_url\" }`.";
        SECRET: CustomForm = "secret", CustomForm("secret: `whsec_` and 24 to 64 bytes in base64", "no signature"), "secret = { cred = \"door_secret\" }",
            "Signs each request, so that the receiver knows that Spotter sent it. `echo whsec_$(openssl rand -base64 32)` makes one. See [Secrets](#secrets).";
        BEARER: CustomForm = "bearer", CustomForm("secret", "none"), "bearer = { cred = \"door_token\" }",
            "Token that is sent as `Authorization: Bearer …`.";
        CA: CustomForm = "ca", CustomForm("path of a PEM file", "the certificate authorities that this machine trusts"),
            "ca = \"/etc/site/ca.pem\"", "Certificate authority that signed the receiver's certificate. Only with `https`.";
        CAMERAS: CustomForm = "cameras", CustomForm("list of cameras", "all"), "cameras = [\"gate\", \"yard\"]", "Only events of these cameras are posted.";
        PROMPTS: CustomForm = "prompts", CustomForm("list of prompts", "all"), "prompts = [\"person\"]", "Only events of prompts with these names are posted.";
        STEPS: CustomForm = "steps", CustomForm("list of `\"new\"`, `\"update\"`, `\"crossing\"`, `\"end\"`", "all"), "steps = [\"new\", \"end\"]",
            "Which messages of an event are posted: its `type`.";
        SNAPSHOT: FlagForm = "snapshot", FlagForm, "snapshot = true",
            "Adds the picture to the event that it was taken for, as `snapshot_jpeg`. Only for prompts with `snapshot = true`.";
        TIMEOUT: TimeForm = "timeout", TimeForm(Duration::from_secs(1)..=Duration::from_mins(1), Duration::from_secs(10)), "timeout = \"5s\"",
            "Longest time of a request, from the look-up of the name to the answer.";
        SPOOL: CustomForm = "spool", CustomForm("table", "see `spool` in `[webhook.NAME]`"), "spool = { max_age = \"24h\" }",
            "Limits of the events kept on disk for the receiver.";
    }
    webhook_spool "`spool` in `[webhook.NAME]`" "Events on disk that the receiver has not accepted. When a limit is reached, the oldest events are dropped and counted."
        "spool = { events = 5000, max_age = \"24h\", max_mb = 100 }" {
        EVENTS: WholeForm = "events", WholeForm { range: 1..=100_000, unit: "events", default: 5000 },
            "spool = { events = 5000 }", "The most events kept.";
        MAX_AGE: TimeForm = "max_age", TimeForm(Duration::from_secs(1)..=Duration::from_hours(24 * 30), Duration::from_hours(24)),
            "spool = { max_age = \"24h\" }", "Older events are dropped.";
        MAX_MB: WholeForm = "max_mb", WholeForm { range: 1..=10_000, unit: "megabytes", default: 100 }, "spool = { max_mb = 100 }",
            "The most space on disk. An event takes about 1 kB, with its picture up to 350 kB.";
    }
    model "`[model]`" "The vision-language model and the device that runs it." "[model]\npath = \"/var/lib/spotter/models/moondream2\"\ndevice = \"cuda\"" {
        PATH: CustomForm = "path", CustomForm("path of a directory, or `\"embedded\"`", "the model that `spotter model get moondream2` fetched, else `\"embedded\"`"),
            "path = \"/var/lib/spotter/models/moondream2\"",
            "Directory with `config.json`, `model.safetensors` and `tokenizer.json`. `embedded` is the small demonstration model in the program. A service looks for a fetched model in `$STATE_DIRECTORY/models` (`/var/lib/spotter/models`), a user in `$XDG_DATA_HOME/spotter/models` (`~/.local/share`), then in `/var/lib/spotter/models`.";
        DEVICE: WordForm<DevicePreference> = "device",
            WordForm(&[("auto", DevicePreference::Auto), ("cpu", DevicePreference::Cpu), ("cuda", DevicePreference::Cuda)], DevicePreference::Auto),
            "device = \"cuda\"",
            "`auto` uses an NVIDIA GPU when one works, otherwise the CPU. `cuda` requires a GPU: without one, Spotter does not start.";
        GPUS: CustomForm = "gpus", CustomForm("list of GPU indices, 0 to 63, each once", "`[0]`"), "gpus = [0, 1]",
            "GPUs to use. Each GPU runs one engine; several engines run in separate processes and share the cameras.";
        PRECISION: WordForm<PrecisionSetting> = "precision",
            WordForm(&[("auto", None), ("bf16", Some(GpuPrecision::Bf16)), ("fp8", Some(GpuPrecision::Fp8)), ("int8", Some(GpuPrecision::Int8)), ("int4", Some(GpuPrecision::Int4))], Some(GpuPrecision::Bf16)), "precision = \"int8\"",
            "Arithmetic on the GPU, and with `int8` also on the CPU, which otherwise computes in f32. `fp8` is faster and requires compute capability 8.9 or newer. `int8` halves the memory of the weights. `int4` is `int8` with experts in 4 bits, for models with experts (Moondream 3) on a GPU. All of them can change answers. `auto` measures products of the model's sizes at each start and takes the fastest that fits into the memory: `fp8` or `int8` only when it is at least 15 % faster than `bf16`, `int4` only when it is 15 % faster than these, or nothing else fits.";
        MEMORY: CustomForm = "memory", CustomForm("size with unit, 1GiB to 1024GiB", "what is free, less a sixteenth of the GPU's memory"),
            "memory = \"6GiB\"",
            "The most GPU memory that an engine may take. Set it where other programs share the GPU. With less memory, a step has fewer images. See [Memory](gpu.md#memory).";
        BUDGET: CustomForm = "budget",
            CustomForm("time with unit, 10ms to 1m", "`\"250ms\"` with a model directory, `\"1s\"` with the embedded model"),
            "budget = \"250ms\"",
            "Longest time from receiving a frame to publishing its answer. Looks that would be later are dropped and counted.";
        MAX_OBJECTS: WholeForm = "max_objects", WholeForm { range: 1..=1000, unit: "objects", default: 50 }, "max_objects = 50",
            "The most objects that one answer may have.";
        FRAMES: WordForm<FramePlace> = "frames",
            WordForm(&[("host", FramePlace::Host), ("gpu", FramePlace::Gpu)], FramePlace::Host), "frames = \"gpu\"",
            "Memory of the frames that an NVIDIA GPU decodes. `gpu` avoids copies but encodes every tile again; it requires exactly one engine on a GPU.";
        REUSE: WordForm<ReuseMode> = "reuse",
            WordForm(&[("auto", ReuseMode::Auto), ("exact", ReuseMode::Exact), ("off", ReuseMode::Off)], ReuseMode::Auto),
            "reuse = \"exact\"",
            "Whether parts of a picture that have not changed are encoded again. `auto` compares with a noise floor that is learned for each camera; `exact` reuses only equal bytes; `off` encodes everything. When nothing changed, the last answer is published again with `unchanged`.";
        REUSE_MAX_AGE: TimeForm = "reuse_max_age", TimeForm(Duration::from_secs(1)..=Duration::from_hours(1), Duration::from_secs(10)),
            "reuse_max_age = \"30s\"",
            "A picture is encoded afresh after this time, even if nothing changed.";
        ADAPTERS: WholeForm = "adapters", WholeForm { range: 0..=32, unit: "adapters", default: 4 }, "adapters = 8",
            "The most `[adapter]` tables. Each takes memory of the engine, at rank 32 about 79 MB with Moondream 3.";
    }
    adapter "`[adapter.NAME]`" "An adapter (LoRA) of the model: a file from a training, with which the model answers the requests that name it. See [moondream.md](moondream.md#11-adapters)."
        "[adapter.plates]\npath = \"/var/lib/spotter/adapters/plates.safetensors\"" {
        PATH: CustomForm = "path", CustomForm("path of a file", "required"), "path = \"plates.safetensors\"",
            "The adapter: for Moondream 3 a file with `lora_state_dict`, for Moondream 2 a variant; `.pt` or `.safetensors`, of rank 32 at most. A file that does not fit the model is a mistake of the configuration.";
    }
    settings "`[defaults]` and `[camera.NAME]`" "A camera uses the value in `[defaults]` for each of these keys that it does not have."
        "[defaults]\nrate = 2\nevents = { confirm = \"3 of 5\" }" {
        RATE: CheckedForm<LookRate> = "rate", CheckedForm { number: NumberForm { range: LookRate::RANGE, unit: "looks per second", default: 1.0 }, checked: LookRate::nearest }, "rate = 2",
            "The most looks per second. Each look uses the newest frame; older frames are dropped and counted.";
        WIDTH: WholeForm = "width", WholeForm { range: 64..=7680, unit: "pixels", default: 1280 }, "width = 1920",
            "Frames are scaled down to this width while decoding. The aspect ratio is kept; frames are never enlarged. A camera with a prompt that has a `region` or `describe` is decoded at its full size, and the width applies to the looks at the whole picture alone.";
        CROPS: CustomForm = "crops", CustomForm("`\"auto\"`, or a whole number, 1 to 12", "`\"auto\"`"), "crops = 5",
            "The most crops of a look, the crop of the whole picture included. Fewer crops cost less and show less detail. `auto` uses as many as the model's rule makes of the picture's size.";
        TRANSPORT: WordForm<Transport> = "transport",
            WordForm(&[("tcp", Transport::Tcp), ("udp", Transport::Udp), ("auto", Transport::Auto)], Transport::Auto),
            "transport = \"udp\"",
            "RTP transport of an RTSP camera. `auto` tries TCP and falls back to UDP when the camera refuses TCP. With UDP, lost packets damage pictures.";
        STALL: TimeForm = "stall", TimeForm(Duration::from_secs(1)..=Duration::from_mins(10), Duration::from_secs(5)), "stall = \"10s\"",
            "Without a frame for this time, Spotter reconnects to the camera.";
        FIRST_FRAME: TimeForm = "first_frame", TimeForm(Duration::from_secs(1)..=Duration::from_mins(10), Duration::from_secs(15)),
            "first_frame = \"30s\"", "Longest time from connecting to the first frame; longer than the time between two frames.";
        DECODE: WordForm<Decode> = "decode", WordForm(&[("all", Decode::All), ("keyframes", Decode::KeyFrames)], Decode::All),
            "decode = \"keyframes\"",
            "`keyframes` decodes only key frames, which costs least; the rate is then limited by how often the camera sends one.";
        SCHEDULE: CustomForm = "schedule",
            CustomForm("`\"DAYS FROM-TO ZONE\"`: days Mon to Sun, times 00:00 to 24:00, IANA time zone", "always"),
            "schedule = \"Mon-Fri 18:00-06:00 Europe/Berlin\"",
            "Times at which the camera is watched. A span over midnight belongs to the day on which it starts.";
        MOTION: CustomForm = "motion", CustomForm("table", "see `motion`"), "motion = { on = true }", "Motion gate.";
        EVENTS: CustomForm = "events", CustomForm("table", "see `events`"), "events = { confirm = \"3 of 5\" }",
            "When events start and end.";
    }
    motion "`motion`" "The motion gate skips frames without motion. In `[defaults]` and `[camera.NAME]`."
        "motion = { on = true, threshold = 0.02, hold = \"10s\", at_least_every = \"30s\" }" {
        ON: FlagForm = "on", FlagForm, "motion = { on = true }", "Enables the gate.";
        THRESHOLD: NumberForm = "threshold", NumberForm { range: d::SHARE_RANGE, unit: "share of the picture", default: 0.02 },
            "motion = { threshold = 0.02 }", "Share of the picture that must change to count as motion.";
        HOLD: TimeForm = "hold", TimeForm(Duration::ZERO..=Duration::from_hours(1), Duration::from_secs(10)), "motion = { hold = \"10s\" }",
            "The gate stays open for this time after motion.";
        AT_LEAST_EVERY: TimeForm = "at_least_every", TimeForm(Duration::from_secs(1)..=Duration::from_hours(24), Duration::from_secs(30)),
            "motion = { at_least_every = \"30s\" }", "Longest time between two looks, also without motion.";
    }
    events "`events`" "When events start and end. In `[defaults]`, `[camera.NAME]` and `[camera.NAME.prompt.NAME]`."
        "events = { confirm = \"2 of 3\", end_after = \"3s\", still_after = \"30s\" }" {
        CONFIRM: CustomForm = "confirm", CustomForm("`\"HITS of LOOKS\"`, at most 100 looks", "`\"2 of 3\"`"),
            "events = { confirm = \"3 of 5\" }", "An object must be found in HITS of the last LOOKS looks before its event starts.";
        END_AFTER: TimeForm = "end_after", TimeForm(Duration::from_millis(100)..=Duration::from_hours(24), d::EVENTS.end_after),
            "events = { end_after = \"5s\" }",
            "An event ends when its object was not found for this time.";
        STILL_AFTER: TimeForm = "still_after", TimeForm(Duration::from_millis(100)..=Duration::from_hours(24), d::EVENTS.still_after),
            "events = { still_after = \"30s\" }",
            "An object that did not move for this time is reported as still.";
    }
    camera "`[camera.NAME]`" "One camera. It also accepts every key of `[defaults]`."
        "[camera.gate]\nurl = \"rtsp://192.0.2.11/stream2\"\nuser = \"viewer\"\npassword = { env = \"GATE_PASSWORD\" }" {
        URL: CustomForm = "url", CustomForm(URL_FORMS, "required"), "url = \"rtsp://192.0.2.11/stream2\"",
            "The video source. The URL has no user name and no password.";
        USER: CustomForm = "user", CustomForm("text", "no login"), "user = \"viewer\"", "User name of an RTSP camera.";
        PASSWORD: CustomForm = "password", CustomForm("secret", "none"), "password = { env = \"GATE_PASSWORD\" }",
            "Password of an RTSP camera; requires `user`. See [Secrets](#secrets).";
        TLS: CustomForm = "tls",
            CustomForm("table with `fingerprint` or `insecure`", "the certificate is checked with the authorities that this machine trusts"),
            "tls = { insecure = true }", "How the certificate of an `rtsps` camera is checked.";
        REDIRECT_HOSTS: CustomForm = "redirect_hosts", CustomForm("list of host names or addresses", "none"),
            "redirect_hosts = [\"nvr.example\"]", "Hosts to which an RTSP camera may redirect, besides its own. The login is sent to the host and port of `url` alone.";
        MASK: CustomForm = "mask", CustomForm("list of polygons, `[[[x, y], ...], ...]`, shares 0 to 1, origin top left", "none"),
            "mask = [[[0, 0], [1, 0], [1, 0.2], [0, 0.2]]]", "Areas that are blacked out before the model receives the picture.";
        ZONE: CustomForm = "zone", CustomForm("one table per zone", "none"), "[camera.gate.zone.drive]",
            "Named areas of the picture.";
        LINE: CustomForm = "line", CustomForm("one table per line", "none"), "[camera.gate.line.door]",
            "Named lines in the picture, at which objects are counted in two directions.";
        PROMPT: CustomForm = "prompt", CustomForm("one table per prompt", "required"), "[camera.gate.prompt.person]",
            "What the model looks for.";
        TRIGGER: CustomForm = "trigger", CustomForm("one table per trigger", "always looked at"), "[camera.gate.trigger.bell]",
            "What starts the looks. A camera with triggers is looked at only while one of them is active: see [Triggers](mqtt.md#triggers).";
        ONVIF_URL: CustomForm = "onvif_url", CustomForm("`http://HOST…` or `https://HOST…`", "`http://HOST/onvif/device_service` with the host of `url`"),
            "onvif_url = \"http://192.0.2.11:8000/onvif/device_service\"",
            "The camera's ONVIF service, for triggers with `onvif`: see [onvif.md](onvif.md#events). `user` and `password` are those of the camera. With `https`, `tls = { insecure = true }` accepts a certificate of the camera's own.";
    }
    mode "`[mode.NAME]`" "Values that replace those of the cameras while the mode is active: by its schedule, or switched over MQTT (see [Modes](mqtt.md#modes)). One mode or none is active. The name is the one in MQTT and Home Assistant; `none` is no name. Not together with `[fleet]`."
        "[mode.night]\nschedule = \"Mon-Sun 22:00-06:00 Europe/Berlin\"\n\n[mode.night.camera.gate]\nrate = 4\n\n[mode.night.camera.gate.prompt.person]\nmin_score = 0.3" {
        SCHEDULE: CustomForm = "schedule",
            CustomForm("`\"DAYS FROM-TO ZONE\"`: days Mon to Sun, times 00:00 to 24:00, IANA time zone", "by commands alone"),
            "schedule = \"Mon-Sun 22:00-06:00 Europe/Berlin\"",
            "Times at which the mode is active by itself. Where the times of modes overlap, the first one in the file is active.";
        CAMERA: CustomForm = "camera", CustomForm("one table per camera of this file", "none"), "[mode.night.camera.gate]",
            "Cameras with other values in this mode.";
    }
    mode_camera "`[mode.NAME.camera.NAME]`" "Values of a camera in a mode: those that a command can change, with the meaning that they have there." "[mode.night.camera.gate]\nenabled = true\nrate = 4\nmotion_gate = false" {
        ENABLED: CustomForm = "enabled", CustomForm("true or false", "unchanged"), "enabled = false",
            "Whether the camera is watched; `false` also closes the connection to it.";
        RATE: CustomForm = "rate", CustomForm("number, 0.01 to 30 (looks per second)", "unchanged"), "rate = 4",
            "The most looks per second, also of the prompts that have the camera's rate.";
        MOTION_GATE: CustomForm = "motion_gate", CustomForm("true or false", "unchanged"), "motion_gate = false",
            "Whether frames without motion are skipped.";
        PROMPT: CustomForm = "prompt", CustomForm("one table per prompt of this camera", "none"), "[mode.night.camera.gate.prompt.person]",
            "Prompts with other values in this mode.";
    }
    mode_prompt "`[mode.NAME.camera.NAME.prompt.NAME]`" "Values of a prompt in a mode." "[mode.night.camera.gate.prompt.person]\ntext = \"person with a torch\"\nenabled = true\nmin_score = 0.3" {
        TEXT: CustomForm = "text", CustomForm("text, at most 200 characters", "unchanged"), "text = \"person with a torch\"",
            "What the prompt looks for or asks, in place of its `detect`, `point` or `query`.";
        ENABLED: CustomForm = "enabled", CustomForm("true or false", "unchanged"), "enabled = false", "Whether the prompt is asked.";
        MIN_SCORE: CustomForm = "min_score", CustomForm("number, 0 to 1", "unchanged"), "min_score = 0.3",
            "Objects with a lower score are not reported.";
    }
    fleet "`[fleet]`" "A box that shares cameras with others: see [fleet.md](fleet.md). Without this table, the box has its own cameras and needs no NATS."
        "[fleet]\nname = \"hall\"\nurl = \"nats://nats.example.net\"\nlabels = [\"hall2\"]" {
        NAME: CustomForm = "name", CustomForm("text of a-z 0-9 _ -, at most 32 characters", "required"), "name = \"hall\"",
            "Name of the fleet, the same on all its boxes. It is one level of the topics of its cameras.";
        URL: CustomForm = "url", CustomForm("`nats://HOST` or `tls://HOST`, with an optional `:PORT`; or a list of them", "required"),
            "url = [\"nats://a.example.net\", \"nats://b.example.net\"]",
            "The NATS server with JetStream, or several of a cluster. `tls` encrypts the connection. Without a port it is 4222.";
        USER: CustomForm = "user", CustomForm("text", "no login"), "user = \"edge\"", "User name for NATS.";
        PASSWORD: CustomForm = "password", CustomForm("secret", "none"), "password = { cred = \"nats_password\" }",
            "Password for NATS; requires `user`. See [Secrets](#secrets).";
        CREDENTIALS: CustomForm = "credentials", CustomForm("path of a `.creds` file", "none"), "credentials = \"/etc/spotter/edge.creds\"",
            "Login with a file of NATS' tool `nsc`, in place of `user` and `password`.";
        CA: CustomForm = "ca", CustomForm("path of a PEM file", "the certificate authorities that this machine trusts"),
            "ca = \"/etc/site/ca.pem\"", "Certificate authority that signed the server's certificate.";
        LABELS: CustomForm = "labels", CustomForm("list of texts of a-z 0-9 _ -", "none"), "labels = [\"hall2\"]",
            "What this box offers. A camera with a `label` is watched by boxes with that label only.";
        CAMERA_CREDENTIALS: CustomForm = "camera_credentials", CustomForm("list of texts", "none"), "camera_credentials = [\"gate\"]",
            "Credentials of this box that the fleet's list may name, beside those whose names begin with `camera_`.";
        ALLOW_LOCAL: FlagForm = "allow_local", FlagForm, "allow_local = true",
            "Permits the fleet's list to name what is on this box: secrets in variables and files, and `file://` and `usb://` sources. Everyone who may write the list can then read them.";
        NETWORKS: CustomForm = "networks", CustomForm("list of networks, such as `\"192.0.2.0/24\"`", "any host"), "networks = [\"192.0.2.0/24\"]",
            "Where the cameras of the fleet's list and their ONVIF services may be. With it, `url` and `onvif_url` have addresses, not names.";
        REPLICAS: WholeForm = "replicas", WholeForm { range: 1..=5, unit: "", default: 1 }, "replicas = 3",
            "Copies of the fleet's data in a cluster of NATS servers. The first client that writes decides.";
    }
    fleet_camera "`[camera.NAME]` in the list of a fleet" "A camera of `spotter fleet apply FILE` also accepts these keys; see [fleet.md](fleet.md)."
        "[camera.gate]\nlabel = \"hall2\"\npriority = 1" {
        LABEL: CustomForm = "label", CustomForm("text of a-z 0-9 _ -, at most 32 characters", "any node"), "label = \"hall2\"",
            "Only nodes with this label watch the camera.";
        PRIORITY: WholeForm = "priority", WholeForm { range: 0..=9, unit: "", default: 0 }, "priority = 1",
            "Cameras with a higher priority come first where the nodes cannot do all.";
        SESSIONS: WholeForm = "sessions", WholeForm { range: 1..=2, unit: "", default: 2 }, "sessions = 1",
            "Sessions that the camera serves at a time. With 1, a node disconnects before the next one connects.";
    }
    camera_tls "`tls` in `[camera.NAME]`" "Checks of an `rtsps` camera's certificate. Use one of the two keys." "tls = { insecure = true }" {
        FINGERPRINT: CustomForm = "fingerprint", CustomForm("`\"sha256:\"` and 64 hex digits, with or without colons", "none"),
            "tls = { fingerprint = \"sha256:6f1e...\" }",
            "SHA-256 of the camera's certificate. `openssl x509 -noout -fingerprint -sha256` prints it.";
        INSECURE: FlagForm = "insecure", FlagForm, "tls = { insecure = true }",
            "Accepts any certificate, with a warning at each start. An attacker on the network can then read and change everything.";
    }
    zone "`[camera.NAME.zone.NAME]`" "A named area of the camera's picture."
        "[camera.gate.zone.drive]\npolygon = [[0.05, 0.55], [0.95, 0.55], [0.95, 1.0], [0.05, 1.0]]" {
        POLYGON: CustomForm = "polygon",
            CustomForm("`[[x, y], ...]`, at least 3 points, shares 0 to 1, origin top left", "required"),
            "polygon = [[0, 0.5], [1, 0.5], [1, 1], [0, 1]]", "Corners in order around the area. Edges must not cross.";
        POINT: WordForm<ZonePoint> = "point",
            WordForm(&[("bottom", ZonePoint::Bottom), ("centre", ZonePoint::Centre)], ZonePoint::Bottom), "point = \"centre\"",
            "Which point of a box must be inside: the middle of its lower edge or its centre.";
    }
    line "`[camera.NAME.line.NAME]`" "A named line in the camera's picture. The objects of the prompts that name it in `lines` are counted when they cross it. Draw it where objects are seen well on both sides, at least a quarter of their size."
        "[camera.gate.line.door]\npoints = [[0.3, 0.8], [0.7, 0.8]]\ndirections = [\"in\", \"out\"]\nreset = \"00:00 Europe/Berlin\"" {
        POINTS: CustomForm = "points", CustomForm("`[[x, y], ...]`, at least 2 points, shares 0 to 1, origin top left", "required"),
            "points = [[0.2, 0.9], [0.5, 0.7], [0.8, 0.9]]", "The line from its first point to its last. It must not cross itself.";
        DIRECTIONS: CustomForm = "directions", CustomForm("list of two names of a-z 0-9 _ -", "`[\"in\", \"out\"]`"),
            "directions = [\"east\", \"west\"]",
            "Names of the two directions. The first is from left to right, seen along the line from its first point: of a line that is drawn from left to right, it is downwards in the picture.";
        POINT: WordForm<ZonePoint> = "point",
            WordForm(&[("bottom", ZonePoint::Bottom), ("centre", ZonePoint::Centre)], ZonePoint::Bottom), "point = \"centre\"",
            "Which point of a box must cross: the middle of its lower edge or its centre.";
        RESET: CustomForm = "reset", CustomForm("`\"TIME ZONE\"` or `\"DAYS TIME ZONE\"`: days Mon to Sun, time 00:00 to 23:59, IANA time zone", "by command only"),
            "reset = \"Mon 06:00 Europe/Berlin\"", "When the counts return to 0: every day, or on these days.";
    }
    prompt "`[camera.NAME.prompt.NAME]`" "What the model looks for. Exactly one of `detect`, `point` and `query` is required."
        "[camera.gate.prompt.person]\ndetect = \"person\"\nzones = [\"drive\"]\nmin_score = 0.4" {
        DETECT: CustomForm = "detect", CustomForm("text, at most 200 characters", "none"), "detect = \"red car\"",
            "Objects to find, in plain words. The answer is a list of boxes.";
        POINT: CustomForm = "point", CustomForm("text, at most 200 characters", "none"), "point = \"crane hook\"",
            "Objects to find, in plain words. The answer is a list of points.";
        QUERY: CustomForm = "query", CustomForm("text, at most 200 characters", "none"), "query = \"Is the door open?\"",
            "A question about the picture. The answer is text.";
        CHOICES: CustomForm = "choices", CustomForm("list of 2 to 16 texts, each at most 40 characters", "any text"),
            "choices = [\"open\", \"closed\"]", "The only answers to `query` that the model may give.";
        RATE: CustomForm = "rate", CustomForm("number, 0.01 to 30 (looks per second)", "the camera's rate"), "rate = 0.2",
            "Looks per second for this prompt; at most the camera's rate.";
        REGION: CustomForm = "region", CustomForm("`[x0, y0, x1, y1]`, shares 0 to 1; a zone's name; or `\"motion\"`", "the whole picture"),
            "region = [0.4, 0.3, 0.6, 0.5]",
            "The part of the picture that the model sees, cut from the camera's full-size frame: left, top, right, bottom; the box around a zone, with a tenth of its size on each side; or the box in which something moved (see [Regions](gpu.md#regions)). Positions in messages stay those in the whole picture.";
        CROPS: CustomForm = "crops", CustomForm("`\"auto\"`, or a whole number, 1 to 12", "the camera's `crops`"), "crops = 1",
            "The most crops of this prompt's look. Prompts with the same `region` and `crops` share the encoding of their image.";
        MIN_SCORE: CheckedForm<Share> = "min_score", CheckedForm { number: NumberForm { range: Share::RANGE, unit: "", default: 0.0 }, checked: Share::nearest }, "min_score = 0.4",
            "Objects with a lower score are not reported.";
        MIN_AREA: NumberForm = "min_area", NumberForm { range: d::SHARE_RANGE, unit: "share of the picture", default: 0.0 },
            "min_area = 0.002", "Smaller boxes are not reported. Only for `detect`.";
        ZONES: CustomForm = "zones", CustomForm("list of zone names of this camera", "the whole picture"), "zones = [\"drive\"]",
            "Only objects in one of these zones count. Not for `query`.";
        LINES: CustomForm = "lines", CustomForm("list of line names of this camera", "none"), "lines = [\"door\"]",
            "Lines at which the objects are counted when they cross. Not for `query`.";
        DWELL: CustomForm = "dwell", CustomForm("time with unit, 100ms to 24h; or a table of zone names with such times", "none"), "dwell = { drive = \"30s\" }",
            "An object that has been in a zone for this time is reported, and also when it leaves the zone: a time for each of the prompt's zones, or for those in the table. Not for `query`.";
        SNAPSHOT: FlagForm = "snapshot", FlagForm, "snapshot = true", "Publishes a picture of each event's best moment.";
        VERIFY: CustomForm = "verify", CustomForm("text, at most 200 characters", "none"), "verify = \"Is there a parcel?\"",
            "A yes/no question that the model must answer with yes before an event starts. Not for `query`.";
        DESCRIBE: CustomForm = "describe", CustomForm("text, at most 200 characters", "none"), "describe = \"What is the person doing?\"",
            "A question about the object of each event, asked of the part of the picture around it as soon as the event starts. The answer is published as an update of the event. Not for `query`.";
        FRAMES: CustomForm = "frames", CustomForm("1, 4 or 9", "1"), "frames = 9",
            "How many frames the question of `query` or `describe` is about: with 4 or 9, the model sees a strip, one picture with the last frames of the camera in rows, the oldest first (see [Film strips](gpu.md#film-strips)). Not with `region = \"motion\"` of a `query`.";
        OVER: CustomForm = "over", CustomForm("time with unit, 500ms to 1m", "`\"4s\"`"), "over = \"4s\"",
            "Time from the oldest to the newest frame of a strip. The frames are spread evenly over it.";
        EVENTS: CustomForm = "events", CustomForm("table", "the camera's `events`"), "events = { confirm = \"2 of 2\" }",
            "When events of this prompt start and end.";
    }
    trigger "`[camera.NAME.trigger.NAME]`" "Something outside of Spotter that starts the looks of the camera. Exactly one of `mqtt`, `onvif` and `http` is required. The name is the one in MQTT, Home Assistant and the API."
        "[camera.gate.trigger.bell]\nmqtt = \"zigbee2mqtt/doorbell\"\nkey = \"action\"\nvalue = \"single\"\nfor = \"30s\"" {
        MQTT: CustomForm = "mqtt", CustomForm("topic on the broker of `[mqtt]`, without wildcards", "none"), "mqtt = \"zigbee2mqtt/doorbell\"",
            "Messages on this topic trigger. Not a topic of this node.";
        KEY: CustomForm = "key", CustomForm("name of a field, or several with dots between them", "the whole payload"), "key = \"action\"",
            "The field of a JSON payload that counts. Messages without it, or in which it is `null` or empty, are ignored. Only with `mqtt`.";
        VALUE: CustomForm = "value", CustomForm("text, true, false or a whole number", "every message triggers"), "value = \"single\"",
            "Only messages with this value trigger. Only with `mqtt`.";
        OFF: CustomForm = "off", CustomForm("text, true, false or a whole number", "the trigger has no end of its own"), "off = false",
            "The value with which the trigger ends: the camera is looked at from a message with `value` until one with `off`, and `for` longer. Only with `mqtt` and `value`.";
        ONVIF: CustomForm = "onvif", CustomForm("`\"motion\"`, `\"person\"`, `\"vehicle\"`, `\"animal\"`, `\"face\"`, `\"visitor\"`, `\"package\"`, `\"area\"`, `\"input\"`, `\"sound\"`, `\"tamper\"`; or a topic of the camera", "none"), "onvif = \"motion\"",
            "Events of the camera itself: a usual kind, for which cameras have different topics, or one topic. A topic is written as the camera has it, such as `\"tns1:VideoSource/MotionAlarm\"`.";
        HTTP: FlagForm = "http", FlagForm, "http = true", "Calls of the local API trigger: `POST /v1/cameras/gate/trigger/bell`.";
        FOR: TimeForm = "for", TimeForm(Duration::from_secs(1)..=Duration::from_hours(24), Duration::from_secs(20)), "for = \"30s\"",
            "The camera is looked at for this time after the trigger, or after its end where it has one. Another message begins the time again.";
        AT_MOST: TimeForm = "at_most", TimeForm(Duration::from_secs(1)..=Duration::from_hours(24), Duration::from_mins(10)), "at_most = \"1h\"",
            "Longest time of a trigger with an end, counted from its last message: the message of its end may be lost.";
    }
    secret "Secrets" "Passwords and keys are not written in this file. Each is a table with exactly one of these keys."
        "password = { cred = \"mqtt_password\" }" {
        ENV: CustomForm = "env", CustomForm("name of an environment variable", "none"), "password = { env = \"GATE_PASSWORD\" }",
            "Reads the secret from an environment variable.";
        CRED: CustomForm = "cred", CustomForm("name of a systemd credential", "none"), "password = { cred = \"mqtt_password\" }",
            "Reads a password from a credential: `LoadCredential=mqtt_password:PATH` in the unit.";
        CRED_FILE: CustomForm = "cred_file", CustomForm("name of a systemd credential", "none"),
            "client_key = { cred_file = \"mqtt_key\" }", "The same for a private key (`client_key`).";
        FILE: CustomForm = "file", CustomForm("path, relative to the configuration file", "none"),
            "password = { file = \"/etc/spotter/front\" }",
            "Reads the secret from a file. A file that all users can read causes a warning.";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{problem::Notes, reader::Reader, syntax};

    /// The values of `key`, and what is noted of them.
    fn read_all<T>(text: &str, read: impl Fn(Reader<'_>) -> T) -> (T, Vec<String>) {
        let notes = Notes::new("a.toml", text);
        let value = {
            let document = syntax::parse(&notes, text).unwrap();
            read(Reader::new(&notes, "", 0..0, Some(document.get_ref())))
        };
        let noted = notes.into_list().into_iter();
        (value, noted.map(|problem| problem.to_string()).collect())
    }

    #[test]
    fn removed_key_is_accepted_with_a_warning() {
        let (_, noted) = read_all("old = 1\n", |mut table| {
            table.ignored("old", "write new = 1");
            table.finish();
        });
        let line =
            "a.toml:1:1 old: warning: removed; it is ignored and will be an error; write new = 1";
        assert_eq!(noted, [line]);
    }

    #[test]
    fn removed_word_is_read_as_its_replacement_with_a_warning() {
        let words = WordForm(&[("new", 1), ("newer", 2)], 1);
        let removed = RemovedWord {
            word: "old",
            value: 2,
            replacement: "write \"newer\"",
        };
        let form = RetiringForm(words, Box::leak(Box::new([removed])));
        assert_eq!(form.describe().0, "`\"new\"`, `\"newer\"`");
        for (text, value, said) in [
            ("key = \"new\"", Some(1), None),
            (
                "key = \"old\"",
                Some(2),
                Some("warning: \"old\" was removed"),
            ),
            ("key = \"odd\"", None, Some("is not one of new, newer")),
        ] {
            let (read, noted) = read_all(text, |table| form.read(&table.entries()[0].1));
            assert_eq!(read, value, "{text}");
            assert_eq!(noted.len(), usize::from(said.is_some()), "{noted:?}");
            assert!(
                noted.iter().all(|line| line.contains(said.unwrap())),
                "{noted:?}"
            );
        }
    }
}
