//! Every key of the configuration file: its form, unit, range, default and meaning. A `Reader` knows the keys of its table
//! from here and reads no other, so a key cannot exist without its documentation; [`reference`](super::reference()) prints it.

use std::{ops::RangeInclusive, time::Duration};

use super::{defaults as d, parse::duration_text};

/// One key of a table.
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) form: Form,
    /// What applies without the key, as it would be written; empty when the key has no default.
    pub(super) default: fn() -> String,
    /// Markdown, one paragraph.
    pub(super) doc: &'static str,
}

/// What a value looks like.
pub(super) enum Form {
    Text,
    Path,
    /// A secret that is named, not written.
    Secret(&'static TableKeys),
    Flag,
    Number {
        range: RangeInclusive<f64>,
        unit: &'static str,
    },
    Whole {
        range: RangeInclusive<u64>,
        unit: &'static str,
    },
    Time(RangeInclusive<Duration>),
    Choice(&'static [&'static str]),
    /// An array; what its elements are.
    List(&'static str),
    Table(&'static TableKeys),
    /// Tables by id: `[camera.front]`, `[camera.yard]`.
    Tables(&'static TableKeys),
}

/// The keys of a table.
pub(super) struct TableKeys {
    /// Its heading in the reference, such as `[mqtt]`.
    pub(super) heading: &'static str,
    pub(super) doc: &'static str,
    /// A piece of a file, which a test reads.
    pub(super) example: &'static str,
    /// Groups, because cameras share keys with `[defaults]`.
    pub(super) groups: &'static [&'static [Key]],
}

impl TableKeys {
    pub(super) fn keys(&self) -> impl Iterator<Item = &'static Key> {
        self.groups.iter().copied().flatten()
    }

    /// The key of this name. Code that reads another one has a bug, which each test of the table finds.
    pub(super) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys().find(|key| key.name == name)
    }
}

const fn key(name: &'static str, form: Form, default: fn() -> String, doc: &'static str) -> Key {
    Key {
        name,
        form,
        default,
        doc,
    }
}

fn none() -> String {
    String::new()
}

fn off() -> String {
    "false".into()
}

const SHARE: Form = Form::Number {
    range: d::SHARE_RANGE,
    unit: "",
};
const RATE: Form = Form::Number {
    range: d::RATE_HZ_RANGE,
    unit: "1/s",
};

pub(super) static ROOT: TableKeys = TableKeys {
    heading: "Top of the file",
    doc: "Keys before the first table.",
    example: "schema = 1",
    groups: &[&[
        key(
            "schema",
            Form::Whole {
                range: 0..=u64::MAX,
                unit: "",
            },
            || d::SCHEMA.to_string(),
            "Version of the file's structure. This version of Spotter reads schema 1 only.",
        ),
        key(
            "allow_plain_secrets",
            Form::Flag,
            off,
            "Passwords may be written into the file as text; each one gives a warning.",
        ),
        key("node", Form::Table(&NODE), none, ""),
        key("http", Form::Table(&HTTP), none, ""),
        key("mqtt", Form::Table(&MQTT), none, ""),
        key("model", Form::Table(&MODEL), none, ""),
        key("defaults", Form::Table(&DEFAULTS), none, ""),
        key("camera", Form::Tables(&CAMERA), none, ""),
    ]],
};

static NODE: TableKeys = TableKeys {
    heading: "[node]",
    doc: "This machine. A change restarts the daemon inside its process.",
    example: "[node]\nname = \"edge1\"",
    groups: &[&[
        key(
            "name",
            Form::Text,
            || "the host name".into(),
            "Level of all topics: 1 to 32 of `a-z 0-9 _ -`. Two machines at one broker need two names.",
        ),
        key(
            "state_dir",
            Form::Path,
            || "\"auto\"".into(),
            "Directory for overrides, retained topics and the spool. `auto` is systemd's `StateDirectory`, else a directory in the user's home.",
        ),
    ]],
};

static HTTP: TableKeys = TableKeys {
    heading: "[http]",
    doc: "Status page, metrics and health probes. A change restarts the daemon inside its process.",
    example: "[http]\nlisten = \"127.0.0.1:9464\"",
    groups: &[&[key(
        "listen",
        Form::Text,
        || format!("\"{}\"", d::HTTP_LISTEN),
        "Address with port, or `off`. The page has no login, so keep it on loopback or behind a proxy.",
    )]],
};

