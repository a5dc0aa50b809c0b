//! What is wrong, and what an operator does about it: the table of all kinds, with the paragraph of the documentation that says more.

use serde::{Serialize, Serializer};
use spotter_core::StreamFault;
use strum::{EnumIter, IntoStaticStr};

/// A problem of this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub kind: TroubleKind,
    /// What is wrong with which thing, in one line, without any login.
    pub text: String,
}

/// Its word is that of `reason` in a camera's `health`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumIter, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum TroubleKind {
    /// The camera connects: expected to end without an operator, and not shown on the page.
    Starting,
    /// A camera does not stream.
    #[strum(transparent)]
    Camera(StreamFault),
    BrokenAdapter,
    NoStrips,
    /// The shapes of a camera were drawn on a picture of another form.
    OtherAspect,
    TriggerRejected,
    OnvifEvents,
    BrokerLost,
    BrokerRefused,
    BrokerUntrusted,
    BrokerTakenOver,
    WebhookFailing,
    WebhookRefusing,
    EngineLost,
    FleetStore,
    /// Cameras or looks of the fleet are missing. No failure of this node.
    FleetIncomplete,
    StateDisk,
    /// Events are not stored, or without their pictures.
    HistoryStopped,
    /// The previous configuration works on.
    ConfigRejected,
    /// Messages are later than `model.budget`.
    OverBudget,
}

impl Trouble {
    pub fn new(kind: TroubleKind, text: String) -> Self {
        Self { kind, text }
    }
}

impl TroubleKind {
    /// Whether `/healthz` counts it.
    pub fn is_failure(self) -> bool {
        !matches!(
            self,
            Self::FleetIncomplete | Self::ConfigRejected | Self::OverBudget | Self::OtherAspect
        )
    }

    /// What an operator does, and the page and heading in `docs` that explain it; `None` where waiting is all.
    pub fn advice(self) -> Option<(&'static str, &'static str)> {
        let (advice, paragraph) = match self {
            Self::Starting => return None,
            Self::Camera(fault) => camera_advice(fault),
            Self::BrokenAdapter => (
                "Mend or replace the file of the adapter. Spotter looks at it every few seconds and asks the prompts again.",
                "gpu.md#adapters",
            ),
            Self::NoStrips => (
                "Raise the camera's frame rate, or set a longer `over` or fewer `frames` in the prompts that the line names.",
                "gpu.md#film-strips",
            ),
            Self::OtherAspect => (
                "Open the camera in the view “Draw”, look whether each shape is still in its place, and save. Until then, nothing moves by itself.",
                "page.md#draw",
            ),
            Self::TriggerRejected => (
                "Allow Spotter's user to read this topic in the access rules of the broker.",
                "mqtt.md#access-rules",
            ),
            Self::OnvifEvents => (
                "Check the camera's ONVIF address and login, and that ONVIF events are on. Its triggers stay inactive until then.",
                "onvif.md#events",
            ),
            Self::BrokerLost => (
                "Check that the broker runs and that `mqtt.url` is its address. Events wait on this machine and are published later.",
                "mqtt.md#connection",
            ),
            Self::BrokerRefused => (
                "Check user, password and access rules of the broker, and the clock of both machines. Events wait on this machine.",
                "mqtt.md#connection",
            ),
            Self::BrokerUntrusted => (
                "Set `mqtt.ca` to the authority that signed the broker's certificate. Spotter does not connect without a check.",
                "mqtt.md#tls",
            ),
            Self::BrokerTakenOver => (
                "Give each machine its own `node.name`.",
                "mqtt.md#connection",
            ),
            Self::WebhookFailing => (
                "Check that the receiver runs and that its address is right. Its events wait on this machine and are posted later.",
                "webhooks.md#delivery",
            ),
            Self::WebhookRefusing => (
                "Correct the URL or the login of the webhook, or let the receiver accept its events. Refused events are lost.",
                "webhooks.md#delivery",
            ),
            Self::EngineLost => (
                "Other engines watch its cameras, and Spotter opens it again. If it fails again, read the log: `journalctl -u spotter`.",
                "operations.md#model-and-speed",
            ),
            Self::FleetStore => (
                "Check the addresses of the fleet's NATS servers, their login and the network. Cameras stay where they are meanwhile.",
                "fleet.md#when-something-fails",
            ),
            Self::FleetIncomplete => (
                "Start the boxes that have no heartbeat, add one, or lower the rates of the cameras.",
                "fleet.md#which-box-has-which-camera",
            ),
            Self::HistoryStopped => (
                "Free space on the disk of `node.state_dir`, or lower `history.size`. Events are still sent, and storing them is tried again.",
                "state.md#what-spotter-does-when-something-is-wrong",
            ),
            Self::StateDisk => (
                "Free space on the disk of `node.state_dir` and let Spotter write there. Until then, changes and events are lost at a stop.",
                "state.md#what-spotter-does-when-something-is-wrong",
            ),
            Self::ConfigRejected => (
                "Correct the lines below and reload; `spotter check` shows the mistakes before. The previous configuration works on.",
                "mqtt.md#reload",
            ),
            Self::OverBudget => (
                "Lower `rate` or `width` of cameras, ask fewer prompts, or use a faster device; `spotter bench` says what this one can do.",
                "operations.md#model-and-speed",
            ),
        };
        Some((advice, paragraph))
    }
}

