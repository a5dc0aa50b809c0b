//! Behaviour of a scripted camera, one script for each connection.

use std::{sync::Arc, time::Duration};

use super::tape::{CameraTape, media};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// RFC 7617.
    Basic,
    /// RFC 2069 with MD5, as cameras use it.
    Digest,
    /// As Digest, with SHA-256 alone (RFC 7616).
    DigestSha256,
    /// As Digest, but a nonce is stale after this number of requests.
    DigestFor(u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    pub scheme: Scheme,
    pub user: &'static str,
    pub password: &'static str,
}

/// Requests that a camera redirects, before it asks for a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redirect {
    /// DESCRIBE of this path, to this location.
    Path(&'static str, String),
    /// Every request, to another path each time.
    Always,
    /// Requests for `rtsp://`, to the same place by `rtsps://`.
    Unencrypted,
}

/// Transports that a camera supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Both,
    /// Interleaved only.
    Tcp,
    Udp,
}

/// What the camera does instead of the right answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CameraFault {
    /// Answers with this status.
    Refuse(u16),
    /// Answers with this status and closes; with 401, a wrong login alone.
    RefuseAndClose(u16),
    /// Sends nothing any more, and keeps the connection open.
    Silence,
    /// Leaves this request without an answer.
    Ignore,
    Close,
    /// Resets the connection: bytes in transit are lost.
    Reset,
    /// Sends bytes that are no RTSP.
    Babble,
}

/// First numbers of the packets of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Stamps {
    /// Of the first packet.
    pub sequence: u16,
    /// Of the first picture.
    pub rtp: u32,
    pub ssrc: u32,
}

/// Damage of packets; it depends on their numbers, so that it is the same each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    None,
    /// One of this number of packets is lost.
    LoseOneOf(u64),
    /// One of this number of packets is sent after the next three.
    DelayOneOf(u64),
    /// One of this number of packets has a wrong byte.
    FlipOneOf(u64),
    /// The picture with this number is lost, each time the reel is played.
    LosePicture(usize),
    /// The picture with this number is sent without its first slice, as if it had none.
    Behead(usize),
    /// Each key picture begins with another SSRC and other numbers.
    Renamed,
    /// An ended session sends on, a packet before each picture.
    Foreign,
}

/// Packets that a camera marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marks {
    /// The last of a picture, as RFC 6184 and RFC 7798 demand.
    Pictures,
    /// The last of each slice.
    Slices,
    /// The last of each NAL unit.
    Units,
    Nothing,
}

/// Sender reports of a camera.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reports {
    Missing,
    /// Its clock is off by these seconds.
    Off(i64),
    /// Its clock steps by these seconds with each report.
    Stepping(i64),
}

/// When and how a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamEnding {
    /// Number of pictures before the end.
    pub pictures: usize,
    /// In the middle of the next packet.
    pub torn: bool,
    pub deed: CameraFault,
}

#[derive(Clone, Debug)]
pub struct CameraScript {
    /// Tapes that are played one after the other, in a loop; the first is what the SDP describes.
    pub reel: Arc<[Arc<CameraTape>]>,
    /// Sections of the SDP before the video.
    pub before: &'static str,
    /// Sections of the SDP after the video.
    pub after: &'static str,
    /// The section of the video, when it does not describe the tape.
    pub video: Option<String>,
    /// The header `RTP-Info` of the answer to PLAY.
    pub rtp_info: Option<&'static str>,
    pub login: Option<Login>,
    pub takes: Takes,
    pub redirect: Option<Redirect>,
    /// The answer to SETUP has `interleaved=`.
    pub names_channels: bool,
    /// Faults by the method of the request.
    pub deeds: Vec<(&'static str, CameraFault)>,
    /// Announced session timeout: the session ends without a request for this time.
    pub timeout: Duration,
    /// From PLAY to the first picture.
    pub first_after: Duration,
    /// Time between two pictures.
    pub every: Duration,
    /// Before this picture it sends nothing for a while, and then at once what was due.
    pub hold: Option<(usize, Duration)>,
    pub marks: Marks,
    /// First numbers and times.
    pub stamps: Stamps,
    pub damage: Damage,
    pub reports: Reports,
    /// Time between two reports.
    pub report_every: Duration,
    /// After this number of pictures it continues as another sender.
    pub restart: Option<(usize, Stamps)>,
    /// The end of the stream.
    pub ending: Option<StreamEnding>,
}

impl CameraScript {
    /// A camera without faults, 20 pictures a second.
    pub fn good(tape: &Arc<CameraTape>) -> Self {
        Self {
            reel: [Arc::clone(tape)].into(),
            before: "",
            after: "",
            video: None,
            rtp_info: None,
            login: None,
            takes: Takes::Both,
            redirect: None,
            names_channels: true,
            deeds: Vec::new(),
            timeout: Duration::from_secs(60),
            first_after: Duration::ZERO,
            every: Duration::from_millis(50),
            hold: None,
            marks: Marks::Pictures,
            stamps: Stamps {
                sequence: 1000,
                rtp: 90_000,
                ssrc: 0x1234_5678,
            },
            damage: Damage::None,
            reports: Reports::Off(0),
            report_every: Duration::from_secs(1),
            restart: None,
            ending: None,
        }
    }

    /// With a fault at a request.
    pub fn at(mut self, method: &'static str, deed: CameraFault) -> Self {
        self.deeds.push((method, deed));
        self
    }

    /// With a fault after a number of pictures.
    pub fn after(mut self, pictures: usize, deed: CameraFault) -> Self {
        self.ending = Some(StreamEnding {
            pictures,
            torn: false,
            deed,
        });
        self
    }

    /// With a fault after a number of pictures and half a packet.
    pub fn within(mut self, pictures: usize, deed: CameraFault) -> Self {
        self.ending = Some(StreamEnding {
            pictures,
            torn: true,
            deed,
        });
        self
    }

    /// The fault at a request.
    pub fn deed(&self, method: &str) -> Option<CameraFault> {
        let found = self.deeds.iter().find(|(known, _)| *known == method);
        found.map(|(_, deed)| *deed)
    }

    pub fn sdp(&self) -> String {
        let of_tape = || media(&self.reel[0], "video");
        let video = self.video.clone().unwrap_or_else(of_tape);
        let session = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=camera\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\na=control:*\r\n";
        format!("{session}{}{video}{}", self.before, self.after)
    }
}