static MQTT: TableKeys = TableKeys {
    heading: "[mqtt]",
    doc: "The broker; required. A change restarts the daemon inside its process.",
    example: "[mqtt]\nurl = \"mqtts://broker.example.net\"\nuser = \"edge1\"\npassword = { cred = \"mqtt_password\" }",
    groups: &[&[
        key(
            "url",
            Form::Text,
            none,
            "`mqtt://HOST[:1883]`, or `mqtts://HOST[:8883]` with TLS. Required.",
        ),
        key(
            "base",
            Form::Text,
            || format!("\"{}\"", d::MQTT_BASE),
            "First level of all topics.",
        ),
        key("user", Form::Text, none, "Login name."),
        key(
            "password",
            Form::Secret(&PASSWORD),
            none,
            "Password of `user`.",
        ),
        key(
            "ca",
            Form::Path,
            || "the machine's authorities".into(),
            "PEM file with the authorities that may sign the broker's certificate. Read again before every connection.",
        ),
        key(
            "client_cert",
            Form::Path,
            none,
            "PEM file with Spotter's own certificate; needs `client_key`. Read again before every connection.",
        ),
        key(
            "client_key",
            Form::Secret(&PEM_KEY),
            none,
            "PEM key of `client_cert`: `{ file = … }` or `{ cred_file = … }`.",
        ),
        key(
            "tls",
            Form::Table(&INSECURE_TLS),
            none,
            "`{ insecure = true }` skips the verification of the broker's certificate, with a warning at each start.",
        ),
        key(
            "commands",
            Form::Choice(&["off", "basic", "all"]),
            || "\"basic\"".into(),
            "Which commands are accepted over MQTT: none, the `…/set` topics, or also requests on `cmd`.",
        ),
        key(
            "overrides",
            Form::Choice(&["keep", "forget"]),
            || "\"keep\"".into(),
            "Whether values that were changed over MQTT survive a restart.",
        ),
        key(
            "retain_snapshots",
            Form::Flag,
            off,
            "The broker keeps the last snapshot of each prompt for later subscribers.",
        ),
        key(
            "spool",
            Form::Table(&SPOOL),
            none,
            "Events that wait for the broker.",
        ),
        key(
            "ha",
            Form::Table(&HOME_ASSISTANT),
            none,
            "Home Assistant discovery.",
        ),
    ]],
};

static INSECURE_TLS: TableKeys = TableKeys {
    heading: "mqtt.tls",
    doc: "For tests with a self-signed certificate; `ca` is the better way.",
    example: "[mqtt]\nurl = \"mqtts://broker.example.net\"\ntls = { insecure = true }",
    groups: &[&[key(
        "insecure",
        Form::Flag,
        off,
        "Anyone between Spotter and the broker can read and change all messages.",
    )]],
};

static SPOOL: TableKeys = TableKeys {
    heading: "mqtt.spool",
    doc: "Bounds of the events on disk while the broker is down. The oldest events are dropped first, and counted.",
    example: "[mqtt]\nurl = \"mqtt://broker.local\"\nspool = { events = 5000, max_age = \"24h\", max_mb = 20 }",
    groups: &[&[
        key(
            "events",
            Form::Whole {
                range: d::SPOOL_EVENTS_RANGE,
                unit: "",
            },
            || d::SPOOL_EVENTS.to_string(),
            "Number of events.",
        ),
        key(
            "max_age",
            Form::Time(d::SPOOL_MAX_AGE_RANGE),
            || time(d::SPOOL_MAX_AGE),
            "Older events are dropped.",
        ),
        key(
            "max_mb",
            Form::Whole {
                range: d::SPOOL_MAX_MB_RANGE,
                unit: "MB",
            },
            || d::SPOOL_MAX_MB.to_string(),
            "Space on disk.",
        ),
    ]],
};

static HOME_ASSISTANT: TableKeys = TableKeys {
    heading: "mqtt.ha",
    doc: "Discovery records for Home Assistant.",
    example: "[mqtt]\nurl = \"mqtt://broker.local\"\nha = { discovery = \"device\" }",
    groups: &[&[
        key(
            "discovery",
            Form::Choice(&["device", "single", "off"]),
            || "\"device\"".into(),
            "One record per device, one per entity, or none.",
        ),
        key(
            "prefix",
            Form::Text,
            || format!("\"{}\"", d::HA_PREFIX),
            "Home Assistant's discovery prefix.",
        ),
    ]],
};

