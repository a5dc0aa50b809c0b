//! Every key of the configuration file, declared once: name, form, default, example and explanation. A [`Key`] can only be made by
//! the macro below, which also lists it in its section, and a reader gets values by [`Key`] alone. So no key exists without its
//! documentation, and [`super::reference`] shows the same ranges and defaults that the parser uses.

use std::{ops::RangeInclusive, time::Duration};

use super::{
    Commands, Decode, DevicePreference, Discovery, FramePlace, GpuPrecision, OverridePersistence,
    Transport, ZonePoint, defaults as d, parse, reader::ConfigValue, source::URL_FORMS,
};

/// How a key's value is written, and how it is read.
pub(super) trait KeyForm {
    type Output;

    /// The value, or `None` after noting what is wrong.
    fn read(&self, value: &ConfigValue<'_>) -> Option<Self::Output>;

    /// The form with its range and unit, for the reference.
    fn describe(&self) -> String;

    /// The default, for a form that has its own.
    fn default_text(&self) -> Option<String> {
        None
    }
}

/// A number in a range.
pub(super) struct NumberForm {
    range: RangeInclusive<f64>,
    unit: &'static str,
}

impl KeyForm for NumberForm {
    type Output = f64;

    fn read(&self, value: &ConfigValue<'_>) -> Option<f64> {
        value.number(self.range.clone())
    }

    fn describe(&self) -> String {
        let (low, high) = (self.range.start(), self.range.end());
        format!("number, {low} to {high}{}", unit(self.unit))
    }
}

/// A whole number in a range.
pub(super) struct WholeForm {
    range: RangeInclusive<u64>,
    unit: &'static str,
}

impl KeyForm for WholeForm {
    type Output = u64;

    fn read(&self, value: &ConfigValue<'_>) -> Option<u64> {
        value.whole(self.range.clone())
    }

    fn describe(&self) -> String {
        let (low, high) = (self.range.start(), self.range.end());
        format!("whole number, {low} to {high}{}", unit(self.unit))
    }
}

fn unit(unit: &str) -> String {
    match unit {
        "" => String::new(),
        unit => format!(" ({unit})"),
    }
}

/// A time with its unit, in a range.
pub(super) struct TimeForm(RangeInclusive<Duration>);

impl KeyForm for TimeForm {
    type Output = Duration;

    fn read(&self, value: &ConfigValue<'_>) -> Option<Duration> {
        value.duration(self.0.clone())
    }

    fn describe(&self) -> String {
        let shown = |time: &Duration| parse::duration_text(*time);
        format!(
            "time with unit, {} to {}",
            shown(self.0.start()),
            shown(self.0.end())
        )
    }
}

/// A key with the value `true` or `false`.
pub(super) struct FlagForm;

impl KeyForm for FlagForm {
    type Output = bool;

    fn read(&self, value: &ConfigValue<'_>) -> Option<bool> {
        value.flag()
    }