/// The same for a camera that does not stream.
fn camera_advice(fault: StreamFault) -> (&'static str, &'static str) {
    match fault {
        StreamFault::Unreachable => (
            "Check the camera's power, its address in the configuration, and the network or firewall in between.",
            "operations.md#cameras",
        ),
        StreamFault::NotFound => (
            "Correct the path of the URL. For an ONVIF camera, `spotter discover` lists its streams.",
            "onvif.md#find-cameras",
        ),
        StreamFault::AuthFailed => (
            "Correct user and password of the camera in the configuration, and reload. Until then Spotter tries rarely, so that the camera does not lock the account.",
            "operations.md#cameras",
        ),
        StreamFault::TooManySessions => (
            "Close other viewers of the camera, or use its second stream.",
            "operations.md#cameras",
        ),
        StreamFault::Unsupported | StreamFault::NotVideo => (
            "Set the stream to H.264, H.265 or JPEG in the camera, or choose another stream of it.",
            "operations.md#cameras",
        ),
        StreamFault::NoFrame | StreamFault::Stalled => (
            "Try the other `transport`, or the camera's second stream; look at the camera's load and the network.",
            "operations.md#cameras",
        ),
        StreamFault::Disconnected => (
            "Spotter connects again by itself. If it repeats, check the camera's power supply, its network and its firmware.",
            "operations.md#cameras",
        ),
        StreamFault::Protocol => (
            "Check that the URL is of an RTSP camera and not of its web page; `spotter check --probe` shows what it answers.",
            "operations.md#cameras",
        ),
        StreamFault::Tls => (
            "Set `tls.fingerprint` of the camera to the SHA-256 of its certificate. If it has changed, find out why first.",
            "configuration.md#tls-in-cameraname",
        ),
        StreamFault::Device => (
            "End other programs that use the device, and let Spotter's user read it.",
            "operations.md#cameras",
        ),
    }
}

/// Those that the page shows, with `advice` and the paragraph `help` below `docs`.
pub fn trouble_keys<S: Serializer>(troubles: &[Trouble], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Shown<'a> {
        kind: &'static str,
        text: &'a str,
        advice: &'static str,
        help: &'static str,
    }
    let shown = troubles.iter().filter_map(|Trouble { kind, text }| {
        let (advice, help) = kind.advice()?;
        Some(Shown {
            kind: kind.into(),
            text,
            advice,
            help,
        })
    });
    serializer.collect_seq(shown)
}