static MODEL: TableKeys = TableKeys {
    heading: "[model]",
    doc: "The model and its device. A change restarts the daemon inside its process.",
    example: "[model]\npath = \"/var/lib/spotter/models/moondream2\"\nprecision = \"bf16\"",
    groups: &[&[
        key(
            "path",
            Form::Path,
            || "\"embedded\"".into(),
            "Directory with `config.json`, `model.safetensors` and `tokenizer.json`. `embedded` is the demonstration model, which knows only the demo's drawn street.",
        ),
        key(
            "device",
            Form::Choice(&["auto", "cpu", "cuda"]),
            || "\"auto\"".into(),
            "`auto` uses the GPU if it works and the CPU otherwise; `cuda` is the GPU or no start.",
        ),
        key(
            "gpus",
            Form::List("GPU numbers, 0 to 63"),
            || format!("{:?}", d::GPUS),
            "One engine on each of these GPUs. Cameras are assigned in the order of the file, each to the next GPU.",
        ),
        key(
            "precision",
            Form::Choice(&["bf16", "fp8"]),
            || "\"bf16\"".into(),
            "Arithmetic on a GPU. `fp8` is faster from compute capability 8.9 on and a little less exact. The CPU computes in f32.",
        ),
        key(
            "budget",
            Form::Time(d::BUDGET_RANGE),
            || {
                let (usual, embedded) = (time(d::BUDGET), time(d::BUDGET_EMBEDDED));
                format!("{usual}; {embedded} with the embedded model")
            },
            "Age up to which a frame is looked at. Older frames are dropped and counted as `late`.",
        ),
        key(
            "max_objects",
            Form::Whole {
                range: d::MAX_OBJECTS_RANGE,
                unit: "",
            },
            || d::MAX_OBJECTS.to_string(),
            "Most objects in one answer; more are cut off (`truncated`).",
        ),
        key(
            "frames",
            Form::Choice(&["host", "gpu"]),
            || "\"host\"".into(),
            "`gpu` leaves frames that an NVIDIA decoder decodes on the GPU ([gpu.md](gpu.md#frames-that-stay-on-the-gpu)).",
        ),
        key(
            "tile_difference",
            Form::Number {
                range: d::TILE_DIFFERENCE_RANGE,
                unit: "steps of a byte",
            },
            || d::TILE_DIFFERENCE.to_string(),
            "A tile of the picture in which no byte differs by more keeps its features. 0 is exact; more is faster and changes answers.",
        ),
    ]],
};

static DEFAULTS: TableKeys = TableKeys {
    heading: "[defaults]",
    doc: "Values for all cameras that do not set their own.",
    example: "[defaults]\nrate = 2.0\nevents = { confirm = \"2 of 3\" }",
    groups: &[SETTINGS],
};

/// What `[defaults]` and `[camera.*]` have in common.
static SETTINGS: &[Key] = &[
    key(
        "rate",
        RATE,
        || d::RATE_HZ.to_string(),
        "Looks per second. The newest frame is looked at; frames in between are dropped and counted.",
    ),
    key(
        "width",
        Form::Whole {
            range: d::WIDTH_RANGE,
            unit: "pixels",
        },
        || d::WIDTH.to_string(),
        "Frames are scaled to this width while decoding; the aspect ratio is kept, and frames are never enlarged.",
    ),
    key(
        "transport",
        Form::Choice(&["tcp", "udp", "auto"]),
        || format!("\"{}\"", d::TRANSPORT),
        "How RTP travels. `auto` tries TCP first and UDP when the camera refuses TCP, and remembers what worked.",
    ),
    key(
        "stall",
        Form::Time(d::STALL_RANGE),
        || time(d::STALL),
        "Without a frame for this time the camera is connected again.",
    ),
    key(
        "first_frame",
        Form::Time(d::FIRST_FRAME_RANGE),
        || time(d::FIRST_FRAME),
        "Time from connecting to the first frame.",
    ),
    key(
        "decode",
        Form::Choice(&["all", "keyframes"]),
        || "\"all\"".into(),
        "`keyframes` decodes keyframes only, which costs least; `rate` must then fit the camera's keyframe distance.",
    ),
    key(
        "schedule",
        Form::Text,
        || "always".into(),
        "When the camera is watched: days, times and a time zone, such as `Mon-Fri 18:00-06:00 Europe/Berlin`. A night belongs to the day on which it starts.",
    ),
    key("motion", Form::Table(&MOTION), none, "The motion gate."),
    key(
        "events",
        Form::Table(&EVENTS),
        none,
        "When objects become events.",
    ),
];