    fn describe(&self) -> String {
        "true or false".to_owned()
    }
}

/// One of a few words, with the default.
pub(super) struct WordForm<T: 'static>(&'static [(&'static str, T)], T);

impl<T: Copy + PartialEq> KeyForm for WordForm<T> {
    type Output = T;

    fn read(&self, value: &ConfigValue<'_>) -> Option<T> {
        value.choice(self.0)
    }

    fn describe(&self) -> String {
        let words: Vec<_> = self
            .0
            .iter()
            .map(|(word, _)| format!("`\"{word}\"`"))
            .collect();
        words.join(", ")
    }

    fn default_text(&self) -> Option<String> {
        let (word, _) = self.0.iter().find(|(_, value)| *value == self.1)?;
        Some(format!("`\"{word}\"`"))
    }
}

/// A text, list or table whose parts the section's own code reads and checks.
pub(super) struct CustomForm(&'static str);

/// What the parser uses when the file does not have the key.
pub(super) enum DefaultValue {
    /// The file must have the key.
    Required,
    Number(f64),
    Whole(u64),
    Time(Duration),
    Flag(bool),
    /// A text that the file has in quotes.
    Text(&'static str),
    Address(std::net::SocketAddr),
    Gpus(&'static [u32]),
    Confirm((u32, u32)),
    /// The default of the form.
    Word,
    /// Not a value but a rule, in words.
    Rule(&'static str),
}

impl DefaultValue {
    fn describe(&self) -> String {
        match self {
            Self::Required => "required".to_owned(),
            Self::Number(number) => format!("`{number}`"),
            Self::Whole(number) => format!("`{number}`"),
            Self::Time(time) => format!("`\"{}\"`", parse::duration_text(*time)),
            Self::Flag(flag) => format!("`{flag}`"),
            Self::Text(text) => format!("`\"{text}\"`"),
            Self::Address(address) => format!("`\"{address}\"`"),
            Self::Gpus(gpus) => format!("`{gpus:?}`"),
            Self::Confirm((hits, looks)) => format!("`\"{hits} of {looks}\"`"),
            Self::Rule(rule) => (*rule).to_owned(),
            Self::Word => String::new(),
        }
    }
}

/// One key of one section. Made by `sections!` alone.
pub(super) struct Key<F> {
    name: &'static str,
    form: F,
    default: DefaultValue,
    example: &'static str,
    doc: &'static str,
}

impl<F> Key<F> {
    pub(super) fn name(&self) -> &'static str {
        self.name
    }
}

impl<F: KeyForm> Key<F> {
    pub(super) fn read(&self, value: &ConfigValue<'_>) -> Option<F::Output> {
        self.form.read(value)
    }
}

/// What the reference shows of a key.
pub(super) struct KeyReference {
    pub(super) name: &'static str,
    pub(super) form: String,
    pub(super) default: String,
    pub(super) example: &'static str,
    pub(super) doc: &'static str,
}

trait Documented: Sync {
    fn reference(&self) -> KeyReference;
}

impl<F: KeyForm + Sync> Documented for Key<F> {
    fn reference(&self) -> KeyReference {
        let mut reference = key_reference(self, self.form.describe());
        if let Some(default) = self.form.default_text() {
            reference.default = default;
        }
        reference
    }
}

impl Documented for Key<CustomForm> {
    fn reference(&self) -> KeyReference {
        key_reference(self, self.form.0.to_owned())
    }
}

fn key_reference<F>(key: &Key<F>, form: String) -> KeyReference {
    KeyReference {
        name: key.name,
        form,
        default: key.default.describe(),
        example: key.example,
        doc: key.doc,
    }
}

/// One table of the file.
pub(super) struct SectionReference {
    pub(super) title: &'static str,
    pub(super) doc: &'static str,
    pub(super) example: &'static str,
    keys: &'static [&'static dyn Documented],
}

impl SectionReference {
    pub(super) fn keys(&self) -> impl Iterator<Item = KeyReference> {
        self.keys.iter().map(|key| key.reference())
    }
}

macro_rules! sections {
    ($($module:ident $title:literal $doc:literal $section_example:literal {
        $($key:ident: $form:ty = $name:literal, $value:expr, $default:expr, $example:literal, $key_doc:literal;)*
    })*) => {
        $(pub(super) mod $module {
            use super::*;
            $(pub(in super::super) static $key: Key<$form> = Key {
                name: $name, form: $value, default: $default, example: $example, doc: $key_doc,
            };)*
            pub(super) static SECTION: SectionReference = SectionReference {
                title: $title, doc: $doc, example: $section_example, keys: &[$(&$key),*],
            };
        })*

        /// All sections in the order of the reference.
        pub(super) static SECTIONS: &[&SectionReference] = &[$(&$module::SECTION),*];
    };
}

use DefaultValue::{
    Address, Confirm, Flag, Gpus, Number, Required, Rule, Text as TextDefault, Time, Whole, Word,
};

sections! {
    root "The top of the file" "Keys above the first table." "schema = 1" {
        SCHEMA: CustomForm = "schema", CustomForm("`1`"), Whole(d::SCHEMA), "schema = 1",
            "Version of the file format. This version of Spotter reads schema 1 only.";
        ALLOW_PLAIN_SECRETS: FlagForm = "allow_plain_secrets", FlagForm, Flag(false), "allow_plain_secrets = true",
            "Accepts passwords and keys as plain text in this file, with a warning at each start.";
        NODE: CustomForm = "node", CustomForm("table"), Rule("see `[node]`"), "[node]", "This machine.";
        HTTP: CustomForm = "http", CustomForm("table"), Rule("see `[http]`"), "[http]", "Status page, metrics and health.";
        MQTT: CustomForm = "mqtt", CustomForm("table"), Required, "[mqtt]", "The broker.";
        MODEL: CustomForm = "model", CustomForm("table"), Rule("see `[model]`"), "[model]", "The model and its device.";
        DEFAULTS: CustomForm = "defaults", CustomForm("table"), Rule("see `[defaults]`"), "[defaults]",
            "Settings of all cameras that do not have their own.";
        CAMERA: CustomForm = "camera", CustomForm("one table per camera"), Required, "[camera.gate]",
            "The cameras. The name in the header is the camera's id in MQTT topics: 1 to 32 characters of a-z 0-9 _ -.";
    }
    node "`[node]`" "This machine." "[node]\nname = \"edge1\"" {
        NAME: CustomForm = "name", CustomForm("text of a-z 0-9 _ -, at most 32 characters"), Rule("the host name"),
            "name = \"edge1\"", "Name of this machine. It is one level of all MQTT topics.";
        STATE_DIR: CustomForm = "state_dir", CustomForm("path, or `\"auto\"`"), TextDefault("auto"),
            "state_dir = \"/var/lib/spotter\"",
            "Directory for state that survives a restart. `auto` uses systemd's `STATE_DIRECTORY`, then `$XDG_STATE_HOME/spotter`, then `~/.local/state/spotter`, then `/var/lib/spotter`.";
    }
    http "`[http]`" "Status page, metrics and health checks." "[http]\nlisten = \"0.0.0.0:9464\"" {
        LISTEN: CustomForm = "listen", CustomForm("`\"ADDRESS:PORT\"`, or `\"off\"`"), Address(d::HTTP_LISTEN),
            "listen = \"0.0.0.0:9464\"",
            "Address and port of the HTTP server. The default accepts connections from this machine only.";
    }
    mqtt "`[mqtt]`" "The MQTT broker. This table is required." "[mqtt]\nurl = \"mqtts://broker.example.net\"\nuser = \"edge1\"\npassword = { cred = \"mqtt_password\" }" {
        URL: CustomForm = "url", CustomForm("`mqtt://HOST` or `mqtts://HOST`, with an optional `:PORT`"), Required,
            "url = \"mqtts://broker.example.net\"",
            "The broker. `mqtts` uses TLS. Without a port, `mqtt` uses 1883 and `mqtts` 8883. The URL has no user name and no password.";
        USER: CustomForm = "user", CustomForm("text"), Rule("no login"), "user = \"edge1\"", "User name for the broker.";
        PASSWORD: CustomForm = "password", CustomForm("secret"), Rule("none"), "password = { cred = \"mqtt_password\" }",
            "Password for the broker; requires `user`. See [Secrets](#secrets).";
        BASE: CustomForm = "base", CustomForm("one topic level: letters, digits, _ and -"), TextDefault(d::MQTT_BASE),
            "base = \"spotter\"", "First level of all topics.";
        CA: CustomForm = "ca", CustomForm("path of a PEM file"), Rule("the certificate authorities that this machine trusts"),
            "ca = \"/etc/site/ca.pem\"", "Certificate authority that signed the broker's certificate. Only with `mqtts`.";
        CLIENT_CERT: CustomForm = "client_cert", CustomForm("path of a PEM file"), Rule("none"),
            "client_cert = \"/etc/site/edge1.pem\"", "Certificate of this client, for mutual TLS; requires `client_key`.";
        CLIENT_KEY: CustomForm = "client_key", CustomForm("secret with `env`, `cred_file` or `file`"), Rule("none"),
            "client_key = { cred_file = \"mqtt_key\" }", "Private key in PEM format that belongs to `client_cert`.";
        TLS: CustomForm = "tls", CustomForm("table with `insecure`"), Rule("the certificate is checked"),
            "tls = { insecure = true }", "How the broker's certificate is checked. Only with `mqtts`.";
        COMMANDS: WordForm<Commands> = "commands", WordForm(&[("off", Commands::Off), ("basic", Commands::Basic), ("all", Commands::All)], d::COMMANDS),
            Word, "commands = \"all\"",
            "Commands accepted over MQTT: none; the `/set` topics; or also the topic `cmd` (snapshot, look, ask, reload and others).";
        OVERRIDES: WordForm<OverridePersistence> = "overrides",
            WordForm(&[("keep", OverridePersistence::Keep), ("forget", OverridePersistence::Forget)], d::OVERRIDES),
            Word, "overrides = \"forget\"",
            "Whether values that were changed over MQTT survive a restart.";
        RETAIN_SNAPSHOTS: FlagForm = "retain_snapshots", FlagForm, Flag(false), "retain_snapshots = true",
            "Publishes snapshots of events as retained messages, so that a client that subscribes later receives the last one.";
        SPOOL: CustomForm = "spool", CustomForm("table"), Rule("see `spool`"), "spool = { max_age = \"24h\" }",
            "Limits of the events kept on disk while the broker cannot be reached.";
        HA: CustomForm = "ha", CustomForm("table"), Rule("see `ha`"), "ha = { discovery = \"off\" }", "Home Assistant discovery.";
    }
    mqtt_tls "`tls` in `[mqtt]`" "Checks of the broker's certificate." "tls = { insecure = true }" {
        INSECURE: FlagForm = "insecure", FlagForm, Flag(false), "tls = { insecure = true }",
            "Accepts any certificate, with a warning at each start. An attacker on the network can then read and change every message.";
    }
    spool "`spool` in `[mqtt]`" "Events on disk while the broker cannot be reached. When a limit is reached, the oldest events are dropped and counted."
        "spool = { events = 5000, max_age = \"24h\", max_mb = 20 }" {
        EVENTS: WholeForm = "events", WholeForm { range: d::SPOOL_EVENTS_RANGE, unit: "events" }, Whole(d::SPOOL_EVENTS),
            "spool = { events = 5000 }", "The most events kept.";
        MAX_AGE: TimeForm = "max_age", TimeForm(d::SPOOL_MAX_AGE_RANGE), Time(d::SPOOL_MAX_AGE),
            "spool = { max_age = \"24h\" }", "Older events are dropped.";
        MAX_MB: WholeForm = "max_mb", WholeForm { range: d::SPOOL_MAX_MB_RANGE, unit: "megabytes" }, Whole(d::SPOOL_MAX_MB),
            "spool = { max_mb = 20 }", "The most space on disk.";
    }
    home_assistant "`ha` in `[mqtt]`" "Home Assistant discovery." "ha = { discovery = \"device\", prefix = \"homeassistant\" }" {
        DISCOVERY: WordForm<Discovery> = "discovery",
            WordForm(&[("device", Discovery::Device), ("single", Discovery::Single), ("off", Discovery::Off)], d::DISCOVERY),
            Word, "ha = { discovery = \"off\" }",
            "One discovery message per device (Home Assistant 2024.11 and later), one per entity, or none.";
        PREFIX: CustomForm = "prefix", CustomForm("one topic level: letters, digits, _ and -"), TextDefault(d::HA_PREFIX),
            "ha = { prefix = \"homeassistant\" }", "First topic level of discovery messages, as configured in Home Assistant.";
    }
    model "`[model]`" "The vision-language model and the device that runs it." "[model]\npath = \"/var/lib/spotter/models/moondream2\"\ndevice = \"cuda\"" {
        PATH: CustomForm = "path", CustomForm("path of a directory, or `\"embedded\"`"), TextDefault("embedded"),
            "path = \"/var/lib/spotter/models/moondream2\"",
            "Directory with `config.json`, `model.safetensors` and `tokenizer.json`. `embedded` is the small demonstration model in the program.";
        DEVICE: WordForm<DevicePreference> = "device",
            WordForm(&[("auto", DevicePreference::Auto), ("cpu", DevicePreference::Cpu), ("cuda", DevicePreference::Cuda)], d::DEVICE),
            Word, "device = \"cuda\"",
            "`auto` uses an NVIDIA GPU when one works, otherwise the CPU. `cuda` requires a GPU: without one, Spotter does not start.";
        GPUS: CustomForm = "gpus", CustomForm("list of GPU indices, 0 to 63, each once"), Gpus(&d::GPUS), "gpus = [0, 1]",
            "GPUs to use. Each GPU runs one engine; several engines run in separate processes and share the cameras.";
        PRECISION: WordForm<GpuPrecision> = "precision", WordForm(&[("bf16", GpuPrecision::Bf16), ("fp8", GpuPrecision::Fp8)], d::PRECISION),
            Word, "precision = \"fp8\"",
            "Arithmetic on the GPU. `fp8` is faster and requires compute capability 8.9 or newer; it can change answers.";
        BUDGET: TimeForm = "budget", TimeForm(d::BUDGET_RANGE), Rule("`\"250ms\"` with a model directory, `\"1s\"` with the embedded model"),
            "budget = \"250ms\"", "Longest time from receiving a frame to publishing its answer. Looks that would be later are dropped and counted.";
        MAX_OBJECTS: WholeForm = "max_objects", WholeForm { range: d::MAX_OBJECTS_RANGE, unit: "objects" }, Whole(d::MAX_OBJECTS),
            "max_objects = 50", "The most objects that one answer may have.";
        FRAMES: WordForm<FramePlace> = "frames", WordForm(&[("host", FramePlace::Host), ("gpu", FramePlace::Gpu)], d::FRAMES),
            Word, "frames = \"gpu\"",
            "Memory of the frames that an NVIDIA GPU decodes. `gpu` avoids copies but encodes every tile again; it requires exactly one engine on a GPU.";
        TILE_DIFFERENCE: NumberForm = "tile_difference", NumberForm { range: d::TILE_DIFFERENCE_RANGE, unit: "steps of a byte" },
            Number(d::TILE_DIFFERENCE), "tile_difference = 2",
            "Difference up to which an image tile counts as unchanged and is not encoded again: on the CPU the mean difference of its bytes, on a GPU the largest difference of a source pixel. `0` keeps answers exact; a larger value is logged as a warning at each start.";
    }
    settings "`[defaults]` and `[camera.NAME]`" "A camera uses the value in `[defaults]` for each of these keys that it does not have."
        "[defaults]\nrate = 2\nevents = { confirm = \"3 of 5\" }" {
        RATE: NumberForm = "rate", NumberForm { range: d::RATE_HZ_RANGE, unit: "looks per second" }, Number(d::RATE_HZ), "rate = 2",
            "The most looks per second. Each look uses the newest frame; older frames are dropped and counted.";
        WIDTH: WholeForm = "width", WholeForm { range: d::WIDTH_RANGE, unit: "pixels" }, Whole(d::WIDTH), "width = 1920",
            "Frames are scaled down to this width while decoding. The aspect ratio is kept; frames are never enlarged.";
        TRANSPORT: WordForm<Transport> = "transport",
            WordForm(&[("tcp", Transport::Tcp), ("udp", Transport::Udp), ("auto", Transport::Auto)], d::TRANSPORT),
            Word, "transport = \"udp\"",
            "RTP transport of an RTSP camera. `auto` tries TCP and falls back to UDP when the camera refuses TCP. With UDP, lost packets damage pictures.";
        STALL: TimeForm = "stall", TimeForm(d::STALL_RANGE), Time(d::STALL), "stall = \"10s\"",
            "Without a frame for this time, Spotter reconnects to the camera.";
        FIRST_FRAME: TimeForm = "first_frame", TimeForm(d::FIRST_FRAME_RANGE), Time(d::FIRST_FRAME), "first_frame = \"30s\"",
            "Longest time from connecting to the first frame.";
        DECODE: WordForm<Decode> = "decode", WordForm(&[("all", Decode::All), ("keyframes", Decode::KeyFrames)], d::DECODE),
            Word, "decode = \"keyframes\"",
            "`keyframes` decodes only key frames, which costs least; the rate is then limited by how often the camera sends one.";
        SCHEDULE: CustomForm = "schedule", CustomForm("`\"DAYS FROM-TO ZONE\"`: days Mon to Sun, times 00:00 to 24:00, IANA time zone"),
            Rule("always"), "schedule = \"Mon-Fri 18:00-06:00 Europe/Berlin\"",
            "Times at which the camera is watched. A span over midnight belongs to the day on which it starts.";
        MOTION: CustomForm = "motion", CustomForm("table"), Rule("see `motion`"), "motion = { on = true }", "Motion gate.";
        EVENTS: CustomForm = "events", CustomForm("table"), Rule("see `events`"), "events = { confirm = \"3 of 5\" }",
            "When events start and end.";
    }
    motion "`motion`" "The motion gate skips frames without motion. In `[defaults]` and `[camera.NAME]`."
        "motion = { on = true, threshold = 0.02, hold = \"10s\", at_least_every = \"30s\" }" {
        ON: FlagForm = "on", FlagForm, Flag(false), "motion = { on = true }", "Enables the gate.";
        THRESHOLD: NumberForm = "threshold", NumberForm { range: d::SHARE_RANGE, unit: "share of the picture" },
            Number(d::MOTION_THRESHOLD), "motion = { threshold = 0.02 }", "Share of the picture that must change to count as motion.";
        HOLD: TimeForm = "hold", TimeForm(d::MOTION_HOLD_RANGE), Time(d::MOTION_HOLD), "motion = { hold = \"10s\" }",
            "The gate stays open for this time after motion.";
        AT_LEAST_EVERY: TimeForm = "at_least_every", TimeForm(d::MOTION_AT_LEAST_EVERY_RANGE), Time(d::MOTION_AT_LEAST_EVERY),
            "motion = { at_least_every = \"30s\" }", "Longest time between two looks, also without motion.";
    }
    events "`events`" "When events start and end. In `[defaults]`, `[camera.NAME]` and `[camera.NAME.prompt.NAME]`."
        "events = { confirm = \"2 of 3\", end_after = \"3s\", still_after = \"30s\" }" {
        CONFIRM: CustomForm = "confirm", CustomForm("`\"HITS of LOOKS\"`, at most 100 looks"), Confirm(d::CONFIRM),
            "events = { confirm = \"3 of 5\" }", "An object must be found in HITS of the last LOOKS looks before its event starts.";
        END_AFTER: TimeForm = "end_after", TimeForm(d::EVENT_TIME_RANGE), Time(d::END_AFTER), "events = { end_after = \"5s\" }",
            "An event ends when its object was not found for this time.";
        STILL_AFTER: TimeForm = "still_after", TimeForm(d::EVENT_TIME_RANGE), Time(d::STILL_AFTER), "events = { still_after = \"30s\" }",
            "An object that did not move for this time is reported as still.";
    }
    camera "`[camera.NAME]`" "One camera. It also accepts every key of `[defaults]`."
        "[camera.gate]\nurl = \"rtsp://192.0.2.11/stream2\"\nuser = \"viewer\"\npassword = { env = \"GATE_PASSWORD\" }" {
        URL: CustomForm = "url", CustomForm(URL_FORMS),
            Required, "url = \"rtsp://192.0.2.11/stream2\"", "The video source. The URL has no user name and no password.";
        USER: CustomForm = "user", CustomForm("text"), Rule("no login"), "user = \"viewer\"", "User name of an RTSP camera.";
        PASSWORD: CustomForm = "password", CustomForm("secret"), Rule("none"), "password = { env = \"GATE_PASSWORD\" }",
            "Password of an RTSP camera; requires `user`. See [Secrets](#secrets).";
        TLS: CustomForm = "tls", CustomForm("table with `fingerprint` or `insecure`"), Rule("the certificate is checked with the authorities that this machine trusts"),
            "tls = { insecure = true }", "How the certificate of an `rtsps` camera is checked.";
        MASK: CustomForm = "mask", CustomForm("list of polygons, `[[[x, y], ...], ...]`, shares 0 to 1, origin top left"), Rule("none"),
            "mask = [[[0, 0], [1, 0], [1, 0.2], [0, 0.2]]]", "Areas that are blacked out before the model receives the picture.";
        ZONE: CustomForm = "zone", CustomForm("one table per zone"), Rule("none"), "[camera.gate.zone.drive]", "Named areas of the picture.";
        PROMPT: CustomForm = "prompt", CustomForm("one table per prompt"), Required, "[camera.gate.prompt.person]",
            "What the model looks for.";
    }
    camera_tls "`tls` in `[camera.NAME]`" "Checks of an `rtsps` camera's certificate. Use one of the two keys." "tls = { insecure = true }" {
        FINGERPRINT: CustomForm = "fingerprint", CustomForm("`\"sha256:\"` and 64 hex digits, with or without colons"), Rule("none"),
            "tls = { fingerprint = \"sha256:6f1e...\" }",
            "SHA-256 of the camera's certificate. `openssl x509 -noout -fingerprint -sha256` prints it.";
        INSECURE: FlagForm = "insecure", FlagForm, Flag(false), "tls = { insecure = true }",
            "Accepts any certificate, with a warning at each start. An attacker on the network can then read and change everything.";
    }
    zone "`[camera.NAME.zone.NAME]`" "A named area of the camera's picture."
        "[camera.gate.zone.drive]\npolygon = [[0.05, 0.55], [0.95, 0.55], [0.95, 1.0], [0.05, 1.0]]" {
        POLYGON: CustomForm = "polygon", CustomForm("`[[x, y], ...]`, at least 3 points, shares 0 to 1, origin top left"), Required,
            "polygon = [[0, 0.5], [1, 0.5], [1, 1], [0, 1]]", "Corners in order around the area. Edges must not cross.";
        POINT: WordForm<ZonePoint> = "point", WordForm(&[("bottom", ZonePoint::Bottom), ("centre", ZonePoint::Centre)], d::ZONE_POINT),
            Word, "point = \"centre\"",
            "Which point of a box must be inside: the middle of its lower edge or its centre.";
    }
    prompt "`[camera.NAME.prompt.NAME]`" "What the model looks for. Exactly one of `detect`, `point` and `query` is required."
        "[camera.gate.prompt.person]\ndetect = \"person\"\nzones = [\"drive\"]\nmin_score = 0.4" {
        DETECT: CustomForm = "detect", CustomForm("text, at most 200 characters"), Rule("none"), "detect = \"red car\"",
            "Objects to find, in plain words. The answer is a list of boxes.";
        POINT: CustomForm = "point", CustomForm("text, at most 200 characters"), Rule("none"), "point = \"crane hook\"",
            "Objects to find, in plain words. The answer is a list of points.";
        QUERY: CustomForm = "query", CustomForm("text, at most 200 characters"), Rule("none"), "query = \"Is the door open?\"",
            "A question about the picture. The answer is text.";
        CHOICES: CustomForm = "choices", CustomForm("list of 2 to 16 texts, each at most 40 characters"), Rule("any text"),
            "choices = [\"open\", \"closed\"]", "The only answers to `query` that the model may give.";
        RATE: NumberForm = "rate", NumberForm { range: d::RATE_HZ_RANGE, unit: "looks per second" }, Rule("the camera's rate"), "rate = 0.2",
            "Looks per second for this prompt; at most the camera's rate.";
        MIN_SCORE: NumberForm = "min_score", NumberForm { range: d::SHARE_RANGE, unit: "" }, Number(d::MIN_SCORE), "min_score = 0.4",
            "Objects with a lower score are not reported.";
        MIN_AREA: NumberForm = "min_area", NumberForm { range: d::SHARE_RANGE, unit: "share of the picture" }, Number(d::MIN_AREA),
            "min_area = 0.002", "Smaller boxes are not reported. Only for `detect`.";
        ZONES: CustomForm = "zones", CustomForm("list of zone names of this camera"), Rule("the whole picture"), "zones = [\"drive\"]",
            "Only objects in one of these zones count. Not for `query`.";
        SNAPSHOT: FlagForm = "snapshot", FlagForm, Flag(false), "snapshot = true", "Publishes a picture of each event's best moment.";
        VERIFY: CustomForm = "verify", CustomForm("text, at most 200 characters"), Rule("none"), "verify = \"Is there a parcel?\"",
            "A yes/no question that the model must answer with yes before an event starts. Not for `query`.";
        EVENTS: CustomForm = "events", CustomForm("table"), Rule("the camera's `events`"), "events = { confirm = \"2 of 2\" }",
            "When events of this prompt start and end.";
    }
    secret "Secrets" "Passwords and keys are not written in this file. Each is a table with exactly one of these keys."
        "password = { cred = \"mqtt_password\" }" {
        ENV: CustomForm = "env", CustomForm("name of an environment variable"), Rule("none"), "password = { env = \"GATE_PASSWORD\" }",
            "Reads the secret from an environment variable.";
        CRED: CustomForm = "cred", CustomForm("name of a systemd credential"), Rule("none"), "password = { cred = \"mqtt_password\" }",
            "Reads a password from a credential: `LoadCredential=mqtt_password:PATH` in the unit.";
        CRED_FILE: CustomForm = "cred_file", CustomForm("name of a systemd credential"), Rule("none"),
            "client_key = { cred_file = \"mqtt_key\" }", "The same for a private key (`client_key`).";
        FILE: CustomForm = "file", CustomForm("path, relative to the configuration file"), Rule("none"),
            "password = { file = \"/etc/spotter/front\" }", "Reads the secret from a file. A file that all users can read causes a warning.";
    }
}
