//! What the stages of the daemon say to each other.

use std::{sync::Arc, time::Duration};

use super::command_sender::CommandSender;
use spotter_api::TriggerRequest;
use spotter_config::LoadedConfig;
use spotter_core::{CameraId, LineId, LookNews, TrackId, TriggerId, TriggerSignal, TriggeredLooks};
use spotter_mqtt::{Inbound, SentDetection};
use spotter_page::PageRequest;

/// What a stage says; the comments name who says it, and who acts on it.
pub enum StageNotice {
    /// The loop begins.
    Started,
    /// Engines: looks have news, the answers in the order of each topic. Commands, answers, triggers.
    Looks(Vec<LookNews>),
    /// Engines: one is lost. Commands; answers, unless it was the last.
    EngineLost(EngineLoss),
    /// Engines: others run now. Commands, fleet.
    EnginesChanged(RunningEngines),
    /// Engines: one has the adapters that it was given. Engines, HTTP servers.
    AdaptersSet,
    /// Broker: a detection was handed to the MQTT client. Figures, console.
    Sent(Box<SentDetection>),
    /// Broker: a message came. Commands, triggers.
    Received(Inbound),
    /// HTTP API: a call for a trigger, until a stage takes it. Fleet, triggers.
    TriggerCalled(Option<TriggerRequest>),
    /// Page: a client waits for an answer. Commands.
    PageAsked(Option<PageRequest>),
    /// ONVIF events: the source of a trigger says something. Triggers.
    Signalled(TriggerCall),
    /// Triggers: a camera is looked at from now on, or not. Cameras.
    LookSwitched(CameraId, TriggeredLooks),
    /// Cameras: one is on, or off: by a command or the schedule, because its file has ended, or because none of its triggers is active. A lost
    /// connection is neither. Answers.
    CameraSwitched { camera: CameraId, is_on: bool },
    /// Cameras: the session of one that was removed is closed. Fleet.
    SessionClosed(CameraId),
    /// Answers: the picture of the event of a track, a JPEG. Webhooks.
    PictureTaken(TrackId, Arc<[u8]>),
    /// Commands: connect again. Cameras.
    ReconnectAsked(CameraId),
    /// Commands: set the counts at a line to 0. Answers.
    LineReset(CameraId, LineId),
    /// Commands: a picture of the next look. Answers, triggers.
    SnapshotAsked(CameraId),
    /// Commands: look at a camera for this time. Triggers.
    LooksAsked(CameraId, Duration),
    /// Commands, or a signal without a sender: read the file again. Reload.
    ReloadAsked(Option<CommandSender>),
    /// Reload: the file was read. Commands reply, then reload carries it out.
    FileRead(ReadFile),
    /// Reload: the file is valid and in force. Engines, fleet, broker, webhooks.
    FileApplied,
    /// Reload, fleet: the file or the list was read, with these errors. Commands.
    ConfigReported(Vec<String>),
    /// Membership: there is something to carry out. Fleet.
    FleetDecided,
    /// Fleet: this node publishes a camera from now on. Cameras.
    Owned(CameraId),
    /// Fleet: another node is about to have a camera. Answers.
    HandingOver(CameraId),
    /// Fleet: other nodes publish these cameras now, or are about to. Commands.
    Moved(Vec<CameraId>),
    /// Any: the run ends. The daemon.
    End(anyhow::Result<RunEnd>),
}

/// How a run ends.
pub enum RunEnd {
    Stop,
    /// All stages have to start again with this configuration.
    Restart(Box<LoadedConfig>),
}

/// The engines that run now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningEngines {
    pub count: usize,
    /// Names of the GPUs in use.
    pub gpus: Vec<String>,
}

/// The effect of a lost engine.
pub struct EngineLoss {
    /// Its cameras; another engine has them now, unless it was the last.
    pub cameras: Vec<CameraId>,
    /// The device and its error.
    pub reason: String,
    /// No engine is left.
    pub is_last: bool,
}

/// The file as it was read, and the commands that asked for it.
pub struct ReadFile {
    pub senders: Vec<CommandSender>,
    pub found: FoundFile,
}

/// What the file is to the running configuration.
#[derive(Default)]
pub enum FoundFile {
    #[default]
    Unchanged,
    /// Only cameras, modes, webhooks and adapters are others.
    InPlace(Box<LoadedConfig>),
    /// Other sections are others too.
    Restart(Box<LoadedConfig>),
    /// The file has these errors; the running configuration stays active.
    Rejected(Vec<String>),
}

/// A signal of a source that runs beside the daemon's loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriggerCall {
    pub camera: CameraId,
    pub trigger: TriggerId,
    pub signal: TriggerSignal,
}