static MOTION: TableKeys = TableKeys {
    heading: "motion (of [defaults] and cameras)",
    doc: "The motion gate drops frames while the picture does not change.",
    example: "[defaults]\nmotion = { on = true, threshold = 0.02, hold = \"10s\", at_least_every = \"30s\" }",
    groups: &[&[
        key("on", Form::Flag, off, "Switches the gate on."),
        key(
            "threshold",
            SHARE,
            || d::MOTION_THRESHOLD.to_string(),
            "Share of the picture that must change to open the gate.",
        ),
        key(
            "hold",
            Form::Time(d::MOTION_HOLD_RANGE),
            || time(d::MOTION_HOLD),
            "The gate stays open for this time after motion.",
        ),
        key(
            "at_least_every",
            Form::Time(d::MOTION_AT_LEAST_EVERY_RANGE),
            || time(d::MOTION_AT_LEAST_EVERY),
            "A frame is looked at this often without motion.",
        ),
    ]],
};

static EVENTS: TableKeys = TableKeys {
    heading: "events (of [defaults], cameras and prompts)",
    doc: "When an object becomes an event, and when the event ends. Presence and counts follow the same values.",
    example: "[defaults]\nevents = { confirm = \"2 of 3\", end_after = \"3s\", still_after = \"30s\" }",
    groups: &[&[
        key(
            "confirm",
            Form::Text,
            || format!("\"{} of {}\"", d::CONFIRM.0, d::CONFIRM.1),
            "How many of the last looks must find an object before it counts, such as `2 of 3`.",
        ),
        key(
            "end_after",
            Form::Time(d::EVENT_TIME_RANGE),
            || time(d::END_AFTER),
            "An object that no look found for this time has left.",
        ),
        key(
            "still_after",
            Form::Time(d::EVENT_TIME_RANGE),
            || time(d::STILL_AFTER),
            "An object that has not moved for this time is `stationary`.",
        ),
    ]],
};

static CAMERA: TableKeys = TableKeys {
    heading: "[camera.NAME]",
    doc: "A camera. NAME is 1 to 32 of `a-z 0-9 _ -` and appears in topics. All keys of `[defaults]` may be set here too. Cameras, prompts and zones change in place on a reload.",
    example: "[camera.front]\nurl = \"rtsp://192.0.2.10/stream2\"\nuser = \"viewer\"\npassword = { cred = \"front_password\" }\nprompt.person.detect = \"person\"",
    groups: &[
        &[
            key(
                "url",
                Form::Text,
                none,
                "`rtsp://HOST[:554]/PATH`, `rtsps://…` (TLS), `file:///PATH` (with `?loop` for ever), `usb:///dev/video0`, or `test://`. Required. Logins in the URL are rejected.",
            ),
            key("user", Form::Text, none, "Login name; RTSP only."),
            key(
                "password",
                Form::Secret(&PASSWORD),
                none,
                "Password of `user`; RTSP only.",
            ),
            key(
                "tls",
                Form::Table(&CAMERA_TLS),
                || "verified by the machine's authorities".into(),
                "How the certificate of an `rtsps://` camera is verified.",
            ),
            key(
                "mask",
                Form::List("polygons `[[x, y], …]`, shares of the picture"),
                || "[]".into(),
                "Areas that are painted black before the model sees the picture.",
            ),
            key("zone", Form::Tables(&ZONE), none, "Zones, by name."),
            key(
                "prompt",
                Form::Tables(&PROMPT),
                none,
                "Prompts, by name; at least one.",
            ),
        ],
        SETTINGS,
    ],
};

static CAMERA_TLS: TableKeys = TableKeys {
    heading: "tls of a camera",
    doc: "One of the two keys.",
    example: "[camera.gate]\nurl = \"rtsps://192.0.2.11/main\"\ntls = { fingerprint = \"sha256:6f1ed002ab5595859014ebf0951522d96f1ed002ab5595859014ebf0951522d9\" }\nprompt.person.detect = \"person\"",
    groups: &[&[
        key(
            "fingerprint",
            Form::Text,
            none,
            "`sha256:` and the certificate's fingerprint (`openssl s_client -connect HOST:322 </dev/null | openssl x509 -noout -fingerprint -sha256`).",
        ),
        key(
            "insecure",
            Form::Flag,
            off,
            "The certificate is not verified; a warning at each start.",
        ),
    ]],
};

