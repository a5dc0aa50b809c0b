//! What the broker delivers, by a client that is not made of our own code: `mosquitto_sub`.

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::{Arc, mpsc},
    thread,
};

use anyhow::Context as _;
use serde::Deserialize;
use spotter_core::{Clock as _, Mono, SystemClock};

use super::member_box::FLEET;

const LINES: usize = 100_000;

/// A line as it arrived.
pub struct BrokerLine {
    pub at: Mono,
    pub text: String,
}

/// A subscription to all topics of cameras; it connects again when the broker returns.
pub struct BrokerLines {
    child: Child,
    lines: mpsc::Receiver<BrokerLine>,
}

impl BrokerLines {
    pub fn of(broker: SocketAddr, clock: Arc<SystemClock>) -> anyhow::Result<Self> {
        let mut child = Command::new("mosquitto_sub")
            .args(["-h", &broker.ip().to_string()])
            .args(["-p", &broker.port().to_string()])
            .args(["-V", "5", "-q", "0", "-F", "%r %t %P %p"])
            .args(["-t", &format!("spotter/{FLEET}/cam/#")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("starting mosquitto_sub (package mosquitto-clients)")?;
        let output = child.stdout.take().context("mosquitto_sub has no output")?;
        let (sender, lines) = mpsc::sync_channel(LINES);
        let reader = move || {
            for text in BufReader::new(output).lines().map_while(Result::ok) {
                let at = clock.now();
                if sender.send(BrokerLine { at, text }).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("broker lines".into());
        thread.spawn(reader)?;
        Ok(Self { child, lines })
    }

    /// Those since the last call.
    pub fn new_ones(&self) -> impl Iterator<Item = BrokerLine> {
        self.lines.try_iter()
    }
}

impl Drop for BrokerLines {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// A message of a camera.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CameraMessage {
    pub camera: String,
    /// The broker had it before.
    pub is_retained: bool,
    pub epoch: u64,
    /// The box that published it; `None`: a released camera.
    pub node: Option<usize>,
    pub kind: CameraMessageKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CameraMessageKind {
    Owner,
    State,
    Event { is_delayed: bool },
}

#[derive(Deserialize)]
struct OwnerLine {
    node: Option<String>,
    epoch: u64,
}

#[derive(Deserialize)]
struct EventLine {
    event: String,
    epoch: u64,
    delayed: bool,
}

impl CameraMessage {
    /// `None`: a message that no box of a fleet publishes.
    pub fn of(line: &str) -> Option<Self> {
        let mut parts = line.splitn(4, ' ');
        let is_retained = parts.next()? == "1";
        let levels: Vec<&str> = parts.next()?.split('/').collect();
        let (property, payload) = (parts.next()?, parts.next()?);
        let ["spotter", _, "cam", camera, ref leaf @ ..] = levels[..] else {
            return None;
        };
        let (epoch, node, kind) = match *leaf.first()? {
            "owner" => {
                let owner: OwnerLine = serde_json::from_str(payload).ok()?;
                let node = owner.node.as_deref().and_then(box_number);
                (owner.epoch, node, CameraMessageKind::Owner)
            }
            "answer" => {
                let epoch = property.strip_prefix("epoch:")?.parse().ok()?;
                (epoch, Some(box_number(payload)?), CameraMessageKind::State)
            }
            "event" => {
                let event: EventLine = serde_json::from_str(payload).ok()?;
                let is_delayed = event.delayed;
                let kind = CameraMessageKind::Event { is_delayed };
                (event.epoch, Some(box_number(&event.event)?), kind)
            }
            _ => return None,
        };
        Some(Self {
            camera: camera.to_owned(),
            is_retained,
            epoch,
            node,
            kind,
        })
    }
}

/// Of `b3`, or of what begins with `b3_`.
fn box_number(text: &str) -> Option<usize> {
    let digits = text.strip_prefix('b')?.split('_').next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_cameras_name_box_and_epoch() {
        let state = "0 spotter/lab/cam/c7/answer/p epoch:17 b3_2 41";
        let message = CameraMessage::of(state).unwrap();
        assert_eq!((message.epoch, message.node), (17, Some(3)));
        assert_eq!(message.kind, CameraMessageKind::State);
        let owner = "1 spotter/lab/cam/c7/owner epoch:18 {\"v\":1,\"node\":null,\"epoch\":18}";
        let message = CameraMessage::of(owner).unwrap();
        assert!(message.is_retained && message.node.is_none());
        let event = "0 spotter/lab/cam/c7/event/p  {\"event\":\"b12_0-c7-5\",\"epoch\":19,\"delayed\":true}";
        let message = CameraMessage::of(event).unwrap();
        assert_eq!((message.epoch, message.node), (19, Some(12)));
        assert_eq!(CameraMessage::of("0 spotter/lab/cam/c7/owner  "), None);
    }
}