static ZONE: TableKeys = TableKeys {
    heading: "[camera.NAME.zone.NAME]",
    doc: "A part of the picture in which objects are counted.",
    example: "[camera.gate]\nurl = \"test://\"\nprompt.person.detect = \"person\"\n[camera.gate.zone.drive]\npolygon = [[0.05, 0.55], [0.95, 0.55], [0.95, 1.0], [0.05, 1.0]]",
    groups: &[&[
        key(
            "polygon",
            Form::List("points `[x, y]`, shares of the picture"),
            none,
            "Corners, origin top left. Required.",
        ),
        key(
            "point",
            Form::Choice(&["bottom", "centre"]),
            || "\"bottom\"".into(),
            "Which point of a box must be inside: the middle of its lower edge, or its centre.",
        ),
    ]],
};

static PROMPT: TableKeys = TableKeys {
    heading: "[camera.NAME.prompt.NAME]",
    doc: "What to look for: exactly one of `detect`, `point` and `query`. All prompts that are due on a frame share the encoding of its image.",
    example: "[camera.gate]\nurl = \"test://\"\n[camera.gate.prompt.parcel]\ndetect = \"cardboard parcel on the ground\"\nmin_score = 0.4\nsnapshot = true",
    groups: &[&[
        key(
            "detect",
            Form::Text,
            none,
            "An object in plain words; the answer is boxes. 1 to 200 characters.",
        ),
        key(
            "point",
            Form::Text,
            none,
            "The same; the answer is one point per object.",
        ),
        key(
            "query",
            Form::Text,
            none,
            "A question; the answer is text and becomes a state.",
        ),
        key(
            "choices",
            Form::List("2 to 16 texts of at most 40 characters"),
            || "any text".into(),
            "The answer to `query` is one of these texts, letter by letter.",
        ),
        key(
            "rate",
            RATE,
            || "the camera's".into(),
            "Looks per second for this prompt, at most the camera's.",
        ),
        key(
            "min_score",
            SHARE,
            || "0".into(),
            "Objects with a lower score are dropped.",
        ),
        key(
            "min_area",
            SHARE,
            || "0".into(),
            "Boxes that cover a smaller share of the picture are dropped; `detect` only.",
        ),
        key(
            "zones",
            Form::List("names of the camera's zones"),
            || "the whole picture".into(),
            "Objects outside of these zones are dropped; not for `query`.",
        ),
        key(
            "snapshot",
            Form::Flag,
            off,
            "Publish a JPEG when an event starts, and again for each better picture.",
        ),
        key(
            "verify",
            Form::Text,
            none,
            "A question about the whole picture that the model must answer with yes before an event starts; not for `query`.",
        ),
        key(
            "events",
            Form::Table(&EVENTS),
            || "the camera's".into(),
            "When objects become events.",
        ),
    ]],
};

static PASSWORD: TableKeys = TableKeys {
    heading: "Passwords",
    doc: "A password is named, not written. Its value is a table with one of these keys.",
    example: "[mqtt]\nurl = \"mqtt://broker.local\"\nuser = \"edge1\"\npassword = { env = \"MQTT_PASSWORD\" }",
    groups: &[&[
        key("env", Form::Text, none, "Name of an environment variable."),
        key(
            "cred",
            Form::Text,
            none,
            "Name of a systemd credential (`LoadCredential=NAME:PATH` in the unit).",
        ),
        key(
            "file",
            Form::Path,
            none,
            "A file; a warning if all users can read it. One line break at the end is removed.",
        ),
    ]],
};

static PEM_KEY: TableKeys = TableKeys {
    heading: "mqtt.client_key",
    doc: "A key is named like a password.",
    example: "[mqtt]\nurl = \"mqtts://broker.example.net\"\nclient_cert = \"/etc/site/edge1.pem\"\nclient_key = { cred_file = \"mqtt_key\" }",
    groups: &[&[
        key(
            "env",
            Form::Text,
            none,
            "Name of an environment variable with the PEM text.",
        ),
        key(
            "cred_file",
            Form::Text,
            none,
            "Name of a systemd credential with the PEM text.",
        ),
        key("file", Form::Path, none, "A PEM file."),
    ]],
};

fn time(duration: Duration) -> String {
    format!("\"{}\"", duration_text(duration))
}
